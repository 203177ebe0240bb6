"""The write-ahead log of the database: kept short, and bounded where somebody reads for very long.

SQLite copies the log into the database by itself about every 4 MiB, and starts it anew when nobody reads from it any
more. A cursor that stays open over many commits keeps it from that, and the log grows with every commit. Nothing of
hwtool keeps one open; if something does all the same, no new operation is begun beyond a mark, and the outcomes of
those that were still find room.

Source: SQLite, "Write-Ahead Logging", 2.3 "Avoiding Excessively Large WAL Files".
"""

from __future__ import annotations

import sqlite3
from pathlib import Path
from typing import Final

MIB: Final = 1 << 20
LONG_BYTES: Final = 16 * MIB  # four times what SQLite lets it come to by itself
MOST_BYTES: Final = 64 * MIB


class Log:
    """The log of one database; `path` is the database's."""

    def __init__(self, path: Path) -> None:
        self._path = path.with_name(path.name + "-wal")

    def size_bytes(self) -> int:
        """How long the file is; 0 if there is none."""
        try:
            return self._path.stat().st_size
        except OSError:
            return 0

    def keep_short(self, conn: sqlite3.Connection) -> None:
        """Between two batches: have a log that has grown long copied, and cut off, if nobody reads from it.

        Raises:
            sqlite3.Error: the database or the disk has failed; a reader in the way is no failure.
        """
        if self.size_bytes() < LONG_BYTES:
            return
        try:
            conn.execute("PRAGMA wal_checkpoint(TRUNCATE)").fetchall()
        except sqlite3.OperationalError as error:
            if error.sqlite_errorcode & 0xFF not in (sqlite3.SQLITE_BUSY, sqlite3.SQLITE_LOCKED):
                raise

    def too_long(self) -> str | None:
        """Why no new operation may be begun, None if the log is short enough."""
        size = self.size_bytes()
        if size < MOST_BYTES:
            return None
        return (
            f"{self._path} has grown to {size // MIB} MiB, beyond the mark of {MOST_BYTES // MIB} MiB: something reads"
            " the store without end; no new operation is begun until it has ended"
        )
