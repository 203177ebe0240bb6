"""Opening a store: the steps of the start-up sequence, each of which may be cut off by a crash.

lock → file system check → open, verify pragmas, header, schema hash, newest audit rows → checkpoint (what is about to
be believed is now durable) → fsync of the directory → anchor → durable epoch row. Only then does the writer start.

SQLite before 3.51.3 can corrupt a WAL with two connections: there is exactly one, in exclusive locking mode.
"""

from __future__ import annotations

import logging
import os
import secrets
import sqlite3
import uuid
from collections.abc import Callable
from concurrent.futures import Future
from dataclasses import dataclass
from pathlib import Path
from typing import Final, TypeVar

from hwtool_store import audit, schema
from hwtool_store.anchor import Anchor, Mark
from hwtool_store.backup import back_up
from hwtool_store.faults import StoreRefused
from hwtool_store.log import Log
from hwtool_store.place import take
from hwtool_store.space import Space
from hwtool_store.writer import Writer

T = TypeVar("T")
Connection = sqlite3.Connection  # what jobs are given; its methods belong to `operations` and `audit`
FILE: Final = "hwtool.db"


@dataclass(frozen=True, slots=True)
class Start:
    """What the epoch row says of this start; times in nanoseconds."""

    host_boot_id: str
    pid: int
    wall_ns: int
    boottime_ns: int
    version: str


class Store:
    """An open store: the writer thread, its identity, and how far its audit chain has got.

    Attributes:
        store_id: random, from birth.
        epoch: number of this start.
        secret: key of the digests of sensitive requests.
        durable: False on a file system that may lose what was synced.
        seq: newest audit sequence that is committed.
        born: True if this start created it.
    """

    def __init__(
        self,
        conn: sqlite3.Connection,
        lock: int,
        anchor: Anchor,
        epoch: int,
        durable: bool,
        born: bool,
        space: Space,
        log: Log,
    ) -> None:
        self._conn = conn
        self._lock = lock
        self._anchor = anchor
        self.epoch = epoch
        self.durable = durable
        self.born = born
        self.store_id = uuid.UUID(meta(conn, "store_uuid"))
        self.secret = bytes.fromhex(meta(conn, "secret"))
        self.seq, digest = audit.tip(conn)
        anchor.write(Mark(self.store_id, epoch, self.seq, digest))
        self._closed = False
        self._fatal: list[Callable[[BaseException], None]] = []
        self._space = space
        self._log = log
        self._writer = Writer(conn, self._committed, self._failed, self._prepare)

    @property
    def commits(self) -> int:
        """How many commits changed something since the start."""
        return self._writer.commits

    @property
    def failed(self) -> bool:
        """Whether the disk or the database has failed: the process must end without closing it."""
        return self._writer.failed

    def low_space(self) -> str | None:
        """Why no new operation may be begun for want of room on the disk or in the log, None if there is enough."""
        return self._space.low() or self._log.too_long()

    def start(self) -> None:
        """Start the writer; jobs are taken from here on."""
        self._writer.start()

    def submit(self, job: Callable[[sqlite3.Connection], T]) -> Future[T]:
        """Run a job in the writer's next transaction; the future resolves after the commit."""
        return self._writer.submit(job)

    def back_up(self, target: Path) -> Future[int]:
        """Copy the store into a new file while it is in use; the future answers its size in bytes."""
        return self._writer.submit_apart(lambda conn, between: back_up(conn, target, between))

    def on_fatal(self, call: Callable[[BaseException], None]) -> None:
        """Have `call` called, in the writer's thread, when the store has failed."""
        self._fatal.append(call)

    def close(self) -> None:
        """End cleanly: finish what is queued, mark the epoch, give the lock back. A second call does nothing."""
        if self._closed:
            return
        self._closed = True
        self._writer.submit(lambda conn: conn.execute("UPDATE epoch SET clean_stop=1 WHERE epoch=?", (self.epoch,)))
        self._writer.stop()
        if self.failed:
            return  # closing would write what may not be believed; the lock goes with the process
        self._conn.close()
        self._anchor.close()
        os.close(self._lock)

    def _prepare(self) -> None:
        self._space.prepare()
        self._log.keep_short(self._conn)

    def _committed(self, conn: sqlite3.Connection) -> None:
        seq, digest = audit.tip(conn)
        self._anchor.write(Mark(self.store_id, self.epoch, seq, digest))
        self.seq = seq

    def _failed(self, error: BaseException) -> None:
        for call in self._fatal:
            try:
                call(error)
            except Exception:  # one listener must not hide the failure from the others
                logging.getLogger(__name__).exception("a listener of the store's failure failed itself")


