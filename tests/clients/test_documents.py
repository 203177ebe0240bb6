"""The page about Python is run, block after block, against a bench."""

from __future__ import annotations

import re
from pathlib import Path
from typing import Any

import hwtool
from hwtool.failures import FAILURES
from hwtool_contracts.errors import Code
from tests.running import RunningDaemon

PAGE = (Path(__file__).parents[2] / "docs" / "python.md").read_text(encoding="utf-8")


def test_page_about_python_when_its_blocks_are_run_then_each_works(capsys: Any) -> None:
    blocks = re.findall(r"```python\n(.*?)```", PAGE, re.S)
    assert len(blocks) == 4
    with RunningDaemon() as daemon, daemon.hw() as hw:
        names: dict[str, Any] = {"hw": hw, "hwtool": hwtool}
        for block in blocks:
            exec(block.replace("Client()", f"Client({str(daemon.sockets)!r})"), names)
            names["hw"] = hw
    assert "read_has_side_effects" in capsys.readouterr().out


def test_guide_for_agents_when_read_then_short_enough_to_be_read() -> None:
    assert len((Path(hwtool.__file__).parent / "guide_agents.md").read_text(encoding="utf-8").splitlines()) <= 80


def test_failures_when_counted_then_one_for_each_code_of_the_catalogue() -> None:
    assert set(FAILURES) == set(Code)
    assert all(kind.code is code for code, kind in FAILURES.items())
