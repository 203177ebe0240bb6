"""The fields of an SVD register: bit ranges in three spellings, enumerations, effects of their own, shared bits."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import replace
from typing import Final
from xml.etree.ElementTree import Element

from hwtool_contracts.effects import WriteEffect
from hwtool_contracts.importers.svd_derive import BIT_RANGE, Resolved, Scope, name_of
from hwtool_contracts.importers.svd_specs import NO_NUMBER, Specs
from hwtool_contracts.model import UNKNOWN_READ, UNKNOWN_WRITE, Access, Field, Quantity, ReadSpec, WriteSpec
from hwtool_contracts.notice import Findings

PLAIN: Final = Quantity()
NO_VALUES: Final[Mapping[str, int]] = {}

Resolver = Callable[[Element, Scope | None, str], Resolved | None]


class Parent:
    """What the fields of a register inherit, and where the register stands."""

    __slots__ = ("access", "place", "read", "scope", "stated", "width_bits", "write")

    def __init__(
        self,
        scope: Scope,
        place: str,
        width_bits: int,
        access: Access,
        read: ReadSpec,
        write: WriteSpec,
        stated: bool,
    ) -> None:
        self.scope = scope
        self.place = place
        self.width_bits = width_bits
        self.access = access
        self.read = read
        self.write = write
        self.stated = stated


def fields_of(
    container: Element, parent: Parent, specs: Specs, resolver: Resolver, findings: Findings
) -> dict[str, Field]:
    """The fields of a register, by name, in the order of the file."""
    fields: dict[str, Field] = {}
    taken_to_read = taken_to_write = 0
    shared = False
    for element in container:
        if element.tag != "field":
            continue
        if "derivedFrom" in element.attrib:
            resolved = resolver(element, parent.scope, f"{parent.place}.{name_of(element)}")
            if resolved is None:
                continue
            element = resolved.element
        for field in _fields(element, parent, specs, resolver, findings):
            if field.name in fields:
                findings.fault(f"{parent.place}.{field.name}", "two fields of one name", field.name, "its own name")
                continue
            fields[field.name] = field
            if field.access.readable:
                shared = shared or bool(field.mask & taken_to_read)
                taken_to_read |= field.mask
            if field.access.writable:
                shared = shared or bool(field.mask & taken_to_write)
                taken_to_write |= field.mask
    return _marked(fields, parent.place, findings) if shared else fields


def _marked(fields: dict[str, Field], place: str, findings: Findings) -> dict[str, Field]:
    """The fields with those that share bits marked as alternates of each other."""
    sharing = {}
    for field in fields.values():
        others = [
            other.name
            for other in fields.values()
            if other is not field
            and other.mask & field.mask
            and ((other.access.readable and field.access.readable) or (other.access.writable and field.access.writable))
        ]
        if others:
            sharing[field.name] = others
    named = ", ".join(f"{name} with {' and '.join(others)}" for name, others in sharing.items())
    findings.notice(place, "fields share bits", named, "alternates; an update of one of them is refused")
    return {name: replace(field, alternate=name in sharing) for name, field in fields.items()}


def _fields(element: Element, parent: Parent, specs: Specs, resolver: Resolver, findings: Findings) -> list[Field]:
    leaves: dict[str, str] = {}
    enumerations: list[Element] = []
    for child in element:
        leaves[child.tag] = child.text or ""
        if child.tag == "enumeratedValues":
            enumerations.append(child)
    name = leaves.get("name", "").strip()
    place = f"{parent.place}.{name}"
    if not name:
        findings.fault(parent.place, "a field without a name", "", "<name>")
        return []
    lsb, width = _bits(leaves, specs, place, findings)
    if width < 1:
        return []
    if width > parent.width_bits:
        findings.notice(place, "outside the register", f"{width} bits of {parent.width_bits}", "left out: no such bits")
        return []
    stated = leaves.get("access")
    access = parent.access if stated is None else specs.access(stated, place)
    once = access in (Access.W1, Access.RW1) or parent.write.effect is WriteEffect.WRITE_ONCE
    if stated is not None and parent.stated:
        access = _narrowed(access, parent.access, place, findings)
    inherited = parent.write if not parent.write.values and parent.write.limits is None else _bare(parent.write)
    read = specs.read(leaves.get("readAction"), parent.read, place) if access.readable else UNKNOWN_READ
    write = specs.write(leaves.get("modifiedWriteValues"), once, inherited, place) if access.writable else UNKNOWN_WRITE
    values: Mapping[str, int] = NO_VALUES
    if enumerations:
        values = specs.enumeration(_derived(enumerations, parent.scope, resolver, place), width, place)
    if "writeConstraint" in leaves and access.writable:
        write = specs.constrained(element, write, values, (1 << width) - 1, place)
    made = []
    dims = specs.dims(leaves, name, place) if "dim" in leaves or "%s" in name else ((name, 0),)
    for index_name, step in dims:
        if lsb + step + width > parent.width_bits:
            found = f"bits {lsb + step + width - 1}:{lsb + step} of {parent.width_bits}"
            findings.notice(f"{parent.place}.{index_name}", "outside the register", found, "left out: no such bits")
            continue
        made.append(
            Field(
                index_name,
                lsb + step + width - 1,
                lsb + step,
                access,
                read,
                write,
                None,
                True,
                values,
                PLAIN,
                None,
                leaves.get("description", "").strip(),
                True,
            )
        )
    return made


def _bare(write: WriteSpec) -> WriteSpec:
    """What is said of a register's whole value is not said of a part of it."""
    return WriteSpec(write.effect, write.provenance)


