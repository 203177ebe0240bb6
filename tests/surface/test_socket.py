"""The socket under bad and hostile input: a typed error or a clean end; the daemon lives, others are not disturbed."""

from __future__ import annotations

import contextlib
import json
import os
import socket
import stat
import threading
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from hwtool.bench import BENCH, bench
from hwtool.connection import Connection
from hwtool.losses import ConnectionLost, NoDaemon
from hwtool.server import _shortened
from hwtool.session import ProtocolError
from hwtool_contracts.messages import METHODS
from hwtool_registers.bus import RegisterWrite
from hwtool_sim.board import bus_of
from hwtool_sim.control import Bench
from hwtool_sim.process import SimServer
from tests.running import LIMIT_S, RunningDaemon, command_line, no_daemon


@pytest.fixture(scope="module")
def daemon() -> Iterator[RunningDaemon]:
    with RunningDaemon() as running:
        yield running


def connect(daemon: RunningDaemon, role: str = "agent") -> socket.socket:
    it = socket.socket(socket.AF_UNIX, socket.SOCK_STREAM)
    it.connect(str(daemon.sockets / f"{role}.sock"))
    it.settimeout(LIMIT_S)
    return it


def received(it: socket.socket) -> bytes:
    """Everything until the other end hangs up."""
    data = b""
    while True:
        try:
            piece = it.recv(1 << 16)
        except ConnectionResetError:
            return data
        if not piece:
            return data
        data += piece


def say(daemon: RunningDaemon, data: bytes) -> list[dict[str, Any]]:
    """Send bytes, say that this was all, and take what comes."""
    with connect(daemon) as it:
        it.sendall(data)
        it.shutdown(socket.SHUT_WR)
        return [json.loads(line) for line in received(it).splitlines()]


def request(method: str, number: int = 1, **params: Any) -> bytes:
    return json.dumps({"jsonrpc": "2.0", "id": number, "method": method, "params": params}).encode() + b"\n"


def lives(daemon: RunningDaemon) -> bool:
    with daemon.client() as client:
        return bool(client.ask("reg.read", {"registers": ["uart.RXLVL"]})["values"][0]["raw"] == "0x05")


BROKEN_ENVELOPES = [
    (b"{\n", -32700),
    (b"\xff\xfe\x00binary junk\n", -32700),
    (b'"text"\n', -32600),
    (b"[]\n", -32600),
    (b'[{"jsonrpc":"2.0","id":1,"method":"device.list"}]\n', -32600),
    (b'{"jsonrpc":"2.0","method":"device.list"}\n', -32600),
    (b'{"jsonrpc":"1.0","id":1,"method":"device.list"}\n', -32600),
    (b'{"jsonrpc":"2.0","id":true,"method":"device.list"}\n', -32600),
    (b'{"jsonrpc":"2.0","id":1,"method":"device.list","extra":1}\n', -32600),
    (b'{"jsonrpc":"2.0","id":1,"method":7}\n', -32600),
    (b'{"jsonrpc":"2.0","id":1,"method":"device.list","params":[]}\n', -32600),
    (b'{"jsonrpc":"2.0","id":1,"method":"device.lust"}\n', -32601),
    (b'{"jsonrpc":"2.0","id":1,"method":"bus.scan"}\n', -32601),
]


@pytest.mark.parametrize(("line", "code"), BROKEN_ENVELOPES, ids=[repr(b[0][:40]) for b in BROKEN_ENVELOPES])
def test_envelope_when_broken_then_a_json_rpc_error_and_the_connection_goes_on(
    daemon: RunningDaemon, line: bytes, code: int
) -> None:
    refused, answered = say(daemon, line + request("device.list", 9))
    assert refused["error"]["code"] == code
    assert answered["id"] == 9
    assert answered["result"]["ok"]


def test_line_when_two_mebibytes_long_then_refused_and_closed_and_others_live(daemon: RunningDaemon) -> None:
    with connect(daemon) as it:
        with contextlib.suppress(BrokenPipeError, ConnectionResetError):  # it hung up while we were still talking
            it.sendall(b'{"jsonrpc":"2.0","id":1,"method":"' + b"x" * (2 << 20))
        data = received(it)
    assert data == b"" or json.loads(data)["error"]["code"] == -32600
    assert lives(daemon)


def test_line_when_just_short_enough_then_it_is_answered(daemon: RunningDaemon) -> None:
    filler = "x" * (1_000_000)
    (reply,) = say(daemon, request("reg.find", query=filler))
    assert reply["result"]["matches"] == []


