"""The simulator behind its socket: every request, what is answered to nonsense, and how it ends."""

from __future__ import annotations

import json
import os
import re
import runpy
import shutil
import signal
import socket
import stat
import sys
import tempfile
import threading
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from hwtool_contracts.library import bundled
from hwtool_contracts.model import Space
from hwtool_registers.bus import (
    Ambiguous,
    Answer,
    Confirmed,
    Line,
    RegisterRead,
    RegisterWrite,
    Rejected,
    Sent,
    as_object,
)
from hwtool_sim import process
from hwtool_sim.answers import answer_object
from hwtool_sim.board import bus_of
from hwtool_sim.control import Bench, counts_of
from hwtool_sim.faults import Fault, FaultKind
from hwtool_sim.process import SimConnection, SimServer, main, serve

LIMIT_S = 20.0
READ = as_object(RegisterRead(0x20, Space.MEMORY, 0x14, 1))
WRITE = as_object(RegisterWrite(0x20, Space.MEMORY, 0x14, b"\x5a"))


class Served:
    """A simulator in a thread of this process, and connections to it."""

    def __init__(self) -> None:
        self.folder = tempfile.mkdtemp(dir="/tmp")  # a socket's path has 108 bytes at the most
        self.path = f"{self.folder}/sim"
        self.bus = bus_of({0x20: bundled("mcp23017"), 0x48: bundled("sc16is750")})
        self.server = SimServer(self.path, Bench({"i2c0": self.bus}))
        self.thread = threading.Thread(target=self.server.serve_forever, args=(0.01,), daemon=True)
        self.thread.start()
        self.connections: list[SimConnection] = []

    def connect(self) -> SimConnection:
        self.connections.append(SimConnection(self.path))
        return self.connections[-1]

    def ask(self, request: dict[str, Any]) -> dict[str, Any]:
        return (self.connections[0] if self.connections else self.connect()).ask(request)

    def close(self) -> None:
        for connection in self.connections:
            connection.close()
        self.server.shutdown()
        self.thread.join(LIMIT_S)
        self.server.server_close()
        shutil.rmtree(self.folder)


@pytest.fixture
def served() -> Iterator[Served]:
    it = Served()
    yield it
    it.close()


ANSWERS: list[tuple[Answer, dict[str, Any]]] = [
    (Confirmed(b"\x01\xff"), {"answer": "confirmed", "data": "01ff"}),
    (Confirmed(), {"answer": "confirmed", "data": ""}),
    (Rejected("why", "address-nack"), {"answer": "rejected", "fault": "why", "proof": "address-nack"}),
    (Ambiguous(Sent.DATA, "why"), {"answer": "ambiguous", "stage": "data", "fault": "why"}),
]


@pytest.mark.parametrize(("answer", "shown"), ANSWERS, ids=["data", "no-data", "rejected", "ambiguous"])
def test_answer_when_shown_then_every_part_of_it_is_there(answer: Answer, shown: dict[str, Any]) -> None:
    assert answer_object(answer) == shown


def test_counts_when_pulses_fired_then_they_stand_beside_the_accesses() -> None:
    bus = bus_of({0x48: bundled("sc16is750"), 0x20: bundled("mcp23017")})
    bus.perform(RegisterWrite(0x48, Space.MEMORY, 0x00, b"ab"))
    bus.perform(RegisterRead(0x48, Space.MEMORY, 0x00, 1))
    assert counts_of(bus) == {"0x48": {"RHR.read": 1, "THR.write": 2, "THR.pulse": 2}, "0x20": {}}


def test_transfer_when_asked_then_answered_and_counted(served: Served) -> None:
    assert served.ask({"transfer": WRITE}) == {"answer": "confirmed", "data": ""}
    assert served.ask({"transfer": READ}) == {"answer": "confirmed", "data": "5a"}
    assert served.ask({"transfer": READ | {"offset": "0x16"}})["proof"] == "no-register"
    assert served.ask({"transfer": as_object(Line("x", True))})["proof"] == "no-register"
    counts = served.ask({"control": "counts"})
    assert counts == {"counts": {"0x20": {"OLATA.read": 1, "OLATA.write": 1}, "0x48": {}}, "transfers": 4}


