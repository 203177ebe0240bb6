"""A daemon as a process, for tests that start it, kill it and talk to it as a stranger would."""

from __future__ import annotations

import contextlib
import os
import shutil
import signal
import subprocess
import sys
import tempfile
import time
from collections import Counter
from pathlib import Path
from types import TracebackType
from typing import Literal, Self

from hwtool.client import Client
from hwtool.config import load_board
from hwtool.connection import Connection
from hwtool.losses import NoDaemon
from hwtool_contracts.model import Contract
from hwtool_sim.process import SimConnection
from tests.agreement import disagreements, record_of
from tests.executions import Count, Place
from tests.programs import Program, run

LIMIT_S = 30.0


class RunningDaemon:
    """`hwtool serve` in a short directory of its own (socket paths are limited to 107 bytes).

    Args:
        board: text of the board file; None: the built-in bench.
    """

    def __init__(self, board: str | None = None) -> None:
        self.directory = Path(tempfile.mkdtemp(prefix="hw-", dir="/tmp"))
        self.process: Program | subprocess.Popen[bytes] | None = None
        self._board = board
        self.more: list[str] = []  # further words for serve
        if board is not None:
            (self.directory / "board.toml").write_text(board, encoding="utf-8")

    @property
    def sockets(self) -> Path:
        """Directory of the sockets."""
        return self.directory / "run"

    @property
    def store(self) -> Path:
        """Directory of the store."""
        return self.directory / "store"

    def arguments(self) -> list[str]:
        """The arguments of serve."""
        words = ["serve", "--store", str(self.store), "--socket", str(self.sockets), "--allow-unsafe-store"]
        words += self.more
        return words + (["--board", str(self.directory / "board.toml")] if self._board is not None else [])

    def start(self, launcher: Path | None = None, **environment: str) -> Self:
        """Start, and wait until it says that it is ready.

        Args:
            launcher: a script executed instead of the fork (tests/programs.py), with the same arguments.
        """
        surroundings = {**os.environ, **environment}
        log = self.directory / "log"
        before = log.stat().st_size if log.exists() else 0
        with log.open("ab") as sink:
            if launcher is None:
                self.process = Program(self.arguments(), surroundings, {2: sink.fileno()})
            else:
                words = [sys.executable, str(launcher), *self.arguments()]
                self.process = subprocess.Popen(words, stderr=sink, env=surroundings)
        deadline_s = time.monotonic() + LIMIT_S
        while b"hwtool: ready" not in log.read_bytes()[before:]:
            if self.process.poll() is not None or time.monotonic() > deadline_s:
                raise AssertionError(f"the daemon did not start: {log.read_text()}")
            time.sleep(0.01)  # nothing to be woken by: the log is a file
        return self

    def log(self) -> str:
        """What it said on stderr."""
        return (self.directory / "log").read_text(encoding="utf-8")

    def client(self, role: Literal["agent", "operator"] = "agent") -> Connection:
        """A connection as it is: requests and results as plain JSON."""
        return Connection(self.sockets, role, timeout_s=LIMIT_S)

    def hw(self, role: Literal["agent", "operator"] = "agent") -> Client:
        """The typed client."""
        return Client(self.sockets, role, timeout_s=LIMIT_S)

    def wait(self) -> int:
        """Wait for its end; answers the exit code."""
        assert self.process is not None
        return self.process.wait(LIMIT_S)

    def kill(self) -> None:
        """SIGKILL."""
        assert self.process is not None
        self.process.send_signal(signal.SIGKILL)
        self.process.wait(LIMIT_S)

    def stop(self) -> int:
        """SIGTERM, and wait; answers the exit code."""
        assert self.process is not None
        if self.process.poll() is None:
            self.process.send_signal(signal.SIGTERM)
        try:
            return self.process.wait(LIMIT_S)
        except subprocess.TimeoutExpired:
            self.process.kill()
            raise

    def __enter__(self) -> Self:
        return self.start()

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        try:
            if self.process is not None and self.stop() == 0 and kind is None:
                self.must_agree()
        finally:
            shutil.rmtree(self.directory, ignore_errors=True)

    def must_agree(self, simulator: Path | None = None) -> None:
        """Stop, and compare journal, rows and, where the chips are in a simulator, their own counters.

        Args:
            simulator: socket of the simulator of the whole board.
        """
        assert self.stop() == 0, self.log()
        record = record_of(self.store)
        contracts: dict[str, Contract] = {}
        counts: list[Count] = []
        if simulator is not None:
            board = load_board(self.directory / "board.toml")
            shown = shown_counts(simulator, list(board.buses))
            executed: dict[str, Counter[Place]] = {}
            for device in board.devices.values():
                locus = device.locus(board.buses[device.bus])
                contracts[locus] = device.contract
                executed[locus] = Counter()
                for name, number in shown[device.bus].get(f"{device.place:#04x}", {}).items():
                    register, _, access = name.rpartition(".")
                    executed[locus][register, access] = number
            counts = [Count({}, frozenset()), Count(executed, record.begun())]
        assert disagreements(record, contracts, counts) == []


def shown_counts(simulator: Path, buses: list[str]) -> dict[str, dict[str, dict[str, int]]]:
    """What the chips behind a simulator's socket have executed, by bus and address."""
    line = SimConnection(str(simulator))
    try:
        return {bus: line.ask({"control": "counts", "bus": bus})["counts"] for bus in buses}
    finally:
        line.close()


class RunningSimulator:
    """`hwtool sim` on a board file, its words on stderr kept.

    Args:
        board: the file.
        words: further arguments.
    """

    def __init__(self, board: Path, *words: str) -> None:
        self._words = ["sim", "--board", str(board), *words]
        self.process: Program | None = None
        self.said: list[str] = []

    def __enter__(self) -> Self:
        reading, writing = os.pipe()
        self._errors = os.fdopen(reading, encoding="utf-8")
        try:
            self.process = Program(self._words, os.environ, {2: writing})
        finally:
            os.close(writing)
        while (line := self._errors.readline()) != "hwtool sim: ready\n":
            if not line:
                raise AssertionError(f"the simulator did not start: {self.said}")
            self.said.append(line)
        return self

    def wait(self) -> int:
        """Wait for its end; answers the exit code, and keeps what it said until then."""
        assert self.process is not None
        code = self.process.wait(LIMIT_S)
        self.said += self._errors.readlines()
        return code

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        assert self.process is not None
        self.process.kill()
        self.process.wait(LIMIT_S)
        self._errors.close()


def command_line(daemon: RunningDaemon, *words: str, stdin: str | None = None) -> subprocess.CompletedProcess[str]:
    """`hwtool WORDS…` against a daemon."""
    environment = {**os.environ, "HWTOOL_SOCKET": str(daemon.sockets), "NO_COLOR": "1"}
    return run(words, environment, stdin, LIMIT_S)


def start_command(daemon: RunningDaemon, *words: str) -> subprocess.Popen[str]:
    """A command line that goes on by itself; its standard output is a pipe."""
    arguments = [sys.executable, "-m", "hwtool", *words]
    environment = {**os.environ, "HWTOOL_SOCKET": str(daemon.sockets)}
    return subprocess.Popen(arguments, env=environment, stdout=subprocess.PIPE, text=True)


def no_daemon(daemon: RunningDaemon) -> bool:
    """Whether nobody listens."""
    with contextlib.suppress(NoDaemon):
        daemon.client().close()
        return False
    return True
