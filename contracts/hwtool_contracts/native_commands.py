"""Commands, memories and parameters of the native format.

A command is a register of the space `command` whose offset is its code: it is read if it answers, and written if not.
What is written after the code (an address, data) is its value, what is answered is its value too; CRCs are not counted.
"""

from __future__ import annotations

from typing import Final

from hwtool_contracts.model import (
    Access,
    Memory,
    Opcode,
    Owner,
    Persistence,
    Register,
)
from hwtool_contracts.native_access import AccessFacts
from hwtool_contracts.native_registers import MAX_WIDTH_BITS, RegisterReader
from hwtool_contracts.native_specs import read_spec, write_spec
from hwtool_contracts.toml_reader import Table

MEMORY_NOT_YET: Final[frozenset[str]] = frozenset({"bank"})
MAX_PAYLOAD_BYTES: Final = MAX_WIDTH_BITS // 8


def commands(top: Table, reader: RegisterReader) -> list[Register]:
    """The `[commands.N]` of a file, each as a register."""
    return [_command(name, table, reader) for name, table in top.tables("commands")]


def _command(name: str, table: Table, reader: RegisterReader) -> Register:
    code_bytes = table.integer("code_bytes", low=0, high=4)
    if code_bytes is None:
        code_bytes = reader.facts.access.offset_bytes or 1
    code = table.integer("code", low=0, high=(1 << 8 * code_bytes) - 1, required=code_bytes > 0) or 0
    address_bytes = table.integer("offset_bytes", low=0, high=4) or 0
    dummy_bytes = table.integer("dummy_bytes", low=0, high=8) or 0
    write_bytes = (table.integer("write_bytes", low=0, high=MAX_PAYLOAD_BYTES) or 0) + address_bytes
    read_bytes = table.integer("read_bytes", low=0, high=MAX_PAYLOAD_BYTES) or 0
    if read_bytes and write_bytes:
        wanted = "a command that answers, or one that is given something; a [memories.N] has both"
        table.fault("read_bytes", "a command has one value", f"{write_bytes} written, {read_bytes} read", wanted)
    duplex = bool(table.flag("duplex", False))
    if duplex and (not read_bytes or reader.facts.access.spi is None):
        table.fault("duplex", "an answer while the code goes out", True, "[access.spi], and read_bytes")
    if write_bytes > MAX_PAYLOAD_BYTES:
        table.fault("write_bytes", "too long", write_bytes, f"at most {MAX_PAYLOAD_BYTES} bytes with the address")
        write_bytes = MAX_PAYLOAD_BYTES
    return reader.command(
        name,
        table,
        code=code,
        width_bits=8 * (read_bytes or write_bytes),
        access=Access.RO if read_bytes else Access.WO,
        opcode=Opcode(code_bytes, dummy_bytes, duplex),
    )


def memories(top: Table, facts: AccessFacts, reader: RegisterReader) -> dict[str, Memory]:
    """The `[memories.N]` of a file."""
    found = {}
    for name, table in top.tables("memories", MEMORY_NOT_YET):
        access = table.choice("access", Access) or Access.RW
        busy = table.text("busy") or "nack"
        size = table.integer("size_bytes", low=1, high=1 << 40, required=True) or 1
        page = table.integer("page_bytes", low=1, high=4096) or 0
        if page and size % page:
            table.fault("page_bytes", "does not divide the memory", page, f"a divisor of {size}")
        if access.readable is False and "read" in table:
            table.fault("read", f"access {access} has no read", None, "no read table, or another access")
        found[name] = Memory(
            name=name,
            offset=table.integer("offset", low=0) or 0,
            size_bytes=size,
            page_bytes=page,
            write_cycle_ms=table.integer("write_cycle_ms", low=1, high=1000) or 0,
            access=access,
            read=read_spec(table, reader.defaults.read),
            write=write_spec(table, reader.defaults.write, MAX_WIDTH_BITS),
            persistence=table.choice("persistence", Persistence) or Persistence.NONVOLATILE,
            read_code=table.integer("read_code", low=0, high=0xFF),
            busy=None if busy == "nack" else busy,
            owner=table.choice("owner", Owner) or reader.defaults.owner,
        )
        if found[name].busy is not None and (found[name].read.gate or found[name].write.gate):
            table.fault("busy", "a gate is there already", busy, "busy, or gates")
        if found[name].read_code is not None and access.writable:
            wanted = 'access = "ro"; programming it takes commands of its own'
            table.fault("access", "a memory behind opcodes is only read", access, wanted)
        i2c = facts.access.i2c
        limit = 1 << (8 * facts.access.offset_bytes + (0 if i2c is None else i2c.offset_bits_in_address))
        if found[name].offset + size > limit:
            table.fault("size_bytes", "does not fit offset_bytes", found[name].offset + size, f"at most {limit} bytes")
        if "[" in name or "." in name:
            table.fault("", "not a name of a memory", name, "a name without brackets and dots")
        table.done()
    return found
