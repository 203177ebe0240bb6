"""An interface of an FTDI adapter as an MPSSE engine: set up by one of pyftdi's controllers, anew where it is in doubt.

Opening sets the engine up and its pins to idle: no START, no chip select.

Before each transfer and behind it the engine is asked something that it refuses, and its pins are looked at. It answers
when everything before is done, and what it answers is known to the byte: so nothing of an earlier transfer is taken for
this one's, and nothing of this one is under way when it is called done.

In doubt the interface stays claimed, and its engine is reset when it is set up again. Where it is given back the engine
is off and its pins are those of a serial port, TXD and RTS# driven.

Answers are awaited for `response_ms`, and up to two periods of the adapter's latency timer more: it sends an empty
packet each time that timer ends. A time-out below that timer would end every wait, and is refused.

Source: pyftdi, pyftdi/ftdi.py (open_mpsse_from_device, read_data_bytes: gives up after four empty packets); FTDI
AN_108, 3 and 4; FTDI knowledge base, "Bad Commands".
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

from hwtool_registers.bus import NOT_SENT, Ambiguous, Answer, Capabilities, Rejected, Sent, Transfer, Unsayable
from hwtool_registers.buses.ftdi_claim import NODES, Claim, claimed
from hwtool_registers.buses.ftdi_url import DEFAULT_LATENCY_MS, FtdiUrl
from hwtool_registers.buses.usb_nodes import SYSFS

CLOCK_HZ: Final = 30_000_000.0  # of the engine in adapters of the H series
SLOW_CLOCK_HZ: Final = CLOCK_HZ / 5
MOST_DIVISOR: Final = 65536
REFUSED, NO_COMMAND = 0xFA, 0xAA  # how an engine answers, and what no engine knows
GONE: Final = frozenset({errno.ENODEV, errno.ENOENT})


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
            OSError, ValueError: of USB, or pyftdi refuses it; ENXIO, the engine is set up, and a wire is held down.
        """
        ...

    def wanted(self, transfer: Transfer) -> Callable[[Any], Answer]:
        """What sends a transfer, once, through a controller; it raises OSError where that cannot be told.

        Raises:
            Unsayable: it cannot be sent; nothing was.
        """
        ...

    def held(self, pins: int) -> str:
        """Of low pins, those that are down although the master has let them go, by name: then nothing can be sent."""
        ...


def look(ftdi: Any) -> int:
    """The levels of the low pins, by an engine that is done with everything before, and has nothing else to tell.

    Raises:
        OSError: it does not answer, or something else; of USB.
    """
    ftdi.write_data(bytes([NO_COMMAND, Ftdi.GET_BITS_LOW, Ftdi.SEND_IMMEDIATE]))
    came = bytes(ftdi.read_data_bytes(3, 4))
    if len(came) != 3 or came[:2] != bytes([REFUSED, NO_COMMAND]):
        told = f"the adapter tells {came.hex(' ')}, which nobody asked" if came else "the adapter does not answer"
        raise OSError(errno.EIO, told)
    return came[2]


def _patient(ftdi: Any, packets: int) -> None:
    """Have pyftdi wait for so many empty packets where it waits for more than one."""
    read = ftdi.read_data_bytes

    def read_data_bytes(size: int, attempt: int = 1, request_gen: Any = None) -> Any:
        return read(size, packets if attempt > 1 else attempt, request_gen)

    ftdi.read_data_bytes = read_data_bytes


def _leave(claim: Claim) -> None:
    """Switch the engine off, and give the interface back."""
    with contextlib.suppress(OSError):  # it may be gone
        for request, value in ((Ftdi.SIO_REQ_SET_BITMODE, 0), (Ftdi.SIO_REQ_SET_LATENCY_TIMER, DEFAULT_LATENCY_MS)):
            claim.device.ctrl_transfer(Ftdi.REQ_OUT, request, value, claim.number + 1)
    claim.give_back()


def _is_gone(error: BaseException) -> bool:
    """Whether USB says that the adapter is not there; pyftdi tells its errors as texts alone."""
    return any(getattr(one, "errno", None) in GONE for one in (error, error.__context__))


def no_faster(hz: float) -> float:
    """The highest clock that an engine can make and that is not above this one: pyftdi takes the nearest.

    Source: pyftdi, Ftdi._set_frequency: a divisor of 1 to 65536 of 30 MHz, or of 6 MHz.
    """
    clock_hz = CLOCK_HZ if hz * MOST_DIVISOR >= CLOCK_HZ else SLOW_CLOCK_HZ
    return clock_hz / math.ceil(clock_hz / min(hz, clock_hz))


class FtdiBus:
    """One interface with a master; opened at the first transfer, set up anew behind one that is in doubt."""

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
        """The adapter's node when it was last opened; it has another one each time it is plugged in."""
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
        claim = self._claim or claimed(settings.url, settings.notes, self._sysfs)
        self._claim = None
        controller = self._master.controller()
        patience_ms = settings.response_ms + settings.latency_ms  # no wait ends just before an empty packet
        controller.ftdi.timeouts = (patience_ms, patience_ms)
        _patient(controller.ftdi, math.ceil(settings.response_ms / settings.latency_ms) + 1)
        try:
            self._master.configure(controller, claim.device, settings.url.interface, settings.latency_ms)
            look(controller.ftdi)  # it has an engine; pyftdi's own check of that never fails
        except (OSError, ValueError) as error:  # errors of pyftdi and PyUSB, and what they refuse
            number = getattr(error, "errno", None) or errno.EIO
            if number == errno.ENXIO:
                self._claim = claim  # somebody holds a wire down, and a serial port would drive against it
            else:
                _leave(claim)
            raise OSError(number, f"{settings.url} cannot be set up: {error}") from error
        except BaseException:
            _leave(claim)
            raise
        self._claim, self._controller, self._node = claim, controller, claim.node

    def close(self) -> None:
        """Leave the engine, and give the interface back to its kernel driver; no transfer is begun."""
        claim, self._claim = self._claim, None
        self._controller = None
        if claim is not None:
            _leave(claim)

    def _doubted(self, error: BaseException | None = None) -> None:
        """Have the engine set up anew before anything else; an adapter that is gone is let go."""
        self._controller = None
        if error is not None and _is_gone(error):
            self.close()

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
            held = self._master.held(look(self._controller.ftdi))
        except OSError as error:
            self._doubted(error)
            if _is_gone(error):
                return Rejected(f"{self._settings.url} vanished: {error}", "port-vanished")
            return Rejected(f"{self._settings.url}, before anything was sent: {error}", NOT_SENT)
        if held:
            self._doubted()
            return Rejected(f"the bus is stuck: {held} is held down", NOT_SENT)
        try:
            answer = send(self._controller)
            held = self._master.held(look(self._controller.ftdi))
        except OSError as error:
            self._doubted(error)
            return Ambiguous(getattr(error, "stage", Sent.DATA), f"{self._settings.url}: {error}")
        if held:
            self._doubted()
            return Ambiguous(Sent.DATA, f"{held} is held down: the transfer was not stopped")
        return answer

    def quiesce(self, until_s: float) -> None:
        """Wait, then see that the engine is done and holds nothing more; where it is in doubt it is set up anew.

        Raises:
            OSError: it cannot be opened.
        """
        rest_s = until_s - self._clock()
        if rest_s > 0:
            self._sleep(rest_s)
        if self._controller is not None:
            try:
                look(self._controller.ftdi)
            except OSError as error:
                self._doubted(error)
        self.open()
