"""What simulated chips answer to opcodes, memories, lines, coils and aliases; the frames of coils on a line."""

from __future__ import annotations

import pytest

from hwtool_contracts.library import bundled
from hwtool_contracts.model import Contract, Space
from hwtool_contracts.native import parse_contract
from hwtool_registers.bus import (
    Ambiguous,
    Answer,
    Confirmed,
    Line,
    Message,
    RegisterRead,
    RegisterWrite,
    Rejected,
    Transfer,
)
from hwtool_registers.buses.modbus import crc16, framed
from hwtool_sim.bus import SimBus, Taken
from hwtool_sim.chip import Chip, NotThere
from hwtool_sim.faults import Fault, FaultKind
from hwtool_sim.slave import NO_SUCH_FUNCTION, NO_SUCH_QUANTITY, length_of, replies_to, request_in
from tests.contracts.test_judge import reg, toy

HEAD = 'schema = 1\npart = "toy"\nvendor = "nobody"\ntitle = "a toy"\nsource = "the test"\n'
DEFAULTS = """
[defaults]
read = { effects = ["none"], provenance = "generated", source = "rtl" }
write = { effect = "store", provenance = "generated", source = "rtl" }
"""


def contract_of(access: str, *parts: str) -> Contract:
    return parse_contract(HEAD + access + DEFAULTS + "\n".join(parts), "toy.toml")


class Bench:
    """One chip on a simulated bus whose clock the test moves."""

    def __init__(self, contract: Contract, address: int) -> None:
        self.now_s = 0.0
        self.chip = Chip(contract)
        self.bus = SimBus({address: self.chip}, self._sleep, lambda: self.now_s)

    def _sleep(self, seconds: float) -> None:
        self.now_s += seconds

    def ask(self, transfer: Transfer) -> Answer:
        return self.bus.perform(transfer)


def rejected(answer: Answer) -> str:
    assert isinstance(answer, Rejected), answer
    return answer.proof


# --- opcodes ----------------------------------------------------------------------------------------------------


def test_message_when_a_command_is_known_then_it_acts_and_its_length_counts() -> None:
    bench = Bench(bundled("sht3x"), 0x44)
    assert bench.ask(Message(0x44, b"\x30\x6d", 0)) == Confirmed()
    assert bench.chip.executed == {("HEATER_ON", "write"): 1}
    assert bench.ask(Message(0x44, b"\x61\x1d\xbe\xef\x92", 0)) == Confirmed()
    assert bench.chip.values["WRITE_ALERT_HIGH_SET"] == 0xBEEF
    assert bench.chip.values["READ_ALERT_HIGH_SET"] == 0xBEEF  # where it is verified
    assert bench.ask(Message(0x44, b"\xe1\x1f", 3)) == Confirmed(b"\xbe\xef\x92")


NO_DATA = """
[commands.GO]
code = 0x06
write_bytes = 0
write = { effect = 'command', provenance = 'generated', signals = [{ register = 'ST', equals = 2 }], resets = 'device' }
[registers.ST]
offset = 0
access = 'ro'
"""


@pytest.mark.parametrize("resets", [False, True], ids=["its signal", "its restart"])
def test_message_when_a_command_has_no_data_then_it_does_what_its_contract_says(resets: bool) -> None:
    text = NO_DATA if resets else NO_DATA.replace(", resets = 'device'", "")
    bench = Bench(contract_of("[access]\noffset_bytes = 1\nbyte_order = 'big'\n[access.i2c]\n", text), 0x44)
    nonce = bench.chip.nonce
    assert bench.ask(Message(0x44, b"\x06", 0)) == Confirmed()
    assert bench.chip.pulses == {"GO": 1}
    assert (bench.chip.nonce != nonce) is resets
    assert resets or bench.chip.values["ST"] == 2


MESSAGES = {
    "no such code": b"\x77\x77",
    "too short a code": b"\x30",
    "data after a code that takes none": b"\x30\x6d\x00",
    "a word without its CRC": b"\x61\x1d\xbe\xef",
    "a wrong CRC": b"\x61\x1d\xbe\xef\x93",
    "nothing": b"",
}


