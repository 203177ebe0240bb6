"""What a write means for its device beyond the register: a restart, another address, how often it may come.

A restart and a change of address are recorded in the transaction of the outcome, also where that is unknown: a device
that *may* have restarted is a new generation, one that may answer elsewhere is held until a person has looked.
"""

from __future__ import annotations

from hwtool.devices import Device
from hwtool.generation import parts_of_chip
from hwtool.resolve import Resolved
from hwtool.state import Daemon
from hwtool_contracts.errors import Code, DomainError
from hwtool_store import operations
from hwtool_store.database import Connection

RULE = "rule"
MINUTE_S = 60.0


class Aftermath:
    """What follows from one write."""

    def __init__(self, daemon: Daemon, resolved: Resolved, op_id: int) -> None:
        self._device = device = resolved.device
        self._chip = parts_of_chip(daemon, device)
        self._restarts = any(c.judged.resets for c in resolved.changes)
        self._moves = any(c.judged.readdresses for c in resolved.changes)
        self._why = f"operation {op_id} changes the address of {resolved.device.name}: correct the board"
        self._generations: dict[str, int] = {}
        self._held = False

    def record(self, conn: Connection, now_ns: int) -> None:
        """In the transaction of the outcome: the new generation, the hold."""
        locus = self._device.locus
        if self._restarts:
            self._generations = {
                d.name: operations.note_boot(conn, d.locus, {}, True, now_ns).generation for d in self._chip
            }
        if self._moves and self._device.hold is None:
            body = {"at_ns": now_ns, "what": "hold", "device": self._device.name, "by": RULE, "reason": self._why}
            operations.put_hold(conn, locus, RULE, self._why, now_ns, body)
            self._held = True

    def take_effect(self, daemon: Daemon, now_ns: int) -> None:
        """Once the transaction is durable: what is remembered of the device follows it."""
        for name, generation in self._generations.items():
            daemon.devices[name].new_generation(generation)
            daemon.boots.pop(name, None)
        if self._held:
            self._device.put_hold(RULE, self._why, now_ns)


def check_rate(device: Device, resolved: Resolved) -> None:
    """Keep to how often a register may be written; counted from the start of the daemon.

    Raises:
        DomainError: rate_limited; nothing was sent and the key is unused.
    """
    now_s = device.worker.clock.monotonic_s()
    written: dict[str, list[float]] = {}
    for change in resolved.changes:
        limit = change.judged.max_rate_per_min
        if limit is None:
            continue
        name = change.register.name
        recent = [at for at in device.written_s.get(name, []) if at > now_s - MINUTE_S]
        if len(recent) >= limit:
            message = f"{device.name}.{name} may be written {limit} time(s) a minute"
            wait_ms = max(1, round(1000 * (recent[0] + MINUTE_S - now_s)))
            raise DomainError(Code.RATE_LIMITED, message, retry_after_ms=wait_ms, limit=f"{limit} a minute")
        written[name] = [*recent, now_s]
    device.written_s |= written
