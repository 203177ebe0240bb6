"""A thread that keeps the place of a bus outside (a pty, a port): there while the bus is plugged, else gone."""

from __future__ import annotations

import errno
import socket
import threading
from collections.abc import Callable
from typing import Final

from hwtool_sim.bus import SimBus

FOLLOW_LIMIT_S: Final = 20.0


class Follower:
    """What the thread and those who wait for it have in common.

    Args:
        what: told of it where it does not follow.
        lock: guards the chips of the bus.

    Attributes:
        woken: readable when there is something to look at; the thread waits for it beside its own.
    """

    def __init__(self, what: str, bus: SimBus, lock: threading.Lock) -> None:
        self._what = what
        self._bus = bus
        self._chips = lock
        self.woken, self._wake = socket.socketpair()
        self._changed = threading.Condition()
        self._asked = self._followed = 0
        self._refusal: OSError | None = None

    def wake(self) -> None:
        """Have the thread look."""
        self._wake.send(b"x")

    def heard(self) -> None:
        """The thread has been woken."""
        self.woken.recv(64)

    def follow(self) -> None:
        """The bus was plugged or unplugged: return when the place is there, or gone; the chips' lock is not held.

        Raises:
            OSError: it cannot be had; the bus is unplugged again.
        """
        with self._changed:
            self._asked += 1
            mine = self._asked
            self.wake()
            if not self._changed.wait_for(lambda: self._followed >= mine, FOLLOW_LIMIT_S):
                raise OSError(errno.ETIMEDOUT, f"{self._what} does not follow")
            refusal, self._refusal = self._refusal, None
        if refusal is not None:
            raise refusal

    def look(self, there: bool, come: Callable[[], None], go: Callable[[], None]) -> None:
        """In the thread: be there if the bus is plugged, be gone if it is not."""
        with self._changed:
            asked = self._asked
        refusal: OSError | None = None
        if there and not self._bus.plugged:
            go()
        elif not there and self._bus.plugged:
            try:
                come()
            except OSError as error:
                refusal = error
                with self._chips:
                    self._bus.unplug()
        with self._changed:
            if refusal is not None:
                self._refusal = refusal
            self._followed = asked
            self._changed.notify_all()

    def close(self) -> None:
        """Nobody waits any more."""
        self._wake.close()
        self.woken.close()
