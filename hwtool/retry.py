"""Retries of what may be repeated: preparation and clean reads, nothing else. Pure: time and chance are passed in.

    delays   exponential, with jitter and a floor, capped each and in their number
    bucket   tokens of one device: a storm of callers retries no more often than it allows
    verdict  RetrySafe | Never | Fail, for an error of a read that may be repeated

What the other side says (`retry_after_ms`) beats the schedule. The schedule never sleeps: whoever uses it does.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from dataclasses import dataclass
from typing import Final

from hwtool_contracts.errors import Code, DomainError


@dataclass(frozen=True, slots=True)
class RetrySafe:
    """It may be tried again; after `after_s` at the soonest, where the other side said so."""

    why: str
    after_s: float = 0.0


@dataclass(frozen=True, slots=True)
class Never:
    """Trying again would bring the same."""

    why: str


@dataclass(frozen=True, slots=True)
class Fail:
    """Nothing may be tried any more: the daemon ends."""

    why: str


Decision = RetrySafe | Never | Fail
Chance = Callable[[], float]  # evenly distributed from 0 to 1


@dataclass(frozen=True, slots=True)
class Backoff:
    """A schedule: how often, and how long between.

    Attributes:
        attempts: in all; 1: no retry.
        first_s, factor, longest_s: the delay before the second attempt, its growth, its cap.
        floor_s: no delay is shorter, whatever the jitter.
    """

    attempts: int
    first_s: float = 0.01
    factor: float = 2.0
    longest_s: float = 0.5
    floor_s: float = 0.002

    def delays(self, chance: Chance) -> Iterator[float]:
        """The delays between the attempts: full jitter between the floor and the schedule."""
        most_s = self.first_s
        for _ in range(self.attempts - 1):
            yield max(self.floor_s, chance() * min(most_s, self.longest_s))
            most_s *= self.factor


@dataclass
class Bucket:
    """Tokens of one device: each retry takes one.

    Attributes:
        tokens: left now; `capacity` at the start.
        per_s: how many come back a second.
    """

    capacity: float = 10.0
    per_s: float = 1.0
    tokens: float = 10.0
    _since_s: float | None = None

    def take(self, now_s: float) -> bool:
        """Take a token, if there is one."""
        if self._since_s is not None:
            self.tokens = min(self.capacity, self.tokens + max(0.0, now_s - self._since_s) * self.per_s)
        self._since_s = now_s
        if self.tokens < 1.0:
            return False
        self.tokens -= 1.0
        return True


TRANSIENT: Final = frozenset({Code.BUS_FAULT, Code.TIMEOUT})


def decide(error: DomainError) -> Decision:
    """What an error of a clean read or of preparation permits."""
    if error.code in TRANSIENT:
        return RetrySafe(f"{error.code.value}: nothing with an effect was sent")
    if error.code is Code.UNAVAILABLE:
        after_ms = error.fields.get("retry_after_ms")
        return RetrySafe("the bus comes back", (after_ms if isinstance(after_ms, int) else 0) / 1000)
    if error.code is Code.STORE_FAILED:
        return Fail("the store has failed")
    return Never(f"{error.code.value} is no fault of the bus")
