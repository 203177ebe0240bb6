"""Requests that nobody answers in time, and grants that nobody uses in time: they end denied, by rule."""

from __future__ import annotations

from functools import partial
from typing import Final

from hwtool.answers import row_name
from hwtool.policy import may_approve
from hwtool.results import failed, from_row, to_row
from hwtool.state import Daemon
from hwtool.steps import contract_hash_of
from hwtool_contracts.errors import Code, DomainError
from hwtool_contracts.messages import Result
from hwtool_store import operations
from hwtool_store.faults import StoreRule
from hwtool_store.operations import Grant, OpRow

UNANSWERED_NS: Final = 3600 * 1_000_000_000
UNANSWERED: Final = "nobody answered within an hour"


def is_unanswered(row: OpRow, now_ns: int) -> bool:
    """Whether a request has waited longer than a person's attention may be asked for."""
    return now_ns - row.created_ns > UNANSWERED_NS


async def expire(daemon: Daemon, row: OpRow, why: str) -> Result:
    """End a pending operation by rule; answers what its key answers from now on.

    Raises:
        DomainError: the store has failed.
        StoreRule: it is not pending any more.
    """
    error = DomainError(Code.APPROVAL_EXPIRED, f"{row_name(row)}: {why}", approval=row.op_id, reason=why)
    result = failed(error, "none", id=row.op_id, verdict="denied")
    more = {"device": row.request["device"], "key": row.key, "of": row.principal, "summary": why}
    body = daemon.body("approval_expired", None, None, **more)
    now_ns = daemon.clock.wall_ns()
    response = to_row(daemon.dressed(result, daemon.device_at(row.locus)))
    await daemon.ask(lambda conn: operations.deny(conn, row.op_id, "rule", response, now_ns, body))
    daemon.tell()
    return result


def void_of(daemon: Daemon, row: OpRow, grant: Grant) -> str | None:
    """Why a grant is worth nothing any more, None if it holds."""
    if grant.host_boot_id != daemon.boot_id:
        return "the host was restarted since the approval"
    if daemon.clock.boottime_ns() > grant.expires_boottime_ns:
        return "the approval was not used in time"
    devices, board = daemon.devices_of(row), daemon.board
    simulated = bool(devices) and all(d.simulated for d in devices)
    uids = [int(principal.partition(":")[2]) for principal in (grant.approver, row.principal)]
    why_not = may_approve(board.approval_mode, uids[0], uids[1], simulated, board.self_approval_on_hardware)
    if why_not is not None:
        return f"the board was read again since the approval: {why_not}"
    if devices and row.contract_hash != contract_hash_of(devices):
        return "the contract was changed since the request"
    known = row.request.get("generations") or {d.name: row.device_gen for d in devices}
    if any(d.generation != known[d.name] for d in devices):
        return "the device restarted since the approval"
    return None


async def no_longer_granted(daemon: Daemon, row: OpRow) -> Result | None:
    """At the head of the queue: what a request answers whose grant did not last so long, None if it holds.

    Raises:
        DomainError: the store has failed.
        StoreRule: somebody was quicker still.
    """
    now = await daemon.ask(lambda conn: operations.get(conn, row.op_id))
    if now is not None and now.state == "DONE" and now.response is not None:  # denied meanwhile
        return from_row(now.response, now.op_id, now.key, now.evidence)
    grant = await daemon.ask(lambda conn: operations.grant_of(conn, row.op_id))
    void = "the approval is gone" if grant is None else void_of(daemon, row, grant)
    return None if void is None else await expire(daemon, row, void)


async def expire_unanswered(daemon: Daemon) -> int:
    """End every request that has waited too long without an answer, or whose grant is void; answers how many."""
    now_ns, ended = daemon.clock.wall_ns(), 0
    for row in await daemon.ask(lambda conn: operations.in_state(conn, "PENDING")):
        grant = await daemon.ask(partial(operations.grant_of, op_id=row.op_id))
        why = void_of(daemon, row, grant) if grant is not None else UNANSWERED if is_unanswered(row, now_ns) else None
        if why is None:
            continue
        try:
            await expire(daemon, row, why)
            ended += 1
        except StoreRule:
            continue  # somebody was quicker
    return ended
