"""Operations: keys, the state machine's four transactions, holds and approvals, as jobs for the writer.

    (no row) ─T0→ PENDING ─T1→ INTENT ─T2→ DONE          T0 a request that waits for a person
    (no row) ─────────────T1→ INTENT ─────→ UNKNOWN      T1 the intent, before the bus sees the effect
                                UNKNOWN ─T3→ DONE        T2 the outcome; T3 its settlement by rule or person

Each function runs inside the writer's transaction and appends the audit row of what it did, so that a state and its
record cannot part. The legal transitions stand in schema.sql as triggers; this file never checks them a second time.

A key is fresh only if two independent unique indexes miss it. Where they disagree, the file is damaged and everything
stops: a key that looks fresh would execute twice.
"""

from __future__ import annotations

import hashlib
import json
import sqlite3
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any, Final, Literal, TypeVar

from hwtool_store import audit
from hwtool_store.faults import KeyTaken, StoreFatal, StoreRule

T = TypeVar("T")
Job = Callable[[sqlite3.Connection], T]
State = Literal["PENDING", "INTENT", "UNKNOWN", "DONE"]
COLUMNS = (
    "op.op_id, c.principal, op.key, op.digest, d.locus, op.kind, op.request, op.contract_hash, op.epoch, "
    "op.device_gen, op.pre, op.state, op.verdict, op.verdict_by, op.response, op.evidence, "
    "op.created_ns, op.intent_ns, op.done_ns, op.parent_op, op.run_id"
)
FROM = "FROM op JOIN caller c USING(caller_id) LEFT JOIN device d USING(device_id)"


@dataclass(frozen=True, slots=True)
class NewOp:
    """An operation that is about to get its row.

    Attributes:
        request: the resolved plan and every input of the rule that may have to settle it.
        pre: what was read beforehand; None only while it waits for a person.
        locus: None for the header of a sequence, which has no device of its own.
        parent_op: of a step: its header.
        run_id: the run it belongs to, if any.
    """

    principal: str
    key: str
    digest: bytes
    locus: str | None
    kind: Literal["write", "update", "read", "safe_state", "sequence"]
    request: dict[str, Any]
    contract_hash: bytes
    device_gen: int
    now_ns: int
    pre: dict[str, Any] | None = None
    parent_op: int | None = None
    run_id: int | None = None


@dataclass(frozen=True, slots=True)
class OpRow:
    """A row of `op`, JSON columns parsed."""

    op_id: int
    principal: str
    key: str
    digest: bytes
    locus: str | None
    kind: str
    request: dict[str, Any]
    contract_hash: bytes
    epoch: int
    device_gen: int
    pre: dict[str, Any] | None
    state: State
    verdict: str | None
    verdict_by: str | None
    response: dict[str, Any] | None
    evidence: dict[str, Any] | None
    created_ns: int
    intent_ns: int | None
    done_ns: int | None
    parent_op: int | None = None
    run_id: int | None = None


@dataclass(frozen=True, slots=True)
class Tombstone:
    """What is left of a pruned key."""

    verdict: str


@dataclass(frozen=True, slots=True)
class Grant:
    """A person's decision on a pending operation."""

    approver: str
    decision: Literal["granted", "denied"]
    host_boot_id: str
    expires_boottime_ns: int
    used: bool


def _parsed(text: str | None) -> dict[str, Any] | None:
    return None if text is None else json.loads(text)


def _row(values: tuple[Any, ...]) -> OpRow:
    row = list(values)
    row[6] = json.loads(row[6])
    for index in (10, 14, 15):
        row[index] = _parsed(row[index])
    return OpRow(*row)


def _text(data: dict[str, Any] | None) -> str | None:
    return None if data is None else json.dumps(data, separators=(",", ":"), sort_keys=True)


def key_hash(key: str) -> bytes:
    """The second witness of a key: 16 bytes of SHA-256."""
    return hashlib.sha256(b"hwtool.key.v1\0" + key.encode()).digest()[:16]


def current_epoch(conn: sqlite3.Connection) -> int:
    """The epoch of this start."""
    return int(conn.execute("SELECT max(epoch) FROM epoch").fetchone()[0])


