"""The simulated bus in a process of its own, with a tap on the socket between: it notes each transfer that passes."""

from __future__ import annotations

import contextlib
import json
import select
import socket
import subprocess
import sys
import tempfile
import threading
import time
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Any, ClassVar, Final

from hwtool_registers.bus import RegisterRead, RegisterWrite, Sent
from hwtool_sim.process import SimConnection
from hwtool_sim.remote import RemoteSimBus
from tests.conformance.bench import Access, Bench, Expectation, Room, Trouble, both, doubt
from tests.conformance.benches import sim
from tests.conformance.shared import kept
from tests.registers.scripted_server import until

NAME: Final = "i2c0"
CHIPS: Final = {NAME: {str(sim.EXPANDER): "mcp23017", str(sim.METER): "sdm120"}}


class SimProcess:
    """`python -m hwtool_sim`; asked by a control connection of its own."""

    def __init__(self) -> None:
        self._folder = tempfile.TemporaryDirectory(prefix="hw-", dir="/tmp")  # socket paths are short
        self.path = f"{self._folder.name}/sim"
        command = [sys.executable, "-m", "hwtool_sim", "--socket", self.path, "--chips", json.dumps(CHIPS)]
        self.process = subprocess.Popen(command, text=True)
        until(self._answers)

    def _answers(self) -> bool:
        assert self.process.poll() is None
        with contextlib.suppress(OSError):
            SimConnection(self.path).close()
            return True
        return False

    def control(self, word: str, **more: Any) -> None:
        """One control; see hwtool_sim.process."""
        connection = SimConnection(self.path)
        connection.ask({"bus": NAME, "control": word, **more})
        connection.close()

    def close(self) -> None:
        """Kill it; nothing of it stays."""
        self.process.kill()
        self.process.wait()
        self._folder.cleanup()


class Tap:
    """A socket that passes on to the process what comes, line by line.

    Attributes:
        heard: the transfers that passed.
        kills: called as the next transfer has passed.
        behind: the process's socket.
        live: connections.
    """

    def __init__(self, path: str, behind: str) -> None:
        self.heard: list[str] = []
        self.kills: Callable[[], None] | None = None
        self._listening: socket.socket | None = None
        self.live: set[socket.socket] = set()
        self._path = Path(path)
        self.listen(behind)

    def listen(self, behind: str) -> None:
        """Stand for the process at this socket."""
        self.close()
        self.behind = behind
        self._listening = socket.socket(socket.AF_UNIX, socket.SOCK_STREAM)
        self._listening.bind(str(self._path))
        self._listening.listen()
        threading.Thread(target=self._accept, args=(self._listening,), daemon=True).start()

    def _accept(self, listening: socket.socket) -> None:
        while True:
            try:
                near, _ = listening.accept()
            except OSError:
                return
            self.live.add(near)
            threading.Thread(target=self._serve, args=(near,), daemon=True).start()

    def _serve(self, near: socket.socket) -> None:
        self._pass_on(near)
        self.live.discard(near)

    def _pass_on(self, near: socket.socket) -> None:
        """Serve one connection, until either side hangs up."""
        with near, socket.socket(socket.AF_UNIX, socket.SOCK_STREAM) as far, contextlib.suppress(OSError):
            far.connect(self.behind)
            while piece := _from_either(near, far):
                source, data = piece
                if source is far:
                    near.sendall(data)
                    continue
                self.heard += [line for line in data.decode().splitlines() if '"transfer"' in line]
                kills, self.kills = (self.kills, None) if b'"transfer"' in data else (None, self.kills)
                if kills is not None:
                    kills()
                far.sendall(data)

    def close(self) -> None:
        """Take no more connections, as where no process is: nobody is at the path."""
        self._path.unlink(missing_ok=True)
        if self._listening is not None:
            with contextlib.suppress(OSError):  # closed already
                self._listening.shutdown(socket.SHUT_RDWR)
            self._listening.close()


def _from_either(near: socket.socket, far: socket.socket) -> tuple[socket.socket, bytes] | None:
    """What comes next, and from which of the two; None: one of them hung up."""
    ready, _, _ = select.select([near, far], [], [])
    data = ready[0].recv(65536)  # requests and answers take turns: a line comes whole
    return (ready[0], data) if data else None


