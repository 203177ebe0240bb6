"""The writer: what waits together shares a commit, one bad job is rolled back alone, a failed commit ends it all."""

from __future__ import annotations

import sqlite3
import threading
from collections.abc import Callable, Iterator
from concurrent.futures import Future
from functools import partial
from pathlib import Path
from typing import Any

import pytest

from hwtool_store import operations as ops
from hwtool_store.database import FILE, Store, open_store
from hwtool_store.faults import StoreFatal, StoreRefused, StoreRule
from hwtool_store.writer import MAX_BATCH, Writer
from tests.store.conftest import NEW, START, do, started


class Scripted(sqlite3.Connection):
    """A connection that calls `before` with each statement, which may raise what a disk would."""

    before: Callable[[str], None] = staticmethod(lambda _: None)

    def execute(self, sql: str, parameters: Any = (), /) -> sqlite3.Cursor:
        self.before(sql)
        return super().execute(sql, parameters)


@pytest.fixture
def conn(tmp_path: Path) -> Iterator[Scripted]:
    """A file with one table."""
    it = sqlite3.connect(
        tmp_path / "writer.db", isolation_level=None, check_same_thread=False, factory=Scripted, cached_statements=0
    )
    it.execute("CREATE TABLE t(x INTEGER UNIQUE) STRICT")
    yield it
    it.close()


class Bench:
    """A writer with a record of what it called back."""

    def __init__(self, conn: Scripted) -> None:
        self.conn = conn
        self.log: list[str] = []
        self.fatal: list[BaseException] = []
        self.writer = Writer(conn, lambda _: self.log.append("anchor"), self.fatal.append)

    def put(self, value: int) -> Future[int]:
        def job(conn: sqlite3.Connection) -> int:
            conn.execute("INSERT INTO t VALUES(?)", (value,))
            return value

        return self.writer.submit(job)

    def run(self) -> None:
        self.writer.start()
        self.writer.stop()

    def values(self) -> list[int]:
        return [row[0] for row in self.conn.execute("SELECT x FROM t ORDER BY x")]


@pytest.fixture
def bench(conn: Scripted) -> Bench:
    return Bench(conn)


def test_jobs_when_they_wait_together_then_they_share_one_commit(bench: Bench) -> None:
    futures = [bench.put(n) for n in range(5)]
    bench.run()
    assert [future.result(timeout=0) for future in futures] == list(range(5))
    assert (bench.writer.commits, bench.log, bench.values()) == (1, ["anchor"], list(range(5)))


@pytest.mark.parametrize(("jobs", "commits"), [(MAX_BATCH, 1), (MAX_BATCH + 1, 2), (2 * MAX_BATCH + 1, 3)])
def test_jobs_when_more_than_a_batch_wait_then_each_batch_has_its_commit(bench: Bench, jobs: int, commits: int) -> None:
    futures = [bench.put(n) for n in range(jobs)]
    bench.run()
    assert all(future.done() for future in futures)
    assert (bench.writer.commits, len(bench.values())) == (commits, jobs)


def test_jobs_when_they_come_one_after_the_other_then_each_has_its_commit(bench: Bench) -> None:
    bench.writer.start()
    assert [bench.put(n).result(timeout=30) for n in range(3)] == [0, 1, 2]
    bench.writer.stop()
    assert bench.writer.commits == 3


def test_future_when_resolved_then_the_commit_and_the_anchor_came_first(bench: Bench, conn: Scripted) -> None:
    futures: list[Future[int]] = []
    seen: list[tuple[str, list[bool]]] = []
    bench.writer = Writer(
        conn, lambda _: seen.append(("anchor", [future.done() for future in futures])), bench.fatal.append
    )
    conn.before = lambda sql: seen.append((sql, [future.done() for future in futures])) if sql == "COMMIT" else None
    futures += [bench.put(1), bench.put(2)]
    for future in futures:
        future.add_done_callback(lambda _: seen.append(("resolved", [])))
    bench.run()
    assert seen == [("COMMIT", [False, False]), ("anchor", [False, False]), ("resolved", []), ("resolved", [])]


