"""Accepting a store that is older than its anchor, or has none: a person's decision, with the daemon stopped.

What was recorded after the copy was made is lost: keys that were used then look fresh, and their requests would run
again. So every device starts held, and stays held until a person has looked at it and released it.
"""

from __future__ import annotations

import sqlite3
import uuid
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from hwtool_store import audit, operations
from hwtool_store.anchor import Anchor, Mark
from hwtool_store.database import FILE, Start, configure, meta, verify_newest
from hwtool_store.faults import StoreRefused
from hwtool_store.place import locked

HOLD_ALL = "hold_all"  # in meta: the next start holds every device of its board, for this reason


@dataclass(frozen=True)
class Accepted:
    """What was accepted.

    Attributes:
        newest: row of the chain that the store ends with.
        known: row that the anchor knew; None: it had none.
        held: places that are held from now on; the next start holds every other device of its board too.
    """

    newest: int
    known: int | None
    held: list[str]


def accept(directory: Path, start: Start, who: str, reason: str, *, allow_unsafe: bool = False) -> Accepted:
    """Accept the store of a directory as it is.

    Raises:
        StoreRefused: in use, damaged, not a store, or not behind its anchor: there is nothing to accept.
    """
    with locked(directory, allow_unsafe=allow_unsafe):
        path, anchor = directory / FILE, Anchor(directory / "anchor")
        try:
            conn = sqlite3.connect(path, isolation_level=None)
            try:
                return _accept(conn, path, anchor, start, who, reason)
            finally:
                conn.close()
                anchor.close()
        except (sqlite3.Error, OSError, ValueError) as error:
            raise StoreRefused(f"the store {path} cannot be used: {error}") from error


def _accept(conn: sqlite3.Connection, path: Path, anchor: Anchor, start: Start, who: str, reason: str) -> Accepted:
    if not conn.execute("SELECT count(*) FROM sqlite_schema").fetchone()[0]:
        raise StoreRefused(f"{path} is empty: there is nothing to accept; a store that is lost is begun anew elsewhere")
    configure(conn, path)
    verify_newest(conn, path)
    try:
        mark = anchor.read()
    except ValueError:  # damaged: it tells nothing, as if it were not there
        mark = None
    newest, digest = audit.tip(conn)
    store_id = uuid.UUID(meta(conn, "store_uuid"))
    if mark is not None and mark.store_id == store_id and not _behind(conn, mark):
        raise StoreRefused(f"the store {path.parent} is not behind its anchor: there is nothing to accept")
    conn.execute("BEGIN IMMEDIATE")
    # beyond every epoch that was ever begun, also in what is lost: nothing of that time may be taken for today's
    last = conn.execute("SELECT coalesce(max(epoch), 0) FROM epoch").fetchone()[0]
    epoch = max(last, 0 if mark is None else mark.epoch) + 1
    conn.execute(
        "INSERT INTO epoch(epoch, host_boot_id, pid, wall_ns, boottime_ns, version, clean_stop) VALUES(?,?,?,?,?,?,1)",
        (epoch, start.host_boot_id, start.pid, start.wall_ns, start.boottime_ns, start.version),
    )
    known = None if mark is None else mark.audit_seq
    why = f"an older store was accepted by {who}: {reason}"
    held = [locus for (locus,) in conn.execute("SELECT locus FROM device ORDER BY device_id").fetchall()]
    body: dict[str, Any] = {"at_ns": start.wall_ns, "what": "rollback_accepted", "by": who, "reason": reason}
    audit.append(conn, epoch, None, {**body, "newest": newest, "anchor": known, "held": held})
    for locus in held:
        note = {"at_ns": start.wall_ns, "what": "hold", "device": locus, "by": who, "reason": why}
        operations.put_hold(conn, locus, "rollback", why, start.wall_ns, note)
    conn.execute("INSERT OR REPLACE INTO meta(k, v) VALUES(?,?)", (HOLD_ALL, why))
    conn.execute("COMMIT")
    seq, digest = audit.tip(conn)
    anchor.birth(Mark(store_id, epoch, seq, digest))
    return Accepted(newest, known, held)


def _behind(conn: sqlite3.Connection, mark: Mark) -> bool:
    row = conn.execute("SELECT hash FROM audit WHERE seq=?", (mark.audit_seq,)).fetchone()
    epoch = conn.execute("SELECT coalesce(max(epoch), 0) FROM epoch").fetchone()[0]
    return epoch < mark.epoch or (mark.audit_seq > 0 and (row is None or row[0] != mark.audit_hash))


def take_hold_all(conn: sqlite3.Connection) -> str | None:
    """Why every device of the board has to be held now, once after an accepted rollback."""
    row = conn.execute("SELECT v FROM meta WHERE k=?", (HOLD_ALL,)).fetchone()
    conn.execute("DELETE FROM meta WHERE k=?", (HOLD_ALL,))
    return None if row is None else str(row[0])
