"""Slaves of other authors as counterparts: libmodbus, modbus-tk and pymodbus, over TCP and on a line.

They cannot be told to misbehave, but they can be stopped, let go on and killed; the wire of a line loses and spoils.
"""

from __future__ import annotations

import os
import select
import signal
import subprocess
import tempfile
import threading
from collections.abc import Callable, Mapping
from dataclasses import replace
from pathlib import Path
from typing import ClassVar, Final

from hwtool_contracts.model import Space
from hwtool_registers.bus import RegisterRead, RegisterWrite, Sent
from hwtool_registers.buses.modbus import ModbusRtu, RtuSettings, framed
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
    connections,
    connections_to,
    doubt,
    frames_of,
    open_handles,
    proved,
)
from tests.conformance.shared import kept
from tests.modbus.libmodbus_slave import LIBRARY, library
from tests.modbus.test_conformance import started
from tests.modbus.wire import Wire
from tests.registers.scripted_server import free_port, until

BESIDE: Final = RegisterRead(words.UNIT, Space.HOLDING, 20, 4, 1, 3)  # of the same form as the one that follows
BESIDES: Final = b"\x00\x3c\x00\x3f"
BEYOND: Final[dict[Access, RegisterRead | RegisterWrite]] = {
    Access.READ: RegisterRead(words.UNIT, Space.HOLDING, 99, 4, 1, 3),
    Access.WRITE: RegisterWrite(words.UNIT, Space.HOLDING, 500, b"\x00\x01", 1, 6),
}
NEVER: Final = {t: words.REPLIES[t] for t in (Trouble.UNCARRIED, Trouble.UNSAYABLE, Trouble.TOO_LONG)}
SOUND: Final = "a server of another author on a socket of the kernel's does not: the scripted one of modbus-tcp does"
STOPPED: Final = "one that was stopped answers when it goes on: that is `late`"
ANY_UNIT: Final = "libmodbus's server answers for every unit"
DEAF: Final = "libmodbus's slave takes the frame after a request to another unit for that one's reply"
NO_SUCH_REFUSAL: Final = "these slaves have no such refusal: the scripted ones do"
THE_LINE_STAYS: Final = "a slave that dies leaves the line: that is `silent`"


class Peer:
    """A slave in a process of its own.

    Attributes:
        wire: of a line, None over TCP.
        port: it listens at, 0 on a line.
        counts: it writes there what it gets.
    """

    def __init__(self, module: str, transport: tuple[str, ...], port: int, on_a_line: bool) -> None:
        self._folder = tempfile.TemporaryDirectory(prefix="hw-", dir="/tmp")
        self.counts = Path(self._folder.name) / "counts"
        self.wire = SpoilingWire() if on_a_line else None
        self.port = port
        place = str(port) if self.wire is None else self.wire.slave_end
        self.process: subprocess.Popen[str] = started(module, *transport, place, str(self.counts))

    def got(self) -> list[str]:
        """Its own record."""
        return self.counts.read_text(encoding="ascii").splitlines()

    def stop(self) -> None:
        """Let it stand still, and return when it does: else it may have answered by then."""
        self.process.send_signal(signal.SIGSTOP)
        os.waitid(os.P_PID, self.process.pid, os.WSTOPPED)

    def close(self) -> None:
        """Kill it."""
        self.process.kill()
        self.process.communicate()
        if self.wire is not None:
            self.wire.close()
        self._folder.cleanup()


class SpoilingWire(Wire):
    """A wire that spoils the next reply.

    Attributes:
        spoil: what becomes of it.
        replies: how many came from the slave, those included that were lost.
    """

    def __init__(self) -> None:
        self.replies = 0
        self.spoil: Callable[[bytes], bytes] | None = None
        super().__init__()

    def _reply(self, data: bytes) -> None:
        spoil, self.spoil = self.spoil, None
        super()._reply(data if spoil is None else spoil(data))
        self.replies += 1


SPOILT: Final[dict[Trouble, Callable[[bytes], bytes]]] = {
    Trouble.TWICE: lambda reply: reply + reply,
    Trouble.FRAGMENT: lambda reply: reply[:-3],
    Trouble.CORRUPTED: lambda reply: reply[:-3] + bytes([reply[-3] ^ 1]) + reply[-2:],
    Trouble.FOREIGN: lambda reply: framed(bytes([reply[0] + 1]) + reply[1:-2]),
    Trouble.UNASKED: lambda reply: framed(reply[:1] + words.unasked(reply[1:-2])),
    Trouble.MISFIT: lambda reply: framed(reply[:1] + words.misfit(reply[1:-2])),
}


