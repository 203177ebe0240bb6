"""I2C and SPI through an FTDI adapter: pyftdi and PyUSB on an emulated host, its engine, and slaves on its pins."""

from __future__ import annotations

import errno
from collections.abc import Hashable, Mapping
from dataclasses import replace
from functools import partial
from typing import Any, ClassVar, Final

from hwtool_contracts.model import Space
from hwtool_registers.bus import Bus, RegisterRead, RegisterWrite, Sent
from hwtool_registers.buses.ftdi_adapter import NO_COMMAND, FtdiBus, FtdiSettings
from hwtool_registers.buses.ftdi_i2c import I2cMaster
from hwtool_registers.buses.ftdi_spi import SpiMaster
from hwtool_registers.buses.ftdi_url import parse_url
from hwtool_registers.buses.i2c_messages import packet_error_code
from hwtool_registers.buses.spi_exchange import SpiChip
from tests.conformance.bench import Access, Bench, Expectation, Resident, Room, Trouble, both, doubt, proved
from tests.conformance.benches import i2c, spi
from tests.mpsse.backend import hosting
from tests.mpsse.slaves import I2cCells, SpiCells
from tests.mpsse.usb_host import Adapter, failed
from tests.mpsse.wires import I2cWires, SpiWires, Wires

URL: Final = "ftdi://ftdi:232h:FT4BENCH/1"
SETTINGS: Final = FtdiSettings(parse_url(URL))
OVER_USB: Final[dict[Trouble, Expectation]] = {
    # what holds of every engine: how far it got is not known where USB fails
    Trouble.SILENT: both(doubt(Sent.DATA)),
    Trouble.LATE: both(doubt(Sent.DATA)),
    Trouble.REFUSED_UNPROVED: both(doubt(Sent.DATA, 0)),
    Trouble.VANISHED_BEFORE: both(proved("port-vanished", 0)),
    Trouble.VANISHED_DURING: both(doubt(Sent.DATA)),
    Trouble.RETURNED: both(proved("port-vanished", 0)),
    Trouble.UNCARRIED: both(proved("not-sent", 0)),
    Trouble.TOO_LONG: both(proved("not-sent", 0)),
}
NO_REPLIES: Final = dict.fromkeys(
    (Trouble.OVERDUE, Trouble.TWICE, Trouble.FOREIGN, Trouble.UNASKED, Trouble.MISFIT),
    "the master gives the clock, and what the adapter still holds is emptied when it is opened anew",
)
OURS: Final = "an adapter that is ours refuses nothing; whose it is, is told when it is opened"


class OverUsb(Bench):
    """What both benches do with the adapter."""

    behind = False

    def __init__(self, room: Room, wires: Wires) -> None:
        super().__init__(room)
        self.adapter = Adapter("232h", "FT4BENCH", [wires])
        self.host = hosting(room.patch, self.adapter)

    def plug(self) -> None:
        """The adapter is there, under a new number."""
        self.adapter.plugged_in()

    def unplug(self) -> None:
        """The adapter is pulled out."""
        self.adapter.pulled_out()

    def _arrange(self, trouble: Trouble) -> None:
        match trouble:
            case Trouble.SILENT | Trouble.LATE:
                self.host.after = partial(self._deaf_once_begun, len(self.seen()))
            case Trouble.REFUSED_UNPROVED:
                self.host.before = self._stall
            case Trouble.VANISHED_BEFORE:
                self.unplug()
            case Trouble.RETURNED:
                self.unplug()
                self.plug()

    def _deaf_once_begun(self, before: int, _: bytes) -> None:
        self.host.deaf = self.host.deaf or len(self.seen()) > before

    def _pulled_out_soon(self, _: int) -> None:
        self.host.after = lambda data: self.unplug()

    def _stall(self, data: bytes) -> None:
        if data[:1] == bytes([NO_COMMAND]):
            return  # it looks at the pins
        self.host.before = lambda data: None
        raise failed(errno.EPIPE)

    def let_out(self) -> None:
        """What the adapter has may be fetched again."""
        self.host.after = lambda data: None
        self.host.deaf = False

    def _mend(self) -> None:
        self.host.deaf = False
        self.host.before = self.host.after = lambda data: None
        self.host.spoil = lambda payload: payload
        if not self.adapter.plugged:
            self.plug()

    def unread(self) -> bool:
        """Whether the adapter still holds anything."""
        return bool(self.adapter.interfaces[0].engine.out)

    def holds(self) -> int:
        """Open handles of the adapter."""
        return len(self.host.handles)


