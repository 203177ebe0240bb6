"""What the tests of the store share: a start, a request, an open store in a directory of its own, a damaged page."""

from __future__ import annotations

import sqlite3
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Concatenate, Final, ParamSpec, TypeVar

import pytest

from hwtool_store.database import FILE, Start, Store, open_store
from hwtool_store.operations import NewOp

P = ParamSpec("P")
T = TypeVar("T")

START: Final = Start(host_boot_id="boot-1", pid=77, wall_ns=1_700_000_000_000_000_000, boottime_ns=5, version="0.1.0")
LOCUS: Final = "i2c:1:0x20"
OTHER_LOCUS: Final = "i2c:1:0x21"
NEW: Final = NewOp(
    principal="uid:1000",
    key="write-0001",
    digest=b"d" * 32,
    locus=LOCUS,
    kind="write",
    request={"register": "OLATA", "value": "0x55"},
    contract_hash=b"c" * 32,
    device_gen=1,
    now_ns=100,
    pre={"OLATA": "0x00"},
)


def do(store: Store, job: Callable[Concatenate[sqlite3.Connection, P], T], *args: P.args, **kwargs: P.kwargs) -> T:
    """Run one function of the package as a job and wait for what it answers or raises."""
    return store.submit(lambda conn: job(conn, *args, **kwargs)).result(timeout=30)


def started(directory: Path) -> Store:
    """An open store whose writer runs."""
    store = open_store(directory, START, allow_unsafe=True)
    store.start()
    return store


def sql(directory: Path, *statements: str) -> None:
    """Change the database of a closed store behind its back."""
    conn = sqlite3.connect(directory / FILE, isolation_level=None)
    try:
        for statement in statements:
            conn.execute(statement)
    finally:
        conn.close()


def unguarded(directory: Path, trigger: str, *statements: str) -> None:
    """Do behind a closed store's back what one of its triggers forbids; the trigger is there again afterwards."""
    conn = sqlite3.connect(directory / FILE, isolation_level=None)
    try:
        text = conn.execute("SELECT sql FROM sqlite_schema WHERE type='trigger' AND name=?", (trigger,)).fetchone()[0]
        for statement in (f"DROP TRIGGER {trigger}", *statements, text):
            conn.execute(statement)
    finally:
        conn.close()


def damage(directory: Path, name: str, old: bytes, new: bytes) -> None:
    """Change bytes in the root page of one table or index of a closed store, as a failing disk would."""
    conn = sqlite3.connect(directory / FILE)
    try:
        root = conn.execute("SELECT rootpage FROM sqlite_schema WHERE name=?", (name,)).fetchone()[0]
        size = conn.execute("PRAGMA page_size").fetchone()[0]
    finally:
        conn.close()
    data = bytearray((directory / FILE).read_bytes())
    page = data[(root - 1) * size : root * size]
    assert page.count(old) == 1
    data[(root - 1) * size : root * size] = page.replace(old, new)
    (directory / FILE).write_bytes(data)


@pytest.fixture
def directory(tmp_path: Path) -> Path:
    """Where a store may be made."""
    return tmp_path / "store"


@pytest.fixture
def store(directory: Path) -> Iterator[Store]:
    """A new store whose writer runs."""
    it = started(directory)
    yield it
    it.close()
