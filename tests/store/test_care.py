"""What people do to a store: verify it, back it up while it is in use, accept an older one, bring an old schema up."""

from __future__ import annotations

import shutil
import sqlite3
import subprocess
import sys
import threading
from collections.abc import Callable
from concurrent.futures import Future
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

from hwtool_store import audit, operations, schema
from hwtool_store.check import verify
from hwtool_store.database import FILE, Store, open_store
from hwtool_store.faults import StoreFatal, StoreRefused, StoreRule
from hwtool_store.operations import OpRow
from hwtool_store.rollback import accept, take_hold_all
from tests.store.conftest import LOCUS, NEW, START, damage, do, sql, started, unguarded

RESPONSE: dict[str, Any] = {"status": "done", "ok": True}


def lived(directory: Path, count: int = 3, first: int = 0) -> None:
    """A life with some operations, each done."""
    store = started(directory)
    for number in range(first, first + count):
        op_id = do(store, operations.t1_intent, replace(NEW, key=f"write-{number:04}"), {"at_ns": 1, "what": "intent"})
        do(store, operations.t2_done, op_id, "applied", RESPONSE, {}, 5, {"at_ns": 2, "what": "outcome"})
    store.close()


def faults(directory: Path) -> list[str]:
    return verify(directory / FILE, directory / "anchor").faults


# --- verify ---------------------------------------------------------------------------------------------------------


def test_verify_when_the_store_is_sound_then_nothing_and_everything_was_looked_at(tmp_path: Path) -> None:
    lived(tmp_path)
    report = verify(tmp_path / FILE, tmp_path / "anchor")
    assert (report.faults, report.counts) == ([], {"audit": 6, "op": 3, "tomb": 0})
    store = started(tmp_path)
    assert do(store, operations.prune, 1, 9) == 2
    store.close()
    report = verify(tmp_path / FILE, tmp_path / "anchor")
    assert (report.faults, report.counts) == ([], {"audit": 7, "op": 1, "tomb": 2})


def _anchor_ahead(directory: Path) -> None:
    shutil.copy(directory / FILE, directory / "old.db")
    lived(directory, 2, first=50)
    shutil.copy(directory / "old.db", directory / FILE)


DAMAGES: dict[str, tuple[Callable[[Path], Any], str]] = {
    "audit body": (
        lambda d: unguarded(d, "audit_u", "UPDATE audit SET body=replace(body,'outcome','refusal') WHERE seq=4"),
        "the audit chain is broken at row 4",
    ),
    "audit row gone": (lambda d: unguarded(d, "audit_d", "DELETE FROM audit WHERE seq=2"), "the audit chain is broken"),
    "key changed": (
        lambda d: unguarded(
            d, "op_immutable", "DROP TRIGGER op_done_final", "UPDATE op SET key='write-9999' WHERE op_id=2"
        ),
        "its key 'write-9999' and the hash of it do not fit",
    ),
    "key index": (
        lambda d: damage(d, "op_key2", operations.key_hash("write-0001"), b"z" * 16),
        "its second index does not know its key",
    ),
    "trigger dropped": (lambda d: sql(d, "DROP TRIGGER op_trans"), "which no version of hwtool made"),
    "response lost": (
        lambda d: unguarded(d, "op_done_final", "UPDATE op SET response=NULL WHERE op_id=1"),
        "operation 1: it is DONE and has no response",
    ),
    "picture lost": (
        lambda d: unguarded(
            d, "op_done_final", "PRAGMA ignore_check_constraints=ON", "DROP TRIGGER op_immutable",
            "UPDATE op SET pre=NULL WHERE op_id=1",
        ),
        "operation 1: it was sent and has no picture from before",
    ),
    "values of nobody": (
        lambda d: unguarded(d, "op_data_i", "PRAGMA foreign_keys=OFF", "INSERT INTO op_data VALUES(99, 0, x'00')"),
        "values are kept of operation 99",
    ),
    "set back": (_anchor_ahead, "it is older than its anchor: row 10 was there, the newest is 6"),
    "anchor gone": (lambda d: (d / "anchor").unlink(), "it has no anchor"),
    "truncated": (
        lambda d: (d / FILE).write_bytes((d / FILE).read_bytes()[: 5 * 4096]),
        "",
    ),
    "another program's": (lambda d: sql(d, "PRAGMA application_id=7"), "it is not a store of hwtool"),
}  # fmt: skip


