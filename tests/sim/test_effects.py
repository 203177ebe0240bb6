"""What a simulated chip does for each effect: one table over every read effect, one over every write effect."""

from __future__ import annotations

from typing import NamedTuple

import pytest

from hwtool_contracts.effects import ReadEffect, WriteEffect
from hwtool_contracts.model import Space
from hwtool_sim.chip import Chip
from tests.contracts.test_judge import reg, toy

MEMORY = Space.MEMORY


def read(chip: Chip, offset: int = 0) -> int:
    return chip.read(MEMORY, offset, 1)[0]


def write(chip: Chip, value: int, offset: int = 0) -> None:
    chip.write(MEMORY, offset, bytes([value]))


class AfterReads(NamedTuple):
    """Two reads of R, which holds 0xA5 before them: the answers, and R and OTHER (0xFF before) after each."""

    first: int
    r_1: int
    other_1: int
    second: int
    r_2: int


READS: dict[ReadEffect, AfterReads] = {
    ReadEffect.NONE: AfterReads(0xA5, 0xA5, 0xFF, 0xA5, 0xA5),
    ReadEffect.LATCH: AfterReads(0xA5, 0xA5, 0x3C, 0xA5, 0xA5),
    ReadEffect.ARM: AfterReads(0xA5, 0xA5, 0xFF, 0xA5, 0xA5),
    ReadEffect.CLEAR: AfterReads(0xA5, 0xA5, 0x00, 0xA5, 0xA5),  # it clears what it names
    ReadEffect.RELATCH: AfterReads(0xA5, 0x0F, 0xFF, 0x0F, 0x0F),
    ReadEffect.SET: AfterReads(0xA5, 0xFF, 0xFF, 0xFF, 0xFF),
    ReadEffect.POP: AfterReads(ord("h"), 0xA5, 0xFF, ord("i"), 0xA5),
    ReadEffect.ACK: AfterReads(0xA5, 0xA5, 0x00, 0xA5, 0xA5),
    ReadEffect.ADVANCE: AfterReads(0xA5, 0xA6, 0xFF, 0xA6, 0xA7),
    ReadEffect.CLAIM: AfterReads(0x00, 0xFF, 0xFF, 0x00, 0xFF),  # it was taken already
    ReadEffect.TRIGGER: AfterReads(0xA5, 0xA6, 0xFF, 0xA6, 0xA7),
    ReadEffect.MODIFY: AfterReads(0xA5, 0xA6, 0xFF, 0xA6, 0xA7),
    ReadEffect.MODIFY_EXTERNAL: AfterReads(0xA5, 0xA6, 0xFF, 0xA6, 0xA7),
    ReadEffect.UNKNOWN: AfterReads(0xA5, 0xA6, 0xFF, 0xA6, 0xA7),
}


def effect_of(effect: str, rest: str = "") -> str:
    return f"read = {{ effects = ['{effect}'], provenance = 'generated'{rest} }}"


def test_read_table_when_the_vocabulary_grows_then_a_line_is_missing_here() -> None:
    assert set(READS) == set(ReadEffect)


@pytest.mark.parametrize(("effect", "wanted"), READS.items(), ids=[e.value for e in READS])
def test_read_when_repeated_then_answer_and_state_are_those_of_its_effect(
    effect: ReadEffect, wanted: AfterReads
) -> None:
    chip = Chip(toy(reg("R", 0, effect_of(effect, ", affects = ['OTHER']")), reg("OTHER", 1)))
    chip.values |= {"R": 0xA5, "OTHER": 0xFF}
    chip.present |= {"R": 0x0F, "OTHER": 0x3C}
    if effect is ReadEffect.POP:
        chip.push("R", b"hi")
    first = read(chip)
    after_one = (first, chip.values["R"], chip.values["OTHER"])
    assert after_one == (wanted.first, wanted.r_1, wanted.other_1)
    assert chip.executed == {("R", "read"): 1}
    assert (read(chip), chip.values["R"]) == (wanted.second, wanted.r_2)
    assert chip.executed == {("R", "read"): 2}
    assert chip.pulses == {}


def bits_of(field_read: str) -> str:
    """Bits 3:0 read as told, bits 7:4 stay outside every field and read as the register says."""
    return f"{effect_of('none')}\nfields.F = {{ bits = '3:0', {field_read} }}"


