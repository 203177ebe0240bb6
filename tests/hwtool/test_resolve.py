"""From the words of a request to registers and raw values: every refusal, every form of a value, and the digest."""

from __future__ import annotations

import hashlib
import hmac
from collections.abc import Callable, Mapping
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from hwtool.bench import bench
from hwtool.buses import make_bus
from hwtool.catalogue import cursor_of
from hwtool.clock import Clock
from hwtool.config import Board, DeviceSpec
from hwtool.devices import Device
from hwtool.digest import CONTRACT_MEMBERS, describe_differences, differences, digest_input, digest_of
from hwtool.journal import REDACTED
from hwtool.resolve import Resolved, clean_read, find_device, find_members, resolve_read, resolve_update, resolve_write
from hwtool.worker import BusWorker
from hwtool_contracts.errors import Code, DomainError
from hwtool_contracts.messages import ReadEffectfulParams, StoreSeen, UpdateParams, Value, ValueObject, WriteParams
from hwtool_contracts.model import Contract
from tests.contracts.test_judge import reg, toy

KEY = "write-0001"


def devices_of(board: Board) -> dict[str, Device]:
    """The devices of a simulated board, as the engine makes them; no bus is asked anything here."""
    buses = board.buses.values()
    workers = {b.name: BusWorker(b, make_bus(b, board, Path()), Clock()) for b in buses}
    return {
        spec.name: Device(spec, workers[spec.bus], spec.locus(board.buses[spec.bus])) for spec in board.devices.values()
    }


BENCH = devices_of(bench())


def with_toy(*registers: str) -> dict[str, Device]:
    """The bench with one more device `toy`, of a contract made for one rule."""
    contract: Contract = toy(*registers)
    board = bench()
    spec = DeviceSpec("toy", "toy.toml", contract, "i2c0", 0x21, None)
    return devices_of(replace(board, devices={**board.devices, "toy": spec}))


def write(
    register: str,
    value: Value,
    mask: int | str | None = None,
    *,
    expect: dict[str, Value] | None = None,
    devices: Mapping[str, Device] = BENCH,
) -> Resolved:
    return resolve_write(devices, WriteParams(key=KEY, register=register, value=value, mask=mask, expect=expect))


def group_write(registers: dict[str, Value], mask: int | None = None) -> Resolved:
    return resolve_write(BENCH, WriteParams(key=KEY, registers=registers, mask=mask))


def update(register: str, fields: dict[str, Value], devices: Mapping[str, Device] = BENCH) -> Resolved:
    return resolve_update(devices, UpdateParams(key=KEY, register=register, fields=fields))


def read(*registers: str, count: int | None = None, devices: Mapping[str, Device] = BENCH) -> Resolved:
    if len(registers) == 1:
        return resolve_read(devices, ReadEffectfulParams(key=KEY, register=registers[0], count=count))
    return resolve_read(devices, ReadEffectfulParams(key=KEY, registers=list(registers), count=count))


def shown(error: DomainError) -> dict[str, Any]:
    return {"code": error.code, "message": error.message, "hint": error.hint, **error.fields}


# ---- names


@pytest.mark.parametrize("name", ["gpio", "gpio.OLATA", "gpio.NOBODY"])
def test_device_when_it_exists_then_found_by_its_own_or_a_registers_name(name: str) -> None:
    assert find_device(BENCH, name).name == "gpio"


@pytest.mark.parametrize(
    ("name", "suggestions"), [("gpi0.OLATA", ["gpio"]), ("", sorted(BENCH)), ("nothing.like", sorted(BENCH))]
)
def test_device_when_there_is_none_then_not_found_with_near_misses(name: str, suggestions: list[str]) -> None:
    with pytest.raises(DomainError) as caught:
        find_device(BENCH, name)
    assert caught.value.code is Code.NOT_FOUND
    assert caught.value.fields == {"searched": name.partition(".")[0], "suggestions": suggestions}


def test_members_when_a_group_is_named_then_all_in_its_order() -> None:
    members, group = find_members(BENCH["rtc"], "rtc.ALARM2")
    assert group is not None
    assert [m.name for m in members] == ["A2_MINUTES", "A2_HOURS", "A2_DAY_DATE"]
    assert find_members(BENCH["gpio"], "gpio.OLATA") == ((BENCH["gpio"].contract.registers["OLATA"],), None)


@pytest.mark.parametrize(
    ("name", "suggestions", "hint"),
    [
        ("gpio.OLATC", ["gpio.OLAT", "gpio.OLATB", "gpio.OLATA"], None),
        ("gpio.olata", ["gpio.OLATA", "gpio.OLAT", "gpio.OLATB"], None),
        ("gpio.OLATA.P0", ["gpio.OLATA"], "reg.update"),
        ("gpio.zzzzz", [], None),
        ("gpio", [], None),
        ("gpio.", [], None),
    ],
)
def test_register_when_there_is_none_then_not_found_with_near_misses(
    name: str, suggestions: list[str], hint: str | None
) -> None:
    with pytest.raises(DomainError) as caught:
        find_members(BENCH["gpio"], name)
    assert caught.value.code is Code.NOT_FOUND
    assert caught.value.fields["searched"] == name
    if name.rstrip(".") == "gpio":  # a device alone: some of its registers
        assert list(caught.value.fields["suggestions"] or [])[:2] == ["gpio.IODIRA", "gpio.IODIRB"]
        assert "gpio.REGISTER" in caught.value.message
    else:
        assert caught.value.fields["suggestions"] == suggestions
    if hint is not None:
        assert hint in caught.value.hint
        assert "gpio.OLATA" in caught.value.hint


# ---- clean reads


def test_clean_read_when_registers_and_groups_are_named_then_each_is_kept() -> None:
    device, registers, groups = clean_read(BENCH, ["rtc.CONTROL", "rtc.TIME", "rtc.STATUS"])
    assert device.name == "rtc"
    assert [r.name for r in registers] == ["CONTROL", "STATUS"]
    assert [g.name for g in groups] == ["TIME"]


