"""The queue of a device: one at a time, first in first out, except that a safe state goes to the front.

What waits is told when a safe state has overtaken it: a request that was made before must not run after it.
"""

from __future__ import annotations

import asyncio
import contextlib
from collections import deque
from collections.abc import Coroutine
from types import TracebackType
from typing import Any


class Turns:
    """A fair lock with a front door.

    Attributes:
        alarms: how many safe states have been asked for; whoever finds another number than when it came has been
            overtaken, and a watch or a sequence that finds another number ends.
    """

    def __init__(self) -> None:
        self.alarms = 0
        self._alarm = asyncio.Event()
        self._taken = False
        self._urgent: deque[asyncio.Future[None]] = deque()
        self._waiting: deque[asyncio.Future[None]] = deque()

    def locked(self) -> bool:
        """Whether it is somebody's turn."""
        return self._taken

    def raise_alarm(self) -> None:
        """A safe state is asked for: whoever watches, waits or runs a sequence finds another number now."""
        self.alarms += 1
        self._alarm.set()
        self._alarm = asyncio.Event()

    def alarmed(self) -> Coroutine[Any, Any, bool]:
        """To be awaited: ends with the next safe state that is asked for after this call."""
        return self._alarm.wait()

    async def acquire(self, *, urgent: bool = False) -> None:
        """Wait for the turn; urgent ones go before all others."""
        if not self._taken:
            self._taken = True
            return
        mine: asyncio.Future[None] = asyncio.get_running_loop().create_future()
        queue = self._urgent if urgent else self._waiting
        queue.append(mine)
        try:
            await mine
        except asyncio.CancelledError:
            if mine.done() and not mine.cancelled():
                self.release()  # the turn came while the waiting was given up: pass it on
            else:
                with contextlib.suppress(ValueError):  # its turn was being passed on in this very moment
                    queue.remove(mine)
            raise

    def release(self) -> None:
        """End the turn; the next one begins at once, so that nobody gets in between."""
        for queue in (self._urgent, self._waiting):
            while queue:
                following = queue.popleft()
                if not following.done():
                    following.set_result(None)
                    return
        self._taken = False

    async def __aenter__(self) -> None:
        await self.acquire()

    async def __aexit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self.release()
