"""The words of CMSIS-SVD and what each becomes: total, a word that is not here becomes `unknown` with a notice.

Silence (no readAction, no modifiedWriteValues) is `unknown`, although the standard reads it as "no effect": files that
say in their own descriptions that a read clears something state no readAction nearly always.

Source: CMSIS-SVD schema 1.3, types readActionType, modifiedWriteValuesType, accessType, scaledNonNegativeInteger.
"""

from __future__ import annotations

import re
from typing import Final

from hwtool_contracts.effects import ReadEffect, WriteEffect
from hwtool_contracts.model import Access

READ_ACTIONS: Final[dict[str, ReadEffect]] = {
    "clear": ReadEffect.CLEAR,
    "set": ReadEffect.SET,
    "modify": ReadEffect.MODIFY,
    "modifyExternal": ReadEffect.MODIFY_EXTERNAL,
}

MODIFIED_WRITE_VALUES: Final[dict[str, WriteEffect]] = {
    "oneToClear": WriteEffect.ONE_TO_CLEAR,
    "oneToSet": WriteEffect.ONE_TO_SET,
    "oneToToggle": WriteEffect.ONE_TO_TOGGLE,
    "zeroToClear": WriteEffect.ZERO_TO_CLEAR,
    "zeroToSet": WriteEffect.ZERO_TO_SET,
    "zeroToToggle": WriteEffect.ZERO_TO_TOGGLE,
    "clear": WriteEffect.CLEAR,
    "set": WriteEffect.SET,
    "modify": WriteEffect.UNKNOWN,
}

ACCESS: Final[dict[str, Access]] = {
    "read-only": Access.RO,
    "write-only": Access.WO,
    "read-write": Access.RW,
    "writeOnce": Access.W1,
    "read-writeOnce": Access.RW1,
}

NUMBER: Final = re.compile(
    r"\+?(?:0[xX](?P<hex>[0-9a-fA-F]+)|(?:#|0[bB])(?P<bin>[01xX]+)|(?P<dec>[0-9]+))(?P<scale>[kKmMgGtT]?)"
)
MAX_DIGITS: Final = 80  # longer than any number of 64 bits in any spelling, blanks included
SCALES: Final = {"": 0, "k": 10, "m": 20, "g": 30, "t": 40}


def number(text: str) -> int | None:
    """The integer of a scaledNonNegativeInteger (decimal, `0x`, `#` or `0b` binary, with k, M, G, T); None if none.

    Leading zeros are decimal. A binary number with don't-care digits (`#1x`) is none; `number_of_pattern` reads it.
    """
    match = NUMBER.fullmatch(text.strip()) if len(text) <= MAX_DIGITS else None
    if match is None:
        return None
    base = match["hex"], match["bin"], match["dec"]
    if base[1] is not None and "x" in base[1].lower():
        return None
    value = int(base[0], 16) if base[0] else int(base[1], 2) if base[1] else int(base[2] or "0")
    return value << SCALES[match["scale"].lower()]


def number_of_pattern(text: str) -> int | None:
    """The smallest value that a binary pattern with don't-care digits stands for; None if it is no pattern."""
    match = NUMBER.fullmatch(text.strip()) if len(text) <= MAX_DIGITS else None
    if match is None or match["bin"] is None:
        return None
    return int(match["bin"].lower().replace("x", "0"), 2)


def is_index(text: str | None, count: int, index: str) -> bool:
    """Whether `indices` has this name, without making all of them."""
    if text is None or not text.strip():
        return index.isdecimal() and index == str(int(index[:9])) and int(index[:9]) < count
    text = text.strip()
    numeric = re.fullmatch(r"([0-9]{1,9})-([0-9]{1,9})", text)
    if numeric is not None:
        inside = index.isdecimal() and len(index) <= 9 and int(numeric[1]) <= int(index) <= int(numeric[2])
        return inside and index == str(int(index))
    if re.fullmatch(r"[A-Z]-[A-Z]", text) is not None:
        return len(index) == 1 and text[0] <= index <= text[2]
    return index in (name.strip() for name in text.split(","))


def indices(text: str | None, count: int) -> list[str] | None:
    """The `count` names of a dim list (`0-7`, `A-D`, `A,B,C`); numbers from 0 without one; None if they do not fit."""
    if text is None or not text.strip():
        return [str(i) for i in range(count)]
    text = text.strip()
    numeric = re.fullmatch(r"([0-9]{1,9})-([0-9]{1,9})", text)
    if numeric is not None:
        first, last = int(numeric[1]), int(numeric[2])
        return [str(i) for i in range(first, last + 1)] if last - first + 1 == count else None
    letters = re.fullmatch(r"([A-Z])-([A-Z])", text)
    if letters is not None:
        first, last = ord(letters[1]), ord(letters[2])
        return [chr(i) for i in range(first, last + 1)] if last - first + 1 == count else None
    names = [name.strip() for name in text.split(",")]
    return names if len(names) == count and len(set(names)) == count and all(names) else None