def test_clean_read_when_latches_are_read_as_their_group_then_allowed_and_alone_not() -> None:
    latch = "read = { effects = ['latch'] }"
    devices = with_toy(reg("L", 0, latch), reg("H", 1, latch), "[groups.G]\nmembers = ['L', 'H']\ntransfer = 'one'")
    assert [g.name for g in clean_read(devices, ["toy.G"])[2]] == ["G"]
    with pytest.raises(DomainError) as caught:
        clean_read(devices, ["toy.L"])
    assert caught.value.fields["rule"] == "read_has_side_effects"


@pytest.mark.parametrize(
    ("names", "code", "fields"),
    [
        (["gpio.INTCAPA"], Code.REFUSED, {"rule": "read_has_side_effects", "register": "gpio.INTCAPA", "field": None}),
        (["uart.LSR"], Code.REFUSED, {"rule": "read_has_side_effects", "register": "uart.LSR"}),
        (["uart.THR"], Code.REFUSED, {"rule": "write_only", "register": "uart.THR"}),
        (
            ["gpio.OLATA", "temp.TLOW"],
            Code.INVALID_ARGS,
            {"path": "$.registers[1]", "expected": "a register of gpio", "got": "temp.TLOW"},
        ),
        (["gpio.OLATA", "gpio.NONE"], Code.NOT_FOUND, {"searched": "gpio.NONE"}),
        (["nobody.X"], Code.NOT_FOUND, {"searched": "nobody"}),
    ],
)
def test_clean_read_when_it_is_none_then_refused_with_the_rule(
    names: list[str], code: Code, fields: dict[str, Any]
) -> None:
    with pytest.raises(DomainError) as caught:
        clean_read(BENCH, names)
    assert caught.value.code is code
    assert caught.value.fields.items() >= fields.items()


# ---- reads with effects


def test_read_when_one_register_is_named_then_it_and_its_judgement() -> None:
    resolved = read("uart.RHR", count=5)
    assert (resolved.kind, resolved.count, resolved.changes, resolved.group) == ("read", 5, (), None)
    ((register, judged),) = resolved.reads
    assert (register.name, judged.consuming) == ("RHR", True)
    assert (resolved.name(), resolved.approval, resolved.sensitive) == ("uart.RHR", (), False)


def test_read_when_several_are_named_then_exactly_these_in_order() -> None:
    resolved = read("gpio.GPIOB", "gpio.INTCAPA")
    assert [r.name for r in resolved.registers] == ["GPIOB", "INTCAPA"]
    assert resolved.name() == "gpio.GPIOB, INTCAPA"
    assert resolved.count == 1


@pytest.mark.parametrize("count", [1, 64])
def test_read_when_the_burst_is_allowed_then_counted(count: int) -> None:
    assert read("uart.RHR", count=count).count == count


@pytest.mark.parametrize(
    ("names", "count", "code", "fields"),
    [
        (("gpio.OLATA",), None, Code.REFUSED, {"rule": "read_is_clean", "register": "gpio.OLATA", "field": None}),
        (("uart.THR",), None, Code.REFUSED, {"rule": "write_only", "register": "uart.THR"}),
        (("rtc.TIME",), None, Code.REFUSED, {"rule": "group_read_with_effects", "register": "rtc.TIME"}),
        (("gpio.INTCAPA",), 2, Code.REFUSED, {"rule": "max_burst", "register": "gpio.INTCAPA"}),
        (("uart.RHR", "uart.MSR"), 2, Code.REFUSED, {"rule": "max_burst", "register": "uart.RHR"}),
        (("uart.RHR", "uart.IOSTATE"), None, Code.REFUSED, {"rule": "banks_differ", "register": "uart.RHR"}),
        (("uart.MSR", "gpio.GPIOA"), None, Code.INVALID_ARGS, {"path": "$.registers[1]", "got": "gpio.GPIOA"}),
        (("uart.MSR", "uart.MSR"), None, Code.INVALID_ARGS, {"path": "$.registers[1]", "got": "uart.MSR"}),
        (("gpio.GPIOA", "gpio.GPIOB", "gpio.GPIOA"), None, Code.INVALID_ARGS, {"path": "$.registers[2]"}),
        (("uart.RHX",), None, Code.NOT_FOUND, {"searched": "uart.RHX"}),
        (("uart",), None, Code.NOT_FOUND, {"searched": "uart"}),
        (("art.RHR",), None, Code.NOT_FOUND, {"searched": "art"}),
    ],
)
def test_read_when_it_cannot_be_done_then_code_and_rule_say_why(
    names: tuple[str, ...], count: int | None, code: Code, fields: dict[str, Any]
) -> None:
    with pytest.raises(DomainError) as caught:
        read(*names, count=count)
    assert caught.value.code is code
    assert caught.value.fields.items() >= fields.items()
    assert caught.value.hint


def test_read_when_no_burst_is_declared_for_all_of_it_then_the_limit_is_said() -> None:
    with pytest.raises(DomainError, match="one element"):
        read("uart.RHR", "uart.MSR", count=2)


def test_read_when_the_burst_is_longer_than_one_transfer_then_it_is_taken_in_chunks() -> None:
    assert read("uart.RHR", count=65).count == 65


# ---- whole-register writes


@pytest.mark.parametrize(
    ("register", "value", "raw"),
    [
        ("gpio.OLATA", 0x55, 0x55),
        ("gpio.OLATA", "0x55", 0x55),
        ("gpio.OLATA", "0b101", 0b101),
        ("gpio.OLATA", "85", 85),
        ("rtc.AGING", ValueObject(scaled="-1"), 0xFF),
        ("meter.TIME_OF_SCROLL_DISPLAY", ValueObject(scaled="9", unit="s"), 9),
        ("meter.PULSE_1_OUTPUT", "kwh_0_1", 2),
        ("meter.RELAY_PULSE_WIDTH", ValueObject(scaled="100", unit="ms"), 0x42C80000),
    ],
)
def test_write_when_the_value_has_any_of_its_forms_then_the_raw_bits(register: str, value: Value, raw: int) -> None:
    resolved = write(register, value)
    (change,) = resolved.changes
    assert (resolved.kind, change.value, change.mask, change.update, dict(change.fields)) == (
        "write",
        raw,
        None,
        None,
        {},
    )
    assert resolved.name() == register


