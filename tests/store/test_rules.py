"""The rules that the database itself keeps: every trigger of schema.sql refuses what it is there for, and no more."""

from __future__ import annotations

import itertools
import sqlite3
from collections.abc import Iterator
from functools import partial
from pathlib import Path

import pytest

from hwtool_store import audit, schema
from hwtool_store.database import open_store
from hwtool_store.faults import StoreRule
from tests.store.conftest import START

# Ops of the scene, by number. Its devices: 1 free, 2 unknown and held, 3 with an intent, 4 held, 5 in safe_state
DONE, UNKNOWN, INTENT, PENDING, STOPPED, HELD, STALE, DENIED, READY = 1, 2, 3, 5, 6, 7, 8, 9, 10
OP = {
    "caller_id": "1",
    "key": "'fresh-0001'",
    "key_hash": "randomblob(16)",
    "digest": "zeroblob(32)",
    "device_id": "1",
    "kind": "'write'",
    "request": "'{}'",
    "contract_hash": "X'0C'",
    "epoch": "2",
    "device_gen": "1",
    "pre": "'{}'",
    "state": "'INTENT'",
    "created_ns": "0",
}
APPROVAL = {
    "digest": "zeroblob(32)",
    "contract_hash": "X'0C'",
    "device_gen": "1",
    "approver": "'alice'",
    "decision": "'granted'",
    "host_boot_id": "'boot-1'",
    "expires_boottime_ns": "9",
}


def insert(table: str, columns: dict[str, str], verb: str = "INSERT") -> str:
    return f"{verb} INTO {table}({','.join(columns)}) VALUES({','.join(columns.values())})"


def new_op(verb: str = "INSERT", **changed: str) -> str:
    return insert("op", {**OP, **changed}, verb)


def approval(op_id: int, **changed: str) -> str:
    return insert("approval", {"approval_id": str(op_id), "op_id": str(op_id), **APPROVAL, **changed})


def numbered(op_id: int, state: str, **changed: str) -> str:
    return new_op(op_id=str(op_id), key=f"'scene-{op_id:04}'", state=f"'{state}'", **changed)


SCENE = [
    "INSERT INTO epoch(epoch, host_boot_id, pid, wall_ns, boottime_ns, version) VALUES(2, 'boot-1', 7, 0, 0, 'v')",
    "INSERT INTO caller(caller_id, principal) VALUES(1, 'uid:1000')",
    *(f"INSERT INTO device(device_id, locus, gen) VALUES({n}, 'i2c:1:{n}', 3)" for n in range(1, 6)),
    numbered(DONE, "INTENT", key_hash="zeroblob(16)"),
    "INSERT INTO op_data(op_id, chunk, data) VALUES(1, 0, X'AA')",
    approval(DONE, used_epoch="2"),
    "UPDATE op SET state='DONE', verdict='applied', verdict_by='bus' WHERE op_id=1",
    numbered(UNKNOWN, "INTENT", device_id="2"),
    "UPDATE op SET state='UNKNOWN' WHERE op_id=2",
    numbered(INTENT, "INTENT", device_id="3"),
    "INSERT INTO op_data(op_id, chunk, data) VALUES(3, 0, X'AA')",
    numbered(4, "PENDING"),
    approval(4),
    numbered(PENDING, "PENDING"),
    numbered(STOPPED, "PENDING", device_id="3"),
    approval(STOPPED, used_epoch="2"),
    numbered(HELD, "PENDING", device_id="4"),
    approval(HELD, used_epoch="2"),
    numbered(STALE, "PENDING"),
    approval(STALE, used_epoch="1"),
    numbered(DENIED, "PENDING"),
    approval(DENIED, decision="'denied'", used_epoch="2"),
    numbered(READY, "PENDING"),
    approval(READY, used_epoch="2"),
    numbered(11, "INTENT", device_id="5", kind="'safe_state'"),
    numbered(12, "PENDING", device_id="5", kind="'safe_state'"),
    approval(12, used_epoch="2"),
    *(f"INSERT INTO hold(device_id, by, why, since_ns) VALUES({n}, 'bob', 'wiring', 0)" for n in (2, 4)),
    "INSERT INTO tomb(caller_id, key_hash, digest, verdict)"
    " VALUES(1, X'000102030405060708090A0B0C0D0E0F', zeroblob(16), 'applied')",
]


