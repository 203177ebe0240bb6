"""From the dispatch to what T2 records: dispatch, watch, and what came of it.

The watch reads cleanly until the first conclusive observation, the end of its window, or a safe state. From T1 to T2
runs a task that nothing cancels; a client that left changes nothing. Never raises for what the device or the bus did.
"""

from __future__ import annotations

from collections.abc import Awaitable, Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any, Final

from hwtool.clock import Clock
from hwtool.dispatch import Dispatched, Intent, dispatch, dispatch_safe_state, nothing_between
from hwtool.journal import REDACTED
from hwtool.outcome import Seen, Target, Verdict, conclude, is_conclusive, is_plain, write_seen
from hwtool.prepare import Prepared, check_read_gates
from hwtool.restarts import restart_between
from hwtool.results import Effects, brief, errata, failed, shown_value
from hwtool_contracts.errors import Code, DomainError
from hwtool_contracts.messages import Result
from hwtool_registers.bits import from_bytes, hexed
from hwtool_registers.bus import NOT_SENT, Ambiguous, Rejected
from hwtool_registers.plan import confirmed_values, pieces_of
from hwtool_registers.steps import Role

FIRST_PAUSE_S: Final = 0.002
LONGEST_PAUSE_S: Final = 0.05


class Overtaken(Exception):
    """A safe state of the device was asked for: the watch ends without its conclusion."""


@dataclass(frozen=True)
class Finished:
    """What T2 records.

    Attributes:
        verdict: None: the outcome is unknown and the device is held.
        data: values that the read consumed.
        interrupted: a safe state ended the watch; nothing on the bus is in doubt.
        unsent: the bus proved that nothing of it reached the device.
    """

    verdict: str | None
    result: Result
    data: list[bytes]
    interrupted: bool = False
    unsent: bool = False


async def carry_out(
    intent: Intent,
    prepared: Prepared,
    clock: Clock,
    overtaken: Callable[[], bool] = lambda: False,
    keep: Callable[[list[bytes]], Awaitable[None]] = nothing_between,
) -> Finished:
    """Dispatch, watch, and say what came of it. Never raises for what the device or the bus did.

    Args:
        overtaken: whether a safe state has been asked for since this was allowed; it ends a watch, and a long burst.
        keep: puts on record what a burst has taken so far, before more is taken.
    """
    device = prepared.resolved.device

    async def between(answers: list[bytes]) -> str | None:
        if overtaken():
            return "a safe state of the device was asked for"
        if await _restarted(prepared):
            return "the device has restarted since: what it holds now are other elements"
        try:
            await keep(answers)
        except Exception as error:  # noqa: BLE001  # whatever it was, what has been taken is answered
            return f"what was taken could not be put on record: {error}"
        return None

    if prepared.resolved.kind == "safe_state":
        return await _made_safe(intent, prepared, clock, overtaken)
    sent = await dispatch(intent, device, prepared.plan, prepared.bank, prepared.returns, between)
    evidence: dict[str, Any] = {"transfers": sent.transfers, "before": _hexed(prepared.before, prepared)}
    if prepared.plan.chunks:
        evidence["chunk"] = prepared.read_rules[0].chunk
    if any(s.role is Role.CONFIRM for s in prepared.plan.steps):
        evidence["confirmed"] = sum(len(came) for came in sent.consumed.values())
    if sent.stopped is not None:
        return _stopped(intent, prepared, sent, sent.stopped, evidence)
    if prepared.resolved.kind == "read":
        return _read_finished(intent, prepared, sent, evidence)
    return await _watched(intent, prepared, sent, evidence, clock, overtaken)


