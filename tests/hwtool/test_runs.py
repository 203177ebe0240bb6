"""Runs, whose status is computed and never claimed, and leases: on the engine."""

from __future__ import annotations

import asyncio
from pathlib import Path
from typing import Any

import pytest

from hwtool_contracts.messages import Result
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
    reg,
    toy_board,
    until,
)
from tests.hwtool.test_approvals import approved

OUT = reg("OUT", 0)
BLIND = reg("BLIND", 1, access="wo")
FIFO = reg("FIFO", 2, effect("pop"), access="ro")
PARTS = (OUT, BLIND, FIFO)


async def begun(lab: Lab, name: str = "bring-up") -> int:
    """The number of a new run."""
    started = await lab.ask("run.start", name=name)
    told: Any = started.run
    assert told["status"] == "running"
    return int(told["id"])


async def ended(lab: Lab, run: int) -> tuple[Any, Result]:
    """Status and whole result of a run that is finished now."""
    result = await lab.ask("run.finish", run=run)
    told: Any = result.run
    return told["status"], result


async def write(
    lab: Lab, run: int | None, key: str = KEY, register: str = "OUT", value: int = 1, **more: Any
) -> Result:
    return await lab.ask("reg.write", register=f"toy.{register}", value=value, key=key, run=run, **more)


def settle(lab: Lab, op_id: int | None, verdict: str) -> Any:
    return lab.operator("op.settle", id=op_id, verdict=verdict, reason="looked at it")


# --- the worst story ----------------------------------------------------------------------------------------------


def test_run_when_switching_off_times_out_then_the_next_step_never_runs_and_the_run_is_failed(
    play: Play, tmp_path: Path
) -> None:
    async def life(lab: Lab) -> None:
        lab.chip().values["OUT"] = 1
        run = await begun(lab, "switch off")
        lab.fault(FaultKind.REPLY_LOST, offset=0)
        off = await write(lab, run, KEY, value=0)
        assert (code_of(off), error_of(off)["run"], error_of(off)["error_id"]) == ("outcome_unknown", run, 1)
        then = await write(lab, run, KEY2, "BLIND", 7)
        assert (code_of(then), lab.writes("BLIND")) in [("run_halted", 0), ("held", 0)]
        status, result = await ended(lab, run)
        assert status == "failed"
        assert f"operation {off.id} is unknown" in result.summary
        assert [w.partition(":")[0] for w in result.warnings] == ["run_failed"]
        assert lab.writes("BLIND") == 0

    play(life, toy_board(tmp_path, *PARTS, sole_master=False))


def test_run_when_its_failed_step_is_on_another_device_then_later_steps_are_refused_all_the_same(
    play: Play, tmp_path: Path
) -> None:
    async def life(lab: Lab) -> None:
        run = await begun(lab)
        lab.fault(FaultKind.REPLY_LOST, offset=1)
        unknown = await write(lab, run, KEY, "BLIND")
        halted = await lab.ask("reg.write", register="two.OUT", value=1, key=KEY2, run=run)
        assert (code_of(halted), error_of(halted)["by_op"], lab.writes("OUT", "two")) == ("run_halted", unknown.id, 0)
        assert (await lab.ask("reg.read", registers=["two.OUT"], run=run)).ok  # clean reads go on
        assert (await lab.ask("reg.write", register="two.OUT", value=1, key=KEY2)).ok  # outside the run it may
        assert (await lab.ask("reg.write", OTHER, register="two.OUT", value=1, key=KEY2)).ok

    two = "[devices.two]\ncontract = './toy.toml'\nbus = 'b'\naddress = 0x21\n"
    play(life, toy_board(tmp_path, *PARTS, device=two))


# --- status -------------------------------------------------------------------------------------------------------