@pytest.mark.parametrize(
    ("register", "value", "expected"),
    [
        ("gpio.OLATA", 0x100, "0xff"),
        ("gpio.OLATA", -1, "0xff"),
        ("gpio.OLATA", "low", "an integer"),
        ("meter.PULSE_1_OUTPUT", "kwh", "kwh_0_001"),
        ("meter.TIME_OF_SCROLL_DISPLAY", ValueObject(scaled="9", unit="ms"), "a value in s"),
        ("meter.TIME_OF_SCROLL_DISPLAY", ValueObject(scaled="8.5", unit="s"), "8 or 9"),
        ("rtc.AGING", ValueObject(scaled="200"), "-128 to 127"),
        ("rtc.AGING", ValueObject(scaled="many"), "a decimal number"),
        ("gpio.OLATA", ValueObject(text="on"), "text is for registers of text"),
        ("gpio.OLATA", ValueObject(hex="00"), "hex is for memories"),
    ],
)
def test_write_when_the_value_does_not_fit_then_invalid_with_what_would(
    register: str, value: Value, expected: str
) -> None:
    with pytest.raises(DomainError) as caught:
        write(register, value)
    assert (caught.value.code, caught.value.fields["path"]) == (Code.INVALID_ARGS, "$.value")
    assert expected in str(caught.value.fields["expected"])


def test_write_when_rounding_is_asked_for_then_the_nearest() -> None:
    (change,) = write("meter.TIME_OF_SCROLL_DISPLAY", ValueObject(scaled="8.4", unit="s", round="nearest")).changes
    assert change.value == 8


@pytest.mark.parametrize(
    ("register", "value", "rule", "field"),
    [
        ("gpio.INTFA", 0, "read_only", None),
        ("gpio.IOCON", 0x80, "breaks_assumption", "BANK"),
        ("uart.MCR", 0x04, "out_of_limits", "TCR_TLR_ENABLE"),
        ("meter.PULSE_1_OUTPUT", 9, "not_a_value", None),
        ("meter.TIME_OF_SCROLL_DISPLAY", 10, "out_of_limits", None),
        ("meter.RELAY_PULSE_WIDTH", 0x42C90000 + 0x01000000, "out_of_limits", None),
        ("meter.RELAY_PULSE_WIDTH", ValueObject(scaled="59.5", unit="ms"), "out_of_limits", None),
        ("meter.RELAY_PULSE_WIDTH", 0x7FC00000, "out_of_limits", None),
        ("rtc.SECONDS", 0x80, "reserved_bits", "ZERO"),
    ],
)
def test_write_when_the_contract_forbids_it_then_rule_register_and_field(
    register: str, value: Value, rule: str, field: str | None
) -> None:
    with pytest.raises(DomainError) as caught:
        write(register, value)
    assert (
        shown(caught.value).items()
        >= {
            "code": Code.REFUSED,
            "rule": rule,
            "register": register,
            "field": field,
        }.items()
    )


def test_write_when_a_person_must_agree_then_every_reason_once() -> None:
    reasons = write("meter.PULSE_1_OUTPUT", "kwh_1").approval
    assert len(reasons) == len(set(reasons)) == 2
    assert write("gpio.OLATA", 1).approval == ()


def test_write_when_a_group_is_named_as_one_register_then_its_members_are_asked_for() -> None:
    with pytest.raises(DomainError) as caught:
        write("rtc.ALARM2", 0)
    assert (caught.value.code, caught.value.fields["path"]) == (Code.INVALID_ARGS, "$.registers")
    assert "A2_MINUTES, A2_HOURS, A2_DAY_DATE" in str(caught.value.fields["expected"])


@pytest.mark.parametrize("name", ["gpio.OLATX", "nobody.OLATA", "gpio.OLATA.P0"])
def test_write_when_the_name_is_unknown_then_not_found(name: str) -> None:
    with pytest.raises(DomainError) as caught:
        write(name, 0)
    assert caught.value.code is Code.NOT_FOUND


# ---- masked writes

LOOSE = reg("R", 0, "fields.F = { bits = '7:6' }")


def test_masked_write_when_it_covers_fields_then_they_are_named_and_the_rest_kept() -> None:
    (change,) = write("gpio.OLATA", 0x05, "0x0f").changes
    assert (change.value, change.mask) == (0x05, 0x0F)
    assert dict(change.fields) == {"P0": 1, "P1": 0, "P2": 1, "P3": 0}
    assert change.update is not None
    assert (change.update.needs_current, change.update.from_current) == (True, 0xF0)


def test_masked_write_when_it_covers_bits_of_no_field_then_they_are_kept_too() -> None:
    (change,) = write("toy.R", 0x81, 0xC1, devices=with_toy(LOOSE)).changes
    assert (change.value, change.mask, dict(change.fields)) == (0x81, 0xC1, {"F": 2})
    assert change.update is not None
    assert change.update.from_current == 0x3E


def test_masked_write_when_the_register_has_no_fields_then_only_its_bits() -> None:
    (change,) = write("toy.R", 0x03, 0x0F, devices=with_toy(reg("R", 0))).changes
    assert (change.value, change.mask, dict(change.fields)) == (0x03, 0x0F, {})


@pytest.mark.parametrize("mask", [0, -1, 0x100, "0x100", "all", ""])
def test_masked_write_when_the_mask_is_none_then_invalid(mask: int | str) -> None:
    with pytest.raises(DomainError) as caught:
        write("gpio.OLATA", 0, mask)
    assert shown(caught.value).items() >= {"code": Code.INVALID_ARGS, "path": "$.mask", "got": mask}.items()
    assert "0xff" in str(caught.value.fields["expected"])


def test_masked_write_when_the_value_has_bits_outside_then_invalid() -> None:
    with pytest.raises(DomainError) as caught:
        write("gpio.OLATA", 0x10, 0x0F)
    assert shown(caught.value).items() >= {"code": Code.INVALID_ARGS, "path": "$.value", "got": "0x10"}.items()


