"""The daemon's end of a simulator process: joined, started, lost, left behind."""

from __future__ import annotations

import errno
import gc
import json
import os
import re
import signal
import socket
import subprocess
import tempfile
import threading
import time
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import pytest

from hwtool_contracts.library import bundled
from hwtool_contracts.model import Space
from hwtool_registers import bus as bus_contract  # `Testifies` by name would look like a test
from hwtool_registers.bus import (
    Ambiguous,
    Answer,
    Closes,
    Confirmed,
    RegisterRead,
    RegisterWrite,
    Rejected,
    Sent,
)
from hwtool_sim.board import bus_of
from hwtool_sim.control import Bench
from hwtool_sim.faults import Fault, FaultKind
from hwtool_sim.process import SimConnection, SimServer
from hwtool_sim.remote import RemoteSimBus

LIMIT_S = 20.0
BUS = "i2c0"
CHIPS = {0x20: "mcp23017"}
READ = RegisterRead(0x20, Space.MEMORY, 0x14, 1)
WRITE = RegisterWrite(0x20, Space.MEMORY, 0x14, b"\x5a")


@pytest.fixture
def path() -> Iterator[str]:
    """A socket path that is short enough (108 bytes at the most)."""
    with tempfile.TemporaryDirectory(dir="/tmp") as folder:
        yield f"{folder}/sim"


@contextmanager
def serving(path: str, bench: Bench | None = None) -> Iterator[SimServer]:
    """A simulator in a thread of this process."""
    server = SimServer(path, bench or Bench({BUS: bus_of({0x20: bundled("mcp23017")})}))
    thread = threading.Thread(target=server.serve_forever, args=(0.01,), daemon=True)
    thread.start()
    yield server
    server.shutdown()
    thread.join(LIMIT_S)
    server.server_close()


def started(bus: RemoteSimBus) -> int:
    """The process that this bus started."""
    assert bus._started is not None
    return bus._started.pid


def stop(path: str) -> None:
    """Tell the process to end; it answers first."""
    connection = SimConnection(path)
    assert connection.ask({"control": "stop"}) == {"done": True}
    connection.close()


def close_and_wait(bus: RemoteSimBus) -> int | None:
    """Close the bus, which waits for its process. Returns the exit status; None: it lives on."""
    process = process_of(bus)
    bus.close()
    return process.poll()


def process_of(bus: RemoteSimBus) -> subprocess.Popen[bytes]:
    """The process that this bus started, for after the bus has let go of it."""
    assert bus._started is not None
    return bus._started


@contextmanager
def ended_at_last(bus: RemoteSimBus) -> Iterator[RemoteSimBus]:
    """Whatever the test did to it: no process outlives the test."""
    try:
        yield bus
    finally:
        if bus._started is not None and bus._started.poll() is None:
            bus._started.kill()
            bus._started.wait(LIMIT_S)
        bus._hang_up()


def test_remote_when_a_simulator_runs_then_it_is_joined_and_left_running(path: str) -> None:
    with serving(path) as server:
        bus = RemoteSimBus(path, BUS, None)
        assert isinstance(bus, bus_contract.Testifies)
        assert isinstance(bus, Closes)
        assert not bus.inline
        assert bus.perform(WRITE) == Confirmed()
        assert bus.perform(READ) == Confirmed(b"\x5a")
        assert bus.perform(RegisterRead(0x33, Space.MEMORY, 0, 1)) == Rejected("no acknowledge at 0x33", "address-nack")
        assert bus.boot_evidence(0x20) == server.bench.buses[BUS].boot_evidence(0x20)
        assert bus.boot_evidence(0x33) is None
        bus.close()
        bus.close()
        again = RemoteSimBus(path, BUS, None)
        assert again.perform(READ) == Confirmed(b"\x5a")
        again.close()
        assert server.bench.buses[BUS].chips[0x20].executed == {("OLATA", "write"): 1, ("OLATA", "read"): 2}


