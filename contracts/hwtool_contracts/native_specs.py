"""The parts of a contract that say what reading and writing do, read from their tables: effects, provenance, units."""

from __future__ import annotations

from decimal import Decimal
from typing import Any, Final, Literal, cast

from hwtool_contracts.effects import Basis, ReadEffect, WriteEffect
from hwtool_contracts.model import (
    UNKNOWN_READ,
    UNKNOWN_WRITE,
    Encoding,
    Limits,
    Provenance,
    Quantity,
    ReadSpec,
    Signal,
    Verify,
    WriteSpec,
)
from hwtool_contracts.toml_reader import Table

READ_NOT_YET: Final = frozenset({"element_bytes", "ack_by", "reseek", "state"})
WRITE_NOT_YET: Final = frozenset(
    {"triggers", "commit_by", "resets", "readdresses", "absolute", "busy_retry", "irreversible", "unlock"}
    | {"delay_after_ms", "max_rate_per_min"}
)
ENCODINGS_NOT_YET: Final = ("linear11", "linear16", "decimal", "text")


def _provenance(table: Table) -> Provenance:
    basis = table.choice("provenance", Basis) or Basis.ASSERTED
    seen, source = table.text("seen"), table.text("source")
    if seen not in (None, "page", "driver"):
        table.fault("seen", "not in the vocabulary", repr(seen), "page or driver")
        seen = None
    if basis is Basis.REVIEWED and (seen is None or source is None):
        table.fault("provenance", "reviewed without evidence", "reviewed", "seen = page or driver, and source")
    return Provenance(basis, cast(Literal["page", "driver"] | None, seen), source)


def read_spec(owner: Table, inherited: ReadSpec) -> ReadSpec:
    """What the `read` table of a register, field or default says; without one, what is inherited."""
    table = owner.table("read", READ_NOT_YET)
    if table is None:
        return inherited
    effects = table.choices("effects", ReadEffect)
    provenance = _provenance(table) if effects is not None else inherited.provenance
    if provenance.basis is Basis.CONFLICTING:
        effects = frozenset({ReadEffect.UNKNOWN})
    rest: dict[str, Any] = {
        "affects": table.strings("affects"),
        "level": table.text("level"),
        "when_empty": table.text("when_empty"),
        "max_burst": table.integer("max_burst", low=1, high=4096),
        "peek": table.text("peek"),
        "gate": table.text("gate"),
    }
    if effects is None and "effects" not in table:
        table.fault("effects", "key is missing", None, "effects = [...], or no read table at all")
    table.done()
    try:
        return ReadSpec(effects or frozenset({ReadEffect.UNKNOWN}), provenance, **rest)
    except ValueError as error:
        table.fault("effects", str(error), sorted(effects or ()), "a basis that somebody has seen, or unknown")
        return UNKNOWN_READ


def write_spec(owner: Table, inherited: WriteSpec, width_bits: int) -> WriteSpec:
    """What the `write` table of a register, field or default says; without one, what is inherited."""
    is_float = str(owner.data.get("encoding", "")).startswith("float")
    table = owner.table("write", WRITE_NOT_YET)
    if table is None:
        return inherited
    effect = table.choice("effect", WriteEffect, required=True) or WriteEffect.UNKNOWN
    provenance = _provenance(table)
    if provenance.basis is Basis.CONFLICTING:
        effect = WriteEffect.UNKNOWN
    top_value = (1 << width_bits) - 1
    approval = table.text("approval") or "none"
    if approval not in ("none", "required"):
        table.fault("approval", "not in the vocabulary", repr(approval), "none or required")
    rest: dict[str, Any] = {
        "affects": table.strings("affects"),
        "verify": _verify(table, top_value),
        "mask": table.integer("mask", low=1, high=top_value),
        "signals": tuple(_signals(table)),
        "window_ms": table.integer("window_ms", low=1, high=600_000),
        "approval": approval,
        "limits": _limits(table, top_value, is_float),
        "values": table.named_integers("values", top_value),
        "gate": table.text("gate"),
    }
    table.done()
    try:
        return WriteSpec(effect, provenance, **rest)
    except ValueError as error:
        table.fault("effect", str(error), effect, "a basis that somebody has seen, or unknown")
        return UNKNOWN_WRITE


def _verify(table: Table, top_value: int) -> Verify | None:
    if isinstance(table.data.get("verify"), dict):
        inner = Table(
            table.data["verify"],
            f"{table.where}.verify",
            table.file,
            table.faults,
            frozenset({"tolerance", "consumes"}),
        )
        table.raw("verify")
        by = inner.text("by", required=True) or "none"
        verify = (by, inner.text("register"), inner.integer("mask", low=1, high=top_value))
        inner.done()
    else:
        word = table.text("verify")
        if word is None:
            return None
        verify = (word, None, None)
    if verify[0] not in ("read_back", "signal", "none"):
        table.fault("verify", "not in the vocabulary", repr(verify[0]), "read_back, signal or none")
        return None
    return Verify(cast(Literal["read_back", "signal", "none"], verify[0]), verify[1], verify[2])


def _signals(table: Table) -> list[Signal]:
    value = table.raw("signals")
    if value is None:
        return []
    if not isinstance(value, list):
        table.fault("signals", "wrong type", repr(value), "a list of names or of {register, delta | equals}")
        return []
    signals = []
    for index, item in enumerate(value):
        if isinstance(item, str):
            signals.append(Signal(item))
        elif isinstance(item, dict):
            inner = Table(item, f"{table.where}.signals[{index}]", table.file, table.faults)
            name, delta, equals = (
                inner.text("register", required=True),
                inner.integer("delta"),
                inner.integer("equals"),
            )
            inner.done()
            if delta is not None and equals is not None:
                inner.fault("delta", "delta and equals exclude each other", None, "one of them")
            signals.append(Signal(name or "", delta, equals))
        else:
            table.fault("signals", "wrong type in the list", repr(item), "a name or a table")
    return signals


def _limits(table: Table, top_value: int, is_float: bool) -> Limits | None:
    inner = table.table("limits")
    if inner is None:
        return None
    low: Decimal | int | None
    high: Decimal | int | None
    if is_float:
        low, high = inner.decimal("min"), inner.decimal("max")
    else:
        low, high = inner.integer("min", low=0, high=top_value), inner.integer("max", low=0, high=top_value)
    inner.done()
    if low is not None and high is not None and low > high:
        inner.fault("min", "min is above max", low, f"at most {high}")
    return Limits(low, high)


def quantity(table: Table, width_bits: int) -> Quantity:
    """How the bits are to be understood: encoding, scale, unit."""
    if table.data.get("encoding") in ENCODINGS_NOT_YET:
        table.fault("encoding", "in the format, but not supported by this version", table.raw("encoding"), "left out")
        return Quantity()
    encoding = table.choice("encoding", Encoding) or Encoding.UNSIGNED
    if table.flag("signed", False):
        if encoding not in (Encoding.UNSIGNED, Encoding.TWOS_COMPLEMENT):
            table.fault("signed", f"signed does not go with {encoding}", "true", "signed left out")
        encoding = Encoding.TWOS_COMPLEMENT
    wanted = {Encoding.FLOAT32: 32, Encoding.FLOAT64: 64}.get(encoding)
    if wanted is not None and width_bits != wanted:
        table.fault("encoding", f"{encoding} has {wanted} bits", width_bits, f"width_bits = {wanted}")
    scale = table.decimal("scale")
    if scale == 0:
        table.fault("scale", "a scale of zero loses the value", 0, "another number")
    return Quantity(encoding, scale, table.decimal("add"), table.text("unit"))
