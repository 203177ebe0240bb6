"""A bench whose chips outlive the daemon and count on their own, and programs that are killed while they wait."""

from __future__ import annotations

import os
import subprocess
import tempfile
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

from hwtool_sim.process import SimConnection
from tests.running import LIMIT_S, RunningDaemon, RunningSimulator

BOARD = """
name = "bench"
approval_mode = "self"
[buses.i2c0]
kind = "sim"
socket = "{folder}/sim"
sole_master = true
response_ms = 300
reply_lifetime_ms = 200
transfer_limit_ms = 8000
[devices.gpio]
contract = "mcp23017"
bus = "i2c0"
address = 0x20
safe_state = [{{ register = "OLATA", value = 0 }}]
[devices.uart]
contract = "sc16is750"
bus = "i2c0"
address = 0x4C
"""


class Bench:
    """A daemon, and the simulator behind it."""

    def __init__(self, folder: Path, daemon: RunningDaemon) -> None:
        self.folder = folder
        self.daemon = daemon
        self.sim = SimConnection(str(folder / "sim"))
        self.forgotten = 0  # executions that the store cannot know of any more

    def executed(self, what: str, address: int = 0x20) -> int:
        """How often a chip executed an access, by its own count: `OLATA.write`."""
        counts: dict[str, dict[str, int]] = self.sim.ask({"control": "counts"})["counts"]
        return counts.get(f"{address:#04x}", {}).get(what, 0)

    def fault(self, kind: str, address: int = 0x20, **more: Any) -> None:
        """Plan a fault."""
        self.sim.ask({"control": "fault", "fault": {"kind": kind, "address": address, **more}})

    def start(self, command: list[str]) -> subprocess.Popen[str]:
        """A program against the daemon."""
        environment = {**os.environ, "HWTOOL_SOCKET": str(self.daemon.sockets), "NO_COLOR": "1"}
        pipe, nothing = subprocess.PIPE, subprocess.DEVNULL
        return subprocess.Popen(command, env=environment, stdin=nothing, stdout=pipe, stderr=pipe, text=True)

    def run(self, command: list[str]) -> str:
        """A program to its end; what it printed."""
        out, err = self.start(command).communicate(timeout=LIMIT_S)
        assert out, err
        return out

    def killed_after_dispatch(self, command: list[str], *, daemon_too: bool) -> None:
        """Start a program that writes gpio.OLATA, and kill it when the chip has acted and before the reply."""
        self.fault("hang", access="write", hang_s=1.5)
        before = self.executed("OLATA.write")
        program = self.start(command)
        try:
            come_about(lambda: self.executed("OLATA.write") > before or program.poll() is not None)
            assert program.poll() is None, program.communicate()
        finally:
            program.kill()
            program.communicate()
        if daemon_too:
            self.daemon.kill()
        self.sim.ask({"control": "clear_faults"})
        if daemon_too:
            self.daemon.start()


def come_about(condition: Callable[[], Any]) -> Any:
    """Poll across a process boundary until something is so."""
    deadline_s = time.monotonic() + LIMIT_S
    while not (found := condition()):
        assert time.monotonic() < deadline_s, "it never came about"
        time.sleep(0.01)
    return found


@contextmanager
def running_bench() -> Iterator[Bench]:
    """A bench from start to end; at its end journal, database and counters have to agree."""
    with tempfile.TemporaryDirectory(prefix="hw-", dir="/tmp") as name:
        folder = Path(name)
        text = BOARD.format(folder=folder)
        (folder / "board.toml").write_text(text)
        with RunningSimulator(folder / "board.toml", "--socket", str(folder / "sim")), RunningDaemon(text) as daemon:
            made = Bench(folder, daemon)
            yield made
            made.sim.close()
            if not made.forgotten:
                daemon.must_agree(folder / "sim")
