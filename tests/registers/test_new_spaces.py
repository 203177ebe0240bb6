"""Plans, layouts and values of opcodes, memories, lines, coils, MDIO and SPI: the exact transfers."""

from __future__ import annotations

from decimal import Decimal

import pytest
from hypothesis import given
from hypothesis import strategies as st

from hwtool_contracts.judge_write import UpdateJudgement, judge_update
from hwtool_contracts.library import bundled
from hwtool_contracts.messages import ValueObject
from hwtool_contracts.model import (
    Alias,
    ByteOrder,
    Contract,
    Crc,
    Encoding,
    Quantity,
    Register,
    Space,
)
from hwtool_contracts.native import parse_contract
from hwtool_registers.bits import Layout, from_bytes, insert, to_bytes
from hwtool_registers.bus import Line, Message, RegisterRead, RegisterWrite, Transfer, as_object, from_object
from hwtool_registers.crc import crc8, with_crc, without_crc
from hwtool_registers.plan import (
    pieces_of,
    plan_alias_write,
    plan_block_read,
    plan_block_write,
    plan_read,
    plan_write,
    selectors,
    updated_value,
)
from hwtool_registers.steps import Plan
from hwtool_registers.value import Slot, ValueFault, as_text, decode, encode

HEAD = 'schema = 1\npart = "toy"\nvendor = "nobody"\ntitle = "a toy"\nsource = "the test"\n'
NONE = "read = { effects = ['none'], provenance = 'generated', source = 'rtl' }\n"
STORE = "write = { effect = 'store', provenance = 'generated', source = 'rtl' }\n"
DEFAULTS = f"[defaults]\n{NONE}{STORE}"


def contract_of(access: str, *parts: str, defaults: str = DEFAULTS) -> Contract:
    return parse_contract(HEAD + access + "\n" + defaults + "\n".join(parts), "toy.toml")


def i2c(rest: str = "", offset_bytes: int = 1) -> str:
    i2c = "[access.i2c]\naddresses = [0x50]\nauto_increment = 'both'\n"
    return f"[access]\noffset_bytes = {offset_bytes}\nbyte_order = 'big'\n{i2c}{rest}"


def sent(plan: Plan) -> list[Transfer]:
    return [s.transfer for s in plan.steps]


def of(contract: Contract, *names: str) -> list[Register]:
    return [contract.registers[n] for n in names]


# --- opcodes ----------------------------------------------------------------------------------------------------

SHT, FLASH, SUPPLY = bundled("sht3x"), bundled("w25q128"), bundled("tdk_genesys_gh")
COMMANDS: dict[str, tuple[Contract, str, int | None, Message]] = {
    "two bytes of code, no data": (SHT, "MEASURE_HIGH", 0, Message(0x44, b"\x24\x00", 0)),
    "no code at all": (SHT, "READ_RESULT", None, Message(0x44, b"", 6)),
    "a word with its CRC": (SHT, "WRITE_ALERT_HIGH_SET", 0xBEEF, Message(0x44, b"\x61\x1d\xbe\xef\x92", 0)),
    "a word read with its CRC": (SHT, "READ_ALERT_LOW_SET", None, Message(0x44, b"\xe1\x02", 3)),
    "one byte of code": (FLASH, "WRITE_ENABLE", 0, Message(0x44, b"\x06", 0)),
    "code and answer": (FLASH, "JEDEC_ID", None, Message(0x44, b"\x9f", 3)),
    "code and address": (FLASH, "SECTOR_ERASE", 0x012000, Message(0x44, b"\x20\x01\x20\x00", 0)),
    "code, address, data": (FLASH, "PROGRAM_BYTE", 0x012000AB, Message(0x44, b"\x02\x01\x20\x00\xab", 0)),
}


@pytest.mark.parametrize(("contract", "name", "value", "wanted"), COMMANDS.values(), ids=list(COMMANDS))
def test_command_when_planned_then_one_message(
    contract: Contract, name: str, value: int | None, wanted: Message
) -> None:
    register = contract.registers[name]
    plan = (
        plan_read(contract, 0x44, [register], {})
        if value is None
        else plan_write(contract, 0x44, [(register, value)], {})
    )
    assert sent(plan) == [wanted]


