"""What time will bring to a simulated chip, beside what its behaviour does."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Literal


@dataclass(frozen=True, slots=True)
class Coming:
    """An element for a FIFO, or the end of bits that clear themselves.

    Attributes:
        due_s: when, by the clock of the bus.
        value: the element, or the bits.
    """

    due_s: float
    what: Literal["element", "end"]
    register: str
    value: int