def meta(conn: sqlite3.Connection, key: str) -> str:
    """A fact of the whole store.

    Raises:
        StoreRefused: it has none of this name.
    """
    row = conn.execute("SELECT v FROM meta WHERE k=?", (key,)).fetchone()
    if row is None:
        raise StoreRefused(f"the store has no {key}: it is not complete")
    return str(row[0])


def frozen(conn: sqlite3.Connection) -> bool:
    """Whether an operator has frozen the daemon."""
    return meta(conn, "frozen") == "1"


def set_frozen(conn: sqlite3.Connection, value: bool) -> None:
    """Keep a freeze, or its end, over restarts."""
    conn.execute("UPDATE meta SET v=? WHERE k='frozen'", ("1" if value else "0",))


def set_meta_once(conn: sqlite3.Connection, key: str, value: str) -> str:
    """Set a fact of the whole store if it has none; answers what holds."""
    conn.execute("INSERT OR IGNORE INTO meta(k, v) VALUES(?,?)", (key, value))
    return meta(conn, key)


def open_store(directory: Path, start: Start, *, allow_unsafe: bool = False) -> Store:
    """Open or create the store in a directory (mode 0700).

    Raises:
        StoreRefused: in use, not writable, on an unsafe file system, damaged, or set back; one sentence each.
    """
    lock, durable = take(directory, allow_unsafe=allow_unsafe)
    try:
        return _open_locked(directory, start, lock, durable)
    except BaseException:
        os.close(lock)
        raise


def _open_locked(directory: Path, start: Start, lock: int, durable: bool) -> Store:
    path = directory / FILE
    anchor = Anchor(directory / "anchor")
    try:
        conn = sqlite3.connect(path, isolation_level=None, check_same_thread=False)
    except sqlite3.Error as error:
        raise StoreRefused(f"the store {path} cannot be opened: {error}") from error
    try:
        return _begin(conn, path, anchor, directory, start, lock, durable)
    except (sqlite3.Error, OSError, ValueError) as error:
        conn.close()
        raise StoreRefused(f"the store {path} cannot be used: {error}") from error
    except BaseException:
        conn.close()
        raise


def _begin(
    conn: sqlite3.Connection, path: Path, anchor: Anchor, directory: Path, start: Start, lock: int, durable: bool
) -> Store:
    configure(conn, path)
    born = _create_if_new(conn, directory, anchor)
    if schema.migrate(conn):
        logging.getLogger(__name__).warning("the store %s had an older schema: it was brought up to date", path)
    verify_newest(conn, path)
    checkpoint = conn.execute("PRAGMA wal_checkpoint(TRUNCATE)").fetchone()
    if checkpoint[0] != 0:
        raise StoreRefused(f"the store {path} could not be checkpointed")
    _sync_directory(directory)
    _compare(conn, anchor, directory)
    epoch = _begin_epoch(conn, start)
    space = Space(directory)
    space.prepare()
    return Store(conn, lock, anchor, epoch, durable, born, space, Log(path))


