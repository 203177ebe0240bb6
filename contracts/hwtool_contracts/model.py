"""The contract of a chip as immutable data: what the loader makes and everything else reads.

Clusters and arrays are expanded (`CH[3].CTRL`), defaults are filled in, nothing is left to look up in a file.
`offset` is what the chip expects in the transfer; `address` belongs to the bus and is not here.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from decimal import Decimal
from enum import StrEnum
from typing import Literal

from hwtool_contracts.effects import NO_BASIS_FOR_HARMLESS, Basis, ReadEffect, WriteEffect


class Access(StrEnum):
    """Which directions the register map allows."""

    RO = "ro"
    WO = "wo"
    RW = "rw"
    W1 = "w1"
    RW1 = "rw1"
    NONE = "none"

    @property
    def readable(self) -> bool:
        """True if a read is possible."""
        return self in (Access.RO, Access.RW, Access.RW1)

    @property
    def writable(self) -> bool:
        """True if a write is possible."""
        return self in (Access.WO, Access.RW, Access.W1, Access.RW1)


class Encoding(StrEnum):
    """How the bits of a value are to be understood."""

    UNSIGNED = "unsigned"
    TWOS_COMPLEMENT = "twos_complement"
    BCD = "bcd"
    FLOAT32 = "float32"
    FLOAT64 = "float64"


class ByteOrder(StrEnum):
    """Order of bytes in a transfer, or of 16-bit words in a longer Modbus value: most significant first is big."""

    BIG = "big"
    LITTLE = "little"


class Space(StrEnum):
    """Address spaces of a device; `memory` is the one space of everything but Modbus."""

    MEMORY = "memory"
    HOLDING = "holding"
    INPUT = "input"
    COIL = "coil"
    DISCRETE = "discrete"


class Persistence(StrEnum):
    """How long a written value lasts."""

    VOLATILE = "volatile"
    UNTIL_RESET = "until_reset"
    NONVOLATILE = "nonvolatile"


class Owner(StrEnum):
    """Whether another writer exists on this host."""

    EXCLUSIVE = "exclusive"
    SHARED = "shared"


@dataclass(frozen=True, slots=True)
class Provenance:
    """Where an effect is known from.

    Attributes:
        basis: the kind of knowledge.
        seen: `page` or `driver` for reviewed effects.
        source: document and section, or repository and path.
    """

    basis: Basis
    seen: Literal["page", "driver"] | None = None
    source: str | None = None


SILENT = Provenance(Basis.SILENT)


@dataclass(frozen=True, slots=True)
class ReadSpec:
    """What reading does.

    Attributes:
        effects: the set of effects; the strictest decides.
        affects: registers (or REG.FIELD) whose state a read changes.
        level: register or field that counts the elements of the FIFO behind a `pop`.
        when_empty: what a `pop` of an empty FIFO answers, as the source says.
        max_burst: elements one transfer may pop at the fixed offset; None: one.
        peek: clean register that shows what a consuming read would return.
        gate: field that must be non-zero for the read to be answered.

    Raises:
        ValueError: `none` without a basis; such a contract cannot be represented.
    """

    effects: frozenset[ReadEffect]
    provenance: Provenance
    affects: tuple[str, ...] = ()
    level: str | None = None
    when_empty: str | None = None
    max_burst: int | None = None
    peek: str | None = None
    gate: str | None = None

    def __post_init__(self) -> None:
        if not self.effects:
            raise ValueError("a read has at least one effect")
        if ReadEffect.NONE in self.effects and len(self.effects) > 1:
            raise ValueError("`none` stands alone: it cannot be combined with other read effects")
        if ReadEffect.NONE in self.effects and self.provenance.basis in NO_BASIS_FOR_HARMLESS:
            raise ValueError(f"read effect none cannot rest on provenance {self.provenance.basis}")


@dataclass(frozen=True, slots=True)
class Verify:
    """How a write is verified: by reading `register` (None: itself) under `mask`, by signals, or not at all."""

    by: Literal["read_back", "signal", "none"]
    register: str | None = None
    mask: int | None = None


@dataclass(frozen=True, slots=True)
class Signal:
    """An observable consequence of a write.

    Attributes:
        register: register or REG.FIELD that is read cleanly before and after.
        delta: the change (after - before, modulo the width) that one execution makes; None: not a counter.
        equals: the value that shows the effect; None with delta None: any change of it does.
    """

    register: str
    delta: int | None = None
    equals: int | None = None


@dataclass(frozen=True, slots=True)
class Limits:
    """The values that may be written, both ends included: raw integers, for float encodings in the register's unit."""

    minimum: Decimal | int | None = None
    maximum: Decimal | int | None = None


