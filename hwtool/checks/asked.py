"""What a request with an effect must keep, whatever it is: once under its key, its key its own, nothing unapproved."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

from hwtool.checks.rig import AGENT, OPERATOR
from hwtool.checks.stand import NotApplicable, Stand, ensure
from hwtool_contracts.errors import Code
from hwtool_contracts.messages import Result


@dataclass(frozen=True, slots=True)
class Asked:
    """A request, and what the chip counts of it.

    Attributes:
        counts: registers or memories, each with `read` or `write`.
        at_once: how many of these its first transfer executes.
    """

    device: str
    counts: tuple[tuple[str, str], ...]
    method: str
    params: dict[str, Any]
    at_once: int = 1

    @property
    def reads(self) -> bool:
        """Whether its effect is that of a read."""
        return all(access == "read" for _, access in self.counts)

    def executed(self, stand: Stand) -> int:
        """How often the chip took part in what it counts."""
        return sum(stand.executed(self.device, name, access) for name, access in self.counts)


async def once_only(stand: Stand, asked: Asked) -> tuple[Result, int, str]:
    """Three times under one key it is executed once: the key's result, what was executed, and the key."""
    key, before = stand.key(), asked.executed(stand)
    first = await stand.done_undisturbed(asked.method, **asked.params, key=key)
    executed = asked.executed(stand) - before
    again = [await stand.effect(asked.method, **asked.params, key=key) for _ in range(2)]
    more = asked.executed(stand) - before - executed
    ensure(more == 0, f"{executed} executed at first, {more} by the repeats")
    same = all(r.replayed and (r.verdict, r.values) == (first.verdict, first.values) for r in again)
    ensure(same, "the repeats answer something else")
    return first, executed, key


async def other_refused(stand: Stand, asked: Asked, method: str, other: dict[str, Any]) -> str:
    """The same key with another request is refused, and nothing is sent."""
    key = stand.key()
    await stand.done_undisturbed(asked.method, **asked.params, key=key)
    before = asked.executed(stand)
    told = await stand.effect(method, **other, key=key)
    code, more = (told.error or {}).get("code"), asked.executed(stand) - before
    ensure(code == Code.KEY_CONFLICT and more == 0, f"{code}, {more} executed")
    return f"{code}, 0 executed"


async def unapproved_never(stand: Stand, asked: Asked, needed: bool) -> str:
    """An agent does not get it without an approval, where its contract (`needed`) or policy wants one."""
    needed = needed or any(stand.policy_asks(asked.device, name, access) for name, access in asked.counts)
    key, before = stand.key(), asked.executed(stand)
    told = await stand.call(asked.method, AGENT, **asked.params, key=key)
    if told.status != "pending_approval":
        ensure(not told.ok or not needed, "its contract or policy asks for one, and nobody was asked")
        raise NotApplicable("no approval is asked for it")
    again = await stand.call(asked.method, AGENT, **asked.params, key=key)
    denied = await stand.call("approval.deny", OPERATOR, approval=told.id, reason="safety check")
    after = await stand.call(asked.method, AGENT, **asked.params, key=key)
    ensure(again.status == "pending_approval", f"asked again it was {again.status}")
    ensure(denied.ok and not after.ok, f"denied, then {after.status}")
    executed = asked.executed(stand) - before
    ensure(executed == 0, f"{executed} executed without an approval")
    return "asked twice and denied, 0 executed"
