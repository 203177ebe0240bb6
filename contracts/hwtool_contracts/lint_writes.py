"""What is odd in what a contract says of writing a register: words that cannot both be meant."""

from __future__ import annotations

import re
from collections.abc import Iterator
from decimal import Decimal
from typing import Final

from hwtool_contracts.complaint import SURE, Complaint, named_places
from hwtool_contracts.effects import WRITE_POLICY, Basis, WriteEffect
from hwtool_contracts.model import Contract, Encoding, Field, Persistence, Register, WriteSpec
from hwtool_contracts.places import find_place, gate_of
from hwtool_contracts.suspicion import WRITE_TEXTS

FLOATS: Final = (Encoding.FLOAT32, Encoding.FLOAT64)
FOR_GOOD: Final = re.compile(
    r"\bOTP\b|\bone[- ]time[- ]programmable\b|\be-?fuses?\b|\bnon-?volatile\b|\bEEPROM\b|\bcannot be (?:undone|changed"
    r" again|erased)\b|\birreversibl\w+",
    re.IGNORECASE,
)
FOR_GOOD_NAME: Final = re.compile(r"(?:.*_)?(?:OTP|E?FUSE)(?:_.*|\d*)", re.IGNORECASE)


def of_write(contract: Contract, register: Register) -> Iterator[Complaint]:
    """What is odd in how a register is written."""
    if not register.access.writable:
        return
    for name, place in named_places(register):
        if isinstance(place, Field) and (not place.access.writable or place.reserved is not None):
            continue
        yield from _too_plain(register, name, place)
        yield from _values(name, place)
        yield from _time(name, place.write)
        yield from _looked_at(contract, register, name, place)
        yield from _gate(contract, register, name, place.write)
    yield from _for_good(register)
    yield from _masked_out(register)


def _too_plain(register: Register, name: str, place: Register | Field) -> Iterator[Complaint]:
    """A write that is called a store although its text says that ones clear."""
    whole = isinstance(place, Register)
    if place.write.effect is not WriteEffect.STORE or place.write.provenance.basis is Basis.GENERATED:
        return
    if whole and register.fields:
        return  # its text speaks of its fields, which say themselves what they are
    for weight, reason, pattern in WRITE_TEXTS:
        hit = pattern.search(place.description)
        if weight >= SURE and hit is not None:
            yield Complaint("a store against its text", name, f"write store, and {reason} (“{hit[0][:60]}”)")
            return


def _values(name: str, place: Register | Field) -> Iterator[Complaint]:
    """Named values that may not be written, and limits or a mask that leave nothing."""
    spec, mask = place.write, place.write.mask
    if place.quantity.encoding in FLOATS:
        return
    low, high = (None, None) if spec.limits is None else (spec.limits.minimum, spec.limits.maximum)

    def admitted(value: int) -> bool:
        inside = (low is None or value >= low) and (high is None or value <= high)
        return inside and (mask is None or not value & ~mask)

    refused = [f"{word} = {value:#x}" for word, value in spec.values.items() if not admitted(value)]
    if refused:
        yield Complaint("named, and refused", name, f"{', '.join(refused)}: its own mask or limits forbid it")
    elif low is not None and mask is not None and Decimal(low) > mask:
        yield Complaint("nothing may be written", name, f"at least {low} by its limits, at most {mask:#x} by its mask")


def _time(name: str, spec: WriteSpec) -> Iterator[Complaint]:
    """A consequence that is waited for shorter than the device is left alone."""
    if spec.window_ms is not None and spec.delay_after_ms is not None and spec.window_ms < spec.delay_after_ms:
        text = f"window_ms {spec.window_ms}, and it is left alone for {spec.delay_after_ms} ms (delay_after_ms)"
        yield Complaint("looked at too early", name, text)


