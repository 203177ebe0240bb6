"""What the suite asks of a bus's bench: a counterpart below the library that can be told to misbehave, and its log.

A bench says of each trouble either what the bus must answer (`can`) or why it is not asked (`cannot`). A new bus gets
one file in `benches/` with a subclass of `Bench` and a tuple `BENCHES`; everything else here finds it there.
"""

from __future__ import annotations

import time
from abc import ABC, abstractmethod
from collections.abc import Hashable, Mapping, Sequence
from dataclasses import dataclass
from enum import StrEnum
from pathlib import Path
from typing import Any, ClassVar, Final

import pytest

from hwtool_registers.bus import Ambiguous, Answer, Bus, Confirmed, RegisterRead, RegisterWrite, Rejected, Sent

PATIENT_MS: Final = 60_000  # where a reply comes: however busy the machine is
SILENCE_MS: Final = 100  # where none comes


class Trouble(StrEnum):
    """What goes wrong with one request."""

    ABSENT = "absent"  # nobody is at the address
    SILENT = "silent"  # it is taken, and nothing comes back
    LATE = "late"  # the reply comes after the response time, within the quarantine
    OVERDUE = "overdue"  # the reply to an earlier request comes after the quarantine, right before this one's
    TWICE = "twice"  # the reply comes twice
    FRAGMENT = "fragment"  # a part of the reply comes; where a write has none, a part of its data is taken
    CORRUPTED = "corrupted"  # what comes is no reply any more; where a write has none, its check fails at the device
    FOREIGN = "foreign"  # the reply of another device comes
    UNASKED = "unasked"  # a sound reply of the right device comes, to a request of another kind
    MISFIT = "misfit"  # a sound reply comes with another length than was asked for; to a write, an echo of another one
    REFUSED_PROVED = "refused, proved"  # a refusal that proves that nothing happened
    REFUSED_UNPROVED = "refused, unproved"  # a refusal that proves nothing
    VANISHED_BEFORE = "vanished before"  # the port, adapter or connection is gone before the request is sent
    VANISHED_DURING = "vanished during"  # it goes under the request
    RETURNED = "returned"  # gone and back between two requests, under its stable name
    UNCARRIED = "uncarried"  # the bus does not carry transfers of this kind
    UNSAYABLE = "unsayable"  # no frame can say it
    TOO_LONG = "too long"  # it is longer than a frame may be


VANISHED: Final = (Trouble.VANISHED_BEFORE, Trouble.VANISHED_DURING, Trouble.RETURNED)
NEVER_SENT: Final = (Trouble.UNCARRIED, Trouble.UNSAYABLE, Trouble.TOO_LONG)


class Access(StrEnum):
    """Which of the bench's two transfers meets the trouble."""

    READ = "read"
    WRITE = "write"


@dataclass(frozen=True, slots=True)
class Demand:
    """What the proof table says of one transfer that meets a trouble.

    Attributes:
        kind: class of the answer.
        word: the proof of a Rejected, the stage of an Ambiguous.
        frames: how many requests the counterpart gets: none or one.
    """

    kind: type[Confirmed] | type[Rejected] | type[Ambiguous]
    word: str
    frames: int

    def __str__(self) -> str:
        return f"{self.kind.__name__} {self.word} {self.frames}".replace("  ", " ")


def confirmed() -> Demand:
    """It was carried out; one request."""
    return Demand(Confirmed, "", 1)


def proved(proof: str, frames: int) -> Demand:
    """It is proved that nothing happened."""
    return Demand(Rejected, proof, frames)


def doubt(stage: Sent, frames: int = 1) -> Demand:
    """It cannot be told."""
    return Demand(Ambiguous, stage.value, frames)


def demand_of(answer: Answer, frames: int) -> Demand:
    """What an answer amounts to, to be compared with what is demanded."""
    match answer:
        case Confirmed():
            return Demand(Confirmed, "", frames)
        case Rejected(_, proof):
            return Demand(Rejected, proof, frames)
        case Ambiguous(stage):
            return Demand(Ambiguous, stage.value, frames)


@dataclass(frozen=True, slots=True)
class Expectation:
    """What is demanded of a read and of a write."""

    read: Demand
    write: Demand

    def of(self, access: Access) -> Demand:
        """What is demanded of one of them."""
        return self.read if access is Access.READ else self.write


def both(demand: Demand) -> Expectation:
    """The same of a read and of a write."""
    return Expectation(demand, demand)


@dataclass(frozen=True, slots=True)
class Room:
    """What a bench may use of a test: a short folder of its own, and what is put back after it."""

    folder: Path
    patch: pytest.MonkeyPatch


@dataclass(frozen=True, slots=True)
class Resident:
    """How a daemon knows the device of a bench.

    Attributes:
        kind: of the bus, as a board names it.
        contract: text of the contract, without its identity.
        level: a register that may be written at will; its read is clean, so that it is read before.
        who: the register of the identity.
        ours, strangers: what it holds in the right device and in another one.
    """

    kind: str
    contract: str
    level: str
    who: str
    ours: int
    strangers: int


