"""An FTDI adapter below pyftdi and PyUSB: who has the interface, what stands on the wires, and how often."""

from __future__ import annotations

import errno
import json
import logging
from collections.abc import Callable, Iterator
from dataclasses import replace
from pathlib import Path
from typing import Any, Final

import pytest
from pyftdi.i2c import I2cController, I2cNackError

from hwtool_contracts.library import bundled
from hwtool_contracts.model import Contract, Space
from hwtool_registers.bus import Ambiguous, Confirmed, Message, RegisterRead, RegisterWrite, Rejected, Sent
from hwtool_registers.buses.ftdi_adapter import FtdiBus, FtdiSettings
from hwtool_registers.buses.ftdi_claim import claimed, give_back_left
from hwtool_registers.buses.ftdi_i2c import I2cMaster
from hwtool_registers.buses.ftdi_spi import SpiMaster
from hwtool_registers.buses.ftdi_url import FtdiUrl, parse_url
from hwtool_registers.buses.spi_exchange import SpiChip
from hwtool_registers.buses.usb_nodes import holders_of
from hwtool_registers.plan import plan_read, plan_write
from hwtool_sim.board import chip_at_power_on
from tests.mpsse.backend import hosting
from tests.mpsse.slaves import I2cCells, I2cChip, SpiCells, SpiChipOf
from tests.mpsse.usb_host import Adapter, Host, failed
from tests.mpsse.wires import I2cSlave, I2cWires, SpiSlave, SpiWires

URL: Final = FtdiUrl("232h", "FT4ABC", 1)
READ: Final = RegisterRead(0x20, Space.MEMORY, 0x10, 2)
WRITE: Final = RegisterWrite(0x20, Space.MEMORY, 0x40, b"\x55\x66")
SPI_READ: Final = RegisterRead(1, Space.MEMORY, 0x90, 2)
SPI_WRITE: Final = RegisterWrite(1, Space.MEMORY, 0x40, b"\x55\x66")


class Rig:
    """One adapter on a host, and buses on it."""

    def __init__(self, patch: pytest.MonkeyPatch, notes: Path) -> None:
        self._patch, self.notes = patch, notes
        self._open: list[FtdiBus] = []
        self.host: Host
        self.adapter: Adapter

    def _plugged(self, kind: str, wires: list[Any]) -> FtdiSettings:
        self.adapter = Adapter(kind, "FT4ABC", wires)
        self.host = hosting(self._patch, self.adapter)
        return FtdiSettings(FtdiUrl(kind, "FT4ABC", 1), notes=self.notes)

    def i2c(self, slave: I2cSlave, kind: str = "232h", **settings: Any) -> tuple[FtdiBus, I2cWires]:
        """A master of I2C with a slave at 0x20, and the wires."""
        wires = I2cWires({0x20: slave})
        rest = [I2cWires({}) for _ in range({"232h": 0, "2232h": 1, "4232h": 3}[kind])]
        bus = FtdiBus(self._plugged(kind, [wires, *rest]), I2cMaster(**settings))
        self._open.append(bus)
        return bus, wires

    def spi(self, slaves: dict[int, SpiSlave], chips: dict[int, SpiChip]) -> tuple[FtdiBus, SpiWires]:
        """A master of SPI, and the wires."""
        wires = SpiWires(slaves)
        bus = FtdiBus(self._plugged("232h", [wires]), SpiMaster(chips))
        self._open.append(bus)
        return bus, wires

    def close(self) -> None:
        """Give everything back."""
        for bus in self._open:
            bus.close()


@pytest.fixture
def rig(monkeypatch: pytest.MonkeyPatch, tmp_path: Path, caplog: pytest.LogCaptureFixture) -> Iterator[Rig]:
    """And pyftdi's own decoder, which reads the same bytes, has nothing to complain of."""
    caplog.set_level(logging.WARNING, "pyftdi.mpsse.tracer")
    made = Rig(monkeypatch, tmp_path)
    yield made
    made.close()
    assert [r.message for r in caplog.records if r.name == "pyftdi.mpsse.tracer"] == []


def test_open_when_nothing_is_wrong_then_no_clock_and_nothing_on_a_free_bus(rig: Rig) -> None:
    bus, wires = rig.i2c(I2cCells())
    bus.open()
    bus.quiesce(0.0)
    bus.close()
    assert wires.edges == 0
    spi, on_spi = rig.spi({1: SpiCells()}, {1: SpiChip()})
    spi.open()
    spi.quiesce(0.0)
    assert on_spi.edges == 1  # SCK goes to where it rests


# one request is one transfer


def test_write_when_a_byte_is_not_acknowledged_then_sent_once_and_in_doubt(rig: Rig) -> None:
    slave = I2cCells(nacks_at=2)
    bus, wires = rig.i2c(slave)
    answer = bus.perform(WRITE)
    assert answer == Ambiguous(Sent.DATA, "no acknowledge of a byte")
    assert wires.shown() == [[("W!", 0x20, "405566")]]


