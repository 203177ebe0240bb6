"""The bus contract: transfers, the three answers, and the two methods a bus owes.

What a bus guarantees
- `perform` sends one transfer at most once and answers when it is over. Every retry of every lower layer is off.
- `Confirmed` says that the device took part to the end; `Rejected` says that it is *proved* not to have acted, and
  names the proof; anything else is `Ambiguous`. An exception counts as Ambiguous.
- A bus that is not there answers `Rejected` with the proof `port-not-opened`; what was never sent, with `not-sent`.
- `quiesce` returns when nothing that was sent before can still arrive, and leaves the line empty.

What a bus need not do: lock against other threads of this process (its worker does), know registers, remember.
"""

from __future__ import annotations

from dataclasses import dataclass
from enum import StrEnum
from pathlib import Path
from typing import Any, Final, Protocol, runtime_checkable

from hwtool_contracts.model import Space

NOT_SENT: Final = "not-sent"  # the proof that no copy of a request has left


class Unsayable(ValueError):
    """A transfer that a bus has no way to say; nothing was sent."""


@dataclass(frozen=True, slots=True)
class RegisterRead:
    """Read `size_bytes` at `offset` of the device at `address`, in one transaction.

    Attributes:
        offset_bytes: bytes of the offset on a memory-like bus.
        function: Modbus function code; None elsewhere.
        bits: how many coils or discrete inputs; None elsewhere.
        pec: the bus checks the packet error code of SMBus behind the data (it is not part of `size_bytes`).
        stop: I2C: the offset is written and ended with a stop; the read begins anew.
        first: Modbus function 23: offset and data of registers that the device writes before it reads.
        shorter: a block may bring fewer bytes: the answer has zeros before them. Else it brings exactly so many.
    """

    address: int
    space: Space
    offset: int
    size_bytes: int
    offset_bytes: int = 1
    function: int | None = None
    bits: int | None = None
    pec: bool = False
    stop: bool = False
    shorter: bool = False
    first: tuple[int, bytes] | None = None


@dataclass(frozen=True, slots=True)
class RegisterWrite:
    """Write `data` at `offset` of the device at `address`, in one transaction.

    Attributes:
        data: what is written; for Modbus function 22 the word of the bits that are kept, then the one of the others.
        atomic: the device takes the data whole or not at all (a proof of non-execution needs it).
        bits: how many coils; None elsewhere.
        pec: the bus sends the packet error code of SMBus behind the data.
    """

    address: int
    space: Space
    offset: int
    data: bytes
    offset_bytes: int = 1
    function: int | None = None
    atomic: bool = True
    bits: int | None = None
    pec: bool = False


@dataclass(frozen=True, slots=True)
class Message:
    """Write bytes, then read bytes, in one transaction, for devices without registers; `pec` as in the others.

    Attributes:
        duplex: SPI: the bytes that are read begin with the first one written, and come while those go out.
    """

    address: int
    write: bytes
    read_bytes: int
    pec: bool = False
    duplex: bool = False


@dataclass(frozen=True, slots=True)
class Line:
    """A line of text of a line protocol, with or without a reply."""

    text: str
    expects_reply: bool


Transfer = RegisterRead | RegisterWrite | Message | Line

UNLIMITED_BYTES: Final = 1 << 16


@dataclass(frozen=True, slots=True)
class Capabilities:
    """What a bus can carry, as far as it is known by now.

    Attributes:
        spaces: of which reads and writes of registers are carried; `messages` and `lines`, whether those are.
        longest_read_bytes: the most that a plan asks one read to bring. A bus may take longer ones.
        acknowledges: `Confirmed` says that the device took it; else only that it was sent.
        may_repeat: something in it may send a request again by itself, whatever is asked of it.
    """

    spaces: frozenset[Space] = frozenset(Space)
    messages: bool = True
    lines: bool = True
    longest_read_bytes: int = UNLIMITED_BYTES
    acknowledges: bool = True
    may_repeat: bool = False

    def carries(self, transfer: Transfer) -> bool:
        """Whether transfers of this kind are carried at all."""
        match transfer:
            case RegisterRead(space=space) | RegisterWrite(space=space):
                return space in self.spaces
            case Message():
                return self.messages
            case Line():
                return self.lines


class Sent(StrEnum):
    """How far a transfer of unknown outcome got."""

    ADDRESS = "address"
    DATA = "data"
    REPLY = "reply"
    TRANSFER_LIMIT = "transfer_limit"


@dataclass(frozen=True, slots=True)
class Confirmed:
    """The device took part to the end; `data` is what it answered."""

    data: bytes = b""


@dataclass(frozen=True, slots=True)
class Rejected:
    """The device is proved not to have acted.

    Attributes:
        fault: what the bus said, in its own words.
        proof: which line of the bus's proof table shows that nothing happened.
    """

    fault: str
    proof: str


@dataclass(frozen=True, slots=True)
class Ambiguous:
    """It cannot be told whether the device acted.

    Attributes:
        stage: how far the transfer got.
        fault: what was seen.
    """

    stage: Sent
    fault: str


