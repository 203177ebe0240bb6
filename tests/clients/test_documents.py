"""The page about Python is run, block after block, against a bench."""

from __future__ import annotations

import re
from pathlib import Path
from typing import Any

import hwtool
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
