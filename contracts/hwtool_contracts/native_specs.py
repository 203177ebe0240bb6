"""The parts of a contract that say what reading and writing do, read from their tables: effects, provenance, units."""

from __future__ import annotations

from decimal import Decimal
from typing import Any, Final, Literal, cast

from hwtool_contracts.effects import Basis, ReadEffect, WriteEffect
from hwtool_contracts.model import (
    UNKNOWN_READ,
    UNKNOWN_WRITE,
    BusyRetry,
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

PLAIN: Final = Quantity()
QUANTITY_KEYS: Final = frozenset(
    {"encoding", "signed", "scale", "add", "unit", "exponent_from", "scale_from", "scales", "scale_param"}
)
WIDEST: Final = (1 << 64) - 1


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
    table = owner.table("read")
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
        "state": table.text("state"),
        "ack_by": table.strings("ack_by"),
        "reseek": table.text("reseek"),
        "element_bytes": table.integer("element_bytes", low=1, high=64),
    }
    if effects is None and "effects" not in table:
        table.fault("effects", "key is missing", None, "effects = [...], or no read table at all")
    table.done()
    try:
        return ReadSpec(effects or frozenset({ReadEffect.UNKNOWN}), provenance, **rest)
    except ValueError as error:
        table.fault("effects", str(error), sorted(effects or ()), "a basis that somebody has seen, or unknown")
        return UNKNOWN_READ


def write_spec(owner: Table, inherited: WriteSpec, width_bits: int, known: Quantity = PLAIN) -> WriteSpec:
    """What the `write` table of a register, field or default says; without one, what is inherited.

    `known`: how the value is understood so far, where the table does not say it anew.
    """
    is_float = str(owner.data.get("encoding", known.encoding)).startswith("float")
    table = owner.table("write")
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
        "triggers": table.strings("triggers"),
        "commit_by": table.text("commit_by"),
        "resets": _resets(table),
        "readdresses": bool(table.flag("readdresses", False)),
        "absolute": bool(table.flag("absolute", False)),
        "irreversible": bool(table.flag("irreversible", False)),
        "busy_retry": _busy_retry(table),
        "delay_after_ms": table.integer("delay_after_ms", low=1, high=600_000),
        "max_rate_per_min": table.integer("max_rate_per_min", low=1, high=6000),
        "unlock": table.text("unlock"),
    }
    table.done()
    try:
        return WriteSpec(effect, provenance, **rest)
    except ValueError as error:
        table.fault("effect", str(error), effect, "a basis that somebody has seen, or unknown")
        return UNKNOWN_WRITE


def _resets(table: Table) -> Literal["device"] | None:
    word = table.text("resets")
    if word not in (None, "device"):
        table.fault("resets", "not in the vocabulary", repr(word), "device, or the key left out")
    return "device" if word == "device" else None


def _busy_retry(table: Table) -> BusyRetry | None:
    inner = table.table("busy_retry")
    if inner is None:
        return None
    attempts = inner.integer("attempts", low=2, high=1000, required=True)
    interval_ms = inner.integer("interval_ms", low=1, high=10_000, required=True)
    inner.done()
    return BusyRetry(attempts or 2, interval_ms or 1)


def _verify(table: Table, top_value: int) -> Verify | None:
    if isinstance(table.data.get("verify"), dict):
        inner = Table(
            table.data["verify"],
            f"{table.where}.verify",
            table.file,
            table.faults,
        )
        table.raw("verify")
        by = inner.text("by", required=True) or "none"
        elsewhere = inner.text("register")
        # in the register that is read back, which may be wider than the field that is written
        mask = inner.integer("mask", low=1, high=top_value if elsewhere is None else WIDEST)
        tolerance = inner.integer("tolerance", low=1, high=top_value) or 0
        consumes = bool(inner.flag("consumes", False))
        inner.done()
        if consumes and (by != "read_back" or elsewhere is None):
            inner.fault("consumes", "speaks of the register that shows it", by, "by = read_back, and its register")
        if tolerance and by != "read_back":
            inner.fault("tolerance", "only a read-back has one", by, "by = read_back")
        verify = (by, elsewhere, mask)
    else:
        word = table.text("verify")
        if word is None:
            return None
        verify, tolerance, consumes = (word, None, None), 0, False
    if verify[0] not in ("read_back", "signal", "none"):
        table.fault("verify", "not in the vocabulary", repr(verify[0]), "read_back, signal or none")
        return None
    return Verify(cast(Literal["read_back", "signal", "none"], verify[0]), verify[1], verify[2], tolerance, consumes)


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


def quantity(table: Table, width_bits: int, inherited: Quantity = PLAIN) -> Quantity:
    """How the bits are to be understood: encoding, scale, unit; what is not stated stays as it was."""
    if not QUANTITY_KEYS & table.data.keys():
        return inherited
    encoding = table.choice("encoding", Encoding) or inherited.encoding
    if table.flag("signed", False):
        if encoding not in (Encoding.UNSIGNED, Encoding.TWOS_COMPLEMENT):
            table.fault("signed", f"signed does not go with {encoding}", "true", "signed left out")
        encoding = Encoding.TWOS_COMPLEMENT
    wanted = {Encoding.FLOAT32: 32, Encoding.FLOAT64: 64, Encoding.LINEAR11: 16, Encoding.LINEAR16: 16}.get(encoding)
    if wanted is not None and width_bits != wanted:
        table.fault("encoding", f"{encoding} has {wanted} bits", width_bits, f"width_bits = {wanted}")
    scale = table.decimal("scale") if "scale" in table else inherited.scale
    if scale == 0:
        table.fault("scale", "a scale of zero loses the value", 0, "another number")
    exponent_from = table.text("exponent_from") or inherited.exponent_from
    if (encoding is Encoding.LINEAR16) is not (exponent_from is not None):
        wanted_here = "exponent_from with linear16, and with nothing else"
        table.fault("exponent_from", "the exponent of linear16 stands in another register", exponent_from, wanted_here)
    if encoding is Encoding.BYTES:
        table.fault("encoding", "bytes are what a memory holds", encoding, "a [memories.NAME], or text")
    scale_from = table.text("scale_from") or inherited.scale_from
    scales = _scales(table) or dict(inherited.scales)
    if (scale_from is not None) is not bool(scales):
        table.fault("scale_from", "a scale for each value", scale_from, "scale_from and scales, or neither")
    if scale_from is not None and scale is not None:
        table.fault("scale", "there are two scales", scale, "scale, or scale_from with scales")
    return Quantity(
        encoding,
        scale,
        table.decimal("add") if "add" in table else inherited.add,
        table.text("unit") or inherited.unit,
        exponent_from,
        scale_from,
        scales,
        table.text("scale_param") or inherited.scale_param,
    )


def _scales(table: Table) -> dict[int, Decimal]:
    """The scale for each raw value of the register that chooses it."""
    inner = table.table("scales")
    if inner is None:
        return {}
    found: dict[int, Decimal] = {}
    for key in inner.data:
        scale = inner.decimal(key)
        try:
            number = int(key, 0)
        except ValueError:
            inner.fault(key, "not a raw value", key, "a number as key, 0 or 0x03")
            continue
        if scale is not None and scale != 0:
            found[number] = scale
    inner.done()
    return found
