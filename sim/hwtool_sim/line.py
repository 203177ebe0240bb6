"""Simulated chips as Modbus RTU slaves on a pty: real bytes for whatever opens a serial port.

Other units, frames with a wrong CRC and fragments meet silence; what is in a frame is read in hwtool_sim.slave. A frame
ends with its length, and where that is not known, or wrong, with a pause; on a pty nothing has to be said about 3.5
characters. Replies leave in order: what is owed for an earlier request comes before the answer to a later one.

The pty is linked at the path of the board. Nobody here keeps its near end open, so that it is noticed when the program
that had it ends: an exclusive open (TIOCEXCL) stays with a terminal when its program is gone, and would keep out all
but root; then a new pty takes its place. The file `PATH.lock` beside the link is locked while the line is served and
names the link's target, by which a link that a killed simulator left behind is known; it stays.
"""

from __future__ import annotations

import contextlib
import errno
import os
import pty
import secrets
import select
import threading
import tty
from pathlib import Path
from typing import BinaryIO, Final

from hwtool_registers.buses.modbus import framed
from hwtool_sim.bus import SimBus
from hwtool_sim.follower import FOLLOW_LIMIT_S, Follower
from hwtool_sim.input_buffer import InputBuffer
from hwtool_sim.lock import exclusive
from hwtool_sim.slave import exception_frame, length_of, replies_to, request_in

PAUSE_S: Final = 0.004


