"""A device of holding registers that answers functions 3 and 6, and what is demanded of every carrier of Modbus."""

from __future__ import annotations

from typing import Final

from hwtool_contracts.model import Space
from hwtool_registers.bus import Line, Message, RegisterRead, RegisterWrite, Sent
from tests.conformance.bench import Access, Expectation, Resident, Trouble, both, confirmed, doubt, proved

UNIT: Final = 17
READ: Final = RegisterRead(UNIT, Space.HOLDING, 5, 4, 1, 3)
WRITE: Final = RegisterWrite(UNIT, Space.HOLDING, 7, b"\x12\x34", 1, 6)
RIGHT: Final = b"\x00\x0f\x00\x12"
LIE: Final = b"\xde\xad\xbe\xef"
CONTRACT: Final = """
schema = 1
part = "words"
vendor = "nobody"
title = "a device of the conformance suite"
source = "tests/conformance/words.py"
[access]
[access.modbus]
base = 0
functions = [3, 6]
[defaults]
read = { effects = ["none"], provenance = "generated", source = "words.py" }
write = { effect = "store", provenance = "generated", source = "words.py" }
[registers.WHO]
offset = 5
space = "holding"
access = "ro"
[registers.LEVEL]
offset = 7
space = "holding"
access = "rw"
reset = 0
"""
ODD: Final[dict[tuple[Trouble, Access], RegisterRead | RegisterWrite]] = {
    # transfers that no frame of Modbus is for
    (Trouble.UNCARRIED, Access.READ): RegisterRead(UNIT, Space.MEMORY, 5, 4, 1),
    (Trouble.UNCARRIED, Access.WRITE): RegisterWrite(UNIT, Space.MEMORY, 7, b"\x12\x34", 1),
    (Trouble.UNSAYABLE, Access.READ): RegisterRead(UNIT, Space.HOLDING, 5, 3, 1, 3),
    (Trouble.UNSAYABLE, Access.WRITE): RegisterWrite(UNIT, Space.HOLDING, 7, b"\x12\x34\x56\x78", 1, 6),
    (Trouble.TOO_LONG, Access.READ): RegisterRead(UNIT, Space.HOLDING, 5, 252, 1, 3),
    (Trouble.TOO_LONG, Access.WRITE): RegisterWrite(UNIT, Space.HOLDING, 7, bytes(248), 1, 16),
}
REPLIES: Final[dict[Trouble, Expectation]] = {
    # what holds of every carrier of Modbus
    Trouble.SILENT: both(doubt(Sent.REPLY)),
    Trouble.LATE: both(doubt(Sent.REPLY)),
    Trouble.TWICE: both(confirmed()),
    Trouble.FRAGMENT: both(doubt(Sent.REPLY)),
    Trouble.CORRUPTED: both(doubt(Sent.REPLY)),
    Trouble.FOREIGN: both(doubt(Sent.REPLY)),
    Trouble.UNASKED: both(doubt(Sent.REPLY)),
    Trouble.MISFIT: both(doubt(Sent.REPLY)),
    Trouble.REFUSED_PROVED: both(proved("modbus-exception-02", 1)),
    Trouble.REFUSED_UNPROVED: both(doubt(Sent.REPLY)),
    Trouble.VANISHED_DURING: both(doubt(Sent.REPLY)),
    Trouble.UNCARRIED: both(proved("not-sent", 0)),
    Trouble.UNSAYABLE: both(proved("not-sent", 0)),
    Trouble.TOO_LONG: both(proved("not-sent", 0)),
}
EXCEPTION: Final = {Trouble.REFUSED_PROVED: 0x02, Trouble.REFUSED_UNPROVED: 0x04}
UNCARRIED: Final = (Message(UNIT, b"\x06", 0), Line("*IDN?", True))


def resident(kind: str) -> Resident:
    """The device as a daemon knows it."""
    return Resident(kind, CONTRACT, "LEVEL", "WHO", 0x000F, 0xDEAD)


def writes_in(frames: list[bytes], function_at: int) -> int:
    """How many of these are writes of LEVEL."""
    return sum(frame[function_at : function_at + 3] == b"\x06\x00\x07" for frame in frames)


def asked(trouble: Trouble, access: Access) -> RegisterRead | RegisterWrite:
    """The transfer that meets a trouble."""
    return ODD.get((trouble, access), READ if access is Access.READ else WRITE)


class Words:
    """The registers of one device.

    Attributes:
        held: words by number; those that are not there are zero.
    """

    def __init__(self) -> None:
        self.held: dict[int, int] = {}
        self.hold(RIGHT)

    def hold(self, data: bytes, at: int = 5) -> None:
        """Have these bytes from a register on."""
        for n in range(0, len(data), 2):
            self.held[at + n // 2] = int.from_bytes(data[n : n + 2], "big")

    def answer(self, pdu: bytes) -> bytes:
        """Carry out a request."""
        function, at, number = pdu[0], int.from_bytes(pdu[1:3], "big"), int.from_bytes(pdu[3:5], "big")
        match function:
            case 3:
                data = b"".join(self.held.get(at + n, 0).to_bytes(2, "big") for n in range(number))
                return bytes([function, len(data)]) + data
            case 6:
                self.held[at] = number
                return pdu
        return bytes([function | 0x80, 1])


def unasked(pdu: bytes) -> bytes:
    """The same reply of another function."""
    return bytes([pdu[0] ^ 1]) + pdu[1:]


def misfit(pdu: bytes) -> bytes:
    """A read's reply with half of the words, a write's echo with another value."""
    return pdu[:1] + b"\x02" + pdu[2:4] if pdu[0] == 3 else pdu[:-1] + bytes([pdu[-1] ^ 1])


def refusal(trouble: Trouble, pdu: bytes) -> bytes | None:
    """The exception that a trouble is, None if it is none."""
    code = EXCEPTION.get(trouble)
    return None if code is None else bytes([pdu[0] | 0x80, code])