def set_up(conn: sqlite3.Connection) -> None:
    for statement in SCENE:
        conn.execute(statement)
    for number in (1, 2):
        audit.append(conn, 2, None, {"n": number})


@pytest.fixture(scope="module")
def scene() -> bytes:
    """The scene as the bytes of a database, made once."""
    conn = sqlite3.connect(":memory:", isolation_level=None)
    for pragma in ("foreign_keys=ON", "recursive_triggers=ON"):
        conn.execute(f"PRAGMA {pragma}")
    schema.create(conn, "00000000-0000-0000-0000-000000000001", "00")
    conn.execute("INSERT INTO epoch(host_boot_id, pid, wall_ns, boottime_ns, version) VALUES('boot-1', 7, 0, 0, 'v')")
    set_up(conn)
    made = conn.serialize()
    conn.close()
    return made


@pytest.fixture
def db(scene: bytes) -> Iterator[sqlite3.Connection]:
    """The scene in a database of its own, without the writer."""
    conn = sqlite3.connect(":memory:", isolation_level=None)
    conn.deserialize(scene)
    for pragma in ("foreign_keys=ON", "recursive_triggers=ON"):
        conn.execute(f"PRAGMA {pragma}")
    yield conn
    conn.close()


def intent_of(op_id: int, epoch: int = 2) -> str:
    return f"UPDATE op SET state='INTENT', epoch={epoch} WHERE op_id={op_id}"


def settled(op_id: int, verdict: str, by: str) -> str:
    return f"UPDATE op SET state='DONE', verdict='{verdict}', verdict_by='{by}' WHERE op_id={op_id}"


IMMUTABLE = {
    "op_id": "99",
    "caller_id": "2",
    "key": "'other-0001'",
    "key_hash": "X'FF00000000000000000000000000000F'",
    "digest": "randomblob(32)",
    "device_id": "1",
    "kind": "'raw'",
    "request": "'[]'",
    "contract_hash": "X'0D'",
    "parent_op": "1",
    "run_id": "1",
    "created_ns": "1",
    "pre": "'[]'",
    "epoch": "1",
    "device_gen": "2",
    "intent_ns": "1",
}
BOUND = {
    "approval_id": "99",
    "op_id": "5",
    "digest": "randomblob(32)",
    "contract_hash": "X'0D'",
    "device_gen": "2",
    "approver": "'eve'",
    "decision": "'denied'",
    "host_boot_id": "'boot-2'",
    "expires_boottime_ns": "99",
}
EPOCH = {"epoch": "9", "host_boot_id": "'b'", "pid": "8", "wall_ns": "1", "boottime_ns": "1", "version": "'w'"}
AUDIT_ROW = {"seq": "3", "prev": "(SELECT hash FROM audit WHERE seq=2)", "hash": "zeroblob(32)", "epoch": "2"}
AUDIT_ROW["body"] = "'{}'"
TOMB = {
    "caller_id": "1",
    "key_hash": "X'000102030405060708090A0B0C0D0E0F'",
    "digest": "zeroblob(16)",
    "verdict": "'lost'",
}
TOMB_OF_DONE = {"caller_id": "1", "key_hash": "zeroblob(16)", "digest": "zeroblob(16)", "verdict": "'applied'"}