def test_binary_junk_when_without_newline_then_a_clean_end(daemon: RunningDaemon) -> None:
    assert say(daemon, os.urandom(4096).replace(b"\n", b"")) == []
    assert lives(daemon)


def test_http_when_spoken_then_the_body_names_the_right_command(daemon: RunningDaemon) -> None:
    with connect(daemon) as it:
        it.sendall(b"GET / HTTP/1.1\r\nHost: x\r\n\r\n")
        data = received(it)
    assert data.startswith(b"HTTP/1.1 400 ")
    assert b"hwtool devices" in data


def test_half_close_when_requests_were_sent_then_all_are_answered(daemon: RunningDaemon) -> None:
    replies = say(daemon, b"".join(request("reg.read", n, registers=["uart.RXLVL"]) for n in range(50)))
    assert sorted(r["id"] for r in replies) == list(range(50))
    assert all(r["result"]["ok"] for r in replies)


def test_requests_of_one_device_when_pipelined_then_answered_in_order(daemon: RunningDaemon) -> None:
    data = b""
    for n in range(20):
        data += request("reg.write", 2 * n, register="gpio.OLATB", value=n, key=f"order-{n:04d}")
        data += request("reg.read", 2 * n + 1, registers=["gpio.OLATB"])
    replies = say(daemon, data)
    assert [r["id"] for r in replies] == list(range(40))
    assert [int(r["result"]["values"][0]["raw"], 16) for r in replies[1::2]] == list(range(20))


def test_client_when_gone_before_the_reply_then_the_key_has_its_outcome_and_it_is_journalled(
    daemon: RunningDaemon,
) -> None:
    with connect(daemon) as it:
        # the push is watched for its window, since nothing shows it: time enough to be gone
        it.sendall(request("reg.write", register="rtc.STATUS", value="0x08", key="vanished-1"))
    with daemon.client() as client:
        final = client.ask("op.wait", {"key": "vanished-1", "wait_ms": 5000})
        while final.get("op") is None:  # it may not have been looked up yet
            final = client.ask("op.wait", {"key": "vanished-1", "wait_ms": 5000})
        assert final["op"]["state"] == "DONE"
        again = client.ask("reg.write", {"register": "rtc.STATUS", "value": "0x08", "key": "vanished-1"})
    assert again["replayed"]


def test_reader_when_it_never_reads_then_it_is_let_go_and_others_live(daemon: RunningDaemon) -> None:
    with connect(daemon) as it:
        it.settimeout(5)
        # it stops listening to us, or hangs up: both are right
        with contextlib.suppress(TimeoutError, ConnectionError):
            for n in range(5000):
                it.sendall(request("reg.find", n, limit=200))
        assert lives(daemon)
    assert lives(daemon)


BAD_PARAMS: list[tuple[str, dict[str, Any], str, str]] = [
    ("reg.read", {"registers": "uart.RXLVL"}, "invalid_args", "$.registers"),
    ("reg.read", {"registers": ["uart.RXLVL"], "fast": True}, "invalid_args", "$"),
    ("reg.read", {"registers": ["uart.RXLVL"], "run": -1}, "invalid_args", "$.run"),
    ("reg.read", {"registers": ["uart.RXLVL", "gpio.OLATA"]}, "invalid_args", "$.registers[1]"),
    ("reg.write", {"register": "gpio.OLATA", "value": 1}, "invalid_args", "$"),
    ("reg.write", {"register": "gpio.OLATA", "value": 1, "key": "short"}, "invalid_args", "$.key"),
    ("reg.write", {"register": "gpio.OLATA", "value": [1], "key": "badtype-1"}, "invalid_args", "$.value"),
    ("reg.write", {"register": "gpio.OLATA", "value": 256, "key": "toobig-01"}, "invalid_args", "$.value"),
    ("reg.write", {"register": "gpio.OLATA", "value": "hgih", "key": "badname-1"}, "invalid_args", "$.value"),
    (
        "reg.update",
        {"register": "gpio.OLATA", "fields": {"P0": "hgih"}, "key": "badname-2"},
        "invalid_args",
        "$.fields.P0",
    ),
]


@pytest.mark.parametrize(("method", "params", "code", "path"), BAD_PARAMS)
def test_params_when_wrong_then_the_path_is_named(
    daemon: RunningDaemon, method: str, params: dict[str, Any], code: str, path: str
) -> None:
    with daemon.client() as client:
        result = client.ask(method, params)
    assert (result["status"], result["effects"], result["error"]["code"]) == ("failed", "none", code)
    assert result["error"]["path"] == path