@pytest.mark.parametrize("data", MESSAGES.values(), ids=list(MESSAGES))
def test_message_when_it_does_not_fit_then_rejected_and_nothing_happens(data: bytes) -> None:
    bench = Bench(bundled("sht3x"), 0x44)
    values = dict(bench.chip.values)
    assert rejected(bench.ask(Message(0x44, data, 0))) == "no-register"
    assert (bench.chip.executed, bench.chip.values) == ({}, values)


def test_message_when_more_is_asked_for_than_it_answers_then_rejected() -> None:
    bench = Bench(bundled("w25q128"), 0)
    assert bench.ask(Message(0, b"\x9f", 3)) == Confirmed(b"\xef\x40\x18")
    assert rejected(bench.ask(Message(0, b"\x9f", 4))) == "no-register"
    assert rejected(bench.ask(Message(0, b"\x9e", 3))) == "no-register"


def test_message_when_codes_have_different_lengths_then_the_longest_that_fits() -> None:
    contract = contract_of(
        "[access]\noffset_bytes = 1\nbyte_order = 'big'\n[access.i2c]\n",
        "[commands.SHORT]\ncode = 0x30\ncode_bytes = 1\nwrite_bytes = 1\n",
        "[commands.LONG]\ncode = 0x306d\ncode_bytes = 2\n",
        "[commands.SLOW]\ncode = 0x0b\ndummy_bytes = 2\nread_bytes = 1\nread = { effects = ['none'] }\n",
    )
    bench = Bench(contract, 0x44)
    bench.chip.values["SLOW"] = 7
    assert bench.ask(Message(0x44, b"\x30\x6d", 0)) == Confirmed()
    assert bench.ask(Message(0x44, b"\x30\x6e", 0)) == Confirmed()
    assert bench.chip.executed == {("LONG", "write"): 1, ("SHORT", "write"): 1}
    assert bench.chip.values["SHORT"] == 0x6E
    assert bench.ask(Message(0x44, b"\x0b\x00\x00", 1)) == Confirmed(b"\x07")
    assert rejected(bench.ask(Message(0x44, b"\x0b\x00", 1))) == "no-register"


def test_message_when_a_fault_is_planned_for_its_code_then_it_strikes_there() -> None:
    bench = Bench(bundled("sht3x"), 0x44)
    bench.bus.faults.append(Fault(FaultKind.REPLY_LOST, 0x44, access="write", offset=0x306D))
    assert bench.ask(Message(0x44, b"\x30\x66", 0)) == Confirmed()
    assert isinstance(bench.ask(Message(0x44, b"\x30\x6d", 0)), Ambiguous)
    assert bench.chip.executed == {("HEATER_OFF", "write"): 1, ("HEATER_ON", "write"): 1}


def test_message_when_a_reply_comes_late_then_it_passes_for_no_other_request() -> None:
    bench = Bench(bundled("sht3x"), 0x44)
    bench.bus.faults.append(Fault(FaultKind.LATE_REPLY, 0x44, access="read", late_s=0.5))
    assert isinstance(bench.ask(Message(0x44, b"\xe1\x1f", 3)), Ambiguous)
    bench.now_s = 0.4
    bench.bus.faults.clear()
    assert isinstance(bench.ask(Message(0x44, b"\xe1\x14", 3)), Confirmed | Ambiguous)


def test_register_with_crc_when_read_and_written_at_its_offset_then_words_with_their_crc() -> None:
    crc = "[access]\noffset_bytes = 1\nbyte_order = 'big'\n[access.i2c]\n"
    crc += "crc = { poly = 0x31, init = 0xff, word_bytes = 2 }\n"
    bench = Bench(contract_of(crc, "[registers.R]\noffset = 3\nwidth_bits = 16\naccess = 'rw'\n"), 0x44)
    assert bench.ask(RegisterWrite(0x44, Space.MEMORY, 3, b"\xbe\xef\x92")) == Confirmed()
    assert bench.chip.values["R"] == 0xBEEF
    assert bench.ask(RegisterRead(0x44, Space.MEMORY, 3, 3)) == Confirmed(b"\xbe\xef\x92")
    assert rejected(bench.ask(RegisterWrite(0x44, Space.MEMORY, 3, b"\xbe\xee\x92"))) == "no-register"
    assert bench.chip.values["R"] == 0xBEEF