# trigger, what is wrong, statement
ILLEGAL: list[tuple[str, str, str]] = [
    ("op_trans", "an intent taken back", f"UPDATE op SET state='PENDING' WHERE op_id={INTENT}"),
    ("op_trans", "an intent settled by rule", settled(INTENT, "applied", "rule")),
    ("op_trans", "an unknown op made to wait again", f"UPDATE op SET state='PENDING' WHERE op_id={UNKNOWN}"),
    ("op_trans", "an unknown op settled by the bus", settled(UNKNOWN, "applied", "bus")),
    ("op_trans", "a pending op applied", settled(PENDING, "applied", "human")),
    ("op_new", "born unknown", new_op(state="'UNKNOWN'")),
    ("op_new", "born done", new_op(state="'DONE'", verdict="'applied'", verdict_by="'bus'")),
    ("op_approved", "nobody asked", intent_of(PENDING)),
    ("op_approved", "denied", intent_of(DENIED)),
    ("op_approved", "grant not consumed", intent_of(4)),
    ("op_approved", "grant consumed in an older epoch", intent_of(STALE)),
    ("op_fence_u", "intent of an older epoch", intent_of(STALE, 1)),
    *(
        ("op_immutable", name, f"UPDATE op SET {name}={value} WHERE op_id={INTENT}")
        for name, value in IMMUTABLE.items()
    ),
    ("op_immutable", "the key of a pending op", f"UPDATE op SET key='other-0001' WHERE op_id={PENDING}"),
    ("op_immutable", "with OR IGNORE", f"UPDATE OR IGNORE op SET digest=randomblob(32) WHERE op_id={INTENT}"),
    ("op_done_final", "the response of a done op", f"UPDATE op SET response='[]' WHERE op_id={DONE}"),
    ("op_done_final", "nothing at all", f"UPDATE op SET evidence=evidence WHERE op_id={DONE}"),
    ("op_fence_i", "born in an older epoch", new_op(epoch="1")),
    ("op_fence_i", "born pending in an older epoch", new_op(epoch="1", state="'PENDING'")),
    ("op_stop_i", "write while one is in flight", new_op(device_id="3")),
    ("op_stop_i", "raw while one is unknown", new_op(device_id="2", kind="'raw'")),
    ("op_stop_i", "write while in safe_state", new_op(device_id="5")),
    ("op_stop_i", "safe_state while in safe_state", new_op(device_id="5", kind="'safe_state'")),
    ("op_stop_u", "granted while one is in flight", intent_of(STOPPED)),
    ("op_stop_u", "safe_state granted while in safe_state", intent_of(12)),
    ("op_hold_i", "write while held", new_op(device_id="4")),
    ("op_hold_i", "effectful read while held", new_op(device_id="4", kind="'read'")),
    ("op_hold_i", "update while held", new_op(device_id="4", kind="'update'")),
    ("op_hold_u", "granted while held", intent_of(HELD)),
    ("op_tomb_key", "the pruned key", new_op(key_hash=TOMB["key_hash"])),
    ("op_tomb_key", "its second half alone", new_op(key_hash="X'FFFFFFFFFFFFFFFF08090A0B0C0D0E0F'")),
    ("op_tomb_key", "the pruned key, pending", new_op(key_hash=TOMB["key_hash"], state="'PENDING'")),
    ("op_dead_key", "the same key", new_op(key="'scene-0001'")),
    ("op_dead_key", "the same hash", new_op(key_hash="zeroblob(16)")),
    ("op_dead_key", "the same number", new_op(op_id="1")),
    ("op_dead_key", "the same key, replacing", new_op("INSERT OR REPLACE", key="'scene-0001'")),
    ("op_dead_key", "the same number, replacing", new_op("REPLACE", op_id="1")),
    ("op_del", "a done op without a tombstone", "DELETE FROM op WHERE op_id=1"),
    ("op_del", "an unknown op", "DELETE FROM op WHERE op_id=2"),
    ("op_del", "a pending op", "DELETE FROM op WHERE op_id=5"),
    ("tomb_i", "the same tombstone", insert("tomb", TOMB)),
    ("tomb_i", "the same tombstone, replacing", insert("tomb", TOMB, "REPLACE")),
    ("tomb_u", "another verdict", "UPDATE tomb SET verdict='lost'"),
    ("tomb_d", "a key made fresh", "DELETE FROM tomb"),
    ("op_data_i", "after the outcome", "INSERT INTO op_data(op_id, chunk, data) VALUES(1, 1, X'BB')"),
    ("op_data_i", "before the intent", "INSERT INTO op_data(op_id, chunk, data) VALUES(5, 0, X'BB')"),
    ("op_data_i", "the same chunk", "INSERT INTO op_data(op_id, chunk, data) VALUES(3, 0, X'BB')"),
    ("op_data_i", "the same chunk, replacing", "REPLACE INTO op_data(op_id, chunk, data) VALUES(3, 0, X'BB')"),
    ("op_data_u", "another value", "UPDATE op_data SET data=X'BB' WHERE op_id=3"),
    ("op_data_d", "under its op", "DELETE FROM op_data WHERE op_id=3"),
    *(
        ("approval_u", name, f"UPDATE approval SET used_epoch=2, {name}={value} WHERE op_id=4")
        for name, value in BOUND.items()
    ),
    ("approval_u", "used twice", f"UPDATE approval SET used_epoch=2 WHERE op_id={READY}"),
    ("approval_u", "given back", f"UPDATE approval SET used_epoch=NULL WHERE op_id={READY}"),
    ("approval_u", "changed and not used", "UPDATE approval SET expires_boottime_ns=99 WHERE op_id=4"),
    ("approval_u", "a denial used", f"UPDATE approval SET used_epoch=2 WHERE op_id={DENIED}"),
    ("approval_d", "under its op", "DELETE FROM approval WHERE op_id=4"),
    ("approval_d", "replaced", approval(DENIED).replace("INSERT", "REPLACE")),
    ("caller_d", "forgotten", "DELETE FROM caller WHERE caller_id=1"),
    ("caller_d", "replaced", "REPLACE INTO caller(caller_id, principal) VALUES(1, 'uid:0')"),
    ("caller_u", "another principal", "UPDATE caller SET principal='uid:0'"),
    ("caller_u", "another number", "UPDATE caller SET caller_id=9"),
    *(("epoch_u", name, f"UPDATE epoch SET {name}={value} WHERE epoch=2") for name, value in EPOCH.items()),
    ("epoch_d", "forgotten", "DELETE FROM epoch WHERE epoch=1"),
    ("epoch_d", "replaced", insert("epoch", {**EPOCH, "epoch": "1"}, "REPLACE")),
    ("device_u", "another locus", "UPDATE device SET locus='i2c:1:99' WHERE device_id=1"),
    ("device_u", "generation falls", "UPDATE device SET gen=2 WHERE device_id=1"),
    ("hold_d", "released while unknown", "DELETE FROM hold WHERE device_id=2"),
    ("audit_u", "rewritten", "UPDATE audit SET body='{}' WHERE seq=1"),
    ("audit_d", "forgotten", "DELETE FROM audit WHERE seq=2"),
    ("audit_i", "a gap", insert("audit", {**AUDIT_ROW, "seq": "4"})),
    ("audit_i", "a row again", insert("audit", {**AUDIT_ROW, "seq": "2"})),
    ("audit_i", "a row replaced", insert("audit", {**AUDIT_ROW, "seq": "2"}, "REPLACE")),
    ("audit_i", "another predecessor", insert("audit", {**AUDIT_ROW, "prev": "zeroblob(32)"})),
]
MESSAGES = {
    "op_trans": "op: illegal transition",
    "op_new": "op: must be born PENDING or INTENT",
    "op_approved": "op: not approved",
    "op_fence_u": "op: stale epoch",
    "op_immutable": "op: immutable",
    "op_done_final": "op: final",
    "op_fence_i": "op: stale epoch",
    "op_stop_i": "op: device stopped",
    "op_stop_u": "op: device stopped",
    "op_hold_i": "op: device held",
    "op_hold_u": "op: device held",
    "op_tomb_key": "op: key expired",
    "op_dead_key": "op: key exists",
    "op_del": "op: delete needs DONE + tombstone",
    "tomb_i": "tomb: append-only",
    "tomb_u": "tomb: append-only",
    "tomb_d": "tomb: append-only",
    "op_data_i": "op_data: write once",
    "op_data_u": "op_data: write once",
    "op_data_d": "op_data: op still there",
    "approval_u": "approval: single use",
    "approval_d": "approval: op still there",
    "caller_d": "caller: fixed",
    "caller_u": "caller: fixed",
    "epoch_u": "epoch: fixed",
    "epoch_d": "epoch: append-only",
    "device_u": "device: locus fixed, gen rises",
    "hold_d": "hold: settle the open op first",
    "audit_u": "audit: append-only",
    "audit_d": "audit: append-only",
    "audit_i": "audit: chain",
}
IDS = [f"{trigger}-{what}" for trigger, what, _ in ILLEGAL]
REPLACED = {"tomb_i", "op_data_i", "audit_i"}  # their REPLACE meets the trigger of DELETE once they are gone