async def _made_safe(intent: Intent, prepared: Prepared, clock: Clock, overtaken: Callable[[], bool]) -> Finished:
    """A safe state: every entry is sent, then those sent are watched together; the doubt of one is that of all."""
    sent = await dispatch_safe_state(intent, prepared.resolved.device, prepared.parts)
    name, total = prepared.resolved.name(), len(sent)
    entries = {
        part.register: "sent" if s.stopped is None else s.stopped.fault
        for part, s in zip(prepared.parts, sent, strict=True)
    }
    done = sum(s.stopped is None for s in sent)
    transfers = sum(s.transfers for s in sent)
    warnings = [w for s in sent for w in s.warnings]
    evidence: dict[str, Any] = {
        "transfers": transfers,
        "before": _hexed(prepared.before, prepared),
        "entries": entries,
        "accesses": {part.register: s.done for part, s in zip(prepared.parts, sent, strict=True)},
        "done": done,
        "total": total,
    }
    failed_parts = ", ".join(f"{register}: {fault}" for register, fault in entries.items() if fault != "sent")
    doubtful = [s.stopped for s in sent if isinstance(s.stopped, Ambiguous) and s.at is not Role.SELECT]
    if doubtful:
        message = f"{name}: {failed_parts}; it cannot be told whether the device acted"
        stage = doubtful[0].stage.value
        evidence |= {"how": "bus"}
        error = DomainError(
            Code.OUTCOME_UNKNOWN, message, op=intent.op_id, stage=stage, evidence=evidence, settled=False
        )
        return Finished(None, failed(error, "unknown", evidence=evidence, warnings=warnings), [])
    if done < total:
        return await _partly_safe(intent, prepared, sent, evidence, warnings, failed_parts)
    all_sent = Dispatched([], None, None, done, transfers, warnings)
    return await _watched(intent, prepared, all_sent, evidence, clock, overtaken)


def _shows_nothing(prepared: Prepared) -> bool:
    """Whether a write that was sent to its end is in doubt for all that the bus and the board say."""
    worker = prepared.resolved.device.worker
    return not worker.capabilities.acknowledges and not worker.spec.accept_unacknowledged


async def _partly_safe(
    intent: Intent,
    prepared: Prepared,
    sent: Sequence[Dispatched],
    evidence: dict[str, Any],
    warnings: list[str],
    failed_parts: str,
) -> Finished:
    """A safe state of which some entries are proved not to have been sent, or not whole; the others are looked at."""
    begun = [part.register for part, s in zip(prepared.parts, sent, strict=True) if s.done]
    seen: Seen = "open"
    targets = [t for t in prepared.targets if t.register in begun]
    try:
        now = await _look(prepared, targets)
        seen = write_seen(targets, prepared.before, now)
        evidence |= {"after": _hexed(now, prepared)}
    except DomainError as error:
        evidence |= {"fault": error.message}
    effects: Effects = "applied" if seen in ("applied", "other") else "none" if seen == "satisfied" else "unknown"
    if not begun:
        effects = "none"
    if begun and effects == "unknown" and _shows_nothing(prepared):
        evidence |= {"how": "sent"}
        message = f"{prepared.resolved.name()}: {failed_parts}; nothing shows that the others were taken"
        unshown = DomainError(
            Code.OUTCOME_UNKNOWN, message, op=intent.op_id, stage="reply", evidence=evidence, settled=False
        )
        return Finished(None, failed(unshown, "unknown", evidence=evidence, warnings=warnings), [])
    verdict = "partial" if begun else "not_applied"
    evidence |= {"how": "bus"}
    whole = sum(s.stopped is None for s in sent)
    problem = DomainError(
        Code.NOT_APPLIED,
        f"{prepared.resolved.name()}: {whole} of {len(sent)} entries were written: {failed_parts}",
        after_intent=True,
        verdict=verdict,
        done=whole,
        total=len(sent),
    )
    return Finished(verdict, failed(problem, effects, verdict=verdict, evidence=evidence, warnings=warnings), [])


def _hexed(values: Mapping[str, int], prepared: Prepared) -> dict[str, str]:
    """Values as evidence and errors show them; sensitive ones stand in the columns of the row made for them."""
    if prepared.resolved.sensitive:
        return dict.fromkeys(values, REDACTED)
    registers = prepared.resolved.device.contract.registers
    return {
        name: REDACTED if registers[name].sensitive else hexed(raw, registers[name].width_bits)
        for name, raw in values.items()
    }


