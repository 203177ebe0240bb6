"""What the running daemon shares: board, store, clock, devices, and the few things every method needs of them."""

from __future__ import annotations

import asyncio
import contextlib
from collections import Counter
from collections.abc import Callable, Coroutine
from dataclasses import dataclass, field
from typing import Any, Final, TypeVar

from hwtool.clock import Clock, rfc3339
from hwtool.config import Board
from hwtool.devices import Device
from hwtool.journal import REDACTED, clean_text
from hwtool.permission import Rates
from hwtool.policy import Caller
from hwtool.resolve import Resolved
from hwtool.steps import ResolvedSequence, shown_steps
from hwtool.worker import BusWorker
from hwtool_contracts.errors import Code, DomainError
from hwtool_contracts.messages import Result
from hwtool_store import operations
from hwtool_store.database import Connection, Store
from hwtool_store.faults import StoreFatal
from hwtool_store.operations import OpRow

T = TypeVar("T")
REFUSALS_A_SECOND: Final = 10
REFUSAL_FLUSH_S: Final = 0.2


@dataclass
class Daemon:
    """The running daemon.

    Attributes:
        boot_id: of the host, at start.
        boots: newest boot evidence of each kind, by device.
        changed: set and replaced whenever an operation changes its state.
        recorded: set and replaced whenever the journal has grown.
        stopping: no new intents are taken.
        read_only: started so: no effectful request but safe states, and no method offers one.
        rehearsing: started so: every keyed request is a rehearsal, safe states too.
        frozen: an operator has frozen the daemon; kept by the store.
        reasons: why the rules could not settle an operation, when they last tried.
        reloading: held while the board is read again: the one that began last wins.
        rates: when callers began operations that policy limits.
        steps_after_error: effectful steps that runs took although an error in them was not handled.
        may_come_again: errors of runs that the success of their key handles, by principal, run and key.
    """

    board: Board
    store: Store
    clock: Clock
    boot_id: str
    workers: dict[str, BusWorker]
    devices: dict[str, Device]
    boots: dict[str, dict[str, str]] = field(default_factory=dict)
    changed: asyncio.Event = field(default_factory=asyncio.Event)
    recorded: asyncio.Event = field(default_factory=asyncio.Event)
    stopping: bool = False
    read_only: bool = False
    rehearsing: bool = False
    frozen: bool = False
    reasons: dict[int, str] = field(default_factory=dict)
    rates: Rates = field(default_factory=Rates)
    reloading: asyncio.Lock = field(default_factory=asyncio.Lock)
    steps_after_error: int = 0
    may_come_again: dict[tuple[str, int, str], list[int]] = field(default_factory=dict)
    _kept: set[asyncio.Task[Any]] = field(default_factory=set)
    _counted: dict[str, dict[str, Any]] = field(default_factory=dict)
    _refused: list[dict[str, Any]] = field(default_factory=list)
    _refusals: Counter[tuple[str, int]] = field(default_factory=Counter)
    _flush: asyncio.TimerHandle | None = None

    @property
    def failed(self) -> bool:
        """The store has failed: nothing may be believed any more, the database is not closed."""
        return self.store.failed

    def keep(self, work: Coroutine[Any, Any, T]) -> asyncio.Task[T]:
        """Run something to its end, whoever stops waiting for it."""
        task = asyncio.get_running_loop().create_task(work)
        self._kept.add(task)
        task.add_done_callback(self._kept_ended)
        return task

    def _kept_ended(self, task: asyncio.Task[Any]) -> None:
        self._kept.discard(task)
        if not task.cancelled():
            task.exception()  # looked at: whoever waited has been told, or has left

    async def kept_done(self) -> None:
        """Wait for everything that was kept running."""
        while self._kept:
            await asyncio.wait(set(self._kept))

    async def ask(self, job: Callable[[Connection], T]) -> T:
        """Run a job in the store and wait until it is committed.

        Raises:
            DomainError: the store has failed.
        """
        before = self.store.seq
        try:
            return await asyncio.wrap_future(self.store.submit(job))
        except StoreFatal as error:
            detail = f"the store failed: {error}"
            raise DomainError(Code.STORE_FAILED, detail, detail=str(error)) from error
        finally:
            if self.store.seq != before:
                self._grown()

    def devices_of(self, row: OpRow) -> tuple[Device, ...]:
        """The devices of a row that are on the board, in the order of their loci."""
        if row.kind == "sequence":
            named = [self.devices[n] for n in row.request["devices"] if n in self.devices]
            return tuple(sorted(named, key=lambda d: d.locus))
        device = self.device_at(row.locus)
        return () if device is None else (device,)

    def device_at(self, locus: str | None) -> Device | None:
        """The device of a locus, None if it is not on the board any more."""
        return next((d for d in self.devices.values() if d.locus == locus), None)

    def alarms(self) -> dict[str, int]:
        """How many safe states have been asked for so far, by device."""
        return {name: device.lock.alarms for name, device in self.devices.items()}

    def tell(self) -> None:
        """Wake everybody who waits for an operation."""
        self.changed.set()
        self.changed = asyncio.Event()

    def dressed(self, result: Result, device: Device | None = None, *, at_ns: int | None = None) -> Result:
        """A result with the members that do not depend on what was asked."""
        if result.at is None:
            result.at = rfc3339(self.clock.wall_ns() if at_ns is None else at_ns)
        result.store = {"id": str(self.store.store_id), "seq": self.store.seq}
        result.durable = result.durable and self.store.durable
        if device is not None and result.contract_digest is None:
            result.contract_digest = device.contract.digest
            result.generation = device.generation
            result.verified = device.contract.verified or False
            result.simulated = result.simulated or device.simulated
        return result

    def body(
        self, what: str, caller: Caller | None, resolved: Resolved | ResolvedSequence | None, **more: Any
    ) -> dict[str, Any]:
        """The body of an audit row; values of sensitive registers never get into it."""
        body: dict[str, Any] = {"at_ns": self.clock.wall_ns(), "what": what}
        if caller is not None:
            body["principal"] = caller.principal
        if resolved is not None:
            body |= {
                "device": resolved.device.name if isinstance(resolved, Resolved) else None,
                "register": resolved.name(),
                "kind": resolved.kind,
                "arguments": REDACTED if resolved.sensitive else arguments(resolved),
            }
        reason = more.pop("reason", None)
        if reason is not None:
            body["reason"] = clean_text(reason)
        summary = more.pop("summary", None)
        if summary is not None:
            body["summary"] = clean_text(summary)
        return body | more

    def note_refusal(
        self, caller: Caller, resolved: Resolved | ResolvedSequence | None, key: str, error: DomainError
    ) -> None:
        """Record an attempt that ended before its intent; not synced one by one; beyond ten a second only counted."""
        second = self.clock.wall_ns() // 1_000_000_000
        self._refusals = Counter({k: n for k, n in self._refusals.items() if k[1] == second})
        self._refusals[caller.principal, second] += 1
        count = self._refusals[caller.principal, second]
        if count <= REFUSALS_A_SECOND:
            more = {"key": key, "code": error.code.value, "summary": error.message}
            self._refused.append(self.body("refused", caller, resolved, **more))
        else:
            if caller.principal not in self._counted:
                self._counted[caller.principal] = self.body("refusals_counted", caller, None, second=second, count=0)
                self._refused.append(self._counted[caller.principal])
            self._counted[caller.principal]["count"] += 1
        if self._flush is None:
            self._flush = asyncio.get_running_loop().call_later(REFUSAL_FLUSH_S, self.flush_refusals)

    def flush_refusals(self) -> None:
        """Hand the refusals that have gathered to the store."""
        self._flush = None
        bodies, self._refused, self._counted = self._refused, [], {}
        if bodies:
            self.record(lambda conn: [operations.note(conn, body) for body in bodies])

    def record(self, job: Callable[[Connection], object]) -> None:
        """Have something recorded that nobody waits for; who follows the journal is told when it is."""
        loop = asyncio.get_running_loop()

        def told(_: object) -> None:
            with contextlib.suppress(RuntimeError):  # the loop has ended: nobody follows any more
                loop.call_soon_threadsafe(self._grown)

        self.store.submit(job).add_done_callback(told)

    def _grown(self) -> None:
        self.recorded.set()
        self.recorded = asyncio.Event()


def arguments(resolved: Resolved | ResolvedSequence) -> dict[str, Any]:
    """What the caller asked for, in raw values."""
    if isinstance(resolved, ResolvedSequence):
        return {"steps": shown_steps(resolved)}
    shown: dict[str, Any] = {}
    for change in resolved.changes:
        shown[change.register.name] = hex(change.value)
        if change.fields:
            shown[change.register.name] = {name: hex(part) for name, part in change.fields.items()}
        elif change.mask is not None:
            shown[change.register.name] = {"value": hex(change.value), "mask": hex(change.mask)}
    if resolved.count > 1:
        shown["count"] = resolved.count
    return shown