def test_triggers_when_listed_then_each_is_tried_here(db: sqlite3.Connection) -> None:
    names = {row[0] for row in db.execute("SELECT name FROM sqlite_schema WHERE type='trigger'")}
    assert {trigger for trigger, _, _ in ILLEGAL} == names == set(MESSAGES)


def refusal(db: sqlite3.Connection, statement: str) -> str:
    """What the database says to a statement, which leaves nothing behind; empty if it takes it."""
    db.execute("SAVEPOINT attempt")
    try:
        db.execute(statement)
    except sqlite3.IntegrityError as error:
        return str(error)
    else:
        return ""
    finally:
        db.execute("ROLLBACK TO attempt")
        db.execute("RELEASE attempt")


@pytest.mark.parametrize(("trigger", "what", "statement"), ILLEGAL, ids=IDS)
def test_statement_when_illegal_then_its_trigger_refuses_it_and_nothing_else_would_say_so(
    db: sqlite3.Connection, trigger: str, what: str, statement: str
) -> None:
    assert refusal(db, statement) == MESSAGES[trigger], what
    db.execute(f"DROP TRIGGER {trigger}")
    if trigger in REPLACED and "REPLACE" in statement:
        assert refusal(db, statement)
    else:
        assert refusal(db, statement) != MESSAGES[trigger], what


