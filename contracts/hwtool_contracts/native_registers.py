"""Registers and fields of the native format: one table becomes one register, or the registers of an array.

The same reader makes a register from nothing (a contract), and corrects one that exists (an overlay): then every key
that is not stated keeps the value it has. A field whose effect was its register's own follows the register's new one.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, replace
from types import MappingProxyType
from typing import Any, Final, Literal, cast

from hwtool_contracts.effects import ReadEffect, WriteEffect
from hwtool_contracts.model import (
    UNKNOWN_READ,
    UNKNOWN_WRITE,
    Access,
    Alias,
    ByteOrder,
    Field,
    Group,
    Opcode,
    Owner,
    Persistence,
    Phrase,
    Quantity,
    ReadSpec,
    Register,
    Space,
    WriteSpec,
)
from hwtool_contracts.native_access import AccessFacts
from hwtool_contracts.native_specs import quantity, read_spec, write_spec
from hwtool_contracts.toml_reader import Table

MAX_WIDTH_BITS: Final = 64
MAX_REGISTERS: Final = 100_000
MAX_TEXT_BITS: Final = 8 * 256
ACTING: Final = ("set_at", "clear_at", "toggle_at")
TOP_OFFSET: Final = (1 << 64) - 1
ACCESS_BITS: Final = (8, 16, 32, 64)


@dataclass(slots=True)
class Defaults:
    """What registers inherit from `[defaults]` and the head of the file."""

    read: ReadSpec = UNKNOWN_READ
    write: WriteSpec = UNKNOWN_WRITE
    width_bits: int | None = None
    volatile: bool = False
    volatile_unsaid: bool = False
    owner: Owner = Owner.EXCLUSIVE
    persistence: Persistence = Persistence.UNTIL_RESET


def read_defaults(top: Table) -> Defaults:
    """The `[defaults]` of a file, and its `owner`."""
    found = Defaults(owner=top.choice("owner", Owner) or Owner.EXCLUSIVE)
    table = top.table("defaults")
    if table is None:
        return found
    found.width_bits = table.integer("width_bits", low=1, high=MAX_WIDTH_BITS)
    found.volatile, found.volatile_unsaid = volatility(table, (False, False))
    found.owner = table.choice("owner", Owner) or found.owner
    found.persistence = table.choice("persistence", Persistence) or found.persistence
    found.read = read_spec(table, UNKNOWN_READ)
    found.write = write_spec(table, UNKNOWN_WRITE, MAX_WIDTH_BITS)
    for key, spec in (("read", found.read), ("write", found.write)):
        if key in table and spec.provenance.source is None:
            table.fault(key, "a default without a source is silence", None, "source = document and section")
    table.done()
    return found


def volatility(table: Table, inherited: tuple[bool, bool]) -> tuple[bool, bool]:
    """Whether hardware changes it, and whether that is only supposed since nobody has said (`"unknown"`)."""
    if table.data.get("volatile") == "unknown":
        table.raw("volatile")
        return True, True
    stated = table.flag("volatile")
    return inherited if stated is None else (stated, False)


def stride_cells(stride_bytes: int, modbus: bool, table: Table) -> int:
    """The distance between elements as the chip counts: bytes, in Modbus spaces registers."""
    if modbus and stride_bytes % 2:
        table.fault("stride_bytes", "a Modbus register has 2 bytes", stride_bytes, "an even number")
    return stride_bytes // 2 if modbus else stride_bytes


def array_of(table: Table) -> tuple[int | None, int]:
    """Count and stride in bytes of an array; None and 0 where it is none."""
    count = table.integer("count", low=1, high=MAX_REGISTERS)
    stride = table.integer("stride_bytes", low=0)
    if (count is None) != (stride is None):
        table.fault("count", "an array needs count and stride_bytes", None, "both of them")
        return None, 0
    return count, stride or 0


class RegisterReader:
    """Reads register tables with the defaults and the access facts of one file."""

    def __init__(
        self, facts: AccessFacts, defaults: Defaults, offsets: Mapping[str, int] = MappingProxyType({})
    ) -> None:
        """`offsets`: of registers that are there already and may be named where an offset is wanted.

        `blocks` is filled with a group for each array that is transferred as a block.
        """
        self.facts = facts
        self.defaults = defaults
        self.offsets = offsets
        self.blocks: dict[str, Group] = {}

    def read(self, name: str, table: Table, at: int, prefix: str = "") -> list[Register]:
        """The registers that a table describes, at offsets counted from `at`."""
        space = table.choice("space", Space) or Space.MEMORY
        phrase = _phrase(table)
        if phrase is not None:
            space = Space.LINE
        elif space in (Space.LINE, Space.COMMAND):
            wanted = "query and set" if space is Space.LINE else "a [commands.NAME] table"
            table.fault("space", "not a space that is named", space, wanted)
        modbus = space.modbus
        width = (
            table.integer(
                "width_bits",
                low=1,
                high=MAX_TEXT_BITS if phrase is not None or space.whole else MAX_WIDTH_BITS,
                required=space is Space.BLOCK,
            )
            or (None if space.of_bits else self.defaults.width_bits)
            or {Space.MEMORY: 8, Space.LINE: 32}.get(space, 1 if space.of_bits else 16)
        )
        if space.of_words and width % 16:
            table.fault("width_bits", "a Modbus register has 16 bits", width, "a multiple of 16")
        offset = table.integer("offset", low=0, required=phrase is None)
        where = at + (offset or 0) - (self.facts.modbus_base if space.numbered else 0)
        if where < 0:
            table.fault("offset", "below the base of the numbering", offset, f"at least {self.facts.modbus_base}")
        access = table.choice("access", Access, required=True) or Access.NONE
        i2c = self.facts.access.i2c
        blank = Register(
            name=prefix + name,
            offset=where,
            width_bits=width,
            access=access,
            read=self.defaults.read,
            write=self.defaults.write,
            fields={},
            reset=None,
            volatile=self.defaults.volatile,
            persistence=self.defaults.persistence,
            owner=self.defaults.owner,
            sensitive=False,
            bank=None,
            space=space,
            byte_order=ByteOrder.BIG if space.own_order else self.facts.byte_order,
            word_order=self.facts.word_order,
            values={},
            quantity=Quantity(),
            volatile_unsaid=self.defaults.volatile_unsaid,
            crc=None if i2c is None or space is not Space.MEMORY else i2c.crc,
            phrase=phrase,
        )
        register = self._stated(table, blank)
        if register.aliases:
            if space is not Space.MEMORY:
                table.fault("also_at", "only where offsets are bytes", space, "the key left out")
            # they are counted from where the register's own offset is counted from
            register = replace(moved(register, at), offset=where)
        count, stride = array_of(table)
        block = table.text("transfer")
        if block is not None and (block != "block" or count is None or count < 2):
            table.fault("transfer", "of an array of several elements", repr(block), '"block", with count')
            block = None
        table.done()
        if count is None:
            return [register]
        if phrase is not None:
            table.fault("count", "a line has no offset to count from", count, "the key left out")
        if space.whole:
            table.fault("count", f"each {space} is read by itself", count, "the key left out")
        step = stride if space.of_bits else stride_cells(stride, modbus, table)
        elements = [moved(replace(register, name=f"{prefix}{name}[{i}]"), i * step) for i in range(count)]
        if block is not None:
            self.blocks[prefix + name] = Group(prefix + name, tuple(e.name for e in elements), "one")
        return elements

    def command(
        self, name: str, table: Table, *, code: int, width_bits: int, access: Access, opcode: Opcode
    ) -> Register:
        """The register of a command."""
        i2c = self.facts.access.i2c
        crc = None if i2c is None or not width_bits else i2c.crc
        if crc is not None and (width_bits // 8) % crc.word_bytes:
            table.fault("read_bytes", "CRCs are not counted", width_bits // 8, f"a multiple of {crc.word_bytes}")
            crc = None
        blank = Register(
            name=name,
            offset=code,
            width_bits=width_bits,
            access=access,
            read=UNKNOWN_READ,  # a default speaks of registers
            write=UNKNOWN_WRITE,
            fields={},
            reset=None,
            volatile=True,
            persistence=Persistence.UNTIL_RESET,
            owner=self.defaults.owner,
            sensitive=False,
            bank=None,
            space=Space.COMMAND,
            byte_order=self.facts.byte_order,
            word_order=ByteOrder.BIG,
            values={},
            quantity=Quantity(),
            crc=crc,
            opcode=opcode,
        )
        register = self._stated(table, blank)
        table.done()
        return register

    def correct(self, table: Table, register: Register) -> Register:
        """The register with what a table of an overlay says; place, space and width cannot be changed."""
        for key in ("offset", "width_bits", "space", "count", "stride_bytes"):
            if key in table:
                table.fault(key, "an overlay cannot move or resize a register", table.raw(key), "the key left out")
        access = table.choice("access", Access) or register.access
        corrected = self._stated(table, replace(register, access=access))
        table.done()
        return corrected

    def _stated(self, table: Table, base: Register) -> Register:
        """What the table says, else what `base` has."""
        top_value = base.mask
        _refuse_directions(table, base.access)
        volatile, unsaid = volatility(table, (base.volatile, base.volatile_unsaid))
        made = replace(
            base,
            read=read_spec(table, base.read) if base.access.readable else UNKNOWN_READ,
            write=write_spec(table, base.write, base.width_bits, base.quantity)
            if base.access.writable
            else UNKNOWN_WRITE,
            reset=_or(table.integer("reset", low=0, high=top_value), base.reset),
            reset_mask=_or(table.integer("reset_mask", low=0, high=top_value), base.reset_mask),
            volatile=volatile,
            volatile_unsaid=unsaid,
            persistence=table.choice("persistence", Persistence) or base.persistence,
            owner=table.choice("owner", Owner) or base.owner,
            sensitive=bool(table.flag("sensitive", base.sensitive)),
            access_bits=_access_bits(table) or base.access_bits,
            confidential=bool(table.flag("confidential", base.confidential)),
            bank=table.text("bank") or base.bank,
            byte_order=table.choice("byte_order", ByteOrder) or base.byte_order,
            word_order=table.choice("word_order", ByteOrder) or base.word_order,
            values=table.named_integers("values", top_value) or base.values,
            quantity=quantity(table, base.width_bits, base.quantity),
            description=table.text("description") or base.description,
            also_at=table.integers("also_at", 0, TOP_OFFSET) or base.also_at,
            set_at=self._alias(table, "set_at") or base.set_at,
            clear_at=self._alias(table, "clear_at") or base.clear_at,
            toggle_at=self._alias(table, "toggle_at") or base.toggle_at,
            write_mask=_write_mask(table, base),
            may_block=bool(table.flag("may_block", base.may_block)),
            erratum=table.text("erratum") or base.erratum,
            verified=table.text("verified") or base.verified,
        )
        stated = self.facts.order_stated or made.space.own_order or "byte_order" in table
        if made.width_bits > 8 and not stated:
            rule = f"nobody says in which order its {made.size_bytes} bytes come"
            table.fault("byte_order", rule, None, "big or little, here or in [access]")
        whole = replace(made, fields=self._fields(table, made, base))
        # what is shown to some callers only must not stand in records that others read
        return replace(whole, sensitive=True) if whole.is_confidential else whole

    def _alias(self, table: Table, key: str) -> Alias | None:
        """An offset, or in an overlay the name of a register; in a table with `shift` where the bits stand higher."""
        value = table.raw(key)
        if value is None:
            return None
        shift, at = 0, value
        if isinstance(value, dict):
            inner = Table(value, f"{table.where}.{key}", table.file, table.faults)
            at, shift = inner.raw("at"), inner.integer("shift", low=0, high=MAX_WIDTH_BITS - 1) or 0
            inner.done()
        if isinstance(at, str) and at in self.offsets:
            return Alias(self.offsets[at], shift)
        if isinstance(at, bool) or not isinstance(at, int) or not 0 <= at <= TOP_OFFSET:
            wanted = "an offset" + (" or a register of the base" if self.offsets else "")
            table.fault(key, "no such place", repr(at), f"{wanted}, or {{ at, shift }}")
            return None
        return Alias(at, shift)

    def _fields(self, owner: Table, register: Register, base: Register) -> Mapping[str, Field]:
        fields: dict[str, Field] = {name: _follow(field, register, base) for name, field in base.fields.items()}
        for name, table in owner.tables("fields"):
            fields[name] = self._field(name, table, register, fields.get(name))
            table.done()
        self._check_shared(owner, fields)
        return fields

    def _field(self, name: str, table: Table, register: Register, base: Field | None) -> Field:
        if base is None:
            pieces = _parts(table, register.width_bits)
            if pieces:
                msb, lsb = max(high for high, _ in pieces), min(low for _, low in pieces)
            else:
                msb, lsb = _bits(table, register.width_bits)
            access = table.choice("access", Access) or register.access
            base = Field(
                name=name,
                msb=msb,
                lsb=lsb,
                access=access,
                read=register.read,
                write=part_of_whole(register.write),
                reset=None,
                volatile=register.volatile,
                values={},
                quantity=Quantity(),
                volatile_unsaid=register.volatile_unsaid,
                parts=pieces,
            )
        else:
            for key in ("bits", "parts"):
                if key in table:
                    table.fault(key, "an overlay cannot move a field", table.raw(key), "the key left out")
            base = replace(base, access=table.choice("access", Access) or base.access)
        _refuse_directions(table, base.access)
        width = base.width_bits
        reserved = table.text("reserved")
        if reserved not in (None, "keep", "zero", "one"):
            table.fault("reserved", "not in the vocabulary", repr(reserved), "keep, zero or one")
        volatile, unsaid = volatility(table, (base.volatile, base.volatile_unsaid))
        return replace(
            base,
            read=read_spec(table, base.read) if base.access.readable else UNKNOWN_READ,
            write=write_spec(table, base.write, width, base.quantity) if base.access.writable else UNKNOWN_WRITE,
            reset=_or(table.integer("reset", low=0, high=(1 << width) - 1), base.reset),
            volatile=volatile,
            volatile_unsaid=unsaid,
            values=table.named_integers("values", (1 << width) - 1) or base.values,
            quantity=quantity(table, width, base.quantity),
            reserved=cast(Literal["keep", "zero", "one"] | None, reserved) or base.reserved,
            description=table.text("description") or base.description,
            alternate=bool(table.flag("alternate", base.alternate)),
            erratum=table.text("erratum") or base.erratum,
            confidential=bool(table.flag("confidential", base.confidential)),
        )

    def _check_shared(self, owner: Table, fields: Mapping[str, Field]) -> None:
        """Fields that share bits in one direction must both say that they are alternates."""
        reported = set()
        for direction in ("readable", "writable"):
            taken = 0
            for field in fields.values():
                if not getattr(field.access, direction) or field.alternate:
                    continue
                if field.mask & taken and field.name not in reported:
                    wanted = "bits of its own, or alternate = true on all that share them"
                    owner.fault(
                        f"fields.{field.name}.bits", "overlaps another field", f"{field.msb}:{field.lsb}", wanted
                    )
                    reported.add(field.name)
                taken |= field.mask


def moved(register: Register, by: int) -> Register:
    """The register with its offset and those of its aliases moved by some cells."""
    if not by:
        return register
    acting = [
        None if alias is None else Alias(alias.at + by, alias.shift)
        for alias in (register.set_at, register.clear_at, register.toggle_at)
    ]
    return replace(
        register,
        offset=register.offset + by,
        also_at=tuple(at + by for at in register.also_at),
        set_at=acting[0],
        clear_at=acting[1],
        toggle_at=acting[2],
    )


def cluster_aliases(table: Table) -> Mapping[str, int] | None:
    """The `aliases` of a cluster: how far from its registers others act on the same storage; None if there are none."""
    inner = table.table("aliases")
    if inner is None:
        return None
    found = {key: far for key in ACTING if (far := inner.integer(key, low=1, high=TOP_OFFSET)) is not None}
    inner.done()
    if not found:
        inner.fault("", "no alias", None, "one of " + ", ".join(ACTING))
    return found


def with_aliases(register: Register, aliases: Mapping[str, int]) -> Register:
    """The register with the aliases of its cluster: for what is stored, and where it has none of its own."""
    effects = {f.write.effect for f in register.fields.values() if f.access.writable} or {register.write.effect}
    if register.space is not Space.MEMORY or effects != {WriteEffect.STORE} or not register.access.writable:
        return register
    made = {key: Alias(register.offset + far) for key, far in aliases.items()}
    return replace(
        register,
        set_at=register.set_at or made.get("set_at"),
        clear_at=register.clear_at or made.get("clear_at"),
        toggle_at=register.toggle_at or made.get("toggle_at"),
    )


def part_of_whole(write: WriteSpec) -> WriteSpec:
    """What a field inherits of its register's write: what is said of the whole value is not said of a part of it."""
    if write.limits is None and write.mask is None and not write.values:
        return write
    return replace(write, limits=None, mask=None, values={})


