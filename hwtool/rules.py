"""The inputs of the rules: from a contract to what the row of an operation keeps, so that it can be settled by it.

Everything that recovery will need stands in the row: how each observable is read, what its bank and gates require,
what each register written should come to, how each register read may be settled. Pure; nothing here reads a device.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from typing import Any, Final

import msgspec

from hwtool.devices import Device
from hwtool.outcome import ReadRule, SignalRule, Target
from hwtool.resolve import Change
from hwtool_contracts.effects import SET_LIKE, ReadEffect, Reconcile, WriteEffect
from hwtool_contracts.errors import Code, DomainError
from hwtool_contracts.expect import acting_bits, expectation
from hwtool_contracts.judge import ReadJudgement
from hwtool_contracts.memories import is_range
from hwtool_contracts.model import Field, Persistence, Register, Signal
from hwtool_contracts.places import find_place, find_register, gate_of
from hwtool_registers.bits import Layout
from hwtool_registers.bus import as_object
from hwtool_registers.plan import chunk_of, read_transfers

# effects of a read whose loss can be reported with a bound (docs/operations.md, on_loss); the others set things off
REPORTABLE: Final = frozenset({ReadEffect.CLEAR, ReadEffect.RELATCH, ReadEffect.POP, ReadEffect.ACK, ReadEffect.SET})


def observable(device: Device, name: str) -> dict[str, Any]:
    """How to read an observable without its contract: transfers, layout, and what its bank and gates require."""
    register = device.contract.registers[name]
    address = device.spec.address

    def how_to_read(target: Register) -> dict[str, Any]:
        transfers, start = read_transfers(device.contract, address, target)
        first, *further = (as_object(t) for t in transfers)
        shown: dict[str, Any] = {"transfer": first, "layout": Layout.of(target).as_object()}
        if further:
            shown["further"] = further
        return shown if target.shared_bytes is None else shown | {"start": start}

    def selected(bank: str | None) -> list[dict[str, Any]]:
        chosen = [] if bank is None else device.contract.banks[bank].select
        return [how_to_read(device.contract.registers[s.register]) | {"mask": s.mask, "value": s.value} for s in chosen]

    requires = selected(register.bank)
    for gate in gates_of_read(device, [register]):
        name, wanted = gate_of(gate)
        place = find_place(device.contract, name, register)
        if place is None:
            raise DomainError(Code.INTERNAL, f"the contract of {device.name} names {gate}, which it does not have")
        holder, part = place
        mask = holder.mask if part is None else part.mask
        value = None if wanted is None else wanted if part is None else part.placed(wanted)
        requires += [*selected(holder.bank), how_to_read(holder) | {"mask": mask, "value": value}]  # None: not 0
    return how_to_read(register) | {"requires": requires}


def gates_of_read(device: Device, registers: Iterable[Register]) -> dict[str, Register]:
    """The gates of clean reads, each with a register behind it."""
    judged = [(r, device.judge((r,))) for r in registers]
    return {gate: r for r, j in judged if isinstance(j, ReadJudgement) for gate in j.gates}


def observed_register(change: Change, device: Device) -> Register | None:
    """The register whose read-back shows a write, None if nothing does."""
    verify = change.judged.verify
    if verify.by != "read_back" or verify.consumes:
        return None
    if verify.register is None:
        return change.register
    return find_register(device.contract, verify.register, change.register)


def confirming_register(change: Change, device: Device) -> Register | None:
    """The register that is consumed, once, to show a write; None where nothing is consumed for it."""
    verify = change.judged.verify
    if not verify.consumes or verify.register is None:
        return None
    return find_register(device.contract, verify.register, change.register)


def signal_place(signal: Signal, beside: Register, device: Device) -> tuple[Register, Field | None]:
    """Where a declared consequence shows.

    Raises:
        DomainError: internal; the contract names what it has not.
    """
    place = find_place(device.contract, signal.register, beside)
    if place is None:
        raise DomainError(Code.INTERNAL, f"the contract of {device.name} names {signal.register}, which it has not")
    return place


def target_of(change: Change, value: int, before: Mapping[str, int], device: Device) -> Target:
    """What one register of a write should come to, and how that shows."""
    register = change.register
    confirming = confirming_register(change, device)
    observed = observed_register(change, device) if confirming is None else confirming
    verify_mask = change.judged.verify.mask
    unseen = False
    if confirming is not None:
        # hardware sets what is consumed: the contract says that it shows the write all the same
        strong = verify_mask if verify_mask is not None else register.mask & confirming.mask
        strong, wanted = _shown_elsewhere(change.judged.effect, value, strong, None)
        weak = toggles = 0
    elif observed is None:
        strong = weak = toggles = wanted = 0
    elif observed.name != register.name:
        strong = (verify_mask if verify_mask is not None else register.mask & observed.mask) & ~_volatile(observed)
        strong, wanted = _shown_elsewhere(change.judged.effect, value, strong, before.get(observed.name))
        weak = toggles = 0
    else:
        expected = expectation(register, value, before.get(register.name))
        limit = verify_mask if verify_mask is not None else register.mask
        if change.update is not None and change.update.by != "value":
            limit &= change.mask or 0  # the neighbours are not written
        elif register.write_mask:
            limit &= (value & register.write_mask) >> (register.width_bits // 2)  # the half says what is written
        strong, weak, toggles = expected.strong & limit, expected.weak & limit, expected.toggles & limit
        wanted = expected.value & strong
        meant = acting_bits(register, value) & (register.mask if change.mask is None else change.mask)
        unseen = bool(meant & ~(strong | weak | toggles))
    reset, reset_known = _reset_of(observed if observed is not None else register)
    if _stored_elsewhere(change):
        # hardware may move set, clear and lock bits: their read-back proves, but a reset is not told from it
        reset_known = 0
    if confirming is not None:
        reset_known = 0
    return Target(
        register=register.name,
        observe=None if observed is None else observed.name,
        wanted=wanted,
        strong=strong,
        weak=weak,
        toggles=toggles,
        named=strong if change.mask is None else strong & change.mask,
        reset=reset,
        reset_known=reset_known,
        reconcile=_reconcile(change).value,
        persistent=register.persistence is Persistence.NONVOLATILE,
        signals=tuple(_signal_rule(s, register, device) for s in change.judged.signals),
        tolerance=change.judged.verify.tolerance,
        confirms=confirming is not None,
        write_only=not register.access.readable,
        unseen=unseen,
    )


def _reconcile(change: Change) -> Reconcile:
    """The rule of a write: what its effect says, but that a range of a memory can be torn."""
    torn = change.judged.reconcile is Reconcile.COMPARE and is_range(change.register)
    return Reconcile.PAGE if torn else change.judged.reconcile


def _shown_elsewhere(effect: WriteEffect, value: int, strong: int, before: int | None) -> tuple[int, int]:
    """The bits of another register that show a write, and what they should hold.

    A write of ones that sets, clears or toggles says something of the bits that are ones alone.
    """
    match effect:
        case WriteEffect.ONE_TO_SET:
            return strong & value, strong & value
        case WriteEffect.ONE_TO_CLEAR:
            return strong & value, 0
        case WriteEffect.ONE_TO_TOGGLE:
            return (0, 0) if before is None else (strong & value, (before ^ value) & strong & value)
        case _:
            return strong, value & strong


def _volatile(register: Register) -> int:
    """Bits that hardware changes by itself: no evidence."""
    bits, covered = 0, 0
    for part in register.fields.values():
        covered |= part.mask
        bits |= part.mask if part.volatile else 0
    return bits | (register.mask & ~covered if register.volatile else 0)


def _stored_elsewhere(change: Change) -> bool:
    return change.judged.effect in SET_LIKE - {WriteEffect.LOCK}


def _signal_rule(signal: Signal, beside: Register, device: Device) -> SignalRule:
    register, part = signal_place(signal, beside, device)
    mask = register.mask if part is None else part.mask
    volatile = register.volatile if part is None else part.volatile
    return SignalRule(register.name, mask, signal.delta, signal.equals, volatile)


def _reset_of(register: Register) -> tuple[int, int]:
    """The declared reset value and the bits for which it is declared."""
    whole = register.mask if register.reset_mask is None else register.reset_mask
    value, known = (register.reset, whole) if register.reset is not None else (0, 0)
    for part in register.fields.values():
        if part.reset is not None:
            value = (value & ~part.mask) | part.placed(part.reset)
            known |= part.mask
    return value, known


def read_rule(register: Register, effects: frozenset[ReadEffect], count: int, device: Device) -> ReadRule:
    """How a read with these effects may be settled."""
    return msgspec.structs.replace(
        _read_rule(register, effects, count, device),
        reports=device.spec.report_loss and effects <= REPORTABLE | {ReadEffect.NONE},
        chunk=min(count, chunk_of(register, device.worker.longest_read_bytes)),
        element=Layout.of(register).as_object(),
    )


def _read_rule(register: Register, effects: frozenset[ReadEffect], count: int, device: Device) -> ReadRule:
    contract = device.contract
    if effects & {ReadEffect.UNKNOWN, ReadEffect.MODIFY, ReadEffect.MODIFY_EXTERNAL}:
        return ReadRule(register.name, "undeclared", count=count)
    if ReadEffect.POP in effects:
        level = None if register.read.level is None else find_place(contract, register.read.level, register)
        # a level that hardware raises by itself hides what was taken
        if level is None or (level[0] if level[1] is None else level[1]).volatile:
            return ReadRule(register.name, "pop", count=count)
        holder, mask = level[0], level[0].mask if level[1] is None else level[1].mask
        reset, known = _reset_of(holder)  # a FIFO is empty after a restart, where nobody says otherwise
        left = (reset & mask) >> ((mask & -mask).bit_length() - 1) if known & mask == mask else 0
        return ReadRule(register.name, "pop", level=holder.name, level_mask=mask, level_reset=left, count=count)
    if register.read.peek is not None:
        peek = find_place(contract, register.read.peek, register)
        if peek is None:
            return ReadRule(register.name, "peek", count=count)
        mask = peek[0].mask if peek[1] is None else peek[1].mask
        return ReadRule(register.name, "peek", peek=peek[0].name, peek_mask=mask, count=count)
    if effects & {ReadEffect.CLAIM, ReadEffect.TRIGGER}:
        return _claim_rule(register, count, device)
    marks: list[tuple[str, int]] = []
    if ReadEffect.ACK in effects:
        for name in register.read.affects:
            place = find_place(contract, name, register)
            if place is None or not place[0].access.readable or place[0].read.effects != {ReadEffect.NONE}:
                continue
            if place[0].is_confidential and not register.is_confidential:
                continue  # what it acknowledges would be shown as evidence
            target, part = place
            marks.append((target.name, target.mask if part is None else part.mask))
    if marks:
        return ReadRule(register.name, "acknowledge", acknowledges=tuple(marks), count=count)
    return ReadRule(register.name, "consuming", count=count, reseek=register.read.reseek)


def _claim_rule(register: Register, count: int, device: Device) -> ReadRule:
    """How a claim, or a trigger, is settled: by the state that shows it, if hardware does not move that by itself.

    Taken is 1 where the contract names no value. Several bits show several locks: which is this one's is not said.
    """
    unsettled = ReadRule(register.name, "consuming", count=count)
    if register.read.state is None:
        return unsettled
    name, value = gate_of(register.read.state)
    place = find_place(device.contract, name, register)
    if place is None:
        return unsettled
    holder, part = place
    mask, volatile = (holder.mask, holder.volatile) if part is None else (part.mask, part.volatile)
    if (value is None and mask & (mask - 1)) or volatile or holder.is_confidential:
        return unsettled
    taken = mask if value is None else value if part is None else part.placed(value)
    return ReadRule(register.name, "claim", state=holder.name, state_mask=mask, state_taken=taken, count=count)
