"""Events: changes of clean registers, polled once for all who want them, and what the journal records.

A subscription lives as long as its connection. A register is read at the shortest interval that anybody asked for; each
subscriber is told at most as often as it asked, and only of what has changed, or of the moment in which its condition
comes true. What the journal records is told as the subscriber may see it. Nothing here reads what is not clean.
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from dataclasses import dataclass, field
from functools import partial
from typing import Any, Final

from hwtool import journal
from hwtool.clock import rfc3339
from hwtool.devices import Device
from hwtool.permission import Touch, check_use
from hwtool.policy import Caller
from hwtool.reading import understood
from hwtool.resolve import clean_read, invalid, refusal
from hwtool.results import shown_value
from hwtool.state import Daemon
from hwtool_contracts.errors import Code, DomainError
from hwtool_contracts.judge import ReadJudgement, Refused, may_poll
from hwtool_contracts.messages import Result, SubscribeParams, When
from hwtool_contracts.model import Encoding, Register
from hwtool_store import audit
from hwtool_store.audit import AuditRow

Sink = Callable[[dict[str, Any]], None]
MOST_OF_A_CONNECTION: Final = 16
FIRST_REST_S: Final = 1.0  # after a look that failed; doubled each time
LONGEST_REST_S: Final = 30.0
KIND_OF: Final = {"hold": "hold", "release": "hold", "freeze": "hold", "thaw": "hold"}


@dataclass
class Subscription:
    """What one subscriber wants to know.

    Attributes:
        owner: the connection; when it is gone, so is this.
        registers: by name, of one device.
        told: what was told last of each register, and when by the monotonic clock.
        met: whether the condition held when it was last looked at.
    """

    number: int
    owner: object
    caller: Caller
    send: Sink
    device: Device | None
    registers: dict[str, Register]
    interval_s: float
    when: When | None
    kinds: frozenset[str]
    told: dict[str, Any] = field(default_factory=dict)
    looked_s: float = float("-inf")
    met: bool = False
    failed: bool = False


class Events:
    """All subscriptions of the daemon."""

    def __init__(self, daemon: Daemon) -> None:
        self._daemon = daemon
        self._subscriptions: dict[int, Subscription] = {}
        self._pollers: dict[str, asyncio.Task[None]] = {}
        self._tail: asyncio.Task[None] | None = None
        self._seq = 0
        self._next = 1

    async def subscribe(self, caller: Caller, params: SubscribeParams, owner: object, send: Sink) -> Result:
        """Tell the owner of a connection what it wants to know, from now on.

        Raises:
            DomainError: not_found, invalid_args, refused, denied, or busy: too many on one connection.
        """
        mine = sum(s.owner is owner for s in self._subscriptions.values())
        if mine >= MOST_OF_A_CONNECTION:
            message = f"{mine} subscriptions are on this connection already"
            raise DomainError(Code.BUSY, message, by="queue", holder=caller.principal, retry_after_ms=1000)
        names = list(dict.fromkeys([*(params.registers or []), *([params.when.register] if params.when else [])]))
        device: Device | None = None
        registers: dict[str, Register] = {}
        if names:
            device, found, groups = clean_read(self._daemon.devices, names)
            if groups:
                raise invalid("$.registers", "registers, no groups", groups[0].name)
            for register in found:
                check_use(self._daemon.board.policy, caller, Touch(device, register, "read"))
                _check_poll(device, register)
            registers = {r.name: r for r in found}
            _check_threshold(params.when, registers)
        kinds = frozenset(params.kinds if params.kinds is not None else () if names else ("op", "hold", "run"))
        made = Subscription(
            self._next, owner, caller, send, device, registers, params.interval_ms / 1000, params.when, kinds
        )
        self._next += 1
        self._subscriptions[made.number] = made
        self._begin(made)
        what = ", ".join([*(f"{device.name}.{n}" for n in registers)] if device is not None else []) or "no register"
        summary = f"subscription {made.number}: {what}; kinds: {', '.join(sorted(kinds)) or 'none'}"
        result = Result(status="done", ok=True, effects="none", summary=summary)
        result.subscription = made.number
        return self._daemon.dressed(result, device)

    def drop(self, owner: object) -> None:
        """A connection is gone."""
        self._subscriptions = {n: s for n, s in self._subscriptions.items() if s.owner is not owner}

    def close(self) -> None:
        """Tell nobody anything more."""
        self._subscriptions.clear()
        for task in (*self._pollers.values(), self._tail):
            if task is not None:
                task.cancel()

    def _begin(self, made: Subscription) -> None:
        loop = asyncio.get_running_loop()
        device = made.device
        if device is not None and made.registers and device.name not in self._pollers:
            task = loop.create_task(self._poll(device))
            self._pollers[device.name] = task
            task.add_done_callback(lambda _: self._pollers.pop(device.name, None))
        if made.kinds and self._tail is None:
            self._seq = self._daemon.store.seq
            self._tail = loop.create_task(self._follow())

    # --- registers ----------------------------------------------------------------------------------------------

    async def _poll(self, device: Device) -> None:
        """Look at a device's registers while anybody wants to know of them.

        A device that does not answer is looked at ever more seldom: polls must not keep the breaker of a bus open, nor
        take its probes from those who have something to do.
        """
        clock, rest_after_failure_s = self._daemon.clock, 0.0
        while wanting := [s for s in self._subscriptions.values() if s.device is device]:
            now_s = clock.monotonic_s()
            due = [s for s in wanting if now_s - s.looked_s >= s.interval_s]
            if due:
                answered = await self._look(device, due, now_s)
                more_s = min(max(FIRST_REST_S, 2 * rest_after_failure_s), LONGEST_REST_S)
                rest_after_failure_s = 0.0 if answered else more_s
            now_s = clock.monotonic_s()
            rest_s = min(s.looked_s + s.interval_s - now_s for s in wanting)
            await clock.sleep(max(rest_s, rest_after_failure_s, 0.001))

    async def _look(self, device: Device, due: list[Subscription], now_s: float) -> bool:
        """One look for all who are due: each register once; whether the device answered."""
        for subscription in due:
            subscription.looked_s = now_s
        due = [s for s in due if self._still_allowed(s, device)]
        registers = {name: r for s in due for name, r in s.registers.items()}
        if not registers:
            return True
        try:
            values, _, known = await understood(device, list(registers.values()), [])
        except DomainError as error:
            for subscription in due:
                if not subscription.failed:
                    subscription.failed = True
                    self._tell(subscription, "error", device=device.name, error=error.as_object())
            return False
        for subscription in due:
            subscription.failed = False
            shown = {n: shown_value(device.name, r, values[n], None, known) for n, r in subscription.registers.items()}
            self._changes(subscription, values, shown)
        return True

    def _still_allowed(self, subscription: Subscription, device: Device) -> bool:
        """Whether policy still lets a subscriber see it; the board may have been read again."""
        try:
            for register in subscription.registers.values():
                check_use(self._daemon.board.policy, subscription.caller, Touch(device, register, "read"))
        except DomainError as error:
            self._tell(subscription, "error", device=device.name, error=error.as_object())
            self._subscriptions.pop(subscription.number, None)
            return False
        return True

    def _changes(self, subscription: Subscription, values: dict[str, int], shown: dict[str, dict[str, Any]]) -> None:
        when = subscription.when
        changed = [n for n in subscription.registers if subscription.told.get(n) != values[n]]
        first = not subscription.told
        subscription.told = {n: values[n] for n in subscription.registers}
        if when is None:
            if changed:
                self._tell(subscription, "value", values=[shown[n] for n in changed])
            return
        name = when.register.partition(".")[2]
        met = _met(when, shown[name])
        came_true = met and not subscription.met
        if came_true or (when.changed and name in changed and not first):
            self._tell(subscription, "when", values=list(shown.values()))
        subscription.met = met

    # --- the journal --------------------------------------------------------------------------------------------

    async def _follow(self) -> None:
        """Tell what the journal records, to those who want its kind."""
        while True:
            recorded = self._daemon.recorded
            page = await self._daemon.ask(partial(audit.page, after=self._seq, limit=audit.MAX_PAGE))
            for row in page:
                self._seq = row.seq
                for subscription in list(self._subscriptions.values()):
                    if kind_of(row) in subscription.kinds:
                        operator = subscription.caller.role == "operator"
                        told = journal.entry(row, subscription.caller.principal, operator=operator)
                        self._tell(subscription, kind_of(row), entry=told)
            if not page:
                await recorded.wait()

    def _tell(self, subscription: Subscription, kind: str, **told: Any) -> None:
        at = rfc3339(self._daemon.clock.wall_ns())
        subscription.send({"subscription": subscription.number, "kind": kind, "at": at, **told})


def kind_of(row: AuditRow) -> str:
    """The kind of event that a row of the journal is."""
    what = str(row.body["what"])
    return "run" if what.startswith("run_") else KIND_OF.get(what, "op")


def _met(when: When, shown: dict[str, Any]) -> bool:
    """Whether a value is beyond a threshold: in its unit where it has one, else raw."""
    if when.above is None and when.below is None:
        return False
    number = shown.get("value")
    held = float(number) if isinstance(number, int | float) else float(int(shown["raw"], 16))
    return (when.above is None or held > when.above) and (when.below is None or held < when.below)


def _check_threshold(when: When | None, registers: dict[str, Register]) -> None:
    """A threshold is of a number."""
    if when is None or (when.above is None and when.below is None):
        return
    register = registers[when.register.partition(".")[2]]
    if register.quantity.encoding in (Encoding.BYTES, Encoding.TEXT):
        raise invalid("$.when.register", "a register with a number, for `above` and `below`", when.register)


def _check_poll(device: Device, register: Register) -> None:
    judged = device.judge((register,))
    if isinstance(judged, ReadJudgement) and not may_poll(judged, register.owner):
        why = "may hold the bus up, or others use it too"
        raise refusal(
            Refused("no_poll", register.name, None, f"{register.name}: a poll must not touch it: it {why}", "read it"),
            device,
        )
