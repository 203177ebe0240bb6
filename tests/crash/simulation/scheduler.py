"""One scheduler for everything: an event loop without a selector, whose time moves only from event to event.

Nothing here waits and nothing runs beside it: what a thread would do (a commit, a transfer on a bus) is begun at one
moment and told at a later one, both drawn from the seed. A crash is the end of the loop before its n-th step. The same
seed gives the same steps in the same order.
"""

from __future__ import annotations

import asyncio
import contextlib
import heapq
import random
import warnings
from collections.abc import Callable
from typing import Any, Final

MOST_STEPS: Final = 200_000
SHORTEST_S: Final = 1e-5
MEAN_S: Final = 0.002


class Crashed(BaseException):
    """The process of the daemon has ended here, without a word."""


class Stuck(BaseException):
    """Nothing will ever happen any more, or it never ends: a defect, which names its seed."""


class Scheduler(asyncio.BaseEventLoop):
    """The event loop of one life of a daemon.

    Args:
        draw: where every delay comes from.
        now_s: when this life begins.

    Attributes:
        crash_at: the step before which this life ends; None: it lives to its end.
    """

    def __init__(self, draw: random.Random, now_s: float, crash_at: int | None) -> None:
        super().__init__()
        self._draw = draw
        self._now_s = now_s
        self.crash_at = crash_at
        self.steps = 0
        self.dead = False
        self.set_exception_handler(lambda *_: None)  # what is cut off by a crash has nothing to say

    def time(self) -> float:
        """Seconds, of this world alone."""
        return self._now_s

    def delay_s(self) -> float:
        """How long something takes that another would do."""
        return SHORTEST_S + self._draw.expovariate(1 / MEAN_S)

    def call_soon_threadsafe(  # type: ignore[override]  # as it is used here
        self, callback: Callable[..., Any], *args: Any, context: Any = None
    ) -> asyncio.Handle:
        """There is one thread."""
        return self.call_soon(callback, *args, context=context)

    def run_in_executor(  # type: ignore[override]  # as it is used here
        self, executor: Any, func: Callable[..., Any], *args: Any
    ) -> asyncio.Future[Any]:
        """What a thread would do: it happens at one moment, and is told at a later one."""
        told: asyncio.Future[Any] = self.create_future()

        def happen() -> None:
            try:
                value, raised = func(*args), None
            except Exception as error:  # noqa: BLE001  # whoever waits is told, as by an executor
                value, raised = None, error
            self.call_later(self.delay_s(), tell, value, raised)

        def tell(value: Any, raised: Exception | None) -> None:
            if told.cancelled():
                return
            if raised is None:
                told.set_result(value)
            else:
                told.set_exception(raised)

        self.call_later(self.delay_s(), happen)
        return told

    def _run_once(self) -> None:
        """The next step, or the next moment at which there is one."""
        timers: list[asyncio.TimerHandle] = self._scheduled  # type: ignore[attr-defined]
        ready = self._ready  # type: ignore[attr-defined]
        while timers and (timers[0].cancelled() or not ready):
            if not timers[0].cancelled():
                self._now_s = max(self._now_s, timers[0].when())
                break
            heapq.heappop(timers)
        while timers and timers[0].when() <= self._now_s:
            ready.append(heapq.heappop(timers))
        if not ready and not self._stopping:  # type: ignore[attr-defined]
            raise Stuck("nothing is left to happen")
        for _ in range(len(ready)):
            if self.steps == self.crash_at:
                raise Crashed
            if self.steps > MOST_STEPS:
                raise Stuck(f"{MOST_STEPS} steps and no end")
            handle = ready.popleft()
            if not handle.cancelled():
                self.steps += 1
                handle._run()

    def bury(self) -> None:
        """After a crash: end what was under way, so that nothing of it speaks later."""
        self.dead = True
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")  # what it begins in its end is never awaited
            for task in asyncio.all_tasks(self):
                with contextlib.suppress(RuntimeError):  # it would wait in its end: it is dead
                    coroutine = task.get_coro()
                    if coroutine is not None and hasattr(coroutine, "close"):
                        coroutine.close()
        self._ready.clear()  # type: ignore[attr-defined]
        self._scheduled.clear()  # type: ignore[attr-defined]

    def _process_events(self, event_list: Any) -> None:
        """There is no selector."""

    def _write_to_self(self) -> None:
        """There is nobody to be woken."""
