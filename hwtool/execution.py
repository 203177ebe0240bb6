"""From the head of a device's queue to the outcome: pre-read, T1, dispatch, watch, T2.

    pre-read → T1 intent durable │ dispatch → watch → T2 outcome durable → reply

One operation at a time for each device. Everything before T1 may be refused and leaves the key unused; from T1 on a
task does the work that nothing cancels. A step of a sequence goes the same way: its `Part` writes the header's state
in the same transactions. A safe state goes to the front of the queue, past what stops others, and ends what runs.
"""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Awaitable, Callable
from dataclasses import replace
from functools import partial
from typing import Any, Final, Protocol

from hwtool import permission
from hwtool.admission import (
    Request,
    alarms_of,
    check_seen,
    check_stopped,
    check_time,
    check_verified,
)
from hwtool.aftermath import Aftermath, check_rate
from hwtool.budget import approval_of, check_left
from hwtool.carry_out import Finished, carry_out
from hwtool.devices import Device, stale
from hwtool.dispatch import Intent
from hwtool.generation import refresh_boot
from hwtool.outcome import Verdict
from hwtool.pending import no_longer_granted
from hwtool.policy import is_direct
from hwtool.prepare import Prepared, prepare, prepare_safe_state
from hwtool.recovery import settlement
from hwtool.rehearsal import plan_digest
from hwtool.resolve import Resolved
from hwtool.results import failed, to_row
from hwtool.runs import Runs
from hwtool.state import Daemon
from hwtool.steps import ResolvedSequence
from hwtool_contracts.errors import Code, DomainError
from hwtool_contracts.messages import Result
from hwtool_store import operations
from hwtool_store.database import Connection
from hwtool_store.faults import StoreRule
from hwtool_store.operations import NewOp, OpRow

MAX_QUEUE: Final = 64
MOST_OF_A_CALLER: Final = MAX_QUEUE // 2
RULES_BEFORE_SAFE_STATE_S: Final = 0.1
LOST: Final = Verdict("lost", "unknown", "nobody has declared what the read does: a value may be lost")
OVERTAKEN: Final = Verdict("superseded", "unknown", "a later safe state took its place")


class Part(Protocol):
    """What a step adds to the transactions of its operation, for the sequence it belongs to."""

    def begin(self, conn: Connection) -> int:
        """In T1: have the header in INTENT; answers its number."""
        ...

    def end(self, conn: Connection, verdict: str | None, result: Result) -> None:
        """In the transaction of the outcome; `verdict` None: unknown."""
        ...


