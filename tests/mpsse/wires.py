"""The wires behind an engine, pin by pin: I2C slaves that see edges, SPI slaves that see a chip select and a clock.

Nothing here knows what was meant: a START is SDA falling while SCL is high, whoever made it fall. The logs are what a
logic analyser would show, and are not ours to bend.

Source: NXP UM10204, 3.1 (START, STOP, acknowledge); the table of SPI modes of any controller's manual: CPHA 0 samples
at the leading edge of the clock, CPHA 1 at the trailing one.
"""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import Protocol

SCK, DO, DI, CS0 = 0, 1, 2, 3  # AD0 to AD3: SCL, SDA out, SDA in; SCK, MOSI, MISO, the first chip select


class Wires(Protocol):
    """What hangs on the eight pins.

    Attributes:
        left: see I2cWires.
    """

    left: bool

    def drive(self, levels: int, driven: int) -> None:
        """The engine drives the pins of `driven` to `levels`; the others it leaves alone."""
        ...

    def level(self, pin: int) -> int:
        """The level of a pin now."""
        ...


class I2cSlave(Protocol):
    """A slave, byte by byte."""

    def begins(self, reads: bool) -> bool:
        """It is addressed; whether it acknowledges."""
        ...

    def takes(self, byte: int) -> bool:
        """A byte comes; whether it acknowledges."""
        ...

    def gives(self) -> int:
        """The byte that it sends next."""
        ...

    def ends(self) -> None:
        """A STOP, or another START."""
        ...


@dataclass
class Part:
    """A message on the wire.

    Attributes:
        data: whole bytes; of a written one, those behind the address.
        acknowledged: whether address and every byte of it were, by whoever receives.
    """

    reads: bool
    address: int
    data: list[int] = field(default_factory=list)
    acknowledged: bool = True

    def shown(self) -> tuple[str, int, str]:
        """As tests compare it."""
        told = "R" if self.reads else "W"
        return (told if self.acknowledged or self.reads else told + "!", self.address, bytes(self.data).hex())


class I2cWires:
    """SCL and SDA, pulled up, with slaves by address.

    Attributes:
        log: what stood behind each START from rest: messages, separated by repeated STARTs, up to the STOP.
        contention: how often one drove a wire up that another one held down.
        edges: of SCL and SDA, whoever made them.
        holds: whether somebody holds SCL down for good.
        left: the master went away in the middle: its next START begins another transaction.
    """

    def __init__(self, slaves: dict[int, I2cSlave]) -> None:
        self.slaves = slaves
        self.log: list[list[Part]] = []
        self.contention = self.edges = 0
        self.holds = self.left = False
        self._scl = self._sda = 1  # of the wires
        self._slave_sda = 1
        self._driven, self._levels = 0, 0xFF
        self._phase = "idle"  # idle, address, write, read, acknowledges, acknowledged, ignores
        self._next = "idle"
        self._bits = self._count = 0
        self._slave: I2cSlave | None = None

    def shown(self) -> list[list[tuple[str, int, str]]]:
        """The log as tests compare it."""
        return [[part.shown() for part in transaction] for transaction in self.log]

    def level(self, pin: int) -> int:
        """SCL at AD0 and AD7, SDA at AD1 and AD2, all others up."""
        return {SCK: self._scl, 7: self._scl, DO: self._sda, DI: self._sda}.get(pin, 1)

    def drive(self, levels: int, driven: int) -> None:
        """The engine drives AD0 and AD1, or lets them go."""
        self._levels, self._driven = levels, driven
        self._settle()

    def _wire(self, pin: int, slave: int) -> int:
        if not self._driven >> pin & 1:
            return slave
        level = self._levels >> pin & 1
        if level and not slave:
            self.contention += 1
        return level & slave

    def _settle(self) -> None:
        """Two edges at one time are seen in the worse order: data before clock."""
        scl, sda = self._wire(SCK, 0 if self.holds else 1), self._wire(DO, self._slave_sda)
        self.edges += (sda != self._sda) + (scl != self._scl)
        if sda != self._sda:
            self._sda = sda
            if self._scl:
                self._start() if not sda else self._stop()
        if scl != self._scl:
            self._scl = scl
            (self._rises if scl else self._falls)()

    def _start(self) -> None:
        if self._slave is not None:
            self._slave.ends()
        if self._phase == "idle" or self.left:
            self._open: list[Part] = []
            self.log.append(self._open)
            self.left = False
        self._phase, self._bits, self._count, self._slave_sda = "address", 0, 0, 1
        self._slave = None

    def _stop(self) -> None:
        if self._phase == "idle":
            return
        if self._slave is not None:
            self._slave.ends()
        self._phase, self._slave, self._slave_sda = "idle", None, 1

    def _rises(self) -> None:
        match self._phase:
            case "address" | "write":
                self._bits = self._bits << 1 | self._sda
                self._count += 1
            case "read":
                self._count += 1
            case "acknowledged":
                self._next = "ignores" if self._sda else "read"

    def _falls(self) -> None:
        match self._phase:
            case "address" | "write" if self._count == 8:
                self._byte_came()
            case "acknowledges":
                self._phase = self._next
                self._let_go()
                if self._phase == "read":
                    self._load()
            case "read" if self._count == 8:
                self._phase = "acknowledged"
                self._let_go()
            case "read":
                self._put(self._bits >> 7 - self._count & 1)
            case "acknowledged":
                self._phase = self._next
                if self._phase == "read":
                    self._load()

    def _byte_came(self) -> None:
        byte, self._bits, self._count = self._bits, 0, 0
        if self._phase == "address":
            reads = bool(byte & 1)
            self._open.append(Part(reads, byte >> 1))
            self._slave = self.slaves.get(byte >> 1)
            taken = self._slave is not None and self._slave.begins(reads)
            self._next = ("read" if reads else "write") if taken else "ignores"
        else:
            self._open[-1].data.append(byte)
            taken = self._slave is not None and self._slave.takes(byte)
            self._next = "write" if taken else "ignores"
        self._phase = "acknowledges"
        if taken:
            self._put(0)
        else:
            self._open[-1].acknowledged = False
            self._slave = self._slave if self._next == "write" else None

    def _load(self) -> None:
        self._bits, self._count = (self._slave.gives() if self._slave is not None else 0xFF), 0
        self._open[-1].data.append(self._bits)
        self._put(self._bits >> 7 & 1)

    def _put(self, level: int) -> None:
        self._slave_sda = level
        self._sda = self._wire(DO, level)  # SCL is low: no START, no STOP

    def _let_go(self) -> None:
        self._put(1)


