"""What Modbus says whatever carries it: requests and replies without address and checksum, and the proof table. Pure.

Functions 01 to 06, 15, 16, 22 to 24, and of 43 the individual access to device identification (MEI 14, code 04). What
43 and 24 answer has a length of its own: the text is made as long as it may be by zeros before it, the words of a
queue by zeros behind them; one that is longer yet is answered as it came. A protocol data unit is the function and its
data; RTU puts the unit's address before it and a CRC behind, TCP a header with a transaction number before.

Source: Modbus Application Protocol V1.1b3, 6 (functions) and 7 (exceptions).
"""

from __future__ import annotations

from typing import Final

from hwtool_contracts.model import Space
from hwtool_registers.bus import Ambiguous, Answer, Capabilities, Confirmed, RegisterRead, RegisterWrite, Rejected, Sent

EXCEPTIONS: Final = {
    0x01: "illegal function",
    0x02: "illegal data address",
    0x03: "illegal data value",
    0x04: "device failure",
    0x05: "acknowledge",
    0x06: "device busy",
    0x08: "memory parity error",
    0x0A: "gateway path unavailable",
    0x0B: "gateway target failed to respond",
}

# The proof table: which exceptions show that the device did not act. 01 to 03 are checked before execution
# (Application Protocol V1.1b3, the state diagrams of 6.x), for several registers only where the contract says that the
# device takes them whole or not at all; 06 says that the request was not taken up. All others prove nothing.
PROVES_ALWAYS: Final = frozenset({0x06})
PROVES_IF_ATOMIC: Final = frozenset({0x01, 0x02, 0x03})


IDENTIFICATION: Final = b"\x0e\x04"  # MEI type 14, one object by its number
MOST_WORDS: Final = 31  # of a queue
OBJECT_AT: Final = 9  # where an object's text begins in the reply
CAPABILITIES: Final = Capabilities(frozenset(s for s in Space if s.modbus), messages=False, lines=False)
COIL_ON: Final = b"\xff\x00"
COIL_OFF: Final = b"\x00\x00"


def pdu_of(transfer: RegisterRead | RegisterWrite) -> bytes:
    """The request of a transfer: function and data.

    Raises:
        ValueError: the transfer cannot be said in one request of the functions supported.
    """
    if max(transfer.offset, transfer.first[0] if isinstance(transfer, RegisterRead) and transfer.first else 0) > 0xFFFF:
        raise ValueError(f"no Modbus frame for {transfer}")
    if transfer.function == 43 and isinstance(transfer, RegisterRead) and transfer.offset < 0x100:
        return b"\x2b" + IDENTIFICATION + bytes([transfer.offset])
    head = bytes([transfer.function or 0]) + transfer.offset.to_bytes(2, "big")
    match transfer:
        case RegisterRead(function=24):
            return head
        case RegisterRead(function=1 | 2, bits=int(bits)) if 1 <= bits <= 2000:
            return head + bits.to_bytes(2, "big")
        case RegisterWrite(function=5, bits=1) if len(transfer.data) == 1:
            return head + (COIL_ON if transfer.data[0] else COIL_OFF)
        case RegisterWrite(function=15, bits=int(bits)) if 1 <= bits <= 1968 and len(transfer.data) == (bits + 7) // 8:
            return head + bits.to_bytes(2, "big") + bytes([len(transfer.data)]) + transfer.data
        case RegisterRead(function=3 | 4) if transfer.size_bytes % 2 == 0 and 2 <= transfer.size_bytes <= 250:
            return head + _words(transfer.size_bytes)
        case RegisterRead(function=23, first=(at, data)) if _fits_both(transfer.size_bytes, data):
            return head + _words(transfer.size_bytes) + at.to_bytes(2, "big") + _words(len(data)) + _counted(data)
        case RegisterWrite(function=6) if len(transfer.data) == 2:
            return head + transfer.data
        case RegisterWrite(function=16) if len(transfer.data) % 2 == 0 and 2 <= len(transfer.data) <= 246:
            return head + _words(len(transfer.data)) + _counted(transfer.data)
        case RegisterWrite(function=22) if len(transfer.data) == 4:
            return head + transfer.data
        case _:
            raise ValueError(f"no Modbus frame for {transfer}")


