"""`on_loss = "report"`: a consuming read that no rule can settle is closed as lost, with its bound, and not held."""

from __future__ import annotations

import time
from pathlib import Path
from typing import Any

import pytest

from hwtool_sim.faults import FaultKind
from hwtool_store import operations
from tests.hwtool.conftest import KEY, KEY2, Lab, Play, code_of, effect, error_of, reg, toy_board

REPORT = "on_loss = 'report'"
POP = reg("R", 0, effect("pop", ", max_burst = 4"), access="ro")
LEVELLED = reg("R", 0, effect("pop", ", level = 'L', max_burst = 4"), access="ro") + reg("L", 1, access="ro")
PEEKED = reg("R", 0, effect("clear", ", affects = ['R', 'P'], peek = 'P'"), access="ro") + reg("P", 1, access="ro")
CLEAR = reg("R", 0, effect("clear"), access="ro")
RELATCH = reg("R", 0, effect("relatch"), access="ro")
ACK = reg("R", 0, effect("ack", ", affects = ['E']"), access="ro") + reg("E", 1, access="ro")
SET = reg("R", 0, effect("set"), access="ro")
CLAIM = reg("R", 0, effect("claim"), access="ro")
TRIGGER = reg("R", 0, effect("trigger"), access="ro")
ADVANCE = reg("R", 0, effect("advance"), access="ro")

CASES: dict[str, tuple[str, dict[str, int], dict[str, Any], str | None, str | None]] = {
    # part, values before, more of the request, verdict on a board that reports, bound
    "pop": (POP, {}, {}, "lost", "0..1"),
    "burst": (POP, {}, {"count": 3}, "lost", "0..3"),
    "clear": (CLEAR, {"R": 5}, {}, "lost", "0..1"),
    "relatch": (RELATCH, {"R": 5}, {}, "lost", "0..1"),
    "set": (SET, {"R": 5}, {}, "lost", "0..1"),
    "acknowledge, nothing to see": (ACK, {}, {}, "lost", "0..1"),
    "claim": (CLAIM, {}, {}, None, None),
    "trigger": (TRIGGER, {}, {}, None, None),
    "advance": (ADVANCE, {}, {}, None, None),
}


@pytest.mark.parametrize("reports", [True, False], ids=["report", "hold"])
@pytest.mark.parametrize("name", CASES)
def test_consuming_read_when_its_reply_is_lost_then_reported_only_where_the_board_says_so(
    play: Play, tmp_path: Path, name: str, reports: bool
) -> None:
    part, values, more, verdict, bound = CASES[name]

    async def life(lab: Lab) -> None:
        lab.chip().values |= values
        lab.fault(FaultKind.REPLY_LOST, access="read", offset=0)
        asked = {"register": "toy.R", "key": KEY, **more}
        assert code_of(await lab.ask("reg.read_effectful", **asked)) == "outcome_unknown"
        await lab.rules_ran()
        row = await lab.row()
        again = await lab.ask("reg.read_effectful", **asked)
        if not reports or verdict is None:
            assert (row.state, code_of(again)) == ("UNKNOWN", "outcome_unknown")
            assert code_of(await lab.ask("reg.read_effectful", register="toy.R", key=KEY2)) == "held"
            return
        assert (row.state, row.verdict, row.verdict_by) == ("DONE", verdict, "rule")
        assert (code_of(again), again.effects, error_of(again)["bound"]) == ("value_lost", "unknown", bound)
        assert lab.device().held() is None
        assert lab.reads("R") == more.get("count", 1)

    play(life, toy_board(tmp_path, part, device=REPORT if reports else ""))


@pytest.mark.parametrize("seen", [3, 2], ids=["level the same", "level fell"])
def test_pop_when_its_level_tells_then_the_level_decides_not_the_boards_word(
    play: Play, tmp_path: Path, seen: int
) -> None:
    async def life(lab: Lab) -> None:
        lab.chip().push("R", [1, 2, 3])
        lab.chip().values["L"] = 3
        kind = FaultKind.REQUEST_LOST if seen == 3 else FaultKind.REPLY_LOST
        lab.fault(kind, access="read", offset=0)
        lost = await lab.ask("reg.read_effectful", register="toy.R", key=KEY)
        assert code_of(lost) == "outcome_unknown"
        await lab.rules_ran()
        row = await lab.row()
        assert (row.state, row.verdict) == ("DONE", "not_applied" if seen == 3 else "lost")
        if seen == 2:
            told = await lab.ask("reg.read_effectful", register="toy.R", key=KEY)
            assert (error_of(told)["bound"], told.effects) == ("1", "applied")

    play(life, toy_board(tmp_path, LEVELLED, device=REPORT))


