"""The retry vocabulary: units and roles, its terse twin, and what neither of them tries again."""

from __future__ import annotations

import asyncio
import itertools
from collections.abc import Callable
from functools import partial
from typing import Any, cast

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from hwtool import calls
from hwtool.attempts import FreshKeyInRetry, check_key
from hwtool.failures import CallFailed, failure
from hwtool.losses import ConnectionLost, NeverSent, NoDaemon
from hwtool.recovering import new_key
from hwtool.replies import Result
from hwtool.retrying import (
    Clause,
    GaveUp,
    Policy,
    backing_off,
    exponentially_from,
    falling_back_to,
    giving_up_after,
    ignoring_server_advice,
    minutes,
    ms,
    policy,
    retry,
    retrying,
    seconds,
    steadily,
    timed_by,
    up_to,
    while_transient,
    while_transient_and,
)
from hwtool.waiting import wait_for
from hwtool_contracts.errors import CATALOGUE, Code, DomainError, ErrorClass, Retry


class FakeClock:
    """Time that moves when somebody waits, or works; every wait is kept."""

    def __init__(self) -> None:
        self.now_s = 100.0
        self.waits: list[float] = []

    def monotonic_s(self) -> float:
        return self.now_s

    def sleep(self, seconds: float) -> None:
        self.waits.append(round(seconds, 6))
        self.now_s += seconds


def error_of(code: Code, *, effects: str = "none", after_intent: bool = False, **fields: Any) -> CallFailed:
    error = DomainError(code, "why", after_intent=after_intent, **fields)
    return failure(Result({"status": "failed", "ok": False, "effects": effects, "error": error.as_object()}))


def busy(after_ms: int | None = None) -> CallFailed:
    return error_of(Code.BUSY, by="queue", holder=None, retry_after_ms=after_ms)


def play(made: Policy, outcomes: list[Any], clock: FakeClock, took_s: float = 0.0) -> tuple[Any, list[float], int]:
    """Call a policy with what comes back one after the other; the result, the waits, the number of calls."""
    rest = iter(outcomes)
    count = itertools.count()

    def call() -> Any:
        next(count)
        clock.now_s += took_s
        outcome = next(rest)
        if isinstance(outcome, Exception):
            raise outcome
        return outcome

    try:
        came: Any = made(call)
    except Exception as error:  # noqa: BLE001  # what came of it
        came = error
    return came, clock.waits, next(count)


def play_async(made: Policy, outcomes: list[Any], clock: FakeClock, took_s: float) -> tuple[Any, list[float], int]:
    """The same with asyncio."""
    rest = iter(outcomes)
    count = itertools.count()

    async def call() -> Any:
        next(count)
        clock.now_s += took_s
        outcome = next(rest)
        if isinstance(outcome, Exception):
            raise outcome
        return outcome

    async def whole() -> Any:
        try:
            return await wait_for(made, call)
        except Exception as error:  # noqa: BLE001  # what came of it
            return error

    return asyncio.run(whole()), clock.waits, next(count)


def test_attempts_when_four_then_one_call_and_three_retries() -> None:
    clock = FakeClock()
    made = retrying(while_transient, up_to(4).attempts, backing_off(exponentially_from(ms(100))), timed_by(clock))
    came, waits, called = play(made, [busy()] * 9, clock)
    assert (came.code, waits, called) == (Code.BUSY, [0.1, 0.2, 0.4], 4)


def test_clauses_when_in_any_order_then_the_same_policy() -> None:
    clock = FakeClock()
    clauses = [
        while_transient,
        up_to(4).attempts,
        backing_off(exponentially_from(ms(100))),
        giving_up_after(seconds(10)),
        timed_by(clock),
    ]
    assert len({retrying(*order) for order in itertools.permutations(clauses)}) == 1


@pytest.mark.parametrize("twice", [up_to(2).attempts, while_transient, giving_up_after(ms(1)), ignoring_server_advice])
def test_clause_when_said_twice_then_refused(twice: Clause) -> None:
    with pytest.raises(ValueError, match="said twice"):
        retrying(twice, up_to(2).attempts, twice) if twice.member != "attempts" else retrying(twice, twice)


