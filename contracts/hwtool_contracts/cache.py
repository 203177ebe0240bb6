"""Compiled contracts on disk: what was imported once is opened, not imported again.

A file is named by the digest of everything that it was made from (the bytes of each source, the versions of hwtool and
of the format) and begins with a checksum of its content. What is damaged, foreign or of another version is rebuilt and
never believed; a cache that cannot be written is done without.
"""

from __future__ import annotations

import contextlib
import hashlib
import os
import stat
import tempfile
from collections.abc import Callable, Sequence
from functools import lru_cache
from importlib import metadata
from pathlib import Path
from typing import Final

from hwtool_contracts import wire
from hwtool_contracts.notice import Imported

MAGIC: Final = b"hwtool contract\n"
CHECKSUM_BYTES: Final = 32
MAX_FILES: Final = 64


def directory() -> Path:
    """`$HWTOOL_CACHE_DIR`, else `hwtool/contracts` below `$XDG_CACHE_HOME` or `~/.cache`."""
    own = os.environ.get("HWTOOL_CACHE_DIR")
    if own:
        return Path(own)
    base = os.environ.get("XDG_CACHE_HOME")
    return (Path(base) if base else Path.home() / ".cache") / "hwtool" / "contracts"


def cached(sources: Sequence[bytes], make: Callable[[], Imported]) -> Imported:
    """The contract made from these sources: opened if it was compiled before, else made and kept.

    Raises:
        Faults: from `make`; nothing is kept then.
    """
    key = hashlib.sha256(f"{_version()} {wire.VERSION}\0".encode())
    for source in sources:
        key.update(hashlib.sha256(source).digest())
    try:
        path = directory() / f"{key.hexdigest()}.contract"
    except RuntimeError:
        return make()  # nobody's home directory
    found = _open(path)
    if found is None:
        found = make()
        with contextlib.suppress(OSError, OverflowError):  # a number that the format has no place for
            _keep(path, wire.encode(found))
    return found


@lru_cache
def _version() -> str:
    """The version, and a digest of the code that makes contracts: a mended importer does not find its old ones."""
    code = hashlib.sha256()
    for path in sorted(Path(__file__).parent.rglob("*.py")):
        told = path.stat()
        code.update(f"{path.name} {told.st_size} {told.st_mtime_ns}\n".encode())
    return f"{metadata.version('hwtool')} {code.hexdigest()}"


def _open(path: Path) -> Imported | None:
    """The contract in a file; None if there is none that can be believed."""
    try:
        with path.open("rb") as file:
            told = os.fstat(file.fileno())
            if told.st_uid != os.geteuid() or told.st_mode & (stat.S_IWGRP | stat.S_IWOTH):
                return None  # somebody else could have written it
            data = file.read()
    except OSError:
        return None
    start = len(MAGIC) + CHECKSUM_BYTES
    content = memoryview(data)[start:]
    if data[: len(MAGIC)] != MAGIC or hashlib.sha256(content).digest() != data[len(MAGIC) : start]:
        return None
    try:
        return wire.decode(content)
    except ValueError:
        return None


def _keep(path: Path, content: bytes) -> None:
    path.parent.mkdir(parents=True, exist_ok=True, mode=0o700)
    with tempfile.NamedTemporaryFile(dir=path.parent, delete=False) as file:
        try:
            file.write(MAGIC + hashlib.sha256(content).digest() + content)
            file.close()
            Path(file.name).replace(path)
        except OSError:
            Path(file.name).unlink(missing_ok=True)
            raise
    kept = sorted(path.parent.glob("*.contract"), key=lambda p: p.stat().st_mtime)
    for old in kept[:-MAX_FILES]:
        old.unlink(missing_ok=True)