def test_run_when_every_step_was_done_then_succeeded(play: Play, tmp_path: Path) -> None:
    async def life(lab: Lab) -> None:
        run = await begun(lab)
        lab.chip().push("FIFO", b"a")
        assert (await write(lab, run)).ok
        assert (await lab.ask("reg.read_effectful", register="toy.FIFO", key=KEY2, run=run)).ok
        steps = [{"do": "write", "register": "toy.OUT", "value": 2}]
        assert (await lab.ask("sequence.run", steps=steps, key=KEY3, run=run)).ok
        status, result = await ended(lab, run)
        told: Any = result.run
        assert (status, told["operations"], told["errors"], result.warnings) == ("succeeded", 3, [], [])

    play(life, toy_board(tmp_path, *PARTS))


FAILURES: dict[str, tuple[dict[str, Any], bool]] = {
    # what goes wrong, and whether it halts the run
    "refused": ({"register": "toy.FIFO", "value": 1}, True),
    "not there": ({"register": "toy.NOPE", "value": 1}, True),
    "precondition": ({"register": "toy.OUT", "value": 1, "expect": {"toy.OUT": 9}}, True),
    "frozen": ({"register": "toy.OUT", "value": 1}, False),
}


@pytest.mark.parametrize("name", FAILURES)
def test_run_when_a_request_failed_then_it_fails_unless_it_is_acknowledged(
    play: Play, tmp_path: Path, name: str
) -> None:
    params, halts = FAILURES[name]

    async def life(lab: Lab) -> None:
        run = await begun(lab)
        if name == "frozen":
            await lab.operator("daemon.freeze")
        failed = await lab.ask("reg.write", key=KEY, run=run, **params)
        number = error_of(failed)["error_id"]
        await lab.operator("daemon.thaw")
        after = await write(lab, run, KEY2)
        assert code_of(after) == ("run_halted" if halts else None)
        assert lab.writes("OUT") == (0 if halts else 1)
        acknowledged: Any = (await lab.ask("run.acknowledge", run=run, error_id=number, how="the name was wrong")).run
        assert acknowledged["unhandled"] == []
        assert acknowledged["errors"][0]["handled"] == "the name was wrong"
        assert (await write(lab, run, KEY3)).ok
        assert (await ended(lab, run))[0] == "succeeded"

    play(life, toy_board(tmp_path, *PARTS))


def test_run_when_nothing_was_acknowledged_then_failed_with_the_first_cause_and_that_is_kept(
    play: Play, tmp_path: Path
) -> None:
    async def life(lab: Lab) -> None:
        run = await begun(lab)
        await lab.ask("reg.write", register="toy.FIFO", value=1, key=KEY, run=run)
        assert (await write(lab, run, KEY2)).error is not None
        status, result = await ended(lab, run)
        told: Any = result.run
        assert (status, told["failed_by"]) == ("failed", "refused (error 1)")
        assert len(told["errors"]) == 1  # what halted it is not told twice
        late = await lab.ask("run.acknowledge", run=run, error_id=1, how="too late")
        assert (code_of(late), error_of(late)["rule"]) == ("refused", "run_finished")
        again = await lab.ask("run.finish", run=run)
        assert (code_of(again), error_of(again)["rule"]) == ("refused", "run_finished")
        for request in (write(lab, run, KEY3), lab.ask("reg.read", registers=["toy.OUT"], run=run)):
            assert error_of(await request)["rule"] == "run_finished"
        assert lab.writes("OUT") == 0

    play(life, toy_board(tmp_path, *PARTS))


def test_run_when_a_key_of_another_request_is_used_then_it_fails_though_that_one_was_done(
    play: Play, tmp_path: Path
) -> None:
    async def life(lab: Lab) -> None:
        run = await begun(lab)
        assert (await write(lab, run, KEY, value=1)).verdict == "applied"
        conflict = await write(lab, run, KEY, value=2)
        assert (code_of(conflict), conflict.id, error_of(conflict)["error_id"]) == ("key_conflict", 1, 1)
        assert code_of(await write(lab, run, KEY2, value=3)) == "run_halted"
        status, result = await ended(lab, run)
        told: Any = result.run
        assert (status, told["failed_by"], lab.writes("OUT")) == ("failed", "key_conflict (error 1)", 1)

    play(life, toy_board(tmp_path, *PARTS))


