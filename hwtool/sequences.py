"""Sequences: a header operation, and one ordinary operation per step with an effect, stopped at the first not proven.

The header gets its intent in the first step's T1 and its outcome in the last step's T2; steps are `<key>#<n>`. The
sequence has the turn of every device it touches from its first step to its last, so that nobody gets in between but a
safe state, which ends it. After a crash no further step is ever begun: the header is unknown until its last begun step
is settled, and is then ended by rule (hwtool.recovery).
"""

from __future__ import annotations

import asyncio
import contextlib
from dataclasses import dataclass, field
from typing import Any, Final

import msgspec

from hwtool.admission import Request, check_stopped, check_time, overtaken_by_safe_state, part_of
from hwtool.devices import Device
from hwtool.execution import Execution, check_shown, enter, take_turn
from hwtool.generation import refresh_boot
from hwtool.journal import REDACTED
from hwtool.outcome import StepOutcome, sequence_verdict
from hwtool.pending import no_longer_granted
from hwtool.reading import values_of
from hwtool.rehearsal import plan_digest, rehearsed
from hwtool.results import failed, shown_value, to_row
from hwtool.state import Daemon
from hwtool.steps import ResolvedSequence, Step, sequence_content, shown_steps
from hwtool_contracts.errors import Code, DomainError
from hwtool_contracts.judge import ReadJudgement
from hwtool_contracts.messages import Result
from hwtool_registers.bits import hexed
from hwtool_store import operations
from hwtool_store.database import Connection
from hwtool_store.operations import NewOp, OpRow

LONGEST_PAUSE_S: Final = 0.05  # of a wait between two looks, before it is asked whether something stops it


def header_op(
    daemon: Daemon, request: Request, sequence: ResolvedSequence, row_request: dict[str, Any], *, begun: bool = False
) -> NewOp:
    """The row of a header; its devices' generations stand in the request, since it has no device of its own."""
    named = {
        "device": None,
        "registers": [],
        "devices": [d.name for d in sequence.devices],
        "generations": {d.name: d.generation for d in sequence.devices},
        "steps": shown_steps(sequence),
    }
    return NewOp(
        principal=request.caller.principal,
        key=request.params.key,
        digest=request.digest,
        locus=None,
        kind="sequence",
        request={**row_request, **named},
        contract_hash=sequence.contract_hash,
        device_gen=0,
        now_ns=daemon.clock.wall_ns(),
        pre={} if begun else None,
    )


