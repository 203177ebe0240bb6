"""Results: building the one shape from what happened, and back from the row of an operation."""

from __future__ import annotations

from typing import Any, Literal

import msgspec

from hwtool_contracts.errors import Code, DomainError, Retry
from hwtool_contracts.judge import ReadJudgement
from hwtool_contracts.messages import Result
from hwtool_contracts.model import Quantity, Register
from hwtool_registers.bits import extract, hexed
from hwtool_registers.value import Slot, decode, json_number

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


def shown_value(device: str, register: Register, raw: int, judged: ReadJudgement | None = None) -> dict[str, Any]:
    """A register's value: raw, scaled or named, with its fields."""
    slot = Slot(register.width_bits, register.quantity, register.values)
    shown: dict[str, Any] = {"register": f"{device}.{register.name}", "raw": hexed(raw, register.width_bits)}
    plain = register.fields and register.quantity.scale is None and register.quantity.unit is None
    if not plain:
        shown |= _number(slot, raw)
    fields = {}
    for field in register.fields.values():
        if field.reserved is None and field.access.readable:
            part = extract(raw, field)
            place = Slot(field.width_bits, field.quantity, field.values)
            fields[field.name] = {"raw": hexed(part, field.width_bits), **_number(place, part)}
    if fields:
        shown["fields"] = fields
    if judged is not None:
        shown["read"] = {"effects": sorted(e.value for e in judged.effects), "provenance": judged.basis.value}
    return shown


def _number(slot: Slot, raw: int) -> dict[str, Any]:
    if slot.quantity is PLAIN or slot.quantity == PLAIN:  # most fields: no arithmetic, no decimals
        shown: dict[str, Any] = {"value": raw}
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
