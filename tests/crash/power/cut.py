"""`python -m tests.crash.power.cut`: a power cut at every moment of a daemon's life, and what its disk may hold then.

A daemon works through every kind of operation once, while a shim (shim.c) records each write, sync, creation and rename
below its store, together with two marks: a transfer with an effect is about to be sent, and an answer was given. From
that record the images of images.py are built for each moment. On each one the store is opened as a start does, and must
hold: it opens; nothing whose transfer was sent looks fresh; what was answered is on record as it was answered; the
chain is whole. On some of them a daemon really starts and is asked with the same keys: the device counts nothing twice.

Control: `--fault NORMAL` and `--fault OFF` weaken `synchronous`, `--fault reply` answers before the outcome is on disk.
kill -9 sees none of them.
"""

from __future__ import annotations

import argparse
import asyncio
import ctypes
import hashlib
import json
import os
import random
import shutil
import sqlite3
import subprocess
import sys
import tempfile
import time
from collections import Counter
from collections.abc import Callable
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, Final

import msgspec

from hwtool import carry_out, execution
from hwtool.config import Board
from hwtool.engine import Engine
from hwtool_contracts.messages import Result
from hwtool_sim.faults import FaultKind
from hwtool_store import audit, database, operations
from hwtool_store.database import Start, Store, open_store
from hwtool_store.faults import StoreRefused
from tests.crash.disk.sweep import compiler
from tests.crash.power.images import Disk, Event, parsed
from tests.hwtool.conftest import AGENT, FakeClock, Lab, effect, reg, toy_board
from tests.hwtool.test_approvals import approved

SHIM: Final = Path(__file__).with_name("shim.c")
START: Final = Start("boot-2", 1, 2_000_000_000_000_000_000, 60_000_000_000_000, "power")
FAULTS: Final = ("NORMAL", "OFF", "reply")
PARTS: Final = (
    reg("R", 0, "fields = { F = { bits = 0 } }"),
    reg("S", 1, "write = { effect = 'store', approval = 'required', provenance = 'generated' }"),
    reg("FIFO", 2, effect("pop", ", level = 'LEVEL', max_burst = 4"), "ro"),
    reg("LEVEL", 3, "reset = 0", "ro"),
    reg("FLAGS", 4, "volatile = true\nwrite = { effect = 'one_to_clear' }"),
    reg("BLIND", 5, "write = { effect = 'pulse', verify = 'none' }", "wo"),
)
W: Final = "reg.write"
STEPS: Final = [{"do": "write", "register": "toy.R", "value": v} for v in (7, 8)]
ASKED: Final[list[tuple[str, str, dict[str, Any]]]] = [
    ("store", W, {"register": "toy.R", "value": 1}),
    ("update", "reg.update", {"register": "toy.R", "fields": {"F": 0}}),
    ("pop", "reg.read_effectful", {"register": "toy.FIFO", "count": 2}),
    ("flags", W, {"register": "toy.FLAGS", "value": 1}),
    ("blind", W, {"register": "toy.BLIND", "value": 1}),
    ("steps", "sequence.run", {"steps": STEPS}),
    ("lost", W, {"register": "toy.R", "value": 9}),
    ("safe", "device.safe_state", {"device": "toy"}),
    ("last", W, {"register": "toy.R", "value": 2}),
]


def key_of(name: str) -> str:
    """The key of a request of the scene."""
    return f"power-{name}-1"


def board_in(directory: Path) -> Board:
    """The scene's board."""
    return toy_board(directory, *PARTS, device="safe_state = [{ register = 'R', value = 0 }]", mode="separate-user")


class NoMarks:
    """Where no shim is: the scene is played for what it leaves."""

    def begin(self, store: Path, record: Path) -> None:
        """Record nothing."""

    def end(self) -> None:
        """Record nothing more."""

    def mark(self, text: str) -> None:
        """Nobody reads it."""


class Marks:
    """The shim in this process."""

    def __init__(self) -> None:
        self._shim = ctypes.CDLL(None)

    def begin(self, store: Path, record: Path) -> None:
        """Record what happens below a directory from now on."""
        self._shim.record_begin(str(store).encode(), str(record).encode())

    def end(self) -> None:
        """Record nothing more."""
        self._shim.record_end()

    def mark(self, text: str) -> None:
        """Put a mark into the record."""
        self._shim.record_mark(text.encode())


def inside(directory: Path, fault: str | None) -> None:
    """The scene, in a process that has the shim."""
    marks = Marks()
    _mark_dispatches(marks)
    if fault is not None:
        _weaken(fault, marks)
    asyncio.run(play(directory, marks, fault))


def _mark_dispatches(marks: Marks) -> None:
    for name in ("dispatch", "dispatch_safe_state"):
        real = vars(carry_out)[name]

        def marking(real: Callable[..., Any] = real) -> Callable[..., Any]:
            async def dispatching(intent: Any, *arguments: Any) -> Any:
                marks.mark(f"dispatch {intent.op_id}")
                return await real(intent, *arguments)

            return dispatching

        vars(carry_out)[name] = marking()


