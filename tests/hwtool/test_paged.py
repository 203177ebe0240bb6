"""Banks that are left as they are (`restore = "none"`, a PMBus PAGE): others move them, and every access says where."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

from hwtool.config import Board
from hwtool.prepare import Prepared
from hwtool.prepare import prepare as real_prepare
from hwtool.resolve import Resolved
from tests.hwtool.conftest import KEY, KEY2, Lab, Play, code_of, raws, reg, toy_board

WHOLE = "[banks.PAGE]\nselect = [{ register = 'PAGE', value = '@index', mask = 0xFF }]\nrestore = 'none'\n"
PART = "[banks.PAGE]\nselect = [{ register = 'PAGE', value = '@index', mask = 0x0F }]\nrestore = 'none'\n"
HOME = (
    "[banks.PAGE]\nselect = [{ register = 'PAGE', value = '@index', mask = 0x0F }]\n"
    "restore = [{ register = 'PAGE', value = 0 }]\n"
)
SAFE = "safe_state = [{ register = 'OUT[1].LEVEL', value = 5 }, { register = 'OUT[0].LEVEL', value = 6 }]"


MODE = "[clusters.OUT.registers.MODE]\noffset = 2\naccess = 'ro'\nfields.EXPONENT = { bits = '4:0' }\n"
LINEAR = "width_bits = 16\nencoding = 'linear16'\nexponent_from = 'MODE.EXPONENT'\n"


def paged(directory: Path, bank: str, level: str = "", more: str = "") -> Board:
    """A chip with two pages of one register, LEVEL."""
    cluster = "[clusters.OUT]\noffset = 0\ncount = 2\nstride_bytes = 0\nbank = 'PAGE'\n"
    level = "[clusters.OUT.registers.LEVEL]\noffset = 4\naccess = 'rw'\n" + level
    return toy_board(directory, reg("PAGE", 0), bank, cluster, level, more, device=SAFE)


def pages(lab: Lab) -> list[int]:
    """What each page holds."""
    return [lab.chip().values[f"OUT[{n}].LEVEL"] for n in (0, 1)]


async def write(lab: Lab, page: int, value: int, key: str) -> Any:
    return await lab.ask("reg.write", register=f"toy.OUT[{page}].LEVEL", value=value, key=key)


BANKS = pytest.mark.parametrize("bank", [WHOLE, PART, HOME], ids=["whole", "part", "values"])


@BANKS
def test_page_when_written_and_read_in_turn_then_each_access_reaches_its_own(
    play: Play, tmp_path: Path, bank: str
) -> None:
    async def life(lab: Lab) -> None:
        assert (await write(lab, 1, 0x11, KEY)).verdict == "applied"
        assert (await write(lab, 0, 0x10, KEY2)).verdict == "applied"
        both = await lab.ask("reg.read", registers=["toy.OUT[1].LEVEL", "toy.OUT[0].LEVEL", "toy.OUT[1].LEVEL"])
        assert raws(both) == ["0x11", "0x10", "0x11"]
        assert pages(lab) == [0x10, 0x11]

    play(life, paged(tmp_path, bank))


@BANKS
def test_page_when_a_clean_read_moves_it_after_the_plan_then_the_write_never_reaches_the_other(
    play: Play, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, bank: str
) -> None:
    async def life(lab: Lab) -> None:
        assert (await write(lab, 1, 0x11, KEY)).verdict == "applied"

        async def overtaken(resolved: Resolved) -> Prepared:
            prepared = await real_prepare(resolved)
            assert raws(await lab.ask("reg.read", registers=["toy.OUT[0].LEVEL"])) == ["0x00"]
            return prepared

        monkeypatch.setattr("hwtool.execution.prepare", overtaken)
        done = await write(lab, 1, 0x22, KEY2)
        if bank == PART:  # the plan writes bits of the selector that it had to know
            assert (code_of(done), done.effects, pages(lab)) == ("bus_fault", "none", [0, 0x11])
        else:
            assert (done.verdict, pages(lab)) == ("applied", [0, 0x22])

    play(life, paged(tmp_path, bank))


@BANKS
def test_page_when_a_safe_state_is_of_both_then_each_gets_its_own(play: Play, tmp_path: Path, bank: str) -> None:
    async def life(lab: Lab) -> None:
        done = await lab.ask("device.safe_state", device="toy", key=KEY)
        assert (done.verdict, pages(lab)) == ("applied", [6, 5])

    play(life, paged(tmp_path, bank))


def test_page_when_it_is_overwritten_whole_then_it_is_not_read_first(play: Play, tmp_path: Path) -> None:
    async def life(lab: Lab) -> None:
        await lab.ask("reg.read", registers=["toy.OUT[1].LEVEL"])
        await lab.ask("reg.read", registers=["toy.OUT[1].LEVEL"])
        assert [(t["do"], t["offset"]) for t in lab.sent()] == [("write", "0x00"), ("read", "0x04")] * 2

    play(life, paged(tmp_path, WHOLE))


@BANKS
def test_page_when_a_plan_was_shown_then_the_request_sends_the_same(play: Play, tmp_path: Path, bank: str) -> None:
    async def life(lab: Lab) -> None:
        for number, page in enumerate((1, 1, 0, 1)):
            params = {"register": f"toy.OUT[{page}].LEVEL", "value": number}
            plan = await lab.ask("reg.plan", method="reg.write", params=params)
            shown = [{k: v for k, v in t.items() if k not in ("role", "register")} for t in plan.transfers or []]
            before = len(lab.sent())
            await lab.ask("reg.write", **params, key=f"{KEY}-{number}")
            sent = lab.sent()[before:]
            assert any(sent[n : n + len(shown)] == shown for n in range(len(sent))), (shown, sent)

    play(life, paged(tmp_path, bank, LINEAR, MODE))  # what says how a level is to be understood is read in its page
