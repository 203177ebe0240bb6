"""`python -m tests.crash.damage.flip`: what a bad disk does to the files of a store, and that no used key looks fresh.

A daemon works through every kind of operation and is killed, so that the database, its log and the anchor stand as a
crash leaves them. Then one bit is flipped, at places drawn over the whole database and in the header and the body of
each frame of the log, or a file is cut off; the database is spoilt as it is after a checkpoint too, half of the places
being where keys stand in it. What is opened then is refused, or knows every key that was used. A key that looks used in
one index and fresh in the other is a fatal error, never a new operation.

Control: `--fault` asks one index of keys instead of two.
"""

from __future__ import annotations

import argparse
import asyncio
import os
import random
import shutil
import sqlite3
import sys
import tempfile
import time
from collections import Counter
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Final

from hwtool_store import operations
from hwtool_store.database import FILE, open_store
from hwtool_store.faults import StoreFatal, StoreRefused
from tests.crash.power.cut import ASKED, START, NoMarks, key_of, play
from tests.hwtool.conftest import AGENT

LOG: Final = f"{FILE}-wal"
LOG_HEADER_BYTES: Final = 32  # SQLite, "WAL-mode File Format", 1 and 2
FRAME_HEADER_BYTES: Final = 24
PAGE_BYTES: Final = 4096
KEYS: Final = [key_of(name) for name in ("grant", *(asked[0] for asked in ASKED))]


@dataclass(frozen=True)
class Damage:
    """One thing done to one file: a bit flipped at an offset, or the file cut off there (`bit` None)."""

    file: str
    offset: int
    bit: int | None

    def done_to(self, content: bytes) -> bytes:
        """The file afterwards."""
        if self.bit is None:
            return content[: self.offset]
        spoilt = bytearray(content)
        spoilt[self.offset] ^= 1 << self.bit
        return bytes(spoilt)

    @property
    def name(self) -> str:
        """What it is called in a report."""
        return f"{self.file} at {self.offset}" + (" cut off" if self.bit is None else f", bit {self.bit}")


def of_the_database(content: bytes, offsets: int, seed: int) -> Iterator[Damage]:
    """So many places of it, half of them inside keys and their hashes; and cut off at every fourth page."""
    chance = random.Random(seed)
    keyed = [at for key in KEYS for word in (key.encode(), operations.key_hash(key)) for at in _places(content, word)]
    for number in range(offsets):
        offset = chance.choice(keyed) if number % 2 and keyed else chance.randrange(len(content))
        yield Damage(FILE, offset, chance.randrange(8))
    for end in range(0, len(content), PAGE_BYTES * 4):
        yield Damage(FILE, end, None)


def _places(content: bytes, word: bytes) -> Iterator[int]:
    """Every byte of every occurrence of a word."""
    at = content.find(word)
    while at >= 0:
        yield from range(at, at + len(word))
        at = content.find(word, at + 1)


