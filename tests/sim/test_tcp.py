"""Simulated chips behind a Modbus TCP server: real connections, exact counts, and the same chip on every transport."""

from __future__ import annotations

import socket
import struct
import tempfile
import threading
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest

from hwtool_contracts.library import bundled
from hwtool_contracts.model import Space
from hwtool_contracts.native import load_contract
from hwtool_registers.bus import Ambiguous, Answer, Confirmed, RegisterRead, RegisterWrite, Rejected, Sent
from hwtool_registers.buses.modbus import ModbusRtu, RtuSettings
from hwtool_registers.buses.modbus_tcp import ModbusTcp, TcpSettings
from hwtool_sim.board import bus_of
from hwtool_sim.bus import SimBus
from hwtool_sim.control import Bench
from hwtool_sim.faults import OF_TWO_WIRES, Fault, FaultKind
from hwtool_sim.line import RtuLine
from hwtool_sim.process import SimServer
from hwtool_sim.remote import RemoteSimBus
from hwtool_sim.tcp import TcpLine
from tests.sim.test_line import READ, TOY, WIDE, WRITE

NO_REPLY = "no reply within"
PATIENT_MS, HASTY_MS = 5000, 80


def free_port() -> int:
    with socket.socket() as one:
        one.bind(("127.0.0.1", 0))
        return int(one.getsockname()[1])


class Serving:
    """A toy at unit 17 and a meter at unit 1 behind a server, and masters that connect to it."""

    def __init__(self, folder: Path) -> None:
        (folder / "toy.toml").write_text(TOY)
        self.bus = bus_of({17: load_contract(folder / "toy.toml"), 1: bundled("sdm120")})
        self.toy = self.bus.chips[17]
        self.toy.values |= {"LEVEL": 0x0A0B, "NEXT": 0x0C0D, "COUNT": 9}
        self.port = free_port()
        self.line = TcpLine(self.bus, "127.0.0.1", self.port, threading.Lock())
        self.line.open()
        self._masters: list[ModbusTcp] = []

    def master(self, response_ms: int = PATIENT_MS) -> ModbusTcp:
        self._masters.append(ModbusTcp(TcpSettings("127.0.0.1", self.port, response_ms)))
        return self._masters[-1]

    def fault(self, kind: FaultKind, **parts: Any) -> None:
        self.bus.plan(Fault(kind, 17, **parts))

    def raw(self) -> socket.socket:
        line = socket.create_connection(("127.0.0.1", self.port), timeout=10)
        line.settimeout(10)
        return line

    def close(self) -> None:
        for master in self._masters:
            master.close()
        self.line.close()


@pytest.fixture
def serving(tmp_path: Path) -> Iterator[Serving]:
    it = Serving(tmp_path)
    yield it
    it.close()


def frame(number: int, pdu: bytes, unit: int = 17, protocol: int = 0) -> bytes:
    return struct.pack(">HHHB", number, protocol, len(pdu) + 1, unit) + pdu


READ_LEVEL = b"\x03\x00\x05\x00\x01"


def received(line: socket.socket, size: int) -> bytes:
    got = b""
    while len(got) < size:
        more = line.recv(size - len(got))
        if not more:
            return got
        got += more
    return got


def test_server_when_the_products_master_asks_then_the_chip_answers_and_counts(serving: Serving) -> None:
    master = serving.master()
    assert master.perform(WRITE) == Confirmed()
    assert master.perform(READ) == Confirmed(b"\x00\x4d")
    assert master.perform(WIDE) == Confirmed()
    assert serving.toy.executed == {("LEVEL", "write"): 1, ("LEVEL", "read"): 1, ("WIDE", "write"): 1}


