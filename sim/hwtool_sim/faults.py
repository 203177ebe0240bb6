"""Faults at a chosen access: what goes wrong between the bus and the chip, and how often.

Two families. An *event* happens to the chip around an access and says nothing of the reply; every event that matches
fires. A *loss* spoils the access itself; the first that matches decides what is answered, the others wait their turn.
"""

from __future__ import annotations

import math
from collections.abc import Iterable
from dataclasses import dataclass
from enum import StrEnum
from typing import Annotated, Final, Literal

import msgspec


class FaultKind(StrEnum):
    """What goes wrong."""

    # events
    RESET = "reset"  # the chip restarts
    FOREIGN = "foreign"  # another master writes to the chip
    # losses
    REQUEST_LOST = "request_lost"  # the chip never sees it, no reply
    REPLY_LOST = "reply_lost"  # the chip acts, no reply
    LATE_REPLY = "late_reply"  # the chip acts, the reply comes late_s later: nobody waits for it any more
    DUPLICATED = "duplicated"  # the chip acts, the reply comes twice
    TRUNCATED = "truncated"  # the chip acts, a fragment of the reply comes
    CORRUPTED = "corrupted"  # the chip acts, the reply comes with a wrong CRC
    NACK = "nack"  # the chip does not answer its address: proved not to have acted
    DATA_NACK = "data_nack"  # the chip takes after_bytes of a write, then does not acknowledge
    EXCEPTION = "exception"  # a Modbus device answers with an exception; it acted before only if `acts`
    HANG = "hang"  # the chip acts, and the reply comes only after hang_s
    UNPLUG = "unplug"  # the bus vanishes, the chip is not reached; gone until it is plugged again


EVENTS: Final = frozenset({FaultKind.RESET, FaultKind.FOREIGN})
NOT_REACHED: Final = frozenset({FaultKind.REQUEST_LOST, FaultKind.NACK, FaultKind.UNPLUG})

Count = Annotated[int, msgspec.Meta(ge=0)]
Seconds = Annotated[float, msgspec.Meta(ge=0, le=3600)]


class Fault(msgspec.Struct, forbid_unknown_fields=True):
    """One planned fault.

    Attributes:
        address: of the chip it is meant for.
        access: which accesses count.
        offset: only accesses at this offset; None: any.
        skip: matching accesses to let pass first.
        times: how many to spoil.
        hang_s: hang: how long the reply takes.
        when: reset, foreign: before or after the chip acts on the access.
        data: foreign: what is written at `offset_written`, as hex.
        register: foreign: the register that gets `value`, in place of `data` and `offset_written`.
        late_s: late_reply: how long after the access the reply comes.
        after_bytes: data_nack: data bytes that the chip takes.
        code: exception: its code.
        acts: exception: whether the chip has acted all the same.
        power: unplug: the chips lose their power too, and restart when it comes back.

    Raises:
        ValueError: a part that the kind needs is missing or does not fit.
    """

    kind: FaultKind
    address: int
    access: Literal["any", "read", "write"] = "any"
    offset: int | None = None
    skip: Count = 0
    times: Count = 1
    hang_s: Seconds = 0.0
    when: Literal["before", "after"] = "before"
    data: str | None = None
    offset_written: Count | None = None
    register: str | None = None
    value: Count | None = None
    late_s: Seconds = 0.0
    after_bytes: Count = 0
    code: Annotated[int, msgspec.Meta(ge=1, le=255)] | None = None
    acts: bool = False
    power: bool = False

    def __post_init__(self) -> None:
        if not (math.isfinite(self.hang_s) and math.isfinite(self.late_s)):
            raise ValueError("hang_s and late_s are finite seconds")
        match self.kind:
            case FaultKind.LATE_REPLY if self.late_s <= 0:
                raise ValueError("late_reply needs late_s above 0: when the reply comes")
            case FaultKind.EXCEPTION if self.code is None:
                raise ValueError("exception needs code, 1 to 255")
            case FaultKind.DATA_NACK if self.access == "read":
                raise ValueError("data_nack strikes writes: the device acknowledges no data byte of a read")
            case FaultKind.FOREIGN:
                self._check_foreign()

    def _check_foreign(self) -> None:
        place, named = (self.data, self.offset_written), (self.register, self.value)
        if (None in place) == (None in named) or any(p is not None for p in (place if None in place else named)):
            raise ValueError("foreign needs data and offset_written, or register and value")
        if self.data is not None and not bytes.fromhex(self.data):
            raise ValueError("foreign: data is at least one byte of hex")

    def strikes(self, address: int, access: str, offset: int) -> bool:
        """Whether this access is spoilt; counts it."""
        if self.times == 0 or address != self.address or self.access not in ("any", access):
            return False
        if self.offset is not None and offset != self.offset:
            return False
        if self.kind is FaultKind.DATA_NACK and access != "write":
            return False
        if self.skip:
            self.skip -= 1
            return False
        self.times -= 1
        return True


@dataclass(frozen=True, slots=True)
class Struck:
    """The faults of one access: events around it, in the order they were planned, and the loss that decides."""

    before: tuple[Fault, ...]
    after: tuple[Fault, ...]
    loss: Fault | None


def strike(faults: Iterable[Fault], address: int, access: str, offset: int) -> Struck:
    """The faults that an access meets; each of them is counted."""
    events: list[Fault] = []
    loss: Fault | None = None
    for fault in faults:
        if fault.kind in EVENTS:
            if fault.strikes(address, access, offset):
                events.append(fault)
        elif loss is None and fault.strikes(address, access, offset):
            loss = fault
    before = tuple(e for e in events if e.when == "before")
    return Struck(before, tuple(e for e in events if e.when == "after"), loss)