def test_remote_when_a_second_daemon_joins_then_it_is_refused_until_the_first_has_closed(path: str) -> None:
    with serving(path) as server:
        one, two = RemoteSimBus(path, BUS, None), RemoteSimBus(path, BUS, CHIPS)
        one.perform(WRITE)
        in_use = f"bus {BUS} of the simulator at {path} is in use by another daemon"
        with pytest.raises(OSError, match=re.escape(in_use)) as refused:
            two.open()
        assert refused.value.errno == errno.EBUSY
        answer = two.perform(READ)
        assert isinstance(answer, Rejected)
        assert answer.proof == "port-not-opened"
        assert server.bench.buses[BUS].chips[0x20].executed == {("OLATA", "write"): 1}
        one._hang_up()  # a lost connection does not give the bus away
        with pytest.raises(OSError, match="in use"):
            two.open()
        control = SimConnection(path)  # who controls is no master
        assert control.ask({"control": "counts"})["transfers"] == 1
        control.close()
        one.close()
        assert two.perform(READ) == Confirmed(b"\x5a")
        two.close()  # it started nothing, so it stops nothing
        assert one.perform(READ) == Confirmed(b"\x5a")
        one.close()
        assert Path(f"{path}.{BUS}.lock").stat().st_mode & 0o777 == 0o600


def test_remote_when_two_buses_of_one_process_are_joined_then_neither_keeps_the_other_out(path: str) -> None:
    bench = Bench({"one": bus_of({0x20: bundled("mcp23017")}), "two": bus_of({0x20: bundled("mcp23017")})})
    with serving(path, bench):
        one, two = RemoteSimBus(path, "one", None), RemoteSimBus(path, "two", None)
        assert one.perform(WRITE) == Confirmed()
        assert two.perform(READ) == Confirmed(b"\x00")
        assert one.boot_evidence(0x20) != two.boot_evidence(0x20)
        one.close()
        two.close()


def test_remote_when_the_process_has_no_such_bus_then_opening_says_which_there_are_and_leaves_no_lock(
    path: str,
) -> None:
    with serving(path):
        bus = RemoteSimBus(path, "spi0", None)
        with pytest.raises(OSError, match="there is no 'spi0'; there are i2c0"):
            bus.open()
        answer = bus.perform(READ)
        assert isinstance(answer, Rejected)
        assert answer.proof == "port-not-opened"
        assert (bus._held, bus._connection) == (None, None)


def test_remote_when_the_bus_is_unplugged_then_proved_absent_and_quiesce_fails_until_it_is_back(path: str) -> None:
    with serving(path) as server:
        bus = RemoteSimBus(path, BUS, None)
        bus.perform(WRITE)
        evidence = bus.boot_evidence(0x20)
        server.bench.buses[BUS].unplug(power=True)
        assert bus.perform(READ) == Rejected("the simulated bus is unplugged", "port-not-opened")
        with pytest.raises(OSError, match="unplugged"):
            bus.boot_evidence(0x20)
        with pytest.raises(OSError, match="unplugged"):
            bus.quiesce(0.0)
        server.bench.buses[BUS].plug()
        bus.quiesce(0.0)
        assert bus.perform(READ) == Confirmed(b"\x00")
        assert bus.boot_evidence(0x20) not in (evidence, None)
        bus.close()


def test_remote_when_quiesced_then_what_has_come_in_meanwhile_is_dropped(path: str) -> None:
    with serving(path) as server:
        sim = server.bench.buses[BUS]
        moments = [0.0]
        sim.clock = lambda: moments[-1]
        sim.chips[0x20].values |= {"OLATA": 0x5A, "OLATB": 0xC3}
        bus = RemoteSimBus(path, BUS, None)
        other = RegisterRead(0x20, Space.MEMORY, 0x15, 1)
        for asked_s, quiesced_s, value in ((0.0, 0.4, b"\x5a"), (1.0, 1.6, b"\xc3")):
            moments.append(asked_s)
            sim.plan(Fault(FaultKind.LATE_REPLY, 0x20, late_s=0.5))
            assert isinstance(bus.perform(READ), Ambiguous)
            moments.append(quiesced_s)
            bus.quiesce(0.0)
            assert bus.perform(other) == Confirmed(value)
        bus.close()


def test_remote_when_no_simulator_runs_then_proved_not_sent(path: str) -> None:
    bus = RemoteSimBus(path, BUS, None)
    answer = bus.perform(WRITE)
    assert isinstance(answer, Rejected)
    assert answer.proof == "port-not-opened"
    assert path in answer.fault
    with pytest.raises(OSError, match="No such file"):
        bus.open()
    with pytest.raises(OSError, match="No such file"):
        bus.boot_evidence(0x20)
    bus.close()
    with serving(path):
        assert bus.perform(WRITE) == Confirmed()
        bus.close()