def test_server_when_an_independent_master_asks_then_it_agrees(serving: Serving) -> None:
    pymodbus = pytest.importorskip("pymodbus.client", reason="pymodbus is the independent master; install .[dev]")
    client = pymodbus.ModbusTcpClient("127.0.0.1", port=serving.port, retries=0, timeout=10)
    assert client.connect()
    assert client.read_holding_registers(5, count=2, device_id=17).registers == [0x0A0B, 0x0C0D]
    assert not client.write_register(5, 0x1234, device_id=17).isError()
    assert client.read_holding_registers(500, count=1, device_id=17).exception_code == 2
    client.close()
    assert serving.toy.values["LEVEL"] == 0x1234


def test_replies_when_several_are_connected_then_each_gets_its_own_under_its_number(serving: Serving) -> None:
    one, two = serving.raw(), serving.raw()
    one.sendall(frame(7, READ_LEVEL) + frame(8, b"\x03\x00\x06\x00\x01"))
    two.sendall(frame(7, b"\x03\x00\x06\x00\x01"))
    assert received(one, 22) == frame(7, b"\x03\x02\x0a\x0b") + frame(8, b"\x03\x02\x0c\x0d")
    assert received(two, 11) == frame(7, b"\x03\x02\x0c\x0d")
    for line in (one, two):
        line.close()


def test_frame_when_it_comes_byte_by_byte_then_answered_once(serving: Serving) -> None:
    line = serving.raw()
    for byte in frame(3, READ_LEVEL):
        line.sendall(bytes([byte]))
    assert received(line, 11) == frame(3, b"\x03\x02\x0a\x0b")
    assert serving.toy.executed == {("LEVEL", "read"): 1}
    line.close()


@pytest.mark.parametrize(
    "nonsense",
    [frame(1, READ_LEVEL, protocol=9), struct.pack(">HHHB", 1, 0, 1, 17),
     struct.pack(">HHHB", 1, 0, 9999, 17),
     b"GET / HTTP/1.1\r\n\r\n"],
    ids=["protocol", "nothing", "huge", "http"],
)  # fmt: skip
def test_connection_when_what_comes_is_no_frame_then_closed_and_the_others_go_on(
    serving: Serving, nonsense: bytes
) -> None:
    line, other = serving.raw(), serving.master()
    line.sendall(nonsense)
    assert received(line, 1) == b""
    assert other.perform(READ) == Confirmed(b"\x0a\x0b")
    line.close()


def test_unit_when_it_is_not_there_then_silence(serving: Serving) -> None:
    answer = serving.master(HASTY_MS).perform(RegisterRead(9, Space.HOLDING, 5, 2, 1, 3))
    assert isinstance(answer, Ambiguous) and answer.fault.startswith("no reply")


SPOILT: dict[FaultKind, tuple[dict[str, Any], int, Answer, int]] = {
    # parts, patience, the answer to a write of 4D, executions
    FaultKind.RESET: ({}, PATIENT_MS, Confirmed(), 1),
    FaultKind.FOREIGN: ({"register": "NEXT", "value": 5}, PATIENT_MS, Confirmed(), 1),
    FaultKind.STUCK_BITS: ({"register": "NEXT", "bits": 1, "value": 0}, PATIENT_MS, Confirmed(), 1),
    FaultKind.FLIP: ({"register": "NEXT", "bits": 1}, PATIENT_MS, Confirmed(), 1),
    FaultKind.REQUEST_LOST: ({}, HASTY_MS, Ambiguous(Sent.REPLY, "no reply"), 0),
    FaultKind.REPLY_LOST: ({}, HASTY_MS, Ambiguous(Sent.REPLY, "no reply"), 1),
    FaultKind.LATE_REPLY: ({"late_s": 60.0}, HASTY_MS, Ambiguous(Sent.REPLY, "no reply"), 1),
    FaultKind.DUPLICATED: ({}, PATIENT_MS, Confirmed(), 1),
    FaultKind.TRUNCATED: ({}, HASTY_MS, Ambiguous(Sent.REPLY, ""), 1),
    FaultKind.CORRUPTED: ({}, PATIENT_MS, Ambiguous(Sent.REPLY, ""), 1),
    FaultKind.EXCEPTION: ({"code": 4}, PATIENT_MS, Ambiguous(Sent.REPLY, "Modbus exception 04 (device failure)"), 0),
    FaultKind.HANG: ({"hang_s": 60.0}, HASTY_MS, Ambiguous(Sent.REPLY, "no reply"), 1),
}


