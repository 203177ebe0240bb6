"""The schema: its text, its hash, creating it in one transaction, and bringing an older one up to it.

    1  a81d1b8100ff   the first: everything but the two indexes below
    2                 op_live, op_device: a start, and what looks back at a device, do not walk a million rows

A migration runs in one transaction with the new hash, by sqlite-utils, which keeps its own table of what was applied;
that table is no part of the schema that is compared. It costs a quarter of a second to import, and only an old store
pays that.
"""

from __future__ import annotations

import hashlib
import sqlite3
from importlib import resources
from typing import TYPE_CHECKING, Final

if TYPE_CHECKING:
    from sqlite_utils import Database

TEXT = resources.files(__package__).joinpath("schema.sql").read_text(encoding="utf-8")
APPLICATION_ID = 0x6877_7401  # "hwt" and the layout's number; SQLite keeps it in the file's header
FIRST: Final = "a81d1b8100ff47c02d6a7a157d2e77589b0f07119f0f855950927a471108f2ac"
ADDED: Final = ("op_live", "op_device")  # indexes of version 2, whose text is that of schema.sql


def hash_of(conn: sqlite3.Connection) -> str:
    """Hash of the schema as the database has it: every table, index and trigger."""
    rows = conn.execute(
        "SELECT type, name, tbl_name, sql FROM sqlite_schema WHERE tbl_name<>'_sqlite_migrations' ORDER BY type, name"
    ).fetchall()
    return hashlib.sha256(repr(rows).encode()).hexdigest()


def _wanted() -> tuple[str, dict[str, str]]:
    memory = sqlite3.connect(":memory:")
    try:
        memory.executescript(TEXT)
        named = memory.execute("SELECT name, sql FROM sqlite_schema WHERE sql IS NOT NULL").fetchall()
        return hash_of(memory), dict(named)
    finally:
        memory.close()


HASH, STATEMENTS = _wanted()
KNOWN: Final = (FIRST, HASH)


def create(conn: sqlite3.Connection, store_uuid: str, secret_hex: str) -> None:
    """Create everything in an empty database, in one transaction."""
    script = f"BEGIN IMMEDIATE;\n{TEXT}\nPRAGMA application_id={APPLICATION_ID};\n"
    script += "".join(
        f"INSERT INTO meta(k,v) VALUES('{key}','{value}');\n"  # values made here, never from outside
        for key, value in (("store_uuid", store_uuid), ("schema_hash", HASH), ("secret", secret_hex), ("frozen", "0"))
    )
    try:
        conn.executescript(script + "COMMIT;")
    except sqlite3.Error:
        if conn.in_transaction:
            conn.execute("ROLLBACK")
        raise


def migrate(conn: sqlite3.Connection) -> bool:
    """Bring a store of an older version up to this one; whether there was anything to do.

    Nothing is done to a schema that no version of hwtool made: the caller refuses it.
    """
    if hash_of(conn) != FIRST:
        return False
    from sqlite_utils import Database
    from sqlite_utils.migrations import Migrations

    steps = Migrations("hwtool")

    @steps(name="2: indexes for a start among a million operations")
    def indexes(db: Database) -> None:
        for name in ADDED:
            db.execute(STATEMENTS[name])
        db.execute("UPDATE meta SET v=? WHERE k='schema_hash'", (HASH,))

    steps.apply(Database(conn, execute_plugins=False))
    return True