@pytest.mark.parametrize("value", [0x42C80000, 0x7FC00000, 0])
@pytest.mark.parametrize("mask", [0xFFFFFFFF, "0xffff0000", 1])
def test_masked_write_when_the_register_is_a_float_in_no_limits_then_the_mask_is_invalid(
    value: int, mask: int | str
) -> None:
    devices = with_toy(reg("R", 0, "width_bits = 32\nencoding = 'float32'"))
    with pytest.raises(DomainError) as caught:
        write("toy.R", value, mask, devices=devices)
    assert shown(caught.value).items() >= {"code": Code.INVALID_ARGS, "path": "$.mask"}.items()


@pytest.mark.parametrize(
    ("value", "code"), [(0x42C80000, Code.INVALID_ARGS), (0x43C80000, Code.REFUSED), (0x7FC00000, Code.REFUSED)]
)
def test_masked_write_when_the_register_is_a_float_then_its_limits_hold_too(value: int, code: Code) -> None:
    with pytest.raises(DomainError) as caught:
        write("meter.RELAY_PULSE_WIDTH", value, 0xFFFFFFFF)
    assert caught.value.code is code


def test_masked_write_when_it_splits_a_field_then_refused_naming_it() -> None:
    with pytest.raises(DomainError) as caught:
        write("toy.R", 0x40, 0x40, devices=with_toy(LOOSE))
    wanted = {"code": Code.REFUSED, "rule": "mask_splits_field", "register": "toy.R", "field": "F"}
    assert shown(caught.value).items() >= wanted.items()
    assert "0xc0" in caught.value.hint


@pytest.mark.parametrize(
    ("register", "value", "mask", "rule", "field"),
    [
        ("gpio.IOCON", 0x80, 0x80, "breaks_assumption", "BANK"),
        ("rtc.STATUS", 0x04, 0x04, "read_only", "BSY"),
    ],
)
def test_masked_write_when_the_contract_forbids_it_then_refused(
    register: str, value: int, mask: int, rule: str, field: str
) -> None:
    with pytest.raises(DomainError) as caught:
        write(register, value, mask)
    assert shown(caught.value).items() >= {"rule": rule, "register": register, "field": field}.items()


# ---- groups


ALARM: dict[str, Value] = {"rtc.A2_DAY_DATE": 0x12, "rtc.A2_MINUTES": 0x30, "rtc.A2_HOURS": 0x07}


def test_group_write_when_all_members_are_named_then_in_the_groups_order() -> None:
    resolved = group_write(ALARM)
    assert resolved.group is not None
    assert (resolved.group.name, resolved.name()) == ("ALARM2", "rtc.ALARM2")
    assert [(c.register.name, c.value, c.mask) for c in resolved.changes] == [
        ("A2_MINUTES", 0x30, None),
        ("A2_HOURS", 0x07, None),
        ("A2_DAY_DATE", 0x12, None),
    ]


@pytest.mark.parametrize(
    ("registers", "mask", "code", "fields"),
    [
        ({}, None, Code.INVALID_ARGS, {"path": "$.registers"}),
        (ALARM, 1, Code.INVALID_ARGS, {"path": "$.mask", "got": 1}),
        (ALARM | {"gpio.OLATA": 1}, None, Code.INVALID_ARGS, {"path": "$.registers.gpio.OLATA"}),
        (ALARM | {"rtc.A2_HOURS": 0x100}, None, Code.INVALID_ARGS, {"path": "$.registers.rtc.A2_HOURS", "got": 0x100}),
        (ALARM | {"rtc.TIME": 0}, None, Code.INVALID_ARGS, {"path": "$.registers.rtc.TIME", "got": "rtc.TIME"}),
        ({"rtc.ALARM2": 0}, None, Code.INVALID_ARGS, {"path": "$.registers.rtc.ALARM2", "got": "rtc.ALARM2"}),
        (ALARM | {"rtc.CONTROL": 0}, None, Code.REFUSED, {"rule": "not_a_group", "register": "rtc.A2_DAY_DATE"}),
        ({"rtc.A2_HOURS": 1}, None, Code.REFUSED, {"rule": "not_a_group"}),
        ({"gpio.OLATA": 1, "gpio.IODIRA": 1}, None, Code.REFUSED, {"rule": "not_a_group"}),
        ({"temp.TLOW": 0}, None, Code.REFUSED, {"rule": "not_a_group"}),
        (ALARM | {"rtc.A2_HOUR": 1}, None, Code.NOT_FOUND, {"searched": "rtc.A2_HOUR"}),
        ({"clock.TIME": 1}, None, Code.NOT_FOUND, {"searched": "clock"}),
    ],
)
def test_group_write_when_it_is_none_then_code_and_place(
    registers: dict[str, Value], mask: int | None, code: Code, fields: dict[str, Any]
) -> None:
    with pytest.raises(DomainError) as caught:
        group_write(registers, mask)
    assert caught.value.code is code
    assert caught.value.fields.items() >= fields.items()


@pytest.mark.parametrize(("register", "words"), [("rtc.CONTROL", "ALARM2: A2_MINUTES"), ("temp.TLOW", "has none")])
def test_group_write_when_it_is_none_then_the_hint_lists_the_groups_there_are(register: str, words: str) -> None:
    with pytest.raises(DomainError) as caught:
        group_write({register: 0})
    assert words in caught.value.hint


def test_group_write_when_one_member_is_forbidden_then_refused_for_it() -> None:
    time: dict[str, Value] = {f"rtc.{n}": 1 for n in BENCH["rtc"].contract.groups["TIME"].members}
    with pytest.raises(DomainError) as caught:
        group_write(time | {"rtc.HOURS": 0x80})
    assert shown(caught.value).items() >= {"rule": "reserved_bits", "register": "rtc.HOURS", "field": "ZERO"}.items()


# ---- field updates