def test_pyftdi_when_left_as_it_is_then_it_sends_the_message_again(rig: Rig) -> None:
    """The control: what the bus has switched off is there, and the wires show it."""
    slave = I2cCells()
    bus, wires = rig.i2c(slave)
    claim = claimed(URL)
    plain = I2cController()
    plain.configure(claim.device, interface=1)
    del wires.slaves[0x20]
    with pytest.raises(I2cNackError):
        plain.write(0x20, b"\x40\x55")
    assert wires.shown() == [[("W!", 0x20, "")]] * 3
    claim.give_back()
    wires.log.clear()
    assert isinstance(bus.perform(WRITE), Rejected)
    assert wires.shown() == [[("W!", 0x20, "")]]


NACKS: Final[dict[str, tuple[RegisterRead | RegisterWrite | Message, Callable[[I2cWires, I2cCells], None], Any]]] = {
    "at the address of a write": (WRITE, lambda w, s: w.slaves.clear(), "address-nack"),
    "at the address of a read": (READ, lambda w, s: w.slaves.clear(), "address-nack"),
    "at the address of a plain read": (Message(0x20, b"", 2), lambda w, s: w.slaves.clear(), "address-nack"),
    "at the offset": (WRITE, lambda w, s: setattr(s, "nacks_at", 0), Sent.DATA),
    "behind the offset of a register": (READ, lambda w, s: setattr(s, "deaf_to_reads", True), "address-nack"),
    "behind a command": (Message(0x20, b"\x10", 2), lambda w, s: setattr(s, "deaf_to_reads", True), Sent.DATA),
}


@pytest.mark.parametrize(("transfer", "spoil", "shows"), NACKS.values(), ids=NACKS)
def test_nack_when_it_comes_then_it_proves_what_the_byte_says_and_nothing_is_repeated(
    rig: Rig,
    transfer: RegisterRead | RegisterWrite | Message,
    spoil: Callable[[I2cWires, I2cCells], None],
    shows: str | Sent,
) -> None:
    slave = I2cCells()
    bus, wires = rig.i2c(slave)
    spoil(wires, slave)
    answer = bus.perform(transfer)
    assert (answer.proof if isinstance(answer, Rejected) else getattr(answer, "stage", None)) == shows, answer
    assert len(wires.log) == 1
    wires.slaves[0x20] = slave
    assert bus.perform(READ) == Confirmed(b"\x10\x11")  # the bus was stopped


LONG: Final = (1, 2, 28, 29, 57, 300)


@pytest.mark.parametrize("kind", ["232h", "2232h", "4232h"])
@pytest.mark.parametrize("size", LONG)
def test_transfer_when_long_then_one_transaction_with_every_byte(rig: Rig, kind: str, size: int) -> None:
    slave = I2cCells()
    bus, wires = rig.i2c(slave, kind)
    data = bytes(n * 7 & 0xFF for n in range(size))
    assert bus.perform(RegisterWrite(0x20, Space.MEMORY, 0, data)) == Confirmed()
    last = data[-256:] if size <= 256 else data[256:] + data[size - 256 : 256]
    assert bytes(slave.memory[: len(last)])[: min(size, 44)] == last[: min(size, 44)]
    expected = bytes(slave.memory[n % 256] for n in range(size))
    assert bus.perform(RegisterRead(0x20, Space.MEMORY, 0, size)) == Confirmed(expected)
    assert wires.shown() == [[("W", 0x20, "00" + data.hex())], [("W", 0x20, "00"), ("R", 0x20, expected.hex())]]
    if kind == "232h":
        assert wires.contention == 0  # it drives zeros alone


def test_read_when_the_contract_wants_a_stop_then_two_transactions(rig: Rig) -> None:
    bus, wires = rig.i2c(I2cCells())
    assert bus.perform(replace(READ, stop=True)) == Confirmed(b"\x10\x11")
    assert wires.shown() == [[("W", 0x20, "10")], [("R", 0x20, "1011")]]


@pytest.mark.parametrize("stretching", [True, False])
def test_clock_when_somebody_holds_it_for_good_then_in_doubt_and_not_opened_until_it_is_free(
    rig: Rig, stretching: bool
) -> None:
    bus, wires = rig.i2c(I2cCells(), clock_stretching=stretching)
    assert bus.perform(READ) == Confirmed(b"\x10\x11")
    wires.holds = True
    answer = bus.perform(READ)
    if stretching:
        assert isinstance(answer, Ambiguous), answer
        stuck = bus.perform(READ)
        assert isinstance(stuck, Rejected), stuck
        assert (stuck.proof, "SCL is held down" in stuck.fault) == ("port-not-opened", True)
        wires.holds = False
        assert bus.perform(READ) == Confirmed(b"\x10\x11")
    else:
        assert not isinstance(answer, Confirmed), answer  # bits were lost: what came is no acknowledge


