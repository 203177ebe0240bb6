"""Runs: what a caller does under one name, with a status that is computed and never claimed.

    running ─run.finish→ succeeded | failed

Rules
- `succeeded` only if no error in it was left unhandled, no operation is open or unknown, and every verification held.
- Every failed result inside a run gets a row, whose number stands in the error. It is handled when its operation, if it
  has one, is DONE and the caller said `run.acknowledge`; an unknown outcome by its settlement alone. What may be tried
  again under the same key (busy, unavailable …) halts nothing, and is handled by the success of that key too; after a
  restart of the daemon it has to be acknowledged.
- After a failed or unknown step later effectful steps of the run are refused (`run_halted`), until it is handled.
- A finished run takes nothing more; what failed it is kept.
"""

from __future__ import annotations

import contextlib
from dataclasses import dataclass
from functools import partial
from typing import Any, Final

from hwtool.clock import rfc3339
from hwtool.journal import clean_text
from hwtool.policy import Caller
from hwtool.results import OK_VERDICTS
from hwtool.state import Daemon
from hwtool_contracts.errors import CATALOGUE, Code, DomainError, ErrorClass
from hwtool_contracts.messages import Result
from hwtool_store import runs
from hwtool_store.faults import StoreRule
from hwtool_store.runs import Run, RunError, RunOp

NOT_AN_ERROR_OF_IT: Final = frozenset({Code.RUN_HALTED})  # it repeats what halted it


@dataclass(frozen=True, slots=True)
class Cause:
    """Something that keeps a run from having succeeded.

    Attributes:
        halts: later effectful steps are refused because of it.
        acknowledgeable: `run.acknowledge` would handle it.
    """

    why: str
    op_id: int | None
    error_id: int | None
    halts: bool
    acknowledgeable: bool


def causes(run: Run) -> list[Cause]:
    """Everything unhandled, in the order in which it came about."""
    found: list[tuple[int, Cause]] = []
    operations = {o.op_id: o for o in run.operations}
    told = {e.op_id: e for e in run.errors if e.op_id is not None}
    for op in run.operations:
        cause = _of_operation(op, told.get(op.op_id))
        if cause is not None:
            found.append((op.at_ns, cause))
    for error in run.errors:
        if error.op_id in operations or error.handled_how is not None:
            continue  # told by its operation
        retryable = CATALOGUE[Code(error.code)].error_class is ErrorClass.RETRYABLE
        why = f"{error.code} (error {error.error_id})"
        found.append((error.at_ns, Cause(why, None, error.error_id, not retryable, True)))
    return [cause for _, cause in sorted(found, key=lambda told: told[0])]


def _of_operation(op: RunOp, error: RunError | None) -> Cause | None:
    error_id = None if error is None else error.error_id
    match op.state:
        case "UNKNOWN":
            return Cause(f"operation {op.op_id} is unknown", op.op_id, error_id, True, False)
        case "INTENT" | "PENDING":
            how = "is under way" if op.state == "INTENT" else "waits for approval"
            return Cause(f"operation {op.op_id} {how}", op.op_id, error_id, False, False)
        case _:
            pass
    settled_well = op.verdict_by in ("rule", "human") and op.verdict in OK_VERDICTS
    if (op.ok and op.verdict in OK_VERDICTS) or settled_well or (error is not None and error.handled_how is not None):
        return None
    return Cause(f"operation {op.op_id} ended as {op.verdict}", op.op_id, error_id, True, error is not None)


