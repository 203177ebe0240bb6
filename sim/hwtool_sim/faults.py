"""Faults at a chosen access: what goes wrong between the bus and the chip, and how often.

Two families. An *event* happens to the chip around an access and says nothing of the reply; every event that matches
fires. A *loss* spoils the access itself; the first that matches decides what is answered, the others wait their turn.
"""

from __future__ import annotations

import math
from collections.abc import Iterable
from dataclasses import dataclass
from enum import StrEnum
from random import Random
from typing import Annotated, Final, Literal

import msgspec


class FaultKind(StrEnum):
    """What goes wrong."""

    # events
    RESET = "reset"  # the chip restarts
    FOREIGN = "foreign"  # another master writes to the chip
    SWAP = "swap"  # another chip stands at its place from here on
    STUCK_BITS = "stuck_bits"  # bits of a register stay at a value from here on
    FLIP = "flip"  # bits of a register change by themselves
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
    ARBITRATION_LOST = "arbitration_lost"  # another master wins at the address: the chip is proved not to have acted
    CLOCK_STRETCH = "clock_stretch"  # the chip acts and holds the clock for hang_s; a slip shifts what it takes
    STUCK_BUS = "stuck_bus"  # SDA is held low in the middle of the access, and stays so
    FALSE_ACK = "false_ack"  # the adapter acknowledges for a chip that is not reached


EVENTS: Final = frozenset({FaultKind.RESET, FaultKind.FOREIGN, FaultKind.SWAP, FaultKind.STUCK_BITS, FaultKind.FLIP})
NOT_REACHED: Final = frozenset(
    {FaultKind.REQUEST_LOST, FaultKind.NACK, FaultKind.UNPLUG, FaultKind.ARBITRATION_LOST, FaultKind.FALSE_ACK}
)
WAITS: Final = frozenset({FaultKind.HANG, FaultKind.CLOCK_STRETCH})
OF_TWO_WIRES: Final = frozenset(
    {
        FaultKind.NACK,
        FaultKind.DATA_NACK,
        FaultKind.ARBITRATION_LOST,
        FaultKind.CLOCK_STRETCH,
        FaultKind.STUCK_BUS,
        FaultKind.FALSE_ACK,
    }
)  # there is no clock and no acknowledge on a serial line

KINDS_OF: Final = {
    "hang_s": (FaultKind.HANG, FaultKind.CLOCK_STRETCH),
    "when": (FaultKind.RESET, FaultKind.FOREIGN, FaultKind.SWAP, FaultKind.STUCK_BITS, FaultKind.FLIP),
    "data": (FaultKind.FOREIGN,),
    "offset_written": (FaultKind.FOREIGN,),
    "register": (FaultKind.FOREIGN, FaultKind.STUCK_BITS, FaultKind.FLIP),
    "value": (FaultKind.FOREIGN, FaultKind.STUCK_BITS),
    "late_s": (FaultKind.LATE_REPLY,),
    "after_bytes": (FaultKind.DATA_NACK,),
    "code": (FaultKind.EXCEPTION,),
    "acts": (FaultKind.EXCEPTION,),
    "power": (FaultKind.UNPLUG,),
    "bits": (FaultKind.STUCK_BITS, FaultKind.FLIP),
    "contract": (FaultKind.SWAP,),
    "same": (FaultKind.SWAP,),
    "slip": (FaultKind.CLOCK_STRETCH,),
    "lasts_s": (FaultKind.STUCK_BUS, FaultKind.UNPLUG),
    "recovers": (FaultKind.STUCK_BUS,),
}  # the parts that only some kinds have; the others say which accesses are meant

Count = Annotated[int, msgspec.Meta(ge=0)]
Seconds = Annotated[float, msgspec.Meta(ge=0, le=3600)]