@pytest.mark.parametrize("name", DAMAGES)
def test_verify_when_something_was_done_to_the_store_then_it_says_what(tmp_path: Path, name: str) -> None:
    lived(tmp_path)
    spoil, wanted = DAMAGES[name]
    spoil(tmp_path)
    found = faults(tmp_path)
    assert any(wanted in fault for fault in found), found


# --- backup ---------------------------------------------------------------------------------------------------------


def test_backup_when_made_while_the_store_is_in_use_then_sound_and_the_writer_goes_on_meanwhile(tmp_path: Path) -> None:
    lived(tmp_path / "s", 200)
    store = started(tmp_path / "s")
    done: list[int] = []
    copying = store.back_up(tmp_path / "copy.db")
    number = 1000
    while not copying.done() and number < 1100:
        new = replace(NEW, key=f"write-{number:04}")
        op_id = do(store, operations.t1_intent, new, {"at_ns": 1, "what": "intent"})
        do(store, operations.t2_done, op_id, "applied", RESPONSE, {}, 5, {"at_ns": 2, "what": "outcome"})
        done.append(op_id)
        number += 1
    assert copying.result(30) == (tmp_path / "copy.db").stat().st_size
    store.close()
    report = verify(tmp_path / "copy.db")
    assert report.faults == []
    assert 200 <= report.counts["op"] <= 200 + len(done)
    assert (tmp_path / "copy.db").stat().st_mode & 0o777 == 0o600
    assert faults(tmp_path / "s") == []


def test_backup_when_it_takes_steps_then_jobs_are_done_between_them(tmp_path: Path) -> None:
    store = started(tmp_path)
    came: list[int] = []
    entered, go_on = threading.Event(), threading.Event()

    def slow(conn: sqlite3.Connection, between: Callable[[], None]) -> str:
        entered.set()
        assert go_on.wait(30)
        between()
        came.append(2)
        return "read"

    reading: Future[str] = store._writer.submit_apart(slow)
    assert entered.wait(30)
    job = store.submit(lambda conn: came.append(1))
    second: Future[str] = store._writer.submit_apart(lambda conn, between: "second")
    later = store.submit(lambda conn: came.append(3))
    go_on.set()
    job.result(30)
    assert (reading.result(30), second.result(30)) == ("read", "second")
    later.result(30)
    assert came == [1, 2, 3]
    store.close()


def test_backup_when_the_file_exists_or_cannot_be_made_then_refused_and_nothing_is_left(tmp_path: Path) -> None:
    store = started(tmp_path / "s")
    (tmp_path / "there.db").write_text("mine")
    with pytest.raises(StoreRule, match="File exists"):
        store.back_up(tmp_path / "there.db").result(30)
    assert (tmp_path / "there.db").read_text() == "mine"
    with pytest.raises(StoreRule, match="No such file"):
        store.back_up(tmp_path / "nowhere" / "copy.db").result(30)
    do(store, operations.t1_intent, NEW, {"at_ns": 1, "what": "intent"})  # the store has not failed by it
    store.close()


def test_backup_when_the_store_fails_meanwhile_then_refused(tmp_path: Path) -> None:
    store = started(tmp_path / "s")

    def fails(conn: sqlite3.Connection) -> None:
        raise sqlite3.OperationalError("disk I/O error")

    entered, go_on = threading.Event(), threading.Event()

    def slow(conn: sqlite3.Connection, between: Callable[[], None]) -> None:
        entered.set()
        assert go_on.wait(30)
        between()
        between()

    reading = store._writer.submit_apart(slow)
    assert entered.wait(30)
    broken = store.submit(fails)
    go_on.set()
    with pytest.raises(StoreFatal):
        broken.result(30)
    with pytest.raises(StoreFatal):
        reading.result(30)
    assert store.failed


