"""Both Python clients against a peer that answers wrongly, late, half or not at all; and out of their own process."""

from __future__ import annotations

import asyncio
import itertools
import json
import os
import socket
import threading
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import pytest

import hwtool
from hwtool import aio
from hwtool.attempts import FreshKeyInRetry
from hwtool.failures import CallFailed, Refused, RunFailed
from hwtool.losses import Closed, ConnectionLost, NeverSent, NoReply
from hwtool.replies import Result
from hwtool.retrying import retrying, up_to
from hwtool_contracts.errors import Code, DomainError
from tests.bench import Bench, come_about
from tests.running import LIMIT_S

KEY = "broken-0001"
Answer = Callable[[dict[str, Any]], bytes]


def reply(request: dict[str, Any], **members: Any) -> bytes:
    """A result of that request."""
    result = {"status": "done", "ok": True, "effects": "none", **members}
    return json.dumps({"jsonrpc": "2.0", "id": request["id"], "result": result}).encode() + b"\n"


def not_found(request: dict[str, Any]) -> bytes:
    error = DomainError(Code.NOT_FOUND, "no operation", searched=KEY, suggestions=[])
    return reply(request, status="failed", ok=False, error=error.as_object())


@contextmanager
def peer(directory: Path, *answers: Answer) -> Iterator[list[dict[str, Any]]]:
    """Answers each request with the next of these; every connection is served until it ends. Yields the requests."""
    taken: list[dict[str, Any]] = []
    rest = list(answers)

    numbers = itertools.count()

    def serve(it: socket.socket) -> None:
        number = next(numbers)
        with it, it.makefile("rb") as lines:
            for line in lines:
                taken.append({**json.loads(line), "connection": number})
                it.sendall(rest.pop(0)(taken[-1]))

    def accept() -> None:
        while True:
            try:
                it, _ = listening.accept()
            except OSError:
                return
            threading.Thread(target=serve, args=(it,), daemon=True).start()

    with socket.socket(socket.AF_UNIX) as listening:
        listening.bind(str(directory / "agent.sock"))
        listening.listen()
        threading.Thread(target=accept, daemon=True).start()
        yield taken
        listening.shutdown(socket.SHUT_RDWR)


def blocking(directory: Path, timeout_s: float = LIMIT_S) -> Any:
    with hwtool.Client(directory, timeout_s=timeout_s) as hw:
        return hw.write("d.R", 1, key=KEY)


def awaiting(directory: Path, timeout_s: float = LIMIT_S) -> Any:
    async def whole() -> Any:
        async with aio.Client(directory, timeout_s=timeout_s) as hw:
            return await hw.write("d.R", 1, key=KEY)

    return asyncio.run(whole())


both = pytest.mark.parametrize("write", [blocking, awaiting], ids=["client", "aio"])
NONSENSE: list[tuple[str, Answer]] = [
    ("no JSON", lambda _: b"segmentation fault\n"),
    ("an error of nobody", lambda _: b'{"jsonrpc":"2.0","id":null,"error":{"code":-32700,"message":"not JSON"}}\n'),
    ("the answer to another key", lambda r: reply(r, key="other-0001", effects="applied", verdict="applied")),
]


@both
@pytest.mark.parametrize("answer", [a for _, a in NONSENSE], ids=[n for n, _ in NONSENSE])
def test_answer_when_it_is_not_of_this_call_then_the_record_is_asked_and_nothing_is_sent_again(
    tmp_path: Path, write: Callable[[Path], Any], answer: Answer
) -> None:
    with peer(tmp_path, answer, lambda r: reply(r, key=KEY, verdict="applied", effects="applied")) as taken:
        assert write(tmp_path).verdict == "applied"
    assert [t["method"] for t in taken] == ["reg.write", "op.get"]
    assert taken[1]["params"]["request"]["params"] == {"register": "d.R", "value": 1}
    assert taken[0]["connection"] != taken[1]["connection"] or b"result" in answer(taken[0])


