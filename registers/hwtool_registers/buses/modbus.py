"""Modbus RTU over a serial line, each frame sent once; what it says stands in modbus_pdu.

Frames are: unit address, function, data, CRC-16 (polynomial 0xA001 reflected, initial 0xFFFF, low byte first).
Before a frame the line is silent for 3.5 characters, at least 1.75 ms above 19200 baud.

Source: Modbus over Serial Line V1.02, 2.5.1 (RTU framing).

A reply later than the quarantine cannot be told from the reply to the next request of the same form: RTU has no
transaction number. That is a limit of the protocol, not of this file.

Before each frame the settings of the line are looked at: a program that changed them since it was opened (which the
locks do not keep root from) has it closed, with nothing sent, and opened anew.
"""

from __future__ import annotations

import contextlib
import errno
import fcntl
import os
import select
import termios
import time
from collections.abc import Callable
from dataclasses import dataclass
from functools import lru_cache
from pathlib import Path
from typing import Any, Final, Literal

import serial

from hwtool_registers.bus import (
    NOT_SENT,
    Ambiguous,
    Answer,
    Capabilities,
    Line,
    Message,
    RegisterRead,
    RegisterWrite,
    Rejected,
    Sent,
    Transfer,
)
from hwtool_registers.buses.modbus_pdu import CAPABILITIES, answer_to, pdu_of, reply_bytes

MAX_DRAINS: Final = 1000  # reads of up to 256 bytes before a line counts as babbling


@dataclass(frozen=True, slots=True)
class RtuSettings:
    """A serial line.

    Attributes:
        response_ms: how long a device may take to begin and end its reply.
        gap_ms: silence before a frame; None: 3.5 characters.
        echo: the adapter hears itself, as on an RS-485 pair whose receiver stays on: each request comes back before
            its reply, and must be the same.
    """

    path: str
    baud: int = 19200
    parity: Literal["none", "even", "odd"] = "none"
    stop_bits: int = 1
    response_ms: int = 1000
    gap_ms: float | None = None
    echo: bool = False


def _of_one_byte(crc: int) -> int:
    for _ in range(8):
        crc = (crc >> 1) ^ 0xA001 if crc & 1 else crc >> 1
    return crc


CRC_OF_BYTES: Final = tuple(map(_of_one_byte, range(256)))


def crc16(data: bytes) -> int:
    """The CRC of a frame without its CRC."""
    crc = 0xFFFF
    for byte in data:
        crc = (crc >> 8) ^ CRC_OF_BYTES[(crc ^ byte) & 0xFF]
    return crc


def framed(body: bytes) -> bytes:
    """A frame: the body with its CRC, low byte first."""
    return body + crc16(body).to_bytes(2, "little")


def request_of(transfer: RegisterRead | RegisterWrite) -> bytes:
    """The frame of a transfer.

    Raises:
        ValueError: the transfer cannot be said in one frame of the functions supported.
    """
    return (
        _asking(transfer)
        if isinstance(transfer, RegisterRead)
        else framed(bytes([transfer.address]) + pdu_of(transfer))
    )


@lru_cache(maxsize=256)
def _asking(transfer: RegisterRead) -> bytes:
    """The frame of a read: the same ones are asked for again and again. What is written may be a secret: never kept."""
    return framed(bytes([transfer.address]) + pdu_of(transfer))


def answer_of(transfer: RegisterRead | RegisterWrite, frame: bytes) -> Answer:
    """What a reply frame says about the request; pure."""
    if len(frame) < 5:
        return Ambiguous(Sent.REPLY, f"fragment of {len(frame)} bytes: {frame.hex()}")
    if crc16(frame):  # over the whole of a right frame it comes to zero
        return Ambiguous(Sent.REPLY, f"CRC error in {len(frame)} bytes: {frame.hex()}")
    if frame[0] != transfer.address:
        return Ambiguous(Sent.REPLY, f"reply of unit {frame[0]} function {frame[1]:#04x} to another request")
    return answer_to(transfer, frame[1:-2])