# --- accepting an older store ---------------------------------------------------------------------------------------


def behind(directory: Path) -> None:
    """A store that was set back by a copy of the file."""
    lived(directory, 1)
    shutil.copy(directory / FILE, directory / "old.db")
    lived(directory, 2, first=10)
    shutil.copy(directory / "old.db", directory / FILE)


@pytest.mark.parametrize("how", ["older than its anchor", "without an anchor", "a backup put in its place"])
def test_rollback_when_a_person_accepts_it_then_it_starts_with_everything_held(tmp_path: Path, how: str) -> None:
    behind(tmp_path)
    known: int | None = 6
    if how == "without an anchor":
        (tmp_path / "anchor").unlink()
        known = None
    if how == "a backup put in its place":
        store = accept(tmp_path, START, "uid:0", "first")
        assert store.newest == 2
        store_ = started(tmp_path)
        store_.back_up(tmp_path / "copy.db").result(30)
        store_.close()
        lived_again = started(tmp_path)
        do(lived_again, operations.note, {"at_ns": 1, "what": "refused"})
        lived_again.close()
        shutil.move(tmp_path / "copy.db", tmp_path / FILE)
        known = 5
    with pytest.raises(StoreRefused):
        open_store(tmp_path, START, allow_unsafe=True)
    newest = 4 if how == "a backup put in its place" else 2
    accepted = accept(tmp_path, START, "uid:0", "the disk was replaced", allow_unsafe=True)
    assert (accepted.newest, accepted.known, accepted.held) == (newest, known, [LOCUS])
    assert faults(tmp_path) == []
    store_ = started(tmp_path)
    (hold,) = do(store_, operations.holds)
    assert (hold.locus, hold.by) == (LOCUS, "rollback")
    assert "the disk was replaced" in hold.why
    with pytest.raises(StoreRule, match="held"):
        do(store_, operations.t1_intent, NEW, {"at_ns": 1, "what": "intent"})
    why = do(store_, take_hold_all)
    assert why is not None
    assert "uid:0" in why
    assert do(store_, take_hold_all) is None  # said once
    told = [row.body["what"] for row in do(store_, audit.page, 0, 100)]
    assert "rollback_accepted" in told
    store_.close()


def test_rollback_when_the_lost_life_had_begun_later_epochs_then_none_of_them_comes_again(tmp_path: Path) -> None:
    lived(tmp_path, 1)
    shutil.copy(tmp_path / FILE, tmp_path / "old.db")
    for number in range(4):
        lived(tmp_path, 1, first=20 + number)
    shutil.copy(tmp_path / "old.db", tmp_path / FILE)
    accept(tmp_path, START, "uid:0", "x", allow_unsafe=True)
    store = started(tmp_path)
    assert store.epoch == 7  # five were begun, one accepted
    store.close()


def test_rollback_when_the_anchor_is_damaged_then_a_person_may_accept_the_store_all_the_same(tmp_path: Path) -> None:
    lived(tmp_path, 1)
    data = bytearray((tmp_path / "anchor").read_bytes())
    data[24] ^= 0x80  # the top bit of the row's number
    (tmp_path / "anchor").write_bytes(data)
    with pytest.raises(StoreRefused, match="is damaged: it tells of epoch 1 and row 9223372036854775810"):
        open_store(tmp_path, START, allow_unsafe=True)
    accepted = accept(tmp_path, START, "uid:0", "a bad disk", allow_unsafe=True)
    assert (accepted.known, accepted.held) == (None, [LOCUS])
    started(tmp_path).close()


