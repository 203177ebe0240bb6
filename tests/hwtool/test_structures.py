"""Keys of the format that span registers: unlock sequences, block arrays, banks set back to values, cluster aliases."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

from hwtool_contracts.native import parse_contract
from hwtool_contracts.native_write import write_contract
from hwtool_contracts.overlay import lay_over
from hwtool_contracts.parts import part_of
from hwtool_contracts.toml_reader import Faults
from tests.hwtool.conftest import DEFAULTS, I2C, KEY, KEY2, Lab, Play, code_of, error_of, raws, reg, toy_board

STORE = "provenance = 'generated', source = 'rtl'"
LOCKED = (
    reg("KEYR", 0, f"write = {{ effect = 'unlock', affects = ['CR'], verify = 'none', {STORE} }}", access="wo"),
    reg("CR", 1, f"write = {{ effect = 'store', unlock = 'SET_CR', {STORE} }}\nfields.F = {{ bits = '3:0' }}"),
    reg("OTHER", 2),
    """
[sequences.SET_CR]
params = ["value"]
[[sequences.SET_CR.steps]]
do = "write"
register = "KEYR"
value = 0x45
[[sequences.SET_CR.steps]]
do = "write"
register = "CR"
value = "$value"
""",
)


@pytest.mark.parametrize(
    ("method", "params"),
    [
        ("reg.write", {"register": "toy.CR", "value": 1}),
        ("reg.write", {"register": "toy.CR", "value": 1, "mask": 0x0F}),
        ("reg.update", {"register": "toy.CR", "fields": {"F": 1}}),
        ("sequence.run", {"steps": [{"do": "write", "register": "toy.CR", "value": 1}]}),
    ],
)
def test_locked_register_when_written_outside_its_sequence_then_refused(
    play: Play, tmp_path: Path, method: str, params: dict[str, Any]
) -> None:
    async def scenario(lab: Lab) -> None:
        error = error_of(await lab.ask(method, key=KEY, **params))
        assert (error["code"], error["rule"]) == ("refused", "unlock")
        assert "toy.SET_CR" in error["hint"]
        assert lab.chip().executed == {}

    play(scenario, toy_board(tmp_path, *LOCKED))


def test_locked_register_when_written_in_its_sequence_then_key_and_value_are_sent_once(
    play: Play, tmp_path: Path
) -> None:
    async def scenario(lab: Lab) -> None:
        done = await lab.ask("sequence.run", key=KEY, sequence="toy.SET_CR", params={"value": 5})
        assert done.ok, done
        again = await lab.ask("sequence.run", key=KEY, sequence="toy.SET_CR", params={"value": 5})
        assert again.ok
        assert (lab.writes("KEYR"), lab.writes("CR"), lab.chip().values["CR"]) == (1, 1, 5)

    play(scenario, toy_board(tmp_path, *LOCKED))


@pytest.mark.parametrize(
    ("old", "new", "wanted"),
    [
        ("unlock = 'SET_CR'", "unlock = 'SET'", "no such sequence"),
        ('register = "CR"', 'register = "OTHER"', "the sequence does not write it"),
    ],
)
def test_unlock_when_its_sequence_does_not_fit_then_a_fault(old: str, new: str, wanted: str) -> None:
    text = I2C + DEFAULTS + "\n".join(LOCKED)
    with pytest.raises(Faults, match=wanted):
        parse_contract(text.replace(old, new), "toy.toml")


def test_safe_state_when_a_register_is_locked_then_a_fault_of_the_board(tmp_path: Path) -> None:
    with pytest.raises(Faults, match="takes a write only in a sequence"):
        toy_board(tmp_path, *LOCKED, device="safe_state = [{ register = 'CR', value = 1 }]")


BLOCK = (
    f"[registers.DATA]\noffset = 0x10\naccess = 'rw'\ncount = 4\nstride_bytes = 1\ntransfer = 'block'\n"
    f"write = {{ effect = 'store', {STORE} }}\n"
)


def test_array_when_it_is_a_block_then_one_transfer_reads_all_of_it(play: Play, tmp_path: Path) -> None:
    async def scenario(lab: Lab) -> None:
        for index in range(4):
            lab.chip().values[f"DATA[{index}]"] = 0xA0 + index
        done = await lab.ask("reg.read", registers=["toy.DATA"])
        assert raws(done) == ["0xa0", "0xa1", "0xa2", "0xa3"]
        assert lab.bus().log.__len__() == 1
        one = await lab.ask("reg.read", registers=["toy.DATA[2]"])
        assert raws(one) == ["0xa2"]

    play(scenario, toy_board(tmp_path, BLOCK))


def test_array_when_a_block_has_gaps_then_a_fault() -> None:
    with pytest.raises(Faults, match="not contiguous"):
        parse_contract(I2C + DEFAULTS + BLOCK.replace("stride_bytes = 1", "stride_bytes = 2"), "toy.toml")
    with pytest.raises(Faults, match="of an array of several elements"):
        parse_contract(I2C + DEFAULTS + BLOCK.replace("count = 4\nstride_bytes = 1\n", ""), "toy.toml")


def banked(restore: str) -> tuple[str, ...]:
    return (
        reg("SEL", 0),
        reg("X", 1, "bank = 'B'"),
        f"[banks.B]\nselect = [{{ register = 'SEL', value = 2 }}]\nrestore = {restore}\n",
    )


@pytest.mark.parametrize(
    ("restore", "start", "writes"),
    [
        ("[{ register = 'SEL', value = 7 }]", 0, [2, 7]),
        ("[{ register = 'SEL', value = 7 }]", 2, [7]),
        ("[{ register = 'SEL', value = 2 }]", 0, [2]),
        ("[{ register = 'SEL', value = 0x80, mask = 0x80 }]", 0, [2, 0x82]),
        ("'prior'", 5, [2, 5]),
        ("'none'", 5, [2]),
    ],
)
def test_bank_when_it_is_set_back_to_values_then_exactly_these_are_written(
    play: Play, tmp_path: Path, restore: str, start: int, writes: list[int]
) -> None:
    async def scenario(lab: Lab) -> None:
        lab.chip().values["SEL"] = start
        assert (await lab.ask("reg.write", key=KEY, register="toy.X", value=0x33)).ok
        sent = [t for t in lab.sent() if t.get("data") is not None and t["offset"] == "0x00"]
        assert [int(t["data"], 16) for t in sent][: len(writes)] == writes
        assert lab.chip().values["SEL"] == writes[-1]

    play(scenario, toy_board(tmp_path, *banked(restore)))


def test_bank_when_set_back_by_what_did_not_select_it_then_a_fault() -> None:
    text = I2C + DEFAULTS + reg("Y", 4) + "\n".join(banked("[{ register = 'Y', value = 1 }]"))
    with pytest.raises(Faults, match="was not selected by"):
        parse_contract(text, "toy.toml")


CLUSTER = f"""
[clusters.P]
offset = 0x00
count = 2
stride_bytes = 0x08
aliases = {{ set_at = 0x40, clear_at = 0x60, toggle_at = 0x20 }}
[clusters.P.registers.CR]
offset = 1
access = "rw"
fields.F = {{ bits = "1:0" }}
fields.G = {{ bits = 7, volatile = true, write = {{ effect = "store", {STORE} }} }}
[clusters.P.registers.FLAGS]
offset = 2
access = "rw"
write = {{ effect = "one_to_clear", {STORE} }}
"""


def test_cluster_when_it_has_aliases_then_what_is_stored_has_them_and_flags_do_not() -> None:
    contract = parse_contract(I2C + DEFAULTS + CLUSTER, "toy.toml")
    for index, base in enumerate((0, 8)):
        register = contract.registers[f"P[{index}].CR"]
        assert [a and a.at for a in (register.set_at, register.clear_at, register.toggle_at)] == [
            base + 0x41,
            base + 0x61,
            base + 0x21,
        ]
        assert contract.registers[f"P[{index}].FLAGS"].set_at is None


def test_cluster_aliases_when_a_field_is_updated_then_ones_are_written_there_and_nothing_is_read(
    play: Play, tmp_path: Path
) -> None:
    async def scenario(lab: Lab) -> None:
        lab.chip().values["P[1].CR"] = 0b10
        done = await lab.ask("reg.update", key=KEY, register="toy.P[1].CR", fields={"F": "0b01"})
        assert done.ok, done
        writes = [(t["offset"], t["data"]) for t in lab.sent() if t.get("data") is not None]
        assert writes == [("0x49", "01"), ("0x69", "02")]
        assert lab.chip().values["P[1].CR"] == 0b01

    play(scenario, toy_board(tmp_path, CLUSTER))


def test_erratum_of_a_field_when_its_register_is_read_then_told(play: Play, tmp_path: Path) -> None:
    async def scenario(lab: Lab) -> None:
        done = await lab.ask("reg.read", registers=["toy.R"])
        assert done.warnings == ["erratum: R.F: reads as zero in revision A"]
        assert code_of(await lab.ask("reg.write", key=KEY2, register="toy.R", value=1)) is None

    play(scenario, toy_board(tmp_path, reg("R", 0, "fields.F = { bits = 0, erratum = 'reads as zero in revision A' }")))


def test_structures_when_written_in_the_native_format_then_the_same_is_loaded() -> None:
    text = I2C + DEFAULTS + "\n".join(banked("[{ register = 'SEL', value = 7, mask = 0x0F }]"))
    text += (
        BLOCK
        + CLUSTER.replace("offset = 0x00", "offset = 0x80")
        + reg("E", 8, "fields.F = { bits = 0, erratum = 'x' }")
    )
    contract = parse_contract(text, "toy.toml")
    again = parse_contract(write_contract(contract), "toy.toml")
    for part in ("registers", "banks", "groups"):
        assert getattr(again, part) == getattr(contract, part)


OVER = """
base = "toy.toml"
base_sha256 = "00"
[commands.RESET]
code = 0x7F
write = { effect = "command", verify = "none", provenance = "reviewed", seen = "page", source = "DS 1" }
[memories.EE]
offset = 0x80
size_bytes = 16
read = { effects = ["none"], provenance = "reviewed", seen = "page", source = "DS 2" }
[sequences.GO]
steps = [{ do = "write", register = "A", value = 1 }]
[params.SHUNT]
default = 1
[registers.A]
unit = "V"
scale = 1
scale_param = "SHUNT"
"""


def test_overlay_when_it_adds_commands_memories_sequences_and_parameters_then_they_are_there() -> None:
    base = parse_contract(I2C + DEFAULTS + reg("A", 0), "toy.toml")
    made = lay_over(base, "00", OVER, "over.toml").contract
    assert made.registers["RESET"].opcode is not None
    assert made.registers["EE[0:4]"].size_bytes == 4
    assert list(made.sequences) == ["GO"]
    assert list(made.params) == ["SHUNT"]
    with pytest.raises(Faults, match="the base has one of this name"):
        lay_over(made, "00", OVER.partition("[sequences")[0].replace("RESET", "R2"), "again.toml")


def test_part_when_taken_then_its_sequences_and_its_banks_are_its_own() -> None:
    text = I2C + DEFAULTS + CLUSTER + (
        "[sequences.'P[1].GO']\nsteps = [{ do = 'write', register = 'P[1].CR', value = 1 }]\n"
        "[sequences.ALL]\nsteps = [{ do = 'write', register = 'P[0].CR', value = 1 },"
        " { do = 'write', register = 'P[1].CR', value = 1 }]\n"
    )  # fmt: skip
    part = part_of(parse_contract(text, "toy.toml"), "P[1]")
    assert list(part.sequences) == ["GO"]
    assert part.sequences["GO"].steps[0]["register"] == "CR"


BUSY_MEMORY = (
    reg("STATUS", 0, "volatile = true\nfields.WIP = { bits = 0 }", access="ro"),
    f"""