def test_policy_when_nothing_ends_it_then_refused() -> None:
    with pytest.raises(ValueError, match="when to give up"):
        retrying(while_transient)
    with pytest.raises(ValueError, match="when to give up"):
        policy(first_ms=1)


def test_advice_when_the_daemon_gives_it_then_it_beats_the_schedule_both_ways() -> None:
    clock = FakeClock()
    made = retrying(up_to(4).attempts, backing_off(steadily(seconds(1))), timed_by(clock))
    _, waits, _ = play(made, [busy(5000), busy(10), busy(None), 7], clock)
    assert waits == [5.0, 0.01, 1.0]


def test_advice_when_ignored_by_name_then_the_schedule_holds() -> None:
    clock = FakeClock()
    made = retrying(ignoring_server_advice, up_to(3).attempts, backing_off(steadily(seconds(1))), timed_by(clock))
    _, waits, _ = play(made, [busy(5000), busy(10), 7], clock)
    assert waits == [1.0, 1.0]


def test_time_when_a_wait_would_end_after_it_then_given_up_without_waiting() -> None:
    clock = FakeClock()
    made = retrying(giving_up_after(seconds(10)), backing_off(exponentially_from(seconds(2))), timed_by(clock))
    came, waits, called = play(made, [busy()] * 9, clock)
    assert (came.code, waits, called) == (Code.BUSY, [2.0, 4.0], 3)  # 2 + 4 + 8 > 10
    came, waits, called = play(made, [busy(60_000)], clock)
    assert (came.code, called) == (Code.BUSY, 1)


def test_waits_when_they_grow_then_never_over_the_longest_and_without_overflow() -> None:
    schedule = exponentially_from(ms(100), factor=10, longest=minutes(1))
    assert [schedule.wait_s(n) for n in (1, 2, 3, 4, 5000)] == pytest.approx([0.1, 1, 10, 60, 60])


TRANSIENT = {c for c, e in CATALOGUE.items() if e.error_class is ErrorClass.RETRYABLE and e.retry is Retry.SAME_KEY}


@pytest.mark.parametrize("code", Code)
def test_error_when_of_each_code_then_tried_again_exactly_if_the_catalogue_allows_the_same_key(code: Code) -> None:
    clock = FakeClock()
    made = retrying(up_to(2).attempts, timed_by(clock))
    _, _, called = play(made, [error_of(code), 7], clock)
    assert called == (2 if code in TRANSIENT else 1)
    if CATALOGUE[code].later_retry is not None:  # after the intent a new attempt needs a new key: no policy's matter
        _, _, called = play(made, [error_of(code, after_intent=True), 7], clock)
        assert called == 1


OTHERS: list[tuple[Any, bool]] = [
    (NoDaemon("x"), True),
    (NeverSent("x"), True),
    (ConnectionLost("x"), False),
    (ValueError("x"), False),
    (Result({"status": "in_progress", "ok": False, "effects": "unknown"}), True),
    (Result({"status": "pending_approval", "ok": False, "effects": "none"}), False),
]


@pytest.mark.parametrize(("outcome", "again"), OTHERS, ids=[f"{i}" for i in range(len(OTHERS))])
def test_outcome_when_it_is_no_error_of_a_code_then_tried_again_only_if_that_is_safe(outcome: Any, again: bool) -> None:
    clock = FakeClock()
    _, _, called = play(retrying(up_to(2).attempts, timed_by(clock)), [outcome, 7], clock)
    assert called == (2 if again else 1)


def test_test_of_the_callers_when_it_says_no_then_not_tried_again_and_it_can_never_say_more() -> None:
    clock = FakeClock()
    only_busy = while_transient_and(lambda o: isinstance(o, CallFailed) and o.code is Code.BUSY)
    made = retrying(only_busy, up_to(3).attempts, timed_by(clock))
    assert play(made, [busy(), NoDaemon("x")], clock)[2] == 2
    always = retrying(while_transient_and(lambda _: True), up_to(3).attempts, timed_by(clock))
    assert play(always, [error_of(Code.OUTCOME_UNKNOWN, effects="unknown")], clock)[2] == 1


