"""`op.get` with the request: what its key answers to it, from the record alone; nothing is begun by asking."""

from __future__ import annotations

import asyncio
from pathlib import Path
from typing import Any

import pytest

from hwtool.carry_out import carry_out as real_carry_out
from hwtool.dispatch import Intent
from hwtool.prepare import Prepared
from hwtool_contracts.messages import Result
from hwtool_sim.faults import FaultKind
from hwtool_store import operations
from tests.hwtool.conftest import (
    KEY,
    OTHER,
    FakeClock,
    Lab,
    Play,
    code_of,
    error_of,
    reg,
    toy_board,
    until,
)
from tests.hwtool.test_approvals import approved

R = reg("R", 0)
NEEDS = reg("NEEDS", 1, "write = { effect = 'store', approval = 'required', provenance = 'generated' }")
WRITE: dict[str, Any] = {"register": "toy.R", "value": 0x40}


def asked(lab: Lab, params: dict[str, Any] = WRITE, method: str = "reg.write", **more: Any) -> Any:
    return lab.ask("op.get", key=KEY, request={"method": method, "params": params}, **more)


def seen(result: Result) -> tuple[Any, ...]:
    return result.status, code_of(result), result.effects, result.replayed


def test_recorded_when_nothing_was_sent_then_not_found_and_nothing_is_begun(play: Play, tmp_path: Path) -> None:
    async def life(lab: Lab) -> None:
        fresh = await asked(lab)
        assert seen(fresh) == ("failed", "not_found", "none", False)
        assert "may be made again" in error_of(fresh)["hint"]
        assert (await lab.rows(), lab.sent()) == ([], [])
        assert (await lab.ask("reg.write", **WRITE, key=KEY)).verdict == "applied"

    play(life, toy_board(tmp_path, R))


def test_recorded_when_it_was_done_then_its_outcome_and_for_another_request_a_conflict(
    play: Play, tmp_path: Path
) -> None:
    async def life(lab: Lab) -> None:
        await lab.ask("reg.write", **WRITE, key=KEY)
        again = await asked(lab)
        assert (seen(again), again.verdict) == (("done", None, "applied", True), "applied")
        other = await asked(lab, {"register": "toy.R", "value": 0x41})
        assert (code_of(other), error_of(other)["differs"]) == ("key_conflict", ["targets[0].value"])
        nonsense = await asked(lab, {"register": "toy.NOPE", "value": 1})
        assert code_of(nonsense) == "key_conflict"
        broken = await asked(lab, method="reg.update", params={"register": "toy.R", "fields": {}})
        assert (code_of(broken), error_of(broken)["path"]) == ("invalid_args", "$.request.params.fields")
        theirs = await lab.ask("op.get", OTHER, key=KEY, request={"method": "reg.write", "params": WRITE})
        assert code_of(theirs) == "not_found"
        assert lab.writes("R") == 1

    play(life, toy_board(tmp_path, R))


def test_recorded_when_it_is_at_work_then_in_progress_and_for_another_request_a_conflict(
    play: Play, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    gate = asyncio.Event()

    async def slow(intent: Intent, prepared: Prepared, clock: FakeClock, *more: Any) -> Any:
        await gate.wait()
        return await real_carry_out(intent, prepared, clock, *more)

    monkeypatch.setattr("hwtool.execution.carry_out", slow)

    async def life(lab: Lab) -> None:
        async with lab.device().lock:
            queued = asyncio.create_task(lab.ask("reg.write", **WRITE, key=KEY))
            await until(lambda: lab.device().waiting > 0)
            assert seen(await asked(lab)) == ("in_progress", None, "unknown", False)  # it has no row yet
            assert code_of(await asked(lab, {"register": "toy.R", "value": 1})) == "key_conflict"
        await until(lambda: lab.daemon.store.seq > 0)
        under_way = await asked(lab)
        assert (seen(under_way), under_way.id) == (("in_progress", None, "unknown", False), 1)
        assert code_of(await asked(lab, {"register": "toy.R", "value": 1})) == "key_conflict"
        gate.set()
        assert (await queued).verdict == "applied"
        assert seen(await asked(lab)) == ("done", None, "applied", True)

    play(life, toy_board(tmp_path, R))


def test_recorded_when_it_waits_for_a_person_then_pending_and_a_grant_is_not_used_by_asking(
    play: Play, tmp_path: Path
) -> None:
    write = {"register": "toy.NEEDS", "value": 3}

    async def life(lab: Lab) -> None:
        waiting = await lab.ask("reg.write", **write, key=KEY)
        assert waiting.status == "pending_approval"
        assert seen(await asked(lab, write)) == ("pending_approval", None, "none", False)
        assert code_of(await asked(lab, {"register": "toy.NEEDS", "value": 4})) == "key_conflict"
        await approved(lab, waiting.id)
        assert seen(await asked(lab, write)) == ("pending_approval", None, "none", False)
        assert lab.writes("NEEDS") == 0
        assert (await lab.ask("reg.write", **write, key=KEY)).verdict == "applied"

    play(life, toy_board(tmp_path, R, NEEDS, mode="separate-user"))


def test_recorded_when_the_outcome_is_unknown_then_that_and_the_device_is_not_looked_at(
    play: Play, tmp_path: Path
) -> None:
    async def life(lab: Lab) -> None:
        lab.fault(FaultKind.REPLY_LOST)
        lab.daemon.devices["toy"].worker.after_quarantine = lambda: None
        await lab.ask("reg.write", **WRITE, key=KEY)
        before = len(lab.sent())
        assert seen(await asked(lab)) == ("failed", "outcome_unknown", "unknown", True)
        assert len(lab.sent()) == before
        row = await lab.row()
        await lab.operator("op.settle", id=row.op_id, verdict="applied", reason="seen")

    play(life, toy_board(tmp_path, R))


def test_recorded_when_the_row_was_pruned_then_key_expired(play: Play, tmp_path: Path) -> None:
    async def life(lab: Lab) -> None:
        await lab.ask("reg.write", **WRITE, key=KEY)
        await lab.daemon.ask(lambda conn: operations.prune(conn, 0, 1))
        assert code_of(await asked(lab)) == "key_expired"

    play(life, toy_board(tmp_path, R))
