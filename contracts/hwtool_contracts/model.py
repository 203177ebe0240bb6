"""The contract of a chip as immutable data: what the loader makes and everything else reads.

Clusters and arrays are expanded (`CH[3].CTRL`), defaults are filled in, nothing is left to look up in a file.
`offset` is what the chip expects in the transfer; `address` belongs to the bus and is not here.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from decimal import Decimal
from enum import StrEnum
from typing import Any, Final, Literal

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
    LINEAR11 = "linear11"
    LINEAR16 = "linear16"
    DECIMAL = "decimal"
    TEXT = "text"
    BYTES = "bytes"


class ByteOrder(StrEnum):
    """Order of bytes in a transfer, or of 16-bit words in a longer Modbus value: most significant first is big."""

    BIG = "big"
    LITTLE = "little"


class Space(StrEnum):
    """Address spaces of a device: `memory` of offsets, six of Modbus, two of I2C, one of lines of text.

    `object` is Modbus's device identification: each object is a text, by its number, read by itself. `queue` is its
    FIFO queue: a read shows the number of words in it and the words, and takes none. `block` is SMBus's blocks: behind
    a command code the number of bytes, then the bytes. `command` is opcodes.
    """

    MEMORY = "memory"
    HOLDING = "holding"
    INPUT = "input"
    COIL = "coil"
    DISCRETE = "discrete"
    OBJECT = "object"
    QUEUE = "queue"
    BLOCK = "block"
    COMMAND = "command"
    LINE = "line"

    @property
    def of_words(self) -> bool:
        """Modbus registers of 16 bits."""
        return self in (Space.HOLDING, Space.INPUT)

    @property
    def of_bits(self) -> bool:
        """Modbus coils and discrete inputs: an address is a bit."""
        return self in (Space.COIL, Space.DISCRETE)

    @property
    def numbered(self) -> bool:
        """A space whose numbers a manual may count from 1."""
        return self.of_words or self.of_bits or self is Space.QUEUE

    @property
    def whole(self) -> bool:
        """A space whose registers are each read by themselves, as long as they happen to be."""
        return self in (Space.OBJECT, Space.QUEUE, Space.BLOCK)

    @property
    def own_order(self) -> bool:
        """A space whose bytes stand in the order of the wire, whatever a file says of the others."""
        return self.modbus or self is Space.BLOCK

    @property
    def modbus(self) -> bool:
        """A space of Modbus."""
        return self.numbered or self is Space.OBJECT


READ_FUNCTIONS: Final = {  # of Modbus
    Space.COIL: 1,
    Space.DISCRETE: 2,
    Space.HOLDING: 3,
    Space.INPUT: 4,
    Space.QUEUE: 24,
    Space.OBJECT: 43,
}


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
A_MODEL = "a model: "  # how `verified` begins where no real part was checked


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
        state: of a `claim`: clean register that shows whether it is taken.
        ack_by: registers whose access acknowledges what this one shows.
        reseek: of an `advance`: register whose write sets the pointer anew.
        element_bytes: of a `pop`: bytes of one element in a burst; None: the register's.

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
    state: str | None = None
    ack_by: tuple[str, ...] = ()
    reseek: str | None = None
    element_bytes: int | None = None

    def __post_init__(self) -> None:
        if not self.effects:
            raise ValueError("a read has at least one effect")
        if ReadEffect.NONE in self.effects and len(self.effects) > 1:
            raise ValueError("`none` stands alone: it cannot be combined with other read effects")
        if ReadEffect.NONE in self.effects and self.provenance.basis in NO_BASIS_FOR_HARMLESS:
            raise ValueError(f"read effect none cannot rest on provenance {self.provenance.basis}")


@dataclass(frozen=True, slots=True)
class Verify:
    """How a write is verified: by reading `register` (None: itself) under `mask`, by signals, or not at all.

    Attributes:
        tolerance: a read-back may differ from what was written by so many raw units.
        consumes: reading `register` consumes what it shows: it is read once, as the end of the write, and never again.
    """

    by: Literal["read_back", "signal", "none"]
    register: str | None = None
    mask: int | None = None
    tolerance: int = 0
    consumes: bool = False


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
class BusyRetry:
    """The one repeat after dispatch: the bus proved that the device was busy and did not act.

    Attributes:
        attempts: transfers in all, the first included.
        interval_ms: pause between two of them.
    """

    attempts: int
    interval_ms: int


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
        triggers: what any write sets off, also one of the value that is there: no write of it is harmless.
        commit_by: register whose write makes this one take effect.
        resets: the write restarts the device: a new generation begins.
        readdresses: the write changes where the device answers: it is held afterwards.
        absolute: a command that names a place to be in, not a step to take: harmless to repeat.
        irreversible: cannot be undone by another write.
        busy_retry: how often a device that proves to be busy is asked again.
        delay_after_ms: how long the device is left alone after the write.
        max_rate_per_min: how often it may be written.
        unlock: name of the sequence in which alone it may be written.

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
    triggers: tuple[str, ...] = ()
    commit_by: str | None = None
    resets: Literal["device"] | None = None
    readdresses: bool = False
    absolute: bool = False
    irreversible: bool = False
    busy_retry: BusyRetry | None = None
    delay_after_ms: int | None = None
    max_rate_per_min: int | None = None
    unlock: str | None = None

    def __post_init__(self) -> None:
        if self.effect is WriteEffect.STORE and self.provenance.basis in NO_BASIS_FOR_HARMLESS:
            raise ValueError(f"write effect store cannot rest on provenance {self.provenance.basis}")


UNKNOWN_READ = ReadSpec(frozenset({ReadEffect.UNKNOWN}), SILENT)
UNKNOWN_WRITE = WriteSpec(WriteEffect.UNKNOWN, SILENT)


@dataclass(frozen=True, slots=True)
class Quantity:
    """How raw bits become an engineering value: value = decode(raw) * scale + add, in `unit`.

    Attributes:
        exponent_from: of `linear16`: register or REG.FIELD whose low five bits, signed, are the exponent.
        scale_from: register or REG.FIELD whose value chooses the scale among `scales`.
        scale_param: name of a parameter of the board that `scale` is multiplied with.
    """

    encoding: Encoding = Encoding.UNSIGNED
    scale: Decimal | None = None
    add: Decimal | None = None
    unit: str | None = None
    exponent_from: str | None = None
    scale_from: str | None = None
    scales: Mapping[int, Decimal] = field(default_factory=dict)
    scale_param: str | None = None


@dataclass(frozen=True, slots=True)
class Field:
    """A bit range of a register; `msb` and `lsb` are bit numbers, both included.

    Attributes:
        volatile_unsaid: nobody has said whether hardware changes it; it counts as volatile until a review says so.
        alternate: shares bits with another field of the register, which means them in another mode.
        parts: bit ranges (msb, lsb) that make the value, most significant first; none: `msb` to `lsb`. Where there
            are parts, `msb` and `lsb` are the outermost bits.
        erratum: what is wrong with it, told with each result of its register.
        confidential: shown only to callers that the board's policy allows.
    """

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
    description: str = ""
    volatile_unsaid: bool = False
    alternate: bool = False
    parts: tuple[tuple[int, int], ...] = ()
    erratum: str | None = None
    confidential: bool = False

    @property
    def width_bits(self) -> int:
        """Number of bits."""
        return sum(high - low + 1 for high, low in self.parts) if self.parts else self.msb - self.lsb + 1

    @property
    def mask(self) -> int:
        """The field's bits in the register."""
        if self.parts:
            return sum(((1 << (high - low + 1)) - 1) << low for high, low in self.parts)
        return ((1 << (self.msb - self.lsb + 1)) - 1) << self.lsb

    def taken(self, raw: int) -> int:
        """The field's value in a register value."""
        if not self.parts:
            return (raw & self.mask) >> self.lsb
        value = 0
        for high, low in self.parts:
            value = value << (high - low + 1) | (raw >> low) & ((1 << (high - low + 1)) - 1)
        return value

    def placed(self, value: int) -> int:
        """The register value whose only bits are those of the field's value."""
        if not self.parts:
            return value << self.lsb
        raw = 0
        for high, low in reversed(self.parts):
            raw |= (value & ((1 << (high - low + 1)) - 1)) << low
            value >>= high - low + 1
        return raw


