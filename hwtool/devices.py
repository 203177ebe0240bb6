"""A device while the daemon runs: its contract on its bus, its queue, its holds, and clean reads of it.

The device's lock is its queue: first in, first out, held by one keyed operation from pre-read to outcome. The bus's
lock is taken for each group of transfers. Clean reads take only the bus's lock, so they pass between transfers.
"""

from __future__ import annotations

import asyncio
from collections import Counter
from collections.abc import Awaitable, Callable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from functools import cached_property
from typing import Final, TypeVar

from hwtool.breaker import NOT_OPEN
from hwtool.config import DeviceSpec
from hwtool.retry import Backoff, Bucket, RetrySafe, decide
from hwtool.turns import Turns
from hwtool.worker import ABSENT_RETRY_MS, BusWorker
from hwtool_contracts.errors import Code, DomainError
from hwtool_contracts.judge import ReadJudgement, Refused, judge_read, may_merge
from hwtool_contracts.model import Contract, Group, Register, Space
from hwtool_contracts.places import find_place, overlapping
from hwtool_registers.bits import extract, from_bytes, hexed, to_bytes
from hwtool_registers.bus import NOT_SENT, Ambiguous, Answer, Confirmed, RegisterWrite, Rejected, Sent
from hwtool_registers.plan import pieces_of, plan_block_read, plan_read, selectors, write_transfers
from hwtool_registers.steps import Plan, Role, Step

T = TypeVar("T")
MOST_REMEMBERED: Final = 10_000
MakeRead = Callable[[Contract, int, Sequence[Register], Mapping[str, int]], Plan]


def stale(what: str, expected: object, found: object) -> DomainError:
    """The error of a caller whose picture is not that of today."""
    message = f"{what} changed: expected {expected}, found {found}"
    return DomainError(Code.STALE, message, what=what, expected=expected, found=found)


@dataclass(slots=True)
class PersonHold:
    """A hold that a person put on."""

    by: str
    why: str
    since_ns: int


class OnBus:
    """The bus's lock, once the device may be spoken to again: `async with device.on_bus`."""

    def __init__(self, worker: BusWorker) -> None:
        self._worker = worker
        self._until_s = float("-inf")

    def rest(self, delay_ms: int) -> None:
        """Leave the device alone for so long, from now on."""
        self._until_s = max(self._until_s, self._worker.clock.monotonic_s() + delay_ms / 1000)

    async def rested(self) -> None:
        """Wait until the device may be spoken to again, the bus's lock kept: between two transfers of one plan."""
        while (rest_s := self._until_s - self._worker.clock.monotonic_s()) > 0:
            await self._worker.clock.sleep(rest_s)

    async def __aenter__(self) -> None:
        await self._worker.lock.acquire()
        while (rest_s := self._until_s - self._worker.clock.monotonic_s()) > 0:
            self._worker.lock.release()  # others on the bus go on meanwhile
            await self._worker.clock.sleep(rest_s)
            await self._worker.lock.acquire()

    async def __aexit__(self, *_: object) -> None:
        self._worker.lock.release()


async def _recall_nothing(_: str) -> int | None:
    """Where no store is at hand."""
    return None


MOST_MERGED_BYTES: Final = 256  # of neighbours in one read: others wait for the bus meanwhile


async def _say_nothing() -> str | None:
    return None


async def _remember_nothing(_: dict[str, int]) -> None:
    """Where no store is at hand."""