REFUSED: dict[str, tuple[Callable[[Path], Any], str]] = {
    "nothing to accept": (lambda d: None, "not behind its anchor"),
    "in use": (lambda d: started(d), "in use by another daemon"),
    "damaged": (
        lambda d: unguarded(d, "audit_u", "UPDATE audit SET body='{}' WHERE seq=1"),
        "the audit chain",
    ),
    "empty": (lambda d: (d / FILE).write_bytes(b""), "is empty"),
    "no database": (lambda d: (d / FILE).write_bytes(b"x" * 5000), "cannot be used"),
}


@pytest.mark.parametrize("name", REFUSED)
def test_rollback_when_there_is_nothing_to_accept_then_refused_and_nothing_is_held(tmp_path: Path, name: str) -> None:
    lived(tmp_path, 1)
    spoil, wanted = REFUSED[name]
    left = spoil(tmp_path)
    with pytest.raises(StoreRefused, match=wanted):
        accept(tmp_path, START, "uid:0", "x", allow_unsafe=True)
    with pytest.raises(StoreRefused, match="no store in"):
        accept(tmp_path / "nowhere", START, "uid:0", "x", allow_unsafe=True)
    if name == "nothing to accept":
        store = started(tmp_path)
        assert do(store, operations.holds) == []
        assert do(store, take_hold_all) is None
        store.close()
    if isinstance(left, Store):
        left.close()


# --- the schema that the first version created ----------------------------------------------------------------------


def first_version() -> str:
    """The text of the first schema: today's without what was added."""
    lines = schema.TEXT.splitlines(keepends=True)
    return "".join(line for line in lines if not any(f"INDEX {name} " in line for name in schema.ADDED))


def old_store(directory: Path) -> None:
    """A store as the first version made it, with a life in it."""
    lived(directory)
    sql(
        directory,
        *(f"DROP INDEX {name}" for name in schema.ADDED),
        f"UPDATE meta SET v='{schema.FIRST}' WHERE k='schema_hash'",
    )


def test_schema_when_what_was_added_is_taken_away_then_it_is_the_first_versions() -> None:
    conn = sqlite3.connect(":memory:")
    conn.executescript(first_version())
    assert schema.hash_of(conn) == schema.FIRST
    conn.close()


def test_migration_when_an_old_store_is_opened_then_up_to_date_with_everything_in_it(tmp_path: Path) -> None:
    old_store(tmp_path)
    store = started(tmp_path)
    row = do(store, operations.find, NEW.principal, "write-0001")
    assert isinstance(row, OpRow)
    assert store.submit(schema.hash_of).result(30) == schema.HASH
    store.close()
    assert faults(tmp_path) == []
    again = started(tmp_path)  # and the next start finds nothing to do
    assert again.submit(lambda conn: conn.execute("SELECT count(*) FROM _sqlite_migrations").fetchone()).result() == (
        1,
    )
    again.close()


CUT_OFF = """
import os, sys
from pathlib import Path
from hwtool_store.database import Start, open_store
import sqlite_utils.migrations as m
real = m.Migrations._record_applied
def die(*a): os._exit(9)
m.Migrations._record_applied = die
open_store(Path(sys.argv[1]), Start('b', 1, 1, 1, 'v'), allow_unsafe=True)
"""


def test_migration_when_cut_off_in_the_middle_then_the_next_start_does_it(tmp_path: Path) -> None:
    old_store(tmp_path)
    done = subprocess.run([sys.executable, "-c", CUT_OFF, str(tmp_path)], check=False)
    assert done.returncode == 9
    conn = sqlite3.connect(tmp_path / FILE)
    assert schema.hash_of(conn) == schema.FIRST
    conn.close()
    started(tmp_path).close()
    assert faults(tmp_path) == []


def test_migration_when_the_schema_is_nobodys_then_refused_and_left_as_it_is(tmp_path: Path) -> None:
    old_store(tmp_path)
    sql(tmp_path, "DROP TRIGGER op_trans")
    before = (tmp_path / FILE).read_bytes()
    with pytest.raises(StoreRefused, match="another schema"):
        open_store(tmp_path, START, allow_unsafe=True)
    assert (tmp_path / FILE).read_bytes() == before