FIELD_READS = [
    ("clear", 0xA0),
    ("set", 0xAF),
    ("relatch", 0xA3),
    ("none", 0xA5),
]


@pytest.mark.parametrize(("effect", "left"), FIELD_READS, ids=[c[0] for c in FIELD_READS])
def test_read_when_only_a_field_has_the_effect_then_only_its_bits_change(effect: str, left: int) -> None:
    chip = Chip(toy(reg("R", 0, bits_of(effect_of(effect)))))
    chip.values["R"] = 0xA5
    chip.present["R"] = 0xC3
    assert read(chip) == 0xA5
    assert chip.values["R"] == left


def test_read_when_the_fields_cover_every_bit_then_what_the_register_says_is_not_applied() -> None:
    chip = Chip(toy(reg("R", 0, f"{effect_of('clear')}\nfields.F = {{ bits = '7:0', {effect_of('none')} }}")))
    chip.values["R"] = 0xA5
    read(chip)
    assert chip.values["R"] == 0xA5


def test_read_when_bits_are_outside_every_field_then_they_follow_the_register() -> None:
    chip = Chip(toy(reg("R", 0, f"{effect_of('clear')}\nfields.F = {{ bits = '3:0', {effect_of('none')} }}")))
    chip.values["R"] = 0xA5
    read(chip)
    assert chip.values["R"] == 0x05


def test_undeclared_read_when_the_register_is_full_then_it_wraps() -> None:
    chip = Chip(toy(reg("R", 0, effect_of("unknown"))))
    chip.values["R"] = 0xFF
    assert (read(chip), chip.values["R"]) == (0xFF, 0x00)


def test_undeclared_read_when_several_fields_are_undeclared_then_one_read_adds_one() -> None:
    fields = "\n".join(f"fields.F{i} = {{ bits = {i}, {effect_of('unknown')} }}" for i in range(3))
    chip = Chip(toy(reg("R", 0, fields)))
    read(chip)
    assert chip.values["R"] == 1


def test_ack_when_it_names_a_field_then_only_that_field_is_cleared() -> None:
    other = reg("OTHER", 1, "fields.EVENT = { bits = 4 }\nfields.REST = { bits = '3:0' }")
    chip = Chip(toy(reg("R", 0, effect_of("ack", ", affects = ['OTHER.EVENT']")), other))
    chip.values["OTHER"] = 0x1F
    read(chip)
    assert chip.values["OTHER"] == 0x0F


def test_ack_when_several_fields_inherit_it_then_everything_it_names_is_cleared_its_own_register_too() -> None:
    text = effect_of("ack", ", affects = ['OTHER', 'R']") + "\nfields.A = { bits = 0 }\nfields.B = { bits = 1 }"
    chip = Chip(toy(reg("R", 0, text), reg("OTHER", 1)))
    chip.values |= {"R": 3, "OTHER": 0xFF}
    assert read(chip) == 3
    assert (chip.values["R"], chip.values["OTHER"]) == (0, 0)


def test_clear_when_it_names_nothing_then_its_own_bits_are_cleared() -> None:
    chip = Chip(toy(reg("R", 0, effect_of("clear")), reg("OTHER", 1)))
    chip.values |= {"R": 0xA5, "OTHER": 0xFF}
    assert (read(chip), read(chip), chip.values["OTHER"]) == (0xA5, 0x00, 0xFF)


def test_clear_when_it_names_fields_of_its_own_register_then_only_these_are_cleared() -> None:
    fields = "fields.EVENT = { bits = '7:4' }\nfields.MODE = { bits = '3:0' }"
    chip = Chip(toy(reg("R", 0, effect_of("clear", ", affects = ['R.EVENT']") + "\n" + fields)))
    chip.values["R"] = 0xA5
    assert (read(chip), chip.values["R"]) == (0xA5, 0x05)


ACTING = [("ack", 0x00, 0x00), ("clear", 0x00, 0x00), ("latch", 0x0F, 0xF0)]


