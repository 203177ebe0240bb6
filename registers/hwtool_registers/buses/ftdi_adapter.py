"""An interface of an FTDI adapter as an MPSSE engine: opened by one of pyftdi's controllers, closed when in doubt.

Opening sets the engine up and its pins to idle: no START, no chip select. Answers are awaited for `response_ms`: the
adapter sends an empty packet each time its latency timer ends, and pyftdi would count four of those and give up. A
time-out below that timer would end every wait, and is refused.

When an interface is given back its engine is off and its pins are those of a serial port again, TXD and RTS# driven.

Source: pyftdi, pyftdi/ftdi.py (open_mpsse_from_device, read_data_bytes); FTDI AN_108, 3 and 4.
"""

from __future__ import annotations

import contextlib
import errno
import math
import time
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Final, Protocol

from pyftdi.ftdi import Ftdi

from hwtool_registers.bus import Ambiguous, Answer, Capabilities, Rejected, Sent, Transfer
from hwtool_registers.buses.ftdi_claim import NODES, Claim, claimed
from hwtool_registers.buses.ftdi_url import DEFAULT_LATENCY_MS, FtdiUrl
from hwtool_registers.buses.i2c_proof import NOT_SENT
from hwtool_registers.buses.spi_exchange import Unsayable
from hwtool_registers.buses.usb_nodes import SYSFS

LEAST_PACKETS: Final = 4  # as pyftdi has it
CLOCK_HZ: Final = 30_000_000.0  # of the engine in adapters of the H series


@dataclass(frozen=True, slots=True)
class FtdiSettings:
    """One interface.

    Attributes:
        response_ms: how long an answer over USB is awaited; not below `latency_ms`.
        latency_ms: the adapter's latency timer, 1 to 255.
        notes: where notes of detached kernel drivers go (ftdi_claim).
    """

    url: FtdiUrl
    response_ms: int = 200
    latency_ms: int = DEFAULT_LATENCY_MS
    notes: Path | None = None


class NotSent(OSError):
    """Nothing was sent, since the wires are not free, or not known; the adapter is closed, and frees them if it can."""


class Broken(OSError):
    """What came from the adapter is not what was asked for; how far the transfer got."""

    def __init__(self, fault: str, stage: Sent) -> None:
        super().__init__(errno.EIO, fault)
        self.stage = stage


class Master(Protocol):
    """What speaks I2C or SPI through the engine, by one of pyftdi's controllers."""

    @property
    def capabilities(self) -> Capabilities:
        """What it carries."""
        ...

    def controller(self) -> Any:
        """A controller of pyftdi's that is not open yet."""
        ...

    def configure(self, controller: Any, device: Any, interface: int, latency_ms: int) -> None:
        """Set the engine up on a claimed interface of PyUSB's device (from 1 on), the wires idle.

        Raises:
            OSError, ValueError: of USB, or pyftdi refuses it.
        """
        ...

    def wanted(self, transfer: Transfer) -> Callable[[Any], Answer]:
        """What sends a transfer, once, through a controller; it raises OSError where that cannot be told.

        Raises:
            Unsayable: it cannot be sent; nothing was.
        """
        ...


def _patient(ftdi: Any, packets: int) -> None:
    """Have pyftdi wait for so many empty packets where it waits for more than one."""
    read = ftdi.read_data_bytes

    def read_data_bytes(size: int, attempt: int = 1, request_gen: Any = None) -> Any:
        return read(size, packets if attempt > 1 else attempt, request_gen)

    ftdi.read_data_bytes = read_data_bytes


def _leave(controller: Any, claim: Claim) -> None:
    """Switch the engine off, and give the interface back."""
    with contextlib.suppress(OSError):  # it may be gone
        controller.ftdi.set_bitmode(0, Ftdi.BitMode.RESET)
        controller.ftdi.set_latency_timer(DEFAULT_LATENCY_MS)
    claim.give_back()


