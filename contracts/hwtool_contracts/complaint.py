"""One thing that can be said against a contract that loads."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from typing import Any, Final

from hwtool_contracts.model import Field, Register

SURE: Final = 90  # the weight from which a word counts against what a file says, and not only for a review


@dataclass(frozen=True, slots=True)
class Complaint:
    """One thing to look at.

    Attributes:
        rule: which rule, a word or two.
        text: what was found and what follows from it.
    """

    rule: str
    place: str
    text: str

    def __str__(self) -> str:
        return f"{self.place or 'file'}: {self.rule}: {self.text}"

    def as_object(self) -> dict[str, Any]:
        """As plain data."""
        return {"rule": self.rule, "place": self.place, "text": self.text}


def named_places(register: Register) -> Iterator[tuple[str, Register | Field]]:
    """The register and its fields, each with the name that a complaint has for it."""
    yield register.name, register
    for field in register.fields.values():
        yield f"{register.name}.{field.name}", field
