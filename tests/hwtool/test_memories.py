"""Memories, commands, lines and coils through the engine: exact traffic, outcomes, and what is refused."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

from hwtool.config import Board, parse_board
from hwtool_contracts.model import Space
from hwtool_contracts.toml_reader import Faults
from hwtool_registers.bus import Answer, Confirmed, Transfer
from hwtool_sim.bus import SimBus
from hwtool_sim.faults import FaultKind
from tests.hwtool.conftest import (
    DEFAULTS,
    KEY,
    KEY2,
    KEY3,
    Lab,
    Play,
    code_of,
    error_of,
    evidence_of,
    raws,
    toy_board,
)


def chip_board(directory: Path, contract: str, address: int, device: str = "", bus: str = "") -> Board:
    """A board with one bundled chip, called `toy`, on the simulated bus `b`."""
    return parse_board(
        "name = 'toys'\napproval_mode = 'self'\n"
        f"[buses.b]\nkind = 'sim'\nreply_lifetime_ms = 100\nsole_master = true\n{bus}\n"
        f"[devices.toy]\ncontract = '{contract}'\nbus = 'b'\naddress = {address}\n{device}\n",
        "toys.toml",
        directory,
    )


@pytest.fixture
def play_opcodes(play: Play, monkeypatch: pytest.MonkeyPatch) -> Play:
    """As `play`, without the comparison of what chips counted: tests/agreement.py does not know messages and lines."""
    monkeypatch.setitem(type(play)._life.__globals__, "must_agree", lambda *_: None)
    return play


def on_one_clock(lab: Lab) -> None:
    """The chips count the time of the engine: a busy one is free again when that says so."""
    lab.bus().clock = lab.clock.monotonic_s


def traffic(lab: Lab) -> list[tuple[str, str, Any]]:
    """What the bus was asked for, as (kind, place, data or size)."""
    told: list[tuple[str, str, Any]] = []
    for t in lab.sent():
        match t["do"]:
            case "read":
                told.append(("R", f"{t['address']}:{t['offset']}", t["size_bytes"]))
            case "write":
                told.append(("W", f"{t['address']}:{t['offset']}", t["data"]))
            case "message":
                told.append(("M", t["data"], t["read_bytes"]))
            case _:
                told.append(("L", t["text"], t["expects_reply"]))
    return told


async def as_operator(lab: Lab, register: str, value: Any, key: str = KEY) -> Any:
    """A write that needs approval, by somebody who may do without."""
    return await lab.operator("reg.write", register=f"toy.{register}", value=value, key=key)


# --- memories ---------------------------------------------------------------------------------------------------


def test_memory_when_written_over_a_page_then_page_after_page_with_the_cycle_between_and_read_back(
    play: Play, tmp_path: Path
) -> None:
    async def life(lab: Lab) -> None:
        on_one_clock(lab)
        data = bytes(range(1, 37))
        before_s = lab.clock.mono
        done = await as_operator(lab, "DATA[30:36]", {"hex": data.hex()})
        assert (done.verdict, done.effects) == ("applied", "applied"), done
        writes = [t for t in traffic(lab) if t[0] == "W"]
        parts = {"0x50:0x1e": data[:2], "0x50:0x20": data[2:34], "0x50:0x40": data[34:]}
        assert list(dict.fromkeys(writes)) == [("W", place, part.hex()) for place, part in parts.items()]
        assert lab.writes("DATA") == 3
        # five milliseconds of no answer, twice; the sixth look is one of floating point
        assert len(writes) == evidence_of(done)["transfers"] in (3 + 2 * 5, 3 + 2 * 6)
        assert bytes(lab.chip().memories["DATA"].cells[30:66]) == data
        assert 0.0149 < lab.clock.mono - before_s < 0.0181
        assert traffic(lab)[0] == traffic(lab)[-1] == ("R", "0x50:0x1e", 36)
        assert (done.values or [])[0]["hex"] == data.hex()
        assert data.hex() not in done.summary
        again = await as_operator(lab, "DATA[30:36]", {"hex": data.hex()})
        assert (again.replayed, lab.writes("DATA")) == (True, 3)

    play(life, chip_board(tmp_path, "at24c32", 0x50))


def test_memory_when_an_agent_writes_it_then_a_person_is_asked(play: Play, tmp_path: Path) -> None:
    async def life(lab: Lab) -> None:
        waiting = await lab.ask("reg.write", register="toy.DATA[0:1]", value={"hex": "00"}, key=KEY)
        assert (waiting.status, traffic(lab)) == ("pending_approval", [])

    play(life, chip_board(tmp_path, "at24c32", 0x50))


def test_memory_when_read_then_hex_and_the_same_place_under_any_spelling(play: Play, tmp_path: Path) -> None:
    async def life(lab: Lab) -> None:
        lab.chip().memories["DATA"].cells[16:20] = b"abcd"
        done = await lab.ask("reg.read", registers=["toy.DATA[0x10:4]"])
        (value,) = done.values or []
        assert (value["register"], value["hex"]) == ("toy.DATA[16:4]", b"abcd".hex())
        assert traffic(lab) == [("R", "0x50:0x10", 4)]
        two = await lab.ask("reg.read", registers=["toy.DATA[16:2]", "toy.DATA[18:2]"])
        assert [v["hex"] for v in two.values or []] == [b"ab".hex(), b"cd".hex()]
        expecting = await lab.operator(
            "reg.write",
            register="toy.DATA[0:1]",
            value={"hex": "01"},
            expect={"toy.DATA[16:4]": {"hex": "00000000"}},
            key=KEY,
        )
        assert (code_of(expecting), lab.writes("DATA")) == ("precondition_failed", 0)

    play(life, chip_board(tmp_path, "at24c32", 0x50))


BROKEN: dict[str, tuple[str, Any, str]] = {
    "past the end": ("DATA[4090:7]", {"hex": "00" * 7}, "not_found"),
    "too long": ("DATA[0:4097]", {"hex": "00"}, "not_found"),
    "no slice": ("DATA", {"hex": "00"}, "not_found"),
    "another length": ("DATA[0:2]", {"hex": "00"}, "invalid_args"),
    "no hex": ("DATA[0:1]", {"hex": "xx"}, "invalid_args"),
    "text": ("DATA[0:1]", {"text": "a"}, "invalid_args"),
    "a unit": ("DATA[0:1]", {"scaled": "1", "unit": "V"}, "invalid_args"),
}


@pytest.mark.parametrize(("register", "value", "code"), BROKEN.values(), ids=list(BROKEN))
def test_memory_when_the_place_or_value_is_wrong_then_refused_and_nothing_is_sent(
    play: Play, tmp_path: Path, register: str, value: Any, code: str
) -> None:
    async def life(lab: Lab) -> None:
        refused = await as_operator(lab, register, value)
        assert (code_of(refused), traffic(lab), await lab.rows()) == (code, [], [])
        if code == "not_found" and "[" in register:
            assert "DATA[0:4096]" in error_of(refused)["hint"]

    play(life, chip_board(tmp_path, "at24c32", 0x50))


def test_memory_when_a_page_breaks_off_then_unknown_and_settled_by_what_is_there(play: Play, tmp_path: Path) -> None:
    async def life(lab: Lab) -> None:
        on_one_clock(lab)
        lab.fault(FaultKind.REPLY_LOST, offset=0x20)
        unknown = await as_operator(lab, "DATA[30:4]", {"hex": "01020304"})
        assert (code_of(unknown), lab.writes("DATA")) == ("outcome_unknown", 2)
        await lab.rules_ran()
        row = await lab.row()
        assert (row.state, row.verdict) == ("DONE", "applied")

    play(life, chip_board(tmp_path, "at24c32", 0x50))


def test_memory_when_the_second_page_never_answers_then_partial_and_not_retried_past_the_limit(
    play: Play, tmp_path: Path
) -> None:
    async def life(lab: Lab) -> None:
        on_one_clock(lab)
        lab.fault(FaultKind.NACK, offset=0x20, times=100)
        partial = await as_operator(lab, "DATA[30:4]", {"hex": "01020304"})
        assert (code_of(partial), partial.verdict, partial.effects) == ("not_applied", "partial", "applied")
        assert (error_of(partial)["done"], error_of(partial)["total"]) == (1, 2)
        assert len([t for t in traffic(lab) if t[0] == "W"]) == 1 + 10
        assert bytes(lab.chip().memories["DATA"].cells[30:34]) == b"\x01\x02\xff\xff"

    play(life, chip_board(tmp_path, "at24c32", 0x50))


def test_memory_when_power_goes_while_a_page_is_written_then_torn_is_partial(play: Play, tmp_path: Path) -> None:
    async def life(lab: Lab) -> None:
        on_one_clock(lab)
        lab.fault(FaultKind.DATA_NACK, offset=0, after_bytes=2)
        assert code_of(await as_operator(lab, "DATA[0:4]", {"hex": "01020304"})) == "outcome_unknown"
        await lab.rules_ran()
        row = await lab.row()
        assert (row.state, row.verdict) in (("DONE", "partial"), ("UNKNOWN", None))

    play(life, chip_board(tmp_path, "at24c32", 0x50))


BLOCKS = {"first": (0x10, "0x50:0x10"), "fourth": (0x310, "0x53:0x10"), "last byte": (0x7FF, "0x57:0xff")}


@pytest.mark.parametrize(("at", "place"), BLOCKS.values(), ids=list(BLOCKS))
def test_at24c16_when_a_byte_of_a_block_is_used_then_the_block_stands_in_the_address(
    play: Play, tmp_path: Path, at: int, place: str
) -> None:
    async def life(lab: Lab) -> None:
        on_one_clock(lab)
        done = await as_operator(lab, f"DATA[{at}:1]", {"hex": "5a"})
        assert done.verdict == "applied"
        assert [t for t in traffic(lab) if t[0] == "W"] == [("W", place, "5a")]
        assert lab.chip().memories["DATA"].cells[at] == 0x5A

    play(life, chip_board(tmp_path, "at24c16", 0x50))


def test_at24c16_when_a_slice_goes_over_a_block_then_not_found_and_said_why(play: Play, tmp_path: Path) -> None:
    async def life(lab: Lab) -> None:
        refused = await lab.ask("reg.read", registers=["toy.DATA[250:10]"])
        assert code_of(refused) == "not_found"
        assert "within blocks of 256" in error_of(refused)["hint"]
        assert traffic(lab) == []

    play(life, chip_board(tmp_path, "at24c16", 0x50))


def test_at24c16_when_another_device_stands_at_one_of_its_addresses_then_the_board_is_refused(tmp_path: Path) -> None:
    more = "[devices.two]\ncontract = 'at24c32'\nbus = 'b'\naddress = 0x53\n"
    with pytest.raises(Faults):
        chip_board(tmp_path, "at24c16", 0x50, more)


def test_memory_when_the_board_says_that_it_is_shared_then_its_slices_are(tmp_path: Path) -> None:
    board = chip_board(tmp_path, "at24c32", 0x50, "owner = 'shared'")
    assert board.devices["toy"].contract.registers["DATA[0:1]"].owner.value == "shared"


# --- commands ---------------------------------------------------------------------------------------------------


def test_command_when_it_has_no_data_then_one_message_and_acknowledged(play_opcodes: Play, tmp_path: Path) -> None:
    async def life(lab: Lab) -> None:
        done = await lab.ask("reg.write", register="toy.HEATER_ON", value=0, key=KEY)
        assert (done.verdict, done.effects) == ("applied", "unknown")
        assert traffic(lab) == [("M", "306d", 0)]
        assert lab.writes("HEATER_ON") == 1
        wrong = await lab.ask("reg.write", register="toy.HEATER_ON", value=1, key=KEY2)
        assert (code_of(wrong), lab.writes("HEATER_ON")) == ("invalid_args", 1)

    play_opcodes(life, chip_board(tmp_path, "sht3x", 0x44))


def test_command_when_it_stores_a_word_then_crc_in_both_directions(play_opcodes: Play, tmp_path: Path) -> None:
    async def life(lab: Lab) -> None:
        done = await lab.ask("reg.write", register="toy.WRITE_ALERT_HIGH_SET", value=0xBEEF, key=KEY)
        assert done.verdict == "applied"
        assert ("M", "611dbeef92", 0) in traffic(lab)
        assert lab.writes("WRITE_ALERT_HIGH_SET") == 1

    play_opcodes(life, chip_board(tmp_path, "sht3x", 0x44))


VERIFIED: dict[str, tuple[str, int, str, int, int]] = {
    "sht3x": ("sht3x", 0x44, "WRITE_ALERT_HIGH_SET", 0xBEEF, 0),
    "w25q128": ("w25q128", 0, "WRITE_STATUS_1", 0x04, 0x02),
}


@pytest.mark.parametrize(("chip", "address", "register", "value", "status"), VERIFIED.values(), ids=list(VERIFIED))
def test_command_when_it_is_to_be_verified_by_another_then_the_change_is_seen(
    play_opcodes: Play, tmp_path: Path, chip: str, address: int, register: str, value: int, status: int
) -> None:
    async def life(lab: Lab) -> None:
        lab.chip().values["STATUS_1" if chip == "w25q128" else "STATUS"] = status
        done = await as_operator(lab, register, value)
        assert (done.verdict, done.effects) == ("applied", "applied")

    play_opcodes(life, chip_board(tmp_path, chip, address))


def with_wrong_crc(monkeypatch: pytest.MonkeyPatch, size: int) -> None:
    real = SimBus.carry

    def carry(bus: SimBus, transfer: Transfer) -> tuple[Answer, float | None]:
        answer, lasts = real(bus, transfer)
        if isinstance(answer, Confirmed) and len(answer.data) == size:
            answer = Confirmed(answer.data[:-1] + bytes([answer.data[-1] ^ 1]))
        return answer, lasts

    monkeypatch.setattr(SimBus, "carry", carry)


def test_clean_read_when_its_crc_is_wrong_then_no_value(
    play_opcodes: Play, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    async def life(lab: Lab) -> None:
        with_wrong_crc(monkeypatch, 3)
        failed = await lab.ask("reg.read", registers=["toy.READ_ALERT_LOW_SET"])
        assert (code_of(failed), failed.values, failed.effects) == ("bus_fault", None, "none")
        assert "CRC" in failed.summary

    play_opcodes(life, chip_board(tmp_path, "sht3x", 0x44))


def test_effectful_read_when_its_crc_is_wrong_then_no_value_is_made_up_and_nothing_is_read_again(
    play_opcodes: Play, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    async def life(lab: Lab) -> None:
        lab.chip().push("FETCH_DATA", [0x6666_8000])
        with_wrong_crc(monkeypatch, 6)
        failed = await lab.ask("reg.read_effectful", register="toy.FETCH_DATA", key=KEY)
        assert (code_of(failed), failed.values) == ("outcome_unknown", None)
        assert traffic(lab) == [("M", "e000", 6)]
        assert code_of(await lab.ask("reg.write", register="toy.HEATER_ON", value=0, key=KEY2)) == "held"

    play_opcodes(life, chip_board(tmp_path, "sht3x", 0x44))


def test_sht3x_when_a_result_is_fetched_then_its_fields_in_their_units(play_opcodes: Play, tmp_path: Path) -> None:
    async def life(lab: Lab) -> None:
        lab.chip().push("FETCH_DATA", [0x6666_8000])
        done = await lab.ask("reg.read_effectful", register="toy.FETCH_DATA", key=KEY)
        fields = (done.values or [])[0]["fields"]
        assert fields["T"]["value"] == pytest.approx(25.0, abs=0.01)
        assert fields["RH"]["value"] == pytest.approx(50.0, abs=0.01)
        assert (fields["T"]["unit"], fields["RH"]["unit"]) == ("degC", "%RH")

    play_opcodes(life, chip_board(tmp_path, "sht3x", 0x44))


# --- the flash --------------------------------------------------------------------------------------------------


def test_flash_when_write_enable_is_off_then_no_erase_is_sent_and_when_on_one_message(
    play_opcodes: Play, tmp_path: Path
) -> None:
    async def life(lab: Lab) -> None:
        refused = await as_operator(lab, "SECTOR_ERASE", 0x012000)
        assert (code_of(refused), error_of(refused)["rule"]) == ("refused", "gate_closed")
        assert [t for t in traffic(lab) if t[0] == "M" and t[1].startswith("20")] == []
        lab.chip().values["STATUS_1"] = 0x02
        done = await as_operator(lab, "SECTOR_ERASE", 0x012000)
        assert (done.verdict, done.effects) == ("applied", "unknown")
        assert traffic(lab)[-1] == ("M", "20012000", 0)
        assert lab.writes("SECTOR_ERASE") == 1

    play_opcodes(life, chip_board(tmp_path, "w25q128", 0))


def test_flash_when_it_is_busy_then_it_is_not_read(play_opcodes: Play, tmp_path: Path) -> None:
    async def life(lab: Lab) -> None:
        lab.chip().memories["FLASH"].cells[5:7] = b"ab"
        assert (await lab.ask("reg.read", registers=["toy.FLASH[5:2]"])).values[0]["hex"] == b"ab".hex()  # type: ignore[index]
        assert traffic(lab) == [("M", "05", 1), ("M", "03000005", 2)]
        lab.chip().values["STATUS_1"] = 1
        refused = await lab.ask("reg.read", registers=["toy.FLASH[5:2]"])
        assert error_of(refused)["rule"] == "gate_closed"
        assert lab.reads("FLASH") == 1

    play_opcodes(life, chip_board(tmp_path, "w25q128", 0))


def test_flash_when_a_sector_is_erased_by_its_sequence_then_enabled_first(play_opcodes: Play, tmp_path: Path) -> None:
    async def life(lab: Lab) -> None:
        done = await lab.operator(
            "sequence.run", sequence="toy.ERASE_SECTOR", params={"address": 0x012000}, key=KEY, reason="to try it"
        )
        assert (done.ok, done.verdict) == (True, "applied"), done
        messages = [t[1] for t in traffic(lab) if t[2] == 0]
        assert messages == ["06", "20012000"]

    play_opcodes(life, chip_board(tmp_path, "w25q128", 0))


# --- lines ------------------------------------------------------------------------------------------------------

LINE_HEAD = """
schema = 1
part = "toy"
vendor = "nobody"
title = "a toy"
source = "the test"
[access]
[access.line]
"""
VOLT = (
    "[registers.VOLT]\nquery = 'VOLT?'\nset = 'VOLT {value}'\naccess = 'rw'\n"
    "encoding = 'decimal'\nscale = '0.001'\nunit = 'V'\n"
)
NAME = "[registers.NAME]\nquery = 'NAME?'\nset = 'NAME {value}'\naccess = 'rw'\nencoding = 'text'\nwidth_bits = 64\n"
ESR = (
    "[registers.ESR]\nquery = '*ESR?'\naccess = 'ro'\nwidth_bits = 16\nencoding = 'decimal'\n"
    "read = { effects = ['clear'], provenance = 'generated' }\n"
)


def line_board(directory: Path) -> Board:
    """A line has one device, without an address."""
    (directory / "toy.toml").write_text(LINE_HEAD + DEFAULTS + VOLT + NAME + ESR)
    return parse_board(
        "name = 'toys'\napproval_mode = 'self'\n"
        "[buses.b]\nkind = 'sim'\nreply_lifetime_ms = 100\nsole_master = true\n"
        "[devices.toy]\ncontract = './toy.toml'\nbus = 'b'\n",
        "toys.toml",
        directory,
    )


def test_line_when_a_value_is_set_then_asked_for_before_and_after(play_opcodes: Play, tmp_path: Path) -> None:
    async def life(lab: Lab) -> None:
        done = await lab.ask("reg.write", register="toy.VOLT", value={"scaled": "12.5", "unit": "V"}, key=KEY)
        assert (done.verdict, done.effects) == ("applied", "applied")
        assert traffic(lab) == [("L", "VOLT?", True), ("L", "VOLT 12.5", False), ("L", "VOLT?", True)]
        shown = await lab.ask("reg.read", registers=["toy.VOLT"])
        assert ((shown.values or [])[0]["value"], (shown.values or [])[0]["unit"]) == (12.5, "V")

    play_opcodes(life, line_board(tmp_path))


def test_line_when_text_is_set_then_shown_as_text(play_opcodes: Play, tmp_path: Path) -> None:
    async def life(lab: Lab) -> None:
        done = await lab.ask("reg.write", register="toy.NAME", value={"text": "ab"}, key=KEY)
        assert done.verdict == "applied"
        assert traffic(lab)[1] == ("L", "NAME ab", False)
        assert "'ab'" not in done.summary  # what a device says in words stands in no summary
        shown = await lab.ask("reg.read", registers=["toy.NAME"])
        assert (shown.values or [])[0]["text"] == "ab"

    play_opcodes(life, line_board(tmp_path))


def test_line_when_the_read_clears_then_once_under_a_key(play_opcodes: Play, tmp_path: Path) -> None:
    async def life(lab: Lab) -> None:
        lab.chip().values["ESR"] = 0x81
        assert error_of(await lab.ask("reg.read", registers=["toy.ESR"]))["rule"] == "read_has_side_effects"
        first = await lab.ask("reg.read_effectful", register="toy.ESR", key=KEY)
        again = await lab.ask("reg.read_effectful", register="toy.ESR", key=KEY)
        assert (raws(first), raws(again), lab.chip().values["ESR"]) == (["0x0081"], ["0x0081"], 0)
        assert traffic(lab) == [("L", "*ESR?", True)]

    play_opcodes(life, line_board(tmp_path))


def test_line_when_a_raw_value_has_a_line_end_then_refused_and_nothing_is_sent(
    play_opcodes: Play, tmp_path: Path
) -> None:
    async def life(lab: Lab) -> None:
        raw = int.from_bytes(b"A\nOUTP 1", "big")
        refused = await lab.ask("reg.write", register="toy.NAME", value=raw, key=KEY)
        assert [t for t in traffic(lab) if not t[2]] == []
        assert code_of(refused) in ("invalid_args", "refused")

    play_opcodes(life, line_board(tmp_path))


def test_line_when_a_raw_value_is_no_ascii_then_invalid(play_opcodes: Play, tmp_path: Path) -> None:
    async def life(lab: Lab) -> None:
        refused = await lab.ask("reg.write", register="toy.NAME", value=0xFF, key=KEY)
        assert (code_of(refused), refused.effects) == ("invalid_args", "none")

    play_opcodes(life, line_board(tmp_path))


# --- coils ------------------------------------------------------------------------------------------------------

COILS_HEAD = LINE_HEAD.replace("[access.line]", "offset_bytes = 2\n[access.modbus]\nbase = 0\n")
COILS = (
    "[registers.C]\noffset = 2\nspace = 'coil'\ncount = 3\nstride_bytes = 1\naccess = 'rw'\n",
    "[registers.W]\noffset = 8\nspace = 'coil'\nwidth_bits = 10\naccess = 'rw'\n",
    "[registers.D]\noffset = 2\nspace = 'discrete'\nwidth_bits = 10\naccess = 'ro'\n",
)


def bits_sent(lab: Lab) -> list[tuple[str, int | None, str, Any, Any]]:
    return [(t["do"], t["function"], t["offset"], t.get("data"), t.get("bits")) for t in lab.sent()]


def test_coils_when_written_then_functions_5_and_15_and_read_back_with_1(play: Play, tmp_path: Path) -> None:
    async def life(lab: Lab) -> None:
        assert (await lab.ask("reg.write", register="toy.C[1]", value=1, key=KEY)).verdict == "applied"
        assert (await lab.ask("reg.write", register="toy.W", value=0x201, key=KEY2)).verdict == "applied"
        assert (lab.chip().values["C[1]"], lab.chip().values["W"]) == (1, 0x201)
        assert bits_sent(lab) == [
            ("read", 1, "0x03", None, 1),
            ("write", 5, "0x03", "01", 1),
            ("read", 1, "0x03", None, 1),
            ("read", 1, "0x08", None, 10),
            ("write", 15, "0x08", "0102", 10),
            ("read", 1, "0x08", None, 10),
        ]

    play(life, toy_board(tmp_path, *COILS, head=COILS_HEAD))


def test_coils_when_read_then_each_in_its_own_request(play: Play, tmp_path: Path) -> None:
    async def life(lab: Lab) -> None:
        lab.chip().values |= {"D": 0x201, "C[0]": 1, "C[2]": 1}
        done = await lab.ask("reg.read", registers=["toy.C[0]", "toy.C[1]", "toy.C[2]", "toy.D"])
        assert raws(done) == ["0x1", "0x0", "0x1", "0x201"]
        assert {(do, function) for do, function, *_ in bits_sent(lab)} == {("read", 1), ("read", 2)}

    play(life, toy_board(tmp_path, *COILS, head=COILS_HEAD))


def test_discrete_input_when_written_then_refused(play: Play, tmp_path: Path) -> None:
    async def life(lab: Lab) -> None:
        refused = await lab.ask("reg.write", register="toy.D", value=1, key=KEY3)
        assert (code_of(refused), error_of(refused)["rule"], lab.sent()) == ("refused", "read_only", [])
        assert lab.device().contract.registers["D"].space is Space.DISCRETE

    play(life, toy_board(tmp_path, *COILS, head=COILS_HEAD))


# --- no offset at all, MDIO, increment bits ---------------------------------------------------------------------


def test_offset_of_no_bytes_when_written_then_the_byte_alone(play: Play, tmp_path: Path) -> None:
    async def life(lab: Lab) -> None:
        done = await lab.ask("reg.write", register="toy.CONTROL", value=0x04, key=KEY)
        assert (done.verdict, done.effects) == ("applied", "applied")
        assert [(t["do"], t["offset_bytes"], t.get("data")) for t in lab.sent()] == [
            ("read", 0, None),
            ("write", 0, "04"),
            ("read", 0, None),
        ]
        updated = await lab.ask("reg.update", register="toy.CONTROL", fields={"B0": "on"}, key=KEY2)
        assert (updated.verdict, lab.chip().values["CONTROL"]) == ("applied", 0x05)
        refused = await lab.ask("reg.write", register="toy.CONTROL", value=0x10, key=KEY3)
        assert error_of(refused)["rule"] in ("outside_mask", "reserved_bits")

    play(life, chip_board(tmp_path, "pca9546", 0x70))


def test_pcf8574_when_the_latch_is_updated_then_by_its_shadow_and_the_pins_are_not_read(
    play: Play, tmp_path: Path
) -> None:
    async def life(lab: Lab) -> None:
        refused = await lab.ask("reg.update", register="toy.LATCH", fields={"P0": 0}, key=KEY)
        assert error_of(refused)["rule"] == "no_shadow"
        assert (await lab.ask("reg.write", register="toy.LATCH", value=0xF0, key=KEY)).ok
        assert (await lab.ask("reg.update", register="toy.LATCH", fields={"P0": 1}, key=KEY2)).ok
        assert traffic(lab) == [("W", "0x20:0x00", "f0"), ("W", "0x20:0x00", "f1")]
        assert lab.reads("PINS") == 0

    play(life, chip_board(tmp_path, "pcf8574", 0x20))


def test_mdio_when_bmsr_is_read_twice_then_the_drop_first_and_then_the_present_state(
    play: Play, tmp_path: Path
) -> None:
    async def life(lab: Lab) -> None:
        lab.chip().values["BMSR"] = 0x0020
        lab.chip().present["BMSR"] = 0x0024
        assert error_of(await lab.ask("reg.read", registers=["toy.BMSR"]))["rule"] == "read_has_side_effects"
        first = await lab.ask("reg.read_effectful", register="toy.BMSR", key=KEY)
        second = await lab.ask("reg.read_effectful", register="toy.BMSR", key=KEY2)
        assert (raws(first), raws(second)) == (["0x0020"], ["0x0024"])
        assert lab.reads("BMSR") == 2

    play(life, chip_board(tmp_path, "ethernet_phy_c22", 3))
