"""One suite for both carriers of Modbus, against slaves of three other authors, which count what they got."""

from __future__ import annotations

import subprocess
import sys
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Final

import pytest

from hwtool_contracts.model import Space
from hwtool_registers.bus import Bus, Confirmed, RegisterRead, RegisterWrite, Rejected, Transfer
from hwtool_registers.buses.modbus import ModbusRtu, RtuSettings
from hwtool_registers.buses.modbus_tcp import ModbusTcp, TcpSettings
from tests.modbus.libmodbus_slave import LIBRARY, library
from tests.modbus.wire import Wire
from tests.registers.scripted_server import free_port

RESPONSE_MS: Final = 6000  # slaves of others, on a machine that does much else


@dataclass
class Peer:
    """A slave of another author, and our bus to it."""

    bus: Bus
    counts: Path

    def executed(self) -> list[str]:
        """What it got, in order: `FUNCTION ADDRESS`."""
        return self.counts.read_text(encoding="ascii").splitlines()


def started(module: str, *words: str) -> subprocess.Popen[str]:
    slave = subprocess.Popen([sys.executable, "-m", module, *words], stdout=subprocess.PIPE, text=True)
    assert slave.stdout is not None
    assert slave.stdout.readline().endswith("ready\n")
    return slave


def over_tcp(module: str, *transport: str) -> Callable[[Path], Iterator[Peer]]:
    def peer(counts: Path) -> Iterator[Peer]:
        port = free_port()
        slave = started(module, *transport, str(port), str(counts))
        bus = ModbusTcp(TcpSettings("127.0.0.1", port, RESPONSE_MS))
        try:
            yield Peer(bus, counts)
        finally:
            bus.close()
            slave.kill()
            slave.communicate()

    return peer


def over_rtu(module: str, *transport: str) -> Callable[[Path], Iterator[Peer]]:
    def peer(counts: Path) -> Iterator[Peer]:
        wire = Wire()
        slave = started(module, *transport, wire.slave_end, str(counts))
        bus = ModbusRtu(RtuSettings(wire.master_end, 115200, response_ms=RESPONSE_MS))
        try:
            yield Peer(bus, counts)
        finally:
            bus.close()
            slave.kill()
            slave.communicate()
            wire.close()

    return peer


PEERS: Final = {
    "libmodbus over TCP": over_tcp("tests.modbus.libmodbus_slave", "tcp"),
    "libmodbus on a line": over_rtu("tests.modbus.libmodbus_slave", "rtu"),
    "modbus-tk over TCP": over_tcp("tests.modbus.modbus_tk_slave", "tcp"),
    "modbus-tk on a line": over_rtu("tests.modbus.modbus_tk_slave", "rtu"),
    "pymodbus over TCP": over_tcp("tests.modbus.tcp_server"),
    "pymodbus on a line": over_rtu("tests.modbus.slave"),
}


@pytest.fixture(params=PEERS)
def peer(request: pytest.FixtureRequest, tmp_path: Path) -> Iterator[Peer]:
    name = str(request.param)
    if name.startswith("libmodbus"):
        try:
            library()
        except OSError:
            pytest.skip(f"no {LIBRARY} (Debian: libmodbus5)")
    yield from PEERS[name](tmp_path / "counts")


def words(*numbers: int) -> bytes:
    return b"".join(n.to_bytes(2, "big") for n in numbers)


def read(function: int, space: Space, at: int, size_bytes: int, bits: int | None = None) -> RegisterRead:
    return RegisterRead(17, space, at, size_bytes, 1, function, bits)


def write(function: int, space: Space, at: int, data: bytes, bits: int | None = None) -> RegisterWrite:
    return RegisterWrite(17, space, at, data, 1, function, True, bits)


