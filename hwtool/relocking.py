"""Locking again what a sequence had unlocked when the daemon died in it.

A sequence of a contract may declare `relock`: plain stores that do no harm at any time. They are kept in the header's
row when the sequence begins, since recovery reads the row only, and are sent once at the next start, after the rules
have looked. The journal tells of it before anything is sent. It settles nothing: what is unknown stays so.
"""

from __future__ import annotations

from collections.abc import Sequence
from functools import partial
from typing import Any

from hwtool.devices import Device
from hwtool.dispatch import Dispatched, Intent, dispatch
from hwtool.prepare import check_assumptions, check_identity, plan_object
from hwtool.state import Daemon
from hwtool.steps import ResolvedSequence
from hwtool_contracts.errors import DomainError
from hwtool_registers.bus import from_object
from hwtool_registers.plan import plan_write
from hwtool_registers.steps import Plan, Role, Step
from hwtool_store import operations
from hwtool_store.operations import OpRow


def relock_facts(sequence: ResolvedSequence) -> dict[str, Any] | None:
    """What a header's row keeps of it; None where the sequence declares nothing."""
    if sequence.named is None or not sequence.named[1].relock:
        return None
    device, named = sequence.named
    values = [(device.contract.registers[one.register], one.value) for one in named.relock]
    plans = [device.through(plan_write(device.contract, device.spec.address, [value], {})) for value in values]
    return {"locus": device.locus, "sequence": named.name, "plan": [t for p in plans for t in plan_object(p)]}


async def relock(daemon: Daemon, unknown: Sequence[OpRow]) -> None:
    """At a start: lock again what the headers among these operations may have left unlocked.

    A daemon that may send nothing says in the journal that it did not.
    """
    for row in unknown:
        facts = row.request.get("relock")
        if row.kind == "sequence" and facts is not None:
            await _relock(daemon, row, facts)


async def _relock(daemon: Daemon, row: OpRow, facts: dict[str, Any]) -> None:
    device = daemon.device_at(facts["locus"])
    if device is None:
        return  # it left the board; its locus stays held
    registers = list(dict.fromkeys(s["register"] for s in facts["plan"] if s["role"] == Role.ACCESS))
    told = {"device": device.name, "of": row.op_id, "sequence": facts["sequence"], "registers": registers}
    why = _hindered(daemon, device)
    if why is None:
        try:
            device.worker.check()
            await check_identity(device)  # another chip may sit there by now
            await check_assumptions(device)
        except DomainError as error:
            why = error.message
    if why is not None:
        await _note(daemon, "not_relocked", **told, reason=why)
        return
    await _note(daemon, "relock", **told)
    steps = tuple(Step(Role(s["role"]), s["register"], from_object(_plain(s))) for s in facts["plan"])
    sent = await dispatch(Intent(row.op_id), device, Plan(steps), {}, device.worker.returns)
    await _note(daemon, "relocked" if sent.stopped is None else "relock_in_doubt", **told, reason=_end(sent))


def _hindered(daemon: Daemon, device: Device) -> str | None:
    if daemon.read_only or daemon.rehearsing:
        return "the daemon was started so that it sends nothing with an effect"
    for one in (device, device.mux):
        if one is not None and one.hold is not None:
            return f"{one.name} is held by {one.hold.by}"
    return "the daemon is frozen" if daemon.frozen else None


def _plain(step: dict[str, Any]) -> dict[str, Any]:
    return {k: v for k, v in step.items() if k not in ("role", "register")}


def _end(sent: Dispatched) -> str:
    return f"{sent.done} write(s) acknowledged" if sent.stopped is None else sent.stopped.fault


async def _note(daemon: Daemon, what: str, **told: Any) -> None:
    await daemon.ask(partial(operations.note, body=daemon.body(what, None, None, **told)))
