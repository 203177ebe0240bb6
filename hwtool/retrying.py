"""Trying again, said in units and roles; and the same in one terse line. For callers: the daemon retries no effect.

    patiently = retrying(while_transient, up_to(4).attempts, backing_off(exponentially_from(ms(100))),
                         giving_up_after(seconds(10)))
    value = patiently(lambda: hw.read("uart.RXLVL"))

    value = retry(lambda: hw.read("uart.RXLVL"), attempts=4, first_ms=100, give_up_ms=10_000)

Rules
- Clauses stand in any order; one said twice is an error. `up_to(4).attempts` is one call and three more.
- What is tried again: errors that the daemon calls retryable and allows under the same key, a result that is still
  `in_progress`, a daemon that is not there, and a call that it never recorded. Nothing else: a new attempt that needs a
  new key, or a look first, is a decision of the caller's.
- How long the daemon says to wait beats the schedule, longer or shorter; `ignoring_server_advice` says otherwise.
- Giving up cancels nothing in the daemon. A wait that would end after `giving_up_after` is not begun; under asyncio
  (`hwtool.waiting.wait_for`) the task that waits for a call is cancelled at that time too.
- Giving up raises what came last, or answers what `falling_back_to` says, if the failure is one that was to be retried
  and no effect of any attempt may have happened: a fall-back never hides one.
- An effect keeps its key over all attempts; one with a fresh key in a later attempt, or with none, is refused unsent
  (hwtool.attempts).

Everything that decides is pure; `timed_by` brings another clock, for tests.
"""

from __future__ import annotations

import time
from collections.abc import Callable, Coroutine, Generator
from dataclasses import dataclass, field, replace
from typing import Any, Final, NamedTuple, Protocol, TypeVar, cast

from hwtool.attempts import Account, account
from hwtool.failures import CallFailed, Malformed
from hwtool.losses import NeverSent, NoDaemon
from hwtool.replies import Result
from hwtool_contracts.errors import ErrorClass, Retry

T = TypeVar("T")
Outcome = object  # what a call returned, or the exception it raised


class GaveUp(TimeoutError):
    """The time was over while a call was under way; in the daemon it goes on, and what it does is found by its key.

    Attributes:
        account: of the policy whose time it was.
    """

    account: Account | None = None


class Ticking(Protocol):
    """A clock that a policy waits by."""

    def monotonic_s(self) -> float:
        """Seconds that never go back."""

    def sleep(self, seconds: float) -> None:
        """Wait."""


class Clock:
    """The host's clock."""

    def monotonic_s(self) -> float:
        """Seconds that never go back."""
        return time.monotonic()

    def sleep(self, seconds: float) -> None:
        """Wait."""
        time.sleep(seconds)


@dataclass(frozen=True, slots=True, order=True)
class Duration:
    """A length of time; made by `ms`, `seconds` and `minutes`."""

    s: float

    def __post_init__(self) -> None:
        if not 0 <= self.s < float("inf"):
            raise ValueError(f"a duration of {self.s} s: it must be finite and not negative")


def ms(number: float) -> Duration:
    """So many milliseconds."""
    return Duration(number / 1000)


def seconds(number: float) -> Duration:
    """So many seconds."""
    return Duration(number)


def minutes(number: float) -> Duration:
    """So many minutes."""
    return Duration(60 * number)


@dataclass(frozen=True, slots=True)
class Schedule:
    """How long to wait before the second attempt, the third …: `first`, growing by `factor`, never over `longest`."""

    first: Duration
    factor: float
    longest: Duration

    def wait_s(self, attempt: int) -> float:
        """The wait after the attempt of this number, from 1."""
        try:
            grown_s = self.first.s * self.factor ** (attempt - 1)
        except OverflowError:
            return self.longest.s
        return min(grown_s, self.longest.s)


LONGEST: Final = Duration(30.0)


def exponentially_from(first: Duration, *, factor: float = 2.0, longest: Duration = LONGEST) -> Schedule:
    """Waits that grow by a factor."""
    if factor < 1:
        raise ValueError(f"a factor of {factor}: waits do not shrink")
    return Schedule(first, factor, longest)


def steadily(every: Duration) -> Schedule:
    """Waits that are all the same."""
    return Schedule(every, 1.0, every)


class _Unset:
    """Not said."""


UNSET: Final = _Unset()
Test = Callable[[Outcome], bool]


