"""Modbus TCP: one connection, one request at a time, each sent once.

A request carries a transaction number that its reply repeats: a reply to an earlier request is known as such and
dropped, however late it comes. What arrives out of step (another protocol, an impossible length) closes the connection,
since nothing behind it can be trusted. A connection that the other side has closed is noticed before sending, and
nothing is sent: whoever opens it anew looks first who is there.

Frames are: transaction number (2 bytes), protocol 0 (2), length of the rest (2), unit address (1), then the protocol
data unit; numbers big-endian.

Source: Modbus Messaging on TCP/IP Implementation Guide V1.0b, 3.1.3 (MBAP header).
"""

from __future__ import annotations

import contextlib
import errno
import select
import socket
import struct
import time
from collections.abc import Callable
from dataclasses import dataclass
from typing import Final

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
from hwtool_registers.buses.modbus_pdu import CAPABILITIES, answer_to, pdu_of

HEADER: Final = struct.Struct(">HHHB")
LONGEST_REST: Final = 254  # unit address and a protocol data unit
NUMBERS: Final = 1 << 16
MAX_DRAINS: Final = 1000


class OutOfStep(ValueError):
    """What came is no frame: nothing behind it can be told apart."""


@dataclass(frozen=True, slots=True)
class TcpSettings:
    """A Modbus TCP server, or a gateway to serial devices.

    Attributes:
        response_ms: how long it may take to answer, and to take a connection.
    """

    host: str
    port: int = 502
    response_ms: int = 1000


class ModbusTcp:
    """One server; connects at the first transfer.

    Args:
        clock: monotonic seconds, and
        sleep: how to wait; injected for tests.
    """

    def __init__(
        self,
        settings: TcpSettings,
        clock: Callable[[], float] = time.monotonic,
        sleep: Callable[[float], None] = time.sleep,
    ) -> None:
        self._settings = settings
        self._clock, self._sleep = clock, sleep
        self._line: socket.socket | None = None
        self._number = 0
        self._came = b""

    @property
    def _place(self) -> str:
        return f"{self._settings.host}:{self._settings.port}"

    def open(self) -> None:
        """Connect; no request is sent.

        Raises:
            OSError: nobody listens there, or it cannot be reached.
        """
        if self._line is not None:
            return
        try:
            line = socket.create_connection(
                (self._settings.host, self._settings.port), self._settings.response_ms / 1000
            )
        except (TimeoutError, socket.gaierror) as error:
            raise OSError(errno.ENODEV, f"{self._place} cannot be reached: {error}") from error
        except OSError as error:
            number = error.errno if error.errno == errno.ECONNREFUSED else errno.ENODEV
            raise OSError(number, f"{self._place} cannot be reached: {error}") from error
        line.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
        line.setsockopt(socket.SOL_SOCKET, socket.SO_KEEPALIVE, 1)
        self._line = line

    @property
    def capabilities(self) -> Capabilities:
        """Registers of Modbus, and nothing else; how many a request has, is its contract's."""
        return CAPABILITIES

    def close(self) -> None:
        """Hang up."""
        line, self._line, self._came = self._line, None, b""
        if line is not None:
            line.close()

    def perform(self, transfer: Transfer) -> Answer:
        """Send one request and wait for its reply; see the bus contract."""
        if isinstance(transfer, Message | Line) or not CAPABILITIES.carries(transfer):
            return Rejected(f"Modbus cannot carry {type(transfer).__name__}", NOT_SENT)
        try:
            body = bytes([transfer.address]) + pdu_of(transfer)
        except ValueError as error:
            return Rejected(str(error), NOT_SENT)
        if self._line is not None and not self.alive():
            return Rejected(f"{self._place} has closed the connection, or is out of step", "port-not-opened")
        try:
            self.open()
        except OSError as error:
            return Rejected(f"cannot connect: {error}", "port-not-opened")
        line = self._line
        if line is None:
            return Rejected("the connection is closed", "port-not-opened")
        self._number = (self._number + 1) % NUMBERS
        request = struct.pack(">HHH", self._number, 0, len(body)) + body
        try:
            line.settimeout(self._settings.response_ms / 1000)
            line.sendall(request)
        except OSError as error:
            self.close()
            return Ambiguous(Sent.DATA, f"sending to {self._place} failed: {error}")
        try:
            return self._answer(line, transfer)
        except OutOfStep as error:
            self.close()
            return Ambiguous(Sent.REPLY, f"{self._place} is out of step: {error}")
        except OSError as error:
            self.close()
            return Ambiguous(Sent.REPLY, f"{self._place} hung up: {error}")

    def alive(self) -> bool:
        """Whether the connection stands; one that the other side has closed would take a request and lose it."""
        if self._line is None:
            return False
        with contextlib.suppress(OSError, OutOfStep):
            self._drain(self._line)
            return True
        self.close()
        return False

    def _answer(self, line: socket.socket, transfer: RegisterRead | RegisterWrite) -> Answer:
        """The reply to the request that was sent last; those to earlier ones are dropped."""
        deadline_s = self._clock() + self._settings.response_ms / 1000
        while True:
            frame = self._frame()
            if frame is not None:
                number, unit, pdu = frame
                if number != self._number:
                    continue  # it belongs to a request that nobody waits for any more
                if unit != transfer.address:
                    return Ambiguous(Sent.REPLY, f"reply of unit {unit} to a request to {transfer.address}")
                return answer_to(transfer, pdu)
            rest_s = deadline_s - self._clock()
            if rest_s <= 0:
                return Ambiguous(Sent.REPLY, f"no reply within {self._settings.response_ms} ms")
            line.settimeout(rest_s)
            try:
                self._receive(line)
            except TimeoutError:
                continue

    def _receive(self, line: socket.socket) -> None:
        piece = line.recv(4096)
        if not piece:
            raise OSError(errno.ECONNRESET, "the connection was closed")
        self._came += piece

    def _frame(self) -> tuple[int, int, bytes] | None:
        """The next whole frame of what came: transaction number, unit, protocol data unit.

        Raises:
            OutOfStep: it is no frame.
        """
        if len(self._came) < HEADER.size:
            return None
        number, protocol, length, unit = HEADER.unpack_from(self._came)
        if protocol != 0 or not 3 <= length <= LONGEST_REST:
            raise OutOfStep(f"protocol {protocol}, length {length}: {self._came[:16].hex()}")
        whole = HEADER.size - 1 + length
        if len(self._came) < whole:
            return None
        pdu, self._came = self._came[HEADER.size : whole], self._came[whole:]
        return number, unit, pdu

    def _drain(self, line: socket.socket) -> None:
        """Drop what has come in.

        Raises:
            OSError: the other side has hung up, or does not fall silent.
            OutOfStep: what came is no frame, or not the whole of one.
        """
        for _ in range(MAX_DRAINS):
            if not select.select([line], [], [], 0)[0]:
                while self._frame() is not None:
                    pass
                if self._came:  # what comes next would be taken for the rest of it
                    raise OutOfStep(f"it stopped within a frame: {self._came[:16].hex()}")
                return
            self._receive(line)
        raise OSError(errno.EIO, f"{self._place} does not fall silent")

    def quiesce(self, until_s: float) -> None:
        """Wait, then drop what has come in; a connection that is out of step is given up. See the bus contract.

        Raises:
            OSError: it cannot be reached again.
        """
        rest_s = until_s - self._clock()
        if rest_s > 0:
            self._sleep(rest_s)
        self.alive()
        self.open()
