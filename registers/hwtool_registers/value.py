"""Engineering values: raw bits to numbers with units and names, and back, exactly.

A value on its way in is an integer or hex string (raw), the name of an enumerator, or a decimal string in the
register's unit. Nothing is rounded unless the caller says so: a value that the bits cannot hold is refused with the
two nearest that they can.
"""

from __future__ import annotations

import math
import struct
from collections.abc import Mapping
from dataclasses import dataclass
from decimal import ROUND_CEILING, ROUND_FLOOR, ROUND_HALF_EVEN, Decimal, InvalidOperation, localcontext
from typing import Final

from hwtool_contracts.messages import Value, ValueObject
from hwtool_contracts.model import Encoding, Quantity

FLOATS: Final = {Encoding.FLOAT32: ">f", Encoding.FLOAT64: ">d"}
EXACT_DIGITS: Final = 60


class ValueFault(Exception):
    """A value that cannot be written as it was given.

    Attributes:
        expected: what would be taken.
        got: what was given.
    """

    def __init__(self, expected: str, got: object) -> None:
        super().__init__(f"expected {expected}, got {got!r}")
        self.expected = expected
        self.got = got


@dataclass(frozen=True, slots=True)
class Slot:
    """A place for a value: a register or a field.

    Attributes:
        width_bits: bits it has.
        quantity: how they are understood.
        values: names of raw values.
        exponent: of linear16, as another register holds it; None: it has not been read.
        scale: as another register chooses it; None: the quantity's own.
    """

    width_bits: int
    quantity: Quantity
    values: Mapping[str, int]
    exponent: int | None = None
    scale: Decimal | None = None

    @property
    def step(self) -> Decimal | int:
        """What one unit of the decoded number is."""
        return self.scale or self.quantity.scale or 1


def decode(slot: Slot, raw: int) -> Decimal | None:
    """The number in its unit; None where the bits are no number (a nibble above 9, NaN, infinity)."""
    number = _number(slot, raw)
    if number is None:
        return None
    with localcontext() as context:
        context.prec = EXACT_DIGITS
        return number * slot.step + (slot.quantity.add or 0)


def _number(slot: Slot, raw: int) -> Decimal | None:
    match slot.quantity.encoding:
        case Encoding.UNSIGNED:
            return Decimal(raw)
        case Encoding.TWOS_COMPLEMENT | Encoding.DECIMAL:
            return Decimal(_signed(raw, slot.width_bits))
        case Encoding.BCD:
            digits = f"{raw:x}"
            return Decimal(digits) if digits.isdecimal() else None
        case Encoding.FLOAT32 | Encoding.FLOAT64 as encoding:
            number = as_float(encoding, raw)
            return Decimal(shortest(encoding, number)) if math.isfinite(number) else None
        case Encoding.LINEAR11:
            return _signed(raw & 0x7FF, 11) * _two_to(_signed(raw >> 11, 5))
        case Encoding.LINEAR16:
            return None if slot.exponent is None else raw * _two_to(slot.exponent)
        case Encoding.TEXT | Encoding.BYTES:
            return None


def _signed(raw: int, width_bits: int) -> int:
    return raw - (1 << width_bits) if raw >> (width_bits - 1) else raw


def _two_to(exponent: int) -> Decimal:
    """A power of two, exactly."""
    return Decimal(1 << exponent) if exponent >= 0 else Decimal(1) / Decimal(1 << -exponent)


