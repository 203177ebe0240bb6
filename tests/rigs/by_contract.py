"""Chips of the ARM rig that are read and written as their bundled contracts say, and what QEMU must see of it."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Final, NamedTuple

from hwtool_contracts.library import bundled
from hwtool_contracts.model import Contract, Register
from hwtool_registers.bits import from_bytes
from hwtool_registers.bus import Transfer
from hwtool_registers.plan import plan_block_read, plan_block_write, plan_read, plan_write
from hwtool_registers.steps import Plan
from tests.rigs.arm import FIRST, SECOND, THIRD
from tests.rigs.wire import Part

TEMPERATURE, EEPROM, REMOTE, CLOCK, LOCAL, EXPANDER, MUX, POWER = 0x48, 0x52, 0x4C, 0x68, 0x18, 0x21, 0x70, 0x11
MODEL: Final = b"ADM1272-A1"
PAGES: Final = bytes(range(1, 49))  # over the ends of two pages of 32 bytes
TIME: Final = bytes.fromhex("00341704291128")  # Wednesday, 29 November 2028, 17:34:00
MOVES: Final = b"what came"  # in `wire`: what QEMU saw is what we were told, whatever that is


class Asked(NamedTuple):
    """One thing that is asked of a chip.

    Attributes:
        name: a register, a range of a memory, or a group.
        written: what is written to it first, as it is on the wire; empty: it is only read.
        came: what must be read; empty: what was written, MOVES: hardware moves it.
        wire: what QEMU must see.
    """

    name: str
    written: bytes
    came: bytes
    wire: list[Part]


class Chip(NamedTuple):
    """Where a chip is, and what is asked of it in order."""

    adapter: str
    address: int
    asked: tuple[Asked, ...]


def stored(address: int, name: str, offset: int, data: bytes) -> Asked:
    """A register of one byte of offset that is written and read back."""
    at = bytes([offset])
    return Asked(name, data, b"", [("W", address, at + data), ("W", address, at), ("R", address, data)])


def only_read(address: int, name: str, offset: int, data: bytes, wire: bytes = b"") -> Asked:
    """A register that is only read; `wire` where more or less passes there than the register has."""
    return Asked(name, b"", data, [("W", address, bytes([offset])), ("R", address, wire or data)])


BY_CONTRACT: Final[Mapping[str, Chip]] = {
    "at24c32": Chip(FIRST, EEPROM, (
        Asked("DATA[24:48]", PAGES, b"", [
            ("W", EEPROM, b"\0\x18" + PAGES[:8]),
            ("W", EEPROM, b"\0\x20" + PAGES[8:40]),
            ("W", EEPROM, b"\0\x40" + PAGES[40:]),
            ("W", EEPROM, b"\0\x18"), ("R", EEPROM, PAGES),
        ]),
    )),
    "tmp105": Chip(FIRST, TEMPERATURE, (
        stored(TEMPERATURE, "THIGH", 3, b"\x55\x10"),
        stored(TEMPERATURE, "CONFIGURATION", 1, b"\x60"),
        only_read(TEMPERATURE, "TEMPERATURE", 0, b"\0\0"),
    )),
    "tmp421": Chip(SECOND, REMOTE, (
        only_read(REMOTE, "MANUFACTURER_ID", 0xFE, b"\x55"),
        only_read(REMOTE, "DEVICE_ID", 0xFF, b"\x21"),
        stored(REMOTE, "CONVERSION_RATE", 0x0B, b"\x05"),
        only_read(REMOTE, "LOCAL", 0, b"\0\0"),
        only_read(REMOTE, "REMOTE_1", 1, b"\0\0"),
    )),
    "ds1338": Chip(SECOND, CLOCK, (
        Asked("TIME", TIME, MOVES, [("W", CLOCK, b"\0" + TIME), ("W", CLOCK, b"\0"), ("R", CLOCK, MOVES)]),
        stored(CLOCK, "CONTROL", 7, b"\x91"),
        stored(CLOCK, "RAM[8:4]", 0x10, b"\1\2\3\4"),
    )),
    "emc1413": Chip(SECOND, LOCAL, (
        only_read(LOCAL, "MANUFACTURER_ID", 0xFE, b"\x5d"),
        stored(LOCAL, "EXTERNAL_1_HIGH_LIMIT", 7, b"\x46"),
        Asked("INTERNAL_TEMPERATURE", b"", b"\x29\0", [  # 41 °C, as the rig gives it
            ("W", LOCAL, b"\0"), ("R", LOCAL, b"\x29"), ("W", LOCAL, b"\x29"), ("R", LOCAL, b"\0"),
        ]),
    )),
    "adm1272": Chip(SECOND, POWER, (
        only_read(POWER, "MFR_ID", 0x99, b"ADI", b"\3ADI"),
        only_read(POWER, "MFR_MODEL", 0x9A, MODEL.rjust(32, b"\0"), bytes([len(MODEL)]) + MODEL),
        only_read(POWER, "PMON_CONFIG", 0xD4, b"\x35\x3f"),
        only_read(POWER, "READ_VIN", 0x88, b"\xe7\x01"),
    )),
    "pca9546": Chip(THIRD, MUX, (
        Asked("CONTROL", b"\2", b"", [("W", MUX, b"\2"), ("R", MUX, b"\2")]),
    )),
    "max7310": Chip(THIRD, EXPANDER, (
        stored(EXPANDER, "OUTPUT", 1, b"\xa5"),  # of pins that are all outputs
        stored(EXPANDER, "POLARITY", 2, b"\x0f"),
        only_read(EXPANDER, "INPUT", 0, b"\xaa"),
        stored(EXPANDER, "TIMEOUT", 4, b"\0"),
        stored(EXPANDER, "CONFIGURATION", 3, b"\xf0"),
    )),
}  # fmt: skip


class Contracted(NamedTuple):
    """What is asked of a chip, planned as its bundled contract says.

    Attributes:
        values: what must be read, by register; None: it moves.
        writes, reads: the plans; nothing is written by an empty one.
    """

    contract: Contract
    values: dict[str, int | None]
    writes: Plan
    reads: Plan

    @classmethod
    def of(cls, part: str, asked: Asked) -> Contracted:
        """Its plans."""
        contract, address = bundled(part), BY_CONTRACT[part].address
        group = contract.groups.get(asked.name)
        members = [contract.registers[n] for n in (group.members if group is not None else (asked.name,))]
        at_once = group is not None and group.transfer == "one"
        written = list(_values(members, asked.written).items())
        writes = Plan(())
        if written:
            pairs = [(contract.registers[name], raw) for name, raw in written]
            writes = (plan_block_write if at_once else plan_write)(contract, address, pairs, {})
        reads = (plan_block_read if at_once else plan_read)(contract, address, members, {})
        known = {} if asked.came == MOVES else _values(members, asked.came or asked.written)
        return cls(contract, {m.name: known.get(m.name) for m in members}, writes, reads)

    def transfers(self) -> list[Transfer]:
        """Everything that is sent, in order."""
        return [step.transfer for plan in (self.writes, self.reads) for step in plan.steps]


def _values(members: list[Register], data: bytes) -> dict[str, int]:
    """What bytes mean in registers that stand in a row on the wire; nothing where there are none."""
    values = {}
    for member in members if data else ():
        values[member.name] = from_bytes(member, data[: member.size_bytes])
        data = data[member.size_bytes :]
    return values
