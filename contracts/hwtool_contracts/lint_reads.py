"""What is odd in what a contract says of reading a register: harmless words beside words that are not."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Final

from hwtool_contracts.complaint import SURE, Complaint, named_places
from hwtool_contracts.effects import Basis, ReadEffect, WriteEffect
from hwtool_contracts.model import Contract, Field, Register
from hwtool_contracts.places import find_place
from hwtool_contracts.suspicion import READ_NAMES, READ_TEXTS

TAKES: Final = ("affects", "level", "when_empty", "max_burst", "peek")  # these speak of a read that does something


def moved_by_reads(contract: Contract) -> frozenset[str]:
    """Registers, and `REG.FIELD`, that reading another register changes, as that one says itself."""
    moved = set()
    for register in contract.registers.values():
        for spec in (register.read, *(f.read for f in register.fields.values())):
            for target in spec.affects if spec.effects != {ReadEffect.NONE} else ():
                place = find_place(contract, target, register)
                if place is not None and place[0] is not register:
                    moved.add(place[0].name if place[1] is None else f"{place[0].name}.{place[1].name}")
    return frozenset(moved)


def of_read(contract: Contract, register: Register, moved: frozenset[str]) -> Iterator[Complaint]:
    """What is odd in how a register is read; `moved` is what `moved_by_reads` says of its contract."""
    if register.access.readable:
        yield from _too_harmless(register, moved)
        yield from _harmless_and_not(register)
        yield from _stored_port(register)
        yield from _no_count(contract, register)


def _too_harmless(register: Register, moved: frozenset[str]) -> Iterator[Complaint]:
    """A read that somebody calls harmless although its text or its name says otherwise.

    What its text says of a read is accounted for where another register says that reading that one changes it.
    """
    last = register.name.rpartition(".")[2].partition("[")[0]
    for name, place in named_places(register):
        if place.read.effects != {ReadEffect.NONE} or place.read.provenance.basis is Basis.GENERATED:
            continue
        if {name, register.name} & moved or _is_switch(place):
            continue
        for weight, reason, pattern in READ_TEXTS:
            hit = pattern.search(place.description)
            if weight >= SURE and hit is not None:
                yield Complaint("harmless against its text", name, f"read none, and {reason} (“{hit[0][:60]}”)")
                return
    if register.read.effects == {ReadEffect.NONE}:
        for weight, reason, pattern in READ_NAMES:
            if weight >= SURE and pattern.fullmatch(last) and not register.read.provenance.source:
                yield Complaint("harmless against its name", register.name, f"read none without a source, and {reason}")


def _is_switch(place: Register | Field) -> bool:
    """One bit that keeps what is written to it: no element, flag or lock that a read could take."""
    stored = place.access.writable and place.write.effect is WriteEffect.STORE and not place.volatile
    return isinstance(place, Field) and place.width_bits == 1 and stored


def _harmless_and_not(register: Register) -> Iterator[Complaint]:
    """Called harmless, and told in the same table what it takes or moves."""
    for name, place in named_places(register):
        told = [key for key in TAKES if getattr(place.read, key)]
        if place.access.readable and place.read.effects == {ReadEffect.NONE} and told:
            yield Complaint(
                "harmless, and it acts", name, f"read none, with {', '.join(told)}: those are of no such read"
            )


def _stored_port(register: Register) -> Iterator[Complaint]:
    """What reading pops is not what a write left there: a store would be read back, and would eat an element."""
    pops = ReadEffect.POP in register.read.effects
    if pops and register.access.writable and register.write.effect is WriteEffect.STORE:
        yield Complaint(
            "a FIFO that stores", register.name, "its read pops, so what is written to it is no store: push?"
        )


def _no_count(contract: Contract, register: Register) -> Iterator[Complaint]:
    """A level is a number: a flag that says "empty" would refuse what is there, and let through what is not."""
    read = register.read
    place = None if read.level is None else find_place(contract, read.level, register)
    if place is None or read.max_burst is None:
        return
    most = (1 << (place[0] if place[1] is None else place[1]).width_bits) - 1
    if most < read.max_burst:
        text = f"{read.level} counts to {most}, and max_burst is {read.max_burst}: a flag is no level"
        yield Complaint("a level that does not count", register.name, text)