[memories.EE]
offset = 0x80
size_bytes = 32
page_bytes = 16
write_cycle_ms = 5
busy = "STATUS.WIP"
persistence = "until_reset"
read = {{ effects = ["none"], {STORE} }}
write = {{ effect = "store", {STORE} }}
""",
)


def test_memory_when_a_register_shows_that_it_is_busy_then_it_is_not_accessed(play: Play, tmp_path: Path) -> None:
    async def scenario(lab: Lab) -> None:
        lab.bus().clock = lab.clock.monotonic_s
        lab.chip().values["STATUS"] = 1
        for method, params in (
            ("reg.read", {"registers": ["toy.EE[0:4]"]}),
            ("reg.write", {"register": "toy.EE[0:4]", "value": {"hex": "01020304"}, "key": KEY}),
        ):
            error = error_of(await lab.ask(method, **params))
            assert (error["code"], error.get("rule")) == ("refused", "gate_closed"), error
        assert {t["offset"] for t in lab.sent()} == {"0x00"}
        lab.chip().values["STATUS"] = 0
        done = await lab.ask("reg.write", register="toy.EE[0:4]", value={"hex": "01020304"}, key=KEY2)
        assert done.ok, done.summary
        assert lab.chip().executed["EE", "write"] == 1
        read = await lab.ask("reg.read", registers=["toy.EE[1:2]"])
        assert read.values is not None
        assert read.values[0]["hex"] == "0203", read.values

    play(scenario, toy_board(tmp_path, *BUSY_MEMORY))


def test_memory_when_busy_by_register_and_a_write_crosses_a_page_then_no_part_of_it_with_the_rule(
    play: Play, tmp_path: Path
) -> None:
    async def scenario(lab: Lab) -> None:
        error = error_of(await lab.ask("reg.write", register="toy.EE[14:4]", value={"hex": "01020304"}, key=KEY))
        assert error["code"] == "not_found"
        assert "EE within pages of 16" in error["hint"]
        assert lab.sent() == []

    play(scenario, toy_board(tmp_path, *BUSY_MEMORY))


def test_memory_when_its_busy_register_does_not_fit_then_a_fault() -> None:
    text = I2C + DEFAULTS + "\n".join(BUSY_MEMORY)
    assert parse_contract(write_contract(parse_contract(text, "toy.toml")), "toy.toml").memories["EE"].busy is not None
    with pytest.raises(Faults, match="no such register"):
        parse_contract(text.replace("STATUS.WIP", "STATE.WIP"), "toy.toml")
    with pytest.raises(Faults, match="a gate is there already"):
        parse_contract(text.replace('["none"],', '["none"], gate = "STATUS.WIP",'), "toy.toml")
