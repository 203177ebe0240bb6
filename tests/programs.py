"""`hwtool WORDS…` as a process of its own, forked from one that has everything imported.

What is forked is what `python -m hwtool` would have come to, without half a second of imports; three hundred tests
start one. Tests of starting itself (tests/surface/test_starting.py, tests/test_readme.py, the tutorials) execute it.
"""

from __future__ import annotations

import multiprocessing
import os
import signal
import subprocess
import sys
import tempfile
from collections.abc import Mapping, Sequence
from multiprocessing.connection import Connection
from pathlib import Path
from typing import Final

FORKS: Final = multiprocessing.get_context("forkserver")
FORKS.set_forkserver_preload(
    [f"hwtool.cli.{path.stem}" for path in (Path(__file__).parent.parent / "hwtool" / "cli").glob("[a-z]*.py")]
    + ["hwtool.__main__", "hwtool.server", "hwtool.retrying", "hwtool_sim.process", "tests.programs"]
)
STANDARD: Final = (0, 1, 2)  # input, output, errors


class Program:
    """A running `hwtool`, with as much of Popen as tests use.

    Args:
        words: its arguments.
        environment: all of it.
        streams: file descriptors of this process by the number (0, 1, 2) that they have there; they stay open here.

    Attributes:
        pid: process id. It is not a child of this process; nobody else waits for it.
    """

    def __init__(self, words: Sequence[str], environment: Mapping[str, str], streams: Mapping[int, int]) -> None:
        self.words = ["hwtool", *words]
        passed = {number: Connection(os.dup(handle), writable=number == 0) for number, handle in streams.items()}
        self._process = FORKS.Process(
            target=_inside, args=(self.words, dict(environment), str(Path.cwd()), passed), daemon=True
        )
        try:
            self._process.start()
        finally:
            for end in passed.values():
                end.close()
        assert self._process.pid is not None
        self.pid: int = self._process.pid

    @property
    def returncode(self) -> int | None:
        """Its exit code, minus the signal that ended it; None: it runs."""
        return self._process.exitcode

    def poll(self) -> int | None:
        """The same, for those that say it so."""
        return self.returncode

    def wait(self, timeout: float | None = None) -> int:
        """Wait for its end; subprocess.TimeoutExpired if it takes longer, in seconds."""
        self._process.join(timeout)
        if self.returncode is None:
            raise subprocess.TimeoutExpired(self.words, timeout or 0.0)
        return self.returncode

    def send_signal(self, number: int) -> None:
        """Send a signal, unless it has ended."""
        if self.poll() is None:
            os.kill(self.pid, number)

    def kill(self) -> None:
        """SIGKILL."""
        self.send_signal(signal.SIGKILL)


def run(
    words: Sequence[str], environment: Mapping[str, str], stdin: str | None, limit_s: float
) -> subprocess.CompletedProcess[str]:
    """Run `hwtool WORDS…` to its end; what it said is text."""
    with tempfile.TemporaryFile() as given, tempfile.TemporaryFile() as out, tempfile.TemporaryFile() as err:
        if stdin is not None:
            given.write(stdin.encode())
            given.seek(0)
        program = Program(words, environment, {0: given.fileno(), 1: out.fileno(), 2: err.fileno()})
        try:
            code = program.wait(limit_s)
        finally:
            program.kill()
        said = []
        for file in (out, err):
            file.seek(0)
            said.append(file.read().decode())
    return subprocess.CompletedProcess(program.words, code, *said)


def _inside(words: list[str], environment: dict[str, str], directory: str, streams: dict[int, Connection]) -> None:
    """In the fork: what an exec would have set, then the program."""
    for number, end in streams.items():
        os.dup2(end.fileno(), number)
        end.close()
    sys.stdin = open(0, encoding="utf-8", closefd=False)  # noqa: SIM115  # multiprocessing has put another one there
    os.environ.clear()
    os.environ.update(environment)
    os.chdir(directory)
    sys.argv = words
    from hwtool.__main__ import main

    main()
