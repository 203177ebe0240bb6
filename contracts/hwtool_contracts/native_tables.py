"""The tables of a native contract that speak of several registers: banks, groups, assumptions, identity."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import replace
from typing import Final, Literal, cast

from hwtool_contracts.model import (
    A_MODEL,
    Assume,
    Bank,
    Group,
    Identity,
    Mux,
    NamedSequence,
    Param,
    Register,
    Relock,
    RestartEvidence,
    Selector,
)
from hwtool_contracts.toml_reader import Table

INDEX: Final = "@index"
WIDEST_MASK: Final = (1 << 64) - 1
Restore = Literal["prior", "none"] | tuple[Selector, ...]


def indexed_banks(top: Table) -> frozenset[str]:
    """Names of the banks that an element of a cluster selects by its number."""
    tables = top.data.get("banks")
    found = set()
    for name, table in (tables if isinstance(tables, dict) else {}).items():
        select = table.get("select") if isinstance(table, dict) else None
        if any(isinstance(s, dict) and s.get("value") == INDEX for s in (select if isinstance(select, list) else [])):
            found.add(name)
    return frozenset(found)


def banks(top: Table, registers: Mapping[str, Register]) -> dict[str, Bank]:
    """The `[banks.N]` of a file; one with `"@index"` is as many as its cluster has elements."""
    used = {r.bank for r in registers.values() if r.bank is not None}
    found: dict[str, Bank] = {}
    for name, table in top.tables("banks"):
        selectors: list[Selector] = []
        by_index: list[int] = []
        for inner in table.array("select"):
            register = inner.text("register", required=True) or ""
            indexed = inner.data.get("value") == INDEX
            value = 0 if inner.raw("value") == INDEX else inner.integer("value", low=0, required=True)
            mask = inner.integer("mask", low=1)
            known = registers.get(register)
            full = known.mask if known else WIDEST_MASK
            selectors.append(Selector(register, value or 0, mask if mask is not None else full))
            if (value or 0) & ~selectors[-1].mask:
                inner.fault("value", "has bits outside the mask", hex(value or 0), hex(selectors[-1].mask))
            if indexed:
                by_index.append(len(selectors) - 1)
            inner.done()
        if not selectors:
            table.fault("select", "no selector", None, "at least one {register, value, mask}")
        kept = _restore(table, selectors, registers)
        at_once = bool(table.flag("at_once", False))
        if by_index:
            found |= _indexed(name, selectors, by_index, kept, used, at_once)
            _check_indices(table, name, found, by_index)
        else:
            found[name] = Bank(name, tuple(selectors), kept, at_once)
        table.done()
    return found


def _restore(table: Table, selectors: list[Selector], registers: Mapping[str, Register]) -> Restore:
    """What becomes of the selectors afterwards: a word, or values for some of them."""
    given = table.data.get("restore")
    if not isinstance(given, list):
        word = table.text("restore") or "prior"
        if word not in ("prior", "none"):
            table.fault(
                "restore", "not in the vocabulary", repr(word), '"prior", "none" or a list of { register, value }'
            )
        return cast(Literal["prior", "none"], word)
    found = []
    for inner in table.array("restore"):
        register = inner.text("register", required=True) or ""
        value = inner.integer("value", low=0, required=True) or 0
        known = registers.get(register)
        mask = inner.integer("mask", low=1) or (known.mask if known else WIDEST_MASK)
        if value & ~mask:
            inner.fault("value", "has bits outside the mask", hex(value), hex(mask))
        if register not in (s.register for s in selectors):
            wanted = ", ".join(s.register for s in selectors)
            inner.fault("register", "was not selected by, so it is not known", register, f"one of {wanted}")
        found.append(Selector(register, value, mask))
        inner.done()
    if not found:
        table.fault("restore", "nothing to set back", "[]", '"none"')
    return tuple(found)


def _indexed(
    name: str, selectors: list[Selector], by_index: list[int], restore: Restore, used: set[str], at_once: bool
) -> dict[str, Bank]:
    """A bank for each element of the cluster that uses it."""
    found = {}
    for full in sorted(used):
        if not full.startswith(f"{name}[") or not full.endswith("]"):
            continue
        index = int(full[len(name) + 1 : -1])
        chosen = [replace(s, value=index) if i in by_index else s for i, s in enumerate(selectors)]
        found[full] = Bank(full, tuple(chosen), restore, at_once)
    return found


def _check_indices(table: Table, name: str, found: Mapping[str, Bank], by_index: list[int]) -> None:
    """The number of each element fits the selector that it is written to."""
    for full, bank in found.items():
        for place in by_index if full.startswith(f"{name}[") else ():
            selector = bank.select[place]
            if selector.value & ~selector.mask:
                table.fault("select", "the mask has no room for the element's number", full, hex(selector.mask))
                return


def groups(top: Table) -> dict[str, Group]:
    """The `[groups.N]` of a file."""
    found = {}
    for name, table in top.tables("groups"):
        members = _ordered(table, table.strings("members", required=True))
        transfer = table.text("transfer") or "each"
        if transfer not in ("one", "each"):
            table.fault("transfer", "not in the vocabulary", repr(transfer), "one or each")
        found[name] = Group(name, members, cast(Literal["one", "each"], transfer))
        table.done()
    return found


def _ordered(table: Table, members: tuple[str, ...]) -> tuple[str, ...]:
    """The members in the order in which they are accessed: as they stand, or as `order` names them."""
    order = table.strings("order")
    if not order:
        return members
    if sorted(order) != sorted(members):
        table.fault("order", "not the members", ", ".join(order), "each member once, in the order of access")
        return members
    if table.data.get("transfer") == "one":
        table.fault("order", "one transfer has the order of the offsets", None, "the key left out")
    return order


def assumes(top: Table) -> tuple[Assume, ...]:
    """The `[[assume]]` of a file."""
    found = []
    for table in top.array("assume"):
        register, field = table.text("register", required=True), table.text("field", required=True)
        value, purpose = table.integer("value", low=0, required=True), table.text("for", required=True)
        found.append(Assume(register or "", field or "", value or 0, purpose or ""))
        table.done()
    return tuple(found)


def params(top: Table) -> dict[str, Param]:
    """The `[params.N]` of a file: what the board must say of how the chip is wired."""
    found = {}
    for name, table in top.tables("params"):
        found[name] = Param(
            name, table.decimal("default"), table.decimal("min"), table.decimal("max"), table.text("unit")
        )
        table.done()
    return found


def identity(top: Table) -> Identity | None:
    """The `[identity]` of a file."""
    table = top.table("identity")
    if table is None:
        return None
    register, command = table.text("register"), table.text("command")
    if (register is None) is (command is None):
        table.fault("register", "one of register and command", None, "the name of a clean register or command")
    value, text = table.raw("equals"), None
    values: tuple[int, ...] = ()
    if isinstance(value, str):
        text = value
    elif isinstance(value, list):
        values = table.integers("equals", 0, WIDEST_MASK)
    elif value is not None:
        number = table.integer("equals", low=0)
        values = () if number is None else (number,)
    found = Identity(register or command or "", values, table.integer("mask", low=1), text, table.text("serial"))
    table.done()
    return found


def restart(top: Table) -> RestartEvidence | None:
    """The `[restart]` of a file."""
    table = top.table("restart")
    if table is None:
        return None
    named = {by: table.text(by) for by in ("counter", "uptime", "cause")}
    unit_ms = table.integer("unit_ms", low=1)
    table.done()
    told = [(by, place) for by, place in named.items() if place is not None]
    if len(told) != 1:
        table.fault("", "one of counter, uptime and cause", ", ".join(by for by, _ in told) or None, "the best of them")
    if unit_ms is not None and named["uptime"] is None:
        table.fault("unit_ms", "speaks of an uptime", unit_ms, "uptime, or the key left out")
    for by, place in told[:1]:
        match by:
            case "counter" | "uptime" | "cause":
                return RestartEvidence(by, place, 1000 if unit_ms is None else unit_ms)
    return None


def mux(top: Table) -> Mux | None:
    """The `[mux]` of a file."""
    table = top.table("mux")
    if table is None:
        return None
    register = table.text("register", required=True)
    channels = table.integers("channels", 1, WIDEST_MASK)
    table.done()
    if not channels or len(set(channels)) < len(channels):
        told = "what is written for each channel, each another"
        table.fault("channels", "no channel, or two that are the same", list(channels), told)
    return None if register is None else Mux(register, tuple(channels))


def sequences(top: Table) -> dict[str, NamedSequence]:
    """The `[sequences.N]` of a file; whether their steps can be taken is checked against the whole map."""
    found = {}
    for name, table in top.tables("sequences"):
        steps = []
        for inner in table.array("steps"):
            for key in inner.data:
                inner.raw(key)
            steps.append(dict(inner.data))
        if not steps:
            table.fault("steps", "no step", None, "at least one { do, register, … }")
        params = table.strings("params") if "params" in table else ()
        relock = []
        for inner in table.array("relock"):
            register, value = inner.text("register", required=True), inner.integer("value", low=0, required=True)
            inner.done()
            if register is not None and value is not None:
                relock.append(Relock(register, value))
        found[name] = NamedSequence(name, params, tuple(steps), table.text("result"), tuple(relock))
        table.done()
    return found


def verified_by(top: Table) -> str | None:
    """What a contract was checked against; whether that was a part must not hang on how somebody wrote it."""
    told = top.text("verified")
    words = "" if told is None else " ".join(told.casefold().split())
    if told is not None and not told.startswith(A_MODEL) and words.startswith(("model", "a model")):
        wanted = f'the part and the bench; "{A_MODEL}…", in just these letters, where that was no part'
        top.fault("verified", "does not say whether a part or a model", repr(told), wanted)
    return told