@pytest.mark.parametrize(("effect", "first", "second"), ACTING, ids=[a[0] for a in ACTING])
def test_read_when_several_fields_act_on_others_then_each_of_them_acts(effect: str, first: int, second: int) -> None:
    one, two = (effect_of(effect, f", affects = ['{name}']") for name in ("FIRST", "SECOND"))
    fields = f"fields.A = {{ bits = '3:0', {one} }}\nfields.B = {{ bits = '7:4', {two} }}"
    chip = Chip(toy(reg("R", 0, fields), reg("FIRST", 1), reg("SECOND", 2)))
    chip.values |= {"R": 0xA5, "FIRST": 0xFF, "SECOND": 0xFF}
    chip.present |= {"FIRST": 0x0F, "SECOND": 0xF0}
    assert read(chip) == 0xA5
    assert chip.values == {"R": 0xA5, "FIRST": first, "SECOND": second}


def test_ack_when_it_is_in_a_cluster_then_the_sibling_of_the_element_is_cleared() -> None:
    text = "[clusters.CH]\noffset = 0\ncount = 2\nstride_bytes = 2\n"
    text += "[clusters.CH.registers.DATA]\noffset = 0\naccess = 'rw'\n" + effect_of("ack", ", affects = ['FLAG.A']")
    text += "\n[clusters.CH.registers.FLAG]\noffset = 1\naccess = 'rw'\nfields.A = { bits = 0 }\n"
    chip = Chip(toy(text))
    chip.values |= {"CH[0].FLAG": 3, "CH[1].FLAG": 3}
    read(chip, 2)
    assert (chip.values["CH[0].FLAG"], chip.values["CH[1].FLAG"]) == (3, 2)


@pytest.mark.parametrize(("gate", "answer", "left"), [(0, 0xA0, 0xA5), (1, 0xA5, 0xA0)], ids=["closed", "open"])
def test_read_when_a_field_is_gated_then_behind_a_closed_gate_its_bits_read_zero_and_nothing_happens(
    gate: int, answer: int, left: int
) -> None:
    gated = effect_of("clear", ", gate = 'GATE'")
    fields = f"fields.F = {{ bits = '3:0', {gated} }}\nfields.G = {{ bits = '7:4' }}"
    chip = Chip(toy(reg("R", 0, fields), reg("GATE", 1)))
    chip.values |= {"R": 0xA5, "GATE": gate}
    assert (read(chip), chip.values["R"]) == (answer, left)
    assert chip.executed == {("R", "read"): 1}


def test_undeclared_field_when_its_gate_is_closed_then_nothing_moves() -> None:
    gated = effect_of("unknown", ", gate = 'GATE'")
    fields = f"fields.F = {{ bits = '3:0', {gated} }}\nfields.G = {{ bits = '7:4' }}"
    chip = Chip(toy(reg("R", 0, fields), reg("GATE", 1)))
    read(chip)
    assert chip.values["R"] == 0
    chip.values["GATE"] = 1
    read(chip)
    assert chip.values["R"] == 1


POPS = [("ack", 0x00, 0x00), ("latch", 0x00, 0x3C), ("advance", 0x01, 0xFF), ("trigger", 0x01, 0xFF)]


@pytest.mark.parametrize(("effect", "r", "other"), POPS, ids=[p[0] for p in POPS])
def test_pop_when_it_is_combined_then_the_element_is_answered_and_the_rest_happens_too(
    effect: str, r: int, other: int
) -> None:
    text = f"read = {{ effects = ['pop', '{effect}'], provenance = 'generated', affects = ['OTHER'] }}"
    chip = Chip(toy(reg("R", 0, text), reg("OTHER", 1)))
    chip.values["OTHER"] = 0xFF
    chip.present["OTHER"] = 0x3C
    chip.push("R", b"hi")
    assert read(chip) == ord("h")
    assert (chip.values, bytes(chip.fifos["R"])) == ({"R": r, "OTHER": other}, b"i")


def test_pop_when_the_gate_is_closed_then_no_element_is_taken() -> None:
    chip = Chip(toy(reg("R", 0, effect_of("pop", ", gate = 'GATE'")), reg("GATE", 1)))
    chip.push("R", b"hi")
    assert (read(chip), bytes(chip.fifos["R"])) == (0, b"hi")


LEVEL_FIELDS = "fields.COUNT = { bits = '5:4' }\nfields.REST = { bits = '3:0' }"