def no_faster(hz: float, clock_hz: float) -> float:
    """The highest clock that an engine can make and that is not above this one: pyftdi takes the nearest.

    Source: pyftdi, Ftdi._set_frequency: a divisor of 1 to 65536 of 30 MHz.
    """
    return clock_hz / math.ceil(clock_hz / min(hz, clock_hz))


class FtdiBus:
    """One interface with a master; opened at the first transfer, closed in doubt."""

    def __init__(
        self,
        settings: FtdiSettings,
        master: Master,
        sysfs: Path = SYSFS,
        clock: Callable[[], float] = time.monotonic,
        sleep: Callable[[float], None] = time.sleep,
    ) -> None:
        self._settings, self._master = settings, master
        self._sysfs = sysfs
        self._clock, self._sleep = clock, sleep
        self._claim: Claim | None = None
        self._controller: Any = None
        self._node = NODES

    @property
    def capabilities(self) -> Capabilities:
        """As the master has them."""
        return self._master.capabilities

    @property
    def node(self) -> Path:
        """The adapter's node, as long as it is open; it has another one each time it is plugged in."""
        return self._node

    def open(self) -> None:
        """Claim the interface and set the engine up; nothing happens on the wires but that they are idle.

        Raises:
            OSError: absent, not permitted, in use (ftdi_claim), or no engine that can be set up like this.
        """
        if self._controller is not None:
            return
        settings = self._settings
        if settings.response_ms < settings.latency_ms:
            told = f"response_ms {settings.response_ms} is below the adapter's latency of {settings.latency_ms} ms"
            raise OSError(errno.EINVAL, told)
        claim = claimed(settings.url, settings.notes, self._sysfs)
        controller = self._master.controller()
        controller.ftdi.timeouts = (settings.response_ms, settings.response_ms)
        _patient(controller.ftdi, max(LEAST_PACKETS, math.ceil(settings.response_ms / settings.latency_ms)))
        try:
            self._master.configure(controller, claim.device, settings.url.interface, settings.latency_ms)
        except (OSError, ValueError) as error:  # errors of pyftdi and PyUSB, and what they refuse
            _leave(controller, claim)
            number = getattr(error, "errno", None) or errno.EIO
            raise OSError(number, f"{settings.url} cannot be set up: {error}") from error
        except BaseException:
            _leave(controller, claim)
            raise
        self._claim, self._controller, self._node = claim, controller, claim.node

    def close(self) -> None:
        """Leave the engine, and give the interface back to its kernel driver; no transfer is begun."""
        claim, self._claim = self._claim, None
        controller, self._controller = self._controller, None
        if claim is not None and controller is not None:
            _leave(controller, claim)

    def perform(self, transfer: Transfer) -> Answer:
        """Send one transfer, once; see the bus contract. Where USB fails the engine is set up anew before the next."""
        try:
            send = self._master.wanted(transfer)
        except Unsayable as error:
            return Rejected(str(error), NOT_SENT)
        try:
            self.open()
        except OSError as error:
            return Rejected(f"cannot open {self._settings.url}: {error}", "port-not-opened")
        try:
            self._controller.ftdi.purge_rx_buffer()  # what is left of an earlier answer is none to this one
        except OSError as error:
            self.close()
            return Rejected(f"{self._settings.url} vanished: {error}", "port-vanished")
        try:
            return send(self._controller)
        except NotSent as error:
            self.close()
            return Rejected(str(error.strerror), NOT_SENT)
        except OSError as error:
            self.close()
            return Ambiguous(getattr(error, "stage", Sent.DATA), f"{self._settings.url}: {error}")

    def quiesce(self, until_s: float) -> None:
        """Wait, then empty what the adapter still holds; it is opened where it was closed in doubt.

        Raises:
            OSError: it cannot be opened or emptied.
        """
        rest_s = until_s - self._clock()
        if rest_s > 0:
            self._sleep(rest_s)
        if self._controller is None:
            self.open()
            return
        try:
            self._controller.ftdi.purge_buffers()
        except OSError as error:
            self.close()
            raise OSError(errno.ENODEV, f"{self._settings.url}: {error}") from error
