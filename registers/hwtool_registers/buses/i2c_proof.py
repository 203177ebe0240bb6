"""What an error of Linux's i2c shows: which errno of which adapter proves that the device did not act. Pure.

A NACK at the address proves it: the device took nothing. But most drivers give the same errno for a NACK at a data
byte, and then nothing is proved for a write: the device may have acted on what it had taken. A read is another matter:
the master acknowledges its data, so that a NACK can only have come before the device gave any.

| adapter | errno | shows |
|---|---|---|
| bit-banging (i2c-gpio and others on i2c-algo-bit) | ENXIO | NACK at an address; a data NACK is EIO |
| stub | ENODEV | no chip at the address; nothing is sent |
| any | EOPNOTSUPP | the adapter cannot do it; refused before anything is sent |
| any other, i801 too | any | nothing: there ENXIO is a NACK at any byte, and a device that held the clock too long |

After a repeated start an address NACK proves nothing of what was written before it: an opcode may have been executed.

Source: Linux drivers/i2c/algos/i2c-algo-bit.c (bit_doAddress, sendbytes) and drivers/i2c/i2c-stub.c (stub_xfer).
"""

from __future__ import annotations

import errno
import os
from dataclasses import dataclass
from typing import Final

from hwtool_registers.bus import Ambiguous, Answer, Message, RegisterRead, RegisterWrite, Rejected, Sent

ADDRESS_NACK: Final = "address-nack"
NOT_SENT: Final = "not-sent"


@dataclass(frozen=True, slots=True)
class Adapter:
    """What is known of a kind of adapter.

    Attributes:
        name: a part of its name in sysfs.
        absent: errno of an address that nobody acknowledges, and of nothing else.
        no_read: errno that a read gets only before the device has given any data.
        why: where this is known from.
    """

    name: str
    absent: frozenset[int] = frozenset()
    no_read: frozenset[int] = frozenset()
    why: str = ""


ADAPTERS: Final = (
    Adapter("i2c-gpio", frozenset({errno.ENXIO}), frozenset({errno.ENXIO}), "i2c-algo-bit: ENXIO at the address alone"),
    Adapter("SMBus stub driver", frozenset({errno.ENODEV}), frozenset({errno.ENODEV}), "i2c-stub: looked up first"),
)
UNLISTED: Final = Adapter("")


def adapter_of(name: str) -> Adapter:
    """What is known of the adapter of this name."""
    return next((a for a in ADAPTERS if a.name in name), UNLISTED)


def answer_of(adapter: Adapter, transfer: RegisterRead | RegisterWrite | Message, number: int) -> Answer:
    """What an errno says of a transfer that was given to the adapter once."""
    name = errno.errorcode.get(number, str(number))
    fault = f"{name} ({os.strerror(number)})"
    if number == errno.EOPNOTSUPP:
        return Rejected(f"the adapter cannot do this: {fault}", NOT_SENT)
    match transfer:
        case RegisterRead() if number in adapter.no_read:
            return Rejected(f"no acknowledge: {fault}", ADDRESS_NACK)
        case RegisterWrite() if number in adapter.absent:
            return Rejected(f"no acknowledge at the address: {fault}", ADDRESS_NACK)
        case Message() if number in adapter.absent and not (transfer.write and transfer.read_bytes):
            return Rejected(f"no acknowledge at the address: {fault}", ADDRESS_NACK)
        case _:
            return Ambiguous(Sent.DATA, fault)
