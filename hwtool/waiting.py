"""A retry policy under asyncio: the same decisions, and giving up ends an attempt that is under way.

value = await wait_for(patiently, lambda: hw.read("uart.RXLVL"))

What is cancelled then is the waiting: an operation that the daemon has begun goes on under its key.
"""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable
from typing import Any, TypeVar, cast

from hwtool.attempts import Account, account
from hwtool.retrying import Clock, GaveUp, Policy, Ticking

T = TypeVar("T")


async def wait_for(policy: Policy, call: Callable[[], Awaitable[T]]) -> T:
    """Try until it succeeds, or as far as the policy goes.

    Raises:
        GaveUp: the time was over during an attempt, and there is nothing to fall back to.
        BaseException: of the last attempt.
        FreshKeyInRetry: an effect came under another key than before, or under none.
    """
    began_s = policy.clock.monotonic_s()
    with account() as tried:
        deciding = policy.decisions(tried)
        next(deciding)
        while True:
            rest_s = None if policy.give_up is None else began_s + policy.give_up.s - policy.clock.monotonic_s()
            with tried.attempt():
                outcome = await _attempt(call, rest_s, tried)
            try:
                wait_s = deciding.send(outcome)
            except StopIteration as end:
                return cast(T, end.value)
            await _pause(policy.clock, wait_s)


async def _attempt(call: Callable[[], Awaitable[Any]], within_s: float | None, tried: Account) -> object:
    """What a call returned, or the exception it raised; GaveUp if the time was over before."""
    limit = asyncio.timeout(within_s)
    try:
        async with limit:
            return await call()
    except Exception as error:  # noqa: BLE001  # whether it is tried again is decided by the policy
        if isinstance(error, TimeoutError) and limit.expired():
            gave_up = GaveUp(f"gave up waiting after {within_s:g} s; what the daemon has begun goes on")
            gave_up.account = tried
            return gave_up
        return error


async def _pause(clock: Ticking, wait_s: float) -> None:
    """Wait; by the event loop unless the clock is another than the host's."""
    if isinstance(clock, Clock):
        await asyncio.sleep(wait_s)
    else:
        clock.sleep(wait_s)