def test_fall_back_when_everything_was_in_vain_then_answered_and_only_if_nothing_was_sent() -> None:
    clock = FakeClock()
    made = retrying(up_to(2).attempts, falling_back_to(None), timed_by(clock))
    assert play(made, [busy(), busy()], clock)[0] is None
    unknown = error_of(Code.OUTCOME_UNKNOWN, effects="unknown")
    assert play(made, [unknown], clock)[0] is unknown
    refused = error_of(Code.REFUSED, rule="x", register=None, field=None)
    assert play(made, [refused], clock)[0] is refused  # a mistake is not hidden

    def at_work() -> Any:
        check_key(calls.write("d.R", 1, key="key-0001"))
        return Result({"status": "in_progress", "ok": False, "effects": "unknown"})

    assert made(at_work).status == "in_progress"  # it may be happening


def test_effect_when_its_key_changes_between_attempts_then_refused_unsent() -> None:
    clock = FakeClock()
    sent = []

    def call() -> Any:
        made = calls.write("d.R", 1, key=new_key())
        check_key(made)  # as a client does before it sends
        sent.append(made)
        raise busy()

    with pytest.raises(FreshKeyInRetry, match="make each key once"):
        retrying(up_to(4).attempts, timed_by(clock))(call)
    assert len(sent) == 1


def test_effects_when_several_keep_their_keys_then_allowed_and_a_later_one_may_come_new() -> None:
    clock = FakeClock()
    attempts = iter([2, 1, 3])

    def call() -> Any:
        for number in range(next(attempts)):
            check_key(calls.write("d.R", number, key=f"key-000{number}"))
        raise busy()

    with pytest.raises(CallFailed):
        retrying(up_to(3).attempts, timed_by(clock))(call)


@pytest.mark.parametrize("call", [calls.run_start("n"), calls.approve(1, "c"), calls.reload()], ids=lambda c: c.method)
def test_change_without_a_key_when_inside_a_policy_then_refused_unsent(call: Any) -> None:
    with pytest.raises(FreshKeyInRetry, match="has no key"):
        retrying(up_to(2).attempts)(partial(check_key, call))
    check_key(call)  # outside of one it is the caller's matter


def test_policies_when_nested_then_the_outer_ones_keys_are_its_own() -> None:
    clock = FakeClock()
    inner = retrying(up_to(1).attempts, timed_by(clock))

    def outer() -> Any:
        check_key(calls.write("d.R", 1, key="outer-001"))
        inner(partial(check_key, calls.write("d.R", 1, key="inner-001")))
        raise busy()

    with pytest.raises(CallFailed):
        retrying(up_to(3).attempts, timed_by(clock))(outer)


def test_fall_back_when_an_effect_of_an_earlier_step_was_applied_then_it_does_not_hide_it() -> None:
    def call() -> Any:
        check_key(calls.write("d.R", 1, key="key-0001")).ended("applied")
        raise busy()

    with pytest.raises(CallFailed):
        retrying(up_to(1).attempts, falling_back_to("old"))(call)

    def refused_first() -> Any:
        check_key(calls.write("d.R", 1, key="key-0001")).ended("none")
        raise busy()

    assert retrying(up_to(1).attempts, falling_back_to("old"))(refused_first) == "old"


def test_key_when_fresh_in_each_call_of_an_inner_policy_then_the_outer_one_refuses_it() -> None:
    clock = FakeClock()
    inner = retrying(up_to(1).attempts, timed_by(clock))

    def once() -> Any:
        check_key(calls.write("d.R", 1, key=new_key()))
        raise busy()

    with pytest.raises(FreshKeyInRetry):
        retrying(up_to(3).attempts, timed_by(clock))(partial(inner, once))