def test_bus_when_a_chip_was_left_in_the_middle_of_a_bit_then_freed_when_it_is_opened(rig: Rig) -> None:
    slave = I2cCells(memory=bytearray(256))  # it sends zeros, and holds SDA down for each
    bus, wires = rig.i2c(slave)
    slave.gives = lambda: _leave(rig, slave)  # type: ignore[method-assign]
    assert isinstance(bus.perform(READ), Ambiguous)
    del slave.gives
    rig.adapter.plugged_in()
    assert wires.level(2) == 0
    bus.open()
    assert wires.level(2) == 1
    before = len(wires.log)
    assert bus.perform(WRITE) == Confirmed()
    assert wires.shown()[before:] == [[("W", 0x20, "405566")]]
    assert (bytes(slave.memory[0x40:0x42]), sum(slave.memory)) == (b"\x55\x66", 0xBB)  # and nothing else was taken


def _leave(rig: Rig, slave: I2cCells) -> int:
    rig.host.after = lambda data: _unplug(rig)
    return 0


def _unplug(rig: Rig) -> None:
    rig.host.after = lambda data: None
    rig.adapter.pulled_out()


def test_bus_when_sda_is_held_down_for_good_then_absent_and_said(rig: Rig) -> None:
    bus, wires = rig.i2c(I2cCells())
    wires._put(0)
    with pytest.raises(OSError, match="SDA is held down, also after nine clocks") as raised:
        bus.open()
    one = rig.adapter.interfaces[0]
    assert (raised.value.errno, one.driver, one.mpsse) == (
        errno.ENXIO,
        None,
        True,
    )  # nothing drives against whoever it is
    wires._let_go()
    assert bus.perform(READ) == Confirmed(b"\x10\x11")
    bus.close()
    assert (one.driver, rig.host.handles) == ("ftdi_sio", set())


def test_block_when_asked_for_then_refused_before_anything_is_sent(rig: Rig) -> None:
    bus, _ = rig.i2c(I2cCells())
    answer = bus.perform(RegisterRead(0x20, Space.BLOCK, 0x10, 2))
    assert isinstance(answer, Rejected)
    assert (answer.proof, rig.host.handles) == ("not-sent", set())


HELD: Final[dict[str, Callable[[I2cWires], object]]] = {
    "SDA": lambda w: w._put(0),
    "SCL": lambda w: setattr(w, "holds", True),
}


@pytest.mark.parametrize("kind", ["232h", "2232h"])
@pytest.mark.parametrize("which", HELD)
def test_wire_when_it_is_held_down_before_a_start_then_not_sent_and_nothing_passes_for_an_acknowledge(
    rig: Rig, which: str, kind: str
) -> None:
    bus, wires = rig.i2c(I2cCells(), kind)
    assert bus.perform(READ) == Confirmed(b"\x10\x11")
    HELD[which](wires)
    wires._settle()
    wires.slaves.clear()
    for transfer in (WRITE, READ):
        answer = bus.perform(transfer)
        assert isinstance(answer, Rejected), answer
        assert answer.proof in ("not-sent", "port-not-opened")
        assert "held down" in answer.fault
    assert len(wires.log) == 1


class Holding(I2cCells):
    """A chip that holds the clock behind the last byte of a write, for good."""

    wires: I2cWires

    def takes(self, byte: int) -> bool:
        if byte == 0x66:
            self.wires.holds = True
        return super().takes(byte)


@pytest.mark.parametrize("stretching", [True, False])
def test_write_when_its_stop_did_not_happen_then_in_doubt(rig: Rig, stretching: bool) -> None:
    slave = Holding()
    bus, slave.wires = rig.i2c(slave, clock_stretching=stretching)
    answer = bus.perform(WRITE)
    assert isinstance(answer, Ambiguous), answer
    assert answer.stage is Sent.DATA


@pytest.mark.parametrize("spi", [False, True])
def test_answer_when_an_earlier_one_is_left_in_the_adapter_then_nothing_is_sent_and_none_of_it_is_taken(
    rig: Rig, spi: bool
) -> None:
    bus, wires = rig.spi({1: SpiCells()}, {1: SpiChip()}) if spi else rig.i2c(I2cCells())
    read = SPI_READ if spi else READ
    assert bus.perform(read) == Confirmed(b"\x10\x11")
    left = rig.adapter.interfaces[0].engine.out
    left += bytes(8)  # would pass for acknowledges, and for data
    answer = bus.perform(SPI_WRITE if spi else WRITE)
    assert isinstance(answer, Rejected), answer
    assert (answer.proof, "which nobody asked" in answer.fault) == ("not-sent", True)
    assert bus.perform(read) == Confirmed(b"\x10\x11")
    left += bytes(8)
    bus.quiesce(0.0)
    assert not left
    assert len(wires.log) == 2


class BeforeItsAcknowledge(I2cCells):
    """A chip that fetches its register when it is addressed for a read, and holds the clock until it has it."""

    wires: I2cWires
    fetched = 0

    def begins(self, reads: bool) -> bool:
        took = super().begins(reads)
        if not reads:
            return took
        self.fetched += 1
        self.wires.holds = True
        return False


