"""A contract as people and programs look at it: each register as plain data, and drawn as a bit field."""

from __future__ import annotations

from typing import Any, Final

from hwtool_contracts.effects import Basis, ReadEffect, WriteEffect, worst_write
from hwtool_contracts.judge import WEAKEST_FIRST, ReadJudgement, judge_read
from hwtool_contracts.model import Contract, Field, Provenance, Register

CELL: Final = 5
ROW_BITS: Final = 16


def own_read(register: Register) -> tuple[list[str], Basis]:
    """The union of read effects over a register's own bits, and the weakest basis among them."""
    effects: set[ReadEffect] = set()
    bases = set()
    for spec in [p.read for p in parts(register) if p.access.readable] or [register.read]:
        effects |= spec.effects
        bases.add(spec.provenance.basis)
    if len(effects) > 1:
        effects.discard(ReadEffect.NONE)
    return sorted(e.value for e in effects), min(bases, key=WEAKEST_FIRST.index)


def own_write(register: Register) -> tuple[WriteEffect, Basis]:
    """The worst write effect over a register's own bits, and the weakest basis among them."""
    specs = [p.write for p in parts(register) if p.access.writable] or [register.write]
    return worst_write(frozenset(s.effect for s in specs)), min(
        (s.provenance.basis for s in specs), key=WEAKEST_FIRST.index
    )


def parts(register: Register) -> list[Field | Register]:
    """The fields of a register, and the register itself for bits of no field."""
    covered = 0
    for field in register.fields.values():
        covered |= field.mask
    found: list[Field | Register] = [*register.fields.values()]
    return found if covered == register.mask else [*found, register]


def hexed(value: int, width_bits: int) -> str:
    """Hex, padded to the width."""
    return f"0x{value:0{(width_bits + 3) // 4}x}"


def _seen(provenance: Provenance) -> dict[str, Any]:
    told = {"provenance": provenance.basis.value, "seen": provenance.seen, "source": provenance.source}
    return {k: v for k, v in told.items() if v is not None}


def register_object(contract: Contract, register: Register) -> dict[str, Any]:
    """One register as plain data.

    `read` and `write` speak of its own bits, `judged_read` of what an access to it does, neighbours in the same bytes
    included.
    """
    shown: dict[str, Any] = {
        "name": register.name,
        "offset": hexed(register.offset, 8 * contract.access.offset_bytes),
        "width_bits": register.width_bits,
        "access": register.access.value,
        "space": register.space.value,
        "reset": None if register.reset is None else hexed(register.reset, register.width_bits),
        "volatile": "unknown" if register.volatile_unsaid else register.volatile,
        "description": " ".join(register.description.split()) or None,
    }
    shown |= {key: True for key in ("sensitive", "confidential") if getattr(register, key)}
    shown |= {} if register.access_bits is None else {"access_bits": register.access_bits}
    if register.access.readable:
        effects, basis = own_read(register)
        shown["read"] = {"effects": effects, "provenance": basis.value}
        judged = judge_read(contract, (register,))
        if isinstance(judged, ReadJudgement):
            shown["judged_read"] = {"effects": sorted(judged.effects), "clean": judged.clean}
    if register.access.writable:
        effect, basis = own_write(register)
        shown["write"] = {"effect": effect.value, "provenance": basis.value}
    if register.fields:
        shown["fields"] = [field_object(f) for f in register.fields.values()]
    return shown


def bits_of(field: Field) -> str:
    """Where a field's bits are: `7:4`, or the parts of a value that is spread, most significant first."""
    return ",".join(f"{high}:{low}" for high, low in field.parts or ((field.msb, field.lsb),))


def field_object(field: Field) -> dict[str, Any]:
    """One field as plain data."""
    shown: dict[str, Any] = {
        "name": field.name,
        "bits": bits_of(field),
        "access": field.access.value,
        "volatile": "unknown" if field.volatile_unsaid else field.volatile,
    }
    shown |= {"confidential": True} if field.confidential else {}
    if field.access.readable:
        shown["read"] = {"effects": sorted(e.value for e in field.read.effects), **_seen(field.read.provenance)}
    if field.access.writable:
        shown["write"] = {"effect": field.write.effect.value, **_seen(field.write.provenance)}
    if field.values:
        shown["values"] = dict(field.values)
    if field.description:
        shown["description"] = " ".join(field.description.split())
    return shown


def drawn(contract: Contract, register: Register) -> list[str]:
    """A register as a bit-field diagram, sixteen bits a row, with a line for each field."""
    title = f"{register.name}  {hexed(register.offset, 8 * contract.access.offset_bytes)}  {register.width_bits} bit"
    title += f"  {register.access}"
    if register.reset is not None:
        title += f"  reset {hexed(register.reset, register.width_bits)}"
    title += f"  accesses of {register.access_bits} bit" if register.access_bits is not None else ""
    title += "  confidential" if register.confidential else ""
    lines = [title]
    if register.description:
        lines.append("  " + " ".join(register.description.split())[:160])
    for top in range(register.width_bits - 1, -1, -ROW_BITS):
        lines += _row(register, top, max(top - ROW_BITS + 1, 0))
    for field in register.fields.values():
        lines.append("  " + _legend(field))
    if not register.fields or len(parts(register)) > len(register.fields):
        what = "the whole register" if not register.fields else "bits of no field"
        lines.append(f"  {what}: {_effects(register)}")
    return lines


def _row(register: Register, top: int, bottom: int) -> list[str]:
    """Bit numbers, and boxes with names, from `top` down to `bottom`."""
    segments: list[tuple[int, int, str]] = []
    bit = top
    while bit >= bottom:
        field = next((f for f in register.fields.values() if f.mask >> bit & 1), None)
        if field is None:
            low = bit
            while low and not any(f.mask >> (low - 1) & 1 for f in register.fields.values()):
                low -= 1
            name = "" if register.fields else register.name.rpartition(".")[2]
        else:
            low, name = bit, field.name
            while low > field.lsb and field.mask >> (low - 1) & 1:
                low -= 1
        low = max(low, bottom)
        segments.append((bit, low, name))
        bit = low - 1
    numbers = boxes = rule = ""
    for high, low, name in segments:
        width = (high - low + 1) * (CELL + 1) - 1
        marks = str(high) if high == low else f"{high}{str(low).rjust(width - len(str(high)))}"
        numbers += " " + marks.ljust(width)
        shown = name if len(name) <= width else name[: width - 1] + "…"
        boxes += "|" + shown.center(width)
        rule += "+" + "-" * width
    return [f" {numbers}", f" {rule}+", f" {boxes}|", f" {rule}+"]


def _legend(field: Field) -> str:
    bits = bits_of(field) if field.msb != field.lsb else f"{field.lsb}"
    text = " ".join(field.description.split())[:80]
    values = ", ".join(f"{n}={v}" for n, v in list(field.values.items())[:8])
    more = " ".join(x for x in (text, f"[{values}]" if values else "") if x)
    return f"{bits:>6}  {field.name}  {field.access}  {_effects(field)}" + (f"  {more}" if more else "")


def _effects(place: Field | Register) -> str:
    told = []
    if place.access.readable:
        words = "+".join(sorted(e.value for e in place.read.effects))
        told.append(f"read {words} ({place.read.provenance.basis})")
    if place.access.writable:
        told.append(f"write {place.write.effect} ({place.write.provenance.basis})")
    if place.volatile:
        told.append("volatile?" if place.volatile_unsaid else "volatile")
    if isinstance(place, Field) and place.confidential:
        told.append("confidential")
    return ", ".join(told) or "no access"