def perform(conn: sqlite3.Connection, statement: str) -> None:
    conn.execute(statement)


def test_statements_when_illegal_then_the_writer_answers_each_with_a_rule_and_keeps_the_rest(directory: Path) -> None:
    store = open_store(directory, START, allow_unsafe=True)
    futures = [store.submit(set_up)]
    futures += [store.submit(partial(perform, statement=text)) for _, _, text in ILLEGAL]
    store.start()
    assert futures[0].exception(timeout=30) is None
    for (trigger, what, _), future in zip(ILLEGAL, futures[1:], strict=True):
        error = future.exception(timeout=30)
        assert isinstance(error, StoreRule), what
        assert str(error) == MESSAGES[trigger]
    assert store.submit(lambda conn: conn.execute("SELECT count(*) FROM op").fetchone()).result(timeout=30) == (12,)
    assert store.commits == 1
    store.close()


# --- the state machine --------------------------------------------------------------------------------------------

STATES = ("PENDING", "INTENT", "UNKNOWN", "DONE")
VERDICTS = (None, "applied", "satisfied", "not_applied", "partial", "lost", "superseded", "abandoned", "denied")
BY = (None, "bus", "rule", "human")
AT = {"PENDING": READY, "INTENT": INTENT, "UNKNOWN": UNKNOWN, "DONE": DONE}
LEGAL: set[tuple[str, str, str | None, str | None]] = {
    ("PENDING", "INTENT", None, None),
    ("INTENT", "UNKNOWN", None, None),
    *(("PENDING", "DONE", "denied", by) for by in ("human", "rule")),
    *(("INTENT", "DONE", verdict, "bus") for verdict in ("applied", "satisfied", "not_applied", "partial")),
    *(("UNKNOWN", "DONE", verdict, by) for verdict in VERDICTS[1:8] for by in ("rule", "human")),
}


@pytest.mark.parametrize("old", STATES)
def test_transition_when_tried_from_a_state_then_exactly_the_legal_ones_pass(db: sqlite3.Connection, old: str) -> None:
    passed = set()
    for new, verdict, by in itertools.product(STATES, VERDICTS, BY):
        values = ", ".join(
            f"{name}={'NULL' if value is None else repr(value)}"
            for name, value in (("state", new), ("verdict", verdict), ("verdict_by", by))
        )
        if not refusal(db, f"UPDATE op SET {values} WHERE op_id={AT[old]}"):
            passed.add((old, new, verdict, by))
    assert passed == {transition for transition in LEGAL if transition[0] == old}


