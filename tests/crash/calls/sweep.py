"""`python -m tests.crash.calls.sweep`: SIGKILL at the n-th system call of a daemon, for every n, by strace.

No hook in the code is needed, and none can be forgotten: strace kills the process as it enters its n-th fdatasync, its
n-th write to a file, its n-th message to or from the simulator, one run for each n until a run ends by itself. A daemon
is asked once; then a second one starts, and is judged as in the kill matrix (tests/crash/matrix.py). The daemon is a
fork that stops itself before it begins, and goes on when strace has taken hold of it.

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
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Final

from hwtool_store.database import FILE
from tests.crash import faults
from tests.crash.kinds import KINDS, Kind
from tests.crash.life import Ended, Told, end_tidily, ended, first_life, forked, last_life, spread
from tests.crash.matrix import Run, Scene, judged, ready_to_fork

CALLS: Final = ("fdatasync", "pwrite64", "sendto", "recvfrom")
KIND_NAMES: Final = ("store", "pop with a level", "approved store", "sequence, in its first step", "safe state")
MOST: Final = 400
LIMIT_S: Final = 30.0


def strace() -> str | None:
    """strace, if it is there and may trace."""
    found = shutil.which("strace")
    if found is None:
        return None
    tried = subprocess.run([found, "-qq", "-o", "/dev/null", "true"], capture_output=True, check=False)
    return found if tried.returncode == 0 else None


def traced(life: Callable[[Told], None], call: str, number: int) -> Ended:
    """A life that is killed as it enters its n-th call, or ends by itself if it never comes so far."""

    def work(told: Told) -> None:
        os.kill(os.getpid(), signal.SIGSTOP)
        life(told)

    process, reading = forked(work)
    os.waitpid(process, os.WUNTRACED)
    program = shutil.which("strace") or "strace"
    words = ["-f", "-qq", "-o", "/dev/null", "-e", f"trace={call}", "-e", f"inject={call}:signal=KILL:when={number}"]
    tracer = subprocess.Popen([program, *words, "-p", str(process)], stdin=subprocess.DEVNULL)
    deadline_s = time.monotonic() + LIMIT_S
    while not _is_traced(process) and tracer.poll() is None and time.monotonic() < deadline_s:
        time.sleep(0.001)  # nothing to be woken by: strace says nothing when it holds it
    os.kill(process, signal.SIGCONT)
    try:
        return ended(process, reading)
    finally:
        tracer.wait(LIMIT_S)


def _is_traced(process: int) -> bool:
    return "TracerPid:\t0\n" not in Path(f"/proc/{process}/status").read_text(encoding="ascii")


def killed(scene: Scene, kind: Kind, call: str, number: int) -> tuple[list[str], bool]:
    """One run; answers what is wrong with it, and whether the process was killed at all."""
    first = traced(first_life(kind, scene.board, scene.store, None, False), call, number)
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


def swept(kind: Kind, call: str, arguments: argparse.Namespace) -> Iterator[tuple[str, list[str], bool]]:
    """The runs of one kind and call, until a run is not killed any more."""
    for number in range(1, MOST):
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
    parser.add_argument("--gate", action="store_true", help="what the gate runs: one kind")
    parser.add_argument("--fault", choices=faults.NAMES, help="a defect to be found: the control of this harness")
    parser.add_argument("--jobs", type=int, default=2)
    arguments = parser.parse_args()
    kinds = {kind.name: kind for kind in KINDS}
    end_tidily()
    if strace() is None:
        print("no strace, or it may not trace: no system call can be struck")
        return 2
    ready_to_fork()
    chosen = [kinds[name] for name in arguments.kind or (KIND_NAMES[:1] if arguments.gate else KIND_NAMES)]
    wanted = [(kind, call) for kind in chosen for call in arguments.call or CALLS]

    def work(index: int, told: Told) -> None:
        kind, call = wanted[index]
        for name, found, struck in swept(kind, call, arguments):
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
    sys.exit(main())