@dataclass
class Header:
    """The header of a sequence at work: what its steps came to, and how it stands on disk.

    Attributes:
        row: the row of its approval, if it waited for one.
        generations: of its devices when it began; a device that restarts meanwhile ends it.
        op_id: None until the first step's intent is durable.
        outcomes: of the steps that had an operation.
        told: one line per step begun, for the evidence.
        result: set when the header has ended, or become unknown.
        intent: the audit row of its intent, made before that of its first step.
    """

    daemon: Daemon
    request: Request
    sequence: ResolvedSequence
    row: OpRow | None
    generations: dict[str, int]
    op_id: int | None = None
    outcomes: list[StepOutcome] = field(default_factory=list)
    told: list[dict[str, Any]] = field(default_factory=list)
    values: list[dict[str, Any]] = field(default_factory=list)
    warnings: list[str] = field(default_factory=list)
    result: Result | None = None
    intent: dict[str, Any] = field(default_factory=dict)

    def about_to_begin(self) -> None:
        """Make the audit row of the header's intent."""
        direct = {"direct": True} if self.sequence.approval and self.row is None else {}
        self.intent = self.body("intent", reason=self.request.params.reason, **direct)

    def body(self, what: str, **more: Any) -> dict[str, Any]:
        """An audit row about the header."""
        told = {"key": self.request.params.key, "devices": [d.name for d in self.sequence.devices], **more}
        return self.daemon.body(what, self.request.caller, self.sequence, **told)

    @property
    def simulated(self) -> bool:
        """No real device is behind any of its steps."""
        return all(d.simulated for d in self.sequence.devices)

    def intend(self, conn: Connection) -> int:
        """In the first step's T1: the header's own intent, consuming its approval if it has one."""
        now_ns, body = self.daemon.clock.wall_ns(), self.intent
        if self.row is not None:
            return operations.t1_granted(conn, self.row.op_id, {}, 0, now_ns, body)
        shared: dict[str, Any] = {"content": self.request.content, "sensitive": self.sequence.sensitive}
        shared["reason"] = self.request.params.reason
        new = header_op(self.daemon, self.request, self.sequence, shared, begun=True)
        return operations.t1_intent(conn, new, body)

    def learn(self, step: Step, verdict: str | None, result: Result) -> None:
        """What a step with an operation came to; said again, where it could not be recorded the first time."""
        self.outcomes = [o for o in self.outcomes if o.number != step.number]
        self.told = [t for t in self.told if t["step"] != step.number]
        self.values = [v for v in self.values if v["step"] != step.number]
        self.outcomes.append(StepOutcome(step.number, verdict, result.effects, result.ok))
        self.tell(step, result.summary, id=result.id, verdict=verdict, effects=result.effects)
        self.values += [v | {"step": step.number} for v in result.values or []]
        self.warnings += [f"{w} (step {step.number})" for w in result.warnings]

    def tell(self, step: Step, summary: str, **more: Any) -> None:
        """A line of evidence; without values where they are sensitive."""
        shown = REDACTED if self.sequence.sensitive else summary
        self.told.append({"step": step.number, "do": step.do, **more, "summary": shown})

    def evidence(self) -> dict[str, Any]:
        """What the header's row and result show."""
        return {"how": "steps", "done": sum(o.ok for o in self.outcomes), "steps": list(self.told)}

    def ended(self, stopped: tuple[Step, dict[str, Any]] | None) -> tuple[str, Result]:
        """Verdict and result of a sequence that went to its end, or stopped with this error."""
        total = len(self.sequence.steps)
        verdict = sequence_verdict(self.outcomes, complete=stopped is None)
        shared: dict[str, Any] = {
            "id": self.op_id,
            "verdict": verdict.verdict,
            "evidence": self.evidence(),
            "values": self.values or None,
            "warnings": list(self.warnings),
            "simulated": self.simulated,
        }
        if stopped is None:
            summary = f"{self.sequence.name()}: all done"
            return verdict.verdict, Result(status="done", ok=True, effects=verdict.effects, summary=summary, **shared)
        step, error = stopped
        why = f"{step.name()}: {error['code']}" if self.sequence.sensitive else f"{step.name()}: {error['message']}"
        problem = DomainError(
            Code.NOT_APPLIED,
            f"{self.sequence.name()}: stopped at {why}",
            after_intent=True,
            verdict=verdict.verdict,
            expected={"steps": total},
            observed={"step": step.number, "code": error["code"]},
            done=step.number - 1,
            total=total,
        )
        return verdict.verdict, failed(problem, verdict.effects, **shared)

    def unknown(self, step: Step, result: Result) -> Result:
        """Result of a sequence whose step's outcome cannot be told."""
        message = f"{self.sequence.name()}: {step.name()} is unknown; no further step is begun"
        error = DomainError(
            Code.OUTCOME_UNKNOWN, message, op=result.id, stage=f"step {step.number}", evidence=None, settled=False
        )
        evidence = self.evidence() | {"op": result.id, "stage": f"step {step.number}"}
        return failed(
            error,
            "unknown",
            id=self.op_id,
            evidence=evidence,
            values=self.values or None,
            warnings=list(self.warnings),
            simulated=self.simulated,
        )

    def finish(self, conn: Connection, verdict: str, result: Result) -> None:
        """T2 of the header, in the transaction that the caller is in."""
        summary = {"summary": result.summary, "effects": result.effects, "verdict": verdict}
        error = {"error": None if result.error is None else result.error["code"]}
        now_ns, response = self.daemon.clock.wall_ns(), to_row(result)
        if self.op_id is not None:
            body = self.body("outcome", **summary, **error)
            operations.t2_done(conn, self.op_id, verdict, response, result.evidence or {}, now_ns, body)