def test_nack_when_a_chip_holds_the_clock_then_it_proves_nothing(rig: Rig) -> None:
    slave = BeforeItsAcknowledge()
    bus, slave.wires = rig.i2c(slave)
    answer = bus.perform(READ)
    assert isinstance(answer, Ambiguous), answer
    assert ("SCL is held down" in answer.fault, slave.fetched) == (True, 1)


def test_adapter_when_in_doubt_then_kept_and_set_up_anew_for_the_next_transfer(rig: Rig) -> None:
    bus, wires = rig.i2c(I2cCells())
    bus.open()
    one = rig.adapter.interfaces[0]
    begun = len(one.log)
    rig.host.after = lambda data: setattr(rig.host, "deaf", bool(wires.log))
    assert isinstance(bus.perform(WRITE), Ambiguous)
    rig.host.after, rig.host.deaf = lambda data: None, False
    bus.quiesce(0.0)
    assert bus.perform(READ) == Confirmed(b"\x10\x11")
    bound = [word for word, _ in one.log[begun:] if word in ("attached", "detached")]
    assert (bound, one.driver, len(list(rig.notes.iterdir()))) == ([], None, 1)
    assert len(wires.log) == 2


def test_adapter_when_it_was_pulled_out_before_it_was_set_up_then_absent_and_let_go(
    rig: Rig, monkeypatch: pytest.MonkeyPatch
) -> None:
    bus, _ = rig.i2c(I2cCells())

    def pulled_out(self: Host, handle: Any) -> int:
        rig.adapter.pulled_out()
        raise failed(errno.ENODEV)

    monkeypatch.setattr(Host, "get_configuration", pulled_out)
    with pytest.raises(OSError, match="cannot be set up"):
        bus.open()
    assert (rig.host.handles, list(rig.notes.iterdir())) == (set(), [])


CLOCKS: Final = {
    # wanted: what the engine makes of it, never more; on SPI in modes 1 and 3, and on I2C, with its three phases
    (0, 20_100_000): 15e6,
    (0, 14_000_000): 10e6,
    (0, 133_000_000): 30e6,
    (0, 1_000_000): 1e6,
    (3, 1_000_000): 1.5e6,
    (3, 133_000_000): 30e6,
    (0, 423): 6e6 / 14185,  # below 458 Hz from another clock
}


@pytest.mark.parametrize(("mode", "max_hz"), CLOCKS)
def test_clock_when_the_engine_cannot_make_it_then_the_next_lower_one(rig: Rig, mode: int, max_hz: int) -> None:
    bus, _ = rig.spi({1: SpiCells(mode)}, {1: SpiChip(mode, max_hz)})
    assert bus.perform(SPI_READ) == Confirmed(b"\x10\x11")
    assert rig.adapter.interfaces[0].engine.clock_hz == pytest.approx(CLOCKS[mode, max_hz])
    assert CLOCKS[mode, max_hz] <= max_hz * (1.5 if mode & 1 else 1)


@pytest.mark.parametrize(
    ("max_hz", "made"), [(100_000, 150e3), (400_000, 600e3), (1_000_000, 1.5e6), (333_333, 30e6 / 61)]
)
def test_clock_when_of_i2c_then_the_engines_is_half_as_fast_again(rig: Rig, max_hz: int, made: float) -> None:
    bus, _ = rig.i2c(I2cCells(), max_hz=max_hz)
    bus.open()
    assert rig.adapter.interfaces[0].engine.clock_hz == pytest.approx(made)
    assert made <= 1.5 * max_hz


@pytest.mark.parametrize("mode", range(4))
@pytest.mark.parametrize("transfer", [SPI_READ, SPI_WRITE], ids=["read", "write"])
def test_spi_when_less_comes_back_than_was_clocked_then_in_doubt_and_none_of_it_is_the_next_ones(
    rig: Rig, mode: int, transfer: RegisterRead | RegisterWrite
) -> None:
    bus, wires = rig.spi({1: SpiCells(mode)}, {1: SpiChip(mode)})
    bus.open()

    def begun(data: bytes) -> None:
        rig.host.deaf = rig.host.deaf or bool(wires.log)

    rig.host.after = begun
    assert isinstance(bus.perform(transfer), Ambiguous)
    rig.host.after, rig.host.deaf = lambda data: None, False
    assert bus.perform(SPI_READ) == Confirmed(b"\x10\x11")
    assert len(wires.log) == 2


def test_answer_when_it_takes_longer_than_four_packets_then_awaited_for_the_response_time(rig: Rig) -> None:
    _, wires = rig.i2c(I2cCells())
    bus = FtdiBus(FtdiSettings(URL, response_ms=160, latency_ms=16), I2cMaster())
    bus.open()
    kept: list[int] = []

    def late(payload: bytes) -> bytes:
        kept.append(0)
        return payload if len(kept) % 9 == 0 else b""

    rig.host.packet = late
    assert bus.perform(READ) == Confirmed(b"\x10\x11")
    assert len(kept) > 20
    rig.host.packet = lambda payload: payload
    bus.close()
    assert len(wires.log) == 1


