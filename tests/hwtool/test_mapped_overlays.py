"""The bundled overlays on vendors' files: what they make of notorious registers, and the traffic of a GPIO update."""

from __future__ import annotations

from pathlib import Path

import pytest

from hwtool.config import Board, parse_board
from hwtool_contracts.glob import matches
from hwtool_contracts.judge import ReadJudgement, judge_read
from hwtool_contracts.library import find_contract
from hwtool_contracts.lint import of_contract
from hwtool_contracts.model import Contract
from tests.corpus import corpus_file
from tests.hwtool.conftest import KEY, KEY2, Lab, Play, code_of, error_of, raws

FILES = {"rp2040": "svd/RP2040.svd", "stm32f410": "svd/STM32F410.svd"}
NOT_CLEAN: dict[str, tuple[str, str, int]] = {
    # overlay, registers, at least so many
    "UART data": ("rp2040", "UART*.UARTDR", 2),
    "spinlocks": ("rp2040", "SIO.SPINLOCK[0-9]*", 32),
    "I2C acknowledges": ("rp2040", "I2C*.IC_CLR_*", 24),
    "mailbox": ("rp2040", "SIO.FIFO_RD", 1),
    "interpolators": ("rp2040", "SIO.INTERP*_POP_*", 6),
    "PIO queues": ("rp2040", "PIO*.RXF*", 8),
    "SPI data": ("rp2040", "SPI*.SSPDR", 2),
    "USART data": ("stm32f410", "USART*.DR", 2),
}
CLEAN: dict[str, tuple[str, str, int]] = {
    "raw timer": ("rp2040", "TIMER.TIMERAW*", 2),
    "UART flags": ("rp2040", "UART*.UARTFR", 2),
    "pins out": ("rp2040", "SIO.GPIO_OUT", 1),
    "port out": ("stm32f410", "GPIO*.ODR", 3),
}
_loaded: dict[str, Contract] = {}


def overlaid(name: str) -> Contract:
    """The vendor's file with the bundled overlay; loaded once."""
    if name not in _loaded:
        path = corpus_file(FILES[name])
        _loaded[name] = find_contract(str(path), path.parent, [name])
    return _loaded[name]


def fits(pattern: str, name: str) -> bool:
    head, _, digits = pattern.partition("[0-9]*")
    return (
        name.startswith(head) and name[len(head) :].isdecimal() if digits or "[" in pattern else matches(pattern, name)
    )


@pytest.mark.parametrize(
    ("chip", "pattern", "count", "clean"),
    [(*v, False) for v in NOT_CLEAN.values()] + [(*v, True) for v in CLEAN.values()],
    ids=[*NOT_CLEAN, *CLEAN],
)
def test_overlay_when_laid_over_the_vendors_file_then_these_reads_are_judged_so(
    chip: str, pattern: str, count: int, clean: bool
) -> None:
    contract = overlaid(chip)
    found = [r for n, r in contract.registers.items() if fits(pattern, n)]
    assert len(found) >= count
    for register in found:
        judged = judge_read(contract, (register,))
        assert isinstance(judged, ReadJudgement), register.name
        assert judged.clean is clean, register.name


def test_uart_when_its_fifo_has_something_then_it_is_taken(
    play: Play, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """UARTFR.RXFE says "empty": it was the FIFO's level, so that what was there was refused, and what was not read."""
    # the comparison of what chips counted does not know parts of a chip
    monkeypatch.setitem(type(play)._life.__globals__, "must_agree", lambda *_: None)

    async def life(lab: Lab) -> None:
        lab.chip().push("UART0.UARTDR", b"ab")
        taken = [await lab.ask("reg.read_effectful", register="toy.UARTDR", key=key) for key in (KEY, KEY2)]
        assert [raw for result in taken for raw in raws(result)] == ["0x00000061", "0x00000062"]

    play(life, mapped_board(tmp_path, "rp2040", "UART0"))


@pytest.mark.parametrize("chip", FILES)
def test_overlay_when_laid_over_the_vendors_file_then_lint_has_nothing_against_it(chip: str) -> None:
    assert [str(found) for found in of_contract(overlaid(chip))] == []


def mapped_board(directory: Path, chip: str, part: str) -> Board:
    path = corpus_file(FILES[chip])
    return parse_board(
        "name = 'mapped'\napproval_mode = 'self'\n[buses.b]\nkind = 'sim'\nreply_lifetime_ms = 100\n"
        f"[devices.toy]\ncontract = '{path}'\noverlays = ['{chip}']\nbus = 'b'\npart = '{part}'\n",
        "mapped.toml",
        directory,
    )


def writes(lab: Lab) -> list[tuple[str, str]]:
    return [(t["offset"], t["data"]) for t in lab.sent() if t["do"] == "write"]


def test_rp2040_when_pins_are_updated_then_set_and_cleared_at_their_places(
    play: Play, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    # the comparison of counts knows a chip by its whole name
    monkeypatch.setitem(type(play)._life.__globals__, "must_agree", lambda *_: None)

    async def life(lab: Lab) -> None:
        lab.chip().values["SIO.GPIO_OUT"] = 0x0000_00F0
        done = await lab.ask("reg.update", register="toy.GPIO_OUT", fields={"GPIO_OUT": 0x0F}, key=KEY)
        assert done.verdict == "applied", done
        assert writes(lab) == [("0xd0000014", "0f000000"), ("0xd0000018", "f0ffff3f")]
        assert lab.chip().values["SIO.GPIO_OUT"] == 0x0F
        refused = await lab.ask("reg.read", registers=["toy.FIFO_RD"])
        assert (code_of(refused), error_of(refused)["rule"]) == ("refused", "read_has_side_effects")

    play(life, mapped_board(tmp_path, "rp2040", "SIO"))


def test_stm32_when_a_pin_is_updated_then_one_half_of_bsrr(
    play: Play, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setitem(type(play)._life.__globals__, "must_agree", lambda *_: None)

    async def life(lab: Lab) -> None:
        await lab.ask("reg.update", register="toy.ODR", fields={"ODR5": 1}, key=KEY)
        await lab.ask("reg.update", register="toy.ODR", fields={"ODR5": 0}, key=KEY2)
        assert writes(lab) == [("0x40020018", "20000000"), ("0x40020018", "00002000")]

    play(life, mapped_board(tmp_path, "stm32f410", "GPIOA"))


def test_stm32_when_a_pin_is_updated_on_the_simulator_then_it_moves(
    play: Play, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setitem(type(play)._life.__globals__, "must_agree", lambda *_: None)

    async def life(lab: Lab) -> None:
        lab.chip().values["GPIOA.ODR"] = 0x20
        done = await lab.ask("reg.update", register="toy.ODR", fields={"ODR5": 0}, key=KEY)
        assert (done.verdict, lab.chip().values["GPIOA.ODR"]) == ("applied", 0)

    play(life, mapped_board(tmp_path, "stm32f410", "GPIOA"))
