"""The simulated chip against `hwtool_contracts.expect`: two readings of one contract must agree on every bit.

The chip applies effects to bits; the expectation says what a clean read may be compared with. Neither knows the other.
"""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import settings as hypothesis_settings
from hypothesis import strategies as st

from hwtool_contracts.effects import WriteEffect
from hwtool_contracts.expect import expectation
from hwtool_contracts.library import bundled, bundled_names
from hwtool_contracts.model import Contract, Register, Space
from hwtool_registers.bits import to_bytes
from hwtool_sim.board import chip_at_power_on
from hwtool_sim.chip import Chip
from tests.contracts.test_judge import reg, toy

BYTE = st.integers(0, 0xFF)


def written(contract: Contract, register: Register, value: int, prior: int) -> Chip:
    """A chip whose register held `prior` and was then written `value`, its bank established."""
    chip = chip_at_power_on(contract)
    chip.values[register.name] = prior
    if register.bank is not None:
        for selector in contract.banks[register.bank].select:
            chip.values[selector.register] = selector.value
    if register.space in (Space.COMMAND, Space.LINE, Space.COIL):
        chip.write_register(register, value)
    else:
        chip.write(register.space, register.offset, to_bytes(register, value))
    return chip


def assert_agree(contract: Contract, register: Register, value: int, prior: int) -> None:
    chip = written(contract, register, value, prior)
    wanted = expectation(register, value, prior)
    held = chip.values[register.name]
    assert held & wanted.strong == wanted.value & wanted.strong
    assert held & wanted.weak == 0
    assert chip.executed == {(register.name, "write"): 1}


def attainable(effect: WriteEffect, value: int, prior: int) -> int:
    """A value whose write can succeed: a lock that is closed is not opened by writing zero."""
    return value | prior if effect is WriteEffect.LOCK else value


@pytest.mark.parametrize("effect", list(WriteEffect))
@hypothesis_settings(deadline=None)
@given(value=BYTE, prior=BYTE)
def test_expectation_when_a_register_has_one_effect_then_the_chip_holds_it(
    effect: WriteEffect, value: int, prior: int
) -> None:
    contract = SINGLE[effect]
    assert_agree(contract, contract.registers["R"], attainable(effect, value, prior), prior)


@pytest.mark.parametrize("effect", list(WriteEffect))
@hypothesis_settings(deadline=None)
@given(value=BYTE, prior=BYTE)
def test_expectation_when_a_field_has_the_effect_then_the_chip_holds_it(
    effect: WriteEffect, value: int, prior: int
) -> None:
    contract = IN_A_FIELD[effect]
    assert_agree(contract, contract.registers["R"], attainable(effect, value, prior), prior)


def one_effect(effect: WriteEffect) -> Contract:
    return toy(reg("R", 0, f"write = {{ effect = '{effect}' }}"))


def one_field(effect: WriteEffect) -> Contract:
    field = f"fields.F = {{ bits = '5:2', write = {{ effect = '{effect}' }} }}"
    rest = "fields.RO = { bits = '7:6', access = 'ro' }\nfields.RESERVED = { bits = 1, reserved = 'keep' }"
    return toy(reg("R", 0, f"{field}\n{rest}"))


SINGLE = {effect: one_effect(effect) for effect in WriteEffect}
IN_A_FIELD = {effect: one_field(effect) for effect in WriteEffect}


@hypothesis_settings(deadline=None)
@given(
    effects=st.lists(st.sampled_from(WriteEffect), min_size=8, max_size=8),
    value=BYTE,
    prior=BYTE,
)
def test_expectation_when_every_bit_has_an_effect_of_its_own_then_the_chip_holds_each(
    effects: list[WriteEffect], value: int, prior: int
) -> None:
    fields = [f"fields.B{bit} = {{ bits = {bit}, write = {{ effect = '{e}' }} }}" for bit, e in enumerate(effects)]
    contract = toy(reg("R", 0, "\n".join(fields)))
    locks = sum(1 << bit for bit, e in enumerate(effects) if e is WriteEffect.LOCK)
    assert_agree(contract, contract.registers["R"], value | (prior & locks), prior)


BUNDLED = [
    (part, register.name)
    for part in bundled_names()
    for register in bundled(part).registers.values()
    if register.access.writable
    and not any(s.resets for s in (register.write, *(f.write for f in register.fields.values())))
]


@pytest.mark.parametrize(("part", "name"), BUNDLED, ids=[f"{part}.{name}" for part, name in BUNDLED])
@hypothesis_settings(max_examples=25, deadline=None)
@given(data=st.data())
def test_expectation_when_a_bundled_register_is_written_then_the_chip_holds_it(
    part: str, name: str, data: st.DataObject
) -> None:
    contract = bundled(part)
    register = contract.registers[name]
    raw = st.integers(0, register.mask)
    assert_agree(contract, register, data.draw(raw, "value"), data.draw(raw, "prior"))


@pytest.mark.parametrize(("port", "latch"), [("GPIOA", "OLATA"), ("GPIOB", "OLATB")])
@hypothesis_settings(deadline=None)
@given(value=BYTE, prior=BYTE)
def test_expectation_when_a_write_is_proved_elsewhere_then_that_register_holds_it(
    port: str, latch: str, value: int, prior: int
) -> None:
    contract = bundled("mcp23017")
    chip = written(contract, contract.registers[port], value, prior)
    assert chip.values[latch] == value


MASKED = {
    "register": "write = {{ effect = '{0}', mask = 0x3C }}",
    "field": "fields.F = {{ bits = '6:1', write = {{ effect = '{0}', mask = 0x1E }} }}\n"
    "fields.HIGH = {{ bits = 7, access = 'ro' }}\nfields.LOW = {{ bits = 0, access = 'ro' }}",
}
MASKS = [
    (toy(reg("R", 0, text.format(effect))), effect, f"{where}-{effect}")
    for where, text in MASKED.items()
    for effect in WriteEffect
]


@pytest.mark.parametrize(("contract", "effect", "_what"), MASKS, ids=[m[2] for m in MASKS])
@hypothesis_settings(max_examples=25, deadline=None)
@given(value=BYTE, prior=BYTE)
def test_expectation_when_only_some_bits_may_be_written_then_it_promises_these_and_the_chip_holds_them(
    contract: Contract, effect: WriteEffect, _what: str, value: int, prior: int
) -> None:
    register = contract.registers["R"]
    value = attainable(effect, value, prior)
    assert_agree(contract, register, value, prior)
    wanted = expectation(register, value, prior)
    assert (wanted.strong | wanted.weak | wanted.toggles) & ~0x3C == 0
    assert written(contract, register, value, prior).values["R"] & ~0x3C == prior & ~0x3C
