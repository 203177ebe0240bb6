"""What is odd in where registers stand: one that an access to another reaches, which says something else."""

from __future__ import annotations

from collections.abc import Iterator

from hwtool_contracts.complaint import Complaint
from hwtool_contracts.effects import Basis, ReadEffect
from hwtool_contracts.model import Contract, Register
from hwtool_contracts.places import cells, overlapping


def of_place(contract: Contract, register: Register) -> Iterator[Complaint]:
    """What is odd in the registers that stand in the bytes of this one."""
    others = [other for other in overlapping(contract, register) if other.name != register.name]
    if others:
        yield from _shared(register, others)
        yield from _two_effects(register, others)
        yield from _half(contract, register, others)


def _shared(register: Register, others: list[Register]) -> Iterator[Complaint]:
    """A clean read that another register in the same bytes makes unclean."""
    if not register.access.readable or register.read.effects != {ReadEffect.NONE}:
        return
    for other in others:
        if other.access.readable:
            worse = {e for e in other.read.effects if e is not ReadEffect.NONE}
            if worse:
                words = ", ".join(sorted(worse))
                text = f"reading it reaches {other.name} too, whose read is {words}"
                yield Complaint("not as clean as it looks", register.name, text)
                return


def _two_effects(register: Register, others: list[Register]) -> Iterator[Complaint]:
    """Two registers in one place, of which one write is both: only one of the two can be true."""
    if register.fields or not register.access.writable or register.write.provenance.basis is Basis.SILENT:
        return
    for other in others:
        if other.name <= register.name or not other.access.writable or other.fields:
            continue
        if other.write.effect is not register.write.effect and other.write.provenance.basis is not Basis.SILENT:
            text = f"a write is {register.write.effect}, and by {other.name}, in the same bytes, {other.write.effect}"
            yield Complaint("two effects in one place", register.name, text)


def _half(contract: Contract, register: Register, others: list[Register]) -> Iterator[Complaint]:
    """A register that stands half in another one: neither is a part of the other, so an offset or a width is wrong.

    Where nobody has said what either does, nothing rests on it.
    """
    own = cells(contract, register)
    for other in others:
        theirs = cells(contract, other)
        if own.start < theirs.start < own.stop < theirs.stop and _both_said(register, other):
            text = f"it ends at {own.stop - 1:#04x}, in {other.name}, which begins at {theirs.start:#04x}"
            yield Complaint("half in another", register.name, text)


def _both_said(one: Register, other: Register) -> bool:
    """Whether both can be read, or both written, and somebody has said what that does."""
    read = [r.access.readable and r.read.provenance.basis is not Basis.SILENT for r in (one, other)]
    written = [r.access.writable and r.write.provenance.basis is not Basis.SILENT for r in (one, other)]
    return all(read) or all(written)