REGISTERS: Final[list[tuple[Transfer, bytes]]] = [
    (read(3, Space.HOLDING, 5, 2), words(15)),
    (read(3, Space.HOLDING, 5, 8), words(15, 18, 21, 24)),
    (read(3, Space.HOLDING, 0, 100), words(*(3 * n for n in range(50)))),
    (write(6, Space.HOLDING, 7, words(0x1234)), b""),
    (read(3, Space.HOLDING, 7, 2), words(0x1234)),
    (write(16, Space.HOLDING, 8, words(1, 2, 3)), b""),
    (read(3, Space.HOLDING, 7, 8), words(0x1234, 1, 2, 3)),
]
MERGED: Final[list[tuple[Transfer, bytes]]] = [
    (write(6, Space.HOLDING, 4, words(0x12)), b""),
    (write(22, Space.HOLDING, 4, words(0xF2, 0x25)), b""),
    (read(3, Space.HOLDING, 4, 2), words(0x17)),  # the example of the Application Protocol, 6.16
]
BITS: Final[list[tuple[Transfer, bytes]]] = [
    (read(4, Space.INPUT, 4, 4), words(12, 15)),
    (read(1, Space.COIL, 0, 2, 10), b"\xaa\x02"),
    (read(2, Space.DISCRETE, 1, 1, 3), b"\x05"),
    (write(5, Space.COIL, 2, b"\x01", 1), b""),
    (write(5, Space.COIL, 3, b"\x00", 1), b""),
    (read(1, Space.COIL, 0, 1, 6), b"\x26"),
    (write(15, Space.COIL, 0, b"\x0f", 4), b""),
    (read(1, Space.COIL, 0, 1, 4), b"\x0f"),
]


def carried(peer: Peer, cases: list[tuple[Transfer, bytes]]) -> None:
    asked = []
    for transfer, wanted in cases:
        assert peer.bus.perform(transfer) == Confirmed(wanted), transfer
        assert isinstance(transfer, RegisterRead | RegisterWrite)
        asked.append(f"{transfer.function} {transfer.offset}")
    assert peer.executed() == asked


def test_registers_when_read_and_written_then_as_the_other_author_has_them_and_each_once(peer: Peer) -> None:
    carried(peer, REGISTERS)


def test_word_when_the_slave_merges_it_then_the_bits_kept_are_as_they_were(
    peer: Peer, request: pytest.FixtureRequest
) -> None:
    if "modbus-tk" in request.node.name:
        pytest.skip("modbus-tk's slave has no function 22")
    carried(peer, MERGED)


def test_registers_when_written_and_read_in_one_request_then_the_slave_writes_first(
    peer: Peer, request: pytest.FixtureRequest
) -> None:
    at_once = RegisterRead(17, Space.HOLDING, 5, 6, 1, 23, first=(6, words(0x1234)))
    # modbus-tk's slave reads first, against the standard (6.17): a contract has to say that its device does not
    there = 18 if "modbus-tk" in request.node.name else 0x1234
    assert peer.bus.perform(at_once) == Confirmed(words(15, there, 21))
    assert peer.bus.perform(read(3, Space.HOLDING, 6, 2)) == Confirmed(words(0x1234))
    assert [line.split()[0] for line in peer.executed()] == ["23", "3"]


@pytest.mark.parametrize(("number", "text"), [(0, b"nobody"), (1, b"slave")])
def test_object_when_asked_for_by_its_number_then_its_text(
    peer: Peer, request: pytest.FixtureRequest, number: int, text: bytes
) -> None:
    if "pymodbus" not in request.node.name:
        pytest.skip("neither libmodbus's slave nor modbus-tk's has function 43")
    assert peer.bus.perform(read(43, Space.OBJECT, number, 16)) == Confirmed(text.rjust(16, b"\0"))
    assert len(peer.executed()) == 1


def test_object_when_there_is_none_then_refused(peer: Peer, request: pytest.FixtureRequest) -> None:
    if "pymodbus" not in request.node.name:
        pytest.skip("on a line libmodbus's slave is silent where it has not the function")
    answer = peer.bus.perform(read(43, Space.OBJECT, 0x60, 16))
    assert isinstance(answer, Rejected)
    assert answer.proof == "modbus-exception-02"


def test_bits_and_inputs_when_read_and_written_then_as_the_other_author_has_them(
    peer: Peer, request: pytest.FixtureRequest
) -> None:
    if "pymodbus" in request.node.name:
        pytest.skip("the slaves by pymodbus of these tests have holding registers alone")
    carried(peer, BITS)


@pytest.mark.parametrize(
    "transfer",
    [read(3, Space.HOLDING, 99, 4), read(3, Space.HOLDING, 500, 2), write(6, Space.HOLDING, 500, words(1))],
)
def test_exception_when_there_is_no_such_register_then_proved_that_nothing_happened(
    peer: Peer, transfer: Transfer
) -> None:
    answer = peer.bus.perform(transfer)
    assert isinstance(answer, Rejected)
    assert answer.proof == "modbus-exception-02"
