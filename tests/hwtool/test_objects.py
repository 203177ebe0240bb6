"""Modbus device identification: objects are texts, each read by itself, and may say which device is there."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

from hwtool_contracts.model import Contract, Space
from hwtool_contracts.native import parse_contract
from hwtool_contracts.native_write import write_contract
from hwtool_contracts.toml_reader import Faults
from hwtool_registers.bus import Confirmed, RegisterRead, Transfer
from hwtool_sim.bus import Taken
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


def test_queue_when_read_then_its_words_as_fields_and_none_is_taken(play: Play, tmp_path: Path) -> None:
    fields = "fields.COUNT = { bits = '63:48' }\nfields.FIRST = { bits = '47:32' }"
    queue = reg("QUEUE", 5, f"space = 'queue'\nwidth_bits = 64\n{fields}", "ro")

    async def life(lab: Lab) -> None:
        lab.chip().values["QUEUE"] = 0x0002_0102_0304_0000
        for _ in range(2):
            (value,) = (await lab.ask("reg.read", registers=["toy.QUEUE"])).values or []
            assert (value["fields"]["COUNT"]["raw"], value["fields"]["FIRST"]["raw"]) == ("0x0002", "0x0102")
        assert [(t["function"], t["offset"]) for t in lab.sent()] == [(24, "0x04")] * 2  # the manual counts from 1

    play(life, toy_board(tmp_path, queue, head=HEAD.replace("43", "24")))


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
    "several": (reg("R", 1, PLACE + "\ncount = 2\nstride_bytes = 2", "ro"), HEAD, "each object is read by itself"),
    "half a character": (reg("R", 1, PLACE.replace("96", "92"), "ro"), HEAD, "an object is a text"),
    "a queue of half words": (reg("R", 1, "space = 'queue'\nwidth_bits = 40", "ro"), HEAD, "what a queue shows"),
    "a queue of no words": (reg("R", 1, "space = 'queue'\nwidth_bits = 16", "ro"), HEAD, "what a queue shows"),
    "a queue of too many": (reg("R", 1, "space = 'queue'\nwidth_bits = 528", "ro"), HEAD, "what a queue shows"),
    "in one transfer": (
        reg("R", 1, PLACE, "ro") + reg("S", 2, PLACE, "ro") + "[groups.G]\nmembers = ['R', 'S']\ntransfer = 'one'\n",
        HEAD,
        "each object is read by itself",
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


def test_object_when_longer_than_the_contract_says_then_that_read_fails_and_the_line_goes_on(
    play: Play, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    async def life(lab: Lab) -> None:
        bus, take = lab.bus(), lab.bus().take

        def longer(transfer: Transfer) -> Taken:
            taken = take(transfer)
            return replace(taken, said=Confirmed(13 * b"x")) if transfer == OBJECT else taken

        monkeypatch.setattr(bus, "take", longer)
        assert code_of(await lab.ask("reg.read", registers=["toy.PRODUCT"])) == "bus_fault"
        assert (await lab.ask("reg.read", registers=["toy.LEVEL"])).ok  # nothing is quarantined

    play(life, toy_board(tmp_path, *PARTS, head=HEAD))


OBJECT = RegisterRead(0x20, Space.OBJECT, 1, 12, 1, 43)
