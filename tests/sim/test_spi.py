"""Offsets on SPI: what the planner puts on the wire and what a chip made from the same contract takes it for."""

from __future__ import annotations

import pytest

from hwtool_contracts.model import Contract, Space
from hwtool_contracts.native import parse_contract
from hwtool_contracts.toml_reader import Faults
from hwtool_registers.bus import RegisterRead, RegisterWrite
from hwtool_registers.plan import plan_read, plan_write
from hwtool_sim.bus import apply_to
from hwtool_sim.chip import Chip, NotThere

HEAD = """schema = 1
part = "toy"
vendor = "nobody"
title = "a toy"
source = "the test"
[defaults]
read = { effects = ['none'], provenance = 'generated', source = 'rtl' }
write = { effect = 'store', provenance = 'generated', source = 'rtl' }
"""


def contract_of(access: str, registers: str) -> Contract:
    return parse_contract(HEAD + access + registers, "toy.toml")


SPI = "[access]\noffset_bytes = {}\nbyte_order = 'big'\n[access.spi]\nread_mask = {:#x}\nincrement_mask = {:#x}\n"
SPI_MAP = (
    "[registers.ID]\noffset = {0}\naccess = 'ro'\n[registers.CTRL]\noffset = {1}\naccess = 'rw'\n"
    "[registers.WORD]\noffset = {2}\nwidth_bits = 16\naccess = 'rw'\n"
)
SPI_CASES = {
    # offset_bytes, read_mask, increment_mask; as a datasheet prints them; read ID, write CTRL, read and write WORD
    "a mark of its own": ((1, 0x80, 0), (0x0F, 0x20, 0x28), (0x8F, 0x20, 0xA8, 0x28)),
    "marks of reading and of moving": ((1, 0x80, 0x40), (0x0F, 0x20, 0x28), (0x8F, 0x20, 0xE8, 0x68)),
    "printed with the mark": ((1, 0x80, 0), (0xD0, 0xF4, 0xF7), (0xD0, 0x74, 0xF7, 0x77)),
    "in the first of two bytes": ((2, 0x8000, 0), (0x0F, 0x120, 0x128), (0x800F, 0x120, 0x8128, 0x128)),
    "no marks": ((1, 0, 0), (0x0F, 0x20, 0x28), (0x0F, 0x20, 0x28, 0x28)),
}


@pytest.mark.parametrize(("bus", "printed", "wire"), SPI_CASES.values(), ids=SPI_CASES)
def test_offset_when_on_spi_then_marked_as_what_the_transfer_is(
    bus: tuple[int, int, int], printed: tuple[int, ...], wire: tuple[int, ...]
) -> None:
    contract = contract_of(SPI.format(*bus), SPI_MAP.format(*printed))
    size = bus[0]
    reads = [plan_read(contract, 2, [contract.registers[name]], {}).steps[0].transfer for name in ("ID", "WORD")]
    ctrl, word = (contract.registers[name] for name in ("CTRL", "WORD"))
    writes = [
        plan_write(contract, 2, [(r, value)], {}).steps[0].transfer for r, value in ((ctrl, 0x55), (word, 0x1234))
    ]
    assert reads == [
        RegisterRead(2, Space.MEMORY, wire[0], 1, size),
        RegisterRead(2, Space.MEMORY, wire[2], 2, size),
    ]
    assert writes == [
        RegisterWrite(2, Space.MEMORY, wire[1], b"\x55", size),
        RegisterWrite(2, Space.MEMORY, wire[3], b"\x12\x34", size),
    ]
    chip = Chip(contract)  # which reads the marks by itself
    chip.values["ID"] = 0xA5
    for transfer in writes:
        apply_to(chip, transfer)
    assert [apply_to(chip, t).data for t in reads] == [b"\xa5", b"\x12\x34"]
    assert chip.values["CTRL"] == 0x55
    if bus[1]:
        unmarked = RegisterRead(2, Space.MEMORY, wire[0] & ~bus[1], 1, size)
        for wrong in (unmarked, RegisterWrite(2, Space.MEMORY, wire[0] | bus[1], b"\x55", size)):
            with pytest.raises(NotThere, match="mark"):
                apply_to(chip, wrong)


def test_registers_when_marks_alone_tell_them_apart_on_spi_then_refused() -> None:
    text = "[registers.A]\noffset = 0x74\naccess = 'rw'\n[registers.B]\noffset = 0xf4\naccess = 'rw'\n"
    with pytest.raises(Faults, match="bits that mark a transfer"):
        contract_of(SPI.format(1, 0x80, 0), text)


def test_register_when_no_whole_words_of_the_controller_then_refused() -> None:
    with pytest.raises(Faults, match="no whole words of 16 bits"):
        contract_of(SPI.format(2, 0, 0) + "word_bits = 16\n", "[registers.A]\noffset = 4\naccess = 'rw'\n")
