"""A compiled contract as bytes, and back without looking at registers that nobody asks for.

Equal specs stand once in a pool; registers and sets of fields stand in chunks that are decoded when a register of them
is asked for. What must be known of all registers (names and places) is decoded at once. The bytes are the same for the
same contract; whoever keeps them keeps a checksum beside them (`cache`).
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from typing import Any, Final

import msgspec

from hwtool_contracts.memories import with_memories
from hwtool_contracts.model import (
    Access,
    Alias,
    Assume,
    Bank,
    BusAccess,
    ByteOrder,
    Contract,
    Crc,
    Field,
    Group,
    Identity,
    Memory,
    Mux,
    NamedSequence,
    Opcode,
    Owner,
    Param,
    Persistence,
    Phrase,
    Quantity,
    ReadSpec,
    Register,
    RestartEvidence,
    Space,
    WriteSpec,
)
from hwtool_contracts.notice import Imported, Notice
from hwtool_contracts.places import Places, places_of_register

VERSION: Final = 8
CHUNK: Final = 64
ACCESSES: Final = tuple(Access)
SPACES: Final = tuple(Space)
ORDERS: Final = tuple(ByteOrder)
PERSISTENCES: Final = tuple(Persistence)
OWNERS: Final = tuple(Owner)
NO_FIELDS: Final[Mapping[str, Field]] = {}


@dataclass(frozen=True, slots=True)
class _Head:
    """What is decoded at once."""

    part: str
    vendor: str
    title: str
    source: str
    digest: str
    access: BusAccess
    banks: dict[str, Bank]
    groups: dict[str, Group]
    assumes: tuple[Assume, ...]
    identity: Identity | None
    restart: RestartEvidence | None
    mux: Mux | None
    verified: str | None
    derived_from: dict[str, str]
    memories: dict[str, Memory]
    params: dict[str, Param]
    sequences: dict[str, NamedSequence]
    notices: tuple[Notice, ...]
    reads: list[ReadSpec]
    writes: list[WriteSpec]
    quantities: list[Quantity]


class _Wire(msgspec.Struct, array_like=True):
    """The outermost array. `places` has four numbers a place: register, space, first cell, number of cells."""

    version: int
    head: _Head
    names: list[str]
    places: list[int]
    fieldsets: list[msgspec.Raw]
    registers: list[msgspec.Raw]


class _Pool:
    """Gives equal things one number."""

    def __init__(self) -> None:
        self.items: list[Any] = []
        self._by_id: dict[int, int] = {}
        self._by_key: dict[Any, int] = {}

    def number(self, item: Any) -> int:
        known = self._by_id.get(id(item))
        if known is None:
            key = _key(item)
            known = self._by_key.setdefault(key, len(self.items))
            if known == len(self.items):
                self.items.append(item)
            self._by_id[id(item)] = known
        return known


def _key(item: Any) -> Any:
    """Something hashable that is equal for equal items."""
    try:
        hash(item)
    except TypeError:
        return repr(item)
    return item


def encode(imported: Imported) -> bytes:
    """The bytes of a contract with its notices."""
    contract = imported.contract
    reads, writes, quantities, fieldsets = _Pool(), _Pool(), _Pool(), _Pool()
    rows: list[list[Any]] = []
    places: list[int] = []
    for r in contract.registers.values():
        for space, (_, first, count) in places_of_register(contract, r):
            places += (len(rows), SPACES.index(space), first, count)
        rows.append(
            [
                r.offset,
                r.width_bits,
                ACCESSES.index(r.access),
                reads.number(r.read),
                writes.number(r.write),
                fieldsets.number(r.fields) if r.fields else -1,
                r.reset,
                r.volatile,
                PERSISTENCES.index(r.persistence),
                OWNERS.index(r.owner),
                r.sensitive,
                r.bank,
                SPACES.index(r.space),
                ORDERS.index(r.byte_order),
                ORDERS.index(r.word_order),
                dict(r.values),
                quantities.number(r.quantity),
                r.description,
                r.reset_mask,
                r.volatile_unsaid,
                *_rare(r),
            ]
        )
    sets = [
        [
            [
                f.name,
                f.msb,
                f.lsb,
                ACCESSES.index(f.access),
                reads.number(f.read),
                writes.number(f.write),
                f.reset,
                f.volatile,
                dict(f.values),
                quantities.number(f.quantity),
                f.reserved,
                f.description,
                f.volatile_unsaid,
                f.alternate,
                [list(part) for part in f.parts],
                f.erratum,
                f.confidential,
            ]
            for f in fields.values()
        ]
        for fields in fieldsets.items
    ]
    head = _Head(
        part=contract.part,
        vendor=contract.vendor,
        title=contract.title,
        source=contract.source,
        digest=contract.digest,
        access=contract.access,
        banks=dict(contract.banks),
        groups=dict(contract.groups),
        assumes=contract.assumes,
        identity=contract.identity,
        restart=contract.restart,
        mux=contract.mux,
        verified=contract.verified,
        derived_from=dict(contract.derived_from),
        memories=dict(contract.memories),
        params=dict(contract.params),
        sequences=dict(contract.sequences),
        notices=imported.notices,
        reads=reads.items,
        writes=writes.items,
        quantities=quantities.items,
    )
    encoder = msgspec.msgpack.Encoder()  # in the order of the contract: the same bytes for the same contract
    wire = _Wire(VERSION, head, list(contract.registers), places, _chunks(encoder, sets), _chunks(encoder, rows))
    return encoder.encode(wire)


def _rare(register: Register) -> list[list[Any]]:
    """What few registers have: nothing where this one has none of it."""
    acting = [None if a is None else [a.at, a.shift] for a in (register.set_at, register.clear_at, register.toggle_at)]
    rare: list[Any] = [list(register.also_at), *acting, register.write_mask]
    rare += [register.may_block, register.erratum, register.verified, register.access_bits, register.confidential]
    crc, opcode, phrase = register.crc, register.opcode, register.phrase
    rare.append(None if crc is None else [crc.poly, crc.init, crc.word_bytes])
    rare.append(None if opcode is None else [opcode.code_bytes, opcode.dummy_bytes, opcode.duplex])
    rare.append(None if phrase is None else [phrase.query, phrase.set])
    return [rare] if any(value not in (None, [], 0, False) for value in rare) else []


def _unfolded(rare: list[Any]) -> tuple[Any, ...]:
    """The members that `_rare` folded, in the order of `Register`."""
    made = [
        None if given is None else kind(*given) for kind, given in zip((Crc, Opcode, Phrase), rare[10:], strict=True)
    ]
    return (tuple(rare[0]), *(a and Alias(*a) for a in rare[1:4]), *rare[4:10], *made)


def _chunks(encoder: msgspec.msgpack.Encoder, rows: list[Any]) -> list[msgspec.Raw]:
    return [msgspec.Raw(encoder.encode(rows[i : i + CHUNK])) for i in range(0, len(rows), CHUNK)]


def decode(data: bytes | memoryview) -> Imported:
    """The contract of `encode`; its registers are made when they are asked for.

    Raises:
        ValueError: bytes of another version, or no contract at all.
    """
    try:
        wire = msgspec.msgpack.decode(data, type=_Wire)
    except msgspec.MsgspecError as error:
        raise ValueError(f"not a compiled contract: {error}") from error
    if wire.version != VERSION:
        raise ValueError(f"a compiled contract of version {wire.version}, not {VERSION}")
    head = wire.head
    contract = Contract(
        part=head.part,
        vendor=head.vendor,
        title=head.title,
        source=head.source,
        digest=head.digest,
        access=head.access,
        registers=with_memories(LazyRegisters(wire), head.memories, head.access),
        banks=head.banks,
        groups=head.groups,
        assumes=head.assumes,
        identity=head.identity,
        restart=head.restart,
        mux=head.mux,
        verified=head.verified,
        derived_from=head.derived_from,
        memories=head.memories,
        params=head.params,
        sequences=head.sequences,
    )
    contract.index.append(_LazyPlaces(wire))
    return Imported(contract, head.notices)


class _LazyPlaces(Places):
    """The places of a compiled contract, sorted when they are first asked for."""

    def __init__(self, wire: _Wire) -> None:
        self._wire = wire
        self._sorted = False

    def names(self, space: Space, start: int, stop: int) -> list[str]:
        if not self._sorted:
            told = self._wire.places
            names = self._wire.names
            rows = zip(told[::4], told[1::4], told[2::4], told[3::4], strict=True)
            super().__init__((SPACES[space], (names[number], first, count)) for number, space, first, count in rows)
            self._sorted = True
        return super().names(space, start, stop)


class LazyRegisters(Mapping[str, Register]):
    """The registers of a compiled contract by name, in its order; one is made when it is asked for."""

    def __init__(self, wire: _Wire) -> None:
        self._wire = wire
        self._head = wire.head
        self._numbers = dict(zip(wire.names, range(len(wire.names)), strict=True))
        self._made: dict[int, Register] = {}
        self._rows: dict[int, list[Any]] = {}
        self._sets: dict[int, list[Any]] = {}
        self._fields: dict[int, Mapping[str, Field]] = {}

    def __len__(self) -> int:
        return len(self._numbers)

    def __iter__(self) -> Iterator[str]:
        return iter(self._numbers)

    def __contains__(self, name: object) -> bool:
        return name in self._numbers

    def __getitem__(self, name: str) -> Register:
        number = self._numbers[name]
        made = self._made.get(number)
        if made is None:
            made = self._made[number] = self._register(name, number)
        return made

    def _register(self, name: str, number: int) -> Register:
        chunk, inside = divmod(number, CHUNK)
        rows = self._rows.get(chunk)
        if rows is None:
            rows = self._rows[chunk] = msgspec.msgpack.decode(self._wire.registers[chunk])
        row = rows[inside]
        rare = row[20] if len(row) > 20 else None
        return Register(
            name,
            row[0],
            row[1],
            ACCESSES[row[2]],
            self._head.reads[row[3]],
            self._head.writes[row[4]],
            NO_FIELDS if row[5] < 0 else self._fieldset(row[5]),
            row[6],
            row[7],
            PERSISTENCES[row[8]],
            OWNERS[row[9]],
            row[10],
            row[11],
            SPACES[row[12]],
            ORDERS[row[13]],
            ORDERS[row[14]],
            row[15],
            self._head.quantities[row[16]],
            row[17],
            row[18],
            row[19],
            *(() if rare is None else _unfolded(rare)),
        )

    def _fieldset(self, number: int) -> Mapping[str, Field]:
        made = self._fields.get(number)
        if made is None:
            chunk, inside = divmod(number, CHUNK)
            sets = self._sets.get(chunk)
            if sets is None:
                sets = self._sets[chunk] = msgspec.msgpack.decode(self._wire.fieldsets[chunk])
            head = self._head
            made = self._fields[number] = {
                f[0]: Field(
                    f[0],
                    f[1],
                    f[2],
                    ACCESSES[f[3]],
                    head.reads[f[4]],
                    head.writes[f[5]],
                    f[6],
                    f[7],
                    f[8],
                    head.quantities[f[9]],
                    f[10],
                    f[11],
                    f[12],
                    f[13],
                    tuple((high, low) for high, low in f[14]),
                    f[15],
                    f[16],
                )
                for f in sets[inside]
            }
        return made
