"""Sequences: a header and its steps, what stops them, replay, approval of the whole, and crashes between steps."""

from __future__ import annotations

import asyncio
from pathlib import Path
from typing import Any

import pytest

from hwtool.config import Board
from hwtool.outcome import StepOutcome, sequence_ended, sequence_verdict
from hwtool_sim.bus import SimBus
from hwtool_sim.faults import FaultKind
from tests.hwtool.conftest import (
    AGENT,
    KEY,
    KEY2,
    KEY3,
    OPERATOR,
    OTHER,
    Lab,
    Play,
    code_of,
    deaf,
    effect,
    error_of,
    evidence_of,
    reg,
    toy_board,
    until,
)

SEQ = "sequence-01"
GATED = "write = { effect = 'store', provenance = 'generated', source = 'rtl', approval = 'required' }"
PARTS = (
    reg("A", 0),
    reg("B", 1),
    reg("C", 2),
    reg("STATUS", 3, access="ro"),
    reg("FIFO", 4, effect("pop", ", level = 'LEVEL'"), access="ro"),
    reg("LEVEL", 5, access="ro"),
    reg("G", 6, GATED),
    reg("W", 7, access="wo"),
    reg("F", 8, "[registers.F.fields]\nLOW = { bits = '3:0' }\nHIGH = { bits = '7:4' }"),
    reg("U", 9, "read = { effects = ['unknown'], provenance = 'silent' }", access="ro"),
)


def board_of(directory: Path, *more: str, **rest: Any) -> Board:
    return toy_board(directory, *PARTS, *more, **rest)


def write(register: str, value: int, **more: Any) -> dict[str, Any]:
    return {"do": "write", "register": f"toy.{register}", "value": value, **more}


def expect(register: str, value: int, **more: Any) -> dict[str, Any]:
    return {"do": "expect", "register": f"toy.{register}", "equals": value, **more}


async def run(lab: Lab, *steps: dict[str, Any], key: str = SEQ, caller: Any = AGENT, **more: Any) -> Any:
    return await lab.ask("sequence.run", caller, steps=list(steps), key=key, **more)


async def states(lab: Lab) -> dict[str, tuple[str, str | None]]:
    return {r.key: (r.state, r.verdict) for r in await lab.rows()}


def test_sequence_when_every_step_is_done_then_a_header_and_an_operation_a_step_in_order(
    play: Play, tmp_path: Path
) -> None:
    async def life(lab: Lab) -> None:
        lab.chip().push("FIFO", [0x41, 0x42])
        lab.chip().values |= {"LEVEL": 2, "STATUS": 0x81, "F": 0x35}
        done = await run(
            lab,
            {"do": "read", "register": "toy.STATUS"},
            write("A", 1),
            {"do": "wait_until", "register": "toy.STATUS", "equals": 0x80, "mask": 0x80},
            {"do": "read_effectful", "register": "toy.FIFO"},
            {"do": "update", "register": "toy.F", "fields": {"LOW": 9}},
            expect("A", 1),
        )
        assert (done.ok, done.verdict, done.effects, done.status) == (True, "applied", "applied", "done")
        assert [(v["step"], v["register"], v["raw"]) for v in done.values] == [
            (1, "toy.STATUS", "0x81"),
            (2, "toy.A", "0x01"),
            (4, "toy.FIFO", "0x41"),
            (5, "toy.F", "0x39"),
        ]
        header = await lab.row(SEQ)
        rows = await lab.rows()
        assert [(r.key, r.kind, r.parent_op) for r in rows] == [
            (SEQ, "sequence", None),
            (f"{SEQ}#2", "write", header.op_id),
            (f"{SEQ}#4", "read", header.op_id),
            (f"{SEQ}#5", "update", header.op_id),
        ]
        assert {r.state for r in rows} == {"DONE"}
        assert [s["step"] for s in evidence_of(done)["steps"]] == [1, 2, 3, 4, 5, 6]
        assert [(b["what"], b["key"]) for b in await lab.audit()] == [
            ("intent", SEQ),
            ("intent", f"{SEQ}#2"),
            ("outcome", f"{SEQ}#2"),
            ("intent", f"{SEQ}#4"),
            ("outcome", f"{SEQ}#4"),
            ("intent", f"{SEQ}#5"),
            ("outcome", f"{SEQ}#5"),
            ("outcome", SEQ),
        ]
        told: Any = (await lab.ask("op.get", key=SEQ)).op
        assert [(s["step"], s["verdict"]) for s in told["steps"]] == [(2, "applied"), (4, "applied"), (5, "applied")]
        child: Any = (await lab.ask("op.get", id=rows[1].op_id)).op
        assert child["parent"] == header.op_id

    play(life, board_of(tmp_path))