@both
def test_record_when_there_is_none_then_never_sent(tmp_path: Path, write: Callable[[Path], Any]) -> None:
    with peer(tmp_path, lambda _: b"nonsense\n", not_found) as taken, pytest.raises(NeverSent):
        write(tmp_path)
    assert len(taken) == 2


def test_reply_when_it_comes_after_the_caller_gave_up_then_nobody_takes_it_for_his(tmp_path: Path) -> None:
    late: list[dict[str, Any]] = []

    def keeps(request: dict[str, Any]) -> bytes:
        late.append(request)
        return b""

    def both_now(request: dict[str, Any]) -> bytes:
        return reply(late[0], summary="late") + reply(request, summary="mine")

    with peer(tmp_path, keeps, both_now), hwtool.Client(tmp_path, timeout_s=0.2) as hw:
        with pytest.raises(NoReply):
            hw.ask("device.list")
        assert hw.ask("device.list")["summary"] == "mine"
        assert hw._connection is not None
        assert hw._connection._session.replies == {}  # nor is it kept for ever

    async def whole() -> None:
        async with aio.Client(tmp_path, timeout_s=0.2) as hw:
            with pytest.raises(NoReply):
                await hw.ask("device.list")
            assert (await hw.ask("device.list"))["summary"] == "mine"

    late.clear()
    (tmp_path / "agent.sock").unlink()
    with peer(tmp_path, keeps, both_now):
        asyncio.run(whole())


def test_value_when_json_has_no_word_for_it_then_an_error_and_nothing_is_sent(tmp_path: Path) -> None:
    with peer(tmp_path, reply) as taken, hwtool.Client(tmp_path) as hw:
        for wrong in (float("nan"), "\ud800"):
            with pytest.raises(ValueError):  # the words are of json
                hw.ask("reg.find", {"query": wrong})
        assert hw.ask("device.list")["ok"]
    assert len(taken) == 1


def test_fork_when_it_uses_its_parents_client_then_over_a_connection_of_its_own(bench: Bench) -> None:
    with bench.daemon.hw() as hw:
        hw.read("uart.RXLVL")
        child = os.fork()
        if child == 0:
            good = False
            try:
                good = all(hw.read("gpio.OLATA").value.raw == "0x00" for _ in range(20))
            finally:
                os._exit(0 if good else 1)
        assert all(hw.read("uart.RXLVL").value.raw == "0x05" for _ in range(20))
        assert os.waitpid(child, 0)[1] == 0


def test_client_when_closed_then_it_does_not_come_back_by_itself(bench: Bench) -> None:
    hw = bench.daemon.hw()
    hw.close()
    with pytest.raises(ValueError, match="closed"):
        hw.devices()

    async def whole() -> None:
        async with aio.Client(bench.daemon.sockets) as mine:
            await mine.devices()
        with pytest.raises(ValueError, match="closed"):
            await mine.devices()

    asyncio.run(whole())


def test_run_when_open_in_one_client_then_no_other_ones_calls_belong_to_it(bench: Bench) -> None:
    with bench.daemon.hw() as hw, bench.daemon.hw() as other:
        with hw.run("mine"):
            hw.write("gpio.OLATA", 1, key="run-mine-01")
            bench.fault("nack", access="write")
            with pytest.raises(CallFailed):
                other.write("gpio.OLATA", 2, key="run-other-01")  # it would fail the run
        bench.fault("nack", access="write")
        with pytest.raises(RunFailed), hw.run("mine"), pytest.raises(CallFailed):
            hw.write("gpio.OLATA", 2, key="run-mine-02")


