"""Parameters of a contract: what a board says of how the chip is wired, put into the scales that depend on it."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import replace
from decimal import Decimal

from hwtool_contracts.memories import with_memories
from hwtool_contracts.model import Contract, Field, Quantity, Register
from hwtool_contracts.toml_reader import Table


def read_params(contract: Contract, table: Table | None) -> dict[str, Decimal]:
    """The value of each parameter, from the board's table or its default; what is wrong is a fault of the table."""
    found: dict[str, Decimal] = {}
    for name, param in contract.params.items():
        value = None if table is None else table.decimal(name)
        if value is None:
            value = param.default
        unit = f" {param.unit}" if param.unit else ""
        low, high = param.minimum, param.maximum
        if value is None:
            if table is not None:
                table.fault(name, f"contract {contract.part} needs it", None, f"a number{unit}")
            continue
        if table is not None and ((low is not None and value < low) or (high is not None and value > high)):
            span = f"{'…' if low is None else low} to {'…' if high is None else high}{unit}"
            table.fault(name, "out of range", value, span)
        found[name] = value
    if table is not None:
        table.done()
    return found


def with_params(contract: Contract, values: Mapping[str, Decimal]) -> Contract:
    """The contract with the scales that these values give."""
    if not contract.params:
        return contract

    def scaled(quantity: Quantity) -> Quantity:
        if quantity.scale_param is None or quantity.scale_param not in values:
            return quantity
        return replace(quantity, scale=(quantity.scale or Decimal(1)) * values[quantity.scale_param], scale_param=None)

    def of_field(field: Field) -> Field:
        return replace(field, quantity=scaled(field.quantity))

    registers: dict[str, Register] = {
        n: replace(r, quantity=scaled(r.quantity), fields={f: of_field(x) for f, x in r.fields.items()})
        for n, r in contract.registers.items()
    }
    return replace(contract, registers=with_memories(registers, contract.memories, contract.access))
