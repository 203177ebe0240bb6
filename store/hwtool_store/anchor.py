"""The anchor: 64 bytes beside the database that show whether it was set back.

Layout: store id (16 bytes), epoch (8, big-endian), audit sequence (8, big-endian), hash of that audit row (32). It is
synced at birth and written after each commit. A database behind its anchor, or without one, makes used keys look
fresh: it is refused at start.
"""

from __future__ import annotations

import os
import struct
import uuid
from dataclasses import dataclass
from pathlib import Path
from typing import Final

LAYOUT: Final = struct.Struct(">16sQQ32s")
ZERO_HASH: Final = bytes(32)
MOST: Final = (1 << 63) - 1  # what SQLite counts up to


@dataclass(frozen=True, slots=True)
class Mark:
    """How far the audit chain had got."""

    store_id: uuid.UUID
    epoch: int
    audit_seq: int
    audit_hash: bytes

    def packed(self) -> bytes:
        """The 64 bytes."""
        return LAYOUT.pack(self.store_id.bytes, self.epoch, self.audit_seq, self.audit_hash)


class Anchor:
    """The open anchor file of a store."""

    def __init__(self, path: Path) -> None:
        self._path = path
        self._handle: int | None = None

    def read(self) -> Mark | None:
        """The mark, None if there is no file.

        Raises:
            ValueError: the file is damaged: not 64 bytes, or numbers that no store has got to.
        """
        try:
            data = self._path.read_bytes()
        except FileNotFoundError:
            return None
        if len(data) != LAYOUT.size:
            raise ValueError(f"{self._path} has {len(data)} bytes, not {LAYOUT.size}")
        store_id, epoch, seq, digest = LAYOUT.unpack(data)
        if max(epoch, seq) > MOST:
            raise ValueError(f"{self._path} is damaged: it tells of epoch {epoch} and row {seq}")
        return Mark(uuid.UUID(bytes=store_id), epoch, seq, digest)

    def birth(self, mark: Mark) -> None:
        """Create the file, whole and synced or not at all."""
        unborn = self._path.with_suffix(".new")
        handle = os.open(unborn, os.O_CREAT | os.O_TRUNC | os.O_WRONLY, 0o600)
        try:
            os.write(handle, mark.packed())
            os.fsync(handle)
        finally:
            os.close(handle)
        unborn.rename(self._path)

    def write(self, mark: Mark) -> None:
        """Note how far the chain has got; 64 bytes in one write, not synced (being behind is harmless)."""
        if self._handle is None:
            self._handle = os.open(self._path, os.O_WRONLY)
        os.pwrite(self._handle, mark.packed(), 0)

    def close(self) -> None:
        """Close the file."""
        if self._handle is not None:
            os.close(self._handle)
            self._handle = None