def _ready(node: int, event: int, limit_s: float) -> bool:
    """Whether there is something to be read, or room to write, within a time; also where the line is gone."""
    line = select.poll()
    line.register(node, event)
    return bool(line.poll(max(0.0, 1000 * limit_s)))


class ModbusRtu:
    """One serial line with Modbus RTU devices; opens the port at the first transfer, locked against other programs.

    Args:
        clock: monotonic seconds, and
        sleep: how to wait; injected for tests.
    """

    def __init__(
        self,
        settings: RtuSettings,
        clock: Callable[[], float] = time.monotonic,
        sleep: Callable[[float], None] = time.sleep,
    ) -> None:
        self._settings = settings
        self._clock = clock
        self._sleep = sleep
        self._port: serial.Serial | None = None
        self._incoming = select.poll()  # of the open port
        self._line: list[Any] = []  # the settings of the open line, as termios gives them
        self._last_activity_s = float("-inf")
        bits = 11 / settings.baud
        self._gap_s = settings.gap_ms / 1000 if settings.gap_ms is not None else max(3.5 * bits, 0.00175)

    @property
    def node(self) -> Path:
        """The port's node."""
        return Path(self._settings.path)

    def open(self) -> None:
        """Open and lock the port.

        Raises:
            OSError: absent, not permitted, or in use by another program.
        """
        if self._port is not None:
            return
        parity = {"none": serial.PARITY_NONE, "even": serial.PARITY_EVEN, "odd": serial.PARITY_ODD}
        # both kinds of lock: flock (exclusive=True) against cooperating programs, TIOCEXCL against plain opens
        try:
            port = serial.Serial(
                self._settings.path,
                self._settings.baud,
                parity=parity[self._settings.parity],
                stopbits=self._settings.stop_bits,
                exclusive=True,
            )
        except serial.SerialException as error:
            if error.errno in (errno.EAGAIN, errno.EBUSY):
                raise OSError(error.errno, f"{self._settings.path} is in use by another program") from error
            raise
        except termios.error as error:
            raise OSError(*error.args) from error  # it vanished while it was opened
        try:
            fcntl.ioctl(port.fileno(), termios.TIOCEXCL)
            self._line = termios.tcgetattr(port.fileno())
        except (OSError, termios.error) as error:
            port.close()
            raise OSError(*error.args) from error
        self._incoming = select.poll()
        self._incoming.register(port.fileno(), select.POLLIN)
        self._port = port

    @property
    def capabilities(self) -> Capabilities:
        """Registers of Modbus, and nothing else; how many a request has, is its contract's."""
        return CAPABILITIES

    def close(self) -> None:
        """Give the port back."""
        port, self._port = self._port, None
        if port is not None:
            # a terminal that outlives this program would keep others out (not where the device is gone)
            with contextlib.suppress(OSError, termios.error, ValueError):
                fcntl.ioctl(port.fileno(), termios.TIOCNXCL)
            port.close()

    def perform(self, transfer: Transfer) -> Answer:
        """Send one request frame and wait for its reply; see the bus contract."""
        if isinstance(transfer, Message | Line) or not CAPABILITIES.carries(transfer):
            return Rejected(f"Modbus cannot carry {type(transfer).__name__}", NOT_SENT)
        try:
            request = request_of(transfer)
        except ValueError as error:
            return Rejected(str(error), NOT_SENT)
        try:
            self.open()
        except (OSError, ValueError) as error:
            return Rejected(f"cannot open {self._settings.path}: {error}", "port-not-opened")
        port = self._port
        if port is None:
            return Rejected("the port is closed", "port-not-opened")
        try:
            node = port.fileno()
            self._wait_for_gap()
            if termios.tcgetattr(node) != self._line:
                self.close()
                told = "its settings were changed by another program since it was opened"
                return Rejected(f"{self._settings.path}: {told}; nothing was sent", "port-vanished")
            termios.tcflush(node, termios.TCIFLUSH)
        except (OSError, termios.error) as error:
            self.close()
            return Rejected(f"{self._settings.path} vanished before sending: {error}", "port-vanished")
        try:
            self._send(node, request)
        except (OSError, termios.error) as error:
            self.close()
            return Ambiguous(Sent.DATA, f"writing failed: {error}")
        deadline_s = self._clock() + self._settings.response_ms / 1000
        try:
            heard = self._heard(node, len(request), deadline_s) if self._settings.echo else request
            reply = self._receive(node, transfer, deadline_s) if heard == request else b""
        except OSError as error:
            self.close()
            return Ambiguous(Sent.REPLY, f"reading failed: {error}")
        self._last_activity_s = self._clock()
        if heard != request:
            return Ambiguous(Sent.DATA, f"the line did not echo the request: {heard.hex() or 'nothing'} came back")
        if not reply:
            return Ambiguous(Sent.REPLY, f"no reply within {self._settings.response_ms} ms")
        return answer_of(transfer, reply)

    def _wait_for_gap(self) -> None:
        rest_s = self._last_activity_s + self._gap_s - self._clock()
        if rest_s > 0:
            self._sleep(rest_s)

    def _send(self, node: int, request: bytes) -> None:
        """Write the whole of a frame, and wait until it has left.

        Raises:
            OSError, termios.error: a part of it may have left.
        """
        deadline_s = self._clock() + self._settings.response_ms / 1000
        while request:
            try:  # noqa: SIM105  # once for each frame: a context manager is dearer
                request = request[os.write(node, request) :]
            except BlockingIOError:  # the node does not block: it takes what it has room for
                pass
            if request and not _ready(node, select.POLLOUT, deadline_s - self._clock()):
                raise OSError(errno.ETIMEDOUT, f"the line takes no more; {len(request)} bytes are left")
        termios.tcdrain(node)

    def _came(self, node: int, most_bytes: int, deadline_s: float) -> bytes:
        """What comes next, at most so much; nothing if the time is over first.

        Raises:
            OSError: the line is gone.
        """
        if not self._incoming.poll(max(0.0, 1000 * (deadline_s - self._clock()))):
            return b""
        came = os.read(node, most_bytes)
        if not came:
            raise OSError(errno.EIO, "the line was hung up")
        return came

    def _heard(self, node: int, sent_bytes: int, deadline_s: float) -> bytes:
        """The line's echo of what was sent, as far as it comes in time."""
        heard = b""
        while len(heard) < sent_bytes and (came := self._came(node, sent_bytes - len(heard), deadline_s)):
            heard += came
        return heard

    def _receive(self, node: int, transfer: RegisterRead | RegisterWrite, deadline_s: float) -> bytes:
        """Collect bytes until the frame is whole or the response time is over; an exception frame has five."""
        frame = b""
        while not (len(frame) >= 5 and frame[1] & 0x80):
            rest = 3 + reply_bytes(transfer, frame[1:]) - len(frame)
            came = self._came(node, rest, deadline_s) if rest > 0 else b""
            if not came:
                break
            frame += came
        return frame

    def quiesce(self, until_s: float) -> None:
        """Wait, then throw away whatever has come in; see the bus contract."""
        rest_s = until_s - self._clock()
        if rest_s > 0:
            self._sleep(rest_s)
        self.open()
        port = self._port
        if port is not None:
            try:
                # whatever has come is read away, until nothing comes for a gap
                silent = any(not self._came(port.fileno(), 256, self._clock() + self._gap_s) for _ in range(MAX_DRAINS))
            except OSError as error:
                self.close()  # or the one that comes back would never be opened
                raise OSError(f"{self._settings.path} vanished: {error}") from error
            if not silent:
                raise OSError(f"{self._settings.path} does not fall silent")
            self._last_activity_s = self._clock()
