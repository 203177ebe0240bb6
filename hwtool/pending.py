"""Requests that nobody answers in time, and grants that nobody uses in time: they end denied, by rule."""

from __future__ import annotations

from typing import Final

from hwtool.results import failed, to_row
from hwtool.state import Daemon
from hwtool_contracts.errors import Code, DomainError
from hwtool_contracts.messages import Result
from hwtool_store import operations
from hwtool_store.faults import StoreRule
from hwtool_store.operations import OpRow

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
    name = f"{row.request['device']}.{', '.join(row.request['registers'])}"
    error = DomainError(Code.APPROVAL_EXPIRED, f"{name}: {why}", approval=row.op_id, reason=why)
    result = failed(error, "none", id=row.op_id, verdict="denied")
    more = {"device": row.request["device"], "key": row.key, "of": row.principal, "summary": why}
    body = daemon.body("approval_expired", None, None, **more)
    now_ns = daemon.clock.wall_ns()
    response = to_row(daemon.dressed(result, daemon.device_at(row.locus)))
    await daemon.ask(lambda conn: operations.deny(conn, row.op_id, "rule", response, now_ns, body))
    daemon.tell()
    return result


async def expire_unanswered(daemon: Daemon) -> None:
    """End every request that has waited too long without an answer."""
    now_ns = daemon.clock.wall_ns()
    for row in await daemon.ask(lambda conn: operations.in_state(conn, "PENDING")):
        if is_unanswered(row, now_ns) and await daemon.ask(_undecided(row.op_id)):
            try:
                await expire(daemon, row, UNANSWERED)
            except StoreRule:
                continue  # somebody was quicker


def _undecided(op_id: int) -> operations.Job[bool]:
    return lambda conn: operations.grant_of(conn, op_id) is None
