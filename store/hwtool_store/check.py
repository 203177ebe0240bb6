"""`store verify`: everything that must hold in a store or a backup that nobody has open, as sentences.

    file        SQLite's own integrity check, the header, the schema as the file has it
    chain       every audit row, hashed over the one before
    keys        both witnesses of every key, of rows and tombstones, and none that is both
    operations  states and verdicts as the state machine allows them, with a record of each in the chain
    anchor      not ahead of the chain (of a store; a backup has none)

Reads only. The writer's rules keep all of this while a store is in use; this finds what a disk did to it.
"""

from __future__ import annotations

import sqlite3
import uuid
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Final

from hwtool_store import audit, operations, schema
from hwtool_store.anchor import Anchor

MOST: Final = 50  # sentences; a damaged page breaks many things at once
RULES: Final = {  # what no row may be, with the condition that finds it
    "it is DONE and has no response": "state='DONE' AND response IS NULL AND verdict<>'denied'",
    "it was sent and has no picture from before": "intent_ns IS NOT NULL AND pre IS NULL",
    "it is open and has no time of its intent": "state IN('INTENT','UNKNOWN') AND intent_ns IS NULL",
    "its epoch never began": "epoch NOT IN (SELECT epoch FROM epoch)",
    "its header is not there": "parent_op IS NOT NULL AND parent_op NOT IN (SELECT op_id FROM op)",
    "the journal does not tell of its intent": "intent_ns IS NOT NULL AND op_id NOT IN (SELECT op_id FROM told)",
}


@dataclass(frozen=True)
class Report:
    """What was found.

    Attributes:
        faults: at most 50 sentences, none if all is well.
        counts: rows looked at, by table.
    """

    faults: list[str]
    counts: dict[str, int]


def verify(database: Path, anchor: Path | None = None) -> Report:
    """Look at a database file that nobody has open, and at its anchor where it has one.

    The file is opened as it is: a write-ahead log beside it is part of it, and is read, not removed.
    """
    faults: list[str] = []
    counts: dict[str, int] = {}
    try:
        conn = sqlite3.connect(f"file:{database}?mode=ro", uri=True, isolation_level=None)
    except sqlite3.Error as error:
        return Report([f"{database} cannot be opened: {error}"], counts)
    try:
        for fault in _faults(conn, anchor, counts):
            faults.append(fault)
            if len(faults) >= MOST:
                faults.append("and more: only the first are told")
                break
    except (sqlite3.Error, ValueError) as error:
        faults.append(f"{database} cannot be read to its end: {error}")
    finally:
        conn.close()
    return Report(faults, counts)


def _faults(conn: sqlite3.Connection, anchor: Path | None, counts: dict[str, int]) -> Iterator[str]:
    if conn.execute("PRAGMA application_id").fetchone()[0] != schema.APPLICATION_ID:
        yield "it is not a store of hwtool"
        return
    for (told,) in conn.execute("PRAGMA integrity_check"):
        if told != "ok":
            yield f"SQLite: {told}"
    for table, *_ in conn.execute("PRAGMA foreign_key_check"):
        yield f"a row of {table} refers to one that is not there"
    found = schema.hash_of(conn)
    if found not in schema.KNOWN:
        yield f"the schema is {found[:12]}, which no version of hwtool made"
    yield from _chain(conn, counts)
    yield from _keys(conn, counts)
    yield from _operations(conn)
    if anchor is not None:
        yield from _anchored(conn, anchor)


def _chain(conn: sqlite3.Connection, counts: dict[str, int]) -> Iterator[str]:
    newest, _ = audit.tip(conn)
    counts["audit"] = newest
    broken = audit.first_break(conn, newest + 1)
    if broken is not None:
        yield f"the audit chain is broken at row {broken}"


def _keys(conn: sqlite3.Connection, counts: dict[str, int]) -> Iterator[str]:
    counts["op"] = counts["tomb"] = 0
    for op_id, caller_id, key, hashed in conn.execute("SELECT op_id, caller_id, key, key_hash FROM op NOT INDEXED"):
        counts["op"] += 1
        if operations.key_hash(key) != hashed:
            yield f"operation {op_id}: its key {key!r} and the hash of it do not fit"
        for index, column, value in (("its first index", "key", key), ("its second index", "key_hash", hashed)):
            by = conn.execute(f"SELECT op_id FROM op WHERE caller_id=? AND {column}=?", (caller_id, value)).fetchone()
            if by != (op_id,):
                yield f"operation {op_id}: {index} does not know its key"
        if conn.execute("SELECT 1 FROM tomb WHERE caller_id=? AND key_hash=?", (caller_id, hashed)).fetchone():
            yield f"operation {op_id}: its key has a tombstone too"
    for caller_id, hashed in conn.execute("SELECT caller_id, key_hash FROM tomb"):
        counts["tomb"] += 1
        witness = "SELECT 1 FROM tomb WHERE caller_id=? AND substr(key_hash,9)=?"
        if conn.execute(witness, (caller_id, hashed[8:])).fetchone() is None:
            yield f"a tombstone of caller {caller_id} has no second witness"


def _operations(conn: sqlite3.Connection) -> Iterator[str]:
    """What the triggers keep while the store is in use, asked of the rows as they lie there."""
    conn.execute("CREATE TEMP TABLE told(op_id INTEGER PRIMARY KEY)")
    conn.execute(
        "INSERT OR IGNORE INTO told SELECT op_id FROM audit WHERE op_id IS NOT NULL"
        " AND json_extract(body,'$.what')='intent'"
    )
    for what, where in RULES.items():
        for (op_id,) in conn.execute(f"SELECT op_id FROM op WHERE {where} LIMIT {MOST}"):
            yield f"operation {op_id}: {what}"
    open_ones = (
        "SELECT device_id, group_concat(op_id) FROM op WHERE state IN('INTENT','UNKNOWN') AND device_id IS NOT NULL"
        " GROUP BY device_id, kind='safe_state' HAVING count(*)>1"
    )
    for device_id, ids in conn.execute(open_ones):
        yield f"device {device_id} has several open operations: {ids}"
    for (op_id,) in conn.execute("SELECT op_id FROM op_data WHERE op_id NOT IN (SELECT op_id FROM op) LIMIT 50"):
        yield f"values are kept of operation {op_id}, which is not there"


def _anchored(conn: sqlite3.Connection, path: Path) -> Iterator[str]:
    mark = Anchor(path).read()
    if mark is None:
        yield "it has no anchor: it may be an old copy, and used keys would look fresh"
        return
    row = conn.execute("SELECT v FROM meta WHERE k='store_uuid'").fetchone()
    if row is None or uuid.UUID(row[0]) != mark.store_id:
        yield "its anchor belongs to another store"
        return
    newest, _ = audit.tip(conn)
    if mark.audit_seq > newest:
        yield f"it is older than its anchor: row {mark.audit_seq} was there, the newest is {newest}"
        return
    found = conn.execute("SELECT hash FROM audit WHERE seq=?", (mark.audit_seq,)).fetchone()
    if mark.audit_seq and (found is None or found[0] != mark.audit_hash):
        yield f"its anchor knows another row {mark.audit_seq} than the chain has"
    epoch = conn.execute("SELECT coalesce(max(epoch), 0) FROM epoch").fetchone()[0]
    if mark.epoch > epoch:
        yield f"its anchor knows epoch {mark.epoch}, the database {epoch}"