def test_effects_when_they_come_in_another_order_then_allowed() -> None:
    orders = iter([(1, 2), (2, 1), (2, 1, 3)])

    def call() -> Any:
        for number in next(orders):
            check_key(calls.write("d.R", number, key=f"key-000{number}"))
        raise busy()

    with pytest.raises(CallFailed):
        retrying(up_to(3).attempts, timed_by(FakeClock()))(call)


def test_effect_when_it_ended_well_before_then_a_later_attempt_does_not_do_it_under_another_key() -> None:
    sent: list[str] = []

    def call() -> Any:
        key = new_key()
        check_key(calls.write("motor.STEP", 1, key=key)).ended("applied")
        sent.append(key)
        raise busy()  # what came after it

    with pytest.raises(FreshKeyInRetry):
        retrying(up_to(3).attempts, timed_by(FakeClock()))(call)
    assert len(sent) == 1


def test_task_of_an_attempt_when_another_one_was_begun_then_it_sends_nothing_any_more() -> None:
    async def whole() -> list[str]:
        told: list[str] = []
        go, again = asyncio.Event(), asyncio.Event()
        left: list[asyncio.Future[None]] = []

        async def late() -> None:
            for turn in (go, again):
                await turn.wait()
                try:
                    check_key(calls.write("d.R", 1, key="key-0001"))
                    told.append("sent")
                except FreshKeyInRetry as error:
                    told.append("given up" if "given up" in str(error) else "refused")

        async def call() -> None:
            if not left:
                left.append(asyncio.ensure_future(late()))
                raise busy(0)
            go.set()
            await asyncio.sleep(0.01)

        await wait_for(retrying(up_to(2).attempts), call)
        again.set()
        await left[0]
        return told

    assert asyncio.run(whole()) == ["given up", "given up"]


def test_task_of_the_last_attempt_when_the_policy_has_ended_then_it_is_free() -> None:
    async def whole() -> None:
        go, left = asyncio.Event(), []

        async def worker() -> None:
            await go.wait()
            for number in range(3):
                check_key(calls.write("d.R", number, key=new_key()))
            check_key(calls.run_start("n"))

        async def call() -> None:
            check_key(calls.write("d.R", 1, key="key-0001"))
            left.append(asyncio.ensure_future(worker()))

        await wait_for(retrying(up_to(2).attempts), call)
        go.set()
        await left[0]

    asyncio.run(whole())


def test_giving_up_of_an_inner_policy_when_the_outer_has_time_then_it_is_an_outcome_like_others() -> None:
    async def whole() -> None:
        inner = retrying(giving_up_after(ms(10)))
        outer = retrying(up_to(3).attempts, falling_back_to("old"))
        with pytest.raises(GaveUp):  # nothing that was to be retried: no fall-back
            await wait_for(outer, lambda: wait_for(inner, lambda: asyncio.sleep(60)))

    asyncio.run(whole())


def test_policy_when_it_is_given_a_coroutine_then_says_who_awaits() -> None:
    async def call() -> None:
        pass

    with pytest.raises(TypeError, match="wait_for"):
        retrying(up_to(2).attempts)(cast(Any, call))


OUTCOMES = st.one_of(
    st.sampled_from([None, 5, 250, 4000]).map(busy),
    st.sampled_from([NoDaemon("x"), NeverSent("x"), ConnectionLost("x")]),
    st.sampled_from([error_of(Code.HELD, device="d", by_op=1, since=0), error_of(Code.TIMEOUT, after_ms=1, stage="x")]),
    st.just(Result({"status": "in_progress", "ok": False, "effects": "unknown"})),
    st.integers(),
)


