"""What can be said against a contract that loads: what an importer had to decide, and what is odd in what it says."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from typing import Any

from hwtool_contracts.effects import Basis, ReadEffect
from hwtool_contracts.model import Contract, Field, Register
from hwtool_contracts.notice import Imported
from hwtool_contracts.places import overlapping
from hwtool_contracts.suspicion import READ_NAMES, READ_TEXTS

SURE = 90


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


def complaints(imported: Imported) -> list[Complaint]:
    """Everything, in the order of the map: the importer's notices first."""
    notices = [Complaint(n.rule, n.place, f"{n.found}; made of it: {n.made}") for n in imported.notices]
    return [*notices, *of_contract(imported.contract)]


def of_contract(contract: Contract) -> Iterator[Complaint]:
    """What is odd in what a contract says, whoever made it."""
    for register in contract.registers.values():
        if register.access.readable:
            yield from _too_harmless(register)
        yield from _shared(contract, register)


def _too_harmless(register: Register) -> Iterator[Complaint]:
    """A read that somebody calls harmless although its text says otherwise."""
    last = register.name.rpartition(".")[2].partition("[")[0]
    places: list[Register | Field] = [register, *register.fields.values()]
    for place in places:
        if place.read.effects != {ReadEffect.NONE} or place.read.provenance.basis is Basis.GENERATED:
            continue
        name = register.name if isinstance(place, Register) else f"{register.name}.{place.name}"
        for weight, reason, pattern in READ_TEXTS:
            hit = pattern.search(place.description)
            if weight >= SURE and hit is not None:
                yield Complaint("harmless against its text", name, f"read none, and {reason} (“{hit[0][:60]}”)")
                return
    if register.read.effects == {ReadEffect.NONE}:
        for weight, reason, pattern in READ_NAMES:
            if weight >= SURE and pattern.fullmatch(last) and not register.read.provenance.source:
                yield Complaint("harmless against its name", register.name, f"read none without a source, and {reason}")


def _shared(contract: Contract, register: Register) -> Iterator[Complaint]:
    """A clean read that another register in the same bytes makes unclean."""
    if not register.access.readable or register.read.effects != {ReadEffect.NONE}:
        return
    for other in overlapping(contract, register):
        if other is not register and other.name != register.name and other.access.readable:
            worse = {e for e in other.read.effects if e is not ReadEffect.NONE}
            if worse:
                words = ", ".join(sorted(worse))
                text = f"reading it reaches {other.name} too, whose read is {words}"
                yield Complaint("not as clean as it looks", register.name, text)
                return
