"""The bundled chips as a bench finds them: what each answers, counts and refuses."""

from __future__ import annotations

import copy
import struct

import pytest

from hwtool_contracts.library import bundled, bundled_names
from hwtool_contracts.model import Space
from hwtool_sim.behaviour import Behaviour
from hwtool_sim.board import BEHAVIOURS, bus_of, chip_at_power_on
from hwtool_sim.chip import Chip, NotThere
from tests.contracts.test_judge import reg, toy

MEMORY, INPUT, HOLDING = Space.MEMORY, Space.INPUT, Space.HOLDING


def chip_of(part: str) -> Chip:
    return chip_at_power_on(bundled(part))


def test_power_on_when_a_part_is_bundled_then_a_bench_has_something_in_it() -> None:
    # the parts of the bench; the others come up with their reset values
    assert set(BEHAVIOURS) <= set(bundled_names())
    assert len(BEHAVIOURS) == 6


@pytest.mark.parametrize("part", bundled_names())
def test_power_on_when_filled_then_every_value_is_of_a_declared_register_and_fits(part: str) -> None:
    contract = bundled(part)
    values = chip_of(part).values
    assert set(values) == set(contract.registers)
    assert [n for n, v in values.items() if not 0 <= v <= contract.registers[n].mask] == []
    assert chip_of(part).executed == {}


def test_power_on_when_a_part_is_not_bundled_then_it_has_its_reset_values() -> None:
    chip = chip_at_power_on(toy(reg("R", 0, "reset = 0x42"), reg("S", 1)))
    assert chip.values == {"R": 0x42, "S": 0}


def test_board_when_made_of_contracts_then_a_chip_answers_at_each_address() -> None:
    bus = bus_of({0x20: bundled("mcp23017"), 0x48: bundled("tmp102")})
    assert {a: c.contract.part for a, c in bus.chips.items()} == {0x20: "mcp23017", 0x48: "tmp102"}
    assert bus.chips[0x48].values["TEMPERATURE"] == 0x1900


def test_reset_when_fields_state_reset_values_then_they_overlay_the_registers() -> None:
    fields = "reset = 0xF0\nfields.A = { bits = '5:4', reset = 1 }\nfields.B = { bits = 0, reset = 1 }"
    assert Chip(toy(reg("R", 0, fields))).values["R"] == 0xD1


def test_reset_when_a_chip_restarts_then_reset_values_are_back_the_nonce_is_new_and_counters_stay() -> None:
    chip = chip_of("mcp23017")
    chip.write(MEMORY, 0x00, b"\x00\x00")
    chip.read(MEMORY, 0x12, 1)
    nonce = chip.nonce
    chip.reset()
    assert chip.nonce != nonce
    assert (chip.values["IODIRA"], chip.values["IODIRB"], chip.values["INTFA"]) == (0xFF, 0xFF, 0x04)
    assert chip.executed == {("IODIRA", "write"): 1, ("IODIRB", "write"): 1, ("GPIOA", "read"): 1}


def test_reset_when_the_uart_restarts_then_its_fifo_is_filled_anew_and_its_pulses_stay() -> None:
    chip = chip_of("sc16is750")
    chip.write(MEMORY, 0x00, b"x")
    chip.read(MEMORY, 0x00, 2)
    chip.reset()
    assert (bytes(chip.fifos["RHR"]), chip.sent, chip.pulses) == (b"hello", {}, {"THR": 1})


@pytest.mark.parametrize("part", bundled_names())
def test_reset_when_a_bundled_chip_restarts_then_it_holds_what_it_held_at_power_on(part: str) -> None:
    chip, fresh = chip_of(part), chip_of(part)
    for name in chip.values:
        chip.values[name] = 0
    for fifo in chip.fifos.values():
        fifo.clear()
    chip.reset()
    assert (chip.values, chip.fifos) == (fresh.values, fresh.fifos)


def test_reset_when_nothing_is_filled_in_then_only_reset_values_are_back() -> None:
    chip = Chip(bundled("sc16is750"))
    chip.push("RHR", b"x")
    chip.reset()
    assert (bytes(chip.fifos["RHR"]), chip.values["LCR"]) == (b"", bundled("sc16is750").registers["LCR"].reset or 0)


