"""The importer of CMSIS-SVD: one file becomes one memory-mapped `Contract`, with side effects and silences kept.

Rules
- Each peripheral is a cluster: `UART0.UARTDR` at its absolute address, `TC.COUNT8.CTRL`, `DMA.CH[3].CTRL`.
- A read or write about which the file says nothing is `unknown`, provenance `silent`. What it says is `asserted`.
- The file format has no word for "hardware changes it": every register counts as volatile until a review says not.
- What would make the map smaller or wrong is a fault with its place, and nothing is imported. What can be read in a
  careful way is a notice that says what was made of it: an unknown word becomes `unknown`, an illegal access `none`.
- Registers that share bytes stay apart, each under its name; the judge unites their effects. Fields that share bits
  are marked alternates of each other.
- Widths are bits, addresses bytes; byte order little unless `<endian>` says big.

Source: CMSIS-SVD description format 1.3 (Open-CMSIS-Pack/svd-spec).
"""

from __future__ import annotations

import hashlib
from collections.abc import Iterable, Mapping
from pathlib import Path
from typing import Final, NamedTuple
from xml.etree.ElementTree import Element

from hwtool_contracts.importers.svd_derive import Circle, Missing, Resolved, Scope, matches, name_of, resolve
from hwtool_contracts.importers.svd_fields import NO_VALUES, PLAIN, Parent, fields_of
from hwtool_contracts.importers.svd_specs import Specs
from hwtool_contracts.importers.svd_xml import SvdXml
from hwtool_contracts.model import (
    UNKNOWN_READ,
    UNKNOWN_WRITE,
    Access,
    BusAccess,
    ByteOrder,
    Contract,
    Field,
    MappedAccess,
    Owner,
    Persistence,
    Register,
    Space,
)
from hwtool_contracts.notice import Findings, Imported, TooMany
from hwtool_contracts.toml_reader import Fault, Faults

MAX_REGISTERS: Final = 100_000
MAX_FIELDS: Final = 1_000_000
MAX_WIDTH_BITS: Final = 64
NO_FIELDS: Final[Mapping[str, Field]] = {}
PROPERTIES: Final = frozenset({"size", "access", "resetValue", "resetMask"})


class _Properties(NamedTuple):
    """What registers inherit from the elements around them; None: not said yet."""

    size: int | None = None
    access: str | None = None
    reset: int | None = None
    reset_mask: int | None = None


def import_svd(path: Path) -> Imported:
    """Import a CMSIS-SVD file.

    Raises:
        Faults: it cannot be read, or breaks rules in a way that would make the map wrong; all that were found.
    """
    try:
        data = path.read_bytes()
    except OSError as error:
        raise Faults([Fault(path.name, "", "", "cannot be read", str(error), "a readable file")]) from error
    return parse_svd(data, path.name)


def parse_svd(data: bytes, file: str) -> Imported:
    """Import the bytes of an SVD file called `file`.

    Raises:
        Faults: as `import_svd`.
    """
    xml = SvdXml(data, file)
    importer = _Importer(file, xml)
    registers = importer.registers()
    head = xml.head
    name = head.get("name") or Path(file).stem
    contract = Contract(
        part=name,
        vendor=head.get("vendor") or head.get("vendorID") or "unknown",
        title=" ".join(head.get("description", "").split()) or name,
        source=file,
        digest="sha256:" + hashlib.sha256(b"hwtool.svd.v1\0" + data).hexdigest(),
        access=BusAccess(8 if importer.highest >> 32 else 4, None, None, MappedAccess(importer.byte_order)),
        registers=registers,
        banks={},
        groups={},
        assumes=(),
        identity=None,
        verified=None,
        derived_from=importer.derived_from,
    )
    return Imported(contract, tuple(importer.findings.notices))