def test_update_when_fields_are_named_then_their_bits_and_no_others() -> None:
    resolved = update("gpio.OLATA", {"P0": "high", "P3": 1})
    (change,) = resolved.changes
    assert (resolved.kind, change.value, change.mask, dict(change.fields)) == ("update", 0x09, 0x09, {"P0": 1, "P3": 1})
    assert change.update is not None
    assert change.update.from_current == 0xF6


@pytest.mark.parametrize(
    ("register", "field", "value", "raw"),
    [
        ("temp.TLOW", "T", ValueObject(scaled="-0.0625", unit="°C"), 0xFFF),
        ("temp.CONFIGURATION", "CR1_CR0", "hz_8", 3),
        ("rtc.A1_SECONDS", "SECONDS", ValueObject(scaled="59", unit="s"), 0x59),
    ],
)
def test_update_when_a_field_is_a_quantity_then_converted(register: str, field: str, value: Value, raw: int) -> None:
    (change,) = update(register, {field: value}).changes
    assert dict(change.fields) == {field: raw}


LIMITED = "write = { effect = 'store', provenance = 'generated', source = 'rtl', limits = { min = 1, max = 2 } }"
FLOAT_FIELD = reg("R", 0, f"width_bits = 32\nfields.F = {{ bits = '31:0', encoding = 'float32', {LIMITED} }}")


@pytest.mark.parametrize("value", [0x3F800000, 0x40000000, ValueObject(scaled="1.5")])
def test_update_when_a_float_field_is_inside_its_limits_then_converted(value: Value) -> None:
    (change,) = update("toy.R", {"F": value}, with_toy(FLOAT_FIELD)).changes
    assert 0x3F800000 <= change.value <= 0x40000000


@pytest.mark.parametrize(
    "value", [0x3F7FFFFF, 0x40000001, 0, 0xBF800000, 0x7FC00000, 0x7F800000, ValueObject(scaled="2.5")]
)
def test_update_when_a_float_field_is_outside_its_limits_then_refused_for_the_field(value: Value) -> None:
    with pytest.raises(DomainError) as caught:
        update("toy.R", {"F": value}, with_toy(FLOAT_FIELD))
    wanted = {"code": Code.REFUSED, "rule": "out_of_limits", "register": "toy.R", "field": "F"}
    assert shown(caught.value).items() >= wanted.items()


@pytest.mark.parametrize(
    ("register", "fields", "code", "wanted"),
    [
        ("gpio.OLATA", {"P9": 1}, Code.NOT_FOUND, {"searched": "P9"}),
        ("gpio.OLATA", {"p0": 1}, Code.NOT_FOUND, {"searched": "p0"}),
        ("gpio.OLATA", {"P0": 2}, Code.INVALID_ARGS, {"path": "$.fields.P0", "got": 2}),
        ("gpio.OLATA", {"P0": "on"}, Code.INVALID_ARGS, {"path": "$.fields.P0"}),
        ("rtc.TIME", {"SECONDS": 1}, Code.INVALID_ARGS, {"path": "$.register", "expected": "one register"}),
        ("rtc.STATUS", {"BSY": 1}, Code.REFUSED, {"rule": "read_only", "field": "BSY"}),
        ("gpio.IOCON", {"SEQOP": 1}, Code.REFUSED, {"rule": "breaks_assumption", "field": "SEQOP"}),
        ("gpio.OLATA.P0", {"P0": 1}, Code.NOT_FOUND, {"searched": "gpio.OLATA.P0"}),
        ("nobody.R", {"P0": 1}, Code.NOT_FOUND, {"searched": "nobody"}),
    ],
)
def test_update_when_it_cannot_be_done_then_code_and_place(
    register: str, fields: dict[str, Value], code: Code, wanted: dict[str, Any]
) -> None:
    with pytest.raises(DomainError) as caught:
        update(register, fields)
    assert caught.value.code is code
    assert caught.value.fields.items() >= wanted.items()


@pytest.mark.parametrize(
    ("register", "field", "near"),
    [("temp.CONFIGURATION", "cr1", "CR1_CR0"), ("gpio.OLATA", "zzz", "P7"), ("gpio.OLATA", "p0", "P0")],
)
def test_update_when_the_field_is_unknown_then_near_ones_or_all_are_suggested(
    register: str, field: str, near: str
) -> None:
    with pytest.raises(DomainError) as caught:
        update(register, {field: 1})
    assert near in str(caught.value.fields["suggestions"])


# ---- expectations


def test_expect_when_clean_registers_are_named_then_their_raw_values() -> None:
    expect: dict[str, Value] = {"gpio.IODIRA": "0xfe", "gpio.OLATA": 0}
    assert dict(write("gpio.OLATA", 1, expect=expect).expect) == {"IODIRA": 0xFE, "OLATA": 0}
    params = UpdateParams(key=KEY, register="gpio.OLATA", fields={"P0": 1}, expect=expect)
    assert dict(resolve_update(BENCH, params).expect) == {"IODIRA": 0xFE, "OLATA": 0}
    popping = ReadEffectfulParams(key=KEY, register="uart.RHR", expect={"uart.RXLVL": 5})
    assert dict(resolve_read(BENCH, popping).expect) == {"RXLVL": 5}
    grouped = WriteParams(key=KEY, registers=ALARM, expect={"rtc.CONTROL": 0x1C})
    assert dict(resolve_write(BENCH, grouped).expect) == {"CONTROL": 0x1C}


