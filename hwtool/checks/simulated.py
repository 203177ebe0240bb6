"""What the checks run the daemon on: a board whose buses are all simulated, and time that passes by itself."""

from __future__ import annotations

import asyncio
from dataclasses import replace
from pathlib import Path
from typing import Final

from hwtool.clock import Clock
from hwtool.config import Board

IN_MEMORY: Final = Path("/dev/shm")  # a store of the checks outlives nothing, and syncs to nothing
BEGIN_NS: Final = 1_700_000_000_000_000_000
LONG_AGO_S: Final = -1e9  # a bus that still has the real clock has nothing to wait for


def simulated(board: Board) -> Board:
    """The board with simulated chips in place of its real ones; contracts, devices and policy are its own.

    Left out is what would keep the checks from being repeated or from being run at all: budgets for what wears out, and
    the rule that a contract must have been checked on a real part. Nothing is recorded or replayed, and no metrics
    are written.
    """
    buses = {
        name: replace(
            spec,
            kind="sim",
            path=None,
            adapter=None,
            url=None,
            host=None,
            process=False,
            socket=None,
            record=None,
            replay=None,
        )
        for name, spec in board.buses.items()
    }
    devices = {
        name: replace(spec, writes_per_day={}, refuse_unverified=False, restarts_with_usb=False)
        for name, spec in board.devices.items()
    }
    return replace(board, buses=buses, devices=devices, metrics=None)


class OwnTime(Clock):
    """Time that goes on only when somebody sleeps: windows and quarantines cost nothing and always pass."""

    def __init__(self) -> None:
        self._passed_s = 0.0

    def wall_ns(self) -> int:
        """Nanoseconds since 1970."""
        return BEGIN_NS + round(self._passed_s * 1e9)

    def boottime_ns(self) -> int:
        """Nanoseconds since an imagined boot."""
        return round((self._passed_s + 1000) * 1e9)

    def monotonic_s(self) -> float:
        """Seconds."""
        return LONG_AGO_S + self._passed_s

    def boot_id(self) -> str:
        """Of the imagined host."""
        return "00000000-0000-4000-8000-000000000000"

    def advance(self, seconds: float) -> None:
        """Let time pass."""
        self._passed_s += seconds

    async def sleep(self, seconds: float) -> None:
        """Time passes at once; whoever else waits has a turn."""
        self.advance(seconds)
        await asyncio.sleep(0)