def test_header_when_the_last_step_has_an_effect_then_it_ends_in_the_same_commit(play: Play, tmp_path: Path) -> None:
    async def life(lab: Lab) -> None:
        before = lab.daemon.store.commits
        assert (await run(lab, write("A", 1), write("B", 2))).ok
        assert lab.daemon.store.commits - before == 4  # T1 and T2 of each step, the header inside them
        assert await states(lab) == {
            SEQ: ("DONE", "applied"),
            f"{SEQ}#1": ("DONE", "applied"),
            f"{SEQ}#2": ("DONE", "applied"),
        }

    play(life, board_of(tmp_path))


def test_header_when_its_key_is_sent_again_then_replayed_and_nothing_is_sent(play: Play, tmp_path: Path) -> None:
    async def life(lab: Lab) -> None:
        first = await run(lab, write("A", 1), write("B", 2))
        again = await run(lab, write("A", 1), write("B", 2))
        assert (again.replayed, again.id, again.verdict, again.values) == (True, first.id, "applied", first.values)
        assert (lab.writes("A"), lab.writes("B")) == (1, 1)
        conflict = await run(lab, write("A", 1), write("B", 3))
        assert code_of(conflict) == "key_conflict"
        assert error_of(conflict)["differs"] == ["steps[1].targets[0].value"]
        shorter = await run(lab, write("A", 1))
        assert code_of(shorter) == "key_conflict"
        assert (lab.writes("A"), lab.writes("B")) == (1, 1)

    play(life, board_of(tmp_path))


def test_sequence_when_sent_twice_at_once_then_one_execution(play: Play, tmp_path: Path) -> None:
    async def life(lab: Lab) -> None:
        one, two = await asyncio.gather(run(lab, write("A", 1), write("B", 2)), run(lab, write("A", 1), write("B", 2)))
        assert (one.ok, two.ok, one.id) == (True, True, two.id)
        assert (lab.writes("A"), lab.writes("B")) == (1, 1)

    play(life, board_of(tmp_path))


STOPS: dict[str, tuple[list[dict[str, Any]], dict[str, Any], int, str, str]] = {
    # steps, fault on writes, the step it stops at, verdict, effects
    "proof at the first step": ([write("A", 1), write("B", 2)], {"offset": 0}, 1, "not_applied", "none"),
    "proof after an effect": ([write("A", 1), write("B", 2), write("C", 3)], {"offset": 1}, 2, "partial", "applied"),
    "nothing changed before": ([write("A", 0), write("B", 2)], {"offset": 1}, 2, "not_applied", "none"),
    "expectation after an effect": ([write("A", 1), expect("B", 9), write("C", 3)], {}, 2, "partial", "applied"),
    "expectation at the end": ([write("A", 1), expect("B", 9)], {}, 2, "partial", "applied"),
    "waited in vain": (
        [write("A", 1), {"do": "wait_until", "register": "toy.B", "equals": 9, "timeout_ms": 50}, write("C", 3)],
        {},
        2,
        "partial",
        "applied",
    ),
    "unverifiable effect": ([write("W", 1), expect("B", 9)], {}, 2, "partial", "unknown"),
}


