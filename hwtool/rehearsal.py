"""Rehearsals: the real path up to the intent, and the exact transfers; nothing is dispatched, no key is used."""

from __future__ import annotations

import hashlib
import json

from hwtool.admission import Request, admit, understood
from hwtool.generation import refresh_boot
from hwtool.prepare import Prepared, plan_object, prepare
from hwtool.resolve import Resolved
from hwtool.results import failed
from hwtool.state import Daemon
from hwtool_contracts.errors import DomainError
from hwtool_contracts.messages import Result
from hwtool_store import operations


def plan_digest(prepared: Prepared) -> str:
    """What a person saw when approving: the exact transfers."""
    text = json.dumps(plan_object(prepared.plan), sort_keys=True)
    return hashlib.sha256(text.encode()).hexdigest()


def untouched(resolved: Resolved) -> list[str]:
    """Fields of the registers written that keep their state."""
    return [
        f"{c.register.name}.{name}"
        for c in resolved.changes
        if c.update is not None
        for name in c.register.fields
        if name not in c.fields
    ]


async def rehearse(daemon: Daemon, request: Request) -> Result:
    """The real path up to the intent, and the exact transfers; nothing is dispatched, no key is used."""
    try:
        if request.error is not None:
            raise request.error
        resolved = understood(request)
        await admit(daemon, request, resolved.device)
        resolved.device.worker.check()
        await refresh_boot(daemon, resolved.device)
        prepared = await prepare(resolved)
    except DomainError as error:
        result = failed(error, "none", key=request.params.key)
    else:
        result = _rehearsed(request, prepared)
    result.dry_run = result.simulated = True
    body = daemon.body("rehearsal", request.caller, request.resolved, dry_run=True, summary=result.summary)
    await daemon.ask(lambda conn: operations.note(conn, body))
    return daemon.dressed(result, request.device)


def _rehearsed(request: Request, prepared: Prepared) -> Result:
    resolved = prepared.resolved
    needs = list(resolved.approval)
    warnings = [f"needs_approval: {why}" for why in needs]
    if prepared.plan.may_be_partial:
        warnings.append("may_be_partial: several transfers; it can stop with part of it done")
    count = len(prepared.plan.steps)
    return Result(
        status="done",
        ok=True,
        effects="none",
        key=request.params.key,
        summary=f"{resolved.name()}: would send {count} transfer(s); nothing was sent",
        transfers=plan_object(prepared.plan),
        evidence={
            "implied_reads": sorted(prepared.before),
            "untouched": untouched(resolved),
            "window_ms": prepared.window_ms if prepared.verifiable else 0,
        },
        warnings=warnings,
    )
