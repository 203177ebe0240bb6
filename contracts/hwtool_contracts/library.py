"""The bundled contracts: which there are and where they stand."""

from __future__ import annotations

import difflib
from functools import cache
from pathlib import Path

from hwtool_contracts.model import Contract
from hwtool_contracts.native import load_contract
from hwtool_contracts.toml_reader import Fault, Faults

CHIPS = Path(__file__).parent / "chips"


def bundled_names() -> list[str]:
    """Names of all bundled contracts, sorted."""
    return sorted(path.stem for path in CHIPS.glob("*.toml"))


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


def find_contract(name: str, beside: Path | None = None) -> Contract:
    """A contract by bundled name, or by a path (anything with a slash or ending in .toml) relative to `beside`.

    Raises:
        Faults: there is none, or it does not load.
    """
    if "/" in name or name.endswith(".toml"):
        return load_contract((beside or Path()) / name)
    return bundled(name)
