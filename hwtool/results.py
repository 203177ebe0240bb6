"""Results: building the one shape from what happened, and back from the row of an operation."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from types import MappingProxyType
from typing import Any, Literal

import msgspec

from hwtool_contracts.effects import ReadEffect
from hwtool_contracts.errors import Code, DomainError, Retry
from hwtool_contracts.judge import ReadJudgement
from hwtool_contracts.messages import Result
from hwtool_contracts.model import Encoding, Field, Quantity, Register
from hwtool_registers.bits import extract, hexed
from hwtool_registers.value import Slot, as_text, decode, json_number

Effects = Literal["applied", "none", "unknown"]
PLAIN = Quantity()
OK_VERDICTS = frozenset({"applied", "satisfied"})


def failed(error: DomainError, effects: Effects = "none", **members: Any) -> Result:
    """A failure; `effects` is what was observed of the device."""
    return Result(status="failed", ok=False, effects=effects, summary=error.message, error=error.as_object(), **members)


def pending(op_id: int, key: str, summary: str) -> Result:
    """Waiting for a person."""
    return Result(
        status="pending_approval",
        ok=False,
        effects="none",
        id=op_id,
        key=key,
        summary=summary,
        approval=op_id,
        retry=Retry.AFTER_APPROVAL.value,
        next={"action": "ask_operator", "approval": op_id},
    )


def in_progress(key: str, op_id: int | None) -> Result:
    """Still at work when the caller stopped waiting; nothing is cancelled."""
    params: dict[str, Any] = {"key": key}
    return Result(
        status="in_progress",
        ok=False,
        effects="unknown",
        id=op_id,
        key=key,
        summary="still at work; ask again with the same key",
        retry=Retry.WAIT_SAME_KEY.value,
        next={"action": "call", "method": "op.wait", "params": params},
    )


def slot_of(place: Register | Field, known: Mapping[str, int]) -> Slot:
    """Where a value stands, with what other registers say of how it is to be understood."""
    quantity = place.quantity
    exponent = scale = None
    if quantity.exponent_from is not None and quantity.exponent_from in known:
        low = known[quantity.exponent_from] & 0x1F
        exponent = low - 0x20 if low & 0x10 else low
    if quantity.scale_from is not None and quantity.scale_from in known:
        scale = quantity.scales.get(known[quantity.scale_from])
    return Slot(place.width_bits, quantity, place.values, exponent, scale)


def shown_value(
    device: str,
    register: Register,
    raw: int,
    judged: ReadJudgement | None = None,
    known: Mapping[str, int] = MappingProxyType({}),
) -> dict[str, Any]:
    """A register's value: raw, scaled or named, with its fields; bytes as hex; text as text, marked `untrusted`.

    `known`: what was read of the registers that say how values are to be understood.
    """
    slot = slot_of(register, known)
    shown: dict[str, Any] = {"register": f"{device}.{register.name}"}
    if register.quantity.encoding is Encoding.BYTES:
        return shown | {"hex": raw.to_bytes(register.size_bytes, "big").hex()} | _judged(judged)
    shown["raw"] = hexed(raw, register.width_bits)
    if register.quantity.encoding is Encoding.TEXT:
        return shown | {"text": as_text(slot, raw), "untrusted": True} | _judged(judged)
    plain = register.fields and register.quantity.scale is None and register.quantity.unit is None
    if not plain:
        shown |= _number(slot, raw)
    fields = {}
    for field in register.fields.values():
        if field.reserved is None and field.access.readable:
            part = extract(raw, field)
            place = slot_of(field, known)
            fields[field.name] = {"raw": hexed(part, field.width_bits), **_number(place, part)}
    if fields:
        shown["fields"] = fields
    return shown | _judged(judged)


def _judged(judged: ReadJudgement | None) -> dict[str, Any]:
    if judged is None:
        return {}
    return {"read": {"effects": sorted(e.value for e in judged.effects), "provenance": judged.basis.value}}


def brief(register: Register, raw: int) -> str:
    """A value as a summary has it: hex, or so many bytes of a memory; never the words that a device says."""
    if register.quantity.encoding is Encoding.TEXT:
        return f"text of {register.size_bytes} bytes"
    if register.quantity.encoding is Encoding.BYTES and register.size_bytes > 16:
        return f"{raw.to_bytes(register.size_bytes, 'big')[:16].hex()}… ({register.size_bytes} bytes)"
    return hexed(raw, register.width_bits)


def sources(registers: Iterable[Register]) -> dict[str, Register]:
    """What must be read to understand values: REG or REG.FIELD, each with a register that names it."""
    found: dict[str, Register] = {}
    for register in registers:
        places: list[Register | Field] = [register, *register.fields.values()]
        for place in places:
            for name in (place.quantity.exponent_from, place.quantity.scale_from):
                if name is not None:
                    found[name] = register
    return found


def errata(registers: Iterable[Register]) -> list[str]:
    """What is known to be wrong with registers and their fields, as warnings; a value that may be torn included."""
    told = []
    for register in registers:
        told += [f"erratum: {register.name}: {register.erratum}"] if register.erratum is not None else []
        fields = register.fields.values()
        told += [f"erratum: {register.name}.{f.name}: {f.erratum}" for f in fields if f.erratum is not None]
        moving = register.volatile or any(f.volatile for f in fields)
        if register.piece_bytes is not None and moving and ReadEffect.LATCH not in register.read.effects:
            several = register.size_bytes // register.piece_bytes
            told.append(f"torn: {register.name} takes {several} accesses, and hardware may change it between them")
    return told


def _number(slot: Slot, raw: int) -> dict[str, Any]:
    if slot.quantity is PLAIN or slot.quantity == PLAIN:  # most fields: no arithmetic, no decimals
        shown: dict[str, Any] = {"value": raw}
    elif slot.quantity.scale_from is not None and slot.scale is None:
        shown = {"value": None}  # which scale it is has not been read, or has no number
    else:
        number = decode(slot, raw)
        shown = {"value": None if number is None else json_number(number)}
    if slot.quantity.unit is not None:
        shown["unit"] = slot.quantity.unit
    if slot.values:
        name = next((n for n, v in slot.values.items() if v == raw), None)
        if name is not None:
            shown["name"] = name
    return shown


STORED = ("status", "ok", "effects", "verdict", "summary", "values", "warnings", "error", "at")
STORED_FACTS = ("contract_digest", "generation", "verified", "simulated", "dry_run")


def to_row(result: Result) -> dict[str, Any]:
    """What the row keeps of a result; the rest is known when it is answered again."""
    whole: dict[str, Any] = msgspec.to_builtins(result)
    return {name: whole[name] for name in (*STORED, *STORED_FACTS)}


def from_row(response: dict[str, Any], op_id: int, key: str, evidence: dict[str, Any] | None) -> Result:
    """The result that a row keeps."""
    return Result(id=op_id, key=key, evidence=evidence, **response)


def settled_error(verdict: str, op_id: int, why: str, *, bound: str | None = None) -> DomainError | None:
    """The error of a verdict that is not ok, None for one that is."""
    match verdict:
        case "applied" | "satisfied":
            return None
        case "not_applied" | "partial":
            return DomainError(Code.NOT_APPLIED, why, after_intent=True, verdict=verdict)
        case "lost":
            return DomainError(Code.VALUE_LOST, why, after_intent=True, op=op_id, bound=bound or "0..1")
        case "superseded" | "abandoned":
            return DomainError(Code.OUTCOME_UNKNOWN, why, op=op_id, stage="settled", evidence=None, settled=True)
        case _:
            return DomainError(Code.INTERNAL, f"no verdict is called {verdict}")