def test_run_when_a_busy_key_succeeds_later_then_its_error_is_handled(play: Play, tmp_path: Path) -> None:
    async def life(lab: Lab) -> None:
        run = await begun(lab)
        await lab.operator("daemon.freeze")
        assert code_of(await write(lab, run)) == "unavailable"
        await lab.operator("daemon.thaw")
        assert (await write(lab, run)).ok
        status, result = await ended(lab, run)
        told: Any = result.run
        assert (status, told["errors"][0]["handled"]) == ("succeeded", "the same key succeeded")

    play(life, toy_board(tmp_path, *PARTS))


@pytest.mark.parametrize(("verdict", "status"), [("applied", "succeeded"), ("not_applied", "failed")])
def test_run_when_its_unknown_step_is_settled_then_by_the_verdict(
    play: Play, tmp_path: Path, verdict: str, status: str
) -> None:
    async def life(lab: Lab) -> None:
        run = await begun(lab)
        lab.fault(FaultKind.REPLY_LOST, offset=1)
        unknown = await write(lab, run, register="BLIND")
        await lab.rules_ran()
        number = error_of(unknown)["error_id"]
        refused = await lab.ask("run.acknowledge", run=run, error_id=number, how="it is fine")
        assert (code_of(refused), error_of(refused)["rule"]) == ("refused", "run_error_open")
        assert (await settle(lab, unknown.id, verdict)).ok
        assert code_of(await write(lab, run, KEY2)) == (None if verdict == "applied" else "run_halted")
        assert (await ended(lab, run))[0] == status

    play(life, toy_board(tmp_path, *PARTS))


def test_run_when_a_settled_failure_is_acknowledged_then_it_goes_on(play: Play, tmp_path: Path) -> None:
    async def life(lab: Lab) -> None:
        run = await begun(lab)
        lab.fault(FaultKind.REPLY_LOST, offset=1)
        unknown = await write(lab, run, register="BLIND")
        await lab.rules_ran()
        await settle(lab, unknown.id, "not_applied")
        acknowledged = await lab.ask("run.acknowledge", run=run, error_id=error_of(unknown)["error_id"], how="redo")
        assert acknowledged.ok
        assert (await write(lab, run, KEY2, "BLIND")).ok
        assert (await ended(lab, run))[0] == "succeeded"

    play(life, toy_board(tmp_path, *PARTS))


def test_run_when_a_request_waits_for_a_person_then_it_does_not_succeed(play: Play, tmp_path: Path) -> None:
    async def life(lab: Lab) -> None:
        run = await begun(lab)
        waiting = await write(lab, run)
        assert waiting.status == "pending_approval"
        other = await begun(lab, "another")
        await approved(lab, waiting.id)
        done = await write(lab, run)
        assert done.ok
        assert (await ended(lab, run))[0] == "succeeded"
        assert (await write(lab, other, KEY2)).status == "pending_approval"
        status, result = await ended(lab, other)
        assert (status, "waits for approval" in result.summary) == ("failed", True)

    rule = "[[policy]]\nwho = '*'\nwrite = 'approval'\n"
    play(life, toy_board(tmp_path, *PARTS, device=rule, mode="separate-user"))


def test_run_when_it_was_halted_then_no_person_is_asked_for_a_later_step(play: Play, tmp_path: Path) -> None:
    async def life(lab: Lab) -> None:
        run = await begun(lab)
        await lab.ask("reg.write", register="toy.NOPE", value=1, key=KEY, run=run)
        assert code_of(await write(lab, run, KEY2)) == "run_halted"
        assert await lab.rows() == []

    rule = "[[policy]]\nwho = '*'\nwrite = 'approval'\n"
    play(life, toy_board(tmp_path, *PARTS, device=rule, mode="separate-user"))