def _follow(field: Field, register: Register, base: Register) -> Field:
    """A field of an existing register after a correction of the register: what it had from there, it has anew."""
    read, write, volatile, unsaid = field.read, field.write, field.volatile, field.volatile_unsaid
    if field.access.readable and (read == base.read or _says_what(read, base.read, register.read)):
        read = register.read
    plain = part_of_whole(register.write)
    if field.access.writable and (write == part_of_whole(base.write) or _says_what_it_does(write, base.write, plain)):
        write = plain
    if (volatile, unsaid) == (base.volatile, base.volatile_unsaid):
        volatile, unsaid = register.volatile, register.volatile_unsaid
    return replace(field, read=read, write=write, volatile=volatile, volatile_unsaid=unsaid)


def _says_what(field: ReadSpec, base: ReadSpec, register: ReadSpec) -> bool:
    """Whether a correction of the register says what a field's vague word stands for; never that it is harmless."""
    vague = {ReadEffect.MODIFY, ReadEffect.MODIFY_EXTERNAL, ReadEffect.UNKNOWN}
    return register != base and field.effects <= vague and register.effects != {ReadEffect.NONE}


def _says_what_it_does(field: WriteSpec, base: WriteSpec, register: WriteSpec) -> bool:
    """As `_says_what`, for writes."""
    vague = (WriteEffect.MODIFY, WriteEffect.UNKNOWN)
    return register != base and field.effect in vague and register.effect is not WriteEffect.STORE