def test_reset_when_its_behaviour_puts_something_in_then_it_is_called_at_each_power_on() -> None:
    nonces: list[str] = []

    class Filled(Behaviour):
        def power_on(self, chip: Chip) -> None:
            nonces.append(chip.nonce)
            chip.values["R"] = len(nonces)

    chip = Chip(toy(reg("R", 0, "reset = 9")), Filled())
    held = [chip.values["R"]]
    chip.reset()
    assert ([*held, chip.values["R"]], nonces[-1], len(set(nonces))) == ([1, 2], chip.nonce, 2)


@pytest.mark.parametrize(("offset", "intcapa"), [(0x12, 0x00), (0x10, 0x04)], ids=["GPIOA", "INTCAPA"])
def test_mcp23017_when_port_or_capture_is_read_then_the_interrupt_is_acknowledged_hc005(
    offset: int, intcapa: int
) -> None:
    chip = chip_of("mcp23017")
    assert chip.read(MEMORY, 0x0E, 1) == b"\x04"  # looking at the flag acknowledges nothing
    assert chip.values["INTFA"] == 0x04
    chip.values["INTFB"] = 0x80
    assert chip.read(MEMORY, offset, 1) == b"\x04"
    assert chip.read(MEMORY, 0x0E, 1) == b"\x00"
    assert (chip.values["INTCAPA"], chip.values["INTFB"]) == (intcapa, 0x80)


def test_mcp23017_when_flag_capture_and_port_are_read_in_one_burst_then_the_event_is_kept_hc005() -> None:
    chip = chip_of("mcp23017")
    assert chip.read(MEMORY, 0x0E, 5) == bytes([0x04, 0x00, 0x04, 0x00, 0x04])
    assert chip.values["INTFA"] == 0


def test_mcp23017_when_the_port_is_written_then_the_latch_holds_it() -> None:
    chip = chip_of("mcp23017")
    chip.write(MEMORY, 0x12, b"\x5a")
    assert chip.read(MEMORY, 0x14, 1) == b"\x5a"
    assert chip.executed == {("GPIOA", "write"): 1, ("OLATA", "read"): 1}
    assert chip.values["INTFA"] == 0x04  # a write acknowledges nothing


def test_mcp23017_when_two_bytes_are_moved_then_the_pointer_moves_and_both_count() -> None:
    chip = chip_of("mcp23017")
    chip.write(MEMORY, 0x14, b"\x12\x34")
    assert chip.read(MEMORY, 0x14, 2) == b"\x12\x34"
    assert chip.executed == {(n, a): 1 for n in ("OLATA", "OLATB") for a in ("read", "write")}


def test_sc16is750_when_rhr_is_read_one_by_one_then_each_read_pops_and_the_level_follows() -> None:
    chip = chip_of("sc16is750")
    seen = [(chip.read(MEMORY, 0x48, 1)[0], chip.read(MEMORY, 0x00, 1)) for _ in range(5)]
    assert seen == [(5, b"h"), (4, b"e"), (3, b"l"), (2, b"l"), (1, b"o")]
    assert (chip.read(MEMORY, 0x48, 1), chip.read(MEMORY, 0x00, 1)) == (b"\x00", b"\x00")
    assert chip.executed == {("RXLVL", "read"): 6, ("RHR", "read"): 6}


def test_sc16is750_when_rhr_is_read_in_a_burst_then_the_pointer_stays_and_every_element_counts() -> None:
    chip = chip_of("sc16is750")
    assert chip.read(MEMORY, 0x00, 5) == b"hello"
    assert chip.executed == {("RHR", "read"): 5}
    assert chip.read(MEMORY, 0x48, 1) == b"\x00"


def test_sc16is750_when_thr_is_pushed_then_the_free_places_fall() -> None:
    chip = chip_of("sc16is750")
    chip.write(MEMORY, 0x00, b"a")
    assert chip.read(MEMORY, 0x40, 1) == b"\x3f"
    chip.write(MEMORY, 0x00, b"bc")
    assert chip.read(MEMORY, 0x40, 1) == b"\x3d"
    assert (chip.sent, chip.pulses["THR"]) == ({"THR": [0x61, 0x62, 0x63]}, 3)
    assert list(chip.fifos["RHR"]) == list(b"hello")