@pytest.mark.parametrize(
    ("expect", "code", "fields"),
    [
        ({"rtc.CONTROLS": 0}, Code.NOT_FOUND, {"searched": "rtc.CONTROLS"}),
        ({"rtc.ALARM1": 0}, Code.INVALID_ARGS, {"path": "$.expect.rtc.ALARM1", "expected": "a register"}),
        ({"rtc.CONTROL": 0x100}, Code.INVALID_ARGS, {"path": "$.expect.rtc.CONTROL"}),
        ({"rtc.CONTROL": "on"}, Code.INVALID_ARGS, {"path": "$.expect.rtc.CONTROL"}),
        ({"gpio.OLATA": 0}, Code.INVALID_ARGS, {"path": "$.expect.gpio.OLATA", "got": "gpio.OLATA"}),
        ({"rtc.CONTROL": 0, "temp.TLOW": 0}, Code.INVALID_ARGS, {"path": "$.expect.temp.TLOW", "got": "temp.TLOW"}),
        ({"nobody.CONTROL": 0}, Code.NOT_FOUND, {"searched": "nobody"}),
        ({"CONTROL": 0}, Code.NOT_FOUND, {"searched": "CONTROL"}),
        ({"rtc": 0}, Code.NOT_FOUND, {"searched": "rtc"}),
    ],
)
def test_expect_when_it_cannot_be_looked_at_then_code_and_place(
    expect: dict[str, Value], code: Code, fields: dict[str, Any]
) -> None:
    with pytest.raises(DomainError) as caught:
        write("rtc.AGING", 0, expect=expect)
    assert caught.value.code is code
    assert caught.value.fields.items() >= fields.items()


@pytest.mark.parametrize(("name", "rule"), [("RHR", "read_has_side_effects"), ("THR", "write_only")])
def test_expect_when_looking_has_effects_or_is_impossible_then_refused(name: str, rule: str) -> None:
    with pytest.raises(DomainError) as caught:
        write("uart.SPR", 0, expect={f"uart.{name}": 0})
    wanted = {"code": Code.REFUSED, "rule": rule, "register": f"uart.{name}"}
    assert shown(caught.value).items() >= wanted.items()


def test_expect_when_a_float_is_outside_the_limits_of_a_write_then_it_may_still_be_expected() -> None:
    expect: dict[str, Value] = {"meter.RELAY_PULSE_WIDTH": 0}
    assert write("meter.TIME_OF_SCROLL_DISPLAY", 9, expect=expect).expect == {"RELAY_PULSE_WIDTH": 0}


# ---- sensitive registers

SECRET = with_toy(
    reg("KEY", 0, f"sensitive = true\nfields.F = {{ bits = '3:0', {LIMITED} }}\nfields.G = {{ bits = '7:4' }}"),
    reg("PLAIN", 1),
    reg("NUMBER", 2, f"sensitive = true\nwidth_bits = 32\nencoding = 'float32'\n{LIMITED}"),
)


def test_sensitive_when_only_looked_at_by_expect_then_the_whole_request_is() -> None:
    assert not write("toy.PLAIN", 1, expect={"toy.PLAIN": 0}, devices=SECRET).sensitive
    assert write("toy.PLAIN", 1, expect={"toy.KEY": 0}, devices=SECRET).sensitive
    assert write("toy.PLAIN", 1, expect={"toy.PLAIN": 0, "toy.KEY": 0}, devices=SECRET).sensitive
    asked = UpdateParams(key=KEY, register="toy.KEY", fields={"F": 1})
    assert resolve_update(SECRET, asked).sensitive


@pytest.mark.parametrize("value", ["hunter2", 0x1BADC0DE, "0x1BADC0DE", ValueObject(scaled="464371934")])
def test_sensitive_when_a_value_does_not_fit_then_the_error_is_silent_of_it(value: Value) -> None:
    calls: tuple[Callable[[], Resolved], ...] = (
        lambda: write("toy.KEY", value, devices=SECRET),
        lambda: update("toy.KEY", {"G": value}, SECRET),
        lambda: write("toy.PLAIN", 1, expect={"toy.KEY": value}, devices=SECRET),
    )
    for call in calls:
        with pytest.raises(DomainError) as caught:
            call()
        assert (caught.value.code, caught.value.fields["got"]) == (Code.INVALID_ARGS, REDACTED)
        told = str(shown(caught.value)).lower()
        assert not [w for w in ("hunter2", "1badc0de", str(0x1BADC0DE)) if w in told]


@pytest.mark.parametrize(
    ("register", "value", "field"),
    [("toy.KEY", 0x7B, "F"), ("toy.NUMBER", 0x42F60000, None), ("toy.NUMBER", ValueObject(scaled="123"), None)],
)
def test_sensitive_when_a_value_is_refused_then_the_rule_is_told_and_not_the_value(
    register: str, value: Value, field: str | None
) -> None:
    with pytest.raises(DomainError) as caught:
        write(register, value, devices=SECRET)
    told = shown(caught.value)
    wanted = {"code": Code.REFUSED, "rule": "out_of_limits", "register": register, "field": field}
    assert told.items() >= wanted.items()
    assert not [w for w in ("7b", "123", "42f6") if w in str(told).lower()]
    assert "sensitive" in caught.value.message


def test_refusal_when_the_register_is_not_sensitive_then_the_value_is_told() -> None:
    with pytest.raises(DomainError, match="nan is outside"):
        write("meter.RELAY_PULSE_WIDTH", 0x7FC00000)
    with pytest.raises(DomainError) as caught:
        write("gpio.OLATA", 0x1FF)
    assert caught.value.fields["got"] == 0x1FF


# ---- cursors


@pytest.mark.parametrize(("cursor", "place"), [("0", 0), ("7", 7), ("007", 7), ("9" * 18, 10**18 - 1)])
def test_cursor_when_it_was_handed_out_then_its_place(cursor: str, place: int) -> None:
    assert cursor_of(cursor) == place


@pytest.mark.parametrize(
    "cursor", ["", " ", "-1", "+1", " 1", "1 ", "1_0", "1.5", "0x10", "next", "\u00b2", "9" * 19, "9" * 100_000, "\n"]
)
def test_cursor_when_it_is_none_then_invalid_and_briefly_said(cursor: str) -> None:
    with pytest.raises(DomainError) as caught:
        cursor_of(cursor)
    assert (caught.value.code, caught.value.fields["path"]) == (Code.INVALID_ARGS, "$.cursor")
    assert len(caught.value.message) < 200
    assert len(str(caught.value.fields["got"])) <= 80


# ---- digest


def digest(resolved: Resolved) -> bytes:
    return digest_of(digest_input(resolved), None)


SAME = write("gpio.OLATA", 0x55)


