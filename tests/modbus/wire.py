"""A wire between two ptys: forwards bytes, keeps the frames of the master, and loses or delays what it is told to."""

from __future__ import annotations

import contextlib
import os
import pty
import select
import threading
import time
import tty


class Wire:
    """Two ptys joined by a thread; the daemon opens `master_end`, the slave `slave_end`.

    Attributes:
        requests: frames from master to slave, whole, in order.
        lose_replies: how many replies to drop.
        lose_requests: how many requests to drop.
        delay_s: delays of the next replies, one each.
    """

    def __init__(self) -> None:
        self._masters: list[int] = []
        ends = []
        for _ in range(2):
            far, near = pty.openpty()
            tty.setraw(near)
            ends.append(os.ttyname(near))
            os.close(near)  # held by nobody: an exclusive open of a killed daemon must not stay
            self._masters.append(far)
        self.master_end, self.slave_end = ends
        self.requests: list[bytes] = []
        self.lose_replies = 0
        self.lose_requests = 0
        self.delay_s: list[float] = []
        self._stop = threading.Event()
        self._late: list[tuple[float, bytes]] = []
        self._thread = threading.Thread(target=self._run, daemon=True)
        self._thread.start()

    def _run(self) -> None:
        daemon, slave = self._masters
        poll = select.poll()
        while not self._stop.is_set():
            moved = False
            for far, forward in ((daemon, self._request), (slave, self._reply)):
                poll.register(far, select.POLLIN)
                ready = any(event & select.POLLIN for _, event in poll.poll(1))
                poll.unregister(far)
                if ready:
                    data = self._read_whole(far)
                    moved = moved or bool(data)
                    if data:
                        forward(data)
            self._send_late()
            if not moved:
                time.sleep(0.001)  # a pty without its other end is always "hung up": no event to wait for

    @staticmethod
    def _read_whole(far: int) -> bytes:
        """All bytes up to a short silence: a frame of RTU."""
        data = b""
        poll = select.poll()
        poll.register(far, select.POLLIN)
        while any(event & select.POLLIN for _, event in poll.poll(4 if data else 0)):
            try:
                data += os.read(far, 512)
            except OSError:
                break
        return data

    def _request(self, data: bytes) -> None:
        self.requests.append(data)
        if self.lose_requests:
            self.lose_requests -= 1
            return
        self._write(self._masters[1], data)

    def _reply(self, data: bytes) -> None:
        if self.lose_replies:
            self.lose_replies -= 1
        elif self.delay_s:
            self._late.append((time.monotonic() + self.delay_s.pop(0), data))
        else:
            self._write(self._masters[0], data)

    def _send_late(self) -> None:
        due = [item for item in self._late if item[0] <= time.monotonic()]
        for item in due:
            self._late.remove(item)
            self._write(self._masters[0], item[1])

    @staticmethod
    def _write(far: int, data: bytes) -> None:
        with contextlib.suppress(OSError):  # nobody is at the other end now
            os.write(far, data)

    def close(self) -> None:
        """Stop forwarding and close both ptys."""
        self._stop.set()
        self._thread.join(5)
        for far in self._masters:
            os.close(far)
