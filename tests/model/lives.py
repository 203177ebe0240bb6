"""The lives of a daemon on one disk and the same chips, and a list of everything that the chips have done meanwhile.

World, disk, bus and scheduler are those of the simulation (tests.crash.simulation): no time but its own, no thread, a
crash before any step of the event loop. The chips are the simulator's; each access to a register is written down as it
happens, with whether it changed anything.
"""

from __future__ import annotations

import asyncio
from collections import Counter
from collections.abc import Callable, Coroutine
from typing import Any, NamedTuple

from hwtool.engine import Engine
from hwtool.policy import Caller
from hwtool_contracts.messages import Result
from hwtool_contracts.model import Contract, Register
from hwtool_sim.chip import Chip
from hwtool_store.faults import StoreFatal
from tests.crash.simulation.scheduler import Crashed, Scheduler
from tests.crash.simulation.world import RandomBus, World, WorldClock, host_of
from tests.model.boards import ADDRESSES, BUS, Drawn


class Did(NamedTuple):
    """One access to a register that a chip took part in."""

    device: str
    register: str
    access: str
    raw: int
    whole: bool
    changed: bool
    kept: int  # bits of the register that hold what they held


class WatchedChip(Chip):
    """A chip that tells what it does, but for what another master does to it."""

    def __init__(self, contract: Contract, device: str, tell: Callable[[Did], None]) -> None:
        self._device, self._tell = device, tell
        super().__init__(contract)

    def state(self) -> tuple[Any, ...]:
        """Everything that an access may change."""
        fifos = tuple(tuple(f) for f in self.fifos.values())
        sent = sum(len(s) for s in self.sent.values())
        return tuple(self.values.values()), fifos, sent, sum(self.pulses.values()), self.nonce

    def read_register(self, register: Register) -> int:
        """As the chip, and told."""
        before, held = self.state(), self.values[register.name]
        raw = super().read_register(register)
        kept = ~(held ^ self.values[register.name])
        self._tell(Did(self._device, register.name, "read", raw, True, before != self.state(), kept))
        return raw

    def write_register(self, register: Register, raw: int, mask: int | None = None, *, foreign: bool = False) -> None:
        """As the chip, and told if it is the daemon's."""
        before, held = self.state(), self.values[register.name]
        super().write_register(register, raw, mask, foreign=foreign)
        if not foreign:
            kept, whole = ~(held ^ self.values[register.name]), mask in (None, register.mask)
            self._tell(Did(self._device, register.name, "write", raw, whole, before != self.state(), kept))


class Lives:
    """What a machine plays with: the daemon of now, its chips and its bus."""

    def __init__(self, drawn: Drawn, seed: int) -> None:
        self.drawn = drawn
        self.world = World(seed)
        self.did: list[Did] = []
        self.counts: Counter[str] = Counter()
        contracts = {name: spec.contract for name, spec in drawn.board.devices.items()}
        self.chips = {name: WatchedChip(c, name, self.did.append) for name, c in contracts.items()}
        chips: dict[int, Chip] = {ADDRESSES[name]: chip for name, chip in self.chips.items()}
        self.bus = RandomBus(self.world, BUS, chips, frozenset(), shared=False)
        self.world.buses[BUS] = self.bus
        self.world.silent |= {(BUS, ADDRESSES[name]) for name in drawn.silent}
        self.alive = False

    def begin(self, crash_after: int | None = None) -> None:
        """Let a daemon start; it may end before it is ready, and the next one is left alone."""
        while not self.alive:
            self.world.loop = Scheduler(self.world.draw, self.world.now_s() + 1.0, crash_after)
            crash_after = None
            self.alive = True
            self._engine = self.run(self._start())

    async def _start(self) -> Engine:
        clock = WorldClock(self.world)
        with host_of(self.world):
            engine = await Engine.start(self.drawn.board, None, clock, allow_unsafe=True)  # type: ignore[arg-type]
        engine.daemon.store.on_fatal(lambda _: None)
        for worker in engine.daemon.workers.values():
            worker.chance = self.world.draw.random
        return engine

    def run(self, work: Coroutine[Any, Any, Any], crash_after: int | None = None) -> Any:
        """What comes of some work; None: the daemon has ended meanwhile."""
        loop = self.world.loop
        if crash_after is not None:
            loop.crash_at = loop.steps + crash_after
        try:
            value = loop.run_until_complete(work)
        except (Crashed, StoreFatal) as error:
            self.counts["crashes" if isinstance(error, Crashed) else "starts that the disk failed"] += 1
            self.end()
            return None
        loop.crash_at = None
        return value

    def ask(self, caller: Caller, method: str, params: dict[str, Any], crash_after: int | None = None) -> Result | None:
        """One request; None: no answer, since the daemon has ended."""
        return self.ask_all([(caller, method, params)], crash_after)[0]

    def ask_all(
        self, calls: list[tuple[Caller, str, dict[str, Any]]], crash_after: int | None = None
    ) -> list[Result | None]:
        """Requests at the same time, waited for until nothing of them is at work."""

        async def asked() -> list[Result]:
            results = await asyncio.gather(*(self._engine.call(*call) for call in calls))
            if not self._engine.daemon.failed:
                await self._engine._keyed.drain()
            return results

        results: list[Result | None] | None = self.run(asked(), crash_after)
        if results is not None and self._engine.daemon.failed:
            self.counts["stores that failed"] += 1
            self.end()
        return results or [None] * len(calls)

    def stop(self) -> None:
        """A clean end."""
        self.run(self._engine.close())
        self.end()

    def end(self) -> None:
        """Nothing of this daemon says or does anything from here on."""
        if self.alive:
            self.world.loop.bury()
            self.world.loop.close()
        self.alive = False
