"""Which registers stand where: the cells of an address space, and who answers in a span of them.

A cell is a byte where the chip moves its pointer or memory is mapped, one offset where the pointer stays (a 16-bit
register behind a pointer register is one cell), one 16-bit register in a Modbus space.
"""

from __future__ import annotations

from bisect import bisect_left
from collections.abc import Iterable
from typing import cast

from hwtool_contracts.model import Contract, Field, Register, Space

Place = tuple[str, int, int]


def cells(contract: Contract, register: Register) -> range:
    """The cells of its address space that the register stands in."""
    if register.space.of_words:
        return range(register.offset, register.offset + register.width_bits // 16)
    if register.space.of_bits:
        return range(register.offset, register.offset + register.width_bits)
    if register.space is not Space.MEMORY:
        return range(register.offset, register.offset + 1)  # an opcode, a line: each by itself
    i2c = contract.access.i2c
    moves = contract.access.mdio is None if i2c is None else i2c.auto_increment != "none"
    return range(register.offset, register.offset + (register.size_bytes if moves else 1))


def reach(contract: Contract, register: Register) -> range:
    """The cells that an access to the register touches: more than it stands in where the bus has only wider ones."""
    shared = register.shared_bytes
    if shared is None:
        return cells(contract, register)
    first = register.offset // shared * shared
    return range(first, first + shared)


class Places:
    """An index of registers by where they stand; built once for a contract.

    Args:
        places: a space with (name, first cell, number of cells), in the order of the contract.
    """

    def __init__(self, places: Iterable[tuple[Space, Place]]) -> None:
        found: dict[Space, list[tuple[int, int, int, str]]] = {}
        order: dict[str, int] = {}
        for space, (name, first, count) in places:
            number = order.setdefault(name, len(order))
            found.setdefault(space, []).append((first, first + count, number, name))
        self._spaces = {space: sorted(entries) for space, entries in found.items()}
        self._longest = {space: max(e[1] - e[0] for e in entries) for space, entries in found.items()}

    def names(self, space: Space, start: int, stop: int) -> list[str]:
        """Registers that have a cell in `start` to `stop` (not included), in the order of the contract."""
        entries = self._spaces.get(space, [])
        at = bisect_left(entries, (start - self._longest.get(space, 0),))
        found = []
        while at < len(entries) and entries[at][0] < stop:
            if entries[at][1] > start:
                found.append((entries[at][2], entries[at][3]))
            at += 1
        return [name for _, name in sorted(dict.fromkeys(found))]


def places_of_register(contract: Contract, register: Register) -> list[tuple[Space, Place]]:
    """Where a register answers: at its offset, and at those of its aliases; a line of text has no place."""
    if register.space is Space.LINE:
        return []
    span = cells(contract, register)
    firsts = (span.start, *register.aliases) if register.aliases else (span.start,)
    return [(register.space, (register.name, first, len(span))) for first in firsts]


def places_of(contract: Contract) -> Places:
    """The index of a contract; made when it is first asked for."""
    if not contract.index:
        contract.index.append(
            Places(place for r in contract.registers.values() for place in places_of_register(contract, r))
        )
    return cast(Places, contract.index[0])


def overlapping(contract: Contract, register: Register) -> list[Register]:
    """Every register that an access to this one reaches, itself included; other banks too if it names none."""
    index, reached = places_of(contract), reach(contract, register)
    names: dict[str, None] = {}
    width = len(reached)
    for first in (reached.start, *register.also_at):
        names |= dict.fromkeys(index.names(register.space, first, first + width))
    found = [contract.registers[n] for n in names]
    if register.name not in names:
        found.insert(0, register)  # a part of a memory, a line: not in the index
    return [other for other in found if register.bank is None or other.bank in (register.bank, None)]


def find_place(contract: Contract, name: str, beside: Register | None = None) -> tuple[Register, Field | None] | None:
    """The register called `name`, or the field of a `REG.FIELD`; siblings of `beside` in its cluster come first."""
    candidates = [name]
    if beside is not None and "." in beside.name:
        candidates.insert(0, beside.name.rpartition(".")[0] + "." + name)
    for candidate in candidates:
        if candidate in contract.registers:
            return contract.registers[candidate], None
        owner, _, field = candidate.rpartition(".")
        if owner in contract.registers and field in contract.registers[owner].fields:
            return contract.registers[owner], contract.registers[owner].fields[field]
    return None


def find_register(contract: Contract, name: str, beside: Register | None = None) -> Register | None:
    """The register of `find_place`."""
    place = find_place(contract, name, beside)
    return None if place is None else place[0]


def gate_of(text: str) -> tuple[str, int | None]:
    """The register or field of a gate, and the value at which it is open; None: at any but 0 (`REG.FIELD = 1`)."""
    name, equals, value = text.partition("=")
    try:
        return name.strip(), int(value, 0) if equals else None
    except ValueError:
        return text, None
