"""Every proof under crashes by one command: what each harness counted, and whether anything was wrong.

    python -m tests.crash                    everything: about half an hour on two cores
    python -m tests.crash --short            the gate's part
    python -m tests.crash --only power       the harnesses whose name contains the word

A harness that ran fewer cases than its floor proves nothing and counts as wrong; one that cannot run here says why.
"""

from __future__ import annotations

import argparse
import re
import subprocess
import sys
import time
from pathlib import Path
from typing import Final, NamedTuple

TOP: Final = Path(__file__).parents[2]
CANNOT: Final = 2  # the exit of a harness that this machine has not the tools for
PYTEST: Final = ("pytest", "-v", "-p", "no:cacheprovider")


STORIES: Final = "tests/hwtool/test_aba.py"
STARTING: Final = "tests/surface/test_starting.py"
PASSED: Final = r"(\d+) passed"


class Harness(NamedTuple):
    """One harness.

    Attributes:
        short: the gate's part; floor: the fewest cases of it.
        long: everything.
        counts: finds the number of cases in the last line it prints.
    """

    name: str
    short: tuple[str, ...]
    floor: int
    long: tuple[str, ...]
    counts: str = r"^(\d+) "


HARNESSES: Final = (
    Harness(
        "SIGKILL at every label, and again in the recovery",
        ("tests.crash.matrix", "--part", "gate"),
        390,
        ("tests.crash.matrix",),
    ),
    Harness(
        "SIGKILL at calls drawn at random",
        ("tests.crash.matrix", "--calls", "60", "--seed", "7"),
        60,
        ("tests.crash.matrix", "--calls", "500", "--rounds", "4"),
    ),
    Harness(
        "SIGKILL at every system call",
        ("tests.crash.calls.sweep", "--gate"),
        140,
        ("tests.crash.calls.sweep",),
    ),
    Harness(
        "power cut at every moment",
        ("tests.crash.power.cut", "--every", "14"),
        1000,
        ("tests.crash.power.cut",),
        r"(\d+) images",
    ),
    Harness(
        "histories under one seeded scheduler",
        ("tests.crash.simulation.histories",),
        10_000,
        ("tests.crash.simulation.histories", "--histories", "40000", "--seed", "1000000", "--requests", "2", "5"),
    ),
    Harness(
        "a disk that fails",
        ("tests.crash.disk.sweep", "--gate"),
        200,
        ("tests.crash.disk.sweep",),
    ),
    Harness(
        "flipped bits and cut-off files",
        ("tests.crash.damage.flip", "--offsets", "400"),
        600,
        ("tests.crash.damage.flip", "--offsets", "4000", "--seed", "7"),
    ),
    Harness("eight stories: it looks as if", (*PYTEST, STORIES), 12, (*PYTEST, STORIES), PASSED),
    Harness(
        "clocks that jump, hosts that reboot",
        (*PYTEST, "tests/hwtool/test_approvals.py", "-k", "clock or grant"),
        12,
        (*PYTEST, "tests/hwtool/test_approvals.py"),
        PASSED,
    ),
    Harness(
        "six daemons at once on one store",
        (*PYTEST, STARTING, "-k", "six"),
        1,
        (*PYTEST, STARTING, "-k", "six"),
        PASSED,
    ),
    Harness("defects that these must find", ("tests.crash.mutants",), 12, ("tests.crash.mutants",)),
)


class Ended(NamedTuple):
    """What a harness came to."""

    harness: Harness
    said: str
    took_s: float
    wrong: str | None


def carried_out(harness: Harness, *, short: bool) -> Ended:
    """Run one harness to its end."""
    words = harness.short if short else harness.long
    began_s = time.monotonic()
    done = subprocess.run([sys.executable, "-m", *words], cwd=TOP, capture_output=True, text=True, check=False)
    took_s = time.monotonic() - began_s
    lines = [line for line in done.stdout.splitlines() if line.strip()]
    said = lines[-1] if lines else done.stderr.strip().splitlines()[-1] if done.stderr.strip() else "nothing"
    if done.returncode == CANNOT:
        return Ended(harness, said, took_s, None)
    if done.returncode != 0:
        return Ended(harness, said, took_s, "\n".join(lines[-20:]))
    found = re.search(harness.counts, said)
    count = int(found[1]) if found else 0
    fewer = f"{count} cases, {harness.floor} are the least" if count < harness.floor else None
    return Ended(harness, said, took_s, fewer)


def main() -> int:
    """Run them one after the other and print the table; 0 if nothing is wrong."""
    parser = argparse.ArgumentParser(prog="tests.crash", description="every proof under crashes")
    parser.add_argument("--short", action="store_true", help="the gate's part")
    parser.add_argument("--only", default="", help="the harnesses whose name contains this")
    arguments = parser.parse_args()
    print("| harness | counted | minutes |\n|---|---|---|", flush=True)
    ended = []
    for harness in HARNESSES:
        if arguments.only in harness.name:
            ended.append(carried_out(harness, short=arguments.short))
            said = re.sub(r",? (in )?[\d.]+ ?s\b", "", ended[-1].said).strip("= ")
            print(f"| {harness.name} | {said} | {ended[-1].took_s / 60:.1f} |", flush=True)
    wrong = [e for e in ended if e.wrong is not None]
    for one in wrong:
        print(f"\n{one.harness.name}: {one.wrong}")
    print(f"\n{len(ended)} harnesses, {len(wrong)} with something wrong")
    return 1 if wrong or not ended else 0


if __name__ == "__main__":
    sys.exit(main())