class Bench(ABC):
    """A bus, its counterpart, and what each trouble must come to.

    Attributes:
        name: of the bench, as tables show it.
        can, cannot: each trouble stands in exactly one: what it must come to, or why it is not asked of this bus.
        read, write: transfers that the counterpart takes.
        right: what the read answers when nothing is wrong.
        lie: what the read answers (`asked` may give another one) while a trouble is arranged; never to be seen after.
        bus: the bus under test; nothing of it is open at first.
        resident: the device as a daemon knows it; None: no board can name this bench.
        defects: tests that a trouble fails today, by the trouble, with what is wrong; each must fail until it is right.
        unnoticed: what is wrong where the daemon's device is exchanged while nobody asks; None: nothing.
        behind: the counterpart may write a request down after the bus has answered.
    """

    name: ClassVar[str]
    can: ClassVar[Mapping[Trouble, Expectation]]
    cannot: ClassVar[Mapping[Trouble, str]]
    read: ClassVar[RegisterRead]
    write: ClassVar[RegisterWrite]
    right: ClassVar[bytes]
    lie: ClassVar[bytes]
    resident: ClassVar[Resident | None] = None
    defects: ClassVar[Mapping[Trouble, str]] = {}
    unnoticed: ClassVar[str | None] = None
    behind: ClassVar[bool] = True
    bus: Bus

    def __init__(self, room: Room) -> None:
        self.room = room

    @classmethod
    def missing(cls) -> str | None:
        """What this machine lacks for the bench, None if nothing."""
        return None

    def asked(self, trouble: Trouble, access: Access) -> RegisterRead | RegisterWrite:
        """The transfer that meets the trouble; where it needs one of its own, of the same form."""
        del trouble
        return self.read if access is Access.READ else self.write

    @abstractmethod
    def seen(self) -> Sequence[Hashable]:
        """The requests that the counterpart got, in order, by its own log."""

    @abstractmethod
    def arrange(self, trouble: Trouble, access: Access) -> None:
        """Let the next request meet the trouble; from here on the device holds the lie."""

    def settle(self) -> None:  # noqa: B027  # a counterpart that answers in the caller's thread has done so
        """Return when the counterpart has done with a request that nobody waits for any more: it may be slow."""

    def let_out(self) -> None:  # noqa: B027  # a bus without late replies has nothing to let out
        """Let what is late come, and return when it has arrived at the bus."""

    @abstractmethod
    def mend(self) -> None:
        """End the trouble; what had vanished is back under its stable name, and the device holds what is right."""

    def over_s(self) -> float:
        """When the quarantine is over, by the bus's clock."""
        return time.monotonic()

    def unread(self) -> bool:
        """Whether anything has come that the bus has not thrown away."""
        return False

    @abstractmethod
    def holds(self) -> int:
        """How many ports, nodes or connections the bus has open."""

    def board(self) -> dict[str, Any]:
        """What a board says of the bus, for a bench with a resident; patches what its daemon needs."""
        raise NotImplementedError

    def stands(self, who: int) -> None:
        """A device that says that it is this one stands at the address, for a bench with a resident."""
        raise NotImplementedError

    def effects(self) -> int:
        """How many writes of the resident's level the counterpart got."""
        raise NotImplementedError

    def unplug(self) -> None:
        """The port, adapter or connection vanishes."""
        raise NotImplementedError

    def plug(self) -> None:
        """It is back under its stable name; where it has a number, under another one."""
        raise NotImplementedError

    @abstractmethod
    def close(self) -> None:
        """End bus and counterpart."""


def frames_of(pieces: Sequence[bytes], size: int) -> list[bytes]:
    """Requests of one size out of what was received, however it was cut: two sent at once are two."""
    stream = b"".join(pieces)
    return [stream[at : at + size] for at in range(0, len(stream), size)]


def open_handles(below: str) -> int:
    """How many open files of this process have a path that begins so."""
    found = 0
    for handle in Path("/proc/self/fd").iterdir():
        try:
            found += str(handle.readlink()).startswith(below)
        except OSError:
            continue  # the one that lists them
    return found


@dataclass(frozen=True, slots=True)
class Connection:
    """A TCP socket of this host, as the kernel lists it."""

    inode: str
    local: int
    remote: int
    established: bool
    unread_bytes: int


def connections() -> list[Connection]:
    """Every one there is."""
    found = []
    for line in Path("/proc/net/tcp").read_text(encoding="ascii").splitlines()[1:]:
        row = line.split()
        local, remote, unread = (int(row[n].partition(":")[2], 16) for n in (1, 2, 4))
        found.append(Connection(row[9], local, remote, row[3] == "01", unread))
    return found


def connections_to(port: int) -> int:
    """How many TCP connections to a port of this host this process has open."""
    ours = set()
    for handle in Path("/proc/self/fd").iterdir():
        try:
            ours.add(str(handle.readlink()))
        except OSError:
            continue  # the one that lists them
    return sum(f"socket:[{one.inode}]" in ours for one in connections() if one.remote == port)