@dataclass(frozen=True, slots=True)
class Crc:
    """A CRC of one byte behind each word of a transfer, in both directions.

    Attributes:
        poly: the polynomial without its highest bit.
        init: what the CRC starts with.
        word_bytes: bytes that one CRC covers.
    """

    poly: int
    init: int
    word_bytes: int


@dataclass(frozen=True, slots=True)
class Opcode:
    """How a command is sent: its code is the register's offset.

    Attributes:
        code_bytes: bytes of the code, most significant first; 0: a plain read without any.
        dummy_bytes: zeros between the code and the answer.
        duplex: SPI: the answer begins with the first bit of the code, and comes while the code goes out.
    """

    code_bytes: int
    dummy_bytes: int = 0
    duplex: bool = False


@dataclass(frozen=True, slots=True)
class Phrase:
    """How a value is asked for and set in a line protocol.

    Attributes:
        query: the line that is answered with the value; None: it cannot be asked for.
        set: the line that sets it, `{value}` for the value; None: it cannot be set.
    """

    query: str | None
    set: str | None


@dataclass(frozen=True, slots=True)
class Alias:
    """An offset where a write of ones acts on the bits of another register, there moved up by `shift` bits."""

    at: int
    shift: int = 0


@dataclass(frozen=True, slots=True)
class Register:
    """One register; `offset` is what the chip expects, in Modbus spaces the number on the wire (base removed).

    Attributes:
        reset_mask: bits whose reset value is known; None: all of them, where there is a reset value.
        volatile_unsaid: as in `Field`.
        also_at: other offsets where the same storage answers.
        set_at, clear_at, toggle_at: offsets where a write of ones sets, clears or toggles bits of this register.
        write_mask: bits that say, bit for bit, which of the bits below them a write changes; 0: there are none.
        may_block: an access may hold the bus up for long: it is never polled, merged or dumped.
        erratum: what is wrong with it, told with each result.
        verified: what this register was checked against, where that is not the whole contract's word.
        access_bits: width of the only bus accesses that reach it; None: its own width.
        confidential: shown only to callers that the board's policy allows; such a register is `sensitive` too.
        crc: what stands behind each word in a transfer.
        opcode, phrase: of a command, of a value in a line protocol.
        page_bytes: of a range of a memory: a write does not cross a multiple of it; 0: no pages.
        read_code: of a range of a memory behind opcodes: the one that reads it.
    """

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
    description: str = ""
    reset_mask: int | None = None
    volatile_unsaid: bool = False
    also_at: tuple[int, ...] = ()
    set_at: Alias | None = None
    clear_at: Alias | None = None
    toggle_at: Alias | None = None
    write_mask: int = 0
    may_block: bool = False
    erratum: str | None = None
    verified: str | None = None
    access_bits: int | None = None
    confidential: bool = False
    crc: Crc | None = None
    opcode: Opcode | None = None
    phrase: Phrase | None = None
    page_bytes: int = 0
    read_code: int | None = None

    @property
    def aliases(self) -> tuple[int, ...]:
        """Every other offset where an access reaches this register."""
        acting = (self.set_at, self.clear_at, self.toggle_at)
        return (*self.also_at, *(alias.at for alias in acting if alias is not None))

    @property
    def text_scale(self) -> Decimal | None:
        """Of a value in a line protocol: what one raw unit is in the text; None: it is text, not a number."""
        if self.space is not Space.LINE or self.quantity.encoding is Encoding.TEXT:
            return None
        return self.quantity.scale or Decimal(1)

    @property
    def size_bytes(self) -> int:
        """Bytes in the transfer, those of CRCs included."""
        plain = (self.width_bits + 7) // 8
        return plain if self.crc is None else plain + plain // self.crc.word_bytes

    @property
    def mask(self) -> int:
        """All bits of the register."""
        return (1 << self.width_bits) - 1

    @property
    def piece_bytes(self) -> int | None:
        """Bytes of each of the several accesses that the register takes; None: one access reaches all of it."""
        narrow = self.access_bits is not None and self.access_bits < self.width_bits
        return self.access_bits // 8 if narrow and self.access_bits is not None else None

    @property
    def shared_bytes(self) -> int | None:
        """Bytes of the one access that reaches the register and more than it; None: none is wider."""
        wide = self.access_bits is not None and self.access_bits > self.width_bits
        return self.access_bits // 8 if wide and self.access_bits is not None else None

    @property
    def is_confidential(self) -> bool:
        """Whether it, or a field of it, is shown only to callers that policy allows."""
        return self.confidential or any(f.confidential for f in self.fields.values())


