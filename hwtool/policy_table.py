"""The `[[policy]]` rules of a board, read strictly: who may do what with which registers.

The first rule that matches the caller, the device and the register decides; what it does not say stays as the contract
says. A rule narrows: `yes` takes away no approval that the contract demands, limits are laid inside the contract's own.
"""

from __future__ import annotations

import grp
import re
from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from decimal import Decimal
from enum import StrEnum
from typing import Final

from hwtool_contracts.glob import matches
from hwtool_contracts.model import Contract
from hwtool_contracts.toml_reader import Table

WHO: Final = re.compile(r"\*|uid:[0-9]{1,10}|group:[A-Za-z0-9_.-]{1,63}")


class YesNo(StrEnum):
    """Whether something is allowed."""

    YES = "yes"
    NO = "no"


class Gate(StrEnum):
    """Whether something is allowed, or asks a person first."""

    YES = "yes"
    APPROVAL = "approval"
    NO = "no"


@dataclass(frozen=True, slots=True)
class PolicyLimits:
    """The values that may be written, both ends included: in `unit`, or raw where there is none."""

    minimum: Decimal | None
    maximum: Decimal | None
    unit: str | None

    def __str__(self) -> str:
        low = "…" if self.minimum is None else f"{self.minimum}"
        high = "…" if self.maximum is None else f"{self.maximum}"
        return f"{low} to {high}" + (f" {self.unit}" if self.unit else "")

    def admits(self, number: Decimal) -> bool:
        """Whether a number is inside."""
        return (self.minimum is None or number >= self.minimum) and (self.maximum is None or number <= self.maximum)


@dataclass(frozen=True, slots=True)
class Rule:
    """One rule; None: the rule does not say.

    Attributes:
        number: its place on the board, from 1; a caller is told it.
        who: `*`, `uid:N` or `group:NAME`.
        device, register: patterns; the register's name without its device, of a memory without the brackets too.
        rate_per_min: operations with an effect that one caller may begin in a minute.
        confidential: whether confidential registers are shown.
    """

    number: int
    who: str
    device: str
    register: str
    read: YesNo | None = None
    effectful_read: Gate | None = None
    write: Gate | None = None
    limits: PolicyLimits | None = None
    rate_per_min: int | None = None
    confidential: bool | None = None

    def meant_for(self, uid: int, groups: frozenset[str]) -> bool:
        """Whether it speaks of a caller."""
        kind, _, name = self.who.partition(":")
        return kind == "*" or (kind == "uid" and int(name) == uid) or (kind == "group" and name in groups)

    def about(self, device: str, register: str) -> bool:
        """Whether it speaks of a register."""
        names = {register, register.partition("[")[0]} if register.endswith("]") else {register}
        return matches(self.device, device) and any(matches(self.register, name) for name in names)

    def name(self) -> str:
        """How messages call it."""
        return f"policy rule {self.number} (who {self.who}, device {self.device}, register {self.register})"


def policy_rules(tables: Iterable[Table], contracts: Mapping[str, Contract] | None) -> tuple[Rule, ...]:
    """The rules of a board, in order; what is wrong in them becomes faults of the board.

    Args:
        contracts: of the board's devices, by name; None where one of them does not load.
    """
    return tuple(_rule(number, table, contracts) for number, table in enumerate(tables, 1))


def _rule(number: int, table: Table, contracts: Mapping[str, Contract] | None) -> Rule:
    who = table.text("who", required=True) or "*"
    if not WHO.fullmatch(who):
        table.fault("who", "not a caller", who, "*, uid:N or group:NAME")
        who = "*"
    elif who.startswith("group:") and not _is_group(who.partition(":")[2]):
        table.fault("who", "no such group on this host", who, "a group that exists: nobody could be meant")
    rule = Rule(
        number,
        who,
        table.text("device") or "*",
        table.text("register") or "*",
        table.choice("read", YesNo),
        table.choice("effectful_read", Gate),
        table.choice("write", Gate),
        _limits(table),
        table.integer("rate_per_min", low=1, high=60_000),
        table.flag("confidential"),
    )
    table.done()
    said = (rule.read, rule.effectful_read, rule.write, rule.limits, rule.rate_per_min, rule.confidential)
    if all(word is None for word in said):
        table.fault("", "says nothing", None, "read, effectful_read, write, limits, rate_per_min or confidential")
        return rule
    if contracts is not None:
        _check_places(rule, table, contracts)
    return rule


def _check_places(rule: Rule, table: Table, contracts: Mapping[str, Contract]) -> None:
    """A rule that can never match is a guard that is not there."""
    meant = {name: contract for name, contract in contracts.items() if matches(rule.device, name)}
    if not meant:
        table.fault("device", "no device of the board", rule.device, "a pattern, or one of " + ", ".join(contracts))
        return
    found = [
        (contract, name)
        for device, contract in meant.items()
        for name in (*contract.registers, *contract.memories)
        if rule.about(device, name)
    ]
    if not found:
        table.fault("register", "no register of these devices", rule.register, "a register's name, or a pattern")
    unit = None if rule.limits is None else rule.limits.unit
    if unit is None or not found:
        return
    registers = [contract.registers[name] for contract, name in found if name in contract.registers]
    known = {r.quantity.unit for r in registers} | {f.quantity.unit for r in registers for f in r.fields.values()}
    if unit not in known:
        some = ", ".join(sorted(u for u in known if u)) or "none: limits of raw values have no unit"
        table.fault("limits.unit", "no register or field of the rule has this unit", unit, some)


def _is_group(name: str) -> bool:
    try:
        grp.getgrnam(name)
    except KeyError:
        return False
    return True


def _limits(table: Table) -> PolicyLimits | None:
    inner = table.table("limits")
    if inner is None:
        return None
    found = PolicyLimits(inner.decimal("min"), inner.decimal("max"), inner.text("unit"))
    inner.done()
    if found.minimum is None and found.maximum is None:
        inner.fault("", "limits nothing", None, "min, max or both")
    elif found.minimum is not None and found.maximum is not None and found.minimum > found.maximum:
        inner.fault("min", "min is above max", found.minimum, f"at most {found.maximum}")
    return found