class Runs:
    """The methods about runs, and what a run says of a request."""

    def __init__(self, daemon: Daemon) -> None:
        self._daemon = daemon

    async def start(self, caller: Caller, name: str) -> Result:
        """A new run of this caller."""
        daemon, now_ns = self._daemon, self._daemon.clock.wall_ns()
        named = clean_text(name)
        body = daemon.body("run_started", caller, None, name=named)
        run_id = await daemon.ask(partial(runs.start, principal=caller.principal, name=named, now_ns=now_ns, note=body))
        return await self._told(caller, run_id, f"run {run_id} ({named}) has begun")

    async def finish(self, caller: Caller, run_id: int) -> Result:
        """End a run; its status is what its operations and errors say.

        Raises:
            DomainError: not_found, denied, refused (it was finished), or busy: an operation of it is under way.
        """
        daemon = self._daemon
        run = await self._mine(caller, run_id)
        _check_open(run)
        open_causes = causes(run)
        working = [o for o in run.operations if o.state == "INTENT"]
        if working:
            message = f"operation {working[0].op_id} of run {run_id} is under way: ask again when it has ended"
            raise DomainError(Code.BUSY, message, by="device", holder=None, retry_after_ms=500)
        failed_by = open_causes[0].why if open_causes else None
        body = daemon.body("run_finished", caller, None, run=run_id, failed_by=failed_by)
        now_ns = daemon.clock.wall_ns()
        try:
            await daemon.ask(partial(runs.finish, run_id=run_id, failed_by=failed_by, now_ns=now_ns, note=body))
        except StoreRule:
            _check_open(await self._mine(caller, run_id))
            raise
        for place in [p for p in daemon.may_come_again if p[1] == run_id]:
            del daemon.may_come_again[place]
        return await self._told(caller, run_id)

    async def acknowledge(self, caller: Caller, run_id: int, error_id: int, how: str) -> Result:
        """An error has been handled, and how.

        Raises:
            DomainError: not_found, denied, or refused: its operation is not DONE, or the run is finished.
        """
        daemon = self._daemon
        run = await self._mine(caller, run_id)
        _check_open(run)
        error = next((e for e in run.errors if e.error_id == error_id), None)
        if error is None:
            known = [str(e.error_id) for e in run.errors if e.handled_how is None]
            message = f"run {run_id} has no error {error_id}"
            raise DomainError(Code.NOT_FOUND, message, searched=str(error_id), suggestions=known)
        op = next((o for o in run.operations if o.op_id == error.op_id), None)
        if op is not None and op.state != "DONE":
            message = f"error {error_id} is of operation {op.op_id}, {op.state}: its settlement alone handles it"
            hint = f"an operator settles it: hwtool settle {op.op_id}; see hwtool op {op.op_id}"
            raise DomainError(Code.REFUSED, message, hint=hint, rule="run_error_open", register=None, field=None)
        body = daemon.body("run_acknowledged", caller, None, run=run_id, error_id=error_id, summary=how)
        now_ns = daemon.clock.wall_ns()
        try:
            await daemon.ask(
                partial(runs.handle, run_id=run_id, error_id=error_id, how=clean_text(how), now_ns=now_ns, note=body)
            )
        except StoreRule as refused:
            message = f"error {error_id} of run {run_id} was handled"
            raise DomainError(
                Code.REFUSED, message, hint="nothing is left to do", rule="run_error_handled", register=None, field=None
            ) from refused
        return await self._told(caller, run_id)

    async def check(self, caller: Caller, run_id: int | None, *, effectful: bool, begins: bool = False) -> None:
        """Whether a request may be part of a run; `begins`: it is at the head of its queue, and goes on.

        Raises:
            DomainError: not_found, denied, refused (it was finished), or run_halted.
        """
        if run_id is None:
            return
        run = await self._mine(caller, run_id)
        _check_open(run)
        left = causes(run)
        halting = next((c for c in left if c.halts), None) if effectful else None
        if begins and halting is None and any(c.acknowledgeable for c in left):
            self._daemon.steps_after_error += 1
        if halting is not None:
            raise DomainError(
                Code.RUN_HALTED,
                f"run {run_id} ({run.row.name}) was halted: {halting.why}",
                hint=_cure(run_id, halting),
                run=run_id,
                by_op=halting.op_id,
            )

    async def noted(self, caller: Caller, run_id: int | None, result: Result) -> Result:
        """Record what a request of a run came to; a failure's number is put into its error."""
        if run_id is None or result.dry_run:
            return result
        daemon, now_ns = self._daemon, self._daemon.clock.wall_ns()
        if result.ok and result.key is not None:
            for error_id in daemon.may_come_again.pop((caller.principal, run_id, result.key), []):
                done = partial(runs.handle, run_id=run_id, error_id=error_id, now_ns=now_ns, note=None)
                with contextlib.suppress(StoreRule):  # it was acknowledged meanwhile
                    await daemon.ask(partial(done, how="the same key succeeded"))
        if result.status != "failed" or result.error is None or Code(result.error["code"]) in NOT_AN_ERROR_OF_IT:
            return result
        code, mine = result.error["code"], caller.principal
        # a conflict names the operation that the key belongs to: that one did not fail, this request did
        op_id = None if code == Code.KEY_CONFLICT else result.id
        number = await daemon.ask(
            partial(runs.fail, run_id=run_id, principal=mine, op_id=op_id, code=code, now_ns=now_ns)
        )
        if number is not None:
            if op_id is None and result.key is not None and result.error["class"] == ErrorClass.RETRYABLE:
                daemon.may_come_again.setdefault((mine, run_id, result.key), []).append(number)
            result.error = {**result.error, "run": run_id, "error_id": number}
        return result

    async def _mine(self, caller: Caller, run_id: int) -> Run:
        run = await self._daemon.ask(partial(runs.get, run_id=run_id))
        if run is None:
            raise DomainError(Code.NOT_FOUND, f"there is no run {run_id}", searched=str(run_id), suggestions=[])
        if run.row.principal != caller.principal:
            reason = f"run {run_id} is of {run.row.principal}"
            raise DomainError(Code.DENIED, reason, reason=reason, required=run.row.principal)
        return run

    async def _told(self, caller: Caller, run_id: int, summary: str | None = None) -> Result:
        run = await self._mine(caller, run_id)
        told = run_object(run)
        left = [c["why"] for c in told["unhandled"]]
        words = f"run {run_id} ({run.row.name}): {told['status']}"
        why = run.row.failed_by or (left[0] if left else None)
        result = Result(
            status="done", ok=True, effects="none", summary=summary or (f"{words}: {why}" if why is not None else words)
        )
        result.run = told
        if told["status"] == "failed":
            result.warnings = [f"run_failed: {why}"]
        return self._daemon.dressed(result)