def test_set_when_the_outside_world_moves_then_a_read_shows_it(served: Served) -> None:
    assert served.ask({"control": "set", "address": 0x20, "register": "OLATA", "value": 0x77}) == {"done": True}
    assert served.ask({"transfer": READ})["data"] == "77"
    assert served.ask({"control": "counts"})["counts"]["0x20"] == {"OLATA.read": 1}


def test_fault_when_planned_over_the_socket_then_it_strikes_the_chosen_access(served: Served) -> None:
    fault = {"kind": "reply_lost", "address": 0x20, "access": "write", "skip": 1}
    assert served.ask({"control": "fault", "fault": fault}) == {"done": True}
    answers = [served.ask({"transfer": WRITE})["answer"] for _ in range(3)]
    assert answers == ["confirmed", "ambiguous", "confirmed"]
    assert served.ask({"control": "counts"})["counts"]["0x20"] == {"OLATA.write": 3}


def test_reset_when_asked_then_the_nonce_changes_and_the_state_is_gone(served: Served) -> None:
    served.ask({"transfer": WRITE})
    before = served.ask({"boot_evidence": 0x20})["nonce"]
    other = served.ask({"boot_evidence": 0x48})
    assert served.ask({"boot_evidence": 0x20}) == {"nonce": before}
    assert served.ask({"control": "reset", "address": 0x20}) == {"done": True}
    assert served.ask({"boot_evidence": 0x20})["nonce"] not in (before, None)
    assert served.ask({"boot_evidence": 0x48}) == other
    assert served.ask({"transfer": READ})["data"] == "00"
    assert served.ask({"boot_evidence": 0x33}) == {"nonce": None}