@settings(max_examples=300, deadline=None)
@given(
    outcomes=st.lists(OUTCOMES, min_size=12, max_size=12),
    attempts=st.one_of(st.none(), st.integers(1, 8)),
    first_ms=st.one_of(st.none(), st.integers(0, 3000)),
    factor=st.sampled_from([1.0, 1.5, 2.0, 10.0]),
    longest_ms=st.integers(0, 5000),
    give_up_ms=st.one_of(st.none(), st.integers(0, 20_000)),
    advised=st.booleans(),
    fall_back=st.booleans(),
    took_s=st.sampled_from([0.0, 0.3]),
    order=st.randoms(),
)
def test_dialects_when_they_say_the_same_then_same_results_and_same_waits(
    outcomes: list[Any],
    attempts: int | None,
    first_ms: int | None,
    factor: float,
    longest_ms: int,
    give_up_ms: int | None,
    advised: bool,
    fall_back: bool,
    took_s: float,
    order: Any,
) -> None:
    if attempts is None and give_up_ms is None:
        attempts = 8
    clocks = [FakeClock() for _ in range(3)]

    def spoken(clock: FakeClock) -> Policy:
        clauses: list[Clause] = [while_transient, timed_by(clock)]
        if attempts is not None:
            clauses.append(up_to(attempts).attempts)
        if first_ms is not None:
            clauses.append(backing_off(exponentially_from(ms(first_ms), factor=factor, longest=ms(longest_ms))))
        if give_up_ms is not None:
            clauses.append(giving_up_after(ms(give_up_ms)))
        clauses += [] if advised else [ignoring_server_advice]
        clauses += [falling_back_to("fallen back")] if fall_back else []
        order.shuffle(clauses)
        return retrying(*clauses)

    more: dict[str, Any] = {"fall_back": "fallen back"} if fall_back else {}
    terse = policy(
        attempts=attempts,
        first_ms=first_ms,
        factor=factor,
        longest_ms=longest_ms,
        give_up_ms=give_up_ms,
        advised=advised,
        clock=clocks[1],
        **more,
    )
    played = [
        play(spoken(clocks[0]), outcomes, clocks[0], took_s),
        play(terse, outcomes, clocks[1], took_s),
        play_async(spoken(clocks[2]), outcomes, clocks[2], took_s),
    ]
    said = [[repr(result), waits, called] for result, waits, called in played]
    if took_s == 0.0:
        assert said[0] == said[1] == said[2]
    assert said[0] == said[1]


def test_terse_when_applied_at_once_then_as_its_policy() -> None:
    clock = FakeClock()
    outcomes: list[Callable[[], Any]] = []
    assert retry(lambda: 7, attempts=2, clock=clock) == 7
    assert (clock.waits, outcomes) == ([], [])


def test_time_when_it_is_over_during_an_attempt_then_its_wait_is_cancelled() -> None:
    async def whole() -> tuple[str, list[str]]:
        ended: list[str] = []

        async def slow_read() -> str:
            try:
                await asyncio.sleep(60)
            except asyncio.CancelledError:
                ended.append("cancelled")
                raise
            return "new"

        with pytest.raises(GaveUp, match="goes on"):
            await wait_for(retrying(giving_up_after(ms(20))), slow_read)
        read = await wait_for(retrying(giving_up_after(ms(20)), falling_back_to("old")), slow_read)
        waiting = asyncio.ensure_future(wait_for(retrying(up_to(3).attempts), slow_read))
        await asyncio.sleep(0)
        waiting.cancel()
        with pytest.raises(asyncio.CancelledError):
            await waiting
        return read, ended

    assert asyncio.run(whole()) == ("old", ["cancelled"] * 3)


def test_time_out_of_the_call_itself_when_nothing_was_given_up_then_it_is_the_outcome() -> None:
    async def own() -> None:
        raise TimeoutError("mine")

    with pytest.raises(TimeoutError, match="mine"):
        asyncio.run(wait_for(retrying(giving_up_after(seconds(9))), own))


def test_time_when_it_is_over_during_an_effect_then_no_fall_back_hides_it() -> None:
    async def whole() -> None:
        async def call() -> None:
            check_key(calls.write("d.R", 1, key="key-0001"))
            await asyncio.sleep(60)

        with pytest.raises(GaveUp):
            await wait_for(retrying(giving_up_after(ms(20)), falling_back_to("old")), call)

    asyncio.run(whole())
