"""`python -m tests.crash.disk.sweep`: a disk that fails at the n-th write or sync, for every n, and what came of it.

Three scenes: the disk fails during an operation (from just before T1 to the reply), during a start that finds what a
crash left, and during the very first start of a store. After each the daemon starts again on a sound disk and is asked
with the same key: the operation was refused and nothing ran (then the key may run, once), or it is finished and never
runs again, by the simulator's own counters; what was answered before is not contradicted.

The shim is compiled here and loaded into a process of its own, which forks every life; the simulator is such a fork
too, but writes no file. A failing run is named `SCENE / KIND / ERROR[, from then on] / N`; `--only` runs it again.
"""

from __future__ import annotations

import argparse
import asyncio
import copy
import ctypes
import errno
import os
import shutil
import signal
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Final

from hwtool import execution
from hwtool.config import Board
from hwtool.engine import Engine
from hwtool_contracts.errors import DomainError
from hwtool_store.faults import StoreFatal, StoreRefused
from tests.crash.kinds import KEY, KINDS, Kind
from tests.crash.life import Ended, HostClock, Told, end_tidily, first_life, last_life, spread
from tests.crash.matrix import Run, Scene, judged, ready_to_fork

SHIM: Final = Path(__file__).with_name("shim.c")
KIND_NAMES: Final = ("store", "pop with a level")
ERRORS: Final = ("EIO", "ENOSPC")
SCENES: Final = ("operation", "start after a crash", "first start")
MOST_CALLS: Final = 500
FATAL_EXIT: Final = 70
FIRST_START_STEP: Final = 4  # in the gate; its calls are many, and alike
CRASHED_AT: Final = "after the first transfer"


@dataclass(frozen=True)
class Chain:
    """One scene, swept from the first call to the last."""

    scene: str
    kind: Kind
    error: str
    always: bool

    def name(self, number: int) -> str:
        """The name of one of its runs."""
        return f"{self.scene} / {self.kind.name} / {self.error}{', from then on' if self.always else ''} / {number}"


def chains(gate: bool) -> list[Chain]:
    """All of them, or those of the gate: each call of an operation, and each of a start for one kind."""
    kinds = [k for k in KINDS if k.name in KIND_NAMES]
    found = [Chain(s, k, e, a) for s in SCENES for k in kinds for e in ERRORS for a in (False, True)]
    return [c for c in found if not gate or _in_the_gate(c)]


def _in_the_gate(chain: Chain) -> bool:
    plain, failing = chain.kind.name == KIND_NAMES[0], chain.error == "EIO"
    match chain.scene:
        case "operation":
            return (plain or failing) and (not chain.always or (plain and failing))
        case "first start":
            return plain and chain.error == "EIO" and not chain.always
        case _:
            return plain and not chain.always


class Disk:
    """The shim in this process."""

    def __init__(self) -> None:
        self._shim = ctypes.CDLL(None)

    def fail(self, store: Path, number: int, error: str, always: bool) -> None:
        """Fail the n-th call from now on."""
        self._shim.shim_arm(str(store).encode(), ctypes.c_long(number), getattr(errno, error), int(always))

    def seen(self) -> list[int]:
        """How many calls there were, and how many failed."""
        return [int(self._shim.shim_seen()), int(self._shim.shim_struck())]


def failing_operation(scene: Scene, chain: Chain, number: int, fault: bool) -> Callable[[Told], None]:
    """A daemon whose disk fails at a call between the intent and the reply."""

    async def life(told: Told) -> None:
        disk = Disk()
        engine = await Engine.start(scene.board, scene.store, HostClock(), allow_unsafe=True)
        intend = execution.Execution._intend

        async def armed(*arguments: Any) -> Any:
            disk.fail(scene.store, number, chain.error, chain.always)
            return await intend(*arguments)

        setattr(execution.Execution, "_intend", armed)  # noqa: B010  # a method put in its place
        if fault:
            _be_careless()
        answer = await engine.call(chain.kind.caller, chain.kind.method, {**chain.kind.request, "key": KEY})
        told.answer("asked", answer)
        told.say("disk", disk.seen())
        if engine.daemon.failed:
            os._exit(FATAL_EXIT)  # as the server does: nothing is closed
        disk.fail(scene.store, 0, chain.error, False)
        await engine.close()

    return lambda told: asyncio.run(life(told))


def _be_careless() -> None:
    """The seeded defect: an outcome that could not be recorded is answered as if it were."""
    record = execution.Execution._record

    async def careless(self: Any, request: Any, prepared: Any, op_id: int, finished: Any, device: Any) -> Any:
        before = copy.deepcopy(finished.result)
        result = await record(self, request, prepared, op_id, finished, device)
        return before if result.error is not None and result.error["code"] == "store_failed" else result

    setattr(execution.Execution, "_record", careless)  # noqa: B010  # a method put in its place


def failing_start(board: Board, store: Path, chain: Chain, number: int) -> Callable[[Told], None]:
    """A daemon whose disk fails at a call of its start, the rules included."""

    async def life(told: Told) -> None:
        disk = Disk()
        disk.fail(store, number, chain.error, chain.always)
        try:
            engine = await Engine.start(board, store, HostClock(), allow_unsafe=True)
            await engine.rules_done(engine.daemon.devices["chip"])
        except (StoreRefused, StoreFatal, DomainError) as error:
            told.say("refused", str(error))
            told.say("disk", disk.seen())
            os._exit(FATAL_EXIT)
        told.say("disk", disk.seen())
        if engine.daemon.failed:
            os._exit(FATAL_EXIT)
        disk.fail(store, 0, chain.error, False)
        await engine.close()

    return lambda told: asyncio.run(life(told))