# --- memories ---------------------------------------------------------------------------------------------------


def w32(offset: int, data: bytes) -> RegisterWrite:
    return RegisterWrite(0x50, Space.MEMORY, offset, data, 2)


def r32(offset: int, size: int) -> RegisterRead:
    return RegisterRead(0x50, Space.MEMORY, offset, size, 2)


def test_eeprom_when_new_then_erased_and_a_read_goes_round_at_the_end() -> None:
    bench = Bench(bundled("at24c32"), 0x50)
    assert bench.ask(r32(0, 3)) == Confirmed(b"\xff\xff\xff")
    bench.chip.memories["DATA"].cells[4095] = 1
    bench.chip.memories["DATA"].cells[0] = 2
    assert bench.ask(r32(4095, 2)) == Confirmed(b"\x01\x02")
    assert bench.chip.executed == {("DATA", "read"): 2}


def test_eeprom_when_written_past_its_page_then_the_bytes_go_on_at_the_pages_beginning() -> None:
    bench = Bench(bundled("at24c32"), 0x50)
    assert bench.ask(w32(30, b"abcd")) == Confirmed()
    cells = bench.chip.memories["DATA"].cells
    assert (bytes(cells[30:34]), bytes(cells[0:3])) == (b"ab\xff\xff", b"cd\xff")


def test_eeprom_when_it_is_writing_then_it_does_not_answer_for_five_milliseconds() -> None:
    bench = Bench(bundled("at24c32"), 0x50)
    assert bench.ask(w32(0, b"a")) == Confirmed()
    for at_s in (0.0, 0.0049):
        bench.now_s = at_s
        assert rejected(bench.ask(r32(0, 1))) == "address-nack"
        assert rejected(bench.ask(w32(0, b"b"))) == "address-nack"
    bench.now_s = 0.0051
    assert bench.ask(r32(0, 1)) == Confirmed(b"a")
    assert bench.chip.executed == {("DATA", "write"): 1, ("DATA", "read"): 1}


def test_eeprom_when_the_chip_restarts_then_the_bytes_stay() -> None:
    bench = Bench(bundled("at24c32"), 0x50)
    bench.ask(w32(0, b"a"))
    bench.chip.reset()
    assert bench.chip.memories["DATA"].cells[0] == ord("a")


def test_eeprom_when_high_bits_stand_in_the_address_then_it_answers_at_all_of_them() -> None:
    bench = Bench(bundled("at24c16"), 0x50)
    for block in range(8):
        write = RegisterWrite(0x50 + block, Space.MEMORY, 0x10, bytes([block]))
        assert bench.ask(write) == Confirmed()
        busy = RegisterRead(0x50 + (block + 1) % 8, Space.MEMORY, 0, 1)
        assert rejected(bench.ask(busy)) == "address-nack"  # at all eight
        bench.now_s += 0.006
    cells = bench.chip.memories["DATA"].cells
    assert [cells[256 * block + 0x10] for block in range(8)] == list(range(8))
    assert bench.ask(RegisterRead(0x53, Space.MEMORY, 0x10, 1)) == Confirmed(b"\x03")
    assert rejected(bench.ask(RegisterRead(0x58, Space.MEMORY, 0x10, 1))) == "address-nack"


def test_flash_when_read_behind_its_opcode_then_bytes_from_the_address_on() -> None:
    bench = Bench(bundled("w25q128"), 0)
    bench.chip.memories["FLASH"].cells[0x010203:0x010206] = b"abc"
    assert bench.ask(Message(0, b"\x03\x01\x02\x03", 4)) == Confirmed(b"abc\xff")
    assert bench.chip.executed == {("FLASH", "read"): 1}


MEMORY_FAULT = Fault(FaultKind.DATA_NACK, 0x50, access="write", after_bytes=2)


