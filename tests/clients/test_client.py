"""The Python clients against a daemon: results, failures, losses, restarts, runs, leases and events."""

from __future__ import annotations

import asyncio
import errno
import threading
from collections.abc import Callable
from typing import Any

import pytest

import hwtool
from hwtool import aio, calls
from hwtool.failures import Held, KeyConflict, Refused, RunFailed
from hwtool.losses import ConnectionLost, NeverSent, NoDaemon, NoReply, unreached
from hwtool.replies import Device
from hwtool.retrying import giving_up_after, retrying, seconds, up_to
from tests.bench import Bench, come_about

KEY = "client-0001"


def test_client_when_used_as_the_readme_says_then_typed_results(bench: Bench) -> None:
    with bench.daemon.hw() as hw:
        assert hw.read("uart.RXLVL").value.raw == "0x05"
        done = hw.update("gpio.OLATA", {"P6": "high"}, key=hw.new_key())
        assert (done.effects, done.verdict, done.value["P6"].name) == ("applied", "applied", "high")
        both = hw.read("gpio.OLATA", "gpio.OLATB")
        assert [int(v) for v in both] == [0x40, 0]
        assert (int(both["gpio.OLATA"]), both["gpio.OLATB"].raw) == (0x40, "0x00")
        assert [type(d) for d in hw.devices()] == [Device, Device]
        assert {d.name: d.held for d in hw.devices()} == {"gpio": None, "uart": None}
        assert hw.find("level").entries[0]["register"].startswith("uart.")
        (access,) = hw.plan(calls.write("gpio.OLATA", 0x41, key=KEY))
        assert (access["do"], access["data"]) == ("write", "41")
        assert hw.op_get(key=str(done.key)).json["op"]["state"] == "DONE"
        assert "hwtool_" in hw.metrics()
        assert hw.describe("agents")["text"].startswith("# hwtool for agents")
        assert hw.new_key().startswith(hw.describe()["key_prefix"])


def test_client_when_a_read_has_effects_then_refused_with_the_rule(bench: Bench) -> None:
    with bench.daemon.hw() as hw:
        with pytest.raises(Refused) as refused:
            hw.read("uart.RHR")
        assert (refused.value.error["rule"], refused.value.retry, refused.value.effects) == (
            "read_has_side_effects",
            "after_fix",
            "none",
        )


def test_client_when_the_daemon_restarts_between_two_calls_then_the_next_one_works(bench: Bench) -> None:
    with bench.daemon.hw() as hw:
        assert hw.write("gpio.OLATA", 1, key="before-001").verdict == "applied"
        prefix = hw.new_key()[:8]
        bench.daemon.stop()
        bench.daemon.start()
        assert hw.write("gpio.OLATA", 2, key="after-0001").verdict == "applied"
        assert hw.write("gpio.OLATA", 2, key="after-0001").replayed
        assert hw.read("gpio.OLATA").value.raw == "0x02"
        assert not hw.new_key().startswith(prefix)
    assert bench.executed("OLATA.write") == 2


def test_client_when_the_daemon_is_killed_under_a_call_and_comes_back_then_the_record_answers(bench: Bench) -> None:
    bench.fault("hang", access="write", hang_s=1.5)
    with bench.daemon.hw() as hw:
        came: list[Any] = []
        caller = threading.Thread(target=lambda: came.append(_outcome(lambda: hw.write("gpio.OLATA", 0x55, key=KEY))))
        caller.start()
        come_about(lambda: bench.executed("OLATA.write"))
        bench.daemon.kill()
        bench.sim.ask({"control": "clear_faults"})
        bench.daemon.start()
        caller.join(30)
    # settled by rule: the register holds what was wanted, and that this dispatch did it is not claimed
    assert (came[0].verdict, came[0].effects, bench.executed("OLATA.write")) == ("applied", "unknown", 1)


def _outcome(call: Callable[[], Any]) -> Any:
    try:
        return call()
    except Exception as error:  # noqa: BLE001  # what came of it
        return error


def test_client_when_the_daemon_dies_before_it_took_the_request_then_never_sent(bench: Bench) -> None:
    with bench.daemon.hw() as hw:
        hw.describe()
        assert bench.daemon.process is not None
        bench.daemon.process.send_signal(19)  # SIGSTOP: the request stays in the socket
        came: list[Any] = []
        caller = threading.Thread(target=lambda: came.append(_outcome(lambda: hw.write("gpio.OLATA", 3, key=KEY))))
        caller.start()
        caller.join(0.2)
        bench.daemon.kill()
        bench.daemon.start()
        caller.join(30)
        assert isinstance(came[0], NeverSent), came
        assert "may be made again" in str(came[0])
        assert bench.executed("OLATA.write") == 0
        again = retrying(up_to(2).attempts)(lambda: hw.write("gpio.OLATA", 3, key=KEY))
        assert (again.verdict, again.replayed, bench.executed("OLATA.write")) == ("applied", False, 1)