Answer = Confirmed | Rejected | Ambiguous


class Bus(Protocol):
    """What every transport implements."""

    def perform(self, transfer: Transfer) -> Answer:
        """Send one transfer at most once; blocks until it is over."""
        ...

    def quiesce(self, until_s: float) -> None:
        """Wait until the monotonic time `until_s`, then empty the line; nothing sent before may still arrive.

        Raises:
            OSError: the line cannot be emptied or reopened.
        """
        ...


@runtime_checkable
class Testifies(Protocol):
    """A bus whose devices can show that they did not restart."""

    def boot_evidence(self, address: int) -> str | None:
        """A word that is the same for as long as the device has not restarted; None if it cannot tell."""
        ...


@runtime_checkable
class Declares(Protocol):
    """A bus that cannot carry everything that a contract may ask for."""

    @property
    def capabilities(self) -> Capabilities:
        """What it carries, as far as it is known by now."""
        ...


@runtime_checkable
class Opens(Protocol):
    """A bus that must be opened, and may be absent for a while."""

    def open(self) -> None:
        """Open and lock it; no device is touched. Nothing happens if it is open.

        Raises:
            OSError: absent (ENOENT, ENODEV, ENXIO, ECONNREFUSED), in use, or not permitted.
        """
        ...


@runtime_checkable
class HasNode(Protocol):
    """A bus behind a node of this host's."""

    @property
    def node(self) -> Path:
        """The node, as it is named; it may be gone."""
        ...


@runtime_checkable
class Hears(Protocol):
    """A bus whose other side may hang up by itself between two transfers."""

    def alive(self) -> bool:
        """Whether it is still open; one that is not is closed by this. Nothing is sent."""
        ...


@runtime_checkable
class Closes(Protocol):
    """A bus that holds something to give back."""

    def close(self) -> None:
        """Release port and locks; no device is touched."""
        ...


def as_object(transfer: Transfer) -> dict[str, Any]:
    """A transfer as plans, logs and rows show it; data as hex. `from_object` is the inverse."""
    match transfer:
        case RegisterRead() | RegisterWrite():
            shown: dict[str, Any] = {
                "do": "read" if isinstance(transfer, RegisterRead) else "write",
                "address": f"{transfer.address:#04x}",
                "space": transfer.space.value,
                "offset": f"{transfer.offset:#06x}" if transfer.offset > 0xFF else f"{transfer.offset:#04x}",
                "offset_bytes": transfer.offset_bytes,
                "function": transfer.function,
            }
            if transfer.bits is not None:
                shown["bits"] = transfer.bits
            if transfer.pec:
                shown["pec"] = True
            if isinstance(transfer, RegisterRead) and transfer.stop:
                shown["stop"] = True
            if isinstance(transfer, RegisterRead) and transfer.shorter:
                shown["shorter"] = True
            if isinstance(transfer, RegisterRead) and transfer.first is not None:
                at, data = transfer.first
                shown["first"] = {"offset": f"{at:#06x}" if at > 0xFF else f"{at:#04x}", "data": data.hex()}
            if isinstance(transfer, RegisterRead):
                return shown | {"size_bytes": transfer.size_bytes}
            return shown | {"data": transfer.data.hex(), "atomic": transfer.atomic}
        case Message(address, write, read_bytes, pec, duplex):
            told = {"do": "message", "address": f"{address:#04x}", "data": write.hex(), "read_bytes": read_bytes}
            return told | ({"pec": True} if pec else {}) | ({"duplex": True} if duplex else {})
        case Line(text, expects_reply):
            return {"do": "line", "text": text, "expects_reply": expects_reply}


def from_object(shown: dict[str, Any]) -> Transfer:
    """The transfer that `as_object` showed.

    Raises:
        ValueError: not the object of a transfer.
    """
    match shown.get("do"):
        case "read":
            first = shown.get("first")
            return RegisterRead(
                int(shown["address"], 0),
                Space(shown["space"]),
                int(shown["offset"], 0),
                shown["size_bytes"],
                shown["offset_bytes"],
                shown["function"],
                shown.get("bits"),
                shown.get("pec", False),
                shown.get("stop", False),
                shown.get("shorter", False),
                None if first is None else (int(first["offset"], 0), bytes.fromhex(first["data"])),
            )
        case "write":
            return RegisterWrite(
                int(shown["address"], 0),
                Space(shown["space"]),
                int(shown["offset"], 0),
                bytes.fromhex(shown["data"]),
                shown["offset_bytes"],
                shown["function"],
                shown["atomic"],
                shown.get("bits"),
                shown.get("pec", False),
            )
        case "message":
            data, read_bytes = bytes.fromhex(shown["data"]), shown["read_bytes"]
            pec, duplex = shown.get("pec", False), shown.get("duplex", False)
            return Message(int(shown["address"], 0), data, read_bytes, pec, duplex)
        case "line":
            return Line(shown["text"], shown["expects_reply"])
        case other:
            raise ValueError(f"no transfer is called {other!r}")