def test_eeprom_when_a_write_breaks_off_then_what_was_taken_is_written() -> None:
    bench = Bench(bundled("at24c32"), 0x50)
    bench.bus.faults.append(MEMORY_FAULT)
    assert isinstance(bench.ask(w32(0, b"abcd")), Ambiguous)
    assert bytes(bench.chip.memories["DATA"].cells[:4]) == b"ab\xff\xff"


# --- lines ------------------------------------------------------------------------------------------------------


def test_line_when_a_value_is_asked_for_and_set_then_its_text() -> None:
    bench = Bench(bundled("tdk_genesys_gh"), 0)
    assert bench.ask(Line("VOLT 12.5", False)) == Confirmed()
    assert bench.chip.values["VOLT"] == 12_500
    assert bench.ask(Line("VOLT?", True)) == Confirmed(b"12.5")
    assert bench.ask(Line("*IDN?", True)) == Confirmed(b"TDK-LAMBDA")


LINES = {
    "unknown": Line("CURR?", True),
    "asked without waiting": Line("VOLT?", False),
    "set and waited for": Line("VOLT 1", True),
    "no number": Line("VOLT ON", False),
    "too fine": Line("VOLT 1.2345", False),
    "more than it says": Line("*CLS 1", False),
    "not ascii": Line("VOLT ½", False),
}


@pytest.mark.parametrize("line", LINES.values(), ids=list(LINES))
def test_line_when_it_does_not_fit_then_rejected_and_nothing_happens(line: Line) -> None:
    bench = Bench(bundled("tdk_genesys_gh"), 0)
    assert rejected(bench.ask(line)) == "no-register"
    assert bench.chip.executed == {}


def test_line_when_the_value_stands_in_the_middle_then_it_is_taken_out() -> None:
    contract = contract_of(
        "[access]\n[access.line]\n", "[registers.P]\nset = 'P{value};'\naccess = 'wo'\nencoding = 'decimal'\n"
    )
    bench = Bench(contract, 0)
    assert bench.ask(Line("P42;", False)) == Confirmed()
    assert bench.chip.values["P"] == 42
    assert rejected(bench.ask(Line("P;", False))) == "no-register"
    assert rejected(bench.ask(Line("P", False))) == "no-register"


def test_line_when_no_chip_is_there_then_rejected() -> None:
    assert rejected(SimBus({}).perform(Line("*IDN?", True))) == "address-nack"


# --- coils ------------------------------------------------------------------------------------------------------

COILS = (
    "[registers.C]\noffset = 2\nspace = 'coil'\ncount = 3\nstride_bytes = 1\naccess = 'rw'\n",
    "[registers.W]\noffset = 5\nspace = 'coil'\nwidth_bits = 9\naccess = 'rw'\n",
    "[registers.D]\noffset = 2\nspace = 'discrete'\nwidth_bits = 10\naccess = 'ro'\n",
)
MODBUS = "[access]\noffset_bytes = 2\nbyte_order = 'big'\n[access.modbus]\nbase = 0\n"


def coil(rest: str = "") -> Bench:
    return Bench(contract_of(MODBUS + rest, *COILS), 9)


def test_coils_when_written_and_read_then_each_bit_is_its_own() -> None:
    bench = coil()
    assert bench.ask(RegisterWrite(9, Space.COIL, 3, b"\x01", 2, 5, True, 1)) == Confirmed()
    assert [bench.chip.values[f"C[{i}]"] for i in range(3)] == [0, 1, 0]
    assert bench.ask(RegisterWrite(9, Space.COIL, 4, b"\x07", 2, 15, False, 3)) == Confirmed()
    assert (bench.chip.values["C[2]"], bench.chip.values["W"]) == (1, 0x003)
    assert bench.chip.executed["W", "write"] == 1
    assert bench.ask(RegisterRead(9, Space.COIL, 2, 2, 2, 1, 12)) == Confirmed(b"\x1e\x00")
    assert bench.chip.executed["W", "read"] == 1  # a register is read once, however many of its bits
    assert bench.ask(RegisterWrite(9, Space.COIL, 6, b"\x00", 2, 5, True, 1)) == Confirmed()
    assert bench.chip.values["W"] == 0x001


