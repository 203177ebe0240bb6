"""What can be looked up without touching a device: devices, registers, contracts, the daemon itself."""

from __future__ import annotations

import dataclasses
from decimal import Decimal
from functools import cache
from importlib import metadata, resources
from typing import Any

from hwtool.devices import Device
from hwtool.leases import lease_object
from hwtool.permission import decision, rule_object
from hwtool.policy import Caller
from hwtool.resolve import find_device, find_members
from hwtool.state import Daemon
from hwtool_contracts.effects import ReadEffect
from hwtool_contracts.errors import Code, DomainError
from hwtool_contracts.judge import ReadJudgement, Refused
from hwtool_contracts.messages import METHODS, FindParams, PolicyShowParams, Result
from hwtool_contracts.model import Field, Provenance, ReadSpec, Register, WriteSpec
from hwtool_contracts.schema import openrpc
from hwtool_contracts.shown import bits_of
from hwtool_registers.bits import hexed

EFFECTFUL = ("reg.read_effectful", "reg.write", "reg.update", "sequence.run", "bus.probe")
TOPICS = {"agents": "the guide an agent reads first"}


@cache
def version() -> str:
    """The installed version; it is asked for at every describe, and looked up on the disk."""
    return metadata.version("hwtool")


def describe(daemon: Daemon, caller: Caller, topic: str | None) -> Result:
    """Who the daemon is, what the caller may do, and the guides."""
    if topic is not None and topic not in TOPICS:
        raise DomainError(Code.NOT_FOUND, f"no topic is called {topic!r}", searched=topic, suggestions=sorted(TOPICS))
    allowed = [
        name
        for name, m in METHODS.items()
        if (caller.role == "operator" or not m.operator) and not (daemon.read_only and name in EFFECTFUL)
    ]
    told: dict[str, Any] = {
        "version": version(),
        "board": daemon.board.name,
        "approval_mode": daemon.board.approval_mode.value,
        "role": caller.role,
        "read_only": daemon.read_only,
        "rehearsing": daemon.rehearsing,
        "frozen": daemon.frozen,
        "principal": caller.principal,
        "key_prefix": caller.key_prefix,
        "wall_clock_ms": daemon.clock.wall_ns() // 1_000_000,
        "methods": allowed,
        "topics": TOPICS,
        # what the board's policy says of this caller, first match first; the rest is by contract
        "policy": [rule_object(r) for r in daemon.board.policy if r.meant_for(caller.uid, caller.groups)],
        "confidential": "shown, unless a rule says otherwise"
        if caller.role == "operator"
        else "not shown, unless a rule says so",
    }
    if topic is not None:
        told["text"] = resources.files("hwtool").joinpath(f"guide_{topic}.md").read_text(encoding="utf-8")
    summary = f"hwtool {told['version']}, board {daemon.board.name}; you are {caller.principal} ({caller.role})"
    return daemon.dressed(Result(status="done", ok=True, effects="none", summary=summary, describe=told))


def policy(daemon: Daemon, caller: Caller, params: PolicyShowParams) -> Result:
    """The rules of the board, and what they let a caller do with a register, with the rule that says so.

    Raises:
        DomainError: not_found.
    """
    rules = daemon.board.policy
    told: dict[str, Any] = {"rules": [rule_object(r) for r in rules]}
    summary = (
        f"{len(rules)} policy rule(s) on {daemon.board.name}, then the built-in last rule: reads, writes by contract"
    )
    if params.register is not None:
        device = find_device(daemon.devices, params.register)
        name = params.register.partition(".")[2]
        wanted = f"{params.register}[0:1]" if name in device.contract.memories else params.register
        members, _ = find_members(device, wanted)
        asked = caller
        if params.who is None and (params.groups or params.role != "agent"):
            message = "$.who: groups and role are those of the caller in `who`, uid:N"
            got = ", ".join(params.groups) or params.role
            raise DomainError(Code.INVALID_ARGS, message, path="$.who", expected="uid:N", got=got)
        if params.who is not None:
            asked = Caller(int(params.who.partition(":")[2]), params.role, "", 0, frozenset(params.groups))
        told["decisions"] = [decision(rules, asked, device, register) for register in members]
        summary = f"{params.register} for {asked.principal} ({asked.role}): {told['decisions'][0]['decided_by']}"
    result = Result(status="done", ok=True, effects="none", summary=summary)
    result.policy = told
    return daemon.dressed(result)


def discover(daemon: Daemon) -> Result:
    """The surface as OpenRPC."""
    result = Result(status="done", ok=True, effects="none", summary="OpenRPC document in `openrpc`")
    result.openrpc = openrpc(version())
    return daemon.dressed(result)