def _witnessed(conn: sqlite3.Connection, table: str, column: str, value: str) -> int | None:
    """The id of a row by its unique index and by a walk of the table; both must agree, or keys would look fresh."""
    id_column = f"{table}_id"
    by_index = conn.execute(f"SELECT {id_column} FROM {table} WHERE {column}=?", (value,)).fetchone()
    by_walk = conn.execute(f"SELECT {id_column} FROM {table} NOT INDEXED WHERE {column}=?", (value,)).fetchone()
    if by_index != by_walk:
        raise StoreFatal(f"index and table disagree about {column} {value!r}: the database is damaged")
    return None if by_index is None else int(by_index[0])


def caller(conn: sqlite3.Connection, principal: str) -> int:
    """The row of a principal, made if it is new.

    Raises:
        StoreFatal: index and table disagree.
    """
    found = _witnessed(conn, "caller", "principal", principal)
    if found is None:
        found = int(conn.execute("INSERT INTO caller(principal) VALUES(?)", (principal,)).lastrowid or 0)
    return found


def _changed_one(cursor: sqlite3.Cursor, what: str) -> None:
    """A transition that found no row must not leave a record of having happened."""
    if cursor.rowcount != 1:
        raise StoreRule(f"{what}: no such row")


@dataclass(frozen=True, slots=True)
class DeviceRow:
    """A locus and what is known of the device there."""

    device_id: int
    locus: str
    identity: str | None
    generation: int
    boot_evidence: dict[str, Any]


def device(conn: sqlite3.Connection, locus: str) -> DeviceRow:
    """The row of a locus, made if it is new.

    Raises:
        StoreFatal: index and table disagree.
    """
    if _witnessed(conn, "device", "locus", locus) is None:
        conn.execute("INSERT INTO device(locus) VALUES(?)", (locus,))
    values = conn.execute(
        "SELECT device_id, locus, identity, gen, boot_evidence FROM device WHERE locus=?", (locus,)
    ).fetchone()
    return DeviceRow(values[0], values[1], values[2], values[3], json.loads(values[4]))


def note_boot(
    conn: sqlite3.Connection, locus: str, evidence: dict[str, Any], restarted: bool, now_ns: int
) -> DeviceRow:
    """Record boot evidence; a restart raises the device's generation, and what else was known of it is forgotten."""
    row = device(conn, locus)
    if not restarted:
        evidence = {**row.boot_evidence, **evidence}
    conn.execute(
        "UPDATE device SET gen=gen+?, boot_evidence=? WHERE device_id=?",
        (1 if restarted else 0, json.dumps(evidence, sort_keys=True), row.device_id),
    )
    if restarted:
        body = {"at_ns": now_ns, "what": "generation", "locus": locus, "generation": row.generation + 1}
        audit.append(conn, current_epoch(conn), None, body)
    return device(conn, locus)


def note_home(conn: sqlite3.Connection, locus: str, home: dict[str, int]) -> None:
    """Keep what the bank selectors of a device hold outside any access, for a daemon that is killed inside one."""
    row = device(conn, locus)
    evidence = json.dumps({**row.boot_evidence, "home": home}, sort_keys=True)
    conn.execute("UPDATE device SET boot_evidence=? WHERE device_id=?", (evidence, row.device_id))


def find(conn: sqlite3.Connection, principal: str, key: str) -> OpRow | Tombstone | None:
    """The row or tombstone of a key, None if it is fresh by both witnesses.

    Raises:
        StoreFatal: the witnesses disagree; an index is damaged.
    """
    owner = _witnessed(conn, "caller", "principal", principal)
    if owner is None:
        return None
    hashed = key_hash(key)
    by_key = conn.execute("SELECT op_id FROM op WHERE caller_id=? AND key=?", (owner, key)).fetchone()
    by_hash = conn.execute("SELECT op_id FROM op WHERE caller_id=? AND key_hash=?", (owner, hashed)).fetchone()
    if by_key != by_hash:
        raise StoreFatal(f"the two indexes of keys disagree about {key!r}: the database is damaged")
    if by_key is not None:
        row = get(conn, by_key[0])
        if row is None:
            raise StoreFatal(f"the indexes know key {key!r}, the table does not: the database is damaged")
        return row
    tomb = conn.execute("SELECT verdict FROM tomb WHERE caller_id=? AND key_hash=?", (owner, hashed)).fetchone()
    # answered from the index tomb_key2 alone: selecting a column of the table would walk the table's own tree instead
    witness = conn.execute("SELECT 1 FROM tomb WHERE caller_id=? AND substr(key_hash,9)=?", (owner, hashed[8:]))
    if (tomb is None) != (witness.fetchone() is None):
        raise StoreFatal(f"the two witnesses of pruned keys disagree about {key!r}: the database is damaged")
    return None if tomb is None else Tombstone(tomb[0])


