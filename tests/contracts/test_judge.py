"""The judge on real chips and on small contracts made for one rule each."""

from __future__ import annotations

import pytest

from hwtool_contracts.effects import Basis, ReadEffect, Reconcile, When, WriteEffect
from hwtool_contracts.judge import (
    ReadJudgement,
    Refused,
    Stage,
    judge_read,
    may_merge,
    may_poll,
    may_repeat_read,
    refuse_as_clean,
    refuse_as_effectful,
)
from hwtool_contracts.judge_write import (
    UpdateJudgement,
    WriteJudgement,
    judge_number,
    judge_update,
    judge_write,
    may_repeat_write,
    readable_back,
)
from hwtool_contracts.library import bundled
from hwtool_contracts.model import Contract, Owner, Verify
from hwtool_contracts.native import parse_contract
from hwtool_contracts.places import overlapping

TOY = """
schema = 1
part = "toy"
vendor = "nobody"
title = "a toy"
source = "the test"
[access]
offset_bytes = 1
byte_order = "big"
[access.i2c]
addresses = [0x20]
auto_increment = "both"
[defaults]
read = { effects = ["none"], provenance = "generated", source = "rtl" }
write = { effect = "store", provenance = "generated", source = "rtl" }
"""


def toy(*registers: str) -> Contract:
    return parse_contract(TOY + "\n".join(registers), "toy.toml")


def reg(name: str, offset: int, rest: str = "", access: str = "rw") -> str:
    return f"[registers.{name}]\noffset = {offset}\naccess = '{access}'\n{rest}\n"


def read_of(contract: Contract, name: str) -> ReadJudgement:
    judged = judge_read(contract, (contract.registers[name],))
    assert isinstance(judged, ReadJudgement)
    return judged


def write_of(contract: Contract, name: str, value: int, named: frozenset[str] | None = None) -> WriteJudgement:
    judged = judge_write(contract, contract.registers[name], value, named)
    assert isinstance(judged, WriteJudgement), judged
    return judged


def refused_write(contract: Contract, name: str, value: int, named: frozenset[str] | None = None) -> Refused:
    judged = judge_write(contract, contract.registers[name], value, named)
    assert isinstance(judged, Refused), judged
    return judged


CHIP_READS = [
    ("mcp23017", "OLATA", {"none"}, True, False),
    ("mcp23017", "INTFA", {"none"}, True, False),
    ("mcp23017", "INTCAPA", {"ack"}, False, True),
    ("mcp23017", "GPIOB", {"ack"}, False, True),
    ("sc16is750", "RHR", {"pop"}, False, True),
    ("sc16is750", "RXLVL", {"none"}, True, False),
    ("sc16is750", "MSR", {"clear"}, False, True),
    ("sc16is750", "LSR", {"unknown"}, False, False),
    ("sc16is750", "IIR", {"unknown"}, False, False),
    ("sc16is750", "DLL", {"none"}, True, False),
    ("tmp102", "TEMPERATURE", {"none"}, True, False),
    ("ds3231", "STATUS", {"none"}, True, False),
    ("ads1115", "CONVERSION", {"none"}, True, False),
    ("sdm120", "VOLTAGE", {"none"}, True, False),
]


@pytest.mark.parametrize(("chip", "name", "effects", "clean", "consuming"), CHIP_READS)
def test_read_of_a_bundled_chip_when_judged_then_as_its_contract_says(
    chip: str, name: str, effects: set[str], clean: bool, consuming: bool
) -> None:
    judged = read_of(bundled(chip), name)
    assert (set(judged.effects), judged.clean, judged.consuming) == (effects, clean, consuming)
    if not clean:
        assert judged.retry is When.NO


def test_read_when_write_only_then_refused() -> None:
    thr = bundled("sc16is750").registers["THR"]
    judged = judge_read(bundled("sc16is750"), (thr,))
    assert isinstance(judged, Refused)
    assert judged.rule == "write_only"


def test_read_when_a_neighbour_overlaps_any_byte_then_its_effects_count() -> None:
    contract = toy(reg("WIDE", 0, "width_bits = 16"), reg("LOW", 1, "read = { effects = ['pop'] }"))
    assert read_of(contract, "WIDE").effects == {ReadEffect.POP}
    assert not read_of(contract, "WIDE").clean


