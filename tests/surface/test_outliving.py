"""Devices that outlive the daemon: a simulated board in its own process, lines on ptys, kills, unplugs and stops."""

from __future__ import annotations

import signal
import tempfile
import time
from collections.abc import Callable, Iterator
from concurrent.futures import ThreadPoolExecutor
from functools import partial
from pathlib import Path
from typing import Any

import pytest

from hwtool_sim.process import SimConnection
from tests.running import LIMIT_S, RunningDaemon, RunningSimulator, command_line

BOARD = """
name = "bench"
approval_mode = "self"
[buses.i2c0]
kind = "sim"
socket = "{folder}/sim"
sole_master = true
response_ms = 300
reply_lifetime_ms = 200
transfer_limit_ms = 5000
[devices.gpio]
contract = "mcp23017"
bus = "i2c0"
address = 0x20
safe_state = [{{ register = "OLATA", value = 0 }}]
"""
LINE = """
name = "line"
approval_mode = "self"
self_approval_on_hardware = true
[buses.line0]
kind = "modbus-rtu"
path = "{folder}/line0"
baud = 115200
response_ms = 300
reply_lifetime_ms = 400
sole_master = true
[devices.meter]
contract = "sdm120"
bus = "line0"
address = 1
identity = "32"
"""

OPEN = {"register": "gpio.OLATA", "value": 0x55, "key": "open-0001"}


@pytest.fixture
def folder() -> Iterator[Path]:
    with tempfile.TemporaryDirectory(prefix="hw-", dir="/tmp") as name:
        yield Path(name)


def simulator(folder: Path, text: str) -> RunningSimulator:
    board = folder / "board.toml"
    board.write_text(text.format(folder=folder))
    return RunningSimulator(board, "--socket", str(folder / "sim"))


def come_about(condition: Callable[[], Any]) -> Any:
    """Poll across a process boundary until something is so."""
    deadline_s = time.monotonic() + LIMIT_S
    while not (found := condition()):
        assert time.monotonic() < deadline_s, "it never came about"
        time.sleep(0.02)
    return found


def ended(client: Any, key: str) -> dict[str, Any] | None:
    """The operation of a key, once it is done."""
    result: dict[str, Any] = client.ask("op.get", {"key": key})
    return result if result["op"]["state"] == "DONE" else None


def executed(sim: SimConnection, what: str) -> int:
    (counts,) = sim.ask({"control": "counts"})["counts"].values()
    return int(counts.get(what, 0))


def test_stop_when_an_intent_is_open_then_it_is_waited_for_recorded_and_answered(folder: Path) -> None:
    with simulator(folder, BOARD), RunningDaemon(BOARD.format(folder=folder)) as daemon:
        sim = SimConnection(str(folder / "sim"))
        sim.ask({"control": "fault", "fault": {"kind": "hang", "address": 0x20, "access": "write", "hang_s": 1.0}})
        with daemon.client() as client, ThreadPoolExecutor(1) as pool:
            asked = pool.submit(client.ask, "reg.write", OPEN)
            come_about(lambda: executed(sim, "OLATA.write"))
            assert daemon.process is not None
            daemon.process.send_signal(signal.SIGTERM)
            answered = asked.result(LIMIT_S)
        assert (answered["verdict"], answered["effects"]) == ("applied", "applied")
        assert daemon.wait() == 0
        daemon.start()
        with daemon.client() as client:
            again = client.ask("reg.write", OPEN)
        assert (again["replayed"], again["verdict"], executed(sim, "OLATA.write")) == (True, "applied", 1)
        sim.close()
        daemon.must_agree(folder / "sim")


def test_daemon_when_killed_with_the_reply_lost_then_the_device_it_left_behind_tells(folder: Path) -> None:
    with simulator(folder, BOARD), RunningDaemon(BOARD.format(folder=folder)) as daemon:
        sim = SimConnection(str(folder / "sim"))
        sim.ask({"control": "fault", "fault": {"kind": "hang", "address": 0x20, "access": "write", "hang_s": 1.5}})
        with daemon.client() as client:
            client.post("reg.write", {"register": "gpio.OLATA", "value": 0x55, "key": "lost-0001"})
            come_about(lambda: executed(sim, "OLATA.write"))
            daemon.kill()
        sim.ask({"control": "clear_faults"})
        daemon.start()
        told = ["op", "--key", "lost-0001", "--verify"]
        come_about(lambda: "DONE applied by rule" in command_line(daemon, *told).stdout)
        assert executed(sim, "OLATA.write") == 1
        sim.close()
        daemon.must_agree(folder / "sim")