def _looked_at(contract: Contract, register: Register, name: str, place: Register | Field) -> Iterator[Complaint]:
    """A verification or a signal that can show nothing."""
    for signal in place.write.signals:
        shown = find_place(contract, signal.register, register)
        bits = 64 if shown is None else (shown[0] if shown[1] is None else shown[1]).width_bits
        if signal.delta is not None and signal.delta % (1 << bits) == 0:
            yield Complaint(
                "a signal that never shows", name, f"{signal.register} by {signal.delta}: that is no change"
            )
        if signal.equals is not None and signal.equals >> bits:
            text = f"{signal.register} = {signal.equals:#x} does not fit its {bits} bits"
            yield Complaint("a signal that never shows", name, text)
    verify = place.write.verify
    if verify is None or verify.by != "read_back":
        return
    target = find_place(contract, verify.register or register.name, register)
    if target is None:
        return
    holder, part = target
    here = verify.register is None
    width = place.width_bits if here else (holder if part is None else part).width_bits
    if verify.mask is not None and verify.mask >> width:
        text = f"mask {verify.mask:#x} of its verification is wider than {verify.register or name} ({width} bits)"
        yield Complaint("a mask that does not fit", name, text)
    written = place.width_bits and (place.write.mask if place.write.mask is not None else (1 << place.width_bits) - 1)
    if here and isinstance(place, Register) and register.fields:
        written = sum(1 << bit for bit in range(register.width_bits) if _stored(register, bit))
    if here and verify.mask is not None and not verify.mask & written:
        text = f"mask {verify.mask:#x} of its verification has no bit that is written ({written:#x})"
        yield Complaint("verified by nothing", name, text)


def _stored(register: Register, bit: int) -> bool:
    """Whether a bit belongs to a field that is written, or to none."""
    fields = [f for f in register.fields.values() if f.mask >> bit & 1]
    return not fields or any(f.access.writable and f.reserved is None for f in fields)


def _gate(contract: Contract, register: Register, name: str, spec: WriteSpec) -> Iterator[Complaint]:
    """A gate that is shut after a reset, and that nothing moves."""
    if spec.gate is None:
        return
    text, value = gate_of(spec.gate)
    found = find_place(contract, text, register)
    if found is None:
        return
    holder, part = found
    at_reset = holder.reset if part is None or part.reset is None else part.placed(part.reset)
    if (part or holder).access.writable or (part or holder).volatile or at_reset is None:
        return
    held = at_reset if part is None else part.taken(at_reset)
    if held != value if value is not None else held == 0:
        yield Complaint("a gate that nothing opens", name, f"{spec.gate}: it holds {held:#x}, and nobody can change it")


def _for_good(register: Register) -> Iterator[Complaint]:
    """A write that its text or its name calls permanent, and that nobody is asked for."""
    specs = [register.write, *(f.write for f in register.fields.values())]
    asked = any(
        s.approval == "required" or s.irreversible or s.readdresses or WRITE_POLICY[s.effect].always_approval
        for s in specs
    )
    if asked or register.persistence is Persistence.NONVOLATILE or register.write.provenance.basis is Basis.SILENT:
        return
    last = register.name.rpartition(".")[2].partition("[")[0]
    hit = FOR_GOOD.search(register.description) or FOR_GOOD_NAME.fullmatch(last)
    if hit is not None:
        text = f"it says “{hit[0][:60]}”, and has neither approval = required nor persistence = nonvolatile"
        yield Complaint("permanent, and nobody is asked", register.name, text)


def _masked_out(register: Register) -> Iterator[Complaint]:
    """Fields that can be written, at bits that the register's own mask forbids."""
    mask = register.write.mask
    for field in register.fields.values() if mask is not None else ():
        if mask is not None and field.access.writable and field.reserved is None and field.mask & ~mask:
            text = f"bits {field.mask & ~mask:#x} of it are outside the register's write mask {mask:#x}"
            yield Complaint("masked out", f"{register.name}.{field.name}", text)
