"""What comes in on a line when nobody waits for it any more: late replies and second copies.

Rules
- A device answers in order: what it owes for an earlier request comes before its answer to a later one.
- A bus empties its buffer before it sends a request: what has arrived by then is nobody's.
- What has not arrived by then comes first, and whoever waits takes it for an answer. That is the fault to be guarded
  against: a bus that sends before the late reply came cannot tell it from its own.
- Draining (`quiesce`) drops what has arrived until then, and nothing that is still under way.
"""

from __future__ import annotations

from collections import deque
from typing import Generic, TypeVar

Reply = TypeVar("Reply")


class InputBuffer(Generic[Reply]):
    """Replies on their way, in the order of the line; moments are monotonic seconds."""

    def __init__(self) -> None:
        self._due: deque[tuple[float, Reply]] = deque()

    def __bool__(self) -> bool:
        return bool(self._due)

    @property
    def next_s(self) -> float | None:
        """When the first one arrives; None: nothing is under way."""
        return self._due[0][0] if self._due else None

    def put(self, due_s: float, reply: Reply) -> None:
        """A reply will arrive, not before those that were sent before it."""
        last_s = self._due[-1][0] if self._due else due_s
        self._due.append((max(due_s, last_s), reply))

    def first(self) -> Reply:
        """Take the next one, whenever it arrives.

        Raises:
            IndexError: nothing is under way.
        """
        return self._due.popleft()[1]

    def arrived(self, now_s: float) -> list[Reply]:
        """Take what has arrived by this moment."""
        found = []
        while self._due and self._due[0][0] <= now_s:
            found.append(self.first())
        return found

    def clear(self) -> None:
        """The line is cut: nothing arrives any more."""
        self._due.clear()