AT_20 = {"address": 0x20, "register": "OLATA"}
MALFORMED: list[tuple[str, Any, str]] = [
    ("unknown-control", {"control": "explode"}, "control: no control is called 'explode'; one of counts, values"),
    ("control-is-a-list", {"control": []}, "no control is called"),
    ("nothing-asked", {}, "request: nothing is asked; one of join, transfer"),
    ("no-such-bus", {"bus": "spi9", "transfer": READ}, "transfer: bus: there is no 'spi9'; there are i2c0"),
    ("bus-is-a-number", {"bus": 3, "transfer": READ}, "bus: there is no 3"),
    ("control-of-no-bus", {"bus": "spi9", "control": "counts"}, "bus: there is no 'spi9'"),
    ("unknown-transfer", {"transfer": {"do": "dance"}}, "no transfer is called 'dance'"),
    ("transfer-without-address", {"transfer": {"do": "read"}}, "transfer: 'address' is missing"),
    ("unknown-space", {"transfer": READ | {"space": "attic"}}, "attic"),
    ("odd-hex", {"transfer": WRITE | {"data": "5"}}, "transfer: non-hexadecimal"),
    ("number-as-address", {"transfer": READ | {"address": 32}}, "transfer: int"),
    ("text-as-size", {"transfer": READ | {"size_bytes": "1"}}, "transfer: '<' not supported"),
    ("set-at-no-chip", {"control": "set", "address": 0x33, "register": "OLATA", "value": 1}, "no chip at 0x33 of bus"),
    ("set-without-value", {"control": "set", **AT_20}, "control: Object missing required field `value`"),
    ("reset-no-chip", {"control": "reset", "address": 0x33}, "no chip at 0x33 of bus i2c0; there are 0x20, 0x48"),
    ("unknown-fault", {"control": "fault", "fault": {"kind": "gremlin", "address": 0x20}}, "gremlin"),
    (
        "set-unknown-register",
        {"control": "set", "address": 0x20, "register": "OLATC", "value": 1},
        "mcp23017 has no register OLATC; one of OLAT",
    ),
    ("set-too-wide", {"control": "set", **AT_20, "value": 0x100}, "OLATA has 8 bits; 256"),
    ("set-negative", {"control": "set", **AT_20, "value": -1}, "OLATA has 8 bits; -1"),
    ("set-text", {"control": "set", **AT_20, "value": "1"}, r"Expected `int`, got `str` - at `\$.value`"),
    ("set-with-more", {"control": "set", **AT_20, "value": 1, "now": 1}, "unknown field `now`"),
    ("push-too-wide", {"control": "push", "address": 0x48, "register": "RHR", "elements": [256]}, "RHR has 8 bits"),
    ("fault-missing", {"control": "fault"}, "missing required field `fault`"),
    ("fault-without-kind", {"control": "fault", "fault": {"address": 0x20}}, "field `kind`"),
    ("fault-without-address", {"control": "fault", "fault": {"kind": "nack"}}, "field `address`"),
    ("fault-at-text", {"control": "fault", "fault": {"kind": "nack", "address": "0x20"}}, "Expected `int`"),
    (
        "fault-text-times",
        {"control": "fault", "fault": {"kind": "nack", "address": 1, "times": "9"}},
        "Invalid enum value",
    ),
    ("fault-is-no-object", {"control": "fault", "fault": 5}, "Expected `object`, got `int`"),
    ("fault-half", {"control": "fault", "fault": {"kind": "late_reply", "address": 32}}, "needs late_s above 0"),
    ("fault-unfit", {"control": "fault", "fault": {"kind": "exception", "address": 32, "code": 4}}, "no Modbus device"),
    ("move-to-an-occupied-place", {"control": "move", "address": 0x20, "to": 0x48}, "0x48 of bus i2c0 is occupied"),
    ("move-of-no-chip", {"control": "move", "address": 0x21, "to": 0x22}, "no chip at 0x21"),
    ("move-to-nowhere", {"control": "move", "address": 0x20, "to": -1}, "-1 is negative"),
    ("move-to-no-bus", {"control": "move", "address": 0x20, "to": 1, "to_bus": "x"}, "there is no 'x'"),
    ("swap-for-nothing", {"control": "swap", "address": 0x20}, "swap needs contract, or same = true"),
    ("swap-twice", {"control": "swap", "address": 0x20, "contract": "tmp102", "same": True}, "swap needs contract, or"),
    ("swap-unknown", {"control": "swap", "address": 0x20, "contract": "tmp103"}, "tmp103.*one of .*tmp102"),
    ("transfer-is-no-object", {"transfer": 5}, "no attribute"),
    ("evidence-of-a-list", {"boot_evidence": [1]}, "boot_evidence: unhashable"),
    ("a-number", 5, "a request is an object"),
    ("null", None, "a request is an object"),
]


@pytest.mark.parametrize(("_what", "request_", "text"), MALFORMED, ids=[m[0] for m in MALFORMED])
def test_request_when_malformed_then_it_is_told_and_the_connection_lives(
    served: Served, _what: str, request_: Any, text: str
) -> None:
    with pytest.raises(ValueError, match=f"the simulator refused: .*{text}"):
        served.ask(request_)
    assert served.ask({"control": "counts"})["counts"] == {"0x20": {}, "0x48": {}}
    assert served.bus.faults == []


JUNK = [b"junk\n", b"{\n", b"\n", b'{"control": \n', b"GET / HTTP/1.1\r\n", b"\xff\xfe\n", b"[]\n", b'"stop"\n']


@pytest.mark.parametrize("junk", JUNK, ids=repr)
def test_connection_when_it_speaks_something_else_then_it_is_told_and_lives(served: Served, junk: bytes) -> None:
    served.ask({"transfer": WRITE})
    with socket.socket(socket.AF_UNIX, socket.SOCK_STREAM) as other:
        other.settimeout(LIMIT_S)
        other.connect(served.path)
        with other.makefile("rwb") as lines:
            lines.write(junk + json.dumps({"transfer": READ}).encode() + b"\n")
            lines.flush()
            assert list(json.loads(lines.readline())) == ["error"]
            assert json.loads(lines.readline()) == {"answer": "confirmed", "data": "5a"}
    assert served.ask({"transfer": READ})["data"] == "5a"
    assert served.connect().ask({"transfer": READ})["data"] == "5a"


