"""Modbus function 23: what selects a bank and the read behind it are one request, so that nobody comes in between."""

from __future__ import annotations

from pathlib import Path

import pytest

from hwtool.config import Board
from hwtool_contracts.model import Space
from hwtool_contracts.native import parse_contract
from hwtool_contracts.native_write import write_contract
from hwtool_contracts.toml_reader import Faults
from hwtool_registers.bus import Confirmed, RegisterRead, RegisterWrite
from hwtool_sim.faults import FaultKind
from tests.hwtool.conftest import KEY, KEY2, MODBUS, Lab, Play, code_of, effect, error_of, raws, reg, toy_board

WORD = "space = 'holding'"
NONE = "restore = 'none'"
PRIOR = "restore = 'prior'"
ONE = "[{ register = 'PAGE', value = 1, mask = 0xFFFF }]"


def board(directory: Path, restore: str = NONE, at_once: bool = True, mask: int = 0xFFFF) -> Board:
    """A device with two pages of a level and of a FIFO."""
    select = f"{{ register = 'PAGE', value = '@index', mask = {mask:#x} }}"
    return toy_board(
        directory,
        reg("PAGE", 0, WORD),
        f"[banks.PAGE]\nselect = [{select}]\n{restore}\nat_once = {str(at_once).lower()}\n",
        "[clusters.OUT]\noffset = 0\ncount = 2\nstride_bytes = 0\nbank = 'PAGE'\n",
        f"[clusters.OUT.registers.LEVEL]\noffset = 4\naccess = 'rw'\n{WORD}\n",
        f"[clusters.OUT.registers.NEXT]\noffset = 5\naccess = 'rw'\n{WORD}\n",
        f"[clusters.OUT.registers.FIFO]\noffset = 6\naccess = 'ro'\n{WORD}\n{effect('pop')}\n",
        head=MODBUS.replace("[3, 6]", "[3, 6, 16, 23]"),
    )


def asked(lab: Lab) -> list[tuple[int | None, int, tuple[int, bytes] | None]]:
    """Function, offset and what is written first, of each request."""
    log = [t for t in lab.bus().log if isinstance(t, RegisterRead | RegisterWrite)]
    return [(t.function, t.offset, t.first if isinstance(t, RegisterRead) else None) for t in log]


def test_banked_read_when_it_is_selected_at_once_then_one_request_as_planned(play: Play, tmp_path: Path) -> None:
    async def life(lab: Lab) -> None:
        lab.chip().values |= {"OUT[0].LEVEL": 10, "OUT[1].LEVEL": 11}
        pop = {"register": "toy.OUT[1].FIFO"}
        (step,) = (await lab.ask("reg.plan", method="reg.read_effectful", params=pop)).transfers or []
        assert (step["role"], step["function"], step["first"]) == ("access", 23, {"offset": "0x00", "data": "0001"})
        read = await lab.ask("reg.read", registers=["toy.OUT[1].LEVEL", "toy.OUT[0].LEVEL"])
        assert raws(read) == ["0x000b", "0x000a"]
        assert asked(lab) == [(23, 4, (0, b"\0\1")), (23, 4, (0, b"\0\0"))]

    play(life, board(tmp_path))


def test_banked_read_when_the_contract_does_not_say_so_then_selected_before(play: Play, tmp_path: Path) -> None:
    async def life(lab: Lab) -> None:
        assert (await lab.ask("reg.read", registers=["toy.OUT[1].LEVEL"])).ok
        assert asked(lab) == [(6, 0, None), (3, 4, None)]

    play(life, board(tmp_path, at_once=False))


def test_bank_when_selected_at_once_without_the_function_then_a_fault(tmp_path: Path) -> None:
    with pytest.raises(Faults, match="the device has no function for it"):
        toy_board(tmp_path, reg("PAGE", 0, WORD), f"[banks.B]\nselect = {ONE}\nat_once = true\n", head=MODBUS)


def test_bank_when_the_contract_is_written_out_then_selected_at_once_as_before(tmp_path: Path) -> None:
    contract = board(tmp_path).devices["toy"].contract
    assert parse_contract(write_contract(contract), "toy.toml").banks == contract.banks


def test_banked_write_when_the_device_has_it_then_selected_before_as_ever(play: Play, tmp_path: Path) -> None:
    async def life(lab: Lab) -> None:
        done = await lab.ask("reg.write", register="toy.OUT[1].LEVEL", value=7, key=KEY)
        assert (done.verdict, lab.chip().values["OUT[1].LEVEL"]) == ("applied", 7)
        look = (23, 4, (0, b"\0\1"))
        assert asked(lab) == [look, (6, 0, None), (6, 4, None), look]  # pre-read, the write, read-back

    play(life, board(tmp_path))


