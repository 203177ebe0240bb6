"""What a register should hold after a write, for each effect."""

from __future__ import annotations

import pytest

from hwtool_contracts.expect import Expectation, expectation
from hwtool_contracts.library import bundled
from tests.contracts.test_judge import reg, toy

CASES = [
    ("store", False, 0x5A, 0x00, Expectation(0x5A, 0xFF, 0, 0)),
    ("store", True, 0x5A, 0x00, Expectation(0, 0, 0, 0)),
    ("one_to_clear", True, 0x06, 0xFF, Expectation(0, 0, 0x06, 0)),
    ("zero_to_clear", True, 0xF9, 0xFF, Expectation(0, 0, 0x06, 0)),
    ("one_to_set", False, 0x06, 0x01, Expectation(0x06, 0x06, 0, 0)),
    ("zero_to_set", False, 0xF9, 0x01, Expectation(0x06, 0x06, 0, 0)),
    ("one_to_set", True, 0x06, 0x01, Expectation(0, 0, 0, 0)),
    ("clear", False, 0x06, 0xFF, Expectation(0, 0xFF, 0, 0)),
    ("set", False, 0x06, 0x00, Expectation(0xFF, 0xFF, 0, 0)),
    ("lock", False, 0x01, 0xF0, Expectation(0x01, 0x01, 0, 0)),
    ("write_once", False, 0x21, 0x00, Expectation(0x21, 0xFF, 0, 0)),
    ("one_to_toggle", False, 0x03, 0x05, Expectation(0x02, 0x03, 0, 0x03)),
    ("zero_to_toggle", False, 0xFC, 0x05, Expectation(0x02, 0x03, 0, 0x03)),
    ("one_to_toggle", False, 0x03, None, Expectation(0, 0, 0, 0)),
    ("one_to_toggle", True, 0x03, 0x05, Expectation(0, 0, 0, 0)),
    ("pulse", False, 0xFF, 0x00, Expectation(0, 0, 0, 0)),
    ("push", False, 0x41, 0x00, Expectation(0, 0, 0, 0)),
]


@pytest.mark.parametrize(("effect", "volatile", "value", "prior", "wanted"), CASES)
def test_expectation_when_a_register_is_written_then_by_its_effect(
    effect: str, volatile: bool, value: int, prior: int | None, wanted: Expectation
) -> None:
    text = f"write = {{ effect = '{effect}' }}\nvolatile = {str(volatile).lower()}"
    assert expectation(toy(reg("R", 0, text)).registers["R"], value, prior) == wanted


def test_expectation_when_fields_differ_then_each_bit_follows_its_own() -> None:
    status = bundled("ds3231").registers["STATUS"]
    # EN32KHZ (bit 3) stores; OSF written 0 is weak; A1F, A2F written 1 are left alone; reserved and BSY do not count
    assert expectation(status, 0x0B, 0x88) == Expectation(0x08, 0x08, 0x80, 0)
