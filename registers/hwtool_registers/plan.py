"""The planner: an access becomes an exact list of transfers. Pure; what must be known is passed in.

Rules
- A banked access is selector writes, the access, and the restoring writes, in this order, under one bus lock. A
  selector that already has its value is not written; restoring goes backwards. `known` holds the selectors' values.
- A field update writes one whole value; the fields left alone get what `judge_update` says.
- A Modbus register of one word is written with function 06 where the device has it, else 16; longer ones with 16, and
  where a device has only 06, word by word: then part of the value can be written and the rest not.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from enum import StrEnum

from hwtool_contracts.judge_write import UpdateJudgement
from hwtool_contracts.model import Contract, Register, Space
from hwtool_registers.bits import from_bytes, insert, to_bytes
from hwtool_registers.bus import RegisterRead, RegisterWrite, Transfer


class Role(StrEnum):
    """What a transfer of a plan is for."""

    SELECT = "select"
    ACCESS = "access"
    RESTORE = "restore"


@dataclass(frozen=True, slots=True)
class Step:
    """One transfer of a plan; `register` is the one it is about."""

    role: Role
    register: str
    transfer: Transfer


@dataclass(frozen=True, slots=True)
class Piece:
    """Where a register's bytes are in the answers: access number, first byte, number of bytes."""

    register: str
    access: int
    start: int
    size_bytes: int


@dataclass(frozen=True, slots=True)
class Plan:
    """An exact list of transfers.

    Attributes:
        steps: in the order they are sent.
        pieces: for reads: where each value is found in the answers to the access steps.
    """

    steps: tuple[Step, ...]
    pieces: tuple[Piece, ...] = ()

    @property
    def accesses(self) -> tuple[Step, ...]:
        """The steps with the effect; the others are selectors."""
        return tuple(s for s in self.steps if s.role is Role.ACCESS)

    @property
    def may_be_partial(self) -> bool:
        """Whether it can stop with part of it done."""
        return len(self.accesses) > 1


def selectors(contract: Contract, register: Register) -> tuple[Register, ...]:
    """The registers whose values must be known before the register can be planned."""
    if register.bank is None:
        return ()
    return tuple(contract.registers[s.register] for s in contract.banks[register.bank].select)


def plan_read(
    contract: Contract, address: int, registers: Sequence[Register], known: Mapping[str, int], *, count: int = 1
) -> Plan:
    """Read registers, each in a transfer of its own, in order; `count` elements of a FIFO in one transfer."""
    accesses = [Step(Role.ACCESS, r.name, read_transfer(contract, address, r, r.size_bytes * count)) for r in registers]
    pieces = tuple(Piece(r.name, index, 0, r.size_bytes * count) for index, r in enumerate(registers))
    return Plan(_banked(contract, address, registers[0], accesses, known), pieces)


def plan_block_read(contract: Contract, address: int, registers: Sequence[Register], known: Mapping[str, int]) -> Plan:
    """Read contiguous registers in one transfer."""
    total = sum(r.size_bytes for r in registers)
    access = Step(Role.ACCESS, registers[0].name, read_transfer(contract, address, registers[0], total))
    pieces = []
    start = 0
    for register in registers:
        pieces.append(Piece(register.name, 0, start, register.size_bytes))
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


def _banked(
    contract: Contract, address: int, register: Register, accesses: list[Step], known: Mapping[str, int]
) -> tuple[Step, ...]:
    if register.bank is None:
        return tuple(accesses)
    bank = contract.banks[register.bank]
    select: list[Step] = []
    restore: list[Step] = []
    for selector in bank.select:
        target = contract.registers[selector.register]
        prior = known[target.name]
        wanted = (prior & ~selector.mask) | selector.value
        if prior == wanted:
            continue
        for role, raw, steps in ((Role.SELECT, wanted, select), (Role.RESTORE, prior, restore)):
            (transfer,) = write_transfers(contract, address, target, to_bytes(target, raw))
            steps.append(Step(role, target.name, transfer))
    return (*select, *accesses, *(reversed(restore) if bank.restore == "prior" else ()))


def read_transfer(contract: Contract, address: int, register: Register, size_bytes: int) -> RegisterRead:
    """The one transfer that reads `size_bytes` at the register's offset."""
    function = {Space.HOLDING: 3, Space.INPUT: 4}.get(register.space)
    return RegisterRead(address, register.space, register.offset, size_bytes, contract.access.offset_bytes, function)


def write_transfers(contract: Contract, address: int, register: Register, data: bytes) -> list[RegisterWrite]:
    """The transfers that write `data` at the register's offset: one, or a word each on a Modbus device without 16."""
    offset_bytes = contract.access.offset_bytes
    modbus = contract.access.modbus
    if register.space is Space.MEMORY or modbus is None:
        return [RegisterWrite(address, register.space, register.offset, data, offset_bytes)]
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
        data = answers[piece.access][piece.start : piece.start + piece.size_bytes]
        size = register.size_bytes
        if len(data) != piece.size_bytes:
            raise ValueError(f"{register.name}: {piece.size_bytes} bytes were asked for, {len(data)} came")
        values[piece.register] = [from_bytes(register, data[i : i + size]) for i in range(0, len(data), size)]
    return values
