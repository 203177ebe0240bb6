"""Plans: the exact transfers of every kind of access."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from hwtool_contracts.judge_write import UpdateJudgement, judge_update
from hwtool_contracts.library import bundled
from hwtool_contracts.model import Contract, Register, Space
from hwtool_contracts.native import parse_contract
from hwtool_registers.bits import extract
from hwtool_registers.bus import Line, Message, RegisterRead, RegisterWrite, Transfer, as_object, from_object
from hwtool_registers.plan import (
    pieces_of,
    plan_block_read,
    plan_block_write,
    plan_read,
    plan_write,
    selectors,
    updated_value,
)
from hwtool_registers.steps import Plan

UART, GPIO, METER = bundled("sc16is750"), bundled("mcp23017"), bundled("sdm120")


def wire(plan: Plan) -> list[tuple[str, int, str]]:
    lines = []
    for step in plan.steps:
        match step.transfer:
            case RegisterRead(offset=offset, size_bytes=size):
                lines.append(("R", offset, str(size)))
            case RegisterWrite(offset=offset, data=data):
                lines.append(("W", offset, data.hex()))
    return lines


def regs(contract: Contract, *names: str) -> list[Register]:
    return [contract.registers[n] for n in names]


def test_plain_read_when_planned_then_one_transfer() -> None:
    plan = plan_read(GPIO, 0x20, regs(GPIO, "OLATA"), {})
    assert wire(plan) == [("R", 0x14, "1")]
    assert plan.steps[0].transfer == RegisterRead(0x20, Space.MEMORY, 0x14, 1, 1, None)


def test_group_read_when_in_one_transfer_then_pieces_are_cut_out() -> None:
    plan = plan_block_read(GPIO, 0x20, regs(GPIO, "IODIRA", "IODIRB"), {})
    assert wire(plan) == [("R", 0x00, "2")]
    assert pieces_of(plan, GPIO, [b"\x0f\xf0"]) == {"IODIRA": [0x0F], "IODIRB": [0xF0]}


def test_fifo_read_when_count_is_given_then_one_longer_transfer_at_the_fixed_offset() -> None:
    plan = plan_read(UART, 0x48, regs(UART, "RHR"), {"LCR": 0x03}, count=3)
    assert wire(plan) == [("R", 0x00, "3")]
    assert pieces_of(plan, UART, [b"abc"]) == {"RHR": [0x61, 0x62, 0x63]}


def test_pieces_when_an_answer_is_short_then_refused() -> None:
    with pytest.raises(ValueError, match="3 bytes were asked for, 2 came"):
        pieces_of(plan_read(UART, 0x48, regs(UART, "RHR"), {"LCR": 0}, count=3), UART, [b"ab"])


BANKED = [
    ("DLL", 0x03, [("W", 0x18, "80"), ("W", 0x00, "0c"), ("W", 0x18, "03")]),
    ("DLL", 0x80, [("W", 0x00, "0c")]),
    ("EFR", 0x03, [("W", 0x18, "bf"), ("W", 0x10, "0c"), ("W", 0x18, "03")]),
    ("MCR", 0x83, [("W", 0x18, "03"), ("W", 0x20, "0c"), ("W", 0x18, "83")]),
    ("MCR", 0x03, [("W", 0x20, "0c")]),
    ("IODIR", 0x83, [("W", 0x50, "0c")]),
]


@pytest.mark.parametrize(("name", "lcr", "wanted"), BANKED)
def test_banked_write_when_planned_then_selector_access_restore(
    name: str, lcr: int, wanted: list[tuple[str, int, str]]
) -> None:
    plan = plan_write(UART, 0x48, [(UART.registers[name], 0x0C)], {"LCR": lcr})
    assert wire(plan) == wanted
    assert [s.transfer for s in plan.accesses] == [s.transfer for s in plan.steps if s.role == "access"]
    assert len(plan.accesses) == 1
    assert not plan.may_be_partial


def test_bank_when_not_restored_then_no_restore_step() -> None:
    text = """
schema = 1
part = "p"
vendor = "v"
title = "t"
source = "s"
[access]
offset_bytes = 1
byte_order = "big"
[access.i2c]
addresses = [0x20]
[defaults]
read = { effects = ["none"], provenance = "generated", source = "rtl" }
write = { effect = "store", provenance = "generated", source = "rtl" }
[registers.SEL]
offset = 0
access = "rw"
[registers.R]
offset = 1
access = "rw"
bank = "B"
[banks.B]
select = [{ register = "SEL", value = 2, mask = 3 }]
restore = "none"
"""
    contract = parse_contract(text, "p.toml")
    plan = plan_read(contract, 0x20, [contract.registers["R"]], {"SEL": 0x11})
    assert wire(plan) == [("W", 0, "12"), ("R", 1, "1")]


def test_selectors_when_a_register_is_banked_then_they_are_named() -> None:
    assert [r.name for r in selectors(UART, UART.registers["DLL"])] == ["LCR"]
    assert selectors(UART, UART.registers["LCR"]) == ()


def test_modbus_read_when_planned_then_function_and_words() -> None:
    plan = plan_read(METER, 1, regs(METER, "VOLTAGE", "METER_CODE"), {})
    assert [s.transfer for s in plan.steps] == [
        RegisterRead(1, Space.INPUT, 0x0000, 4, 1, 4),
        RegisterRead(1, Space.HOLDING, 0xFC02, 2, 1, 3),
    ]


def modbus(functions: list[int], atomic: bool = False) -> Contract:
    return parse_contract(
        f"""
