"""Bits of registers: extraction, insertion, and the order of bytes and words in a transfer."""

from __future__ import annotations

from dataclasses import dataclass
from decimal import Decimal, InvalidOperation
from typing import Any, Protocol

from hwtool_contracts.model import ByteOrder, Crc, Field, Space
from hwtool_registers.crc import with_crc, without_crc


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

    @property
    def crc(self) -> Crc | None:
        """What stands behind each word in the transfer."""
        ...

    @property
    def text_scale(self) -> Decimal | None:
        """Of a number in a line protocol: what one raw unit is."""
        ...


@dataclass(frozen=True, slots=True)
class Layout:
    """The layout of a register without its contract, as rows keep it."""

    width_bits: int
    space: Space
    byte_order: ByteOrder
    word_order: ByteOrder
    crc: Crc | None = None
    text_scale: Decimal | None = None

    @property
    def size_bytes(self) -> int:
        """Bytes in the transfer, those of CRCs included."""
        plain = (self.width_bits + 7) // 8
        return plain if self.crc is None else plain + plain // self.crc.word_bytes

    @classmethod
    def of(cls, register: Laid) -> Layout:
        """The layout of a register."""
        orders = register.byte_order, register.word_order
        return cls(register.width_bits, register.space, *orders, register.crc, register.text_scale)

    def as_object(self) -> dict[str, Any]:
        """As rows keep it."""
        shown: dict[str, Any] = {
            "width_bits": self.width_bits,
            "space": self.space.value,
            "byte_order": self.byte_order.value,
            "word_order": self.word_order.value,
        }
        if self.crc is not None:
            shown["crc"] = [self.crc.poly, self.crc.init, self.crc.word_bytes]
        if self.text_scale is not None:
            shown["text_scale"] = str(self.text_scale)
        return shown

    @classmethod
    def from_object(cls, shown: dict[str, Any]) -> Layout:
        """The inverse of `as_object`."""
        crc, scale = shown.get("crc"), shown.get("text_scale")
        return cls(
            shown["width_bits"],
            Space(shown["space"]),
            ByteOrder(shown["byte_order"]),
            ByteOrder(shown["word_order"]),
            None if crc is None else Crc(*crc),
            None if scale is None else Decimal(scale),
        )


def extract(raw: int, field: Field) -> int:
    """The field's bits of a register value, moved down to bit 0."""
    return field.taken(raw)


def insert(raw: int, field: Field, part: int) -> int:
    """The register value with the field's bits replaced by `part`.

    Raises:
        ValueError: `part` has more bits than the field.
    """
    if not 0 <= part < 1 << field.width_bits:
        raise ValueError(f"{field.name} has {field.width_bits} bits; {part:#x} does not fit")
    return (raw & ~field.mask) | field.placed(part)


def to_bytes(register: Laid, raw: int) -> bytes:
    """The bytes of a value as they stand in the transfer.

    In Modbus spaces the value is cut into 16-bit words, most significant first unless `word_order` is little, and
    `byte_order` orders the two bytes of each word; coils stand eight to a byte, the first in the lowest bit; elsewhere
    `byte_order` orders all bytes, and CRCs follow their words. A value of a line protocol is ASCII text.
    """
    plain_bytes = (register.width_bits + 7) // 8
    if register.space.of_words:
        return _reorder(raw.to_bytes(plain_bytes, "big"), register)
    if register.space.of_bits:
        return raw.to_bytes(plain_bytes, "little")
    if register.space is Space.LINE:
        return _text_of(register, raw).encode("ascii")
    data = raw.to_bytes(plain_bytes, register.byte_order.value)
    return data if register.crc is None else with_crc(register.crc, data)


def from_bytes(register: Laid, data: bytes) -> int:
    """The value of the bytes of a transfer; the inverse of `to_bytes`.

    Raises:
        ValueError: not exactly the register's number of bytes, a wrong CRC, or a text that is no such value.
    """
    if register.space is Space.LINE:
        return _raw_of(register, data)
    if len(data) != register.size_bytes:
        raise ValueError(f"{register.size_bytes} bytes make the value; {len(data)} came")
    if register.space.of_words:
        return int.from_bytes(_reorder(data, register), "big")
    if register.space.of_bits:
        return int.from_bytes(data, "little") & ((1 << register.width_bits) - 1)
    if register.crc is not None:
        data = without_crc(register.crc, data)
    return int.from_bytes(data, register.byte_order.value) & ((1 << register.width_bits) - 1)


def _text_of(register: Laid, raw: int) -> str:
    """The text of a raw value: a decimal number in its unit, or the characters that the bits are."""
    if register.text_scale is None:
        text = raw.to_bytes((raw.bit_length() + 7) // 8, "big").decode("ascii")
        if not text.isprintable():
            raise ValueError("a line of text has printable characters alone")
        return text
    signed = raw - (1 << register.width_bits) if raw >> (register.width_bits - 1) else raw
    return f"{(signed * register.text_scale).normalize():f}"


def _raw_of(register: Laid, data: bytes) -> int:
    """The raw value of an answer's text.

    Raises:
        ValueError: not ASCII, too long, no number, or one that the raw units cannot tell apart.
    """
    text = data.decode("ascii").strip()
    if register.text_scale is None:
        if 8 * len(text) > register.width_bits:
            raise ValueError(f"{len(text)} characters came, {register.width_bits // 8} fit")
        return int.from_bytes(text.encode(), "big")
    try:
        number = Decimal(text) / register.text_scale
    except InvalidOperation:
        raise ValueError(f"{text[:40]!r} is no number") from None
    if not number.is_finite() or number != number.to_integral_value():
        raise ValueError(f"{text[:40]} is no multiple of {register.text_scale}")
    half = 1 << (register.width_bits - 1)
    if not -half <= number < half:
        raise ValueError(f"{text[:40]} does not fit {register.width_bits} bits of {register.text_scale}")
    return int(number) & ((1 << register.width_bits) - 1)


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
