"""The rules on how a register is reached: the width of its accesses, a consuming verification, confidential values.

Rules
- `access_bits` below the width: the register takes several accesses, in the order of their offsets. Which of them would
  act is not said, so such a register is read without effects (or latches with the first) and stores bit by bit.
- `access_bits` above the width: an access reaches what stands beside the register. It can be read, for what all of them
  promise together; written alone, it would take its neighbours along.
- A verification that consumes reads its register once, as the end of the write: what that read does must be said.
- A confidential value shows in nothing that others may look at: not in a gate, a level, a scale, a bank.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from dataclasses import replace
from typing import Final

from hwtool_contracts.effects import ReadEffect, WriteEffect
from hwtool_contracts.memories import with_memories
from hwtool_contracts.model import Contract, Field, Register, Space, WriteSpec
from hwtool_contracts.places import cells, find_place, overlapping

AddFault = Callable[[str, str, str, object, str], None]

IN_PIECES_READ: Final = frozenset({ReadEffect.NONE, ReadEffect.LATCH, ReadEffect.UNKNOWN})
ANY_WRITE_ACTS: Final = frozenset(
    {
        WriteEffect.CLEAR,
        WriteEffect.SET,
        WriteEffect.COMMAND,
        WriteEffect.PUSH,
        WriteEffect.ADVANCE,
        WriteEffect.UNLOCK,
        WriteEffect.STAGED,
    }
)
CONSUMING: Final = frozenset(
    {ReadEffect.CLEAR, ReadEffect.RELATCH, ReadEffect.POP, ReadEffect.ACK, ReadEffect.ADVANCE, ReadEffect.NONE}
)


def check_reach(contract: Contract, fault: AddFault) -> None:
    """Record what breaks the rules above, each with table, key, rule, what was found and what is wanted."""
    for register in contract.registers.values():
        table = f"registers.{register.name}"
        if register.access_bits is not None:
            _width(contract, table, register, fault)
        for key, spec in _writes(register):
            if spec.verify is not None and spec.verify.consumes:
                _consumed(contract, table, key, register, spec, fault)
        _kept(contract, table, register, fault)
    _kept_in_tables(contract, fault)
    _widths_in_groups(contract, fault)
    _not_in_memories(contract, fault)


def _writes(register: Register) -> Iterator[tuple[str, WriteSpec]]:
    yield "write", register.write
    for field in register.fields.values():
        yield f"fields.{field.name}.write", field.write


def _width(contract: Contract, table: str, register: Register, fault: AddFault) -> None:
    bits, width = register.access_bits or 0, register.width_bits
    if register.space is not Space.MEMORY or len(cells(contract, register)) != register.size_bytes:
        fault(table, "access_bits", "only where every byte has an offset", bits, "the key left out")
        return
    if register.crc is not None or register.aliases or register.write_mask:
        fault(table, "access_bits", "not beside CRCs, aliases or a mask half", bits, "the key left out")
    if register.shared_bytes is not None:
        inside = register.offset % register.shared_bytes
        if inside + register.size_bytes > register.shared_bytes:
            fault(table, "access_bits", "no one access reaches all of it", bits, "an offset inside one access")
        if any(ReadEffect.POP in spec.effects for spec in (register.read, *(f.read for f in register.fields.values()))):
            wanted = "a register of the whole width: its neighbours would come as elements"
            fault(table, "access_bits", "wider than an element that reading pops", bits, wanted)
        if register.access.writable:
            wanted = "a register of the whole width, with this one as a field of it"
            fault(table, "access_bits", "a write would take its neighbours along", bits, wanted)
    if register.piece_bytes is not None:
        _in_pieces(contract, table, register, fault)
    elif width % 8:
        fault(table, "access_bits", "no whole bytes", width, "a multiple of 8")


def _in_pieces(contract: Contract, table: str, register: Register, fault: AddFault) -> None:
    bits, width = register.access_bits or 0, register.width_bits
    if width % bits:
        fault(table, "width_bits", "no whole accesses", width, f"a multiple of {bits}")
    reads = [register.read, *(f.read for f in register.fields.values())] if register.access.readable else []
    acting = sorted({e for spec in reads for e in spec.effects} - IN_PIECES_READ)
    if acting:
        wanted = "effects none or latch"
        fault(table, "access_bits", "which of its accesses acts is not said", ", ".join(acting), wanted)
    if not register.access.writable:
        return
    specs = [spec for _, spec in _writes(register)]
    words = sorted({s.effect.value for s in specs if s.effect in ANY_WRITE_ACTS})
    words += ["triggers"] if any(s.triggers or s.resets or s.readdresses for s in specs) else []
    if words:
        fault(table, "access_bits", "which of its accesses acts is not said", ", ".join(words), "effect store, or bits")
    selects = [s.register for bank in contract.banks.values() for s in bank.select]
    if register.name in selects:
        fault(table, "access_bits", "a selector is written in one access", bits, f"access_bits = {width}")


def _consumed(contract: Contract, table: str, key: str, register: Register, spec: WriteSpec, fault: AddFault) -> None:
    """The register that a verification consumes: it can be read in the same plan, and what that does is known."""
    verify = spec.verify
    place = None if verify is None or verify.register is None else find_place(contract, verify.register, register)
    if verify is None or place is None:
        fault(table, f"{key}.verify", "no such register", verify and verify.register, "a declared name")
        return
    shown, field = place
    reached = overlapping(contract, shown)
    own = {e for s in (shown.read, *(f.read for f in shown.fields.values())) for e in s.effects}
    near = [r.read for r in reached if r.access.readable]
    near += [f.read for r in reached for f in r.fields.values() if f.access.readable]
    effects = own | {e for spec in near for e in spec.effects}
    others = [r.name for r in reached if r is not shown and r.access.readable and r.read.effects != {ReadEffect.NONE}]
    if field is not None:
        fault(table, f"{key}.verify", "a read takes the whole register", verify.register, "the register, with mask")
    elif not shown.access.readable:
        fault(table, f"{key}.verify", "cannot be read", shown.name, "a readable register")
    elif others:
        fault(table, f"{key}.verify", "its read reaches others, which it consumes", ", ".join(others), "one by itself")
    elif not own & (CONSUMING - {ReadEffect.NONE}):
        fault(table, f"{key}.verify", "its read consumes nothing", shown.name, "consumes left out")
    elif effects - CONSUMING:
        words = ", ".join(sorted(effects - CONSUMING))
        fault(table, f"{key}.verify", "what its read does is not only to consume", words, "clear, relatch, pop, ack …")
    elif shown.bank not in (None, register.bank):
        fault(table, f"{key}.verify", "stands in another bank", shown.bank, "a register that answers beside it")


def _kept(contract: Contract, table: str, register: Register, fault: AddFault) -> None:
    """What a register's own tables name shows in its refusals and values: nothing confidential, unless it is too.

    One that can only be written is open to everybody who may write it, confidential or not.
    """
    if register.is_confidential and register.access.readable:
        return
    named: list[tuple[str, str | None]] = []
    places: list[Register | Field] = [register, *register.fields.values()]
    for place in places:
        named += [("exponent_from", place.quantity.exponent_from), ("scale_from", place.quantity.scale_from)]
        named += [(f"read.{k}", getattr(place.read, k)) for k in ("level", "peek", "gate", "state")]
        named += [("write.gate", place.write.gate)]
        named += [("write.signals", s.register) for s in place.write.signals]
        named += [("write.verify", None if place.write.verify is None else place.write.verify.register)]
    for key, name in named:
        if name is not None and _is_confidential(contract, name, register):
            fault(table, key, "would show a confidential value", name, "a register that everybody may see")


def _kept_in_tables(contract: Contract, fault: AddFault) -> None:
    for bank in contract.banks.values():
        for selector in bank.select:
            if _is_confidential(contract, selector.register, None):
                fault(f"banks.{bank.name}", "select", "would show a confidential value", selector.register, "another")
    for assume in contract.assumes:
        if _is_confidential(contract, assume.register, None):
            fault("assume", "register", "would show a confidential value", assume.register, "another")
    named = () if contract.identity is None else (contract.identity.register, contract.identity.serial)
    for key, name in zip(("register", "serial"), named, strict=False):
        if name is not None and _is_confidential(contract, name, None):
            fault("identity", key, "would show a confidential value", name, "another")
    if contract.restart is not None and _is_confidential(contract, contract.restart.place, None):
        place = contract.restart.place
        fault("restart", contract.restart.by, "would keep a confidential value on record", place, "another")


def _widths_in_groups(contract: Contract, fault: AddFault) -> None:
    for group in contract.groups.values():
        for name in group.members if group.transfer == "one" else ():
            register = contract.registers.get(name)
            if register is not None and register.access_bits is not None:
                wanted = 'transfer = "each"'
                fault(f"groups.{group.name}", "transfer", "the bus lets no other width through", name, wanted)


def _not_in_memories(contract: Contract, fault: AddFault) -> None:
    """A range of a memory is read as bytes, whatever registers stand there."""
    spans = [(m.name, range(m.offset, m.offset + m.size_bytes)) for m in contract.memories.values() if not m.read_code]
    for register in contract.registers.values() if spans else ():
        if register.space is not Space.MEMORY or not register.sensitive:
            continue
        for name, span in spans:
            if any(cell in span for cell in cells(contract, register)):
                word = "confidential" if register.is_confidential else "sensitive"
                fault(f"memories.{name}", "", f"holds a {word} register", register.name, "a range beside it")


def _is_confidential(contract: Contract, name: str, beside: Register | None) -> bool:
    place = find_place(contract, name.partition("=")[0].strip(), beside)
    return place is not None and any(r.is_confidential for r in overlapping(contract, place[0]))


def with_secrecy(contract: Contract) -> Contract:
    """The contract in which everything that reaches a sensitive register is sensitive too; confidential ones are.

    Records are redacted by that word, and another name of the same bits would show them.
    """
    if not any(r.sensitive for r in contract.registers.values()):
        return contract
    open_ones = [r for r in contract.registers.values() if not r.sensitive]
    hidden = {r.name for r in open_ones if any(o.sensitive for o in overlapping(contract, r))}
    if not hidden:
        return contract
    registers = {n: replace(r, sensitive=True) if n in hidden else r for n, r in contract.registers.items()}
    return replace(contract, registers=with_memories(registers, contract.memories, contract.access))