def test_read_when_the_pointer_stays_then_an_offset_is_a_cell() -> None:
    contract = bundled("tmp102")
    assert [r.name for r in overlapping(contract, contract.registers["TEMPERATURE"])] == ["TEMPERATURE"]


def test_read_when_no_bank_is_named_then_all_banks_count() -> None:
    bank = "[banks.B]\nselect = [{ register = 'SEL', value = 1 }]\n"
    contract = toy(reg("SEL", 9), reg("A", 0), reg("B", 0, "bank = 'B'\nread = { effects = ['clear'] }"), bank)
    assert read_of(contract, "A").effects == {ReadEffect.CLEAR}
    assert read_of(contract, "B").effects == {ReadEffect.CLEAR}


def test_read_when_a_field_says_more_than_its_register_then_the_union_decides() -> None:
    contract = toy(reg("R", 0, "fields.F = { bits = 0, read = { effects = ['ack'] } }"))
    assert read_of(contract, "R").effects == {ReadEffect.ACK}


def test_read_when_every_bit_is_a_declared_field_then_the_registers_silence_does_not_count() -> None:
    silent = "read = { effects = ['unknown'], provenance = 'silent' }\n"
    field = "fields.F = { bits = '7:0', read = { effects = ['none'], provenance = 'generated' } }"
    assert read_of(toy(reg("R", 0, silent + field)), "R").clean
    assert not read_of(toy(reg("R", 0, silent + field.replace("7:0", "6:0"))), "R").clean


def test_read_when_a_neighbour_is_write_only_then_it_does_not_count() -> None:
    assert read_of(toy(reg("R", 0, access="ro"), reg("W", 0, access="wo")), "R").clean


@pytest.mark.parametrize(("owner", "clean"), [("exclusive", True), ("shared", False)])
def test_arm_when_the_device_is_exclusive_then_keyless_else_not(owner: str, clean: bool) -> None:
    contract = toy(reg("R", 0, f"owner = '{owner}'\nread = {{ effects = ['arm'] }}"))
    judged = read_of(contract, "R")
    assert judged.clean is clean
    assert may_poll(judged, Owner(owner)) is clean


def test_latch_when_read_as_its_group_then_clean_else_not() -> None:
    contract = toy(reg("L", 0, "read = { effects = ['latch'] }"), reg("H", 1, "read = { effects = ['latch'] }"))
    members = (contract.registers["L"], contract.registers["H"])
    grouped = judge_read(contract, members, as_group=True)
    assert isinstance(grouped, ReadJudgement)
    assert grouped.clean
    assert not may_merge(grouped)
    assert may_repeat_read(grouped, Stage.DISPATCHED)
    assert not read_of(contract, "L").clean


def test_gate_when_declared_then_the_judgement_carries_it() -> None:
    contract = toy(reg("EN", 1), reg("R", 0, "read = { effects = ['none'], provenance = 'generated', gate = 'EN' }"))
    assert read_of(contract, "R").gates == ("EN",)


@pytest.mark.parametrize(
    ("chip", "name", "stage", "allowed"),
    [
        ("tmp102", "TEMPERATURE", Stage.DISPATCHED, True),
        ("sc16is750", "RHR", Stage.DISPATCHED, False),
        ("sc16is750", "RHR", Stage.PREPARATION, True),
        ("sc16is750", "IIR", Stage.DISPATCHED, False),
    ],
)
def test_repeat_when_asked_by_stage_then_only_before_dispatch_or_clean(
    chip: str, name: str, stage: Stage, allowed: bool
) -> None:
    assert may_repeat_read(read_of(bundled(chip), name), stage) is allowed


def test_write_when_dispatched_then_it_may_never_be_repeated() -> None:
    judged = write_of(bundled("mcp23017"), "OLATA", 1)
    assert may_repeat_write(judged, Stage.PREPARATION)
    assert not may_repeat_write(judged, Stage.DISPATCHED)


def test_merge_and_poll_when_clean_then_allowed_and_else_not() -> None:
    clean, pop = read_of(bundled("mcp23017"), "OLATA"), read_of(bundled("sc16is750"), "RHR")
    assert may_merge(clean)
    assert may_poll(clean, Owner.SHARED)
    assert not may_merge(pop)
    assert not may_poll(pop, Owner.EXCLUSIVE)


