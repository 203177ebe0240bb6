"""SPI: spidev faked at the ioctl that its C extension calls, a controller found by its device's name."""

from __future__ import annotations

import errno
from collections.abc import Hashable, Mapping
from dataclasses import replace
from functools import partial
from pathlib import Path
from typing import Any, ClassVar, Final

from hwtool_contracts.model import Space
from hwtool_registers.bus import RegisterRead, RegisterWrite, Sent
from hwtool_registers.buses.spi import Spi, SpiSettings
from hwtool_registers.buses.spi_exchange import SpiChip
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
from tests.conformance.benches.i2c import CLOCK
from tests.registers.fake_spidev import Cells, FakeSpidev, installed

CHIP_SELECT: Final = 1
CONTROLLER: Final = "fe204000.spi"
READ: Final = RegisterRead(CHIP_SELECT, Space.MEMORY, 0x90, 6)
WRITE: Final = RegisterWrite(CHIP_SELECT, Space.MEMORY, 0x40, b"\x55\x66")
RIGHT: Final = bytes(range(0x10, 0x16))
LIE: Final = bytes.fromhex("deadbeefdead")
CONTRACT: Final = """
schema = 1
part = "cells"
vendor = "nobody"
title = "a device of the conformance suite"
source = "tests/conformance/benches/spi.py"
[access]
offset_bytes = 1
byte_order = "big"
[access.spi]
read_mask = 0x80
[defaults]
read = { effects = ["none"], provenance = "generated", source = "spi.py" }
write = { effect = "store", provenance = "generated", source = "spi.py" }
[registers.WHO]
offset = 0x10
access = "ro"
[registers.LEVEL]
offset = 0x40
access = "rw"
reset = 0
"""
NOBODY: Final = "SPI acknowledges nothing: what answers where nobody is are bytes like others; the identity tells"
WHOLE: Final = "the controller clocks whole transfers, or says that it did not; nothing in one is checked"
CLOCKED: Final = dict.fromkeys(
    (Trouble.LATE, Trouble.OVERDUE, Trouble.TWICE, Trouble.FOREIGN, Trouble.UNASKED, Trouble.MISFIT), CLOCK
)


def asked_of_spi(trouble: Trouble, access: Access, too_long: int) -> RegisterRead | RegisterWrite | None:
    """Transfers that SPI does not take."""
    match trouble, access:
        case Trouble.UNCARRIED, Access.READ:
            return RegisterRead(CHIP_SELECT, Space.HOLDING, 0x10, 2, 1, 3)
        case Trouble.UNCARRIED, Access.WRITE:
            return RegisterWrite(CHIP_SELECT, Space.HOLDING, 0x40, b"\x55\x66", 1, 6)
        case Trouble.UNSAYABLE, Access.READ:
            return replace(READ, stop=True)
        case Trouble.UNSAYABLE, Access.WRITE:
            return replace(WRITE, pec=True)
        case Trouble.TOO_LONG, Access.READ:
            return replace(READ, size_bytes=too_long)
        case Trouble.TOO_LONG, Access.WRITE:
            return replace(WRITE, data=bytes(too_long))
    return None


class SpiBench(Bench):
    """A controller whose chip select may be taken away, as where its driver is unbound."""

    name = "spi"
    can: ClassVar[Mapping[Trouble, Expectation]] = {
        Trouble.SILENT: both(doubt(Sent.DATA)),
        Trouble.REFUSED_UNPROVED: both(doubt(Sent.DATA)),
        Trouble.VANISHED_BEFORE: both(doubt(Sent.DATA, 0)),
        Trouble.VANISHED_DURING: both(doubt(Sent.DATA)),
        Trouble.RETURNED: both(doubt(Sent.DATA, 0)),
        Trouble.UNCARRIED: both(proved("not-sent", 0)),
        Trouble.UNSAYABLE: both(proved("not-sent", 0)),
        Trouble.TOO_LONG: both(proved("not-sent", 0)),
    }
    cannot: ClassVar[Mapping[Trouble, str]] = {
        **CLOCKED,
        Trouble.ABSENT: NOBODY,
        **dict.fromkeys((Trouble.FRAGMENT, Trouble.CORRUPTED), WHOLE),
        Trouble.REFUSED_PROVED: "a controller's driver may fail with any error once the chip select is active",
    }
    read, write, right, lie = READ, WRITE, RIGHT, LIE
    behind = False
    resident: ClassVar[Resident | None] = Resident("spi", CONTRACT, "LEVEL", "WHO", RIGHT[0], LIE[0])
    kernel: FakeSpidev

    def __init__(self, room: Room) -> None:
        super().__init__(room)
        self.top = room.folder / "host"
        self.top.mkdir()
        self.kernel = installed(self.top, CONTROLLER, [0, CHIP_SELECT])
        settings = SpiSettings(CONTROLLER, None, {CHIP_SELECT: SpiChip()})
        self._spi = Spi(settings, self.top / "sys", self.top / "dev")
        self.bus = self._spi

    @property
    def node(self) -> Path:
        """The chip select's."""
        return self.top / "dev" / f"spidev0.{CHIP_SELECT}"

    @property
    def chip(self) -> Cells:
        """The one there."""
        return self.kernel.chips[self.node.name]

    def plug(self) -> None:
        """The chip select is there, and its node is another file."""
        self.node.write_bytes(b"")

    def unplug(self) -> None:
        """It is taken away."""
        self.node.unlink()

    def asked(self, trouble: Trouble, access: Access) -> RegisterRead | RegisterWrite:
        """See Bench."""
        return asked_of_spi(trouble, access, 4096) or super().asked(trouble, access)

    def seen(self) -> list[Hashable]:
        """Messages that the controller was given."""
        return [(name, tuple(transfers)) for name, transfers in self.kernel.log]

    def arrange(self, trouble: Trouble, access: Access) -> None:
        """At the next message, or at the chip select at once."""
        self.chip.memory[0x10:0x16] = LIE
        match trouble:
            case Trouble.SILENT:
                self.kernel.ends = [errno.ETIMEDOUT]
            case Trouble.REFUSED_UNPROVED:
                self.kernel.fails = [errno.EIO]
            case Trouble.VANISHED_BEFORE:
                self.unplug()
            case Trouble.VANISHED_DURING:
                self.kernel.before, self.kernel.ends = self.unplug, [errno.EIO]
            case Trouble.RETURNED:
                self.unplug()
                self.plug()

    def mend(self) -> None:
        """The chip is there and holds what is right."""
        self.chip.memory[0x10:0x16] = RIGHT
        self.kernel.fails, self.kernel.ends = [], []
        if not self.node.exists():
            self.plug()

    def holds(self) -> int:
        """Open handles of nodes."""
        return open_handles(str(self.top / "dev"))

    def stands(self, who: int) -> None:
        """See Bench."""
        self.chip.memory[0x10] = who

    def effects(self) -> int:
        """Messages that write the level."""
        return sum(transfers[0][0][0] == 0x40 for _, transfers in self.kernel.log)

    def board(self) -> dict[str, Any]:
        """See Bench."""
        self.room.patch.setattr("hwtool.buses.Spi", partial(Spi, sysfs=self.top / "sys", dev=self.top / "dev"))
        return {"kind": "spi", "adapter": CONTROLLER}

    def close(self) -> None:
        """Give the nodes back."""
        self._spi.close()
        self.kernel.close()


BENCHES: Final = (SpiBench,)