def test_client_when_the_key_is_of_another_request_then_a_lost_reply_is_not_taken_for_its_own(bench: Bench) -> None:
    with bench.daemon.hw() as hw:
        hw.write("gpio.OLATA", 1, key=KEY)
        bench.daemon.process.send_signal(19)  # type: ignore[union-attr]
        came: list[Any] = []
        caller = threading.Thread(target=lambda: came.append(_outcome(lambda: hw.write("gpio.OLATA", 2, key=KEY))))
        caller.start()
        caller.join(0.2)
        bench.daemon.kill()
        bench.daemon.start()
        caller.join(30)
    assert isinstance(came[0], KeyConflict), came
    assert came[0].error["differs"] == ("targets[0].value",)
    assert bench.executed("OLATA.write") == 1


def test_client_when_it_may_not_connect_then_the_groups_are_named() -> None:
    told = unreached("/run/hwtool/agent.sock", PermissionError(errno.EACCES, "Permission denied"))
    assert str(told).startswith("this user may not connect to /run/hwtool/agent.sock: Permission denied; in the system")


def test_client_when_nobody_listens_then_no_daemon(bench: Bench) -> None:
    with bench.daemon.hw() as hw:
        bench.daemon.stop()
        with pytest.raises(NoDaemon, match="start one with hwtool serve"):
            hw.read("gpio.OLATA")
        with pytest.raises(NoDaemon):
            bench.daemon.hw()
        bench.daemon.start()
        assert hw.read("gpio.OLATA").ok


def test_client_when_no_reply_comes_in_time_then_it_goes_on_and_the_connection_too(bench: Bench) -> None:
    bench.fault("hang", access="write", hang_s=1.0)
    with hwtool.Client(bench.daemon.sockets, timeout_s=0.3) as hw:
        with pytest.raises(NoReply, match="goes on"):
            hw.write("gpio.OLATA", 0x55, key=KEY)
        come_about(lambda: hw.op_get(key=KEY).status == "done")
        assert hw.write("gpio.OLATA", 0x55, key=KEY).replayed
    assert bench.executed("OLATA.write") == 1


def test_client_when_a_policy_wraps_its_calls_then_in_progress_is_waited_for_under_the_key(bench: Bench) -> None:
    bench.fault("hang", access="write", hang_s=0.6)
    with bench.daemon.hw() as hw:
        patiently = retrying(up_to(50).attempts, giving_up_after(seconds(20)))
        done = patiently(lambda: hw.write("gpio.OLATA", 7, key=KEY, deadline_ms=100))
        assert (done.verdict, bench.executed("OLATA.write")) == ("applied", 1)


def test_run_when_everything_goes_well_then_succeeded_and_its_calls_belong_to_it(bench: Bench) -> None:
    with bench.daemon.hw() as hw:
        with hw.run("bring-up") as run:
            hw.write("gpio.OLATA", 1, key=KEY)
            hw.read("gpio.OLATA")
        with pytest.raises(Refused, match="finished"):
            hw.run_finish(run["id"])
        assert hw.op_get(key=KEY).ok
        entries = hw.journal().entries
        ended = [e["run"] for e in entries if e["what"] == "run_finished"]
        assert ended == [run["id"]]


def test_run_when_a_step_fails_inside_then_it_ends_failed_and_says_so(bench: Bench) -> None:
    bench.fault("nack", access="write")
    with bench.daemon.hw() as hw:
        with pytest.raises(hwtool.CallFailed) as failed, hw.run("bring-up"):
            hw.write("gpio.OLATA", 1, key=KEY)
        assert "run 1 (bring-up) failed" in failed.value.__notes__[0]


def test_run_when_an_error_was_swallowed_then_leaving_it_raises(bench: Bench) -> None:
    bench.fault("nack", access="write")
    with bench.daemon.hw() as hw, pytest.raises(RunFailed, match="failed") as left, hw.run("bring-up"):
        _outcome(lambda: hw.write("gpio.OLATA", 1, key=KEY))
    assert left.value.run["status"] == "failed"


