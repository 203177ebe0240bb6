"""Modbus TCP: a server on this host that answers byte by byte as it is told."""

from __future__ import annotations

import select
import socket
from collections.abc import Mapping
from dataclasses import replace
from typing import Any, ClassVar, Final

from hwtool_registers.bus import RegisterRead, RegisterWrite, Sent
from hwtool_registers.buses.modbus_tcp import ModbusTcp, TcpSettings
from tests.conformance import words
from tests.conformance.bench import (
    PATIENT_MS,
    SILENCE_MS,
    Access,
    Bench,
    Expectation,
    Room,
    Trouble,
    both,
    confirmed,
    connections,
    connections_to,
    doubt,
    frames_of,
    proved,
)
from tests.registers.scripted_server import Server, frame, until

REQUEST_BYTES: Final = 12
WAITED_FOR: Final = (Trouble.SILENT, Trouble.LATE, Trouble.FRAGMENT)
NOBODY_THERE: Final = 0x0B  # what a gateway says of a unit that does not answer
STALE: Final = b"\xba\xad\xf0\x0d"


class ModbusTcpBench(Bench):
    """A server; each time it is back, it listens at the same port."""

    name = "modbus-tcp"
    can: ClassVar[Mapping[Trouble, Expectation]] = {
        **words.REPLIES,
        Trouble.ABSENT: both(doubt(Sent.REPLY)),
        Trouble.OVERDUE: both(confirmed()),
        Trouble.VANISHED_BEFORE: both(proved("port-not-opened", 0)),
        Trouble.RETURNED: both(proved("port-not-opened", 0)),
    }
    cannot: ClassVar[Mapping[Trouble, str]] = {}
    resident = words.resident("modbus-tcp")
    read, write, right, lie = words.READ, words.WRITE, words.RIGHT, words.LIE

    def __init__(self, room: Room) -> None:
        super().__init__(room)
        self.device = words.Words()
        self._trouble: Trouble | None = None
        self._waits = False
        self._late: tuple[socket.socket, bytes] | None = None
        self._servers = [Server(0, self._reply)]
        self.port = self._servers[0].port
        self._tcp = ModbusTcp(TcpSettings("127.0.0.1", self.port, PATIENT_MS))
        self.bus = self._tcp

    def plug(self) -> None:
        """The server is there again."""
        self._servers.append(Server(self.port, self._reply))

    def unplug(self) -> None:
        """The server is gone, and whoever was connected to it knows."""
        self._servers[-1].close()
        until(lambda: not any(one.remote == self.port and one.established for one in connections()))

    def _reply(self, number: int, line: socket.socket) -> None:
        trouble, self._trouble = self._trouble, None
        request = self._servers[-1].got[-1]
        unit, pdu = request[6], request[7:]
        good = self.device.answer(pdu)
        refusal = None if trouble is None else words.refusal(trouble, pdu)
        match trouble:
            case Trouble.SILENT:
                return
            case Trouble.LATE:
                self._late = line, frame(number, good, unit)
            case Trouble.FRAGMENT:
                line.sendall(frame(number, good, unit)[:-2])
            case Trouble.VANISHED_DURING:
                self._servers[-1].close()
            case _:
                line.sendall(_said(trouble, number, unit, refusal or good, pdu))

    def asked(self, trouble: Trouble, access: Access) -> RegisterRead | RegisterWrite:
        """Transfers that no frame is for, for those that are never sent."""
        return words.asked(trouble, access)

    def seen(self) -> list[bytes]:
        """Frames."""
        return frames_of([request for server in self._servers for request in server.got], REQUEST_BYTES)

    def arrange(self, trouble: Trouble, access: Access) -> None:
        """At the next frame, or at the server at once."""
        del access
        self.device.hold(words.LIE)
        self._waits = trouble in WAITED_FOR
        self._patience(SILENCE_MS if self._waits else PATIENT_MS)
        match trouble:
            case Trouble.VANISHED_BEFORE:
                self.unplug()
            case Trouble.RETURNED:
                self.unplug()
                self.plug()
            case _:
                self._trouble = trouble

    def settle(self) -> None:
        """Wait for its thread."""
        server = self._servers[-1]
        if self._waits:
            until(lambda: self._trouble is None and server.answered == len(server.got))

    def _patience(self, response_ms: int) -> None:
        self._tcp._settings = replace(self._tcp._settings, response_ms=response_ms)

    def let_out(self) -> None:
        """Send the reply that was held back."""
        assert self._late is not None
        line, reply = self._late
        line.sendall(reply)
        until(self.unread)

    def mend(self) -> None:
        """The device holds what is right, and the server listens."""
        self._trouble = None
        self.device.hold(words.RIGHT)
        self._patience(PATIENT_MS)
        if self._servers[-1].listening.fileno() < 0:
            self.plug()

    def unread(self) -> bool:
        """Whether bytes wait in the connection, or were kept of what came."""
        line = self._tcp._line
        return line is not None and bool(self._tcp._came or select.select([line], [], [], 0)[0])

    def holds(self) -> int:
        """Open connections to the server's port."""
        return connections_to(self.port)

    def stands(self, who: int) -> None:
        """See Bench."""
        self.device.hold(who.to_bytes(2, "big"))

    def effects(self) -> int:
        """Frames of function 6."""
        return words.writes_in(self.seen(), 7)

    def board(self) -> dict[str, Any]:
        """See Bench."""
        return {"kind": "modbus-tcp", "host": "127.0.0.1", "port": self.port}

    def close(self) -> None:
        """Hang up on both sides."""
        self._tcp.close()
        for server in self._servers:
            server.close()


def _said(trouble: Trouble | None, number: int, unit: int, pdu: bytes, request: bytes) -> bytes:
    """The reply as it goes over the wire."""
    good = frame(number, pdu, unit)
    match trouble:
        case Trouble.ABSENT:
            return frame(number, bytes([request[0] | 0x80, NOBODY_THERE]), unit)
        case Trouble.TWICE:
            return good + good
        case Trouble.OVERDUE:
            return frame(number - 1, b"\x03\x04" + STALE, unit) + good
        case Trouble.CORRUPTED:
            return frame(number, pdu, unit, protocol=1)
        case Trouble.UNASKED:
            return frame(number, words.unasked(pdu), unit)
        case Trouble.MISFIT:
            return frame(number, words.misfit(pdu), unit)
        case Trouble.FOREIGN:
            return frame(number, pdu, unit + 1)
        case _:
            return good


BENCHES: Final = (ModbusTcpBench,)
