"""What outlives a daemon: the disk, the chips, the time; and how each may go wrong.

The store is the product's own SQL in memory, committed at one moment and told at a later one; what a crash leaves is
the image of the last commit. The bus is the simulator's, with losses, resets and another master drawn from the seed;
every effect that a chip has had is written down as it happens: that list is the truth that the oracle goes by.
"""

from __future__ import annotations

import random
import sqlite3
from collections.abc import Callable, Iterator
from concurrent.futures import Future
from contextlib import contextmanager
from functools import cache
from pathlib import Path
from typing import Any, Final, Literal, NamedTuple

from hwtool import engine as engine_module
from hwtool.clock import Clock
from hwtool_registers.bus import Confirmed, Message, RegisterRead, RegisterWrite, Transfer
from hwtool_sim.bus import SimBus, Taken
from hwtool_sim.chip import Chip
from hwtool_sim.faults import Fault, FaultKind
from hwtool_store import schema
from hwtool_store.database import Start, Store, _begin_epoch
from hwtool_store.log import Log
from hwtool_store.space import Space
from hwtool_store.writer import Apart, Job, Queued, Writer
from tests.crash.simulation.scheduler import Scheduler

BORN_NS: Final = 1_700_000_000_000_000_000
DECADE_NS: Final = 10 * 365 * 86_400 * 1_000_000_000


class Happened(NamedTuple):
    """One thing that a chip has done, or that was done to it."""

    at_s: float
    bus: str
    address: int
    what: Literal["write", "read", "reset", "foreign"]
    offset: int = 0
    data: bytes = b""


class Chances(NamedTuple):
    """How likely each is, at one transfer or commit."""

    loss: float = 0.0
    reset: float = 0.0
    foreign: float = 0.0
    disk: float = 0.0


class Disk:
    """What is durable; and the store on it, as long as its daemon lives."""

    def __init__(self) -> None:
        self.image: bytes | None = None
        self.epoch_base_ns: dict[int, int] = {}


class World:
    """Everything that a history has beside its daemon."""

    def __init__(self, seed: int) -> None:
        self.draw = random.Random(seed)
        self.disk = Disk()
        self.buses: dict[str, RandomBus] = {}
        self.happened: list[Happened] = []
        self.chances = Chances()
        self.loop = Scheduler(self.draw, 0.0, None)
        self.base_ns = BORN_NS
        self.boots = 1
        self.silent: set[tuple[str, int]] = set()
        self.tokens = 0

    def now_s(self) -> float:
        """The time of this world."""
        return self.loop.time()

    def chance(self, probability: float) -> bool:
        """Whether it happens."""
        return self.draw.random() < probability

    def token(self) -> int:
        """A number of 7 bits or more that nobody has had before."""
        self.tokens += 1
        return self.tokens


class WorldClock(Clock):
    """The clocks of the host, in the time of the world; the wall clock may have been set."""

    def __init__(self, world: World) -> None:
        self._world = world

    def wall_ns(self) -> int:
        return self._world.base_ns + round(self._world.now_s() * 1e9)

    def boottime_ns(self) -> int:
        return round(self._world.now_s() * 1e9)

    def monotonic_s(self) -> float:
        return self._world.now_s()

    def boot_id(self) -> str:
        return f"boot-{self._world.boots}"


class RandomBus(SimBus):
    """A bus on which things go wrong, and the record of what its chips have done."""

    def __init__(self, world: World, name: str, chips: dict[int, Chip], effects: frozenset[int], shared: bool) -> None:
        super().__init__(chips, sleep=lambda _: None, clock=world.now_s)
        self._world, self._name, self._effects, self._shared = world, name, effects, shared

    @property
    def inline(self) -> bool:
        """Never: what is sent and what comes back are two moments."""
        return False

    def boot_evidence(self, address: int) -> str | None:
        """The chip's nonce, but of those that cannot tell."""
        return None if (self._name, address) in self._world.silent else super().boot_evidence(address)

    def take(self, transfer: Transfer) -> Taken:
        """Take a transfer to its chip, with what chance has it meet there."""
        world = self._world
        assert isinstance(transfer, RegisterRead | RegisterWrite | Message)
        address = transfer.address
        if world.chance(world.chances.loss):
            kinds = (FaultKind.REQUEST_LOST, FaultKind.REPLY_LOST, FaultKind.NACK, FaultKind.LATE_REPLY)
            kind = world.draw.choice(kinds)
            self.faults = [Fault(kind, address, late_s=0.05 if kind is FaultKind.LATE_REPLY else 0.0)]
        self._around(address)
        taken = super().take(transfer)
        if isinstance(taken.said, Confirmed):
            self._note_effect(transfer, taken.said.data)
        self._around(address)
        return taken

    def _note_effect(self, transfer: Transfer, data: bytes) -> None:
        now_s = self._world.now_s()
        if isinstance(transfer, RegisterWrite):
            done = Happened(now_s, self._name, transfer.address, "write", transfer.offset, transfer.data)
        elif isinstance(transfer, RegisterRead) and transfer.offset in self._effects:
            done = Happened(now_s, self._name, transfer.address, "read", transfer.offset, data)
        else:
            return
        self._world.happened.append(done)

    def _around(self, address: int) -> None:
        """What may happen to a chip before or after it is reached."""
        world, chip = self._world, self.chips[address]
        if world.chance(world.chances.reset):
            chip.reset()
            world.happened.append(Happened(world.now_s(), self._name, address, "reset"))
        if self._shared and world.chance(world.chances.foreign):
            register, value = world.draw.choice((("STORE", world.draw.randrange(0x200)), ("FLAGS", 1), ("N", 0)))
            chip.write_by_another(register, value)
            world.happened.append(Happened(world.now_s(), self._name, address, "foreign"))