def _derived(enumerations: list[Element], scope: Scope, resolver: Resolver, place: str) -> list[Element]:
    found = []
    for one in enumerations:
        if "derivedFrom" not in one.attrib:
            found.append(one)
            continue
        resolved = resolver(one, scope, place)
        if resolved is not None:
            found.append(resolved.element)
    return found


def _narrowed(access: Access, outer: Access, place: str, findings: Findings) -> Access:
    """The directions that both field and register allow."""
    if (access.readable and not outer.readable) or (access.writable and not outer.writable):
        reads, writes = access.readable and outer.readable, access.writable and outer.writable
        narrowed = Access.RW if reads and writes else Access.RO if reads else Access.WO if writes else Access.NONE
        findings.notice(place, "a field allows more than its register", f"{access} in {outer}", f"access {narrowed}")
        return narrowed
    return access


def _bits(leaves: Mapping[str, str], specs: Specs, place: str, findings: Findings) -> tuple[int, int]:
    """The lowest bit and the width of a field; width 0 with a fault if they cannot be told."""
    if "bitOffset" in leaves:
        lsb = specs.required(leaves, "bitOffset", place)
        width = specs.optional(leaves, "bitWidth", place)
        msb = lsb if width is None else lsb + width - 1
    elif "lsb" in leaves and "msb" in leaves:
        lsb, msb = specs.required(leaves, "lsb", place), specs.required(leaves, "msb", place)
    elif "bitRange" in leaves:
        match = BIT_RANGE.fullmatch(leaves["bitRange"].strip())
        high, low = (specs.integer(match[1]), specs.integer(match[2])) if match else (NO_NUMBER, NO_NUMBER)
        if NO_NUMBER in (high, low):
            findings.fault(place, "bitRange cannot be read", leaves["bitRange"].strip(), "[msb:lsb]")
            return 0, 0
        msb, lsb = high, low
    else:
        findings.fault(place, "a field without bits", "", "bitOffset and bitWidth, lsb and msb, or bitRange")
        return 0, 0
    if not 0 <= lsb <= msb:
        findings.fault(place, "a field without bits", f"[{msb}:{lsb}]", "msb at or above lsb")
        return 0, 0
    return lsb, msb - lsb + 1