def _stopped(
    intent: Intent, prepared: Prepared, sent: Dispatched, answer: Rejected | Ambiguous, evidence: dict[str, Any]
) -> Finished:
    """A plan that did not get to its end."""
    name = prepared.resolved.name()
    total = len(prepared.plan.accesses)
    values = _in_hand(prepared, sent.answers)
    if sent.at is Role.CONFIRM:
        message = f"{name}: acknowledged, but the read that would show it failed: {answer.fault}"
        stage = answer.stage.value if isinstance(answer, Ambiguous) else "watch"
        taken = [data for came in sent.consumed.values() for data in came]
        evidence |= {"how": "acknowledged"} | ({"proof": answer.proof} if isinstance(answer, Rejected) else {})
        lost = DomainError(
            Code.OUTCOME_UNKNOWN, message, op=intent.op_id, stage=stage, evidence=evidence, settled=False
        )
        return Finished(None, failed(lost, "unknown", evidence=evidence, warnings=sent.warnings), taken)
    evidence |= {"how": "bus", "fault": answer.fault, "done": sent.done, "total": total}
    if sent.at is Role.SELECT and sent.done:  # between two chunks: the next one was not begun
        answer = Rejected(f"the bank could not be selected ({answer.fault})", NOT_SENT)
    elif sent.at is Role.SELECT:
        what = "the bank" if prepared.resolved.device.way is None else "the bank, or the channel to it,"
        message = f"{name}: {what} could not be selected ({answer.fault}); the access was not sent"
        error = DomainError(Code.BUS_FAULT, message, after_intent=True, fault=answer.fault, stage="select")
        result = failed(error, "none", evidence=evidence, verdict="not_applied", warnings=sent.warnings)
        return Finished("not_applied", result, sent.answers, unsent=True)
    match answer:
        case Ambiguous(stage, fault):
            message = f"{name}: {fault}; it cannot be told whether the device acted"
            error = DomainError(
                Code.OUTCOME_UNKNOWN, message, op=intent.op_id, stage=stage.value, evidence=evidence, settled=False
            )
            return Finished(
                None, failed(error, "unknown", evidence=evidence, values=values, warnings=sent.warnings), sent.answers
            )
        case Rejected(fault, proof):
            evidence["proof"] = proof
            if sent.done and prepared.resolved.kind != "read" and _shows_nothing(prepared):
                message = f"{name}: stopped after {sent.done} of {total} transfers, which nothing acknowledges: {fault}"
                unshown = DomainError(
                    Code.OUTCOME_UNKNOWN, message, op=intent.op_id, stage="reply", evidence=evidence, settled=False
                )
                return Finished(None, failed(unshown, "unknown", evidence=evidence, warnings=sent.warnings), [])
            if sent.done:
                message = f"{name}: stopped after {sent.done} of {total} transfers: {fault}"
                error = DomainError(
                    Code.NOT_APPLIED, message, after_intent=True, verdict="partial", done=sent.done, total=total
                )
                warnings = sent.warnings
                result = failed(
                    error, "applied", evidence=evidence, verdict="partial", values=values, warnings=warnings
                )
                return Finished("partial", result, sent.answers)
            message = f"{name}: {fault}; nothing happened"
            error = DomainError(Code.BUS_FAULT, message, after_intent=True, fault=fault, stage="dispatch")
            result = failed(error, "none", evidence=evidence, verdict="not_applied", warnings=sent.warnings)
            return Finished("not_applied", result, sent.answers, unsent=True)


def _in_hand(prepared: Prepared, answers: list[bytes]) -> list[dict[str, Any]] | None:
    """The values of a read that stopped half way, as far as they came: they are gone from the device."""
    device = prepared.resolved.device
    shown = []
    for piece in prepared.plan.pieces:
        register, data = device.contract.registers[piece.register], piece.of(answers)
        whole = piece.access + piece.accesses <= len(answers) and len(data) >= piece.size_bytes
        if not whole and not prepared.plan.chunks:
            continue  # a part of a value is none
        size = len(data) if piece.size_bytes < 0 else register.size_bytes
        for i in range(0, len(data) - size + 1, max(size, 1)):
            part = data[i : i + size]
            try:
                shown.append(shown_value(device.name, register, from_bytes(register, part)))
            except ValueError:  # a wrong CRC: it is gone from the device, so it is shown as it came
                shown.append({"register": f"{device.name}.{register.name}", "raw": f"0x{part.hex()}"})
    return shown or None


def _read_finished(intent: Intent, prepared: Prepared, sent: Dispatched, evidence: dict[str, Any]) -> Finished:
    """An effectful read whose value is in hand."""
    resolved = prepared.resolved
    device = resolved.device
    try:
        found = pieces_of(prepared.plan, device.contract, sent.answers)
    except ValueError as error:
        message = f"{resolved.name()}: {error}; what was taken from the device is not known"
        unknown = DomainError(Code.OUTCOME_UNKNOWN, message, op=intent.op_id, stage="reply", settled=False)
        return Finished(None, failed(unknown, "unknown", evidence=evidence), sent.answers)
    values = []
    for register, judged in resolved.reads:
        values += [shown_value(device.name, register, raw, judged, prepared.known) for raw in found[register.name]]
    declared = not any(r.kind == "undeclared" for r in prepared.read_rules)
    shown = ", ".join(brief(r, raw) for r, _ in resolved.reads for raw in found[r.name])
    summary = f"{resolved.name()} read once" if resolved.sensitive else f"{resolved.name()} = {shown}"
    warnings = list(sent.warnings) + errata(r for r, _ in resolved.reads)
    if not declared:
        warnings.append("undeclared: nobody has said what this read does to the device")
    result = Result(
        status="done",
        ok=True,
        effects="applied" if declared else "unknown",
        verdict="applied",
        summary=summary,
        values=values,
        evidence=evidence | {"how": "value"},
        warnings=warnings,
    )
    return Finished("applied", result, sent.answers)


