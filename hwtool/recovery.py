"""Recovery: what becomes of operations whose outcome is unknown, after a crash or an ambiguous answer.

Reads the row only, never the contract of the day. Observes by clean reads that the row itself names; a banked
observable is read only if its selectors stand right already (nothing is written here), a gated one only if its gate
is open. What no rule can tell waits for a person, and the device stays held.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Any, Literal

from hwtool.answers import row_effects, row_name
from hwtool.devices import Device
from hwtool.generation import boot_evidence, record_orphan
from hwtool.outcome import (
    NeedsPerson,
    StepOutcome,
    Verdict,
    read_rules_of,
    sequence_ended,
    targets_of,
)
from hwtool.prepare import check_identity
from hwtool.reconciliation import settle_read, settle_write
from hwtool.restarts import Restart, restart_between
from hwtool.results import OK_VERDICTS, failed, settled_error, to_row
from hwtool.state import Daemon
from hwtool_contracts.errors import DomainError
from hwtool_contracts.messages import Result
from hwtool_registers.bits import Layout, from_bytes, hexed
from hwtool_registers.bus import Confirmed, RegisterWrite, from_object
from hwtool_store import operations
from hwtool_store.database import Connection
from hwtool_store.operations import OpRow

NoteOf = Callable[[OpRow, "Settlement", Literal["rule", "human"]], dict[str, Any]]


class CannotObserve(Exception):
    """An observable could not be read cleanly now."""


def facts(row: OpRow) -> dict[str, Any]:
    """Plan, observables and rules of a row: of its request, or of its pre-image where a person approved it first."""
    granted: dict[str, Any] | None = (row.pre or {}).get("request")
    return granted if granted is not None else row.request


async def observe(row: OpRow, device: Device) -> dict[str, int]:
    """Read the observables of a row.

    Raises:
        CannotObserve: the bus did not answer, a bank is not selected, or a gate is closed.
        DomainError: the bus is quarantined or wedged.
    """
    now = {}
    for name, shown in facts(row)["observables"].items():
        if device.switches and device.contract.mux is not None and name == device.contract.mux.register:
            raise CannotObserve(f"{name} is written before each access to a device behind {device.name}")
        async with device.on_bus:  # for each by itself: a safe state must not wait for all of them
            kept = await device.reach()
            if kept is not None:
                raise CannotObserve(kept.fault)
            for required in shown["requires"]:
                held, value = await _read(required, device) & required["mask"], required["value"]
                if value is None and not held:
                    raise CannotObserve(f"{name} is behind a gate that is closed")
                if value is not None and held != value:
                    raise CannotObserve(f"{name} is in a bank that is not selected, or behind a gate that is closed")
            now[name] = await _read(shown, device)
    return now


async def _read(shown: dict[str, Any], device: Device) -> int:
    data = b""
    for one in (shown["transfer"], *shown.get("further", ())):
        transfer = from_object(one)
        if isinstance(transfer, RegisterWrite):
            raise CannotObserve("the row names no clean read")
        answer = await device.worker.read_clean(transfer)
        if not isinstance(answer, Confirmed):
            raise CannotObserve(answer.fault)
        data += answer.data
    layout = Layout.from_object(shown["layout"])
    if "start" in shown:  # the access is wider than the register
        data = data[shown["start"] : shown["start"] + layout.size_bytes]
    try:
        return from_bytes(layout, data)
    except ValueError as error:
        raise CannotObserve(str(error)) from error


def decide(row: OpRow, now: dict[str, int] | None, restart: Restart, kept: int) -> Verdict | NeedsPerson:
    """Apply the rules of a row to what is observed now; `kept`: elements of a burst that are on record."""
    overtaken_by = (row.evidence or {}).get("overtaken_by")
    if overtaken_by is not None:
        return NeedsPerson(f"safe state {overtaken_by} was sent since: what the registers hold now is its doing")
    before: dict[str, int] = (row.pre or {}).get("values", {})
    if row.kind == "read":
        rules, alone = read_rules_of(facts(row)["reads"]), facts(row)["sole_master"]
        return settle_read(rules, before, now, restart, alone, kept)
    targets = targets_of(facts(row)["targets"])
    return settle_write(targets, before, now, restart, facts(row)["sole_master"])


async def try_rules(daemon: Daemon, row: OpRow, device: Device) -> Verdict | NeedsPerson:
    """Observe, then decide; a bus that cannot be used leaves the operation to a person or to a later try.

    Whether the device has restarted is asked again after the observation: a restart just before it has set back what
    was looked at, and the word from before knows nothing of it.
    """
    if device.mux is not None and (held := device.mux.held()) is not None:
        return NeedsPerson(f"{device.mux.name} would be written for this look: {held.message}")
    kept = len(await kept_values(daemon, row))
    first = decide(row, None, restart_of(row, await boot_evidence(daemon, device)), kept)
    if isinstance(first, Verdict):
        return first  # no observation is needed: undeclared reads, registers that a reset set back
    try:
        await check_identity(device)
    except DomainError as error:
        return NeedsPerson(f"it is not known which device is there: {error.message}")
    await daemon.clock.sleep(facts(row).get("rest_ms", 0) / 1000)  # a page that is being written is neither old nor new
    try:
        now = await observe(row, device)
    except CannotObserve as error:
        return NeedsPerson(f"the registers that would show it could not be read: {error}")
    return decide(row, now, restart_of(row, await boot_evidence(daemon, device)), kept)


async def kept_values(daemon: Daemon, row: OpRow) -> list[dict[str, Any]]:
    """What an unfinished burst has put on record, as results show it."""
    reads = facts(row).get("reads") or []
    if row.kind != "read" or len(reads) != 1 or reads[0].get("element") is None:
        return []
    data = b"".join(await daemon.ask(lambda conn: operations.data_of(conn, row.op_id)))
    layout, name = Layout.from_object(reads[0]["element"]), f"{row.request['device']}.{reads[0]['register']}"
    size = max(layout.size_bytes, 1)
    whole = [data[at : at + size] for at in range(0, len(data) - size + 1, size)]
    return [{"register": name, "raw": _raw(layout, one)} for one in whole]


def _raw(layout: Layout, data: bytes) -> str:
    try:
        return hexed(from_bytes(layout, data), layout.width_bits)
    except ValueError:  # a wrong CRC: nobody can ask for it again, so it is shown as it came
        return "0x" + data.hex()


def restart_of(row: OpRow, evidence: str | None) -> Restart:
    """What the boot evidence before the dispatch and now say together."""
    return restart_between((row.pre or {}).get("boot"), evidence)


@dataclass(frozen=True)
class Settlement:
    """A verdict with everything T3 needs."""

    verdict: str
    result: Result
    why: str


def settlement(row: OpRow, verdict: Verdict, how: str, kept: Sequence[dict[str, Any]] = ()) -> Settlement:
    """The result that an operation answers from its settlement on; `kept`: values of it that are on record."""
    why = f"{row_name(row)}: {verdict.why}"
    count = sum(r["count"] for r in facts(row).get("reads", []))
    chunk = min((r.get("chunk") or r["count"] for r in facts(row).get("reads", [])[:1]), default=count)
    at_most = min(chunk, count - len(kept)) if len(facts(row).get("reads", [])) == 1 else count
    bound = None if not count else f"0..{at_most}" if verdict.lost is None else str(verdict.lost)
    evidence = {**(row.evidence or {}), "how": how, "settled": verdict.why}
    error = settled_error(verdict.verdict, row.op_id, why, bound=bound)
    values = (row.response or {}).get("values") or list(kept) or _peeked(row, verdict)
    if error is not None:
        result = failed(error, verdict.effects, verdict=verdict.verdict, evidence=evidence)
    else:
        result = Result(
            status="done",
            ok=verdict.verdict in OK_VERDICTS,
            effects=verdict.effects,
            verdict=verdict.verdict,
            summary=why,
            evidence=evidence,
        )
    result.values = values
    return Settlement(verdict.verdict, result, why)


def _peeked(row: OpRow, verdict: Verdict) -> list[dict[str, Any]] | None:
    """The value of a read that is settled as done, as it was peeked before the dispatch."""
    if row.kind != "read" or verdict.verdict != "applied":
        return None
    (rule,) = read_rules_of(facts(row)["reads"])
    if rule.peek is None:
        return None
    lsb = (rule.peek_mask & -rule.peek_mask).bit_length() - 1
    width = rule.peek_mask.bit_length() - lsb
    raw = ((row.pre or {})["values"][rule.peek] & rule.peek_mask) >> lsb
    return [{"register": f"{row.request['device']}.{rule.register}", "raw": hexed(raw, width), "peeked": rule.peek}]


async def run_rules(daemon: Daemon, op_id: int, body: NoteOf, *, at_the_head: bool = False) -> NeedsPerson | None:
    """Try to settle one unknown operation by rule; answers why a person is needed, None if it is settled.

    Args:
        at_the_head: the caller has the device's turn already.

    Raises:
        DomainError: the store has failed, or the bus is shut.
        StoreRule: somebody else has settled it, or a safe state has overtaken it, meanwhile.
    """
    found = await daemon.ask(lambda conn: operations.get(conn, op_id))
    if found is None or found.state != "UNKNOWN":
        return None
    if found.kind == "sequence":
        steps = await daemon.ask(lambda conn: operations.children(conn, op_id))
        for step in steps:
            if step.state == "UNKNOWN":
                await run_rules(daemon, step.op_id, body, at_the_head=at_the_head)
        return await _end_sequence(daemon, found, body)
    device = daemon.device_at(found.locus)
    if device is None:
        return NeedsPerson("its device is not on the board any more")
    if at_the_head:
        return await _rules_at_the_head(daemon, op_id, device, body)
    async with device.lock:
        return await _rules_at_the_head(daemon, op_id, device, body)


async def _rules_at_the_head(daemon: Daemon, op_id: int, device: Device, body: NoteOf) -> NeedsPerson | None:
    # somebody may have settled it while this waited for the device
    row = await daemon.ask(lambda conn: operations.get(conn, op_id))
    if row is None or row.state != "UNKNOWN":
        return None
    verdict = await try_rules(daemon, row, device)
    if isinstance(verdict, NeedsPerson):
        return verdict
    await settle(daemon, row, verdict, "rule", body)
    return None


async def _end_sequence(daemon: Daemon, header: OpRow, body: NoteOf) -> NeedsPerson | None:
    """A header has no rule of its own: it ends when none of its steps is open."""

    def job(conn: Connection) -> int | None:
        open_steps = [c.op_id for c in operations.children(conn, header.op_id) if c.state in ("INTENT", "UNKNOWN")]
        if not open_steps:
            _close_header(conn, daemon, header.op_id, body)
        return open_steps[0] if open_steps else None

    open_step = await daemon.ask(job)
    daemon.tell()
    return None if open_step is None else NeedsPerson(f"it ends by itself when operation {open_step}, its step, does")


def _close_header(conn: Connection, daemon: Daemon, header_id: int, body: NoteOf) -> None:
    """In the transaction that has settled a step: end its header by rule, if no step of it is open."""
    header = operations.get(conn, header_id)
    if header is None or header.state != "UNKNOWN":
        return
    steps = operations.children(conn, header_id)
    if any(s.state in ("INTENT", "UNKNOWN") for s in steps):
        return
    outcomes = [
        StepOutcome(operations.step_number(s), s.verdict, row_effects(s), s.verdict in OK_VERDICTS) for s in steps
    ]
    verdict = sequence_ended(header.request["steps"], outcomes)
    ended = settlement(header, verdict, "rule")
    ended.result.id = header_id
    told = [
        {"step": o.number, "id": s.op_id, "verdict": o.verdict, "effects": o.effects}
        for o, s in zip(outcomes, steps, strict=True)
    ]
    evidence = {**(ended.result.evidence or {}), "steps": told}
    ended.result.values = [
        {**value, "step": operations.step_number(s)} for s in steps for value in (s.response or {}).get("values") or []
    ] or None
    ended.result.simulated = all(d.simulated for d in daemon.devices_of(header))
    response, now_ns = to_row(daemon.dressed(ended.result)), daemon.clock.wall_ns()
    operations.t3_settle(
        conn, header_id, verdict.verdict, "rule", response, evidence, now_ns, body(header, ended, "rule")
    )


async def settle(
    daemon: Daemon, row: OpRow, verdict: Verdict, by: Literal["rule", "human"], body: NoteOf
) -> Settlement:
    """T3: end an unknown operation, free its device of it, and end the sequence it was the last open step of.

    Raises:
        DomainError: the store has failed.
        StoreRule: it is not unknown any more, or only a person may settle it.
    """
    device = daemon.device_at(row.locus)
    kept = await kept_values(daemon, row)
    ended = settlement(row, verdict, "rule" if by == "rule" else "person", kept)
    ended.result.id = row.op_id
    response = to_row(daemon.dressed(ended.result, device))
    evidence = ended.result.evidence or {}
    now_ns = daemon.clock.wall_ns()
    note = body(row, ended, by)

    def job(conn: Connection) -> None:
        operations.t3_settle(conn, row.op_id, verdict.verdict, by, response, evidence, now_ns, note)
        if row.parent_op is not None:
            _close_header(conn, daemon, row.parent_op, body)

    await daemon.ask(job)
    if device is not None:
        device.mark_settled(row.op_id)
    daemon.tell()
    return ended


def orphans(daemon: Daemon, note: Callable[[OpRow], dict[str, Any]]) -> Callable[[Connection], list[OpRow]]:
    """A job for the store: every intent of an older epoch becomes unknown; answers all unknown operations."""

    def job(conn: Connection) -> list[OpRow]:
        epoch = operations.current_epoch(conn)
        for row in operations.in_state(conn, "INTENT"):
            if row.epoch < epoch:
                evidence = {"how": "crash", "epoch": row.epoch}
                if row.kind == "sequence":
                    begun = [c.op_id for c in operations.children(conn, row.op_id) if c.state != "DONE"]
                    evidence |= {"op": begun[-1]} if begun else {}
                operations.to_unknown(conn, row.op_id, {}, evidence, note(row))
                record_orphan(daemon, conn, row, facts(row), daemon.clock.wall_ns())
        return operations.in_state(conn, "UNKNOWN")

    return job