def get(conn: sqlite3.Connection, op_id: int) -> OpRow | None:
    """One operation by number."""
    values = conn.execute(f"SELECT {COLUMNS} {FROM} WHERE op.op_id=?", (op_id,)).fetchone()
    return None if values is None else _row(values)


def _insert(conn: sqlite3.Connection, new: NewOp, state: State) -> int:
    found = find(conn, new.principal, new.key)
    if isinstance(found, OpRow):
        raise KeyTaken(found.op_id)
    if found is not None:
        raise StoreRule("key expired")
    cursor = conn.execute(
        "INSERT INTO op(caller_id, key, key_hash, digest, device_id, kind, request, contract_hash, epoch, device_gen,"
        " pre, state, created_ns, intent_ns, parent_op, run_id) VALUES(?,?,?,?,?,?,?,?,?,?,?,?,?,?,?,?)",
        (
            caller(conn, new.principal),
            new.key,
            key_hash(new.key),
            new.digest,
            None if new.locus is None else device(conn, new.locus).device_id,
            new.kind,
            _text(new.request),
            new.contract_hash,
            current_epoch(conn),
            new.device_gen,
            _text(new.pre),
            state,
            new.now_ns,
            new.now_ns if state == "INTENT" else None,
            new.parent_op,
            new.run_id,
        ),
    )
    return int(cursor.lastrowid or 0)


def t0_pending(conn: sqlite3.Connection, new: NewOp, note: dict[str, Any]) -> int:
    """T0: a request that needs a person gets its row; answers the op's number.

    Raises:
        KeyTaken: the key has a row.
    """
    op_id = _insert(conn, new, "PENDING")
    audit.append(conn, current_epoch(conn), op_id, note)
    return op_id


def t1_intent(conn: sqlite3.Connection, new: NewOp, note: dict[str, Any]) -> int:
    """T1: the intent, durable before the bus sees the effect; answers the op's number.

    Raises:
        KeyTaken: the key has a row.
        StoreRule: the device is stopped or held (the caller missed it; the database did not).
    """
    op_id = _insert(conn, new, "INTENT")
    audit.append(conn, current_epoch(conn), op_id, note)
    return op_id


def t1_safe_state(conn: sqlite3.Connection, new: NewOp, note: dict[str, Any]) -> int:
    """T1 of a safe state: from here on no rule settles what is open on its device, only a person; answers its number.

    Raises:
        KeyTaken: the key has a row.
        StoreRule: another safe state of the device is open.
    """
    op_id = t1_intent(conn, new, note)
    conn.execute(
        "UPDATE op SET evidence=json_set(coalesce(evidence, '{}'), '$.overtaken_by', ?)"
        " WHERE device_id=(SELECT device_id FROM op WHERE op_id=?) AND state IN('INTENT','UNKNOWN') AND op_id<>?",
        (op_id, op_id, op_id),
    )
    return op_id


def t1_granted(
    conn: sqlite3.Connection, op_id: int, pre: dict[str, Any], device_gen: int, now_ns: int, note: dict[str, Any]
) -> int:
    """T1 of a pending operation: consumes its grant.

    Raises:
        StoreRule: not granted, granted for something else, or the device is stopped or held.
    """
    epoch = current_epoch(conn)
    conn.execute("UPDATE approval SET used_epoch=? WHERE op_id=? AND decision='granted'", (epoch, op_id))
    cursor = conn.execute(
        "UPDATE op SET state='INTENT', pre=?, epoch=?, device_gen=?, intent_ns=? WHERE op_id=?",
        (_text(pre), epoch, device_gen, now_ns, op_id),
    )
    _changed_one(cursor, f"intent of operation {op_id}")
    audit.append(conn, epoch, op_id, note)
    return op_id


