"""The audit chain: every member counts in the hash, a changed or missing row is found, pages follow each other."""

from __future__ import annotations

import sqlite3
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from hwtool_store import audit, schema
from hwtool_store.audit import AuditRow, row_hash


@pytest.fixture
def chain(tmp_path: Path) -> Iterator[sqlite3.Connection]:
    """A chain of six rows whose triggers do not stop the test from damaging it."""
    conn = sqlite3.connect(tmp_path / "chain.db", isolation_level=None)
    conn.execute("PRAGMA synchronous=OFF")
    schema.create(conn, "00000000-0000-0000-0000-000000000001", "00")
    for seq in range(1, 7):
        assert audit.append(conn, 1, seq if seq % 2 else None, {"n": seq}) == seq
    for trigger in ("audit_u", "audit_d", "audit_i"):
        conn.execute(f"DROP TRIGGER {trigger}")
    yield conn
    conn.close()


BASE: dict[str, Any] = {"prev": b"p" * 32, "seq": 1, "op_id": 2, "epoch": 3, "body": "{}"}
CHANGED = [("prev", b"q" * 32), ("seq", 2), ("op_id", 3), ("op_id", None), ("op_id", 0), ("epoch", 4), ("body", "{ }")]


@pytest.mark.parametrize(("member", "value"), CHANGED, ids=[f"{m}={v!r}" for m, v in CHANGED])
def test_hash_when_one_member_changes_then_it_changes(member: str, value: object) -> None:
    assert row_hash(**BASE) != row_hash(**{**BASE, member: value})
    assert row_hash(**BASE) == row_hash(**BASE)
    assert len(row_hash(**BASE)) == 32


NUMBERS = st.integers(0, 2**63 - 1)
ROWS = st.tuples(st.binary(min_size=32, max_size=32), NUMBERS, st.none() | NUMBERS, NUMBERS, st.text(max_size=5))


@given(ROWS, ROWS)
def test_hash_when_two_rows_differ_then_so_do_their_hashes(
    one: tuple[bytes, int, int | None, int, str], other: tuple[bytes, int, int | None, int, str]
) -> None:
    assert (row_hash(*one) == row_hash(*other)) is (one == other)


def test_tip_when_the_chain_is_empty_then_zero_and_when_not_then_its_newest_row(chain: sqlite3.Connection) -> None:
    seq, digest = audit.tip(chain)
    assert (seq, digest) == (6, chain.execute("SELECT hash FROM audit WHERE seq=6").fetchone()[0])
    chain.execute("DELETE FROM audit")
    assert audit.tip(chain) == (0, audit.GENESIS)


def test_first_row_when_appended_then_it_follows_the_zero_hash(chain: sqlite3.Connection) -> None:
    prev, stored = chain.execute("SELECT prev, hash FROM audit WHERE seq=1").fetchone()
    assert prev == audit.GENESIS
    assert stored == row_hash(audit.GENESIS, 1, 1, 1, '{"n":1}')


@pytest.mark.parametrize("last", [0, 1, 5, 6, 7, 1000])
def test_chain_when_whole_then_no_break_is_found(chain: sqlite3.Connection, last: int) -> None:
    assert audit.first_break(chain, last) is None


def test_chain_when_empty_then_no_break_is_found(chain: sqlite3.Connection) -> None:
    chain.execute("DELETE FROM audit")
    assert audit.first_break(chain, 1000) is None


DAMAGES = [
    ("the body of a row", "UPDATE audit SET body='{\"n\":9}' WHERE seq=3", 3),
    ("the op of a row", "UPDATE audit SET op_id=4 WHERE seq=4", 4),
    ("the op of a row taken away", "UPDATE audit SET op_id=NULL WHERE seq=5", 5),
    ("the epoch of a row", "UPDATE audit SET epoch=2 WHERE seq=3", 3),
    ("the hash of a row", "UPDATE audit SET hash=zeroblob(32) WHERE seq=3", 3),
    ("the predecessor of a row", "UPDATE audit SET prev=zeroblob(32) WHERE seq=3", 3),
    ("the first row", "UPDATE audit SET body='{}' WHERE seq=1", 1),
    ("the newest row", "UPDATE audit SET body='{}' WHERE seq=6", 6),
    ("a row missing", "DELETE FROM audit WHERE seq=3", 4),
    ("the first row missing", "DELETE FROM audit WHERE seq=1", 2),
    ("a row moved", "UPDATE audit SET seq=60 WHERE seq=6", 60),
    ("two rows exchanged", "UPDATE audit SET body=CASE seq WHEN 2 THEN '{\"n\":3}' ELSE '{\"n\":2}' END"
     " WHERE seq IN(2, 3)", 2),
]  # fmt: skip


@pytest.mark.parametrize(("what", "statement", "at"), DAMAGES, ids=[d[0] for d in DAMAGES])
def test_chain_when_damaged_then_the_first_row_that_does_not_fit_is_named(
    chain: sqlite3.Connection, what: str, statement: str, at: int
) -> None:
    chain.execute(statement)
    assert audit.first_break(chain, 1000) == at, what


def test_chain_when_a_row_was_appended_over_a_gap_then_it_does_not_fit(chain: sqlite3.Connection) -> None:
    _, prev = audit.tip(chain)
    row = (8, prev, row_hash(prev, 8, None, 1, "{}"), None, 1, "{}")
    chain.execute("INSERT INTO audit(seq, prev, hash, op_id, epoch, body) VALUES(?,?,?,?,?,?)", row)
    assert audit.first_break(chain, 1000) == 8


@pytest.mark.parametrize(
    ("statement", "last", "at"),
    [
        ("UPDATE audit SET body='{}' WHERE seq=2", 4, None),
        ("UPDATE audit SET body='{}' WHERE seq=2", 5, 2),
        ("DELETE FROM audit WHERE seq=2", 4, 3),
        ("DELETE FROM audit WHERE seq=2", 3, None),
        ("UPDATE audit SET hash=zeroblob(32) WHERE seq=3", 3, 4),
    ],
    ids=["before the window", "in the window", "just before the window", "far before", "hash before the window"],
)
def test_chain_when_only_the_newest_rows_are_asked_then_those_and_their_predecessor_count(
    chain: sqlite3.Connection, statement: str, last: int, at: int | None
) -> None:
    chain.execute(statement)
    assert audit.first_break(chain, last) == at


def test_page_when_asked_again_and_again_then_every_row_comes_once_in_order(chain: sqlite3.Connection) -> None:
    rows: list[AuditRow] = []
    sizes = []
    while page := audit.page(chain, rows[-1].seq if rows else 0, 4):
        rows += page
        sizes.append(len(page))
    assert sizes == [4, 2]
    assert rows == [AuditRow(seq, seq if seq % 2 else None, 1, {"n": seq}) for seq in range(1, 7)]


def test_page_when_after_the_newest_row_then_empty(chain: sqlite3.Connection) -> None:
    assert audit.page(chain, 6, 100) == []
    assert audit.page(chain, 0, 0) == []


def test_body_when_it_holds_odd_text_then_it_is_ascii_in_the_file_and_comes_back(chain: sqlite3.Connection) -> None:
    audit.append(chain, 1, None, {"why": "grüße \ud800 \0"})
    assert chain.execute("SELECT body FROM audit WHERE seq=7").fetchone()[0].isascii()
    assert audit.page(chain, 6, 1)[0].body == {"why": "grüße \ud800 \0"}
    assert audit.first_break(chain, 1000) is None
