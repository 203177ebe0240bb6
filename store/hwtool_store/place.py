"""The directory of a store: its lock, and whether its file system keeps what was synced."""

from __future__ import annotations

import fcntl
import os
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Final

from hwtool_store.faults import StoreRefused

UNSAFE_FILE_SYSTEMS: Final = frozenset(
    {"tmpfs", "ramfs", "overlay", "nfs", "nfs4", "cifs", "smb3", "9p", "ceph", "glusterfs", "afs", "virtiofs"}
)


def file_system_of(path: Path, mounts: str) -> str:
    """Type of the file system a path is on, by the text of /proc/self/mountinfo; the longest mount point wins."""
    real = str(path.resolve())
    best, kind = "", ""
    for line in mounts.splitlines():
        left, _, right = line.partition(" - ")
        columns = left.split()
        if len(columns) < 5 or not right:
            continue
        point = columns[4].replace("\\040", " ")
        inside = point == "/" or real == point or real.startswith(point + "/")
        if inside and len(point) >= len(best):
            best, kind = point, right.split()[0]
    return kind


def is_unsafe(kind: str) -> bool:
    """Whether a file system of this type may lose what was synced, or breaks locks."""
    return kind in UNSAFE_FILE_SYSTEMS or kind.startswith("fuse")


def take(directory: Path, *, allow_unsafe: bool) -> tuple[int, bool]:
    """Make the directory if need be, and lock it; answers the lock's handle, and whether what is synced there stays.

    The lock goes with the handle, and so with the process.

    Raises:
        StoreRefused: in use, not writable, or on an unsafe file system; one sentence each.
    """
    try:
        directory.mkdir(mode=0o700, parents=True, exist_ok=True)
        lock = os.open(directory / "lock", os.O_CREAT | os.O_RDWR | os.O_CLOEXEC, 0o600)
    except OSError as error:
        raise StoreRefused(f"the store directory {directory} cannot be written: {error.strerror}") from error
    try:
        return lock, _locked(directory, lock, allow_unsafe)
    except BaseException:
        os.close(lock)
        raise


def _locked(directory: Path, lock: int, allow_unsafe: bool) -> bool:
    try:
        fcntl.flock(lock, fcntl.LOCK_EX | fcntl.LOCK_NB)
    except OSError as error:
        raise StoreRefused(f"the store {directory} is in use by another daemon") from error
    kind = file_system_of(directory, Path("/proc/self/mountinfo").read_text(encoding="utf-8", errors="replace"))
    if is_unsafe(kind) and not allow_unsafe:
        raise StoreRefused(
            f"the store {directory} is on {kind}, which may lose what was synced; use another directory,"
            " or --allow-unsafe-store if nothing in it matters"
        )
    return not is_unsafe(kind)


@contextmanager
def locked(directory: Path, *, allow_unsafe: bool) -> Iterator[None]:
    """Hold the lock of a store that exists; as `take`.

    Raises:
        StoreRefused: there is no such directory, or as `take`.
    """
    if not directory.is_dir():
        raise StoreRefused(f"there is no store in {directory}")
    lock, _ = take(directory, allow_unsafe=allow_unsafe)
    try:
        yield
    finally:
        os.close(lock)