def t2_done(
    conn: sqlite3.Connection,
    op_id: int,
    verdict: str,
    response: dict[str, Any],
    evidence: dict[str, Any],
    now_ns: int,
    note: dict[str, Any],
    data: list[bytes] | None = None,
) -> int:
    """T2: the outcome that the bus showed; values that a read consumed go to op_data with it. Answers the audit seq."""
    keep(conn, op_id, data or [])
    cursor = conn.execute(
        "UPDATE op SET state='DONE', verdict=?, verdict_by='bus', response=?, evidence=?, done_ns=? WHERE op_id=?",
        (verdict, _text(response), _text(evidence), now_ns, op_id),
    )
    _changed_one(cursor, f"outcome of operation {op_id}")
    return audit.append(conn, current_epoch(conn), op_id, note)


def keep(conn: sqlite3.Connection, op_id: int, data: list[bytes]) -> None:
    """Values that a read consumed, from its first: those that are not on record yet, each a chunk of its own."""
    (known,) = conn.execute("SELECT count(*) FROM op_data WHERE op_id=?", (op_id,)).fetchone()
    for chunk, value in list(enumerate(data))[known:]:
        conn.execute("INSERT INTO op_data(op_id, chunk, data) VALUES(?,?,?)", (op_id, chunk, value))


def to_unknown(
    conn: sqlite3.Connection,
    op_id: int,
    response: dict[str, Any],
    evidence: dict[str, Any],
    note: dict[str, Any],
    data: list[bytes] | None = None,
) -> int:
    """The outcome cannot be told: the device is held from here on; values in hand are kept. Answers the audit seq."""
    keep(conn, op_id, data or [])
    cursor = conn.execute(
        "UPDATE op SET state='UNKNOWN', response=?, evidence=? WHERE op_id=?",
        (_text(response), _text(evidence), op_id),
    )
    _changed_one(cursor, f"operation {op_id} becoming unknown")
    return audit.append(conn, current_epoch(conn), op_id, note)


def t3_settle(
    conn: sqlite3.Connection,
    op_id: int,
    verdict: str,
    by: Literal["rule", "human"],
    response: dict[str, Any],
    evidence: dict[str, Any],
    now_ns: int,
    note: dict[str, Any],
) -> int:
    """T3: an unknown operation is settled; outcome and key change in one transaction. Answers the audit seq.

    Raises:
        StoreRule: it is not unknown any more, or a rule wants to settle what a safe state has overtaken.
    """
    row = conn.execute(
        "SELECT kind<>'sequence' AND json_extract(evidence, '$.overtaken_by') IS NOT NULL FROM op WHERE op_id=?",
        (op_id,),
    ).fetchone()
    if by == "rule" and row is not None and row[0]:
        raise StoreRule(f"settlement of operation {op_id}: a safe state was sent since, only a person can tell")
    cursor = conn.execute(
        "UPDATE op SET state='DONE', verdict=?, verdict_by=?, response=?, evidence=?, done_ns=? WHERE op_id=?",
        (verdict, by, _text(response), _text(evidence), now_ns, op_id),
    )
    _changed_one(cursor, f"settlement of operation {op_id}")
    return audit.append(conn, current_epoch(conn), op_id, note)


def deny(
    conn: sqlite3.Connection,
    op_id: int,
    by: Literal["human", "rule"],
    response: dict[str, Any],
    now_ns: int,
    note: dict[str, Any],
) -> int:
    """A pending operation ends unapproved. Answers the audit seq."""
    cursor = conn.execute(
        "UPDATE op SET state='DONE', verdict='denied', verdict_by=?, response=?, done_ns=? WHERE op_id=?",
        (by, _text(response), now_ns, op_id),
    )
    _changed_one(cursor, f"denial of operation {op_id}")
    return audit.append(conn, current_epoch(conn), op_id, note)


def grant(conn: sqlite3.Connection, op: OpRow, given: Grant, shown: dict[str, Any], note: dict[str, Any]) -> int:
    """A person's grant, bound to digest, contract, generation and what was `shown`. Answers the audit seq.

    Raises:
        StoreRule: the operation is not pending any more, or has a decision.
    """
    cursor = conn.execute("UPDATE op SET evidence=? WHERE op_id=? AND state='PENDING'", (_text(shown), op.op_id))
    _changed_one(cursor, f"approval of operation {op.op_id}")
    conn.execute(
        "INSERT INTO approval(op_id, digest, contract_hash, device_gen, approver, decision, host_boot_id,"
        " expires_boottime_ns) VALUES(?,?,?,?,?,?,?,?)",
        (
            op.op_id,
            op.digest,
            op.contract_hash,
            op.device_gen,
            given.approver,
            given.decision,
            given.host_boot_id,
            given.expires_boottime_ns,
        ),
    )
    return audit.append(conn, current_epoch(conn), op.op_id, note)