BANKED = [
    ("normal", 0x03, 0x08, "IER"),
    ("normal", 0x00, 0x10, "IIR"),
    ("divisor", 0x80, 0x00, "DLL"),
    ("divisor", 0x80, 0x08, "DLH"),
    ("enhanced", 0xBF, 0x10, "EFR"),
    ("enhanced", 0xBF, 0x20, "XON1"),
    ("divisor", 0x80, 0x48, "RXLVL"),
]


@pytest.mark.parametrize(
    ("_bank", "lcr", "offset", "name"), BANKED, ids=[f"{bank}-{name}-lcr-{lcr:02x}" for bank, lcr, _, name in BANKED]
)
def test_sc16is750_when_lcr_selects_a_bank_then_its_register_answers(
    _bank: str, lcr: int, offset: int, name: str
) -> None:
    chip = chip_of("sc16is750")
    chip.write(MEMORY, 0x18, bytes([lcr]))
    chip.read(MEMORY, offset, 1)
    assert chip.executed == {("LCR", "write"): 1, (name, "read"): 1}


def test_sc16is750_when_the_divisor_is_written_then_only_the_bank_decides_where_it_goes() -> None:
    chip = chip_of("sc16is750")
    chip.write(MEMORY, 0x18, b"\x80")
    chip.write(MEMORY, 0x00, b"\x0c")
    chip.write(MEMORY, 0x18, b"\x03")
    chip.write(MEMORY, 0x00, b"z")
    assert (chip.values["DLL"], chip.sent["THR"]) == (0x0C, [ord("z")])


@pytest.mark.parametrize("lcr", [0x83, 0xBE], ids=hex)
def test_sc16is750_when_lcr_selects_no_bank_then_the_shared_offsets_are_empty(lcr: int) -> None:
    chip = chip_of("sc16is750")
    chip.write(MEMORY, 0x18, bytes([lcr]))
    with pytest.raises(NotThere, match="sc16is750: nothing to read at 0x0"):
        chip.read(MEMORY, 0x00, 1)
    with pytest.raises(NotThere, match="sc16is750: nothing to write at 0x0"):
        chip.write(MEMORY, 0x00, b"x")
    assert len(chip.fifos["RHR"]) == 5


def test_sc16is750_when_the_receive_fifo_is_reset_then_it_is_empty_and_the_enable_bit_is_kept() -> None:
    chip = chip_of("sc16is750")
    chip.write(MEMORY, 0x10, b"\x03")
    assert chip.read(MEMORY, 0x48, 1) == b"\x00"
    assert (chip.values["FCR"], chip.pulses) == (0x01, {"FCR": 1})


def test_sc16is750_when_the_modem_status_is_read_then_only_the_change_bits_clear() -> None:
    chip = chip_of("sc16is750")
    chip.values["MSR"] = 0xFF
    assert (chip.read(MEMORY, 0x30, 1), chip.read(MEMORY, 0x30, 1)) == (b"\xff", b"\xf0")


@pytest.mark.parametrize("offset", [0x10, 0x28], ids=["IIR", "LSR"])
def test_sc16is750_when_an_unknown_register_is_read_then_a_repeat_is_seen(offset: int) -> None:
    chip = chip_of("sc16is750")
    assert chip.read(MEMORY, offset, 1) != chip.read(MEMORY, offset, 1)


STATUS_WRITES = [
    ("clear-alarm-1", 0x8A, 0x88),
    ("clear-oscillator", 0x0B, 0x09),
    ("clear-both", 0x08, 0x08),
    ("leave-flags", 0x83, 0x81),
    ("ones-set-nothing", 0xFF, 0x89),
    ("everything-zero", 0x00, 0x00),
]


@pytest.mark.parametrize(("_what", "value", "left"), STATUS_WRITES, ids=[c[0] for c in STATUS_WRITES])
def test_ds3231_when_status_is_written_then_zeros_clear_flags_and_ones_leave_them(
    _what: str, value: int, left: int
) -> None:
    chip = chip_of("ds3231")
    assert chip.read(MEMORY, 0x0F, 1) == b"\x89"
    chip.write(MEMORY, 0x0F, bytes([value]))
    assert chip.read(MEMORY, 0x0F, 1) == bytes([left])


