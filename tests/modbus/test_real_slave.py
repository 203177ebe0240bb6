"""The daemon, over pyserial and a pty, against a Modbus slave that nobody here wrote (pymodbus's server).

Frames are counted on the wire, executions by the slave in its own process.
"""

from __future__ import annotations

import subprocess
import sys
import time
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import pytest

from hwtool.losses import ConnectionLost
from tests.modbus.wire import Wire
from tests.running import RunningDaemon, command_line

pytest.importorskip("pymodbus", reason="pymodbus is the independent slave of these tests; install .[dev]")

HERE = Path(__file__).parent
CONTRACT = """
# Ref: the slave of these tests, tests/modbus/slave.py
schema = 1
part = "slave"
vendor = "pymodbus"
title = "a slave of another author"
source = "tests/modbus/slave.py"
[access]
[access.modbus]
base = 0
functions = [3, 6, 16]
max_registers = 100
atomic_multi = true
[defaults]
read = { effects = ["none"], provenance = "asserted", source = "slave.py" }
write = { effect = "store", provenance = "asserted", source = "slave.py" }
[registers.LEVEL]
offset = 5
space = "holding"
access = "rw"
reset = 0
[registers.NEXT]
offset = 6
space = "holding"
access = "rw"
reset = 0
[registers.VOLTS]
offset = 50
space = "holding"
access = "rw"
width_bits = 32
encoding = "float32"
unit = "V"
reset = 0
[registers.NOWHERE]
offset = 500
space = "holding"
access = "rw"
"""
BOARD = """
name = "line"
[buses.line0]
kind = "modbus-rtu"
path = "{path}"
baud = 115200
response_ms = 250
reply_lifetime_ms = 500
sole_master = {sole}
[devices.slave]
contract = "slave.toml"
bus = "line0"
address = 17
"""


@dataclass
class Line:
    """A daemon on a wire, and the slave's own count."""

    wire: Wire
    daemon: RunningDaemon
    counts: Path

    def executed(self, function: int, address: int) -> int:
        """Requests that the slave executed, by its own record."""
        return self.counts.read_text().splitlines().count(f"{function} {address}")

    def frames(self, function: int) -> int:
        """Frames of this function that went over the wire."""
        return sum(frame[1] == function for frame in self.wire.requests)

    def ask(self, method: str, role: Any = "agent", **params: Any) -> dict[str, Any]:
        """One request on a connection of its own."""
        with self.daemon.client(role) as client:
            return client.ask(method, params)

    def patiently(self, method: str, role: Any = "agent", **params: Any) -> dict[str, Any]:
        """As ask, obeying `unavailable`."""
        while True:
            result = self.ask(method, role, **params)
            error = result["error"]
            if error is None or error["code"] != "unavailable":
                return result
            time.sleep(error["retry_after_ms"] / 1000)  # what the error says to do

    def settled(self, key: str) -> dict[str, Any]:
        """Wait for the rules to settle a key, or for them to say that a person is needed."""
        while True:
            result = self.patiently("op.get", key=key, verify=True)
            op = result["op"]
            if op["state"] == "DONE" or (op["needs_person"] and "quarantined" not in op["needs_person"]):
                return result
            time.sleep(0.05)  # until the quarantine is over


def make(sole: str) -> Iterator[Line]:
    wire = Wire()
    daemon = RunningDaemon(BOARD.format(path=wire.master_end, sole=sole))
    (daemon.directory / "slave.toml").write_text(CONTRACT)
    counts = daemon.directory / "counts"
    slave = subprocess.Popen(
        [sys.executable, str(HERE / "slave.py"), wire.slave_end, str(counts)], stdout=subprocess.PIPE, text=True
    )
    try:
        assert slave.stdout is not None
        assert slave.stdout.readline() == "slave is ready\n"
        line = Line(wire, daemon, counts)
        with daemon:
            until_it_answers(line)
            yield line
    finally:
        slave.terminate()
        slave.wait(10)
        assert slave.stdout is not None
        slave.stdout.close()
        wire.close()


