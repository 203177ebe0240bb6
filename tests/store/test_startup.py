"""Start-up: what is believed only after it was verified, what is refused in one sentence, and what a crash leaves."""

from __future__ import annotations

import os
import shutil
import sqlite3
import stat
import subprocess
import sys
import uuid
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

from hwtool_store import audit, place, schema
from hwtool_store import operations as ops
from hwtool_store.anchor import LAYOUT, Anchor, Mark
from hwtool_store.database import FILE, Store, open_store, set_meta_once
from hwtool_store.faults import StoreRefused
from hwtool_store.operations import OpRow
from hwtool_store.place import file_system_of, is_unsafe
from tests.store.conftest import NEW, START, do, sql, started, unguarded


def lived(directory: Path, *keys: str) -> None:
    """One life of a store: an intent with its outcome for each key, and a clean stop."""
    store = started(directory)
    for key in keys:
        op_id = do(store, ops.t1_intent, replace(NEW, key=key), {"key": key})
        do(store, ops.t2_done, op_id, "applied", {}, {}, 200, {"key": key})
    store.close()


def refused(directory: Path, says: str, *, allow_unsafe: bool = True) -> None:
    with pytest.raises(StoreRefused, match=says):
        open_store(directory, START, allow_unsafe=allow_unsafe)


def mode(path: Path) -> int:
    return stat.S_IMODE(path.stat().st_mode)


# --- birth and later lives ----------------------------------------------------------------------------------------


def test_store_when_born_then_files_and_directory_are_the_owners_alone(directory: Path) -> None:
    store = open_store(directory / "deeper", START, allow_unsafe=True)
    store.start()
    do(store, ops.note, {})
    files = {path.name: mode(path) for path in (directory / "deeper").iterdir()}
    assert set(files) == {FILE, f"{FILE}-wal", "anchor", "ballast", "lock"}
    assert set(files.values()) == {0o600}
    assert mode(directory / "deeper") == 0o700
    store.close()


def test_store_when_born_then_it_says_so_once_and_keeps_its_identity_and_secret(directory: Path) -> None:
    first = started(directory)
    assert (first.born, first.epoch, first.seq, len(first.secret)) == (True, 1, 0, 32)
    identity, secret = first.store_id, first.secret
    first.close()
    second = started(directory)
    assert (second.born, second.epoch, second.store_id, second.secret) == (False, 2, identity, secret)
    second.close()


def test_stores_when_two_are_born_then_identity_and_secret_differ(tmp_path: Path) -> None:
    one, other = started(tmp_path / "one"), started(tmp_path / "other")
    assert one.store_id != other.store_id
    assert one.secret != other.secret
    one.close()
    other.close()


def test_epoch_when_started_again_then_it_rises_and_says_who_and_when(directory: Path) -> None:
    for epoch in (1, 2):
        store = started(directory)
        assert (store.epoch, do(store, ops.current_epoch)) == (epoch, epoch)
        store.close()
    later = replace(START, host_boot_id="boot-2", pid=78, wall_ns=2, boottime_ns=3, version="0.2.0")
    third = open_store(directory, later, allow_unsafe=True)
    third.start()
    assert do(third, lambda conn: conn.execute("SELECT * FROM epoch ORDER BY epoch").fetchall()) == [
        (1, "boot-1", 77, START.wall_ns, 5, "0.1.0", 1),
        (2, "boot-1", 77, START.wall_ns, 5, "0.1.0", 1),
        (3, "boot-2", 78, 2, 3, "0.2.0", 0),
    ]
    third.close()


def test_connection_when_opened_then_every_pragma_is_what_the_design_says(store: Store) -> None:
    names = ("journal_mode", "synchronous", "locking_mode", "foreign_keys", "recursive_triggers", "trusted_schema")
    values = do(store, lambda conn: [conn.execute(f"PRAGMA {name}").fetchone()[0] for name in names])
    assert values == ["wal", 3, "exclusive", 1, 1, 0]


