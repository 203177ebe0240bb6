"""`python -m tests.benchmarks [ROUNDS]`: what a clean read and a keyed write cost, as ratios.

Both ends are pinned to one core, or the scheduler decides the figures. Absolute times do not repeat on shared machines:
a figure is quoted with its reference, the machine and this command.
"""

from __future__ import annotations

import itertools
import json
import os
import socket
import statistics
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable
from pathlib import Path
from typing import Final

from tests.running import RunningDaemon

READS_A_ROUND: Final = 2000
WRITES_A_ROUND: Final = 100


def line(method: str, **params: object) -> bytes:
    """A request."""
    return json.dumps({"jsonrpc": "2.0", "id": 1, "method": method, "params": params}).encode() + b"\n"


def round_trip(connection: socket.socket, data: bytes) -> int:
    """Nanoseconds until the whole answer has come."""
    start = time.perf_counter_ns()
    connection.sendall(data)
    while not connection.recv(1 << 16).endswith(b"\n"):
        pass
    return time.perf_counter_ns() - start


def two_syncs(handle: int) -> int:
    """Nanoseconds of two raw commits: 4 KiB written and synced, twice."""
    start = time.perf_counter_ns()
    for _ in range(2):
        os.pwrite(handle, b"x" * 4096, 0)
        os.fdatasync(handle)
    return time.perf_counter_ns() - start


def median_of(count: int, once: Callable[[], int]) -> float:
    """The median of so many times."""
    return statistics.median(once() for _ in range(count))


def connected(path: Path) -> socket.socket:
    """A connection."""
    it = socket.socket(socket.AF_UNIX)
    it.connect(str(path))
    return it


def main(rounds: int) -> None:
    """Run the rounds, print the median ratios with their spread."""
    os.sched_setaffinity(0, {min(os.sched_getaffinity(0))})  # children inherit it: both ends on one core
    with RunningDaemon() as daemon, tempfile.TemporaryDirectory(dir="/tmp") as scratch:
        command = [sys.executable, "-m", "tests.benchmarks.echo", f"{scratch}/echo"]
        echo = subprocess.Popen(command, stdout=subprocess.PIPE)
        try:
            assert echo.stdout is not None
            echo.stdout.readline()
            measure(rounds, connected(Path(scratch) / "echo"), connected(daemon.sockets / "agent.sock"), daemon.store)
        finally:
            echo.terminate()
            echo.wait()
            if echo.stdout is not None:
                echo.stdout.close()


def measure(rounds: int, echo: socket.socket, daemon: socket.socket, store: Path) -> None:
    """Interleave the rounds of all figures."""
    handle = os.open(store / "benchmark", os.O_CREAT | os.O_WRONLY)
    plain, fields = line("reg.read", registers=["uart.RXLVL"]), line("reg.read", registers=["gpio.OLATA"])
    numbers = itertools.count()
    ratios: dict[str, list[float]] = {"clean read / echo": [], "clean read, 8 fields / echo": [], "write / 2 syncs": []}

    def write() -> int:
        n = next(numbers)
        request = line("reg.write", register="gpio.OLATB", value=n & 0xFF, key=f"bench-{n:08d}")
        return round_trip(daemon, request)

    for _ in range(rounds):
        floor = median_of(READS_A_ROUND, lambda: round_trip(echo, plain))
        ratios["clean read / echo"].append(median_of(READS_A_ROUND, lambda: round_trip(daemon, plain)) / floor)
        ratios["clean read, 8 fields / echo"].append(
            median_of(READS_A_ROUND, lambda: round_trip(daemon, fields)) / floor
        )
        syncs = median_of(WRITES_A_ROUND, lambda: two_syncs(handle))
        ratios["write / 2 syncs"].append(median_of(WRITES_A_ROUND, write) / syncs)
    os.close(handle)
    for name, found in ratios.items():
        print(f"{name:28} {statistics.median(found):5.1f}x  ({min(found):.1f} to {max(found):.1f}, {rounds} rounds)")
    echo.close()
    daemon.close()


if __name__ == "__main__":
    main(int(sys.argv[1]) if len(sys.argv) > 1 else 5)
