"""What operators decide: settling, holds, freezes; each with who and why in the record."""

from __future__ import annotations

import asyncio
from pathlib import Path
from typing import Any, Final, Literal

from hwtool.history import History
from hwtool.outcome import Verdict
from hwtool.policy import Caller
from hwtool.recovery import NoteOf, Settlement, kept_values, settle
from hwtool.resolve import find_device
from hwtool.state import Daemon
from hwtool_contracts.errors import Code, DomainError
from hwtool_contracts.messages import HoldParams, ReasonParams, Result, SettleParams
from hwtool_store import operations
from hwtool_store.database import Connection, set_frozen
from hwtool_store.faults import StoreFatal, StoreRule
from hwtool_store.operations import OpRow

NOTHING_TAKEN: Final = ("not_applied", "satisfied")
READ_VERDICTS: Final = ("not_applied", "partial", "lost", "abandoned")
SETTLED_EFFECTS: Final = {"applied": "applied", "satisfied": "none", "not_applied": "none", "partial": "applied"}


class Operators:
    """The decisions of people."""

    def __init__(self, daemon: Daemon, history: History) -> None:
        self.daemon = daemon
        self._history = history

    async def settle(self, caller: Caller, params: SettleParams) -> Result:
        """End an unknown operation with a person's verdict.

        Raises:
            DomainError: refused; it is not unknown, or this verdict cannot be.
        """
        row = await self._history.row(caller, params.id, None)
        if row.kind == "sequence":
            message = f"operation {row.op_id} is the header of a sequence: it ends when its last begun step is settled"
            hint = f"settle the step that is unknown: hwtool op {row.op_id} names it"
            raise DomainError(Code.REFUSED, message, hint=hint, rule="sequence_header", register=None, field=None)
        if row.state != "UNKNOWN":
            message = f"operation {row.op_id} is {row.state}, not UNKNOWN: there is nothing to settle"
            raise DomainError(Code.REFUSED, message, rule="not_unknown", register=row.request["device"], field=None)
        in_hand = bool((row.response or {}).get("values"))  # the value came, and was kept
        if row.kind == "read" and not in_hand and params.verdict not in READ_VERDICTS:
            message = f"operation {row.op_id} is a read without its value: it cannot be {params.verdict}"
            hint = f"one of {', '.join(READ_VERDICTS)}"
            raise DomainError(
                Code.REFUSED, message, hint=hint, rule="verdict_of_read", register=row.request["device"], field=None
            )
        kept = len(await kept_values(self.daemon, row))
        if kept and params.verdict in NOTHING_TAKEN:
            message = (
                f"operation {row.op_id} has taken {kept} element(s) that are on record: it cannot be {params.verdict}"
            )
            hint = "partial, if no more were taken; lost, if some of those taken are gone"
            raise DomainError(
                Code.REFUSED, message, hint=hint, rule="values_on_record", register=row.request["device"], field=None
            )
        if row.kind != "read" and params.verdict == "lost":
            message = f"operation {row.op_id} is no read: there is no value that could be lost"
            hint = "abandoned, if nobody can tell what became of it"
            raise DomainError(
                Code.REFUSED, message, hint=hint, rule="verdict_of_write", register=row.request["device"], field=None
            )
        effects: Any = SETTLED_EFFECTS.get(params.verdict, "unknown")
        verdict = Verdict(params.verdict, effects, f"settled by {caller.principal}: {params.reason}")
        try:
            ended = await settle(self.daemon, row, verdict, "human", settled_by(self.daemon, caller, params.reason))
        except StoreRule as error:
            raise DomainError(
                Code.REFUSED,
                f"operation {row.op_id} was settled meanwhile",
                rule="not_unknown",
                register=row.request["device"],
                field=None,
            ) from error
        summary = f"operation {row.op_id} settled as {params.verdict}: {ended.why}"
        result = Result(status="done", ok=True, effects="none", id=row.op_id, verdict=params.verdict, summary=summary)
        return self.daemon.dressed(result, self.daemon.device_at(row.locus))

    async def hold(self, caller: Caller, params: HoldParams) -> Result:
        """Stop effectful requests to a device."""
        daemon = self.daemon
        device = find_device(daemon.devices, params.device)
        now_ns = daemon.clock.wall_ns()
        body = daemon.body("hold", caller, None, device=device.name, reason=params.reason)
        why = body["reason"]
        await daemon.ask(lambda conn: operations.put_hold(conn, device.locus, caller.principal, why, now_ns, body))
        device.put_hold(caller.principal, why, now_ns)
        summary = f"{device.name} is held; clean reads go on"
        return daemon.dressed(Result(status="done", ok=True, effects="none", summary=summary), device)

    async def freeze(self, caller: Caller, params: ReasonParams, frozen: bool) -> Result:
        """Stop effectful requests to every device, or end that; kept over restarts."""
        daemon = self.daemon
        body = daemon.body("freeze" if frozen else "thaw", caller, None, reason=params.reason)

        def job(conn: Connection) -> None:
            set_frozen(conn, frozen)
            operations.note(conn, body)

        await daemon.ask(job)
        was, daemon.frozen = daemon.frozen, frozen
        if frozen:
            summary = "frozen: no effectful request but device.safe_state, until thawed"
        else:
            summary = "thawed: effectful requests pass again" if was else "was not frozen"
        return daemon.dressed(Result(status="done", ok=True, effects="none", summary=summary))

    async def backup(self, caller: Caller, to: str) -> Result:
        """Copy the store into a new file, in small steps between which everything goes on.

        Raises:
            DomainError: refused; the file exists or cannot be written.
        """
        daemon = self.daemon
        try:
            size = await asyncio.wrap_future(daemon.store.back_up(Path(to)))
        except StoreRule as error:
            hint = "name a file that does not exist, in a directory that the daemon's user may write to"
            message = f"no backup was made: {error}"
            raise DomainError(
                Code.REFUSED, message, hint=hint, rule="backup_target", register=None, field=None
            ) from error
        except StoreFatal as error:
            raise DomainError(Code.STORE_FAILED, f"no backup was made: {error}", detail=str(error)) from error
        body = daemon.body("backup", caller, None, summary=f"{size} bytes to {to}")
        await daemon.ask(lambda conn: operations.note(conn, body))
        summary = f"{to}: {size} bytes; check it with hwtool store verify"
        return daemon.dressed(Result(status="done", ok=True, effects="none", summary=summary))

    async def prune(self, caller: Caller, keep: int) -> Result:
        """Leave tombstones of the oldest ended operations, in steps between which everything goes on."""
        daemon, pruned = self.daemon, 0
        body = daemon.body("prune", caller, None, summary=f"keep {keep} ended operations")
        await daemon.ask(lambda conn: operations.note(conn, body))
        while done := await daemon.ask(lambda conn: operations.prune(conn, keep, daemon.clock.wall_ns())):
            pruned += done
        summary = f"{pruned} operation(s) left a tombstone; {keep} ended ones at most are kept whole"
        return daemon.dressed(Result(status="done", ok=True, effects="none", summary=summary))

    async def release(self, caller: Caller, params: HoldParams) -> Result:
        """Take a person's hold off a device.

        Raises:
            DomainError: held; an operation of it is unknown.
        """
        daemon = self.daemon
        device = find_device(daemon.devices, params.device)
        held = device.held()
        if device.unknown_op is not None and held is not None:
            raise held
        mine = device.hold is not None
        if mine:
            body = daemon.body("release", caller, None, device=device.name, reason=params.reason)
            await daemon.ask(lambda conn: operations.take_hold(conn, device.locus, body))
            device.hold = None
        still = device.held()
        summary = f"{device.name} is free" if mine else f"{device.name} was not held"
        summary += "" if still is None else f"; {still.message}"
        return daemon.dressed(Result(status="done", ok=True, effects="none", summary=summary), device)


def settled_by(daemon: Daemon, caller: Caller | None, reason: str | None) -> NoteOf:
    """The audit row of a settlement, by a person or (no caller) by rule."""

    def body(row: OpRow, ended: Settlement, by: Literal["rule", "human"]) -> dict[str, Any]:
        sensitive = row.request["sensitive"]
        return daemon.body(
            "settled",
            caller if by == "human" else None,
            None,
            device=row.request["device"],
            **({"devices": row.request["devices"]} if row.kind == "sequence" else {}),
            key=row.key,
            of=row.principal,
            verdict=ended.verdict,
            effects=ended.result.effects,
            by="rule" if by == "rule" else "person",
            summary="redacted" if sensitive else ended.why,
            reason=reason if by == "human" else None,
        )

    return body
