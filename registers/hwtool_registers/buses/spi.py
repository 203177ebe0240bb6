"""SPI through Linux's spidev: one transfer of the plan is one SPI_IOC_MESSAGE of one spi_transfer.

The chip select is active from its first to its last bit. Mode, clock and word size are set when a chip select is
opened; nothing is clocked by that. The kernel does not repeat, and neither does the library.

No error proves that nothing happened: the controller's driver asserts the chip select before it may fail, with any
errno, and a long message may be split by it.

Source: Linux drivers/spi/spidev.c (spidev_ioctl, spidev_message, spidev_sync: it tells the status of the message) and
drivers/spi/spi.c (spi_transfer_one_message).
"""

from __future__ import annotations

import errno
import fcntl
import os
import sys
import time
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, Final

from hwtool_registers.bus import (
    NOT_SENT,
    Ambiguous,
    Answer,
    Capabilities,
    Confirmed,
    Rejected,
    Sent,
    Transfer,
    Unsayable,
)
from hwtool_registers.buses.spi_exchange import CAPABILITIES, SpiChip, addressed, in_words
from hwtool_registers.buses.spi_nodes import DEV, SYSFS, controller_of, node_of

MOST_BYTES: Final = 4096  # spidev's own buffer, unless its parameter `bufsiz` says otherwise


@dataclass(frozen=True, slots=True)
class SpiSettings:
    """One controller: by the name of its device in sysfs, or by a path that is stable up to the chip select.

    Attributes:
        chips: what each chip select is set to; those are opened.
    """

    adapter: str | None
    path: str | None
    chips: Mapping[int, SpiChip] = field(default_factory=dict)


class Spi:
    """One controller with the chip selects of the board; each node is locked against other programs that lock.

    Args:
        sysfs, dev: where the kernel shows its controllers; other places for tests.
    """

    def __init__(
        self,
        settings: SpiSettings,
        sysfs: Path = SYSFS,
        dev: Path = DEV,
        clock: Callable[[], float] = time.monotonic,
        sleep: Callable[[float], None] = time.sleep,
    ) -> None:
        self._settings = settings
        self._sysfs, self._dev = sysfs, dev
        self._clock, self._sleep = clock, sleep
        self._opened: dict[int, tuple[Any, Path]] = {}

    @property
    def capabilities(self) -> Capabilities:
        """Memory-like chips and opcodes; nothing is acknowledged."""
        return CAPABILITIES

    def open(self) -> None:
        """Open, lock and set every chip select of the board; nothing is clocked.

        Raises:
            OSError: absent, not permitted, in use by another program or a kernel driver, or a clock or mode that the
                controller has not.
        """
        if self._opened:
            return
        try:
            for chip_select, chip in self._settings.chips.items():
                self._opened[chip_select] = self._open(self._node(chip_select), chip)
        except OSError:
            self.close()
            raise

    def _node(self, chip_select: int) -> Path:
        if self._settings.path is not None:
            return Path(f"{self._settings.path}.{chip_select}")
        controller = controller_of(self._settings.adapter or "", self._sysfs)
        return node_of(controller, chip_select, self._sysfs, self._dev)

    def _open(self, node: Path, chip: SpiChip) -> tuple[Any, Path]:
        try:
            from spidev import SpiDev  # an extra: where it is not installed, everything else works
        except ImportError as error:
            raise OSError(errno.ENOSYS, "SPI takes the Python package spidev: install hwtool[spi]") from error
        port = SpiDev()
        try:
            port.open_path(str(node))
            try:
                fcntl.flock(port.fileno(), fcntl.LOCK_EX | fcntl.LOCK_NB)
            except BlockingIOError as error:
                raise OSError(errno.EBUSY, f"{node} is in use by another program") from error
            port.mode = chip.mode
            for way in ("lsbfirst", "loop", "threewire", "no_cs"):  # as another program may have left them
                setattr(port, way, False)
            port.max_speed_hz = chip.max_hz
            port.bits_per_word = chip.word_bits
        except OSError as error:
            port.close()
            if error.errno == errno.EINVAL:
                raise OSError(errno.EINVAL, f"{node}: the controller has no such {chip}") from error
            if error.errno == errno.EACCES:
                told = f"{node}: permission denied; its group is given by a rule of udev: hwtool udev prints it"
                raise OSError(errno.EACCES, told) from error
            raise OSError(error.errno or errno.EIO, f"{node}: {error.strerror or error}") from error
        return port, node

    def close(self) -> None:
        """Give the nodes back; nothing is clocked."""
        opened, self._opened = self._opened, {}
        for port, _ in opened.values():
            port.close()

    def perform(self, transfer: Transfer) -> Answer:
        """Give one transfer to the kernel, once; see the bus contract."""
        try:
            address, chip, exchange = addressed(transfer, self._settings.chips, MOST_BYTES)
        except Unsayable as error:
            return Rejected(str(error), NOT_SENT)
        try:
            self.open()
        except OSError as error:
            return Rejected(f"cannot open {self._place}: {error}", "port-not-opened")
        port, node = self._opened[address]
        try:
            came = bytes(port.xfer2(list(in_words(exchange.padded, chip.word_bits, sys.byteorder))))
        except OSError as error:
            return self._failed(node, port, error)
        return Confirmed(exchange.brought(in_words(came, chip.word_bits, sys.byteorder)))

    def _failed(self, node: Path, port: Any, error: OSError) -> Answer:
        number = error.errno or errno.EIO
        fault = f"{errno.errorcode.get(number, number)} ({os.strerror(number)})"
        if number == errno.ESHUTDOWN or not _is_there(node, port):
            self.close()  # or the one that comes back would never be opened
            fault = f"{node} vanished: {fault}"
        return Ambiguous(Sent.DATA, fault)

    @property
    def _place(self) -> str:
        return self._settings.path or self._settings.adapter or "the controller"

    def quiesce(self, until_s: float) -> None:
        """Wait; nothing of SPI comes late. See the bus contract.

        Raises:
            OSError: the controller is absent.
        """
        rest_s = until_s - self._clock()
        if rest_s > 0:
            self._sleep(rest_s)
        self.open()


def _is_there(node: Path, port: Any) -> bool:
    """Whether the node is the one that was opened: a controller that is back is another."""
    try:
        return os.path.samestat(os.fstat(port.fileno()), node.stat())
    except OSError:
        return False