def configure(conn: sqlite3.Connection, path: Path) -> None:
    """Set what a connection to the store needs, and check that SQLite gives it.

    Raises:
        StoreRefused: it is not a store of hwtool, or SQLite does not give what is asked.
    """
    conn.execute("PRAGMA locking_mode=EXCLUSIVE")
    tables = conn.execute("SELECT count(*) FROM sqlite_schema").fetchone()[0]
    if tables and conn.execute("PRAGMA application_id").fetchone()[0] != schema.APPLICATION_ID:
        raise StoreRefused(f"{path} is not a store of hwtool")  # and it is left as it was
    path.chmod(0o600)
    wanted = {
        "locking_mode": ("EXCLUSIVE", "exclusive"),
        "journal_mode": ("WAL", "wal"),
        "synchronous": ("EXTRA", 3),
        "foreign_keys": ("ON", 1),
        "recursive_triggers": ("ON", 1),
        "trusted_schema": ("OFF", 0),
    }
    for name, (value, answer) in wanted.items():
        conn.execute(f"PRAGMA {name}={value}")
        found = conn.execute(f"PRAGMA {name}").fetchone()[0]
        if found != answer:
            raise StoreRefused(f"SQLite does not give {name}={value} on {path} (it says {found})")


def _create_if_new(conn: sqlite3.Connection, directory: Path, anchor: Anchor) -> bool:
    """Create schema and anchor where no epoch has begun yet; a creation that was cut off is taken up again."""
    mark = anchor.read()
    tables = conn.execute("SELECT count(*) FROM sqlite_schema").fetchone()[0]
    if tables == 0:
        if mark is not None:
            raise StoreRefused(f"{directory} has an anchor but no database: the database was lost or moved away")
        schema.create(conn, str(uuid.uuid4()), secrets.token_hex(32))
    elif mark is not None:
        return False
    elif conn.execute("SELECT count(*) FROM epoch").fetchone()[0]:
        return False  # without an anchor, and it has been in use: `_compare` refuses it
    anchor.birth(Mark(uuid.UUID(meta(conn, "store_uuid")), 0, 0, audit.GENESIS))
    return True


def verify_newest(conn: sqlite3.Connection, path: Path) -> None:
    """Check the schema as the file has it, and the newest rows of the chain.

    Raises:
        StoreRefused: another schema, or a broken chain.
    """
    for found in (meta(conn, "schema_hash"), schema.hash_of(conn)):
        if found != schema.HASH:
            raise StoreRefused(f"the store {path} has another schema ({found[:12]}), not {schema.HASH[:12]}")
    broken = audit.first_break(conn, audit.VERIFIED_AT_START)
    if broken is not None:
        raise StoreRefused(f"the audit chain of {path} is broken at row {broken}: the database is damaged")


def _compare(conn: sqlite3.Connection, anchor: Anchor, directory: Path) -> None:
    mark = anchor.read()
    if mark is None:
        raise StoreRefused(
            f"the store {directory} has no anchor: it may be an old copy, and used keys would look fresh"
        )
    if str(mark.store_id) != meta(conn, "store_uuid"):
        raise StoreRefused(f"the anchor of {directory} belongs to another store")
    row = conn.execute("SELECT hash FROM audit WHERE seq=?", (mark.audit_seq,)).fetchone()
    newest = conn.execute("SELECT coalesce(max(epoch), 0) FROM epoch").fetchone()[0]
    behind = (mark.audit_seq > 0 and row is None) or newest < mark.epoch
    if behind or (row is not None and row[0] != mark.audit_hash):
        raise StoreRefused(
            f"the store {directory} is older than its anchor (row {mark.audit_seq}): it was set back,"
            " and used keys would look fresh"
        )


def _begin_epoch(conn: sqlite3.Connection, start: Start) -> int:
    conn.execute("BEGIN IMMEDIATE")
    cursor = conn.execute(
        "INSERT INTO epoch(host_boot_id, pid, wall_ns, boottime_ns, version) VALUES(?,?,?,?,?)",
        (start.host_boot_id, start.pid, start.wall_ns, start.boottime_ns, start.version),
    )
    conn.execute("COMMIT")
    return int(cursor.lastrowid or 0)


def _sync_directory(directory: Path) -> None:
    handle = os.open(directory, os.O_RDONLY | os.O_DIRECTORY)
    try:
        os.fsync(handle)
    finally:
        os.close(handle)
