"""I2C through i2c-dev, down to what smbus2 hands to the kernel: one transfer is one transaction on the wire."""

from __future__ import annotations

import errno
import fcntl
from collections.abc import Callable
from pathlib import Path
from typing import Any, Final

import pytest
from hypothesis import given
from hypothesis import strategies as st
from smbus2 import I2cFunc

from hwtool_contracts.model import Space
from hwtool_registers.bus import (
    Ambiguous,
    Answer,
    Confirmed,
    Line,
    Message,
    RegisterRead,
    RegisterWrite,
    Rejected,
    Transfer,
    as_object,
    from_object,
)
from hwtool_registers.buses.i2c import I2c, I2cSettings
from hwtool_registers.buses.i2c_messages import packet_error_code
from hwtool_registers.buses.i2c_nodes import node_of
from tests.registers.fake_kernel import (
    EVERYTHING,
    PEC,
    RETRIES,
    SMBUS_ALONE,
    TIMEOUT,
    Cells,
    FakeKernel,
    installed,
    owned,
)

NAME: Final = "i2c-gpio of a test"
PLAIN: Final = "some adapter"


@pytest.fixture
def kernel(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> FakeKernel:
    return installed(monkeypatch, tmp_path, {"i2c-3": NAME, "i2c-4": PLAIN})


Make = Callable[..., I2c]


@pytest.fixture
def bus(kernel: FakeKernel, tmp_path: Path) -> Make:
    def made(name: str = NAME) -> I2c:
        return I2c(I2cSettings(name, None, 200), tmp_path / "sys", tmp_path / "dev")

    return made


def read(offset: int = 0x10, size: int = 1, **more: Any) -> RegisterRead:
    return RegisterRead(0x20, Space.MEMORY, offset, size, **more)


def write(data: bytes = b"\x55", offset: int = 0x10, **more: Any) -> RegisterWrite:
    return RegisterWrite(0x20, Space.MEMORY, offset, data, **more)


def test_open_when_done_then_locked_nothing_repeats_and_nothing_is_sent(kernel: FakeKernel, bus: Make) -> None:
    one = bus()
    one.open()
    assert (kernel.set, kernel.log) == ([(RETRIES, 0), (TIMEOUT, 20)], [])
    with pytest.raises(OSError, match="in use by another program") as raised:
        bus().open()
    assert raised.value.errno == errno.EBUSY
    one.close()
    bus().open()


@pytest.mark.parametrize(
    ("transfer", "wire", "answer"),
    [
        (read(), [[("W", 0x20, b"\x10"), ("R", 0x20, 1)]], b"\x10"),
        (read(size=6), [[("W", 0x20, b"\x10"), ("R", 0x20, 6)]], bytes(range(0x10, 0x16))),
        (read(0x1234, 2, offset_bytes=2), [[("W", 0x20, b"\x12\x34"), ("R", 0x20, 2)]], b"\x34\x35"),
        (read(stop=True), [[("W", 0x20, b"\x10")], [("R", 0x20, 1)]], b"\x10"),
        (write(), [[("W", 0x20, b"\x10\x55")]], b""),
        (write(b"abc", 0x0102, offset_bytes=2), [[("W", 0x20, b"\x01\x02abc")]], b""),
        (Message(0x20, b"\x24\x00", 6), [[("W", 0x20, b"\x24\x00"), ("R", 0x20, 6)]], bytes(range(0x25, 0x2B))),
        (Message(0x20, b"\x06", 0), [[("W", 0x20, b"\x06")]], b""),
        (Message(0x20, b"", 2), [[("R", 0x20, 2)]], b"\x00\x01"),
    ],
)
def test_transfer_when_the_adapter_has_i2c_then_one_combined_message(
    kernel: FakeKernel, bus: Make, transfer: Transfer, wire: list[Any], answer: bytes
) -> None:
    if isinstance(transfer, RegisterRead | RegisterWrite) and transfer.offset_bytes == 2:
        kernel.chips[0x20] = Cells(2)
    assert bus().perform(transfer) == Confirmed(answer)
    assert kernel.log == wire


@pytest.mark.parametrize(
    ("transfer", "wire", "answer"),
    [
        (read(), [("W", 0x20, b"\x10"), ("R", 0x20, 1)], b"\x10"),
        (read(size=2), [("W", 0x20, b"\x10"), ("R", 0x20, 2)], b"\x10\x11"),
        (read(size=32), [("W", 0x20, b"\x10"), ("R", 0x20, 32)], bytes(range(0x10, 0x30))),
        (write(), [("W", 0x20, b"\x10\x55")], b""),
        (write(b"\x01\x02"), [("W", 0x20, b"\x10\x01\x02")], b""),
        (write(bytes(32)), [("W", 0x20, b"\x10" + bytes(32))], b""),
        (Message(0x20, b"\x06", 0), [("W", 0x20, b"\x06")], b""),
        (Message(0x20, b"", 1), [("R", 0x20, 1)], b"\x00"),
    ],
)
def test_transfer_when_the_adapter_speaks_smbus_alone_then_the_command_with_the_same_bytes(
    kernel: FakeKernel, bus: Make, transfer: Transfer, wire: list[Any], answer: bytes
) -> None:
    kernel.functions = SMBUS_ALONE
    assert bus().perform(transfer) == Confirmed(answer)
    assert kernel.log == [wire]


@pytest.mark.parametrize(
    ("transfer", "without", "told"),
    [
        (read(size=33), 0, "read 33 bytes"),
        (write(bytes(33)), 0, "write 34"),
        (read(0x1234, 2, offset_bytes=2), 0, "write 2 and read 2"),
        (read(stop=True), 0, "a stop between"),
        (Message(0x20, b"\x24\x00", 6), 0, "write 2 and read 6"),
        (read(), I2cFunc.SMBUS_READ_BYTE_DATA, "SMBUS_READ_BYTE_DATA"),
        (read(size=2), I2cFunc.SMBUS_READ_WORD_DATA, "SMBUS_READ_WORD_DATA"),
        (read(size=3), I2cFunc.SMBUS_READ_I2C_BLOCK, "SMBUS_READ_I2C_BLOCK"),
        (write(), I2cFunc.SMBUS_WRITE_BYTE_DATA, "SMBUS_WRITE_BYTE_DATA"),
        (read(pec=True), I2cFunc.SMBUS_PEC, "SMBUS_PEC"),
        (read(size=3, pec=True), 0, "read 3 bytes"),
    ],
)
def test_transfer_when_no_command_can_say_it_then_refused_before_anything_is_sent(
    kernel: FakeKernel, bus: Make, transfer: Transfer, without: int, told: str
) -> None:
    kernel.functions = SMBUS_ALONE & ~int(without)
    answer = bus().perform(transfer)
    assert isinstance(answer, Rejected)
    assert (answer.proof, told in answer.fault, kernel.log) == ("not-sent", True, [])


@pytest.mark.parametrize("transfer", [Line("*IDN?", True), RegisterRead(1, Space.HOLDING, 0, 2), write(bytes(8192))])
def test_transfer_when_it_is_not_of_i2c_or_too_long_then_not_sent(
    kernel: FakeKernel, bus: Make, transfer: Transfer
) -> None:
    answer = bus().perform(transfer)
    assert isinstance(answer, Rejected)
    assert (answer.proof, kernel.log) == ("not-sent", [])


ERRORS: Final = (errno.ENXIO, errno.EREMOTEIO, errno.ETIMEDOUT, errno.EAGAIN, errno.EIO, errno.EPROTO, errno.EBADMSG)
OPCODE: Final = Message(0x20, b"\x24\x00", 6)


def shows(name: str, transfer: Transfer, number: int) -> str:
    """What the proof table says."""
    if number == errno.EOPNOTSUPP:
        return "not-sent"
    single = not isinstance(transfer, Message) or not (transfer.write and transfer.read_bytes)
    if name == NAME and number == errno.ENXIO and single:
        return "address-nack"
    if name == "SMBus stub driver" and number == errno.ENODEV and single:
        return "address-nack"
    return "nothing"


@pytest.mark.parametrize("name", [NAME, PLAIN, "SMBus I801 adapter at 0700", "SMBus stub driver"])
@pytest.mark.parametrize("transfer", [read(), write(), OPCODE, Message(0x20, b"\x06", 0)])
@pytest.mark.parametrize("number", [*ERRORS, errno.EBUSY, errno.ENODEV, errno.EOPNOTSUPP, errno.EINVAL])
def test_error_when_the_kernel_tells_one_then_what_the_proof_table_says_and_never_sent_again(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path, name: str, transfer: Transfer, number: int
) -> None:
    kernel = installed(monkeypatch, tmp_path, {"i2c-0": name})
    kernel.fails = [number]
    answer = I2c(I2cSettings(name, None), tmp_path / "sys", tmp_path / "dev").perform(transfer)
    assert len(kernel.log) == 1
    wanted = shows(name, transfer, number)
    assert (answer.proof if isinstance(answer, Rejected) else "nothing") == wanted, answer
    assert not isinstance(answer, Confirmed)
    assert errno.errorcode[number] in answer.fault


def test_read_when_the_second_half_of_it_fails_then_the_first_is_not_sent_again(kernel: FakeKernel, bus: Make) -> None:
    kernel.fails = [0, errno.EIO]
    answer = bus(PLAIN).perform(read(stop=True))
    assert isinstance(answer, Ambiguous)
    assert kernel.log == [[("W", 0x20, b"\x10")], [("R", 0x20, 1)]]


def test_pec_when_it_fits_or_not_then_the_value_or_a_doubt(kernel: FakeKernel, bus: Make) -> None:
    cells = kernel.chips[0x20]
    cells.memory[0x11] = packet_error_code(bytes([0x40, 0x10, 0x41, 0x10]))
    one = bus()
    assert one.perform(read(pec=True)) == Confirmed(b"\x10")
    assert kernel.log == [[("W", 0x20, b"\x10"), ("R", 0x20, 2)]]
    kernel.spoil = lambda data: bytes([data[0] ^ 1, *data[1:]])
    spoilt: Answer = one.perform(read(pec=True))
    assert isinstance(spoilt, Ambiguous)
    assert "packet error code" in spoilt.fault
    assert one.perform(write(pec=True)) == Confirmed()
    assert kernel.log[-1] == [("W", 0x20, b"\x10\x55" + bytes([packet_error_code(b"\x40\x10\x55")]))]


def test_pec_when_the_adapter_speaks_smbus_alone_then_switched_on_and_off_for_the_transfer(
    kernel: FakeKernel, bus: Make
) -> None:
    kernel.functions = SMBUS_ALONE
    one = bus()
    one.open()
    kernel.set.clear()
    for pec in (True, True, False):
        assert one.perform(read(pec=pec)) == Confirmed(b"\x10")
    assert kernel.set == [(PEC, 1), (PEC, 0)]


def test_block_when_fewer_bytes_came_than_were_asked_for_then_no_value(kernel: FakeKernel, bus: Make) -> None:
    kernel.functions = SMBUS_ALONE
    kernel.spoil = lambda data: data[:-1]
    answer = bus().perform(read(size=6))
    assert isinstance(answer, Ambiguous)
    assert answer.fault == "5 bytes came, 6 were asked for"


def block(size: int = 3, offset: int = 0x10, **more: Any) -> RegisterRead:
    return RegisterRead(0x20, Space.BLOCK, offset, size, **more)


def block_write(data: bytes) -> RegisterWrite:
    return RegisterWrite(0x20, Space.BLOCK, 0x10, data)


COUNTED: Final = ("R", 0x20, "counted")


@pytest.mark.parametrize("functions", [EVERYTHING, SMBUS_ALONE], ids=["i2c", "smbus alone"])
@pytest.mark.parametrize(
    ("transfer", "wire", "answer"),
    [
        (block(3), [("W", 0x20, b"\x10"), COUNTED], Confirmed(b"LTC")),
        (block(8, shorter=True), [("W", 0x20, b"\x10"), COUNTED], Confirmed(b"\0\0\0\0\0LTC")),
        (block_write(b"abc"), [("W", 0x20, b"\x10\x03abc")], Confirmed()),
        (block_write(bytes(32)), [("W", 0x20, b"\x10\x20" + bytes(32))], Confirmed()),
    ],
)
def test_block_of_smbus_when_carried_then_its_number_of_bytes_stands_before_them(
    kernel: FakeKernel, bus: Make, functions: int, transfer: Transfer, wire: list[Any], answer: Answer
) -> None:
    kernel.functions = functions
    kernel.chips[0x20].memory[0x10:0x14] = b"\x03LTC"
    assert bus().perform(transfer) == answer
    assert kernel.log == [wire]


@pytest.mark.parametrize(
    ("transfer", "count", "told"),
    [
        (block(4), 3, "a block of 3 bytes came, 4 were asked for: 111213"),
        (block(2), 3, "a block of 3 bytes came, 2 were asked for: 111213"),
        (block(2, shorter=True), 3, "a block of 3 bytes came, 2 were asked for: 111213"),
        (block(3), 0, "EPROTO"),
        (block(3), 33, "EPROTO"),
    ],
)
def test_block_of_smbus_when_it_has_another_length_then_no_value(
    kernel: FakeKernel, bus: Make, transfer: Transfer, count: int, told: str
) -> None:
    kernel.chips[0x20].memory[0x10] = count
    answer = bus().perform(transfer)
    assert isinstance(answer, Ambiguous)
    assert told in answer.fault
    assert len(kernel.log) == 1


@pytest.mark.parametrize(
    ("transfer", "missing", "told"),
    [
        (block(), I2cFunc.SMBUS_READ_BLOCK_DATA, "block read (SMBUS_READ_BLOCK_DATA)"),
        (block_write(b"abc"), I2cFunc.SMBUS_WRITE_BLOCK_DATA, "block write (SMBUS_WRITE_BLOCK_DATA)"),
        (block(pec=True), I2cFunc.SMBUS_PEC, "packet error codes (SMBUS_PEC)"),
        (block_write(bytes(33)), I2cFunc(0), "write a block of 33 bytes"),
    ],
)
def test_block_of_smbus_when_the_adapter_has_none_then_not_sent(
    kernel: FakeKernel, bus: Make, transfer: Transfer, missing: I2cFunc, told: str
) -> None:
    kernel.functions = EVERYTHING & ~int(missing)
    answer = bus().perform(transfer)
    assert isinstance(answer, Rejected)
    assert (answer.proof, told in answer.fault, kernel.log) == ("not-sent", True, [])


def test_block_of_smbus_when_its_device_has_packet_error_codes_then_the_kernel_is_told(
    kernel: FakeKernel, bus: Make
) -> None:
    one = bus()
    one.open()
    kernel.set.clear()
    kernel.chips[0x20].memory[0x10] = 1
    for pec in (True, True, False):
        assert one.perform(block(1, pec=pec)) == Confirmed(b"\x11")
    assert kernel.set == [(PEC, 1), (PEC, 0)]


def test_packet_error_code_when_of_a_known_message_then_as_the_standard_computes_it() -> None:
    assert packet_error_code(b"123456789") == 0xF4  # CRC-8/SMBUS, the catalogue's check value


@given(st.binary(max_size=40))
def test_packet_error_code_when_it_is_appended_then_the_whole_comes_to_zero(data: bytes) -> None:
    assert packet_error_code(data + bytes([packet_error_code(data)])) == 0


def test_address_when_a_kernel_driver_owns_it_then_refused_with_its_name(
    kernel: FakeKernel, bus: Make, tmp_path: Path
) -> None:
    owned(tmp_path, "i2c-3", 0x20, "lm75")
    answer = bus().perform(read())
    assert isinstance(answer, Rejected)
    assert (answer.proof, "driver lm75" in answer.fault, kernel.log) == ("not-sent", True, [])


def test_adapter_when_it_is_not_there_then_absent_with_those_that_are(kernel: FakeKernel, bus: Make) -> None:
    answer = bus("another").perform(read())
    assert isinstance(answer, Rejected)
    assert answer.proof == "port-not-opened"
    assert NAME in answer.fault
    assert kernel.log == []


def test_adapter_when_two_have_the_name_then_neither_is_taken(kernel: FakeKernel, bus: Make, tmp_path: Path) -> None:
    (tmp_path / "sys/class/i2c-dev/i2c-4/name").write_text(NAME)
    with pytest.raises(OSError, match="2 i2c adapters are called") as raised:
        bus().open()
    assert raised.value.errno == errno.ENOTUNIQ


def test_adapter_when_its_number_changes_then_it_is_found_by_its_name(
    kernel: FakeKernel, bus: Make, tmp_path: Path
) -> None:
    one = bus()
    assert one.perform(read()) == Confirmed(b"\x10")
    for place in ("dev", "sys/class/i2c-dev"):
        (tmp_path / place / "i2c-3").rename(tmp_path / place / "i2c-9")
    kernel.fails = [errno.ENODEV]
    gone = one.perform(write())
    assert isinstance(gone, Ambiguous)
    assert "vanished" in gone.fault
    assert node_of(NAME, tmp_path / "sys", tmp_path / "dev").name == "i2c-9"
    assert one.perform(read()) == Confirmed(b"\x10")
    assert one.node.name == "i2c-9"


def test_node_when_it_is_none_of_i2c_then_refused_and_its_descriptor_is_given_back(
    kernel: FakeKernel, bus: Make, monkeypatch: pytest.MonkeyPatch
) -> None:
    def not_of_i2c(*_: Any) -> int:
        raise OSError(errno.ENOTTY, "Inappropriate ioctl for device")

    monkeypatch.setattr("smbus2.smbus2.ioctl", not_of_i2c)
    before = len(list(Path("/proc/self/fd").iterdir()))
    answer = bus().perform(read())
    assert isinstance(answer, Rejected)
    assert (answer.proof, len(list(Path("/proc/self/fd").iterdir()))) == ("port-not-opened", before)


def test_lock_when_another_program_has_it_then_port_not_opened(kernel: FakeKernel, bus: Make) -> None:
    with kernel.node.open("rb") as other:
        fcntl.flock(other, fcntl.LOCK_EX)
        answer = bus().perform(read())
    assert isinstance(answer, Rejected)
    assert answer.proof == "port-not-opened"


def test_quiesce_when_called_then_it_waits_and_sends_nothing(kernel: FakeKernel, tmp_path: Path) -> None:
    slept: list[float] = []
    one = I2c(I2cSettings(NAME, None), tmp_path / "sys", tmp_path / "dev", lambda: 10.0, slept.append)
    one.quiesce(10.5)
    assert (slept, kernel.log) == ([0.5], [])
    absent = I2c(I2cSettings("another", None), tmp_path / "sys", tmp_path / "dev", lambda: 10.0, slept.append)
    with pytest.raises(OSError, match="no i2c adapter is called 'another'"):
        absent.quiesce(10.0)


@pytest.mark.parametrize("transfer", [read(stop=True), read(pec=True), write(), OPCODE, block(shorter=True)])
def test_transfer_when_shown_then_it_comes_back(transfer: Transfer) -> None:
    assert from_object(as_object(transfer)) == transfer
