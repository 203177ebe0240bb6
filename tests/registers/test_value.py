"""Engineering values, both directions, exact or refused."""

from __future__ import annotations

import struct
from decimal import Decimal

import pytest
from hypothesis import example, given
from hypothesis import strategies as st

from hwtool_contracts.messages import Value, ValueObject
from hwtool_contracts.model import Encoding, Quantity
from hwtool_registers.value import Slot, ValueFault, decode, encode, json_number


def slot(
    width: int,
    encoding: str = "unsigned",
    scale: str | None = None,
    add: str | None = None,
    unit: str | None = None,
    values: dict[str, int] | None = None,
) -> Slot:
    quantity = Quantity(Encoding(encoding), Decimal(scale) if scale else None, Decimal(add) if add else None, unit)
    return Slot(width, quantity, values or {})


TEMP = slot(12, "twos_complement", "0.0625", unit="degC")
VOLT = slot(8, "unsigned", "0.00625", "0.7", "V")
BCD6 = slot(6, "bcd", unit="h")
F32 = slot(32, "float32", unit="V")

DECODED = [
    (TEMP, 0x7FF, "127.9375"),
    (TEMP, 0xC90, "-55.0000"),
    (TEMP, 0xFFF, "-0.0625"),
    (VOLT, 0x50, "1.20000"),
    (BCD6, 0x23, "23"),
    (BCD6, 0x1A, None),
    (slot(16, "twos_complement"), 0x8000, "-32768"),
    (F32, 0x429B077A, "77.5146"),
    (F32, 0x7FC00000, None),
    (F32, 0x7F800000, None),
    (slot(64, "float64"), 0x3FB999999999999A, "0.1"),
    (slot(32, "float32", "10"), 0x3F800000, "10"),
]


@pytest.mark.parametrize(("place", "raw", "wanted"), DECODED)
def test_decode_when_raw_is_given_then_the_number_in_its_unit(place: Slot, raw: int, wanted: str | None) -> None:
    assert decode(place, raw) == (None if wanted is None else Decimal(wanted))


ENCODED: list[tuple[Slot, Value, int]] = [
    (TEMP, ValueObject(scaled="-55", unit="degC"), 0xC90),
    (TEMP, ValueObject(scaled="-0.0625", unit="degC"), 0xFFF),
    (VOLT, ValueObject(scaled="1.2", unit="V"), 0x50),
    (BCD6, ValueObject(scaled="23", unit="h"), 0x23),
    (F32, ValueObject(scaled="77.5146", unit="V"), 0x429B077A),
    (F32, ValueObject(scaled="230.1", unit="V"), 0x4366199A),
    (F32, ValueObject(scaled="0.1000000001", unit="V", round="nearest"), 0x3DCCCCCD),
    (VOLT, ValueObject(scaled="1.203", unit="V", round="nearest"), 0x50),
    (slot(8), 0x40, 0x40),
    (slot(8), "0x40", 0x40),
    (slot(8), "64", 0x40),
    (slot(1, values={"low": 0, "high": 1}), "high", 1),
]


@pytest.mark.parametrize(("place", "given_value", "wanted"), ENCODED)
def test_encode_when_any_form_is_given_then_the_raw_bits(place: Slot, given_value: Value, wanted: int) -> None:
    assert encode(place, given_value) == wanted


REFUSED: list[tuple[Slot, Value, str]] = [
    (VOLT, ValueObject(scaled="1.203", unit="V"), "1.2 or 1.20625"),
    (VOLT, ValueObject(scaled="1.2", unit="mV"), "a value in V"),
    (VOLT, ValueObject(scaled="1.2"), "a value in V"),
    (slot(8), ValueObject(scaled="1", unit="V"), "without unit"),
    (VOLT, ValueObject(scaled="many", unit="V"), "decimal number"),
    (VOLT, ValueObject(scaled="NaN", unit="V"), "finite"),
    (VOLT, ValueObject(scaled="99", unit="V"), "from 0.7 to 2.29375 V"),
    (TEMP, ValueObject(scaled="128", unit="degC"), "from -128 to 127.9375 degC"),
    (BCD6, ValueObject(scaled="40", unit="h"), "from 0 to 39 h"),
    (slot(8, "bcd"), ValueObject(scaled="100"), "from 0 to 99"),
    (F32, ValueObject(scaled="0.1000000001", unit="V"), "0.1, the nearest float32"),
    (F32, ValueObject(scaled="1e39", unit="V"), "that float32 can hold"),
    (slot(8), 256, "0 to 0xff"),
    (slot(8), -1, "0 to 0xff"),
    (slot(8), "0x100", "0 to 0xff"),
    (slot(8), "hi", "an integer, a hex string"),
    (slot(1, values={"low": 0, "high": 1}), "hihg", "one of low, high"),
    (slot(8), ValueObject(text="abc"), "text is for registers of text"),
    (slot(8), ValueObject(hex="00"), "hex is for memories"),
]


@pytest.mark.parametrize(("place", "given_value", "wanted"), REFUSED)
def test_encode_when_it_does_not_fit_then_what_would_is_named(place: Slot, given_value: Value, wanted: str) -> None:
    with pytest.raises(ValueFault) as caught:
        encode(place, given_value)
    assert wanted in str(caught.value)


@given(raw=st.integers(0, 0xFFF))
def test_scaled_value_when_there_and_back_then_the_same(raw: int) -> None:
    assert encode(TEMP, ValueObject(scaled=str(decode(TEMP, raw)), unit="degC")) == raw


@example(number=3.4025001647762064e38)  # fewer digits round up past the largest float32
@given(number=st.floats(width=32, allow_nan=False, allow_infinity=False))
def test_float32_when_there_and_back_then_the_same_bits(number: float) -> None:
    raw = struct.unpack(">I", struct.pack(">f", number))[0]
    text = decode(F32, raw)
    assert text is not None
    back = encode(F32, ValueObject(scaled=str(text), unit="V"))
    assert back == raw or number == 0.0  # minus zero has no decimal of its own


@given(number=st.integers(0, 39))
def test_bcd_when_there_and_back_then_the_same(number: int) -> None:
    raw = encode(BCD6, ValueObject(scaled=str(number), unit="h"))
    assert decode(BCD6, raw) == number


def test_json_number_when_integral_then_an_integer_else_a_float() -> None:
    assert json_number(Decimal("3.0")) == 3
    assert isinstance(json_number(Decimal("3.0")), int)
    assert json_number(Decimal("3.5")) == 3.5
    assert isinstance(json_number(Decimal(1 << 60)), float)