def devices(daemon: Daemon) -> Result:
    """Every device of the board."""
    lines = [
        {
            "name": device.name,
            "contract": device.contract.part,
            "contract_digest": device.contract.digest,
            "title": device.contract.title,
            "bus": device.spec.bus,
            "address": f"{device.spec.address:#04x}",
            "mux": device.spec.mux,
            "channel": None if device.spec.mux is None else device.spec.channel,
            "generation": device.generation,
            "identity": device.spec.identity,
            "held": None if (held := device.held()) is None else held.message,
            "verified": device.contract.verified or False,
            "simulated": device.simulated,
            "bus_state": device.worker.state,
            "lease": lease_object(device, daemon.clock.monotonic_s()),
            "safe_state": [entry.register.name for entry in device.spec.safe_state],
        }
        for device in daemon.devices.values()
    ]
    summary = f"{len(lines)} device(s) on {daemon.board.name}" + ("; FROZEN" if daemon.frozen else "")
    result = Result(status="done", ok=True, effects="none", summary=summary)
    result.devices = lines
    return daemon.dressed(result)


def cursor_of(cursor: str) -> int:
    """The place a cursor stands for.

    Raises:
        DomainError: it is none that was handed out.
    """
    if not (cursor.isascii() and cursor.isdecimal()) or len(cursor) > 18:
        message = f"$.cursor: {cursor[:40]!r} is no cursor of an earlier answer"
        raise DomainError(Code.INVALID_ARGS, message, path="$.cursor", expected="a cursor", got=cursor[:80])
    return int(cursor)


def find(daemon: Daemon, params: FindParams) -> Result:
    """Registers and groups whose name, field, unit or chip matches every word of the query."""
    chosen = [find_device(daemon.devices, params.device)] if params.device is not None else daemon.devices.values()
    words = params.query.lower().split()
    start = 0 if params.cursor is None else cursor_of(params.cursor)
    found = [m for d in chosen for m in _matches(d, words)]
    page = found[start : start + params.limit]
    rest = start + params.limit < len(found)
    result = Result(status="done", ok=True, effects="none", summary=f"{len(found)} register(s) match")
    result.matches = page
    result.cursor = str(start + params.limit) if rest else None
    return daemon.dressed(result)


def _matches(device: Device, words: list[str]) -> list[dict[str, Any]]:
    found = []
    levels = {r.read.level for r in device.contract.registers.values()}
    for register in device.contract.registers.values():
        units = " ".join(f.quantity.unit or "" for f in register.fields.values()) + f" {register.quantity.unit or ''}"
        about = f"{' '.join(register.read.effects)} {register.write.effect if register.access.writable else ''}"
        about += " level" if register.name in levels else ""
        text = (
            f"{device.name}.{register.name} {' '.join(register.fields)} {units} {about} {device.contract.title}".lower()
        )
        if all(w in text for w in words):
            found.append(_line(device, register))
    for group in device.contract.groups.values():
        text = f"{device.name}.{group.name} {' '.join(group.members)} {device.contract.title}".lower()
        if all(w in text for w in words):
            members = {"group": list(group.members), "transfer": group.transfer}
            found.append({"register": f"{device.name}.{group.name}", "access": "group", **members})
    return found


def _line(device: Device, register: Register) -> dict[str, Any]:
    judged = device.judge((register,))
    line: dict[str, Any] = {"register": f"{device.name}.{register.name}", "access": register.access.value}
    if isinstance(judged, ReadJudgement):
        line["read"] = {"effects": sorted(judged.effects), "clean": judged.clean, "provenance": judged.basis.value}
    if register.access.writable:
        effects = {register.write.effect.value, *(f.write.effect.value for f in register.fields.values())}
        line["write"] = {"effects": sorted(effects)}
    if register.fields:
        line["fields"] = list(register.fields)
    if register.quantity.unit is not None:
        line["unit"] = register.quantity.unit
    return line


def contract(daemon: Daemon, name: str) -> Result:
    """What one register, or each member of a group, promises."""
    device = find_device(daemon.devices, name)
    members, group = find_members(device, name)
    if group is not None:
        promise: dict[str, Any] = {
            "group": f"{device.name}.{group.name}",
            "transfer": group.transfer,
            "members": [_promise(device, r) for r in members],
        }
    else:
        promise = _promise(device, members[0])
    summary = f"{name}: {device.contract.title}, {device.contract.source}"
    result = Result(status="done", ok=True, effects="none", summary=summary)
    result.contract = promise
    return daemon.dressed(result, device)