class Fault(msgspec.Struct, forbid_unknown_fields=True):
    """One planned fault.

    Attributes:
        address: of the chip it is meant for.
        access: which accesses count.
        offset: only accesses at this offset; None: any. `at`: only those of this register, by name.
        skip: matching accesses to let pass first.
        times: how many to spoil, or "always".
        probability: of those that are left, how likely one is spoilt; drawn from the seed of the bus.
        after_s, until_s: only accesses from then on, and before then: seconds since the fault was planned.
        hang_s: hang, clock_stretch: how long the reply takes.
        when: of events: before or after the chip acts on the access.
        data: foreign: what is written at `offset_written`, as hex.
        register: foreign: the register that gets `value`, in place of `data` and `offset_written`; stuck_bits, flip:
            the one whose `bits` (a mask) are meant.
        contract: swap: of the chip that comes, a name or a path; `same`: one of the same contract.
        slip: clock_stretch: what a write brings arrives shifted by one bit to the right, and is acknowledged.
        lasts_s: unplug, stuck_bus: it is over by itself after so long; 0: when it is plugged again.
        recovers: stuck_bus: the adapter clocks it free once the daemon has had the bus be quiet.
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
    times: Count | Literal["always"] = 1
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
    at: str | None = None
    probability: Annotated[float, msgspec.Meta(gt=0, le=1)] = 1.0
    after_s: Seconds = 0.0
    until_s: Seconds | None = None
    bits: Annotated[int, msgspec.Meta(ge=1)] | None = None
    contract: str | None = None
    same: bool = False
    slip: bool = False
    lasts_s: Seconds = 0.0
    recovers: bool = False

    def __post_init__(self) -> None:
        if not all(math.isfinite(s) for s in (self.hang_s, self.late_s, self.after_s, self.until_s or 0, self.lasts_s)):
            raise ValueError("hang_s, late_s, after_s, until_s and lasts_s are finite seconds")
        if self.offset is not None and self.at is not None:
            raise ValueError("a fault is meant for an offset or, with at, for a register: one of the two")
        if self.until_s is not None and self.until_s <= self.after_s:
            raise ValueError("until_s is after after_s: else no access is ever meant")
        self._check_parts()

    def _check_parts(self) -> None:
        """What a kind needs, and what only some kinds have."""
        for part, default in DEFAULTS.items():
            if getattr(self, part) != default and self.kind not in KINDS_OF[part]:
                raise ValueError(f"{part} belongs to " + " and ".join(KINDS_OF[part]) + f", not to {self.kind}")
        match self.kind:
            case FaultKind.SWAP if (self.contract is None) is not self.same:
                raise ValueError("swap needs contract, or same = true")
            case FaultKind.STUCK_BITS if None in (self.register, self.bits, self.value):
                raise ValueError("stuck_bits needs register, bits (a mask) and value (what they stay at)")
            case FaultKind.FLIP if None in (self.register, self.bits):
                raise ValueError("flip needs register and bits (a mask)")
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

    def strikes(self, access: Access, draw: Random) -> bool:
        """Whether this access is spoilt; counts it."""
        if self.times == 0 or access.address != self.address or self.access not in ("any", access.kind):
            return False
        if self.after_s and access.when_s < self.after_s:
            return False
        if self.until_s is not None and access.when_s >= self.until_s:
            return False
        if self.offset is not None and access.offset != self.offset:
            return False
        if self.kind is FaultKind.DATA_NACK and access.kind != "write":
            return False
        if self.skip:
            self.skip -= 1
            return False
        if self.probability < 1 and draw.random() >= self.probability:
            return False
        if self.times != "always":
            self.times -= 1
        return True


DEFAULTS: Final = {field.name: field.default for field in msgspec.structs.fields(Fault) if field.name in KINDS_OF}


@dataclass(frozen=True, slots=True)
class Access:
    """What a fault is compared with: one access of a chip.

    Attributes:
        kind: "read" or "write".
        offset: where it begins.
        when_s: when, by the clock of the bus; a fault that was planned counts its own times by it.
    """

    address: int
    kind: str
    offset: int
    when_s: float = 0.0


@dataclass(frozen=True, slots=True)
class Struck:
    """The faults of one access: events around it, in the order they were planned, and the loss that decides."""

    before: tuple[Fault, ...]
    after: tuple[Fault, ...]
    loss: Fault | None


def strike(faults: Iterable[Fault], access: Access, draw: Random) -> Struck:
    """The faults that an access meets; each of them is counted.

    Args:
        draw: decides for those that strike by chance.
    """
    events: list[Fault] = []
    loss: Fault | None = None
    for fault in faults:
        if fault.kind in EVENTS:
            if fault.strikes(access, draw):
                events.append(fault)
        elif loss is None and fault.strikes(access, draw):
            loss = fault
    before = tuple(e for e in events if e.when == "before")
    return Struck(before, tuple(e for e in events if e.when == "after"), loss)