def test_command_when_it_has_dummy_bytes_then_zeros_stand_between_code_and_answer() -> None:
    contract = contract_of(
        "[access]\noffset_bytes = 3\nbyte_order = 'big'\n[access.spi]\n",
        "[commands.FAST]\ncode = 0x0b\ncode_bytes = 1\ndummy_bytes = 2\nread_bytes = 2\n",
    )
    plan = plan_read(contract, 0, of(contract, "FAST"), {})
    assert sent(plan) == [Message(0, b"\x0b\x00\x00", 2)]
    assert pieces_of(plan, contract, [b"\x12\x34"]) == {"FAST": [0x1234]}


def test_command_when_duplex_then_its_answer_begins_with_the_code() -> None:
    contract = contract_of(
        "[access]\noffset_bytes = 1\nbyte_order = 'big'\n[access.spi]\n",
        "[commands.ADC]\ncode = 0x018000\ncode_bytes = 3\nread_bytes = 3\nduplex = true\n",
    )
    plan = plan_read(contract, 0, of(contract, "ADC"), {})
    assert sent(plan) == [Message(0, b"\x01\x80\x00", 3, duplex=True)]
    assert from_object(as_object(sent(plan)[0])) == sent(plan)[0]
    assert pieces_of(plan, contract, [b"\x00\x02\xaa"]) == {"ADC": [0x2AA]}


def test_command_when_its_code_bytes_are_not_said_then_those_of_an_offset() -> None:
    contract = contract_of(i2c(offset_bytes=2), "[commands.C]\ncode = 0x1234\n")
    assert sent(plan_write(contract, 0x50, [(contract.registers["C"], 0)], {})) == [Message(0x50, b"\x12\x34", 0)]


CRC = Crc(0x31, 0xFF, 2)


def test_crc_when_of_the_sheet_then_as_printed() -> None:
    assert crc8(CRC, b"\xbe\xef") == 0x92  # SHT3x-DIS 4.12
    assert with_crc(CRC, b"\xbe\xef\xbe\xef") == b"\xbe\xef\x92\xbe\xef\x92"


