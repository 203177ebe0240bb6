"""I2C on an adapter with full I2C: smbus2 on i2c-dev faked at the ioctl, found by the adapter's name."""

from __future__ import annotations

import errno
import os
import shutil
from collections.abc import Callable, Hashable, Mapping
from dataclasses import dataclass, replace
from functools import partial
from pathlib import Path
from typing import Any, ClassVar, Final

from hwtool_contracts.model import Space
from hwtool_registers.bus import RegisterRead, RegisterWrite, Sent
from hwtool_registers.buses.i2c import I2c, I2cSettings
from hwtool_registers.buses.i2c_messages import packet_error_code
from tests.conformance.bench import (
    Access,
    Bench,
    Expectation,
    Resident,
    Room,
    Trouble,
    both,
    doubt,
    open_handles,
    proved,
)
from tests.registers.fake_kernel import EVERYTHING, Cells, installed, owned

ADDRESS: Final = 0x20
READ: Final = RegisterRead(ADDRESS, Space.MEMORY, 0x10, 6)
WRITE: Final = RegisterWrite(ADDRESS, Space.MEMORY, 0x40, b"\x55\x66")
RIGHT: Final = bytes(range(0x10, 0x16))
LIE: Final = bytes.fromhex("deadbeefdead")
CONTRACT: Final = """
schema = 1
part = "cells"
vendor = "nobody"
title = "a device of the conformance suite"
source = "tests/conformance/benches/i2c.py"
[access]
offset_bytes = 1
byte_order = "big"
[access.i2c]
addresses = [0x20]
[defaults]
read = { effects = ["none"], provenance = "generated", source = "i2c.py" }
write = { effect = "store", provenance = "generated", source = "i2c.py" }
[registers.WHO]
offset = 0x10
access = "ro"
[registers.LEVEL]
offset = 0x40
access = "rw"
reset = 0
"""
CLOCK: Final = "the master gives the clock: nothing comes that it has not asked for"
HANDED_OVER: Final[dict[Trouble, Expectation]] = {
    # what holds of every adapter; one that is gone takes nothing, but that is found out by the kernel alone
    Trouble.SILENT: both(doubt(Sent.DATA)),
    Trouble.REFUSED_PROVED: both(proved("not-sent", 0)),
    Trouble.REFUSED_UNPROVED: both(doubt(Sent.DATA)),
    Trouble.VANISHED_BEFORE: both(doubt(Sent.DATA, 0)),
    Trouble.VANISHED_DURING: both(doubt(Sent.DATA)),
    Trouble.RETURNED: both(doubt(Sent.DATA, 0)),
    Trouble.UNCARRIED: both(proved("not-sent", 0)),
    Trouble.TOO_LONG: both(proved("not-sent", 0)),
}
CLOCKED: Final = dict.fromkeys(
    (Trouble.LATE, Trouble.OVERDUE, Trouble.TWICE, Trouble.FOREIGN, Trouble.UNASKED, Trouble.MISFIT), CLOCK
)


@dataclass
class Chip(Cells):
    """Cells that may fail once, when a transaction has written its bytes or before it reads."""

    at_write: Callable[[bytes], None] | None = None
    at_read: Callable[[], None] | None = None

    def taken(self, data: bytes) -> None:
        if self.at_write is not None:
            fails, self.at_write = self.at_write, None
            fails(data)
        super().taken(data)

    def given(self, size: int) -> bytes:
        if self.at_read is not None:
            fails, self.at_read = self.at_read, None
            fails()
        return super().given(size)


def no_acknowledge(*_: object) -> None:
    """A byte that is not acknowledged."""
    raise OSError(errno.EIO, os.strerror(errno.EIO))


