"""Neighbours in one transfer: a dump costs the fewest that contract and bus allow, and reaches nothing else."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path

import pytest

from hwtool_registers.bus import Capabilities, RegisterRead
from hwtool_sim.bus import SimBus
from tests.hwtool.conftest import I2C, Lab, Play, effect, reg, toy_board

EVERY = [reg(f"R{n:02X}", n, f"reset = {n}") for n in range(256)]


def reads(lab: Lab) -> list[tuple[int, int]]:
    """Offset and size of each read that was sent."""
    return [(t.offset, t.size_bytes) for t in lab.bus().log if isinstance(t, RegisterRead)]


@pytest.mark.parametrize(
    ("moves", "longest", "wanted"),
    [
        ("both", None, [(0, 256)]),
        ("read", None, [(0, 256)]),
        ("both", 32, [(at, 32) for at in range(0, 256, 32)]),
        ("both", 100, [(0, 100), (100, 100), (200, 56)]),
        ("write", None, [(at, 1) for at in range(256)]),
        ("none", None, [(at, 1) for at in range(256)]),
    ],
)
def test_dump_of_256_bytes_when_taken_then_the_fewest_transfers_that_contract_and_bus_allow(
    play: Play,
    tmp_path: Path,
    buses_are: Callable[[type[SimBus]], None],
    moves: str,
    longest: int | None,
    wanted: list[tuple[int, int]],
) -> None:
    class Limited(SimBus):
        capabilities = Capabilities(longest_read_bytes=longest or 0)

    if longest is not None:
        buses_are(Limited)

    async def life(lab: Lab) -> None:
        dump = await lab.ask("device.dump", device="toy")
        assert [int(v["raw"], 0) for v in dump.values or []] == list(range(256))
        assert (reads(lab), dump.left_out) == (wanted, [])

    play(life, toy_board(tmp_path, *EVERY, head=I2C.replace('"both"', f'"{moves}"')))


def test_dump_when_a_register_in_between_pops_then_no_transfer_reaches_it(play: Play, tmp_path: Path) -> None:
    parts = list(EVERY)
    parts[7] = reg("R07", 7, effect("pop"), "ro")
    del parts[9]

    async def life(lab: Lab) -> None:
        dump = await lab.ask("device.dump", device="toy")
        assert reads(lab) == [(0, 7), (8, 1), (10, 246)]
        assert [entry["register"] for entry in dump.left_out or []] == ["toy.R07"]
        assert lab.reads("R07") == 0

    play(life, toy_board(tmp_path, *parts))
