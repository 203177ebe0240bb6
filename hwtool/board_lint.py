"""What a board says, for whoever wrote it: its devices, and what loads well and may still not be meant."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

from hwtool.board_buses import OVER_USB, BusSpec
from hwtool.config import ApprovalMode, Board, DeviceSpec
from hwtool.policy_lint import of_policy
from hwtool.prepare import number_of
from hwtool_contracts.effects import Basis
from hwtool_contracts.judge import ReadJudgement, judge_read
from hwtool_contracts.lint import of_contract
from hwtool_contracts.model import Contract, Encoding, Owner, Register
from hwtool_contracts.places import find_place


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
        warnings += [f"devices.{name}: {told}" for told in _device(spec, bus)]
        if spec.identity is None and spec.contract.identity is not None:
            warnings.append(f"devices.{name}: no identity: another chip of the kind is not noticed")
    for name, bus in board.buses.items():
        if not bus.sole_master:
            warnings.append(f"buses.{name}: not sole_master: an unknown outcome is settled by a person, mostly")
        if not any(d.bus == name for d in board.devices.values()):
            warnings.append(f"buses.{name}: no device sits on it")
        warnings += [f"buses.{name}: {told}" for told in _bus(bus)]
    if board.approval_mode is ApprovalMode.SELF:
        warnings.append("approval_mode self: whoever asks may approve")
    warnings += of_policy(board)
    return {
        "name": board.name,
        "approval_mode": board.approval_mode.value,
        "policy": len(board.policy),
        "devices": devices,
        "warnings": warnings,
    }


def _device(spec: DeviceSpec, bus: BusSpec) -> Iterator[str]:
    """What is odd in a device: in its contract, and between the two."""
    yield from (f"contract {spec.contract.part}: {found}" for found in of_contract(spec.contract))
    shared = [r.name for r in spec.contract.registers.values() if r.owner is Owner.SHARED]
    shared += [m.name for m in spec.contract.memories.values() if m.owner is Owner.SHARED]
    if shared and bus.sole_master:
        some = ", ".join(shared[:3]) + (" …" if len(shared) > 3 else "")
        yield f"{some}: owner shared, and bus {bus.name} is sole_master: one of the two is not so"
    effects = [n for n, r in spec.contract.registers.items() if _acts(spec.contract, r)]
    if bus.may_repeat and effects:
        some = ", ".join(effects[:3]) + (" …" if len(effects) > 3 else "")
        yield f"bus {bus.name} may_repeat: what must happen once is refused: {some}"
    yield from _identity(spec)


def _identity(spec: DeviceSpec) -> Iterator[str]:
    """What the board says a device is, and nobody can compare, or no such chip is."""
    identity = spec.contract.identity
    if spec.identity is None or identity is None:
        return
    name = identity.serial or identity.register
    place = find_place(spec.contract, name)
    if place is None or (place[1] or place[0]).quantity.encoding is Encoding.TEXT:
        return
    number = number_of(spec.identity)
    if number is None:
        yield f"identity {spec.identity!r} is no number, and is not compared with {name}: any chip of the kind is taken"
    elif identity.serial is None and identity.equals and number not in identity.equals:
        kinds = ", ".join(map(hex, identity.equals))
        yield f"identity {spec.identity!r}: {name} of every {spec.contract.part} is {kinds}"


def _acts(contract: Contract, register: Register) -> bool:
    """Whether reading it does something: on a bus that may repeat it is refused."""
    judged = judge_read(contract, (register,)) if register.access.readable else None
    return isinstance(judged, ReadJudgement) and not judged.clean


def _bus(bus: BusSpec) -> Iterator[str]:
    """What is odd in the times of a real bus, and on what its kind was never tried."""
    if bus.kind in OVER_USB:
        yield f"kind {bus.kind} was checked against an emulator of hwtool's own, and on no real adapter"
    if bus.kind == "spi":
        yield "kind spi was checked against faked ioctls, and on no real controller"
    if not bus.simulated and bus.reply_lifetime_ms < bus.response_ms:
        told = f"reply_lifetime_ms {bus.reply_lifetime_ms} is below response_ms {bus.response_ms}"
        yield f"{told}: a device that is late by one answer more would be heard in place of the next one"


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