class SpiSlave(Protocol):
    """A slave, byte by byte."""

    mode: int

    def begins(self) -> None:
        """It is selected."""
        ...

    def gives(self) -> int:
        """The byte that it sends while the next one comes."""
        ...

    def takes(self, byte: int) -> None:
        """A byte has come."""
        ...

    def ends(self) -> None:
        """It is selected no more."""
        ...


@dataclass
class Stretch:
    """One stretch of chip select.

    Attributes:
        sent, given: whole bytes on MOSI and MISO.
        odd_bits: clocked beyond them.
        wrong_clock: the clock did not rest where the slave's mode has it: it took nothing.
    """

    chip_select: int
    sent: list[int] = field(default_factory=list)
    given: list[int] = field(default_factory=list)
    odd_bits: int = 0
    wrong_clock: bool = False

    def shown(self) -> tuple[int, str, str]:
        """As tests compare it."""
        return (self.chip_select, bytes(self.sent).hex(), bytes(self.given).hex())


class SpiWires:
    """SCK, MOSI, MISO and chip selects from AD3 on, with a slave at each of some.

    Attributes:
        log: the stretches of chip select, from its begin on.
        edges: of SCK, also where nobody is selected.
    """

    def __init__(self, slaves: dict[int, SpiSlave]) -> None:
        self.slaves = slaves
        self.log: list[Stretch] = []
        self.left = False
        self.edges = 0
        self._levels, self._driven = 0xFF, 0
        self._miso = 1
        self._selected: int | None = None
        self._bits = self._count = 0
        self._out = 0

    def shown(self) -> list[tuple[int, str, str]]:
        """The log as tests compare it."""
        return [stretch.shown() for stretch in self.log]

    def level(self, pin: int) -> int:
        """MISO at AD2; what the engine drives at the others, and up where it drives nothing."""
        if pin == DI:
            return self._miso
        return self._level(self._levels, self._driven, pin)

    @staticmethod
    def _level(levels: int, driven: int, pin: int) -> int:
        return levels >> pin & 1 if driven >> pin & 1 else 1

    def drive(self, levels: int, driven: int) -> None:
        """The engine drives pins; a chip select goes first, then data, then the clock."""
        before = (self._levels, self._driven)
        self._levels, self._driven = levels, driven
        for chip_select in range(5):
            pin = CS0 + chip_select
            was, now = self._level(*before, pin), self._level(levels, driven, pin)
            if was and not now and driven >> pin & 1:
                self._begin(chip_select)
            elif not was and now and self._selected == chip_select:
                self._end()
        was, now = self._level(*before, SCK), self._level(levels, driven, SCK)
        self.edges += was != now
        if was != now and self._selected is not None:
            self._edge(bool(now))

    def _begin(self, chip_select: int) -> None:
        self._selected, self._bits, self._count = chip_select, 0, 0
        self._open = Stretch(chip_select)
        self.log.append(self._open)
        slave = self.slaves.get(chip_select)
        if slave is None:
            return
        self._open.wrong_clock = bool(slave.mode & 2) != bool(self._level(self._levels, self._driven, SCK))
        slave.begins()
        if not slave.mode & 1:
            self._next_byte()

    def _next_byte(self) -> None:
        slave = self.slaves.get(self._selected if self._selected is not None else -1)
        self._out = slave.gives() if slave is not None and not self._open.wrong_clock else 0xFF
        self._miso = self._out >> 7 & 1

    def _edge(self, rising: bool) -> None:
        slave = self.slaves.get(self._selected if self._selected is not None else -1)
        mode = slave.mode if slave is not None else 0
        leading = rising is not bool(mode & 2)
        samples = leading is not bool(mode & 1)
        if samples:
            self._bits = (self._bits << 1 | self._level(self._levels, self._driven, DO)) & 0xFF
            self._count += 1
            if self._count == 8:
                self._byte_came()
            return
        if self._count == 0:
            if mode & 1 or self._open.sent:
                self._next_byte()
        else:
            self._miso = self._out >> 7 - self._count & 1

    def _byte_came(self) -> None:
        slave = self.slaves.get(self._selected if self._selected is not None else -1)
        self._open.sent.append(self._bits)
        self._open.given.append(self._out if slave is not None else 0xFF)
        if slave is not None and not self._open.wrong_clock:
            slave.takes(self._bits)
        self._count = 0

    def _end(self) -> None:
        slave = self.slaves.get(self._selected if self._selected is not None else -1)
        self._open.odd_bits = self._count
        if slave is not None and not self._open.wrong_clock:
            slave.ends()
        self._selected, self._miso = None, 1
