"""The audit chain: one row for each thing that was attempted or settled, each hashed over the one before.

Evidence against accidents, not against the daemon's own uid. A body is JSON with what identifies the action and its
outcome; sensitive values never get here.
"""

from __future__ import annotations

import hashlib
import json
import sqlite3
from typing import Any, Final, NamedTuple

GENESIS: Final = bytes(32)
VERIFIED_AT_START: Final = 1000
MAX_PAGE: Final = 200
LOOK_BACK: Final = 20_000
# a row is about a device, or, of a sequence, about several
ABOUT: Final = "(json_extract(body,'$.device')=? OR EXISTS(SELECT 1 FROM json_each(body,'$.devices') WHERE value=?))"


class AuditRow(NamedTuple):
    """One row of the chain; `body` is the parsed JSON."""

    seq: int
    op_id: int | None
    epoch: int
    body: dict[str, Any]


class ChainRow(NamedTuple):
    """One row with its place in the chain."""

    seq: int
    op_id: int | None
    epoch: int
    body: dict[str, Any]
    prev: bytes
    hash: bytes


def text_of(body: dict[str, Any]) -> str:
    """The text of a body that is hashed."""
    return json.dumps(body, separators=(",", ":"), ensure_ascii=True)


def row_hash(prev: bytes, seq: int, op_id: int | None, epoch: int, body: str) -> bytes:
    """SHA-256 over the previous hash and the row's own members, lengths unambiguous."""
    digest = hashlib.sha256(b"hwtool.audit.v1\0")
    digest.update(prev)
    digest.update(f"{seq}\0{op_id}\0{epoch}\0".encode())
    digest.update(body.encode())
    return digest.digest()


def tip(conn: sqlite3.Connection) -> tuple[int, bytes]:
    """Sequence and hash of the newest row; 0 and zeroes for an empty chain."""
    row = conn.execute("SELECT seq, hash FROM audit ORDER BY seq DESC LIMIT 1").fetchone()
    return (0, GENESIS) if row is None else (row[0], row[1])


def append(conn: sqlite3.Connection, epoch: int, op_id: int | None, body: dict[str, Any]) -> int:
    """Append one row in the current transaction; answers its sequence."""
    seq, prev = tip(conn)
    text = text_of(body)
    seq += 1
    conn.execute(
        "INSERT INTO audit(seq, prev, hash, op_id, epoch, body) VALUES(?,?,?,?,?,?)",
        (seq, prev, row_hash(prev, seq, op_id, epoch, text), op_id, epoch, text),
    )
    return seq


def first_break(conn: sqlite3.Connection, last: int) -> int | None:
    """Sequence of the first of the newest `last` rows that does not fit the chain, None if all do."""
    newest, _ = tip(conn)
    start = max(newest - last, 0)
    before = conn.execute("SELECT hash FROM audit WHERE seq=?", (start,)).fetchone()
    prev = GENESIS if start == 0 else (before[0] if before else b"")
    expected = start + 1
    for seq, stored_prev, stored, op_id, epoch, body in conn.execute(
        "SELECT seq, prev, hash, op_id, epoch, body FROM audit WHERE seq>? ORDER BY seq", (start,)
    ):
        if seq != expected or stored_prev != prev or row_hash(prev, seq, op_id, epoch, body) != stored:
            return int(seq)
        prev, expected = stored, seq + 1
    return None


def page(conn: sqlite3.Connection, after: int, limit: int, device: str | None = None) -> list[AuditRow]:
    """Rows after a sequence, oldest first, at most 200; only those about a device if one is named."""
    rows = conn.execute(
        f"SELECT seq, op_id, epoch, body FROM audit WHERE seq>? AND (? IS NULL OR {ABOUT}) ORDER BY seq LIMIT ?",
        (after, device, device, device, min(limit, MAX_PAGE)),
    ).fetchall()
    return [AuditRow(seq, op_id, epoch, json.loads(body)) for seq, op_id, epoch, body in rows]


def chain(conn: sqlite3.Connection, after: int, limit: int) -> list[ChainRow]:
    """Rows after a sequence with their hashes, oldest first, at most 200."""
    rows = conn.execute(
        "SELECT seq, op_id, epoch, body, prev, hash FROM audit WHERE seq>? ORDER BY seq LIMIT ?",
        (after, min(limit, MAX_PAGE)),
    ).fetchall()
    return [ChainRow(seq, op_id, epoch, json.loads(body), prev, hash_) for seq, op_id, epoch, body, prev, hash_ in rows]


def newest(conn: sqlite3.Connection, limit: int, device: str | None = None) -> list[AuditRow]:
    """The newest rows, oldest first; for a device, those among the newest `LOOK_BACK` rows of all."""
    rows = conn.execute(
        "SELECT seq, op_id, epoch, body FROM (SELECT * FROM audit ORDER BY seq DESC LIMIT ?)"
        f" WHERE ? IS NULL OR {ABOUT} ORDER BY seq DESC LIMIT ?",
        (LOOK_BACK, device, device, device, min(limit, MAX_PAGE)),
    ).fetchall()
    return [AuditRow(seq, op_id, epoch, json.loads(body)) for seq, op_id, epoch, body in reversed(rows)]