def run_object(run: Run) -> dict[str, Any]:
    """A run as results tell it."""
    left = causes(run)
    ended = "succeeded" if run.row.failed_by is None else "failed"
    status = "running" if run.row.finished_ns is None else ended
    return {
        "id": run.row.run_id,
        "name": run.row.name,
        "status": status,
        "started": rfc3339(run.row.started_ns),
        "finished": None if run.row.finished_ns is None else rfc3339(run.row.finished_ns),
        "failed_by": run.row.failed_by,
        "halted": any(c.halts for c in left),
        "operations": len(run.operations),
        "errors": [_error_object(e) for e in run.errors],
        "unhandled": [{"why": c.why, "op": c.op_id, "error_id": c.error_id} for c in left],
    }


def _error_object(error: RunError) -> dict[str, Any]:
    return {
        "error_id": error.error_id,
        "op": error.op_id,
        "code": error.code,
        "at": rfc3339(error.at_ns),
        "handled": error.handled_how,
    }


def _cure(run_id: int, cause: Cause) -> str:
    if cause.acknowledgeable:
        return f"handle it, then say so: run.acknowledge run {run_id}, error_id {cause.error_id}, how"
    if cause.error_id is None and cause.op_id is not None:
        return f"ask for operation {cause.op_id} again under its key: its error gets a number to acknowledge"
    return f"an operator settles operation {cause.op_id}; see hwtool op {cause.op_id}"


def _check_open(run: Run) -> None:
    if run.row.finished_ns is not None:
        message = f"run {run.row.run_id} ({run.row.name}) was finished at {rfc3339(run.row.finished_ns)}"
        hint = "start another one: run.start"
        raise DomainError(Code.REFUSED, message, hint=hint, rule="run_finished", register=None, field=None)
