"""What a plan is: transfers in the order they are sent, what each is for, and where the values stand in the answers."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from enum import StrEnum

from hwtool_contracts.model import BusyRetry
from hwtool_registers.bus import Transfer


class Role(StrEnum):
    """What a transfer of a plan is for."""

    SELECT = "select"
    ACCESS = "access"
    CONFIRM = "confirm"
    RESTORE = "restore"


@dataclass(frozen=True, slots=True)
class Step:
    """One transfer of a plan; `register` is the one it is about, `selects` what selectors it sets before it reads."""

    role: Role
    register: str
    transfer: Transfer
    selects: tuple[tuple[str, int], ...] = ()


@dataclass(frozen=True, slots=True)
class Piece:
    """Where a register's bytes are in the answers.

    Attributes:
        access: number of the first access that brings them; `accesses`: how many do, one behind the other.
        start: first byte.
        size_bytes: number of bytes; -1: a line of text.
    """

    register: str
    access: int
    start: int
    size_bytes: int
    accesses: int = 1

    def of(self, answers: Sequence[bytes]) -> bytes:
        """The bytes in the answers, fewer than wanted where fewer came; of a line, the whole of it."""
        data = b"".join(answers[self.access : self.access + self.accesses])
        return data if self.size_bytes < 0 else data[self.start : self.start + self.size_bytes]


@dataclass(frozen=True, slots=True)
class Plan:
    """An exact list of transfers.

    Attributes:
        steps: in the order they are sent.
        pieces: for reads: where each value is found in the answers to the access steps.
        busy_retry: how an access is sent again whose device proved to be busy; None: never.
        delay_after_ms: how long the device is left alone after the last of them.
        chunks: number of steps of each part of a long burst: what a part has brought is put on record before the next
            is begun. Empty: there is only one.
    """

    steps: tuple[Step, ...]
    pieces: tuple[Piece, ...] = ()
    busy_retry: BusyRetry | None = None
    delay_after_ms: int = 0
    chunks: tuple[int, ...] = ()

    @property
    def parts(self) -> tuple[tuple[Step, ...], ...]:
        """The steps of each chunk; of a plan that has none, all of them."""
        ends = [sum(self.chunks[: n + 1]) for n in range(len(self.chunks))] or [len(self.steps)]
        return tuple(self.steps[begin:end] for begin, end in zip([0, *ends[:-1]], ends, strict=True))

    @property
    def accesses(self) -> tuple[Step, ...]:
        """The steps with the effect; the others are selectors."""
        return tuple(s for s in self.steps if s.role is Role.ACCESS)

    @property
    def may_be_partial(self) -> bool:
        """Whether it can stop with part of it done."""
        return len(self.accesses) > 1
