"""The life of a keyed operation through the engine: keys, admission, queue, intent, outcomes, holds, banks."""

from __future__ import annotations

import asyncio
import sqlite3
from pathlib import Path
from typing import Any

import pytest

from hwtool.carry_out import carry_out as real_carry_out
from hwtool.dispatch import Intent, SpentIntent, dispatch
from hwtool.execution import MAX_QUEUE
from hwtool.prepare import Prepared
from hwtool.prepare import prepare as real_prepare
from hwtool.resolve import Resolved
from hwtool_contracts.errors import Code, DomainError
from hwtool_contracts.messages import Result
from hwtool_registers.bus import Answer, Confirmed, RegisterRead, RegisterWrite, Transfer
from hwtool_registers.steps import Plan
from hwtool_sim.bus import SimBus
from hwtool_sim.faults import FaultKind
from hwtool_store import operations
from hwtool_store.faults import StoreFatal, StoreRule
from tests.hwtool.conftest import (
    AGENT,
    GHOST,
    KEY,
    KEY2,
    KEY3,
    MODBUS,
    OPERATOR,
    OTHER,
    FakeClock,
    Lab,
    Play,
    code_of,
    effect,
    error_of,
    evidence_of,
    raws,
    reg,
    toy_board,
    until,
)

R = reg("R", 0)
PAIR = (R, reg("S", 1))
WRITE = {"register": "toy.R", "value": "0x55", "key": KEY}


def toy_write(register: str, value: int | str = 0x55, key: str = KEY, **more: Any) -> dict[str, Any]:
    return {"register": f"toy.{register}", "value": value, "key": key, **more}


# --- one key, one execution -------------------------------------------------------------------------------------


def test_key_when_sent_three_times_then_one_execution_and_two_replays(play: Play, tmp_path: Path) -> None:
    async def life(lab: Lab) -> None:
        first = await lab.ask("reg.write", **WRITE)
        assert (first.verdict, first.effects, first.replayed, first.ok) == ("applied", "applied", False, True)
        sent = lab.sent()
        assert [(t["do"], t["offset"]) for t in sent] == [("read", "0x00"), ("write", "0x00"), ("read", "0x00")]
        assert sent[1]["data"] == "55"
        for _ in range(2):
            again = await lab.ask("reg.write", **WRITE)
            assert (again.id, again.verdict, again.effects, again.replayed) == (first.id, "applied", "applied", True)
            assert again.values == first.values
            assert again.at == first.at
        assert lab.writes("R") == 1
        assert lab.sent() == sent

    play(life, toy_board(tmp_path, R))


def test_key_when_the_same_read_is_sent_again_then_the_value_comes_from_the_record(play: Play) -> None:
    async def life(lab: Lab) -> None:
        first = await lab.ask("reg.read_effectful", register="uart.RHR", key=KEY)
        again = await lab.ask("reg.read_effectful", register="uart.RHR", key=KEY)
        assert raws(first) == raws(again) == ["0x68"]
        assert (again.replayed, first.effects, first.verdict) == (True, "applied", "applied")
        assert lab.reads("RHR", "uart") == 1
        burst = await lab.ask("reg.read_effectful", register="uart.RHR", key=KEY2, count=3)
        assert raws(burst) == ["0x65", "0x6c", "0x6c"]
        assert len(lab.chip("uart").fifos["RHR"]) == 1
        op_id = burst.id or 0
        data = await lab.daemon.ask(lambda conn: operations.data_of(conn, op_id))
        assert data == [b"ell"]

    play(life)


CONFLICTS: dict[str, tuple[dict[str, Any], str]] = {
    "value": (toy_write("R", 0x56), "targets[0].value"),
    "mask": (toy_write("R", 0x55, mask="0xff"), "targets[0].mask"),
    "register": (toy_write("S"), "register"),
    "expect": (toy_write("R", expect={"toy.S": 1}), "expect"),
    "invalid now": (toy_write("R", 0x100), "request: invalid_args"),
    "unknown now": (toy_write("NOPE"), "request: not_found"),
}


@pytest.mark.parametrize(("params", "differs"), CONFLICTS.values(), ids=list(CONFLICTS))
def test_key_when_used_for_another_request_then_conflict_names_what_differs_and_nothing_is_touched(
    play: Play, tmp_path: Path, params: dict[str, Any], differs: str
) -> None:
    async def life(lab: Lab) -> None:
        first = await lab.ask("reg.write", **WRITE)
        sent = lab.sent()
        conflict = await lab.ask("reg.write", **params)
        assert (code_of(conflict), conflict.effects) == ("key_conflict", "applied")
        assert any(d.startswith(differs) for d in error_of(conflict)["differs"])
        assert (conflict.id, conflict.verdict) == (first.id, "applied")
        assert lab.sent() == sent
        assert [b["code"] for b in await lab.audit() if b["what"] == "refused"] == ["key_conflict"]

    play(life, toy_board(tmp_path, *PAIR))


def test_key_when_only_the_count_differs_then_conflict(play: Play) -> None:
    async def life(lab: Lab) -> None:
        await lab.ask("reg.read_effectful", register="uart.RHR", key=KEY)
        conflict = await lab.ask("reg.read_effectful", register="uart.RHR", key=KEY, count=2)
        assert (code_of(conflict), error_of(conflict)["differs"]) == ("key_conflict", ["count"])
        assert lab.reads("RHR", "uart") == 1

    play(life)


def test_key_when_only_the_contracts_resolution_changed_then_differs_contract(play: Play, tmp_path: Path) -> None:
    async def before(lab: Lab) -> None:
        assert (await lab.ask("reg.write", **WRITE)).ok

    async def after(lab: Lab) -> None:
        conflict = await lab.ask("reg.write", **WRITE)
        assert (code_of(conflict), conflict.effects) == ("key_conflict", "applied")
        assert error_of(conflict)["differs"] == ["contract"]
        assert lab.sent() == []

    play(before, toy_board(tmp_path, R))
    play(after, toy_board(tmp_path, reg("R", 1)))


def test_key_when_sent_twice_at_once_then_one_execution(play: Play, tmp_path: Path) -> None:
    async def life(lab: Lab) -> None:
        results = await asyncio.gather(*(lab.ask("reg.write", **WRITE) for _ in range(5)))
        assert {r.id for r in results} == {results[0].id}
        assert {r.verdict for r in results} == {"applied"}
        assert [r.replayed for r in results] == [False, True, True, True, True]
        assert lab.writes("R") == 1

    play(life, toy_board(tmp_path, R))


def test_key_when_another_request_comes_with_it_at_once_then_conflict_with_effects_unknown(
    play: Play, tmp_path: Path
) -> None:
    async def life(lab: Lab) -> None:
        one, two = await asyncio.gather(lab.ask("reg.write", **WRITE), lab.ask("reg.write", **toy_write("R", 0x56)))
        assert one.verdict == "applied"
        assert (code_of(two), two.effects) == ("key_conflict", "unknown")
        assert lab.chip().values["R"] == 0x55

    play(life, toy_board(tmp_path, R))


def test_key_when_two_principals_choose_the_same_then_both_are_carried_out(play: Play, tmp_path: Path) -> None:
    async def life(lab: Lab) -> None:
        mine = await lab.ask("reg.write", **WRITE)
        theirs = await lab.ask("reg.write", OTHER, **toy_write("R", 0x66))
        assert (mine.verdict, theirs.verdict, theirs.replayed) == ("applied", "applied", False)
        assert lab.writes("R") == 2

    play(life, toy_board(tmp_path, R))


def test_key_when_pruned_then_expired_with_its_verdict_and_never_a_second_execution(play: Play, tmp_path: Path) -> None:
    async def life(lab: Lab) -> None:
        await lab.ask("reg.write", **WRITE)
        assert await lab.daemon.ask(lambda conn: operations.prune(conn, 0, 1)) == 1
        again = await lab.ask("reg.write", **WRITE)
        assert (code_of(again), error_of(again)["verdict"], again.effects) == ("key_expired", "applied", "none")
        assert code_of(await lab.ask("op.get", key=KEY)) == "key_expired"
        assert lab.writes("R") == 1

    play(life, toy_board(tmp_path, R))


def test_replay_when_recorded_before_this_connection_then_a_warning(play: Play, tmp_path: Path) -> None:
    async def life(lab: Lab) -> None:
        await lab.ask("reg.write", **WRITE)
        late = type(AGENT)(AGENT.uid, "agent", "new-", lab.clock.wall + 1)
        again = await lab.ask("reg.write", late, **WRITE)
        assert [w.partition(":")[0] for w in again.warnings] == ["replayed_from_earlier"]

    play(life, toy_board(tmp_path, R))


# --- the key is looked up first ---------------------------------------------------------------------------------


async def _hold(lab: Lab) -> None:
    assert (await lab.operator("device.hold", device="toy", reason="work on it")).ok