@pytest.mark.parametrize(("elements", "seen"), [(0, 0x85), (2, 0xA5), (3, 0xB5), (4, 0xB5), (100, 0xB5)])
def test_level_when_it_is_a_field_then_only_its_bits_count_and_they_saturate(elements: int, seen: int) -> None:
    fifo = reg("R", 0, effect_of("pop", ", level = 'S.COUNT'"))
    chip = Chip(toy(fifo, reg("S", 1, LEVEL_FIELDS, "ro")))
    chip.values["S"] = 0xB5 if elements == 0 else 0x85
    chip.push("R", [1] * elements)
    assert (read(chip, 1), len(chip.fifos["R"])) == (seen, elements)


@pytest.mark.parametrize(("elements", "seen"), [(255, 255), (256, 255), (300, 255)])
def test_level_when_there_are_more_elements_than_it_can_count_then_it_saturates(elements: int, seen: int) -> None:
    chip = Chip(toy(reg("R", 0, effect_of("pop", ", level = 'LEVEL'")), reg("LEVEL", 1)))
    chip.push("R", [0] * elements)
    assert read(chip, 1) == seen


def test_latch_when_nothing_is_present_behind_a_sibling_then_it_stays() -> None:
    chip = Chip(toy(reg("R", 0, effect_of("latch", ", affects = ['OTHER']")), reg("OTHER", 1)))
    chip.values["OTHER"] = 0x77
    read(chip)
    assert chip.values["OTHER"] == 0x77


def test_relatch_when_nothing_is_present_then_the_extreme_falls_to_zero() -> None:
    chip = Chip(toy(reg("R", 0, effect_of("relatch"))))
    chip.values["R"] = 0xA5
    assert (read(chip), read(chip)) == (0xA5, 0x00)


@pytest.mark.parametrize(
    ("when_empty", "answers"),
    [("last", [7, 7, 7]), ("zero", [7, 0, 0]), ("unknown", [7, 0, 0])],
    ids=["last", "zero", "unknown"],
)
def test_pop_when_the_fifo_is_empty_then_as_the_contract_says(when_empty: str, answers: list[int]) -> None:
    chip = Chip(toy(reg("R", 0, effect_of("pop", f", when_empty = '{when_empty}'"))))
    chip.push("R", [7])
    assert [read(chip), read(chip), read(chip)] == answers
    assert chip.executed == {("R", "read"): 3}


def test_pop_when_nothing_was_ever_in_the_fifo_then_zero() -> None:
    assert read(Chip(toy(reg("R", 0, effect_of("pop", ", when_empty = 'last'"))))) == 0


def test_level_when_the_fifo_moves_then_a_clean_read_counts_its_elements() -> None:
    chip = Chip(toy(reg("R", 0, effect_of("pop", ", level = 'LEVEL'")), reg("LEVEL", 1)))
    levels = [read(chip, 1)]
    chip.push("R", b"abc")
    levels.append(read(chip, 1))
    read(chip)
    levels.append(read(chip, 1))
    assert levels == [0, 3, 2]


def test_level_when_the_register_it_belongs_to_does_not_pop_then_it_is_plain_storage() -> None:
    chip = Chip(toy(reg("R", 0, effect_of("clear", ", level = 'LEVEL'")), reg("LEVEL", 1)))
    write(chip, 9, 1)
    assert read(chip, 1) == 9


READ_GATES = [
    ("a register", "GATE", 0x00, 0x00, 0xA5),
    ("a register", "GATE", 0x01, 0xA5, 0x00),
    ("a field", "GATE.ON", 0x0F, 0x00, 0xA5),
    ("a field", "GATE.ON", 0x10, 0xA5, 0x00),
]


@pytest.mark.parametrize(
    ("_kind", "gate", "state", "answer", "left"),
    READ_GATES,
    ids=["register-closed", "register-open", "field-closed", "field-open"],
)
def test_read_when_gated_then_only_an_open_gate_answers_and_acts(
    _kind: str, gate: str, state: int, answer: int, left: int
) -> None:
    holder = reg("GATE", 1, "fields.ON = { bits = 4 }\nfields.REST = { bits = '3:0' }")
    chip = Chip(toy(reg("R", 0, effect_of("clear", f", gate = '{gate}'")), holder))
    chip.values |= {"R": 0xA5, "GATE": state}
    assert (read(chip), chip.values["R"]) == (answer, left)
    assert chip.executed == {("R", "read"): 1}  # the chip took part either way; its gate is not read for that