class _Importer:
    """The state of one import.

    Attributes:
        derived_from: peripheral → the peripheral it derives from.
        highest: the highest address of a register.
    """

    def __init__(self, file: str, xml: SvdXml) -> None:
        self.xml = xml
        self.findings = Findings(file)
        self.specs = Specs(self.findings)
        self.derived_from: dict[str, str] = {}
        self.highest = 0
        self.byte_order = ByteOrder.LITTLE
        self._odd_unit = False
        self._kept: dict[str, Element] = {}
        self._whole_file_read = False
        self._made: dict[str, list[Register]] = {}
        self._count = 0
        self._clusters = 0
        self._field_count = 0

    def registers(self) -> dict[str, Register]:
        """All registers, in the order of the file.

        Raises:
            Faults: whatever was found.
        """
        waiting: list[Element] = []
        try:
            defaults = self._head()
            for element in self.xml.peripherals():
                self._read(element, defaults, waiting)
            self._whole_file_read = True
            for element in waiting:
                self._expand(element, defaults)
        except TooMany:
            pass
        except RecursionError:
            self.findings.faults.append(
                Fault(self.findings.file, "", "", "nested too deeply", "clusters in clusters", "a flatter map")
            )
        found: dict[str, Register] = {}
        for made in self._made.values():
            for register in made:
                if found.setdefault(register.name, register) is not register:
                    self._twice(register, found[register.name])
        self.findings.done()
        if not found:
            self.findings.faults.append(Fault(self.findings.file, "", "", "no register", "", "at least one register"))
        self.findings.done()
        return found

    def _twice(self, register: Register, first: Register) -> None:
        wanted = "a name of its own, or an alternateGroup"
        place = f"{register.offset:#x} and {first.offset:#x}"
        self.findings.faults.append(
            Fault(self.findings.file, register.name, "", "two registers of one name", place, wanted)
        )

    def _head(self) -> _Properties:
        head = self.xml.head
        unit = head.get("addressUnitBits", "8")
        if self.specs.integer(unit) != 8:
            self._odd_unit = True
            self.findings.notice("device", "addressUnitBits is not 8", unit, "addresses that count bytes all the same")
        endian = head.get("cpu.endian", "little")
        if endian == "big":
            self.byte_order = ByteOrder.BIG
        elif endian != "little":
            self.findings.notice("device.cpu", "the byte order is not fixed", endian, "byte order little")
        return _Properties(
            self.specs.optional(head, "size" if "size" in head else "width", "device"),
            head.get("access") or None,
            self.specs.optional(head, "resetValue", "device"),
            self.specs.optional(head, "resetMask", "device"),
        )

    def _inherit(self, leaves: Mapping[str, str], outer: _Properties, place: str) -> _Properties:
        if not PROPERTIES & leaves.keys():
            return outer
        size = self.specs.optional(leaves, "size", place)
        reset = self.specs.optional(leaves, "resetValue", place)
        mask = self.specs.optional(leaves, "resetMask", place)
        return _Properties(
            outer.size if size is None else size,
            leaves.get("access", outer.access),
            outer.reset if reset is None else reset,
            outer.reset_mask if mask is None else mask,
        )

    # peripherals

    def _read(self, element: Element, defaults: _Properties, waiting: list[Element]) -> None:
        """Expand a peripheral that has just been read, or keep it until the whole file has been."""
        name = name_of(element)
        names = {name, name.replace("[%s]", "").replace("%s", "")}
        kept = Element(element.tag, element.attrib)
        kept.extend(element)
        if names & self.xml.bases or ("%s" in name and any(matches(kept, base) for base in self.xml.bases)):
            for one in names:
                self._kept.setdefault(one, kept)
        findings = self.findings
        before = len(findings.faults), len(findings.notices), self._count, self._field_count, list(self._made)
        try:
            self._expand(kept, defaults)
        except Missing:
            # a forward reference: once more when the whole file has been read; the place in the order is kept
            del findings.faults[before[0] :], findings.notices[before[1] :]
            self._count, self._field_count = before[2], before[3]
            for added in [n for n in self._made if n not in before[4]]:
                self._made[added] = []
            self._made.setdefault(name, [])
            waiting.append(kept)

    def _resolved(self, element: Element, scope: Scope | None, place: str) -> Resolved | None:
        """The element with what it derives; None, with a fault, if that cannot be had.

        Raises:
            Missing: the base is not there, and the file has not been read to its end.
        """
        path = element.get("derivedFrom")
        if path is None:
            return Resolved(element, frozenset({id(element)}), None)
        try:
            return resolve(element, scope, self._kept)
        except Missing:
            if not self._whole_file_read:
                raise
            self.findings.fault(place, "derivedFrom leads nowhere", path, "name or path of what is described")
        except Circle:
            self.findings.fault(place, "derivedFrom goes in a circle", path, "a base that does not lead back here")
        return None

    def _expand(self, element: Element, defaults: _Properties) -> None:
        name = name_of(element)
        if not name:
            self.findings.fault("device", "a peripheral without a name", "", "<name>")
            return
        resolved = self._resolved(element, None, name)
        if resolved is None:
            return
        whole = resolved.element
        leaves = {child.tag: child.text or "" for child in whole}
        base = self.specs.required(leaves, "baseAddress", name)
        container = whole.find("registers")
        props = self._inherit(leaves, defaults, name)
        derives = element.get("derivedFrom")
        for index_name, step in self.specs.dims(leaves, name, name):
            if self._made.get(index_name):
                self.findings.fault(index_name, "two peripherals of one name", index_name, "a name of its own")
                continue
            if derives is not None:
                self.derived_from[index_name] = self._first_of(derives.strip())
            made = self._made.setdefault(index_name, [])
            if container is not None:
                scope = Scope(whole, None, resolved.origins, resolved.home)
                self._container(container, scope, base + step, f"{index_name}.", props, made)

    def _first_of(self, base: str) -> str:
        """The peripheral that a base names; of an array or list, its first element."""
        element = self._kept.get(base)
        name = base if element is None else name_of(element)
        return self._names(element, name)[0] if element is not None and "%s" in name and name != base else base

    def _names(self, element: Element, name: str) -> list[str]:
        leaves = {child.tag: child.text or "" for child in element}
        return [one for one, _ in self.specs.dims(leaves, name, name)] or [name]

    def _container(
        self, container: Element, scope: Scope, at: int, prefix: str, props: _Properties, made: list[Register]
    ) -> None:
        for child in container:
            if child.tag == "register":
                self._register(child, scope, at, prefix, props, made)
            elif child.tag == "cluster":
                self._cluster(child, scope, at, prefix, props, made)

    def _cluster(
        self, element: Element, scope: Scope, at: int, prefix: str, props: _Properties, made: list[Register]
    ) -> None:
        place = prefix + name_of(element)
        resolved = self._resolved(element, scope, place)
        if resolved is None:
            return
        whole = resolved.element
        leaves = {child.tag: child.text or "" for child in whole}
        name = leaves.get("name", "").strip()
        if not name:
            self.findings.fault(prefix.rstrip("."), "a cluster without a name", "", "<name>")
            return
        offset = self.specs.required(leaves, "addressOffset", place)
        inner = self._inherit(leaves, props, place)
        below = Scope(whole, scope, resolved.origins, resolved.home)
        for index_name, step in self.specs.dims(leaves, name, place):
            self._counted_cluster(place)
            self._container(whole, below, at + offset + step, f"{prefix}{index_name}.", inner, made)

    # registers

    def _register(
        self, element: Element, scope: Scope, at: int, prefix: str, props: _Properties, made: list[Register]
    ) -> None:
        resolved = self._resolved(element, scope, prefix + name_of(element))
        if resolved is None:
            return
        element = resolved.element
        leaves = {child.tag: child.text or "" for child in element}
        name = leaves.get("name", "").strip()
        if not name:
            self.findings.fault(prefix.rstrip("."), "a register without a name", "", "<name>")
            return
        place = prefix + name
        offset = self.specs.required(leaves, "addressOffset", place)
        own = self._inherit(leaves, props, place)
        width = 32 if own.size is None else own.size
        if not 1 <= width <= MAX_WIDTH_BITS:
            self.findings.fault(place, "size is not supported", str(width), f"1 to {MAX_WIDTH_BITS} bits")
            return
        top_value = (1 << width) - 1
        access = Access.RW if own.access is None else self.specs.access(own.access, place)
        read = self.specs.read(leaves.get("readAction"), UNKNOWN_READ, place)
        once = access in (Access.W1, Access.RW1)
        write = self.specs.write(leaves.get("modifiedWriteValues"), once, UNKNOWN_WRITE, place)
        fields = NO_FIELDS
        container = element.find("fields") if "fields" in leaves else None
        if container is not None:
            below = Scope(element, scope, resolved.origins, resolved.home)
            parent = Parent(below, place, width, access, read, write, own.access is not None)
            fields = fields_of(container, parent, self.specs, self._resolved, self.findings)
            if own.access is None and fields:
                access = _union(field.access for field in fields.values())
        if "writeConstraint" in leaves:
            write = self.specs.constrained(element, write, NO_VALUES, top_value, place)
        if "disableCondition" in leaves:
            condition = leaves["disableCondition"].strip()
            self.findings.notice(
                place, "disableCondition is not enforced", condition, "a register that is always there"
            )
        if leaves.get("alternateGroup"):
            name = f"{name}_{leaves['alternateGroup'].strip()}"
        reset, reset_mask = self._reset(own, top_value, place)
        dims = self.specs.dims(leaves, name, place) if "dim" in leaves or "%s" in name else ((name, 0),)
        for index_name, step in dims:
            address = at + offset + step
            if address >> 64:
                self.findings.fault(place, "address out of range", hex(address), "an address of 64 bits")
                return
            if address > self.highest:
                self.highest = address
            self._counted(len(fields), place)
            if self._odd_unit and width >= 16 and address % (width // 8):
                found = f"{width} bits at {address:#x}"
                self.findings.fault(place, "addressUnitBits is not 8, and addresses do not count bytes", found, "8")
            made.append(
                Register(
                    name=prefix + index_name,
                    offset=address,
                    width_bits=width,
                    access=access,
                    read=read if access.readable else UNKNOWN_READ,
                    write=write if access.writable else UNKNOWN_WRITE,
                    fields=fields,
                    reset=reset,
                    volatile=True,
                    persistence=Persistence.UNTIL_RESET,
                    owner=Owner.EXCLUSIVE,
                    sensitive=False,
                    bank=None,
                    space=Space.MEMORY,
                    byte_order=self.byte_order,
                    word_order=ByteOrder.BIG,
                    values=NO_VALUES,
                    quantity=PLAIN,
                    description=leaves.get("description", "").strip(),
                    reset_mask=reset_mask,
                    volatile_unsaid=True,
                )
            )

    def _reset(self, own: _Properties, top_value: int, place: str) -> tuple[int | None, int | None]:
        """Reset value and mask within the register; a mask of all bits is none."""
        reset, mask = own.reset, own.reset_mask
        if reset is not None and reset > top_value:
            self.findings.notice(place, "the reset value is wider than the register", hex(reset), "its low bits")
            reset &= top_value
        if reset is None or mask is None or mask & top_value == top_value:
            return reset, None
        return reset & mask, mask & top_value

    def _counted_cluster(self, place: str) -> None:
        """Clusters count too: lists in lists would otherwise go on for ever without a register."""
        self._clusters += 1
        if self._clusters > MAX_REGISTERS:
            self.findings.fault(place, "too large a map", f"more than {MAX_REGISTERS} clusters", f"{MAX_REGISTERS}")
            raise TooMany

    def _counted(self, fields: int, place: str) -> None:
        self._count += 1
        self._field_count += fields
        if self._count > MAX_REGISTERS or self._field_count > MAX_FIELDS:
            found = f"more than {self._count - 1} registers with {self._field_count - fields} fields"
            self.findings.fault(place, "too large a map", found, f"{MAX_REGISTERS} registers, {MAX_FIELDS} fields")
            raise TooMany


def _union(accesses: Iterable[Access]) -> Access:
    """The directions that at least one field allows."""
    found = set(accesses)
    reads, writes = any(a.readable for a in found), any(a.writable for a in found)
    if len(found) == 1:
        return found.pop()
    return Access.RW if reads and writes else Access.RO if reads else Access.WO if writes else Access.NONE
