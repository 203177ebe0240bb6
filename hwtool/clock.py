"""Time as the engine sees it, in one place so that tests can supply their own."""

from __future__ import annotations

import asyncio
import time
from datetime import UTC, datetime
from functools import lru_cache
from pathlib import Path


class Clock:
    """The host's clocks; wall and boot time in nanoseconds, monotonic in seconds."""

    def wall_ns(self) -> int:
        """Nanoseconds since 1970."""
        return time.time_ns()

    def boottime_ns(self) -> int:
        """CLOCK_BOOTTIME: goes on while the host sleeps."""
        return time.clock_gettime_ns(time.CLOCK_BOOTTIME)

    def monotonic_s(self) -> float:
        """Seconds for deadlines and windows."""
        return time.monotonic()

    async def sleep(self, seconds: float) -> None:
        """Let others run for a while."""
        await asyncio.sleep(seconds)

    def boot_id(self) -> str:
        """Random per boot of the host."""
        return Path("/proc/sys/kernel/random/boot_id").read_text(encoding="ascii").strip()


def rfc3339(wall_ns: int) -> str:
    """UTC with nanoseconds."""
    seconds, nanoseconds = divmod(wall_ns, 1_000_000_000)
    return f"{_second(seconds)}.{nanoseconds:09d}Z"


@lru_cache(maxsize=64)
def _second(seconds: int) -> str:
    """A whole second; the same one is asked for thousands of times."""
    return datetime.fromtimestamp(seconds, UTC).strftime("%Y-%m-%dT%H:%M:%S")
