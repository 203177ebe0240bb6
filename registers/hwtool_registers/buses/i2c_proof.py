"""What an error of Linux's i2c shows: which errno of which adapter proves that the device did not act. Pure.

A NACK at the address proves it: the device took nothing. But most drivers give the same errno for a NACK at a data
byte, and then nothing is proved: the device may have acted on what it had taken.

| adapter | errno | shows |
|---|---|---|
| bit-banging (i2c-gpio and others on i2c-algo-bit) | ENXIO | NACK at an address; a data NACK is EIO |
| stub | ENODEV | no chip at the address; nothing is sent |
| any | EOPNOTSUPP | the adapter cannot do it; refused before anything is sent |
| any other, i801 too | any | nothing: there ENXIO is a NACK at any byte, and a device that held the clock too long |

After a repeated start an address NACK proves nothing of what was written before it: an opcode may have been executed.
The offset of a register read is no opcode: it sets a pointer that the next access sets anew.

Source: Linux drivers/i2c/algos/i2c-algo-bit.c (bit_doAddress, sendbytes) and drivers/i2c/i2c-stub.c (stub_xfer).
"""

from __future__ import annotations

import errno
import os
from dataclasses import dataclass
from typing import Final

from hwtool_registers.bus import NOT_SENT, Ambiguous, Answer, Message, RegisterRead, RegisterWrite, Rejected, Sent

ADDRESS_NACK: Final = "address-nack"


@dataclass(frozen=True, slots=True)
class Adapter:
    """What is known of a kind of adapter.

    Attributes:
        name: a part of its name in sysfs.
        absent: errno of an address that nobody acknowledges, and of nothing else.
        why: where this is known from.
    """

    name: str
    absent: frozenset[int] = frozenset()
    why: str = ""


ADAPTERS: Final = (
    Adapter("i2c-gpio", frozenset({errno.ENXIO}), "i2c-algo-bit: ENXIO at the address alone"),
    Adapter("SMBus stub driver", frozenset({errno.ENODEV}), "i2c-stub: looked up first"),
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
    may_have_executed = isinstance(transfer, Message) and transfer.write and transfer.read_bytes
    if number in adapter.absent and not may_have_executed:
        return Rejected(f"no acknowledge at the address: {fault}", ADDRESS_NACK)
    return Ambiguous(Sent.DATA, fault)
