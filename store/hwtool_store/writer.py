"""The one writer thread: group commit, one savepoint a job, one commit a batch.

Jobs that wait together share a commit; their futures resolve after it, so that nobody is told of what is not durable.
A job that breaks a rule of the database is rolled back alone. A failure of the database or the disk is fatal: a
COMMIT that failed at fdatasync is invisible now and may reappear after the process dies, so nothing after it may be
believed, and every job from then on is answered `StoreFatal`.
"""

from __future__ import annotations

import logging
import queue
import sqlite3
import threading
from collections import deque
from collections.abc import Callable
from concurrent.futures import Future
from typing import Any, Final, NamedTuple, TypeVar

from hwtool_store.faults import StoreFatal, StoreRule

T = TypeVar("T")
Job = Callable[[sqlite3.Connection], Any]
Apart = Callable[[sqlite3.Connection, Callable[[], None]], Any]
MAX_BATCH: Final = 256


class Queued(NamedTuple):
    """A job, or something that is done apart from any transaction (`apart`)."""

    job: Job | None
    apart: Apart | None
    future: Future[Any]


class Writer:
    """Owner of the connection once it has started.

    Args:
        conn: the one connection of the store.
        after_commit: called in the thread after each commit that changed something, before the futures resolve.
        on_fatal: called once in the thread when the store has failed.
        before_batch: called in the thread before each batch, to see to the room on the disk.
    """

    def __init__(
        self,
        conn: sqlite3.Connection,
        after_commit: Callable[[sqlite3.Connection], None],
        on_fatal: Callable[[BaseException], None],
        before_batch: Callable[[], None] = lambda: None,
    ) -> None:
        self._conn = conn
        self._after_commit = after_commit
        self._on_fatal = on_fatal
        self._before_batch = before_batch
        self._jobs: queue.SimpleQueue[Queued | None] = queue.SimpleQueue()
        self._later: deque[Queued | None] = deque()  # taken from the queue, and not done yet
        self._failed: BaseException | None = None
        self._stopped = False
        self._door = threading.Lock()  # between asking whether the store is open and queueing
        self._thread = threading.Thread(target=self._run, name="hwtool-store", daemon=True)
        self.commits = 0

    @property
    def failed(self) -> bool:
        """Whether the store has failed; set before anybody is told."""
        return self._failed is not None

    def start(self) -> None:
        """Start the thread; the connection is its own from here on."""
        self._thread.start()

    def submit(self, job: Callable[[sqlite3.Connection], T]) -> Future[T]:
        """Queue a job; its future resolves after the commit, with what the job answered or raised."""
        return self._queue(job, None)

    def submit_apart(self, apart: Callable[[sqlite3.Connection, Callable[[], None]], T]) -> Future[T]:
        """Queue something long that only reads, outside any transaction.

        It is given the connection and `between`, which it calls between two steps: waiting jobs are done there.
        """
        return self._queue(None, apart)

    def _queue(self, job: Job | None, apart: Apart | None) -> Future[Any]:
        future: Future[Any] = Future()
        # a caller that stops waiting must not cancel what the thread is about to do
        future.set_running_or_notify_cancel()
        with self._door:
            if not self._stopped:
                self._jobs.put(Queued(job, apart, future))
                return future
        future.set_exception(StoreFatal("the store is closed"))
        return future

    def stop(self) -> None:
        """Finish what is queued, then end the thread; jobs that come later are answered `StoreFatal`."""
        with self._door:
            self._stopped = True
            self._jobs.put(None)
        if not self._thread.is_alive():
            self._run()  # it was never started: what was queued is done here
        elif self._thread is not threading.current_thread():
            self._thread.join()

    def _run(self) -> None:
        while True:
            first = self._later.popleft() if self._later else self._jobs.get()
            if first is None:
                return
            if first.apart is not None:
                self._do_apart(first.apart, first.future)
            else:
                self._perform([first, *self._waiting(MAX_BATCH - 1)])

    def _waiting(self, most: int) -> list[Queued]:
        """Jobs that wait, up to the first that is none."""
        batch: list[Queued] = []
        while len(batch) < most and not self._later:
            try:
                more = self._jobs.get_nowait()
            except queue.Empty:
                break
            if more is None or more.apart is not None:
                self._later.append(more)
                break
            batch.append(more)
        return batch

    def _do_apart(self, apart: Apart, future: Future[Any]) -> None:
        def between() -> None:
            if self._failed is not None:
                raise StoreFatal(str(self._failed))
            batch = self._waiting(MAX_BATCH)
            if batch:
                self._perform(batch)

        try:
            between()
            future.set_result(apart(self._conn, between))
        except Exception as error:  # noqa: BLE001  # it only read: whatever it is, the store goes on
            future.set_exception(error)

    def _perform(self, batch: list[Queued]) -> None:
        outcomes: list[tuple[Future[Any], Any, BaseException | None]] = []
        if self._failed is None:
            try:
                outcomes = self._commit(batch)
            except BaseException as error:  # noqa: BLE001  # whatever it is, no job may wait for ever
                self._failed = error
                self._tell(error)
        if self._failed is not None:
            for _, _, future in batch:
                fatal = StoreFatal(str(self._failed))
                fatal.__cause__ = self._failed
                future.set_exception(fatal)
            return
        for future, value, raised in outcomes:
            if raised is None:
                future.set_result(value)
            else:
                future.set_exception(raised)

    def _tell(self, error: BaseException) -> None:
        try:
            self._on_fatal(error)
        except Exception:  # whoever listens, the jobs must still be answered
            logging.getLogger(__name__).exception("the listener of a store failure failed itself")

    def _commit(self, batch: list[Queued]) -> list[tuple[Future[Any], Any, BaseException | None]]:
        self._before_batch()
        conn = self._conn
        before = conn.total_changes
        outcomes: list[tuple[Future[Any], Any, BaseException | None]] = []
        conn.execute("BEGIN IMMEDIATE")
        for job, _, future in batch:
            conn.execute("SAVEPOINT job")
            try:
                outcomes.append((future, None if job is None else job(conn), None))
            except sqlite3.IntegrityError as error:
                self._undo()
                rule = StoreRule(str(error))
                rule.__cause__ = error
                outcomes.append((future, None, rule))
            except (sqlite3.ProgrammingError, sqlite3.InterfaceError) as error:
                self._undo()  # a wrong statement of one job: its defect, not the disk's
                outcomes.append((future, None, error))
            except (sqlite3.Error, StoreFatal):
                raise
            except Exception as error:  # noqa: BLE001  # a defect of one job is its caller's, not the batch's
                self._undo()
                outcomes.append((future, None, error))
            else:
                conn.execute("RELEASE job")
        conn.execute("COMMIT")
        if conn.total_changes != before:
            self.commits += 1
            self._after_commit(conn)
        return outcomes

    def _undo(self) -> None:
        self._conn.execute("ROLLBACK TO job")
        self._conn.execute("RELEASE job")
