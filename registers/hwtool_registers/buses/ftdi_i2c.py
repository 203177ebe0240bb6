"""I2C through the MPSSE engine of an FTDI adapter, by pyftdi: one transfer is one stretch from START to STOP.

pyftdi sends a whole message again after a NACK, three times unless told otherwise, also one in the middle of the data:
its retry count is 1 here, and the stages are called one by one, so that a NACK is known by the byte that it was for.

| what was not acknowledged | shows |
|---|---|
| the address of the first message | nobody acted |
| the address behind a repeated start, of a register read | nothing was read; the offset before it set a pointer |
| the same, behind a command | nothing: the command may have been executed |
| a byte of the data | nothing: the device may have acted on what it had taken |
| before a START, a wire that is held down | nothing was sent: there is no START then |
| after the STOP, a wire that is held down, whatever was seen before | nothing: the STOP did not happen |
| the adapter does not answer in time, or USB fails | nothing; the engine is set up anew |

A transfer that broke off may leave a chip in the middle of a bit, holding SDA down: nobody can send a START then. Such
a bus is freed when it is opened, by as many clocks as that takes, at most nine, and a STOP; where SDA is up nothing
is touched.

A chip that holds the clock in a byte is waited for with `clock_stretching` alone, for which AD7 is wired to AD0: else
bits are lost where one does. At a START or a STOP nobody is waited for. On a wire that is held down everything would
look acknowledged: hence both are looked at before and after.

On adapters without open drains (all but the FT232H) pyftdi drives SDA up for a moment while a chip acknowledges the
address of a read.

Source: pyftdi, pyftdi/i2c.py (I2cController: set_retry_count, read, write, _do_prolog); NXP UM10204, 3.1.1 to 3.1.6,
3.1.16 (bus clear).
"""

from __future__ import annotations

import errno
import math
from collections.abc import Callable
from dataclasses import dataclass
from functools import partial
from typing import Any, Final

from pyftdi.ftdi import Ftdi
from pyftdi.i2c import I2cController, I2cIOError, I2cNackError

from hwtool_contracts.model import Space
from hwtool_registers.bus import (
    Ambiguous,
    Answer,
    Capabilities,
    Confirmed,
    Line,
    Message,
    Rejected,
    Sent,
    Transfer,
    Unsayable,
)
from hwtool_registers.buses.ftdi_adapter import Broken, look, no_faster
from hwtool_registers.buses.i2c_messages import MOST_BYTES, I2cTransfer, Messages, messages_of
from hwtool_registers.buses.i2c_proof import ADDRESS_NACK

DEFAULT_HZ: Final = 100_000
SCL, SDA_OUT, SDA_IN = 0x01, 0x02, 0x04  # AD0, AD1, AD2
MOST_PULSES: Final = 9
PHASES: Final = 1.5  # the engine's clock against that of I2C, in three phases
CAPABILITIES: Final = Capabilities(frozenset({Space.MEMORY}), lines=False)


class NotAcknowledged(Exception):
    """A byte that nobody acknowledged; where it stood."""

    def __init__(self, where: str, *, first: bool = False, second: bool = False) -> None:
        super().__init__(where)
        self.first, self.second = first, second


@dataclass(frozen=True, slots=True)
class I2cMaster:
    """A master of I2C.

    Attributes:
        max_hz: clock.
        clock_stretching: AD7 is wired to AD0, so that a chip may hold the clock.
    """

    max_hz: int = DEFAULT_HZ
    clock_stretching: bool = False

    @property
    def capabilities(self) -> Capabilities:
        """Memory-like chips and commands; no blocks that say their length themselves: pyftdi ends each read."""
        return CAPABILITIES

    def controller(self) -> Any:
        """See Master."""
        made = I2cController()
        made.set_retry_count(1)  # the number of attempts
        return made

    def configure(self, controller: Any, device: Any, interface: int, latency_ms: int) -> None:
        """See Master; a chip that was left in the middle of a bit is freed."""
        controller.configure(
            device,
            interface=interface,
            frequency=no_faster(PHASES * self.max_hz) / PHASES,
            latency=latency_ms,
            clockstretching=self.clock_stretching,
            rdoptim=False,  # its way of asking ahead is by a guess
        )
        _freed(controller.ftdi, 1 / (2 * self.max_hz))

    def wanted(self, transfer: Transfer) -> Callable[[Any], Answer]:
        """See Master."""
        if isinstance(transfer, Line) or not CAPABILITIES.carries(transfer):
            raise Unsayable(f"I2C over MPSSE cannot carry {type(transfer).__name__}")
        try:
            wanted = messages_of(transfer)
        except OverflowError as error:
            raise Unsayable(f"an offset that {transfer} has no room for") from error
        if max(len(wanted.out), wanted.size_bytes) > MOST_BYTES:
            raise Unsayable(f"a message of more than {MOST_BYTES} bytes")
        return partial(_answer, transfer, wanted)

    def held(self, pins: int) -> str:
        """See Master."""
        return " and ".join(name for name, mask in (("SCL", SCL), ("SDA", SDA_IN)) if not pins & mask)


def _answer(transfer: I2cTransfer, wanted: Messages, controller: Any) -> Answer:
    """What a transfer comes to.

    Raises:
        OSError: of USB, or the adapter did not answer, or not whole.
    """
    try:
        data = _sent(controller, transfer.address, wanted)
    except NotAcknowledged as nack:
        return _not_acknowledged(transfer, wanted, nack)
    if len(data) != wanted.size_bytes:
        raise Broken(f"{len(data)} bytes came, {wanted.size_bytes} were asked for", Sent.REPLY)
    return wanted.answer(data) if wanted.size_bytes else Confirmed()


def _freed(ftdi: Any, half_s: float) -> None:
    """Have a chip let go of SDA that was left in the middle of a bit.

    Args:
        half_s: half a period of the clock, which each state lasts at the least.

    Raises:
        OSError: ENXIO, somebody holds a wire down for good; of USB.
    """
    repeats = math.ceil(half_s / ftdi.mpsse_bit_delay)

    def drive(*states: tuple[int, int]) -> None:
        """Levels and directions, one after the other."""
        ftdi.write_data(b"".join(bytes([Ftdi.SET_BITS_LOW, *state]) * repeats for state in states))

    pulses = 0
    while not look(ftdi) & SDA_IN:
        if pulses == MOST_PULSES:
            raise OSError(errno.ENXIO, "the bus is stuck: SDA is held down, also after nine clocks")
        pulses += 1
        drive((0, SCL), (SCL, SCL))
    if pulses:
        both = SCL | SDA_OUT
        drive((0, SCL), (0, both), (SCL, both), (both, both))
    if not look(ftdi) & SCL:
        raise OSError(errno.ENXIO, "the bus is stuck: SCL is held down")


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
