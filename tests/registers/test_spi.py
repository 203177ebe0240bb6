"""SPI through spidev, down to the ioctl that its C extension makes: one transfer is one message of one part."""

from __future__ import annotations

import errno
import fcntl
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Final

import pytest
from hypothesis import given
from hypothesis import strategies as st

from hwtool_contracts.model import Space
from hwtool_registers.bus import (
    Ambiguous,
    Confirmed,
    Line,
    Message,
    RegisterRead,
    RegisterWrite,
    Rejected,
    Sent,
    Unsayable,
)
from hwtool_registers.buses.spi import Spi, SpiSettings
from hwtool_registers.buses.spi_exchange import SpiChip, exchange_of, in_words
from tests.conformance.bench import open_handles
from tests.registers.fake_spidev import BITS, MODE, SPEED, FakeSpidev, installed

NAME: Final = "fe204000.spi"
CHIPS: Final = {0: SpiChip(3, 500_000), 1: SpiChip(0, 8_000_000)}
READ: Final = RegisterRead(1, Space.MEMORY, 0x90, 2)
WRITE: Final = RegisterWrite(1, Space.MEMORY, 0x40, b"\x55\x66")


@pytest.fixture
def kernel(tmp_path: Path) -> Iterator[FakeSpidev]:
    fake = installed(tmp_path, NAME, [0, 1])
    yield fake
    fake.close()


@pytest.fixture
def bus(kernel: FakeSpidev, tmp_path: Path) -> Iterator[Spi]:
    made = Spi(SpiSettings(NAME, None, CHIPS), tmp_path / "sys", tmp_path / "dev")
    yield made
    made.close()


def test_open_when_done_then_each_chip_select_is_set_and_nothing_is_clocked(kernel: FakeSpidev, bus: Spi) -> None:
    bus.open()
    assert kernel.set == {
        "spidev0.0": {MODE: 3, BITS: 8, SPEED: 500_000},
        "spidev0.1": {MODE: 0, BITS: 8, SPEED: 8_000_000},
    }
    assert kernel.log == []


def test_transfer_when_of_each_kind_then_one_message_of_one_part(kernel: FakeSpidev, bus: Spi) -> None:
    assert bus.perform(READ) == Confirmed(b"\x10\x11")
    assert bus.perform(WRITE) == Confirmed(b"")
    assert bus.perform(Message(0, b"\x90\x00", 1, duplex=True)) == Confirmed(b"\x00")
    assert bus.perform(Message(0, b"\x90", 2)) == Confirmed(b"\x10\x11")
    assert kernel.log == [
        ("spidev0.1", [(b"\x90\x00\x00", 8_000_000, 8, 0)]),
        ("spidev0.1", [(b"\x40\x55\x66", 8_000_000, 8, 0)]),
        ("spidev0.0", [(b"\x90\x00", 500_000, 8, 0)]),
        ("spidev0.0", [(b"\x90\x00\x00", 500_000, 8, 0)]),
    ]


@pytest.mark.parametrize("word_bits", [16, 32])
def test_transfer_when_words_are_longer_then_the_wire_has_the_most_significant_byte_first(
    kernel: FakeSpidev, tmp_path: Path, word_bits: int
) -> None:
    made = Spi(SpiSettings(NAME, None, {1: SpiChip(word_bits=word_bits)}), tmp_path / "sys", tmp_path / "dev")
    size = word_bits // 8
    data = bytes(range(1, size))
    assert made.perform(RegisterWrite(1, Space.MEMORY, 0x40, data)) == Confirmed(b"")
    assert kernel.set["spidev0.1"][BITS] == word_bits
    assert bytes(kernel.chips["spidev0.1"].memory[0x40 : 0x40 + len(data)]) == data
    assert made.perform(RegisterRead(1, Space.MEMORY, 0xC0, size - 1)) == Confirmed(data)
    (first, _) = kernel.log
    assert first[1][0][0] == (b"\x40" + data if sys.byteorder == "big" else (b"\x40" + data)[::-1])
    odd = made.perform(RegisterRead(1, Space.MEMORY, 0xC0, size))
    assert isinstance(odd, Rejected)
    assert (odd.proof, len(kernel.log)) == ("not-sent", 2)
    made.close()


@given(st.binary(max_size=64).filter(lambda b: len(b) % 4 == 0), st.sampled_from([8, 16, 32]))
def test_words_when_turned_twice_then_the_same(data: bytes, word_bits: int) -> None:
    assert in_words(in_words(data, word_bits, "little"), word_bits, "little") == data
    assert in_words(data, word_bits, "big") == data


ERRORS: Final = (
    *(errno.ESHUTDOWN, errno.EMSGSIZE, errno.EINVAL, errno.EIO),
    *(errno.ETIMEDOUT, errno.EREMOTEIO, errno.EBUSY, errno.ENODEV),
)


@pytest.mark.parametrize("number", ERRORS, ids=[errno.errorcode[n] for n in ERRORS])
@pytest.mark.parametrize("transfer", [READ, WRITE], ids=["read", "write"])
def test_error_when_the_kernel_tells_it_then_it_proves_nothing_and_is_not_repeated(
    kernel: FakeSpidev, bus: Spi, number: int, transfer: RegisterRead | RegisterWrite, tmp_path: Path
) -> None:
    kernel.fails = [number]
    answer = bus.perform(transfer)
    assert isinstance(answer, Ambiguous)
    assert answer.stage is Sent.DATA
    assert errno.errorcode[number] in answer.fault
    assert len(kernel.log) == 1
    assert (open_handles(str(tmp_path / "dev")) == 0) is (number == errno.ESHUTDOWN)  # that one is of no use any more


