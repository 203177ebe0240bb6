"""What a board says, for whoever wrote it: its devices, and what loads well and may still not be meant."""

from __future__ import annotations

from typing import Any

from hwtool.config import ApprovalMode, Board
from hwtool_contracts.effects import Basis
from hwtool_contracts.model import Contract


def linted(board: Board) -> dict[str, Any]:
    """A loaded board as plain data, with warnings."""
    devices = []
    warnings = []
    for name, spec in board.devices.items():
        bus = board.buses[spec.bus]
        silent, total = silence(spec.contract)
        told = {"device": name, "contract": spec.contract.part, "contract_digest": spec.contract.digest}
        devices.append(told | {"bus": spec.bus, "address": f"{spec.address:#04x}", "locus": spec.locus(bus)})
        if not spec.contract.on_a_part and not bus.simulated:
            warnings.append(f"devices.{name}: contract {spec.contract.part} was checked on no real part")
        if silent:
            warnings.append(f"devices.{name}: {silent} of {total} registers have an effect that nobody has said")
        if not spec.safe_state:
            warnings.append(f"devices.{name}: no safe_state: device.safe_state is refused for it")
        if spec.identity is None and spec.contract.identity is not None:
            warnings.append(f"devices.{name}: no identity: another chip of the kind is not noticed")
    for name, bus in board.buses.items():
        if not bus.sole_master:
            warnings.append(f"buses.{name}: not sole_master: an unknown outcome is settled by a person, mostly")
        if not any(d.bus == name for d in board.devices.values()):
            warnings.append(f"buses.{name}: no device sits on it")
    if board.approval_mode is ApprovalMode.SELF:
        warnings.append("approval_mode self: whoever asks may approve")
    shadowed = [r.number for i, r in enumerate(board.policy) if any(covers(o, r) for o in board.policy[:i])]
    warnings += [f"policy[{n - 1}]: never asked: an earlier rule matches everything that it does" for n in shadowed]
    return {
        "name": board.name,
        "approval_mode": board.approval_mode.value,
        "policy": len(board.policy),
        "devices": devices,
        "warnings": warnings,
    }


def covers(earlier: Any, later: Any) -> bool:
    """Whether a rule matches everything that a later one does, as far as their words tell."""
    who = earlier.who in ("*", later.who)
    return who and earlier.device in ("*", later.device) and earlier.register in ("*", later.register)


def silence(contract: Contract) -> tuple[int, int]:
    """Registers with an effect that nobody has said, and all of them."""
    silent = 0
    for register in contract.registers.values():
        specs = [register.read] if register.access.readable else []
        bases = {s.provenance.basis for s in specs} | (
            {register.write.provenance.basis} if register.access.writable else set()
        )
        silent += Basis.SILENT in bases
    return silent, len(contract.registers)
