"""Memories of a contract: ranges of bytes of which any part is a register of its own, `NAME[offset:length]`.

The registers of a contract with memories answer for such names too, although only the declared ones are listed.
"""

from __future__ import annotations

import re
from collections.abc import Iterator, Mapping
from dataclasses import replace
from typing import Final

from hwtool_contracts.model import (
    BusAccess,
    BusyRetry,
    ByteOrder,
    Encoding,
    Memory,
    Opcode,
    Quantity,
    Register,
    Space,
)

SLICE: Final = re.compile(r"(?P<name>[^\[\]]+)\[(?P<offset>0[xX][0-9a-fA-F]+|\d+):(?P<length>0[xX][0-9a-fA-F]+|\d+)\]")
MAX_SLICE_BYTES: Final = 4096
BYTES: Final = Quantity(Encoding.BYTES)


def slice_of(memory: Memory, offset: int, length: int, block_bytes: int = 0) -> Register | None:
    """The register of a part of a memory; None if it does not lie in it, or is longer than one request may be.

    `block_bytes`: where the address changes from block to block, one request stays in one; 0: it does not.

    A device that is writing does not acknowledge: then the next page waits, and so does the read-back. One that shows
    it in a register is not accessed meanwhile, and a request stays in one page.
    """
    if not 1 <= length <= MAX_SLICE_BYTES or offset + length > memory.size_bytes:
        return None
    first = memory.offset + offset
    if block_bytes and first // block_bytes != (first + length - 1) // block_bytes:
        return None
    read, write = memory.read, memory.write
    if memory.busy is not None:
        page = memory.page_bytes
        if memory.access.writable and page and first // page != (first + length - 1) // page:
            return None
        idle = f"{memory.busy} = 0"
        read = replace(read, gate=idle)
        rest_ms = memory.write_cycle_ms + 1 if memory.write_cycle_ms else None  # idle at the first look at it
        write = replace(write, gate=idle, delay_after_ms=rest_ms)
    elif memory.write_cycle_ms:
        attempts = memory.write_cycle_ms + 5  # one a millisecond, and a few more
        write = replace(write, busy_retry=BusyRetry(attempts, 1), delay_after_ms=memory.write_cycle_ms)
    return Register(
        name=f"{memory.name}[{offset}:{length}]",
        offset=memory.offset + offset,
        width_bits=8 * length,
        access=memory.access,
        read=read,
        write=write,
        fields={},
        reset=None,
        volatile=False,
        persistence=memory.persistence,
        owner=memory.owner,
        sensitive=False,
        bank=None,
        space=Space.MEMORY,
        byte_order=ByteOrder.BIG,
        word_order=ByteOrder.BIG,
        values={},
        quantity=BYTES,
        page_bytes=memory.page_bytes,
        opcode=None if memory.read_code is None else Opcode(1),
        read_code=memory.read_code,
    )


def is_range(register: Register) -> bool:
    """Whether a register is a range of a memory: several bytes, of which a write that is cut off takes some."""
    return register.quantity is BYTES


class WithMemories(Mapping[str, Register]):
    """Declared registers, and on asking any part of a memory."""

    def __init__(self, declared: Mapping[str, Register], memories: Mapping[str, Memory], block_bytes: int = 0) -> None:
        self.declared = declared
        self.memories = memories
        self.block_bytes = block_bytes

    def __len__(self) -> int:
        return len(self.declared)

    def __iter__(self) -> Iterator[str]:
        return iter(self.declared)

    def __contains__(self, name: object) -> bool:
        return isinstance(name, str) and self.get(name) is not None

    def __getitem__(self, name: str) -> Register:
        found = self.declared.get(name)
        if found is None:
            found = self._slice(name)
        if found is None:
            raise KeyError(name)
        return found

    def _slice(self, name: str) -> Register | None:
        match = SLICE.fullmatch(name)
        memory = None if match is None else self.memories.get(match["name"])
        if match is None or memory is None:
            return None
        return slice_of(memory, int(match["offset"], 0), int(match["length"], 0), self.block_bytes)


def with_memories(
    registers: Mapping[str, Register], memories: Mapping[str, Memory], access: BusAccess
) -> Mapping[str, Register]:
    """Registers that answer for parts of memories too, where there are memories."""
    if not memories:
        return registers
    shared = access.i2c is not None and access.i2c.offset_bits_in_address
    return WithMemories(registers, memories, 1 << 8 * access.offset_bytes if shared else 0)
