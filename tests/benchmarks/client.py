"""`python -m tests.benchmarks.client [ROUNDS]`: what starting a client costs, as ratios in one run.

Medians of interleaved rounds: the import of each client against bare Python, and `hwtool read` against a bare click
command that opens a socket.
"""

from __future__ import annotations

import os
import statistics
import subprocess
import sys
import time
from typing import Final

from tests.running import RunningDaemon

BARE_CLICK: Final = """
import socket, sys
import click
@click.command()
@click.argument("path")
def main(path):
    line = socket.socket(socket.AF_UNIX)
    line.connect(path)
    line.sendall(b'{"jsonrpc":"2.0","id":1,"method":"reg.read","params":{"registers":["uart.RXLVL"]}}\\n')
    click.echo(line.recv(65536).decode())
main(sys.argv[1:])
"""


def taken_ms(command: list[str], environment: dict[str, str]) -> float:
    """Milliseconds of a program, start to end."""
    began = time.perf_counter_ns()
    subprocess.run(command, env=environment, stdout=subprocess.DEVNULL, check=True)
    return (time.perf_counter_ns() - began) / 1e6


def main(rounds: int) -> None:
    """Run the rounds, print the medians and their ratios."""
    os.sched_setaffinity(0, {min(os.sched_getaffinity(0))})
    with RunningDaemon() as daemon:
        python = [sys.executable, "-c"]
        programs = {
            "bare Python": [*python, "pass"],
            "import hwtool; hwtool.Client": [*python, "import hwtool; hwtool.Client"],
            "import hwtool.retrying": [*python, "import hwtool.retrying"],
            "import asyncio": [*python, "import asyncio"],
            "import hwtool.aio": [*python, "import hwtool.aio"],
            "bare click": [*python, BARE_CLICK, str(daemon.sockets / "agent.sock")],
            "hwtool read": [sys.executable, "-m", "hwtool", "read", "uart.RXLVL"],
        }
        environment = {**os.environ, "HWTOOL_SOCKET": str(daemon.sockets)}
        times: dict[str, list[float]] = {name: [] for name in programs}
        for _ in range(rounds):
            for name, command in programs.items():
                times[name].append(taken_ms(command, environment))
    median = {name: statistics.median(taken) for name, taken in times.items()}
    for name, reference in (
        ("import hwtool; hwtool.Client", "bare Python"),
        ("import hwtool.retrying", "bare Python"),
        ("import hwtool.aio", "import asyncio"),
        ("hwtool read", "bare click"),
    ):
        ratio, more = median[name] / median[reference], median[name] - median[reference]
        print(f"{name}: {ratio:.2f} of {reference} (+{more:.1f} ms here), {rounds} rounds")


if __name__ == "__main__":
    main(int(sys.argv[1]) if len(sys.argv) > 1 else 20)