def test_refusals_when_the_wrong_verb_is_used_then_each_names_the_other() -> None:
    pop, clean = read_of(bundled("sc16is750"), "RHR"), read_of(bundled("sc16is750"), "RXLVL")
    first, second = refuse_as_clean(pop, "u.RHR"), refuse_as_effectful(clean, "u.RXLVL")
    assert first is not None
    assert (first.rule, "reg.read_effectful" in first.hint) == ("read_has_side_effects", True)
    assert second is not None
    assert second.rule == "read_is_clean"
    assert refuse_as_clean(clean, "u.RXLVL") is None
    assert refuse_as_effectful(pop, "u.RHR") is None
    unknown = refuse_as_clean(read_of(bundled("sc16is750"), "IIR"), "u.IIR")
    assert unknown is not None
    assert "nobody has said" in unknown.message


CHIP_WRITES = [
    ("mcp23017", "OLATA", 0x55, "store", "read_back", Reconcile.COMPARE, 0),
    ("mcp23017", "GPIOA", 0x55, "store", "read_back", Reconcile.COMPARE, 0),
    ("sc16is750", "THR", 0x41, "push", "signal", Reconcile.DECLARED, 0),
    ("sc16is750", "FCR", 0x03, "self_clearing", "signal", Reconcile.DECLARED, 0),
    ("sc16is750", "FCR", 0x01, "store", "none", Reconcile.COMPARE, 0),
    ("tmp102", "CONFIGURATION", 0xE0A0, "pulse", "read_back", Reconcile.DECLARED, 0),
    ("tmp102", "CONFIGURATION", 0x60A0, "store", "read_back", Reconcile.COMPARE, 0),
    ("ds3231", "STATUS", 0x08, "zero_to_clear", "read_back", Reconcile.WERE_SET_NOW_CLEAR, 0),
    ("ds3231", "STATUS", 0x8B, "store", "read_back", Reconcile.COMPARE, 0),
    ("ds3231", "SECONDS", 0x30, "store", "none", Reconcile.COMPARE, 0),
    ("sdm120", "RELAY_PULSE_WIDTH", 0x42C80000, "store", "read_back", Reconcile.COMPARE, 2),
    ("sdm120", "METER_ID", 0x3F800000, "modify", "none", Reconcile.PERSON, 2),
]


@pytest.mark.parametrize(("chip", "name", "value", "effect", "verify", "reconcile", "approvals"), CHIP_WRITES)
def test_write_to_a_bundled_chip_when_judged_then_as_its_contract_says(
    chip: str, name: str, value: int, effect: str, verify: str, reconcile: Reconcile, approvals: int
) -> None:
    judged = write_of(bundled(chip), name, value)
    assert (judged.effect, judged.verify.by, judged.reconcile) == (effect, verify, reconcile)
    assert len(judged.approval) == approvals


REFUSED_WRITES = [
    ("mcp23017", "INTFA", 0, "read_only", None),
    ("mcp23017", "OLATA", 0x100, "out_of_range", None),
    ("mcp23017", "OLATA", -1, "out_of_range", None),
    ("mcp23017", "IOCON", 0x80, "breaks_assumption", "BANK"),
    ("mcp23017", "IOCON", 0x01, "reserved_bits", "UNIMPLEMENTED"),
    ("sc16is750", "MCR", 0x04, "out_of_limits", "TCR_TLR_ENABLE"),
    ("sdm120", "TIME_OF_SCROLL_DISPLAY", 10, "out_of_limits", None),
    ("sdm120", "PULSE_1_OUTPUT", 9, "not_a_value", None),
]


@pytest.mark.parametrize(("chip", "name", "value", "rule", "field"), REFUSED_WRITES)
def test_write_when_the_contract_forbids_it_then_rule_and_field_are_named(
    chip: str, name: str, value: int, rule: str, field: str | None
) -> None:
    refused = refused_write(bundled(chip), name, value)
    assert (refused.rule, refused.field) == (rule, field)
    assert refused.hint


def test_write_when_outside_the_mask_then_refused() -> None:
    contract = toy(reg("R", 0, "write = { effect = 'store', mask = 0x0F }"))
    assert refused_write(contract, "R", 0x10).rule == "outside_mask"


def test_write_when_every_field_is_left_alone_then_it_changes_nothing() -> None:
    contract = toy(reg("R", 0, "fields.F = { bits = '7:0', write = { effect = 'one_to_clear' } }"))
    assert refused_write(contract, "R", 0).rule == "changes_nothing"