def test_run_when_an_operation_is_under_way_then_it_cannot_be_finished_yet(
    play: Play, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    async def life(lab: Lab) -> None:
        run = await begun(lab)
        lab.clock.held = True
        deaf(lab, monkeypatch, "SLOW")
        going = asyncio.create_task(write(lab, run, register="SLOW"))
        await until(lambda: lab.writes("SLOW"))
        refused = await lab.ask("run.finish", run=run)
        assert (code_of(refused), error_of(refused)["retry"]) == ("busy", "same_key")
        lab.clock.held = False
        lab.clock.advance(10)
        await going

    slow = reg("SLOW", 4, "write = { effect = 'pulse', provenance = 'generated', signals = ['OUT'], window_ms = 900 }")
    play(life, toy_board(tmp_path, *PARTS, slow))


def test_run_when_two_requests_wait_and_the_first_fails_then_the_second_never_runs(play: Play, tmp_path: Path) -> None:
    async def life(lab: Lab) -> None:
        run = await begun(lab)
        await lab.device().lock.acquire()
        lab.fault(FaultKind.NACK, offset=1)
        first = asyncio.create_task(write(lab, run, KEY, "BLIND"))
        await until(lambda: lab.device().waiting == 1)
        second = asyncio.create_task(write(lab, run, KEY2))
        await until(lambda: lab.device().waiting == 2)
        lab.device().lock.release()
        assert code_of(await first) == "bus_fault"
        # the error is told after the device has been given on: it is the outcome on record that halts the second
        assert (code_of(await second), lab.writes("OUT")) == ("run_halted", 0)

    play(life, toy_board(tmp_path, *PARTS))


def test_run_when_the_daemon_restarts_then_it_and_its_errors_are_still_there(play: Play, tmp_path: Path) -> None:
    board = toy_board(tmp_path, *PARTS)

    async def first(lab: Lab) -> None:
        assert await begun(lab) == 1
        lab.fault(FaultKind.NACK, offset=0)
        await write(lab, 1)

    async def then(lab: Lab) -> None:
        assert code_of(await write(lab, 1, KEY2)) == "run_halted"
        told = await write(lab, 1)  # the same key: its outcome, with the number of its error
        assert (told.replayed, error_of(told)["error_id"]) == (True, 1)
        assert (await lab.ask("run.acknowledge", run=1, error_id=1, how="the cable was out")).ok
        assert (await write(lab, 1, KEY3)).ok
        assert (await ended(lab, 1))[0] == "succeeded"

    play(first, board)
    play(then, board)


def test_run_when_it_is_of_another_caller_then_denied(play: Play, tmp_path: Path) -> None:
    async def life(lab: Lab) -> None:
        run = await begun(lab)
        refused = await lab.ask("reg.write", OTHER, register="toy.OUT", value=1, key=KEY, run=run)
        assert (code_of(refused), lab.writes("OUT")) == ("denied", 0)
        for method, params in (("run.finish", {}), ("run.acknowledge", {"error_id": 1, "how": "x"})):
            assert code_of(await lab.ask(method, OTHER, run=run, **params)) == "denied"
        assert code_of(await lab.ask("reg.read", OTHER, registers=["toy.OUT"], run=run)) == "denied"
        assert code_of(await write(lab, 99)) == "not_found"
        status, _ = await ended(lab, run)
        assert status == "succeeded"  # what others tried with its number is not its own

    play(life, toy_board(tmp_path, *PARTS))


def test_run_when_a_rehearsal_fails_then_the_run_does_not(play: Play, tmp_path: Path) -> None:
    async def life(lab: Lab) -> None:
        run = await begun(lab)
        assert not (await lab.ask("reg.write", register="toy.FIFO", value=1, key=KEY, run=run, dry_run=True)).ok
        assert (await ended(lab, run))[0] == "succeeded"

    play(life, toy_board(tmp_path, *PARTS))


def test_run_when_a_clean_read_fails_then_it_counts_and_halts_nothing(play: Play, tmp_path: Path) -> None:
    async def life(lab: Lab) -> None:
        run = await begun(lab)
        lab.fault(FaultKind.NACK, access="read", offset=0)
        failed = await lab.ask("reg.read", registers=["toy.OUT"], run=run)
        assert (code_of(failed), error_of(failed)["error_id"]) == ("bus_fault", 1)
        assert (await write(lab, run)).ok
        assert (await ended(lab, run))[0] == "failed"

    play(life, toy_board(tmp_path, *PARTS))


# --- leases -------------------------------------------------------------------------------------------------------


async def lease(lab: Lab, ttl_ms: int = 1000) -> Result:
    return await lab.ask("lease.acquire", device="toy", ttl_ms=ttl_ms)


async def theirs(lab: Lab, key: str = KEY) -> Result:
    return await lab.ask("reg.write", OTHER, register="toy.OUT", value=1, key=key)


def test_lease_when_a_device_is_leased_then_others_wait_and_its_holder_does_not(play: Play, tmp_path: Path) -> None:
    async def life(lab: Lab) -> None:
        assert (await lease(lab)).ok
        busy = error_of(await theirs(lab))
        assert (busy["code"], busy["by"], busy["holder"]) == ("busy", "lease", AGENT.principal)
        assert 0 < busy["retry_after_ms"] <= 1000
        assert (await write(lab, None)).ok
        assert (await lab.ask("reg.read", OTHER, registers=["toy.OUT"])).ok
        assert (await lab.ask("reg.write", OPERATOR, register="toy.OUT", value=2, key=KEY)).ok
        assert (await lab.ask("device.safe_state", OTHER, device="toy", key=KEY3)).ok
        assert (await lab.rows())[-1].key == KEY3  # the key that was turned away is unused
        lab.clock.advance(busy["retry_after_ms"] / 1000 + 0.001)
        assert (await theirs(lab)).ok

    play(life, toy_board(tmp_path, *PARTS, device="safe_state = [{ register = 'OUT', value = 0 }]"))


def test_lease_when_taken_or_given_back_then_only_by_its_holder_or_an_operator(play: Play, tmp_path: Path) -> None:
    async def life(lab: Lab) -> None:
        await lease(lab)
        assert code_of(await lab.ask("lease.acquire", OTHER, device="toy", ttl_ms=5)) == "busy"
        assert code_of(await lab.ask("lease.release", OTHER, device="toy")) == "denied"
        listed: Any = (await lab.ask("device.list", OTHER)).devices
        assert (listed[0]["lease"]["holder"], listed[0]["lease"]["rest_ms"]) == (AGENT.principal, 1000)
        assert (await lease(lab, 5000)).ok
        assert (await lab.ask("lease.release", device="toy")).ok
        assert (await theirs(lab)).ok
        await lease(lab)
        assert (await lab.operator("lease.release", device="toy")).ok
        assert (await theirs(lab, KEY2)).ok

    play(life, toy_board(tmp_path, *PARTS))


def test_lease_when_it_comes_while_another_waits_then_what_waits_does_not_run(play: Play, tmp_path: Path) -> None:
    async def life(lab: Lab) -> None:
        await lab.device().lock.acquire()
        waiting = asyncio.create_task(theirs(lab))
        await until(lambda: lab.device().waiting)
        await lease(lab)
        lab.device().lock.release()
        assert (code_of(await waiting), lab.writes("OUT")) == ("busy", 0)

    play(life, toy_board(tmp_path, *PARTS))


def test_lease_when_the_daemon_restarts_then_over(play: Play, tmp_path: Path) -> None:
    async def first(lab: Lab) -> None:
        await lease(lab, 600_000)

    async def then(lab: Lab) -> None:
        assert (await theirs(lab)).ok

    board = toy_board(tmp_path, *PARTS)
    play(first, board)
    play(then, board)