class Execution:
    """Carries requests that are allowed from the head of their device's queue to their outcome.

    Args:
        after_unknown: called when an ambiguous answer has left an operation unknown.
        rules: tries the rules on an unknown operation whose device's turn the caller has.
    """

    def __init__(
        self, daemon: Daemon, after_unknown: Callable[[Device], None], rules: Callable[[int], Awaitable[object]]
    ) -> None:
        self._daemon = daemon
        self._after_unknown = after_unknown
        self._rules = rules

    async def at_the_head(
        self, request: Request, resolved: Resolved, row: OpRow | None, part: Part | None = None
    ) -> Result:
        """Do it, once; the caller has the device's turn. `row`: it was approved and waits under this row.

        Raises:
            DomainError: nothing was dispatched and the key is unused.
        """
        daemon, device = self._daemon, resolved.device
        check_stopped(daemon, request, (device,))  # what was queued before a hold never runs after it
        await Runs(daemon).check(request.caller, request.run, effectful=True, begins=True)
        check_time(daemon, request, after_intent=False)
        device.worker.check()
        device.worker.admit()
        await device.worker.present()
        prepared = await device.again(
            partial(self._prepared, request, resolved, row), partial(self._must_stop, request, device)
        )
        if isinstance(prepared, Result):
            return prepared
        if row is not None:
            check_shown(row, plan_digest([prepared]))
        try:
            await device.move_home(resolved.registers if resolved.changes else [])
            await self.check_reloaded(request, resolved, row, part)
            check_stopped(daemon, request, (device,))
            check_time(daemon, request, after_intent=False)
            check_rate(device, resolved)
            await self._check_policy(request, prepared, row, part)
            op_id = await self._intend(request, prepared, row, part)
            return await self._dispatch(request, prepared, op_id, part)
        finally:
            device.home_moved()

    async def _prepared(self, request: Request, resolved: Resolved, row: OpRow | None) -> Prepared | Result:
        """Preparation as a whole, which may be done again; the answer of a request whose grant is void by now."""
        boot = await refresh_boot(self._daemon, resolved.device)
        check_seen(request)  # it may have restarted while this waited
        ended = None if row is None else await no_longer_granted(self._daemon, row)
        if ended is not None:
            return ended
        prepared = await prepare(resolved)
        prepared.boot = boot
        return prepared

    def _must_stop(self, request: Request, device: Device) -> bool:
        """Whether a preparation must not be tried again."""
        try:
            check_stopped(self._daemon, request, (device,))
            check_time(self._daemon, request, after_intent=False)
        except DomainError:
            return True
        return False

    async def check_reloaded(
        self, request: Request, resolved: Resolved | ResolvedSequence, row: OpRow | None, part: Part | None = None
    ) -> None:
        """What was queued before the board was read again keeps to what it says now.

        Raises:
            DomainError: denied, refused; or unavailable: a person must agree by now. The key is unused.
        """
        daemon = self._daemon
        if request.board is daemon.board or request.safe:
            return
        permission.check(daemon.board.policy, request.caller, resolved)  # rates are taken, and asked, where it begins
        check_verified(request, resolved.devices)
        if row is not None or part is not None:
            return
        needed = await approval_of(daemon, request, resolved)
        if needed and not (request.approval and is_direct(daemon.board.approval_mode, request.caller)):
            message = f"the board was read again, and now {resolved.name()} needs approval ({'; '.join(needed)})"
            raise DomainError(Code.UNAVAILABLE, message, reason="reloaded", retry_after_ms=1)

    async def _check_policy(self, request: Request, prepared: Prepared, row: OpRow | None, part: Part | None) -> None:
        """What policy says of what is only known here: whole values, and what others have used up meanwhile.

        Raises:
            DomainError: refused (`policy_limits`) or rate_limited; the key stays unused.
        """
        daemon, resolved = self._daemon, prepared.resolved
        rules, now_s = daemon.board.policy, daemon.clock.monotonic_s()
        permission.check_values(rules, request.caller, resolved, prepared.values, prepared.known)
        if part is not None:
            return  # a sequence was asked for, and counted, as a whole: it does not stop half way for this
        if not request.approval and row is None:
            await check_left(daemon, resolved)
        permission.take_rate(daemon.rates, rules, request.caller, resolved, now_s)

    async def safe_state(self, request: Request, resolved: Resolved) -> Result:
        """Make a device safe: next in its queue, whatever holds it; what runs there ends.

        Raises:
            DomainError: unavailable (wedged, absent, not silent), stale, refused (another mode), bus_fault or timeout
                (it could not be identified), expired, store_failed; nothing was sent.
        """
        device = resolved.device
        device.lock.raise_alarm()  # watches and sequences of the device end, what waits is overtaken
        if request.arrived is not None:
            request.arrived.passes(self._daemon.alarms())
        request = replace(request, alarms=alarms_of(request.watched))
        await device.lock.acquire(urgent=True)
        reached = False
        try:
            boot = await self._reach(request, device)
            prepared = await prepare_safe_state(resolved)
            prepared.boot = boot
            check_time(self._daemon, request, after_intent=False)
            await device.move_home(resolved.registers)
            op_id = await self._intend_safe_state(request, prepared)
            reached = True
            return await self._dispatch(request, prepared, op_id, None)
        finally:
            device.home_moved()
            device.lock.release()
            if not reached:  # what it has ended is looked at now
                for unknown in sorted(device.unknown):
                    self._daemon.keep(self._later(device, unknown))

    async def _later(self, device: Device, op_id: int) -> None:
        async with device.lock:
            await self._rules(op_id)

    async def _reach(self, request: Request, device: Device) -> str | None:
        """Have the bus, and let the rules of what is open run a last time; answers the boot evidence."""
        check_time(self._daemon, request, after_intent=False)
        worker = device.worker
        await worker.silence()
        worker.check()
        await worker.present()
        boot = await refresh_boot(self._daemon, device)
        tries = {self._daemon.keep(self._tried(op_id)) for op_id in sorted(device.unknown)}
        if tries:
            await asyncio.wait(tries, timeout=RULES_BEFORE_SAFE_STATE_S)
            await worker.silence()  # a rule may have lost a reply
        return boot

    async def _tried(self, op_id: int) -> None:
        await self._rules(op_id)

    async def _intend(self, request: Request, prepared: Prepared, row: OpRow | None, part: Part | None) -> int:
        """T1: the intent is durable when this returns; answers the op's number."""
        daemon, params, resolved = self._daemon, request.params, prepared.resolved
        pre = {"values": prepared.before, "boot": prepared.boot}
        direct = bool(request.approval) and row is None and part is None
        more = {"key": params.key, "reason": params.reason} | ({"direct": True} if direct else {})
        body = daemon.body("intent", request.caller, resolved, **more)
        row_request = prepared.row_request(request.content or {}, params.reason)
        if row is not None:
            gen, granted = resolved.device.generation, {**pre, "request": row_request}
            now_ns, op_id = daemon.clock.wall_ns(), row.op_id

            def job(conn: Connection) -> int:
                return operations.t1_granted(conn, op_id, granted, gen, now_ns, body)
        else:
            new = new_op(daemon, request, resolved, row_request, pre)

            def job(conn: Connection) -> int:
                if part is None:
                    return operations.t1_intent(conn, new, body)
                header = part.begin(conn)
                return operations.t1_intent(conn, replace(new, parent_op=header), {**body, "parent": header})

        return await self._intended(resolved.device, job)

    async def _intend_safe_state(self, request: Request, prepared: Prepared) -> int:
        """T1 of a safe state: an older one that is unknown is superseded, and nothing open is settled by rule after."""
        daemon, resolved = self._daemon, prepared.resolved
        device = resolved.device
        more = {"key": request.params.key, "reason": request.params.reason}
        body = daemon.body("intent", request.caller, resolved, **more)
        row_request = prepared.row_request(request.content or {}, request.params.reason)
        new = new_op(daemon, request, resolved, row_request, {"values": prepared.before, "boot": prepared.boot})
        now_ns = daemon.clock.wall_ns()

        def job(conn: Connection) -> int:
            for older in operations.open_safe_states(conn, device.locus):
                ended = settlement(older, OVERTAKEN, "rule")
                ended.result.id = older.op_id
                told = {"device": device.name, "key": older.key, "of": older.principal, "by": "rule"}
                note = daemon.body("settled", None, None, verdict="superseded", effects="unknown", **told)
                response = to_row(daemon.dressed(ended.result, device))
                evidence = ended.result.evidence or {}
                operations.t3_settle(conn, older.op_id, "superseded", "rule", response, evidence, now_ns, note)
            return operations.t1_safe_state(conn, new, body)

        before = set(device.unknown)
        op_id = await self._intended(device, job)
        still = await daemon.ask(lambda conn: operations.unknown_of(conn, device.locus))
        for settled in before - set(still):
            device.mark_settled(settled)
        return op_id

    async def _intended(self, device: Device, job: Callable[[Connection], int]) -> int:
        try:
            return await self._daemon.ask(job)
        except StoreRule as error:
            held = device.held()  # a hold may have come while this was being prepared
            if held is not None:
                raise held from error
            # else the database kept a rule that this file should have kept before it
            raise DomainError(Code.INTERNAL, f"the store refused the intent: {error}") from error

    async def _dispatch(self, request: Request, prepared: Prepared, op_id: int, part: Part | None) -> Result:
        """From the intent to the outcome; the part that happens once."""
        intent = Intent(op_id)
        if self._daemon.failed:
            # the intent is on disk; the next start finds that nothing was sent
            detail = "the store failed after the intent; nothing was dispatched"
            raise DomainError(Code.STORE_FAILED, detail, detail=detail)
        try:
            check_time(self._daemon, request, after_intent=True)
        except DomainError as late:
            finished = Finished("not_applied", failed(late, "none", verdict="not_applied"), [])
        else:
            try:
                keep = partial(self._keep, op_id)
                finished = await carry_out(intent, prepared, self._daemon.clock, request.overtaken, keep)
            except Exception as error:  # noqa: BLE001  # whatever it was, the device may have acted
                defect = DomainError(Code.INTERNAL, f"{prepared.resolved.name()}: {type(error).__name__}: {error}")
                finished = Finished(None, failed(defect, "unknown", evidence={"how": "defect"}), [])
        finished.result.id = op_id
        return await self._record(request, prepared, op_id, finished, part)

    async def _keep(self, op_id: int, answers: list[bytes]) -> None:
        """Have what a burst has taken so far on record before more is taken."""
        await self._daemon.ask(lambda conn: operations.keep(conn, op_id, answers))

    async def _record(
        self, request: Request, prepared: Prepared, op_id: int, finished: Finished, part: Part | None
    ) -> Result:
        """T2, or UNKNOWN; what was observed is answered even if it cannot be recorded."""
        resolved = prepared.resolved
        daemon, device = self._daemon, resolved.device
        result = daemon.dressed(finished.result, device)
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
        aftermath = Aftermath(daemon, resolved, op_id)
        try:
            if finished.verdict is not None:
                verdict, data, response = finished.verdict, finished.data, to_row(result)

                def job(conn: Connection) -> None:
                    operations.t2_done(conn, op_id, verdict, response, evidence, now_ns, body, data)
                    if part is not None:
                        part.end(conn, verdict, result)
                    if not finished.unsent:
                        aftermath.record(conn, now_ns)

                await daemon.ask(job)
                aftermath.take_effect(daemon, now_ns)
            else:
                result = await self._record_unknown(prepared, op_id, result, body, finished, part, aftermath)
        except Exception as error:  # noqa: BLE001  # whatever stopped the record, what was observed is answered
            if not isinstance(error, DomainError):
                detail = f"the outcome could not be recorded: {type(error).__name__}: {error}"
                error = DomainError(Code.STORE_FAILED, detail, detail=str(error))
            result.durable = False
            result.error = error.as_object()
            result.status, result.ok = "failed", False
            device.mark_unknown(op_id, now_ns)
            if not daemon.failed:
                await self._leave_unknown(device, op_id, result, body, finished.data, part)
        daemon.tell()
        return result

    async def _leave_unknown(
        self, device: Device, op_id: int, result: Result, body: dict[str, Any], data: list[bytes], part: Part | None
    ) -> None:
        """A defect, not the disk, kept the outcome from being recorded: its row must say that it is unknown."""
        note = {**body, "what": "unknown", "verdict": None}
        whole = to_row(result), {**(result.evidence or {}), "how": "defect"}, data

        def job(conn: Connection, response: dict[str, Any], evidence: dict[str, Any], kept: list[bytes]) -> None:
            row = operations.get(conn, op_id)
            if row is not None and row.state == "INTENT":
                operations.to_unknown(conn, op_id, response, evidence, note, kept)
                if part is not None:
                    part.end(conn, None, result)

        for response, evidence, kept in (whole, ({}, {"how": "defect"}, [])):
            try:
                await self._daemon.ask(partial(job, response=response, evidence=evidence, kept=kept))
            except Exception:  # then without what may have been the defect; else the next start finds the intent
                logging.getLogger(__name__).exception("operation %d could not be recorded as unknown", op_id)
            else:
                self._after_unknown(device)
                return

    async def _record_unknown(
        self,
        prepared: Prepared,
        op_id: int,
        result: Result,
        body: dict[str, Any],
        finished: Finished,
        part: Part | None,
        aftermath: Aftermath,
    ) -> Result:
        """UNKNOWN holds the device; only a read whose effect nobody declared is closed at once, as possibly lost."""
        daemon, device = self._daemon, prepared.resolved.device
        now_ns = daemon.clock.wall_ns()
        evidence, response, data = result.evidence or {}, to_row(result), finished.data
        if any(r.kind == "undeclared" for r in prepared.read_rules):
            return await self._record_lost(prepared, op_id, result, body, data, part)

        def job(conn: Connection) -> None:
            operations.to_unknown(conn, op_id, response, evidence, body, data)
            if part is not None:
                part.end(conn, None, result)
            aftermath.record(conn, now_ns)

        await daemon.ask(job)
        device.mark_unknown(op_id, now_ns)
        aftermath.take_effect(daemon, now_ns)
        if not finished.interrupted:
            self._after_unknown(device)
        else:  # nothing on the bus is in doubt: the rules look as soon as the device is free
            daemon.keep(self._later(device, op_id))
        return result

    async def _record_lost(
        self,
        prepared: Prepared,
        op_id: int,
        result: Result,
        body: dict[str, Any],
        data: list[bytes],
        part: Part | None,
    ) -> Result:
        daemon, device = self._daemon, prepared.resolved.device
        now_ns = daemon.clock.wall_ns()
        row = await daemon.ask(lambda conn: operations.get(conn, op_id))
        if row is None:
            raise DomainError(Code.INTERNAL, f"operation {op_id} has no row")
        closed = settlement(row, LOST, "rule")
        closed.result.values = result.values
        ended = daemon.dressed(closed.result, device)
        ended.id = op_id
        note = {**body, "what": "settled", "verdict": "lost", "by": "rule", "error": Code.VALUE_LOST.value}
        evidence, response, settled = result.evidence or {}, to_row(result), to_row(ended)

        def job(conn: Connection) -> None:
            operations.to_unknown(conn, op_id, response, evidence, body, data)
            operations.t3_settle(conn, op_id, "lost", "rule", settled, ended.evidence or {}, now_ns, note)
            if part is not None:
                part.end(conn, "lost", ended)

        await daemon.ask(job)
        return ended


