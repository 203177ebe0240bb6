"""Retries as pure schedules, and on the engine: only what may be repeated, and never more than the budget."""

from __future__ import annotations

import asyncio
from collections import Counter
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from hwtool.breaker import FAILURES
from hwtool.policy import Caller
from hwtool.retry import Backoff, Bucket, Fail, Never, RetrySafe, decide
from hwtool_contracts.errors import CATALOGUE, Code, DomainError
from hwtool_sim.faults import FaultKind
from tests.hwtool.conftest import KEY, KEY2, Lab, Play, code_of, effect, error_of, reg, toy_board, until

AGAIN = "read_attempts = 4"
PARTS = (reg("A", 0), reg("B", 1), reg("FIFO", 2, effect("pop"), "ro"))


# --- the schedule -------------------------------------------------------------------------------------------------

SCHEDULES: dict[str, tuple[Backoff, float, list[float]]] = {
    # policy, chance, delays
    "no retry": (Backoff(1), 1.0, []),
    "doubling": (Backoff(4, 0.01, 2.0, 0.5, 0.0), 1.0, [0.01, 0.02, 0.04]),
    "capped": (Backoff(5, 0.1, 3.0, 0.4, 0.0), 1.0, [0.1, 0.3, 0.4, 0.4]),
    "half the jitter": (Backoff(3, 0.01, 2.0, 0.5, 0.0), 0.5, [0.005, 0.01]),
    "floor": (Backoff(3, 0.01, 2.0, 0.5, 0.002), 0.0, [0.002, 0.002]),
}


@pytest.mark.parametrize(("policy", "chance", "delays"), SCHEDULES.values(), ids=list(SCHEDULES))
def test_delays_when_asked_for_then_exactly_these(policy: Backoff, chance: float, delays: list[float]) -> None:
    assert list(policy.delays(lambda: chance)) == pytest.approx(delays)


@given(st.integers(1, 20), st.floats(0.001, 1), st.floats(1, 4), st.floats(0.001, 10), st.floats(0, 1))
def test_delays_when_anything_is_asked_for_then_between_floor_and_cap_and_one_fewer_than_attempts(
    attempts: int, first_s: float, factor: float, longest_s: float, chance: float
) -> None:
    floor_s = min(0.0005, longest_s)
    delays = list(Backoff(attempts, first_s, factor, longest_s, floor_s).delays(lambda: chance))
    assert len(delays) == attempts - 1
    assert all(floor_s <= d <= max(longest_s, floor_s) for d in delays)


def test_bucket_when_emptied_then_nothing_until_time_brings_a_token_back() -> None:
    bucket = Bucket(capacity=2, per_s=0.5, tokens=2)
    assert [bucket.take(0.0) for _ in range(3)] == [True, True, False]
    assert [bucket.take(s) for s in (1.9, 2.0, 2.1, 100.0, 100.0, 100.0)] == [False, True, False, True, True, False]


@given(st.lists(st.floats(0, 5), max_size=200))
def test_bucket_when_asked_in_any_rhythm_then_never_more_than_capacity_and_what_came_back(gaps: list[float]) -> None:
    bucket, now_s, taken = Bucket(), 0.0, 0
    for gap in gaps:
        now_s += gap
        taken += bucket.take(now_s)
    assert taken <= bucket.capacity + now_s * bucket.per_s + 1e-6


def test_decide_when_any_error_then_only_transport_errors_are_retried() -> None:
    kinds = {}
    for code in Code:
        told: dict[str, Any] = {name: 5 if name.endswith("_ms") else "x" for name in CATALOGUE[code].fields}
        kinds[code] = type(decide(DomainError(code, "m", **told)))
    assert {c for c, k in kinds.items() if k is RetrySafe} == {Code.BUS_FAULT, Code.TIMEOUT, Code.UNAVAILABLE}
    assert {c for c, k in kinds.items() if k is Fail} == {Code.STORE_FAILED}
    assert {k for c, k in kinds.items()} == {RetrySafe, Fail, Never}


# --- on the engine ------------------------------------------------------------------------------------------------


def test_clean_read_when_the_board_allows_it_then_sent_again_until_it_answers(play: Play, tmp_path: Path) -> None:
    async def life(lab: Lab) -> None:
        lab.fault(FaultKind.NACK, access="read", offset=0, times=3)
        lab.chip().values["A"] = 5
        assert (await lab.ask("reg.read", registers=["toy.A"])).ok
        assert len(lab.sent()) == 4
        lab.fault(FaultKind.NACK, access="read", offset=0, times=4)
        assert code_of(await lab.ask("reg.read", registers=["toy.A"])) == "bus_fault"
        assert len(lab.sent()) == 8

    play(life, toy_board(tmp_path, *PARTS, bus=AGAIN))


