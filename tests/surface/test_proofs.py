"""`hwtool check` and `hwtool demo` end with the counted proof, and check can fail."""

from __future__ import annotations

import json
import subprocess
import sys

import pytest

from hwtool import keyed
from hwtool.checks.run import run_checks


def typed(*words: str) -> subprocess.CompletedProcess[str]:
    return subprocess.run(
        [sys.executable, "-m", "hwtool", *words], capture_output=True, text=True, timeout=100, check=False
    )


def test_check_when_run_then_it_passes_and_says_how_many_and_the_retry_arithmetic() -> None:
    done = typed("check")
    lines = done.stdout.splitlines()
    assert done.returncode == 0
    assert lines[-1].startswith("PASS: ")
    assert "safety checks" in lines[-1]
    assert "0.92236816" in lines[-2]
    assert [line[5] for line in lines[:7]] == list("1234567")
    assert all(line.startswith("ok ") for line in lines[:-2])


def test_check_when_asked_for_json_then_one_object_that_counts() -> None:
    told = json.loads(typed("check", "--json").stdout)
    assert told["passed"] is True
    assert told["count"] == len(told["checks"]) >= 53


def test_check_when_the_key_is_not_looked_up_then_it_fails(monkeypatch: pytest.MonkeyPatch) -> None:
    async def nothing(*_: object) -> None:
        return None

    monkeypatch.setattr(keyed.KeyedOperations, "_look_up", nothing)
    outcome = run_checks()
    assert not outcome.passed
    assert outcome.lines()[-1].startswith("FAIL: ")


def test_demo_when_run_then_every_step_is_counted() -> None:
    done = typed("demo")
    assert done.returncode == 0, done.stdout + done.stderr
    assert done.stdout.splitlines()[-1].startswith("PASS: ")
    assert "FAILED" not in done.stdout
    assert done.stdout.count("counted:") == 15