@pytest.mark.parametrize(
    "params",
    [
        WriteParams(key="other-0001", register="gpio.OLATA", value=0x55),
        WriteParams(key=KEY, register="gpio.OLATA", value="0x55"),
        WriteParams(key=KEY, register="gpio.OLATA", value=0x55, reason="why not"),
        WriteParams(key=KEY, register="gpio.OLATA", value=0x55, dry_run=True),
        WriteParams(key=KEY, register="gpio.OLATA", value=0x55, deadline_ms=5, queue_ms=6, not_after=7),
        WriteParams(key=KEY, register="gpio.OLATA", value=0x55, run=3),
        WriteParams(key=KEY, register="gpio.OLATA", value=0x55, generation=1, contract_digest="sha256:0"),
        WriteParams(key=KEY, register="gpio.OLATA", value=0x55, store=StoreSeen(id="s", seq=1)),
        WriteParams(key=KEY, register="gpio.OLATA", value=0x55, expect={}),
    ],
)
def test_digest_when_only_the_way_of_asking_differs_then_the_same(params: WriteParams) -> None:
    assert digest(resolve_write(BENCH, params)) == digest(SAME)


OTHERS: list[tuple[str, Resolved]] = [
    ("targets[0].value", write("gpio.OLATA", 0x54)),
    ("targets[0].register", write("gpio.OLATB", 0x55)),
    ("targets[0].mask", write("gpio.OLATA", 0x55, 0xFF)),
    ("expect", write("gpio.OLATA", 0x55, expect={"gpio.IODIRA": 0})),
    ("kind", update("gpio.OLATA", {"P0": 1})),
    ("targets", group_write(ALARM)),
    ("locus", write("temp.TLOW", 0)),
    ("targets[0].effects", read("gpio.GPIOA")),
]


@pytest.mark.parametrize(("path", "other"), OTHERS, ids=[p for p, _ in OTHERS])
def test_digest_when_anything_that_happens_on_the_device_differs_then_another(path: str, other: Resolved) -> None:
    assert digest(other) != digest(SAME)
    assert path in differences(digest_input(SAME), digest_input(other))


def test_digest_when_the_count_differs_then_another() -> None:
    one, two = digest_input(read("uart.RHR")), digest_input(read("uart.RHR", count=2))
    assert digest_of(one, None) != digest_of(two, None)
    assert differences(one, two) == ["count"]
    assert digest(read("uart.RHR", count=1)) == digest(read("uart.RHR"))


def test_digest_when_the_order_of_reads_differs_then_another() -> None:
    assert digest(read("gpio.GPIOA", "gpio.GPIOB")) != digest(read("gpio.GPIOB", "gpio.GPIOA"))


def test_digest_when_expected_values_or_masked_bits_differ_then_another() -> None:
    one, two = (write("gpio.OLATA", 1, expect={"gpio.IODIRA": n}) for n in (0, 1))
    assert differences(digest_input(one), digest_input(two)) == ["expect"]
    assert digest(write("gpio.OLATA", 1, 0x01)) != digest(write("gpio.OLATA", 1, 0x03))


def test_digest_when_the_locus_differs_then_another() -> None:
    moved = replace(BENCH["gpio"], locus="sim:i2c0:0x21")
    other = write("gpio.OLATA", 0x55, devices={"gpio": moved})
    assert differences(digest_input(SAME), digest_input(other)) == ["locus"]
    assert digest(other) != digest(SAME)


@pytest.mark.parametrize(
    ("one", "other", "path"),
    [
        ("verify = { by = 'read_back', mask = 0x0F }", "verify = { by = 'read_back', mask = 0xFF }", "verify"),
        ("verify = { by = 'read_back' }", "verify = { by = 'read_back', mask = 0xFF }", "verify"),
        ("signals = []", "signals = ['S']", "signals"),
        ("signals = ['S']", "signals = [{ register = 'S', delta = 1 }]", "signals"),
        ("signals = [{ register = 'S', delta = 1 }]", "signals = [{ register = 'S', delta = -1 }]", "signals"),
        ("signals = [{ register = 'S', delta = 1 }]", "signals = [{ register = 'S', equals = 1 }]", "signals"),
        ("signals = [{ register = 'S', equals = 2 }]", "signals = [{ register = 'S', equals = 1 }]", "signals"),
        ("signals = ['S']", "signals = ['T']", "signals"),
    ],
)
def test_digest_when_the_proof_that_a_contract_names_differs_then_another_and_it_says_contract(
    one: str, other: str, path: str
) -> None:
    def content(rest: str) -> dict[str, Any]:
        spec = f"write = {{ effect = 'store', provenance = 'generated', source = 'rtl', {rest} }}"
        devices = with_toy(reg("R", 0, spec), reg("S", 1, access="ro"), reg("T", 2, access="ro"))
        return digest_input(write("toy.R", 1, devices=devices))

    assert digest_of(content(one), None) != digest_of(content(other), None)
    paths = differences(content(one), content(other))
    assert paths == [f"targets[0].{path}"]
    assert describe_differences(paths) == ["contract"]


def test_digest_when_a_groups_transfer_differs_then_another_and_it_says_contract() -> None:
    def content(transfer: str) -> dict[str, Any]:
        group = f"[groups.G]\nmembers = ['A', 'B']\ntransfer = '{transfer}'"
        values: dict[str, Value] = {"toy.A": 1, "toy.B": 2}
        devices = with_toy(reg("A", 0), reg("B", 1), group)
        return digest_input(resolve_write(devices, WriteParams(key=KEY, registers=values)))

    one, each = content("one"), content("each")
    assert (one["transfer"], each["transfer"]) == ("one", "each")
    assert differences(one, each) == ["transfer"]
    assert describe_differences(["transfer"]) == ["contract"]


def test_digest_when_members_of_a_group_are_named_in_another_order_then_the_same() -> None:
    assert digest(group_write(ALARM)) == digest(group_write(dict(reversed(ALARM.items()))))


