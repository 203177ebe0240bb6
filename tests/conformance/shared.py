"""Processes that several tests use one after the other, since each costs a start; ended with the session."""

from __future__ import annotations

import subprocess
from collections.abc import Callable
from typing import Final, Protocol


class Process(Protocol):
    """A counterpart in a process of its own."""

    process: subprocess.Popen[str]

    def close(self) -> None:
        """End it and what belongs to it."""


KEPT: Final[dict[str, Process]] = {}


def kept(name: str, start: Callable[[], Process]) -> Process:
    """The one of this name that runs, else a new one."""
    found = KEPT.get(name)
    if found is None or found.process.poll() is not None:
        if found is not None:
            found.close()
        found = KEPT[name] = start()
    return found


def end_all() -> None:
    """End every one."""
    while KEPT:
        KEPT.popitem()[1].close()
