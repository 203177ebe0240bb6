"""SIGKILL at system calls in the gate, and the defect that it must find. `.ci/peers` installs strace."""

from __future__ import annotations

import re
import subprocess
import sys
from pathlib import Path
from typing import Final

import pytest

from tests.crash.calls.sweep import strace

TOP: Final = Path(__file__).parent.parent.parent.parent
LIMIT_S: Final = 280
pytestmark = pytest.mark.skipif(strace() is None, reason="no strace here, or it may not trace (.ci/peers installs it)")


def sweep(*words: str) -> subprocess.CompletedProcess[str]:
    """The harness in processes of its own."""
    command = [sys.executable, "-m", "tests.crash.calls.sweep", *words]
    return subprocess.run(command, cwd=TOP, capture_output=True, text=True, timeout=LIMIT_S, check=False)


@pytest.mark.timeout(LIMIT_S + 20)
def test_daemon_when_killed_at_system_calls_then_nothing_runs_twice_and_every_answer_holds() -> None:
    ended = sweep("--gate")
    assert ended.returncode == 0, ended.stdout + ended.stderr
    told = re.search(r"(\d+) runs, (\d+) killed, 0 wrong", ended.stdout)
    assert told is not None, ended.stdout
    assert (int(told[1]) >= 140, int(told[2]) >= 136) == (True, True)


@pytest.mark.timeout(LIMIT_S + 20)
def test_sweep_when_the_product_guesses_then_it_is_found() -> None:
    ended = sweep("--call", "sendto", "--kind", "store", "--fault", "guess")
    assert ended.returncode == 1, ended.stdout + ended.stderr
    assert "it ended as ('not_applied', 'rule', 'none'), not as" in ended.stdout
