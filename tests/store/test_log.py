"""The write-ahead log: short while a backup runs, bounded under one who reads without end."""

from __future__ import annotations

import threading
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from hwtool_store import log
from hwtool_store.database import FILE, Connection, Store, open_store
from tests.store.conftest import START

KIB = 1024


def grow(conn: Connection) -> None:
    """One commit of some pages."""
    conn.execute("INSERT OR REPLACE INTO meta(k, v) VALUES('filler', ?)", ("x" * 20 * KIB,))
    conn.execute("UPDATE meta SET v=v||hex(randomblob(8)) WHERE k='filler'")


def opened(directory: Path) -> Store:
    store = open_store(directory, START, allow_unsafe=True)
    store.start()
    return store


def commit(store: Store, times: int) -> None:
    for _ in range(times):
        store.submit(grow).result(timeout=30)


def size(directory: Path) -> int:
    return (directory / f"{FILE}-wal").stat().st_size


class Reader:
    """Something that reads the store without end, in the writer's own thread, as a backup does."""

    def __init__(self, store: Store) -> None:
        self.reading, self.leave = threading.Event(), threading.Event()
        self.ended = store._writer.submit_apart(self._read)

    def _read(self, conn: Connection, between: Callable[[], None]) -> None:
        cursor = conn.execute("SELECT * FROM meta, sqlite_schema")  # never read to its end
        cursor.fetchone()
        self.reading.set()
        while not self.leave.wait(0.0005):  # a reader that takes its time: the writer does its jobs in between
            between()
        cursor.close()


@pytest.fixture
def small(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(log, "LONG_BYTES", 512 * KIB)
    monkeypatch.setattr(log, "MOST_BYTES", 2048 * KIB)


@pytest.mark.usefixtures("small")
def test_log_when_something_reads_without_end_then_no_new_operation_until_it_ends_and_short_again(
    tmp_path: Path,
) -> None:
    store = opened(tmp_path)
    try:
        reader = Reader(store)
        assert reader.reading.wait(10)
        assert store.low_space() is None
        while size(tmp_path) < log.MOST_BYTES:
            commit(store, 10)
        told = store.low_space()
        assert told is not None
        assert "something reads the store without end" in told
        commit(store, 3)  # outcomes are still recorded
        reader.leave.set()
        reader.ended.result(timeout=10)
        commit(store, 2)
        assert store.low_space() is None
        assert size(tmp_path) < log.LONG_BYTES
    finally:
        store.close()


@pytest.mark.usefixtures("small")
def test_log_when_nobody_reads_then_it_is_cut_at_its_mark(tmp_path: Path) -> None:
    store = opened(tmp_path)
    try:
        longest = 0
        for _ in range(20):
            commit(store, 10)
            longest = max(longest, size(tmp_path))
        assert 0 < longest < 2 * log.LONG_BYTES
    finally:
        store.close()


@pytest.mark.usefixtures("small")
def test_log_when_a_backup_runs_while_others_write_then_it_stays_short(tmp_path: Path) -> None:
    store = opened(tmp_path / "store")
    try:
        store.submit(fill).result(timeout=30)
        copy = store.back_up(tmp_path / "copy")
        longest = commits = 0
        while not copy.done():
            commit(store, 1)
            commits += 1
            longest = max(longest, size(tmp_path / "store"))
        assert copy.result(timeout=30) > 2048 * KIB
        assert longest < log.MOST_BYTES
    finally:
        store.close()


def fill(conn: Connection) -> Any:
    """Some megabytes to be copied."""
    for n in range(200):
        conn.execute("INSERT INTO meta(k, v) VALUES(?, ?)", (f"page {n}", "y" * 20 * KIB))


def test_checkpoint_when_the_disk_fails_in_it_then_that_is_no_reader_in_the_way(tmp_path: Path) -> None:
    import sqlite3

    class Failing:
        def execute(self, _: str) -> Any:
            error = sqlite3.OperationalError("disk I/O error")
            error.sqlite_errorcode = sqlite3.SQLITE_IOERR_FSYNC
            raise error

    (tmp_path / f"{FILE}-wal").write_bytes(bytes(log.LONG_BYTES))
    with pytest.raises(sqlite3.OperationalError):
        log.Log(tmp_path / FILE).keep_short(Failing())  # type: ignore[arg-type]