NEAR_MISSES = [
    ({"registers": ["uart.RXLVLL"]}, "uart.RXLVL"),
    ({"registers": ["urat.RXLVL"]}, "uart"),
    ({"registers": ["gpio.olata"]}, "gpio.OLATA"),
    ({"registers": ["gpio.OLATA.P0"]}, "gpio.OLATA"),
]


@pytest.mark.parametrize(("params", "near"), NEAR_MISSES)
def test_register_when_unknown_then_near_misses_are_suggested_hc064(
    daemon: RunningDaemon, params: dict[str, Any], near: str
) -> None:
    with daemon.client() as client:
        error = client.ask("reg.read", params)["error"]
    assert error["code"] == "not_found"
    assert near in error["suggestions"]


@pytest.mark.parametrize("method", [name for name, m in METHODS.items() if m.operator])
def test_operator_method_when_asked_on_the_agent_socket_then_denied(daemon: RunningDaemon, method: str) -> None:
    with daemon.client() as client:
        result = client.ask(method, {})
    assert result["error"]["code"] == "denied"
    assert method not in client_methods(daemon, "agent")
    assert method in client_methods(daemon, "operator")


def client_methods(daemon: RunningDaemon, role: Any) -> list[str]:
    with daemon.client(role) as client:
        methods: list[str] = client.ask("describe")["describe"]["methods"]
        return methods


def test_discover_when_asked_then_the_document_names_what_the_daemon_answers(daemon: RunningDaemon) -> None:
    with daemon.client() as client:
        document = client.ask("rpc.discover")["openrpc"]
        assert [m["name"] for m in document["methods"]] == list(METHODS)
        for method in METHODS:
            result = client.ask(method, {"surely": "unknown"})
            assert result["error"]["code"] in ("invalid_args", "denied")
        with pytest.raises(ProtocolError, match="no method"):
            client.ask("bus.scan", {})


def test_sockets_when_bound_then_their_modes_and_directory_are_closed_to_others(daemon: RunningDaemon) -> None:
    assert stat.S_IMODE(daemon.sockets.stat().st_mode) == 0o700
    for role in ("agent", "operator"):
        assert stat.S_IMODE((daemon.sockets / f"{role}.sock").stat().st_mode) == 0o660


def test_many_connections_when_opened_and_dropped_then_no_descriptor_is_left(daemon: RunningDaemon) -> None:
    assert daemon.process is not None
    descriptors = Path(f"/proc/{daemon.process.pid}/fd")
    assert lives(daemon)
    before = len(list(descriptors.iterdir()))
    for _ in range(200):
        connect(daemon).close()
    assert lives(daemon)
    assert len(list(descriptors.iterdir())) <= before + 2


def test_daemon_when_told_to_stop_then_it_ends_with_zero_and_removes_its_sockets() -> None:
    with RunningDaemon() as running:
        assert lives(running)
        assert running.stop() == 0
        assert no_daemon(running)
        assert not (running.sockets / "agent.sock").exists()


def test_socket_file_when_stale_after_a_kill_then_the_next_daemon_takes_its_place() -> None:
    with RunningDaemon() as running:
        running.kill()
        assert (running.sockets / "agent.sock").exists()
        running.start()
        assert lives(running)


def test_second_daemon_when_it_cannot_have_the_sockets_then_the_first_keeps_them() -> None:
    with RunningDaemon() as first:
        second = RunningDaemon()
        words = second.arguments()
        words[words.index("--socket") + 1] = str(first.sockets)
        done = command_line(second, *words)
        assert done.returncode == 2
        assert "another daemon listens" in done.stderr
        assert lives(first)


def test_line_when_nested_past_all_sense_then_an_error_and_the_connection_goes_on(daemon: RunningDaemon) -> None:
    nested = b"[" * 100_000 + b"\n"
    deep = b'{"jsonrpc":"2.0","id":1,"method":"device.list","params":' + b'{"a":' * 5000 + b"1" + b"}" * 5001 + b"\n"
    replies = say(daemon, nested + deep + request("device.list", 9))
    assert [r.get("id") for r in replies][-1] == 9
    assert replies[0]["error"]["code"] == -32700
    assert lives(daemon)


@pytest.mark.parametrize(("deadline", "left"), [(50, 20), (10, 0), (True, True), ("x", "x"), (-1, -1)])
def test_deadline_when_the_request_has_waited_behind_another_then_the_wait_counts(deadline: Any, left: Any) -> None:
    assert _shortened({"deadline_ms": deadline}, 30) == {"deadline_ms": left}
    assert _shortened({}, 30) == {}