def test_line_when_it_is_absent_at_start_unplugged_and_back_then_the_daemon_lives_and_identifies_it_anew(
    folder: Path,
) -> None:
    text = LINE.format(folder=folder)
    with RunningDaemon(text) as daemon:
        assert "line0 is absent" in daemon.log()
        gone = command_line(daemon, "read", "meter.VOLTAGE")
        assert (gone.returncode, "absent" in gone.stderr) == (7, True)
        with simulator(folder, LINE) as running:
            assert command_line(daemon, "read", "meter.VOLTAGE").returncode == 0
            sim = SimConnection(str(folder / "sim"))
            sim.ask({"control": "unplug"})
            assert command_line(daemon, "read", "meter.VOLTAGE").returncode in (1, 7)
            come_about(lambda: command_line(daemon, "read", "meter.VOLTAGE").returncode == 7)
            sim.ask({"control": "set", "address": 1, "register": "METER_CODE", "value": 0x99})
            sim.ask({"control": "plug"})
            come_about(lambda: command_line(daemon, "read", "meter.VOLTAGE").returncode == 0)
            words = ["write", "meter.RELAY_PULSE_WIDTH=60ms", "--operator", "--key", "pulse-0001"]
            refused = command_line(daemon, *words)
            assert (refused.returncode, "another device answers there" in refused.stderr) == (5, True)
            sim.ask({"control": "set", "address": 1, "register": "METER_CODE", "value": 0x20})
            done = command_line(daemon, *words)
            assert done.returncode == 0, done.stderr
            assert executed(sim, "RELAY_PULSE_WIDTH.write") == 1
            sim.close()
            assert running.process is not None
            daemon.must_agree(folder / "sim")


def test_line_when_replies_go_wrong_then_each_request_is_one_frame_and_its_class_is_right(folder: Path) -> None:
    with simulator(folder, LINE), RunningDaemon(LINE.format(folder=folder)) as daemon:
        sim = SimConnection(str(folder / "sim"))
        with daemon.client("operator") as client:

            def write(number: int) -> dict[str, Any]:
                key = f"width-{number:04d}"
                value = {"scaled": str(60 + number), "unit": "ms"}
                asked = {"register": "meter.RELAY_PULSE_WIDTH", "value": value, "key": key}
                result: dict[str, Any] = client.ask("reg.write", asked)
                while (result.get("error") or {}).get("code") == "unavailable":
                    time.sleep(result["error"]["retry_after_ms"] / 1000)  # as it says
                    result = client.ask("reg.write", asked)
                return result

            assert write(0)["verdict"] == "applied"
            kinds = ["reply_lost", "request_lost", "truncated", "corrupted", "late_reply", "duplicated"]
            for number, kind in enumerate(kinds, start=1):
                more = {"late_s": 0.35} if kind == "late_reply" else {}
                fault = {"kind": kind, "address": 1, "access": "write", **more}
                sim.ask({"control": "fault", "fault": fault})
                before = executed(sim, "RELAY_PULSE_WIDTH.write")
                result = write(number)
                runs = executed(sim, "RELAY_PULSE_WIDTH.write") - before
                assert runs == (0 if kind == "request_lost" else 1), kind
                if kind == "duplicated":
                    assert result["verdict"] == "applied"
                    continue
                assert result["error"]["code"] == "outcome_unknown", kind
                settled = come_about(partial(ended, client, f"width-{number:04d}"))
                # a nonvolatile register, no other master: what it holds tells, whatever became of the reply
                assert settled["verdict"] == ("not_applied" if kind == "request_lost" else "applied"), kind
        sim.close()
        daemon.must_agree(folder / "sim")
