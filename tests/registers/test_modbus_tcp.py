"""Modbus TCP against a server of bytes: exact frames, replies that come late, in pieces, out of step or not at all."""

from __future__ import annotations

import errno
import socket
import struct
import subprocess
import sys
import threading
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Final

import pytest

from hwtool_contracts.model import Space
from hwtool_registers.bus import Ambiguous, Confirmed, Line, RegisterRead, RegisterWrite, Rejected, Sent
from hwtool_registers.buses import modbus_tcp
from hwtool_registers.buses.modbus_tcp import ModbusTcp, TcpSettings
from tests.registers.scripted_server import Script, Server, frame, free_port, silence, until

READ: Final = RegisterRead(17, Space.HOLDING, 5, 4, 1, 3)
WRITE: Final = RegisterWrite(17, Space.HOLDING, 7, b"\x12\x34", 1, 6)
GOOD: Final = b"\x03\x04\x00\x01\x00\x02"
ECHO: Final = b"\x06\x00\x07\x12\x34"
RESPONSE_MS: Final = 150


def says(pdu: bytes, unit: int = 17, protocol: int = 0) -> Script:
    return lambda number, line: line.sendall(frame(number, pdu, unit, protocol))


def hangs_up(_: int, line: socket.socket) -> None:
    line.close()


def raw(data: bytes) -> Script:
    return lambda _, line: line.sendall(data)


def in_pieces(number: int, line: socket.socket) -> None:
    for byte in frame(number, GOOD):
        line.sendall(bytes([byte]))
        time.sleep(0.001)  # each byte is a packet of its own


def half(number: int, line: socket.socket) -> None:
    line.sendall(frame(number, GOOD)[:-2])


def half_and_hangs_up(number: int, line: socket.socket) -> None:
    half(number, line)
    line.close()


@pytest.fixture
def server() -> Iterator[Server]:
    made = Server()
    yield made
    made.close()


def bus_to(server: Server) -> ModbusTcp:
    return ModbusTcp(TcpSettings("127.0.0.1", server.port, RESPONSE_MS))


def test_request_when_sent_then_one_frame_with_the_next_number(server: Server) -> None:
    server.scripts = [says(GOOD), says(ECHO), says(GOOD)]
    bus = bus_to(server)
    assert [bus.perform(t) for t in (READ, WRITE, READ)] == [
        Confirmed(b"\x00\x01\x00\x02"),
        Confirmed(),
        Confirmed(b"\x00\x01\x00\x02"),
    ]
    assert [g.hex() for g in server.got] == [
        "000100000006" + "110300050002",
        "000200000006" + "110600071234",
        "000300000006" + "110300050002",
    ]
    assert server.connections == 1


def test_open_when_called_then_nothing_is_sent(server: Server) -> None:
    bus = bus_to(server)
    bus.open()
    bus.open()
    bus.close()
    assert server.got == []


@pytest.mark.parametrize(
    ("script", "told"),
    [
        (silence, "no reply within"),
        (half, "no reply within"),
        (hangs_up, "hung up"),
        (says(GOOD, unit=18), "unit 18"),
        (says(b"\x04\x04\x00\x01\x00\x02"), "function 0x04"),
        (says(b"\x03\x02\x00\x01"), "2 data bytes came"),
        (says(GOOD, protocol=1), "out of step"),
        (raw(b"HTTP/1.1 400 Bad Request\r\n\r\n"), "out of step"),
        (raw(struct.pack(">HHHB", 1, 0, 1, 17)), "out of step"),
        (says(b"\x83\x04"), "exception 04"),
        (says(b"\x83\x0b"), "exception 0B"),
    ],
)
def test_reply_when_it_is_not_the_right_one_then_ambiguous_and_the_request_is_not_sent_again(
    server: Server, script: Script, told: str
) -> None:
    server.scripts = [script]
    answer = bus_to(server).perform(READ)
    assert isinstance(answer, Ambiguous)
    assert told in answer.fault
    assert len(server.got) == 1