ALLOWED = [
    ("a new op on a free device", new_op()),
    ("a pending op on a stopped device", new_op(device_id="3", state="'PENDING'", pre="NULL")),
    ("a pending op on a held device", new_op(device_id="4", state="'PENDING'", pre="NULL")),
    ("raw on a held device", new_op(device_id="4", kind="'raw'")),
    ("safe_state on a held device", new_op(device_id="4", kind="'safe_state'")),
    ("safe_state while an op is in flight", new_op(device_id="3", kind="'safe_state'")),
    ("safe_state while an op is unknown", new_op(device_id="2", kind="'safe_state'")),
    ("a sequence without a device", new_op(device_id="NULL", kind="'sequence'")),
    ("a second open sequence", new_op(device_id="NULL", kind="'sequence'", key="'fresh-0002'")),
    ("a granted op", intent_of(READY)),
    ("evidence of an unknown op", f"UPDATE op SET evidence='[]' WHERE op_id={UNKNOWN}"),
    ("the pre-image of a pending op", f"UPDATE op SET pre='[]', device_gen=2 WHERE op_id={PENDING}"),
    ("another chunk", "INSERT INTO op_data(op_id, chunk, data) VALUES(3, 1, X'BB')"),
    ("a chunk of an unknown op", "INSERT INTO op_data(op_id, chunk, data) VALUES(2, 0, X'BB')"),
    ("a grant used once", "UPDATE approval SET used_epoch=2 WHERE op_id=4"),
    ("a clean stop", "UPDATE epoch SET clean_stop=1 WHERE epoch=2"),
    ("a risen generation", "UPDATE device SET gen=4, identity='tmp102' WHERE device_id=1"),
    ("a hold taken off", "DELETE FROM hold WHERE device_id=4"),
    ("a hold put on", "INSERT INTO hold(device_id, by, why, since_ns) VALUES(3, 'bob', 'wiring', 0)"),
    ("a key of another caller's tombstone", new_op(key_hash=TOMB["key_hash"], caller_id="2")),
    ("a key of another caller's op", new_op(key="'scene-0001'", key_hash="zeroblob(16)", caller_id="2")),
    ("the next audit row", insert("audit", AUDIT_ROW)),
]


@pytest.mark.parametrize(("what", "statement"), ALLOWED, ids=[a[0] for a in ALLOWED])
def test_statement_when_legal_then_the_database_takes_it(db: sqlite3.Connection, what: str, statement: str) -> None:
    db.execute("INSERT INTO caller(caller_id, principal) VALUES(2, 'uid:1001')")
    assert refusal(db, statement) == "", what


CHECKS = [
    ("key too short", new_op(key="'short-1'"), "CHECK"),
    ("key too long", new_op(key=f"'{'k' * 129}'"), "CHECK"),
    ("key with a space", new_op(key="'with space'"), "CHECK"),
    ("key with NUL", new_op(key="'write-0001'||char(0)"), "CHECK"),
    ("key with NUL and more behind it", new_op(key="'write-0001'||char(0)||' bad'"), "CHECK"),
    ("key hash of 15 bytes", new_op(key_hash="zeroblob(15)"), "CHECK"),
    ("digest of 31 bytes", new_op(digest="zeroblob(31)"), "CHECK"),
    ("kind nobody knows", new_op(kind="'erase'"), "CHECK"),
    ("write without a device", new_op(device_id="NULL"), "CHECK"),
    ("sequence with a device", new_op(kind="'sequence'"), "CHECK"),
    ("intent without a pre-image", new_op(pre="NULL"), "CHECK"),
    ("intent with a verdict", new_op(verdict="'applied'", verdict_by="'bus'"), "CHECK"),
    ("a device nobody knows", new_op(device_id="99", state="'PENDING'"), "FOREIGN KEY"),
    ("an epoch nobody began", new_op(epoch="9", state="'PENDING'"), "stale epoch"),
    ("text for a number", new_op(created_ns="'now'"), "cannot store TEXT"),
    ("decision nobody knows", approval(PENDING, decision="'maybe'"), "CHECK"),
    ("tombstone digest of 32 bytes", insert("tomb", {**TOMB_OF_DONE, "digest": "zeroblob(32)"}), "CHECK"),
    ("audit hash of 31 bytes", insert("audit", {**AUDIT_ROW, "hash": "zeroblob(31)"}), "CHECK"),
    ("a device that has ops", "DELETE FROM device WHERE device_id=1", "FOREIGN KEY"),
]


@pytest.mark.parametrize(("what", "statement", "says"), CHECKS, ids=[c[0] for c in CHECKS])
def test_row_when_malformed_then_refused(db: sqlite3.Connection, what: str, statement: str, says: str) -> None:
    assert says in refusal(db, statement), what


BINDINGS = [
    ("digest", "zeroblob(31)"),
    ("contract_hash", "X'0D'"),
    ("device_gen", "2"),
    ("decision", "'denied'"),
    ("used_epoch", "1"),
    ("used_epoch", "NULL"),
]


