"""Bits and byte orders, both directions."""

from __future__ import annotations

from dataclasses import replace

import pytest
from hypothesis import given
from hypothesis import strategies as st

from hwtool_contracts.library import bundled
from hwtool_contracts.model import ByteOrder, Register
from hwtool_registers.bits import Layout, extract, from_bytes, hexed, insert, to_bytes

FREQUENCY = bundled("sdm120").registers["FREQUENCY"]
CONFIG = bundled("ads1115").registers["CONFIG"]

# value 77.5146 is 0x429B077A; the four word and byte orders of Modbus floats
ORDERS = [
    (ByteOrder.BIG, ByteOrder.BIG, "429b077a"),
    (ByteOrder.LITTLE, ByteOrder.BIG, "077a429b"),
    (ByteOrder.BIG, ByteOrder.LITTLE, "9b427a07"),
    (ByteOrder.LITTLE, ByteOrder.LITTLE, "7a079b42"),
]


@pytest.mark.parametrize(("words", "octets", "wire"), ORDERS, ids=["ABCD", "CDAB", "BADC", "DCBA"])
def test_modbus_float_when_ordered_then_both_directions_agree_hc035(
    words: ByteOrder, octets: ByteOrder, wire: str
) -> None:
    register = replace(FREQUENCY, word_order=words, byte_order=octets)
    assert to_bytes(register, 0x429B077A).hex() == wire
    assert from_bytes(register, bytes.fromhex(wire)) == 0x429B077A


@pytest.mark.parametrize(("order", "wire"), [(ByteOrder.BIG, "8583"), (ByteOrder.LITTLE, "8385")])
def test_memory_register_when_ordered_then_bytes_follow(order: ByteOrder, wire: str) -> None:
    register = replace(CONFIG, byte_order=order)
    assert to_bytes(register, 0x8583).hex() == wire
    assert from_bytes(register, bytes.fromhex(wire)) == 0x8583


@given(raw=st.integers(0, 0xFFFFFFFF), words=st.sampled_from(ByteOrder), octets=st.sampled_from(ByteOrder))
def test_bytes_when_there_and_back_then_the_same(raw: int, words: ByteOrder, octets: ByteOrder) -> None:
    register = replace(FREQUENCY, word_order=words, byte_order=octets)
    assert from_bytes(register, to_bytes(register, raw)) == raw


@given(raw=st.integers(0, 0xFFFF), part=st.integers(0, 7))
def test_insert_when_a_field_changes_then_no_neighbour_does(raw: int, part: int) -> None:
    field = CONFIG.fields["MUX"]
    changed = insert(raw, field, part)
    assert extract(changed, field) == part
    assert (changed ^ raw) & ~field.mask == 0


def test_insert_when_too_wide_then_refused() -> None:
    with pytest.raises(ValueError, match="3 bits"):
        insert(0, CONFIG.fields["MUX"], 8)


def test_from_bytes_when_the_length_is_wrong_then_refused() -> None:
    with pytest.raises(ValueError, match="2 bytes make the value; 1 came"):
        from_bytes(CONFIG, b"\x00")


@pytest.mark.parametrize("register", [FREQUENCY, CONFIG], ids=lambda r: r.name)
def test_layout_when_kept_in_a_row_then_it_reads_as_the_register_does(register: Register) -> None:
    layout = Layout.from_object(Layout.of(register).as_object())
    data = to_bytes(register, 0x1234)
    assert layout.size_bytes == register.size_bytes
    assert from_bytes(layout, data) == from_bytes(register, data) == 0x1234


def test_hexed_when_shown_then_padded_to_the_width() -> None:
    assert [hexed(5, w) for w in (1, 8, 12, 16)] == ["0x5", "0x05", "0x005", "0x0005"]


def test_narrow_register_when_read_then_the_unused_bits_do_not_count() -> None:
    narrow: Register = replace(CONFIG, width_bits=12)
    assert from_bytes(narrow, b"\xff\xff") == 0xFFF