@pytest.mark.parametrize("name", STOPS)
def test_sequence_when_a_step_is_not_proven_then_it_stops_there(play: Play, tmp_path: Path, name: str) -> None:
    steps, fault, at, verdict, effects = STOPS[name]

    async def life(lab: Lab) -> None:
        if fault:
            lab.fault(FaultKind.NACK, **fault)
        stopped = await run(lab, *steps)
        assert (code_of(stopped), stopped.verdict, stopped.effects) == ("not_applied", verdict, effects)
        assert (error_of(stopped)["done"], error_of(stopped)["total"]) == (at - 1, len(steps))
        assert error_of(stopped)["observed"]["step"] == at
        header = await lab.row(SEQ)
        assert (header.state, header.verdict, header.verdict_by) == ("DONE", verdict, "bus")
        assert lab.writes("C") == 0
        again = await run(lab, *steps)
        assert (again.replayed, code_of(again), again.effects) == (True, "not_applied", effects)
        assert lab.device().held() is None

    play(life, board_of(tmp_path))


def test_sequence_when_it_stops_before_any_effect_then_no_row_and_the_key_is_unused(play: Play, tmp_path: Path) -> None:
    async def life(lab: Lab) -> None:
        refused = await run(lab, expect("STATUS", 1), write("A", 1))
        assert (code_of(refused), refused.effects, refused.id) == ("precondition_failed", "none", None)
        assert "step 1" in refused.summary
        assert await states(lab) == {}
        lab.chip().values["STATUS"] = 1
        assert (await run(lab, expect("STATUS", 1), write("A", 1))).ok

    play(life, board_of(tmp_path))


def test_sequence_when_a_step_is_ambiguous_then_unknown_with_its_header_until_that_step_is_settled(
    play: Play, tmp_path: Path
) -> None:
    async def life(lab: Lab) -> None:
        lab.fault(FaultKind.REPLY_LOST, offset=1)
        lab.clock.held = True
        unknown = await run(lab, write("A", 1), write("B", 2), write("C", 3))
        assert (code_of(unknown), unknown.effects) == ("outcome_unknown", "unknown")
        step = await lab.row(f"{SEQ}#2")
        assert (error_of(unknown)["op"], error_of(unknown)["stage"]) == (step.op_id, "step 2")
        assert (await states(lab))[SEQ] == ("UNKNOWN", None)
        assert code_of(await lab.ask("reg.write", register="toy.C", value=1, key=KEY)) == "held"
        settle = await lab.operator("op.settle", id=unknown.id, verdict="applied", reason="seen")
        assert (code_of(settle), error_of(settle)["rule"]) == ("refused", "sequence_header")
        lab.clock.held = False
        lab.clock.advance(1)
        await lab.rules_ran()
        assert await states(lab) == {
            SEQ: ("DONE", "partial"),
            f"{SEQ}#1": ("DONE", "applied"),
            f"{SEQ}#2": ("DONE", "applied"),
        }
        assert (await lab.row(SEQ)).verdict_by == "rule"
        again = await run(lab, write("A", 1), write("B", 2), write("C", 3))
        assert (again.replayed, again.verdict, lab.writes("C")) == (True, "partial", 0)

    play(life, board_of(tmp_path))


def test_header_when_its_last_step_is_settled_by_rule_as_done_then_applied(play: Play, tmp_path: Path) -> None:
    async def life(lab: Lab) -> None:
        lab.fault(FaultKind.REPLY_LOST, offset=1)
        assert code_of(await run(lab, write("A", 1), write("B", 2))) == "outcome_unknown"
        await lab.rules_ran()
        assert (await states(lab))[SEQ] == ("DONE", "applied")
        again = await run(lab, write("A", 1), write("B", 2))
        assert (again.ok, again.replayed, again.verdict) == (True, True, "applied")

    play(life, board_of(tmp_path))


