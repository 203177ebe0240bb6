"""Steps of sequences: what each may have, and whether the steps of a contract's own sequences can ever be taken."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Any, Final

from hwtool_contracts.model import Contract, NamedSequence, Register

TAKES: Final[dict[str, tuple[frozenset[str], frozenset[str]]]] = {  # do: members it needs, members it may have
    "read": (frozenset(), frozenset()),
    "read_effectful": (frozenset(), frozenset({"count"})),
    "write": (frozenset({"value"}), frozenset({"mask"})),
    "update": (frozenset({"fields"}), frozenset()),
    "wait_until": (frozenset({"equals"}), frozenset({"mask", "timeout_ms", "interval_ms"})),
    "expect": (frozenset({"equals"}), frozenset({"mask"})),
}
MEMBERS: Final = ("value", "fields", "mask", "count", "equals", "timeout_ms", "interval_ms")
NUMBERS: Final = ("count", "timeout_ms", "interval_ms")

Tell = Callable[[str, str, object, str], None]


def check_steps(contract: Contract, sequence: NamedSequence, tell: Callable[[int], Tell]) -> set[str]:
    """Check every step against the map; answers the parameters that steps use.

    `tell(index)` answers where the faults of a step go: key, rule, found, wanted.
    """
    used: set[str] = set()
    for index, step in enumerate(sequence.steps):
        used |= _check(contract, step, tell(index))
    return used


def _check(contract: Contract, step: Mapping[str, Any], tell: Tell) -> set[str]:
    for key in sorted(set(step) - {"do", "register", *MEMBERS}):
        tell(key, "unknown key", key, "one of " + ", ".join(("do", "register", *MEMBERS)))
    do, name = step.get("do"), step.get("register")
    register = contract.registers.get(name) if isinstance(name, str) else None
    if do not in TAKES:
        tell("do", "not in the vocabulary", do, "one of " + ", ".join(TAKES))
        return set()
    needs, may = TAKES[do]
    given = {key for key in MEMBERS if key in step}
    for key in sorted(needs - given):
        tell(key, f"{do} needs it", None, "a value for it")
    for key in sorted(given - needs - may):
        tell(key, f"{do} does not take it", step[key], "the key left out")
    for key in given & set(NUMBERS):
        if not isinstance(step[key], int) or isinstance(step[key], bool) or step[key] < 1:
            tell(key, "not a number", step[key], "an integer above 0")
    fields = step.get("fields", {})
    if not isinstance(fields, dict):
        tell("fields", "wrong type", fields, "a table of fields and values")
        fields = {}
    if register is not None:
        _check_register(register, do, step, fields, tell)
    values = [step[key] for key in ("value", "equals") if key in step] + list(fields.values())
    return {v[1:] for v in values if isinstance(v, str) and v.startswith("$")}


def _check_register(register: Register, do: str, step: Mapping[str, Any], fields: dict[str, Any], tell: Tell) -> None:
    """What is asked of the register is possible, and the values written in the file fit."""
    if do in ("write", "update") and not register.access.writable:
        tell("register", f"access {register.access} has no write", register.name, "a writable register")
    if do not in ("write", "update") and not register.access.readable:
        tell("register", f"access {register.access} has no read", register.name, "a readable register")
    for key, top in (("value", register.mask), ("equals", register.mask), ("mask", register.mask)):
        if key in step:
            _check_value(step[key], top, key, tell)
    for name, value in fields.items():
        field = register.fields.get(name)
        if field is None:
            tell("fields", "no such field", name, "one of " + ", ".join(register.fields))
        else:
            _check_value(value, (1 << field.width_bits) - 1, f"fields.{name}", tell)


def _check_value(value: object, top: int, key: str, tell: Tell) -> None:
    """A literal is a number that fits, a text (a name, a parameter) or a table (a scaled value)."""
    if isinstance(value, bool) or not isinstance(value, int | str | dict):
        tell(key, "wrong type", value, "a number, a name, $PARAMETER or { scaled, unit }")
    elif isinstance(value, int) and not 0 <= value <= top:
        tell(key, "out of range", value, f"0 to {top:#x}")