def _weaken(fault: str, marks: Marks) -> None:
    """A seeded defect."""
    if fault == "reply":
        record = execution.Execution._record

        async def early(self: Any, request: Any, prepared: Any, op_id: int, finished: Any, device: Any) -> Any:
            told = {"id": op_id, "verdict": finished.verdict, "values": finished.result.values}
            marks.mark("answer " + json.dumps(msgspec.to_builtins(told)))
            return await record(self, request, prepared, op_id, finished, device)

        setattr(execution.Execution, "_record", early)  # noqa: B010  # a method put in its place
        return
    configure = database.configure

    def careless(conn: Any, path: Path) -> None:
        configure(conn, path)
        conn.execute(f"PRAGMA synchronous={fault}")

    setattr(database, "configure", careless)  # noqa: B010  # a function put in its place


async def play(directory: Path, marks: Marks | NoMarks, fault: str | None) -> None:
    """Every kind of operation once; ends as by SIGKILL, with what is not checkpointed in the log."""
    clock = FakeClock()
    store = directory / "store"
    store.mkdir()
    marks.begin(store, directory / "record")
    engine = await Engine.start(board_in(directory), store, clock, allow_unsafe=True)
    lab = Lab(engine, clock, directory)
    lab.chip().push("FIFO", b"abc")
    lab.chip().values["FLAGS"] = 1

    def told(result: Result) -> None:
        if result.id is not None and result.verdict is not None and fault != "reply":
            told = {"id": result.id, "verdict": result.verdict, "values": result.values}
            marks.mark("answer " + json.dumps(msgspec.to_builtins(told)))

    waiting = await lab.ask(W, register="toy.S", value=3, key=key_of("grant"))
    await approved(lab, waiting.id)
    told(await lab.ask(W, register="toy.S", value=3, key=key_of("grant")))
    for name, method, params in ASKED:
        if name == "lost":
            lab.fault(FaultKind.REPLY_LOST, offset=0)
        asked = await lab.ask(method, **params, key=key_of(name))
        told(asked)
        assert asked.id is not None, asked.summary  # each has its row, or the scene shows less than it says
        if name == "lost":
            await engine.rules_done(lab.device())
            told(await lab.ask("op.get", key=key_of(name)))
    marks.end()
    sys.stdout.flush()
    os._exit(0)  # what a clean stop writes is another matter


@dataclass
class Promised:
    """What the marks so far bind the store to."""

    dispatched: set[int] = field(default_factory=set)
    answered: dict[int, dict[str, Any]] = field(default_factory=dict)

    def hear(self, event: Event) -> None:
        """Take a mark."""
        what, _, rest = event.name.partition(" ")
        if what == "dispatch":
            self.dispatched.add(int(rest))
        elif what == "answer":
            told = json.loads(rest)
            self.answered[told["id"]] = told


def broken(image: dict[str, bytes], promised: Promised, scratch: Path) -> list[str]:
    """What does not hold on an image, as sentences."""
    shutil.rmtree(scratch, ignore_errors=True)
    scratch.mkdir()
    for name, content in image.items():
        (scratch / name).write_bytes(content)
    try:
        store = open_store(scratch, START, allow_unsafe=True)
    except StoreRefused as refused:
        return [f"REFUSED: {refused}"]
    try:
        return _looked_at(store, promised)
    except sqlite3.Error as error:
        return [f"DAMAGED: {error}"]
    finally:
        store._conn.close()
        store._anchor.close()
        os.close(store._lock)


def _looked_at(store: Store, promised: Promised) -> list[str]:
    conn = store._conn
    found = []
    if audit.first_break(conn, 1 << 30) is not None:
        found.append("the audit chain is broken")
    for op_id in sorted(promised.dispatched):
        row = operations.get(conn, op_id)
        if row is None:
            found.append(f"SENT WITHOUT INTENT: operation {op_id} is not on record, its key looks fresh")
        elif row.state == "PENDING":
            found.append(f"SENT WITHOUT INTENT: operation {op_id} still waits for a person")
    for op_id, told in promised.answered.items():
        row = operations.get(conn, op_id)
        if row is None or row.state != "DONE":
            found.append(f"ANSWERED, NOT DURABLE: operation {op_id} is {None if row is None else row.state}")
        elif row.verdict != told["verdict"] or (row.response or {}).get("values") != told["values"]:
            found.append(f"ANSWERED OTHERWISE: operation {op_id}")
    return found


