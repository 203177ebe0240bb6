"""Modbus RTU: pyserial on a pty behind a name that stays, with a slave that answers byte by byte as it is told."""

from __future__ import annotations

import os
import select
import termios
import threading
from collections.abc import Mapping
from dataclasses import replace
from typing import Any, ClassVar, Final

from hwtool_registers.bus import RegisterRead, RegisterWrite, Sent
from hwtool_registers.buses.modbus import ModbusRtu, RtuSettings, framed
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
    doubt,
    frames_of,
    open_handles,
    proved,
)
from tests.registers.scripted_line import Reply, Slave
from tests.registers.scripted_server import until

REQUEST_BYTES: Final = 8
WAITED_FOR: Final = (Trouble.ABSENT, Trouble.SILENT, Trouble.LATE, Trouble.FRAGMENT, Trouble.MISFIT)


class ModbusRtuBench(Bench):
    """A line; each time the port is plugged in, it has another number behind the same name."""

    name = "modbus-rtu"
    can: ClassVar[Mapping[Trouble, Expectation]] = {
        **words.REPLIES,
        Trouble.ABSENT: both(doubt(Sent.REPLY)),
        Trouble.VANISHED_BEFORE: both(proved("port-vanished", 0)),
        Trouble.RETURNED: both(proved("port-vanished", 0)),
    }
    cannot: ClassVar[Mapping[Trouble, str]] = {
        Trouble.OVERDUE: "a limit of the protocol: RTU has no number, a reply after the quarantine passes for the next",
    }
    resident = words.resident("modbus-rtu")
    read, write, right, lie = words.READ, words.WRITE, words.RIGHT, words.LIE

    def __init__(self, room: Room) -> None:
        super().__init__(room)
        self.device = words.Words()
        self.path = room.folder / "by-id"
        self._slaves: list[Slave] = []
        self._trouble: Trouble | None = None
        self._late, self._leaves, self._waits = b"", False, False
        self._left = threading.Event()
        self.plug()
        self._rtu = ModbusRtu(RtuSettings(str(self.path), 115200, response_ms=PATIENT_MS))
        self.bus = self._rtu

    def plug(self) -> None:
        """The port is there, under a new number."""
        slave = Slave()
        slave.otherwise = self._reply
        self._slaves.append(slave)
        self.path.symlink_to(slave.path)

    def unplug(self) -> None:
        """The port is pulled out."""
        self.path.unlink(missing_ok=True)  # first: another test may be given the number
        self._slaves[-1].close()

    def _reply(self, request: bytes) -> Reply:
        trouble, self._trouble = self._trouble, None
        good = framed(request[:1] + self.device.answer(request[1:-2]))
        refusal = None if trouble is None else words.refusal(trouble, request[1:-2])
        if refusal is not None:
            return [framed(request[:1] + refusal)]
        match trouble:
            case Trouble.ABSENT | Trouble.SILENT:
                return []
            case Trouble.LATE:
                self._late = good
                return []
            case Trouble.TWICE:
                return [good + good]
            case Trouble.FRAGMENT:
                return [good[:-3]]
            case Trouble.CORRUPTED:
                return [good[:-3] + bytes([good[-3] ^ 1]) + good[-2:]]
            case Trouble.FOREIGN:
                return [framed(bytes([request[0] + 1]) + good[1:-2])]
            case Trouble.UNASKED:
                return [framed(request[:1] + words.unasked(good[1:-2]))]
            case Trouble.MISFIT:
                return [framed(request[:1] + words.misfit(good[1:-2]))]
            case Trouble.VANISHED_DURING:
                self._left.wait(10)
                self.path.unlink()
                return None
        return [good]

    def asked(self, trouble: Trouble, access: Access) -> RegisterRead | RegisterWrite:
        """Transfers that no frame is for, for those that are never sent."""
        return words.asked(trouble, access)

    def seen(self) -> list[bytes]:
        """Frames."""
        return frames_of([request for slave in self._slaves for request in slave.requests], REQUEST_BYTES)

    def arrange(self, trouble: Trouble, access: Access) -> None:
        """At the next frame, or at the port at once."""
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
            case Trouble.VANISHED_DURING:
                self._leaves = True
                self._trouble = trouble
                self._tell_when_the_frame_has_left()
            case _:
                self._trouble = trouble

    def _tell_when_the_frame_has_left(self) -> None:
        """Else the port may go while it is being sent, which is another stage."""
        drain = termios.tcdrain

        def drained(handle: int) -> None:
            drain(handle)
            self._left.set()

        self.room.patch.setattr(termios, "tcdrain", drained)

    def _gone(self) -> bool:
        """Whether the port has gone; one that is going is waited for."""
        gone = self._slaves[-1].gone
        return gone.wait(10 if self._leaves else 0)

    def settle(self) -> None:
        """Wait for its thread."""
        slave = self._slaves[-1]
        if self._waits:
            until(lambda: self._trouble is None and slave.answered == len(slave.requests))

    def _patience(self, response_ms: int) -> None:
        self._rtu._settings = replace(self._rtu._settings, response_ms=response_ms)

    def let_out(self) -> None:
        """Write the reply that was held back."""
        os.write(self._slaves[-1].far, self._late)
        until(self.unread)

    def mend(self) -> None:
        """The device holds what is right, and the port is there."""
        self._trouble = None
        self.device.hold(words.RIGHT)
        self._patience(PATIENT_MS)
        if self._gone():
            self.plug()
        self._leaves = False

    def unread(self) -> bool:
        """Whether bytes wait at the near end of the pty."""
        line = select.poll()
        line.register(self._slaves[-1].near, select.POLLIN)
        return bool(line.poll(0))

    def holds(self) -> int:
        """Open handles of the ports that there were, without the slave's own."""
        self._gone()
        theirs = sum(not slave.gone.is_set() for slave in self._slaves)
        return sum(open_handles(path) for path in {slave.path for slave in self._slaves}) - theirs

    def stands(self, who: int) -> None:
        """See Bench."""
        self.device.hold(who.to_bytes(2, "big"))

    def effects(self) -> int:
        """Frames of function 6."""
        return words.writes_in(self.seen(), 1)

    def board(self) -> dict[str, Any]:
        """See Bench."""
        return {"kind": "modbus-rtu", "path": str(self.path), "baud": 115200}

    def close(self) -> None:
        """Give the port back and hang up."""
        self._rtu.close()
        for slave in self._slaves:
            slave.close()


BENCHES: Final = (ModbusRtuBench,)
