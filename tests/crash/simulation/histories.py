"""`python -m tests.crash.simulation.histories`: thousands of histories, each from a seed, judged by what was promised.

A history is several lives of a daemon on one disk and the same chips, some requests of several callers, and whatever
its seed makes of it: lost requests and replies, chips that restart, another master, a disk that fails, a crash before
any step of the event loop, a host that reboots, a wall clock that jumps. The last life is left alone, so that what can
be settled by rule is. `--seed N --histories 1` plays one again; `--show` tells it.
"""

from __future__ import annotations

import argparse
import asyncio
import contextlib
import gc
import sys
import time
from collections import Counter
from collections.abc import Callable
from typing import Any, Final

from hwtool.engine import Engine
from hwtool_contracts.messages import Result
from hwtool_store import operations
from hwtool_store.faults import StoreFatal
from tests.crash.life import Told, spread
from tests.crash.simulation import oracle
from tests.crash.simulation.requests import Asked, board, drawn, furnish
from tests.crash.simulation.scheduler import Crashed, Scheduler
from tests.crash.simulation.world import DECADE_NS, Chances, World, WorldClock, host_of
from tests.hwtool.conftest import OPERATOR

JOBS: Final = 2
SECOND_LIFE: Final = 0.25  # how likely there is one before the last, which is left alone
REQUESTS: Final = (1, 3)  # fewest and most of one history; the long run has more of them
TRIES: Final = 5
LONGEST_LIFE: Final = 500  # steps; what is asked for takes some hundreds
WEATHERS: Final = (  # a history in which everything fails at once finds less than one in which a few things do
    Chances(loss=0.12),
    Chances(loss=0.06, reset=0.03),
    Chances(loss=0.06, foreign=0.06),
    Chances(disk=0.02),
    Chances(loss=0.06, reset=0.01, foreign=0.03, disk=0.004),
)
READING_S: Final = 2.0


class History:
    """One history, as it is played."""

    def __init__(self, seed: int, requests: tuple[int, int] = REQUESTS) -> None:
        self.seed = seed
        self.world = World(seed)
        furnish(self.world)
        self.asked = drawn(self.world, self.world.draw.randint(*requests))
        self.answers: list[tuple[str, Result]] = []
        self.lives = 0
        self.left: dict[str, str] = {}  # keys that are unknown when everything has been tried, and why
        self.counts: Counter[str] = Counter()

    def play(self) -> list[str]:
        """Every life, then what is wrong with what came of them."""
        world, draw = self.world, self.world.draw
        for _ in range(1 + world.chance(SECOND_LIFE)):
            world.chances = draw.choice(WEATHERS)
            self._live(self._asking, draw.randint(1, LONGEST_LIFE))
            if world.chance(0.1):
                world.boots += 1
            if world.chance(0.1):
                world.base_ns += draw.choice((-DECADE_NS, DECADE_NS))
        world.chances = Chances()
        self._live(self._at_last, None)
        record = oracle.record_of(self)
        self.counts.update(f"ended {row.verdict} by {row.verdict_by}" for row in record.rows if row.state == "DONE")
        return oracle.violations(self, record)

    def _live(self, life: Callable[[Engine], Any], crash_at: int | None) -> None:
        world = self.world
        world.loop = Scheduler(world.draw, world.now_s() + 1.0, crash_at)
        self.lives += 1
        try:
            with host_of(world):
                world.loop.run_until_complete(self._whole(life))
        except Crashed:
            self.counts["crashes"] += 1
        except StoreFatal:
            self.counts["starts that the disk failed"] += 1
        finally:
            self.counts["steps"] += world.loop.steps
            world.loop.bury()
            world.loop.close()

    async def _whole(self, life: Callable[[Engine], Any]) -> None:
        engine = await Engine.start(board(), None, WorldClock(self.world), allow_unsafe=True)  # type: ignore[arg-type]
        engine.daemon.store.on_fatal(lambda _: None)
        for worker in engine.daemon.workers.values():
            worker.chance = self.world.draw.random
        await life(engine)

    async def _asking(self, engine: Engine) -> None:
        """Callers at work side by side; then the daemon ends, or is left to its crash."""
        for worker in ([a for a in self.asked if a.caller == c] for c in {a.caller: None for a in self.asked}):
            engine.daemon.keep(self._caller(engine, worker))
        await engine.daemon.kept_done()
        if engine.daemon.failed:
            return
        await engine._keyed.drain()

    async def _caller(self, engine: Engine, asked: list[Asked]) -> None:
        for one in asked:
            if not one.over and not engine.daemon.failed:
                await self._pursue(engine, one)

    async def _pursue(self, engine: Engine, one: Asked) -> None:
        """Ask under one key, again and again, as a careful caller would: the same request, never another."""
        draw, loop = self.world.draw, self.world.loop
        for _ in range(TRIES):
            if self.world.chance(0.05):  # the caller leaves: that changes nothing
                call = loop.create_task(engine.call(one.caller, one.method, {**one.params, "key": one.key}))
                await asyncio.wait({call}, timeout=loop.delay_s())
                call.cancel()
                with contextlib.suppress(asyncio.CancelledError):
                    await call
                continue
            result = await self._ask(engine, one)
            code = None if result.error is None else result.error["code"]
            if result.status == "pending_approval" and result.id is not None and self.world.chance(0.8):
                await self._approve(engine, result.id)
            elif result.verdict is not None or code == "store_failed":
                one.over = result.verdict is not None and self.world.chance(0.7)
                return
            elif code == "outcome_unknown" and self.world.chance(0.3):
                await self._note(one, await engine.call(one.caller, "op.get", {"key": one.key, "verify": True}))
            elif code in ("outcome_unknown", "held") and self.world.chance(0.2):
                await self._settle(engine, one)
            await asyncio.sleep(draw.expovariate(20))

    async def _ask(self, engine: Engine, one: Asked) -> Result:
        params = {**one.params, "key": one.key}
        if self.world.chance(0.2) and one.method != "device.safe_state":
            params["deadline_ms"] = 5
        return await self._note(one, await engine.call(one.caller, one.method, params))

    async def _note(self, one: Asked, result: Result) -> Result:
        self.answers.append((one.key, result))
        if result.id is not None:
            one.ids.add(result.id)
        return result

    async def _approve(self, engine: Engine, op_id: int) -> None:
        shown = await engine.call(OPERATOR, "approval.show", {"approval": op_id})
        if isinstance(shown.approvals, list) and shown.approvals:
            await asyncio.sleep(READING_S)
            code = shown.approvals[0]["code"]
            await engine.call(OPERATOR, "approval.approve", {"approval": op_id, "code": code})

    async def _settle(self, engine: Engine, one: Asked) -> None:
        """A person has had enough."""
        for op_id in sorted(one.ids):
            await engine.call(OPERATOR, "op.settle", {"id": op_id, "verdict": "abandoned", "reason": "enough"})

    async def _at_last(self, engine: Engine) -> None:
        """Nothing goes wrong any more: what can be settled by rule is; the rest is told, then given up by a person."""
        for one in self.asked:
            for _ in range(TRIES):
                found = await self._note(one, await engine.call(one.caller, "op.get", {"key": one.key, "verify": True}))
                if found.status != "failed" or found.error is None or found.error["code"] != "outcome_unknown":
                    break
                await asyncio.sleep(0.5)
            if isinstance(found.op, dict) and found.op["state"] == "UNKNOWN":
                self.left[one.key] = str(found.op["needs_person"])
        for one in self.asked:
            if one.key in self.left:
                await self._settle(engine, one)
                for step in await self._steps_of(engine, one):
                    settle = {"id": step, "verdict": "abandoned", "reason": "nobody can tell"}
                    await engine.call(OPERATOR, "op.settle", settle)
        for one in self.asked:
            if not one.over:
                await self._pursue(engine, one)
            await self._ask(engine, one)
        await engine.daemon.kept_done()
        await engine._keyed.drain()
        await asyncio.sleep(1.0)

    async def _steps_of(self, engine: Engine, one: Asked) -> list[int]:
        ids = sorted(one.ids)
        rows = await engine.daemon.ask(lambda conn: [r for i in ids for r in operations.children(conn, i)])
        return [row.op_id for row in rows if row.state == "UNKNOWN"]


