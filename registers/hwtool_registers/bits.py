"""Bits of registers: extraction, insertion, and the order of bytes and words in a transfer."""

from __future__ import annotations

from hwtool_contracts.model import ByteOrder, Field, Register, Space


def extract(raw: int, field: Field) -> int:
    """The field's bits of a register value, moved down to bit 0."""
    return (raw & field.mask) >> field.lsb


def insert(raw: int, field: Field, part: int) -> int:
    """The register value with the field's bits replaced by `part`.

    Raises:
        ValueError: `part` has more bits than the field.
    """
    if not 0 <= part < 1 << field.width_bits:
        raise ValueError(f"{field.name} has {field.width_bits} bits; {part:#x} does not fit")
    return (raw & ~field.mask) | (part << field.lsb)


def to_bytes(register: Register, raw: int) -> bytes:
    """The bytes of a value as they stand in the transfer.

    In Modbus spaces the value is cut into 16-bit words, most significant first unless `word_order` is little, and
    `byte_order` orders the two bytes of each word; elsewhere `byte_order` orders all bytes.
    """
    if register.space is Space.MEMORY:
        return raw.to_bytes(register.size_bytes, register.byte_order.value)
    big = raw.to_bytes(register.size_bytes, "big")
    return _reorder(big, register)


def from_bytes(register: Register, data: bytes) -> int:
    """The value of the bytes of a transfer; the inverse of `to_bytes`.

    Raises:
        ValueError: not exactly the register's number of bytes.
    """
    if len(data) != register.size_bytes:
        raise ValueError(f"{register.name} has {register.size_bytes} bytes; {len(data)} came")
    if register.space is Space.MEMORY:
        return int.from_bytes(data, register.byte_order.value) & register.mask
    return int.from_bytes(_reorder(data, register), "big")


def _reorder(data: bytes, register: Register) -> bytes:
    """Between big-endian and the order on the wire; its own inverse."""
    words = [data[i : i + 2] for i in range(0, len(data), 2)]
    if register.word_order is ByteOrder.LITTLE:
        words.reverse()
    if register.byte_order is ByteOrder.LITTLE:
        words = [w[::-1] for w in words]
    return b"".join(words)


def hexed(raw: int, width_bits: int) -> str:
    """A value as hex, padded to its width."""
    return f"0x{raw:0{(width_bits + 3) // 4}x}"