def _access_bits(table: Table) -> int | None:
    """The width of the only accesses that the bus lets through to a register."""
    bits = table.integer("access_bits")
    if bits is not None and bits not in ACCESS_BITS:
        table.fault("access_bits", "not a width of a bus access", bits, ", ".join(map(str, ACCESS_BITS)))
        return None
    return bits


def _or(stated: int | None, inherited: int | None) -> int | None:
    return inherited if stated is None else stated


def _refuse_directions(table: Table, access: Access) -> None:
    """A table about a direction that the access forbids would be parsed and never used."""
    for key, possible in (("read", access.readable), ("write", access.writable)):
        if key in table and not possible:
            table.fault(key, f"access {access} has no {key}", None, f"no {key} table, or another access")
            table.raw(key)


def _phrase(table: Table) -> Phrase | None:
    """How a line protocol asks for a value and sets it; None for a register of another kind."""
    query, template = table.text("query"), table.text("set")
    if query is None and template is None:
        return None
    for key, text in (("query", query), ("set", template)):
        if text is not None and (not text.isascii() or not text.isprintable()):
            table.fault(key, "not a line of text", repr(text), "printable ASCII, the terminator left out")
    if template is not None and template.count("{value}") > 1:
        table.fault("set", "the value stands once", template, "one {value}, or none for a line without a value")
    return Phrase(query, template)


