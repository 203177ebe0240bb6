"""`python -m tests.crash.calls.sweep`: SIGKILL at the n-th system call of a daemon, for every n, by strace.

No hook in the code is needed, and none can be forgotten: strace kills the process as it enters its n-th fdatasync, its
n-th write to a file, its n-th message to or from the simulator, one run for each n until a run ends by itself. A daemon
is asked once; then a second one starts, and is judged as in the kill matrix (tests/crash/matrix.py).

A run is named `CALL / KIND / N`; `--only` runs it again. Control: `--fault`, those of the matrix.
"""

from __future__ import annotations

import argparse
import os
import shutil
import signal
import sqlite3
import subprocess
import sys
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Final

from hwtool.config import parse_board
from hwtool_store.database import FILE
from tests.crash import faults
from tests.crash.kinds import KINDS, Kind
from tests.crash.life import Told, end_tidily, first_life, gathered, last_life, spread
from tests.crash.matrix import Run, Scene, judged

CALLS: Final = ("fdatasync", "pwrite64", "sendto", "recvfrom")
KIND_NAMES: Final = ("store", "pop with a level", "approved store", "sequence, in its first step", "safe state")
MOST: Final = 400
LIMIT_S: Final = 60
STEP_IN_THE_GATE: Final = {"fdatasync": 1, "pwrite64": 7, "sendto": 5, "recvfrom": 5}


def strace() -> str | None:
    """strace, if it is there and may trace."""
    found = shutil.which("strace")
    if found is None:
        return None
    tried = subprocess.run([found, "-qq", "-o", "/dev/null", "true"], capture_output=True, check=False)
    return found if tried.returncode == 0 else None


def inside(kind: Kind, directory: Path) -> None:
    """The life that is killed, as a program: it is asked once, and ends by itself if nobody kills it."""
    board = parse_board(kind.board(str(directory / "sim")), "crash", directory)
    first_life(kind, board, directory / "store", None, False)(Told(1))


def killed(scene: Scene, kind: Kind, call: str, number: int) -> tuple[list[str], bool]:
    """One run; answers what is wrong with it, and whether the process was killed at all."""
    program = shutil.which("strace") or "strace"
    words = ["-f", "-qq", "-o", "/dev/null", "-e", f"trace={call}", "-e", f"inject={call}:signal=KILL:when={number}"]
    own = [sys.executable, "-m", "tests.crash.calls.sweep", "--inside", kind.name, "--directory", str(scene.directory)]
    done = subprocess.run([program, *words, *own], capture_output=True, timeout=LIMIT_S, check=False)
    # strace ends as its program did
    code = done.returncode if done.returncode <= 128 else 128 - done.returncode
    first = gathered(done.stdout, code, done.stderr.decode(errors="replace")[-500:] or None)
    scene.count()
    struck = first.signal == signal.SIGKILL
    if not struck and first.code != 0:
        return [f"the first life: {first.trouble or first.code}"], False
    _, in_later = faults.of(scene.fault)
    last = scene.live(last_life(kind, scene.board, scene.store, False, in_later))
    if last.code != 0:
        return [f"the last life failed: {last.trouble or last.code}"], struck
    return judged(scene, scene.run, [first, last], _epochs(scene.store) - 1), struck


def _epochs(store: Path) -> int:
    """How many lives have begun; the last one has, and the one that was killed may not have come so far."""
    conn = sqlite3.connect(store / FILE)
    try:
        return int(conn.execute("SELECT max(epoch) FROM epoch").fetchone()[0])
    finally:
        conn.close()


def carried_out(kind: Kind, call: str, number: int, fault: str | None) -> tuple[list[str], bool]:
    """One run in a scene of its own."""
    scene = Scene(Run(kind, f"call {call} {number}", None, "kept"), fault)
    try:
        return killed(scene, kind, call, number)
    except (AssertionError, OSError, ValueError, KeyError, IndexError, subprocess.TimeoutExpired) as error:
        return [f"the run itself failed: {type(error).__name__}: {error}"], False
    finally:
        scene.close()


def swept(kind: Kind, call: str, step: int, arguments: argparse.Namespace) -> Iterator[tuple[str, list[str], bool]]:
    """The runs of one kind and call, until a run is not killed any more."""
    for number in range(1, MOST, step):
        name = f"{call} / {kind.name} / {number}"
        if arguments.only and arguments.only != name:
            continue
        found, struck = carried_out(kind, call, number, arguments.fault)
        yield name, found, struck
        if not struck:
            return


def main() -> int:
    """Sweep; 0 if nothing is wrong, 2 where nobody may trace."""
    parser = argparse.ArgumentParser(prog="tests.crash.calls.sweep", description="SIGKILL at each system call")
    parser.add_argument("--only", default="", help="the run of this name")
    parser.add_argument("--call", action="append", choices=CALLS)
    parser.add_argument("--kind", action="append", choices=KIND_NAMES)
    parser.add_argument("--gate", action="store_true", help="the short set that the gate runs")
    parser.add_argument("--fault", choices=faults.NAMES, help="a defect to be found: the control of this harness")
    parser.add_argument("--jobs", type=int, default=2)
    parser.add_argument("--inside", help=argparse.SUPPRESS)
    parser.add_argument("--directory", type=Path, help=argparse.SUPPRESS)
    arguments = parser.parse_args()
    kinds = {kind.name: kind for kind in KINDS}
    if arguments.inside is not None:
        inside(kinds[arguments.inside], arguments.directory)
        return 0
    end_tidily()
    if strace() is None:
        print("no strace, or it may not trace: no system call can be struck")
        return 2
    chosen = [kinds[name] for name in arguments.kind or (KIND_NAMES[:1] if arguments.gate else KIND_NAMES)]
    wanted = [(kind, call) for kind in chosen for call in arguments.call or CALLS]

    def work(index: int, told: Told) -> None:
        kind, call = wanted[index]
        for name, found, struck in swept(kind, call, STEP_IN_THE_GATE[call] if arguments.gate else 1, arguments):
            told.say("done", [name, found, struck])

    began_s = time.monotonic()
    total = struck_runs = wrong = 0
    for _, (name, found, struck) in spread(len(wanted), arguments.jobs, work):
        total, struck_runs, wrong = total + 1, struck_runs + struck, wrong + bool(found)
        for sentence in found:
            print(f"{name}: {sentence}", flush=True)
    print(f"{total} runs, {struck_runs} killed, {wrong} wrong, {time.monotonic() - began_s:.1f} s")
    return 1 if wrong else 0


if __name__ == "__main__":
    os.environ.setdefault("PYTHONDONTWRITEBYTECODE", "1")
    sys.exit(main())
