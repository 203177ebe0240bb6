"""Leases: one principal has a device for a while. In memory, visible, at most ten minutes, over at every restart.

A lease keeps other callers' effectful requests away; clean reads go on, and it delays neither safe states nor
operators.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any, Final

from hwtool.devices import Device
from hwtool.policy import Caller
from hwtool.resolve import find_device
from hwtool.state import Daemon
from hwtool_contracts.errors import Code, DomainError
from hwtool_contracts.messages import Result

MAX_LEASE_MS: Final = 600_000


@dataclass(frozen=True, slots=True)
class Lease:
    """Who has a device, and until when by the monotonic clock."""

    principal: str
    until_s: float


def lease_of(device: Device, now_s: float) -> Lease | None:
    """The lease of a device that lasts still."""
    lease = device.lease
    return lease if isinstance(lease, Lease) and lease.until_s > now_s else None


def check_lease(daemon: Daemon, caller: Caller, devices: tuple[Device, ...]) -> None:
    """Refuse an effectful request of somebody else while a device is leased.

    Raises:
        DomainError: busy, with the holder and how long it may last.
    """
    now_s = daemon.clock.monotonic_s()
    for device in devices:
        lease = lease_of(device, now_s)
        if lease is None or lease.principal == caller.principal or caller.role == "operator":
            continue
        rest_ms = max(1, round(1000 * (lease.until_s - now_s)))
        message = f"{device.name} is leased by {lease.principal} for at most {rest_ms} ms more"
        raise DomainError(Code.BUSY, message, by="lease", holder=lease.principal, retry_after_ms=rest_ms)


def lease_object(device: Device, now_s: float) -> dict[str, Any] | None:
    """The lease of a device as `device.list` tells it."""
    lease = lease_of(device, now_s)
    if lease is None:
        return None
    return {"holder": lease.principal, "rest_ms": round(1000 * (lease.until_s - now_s))}


async def acquire(daemon: Daemon, caller: Caller, name: str, ttl_ms: int) -> Result:
    """Have a device for a while; again for a holder: from now on for so long.

    Raises:
        DomainError: not_found, or busy: somebody else has it.
    """
    device = find_device(daemon.devices, name)
    now_s = daemon.clock.monotonic_s()
    lease = lease_of(device, now_s)
    if lease is not None and lease.principal != caller.principal:
        rest_ms = max(1, round(1000 * (lease.until_s - now_s)))
        message = f"{device.name} is leased by {lease.principal}"
        raise DomainError(Code.BUSY, message, by="lease", holder=lease.principal, retry_after_ms=rest_ms)
    device.lease = Lease(caller.principal, now_s + ttl_ms / 1000)
    summary = f"{device.name} is yours for {ttl_ms} ms; safe states and operators pass"
    return daemon.dressed(Result(status="done", ok=True, effects="none", summary=summary), device)


async def release(daemon: Daemon, caller: Caller, name: str) -> Result:
    """Give a device back; an operator may end anybody's lease.

    Raises:
        DomainError: not_found, or denied: it is somebody else's.
    """
    device = find_device(daemon.devices, name)
    lease = lease_of(device, daemon.clock.monotonic_s())
    if lease is not None and lease.principal != caller.principal and caller.role != "operator":
        reason = f"{device.name} is leased by {lease.principal}"
        raise DomainError(Code.DENIED, reason, reason=reason, required=lease.principal)
    device.lease = None
    summary = f"{device.name} is free" if lease is not None else f"{device.name} was not leased"
    return daemon.dressed(Result(status="done", ok=True, effects="none", summary=summary), device)