class PeerBench(Bench):
    """What both carriers have in common.

    Attributes:
        module, transport: how the slave is started.
    """

    read, write, right, lie = words.READ, words.WRITE, words.RIGHT, BESIDES
    module: ClassVar[str]
    transport: ClassVar[tuple[str, ...]]
    on_a_line: ClassVar[bool]

    def __init__(self, room: Room) -> None:
        super().__init__(room)
        self._port = 0 if self.on_a_line else free_port()
        self.peer = self._peer()
        self._port = self.peer.port

    def _peer(self) -> Peer:
        peer = kept(self.name, lambda: Peer(self.module, self.transport, self._port, self.on_a_line))
        assert isinstance(peer, Peer)
        return peer

    @classmethod
    def missing(cls) -> str | None:
        """libmodbus is a package of the system's."""
        if "libmodbus" in cls.module:
            try:
                library()
            except OSError:
                return f"no {LIBRARY} (Debian: libmodbus5)"
        return None

    def asked(self, trouble: Trouble, access: Access) -> RegisterRead | RegisterWrite:
        """Registers that it has not; a unit that is not there; else those beside the ones that are read after."""
        if trouble is Trouble.REFUSED_PROVED:
            return BEYOND[access]
        odd = words.ODD.get((trouble, access))
        if odd is not None:
            return odd
        plain: RegisterRead | RegisterWrite = BESIDE if access is Access.READ else words.WRITE
        return replace(plain, address=words.UNIT + 1) if trouble is Trouble.ABSENT else plain

    def let_out(self) -> None:
        """Let it go on."""
        self.peer.process.send_signal(signal.SIGCONT)
        until(self.unread)


class PeerOverTcp(PeerBench):
    """Its own record is what was seen."""

    on_a_line = False
    can: ClassVar[Mapping[Trouble, Expectation]] = {
        **NEVER,
        Trouble.LATE: both(doubt(Sent.REPLY)),
        Trouble.REFUSED_PROVED: words.REPLIES[Trouble.REFUSED_PROVED],
        Trouble.VANISHED_BEFORE: both(proved("port-not-opened", 0)),
        Trouble.VANISHED_DURING: both(doubt(Sent.REPLY, 0)),  # it was killed before it read it
        Trouble.RETURNED: both(proved("port-not-opened", 0)),
    }
    cannot: ClassVar[Mapping[Trouble, str]] = {
        Trouble.SILENT: STOPPED,
        Trouble.REFUSED_UNPROVED: NO_SUCH_REFUSAL,
        **dict.fromkeys((Trouble.OVERDUE, *SPOILT), SOUND),
    }

    def __init__(self, room: Room) -> None:
        super().__init__(room)
        self._tcp = ModbusTcp(TcpSettings("127.0.0.1", self._port, PATIENT_MS))
        self.bus = self._tcp
        self._before = len(self.peer.got())
        self._got: list[str] = []
        self._killer: threading.Thread | None = None

    def seen(self) -> list[str]:
        """What it has written down, those included that are dead."""
        return self._got + self.peer.got()[self._before :]

    def arrange(self, trouble: Trouble, access: Access) -> None:
        """By a signal."""
        del access
        if trouble is Trouble.LATE or trouble is Trouble.ABSENT:
            self._tcp._settings = replace(self._tcp._settings, response_ms=SILENCE_MS)
        match trouble:
            case Trouble.LATE:
                self.peer.stop()
            case Trouble.VANISHED_BEFORE:
                self._kill()
            case Trouble.VANISHED_DURING:
                self.peer.stop()
                self._killer = threading.Thread(target=self._kill_at_request, daemon=True)
                self._killer.start()
            case Trouble.RETURNED:
                self._kill()
                self._again()

    def _kill(self) -> None:
        self.peer.process.kill()
        self.peer.process.wait()
        line = self._tcp._line
        if line is not None:
            until(lambda: select.select([line], [], [], 0)[0])  # its last word has arrived

    def _kill_at_request(self) -> None:
        until(lambda: any(one.local == self._port and one.unread_bytes for one in connections()))
        self.peer.process.kill()
        self.peer.process.wait()

    def _killed(self) -> None:
        """Wait for it, where it is under way."""
        if self._killer is not None:
            self._killer.join(10)

    def _again(self) -> None:
        self._got, self._before = self.seen(), 0
        self.peer = self._peer()

    def mend(self) -> None:
        """It runs."""
        self._killed()
        self._tcp._settings = replace(self._tcp._settings, response_ms=PATIENT_MS)
        if self.peer.process.poll() is not None:
            self._again()

    def unread(self) -> bool:
        """Whether bytes wait in the connection, or were kept of what came."""
        line = self._tcp._line
        return line is not None and bool(self._tcp._came or select.select([line], [], [], 0)[0])

    def holds(self) -> int:
        """Open connections to its port."""
        self._killed()
        return connections_to(self._port)

    def close(self) -> None:
        """Hang up; the slave stays for the next test."""
        self._tcp.close()
        self.peer.process.send_signal(signal.SIGCONT)