def test_anchor_when_something_was_committed_then_it_names_the_newest_row(directory: Path) -> None:
    store = started(directory)
    assert Anchor(directory / "anchor").read() == Mark(store.store_id, 1, 0, audit.GENESIS)
    do(store, ops.note, {"n": 1})
    do(store, ops.note, {"n": 2})
    seq, digest = do(store, audit.tip)
    assert Anchor(directory / "anchor").read() == Mark(store.store_id, 1, 2, digest)
    assert (seq, store.seq) == (2, 2)
    store.close()
    assert Anchor(directory / "anchor").read() == Mark(store.store_id, 1, 2, digest)


def test_store_when_born_then_anchor_and_directory_are_synced_in_this_order(
    directory: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    plain, synced = os.fsync, []

    def fsync(handle: int) -> None:
        synced.append(str(Path(f"/proc/self/fd/{handle}").readlink()))
        plain(handle)

    monkeypatch.setattr(os, "fsync", fsync)
    started(directory).close()
    assert synced == [str(directory / "anchor.new"), str(directory)]
    assert {path.name for path in directory.iterdir()} == {FILE, "anchor", "ballast", "lock"}


def test_store_when_reopened_then_its_sequence_goes_on(directory: Path) -> None:
    lived(directory, "write-0001")
    store = started(directory)
    assert store.seq == 2
    assert do(store, ops.note, {}) == 3
    store.close()


def test_store_when_closed_twice_or_before_it_was_started_then_harmless(directory: Path) -> None:
    store = open_store(directory, START, allow_unsafe=True)
    store.close()
    store.close()
    again = started(directory)
    assert again.epoch == 2
    again.close()
    again.close()
    started(directory).close()


def test_fact_when_set_twice_then_the_first_holds(store: Store) -> None:
    assert do(store, set_meta_once, "quota", "1") == "1"
    assert do(store, set_meta_once, "quota", "2") == "1"


# --- refusals -----------------------------------------------------------------------------------------------------


def test_store_when_open_already_then_the_second_is_told_and_the_first_goes_on(store: Store, directory: Path) -> None:
    refused(directory, "is in use by another daemon")
    assert do(store, ops.t1_intent, NEW, {}) == 1


def test_store_when_closed_then_it_can_be_opened_again_and_again(directory: Path) -> None:
    for _ in range(3):
        started(directory).close()


def test_store_when_its_directory_cannot_be_made_then_refused(tmp_path: Path) -> None:
    (tmp_path / "file").write_text("")
    refused(tmp_path / "file" / "store", "cannot be written: Not a directory")


def test_store_when_its_directory_is_a_file_then_refused(tmp_path: Path) -> None:
    (tmp_path / "file").write_text("")
    refused(tmp_path / "file", "cannot be written: File exists")


@pytest.mark.parametrize(
    ("kind", "durable"), [("ext4", True), ("tmpfs", False), ("nfs4", False), ("fuse.sshfs", False)]
)
def test_store_when_its_file_system_is_unsafe_then_only_by_name_and_never_durable(
    directory: Path, monkeypatch: pytest.MonkeyPatch, kind: str, durable: bool
) -> None:
    monkeypatch.setattr(place, "file_system_of", lambda path, mounts: kind)
    if durable:
        open_and_close = open_store(directory, START)
        open_and_close.start()
        open_and_close.close()
    else:
        refused(directory, f"is on {kind}, which may lose what was synced", allow_unsafe=False)
        assert not (directory / FILE).exists()
    store = open_store(directory, START, allow_unsafe=True)
    store.start()
    assert store.durable is durable
    store.close()


def test_store_when_the_file_is_not_sqlite_then_refused_and_left_alone(directory: Path) -> None:
    directory.mkdir()
    (directory / FILE).write_bytes(b"not a database" * 100)
    refused(directory, "cannot be used: file is not a database")
    assert (directory / FILE).read_bytes() == b"not a database" * 100


def test_store_when_a_directory_has_the_name_of_the_file_then_refused(directory: Path) -> None:
    (directory / FILE).mkdir(parents=True)
    refused(directory, "cannot be opened: unable to open database file")


@pytest.mark.parametrize("pragmas", [(), ("PRAGMA journal_mode=WAL",), ("PRAGMA application_id=7",)], ids=str)
def test_store_when_the_database_is_somebody_elses_then_refused_and_left_as_it_was(
    directory: Path, pragmas: tuple[str, ...]
) -> None:
    directory.mkdir()
    sql(directory, *pragmas, "CREATE TABLE theirs(x)", "INSERT INTO theirs VALUES(1)")
    (directory / FILE).chmod(0o644)
    before = (directory / FILE).read_bytes()
    refused(directory, "is not a store of hwtool")
    assert ((directory / FILE).read_bytes(), mode(directory / FILE)) == (before, 0o644)
    assert {path.name for path in directory.iterdir()} == {FILE, "lock"}
    conn = sqlite3.connect(directory / FILE)
    assert conn.execute("SELECT x FROM theirs").fetchall() == [(1,)]
    conn.close()


TAMPERED: list[tuple[str, tuple[str, ...], str]] = [
    ("another schema", ("UPDATE meta SET v='feedface' WHERE k='schema_hash'",), r"has another schema \(feedface\)"),
    ("no schema hash", ("DELETE FROM meta WHERE k='schema_hash'",), "has no schema_hash: it is not complete"),
    ("no identity", ("DELETE FROM meta WHERE k='store_uuid'",), "has no store_uuid: it is not complete"),
    ("another identity", ("UPDATE meta SET v='zz' WHERE k='store_uuid'",), "belongs to another store"),
    ("no secret", ("DELETE FROM meta WHERE k='secret'",), "has no secret: it is not complete"),
    ("a secret that is none", ("UPDATE meta SET v='zz' WHERE k='secret'",), "cannot be used: non-hexadecimal number"),
    ("another application", ("PRAGMA application_id=7",), "is not a store of hwtool"),
    ("a trigger dropped", ("DROP TRIGGER op_trans",), "has another schema"),
    (
        "a trigger that does nothing",
        ("DROP TRIGGER audit_u", "CREATE TRIGGER audit_u BEFORE UPDATE ON audit BEGIN SELECT 1; END"),
        "has another schema",
    ),
    ("an index dropped", ("DROP INDEX op_key2",), "has another schema"),
    ("an index on something else", ("DROP INDEX op_key2", "CREATE INDEX op_key2 ON op(key)"), "has another schema"),
    ("a table more", ("CREATE TABLE more(x)",), "has another schema"),
    ("a column more", ("ALTER TABLE device ADD COLUMN more TEXT",), "has another schema"),
    ("no table of epochs", ("PRAGMA foreign_keys=OFF", "DROP TABLE epoch"), "has another schema"),
    ("no table of facts", ("DROP TABLE meta",), "cannot be used: no such table: meta"),
]
UNGUARDED: list[tuple[str, str, str, str]] = [
    (
        "a row of the audit chain rewritten",
        "audit_u",
        "UPDATE audit SET body='{}' WHERE seq=1",
        "the audit chain of .* is broken at row 1",
    ),
    (
        "a row of the audit chain missing",
        "audit_d",
        "DELETE FROM audit WHERE seq=1",
        "the audit chain of .* is broken at row 2",
    ),
    (
        "a row that is no text",
        "audit_u",
        "UPDATE audit SET body=CAST(X'FF' AS TEXT) WHERE seq=1",
        "cannot be used: Could not decode",
    ),
    ("the newest rows forgotten", "audit_d", "DELETE FROM audit WHERE seq>1", "it was set back"),
    ("all rows forgotten", "audit_d", "DELETE FROM audit", "it was set back"),
    ("the newest epoch forgotten", "epoch_d", "DELETE FROM epoch WHERE epoch=2", "it was set back"),
    ("all epochs forgotten", "epoch_d", "DELETE FROM epoch", "it was set back"),
]


@pytest.mark.parametrize(("what", "statements", "says"), TAMPERED, ids=[t[0] for t in TAMPERED])
def test_store_when_changed_behind_its_back_then_refused(
    directory: Path, what: str, statements: tuple[str, ...], says: str
) -> None:
    lived(directory, "write-0001", "write-0002")
    sql(directory, *statements)
    refused(directory, says)


@pytest.mark.parametrize(("what", "trigger", "statement", "says"), UNGUARDED, ids=[u[0] for u in UNGUARDED])
def test_store_when_a_row_was_changed_past_its_trigger_then_refused(
    directory: Path, what: str, trigger: str, statement: str, says: str
) -> None:
    lived(directory, "write-0001", "write-0002")
    lived(directory)
    unguarded(directory, trigger, statement)
    refused(directory, says)


def test_trigger_when_dropped_and_made_again_then_the_schema_is_the_same(directory: Path) -> None:
    lived(directory, "write-0001")
    unguarded(directory, "audit_u", "VACUUM")
    started(directory).close()


def test_table_of_epochs_when_gone_with_the_anchor_then_refused(directory: Path) -> None:
    lived(directory, "write-0001")
    sql(directory, "DROP TABLE epoch")
    (directory / "anchor").unlink()
    refused(directory, "cannot be used: no such table: epoch")


def test_store_when_refused_then_its_connection_is_closed(directory: Path) -> None:
    lived(directory, "write-0001")
    (directory / "anchor").unlink()
    with pytest.raises(StoreRefused) as kept:  # and with it, the frames that had the connection
        open_store(directory, START, allow_unsafe=True)
    other = sqlite3.connect(directory / FILE, timeout=0)
    assert other.execute("SELECT count(*) FROM op").fetchone() == (1,)
    other.close()
    assert "has no anchor" in str(kept.value)


def test_store_when_refused_then_the_lock_is_given_back(directory: Path) -> None:
    lived(directory, "write-0001")
    (directory / "anchor").rename(directory / "aside")
    refused(directory, "has no anchor")
    (directory / "aside").rename(directory / "anchor")
    started(directory).close()


def test_anchor_when_missing_then_refused_with_rows_and_without(tmp_path: Path) -> None:
    for name, keys in (("used", ("write-0001",)), ("unused", ())):
        lived(tmp_path / name, *keys)
        (tmp_path / name / "anchor").unlink()
        refused(tmp_path / name, "has no anchor: it may be an old copy")


def test_anchor_when_of_another_store_then_refused(tmp_path: Path) -> None:
    lived(tmp_path / "one")
    lived(tmp_path / "other")
    shutil.copy(tmp_path / "other" / "anchor", tmp_path / "one" / "anchor")
    refused(tmp_path / "one", "belongs to another store")


@pytest.mark.parametrize("size", [0, 63, 65])
def test_anchor_when_of_another_size_after_use_then_refused(directory: Path, size: int) -> None:
    lived(directory, "write-0001")
    (directory / "anchor").write_bytes(bytes(size))
    refused(directory, f"has {size} bytes, not 64")


def test_anchor_when_the_database_is_gone_then_refused_and_no_new_store_is_made(directory: Path) -> None:
    lived(directory, "write-0001")
    (directory / FILE).unlink()
    refused(directory, "has an anchor but no database")
    refused(directory, "has an anchor but no database")


def test_database_when_set_back_to_an_old_copy_then_refused(directory: Path, tmp_path: Path) -> None:
    lived(directory, "write-0001")
    shutil.copy(directory / FILE, tmp_path / "old")
    lived(directory, "write-0002")
    shutil.copy(directory / FILE, tmp_path / "new")
    shutil.copy(tmp_path / "old", directory / FILE)
    refused(directory, r"older than its anchor \(row 4\): it was set back")
    shutil.copy(tmp_path / "new", directory / FILE)
    started(directory).close()


def test_database_when_only_its_epoch_was_set_back_then_refused(directory: Path, tmp_path: Path) -> None:
    lived(directory)
    shutil.copy(directory / FILE, tmp_path / "old")
    lived(directory)
    shutil.copy(tmp_path / "old", directory / FILE)
    refused(directory, r"older than its anchor \(row 0\): it was set back")


def test_database_when_it_has_another_history_of_the_same_length_then_refused(directory: Path, tmp_path: Path) -> None:
    lived(directory, "write-0001")
    shutil.copytree(directory, tmp_path / "fork")
    lived(directory, "write-0002")
    lived(tmp_path / "fork", "write-0003")
    shutil.copy(tmp_path / "fork" / FILE, directory / FILE)
    refused(directory, "it was set back")


def test_anchor_when_behind_the_database_then_harmless(directory: Path) -> None:
    lived(directory, "write-0001")
    old = (directory / "anchor").read_bytes()
    lived(directory, "write-0002")
    (directory / "anchor").write_bytes(old)
    store = started(directory)
    assert isinstance(do(store, ops.find, NEW.principal, "write-0002"), OpRow)
    store.close()


# --- answers of SQLite that cannot be had from a good disk --------------------------------------------------------


class Answering(sqlite3.Connection):
    """A connection that answers some statements as if they were others."""

    instead: dict[str, str]

    def execute(self, sql: str, parameters: Any = (), /) -> sqlite3.Cursor:
        return super().execute(self.instead.get(sql, sql), parameters)


ANSWERS = [
    ({"PRAGMA journal_mode": "SELECT 'delete'"}, r"does not give journal_mode=WAL on .* \(it says delete\)"),
    ({"PRAGMA synchronous": "SELECT 2"}, r"does not give synchronous=EXTRA on .* \(it says 2\)"),
    ({"PRAGMA wal_checkpoint(TRUNCATE)": "SELECT 1, 7, 3"}, "could not be checkpointed"),
]


@pytest.mark.parametrize(("instead", "says"), ANSWERS, ids=["journal_mode", "synchronous", "checkpoint"])
def test_store_when_sqlite_does_not_give_what_is_needed_then_refused(
    directory: Path, monkeypatch: pytest.MonkeyPatch, instead: dict[str, str], says: str
) -> None:
    plain = sqlite3.connect
    factory = type("Answering", (Answering,), {"instead": instead})
    with monkeypatch.context() as patched:
        patched.setattr(sqlite3, "connect", lambda path, **options: plain(path, factory=factory, **options))
        refused(directory, says)
    store = started(directory)
    assert do(store, ops.t1_intent, NEW, {}) == 1
    store.close()


# --- crashes ------------------------------------------------------------------------------------------------------

CRASH = """
import os, sys
from pathlib import Path
from hwtool_store import operations as ops
from hwtool_store.anchor import Anchor
from hwtool_store import database
from hwtool_store.database import Start, open_store
from hwtool_store.operations import NewOp

def die(*_):
    os._exit(9)

def intent(key):
    new = NewOp("uid:1000", key, b"d" * 32, "i2c:1:0x20", "write", {}, b"c" * 32, 1, 100, {})
    return lambda conn: ops.t1_intent(conn, new, {"key": key})

def life():
    store = open_store(Path(sys.argv[1]), Start("boot-1", 7, 1, 1, "v"), allow_unsafe=True)
    store.start()
    return store
"""


def crashed(directory: Path, life: str) -> None:
    """A life that ends as by SIGKILL."""
    done = subprocess.run([sys.executable, "-c", CRASH + life, str(directory)], check=False)  # a timeout would poll
    assert done.returncode == 9


def test_intent_when_the_process_dies_after_its_commit_then_the_next_life_finds_it(directory: Path) -> None:
    crashed(directory, "life().submit(intent('write-0001')).result(); die()")
    assert (directory / f"{FILE}-wal").stat().st_size > 0
    store = started(directory)
    op = do(store, ops.find, "uid:1000", "write-0001")
    assert isinstance(op, OpRow)
    assert (op.state, op.epoch, store.epoch, store.seq) == ("INTENT", 1, 2, 1)
    clean = do(store, lambda conn: conn.execute("SELECT clean_stop FROM epoch ORDER BY epoch").fetchall())
    assert clean == [(0,), (0,)]
    store.close()


def test_intent_when_the_process_dies_before_its_commit_then_its_key_is_fresh(directory: Path) -> None:
    crashed(
        directory,
        "s = life(); s.submit(intent('write-0001')).result()\n"
        "s.submit(lambda conn: (ops.t2_done(conn, 1, 'applied', {}, {}, 1, {}), intent('write-0002')(conn), die()))\n"
        "s._writer._thread.join()",
    )
    store = started(directory)
    assert do(store, ops.find, "uid:1000", "write-0002") is None
    op = do(store, ops.find, "uid:1000", "write-0001")
    assert isinstance(op, OpRow)
    assert (op.state, store.seq) == ("INTENT", 1)
    store.close()


def test_intent_when_the_process_dies_before_the_anchor_is_written_then_the_next_life_finds_it(directory: Path) -> None:
    crashed(
        directory,
        "s = life(); Anchor.write = die\ns.submit(intent('write-0001'))\ns._writer._thread.join()",
    )
    anchor = Anchor(directory / "anchor").read()
    assert anchor is not None
    assert anchor.audit_seq == 0
    store = started(directory)
    assert isinstance(do(store, ops.find, "uid:1000", "write-0001"), OpRow)
    store.close()


STEPS: list[tuple[str, str, bool, int]] = [
    ("in the pragmas", "database._create_if_new = die; life()", True, 1),
    ("before the schema", "database.schema.create = die; life()", True, 1),
    ("before the anchor", "Anchor.birth = die; life()", True, 1),
    ("in the anchor, empty", "os.write = die; life()", True, 1),
    ("in the anchor, cut short", "w = os.write; os.write = lambda h, d: (w(h, d[:7]), die()); life()", True, 1),
    ("before the anchor has its name", "Path.rename = die; life()", True, 1),
    ("before the checkpoint", "database.verify_newest = die; life()", False, 1),
    ("before the directory is synced", "database._sync_directory = die; life()", False, 1),
    ("before the epoch", "database._begin_epoch = die; life()", False, 1),
    ("after the epoch", "database.Store = die; life()", False, 2),
    ("after the start", "life(); die()", False, 2),
]


@pytest.mark.parametrize(("step", "life", "born", "epoch"), STEPS, ids=[s[0] for s in STEPS])
def test_creation_when_cut_off_at_a_step_then_the_next_start_takes_it_up(
    directory: Path, step: str, life: str, born: bool, epoch: int
) -> None:
    crashed(directory, life)
    store = started(directory)
    assert (store.born, store.epoch) == (born, epoch), step
    assert do(store, ops.t1_intent, NEW, {}) == 1
    identity = store.store_id
    store.close()
    again = started(directory)
    assert (again.born, again.store_id) == (False, identity)
    again.close()


def test_creation_when_cut_off_before_the_anchor_then_the_identity_of_the_schema_stays(directory: Path) -> None:
    crashed(directory, "Anchor.birth = die; life()")
    conn = sqlite3.connect(directory / FILE)
    identity = conn.execute("SELECT v FROM meta WHERE k='store_uuid'").fetchone()[0]
    conn.close()
    store = started(directory)
    assert str(store.store_id) == identity
    store.close()


@pytest.mark.parametrize("at", ["open", "locked"])
def test_schema_when_it_cannot_be_created_then_nothing_of_it_stays(tmp_path: Path, at: str) -> None:
    conn = sqlite3.connect(tmp_path / "x.db", isolation_level=None, timeout=0)
    conn.execute("CREATE TABLE audit(theirs)")
    other = sqlite3.connect(tmp_path / "x.db", isolation_level=None)
    if at == "locked":
        other.execute("BEGIN IMMEDIATE")
    with pytest.raises(sqlite3.OperationalError, match="locked" if at == "locked" else "already exists"):
        schema.create(conn, str(uuid.uuid4()), "00")
    assert not conn.in_transaction
    assert conn.execute("SELECT name FROM sqlite_schema").fetchall() == [("audit",)]
    other.close()
    conn.close()


# --- the anchor by itself -----------------------------------------------------------------------------------------

MARK = Mark(uuid.UUID(int=1), 2, 3, b"h" * 32)


def test_mark_when_packed_then_64_bytes_big_endian() -> None:
    assert MARK.packed() == bytes(15) + b"\x01" + bytes(7) + b"\x02" + bytes(7) + b"\x03" + b"h" * 32
    assert LAYOUT.size == 64


def test_anchor_when_born_then_read_back(tmp_path: Path) -> None:
    anchor = Anchor(tmp_path / "anchor")
    assert anchor.read() is None
    anchor.birth(MARK)
    assert anchor.read() == MARK
    assert mode(tmp_path / "anchor") == 0o600
    assert [path.name for path in tmp_path.iterdir()] == ["anchor"]


def test_anchor_when_its_birth_was_cut_off_then_it_is_not_there_and_can_be_born(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    def full(handle: int) -> None:
        raise OSError(28, "No space left on device")

    anchor = Anchor(tmp_path / "anchor")
    with monkeypatch.context() as patched:
        patched.setattr(os, "fsync", full)
        with pytest.raises(OSError, match="No space left"):
            anchor.birth(replace(MARK, audit_seq=9))
    assert anchor.read() is None
    anchor.birth(MARK)
    assert anchor.read() == MARK


def test_anchor_when_written_then_the_newest_mark_stands_and_closing_twice_is_harmless(tmp_path: Path) -> None:
    anchor = Anchor(tmp_path / "anchor")
    anchor.birth(MARK)
    for seq in (4, 5):
        anchor.write(replace(MARK, audit_seq=seq))
    anchor.close()
    anchor.close()
    assert anchor.read() == replace(MARK, audit_seq=5)
    assert (tmp_path / "anchor").stat().st_size == 64


def test_anchor_when_it_was_never_born_then_it_cannot_be_written(tmp_path: Path) -> None:
    with pytest.raises(FileNotFoundError):
        Anchor(tmp_path / "anchor").write(MARK)


# --- file systems -------------------------------------------------------------------------------------------------

MOUNTS = """\
22 1 259:2 / / rw,relatime shared:1 - ext4 /dev/nvme0n1p2 rw
23 22 0:21 / /tmp rw,nosuid shared:2 - tmpfs tmpfs rw,size=100k
24 22 0:40 / /home rw shared:3 master:2 - nfs4 server:/home rw,vers=4.2
25 24 259:3 / /home/me/local rw - btrfs /dev/nvme0n1p3 rw
26 22 0:41 / /mnt/my\\040disk rw - fuse.sshfs me@there:/ rw
27 22 259:4 / /srv rw - ext4 /dev/sda1 rw
28 27 0:42 / /srv rw - overlay overlay rw
short line
29 22 0:43 / /cut rw -
30 22 0:44 / /cut2 rw
"""
KINDS = [
    ("/", "ext4"),
    ("/var/lib/hwtool", "ext4"),
    ("/tmp", "tmpfs"),
    ("/tmp/x/y", "tmpfs"),
    ("/tmpfoo", "ext4"),
    ("/home/you", "nfs4"),
    ("/home/me/local/store", "btrfs"),
    ("/home/me/localhost", "nfs4"),
    ("/mnt/my disk/store", "fuse.sshfs"),
    ("/mnt/my", "ext4"),
    ("/srv/store", "overlay"),
    ("/cut/store", "ext4"),
    ("/cut2/store", "ext4"),
]


@pytest.mark.parametrize(("path", "kind"), KINDS, ids=[k[0] for k in KINDS])
def test_file_system_when_asked_by_path_then_the_longest_mount_point_wins(
    path: str, kind: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(Path, "resolve", lambda self: self)  # the paths are of no machine
    assert file_system_of(Path(path), MOUNTS) == kind


def test_file_system_when_the_path_is_a_link_then_where_it_leads_counts(tmp_path: Path) -> None:
    (tmp_path / "real").mkdir()
    (tmp_path / "link").symlink_to(tmp_path / "real")
    real = (tmp_path / "real").resolve()
    mounts = f"1 0 8:1 / / rw - ext4 /dev/sda1 rw\n2 1 0:1 / {real} rw - nfs server:/ rw\n"
    assert file_system_of(tmp_path / "link" / "store", mounts) == "nfs"


def test_file_system_when_nothing_is_mounted_then_nothing_is_known() -> None:
    assert file_system_of(Path("/"), "") == ""


UNSAFE = ["tmpfs", "ramfs", "overlay", "nfs", "nfs4", "cifs", "smb3", "9p", "ceph", "virtiofs", "fuse", "fuse.sshfs"]
SAFE = ["ext4", "ext3", "xfs", "btrfs", "f2fs", "zfs", "vfat"]


@pytest.mark.parametrize(("kind", "unsafe"), [*((k, True) for k in [*UNSAFE, "fuseblk"]), *((k, False) for k in SAFE)])
def test_file_system_when_its_kind_is_known_then_unsafe_or_not(kind: str, unsafe: bool) -> None:
    assert is_unsafe(kind) is unsafe


def test_store_when_its_disk_is_full_at_birth_then_refused_and_taken_up_later(
    directory: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    def full(self: Anchor, mark: Mark) -> None:
        raise OSError(28, "No space left on device")

    with monkeypatch.context() as patched:
        patched.setattr(Anchor, "birth", full)
        refused(directory, "cannot be used: .* No space left on device")
    store = started(directory)
    assert (store.born, store.epoch) == (True, 1)
    store.close()