def test_write_when_loose_bits_are_neutral_then_only_the_field_is_judged() -> None:
    text = "write = { effect = 'one_to_clear' }\nfields.F = { bits = 0, write = { effect = 'store' } }"
    contract = toy(reg("R", 0, text))
    assert write_of(contract, "R", 0x01).effect is WriteEffect.STORE
    assert write_of(contract, "R", 0x03).effect is WriteEffect.ONE_TO_CLEAR


def test_update_of_named_fields_when_judged_then_a_read_only_field_is_refused() -> None:
    status = refused_write(bundled("ds3231"), "STATUS", 0x04, frozenset({"BSY"}))
    assert (status.rule, status.field) == ("read_only", "BSY")
    reserved = refused_write(bundled("ds3231"), "STATUS", 0x10, frozenset({"ZERO"}))
    assert (reserved.rule, reserved.field) == ("reserved_bits", "ZERO")


def test_lock_when_written_then_approval_is_required_whatever_the_file_says() -> None:
    contract = toy(reg("R", 0, "write = { effect = 'lock', approval = 'none' }"))
    assert "always needs approval" in write_of(contract, "R", 1).approval[0]


def test_gate_of_a_write_when_declared_on_register_or_field_then_both_are_carried() -> None:
    text = (
        "write = { effect = 'store', gate = 'EN' }\nfields.F = { bits = 0, write = { effect = 'store', gate = 'EN2' } }"
    )
    contract = toy(reg("EN", 1), reg("EN2", 2), reg("R", 0, text))
    assert write_of(contract, "R", 1).gates == ("EN", "EN2")


@pytest.mark.parametrize(
    ("effect", "volatile", "access", "verify"),
    [
        ("store", False, "rw", "read_back"),
        ("store", False, "wo", "none"),
        ("one_to_clear", True, "rw", "read_back"),
        ("pulse", False, "rw", "none"),
        ("unknown", False, "rw", "none"),
    ],
)
def test_verification_when_the_contract_names_none_then_the_effect_decides(
    effect: str, volatile: bool, access: str, verify: str
) -> None:
    text = f"write = {{ effect = '{effect}' }}\nvolatile = {str(volatile).lower()}"
    assert write_of(toy(reg("R", 0, text, access)), "R", 1).verify.by == verify


def test_verification_when_the_read_back_would_have_effects_then_none() -> None:
    contract = toy(reg("R", 0, "read = { effects = ['clear'] }\nwrite = { effect = 'store' }"))
    assert write_of(contract, "R", 1).verify.by == "none"
    assert not readable_back(contract, contract.registers["R"], Verify("read_back", "NOBODY"))


def test_verification_when_only_signals_are_declared_then_by_signal() -> None:
    contract = toy(reg("S", 1, access="ro"), reg("R", 0, "write = { effect = 'command', signals = ['S'] }"))
    assert write_of(contract, "R", 1).verify.by == "signal"


def test_window_when_fields_name_several_then_the_longest_counts() -> None:
    fields = "fields.A = { bits = 0, write = { effect = 'store', window_ms = 10 } }\n"
    fields += "fields.B = { bits = 1, write = { effect = 'store', window_ms = 900 } }"
    assert write_of(toy(reg("R", 0, fields)), "R", 3).window_ms == 900


def test_long_window_and_approval_when_declared_then_neither_brings_the_other() -> None:
    contract = toy(
        reg("W", 0, "write = { effect = 'store', window_ms = 60000 }"),
        reg("A", 1, "write = { effect = 'store', approval = 'required' }"),
    )
    assert (write_of(contract, "W", 1).window_ms, write_of(contract, "W", 1).approval) == (60000, ())
    assert write_of(contract, "A", 1).window_ms is None
    assert write_of(contract, "A", 1).approval


def update_of(contract: Contract, register: str, *fields: str) -> UpdateJudgement | Refused:
    return judge_update(contract, contract.registers[register], frozenset(fields))


def test_update_when_neighbours_store_then_they_are_written_back_as_read() -> None:
    judged = update_of(bundled("mcp23017"), "OLATA", "P0")
    assert judged == UpdateJudgement(True, 0, 0xFE)


