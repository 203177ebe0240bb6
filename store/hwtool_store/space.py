"""Room on the disk: a mark below which no new operation is begun, and a ballast for the outcomes of those that were.

A commit that fails for want of room is fatal, and the outcome of an operation that has been dispatched must still be
recorded. So new intents are refused while there is room for outcomes, and a file of nothing is kept beside the
database: it is given up when the room runs out all the same (somebody else fills the disk), and made again later.
"""

from __future__ import annotations

import contextlib
import os
from pathlib import Path
from typing import Final

MIB: Final = 1 << 20
MARK_BYTES: Final = 32 * MIB
BALLAST_BYTES: Final = 8 * MIB
RESERVE_BYTES: Final = 2 * MIB  # below this the ballast is given up: a batch of outcomes and its checkpoint need less


def free_bytes(directory: Path) -> int:
    """Bytes that this process may still write to the file system of a directory."""
    told = os.statvfs(directory)
    return told.f_bavail * told.f_frsize


class Space:
    """The room of one store."""

    def __init__(self, directory: Path) -> None:
        self._directory = directory
        self._ballast = directory / "ballast"

    @property
    def has_ballast(self) -> bool:
        """Whether the ballast is there, whole."""
        try:
            return self._ballast.stat().st_size >= BALLAST_BYTES
        except FileNotFoundError:
            return False

    def low(self) -> str | None:
        """Why no new operation may be begun, None if there is room, or if the file system does not tell."""
        try:
            free = free_bytes(self._directory)
        except OSError:
            return None
        if free >= MARK_BYTES:
            return None
        return (
            f"{self._directory} has {free // MIB} MiB free, below the mark of {MARK_BYTES // MIB} MiB: no new operation"
            " is begun; make room there"
        )

    def prepare(self) -> None:
        """Before a batch is committed: give the ballast up if there is no other room, make it again when there is.

        Never raises: a ballast is a help, and the store goes on without one.
        """
        with contextlib.suppress(OSError):
            free = free_bytes(self._directory)
            if free < RESERVE_BYTES:
                if self.has_ballast:
                    os.truncate(self._ballast, 0)
            elif free >= MARK_BYTES + 2 * BALLAST_BYTES and not self.has_ballast:
                self._make()

    def _make(self) -> None:
        handle = os.open(self._ballast, os.O_CREAT | os.O_WRONLY | os.O_CLOEXEC, 0o600)
        try:
            os.posix_fallocate(handle, 0, BALLAST_BYTES)
        except OSError:  # a file system without allocation, or full in this moment: do without
            os.ftruncate(handle, 0)
        finally:
            os.close(handle)
