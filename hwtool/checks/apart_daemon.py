"""What a test holds of a daemon on simulated chips: it is ended, killed and started again, and its store stays.

docs/pytest.md tells the use.
"""

from __future__ import annotations

import signal
import time
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Final, TypeVar

from hwtool.approvals import TOO_SOON_NS
from hwtool.checks.apart import LIMIT_S, SHOWN, Answer, Process
from hwtool.checks.apart_chips import Access, Simulator
from hwtool.checks.hosted import DAEMON_READY
from hwtool.client import Client
from hwtool.losses import ConnectionLost, NoDaemon
from hwtool.replies import Result
from hwtool.session import Role
from hwtool.timeline import timeline

HANG_S: Final = 1.5  # how long a transfer hangs under which the daemon is killed
LOOK_S: Final = 0.005  # between two looks at the counters of another process, which wakes nobody
T = TypeVar("T")


class Daemon:
    """A daemon on simulated chips, with its store on disk: ended, killed and started again as a test likes.

    Attributes:
        socket: directory of its two sockets.
    """

    def __init__(self, board: Path, chips: Path, sim: Simulator, store: Path, socket: Path) -> None:
        self.socket = socket
        self._words = ["daemon", str(board), str(chips), str(store), str(socket)]
        self._sim = sim
        self._process = Process(self._words, DAEMON_READY)

    def client(self, role: Role = "agent") -> Client:
        """Another connection; it is yours to close."""
        return Client(self.socket, role, timeout_s=LIMIT_S)

    def stop(self) -> None:
        """SIGTERM, and wait for the end.

        Raises:
            AssertionError: it did not end well.
        """
        if self._process.running and (code := self._process.end(signal.SIGTERM)) != 0:
            raise AssertionError(f"the daemon ended with {code}: " + "\n".join(self._process.said[-SHOWN:]))

    def kill(self) -> None:
        """SIGKILL: it ends without a word. The chips go on."""
        self._process.end(signal.SIGKILL)

    def start(self) -> None:
        """Start another one on the same store; nothing to do while one runs."""
        if not self._process.running:
            self._process = Process(self._words, DAEMON_READY)

    def restart(self) -> None:
        """End it as it is told to, and start another one."""
        self.stop()
        self.start()

    def killed_during(self, call: Callable[[], T], register: str, access: Access = "write") -> T:
        """Make a call, kill the daemon when the chip has acted and before it hears of it, and start another one.

        The call's own client asks the new daemon what became of it; its result or its error is this one's.

        Raises:
            AssertionError: the chip did not act, or the daemon had heard of it.
        """
        device, _, name = register.partition(".")
        self._sim.fault(device, "hang", access="read" if access == "read" else "write", at=name, hang_s=HANG_S)
        before, ends = self._sim.executed(register, access), Answer(call)
        deadline_s = time.monotonic() + LIMIT_S
        while self._sim.executed(register, access) == before:
            if ends.there.wait(LOOK_S) or time.monotonic() > deadline_s:
                self._sim.clear_faults()
                raise AssertionError(f"no {access} of {register} was executed, and the daemon was not killed")
        self.kill()
        heard = ends.there.is_set()
        self._sim.clear_faults()
        self.start()
        if heard:
            raise AssertionError("the call had been answered before the daemon was killed")
        return ends.have()

    def approve(self, number: int | None) -> Result:
        """A person looks at what a request would do, and grants it: make the same call again, under the same key.

        It takes the second and a half that a person needs at least; the daemon refuses a quicker one.
        """
        if number is None:
            raise ValueError("there is no request to approve: the result has no id")
        with self.client("operator") as operator:
            code = operator.approval_show(number)["code"]
            time.sleep(TOO_SOON_NS / 1e9 + 0.05)
            return operator.approve(number, code)

    def timeline(self) -> Iterator[str]:
        """For a failure: the journal, what the chips counted, what was on the buses, what the daemon said."""
        yield from self._journal()
        yield from (f"counted: {line}" for line in self._sim.counts())
        yield from (f"bus: {line}" for line in self._sim.traffic()[-SHOWN:])
        yield from (f"daemon: {line}" for line in self._process.said[-SHOWN:])

    def _journal(self) -> Iterator[str]:
        if not self._process.running:
            yield "journal: the daemon does not run, so it cannot be asked"
            return
        try:
            with Client(self.socket, "operator", timeout_s=LIMIT_S) as operator:
                page = operator.journal(limit=200)
                entries = list(page.entries)
                while page.cursor is not None:
                    page = operator.journal(limit=200, cursor=page.cursor)
                    entries += page.entries
        except (NoDaemon, ConnectionLost) as error:
            yield f"journal: {error}"
            return
        yield from (f"journal: {timeline(dict(entry))}" for entry in entries[-SHOWN:])

    def close(self) -> None:
        """End it, whatever state it is in."""
        self._process.end(signal.SIGTERM)
