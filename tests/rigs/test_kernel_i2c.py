"""Our I2C bus on a Linux kernel's own drivers: i801 with EEPROMs behind it as QEMU has them, and i2c-stub.

What was on the wire is told by QEMU, not by us; the two must agree byte for byte.
"""

from __future__ import annotations

import json
import shlex
import sys
from pathlib import Path
from typing import Any, Final

import pytest

from hwtool_contracts.model import Space
from hwtool_registers.bus import Message, RegisterRead, RegisterWrite, Transfer, as_object
from tests.rigs import guest

TOP: Final = Path(__file__).parents[2]
I801: Final = "SMBus I801 adapter at 0700"
STUB: Final = "SMBus stub driver"
EEPROM: Final = 0x50
ABSENT: Final = 0x33
BMC: Final = 0x10  # behind SMBus: SSIF
GET_DEVICE_ID: Final = b"\x18\x01"  # IPMI: application, code 1
ANSWER: Final = bytes.fromhex("1c0100 200000000207000000 0000")  # as QEMU's BMC has it
HERE: Final = 0x21


def read(address: int, offset: int, size: int = 1, **more: Any) -> RegisterRead:
    return RegisterRead(address, Space.MEMORY, offset, size, **more)


def write(address: int, offset: int, data: bytes) -> RegisterWrite:
    return RegisterWrite(address, Space.MEMORY, offset, data)


CASES: Final[dict[str, tuple[Transfer, list[str], list[tuple[str, int, bytes]] | None]]] = {
    # what is sent, how the answer begins, what QEMU saw (None: nothing)
    "a block of SMBus, counted": (
        RegisterWrite(BMC, Space.BLOCK, 2, GET_DEVICE_ID),
        ["confirmed", ""],
        [("W", BMC, b"\x02\x02" + GET_DEVICE_ID)],
    ),
    "the answer, counted by the device": (
        RegisterRead(BMC, Space.BLOCK, 3, 14),
        ["confirmed", ANSWER.hex()],
        [("W", BMC, b"\x03"), ("R", BMC, b"\x0e" + ANSWER)],
    ),
    "write a byte": (write(EEPROM, 0x10, b"\x5a"), ["confirmed", ""], [("W", EEPROM, b"\x10\x5a")]),
    "read it back": (
        read(EEPROM, 0x10),
        ["confirmed", "5a"],
        [("W", EEPROM, b"\x10"), ("R", EEPROM, b"\x5a")],
    ),
    "write a word": (write(EEPROM, 0x12, b"\x01\x02"), ["confirmed", ""], [("W", EEPROM, b"\x12\x01\x02")]),
    "read a word": (
        read(EEPROM, 0x12, 2),
        ["confirmed", "0102"],
        [("W", EEPROM, b"\x12"), ("R", EEPROM, b"\x01\x02")],
    ),
    "write a block": (write(EEPROM, 0x20, b"abcd"), ["confirmed", ""], [("W", EEPROM, b"\x20abcd")]),
    "set the pointer": (Message(EEPROM, b"\x20", 0), ["confirmed", ""], [("W", EEPROM, b"\x20")]),
    "receive a byte": (Message(EEPROM, b"", 1), ["confirmed", "61"], [("R", EEPROM, b"a")]),
    "an offset of two bytes": (read(EEPROM, 0x10, 2, offset_bytes=2), ["rejected", "not-sent"], None),
    "a long block": (read(EEPROM, 0, 33), ["rejected", "not-sent"], None),
    "nobody is there to be read": (read(ABSENT, 0x10), ["ambiguous", "data"], None),
    "nobody is there to be written to": (write(ABSENT, 0x10, b"\x01"), ["ambiguous", "data"], None),
}
OWN: Final[dict[str, tuple[Transfer, list[str]]]] = {
    "a block with its length": (RegisterRead(HERE, Space.BLOCK, 3, 4), ["rejected", "not-sent"]),
    "a byte": (write(HERE, 4, b"\x77"), ["confirmed", ""]),
    "and back": (read(HERE, 4), ["confirmed", "77"]),
    "a block": (write(HERE, 16, bytes(range(1, 33))), ["confirmed", ""]),
    "and its end": (read(HERE, 47), ["confirmed", "20"]),
    "and back at once": (read(HERE, 16, 32), ["confirmed", bytes(range(1, 33)).hex()]),
    "more than there is": (read(HERE, 0xFC, 8), ["ambiguous", "reply"]),  # the stub answers with 4 bytes
    "nobody": (write(ABSENT, 0, b"\x01"), ["rejected", "address-nack"]),
}


@pytest.fixture(scope="module")
def kernel(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Kernel and initramfs, kept beside the checkout from run to run."""
    why = guest.missing()
    if why is not None:
        pytest.skip(why)
    try:
        return guest.built(TOP / ".peers" / "guest")
    except OSError as error:
        pytest.skip(str(error))


@pytest.fixture(scope="module")
def carried(kernel: Path) -> tuple[list[list[str]], guest.Ended]:
    """What came of everything, in one guest."""
    work = {I801: [t for t, _, _ in CASES.values()], STUB: [t for t, _ in OWN.values()]}
    words = json.dumps({adapter: [as_object(t) for t in transfers] for adapter, transfers in work.items()})
    told = shlex.join([sys.executable, "-m", "tests.rigs.carry", words])
    ended = guest.run(kernel, f"cd {shlex.quote(str(TOP))} && {told}", chips=[HERE])
    assert ended.code == 0, ended.said
    return [json.loads(line) for line in ended.said.splitlines() if line.startswith("[")], ended


def answers_of(carried: tuple[list[list[str]], guest.Ended], adapter: str) -> list[list[str]]:
    return [rest for name, *rest in carried[0] if name == adapter]


@pytest.mark.timeout(400)
def test_i801_when_each_kind_of_transfer_is_carried_then_qemu_saw_exactly_that(
    carried: tuple[list[list[str]], guest.Ended],
) -> None:
    for name, (_, wanted, _), answer in zip(CASES, CASES.values(), answers_of(carried, I801), strict=True):
        assert answer[: len(wanted)] == wanted, (name, answer)
    # the stub is no bus of QEMU's: everything that was on the wire is of this adapter
    assert carried[1].wire == [wire for _, _, wire in CASES.values() if wire is not None]


@pytest.mark.timeout(400)
def test_stub_when_each_kind_of_transfer_is_carried_then_its_own_proof_of_absence(
    carried: tuple[list[list[str]], guest.Ended],
) -> None:
    for name, (_, wanted), answer in zip(OWN, OWN.values(), answers_of(carried, STUB), strict=True):
        assert answer[: len(wanted)] == wanted, (name, answer)
