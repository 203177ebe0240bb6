"""Defects of the promise are found, each by the harness named for it; and the one command knows every harness."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path

import pytest

from tests.crash.__main__ import HARNESSES
from tests.crash.mutants import DEFECTS
from tests.print_tables import rules, settled

TOP = Path(__file__).parents[2]
LIMIT_S = 280


@pytest.mark.timeout(LIMIT_S + 20)
def test_defects_when_put_into_the_product_then_each_is_found_by_its_harness() -> None:
    command = [sys.executable, "-m", "tests.crash.mutants"]
    ended = subprocess.run(command, cwd=TOP, capture_output=True, text=True, timeout=LIMIT_S, check=False)
    if "no strace" in ended.stdout or "no C compiler" in ended.stdout:
        pytest.skip("a harness cannot run here: " + ended.stdout[-200:])
    assert ended.returncode == 0, ended.stdout
    assert len(DEFECTS) >= 12


def test_page_when_read_then_every_harness_and_every_defect_stands_there() -> None:
    page = (TOP / "docs" / "promise.md").read_text(encoding="utf-8")
    assert [h.name for h in HARNESSES if f"| {h.name} |" not in page] == []
    assert [d.name for d in DEFECTS if f"| {d.name} |" not in page] == []


def test_table_of_reconciliation_when_printed_then_as_in_the_manual() -> None:
    page = (TOP / "docs" / "reconciliation.md").read_text(encoding="utf-8").splitlines()
    rows = [line for line in page if line.startswith("| ") and not line.startswith(("| kind", "| |"))]
    assert rows == [*rules(), *settled()], "python -m tests.print_tables reconciliation"
