"""The schema: its text, its hash, and creating it in one transaction."""

from __future__ import annotations

import hashlib
import sqlite3
from importlib import resources

TEXT = resources.files(__package__).joinpath("schema.sql").read_text(encoding="utf-8")
APPLICATION_ID = 0x6877_7401  # "hwt" and the layout's number; SQLite keeps it in the file's header


def hash_of(conn: sqlite3.Connection) -> str:
    """Hash of the schema as the database has it: every table, index and trigger."""
    rows = conn.execute("SELECT type, name, tbl_name, sql FROM sqlite_schema ORDER BY type, name").fetchall()
    return hashlib.sha256(repr(rows).encode()).hexdigest()


def _wanted() -> str:
    memory = sqlite3.connect(":memory:")
    try:
        memory.executescript(TEXT)
        return hash_of(memory)
    finally:
        memory.close()


HASH = _wanted()


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
