"""A retry policy under asyncio: the same decisions; giving up ends the wait, and the call goes on.

value = await wait_for(patiently, lambda: hw.read("uart.RXLVL"))
"""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable
from typing import Any, TypeVar, cast

from hwtool.retrying import Clock, GaveUp, Policy, Ticking, same_keys

T = TypeVar("T")
LEFT_BEHIND: set[asyncio.Task[Any]] = set()  # tasks that nobody waits for any more; kept so that they live to their end


async def wait_for(policy: Policy, call: Callable[[], Awaitable[T]]) -> T:
    """Try until it succeeds, or as far as the policy goes.

    Raises:
        GaveUp: the time was over during an attempt, and there is nothing to fall back to.
        BaseException: of the last attempt.
        FreshKeyInRetry: an effect came under another key than before, or under none.
    """
    began_s = policy.clock.monotonic_s()
    with same_keys() as tried:
        deciding = policy.decisions(tried)
        next(deciding)
        while True:
            tried.at = 0
            rest_s = None if policy.give_up is None else began_s + policy.give_up.s - policy.clock.monotonic_s()
            outcome = await _attempt(call, rest_s)
            try:
                wait_s = deciding.send(outcome)
            except StopIteration as end:
                return cast(T, end.value)
            await _pause(policy.clock, wait_s)


async def _attempt(call: Callable[[], Awaitable[Any]], within_s: float | None) -> object:
    """What a call returned, or the exception it raised; GaveUp if it is still under way."""
    task = asyncio.ensure_future(_of(call))
    try:
        done, _ = await asyncio.wait({task}, timeout=within_s)
    except asyncio.CancelledError:
        _leave(task)
        raise
    if not done:
        _leave(task)
        return GaveUp(f"gave up waiting after {within_s:g} s; the call goes on")
    error = task.exception()
    return task.result() if error is None else error


async def _of(call: Callable[[], Awaitable[Any]]) -> Any:
    return await call()


def _leave(task: asyncio.Task[Any]) -> None:
    LEFT_BEHIND.add(task)

    def ended(task: asyncio.Task[Any]) -> None:
        LEFT_BEHIND.discard(task)
        if not task.cancelled():
            task.exception()

    task.add_done_callback(ended)


async def _pause(clock: Ticking, wait_s: float) -> None:
    """Wait; by the event loop unless the clock is another than the host's."""
    if isinstance(clock, Clock):
        await asyncio.sleep(wait_s)
    else:
        clock.sleep(wait_s)
