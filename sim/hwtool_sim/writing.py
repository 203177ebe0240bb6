"""What a write does to a simulated chip: every write effect, by register and field, with its gate and what it moves.

As with reads, effects come from the contract and not from the judge (hwtool_sim.reading).
"""

from __future__ import annotations

from collections import Counter
from typing import TYPE_CHECKING

from hwtool_contracts.effects import ACTS_ON_ONES, ACTS_ON_ZEROS, WriteEffect
from hwtool_contracts.model import Field, Register, WriteSpec
from hwtool_contracts.places import find_place
from hwtool_sim.coming import Coming

if TYPE_CHECKING:
    from hwtool_sim.chip import Chip


def write_register(chip: Chip, register: Register, raw: int, touched: int, counted: Counter[tuple[str, str]]) -> None:
    """Let a chip take a write of the bits `touched` of a register, with every effect of it.

    Args:
        counted: where the execution is counted: the daemon's, or another master's.
    """
    counted[register.name, "write"] += 1
    if not chip.gate_open(register.write.gate, register):
        return
    covered = 0
    for field in register.fields.values():
        covered |= field.mask
        if field.access.writable and field.reserved is None and chip.gate_open(field.write.gate, register):
            _write_bits(chip, register, field.write, raw, field.mask & touched, 0, field)
    loose = register.mask & ~covered & touched
    if loose:
        _write_bits(chip, register, register.write, raw, loose, 0)
    bits, value = chip.stuck.get(register.name, (0, 0))
    chip.values[register.name] = chip.values[register.name] & ~bits | value
    if not register.width_bits:  # a bare opcode: that it came is all there is
        _set_off(chip, register.write)
        _fire(chip, register, register.write)
    chip.behaviour.written(chip, register.name, raw & touched)
    if chip.restarts:
        chip.reset()


def _write_bits(
    chip: Chip, register: Register, spec: WriteSpec, raw: int, mask: int, lsb: int, field: Field | None = None
) -> None:
    name = register.name
    if spec.mask is not None:
        mask &= spec.mask << lsb if field is None else field.placed(spec.mask)
    if not mask:
        return
    held = chip.values[name]
    acting = mask & (raw if spec.effect in ACTS_ON_ONES else ~raw if spec.effect in ACTS_ON_ZEROS else register.mask)
    if acting:
        _set_off(chip, spec)
    match spec.effect:
        case WriteEffect.STORE | WriteEffect.STAGED | WriteEffect.UNLOCK:
            held = (held & ~mask) | (raw & mask)
            _mirror(chip, register, spec, raw & mask, mask)
            if spec.effect is not WriteEffect.STORE:
                _move_signals(chip, register, spec)
        case WriteEffect.ONE_TO_CLEAR | WriteEffect.ZERO_TO_CLEAR | WriteEffect.CLEAR:
            held &= ~acting
            if spec.effect is WriteEffect.CLEAR:
                _clear_affected(chip, register, spec)
        case WriteEffect.ONE_TO_SET | WriteEffect.ZERO_TO_SET | WriteEffect.SET:
            held |= acting
        case WriteEffect.LOCK:
            held |= raw & mask
            _mirror(chip, register, spec, raw & mask, raw & mask)
        case WriteEffect.ONE_TO_TOGGLE | WriteEffect.ZERO_TO_TOGGLE:
            held ^= acting
        case WriteEffect.WRITE_ONCE:
            fresh = mask & ~chip.written_once.get(name, 0)
            held = (held & ~fresh) | (raw & fresh)
            chip.written_once[name] = chip.written_once.get(name, 0) | mask
        case WriteEffect.PUSH:
            chip.sent.setdefault(name, []).append(raw & mask)
            _fire(chip, register, spec)
        case WriteEffect.SELF_CLEARING | WriteEffect.PULSE:
            if acting:
                _fire(chip, register, spec)
            if acting and spec.effect is WriteEffect.SELF_CLEARING and spec.delay_after_ms:
                chip.values[name] |= acting  # as long as the device must be left alone
                chip.coming.append(Coming(chip.now_s + spec.delay_after_ms / 1000, "end", name, acting))
        case WriteEffect.COMMAND:
            _fire(chip, register, spec)
        case WriteEffect.ADVANCE | WriteEffect.MODIFY | WriteEffect.UNKNOWN:
            held = (held & ~mask) | (raw & mask)
            chip.pulses[name] += 1
    if spec.effect not in (WriteEffect.SELF_CLEARING, WriteEffect.PULSE, WriteEffect.COMMAND, WriteEffect.PUSH):
        chip.values[name] = held & register.mask


def _set_off(chip: Chip, spec: WriteSpec) -> None:
    """What any write sets off besides its own effect."""
    chip.restarts = chip.restarts or spec.resets is not None
    for target in spec.triggers:
        chip.pulses[target] += 1


def _clear_affected(chip: Chip, register: Register, spec: WriteSpec) -> None:
    """What a write that clears clears elsewhere."""
    for target in spec.affects:
        place = find_place(chip.contract, target, register)
        if place is not None:
            other, field = place
            chip.values[other.name] &= ~(other.mask if field is None else field.mask)
            if other.name in chip.fifos:
                chip.fifos[other.name].clear()


def _mirror(chip: Chip, register: Register, spec: WriteSpec, part: int, mask: int) -> None:
    """A store that is proved at another register is kept there too (a port and its latch)."""
    if spec.verify is not None and spec.verify.register is not None:
        place = find_place(chip.contract, spec.verify.register, register)
        if place is not None:
            target = place[0]
            chip.values[target.name] = ((chip.values[target.name] & ~mask) | part) & target.mask


def _fire(chip: Chip, register: Register, spec: WriteSpec) -> None:
    """A pulse or command: count it, empty the FIFOs it affects, move its declared signals."""
    chip.pulses[register.name] += 1
    if spec.effect is WriteEffect.CLEAR:
        _clear_affected(chip, register, spec)
    for target in spec.affects if spec.effect is not WriteEffect.PUSH else ():
        affected = find_place(chip.contract, target, register)
        if affected is not None and affected[0].name in chip.fifos:
            chip.fifos[affected[0].name].clear()
    _move_signals(chip, register, spec)


def _move_signals(chip: Chip, register: Register, spec: WriteSpec) -> None:
    for signal in spec.signals:
        place = find_place(chip.contract, signal.register, register)
        if place is None:
            continue
        other, field = place
        mask, lsb = (other.mask, 0) if field is None else (field.mask, field.lsb)
        if any(mask & counted for counted, _ in chip.levels.get(other.name, [])):
            continue  # it counts a FIFO's elements already
        part = (chip.values[other.name] & mask) >> lsb
        if signal.equals is not None:
            part = signal.equals
        else:
            part += signal.delta if signal.delta is not None else 1
        chip.values[other.name] = (chip.values[other.name] & ~mask) | ((part << lsb) & mask)