def test_adapter_when_two_have_a_serial_number_then_neither_is_taken(rig: Rig) -> None:
    rig.i2c(I2cCells())
    rig.host.adapters.append(Adapter("232h", "FT4ABC", [I2cWires({})], address=9))
    with pytest.raises(OSError, match="2 adapters have the serial number FT4ABC") as raised:
        claimed(URL)
    assert (raised.value.errno, rig.host.handles) == (errno.ENOTUNIQ, set())


def test_adapter_when_its_twin_may_not_be_opened_then_neither_is_taken(rig: Rig, tmp_path: Path) -> None:
    rig.i2c(I2cCells())
    twin = Adapter("232h", "FT4ABC", [I2cWires({})], address=9)
    twin.permitted = False
    rig.host.adapters.append(twin)
    for adapter in rig.host.adapters:
        sysfs_of(tmp_path / "sys", adapter)
    with pytest.raises(OSError, match="2 adapters have the serial number FT4ABC"):
        claimed(URL, None, tmp_path / "sys")
    assert (rig.host.asked, rig.host.handles) == ([], set())


def test_adapter_when_it_does_not_answer_then_not_called_forbidden(rig: Rig, monkeypatch: pytest.MonkeyPatch) -> None:
    rig.i2c(I2cCells())

    def hangs(self: Host, *asked: Any) -> int:
        raise failed(errno.ETIMEDOUT)

    monkeypatch.setattr(Host, "ctrl_transfer", hangs)
    with pytest.raises(
        OSError, match="no 232h has the serial number FT4ABC; there are: /dev/bus/usb/003/007"
    ) as raised:
        claimed(URL)
    assert (raised.value.errno, rig.host.handles) == (errno.ENODEV, set())


def test_driver_when_another_program_detached_it_meanwhile_then_not_bound_under_its_feet(
    rig: Rig, monkeypatch: pytest.MonkeyPatch
) -> None:
    bus, _ = rig.i2c(I2cCells())
    one = rig.adapter.interfaces[0]

    def looked(self: Host, handle: object, intf: int) -> bool:
        one.driver = None  # the other is just quicker
        return True

    monkeypatch.setattr(Host, "is_kernel_driver_active", looked)
    with pytest.raises(OSError):
        bus.open()
    assert (one.driver, list(rig.notes.iterdir())) == (None, [])


def sysfs_of(top: Path, adapter: Adapter) -> Path:
    """What sysfs says of an adapter."""
    place = top / "bus/usb/devices" / f"{adapter.bus}-{adapter.address}"
    place.mkdir(parents=True)
    told = {"idVendor": "0403", "idProduct": "6014", "serial": adapter.serial}
    for name, text in (told | {"busnum": str(adapter.bus), "devnum": str(adapter.address)}).items():
        (place / name).write_text(text + "\n")
    return top


def test_adapter_when_sysfs_says_that_another_one_is_there_then_it_is_not_opened(rig: Rig, tmp_path: Path) -> None:
    rig.i2c(I2cCells())
    other = Adapter("232h", "FT4OTHER", [I2cWires({})], address=9)
    other.permitted = False
    rig.host.adapters.append(other)
    for adapter in rig.host.adapters:
        sysfs_of(tmp_path / "sys", adapter)
    claimed(URL, None, tmp_path / "sys").give_back()
    assert rig.host.asked == []
    rig.adapter.pulled_out()
    with pytest.raises(OSError, match="no 232h has the serial number FT4ABC; there are: FT4OTHER") as raised:
        claimed(URL, None, tmp_path / "sys")
    assert raised.value.errno == errno.ENODEV  # absent, and not forbidden


def test_interface_when_its_driver_cannot_be_given_back_then_said_and_the_note_stays(
    rig: Rig, monkeypatch: pytest.MonkeyPatch
) -> None:
    bus, _ = rig.i2c(I2cCells())
    bus.open()
    rig.host.crashed()

    def refuses(self: Host, handle: object, intf: int) -> None:
        raise failed(errno.EBUSY)

    with monkeypatch.context() as patch:
        patch.setattr(Host, "attach_kernel_driver", refuses)
        assert give_back_left(rig.notes) == [f"{URL}: not given back: it was refused"]
    assert len(list(rig.notes.iterdir())) == 1
    assert give_back_left(rig.notes) == [f"{URL}: given back to its kernel driver"]


@pytest.mark.parametrize("error", [AttributeError("gone"), KeyboardInterrupt()], ids=["a defect", "an interruption"])
def test_open_when_anything_goes_wrong_then_the_engine_is_off_and_the_interface_given_back(
    rig: Rig, monkeypatch: pytest.MonkeyPatch, error: BaseException
) -> None:
    bus, _ = rig.i2c(I2cCells())

    def fails(ftdi: Any, half_s: float) -> None:
        raise error

    monkeypatch.setattr("hwtool_registers.buses.ftdi_i2c._freed", fails)
    with pytest.raises(type(error)):
        bus.open()
    one = rig.adapter.interfaces[0]
    assert (one.driver, one.mpsse, rig.host.handles) == ("ftdi_sio", False, set())


# who has the interface


def drivers(rig: Rig) -> list[str | None]:
    """The kernel driver of each interface."""
    return [one.driver for one in rig.adapter.interfaces]