def carried_out(chain: Chain, number: int, fault: bool = False) -> tuple[list[str], bool]:
    """One run; answers what is wrong with it, and whether the disk failed at all."""
    scene = Scene(Run(chain.kind, f"disk {number}", None, "kept"), None)
    try:
        return _played(scene, chain, number, fault)
    except (AssertionError, OSError, ValueError, KeyError, IndexError) as error:
        return [f"the run itself failed: {type(error).__name__}: {error}"], False
    finally:
        scene.close()


def _played(scene: Scene, chain: Chain, number: int, fault: bool) -> tuple[list[str], bool]:
    lives: list[Ended] = []
    if chain.scene == "operation":
        lives.append(scene.live(failing_operation(scene, chain, number, fault)))
    elif chain.scene == "start after a crash":
        lives.append(scene.live(first_life(chain.kind, scene.board, scene.store, CRASHED_AT, False)))
        if lives[0].signal != signal.SIGKILL:
            return [f"the first life was not killed: {lives[0]}"], False
        lives.append(scene.live(failing_start(scene.board, scene.store, chain, number)))
    else:
        lives.append(scene.live(failing_start(scene.board, scene.store, chain, number)))
    failing = lives[-1]
    if "disk" not in failing.facts:
        return [f"the life with the failing disk: {failing.trouble or failing.code}"], False
    struck = failing.facts["disk"][1] > 0
    lives.append(scene.live(last_life(chain.kind, scene.board, scene.store, False, lambda: None)))
    if lives[-1].code != 0:
        return [f"on a sound disk it does not start any more: {lives[-1].trouble or lives[-1].code}"], struck
    found = judged(scene, scene.run, lives, epoch=0 if chain.scene == "first start" else 1)
    if chain.scene == "operation":
        found += _contradicted(scene, lives[0])
        if struck and failing.code == 0:
            found.append("the disk failed, and the daemon went on")
    return found, struck


def _contradicted(scene: Scene, first: Ended) -> list[str]:
    """What the first answer said of the device, against what the device had counted by then."""
    (_, _, answer) = first.answers[0]
    ran = scene.counts[1][scene.run.kind.place]
    code = None if answer.error is None else answer.error["code"]
    if (answer.effects == "none" and ran) or (answer.effects == "applied" and not ran):
        return [f"it was answered effects {answer.effects}, and the device had executed it {ran}x"]
    if code not in (None, "store_failed"):
        return [f"it was answered {code}: {answer.summary}"]
    if code == "store_failed" and ran and scene.run.kind.value is not None and not answer.values:
        return ["a value was taken, and the answer that could not be recorded does not hold it"]
    return []


def swept(chain: Chain, only: str, step: int, fault: bool) -> Iterator[tuple[str, list[str], bool]]:
    """The runs of a chain, until the disk has no call left to fail at."""
    for number in range(1, MOST_CALLS, step):
        if only and only not in chain.name(number):
            if only.startswith(chain.name(0)[:-1]):
                continue
            return
        found, struck = carried_out(chain, number, fault)
        yield chain.name(number), found, struck
        if not struck:
            return


def inside(arguments: argparse.Namespace) -> int:
    """Sweep, in a process that has the shim."""
    ready_to_fork()
    wanted = [c for c in chains(arguments.gate) if not arguments.scene or c.scene in arguments.scene]

    def work(index: int, told: Told) -> None:
        step = FIRST_START_STEP if arguments.gate and wanted[index].scene == "first start" else 1
        for name, found, struck in swept(wanted[index], arguments.only, step, arguments.fault):
            told.say("done", [name, found, struck])

    start_s = time.monotonic()
    total = failed = wrong = 0
    for _, (name, found, struck) in spread(len(wanted), arguments.jobs, work):
        total, failed, wrong = total + 1, failed + struck, wrong + bool(found)
        for sentence in found:
            print(f"{name}: {sentence}", flush=True)
    took_s = time.monotonic() - start_s
    print(f"{total} runs, the disk failed in {failed}, {wrong} wrong, {took_s:.1f} s")
    return 1 if wrong else 0


def compiler() -> str | None:
    """The C compiler, None if there is none."""
    return shutil.which("cc")


def main() -> int:
    """Compile the shim and sweep in a process that has it; 0 if nothing is wrong."""
    parser = argparse.ArgumentParser(prog="tests.crash.disk.sweep", description="a disk that fails at each call")
    parser.add_argument("--only", default="", help="the run of this name")
    parser.add_argument("--scene", action="append", choices=SCENES)
    parser.add_argument("--gate", action="store_true", help="the short set that the gate runs")
    parser.add_argument("--fault", action="store_true", help="a defect to be found: the control of this harness")
    parser.add_argument("--jobs", type=int, default=2)
    parser.add_argument("--inside", action="store_true", help=argparse.SUPPRESS)
    arguments = parser.parse_args()
    end_tidily()
    if arguments.inside:
        return inside(arguments)
    found = compiler()
    if found is None:
        print("no C compiler (cc): the disk cannot be made to fail")
        return 2
    with tempfile.TemporaryDirectory(prefix="hc-", dir="/tmp") as directory:
        shim = Path(directory) / "shim.so"
        subprocess.run([found, "-shared", "-fPIC", "-O1", "-o", str(shim), str(SHIM), "-ldl"], check=True)
        command = [sys.executable, "-m", "tests.crash.disk.sweep", "--inside", *sys.argv[1:]]
        return subprocess.run(command, env={**os.environ, "LD_PRELOAD": str(shim)}, check=False).returncode


if __name__ == "__main__":
    sys.exit(main())
