"""The slave's half of Modbus RTU: request frames become transfers, and what a chip said becomes reply frames. Pure.

Functions 01 to 06, 15, 16, 22 to 24, and of 43 the access to one object. A frame becomes the transfer that
hwtool_registers.plan would send for it, so that a chip answers the same on a line as on the simulated bus. Exceptions:
01 for a function the chip has not, 02 for a place where it has nothing, 03 for a quantity it does not take.

Source: Modbus Application Protocol V1.1b3, 6 and 7.
"""

from __future__ import annotations

from typing import Final

from hwtool_contracts.model import READ_FUNCTIONS, Contract, Space
from hwtool_registers.bus import Confirmed, RegisterRead, RegisterWrite
from hwtool_registers.buses.modbus import framed
from hwtool_registers.buses.modbus_pdu import IDENTIFICATION
from hwtool_sim.bus import Taken
from hwtool_sim.chip import NotThere
from hwtool_sim.faults import Fault, FaultKind

FRAGMENT_BYTES: Final = 3
MAX_READ_BITS: Final = 2000  # coils of one frame: 6.1
MAX_WRITE_BITS: Final = 1968  # 6.11
MAX_READ: Final = 125  # registers of one frame: 6.3
MAX_WRITE: Final = 123  # 6.12
MAX_WRITE_BEFORE_READ: Final = 121  # 6.17
CONFORMITY: Final = 0x83  # extended identification, each object by itself (6.21)
NO_SUCH_FUNCTION: Final = 0x01
NO_SUCH_QUANTITY: Final = 0x03


def length_of(begun: bytes) -> int | None:
    """How long the request frame is that begins like this; None: not known (yet)."""
    if len(begun) < 2:
        return None
    if begun[1] in (1, 2, 3, 4, 5, 6):
        return 8
    if begun[1] == 22:
        return 10
    if begun[1] == 24:
        return 6
    if begun[1] == 43 and begun[2:3] == IDENTIFICATION[:1]:
        return 7
    if begun[1] in (15, 16) and len(begun) > 6:
        return 9 + begun[6]
    if begun[1] == 23 and len(begun) > 10:
        return 13 + begun[10]
    return None