@dataclass(frozen=True, slots=True)
class Selector:
    """One selector of a bank: the bits of `mask` in `register` must be `value`."""

    register: str
    value: int
    mask: int


@dataclass(frozen=True, slots=True)
class Bank:
    """When a register answers: the selectors to establish, and what to do with them afterwards.

    Attributes:
        restore: what becomes of the selectors: as they were, left as they are, or set to these values.
        at_once: selected and read in one request (Modbus function 23); the device writes before it reads.
    """

    name: str
    select: tuple[Selector, ...]
    restore: Literal["prior", "none"] | tuple[Selector, ...]
    at_once: bool = False


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
    """What the board's `identity` is compared with: a clean register, and what every such chip has there.

    Attributes:
        equals: the values, one of which it must have in the bits of `mask`; none: it is the board's to say.
        mask: bits that are compared; None: all.
        text: what its text begins with.
        serial: clean register that tells one chip from another; the board's `identity` is compared with it.
    """

    register: str
    equals: tuple[int, ...]
    mask: int | None = None
    text: str | None = None
    serial: str | None = None


@dataclass(frozen=True, slots=True)
class Mux:
    """A multiplexer: devices sit behind its channels.

    Attributes:
        register: a plain store; a write of it ends a transfer, and from then on the channel is the only one that is on.
        channels: what it is written for each channel, from channel 0 on.
    """

    register: str
    channels: tuple[int, ...]