def as_text(slot: Slot, raw: int) -> str:
    """The characters that the bits are; what fills up the end is left out, what is no ASCII is escaped."""
    data = raw.to_bytes(max(1, (raw.bit_length() + 7) // 8), "big").rstrip(b"\0 ")
    return data.decode("ascii", "backslashreplace")


def as_float(encoding: Encoding, raw: int) -> float:
    """The IEEE 754 number of raw bits."""
    form = FLOATS[encoding]
    number: float = struct.unpack(form, raw.to_bytes(struct.calcsize(form), "big"))[0]
    return number


def shortest(encoding: Encoding, number: float) -> str:
    """The shortest decimal that reads back as the same bits."""
    if encoding is Encoding.FLOAT64:
        return repr(number)
    for digits in range(1, 10):
        text = f"{number:.{digits}g}"
        try:
            packed = struct.pack(">f", float(text))
        except OverflowError:
            continue  # rounded up past the largest float32: more digits are needed
        if struct.unpack(">f", packed)[0] == number:
            return text
    return repr(number)


def json_number(number: Decimal) -> int | float:
    """A number as JSON carries it: an integer where it is one."""
    return int(number) if number == number.to_integral_value() and abs(number) < 1 << 53 else float(number)


def encode(slot: Slot, given: Value) -> int:
    """The raw bits of a value in any of its forms.

    Raises:
        ValueFault: no such name, does not fit, or not exactly representable.
    """
    if isinstance(given, ValueObject):
        if given.scaled is not None:
            return _encode_scaled(slot, given)
        return _encode_bytes(slot, given)
    if isinstance(given, str):
        if given in slot.values:
            return slot.values[given]
        raw = _integer(slot, given)
    else:
        raw = given
    top = (1 << slot.width_bits) - 1
    if not 0 <= raw <= top:
        raise ValueFault(f"a raw value from 0 to {top:#x} ({slot.width_bits} bits)", given)
    if slot.quantity.encoding is Encoding.TEXT:
        text = raw.to_bytes((raw.bit_length() + 7) // 8, "big").rstrip(b"\0")
        if not all(0x20 <= byte < 0x7F for byte in text):
            raise ValueFault("printable ASCII characters", given)
    return raw


def _integer(slot: Slot, text: str) -> int:
    try:
        return int(text, 0)
    except ValueError:
        names = f", or one of {', '.join(slot.values)}" if slot.values else ""
        raise ValueFault(f"an integer, a hex string{names}", text) from None


def _encode_scaled(slot: Slot, given: ValueObject) -> int:
    unit = slot.quantity.unit
    if given.unit != unit:
        raise ValueFault(f"a value in {unit}" if unit else "a value without unit", given.unit or "no unit")
    try:
        wanted = Decimal(given.scaled or "")
    except InvalidOperation:
        raise ValueFault("a decimal number", given.scaled) from None
    if not wanted.is_finite():
        raise ValueFault("a finite decimal number", given.scaled)
    with localcontext() as context:
        context.prec = EXACT_DIGITS
        plain = wanted - (slot.quantity.add or 0)
        plain /= slot.step
    if slot.quantity.encoding in FLOATS:
        return _encode_float(slot, plain, given)
    if slot.quantity.encoding is Encoding.LINEAR11:
        return _encode_linear11(slot, plain, given)
    if slot.quantity.encoding is Encoding.LINEAR16:
        if slot.exponent is None:
            raise ValueFault(f"a raw value ({slot.quantity.exponent_from} holds the exponent)", given.scaled)
        with localcontext() as context:
            context.prec = EXACT_DIGITS
            plain /= _two_to(slot.exponent)
    if slot.quantity.encoding in (Encoding.TEXT, Encoding.BYTES):
        raise ValueFault("text" if slot.quantity.encoding is Encoding.TEXT else "bytes, as hex", given.scaled)
    if slot.quantity.scale_from is not None and slot.scale is None:
        raise ValueFault(f"a raw value ({slot.quantity.scale_from} chooses the scale)", given.scaled)
    candidates = sorted({plain.to_integral_value(ROUND_FLOOR), plain.to_integral_value(ROUND_CEILING)})
    if len(candidates) > 1 or plain != candidates[0]:
        if given.round != "nearest":
            shown = " or ".join(str(_scaled(slot, c)) for c in candidates)
            raise ValueFault(f'a value the bits can hold: {shown}, or "round": "nearest"', given.scaled)
        candidates = [plain.to_integral_value(ROUND_HALF_EVEN)]
    return _integral(slot, int(candidates[0]), given)


def _scaled(slot: Slot, number: Decimal) -> Decimal:
    with localcontext() as context:
        context.prec = EXACT_DIGITS
        return (number * slot.step + (slot.quantity.add or 0)).normalize()


def _encode_bytes(slot: Slot, given: ValueObject) -> int:
    """The raw bits of `{"hex": …}` or `{"text": …}`."""
    encoding, size = slot.quantity.encoding, slot.width_bits // 8
    if given.hex is not None:
        if encoding is not Encoding.BYTES:
            raise ValueFault("a number, a name or a scaled value (hex is for memories)", "hex")
        try:
            data = bytes.fromhex(given.hex)
        except ValueError:
            raise ValueFault("hex digits, two a byte", given.hex[:40]) from None
        if len(data) != size:
            raise ValueFault(f"exactly {size} byte(s)", f"{len(data)} byte(s)")
        return int.from_bytes(data, "big")
    if encoding is not Encoding.TEXT or given.text is None:
        raise ValueFault("a number, a name or a scaled value (text is for registers of text)", "text")
    if not given.text.isascii() or not given.text.isprintable() or not 1 <= len(given.text) <= size:
        raise ValueFault(f"1 to {size} printable ASCII characters", given.text[:40])
    return int.from_bytes(given.text.encode(), "big")


def _encode_linear11(slot: Slot, plain: Decimal, given: ValueObject) -> int:
    """Eleven bits of mantissa and five of exponent: the smallest exponent that holds the number exactly, or nearly."""
    for exponent in range(-16, 16):
        with localcontext() as context:
            context.prec = EXACT_DIGITS
            mantissa = plain / _two_to(exponent)
            nearest = mantissa.to_integral_value(ROUND_HALF_EVEN)
        if -1024 <= nearest <= 1023:
            if nearest != mantissa and given.round != "nearest":
                shown = [_scaled(slot, m * _two_to(exponent)) for m in (mantissa // 1, mantissa // 1 + 1)]
                raise ValueFault(
                    f'a value the bits can hold: {shown[0]} or {shown[1]}, or "round": "nearest"', given.scaled
                )
            return (exponent & 0x1F) << 11 | int(nearest) & 0x7FF
    raise ValueFault("a number of eleven bits times a power of two up to 2^15", given.scaled)


def _integral(slot: Slot, number: int, given: ValueObject) -> int:
    width = slot.width_bits
    match slot.quantity.encoding:
        case Encoding.TWOS_COMPLEMENT | Encoding.DECIMAL:
            low, high = -(1 << (width - 1)), (1 << (width - 1)) - 1
        case Encoding.BCD:
            digits, rest = divmod(width, 4)
            low, high = 0, int(str((1 << rest) - 1) + "9" * digits) if rest else int("9" * digits)
        case _:
            low, high = 0, (1 << width) - 1
    if not low <= number <= high:
        shown = f"{_scaled(slot, Decimal(low)):f} to {_scaled(slot, Decimal(high)):f}"
        raise ValueFault(f"a value from {shown} {slot.quantity.unit or ''}".rstrip(), given.scaled)
    if slot.quantity.encoding is Encoding.BCD:
        return int(str(number), 16)
    return number & ((1 << width) - 1)


def _encode_float(slot: Slot, plain: Decimal, given: ValueObject) -> int:
    encoding = slot.quantity.encoding
    try:
        packed = struct.pack(FLOATS[encoding], float(plain))
    except OverflowError:
        raise ValueFault(f"a number that {encoding} can hold", given.scaled) from None
    nearest = struct.unpack(FLOATS[encoding], packed)[0]
    # a float stands for its shortest decimal: 230.1 is accepted although no binary fraction equals it
    if Decimal(shortest(encoding, nearest)) != plain and given.round != "nearest":
        raise ValueFault(f'{shortest(encoding, nearest)}, the nearest {encoding}, or "round": "nearest"', given.scaled)
    return int.from_bytes(packed, "big")