class FtdiI2cBench(OverUsb):
    """An FT232H as a master of I2C."""

    name = "ftdi-i2c"
    can: ClassVar[Mapping[Trouble, Expectation]] = {
        **OVER_USB,
        Trouble.ABSENT: both(proved("address-nack", 1)),
        Trouble.FRAGMENT: Expectation(read=doubt(Sent.REPLY), write=doubt(Sent.DATA)),
        Trouble.CORRUPTED: Expectation(read=doubt(Sent.REPLY), write=doubt(Sent.DATA)),
    }
    cannot: ClassVar[Mapping[Trouble, str]] = {
        **NO_REPLIES,
        Trouble.REFUSED_PROVED: OURS,
        Trouble.UNSAYABLE: "any bytes can be said in two messages",
    }
    read, write, right, lie = i2c.READ, i2c.WRITE, i2c.RIGHT, i2c.LIE
    resident: ClassVar[Resident | None] = Resident("ftdi-i2c", i2c.CONTRACT, "LEVEL", "WHO", i2c.RIGHT[0], i2c.LIE[0])

    def __init__(self, room: Room) -> None:
        self.chip = I2cCells()
        self.wires = I2cWires({i2c.ADDRESS: self.chip})
        super().__init__(room, self.wires)
        self._bus = FtdiBus(SETTINGS, I2cMaster())
        self.bus: Bus = self._bus

    def seen(self) -> list[Hashable]:
        """What began on the pins with a START."""
        return [str(transaction) for transaction in self.wires.shown()]

    def asked(self, trouble: Trouble, access: Access) -> RegisterRead | RegisterWrite:
        """As any I2C adapter."""
        match trouble, access:
            case Trouble.UNCARRIED, Access.READ:
                return RegisterRead(i2c.ADDRESS, Space.HOLDING, 0x10, 2, 1, 3)
            case Trouble.UNCARRIED, Access.WRITE:
                return RegisterWrite(i2c.ADDRESS, Space.BLOCK, 0x40, b"\x55\x66")
            case Trouble.TOO_LONG, Access.READ:
                return replace(i2c.READ, size_bytes=8193)
            case Trouble.TOO_LONG, Access.WRITE:
                return replace(i2c.WRITE, data=bytes(8192))
            case Trouble.CORRUPTED, Access.READ:
                return replace(i2c.READ, pec=True)
            case Trouble.CORRUPTED, Access.WRITE:
                return replace(i2c.WRITE, pec=True)
        return super().asked(trouble, access)

    def arrange(self, trouble: Trouble, access: Access) -> None:
        """At the chip, on the wires, at the adapter, or on USB."""
        self.chip.memory[0x10:0x16] = i2c.LIE
        self._arrange(trouble)
        match trouble:
            case Trouble.ABSENT:
                del self.wires.slaves[i2c.ADDRESS]
            case Trouble.FRAGMENT if access is Access.READ:
                self.host.spoil = lambda payload: payload[:-2]
            case Trouble.FRAGMENT:
                self.chip.nacks_at = 2
            case Trouble.CORRUPTED if access is Access.READ:
                head = bytes([i2c.ADDRESS << 1, 0x10, i2c.ADDRESS << 1 | 1])
                self.chip.memory[0x16] = packet_error_code(head + i2c.LIE)
                self.host.spoil = lambda payload: bytes([payload[0] ^ 1]) + payload[1:]
            case Trouble.CORRUPTED:
                self.chip.nacks_at = 3  # of the code
            case Trouble.VANISHED_DURING:
                self.chip.at_byte = self._pulled_out_soon

    def mend(self) -> None:
        """The chip is there and holds what is right, and so is the adapter."""
        self.chip.memory[0x10:0x16] = i2c.RIGHT
        self.chip.nacks_at, self.chip.at_byte = None, lambda byte: None
        self.wires.slaves[i2c.ADDRESS] = self.chip
        self._mend()

    def stands(self, who: int) -> None:
        """See Bench."""
        self.chip.memory[0x10] = who

    def effects(self) -> int:
        """Messages on the wires that write the level."""
        told = [part for transaction in self.wires.log for part in transaction]
        return sum(not p.reads and p.data[:1] == [0x40] and len(p.data) > 1 for p in told)

    def board(self) -> dict[str, Any]:
        """See Bench."""
        return {"kind": "ftdi-i2c", "url": URL}

    def close(self) -> None:
        """Give the interface back."""
        self._bus.close()