def test_asyncio_when_closed_while_a_call_connects_or_waits_then_it_is_not_sent_later_and_says_what_is_known(
    bench: Bench,
) -> None:
    async def whole() -> None:
        hw = aio.Client(bench.daemon.sockets)
        early = asyncio.create_task(hw.write("gpio.OLATA", 1, key=KEY))
        await asyncio.sleep(0)
        await hw.close()
        with pytest.raises(Closed):
            await early
        bench.fault("hang", access="write", hang_s=0.6)
        async with aio.Client(bench.daemon.sockets) as other:
            late = asyncio.create_task(other.write("gpio.OLATA", 2, key="broken-0002"))
            await asyncio.to_thread(come_about, lambda: bench.executed("OLATA.write"))
        with pytest.raises(ConnectionLost, match="op_get"):
            await late

    asyncio.run(whole())
    with bench.daemon.hw() as hw:
        with pytest.raises(CallFailed, match="never sent"):
            hw.op_get(key=KEY)
        assert hw.op_wait(key="broken-0002").verdict == "applied"


def test_runs_when_left_in_the_order_of_entering_then_neither_stays_open(bench: Bench) -> None:
    with bench.daemon.hw() as hw:
        first, second = hw.run("first"), hw.run("second")
        first.__enter__()
        second.__enter__()
        first.__exit__(None, None, None)
        hw.write("gpio.OLATA", 1, key=KEY)  # of the second
        second.__exit__(None, None, None)
        hw.write("gpio.OLATA", 2, key="broken-0002")  # of none: else refused, the run was finished


def test_run_when_left_in_another_task_then_it_ends_all_the_same(bench: Bench) -> None:
    async def whole() -> None:
        async with aio.Client(bench.daemon.sockets) as hw:
            run = hw.run("carried")
            begun = await asyncio.create_task(run.__aenter__())
            await asyncio.create_task(run.__aexit__(None, None, None))
            with pytest.raises(CallFailed, match="finished"):
                await hw.run_finish(begun["id"])

    asyncio.run(whole())


@pytest.mark.parametrize("kind", ["run", "lease"])
def test_error_when_the_end_of_a_run_or_lease_fails_too_then_the_first_one_is_told(bench: Bench, kind: str) -> None:
    with bench.daemon.hw() as hw:
        around: Any = hw.run("mine") if kind == "run" else hw.lease("gpio", ttl_ms=60_000)
        with pytest.raises(Refused, match="clean read") as left, around:
            try:
                hw.read("uart.RHR")
            finally:
                bench.daemon.stop()
    assert "could not be" in left.value.__notes__[0]
    bench.daemon.start()


def test_asyncio_when_the_client_outlives_its_event_loop_then_it_connects_in_the_next_one(bench: Bench) -> None:
    hw = aio.Client(bench.daemon.sockets)

    async def several() -> list[int]:
        return [int(r.value) for r in await asyncio.gather(*(hw.read("uart.RXLVL") for _ in range(5)))]

    for _ in range(2):
        assert asyncio.run(several()) == [5] * 5
    asyncio.run(hw.close())


def test_asyncio_when_a_subscription_was_left_then_its_events_end(bench: Bench) -> None:
    async def whole() -> None:
        async with aio.Client(bench.daemon.sockets) as hw:
            async with hw.subscribe("gpio.OLATA", interval_ms=20) as events:
                await anext(events)
            for _ in range(2):
                with pytest.raises((ConnectionLost, StopAsyncIteration)):
                    async with asyncio.timeout(LIMIT_S):
                        while True:
                            await anext(events)

    asyncio.run(whole())


def test_raw_ask_when_inside_a_policy_then_its_key_is_kept_too(bench: Bench) -> None:
    with bench.daemon.hw() as hw:

        def call() -> None:
            hw.ask("reg.write", {"register": "gpio.OLATA", "value": 1, "key": hw.new_key()})
            raise NeverSent("x")

        with pytest.raises(FreshKeyInRetry):
            retrying(up_to(3).attempts)(call)
    come_about(lambda: bench.executed("OLATA.write") == 1)


def test_result_when_pickled_or_hashed_then_as_an_equal_one() -> None:
    import pickle

    one = Result({"status": "done", "ok": True, "effects": "none", "values": [{"register": "d.R", "raw": "0x1"}]})
    same = Result({"ok": True, "values": [{"raw": "0x1", "register": "d.R"}], "effects": "none", "status": "done"})
    assert pickle.loads(pickle.dumps(one)) == one == same
    assert len({one, same}) == 1