def test_acknowledge_when_its_event_is_still_set_then_not_applied_and_nothing_is_lost(
    play: Play, tmp_path: Path
) -> None:
    async def life(lab: Lab) -> None:
        lab.chip().values["E"] = 4
        lab.fault(FaultKind.REQUEST_LOST, access="read", offset=0)
        assert code_of(await lab.ask("reg.read_effectful", register="toy.R", key=KEY)) == "outcome_unknown"
        await lab.rules_ran()
        assert (await lab.row()).verdict == "not_applied"

    play(life, toy_board(tmp_path, ACK, device=REPORT))


def test_value_when_it_was_peeked_and_is_gone_then_recovered_and_not_reported_lost(play: Play, tmp_path: Path) -> None:
    async def life(lab: Lab) -> None:
        lab.chip().values |= {"R": 6, "P": 6}
        lab.fault(FaultKind.REPLY_LOST, access="read", offset=0)
        lab.clock.held = True
        assert code_of(await lab.ask("reg.read_effectful", register="toy.R", key=KEY)) == "outcome_unknown"
        lab.clock.held = False
        lab.clock.advance(1)
        await lab.rules_ran()
        told = await lab.ask("reg.read_effectful", register="toy.R", key=KEY)
        assert (told.ok, told.verdict, [v["raw"] for v in told.values or []]) == (True, "applied", ["0x06"])

    play(life, toy_board(tmp_path, PEEKED, device=REPORT))


def test_loss_when_nothing_could_be_looked_at_then_not_reported_yet(play: Play, tmp_path: Path) -> None:
    async def life(lab: Lab) -> None:
        lab.chip().values |= {"R": 6, "P": 6}
        lab.fault(FaultKind.REPLY_LOST, access="read", offset=0)
        lab.fault(FaultKind.NACK, access="read", offset=1, skip=1, times=1)
        assert code_of(await lab.ask("reg.read_effectful", register="toy.R", key=KEY)) == "outcome_unknown"
        await lab.rules_ran()
        assert (await lab.row()).state == "UNKNOWN"  # the peek register did not answer: it may still tell
        told = await lab.ask("op.get", key=KEY, verify=True)
        assert (told.verdict, [v["raw"] for v in told.values or []]) == ("applied", ["0x06"])

    play(life, toy_board(tmp_path, PEEKED, device=REPORT))


def test_rules_when_an_earlier_quarantine_ends_as_an_outcome_becomes_unknown_then_they_run_once(
    play: Play, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    async def life(lab: Lab) -> None:
        worker, recorded, marked = lab.device().worker, operations.to_unknown, lab.device().mark_unknown

        def record(*args: Any) -> None:  # slow: the quarantine that the lost reply began is over before it ends
            until_s = time.monotonic() + 10
            while worker.state == "quarantined" and time.monotonic() < until_s:
                time.sleep(0.001)
            recorded(*args)

        def mark(op_id: int, now_ns: int) -> None:
            worker.after_quarantine()
            marked(op_id, now_ns)

        monkeypatch.setattr(operations, "to_unknown", record)
        monkeypatch.setattr(lab.device(), "mark_unknown", mark)
        lab.chip().values |= {"R": 6, "P": 6}
        lab.fault(FaultKind.REPLY_LOST, access="read", offset=0)
        lab.fault(FaultKind.NACK, access="read", offset=1, skip=1, times=100)
        assert code_of(await lab.ask("reg.read_effectful", register="toy.R", key=KEY)) == "outcome_unknown"
        await lab.rules_ran()
        assert [s["offset"] for s in lab.sent()] == [
            "0x01",
            "0x00",
            "0x01",
        ]  # peek, dispatch, and one look of the rules

    play(life, toy_board(tmp_path, PEEKED, device=REPORT))


def test_rules_when_the_chip_answers_nothing_any_more_then_it_is_not_asked_for_ever(play: Play, tmp_path: Path) -> None:
    async def life(lab: Lab) -> None:
        lab.chip().values |= {"R": 6, "P": 6}
        lab.fault(FaultKind.REPLY_LOST, access="read", offset=0)
        lab.fault(FaultKind.REPLY_LOST, access="read", offset=1, skip=1, times=10_000)
        assert code_of(await lab.ask("reg.read_effectful", register="toy.R", key=KEY)) == "outcome_unknown"
        for _ in range(5):  # the look of the rules loses its reply too: that quarantine ends as well
            await lab.rules_ran()
        assert [s["offset"] for s in lab.sent()] == ["0x01", "0x00", "0x01"]
        assert (await lab.row()).state == "UNKNOWN"
        lab.bus().faults.clear()
        assert (await lab.ask("op.get", key=KEY, verify=True)).verdict == "applied"

    play(life, toy_board(tmp_path, PEEKED, device=REPORT))
