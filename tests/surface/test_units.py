"""Sequences, safe states and freezes as a stranger types them."""

from __future__ import annotations

import json
import time
from collections.abc import Iterator
from pathlib import Path

import pytest

from hwtool.bench import BENCH
from hwtool_sim.process import SimConnection
from tests.running import LIMIT_S, RunningDaemon, command_line

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
    step = command_line(daemon, "op", "--key", "bring-up-0001#3")
    assert (step.returncode, f"a step of operation {number}" in step.stdout) == (0, True)
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
    [
        ("", "holds no steps"),
        ("steps = 3", "holds no steps"),
        ("[[steps", "cannot be read"),
        ("steps = " + "[" * 5000, "cannot be read"),
        ("name = 'x'\n[[steps]]\ndo = 'read'", "beside steps it holds name"),
        ("[[steps]]\nvalue = 1979-05-27", "cannot be read"),
        ("[[steps]]\nvalue = nan", "cannot be read"),
    ],
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
    assert "frozen" in command_line(daemon, "devices").stderr
    assert "thawed" in command_line(daemon, "thaw").stdout
    assert "was not frozen" in command_line(daemon, "thaw").stdout
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
    with daemon.hw() as hw:
        done = hw.sequence([{"do": "write", "register": "gpio.OLATB", "value": 9}], key="from-python-1")
        assert (done.verdict, done.value.raw) == ("applied", "0x09")
        assert hw.safe_state("gpio", key="from-python-2").verdict == "applied"


METER = {"do": "write", "register": "meter.RELAY_PULSE_WIDTH", "value": {"scaled": "60", "unit": "ms"}}


def test_sequence_when_it_waits_for_a_person_then_that_is_what_is_said_and_the_screen_has_units(
    daemon: RunningDaemon,
) -> None:
    text = json.dumps({"steps": [METER]})
    waiting = command_line(daemon, "sequence", "-", "--key", "needs-person-1", stdin=text)
    assert (waiting.returncode, waiting.stdout.startswith("sequence of 1 step(s) on meter waits")) == (8, True)
    number = waiting.stdout.rpartition("(operation ")[2].partition(")")[0]
    screen = command_line(daemon, "approve", number).stdout
    assert f"request {number} of uid:" in screen
    assert "change 1, RELAY_PULSE_WIDTH: 0x42c80000  (100 ms) -> 0x42700000  (60 ms)" in screen
    assert command_line(daemon, "deny", number, "--reason", "not now").returncode == 0


def test_op_when_its_outcome_is_unknown_then_what_is_known_is_told_without_json() -> None:
    with RunningDaemon(BENCH.replace('kind = "sim"', 'kind = "sim"\nprocess = true')) as running:
        sim = SimConnection(str(running.store / "sim-i2c0.sock"))
        fault = {"kind": "reply_lost", "address": 0x4D, "access": "write", "offset": 0}
        sim.ask({"control": "fault", "fault": fault})
        lost = command_line(running, "write", "uart.THR=0x41", "--key", "lost-word-1")
        assert lost.returncode == 3
        deadline_s = time.monotonic() + LIMIT_S
        while "needs a person" not in (told := command_line(running, "op", "--key", "lost-word-1").stdout):
            assert time.monotonic() < deadline_s, told
            time.sleep(0.02)
        assert "seen: no reply" in told
        assert "TXLVL was 0x40 before" in told
        sim.close()