class RtuLine:
    """The chips of one simulated bus behind a serial port that is a pty.

    Args:
        path: where the pty is linked.
        lock: guards the chips; held while a request is taken to them.
        pause_s: silence that ends a frame of unknown or wrong length.
    """

    def __init__(self, bus: SimBus, path: str, lock: threading.Lock, pause_s: float = PAUSE_S) -> None:
        self.bus = bus
        self.path = path
        self._chips = lock
        self._pause_s = pause_s
        self._held: BinaryIO | None = None
        self._far: int | None = None
        self._name = ""
        self._begun = b""
        self._owed: InputBuffer[bytes] = InputBuffer()
        self._epoll = select.epoll()
        self._follower = Follower(f"the line {path}", bus, lock)
        self._epoll.register(self._follower.woken, select.EPOLLIN)
        self._stopping = False
        self._thread = threading.Thread(target=self._run, daemon=True, name=f"line-{path}")

    def open(self) -> None:
        """Make the pty, link it, and answer from now on.

        Raises:
            OSError: the path is taken, below /dev, or not to be written.
        """
        folder = Path(os.path.realpath(Path(self.path).parent))
        if Path("/dev") in (folder, *folder.parents):
            raise OSError(errno.EPERM, f"{self.path} is below /dev: a simulated line must not take a device's place")
        self._held = exclusive(f"{self.path}.lock", f"{self.path} is served by another simulator")
        self._connect()
        self._thread.start()

    def close(self) -> None:
        """End the thread, close the pty and take the link away; what is not ours stays."""
        self._stopping = True
        self._follower.wake()
        if self._thread.is_alive():
            self._thread.join(FOLLOW_LIMIT_S)
        self._disconnect()
        for end in (self._epoll, self._follower, self._held):
            if end is not None:
                end.close()

    def follow(self) -> None:
        """See Follower.follow.

        Raises:
            OSError: it cannot be linked; the bus is unplugged again.
        """
        self._follower.follow()

    def _connect(self) -> None:
        """A new pty, linked at the path."""
        self._check_place()
        far, near = pty.openpty()
        try:
            tty.setraw(near)
            name = os.ttyname(near)
        finally:
            os.close(near)
        os.set_blocking(far, False)
        self._epoll.register(far, select.EPOLLIN | select.EPOLLET)
        self._epoll.poll(0)  # it begins hung up: that is no news, and nobody can have opened it yet
        try:
            self._link(name)
        except OSError:
            os.close(far)
            raise
        self._far, self._name = far, name

    def _disconnect(self) -> None:
        if self._far is None:
            return
        with contextlib.suppress(OSError):
            if str(Path(self.path).readlink()) == self._name:
                Path(self.path).unlink()
        far, self._far = self._far, None
        os.close(far)  # leaves the epoll with it
        self._begun = b""
        self._owed.clear()

    def _check_place(self) -> None:
        """Only a link of ours may stand where the new one goes.

        Raises:
            OSError: something else does.
        """
        place = Path(self.path)
        if not place.is_symlink() and not place.exists():
            return
        target = str(place.readlink()) if place.is_symlink() else None
        if target is not None and target.startswith("/dev/pts/"):
            if self._held is not None:
                self._held.seek(0)
                if target == self._held.read().decode(errors="replace"):
                    return
            if not Path(target).exists():
                return
        raise OSError(errno.EEXIST, f"{self.path} exists and is no link left behind by a simulator")

    def _link(self, name: str) -> None:
        fresh = Path(f"{self.path}.{secrets.token_hex(4)}")
        fresh.symlink_to(name)
        if self._held is not None:
            self._held.seek(0)
            self._held.truncate()
            self._held.write(name.encode())
            self._held.flush()
        fresh.replace(self.path)

    def _run(self) -> None:
        while not self._stopping:
            self._follow_bus()
            self._send(b"".join(self._owed.arrived(self.bus.clock())))
            events = self._epoll.poll(self._patience_s())
            if not events and self._begun:
                begun, self._begun = self._begun, b""
                self._request(begun)
            for descriptor, event in events:
                if descriptor == self._follower.woken.fileno():
                    self._follower.heard()
                    continue
                self._feed()
                if event & select.EPOLLHUP:
                    self._opener_left()
                    self._feed()

    def _patience_s(self) -> float | None:
        if self._begun:
            return self._pause_s
        due_s = self._owed.next_s
        return None if due_s is None else max(0.0, due_s - self.bus.clock())

    def _follow_bus(self) -> None:
        self._follower.look(self._far is not None, self._connect, self._disconnect)

    def _opener_left(self) -> None:
        """The last program has closed the port: see that the next one can open it."""
        try:
            os.close(os.open(self._name, os.O_RDWR | os.O_NOCTTY | os.O_NONBLOCK))
        except OSError as error:
            if error.errno != errno.EBUSY:
                return
            far, self._far = self._far, None
            if far is not None:
                os.close(far)
            self._follow_bus()
        else:
            self._epoll.poll(0)  # that we have closed it ourselves is no news

    def _feed(self) -> None:
        """Take in what has come, and answer every whole frame."""
        while self._far is not None:
            try:
                self._begun += os.read(self._far, 4096)
            except OSError:  # nothing more, or nobody has the port open
                return
            while (length := length_of(self._begun)) is not None and len(self._begun) >= length:
                frame, self._begun = self._begun[:length], self._begun[length:]
                if not self._request(frame):
                    self._begun = b""  # where the next frame begins cannot be told

    def _request(self, frame: bytes) -> bool:
        """Answer one frame; False: it is none."""
        if len(frame) < 4 or framed(frame[:-2]) != frame:
            return False
        with self._chips:
            chip = self.bus.chips.get(frame[0])
            request = request_in(frame, None if chip is None else chip.contract)
            if isinstance(request, int):
                if chip is not None:
                    self._owed.put(self.bus.clock(), exception_frame(frame[0], frame[1], request))
                return True
            taken = self.bus.take(request)
        if chip is not None:
            delay_s = 0.0 if taken.loss is None else taken.loss.late_s + taken.loss.hang_s
            for reply in replies_to(frame, taken):
                self._owed.put(self.bus.clock() + delay_s, reply)
        return True

    def _send(self, frames: bytes) -> None:
        with contextlib.suppress(OSError):  # nobody has the port open, or nobody reads what comes
            if frames and self._far is not None:
                os.write(self._far, frames)