def test_connection_when_it_ends_inside_a_line_then_nothing_is_done(served: Served) -> None:
    with socket.socket(socket.AF_UNIX, socket.SOCK_STREAM) as other:
        other.settimeout(LIMIT_S)
        other.connect(served.path)
        other.sendall(json.dumps({"transfer": WRITE}).encode()[:-1])
        other.shutdown(socket.SHUT_WR)
        with other.makefile("rb") as lines:
            assert list(json.loads(lines.readline())) == ["error"]
            assert lines.readline() == b""
    assert served.ask({"control": "counts"})["transfers"] == 0


def test_answer_when_a_line_is_raw_then_it_is_answered_without_a_socket(served: Served) -> None:
    assert served.server.answer(json.dumps({"transfer": WRITE}).encode()) == {"answer": "confirmed", "data": ""}
    assert served.server.answer(b"junk")["error"] == "request: Expecting value: line 1 column 1 (char 0)"
    assert served.server.answer(b"5") == {"error": "request: a request is an object"}
    assert served.bus.chips[0x20].executed == {("OLATA", "write"): 1}


def test_connection_when_the_peer_left_before_its_answer_then_it_ends_quietly_and_the_chips_stay(
    served: Served, monkeypatch: pytest.MonkeyPatch
) -> None:
    ended, errors = threading.Event(), []
    close_request = served.server.shutdown_request

    def note(request: Any) -> None:
        close_request(request)
        ended.set()

    monkeypatch.setattr(served.server, "shutdown_request", note)
    monkeypatch.setattr(served.server, "handle_error", lambda *_: errors.append(sys.exception()))
    with served.server.bench.lock, socket.socket(socket.AF_UNIX, socket.SOCK_STREAM) as other:
        other.connect(served.path)
        other.sendall(json.dumps({"transfer": WRITE}).encode() + b"\n")
        other.close()
    assert ended.wait(LIMIT_S)
    assert errors == []
    assert served.server.connected == 0
    assert served.ask({"transfer": READ})["data"] == "5a"