def test_discrete_inputs_when_read_then_packed_and_never_written() -> None:
    bench = coil()
    bench.chip.values["D"] = 0x201
    assert bench.ask(RegisterRead(9, Space.DISCRETE, 2, 2, 2, 2, 10)) == Confirmed(b"\x01\x02")
    assert rejected(bench.ask(RegisterWrite(9, Space.DISCRETE, 2, b"\x01", 2, 5, True, 1))) == "no-register"


@pytest.mark.parametrize(("offset", "bits"), [(0, 1), (13, 2), (14, 1)])
def test_coils_when_one_of_them_is_not_there_then_nothing_is_read_or_written(offset: int, bits: int) -> None:
    bench = coil()
    assert rejected(bench.ask(RegisterRead(9, Space.COIL, offset, 1, 2, 1, bits))) == "no-register"
    assert rejected(bench.ask(RegisterWrite(9, Space.COIL, offset, b"\3", 2, 15, False, bits))) == "no-register"
    assert bench.chip.executed == {}


def test_coils_when_the_device_has_no_such_function_then_rejected() -> None:
    bench = coil("functions = [1, 2, 15]\n")
    assert rejected(bench.ask(RegisterWrite(9, Space.COIL, 2, b"\1", 2, 5, True, 1))) == "no-register"
    assert bench.ask(RegisterWrite(9, Space.COIL, 2, b"\1", 2, 15, True, 1)) == Confirmed()


def test_coils_when_written_by_another_master_then_counted_apart() -> None:
    bench = coil()
    fault = Fault(FaultKind.FOREIGN, 9, access="read", register="C[0]", value=1)
    bench.bus.plan(fault)
    assert bench.ask(RegisterRead(9, Space.COIL, 2, 1, 2, 1, 1)) == Confirmed(b"\x01")
    assert (bench.chip.foreign, bench.chip.executed) == ({("C[0]", "write"): 1}, {("C[0]", "read"): 1})


# --- the slave's half of the frames -----------------------------------------------------------------------------