def test_ds3231_when_busy_then_a_write_to_status_does_not_touch_the_read_only_bit() -> None:
    chip = chip_of("ds3231")
    chip.values["STATUS"] |= 0x04
    chip.write(MEMORY, 0x0F, b"\x00")
    assert chip.values["STATUS"] == 0x04


def test_ds3231_when_the_time_is_read_as_a_group_then_seven_registers_count() -> None:
    chip = chip_of("ds3231")
    assert chip.read(MEMORY, 0x00, 7) == bytes.fromhex("30592301301126")
    assert sum(chip.executed.values()) == len(chip.executed) == 7


def test_ds3231_when_a_conversion_is_asked_for_then_it_fires_once_and_its_bit_shows_it() -> None:
    chip = chip_of("ds3231")
    chip.write(MEMORY, 0x0E, b"\x3c")
    assert (chip.pulses, chip.values["CONTROL"]) == ({"CONTROL": 1}, 0x3C)


def test_ds3231_when_a_wide_register_is_read_by_bytes_then_each_byte_is_in_its_place() -> None:
    chip = chip_of("ds3231")
    assert chip.read(MEMORY, 0x11, 2) == b"\x19\x40"
    assert (chip.read(MEMORY, 0x11, 1), chip.read(MEMORY, 0x12, 1)) == (b"\x19", b"\x40")
    assert chip.executed == {("TEMP", "read"): 3}


def test_wide_register_when_one_byte_is_written_then_the_other_stays() -> None:
    chip = Chip(toy(reg("W", 0, "width_bits = 16"), reg("NEXT", 2)))
    chip.values["W"] = 0x1234
    chip.write(MEMORY, 1, b"\xff\xee")
    assert chip.values == {"W": 0x12FF, "NEXT": 0xEE}


POINTED = [
    ("tmp102", [0x1900, 0x60A0, 0x4B00, 0x5000], 2, 0x1230),
    ("ads1115", [0x2A00, 0x8583, 0x8000, 0x7FFF], 2, 0x1234),
]


@pytest.mark.parametrize(("part", "values", "offset", "new"), POINTED, ids=[p[0] for p in POINTED])
def test_pointer_chip_when_16_bit_registers_stand_side_by_side_then_they_do_not_overlap(
    part: str, values: list[int], offset: int, new: int
) -> None:
    chip = chip_of(part)
    assert [int.from_bytes(chip.read(MEMORY, at, 2), "big") for at in range(4)] == values
    chip.write(MEMORY, offset, new.to_bytes(2, "big"))
    values[offset] = new
    assert [int.from_bytes(chip.read(MEMORY, at, 2), "big") for at in range(4)] == values


def test_pointer_chip_when_read_longer_than_its_register_then_the_register_comes_again() -> None:
    chip = chip_of("tmp102")
    assert chip.read(MEMORY, 0, 3) == b"\x19\x00\x19"
    assert chip.executed == {("TEMPERATURE", "read"): 2}


def test_ads1115_when_a_conversion_is_started_then_the_rest_of_config_is_stored_and_os_shows_it() -> None:
    chip = chip_of("ads1115")
    chip.write(MEMORY, 1, b"\xc3\x83")
    assert (chip.values["CONFIG"], chip.pulses) == (0x4383, {"CONFIG": 1})
    chip.write(MEMORY, 1, b"\x43\x83")
    assert (chip.values["CONFIG"], chip.pulses) == (0x4383, {"CONFIG": 1})


def test_sdm120_when_a_measurement_is_read_then_it_is_a_float32_of_two_registers() -> None:
    chip = chip_of("sdm120")
    assert chip.read(INPUT, 0x0000, 4) == struct.pack(">f", 230.1)
    assert chip.read(INPUT, 0x0046, 4) == struct.pack(">f", 50.0)


def test_sdm120_when_a_group_is_read_then_each_register_counts_once() -> None:
    chip = chip_of("sdm120")
    assert chip.read(INPUT, 0x0048, 16) == struct.pack(">ffff", 1234.5, 0, 0, 0)
    assert set(chip.executed.values()) == {1}
    assert len(chip.executed) == 4


