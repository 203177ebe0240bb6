"""One bus's worker: its lock, its thread, the hard limit of a transfer, quarantine, wedge, absence and breaker.

Everything that reaches a bus goes through here. There are two doors, and who may use which is checked by a test:
`read_clean` for preparation, clean reads and observation; `send_once` for dispatch alone. Neither repeats anything.

After an ambiguous answer the bus is *quarantined*: nothing is sent for its reply lifetime, then it is drained. A
transfer that outlives its limit leaves the bus *wedged* until the call returns, then quarantined. While either lasts
every transfer is answered `unavailable` at once. A bus that hangs in being opened is wedged too.

A bus that cannot be opened is *absent*: that keeps neither the daemon nor the other buses from starting. Each request
tries to open it; when it comes back, whatever was known of its devices is looked at anew before the first effect.
"""

from __future__ import annotations

import asyncio
import errno
import random
from collections import Counter
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from typing import Any, Final

from hwtool.board_buses import BusSpec
from hwtool.breaker import NOT_OPEN, Breaker
from hwtool.clock import Clock
from hwtool_contracts.errors import Code, DomainError
from hwtool_registers.bus import (
    NOT_SENT,
    Ambiguous,
    Answer,
    Bus,
    Capabilities,
    Closes,
    Declares,
    HasNode,
    Hears,
    Line,
    Message,
    Opens,
    RegisterRead,
    Rejected,
    Sent,
    Testifies,
    Transfer,
)
from hwtool_registers.buses.usb_nodes import enumeration_of

GONE: Final = frozenset({errno.ECONNREFUSED, errno.ECONNRESET, errno.EPIPE})
ABSENT: Final = GONE | {errno.ENOENT, errno.ENODEV, errno.ENXIO, errno.EIO}
ABSENT_RETRY_MS: Final = 1000
UNSENT: Final = NOT_OPEN | {NOT_SENT}  # proofs that no copy of a request has left
CLOSE_LIMIT_S: Final = 30.0
BEGIN_LIMIT_S: Final = 30.0  # a simulator's process may have to be started first
SILENCE_LIFETIMES: Final = 2  # reply lifetimes that a line may take to fall silent