def test_interface_when_taken_then_it_alone_and_given_back_when_closed_hc045(rig: Rig) -> None:
    bus, _ = rig.i2c(I2cCells(), "4232h")
    bus.open()
    assert drivers(rig) == [None, "ftdi_sio", "ftdi_sio", "ftdi_sio"]
    assert [i.log for i in rig.adapter.interfaces[1:]] == [[], [], []]
    bus.close()
    assert drivers(rig) == ["ftdi_sio"] * 4
    assert (rig.host.handles, list(rig.notes.iterdir())) == (set(), [])


def test_interface_when_it_cannot_be_claimed_then_nothing_was_said_to_it(rig: Rig) -> None:
    bus, _ = rig.i2c(I2cCells())
    one = rig.adapter.interfaces[0]
    one.driver, one.holder = None, "another program"
    with pytest.raises(OSError, match="in use by another program") as raised:
        bus.open()
    assert (raised.value.errno, one.log, rig.host.handles) == (errno.EBUSY, [], set())


def test_interface_when_no_driver_had_it_then_none_is_bound(rig: Rig) -> None:
    bus, _ = rig.i2c(I2cCells())
    rig.adapter.interfaces[0].driver = None
    assert bus.perform(READ) == Confirmed(b"\x10\x11")
    bus.close()
    assert rig.adapter.interfaces[0].driver is None


def test_interface_when_its_process_died_then_the_next_one_gives_it_back_hc045(rig: Rig) -> None:
    bus, _ = rig.i2c(I2cCells())
    bus.open()
    rig.host.crashed()
    (note,) = rig.notes.iterdir()
    assert json.loads(note.read_text())["url"] == str(URL)
    again = FtdiBus(FtdiSettings(URL, notes=rig.notes), I2cMaster())
    assert again.perform(READ) == Confirmed(b"\x10\x11")
    assert drivers(rig) == [None]
    again.close()
    assert drivers(rig) == ["ftdi_sio"]
    assert list(rig.notes.iterdir()) == []


def test_interface_when_its_process_died_and_nobody_wants_it_then_given_back(rig: Rig) -> None:
    bus, _ = rig.i2c(I2cCells())
    bus.open()
    rig.host.crashed()
    assert give_back_left(rig.notes, [URL]) == []
    assert drivers(rig) == [None]
    assert give_back_left(rig.notes) == [f"{URL}: given back to its kernel driver"]
    assert (drivers(rig), list(rig.notes.iterdir())) == (["ftdi_sio"], [])


def test_interface_when_a_process_that_runs_has_it_then_left_to_it_with_its_note(rig: Rig) -> None:
    bus, _ = rig.i2c(I2cCells())
    bus.open()
    (told,) = give_back_left(rig.notes)
    assert told.startswith(f"{URL}: not given back: {URL} is in use by")
    assert (drivers(rig), len(list(rig.notes.iterdir()))) == ([None], 1)
    assert bus.perform(READ) == Confirmed(b"\x10\x11")
    bus.close()
    assert (drivers(rig), list(rig.notes.iterdir())) == (["ftdi_sio"], [])


@pytest.mark.parametrize("wrong", ["an earlier boot", "no note at all"])
def test_note_when_it_says_nothing_of_this_boot_then_dropped_and_nothing_is_bound(rig: Rig, wrong: str) -> None:
    rig.i2c(I2cCells())
    rig.adapter.interfaces[0].driver = None
    note = rig.notes / "ftdi-FT4ABC-1.taken"
    note.write_text(json.dumps({"url": str(URL), "boot": "0"}) if wrong == "an earlier boot" else "[")
    assert give_back_left(rig.notes) == []
    assert (rig.adapter.interfaces[0].driver, note.exists()) == (None, False)


@pytest.mark.parametrize("spi", [False, True])
@pytest.mark.parametrize("deaf", [False, True], ids=["no engine", "no answer"])
def test_open_when_the_engine_cannot_be_set_up_then_given_back(
    rig: Rig, monkeypatch: pytest.MonkeyPatch, spi: bool, deaf: bool
) -> None:
    bus, _ = rig.spi({0: SpiCells(0)}, {0: SpiChip()}) if spi else rig.i2c(I2cCells())
    rig.host.deaf = deaf
    if not deaf:
        monkeypatch.setattr(rig.adapter.interfaces[0].engine, "feed", lambda told: None)
    with pytest.raises(OSError, match="cannot be set up"):
        bus.open()
    assert (rig.adapter.interfaces[0].driver, rig.host.handles) == ("ftdi_sio", set())


def _busy_driver(rig: Rig, patch: pytest.MonkeyPatch) -> None:
    patch.setattr(Host, "is_kernel_driver_active", lambda self, handle, intf: False)  # one that libusb cannot name


def _busy_program(rig: Rig, patch: pytest.MonkeyPatch) -> None:
    rig.adapter.interfaces[0].driver, rig.adapter.interfaces[0].holder = None, "somebody"