def test_bank_when_it_is_set_back_then_after_the_one_request_and_known_from_then_on(play: Play, tmp_path: Path) -> None:
    async def life(lab: Lab) -> None:
        for _ in range(2):
            assert (await lab.ask("reg.read", registers=["toy.OUT[1].LEVEL"])).ok
        once = [(3, 0, None), (23, 4, (0, b"\0\1")), (6, 0, None)]
        assert asked(lab) == [(3, 0, None), *once, *once]  # its home is put on record first
        assert (lab.chip().values["PAGE"], lab.device().known["PAGE"]) == (0, 0)

    play(life, board(tmp_path, PRIOR))


def test_bank_when_the_request_was_answered_then_what_it_selected_is_known(play: Play, tmp_path: Path) -> None:
    async def life(lab: Lab) -> None:
        assert (await lab.ask("reg.read", registers=["toy.OUT[1].LEVEL"])).ok
        assert lab.device().known["PAGE"] == 1
        lab.fault(FaultKind.REPLY_LOST, access="read", offset=4)
        assert not (await lab.ask("reg.read", registers=["toy.OUT[0].LEVEL"])).ok
        assert "PAGE" not in lab.device().known

    play(life, board(tmp_path, mask=0x00FF))


def test_pop_in_a_bank_when_its_reply_is_lost_then_in_doubt_and_popped_once(play: Play, tmp_path: Path) -> None:
    async def life(lab: Lab) -> None:
        lab.chip().push("OUT[1].FIFO", [5, 6])
        lab.fault(FaultKind.REPLY_LOST, access="read", offset=6)
        told = await lab.ask("reg.read_effectful", register="toy.OUT[1].FIFO", key=KEY)
        assert (code_of(told), told.effects) == ("outcome_unknown", "unknown")
        assert [a for a in asked(lab) if a[1] == 6] == [(23, 6, (0, b"\0\1"))]
        assert lab.chip().executed["OUT[1].FIFO", "read"] == 1

    play(life, board(tmp_path))


def test_pop_in_a_bank_when_refused_then_proved_that_nothing_happened(play: Play, tmp_path: Path) -> None:
    async def life(lab: Lab) -> None:
        lab.chip().push("OUT[1].FIFO", [5])
        lab.fault(FaultKind.EXCEPTION, access="read", offset=6, code=2)
        told = await lab.ask("reg.read_effectful", register="toy.OUT[1].FIFO", key=KEY)
        assert (code_of(told), told.effects, error_of(told)["stage"]) == ("bus_fault", "none", "dispatch")
        again = await lab.ask("reg.read_effectful", register="toy.OUT[1].FIFO", key=KEY2)
        assert (again.ok, raws(again)) == (True, ["0x0005"])

    play(life, board(tmp_path))


SELECTS = "[{ register = 'PAGE', value = 1, mask = 0xFFFF }, { register = 'SUB', value = 2, mask = 0xFFFF }]"


@pytest.mark.parametrize(
    ("sub", "wanted"),
    [
        (1, [(23, 4, (0, b"\0\1\0\2"))]),
        (2, [(6, 0, None), (6, 2, None), (3, 4, None)]),  # not in a row
    ],
)
def test_selectors_when_they_are_several_then_at_once_if_in_a_row(
    play: Play, tmp_path: Path, sub: int, wanted: list[object]
) -> None:
    async def life(lab: Lab) -> None:
        assert (await lab.ask("reg.read", registers=["toy.LEVEL"])).ok
        assert asked(lab) == wanted

    parts = (
        reg("PAGE", 0, WORD),
        reg("SUB", sub, WORD),
        reg("LEVEL", 4, WORD + "\nbank = 'B'"),
        f"[banks.B]\nselect = {SELECTS}\n{NONE}\nat_once = true\n",
    )
    play(life, toy_board(tmp_path, *parts, head=MODBUS.replace("[3, 6]", "[3, 6, 23]")))


def test_inputs_in_a_bank_when_read_then_selected_before(play: Play, tmp_path: Path) -> None:
    async def life(lab: Lab) -> None:
        assert (await lab.ask("reg.read", registers=["toy.LEVEL"])).ok
        assert asked(lab) == [(6, 0, None), (4, 4, None)]  # function 23 reads holding registers

    parts = (
        reg("PAGE", 0, WORD),
        reg("LEVEL", 4, "space = 'input'\nbank = 'B'", "ro"),
        f"[banks.B]\nselect = {ONE}\n{NONE}\nat_once = true\n",
    )
    play(life, toy_board(tmp_path, *parts, head=MODBUS.replace("[3, 6]", "[3, 4, 6, 23]")))


def test_simulated_chip_when_the_read_cannot_be_then_nothing_is_written(play: Play, tmp_path: Path) -> None:
    async def life(lab: Lab) -> None:
        nothing_there = RegisterRead(0x20, Space.HOLDING, 7, 2, 1, 23, first=(0, b"\0\5"))
        assert "nothing to read" in str(lab.bus().perform(nothing_there))
        assert (lab.chip().values["PAGE"], not lab.chip().executed) == (0, True)
        there = RegisterRead(0x20, Space.HOLDING, 0, 2, 1, 23, first=(0, b"\0\5"))
        assert lab.bus().perform(there) == Confirmed(b"\0\5")

    play(life, board(tmp_path))