@dataclass(frozen=True, slots=True)
class WriteSpec:
    """What writing does.

    Attributes:
        effect: one word of the vocabulary.
        affects: registers whose state a write changes.
        verify: how success is shown; None: as the effect's policy says.
        mask: bits that may be written; None: all.
        signals: observable consequences.
        window_ms: how long the consequence may take; None: the default window.
        approval: whether a person must agree to each write.
        limits: raw range.
        values: names of values that may be written.
        gate: field that must be non-zero for the write to be taken.

    Raises:
        ValueError: `store` without a basis; such a contract cannot be represented.
    """

    effect: WriteEffect
    provenance: Provenance
    affects: tuple[str, ...] = ()
    verify: Verify | None = None
    mask: int | None = None
    signals: tuple[Signal, ...] = ()
    window_ms: int | None = None
    approval: Literal["none", "required"] = "none"
    limits: Limits | None = None
    values: Mapping[str, int] = field(default_factory=dict)
    gate: str | None = None

    def __post_init__(self) -> None:
        if self.effect is WriteEffect.STORE and self.provenance.basis in NO_BASIS_FOR_HARMLESS:
            raise ValueError(f"write effect store cannot rest on provenance {self.provenance.basis}")


UNKNOWN_READ = ReadSpec(frozenset({ReadEffect.UNKNOWN}), SILENT)
UNKNOWN_WRITE = WriteSpec(WriteEffect.UNKNOWN, SILENT)


@dataclass(frozen=True, slots=True)
class Quantity:
    """How raw bits become an engineering value: value = decode(raw) * scale + add, in `unit`."""

    encoding: Encoding = Encoding.UNSIGNED
    scale: Decimal | None = None
    add: Decimal | None = None
    unit: str | None = None


@dataclass(frozen=True, slots=True)
class Field:
    """A bit range of a register; `msb` and `lsb` are bit numbers, both included."""

    name: str
    msb: int
    lsb: int
    access: Access
    read: ReadSpec
    write: WriteSpec
    reset: int | None
    volatile: bool
    values: Mapping[str, int]
    quantity: Quantity
    reserved: Literal["keep", "zero", "one"] | None = None

    @property
    def width_bits(self) -> int:
        """Number of bits."""
        return self.msb - self.lsb + 1

    @property
    def mask(self) -> int:
        """The field's bits in the register."""
        return ((1 << self.width_bits) - 1) << self.lsb


@dataclass(frozen=True, slots=True)
class Register:
    """One register; `offset` is what the chip expects, in Modbus spaces the number on the wire (base removed)."""

    name: str
    offset: int
    width_bits: int
    access: Access
    read: ReadSpec
    write: WriteSpec
    fields: Mapping[str, Field]
    reset: int | None
    volatile: bool
    persistence: Persistence
    owner: Owner
    sensitive: bool
    bank: str | None
    space: Space
    byte_order: ByteOrder
    word_order: ByteOrder
    values: Mapping[str, int]
    quantity: Quantity

    @property
    def size_bytes(self) -> int:
        """Bytes in the transfer."""
        return (self.width_bits + 7) // 8

    @property
    def mask(self) -> int:
        """All bits of the register."""
        return (1 << self.width_bits) - 1


@dataclass(frozen=True, slots=True)
class Selector:
    """One selector of a bank: the bits of `mask` in `register` must be `value`."""

    register: str
    value: int
    mask: int


@dataclass(frozen=True, slots=True)
class Bank:
    """When a register answers: the selectors to establish, and what to do with them afterwards."""

    name: str
    select: tuple[Selector, ...]
    restore: Literal["prior", "none"]


@dataclass(frozen=True, slots=True)
class Group:
    """Registers that are read or written together: in one transfer, or each in the declared order."""

    name: str
    members: tuple[str, ...]
    transfer: Literal["one", "each"]


@dataclass(frozen=True, slots=True)
class Assume:
    """The file is valid only while `register.field` is `value`; `purpose` says what depends on it."""

    register: str
    field: str
    value: int
    purpose: str


@dataclass(frozen=True, slots=True)
class Identity:
    """What the board's `identity` is compared with: a clean register, and the value every such chip has."""

    register: str
    equals: int | None


@dataclass(frozen=True, slots=True)
class I2cAccess:
    """I2C facts: 7-bit addresses, in which directions the register pointer moves, how a read is framed."""

    addresses: tuple[int, ...]
    auto_increment: Literal["read", "write", "both", "none"]
    read: Literal["restart", "stop"]


@dataclass(frozen=True, slots=True)
class ModbusAccess:
    """Modbus facts: functions the device answers, registers a request may span, atomicity of several registers."""

    functions: frozenset[int]
    max_registers: int
    atomic_multi: bool


@dataclass(frozen=True, slots=True)
class BusAccess:
    """How the chip is reached: bytes of the offset in the transfer, and per-bus facts."""

    offset_bytes: int
    i2c: I2cAccess | None
    modbus: ModbusAccess | None


@dataclass(frozen=True, slots=True)
class Contract:
    """A whole chip.

    Attributes:
        digest: `sha256:…` over the meaning of the file; comments and layout do not count.
        verified: what the contract was checked against, or None.
    """

    part: str
    vendor: str
    title: str
    source: str
    digest: str
    access: BusAccess
    registers: Mapping[str, Register]
    banks: Mapping[str, Bank]
    groups: Mapping[str, Group]
    assumes: tuple[Assume, ...]
    identity: Identity | None
    verified: str | None
