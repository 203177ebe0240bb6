"""The ways to a register of a simulated chip: its own offset, and aliases whose ones set, clear or toggle its bits."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from typing import Literal

from hwtool_contracts.model import Register


@dataclass(frozen=True, slots=True)
class Door:
    """A way to a register: its own offset, or an alias where ones set, clear or toggle its bits."""

    register: Register
    first: int
    acts: Literal["set", "clear", "toggle"] | None = None
    shift: int = 0

    def through(self, raw: int, mask: int, held: int) -> tuple[int, int]:
        """The value and the bits that a write through this door comes to."""
        if self.register.write_mask and self.acts is None:
            return raw, mask & (raw & self.register.write_mask) >> (self.register.width_bits // 2)
        ones = (raw & mask) >> self.shift
        match self.acts:
            case None:
                return raw, mask
            case "set":
                return ones, ones
            case "clear":
                return 0, ones
            case "toggle":
                return held ^ ones, ones


def doors_of(register: Register) -> Iterator[Door]:
    yield Door(register, register.offset)
    for at in register.also_at:
        yield Door(register, at)
    if register.set_at is not None:
        yield Door(register, register.set_at.at, "set", register.set_at.shift)
    if register.clear_at is not None:
        yield Door(register, register.clear_at.at, "clear", register.clear_at.shift)
    if register.toggle_at is not None:
        yield Door(register, register.toggle_at.at, "toggle", register.toggle_at.shift)
