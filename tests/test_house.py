"""The rules of the house that no other tool checks."""

from __future__ import annotations

import ast
import gc
from pathlib import Path

import pytest

TOP = Path(__file__).parent.parent
PACKAGES = [
    "hwtool",
    "contracts/hwtool_contracts",
    "registers/hwtool_registers",
    "store/hwtool_store",
    "sim/hwtool_sim",
]
MODULES = sorted(path for package in PACKAGES for path in (TOP / package).rglob("*.py"))
PURE_FORBIDDEN = {"time", "os", "socket", "subprocess", "random", "asyncio", "threading", "sqlite3"}
IMPURE = {"native.py", "library.py", "cache.py", "svd.py"}


def test_module_when_opened_then_its_first_line_tells_its_role() -> None:
    gc.disable()  # CPython 3.11 fails to parse where a finalizer parses something meanwhile (python/cpython#106905)
    try:
        missing = [str(m.relative_to(TOP)) for m in MODULES if ast.get_docstring(ast.parse(m.read_text())) is None]
    finally:
        gc.enable()
    assert missing == []


@pytest.mark.parametrize("folder", ["contracts", "registers", "store", "sim", "tests", "udev"])
def test_top_level_folder_when_opened_then_a_readme_says_what_lives_there(folder: str) -> None:
    assert len((TOP / folder / "README.md").read_text()) > 100


def test_pure_packages_when_read_then_they_import_no_clock_and_no_io() -> None:
    faults = []
    for module in MODULES:
        inside = module.relative_to(TOP).parts
        if inside[0] not in ("contracts", "registers") or "buses" in inside or module.name in IMPURE:
            continue
        for node in ast.walk(ast.parse(module.read_text())):
            names = [a.name for a in node.names] if isinstance(node, ast.Import) else []
            if isinstance(node, ast.ImportFrom) and node.module:
                names = [node.module]
            faults += [f"{module.name}: {n}" for n in names if n.split(".")[0] in PURE_FORBIDDEN]
    assert faults == []


def test_readme_when_read_then_its_test_command_is_what_the_gate_runs() -> None:
    assert "pytest" in (TOP / ".ci" / "tests").read_text()
    assert ".venv/bin/pytest" in (TOP / "README.md").read_text()


def test_guards_when_listed_in_the_manual_then_as_the_mutants_are() -> None:
    from tests.mutants import table

    rows = [line for line in (TOP / "docs" / "guards.md").read_text().splitlines() if line.startswith("| ")]
    assert rows[1:] == table()


def test_promises_when_listed_in_the_manual_then_as_the_table_is_and_every_test_named_exists() -> None:
    from tests.promises import PROMISES, rows

    manual = (TOP / "docs" / "proofs.md").read_text().splitlines()
    assert [line for line in manual if line.startswith("| ") and not line.startswith("| sentence")] == rows()
    named = [test for sentences in PROMISES.values() for _, test in sentences]
    gone = [t for t in named if f"def {t.partition('::')[2]}(" not in (TOP / t.partition("::")[0]).read_text()]
    assert gone == []
