"""Strict reading of TOML tables: every key is taken, refused as unknown, or refused as not supported yet.

A `Table` never raises on input; it records a `Fault` and answers a default, so that all faults of a file come out at
once. `Faults` is raised at the end. The board file is read with it too.
"""

from __future__ import annotations

import difflib
import tomllib
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from decimal import Decimal
from enum import StrEnum
from typing import Any, TypeVar

E = TypeVar("E", bound=StrEnum)


@dataclass(frozen=True, slots=True)
class Fault:
    """One thing wrong in a file: where it stands, the rule it breaks, what was found and what is wanted."""

    file: str
    table: str
    key: str
    rule: str
    found: str
    wanted: str

    def __str__(self) -> str:
        place = f"{self.table}.{self.key}" if self.table and self.key else self.table or self.key
        found = f"; found {self.found}" if self.found else ""
        return f"{self.file}: {place or 'file'}: {self.rule}{found}; wanted {self.wanted}"


class Faults(Exception):
    """A file that cannot be used, with everything that is wrong in it.

    Attributes:
        faults: at least one fault.
    """

    def __init__(self, faults: list[Fault]) -> None:
        super().__init__("\n".join(str(f) for f in faults))
        self.faults = faults


def parse_toml(text: str, file: str) -> dict[str, Any]:
    """Parse TOML with exact decimals.

    Raises:
        Faults: the text is not TOML; the fault carries line and column.
    """
    try:
        return tomllib.loads(text, parse_float=Decimal)
    except tomllib.TOMLDecodeError as error:
        raise Faults([Fault(file, "", "", "not valid TOML", str(error), "TOML 1.0")]) from error
    except RecursionError as error:
        raise Faults([Fault(file, "", "", "nested too deeply", "", "tables and lists a few levels deep")]) from error