def _forbidden(rig: Rig, patch: pytest.MonkeyPatch) -> None:
    rig.adapter.permitted = False


def _absent(rig: Rig, patch: pytest.MonkeyPatch) -> None:
    rig.adapter.serial = "FT4OTHER"


def _no_libusb(rig: Rig, patch: pytest.MonkeyPatch) -> None:
    patch.setattr("tests.mpsse.backend.HOSTS", [])


REFUSALS: Final = {
    "a kernel driver has it": (_busy_driver, errno.EBUSY, "in use by"),
    "a program has it": (_busy_program, errno.EBUSY, "in use by another program .who: fuser -v /dev/bus/usb/003/007."),
    "not permitted": (_forbidden, errno.EACCES, "no permission; the group is given by a rule of udev: hwtool udev"),
    "absent": (_absent, errno.ENODEV, "no 232h has the serial number FT4ABC; there are: FT4OTHER"),
    "no libusb": (_no_libusb, errno.ENOSYS, "no libusb-1.0 on this host"),
}


@pytest.mark.parametrize(("spoil", "number", "words"), REFUSALS.values(), ids=REFUSALS)
def test_interface_when_it_cannot_be_had_then_an_error_of_its_own_and_nothing_was_said_hc045(
    rig: Rig,
    monkeypatch: pytest.MonkeyPatch,
    spoil: Callable[[Rig, pytest.MonkeyPatch], None],
    number: int,
    words: str,
) -> None:
    bus, wires = rig.i2c(I2cCells())
    spoil(rig, monkeypatch)
    with pytest.raises(OSError, match=words) as raised:
        bus.open()
    assert raised.value.errno == number
    answer = bus.perform(READ)
    assert (type(answer), getattr(answer, "proof", "")) == (Rejected, "port-not-opened")
    assert (wires.log, rig.adapter.interfaces[0].log) == ([], [])


def test_interface_when_a_driver_or_a_program_has_it_then_told_by_name(rig: Rig, tmp_path: Path) -> None:
    rig.i2c(I2cCells())
    rig.adapter.interfaces[0].driver, rig.adapter.interfaces[0].holder = None, "somebody"
    place = tmp_path / "sys/bus/usb/devices/3-1"
    (place / "3-1:1.0").mkdir(parents=True)
    (place / "busnum").write_text("3\n")
    (place / "devnum").write_text("7\n")
    (tmp_path / "drivers/cdc_acm").mkdir(parents=True)
    (place / "3-1:1.0/driver").symlink_to(tmp_path / "drivers/cdc_acm")
    with pytest.raises(OSError, match="in use by the kernel driver cdc_acm"):
        claimed(URL, None, tmp_path / "sys")


def test_holders_when_a_program_has_a_node_open_then_named(tmp_path: Path) -> None:
    node, process = tmp_path / "007", tmp_path / "proc/4711"
    (process / "fd").mkdir(parents=True)
    (process / "fd/3").symlink_to(node)
    (process / "comm").write_text("flashrom\n")
    (tmp_path / "proc/12/fd").mkdir(parents=True)
    assert holders_of(node, tmp_path / "proc") == ["flashrom (pid 4711)"]


def test_latency_when_no_answer_could_come_in_time_then_refused(rig: Rig) -> None:
    _, wires = rig.i2c(I2cCells())
    bus = FtdiBus(FtdiSettings(URL, response_ms=15, latency_ms=16), I2cMaster())
    with pytest.raises(OSError, match="response_ms 15 is below the adapter's latency of 16 ms"):
        bus.open()
    assert wires.log == []


def test_latency_when_set_then_the_adapter_is_told(rig: Rig) -> None:
    rig.i2c(I2cCells())
    bus = FtdiBus(FtdiSettings(URL, latency_ms=42), I2cMaster())
    bus.open()
    assert rig.adapter.interfaces[0].latency_ms == 42
    bus.close()


URLS: Final = {
    "ftdi://ftdi:232h:FT1/1": FtdiUrl("232h", "FT1", 1),
    "ftdi://ftdi:2232h:A10-X_9.z/2": FtdiUrl("2232h", "A10-X_9.z", 2),
    "ftdi://ftdi:232h:256/1": FtdiUrl("232h", "256", 1),
    "ftdi://ftdi:232h:255/1": "no serial number but an index",
    "ftdi://ftdi:232h:0x10/1": "no serial number but an index",
    "ftdi://ftdi:232h/1": "by its serial number",
    "ftdi://ftdi:232h:3:7/1": "by its serial number",
    "ftdi://0x403:0x6014:FT1/1": "by its serial number",
    "ftdi://ftdi:232r:FT1/1": "has no engine",
    "ftdi://ftdi:4232h:FT1/3": "interface 3 of a 4232h has no engine",
    "ftdi://ftdi:232h:FT1/0": "interface 0",
    "ftdi://ftdi:232h:FT 1/1": "a serial number of letters",
    "http://ftdi:232h:FT1/1": "by its serial number",
}


