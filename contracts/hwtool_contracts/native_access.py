"""The `[access]` table of a native contract: how the chip is reached, per bus."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Final, Literal, cast

from hwtool_contracts.model import (
    BusAccess,
    ByteOrder,
    Crc,
    I2cAccess,
    LineAccess,
    MappedAccess,
    MdioAccess,
    ModbusAccess,
    SpiAccess,
)
from hwtool_contracts.toml_reader import Table

BUSES: Final = ("i2c", "spi", "mdio", "modbus", "line", "mapped")
WORD_BITS: Final = (8, 16, 32)
FUNCTIONS: Final = frozenset({1, 2, 3, 4, 5, 6, 15, 16, 22, 23, 24, 43})


@dataclass(frozen=True, slots=True)
class AccessFacts:
    """The access itself, and what registers inherit from it.

    Attributes:
        byte_order: of registers outside Modbus spaces.
        order_stated: whether somebody has said so: else a register longer than a byte must.
        word_order: of Modbus values longer than a register.
        modbus_base: number of the first register in the manual's counting.
    """

    access: BusAccess
    byte_order: ByteOrder = ByteOrder.BIG
    word_order: ByteOrder = ByteOrder.BIG
    modbus_base: int = 0
    order_stated: bool = True


def access_facts(top: Table) -> AccessFacts:
    """Read `[access]` of a contract."""
    table = top.table("access")
    if table is None:
        top.fault("access", "table is missing", None, "[access] with offset_bytes and a bus table")
        return AccessFacts(BusAccess(1, None, None))
    mapped = table.table("mapped")
    offset_bytes = table.integer("offset_bytes", low=0, high=8 if mapped is not None else 4)
    byte_order = table.choice("byte_order", ByteOrder) or (ByteOrder.BIG if mapped is None else ByteOrder.LITTLE)
    i2c, modbus = table.table("i2c"), table.table("modbus")
    spi, line, mdio = table.table("spi"), table.table("line"), table.table("mdio")
    if all(bus is None for bus in (i2c, modbus, mapped, spi, line, mdio)):
        table.fault("", "no bus", None, "one of " + ", ".join(f"[access.{bus}]" for bus in BUSES))
    if mapped is not None:
        mapped.done()
        if any(bus is not None for bus in (i2c, modbus, spi, line, mdio)):
            table.fault("mapped", "memory-mapped, and on a bus with addresses", None, "one or the other")
    word_order, base = ByteOrder.BIG, 0
    modbus_access = None
    if modbus is not None:
        modbus_access, word_order, base = _modbus(modbus)
    access = BusAccess(
        offset_bytes if offset_bytes is not None else 1 if mapped is None else 4,
        None if i2c is None else _i2c(i2c),
        modbus_access,
        None if mapped is None else MappedAccess(byte_order),
        None if spi is None else _spi(spi, offset_bytes if offset_bytes is not None else 1),
        None if line is None else _line(line),
        None if mdio is None else _mdio(mdio),
    )
    table.done()
    ordered = "byte_order" in table or any(bus is not None for bus in (mapped, mdio, line))  # these have an order
    return AccessFacts(access, byte_order, word_order, base, ordered)


def _spi(table: Table, offset_bytes: int) -> SpiAccess:
    widest = (1 << 8 * max(offset_bytes, 1)) - 1
    word_bits = table.integer("word_bits") or 8
    if word_bits not in WORD_BITS:
        table.fault("word_bits", "not a word of SPI here", word_bits, "8, 16 or 32")
    access = SpiAccess(
        table.integer("read_mask", low=0, high=widest) or 0,
        table.integer("increment_mask", low=0, high=widest) or 0,
        table.integer("mode", low=0, high=3) or 0,
        table.integer("max_hz", low=1, high=1_000_000_000),
        word_bits,
    )
    if access.read_mask & access.increment_mask:
        both = hex(access.read_mask & access.increment_mask)
        table.fault("increment_mask", "a bit of read_mask too", both, "bits of its own")
    table.done()
    return access


def _mdio(table: Table) -> MdioAccess:
    access = MdioAccess(table.integers("addresses", 0, 31))
    table.done()
    return access


def _line(table: Table) -> LineAccess:
    value = table.raw("terminator")
    if value is not None and (not isinstance(value, str) or not value.isascii() or not 1 <= len(value) <= 2):
        table.fault("terminator", "not what ends a line", repr(value), 'one or two characters, as "\\n"')
        value = None
    table.done()
    return LineAccess(value or "\n")


def read_crc(table: Table) -> Crc | None:
    """The `crc` of a bus: polynomial, start value, and the bytes that one covers."""
    inner = table.table("crc")
    if inner is None:
        return None
    if inner.integer("width_bits") not in (None, 8):
        inner.fault("width_bits", "not supported by this version", inner.data["width_bits"], "8")
    poly = inner.integer("poly", low=1, high=0xFF, required=True)
    init = inner.integer("init", low=0, high=0xFF)
    word_bytes = inner.integer("word_bytes", low=1, high=32, required=True)
    inner.done()
    return Crc(poly or 1, init or 0, word_bytes or 1)


def _i2c(table: Table) -> I2cAccess:
    addresses = table.integers("addresses", 0x08, 0x77)
    increment = table.text("auto_increment") or "none"
    if increment not in ("read", "write", "both", "none"):
        table.fault("auto_increment", "not in the vocabulary", repr(increment), "read, write, both or none")
    framing = table.text("read") or "restart"
    if framing not in ("restart", "stop"):
        table.fault("read", "not in the vocabulary", repr(framing), "restart or stop")
    access = I2cAccess(
        addresses,
        cast(Literal["read", "write", "both", "none"], increment),
        cast(Literal["restart", "stop"], framing),
        table.integer("increment_mask", low=1, high=0xFF) or 0,
        read_crc(table),
        table.integer("offset_bits_in_address", low=1, high=3) or 0,
        bool(table.flag("pec", False)),
    )
    table.done()
    shared = (1 << access.offset_bits_in_address) - 1
    crooked = [hex(a) for a in addresses if a & shared]
    if crooked:
        wanted = f"the lowest of the {shared + 1} addresses that the device answers at"
        table.fault("addresses", "the low bits are bits of the offset", ", ".join(crooked), wanted)
    return access


def _modbus(table: Table) -> tuple[ModbusAccess, ByteOrder, int]:
    base = table.integer("base", low=0, high=1, required=True)
    functions = table.integers("functions", 1, 0x7F)
    unsupported = sorted(set(functions) - FUNCTIONS)
    if unsupported:
        some = ", ".join(map(str, sorted(FUNCTIONS)))
        table.fault("functions", "function not supported by this version", unsupported, f"some of {some}")
    word_order = table.choice("word_order", ByteOrder) or ByteOrder.BIG
    access = ModbusAccess(
        frozenset(functions),
        table.integer("max_registers", low=1, high=125) or 125,
        bool(table.flag("atomic_multi", False)),
        base or 0,
    )
    table.done()
    return access, word_order, base or 0