def restarted(image: dict[str, bytes], promised: Promised, scratch: Path) -> list[str]:
    """A daemon really starts on an image, and is asked with the same keys; what was sent is not sent again."""
    shutil.rmtree(scratch, ignore_errors=True)
    (scratch / "store").mkdir(parents=True)
    for name, content in image.items():
        (scratch / "store" / name).write_bytes(content)
    found: list[str] = []

    async def life() -> None:
        clock = FakeClock()
        clock.wall += 3600 * 10**9
        engine = await Engine.start(board_in(scratch), scratch / "store", clock, allow_unsafe=True)
        lab = Lab(engine, clock, scratch)
        lab.chip().push("FIFO", b"abc")
        sent = {row.key: row.op_id for row in await lab.rows() if row.op_id in promised.dispatched}
        for name, method, params in ASKED:
            if key_of(name) in sent:
                before = Counter(lab.chip().executed)
                await lab.engine.call(AGENT, method, {**params, "key": key_of(name)})
                acted = Counter(lab.chip().executed) - before
                again = {k: n for k, n in acted.items() if k[1] == "write" or k[0] == "FIFO"}
                if again:
                    found.append(f"SENT AGAIN: {name} under its old key: {again}")
        await engine.close()

    try:
        asyncio.run(life())
    except (StoreRefused, AssertionError, OSError) as error:
        found.append(f"it does not start: {error}")
    return found


@dataclass
class Report:
    """What was looked at, and what was found."""

    events: int = 0
    syncs: int = 0
    images: int = 0
    starts: int = 0
    violations: list[str] = field(default_factory=list)


def judged(events: list[Event], scratch: Path, seed: int, every: int, starts: int, until: str | None = None) -> Report:
    """Build the images of every moment and look at each once.

    Args:
        every: of the moments only each n-th.
        starts: images on which a daemon really starts.
        until: ends with the first violation that says this; for a defect that must be found.
    """
    chance, disk, promised = random.Random(seed), Disk(), Promised()
    report = Report(len(events), sum(e.kind == "S" for e in events))
    seen: set[bytes] = set()
    fresh: list[tuple[dict[str, bytes], Promised]] = []
    for number, event in enumerate(events):
        disk.happen(event)
        if event.kind == "M":
            promised.hear(event)
        if number % every and event.kind != "M":
            continue
        bound = repr((sorted(promised.dispatched), sorted(promised.answered))).encode()
        for image in disk.images(chance):
            digest = hashlib.sha256(bound)
            for name in sorted(image):
                digest.update(name.encode() + b"\0" + hashlib.sha256(image[name]).digest())
            if digest.digest() in seen:
                continue
            seen.add(digest.digest())
            report.images += 1
            report.violations += [f"moment {number}: {fault}" for fault in broken(image, promised, scratch)]
            if until is not None and any(until in violation for violation in report.violations):
                return report
            known = Promised(set(promised.dispatched), dict(promised.answered))
            fresh.append((image, known))
    for image, known in chance.sample(fresh, min(starts, len(fresh))):
        report.starts += 1
        report.violations += restarted(image, known, scratch)
    return report


def run(fault: str | None, seed: int, every: int, starts: int, until: str | None) -> Report:
    """Compile the shim, play the scene once, and judge what a power cut may leave of it."""
    found = compiler()
    if found is None:
        raise RuntimeError("no C compiler (cc): the disk cannot be recorded")
    shm = Path("/dev/shm")
    with (
        tempfile.TemporaryDirectory(prefix="hc-", dir="/tmp") as name,
        tempfile.TemporaryDirectory(prefix="hc-", dir=shm if shm.is_dir() else None) as images,
    ):
        directory = Path(name)
        shim = directory / "shim.so"
        subprocess.run([found, "-shared", "-fPIC", "-O1", "-o", str(shim), str(SHIM), "-ldl", "-lpthread"], check=True)
        words = ["--inside", name] + ([] if fault is None else ["--fault", fault])
        command = [sys.executable, "-m", "tests.crash.power.cut", *words]
        subprocess.run(command, env={**os.environ, "LD_PRELOAD": str(shim)}, check=True)
        events = parsed((directory / "record").read_bytes(), str(directory / "store"))
        return judged(events, Path(images) / "image", seed, every, starts, until)


def main() -> int:
    """Run it, print the counts; 0 if nothing is wrong."""
    parser = argparse.ArgumentParser(prog="tests.crash.power.cut", description="a power cut at every moment")
    parser.add_argument("--fault", choices=FAULTS, help="a defect to be found: the control of this harness")
    parser.add_argument("--seed", type=int, default=1)
    parser.add_argument("--every", type=int, default=1, help="of the moments only each n-th")
    parser.add_argument("--starts", type=int, default=30, help="images on which a daemon really starts")
    parser.add_argument("--until", help="end with the first violation that says this")
    parser.add_argument("--inside", type=Path, help=argparse.SUPPRESS)
    arguments = parser.parse_args()
    if arguments.inside is not None:
        inside(arguments.inside, arguments.fault)
        return 0
    began_s = time.monotonic()
    report = run(arguments.fault, arguments.seed, arguments.every, arguments.starts, arguments.until)
    for sentence in report.violations[:20]:
        print(sentence)
    kinds = Counter(sentence.partition(": ")[2].partition(":")[0] for sentence in report.violations)
    for kind, number in kinds.most_common():
        print(f"{kind}: {number}")
    took_s = time.monotonic() - began_s
    counts = f"{report.events} events, {report.syncs} syncs, {report.images} images, {report.starts} starts"
    print(f"{counts}, {len(report.violations)} violations, {took_s:.1f} s (seed {arguments.seed})")
    return 1 if report.violations else 0


if __name__ == "__main__":
    sys.exit(main())
