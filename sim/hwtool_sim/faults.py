"""Faults at a chosen access: what goes wrong between the bus and the chip, and how often."""

from __future__ import annotations

from enum import StrEnum
from typing import Annotated, Literal

import msgspec


class FaultKind(StrEnum):
    """What goes wrong."""

    REQUEST_LOST = "request_lost"  # the chip never sees it, no reply
    REPLY_LOST = "reply_lost"  # the chip acts, no reply
    NACK = "nack"  # the chip does not answer its address: proved not to have acted
    HANG = "hang"  # the chip acts, and the reply comes only after hang_s


Count = Annotated[int, msgspec.Meta(ge=0)]


class Fault(msgspec.Struct, forbid_unknown_fields=True):
    """One planned fault.

    Attributes:
        address: of the chip it is meant for.
        access: which accesses count.
        offset: only accesses at this offset; None: any.
        skip: matching accesses to let pass first.
        times: how many to spoil.
        hang_s: for hangs: how long the reply takes.
    """

    kind: FaultKind
    address: int
    access: Literal["any", "read", "write"] = "any"
    offset: int | None = None
    skip: Count = 0
    times: Count = 1
    hang_s: float = 0.0

    def strikes(self, address: int, access: str, offset: int) -> bool:
        """Whether this access is spoilt; counts it."""
        if self.times == 0 or address != self.address or self.access not in ("any", access):
            return False
        if self.offset is not None and offset != self.offset:
            return False
        if self.skip:
            self.skip -= 1
            return False
        self.times -= 1
        return True