class Table:
    """One TOML table on its way to becoming data.

    Args:
        data: the parsed table.
        where: its dotted name in the file, `""` for the top.
        file: the file's name, for faults.
        faults: shared list that collects what is wrong.
        not_yet: keys that the format has and this version does not support.
    """

    def __init__(
        self,
        data: Mapping[str, Any],
        where: str,
        file: str,
        faults: list[Fault],
        not_yet: frozenset[str] = frozenset(),
    ) -> None:
        self.data = data
        self.where = where
        self.file = file
        self.faults = faults
        self._not_yet = not_yet
        self._taken: set[str] = set()

    def fault(self, key: str, rule: str, found: object, wanted: str) -> None:
        """Record that `key` breaks `rule`."""
        self.faults.append(Fault(self.file, self.where, key, rule, "" if found is None else str(found), wanted))

    def __contains__(self, key: str) -> bool:
        return key in self.data

    @property
    def taken(self) -> frozenset[str]:
        """The keys that were asked for, there or not: what such a table may have."""
        return frozenset(self._taken)

    def raw(self, key: str) -> Any:
        """The value as parsed, marked as taken; None if absent."""
        self._taken.add(key)
        return self.data.get(key)

    def _typed(self, key: str, kinds: tuple[type, ...], wanted: str, required: bool) -> Any:
        value = self.raw(key)
        if value is None:
            if required:
                self.fault(key, "key is missing", None, wanted)
            return None
        if not isinstance(value, kinds) or (isinstance(value, bool) and bool not in kinds):
            self.fault(key, "wrong type", f"{type(value).__name__} {value!r}", wanted)
            return None
        return value

    def text(self, key: str, *, required: bool = False) -> str | None:
        """A non-empty string."""
        value: str | None = self._typed(key, (str,), "a string", required)
        if value is not None and not value.strip():
            self.fault(key, "empty string", repr(value), "some text")
            return None
        if value is not None and "\0" in value:
            self.fault(key, "a zero in a text", repr(value), "text without it")
            return None
        return value

    def integer(
        self, key: str, *, low: int | None = None, high: int | None = None, required: bool = False
    ) -> int | None:
        """An integer from `low` to `high`, both included."""
        bounds = f"an integer from {low if low is not None else '…'} to {high if high is not None else '…'}"
        value: int | None = self._typed(key, (int,), bounds, required)
        if value is not None and ((low is not None and value < low) or (high is not None and value > high)):
            self.fault(key, "out of range", hex(value), bounds)
            return None
        return value

    def flag(self, key: str, default: bool | None = None) -> bool | None:
        """True or false."""
        value: bool | None = self._typed(key, (bool,), "true or false", False)
        return default if value is None else value

    def decimal(self, key: str) -> Decimal | None:
        """A number or a decimal string, kept exact."""
        value = self._typed(key, (int, Decimal, str), "a number", False)
        if value is None:
            return None
        try:
            number = Decimal(value)
        except ArithmeticError:
            number = Decimal("NaN")
        if not number.is_finite():
            self.fault(key, "not a finite number", repr(value), "a number")
            return None
        return number

    def choice(self, key: str, kind: type[E], *, required: bool = False) -> E | None:
        """A member of a closed vocabulary."""
        value = self.text(key, required=required)
        if value is None:
            return None
        return self._member(key, value, kind)

    def _member(self, key: str, value: object, kind: type[E]) -> E | None:
        words = [m.value for m in kind]
        if value not in words:
            near = difflib.get_close_matches(str(value), words, 1)
            hint = f" (did you mean {near[0]}?)" if near else ""
            self.fault(key, "not in the vocabulary", repr(value), "one of " + ", ".join(words) + hint)
            return None
        return kind(value)

    def choices(self, key: str, kind: type[E]) -> frozenset[E] | None:
        """A non-empty list of members of a closed vocabulary."""
        value = self._typed(key, (list,), "a list of words", False)
        if value is None:
            return None
        members = [self._member(key, word, kind) for word in value]
        if not members:
            self.fault(key, "empty list", "[]", "at least one word")
        found = frozenset(m for m in members if m is not None)
        return found if len(members) == len([m for m in members if m is not None]) and found else None

    def strings(self, key: str, *, required: bool = False) -> tuple[str, ...]:
        """A list of strings; empty if absent."""
        value = self._typed(key, (list,), "a list of strings", required)
        if value is None:
            return ()
        if not all(isinstance(v, str) for v in value):
            self.fault(key, "wrong type in the list", repr(value), "a list of strings")
            return ()
        return tuple(value)

    def integers(self, key: str, low: int, high: int) -> tuple[int, ...]:
        """A list of integers from `low` to `high`; empty if absent."""
        value = self._typed(key, (list,), "a list of integers", False)
        if value is None:
            return ()
        if not all(isinstance(v, int) and not isinstance(v, bool) and low <= v <= high for v in value):
            shown = [hex(v) if isinstance(v, int) else repr(v) for v in value]
            self.fault(key, "out of range", ", ".join(shown), f"integers from {low:#x} to {high:#x}")
            return ()
        return tuple(value)

    def table(self, key: str, not_yet: frozenset[str] = frozenset()) -> Table | None:
        """A sub-table, None if absent."""
        value = self._typed(key, (dict,), "a table", False)
        return None if value is None else self._sub(value, key, not_yet)

    def tables(self, key: str, not_yet: frozenset[str] = frozenset()) -> Iterator[tuple[str, Table]]:
        """Named sub-tables of a table (`[registers.NAME]`), in file order."""
        value = self._typed(key, (dict,), "a table of tables", False)
        for name, inner in (value or {}).items():
            if isinstance(inner, dict):
                yield name, self._sub(inner, f"{key}.{name}", not_yet)
            else:
                self.fault(f"{key}.{name}", "wrong type", repr(inner), "a table")

    def array(self, key: str, not_yet: frozenset[str] = frozenset()) -> Iterator[Table]:
        """The tables of an array of tables (`[[assume]]`)."""
        value = self._typed(key, (list,), "an array of tables", False)
        for index, inner in enumerate(value or []):
            if isinstance(inner, dict):
                yield self._sub(inner, f"{key}[{index}]", not_yet)
            else:
                self.fault(f"{key}[{index}]", "wrong type", repr(inner), "a table")

    def _sub(self, data: Mapping[str, Any], key: str, not_yet: frozenset[str]) -> Table:
        return Table(data, f"{self.where}.{key}" if self.where else key, self.file, self.faults, not_yet)

    def named_integers(self, key: str, high: int) -> dict[str, int]:
        """A table of names to integers from 0 to `high`; empty if absent."""
        value = self._typed(key, (dict,), "a table of names and integers", False)
        named: dict[str, int] = {}
        for name, number in (value or {}).items():
            if isinstance(number, bool) or not isinstance(number, int) or not 0 <= number <= high:
                self.fault(f"{key}.{name}", "out of range", repr(number), f"an integer from 0 to {high:#x}")
            else:
                named[name] = number
        return named

    def done(self) -> None:
        """Refuse every key that was not taken: known but not supported yet, or unknown with the nearest name."""
        for key in self.data:
            if key in self._taken:
                continue
            if key in self._not_yet:
                self.fault(key, "in the format, but not supported by this version", None, "the key left out")
            else:
                near = difflib.get_close_matches(key, sorted(self._taken | self._not_yet), 1)
                wanted = f"{near[0]}?" if near else "one of " + ", ".join(sorted(self._taken))
                self.fault(key, "unknown key", key, wanted)