def test_remote_when_quiesced_then_it_waits_and_begins_a_new_connection(path: str) -> None:
    waits: list[float] = []
    with serving(path) as server:
        bus = RemoteSimBus(path, BUS, None, clock=lambda: 100.0, sleep=waits.append)
        bus.perform(WRITE)
        first = bus._connection
        bus.quiesce(100.5)
        bus.quiesce(99.0)
        assert waits == [0.5]
        assert bus._connection is not first
        assert bus.perform(READ) == Confirmed(b"\x5a")
        assert len(server.bench.buses[BUS].log) == 2
        bus.close()


class Scripted:
    """A listener that lets a bus join and answers one request on each connection: by a scripted line, or silence."""

    def __init__(self, path: str, *answers: bytes) -> None:
        self.requests: list[dict[str, Any]] = []
        self._listener = socket.socket(socket.AF_UNIX, socket.SOCK_STREAM)
        self._listener.bind(path)
        self._listener.listen()
        self._thread = threading.Thread(target=self._serve, args=(answers,), daemon=True)
        self._thread.start()

    def _serve(self, answers: tuple[bytes, ...]) -> None:
        for answer in answers:
            near, _ = self._listener.accept()
            with near, near.makefile("rwb") as lines:
                assert json.loads(lines.readline()) == {"bus": BUS, "join": True}
                lines.write(b'{"joined": "i2c0"}\n')
                lines.flush()
                self.requests.append(json.loads(lines.readline()))
                lines.write(answer)

    def close(self) -> None:
        self._thread.join(LIMIT_S)
        self._listener.close()


def confirmed(data: str) -> bytes:
    return json.dumps({"answer": "confirmed", "data": data}).encode() + b"\n"


@pytest.mark.parametrize("last_words", [b"", b'{"answer": "confir'], ids=["silent", "inside-a-line"])
def test_remote_when_the_process_goes_away_then_ambiguous_and_the_next_transfer_opens_anew(
    path: str, last_words: bytes
) -> None:
    sim = Scripted(path, last_words, confirmed("5a"))
    bus = RemoteSimBus(path, BUS, None)
    assert bus.perform(WRITE) == Ambiguous(Sent.REPLY, "the simulator went away: the simulator went away")
    assert bus.perform(READ) == Confirmed(b"\x5a")
    assert [r["transfer"]["do"] for r in sim.requests] == ["write", "read"]  # each was sent once
    sim.close()
    bus.close()


ANSWERS: list[tuple[str, dict[str, Any], Answer]] = [
    ("confirmed", {"answer": "confirmed", "data": "01ff"}, Confirmed(b"\x01\xff")),
    ("rejected", {"answer": "rejected", "fault": "f", "proof": "p"}, Rejected("f", "p")),
    ("ambiguous", {"answer": "ambiguous", "stage": "data", "fault": "f"}, Ambiguous(Sent.DATA, "f")),
    ("new-word", {"answer": "perhaps"}, Ambiguous(Sent.REPLY, "the simulator answered 'perhaps'")),
    ("no-word", {"done": True}, Ambiguous(Sent.REPLY, "the simulator answered None")),
]


@pytest.mark.parametrize(("_what", "shown", "answer"), ANSWERS, ids=[a[0] for a in ANSWERS])
def test_remote_when_an_answer_comes_then_only_known_words_are_believed(
    path: str, _what: str, shown: dict[str, Any], answer: Answer
) -> None:
    sim = Scripted(path, json.dumps(shown).encode() + b"\n")
    bus = RemoteSimBus(path, BUS, None)
    assert bus.perform(READ) == answer
    sim.close()
    bus.close()


def test_remote_when_the_connection_is_gone_then_asking_says_so(path: str) -> None:
    with pytest.raises(ConnectionResetError, match="not connected"):
        RemoteSimBus(path, BUS, None)._ask({"control": "counts"})


def test_process_when_started_then_it_works_and_close_ends_it(path: str) -> None:
    with ended_at_last(RemoteSimBus(path, BUS, CHIPS)) as bus:
        assert bus.perform(WRITE) == Confirmed()
        assert started(bus) != os.getpid()
        assert bus.perform(READ) == Confirmed(b"\x5a")
        counts = SimConnection(path)
        assert counts.ask({"control": "counts"})["counts"] == {"0x20": {"OLATA.read": 1, "OLATA.write": 1}}
        counts.close()
        assert Path(path).stat().st_mode & 0o777 == 0o600
        assert close_and_wait(bus) == 0
        assert not Path(path).exists()


