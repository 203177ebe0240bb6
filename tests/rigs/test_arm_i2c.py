"""Our I2C bus on an adapter with full I2C (i2c-imx) and QEMU's chips: combined messages, long offsets, a mux, absence.

What was on the wire is told by QEMU, not by us; the two must agree byte for byte.
"""

from __future__ import annotations

import json
import shlex
from pathlib import Path
from typing import Any, Final, NamedTuple, cast

import pytest
import smbus2

from hwtool.config import parse_board
from hwtool.engine import _devices as devices_of
from hwtool.worker import BusWorker
from hwtool_contracts.library import bundled
from hwtool_contracts.model import Space
from hwtool_registers.bus import Message, RegisterRead, RegisterWrite, Transfer, as_object
from hwtool_registers.plan import pieces_of, plan_read
from tests.rigs import arm
from tests.rigs.arm import FIRST, SECOND, THIRD
from tests.rigs.by_contract import (
    BY_CONTRACT,
    CLOCK,
    EEPROM,
    EXPANDER,
    LOCAL,
    MODEL,
    MOVES,
    MUX,
    POWER,
    REMOTE,
    TEMPERATURE,
    TIME,
    Contracted,
)
from tests.rigs.wire import Part

TOP: Final = Path(__file__).parents[2]
BEHIND, ABSENT = 0x49, 0x33
TREES: Final = {
    "hwtool_contracts": TOP / "contracts/hwtool_contracts",
    "hwtool_registers": TOP / "registers/hwtool_registers",
    "smbus2": Path(smbus2.__file__).parent,
    "tests/rigs": TOP / "tests/rigs",
}


def read(address: int, offset: int, size: int = 1, **more: Any) -> RegisterRead:
    return RegisterRead(address, Space.MEMORY, offset, size, **more)


def write(address: int, offset: int, data: bytes, **more: Any) -> RegisterWrite:
    return RegisterWrite(address, Space.MEMORY, offset, data, **more)


def block(address: int, offset: int, size: int, **more: Any) -> RegisterRead:
    return RegisterRead(address, Space.BLOCK, offset, size, **more)


DONE: Final = ["confirmed", ""]
LONG: Final = bytes(range(256)) + bytes(44)
# The driver's time is over while it waits for an acknowledge: that is not told from one that came too late.
NOBODY: Final = ["ambiguous", "data"]