def test_gate_when_in_a_cluster_then_the_sibling_of_the_element_counts() -> None:
    text = "[clusters.CH]\noffset = 0\ncount = 2\nstride_bytes = 2\n"
    text += "[clusters.CH.registers.DATA]\noffset = 0\naccess = 'rw'\n" + effect_of("clear", ", gate = 'EN'")
    text += "\n[clusters.CH.registers.EN]\noffset = 1\naccess = 'rw'\n"
    chip = Chip(toy(text))
    chip.values |= {"CH[0].DATA": 0x11, "CH[1].DATA": 0x22, "CH[1].EN": 1}
    assert (read(chip, 0), read(chip, 2)) == (0x00, 0x22)


class AfterWrite(NamedTuple):
    """R holds 0xA5 and is written 0x0F, then 0x0F again: what it holds after each, and what fired in the two."""

    once: int
    twice: int
    pulses: int = 0
    sent: tuple[int, ...] = ()


WRITES: dict[WriteEffect, AfterWrite] = {
    WriteEffect.STORE: AfterWrite(0x0F, 0x0F),
    WriteEffect.ONE_TO_CLEAR: AfterWrite(0xA0, 0xA0),
    WriteEffect.ZERO_TO_CLEAR: AfterWrite(0x05, 0x05),
    WriteEffect.ONE_TO_SET: AfterWrite(0xAF, 0xAF),
    WriteEffect.ZERO_TO_SET: AfterWrite(0xF5, 0xF5),
    WriteEffect.ONE_TO_TOGGLE: AfterWrite(0xAA, 0xA5),
    WriteEffect.ZERO_TO_TOGGLE: AfterWrite(0x55, 0xA5),
    WriteEffect.CLEAR: AfterWrite(0x00, 0x00),
    WriteEffect.SET: AfterWrite(0xFF, 0xFF),
    WriteEffect.WRITE_ONCE: AfterWrite(0x0F, 0x0F),
    WriteEffect.LOCK: AfterWrite(0xAF, 0xAF),
    WriteEffect.SELF_CLEARING: AfterWrite(0xA5, 0xA5, 2),
    WriteEffect.PULSE: AfterWrite(0xA5, 0xA5, 2),
    WriteEffect.COMMAND: AfterWrite(0xA5, 0xA5, 2),
    WriteEffect.PUSH: AfterWrite(0xA5, 0xA5, 2, (0x0F, 0x0F)),
    WriteEffect.ADVANCE: AfterWrite(0x0F, 0x0F, 2),
    WriteEffect.UNLOCK: AfterWrite(0x0F, 0x0F),
    WriteEffect.STAGED: AfterWrite(0x0F, 0x0F),
    WriteEffect.MODIFY: AfterWrite(0x0F, 0x0F, 2),
    WriteEffect.UNKNOWN: AfterWrite(0x0F, 0x0F, 2),
}
WRITE_IDS = [e.value for e in WRITES]


def written_as(effect: str, rest: str = "") -> str:
    return f"write = {{ effect = '{effect}'{rest} }}"


def test_write_table_when_the_vocabulary_grows_then_a_line_is_missing_here() -> None:
    assert set(WRITES) == set(WriteEffect)


@pytest.mark.parametrize(("effect", "wanted"), WRITES.items(), ids=WRITE_IDS)
def test_write_when_repeated_then_state_and_pulses_are_those_of_its_effect(
    effect: WriteEffect, wanted: AfterWrite
) -> None:
    chip = Chip(toy(reg("R", 0, written_as(effect)), reg("OTHER", 1)))
    chip.values |= {"R": 0xA5, "OTHER": 0xFF}
    write(chip, 0x0F)
    assert chip.values == {"R": wanted.once, "OTHER": 0xFF}
    assert chip.executed == {("R", "write"): 1}
    write(chip, 0x0F)
    assert chip.values == {"R": wanted.twice, "OTHER": 0xFF}
    assert chip.executed == {("R", "write"): 2}
    assert chip.pulses["R"] == wanted.pulses
    assert tuple(chip.sent.get("R", ())) == wanted.sent