def test_job_when_it_breaks_a_rule_then_it_is_rolled_back_alone(bench: Bench) -> None:
    def two_steps(conn: sqlite3.Connection) -> None:
        conn.execute("INSERT INTO t VALUES(10)")
        conn.execute("INSERT INTO t VALUES(1)")

    first, broken, last = bench.put(1), bench.writer.submit(two_steps), bench.put(3)
    bench.run()
    assert (first.result(timeout=0), last.result(timeout=0)) == (1, 3)
    error = broken.exception(timeout=0)
    assert isinstance(error, StoreRule)
    assert str(error) == "UNIQUE constraint failed: t.x"
    assert isinstance(error.__cause__, sqlite3.IntegrityError)
    assert (bench.values(), bench.writer.commits, bench.fatal) == ([1, 3], 1, [])


@pytest.mark.parametrize(
    "error", [ValueError("a defect"), KeyError("missing"), StoreRule("a rule"), OverflowError("too large")]
)
def test_job_when_it_raises_then_its_own_future_gets_that_and_its_work_is_undone(
    bench: Bench, error: Exception
) -> None:
    def job(conn: sqlite3.Connection) -> None:
        conn.execute("INSERT INTO t VALUES(10)")
        raise error

    first, broken, last = bench.put(1), bench.writer.submit(job), bench.put(3)
    bench.run()
    assert broken.exception(timeout=0) is error
    assert (first.result(timeout=0), last.result(timeout=0), bench.values()) == (1, 3, [1, 3])
    assert bench.fatal == []


def test_job_when_it_only_reads_then_there_is_no_commit_to_count(bench: Bench) -> None:
    read = bench.writer.submit(lambda conn: conn.execute("SELECT count(*) FROM t").fetchone())
    ignored = bench.writer.submit(lambda conn: conn.execute("DELETE FROM t WHERE x=9").rowcount)
    bench.run()
    assert (read.result(timeout=0), ignored.result(timeout=0)) == ((0,), 0)
    assert (bench.writer.commits, bench.log) == (0, [])


def test_job_when_another_of_its_batch_wrote_before_then_it_sees_that(bench: Bench) -> None:
    bench.put(1)
    read = bench.writer.submit(lambda conn: conn.execute("SELECT x FROM t").fetchall())
    bench.run()
    assert read.result(timeout=0) == [(1,)]


def refuses_a_type(conn: sqlite3.Connection) -> None:
    conn.execute("INSERT INTO t VALUES(10)")
    conn.execute("SELECT ?", (object(),))


def refuses_a_count(conn: sqlite3.Connection) -> None:
    conn.execute("INSERT INTO t VALUES(10)")
    conn.execute("SELECT ?, ?", (1,))


def refuses_an_interface(conn: sqlite3.Connection) -> None:
    conn.execute("INSERT INTO t VALUES(10)")
    raise sqlite3.InterfaceError("bad parameter or other API misuse")


@pytest.mark.parametrize("job", [refuses_a_type, refuses_a_count, refuses_an_interface])
def test_job_when_its_statement_is_wrong_then_it_alone_fails_and_the_store_goes_on(
    bench: Bench, job: Callable[[sqlite3.Connection], None]
) -> None:
    first, broken, last = bench.put(1), bench.writer.submit(job), bench.put(3)
    bench.run()
    assert isinstance(broken.exception(timeout=0), sqlite3.ProgrammingError | sqlite3.InterfaceError)
    assert (first.result(timeout=0), last.result(timeout=0), bench.values(), bench.fatal) == (1, 3, [1, 3], [])


def test_future_when_somebody_would_cancel_it_then_it_runs_all_the_same(bench: Bench) -> None:
    futures = [bench.put(1), bench.put(2)]
    assert [future.cancel() for future in futures] == [False, False]
    bench.run()
    assert [future.result(timeout=0) for future in futures] == [1, 2]