@pytest.mark.parametrize(("text", "wanted"), URLS.items(), ids=URLS)
def test_url_when_read_then_an_interface_by_its_serial_number_or_refused(text: str, wanted: FtdiUrl | str) -> None:
    if isinstance(wanted, FtdiUrl):
        assert (parse_url(text), str(wanted)) == (wanted, text)
        return
    with pytest.raises(ValueError, match=wanted):
        parse_url(text)


# SPI


@pytest.mark.parametrize("mode", range(4))
def test_spi_when_in_each_mode_then_one_stretch_of_chip_select_and_the_bytes_of_it(rig: Rig, mode: int) -> None:
    bus, wires = rig.spi({1: SpiCells(mode)}, {1: SpiChip(mode)})
    bus.open()
    assert wires.log == []
    assert bus.perform(SPI_READ) == Confirmed(b"\x10\x11")
    assert bus.perform(SPI_WRITE) == Confirmed()
    assert bus.perform(replace(SPI_READ, offset=0xC0)) == Confirmed(b"\x55\x66")
    assert wires.shown() == [(1, "900000", "001011"), (1, "405566", "000000"), (1, "c00000", "005566")]
    assert [(s.odd_bits, s.wrong_clock) for s in wires.log] == [(0, False)] * 3


def test_spi_when_the_mode_is_another_then_the_slave_takes_nothing(rig: Rig) -> None:
    """The control: the wires see the mode."""
    slave = SpiCells(0)
    bus, wires = rig.spi({1: slave}, {1: SpiChip(2)})
    bus.perform(SPI_WRITE)
    assert (wires.log[0].wrong_clock, slave.memory[0x40]) == (True, 0x40)


def test_spi_when_several_chips_then_each_by_its_own_chip_select_mode_and_clock(rig: Rig) -> None:
    first, second = SpiCells(0), SpiCells(3)
    bus, wires = rig.spi({0: first, 2: second}, {0: SpiChip(0, 1_000_000), 2: SpiChip(3, 100_000)})
    for chip_select in (0, 2, 0):
        assert bus.perform(replace(SPI_READ, address=chip_select)) == Confirmed(b"\x10\x11")
    assert [stretch.chip_select for stretch in wires.log] == [0, 2, 0]
    answer = bus.perform(replace(SPI_READ, address=1))
    assert answer == Rejected("the board has nothing at chip select 1", "not-sent")


def test_spi_when_a_message_is_duplex_then_its_answer_begins_with_it_where_the_mode_allows(rig: Rig) -> None:
    bus, wires = rig.spi({1: SpiCells(0), 2: SpiCells(1)}, {1: SpiChip(0), 2: SpiChip(1)})
    duplex = Message(1, b"\x90\x00\x00", 3, duplex=True)
    assert bus.perform(duplex) == Confirmed(b"\x00\x10\x11")
    refused = bus.perform(replace(duplex, address=2))
    assert (type(refused), getattr(refused, "proof", "")) == (Rejected, "not-sent")
    assert wires.shown() == [(1, "900000", "001011")]


def flash() -> Contract:
    """W25Q128, as bundled."""
    return bundled("w25q128")


def test_spi_when_a_flash_of_its_contract_hangs_there_then_opcodes_and_memory_are_as_planned(rig: Rig) -> None:
    contract = flash()
    chip = chip_at_power_on(contract)
    memory = chip.memories["FLASH"]
    memory.write(0x123456, b"hello")
    bus, wires = rig.spi({0: SpiChipOf(chip, 0)}, {0: SpiChip()})

    def read(name: str) -> bytes:
        (step,) = plan_read(contract, 0, [contract.registers[name]], {}).steps
        answer = bus.perform(step.transfer)
        assert isinstance(answer, Confirmed), answer
        return answer.data

    assert read("JEDEC_ID") == bytes.fromhex("ef4018")
    assert read("FLASH[0x123456:5]") == b"hello"
    (enable,) = plan_write(contract, 0, [(contract.registers["WRITE_ENABLE"], 0)], {}).steps
    assert bus.perform(enable.transfer) == Confirmed()
    assert read("STATUS_1")[0] & 2 == 2
    assert [s[1] for s in wires.shown()] == ["9f000000", "03123456" + "00" * 5, "06", "0500"]
    assert chip.executed["WRITE_ENABLE", "write"] == 1


def test_i2c_when_a_chip_of_its_contract_hangs_there_then_executed_once_each(rig: Rig) -> None:
    contract = bundled("mcp23017")
    chip = chip_at_power_on(contract)
    bus, wires = rig.i2c(I2cChip(chip, 0x20))
    (write,) = plan_write(contract, 0x20, [(contract.registers["OLATA"], 0x40)], {}).steps
    (read,) = plan_read(contract, 0x20, [contract.registers["OLATA"]], {}).steps
    assert bus.perform(write.transfer) == Confirmed()
    assert bus.perform(read.transfer) == Confirmed(b"\x40")
    assert (chip.executed["OLATA", "write"], chip.executed["OLATA", "read"]) == (1, 1)
    assert wires.shown() == [[("W", 0x20, "1440")], [("W", 0x20, "14"), ("R", 0x20, "40")]]
