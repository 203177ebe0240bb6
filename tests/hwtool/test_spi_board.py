"""Chips on SPI, each set by its own contract within what the board says of the wiring; looked at behind the ioctl."""

from __future__ import annotations

from pathlib import Path

import pytest

from hwtool.buses import make_bus
from hwtool.config import load_board
from hwtool_registers.bus import Closes
from tests.registers.fake_spidev import BITS, MODE, SPEED, installed

BOARD = """
name = "two"
[buses.b]
kind = "spi"
path = "{path}"
sole_master = true
{more}
[devices.quick]
contract = "quick.toml"
bus = "b"
address = 0
[devices.slow]
contract = "slow.toml"
bus = "b"
address = 1
"""
CONTRACT = """
schema = 1
part = "cells"
vendor = "nobody"
title = "a device of a test"
source = "tests/hwtool/test_spi_board.py"
[access]
offset_bytes = 1
byte_order = "big"
[access.spi]
read_mask = 0x80
{more}
[defaults]
read = {{ effects = ["none"], provenance = "generated", source = "x" }}
write = {{ effect = "store", provenance = "generated", source = "x" }}
[registers.WHO]
offset = 0x10
access = "ro"
"""


@pytest.mark.parametrize(
    ("wiring", "quick", "slow"),
    [
        ("", (0, 20_000_000), (3, 500_000)),
        ("max_hz = 4000000", (0, 4_000_000), (3, 500_000)),
        ("max_hz = 100000", (0, 100_000), (3, 100_000)),
        ("mode = 2", (2, 20_000_000), (2, 500_000)),
        ("mode = 0", (0, 20_000_000), (0, 500_000)),
    ],
)
def test_chip_select_when_opened_then_the_chips_mode_and_the_lower_clock_unless_the_board_says_a_mode(
    tmp_path: Path, wiring: str, quick: tuple[int, int], slow: tuple[int, int]
) -> None:
    (tmp_path / "quick.toml").write_text(CONTRACT.format(more="max_hz = 20000000"))
    (tmp_path / "slow.toml").write_text(CONTRACT.format(more="mode = 3\nmax_hz = 500000\nword_bits = 8"))
    (tmp_path / "board.toml").write_text(BOARD.format(path=tmp_path / "lab", more=wiring))
    board = load_board(tmp_path / "board.toml")
    kernel = installed(tmp_path, "fe204000.spi", [0, 1])
    for chip_select in (0, 1):
        (tmp_path / f"lab.{chip_select}").symlink_to(tmp_path / f"dev/spidev0.{chip_select}")
    try:
        bus = make_bus(board.buses["b"], board, tmp_path)
        bus.quiesce(0.0)  # opens it
        assert isinstance(bus, Closes)
        bus.close()
    finally:
        kernel.close()
    assert kernel.set == {
        "spidev0.0": {MODE: quick[0], BITS: 8, SPEED: quick[1]},
        "spidev0.1": {MODE: slow[0], BITS: 8, SPEED: slow[1]},
    }