def test_sdm120_when_holding_registers_are_written_then_the_next_one_is_untouched() -> None:
    chip = chip_of("sdm120")
    chip.write(HOLDING, 0x000C, struct.pack(">f", 60.0))
    assert chip.read(HOLDING, 0x000C, 4) == struct.pack(">f", 60.0)
    assert chip.read(HOLDING, 0x0014, 4) == struct.pack(">f", 1.0)
    assert chip.executed[("RELAY_PULSE_WIDTH", "write")] == 1


def test_sdm120_when_two_holding_registers_are_read_at_once_then_the_numbering_counts_words() -> None:
    assert chip_of("sdm120").read(HOLDING, 0xFC00, 6) == struct.pack(">IH", 12345678, 0x0020)


def test_modbus_when_a_write_spans_two_registers_then_the_numbering_counts_words() -> None:
    chip = chip_of("sdm120")
    chip.write(HOLDING, 0x0012, struct.pack(">ff", 1.0, 2.0))
    assert chip.executed == {("NETWORK_PARITY_STOP", "write"): 1, ("METER_ID", "write"): 1}
    assert chip.values["METER_ID"] == 0x40000000


NOT_THERE = [
    ("undeclared", "mcp23017", "read", MEMORY, 0x16),
    ("undeclared", "mcp23017", "write", MEMORY, 0x16),
    ("read-only", "mcp23017", "write", MEMORY, 0x0E),
    ("between-offsets", "sc16is750", "read", MEMORY, 0x01),
    ("undeclared", "tmp102", "read", MEMORY, 0x04),
    ("read-only", "tmp102", "write", MEMORY, 0x00),
    ("wrong-space", "tmp102", "read", HOLDING, 0x00),
    ("wrong-space", "sdm120", "read", MEMORY, 0x00),
    ("wrong-space", "sdm120", "read", HOLDING, 0x00),
    ("input-is-read-only", "sdm120", "write", INPUT, 0x00),
    ("read-only", "sdm120", "write", HOLDING, 0xFC02),
    ("undeclared", "sdm120", "read", INPUT, 0x02),
]


@pytest.mark.parametrize(
    ("_why", "part", "access", "space", "offset"),
    NOT_THERE,
    ids=[f"{c[1]}-{c[2]}-{c[3]}-{c[4]:#x}-{c[0]}" for c in NOT_THERE],
)
def test_access_when_no_register_answers_then_it_is_told_and_nothing_counts(
    _why: str, part: str, access: str, space: Space, offset: int
) -> None:
    chip = chip_of(part)
    before = dict(chip.values)
    with pytest.raises(NotThere, match=f"{part}: nothing to {access} at {offset:#x}"):
        if access == "read":
            chip.read(space, offset, 2)
        else:
            chip.write(space, offset, b"\x00\x00")
    assert (chip.executed, chip.values) == ({}, before)


def test_access_when_a_register_is_write_only_then_a_read_does_not_find_it() -> None:
    chip = Chip(toy(reg("W", 0, access="wo")))
    with pytest.raises(NotThere):
        chip.read(MEMORY, 0, 1)
    chip.write(MEMORY, 0, b"\x01")
    assert chip.values["W"] == 1


HOLES = [("undeclared", ""), ("other-direction", reg("HOLE", 1, access="{0}"))]


@pytest.mark.parametrize(("_why", "hole"), HOLES, ids=[h[0] for h in HOLES])
@pytest.mark.parametrize(("access", "other"), [("read", "wo"), ("write", "ro")])
def test_burst_when_it_reaches_a_hole_then_it_is_told_and_nothing_is_executed(
    access: str, other: str, _why: str, hole: str
) -> None:
    first = reg("A", 0, "read = { effects = ['clear'], provenance = 'generated' }")
    chip = Chip(toy(first, hole.format(other), reg("B", 2)))
    chip.values |= {"A": 0xA5, "B": 0x5A}
    before = dict(chip.values)
    with pytest.raises(NotThere, match=f"toy: nothing to {access} at 0x1"):
        if access == "read":
            chip.read(MEMORY, 0, 3)
        else:
            chip.write(MEMORY, 0, b"\x01\x02\x03")
    assert (chip.executed, chip.values) == ({}, before)


