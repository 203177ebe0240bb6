"""Keys: what becomes of a keyed request until it is at the head of its device's queue, and what its key answers.

    validate → resolve → KEY → judge → approval → queue → (hwtool.execution)

The key is looked up first. If it has a row or a tombstone, the answer is that row's, whatever else is wrong with the
request. One task does the work of a key; whoever else comes with the same key joins it, and a caller who stops waiting
cancels nothing.
"""

from __future__ import annotations

import asyncio
from collections import Counter
from dataclasses import dataclass, replace
from typing import Any, Final, Literal

import msgspec

from hwtool.admission import Arrival, KeyedParams, Request, admit, request_of, understood
from hwtool.answers import answer_of_row, row_effects
from hwtool.budget import approval_of
from hwtool.digest import describe_differences, differences
from hwtool.execution import Execution, enter, leave, new_op, take_turn, wait_for_the_bus
from hwtool.headers import header_op
from hwtool.pending import UNANSWERED, expire, expire_unanswered, is_unanswered, void_of
from hwtool.policy import Caller, is_direct
from hwtool.rehearsal import rehearse
from hwtool.resolve import Resolved
from hwtool.results import failed, in_progress, pending
from hwtool.sequences import Sequences
from hwtool.state import Daemon
from hwtool.steps import ResolvedSequence
from hwtool_contracts.errors import Code, DomainError
from hwtool_contracts.messages import (
    ReadEffectfulParams,
    Result,
    SafeStateParams,
    SequenceParams,
    UpdateParams,
    WriteParams,
)
from hwtool_store import operations
from hwtool_store.database import Connection
from hwtool_store.faults import KeyTaken, StoreRule
from hwtool_store.operations import NewOp, OpRow, Tombstone

MAX_PENDING: Final = 16
METHOD_OF: Final[dict[type[KeyedParams], str]] = {
    ReadEffectfulParams: "reg.read_effectful",
    WriteParams: "reg.write",
    UpdateParams: "reg.update",
    SafeStateParams: "device.safe_state",
    SequenceParams: "sequence.run",
}


@dataclass(frozen=True)
class Running:
    """A key at work."""

    request: Request
    task: asyncio.Task[Result]
    looked_up: asyncio.Event