def test_connections_when_there_are_several_then_all_see_one_bus(served: Served) -> None:
    asked: list[dict[str, Any]] = []

    def write_often(connection: SimConnection) -> None:
        asked.extend(connection.ask({"transfer": WRITE}) for _ in range(50))

    threads = [threading.Thread(target=write_often, args=(served.connect(),)) for _ in range(4)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join(LIMIT_S)
    assert asked == [{"answer": "confirmed", "data": ""}] * 200
    assert served.ask({"control": "counts"})["counts"]["0x20"] == {"OLATA.write": 200}


def test_stop_when_asked_then_it_is_answered_and_serving_ends(served: Served) -> None:
    assert served.ask({"control": "stop"}) == {"done": True}
    served.thread.join(LIMIT_S)
    assert not served.thread.is_alive()


def test_stop_when_asked_among_others_then_its_answer_is_the_last_word(served: Served) -> None:
    with socket.socket(socket.AF_UNIX, socket.SOCK_STREAM) as other:
        other.settimeout(LIMIT_S)
        other.connect(served.path)
        other.sendall(b'{"control": "counts"}\n{"control": "stop"}\n')
        with other.makefile("rb") as lines:
            assert "counts" in json.loads(lines.readline())
            assert json.loads(lines.readline()) == {"done": True}
            assert lines.readline() == b""


def test_stop_when_who_asked_has_hung_up_then_serving_ends_all_the_same(served: Served) -> None:
    with served.server.bench.lock, socket.socket(socket.AF_UNIX, socket.SOCK_STREAM) as other:
        other.connect(served.path)
        other.sendall(b'{"control": "stop"}\n')  # carried out when the lock is free, and nobody is there any more then
    served.thread.join(LIMIT_S)
    assert not served.thread.is_alive()


def test_set_when_the_value_just_fits_then_it_is_taken(served: Served) -> None:
    for value in (0, 0xFF):
        assert served.ask({"control": "set", "address": 0x20, "register": "OLATA", "value": value}) == {"done": True}
        assert served.bus.chips[0x20].values["OLATA"] == value


def test_fault_when_every_part_is_given_then_it_is_planned_as_told(served: Served) -> None:
    parts = {"kind": "hang", "address": 32, "access": "read", "offset": 20, "skip": 1, "times": 2, "hang_s": 0.5}
    served.ask({"control": "fault", "fault": parts})
    assert served.bus.faults == [Fault(FaultKind.HANG, 32, "read", 20, 1, 2, 0.5)]
    served.ask({"control": "fault", "fault": {"kind": "nack", "address": 33}})
    assert served.bus.faults[1] == Fault(FaultKind.NACK, 33)


def test_reset_when_asked_then_the_power_on_content_is_back(served: Served) -> None:
    served.bus.chips[0x48].fifos["RHR"].clear()
    served.ask({"control": "reset", "address": 0x48})
    assert bytes(served.bus.chips[0x48].fifos["RHR"]) == b"hello"


def test_server_when_a_stale_socket_file_is_in_the_way_then_it_is_removed() -> None:
    with tempfile.TemporaryDirectory(dir="/tmp") as folder:
        path = f"{folder}/sim"
        with socket.socket(socket.AF_UNIX, socket.SOCK_STREAM) as killed:
            killed.bind(path)
        assert Path(path).is_socket()
        with SimServer(path, Bench({})) as server:
            assert server.server_address == path
            connection = SimConnection(path)
            connection.close()


def test_server_when_another_one_lives_there_then_it_is_left_alone(served: Served) -> None:
    with pytest.raises(OSError, match="Address already in use"):
        SimServer(served.path, Bench({}))
    assert served.connect().ask({"transfer": READ})["data"] == "00"


def test_close_when_the_peer_is_dead_and_something_is_unsent_then_it_hangs_up_without_a_word(tmp_path: Path) -> None:
    with socket.socket(socket.AF_UNIX, socket.SOCK_STREAM) as listener:
        listener.bind(str(tmp_path / "s"))
        listener.listen()
        connection = SimConnection(str(tmp_path / "s"))
        listener.accept()[0].close()
    with pytest.raises(OSError, match=r"Broken pipe|reset by peer"):
        connection.ask({"control": "counts"})
    connection.close()
    connection.close()
    assert connection._socket.fileno() == -1


def test_connect_when_nobody_listens_then_an_os_error(tmp_path: Path) -> None:
    with pytest.raises(OSError, match="No such file"):
        SimConnection(str(tmp_path / "none"))


class Watching(SimServer):
    """A server that notes how its socket is protected, before it ends for want of company."""

    modes: list[int]

    def service_actions(self) -> None:
        self.modes.append(stat.S_IMODE(Path(str(self.server_address)).stat().st_mode))
        super().service_actions()


def test_serve_when_nobody_comes_then_it_ends_by_itself_and_takes_its_socket_away(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    Watching.modes = []
    monkeypatch.setattr(process, "SimServer", Watching)
    with tempfile.TemporaryDirectory(dir="/tmp") as folder:
        serve(f"{folder}/sim", {"b": {0x20: bundled("mcp23017")}}, {}, idle_s=-1.0)
        assert set(Watching.modes) == {0o600}
        assert os.listdir(folder) == []  # noqa: PTH208


def test_idle_when_somebody_is_connected_then_it_serves_on(served: Served) -> None:
    served.ask({"control": "counts"})
    served.server.idle_s = -1.0
    assert served.server.connected == 1
    served.server.service_actions()
    assert served.ask({"control": "counts"})["transfers"] == 0
    served.connections.pop().close()
    served.thread.join(LIMIT_S)
    assert not served.thread.is_alive()


def test_idle_when_it_is_never_to_end_then_it_serves_on_without_company(served: Served) -> None:
    served.server.idle_s = None
    served.server.idle_since_s = float("-inf")
    served.server.service_actions()
    assert served.ask({"control": "counts"})["transfers"] == 0


CHIPS = '{"b": {"32": "mcp23017"}}'
CALLS: list[tuple[str, list[str], dict[str, Any]]] = [
    ("decimal", ["--chips", CHIPS], {"lines": {}, "idle_s": process.IDLE_S}),
    ("hex", ["--chips", '{"b": {"0x20": "mcp23017"}}'], {"lines": {}, "idle_s": process.IDLE_S}),
    (
        "lines",
        ["--chips", CHIPS, "--lines", '{"b": "/tmp/line"}'],
        {"lines": {"b": "/tmp/line"}, "end_at": (signal.SIGTERM, signal.SIGINT)},
    ),
]


@pytest.mark.parametrize(("_what", "words", "wanted"), CALLS, ids=[c[0] for c in CALLS])
def test_main_when_called_then_it_serves_the_chips_named_under_a_narrow_umask(
    _what: str, words: list[str], wanted: dict[str, Any], monkeypatch: pytest.MonkeyPatch
) -> None:
    called: list[dict[str, Any]] = []

    def note(path: str, buses: Any, lines: dict[str, str], **rest: Any) -> None:
        called.append({"path": path, "buses": buses, "lines": lines, "umask": os.umask(0o077), **rest})

    monkeypatch.setattr(process, "serve", note)
    monkeypatch.setattr(sys, "argv", ["hwtool_sim", "--socket", "/tmp/s", *words])
    before = os.umask(0o077)
    try:
        main()
    finally:
        os.umask(before)
    assert called == [{"path": "/tmp/s", "buses": {"b": {0x20: bundled("mcp23017")}}, "umask": 0o177, **wanted}]


BAD_WORDS = [
    ("no-json", ["--chips", "{"], "Expecting"),
    ("no-object", ["--chips", "[]"], "no attribute"),
    ("no-address", ["--chips", '{"b": {"x": "mcp23017"}}'], "invalid literal"),
    ("no-contract", ["--chips", '{"b": {"1": "mcp23018"}}'], "mcp23018"),
    ("no-line", ["--chips", CHIPS, "--lines", '{"c": "/tmp/line"}'], "there is no 'c'"),
    ("no-modbus", ["--chips", CHIPS, "--lines", '{"b": "/tmp/line"}'], "mcp23017 has no .access.modbus."),
]


@pytest.mark.parametrize(("_what", "words", "said"), BAD_WORDS, ids=[w[0] for w in BAD_WORDS])
def test_main_when_its_words_are_wrong_then_it_says_so_and_ends_with_2(
    _what: str, words: list[str], said: str, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setattr(sys, "argv", ["hwtool_sim", "--socket", "/nowhere/s", *words])
    before = os.umask(0o077)
    try:
        with pytest.raises(SystemExit) as ended:
            main()
    finally:
        os.umask(before)
    assert ended.value.code == 2
    assert re.search(said, capsys.readouterr().err)


def test_module_when_run_without_arguments_then_it_says_what_it_needs(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setattr(sys, "argv", ["hwtool_sim"])
    with pytest.raises(SystemExit) as ended:
        runpy.run_module("hwtool_sim", run_name="__main__")
    assert ended.value.code == 2
    assert "--socket, --chips" in capsys.readouterr().err


def test_control_when_elements_are_pushed_then_the_fifo_holds_them_and_no_other_register_takes_any() -> None:
    bus = bus_of({0x4D: bundled("sc16is750")})
    with tempfile.TemporaryDirectory(dir="/tmp") as directory, SimServer(f"{directory}/s", Bench({"b": bus})) as server:
        push = {"control": "push", "address": 0x4D, "register": "RHR", "elements": [7, 8]}
        assert server.answer(json.dumps(push).encode()) == {"done": True}
        assert list(bus.chips[0x4D].fifos["RHR"])[-2:] == [7, 8]
        assert "no FIFO" in server.answer(json.dumps({**push, "register": "LCR"}).encode())["error"]
        assert "error" in server.answer(json.dumps({**push, "elements": ["x"]}).encode())