def _promise(device: Device, register: Register) -> dict[str, Any]:
    judged = device.judge((register,))
    promise: dict[str, Any] = {
        "register": f"{device.name}.{register.name}",
        "part": device.contract.part,
        "source": device.contract.source,
        "offset": hexed(register.offset, 8 * device.contract.access.offset_bytes),
        "space": register.space.value,
        "width_bits": register.width_bits,
        "access": register.access.value,
        "reset": None if register.reset is None else hexed(register.reset, register.width_bits),
        "volatile": register.volatile,
        "persistence": register.persistence.value,
        "owner": register.owner.value,
        "bank": register.bank,
        "also_at": [hexed(at, 8 * device.contract.access.offset_bytes) for at in register.also_at],
        "may_block": register.may_block,
        "sensitive": register.sensitive,
        "confidential": device.is_confidential(register),
        "access_bits": register.access_bits,
        "erratum": register.erratum,
        "verified": register.verified,
        "values": dict(register.values),
        "quantity": _plain(dataclasses.asdict(register.quantity)),
        "fields": [_field(f) for f in register.fields.values()],
    }
    if register.access.readable:
        promise["read"] = _read(register.read)
    if isinstance(judged, Refused):
        promise["judged_read"] = {"refused": judged.rule, "why": judged.message}
    else:
        promise["judged_read"] = {
            "effects": sorted(judged.effects),
            "clean": judged.clean,
            "method": "reg.read" if judged.clean else "reg.read_effectful",
            "provenance": judged.basis.value,
            "undeclared": ReadEffect.UNKNOWN in judged.effects,
        }
    if register.access.writable:
        promise["write"] = _write(register.write)
    return promise


def _field(field: Field) -> dict[str, Any]:
    shown: dict[str, Any] = {
        "name": field.name,
        "bits": bits_of(field),
        "access": field.access.value,
        "volatile": field.volatile,
        "reserved": field.reserved,
        "values": dict(field.values),
        "quantity": _plain(dataclasses.asdict(field.quantity)),
    }
    if field.access.readable:
        shown["read"] = _read(field.read)
    if field.access.writable and field.reserved is None:
        shown["write"] = _write(field.write)
    return shown


def _seen(provenance: Provenance) -> dict[str, Any]:
    return {"provenance": provenance.basis.value, "seen": provenance.seen, "source": provenance.source}


def _read(spec: ReadSpec) -> dict[str, Any]:
    more = {"affects": list(spec.affects), "level": spec.level, "max_burst": spec.max_burst, "peek": spec.peek}
    more |= {"state": spec.state, "ack_by": list(spec.ack_by), "reseek": spec.reseek}
    more |= {"element_bytes": spec.element_bytes}
    shown = {"effects": sorted(spec.effects), **more, "when_empty": spec.when_empty, "gate": spec.gate}
    return {k: v for k, v in shown.items() if v not in (None, [])} | _seen(spec.provenance)


def _write(spec: WriteSpec) -> dict[str, Any]:
    verify = (
        None
        if spec.verify is None
        else {k: v for k, v in dataclasses.asdict(spec.verify).items() if v not in (None, 0)}
    )
    limits = None if spec.limits is None else _plain(dataclasses.asdict(spec.limits))
    shown: dict[str, Any] = {
        "effect": spec.effect.value,
        "affects": list(spec.affects),
        "verify": verify,
        "mask": spec.mask,
        "signals": [{k: v for k, v in dataclasses.asdict(s).items() if v is not None} for s in spec.signals],
        "window_ms": spec.window_ms,
        "approval": spec.approval,
        "limits": limits,
        "values": dict(spec.values),
        "gate": spec.gate,
        "triggers": list(spec.triggers),
        "commit_by": spec.commit_by,
        "unlock": spec.unlock,
        "resets": spec.resets,
        "readdresses": spec.readdresses,
        "absolute": spec.absolute,
        "irreversible": spec.irreversible,
        "busy_retry": None if spec.busy_retry is None else dataclasses.asdict(spec.busy_retry),
        "delay_after_ms": spec.delay_after_ms,
        "max_rate_per_min": spec.max_rate_per_min,
    }
    return {k: v for k, v in shown.items() if v not in (None, [], {}, False)} | _seen(spec.provenance)


def _plain(data: dict[str, Any]) -> dict[str, Any]:
    """Members that say something; decimals as text, so that nothing is rounded."""
    return {k: str(v) if isinstance(v, Decimal) else v for k, v in data.items() if v is not None}