def test_daemon_when_told_to_stop_during_banked_reads_then_no_bank_is_left_selected() -> None:
    running = RunningDaemon(BENCH.replace('kind = "sim"', 'kind = "sim"\nprocess = true'))
    running.store.mkdir(mode=0o700)
    devices = [d for d in bench().devices.values() if d.bus == "i2c0"]
    bus = bus_of({d.address: d.contract for d in devices})  # joined by the daemon, and still there after it
    with SimServer(str(running.store / "sim-i2c0.sock"), Bench({"i2c0": bus})) as simulator:
        threading.Thread(target=simulator.serve_forever, daemon=True).start()
        with running:

            def read_on() -> None:
                with contextlib.suppress(ConnectionLost, NoDaemon, ProtocolError), running.client() as client:
                    for _ in range(100_000):
                        client.ask("reg.read", {"registers": ["uart.DLL"]})

            readers = [threading.Thread(target=read_on) for _ in range(3)]
            for reader in readers:
                reader.start()
            while bus.transfers < 200:
                assert lives(running)
            assert running.stop() == 0
            for reader in readers:
                reader.join(LIMIT_S)
        simulator.shutdown()
    selecting = [t for t in bus.log if isinstance(t, RegisterWrite) and t.data == b"\x80"]
    assert len(selecting) > 10
    assert bus.chips[0x4D].values["LCR"] == 0x03


def test_safe_state_when_others_of_its_connection_wait_then_at_once_and_they_are_overtaken() -> None:
    write = {"register": "gpio.OLATA", "value": 1}
    held = {"do": "wait_until", "register": "gpio.OLATA", "equals": 0xFF, "timeout_ms": 20_000, "interval_ms": 50}
    with RunningDaemon() as mine, mine.client() as other, mine.client() as client:
        client.post("sequence.run", {"steps": [{"do": "write", **write}, held], "key": "tail-seq-1"})
        while not lives_in(other.ask("op.get", {"key": "tail-seq-1"})):
            pass
        posted = [client.post("reg.write", {**write, "key": f"tail-key-{n}"}) for n in (1, 2, 3)]
        asked = {**write, "key": "tail-key-3"}
        coming = client.ask("op.get", {"key": "tail-key-3"})  # behind its sisters, about no device: answered at once
        record = {"key": "tail-key-3", "request": {"method": "reg.write", "params": write}}
        waited = other.ask("op.wait", {"key": "tail-key-3", "wait_ms": 50})
        assert [r["status"] for r in (coming, other.ask("op.get", record), waited)] == ["in_progress"] * 3
        assert client.ask("reg.contract", {"register": "gpio.OLATA"})["ok"]
        assert client.ask("device.safe_state", {"device": "gpio", "key": "tail-safe-1"})["ok"]
        told = [answer_to(client, number) for number in posted]
        assert [t["error"]["by"] for t in told] == ["safe_state"] * 3
        assert other.ask("op.get", record)["error"]["code"] == "not_found"
        assert other.ask("reg.write", asked)["verdict"] in ("applied", "satisfied")


def test_requests_when_they_come_behind_a_safe_state_then_after_it_and_not_overtaken_by_it() -> None:
    with RunningDaemon() as mine, mine.client() as client:
        for round_ in range(5):
            for busy in (False, True):
                name = f"{round_}-{int(busy)}"
                before = {"register": "gpio.OLATA", "value": 0x41, "key": f"behind-a-{name}"}
                assert client.ask("reg.write", before)["ok"]
                if busy:  # something is under way on this connection when the safe state comes
                    client.post("reg.write", {"register": "gpio.OLATB", "value": round_, "key": f"behind-b-{name}"})
                safe = client.post("device.safe_state", {"device": "gpio", "key": f"behind-s-{name}"})
                read = client.post("reg.read", {"registers": ["gpio.OLATA"]})
                write = client.post("reg.write", {"register": "gpio.OLATA", "value": 2, "key": f"behind-w-{name}"})
                assert answer_to(client, safe)["ok"]
                assert answer_to(client, read)["values"][0]["raw"] == "0x00"
                assert answer_to(client, write)["verdict"] == "applied"


def lives_in(told: dict[str, Any]) -> bool:
    """Whether the first step of a sequence has ended: its second one waits."""
    return any(step["verdict"] for step in (told.get("op") or {}).get("steps") or ())


def answer_to(client: Connection, number: int) -> dict[str, Any]:
    """The result of a request that was posted."""
    while (result := client._session.result(number)) is None:
        client._take(None, "a reply")
    return result