def test_digest_input_when_made_then_integers_are_hex_and_nothing_is_a_float() -> None:
    content = digest_input(write("gpio.OLATA", 0x05, 0x0F, expect={"gpio.IODIRA": 0}))
    assert content == {
        "kind": "write",
        "locus": "sim:i2c0:0x20",
        "targets": [
            {
                "register": "OLATA",
                "space": "memory",
                "offset": "0x14",
                "width": "0x8",
                "byte_order": "big",
                "word_order": "big",
                "bank": None,
                "value": "0x5",
                "mask": "0xf",
                "effect": "store",
                "verify": ["read_back", None, None],
                "signals": [],
            }
        ],
        "transfer": None,
        "count": "0x1",
        "expect": {"IODIRA": "0x0"},
    }


def test_digest_when_computed_then_over_version_and_canonical_text() -> None:
    text = b'hwtool.op.v1\0{"a":["\\u00b0"],"b":{"c":"0x1"}}'
    content = {"b": {"c": "0x1"}, "a": ["°"]}
    assert digest_of(content, None) == hashlib.sha256(text).digest()
    assert digest_of(content, b"secret") == hmac.digest(b"secret", text, "sha256")


def test_digest_when_a_register_is_sensitive_then_it_needs_the_stores_secret() -> None:
    devices = with_toy(reg("KEY", 0, "sensitive = true"), reg("PLAIN", 1))
    secret, plain = write("toy.KEY", 1, devices=devices), write("toy.PLAIN", 1, devices=devices)
    assert (secret.sensitive, plain.sensitive) == (True, False)
    content = digest_input(secret)
    digests = {digest_of(content, s) for s in (None, b"one", b"two")}
    assert len(digests) == 3


@settings(deadline=None)
@given(st.dictionaries(st.text(max_size=4), st.text(max_size=4) | st.lists(st.text(max_size=3)), max_size=4))
def test_digest_when_members_come_in_another_order_then_the_same(content: dict[str, Any]) -> None:
    assert digest_of(content, None) == digest_of(dict(reversed(content.items())), None)
    assert digest_of(content, b"s") == digest_of(dict(reversed(content.items())), b"s")


@settings(deadline=None)
@given(st.integers(0, 0xFF), st.integers(0, 0xFF))
def test_digest_when_values_differ_then_exactly_then_another(one: int, other: int) -> None:
    assert (digest(write("gpio.OLATA", one)) == digest(write("gpio.OLATA", other))) is (one == other)


# ---- what differs


@pytest.mark.parametrize(
    ("one", "other", "paths"),
    [
        ({}, {}, []),
        ({"a": 1}, {"a": 1}, []),
        ({"a": 1}, {"b": 1}, ["a", "b"]),
        ({"a": None}, {}, []),
        ({"t": [{"v": 1}]}, {"t": [{"v": 2}]}, ["t[0].v"]),
        ({"t": [{"v": 1}, {"v": 1}]}, {"t": [{"v": 1}, {"v": 2, "w": 3}]}, ["t[1].v", "t[1].w"]),
        ({"t": [{"v": 1}]}, {"t": []}, ["t"]),
        ({"t": [1]}, {"t": [2]}, ["t"]),
        ({"t": [{"v": 1}]}, {"t": "x"}, ["t"]),
        ({"e": {"R": "0x0"}}, {"e": {"R": "0x1"}}, ["e"]),
    ],
)
def test_differences_when_compared_then_paths(one: dict[str, Any], other: dict[str, Any], paths: list[str]) -> None:
    assert differences(one, other) == paths
    assert differences(other, one) == paths


@pytest.mark.parametrize(
    ("paths", "said"),
    [
        ([], []),
        (["targets[0].effect"], ["contract"]),
        (["targets[0].offset", "targets[1].verify"], ["contract"]),
        ([f"targets[0].{m}" for m in sorted(CONTRACT_MEMBERS)], ["contract"]),
        (["targets[0].value"], ["targets[0].value"]),
        (["targets[0].effect", "targets[0].value"], ["targets[0].effect", "targets[0].value"]),
        (["count"], ["count"]),
        (["targets"], ["targets"]),
    ],
)
def test_differences_when_described_then_a_changed_resolution_is_called_contract(
    paths: list[str], said: list[str]
) -> None:
    assert describe_differences(paths) == said


def test_conflict_when_only_the_contract_changed_then_it_says_contract() -> None:
    before = with_toy(reg("R", 0, "values = { on = 1 }"))
    moved = with_toy(reg("R", 4, "values = { on = 1 }"))
    renamed = with_toy(reg("R", 0, "values = { on = 2 }"))
    was = digest_input(write("toy.R", "on", devices=before))
    assert describe_differences(differences(was, digest_input(write("toy.R", "on", devices=moved)))) == ["contract"]
    assert describe_differences(differences(was, digest_input(write("toy.R", "on", devices=renamed)))) == [
        "targets[0].value"
    ]


LIMITED_FLOAT = """width_bits = 32
[registers.R.fields.F]
bits = "31:0"
encoding = "float32"
write = { effect = "store", provenance = "generated", limits = { min = 1, max = 2 } }
"""


@pytest.mark.parametrize("mask", [None, 0xFFFFFFFF], ids=["whole", "masked"])
def test_write_when_a_float_field_is_outside_its_limits_then_refused_as_an_update_is(mask: int | None) -> None:
    devices = with_toy(reg("R", 0, LIMITED_FLOAT))
    with pytest.raises(DomainError) as caught:
        write("toy.R", 0x40A00000, mask, devices=devices)
    assert (caught.value.code, caught.value.fields["rule"], caught.value.fields["field"]) == (
        "refused",
        "out_of_limits",
        "F",
    )


@pytest.mark.parametrize(
    ("value", "mask"), [(0x7F, 0x0F), (ValueObject(scaled="61.7"), None)], ids=["outside the mask", "not representable"]
)
def test_value_when_sensitive_and_wrong_then_no_error_carries_it(value: Value, mask: int | None) -> None:
    devices = with_toy(reg("K", 0, "sensitive = true\nscale = 0.5"))
    with pytest.raises(DomainError) as caught:
        write("toy.K", value, mask, devices=devices)
    said = str(caught.value.as_object())
    assert not any(secret in said for secret in ("0x7f", "127", "61.5", "61.7", "62"))
