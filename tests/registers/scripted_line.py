"""The other end of a serial line: a pty with a slave that answers as it is told, and keeps what it got."""

from __future__ import annotations

import os
import pty
import select
import threading
import tty
from collections.abc import Callable

Reply = list[bytes] | None


def nothing(_: bytes) -> Reply:
    """No reply."""
    return []


class Slave:
    """Answers each request with the next scripted pieces.

    Attributes:
        far, near: both ends of the pty; the bus opens `path`, which is the near one.
        requests: what it got, in order; `answered`, to how many of them it has given what it was to give.
        script: the pieces of the next replies.
        otherwise: gives the pieces where no script is left; None: the line is hung up.
    """

    def __init__(self) -> None:
        self.far, self.near = pty.openpty()
        tty.setraw(self.near)
        self.path = os.ttyname(self.near)
        self.requests: list[bytes] = []
        self.answered = 0
        self.script: list[list[bytes]] = []
        self.otherwise: Callable[[bytes], Reply] = nothing
        self.gone = threading.Event()
        self._ended, self._end = os.pipe()
        self._thread = threading.Thread(target=self._serve, daemon=True)
        self._thread.start()

    def _serve(self) -> None:
        line = select.poll()
        for handle in (self.far, self._ended):
            line.register(handle, select.POLLIN)
        # never inside a read of a handle that another thread closes: it would stay open until something comes
        while self._ended not in dict(line.poll()):
            request = os.read(self.far, 256)
            self.requests.append(request)
            pieces = self.script.pop(0) if self.script else self.otherwise(request)
            if pieces is None:
                break
            for piece in pieces:
                os.write(self.far, piece)
            self.answered += 1
        for handle in (self.near, self.far, self._ended):
            os.close(handle)
        self.gone.set()

    def close(self) -> None:
        """Hang up, as a port that is pulled out."""
        if self._end >= 0:
            os.close(self._end)
            self._end = -1
        self._thread.join(10)