def _parts(table: Table, width_bits: int) -> tuple[tuple[int, int], ...]:
    """The bit ranges of a value that is spread over its register, most significant first."""
    if "parts" not in table:
        return ()
    given = table.raw("parts")
    if "bits" in table:
        table.fault("bits", "bits and parts exclude each other", table.raw("bits"), "one of them")
    found = []
    for index, part in enumerate(given if isinstance(given, list) else [None]):
        inner = Table({"bits": part}, f"{table.where}.parts[{index}]", table.file, table.faults)
        found.append(_bits(inner, width_bits))
    for index, (high, low) in enumerate(found):
        if any(above >= low and below <= high for above, below in found[:index]):
            table.fault("parts", "overlap each other", f"{high}:{low}", "bits that no other part has")
    return tuple(found)


def _write_mask(table: Table, base: Register) -> int:
    """The bits of `write_mask_bits`; they say which of the bits below them a write changes."""
    if table.raw("write_mask_bits") is None:
        return base.write_mask
    msb, lsb = _bits(table, base.width_bits, "write_mask_bits")
    if 2 * (msb - lsb + 1) != base.width_bits or msb != base.width_bits - 1:
        wanted = f'the upper half, "{base.width_bits - 1}:{base.width_bits // 2}"'
        table.fault("write_mask_bits", "a mask has a bit for each bit below it", f"{msb}:{lsb}", wanted)
        return 0
    return ((1 << (msb - lsb + 1)) - 1) << lsb


def _bits(table: Table, width_bits: int, key: str = "bits") -> tuple[int, int]:
    value: Any = table.raw(key)
    wanted = f'a bit number or "msb:lsb" from 0 to {width_bits - 1}'
    msb, lsb = -1, -1
    if isinstance(value, int) and not isinstance(value, bool):
        msb = lsb = value
    elif isinstance(value, str):
        high, colon, low = value.partition(":")
        if colon and high.strip().isdecimal() and low.strip().isdecimal():
            msb, lsb = int(high), int(low)
    if not 0 <= lsb <= msb < width_bits:
        table.fault(key, "not a bit range of the register", repr(value), wanted)
        return 0, 0
    return msb, lsb