@given(st.binary(min_size=2, max_size=8).filter(lambda b: len(b) % 2 == 0), st.integers(0, 95))
def test_crc_when_any_bit_is_wrong_then_no_value(data: bytes, at: int) -> None:
    whole = bytearray(with_crc(CRC, data))
    assert without_crc(CRC, bytes(whole)) == data
    whole[at % (8 * len(whole)) // 8] ^= 1 << at % 8
    with pytest.raises(ValueError, match="wrong CRC"):
        without_crc(CRC, bytes(whole))


def test_crc_when_the_answer_ends_before_it_then_said() -> None:
    with pytest.raises(ValueError, match="nothing"):
        without_crc(CRC, b"\xbe\xef")


def test_answer_with_a_wrong_crc_when_taken_apart_then_no_value() -> None:
    plan = plan_read(SHT, 0x44, of(SHT, "STATUS"), {})
    assert sent(plan) == [RegisterRead(0x44, Space.MEMORY, 0xF32D, 3, 2, stop=True)]
    assert pieces_of(plan, SHT, [b"\xbe\xef\x92"]) == {"STATUS": [0xBEEF]}
    with pytest.raises(ValueError, match="wrong CRC"):
        pieces_of(plan, SHT, [b"\xbe\xef\x93"])
    with pytest.raises(ValueError, match="3 bytes were asked for"):
        pieces_of(plan, SHT, [b"\xbe\xef"])


def test_layout_when_of_a_register_with_crc_or_text_then_it_comes_back_from_its_object() -> None:
    for register in (SHT.registers["STATUS"], *SUPPLY.registers.values()):
        layout = Layout.of(register)
        assert Layout.from_object(layout.as_object()) == layout
        assert layout.size_bytes == register.size_bytes
    assert Layout(8, Space.MEMORY, ByteOrder.BIG, ByteOrder.BIG).size_bytes == 1


# --- memories ---------------------------------------------------------------------------------------------------

E32, E16 = bundled("at24c32"), bundled("at24c16")


def reading(address: int, offset: int, size: int, offset_bytes: int) -> RegisterRead:
    return RegisterRead(address, Space.MEMORY, offset, size, offset_bytes)


def writing(address: int, offset: int, data: str, offset_bytes: int) -> RegisterWrite:
    return RegisterWrite(address, Space.MEMORY, offset, bytes.fromhex(data), offset_bytes)


def test_memory_when_read_then_one_transfer_whatever_its_pages() -> None:
    plan = plan_read(E32, 0x50, of(E32, "DATA[16:100]"), {})
    assert sent(plan) == [reading(0x50, 0x10, 100, 2)]


def test_memory_when_written_over_pages_then_a_transfer_a_page() -> None:
    register = E32.registers["DATA[30:36]"]
    data = bytes(range(36))
    plan = plan_write(E32, 0x50, [(register, int.from_bytes(data, "big"))], {})
    assert sent(plan) == [
        writing(0x50, 30, data[:2].hex(), 2),
        writing(0x50, 32, data[2:34].hex(), 2),
        writing(0x50, 64, data[34:].hex(), 2),
    ]
    assert plan.may_be_partial


@given(st.integers(0, 4095), st.integers(1, 200))
def test_memory_when_written_anywhere_then_no_transfer_crosses_a_page_and_nothing_is_lost(at: int, size: int) -> None:
    size = min(size, 4096 - at)
    data = bytes(i & 0xFF for i in range(size))
    plan = plan_write(E32, 0x50, [(E32.registers[f"DATA[{at}:{size}]"], int.from_bytes(data, "big"))], {})
    cells: dict[int, int] = {}
    for transfer in sent(plan):
        assert isinstance(transfer, RegisterWrite)
        assert transfer.offset // 32 == (transfer.offset + len(transfer.data) - 1) // 32
        cells |= {transfer.offset + i: byte for i, byte in enumerate(transfer.data)}
    assert cells == {at + i: byte for i, byte in enumerate(data)}


ADDRESSES = {"first block": (0, 0x50, 0x00), "second": (256, 0x51, 0x00), "last byte": (2047, 0x57, 0xFF)}


@pytest.mark.parametrize(("at", "address", "offset"), ADDRESSES.values(), ids=list(ADDRESSES))
def test_memory_when_its_high_bits_stand_in_the_address_then_they_do(at: int, address: int, offset: int) -> None:
    register = E16.registers[f"DATA[{at}:1]"]
    assert sent(plan_read(E16, 0x50, [register], {})) == [reading(address, offset, 1, 1)]
    assert sent(plan_write(E16, 0x50, [(register, 0xAB)], {})) == [writing(address, offset, "ab", 1)]


SLICES = {
    "inside": ("DATA[0:256]", True),
    "hex": ("DATA[0x10:0x10]", True),
    "over a block": ("DATA[255:2]", False),
    "past the end": ("DATA[2040:9]", False),
    "nothing": ("DATA[0:0]", False),
    "no such memory": ("DATE[0:1]", False),
    "not a slice": ("DATA[0]", False),
    "the memory itself": ("DATA", False),
    "negative": ("DATA[-1:1]", False),
}


@pytest.mark.parametrize(("name", "there"), SLICES.values(), ids=list(SLICES))
def test_slice_when_asked_for_then_only_what_one_request_can_have(name: str, there: bool) -> None:
    assert (name in E16.registers) is there
    assert (E16.registers.get(name) is not None) is there
    assert list(E16.registers) == []
    assert len(E16.registers) == 0
    if not there:
        with pytest.raises(KeyError):
            E16.registers[name]


def test_slice_when_longer_than_a_request_then_none() -> None:
    assert "FLASH[0:4096]" in FLASH.registers
    assert "FLASH[0:4097]" not in FLASH.registers
    assert dict(E16.registers) == {}


def test_memory_behind_an_opcode_when_read_then_code_and_address_in_one_message() -> None:
    plan = plan_read(FLASH, 0, of(FLASH, "FLASH[0x012345:16]"), {})
    assert sent(plan) == [Message(0, b"\x03\x01\x23\x45", 16)]
    assert pieces_of(plan, FLASH, [bytes(range(16))]) == {"FLASH[74565:16]": [int.from_bytes(bytes(range(16)), "big")]}


def test_increment_mask_when_several_bytes_are_moved_then_it_is_in_the_offset() -> None:
    contract = contract_of(
        i2c("increment_mask = 0x80"),
        "[registers.X]\noffset = 0x28\nwidth_bits = 16\naccess = 'rw'\n",
        "[registers.ONE]\noffset = 0x20\naccess = 'rw'\n",
        "[registers.TWO]\noffset = 0x21\naccess = 'rw'\n",
    )
    x, one, two = of(contract, "X", "ONE", "TWO")
    assert sent(plan_read(contract, 0x50, [x], {})) == [reading(0x50, 0xA8, 2, 1)]
    assert sent(plan_write(contract, 0x50, [(x, 0x1234)], {})) == [writing(0x50, 0xA8, "1234", 1)]
    assert sent(plan_read(contract, 0x50, [one], {})) == [reading(0x50, 0x20, 1, 1)]
    assert sent(plan_write(contract, 0x50, [(one, 1)], {})) == [writing(0x50, 0x20, "01", 1)]
    assert sent(plan_block_read(contract, 0x50, [one, two], {})) == [reading(0x50, 0xA0, 2, 1)]
    assert sent(plan_block_write(contract, 0x50, [(one, 1), (two, 2)], {})) == [writing(0x50, 0xA0, "0102", 1)]


def test_offset_of_no_bytes_when_planned_then_said_in_the_transfer() -> None:
    mux = bundled("pca9546")
    assert sent(plan_read(mux, 0x70, of(mux, "CONTROL"), {})) == [reading(0x70, 0, 1, 0)]
    assert sent(plan_write(mux, 0x70, [(mux.registers["CONTROL"], 4)], {})) == [writing(0x70, 0, "04", 0)]


def test_mdio_when_planned_then_a_register_number_and_two_bytes() -> None:
    phy = bundled("ethernet_phy_c22")
    assert sent(plan_read(phy, 3, of(phy, "BMSR"), {})) == [RegisterRead(3, Space.MEMORY, 1, 2, 1)]
    assert sent(plan_write(phy, 3, [(phy.registers["BMCR"], 0x8000)], {})) == [
        RegisterWrite(3, Space.MEMORY, 0, b"\x80\x00", 1)
    ]


# --- lines ------------------------------------------------------------------------------------------------------

LINES: dict[str, tuple[str, int | None, str]] = {
    "query": ("VOLT", None, "VOLT?"),
    "set in its unit": ("VOLT", 12_345, "VOLT 12.345"),
    "set a whole number": ("VOLT", 12_000, "VOLT 12"),
    "set zero": ("VOLT", 0, "VOLT 0"),
    "set below zero": ("VOLT", (1 << 32) - 500, "VOLT -0.5"),
    "set many": ("VOLT", 1_000_000, "VOLT 1000"),
    "set without a value": ("CLS", 0, "*CLS"),
}


@pytest.mark.parametrize(("name", "value", "text"), LINES.values(), ids=list(LINES))
def test_line_when_planned_then_its_text(name: str, value: int | None, text: str) -> None:
    register = SUPPLY.registers[name]
    plan = plan_read(SUPPLY, 0, [register], {}) if value is None else plan_write(SUPPLY, 0, [(register, value)], {})
    assert sent(plan) == [Line(text, value is None)]


def test_line_when_a_raw_value_of_text_has_a_line_end_then_no_line_is_made_of_it() -> None:
    contract = contract_of(
        "[access]\n[access.line]\n",
        "[registers.NAME]\nset = 'NAME {value}'\naccess = 'wo'\nwidth_bits = 128\nencoding = 'text'\n",
    )
    register = contract.registers["NAME"]
    raw = int.from_bytes(b"A\nOUTP 1", "big")
    with pytest.raises(ValueFault, match="printable"):
        encode(Slot(128, register.quantity, {}), raw)
    with pytest.raises(ValueError, match="line"):  # and if it got there all the same
        plan_write(contract, 0, [(register, raw)], {})


ANSWERS: dict[str, tuple[str, bytes, int | str]] = {
    "in its unit": ("VOLT", b"12.345", 12_345),
    "with blanks": ("VOLT", b" +12.5 \r", 12_500),
    "below zero": ("VOLT", b"-0.5", (1 << 32) - 500),
    "exponent": ("VOLT", b"1.2E+1", 12_000),
    "between two": ("VOLT", b"12.3456", "no multiple"),
    "not a number": ("VOLT", b"ERR", "no number"),
    "infinite": ("VOLT", b"INF", "no multiple"),
    "too large": ("VOLT", b"9999999", "does not fit"),
    "not ascii": ("VOLT", b"\xff", "ascii"),
    "text": ("IDN", b"TDK,GH", int.from_bytes(b"TDK,GH", "big")),
    "too long a text": ("IDN", b"x" * 129, "129 characters came, 128 fit"),
}


@pytest.mark.parametrize(("name", "data", "wanted"), ANSWERS.values(), ids=list(ANSWERS))
def test_line_when_answered_then_the_raw_value_or_why_there_is_none(name: str, data: bytes, wanted: int | str) -> None:
    plan = plan_read(SUPPLY, 0, of(SUPPLY, name), {})
    if isinstance(wanted, int):
        assert pieces_of(plan, SUPPLY, [data]) == {name: [wanted]}
    else:
        with pytest.raises(ValueError, match=wanted):
            pieces_of(plan, SUPPLY, [data])


@given(st.integers(-(1 << 31), (1 << 31) - 1))
def test_line_when_a_number_goes_out_and_comes_back_then_it_is_the_same(number: int) -> None:
    register, raw = SUPPLY.registers["VOLT"], number & 0xFFFF_FFFF
    assert from_bytes(register, to_bytes(register, raw)) == raw


def test_line_when_it_cannot_be_asked_or_set_then_an_error_and_no_line() -> None:
    with pytest.raises(ValueError, match="no query"):
        plan_read(SUPPLY, 0, of(SUPPLY, "CLS"), {})
    with pytest.raises(ValueError, match="cannot be set"):
        plan_write(SUPPLY, 0, [(SUPPLY.registers["ESR"], 0)], {})


# --- coils ------------------------------------------------------------------------------------------------------


def coils(functions: str, *parts: str) -> Contract:
    return contract_of(
        f"[access]\noffset_bytes = 2\nbyte_order = 'big'\n[access.modbus]\nbase = 0\n{functions}\n", *parts
    )


COIL = "[registers.C]\noffset = 4\nspace = 'coil'\naccess = 'rw'\n"
WIDE = "[registers.W]\noffset = 3\nspace = 'coil'\nwidth_bits = 10\naccess = 'rw'\n"
INPUT = "[registers.D]\noffset = 7\nspace = 'discrete'\nwidth_bits = 3\naccess = 'ro'\n"
COILS: dict[str, tuple[str, str, int | None, Transfer]] = {
    "one coil read": ("", "C", None, RegisterRead(9, Space.COIL, 4, 1, 2, 1, 1)),
    "ten coils read": ("", "W", None, RegisterRead(9, Space.COIL, 3, 2, 2, 1, 10)),
    "inputs read": ("", "D", None, RegisterRead(9, Space.DISCRETE, 7, 1, 2, 2, 3)),
    "one on": ("", "C", 1, RegisterWrite(9, Space.COIL, 4, b"\x01", 2, 5, True, 1)),
    "one off": ("", "C", 0, RegisterWrite(9, Space.COIL, 4, b"\x00", 2, 5, True, 1)),
    "one without function 5": (
        "functions = [1, 2, 15]",
        "C",
        1,
        RegisterWrite(9, Space.COIL, 4, b"\1", 2, 15, False, 1),
    ),
    "ten": ("", "W", 0x201, RegisterWrite(9, Space.COIL, 3, b"\x01\x02", 2, 15, False, 10)),
    "ten, atomic": ("atomic_multi = true", "W", 1, RegisterWrite(9, Space.COIL, 3, b"\x01\x00", 2, 15, True, 10)),
}


@pytest.mark.parametrize(("functions", "name", "value", "wanted"), COILS.values(), ids=list(COILS))
def test_coils_when_planned_then_function_quantity_and_bits(
    functions: str, name: str, value: int | None, wanted: Transfer
) -> None:
    contract = coils(functions, COIL, WIDE, INPUT)
    register = contract.registers[name]
    plan = plan_read(contract, 9, [register], {}) if value is None else plan_write(contract, 9, [(register, value)], {})
    assert sent(plan) == [wanted]
    assert from_object(as_object(wanted)) == wanted


def test_coils_when_answered_then_bits_past_the_quantity_do_not_count() -> None:
    contract = coils("", WIDE)
    plan = plan_read(contract, 9, of(contract, "W"), {})
    assert pieces_of(plan, contract, [b"\x01\xfe"]) == {"W": [0x201]}


# --- one storage, several addresses -----------------------------------------------------------------------------


def aliased(rest: str, access: str = "rw") -> Contract:
    fields = "[registers.R.fields]\nHIGH = { bits = '7:4' }\nLOW = { bits = '3:0' }\n"
    return contract_of(i2c(), f"[registers.R]\noffset = 0\naccess = '{access}'\n{rest}\n{fields}")


@pytest.mark.parametrize("access", ["rw", "wo"])
def test_update_when_there_are_addresses_that_set_and_clear_then_nothing_is_needed(access: str) -> None:
    contract = aliased("set_at = 4\nclear_at = 5", access)
    register = contract.registers["R"]
    assert judge_update(contract, register, frozenset({"LOW"})) == UpdateJudgement(False, 0, 0, "alias")
    assert (register.set_at, register.clear_at, register.aliases) == (Alias(4), Alias(5), (4, 5))
    both = plan_alias_write(contract, 0x50, register, 0x5, 0x0F, {})
    assert sent(both) == [writing(0x50, 4, "05", 1), writing(0x50, 5, "0a", 1)]
    assert both.may_be_partial
    assert sent(plan_alias_write(contract, 0x50, register, 0xF, 0x0F, {})) == [writing(0x50, 4, "0f", 1)]
    assert sent(plan_alias_write(contract, 0x50, register, 0x0, 0x0F, {})) == [writing(0x50, 5, "0f", 1)]


def test_update_when_there_is_one_of_the_two_alone_then_as_without() -> None:
    contract = aliased("set_at = 4")
    judged = judge_update(contract, contract.registers["R"], frozenset({"LOW"}))
    assert judged == UpdateJudgement(True, 0, 0xF0)
    with pytest.raises(ValueError, match="no addresses"):
        plan_alias_write(contract, 0x50, contract.registers["R"], 1, 1, {})


def test_update_when_there_is_one_that_toggles_then_the_current_value_is_needed() -> None:
    contract = aliased("toggle_at = 6")
    assert judge_update(contract, contract.registers["R"], frozenset({"LOW"})) == UpdateJudgement(True, 0, 0, "alias")
    assert sent(plan_alias_write(contract, 0x50, contract.registers["R"], 3, 0x0F, {})) == [writing(0x50, 6, "03", 1)]


def test_update_when_there_is_a_mask_half_then_its_bits_are_written_too() -> None:
    contract = contract_of(
        i2c(),
        "[registers.R]\noffset = 0\nwidth_bits = 16\naccess = 'wo'\nwrite_mask_bits = '15:8'\n",
        "[registers.R.fields]\nHIGH = { bits = '7:4' }\nLOW = { bits = '3:0' }\n",
    )
    register = contract.registers["R"]
    judged = judge_update(contract, register, frozenset({"LOW"}))
    assert judged == UpdateJudgement(False, 0x0F00, 0, "mask")
    assert isinstance(judged, UpdateJudgement)
    assert updated_value(register, judged, None, {"LOW": 5}) == 0x0F05


def test_banked_alias_when_planned_then_selected_and_set_back_around_it() -> None:
    contract = contract_of(
        i2c(),
        "[banks.ONE]\nselect = [{ register = 'SEL', value = 1, mask = 0x0f }]\n",
        "[registers.SEL]\noffset = 9\naccess = 'rw'\n",
        "[registers.R]\noffset = 0\naccess = 'rw'\nbank = 'ONE'\nset_at = 4\nclear_at = 5\n",
    )
    register = contract.registers["R"]
    assert [r.name for r in selectors(contract, register)] == ["SEL"]
    plan = plan_alias_write(contract, 0x50, register, 0x01, 0x03, {"SEL": 0xA0})
    assert sent(plan) == [
        writing(0x50, 9, "a1", 1),
        writing(0x50, 4, "01", 1),
        writing(0x50, 5, "02", 1),
        writing(0x50, 9, "a0", 1),
    ]


# --- parts of a field -------------------------------------------------------------------------------------------

CALIB = bundled("bme280").registers["DIG_H4_H5"]


@given(st.integers(0, 0xFFFFFF), st.integers(0, 0xFFF))
def test_parts_when_put_in_then_they_come_out_and_the_others_stay(raw: int, part: int) -> None:
    h4, h5 = CALIB.fields["H4"], CALIB.fields["H5"]
    assert (h4.width_bits, h4.mask, h5.mask) == (12, 0xFF0F00, 0x00F0FF)
    made = insert(raw, h4, part)
    assert (h4.taken(made), h5.taken(made)) == (part, h5.taken(raw))


def test_parts_when_as_the_sheet_has_them_then_e4_is_the_high_byte() -> None:
    assert (CALIB.fields["H4"].taken(0x14_2E_03), CALIB.fields["H5"].taken(0x14_2E_03)) == (0x14E, 0x032)


# --- encodings --------------------------------------------------------------------------------------------------


def slot(encoding: Encoding, width: int = 16, exponent: int | None = None, scale: str | None = None) -> Slot:
    quantity = Quantity(encoding, None if scale is None else Decimal(scale), None, "V")
    return Slot(width, quantity, {}, exponent)


LINEAR11: dict[str, tuple[int, str]] = {
    "zero": (0x0000, "0"),
    "one": (0x0001, "1"),
    "minus one": (0x07FF, "-1"),
    "halves": (0xF801, "0.5"),
    "twos": (0x0801, "2"),
    "of a sheet": (0xD2F0, "11.75"),  # exponent -6, mantissa 752
    "smallest": (0x8001, str(Decimal(1) / 65536)),
}


@pytest.mark.parametrize(("raw", "number"), LINEAR11.values(), ids=list(LINEAR11))
def test_linear11_when_decoded_then_mantissa_times_a_power_of_two(raw: int, number: str) -> None:
    assert decode(slot(Encoding.LINEAR11), raw) == Decimal(number)


@given(st.integers(0, 0xFFFF))
def test_linear11_when_decoded_and_encoded_then_the_same_number(raw: int) -> None:
    place = slot(Encoding.LINEAR11)
    number = decode(place, raw)
    again = encode(place, ValueObject(scaled=str(number), unit="V"))
    assert decode(place, again) == number


def test_linear11_when_it_cannot_be_held_then_refused_or_rounded_if_asked() -> None:
    place = slot(Encoding.LINEAR11)
    with pytest.raises(ValueFault, match="nearest"):
        encode(place, ValueObject(scaled="1000.3", unit="V"))
    rounded = encode(place, ValueObject(scaled="1000.3", unit="V", round="nearest"))
    assert decode(place, rounded) == Decimal("1000")
    with pytest.raises(ValueFault, match="eleven bits"):
        encode(place, ValueObject(scaled="1e9", unit="V"))


@pytest.mark.parametrize(("exponent", "number"), [(-12, "1.2001953125"), (0, "4916"), (2, "19664")])
def test_linear16_when_decoded_then_by_the_exponent(exponent: int, number: str) -> None:
    place = slot(Encoding.LINEAR16, exponent=exponent)
    assert decode(place, 4916) == Decimal(number)
    assert encode(place, ValueObject(scaled=number, unit="V")) == 4916


def test_linear16_when_the_exponent_is_not_known_then_no_number() -> None:
    place = Slot(16, Quantity(Encoding.LINEAR16, unit="V", exponent_from="MODE"), {})
    assert decode(place, 1) is None
    with pytest.raises(ValueFault, match="MODE holds the exponent"):
        encode(place, ValueObject(scaled="1", unit="V"))


def test_scale_when_another_register_chooses_it_then_it_is_used_and_without_it_refused() -> None:
    quantity = Quantity(unit="g", scale_from="FS", scales={0: Decimal("0.5"), 1: Decimal(2)})
    assert decode(Slot(8, quantity, {}, scale=Decimal(2)), 3) == 6
    assert encode(Slot(8, quantity, {}, scale=Decimal(2)), ValueObject(scaled="6", unit="g")) == 3
    with pytest.raises(ValueFault, match="FS chooses the scale"):
        encode(Slot(8, quantity, {}), ValueObject(scaled="6", unit="g"))


TEXTS: dict[str, tuple[Encoding, ValueObject, int | str]] = {
    "text": (Encoding.TEXT, ValueObject(text="AB"), 0x4142),
    "one letter": (Encoding.TEXT, ValueObject(text="A"), 0x41),
    "too long": (Encoding.TEXT, ValueObject(text="ABC"), "1 to 2 printable"),
    "empty": (Encoding.TEXT, ValueObject(text=""), "1 to 2 printable"),
    "not printable": (Encoding.TEXT, ValueObject(text="\n"), "1 to 2 printable"),
    "not ascii": (Encoding.TEXT, ValueObject(text="ä"), "1 to 2 printable"),
    "number for text": (Encoding.TEXT, ValueObject(scaled="1", unit="V"), "text"),
    "hex for text": (Encoding.TEXT, ValueObject(hex="4142"), "hex is for memories"),
    "text for a number": (Encoding.UNSIGNED, ValueObject(text="AB"), "text is for registers of text"),
    "hex": (Encoding.BYTES, ValueObject(hex="0102"), 0x0102),
    "hex with blanks": (Encoding.BYTES, ValueObject(hex="01 02"), 0x0102),
    "hex too short": (Encoding.BYTES, ValueObject(hex="01"), "exactly 2 byte"),
    "no hex": (Encoding.BYTES, ValueObject(hex="0g"), "hex digits"),
    "number for bytes": (Encoding.BYTES, ValueObject(scaled="1", unit="V"), "bytes, as hex"),
    "text for bytes": (Encoding.BYTES, ValueObject(text="AB"), "text is for registers of text"),
    "decimal": (Encoding.DECIMAL, ValueObject(scaled="-2", unit="V"), 0xFFFE),
    "decimal too far": (Encoding.DECIMAL, ValueObject(scaled="40000", unit="V"), "-32768 to 32767"),
}


@pytest.mark.parametrize(("encoding", "given_", "wanted"), TEXTS.values(), ids=list(TEXTS))
def test_value_when_given_as_text_or_hex_then_bits_or_why_not(
    encoding: Encoding, given_: ValueObject, wanted: int | str
) -> None:
    if isinstance(wanted, int):
        assert encode(slot(encoding), given_) == wanted
    else:
        with pytest.raises(ValueFault, match=wanted):
            encode(slot(encoding), given_)


def test_text_when_shown_then_what_fills_it_up_is_left_out() -> None:
    place = slot(Encoding.TEXT, 32)
    assert as_text(place, int.from_bytes(b"AB \0", "big")) == "AB"
    assert as_text(place, int.from_bytes(b"A\xff", "big")) == "A\\xff"
    assert as_text(place, 0) == ""
    assert decode(place, 5) is None