def test_clean_read_when_its_reply_is_lost_then_sent_again_after_the_quarantine_and_not_before(
    play: Play, tmp_path: Path
) -> None:
    async def life(lab: Lab) -> None:
        at: list[float] = []
        real = lab.bus().perform

        def timed(transfer: Any) -> Any:
            at.append(lab.clock.mono)
            return real(transfer)

        lab.bus().perform = timed  # type: ignore[method-assign]
        lab.fault(FaultKind.REPLY_LOST, access="read", offset=0)
        assert (await lab.ask("reg.read", registers=["toy.A"])).ok
        assert len(at) == 2
        assert at[1] - at[0] >= 0.0999  # (a float's rounding aside) reply_lifetime_ms

    play(life, toy_board(tmp_path, *PARTS, bus=AGAIN))


def test_clean_read_when_the_board_says_nothing_then_never_sent_again(play: Play, tmp_path: Path) -> None:
    async def life(lab: Lab) -> None:
        lab.fault(FaultKind.NACK, access="read", offset=0)
        assert code_of(await lab.ask("reg.read", registers=["toy.A"])) == "bus_fault"
        assert len(lab.sent()) == 1

    play(life, toy_board(tmp_path, *PARTS))


@pytest.mark.parametrize("fault", [FaultKind.NACK, FaultKind.REPLY_LOST, FaultKind.REQUEST_LOST])
def test_effect_when_the_board_allows_reads_again_then_still_sent_once(
    play: Play, tmp_path: Path, fault: FaultKind
) -> None:
    async def life(lab: Lab) -> None:
        lab.chip().push("FIFO", b"abc")
        lab.fault(fault, access="read", offset=2, times=9)
        lab.fault(fault, access="write", offset=1, times=9)
        await lab.ask("reg.read_effectful", register="toy.FIFO", key=KEY)
        assert Counter(t["offset"] for t in lab.sent())["0x02"] == 1
        await lab.rules_ran()
        await lab.operator("op.settle", id=1, verdict="not_applied", reason="x")
        await lab.ask("reg.write", register="toy.B", value=1, key=KEY2)
        assert sum(t["do"] == "write" for t in lab.sent()) == 1

    play(life, toy_board(tmp_path, *PARTS, bus=AGAIN))


def test_preparation_when_its_read_fails_then_tried_again_before_the_one_write(play: Play, tmp_path: Path) -> None:
    async def life(lab: Lab) -> None:
        lab.fault(FaultKind.NACK, access="read", offset=0, times=2)
        assert (await lab.ask("reg.write", register="toy.A", value=5, key=KEY)).ok
        kinds = [t["do"] for t in lab.sent()]
        assert (kinds[:4], kinds.count("write")) == (["read", "read", "read", "write"], 1)

    play(life, toy_board(tmp_path, *PARTS, bus=AGAIN))


def test_storm_when_fifty_callers_read_from_a_dead_device_then_no_more_retries_than_the_budget(
    play: Play, tmp_path: Path
) -> None:
    async def life(lab: Lab) -> None:
        lab.fault(FaultKind.NACK, access="read", times=100_000)
        began_s = lab.clock.mono
        callers = [Caller(2000 + n, "agent", "s-", 0) for n in range(50)]
        told = await asyncio.gather(*(lab.ask("reg.read", c, registers=["toy.A"]) for c in callers))
        assert {code_of(t) for t in told} == {"bus_fault"}
        retries = len(lab.sent()) - len(callers)
        spent_s = lab.clock.mono - began_s
        assert 10 <= retries <= 10 + spent_s * 1 + 1
        lab.bus().faults.clear()
        lab.clock.advance(60)
        before = len(lab.sent())
        assert (await lab.ask("reg.read", registers=["toy.A"])).ok
        assert len(lab.sent()) - before == 1

    play(life, toy_board(tmp_path, *PARTS, bus=AGAIN))


