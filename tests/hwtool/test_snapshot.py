"""Dumps: what is clean and nothing else, what was left out and why, and what differs from a picture. Exact traffic."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

from hwtool_sim.faults import FaultKind
from tests.hwtool.conftest import OTHER, Lab, Play, code_of, effect, error_of, reg, toy_board
from tests.hwtool.test_format_keys import traffic, writing
from tests.hwtool.test_permission import board, rule

PARTS = (
    reg("A", 0),
    reg("B", 1),
    reg("FIFO", 2, effect("pop"), "ro"),
    reg("FLAGS", 3, effect("clear"), "ro"),
    reg("UNSAID", 4, effect("unknown"), "ro"),
    reg("SLOW", 5, "may_block = true"),
    reg("WO", 6, access="wo"),
    reg("GATED", 7, effect("none", ", gate = 'B'"), "ro"),
    reg("HIDDEN", 8, "confidential = true"),
    reg("LO", 9, effect("latch", ", affects = ['HI']"), "ro"),
    reg("HI", 10, access="ro"),
    "[groups.PAIR]\nmembers = ['LO', 'HI']\ntransfer = 'each'\n",
    "[memories.MEM]\noffset = 0x40\nsize_bytes = 16\n" + effect("none") + "\n",
)
UNTOUCHED = ("FIFO", "FLAGS", "UNSAID", "SLOW", "WO", "HIDDEN")


async def dump(lab: Lab, **params: Any) -> Any:
    return await lab.ask("device.dump", device="toy", **params)


def names(told: Any) -> list[str]:
    return [v["register"].removeprefix("toy.") for v in told.values]


def left(told: Any) -> dict[str, str]:
    return {one["register"].removeprefix("toy."): one["why"] for one in told.left_out}


def test_dump_when_everything_is_asked_for_then_only_what_is_clean_is_touched_and_the_rest_is_named(
    play: Play, tmp_path: Path
) -> None:
    async def life(lab: Lab) -> None:
        lab.chip().values |= {"B": 1, "GATED": 5}
        lab.chip().push("FIFO", b"ab")
        told = await dump(lab)
        assert names(told) == ["A", "B", "GATED", "LO", "HI"]
        assert set(left(told)) == {*UNTOUCHED, "MEM"}
        assert [lab.reads(n) for n in UNTOUCHED] == [0] * len(UNTOUCHED)
        whys = left(told)
        assert ("pop" in whys["FIFO"], "unknown" in whys["UNSAID"], "cannot be read" in whys["WO"]) == (True,) * 3
        assert ("poll" in whys["SLOW"], "confidential" in whys["HIDDEN"], "toy.MEM[" in whys["MEM"]) == (True,) * 3
        assert len(lab.sent()) == told.evidence["transfers"]
        # neighbours in one transfer, the gate before what is behind it, the latch before what it freezes
        assert traffic(lab) == [
            ("R", "0x01", 1),
            ("R", "0x00", 2),
            ("R", "0x01", 1),
            ("R", "0x07", 1),
            ("R", "0x0a", 1),
            ("R", "0x09", 1),
            ("R", "0x0a", 1),
        ]

    play(life, toy_board(tmp_path, *PARTS))


def test_dump_when_a_gate_is_closed_then_left_out_and_not_made_up(play: Play, tmp_path: Path) -> None:
    async def life(lab: Lab) -> None:
        told = await dump(lab)
        assert ("GATED" in names(told), "does not answer while B is 0" in left(told)["GATED"]) == (False, True)
        assert lab.reads("GATED") == 0

    play(life, toy_board(tmp_path, *PARTS))


def test_dump_when_one_register_does_not_answer_then_the_others_are_told(play: Play, tmp_path: Path) -> None:
    async def life(lab: Lab) -> None:
        lab.fault(FaultKind.NACK, access="read", offset=1, times=10)
        lab.fault(FaultKind.NACK, access="read", offset=0, times=1)
        told = await dump(lab, registers=["A", "B", "HI"])
        assert (names(told), "acknowledge" in left(told)["B"]) == (["A", "HI"], True)

    play(life, toy_board(tmp_path, *PARTS))


def test_dump_when_the_bus_falls_silent_then_the_rest_is_left_out_and_not_asked_for(play: Play, tmp_path: Path) -> None:
    async def life(lab: Lab) -> None:
        lab.clock.held = True
        lab.fault(FaultKind.REPLY_LOST, access="read", offset=10)
        told = await dump(lab, registers=["A", "HI", "LO"])
        assert names(told) == ["A"]
        assert set(left(told)) == {"HI", "LO"}
        assert [t for t in traffic(lab) if t[1] == "0x09"] == []

    play(life, toy_board(tmp_path, *PARTS))


def test_dump_when_names_or_patterns_are_given_then_those_alone(play: Play, tmp_path: Path) -> None:
    async def life(lab: Lab) -> None:
        assert names(await dump(lab, registers=["H*", "toy.A"])) == ["HI", "A"]
        assert left(await dump(lab, registers=["?"])) == {}
        wrong = await dump(lab, registers=["A", "NOPE"])
        assert (code_of(wrong), error_of(wrong)["path"]) == ("invalid_args", "$.registers[1]")
        assert code_of(await lab.ask("device.dump", device="tay")) == "not_found"

    play(life, toy_board(tmp_path, *PARTS))


def test_dump_when_policy_says_no_then_left_out(play: Play, tmp_path: Path) -> None:
    async def life(lab: Lab) -> None:
        told = await dump(lab, registers=["A", "B"])
        assert (names(told), "policy rule 1" in left(told)["A"], lab.reads("A")) == (["B"], True, 0)
        assert names(await lab.ask("device.dump", OTHER, device="toy", registers=["A", "B"])) == ["A", "B"]

    play(life, board(tmp_path, rule("uid:1000", register="'A'", read="'no'"), *PARTS))


def test_dump_when_the_device_is_big_then_some_must_be_named(play: Play, tmp_path: Path) -> None:
    async def life(lab: Lab) -> None:
        refused = await dump(lab)
        assert (code_of(refused), error_of(refused)["rule"]) == ("refused", "too_many")
        assert (lab.sent(), len(names(await dump(lab, registers=["R[1]", "R[2]"])))) == ([], 2)

    many = reg("R", 0, "count = 5000\nstride_bytes = 1")
    from tests.hwtool.conftest import I2C

    play(life, toy_board(tmp_path, many, head=I2C.replace("offset_bytes = 1", "offset_bytes = 2")))


DIFFERENT = (
    reg("PLAIN", 0, "fields.V = { bits = '3:0', scale = '0.5', unit = 'V' }\nfields.ON = { bits = 4 }"),
    reg("SAME", 1),
    reg("BLIND", 2, writing("store", ", verify = 'none'")),
    reg("PULSE", 3, writing("pulse")),
    reg("RO", 4, access="ro"),
    reg("LOCKED", 5, writing("store", ", limits = { max = 3 }")),
)


def test_dump_when_compared_then_what_differs_in_fields_and_units_and_what_may_be_written_back(
    play: Play, tmp_path: Path
) -> None:
    async def life(lab: Lab) -> None:
        lab.chip().values |= {"PLAIN": 0x14, "SAME": 7}
        picture = {"PLAIN": "0x16", "SAME": 7, "BLIND": 1, "PULSE": 1, "RO": 1, "LOCKED": 9}
        told = await dump(lab, compare=picture)
        found = {d["register"].removeprefix("toy."): d for d in told.differences}
        assert list(found) == ["PLAIN", "BLIND", "PULSE", "RO", "LOCKED"]
        assert [n for n, d in found.items() if d["apply"]] == ["PLAIN"]
        field = found["PLAIN"]["fields"]
        assert list(field) == ["V"]
        assert (field["V"]["picture"]["value"], field["V"]["device"]["value"], field["V"]["device"]["unit"]) == (
            3,
            2,
            "V",
        )
        whys = [found[n]["why"] for n in ("BLIND", "PULSE", "RO", "LOCKED")]
        words = ["read back", "pulse", "cannot be written", "outside its limits"]
        assert all(word in why for word, why in zip(words, whys, strict=True)), whys
        assert "5 of 6" in told.summary

    play(life, toy_board(tmp_path, *DIFFERENT))


@pytest.mark.parametrize(
    ("compare", "path"), [({"NOPE": 1}, "$.compare.NOPE"), ({"PLAIN": 0x100}, "$.compare.PLAIN"), ({}, "$.compare")]
)
def test_dump_when_the_picture_is_wrong_then_its_place_is_told(
    play: Play, tmp_path: Path, compare: dict[str, int], path: str
) -> None:
    async def life(lab: Lab) -> None:
        wrong = await dump(lab, compare=compare)
        assert (code_of(wrong), error_of(wrong)["path"]) == ("invalid_args", path)
        assert lab.sent() == []

    play(life, toy_board(tmp_path, *DIFFERENT))
