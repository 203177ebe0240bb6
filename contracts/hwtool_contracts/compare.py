"""The difference between two contracts by meaning: what is promised otherwise, not how the files are written."""

from __future__ import annotations

import dataclasses
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from enum import Enum
from typing import Any, Final

from hwtool_contracts.model import Contract, Field, ReadSpec, Register, WriteSpec

TEXTS: Final = frozenset({"description"})
WHOLE: Final = (
    "access",
    "banks",
    "groups",
    "assumes",
    "identity",
    "restart",
    "mux",
    "derived_from",
    "part",
    "verified",
)


@dataclass(frozen=True, slots=True)
class Difference:
    """One thing that differs.

    Attributes:
        place: register, REG.FIELD or table.
        what: `added`, `removed`, or the member that differs.
        before, after: how it reads; empty where there is nothing.
        harmless: a text alone, no promise.
    """

    place: str
    what: str
    before: str
    after: str
    harmless: bool = False

    def __str__(self) -> str:
        if self.what in ("added", "removed"):
            return f"{'+' if self.what == 'added' else '-'} {self.place}  {self.after or self.before}"
        return f"~ {self.place}  {self.what}: {self.before or '-'} -> {self.after or '-'}"


def differences(before: Contract, after: Contract) -> list[Difference]:
    """All differences, registers in the order of `after`, removed ones last."""
    found = list(_registers(before.registers, after.registers))
    for key in WHOLE:
        old, new = getattr(before, key), getattr(after, key)
        if old != new:
            found.append(Difference(f"[{key}]", key, _text(old), _text(new)))
    return found


def _registers(before: Mapping[str, Register], after: Mapping[str, Register]) -> Iterator[Difference]:
    for name, new in after.items():
        old = before.get(name)
        if old is None:
            yield Difference(name, "added", "", f"at {new.offset:#x}, {new.width_bits} bits, {new.access}")
        elif old != new:
            yield from _members(name, old, new)
            yield from _fields(name, old, new)
    for name, old in before.items():
        if name not in after:
            yield Difference(name, "removed", f"at {old.offset:#x}, {old.width_bits} bits, {old.access}", "")


def _fields(register: str, before: Register, after: Register) -> Iterator[Difference]:
    for name, new in after.fields.items():
        old = before.fields.get(name)
        if old is None:
            yield Difference(f"{register}.{name}", "added", "", f"bits {new.msb}:{new.lsb}, {new.access}")
        elif old != new:
            yield from _members(f"{register}.{name}", old, new)
    for name, old in before.fields.items():
        if name not in after.fields:
            yield Difference(f"{register}.{name}", "removed", f"bits {old.msb}:{old.lsb}, {old.access}", "")


def _members(place: str, before: Register | Field, after: Register | Field) -> Iterator[Difference]:
    for one in dataclasses.fields(before):
        old, new = getattr(before, one.name), getattr(after, one.name)
        if one.name == "fields" or old == new:
            continue
        harmless = one.name in TEXTS
        if harmless:
            old, new = " ".join(old.split()), " ".join(new.split())
            if old == new:
                continue
        yield Difference(place, one.name, _text(old), _text(new), harmless)


def _text(value: Any) -> str:
    if isinstance(value, ReadSpec):
        return f"{'+'.join(sorted(e.value for e in value.effects))} ({value.provenance.basis})" + _more(value)
    if isinstance(value, WriteSpec):
        return f"{value.effect} ({value.provenance.basis})" + _more(value)
    if isinstance(value, Enum):
        return str(value.value)
    if isinstance(value, Mapping):
        return ", ".join(f"{k}={_text(v)}" for k, v in value.items())
    if isinstance(value, int) and not isinstance(value, bool):
        return f"{value:#x}"
    return "" if value is None else str(value)


def _more(spec: ReadSpec | WriteSpec) -> str:
    told = []
    for one in dataclasses.fields(spec):
        value = getattr(spec, one.name)
        if one.name not in ("effects", "effect", "provenance") and value not in (None, (), {}, "none", False, 0):
            told.append(f"{one.name} {value}")
    if spec.provenance.source is not None:
        told.append(f"source {spec.provenance.source}")
    return (", " + ", ".join(told)) if told else ""
