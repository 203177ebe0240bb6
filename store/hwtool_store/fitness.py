"""Whether a directory is fit for a store: may be written, keeps what was synced, has room, and how long a sync takes.

Looks and measures; makes one file of its own beside the store, and removes it. No store is opened.
"""

from __future__ import annotations

import os
import sqlite3
import statistics
import tempfile
import time
from dataclasses import dataclass
from pathlib import Path
from typing import Final

from hwtool_store.place import file_system_of, is_unsafe
from hwtool_store.space import Space

SYNCS: Final = 15
BLOCK: Final = bytes(4096)


@dataclass(frozen=True, slots=True)
class Fitness:
    """What was seen.

    Attributes:
        directory: where it was looked: the directory itself, or the nearest one above it that there is.
        exists: whether the directory itself is there.
        refusal: why nothing can be written there, None: something can.
        file_system: its type; `unsafe`, whether it may lose what was synced.
        low: what is wrong with its room, None: nothing.
        sync_ms: median of a write of 4 KiB with fdatasync; None: it could not be measured.
        sqlite: version of the library.
    """

    directory: Path
    exists: bool
    refusal: str | None
    file_system: str
    unsafe: bool
    low: str | None
    sync_ms: float | None
    sqlite: str


def fitness_of(directory: Path) -> Fitness:
    """Look at a directory that a store is in, or would be made in."""
    where = directory
    while not where.is_dir() and where != where.parent:
        where = where.parent
    kind = file_system_of(where, Path("/proc/self/mountinfo").read_text(encoding="utf-8", errors="replace"))
    refusal, sync_ms = None, None
    try:
        sync_ms = _sync_ms(where)
    except OSError as error:
        refusal = error.strerror or str(error)
    low = Space(where).low() if directory.is_dir() else None
    return Fitness(where, directory.is_dir(), refusal, kind, is_unsafe(kind), low, sync_ms, sqlite3.sqlite_version)


def _sync_ms(directory: Path) -> float:
    """The median of some writes that are synced.

    Raises:
        OSError: nothing can be written there.
    """
    took = []
    with tempfile.NamedTemporaryFile(dir=directory, prefix=".hwtool-doctor-") as file:
        for _ in range(SYNCS):
            began = time.perf_counter()
            os.pwrite(file.fileno(), BLOCK, 0)
            os.fdatasync(file.fileno())
            took.append(time.perf_counter() - began)
    return 1000 * statistics.median(took)
