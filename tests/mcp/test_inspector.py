"""The MCP Inspector, a client that nobody here wrote, finds nothing to complain about. `.ci/peers` installs it."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from pathlib import Path
from typing import Any, Final

import pytest

from hwtool.mcp.tools import TOOLS
from tests.bench import Bench
from tests.running import LIMIT_S

BIN: Final = Path(__file__).parents[2] / ".peers" / "node_modules" / ".bin"
pytestmark = pytest.mark.skipif(
    not (BIN / "inspector").exists() or not (BIN / "node").exists(),
    reason="the MCP Inspector and the Node it needs are not in .peers: run .ci/peers (needs npm and its registry)",
)


def inspected(bench: Bench, *words: str) -> tuple[dict[str, Any], str]:
    """What the inspector prints on both outputs; its exit code has to be 0."""
    command = [str(BIN / "node"), str(BIN / "inspector"), "--cli", "-e", f"HWTOOL_SOCKET={bench.daemon.sockets}"]
    done = subprocess.run(
        [*command, sys.executable, "-m", "hwtool", "mcp", *words],
        capture_output=True,
        text=True,
        timeout=2 * LIMIT_S,
        check=False,
        env={**os.environ, "HOME": str(bench.folder)},
    )
    assert done.returncode == 0, done.stderr
    printed: dict[str, Any] = json.loads(done.stdout)
    return printed, done.stderr


def test_tools_when_inspected_strictly_then_neither_errors_nor_warnings(bench: Bench) -> None:
    listed, said = inspected(bench, "--strict", "--method", "tools/list")
    assert [t["name"] for t in listed["tools"]] == list(TOOLS)
    assert "Warning" not in said, said
    assert "Error" not in said, said


def test_tool_when_called_by_the_inspector_then_as_by_any_client(bench: Bench) -> None:
    words = ["--method", "tools/call", "--tool-name", "hw_write"]
    arguments = ["--tool-arg", "register=gpio.OLATA", "--tool-arg", "value=0x40", "--tool-arg", "key=inspector-0001"]
    came, _ = inspected(bench, *words, *arguments)
    result = came["structuredContent"]
    assert (result["effects"], json.loads(came["content"][0]["text"])) == ("applied", result)
    assert bench.executed("OLATA.write") == 1