@dataclass(frozen=True, slots=True)
class RestartEvidence:
    """What the chip shows of its restarts: one clean register or field, `REG` or `REG.FIELD`.

    Attributes:
        by: `counter`, another value after each restart (a count of them, or a nonce); `uptime`, time since the restart,
            counted from 0; `cause`, not 0 after a restart until somebody clears it.
        place: the register or field.
        unit_ms: of an uptime: milliseconds of one count.
    """

    by: Literal["counter", "uptime", "cause"]
    place: str
    unit_ms: int = 1000


@dataclass(frozen=True, slots=True)
class I2cAccess:
    """I2C facts: 7-bit addresses, in which directions the register pointer moves, how a read is framed.

    Attributes:
        increment_mask: bits of the offset that make the pointer move in a transfer of several bytes.
        crc: behind each word.
        offset_bits_in_address: how many of the highest bits of an offset stand in the lowest bits of the address.
        pec: each transfer ends with the packet error code of SMBus.
    """

    addresses: tuple[int, ...]
    auto_increment: Literal["read", "write", "both", "none"]
    read: Literal["restart", "stop"]
    increment_mask: int = 0
    crc: Crc | None = None
    offset_bits_in_address: int = 0
    pec: bool = False


@dataclass(frozen=True, slots=True)
class ModbusAccess:
    """Modbus facts.

    Attributes:
        functions: that the device answers; empty: not said.
        max_registers: that one request may span.
        atomic_multi: several registers are written whole or not at all.
        base: the number that the manual gives to the register with number 0 on the wire.
    """

    functions: frozenset[int]
    max_registers: int
    atomic_multi: bool
    base: int = 0


@dataclass(frozen=True, slots=True)
class SpiAccess:
    """SPI facts.

    Attributes:
        read_mask: bits of the offset that mark a read.
        increment_mask: bits of the offset that make the pointer move in a transfer of several bytes.
        mode: clock polarity and phase, 0 to 3.
        max_hz: highest clock; None: not said.
        word_bits: of a word of the controller, 8, 16 or 32; longer ones have their most significant byte first.
    """

    read_mask: int
    increment_mask: int
    mode: int
    max_hz: int | None
    word_bits: int = 8

    @property
    def marks(self) -> int:
        """Bits of an offset in a transfer that are none of the offset."""
        return self.read_mask | self.increment_mask