class I2cBench(Bench):
    """A bit-banging adapter; each time it is back it has another number."""

    name = "i2c"
    can: ClassVar[Mapping[Trouble, Expectation]] = {
        **HANDED_OVER,
        Trouble.ABSENT: both(proved("address-nack", 1)),
        Trouble.FRAGMENT: both(doubt(Sent.DATA)),
        Trouble.CORRUPTED: Expectation(read=doubt(Sent.REPLY), write=doubt(Sent.DATA)),
    }
    cannot: ClassVar[Mapping[Trouble, str]] = {
        **CLOCKED,
        Trouble.UNSAYABLE: "any bytes can be said in two messages",
    }
    read, write, right, lie = READ, WRITE, RIGHT, LIE
    behind = False
    resident: ClassVar[Resident | None] = Resident("i2c", CONTRACT, "LEVEL", "WHO", RIGHT[0], LIE[0])
    adapter: ClassVar[str] = "i2c-gpio of a bench"
    functions: ClassVar[int] = EVERYTHING

    def __init__(self, room: Room) -> None:
        super().__init__(room)
        self.top = room.folder / "host"
        self.top.mkdir()
        self.kernel = installed(room.patch, self.top, {"i2c-3": self.adapter})
        self.kernel.functions = self.functions
        self.chip = Chip()
        self.kernel.chips = {ADDRESS: self.chip}
        self.number = 3
        self._i2c = I2c(self.settings(), self.top / "sys", self.top / "dev")
        self.bus = self._i2c

    def settings(self) -> I2cSettings:
        """How the bus finds its adapter."""
        return I2cSettings(self.adapter, None)

    @property
    def node(self) -> Path:
        """The adapter's node, today."""
        return self.top / "dev" / f"i2c-{self.number}"

    def plug(self) -> None:
        """The adapter is there, under a new number."""
        self.number += 1
        listed = self.top / "sys/class/i2c-dev" / self.node.name
        listed.mkdir()
        (listed / "name").write_text(self.adapter + "\n")
        self.node.write_bytes(b"")

    def unplug(self) -> None:
        """The adapter is pulled out."""
        shutil.rmtree(self.top / "sys/class/i2c-dev" / self.node.name)
        self.node.unlink()

    def asked(self, trouble: Trouble, access: Access) -> RegisterRead | RegisterWrite:
        """Transfers that i2c-dev does not take, and with a packet error code where one is to be wrong."""
        match trouble, access:
            case Trouble.UNCARRIED, Access.READ:
                return RegisterRead(ADDRESS, Space.HOLDING, 0x10, 2, 1, 3)
            case Trouble.UNCARRIED, Access.WRITE:
                return RegisterWrite(ADDRESS, Space.HOLDING, 0x40, b"\x55\x66", 1, 6)
            case Trouble.TOO_LONG, Access.READ:
                return replace(READ, size_bytes=8193)
            case Trouble.TOO_LONG, Access.WRITE:
                return replace(WRITE, data=bytes(8192))
            case Trouble.CORRUPTED, Access.READ:
                return replace(READ, pec=True)
            case Trouble.CORRUPTED, Access.WRITE:
                return replace(WRITE, pec=True)
        return super().asked(trouble, access)

    def seen(self) -> list[Hashable]:
        """Transactions that the adapter was given."""
        return [tuple(transaction) for transaction in self.kernel.log]

    def arrange(self, trouble: Trouble, access: Access) -> None:
        """At the next transaction, or at the adapter at once."""
        self.chip.memory[0x10:0x16] = LIE
        match trouble:
            case Trouble.ABSENT:
                del self.kernel.chips[ADDRESS]
            case Trouble.SILENT:
                self.kernel.ends = [errno.ETIMEDOUT]  # it holds the clock until the kernel gives up
            case Trouble.FRAGMENT if access is Access.READ:
                self._part_of_a_read()
            case Trouble.FRAGMENT:
                self.chip.at_write = self._half_taken
            case Trouble.CORRUPTED if access is Access.READ:
                self._spoilt_read()
            case Trouble.CORRUPTED:
                self.chip.at_write = no_acknowledge  # of the code
            case Trouble.REFUSED_PROVED:
                owned(self.top, self.node.name, ADDRESS, "lm75")
            case Trouble.REFUSED_UNPROVED:
                self.kernel.fails = [errno.EAGAIN]  # the arbitration was lost
            case Trouble.VANISHED_BEFORE:
                self.unplug()
            case Trouble.VANISHED_DURING:
                self.chip.at_write = self._pulled_out
            case Trouble.RETURNED:
                self.unplug()
                self.plug()

    def _part_of_a_read(self) -> None:
        self.chip.at_read = no_acknowledge  # of the address, after the repeated start

    def _half_taken(self, data: bytes) -> None:
        self.chip.taken(data[:-1])
        no_acknowledge()

    def _spoilt_read(self) -> None:
        head = bytes([ADDRESS << 1, READ.offset, ADDRESS << 1 | 1])
        self.chip.memory[0x16] = packet_error_code(head + LIE)
        self.kernel.spoil = lambda data: bytes([data[0] ^ 1]) + data[1:]

    def _pulled_out(self, _: bytes) -> None:
        self.unplug()
        raise OSError(errno.ENODEV, os.strerror(errno.ENODEV))

    def mend(self) -> None:
        """The chip is there and holds what is right, and so is the adapter."""
        self.chip.memory[0x10:0x16] = RIGHT
        self.kernel.chips = {ADDRESS: self.chip}
        self.kernel.spoil = lambda data: data
        self.kernel.fails, self.kernel.ends = [], []
        self.chip.at_read = self.chip.at_write = None
        shutil.rmtree(self.top / "sys/bus", ignore_errors=True)
        if not self.node.exists():
            self.plug()

    def holds(self) -> int:
        """Open handles of nodes."""
        return open_handles(str(self.top / "dev"))

    def stands(self, who: int) -> None:
        """See Bench."""
        self.chip.memory[READ.offset] = who

    def effects(self) -> int:
        """Transactions that write the level."""
        return sum(t[0][0] == "W" and t[0][2][:1] == b"\x40" and len(t[0][2]) > 1 for t in self.kernel.log)

    def board(self) -> dict[str, Any]:
        """See Bench."""
        self.room.patch.setattr("hwtool.buses.I2c", partial(I2c, sysfs=self.top / "sys", dev=self.top / "dev"))
        settings = self._i2c._settings
        return {"kind": "i2c"} | ({"adapter": settings.adapter} if settings.adapter else {"path": settings.path})

    def close(self) -> None:
        """Give the node back."""
        self._i2c.close()


class I2cByLinkBench(I2cBench):
    """The same adapter, named by a link that udev keeps, as where two adapters have the same name."""

    name = "i2c by link"

    @property
    def link(self) -> Path:
        """The name that stays."""
        return self.top / "dev" / "my-i2c"

    def settings(self) -> I2cSettings:
        """By the link, which udev made when the adapter came."""
        self.link.symlink_to(self.node)
        return I2cSettings(None, str(self.link))

    def plug(self) -> None:
        """And the link leads there."""
        super().plug()
        self.link.symlink_to(self.node)

    def unplug(self) -> None:
        """And so is the link."""
        self.link.unlink()
        super().unplug()


BENCHES: Final = (I2cBench, I2cByLinkBench)