@pytest.mark.parametrize(("member", "value"), BINDINGS, ids=[f"{m}={v}" for m, v in BINDINGS])
def test_grant_when_one_member_is_not_the_ops_then_not_approved(
    db: sqlite3.Connection, member: str, value: str
) -> None:
    db.execute("INSERT INTO device(device_id, locus) VALUES(6, 'i2c:1:6')")
    db.execute(numbered(20, "PENDING", device_id="6"))
    db.execute("SAVEPOINT fitting")
    db.execute(approval(20, used_epoch="2"))
    assert refusal(db, intent_of(20)) == ""
    db.execute("ROLLBACK TO fitting")
    db.execute(approval(20, **{"used_epoch": "2", member: value}))
    assert refusal(db, intent_of(20)) == "op: not approved"


def test_second_open_op_when_the_trigger_is_gone_then_an_index_refuses_it(db: sqlite3.Connection) -> None:
    for trigger in ("op_stop_i", "op_stop_u"):
        db.execute(f"DROP TRIGGER {trigger}")
    assert "op_one_open" in refusal(db, new_op(device_id="3"))
    assert "op_one_open" in refusal(db, new_op(device_id="2", kind="'raw'"))
    assert "op_one_open" in refusal(db, new_op(device_id="5", kind="'safe_state'"))
    assert "op_one_open" in refusal(db, intent_of(STOPPED))


def test_used_key_when_the_triggers_are_gone_then_two_indexes_refuse_it(db: sqlite3.Connection) -> None:
    db.execute("DROP TRIGGER op_dead_key")
    assert "op.key" in refusal(db, new_op(key="'scene-0001'"))
    assert "op.key_hash" in refusal(db, new_op(key_hash="zeroblob(16)"))


TOMBSTONES = [
    ("fits", {}, ""),
    ("another verdict", {"verdict": "'not_applied'"}, "op: delete needs DONE + tombstone"),
    ("another digest", {"digest": "X'000102030405060708090A0B0C0D0E0F'"}, "op: delete needs DONE + tombstone"),
    ("another key", {"key_hash": "X'AA0102030405060708090A0B0C0D0E0F'"}, "op: delete needs DONE + tombstone"),
    ("another caller", {"caller_id": "2"}, "op: delete needs DONE + tombstone"),
]


@pytest.mark.parametrize(("what", "changed", "says"), TOMBSTONES, ids=[t[0] for t in TOMBSTONES])
def test_done_op_when_deleted_then_only_with_the_tombstone_that_fits(
    db: sqlite3.Connection, what: str, changed: dict[str, str], says: str
) -> None:
    db.execute("BEGIN")
    db.execute(insert("tomb", {**TOMB_OF_DONE, **changed}))
    assert refusal(db, "DELETE FROM op WHERE op_id=1") == says, what
    if not says:
        for table in ("op", "op_data", "approval"):
            db.execute(f"DELETE FROM {table} WHERE op_id=1")
        db.execute("COMMIT")
        assert refusal(db, new_op(key="'scene-0001'", key_hash="zeroblob(16)")) == "op: key expired"
    else:
        db.execute("ROLLBACK")


def test_op_when_deleted_without_its_data_then_the_commit_is_refused(db: sqlite3.Connection) -> None:
    db.execute("BEGIN")
    db.execute(insert("tomb", TOMB_OF_DONE))
    db.execute("DELETE FROM op WHERE op_id=1")
    with pytest.raises(sqlite3.IntegrityError, match="FOREIGN KEY constraint failed"):
        db.execute("COMMIT")
    db.execute("ROLLBACK")
    assert refusal(db, "DELETE FROM op WHERE op_id=1") == "op: delete needs DONE + tombstone"


def test_number_of_an_op_when_the_newest_is_pruned_then_it_is_not_given_again(db: sqlite3.Connection) -> None:
    db.execute(new_op(op_id="50", key_hash="X'BB0102030405060708090A0B0C0D0EBB'"))
    db.execute(settled(50, "applied", "bus"))
    db.execute(insert("tomb", {**TOMB_OF_DONE, "key_hash": "X'BB0102030405060708090A0B0C0D0EBB'"}))
    db.execute("DELETE FROM op WHERE op_id=50")
    assert db.execute(new_op(key="'fresh-0002'")).lastrowid == 51
