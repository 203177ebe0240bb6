"""What a lost request or reply must lead to, whatever the access: told, held, and settled by what was counted."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from hwtool.checks.rig import OPERATOR
from hwtool.checks.stand import NotApplicable, Stand, ensure
from hwtool_contracts.errors import Code
from hwtool_contracts.messages import Result
from hwtool_contracts.model import Register
from hwtool_sim.faults import Fault, FaultKind


def untrue(access: str, verdict: str, effects: str, executed: int, same: bool) -> str | None:
    """What is wrong with a settlement, by what the device has counted; None: nothing.

    Args:
        same: whether the device holds what it held before.
    """
    if effects == "applied" and not executed:
        return "an effect is claimed, and nothing was executed"
    if effects == "none" and executed and not same:
        return "an effect is denied, and it was executed"
    match verdict:
        case "applied":
            return None if executed else "nothing was executed"
        case "not_applied":
            return "it was executed" if executed else None
        case "satisfied":
            return None if same and access == "write" else "it was not so before"
        case "lost":
            return None if access == "read" else "a write loses no value"
        case "partial":
            return None if executed else "nothing was executed"
        case _:
            return "no rule may say this where nothing has come in between"


async def _lost(stand: Stand, device: str, kind: FaultKind, method: str, params: dict[str, Any], key: str) -> Result:
    await stand.lose(kind, device, method, **params)
    told = await stand.effect(method, **params, key=key)
    if stand.bus(device).faults and stand.bus(device).faults[0].times:
        stand.bus(device).faults = []
        raise NotApplicable(f"the loss never struck: {told.summary}")
    return told


async def loss_told(
    stand: Stand, device: str, register: Register, access: str, method: str, params: dict[str, Any]
) -> str:
    """A lost reply is told as unknown, and no retry executes it again."""
    key = stand.key()
    with stand.counting(device, register.name, access) as executed:
        first = await _lost(stand, device, FaultKind.REPLY_LOST, method, params, key)
        for _ in range(2):
            await stand.effect(method, **params, key=key)
        await stand.engine.rules_done(stand.device(device))
        await stand.effect(method, **params, key=key)
    ensure(not first.ok and first.effects == "unknown", f"told {first.status}, effects {first.effects}")
    ensure(executed[0] == 1, f"{executed[0]} executed of one request whose reply was lost")
    return f"{executed[0]} executed, told {(first.error or {}).get('code')}"


async def unknown_held(
    stand: Stand, device: str, register: Register, access: str, method: str, params: dict[str, Any]
) -> str:
    """While its outcome is unknown the device takes no other effect."""
    await _lost(stand, device, FaultKind.REPLY_LOST, method, params, stand.key())
    place = stand.device(device).spec.place
    stand.bus(device).faults.append(Fault(FaultKind.NACK, place, "read", times=1000))  # no rule can look
    await stand.engine.rules_done(stand.device(device))  # until then the bus is shut to everybody
    if stand.device(device).unknown_op is None:
        raise NotApplicable("a rule settled it without a look")
    with stand.counting(device, register.name, access) as executed:
        other = await stand.effect(method, **params, key=stand.key())
    code = (other.error or {}).get("code")
    ensure(executed[0] == 0 and code == Code.HELD, f"{code}, {executed[0]} executed")
    return f"{code}, 0 executed"


async def settled_truly(
    stand: Stand,
    device: str,
    register: Register,
    access: str,
    method: str,
    params: dict[str, Any],
    prepare: Callable[[], object],
) -> str:
    """What a rule settles is what the device has counted; else a person does. Request lost, then reply lost."""
    told = []
    for kind in (FaultKind.REQUEST_LOST, FaultKind.REPLY_LOST):
        await stand.fresh(device)
        prepare()
        key, before = stand.key(), dict(stand.chip(device).values)
        with stand.counting(device, register.name, access) as executed:
            first = await _lost(stand, device, kind, method, params, key)
            await stand.engine.rules_done(stand.device(device))
        final = await stand.call("op.get", OPERATOR, key=key)
        if stand.device(device).unknown_op is not None:
            by = "a person"
            done = await stand.call("op.settle", OPERATOR, id=first.id, verdict="abandoned", reason="safety check")
            ensure(done.ok or stand.device(device).unknown_op is None, f"a person could not settle it: {done.summary}")
        else:
            by = f"a rule: {final.verdict}"
            same = stand.chip(device).values == before
            lie = untrue(access, str(final.verdict), final.effects, executed[0], same)
            ensure(lie is None, f"{kind.value}: settled as {final.verdict}, effects {final.effects}: {lie}")
        ensure(stand.device(device).unknown_op is None, "the device stays held")
        told.append(f"{kind.value.replace('_', ' ')}: {executed[0]} executed, by {by}")
    return "; ".join(told)