class KeyedOperations:
    """All keyed requests of the daemon."""

    def __init__(self, daemon: Daemon, execution: Execution) -> None:
        self._daemon = daemon
        self._execution = execution
        self._sequences = Sequences(daemon, execution)
        self._running: dict[tuple[str, str], Running] = {}
        self._expected: Counter[tuple[str, str]] = Counter()

    def at_work(self, principal: str, key: str) -> asyncio.Task[Result] | None:
        """The task of a key, if it is at work."""
        running = self._running.get((principal, key))
        return None if running is None else running.task

    def is_coming(self, principal: str, key: str) -> bool:
        """Whether a request under this key is at work, or has come and waits for another one of its connection."""
        return (principal, key) in self._running or self._expected[principal, key] > 0

    def expect(self, caller: Caller, method: str, params: dict[str, Any], safe: Arrival | None) -> Arrival:
        """A request has come that will be submitted later: whoever asks for its key is told that it is under way.

        Args:
            safe: the safe state that came before it on its connection, about the same device.
        """
        key = params.get("key")
        acts = method in METHOD_OF.values() and isinstance(key, str) and params.get("dry_run") is not True
        place = (caller.principal, str(key)) if acts else None
        if place is not None:
            self._expected[place] += 1
        arrived = Arrival(place, self._daemon.alarms())
        if safe is not None and not safe.passed:
            safe.behind.append(arrived)
        return arrived

    def answered(self, arrived: Arrival | None) -> None:
        """What was expected has its answer."""
        if arrived is not None:
            arrived.passes(self._daemon.alarms())
        if arrived is not None and arrived.place is not None:
            self._expected[arrived.place] -= 1
            if not self._expected[arrived.place]:
                del self._expected[arrived.place]
            self._daemon.tell()

    async def drain(self) -> None:
        """Wait for everything that is at work (a stop of the daemon)."""
        while self._running:
            await asyncio.wait({r.task for r in self._running.values()})

    async def submit(self, caller: Caller, params: KeyedParams, arrived: Arrival | None = None) -> Result:
        """Do what a keyed request asks, once, and answer what came of it.

        Args:
            arrived: when it came, if that was earlier.
        """
        request = request_of(self._daemon, caller, params, arrived)
        if params.dry_run or self._daemon.rehearsing:
            return await rehearse(self._daemon, request)
        place, joined = (caller.principal, params.key), False
        running = self._running.get(place)
        if running is None:
            looked_up = asyncio.Event()
            task = asyncio.get_running_loop().create_task(self._answer(request, looked_up))
            self._running[place] = Running(request, task, looked_up)
            task.add_done_callback(lambda _: self._running.pop(place, None))
        elif request.error is not None and running.request.error is not None:
            return await self._answer(
                request, asyncio.Event()
            )  # neither will use the key: each is told what is wrong with it
        elif running.request.digest != request.digest or request.error is not None:
            return self._conflict(request, running.request.content, "unknown", None)
        else:
            task, joined, looked_up = running.task, True, running.looked_up
        await looked_up.wait()  # what is on record is answered whatever the deadline
        deadline_s = None if params.deadline_ms is None else params.deadline_ms / 1000
        done, _ = await asyncio.wait({task}, timeout=deadline_s)
        if not done:
            return self._daemon.dressed(in_progress(params.key, None), request.device)
        result = task.result()
        # who joined gets the outcome of the other's request, if it came so far as to have one
        return msgspec.structs.replace(result, replayed=True) if joined and result.id is not None else result

    async def recorded(self, caller: Caller, params: KeyedParams) -> Result:
        """What the key of a request answers to it, from the record alone: nothing is begun, granted or repeated.

        Raises:
            DomainError: not_found, nothing was ever sent under the key; or key_expired.
        """
        request = request_of(self._daemon, caller, params)
        found = await self._look_up(request)
        running = self._running.get((caller.principal, params.key))
        if found is None and not self.is_coming(caller.principal, params.key):
            found = await self._look_up(request)  # it may have ended between the two looks
        if found is None and not self.is_coming(caller.principal, params.key):
            message = f"no operation {params.key}: never sent"
            hint = "nothing was sent to the device under this key; the same request may be made again with it"
            raise DomainError(Code.NOT_FOUND, message, hint=hint, searched=params.key, suggestions=[])
        if found is None or (running is not None and not isinstance(found, Tombstone) and found.state == "INTENT"):
            if running is not None and (request.error is not None or running.request.digest != request.digest):
                return self._conflict(request, running.request.content, "unknown", None)
            return self._daemon.dressed(in_progress(params.key, None if found is None else found.op_id), request.device)
        if isinstance(found, Tombstone):
            raise _pruned(request, found)
        if found.state != "PENDING":
            return self._daemon.dressed(self._of_row(request, found), request.device)
        if request.error is not None or found.digest != request.digest:
            return self._conflict(request, found.request["content"], "none", found)
        waiting = pending(found.op_id, found.key, "it waits for an operator's approval")
        return self._daemon.dressed(waiting, request.device)

    async def _answer(self, request: Request, looked_up: asyncio.Event) -> Result:
        """The whole life; every way out is a result."""
        params = request.params
        try:
            result = await self._live(request, looked_up)
        except DomainError as error:
            self._daemon.note_refusal(request.caller, request.resolved, params.key, error)
            result = failed(error, "none")
        except StoreRule as error:
            # before the intent: somebody was quicker, nothing was sent
            refused = DomainError(Code.REFUSED, str(error), rule="store_rule", register=None, field=None)
            result = failed(refused, "none")
        finally:
            looked_up.set()
        result.key = params.key
        return self._daemon.dressed(result, request.device)

    async def _live(self, request: Request, looked_up: asyncio.Event) -> Result:
        found = await self._look_up(request)
        looked_up.set()
        if isinstance(found, Tombstone):
            raise _pruned(request, found)
        if found is not None and found.state != "PENDING":
            return self._of_row(request, found)
        if found is not None and (request.error is not None or found.digest != request.digest):
            return self._conflict(request, found.request["content"], "none", found)
        if request.error is not None:
            raise request.error
        resolved = understood(request)
        await admit(self._daemon, request, resolved.devices)
        if found is not None:
            return await self._pending_again(request, resolved, found)
        request = replace(request, approval=await approval_of(self._daemon, request, resolved))
        if request.approval and not is_direct(self._daemon.board.approval_mode, request.caller):
            return await self._ask_person(request, resolved)
        return await self._run(request, resolved, None)

    async def _look_up(self, request: Request) -> OpRow | Tombstone | None:
        principal, key = request.caller.principal, request.params.key
        return await self._daemon.ask(lambda conn: operations.find(conn, principal, key))

    def _of_row(self, request: Request, row: OpRow) -> Result:
        """The answer of a key that has a row: its own outcome, or a conflict."""
        effects = row_effects(row)
        if request.error is not None or row.digest != request.digest:
            return self._conflict(request, row.request["content"], effects, row)
        return answer_of_row(row, request.caller)

    def _conflict(
        self,
        request: Request,
        content: dict[str, Any] | None,
        effects: Literal["applied", "none", "unknown"],
        row: OpRow | None,
    ) -> Result:
        params = request.params
        if request.error is not None:
            differs = [f"request: {request.error.code.value}: {request.error.message}"]
        else:
            differs = describe_differences(differences(content or {}, request.content or {}))
        error = DomainError(
            Code.KEY_CONFLICT,
            f"key {params.key} belongs to another request; differs: {', '.join(differs)}",
            key=params.key,
            differs=differs,
        )
        self._daemon.note_refusal(request.caller, request.resolved, params.key, error)
        result = failed(error, effects, key=params.key)
        if row is not None:
            result.id, result.verdict = row.op_id, row.verdict
        return self._daemon.dressed(result, request.device)

    async def _ask_person(self, request: Request, resolved: Resolved | ResolvedSequence) -> Result:
        """T0: the request waits for a person."""
        daemon, caller, params = self._daemon, request.caller, request.params
        new = self._waiting_op(request, resolved)
        why = "; ".join(request.approval)
        more = {"key": params.key, "reason": params.reason, "why": why}
        body = daemon.body("pending", caller, resolved, **more)

        def job(conn: Connection) -> int:
            if operations.pending_of(conn, caller.principal) >= MAX_PENDING:
                raise StoreRule("too many pending")
            return operations.t0_pending(conn, new, body)

        await expire_unanswered(daemon)
        try:
            op_id = await daemon.ask(job)
        except StoreRule as error:
            if isinstance(error, KeyTaken):
                raise
            message = f"{MAX_PENDING} requests of yours wait for approval already"
            raise DomainError(Code.RATE_LIMITED, message, retry_after_ms=60_000, limit=MAX_PENDING) from error
        daemon.tell()
        return pending(op_id, params.key, f"{resolved.name()} waits for an operator's approval ({why})")

    def _waiting_op(self, request: Request, resolved: Resolved | ResolvedSequence) -> NewOp:
        """The row of a request that waits for a person."""
        params = request.params
        shared: dict[str, Any] = {"content": request.content, "sensitive": resolved.sensitive, "reason": params.reason}
        shared["why"] = list(request.approval)
        repeat = {"method": METHOD_OF[type(params)], "params": _repeatable(params)}
        if isinstance(resolved, ResolvedSequence):
            return header_op(self._daemon, request, resolved, shared | repeat)
        named = {"device": resolved.device.name, "registers": [r.name for r in resolved.registers]}
        return new_op(self._daemon, request, resolved, shared | repeat | named, None)

    async def _pending_again(self, request: Request, resolved: Resolved | ResolvedSequence, row: OpRow) -> Result:
        """A request that waits for a person is repeated: still waiting, expired, or granted and now carried out."""
        daemon = self._daemon
        grant = await daemon.ask(lambda conn: operations.grant_of(conn, row.op_id))
        if grant is None:
            if is_unanswered(row, daemon.clock.wall_ns()):
                return await expire(daemon, row, UNANSWERED)
            return pending(row.op_id, row.key, f"{resolved.name()} still waits for an operator's approval")
        void = void_of(daemon, row, grant)
        if void is not None:
            return await expire(daemon, row, void)
        return await self._run(request, resolved, row)

    async def _run(self, request: Request, resolved: Resolved | ResolvedSequence, row: OpRow | None) -> Result:
        """Queue at the device, or at each device of a sequence, and carry it out when it is its turn."""
        if isinstance(resolved, ResolvedSequence):
            return await self._sequences.run(request, resolved, row)
        if request.safe:
            return await self._execution.safe_state(request, resolved)
        device = resolved.device
        enter(device, request.caller.principal)
        try:
            await take_turn(device, await wait_for_the_bus(self._daemon, request, device))
            try:
                return await self._execution.at_the_head(request, resolved, row)
            finally:
                device.lock.release()
        finally:
            leave(device, request.caller.principal)


def _pruned(request: Request, found: Tombstone) -> DomainError:
    message = f"key {request.params.key} was used; its record has been pruned (verdict {found.verdict})"
    return DomainError(Code.KEY_EXPIRED, message, key=request.params.key, verdict=found.verdict)


def _repeatable(params: KeyedParams) -> dict[str, Any]:
    """The parameters that an approval screen needs to resolve the request again."""
    built: dict[str, Any] = msgspec.to_builtins(params)
    return {
        k: v for k, v in built.items() if k not in ("deadline_ms", "queue_ms", "not_after", "store") and v is not None
    }