def test_update_when_neighbours_are_flags_then_they_get_their_neutral_value_and_reserved_theirs() -> None:
    judged = update_of(bundled("ds3231"), "STATUS", "EN32KHZ")
    # OSF, A2F, A1F: one leaves a write-0-to-clear flag alone; bits 6:4 are zero; BSY cannot be written
    assert judged == UpdateJudgement(False, 0x83, 0)


def test_update_when_neighbours_are_pulses_then_zero_leaves_them_alone() -> None:
    judged = update_of(bundled("tmp102"), "CONFIGURATION", "SD")
    assert judged == UpdateJudgement(True, 0, 0x1ED0)


@pytest.mark.parametrize(
    ("text", "field"),
    [
        ("fields.F = { bits = 0 }\nfields.G = { bits = 1, volatile = true }", "G"),
        ("owner = 'shared'\nfields.F = { bits = 0 }\nfields.G = { bits = 1 }", "G"),
        ("fields.F = { bits = 0 }\nfields.G = { bits = 1, write = { effect = 'command' } }", "G"),
        ("volatile = true\nfields.F = { bits = 0, volatile = false }", None),
    ],
    ids=["volatile", "shared", "acts", "loose bits"],
)
def test_update_when_a_neighbour_has_no_neutral_value_then_it_is_named(text: str, field: str | None) -> None:
    judged = update_of(toy(reg("R", 0, text)), "R", "F")
    assert isinstance(judged, Refused)
    assert judged.rule == "unsafe_update"
    assert judged.field == field


def test_update_when_the_read_is_not_clean_then_refused_naming_the_field_in_the_way() -> None:
    text = "read = { effects = ['clear'] }\nfields.A = { bits = '7:4' }\nfields.B = { bits = '3:0' }"
    judged = update_of(toy(reg("R", 0, text)), "R", "B")
    assert isinstance(judged, Refused)
    assert (judged.rule, judged.field) == ("unsafe_update", "A")


def test_update_when_the_register_cannot_be_read_then_the_rest_is_what_was_written_last() -> None:
    judged = update_of(bundled("sc16is750"), "FCR", "RX_FIFO_RESET")
    assert judged == UpdateJudgement(True, 0, 0xF9, shadow=True)


def test_update_when_loose_bits_have_a_constant_then_no_read_is_needed() -> None:
    text = "write = { effect = 'zero_to_clear' }\nfields.F = { bits = 0, write = { effect = 'store' } }"
    assert update_of(toy(reg("R", 0, text)), "R", "F") == UpdateJudgement(False, 0xFE, 0)


def test_update_when_loose_bits_store_then_they_come_from_the_current_value() -> None:
    assert update_of(toy(reg("R", 0, "fields.F = { bits = 0 }")), "R", "F") == UpdateJudgement(True, 0, 0xFE)


def test_update_when_a_neighbour_is_reserved_one_or_keep_then_written_so() -> None:
    text = "fields.F = { bits = '5:0' }\nfields.ONE = { bits = 6, reserved = 'one' }\n"
    text += "fields.K = { bits = 7, reserved = 'keep' }"
    assert update_of(toy(reg("R", 0, text)), "R", "F") == UpdateJudgement(True, 0x40, 0x80)


def test_update_when_the_field_does_not_exist_then_the_known_ones_are_listed() -> None:
    judged = update_of(bundled("mcp23017"), "OLATA", "P9")
    assert isinstance(judged, Refused)
    assert (judged.rule, judged.field) == ("no_such_field", "P9")
    assert "P0" in judged.hint


def test_number_when_outside_the_limits_in_its_unit_then_refused() -> None:
    width = bundled("sdm120").registers["RELAY_PULSE_WIDTH"]
    assert judge_number(width, 100.0) is None
    for wrong in (59.9, 200.1, float("nan")):
        refused = judge_number(width, wrong)
        assert refused is not None
        assert (refused.rule, "60 to 200 ms" in refused.hint) == ("out_of_limits", True)
    assert judge_number(bundled("sdm120").registers["VOLTAGE"], 1e9) is None


def test_basis_when_several_registers_are_read_then_the_weakest_is_reported() -> None:
    contract = toy(reg("R", 0, "width_bits = 16"), reg("Q", 1, "read = { effects = ['pop'], provenance = 'asserted' }"))
    assert read_of(contract, "R").basis is Basis.ASSERTED