class BusWorker:
    """The one who talks to a bus.

    Attributes:
        lock: held for one transfer, group or plan, and never across a sync of the store.
        clock: of the host.
        sent: transfers performed since the start.
        lost: transfers whose `request` may not have arrived, whose `reply` did not come, or with `proof` of no action.
        retries: what was tried again, by reason: `busy` (a transfer to a device that proved it), else the code of the
            error after which a clean read or a preparation was (`read_attempts`); `chance` makes their jitter.
        returns: how often the bus was away or in doubt, and came back; what was looked at before holds no more.
        after_quarantine: called when the bus may be used again (rules for unknown outcomes run then).
        after_return: called when the bus was away or in doubt and may be used again, before anything else.
    """

    def __init__(self, spec: BusSpec, bus: Bus, clock: Clock) -> None:
        self.spec = spec
        self.use(bus)
        self.lock = asyncio.Lock()
        self.sent = 0
        self.retries: Counter[str] = Counter()
        self.chance: Callable[[], float] = random.random
        self.lost: Counter[str] = Counter()
        self.after_quarantine: Callable[[], None] = lambda: None
        self.after_return: Callable[[], None] = lambda: None
        self.breaker = Breaker()
        self.returns = 0
        self._absent: str | None = None
        self.clock = clock
        self._thread = ThreadPoolExecutor(1, thread_name_prefix=f"bus-{spec.name}")
        self._quarantine: asyncio.Task[None] | None = None
        self._until_s = 0.0
        self._wedged: asyncio.Future[Any] | None = None

    def use(self, bus: Bus) -> None:
        """Carry transfers over this bus; what it can do is asked once: a protocol costs more than many a transfer."""
        self.bus = bus
        self._opens = bus if isinstance(bus, Opens) else None
        self._hears = bus if isinstance(bus, Hears) else None
        self._testifies = bus if isinstance(bus, Testifies) else None
        self.capabilities = bus.capabilities if isinstance(bus, Declares) else Capabilities()

    def enumeration(self) -> str | None:
        """Which enumeration of a USB device the bus's node belongs to; None where it is none, or is gone."""
        return enumeration_of(self.bus.node) if isinstance(self.bus, HasNode) else None

    @property
    def longest_read_bytes(self) -> int:
        """The most that one read of the bus may bring, as far as it says."""
        return self.capabilities.longest_read_bytes

    @property
    def may_repeat(self) -> bool:
        """Whether something may send a request again by itself: the bus, or what the board says is behind it."""
        return self.spec.may_repeat or self.capabilities.may_repeat

    async def begin(self) -> str | None:
        """Open the bus at the start of the daemon; answers why it is absent, None if it is there.

        Raises:
            OSError: it is there and cannot be had: in use by another program, or not permitted.
        """
        if self._opens is not None:
            try:
                await self._open(self._opens, BEGIN_LIMIT_S)
            except OSError as error:
                if error.errno not in ABSENT:
                    raise
                self._absent = str(error)
        return self._absent

    async def _open(self, bus: Opens, limit_s: float) -> None:
        """Open it, within a limit; a call that does not return leaves the bus wedged."""
        call = asyncio.get_running_loop().run_in_executor(self._thread, bus.open)
        done, _ = await asyncio.wait({call}, timeout=limit_s)
        if not done:
            self._wedge(call)
            raise OSError(errno.ENODEV, f"it was not opened within {limit_s:g} s")
        call.result()

    async def present(self) -> None:
        """Have the bus open; one that was absent is tried again.

        Raises:
            DomainError: `unavailable`, it is still absent, or wedged in being opened.
        """
        if self._hears is not None and self._absent is None and self._wedged is None:
            self._absent = None if await self._alive(self._hears) else "the other side has hung up"
        if self._absent is None or self._opens is None:
            return
        self.check()
        try:
            await self._open(self._opens, self.spec.transfer_limit_ms / 1000)
        except OSError as error:
            self._absent = str(error)
            raise self._unavailable(f"absent: {error}", ABSENT_RETRY_MS) from error
        self._absent = None
        self._is_back()
        self.after_quarantine()  # rules that found it away have their try now

    async def _alive(self, bus: Hears) -> bool:
        """Whether the other side has not hung up meanwhile."""
        call = asyncio.get_running_loop().run_in_executor(self._thread, bus.alive)
        done, _ = await asyncio.wait({call}, timeout=self.spec.transfer_limit_ms / 1000)
        if not done:
            self._wedge(call)
            return True  # whoever asks next is told that it is wedged
        return call.result()

    def _is_back(self) -> None:
        self.returns += 1
        self.after_return()

    def admit(self) -> None:
        """Let a request in, or fail fast while the breaker is open; the one that probes it is a request itself.

        Raises:
            DomainError: `unavailable` with how long to wait.
        """
        retry_after_ms = self.breaker.refuses(self.clock.monotonic_s())
        if retry_after_ms is not None:
            failures = self.breaker.failures
            raise self._unavailable(f"behind an open breaker: {failures} failures in a row", retry_after_ms)

    async def until_admitted(self, limit_s: float) -> None:
        """Wait while the breaker is open, at most so long; whether it lets one in then is for `admit` to say."""
        until_s = self.clock.monotonic_s() + limit_s
        while True:
            now_s = self.clock.monotonic_s()
            rest_s = self.breaker.rest_s(now_s)
            if rest_s <= 0 or now_s >= until_s:
                return
            await self.clock.sleep(min(rest_s, until_s - now_s))

    @property
    def state(self) -> str:
        """How the bus is: ready, wedged, quarantined, absent or failing (its breaker is open)."""
        if self._wedged is not None:
            return "wedged"
        if self._absent is not None:
            return "absent"
        if self._quarantine is not None:
            return "quarantined"
        return "failing" if self.breaker.open else "ready"

    def check(self) -> None:
        """Refuse at once while the bus is wedged or quarantined.

        Raises:
            DomainError: `unavailable` with how long to wait.
        """
        if self._wedged is not None:
            raise self._unavailable("wedged: a transfer has not returned", self.spec.reply_lifetime_ms)
        if self._quarantine is not None and self._absent is not None:
            raise self._unavailable(f"absent: {self._absent}", ABSENT_RETRY_MS)
        if self._quarantine is not None:
            rest_ms = round(1000 * (self._until_s - self.clock.monotonic_s()))
            rest_ms = rest_ms if rest_ms > 0 else self.spec.reply_lifetime_ms  # it is being drained
            raise self._unavailable("quarantined after an ambiguous answer", rest_ms)

    def _unavailable(self, why: str, retry_after_ms: int) -> DomainError:
        message = f"bus {self.spec.name} is {why}"
        return DomainError(Code.UNAVAILABLE, message, reason=why.partition(":")[0], retry_after_ms=retry_after_ms)

    async def read_clean(self, transfer: RegisterRead | Message | Line) -> Answer:
        """One clean read, in preparation, observation or a read request; the caller holds the lock.

        A bus that was absent is opened first: whoever reads first finds out who is there.
        """
        self.check()
        await self.present()
        self.check()
        return await self._perform(transfer)

    async def ask_stranger(self, transfer: RegisterRead | Message) -> Answer:
        """One read where nobody may be; the caller holds the lock. Its silence tells the breaker nothing of the bus."""
        self.check()
        await self.present()
        self.check()
        return await self._perform(transfer, known=False)

    async def send_once(self, transfer: Transfer) -> Answer:
        """One transfer of a dispatch; the caller holds the lock, and calls this once for it.

        An absent bus is not opened here: the device that is back may be another one, and nobody has looked.

        Raises:
            DomainError: `unavailable`; it was not sent.
        """
        self.check()
        if self._absent is not None:
            raise self._unavailable(f"absent: {self._absent}", ABSENT_RETRY_MS)
        return await self._perform(transfer)

    async def _perform(self, transfer: Transfer, *, known: bool = True) -> Answer:
        self.sent += 1
        if getattr(self.bus, "inline", False):
            answer = self._guarded(transfer)
        else:
            call = asyncio.get_running_loop().run_in_executor(self._thread, self._guarded, transfer)
            limit_s = self.spec.transfer_limit_ms / 1000
            done, _ = await asyncio.wait({call}, timeout=limit_s)
            if not done:
                self._wedge(call)
                late = Ambiguous(Sent.TRANSFER_LIMIT, f"no return within {self.spec.transfer_limit_ms} ms")
                if known:
                    self.breaker.note(late, self.clock.monotonic_s())
                self.lost["reply"] += 1
                return late
            answer = call.result()
        if known:
            self.breaker.note(answer, self.clock.monotonic_s())
        if isinstance(answer, Ambiguous):
            self.lost["request" if answer.stage is Sent.ADDRESS else "reply"] += 1
            self.quarantine()
        if isinstance(answer, Rejected):
            self.lost["proof"] += 1
        if isinstance(answer, Rejected) and answer.proof in NOT_OPEN:
            self._absent = answer.fault
        return answer

    def _guarded(self, transfer: Transfer) -> Answer:
        try:
            answer = self.bus.perform(transfer)
        except Exception as error:  # noqa: BLE001  # the bus contract: an exception that no table lists is ambiguous
            return Ambiguous(Sent.DATA, f"{type(error).__name__}: {error}")
        if not self.may_repeat or isinstance(transfer, RegisterRead) or not isinstance(answer, Rejected):
            return answer
        if answer.proof in UNSENT:
            return answer
        # a refusal speaks of the last copy alone: the one before it may have been carried out, and its reply lost
        return Ambiguous(Sent.REPLY, f"{answer.fault}; the bus may have sent it before by itself")

    def _wedge(self, call: asyncio.Future[Any]) -> None:
        self._wedged = call

        def returned(ended: asyncio.Future[Any]) -> None:
            if not ended.cancelled():
                ended.exception()  # whatever it was comes too late
            # a late return changes no row; the line is quarantined as after any ambiguous answer
            if self._wedged is ended:
                self._wedged = None
            self.quarantine()

        call.add_done_callback(returned)

    def quarantine(self) -> None:
        """Send nothing for the reply lifetime, then drain the line."""
        self._until_s = self.clock.monotonic_s() + self.spec.reply_lifetime_ms / 1000
        if self._quarantine is None:
            self._quarantine = asyncio.get_running_loop().create_task(self._sit_out())

    async def _sit_out(self) -> None:
        while True:
            while (rest_s := self._until_s - self.clock.monotonic_s()) > 0:
                await self.clock.sleep(rest_s)
            try:
                await self._drained()
                if self._until_s <= self.clock.monotonic_s():
                    break  # else something came back meanwhile, and the time began anew
            except Exception as error:  # noqa: BLE001  # an end of this task would leave the bus shut for good
                # absent, babbling or defective: stay shut and try again after another lifetime
                if isinstance(error, OSError) and error.errno in ABSENT:
                    self._absent = str(error)
                self._until_s = self.clock.monotonic_s() + self.spec.reply_lifetime_ms / 1000
        self._quarantine = self._absent = None  # draining it has opened it
        self._is_back()
        self.after_quarantine()

    async def _drained(self) -> None:
        """Drain the line, within bounds; a drain that does not return leaves the bus wedged until it does."""
        call = asyncio.get_running_loop().run_in_executor(self._thread, self.bus.quiesce, self._until_s)
        call.add_done_callback(lambda ended: ended.cancelled() or ended.exception())  # also when nobody waits any more
        limit_s = (self.spec.reply_lifetime_ms + self.spec.transfer_limit_ms) / 1000
        done, _ = await asyncio.wait({call}, timeout=limit_s)
        if not done:
            self._wedge(call)
            await asyncio.wait({call})
        call.result()

    async def silence(self) -> None:
        """Wait until a line that is to fall silent has done so, within bounds; a wedged one is not waited for."""
        if self._wedged is None:
            await self.settled(SILENCE_LIFETIMES * self.spec.reply_lifetime_ms / 1000)

    async def settled(self, limit_s: float | None = None) -> None:
        """Wait until no quarantine is running, at most for `limit_s`."""
        while self._quarantine is not None:
            done, _ = await asyncio.wait({self._quarantine}, timeout=limit_s)
            if not done:
                return

    @property
    def wedged(self) -> bool:
        """Whether a call of the bus has not returned."""
        return self._wedged is not None

    async def boot_evidence(self, address: int) -> str | None:
        """The device's word that it did not restart, None where the bus has none or cannot be reached."""
        bus = self._testifies
        if bus is None:
            return None
        if getattr(bus, "inline", False):
            try:
                return bus.boot_evidence(address)
            except OSError:
                return None
        if self._wedged is not None:
            return None
        call = asyncio.get_running_loop().run_in_executor(self._thread, bus.boot_evidence, address)
        done, _ = await asyncio.wait({call}, timeout=self.spec.transfer_limit_ms / 1000)
        if not done:
            self._wedge(call)
            return None
        try:
            return call.result()
        except OSError:
            return None

    async def close(self) -> None:
        """Give the bus back, when nothing is under way."""
        if self._quarantine is not None:
            self._quarantine.cancel()
        if self._wedged is None and isinstance(self.bus, Closes):
            call = asyncio.get_running_loop().run_in_executor(self._thread, self.bus.close)
            done, _ = await asyncio.wait({call}, timeout=CLOSE_LIMIT_S)
            if not done:  # something in its thread does not end: it is left behind
                self._wedged = call
        self._thread.shutdown(wait=self._wedged is None)
