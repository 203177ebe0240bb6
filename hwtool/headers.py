"""The header of a sequence: its row, what its steps came to, and what it adds to their transactions.

Its intent stands in the first step's T1 and its outcome in the last step's T2, so that a header and its steps cannot
part. It has no device of its own: the generations of its devices stand in its request.
"""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import Any

from hwtool.admission import Request
from hwtool.journal import REDACTED
from hwtool.outcome import StepOutcome, sequence_verdict
from hwtool.relocking import relock_facts
from hwtool.results import failed, to_row
from hwtool.state import Daemon
from hwtool.steps import ResolvedSequence, Step, shown_steps
from hwtool_contracts.errors import Code, DomainError
from hwtool_contracts.messages import Result
from hwtool_store import operations
from hwtool_store.database import Connection
from hwtool_store.operations import NewOp, OpRow


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
        "relock": relock_facts(sequence),
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
        run_id=request.run,
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
        direct = {"direct": True} if self.request.approval and self.row is None else {}
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
        self.warnings = [w for w in self.warnings if not w.endswith(f"(step {step.number})")]
        self.outcomes.append(StepOutcome(step.number, verdict, result.effects, result.ok))
        self.tell(step, result.summary, id=result.id, verdict=verdict, effects=result.effects)
        self.values += [v | {"step": step.number} for v in result.values or []]
        self.warnings += [f"{w} (step {step.number})" for w in result.warnings]

    def tell(self, step: Step, summary: str, **more: Any) -> None:
        """A line of evidence; without values where they are sensitive."""
        shown = REDACTED if self.sequence.sensitive else summary
        self.told.append({"step": step.number, "do": step.do, **more, "summary": shown})

    def answer(self, stopped: object) -> list[dict[str, Any]]:
        """The values that are answered: of a named sequence that went to its end, its result alone."""
        result = self.sequence.result
        if result is None or stopped is not None:
            return self.values
        return [v for v in self.values if v["register"] == result]

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
            "values": self.answer(stopped) or None,
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