def played(seed: int, requests: tuple[int, int] = REQUESTS) -> tuple[list[str], Counter[str]]:
    """Play one history; what is wrong with it, and what there was in it."""
    history = History(seed, requests)
    try:
        found = history.play()
    except BaseException as error:  # a history that does not end is a finding
        if isinstance(error, KeyboardInterrupt | SystemExit):
            raise
        found = [f"the history itself failed: {type(error).__name__}: {error}"]
    history.counts["lives"] += history.lives
    history.counts["requests"] += len(history.asked)
    history.counts["transfers"] += len(history.world.happened)
    history.counts["left to a person"] += len(history.left)
    return found, history.counts


def all_of(
    first: int, number: int, jobs: int = JOBS, requests: tuple[int, int] = REQUESTS
) -> tuple[dict[int, list[str]], Counter[str]]:
    """Play so many histories from a seed on; what is wrong by seed, and what there was in all of them."""
    wrong: dict[int, list[str]] = {}
    counts: Counter[str] = Counter()

    def work(index: int, told: Told) -> None:
        if index % 200 < jobs:
            gc.collect()
        found, counted = played(first + index, requests)
        told.say("history", [index, found, dict(counted)])

    gc.freeze()
    for _, (index, found, counted) in spread(number, jobs, work):
        counts.update(counted)
        if found:
            wrong[first + index] = found
    return wrong, counts


def main() -> int:
    """Play what the arguments ask for; 0 if nothing is wrong."""
    parser = argparse.ArgumentParser(prog="tests.crash.simulation.histories", description="histories from seeds")
    parser.add_argument("--histories", type=int, default=10_000)
    parser.add_argument("--seed", type=int, default=1, help="of the first; the others follow")
    parser.add_argument("--jobs", type=int, default=JOBS)
    parser.add_argument("--requests", type=int, nargs=2, default=REQUESTS, help="fewest and most of one history")
    parser.add_argument("--show", action="store_true", help="tell the history of the seed")
    arguments = parser.parse_args()
    if arguments.show:
        history = History(arguments.seed, tuple(arguments.requests))
        found = history.play()
        print("\n".join([*oracle.tale(history, oracle.record_of(history)), *found]))
        return 1 if found else 0
    began_s = time.monotonic()
    wrong, counts = all_of(arguments.seed, arguments.histories, arguments.jobs, tuple(arguments.requests))
    for seed, found in sorted(wrong.items()):
        print(f"seed {seed}: " + "; ".join(found))
    told = ", ".join(f"{number} {what}" for what, number in sorted(counts.items()))
    took_s = time.monotonic() - began_s
    print(f"{arguments.histories} histories from seed {arguments.seed}: {told}; {len(wrong)} wrong, {took_s:.0f} s")
    return 1 if wrong else 0


if __name__ == "__main__":
    sys.exit(main())