def _fits_both(size_bytes: int, data: bytes) -> bool:
    """Whether one request can write these and read so many: 121 registers at most, and 125 (6.17)."""
    return size_bytes % 2 == len(data) % 2 == 0 and 2 <= size_bytes <= 250 and 2 <= len(data) <= 242


def _words(size_bytes: int) -> bytes:
    return (size_bytes // 2).to_bytes(2, "big")


def _counted(data: bytes) -> bytes:
    return bytes([len(data)]) + data


def reply_bytes(transfer: RegisterRead | RegisterWrite, begun: bytes = b"") -> int:
    """How long the reply is that carries the request out, as far as its beginning tells."""
    if transfer.function == 43:
        return OBJECT_AT + begun[OBJECT_AT - 1] if len(begun) >= OBJECT_AT else OBJECT_AT
    if transfer.function == 24:
        return 3 + int.from_bytes(begun[1:3], "big") if len(begun) >= 3 else 3
    if isinstance(transfer, RegisterRead):
        return 2 + transfer.size_bytes
    return 7 if transfer.function == 22 else 5


def _object_in(transfer: RegisterRead, pdu: bytes) -> Answer:
    """The text of the object that was asked for.

    Source: Modbus Application Protocol V1.1b3, 6.21.
    """
    text = pdu[OBJECT_AT:]
    wanted = b"\x2b" + IDENTIFICATION, bytes([1, transfer.offset, len(text)])
    if (pdu[:3], pdu[6:OBJECT_AT]) != wanted:
        return Ambiguous(Sent.REPLY, f"no reply that holds object {transfer.offset}: {pdu.hex()}")
    return Confirmed(text.rjust(transfer.size_bytes, b"\0"))


def _queue_in(transfer: RegisterRead, pdu: bytes) -> Answer:
    """The number of words in a queue, and the words.

    Source: Modbus Application Protocol V1.1b3, 6.18.
    """
    data = pdu[3:]
    words = int.from_bytes(data[:2], "big")
    if int.from_bytes(pdu[1:3], "big") != len(data) or len(data) != 2 + 2 * words or words > MOST_WORDS:
        return Ambiguous(Sent.REPLY, f"no reply that holds a queue: {pdu.hex()}")
    return Confirmed(data.ljust(transfer.size_bytes, b"\0"))


def answer_to(transfer: RegisterRead | RegisterWrite, pdu: bytes) -> Answer:
    """What a reply of the right unit says of the request; `pdu` is its function and data, at least two bytes."""
    function = transfer.function or 0
    if pdu[0] & 0x7F != function:
        return Ambiguous(Sent.REPLY, f"reply of function {pdu[0]:#04x} to another request")
    if pdu[0] & 0x80:
        return exception_answer(transfer, pdu[1])
    match transfer:
        case RegisterRead(function=43):
            return _object_in(transfer, pdu)
        case RegisterRead(function=24):
            return _queue_in(transfer, pdu)
        case RegisterRead():
            data = pdu[2:]
            if pdu[1] != len(data) or len(data) != transfer.size_bytes:
                return Ambiguous(Sent.REPLY, f"{len(data)} data bytes came, {transfer.size_bytes} were asked for")
            return Confirmed(data)
        case RegisterWrite():
            wanted = pdu_of(transfer)[1 : reply_bytes(transfer)]
            if pdu[1:] != wanted:
                return Ambiguous(Sent.REPLY, f"echo {pdu[1:].hex()} differs from {wanted.hex()}")
            return Confirmed()


def exception_answer(transfer: RegisterRead | RegisterWrite, code: int) -> Answer:
    """What an exception reply says about the request: the proof table applied to its code."""
    fault = f"Modbus exception {code:02X} ({EXCEPTIONS.get(code, 'not in the standard')})"
    atomic = not isinstance(transfer, RegisterWrite) or transfer.atomic
    if code in PROVES_ALWAYS or (code in PROVES_IF_ATOMIC and atomic):
        return Rejected(fault, f"modbus-exception-{code:02X}")
    return Ambiguous(Sent.REPLY, fault)