@pytest.mark.parametrize("kind", list(SPOILT), ids=lambda k: k.value)
def test_fault_when_it_strikes_a_write_then_real_bytes_and_exact_counts(serving: Serving, kind: FaultKind) -> None:
    parts, response_ms, wanted, executed = SPOILT[kind]
    serving.fault(kind, access="write", **parts)
    answer = serving.master(response_ms).perform(WRITE)
    assert type(answer) is type(wanted)
    if isinstance(answer, Ambiguous) and isinstance(wanted, Ambiguous):
        assert (answer.stage, answer.fault[: len(wanted.fault)]) == (wanted.stage, wanted.fault)
    assert serving.toy.executed["LEVEL", "write"] == executed
    assert serving.master().perform(WRITE) == Confirmed()
    assert serving.toy.executed["LEVEL", "write"] == executed + 1


def test_fault_table_when_a_kind_is_added_then_a_line_is_missing_here() -> None:
    assert set(SPOILT) | {FaultKind.UNPLUG, FaultKind.SWAP} | OF_TWO_WIRES == set(FaultKind)


def test_unplug_when_it_strikes_then_nobody_listens_until_it_is_plugged(serving: Serving) -> None:
    master = serving.master()
    serving.bus.unplug()
    serving.line.follow()
    answer = master.perform(READ)
    assert isinstance(answer, Rejected) and answer.proof == "port-not-opened"
    serving.bus.plug()
    serving.line.follow()
    assert serving.master().perform(READ) == Confirmed(b"\x0a\x0b")


def test_plug_when_the_port_was_taken_meanwhile_then_told_and_the_bus_stays_unplugged(serving: Serving) -> None:
    serving.bus.unplug()
    serving.line.follow()
    with socket.create_server(("127.0.0.1", serving.port)):
        serving.bus.plug()
        with pytest.raises(OSError, match="in use"):
            serving.line.follow()
    assert not serving.bus.plugged


@pytest.mark.parametrize("pdu", [b"\x0f\x00\x00\x00\x01", b"\x10\x00\x05\x00\x01"], ids=["coils", "registers"])
def test_frame_when_it_ends_before_its_count_then_an_exception_and_the_server_lives(
    serving: Serving, pdu: bytes
) -> None:
    line = serving.raw()
    line.sendall(frame(1, pdu))
    assert received(line, 9) == frame(1, bytes([pdu[0] | 0x80, 3]))
    line.close()
    assert serving.master().perform(READ) == Confirmed(b"\x0a\x0b")


def test_connection_when_a_defect_is_met_on_it_then_it_is_given_up_and_the_others_go_on(
    serving: Serving, monkeypatch: pytest.MonkeyPatch
) -> None:
    def broken(*_: object) -> None:
        raise RuntimeError("a defect")

    line = serving.raw()
    with monkeypatch.context() as patch:
        patch.setattr("hwtool_sim.tcp.request_in", broken)
        line.sendall(frame(1, READ_LEVEL))
        assert received(line, 1) == b""
    assert serving.master().perform(READ) == Confirmed(b"\x0a\x0b")
    line.close()