async def _watched(
    intent: Intent,
    prepared: Prepared,
    sent: Dispatched,
    evidence: dict[str, Any],
    clock: Clock,
    overtaken: Callable[[], bool],
) -> Finished:
    """Watch an acknowledged write until the first conclusive observation, or the end of its window."""
    resolved = prepared.resolved
    device = resolved.device
    seen: Seen = "open"
    now: dict[str, int] = {}
    try:
        consumed = {name: confirmed_values(device.contract, name, data) for name, data in sent.consumed.items()}
    except ValueError as error:
        message = f"{resolved.name()}: acknowledged, but the read that would show it brought no value: {error}"
        odd = DomainError(
            Code.OUTCOME_UNKNOWN, message, op=intent.op_id, stage="watch", evidence=evidence, settled=False
        )
        return Finished(None, failed(odd, "unknown", evidence=evidence, warnings=sent.warnings), [])
    confirmed = {name: values[-1] for name, values in consumed.items()}
    if confirmed:
        now = confirmed
        seen = write_seen(prepared.targets, prepared.before, now)
    if prepared.verifiable:
        try:
            seen, now = await _watch(prepared, clock, overtaken, confirmed)
        except Overtaken:
            evidence |= {"how": "interrupted", "watched": True}
            message = f"{resolved.name()}: acknowledged; a safe state of the device ended the watch"
            ended = DomainError(
                Code.OUTCOME_UNKNOWN, message, op=intent.op_id, stage="watch", evidence=evidence, settled=False
            )
            result = failed(ended, "unknown", evidence=evidence, warnings=sent.warnings)
            return Finished(None, result, [], interrupted=True)
        except DomainError as error:
            evidence |= {"how": "acknowledged", "fault": error.message}
            message = f"{resolved.name()}: acknowledged, but the read-back failed: {error.message}"
            unknown = DomainError(
                Code.OUTCOME_UNKNOWN, message, op=intent.op_id, stage="watch", evidence=evidence, settled=False
            )
            return Finished(None, failed(unknown, "unknown", evidence=evidence, warnings=sent.warnings), [])
    may_restart = any(c.judged.resets for c in resolved.changes)
    if seen in ("unchanged", "other", "missed") and not may_restart and await _restarted(prepared):
        evidence |= {"how": "restarted", "watched": True, "after": _hexed(now, prepared)}
        message = f"{resolved.name()}: acknowledged, and the device restarted since: what it holds now tells nothing"
        gone = DomainError(
            Code.OUTCOME_UNKNOWN, message, op=intent.op_id, stage="watch", evidence=evidence, settled=False
        )
        return Finished(None, failed(gone, "unknown", evidence=evidence, warnings=sent.warnings), [])
    alone = device.worker.spec.sole_master and is_plain(prepared.targets)
    taken = "acknowledged" if device.worker.capabilities.acknowledges else "sent"
    verdict = conclude(seen, prepared.verifiable, alone, taken)
    if confirmed and seen == "open":
        verdict = Verdict("applied", "unknown", "what shows it is as asked for; what it was before is not known")
    if may_restart and await _restarted(prepared):
        verdict = Verdict("applied", "applied", "the device restarted")
    by_read_back = any(t.observe for t in prepared.targets)
    how = ("read_back" if by_read_back else "signal") if verdict.effects != "unknown" else taken
    evidence |= {
        "how": how,
        "watched": prepared.verifiable,
        "window_ms": prepared.window_ms if prepared.verifiable else 0,
        "after": _hexed(now, prepared),
    }
    if how == "sent" and verdict.verdict == "applied" and not confirmed and _shows_nothing(prepared):
        message = f"{resolved.name()}: sent on a bus that acknowledges nothing, and nothing shows that it was taken"
        unshown = DomainError(
            Code.OUTCOME_UNKNOWN, message, op=intent.op_id, stage="reply", evidence=evidence, settled=False
        )
        return Finished(None, failed(unshown, "unknown", evidence=evidence, warnings=sent.warnings), [])
    result = _write_result(prepared, verdict, now, sent, evidence)
    for name, elements in consumed.items():  # what was consumed is the caller's: nobody can read it again
        shown = device.contract.registers[name]
        result.values = [*(result.values or []), *(shown_value(device.name, shown, raw) for raw in elements)]
    return Finished(verdict.verdict, result, [data for came in sent.consumed.values() for data in came])


