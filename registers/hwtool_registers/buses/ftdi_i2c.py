"""I2C through the MPSSE engine of an FTDI adapter, by pyftdi: one transfer is one stretch from START to STOP.

pyftdi sends a whole message again after a NACK, three times unless told otherwise, also one in the middle of the data:
its retry count is 1 here, and the stages are called one by one, so that a NACK is known by the byte that it was for.

| what was not acknowledged | shows |
|---|---|
| the address of the first message | nobody acted |
| the address behind a repeated start, of a register read | nothing was read; the offset before it set a pointer |
| the same, behind a command | nothing: the command may have been executed |
| a byte of the data | nothing: the device may have acted on what it had taken |
| the adapter does not answer in time, or USB fails | nothing; the engine is set up anew |

A transfer that broke off may leave a chip in the middle of a bit, holding SDA down: nobody can send a START then. Such
a bus is freed when it is opened, by as many clocks as that takes, at most nine, and a STOP; where SDA is up nothing
is touched.

A chip that holds the clock is waited for only with `clock_stretching`, for which AD7 is wired to AD0: without, bits are
lost where one does.

On adapters without open drains (all but the FT232H) pyftdi drives SDA up for a moment while a chip acknowledges the
address of a read.

Source: pyftdi, pyftdi/i2c.py (I2cController: set_retry_count, read, write, _do_prolog); NXP UM10204, 3.1.1 to 3.1.6,
3.1.16 (bus clear).
"""

from __future__ import annotations

import errno
import time
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Final

from pyftdi.ftdi import Ftdi
from pyftdi.i2c import I2cController, I2cIOError, I2cNackError

from hwtool_contracts.model import Space
from hwtool_registers.bus import Ambiguous, Answer, Capabilities, Confirmed, Line, Message, Rejected, Sent, Transfer
from hwtool_registers.buses.ftdi_adapter import Adapter, FtdiSettings
from hwtool_registers.buses.i2c_messages import MOST_BYTES, I2cTransfer, Messages, messages_of
from hwtool_registers.buses.i2c_proof import ADDRESS_NACK, NOT_SENT
from hwtool_registers.buses.usb_nodes import SYSFS

DEFAULT_HZ: Final = 100_000
SCL, SDA_OUT, SDA_IN = 0x01, 0x02, 0x04  # AD0, AD1, AD2
MOST_PULSES: Final = 9
CAPABILITIES: Final = Capabilities(frozenset({Space.MEMORY}), lines=False)


@dataclass(frozen=True, slots=True)
class FtdiI2cSettings:
    """One interface as a master of I2C.

    Attributes:
        max_hz: clock.
        clock_stretching: AD7 is wired to AD0, so that a chip may hold the clock.
    """

    adapter: FtdiSettings
    max_hz: int = DEFAULT_HZ
    clock_stretching: bool = False


class NotAcknowledged(Exception):
    """A byte that nobody acknowledged; where it stood."""

    def __init__(self, where: str, *, first: bool = False, second: bool = False) -> None:
        super().__init__(where)
        self.first, self.second = first, second


