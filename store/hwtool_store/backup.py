"""A copy of the store while it is in use, by SQLite's backup API, in small steps between which the writer goes on.

The copy is of one moment: what is committed meanwhile on the same connection is carried over (SQLite does that). It has
no anchor: put in place of the store it is refused at start until a person accepts it (hwtool_store.rollback).

Source: SQLite, "Online Backup API", on changes by the connection that backs up.
"""

from __future__ import annotations

import os
import sqlite3
from collections.abc import Callable
from pathlib import Path
from typing import Final

from hwtool_store.faults import StoreRule

PAGES_A_STEP: Final = 64
SECRET_MODE: Final = 0o600


def back_up(conn: sqlite3.Connection, target: Path, between: Callable[[], None]) -> int:
    """Copy the database into a file that does not exist yet; answers its size in bytes.

    Args:
        between: called between two steps, outside any transaction; the writer does its jobs there.

    Raises:
        StoreRule: the file exists, or cannot be written; nothing is left of it.
    """
    try:
        os.close(os.open(target, os.O_CREAT | os.O_EXCL | os.O_WRONLY | os.O_CLOEXEC, SECRET_MODE))
    except OSError as error:
        raise StoreRule(f"{target}: {error.strerror}") from error
    try:
        copy = sqlite3.connect(target, isolation_level=None)
        try:
            copy.execute("PRAGMA synchronous=EXTRA")
            conn.backup(copy, pages=PAGES_A_STEP, progress=lambda *_: between())
            copy.execute("PRAGMA journal_mode=DELETE")  # one file, complete in itself
        finally:
            copy.close()
        _sync(target)
    except (sqlite3.Error, OSError) as error:
        target.unlink(missing_ok=True)
        raise StoreRule(f"{target}: {error}") from error
    except BaseException:
        target.unlink(missing_ok=True)
        raise
    return target.stat().st_size


def _sync(target: Path) -> None:
    for path, flags in ((target, os.O_RDONLY), (target.parent, os.O_RDONLY | os.O_DIRECTORY)):
        handle = os.open(path, flags)
        try:
            os.fsync(handle)
        finally:
            os.close(handle)
