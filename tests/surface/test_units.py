"""Sequences, safe states and freezes as a stranger types them."""

from __future__ import annotations

import json
from collections.abc import Iterator
from pathlib import Path

import pytest

from tests.running import RunningDaemon, command_line

STEPS = """
[[steps]]
do = "write"
register = "gpio.OLATA"
value = 0x41

[[steps]]
do = "expect"
register = "gpio.OLATA"
equals = 0x41

[[steps]]
do = "update"
register = "gpio.OLATA"
fields = { P1 = "high" }
"""


@pytest.fixture(scope="module")
def daemon() -> Iterator[RunningDaemon]:
    with RunningDaemon() as running:
        yield running


def test_sequence_when_typed_then_each_step_is_told_and_the_key_replays_it(
    daemon: RunningDaemon, tmp_path: Path
) -> None:
    file = tmp_path / "steps.toml"
    file.write_text(STEPS)
    first = command_line(daemon, "sequence", str(file), "--key", "bring-up-0001")
    assert first.returncode == 0, first.stderr
    assert [line.split()[:3] for line in first.stdout.splitlines()[:3]] == [
        ["step", "1", "write:"],
        ["step", "2", "expect:"],
        ["step", "3", "update:"],
    ]
    assert "applied: sequence of 3 step(s) on gpio: all done" in first.stdout
    again = command_line(daemon, "sequence", str(file), "--key", "bring-up-0001", "--json")
    assert json.loads(again.stdout)["replayed"] is True
    number = json.loads(again.stdout)["id"]
    told = command_line(daemon, "op", str(number)).stdout
    assert f"operation {number}: DONE applied by bus" in told
    assert "step 3: operation" in told
    rehearsed = command_line(daemon, "sequence", str(file), "--dry-run")
    assert (rehearsed.returncode, rehearsed.stdout.count("access")) == (0, 2)


def test_sequence_when_it_comes_from_a_pipe_and_stops_then_exit_nine_and_where(daemon: RunningDaemon) -> None:
    steps = [
        {"do": "write", "register": "gpio.OLATB", "value": 7},
        {"do": "expect", "register": "gpio.OLATB", "equals": 8},
    ]
    done = command_line(daemon, "sequence", "-", stdin=json.dumps({"steps": steps}))
    assert done.returncode == 9
    assert "stopped at step 2 (expect gpio.OLATB)" in done.stderr
    assert "hwtool: key " in done.stderr or "key" in done.stderr


@pytest.mark.parametrize(
    ("text", "why"),
    [("", "holds no steps"), ("steps = 3", "holds no steps"), ("[[steps", "cannot be read")],
)
def test_sequence_when_the_file_holds_no_steps_then_a_usage_error(
    daemon: RunningDaemon, tmp_path: Path, text: str, why: str
) -> None:
    file = tmp_path / "steps.toml"
    file.write_text(text)
    done = command_line(daemon, "sequence", str(file))
    assert (done.returncode, why in done.stderr) == (2, True)


def test_safe_state_when_frozen_then_it_passes_and_nothing_else_does_until_thawed(daemon: RunningDaemon) -> None:
    assert command_line(daemon, "freeze", "--reason", "maintenance").returncode == 0
    refused = command_line(daemon, "write", "gpio.OLATA=0x55")
    assert (refused.returncode, "frozen" in refused.stderr) == (7, True)
    assert command_line(daemon, "read", "gpio.OLATA").returncode == 0
    planned = command_line(daemon, "safe-state", "gpio", "--dry-run")
    assert planned.stdout.count("OLAT") == 2 + planned.stdout.count("reads before") * 2
    done = command_line(daemon, "safe-state", "gpio")
    assert done.returncode == 0, done.stderr
    assert "key" in done.stderr  # minted, and printed before it was sent
    assert command_line(daemon, "read", "gpio.OLATA").stdout.startswith("gpio.OLATA = 0x00")
    assert command_line(daemon, "thaw").returncode == 0
    assert command_line(daemon, "write", "gpio.OLATA=0x55").returncode == 0


def test_freeze_when_the_daemon_is_restarted_then_it_still_holds() -> None:
    running = RunningDaemon()
    with running:
        assert command_line(running, "freeze").returncode == 0
        running.kill()
        running.start()
        assert command_line(running, "write", "gpio.OLATA=1").returncode == 7
        assert command_line(running, "thaw").returncode == 0
        assert command_line(running, "write", "gpio.OLATA=1").returncode == 0


def test_python_when_it_runs_a_sequence_and_a_safe_state_then_as_the_command_line(daemon: RunningDaemon) -> None:
    with daemon.client() as client:
        done = client.sequence([{"do": "write", "register": "gpio.OLATB", "value": 9}], key="from-python-1")
        assert (done["verdict"], done["values"][0]["raw"]) == ("applied", "0x09")
        assert client.safe_state("gpio", key="from-python-2")["verdict"] == "applied"
