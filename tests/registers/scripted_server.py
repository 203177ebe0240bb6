"""A Modbus TCP server of bytes: answers as it is told, and keeps what it got."""

from __future__ import annotations

import contextlib
import socket
import struct
import threading
import time
from collections.abc import Callable

Script = Callable[[int, socket.socket], None]


def frame(number: int, pdu: bytes, unit: int = 17, protocol: int = 0) -> bytes:
    """A frame: header, unit and protocol data unit."""
    return struct.pack(">HHHB", number, protocol, len(pdu) + 1, unit) + pdu


def silence(_: int, __: socket.socket) -> None:
    """No reply."""


class Server:
    """Answers each request as the next script says; one connection after the other.

    Attributes:
        got: what it got, in order; `answered`, to how many of them it has given what it was to give.
        scripts: for the next requests; `otherwise` for those that none is left for.
        connections: how many it took.
    """

    def __init__(self, port: int = 0, otherwise: Script = silence) -> None:
        self.listening = socket.create_server(("127.0.0.1", port))
        self.port: int = self.listening.getsockname()[1]
        self.got: list[bytes] = []
        self.answered = 0
        self.scripts: list[Script] = []
        self.otherwise = otherwise
        self.connections = 0
        self._line: socket.socket | None = None
        self._thread = threading.Thread(target=self._serve, daemon=True)
        self._thread.start()

    def _serve(self) -> None:
        while True:
            try:
                line, _ = self.listening.accept()
            except OSError:
                return
            self.connections += 1
            self._line = line
            with line, contextlib.suppress(OSError):  # hung up, by either side
                while line.fileno() >= 0 and (request := line.recv(300)):
                    self.got.append(request)
                    script = self.scripts.pop(0) if self.scripts else self.otherwise
                    script(int.from_bytes(request[:2], "big"), line)
                    self.answered += 1

    def close(self) -> None:
        """Listen no more and hang up, as a server that is gone."""
        with contextlib.suppress(OSError):  # closed already
            self.listening.shutdown(socket.SHUT_RDWR)  # a close alone does not end the wait of another thread
        self.listening.close()
        if self._line is not None:
            with contextlib.suppress(OSError):  # hung up already
                self._line.shutdown(socket.SHUT_RDWR)
        if threading.current_thread() is not self._thread:
            self._thread.join(10)


def until(condition: Callable[[], object]) -> None:
    """Wait for what another thread, or the kernel, does and tells by no event."""
    deadline_s = time.monotonic() + 10
    while not condition():
        assert time.monotonic() < deadline_s
        time.sleep(0.001)


def free_port() -> int:
    """A port that nobody has at this moment."""
    with socket.create_server(("127.0.0.1", 0)) as found:
        port: int = found.getsockname()[1]
        return port