def test_process_when_it_was_stopped_then_quiesce_starts_another_with_new_evidence(path: str) -> None:
    with ended_at_last(RemoteSimBus(path, BUS, CHIPS)) as bus:
        bus.perform(WRITE)
        first, evidence = bus._started, bus.boot_evidence(0x20)
        assert first is not None
        stop(path)
        assert first.wait(LIMIT_S) == 0
        bus.quiesce(time.monotonic())
        assert started(bus) != first.pid
        assert bus.boot_evidence(0x20) not in (evidence, None)
        assert bus.perform(READ) == Confirmed(b"\x00")
        assert close_and_wait(bus) == 0


def test_process_when_the_bus_is_dropped_without_close_then_the_chips_live_on(path: str) -> None:
    bus = RemoteSimBus(path, BUS, CHIPS)
    bus.perform(WRITE)
    pid, evidence = started(bus), bus.boot_evidence(0x20)
    del bus
    gc.collect()
    try:
        again = RemoteSimBus(path, BUS, CHIPS)
        assert again.perform(READ) == Confirmed(b"\x5a")
        assert again.boot_evidence(0x20) == evidence
        again.close()
    finally:
        stop(path)
        assert os.waitpid(pid, 0) == (pid, 0)


def test_process_when_it_cannot_start_then_proved_not_sent(path: str, capfd: pytest.CaptureFixture[str]) -> None:
    bus = RemoteSimBus(path, BUS, {0x20: "no_such_chip"})
    answer = bus.perform(READ)
    assert isinstance(answer, Rejected)
    assert answer.proof == "port-not-opened"
    assert "did not start" in answer.fault
    assert "no_such_chip" in capfd.readouterr().err
    bus.close()


def test_process_when_it_does_not_start_in_time_then_proved_not_sent(path: str) -> None:
    moments = iter([0.0, 1000.0])
    with ended_at_last(RemoteSimBus(path, BUS, CHIPS, clock=lambda: next(moments))) as bus:
        answer = bus.perform(READ)
        assert isinstance(answer, Rejected)
        assert "did not start" in answer.fault


def kill(bus: RemoteSimBus) -> None:
    """The process of this bus dies without a word; its socket file stays."""
    process = process_of(bus)
    process.kill()
    assert process.wait(LIMIT_S) == -signal.SIGKILL


def test_process_when_it_was_killed_then_the_transfer_is_ambiguous_and_the_next_finds_new_chips(path: str) -> None:
    with ended_at_last(RemoteSimBus(path, BUS, CHIPS)) as bus:
        bus.perform(WRITE)
        evidence = bus.boot_evidence(0x20)
        kill(bus)
        assert Path(path).is_socket()
        answer = bus.perform(WRITE)
        assert isinstance(answer, Ambiguous)
        assert answer.stage is Sent.REPLY
        assert answer.fault.startswith("the simulator went away: ")
        assert bus.perform(READ) == Confirmed(b"\x00")  # the stale socket file was no obstacle
        assert bus.boot_evidence(0x20) != evidence
        assert close_and_wait(bus) == 0


def test_process_when_it_was_killed_then_evidence_is_an_os_error_and_the_bus_hangs_up(path: str) -> None:
    with ended_at_last(RemoteSimBus(path, BUS, CHIPS)) as bus:
        bus.perform(WRITE)
        kill(bus)
        with pytest.raises(OSError, match=r"Broken pipe|reset by peer|went away"):
            bus.boot_evidence(0x20)
        assert bus._connection is None
        assert bus.boot_evidence(0x20) is not None
        assert close_and_wait(bus) == 0


def test_process_when_it_was_killed_then_close_says_nothing(path: str) -> None:
    with ended_at_last(RemoteSimBus(path, BUS, CHIPS)) as bus:
        bus.perform(WRITE)
        kill(bus)
        bus.close()
        assert (bus._connection, bus._started) == (None, None)
        bus.close()


def test_process_when_the_connection_was_lost_then_close_stops_it_all_the_same(path: str) -> None:
    with ended_at_last(RemoteSimBus(path, BUS, CHIPS)) as bus:
        bus.perform(WRITE)
        bus._hang_up()
        assert close_and_wait(bus) == 0
        assert not Path(path).exists()


def test_process_when_the_connection_breaks_while_it_is_asked_to_stop_then_close_terminates_it(path: str) -> None:
    with ended_at_last(RemoteSimBus(path, BUS, CHIPS)) as bus:
        bus.perform(WRITE)
        assert bus._connection is not None
        bus._connection._socket.shutdown(socket.SHUT_RDWR)
        assert close_and_wait(bus) == -signal.SIGTERM
        assert bus._connection is None
