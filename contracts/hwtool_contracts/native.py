"""The loader of the native format: one TOML file becomes one `Contract`, or all of its faults at once.

The file is read top-down with `Table`; clusters and arrays are expanded; then the references between registers are
checked. A key of the format that this version does not support is refused by name: a contract that is half
understood is worse than none.

Source: docs/contracts.md, the table of keys.
"""

from __future__ import annotations

import hashlib
import json
from dataclasses import replace
from pathlib import Path
from typing import Any, Final, Literal, cast

from hwtool_contracts.cross_check import check_references
from hwtool_contracts.model import (
    UNKNOWN_READ,
    UNKNOWN_WRITE,
    Access,
    Assume,
    Bank,
    BusAccess,
    ByteOrder,
    Contract,
    Field,
    Group,
    I2cAccess,
    Identity,
    ModbusAccess,
    Owner,
    Persistence,
    Register,
    Selector,
    Space,
)
from hwtool_contracts.native_specs import quantity, read_spec, write_spec
from hwtool_contracts.toml_reader import Fault, Faults, Table, parse_toml

MAX_WIDTH_BITS: Final = 64
MAX_REGISTERS: Final = 100_000

TOP_NOT_YET: Final = frozenset({"commands", "memories", "sequences", "params", "base", "base_sha256", "review"})
ACCESS_NOT_YET: Final = frozenset({"spi", "line"})
I2C_NOT_YET: Final = frozenset({"increment_mask", "pec", "crc"})
REGISTER_NOT_YET: Final = frozenset(
    {"also_at", "set_at", "clear_at", "toggle_at", "write_mask_bits", "access_bits", "transfer", "parts"}
    | {"scale_from", "exponent_from", "reset_mask", "may_block", "confidential", "erratum", "verified"}
)
FIELD_NOT_YET: Final = frozenset({"parts", "scale_from", "exponent_from", "erratum", "confidential"})
CLUSTER_NOT_YET: Final = frozenset({"aliases"})
IDENTITY_NOT_YET: Final = frozenset({"command", "serial"})


def load_contract(path: Path) -> Contract:
    """Load one contract file.

    Raises:
        Faults: the file cannot be read or breaks rules; all of them are listed.
    """
    try:
        text = path.read_text(encoding="utf-8")
    except (OSError, UnicodeDecodeError) as error:
        raise Faults([Fault(path.name, "", "", "cannot be read", str(error), "a readable UTF-8 file")]) from error
    return parse_contract(text, path.name)


def parse_contract(text: str, file: str) -> Contract:
    """Make a contract of the text of a file called `file`.

    Raises:
        Faults: as `load_contract`.
    """
    data = parse_toml(text, file)
    faults: list[Fault] = []
    contract = _Loader(Table(data, "", file, faults, TOP_NOT_YET)).contract(_digest(data))
    if not faults:
        check_references(contract, file, faults)
    if faults:
        raise Faults(faults)
    return contract


def _digest(data: dict[str, Any]) -> str:
    canonical = json.dumps(data, sort_keys=True, separators=(",", ":"), default=str)
    return "sha256:" + hashlib.sha256(canonical.encode()).hexdigest()


def _refuse_directions(table: Table, access: Access) -> None:
    """A table about a direction that the access forbids would be parsed and never used."""
    for key, possible in (("read", access.readable), ("write", access.writable)):
        if key in table and not possible:
            table.fault(key, f"access {access} has no {key}", None, f"no {key} table, or another access")