async def _free(lab: Lab) -> None:
    assert (await lab.operator("device.release", device="toy", reason="done")).ok


async def _stop(lab: Lab) -> None:
    lab.daemon.stopping = True


async def _go_on(lab: Lab) -> None:
    lab.daemon.stopping = False


async def _nothing(lab: Lab) -> None:
    pass


ADMISSION: dict[str, tuple[dict[str, Any], str, Any, Any]] = {
    "generation": ({"generation": 99}, "stale", _nothing, _nothing),
    "contract": ({"contract_digest": "sha256:00"}, "stale", _nothing, _nothing),
    "store": ({"store": {"id": "another", "seq": 1}}, "stale", _nothing, _nothing),
    "late": ({"not_after": 1}, "expired", _nothing, _nothing),
    "held": ({}, "held", _hold, _free),
    "stopping": ({}, "unavailable", _stop, _go_on),
}


@pytest.mark.parametrize(("more", "code", "before", "after"), ADMISSION.values(), ids=list(ADMISSION))
def test_admission_when_refused_then_a_used_key_still_answers_and_a_fresh_one_stays_unused(
    play: Play, tmp_path: Path, more: dict[str, Any], code: str, before: Any, after: Any
) -> None:
    async def life(lab: Lab) -> None:
        used = await lab.ask("reg.write", **WRITE)
        sent = lab.sent()
        await before(lab)
        again = await lab.ask("reg.write", **WRITE, **more)
        assert (again.id, again.replayed, again.verdict) == (used.id, True, "applied")
        fresh = await lab.ask("reg.write", **toy_write("R", 0x66, KEY2), **more)
        assert (code_of(fresh), fresh.effects, fresh.id) == (code, "none", None)
        assert lab.sent() == sent
        await after(lab)
        then = await lab.ask("reg.write", **toy_write("R", 0x66, KEY2))
        assert (then.verdict, then.replayed) == ("applied", False)

    play(life, toy_board(tmp_path, R))


def test_fresh_key_when_the_request_is_wrong_then_its_own_error_and_the_key_works_afterwards(
    play: Play, tmp_path: Path
) -> None:
    async def life(lab: Lab) -> None:
        for params, code in (
            (toy_write("R", 0x100), "invalid_args"),
            (toy_write("NOPE"), "not_found"),
            (toy_write("RO"), "refused"),
        ):
            wrong = await lab.ask("reg.write", **params)
            assert (code_of(wrong), wrong.effects, wrong.key) == (code, "none", KEY)
        assert lab.sent() == []
        assert (await lab.ask("reg.write", **WRITE)).verdict == "applied"

    play(life, toy_board(tmp_path, R, reg("RO", 1, access="ro")))


def test_unknown_user_when_a_key_is_used_then_denied(play: Play, tmp_path: Path) -> None:
    async def life(lab: Lab) -> None:
        assert code_of(await lab.ask("reg.write", GHOST, **WRITE)) == "denied"
        assert lab.sent() == []

    play(life, toy_board(tmp_path, R))


def test_store_when_the_caller_saw_more_than_it_has_then_stale_and_the_device_is_held_for_good(
    play: Play, tmp_path: Path
) -> None:
    board = toy_board(tmp_path, R)

    async def life(lab: Lab) -> None:
        store = {"id": str(lab.daemon.store.store_id), "seq": lab.daemon.store.seq}
        assert (await lab.ask("reg.write", **WRITE, store=store)).ok
        rolled_back = await lab.ask("reg.write", **toy_write("R", 1, KEY2), store={**store, "seq": 10_000})
        assert (code_of(rolled_back), error_of(rolled_back)["what"]) == ("stale", "store")
        assert code_of(await lab.ask("reg.write", **toy_write("R", 1, KEY2))) == "held"
        assert lab.writes("R") == 1

    async def next_life(lab: Lab) -> None:
        held = await lab.ask("reg.write", **toy_write("R", 1, KEY3))
        assert "set back" in error_of(held)["message"]
        assert lab.sent() == []

    play(life, board)
    play(next_life, board)


# --- waiting ----------------------------------------------------------------------------------------------------


def test_deadline_when_it_passes_then_in_progress_and_the_work_goes_on(play: Play, tmp_path: Path) -> None:
    async def life(lab: Lab) -> None:
        early = await lab.ask("reg.write", **WRITE, deadline_ms=0)
        assert (early.status, early.effects, early.retry, early.ok) == (
            "in_progress",
            "unknown",
            "wait_same_key",
            False,
        )
        waited = await lab.ask("op.wait", key=KEY)
        assert (waited.verdict, waited.status) == ("applied", "done")
        assert lab.writes("R") == 1

    play(life, toy_board(tmp_path, R))


