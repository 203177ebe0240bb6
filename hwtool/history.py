"""What became of operations: op.get, op.wait, journal.read; a device is touched only by the rules of a row."""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable
from typing import Any

from hwtool import catalogue
from hwtool.answers import answer_of_row
from hwtool.clock import rfc3339
from hwtool.journal import entry
from hwtool.keyed import KeyedOperations
from hwtool.pending import expire_unanswered
from hwtool.policy import Caller
from hwtool.recovery import kept_values
from hwtool.resolve import find_device
from hwtool.results import in_progress
from hwtool.state import Daemon
from hwtool_contracts.errors import Code, DomainError
from hwtool_contracts.messages import JournalParams, OpGetParams, OpWaitParams, Result
from hwtool_store import audit, operations
from hwtool_store.operations import OpRow, Tombstone


class History:
    """Looks into the record.

    Args:
        try_rules: tries the rules on an unknown operation, and notes why a person is needed if one is.
    """

    def __init__(self, daemon: Daemon, keyed: KeyedOperations, try_rules: Callable[[int], Awaitable[object]]) -> None:
        self.daemon = daemon
        self._keyed = keyed
        self._try_rules = try_rules

    async def row(self, caller: Caller, op_id: int | None, key: str | None) -> OpRow:
        """The row of an operation, by number or by the caller's key.

        Raises:
            DomainError: not_found, or key_expired.
        """

        def job(conn: Any) -> OpRow | Tombstone | None:
            if key is not None:
                return operations.find(conn, caller.principal, key)
            return operations.get(conn, op_id or 0)

        found = await self.daemon.ask(job)
        wanted = key if key is not None else str(op_id)
        if isinstance(found, Tombstone):
            message = f"key {key} was used; its record has been pruned (verdict {found.verdict})"
            raise DomainError(Code.KEY_EXPIRED, message, key=key, verdict=found.verdict)
        if found is None:
            hint = "nothing of this name was ever sent; look at the journal (journal.read)"
            message = f"no operation {wanted}: never sent"
            raise DomainError(Code.NOT_FOUND, message, hint=hint, searched=wanted, suggestions=[])
        if found.state == "PENDING" and await expire_unanswered(self.daemon):
            return await self.row(caller, found.op_id, None)
        return found

    async def op_get(self, caller: Caller, params: OpGetParams) -> Result:
        """An operation as it is now; with `verify`, after its rules were tried."""
        row = await self._row_or_coming(caller, params.id, params.key)
        if row is None:
            return self.daemon.dressed(in_progress(params.key or "", None))
        if params.verify and row.state == "UNKNOWN":
            await self._try_rules(row.op_id)
            row = await self.row(caller, row.op_id, None)
        return await self._op_result(caller, row)

    async def _row_or_coming(self, caller: Caller, op_id: int | None, key: str | None) -> OpRow | None:
        """As `row`; None: it has none yet, and may get one, for a request under this key is under way."""
        try:
            return await self.row(caller, op_id, key)
        except DomainError as error:
            if key is None or error.code is not Code.NOT_FOUND:
                raise
            if self._keyed.is_coming(caller.principal, key):
                return None
        return await self.row(caller, op_id, key)  # it may have ended between the two looks

    async def _op_result(self, caller: Caller, row: OpRow) -> Result:
        device = self.daemon.device_at(row.locus)
        mine = row.principal == caller.principal or caller.role == "operator"
        result = answer_of_row(row, caller)
        if row.state == "UNKNOWN" and result.values is None:
            result.values = await kept_values(self.daemon, row) or None  # of a burst that a crash cut off
        if not mine:
            result.values = result.evidence = None
            result.summary = f"operation {row.op_id} of another caller"
            if result.error is not None:
                result.error = {**result.error, "message": result.summary, "evidence": None}
        shown: dict[str, Any] = {
            "id": row.op_id,
            "key": row.key if mine else None,
            "principal": row.principal,
            "device": row.request["device"],
            "registers": row.request["registers"],
            "kind": row.kind,
            "state": row.state,
            "verdict": row.verdict,
            "verdict_by": row.verdict_by,
            "created": rfc3339(row.created_ns),
            "intent": None if row.intent_ns is None else rfc3339(row.intent_ns),
            "done": None if row.done_ns is None else rfc3339(row.done_ns),
            "needs_person": self.daemon.reasons.get(row.op_id) if row.state == "UNKNOWN" else None,
            "parent": row.parent_op,
        }
        if caller.role == "operator" and not row.request.get("sensitive"):
            shown |= _for_settling(row)
        if row.kind == "sequence":
            steps = await self.daemon.ask(lambda conn: operations.children(conn, row.op_id))
            shown["devices"] = row.request["devices"]
            shown["steps"] = [
                {"step": operations.step_number(s), "id": s.op_id, "state": s.state, "verdict": s.verdict}
                for s in steps
            ]
        result.key = shown["key"]
        result.op = shown
        result.replayed = False  # it was asked what became of it, not to do it again
        result.warnings = [w for w in result.warnings if not w.startswith("replayed_from_earlier")]
        return self.daemon.dressed(result, device)

    async def op_wait(self, caller: Caller, params: OpWaitParams) -> Result:
        """An operation when it has ended or become unknown, or when the time is over."""
        deadline_s = self.daemon.clock.monotonic_s() + params.wait_ms / 1000
        while True:
            task = None if params.key is None else self._keyed.at_work(caller.principal, params.key)
            if task is not None:
                await asyncio.wait({task}, timeout=deadline_s - self.daemon.clock.monotonic_s())
            changed = self.daemon.changed
            row = await self._row_or_coming(caller, params.id, params.key)
            rest_s = deadline_s - self.daemon.clock.monotonic_s()
            if row is not None and (row.state in ("DONE", "UNKNOWN") or rest_s <= 0):
                return await self._op_result(caller, row)
            if rest_s <= 0:
                return self.daemon.dressed(in_progress(params.key or "", None))
            try:
                async with asyncio.timeout(rest_s):
                    await changed.wait()
            except TimeoutError:
                continue

    async def journal(self, caller: Caller, params: JournalParams) -> Result:
        """A page of the audit chain, as this caller may see it."""
        after = catalogue.cursor_of(params.cursor) if params.cursor is not None else params.since
        device = params.device
        if device is not None:
            device = find_device(self.daemon.devices, device).name
        if after is None:
            rows = await self.daemon.ask(lambda conn: audit.newest(conn, params.limit, device))
        else:
            rows = await self.daemon.ask(lambda conn: audit.page(conn, after, params.limit, device))
        operator = caller.role == "operator"
        shown = [entry(r, caller.principal, operator=operator) for r in rows]
        result = Result(status="done", ok=True, effects="none", summary=f"{len(shown)} entries")
        result.entries = shown
        result.cursor = str(rows[-1].seq) if after is not None and len(rows) == params.limit else None
        return self.daemon.dressed(result)


def _for_settling(row: OpRow) -> dict[str, Any]:
    """What a person needs who has to settle it: what was to be sent, and what was there before, from the row alone."""
    rules = [{"register": t["register"], "rule": t["reconcile"], "shown_by": t["observe"]} for t in _of(row, "targets")]
    for read in _of(row, "reads"):
        shown_by = read.get("level") or read.get("peek") or read.get("state")
        shown_by = shown_by or ", ".join(name for name, _ in read.get("acknowledges") or ()) or None
        rules.append({"register": read["register"], "rule": read["kind"], "shown_by": shown_by})
    return {
        "plan": row.request.get("plan"),
        "wanted": row.request.get("values"),
        "before": {name: hex(value) for name, value in (row.pre or {}).get("values", {}).items()},
        "rules": rules,
    }


def _of(row: OpRow, member: str) -> list[dict[str, Any]]:
    """A list of the row's request; empty while it waits for approval, or where it is no list."""
    found = row.request.get(member)
    return found if isinstance(found, list) else []