class SimProcessBench(Bench):
    """The chips of `sim`; where the bus vanishes the process is killed, and when it is back another one runs."""

    name = "sim process"
    can: ClassVar[Mapping[Trouble, Expectation]] = {
        **sim.TAKEN,
        Trouble.VANISHED_BEFORE: both(doubt(Sent.REPLY, 0)),
        Trouble.VANISHED_DURING: both(doubt(Sent.REPLY)),
        Trouble.RETURNED: both(doubt(Sent.REPLY, 0)),
    }
    cannot: ClassVar[Mapping[Trouble, str]] = sim.NOT_HERE
    resident = sim.RESIDENT
    read, write, right, lie = sim.READ, sim.WRITE, sim.RIGHT, sim.LIE

    def __init__(self, room: Room) -> None:
        super().__init__(room)
        self._folder = tempfile.TemporaryDirectory(prefix="hw-", dir="/tmp")
        self._tap = Tap(f"{self._folder.name}/tap", self.process().path)
        self._remote = RemoteSimBus(f"{self._folder.name}/tap", NAME, None)
        self.bus = self._remote
        self._due_s = 0.0
        self._who = sim.RIGHT[0]
        self.mend()
        asker = SimConnection(self.process().path)
        asker.ask({"bus": NAME, "quiesce": True})
        asker.close()

    @staticmethod
    def process() -> SimProcess:
        """The process that runs; a new one where the last has ended."""
        process = kept("sim", SimProcess)
        assert isinstance(process, SimProcess)
        return process

    def asked(self, trouble: Trouble, access: Access) -> RegisterRead | RegisterWrite:
        """As of the bus in this process."""
        return sim.asked(trouble, access)

    def seen(self) -> list[str]:
        """Transfers that passed the tap."""
        return list(self._tap.heard)

    def arrange(self, trouble: Trouble, access: Access) -> None:
        """By a control, or by killing the process."""
        del access
        self._hold(sim.LIE)
        match trouble:
            case Trouble.ABSENT:
                self.process().control("move", address=sim.EXPANDER, to=0x27)
            case Trouble.VANISHED_BEFORE:
                self._kill()
            case Trouble.VANISHED_DURING:
                self._tap.kills = self._kill
            case Trouble.RETURNED:
                self._kill()
                self.mend()
            case _:
                late_s = sim.FAULTS[trouble].get("late_s", 0.0) if trouble in sim.FAULTS else 0.0
                if trouble in sim.FAULTS:
                    self.process().control("fault", fault=sim.FAULTS[trouble])
                self._due_s = late_s and time.monotonic() + 2 * late_s

    def _hold(self, data: bytes) -> None:
        self.process().control("set", address=sim.EXPANDER, register="OLATA", value=data[0])

    def _kill(self) -> None:
        self._tap.close()
        self.process().close()
        if threading.current_thread() is threading.main_thread():  # else the tap itself kills it, and hangs up next
            until(lambda: not self._tap.live)

    def over_s(self) -> float:
        """What is late comes by the clock of the process: nothing tells that it has come, but it has by then."""
        return max(time.monotonic(), self._due_s)

    def mend(self) -> None:
        """A process runs, its expander is there and holds what is right."""
        process = self.process()
        if process.path != self._tap.behind:
            self._tap.listen(process.path)
        process.control("clear_faults")
        with contextlib.suppress(ValueError):  # it has not moved
            process.control("move", address=0x27, to=sim.EXPANDER)
        self._hold(sim.RIGHT)

    def holds(self) -> int:
        """Its connection: sockets of Unix have no name on this side."""
        return int(self._remote._connection is not None)

    def stands(self, who: int) -> None:
        """See Bench; known once a process runs."""
        self._who = who
        if self.process().path == self._tap.behind:
            self._hold(bytes([who]))

    def effects(self) -> int:
        """Writes of OLATB that passed the tap."""
        passed = [json.loads(line)["transfer"] for line in self._tap.heard]
        return sum(t["do"] == "write" and int(t["offset"], 0) == sim.WRITE.offset for t in passed)

    def unplug(self) -> None:
        """See Bench."""
        self._kill()

    def plug(self) -> None:
        """See Bench."""
        self._tap.listen(self.process().path)
        self._hold(bytes([self._who]))

    def board(self) -> dict[str, Any]:
        """See Bench."""
        return {"kind": "sim", "socket": f"{self._folder.name}/tap"}

    def close(self) -> None:
        """Hang up; the process stays for the next test."""
        self._remote.close()
        self._tap.close()
        self._folder.cleanup()


BENCHES: Final = (SimProcessBench,)