def enter(device: Device, principal: str) -> None:
    """Join a device's queue; whoever does must `leave` it again.

    Raises:
        DomainError: busy; the queue is full, or half of it is this caller's: others must get their turn too.
    """
    if device.callers[principal] >= MOST_OF_A_CALLER:
        message = f"{MOST_OF_A_CALLER} requests of yours wait for {device.name} already"
        raise DomainError(Code.BUSY, message, by="queue", holder=principal, retry_after_ms=500)
    if device.waiting >= MAX_QUEUE:
        message = f"{MAX_QUEUE} requests wait for {device.name}"
        raise DomainError(Code.BUSY, message, by="queue", holder=None, retry_after_ms=500)
    device.waiting += 1
    device.callers[principal] += 1


def leave(device: Device, principal: str) -> None:
    """Leave a device's queue."""
    device.waiting -= 1
    device.callers[principal] -= 1
    if not device.callers[principal]:
        del device.callers[principal]


async def wait_for_the_bus(daemon: Daemon, request: Request, device: Device) -> int | None:
    """Whoever asks to wait (`queue_ms`) waits while the breaker is open, and never past its not_after.

    Returns:
        What is left of `queue_ms`, None where nothing was said.
    """
    if request.queue_ms is None:
        return None
    since_s = daemon.clock.monotonic_s()
    limit_s = request.queue_ms / 1000
    if request.expires_boottime_ns is not None:
        limit_s = min(limit_s, (request.expires_boottime_ns - daemon.clock.boottime_ns()) / 1e9)
    await device.worker.until_admitted(limit_s)
    return max(0, request.queue_ms - round(1000 * (daemon.clock.monotonic_s() - since_s)))


async def take_turn(device: Device, queue_ms: int | None) -> None:
    """Wait for the device's turn, at most for `queue_ms`.

    Raises:
        DomainError: busy; it did not come in time.
    """
    try:
        async with asyncio.timeout(None if queue_ms is None else queue_ms / 1000):
            await device.lock.acquire()
    except TimeoutError:
        message = f"{device.name} was not free within {queue_ms} ms"
        raise DomainError(Code.BUSY, message, by="device", holder=None, retry_after_ms=100) from None


def check_shown(row: OpRow, plan: str) -> None:
    """A person approved exact transfers; if bits outside the request have changed since, the grant stays unused.

    Raises:
        DomainError: stale.
    """
    if (row.evidence or {}).get("approved_plan") != plan:
        raise stale("neighbours", "the transfers that were approved", "other transfers by now")


def new_op(
    daemon: Daemon, request: Request, resolved: Resolved, row_request: dict[str, Any], pre: dict[str, Any] | None
) -> NewOp:
    """The row that a request is about to get."""
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
        now_ns=daemon.clock.wall_ns(),
        pre=pre,
        run_id=request.run,
    )