def grant_of(conn: sqlite3.Connection, op_id: int) -> Grant | None:
    """The decision on a pending operation, if there is one."""
    row = conn.execute(
        "SELECT approver, decision, host_boot_id, expires_boottime_ns, used_epoch FROM approval WHERE op_id=?",
        (op_id,),
    ).fetchone()
    return None if row is None else Grant(row[0], row[1], row[2], row[3], row[4] is not None)


def in_state(conn: sqlite3.Connection, *states: State) -> list[OpRow]:
    """Every operation in one of these states, oldest first."""
    marks = ",".join("?" * len(states))
    live = "" if "DONE" in states else "op.state<>'DONE' AND "  # in these words the partial index is used
    found = conn.execute(f"SELECT op_id FROM op WHERE {live}op.state IN ({marks})", states).fetchall()
    rows = (get(conn, op_id) for (op_id,) in sorted(found))
    return [row for row in rows if row is not None]


def open_safe_states(conn: sqlite3.Connection, locus: str) -> list[OpRow]:
    """The safe states of a device that are unknown; at most one."""
    rows = conn.execute(
        f"SELECT {COLUMNS} {FROM} WHERE d.locus=? AND op.kind='safe_state' AND op.state='UNKNOWN' AND op.state<>'DONE'",
        (locus,),
    ).fetchall()
    return [_row(r) for r in rows]


def unknown_of(conn: sqlite3.Connection, locus: str) -> list[int]:
    """Numbers of the operations of a device whose outcome is not on record."""
    rows = conn.execute(
        "SELECT op_id FROM op JOIN device USING(device_id) WHERE locus=? AND state IN('INTENT','UNKNOWN')"
        " ORDER BY op_id",
        (locus,),
    ).fetchall()
    return [int(r[0]) for r in rows]


def children(conn: sqlite3.Connection, header: int) -> list[OpRow]:
    """The operations of a sequence's steps, in order."""
    rows = conn.execute(f"SELECT {COLUMNS} {FROM} WHERE op.parent_op=? ORDER BY op.op_id", (header,)).fetchall()
    return [_row(r) for r in rows]


def step_number(child: OpRow) -> int:
    """The number of a step, which its key ends with."""
    return int(child.key.rpartition("#")[2])


def pending_of(conn: sqlite3.Connection, principal: str) -> int:
    """How many requests of a principal wait for a person."""
    row = conn.execute(
        "SELECT count(*) FROM op JOIN caller USING(caller_id) WHERE principal=? AND state='PENDING' AND state<>'DONE'",
        (principal,),
    ).fetchone()
    return int(row[0])


@dataclass(frozen=True, slots=True)
class HoldRow:
    """A person's hold on a locus."""

    locus: str
    by: str
    why: str
    since_ns: int


def last_written(conn: sqlite3.Connection, locus: str, generation: int, register: str) -> int | None:
    """The value that a register of a locus was written last in this generation; None if it cannot be told.

    A write whose outcome is open, or that was applied in part or never settled as done, hides what was there before.
    """
    where = (
        " FROM op WHERE device_id=(SELECT device_id FROM device WHERE locus=?) AND device_gen=?"
        " AND json_extract(request, '$.values.' || json_quote(?)) IS NOT NULL"
    )
    place = (locus, generation, register)
    if conn.execute(f"SELECT 1 {where} AND {OPEN}", place).fetchone() is not None:
        return None
    rows = conn.execute(
        "SELECT verdict, json_extract(request, '$.values.' || json_quote(?)), json_extract(response, '$.effects')"
        f" {where} AND state='DONE' ORDER BY op_id DESC LIMIT 64",
        (register, *place),
    )
    for verdict, value, effects in rows.fetchall():
        if verdict in ("applied", "satisfied"):
            return int(value, 16)
        if not (verdict in ("not_applied", "denied") and effects == "none"):
            return None
    return None


OPEN: Final = "state IN('INTENT','UNKNOWN')"  # in these words the index of what is open is used
OLDER_IN_A_ROW: Final = 10_000  # a clock that was set back for a while must not hide what came before