FAULTS = [
    ("BEGIN IMMEDIATE", sqlite3.OperationalError("database is locked")),
    ("SAVEPOINT job", sqlite3.OperationalError("disk I/O error")),
    ("INSERT INTO t VALUES(?)", sqlite3.OperationalError("database or disk is full")),
    ("INSERT INTO t VALUES(?)", sqlite3.DatabaseError("database disk image is malformed")),
    ("RELEASE job", sqlite3.OperationalError("disk I/O error")),
    ("COMMIT", sqlite3.OperationalError("disk I/O error")),
    ("COMMIT", OSError(5, "Input/output error")),
]


@pytest.mark.parametrize(("at", "fault"), FAULTS, ids=[f"{at}: {fault}" for at, fault in FAULTS])
def test_database_when_it_fails_then_the_whole_batch_and_every_later_job_is_fatal(
    bench: Bench, conn: Scripted, at: str, fault: Exception
) -> None:
    def fail(sql: str) -> None:
        if sql == at:
            raise fault

    ran: list[int] = []
    bench.writer.start()
    assert bench.put(1).result(timeout=30) == 1
    conn.before = fail
    batch = [bench.put(2), bench.put(3)]
    errors = [future.exception(timeout=30) for future in batch]
    conn.before = lambda _: None
    errors += [bench.put(4).exception(timeout=30)]
    errors += [bench.writer.submit(lambda _: ran.append(1)).exception(timeout=30)]
    bench.writer.stop()
    for error in errors:
        assert isinstance(error, StoreFatal)
        assert str(error) == str(fault)
        assert error.__cause__ is fault
    assert bench.fatal == [fault]
    assert (bench.writer.commits, ran) == (1, [])


def test_database_when_undoing_a_job_fails_then_that_is_fatal_too(bench: Bench, conn: Scripted) -> None:
    def fail(sql: str) -> None:
        if sql.startswith("ROLLBACK"):
            raise sqlite3.OperationalError("disk I/O error")

    def defect(_: sqlite3.Connection) -> None:
        raise ValueError("a defect")

    conn.before = fail
    good, broken = bench.put(1), bench.writer.submit(defect)
    bench.run()
    assert [type(future.exception(timeout=0)) for future in (good, broken)] == [StoreFatal, StoreFatal]
    assert [str(error) for error in bench.fatal] == ["disk I/O error"]


def test_job_when_it_finds_damage_then_the_whole_store_has_failed(bench: Bench) -> None:
    damage = StoreFatal("the witnesses disagree")

    def job(_: sqlite3.Connection) -> None:
        raise damage

    futures: list[Future[Any]] = [bench.put(1), bench.writer.submit(job), bench.put(2)]
    bench.run()
    for future in futures:
        error = future.exception(timeout=0)
        assert isinstance(error, StoreFatal)
        assert error.__cause__ is damage
    assert (bench.fatal, bench.writer.commits) == ([damage], 0)


def test_listener_when_it_raises_then_every_job_is_answered_all_the_same(
    conn: Scripted, caplog: pytest.LogCaptureFixture
) -> None:
    def listener(_: BaseException) -> None:
        told.append(1)
        raise ValueError("a defect of the listener")

    def job(_: sqlite3.Connection) -> None:
        raise StoreFatal("the witnesses disagree")

    told: list[int] = []
    writer = Writer(conn, lambda _: None, listener)
    writer.start()
    for _ in range(2):
        assert isinstance(writer.submit(job).exception(timeout=30), StoreFatal)
    writer.stop()
    assert told == [1]
    assert "the listener of a store failure failed itself" in caplog.text


def test_anchor_when_it_cannot_be_written_then_nobody_is_told_of_success(conn: Scripted) -> None:
    def full(_: sqlite3.Connection) -> None:
        raise OSError(28, "No space left on device")

    fatal: list[BaseException] = []
    writer = Writer(conn, full, fatal.append)
    future = writer.submit(lambda c: c.execute("INSERT INTO t VALUES(1)").rowcount)
    writer.start()
    writer.stop()
    assert isinstance(future.exception(timeout=0), StoreFatal)
    assert [type(error) for error in fatal] == [OSError]