def test_storm_when_fifty_callers_write_to_a_dead_bus_then_it_fails_fast_and_one_probe_finds_it_back(
    play: Play, tmp_path: Path
) -> None:
    async def life(lab: Lab) -> None:
        lab.bus().unplug()
        callers = [Caller(2000 + n, "agent", "s-", 0) for n in range(50)]
        asked = [lab.ask("reg.write", c, register="toy.A", value=1, key=KEY) for c in callers]
        told = await asyncio.gather(*asked)
        assert {code_of(t) for t in told} == {"unavailable"}
        assert all(error_of(t)["retry_after_ms"] > 0 for t in told)
        assert lab.bus().transfers <= 5
        lab.bus().plug()
        lab.clock.advance(60)
        before = lab.bus().transfers
        assert (await lab.ask("reg.write", callers[0], register="toy.A", value=1, key=KEY)).ok
        assert lab.bus().transfers - before == 3  # look, write, look: the probe is the request itself

    play(life, toy_board(tmp_path, *PARTS))


# --- waiting in the queue -----------------------------------------------------------------------------------------


async def open_the_breaker(lab: Lab) -> None:
    lab.fault(FaultKind.REPLY_LOST, access="read", times=5)
    for _ in range(5):
        await lab.ask("reg.read", registers=["toy.B"])
        await lab.device().worker.settled()
    assert lab.device().worker.breaker.open


def test_breaker_when_a_caller_asks_to_wait_then_its_request_runs_when_the_bus_is_back(
    play: Play, tmp_path: Path
) -> None:
    async def life(lab: Lab) -> None:
        await open_the_breaker(lab)
        assert code_of(await lab.ask("reg.write", register="toy.A", value=1, key=KEY)) == "unavailable"
        assert (await lab.ask("reg.write", register="toy.A", value=1, key=KEY, queue_ms=60_000)).ok
        assert lab.writes("A") == 1

    play(life, toy_board(tmp_path, *PARTS))


def test_breaker_when_the_wait_is_too_short_or_ends_with_not_after_then_not_sent(play: Play, tmp_path: Path) -> None:
    async def life(lab: Lab) -> None:
        await open_the_breaker(lab)
        short = await lab.ask("reg.write", register="toy.A", value=1, key=KEY, queue_ms=5)
        assert code_of(short) == "unavailable"
        not_after = lab.clock.wall // 1_000_000 + 20
        late = await lab.ask("reg.write", register="toy.A", value=1, key=KEY, queue_ms=60_000, not_after=not_after)
        assert code_of(late) in ("unavailable", "expired")
        assert lab.clock.wall // 1_000_000 <= not_after + 5
        assert (lab.writes("A"), await lab.rows()) == (0, [])

    play(life, toy_board(tmp_path, *PARTS))


def test_breaker_when_a_sequence_asks_to_wait_then_its_time_is_counted_once(play: Play, tmp_path: Path) -> None:
    async def life(lab: Lab) -> None:
        worker = lab.device().worker
        worker.breaker.failures, worker.breaker.pause_s = FAILURES, 30.0
        worker.breaker.until_s = lab.clock.monotonic_s() + 30.0
        since_s = lab.clock.monotonic_s()
        await lab.device().lock.acquire()
        steps = [{"do": "write", "register": "toy.A", "value": 1}]
        told = await lab.ask("sequence.run", steps=steps, key=KEY, queue_ms=300)
        assert (code_of(told), error_of(told)["by"]) == ("busy", "device")
        assert "within 0 ms" in error_of(told)["message"]  # all of it went on the breaker
        assert round(lab.clock.monotonic_s() - since_s, 3) == 0.3
        lab.device().lock.release()

    play(life, toy_board(tmp_path, *PARTS))


def test_queue_when_one_caller_fills_its_half_then_others_still_get_in(play: Play, tmp_path: Path) -> None:
    async def life(lab: Lab) -> None:
        await lab.device().lock.acquire()
        greedy = [
            asyncio.create_task(lab.ask("reg.write", register="toy.A", value=1, key=f"key-greedy-{n}"))
            for n in range(40)
        ]
        await until(lambda: lab.device().waiting == 32 and sum(t.done() for t in greedy) == 8)
        busy = [t.result() for t in greedy if t.done()]
        assert {error_of(b)["by"] for b in busy} == {"queue"}
        modest = asyncio.create_task(
            lab.ask("reg.write", Caller(1001, "agent", "m-", 0), register="toy.A", value=2, key=KEY)
        )
        await until(lambda: lab.device().waiting == 33)
        lab.device().lock.release()
        assert (await modest).ok
        await asyncio.gather(*greedy)
        assert (lab.writes("A"), lab.device().waiting, lab.device().callers) == (33, 0, Counter())

    play(life, toy_board(tmp_path, *PARTS))