def written_since(conn: sqlite3.Connection, locus: str, since_ns: int) -> list[str]:
    """The registers that writes begun since then wrote at a locus, one entry for each write; safe states left out."""
    query = (
        "SELECT intent_ns, request FROM op WHERE device_id=(SELECT device_id FROM device WHERE locus=?)"
        " AND kind IN('write','update') AND {} ORDER BY op_id DESC"
    )
    written: list[str] = []
    for (request,) in conn.execute(f"SELECT request FROM ({query.format(OPEN)})", (locus,)):
        written += json.loads(request)["registers"]  # begun, and not ended yet
    older = 0
    for intent_ns, request in conn.execute(query.format("state='DONE'"), (locus,)):
        older = 0 if intent_ns is not None and intent_ns >= since_ns else older + 1
        if older > OLDER_IN_A_ROW:
            break
        if not older:
            written += json.loads(request)["registers"]
    return written


def holds(conn: sqlite3.Connection) -> list[HoldRow]:
    """Every hold that a person put on."""
    rows = conn.execute("SELECT locus, by, why, since_ns FROM hold JOIN device USING(device_id)").fetchall()
    return [HoldRow(*r) for r in rows]


def put_hold(conn: sqlite3.Connection, locus: str, by: str, why: str, now_ns: int, note: dict[str, Any]) -> int:
    """Hold a device. Answers the audit seq."""
    conn.execute(
        "INSERT INTO hold(device_id, by, why, since_ns) VALUES(?,?,?,?)"
        " ON CONFLICT(device_id) DO UPDATE SET by=excluded.by, why=excluded.why, since_ns=excluded.since_ns",
        (device(conn, locus).device_id, by, why, now_ns),
    )
    return audit.append(conn, current_epoch(conn), None, note)


def take_hold(conn: sqlite3.Connection, locus: str, note: dict[str, Any]) -> int:
    """Take a person's hold off a device. Answers the audit seq.

    Raises:
        StoreRule: an operation on it is still unknown, or there was no hold.
    """
    cursor = conn.execute("DELETE FROM hold WHERE device_id=?", (device(conn, locus).device_id,))
    _changed_one(cursor, f"hold on {locus}")
    return audit.append(conn, current_epoch(conn), None, note)


def note(conn: sqlite3.Connection, body: dict[str, Any], op_id: int | None = None) -> int:
    """An audit row without a change of state (a refusal, a rehearsal). Answers its seq."""
    return audit.append(conn, current_epoch(conn), op_id, body)


def data_of(conn: sqlite3.Connection, op_id: int) -> list[bytes]:
    """The values a read consumed, in order."""
    return [r[0] for r in conn.execute("SELECT data FROM op_data WHERE op_id=? ORDER BY chunk", (op_id,)).fetchall()]


def prune(conn: sqlite3.Connection, keep: int, now_ns: int, most: int = 200) -> int:
    """Turn DONE operations beyond the newest `keep` into tombstones, at most `most` in one step; answers how many.

    UNKNOWN and PENDING stay, whatever their age, and so do the steps of a sequence that has not ended.
    """
    surplus = conn.execute("SELECT count(*) FROM op WHERE state='DONE'").fetchone()[0] - keep
    rows = conn.execute(
        "SELECT op_id, caller_id, key_hash, digest, verdict FROM op WHERE state='DONE' AND NOT EXISTS("
        "SELECT 1 FROM op header WHERE header.op_id=op.parent_op AND header.state<>'DONE') ORDER BY op_id LIMIT ?",
        (max(0, min(most, surplus)),),
    ).fetchall()
    for op_id, caller_id, hashed, digest, verdict in rows:
        conn.execute(
            "INSERT INTO tomb(caller_id, key_hash, digest, verdict) VALUES(?,?,?,?)",
            (caller_id, hashed, digest[:16], verdict),
        )
        conn.execute("DELETE FROM op WHERE op_id=?", (op_id,))
        conn.execute("DELETE FROM op_data WHERE op_id=?", (op_id,))
        conn.execute("DELETE FROM approval WHERE op_id=?", (op_id,))
    if rows:
        body = {"at_ns": now_ns, "what": "pruned", "operations": len(rows), "newest": rows[-1][0]}
        audit.append(conn, current_epoch(conn), None, body)
    return len(rows)