class ScheduledWriter(Writer):
    """The store's writer without a thread: a batch is committed at one moment, and told at a later one."""

    def __init__(self, world: World, conn: sqlite3.Connection, after_commit: Callable[[Any], None]) -> None:
        super().__init__(conn, self._after, lambda _: None, self._before)
        self._world, self._loop, self._committed = world, world.loop, after_commit
        self._queued: list[Queued] = []
        self._at_work = False

    def start(self) -> None:
        """There is no thread."""

    def stop(self) -> None:
        """What is queued has been waited for: nobody stops a daemon in a hurry here."""

    def _queue(self, job: Job | None, apart: Apart | None) -> Future[Any]:
        future: Future[Any] = Future()
        future.set_running_or_notify_cancel()
        if self._loop.dead:
            return future  # nobody hears it
        self._queued.append(Queued(job, apart, future))
        if not self._at_work:
            self._at_work = True
            self._loop.call_later(self._loop.delay_s(), self._work)
        return future

    def _work(self) -> None:
        """Commit what waits: it is durable from here on."""
        batch, self._queued = self._queued, []
        inner = [Queued(queued.job, queued.apart, Future()) for queued in batch]
        self._perform(inner)
        self._loop.call_later(self._loop.delay_s(), self._told, batch, [queued.future for queued in inner])

    def _told(self, batch: list[Queued], answers: list[Future[Any]]) -> None:
        for queued, answer in zip(batch, answers, strict=True):
            raised = answer.exception()
            if raised is None:
                queued.future.set_result(answer.result())
            else:
                queued.future.set_exception(raised)
        self._at_work = bool(self._queued)
        if self._queued:
            self._loop.call_later(self._loop.delay_s(), self._work)

    def _before(self) -> None:
        if self._world.chance(self._world.chances.disk):
            raise OSError(5, "the disk fails before the commit")

    def _after(self, conn: sqlite3.Connection) -> None:
        self._world.disk.image = conn.serialize()
        if self._world.chance(self._world.chances.disk):
            raise OSError(5, "the disk says that it failed, and the commit is there after the next start")
        self._committed(conn)


class _NoAnchor:
    """The anchor's own proofs are elsewhere: here the image and its anchor never part."""

    def write(self, mark: object) -> None:
        """Nothing to be written."""

    def close(self) -> None:
        """Nothing to be closed."""


@cache
def newborn() -> bytes:
    """The image of a store in which nothing has happened."""
    conn = sqlite3.connect(":memory:", isolation_level=None)
    schema.create(conn, "00000000-0000-4000-8000-000000000001", "00" * 32)
    return conn.serialize()


class ModelStore(Store):
    """The product's store on a disk that is an image in memory."""

    def __init__(self, world: World, start: Start) -> None:
        conn = sqlite3.connect(":memory:", isolation_level=None)
        conn.execute("PRAGMA foreign_keys=ON")
        conn.execute("PRAGMA recursive_triggers=ON")
        born = world.disk.image is None
        conn.deserialize(newborn() if world.disk.image is None else world.disk.image)
        epoch = _begin_epoch(conn, start)
        world.disk.image = conn.serialize()
        world.disk.epoch_base_ns[epoch] = world.base_ns
        super().__init__(conn, -1, _NoAnchor(), epoch, True, born, Space(Path("/")), Log(Path("/nowhere")))  # type: ignore[arg-type]
        self._writer = ScheduledWriter(world, conn, self._committed)

    def low_space(self) -> str | None:
        """There is always room."""
        return None

    def close(self) -> None:
        """A clean end is a crash that nobody minds."""


@contextmanager
def host_of(world: World) -> Iterator[None]:
    """Within: an engine that starts finds the disk and the buses of this world."""
    real = vars(engine_module)["open_store"], vars(engine_module)["make_bus"]
    vars(engine_module)["open_store"] = lambda directory, start, allow_unsafe: ModelStore(world, start)
    vars(engine_module)["make_bus"] = lambda spec, board, directory: world.buses[spec.name]
    try:
        yield
    finally:
        vars(engine_module)["open_store"], vars(engine_module)["make_bus"] = real