def test_header_when_a_person_settles_its_step_then_it_ends_by_rule_in_the_same_commit(
    play: Play, tmp_path: Path
) -> None:
    async def life(lab: Lab) -> None:
        lab.fault(FaultKind.REPLY_LOST, offset=7)
        unknown = await run(lab, write("A", 1), write("W", 2))
        await lab.rules_ran()
        step = await lab.row(f"{SEQ}#2")
        assert (step.state, code_of(unknown)) == ("UNKNOWN", "outcome_unknown")
        told: Any = (await lab.ask("op.get", key=SEQ, verify=True)).op
        assert f"operation {step.op_id}" in told["needs_person"]
        before = lab.daemon.store.commits
        assert (await lab.operator("op.settle", id=step.op_id, verdict="not_applied", reason="it did not move")).ok
        assert lab.daemon.store.commits - before == 1
        header = await lab.row(SEQ)
        assert (header.verdict, header.verdict_by) == ("partial", "rule")
        settled = [b for b in await lab.audit() if b["what"] == "settled"]
        assert [(b["key"], b["by"], b.get("principal")) for b in settled] == [
            (f"{SEQ}#2", "person", OPERATOR.principal),
            (SEQ, "rule", None),
        ]

    play(life, board_of(tmp_path))


def test_sequence_when_an_undeclared_read_loses_its_value_then_partial_and_not_held(play: Play, tmp_path: Path) -> None:
    async def life(lab: Lab) -> None:
        lab.fault(FaultKind.REPLY_LOST, access="read", offset=9)
        lost = await run(lab, {"do": "read_effectful", "register": "toy.U"}, write("A", 1))
        assert (code_of(lost), lost.verdict, lost.effects) == ("not_applied", "partial", "unknown")
        assert error_of(lost)["observed"] == {"step": 1, "code": "value_lost"}
        assert await states(lab) == {SEQ: ("DONE", "partial"), f"{SEQ}#1": ("DONE", "lost")}
        assert (lab.device().held(), lab.writes("A")) == (None, 0)

    play(life, board_of(tmp_path))


# --- others meanwhile -------------------------------------------------------------------------------------------


def test_request_when_a_sequence_has_the_device_then_it_waits_for_its_end(play: Play, tmp_path: Path) -> None:
    async def life(lab: Lab) -> None:
        lab.clock.held = True
        wait = {"do": "wait_until", "register": "toy.STATUS", "equals": 1, "timeout_ms": 60_000}
        task = asyncio.create_task(run(lab, write("A", 1), wait, write("A", 2)))
        await until(lambda: lab.reads("STATUS") >= 1)
        other = asyncio.create_task(lab.ask("reg.write", OTHER, register="toy.A", value=9, key=KEY))
        await until(lambda: lab.device().waiting == 2)
        assert (await lab.ask("reg.read", registers=["toy.A"])).ok  # clean reads pass
        assert not other.done()
        lab.chip().values["STATUS"] = 1
        lab.clock.held = False
        lab.clock.advance(1)
        assert (await task).ok
        assert (await other).ok
        assert [t["data"] for t in lab.sent() if t["do"] == "write"] == ["01", "02", "09"]

    play(life, board_of(tmp_path))


@pytest.mark.parametrize("what", ["safe state", "hold", "freeze", "stop"])
def test_sequence_when_it_is_stopped_from_outside_then_no_further_step_is_begun(
    play: Play, tmp_path: Path, what: str
) -> None:
    async def life(lab: Lab) -> None:
        lab.clock.held = True
        lab.chip().values["B"] = 1
        wait = {"do": "wait_until", "register": "toy.STATUS", "equals": 1, "timeout_ms": 60_000}
        task = asyncio.create_task(run(lab, write("A", 1), wait, write("C", 3)))
        await until(lambda: lab.reads("STATUS") >= 1)
        safe = None
        if what == "safe state":
            safe = asyncio.create_task(lab.ask("device.safe_state", device="toy", key=KEY))
            await until(lambda: lab.device().lock.alarms == 1)
        elif what == "hold":
            assert (await lab.operator("device.hold", device="toy", reason="stop")).ok
        elif what == "freeze":
            assert (await lab.operator("daemon.freeze")).ok
        else:
            lab.daemon.stopping = True
        lab.chip().values["STATUS"] = 1
        lab.clock.held = False
        lab.clock.advance(1)
        stopped = await task
        assert (code_of(stopped), stopped.verdict, stopped.effects) == ("not_applied", "partial", "applied")
        assert lab.writes("C") == 0
        if safe is not None:
            assert (await safe).ok
            assert lab.chip().values["B"] == 0

    play(life, board_of(tmp_path, device="safe_state = [{ register = 'B', value = 0 }]"))


