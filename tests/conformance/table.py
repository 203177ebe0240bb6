"""The benches there are, and the tables of docs/conformance.md: what a trouble comes to, or why it is not asked."""

from __future__ import annotations

import importlib
from collections.abc import Iterator
from pathlib import Path
from typing import Final

from tests.conformance.bench import Bench, Expectation, Trouble

FOLDER: Final = Path(__file__).parent / "benches"
FIRST: Final = (
    "sim",
    "sim process",
    "modbus-rtu",
    "modbus-tcp",
    "i2c",
    "i2c by link",
    "smbus",
    "spi",
    "ftdi-i2c",
    "ftdi-spi",
)  # others follow by their files' names


def benches() -> list[type[Bench]]:
    """Every bench of every file in `benches/`."""
    found: list[type[Bench]] = []
    for file in sorted(FOLDER.glob("*.py")):
        found += importlib.import_module(f"tests.conformance.benches.{file.stem}").BENCHES
    return sorted(found, key=lambda b: FIRST.index(b.name) if b.name in FIRST else len(FIRST))


def _cell(expectation: Expectation | None) -> str:
    if expectation is None:
        return "–"
    read, write = str(expectation.read), str(expectation.write)
    return read if read == write else f"{read} / {write}"


def table() -> Iterator[str]:
    """A row for each trouble, a few buses at a time, then why a trouble is not asked of a bus."""
    there = benches()
    for first in range(0, len(there), len(FIRST)):
        some = there[first : first + len(FIRST)]
        yield "| trouble | " + " | ".join(b.name for b in some) + " |"
        yield "|---" * (len(some) + 1) + "|"
        for trouble in Trouble:
            yield f"| {trouble} | " + " | ".join(_cell(b.can.get(trouble)) for b in some) + " |"
        yield ""
    yield "| not asked | of | because |"
    yield "|---|---|---|"
    of: dict[tuple[str, str], list[str]] = {}
    for bench in there:
        for why in dict.fromkeys(bench.cannot.values()):
            troubles = ", ".join(t for t in Trouble if bench.cannot.get(t) == why)
            of.setdefault((troubles, why), []).append(bench.name)
    for (troubles, why), names in of.items():
        yield f"| {troubles} | {'; '.join(names)} | {why} |"
    yield ""
    yield "| fails today | of | because |"
    yield "|---|---|---|"
    for bench in there:
        for trouble, wrong in bench.defects.items():
            yield f"| {trouble} | {bench.name} | {wrong} |"
        if bench.unnoticed is not None:
            yield f"| returned unnoticed, under the daemon | {bench.name} | {bench.unnoticed} |"
