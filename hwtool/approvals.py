"""Approvals: what waits for a person, what it would do, and the person's answer. Operator socket only.

A grant is bound to the request's digest, contract and device generation by the store, and to the exact transfers that
were shown by their digest. The code that `approve` must carry comes from `show`: what was never shown cannot be
approved, and an answer sooner than a person can read is refused.
"""

from __future__ import annotations

import hmac
from functools import partial
from typing import Any, Final, Literal

import msgspec

from hwtool.admission import KeyedParams, resolve
from hwtool.answers import row_name
from hwtool.clock import rfc3339
from hwtool.journal import REDACTED, clean_text
from hwtool.pending import expire_unanswered
from hwtool.policy import Caller, may_approve
from hwtool.prepare import Prepared, plan_object
from hwtool.rehearsal import plan_digest, rehearsed, untouched
from hwtool.resolve import Change, Resolved
from hwtool.results import failed, shown_value, to_row
from hwtool.state import Daemon
from hwtool.steps import ResolvedSequence, shown_steps
from hwtool_contracts.errors import Code, DomainError
from hwtool_contracts.messages import METHODS, Result
from hwtool_registers.bits import hexed
from hwtool_store import operations
from hwtool_store.operations import Grant, OpRow

TOO_SOON_NS: Final = 1_500_000_000
GRANT_NS: Final = 120_000_000_000
CODE_LENGTH: Final = 8


