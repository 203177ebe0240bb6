"""What a register should hold after a write, bit by bit, from its effects: the base of every verification."""

from __future__ import annotations

from dataclasses import dataclass

from hwtool_contracts.effects import ACTS_ON_ONES, ACTS_ON_ZEROS, SET_LIKE, WriteEffect
from hwtool_contracts.model import Register


@dataclass(frozen=True, slots=True)
class Expectation:
    """Bits that a read after the write can be compared with.

    Attributes:
        value: the expected bits, inside `strong` and `weak`.
        strong: bits whose value decides (stored and not changed by hardware).
        weak: write-to-clear bits: clear proves, set may be a new event. Always expected clear.
        toggles: bits that the write inverts; strong only with a known prior value and one owner.
    """

    value: int
    strong: int
    weak: int
    toggles: int


def acting_bits(register: Register, value: int) -> int:
    """The bits on which a write of `value` acts, whether a read shows that or not."""
    acting = covered = 0
    for field in register.fields.values():
        covered |= field.mask
        if field.access.writable and field.reserved is None:
            acting |= _acting(field.write.effect, value, field.mask)
    return acting | _acting(register.write.effect, value, register.mask & ~covered)


def _acting(effect: WriteEffect, value: int, mask: int) -> int:
    if effect in ACTS_ON_ONES or effect is WriteEffect.LOCK:
        return mask & value
    return mask & ~value if effect in ACTS_ON_ZEROS else mask


def expectation(register: Register, value: int, prior: int | None) -> Expectation:
    """What a clean read of the register shows after `value` was written over `prior` (None: not known)."""
    expected = strong = weak = toggles = 0
    covered = 0
    parts: list[tuple[int, WriteEffect, bool]] = []
    for field in register.fields.values():
        covered |= field.mask
        usable = field.access.writable and field.access.readable and field.reserved is None
        if usable:
            own = field.mask if field.write.mask is None else field.placed(field.write.mask)
            parts.append((field.mask & own, field.write.effect, field.volatile))
    loose = register.mask & ~covered
    if register.write.mask is not None:
        loose &= register.write.mask
    if loose:
        parts.append((loose, register.write.effect, register.volatile))
    for mask, effect, volatile in parts:
        acting = mask & (value if effect in ACTS_ON_ONES else ~value if effect in ACTS_ON_ZEROS else register.mask)
        if effect in (WriteEffect.STORE, WriteEffect.WRITE_ONCE, WriteEffect.STAGED):
            if not volatile:
                strong |= mask
                expected |= value & mask
        elif effect in (WriteEffect.ONE_TO_CLEAR, WriteEffect.ZERO_TO_CLEAR):
            weak |= acting
        elif effect in SET_LIKE:
            if not volatile:
                if effect is WriteEffect.LOCK:
                    strong |= value & mask  # one way: what is not locked by this write may be locked already
                    expected |= value & mask
                else:
                    strong |= acting
                    expected |= 0 if effect is WriteEffect.CLEAR else acting
        elif effect in (WriteEffect.ONE_TO_TOGGLE, WriteEffect.ZERO_TO_TOGGLE) and not volatile and prior is not None:
            toggles |= acting
            strong |= acting
            expected |= ~prior & acting
    return Expectation(expected, strong, weak, toggles)
