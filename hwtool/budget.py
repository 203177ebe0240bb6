"""Daily budgets of nonvolatile registers: what the board lets be written without a person, so many times a UTC day.

Counted from the store, so that a restart of the daemon gives nothing back. Beyond its budget a write needs approval
again, as the contract says.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Mapping
from functools import partial
from typing import Final

from hwtool.admission import Request
from hwtool.devices import Device
from hwtool.permission import approval as wanted_by_policy
from hwtool.resolve import Resolved
from hwtool.state import Daemon
from hwtool.steps import ResolvedSequence
from hwtool_contracts.errors import Code, DomainError
from hwtool_contracts.judge_write import NONVOLATILE
from hwtool_store import operations

DAY_NS: Final = 86_400 * 1_000_000_000
Places = Mapping[tuple[str, str], int]  # (device, register or memory) → writes


async def approval_of(daemon: Daemon, request: Request, resolved: Resolved | ResolvedSequence) -> tuple[str, ...]:
    """Why a person must agree: what the contract demands beyond the budget, and what the board's policy demands."""
    if resolved.kind == "safe_state":
        return ()
    parts = (
        [(None, resolved)]
        if isinstance(resolved, Resolved)
        else [(s.number, s.keyed) for s in resolved.effectful if s.keyed is not None]
    )
    reasons = [(s, p.device, c, why) for s, p in parts for c in p.changes for why in c.judged.approval]
    others = [r for r in reasons if r[3] != NONVOLATILE]
    policy = wanted_by_policy(daemon.board.policy, request.caller, resolved)
    excused: set[tuple[str, str]] = set()
    if not others and not policy:  # who is asked anyway is told of the wear too
        left = await _left(daemon, {p.device.name: p.device for _, p in parts})
        wanted = Counter(place for _, part in parts for place in nonvolatile(part))
        excused = {place for place, count in wanted.items() if count <= left.get(place, 0)}
    found: dict[str, None] = {}
    for step, device, change, why in reasons:
        if why == NONVOLATILE and (device.name, _base(device, change.register.name)) in excused:
            continue
        found[why if step is None else f"step {step}: {why}"] = None
    return (*found, *policy)


def nonvolatile(resolved: Resolved) -> list[tuple[str, str]]:
    """The places with a budget that a request writes, one for each write."""
    device = resolved.device
    names = [_base(device, c.register.name) for c in resolved.changes if NONVOLATILE in c.judged.approval]
    return [(device.name, name) for name in names if name in device.spec.writes_per_day]


async def check_left(daemon: Daemon, resolved: Resolved | ResolvedSequence) -> None:
    """Refuse, at the head of the queue, what others have used the budget up for meanwhile.

    Raises:
        DomainError: rate_limited; the key stays unused, and asking again asks a person.
    """
    parts = [resolved] if isinstance(resolved, Resolved) else [s.keyed for s in resolved.effectful if s.keyed]
    wanted = Counter(place for part in parts for place in nonvolatile(part))
    left = await _left(daemon, {p.device.name: p.device for p in parts}) if wanted else {}
    for place, count in wanted.items():
        if count > left.get(place, 0):
            limit = daemon.devices[place[0]].spec.writes_per_day[place[1]]
            told = f"its budget of {limit} write(s) a day does not last; asked again, a person decides"
            message = f"{'.'.join(place)}: {told}"
            raise DomainError(Code.RATE_LIMITED, message, retry_after_ms=1, limit=limit)


async def _left(daemon: Daemon, devices: Mapping[str, Device]) -> Places:
    """How many writes each budget has left today."""
    since_ns = daemon.clock.wall_ns() // DAY_NS * DAY_NS
    left: dict[tuple[str, str], int] = {}
    for device in devices.values():
        if not device.spec.writes_per_day:
            continue
        begun = await daemon.ask(partial(operations.written_since, locus=device.locus, since_ns=since_ns))
        used = Counter(_base(device, name) for name in begun)
        left |= {(device.name, name): n - used[name] for name, n in device.spec.writes_per_day.items()}
    return left


def _base(device: Device, name: str) -> str:
    """The memory of a range of one, else the register itself."""
    memory = name.partition("[")[0]
    return memory if memory in device.contract.memories else name
