"""Where contracts come from: bundled chips, files of every supported format, overlays laid over them, compiled copies.

A name is a bundled chip; anything with a slash or a known ending (.toml, .svd, .xml) is a path. A TOML file that names
a `base` is an overlay, and its base stands beside it.
"""

from __future__ import annotations

import difflib
import hashlib
from collections.abc import Sequence
from functools import cache
from pathlib import Path
from typing import Final

from hwtool_contracts.model import Contract
from hwtool_contracts.native import load_contract, parse_contract, read_text
from hwtool_contracts.notice import Imported
from hwtool_contracts.toml_reader import Fault, Faults

CHIPS: Final = Path(__file__).parent / "chips"
OVERLAYS: Final = Path(__file__).parent / "overlays"
SVD: Final = (".svd", ".xml")
ENDINGS: Final = (".toml", *SVD)
CACHED_BYTES: Final = 64 << 10


def bundled_names() -> list[str]:
    """Names of all bundled contracts, sorted."""
    return sorted(path.stem for path in CHIPS.glob("*.toml"))


def bundled_overlays() -> list[str]:
    """Names of all bundled overlays, sorted."""
    return sorted(path.stem for path in OVERLAYS.glob("*.toml"))


@cache
def bundled(name: str) -> Contract:
    """Load a bundled contract by name.

    Raises:
        Faults: there is none of this name (with near misses), or it does not load.
    """
    if name not in bundled_names():
        near = difflib.get_close_matches(name, bundled_names(), 3) or bundled_names()
        raise Faults([Fault(name, "", "", "no such bundled contract", name, "one of " + ", ".join(near))])
    return load_contract(CHIPS / f"{name}.toml")


def is_path(name: str) -> bool:
    """Whether a name is a file, not a bundled contract or overlay."""
    return "/" in name or name.lower().endswith(ENDINGS)


def find_contract(name: str, beside: Path | None = None, overlays: Sequence[str] = ()) -> Contract:
    """A contract by bundled name, or by a path relative to `beside`, with overlays laid over it.

    Raises:
        Faults: there is none, or it does not load.
    """
    return find(name, beside, overlays).contract


def find(name: str, beside: Path | None = None, overlays: Sequence[str] = ()) -> Imported:
    """As `find_contract`, with what was noticed on the way.

    Raises:
        Faults: as `find_contract`.
    """
    if not is_path(name):
        if not overlays:
            return Imported(bundled(name), ())
        bundled(name)  # says so if there is none
    path = (beside or Path()) / name if is_path(name) else CHIPS / f"{name}.toml"
    laid = [_overlay_path(overlay, beside) for overlay in overlays]
    return _load(path, laid)


def _overlay_path(name: str, beside: Path | None) -> Path:
    if is_path(name):
        return (beside or Path()) / name
    if name not in bundled_overlays():
        near = difflib.get_close_matches(name, bundled_overlays(), 3) or bundled_overlays()
        raise Faults([Fault(name, "", "", "no such bundled overlay", name, "a path, or one of " + ", ".join(near))])
    return OVERLAYS / f"{name}.toml"


def _read(path: Path) -> bytes:
    try:
        return path.read_bytes()
    except OSError as error:
        raise Faults([Fault(path.name, "", "", "cannot be read", str(error), "a readable file")]) from error


def _load(path: Path, overlays: list[Path], seen: frozenset[Path] = frozenset()) -> Imported:
    """Load a file of any format, with overlays.

    Raises:
        Faults: it does not load.
    """
    from hwtool_contracts.overlay import base_of

    if path.suffix.lower() not in SVD:
        base = base_of(read_text(path), path.name)
        if base is not None:
            known = seen | {path.resolve()}
            below = path.parent / base
            if below.resolve() in known:
                raise Faults([Fault(path.name, "", "base", "its base leads back to it", base, "a file of its own")])
            return _load(below, [path, *overlays], known)
    data = _read(path)
    texts = [read_text(overlay) for overlay in overlays]
    if path.suffix.lower() not in SVD and len(data) < CACHED_BYTES:
        return _made(path, data, overlays, texts)

    from hwtool_contracts.cache import cached

    named = [str(p.name).encode() for p in (path, *overlays)]
    sources = [data, *(text.encode() for text in texts), *named]
    return cached(sources, lambda: _made(path, data, overlays, texts))


def _made(path: Path, data: bytes, overlays: list[Path], texts: list[str]) -> Imported:
    if path.suffix.lower() in SVD:
        from hwtool_contracts.importers.svd import parse_svd

        imported = parse_svd(data, path.name)
    else:
        imported = Imported(parse_contract(read_text(path), path.name), ())
    if overlays:
        from hwtool_contracts.overlay import base_of, lay_over

        # an overlay names what it was written for: the file below all, or another overlay that is laid below it
        lowest = imported.contract
        digests = {path.name: hashlib.sha256(data).hexdigest()}
        for overlay, text in zip(overlays, texts, strict=True):
            base = base_of(text, overlay.name) or path.name
            below = digests.get(base, digests[path.name])
            laid = lay_over(imported.contract, below, text, overlay.name, lowest=lowest, direct=base == path.name)
            imported = Imported(laid.contract, (*imported.notices, *laid.notices))
            digests[overlay.name] = hashlib.sha256(text.encode()).hexdigest()
    return imported
