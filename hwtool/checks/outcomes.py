"""What a lost request or reply must lead to, whatever the access: told, held, and settled by what was counted."""

from __future__ import annotations

from collections.abc import Callable

from hwtool.checks.asked import Asked
from hwtool.checks.rig import OPERATOR
from hwtool.checks.stand import NotApplicable, Stand, ensure
from hwtool_contracts.errors import Code
from hwtool_contracts.messages import Result
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


async def _lost(stand: Stand, asked: Asked, kind: FaultKind, key: str) -> Result:
    await stand.lose(kind, asked.device, asked.method, **asked.params)
    told = await stand.effect(asked.method, **asked.params, key=key)
    faults = stand.bus(asked.device).faults
    if faults and faults[0].times:
        stand.bus(asked.device).faults = []
        raise NotApplicable(f"the loss never struck: {told.summary}")
    return told


async def loss_told(stand: Stand, asked: Asked) -> str:
    """A lost reply is told as unknown, and no retry executes it again."""
    key, before = stand.key(), asked.executed(stand)
    first = await _lost(stand, asked, FaultKind.REPLY_LOST, key)
    for _ in range(2):
        await stand.effect(asked.method, **asked.params, key=key)
    await stand.engine.rules_done(stand.device(asked.device))
    await stand.effect(asked.method, **asked.params, key=key)
    ensure(not first.ok and first.effects == "unknown", f"told {first.status}, effects {first.effects}")
    executed = asked.executed(stand) - before
    ensure(executed == asked.at_once, f"{executed} executed of one request whose reply was lost")
    return f"{executed} executed, told {(first.error or {}).get('code')}"


async def unknown_held(stand: Stand, asked: Asked) -> str:
    """While its outcome is unknown the device takes no other effect."""
    device = stand.device(asked.device)
    await _lost(stand, asked, FaultKind.REPLY_LOST, stand.key())
    blind = Fault(FaultKind.NACK, device.spec.place, "read", times=1000)  # no rule can look
    stand.bus(asked.device).faults.append(blind)
    await stand.engine.rules_done(device)  # until then the bus is shut to everybody
    if device.unknown_op is None:
        raise NotApplicable("a rule settled it without a look")
    before = asked.executed(stand)
    other = await stand.effect(asked.method, **asked.params, key=stand.key())
    code, executed = (other.error or {}).get("code"), asked.executed(stand) - before
    ensure(executed == 0 and code == Code.HELD, f"{code}, {executed} executed")
    return f"{code}, 0 executed"


async def settled_truly(stand: Stand, asked: Asked, prepare: Callable[[], object]) -> str:
    """What a rule settles is what the device has counted; else a person does. Request lost, then reply lost."""
    told, device = [], stand.device(asked.device)
    for kind in (FaultKind.REQUEST_LOST, FaultKind.REPLY_LOST):
        await stand.fresh(asked.device)
        prepare()
        key, counted, before = stand.key(), asked.executed(stand), stand.state(asked.device)
        first = await _lost(stand, asked, kind, key)
        await stand.engine.rules_done(device)
        executed = asked.executed(stand) - counted
        final = await stand.call("op.get", OPERATOR, key=key)
        if device.unknown_op is not None:
            by = "a person"
            done = await stand.call("op.settle", OPERATOR, id=first.id, verdict="abandoned", reason="safety check")
            ensure(done.ok or device.unknown_op is None, f"a person could not settle it: {done.summary}")
        else:
            by = f"a rule: {final.verdict}"
            same, access = stand.state(asked.device) == before, "read" if asked.reads else "write"
            lie = untrue(access, str(final.verdict), final.effects, executed, same)
            ensure(lie is None, f"{kind.value}: settled as {final.verdict}, effects {final.effects}: {lie}")
        ensure(device.unknown_op is None, "the device stays held")
        told.append(f"{kind.value.replace('_', ' ')}: {executed} executed, by {by}")
    return "; ".join(told)