def of_the_log(files: dict[str, bytes], seed: int) -> Iterator[Damage]:
    """Every frame of the log, and the anchor."""
    chance = random.Random(seed)
    log = files[LOG]
    yield from (Damage(LOG, at, chance.randrange(8)) for at in range(0, min(len(log), LOG_HEADER_BYTES), 4))
    for frame in range(LOG_HEADER_BYTES, len(log), FRAME_HEADER_BYTES + PAGE_BYTES):
        yield Damage(LOG, frame + chance.randrange(FRAME_HEADER_BYTES), chance.randrange(8))
        yield Damage(LOG, frame + FRAME_HEADER_BYTES + chance.randrange(PAGE_BYTES), chance.randrange(8))
        yield Damage(LOG, frame, None)
        yield Damage(LOG, frame + FRAME_HEADER_BYTES + PAGE_BYTES // 2, None)
    yield from (Damage("anchor", at, chance.randrange(8)) for at in range(len(files["anchor"])))
    yield Damage("anchor", 0, None)


def left_by_a_crash(directory: Path) -> dict[str, bytes]:
    """The files of a store whose daemon was killed."""
    process = os.fork()
    if not process:
        asyncio.run(play(directory, NoMarks(), None))
        os._exit(1)
    _, status = os.waitpid(process, 0)
    assert status == 0, "the scene did not end"
    return {name: (directory / "store" / name).read_bytes() for name in (FILE, LOG, "anchor")}


def checkpointed(files: dict[str, bytes], scratch: Path) -> dict[str, bytes]:
    """The same store after a start and a clean stop: everything is in the database."""
    scratch.mkdir()
    for name, content in files.items():
        (scratch / name).write_bytes(content)
    open_store(scratch, START, allow_unsafe=True).close()
    return {name: (scratch / name).read_bytes() for name in (FILE, "anchor")}


def looked_at(files: dict[str, bytes], scratch: Path) -> str:
    """`refused`, `fatal` (said when a key is asked for), `harmless`, or which key looks fresh."""
    shutil.rmtree(scratch, ignore_errors=True)
    scratch.mkdir()
    for name, content in files.items():
        (scratch / name).write_bytes(content)
    try:
        store = open_store(scratch, START, allow_unsafe=True)
    except StoreRefused:
        return "refused"
    try:
        for key in KEYS:
            try:
                found = operations.find(store._conn, AGENT.principal, key)
            except (StoreFatal, sqlite3.Error, ValueError):
                return "fatal"  # the daemon ends, and says why
            if found is None:
                return f"FRESH: {key}"
        return "harmless"
    finally:
        store._conn.close()
        store._anchor.close()
        os.close(store._lock)


def _one_index() -> None:
    """The seeded defect."""

    def careless(conn: Any, principal: str, key: str) -> Any:
        row = conn.execute(
            "SELECT op_id FROM op JOIN caller USING(caller_id) WHERE principal=? AND key=?", (principal, key)
        ).fetchone()
        return None if row is None else operations.get(conn, row[0])

    setattr(operations, "find", careless)  # noqa: B010  # a function put in its place


def run(offsets: int, seed: int, fault: bool) -> tuple[Counter[str], list[str]]:
    """Do every damage to a copy of its own; counts by outcome, and what is wrong."""
    outcomes: Counter[str] = Counter()
    wrong = []
    shm = Path("/dev/shm")
    with (
        tempfile.TemporaryDirectory(prefix="hc-", dir="/tmp") as name,
        tempfile.TemporaryDirectory(prefix="hc-", dir=shm if shm.is_dir() else None) as copies,
    ):
        files = left_by_a_crash(Path(name))
        if fault:
            _one_index()
        assert looked_at(files, Path(copies) / "copy") == "harmless"
        whole = checkpointed(files, Path(copies) / "whole")
        assert looked_at(whole, Path(copies) / "copy") == "harmless"
        todo = [(files, damage) for damage in of_the_log(files, seed)]
        todo += [(whole, damage) for damage in of_the_database(whole[FILE], offsets, seed)]
        for sound, damage in todo:
            spoilt = {**sound, damage.file: damage.done_to(sound[damage.file])}
            outcome = looked_at(spoilt, Path(copies) / "copy")
            outcomes[outcome.partition(":")[0]] += 1
            if outcome.startswith("FRESH"):
                wrong.append(f"{damage.name}: {outcome}")
    return outcomes, wrong


def main() -> int:
    """Run it, print the counts; 0 if no key looked fresh."""
    parser = argparse.ArgumentParser(prog="tests.crash.damage.flip", description="flipped bits and cut-off files")
    parser.add_argument("--offsets", type=int, default=200, help="places of the database")
    parser.add_argument("--seed", type=int, default=1)
    parser.add_argument("--fault", action="store_true", help="a defect to be found: the control of this harness")
    arguments = parser.parse_args()
    began_s = time.monotonic()
    outcomes, wrong = run(arguments.offsets, arguments.seed, arguments.fault)
    for sentence in wrong[:20]:
        print(sentence)
    counts = ", ".join(f"{number} {outcome}" for outcome, number in sorted(outcomes.items()))
    total, took_s = sum(outcomes.values()), time.monotonic() - began_s
    print(f"{total} damages: {counts}; {len(wrong)} wrong, {took_s:.1f} s (seed {arguments.seed})")
    return 1 if wrong else 0


if __name__ == "__main__":
    sys.exit(main())
