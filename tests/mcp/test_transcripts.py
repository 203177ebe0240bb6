"""What stands on the pipe, line by line, in both eras and when a host discovers first and then initializes.

`python -m tests.mcp.test_transcripts` writes the golden files anew; what varies is replaced by its name.
"""

from __future__ import annotations

import json
import os
import re
import subprocess
import sys
from pathlib import Path
from typing import Any, Final

import pytest

from tests.bench import Bench, running_bench
from tests.running import LIMIT_S

GOLDEN: Final = Path(__file__).parent / "golden"
MODERN: Final = "2026-07-28"
META: Final = {
    "io.modelcontextprotocol/protocolVersion": MODERN,
    "io.modelcontextprotocol/clientInfo": {"name": "golden", "version": "1"},
    "io.modelcontextprotocol/clientCapabilities": {},
}
Line = dict[str, Any]


def request(number: int, method: str, **params: Any) -> Line:
    """A request of the era with a handshake."""
    return {"jsonrpc": "2.0", "id": number, "method": method, "params": params}


def modern(number: int, method: str, **params: Any) -> Line:
    """A request of the era without."""
    return request(number, method, **params, _meta=META)


def initialize(number: int, version: str) -> Line:
    """The handshake."""
    client = {"name": "golden", "version": "1"}
    return request(number, "initialize", protocolVersion=version, capabilities={}, clientInfo=client)


INITIALIZED: Final = {"jsonrpc": "2.0", "method": "notifications/initialized"}
READ: Final = {"name": "hw_read", "arguments": {"registers": ["gpio.OLATA"]}}
REFUSED: Final = {"name": "hw_read", "arguments": {"registers": ["uart.RHR"]}}
WRITE: Final = {"name": "hw_write", "arguments": {"register": "gpio.OLATA", "value": "0x40", "key": "golden-0001"}}
NO_TOOL: Final = {"name": "hw_poke", "arguments": {}}
CALLS: Final = (READ, REFUSED, WRITE, WRITE, NO_TOOL)
SCRIPTS: Final[dict[str, list[Line]]] = {
    "handshake": [
        initialize(1, "2025-06-18"),
        INITIALIZED,
        request(2, "tools/list"),
        *(request(n, "tools/call", **c) for n, c in enumerate(CALLS, 3)),
    ],
    "modern": [
        modern(1, "server/discover"),
        modern(2, "tools/list"),
        *(modern(n, "tools/call", **c) for n, c in enumerate(CALLS, 3)),
    ],
    "discover-then-initialize": [
        modern(1, "server/discover"),
        modern(2, "server/discover"),
        initialize(3, "2025-11-25"),
        INITIALIZED,
        request(4, "tools/call", **READ),
    ],
    "bare-discover-then-initialize": [request(1, "server/discover"), initialize(2, "2024-11-05"), INITIALIZED],
    "modern-without-discover": [modern(1, "tools/call", **READ)],
}
VARIES: Final = [
    (r"\d{4}-\d\d-\d\dT[\d:.]+Z", "TIME"),
    (r"sha256:[0-9a-f]{64}", "DIGEST"),
    (r'"(seq|wall_clock_ms)": \d+', r'"\1": NUMBER'),
    (r'\\"(seq|wall_clock_ms)\\": \d+', r'\\"\1\\": NUMBER'),
    (r'"id": \\?"?[0-9a-f]{8}-[0-9a-f-]{27}\\?"?', '"id": STORE'),
    (r"[0-9a-f]{8}-[0-9a-f]{4}-[0-9a-f]{4}-[0-9a-f]{4}-[0-9a-f]{12}", "STORE"),
    (r'"version": "0\.\d+\.\d+"', '"version": "VERSION"'),
]


def played(bench: Bench, script: list[Line]) -> list[str]:
    """Each line sent (>), and each that came (<), one request after the other."""
    environment = {**os.environ, "HWTOOL_SOCKET": str(bench.daemon.sockets)}
    command, pipe = [sys.executable, "-m", "hwtool", "mcp"], subprocess.PIPE
    process = subprocess.Popen(command, env=environment, stdin=pipe, stdout=pipe, text=True)
    assert process.stdin is not None
    assert process.stdout is not None
    told = []
    try:
        for line in script:
            process.stdin.write(json.dumps(line) + "\n")
            process.stdin.flush()
            told.append("> " + json.dumps(line))
            if "id" in line:
                told.append("< " + json.dumps(json.loads(process.stdout.readline()), sort_keys=True))
        rest, _ = process.communicate(timeout=LIMIT_S)  # what nobody asked for would stand here
        told += ["< " + extra for extra in rest.splitlines()]
        assert process.returncode == 0
    finally:
        process.kill()
        process.communicate()
    return [_plain(line) for line in told]


def _plain(line: str) -> str:
    for pattern, name in VARIES:
        line = re.sub(pattern, name, line)
    return line


@pytest.mark.parametrize("name", SCRIPTS)
def test_transcript_when_played_then_as_recorded(bench: Bench, name: str) -> None:
    recorded = (GOLDEN / f"{name}.txt").read_text(encoding="utf-8").splitlines()
    assert played(bench, SCRIPTS[name]) == recorded


def test_transcripts_when_a_host_discovers_first_then_the_handshake_still_works() -> None:
    lines = (GOLDEN / "discover-then-initialize.txt").read_text(encoding="utf-8").splitlines()
    plain = [line[2:].replace(": NUMBER", ": 0").replace(": STORE", ": 0") for line in lines if line[0] == "<"]
    answers = [json.loads(line) for line in plain]
    assert [MODERN in a["result"].get("supportedVersions", []) for a in answers[:2]] == [True, True]
    assert answers[2]["result"]["protocolVersion"] == "2025-11-25"
    assert answers[3]["result"]["structuredContent"]["ok"] is True


if __name__ == "__main__":
    GOLDEN.mkdir(exist_ok=True)
    for title, lines_of in SCRIPTS.items():
        with running_bench() as fresh:
            (GOLDEN / f"{title}.txt").write_text("\n".join(played(fresh, lines_of)) + "\n", encoding="utf-8")
