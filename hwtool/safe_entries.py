"""The list of a device's safe state, as the board writes it: whole-register writes whose repeat is harmless.

A safe state may always be called again, also while an earlier one is unknown; so every entry must be a write that does
the same the second time and wears nothing out. What is not is refused when the board is loaded, never when it matters.
Its content is approved by being written into the board.
"""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass
from typing import Any

import msgspec

from hwtool_contracts.effects import When
from hwtool_contracts.judge import Refused
from hwtool_contracts.judge_write import WriteJudgement, judge_write
from hwtool_contracts.messages import Value
from hwtool_contracts.model import Contract, Persistence, Register
from hwtool_contracts.toml_reader import Table
from hwtool_registers.value import Slot, ValueFault, encode


@dataclass(frozen=True, slots=True)
class SafeEntry:
    """One write of a safe state; `value` is the whole raw value."""

    register: Register
    value: int
    judged: WriteJudgement


def safe_entries(contract: Contract, tables: Iterable[Table]) -> tuple[SafeEntry, ...]:
    """The entries of `safe_state`; what may not be in it becomes a fault of the board."""
    found: list[SafeEntry] = []
    for table in tables:
        name = table.text("register", required=True)
        value = table.raw("value")
        table.done()
        if name is None:
            continue
        register = contract.registers.get(name)
        if register is None:
            table.fault("register", f"contract {contract.part} has no such register", name, "a register's name")
        elif any(e.register is register for e in found):
            table.fault("register", "named twice", name, "each register once")
        else:
            entry = _entry(contract, register, value, table)
            if entry is not None:
                found.append(entry)
                _check_banks(contract, found, table)
    return tuple(found)


def _check_banks(contract: Contract, found: list[SafeEntry], table: Table) -> None:
    """A selector and a register behind it would undo each other: the access sets the selector back."""
    names = {e.register.name for e in found}
    for entry in found:
        behind = [] if entry.register.bank is None else contract.banks[entry.register.bank].select
        for selector in behind:
            if selector.register in names:
                rule = f"{selector.register} selects the bank of {entry.register.name}: the one would undo the other"
                table.fault("register", rule, None, "one of the two")


def _entry(contract: Contract, register: Register, value: Any, table: Table) -> SafeEntry | None:
    try:
        given: Value = msgspec.convert(value, Value)
        raw = encode(Slot(register.width_bits, register.quantity, register.values or register.write.values), given)
    except (msgspec.ValidationError, ValueFault) as error:
        table.fault("value", "not a value of this register", repr(value), str(error))
        return None
    judged = judge_write(contract, register, raw)
    if not isinstance(judged, Refused) and judged.unlock:
        table.fault("register", "takes a write only in a sequence", judged.unlock[0], "a register that is not locked")
        return None
    if isinstance(judged, Refused):
        table.fault("register", f"refused by its contract ({judged.rule}): {judged.message}", None, judged.hint)
        return None
    if judged.repeat is not When.YES:
        wanted = "a register whose write is a plain store: the second time must do what the first did"
        table.fault("register", f"{judged.effect}: writing it again is not harmless", register.name, wanted)
        return None
    if register.persistence is Persistence.NONVOLATILE:
        table.fault("register", "nonvolatile: each write wears it", register.name, "a register that a reset sets back")
        return None
    return SafeEntry(register, raw, judged)
