"""Simulated chips behind a Modbus TCP server on the loopback: real connections for whatever speaks the protocol.

The third transport of the same chips, beside the simulator's own socket (hwtool_sim.process) and a serial line on a pty
(hwtool_sim.line). A transport makes transfers of what comes in, takes them to the bus, and makes bytes of what the bus
says and of what the planned losses leave of it; no chip knows of it.

Several may be connected. Of one connection replies leave in order. A unit that is not there is met with silence, as a
gateway to serial devices does that has no answer to give. What is no frame closes its connection.

Source: Modbus Messaging on TCP/IP Implementation Guide V1.0b, 3.1.3 (MBAP header).
"""

from __future__ import annotations

import contextlib
import errno
import ipaddress
import logging
import selectors
import socket
import threading
from dataclasses import dataclass, field
from typing import Final

from hwtool_registers.buses.modbus import framed
from hwtool_registers.buses.modbus_tcp import HEADER, LONGEST_REST
from hwtool_sim.bus import SimBus
from hwtool_sim.faults import Fault, FaultKind
from hwtool_sim.follower import FOLLOW_LIMIT_S, Follower
from hwtool_sim.input_buffer import InputBuffer
from hwtool_sim.slave import exception_frame, replies_to, request_in

SEND_LIMIT_S: Final = 1.0  # the others wait as long
WRONG_PROTOCOL: Final = 0xFFFF  # what a spoilt header says: nothing behind it can be trusted


@dataclass(slots=True, eq=False)
class _Peer:
    """One connection."""

    line: socket.socket
    begun: bytes = b""
    owed: InputBuffer[bytes] = field(default_factory=InputBuffer)