OBJECT = "[registers.WHO]\noffset = 1\nspace = 'object'\naccess = 'ro'\nwidth_bits = 96\nencoding = 'text'\n"
DEVICE = contract_of(MODBUS, *COILS, OBJECT)
ATOMIC = contract_of(MODBUS + "atomic_multi = true\n", *COILS)
FRAMES: dict[str, tuple[str, Transfer | int]] = {
    "read coils": ("09 01 0002 000c", RegisterRead(9, Space.COIL, 2, 2, 2, 1, 12)),
    "read inputs": ("09 02 0002 0008", RegisterRead(9, Space.DISCRETE, 2, 1, 2, 2, 8)),
    "most coils": ("09 01 0000 07d0", RegisterRead(9, Space.COIL, 0, 250, 2, 1, 2000)),
    "too many coils": ("09 01 0000 07d1", NO_SUCH_QUANTITY),
    "no coils": ("09 02 0000 0000", NO_SUCH_QUANTITY),
    "coil on": ("09 05 0002 ff00", RegisterWrite(9, Space.COIL, 2, b"\x01", 2, 5, True, 1)),
    "coil off": ("09 05 0002 0000", RegisterWrite(9, Space.COIL, 2, b"\x00", 2, 5, True, 1)),
    "coil of another value": ("09 05 0002 5500", NO_SUCH_QUANTITY),
    "coils": ("09 0f 0002 000a 02 01 02", RegisterWrite(9, Space.COIL, 2, b"\x01\x02", 2, 15, False, 10)),
    "one of several": ("09 0f 0002 0001 01 01", RegisterWrite(9, Space.COIL, 2, b"\x01", 2, 15, True, 1)),
    "coils, no data": ("09 0f 0002 0000 00", NO_SUCH_QUANTITY),
    "coils, count does not fit": ("09 0f 0002 0009 01 01", NO_SUCH_QUANTITY),
    "coils, length does not fit": ("09 0f 0002 0008 02 01", NO_SUCH_QUANTITY),
    "too short": ("09 01 0002", NO_SUCH_QUANTITY),
    "too long": ("09 01 0002 0001 00", NO_SUCH_QUANTITY),
    "no such function": ("09 07 0002 0001", NO_SUCH_FUNCTION),
    "merged": ("09 16 0002 fff0 0005", RegisterWrite(9, Space.HOLDING, 2, b"\xff\xf0\x00\x05", 2, 22)),
    "merged, one mask": ("09 16 0002 fff0", NO_SUCH_QUANTITY),
    "written and read": (
        "09 17 0003 0002 000e 0001 02 00ff",
        RegisterRead(9, Space.HOLDING, 3, 4, 2, 23, first=(14, b"\x00\xff")),
    ),
    "written and read, no data": ("09 17 0003 0002 000e 0000 00", NO_SUCH_QUANTITY),
    "written and read, nothing read": ("09 17 0003 0000 000e 0001 02 00ff", NO_SUCH_QUANTITY),
    "written and read, too many": ("09 17 0003 007e 000e 0001 02 00ff", NO_SUCH_QUANTITY),
    "written and read, too many written": ("09 17 0003 0001 000e 007a f4" + 244 * "00", NO_SUCH_QUANTITY),
    "written and read, length does not fit": ("09 17 0003 0002 000e 0001 04 00ff00ff", NO_SUCH_QUANTITY),
    "written and read, cut off": ("09 17 0003 0002 000e 0001", NO_SUCH_QUANTITY),
    "a queue": ("09 18 0004", RegisterRead(9, Space.QUEUE, 4, 1, 2, 24)),
    "a queue and more": ("09 18 0004 00", NO_SUCH_QUANTITY),
    "an object": ("09 2b 0e 04 01", RegisterRead(9, Space.OBJECT, 1, 12, 2, 43)),
    "an object that is not there": ("09 2b 0e 04 02", RegisterRead(9, Space.OBJECT, 2, 1, 2, 43)),
    "all objects": ("09 2b 0e 01 00", NO_SUCH_QUANTITY),
    "an object and more": ("09 2b 0e 04 01 00", NO_SUCH_QUANTITY),
    "another encapsulated one": ("09 2b 0d 04 01", NO_SUCH_FUNCTION),
}


@pytest.mark.parametrize(("body", "wanted"), FRAMES.values(), ids=list(FRAMES))
def test_frame_when_taken_apart_then_the_transfer_or_the_exception(body: str, wanted: Transfer | int) -> None:
    frame = framed(bytes.fromhex(body))
    assert crc16(frame) == 0
    assert request_in(frame, DEVICE) == wanted


def test_frame_when_the_device_takes_several_whole_then_said() -> None:
    taken = request_in(framed(bytes.fromhex("09 0f 0002 000a 02 01 02")), ATOMIC)
    assert taken == RegisterWrite(9, Space.COIL, 2, b"\x01\x02", 2, 15, True, 10)
    assert request_in(framed(bytes.fromhex("09 0100 0200 0100")), None) == NO_SUCH_QUANTITY


LENGTHS = {
    "nothing yet": ("09", None),
    "coils": ("0901", 8),
    "an object": ("092b0e", 7),
    "something encapsulated": ("092b", None),
    "another encapsulated one": ("092b0d", None),
    "inputs": ("0902", 8),
    "one coil": ("0905", 8),
    "several, count not yet there": ("090f00020008", None),
    "several": ("090f0002000801", 10),
    "written and read": ("09170003000200 0e000102", 15),
    "written and read, count not yet there": ("09170003000200 0e0001", None),
    "unknown": ("0907", None),
}


@pytest.mark.parametrize(("begun", "wanted"), LENGTHS.values(), ids=list(LENGTHS))
def test_length_when_a_frame_has_begun_then_known_as_soon_as_it_can_be(begun: str, wanted: int | None) -> None:
    assert length_of(bytes.fromhex(begun)) == wanted


