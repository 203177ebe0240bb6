"""The journal is read in pages between commits: a long look keeps nobody from writing, nor the log from its end."""

from __future__ import annotations

from pathlib import Path

from hwtool_store import audit
from hwtool_store import operations as ops
from hwtool_store.audit import MAX_PAGE
from hwtool_store.database import FILE
from tests.store.conftest import do, started

PAGES = 12
LOG_LIMIT_BYTES = 8 << 20  # SQLite moves the log into the database at 1000 pages of 4 KiB, if no reader is in the way


def test_journal_when_read_while_others_write_then_every_row_once_and_the_log_stays_short(tmp_path: Path) -> None:
    store = started(tmp_path / "store")
    for _ in range(PAGES):
        do(store, lambda conn: [ops.note(conn, {"what": "noted", "summary": "x" * 400}) for _ in range(MAX_PAGE)])
    before, written, seen = store.seq, 0, [0]
    while rows := do(store, audit.page, seen[-1], 10 * MAX_PAGE):
        assert len(rows) <= MAX_PAGE
        seen += [r.seq for r in rows]
        for _ in range(40 if written < 400 else 0):  # somebody writes between two pages, and is not kept waiting
            do(store, ops.note, {"what": "written meanwhile", "summary": "x" * 4000})
            written += 1
    assert seen[1:] == list(range(1, before + written + 1))
    assert (tmp_path / "store" / f"{FILE}-wal").stat().st_size < LOG_LIMIT_BYTES
    store.close()


def test_page_when_it_is_queued_with_writes_then_it_sees_what_was_queued_before_and_nothing_fails(
    tmp_path: Path,
) -> None:
    store = started(tmp_path / "store")
    futures = [store.submit(lambda conn: ops.note(conn, {"what": "noted"})) for _ in range(20)]
    pages = [store.submit(lambda conn: audit.page(conn, 0, MAX_PAGE)) for _ in range(5)]
    more = [store.submit(lambda conn: ops.note(conn, {"what": "noted"})) for _ in range(20)]
    assert [f.result(30) for f in (*futures, *more)] == list(range(1, 41))
    assert all([r.seq for r in p.result(30)] == list(range(1, 21)) for p in pages)
    store.close()