def request_in(frame: bytes, contract: Contract | None) -> RegisterRead | RegisterWrite | int:
    """The transfer that a frame asks for, or the exception that answers it whatever the device holds.

    Args:
        contract: of the device; None: there is none.
    """
    offset_bytes = 1 if contract is None else contract.access.offset_bytes
    modbus = None if contract is None else contract.access.modbus
    unit, function, body = frame[0], frame[1], frame[2:-2]
    if function == 43 and body[:1] == IDENTIFICATION[:1]:
        fits = body[:2] == IDENTIFICATION and len(body) == 3
        return _whole_asked(unit, Space.OBJECT, body[2], contract) if fits else NO_SUCH_QUANTITY
    if function == 24:
        at = int.from_bytes(body, "big")
        return _whole_asked(unit, Space.QUEUE, at, contract) if len(body) == 2 else NO_SUCH_QUANTITY
    if function == 23:
        return _both_asked(unit, body, offset_bytes)
    if function not in (1, 2, 3, 4, 5, 6, 15, 16, 22):
        return NO_SUCH_FUNCTION
    size = {15: 5, 16: 5, 22: 6}.get(function, 4)  # at least, of those that say how many bytes follow
    if len(body) < size or (function not in (15, 16) and len(body) != size):
        return NO_SUCH_QUANTITY
    offset, word = int.from_bytes(body[:2], "big"), int.from_bytes(body[2:4], "big")
    match function:
        case 1 | 2:
            if not 1 <= word <= MAX_READ_BITS:
                return NO_SUCH_QUANTITY
            bits = Space.COIL if function == 1 else Space.DISCRETE
            return RegisterRead(unit, bits, offset, (word + 7) // 8, offset_bytes, function, word)
        case 5:
            if word not in (0x0000, 0xFF00):
                return NO_SUCH_QUANTITY
            return RegisterWrite(unit, Space.COIL, offset, bytes([word >> 15]), offset_bytes, 5, True, 1)
        case 15:
            data = body[5:]
            if not 1 <= word <= MAX_WRITE_BITS or body[4] != len(data) or len(data) != (word + 7) // 8:
                return NO_SUCH_QUANTITY
            atomic = word == 1 or (modbus is not None and modbus.atomic_multi)
            return RegisterWrite(unit, Space.COIL, offset, data, offset_bytes, 15, atomic, word)
        case 3 | 4:
            if not 1 <= word <= MAX_READ:
                return NO_SUCH_QUANTITY
            space = Space.HOLDING if function == 3 else Space.INPUT
            return RegisterRead(unit, space, offset, 2 * word, offset_bytes, function)
        case 6 | 22:
            return RegisterWrite(unit, Space.HOLDING, offset, body[2:], offset_bytes, function)
        case _:
            data = body[5:]
            if not 1 <= word <= MAX_WRITE or body[4] != len(data) or len(data) != 2 * word:
                return NO_SUCH_QUANTITY
            atomic = word == 1 or (modbus is not None and modbus.atomic_multi)
            return RegisterWrite(unit, Space.HOLDING, offset, data, offset_bytes, 16, atomic)


def _both_asked(unit: int, body: bytes, offset_bytes: int) -> RegisterRead | int:
    """Registers to be written and others to be read behind it (6.17)."""
    if len(body) < 9:
        return NO_SUCH_QUANTITY
    offset, size, at, written = (int.from_bytes(body[i : i + 2], "big") for i in (0, 2, 4, 6))
    data = body[9:]
    fits = 1 <= size <= MAX_READ and 1 <= written <= MAX_WRITE_BEFORE_READ
    if not fits or body[8] != len(data) or len(data) != 2 * written:
        return NO_SUCH_QUANTITY
    return RegisterRead(unit, Space.HOLDING, offset, 2 * size, offset_bytes, 23, first=(at, data))


def _whole_asked(unit: int, space: Space, at: int, contract: Contract | None) -> RegisterRead:
    """One object or queue, as long as the contract says that it may be."""
    registers = () if contract is None else contract.registers.values()
    size_bytes = next((r.size_bytes for r in registers if r.space is space and r.offset == at), 1)
    offset_bytes = 1 if contract is None else contract.access.offset_bytes
    return RegisterRead(unit, space, at, size_bytes, offset_bytes, READ_FUNCTIONS[space])


def exception_frame(unit: int, function: int, code: int) -> bytes:
    """The reply that refuses a request."""
    return framed(bytes([unit, function | 0x80, code]))


def replies_to(frame: bytes, taken: Taken) -> list[bytes]:
    """The frames that come back for a request, with what the planned loss makes of them."""
    unit, function = frame[0], frame[1]
    match taken.said:
        case Confirmed(data):
            if function == 43:
                text = data.strip(b"\0")
                shown = frame[1:4] + bytes([CONFORMITY, 0, 0, 1, frame[4], len(text)]) + text
                reply = framed(frame[:1] + shown)
            elif function == 24:
                shown = data[: 2 + 2 * int.from_bytes(data[:2], "big")]
                reply = framed(frame[:2] + len(shown).to_bytes(2, "big") + shown)
            elif function in (1, 2, 3, 4, 23):
                reply = framed(frame[:2] + bytes([len(data)]) + data)
            else:
                reply = framed(frame[: 8 if function == 22 else 6])
        case NotThere() as refusal:
            reply = exception_frame(unit, function, refusal.exception)
        case None:
            reply = b""
    match taken.loss:
        case Fault(kind=FaultKind.EXCEPTION, code=int(code)):
            return [exception_frame(unit, function, code)]
        case Fault(kind=FaultKind.REPLY_LOST | FaultKind.DATA_NACK):
            return []
        case Fault(kind=FaultKind.DUPLICATED) if reply:
            return [reply, reply]
        case Fault(kind=FaultKind.TRUNCATED):
            return [reply[:FRAGMENT_BYTES]] if reply else []
        case Fault(kind=FaultKind.CORRUPTED) if reply:
            return [reply[:-1] + bytes([reply[-1] ^ 0xFF])]
        case _:
            return [reply] if reply else []