class TcpLine:
    """The chips of one simulated bus behind a server of this host.

    Args:
        host: a loopback address: simulated devices are nobody else's.
        lock: guards the chips; held while a request is taken to them.

    Attributes:
        path: where it is found, for people.
    """

    def __init__(self, bus: SimBus, host: str, port: int, lock: threading.Lock) -> None:
        self.bus = bus
        self.path = f"{host}:{port}"
        self._host, self._port = host, port
        self._place = (host, port)
        self._chips = lock
        self._server: socket.socket | None = None
        self._peers: dict[int, _Peer] = {}
        self._selector = selectors.DefaultSelector()
        self._follower = Follower(f"the server {self.path}", bus, lock)
        self._selector.register(self._follower.woken, selectors.EVENT_READ)
        self._stopping = False
        self._thread = threading.Thread(target=self._run, daemon=True, name=f"tcp-{self.path}")

    def open(self) -> None:
        """Listen, and answer from now on.

        Raises:
            OSError: the place is no loopback address, or taken.
        """
        found = socket.getaddrinfo(self._host, self._port, type=socket.SOCK_STREAM)
        self._place = (str(found[0][4][0]), self._port)
        if not ipaddress.ip_address(self._place[0]).is_loopback:
            raise OSError(errno.EPERM, f"{self.path} is no loopback address: simulated devices are for this host")
        self._listen()
        self._thread.start()

    def close(self) -> None:
        """End the thread, and every connection."""
        self._stopping = True
        self._follower.wake()
        if self._thread.is_alive():
            self._thread.join(FOLLOW_LIMIT_S)
        self._shut()
        self._follower.close()
        self._selector.close()

    def follow(self) -> None:
        """See Follower.follow.

        Raises:
            OSError: the place is taken; the bus is unplugged again.
        """
        self._follower.follow()

    def _listen(self) -> None:
        server = socket.create_server(
            self._place, family=socket.AF_INET6 if ":" in self._place[0] else socket.AF_INET, reuse_port=False
        )
        server.setblocking(False)
        self._server = server
        self._selector.register(server, selectors.EVENT_READ)

    def _shut(self) -> None:
        for peer in list(self._peers.values()):
            self._drop(peer)
        server, self._server = self._server, None
        if server is not None:
            self._selector.unregister(server)
            server.close()

    def _drop(self, peer: _Peer) -> None:
        self._selector.unregister(peer.line)
        del self._peers[peer.line.fileno()]
        peer.line.close()

    def _run(self) -> None:
        while not self._stopping:
            self._follower.look(self._server is not None, self._listen, self._shut)
            now_s = self.bus.clock()
            for peer in list(self._peers.values()):
                self._send(peer, b"".join(peer.owed.arrived(now_s)))
            for key, _ in self._selector.select(self._patience_s()):
                if key.fileobj is self._follower.woken:
                    self._follower.heard()
                elif key.fileobj is self._server:
                    self._accept()
                elif key.fd in self._peers:
                    self._fed(self._peers[key.fd])

    def _patience_s(self) -> float | None:
        due = [peer.owed.next_s for peer in self._peers.values() if peer.owed.next_s is not None]
        return None if not due else max(0.0, min(due) - self.bus.clock())

    def _accept(self) -> None:
        if self._server is None:
            return
        with contextlib.suppress(OSError):  # it has gone again
            line, _ = self._server.accept()
            line.setblocking(False)
            line.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
            self._peers[line.fileno()] = _Peer(line)
            self._selector.register(line, selectors.EVENT_READ)

    def _fed(self, peer: _Peer) -> None:
        """As `_feed`; a defect costs the connection that met it, and no other."""
        try:
            self._feed(peer)
        except Exception:
            logging.getLogger(__name__).exception("the connection to %s is given up", self.path)
            if peer.line.fileno() in self._peers:
                self._drop(peer)

    def _feed(self, peer: _Peer) -> None:
        """Take in what has come, and answer every whole frame."""
        try:
            came = peer.line.recv(4096)
        except BlockingIOError:
            return
        except OSError:
            came = b""
        if not came:
            self._drop(peer)
            return
        peer.begun += came
        while len(peer.begun) >= HEADER.size:
            number, protocol, rest, unit = HEADER.unpack_from(peer.begun)
            if protocol != 0 or not 2 <= rest <= LONGEST_REST:
                self._drop(peer)
                return
            end = HEADER.size - 1 + rest
            if len(peer.begun) < end:
                return
            pdu, peer.begun = peer.begun[HEADER.size : end], peer.begun[end:]
            self._request(peer, number, unit, pdu)

    def _request(self, peer: _Peer, number: int, unit: int, pdu: bytes) -> None:
        """Answer one frame: as a serial device would, in another envelope."""
        frame = framed(bytes([unit]) + pdu)
        with self._chips:
            chip = self.bus.chips.get(unit)
            request = request_in(frame, None if chip is None else chip.contract)
            if isinstance(request, int):
                if chip is not None:
                    peer.owed.put(self.bus.clock(), _enveloped(number, exception_frame(unit, pdu[0], request)))
                return
            taken = self.bus.take(request)
        if chip is None:
            return
        loss = taken.loss
        delay_s = 0.0 if loss is None else loss.late_s + loss.hang_s
        spoils = loss is not None and loss.kind in (FaultKind.TRUNCATED, FaultKind.CORRUPTED)
        whole = taken if not spoils else type(taken)(taken.said, None)
        for reply in replies_to(frame, whole):
            shown = _enveloped(number, reply)
            peer.owed.put(self.bus.clock() + delay_s, shown if loss is None or not spoils else _spoilt(shown, loss))

    def _send(self, peer: _Peer, frames: bytes) -> None:
        """Send it whole; who takes nothing for too long has lost its place in the stream, and its connection."""
        if not frames:
            return
        try:
            peer.line.settimeout(SEND_LIMIT_S)
            peer.line.sendall(frames)
            peer.line.setblocking(False)
        except OSError:
            self._drop(peer)


def _enveloped(number: int, frame: bytes) -> bytes:
    """A reply of a serial line as one of TCP: without its CRC, behind a header."""
    unit, pdu = frame[0], frame[1:-2]
    return HEADER.pack(number, 0, len(pdu) + 1, unit) + pdu


def _spoilt(reply: bytes, loss: Fault) -> bytes:
    """What a loss leaves of a reply: TCP has no checksum to be wrong, but a header that may be nonsense."""
    if loss.kind is FaultKind.TRUNCATED:
        return reply[:-1]
    return reply[:2] + WRONG_PROTOCOL.to_bytes(2, "big") + reply[4:]
