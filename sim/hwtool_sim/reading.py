"""What a read does to a simulated chip: every read effect, by register and field, with its gate.

Effects are read from the contract and applied to bits, and not asked of the judge: a mistake in what is sent must show
in what the chip holds. An access that nobody has described adds one to the stored value, so that a repeat is noticed.
"""

from __future__ import annotations

from collections.abc import Iterable
from typing import TYPE_CHECKING

from hwtool_contracts.effects import ReadEffect
from hwtool_contracts.model import Register
from hwtool_contracts.places import find_place, gate_of

if TYPE_CHECKING:
    from hwtool_sim.chip import Chip

UNDECLARED = frozenset({ReadEffect.UNKNOWN, ReadEffect.MODIFY, ReadEffect.MODIFY_EXTERNAL, ReadEffect.TRIGGER})


def read_register(chip: Chip, register: Register) -> int:
    """Let a chip answer a read of a register, with every effect of it; what a closed gate hides is zero."""
    name = register.name
    chip.executed[name, "read"] += 1
    if not chip.gate_open(register.read.gate, register):
        return 0
    shut = 0  # bits behind a closed gate, as the gates were before anything happened
    for field in register.fields.values():
        if not chip.gate_open(field.read.gate, register):
            shut |= field.mask
    pops = ReadEffect.POP in register.read.effects
    answer = _pop(chip, register) if pops else chip.held(register)
    if ReadEffect.CLAIM in register.read.effects:
        return _claim(chip, register)
    effects = [(register.mask, register.read)] if not register.fields else []
    covered = 0
    for field in register.fields.values():
        effects.append((field.mask, field.read))
        covered |= field.mask
    if register.fields and covered != register.mask:
        effects.append((register.mask & ~covered, register.read))
    acted: set[ReadEffect] = set()
    for mask, spec in effects:
        if mask & shut:
            answer &= ~mask
            continue
        for effect in spec.effects:
            _read_effect(chip, effect, name, mask, spec.affects, register)
            acted.add(effect)
    if ReadEffect.TRIGGER in acted:
        _show_state(chip, register)
    if acted & UNDECLARED or ReadEffect.ADVANCE in acted:
        chip.values[name] = (chip.values[name] + 1) & register.mask
    return answer


def _read_effect(
    chip: Chip, effect: ReadEffect, name: str, mask: int, affects: tuple[str, ...], register: Register
) -> None:
    match effect:
        case ReadEffect.CLEAR if affects:
            _affect(chip, ReadEffect.ACK, affects, register)
        case ReadEffect.ACK | ReadEffect.LATCH:
            _affect(chip, effect, affects, register)
        case ReadEffect.CLEAR:
            chip.values[name] &= ~mask
        case ReadEffect.SET:
            chip.values[name] |= mask
        case ReadEffect.RELATCH:
            chip.values[name] = (chip.values[name] & ~mask) | (chip.present.get(name, 0) & mask)
        case _:
            pass  # none, arm: nothing; the others act once a read, not once a field


def _affect(chip: Chip, effect: ReadEffect, affects: Iterable[str], register: Register) -> None:
    for target in affects:
        place = find_place(chip.contract, target, register)
        if place is None:
            continue
        other, field = place
        if effect is ReadEffect.ACK:
            chip.values[other.name] &= ~(other.mask if field is None else field.mask)
        elif other.name in chip.present:
            mask = other.mask if field is None else field.mask
            frozen = chip.present[other.name] & mask
            chip.values[other.name] = (chip.values[other.name] & ~mask) | frozen


def _claim(chip: Chip, register: Register) -> int:
    """Test and set: all ones if it was free, 0 if it is taken; a declared state field shows it."""
    free = chip.values[register.name] == 0
    chip.values[register.name] = register.mask
    _show_state(chip, register)
    return register.mask if free else 0


def _show_state(chip: Chip, register: Register) -> None:
    """The declared state of what a read has claimed or set off."""
    if register.read.state is None:
        return
    name, taken = gate_of(register.read.state)
    place = find_place(chip.contract, name, register)
    holder, field = (None, None) if place is None else place
    if holder is not None and field is not None:
        bits = field.mask if taken is None else field.placed(taken)
        chip.values[holder.name] = chip.values[holder.name] & ~field.mask | bits


def _pop(chip: Chip, register: Register) -> int:
    fifo = chip.fifos[register.name]
    if fifo:
        chip.last_popped[register.name] = fifo.popleft()
        return chip.last_popped[register.name]
    told = register.read.when_empty
    if register.phrase is not None and told is not None:
        return int.from_bytes(told.encode("ascii", "replace"), "big")  # a line of text answers with a text
    return chip.last_popped.get(register.name, 0) if told == "last" else 0
