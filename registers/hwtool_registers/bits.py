"""Bits of registers: extraction, insertion, and the order of bytes and words in a transfer."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any, Protocol

from hwtool_contracts.model import ByteOrder, Field, Space


class Laid(Protocol):
    """What the order of bytes depends on; a `Register` has it."""

    @property
    def width_bits(self) -> int:
        """Bits of the value."""
        ...

    @property
    def size_bytes(self) -> int:
        """Bytes in the transfer."""
        ...

    @property
    def space(self) -> Space:
        """Address space; Modbus spaces are made of 16-bit words."""
        ...

    @property
    def byte_order(self) -> ByteOrder:
        """Order of bytes, in a word or in all."""
        ...

    @property
    def word_order(self) -> ByteOrder:
        """Order of words."""
        ...


@dataclass(frozen=True, slots=True)
class Layout:
    """The layout of a register without its contract, as rows keep it."""

    width_bits: int
    space: Space
    byte_order: ByteOrder
    word_order: ByteOrder

    @property
    def size_bytes(self) -> int:
        """Bytes in the transfer."""
        return (self.width_bits + 7) // 8

    @classmethod
    def of(cls, register: Laid) -> Layout:
        """The layout of a register."""
        return cls(register.width_bits, register.space, register.byte_order, register.word_order)

    def as_object(self) -> dict[str, Any]:
        """As rows keep it."""
        return {
            "width_bits": self.width_bits,
            "space": self.space.value,
            "byte_order": self.byte_order.value,
            "word_order": self.word_order.value,
        }

    @classmethod
    def from_object(cls, shown: dict[str, Any]) -> Layout:
        """The inverse of `as_object`."""
        orders = [ByteOrder(shown[k]) for k in ("byte_order", "word_order")]
        return cls(shown["width_bits"], Space(shown["space"]), *orders)


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


def to_bytes(register: Laid, raw: int) -> bytes:
    """The bytes of a value as they stand in the transfer.

    In Modbus spaces the value is cut into 16-bit words, most significant first unless `word_order` is little, and
    `byte_order` orders the two bytes of each word; elsewhere `byte_order` orders all bytes.
    """
    if register.space is Space.MEMORY:
        return raw.to_bytes(register.size_bytes, register.byte_order.value)
    big = raw.to_bytes(register.size_bytes, "big")
    return _reorder(big, register)


def from_bytes(register: Laid, data: bytes) -> int:
    """The value of the bytes of a transfer; the inverse of `to_bytes`.

    Raises:
        ValueError: not exactly the register's number of bytes.
    """
    if len(data) != register.size_bytes:
        raise ValueError(f"{register.size_bytes} bytes make the value; {len(data)} came")
    if register.space is Space.MEMORY:
        return int.from_bytes(data, register.byte_order.value) & ((1 << register.width_bits) - 1)
    return int.from_bytes(_reorder(data, register), "big")


def _reorder(data: bytes, register: Laid) -> bytes:
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