@dataclass(frozen=True, slots=True)
class Policy:
    """What is tried again, how often, and how long between; call it with what is to be tried.

    Attributes:
        attempts: in all; None: as many as the time allows.
        give_up: no wait is begun that ends later than this after the first attempt began.
    """

    again: Test | None = None
    attempts: int | None = None
    schedule: Schedule | None = None
    give_up: Duration | None = None
    fall_back: object = UNSET
    advised: bool = True
    clock: Ticking = field(default_factory=Clock)

    def __call__(self, call: Callable[[], T]) -> T:
        """Try until it succeeds, or as far as the policy goes.

        Raises:
            BaseException: of the last attempt.
            FreshKeyInRetry: an effect came under another key than before, or under none.
            TypeError: it answers a coroutine; hwtool.waiting.wait_for awaits.
        """
        with account() as tried:
            deciding = self.decisions(tried)
            next(deciding)
            while True:
                outcome: Outcome
                with tried.attempt():
                    try:
                        outcome = call()
                    except Exception as error:  # noqa: BLE001  # whether it is tried again is decided below
                        outcome = error
                if isinstance(outcome, Coroutine):
                    outcome.close()
                    raise TypeError("it is a coroutine, which is not awaited here: await wait_for(policy, call)")
                try:
                    wait_s = deciding.send(outcome)
                except StopIteration as end:
                    return cast(T, end.value)
                self.clock.sleep(wait_s)

    def decisions(self, tried: Account) -> Generator[float, Outcome, Outcome]:
        """Told of each outcome, answers how long to wait; ends with the result, or raises the last error."""
        again = self.again or while_transient.again
        schedule = self.schedule or DEFAULT_SCHEDULE
        began_s = self.clock.monotonic_s()
        number, wait_s = 0, 0.0
        while True:
            outcome = yield wait_s
            number += 1
            if isinstance(outcome, GaveUp) and outcome.account is tried:
                return self._given_up(outcome, tried)
            if not again(outcome):
                return _ended(outcome)
            advice_s = advice(outcome) if self.advised else None
            wait_s = schedule.wait_s(number) if advice_s is None else advice_s
            late = self.give_up is not None and self.clock.monotonic_s() + wait_s - began_s > self.give_up.s
            if late or (self.attempts is not None and number >= self.attempts):
                return self._given_up(outcome, tried)

    def _given_up(self, outcome: Outcome, tried: Account) -> Outcome:
        if not isinstance(self.fall_back, _Unset) and tried.acted == 0:
            return self.fall_back
        return _ended(outcome)


def _ended(outcome: Outcome) -> Outcome:
    if isinstance(outcome, BaseException):
        raise outcome
    return outcome


class Clause(NamedTuple):
    """One thing said of a policy: which member, and what it is to be."""

    member: str
    value: Any

    @property
    def again(self) -> Test:
        """The test of a clause that says what is tried again."""
        return cast(Test, self.value)


def transient(outcome: Outcome) -> bool:
    """Whether the same call, under the same key, may be made again and may then end otherwise."""
    if isinstance(outcome, Result):
        return outcome.status == "in_progress"
    if isinstance(outcome, CallFailed):
        if isinstance(outcome, Malformed):
            return False
        return outcome.error["class"] == ErrorClass.RETRYABLE and outcome.retry == Retry.SAME_KEY
    return isinstance(outcome, NoDaemon | NeverSent)


def advice(outcome: Outcome) -> float | None:
    """How long the daemon says to wait, in seconds; None if it says nothing."""
    if isinstance(outcome, CallFailed) and outcome.retry_after_ms is not None:
        return outcome.retry_after_ms / 1000
    return None


while_transient: Final = Clause("again", transient)
ignoring_server_advice: Final = Clause("advised", False)


def while_transient_and(test: Test) -> Clause:
    """Try again while the failure is transient and a test of the outcome says so too."""
    return Clause("again", lambda outcome: transient(outcome) and test(outcome))


class _UpTo:
    """So many of something."""

    def __init__(self, number: int) -> None:
        if number < 1:
            raise ValueError(f"up to {number} attempts: one at least")
        self.attempts: Final = Clause("attempts", number)


def up_to(number: int) -> _UpTo:
    """`up_to(4).attempts`: four calls at most, the first included."""
    return _UpTo(number)


def backing_off(schedule: Schedule) -> Clause:
    """How long to wait between attempts, where the daemon says nothing."""
    return Clause("schedule", schedule)


def giving_up_after(time_: Duration) -> Clause:
    """Begin no wait that would end later than this after the first attempt began."""
    return Clause("give_up", time_)


def falling_back_to(value: object) -> Clause:
    """What is answered when everything was in vain and nothing was sent."""
    return Clause("fall_back", value)


def timed_by(clock: Ticking) -> Clause:
    """Another clock than the host's."""
    return Clause("clock", clock)


DEFAULT_SCHEDULE: Final = exponentially_from(Duration(0.1))


def retrying(*clauses: Clause) -> Policy:
    """A policy of clauses, in any order.

    Raises:
        ValueError: something is said twice, or nothing says when to give up.
    """
    said: dict[str, Any] = {}
    for clause in clauses:
        if clause.member in said:
            raise ValueError(f"{clause.member} is said twice")
        said[clause.member] = clause.value
    if "attempts" not in said and "give_up" not in said:
        raise ValueError("nothing says when to give up: up_to(4).attempts, or giving_up_after(seconds(10))")
    return replace(Policy(), **said)


def policy(
    *,
    attempts: int | None = None,
    first_ms: float | None = None,
    factor: float = 2.0,
    longest_ms: float = 30_000,
    give_up_ms: float | None = None,
    fall_back: object = UNSET,
    advised: bool = True,
    again: Test | None = None,
    clock: Ticking | None = None,
) -> Policy:
    """The terse twin of `retrying`: the same policy from numbers.

    Raises:
        ValueError: as `retrying`.
    """
    said = [] if attempts is None else [up_to(attempts).attempts]
    if first_ms is not None:
        said.append(backing_off(exponentially_from(ms(first_ms), factor=factor, longest=ms(longest_ms))))
    said += [] if give_up_ms is None else [giving_up_after(ms(give_up_ms))]
    said += [] if isinstance(fall_back, _Unset) else [falling_back_to(fall_back)]
    said += [] if advised else [ignoring_server_advice]
    said += [while_transient if again is None else while_transient_and(again)]
    said += [] if clock is None else [timed_by(clock)]
    return retrying(*said)


def retry(call: Callable[[], T], **said: Any) -> T:
    """`policy(…)` applied at once: `retry(lambda: hw.read("uart.RXLVL"), attempts=4, first_ms=100)`."""
    return policy(**said)(call)