def until_it_answers(line: Line) -> None:
    """The slave says that it is ready before its port is open: ask until it answers, then forget the count."""
    deadline_s = time.monotonic() + 20
    while not line.patiently("reg.read", registers=["slave.NEXT"])["ok"]:
        assert time.monotonic() < deadline_s
    line.wire.requests.clear()
    line.counts.write_text("")


@pytest.fixture
def line() -> Iterator[Line]:
    yield from make("true")


@pytest.fixture
def shared_line() -> Iterator[Line]:
    yield from make("false")


def test_read_when_registers_are_neighbours_then_one_frame_and_the_values_of_the_slave(line: Line) -> None:
    result = line.ask("reg.read", registers=["slave.LEVEL", "slave.NEXT"])
    assert [v["raw"] for v in result["values"]] == ["0x000f", "0x0012"]
    assert [f[:-2].hex() for f in line.wire.requests] == ["110300050002"]  # the slave has checked the CRC
    volts = line.ask("reg.read", registers=["slave.VOLTS"])["values"][0]
    assert (volts["value"], volts["unit"]) == (230.5, "V")


def test_write_when_sent_three_times_under_one_key_then_one_frame_and_one_execution(line: Line) -> None:
    results = [line.ask("reg.write", register="slave.LEVEL", value=77, key="level-0001") for _ in range(3)]
    assert [r["replayed"] for r in results] == [False, True, True]
    assert [r["effects"] for r in results] == ["applied"] * 3
    assert [f[:-2].hex() for f in line.wire.requests if f[1] == 6] == ["11060005004d"]
    assert line.executed(6, 5) == 1
    # a pre-read, the write, a read-back: and nothing that nobody asked for
    assert [f[1] for f in line.wire.requests] == [3, 6, 3]


def test_write_of_a_float_when_given_in_its_unit_then_function_16_and_read_back(line: Line) -> None:
    value = {"scaled": "12.5", "unit": "V"}
    result = line.ask("reg.write", register="slave.VOLTS", value=value, key="volts-0001")
    assert result["effects"] == "applied"
    assert line.frames(16) == line.executed(16, 50) == 1
    assert line.ask("reg.read", registers=["slave.VOLTS"])["values"][0]["value"] == 12.5


def test_register_that_the_slave_has_not_when_read_then_its_exception_is_told(line: Line) -> None:
    result = line.ask("reg.read", registers=["slave.NOWHERE"])
    assert (result["error"]["code"], result["effects"]) == ("bus_fault", "none")
    assert "illegal data address" in result["error"]["fault"]


def test_write_when_its_reply_is_lost_then_unknown_and_held_and_settled_by_evidence(line: Line) -> None:
    lost = lose_the_reply_of_the_write(line, 99, "lost-0001")
    assert (lost["error"]["code"], lost["effects"]) == ("outcome_unknown", "unknown")
    again = line.ask("reg.write", register="slave.LEVEL", value=99, key="lost-0001")
    assert again["error"]["code"] in ("outcome_unknown", None) or again["verdict"] == "applied"
    other = line.ask("reg.write", register="slave.NEXT", value=1, key="lost-0002")
    assert other["error"]["code"] in ("held", "unavailable")
    settled = line.settled("lost-0001")
    assert (settled["op"]["verdict"], settled["op"]["verdict_by"], settled["effects"]) == ("applied", "rule", "unknown")
    assert line.frames(6) == line.executed(6, 5) == 1
    freed = line.patiently("reg.write", register="slave.NEXT", value=1, key="lost-0002")
    assert freed["effects"] == "applied"


def lose_the_reply_of_the_write(line: Line, value: int, key: str) -> dict[str, Any]:
    """Let the pre-read through, lose the reply of what follows it."""
    passed = len(line.wire.requests)
    original = line.wire._request

    def watch(data: bytes) -> None:
        if data[1] == 6:
            line.wire.lose_replies = 1
        original(data)

    line.wire._request = watch  # type: ignore[method-assign]
    result = line.ask("reg.write", register="slave.LEVEL", value=value, key=key)
    line.wire._request = original  # type: ignore[method-assign]
    assert len(line.wire.requests) > passed
    return result


