"""The life of a keyed operation: key, judgement, approval, queue, intent, dispatch, outcome, answer.

    validate → resolve → KEY → judge → approval → queue → pre-read → T1 │ dispatch → watch → T2 → reply

The key is looked up first. If it has a row or a tombstone, the answer is that row's, whatever else is wrong with the
request. One task does the work of a key; whoever else comes with the same key joins it, and a caller who stops waiting
cancels nothing.
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any, Final, Literal

import msgspec

from hwtool.admission import KeyedParams, Request, admit, check_time, request_of, understood
from hwtool.answers import answer_of_row, row_effects
from hwtool.devices import Device, stale
from hwtool.digest import describe_differences, differences
from hwtool.dispatch import Finished, Intent, carry_out
from hwtool.generation import refresh_boot
from hwtool.outcome import Verdict
from hwtool.pending import UNANSWERED, expire, expire_unanswered, is_unanswered, void_of
from hwtool.policy import Caller, is_direct
from hwtool.prepare import Prepared, prepare
from hwtool.recovery import settlement
from hwtool.rehearsal import plan_digest, rehearse
from hwtool.resolve import Resolved
from hwtool.results import failed, in_progress, pending, to_row
from hwtool.state import Daemon
from hwtool_contracts.errors import Code, DomainError
from hwtool_contracts.messages import Result
from hwtool_store import operations
from hwtool_store.database import Connection
from hwtool_store.faults import KeyTaken, StoreRule
from hwtool_store.operations import NewOp, OpRow, Tombstone

MAX_QUEUE: Final = 64
MAX_PENDING: Final = 16


@dataclass(frozen=True)
class Running:
    """A key at work."""

    request: Request
    task: asyncio.Task[Result]
    looked_up: asyncio.Event


class KeyedOperations:
    """All keyed requests of the daemon."""

    def __init__(self, daemon: Daemon, after_unknown: Callable[[Device], None]) -> None:
        self._daemon = daemon
        self._after_unknown = after_unknown
        self._running: dict[tuple[str, str], Running] = {}

    def at_work(self, principal: str, key: str) -> asyncio.Task[Result] | None:
        """The task of a key, if it is at work."""
        running = self._running.get((principal, key))
        return None if running is None else running.task

    async def drain(self) -> None:
        """Wait for everything that is at work (a stop of the daemon)."""
        while self._running:
            await asyncio.wait({r.task for r in self._running.values()})

    async def submit(self, caller: Caller, params: KeyedParams) -> Result:
        """Do what a keyed request asks, once, and answer what came of it."""
        request = request_of(self._daemon, caller, params)
        if params.dry_run:
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
            message = f"key {request.params.key} was used; its record has been pruned (verdict {found.verdict})"
            raise DomainError(Code.KEY_EXPIRED, message, key=request.params.key, verdict=found.verdict)
        if found is not None and found.state != "PENDING":
            return self._of_row(request, found)
        if found is not None and (request.error is not None or found.digest != request.digest):
            return self._conflict(request, found.request["content"], "none", found)
        if request.error is not None:
            raise request.error
        resolved = understood(request)
        await admit(self._daemon, request, resolved.device)
        if found is not None:
            return await self._pending_again(request, resolved, found)
        if resolved.approval and not is_direct(self._daemon.board.approval_mode, request.caller):
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

    async def _ask_person(self, request: Request, resolved: Resolved) -> Result:
        """T0: the request waits for a person."""
        daemon, caller, params = self._daemon, request.caller, request.params
        new = self._new_op(request, resolved, self._bare_request(request, resolved), None)
        why = "; ".join(resolved.approval)
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

    def _bare_request(self, request: Request, resolved: Resolved) -> dict[str, Any]:
        return {
            "content": request.content,
            "device": resolved.device.name,
            "registers": [r.name for r in resolved.registers],
            "method": {"read": "reg.read_effectful", "write": "reg.write", "update": "reg.update"}[resolved.kind],
            "params": _repeatable(request.params),
            "sensitive": resolved.sensitive,
            "reason": request.params.reason,
        }

    def _new_op(
        self, request: Request, resolved: Resolved, row_request: dict[str, Any], pre: dict[str, Any] | None
    ) -> NewOp:
        device = resolved.device
        return NewOp(
            principal=request.caller.principal,
            key=request.params.key,
            digest=request.digest,
            locus=device.locus,
            kind=resolved.kind,
            request=row_request,
            contract_hash=device.contract_hash,
            device_gen=device.generation,
            now_ns=self._daemon.clock.wall_ns(),
            pre=pre,
        )

    async def _pending_again(self, request: Request, resolved: Resolved, row: OpRow) -> Result:
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

    async def _run(self, request: Request, resolved: Resolved, row: OpRow | None) -> Result:
        """Queue at the device, prepare, and carry it out under one lock."""
        device = resolved.device
        if device.waiting >= MAX_QUEUE:
            message = f"{MAX_QUEUE} requests wait for {device.name}"
            raise DomainError(Code.BUSY, message, by="queue", holder=None, retry_after_ms=500)
        device.waiting += 1
        try:
            await self._take_turn(device, request.params.queue_ms)
            try:
                return await self._at_the_head(request, resolved, row)
            finally:
                device.lock.release()
        finally:
            device.waiting -= 1

    @staticmethod
    async def _take_turn(device: Device, queue_ms: int | None) -> None:
        try:
            async with asyncio.timeout(None if queue_ms is None else queue_ms / 1000):
                await device.lock.acquire()
        except TimeoutError:
            message = f"{device.name} was not free within {queue_ms} ms"
            raise DomainError(Code.BUSY, message, by="device", holder=None, retry_after_ms=100) from None

    async def _at_the_head(self, request: Request, resolved: Resolved, row: OpRow | None) -> Result:
        daemon, device = self._daemon, resolved.device
        held = device.held()  # what was queued before a hold never runs after it
        if held is not None:
            raise held
        check_time(self._daemon, request, after_intent=False)
        device.worker.check()
        device.worker.admit(clean=False)
        await device.worker.present()
        boot = await refresh_boot(daemon, device)
        if row is not None and row.device_gen != device.generation:
            return await expire(daemon, row, "the device restarted since the approval")
        prepared = await prepare(resolved)
        if row is not None:
            self._check_shown(row, prepared)
        try:
            await device.move_home(resolved.registers if resolved.changes else [])
            check_time(self._daemon, request, after_intent=False)
            op_id = await self._intend(request, prepared, row, boot)
            return await self._dispatch(request, prepared, op_id)
        finally:
            device.home_moved()

    @staticmethod
    def _check_shown(row: OpRow, prepared: Prepared) -> None:
        """A person approved exact transfers; if bits outside the request have changed since, the grant stays unused."""
        if (row.evidence or {}).get("approved_plan") != plan_digest(prepared):
            raise stale("neighbours", "the transfers that were approved", "other transfers by now")

    async def _intend(self, request: Request, prepared: Prepared, row: OpRow | None, boot: str | None) -> int:
        """T1: the intent is durable when this returns; answers the op's number."""
        daemon, params, resolved = self._daemon, request.params, prepared.resolved
        pre = {"values": prepared.before, "boot": boot}
        direct = bool(resolved.approval) and row is None
        more = {"key": params.key, "reason": params.reason} | ({"direct": True} if direct else {})
        body = daemon.body("intent", request.caller, resolved, **more)
        try:
            if row is not None:
                now_ns, gen = daemon.clock.wall_ns(), resolved.device.generation
                granted = {**pre, "request": prepared.row_request(request.content or {}, params.reason)}
                return await daemon.ask(lambda conn: operations.t1_granted(conn, row.op_id, granted, gen, now_ns, body))
            row_request = prepared.row_request(request.content or {}, params.reason)
            new = self._new_op(request, resolved, row_request, pre)
            return await daemon.ask(lambda conn: operations.t1_intent(conn, new, body))
        except StoreRule as error:
            held = resolved.device.held()  # a hold may have come while this was being prepared
            if held is not None:
                raise held from error
            # else the database kept a rule that this file should have kept before it
            raise DomainError(Code.INTERNAL, f"the store refused the intent: {error}") from error

    async def _dispatch(self, request: Request, prepared: Prepared, op_id: int) -> Result:
        """From the intent to the outcome; the part that happens once."""
        device = prepared.resolved.device
        intent = Intent(op_id)
        try:
            check_time(self._daemon, request, after_intent=True)
        except DomainError as late:
            finished = Finished("not_applied", failed(late, "none", verdict="not_applied"), [])
        else:
            try:
                finished = await carry_out(intent, prepared, self._daemon.clock)
            except Exception as error:  # noqa: BLE001  # whatever it was, the device may have acted
                defect = DomainError(Code.INTERNAL, f"{prepared.resolved.name()}: {type(error).__name__}: {error}")
                finished = Finished(None, failed(defect, "unknown", evidence={"how": "defect"}), [])
        finished.result.id = op_id
        return await self._record(request, prepared, op_id, finished, device)

    async def _record(
        self, request: Request, prepared: Prepared, op_id: int, finished: Finished, device: Device
    ) -> Result:
        """T2, or UNKNOWN; what was observed is answered even if it cannot be recorded."""
        daemon, result = self._daemon, self._daemon.dressed(finished.result, device)
        resolved = prepared.resolved
        evidence = result.evidence or {}
        body = daemon.body(
            "outcome" if finished.verdict is not None else "unknown",
            request.caller,
            resolved,
            key=request.params.key,
            verdict=finished.verdict,
            effects=result.effects,
            error=None if result.error is None else result.error["code"],
            summary=result.summary,
        )
        now_ns = daemon.clock.wall_ns()
        try:
            if finished.verdict is not None:
                verdict, data = finished.verdict, finished.data
                response = to_row(result)
                await daemon.ask(
                    lambda conn: operations.t2_done(conn, op_id, verdict, response, evidence, now_ns, body, data)
                )
            else:
                result = await self._record_unknown(request, prepared, op_id, result, body, finished.data)
        except Exception as error:  # noqa: BLE001  # whatever stopped the record, what was observed is answered
            if not isinstance(error, DomainError):
                detail = f"the outcome could not be recorded: {type(error).__name__}: {error}"
                error = DomainError(Code.STORE_FAILED, detail, detail=str(error))
            result.durable = False
            result.error = error.as_object()
            result.status, result.ok = "failed", False
            device.mark_unknown(op_id, now_ns)
        daemon.tell()
        return result

    async def _record_unknown(
        self,
        request: Request,
        prepared: Prepared,
        op_id: int,
        result: Result,
        body: dict[str, Any],
        data: list[bytes],
    ) -> Result:
        """UNKNOWN holds the device; only a read whose effect nobody declared is closed at once, as possibly lost."""
        daemon, device = self._daemon, prepared.resolved.device
        now_ns = daemon.clock.wall_ns()
        evidence = result.evidence or {}
        response = to_row(result)
        if any(r.kind == "undeclared" for r in prepared.read_rules):
            row = await daemon.ask(lambda conn: operations.get(conn, op_id))
            if row is None:
                raise DomainError(Code.INTERNAL, f"operation {op_id} has no row")
            verdict = Verdict("lost", "unknown", "nobody has declared what the read does: a value may be lost")
            closed = settlement(row, verdict, "rule")
            closed.result.values = result.values
            closed_result = daemon.dressed(closed.result, device)
            closed_result.id = op_id
            settled_body = {**body, "what": "settled", "verdict": "lost"}

            def job(conn: Connection) -> None:
                operations.to_unknown(conn, op_id, response, evidence, body, data)
                operations.t3_settle(
                    conn,
                    op_id,
                    "lost",
                    "rule",
                    to_row(closed_result),
                    closed_result.evidence or {},
                    now_ns,
                    settled_body,
                )

            await daemon.ask(job)
            return closed_result
        await daemon.ask(lambda conn: operations.to_unknown(conn, op_id, response, evidence, body, data))
        device.mark_unknown(op_id, now_ns)
        self._after_unknown(device)
        return result


def _repeatable(params: KeyedParams) -> dict[str, Any]:
    """The parameters that an approval screen needs to resolve the request again."""
    built: dict[str, Any] = msgspec.to_builtins(params)
    return {
        k: v for k, v in built.items() if k not in ("deadline_ms", "queue_ms", "not_after", "store") and v is not None
    }