class FtdiSpiBench(OverUsb):
    """An FT232H as a master of SPI."""

    name = "ftdi-spi"
    can: ClassVar[Mapping[Trouble, Expectation]] = {
        **OVER_USB,
        Trouble.FRAGMENT: both(doubt(Sent.DATA)),
        Trouble.UNSAYABLE: both(proved("not-sent", 0)),
    }
    cannot: ClassVar[Mapping[Trouble, str]] = {
        **NO_REPLIES,
        Trouble.ABSENT: spi.NOBODY,
        Trouble.CORRUPTED: spi.WHOLE,
        Trouble.REFUSED_PROVED: OURS,
    }
    read, write, right, lie = spi.READ, spi.WRITE, spi.RIGHT, spi.LIE
    resident: ClassVar[Resident | None] = Resident("ftdi-spi", spi.CONTRACT, "LEVEL", "WHO", spi.RIGHT[0], spi.LIE[0])

    def __init__(self, room: Room) -> None:
        self.chip = SpiCells()
        self.wires = SpiWires({spi.CHIP_SELECT: self.chip})
        super().__init__(room, self.wires)
        self._bus = FtdiBus(SETTINGS, SpiMaster({spi.CHIP_SELECT: SpiChip()}))
        self.bus: Bus = self._bus

    def seen(self) -> list[Hashable]:
        """What began on the pins with a chip select."""
        return list(self.wires.shown())

    def asked(self, trouble: Trouble, access: Access) -> RegisterRead | RegisterWrite:
        """See Bench."""
        return spi.asked_of_spi(trouble, access, 960) or super().asked(trouble, access)

    def arrange(self, trouble: Trouble, access: Access) -> None:
        """At the adapter, or on USB."""
        self.chip.memory[0x10:0x16] = spi.LIE
        self._arrange(trouble)
        match trouble:
            case Trouble.FRAGMENT:
                self.host.spoil = lambda payload: payload[:-1]
            case Trouble.VANISHED_DURING:
                self.chip.at_byte = self._pulled_out_soon

    def mend(self) -> None:
        """The chip holds what is right, and the adapter is there."""
        self.chip.memory[0x10:0x16] = spi.RIGHT
        self.chip.at_byte = lambda byte: None
        self._mend()

    def stands(self, who: int) -> None:
        """See Bench."""
        self.chip.memory[0x10] = who

    def effects(self) -> int:
        """Stretches of chip select that write the level."""
        return sum(stretch.sent[:1] == [0x40] for stretch in self.wires.log)

    def board(self) -> dict[str, Any]:
        """See Bench."""
        return {"kind": "ftdi-spi", "url": URL}

    def close(self) -> None:
        """Give the interface back."""
        self._bus.close()


BENCHES: Final = (FtdiI2cBench, FtdiSpiBench)