async def _restarted(prepared: Prepared) -> bool:
    """Whether the device says that it is not the one it was before the dispatch."""
    device = prepared.resolved.device
    return restart_between(prepared.boot, await device.testify()) == "reset"


async def _watch(
    prepared: Prepared, clock: Clock, overtaken: Callable[[], bool], confirmed: Mapping[str, int]
) -> tuple[Seen, dict[str, int]]:
    deadline_s = clock.monotonic_s() + prepared.window_ms / 1000
    pause_s = FIRST_PAUSE_S
    while True:
        now = {**confirmed, **await _look(prepared, prepared.targets)}
        seen = write_seen(prepared.targets, prepared.before, now)
        watched = [t for t in prepared.targets if not t.confirms]  # what was consumed to show it says no more
        rest_s = deadline_s - clock.monotonic_s()
        if is_conclusive(watched, prepared.before, now) or rest_s <= 0:
            return seen, now
        if overtaken():
            raise Overtaken
        await clock.sleep(min(pause_s, rest_s))
        pause_s = min(2 * pause_s, LONGEST_PAUSE_S)


async def _look(prepared: Prepared, targets: Sequence[Target]) -> dict[str, int]:
    """What the observables of some targets hold now."""
    device = prepared.resolved.device
    names = {t.observe for t in targets if t.observe and not t.confirms} | {s.name for t in targets for s in t.signals}
    registers = [device.contract.registers[name] for name in sorted(names)]
    await check_read_gates(device, registers)  # the write may have closed one
    return {register.name: await device.read(register) for register in registers}


def _write_result(
    prepared: Prepared, verdict: Verdict, now: Mapping[str, int], sent: Dispatched, evidence: dict[str, Any]
) -> Result:
    resolved = prepared.resolved
    device = resolved.device
    summary = _summary(prepared, verdict, now)
    values = []
    for change in resolved.changes:
        observed = now.get(change.register.name)
        if observed is None and not change.writes_whole:
            continue  # only a part of it was written, and nothing was read: nobody knows the whole
        raw = observed if observed is not None else prepared.values[change.register.name]
        values.append(shown_value(device.name, change.register, raw, None, prepared.known))
    warnings = list(sent.warnings)
    if verdict.verdict == "not_applied":
        expected = _hexed(prepared.values, prepared)
        error = DomainError(
            Code.NOT_APPLIED,
            summary,
            after_intent=True,
            verdict="not_applied",
            expected=expected,
            observed=_hexed(now, prepared),
            done=sent.done,
            total=sent.done,
        )
        return failed(
            error, verdict.effects, verdict="not_applied", values=values, evidence=evidence, warnings=warnings
        )
    if verdict.effects == "unknown":
        warnings.append("unverified: " + verdict.why)
    written = {c.register.name for c in resolved.changes}
    for change in resolved.changes:
        for commit in change.judged.not_before:
            if commit not in written:
                told = f"{change.register.name} takes effect when {device.name}.{commit} is written"
                warnings.append(f"not_in_effect_yet: {told}")
    return Result(
        status="done",
        ok=True,
        effects=verdict.effects,
        verdict=verdict.verdict,
        summary=summary,
        values=values,
        evidence=evidence,
        warnings=warnings + errata(c.register for c in resolved.changes),
    )


def _summary(prepared: Prepared, verdict: Verdict, now: Mapping[str, int]) -> str:
    """One line: register, before, wanted, and what was seen; without values where they are sensitive."""
    resolved = prepared.resolved
    if resolved.sensitive:
        return f"{resolved.name()} written; {verdict.why}"
    parts = []
    for change in resolved.changes:
        name = change.register.name
        p = prepared.before.get(name)
        arrow = f"{brief(change.register, p)} -> " if p is not None else ""
        if p is None and not change.writes_whole:
            arrow = f"bits {change.mask or 0:#x}: "
        parts.append(f"{name} {arrow}{brief(change.register, prepared.values[name])}")
    seen = ", ".join(f"{n} reads {brief(resolved.device.contract.registers[n], v)}" for n, v in now.items())
    return f"{resolved.device.name}: {'; '.join(parts)}; {verdict.why}" + (f" ({seen})" if seen else "")