class _Loader:
    """State of one load: the defaults that registers inherit and the map being built."""

    def __init__(self, top: Table) -> None:
        self.top = top
        self.registers: dict[str, Register] = {}
        self.default_read = UNKNOWN_READ
        self.default_write = UNKNOWN_WRITE
        self.default_width: int | None = None
        self.default_volatile = False
        self.default_owner = Owner.EXCLUSIVE
        self.default_persistence = Persistence.UNTIL_RESET
        self.byte_order = ByteOrder.BIG
        self.word_order = ByteOrder.BIG
        self.modbus_base = 0

    def contract(self, digest: str) -> Contract:
        top = self.top
        if top.integer("schema", required=True) not in (1, None):
            top.fault("schema", "unknown schema", top.data["schema"], "1")
        head = {key: top.text(key, required=True) or "" for key in ("part", "vendor", "title", "source")}
        verified = top.text("verified")
        owner = top.choice("owner", Owner)
        if owner is not None:
            self.default_owner = owner
        access = self._access()
        self._defaults()
        for name, table in top.tables("registers", REGISTER_NOT_YET):
            self._register(name, table, 0)
        self._clusters()
        if not self.registers:
            top.fault("registers", "no register", None, "at least one [registers.NAME]")
        contract = Contract(
            part=head["part"],
            vendor=head["vendor"],
            title=head["title"],
            source=head["source"],
            digest=digest,
            access=access,
            registers=self.registers,
            banks=dict(self._banks()),
            groups=dict(self._groups()),
            assumes=tuple(self._assumes()),
            identity=self._identity(),
            verified=verified,
        )
        top.done()
        return contract

    def _access(self) -> BusAccess:
        table = self.top.table("access", ACCESS_NOT_YET)
        if table is None:
            self.top.fault("access", "table is missing", None, "[access] with offset_bytes and a bus table")
            return BusAccess(1, None, None)
        offset_bytes = table.integer("offset_bytes", low=1, high=4)
        self.byte_order = table.choice("byte_order", ByteOrder) or ByteOrder.BIG
        i2c, modbus = table.table("i2c", I2C_NOT_YET), table.table("modbus")
        if i2c is None and modbus is None:
            table.fault("", "no bus", None, "[access.i2c] or [access.modbus]")
        access = BusAccess(
            offset_bytes if offset_bytes is not None else 1,
            None if i2c is None else self._i2c(i2c),
            None if modbus is None else self._modbus(modbus),
        )
        table.done()
        return access

    def _i2c(self, table: Table) -> I2cAccess:
        addresses = table.integers("addresses", 0x08, 0x77)
        increment = table.text("auto_increment") or "none"
        if increment not in ("read", "write", "both", "none"):
            table.fault("auto_increment", "not in the vocabulary", repr(increment), "read, write, both or none")
        framing = table.text("read") or "restart"
        if framing not in ("restart", "stop"):
            table.fault("read", "not in the vocabulary", repr(framing), "restart or stop")
        table.done()
        return I2cAccess(
            addresses,
            cast(Literal["read", "write", "both", "none"], increment),
            cast(Literal["restart", "stop"], framing),
        )

    def _modbus(self, table: Table) -> ModbusAccess:
        base = table.integer("base", low=0, high=1, required=True)
        self.modbus_base = base or 0
        functions = table.integers("functions", 1, 0x7F)
        unsupported = sorted(set(functions) - {3, 4, 6, 16})
        if unsupported:
            table.fault("functions", "function not supported by this version", unsupported, "some of 3, 4, 6, 16")
        self.word_order = table.choice("word_order", ByteOrder) or ByteOrder.BIG
        access = ModbusAccess(
            frozenset(functions),
            table.integer("max_registers", low=1, high=125) or 125,
            bool(table.flag("atomic_multi", False)),
        )
        table.done()
        return access

    def _defaults(self) -> None:
        table = self.top.table("defaults")
        if table is None:
            return
        self.default_width = table.integer("width_bits", low=1, high=MAX_WIDTH_BITS)
        self.default_volatile = bool(table.flag("volatile", False))
        self.default_owner = table.choice("owner", Owner) or self.default_owner
        self.default_persistence = table.choice("persistence", Persistence) or self.default_persistence
        self.default_read = read_spec(table, UNKNOWN_READ)
        self.default_write = write_spec(table, UNKNOWN_WRITE, MAX_WIDTH_BITS)
        for key, spec in (("read", self.default_read), ("write", self.default_write)):
            if key in table and spec.provenance.source is None:
                table.fault(key, "a default without a source is silence", None, "source = document and section")
        table.done()

    def _register(self, name: str, table: Table, at: int, prefix: str = "") -> None:
        space = table.choice("space", Space) or Space.MEMORY
        modbus = space is not Space.MEMORY
        if space in (Space.COIL, Space.DISCRETE):
            table.fault("space", "in the format, but not supported by this version", space, "holding or input")
        width = table.integer("width_bits", low=1, high=MAX_WIDTH_BITS) or self.default_width or (16 if modbus else 8)
        if modbus and width % 16:
            table.fault("width_bits", "a Modbus register has 16 bits", width, "a multiple of 16")
        offset = table.integer("offset", low=0, required=True)
        where = at + (offset or 0) - (self.modbus_base if modbus else 0)
        if where < 0:
            table.fault("offset", "below the base of the numbering", offset, f"at least {self.modbus_base}")
        read = read_spec(table, self.default_read)
        write = write_spec(table, self.default_write, width)
        access = table.choice("access", Access, required=True) or Access.NONE
        _refuse_directions(table, access)
        volatile = bool(table.flag("volatile", self.default_volatile))
        top_value = (1 << width) - 1
        register = Register(
            name=prefix + name,
            offset=where,
            width_bits=width,
            access=access,
            read=read,
            write=write,
            fields={},
            reset=table.integer("reset", low=0, high=top_value),
            volatile=volatile,
            persistence=table.choice("persistence", Persistence) or self.default_persistence,
            owner=table.choice("owner", Owner) or self.default_owner,
            sensitive=bool(table.flag("sensitive", False)),
            bank=table.text("bank"),
            space=space,
            byte_order=table.choice("byte_order", ByteOrder) or (ByteOrder.BIG if modbus else self.byte_order),
            word_order=table.choice("word_order", ByteOrder) or self.word_order,
            values=table.named_integers("values", top_value),
            quantity=quantity(table, width),
        )
        register = replace(register, fields=self._fields(table, register))
        count = table.integer("count", low=1, high=MAX_REGISTERS)
        stride = table.integer("stride_bytes", low=1)
        if (count is None) != (stride is None):
            table.fault("count", "an array needs count and stride_bytes", None, "both of them")
        table.done()
        if count is None or stride is None:
            self._add(register, table)
            return
        step = self._step(stride, modbus, table)
        for index in range(count):
            self._add(replace(register, name=f"{prefix}{name}[{index}]", offset=where + index * step), table)

    def _step(self, stride_bytes: int, modbus: bool, table: Table) -> int:
        if modbus and stride_bytes % 2:
            table.fault("stride_bytes", "a Modbus register has 2 bytes", stride_bytes, "an even number")
        return stride_bytes // 2 if modbus else stride_bytes

    def _add(self, register: Register, table: Table) -> None:
        if register.name in self.registers:
            table.fault("", "two registers of one name", register.name, "a name of its own")
        if len(self.registers) >= MAX_REGISTERS:
            table.fault("count", "too many registers", len(self.registers), f"at most {MAX_REGISTERS}")
            return
        self.registers[register.name] = register

    def _fields(self, owner: Table, register: Register) -> dict[str, Field]:
        fields: dict[str, Field] = {}
        taken = 0
        # what the register says of its whole value is not said of a part of it
        inherited = replace(register.write, limits=None, mask=None, values={})
        for name, table in owner.tables("fields", FIELD_NOT_YET):
            msb, lsb = self._bits(table, register.width_bits)
            width = msb - lsb + 1
            reserved = table.text("reserved")
            if reserved not in (None, "keep", "zero", "one"):
                table.fault("reserved", "not in the vocabulary", repr(reserved), "keep, zero or one")
            fields[name] = field = Field(
                name=name,
                msb=msb,
                lsb=lsb,
                access=table.choice("access", Access) or register.access,
                read=read_spec(table, register.read),
                write=write_spec(table, inherited, width),
                reset=table.integer("reset", low=0, high=(1 << width) - 1),
                volatile=bool(table.flag("volatile", register.volatile)),
                values=table.named_integers("values", (1 << width) - 1),
                quantity=quantity(table, width),
                reserved=cast(Literal["keep", "zero", "one"] | None, reserved),
            )
            _refuse_directions(table, field.access)
            if field.mask & taken:
                table.fault("bits", "overlaps another field", f"{msb}:{lsb}", "bits that no other field has")
            taken |= field.mask
            table.done()
        return fields

    def _bits(self, table: Table, width_bits: int) -> tuple[int, int]:
        value = table.raw("bits")
        wanted = f'a bit number or "msb:lsb" from 0 to {width_bits - 1}'
        msb, lsb = -1, -1
        if isinstance(value, int) and not isinstance(value, bool):
            msb = lsb = value
        elif isinstance(value, str):
            high, colon, low = value.partition(":")
            if colon and high.strip().isdecimal() and low.strip().isdecimal():
                msb, lsb = int(high), int(low)
        if not 0 <= lsb <= msb < width_bits:
            table.fault("bits", "not a bit range of the register", repr(value), wanted)
            return 0, 0
        return msb, lsb

    def _clusters(self) -> None:
        for name, table in self.top.tables("clusters", CLUSTER_NOT_YET):
            offset = table.integer("offset", low=0, required=True) or 0
            count = table.integer("count", low=1, high=MAX_REGISTERS)
            stride = table.integer("stride_bytes", low=1)
            if (count is None) != (stride is None):
                table.fault("count", "an array needs count and stride_bytes", None, "both of them")
            modbus = any("space" in t.data for _, t in Table(table.data, "", "", []).tables("registers"))
            step = self._step(stride or 0, modbus, table)
            for index in range(count or 1):
                prefix = f"{name}[{index}]." if count is not None else f"{name}."
                faults_before = len(table.faults)
                for inner_name, inner in table.tables("registers", REGISTER_NOT_YET):
                    self._register(inner_name, inner, offset + index * step, prefix)
                if len(table.faults) > faults_before:
                    break  # the same faults would come again for each element
            table.done()

    def _banks(self) -> list[tuple[str, Bank]]:
        banks = []
        for name, table in self.top.tables("banks"):
            selectors = []
            for inner in table.array("select"):
                register = inner.text("register", required=True) or ""
                value, mask = inner.integer("value", low=0, required=True), inner.integer("mask", low=1)
                known = self.registers.get(register)
                full = known.mask if known else (1 << MAX_WIDTH_BITS) - 1
                selectors.append(Selector(register, value or 0, mask if mask is not None else full))
                if (value or 0) & ~selectors[-1].mask:
                    inner.fault("value", "has bits outside the mask", hex(value or 0), hex(selectors[-1].mask))
                inner.done()
            if not selectors:
                table.fault("select", "no selector", None, "at least one {register, value, mask}")
            restore = table.raw("restore") or "prior"
            if restore not in ("prior", "none"):
                table.fault("restore", "not supported by this version", repr(restore), '"prior" or "none"')
            banks.append((name, Bank(name, tuple(selectors), cast(Literal["prior", "none"], restore))))
            table.done()
        return banks

    def _groups(self) -> list[tuple[str, Group]]:
        groups = []
        for name, table in self.top.tables("groups", frozenset({"order"})):
            members = table.strings("members", required=True)
            transfer = table.text("transfer") or "each"
            if transfer not in ("one", "each"):
                table.fault("transfer", "not in the vocabulary", repr(transfer), "one or each")
            groups.append((name, Group(name, members, cast(Literal["one", "each"], transfer))))
            table.done()
        return groups

    def _assumes(self) -> list[Assume]:
        assumes = []
        for table in self.top.array("assume"):
            register, field = table.text("register", required=True), table.text("field", required=True)
            value, purpose = table.integer("value", low=0, required=True), table.text("for", required=True)
            assumes.append(Assume(register or "", field or "", value or 0, purpose or ""))
            table.done()
        return assumes

    def _identity(self) -> Identity | None:
        table = self.top.table("identity", IDENTITY_NOT_YET)
        if table is None:
            return None
        identity = Identity(table.text("register", required=True) or "", table.integer("equals", low=0))
        table.done()
        return identity
