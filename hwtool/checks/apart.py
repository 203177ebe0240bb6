"""A process that a test holds, and a call that it makes beside its own steps: neither is waited for for ever.

What does not come within `LIMIT_S` is an error that says what the process said last.
"""

from __future__ import annotations

import signal
import subprocess
import sys
import threading
from collections.abc import Callable
from typing import Final, Generic, TypeVar

LIMIT_S: Final = 30.0
SHOWN: Final = 40  # of the newest lines of each part of a timeline
T = TypeVar("T")


class DidNotStart(Exception):
    """A process ended, or was not ready in time; the text has what it said."""


class Process:
    """One of the two processes: what it says is kept, and it ends with this one.

    Args:
        words: for hwtool.checks.hosted.
        ready: the line by which it says that it is.
    """

    def __init__(self, words: list[str], ready: str) -> None:
        self.said: list[str] = []
        self._ready = ready
        self._heard = threading.Event()
        self._process = subprocess.Popen(
            [sys.executable, "-m", "hwtool.checks.hosted", *words],
            stdin=subprocess.PIPE,
            stdout=subprocess.DEVNULL,
            stderr=subprocess.PIPE,
            text=True,
            errors="replace",
        )
        self._listener = threading.Thread(target=self._listen, daemon=True)
        self._listener.start()
        if not self._heard.wait(LIMIT_S) or ready not in self.said:
            self.end(signal.SIGKILL)
            raise DidNotStart(f"{words[0]} did not start: " + ("\n".join(self.said[-SHOWN:]) or "it said nothing"))

    def _listen(self) -> None:
        for line in self._process.stderr or ():
            self.said.append(line.rstrip("\n"))
            if self.said[-1] == self._ready:
                self._heard.set()
        self._heard.set()

    @property
    def running(self) -> bool:
        """Whether it has not ended."""
        return self._process.poll() is None

    def end(self, number: signal.Signals) -> int:
        """Send a signal and wait for the end, by SIGKILL if it takes too long; answers the exit code."""
        if self.running:
            self._process.send_signal(number)
        try:
            code = self._process.wait(LIMIT_S)
        except subprocess.TimeoutExpired:
            self._process.kill()
            code = self._process.wait()
        self._listener.join(LIMIT_S)
        for pipe in (self._process.stdin, self._process.stderr):
            if pipe is not None:
                pipe.close()
        return code


class Answer(Generic[T]):
    """A call that is made in a thread of its own.

    Attributes:
        there: it has ended.
    """

    def __init__(self, call: Callable[[], T]) -> None:
        self.there = threading.Event()
        self._call = call
        self._result: list[T] = []
        self._error: BaseException | None = None
        threading.Thread(target=self._make, daemon=True).start()

    def _make(self) -> None:
        try:
            self._result = [self._call()]
        except BaseException as error:  # noqa: BLE001  # whatever it is: it is raised where it is waited for
            self._error = error
        self.there.set()

    def have(self) -> T:
        """Its result, or its error.

        Raises:
            AssertionError: it does not end.
        """
        if not self.there.wait(LIMIT_S):
            raise AssertionError("the call has not ended")
        if self._error is not None:
            raise self._error
        return self._result[0]