class FtdiI2c:
    """One interface; opened at the first transfer."""

    def __init__(
        self,
        settings: FtdiI2cSettings,
        sysfs: Path = SYSFS,
        clock: Callable[[], float] = time.monotonic,
        sleep: Callable[[float], None] = time.sleep,
    ) -> None:
        self._settings = settings
        self._sleep = sleep
        self._adapter = Adapter[Any](
            settings.adapter, I2cController, self._configure, sysfs, clock, lambda s: self._sleep(s)
        )

    @property
    def capabilities(self) -> Capabilities:
        """Memory-like chips and commands; no blocks that say their length themselves: pyftdi ends each read."""
        return CAPABILITIES

    @property
    def node(self) -> Path:
        """See HasNode."""
        return self._adapter.node

    def open(self) -> None:
        """See Opens.

        Raises:
            OSError: absent, not permitted, or in use, and by whom.
        """
        self._adapter.open()

    def _configure(self, controller: Any, device: Any, interface: int, latency_ms: int) -> None:
        controller.set_retry_count(1)  # the number of attempts
        controller.configure(
            device,
            interface=interface,
            frequency=float(self._settings.max_hz),
            latency=latency_ms,
            clockstretching=self._settings.clock_stretching,
            rdoptim=False,  # its way of asking ahead is by a guess
        )
        _freed(controller.ftdi)

    def close(self) -> None:
        """Give the interface back to its kernel driver; nothing is sent."""
        self._adapter.close()

    def quiesce(self, until_s: float) -> None:
        """See the bus contract; I2C has no late answers, USB may.

        Raises:
            OSError: the adapter is absent.
        """
        self._adapter.quiesce(until_s)

    def perform(self, transfer: Transfer) -> Answer:
        """Send one transfer, once; see the bus contract."""
        if isinstance(transfer, Line) or not CAPABILITIES.carries(transfer):
            return Rejected(f"I2C over MPSSE cannot carry {type(transfer).__name__}", NOT_SENT)
        try:
            wanted = messages_of(transfer)
        except OverflowError:
            return Rejected(f"an offset that {transfer} has no room for", NOT_SENT)
        if max(len(wanted.out), wanted.size_bytes) > MOST_BYTES:
            return Rejected(f"a message of more than {MOST_BYTES} bytes", NOT_SENT)
        try:
            controller = self._adapter.open()
        except OSError as error:
            return Rejected(f"cannot open {self._settings.adapter.url}: {error}", "port-not-opened")
        try:
            data = _sent(controller, transfer.address, wanted)
        except NotAcknowledged as nack:
            return _not_acknowledged(transfer, wanted, nack)
        except OSError as error:
            return self._adapter.failed(error)
        if len(data) != wanted.size_bytes:
            self._adapter.close()
            return Ambiguous(Sent.REPLY, f"{len(data)} bytes came, {wanted.size_bytes} were asked for")
        return wanted.answer(data) if wanted.size_bytes else Confirmed()


def _freed(ftdi: Any) -> None:
    """Have a chip let go of SDA that was left in the middle of a bit.

    Raises:
        OSError: ENXIO, somebody holds a wire down for good; of USB.
    """
    pulses = 0
    while not _pins(ftdi) & SDA_IN:
        if pulses == MOST_PULSES:
            raise OSError(errno.ENXIO, "the bus is stuck: SDA is held down, also after nine clocks")
        pulses += 1
        ftdi.write_data(bytes([Ftdi.SET_BITS_LOW, 0, SCL, Ftdi.SET_BITS_LOW, SCL, SCL]))
    if not _pins(ftdi) & SCL:
        raise OSError(errno.ENXIO, "the bus is stuck: SCL is held down")
    if pulses:
        stop = ((0, SCL), (0, SCL | SDA_OUT), (SCL, SCL | SDA_OUT), (SCL | SDA_OUT, SCL | SDA_OUT))
        ftdi.write_data(b"".join(bytes([Ftdi.SET_BITS_LOW, *pins]) for pins in stop))


def _pins(ftdi: Any) -> int:
    """The levels of the low pins.

    Raises:
        OSError: the adapter does not answer.
    """
    ftdi.write_data(bytes([Ftdi.GET_BITS_LOW, Ftdi.SEND_IMMEDIATE]))
    came = ftdi.read_data_bytes(1, 4)
    if len(came) != 1:
        raise OSError(errno.EIO, "the adapter does not answer")
    return int(came[0])


def _sent(controller: Any, address: int, wanted: Messages) -> bytes:
    """The stages of a transfer, each called once: address, bytes, address again, answer.

    Raises:
        NotAcknowledged: and the bus was stopped.
        OSError: of USB, or the adapter did not answer.
    """
    ends = not wanted.size_bytes or wanted.stop
    if wanted.writes:
        _stage("no acknowledge at the address", lambda: controller.write(address, b"", relax=False), first=True)
        _stage("no acknowledge of a byte", lambda: controller.write(None, wanted.out, relax=ends))
    if not wanted.size_bytes:
        return b""
    where = "no acknowledge at the address" + (" behind the offset" if wanted.writes else "")
    first, second = not wanted.writes, wanted.writes
    return bytes(_stage(where, lambda: controller.read(address, wanted.size_bytes), first=first, second=second))


def _stage(where: str, act: Callable[[], Any], *, first: bool = False, second: bool = False) -> Any:
    try:
        return act()
    except I2cNackError as error:
        raise NotAcknowledged(where, first=first, second=second) from error
    except I2cIOError as error:
        raise OSError(f"the adapter does not answer: {error}") from error


def _not_acknowledged(transfer: I2cTransfer, wanted: Messages, nack: NotAcknowledged) -> Answer:
    """What a NACK proves."""
    may_have_executed = isinstance(transfer, Message) and bool(wanted.out)
    if nack.first or (nack.second and not may_have_executed):
        return Rejected(str(nack), ADDRESS_NACK)
    return Ambiguous(Sent.DATA, str(nack))