def test_reply_when_coils_are_read_or_written_then_as_the_specification_has_it() -> None:
    read = framed(bytes.fromhex("09 01 0002 000c"))
    assert replies_to(read, Taken(Confirmed(b"\x1e\x00"), None)) == [framed(bytes.fromhex("09 01 02 1e00"))]
    several = framed(bytes.fromhex("09 0f 0002 000a 02 01 02"))
    assert replies_to(several, Taken(Confirmed(), None)) == [framed(bytes.fromhex("09 0f 0002 000a"))]
    one = framed(bytes.fromhex("09 05 0002 ff00"))
    assert replies_to(one, Taken(Confirmed(), None)) == [one]
    assert replies_to(one, Taken(NotThere("no"), None)) == [framed(bytes.fromhex("09 85 02"))]
    assert replies_to(one, Taken(None, None)) == []


# --- aliases, mask halves, increment bits -----------------------------------------------------------------------


def test_alias_when_written_then_ones_act_and_reads_are_of_its_own_place_alone() -> None:
    chip = Chip(toy(reg("R", 0, "also_at = [1]\nset_at = 4\nclear_at = 5\ntoggle_at = 6")))
    chip.values["R"] = 0xA6
    for offset, data, held in ((4, 0x09, 0xAF), (5, 0x0F, 0xA0), (6, 0x33, 0x93), (1, 0x12, 0x12), (0, 0x21, 0x21)):
        chip.write(Space.MEMORY, offset, bytes([data]))
        assert chip.values["R"] == held
    assert chip.read(Space.MEMORY, 1, 1) == b"\x21"
    with pytest.raises(NotThere):
        chip.read(Space.MEMORY, 4, 1)
    assert chip.executed == {("R", "write"): 5, ("R", "read"): 1}


def test_alias_when_it_stands_higher_then_its_ones_are_moved_down() -> None:
    chip = Chip(toy(reg("R", 0, "width_bits = 16\nset_at = 4\nclear_at = { at = 8, shift = 8 }")))
    chip.values["R"] = 0x00A6
    chip.write(Space.MEMORY, 8, b"\x06\x00")
    assert chip.values["R"] == 0x00A0


def test_alias_when_one_place_sets_and_clears_then_each_half_acts() -> None:
    fields = "[registers.R.fields]\nPINS = { bits = '15:0' }\n"  # as BSRR of an STM32
    chip = Chip(toy(reg("R", 0, f"width_bits = 32\nset_at = 8\nclear_at = {{ at = 8, shift = 16 }}\n{fields}")))
    chip.values["R"] = 0x00A6
    chip.write(Space.MEMORY, 8, b"\x00\x06\x00\x09")
    assert chip.values["R"] == 0x00A9


def test_mask_half_when_written_then_only_the_bits_it_names_change() -> None:
    chip = Chip(toy(reg("R", 0, "width_bits = 16\nwrite_mask_bits = '15:8'")))
    chip.values["R"] = 0x00A6
    chip.write(Space.MEMORY, 0, b"\x0f\x39")
    assert chip.values["R"] == 0x00A9
    chip.write(Space.MEMORY, 0, b"\x00\x39")
    assert chip.values["R"] == 0x00A9


@pytest.mark.parametrize(("offset", "moves"), [(0xA8, True), (0x28, False)], ids=["with the bit", "without"])
def test_increment_bit_when_a_transfer_has_it_then_the_pointer_moves(offset: int, moves: bool) -> None:
    access = (
        "[access]\noffset_bytes = 1\nbyte_order = 'big'\n[access.i2c]\nauto_increment = 'both'\nincrement_mask = 0x80\n"
    )
    two = ("[registers.A]\noffset = 0x28\naccess = 'rw'\n", "[registers.B]\noffset = 0x29\naccess = 'rw'\n")
    bench = Bench(contract_of(access, *two), 0x18)
    assert bench.ask(RegisterWrite(0x18, Space.MEMORY, offset, b"\x01\x02")) == Confirmed()
    assert (bench.chip.values["A"], bench.chip.values["B"]) == ((1, 2) if moves else (2, 0))
    read = bench.ask(RegisterRead(0x18, Space.MEMORY, offset, 2))
    assert read == Confirmed(b"\x01\x02" if moves else b"\x02\x02")


