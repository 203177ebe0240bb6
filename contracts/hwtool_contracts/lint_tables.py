"""What is odd in the tables of a contract that speak of several registers: groups, memories, sequences, identity."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from typing import Any

from hwtool_contracts.complaint import Complaint
from hwtool_contracts.effects import ReadEffect, WriteEffect
from hwtool_contracts.judge import ReadJudgement, Refused, judge_read
from hwtool_contracts.judge_write import judge_write
from hwtool_contracts.model import Contract, Group, Memory, NamedSequence, Persistence, Register
from hwtool_contracts.places import find_place, find_register

CLEAN_STEPS = ("read", "wait_until", "expect")


def of_tables(contract: Contract) -> Iterator[Complaint]:
    """What is odd in the tables of a contract."""
    for group in contract.groups.values():
        yield from _frozen_too_late(contract, group)
        yield from _stands_still(contract, group)
    for memory in contract.memories.values():
        yield from _wears_out(memory)
        window_ms = memory.write.window_ms
        if window_ms is not None and window_ms < memory.write_cycle_ms:
            text = f"window_ms {window_ms}, and a write keeps it busy for {memory.write_cycle_ms} ms (write_cycle_ms)"
            yield Complaint("looked at too early", memory.name, text)
    for sequence in contract.sequences.values():
        for number, step in enumerate(sequence.steps, 1):
            yield from _never_taken(contract, f"{sequence.name} step {number}", step)
        yield from _left_unlocked(contract, sequence)
    yield from _identity(contract)
    yield from _assumed(contract)


def _members(contract: Contract, group: Group) -> list[Register]:
    return [contract.registers[name] for name in group.members if name in contract.registers]


def _frozen_too_late(contract: Contract, group: Group) -> Iterator[Complaint]:
    """Registers that another one freezes are read after it, or they are of two different moments."""
    members = _members(contract, group)
    at = {register.name: number for number, register in enumerate(members)}
    for latch in contract.registers.values():
        if ReadEffect.LATCH not in latch.read.effects:
            continue
        frozen = [r.name for a in latch.read.affects if (r := find_register(contract, a, latch)) is not None]
        early = [name for name in frozen if name in at and at[name] < at.get(latch.name, len(at))]
        if early:
            text = f"{', '.join(early)} before {latch.name}, whose read freezes it: the latch comes first"
            yield Complaint("read before it is frozen", group.name, text)


def _stands_still(contract: Contract, group: Group) -> Iterator[Complaint]:
    """One transfer does not go on behind a FIFO: a burst there stays at its offset."""
    members = _members(contract, group)
    for register in members[:-1] if group.transfer == "one" else ():
        if ReadEffect.POP in register.read.effects and register.read.max_burst is not None:
            text = f"a transfer stays at {register.name}, a FIFO with max_burst, and never gets to what is behind it"
            yield Complaint("a FIFO in between", group.name, text)


def _wears_out(memory: Memory) -> Iterator[Complaint]:
    """Only what is burnt in takes a while to be written; that wears out, and is a person's to allow."""
    asked = memory.write.approval == "required" or memory.write.irreversible
    if (
        memory.access.writable
        and memory.write_cycle_ms
        and memory.persistence is not Persistence.NONVOLATILE
        and not asked
    ):
        text = f"a write takes {memory.write_cycle_ms} ms, and it has neither persistence = nonvolatile nor approval"
        yield Complaint("wears out, and nobody is asked", memory.name, text)


def _never_taken(contract: Contract, place: str, step: Mapping[str, Any]) -> Iterator[Complaint]:
    """A step that the daemon refuses whenever it is asked."""
    do, name = step.get("do"), step.get("register")
    register = contract.registers.get(name) if isinstance(name, str) else None
    if register is None:
        return
    if do in CLEAN_STEPS:
        judged = judge_read(contract, (register,))
        if isinstance(judged, ReadJudgement) and not judged.clean:
            effects = ", ".join(sorted(judged.effects))
            yield Complaint("a step that is never taken", place, f"{do} of {register.name}, whose read is {effects}")
    if do == "read_effectful":
        judged = judge_read(contract, (register,))
        if isinstance(judged, ReadJudgement) and judged.clean:
            yield Complaint("a step that is never taken", place, f"{do} of {register.name}, a clean read: read")
    if do == "write" and isinstance(step.get("value"), int) and "mask" not in step:
        written = judge_write(contract, register, step["value"])
        if isinstance(written, Refused):
            yield Complaint("a step that is never taken", place, f"{written.message} (rule {written.rule})")


def _left_unlocked(contract: Contract, sequence: NamedSequence) -> Iterator[Complaint]:
    """A sequence that unlocks a register and ends with the write of it: should it stop there, it stays unlocked."""
    guarded = {r.name for r in contract.registers.values() if _unlocked_by(r, sequence.name)}
    written = [str(s.get("register")) for s in sequence.steps if s.get("do") in ("write", "update")]
    keys = [n for n in written if n in contract.registers and _is_key(contract.registers[n])]
    if guarded and keys and not sequence.relock and written[-1] in guarded:
        text = f"{', '.join(dict.fromkeys(keys))} unlocks {written[-1]}, and neither a step nor relock locks it again"
        yield Complaint("left unlocked", sequence.name, text)


def _unlocked_by(register: Register, name: str) -> bool:
    return any(spec.unlock == name for spec in (register.write, *(f.write for f in register.fields.values())))


def _is_key(register: Register) -> bool:
    return any(s.effect is WriteEffect.UNLOCK for s in (register.write, *(f.write for f in register.fields.values())))


def _identity(contract: Contract) -> Iterator[Complaint]:
    """An identity that no chip of the kind can show."""
    identity = contract.identity
    place = None if identity is None else find_place(contract, identity.register)
    if identity is None or place is None or not identity.equals:
        return
    register, part = place
    mask = identity.mask if identity.mask is not None else (part or register).mask
    if part is not None and identity.mask is None:
        mask = (1 << part.width_bits) - 1
    if all(value & ~mask for value in identity.equals):
        text = (
            f"equals {', '.join(map(hex, identity.equals))} has bits outside its mask {mask:#x}: nothing is equal to it"
        )
        yield Complaint("an identity that nothing has", identity.register, text)
        return
    fixed = part is None and not register.access.writable and not register.volatile and register.reset is not None
    if fixed and register.reset_mask is None and all((register.reset or 0) & mask != v for v in identity.equals):
        text = f"it is {register.reset:#x} from reset on and nobody writes it, and the identity wants another value"
        yield Complaint("an identity that nothing has", identity.register, text)


def _assumed(contract: Contract) -> Iterator[Complaint]:
    """An assumption that does not hold of a chip at power-on: every effect is refused until somebody has set it."""
    for assume in contract.assumes:
        register = contract.registers.get(assume.register)
        field = None if register is None else register.fields.get(assume.field)
        if register is None or field is None:
            continue
        at_reset = field.reset if field.reset is not None else None
        if at_reset is None and register.reset is not None and register.reset_mask is None:
            at_reset = field.taken(register.reset)
        if at_reset is not None and at_reset != assume.value:
            text = f"assumed to be {assume.value:#x} ({assume.purpose}), and it is {at_reset:#x} from reset on"
            yield Complaint("not so at power-on", f"{register.name}.{field.name}", text)