@dataclass
class StepPart:
    """What one step adds to the transactions of its operation (`hwtool.execution.Part`)."""

    header: Header
    step: Step
    last: bool
    begun: int | None = None

    def begin(self, conn: Connection) -> int:
        """The header's number; its intent is written in the first step's T1."""
        header = self.header
        self.begun = header.op_id if header.op_id is not None else header.intend(conn)
        return self.begun

    def end(self, conn: Connection, verdict: str | None, result: Result) -> None:
        """The header's outcome, where this step is the last that is begun."""
        header = self.header
        if self.begun is None:
            raise DomainError(Code.INTERNAL, f"{self.step.name()} ends before its header has begun")
        header.op_id = self.begun
        header.learn(self.step, verdict, result)
        if verdict is None:
            header.result = header.daemon.dressed(header.unknown(self.step, result))
            note = header.body("unknown", summary=header.result.summary, effects="unknown")
            response, evidence = to_row(header.result), header.result.evidence or {}
            operations.to_unknown(conn, self.begun, response, evidence, note)
        elif not result.ok or self.last:
            stopped = None if result.ok else (self.step, result.error or {})
            ended, told = header.ended(stopped)
            header.result = header.daemon.dressed(told)
            header.finish(conn, ended, header.result)


class Sequences:
    """Runs sequences that are allowed and, where needed, approved."""

    def __init__(self, daemon: Daemon, execution: Execution) -> None:
        self._daemon = daemon
        self._execution = execution

    async def run(self, request: Request, sequence: ResolvedSequence, row: OpRow | None) -> Result:
        """Take the turn of every device, in an order that no two sequences can lock each other in, and go.

        Raises:
            DomainError: no step with an effect was begun; the key is unused.
        """
        entered: list[Device] = []
        taken: list[Device] = []
        try:
            for device in sequence.devices:
                enter(device)
                entered.append(device)
            await self._take_turns(request, sequence, taken)
            check_stopped(self._daemon, request, sequence.devices)
            for device in sequence.devices:
                device.worker.check()
                await device.worker.present()
                await refresh_boot(self._daemon, device)
            if row is not None:
                ended = await no_longer_granted(self._daemon, row)
                if ended is not None:
                    return ended
                check_shown(row, plan_digest((await rehearsed(sequence)).prepared))
            generations = {d.name: d.generation for d in sequence.devices}
            return await self._go(Header(self._daemon, request, sequence, row, generations))
        finally:
            for device in reversed(taken):
                device.lock.release()
            for device in entered:
                device.waiting -= 1

    async def _take_turns(self, request: Request, sequence: ResolvedSequence, taken: list[Device]) -> None:
        """Take the turn of each device; a safe state of one that is taken already ends the waiting for the next.

        Raises:
            DomainError: busy.
        """
        for device in sequence.devices:
            turn = asyncio.ensure_future(take_turn(device, request.queue_ms))
            alarms = [asyncio.ensure_future(d.lock.alarmed()) for d in taken]
            try:
                await asyncio.wait({turn, *alarms}, return_when=asyncio.FIRST_COMPLETED)
                if not turn.done():
                    raise overtaken_by_safe_state()
                turn.result()
                taken.append(device)
            finally:
                for waiting in (turn, *alarms):
                    waiting.cancel()
                with contextlib.suppress(asyncio.CancelledError, DomainError):
                    await turn

    async def _go(self, header: Header) -> Result:
        sequence = header.sequence
        for index, step in enumerate(sequence.steps):
            try:
                check_stopped(self._daemon, header.request, sequence.devices)
                if step.keyed is None:
                    await self._clean(header, step)
                    continue
                result = await self._effectful(header, step, last=index + 1 == len(sequence.steps))
            except DomainError as error:  # nothing of this step was sent
                if header.op_id is None:
                    error.message = f"{step.name()}: {error.message}"
                    raise
                return await self._stop(header, (step, error.as_object()))
            except Exception as error:  # a defect: what was begun must be ended all the same
                if header.op_id is None:
                    raise
                defect = DomainError(Code.INTERNAL, f"{type(error).__name__}: {error}")
                return await self._stop(header, (step, defect.as_object()))
            if header.result is not None or _unrecorded(result):
                return self._answer(header, step, result)
        return await self._stop(header, None)

    async def _effectful(self, header: Header, step: Step, *, last: bool) -> Result:
        if step.keyed is None or step.params is None:
            raise DomainError(Code.INTERNAL, f"{step.name()} has no request")
        content = sequence_content(ResolvedSequence((step,)))["steps"][0]
        part = StepPart(header, step, last)
        if header.op_id is None:
            header.about_to_begin()
        params = msgspec.structs.replace(step.params, generation=header.generations[step.device.name])
        request = part_of(self._daemon, header.request, step.keyed, params, content)
        result = await self._execution.at_the_head(request, step.keyed, None, part)
        header.op_id = part.begun
        return result

    async def _clean(self, header: Header, step: Step) -> None:
        """A step that reads: its value, or that it is as expected, at once or in time.

        Raises:
            DomainError: precondition_failed, the bus's error, or what stops the sequence.
        """
        clock, device = self._daemon.clock, step.device
        deadline_s = clock.monotonic_s() + step.timeout_ms / 1000
        groups = [] if step.group is None else [step.group]
        while True:
            check_time(self._daemon, header.request, after_intent=False)
            values, _ = await values_of(device, [] if groups else list(step.registers), groups)
            if step.do == "read":
                for register in step.registers:
                    judged = device.judge((register,))
                    known = judged if isinstance(judged, ReadJudgement) else None
                    shown = shown_value(device.name, register, values[register.name], known)
                    header.values.append(shown | {"step": step.number})
                header.tell(step, "read")
                return
            (register,) = step.registers
            seen = values[register.name]
            if seen & step.mask == step.wanted:
                header.tell(step, f"{register.name} reads {hexed(seen, register.width_bits)}")
                return
            rest_s = deadline_s - clock.monotonic_s()
            if step.do == "expect" or rest_s <= 0:
                wanted, observed = (
                    REDACTED if register.sensitive else hexed(v, register.width_bits)
                    for v in (step.wanted, seen & step.mask)
                )
                within = f" within {step.timeout_ms} ms" if step.do == "wait_until" else ""
                raise DomainError(
                    Code.PRECONDITION_FAILED,
                    f"{device.name}.{register.name} is {observed}, not {wanted}{within}",
                    expected={register.name: wanted},
                    observed={register.name: observed},
                )
            await self._pause(header, min(step.interval_ms / 1000, rest_s))

    async def _pause(self, header: Header, seconds: float) -> None:
        """Wait between two looks; a hold, a freeze, a safe state or a stop of the daemon ends it soon.

        Raises:
            DomainError: one of them.
        """
        clock = self._daemon.clock
        until_s = clock.monotonic_s() + seconds
        while (rest_s := until_s - clock.monotonic_s()) > 0:
            await clock.sleep(min(rest_s, LONGEST_PAUSE_S))
            check_stopped(self._daemon, header.request, header.sequence.devices)

    async def _stop(self, header: Header, stopped: tuple[Step, dict[str, Any]] | None) -> Result:
        """End a header outside a step's transaction: after a clean step, its last or one that did not hold."""
        verdict, result = header.ended(stopped)
        self._daemon.dressed(result)
        try:
            await self._daemon.ask(lambda conn: header.finish(conn, verdict, result))
        except DomainError as error:
            result.durable = False
            result.error = error.as_object()
            result.status, result.ok = "failed", False
        self._daemon.tell()
        return result

    def _answer(self, header: Header, step: Step, result: Result) -> Result:
        """What the caller gets when a step's transaction has ended the header, or could not."""
        if header.result is not None and not _unrecorded(result):
            return header.result
        header.learn(step, None, result)  # what was observed is answered even if it cannot be recorded
        effects = sequence_verdict(header.outcomes, complete=False).effects
        error = DomainError(Code.STORE_FAILED, result.summary, detail="the outcome could not be recorded")
        evidence, values = header.evidence(), header.values or None
        lost = failed(error, effects, id=header.op_id, evidence=evidence, values=values, simulated=header.simulated)
        lost.durable = False
        return lost


def _unrecorded(result: Result) -> bool:
    return result.error is not None and result.error["code"] == Code.STORE_FAILED