GATES = {"at its value": (1, 0x5A), "at another": (2, 0x00), "at zero": (0, 0x00)}


@pytest.mark.parametrize(("held", "seen"), GATES.values(), ids=list(GATES))
def test_gate_with_a_value_when_read_and_written_then_only_that_value_opens_it(held: int, seen: int) -> None:
    gate = "gate = 'G.F = 1'"
    r = reg(
        "R",
        0,
        f"read = {{ effects = ['none'], provenance = 'generated', {gate} }}\n"
        f"write = {{ effect = 'store', provenance = 'generated', {gate} }}",
    )
    chip = Chip(toy(r, reg("G", 1, "[registers.G.fields]\nF = { bits = '5:4' }")))
    chip.values |= {"R": 0x5A, "G": held << 4 | 0x0F}
    assert chip.read(Space.MEMORY, 0, 1) == bytes([seen])
    chip.write(Space.MEMORY, 0, b"\x77")
    assert chip.values["R"] == (0x77 if held == 1 else 0x5A)


def test_claim_when_it_names_a_state_then_the_state_shows_it() -> None:
    read = "read = { effects = ['claim'], provenance = 'generated', state = 'ST.TAKEN' }"
    chip = Chip(toy(reg("R", 0, read, access="ro"), reg("ST", 1, "[registers.ST.fields]\nTAKEN = { bits = 3 }")))
    assert chip.read(Space.MEMORY, 0, 1) == b"\xff"
    assert (chip.values["ST"], chip.read(Space.MEMORY, 0, 1)) == (0x08, b"\x00")


def test_resets_when_the_bits_act_then_the_chip_restarts_and_otherwise_not() -> None:
    write = "write = { effect = 'pulse', provenance = 'generated', resets = 'device', triggers = ['S'] }"
    chip = Chip(toy(reg("R", 0, write, access="wo"), reg("S", 1, "reset = 0x11")))
    chip.values["S"] = 0x77
    nonce = chip.nonce
    chip.write(Space.MEMORY, 0, b"\x00")
    assert (chip.values["S"], chip.nonce, chip.pulses["S"]) == (0x77, nonce, 0)
    chip.write(Space.MEMORY, 0, b"\x01")
    assert (chip.values["S"], chip.nonce != nonce, chip.pulses["S"]) == (0x11, True, 1)


IDENTITIES = {
    "a number": ("[identity]\nregister = 'ID'\nequals = 0x68\n", 0x68),
    "one of several": ("[identity]\nregister = 'ID'\nequals = [0x42, 0x43]\n", 0x42),
    "nothing": ("[identity]\nregister = 'ID'\n", 0x00),
    "of a field": ("[identity]\nregister = 'ID.HIGH'\nequals = 3\n", 0x30),
}


@pytest.mark.parametrize(("identity", "held"), IDENTITIES.values(), ids=list(IDENTITIES))
def test_identity_when_no_reset_value_says_it_then_the_chip_shows_it(identity: str, held: int) -> None:
    fields = "[registers.ID.fields]\nHIGH = { bits = '7:4' }\n"
    assert Chip(toy(reg("ID", 0, fields, access="ro"), identity)).values["ID"] == held
    assert Chip(toy(reg("ID", 0, "reset = 0x99\n" + fields, access="ro"), identity)).values["ID"] == 0x99


@pytest.mark.parametrize(("rest", "held"), [(", mask = 0x3c", 0xC3 | 0x24), ("", 0xE7)], ids=["masked", "whole"])
def test_mask_of_a_write_when_written_then_the_other_bits_stay(rest: str, held: int) -> None:
    write = f"write = {{ effect = 'store', provenance = 'generated'{rest} }}"
    chip = Chip(toy(reg("R", 0, write)))
    chip.values["R"] = 0xC3
    chip.write(Space.MEMORY, 0, b"\xe7")
    assert chip.values["R"] == held