def test_lock_when_another_register_shows_it_then_its_bits_are_set_there_and_the_others_stay() -> None:
    shown = written_as("lock", ", verify = { by = 'read_back', register = 'OTHER' }")
    chip = Chip(toy(reg("R", 0, shown), reg("OTHER", 1)))
    chip.values |= {"R": 0xA0, "OTHER": 0x80}
    write(chip, 0x0F)
    assert chip.values == {"R": 0xAF, "OTHER": 0x8F}


MIDDLE = 0x3C
ONLY_THE_MIDDLE = {
    "mask-of-the-register": "write = {{ effect = '{0}', mask = 0x3C }}",
    "mask-of-a-field": "fields.F = {{ bits = '6:1', write = {{ effect = '{0}', mask = 0x1E }} }}\n"
    "fields.RO = {{ bits = 7, access = 'ro' }}\nfields.RO0 = {{ bits = 0, access = 'ro' }}",
    "read-only-neighbours": "fields.HIGH = {{ bits = '7:6', access = 'ro' }}\n"
    "fields.F = {{ bits = '5:2', write = {{ effect = '{0}' }} }}\nfields.LOW = {{ bits = '1:0', access = 'ro' }}",
    "reserved-neighbours": "fields.HIGH = {{ bits = '7:6', reserved = 'one' }}\n"
    "fields.F = {{ bits = '5:2', write = {{ effect = '{0}' }} }}\nfields.LOW = {{ bits = '1:0', reserved = 'keep' }}",
    "gated-neighbours": "fields.HIGH = {{ bits = '7:6', write = {{ effect = 'set', gate = 'OTHER' }} }}\n"
    "fields.F = {{ bits = '5:2', write = {{ effect = '{0}' }} }}\n"
    "fields.LOW = {{ bits = '1:0', write = {{ effect = 'clear', gate = 'OTHER' }} }}",
}


@pytest.mark.parametrize("text", ONLY_THE_MIDDLE.values(), ids=ONLY_THE_MIDDLE)
@pytest.mark.parametrize(("effect", "wanted"), WRITES.items(), ids=WRITE_IDS)
def test_write_when_it_reaches_the_middle_bits_only_then_the_others_stay(
    effect: WriteEffect, wanted: AfterWrite, text: str
) -> None:
    chip = Chip(toy(reg("R", 0, text.format(effect)), reg("OTHER", 1)))
    chip.values |= {"R": 0xA5, "OTHER": 0x00}
    write(chip, 0x0F)
    assert chip.values["R"] == (0xA5 & ~MIDDLE) | (wanted.once & MIDDLE)
    assert chip.pulses["R"] == wanted.pulses // 2


