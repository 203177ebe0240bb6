"""Rehearsals: the real path up to the intent, and the exact transfers; nothing is dispatched, no key is used."""

from __future__ import annotations

import hashlib
import json
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace

from hwtool.admission import Request, admit, understood
from hwtool.budget import approval_of
from hwtool.generation import refresh_boot
from hwtool.permission import check_values
from hwtool.prepare import Prepared, plan_object, prepare, prepare_safe_state
from hwtool.resolve import Change, Resolved
from hwtool.results import failed
from hwtool.state import Daemon
from hwtool.steps import ResolvedSequence
from hwtool_contracts.effects import Reconcile
from hwtool_contracts.errors import DomainError
from hwtool_contracts.messages import Result
from hwtool_registers.plan import selectors
from hwtool_store import operations


def plan_digest(prepared: Sequence[Prepared]) -> str:
    """What a person saw when approving: the exact transfers."""
    text = json.dumps([plan_object(p.plan) for p in prepared], sort_keys=True)
    return hashlib.sha256(text.encode()).hexdigest()


def untouched(resolved: Resolved) -> list[str]:
    """Fields of the registers written that keep their state."""
    return [
        f"{c.register.name}.{name}"
        for c in resolved.changes
        if c.update is not None
        for name in c.register.fields
        if name not in c.fields
    ]


@dataclass(frozen=True)
class Rehearsed:
    """What a request would do: one prepared operation, or one for each step of a sequence that has an effect."""

    prepared: tuple[Prepared, ...]
    warnings: tuple[str, ...] = ()


async def rehearsed(resolved: Resolved | ResolvedSequence) -> Rehearsed:
    """Prepare a request as the devices are now; a later step of a sequence may depend on an earlier one.

    Raises:
        DomainError: refused, or the bus's error of a clean read.
    """
    if isinstance(resolved, Resolved):
        prepare_it = prepare_safe_state if resolved.kind == "safe_state" else prepare
        return Rehearsed((await prepare_it(resolved),))
    prepared, warnings = [], []
    left = Left()
    for step in resolved.effectful:
        if step.keyed is None:
            continue
        device = step.device.name
        try:
            made = await prepare(step.keyed, left.assumed(device))
        except DomainError as error:
            if step is resolved.effectful[0]:
                error.message = f"{step.name()}: {error.message}"
                raise
            warnings.append(f"depends_on_earlier: {step.name()}, as the device is now: {error.message}")
            continue
        moved = left.moved(device, made)
        if moved:
            told = f"{', '.join(moved)} may hold something else by then"
            warnings.append(f"depends_on_earlier: {step.name()}, as the device is now: {told}")
        left.learn(device, made)
        prepared.append(made)
    return Rehearsed(tuple(prepared), tuple(warnings))


class Left:
    """What the steps of a sequence so far would leave behind, as far as contracts say."""

    def __init__(self) -> None:
        self._stored: dict[str, dict[str, int]] = {}
        self._unsure: dict[str, set[str]] = {}

    def assumed(self, device: str) -> Mapping[str, int]:
        """Registers whose contents follow from a plain store of an earlier step."""
        return self._stored.get(device, {})

    def moved(self, device: str, made: Prepared) -> list[str]:
        """What this step looks at that an earlier one may have changed in a way that cannot be told beforehand."""
        banks = [s.name for r in made.resolved.registers for s in selectors(made.resolved.device.contract, r)]
        written = set(banks) & set(self._stored.get(device, {}))
        return sorted((set(made.before) & self._unsure.get(device, set())) | written)

    def learn(self, device: str, made: Prepared) -> None:
        """Add a step."""
        stored, unsure = self._stored.setdefault(device, {}), self._unsure.setdefault(device, set())
        for change in made.resolved.changes:
            register = change.register
            plain_store = change.judged.reconcile is Reconcile.COMPARE and not register.volatile
            plain = plain_store and change.update is None
            known = plain_store and register.name in made.before
            specs = [register.write, *(f.write for f in register.fields.values())]
            affected = {a.partition(".")[0] for spec in specs for a in spec.affects}
            affected |= {s.register.partition(".")[0] for spec in specs for s in spec.signals}
            if (plain or known) and reads_back(made, change):
                stored[register.name] = made.values[register.name]
                unsure.discard(register.name)
            else:
                stored.pop(register.name, None)
                unsure.add(register.name)
            for name in affected:
                stored.pop(name, None)
                unsure.add(name)
        for register, _ in made.resolved.reads:
            for name in (register.name, *(a.partition(".")[0] for a in register.read.affects)):
                stored.pop(name, None)
                unsure.add(name)


def reads_back(made: Prepared, change: Change) -> bool:
    """Whether a register is sure to show what was stored: bits that nothing vouches for are written as they were."""
    name = change.register.name
    loose = change.register.mask & ~sum(t.strong for t in made.targets if t.register == name)
    return not loose or (name in made.before and not (made.before[name] ^ made.values[name]) & loose)


async def rehearse(daemon: Daemon, request: Request) -> Result:
    """The real path up to the intent, and the exact transfers; nothing is dispatched, no key is used."""
    try:
        if request.error is not None:
            raise request.error
        resolved = understood(request)
        await admit(daemon, request, resolved.devices)
        for index, device in enumerate(resolved.devices):  # all on one bus: it is asked once
            device.worker.check()
            if index == 0 and not request.safe:
                device.worker.admit()
            await refresh_boot(daemon, device)
        found = await rehearsed(resolved)
        for made in found.prepared:
            check_values(daemon.board.policy, request.caller, made.resolved, made.values, made.known)
        request = replace(request, approval=await approval_of(daemon, request, resolved))
    except DomainError as error:
        result = failed(error, "none", key=request.params.key)
    else:
        result = _shown(request, resolved, found, read_only=daemon.read_only and not request.safe)
    result.dry_run = result.simulated = True
    body = daemon.body("rehearsal", request.caller, request.resolved, dry_run=True, summary=result.summary)
    await daemon.ask(lambda conn: operations.note(conn, body))
    return daemon.dressed(result, request.device)


def _shown(request: Request, resolved: Resolved | ResolvedSequence, found: Rehearsed, *, read_only: bool) -> Result:
    warnings = [f"needs_approval: {why}" for why in request.approval] + list(found.warnings)
    warnings += ["read_only: the request itself would be denied"] if read_only else []
    many = len(found.prepared) > 1 or any(p.plan.may_be_partial for p in found.prepared)
    if many:
        warnings.append("may_be_partial: several transfers; it can stop with part of it done")
    faults = [f"{p.register}: {p.fault}" for whole in found.prepared for p in whole.parts if p.fault is not None]
    warnings += [f"not_sent: {fault}" for fault in faults]
    transfers = [t for p in found.prepared for t in plan_object(p.plan)]
    return Result(
        status="done",
        ok=True,
        effects="none",
        key=request.params.key,
        summary=f"{resolved.name()}: would send {len(transfers)} transfer(s); nothing was sent",
        transfers=transfers,
        evidence={
            "implied_reads": sorted({name for p in found.prepared for name in p.before}),
            "untouched": [name for p in found.prepared for name in untouched(p.resolved)],
            "window_ms": sum(p.window_ms for p in found.prepared if p.verifiable),
        },
        warnings=warnings,
    )
