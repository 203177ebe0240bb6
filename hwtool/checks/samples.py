"""Requests that write a register or a field, as its contract allows: what the checks send."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

from hwtool.devices import Device
from hwtool_contracts.effects import WriteEffect
from hwtool_contracts.judge import Refused
from hwtool_contracts.judge_write import UpdateJudgement, judge_number, judge_update, judge_write
from hwtool_contracts.model import Encoding, Field, Register
from hwtool_registers.bits import extract
from hwtool_registers.value import as_float


@dataclass(frozen=True)
class Sample:
    """A write of one effect: the request, and another one of the same register where there is one."""

    device: str
    register: Register
    effect: WriteEffect
    method: str
    params: dict[str, Any]
    other: dict[str, Any] | None

    def place(self, part: Field | None) -> str:
        """As a finding names it."""
        return f"{self.device}.{self.register.name}" + ("" if part is None else f".{part.name}")


def sample_of(name: str, device: Device, register: Register, part: Field | None, held: int) -> Sample | None:
    """A request that writes this field, or this register, with something new, if its contract allows one.

    Args:
        held: what the register holds now.
    """
    if not register.access.writable or (part is not None and (not part.access.writable or part.reserved is not None)):
        return None
    if part is None and register.fields:
        return None
    contract = device.contract
    if any(a.register == register.name and (part is None or a.field == part.name) for a in contract.assumes):
        return None
    full = f"{name}.{register.name}"
    updated = None if part is None else judge_update(contract, register, frozenset({part.name}))
    # what cannot be read is updated only once it has been written as a whole
    if part is not None and isinstance(updated, UpdateJudgement) and not updated.shadow:
        value = 0 if part.write.effect is WriteEffect.ZERO_TO_CLEAR else 1
        if part.write.effect is WriteEffect.STORE:
            value = extract(held, part) ^ 1
        shifted = value << part.lsb
        if isinstance(judge_write(contract, register, shifted, frozenset({part.name})), Refused):
            return None
        params: dict[str, Any] = {"register": full, "fields": {part.name: value}}
        other: dict[str, Any] = {"register": full, "fields": {part.name: value ^ 1}}
        return Sample(name, register, part.write.effect, "reg.update", params, other)
    allowed = [v for v in _candidates(register, part) if _allowed(device, register, v)]
    values = [v for v in allowed if v != held] or allowed
    if not values:
        return None
    effect = (part or register).write.effect
    one, *others = values
    params = {"register": full, "value": hex(one)}
    another = {"register": full, "value": hex(others[0])} if others else None
    return Sample(name, register, effect, "reg.write", params, another)


def values_for(device: Device, register: Register, held: int) -> list[int]:
    """Values that the contract lets be written to a whole register, those that it does not hold first."""
    assumed = any(a.register == register.name for a in device.contract.assumes)
    allowed = [v for v in _candidates(register, None) if not assumed and _allowed(device, register, v)]
    return [v for v in allowed if v != held] or allowed


def _allowed(device: Device, register: Register, value: int) -> bool:
    is_float = register.quantity.encoding is Encoding.FLOAT32
    if is_float and judge_number(register, as_float(Encoding.FLOAT32, value)) is not None:
        return False
    return not isinstance(judge_write(device.contract, register, value), Refused)


def _candidates(register: Register, part: Field | None) -> list[int]:
    if part is not None:
        told = [part.placed(1), part.placed(1) | 1, *(part.placed(v) for v in (2, 3) if v < 1 << part.width_bits), 0]
        return list(dict.fromkeys(v for v in told if v <= register.mask))
    if register.quantity.encoding is Encoding.FLOAT32:
        return [0x42C80000, 0x42700000, 0x42A00000, 0x40000000, 0x3F800000, 0x40400000]  # 100, 60, 80, 2, 1, 3
    named = [*register.values.values(), *register.write.values.values()]
    limits = register.write.limits
    ends = [] if limits is None else [e for e in (limits.minimum, limits.maximum) if isinstance(e, int)]
    told = [1, 2, 3, *named, *(e + d for e in ends for d in (0, 1, -1)), 0, register.mask]
    return list(dict.fromkeys(v for v in told if 0 <= v <= register.mask))