def test_stop_when_jobs_are_queued_then_they_are_finished_first(bench: Bench) -> None:
    bench.writer.start()
    gate = threading.Event()
    held = bench.writer.submit(lambda _: gate.wait(30))
    futures = [bench.put(n) for n in range(MAX_BATCH + 3)]
    bench.writer._jobs.put(None)  # what stop() queues, so that it is there before the gate opens
    gate.set()
    bench.writer.stop()
    assert held.result(timeout=0)
    assert [future.result(timeout=0) for future in futures] == list(range(MAX_BATCH + 3))


def test_stop_when_nothing_is_queued_then_the_thread_ends(bench: Bench) -> None:
    bench.writer.start()
    bench.put(1).result(timeout=30)
    bench.writer.stop()
    assert not bench.writer._thread.is_alive()
    assert bench.values() == [1]


@pytest.mark.parametrize("started_first", [True, False])
def test_stop_when_a_job_comes_later_then_it_is_answered_and_not_done(bench: Bench, started_first: bool) -> None:
    if started_first:
        bench.writer.start()
    bench.writer.stop()
    with pytest.raises(StoreFatal, match="the store is closed"):
        bench.put(1).result(timeout=0)
    bench.writer.stop()
    assert bench.values() == []


# --- the same through a store -------------------------------------------------------------------------------------


def test_store_when_jobs_wait_together_then_one_commit_and_the_newest_sequence(directory: Path) -> None:
    store = open_store(directory, START, allow_unsafe=True)
    futures = [store.submit(partial(ops.note, body={"n": n})) for n in range(4)]
    assert (store.commits, store.seq) == (0, 0)
    store.start()
    assert [future.result(timeout=30) for future in futures] == [1, 2, 3, 4]
    assert (store.commits, store.seq) == (1, 4)
    assert do(store, ops.get, 1) is None
    assert (store.commits, store.seq) == (1, 4)
    store.close()


def test_store_when_closed_then_later_jobs_are_answered(directory: Path) -> None:
    store = started(directory)
    store.close()
    with pytest.raises(StoreFatal, match="the store is closed"):
        do(store, ops.get, 1)


def failing(directory: Path, monkeypatch: pytest.MonkeyPatch) -> tuple[Store, Callable[[], None]]:
    """A store, and what makes its next COMMIT fail."""
    plain = sqlite3.connect

    def connect(path: Path, **options: Any) -> sqlite3.Connection:
        conn = plain(path, factory=Scripted, **options)
        made.append(conn)
        return conn

    def fail(sql: str) -> None:
        if sql == "COMMIT":
            raise sqlite3.OperationalError("disk I/O error")

    made: list[Scripted] = []
    with monkeypatch.context() as patched:
        patched.setattr(sqlite3, "connect", connect)
        store = started(directory)
    return store, lambda: setattr(made[0], "before", fail)


def test_store_when_a_commit_fails_then_intents_are_fatal_and_everyone_is_told(
    directory: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    store, break_disk = failing(directory, monkeypatch)
    told: list[tuple[str, str]] = []
    store.on_fatal(lambda error: told.append(("first", str(error))))
    store.on_fatal(lambda error: told.append(("second", str(error))))
    assert do(store, ops.t1_intent, NEW, {}) == 1
    break_disk()
    with pytest.raises(StoreFatal, match="disk I/O error"):
        do(store, ops.t2_done, 1, "applied", {}, {}, 200, {})
    with pytest.raises(StoreFatal, match="disk I/O error"):
        do(store, ops.get, 1)
    assert store.seq == 1
    store.close()
    assert told == [("first", "disk I/O error"), ("second", "disk I/O error")]
    assert store.failed
    # closing would write what may not be believed: connection and lock go with the process
    with pytest.raises(StoreRefused, match="in use"):
        started(directory)


def test_store_when_opened_then_its_file_is_the_one_in_the_directory(store: Store, directory: Path) -> None:
    assert [row[2] for row in do(store, lambda conn: conn.execute("PRAGMA database_list").fetchall())] == [
        str(directory / FILE)
    ]