@dataclass
class Device:
    """One device of the board.

    Attributes:
        unknown: operations whose outcome is unknown, each with its time (ns); the device is held by them. At most one
            ordinary operation and one safe state.
        hold: a person's hold.
        waiting: keyed requests in the queue, the one at work included.
        known: what bank selectors hold, as they were last read or written in the course of an access.
        home: what each selector holds outside any access, kept by the store: one that is found where a bank leaves it
            was not set back (a failure, a killed daemon), and goes home before the next access.
        moving: selectors that a keyed request is writing itself.
        on_bus: the bus's lock, once a delay that a write asked for is over.
        lease: who has it for a while (hwtool.leases), None: nobody.
        callers: requests in the queue, by principal.
        written_s: when a register with a rate was written, by the monotonic clock.
        remember: keeps `home` on disk.
        mux: the multiplexer that it sits behind, None: it sits on the bus itself.
        switches: it is the multiplexer that another one sits behind.
        testify: what shows that it did not restart, as far as it can be told now (hwtool.restarts).
        recall: what was written to a register last, in this generation, as the store knows it; None: it cannot be told.
    """

    spec: DeviceSpec
    worker: BusWorker
    locus: str
    generation: int = 1
    unknown: dict[int, int] = field(default_factory=dict)
    hold: PersonHold | None = None
    waiting: int = 0
    known: dict[str, int] = field(default_factory=dict)
    home: dict[str, int] = field(default_factory=dict)
    moving: set[str] = field(default_factory=set)
    remember: Callable[[dict[str, int]], Awaitable[None]] = _remember_nothing
    recall: Callable[[str], Awaitable[int | None]] = _recall_nothing
    testify: Callable[[], Awaitable[str | None]] = _say_nothing
    lock: Turns = field(default_factory=Turns)
    identified: bool = False
    checked: bool = False
    lease: object = None
    mux: Device | None = None
    switches: bool = False
    _judged: dict[tuple[str, ...], ReadJudgement | Refused] = field(default_factory=dict)
    _reached: dict[str, tuple[Register, ...]] = field(default_factory=dict)

    def __post_init__(self) -> None:
        self.on_bus = OnBus(self.worker)
        self.retries = Bucket()
        self.callers: Counter[str] = Counter()
        self.written_s: dict[str, list[float]] = {}

    @property
    def name(self) -> str:
        """The board's name of it."""
        return self.spec.name

    @property
    def contract(self) -> Contract:
        """What it promises."""
        return self.spec.contract

    @cached_property
    def contract_hash(self) -> bytes:
        """The 32 bytes of the contract's digest."""
        return bytes.fromhex(self.contract.digest.partition(":")[2])

    @property
    def simulated(self) -> bool:
        """No real device is behind it."""
        return self.worker.spec.simulated

    @property
    def unknown_op(self) -> int | None:
        """The oldest operation whose outcome is unknown, None if there is none."""
        return min(self.unknown, default=None)

    def held(self) -> DomainError | None:
        """The error of an effectful request while the device is held, None if it is free."""
        if self.unknown_op is not None:
            return DomainError(
                Code.HELD,
                f"{self.name} is held: the outcome of operation {self.unknown_op} is unknown",
                device=self.name,
                by_op=self.unknown_op,
                since=self.unknown[self.unknown_op],
            )
        if self.hold is not None:
            return DomainError(
                Code.HELD,
                f"{self.name} is held by {self.hold.by}: {self.hold.why}",
                device=self.name,
                by_op=None,
                since=self.hold.since_ns,
            )
        return None if self.mux is None else self.mux.held()

    @cached_property
    def way(self) -> Step | None:
        """The write by which its multiplexer passes on to it and to no other channel; None: it has none."""
        facts = None if self.mux is None else self.mux.contract.mux
        if self.mux is None or facts is None:
            return None
        register = self.mux.contract.registers[facts.register]
        data = to_bytes(register, facts.channels[self.spec.channel])
        (transfer,) = write_transfers(self.mux.contract, self.mux.spec.address, register, data)
        return Step(Role.SELECT, f"{self.mux.name}.{register.name}", transfer)

    async def reach(self) -> Rejected | Ambiguous | None:
        """Have its multiplexer pass on to it: the answer that prevented it, if one did. The caller holds the bus lock.

        For preparation, observation and clean reads: a bus that was absent is opened first, as by any clean read.
        It is written each time: a multiplexer that restarted, or that another program moved, would pass on to nobody
        or to another device at the same address.

        Raises:
            DomainError: the bus is shut.
        """
        if self.way is None:
            return None
        self.worker.check()
        await self.worker.present()
        answer = await self.worker.send_once(self.way.transfer)
        return None if isinstance(answer, Confirmed) else replace(answer, fault=f"{answer.fault} ({self.way.register})")

    def through(self, plan: Plan) -> Plan:
        """A plan with the way to the device before each part of it that is sent under one lock."""
        if self.way is None:
            return plan
        steps = tuple(step for part in plan.parts for step in (self.way, *part))
        return replace(plan, steps=steps, chunks=tuple(number + 1 for number in plan.chunks))

    def check_seen(self, generation: int | None, contract_digest: str | None) -> None:
        """Refuse a caller who looked at another generation or another contract.

        Raises:
            DomainError: stale.
        """
        if generation is not None and generation != self.generation:
            raise stale("generation", generation, self.generation)
        if contract_digest is not None and contract_digest != self.contract.digest:
            raise stale("contract", contract_digest, self.contract.digest)

    def mark_unknown(self, op_id: int, now_ns: int) -> None:
        """Hold the device by an operation whose outcome is unknown."""
        self.unknown[op_id] = now_ns

    def mark_settled(self, op_id: int) -> None:
        """An unknown operation has been settled."""
        self.unknown.pop(op_id, None)

    def reached(self, register: Register) -> tuple[Register, ...]:
        """Every register that an access to this one reaches, itself first: others at its place, and its aliases."""
        known = self._reached.get(register.name)
        if known is None:
            others = [r for r in overlapping(self.contract, register) if r.name != register.name]
            known = (register, *others)
            if len(self._reached) >= MOST_REMEMBERED:
                self._reached.clear()  # ranges of memories have no end of names
            self._reached[register.name] = known
        return known

    def is_confidential(self, register: Register) -> bool:
        """Whether an access to a register reaches bits that are shown only to callers that policy allows."""
        return any(r.is_confidential for r in self.reached(register))

    def put_hold(self, by: str, why: str, now_ns: int) -> None:
        """Hold the device by a person's word."""
        self.hold = PersonHold(by, why, now_ns)

    def judge(self, members: tuple[Register, ...], as_group: bool = False) -> ReadJudgement | Refused:
        """The judgement of a read, remembered."""
        key = (*(m.name for m in members), "group") if as_group else tuple(m.name for m in members)
        if key not in self._judged:
            self._judged[key] = judge_read(self.contract, members, as_group)
        return self._judged[key]

    async def give_back(self, plan: Plan, answer: Answer) -> list[str]:
        """Set a plan's selectors back after its access failed; warnings where that is not possible now.

        The caller holds the bus lock. After an ambiguous answer the bus is shut: it is done before the next access.
        """
        restoring = [s for s in plan.steps if s.role is Role.RESTORE]
        if not restoring:
            return []
        if isinstance(answer, Rejected):
            for step in restoring:
                try:
                    answer = await self.worker.send_once(step.transfer)
                except DomainError as error:
                    answer = Rejected(error.message, NOT_SENT)
                self.follow(step, answer)
                if not isinstance(answer, Confirmed):
                    break
            else:
                return []
        fault = "" if isinstance(answer, Confirmed) else f": {answer.fault}"
        return [f"bank_in_doubt: {restoring[0].register} is set back before the next access{fault}"]

    def follow(self, step: Step, answer: Answer) -> None:
        """What a selector holds once a transfer of a plan was answered; to be told of each of them.

        A plan that was made before counts on `known`: an access in between that moved a selector must show there.
        """
        name, transfer = step.register, step.transfer
        for selector, held in () if isinstance(answer, Rejected) else step.selects:  # written in the same request
            if isinstance(answer, Confirmed):
                self.known[selector] = held
            else:
                self.known.pop(selector, None)
        if isinstance(answer, Rejected) or not isinstance(transfer, RegisterWrite) or name not in self._selected:
            return
        if isinstance(answer, Confirmed) and step.role in (Role.SELECT, Role.RESTORE):
            self.known[name] = from_bytes(self.contract.registers[name], transfer.data)
        else:
            self.known.pop(name, None)

    def unsure(self) -> None:
        """Its bus was away or in doubt: who answers there, and in which mode, is looked at before the next effect."""
        self.identified = self.checked = False
        self.known.clear()

    def new_generation(self, generation: int) -> None:
        """The device restarted: nothing that was known of it holds."""
        self.generation = generation
        self.identified = self.checked = False
        self.known.clear()
        self.home.clear()  # the restart has set the selectors back

    def _selectors_of(self, register: Register) -> list[Register]:
        """The selectors that matter for an access to a register: those of its bank, and itself if it is one."""
        itself = [register] if register.name in self._selected else []
        return [*selectors(self.contract, register), *itself]

    @cached_property
    def _selected(self) -> dict[str, list[tuple[int, int]]]:
        """For each selector, the (mask, value) that each bank sets it to."""
        found: dict[str, list[tuple[int, int]]] = {}
        for bank in self.contract.banks.values():
            for selector in bank.select:
                found.setdefault(selector.register, []).append((selector.mask, selector.value))
        return found

    def _left_by_failure(self, name: str) -> list[tuple[int, int]]:
        """As `_selected`, of the banks that set the selector back: what others leave there is its home from then on."""
        banks = [b for b in self.contract.banks.values() if b.restore == "prior"]
        return [(s.mask, s.value) for b in banks for s in b.select if s.register == name]

    def is_selector(self, register: Register) -> bool:
        """Whether banks are selected by this register."""
        return register.name in self._selected

    async def know_home(self, register: Register) -> None:
        """Have on disk what the register's selectors hold at home, before one of them is written for the first time.

        The caller does not hold the bus lock (it is never held across a sync).

        Raises:
            DomainError: the bus did not answer, or the store has failed.
        """
        for selector in self._selectors_of(register):
            if selector.name in self.home or selector.name in self.moving:
                continue
            async with self.on_bus:
                held = await self._plain(selector)
            await self.remember({**self.home, selector.name: held})
            self.home[selector.name] = held

    async def move_home(self, registers: Sequence[Register]) -> None:
        """A caller is about to write a selector itself: what it holds afterwards is its new home."""
        names = {r.name for r in registers if self.is_selector(r)}
        if names:
            self.moving |= names
            self.home = {n: v for n, v in self.home.items() if n not in names}
            await self.remember(self.home)

    def home_moved(self) -> None:
        """The write of a selector has ended, however it ended."""
        self.moving.clear()

    async def _plain(self, selector: Register) -> int:
        """One clean read of a selector, which is in no bank; the caller holds the bus lock."""
        values = await self._run(plan_read(self.contract, self.spec.address, [selector], {}), selector)
        return values[selector.name][0]

    async def learn_selectors(self, register: Register) -> None:
        """Read the selectors that matter for a register; the caller holds the bus lock.

        They are read before every banked access: a device that restarted unnoticed would otherwise be "set back" to
        what it held before. One that stands where an earlier access left it (a failure, a killed daemon) goes home.
        """
        for selector in self._selectors_of(register):
            held = await self._plain(selector)
            home = self.home.get(selector.name, held)
            if held != home and selector.name not in self.moving:
                left = self._left_by_failure(selector.name)
                if held in {(home & ~mask) | value for mask, value in left}:
                    address = self.spec.address
                    (transfer,) = write_transfers(self.contract, address, selector, to_bytes(selector, home))
                    answer = await self.worker.send_once(transfer)
                    if not isinstance(answer, Confirmed):
                        raise self.read_failed(answer, selector, "preparation")
                    held = home
                else:  # somebody else has moved it: that is its home now
                    self.home[selector.name] = held
                    asyncio.ensure_future(self.remember(dict(self.home)))  # noqa: RUF006  # the store keeps its own jobs
            self.known[selector.name] = held

    async def read(self, register: Register) -> int:
        """One clean read of one register, its bank established and restored.

        Raises:
            DomainError: the bus did not answer; nothing with an effect was sent.
        """
        return (await self._read_plan(plan_read, [register]))[register.name][0]

    async def _read_plan(self, make: MakeRead, registers: Sequence[Register]) -> dict[str, list[int]]:
        """One clean read of registers of one bank by one plan."""
        await self.know_home(registers[0])
        async with self.on_bus:
            await self.learn_selectors(registers[0])
            return await self._run(make(self.contract, self.spec.address, registers, self.known), registers[0])

    async def again(self, once: Callable[[], Awaitable[T]], stop: Callable[[], bool]) -> T:
        """What only reads cleanly, done anew where the board allows it and the device's tokens last.

        For whole clean reads and whole preparations alone: what follows a dispatch is looked at once, since after a
        return of the bus somebody else may answer, and an effect is never sent again.

        Args:
            stop: whether nobody wants it any more, or somebody else must get the bus; asked before each pause and
                each attempt.

        Raises:
            DomainError: of the last attempt.
        """
        for delay_s in Backoff(self.worker.spec.read_attempts).delays(self.worker.chance):
            try:
                return await once()
            except DomainError as error:
                decision = decide(error)
                if not isinstance(decision, RetrySafe) or stop():
                    raise
                if not self.retries.take(self.worker.clock.monotonic_s()):
                    raise
                await self.worker.clock.sleep(max(delay_s, decision.after_s))
                if stop():
                    raise
                await self.worker.silence()  # a lost reply has shut the line: it is let fall silent first
                if stop():
                    raise
                self.worker.retries[error.code.value] += 1
        return await once()

    async def look(self, name: str, beside: Register | None = None) -> int:
        """The value of REG or REG.FIELD by one clean read.

        Raises:
            DomainError: as `read`.
        """
        place = find_place(self.contract, name, beside)
        if place is None:
            raise DomainError(Code.INTERNAL, f"the contract of {self.name} names {name}, which it does not have")
        register, part = place
        raw = await self.read(register)
        return raw if part is None else extract(raw, part)

    async def read_many(self, registers: Sequence[Register]) -> tuple[dict[str, int], int]:
        """Clean reads of several registers, neighbours that may be merged in one transfer; and how many it took.

        Raises:
            DomainError: as `read`.
        """
        values: dict[str, int] = {}
        before = self.worker.sent
        for run in self.runs(registers):
            for name, raws in (await self._read_plan(plan_block_read, run)).items():
                values[name] = raws[0]
        return values, self.worker.sent - before

    async def read_group(self, group: Group) -> tuple[dict[str, int], int]:
        """A clean read of a group, in its order, under one bus lock.

        Raises:
            DomainError: as `read`.
        """
        members = [self.contract.registers[n] for n in group.members]
        make: MakeRead = plan_block_read if group.transfer == "one" else plan_read
        before = self.worker.sent
        found = await self._read_plan(make, members)
        return {name: raws[0] for name, raws in found.items()}, self.worker.sent - before

    def runs(self, registers: Sequence[Register]) -> list[list[Register]]:
        """Registers asked for, cut into runs that one transfer can read."""
        runs: list[list[Register]] = []
        for register in sorted({r.name: r for r in registers}.values(), key=lambda r: (r.space, r.offset)):
            if runs and self._follows(runs[-1], register):
                runs[-1].append(register)
            else:
                runs.append([register])
        return runs

    def _follows(self, run: list[Register], register: Register) -> bool:
        last = run[-1]
        if (last.space, last.bank) != (register.space, register.bank) or register.space.whole:
            return False
        judged = [self.judge((r,)) for r in (last, register)]
        if not all(isinstance(j, ReadJudgement) and may_merge(j) for j in judged):
            return False
        total = sum(r.size_bytes for r in [*run, register])
        if register.space is Space.MEMORY:
            i2c = self.contract.access.i2c
            moves = i2c is not None and i2c.auto_increment in ("read", "both")
            longest = min(MOST_MERGED_BYTES, self.worker.longest_read_bytes)
            return moves and register.offset == last.offset + last.size_bytes and total <= longest
        modbus = self.contract.access.modbus
        limit = 2 * modbus.max_registers if modbus is not None else 0
        return register.offset == last.offset + last.size_bytes // 2 and total <= limit

    async def _run(self, plan: Plan, register: Register) -> dict[str, list[int]]:
        """Perform a plan whose access is a clean read; selector writes are preparation."""
        answers: list[bytes] = []
        kept = await self.reach()
        if kept is not None:
            raise self.read_failed(kept, register, "preparation")
        for step in plan.steps:
            if step.role is Role.ACCESS and not isinstance(step.transfer, RegisterWrite):
                answer = await self.worker.read_clean(step.transfer)
            else:
                answer = await self.worker.send_once(step.transfer)  # a selector of a declared bank
            self.follow(step, answer)
            if not isinstance(answer, Confirmed):
                await self.give_back(plan, answer)
                raise self.read_failed(answer, register, "preparation")
            if step.role is Role.ACCESS:
                answers.append(answer.data)
        try:
            return pieces_of(plan, self.contract, answers)
        except ValueError as error:
            raise self.read_failed(Ambiguous(Sent.REPLY, str(error)), register, "preparation") from error

    def read_failed(self, answer: Answer, register: Register, stage: str) -> DomainError:
        """The error of a clean read that got no value."""
        where = f"{self.name}.{register.name} at {hexed(register.offset, 8)} of {self.spec.address:#04x}"
        match answer:
            case Rejected(fault, proof) if proof in NOT_OPEN:
                message = f"reading {where}: bus {self.worker.spec.name} is absent: {fault}"
                return DomainError(Code.UNAVAILABLE, message, reason="absent", retry_after_ms=ABSENT_RETRY_MS)
            case Rejected(fault, _):
                return DomainError(Code.BUS_FAULT, f"reading {where}: {fault}", fault=fault, stage=stage)
            case Ambiguous(_, fault) if fault.startswith("no re"):
                after_ms = self.worker.spec.response_ms
                return DomainError(Code.TIMEOUT, f"reading {where}: {fault}", after_ms=after_ms, stage=stage)
            case Ambiguous(_, fault):
                return DomainError(Code.BUS_FAULT, f"reading {where}: {fault}", fault=fault, stage=stage)
            case Confirmed():
                return DomainError(Code.INTERNAL, f"reading {where}: confirmed, yet failed")