@dataclass(frozen=True, slots=True)
class MdioAccess:
    """Facts of a management bus of Ethernet PHYs: an offset is the number of a register of 16 bits."""

    addresses: tuple[int, ...]


@dataclass(frozen=True, slots=True)
class LineAccess:
    """Facts of a line protocol: what ends a line, in both directions."""

    terminator: str


@dataclass(frozen=True, slots=True)
class MappedAccess:
    """Memory-mapped registers: `offset` is an address of the system bus, every byte has one."""

    byte_order: ByteOrder


@dataclass(frozen=True, slots=True)
class BusAccess:
    """How the chip is reached: bytes of the offset in the transfer, and per-bus facts."""

    offset_bytes: int
    i2c: I2cAccess | None
    modbus: ModbusAccess | None
    mapped: MappedAccess | None = None
    spi: SpiAccess | None = None
    line: LineAccess | None = None
    mdio: MdioAccess | None = None


@dataclass(frozen=True, slots=True)
class Param:
    """What the board says of how a chip is wired, as the ohms of a shunt; None: no default, no bound."""

    name: str
    default: Decimal | None
    minimum: Decimal | None
    maximum: Decimal | None
    unit: str | None


@dataclass(frozen=True, slots=True)
class Memory:
    """A range of bytes: `NAME[offset:length]` is a register of its own, of any length.

    Attributes:
        offset: of its first byte.
        size_bytes: of the whole.
        page_bytes: a write stays within a page of so many bytes; 0: no pages.
        write_cycle_ms: how long the device is busy after a write; it does not acknowledge meanwhile.
        read_code: the opcode that reads it, followed by the offset; None: it is read at its offset.
        owner: whether another writer exists on this host.
        busy: register or REG.FIELD that is not 0 while it is busy: then it is not accessed; None: it shows by not
            acknowledging.
    """

    name: str
    offset: int
    size_bytes: int
    page_bytes: int
    write_cycle_ms: int
    access: Access
    read: ReadSpec
    write: WriteSpec
    persistence: Persistence
    read_code: int | None = None
    busy: str | None = None
    owner: Owner = Owner.EXCLUSIVE


@dataclass(frozen=True, slots=True)
class Relock:
    """A write that locks again what a sequence unlocked; it does no harm at any time, and may be sent after a crash.

    Attributes:
        value: the whole raw value.
    """

    register: str
    value: int


@dataclass(frozen=True, slots=True)
class NamedSequence:
    """A sequence of steps that is run, and approved, by its name.

    Attributes:
        params: names that the caller gives values to; a step has them as `"$name"`.
        steps: members as in `sequence.run`, registers named as in this contract.
        result: register whose value is the answer; None: every value that was read is.
        relock: what locks again what it unlocked, should the daemon have died in it.
    """

    name: str
    params: tuple[str, ...]
    steps: tuple[Mapping[str, Any], ...]
    result: str | None
    relock: tuple[Relock, ...] = ()


@dataclass(frozen=True, slots=True)
class Contract:
    """A whole chip.

    Attributes:
        digest: `sha256:…` over the meaning of the file; comments and layout do not count.
        verified: what the contract was checked against, or None; it begins with `a model: ` where that was no part.
        derived_from: cluster → the cluster that its registers were derived from; a review of one covers the other.
        index: where `places_of` keeps its index once it has been made.
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
    derived_from: Mapping[str, str] = field(default_factory=dict)
    memories: Mapping[str, Memory] = field(default_factory=dict)
    params: Mapping[str, Param] = field(default_factory=dict)
    sequences: Mapping[str, NamedSequence] = field(default_factory=dict)
    restart: RestartEvidence | None = None
    mux: Mux | None = None
    index: list[object] = field(default_factory=list, init=False, compare=False, repr=False)

    @property
    def on_a_part(self) -> bool:
        """Whether it was checked on a real part; a model of one (QEMU's, say) is none."""
        return self.verified is not None and not self.verified.startswith(A_MODEL)