class PeerOnALine(PeerBench):
    """The wire's own record is what was seen.

    Attributes:
        refuses_for_others: it refuses what is for another unit, where others are silent.
    """

    on_a_line = True
    refuses_for_others: ClassVar[bool] = False
    can: ClassVar[Mapping[Trouble, Expectation]] = {
        **NEVER,
        Trouble.ABSENT: both(doubt(Sent.REPLY)),
        Trouble.SILENT: both(doubt(Sent.REPLY)),
        **{t: words.REPLIES[t] for t in (Trouble.LATE, *SPOILT, Trouble.REFUSED_PROVED)},
    }
    cannot: ClassVar[Mapping[Trouble, str]] = {
        Trouble.OVERDUE: "a limit of the protocol: RTU has no number, a reply after the quarantine passes for the next",
        Trouble.REFUSED_UNPROVED: NO_SUCH_REFUSAL,
        **dict.fromkeys((Trouble.VANISHED_BEFORE, Trouble.VANISHED_DURING, Trouble.RETURNED), THE_LINE_STAYS),
    }

    def __init__(self, room: Room) -> None:
        super().__init__(room)
        assert self.peer.wire is not None
        self._wire = self.peer.wire
        self._awaited = 0
        self._rtu = ModbusRtu(RtuSettings(self._wire.master_end, 115200, response_ms=PATIENT_MS))
        self.bus = self._rtu
        self._before = len(self._wire.requests)

    def seen(self) -> list[bytes]:
        """Frames."""
        return frames_of(self._wire.requests[self._before :], 8)

    def arrange(self, trouble: Trouble, access: Access) -> None:
        """By a signal, or on the wire."""
        del access
        if trouble in (Trouble.ABSENT, Trouble.SILENT, Trouble.LATE, Trouble.FRAGMENT, Trouble.MISFIT):
            # a process may be slow, and what it has not read yet it takes for one frame with what follows
            silence_ms = SILENCE_MS if trouble is Trouble.LATE else 4 * SILENCE_MS
            self._rtu._settings = replace(self._rtu._settings, response_ms=silence_ms)
        if trouble is Trouble.LATE:
            self.peer.stop()
        if trouble is Trouble.SILENT or trouble in SPOILT or (trouble is Trouble.ABSENT and self.refuses_for_others):
            self._awaited = self._wire.replies + 1
        if trouble is Trouble.SILENT:
            self._wire.lose_replies = 1
        if trouble in SPOILT:
            self._wire.spoil = SPOILT[trouble]

    def settle(self) -> None:
        """Wait for the reply that was lost or spoilt, or a refusal that came too late."""
        until(lambda: self._wire.replies >= self._awaited)

    def mend(self) -> None:
        """Replies come, and are waited for."""
        self._rtu._settings = replace(self._rtu._settings, response_ms=PATIENT_MS)

    def unread(self) -> bool:
        """Whether bytes wait at the port."""
        port = self._rtu._port
        return port is not None and bool(select.select([port.fileno()], [], [], 0)[0])

    def holds(self) -> int:
        """Open handles of the wire's end."""
        return open_handles(self._wire.master_end)

    def close(self) -> None:
        """Give the port back; the slave stays for the next test."""
        self._rtu.close()
        self.peer.process.send_signal(signal.SIGCONT)
        self._wire.lose_replies = 0


class LibmodbusOverTcp(PeerOverTcp):
    """See its slave."""

    name, module, transport = "libmodbus, TCP", "tests.modbus.libmodbus_slave", ("tcp",)
    cannot: ClassVar[Mapping[Trouble, str]] = {**PeerOverTcp.cannot, Trouble.ABSENT: ANY_UNIT}


class ModbusTkOverTcp(PeerOverTcp):
    """It writes down what is for its unit alone."""

    name, module, transport = "modbus-tk, TCP", "tests.modbus.modbus_tk_slave", ("tcp",)
    can: ClassVar[Mapping[Trouble, Expectation]] = {**PeerOverTcp.can, Trouble.ABSENT: both(doubt(Sent.REPLY, 0))}


class PymodbusOverTcp(PeerOverTcp):
    """It refuses what is for another unit, with an exception that proves nothing."""

    name, module, transport = "pymodbus, TCP", "tests.modbus.tcp_server", ()
    can: ClassVar[Mapping[Trouble, Expectation]] = {**PeerOverTcp.can, Trouble.ABSENT: both(doubt(Sent.REPLY))}


class LibmodbusOnALine(PeerOnALine):
    """See its slave."""

    name, module, transport = "libmodbus, RTU", "tests.modbus.libmodbus_slave", ("rtu",)
    can: ClassVar[Mapping[Trouble, Expectation]] = {
        trouble: wanted for trouble, wanted in PeerOnALine.can.items() if trouble is not Trouble.ABSENT
    }
    cannot: ClassVar[Mapping[Trouble, str]] = {**PeerOnALine.cannot, Trouble.ABSENT: DEAF}


class ModbusTkOnALine(PeerOnALine):
    """See its slave."""

    name, module, transport = "modbus-tk, RTU", "tests.modbus.modbus_tk_slave", ("rtu",)


class PymodbusOnALine(PeerOnALine):
    """See its slave."""

    name, module, transport = "pymodbus, RTU", "tests.modbus.slave", ()
    refuses_for_others = True


BENCHES: Final = (
    LibmodbusOverTcp,
    ModbusTkOverTcp,
    PymodbusOverTcp,
    LibmodbusOnALine,
    ModbusTkOnALine,
    PymodbusOnALine,
)
