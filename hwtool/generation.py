"""Generations of a device: its boot evidence, and what begins anew when it has restarted."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from hwtool.devices import Device
from hwtool.outcome import HOST_WORD
from hwtool.state import Daemon
from hwtool_store import operations
from hwtool_store.database import Connection
from hwtool_store.operations import OpRow


async def boot_evidence(daemon: Daemon, device: Device) -> str | None:
    """What shows that the device did not restart: its own word, or the host's where it restarts with it."""
    told = await device.worker.boot_evidence(device.spec.address)
    if told is None and device.spec.restarts_with_host:
        return HOST_WORD + daemon.boot_id
    return told


def kind_of(evidence: str) -> str:
    """Under which name a piece of evidence is kept: only like can be compared with like."""
    return "host" if evidence.startswith(HOST_WORD) else "nonce"


async def refresh_boot(daemon: Daemon, device: Device) -> str | None:
    """The device's boot evidence now; a change of it begins a new generation."""
    evidence = await boot_evidence(daemon, device)
    if evidence is None:
        return None
    known, kind = daemon.boots.setdefault(device.name, {}), kind_of(evidence)
    before = known.get(kind)
    if evidence != before:
        now_ns, restarted = daemon.clock.wall_ns(), before is not None
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
    here = device.spec.address
    return [d for d in daemon.devices.values() if d.worker is device.worker and d.spec.address == here]


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