def test_op_get_when_the_key_is_at_work_then_in_progress_by_its_row(
    play: Play, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    async def life(lab: Lab) -> None:
        gate = asyncio.Event()

        async def slow(intent: Intent, prepared: Prepared, clock: FakeClock, *more: Any) -> Any:
            await gate.wait()
            return await real_carry_out(intent, prepared, clock, *more)

        monkeypatch.setattr("hwtool.execution.carry_out", slow)
        task = asyncio.create_task(lab.ask("reg.write", **WRITE))
        await until(lambda: lab.daemon.store.seq > 0)
        got = await lab.ask("op.get", key=KEY)
        assert (got.status, got.effects, got.replayed) == ("in_progress", "unknown", False)
        waited = await lab.ask("op.wait", id=got.id, wait_ms=0)
        assert waited.status == "in_progress"
        waiting = asyncio.create_task(lab.ask("op.wait", id=got.id, wait_ms=25_000))
        await asyncio.sleep(0.01)
        gate.set()
        assert (await waiting).verdict == "applied"
        assert (await task).verdict == "applied"

    play(life, toy_board(tmp_path, R))


def test_queue_when_the_device_is_not_free_in_time_then_busy_and_the_key_unused(play: Play, tmp_path: Path) -> None:
    async def life(lab: Lab) -> None:
        async with lab.device().lock:
            busy = await lab.ask("reg.write", **WRITE, queue_ms=0)
        assert (code_of(busy), error_of(busy)["by"], error_of(busy)["retry"]) == ("busy", "device", "same_key")
        assert lab.device().waiting == 0
        assert (await lab.ask("reg.write", **WRITE, queue_ms=1000)).verdict == "applied"

    play(life, toy_board(tmp_path, R))


def test_queue_when_full_then_busy_at_once(play: Play, tmp_path: Path) -> None:
    async def life(lab: Lab) -> None:
        lab.device().waiting = MAX_QUEUE
        busy = await lab.ask("reg.write", **WRITE)
        assert (code_of(busy), error_of(busy)["by"]) == ("busy", "queue")
        lab.device().waiting = 0
        assert (await lab.ask("reg.write", **WRITE)).ok

    play(life, toy_board(tmp_path, R))


def test_queue_when_several_wait_then_first_in_first_out(play: Play, tmp_path: Path) -> None:
    async def life(lab: Lab) -> None:
        await asyncio.gather(*(lab.ask("reg.write", **toy_write("R", n + 1, f"key-000000{n}")) for n in range(5)))
        assert [t["data"] for t in lab.sent() if t["do"] == "write"] == ["01", "02", "03", "04", "05"]

    play(life, toy_board(tmp_path, R))


def test_caller_when_it_leaves_after_the_intent_then_the_operation_goes_on_and_waits_under_its_key(
    play: Play, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    gate = asyncio.Event()

    async def slow(intent: Intent, prepared: Prepared, clock: FakeClock, *more: Any) -> Any:
        await gate.wait()
        return await real_carry_out(intent, prepared, clock, *more)

    monkeypatch.setattr("hwtool.execution.carry_out", slow)

    async def life(lab: Lab) -> None:
        gone = asyncio.create_task(lab.ask("reg.write", **WRITE))
        await until(lambda: lab.daemon.store.seq > 0)
        gone.cancel()
        with pytest.raises(asyncio.CancelledError):
            await gone
        gate.set()
        back = await lab.ask("reg.write", **WRITE)
        assert (back.verdict, back.effects, lab.writes("R")) == ("applied", "applied", 1)

    play(life, toy_board(tmp_path, R))


def test_clean_reads_when_a_watch_is_open_then_they_pass(
    play: Play, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    async def life(lab: Lab) -> None:
        Stubborn(lab, monkeypatch, {"R": 0})
        lab.clock.held = True
        write = asyncio.create_task(lab.ask("reg.write", **WRITE))
        await until(lambda: lab.reads("R") == 2)
        assert raws(await lab.ask("reg.read", registers=["toy.S"])) == ["0x00"]
        assert code_of(await lab.ask("reg.write", **toy_write("S", 1, KEY2), queue_ms=0)) == "busy"
        lab.clock.held = False
        lab.clock.advance(1)
        assert (await write).verdict == "not_applied"

    play(life, toy_board(tmp_path, *PAIR))


# --- preconditions, time, rehearsal -----------------------------------------------------------------------------


def test_expect_when_it_does_not_hold_then_precondition_failed_and_the_key_unused(play: Play, tmp_path: Path) -> None:
    async def life(lab: Lab) -> None:
        failed = await lab.ask("reg.write", **WRITE, expect={"toy.S": 7})
        assert code_of(failed) == "precondition_failed"
        assert (error_of(failed)["expected"], error_of(failed)["observed"]) == ({"S": "0x07"}, {"S": "0x00"})
        assert lab.writes("R") == 0
        lab.chip().values["S"] = 7
        assert (await lab.ask("reg.write", **WRITE, expect={"toy.S": 7})).verdict == "applied"

    play(life, toy_board(tmp_path, *PAIR))


def test_not_after_when_it_passes_in_the_queue_then_expired_and_the_key_unused(play: Play, tmp_path: Path) -> None:
    async def life(lab: Lab) -> None:
        soon = lab.clock.wall // 1_000_000 + 1000
        async with lab.device().lock:
            task = asyncio.create_task(lab.ask("reg.write", **WRITE, not_after=soon))
            await until(lambda: lab.device().waiting > 0)
            lab.clock.advance(2)
        late = await task
        assert (code_of(late), late.effects, error_of(late)["retry"]) == ("expired", "none", "after_fix")
        assert (await lab.rows(), lab.sent()) == ([], [])

    play(life, toy_board(tmp_path, R))


def test_not_after_when_it_passes_before_t1_then_expired_and_no_row(
    play: Play, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    async def life(lab: Lab) -> None:
        async def slow(resolved: Resolved) -> Prepared:
            prepared = await real_prepare(resolved)
            lab.clock.advance(2)
            return prepared

        monkeypatch.setattr("hwtool.execution.prepare", slow)
        late = await lab.ask("reg.write", **WRITE, not_after=lab.clock.wall // 1_000_000 + 1000)
        assert (code_of(late), await lab.rows(), lab.writes("R")) == ("expired", [], 0)

    play(life, toy_board(tmp_path, R))


def test_not_after_when_it_passes_while_t1_is_synced_then_done_not_applied_and_nothing_on_the_bus(
    play: Play, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    async def life(lab: Lab) -> None:
        t1 = operations.t1_intent

        def slow(conn: sqlite3.Connection, new: operations.NewOp, note: dict[str, Any]) -> int:
            lab.clock.advance(2)
            return t1(conn, new, note)

        monkeypatch.setattr("hwtool_store.operations.t1_intent", slow)
        limit = lab.clock.wall // 1_000_000 + 1000
        late = await lab.ask("reg.write", **WRITE, not_after=limit)
        assert (code_of(late), late.effects, late.verdict) == ("expired", "none", "not_applied")
        assert (error_of(late)["retry"], error_of(late)["not_after"]) == ("new_key", limit)
        assert [t["do"] for t in lab.sent()] == ["read"]
        assert (await lab.row()).state == "DONE"
        again = await lab.ask("reg.write", **WRITE)
        assert (code_of(again), again.replayed) == ("expired", True)

    play(life, toy_board(tmp_path, R))


PLANS: list[tuple[str, dict[str, Any], str]] = [
    ("reg.write", {"register": "uart.DLL", "value": 12}, "uart"),
    ("reg.write", {"registers": {"gpio.OLATA": 1, "gpio.OLATB": 2}}, "gpio"),
    ("reg.write", {"register": "gpio.OLATA", "value": 3, "mask": 3}, "gpio"),
    ("reg.update", {"register": "rtc.STATUS", "fields": {"A1F": 0}}, "rtc"),
    ("reg.read_effectful", {"register": "uart.RHR", "count": 2}, "uart"),
    ("reg.read_effectful", {"registers": ["gpio.INTCAPA", "gpio.INTCAPB"]}, "gpio"),
]


@pytest.mark.parametrize(("method", "params", "device"), PLANS, ids=[f"{p[0]} {p[1]}"[:60] for p in PLANS])
def test_plan_when_carried_out_then_exactly_its_transfers_are_sent_and_the_plan_itself_sent_none(
    play: Play, method: str, params: dict[str, Any], device: str
) -> None:
    async def life(lab: Lab) -> None:
        planned = await lab.ask("reg.plan", method=method, params=params)
        assert (planned.ok, planned.dry_run, planned.simulated, planned.key) == (True, True, True, None)
        assert isinstance(planned.transfers, list)
        effectful = [{k: v for k, v in t.items() if k not in ("role", "register")} for t in planned.transfers]
        rehearsed = await lab.ask(method, **params, key=KEY, dry_run=True)
        assert (rehearsed.transfers, rehearsed.key, rehearsed.effects) == (planned.transfers, KEY, "none")
        accesses = [e for e, t in zip(effectful, planned.transfers, strict=True) if t["role"] == "access"]
        assert not [t for t in lab.sent(device) if t in accesses]
        assert await lab.rows() == []
        assert [b["what"] for b in await lab.audit()] == ["rehearsal", "rehearsal"]
        lab.bus(device).log.clear()
        done = await lab.ask(method, **params, key=KEY)
        assert (done.ok, done.dry_run) == (True, False)
        sent = lab.sent(device)
        assert effectful in [sent[i : i + len(effectful)] for i in range(len(sent))]
        assert [sent.count(a) for a in accesses] == [1] * len(accesses)

    play(life)


def test_rehearsal_when_the_request_is_wrong_then_its_error_and_no_row(play: Play, tmp_path: Path) -> None:
    async def life(lab: Lab) -> None:
        wrong = await lab.ask("reg.write", **toy_write("R", 0x100), dry_run=True)
        assert (code_of(wrong), wrong.dry_run, wrong.effects) == ("invalid_args", True, "none")
        refused = await lab.ask("reg.plan", method="reg.write", params={"register": "toy.R", "value": 1, "run": 3})
        assert code_of(refused) == "not_found"  # there is no such run
        failed = await lab.ask("reg.write", **WRITE, expect={"toy.R": 9}, dry_run=True)
        assert code_of(failed) == "precondition_failed"
        approval = await lab.ask("reg.write", **toy_write("A"), dry_run=True)
        assert [w.partition(":")[0] for w in approval.warnings] == ["needs_approval"]
        assert (await lab.rows(), lab.writes("R"), lab.writes("A")) == ([], 0, 0)

    approved = "write = { effect = 'store', approval = 'required' }"
    play(life, toy_board(tmp_path, R, reg("A", 1, approved)))


# --- durability of intent and outcome ---------------------------------------------------------------------------


def test_intent_when_the_bus_sees_the_effect_then_it_is_on_disk_and_the_outcome_before_the_reply(
    play: Play, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    async def life(lab: Lab) -> None:
        await lab.ask("reg.write", **toy_write("R", 1, KEY2))
        seen: list[tuple[int, int]] = []
        perform = lab.bus().perform

        def spy(transfer: Transfer) -> Answer:
            if isinstance(transfer, RegisterWrite):
                seen.append((lab.daemon.store.commits, lab.daemon.store.seq))
                lab.disk_now("at-the-write")
            return perform(transfer)

        monkeypatch.setattr(lab.bus(), "perform", spy)
        commits, seq = lab.daemon.store.commits, lab.daemon.store.seq
        result = await lab.ask("reg.write", **WRITE)
        assert seen == [(commits + 1, seq + 1)]
        assert (lab.daemon.store.commits, lab.daemon.store.seq) == (commits + 2, seq + 2)
        assert (result.store or {})["seq"] == seq + 2
        conn = sqlite3.connect(tmp_path / "at-the-write" / "hwtool.db")
        try:
            assert conn.execute("SELECT state FROM op WHERE key=?", (KEY,)).fetchall() == [("INTENT",)]
        finally:
            conn.close()
        assert (await lab.row()).state == "DONE"

    play(life, toy_board(tmp_path, R))


def _fatal(*_: Any) -> int:
    raise StoreFatal("fdatasync: no space left")


def test_t1_when_the_store_fails_then_store_failed_without_effects_and_nothing_on_the_bus(
    play: Play, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("hwtool_store.operations.t1_intent", _fatal)

    async def life(lab: Lab) -> None:
        failed = await lab.ask("reg.write", **WRITE)
        assert (code_of(failed), failed.effects) == ("store_failed", "none")
        assert lab.writes("R") == 0
        assert lab.daemon.failed is not None
        assert code_of(await lab.ask("op.get", key=KEY)) == "store_failed"

    play(life, toy_board(tmp_path, R))


def test_t2_when_the_store_fails_then_store_failed_with_what_was_observed(
    play: Play, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("hwtool_store.operations.t2_done", _fatal)

    async def life(lab: Lab) -> None:
        failed = await lab.ask("reg.read_effectful", register="uart.RHR", key=KEY)
        assert (code_of(failed), failed.effects, failed.durable, failed.ok) == ("store_failed", "applied", False, False)
        assert raws(failed) == ["0x68"]
        assert lab.device("uart").unknown_op == failed.id

    play(life)


def test_unknown_when_the_store_fails_to_record_it_then_store_failed_and_the_device_held(
    play: Play, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("hwtool_store.operations.to_unknown", _fatal)

    async def life(lab: Lab) -> None:
        lab.fault(FaultKind.REPLY_LOST)
        failed = await lab.ask("reg.write", **WRITE)
        assert (code_of(failed), failed.effects, failed.durable) == ("store_failed", "unknown", False)
        assert lab.device().held() is not None

    play(life, toy_board(tmp_path, R))


def test_intent_when_the_database_keeps_a_rule_then_internal_and_nothing_on_the_bus(
    play: Play, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    def stopped(*_: Any) -> int:
        raise StoreRule("op: device stopped")

    monkeypatch.setattr("hwtool_store.operations.t1_intent", stopped)

    async def life(lab: Lab) -> None:
        refused = await lab.ask("reg.write", **WRITE)
        assert (code_of(refused), refused.effects, lab.writes("R")) == ("internal", "none", 0)

    play(life, toy_board(tmp_path, R))


def test_intent_when_spent_twice_then_stopped_before_the_bus(play: Play, tmp_path: Path) -> None:
    async def life(lab: Lab) -> None:
        intent = Intent(7)
        intent.spend()
        with pytest.raises(SpentIntent, match="operation 7"):
            await dispatch(intent, lab.device(), Plan(()), {}, 0)
        assert lab.sent() == []

    play(life, toy_board(tmp_path, R))


def test_dispatch_when_it_breaks_in_itself_then_unknown_and_held(
    play: Play, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    async def broken(*_: Any) -> Any:
        raise ZeroDivisionError("a defect")

    monkeypatch.setattr("hwtool.execution.carry_out", broken)

    async def life(lab: Lab) -> None:
        lab.chip().values["R"] = 3
        lab.clock.held = True
        defect = await lab.ask("reg.write", **WRITE)
        assert (code_of(defect), defect.effects, (await lab.row()).state) == ("internal", "unknown", "UNKNOWN")
        assert code_of(await lab.ask("reg.write", **toy_write("R", 1, KEY2))) == "held"

    play(life, toy_board(tmp_path, R))


# --- the table of outcomes --------------------------------------------------------------------------------------


class Stubborn:
    """A chip that acknowledges a write and then holds something else."""

    def __init__(self, lab: Lab, monkeypatch: pytest.MonkeyPatch, then: dict[str, int]) -> None:
        chip = lab.chip()
        write = chip.write

        def odd(*args: Any) -> None:
            write(*args)
            chip.values |= then

        monkeypatch.setattr(chip, "write", odd)


def test_outcome_when_it_was_so_already_then_satisfied_without_effects(play: Play, tmp_path: Path) -> None:
    async def life(lab: Lab) -> None:
        lab.chip().values["R"] = 0x55
        result = await lab.ask("reg.write", **WRITE)
        assert (result.verdict, result.effects, result.ok) == ("satisfied", "none", True)
        assert lab.writes("R") == 1
        assert evidence_of(result)["how"] == "read_back"

    play(life, toy_board(tmp_path, R))


def test_outcome_when_nothing_can_be_observed_then_applied_unknown_with_a_warning(play: Play, tmp_path: Path) -> None:
    async def life(lab: Lab) -> None:
        result = await lab.ask("reg.write", **toy_write("W"))
        assert (result.verdict, result.effects, result.ok) == ("applied", "unknown", True)
        assert evidence_of(result)["how"] == "acknowledged"
        assert [w.partition(":")[0] for w in result.warnings] == ["unverified"]
        assert [t["do"] for t in lab.sent()] == ["write"]

    play(life, toy_board(tmp_path, reg("W", 0, access="wo")))


@pytest.mark.parametrize(("sole", "effects"), [(True, "none"), (False, "unknown")])
def test_outcome_when_unchanged_at_the_end_of_the_window_then_not_applied(
    play: Play, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, sole: bool, effects: str
) -> None:
    async def life(lab: Lab) -> None:
        Stubborn(lab, monkeypatch, {"R": 0})
        started = lab.clock.mono
        result = await lab.ask("reg.write", **WRITE)
        assert (code_of(result), result.verdict, result.effects) == ("not_applied", "not_applied", effects)
        assert (error_of(result)["expected"], error_of(result)["observed"]) == ({"R": "0x55"}, {"R": "0x00"})
        assert lab.clock.mono - started == pytest.approx(0.25)
        assert lab.writes("R") == 1

    play(life, toy_board(tmp_path, R, sole_master=sole))


def test_outcome_when_neither_old_nor_wanted_then_not_applied_and_applied_effects(
    play: Play, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    async def life(lab: Lab) -> None:
        Stubborn(lab, monkeypatch, {"R": 0x11})
        result = await lab.ask("reg.write", **WRITE)
        assert (code_of(result), result.verdict, result.effects) == ("not_applied", "not_applied", "applied")
        assert raws(result) == ["0x11"]

    play(life, toy_board(tmp_path, R))


def test_outcome_when_the_change_comes_late_in_the_window_then_applied(
    play: Play, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    async def life(lab: Lab) -> None:
        Stubborn(lab, monkeypatch, {"R": 0})
        sleep = lab.clock.sleep
        pauses: list[float] = []

        async def then(seconds: float) -> None:
            pauses.append(seconds)
            if len(pauses) == 3:
                lab.chip().values["R"] = 0x55
            await sleep(seconds)

        monkeypatch.setattr(lab.clock, "sleep", then)
        assert (await lab.ask("reg.write", **WRITE)).verdict == "applied"
        assert pauses == [0.002, 0.004, 0.008]

    play(life, toy_board(tmp_path, R))


def test_outcome_when_a_declared_signal_moves_then_applied_by_signal(play: Play, tmp_path: Path) -> None:
    async def life(lab: Lab) -> None:
        result = await lab.ask("reg.write", **toy_write("GO", 1))
        assert (result.verdict, result.effects, evidence_of(result)["how"]) == ("applied", "applied", "signal")
        assert (evidence_of(result)["before"], evidence_of(result)["after"]) == ({"N": "0x00"}, {"N": "0x01"})
        assert lab.chip().pulses["GO"] == 1

    go = "write = { effect = 'command', verify = 'signal', signals = [{ register = 'N', delta = 1 }], window_ms = 900 }"
    play(life, toy_board(tmp_path, reg("GO", 0, go, "wo"), reg("N", 1, access="ro")))


WIDE = "[registers.WIDE]\noffset = 0\nspace = 'holding'\nwidth_bits = 32\naccess = 'rw'\n"


def test_outcome_when_stopped_by_proof_after_a_part_then_partial(play: Play, tmp_path: Path) -> None:
    async def life(lab: Lab) -> None:
        planned = await lab.ask("reg.plan", method="reg.write", params={"register": "toy.WIDE", "value": 0x00010002})
        assert [w.partition(":")[0] for w in planned.warnings] == ["may_be_partial"]
        lab.fault(FaultKind.NACK, skip=1)
        result = await lab.ask("reg.write", **toy_write("WIDE", 0x00010002))
        assert (code_of(result), result.verdict, result.effects) == ("not_applied", "partial", "applied")
        assert (error_of(result)["done"], error_of(result)["total"], error_of(result)["retry"]) == (1, 2, "new_key")
        writes = [t for t in lab.sent() if t["do"] == "write"]
        assert [(t["offset"], t["data"], t["function"]) for t in writes] == [("0x00", "0001", 6), ("0x01", "0002", 6)]
        assert lab.chip().values["WIDE"] == 0x00010000
        assert lab.device().held() is None

    play(life, toy_board(tmp_path, WIDE, head=MODBUS))


def test_outcome_when_rejected_with_proof_then_not_applied_and_a_new_key(play: Play, tmp_path: Path) -> None:
    async def life(lab: Lab) -> None:
        lab.fault(FaultKind.NACK)
        result = await lab.ask("reg.write", **WRITE)
        assert (code_of(result), result.verdict, result.effects) == ("bus_fault", "not_applied", "none")
        assert (error_of(result)["retry"], evidence_of(result)["proof"]) == ("new_key", "address-nack")
        assert (lab.writes("R"), lab.device().held()) == (0, None)
        assert (await lab.ask("reg.write", **WRITE)).replayed
        assert (await lab.ask("reg.write", **toy_write("R", 0x55, KEY2))).verdict == "applied"

    play(life, toy_board(tmp_path, R))


@pytest.mark.parametrize(
    ("kind", "executed", "verdict", "effects", "ok"),
    [
        (FaultKind.REPLY_LOST, 1, "applied", "unknown", True),
        (FaultKind.REQUEST_LOST, 0, "not_applied", "none", False),
    ],
)
def test_outcome_when_ambiguous_then_unknown_and_held_until_the_rules_settle_it(
    play: Play, tmp_path: Path, kind: FaultKind, executed: int, verdict: str, effects: str, ok: bool
) -> None:
    async def life(lab: Lab) -> None:
        lab.chip().values["R"] = 3
        lab.clock.held = True
        lab.fault(kind)
        result = await lab.ask("reg.write", **WRITE)
        assert (code_of(result), result.verdict, result.effects) == ("outcome_unknown", None, "unknown")
        assert error_of(result)["settled"] is False
        again = await lab.ask("reg.write", **WRITE)
        assert (code_of(again), again.id, again.replayed) == ("outcome_unknown", result.id, True)
        assert code_of(await lab.ask("reg.write", **toy_write("R", 1, KEY2))) == "held"
        read = await lab.ask("reg.read", registers=["toy.R"])
        assert (code_of(read), error_of(read)["retry_after_ms"]) == ("unavailable", 100)
        lab.clock.advance(0.1)
        await lab.rules_ran()
        settled = await lab.ask("reg.write", **WRITE)
        assert (settled.verdict, settled.effects, settled.ok) == (verdict, effects, ok)
        assert (await lab.row()).verdict_by == "rule"
        assert lab.writes("R") == executed
        assert (await lab.ask("reg.write", **toy_write("R", 1, KEY2))).verdict == "applied"

    play(life, toy_board(tmp_path, R))


def test_outcome_when_the_read_back_fails_then_unknown(play: Play, tmp_path: Path) -> None:
    async def life(lab: Lab) -> None:
        lab.chip().values["R"] = 3
        lab.clock.held = True
        lab.fault(FaultKind.NACK, access="read", skip=1)
        result = await lab.ask("reg.write", **WRITE)
        assert (code_of(result), result.effects, error_of(result)["stage"]) == ("outcome_unknown", "unknown", "watch")
        lab.clock.advance(0.2)
        await lab.rules_ran()
        assert (await lab.ask("op.get", key=KEY)).verdict == "applied"
        assert lab.writes("R") == 1

    play(life, toy_board(tmp_path, R))


def test_effectful_read_when_its_effect_is_named_then_applied(play: Play) -> None:
    async def life(lab: Lab) -> None:
        result = await lab.ask("reg.read_effectful", register="gpio.INTCAPA", key=KEY)
        assert (raws(result), result.effects) == (["0x04"], "applied")
        assert lab.chip("gpio").values["INTFA"] == 0

    play(life)


def test_undeclared_read_when_answered_then_unknown_effects_with_a_warning(play: Play) -> None:
    async def life(lab: Lab) -> None:
        result = await lab.ask("reg.read_effectful", register="uart.LSR", key=KEY)
        assert (result.verdict, result.effects, result.ok) == ("applied", "unknown", True)
        assert [w.partition(":")[0] for w in result.warnings] == ["undeclared"]

    play(life)


def test_undeclared_read_when_ambiguous_then_closed_as_lost_and_not_held(play: Play) -> None:
    async def life(lab: Lab) -> None:
        lab.fault(FaultKind.REPLY_LOST, "uart", access="read", offset=0x28)
        result = await lab.ask("reg.read_effectful", register="uart.LSR", key=KEY)
        assert (code_of(result), result.verdict, result.effects) == ("value_lost", "lost", "unknown")
        assert (error_of(result)["bound"], error_of(result)["retry"]) == ("0..1", "new_key")
        assert lab.device("uart").held() is None
        assert lab.reads("LSR", "uart") == 1
        again = await lab.ask("reg.read_effectful", register="uart.LSR", key=KEY)
        assert (code_of(again), again.replayed, again.verdict) == ("value_lost", True, "lost")

    play(life)


def test_effectful_read_when_the_reply_is_short_then_unknown(
    play: Play, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    async def life(lab: Lab) -> None:
        monkeypatch.setattr(lab.bus(), "perform", lambda _: Confirmed(b""))
        result = await lab.ask("reg.read_effectful", register="toy.C", key=KEY)
        assert (code_of(result), result.effects, error_of(result)["stage"]) == ("outcome_unknown", "unknown", "reply")
        assert lab.device().held() is not None

    play(life, toy_board(tmp_path, reg("C", 0, effect("clear"), "ro")))


def test_group_write_when_one_transfer_then_one_write_of_all_members(play: Play) -> None:
    async def life(lab: Lab) -> None:
        result = await lab.ask("reg.write", registers={"gpio.OLATA": 1, "gpio.OLATB": 2}, key=KEY)
        assert (result.verdict, raws(result)) == ("applied", ["0x01", "0x02"])
        assert [t["data"] for t in lab.sent("gpio") if t["do"] == "write"] == ["0102"]

    play(life)


def test_masked_write_when_bits_have_no_field_then_the_others_keep_their_state(play: Play, tmp_path: Path) -> None:
    async def life(lab: Lab) -> None:
        lab.chip().values["R"] = 0xF0
        result = await lab.ask("reg.write", **toy_write("R", 0x05, mask=0x0F))
        assert (result.verdict, raws(result), lab.chip().values["R"]) == ("applied", ["0xf5"], 0xF5)
        updated = await lab.ask("reg.update", register="toy.F", fields={"A": 1}, key=KEY2)
        assert (updated.verdict, lab.chip().values["F"]) == ("applied", 1)
        too_much = await lab.ask("reg.update", register="toy.L", fields={"A": 3}, key=KEY3)
        assert (code_of(too_much), error_of(too_much)["rule"]) == ("refused", "out_of_limits")
        assert lab.writes("L") == 0

    fields = "\nfields.A = { bits = '1:0' }\nfields.B = { bits = '7:4' }"
    limits = "write = { effect = 'store', limits = { max = 2 } }"
    play(life, toy_board(tmp_path, R, reg("F", 1, fields.strip()), reg("L", 2, limits + fields)))


def test_write_when_it_is_proved_at_another_register_then_that_one_is_read(play: Play) -> None:
    async def life(lab: Lab) -> None:
        result = await lab.ask("reg.write", register="gpio.GPIOA", value=3, key=KEY)
        assert (result.verdict, evidence_of(result)["after"]) == ("applied", {"OLATA": "0x03"})
        assert (lab.reads("GPIOA", "gpio"), lab.chip("gpio").values["GPIOA"]) == (0, 3)

    play(life)


def test_write_when_the_proving_register_is_moved_by_hardware_then_its_bits_are_no_evidence(
    play: Play, tmp_path: Path
) -> None:
    async def life(lab: Lab) -> None:
        result = await lab.ask("reg.write", **toy_write("R", 0x01))
        assert (result.verdict, result.effects) == ("applied", "applied")
        lab.chip().values["P"] = 0x81
        same = await lab.ask("reg.write", **toy_write("R", 0x01, KEY2))
        assert (same.verdict, same.effects) == ("satisfied", "none")
        blind = await lab.ask("reg.write", **toy_write("B", 0x01, KEY3))
        assert (blind.verdict, blind.effects) == ("applied", "unknown")

    def proved_at(name: str) -> str:
        return f"write = {{ effect = 'store', verify = {{ by = 'read_back', register = '{name}' }} }}"

    half = "fields.LIVE = { bits = 7, volatile = true }\nfields.KEPT = { bits = '6:0' }"
    registers = (
        reg("R", 0, proved_at("P")),
        reg("P", 1, half, "ro"),
        reg("B", 2, proved_at("V")),
        reg("V", 3, "volatile = true", "ro"),
    )
    play(life, toy_board(tmp_path, *registers))


@pytest.mark.parametrize(("kind", "then"), [("one_to_set", 0x0F), ("one_to_toggle", 0xFC), ("lock", 0x03)])
def test_write_when_it_sets_toggles_or_locks_then_proved_by_its_bits(
    play: Play, tmp_path: Path, kind: str, then: int
) -> None:
    async def life(lab: Lab) -> None:
        lab.chip().values["R"] = 0x0C if kind == "one_to_set" else 0xFF if kind == "one_to_toggle" else 0
        result = await lab.ask("reg.write", OPERATOR, **toy_write("R", 0x03))
        assert (result.verdict, result.effects, lab.chip().values["R"]) == ("applied", "applied", then)
        assert lab.writes("R") == 1

    play(life, toy_board(tmp_path, reg("R", 0, f"write = {{ effect = '{kind}' }}")))


def test_acknowledging_read_when_what_it_names_cannot_be_read_cleanly_then_a_person(play: Play) -> None:
    async def life(lab: Lab) -> None:
        lab.fault(FaultKind.REPLY_LOST, "uart", access="read", offset=0x58)
        result = await lab.ask("reg.read_effectful", register="uart.IOSTATE", key=KEY)
        assert (code_of(result), result.effects) == ("outcome_unknown", "unknown")
        await lab.rules_ran("uart")
        assert (await lab.row()).request["reads"][0]["kind"] == "consuming"
        conflict = await lab.ask("reg.read_effectful", register="uart.RHR", key=KEY)
        assert (code_of(conflict), conflict.effects) == ("key_conflict", "unknown")
        assert (lab.reads("IIR", "uart"), lab.reads("IOSTATE", "uart")) == (0, 1)

    play(life)


def test_level_when_it_is_a_field_then_only_its_bits_count(play: Play, tmp_path: Path) -> None:
    async def life(lab: Lab) -> None:
        lab.chip().values["ST"] = 0x80
        empty = await lab.ask("reg.read_effectful", register="toy.F", key=KEY)
        assert (code_of(empty), error_of(empty)["observed"]) == ("precondition_failed", {"ST.N": 0})
        lab.chip().push("F", b"a")
        assert raws(await lab.ask("reg.read_effectful", register="toy.F", key=KEY)) == ["0x61"]

    fields = "fields.FULL = { bits = 7 }\nfields.N = { bits = '3:0' }"
    play(life, toy_board(tmp_path, reg("F", 0, effect("pop", ", level = 'ST.N'"), "ro"), reg("ST", 1, fields, "ro")))


# --- holds ------------------------------------------------------------------------------------------------------


def test_hold_when_it_comes_while_requests_wait_then_they_are_answered_held(play: Play, tmp_path: Path) -> None:
    async def life(lab: Lab) -> None:
        await lab.device().lock.acquire()
        waiting = [asyncio.create_task(lab.ask("reg.write", **toy_write("R", n, f"key-000000{n}"))) for n in range(3)]
        await until(lambda: lab.device().waiting >= 3)
        assert (await lab.operator("device.hold", device="toy", reason="stop")).ok
        lab.device().lock.release()
        assert {code_of(await w) for w in waiting} == {"held"}
        assert (await lab.rows(), lab.sent()) == ([], [])  # not even looked at
        assert raws(await lab.ask("reg.read", registers=["toy.R"])) == ["0x00"]

    play(life, toy_board(tmp_path, R))


def test_hold_when_an_outcome_becomes_unknown_then_queued_requests_are_held_too(play: Play, tmp_path: Path) -> None:
    async def life(lab: Lab) -> None:
        lab.chip().values["R"] = 3
        lab.clock.held = True
        lab.fault(FaultKind.REPLY_LOST)
        first, second = await asyncio.gather(
            lab.ask("reg.write", **WRITE), lab.ask("reg.write", **toy_write("R", 0x66, KEY2))
        )
        assert (code_of(first), code_of(second)) == ("outcome_unknown", "held")
        assert (error_of(second)["by_op"], second.id) == (first.id, None)
        assert lab.writes("R") == 1

    play(life, toy_board(tmp_path, R))


def test_hold_when_it_comes_during_the_preparation_then_the_database_stops_the_intent(
    play: Play, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    async def life(lab: Lab) -> None:
        async def slow(resolved: Resolved) -> Prepared:
            prepared = await real_prepare(resolved)
            await lab.operator("device.hold", device="toy", reason="stop")
            return prepared

        monkeypatch.setattr("hwtool.execution.prepare", slow)
        result = await lab.ask("reg.write", **WRITE)
        assert (code_of(result), result.effects, lab.writes("R"), await lab.rows()) == ("held", "none", 0, [])

    play(life, toy_board(tmp_path, R))


def test_hold_of_a_person_when_put_and_released_then_kept_over_a_restart_and_gone_after(
    play: Play, tmp_path: Path
) -> None:
    board = toy_board(tmp_path, R)

    async def first(lab: Lab) -> None:
        await _hold(lab)
        assert (await lab.ask("device.list")).devices[0]["held"] is not None  # type: ignore[index]

    async def second(lab: Lab) -> None:
        held = await lab.ask("reg.write", **WRITE)
        assert (code_of(held), error_of(held)["by_op"]) == ("held", None)
        await _free(lab)
        assert (await lab.ask("reg.write", **WRITE)).ok
        people = [
            (b["what"], b["principal"], b["reason"]) for b in await lab.audit() if b["what"] in ("hold", "release")
        ]
        assert people == [("hold", "uid:0", "work on it"), ("release", "uid:0", "done")]

    play(first, board)
    play(second, board)


def test_release_when_an_outcome_is_unknown_then_refused(play: Play, tmp_path: Path) -> None:
    async def life(lab: Lab) -> None:
        lab.fault(FaultKind.REPLY_LOST)
        unknown = await lab.ask("reg.write", **toy_write("W"))
        await lab.rules_ran()
        refused = await lab.operator("device.release", device="toy", reason="please")
        assert (code_of(refused), error_of(refused)["by_op"]) == ("held", unknown.id)

    play(life, toy_board(tmp_path, reg("W", 0, access="wo")))


SETTLEMENTS = [
    ("applied", True, "applied", None),
    ("satisfied", True, "none", None),
    ("not_applied", False, "none", "not_applied"),
    ("partial", False, "applied", "not_applied"),
    ("superseded", False, "unknown", "outcome_unknown"),
    ("abandoned", False, "unknown", "outcome_unknown"),
]


@pytest.mark.parametrize(("verdict", "ok", "effects", "code"), SETTLEMENTS, ids=[s[0] for s in SETTLEMENTS])
def test_settlement_when_a_person_gives_it_then_the_key_answers_it_and_the_device_is_free(
    play: Play, tmp_path: Path, verdict: str, ok: bool, effects: str, code: str | None
) -> None:
    async def life(lab: Lab) -> None:
        lab.fault(FaultKind.REPLY_LOST)
        unknown = await lab.ask("reg.write", **toy_write("W"))
        await lab.rules_ran()
        assert code_of(await lab.ask("op.settle", id=unknown.id, verdict=verdict, reason="seen")) == "denied"
        assert (await lab.operator("op.settle", id=unknown.id, verdict=verdict, reason="seen it")).ok
        settled = await lab.ask("reg.write", **toy_write("W"))
        assert (settled.ok, settled.effects, settled.verdict, code_of(settled)) == (ok, effects, verdict, code)
        assert "seen it" in settled.summary
        if code is not None:
            assert (error_of(settled)["retry"], error_of(settled).get("settled", True)) == ("new_key", True)
        assert (await lab.row()).verdict_by == "human"
        assert lab.writes("W") == 1
        assert (await lab.ask("reg.write", **toy_write("W", 1, KEY2))).ok
        twice = await lab.operator("op.settle", id=unknown.id, verdict=verdict, reason="again")
        assert (code_of(twice), error_of(twice)["rule"]) == ("refused", "not_unknown")

    play(life, toy_board(tmp_path, reg("W", 0, access="wo")))


# --- banks ------------------------------------------------------------------------------------------------------


def uart_writes(lab: Lab) -> list[tuple[str, str]]:
    return [(t["offset"], t["data"]) for t in lab.sent("uart") if t["do"] == "write"]


def test_bank_when_another_is_selected_then_select_access_restore_in_this_order(play: Play) -> None:
    async def life(lab: Lab) -> None:
        result = await lab.ask("reg.write", register="uart.DLL", value=12, key=KEY)
        assert result.verdict == "applied"
        effectful = ("0x18", "83"), ("0x18", "80"), ("0x00", "0c"), ("0x18", "03")
        assert uart_writes(lab)[2:5] == [*effectful[1:]]
        assert (lab.chip("uart").values["LCR"], lab.chip("uart").values["DLL"]) == (0x03, 12)
        assert lab.writes("DLL", "uart") == 1

    play(life)


def test_bank_when_its_selector_is_not_confirmed_then_no_effect_and_the_bank_is_read_again(play: Play) -> None:
    async def life(lab: Lab) -> None:
        lab.fault(FaultKind.NACK, "uart", offset=0x18, skip=2)  # the pre-read selects and restores first
        result = await lab.ask("reg.write", register="uart.DLL", value=12, key=KEY)
        assert (code_of(result), result.effects, result.verdict) == ("bus_fault", "none", "not_applied")
        assert error_of(result)["stage"] == "select"
        assert lab.writes("DLL", "uart") == 0
        assert lab.chip("uart").values["LCR"] == 0x03
        assert (await lab.ask("reg.write", register="uart.DLL", value=12, key=KEY2)).verdict == "applied"

    play(life)


def test_bank_when_it_cannot_be_restored_then_a_warning_and_the_bank_in_doubt(play: Play) -> None:
    async def life(lab: Lab) -> None:
        lab.fault(FaultKind.NACK, "uart", offset=0x18, skip=3)
        result = await lab.ask("reg.write", register="uart.DLL", value=12, key=KEY)
        assert (result.verdict, result.ok) == ("applied", True)
        assert [w.partition(":")[0] for w in result.warnings] == ["bank_in_doubt"]
        # the read-back finds the selector where the dispatch left it, sets it back, and goes its own way
        steps = [(t["do"], t["offset"], t.get("data")) for t in lab.sent("uart")]
        assert steps[-7:] == [
            ("write", "0x00", "0c"),
            ("write", "0x18", "03"),
            ("read", "0x18", None),
            ("write", "0x18", "03"),
            ("write", "0x18", "80"),
            ("read", "0x00", None),
            ("write", "0x18", "03"),
        ]
        assert (lab.chip("uart").values["DLL"], lab.chip("uart").values["LCR"]) == (12, 0x03)

    play(life)


def test_bank_when_the_access_is_ambiguous_then_unknown_and_the_bank_forgotten(play: Play) -> None:
    async def life(lab: Lab) -> None:
        lab.fault(FaultKind.REPLY_LOST, "uart", offset=0x00)
        result = await lab.ask("reg.write", register="uart.DLL", value=12, key=KEY)
        assert (code_of(result), lab.chip("uart").values["LCR"]) == ("outcome_unknown", 0x80)
        assert [w.partition(":")[0] for w in result.warnings] == ["bank_in_doubt"]
        await lab.rules_ran("uart")
        assert lab.chip("uart").values["LCR"] == 0x80
        got = await lab.ask("op.get", key=KEY, verify=True)
        # the bank still stands where the dispatch left it, so its observable may be read as it is
        assert (got.verdict, got.effects) == ("applied", "unknown")
        # the selector goes home before the next access to a bank
        assert (await lab.ask("reg.read", registers=["uart.SPR"])).ok
        assert lab.chip("uart").values["LCR"] == 0x03

    play(life)


def test_bank_when_left_and_somebody_else_has_moved_it_then_that_is_its_home(play: Play) -> None:
    async def life(lab: Lab) -> None:
        lab.fault(FaultKind.REPLY_LOST, "uart", offset=0x00)
        await lab.ask("reg.write", register="uart.DLL", value=12, key=KEY)
        await lab.rules_ran("uart")
        lab.chip("uart").values["LCR"] = 0x1F
        assert (await lab.ask("reg.read", registers=["uart.DLL"])).ok
        assert (lab.chip("uart").values["LCR"], lab.device("uart").home) == (0x1F, {"LCR": 0x1F})

    play(life)


def test_selector_when_left_in_a_bank_then_an_access_to_itself_starts_from_its_home(play: Play) -> None:
    async def life(lab: Lab) -> None:
        assert (await lab.ask("reg.write", register="uart.LCR", value=0x1B, key=KEY)).verdict == "applied"
        lab.fault(FaultKind.REPLY_LOST, "uart", access="read", offset=0x00)
        assert code_of(await lab.ask("reg.read", registers=["uart.DLL"])) == "timeout"
        assert lab.chip("uart").values["LCR"] == 0x80  # the bank's whole byte
        await lab.rules_ran("uart")
        assert raws(await lab.ask("reg.read", registers=["uart.LCR"])) == ["0x1b"]
        changed = await lab.ask("reg.update", register="uart.LCR", fields={"STOP_BITS": 1}, key=KEY2)
        assert (changed.verdict, lab.chip("uart").values["LCR"]) == ("applied", 0x1F)

    play(life)


def test_selector_when_written_to_what_a_bank_would_set_then_that_is_its_home_and_stays(play: Play) -> None:
    async def life(lab: Lab) -> None:
        assert (await lab.ask("reg.read", registers=["uart.DLL"])).ok
        written, _ = await asyncio.gather(
            lab.ask("reg.write", register="uart.LCR", value=0x80, key=KEY), lab.ask("reg.read", registers=["uart.DLL"])
        )
        assert written.verdict == "applied"
        assert (await lab.ask("reg.read", registers=["uart.SPR"])).ok
        assert lab.chip("uart").values["LCR"] == 0x80

    play(life)


def test_selector_when_the_daemon_ends_inside_a_bank_then_the_next_one_sets_it_home(
    play: Play, kept_buses: dict[str, SimBus]
) -> None:
    async def first(lab: Lab) -> None:
        assert (await lab.ask("reg.read", registers=["uart.SPR"])).ok  # its home is known
        lab.fault(FaultKind.REPLY_LOST, "uart", access="read", offset=0x00)
        await lab.ask("reg.read", registers=["uart.DLL"])
        assert lab.chip("uart").values["LCR"] == 0x80

    async def second(lab: Lab) -> None:
        assert lab.device("uart").home == {"LCR": 0x03}
        assert (await lab.ask("reg.read", registers=["uart.DLL"])).ok
        assert lab.chip("uart").values["LCR"] == 0x03

    play(first)
    play(second)


def test_done_key_when_asked_with_no_time_at_all_then_its_outcome_is_answered(play: Play, tmp_path: Path) -> None:
    async def life(lab: Lab) -> None:
        await lab.ask("reg.write", **WRITE)
        for _ in range(20):
            again = await lab.ask("reg.write", **WRITE, deadline_ms=0)
            assert (again.status, again.replayed) == ("done", True)

    play(life, toy_board(tmp_path, R))


def test_bank_when_the_access_is_rejected_then_its_selector_is_set_back_at_once(play: Play) -> None:
    async def life(lab: Lab) -> None:
        assert (await lab.ask("reg.read", registers=["uart.DLL"])).ok
        lab.fault(FaultKind.NACK, "uart", offset=0x00)
        result = await lab.ask("reg.write", register="uart.DLL", value=12, key=KEY)
        assert (code_of(result), result.effects, lab.chip("uart").values["LCR"]) == ("bus_fault", "none", 0x03)
        lab.fault(FaultKind.NACK, "uart", access="read", offset=0x00)
        assert code_of(await lab.ask("reg.read", registers=["uart.DLL"])) == "bus_fault"
        assert lab.chip("uart").values["LCR"] == 0x03

    play(life)


def test_bank_when_the_device_restarts_between_clean_reads_then_nothing_old_is_set_back(play: Play) -> None:
    async def life(lab: Lab) -> None:
        assert (await lab.ask("reg.read", registers=["uart.DLL"])).ok
        lab.chip("uart").reset()
        lab.chip("uart").values["LCR"] = 0x07
        assert (await lab.ask("reg.read", registers=["uart.DLL"])).ok
        assert lab.chip("uart").values["LCR"] == 0x07

    play(life)


def test_bank_when_it_changes_between_plan_and_dispatch_then_nothing_is_sent(
    play: Play, monkeypatch: pytest.MonkeyPatch
) -> None:
    async def life(lab: Lab) -> None:
        async def meddled(resolved: Resolved) -> Prepared:
            prepared = await real_prepare(resolved)
            resolved.device.known["LCR"] = 0x1F
            lab.bus("uart").log.clear()
            return prepared

        monkeypatch.setattr("hwtool.execution.prepare", meddled)
        result = await lab.ask("reg.write", register="uart.DLL", value=12, key=KEY)
        assert (code_of(result), result.effects, lab.sent("uart")) == ("bus_fault", "none", [])

    play(life)


def test_bank_when_the_selector_itself_is_written_then_it_is_read_again(play: Play) -> None:
    async def life(lab: Lab) -> None:
        await lab.ask("reg.read_effectful", register="uart.RHR", key=KEY)
        await lab.ask("reg.write", register="uart.LCR", value=0x07, key=KEY2)
        assert (await lab.ask("reg.write", register="uart.DLL", value=1, key=KEY3)).ok
        assert lab.chip("uart").values["LCR"] == 0x07

    play(life)


def test_bank_when_the_device_restarted_then_its_selectors_are_read_again(play: Play) -> None:
    async def life(lab: Lab) -> None:
        assert (await lab.ask("reg.write", register="uart.DLL", value=1, key=KEY)).ok
        lab.chip("uart").reset()
        lab.chip("uart").values["LCR"] = 0x07
        assert (await lab.ask("reg.write", register="uart.DLL", value=2, key=KEY2)).generation == 2
        assert lab.chip("uart").values["LCR"] == 0x07

    play(life)


# --- gates, assumptions, identity, levels -----------------------------------------------------------------------


def test_gate_when_closed_then_refused_and_open_then_carried_out(play: Play, tmp_path: Path) -> None:
    async def life(lab: Lab) -> None:
        shut = await lab.ask("reg.write", **toy_write("R"))
        assert (code_of(shut), error_of(shut)["rule"], lab.writes("R")) == ("refused", "gate_closed", 0)
        shut_read = await lab.ask("reg.read_effectful", register="toy.C", key=KEY2)
        assert (error_of(shut_read)["rule"], lab.reads("C")) == ("gate_closed", 0)
        lab.chip().values |= {"EN": 1, "C": 9}
        assert (await lab.ask("reg.write", **toy_write("R"))).verdict == "applied"
        assert raws(await lab.ask("reg.read_effectful", register="toy.C", key=KEY2)) == ["0x09"]

    gated = "write = { effect = 'store', gate = 'EN' }"
    read = effect("clear", ", gate = 'EN'")
    play(life, toy_board(tmp_path, reg("EN", 9), reg("R", 0, gated), reg("C", 1, read, "ro")))


def test_assumption_when_broken_then_refused_and_when_it_holds_then_read_once_a_generation(play: Play) -> None:
    async def life(lab: Lab) -> None:
        chip = lab.chip("temp")
        chip.values["CONFIGURATION"] |= 0x0200
        for result in (
            await lab.ask("reg.write", register="temp.TLOW", value=0x1000, key=KEY),
            await lab.ask("reg.read", registers=["temp.TEMPERATURE"]),
        ):
            assert (code_of(result), error_of(result)["rule"], error_of(result)["field"]) == (
                "refused",
                "assumption_broken",
                "TM",
            )
        assert (lab.writes("TLOW", "temp"), lab.reads("TEMPERATURE", "temp")) == (0, 0)
        chip.values["CONFIGURATION"] &= ~0x0200
        assert (await lab.ask("reg.write", register="temp.TLOW", value=0x1000, key=KEY)).ok
        looked = lab.reads("CONFIGURATION", "temp")
        assert (await lab.ask("reg.write", register="temp.TLOW", value=0x2000, key=KEY2)).ok
        assert lab.reads("CONFIGURATION", "temp") == looked
        chip.nonce = "restarted"
        assert (await lab.ask("reg.write", register="temp.TLOW", value=0x3000, key=KEY3)).generation == 2
        assert lab.reads("CONFIGURATION", "temp") == looked + 2

    play(life)


def test_identity_when_another_device_answers_then_stale_before_the_first_effect_and_checked_once(
    play: Play, tmp_path: Path
) -> None:
    async def life(lab: Lab) -> None:
        lab.chip().values["ID"] = 7
        wrong = await lab.ask("reg.write", **WRITE)
        assert (code_of(wrong), error_of(wrong)["what"], error_of(wrong)["found"]) == ("stale", "identity", "0x7")
        assert (lab.writes("R"), lab.reads("ID")) == (0, 1)
        assert raws(await lab.ask("reg.read", registers=["toy.R"])) == ["0x00"]
        lab.chip().values["ID"] = 0x21
        assert (await lab.ask("reg.write", **WRITE)).verdict == "applied"
        assert (await lab.ask("reg.write", **toy_write("R", 1, KEY2))).verdict == "applied"
        assert lab.reads("ID") == 2

    identity = "[identity]\nregister = 'ID'\n"
    play(life, toy_board(tmp_path, identity, R, reg("ID", 1, access="ro"), device="identity = '0x21'"))


def test_identity_when_the_boards_word_is_no_number_then_it_is_not_compared(play: Play, tmp_path: Path) -> None:
    async def life(lab: Lab) -> None:
        assert (await lab.ask("reg.write", **WRITE)).ok
        assert lab.reads("ID") == 1

    identity = "[identity]\nregister = 'ID'\n"
    play(life, toy_board(tmp_path, identity, R, reg("ID", 1, access="ro"), device="identity = 'SDM-77'"))


def test_fifo_when_it_holds_less_than_asked_for_then_precondition_failed_and_the_key_unused(play: Play) -> None:
    async def life(lab: Lab) -> None:
        empty = await lab.ask("reg.read_effectful", register="uart.RHR", key=KEY, count=6)
        assert (code_of(empty), error_of(empty)["observed"]) == ("precondition_failed", {"RXLVL": 5})
        assert lab.reads("RHR", "uart") == 0
        lab.chip("uart").push("RHR", b"!")
        assert len(raws(await lab.ask("reg.read_effectful", register="uart.RHR", key=KEY, count=6))) == 6

    play(life)


def test_preparation_when_the_bus_does_not_answer_then_its_error_without_effects_and_the_key_unused(
    play: Play, tmp_path: Path
) -> None:
    async def life(lab: Lab) -> None:
        lab.fault(FaultKind.NACK, access="read")
        nack = await lab.ask("reg.write", **WRITE)
        assert (code_of(nack), nack.effects, error_of(nack)["retry"]) == ("bus_fault", "none", "same_key")
        lab.fault(FaultKind.REPLY_LOST, access="read")
        lab.clock.held = True
        lost = await lab.ask("reg.write", **WRITE)
        assert (code_of(lost), lost.effects, error_of(lost)["retry"]) == ("timeout", "none", "same_key")
        shut = await lab.ask("reg.write", **WRITE)
        assert (code_of(shut), error_of(shut)["retry_after_ms"]) == ("unavailable", 100)
        lab.clock.advance(0.1)
        await lab.rules_ran()
        assert (await lab.rows(), lab.writes("R")) == ([], 0)
        assert (await lab.ask("reg.write", **WRITE)).verdict == "applied"

    play(life, toy_board(tmp_path, R))


def test_dispatch_when_the_bus_was_shut_meanwhile_then_proof_that_nothing_was_sent(
    play: Play, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    async def life(lab: Lab) -> None:
        async def shut(resolved: Resolved) -> Prepared:
            prepared = await real_prepare(resolved)
            lab.clock.held = True
            lab.device().worker.quarantine()
            return prepared

        monkeypatch.setattr("hwtool.execution.prepare", shut)
        result = await lab.ask("reg.write", **WRITE)
        assert (code_of(result), result.verdict, result.effects) == ("bus_fault", "not_applied", "none")
        assert evidence_of(result)["proof"] == "not-sent"
        assert lab.writes("R") == 0

    play(life, toy_board(tmp_path, R))


def test_device_when_it_restarted_then_a_new_generation_and_an_old_one_is_stale(play: Play, tmp_path: Path) -> None:
    async def life(lab: Lab) -> None:
        assert (await lab.ask("reg.write", **WRITE, generation=1)).generation == 1
        lab.chip().reset()
        second = await lab.ask("reg.write", **toy_write("R", 1, KEY2))
        assert second.generation == 2
        stale = await lab.ask("reg.write", **toy_write("R", 1, KEY3), generation=1)
        assert (code_of(stale), error_of(stale)["expected"], error_of(stale)["found"]) == ("stale", 1, 2)
        assert [b["generation"] for b in await lab.audit() if b["what"] == "generation"] == [2]

    play(life, toy_board(tmp_path, R))


def test_clean_reads_when_a_write_waits_then_they_pass(play: Play, tmp_path: Path) -> None:
    async def life(lab: Lab) -> None:
        async with lab.device().lock:
            read = await lab.ask("reg.read", registers=["toy.R", "toy.S"])
            assert raws(read) == ["0x00", "0x00"]
            assert evidence_of(read)["transfers"] == 1

    play(life, toy_board(tmp_path, *PAIR))


def test_result_when_an_effectful_read_names_several_then_values_in_order(play: Play) -> None:
    async def life(lab: Lab) -> None:
        result = await lab.ask("reg.read_effectful", registers=["gpio.INTCAPB", "gpio.INTCAPA"], key=KEY)
        assert [v["register"] for v in result.values or []] == ["gpio.INTCAPB", "gpio.INTCAPA"]
        bus = lab.bus("gpio")
        assert isinstance(bus, SimBus)
        assert [t.offset for t in bus.log if isinstance(t, RegisterRead)][-2:] == [0x11, 0x10]

    play(life)


def test_refusal_when_the_engine_is_asked_for_a_request_without_resolution_then_internal(
    play: Play, tmp_path: Path
) -> None:
    async def life(lab: Lab) -> None:
        from hwtool.admission import Request, understood
        from hwtool_contracts.messages import WriteParams

        params = WriteParams(register="toy.R", value=1, key=KEY)
        with pytest.raises(DomainError) as raised:
            understood(Request(AGENT, params, None, None, None, b"", None, (), 0, lab.daemon.board))
        assert raised.value.code is Code.INTERNAL
        assert isinstance(await lab.ask("describe"), Result)

    play(life, toy_board(tmp_path, R))


def test_invalid_request_when_sent_twice_at_once_then_each_is_told_what_is_wrong_and_the_key_is_unused(
    play: Play,
) -> None:
    async def life(lab: Lab) -> None:
        wrong = {"register": "gpio.NONE", "value": 1, "key": KEY}
        results = await asyncio.gather(lab.ask("reg.write", **wrong), lab.ask("reg.write", **wrong))
        assert [(code_of(r), r.effects) for r in results] == [("not_found", "none")] * 2
        assert (await lab.ask("reg.write", register="gpio.OLATA", value=1, key=KEY)).verdict == "applied"

    play(life)