def test_sdm120_when_a_read_runs_into_a_hole_then_no_register_of_it_is_read() -> None:
    chip = chip_of("sdm120")
    with pytest.raises(NotThere, match="sdm120: nothing to read at 0x2"):
        chip.read(INPUT, 0x0000, 8)
    assert chip.executed == {}


@pytest.mark.parametrize("space", [MEMORY, HOLDING], ids=str)
def test_zero_length_when_nothing_is_declared_there_then_it_is_told(space: Space) -> None:
    chip = Chip(toy(reg("R", 0)))
    at = 7 if space is MEMORY else 0
    with pytest.raises(NotThere, match="toy: a read of 0 bytes"):
        chip.read(space, at, 0)
    with pytest.raises(NotThere, match=f"toy: nothing to write at {at:#x}"):
        chip.write(space, at, b"")
    assert chip.executed == {}


def test_zero_length_when_a_register_is_there_then_no_bit_moves() -> None:
    chip = Chip(toy(reg("R", 0, "reset = 0x42")))
    with pytest.raises(NotThere, match="a read of 0 bytes"):
        chip.read(MEMORY, 0, 0)
    chip.write(MEMORY, 0, b"")
    assert chip.values == {"R": 0x42}
    assert chip.executed["R", "read"] == 0


@pytest.mark.parametrize(("order", "seen"), [("big", b"\x56\x78\x9a"), ("little", b"\x34\x12\x9a")])
def test_read_when_it_begins_at_an_inner_byte_then_it_goes_on_from_there(order: str, seen: bytes) -> None:
    wide = reg("W", 0, f"width_bits = 32\nbyte_order = '{order}'")
    chip = Chip(toy(wide, reg("NEXT", 4)))
    chip.values |= {"W": 0x12345678, "NEXT": 0x9A}
    assert chip.read(MEMORY, 2, 3) == seen
    assert chip.executed == {("W", "read"): 1, ("NEXT", "read"): 1}


def test_sdm120_when_a_read_begins_at_the_second_word_then_it_goes_on_from_there() -> None:
    chip = chip_of("sdm120")
    assert chip.read(HOLDING, 0xFC01, 4) == (12345678 & 0xFFFF).to_bytes(2, "big") + b"\x00\x20"


def test_sdm120_when_only_the_second_word_is_written_then_the_first_stays() -> None:
    chip = chip_of("sdm120")
    chip.values["METER_ID"] = 0x11223344
    chip.write(HOLDING, 0x0015, b"\xaa\xbb")
    assert chip.values["METER_ID"] == 0x1122AABB


def test_copy_of_a_chip_when_it_is_used_then_the_first_is_as_it_was() -> None:
    fifo = reg("FIFO", 0, "read = { effects = ['pop'], provenance = 'generated' }", "ro")
    memory = "[memories.EE]\noffset = 0x80\nsize_bytes = 4\naccess = 'rw'\n"
    chip = Chip(toy(fifo, reg("A", 1), memory))
    chip.push("FIFO", [1, 2])
    chip.sent["A"] = [1]
    twin = chip.copied()
    assert twin.behaviour is not chip.behaviour  # it may remember something
    shown = {name: value for name, value in vars(chip).items() if not name.startswith("_") and name != "behaviour"}
    before = copy.deepcopy(shown)
    twin.write(Space.MEMORY, 1, b"\x05")
    twin.write(Space.MEMORY, 0x80, b"\x05")
    twin.read(Space.MEMORY, 0, 1)
    twin.sent["A"].append(2)
    twin.memories["EE"].stuck.add(0)
    twin.stuck["A"] = (1, 0)
    twin.pulses["A"] += 1
    assert {k: v for k, v in vars(chip).items() if k in before and k != "memories"} == {
        k: v for k, v in before.items() if k != "memories"
    }
    assert (bytes(chip.memories["EE"].cells), chip.memories["EE"].stuck) == (b"\xff" * 4, set())
    assert (list(twin.fifos["FIFO"]), twin.values["A"], twin.memories["EE"].cells[0]) == ([2], 5, 5)