def test_safe_state_when_called_during_the_watch_of_a_step_then_the_step_is_unknown_and_the_sequence_ends(
    play: Play, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    slow = "write = { effect = 'store', provenance = 'generated', source = 'rtl', window_ms = 60000 }"

    async def life(lab: Lab) -> None:
        lab.clock.held = True
        lab.chip().values["B"] = 1
        deaf(lab, monkeypatch, "STUCK")
        task = asyncio.create_task(run(lab, write("A", 1), write("STUCK", 5), write("C", 3)))
        await until(lambda: lab.reads("STUCK") >= 2)
        safe = asyncio.create_task(lab.ask("device.safe_state", device="toy", key=KEY))
        await until(lambda: lab.device().lock.alarms == 1)
        lab.clock.held = False
        lab.clock.advance(1)
        stopped = await task
        assert (await safe).ok
        assert (code_of(stopped), stopped.effects) == ("outcome_unknown", "unknown")
        assert (lab.writes("C"), lab.chip().values["B"]) == (0, 0)
        # the rules ran once before the safe state: nothing had changed
        assert await states(lab) == {
            SEQ: ("DONE", "partial"),
            f"{SEQ}#1": ("DONE", "applied"),
            f"{SEQ}#2": ("DONE", "not_applied"),
            KEY: ("DONE", "applied"),
        }

    stuck = reg("STUCK", 10, slow)
    play(life, board_of(tmp_path, stuck, device="safe_state = [{ register = 'B', value = 0 }]"))


def test_sequence_when_it_touches_two_devices_then_both_turns_are_taken_and_two_cannot_lock_each_other(
    play: Play, tmp_path: Path
) -> None:
    second = "[devices.two]\ncontract = './toy.toml'\nbus = 'b'\naddress = 0x21\n"

    async def life(lab: Lab) -> None:
        def to(device: str, value: int) -> dict[str, Any]:
            return {"do": "write", "register": f"{device}.A", "value": value}

        one, two = await asyncio.gather(
            run(lab, to("toy", 1), to("two", 1), to("toy", 3)), run(lab, to("two", 2), to("toy", 2), key=KEY3)
        )
        assert (one.ok, two.ok) == (True, True)
        sent = [(t["address"], t["data"]) for t in lab.sent() if t["do"] == "write"]
        first, later = [("0x20", "01"), ("0x21", "01"), ("0x20", "03")], [("0x21", "02"), ("0x20", "02")]
        assert sent in (first + later, later + first)

    play(life, board_of(tmp_path, device=second))


# --- refusals ---------------------------------------------------------------------------------------------------

REFUSED: dict[str, tuple[list[dict[str, Any]], str, str]] = {
    "no effect": ([expect("A", 0)], "refused", "no step"),
    "consuming read as clean": ([{"do": "read", "register": "toy.FIFO"}, write("A", 1)], "refused", "step 1"),
    "clean read as effectful": ([write("A", 1), {"do": "read_effectful", "register": "toy.B"}], "refused", "step 2"),
    "read-only": ([write("A", 1), write("STATUS", 1)], "refused", "step 2"),
    "unknown register": ([write("NOPE", 1)], "not_found", "step 1"),
    "no value": ([{"do": "write", "register": "toy.A"}], "invalid_args", "$.steps[0].value"),
    "no fields": ([{"do": "update", "register": "toy.F"}], "invalid_args", "$.steps[0].fields"),
    "no equals": ([write("A", 1), {"do": "expect", "register": "toy.A"}], "invalid_args", "$.steps[1].equals"),
    "a value too many": ([{"do": "read", "register": "toy.A", "value": 1}], "invalid_args", "$.steps[0].value"),
    "timeout of a write": ([write("A", 1, timeout_ms=5)], "invalid_args", "$.steps[0].timeout_ms"),
    "equals outside the mask": ([expect("A", 3, mask=1), write("A", 1)], "invalid_args", "$.steps[0].equals"),
    "wait on a FIFO": (
        [{"do": "wait_until", "register": "toy.FIFO", "equals": 1}, write("A", 1)],
        "refused",
        "step 1",
    ),
}


@pytest.mark.parametrize("name", REFUSED)
def test_sequence_when_a_step_cannot_be_then_refused_with_its_place_before_anything(
    play: Play, tmp_path: Path, name: str
) -> None:
    steps, code, where = REFUSED[name]

    async def life(lab: Lab) -> None:
        refused = await run(lab, *steps)
        assert (code_of(refused), refused.effects) == (code, "none")
        told = error_of(refused)
        assert told["path"] == where if code == "invalid_args" else where in told["message"]
        assert lab.sent() == []
        assert await states(lab) == {}

    play(life, board_of(tmp_path))


def test_sequence_when_its_steps_are_on_two_buses_then_invalid(play: Play) -> None:
    async def life(lab: Lab) -> None:
        steps = [
            {"do": "write", "register": "gpio.OLATA", "value": 1},
            {"do": "expect", "register": "meter.METER_CODE", "equals": 1},
        ]
        refused = await lab.ask("sequence.run", steps=steps, key=SEQ)
        assert (code_of(refused), error_of(refused)["path"]) == ("invalid_args", "$.steps[1].register")

    play(life)


def test_sequence_when_named_then_not_found_since_no_contract_has_any(play: Play, tmp_path: Path) -> None:
    async def life(lab: Lab) -> None:
        assert code_of(await lab.ask("sequence.run", sequence="toy.SAMPLE", key=SEQ)) == "not_found"
        for wrong in ({}, {"steps": [], "sequence": "x"}, {"steps": [write("A", 1)], "params": {}}):
            assert code_of(await lab.ask("sequence.run", key=SEQ, **wrong)) == "invalid_args"

    play(life, board_of(tmp_path))


# --- approval, rehearsal ----------------------------------------------------------------------------------------


async def approve(lab: Lab, number: int) -> Any:
    screen: Any = (await lab.operator("approval.show", approval=number)).approvals
    lab.clock.advance(2)
    return screen[0], await lab.operator("approval.approve", approval=number, code=screen[0]["code"])


def test_sequence_when_one_step_needs_approval_then_the_whole_is_approved_once(play: Play, tmp_path: Path) -> None:
    steps = [write("A", 1), write("G", 2), write("B", 3), write("G", 4)]

    async def life(lab: Lab) -> None:
        pending = await run(lab, *steps)
        assert (pending.status, pending.effects) == ("pending_approval", "none")
        screen, approved = await approve(lab, pending.id)
        assert approved.ok
        assert [(c["register"], c["before"], c["after"]) for c in screen["changes"]] == [
            ("A", "0x00", "0x01"),
            ("G", "0x00", "0x02"),
            ("B", "0x00", "0x03"),
            ("G", "0x02", "0x04"),
        ]
        assert (len(screen["transfers"]), [s["step"] for s in screen["steps"]]) == (4, [1, 2, 3, 4])
        assert lab.writes("A") == 0
        done = await run(lab, *steps)
        assert (done.ok, done.id) == (True, pending.id)
        assert (lab.writes("A"), lab.writes("G"), lab.writes("B")) == (1, 2, 1)
        assert [(b["what"], b["key"]) for b in await lab.audit() if b["what"] in ("pending", "intent")][:3] == [
            ("pending", SEQ),
            ("intent", SEQ),
            ("intent", f"{SEQ}#1"),
        ]
        again = await run(lab, *steps)
        assert (again.replayed, lab.writes("G")) == (True, 2)

    play(life, board_of(tmp_path))


@pytest.mark.parametrize("change", ["neighbour", "generation"])
def test_sequence_when_the_devices_changed_since_the_approval_then_the_grant_is_not_used(
    play: Play, tmp_path: Path, change: str
) -> None:
    steps = [{"do": "update", "register": "toy.F", "fields": {"LOW": 9}}, write("G", 2)]

    async def life(lab: Lab) -> None:
        pending = await run(lab, *steps)
        await approve(lab, pending.id)
        if change == "neighbour":
            lab.chip().values["F"] = 0x70
        else:
            lab.chip().reset()
            await lab.ask("reg.plan", method="reg.write", params={"register": "toy.A", "value": 1})
        late = await run(lab, *steps)
        assert code_of(late) == ("stale" if change == "neighbour" else "approval_expired")
        assert (lab.writes("F"), lab.writes("G")) == (0, 0)

    play(life, board_of(tmp_path))


def test_sequence_when_an_operator_sends_it_then_direct(play: Play, tmp_path: Path) -> None:
    async def life(lab: Lab) -> None:
        assert (await run(lab, write("G", 2), caller=OPERATOR)).ok
        assert [(b["key"], b.get("direct")) for b in await lab.audit() if b["what"] == "intent"] == [
            (SEQ, True),
            (f"{SEQ}#1", None),
        ]

    play(life, board_of(tmp_path))


def test_sequence_when_rehearsed_then_all_transfers_are_shown_and_none_is_sent(play: Play, tmp_path: Path) -> None:
    async def life(lab: Lab) -> None:
        steps = [write("A", 1), expect("A", 1), write("G", 2)]
        shown = await run(lab, *steps, dry_run=True)
        planned = await lab.ask("reg.plan", method="sequence.run", params={"steps": steps})
        assert shown.transfers == planned.transfers
        assert [(t["register"], t["data"]) for t in shown.transfers] == [("A", "01"), ("G", "02")]
        assert [w.partition(":")[0] for w in shown.warnings] == ["needs_approval", "may_be_partial"]
        assert (await states(lab), [t for t in lab.sent() if t["do"] == "write"]) == ({}, [])

    play(life, board_of(tmp_path))


# --- deadlines and crashes --------------------------------------------------------------------------------------


def test_not_after_when_it_passes_between_two_steps_then_the_second_is_not_sent(play: Play, tmp_path: Path) -> None:
    async def life(lab: Lab) -> None:
        wait = {"do": "wait_until", "register": "toy.STATUS", "equals": 1, "timeout_ms": 60_000, "interval_ms": 1000}
        late = await run(lab, write("A", 1), wait, write("B", 2), not_after=lab.clock.wall_ns() // 1_000_000 + 1500)
        assert (code_of(late), late.verdict, error_of(late)["observed"]["code"]) == (
            "not_applied",
            "partial",
            "expired",
        )
        assert (lab.writes("A"), lab.writes("B")) == (1, 0)

    play(life, board_of(tmp_path))


def test_deadline_when_the_caller_stops_waiting_then_the_sequence_goes_on(play: Play, tmp_path: Path) -> None:
    async def life(lab: Lab) -> None:
        wait = {"do": "wait_until", "register": "toy.STATUS", "equals": 1, "timeout_ms": 60_000}
        lab.clock.held = True
        waiting = await run(lab, write("A", 1), wait, write("B", 2), deadline_ms=20)
        assert (waiting.status, waiting.effects) == ("in_progress", "unknown")
        lab.chip().values["STATUS"] = 1
        lab.clock.held = False
        lab.clock.advance(1)
        done = await run(lab, write("A", 1), wait, write("B", 2))
        assert (done.ok, lab.writes("A"), lab.writes("B")) == (True, 1, 1)

    play(life, board_of(tmp_path))


CRASHES = {
    # number of the step whose T2 is the last thing on disk (0: its T1 alone), trailing steps, verdict
    "after the first step": (1, [write("B", 2), write("C", 3)], "partial"),
    "after the last step with an effect, one to look at": (1, [expect("A", 1)], "partial"),
}


@pytest.mark.parametrize("name", CRASHES)
def test_crash_when_between_two_steps_then_no_further_step_is_begun_and_the_header_ends_by_rule(
    play: Play, tmp_path: Path, kept_buses: dict[str, SimBus], monkeypatch: pytest.MonkeyPatch, name: str
) -> None:
    _, trailing, verdict = CRASHES[name]
    board = board_of(tmp_path)

    async def life(lab: Lab) -> None:
        from hwtool.execution import Execution

        real = Execution.at_the_head

        async def head(self: Any, request: Any, *rest: Any) -> Any:
            result = await real(self, request, *rest)
            if request.params.key == f"{SEQ}#1":
                lab.disk_now("crashed")
                raise RuntimeError("the power is gone")
            return result

        with monkeypatch.context() as patch:
            patch.setattr(Execution, "at_the_head", head)
            await run(lab, write("A", 1), *trailing)

    async def next_life(lab: Lab) -> None:
        counts = dict(lab.chip().executed)
        assert await states(lab) == {SEQ: ("DONE", verdict), f"{SEQ}#1": ("DONE", "applied")}
        again = await run(lab, write("A", 1), *trailing)
        assert (again.replayed, again.verdict, again.effects) == (True, verdict, "applied")
        assert {k: n for k, n in lab.chip().executed.items() if k[1] == "write"} == {
            k: n for k, n in counts.items() if k[1] == "write"
        }
        assert lab.device().held() is None

    play(life, board)
    play(next_life, board, store="crashed")


def test_crash_when_inside_a_step_then_the_header_is_unknown_until_it_is_settled(
    play: Play, tmp_path: Path, kept_buses: dict[str, SimBus], monkeypatch: pytest.MonkeyPatch
) -> None:
    board = board_of(tmp_path)
    steps = (write("A", 1), write("W", 2), write("C", 3))

    async def life(lab: Lab) -> None:
        from hwtool.carry_out import carry_out

        async def dying(intent: Any, *rest: Any) -> Any:
            done = await carry_out(intent, *rest)
            if intent.op_id == 3:
                lab.disk_now("crashed")
                raise RuntimeError("the power is gone")
            return done

        monkeypatch.setattr("hwtool.execution.carry_out", dying)
        assert (await run(lab, *steps)).effects == "unknown"

    async def next_life(lab: Lab) -> None:
        assert await states(lab) == {
            SEQ: ("UNKNOWN", None),
            f"{SEQ}#1": ("DONE", "applied"),
            f"{SEQ}#2": ("UNKNOWN", None),
        }
        again = await run(lab, *steps)
        assert (code_of(again), again.effects) == ("outcome_unknown", "unknown")
        assert code_of(await lab.ask("reg.write", register="toy.A", value=7, key=KEY2)) == "held"
        assert (await lab.operator("op.settle", id=3, verdict="applied", reason="it moved")).ok
        assert (await states(lab))[SEQ] == ("DONE", "partial")

    play(life, board)
    play(next_life, board, store="crashed")


# --- the verdict, pure ------------------------------------------------------------------------------------------

DONE = StepOutcome(1, "applied", "applied", True)
SAME = StepOutcome(1, "satisfied", "none", True)
UNSEEN = StepOutcome(2, "applied", "unknown", True)
FAILED = StepOutcome(2, "not_applied", "none", False)
LOST = StepOutcome(2, "lost", "unknown", False)


@pytest.mark.parametrize(
    ("outcomes", "complete", "verdict", "effects"),
    [
        ([DONE], True, "applied", "applied"),
        ([SAME], True, "applied", "none"),
        ([SAME, UNSEEN], True, "applied", "unknown"),
        ([DONE, UNSEEN], True, "applied", "applied"),
        ([DONE], False, "partial", "applied"),
        ([SAME], False, "not_applied", "none"),
        ([SAME, FAILED], False, "not_applied", "none"),
        ([DONE, FAILED], False, "partial", "applied"),
        ([SAME, LOST], False, "partial", "unknown"),
        ([DONE, FAILED], True, "partial", "applied"),
    ],
)
def test_verdict_of_a_sequence_when_its_steps_came_to_this_then(
    outcomes: list[StepOutcome], complete: bool, verdict: str, effects: str
) -> None:
    assert sequence_verdict(outcomes, complete)[:2] == (verdict, effects)


def test_sequence_when_nobody_runs_it_any_more_then_trailing_steps_count_as_not_done() -> None:
    steps = [{"step": 1}, {"step": 2}, {"step": 3}]
    assert sequence_ended(steps, [DONE, UNSEEN]).verdict == "partial"
    assert sequence_ended(steps[:2], [DONE, UNSEEN]).verdict == "applied"
    assert sequence_ended(steps, []).verdict == "not_applied"
