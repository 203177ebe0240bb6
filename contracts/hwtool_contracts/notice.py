"""What an importer hands over: the contract, and what it noticed on the way and had to decide."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Final

from hwtool_contracts.model import Contract
from hwtool_contracts.toml_reader import Fault, Faults

MAX_FAULTS: Final = 50
MAX_NOTICES: Final = 2000


@dataclass(frozen=True, slots=True)
class Notice:
    """Something odd in a file that could still be read: where, which rule, what was found, what was made of it.

    Attributes:
        place: path of peripheral, clusters, register and field.
        rule: the rule that the file breaks or bends.
        found: what stands there.
        made: what the contract says instead.
    """

    file: str
    place: str
    rule: str
    found: str
    made: str

    def __str__(self) -> str:
        found = f"; found {self.found}" if self.found else ""
        return f"{self.file}: {self.place or 'file'}: {self.rule}{found}; made of it: {self.made}"


@dataclass(frozen=True, slots=True)
class Imported:
    """A contract made from a foreign file, with everything the importer noticed."""

    contract: Contract
    notices: tuple[Notice, ...]


class TooMany(Exception):
    """Enough faults were found; the rest of the file is not looked at."""


class Findings:
    """Collects the faults and notices of one import."""

    def __init__(self, file: str) -> None:
        self.file = file
        self.faults: list[Fault] = []
        self.notices: list[Notice] = []

    def fault(self, place: str, rule: str, found: str, wanted: str) -> None:
        """Record what makes the file unusable.

        Raises:
            TooMany: there are many of them already.
        """
        self.faults.append(Fault(self.file, place, "", rule, found, wanted))
        if len(self.faults) >= MAX_FAULTS:
            raise TooMany

    def notice(self, place: str, rule: str, found: str, made: str) -> None:
        """Record what was odd and what was made of it; past a bound it is only said that there is more."""
        if len(self.notices) < MAX_NOTICES:
            self.notices.append(Notice(self.file, place, rule, found, made))
        elif len(self.notices) == MAX_NOTICES:
            self.notices.append(Notice(self.file, place, "too many to list", "", "the rest is handled like these"))

    def done(self) -> None:
        """End the import.

        Raises:
            Faults: some were found.
        """
        if self.faults:
            raise Faults(self.faults)