schema = 1
part = "p"
vendor = "v"
title = "t"
source = "s"
[access]
[access.modbus]
base = 0
functions = {functions}
atomic_multi = {str(atomic).lower()}
[registers.ONE]
offset = 7
space = "holding"
access = "rw"
[registers.TWO]
offset = 8
space = "holding"
access = "rw"
width_bits = 32
""",
        "p.toml",
    )


WRITES = [
    ([3, 6, 16], False, "ONE", [(6, 7, "0001", True)]),
    ([3, 16], False, "ONE", [(16, 7, "0001", True)]),
    ([3, 6, 16], False, "TWO", [(16, 8, "00000001", False)]),
    ([3, 6, 16], True, "TWO", [(16, 8, "00000001", True)]),
    ([3, 6], False, "TWO", [(6, 8, "0000", True), (6, 9, "0001", True)]),
    ([], False, "ONE", [(6, 7, "0001", True)]),
]


@pytest.mark.parametrize(("functions", "atomic", "name", "wanted"), WRITES)
def test_modbus_write_when_planned_then_the_function_the_device_has(
    functions: list[int], atomic: bool, name: str, wanted: list[tuple[int, int, str, bool]]
) -> None:
    contract = modbus(functions, atomic)
    plan = plan_write(contract, 1, [(contract.registers[name], 1)], {})
    found = [
        (s.transfer.function, s.transfer.offset, s.transfer.data.hex(), s.transfer.atomic)
        for s in plan.steps
        if isinstance(s.transfer, RegisterWrite)
    ]
    assert found == wanted
    assert plan.may_be_partial == (len(wanted) > 1)


def test_group_write_when_in_one_transfer_then_the_bytes_follow_each_other() -> None:
    values = [(GPIO.registers["OLATA"], 0x0F), (GPIO.registers["OLATB"], 0xF0)]
    assert wire(plan_block_write(GPIO, 0x20, values, {})) == [("W", 0x14, "0ff0")]
    assert wire(plan_write(GPIO, 0x20, values, {})) == [("W", 0x14, "0f"), ("W", 0x15, "f0")]


@given(current=st.integers(0, 0xFFFF), mux=st.integers(0, 7))
def test_update_when_one_field_changes_then_its_neighbours_keep_theirs(current: int, mux: int) -> None:
    config = bundled("ads1115").registers["CONFIG"]
    judged = judge_update(bundled("ads1115"), config, frozenset({"MUX"}))
    assert isinstance(judged, UpdateJudgement)
    written = updated_value(config, judged, current, {"MUX": mux})
    assert extract(written, config.fields["MUX"]) == mux
    assert extract(written, config.fields["OS"]) == 0  # a conversion is not started by accident
    others = 0xFFFF & ~config.fields["MUX"].mask & ~config.fields["OS"].mask
    assert (written ^ current) & others == 0


def test_update_of_a_flag_when_planned_then_w1c_neighbours_are_left_alone_hc020() -> None:
    status = bundled("ds3231").registers["STATUS"]
    judged = judge_update(bundled("ds3231"), status, frozenset({"A1F", "EN32KHZ"}))
    assert isinstance(judged, UpdateJudgement)
    # A1F is cleared by zero; A2F and OSF get ones; nothing has to be read
    assert updated_value(status, judged, None, {"A1F": 0, "EN32KHZ": 1}) == 0x8A


def test_update_when_the_current_value_is_missing_then_refused() -> None:
    olat = GPIO.registers["OLATA"]
    judged = judge_update(GPIO, olat, frozenset({"P0"}))
    assert isinstance(judged, UpdateJudgement)
    with pytest.raises(ValueError, match="current value of OLATA"):
        updated_value(olat, judged, None, {"P0": 1})


TRANSFERS: list[Transfer] = [
    RegisterRead(0x20, Space.MEMORY, 0x14, 1),
    RegisterRead(1, Space.INPUT, 0x1234, 4, 1, 4),
    RegisterWrite(0x20, Space.MEMORY, 0x14, b"\x40"),
    RegisterWrite(1, Space.HOLDING, 8, b"\x00\x01\x00\x02", 1, 16, False),
    Message(0x44, b"\x2c\x06", 6),
    Line("MEAS:VOLT?", True),
]


@pytest.mark.parametrize("transfer", TRANSFERS)
def test_transfer_when_shown_and_read_back_then_the_same(transfer: Transfer) -> None:
    assert from_object(as_object(transfer)) == transfer


def test_transfer_when_the_object_is_none_of_them_then_refused() -> None:
    with pytest.raises(ValueError, match="dance"):
        from_object({"do": "dance"})