@pytest.mark.parametrize("script", [hangs_up, half_and_hangs_up, says(GOOD, protocol=1)])
def test_connection_when_nothing_behind_can_be_trusted_then_the_next_request_has_one_of_its_own(
    server: Server, script: Script
) -> None:
    server.scripts = [script, says(GOOD)]
    bus = bus_to(server)
    assert isinstance(bus.perform(READ), Ambiguous)
    assert bus.perform(READ) == Confirmed(b"\x00\x01\x00\x02")
    assert (len(server.got), server.connections) == (2, 2)


def test_request_when_sending_it_fails_then_in_doubt_and_the_next_one_on_a_connection_of_its_own(
    server: Server, monkeypatch: pytest.MonkeyPatch
) -> None:
    def fails(*_: object) -> None:
        monkeypatch.undo()
        raise BrokenPipeError(errno.EPIPE, "Broken pipe")

    server.scripts = [says(GOOD)]
    bus = bus_to(server)
    bus.open()
    monkeypatch.setattr(socket.socket, "sendall", fails)
    answer = bus.perform(WRITE)
    assert isinstance(answer, Ambiguous)
    assert (answer.stage, "Broken pipe" in answer.fault) == (Sent.DATA, True)
    assert bus.perform(READ) == Confirmed(b"\x00\x01\x00\x02")
    until(lambda: server.connections == 2)


def test_exception_when_it_proves_that_nothing_happened_then_rejected(server: Server) -> None:
    server.scripts = [says(b"\x86\x02")]
    answer = bus_to(server).perform(WRITE)
    assert isinstance(answer, Rejected)
    assert answer.proof == "modbus-exception-02"


def test_reply_when_it_comes_in_pieces_then_it_is_put_together(server: Server) -> None:
    server.scripts = [in_pieces]
    assert bus_to(server).perform(READ) == Confirmed(b"\x00\x01\x00\x02")


def test_reply_when_it_comes_with_the_next_ones_then_it_is_dropped_by_its_number(server: Server) -> None:
    stale = b"\x03\x04\xde\xad\xbe\xef"

    def both(number: int, line: socket.socket) -> None:
        line.sendall(frame(number - 1, stale) + frame(number, GOOD))

    server.scripts = [silence, both]
    bus = bus_to(server)
    assert isinstance(bus.perform(READ), Ambiguous)
    assert bus.perform(READ) == Confirmed(b"\x00\x01\x00\x02")
    assert server.connections == 1


def test_reply_when_it_comes_twice_then_the_copy_is_nobodys(server: Server) -> None:
    def twice(number: int, line: socket.socket) -> None:
        line.sendall(2 * frame(number, b"\x03\x04\xde\xad\xbe\xef"))

    server.scripts = [twice, says(GOOD)]
    bus = bus_to(server)
    assert bus.perform(READ) == Confirmed(b"\xde\xad\xbe\xef")
    assert bus.perform(READ) == Confirmed(b"\x00\x01\x00\x02")


def test_connection_when_the_other_side_closed_it_in_between_then_noticed_before_an_effect_is_sent(
    server: Server,
) -> None:
    def once(number: int, line: socket.socket) -> None:
        line.sendall(frame(number, GOOD))
        line.close()

    server.scripts = [once, says(ECHO)]
    bus = bus_to(server)
    assert bus.perform(READ) == Confirmed(b"\x00\x01\x00\x02")
    until(lambda: len(server.got) == 1)
    time.sleep(0.02)  # until the other side's FIN is here; nothing of this process tells
    closed = bus.perform(WRITE)  # and it is not sent to whoever answers there now
    assert isinstance(closed, Rejected)
    assert (closed.proof, len(server.got), server.connections) == ("port-not-opened", 1, 1)
    bus.open()
    assert bus.perform(WRITE) == Confirmed()
    assert (len(server.got), server.connections) == (2, 2)


