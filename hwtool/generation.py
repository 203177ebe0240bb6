"""Generations of a device: its boot evidence, and what begins anew when it has restarted."""

from __future__ import annotations

from hwtool.devices import Device
from hwtool.state import Daemon
from hwtool_store import operations


async def boot_evidence(daemon: Daemon, device: Device) -> str | None:
    """What shows that the device did not restart: its own word, or the host's where it restarts with it."""
    told = await device.worker.boot_evidence(device.spec.address)
    if told is None and device.spec.restarts_with_host:
        return f"host:{daemon.boot_id}"
    return told


async def refresh_boot(daemon: Daemon, device: Device) -> str | None:
    """The device's boot evidence now; a change of it begins a new generation."""
    evidence = await boot_evidence(daemon, device)
    before = daemon.boots.get(device.name)
    if evidence is not None and evidence != before:
        now_ns, restarted = daemon.clock.wall_ns(), before is not None
        row = await daemon.ask(
            lambda conn: operations.note_boot(conn, device.locus, {"nonce": evidence}, restarted, now_ns)
        )
        daemon.boots[device.name] = evidence
        if restarted:
            device.new_generation(row.generation)
    return evidence
