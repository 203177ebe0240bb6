"""Every client, killed after the dispatch and asked again under the same key: once at the device, and `replayed`."""

from __future__ import annotations

import json
import sys
from typing import Any

import pytest

from tests.bench import Bench

KEY = "lost-reply-0001"
BLOCKING = f"""
import hwtool
with hwtool.Client() as hw:
    done = hw.write("gpio.OLATA", 0x55, key="{KEY}")
    print(done.json["replayed"], done.verdict, done.effects)
"""
ASYNCIO = f"""
import asyncio, hwtool.aio
async def main():
    async with hwtool.aio.Client() as hw:
        done = await hw.write("gpio.OLATA", 0x55, key="{KEY}")
        print(done.replayed, done.verdict, done.effects)
asyncio.run(main())
"""
PROGRAMS: dict[str, list[str]] = {
    "client": [sys.executable, "-c", BLOCKING],
    "aio": [sys.executable, "-c", ASYNCIO],
}
COMMAND = [sys.executable, "-m", "hwtool", "write", "gpio.OLATA=0x55", "--key", KEY, "--json"]


@pytest.mark.parametrize("daemon_too", [False, True], ids=["daemon lives", "daemon killed too"])
@pytest.mark.parametrize("program", PROGRAMS)
def test_python_when_killed_after_the_dispatch_then_the_same_key_replays(
    bench: Bench, program: str, daemon_too: bool
) -> None:
    bench.killed_after_dispatch(PROGRAMS[program], daemon_too=daemon_too)
    # where a rule settled it, the register holds what was wanted, and that this dispatch did it is not claimed
    assert bench.run(PROGRAMS[program]).split() == ["True", "applied", "unknown" if daemon_too else "applied"]
    assert bench.executed("OLATA.write") == 1


@pytest.mark.parametrize("daemon_too", [False, True], ids=["daemon lives", "daemon killed too"])
def test_command_line_when_killed_after_the_dispatch_then_the_same_key_replays(bench: Bench, daemon_too: bool) -> None:
    bench.killed_after_dispatch(COMMAND, daemon_too=daemon_too)
    again: dict[str, Any] = json.loads(bench.run(COMMAND))
    assert (again["replayed"], again["verdict"], bench.executed("OLATA.write")) == (True, "applied", 1)