Case = tuple[str, str, Transfer, list[str], list[Part]]
CASES: Final[tuple[Case, ...]] = (
    # adapter, name, what is sent, how the answer begins, what QEMU saw
    (FIRST, "a word", read(TEMPERATURE, 2, 2), ["confirmed", "4b00"],
     [("W", TEMPERATURE, b"\2"), ("R", TEMPERATURE, b"\x4b\0")]),
    (FIRST, "set it", write(TEMPERATURE, 3, b"\x50\0"), DONE, [("W", TEMPERATURE, b"\3\x50\0")]),
    (FIRST, "and back", read(TEMPERATURE, 3, 2), ["confirmed", "5000"],
     [("W", TEMPERATURE, b"\3"), ("R", TEMPERATURE, b"\x50\0")]),
    (FIRST, "an offset of two bytes", write(EEPROM, 0x0123, b"abcdefgh", offset_bytes=2), DONE,
     [("W", EEPROM, b"\1\x23abcdefgh")]),
    (FIRST, "and back", read(EEPROM, 0x0123, 8, offset_bytes=2), ["confirmed", b"abcdefgh".hex()],
     [("W", EEPROM, b"\1\x23"), ("R", EEPROM, b"abcdefgh")]),
    (FIRST, "with a stop between", read(EEPROM, 0x0125, 2, offset_bytes=2, stop=True), ["confirmed", b"cd".hex()],
     [("W", EEPROM, b"\1\x25"), ("R", EEPROM, b"cd")]),
    (FIRST, "a raw message", Message(EEPROM, b"\1\x26", 1), ["confirmed", b"d".hex()],
     [("W", EEPROM, b"\1\x26"), ("R", EEPROM, b"d")]),
    (FIRST, "where it stands", Message(EEPROM, b"", 1), ["confirmed", b"e".hex()], [("R", EEPROM, b"e")]),
    (FIRST, "a long write", write(EEPROM, 0x0200, LONG, offset_bytes=2), DONE, [("W", EEPROM, b"\2\0" + LONG)]),
    (FIRST, "a long read", read(EEPROM, 0x0200, 300, offset_bytes=2), ["confirmed", LONG.hex()],
     [("W", EEPROM, b"\2\0"), ("R", EEPROM, LONG)]),
    (FIRST, "more than the kernel carries", read(EEPROM, 0, 8193, offset_bytes=2), ["rejected", "not-sent"], []),
    (FIRST, "nobody to be read", read(ABSENT, 0x10), NOBODY, []),
    (FIRST, "nobody to be written to", write(ABSENT, 0x10, b"\1"), NOBODY, []),
    (SECOND, "the maker", read(REMOTE, 0xFE), ["confirmed", "55"], [("W", REMOTE, b"\xfe"), ("R", REMOTE, b"\x55")]),
    (SECOND, "the part", read(LOCAL, 0xFD), ["confirmed", "21"], [("W", LOCAL, b"\xfd"), ("R", LOCAL, b"\x21")]),
    (SECOND, "a byte", write(CLOCK, 8, b"\xa5"), DONE, [("W", CLOCK, b"\x08\xa5")]),
    (SECOND, "and back", read(CLOCK, 8), ["confirmed", "a5"], [("W", CLOCK, b"\x08"), ("R", CLOCK, b"\xa5")]),
    (SECOND, "a block of a text", block(POWER, 0x9A, 32, shorter=True), ["confirmed", MODEL.rjust(32, b"\0").hex()],
     [("W", POWER, b"\x9a"), ("R", POWER, bytes([len(MODEL)]) + MODEL)]),
    (SECOND, "a block of another length", block(POWER, 0x99, 4), ["ambiguous", "reply"],
     [("W", POWER, b"\x99"), ("R", POWER, b"\3ADI")]),
    (THIRD, "all pins are outputs", write(EXPANDER, 3, b"\0"), DONE, [("W", EXPANDER, b"\3\0")]),
    (THIRD, "an output", write(EXPANDER, 1, b"\x3c"), DONE, [("W", EXPANDER, b"\1\x3c")]),
    (THIRD, "and back", read(EXPANDER, 1), ["confirmed", "3c"], [("W", EXPANDER, b"\1"), ("R", EXPANDER, b"\x3c")]),
    (THIRD, "behind a closed mux", read(BEHIND, 2, 2), NOBODY, []),
    (THIRD, "its channel", write(MUX, 0, b"\2", offset_bytes=0), DONE, [("W", MUX, b"\2")]),
    (THIRD, "and back", read(MUX, 0, offset_bytes=0), ["confirmed", "02"], [("R", MUX, b"\2")]),
    (THIRD, "behind the open mux", read(BEHIND, 2, 2), ["confirmed", "4b00"],
     [("W", BEHIND, b"\2"), ("R", BEHIND, b"\x4b\0")]),
    (THIRD, "closed again", write(MUX, 0, b"\0", offset_bytes=0), DONE, [("W", MUX, b"\0")]),
    (THIRD, "and behind it nobody", read(BEHIND, 2, 2), NOBODY, []),
)  # fmt: skip


BOARD: Final = f"""
name = "sabrelite"
[buses.third]
kind = "i2c"
adapter = "{THIRD}"
[devices.mux]
contract = "pca9546"
bus = "third"
address = {MUX}
[devices.far]
contract = "tmp102"
bus = "third"
address = {BEHIND}
mux = "mux"
channel = 1
"""
BEHIND_IT: Final = "a device of a board, behind the multiplexer"
THROUGH: Final = [("W", MUX, b"\0"), ("W", MUX, b"\2"), ("W", BEHIND, b"\2"), ("R", BEHIND, b"\x4b\0")]


def through_the_mux() -> list[Transfer]:
    """The channels off, and what the daemon plans to read a register of the device: its channel first."""
    board = parse_board(BOARD, "sabrelite.toml", TOP)
    far = devices_of(board, {"third": cast(BusWorker, None)})["far"]  # nothing is sent by it
    plan = far.through(plan_read(far.contract, BEHIND, [far.contract.registers["TLOW"]], {}))
    return [write(MUX, 0, b"\0", offset_bytes=0), *(step.transfer for step in plan.steps)]


class Carried(NamedTuple):
    """What came of everything, in one guest.

    Attributes:
        cases: the answers to CASES, headed by their adapters; contracted: those to each contract's transfers.
        wire: what QEMU saw; wanted: what it must have seen.
    """

    cases: list[list[str]]
    contracted: dict[str, list[list[str]]]
    wire: list[Part]
    wanted: list[Part]