def test_open_when_another_program_left_bits_of_its_own_then_the_mode_is_the_contracts(
    kernel: FakeSpidev, bus: Spi
) -> None:
    kernel.set["spidev0.1"] = {MODE: 0x68, BITS: 8, SPEED: 500_000}  # no chip select, looped, the last bit first
    bus.open()
    assert kernel.set["spidev0.1"][MODE] == 0


def test_chip_select_when_the_board_has_none_then_not_sent(kernel: FakeSpidev, bus: Spi) -> None:
    assert bus.perform(RegisterRead(2, Space.MEMORY, 0, 1)) == Rejected(
        "the board has nothing at chip select 2", "not-sent"
    )
    assert isinstance(bus.perform(Line("*IDN?", True)), Rejected)
    assert kernel.log == []


def test_controller_when_it_is_not_there_then_absent_with_those_that_are(kernel: FakeSpidev, tmp_path: Path) -> None:
    made = Spi(SpiSettings("other.spi", None, CHIPS), tmp_path / "sys", tmp_path / "dev")
    with pytest.raises(OSError, match=r"no SPI controller is called 'other.spi'; there are: fe204000.spi") as raised:
        made.open()
    assert raised.value.errno == errno.ENODEV


def test_controller_when_two_have_a_name_then_neither_is_guessed(kernel: FakeSpidev, tmp_path: Path) -> None:
    second = tmp_path / "sys/class/spi_master/spi1"
    second.mkdir()
    (second / "device").symlink_to(tmp_path / "sys/devices/platform" / NAME)
    with pytest.raises(OSError, match=r"2 SPI controllers are called 'fe204000.spi'") as raised:
        Spi(SpiSettings(NAME, None, CHIPS), tmp_path / "sys", tmp_path / "dev").open()
    assert raised.value.errno == errno.ENOTUNIQ


def test_chip_select_when_a_kernel_driver_has_it_then_busy_with_its_name(
    kernel: FakeSpidev, bus: Spi, tmp_path: Path
) -> None:
    (tmp_path / "dev/spidev0.1").unlink()
    chip = tmp_path / "sys/bus/spi/devices/spi0.1"
    chip.mkdir(parents=True)
    with pytest.raises(OSError, match="no driver is bound to it: bind spidev") as raised:
        bus.open()
    assert raised.value.errno == errno.ENODEV
    (tmp_path / "sys/bus/spi/drivers/mcp251x").mkdir(parents=True)
    (chip / "driver").symlink_to(tmp_path / "sys/bus/spi/drivers/mcp251x")
    with pytest.raises(OSError, match="owned by the kernel driver mcp251x: unbind it first") as raised:
        bus.open()
    assert raised.value.errno == errno.EBUSY


def test_node_when_another_program_has_locked_it_then_busy(kernel: FakeSpidev, bus: Spi, tmp_path: Path) -> None:
    with (tmp_path / "dev/spidev0.1").open("rb") as other:
        fcntl.flock(other, fcntl.LOCK_EX | fcntl.LOCK_NB)
        with pytest.raises(OSError, match="in use by another program") as raised:
            bus.open()
    assert raised.value.errno == errno.EBUSY
    bus.open()


def test_mode_when_the_controller_has_it_not_then_refused_and_closed(
    kernel: FakeSpidev, bus: Spi, tmp_path: Path
) -> None:
    kernel.modes = frozenset({0})
    with pytest.raises(OSError, match=r"spidev0.0: the controller has no such SpiChip.mode=3"):
        bus.open()
    assert open_handles(str(tmp_path / "dev")) == 0


def test_path_when_it_is_named_then_its_chip_selects_are_behind_a_dot(kernel: FakeSpidev, tmp_path: Path) -> None:
    (tmp_path / "dev/panel.1").symlink_to(tmp_path / "dev/spidev0.1")
    made = Spi(SpiSettings(None, str(tmp_path / "dev/panel"), {1: SpiChip()}), tmp_path / "sys", tmp_path / "dev")
    assert made.perform(READ) == Confirmed(b"\x10\x11")
    made.close()


def test_library_when_it_is_not_installed_then_the_extra_is_named(
    kernel: FakeSpidev, bus: Spi, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setitem(sys.modules, "spidev", None)
    with pytest.raises(OSError, match=r"install hwtool\[spi\]"):
        bus.open()


SAID: Final = {
    "nothing at all": Message(1, b"", 0),
    "a packet error code": RegisterWrite(1, Space.MEMORY, 0, b"\x01", pec=True),
    "a stop": RegisterRead(1, Space.MEMORY, 0, 1, stop=True),
    "a block": RegisterRead(1, Space.BLOCK, 0, 1),
    "an offset without room": RegisterRead(1, Space.MEMORY, 0x100, 1),
}


@pytest.mark.parametrize("transfer", SAID.values(), ids=SAID)
def test_exchange_when_no_stretch_of_chip_select_says_it_then_refused(
    transfer: RegisterRead | RegisterWrite | Message,
) -> None:
    with pytest.raises(Unsayable):
        exchange_of(transfer, 4096, SpiChip())
