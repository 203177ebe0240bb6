"""I2C on an adapter that speaks SMBus alone, and whose errors prove nothing (i801)."""

from __future__ import annotations

import errno
from collections.abc import Mapping
from dataclasses import replace
from typing import ClassVar, Final

from hwtool_registers.bus import RegisterRead, RegisterWrite, Sent
from tests.conformance.bench import Access, Expectation, Trouble, both, doubt, proved
from tests.conformance.benches.i2c import CLOCKED, HANDED_OVER, READ, WRITE, I2cBench
from tests.registers.fake_kernel import SMBUS_ALONE


class SmbusBench(I2cBench):
    """The commands of SMBus; a read of several bytes is a block, which may come short."""

    name = "smbus"
    can: ClassVar[Mapping[Trouble, Expectation]] = {
        **HANDED_OVER,
        Trouble.ABSENT: both(doubt(Sent.DATA)),
        Trouble.FRAGMENT: Expectation(read=doubt(Sent.REPLY), write=doubt(Sent.DATA)),
        Trouble.CORRUPTED: both(doubt(Sent.DATA)),
        Trouble.UNSAYABLE: both(proved("not-sent", 0)),
    }
    cannot: ClassVar[Mapping[Trouble, str]] = CLOCKED
    adapter = "SMBus I801 adapter of a bench"
    functions = SMBUS_ALONE

    def asked(self, trouble: Trouble, access: Access) -> RegisterRead | RegisterWrite:
        """As any adapter, but that blocks are short and have no packet error code, and offsets one byte."""
        match trouble, access:
            case Trouble.TOO_LONG, Access.READ:
                return replace(READ, size_bytes=33)
            case Trouble.TOO_LONG, Access.WRITE:
                return replace(WRITE, data=bytes(33))
            case Trouble.UNSAYABLE, Access.READ:
                return replace(READ, stop=True)
            case Trouble.UNSAYABLE, Access.WRITE:
                return replace(WRITE, pec=True, data=bytes(3))
            case Trouble.CORRUPTED, Access.READ:
                return replace(READ, pec=True, size_bytes=1)
        return super().asked(trouble, access)

    def _part_of_a_read(self) -> None:
        self.kernel.spoil = lambda data: data[:-2]

    def _spoilt_read(self) -> None:
        self.kernel.ends = [errno.EBADMSG]  # here the kernel compares the code


BENCHES: Final = (SmbusBench,)