def test_connection_when_nobody_reads_its_replies_then_it_is_closed_and_the_others_go_on(
    serving: Serving, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("hwtool_sim.tcp.SEND_LIMIT_S", 0.01)
    deaf = socket.socket()
    deaf.setsockopt(socket.SOL_SOCKET, socket.SO_RCVBUF, 2048)
    deaf.settimeout(10)
    deaf.connect(("127.0.0.1", serving.port))
    wide = frame(1, b"\x03\x00\x05\x00\x01") * 2000
    with pytest.raises(OSError, match=r"reset|Broken pipe"):
        for _ in range(1000):
            deaf.sendall(wide)
    deaf.close()
    assert serving.master().perform(READ) == Confirmed(b"\x0a\x0b")


@pytest.mark.parametrize("host", ["0.0.0.0", "192.0.2.1", "::", "0"])  # they must be refused
def test_server_when_its_place_is_no_loopback_then_refused(host: str) -> None:
    with pytest.raises(OSError, match="no loopback address"):
        TcpLine(SimBus({}), host, free_port(), threading.Lock()).open()


Open = Callable[[SimBus, Path], tuple[Any, Callable[[], None]]]


def in_process(bus: SimBus, _: Path) -> tuple[Any, Callable[[], None]]:
    return bus, lambda: None


def over_the_socket(bus: SimBus, _: Path) -> tuple[Any, Callable[[], None]]:
    folder = tempfile.TemporaryDirectory(dir="/tmp")
    server = SimServer(f"{folder.name}/s", Bench({"b": bus}))
    thread = threading.Thread(target=server.serve_forever, kwargs={"poll_interval": 0.02})
    thread.start()
    remote = RemoteSimBus(f"{folder.name}/s", "b", None)

    def end() -> None:
        remote.close()
        server.shutdown()
        thread.join()
        server.server_close()
        folder.cleanup()

    return remote, end


def on_a_line(bus: SimBus, tmp_path: Path) -> tuple[Any, Callable[[], None]]:
    line = RtuLine(bus, str(tmp_path / "line"), threading.Lock())
    line.open()
    master = ModbusRtu(RtuSettings(str(tmp_path / "line"), 115200, response_ms=PATIENT_MS, gap_ms=1))

    def end() -> None:
        master.close()
        line.close()

    return master, end


def behind_a_server(bus: SimBus, _: Path) -> tuple[Any, Callable[[], None]]:
    port = free_port()
    line = TcpLine(bus, "127.0.0.1", port, threading.Lock())
    line.open()
    master = ModbusTcp(TcpSettings("127.0.0.1", port, PATIENT_MS))

    def end() -> None:
        master.close()
        line.close()

    return master, end


COUNTED = RegisterRead(17, Space.INPUT, 5, 2, 1, 4)
NOWHERE = RegisterRead(17, Space.HOLDING, 0x300, 2, 1, 3)
SAME = [READ, WRITE, READ, WIDE, COUNTED, COUNTED, NOWHERE, RegisterWrite(17, Space.HOLDING, 0x300, b"\0\1", 1, 6)]


@pytest.mark.parametrize("open_", [in_process, over_the_socket, on_a_line, behind_a_server], ids=lambda f: f.__name__)
def test_chip_when_it_is_behind_each_transport_then_it_answers_the_same(tmp_path: Path, open_: Open) -> None:
    (tmp_path / "toy.toml").write_text(TOY)
    bus = bus_of({17: load_contract(tmp_path / "toy.toml")})
    bus.chips[17].values |= {"LEVEL": 0x0A0B, "COUNT": 9}
    master, end = open_(bus, tmp_path)
    try:
        answers = [master.perform(transfer) for transfer in SAME]
    finally:
        end()
    refused = ["refused" if isinstance(a, Rejected) else a for a in answers]
    assert refused == [
        Confirmed(b"\x0a\x0b"), Confirmed(), Confirmed(b"\x00\x4d"), Confirmed(), Confirmed(b"\x00\x09"),
        Confirmed(b"\x00\x00"), "refused", "refused",
    ]  # fmt: skip
    assert bus.chips[17].executed == {
        ("LEVEL", "read"): 2, ("LEVEL", "write"): 1, ("WIDE", "write"): 1, ("COUNT", "read"): 2,
    }  # fmt: skip