class Approvals:
    """The screens and decisions of one daemon."""

    def __init__(self, daemon: Daemon) -> None:
        self._daemon = daemon
        self._shown: dict[int, tuple[str, str, int]] = {}  # op: code, digest of the plan shown, when

    async def listed(self) -> Result:
        """Everything that waits."""
        await expire_unanswered(self._daemon)
        rows = await self._daemon.ask(lambda conn: operations.in_state(conn, "PENDING"))
        result = Result(status="done", ok=True, effects="none", summary=f"{len(rows)} request(s) wait")
        grants = [await self._daemon.ask(partial(operations.grant_of, op_id=row.op_id)) for row in rows]
        result.approvals = [
            self._line(row) | {"approved_by": None if grant is None else grant.approver}
            for row, grant in zip(rows, grants, strict=True)
        ]
        return self._daemon.dressed(result)

    def _line(self, row: OpRow) -> dict[str, Any]:
        reason = row.request.get("reason")
        return {
            "approval": row.op_id,
            "device": row.request["device"],
            "registers": row.request["registers"],
            "what": row_name(row),
            "kind": row.kind,
            "requester": row.principal,
            "requested": rfc3339(row.created_ns),
            "reason_in_requesters_words": None if reason is None else clean_text(reason),
        }

    async def _pending(self, op_id: int) -> OpRow:
        await expire_unanswered(self._daemon)
        row = await self._daemon.ask(lambda conn: operations.get(conn, op_id))
        if row is None or row.state != "PENDING":
            state = "none of this number" if row is None else f"operation {op_id} is {row.state}"
            raise DomainError(
                Code.NOT_FOUND,
                f"no pending approval {op_id}: {state}",
                hint="approval.list shows what waits",
                searched=str(op_id),
                suggestions=[],
            )
        return row

    def _resolved(self, row: OpRow) -> Resolved | ResolvedSequence:
        """The request, resolved again by today's contract."""
        kind = METHODS[row.request["method"]].params
        params: KeyedParams = msgspec.convert(row.request["params"], kind)  # type: ignore[assignment]
        return resolve(self._daemon, params)

    async def shown(self, op_id: int) -> Result:
        """What a request would do, as transfers and bits, and the code that approve needs."""
        row = await self._pending(op_id)
        resolved = self._resolved(row)
        found = await rehearsed(resolved)
        plan = plan_digest(found.prepared)
        text = row.digest + plan.encode()
        code = hmac.digest(self._daemon.store.secret, text, "sha256").hex()[:CODE_LENGTH]
        self._shown[op_id] = (code, plan, self._daemon.clock.boottime_ns())
        screen = self._line(row) | {
            "code": code,
            "changes": REDACTED
            if resolved.sensitive
            else [
                self._change(c, p) | {"number": number}
                for number, p in enumerate(found.prepared, start=1)
                for c in p.resolved.changes
            ],
            "transfers": REDACTED if resolved.sensitive else [t for p in found.prepared for t in plan_object(p.plan)],
            "implied_reads": sorted({name for p in found.prepared for name in p.before}),
            "untouched": [name for p in found.prepared for name in untouched(p.resolved)],
            "why": row.request.get("why", list(resolved.approval)),
            "may_be_partial": len(found.prepared) > 1 or any(p.plan.may_be_partial for p in found.prepared),
            "warnings": list(found.warnings),
        }
        if isinstance(resolved, ResolvedSequence):
            screen["steps"] = shown_steps(resolved)
        result = Result(status="done", ok=True, effects="none", summary=f"{resolved.name()}: approve with code {code}")
        result.approvals = [screen]
        return self._daemon.dressed(result, resolved.device if isinstance(resolved, Resolved) else None)

    @staticmethod
    def _change(change: Change, prepared: Prepared) -> dict[str, Any]:
        register, name = change.register, change.register.name
        after, before = prepared.values[name], prepared.before.get(name)
        whole = before is not None or change.writes_whole
        fields = {}
        for field in register.fields.values():
            if not whole and not field.mask & (change.mask or 0):
                continue  # it is not written, and nobody knows what it holds
            new = field.taken(after)
            old = None if before is None else field.taken(before)
            if new != old:
                shown = None if old is None else hexed(old, field.width_bits)
                fields[field.name] = {"before": shown, "after": hexed(new, field.width_bits)}
        device = prepared.resolved.device.name
        return {
            "register": name,
            "before": None if before is None else hexed(before, register.width_bits),
            "after": hexed(after, register.width_bits) if whole else None,
            "before_value": None if before is None else shown_value(device, register, before),
            "after_value": shown_value(device, register, after) if whole else None,
            "fields": fields,
        }

    async def approve(self, caller: Caller, op_id: int, code: str) -> Result:
        """Grant a request once, for as long as a person would wait for it."""
        daemon = self._daemon
        row = await self._pending(op_id)
        if await daemon.ask(partial(operations.grant_of, op_id=op_id)) is not None:
            hint = "it runs when it is repeated; another picture needs a request under a new key"
            raise self._refused(row, "already_approved", "it has been approved", hint)
        shown = self._shown.get(op_id)
        device = daemon.device_at(row.locus)
        if shown is None:
            raise self._refused(
                row, "never_shown", "it was not shown since the daemon started", "use approval.show first"
            )
        if not hmac.compare_digest(code.encode(), shown[0].encode()):
            raise self._refused(
                row, "wrong_code", "the code is not the one that was shown", "use the code of approval.show"
            )
        if daemon.clock.boottime_ns() - shown[2] < TOO_SOON_NS:
            raise self._refused(row, "too_soon", "it was shown less than 1.5 s ago", "read it, then answer")
        mode, board = daemon.board.approval_mode, daemon.board
        devices = daemon.devices_of(row)
        simulated = bool(devices) and all(d.simulated for d in devices)
        why_not = may_approve(
            mode, caller.uid, int(row.principal.partition(":")[2]), simulated, board.self_approval_on_hardware
        )
        if why_not is not None:
            raise DomainError(Code.DENIED, why_not, reason=why_not, required="another operator")
        expires = daemon.clock.boottime_ns() + GRANT_NS
        given = Grant(caller.principal, "granted", daemon.boot_id, expires, False)
        body = daemon.body("approved", caller, None, device=row.request["device"], plan=shown[1])
        approved = {"approved_plan": shown[1]}
        await daemon.ask(lambda conn: operations.grant(conn, row, given, approved, body))
        self._shown.pop(op_id, None)
        daemon.tell()
        summary = f"operation {op_id} approved; it runs when {row.principal} repeats the request, within 120 s"
        return daemon.dressed(Result(status="done", ok=True, effects="none", id=op_id, summary=summary), device)

    def _refused(self, row: OpRow, rule: str, why: str, hint: str) -> DomainError:
        message = f"approval {row.op_id}: {why}"
        return DomainError(Code.REFUSED, message, hint=hint, rule=rule, register=row.request["device"], field=None)

    async def deny(self, caller: Caller, op_id: int, reason: str) -> Result:
        """Deny a request; the reason reaches the requester."""
        daemon = self._daemon
        row = await self._pending(op_id)
        why = clean_text(reason)
        message = f"{row_name(row)}: denied by {caller.principal}: {why}"
        error = DomainError(Code.APPROVAL_DENIED, message, approval=op_id, reason=why)
        device = daemon.device_at(row.locus)
        response = to_row(daemon.dressed(failed(error, "none", id=op_id, verdict="denied"), device))
        now_ns = daemon.clock.wall_ns()
        body = daemon.body("denied", caller, None, device=row.request["device"], reason=reason)
        by: Literal["human", "rule"] = "human"
        await daemon.ask(lambda conn: operations.deny(conn, op_id, by, response, now_ns, body))
        daemon.tell()
        return daemon.dressed(
            Result(status="done", ok=True, effects="none", id=op_id, summary=f"operation {op_id} denied")
        )