@pytest.fixture(scope="module")
def carried() -> Carried:
    """Everything in one guest; kernel and initramfs are kept beside the checkout from run to run."""
    why = arm.missing()
    if why is not None:
        pytest.skip(why)
    try:
        board = arm.built(TOP / ".peers" / "arm")
    except OSError as error:
        pytest.skip(str(error))
    work: dict[str, list[Transfer]] = {}
    owners: list[str] = []  # of each answer: a part, or nothing for CASES
    wanted: list[Part] = []
    moving: dict[int, int] = {}  # by the number of what QEMU must have seen: that of the answer that tells it
    for adapter in arm.ADAPTERS:
        cases = [case for case in CASES if case[0] == adapter]
        work[adapter] = [transfer for _, _, transfer, _, _ in cases]
        owners += [""] * len(cases)
        wanted += [part for *_, parts in cases for part in parts]
        for name, chip in BY_CONTRACT.items():
            for asked in chip.asked if chip.adapter == adapter else ():
                transfers = Contracted.of(name, asked).transfers()
                work[adapter] += transfers
                owners += [name] * len(transfers)
                wanted += asked.wire
                if asked.came == MOVES:
                    moving[len(wanted) - 1] = len(owners) - 1
        if adapter == THIRD:
            work[adapter] += through_the_mux()
            owners += [BEHIND_IT] * len(through_the_mux())
            wanted += THROUGH
    words = json.dumps({adapter: [as_object(t) for t in transfers] for adapter, transfers in work.items()})
    ended = arm.run(board, f"python3 -m tests.rigs.carry {shlex.quote(words)}\n", TREES)
    assert ended.code == 0, ended.said
    answers = [json.loads(line) for line in ended.said.splitlines() if line.startswith("[")]
    for part, answer in moving.items():
        kind, address, _ = wanted[part]
        if answers[answer][1] == "confirmed":
            wanted[part] = (kind, address, bytes.fromhex(answers[answer][2]))
    by_owner: dict[str, list[list[str]]] = {"": [], BEHIND_IT: [], **{name: [] for name in BY_CONTRACT}}
    for owner, answer in zip(owners, answers, strict=True):
        by_owner[owner].append(answer)
    return Carried(by_owner.pop(""), by_owner, [part for parts in ended.wire for part in parts], wanted)


@pytest.mark.timeout(400)
def test_imx_when_each_kind_of_transfer_is_carried_then_answered_as_it_should_be(carried: Carried) -> None:
    for (adapter, name, _, wanted, _), answer in zip(CASES, carried.cases, strict=True):
        assert [answer[0], *answer[1 : 1 + len(wanted)]] == [adapter, *wanted], (name, answer)


@pytest.mark.timeout(400)
def test_device_when_it_sits_behind_a_multiplexer_then_its_channel_is_switched_on_and_it_answers(
    carried: Carried,
) -> None:
    assert [kind for _, kind, *_ in carried.contracted[BEHIND_IT]] == ["confirmed"] * 3
    assert carried.contracted[BEHIND_IT][-1][2] == "4b00"


@pytest.mark.timeout(400)
@pytest.mark.parametrize("part", BY_CONTRACT)
def test_chip_when_its_bundled_contract_writes_and_reads_it_then_it_holds_that(carried: Carried, part: str) -> None:
    answers = iter(carried.contracted[part])
    for asked in BY_CONTRACT[part].asked:
        chip = Contracted.of(part, asked)
        told = [next(answers) for _ in chip.transfers()]
        assert [kind for _, kind, *_ in told] == ["confirmed"] * len(told), (asked.name, told)
        came = [bytes.fromhex(data) for _, _, data in told[len(chip.writes.steps) :]]
        for name, values in pieces_of(chip.reads, chip.contract, came).items():
            if asked.came != MOVES:
                assert values == [chip.values[name]], (name, came)
    assert "QEMU" in (bundled(part).verified or "")


@pytest.mark.timeout(400)
def test_clock_when_its_time_was_set_by_its_contract_then_it_runs_on_from_there(carried: Carried) -> None:
    asked = BY_CONTRACT["ds1338"].asked[0]
    chip = Contracted.of("ds1338", asked)
    _, told = carried.contracted["ds1338"][: len(chip.transfers())]
    came = {name: raw for name, (raw,) in pieces_of(chip.reads, chip.contract, [bytes.fromhex(told[2])]).items()}
    set_to = dict(zip(chip.values, TIME, strict=True))
    assert set_to.pop("SECONDS") <= came.pop("SECONDS") <= 0x59
    set_to["DAY"] = came["DAY"]  # QEMU counts it from the date before, which is today's
    assert came == set_to


@pytest.mark.timeout(400)
def test_qemu_when_asked_then_it_saw_exactly_what_was_sent(carried: Carried) -> None:
    assert carried.wire == carried.wanted
