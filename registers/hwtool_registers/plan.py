"""The planner: an access becomes an exact list of transfers. Pure; what must be known is passed in.

Rules
- A banked access is selector writes, the access, and the restoring writes, in this order, under one bus lock. A
  selector that already has its value is not written, except where a bank leaves its selectors as they are
  (`restore = "none"`): other accesses move those, so each access writes them. Restoring goes backwards. `known` holds
  the values of the selectors that are not overwritten as a whole. A bank that is selected `at_once` (Modbus function
  23) is selected and read in one request, where what selects is words in a row: no other master comes in between.
- A field update writes one whole value; the fields left alone get what `judge_update` says. Where a contract names
  addresses that set, clear or toggle, it writes ones there instead: first those that set, then those that clear. A
  Modbus device with function 22 is told which bits to change, and merges them itself.
- A Modbus register of one word is written with function 06 where the device has it, else 16; longer ones with 16, and
  where a device has only 06, word by word: then part of the value can be written and the rest not.
- A register wider than its bus accesses takes several, in the order of their offsets, under one bus lock; one that is
  narrower is taken out of the access that reaches it.
- Where a write is verified by a read that consumes, that read is the end of the plan (`confirm`), sent once; of a
  register that holds an extreme since the last read (relatch) it is sent twice, and the second counts.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import replace

from hwtool_contracts.effects import ReadEffect
from hwtool_contracts.judge_write import UpdateJudgement
from hwtool_contracts.model import READ_FUNCTIONS, Alias, Bank, Contract, Encoding, Opcode, Register, Space
from hwtool_registers.bits import from_bytes, insert, to_bytes
from hwtool_registers.bus import UNLIMITED_BYTES, Line, Message, RegisterRead, RegisterWrite
from hwtool_registers.steps import Piece, Plan, Role, Step


def selectors(contract: Contract, register: Register) -> tuple[Register, ...]:
    """The registers whose values must be known before the register can be planned."""
    if register.bank is None:
        return ()
    bank = contract.banks[register.bank]
    named = [contract.registers[name] for name in dict.fromkeys(s.register for s in bank.select)]
    return tuple(r for r in named if bank.restore != "none" or not _overwritten(bank, r))


def _overwritten(bank: Bank, selector: Register) -> bool:
    """Whether nothing of what a selector held is kept."""
    return all(s.mask == selector.mask for s in bank.select if s.register == selector.name)


def plan_read(
    contract: Contract,
    address: int,
    registers: Sequence[Register],
    known: Mapping[str, int],
    *,
    count: int = 1,
    longest_bytes: int = UNLIMITED_BYTES,
) -> Plan:
    """Read registers, each in transfers of its own, in order; `count` elements of a FIFO in chunks (`chunk_of`)."""
    if count > (chunk := chunk_of(registers[0], longest_bytes)):
        return _plan_burst(contract, address, registers[0], known, count, chunk)
    accesses: list[Step] = []
    pieces = []
    for register in registers:
        transfers, start = read_transfers(contract, address, register, count)
        size_bytes = -1 if register.space is Space.LINE else register.size_bytes * count
        pieces.append(Piece(register.name, len(accesses), start, size_bytes, len(transfers)))
        accesses += [Step(Role.ACCESS, register.name, transfer) for transfer in transfers]
    return Plan(_banked(contract, address, registers[0], accesses, known), tuple(pieces))


def chunk_of(register: Register, longest_bytes: int = UNLIMITED_BYTES) -> int:
    """The elements of a FIFO that one transfer takes at most, of a bus that reads no more than so many bytes at once.

    Whole ones, where one is longer than a read.
    """
    burst = min(register.read.max_burst or 1, max(longest_bytes // max(register.size_bytes, 1), 1))
    several = max((register.read.element_bytes or 0) // register.size_bytes, 1)
    return max(burst // several, 1) * several


def _plan_burst(
    contract: Contract, address: int, register: Register, known: Mapping[str, int], count: int, chunk: int
) -> Plan:
    """More elements than one transfer takes: chunk by chunk, each with its own way into the bank and out of it."""
    steps: list[Step] = []
    chunks = []
    for first in range(0, count, chunk):
        transfers, _ = read_transfers(contract, address, register, min(chunk, count - first))
        accesses = [Step(Role.ACCESS, register.name, transfer) for transfer in transfers]
        part = _banked(contract, address, register, accesses, known)
        steps += part
        chunks.append(len(part))
    piece = Piece(register.name, 0, 0, register.size_bytes * count, sum(s.role is Role.ACCESS for s in steps))
    return Plan(tuple(steps), (piece,), chunks=tuple(chunks))


def plan_block_read(contract: Contract, address: int, registers: Sequence[Register], known: Mapping[str, int]) -> Plan:
    """Read contiguous registers in one transfer; a single one as it must be."""
    if len(registers) == 1:
        return plan_read(contract, address, registers, known)
    total = sum(r.size_bytes for r in registers)
    access = Step(Role.ACCESS, registers[0].name, read_transfer(contract, address, registers[0], total))
    pieces = []
    start = 0
    for register in registers:
        pieces.append(Piece(register.name, 0, start, -1 if register.space is Space.LINE else register.size_bytes))
        start += register.size_bytes
    return Plan(_banked(contract, address, registers[0], [access], known), tuple(pieces))


def plan_write(
    contract: Contract, address: int, values: Sequence[tuple[Register, int]], known: Mapping[str, int]
) -> Plan:
    """Write registers with these raw values, each in transfers of its own, in order."""
    accesses = [
        Step(Role.ACCESS, register.name, transfer)
        for register, raw in values
        for transfer in write_transfers(contract, address, register, to_bytes(register, raw))
    ]
    return Plan(_banked(contract, address, values[0][0], accesses, known))


def plan_block_write(
    contract: Contract, address: int, values: Sequence[tuple[Register, int]], known: Mapping[str, int]
) -> Plan:
    """Write contiguous registers in one transfer."""
    data = b"".join(to_bytes(register, raw) for register, raw in values)
    first = values[0][0]
    accesses = [Step(Role.ACCESS, first.name, t) for t in write_transfers(contract, address, first, data)]
    return Plan(_banked(contract, address, first, accesses, known))


def plan_alias_write(
    contract: Contract, address: int, register: Register, value: int, mask: int, known: Mapping[str, int]
) -> Plan:
    """Change the bits of `mask` to those of `value` by writing ones where they set, clear or, else, toggle.

    For toggling, `value` has the bits that must change.

    Raises:
        ValueError: the register has no such addresses.
    """
    acting: list[tuple[Alias, int]] = []
    if register.set_at is not None and register.clear_at is not None:
        acting = [(register.set_at, value & mask), (register.clear_at, mask & ~value)]
    elif register.toggle_at is not None:
        acting = [(register.toggle_at, value & mask)]
    else:
        raise ValueError(f"{register.name} has no addresses that set, clear or toggle")
    offset_bytes = contract.access.offset_bytes
    accesses = []
    for alias, ones in acting:
        if ones:
            data = to_bytes(register, ones << alias.shift)
            at, offset = _place(contract, address, alias.at, len(data), reads=False)
            write = RegisterWrite(at, register.space, offset, data, offset_bytes, pec=_pec(contract))
            accesses.append(Step(Role.ACCESS, register.name, write))
    return Plan(_banked(contract, address, register, accesses, known))


def plan_merged_write(
    contract: Contract, address: int, register: Register, value: int, kept: int, known: Mapping[str, int]
) -> Plan:
    """Have the device change a word itself: all bits but those of `kept` become those of `value`."""
    masks = to_bytes(register, kept) + to_bytes(register, value & ~kept)
    write = RegisterWrite(address, register.space, register.offset, masks, contract.access.offset_bytes, 22)
    return Plan(_banked(contract, address, register, [Step(Role.ACCESS, register.name, write)], known))


def _banked(
    contract: Contract, address: int, register: Register, accesses: list[Step], known: Mapping[str, int]
) -> tuple[Step, ...]:
    if register.bank is None:
        return tuple(accesses)
    bank = contract.banks[register.bank]
    select: list[Step] = []
    restore: list[Step] = []

    def put(role: Role, name: str, raw: int, steps: list[Step]) -> None:
        target = contract.registers[name]
        (transfer,) = write_transfers(contract, address, target, to_bytes(target, raw))
        steps.append(Step(role, name, transfer))

    left = bank.restore == "none"
    held = {s.register: known.get(s.register, 0) if left else known[s.register] for s in bank.select}
    for selector in bank.select:
        prior = held[selector.register]
        wanted = (prior & ~selector.mask) | selector.value
        if prior == wanted and not left:
            continue
        held[selector.register] = wanted
        put(Role.SELECT, selector.register, wanted, select)
        if bank.restore == "prior":
            put(Role.RESTORE, selector.register, prior, restore)
    restore.reverse()
    for selector in () if isinstance(bank.restore, str) else bank.restore:
        afterwards = (held[selector.register] & ~selector.mask) | selector.value
        if afterwards != held[selector.register]:
            held[selector.register] = afterwards
            put(Role.RESTORE, selector.register, afterwards, restore)
    return (*(_selecting(contract, select, accesses) if bank.at_once else [*select, *accesses]), *restore)


def _selecting(contract: Contract, select: list[Step], accesses: list[Step]) -> list[Step]:
    """The steps up to the last access; selected and read at once where the device can and the words are in a row.

    Source: Modbus Application Protocol V1.1b3, 6.17: it writes before it reads.
    """
    read = accesses[0].transfer
    writes = [s.transfer for s in select if isinstance(s.transfer, RegisterWrite)]
    if not writes or not isinstance(read, RegisterRead) or read.function != READ_FUNCTIONS[Space.HOLDING]:
        return [*select, *accesses]
    data = b"".join(w.data for w in writes)
    ends = [w.offset + len(w.data) // 2 for w in writes]
    apart = any(end != w.offset for end, w in zip(ends, writes[1:], strict=False))
    if apart or any(w.function not in (6, 16) for w in writes):
        return [*select, *accesses]
    at_once = replace(read, function=23, first=(writes[0].offset, data))
    values = [from_bytes(contract.registers[s.register], w.data) for s, w in zip(select, writes, strict=True)]
    selects = tuple(zip((s.register for s in select), values, strict=True))
    return [replace(accesses[0], transfer=at_once, selects=selects), *accesses[1:]]


def _place(contract: Contract, address: int, offset: int, size_bytes: int, *, reads: bool) -> tuple[int, int]:
    """Address and offset in the transfer: bits of an offset may stand in the address, and some may mark a transfer.

    On SPI the bits that mark a read are cleared where it is none, whatever a datasheet prints as the offset.
    """
    i2c, spi = contract.access.i2c, contract.access.spi
    if i2c is None and spi is not None:
        marks = (spi.read_mask if reads else 0) | (spi.increment_mask if size_bytes > 1 else 0)
        return address, offset & ~spi.marks | marks
    if i2c is None:
        return address, offset
    if i2c.offset_bits_in_address:
        address, offset = address | offset >> 8 * contract.access.offset_bytes, offset & _low(contract)
    if i2c.increment_mask and size_bytes > 1:
        offset |= i2c.increment_mask
    return address, offset


def _pec(contract: Contract) -> bool:
    return contract.access.i2c is not None and contract.access.i2c.pec


def _low(contract: Contract) -> int:
    return (1 << 8 * contract.access.offset_bytes) - 1


def _opcode(register: Register, opcode: Opcode) -> bytes:
    return register.offset.to_bytes(opcode.code_bytes, "big") + bytes(opcode.dummy_bytes)


def read_transfers(
    contract: Contract, address: int, register: Register, count: int = 1
) -> tuple[list[RegisterRead | Message | Line], int]:
    """The transfers that read a register (`count` elements of it), and its first byte in what they answer.

    Raises:
        ValueError: a line that cannot be asked for.
    """
    piece, shared = register.piece_bytes, register.shared_bytes
    if piece is not None:
        parts = range(0, register.size_bytes, piece)
        at = [replace(register, offset=register.offset + part) for part in parts]
        return [read_transfer(contract, address, r, piece) for r in at], 0
    if shared is not None:
        start = register.offset % shared
        whole = replace(register, offset=register.offset - start)
        return [read_transfer(contract, address, whole, shared)], start
    return [read_transfer(contract, address, register, register.size_bytes * count)], 0


def with_confirmation(plan: Plan, contract: Contract, address: int, registers: Sequence[Register]) -> Plan:
    """The plan of a write with the reads, as its end, that consume what shows its outcome."""
    confirming = []
    for register in registers:
        transfers, _ = read_transfers(contract, address, register)
        specs = [register.read, *(f.read for f in register.fields.values())]
        relatches = any(ReadEffect.RELATCH in spec.effects for spec in specs)
        confirming += [Step(Role.CONFIRM, register.name, t) for _ in range(2 if relatches else 1) for t in transfers]
    last = max((i for i, s in enumerate(plan.steps) if s.role is Role.ACCESS), default=-1) + 1
    return replace(plan, steps=(*plan.steps[:last], *confirming, *plan.steps[last:]))


def confirmed_values(contract: Contract, name: str, answers: Sequence[bytes]) -> list[int]:
    """The values that the confirming reads of a register took, the one that counts last.

    Raises:
        ValueError: an answer has the wrong length.
    """
    register = contract.registers[name]
    accesses = register.size_bytes // register.piece_bytes if register.piece_bytes is not None else 1
    start = register.offset % register.shared_bytes if register.shared_bytes is not None else 0
    size_bytes = -1 if register.space is Space.LINE else register.size_bytes
    firsts = range(0, len(answers) - accesses + 1, accesses)
    return [from_bytes(register, Piece(name, at, start, size_bytes, accesses).of(answers)) for at in firsts]


def read_transfer(
    contract: Contract, address: int, register: Register, size_bytes: int
) -> RegisterRead | Message | Line:
    """The one transfer that reads `size_bytes` at the register's offset.

    Raises:
        ValueError: a line that cannot be asked for.
    """
    if register.read_code is not None:
        at = register.offset.to_bytes(contract.access.offset_bytes, "big")
        return Message(address, bytes([register.read_code]) + at, size_bytes, _pec(contract))
    if register.opcode is not None:
        code = _opcode(register, register.opcode)
        return Message(address, code, size_bytes, _pec(contract), register.opcode.duplex)
    if register.phrase is not None:
        if register.phrase.query is None:
            raise ValueError(f"{register.name} has no query")
        return Line(register.phrase.query, True)
    function = READ_FUNCTIONS.get(register.space)
    bits = register.width_bits if register.space.of_bits else None
    address, offset = _place(contract, address, register.offset, size_bytes, reads=True)
    offset_bytes, pec, i2c = contract.access.offset_bytes, _pec(contract), contract.access.i2c
    stop = i2c is not None and i2c.read == "stop"
    shorter = register.space is Space.BLOCK and register.quantity.encoding is Encoding.TEXT
    return RegisterRead(address, register.space, offset, size_bytes, offset_bytes, function, bits, pec, stop, shorter)


def write_transfers(
    contract: Contract, address: int, register: Register, data: bytes
) -> list[RegisterWrite | Message | Line]:
    """The transfers that write `data` at the register's offset.

    One; or a page each for a part of a memory, an access each for a register that is wider than the bus's accesses, a
    word each on a Modbus device without function 16.

    Raises:
        ValueError: a line that cannot be set.
    """
    offset_bytes = contract.access.offset_bytes
    modbus = contract.access.modbus
    if register.opcode is not None:
        return [Message(address, _opcode(register, register.opcode) + data, 0, _pec(contract))]
    if register.phrase is not None:
        if register.phrase.set is None:
            raise ValueError(f"{register.name} cannot be set")
        return [Line(register.phrase.set.replace("{value}", data.decode("ascii")), False)]
    if register.space is Space.BLOCK:
        if register.quantity.encoding is Encoding.TEXT:
            data = data.lstrip(b"\0")  # as long as the text
        return [RegisterWrite(address, Space.BLOCK, register.offset, data, offset_bytes, pec=_pec(contract))]
    if register.space is Space.MEMORY or modbus is None:
        return [
            RegisterWrite(
                *_split(contract, address, register, register.offset + at, part),
                part,
                offset_bytes,
                pec=_pec(contract),
            )
            for at, part in _pages(register, data)
        ]
    if register.space is Space.COIL:
        one = register.width_bits == 1 and (5 in modbus.functions or not modbus.functions)
        function, bits = 5 if one else 15, register.width_bits
        atomic = one or modbus.atomic_multi
        return [RegisterWrite(address, Space.COIL, register.offset, data, offset_bytes, function, atomic, bits)]
    functions = modbus.functions or frozenset({6, 16})
    single = len(data) == 2
    if 16 in functions and not (single and 6 in functions):
        atomic = single or modbus.atomic_multi
        return [RegisterWrite(address, register.space, register.offset, data, offset_bytes, 16, atomic)]
    return [
        RegisterWrite(
            address, register.space, register.offset + index, data[2 * index : 2 * index + 2], offset_bytes, 6
        )
        for index in range(len(data) // 2)
    ]


def _split(contract: Contract, address: int, register: Register, offset: int, data: bytes) -> tuple[int, Space, int]:
    """Address, space and offset of a write in a memory space."""
    address, offset = _place(contract, address, offset, len(data), reads=False)
    return address, register.space, offset


def _pages(register: Register, data: bytes) -> list[tuple[int, bytes]]:
    """The data cut where a page or an access ends, each piece with its distance from the first."""
    if register.piece_bytes is not None:
        return [(at, data[at : at + register.piece_bytes]) for at in range(0, len(data), register.piece_bytes)]
    if not register.page_bytes:
        return [(0, data)]
    pieces, at = [], 0
    while at < len(data):
        room = register.page_bytes - (register.offset + at) % register.page_bytes
        pieces.append((at, data[at : at + room]))
        at += room
    return pieces


def updated_value(register: Register, judged: UpdateJudgement, current: int | None, changes: Mapping[str, int]) -> int:
    """The whole value that a field update writes.

    Args:
        current: the register as read; needed if the judgement says so.
        changes: raw value of each named field.

    Raises:
        ValueError: the current value is needed and missing, or a change does not fit its field.
    """
    raw = judged.constant
    if judged.from_current:
        if current is None:
            raise ValueError(f"the current value of {register.name} is needed")
        raw |= current & judged.from_current
    for name, part in changes.items():
        raw = insert(raw, register.fields[name], part)
    return raw


def pieces_of(plan: Plan, contract: Contract, answers: Sequence[bytes]) -> dict[str, list[int]]:
    """The raw values of a read: for each register the elements that came, usually one.

    Raises:
        ValueError: an answer has the wrong length.
    """
    values: dict[str, list[int]] = {}
    for piece in plan.pieces:
        register = contract.registers[piece.register]
        data = piece.of(answers)
        if piece.size_bytes < 0:
            values[piece.register] = [from_bytes(register, data)]
            continue
        size = register.size_bytes
        came = len(answers[piece.access]) if register.space.whole else len(data)
        if came != piece.size_bytes:
            raise ValueError(f"{register.name}: {piece.size_bytes} bytes were asked for, {came} came")
        values[piece.register] = [from_bytes(register, data[i : i + size]) for i in range(0, len(data), size)]
    return values
