"""Generations of a device: its boot evidence, and what begins anew when it has restarted."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from hwtool.devices import Device
from hwtool.prepare import check_identity
from hwtool.restarts import cause_word, counter_word, host_word, kind_of, restart_between, uptime_word, usb_word
from hwtool.state import Daemon
from hwtool_contracts.errors import DomainError
from hwtool_contracts.model import RestartEvidence
from hwtool_contracts.places import find_place
from hwtool_store import operations
from hwtool_store.database import Connection
from hwtool_store.operations import OpRow


async def boot_evidence(daemon: Daemon, device: Device) -> str | None:
    """What shows that the device did not restart: the word of the bus, of the chip, of its USB device or of its host.

    May read one clean register; one that does not answer says nothing.
    """
    told = await device.worker.boot_evidence(device.spec.place)
    if told is None and device.contract.restart is not None:
        told = await _shown(daemon, device, device.contract.restart)
    if told is None and device.spec.restarts_with_usb:
        number = device.worker.enumeration()
        told = None if number is None else usb_word(number, daemon.boot_id)
    if told is None and device.spec.restarts_with_host:
        return host_word(daemon.boot_id)
    return told


async def _shown(daemon: Daemon, device: Device, restart: RestartEvidence) -> str | None:
    try:
        await check_identity(device)  # another chip's register tells nothing of this one
        value = await device.look(restart.place)
    except DomainError:
        return None  # whoever wants more of the device will be told why
    match restart.by:
        case "counter":
            return counter_word(value)
        case "uptime":
            now_ns = daemon.clock.boottime_ns()
            unit_ms, wrap_ms = restart.unit_ms, restart.unit_ms << _width_bits(device, restart.place)
            return uptime_word(value * unit_ms, unit_ms, wrap_ms, now_ns, daemon.boot_id)
        case "cause":
            return cause_word(value != 0, device.worker.spec.sole_master)


def _width_bits(device: Device, name: str) -> int:
    place = find_place(device.contract, name)
    return 0 if place is None else (place[0] if place[1] is None else place[1]).width_bits


async def refresh_boot(daemon: Daemon, device: Device) -> str | None:
    """The device's boot evidence now; a restart that it shows begins a new generation."""
    evidence = await boot_evidence(daemon, device)
    if evidence is None:
        return None
    known, kind = daemon.boots.setdefault(device.name, {}), kind_of(evidence)
    before = known.get(kind)
    restarted = restart_between(before, evidence) == "reset"
    if before is None or restarted or (kind == "cause" and before != evidence):  # an uptime only goes on
        now_ns = daemon.clock.wall_ns()
        row = await daemon.ask(
            lambda conn: operations.note_boot(conn, device.locus, {kind: evidence}, restarted, now_ns)
        )
        if restarted:
            known.clear()
            device.new_generation(row.generation)
        known[kind] = evidence
    return evidence


def parts_of_chip(daemon: Daemon, device: Device) -> list[Device]:
    """The devices that restart with this one: itself, and other parts of its chip."""
    here = device.spec.place
    return [d for d in daemon.devices.values() if d.worker is device.worker and d.spec.place == here]


def record_orphan(daemon: Daemon, conn: Connection, row: OpRow, facts: Mapping[str, Any], now_ns: int) -> None:
    """In the transaction that makes a crashed operation unknown: what it may have done to its device besides.

    `facts` are those of its row: today's contract is not asked.
    """
    locus, device = row.locus, daemon.device_at(row.locus)
    if locus is None:
        return  # the header of a sequence: its steps have rows of their own
    if facts.get("restarts"):
        for one in [locus] if device is None else [d.locus for d in parts_of_chip(daemon, device)]:
            operations.note_boot(conn, one, {}, True, now_ns)
    if facts.get("readdresses") and locus not in {h.locus for h in operations.holds(conn)}:
        why = f"operation {row.op_id} may have changed the address of {facts['device']}: look, and correct the board"
        body = {"at_ns": now_ns, "what": "hold", "device": facts["device"], "by": "rule", "reason": why}
        operations.put_hold(conn, locus, "rule", why, now_ns, body)
