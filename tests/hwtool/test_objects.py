"""Modbus device identification: objects are texts, each read by itself, and may say which device is there."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

from hwtool_contracts.model import Contract
from hwtool_contracts.native import parse_contract
from hwtool_contracts.native_write import write_contract
from hwtool_contracts.toml_reader import Faults
from tests.hwtool.conftest import DEFAULTS, KEY, MODBUS, Lab, Play, code_of, error_of, reg, toy_board

HEAD = MODBUS.replace("[3, 6]", "[3, 6, 43]").replace("base = 0", "base = 1")
PLACE = "space = 'object'\nwidth_bits = 96\nencoding = 'text'"
PARTS = (
    reg("VENDOR", 0, PLACE.replace("96", "16"), "ro"),  # as long as a register: the next number follows it
    reg("PRODUCT", 1, PLACE, "ro"),
    reg("LEVEL", 5, "space = 'holding'"),
    "[identity]\nregister = 'PRODUCT'\nequals = 'MX-'\n",
)


def contract_of(*parts: str, head: str = HEAD) -> Contract:
    return parse_contract(head + DEFAULTS + "\n".join(parts), "toy.toml")


def text(characters: str) -> int:
    return int.from_bytes(characters.encode(), "big")


def test_object_when_read_then_its_text_and_a_transfer_for_each(play: Play, tmp_path: Path) -> None:
    async def life(lab: Lab) -> None:
        lab.chip().values |= {"VENDOR": text("us"), "PRODUCT": text("MX-5")}
        done = await lab.ask("reg.read", registers=["toy.VENDOR", "toy.PRODUCT"])
        assert [v["text"] for v in done.values or []] == ["us", "MX-5"]
        asked = [(t["function"], t["space"], t["offset"]) for t in lab.sent()]
        assert asked == [(43, "object", "0x00"), (43, "object", "0x01")]  # no manual counts these from 1

    play(life, toy_board(tmp_path, *PARTS, head=HEAD))


@pytest.mark.parametrize(("found", "code"), [("MX-5", None), ("LX-5", "stale")])
def test_effect_when_the_device_says_what_it_is_then_only_the_right_one_gets_it(
    play: Play, tmp_path: Path, found: str, code: str | None
) -> None:
    async def life(lab: Lab) -> None:
        lab.chip().values["PRODUCT"] = text(found)
        done = await lab.ask("reg.write", register="toy.LEVEL", value=5, key=KEY)
        assert (code_of(done), lab.writes("LEVEL")) == (code, 1 if code is None else 0)
        if code is not None:
            assert "PRODUCT is another text" in error_of(done)["message"]

    play(life, toy_board(tmp_path, *PARTS, head=HEAD))


WRONG: dict[str, tuple[str, Any, str]] = {
    "written": (reg("R", 1, PLACE), HEAD, "cannot be written"),
    "a number": (reg("R", 1, "space = 'object'\nwidth_bits = 96", "ro"), HEAD, "an object is a text"),
    "no such number": (reg("R", 256, PLACE, "ro"), HEAD, "no number of an object"),
    "no such function": (reg("R", 1, PLACE, "ro"), MODBUS, "no function to read it"),
    "several": (reg("R", 1, PLACE + "\ncount = 2\nstride_bytes = 2", "ro"), HEAD, "a text by itself"),
    "in one transfer": (
        reg("R", 1, PLACE, "ro") + reg("S", 2, PLACE, "ro") + "[groups.G]\nmembers = ['R', 'S']\ntransfer = 'one'\n",
        HEAD,
        "read by itself",
    ),
}


@pytest.mark.parametrize("what", WRONG)
def test_object_when_a_contract_says_what_cannot_be_then_a_fault(what: str) -> None:
    part, head, told = WRONG[what]
    with pytest.raises(Faults, match=told):
        contract_of(part, head=head)


def test_object_when_the_contract_is_written_out_then_it_is_the_same_again() -> None:
    contract = contract_of(*PARTS)
    assert parse_contract(write_contract(contract), "toy.toml").registers == contract.registers