@pytest.mark.parametrize("gate", ["GATE", "GATE.ON"], ids=["register", "field"])
@pytest.mark.parametrize("where", ["register", "field"])
@pytest.mark.parametrize(("effect", "wanted"), WRITES.items(), ids=WRITE_IDS)
def test_write_when_gated_then_a_closed_gate_counts_it_and_changes_nothing(
    effect: WriteEffect, wanted: AfterWrite, where: str, gate: str
) -> None:
    text = written_as(effect, f", gate = '{gate}'")
    if where == "field":
        text = f"fields.F = {{ bits = '7:0', {text} }}"
    chip = Chip(toy(reg("R", 0, text), reg("GATE", 1, "fields.ON = { bits = '7:0' }")))
    chip.values |= {"R": 0xA5, "GATE": 0}
    write(chip, 0x0F)
    assert (chip.values["R"], chip.pulses["R"], chip.sent) == (0xA5, 0, {})
    assert chip.executed == {("R", "write"): 1}
    chip.values["GATE"] = 1
    write(chip, 0x0F)
    assert (chip.values["R"], chip.pulses["R"]) == (wanted.once, wanted.pulses // 2)


@pytest.mark.parametrize("effect", ["self_clearing", "pulse"])
def test_pulse_when_written_zero_then_nothing_fires(effect: str) -> None:
    chip = Chip(toy(reg("R", 0, written_as(effect))))
    write(chip, 0)
    assert (chip.pulses, chip.executed) == ({}, {("R", "write"): 1})


def test_command_when_written_zero_then_it_fires_all_the_same() -> None:
    chip = Chip(toy(reg("R", 0, written_as("command"))))
    write(chip, 0)
    assert chip.pulses == {"R": 1}


def test_write_once_when_written_again_then_the_first_value_stays_until_reset() -> None:
    chip = Chip(toy(reg("R", 0, written_as("write_once"))))
    held = []
    for value in (0x12, 0x34):
        write(chip, value)
        held.append(chip.values["R"])
    chip.reset()
    write(chip, 0x56)
    assert [*held, chip.values["R"]] == [0x12, 0x12, 0x56]


def test_lock_when_written_back_then_it_holds_until_reset() -> None:
    chip = Chip(toy(reg("R", 0, written_as("lock"))))
    held = []
    for value in (0x01, 0x00, 0x80):
        write(chip, value)
        held.append(chip.values["R"])
    chip.reset()
    assert [*held, chip.values["R"]] == [0x01, 0x01, 0x81, 0x00]


FIRING = ["self_clearing", "pulse", "command", "push"]
SIGNALS = [
    ("delta up", "{ register = 'S', delta = 3 }", 0x10, 0x13),
    ("delta down", "{ register = 'S', delta = -1 }", 0x10, 0x0F),
    ("delta wraps", "{ register = 'S', delta = -1 }", 0x00, 0xFF),
    ("equals", "{ register = 'S', equals = 0x5A }", 0x10, 0x5A),
    ("any change", "'S'", 0x10, 0x11),
    ("field delta", "{ register = 'S.COUNT', delta = 1 }", 0x9F, 0xAF),
    ("field wraps", "{ register = 'S.COUNT', delta = 1 }", 0xFF, 0x0F),
    ("field equals", "{ register = 'S.COUNT', equals = 2 }", 0x9F, 0x2F),
    ("field any change", "'S.COUNT'", 0x9F, 0xAF),
]


@pytest.mark.parametrize(("_what", "signal", "before", "after"), SIGNALS, ids=[s[0].replace(" ", "-") for s in SIGNALS])
@pytest.mark.parametrize("effect", FIRING)
def test_signal_when_a_write_fires_then_it_moves_as_declared(
    effect: str, _what: str, signal: str, before: int, after: int
) -> None:
    status = reg("S", 1, "fields.COUNT = { bits = '7:4' }\nfields.REST = { bits = '3:0' }", "ro")
    chip = Chip(toy(reg("R", 0, written_as(effect, f", signals = [{signal}]")), status))
    chip.values["S"] = before
    write(chip, 1)
    assert chip.values["S"] == after
    assert chip.executed == {("R", "write"): 1}  # a consequence is no access


def test_signal_when_it_is_in_the_written_register_then_neighbours_are_stored_too() -> None:
    go = "fields.GO = { bits = 7, write = { effect = 'pulse', signals = ['R.GO'] } }\nfields.MODE = { bits = '6:0' }"
    chip = Chip(toy(reg("R", 0, go)))
    write(chip, 0x85)
    assert chip.values["R"] == 0x85
    write(chip, 0x86)
    assert chip.values["R"] == 0x06


def test_fire_when_it_affects_a_fifo_then_the_fifo_is_emptied_and_its_level_follows() -> None:
    fifo = reg("F", 0, effect_of("pop", ", level = 'LEVEL'"), "ro")
    text = written_as("self_clearing", ", affects = ['F', 'LEVEL'], signals = ['LEVEL']")
    chip = Chip(toy(fifo, reg("LEVEL", 1, access="ro"), reg("CTRL", 2, text)))
    chip.push("F", b"abc")
    write(chip, 1, 2)
    assert (read(chip, 1), list(chip.fifos["F"]), chip.values["LEVEL"]) == (0, [], 0)


def test_store_when_it_is_proved_elsewhere_then_the_other_register_holds_it_too() -> None:
    text = (
        "fields.F = { bits = '5:2', write = { effect = 'store', verify = { by = 'read_back', register = 'LATCH' } } }"
    )
    chip = Chip(toy(reg("PORT", 0, text), reg("LATCH", 1)))
    chip.values["LATCH"] = 0xFF
    write(chip, 0x0C)
    assert (chip.values["PORT"], chip.values["LATCH"]) == (0x0C, 0xCF)


def test_write_once_when_a_part_was_written_then_the_rest_is_still_fresh() -> None:
    chip = Chip(toy(reg("W", 0, "width_bits = 16\n" + written_as("write_once"))))
    write(chip, 0x12, 0)
    assert chip.values["W"] == 0x1200
    chip.write(MEMORY, 0, b"\xff\x34")
    assert chip.values["W"] == 0x1234
    chip.write(MEMORY, 0, b"\x00\x00")
    assert chip.values["W"] == 0x1234


def test_write_once_when_a_field_was_gated_then_its_bits_are_still_fresh() -> None:
    plain, gated = written_as("write_once"), written_as("write_once", ", gate = 'GATE'")
    fields = f"fields.A = {{ bits = '3:0', {plain} }}\nfields.B = {{ bits = '7:4', {gated} }}"
    chip = Chip(toy(reg("R", 0, fields), reg("GATE", 1)))
    held = []
    for gate, value in ((0, 0x12), (1, 0x34), (1, 0x56)):
        chip.values["GATE"] = gate
        write(chip, value)
        held.append(chip.values["R"])
    assert held == [0x02, 0x32, 0x32]


# R holds 0xA5A5, and 0x0F is written into one byte of it
PARTIAL = {effect: wanted for effect, wanted in WRITES.items() if effect is not WriteEffect.PUSH}


@pytest.mark.parametrize("at", [0, 1], ids=["high-byte", "low-byte"])
@pytest.mark.parametrize(
    "fields", ["", "fields.H = { bits = '15:8' }\nfields.L = { bits = '7:0' }"], ids=["", "fields"]
)
@pytest.mark.parametrize(("effect", "wanted"), PARTIAL.items(), ids=[e.value for e in PARTIAL])
def test_partial_write_when_it_touches_one_byte_then_the_effect_acts_there_only(
    effect: WriteEffect, wanted: AfterWrite, fields: str, at: int
) -> None:
    chip = Chip(toy(reg("R", 0, f"width_bits = 16\n{written_as(effect)}\n{fields}")))
    chip.values["R"] = 0xA5A5
    write(chip, 0x0F, at)
    assert chip.values["R"] == ((wanted.once << 8) | 0xA5 if at == 0 else 0xA500 | wanted.once)
    assert (chip.executed, chip.pulses["R"]) == ({("R", "write"): 1}, wanted.pulses // 2)


@pytest.mark.parametrize("effect", ["pulse", "self_clearing", "command", "push", "advance", "modify", "unknown"])
def test_partial_write_when_a_field_lies_in_the_other_byte_then_it_does_not_fire(effect: str) -> None:
    fields = f"fields.GO = {{ bits = '15:8', {written_as(effect)} }}\nfields.MODE = {{ bits = '7:0' }}"
    chip = Chip(toy(reg("R", 0, f"width_bits = 16\n{fields}")))
    write(chip, 0xFF, 1)
    assert (chip.values["R"], chip.pulses, chip.sent) == (0x00FF, {}, {})


def test_push_when_it_affects_a_fifo_then_the_fifo_keeps_its_elements() -> None:
    fifo = reg("F", 0, effect_of("pop"), "ro")
    chip = Chip(toy(fifo, reg("TX", 1, written_as("push", ", affects = ['F']"))))
    chip.push("F", b"abc")
    write(chip, 0x31, 1)
    assert (bytes(chip.fifos["F"]), chip.sent, chip.pulses) == (b"abc", {"TX": [0x31]}, {"TX": 1})


def test_fire_when_it_affects_a_field_or_plain_storage_then_only_fifos_are_emptied() -> None:
    fifo = reg("F", 0, effect_of("pop") + "\nfields.DATA = { bits = '7:0' }", "ro")
    text = written_as("command", ", affects = ['F.DATA', 'S']")
    chip = Chip(toy(fifo, reg("S", 1), reg("CTRL", 2, text)))
    chip.push("F", b"abc")
    chip.values["S"] = 5
    write(chip, 1, 2)
    assert (bytes(chip.fifos["F"]), chip.values["S"]) == (b"", 5)
