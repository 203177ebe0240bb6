"""Linux's spidev without a kernel: what the library hands to ioctl(2) is taken apart and answered by toy chips.

Everything above the ioctl is the real thing: the bus, the C extension, flock, the nodes' files. The log holds what
would be on the wire, one entry a message, so that a test can count.

Source: Linux include/uapi/linux/spi/spidev.h (numbers, struct spi_ioc_transfer).
"""

from __future__ import annotations

import ctypes
import errno
import os
import sys
from collections.abc import Callable
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, Final

import spidev

from tests.registers.linkage import exchanged, put_back

MODE, BITS, SPEED = 1, 3, 4  # number of the request: SPI_IOC_{RD,WR}_MODE, _BITS_PER_WORD, _MAX_SPEED_HZ
BUFSIZ: Final = 4096
CALL: Final = ctypes.CFUNCTYPE(ctypes.c_int, ctypes.c_int, ctypes.c_ulong, ctypes.c_void_p, use_errno=True)


class Transfer(ctypes.Structure):
    """struct spi_ioc_transfer."""

    _fields_ = (
        ("tx_buf", ctypes.c_uint64),
        ("rx_buf", ctypes.c_uint64),
        ("len", ctypes.c_uint32),
        ("speed_hz", ctypes.c_uint32),
        ("delay_usecs", ctypes.c_uint16),
        ("bits_per_word", ctypes.c_uint8),
        ("cs_change", ctypes.c_uint8),
        ("rest", ctypes.c_uint32),
    )


@dataclass
class Cells:
    """A chip of bytes on SPI: a read is marked by bit 7 of its offset, the pointer moves by itself."""

    memory: bytearray = field(default_factory=lambda: bytearray(range(256)))

    def clocked(self, out: bytes) -> bytes:
        """What comes back while these bytes go out."""
        offset = out[0] & 0x7F
        if out[0] & 0x80:
            return b"\0" + bytes(self.memory[(offset + n) % 128] for n in range(len(out) - 1))
        for n, byte in enumerate(out[1:]):
            self.memory[(offset + n) % 128] = byte
        return bytes(len(out))


@dataclass
class FakeSpidev:
    """The chip selects of controllers, by the names of their nodes.

    Attributes:
        log: messages: the node's name with, for each transfer of it, the bytes out, clock in Hz, bits of a word, and
            whether the chip select goes in between.
        set: what each node was set to: mode, bits of a word, Hz.
        fails: errno of the n-th next message, told before the chip has seen anything; `ends`, after it has.
        modes: those that the controller has.
    """

    chips: dict[str, Cells]
    log: list[tuple[str, list[tuple[bytes, int, int, int]]]] = field(default_factory=list)
    set: dict[str, dict[int, int]] = field(default_factory=dict)
    fails: list[int] = field(default_factory=list)
    ends: list[int] = field(default_factory=list)
    before: Callable[[], None] = lambda: None
    modes: frozenset[int] = frozenset(range(4))

    def __post_init__(self) -> None:
        self._called: Any = CALL(self.ioctl)  # kept as long as it may be called
        address = ctypes.cast(self._called, ctypes.c_void_p).value or 0
        self._before = exchanged(str(spidev.__file__), "ioctl", address)

    def close(self) -> None:
        """The library calls the kernel again."""
        put_back(self._before)

    def ioctl(self, handle: int, request: int, argument: int) -> int:
        """ioctl(2): 0 or more, or -1 with errno."""
        try:
            return self._answered(handle, request, argument)
        except OSError as error:
            ctypes.set_errno(error.errno or errno.EIO)
            return -1

    def _answered(self, handle: int, request: int, argument: int) -> int:
        if (
            os.fstat(handle).st_nlink == 0
        ):  # its chip select is gone: a new one of the same name is none of this handle's
            raise OSError(errno.ESHUTDOWN, "")
        name = Path(os.readlink(f"/proc/self/fd/{handle}")).name  # noqa: PTH115  # the name as it was opened
        if request >> 8 & 0xFF != ord("k"):
            raise OSError(errno.ENOTTY, "")
        number, writes, size = request & 0xFF, request >> 30 == 1, request >> 16 & 0x3FFF
        if number == 0:
            many = (Transfer * (size // ctypes.sizeof(Transfer))).from_address(argument)
            return self._message(name, list(many))
        held = self.set.setdefault(name, {MODE: 0, BITS: 8, SPEED: 500_000})
        cell = (ctypes.c_uint32 if number == SPEED else ctypes.c_uint8).from_address(argument)
        if writes and number == MODE and cell.value & 3 not in self.modes:
            raise OSError(errno.EINVAL, "")
        if writes:
            held[number] = cell.value
        else:
            cell.value = held[number]
        return 0

    def _message(self, name: str, transfers: list[Transfer]) -> int:
        if sum(t.len for t in transfers) > BUFSIZ:
            raise OSError(errno.EMSGSIZE, "")
        outs = [ctypes.string_at(t.tx_buf, t.len) for t in transfers]
        told = [(o, t.speed_hz, t.bits_per_word, t.cs_change) for o, t in zip(outs, transfers, strict=True)]
        self.log.append((name, told))
        happens, self.before = self.before, lambda: None
        happens()
        if self.fails and (number := self.fails.pop(0)):
            raise OSError(number, "")
        for transfer, out in zip(transfers, outs, strict=True):
            back = self._on_the_wire(self.chips[name], out, transfer.bits_per_word)
            ctypes.memmove(transfer.rx_buf, back, len(back))
        if self.ends and (number := self.ends.pop(0)):
            raise OSError(number, "")
        return sum(t.len for t in transfers)

    def _on_the_wire(self, chip: Cells, out: bytes, word_bits: int) -> bytes:
        """Words lie in memory as the host has them, and go out with their most significant bit first."""
        size = (word_bits or 8) // 8

        def turned(data: bytes) -> bytes:
            if sys.byteorder == "big":
                return data
            return b"".join(data[at : at + size][::-1] for at in range(0, len(data), size))

        return turned(chip.clocked(turned(out)))


def installed(top: Path, controller: str, chip_selects: list[int]) -> FakeSpidev:
    """A controller, spi0, with these chip selects; its /sys and /dev below `top`. Its user closes it."""
    (top / "dev").mkdir()
    (top / "sys/devices/platform" / controller).mkdir(parents=True)
    master = top / "sys/class/spi_master/spi0"
    master.mkdir(parents=True)
    (master / "device").symlink_to(top / "sys/devices/platform" / controller)
    names = [f"spidev0.{n}" for n in chip_selects]
    for name in names:
        (top / "dev" / name).write_bytes(b"")
    return FakeSpidev({name: Cells() for name in names})