def test_request_when_no_frame_can_say_it_then_not_sent(server: Server) -> None:
    answer = bus_to(server).perform(RegisterRead(17, Space.HOLDING, 5, 252, 1, 3))
    assert isinstance(answer, Rejected)
    assert (answer.proof, server.got) == ("not-sent", [])


def test_server_when_it_is_gone_then_port_not_opened_and_back_when_it_is() -> None:
    port = free_port()
    bus = ModbusTcp(TcpSettings("127.0.0.1", port, RESPONSE_MS))
    answer = bus.perform(WRITE)
    assert isinstance(answer, Rejected)
    assert answer.proof == "port-not-opened"
    with socket.create_server(("127.0.0.1", port)):
        bus.open()
        bus.close()


def test_transfer_when_it_is_not_of_modbus_then_not_sent(server: Server) -> None:
    answer = bus_to(server).perform(Line("*IDN?", True))
    assert isinstance(answer, Rejected)
    assert (answer.proof, server.got) == ("not-sent", [])


@pytest.mark.parametrize(("late", "connections"), [(frame(1, GOOD), 1), (b"junk" * 4, 2)])
def test_quiesce_when_something_came_then_it_is_dropped_and_a_line_out_of_step_with_it(
    server: Server, late: bytes, connections: int
) -> None:
    may_say, said = threading.Event(), threading.Event()

    def is_late(_: int, line: socket.socket) -> None:
        may_say.wait(10)
        line.sendall(late)
        said.set()

    server.scripts = [is_late, says(GOOD)]
    bus = bus_to(server)
    first = bus.perform(READ)
    assert first == Ambiguous(Sent.REPLY, f"no reply within {RESPONSE_MS} ms")
    may_say.set()
    assert said.wait(10)
    bus.quiesce(time.monotonic())
    assert bus.perform(READ) == Confirmed(b"\x00\x01\x00\x02")
    assert server.connections == connections


def test_server_when_it_babbles_then_it_is_not_listened_to_for_ever_and_given_up(
    server: Server, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(modbus_tcp, "MAX_DRAINS", 3)
    said = threading.Event()

    def babble(number: int, line: socket.socket) -> None:
        line.sendall(frame(number, GOOD) + frame(9, GOOD) * 2000)
        said.set()

    server.scripts = [babble]
    bus = bus_to(server)
    assert bus.perform(READ) == Confirmed(b"\x00\x01\x00\x02")
    assert said.wait(10)
    assert not bus.alive()
    bus.quiesce(time.monotonic())
    until(lambda: server.connections == 2)


def test_slave_when_it_is_pymodbus_then_it_understands_us_and_executes_each_once(tmp_path: Path) -> None:
    counts, port = tmp_path / "counts", free_port()
    words = [sys.executable, "-m", "tests.modbus.tcp_server", str(port), str(counts)]
    with subprocess.Popen(words, stdout=subprocess.PIPE, text=True) as slave:
        try:
            assert slave.stdout is not None
            assert slave.stdout.readline() == "server is ready\n"
            bus = ModbusTcp(TcpSettings("127.0.0.1", port, 2000))
            assert bus.perform(READ) == Confirmed((15).to_bytes(2, "big") + (18).to_bytes(2, "big"))
            assert bus.perform(WRITE) == Confirmed()
            assert bus.perform(RegisterRead(17, Space.HOLDING, 7, 2, 1, 3)) == Confirmed(b"\x12\x34")
            several = RegisterWrite(17, Space.HOLDING, 8, b"\x00\x01\x00\x02", 1, 16)
            assert bus.perform(several) == Confirmed()
            beyond = bus.perform(RegisterRead(17, Space.HOLDING, 99, 4, 1, 3))
            assert isinstance(beyond, Rejected)
            bus.close()
        finally:
            slave.kill()
    assert counts.read_text().split("\n")[:-1] == ["3 5", "6 7", "3 7", "16 8", "3 99"]