def lose_the_write(line: Line, value: int, key: str) -> dict[str, Any]:
    """Let the pre-read through, lose the write itself."""
    original = line.wire._request

    def watch(data: bytes) -> None:
        line.wire.lose_requests = int(data[1] == 6)
        original(data)

    line.wire._request = watch  # type: ignore[method-assign]
    result = line.ask("reg.write", register="slave.LEVEL", value=value, key=key)
    line.wire._request = original  # type: ignore[method-assign]
    return result


def test_write_when_the_slave_never_got_it_then_settled_as_not_applied(line: Line) -> None:
    lost = lose_the_write(line, 99, "gone-0001")
    assert lost["error"]["code"] == "outcome_unknown"
    settled = line.settled("gone-0001")
    assert (settled["op"]["verdict"], settled["op"]["verdict_by"], settled["effects"]) == (
        "not_applied",
        "rule",
        "none",
    )
    assert (line.frames(6), line.executed(6, 5)) == (1, 0)


def test_write_when_the_bus_has_other_masters_then_a_person_settles_it(shared_line: Line) -> None:
    line = shared_line
    lost = lose_the_reply_of_the_write(line, 99, "shared-0001")
    assert lost["error"]["code"] == "outcome_unknown"
    waiting = line.settled("shared-0001")
    assert waiting["op"]["state"] == "UNKNOWN"
    assert "other masters" in waiting["op"]["needs_person"]
    settle = {"id": lost["id"], "verdict": "applied", "reason": "the display shows 99"}
    assert line.ask("op.settle", "operator", **settle)["ok"]
    final = line.ask("reg.write", register="slave.LEVEL", value=99, key="shared-0001")
    assert (final["verdict"], final["ok"], final["replayed"]) == ("applied", True, True)
    assert line.frames(6) == line.executed(6, 5) == 1


def test_reply_when_late_then_never_given_to_the_next_request_hc014_hc015(line: Line) -> None:
    line.wire.delay_s = [0.35]  # later than the response time, within the reply's lifetime
    late = line.ask("reg.read", registers=["slave.LEVEL"])
    assert (late["error"]["code"], late["effects"]) == ("timeout", "none")
    at_once = line.ask("reg.read", registers=["slave.NEXT"])
    assert at_once["error"]["code"] == "unavailable"
    following = line.patiently("reg.read", registers=["slave.NEXT"])
    assert following["values"][0]["raw"] == "0x0012"  # its own value, not the late 0x000f
    assert line.frames(3) == 2


def test_port_when_a_second_daemon_wants_it_then_it_is_told_and_sends_nothing(line: Line) -> None:
    second = RunningDaemon(BOARD.format(path=line.wire.master_end, sole="true"))
    (second.directory / "slave.toml").write_text(CONTRACT)
    refused = command_line(second, *second.arguments())
    assert refused.returncode == 2
    assert "in use" in refused.stderr
    assert "Traceback" not in refused.stderr
    assert line.wire.requests == []


KILLS = [
    # point, executions by the slave, verdict after recovery, its author
    ("before-dispatch", 0, "not_applied", "rule"),
    ("after-dispatch", 1, "applied", "rule"),
    ("after-outcome", 1, "applied", "bus"),
]


@pytest.mark.parametrize(("point", "executions", "verdict", "by"), KILLS, ids=[k[0] for k in KILLS])
def test_daemon_when_killed_then_nothing_runs_twice_and_no_answer_changes(
    line: Line, point: str, executions: int, verdict: str, by: str
) -> None:
    line.daemon.stop()
    line.daemon.start(HERE / "killed_daemon.py", KILL_AT=point)
    request = {"register": "slave.LEVEL", "value": 99, "key": "killed-0001"}
    with pytest.raises(ConnectionLost), line.daemon.client() as client:
        client.ask("reg.write", request)
    assert line.daemon.wait() == -9
    line.daemon.start()
    answers = [line.settled("killed-0001")["op"]]
    line.daemon.kill()
    line.daemon.start()
    answers.append(line.settled("killed-0001")["op"])
    repeated = line.patiently("reg.write", **request)
    assert [(a["state"], a["verdict"], a["verdict_by"]) for a in answers] == [("DONE", verdict, by)] * 2
    assert (repeated["verdict"], repeated["replayed"]) == (verdict, True)
    assert line.executed(6, 5) == line.frames(6) == executions
