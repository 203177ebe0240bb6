"""I2C, whatever carries it: the bytes of a transfer's one or two messages, with their packet error code. Pure.

Source: SMBus 3.1, 5.4 (packet error checking).
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Final

from hwtool_contracts.model import Crc
from hwtool_registers.bus import Ambiguous, Confirmed, Message, RegisterRead, RegisterWrite, Sent
from hwtool_registers.crc import crc8

MOST_BYTES: Final = 8192  # of one message: i2c-dev's own limit, and ours elsewhere
PEC: Final = Crc(poly=0x07, init=0, word_bytes=MOST_BYTES)  # over the whole message
I2cTransfer = RegisterRead | RegisterWrite | Message


def packet_error_code(data: bytes) -> int:
    """The CRC-8 of SMBus (x^8 + x^2 + x + 1, initial 0) over a message from its address on."""
    return crc8(PEC, data)


def bytes_of(transfer: I2cTransfer) -> tuple[bytes, int]:
    """What a transfer writes, offset first, and how many bytes it reads.

    Raises:
        OverflowError: the offset has no room in its bytes.
    """
    match transfer:
        case RegisterRead(offset=offset, offset_bytes=size):
            return offset.to_bytes(size, "big"), transfer.size_bytes
        case RegisterWrite(offset=offset, offset_bytes=size):
            return offset.to_bytes(size, "big") + transfer.data, 0
        case Message(write=write, read_bytes=read_bytes):
            return write, read_bytes


@dataclass(frozen=True, slots=True)
class Messages:
    """A written message, and a read one behind it.

    Attributes:
        out: what is written behind the address, a packet error code included.
        writes: whether there is a written message at all: it may have no bytes.
        size_bytes: how many bytes are read, a packet error code included; 0: nothing is read.
        stop: a stop stands between the two, no repeated start.
        head: what the packet error code of the answer begins with, None: it has none.
    """

    out: bytes
    writes: bool
    size_bytes: int
    stop: bool
    head: bytes | None

    def answer(self, data: bytes) -> Confirmed | Ambiguous:
        """What the bytes that were read come to."""
        if self.head is None or not self.size_bytes:
            return Confirmed(data)
        told, wanted = data[-1], packet_error_code(self.head + data[:-1])
        if told != wanted:
            return Ambiguous(Sent.REPLY, f"packet error code {told:#04x} came, {wanted:#04x} fits {data.hex()}")
        return Confirmed(data[:-1])


def messages_of(transfer: I2cTransfer) -> Messages:
    """The messages of a transfer.

    Raises:
        OverflowError: the offset has no room in its bytes.
    """
    out, size = bytes_of(transfer)
    address, writes = transfer.address, bool(out or not size)
    written = bytes([address << 1]) + out if writes else b""
    if transfer.pec and not size:
        out += bytes([packet_error_code(written)])
    stop = isinstance(transfer, RegisterRead) and transfer.stop
    head = written + bytes([address << 1 | 1]) if transfer.pec else None
    return Messages(out, writes, size + (transfer.pec if size else 0), stop, head)
