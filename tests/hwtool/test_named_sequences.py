"""Sequences that a contract has by name: parameters, steps, the result, and what is wrong with a call."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

from hwtool.config import Board
from hwtool_contracts.native import parse_contract
from hwtool_contracts.toml_reader import Faults
from hwtool_sim.faults import FaultKind
from tests.hwtool.conftest import (
    DEFAULTS,
    I2C,
    KEY,
    KEY2,
    Lab,
    Play,
    code_of,
    effect,
    error_of,
    reg,
    toy_board,
)

RESET = "write = { effect = 'command', resets = 'device', verify = 'none', provenance = 'generated' }"
REGISTERS = (
    reg("A", 0),
    reg("F", 1, "[registers.F.fields]\nLOW = { bits = '3:0' }\nHIGH = { bits = '7:4' }"),
    reg("ST", 2, access="ro"),
    reg("DATA", 3, effect("clear"), access="ro"),
    reg("RST", 4, RESET, access="wo"),
    reg("G", 5, "write = { effect = 'store', provenance = 'generated', approval = 'required' }"),
)
SAMPLE = """
[sequences.SAMPLE]
params = ["start", "low"]
result = "DATA"
steps = [
    { do = "write", register = "A", value = "$start" },
    { do = "update", register = "F", fields = { LOW = "$low" } },
    { do = "wait_until", register = "ST", equals = 0x80, mask = 0x80, timeout_ms = 50 },
    { do = "read", register = "ST" },
    { do = "read_effectful", register = "DATA" },
]
"""


def board_of(directory: Path, *more: str) -> Board:
    return toy_board(directory, *REGISTERS, *(more or (SAMPLE,)))


async def run(lab: Lab, name: str = "SAMPLE", key: str = KEY, **params: Any) -> Any:
    return await lab.ask("sequence.run", sequence=f"toy.{name}", params=params, key=key)


def traffic(lab: Lab) -> list[tuple[str, str, str | int]]:
    return [
        ("R", t["offset"], t["size_bytes"]) if t["do"] == "read" else ("W", t["offset"], t["data"]) for t in lab.sent()
    ]


def test_named_sequence_when_run_then_its_steps_with_the_values_and_its_result_alone(
    play: Play, tmp_path: Path
) -> None:
    async def life(lab: Lab) -> None:
        lab.chip().values |= {"ST": 0x81, "DATA": 0x5A, "F": 0x30}
        done = await run(lab, start=7, low="0x9")
        assert (done.ok, done.verdict) == (True, "applied"), done
        assert [(v["register"], v["raw"], v["step"]) for v in done.values or []] == [("toy.DATA", "0x5a", 5)]
        assert (lab.chip().values["A"], lab.chip().values["F"], lab.chip().values["DATA"]) == (7, 0x39, 0)
        assert [t for t in traffic(lab) if t[0] == "W"] == [("W", "0x00", "07"), ("W", "0x01", "39")]
        assert [r.key for r in await lab.rows()] == [KEY, f"{KEY}#1", f"{KEY}#2", f"{KEY}#5"]
        again = await run(lab, start=7, low="0x9")
        assert (again.replayed, again.values) == (True, done.values)
        assert lab.reads("DATA") == 1

    play(life, board_of(tmp_path))


def test_named_sequence_when_another_value_comes_under_its_key_then_conflict(play: Play, tmp_path: Path) -> None:
    async def life(lab: Lab) -> None:
        lab.chip().values["ST"] = 0x80
        assert (await run(lab, start=7, low=9)).ok
        conflict = await run(lab, start=8, low=9)
        assert (code_of(conflict), error_of(conflict)["differs"]) == ("key_conflict", ["steps[0].targets[0].value"])
        assert lab.writes("A") == 1

    play(life, board_of(tmp_path))


def test_named_sequence_when_its_steps_are_given_one_by_one_then_the_same_request(play: Play, tmp_path: Path) -> None:
    async def life(lab: Lab) -> None:
        lab.chip().values["ST"] = 0x80
        named = await run(lab, start=7, low=9)
        steps: list[dict[str, Any]] = [
            {"do": "write", "register": "toy.A", "value": 7},
            {"do": "update", "register": "toy.F", "fields": {"LOW": 9}},
            {"do": "wait_until", "register": "toy.ST", "equals": 0x80, "mask": 0x80, "timeout_ms": 50},
            {"do": "read", "register": "toy.ST"},
            {"do": "read_effectful", "register": "toy.DATA"},
        ]
        plain = await lab.ask("sequence.run", steps=steps, key=KEY)
        assert (plain.replayed, plain.id) == (True, named.id)

    play(life, board_of(tmp_path))


def test_named_sequence_when_it_stops_then_every_value_that_was_read_is_answered(play: Play, tmp_path: Path) -> None:
    async def life(lab: Lab) -> None:
        lab.chip().values["ST"] = 0x81
        lab.fault(FaultKind.NACK, access="read", offset=3)
        stopped = await run(lab, start=7, low=9)
        assert (code_of(stopped), stopped.verdict) == ("not_applied", "partial")
        assert [v["register"] for v in stopped.values or []] == ["toy.A", "toy.F", "toy.ST"]

    play(life, board_of(tmp_path))


CALLS: dict[str, tuple[dict[str, Any], str, str]] = {
    "a parameter missing": ({"sequence": "toy.SAMPLE", "params": {"start": 1}}, "invalid_args", "$.params.low"),
    "all missing": ({"sequence": "toy.SAMPLE"}, "invalid_args", "$.params.low"),
    "one too many": (
        {"sequence": "toy.SAMPLE", "params": {"start": 1, "low": 1, "end": 2}},
        "invalid_args",
        "$.params.end",
    ),
    "a value too large": ({"sequence": "toy.SAMPLE", "params": {"start": 256, "low": 1}}, "invalid_args", "steps[0]"),
    "a field too large": ({"sequence": "toy.SAMPLE", "params": {"start": 1, "low": 16}}, "invalid_args", "steps[1]"),
    "no such sequence": ({"sequence": "toy.SAMPEL", "params": {}}, "not_found", "toy.SAMPLE"),
    "no sequence at all": ({"sequence": "toy"}, "not_found", "toy.SAMPLE"),
    "no such device": ({"sequence": "tay.SAMPLE", "params": {}}, "not_found", "toy"),
    "name and steps": ({"sequence": "toy.SAMPLE", "steps": [{"do": "read", "register": "toy.A"}]}, "invalid_args", ""),
    "neither": ({}, "invalid_args", ""),
    "params without a name": (
        {"steps": [{"do": "write", "register": "toy.A", "value": 1}], "params": {"start": 1}},
        "invalid_args",
        "",
    ),
}


@pytest.mark.parametrize(("params", "code", "told"), CALLS.values(), ids=list(CALLS))
def test_named_sequence_when_the_call_is_wrong_then_refused_and_the_key_is_unused(
    play: Play, tmp_path: Path, params: dict[str, Any], code: str, told: str
) -> None:
    async def life(lab: Lab) -> None:
        refused = await lab.ask("sequence.run", key=KEY, **params)
        assert code_of(refused) == code, refused
        assert told in str(error_of(refused))
        assert (traffic(lab), await lab.rows()) == ([], [])

    play(life, board_of(tmp_path))


def test_named_sequence_when_a_step_needs_approval_then_the_whole_is_approved_once(play: Play, tmp_path: Path) -> None:
    async def life(lab: Lab) -> None:
        waiting = await run(lab, "SET", value=3)
        assert (waiting.status, traffic(lab)) == ("pending_approval", [])
        done = await lab.operator("sequence.run", sequence="toy.SET", params={"value": 3}, key=KEY2)
        assert (done.ok, lab.chip().values["G"], lab.writes("A")) == (True, 3, 1)

    steps = "{ do = 'write', register = 'A', value = 1 }, { do = 'write', register = 'G', value = '$value' }"
    play(life, board_of(tmp_path, f"[sequences.SET]\nparams = ['value']\nsteps = [{steps}]\n"))


def test_named_sequence_when_a_step_of_it_restarts_the_device_then_the_next_is_carried_out(
    play: Play, tmp_path: Path
) -> None:
    async def life(lab: Lab) -> None:
        done = await run(lab, "INIT")
        assert (done.ok, lab.chip().values["A"]) == (True, 1)

    steps = "{ do = 'write', register = 'RST', value = 1 }, { do = 'write', register = 'A', value = 1 }"
    play(life, board_of(tmp_path, f"[sequences.INIT]\nsteps = [{steps}]\n"))


def test_named_sequence_when_the_device_restarts_by_itself_then_it_ends(play: Play, tmp_path: Path) -> None:
    async def life(lab: Lab) -> None:
        lab.fault(FaultKind.RESET, access="read", offset=2)
        lab.chip().values["ST"] = 0x80
        stopped = await run(lab, "TWO")
        assert (code_of(stopped), stopped.verdict) == ("not_applied", "partial")
        assert lab.writes("F") == 0

    steps = (
        "{ do = 'write', register = 'A', value = 1 }, { do = 'read', register = 'ST' },"
        " { do = 'write', register = 'F', value = 1 }"
    )
    play(life, board_of(tmp_path, f"[sequences.TWO]\nsteps = [{steps}]\n"))


# --- what a contract may say ------------------------------------------------------------------------------------

WRONG: dict[str, tuple[str, str]] = {
    "no step": ("steps = []", "no step"),
    "an unknown word": ("steps = [{ do = 'jump', register = 'A' }]", "not in the vocabulary"),
    "an unknown key": ("steps = [{ do = 'write', register = 'A', value = 1, when = 2 }]", "unknown key"),
    "an unknown register": ("steps = [{ do = 'write', register = 'AA', value = 1 }]", "no such register"),
    "no register": ("steps = [{ do = 'write', value = 1 }]", "no such register"),
    "a parameter that nothing uses": (
        "params = ['x']\nsteps = [{ do = 'write', register = 'A', value = 1 }]",
        "a parameter that no step uses",
    ),
    "a value that is none": (
        "steps = [{ do = 'write', register = 'A', value = '$x' }]",
        "a value that is no parameter",
    ),
    "a result that nothing reads": (
        "result = 'A'\nsteps = [{ do = 'write', register = 'A', value = 1 }]",
        "no step reads it",
    ),
    "an unknown key of the sequence": (
        "note = 'x'\nsteps = [{ do = 'write', register = 'A', value = 1 }]",
        "unknown key",
    ),
}


@pytest.mark.parametrize(("text", "rule"), WRONG.values(), ids=list(WRONG))
def test_sequence_of_a_contract_when_it_is_wrong_then_a_fault_names_place_and_rule(text: str, rule: str) -> None:
    with pytest.raises(Faults, match=rule) as caught:
        parse_contract(I2C + DEFAULTS + "\n".join(REGISTERS) + f"[sequences.S]\n{text}\n", "toy.toml")
    assert all("sequences.S" in str(f) for f in caught.value.faults)


@pytest.mark.parametrize(
    "text",
    [
        "steps = [{ do = 'update', register = 'F', fields = 3 }]",
        "steps = [{ do = 'write', register = 'A', value = [1] }]",
        "steps = [{ do = 'write', register = 'A' }]",
        "steps = [{ do = 'write', register = 'ST', value = 1 }]",
        "steps = [{ do = 'write', register = 'A', value = 256 }]",
        "steps = [{ do = 'read', register = 'ST', value = 256 }]",
        "steps = [{ do = 'update', register = 'F', fields = { NO = 1 } }]",
        "steps = [{ do = 'wait_until', register = 'ST', equals = 1, timeout_ms = 'x' }]",
    ],
    ids=["fields", "kind", "no value", "read-only", "too large", "too many members", "no such field", "time-out"],
)
def test_step_of_a_contract_when_it_can_never_be_taken_then_the_contract_is_refused(text: str) -> None:
    with pytest.raises(Faults):
        parse_contract(I2C + DEFAULTS + "\n".join(REGISTERS) + f"[sequences.S]\n{text}\n", "toy.toml")