def test_run_when_left_by_an_error_of_the_callers_own_then_unfinished_and_never_succeeded(bench: Bench) -> None:
    with bench.daemon.hw() as hw:
        with pytest.raises(ZeroDivisionError) as left, hw.run("bring-up"):
            hw.write("gpio.OLATA", 1 // 0, key=KEY)
        assert left.value.__notes__ == ["run 1 (bring-up) is left unfinished"]
        assert hw.run_finish(1)["status"] == "succeeded"  # it was still open


def test_lease_when_held_then_given_back_also_after_an_error(bench: Bench) -> None:
    with bench.daemon.hw() as hw:
        with pytest.raises(ZeroDivisionError), hw.lease("gpio", ttl_ms=60_000):
            (lease,) = [d.json["lease"] for d in hw.devices() if d.name == "gpio"]
            assert lease["rest_ms"] > 0
            raise ZeroDivisionError
        assert [d.json["lease"] for d in hw.devices()] == [None, None]


def test_events_when_subscribed_then_iterated_as_frozen_objects_and_calls_go_on_beside(bench: Bench) -> None:
    with bench.daemon.hw() as hw, hw.subscribe("gpio.OLATA", interval_ms=20, kinds=["op"]) as events:
        assert next(events).values[0].raw == "0x00"
        hw.write("gpio.OLATA", 9, key=KEY)
        told = [next(events) for _ in range(3)]
        assert {e.kind for e in told} == {"op", "value"}
        assert [int(e.values[0]) for e in told if e.kind == "value"] == [9]
        bench.daemon.stop()
        with pytest.raises(ConnectionLost):
            list(events)
        bench.daemon.start()


def test_operator_when_a_device_is_held_then_settled_and_released_from_python(bench: Bench) -> None:
    with bench.daemon.hw("operator") as person, bench.daemon.hw() as hw:
        person.hold("gpio", "looking at it")
        with pytest.raises(Held) as held:
            hw.write("gpio.OLATA", 1, key=KEY)
        assert "looking at it" in str(held.value)
        person.release("gpio", "done")
        assert hw.write("gpio.OLATA", 1, key=KEY).verdict == "applied"
        with pytest.raises(hwtool.CallFailed, match="operators"):
            hw.hold("gpio", "me too")


def test_asyncio_when_many_calls_share_a_connection_then_each_gets_its_own_answer(bench: Bench) -> None:
    async def whole() -> None:
        async with aio.Client(bench.daemon.sockets) as hw:
            writes = [hw.write("gpio.OLATA", n, key=f"aio-{n:05}") for n in range(20)]
            done = await asyncio.gather(*writes)
            assert [d.value.raw for d in done] == [f"{n:#04x}" for n in range(20)]
            assert (await hw.new_key()).startswith((await hw.describe())["key_prefix"])
            with pytest.raises(Refused):
                await hw.read("uart.RHR")

    asyncio.run(whole())
    assert bench.executed("OLATA.write") == 20


def test_asyncio_when_a_task_is_cancelled_then_what_it_asked_for_goes_on(bench: Bench) -> None:
    bench.fault("hang", access="write", hang_s=0.6)

    async def whole() -> None:
        async with aio.Client(bench.daemon.sockets, timeout_s=20) as hw:
            task = asyncio.create_task(hw.write("gpio.OLATA", 0x55, key=KEY))
            await asyncio.to_thread(come_about, lambda: bench.executed("OLATA.write"))
            task.cancel()
            with pytest.raises(asyncio.CancelledError):
                await task
            assert (await hw.write("gpio.OLATA", 0x55, key=KEY)).verdict == "applied"

    asyncio.run(whole())
    assert bench.executed("OLATA.write") == 1


def test_asyncio_when_the_daemon_restarts_and_events_are_followed_then_as_the_blocking_client(bench: Bench) -> None:
    async def whole() -> None:
        async with aio.Client(bench.daemon.sockets) as hw:
            async with hw.run("bring-up"):
                assert (await hw.write("gpio.OLATA", 1, key="before-001")).verdict == "applied"
            await asyncio.to_thread(bench.daemon.stop)
            with pytest.raises(NoDaemon):
                await hw.read("gpio.OLATA")
            await asyncio.to_thread(bench.daemon.start)
            assert (await hw.write("gpio.OLATA", 2, key="after-0001")).verdict == "applied"
            async with hw.lease("gpio", ttl_ms=1000), hw.subscribe("gpio.OLATA", interval_ms=20) as events:
                assert int((await anext(events)).values[0]) == 2
                await hw.write("gpio.OLATA", 3, key="after-0002")
                assert int((await anext(events)).values[0]) == 3
                with pytest.raises(ConnectionLost):
                    await asyncio.to_thread(bench.daemon.stop)
                    async for _ in events:
                        pass
                await asyncio.to_thread(bench.daemon.start)
            with pytest.raises(RunFailed):
                async with hw.run("swallowing"):
                    bench.fault("nack", access="write")
                    with pytest.raises(hwtool.CallFailed):
                        await hw.write("gpio.OLATA", 4, key="nacked-001")

    asyncio.run(whole())
