"""SMBus blocks: behind a command the number of bytes, then the bytes; of a text as many as it has characters."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

from hwtool_contracts.model import ByteOrder, Contract, Space
from hwtool_contracts.native import parse_contract
from hwtool_contracts.native_write import write_contract
from hwtool_contracts.toml_reader import Faults
from hwtool_registers.bus import RegisterRead, RegisterWrite
from tests.hwtool.conftest import DEFAULTS, I2C, KEY, KEY2, Lab, Play, code_of, error_of, reg, toy_board

HEAD = I2C.replace('byte_order = "big"', 'byte_order = "little"')
TEXT = "space = 'block'\nwidth_bits = 64\nencoding = 'text'"
NUMBER = "space = 'block'\nwidth_bits = 24"
PARTS = (
    reg("MODEL", 0x9A, TEXT, "ro"),
    reg("LABEL", 0xB0, TEXT),
    reg("TRIPLE", 0xB1, NUMBER + "\nfields.FIRST = { bits = '23:16' }\nfields.LAST = { bits = '7:0' }"),
    reg("SWAPPED", 0xB2, NUMBER + "\nbyte_order = 'little'"),
    reg("WORD", 0x8B, "width_bits = 16"),
    "[identity]\nregister = 'MODEL'\nequals = 'MX'\n",
)


def contract_of(*parts: str, head: str = HEAD) -> Contract:
    return parse_contract(head + DEFAULTS + "\n".join(parts), "toy.toml")


def text(characters: str) -> int:
    return int.from_bytes(characters.encode(), "big")


def test_block_when_read_then_its_text_or_its_bytes_from_the_first_on(play: Play, tmp_path: Path) -> None:
    async def life(lab: Lab) -> None:
        lab.chip().values |= {"MODEL": text("MX-5"), "TRIPLE": 0x112233, "SWAPPED": 0x112233, "WORD": 0x1234}
        asked = ["toy.MODEL", "toy.TRIPLE", "toy.SWAPPED", "toy.WORD"]
        model, triple, swapped, word = (await lab.ask("reg.read", registers=asked)).values or []
        assert (model["text"], triple["raw"], swapped["raw"], word["raw"]) == ("MX-5", "0x112233", "0x112233", "0x1234")
        assert triple["fields"]["FIRST"]["raw"] == "0x11"
        sent = [t for t in lab.bus().log if isinstance(t, RegisterRead)]
        assert [(t.space, t.offset, t.size_bytes, t.shorter) for t in sent] == [
            (Space.BLOCK, 0x9A, 8, True),
            (Space.BLOCK, 0xB1, 3, False),
            (Space.BLOCK, 0xB2, 3, False),
            (Space.MEMORY, 0x8B, 2, False),
        ]

    play(life, toy_board(tmp_path, *PARTS, head=HEAD))


@pytest.mark.parametrize(
    ("register", "value", "data"),
    [
        ("LABEL", {"text": "pump"}, b"pump"),
        ("LABEL", {"text": "12345678"}, b"12345678"),
        ("TRIPLE", 0x000102, b"\x00\x01\x02"),
        ("SWAPPED", 0x000102, b"\x02\x01\x00"),
    ],
)
def test_block_when_written_then_once_and_a_text_as_long_as_it_is(
    play: Play, tmp_path: Path, register: str, value: Any, data: bytes
) -> None:
    async def life(lab: Lab) -> None:
        lab.chip().values |= {"MODEL": text("MX-5"), "LABEL": text("old")}
        params = {"register": f"toy.{register}", "value": value}
        plan = await lab.ask("reg.plan", method="reg.write", params=params)
        planned = [t["data"] for t in plan.transfers or [] if t["do"] == "write"]
        done = await lab.ask("reg.write", **params, key=KEY)
        assert (done.ok, done.verdict) == (True, "applied")
        sent = [t for t in lab.bus().log if isinstance(t, RegisterWrite)]
        assert ([t.data for t in sent], sent[0].space, planned) == ([data], Space.BLOCK, [data.hex()])
        (shown,) = (await lab.ask("reg.read", registers=[f"toy.{register}"])).values or []
        assert shown.get("text", int(shown["raw"], 0)) == (value["text"] if isinstance(value, dict) else value)

    play(life, toy_board(tmp_path, *PARTS, head=HEAD))


def test_field_of_a_block_when_updated_then_read_once_and_written_once(play: Play, tmp_path: Path) -> None:
    async def life(lab: Lab) -> None:
        lab.chip().values |= {"MODEL": text("MX-5"), "TRIPLE": 0x112233}
        assert (await lab.ask("reg.update", register="toy.TRIPLE", fields={"LAST": 0x44}, key=KEY)).ok
        assert (lab.chip().values["TRIPLE"], lab.writes("TRIPLE")) == (0x112244, 1)

    play(life, toy_board(tmp_path, *PARTS, head=HEAD))


def test_block_that_says_which_device_it_is_when_it_is_another_one_then_no_effect(play: Play, tmp_path: Path) -> None:
    async def life(lab: Lab) -> None:
        lab.chip().values["MODEL"] = text("LX-5")
        told = await lab.ask("reg.write", register="toy.TRIPLE", value=1, key=KEY)
        assert (code_of(told), lab.writes("TRIPLE")) == ("stale", 0)
        assert "MODEL is another text" in error_of(told)["message"]
        lab.chip().values["MODEL"] = text("MX-6")
        assert (await lab.ask("reg.write", register="toy.TRIPLE", value=1, key=KEY2)).ok

    play(life, toy_board(tmp_path, *PARTS, head=HEAD))


@pytest.mark.parametrize("value", [0, 0x6100])
def test_text_when_given_as_a_number_that_is_none_then_refused(play: Play, tmp_path: Path, value: int) -> None:
    async def life(lab: Lab) -> None:
        lab.chip().values["MODEL"] = text("MX-5")
        told = await lab.ask("reg.write", register="toy.LABEL", value=value, key=KEY)
        assert (code_of(told), error_of(told)["rule"], lab.writes("LABEL")) == ("refused", "not_a_value", 0)

    play(life, toy_board(tmp_path, *PARTS, head=HEAD))


def test_dump_when_there_are_blocks_then_each_by_itself(play: Play, tmp_path: Path) -> None:
    neighbours = [reg(f"B{n}", 0x10 + n, "space = 'block'\nwidth_bits = 8") for n in range(3)]

    async def life(lab: Lab) -> None:
        assert len((await lab.ask("device.dump", device="toy")).values or []) == 3
        assert [t["size_bytes"] for t in lab.sent()] == [1, 1, 1]

    play(life, toy_board(tmp_path, *neighbours, head=HEAD))


@pytest.mark.parametrize(
    ("write", "told"),
    [
        (RegisterWrite(0x20, Space.BLOCK, 0xB1, b"\x01\x02"), "takes 3 bytes, not 2"),
        (RegisterWrite(0x20, Space.BLOCK, 0xB0, bytes(9)), "takes 8 bytes, not 9"),
        (RegisterRead(0x20, Space.BLOCK, 0xB1, 4), "has 3 bytes"),
        (RegisterRead(0x20, Space.BLOCK, 0x8B, 2), "nothing to read at 0x8b"),
    ],
)
def test_simulated_chip_when_a_block_has_another_length_then_refused(
    play: Play, tmp_path: Path, write: RegisterRead | RegisterWrite, told: str
) -> None:
    async def life(lab: Lab) -> None:
        assert told in str(lab.bus().perform(write))
        assert not lab.chip().executed

    play(life, toy_board(tmp_path, *PARTS, head=HEAD))


WRONG: dict[str, tuple[str, str, str]] = {
    "no length": (reg("R", 1, "space = 'block'"), HEAD, "width_bits.*key is missing"),
    "too long": (reg("R", 1, "space = 'block'\nwidth_bits = 264"), HEAD, "not what a block holds"),
    "half a byte": (reg("R", 1, "space = 'block'\nwidth_bits = 12"), HEAD, "not what a block holds"),
    "no command of a byte": (reg("R", 0x100, NUMBER), HEAD, "no command code of a byte"),
    "offsets of two bytes": (
        reg("R", 1, NUMBER),
        HEAD.replace("offset_bytes = 1", "offset_bytes = 2"),
        "no command code of a byte",
    ),
    "a stop in between": (reg("R", 1, NUMBER), HEAD + "read = 'stop'\n", "behind a repeated start"),
    "a text backwards": (reg("R", 1, TEXT + "\nbyte_order = 'little'"), HEAD, "from its first character on"),
    "narrow accesses": (
        reg("R", 1, "space = 'block'\nwidth_bits = 16\naccess_bits = 8"),
        HEAD,
        "a block is one access",
    ),
    "two ways": (reg("R", 1, NUMBER) + reg("S", 1), HEAD, "S has it too, without a number of bytes"),
    "several": (reg("R", 1, NUMBER + "\ncount = 2\nstride_bytes = 1"), HEAD, "each block is read by itself"),
    "several offsets": (reg("R", 1, NUMBER + "\nalso_at = [2]"), HEAD, "only where offsets are bytes"),
    "no i2c": (
        reg("R", 1, NUMBER),
        HEAD.replace('[access.i2c]\naddresses = [0x20, 0x21]\nauto_increment = "both"', "[access.spi]"),
        "no blocks without",
    ),
    "in one transfer": (
        reg("R", 1, NUMBER) + reg("S", 4, NUMBER) + "[groups.G]\nmembers = ['R', 'S']\ntransfer = 'one'\n",
        HEAD,
        "each block is read by itself",
    ),
}


@pytest.mark.parametrize("what", WRONG)
def test_block_when_a_contract_says_what_cannot_be_then_a_fault(what: str) -> None:
    part, head, told = WRONG[what]
    with pytest.raises(Faults, match=told):
        contract_of(part, head=head)


def test_block_when_two_banks_have_the_command_then_they_are_not_the_same() -> None:
    banked = (
        reg("PAGE", 0)
        + reg("R", 1, NUMBER + "\nbank = 'P'")
        + reg("S", 1)
        + "[banks.P]\nselect = [{ register = 'PAGE', value = 1 }]\nrestore = 'none'\n"
    )
    assert contract_of(banked).registers["R"].byte_order is ByteOrder.BIG


def test_block_when_the_contract_is_written_out_then_it_is_the_same_again() -> None:
    contract = contract_of(*PARTS)
    again = parse_contract(write_contract(contract), "toy.toml")
    assert replace(again, digest=contract.digest) == contract
