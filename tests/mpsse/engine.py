"""The MPSSE engine of an FTDI adapter: its commands, byte for byte, become levels on pins.

Data and clock of one bit, as FTDI AN_108 tells them: the bit is put out while the clock rests, the clock goes there and
back. With three phases it is held through both edges; without, the next bit comes at the same time as the clock's
second edge, and a wire sees it in the worse order. A command that is not known is answered with 0xFA and itself.

Source: FTDI AN_108, Command Processor for MPSSE and MCU Host Bus Emulation Modes, 3 (commands), 4.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from typing import Final

from tests.mpsse.wires import DI, DO, SCK, Wires

WRITE_NEGATIVE, BIT_MODE, READ_NEGATIVE, LSB_FIRST, WRITES, READS, TMS = 0x01, 0x02, 0x04, 0x08, 0x10, 0x20, 0x40
SET_LOW, GET_LOW, SET_HIGH, GET_HIGH, LOOP_ON, LOOP_OFF, DIVISOR, FLUSH = 0x80, 0x81, 0x82, 0x83, 0x84, 0x85, 0x86, 0x87
DIV5_OFF, DIV5_ON, PHASES_ON, PHASES_OFF, ADAPTIVE_ON, ADAPTIVE_OFF, DRIVE_ZERO = (
    0x8A,
    0x8B,
    0x8C,
    0x8D,
    0x96,
    0x97,
    0x9E,
)
LENGTHS: Final = {SET_LOW: 3, SET_HIGH: 3, DIVISOR: 3, DRIVE_ZERO: 3}
PLAIN: Final = frozenset(
    {GET_LOW, GET_HIGH, LOOP_ON, LOOP_OFF, FLUSH, DIV5_OFF, DIV5_ON, PHASES_ON, PHASES_OFF, ADAPTIVE_ON, ADAPTIVE_OFF}
)
BAD: Final = 0xFA


class Engine:
    """One engine.

    Attributes:
        wires: what hangs on its low pins.
        out: bytes for the host.
        commands: how many of each were carried out.
        waits: it waits for a clock that somebody holds, and carries out nothing more.
        clock_hz: of a bit, without what three phases cost.
    """

    def __init__(self, wires: Wires) -> None:
        self.wires = wires
        self.out = bytearray()
        self.commands: dict[int, int] = {}
        self.waits = False
        self._pending = bytearray()
        self.reset()

    def reset(self) -> None:
        """Its pins are let go, and what it had been told is forgotten."""
        self._value, self._direction, self._zero_only = 0, 0, 0
        self._three_phases = self._adaptive = False
        self._base_hz, self.clock_hz = 6e6, 6e6
        self.waits = False
        self._pending.clear()
        self._drive()

    def drop(self) -> None:
        """What it had been told and has not begun is forgotten."""
        self._pending.clear()

    def feed(self, data: bytes) -> None:
        """Take bytes of the host's, and carry out the commands that are whole."""
        self._pending += data
        while self._pending and not self.waits:
            size = self._size()
            if size is None or len(self._pending) < size:
                return
            command = bytes(self._pending[:size])
            del self._pending[:size]
            self.commands[command[0]] = self.commands.get(command[0], 0) + 1
            self._carry_out(command)

    def _size(self) -> int | None:
        """Bytes of the command at the front, None if that is not known yet."""
        code = self._pending[0]
        if code & 0x80:
            return LENGTHS.get(code, 1)
        if not code & (WRITES | READS) or code & TMS:
            return 1
        if code & BIT_MODE:
            return 3 if code & WRITES else 2
        if len(self._pending) < 3:
            return None
        return 3 + (int.from_bytes(self._pending[1:3], "little") + 1 if code & WRITES else 0)

    def _carry_out(self, command: bytes) -> None:
        code = command[0]
        match code:
            case 0x80:
                self._value, self._direction = command[1], command[2]
                self._drive()
            case 0x81:
                self.out.append(sum(self.wires.level(pin) << pin for pin in range(8)))
            case 0x83:
                self.out.append(0xFF)
            case 0x86:
                self.clock_hz = self._base_hz / (1 + int.from_bytes(command[1:3], "little"))
            case 0x8A | 0x8B:
                self._base_hz = 30e6 if code == DIV5_OFF else 6e6
            case 0x8C | 0x8D:
                self._three_phases = code == PHASES_ON
            case 0x96 | 0x97:
                self._adaptive = code == ADAPTIVE_ON
            case 0x9E:
                self._zero_only = command[1]
                self._drive()
            case _ if code & 0x80:
                if code not in PLAIN and code not in LENGTHS:
                    self.out += bytes([BAD, code])
            case _ if code & (WRITES | READS) and not code & (TMS | LSB_FIRST):
                self._shift(command)
            case _:
                self.out += bytes([BAD, code])

    def _shift(self, command: bytes) -> None:
        code, by_bits = command[0], bool(command[0] & BIT_MODE)
        writes, reads = bool(code & WRITES), bool(code & READS)
        if by_bits:
            count = command[1] + 1
            bits = [command[2] >> 7 - n & 1 for n in range(count)] if writes else [None] * count
        else:
            count = 8 * (int.from_bytes(command[1:3], "little") + 1)
            bits = list(_bits_of(command[3:])) if writes else [None] * count
        rests = self._value >> SCK & 1
        at_second = bool(code & READ_NEGATIVE) is not bool(rests)  # which edge of the clock it samples at
        came = 0
        for n, bit in enumerate(bits):
            following = bits[n + 1] if n + 1 < len(bits) else None
            came = came << 1 | self._clock(bit, following, at_second=at_second)
            if self.waits:
                return
            if reads and not by_bits and n % 8 == 7:
                self.out.append(came & 0xFF)
        if reads and by_bits:
            self.out.append(came & 0xFF)

    def _clock(self, bit: int | None, following: int | None, *, at_second: bool) -> int:
        """One bit; answers what was sampled."""
        if bit is not None:
            self._put(DO, bit)
        sampled = self.wires.level(DI)
        self._toggle()
        if self._adaptive and self.wires.level(SCK) != self._value & 1:
            self.waits = True
            return 0
        if at_second:
            sampled = self.wires.level(DI)
        if following is not None and not self._three_phases:
            self._value = self._value & ~(1 << DO) | following << DO  # both at once, at the clock's second edge
        self._toggle()
        return sampled

    def _toggle(self) -> None:
        self._value ^= 1 << SCK
        self._drive()

    def _put(self, pin: int, level: int) -> None:
        self._value = self._value & ~(1 << pin) | level << pin
        self._drive()

    def _drive(self) -> None:
        let_go = self._zero_only & self._value  # these drive zeros alone
        self.wires.drive(self._value, self._direction & ~let_go)


def _bits_of(data: bytes) -> Iterator[int]:
    for byte in data:
        yield from (byte >> 7 - n & 1 for n in range(8))


Feed = Callable[[bytes], None]
