"""Events: changes of clean registers polled once for all, thresholds, and what the journal records. On the engine."""

from __future__ import annotations

import asyncio
from pathlib import Path
from typing import Any

from hwtool.policy import Caller
from hwtool_contracts.messages import Result
from hwtool_sim.faults import FaultKind
from tests.hwtool.conftest import AGENT, KEY, KEY2, OTHER, Lab, Play, code_of, effect, error_of, reg, toy_board
from tests.hwtool.test_permission import board, rule

PARTS = (
    reg("A", 0),
    reg("T", 1, "scale = '0.5'\nunit = 'degC'\nvolatile = true"),
    reg("FIFO", 2, effect("pop"), "ro"),
    reg("SLOW", 3, "may_block = true"),
)


class Ears:
    """Somebody who is connected."""

    def __init__(self, lab: Lab, caller: Caller = AGENT) -> None:
        self.lab = lab
        self.caller = caller
        self.heard: list[dict[str, Any]] = []

    async def subscribe(self, **params: Any) -> Result:
        told = (self, self.heard.append)
        return await self.lab.engine.call(self.caller, "events.subscribe", params, told)

    def raws(self) -> list[str]:
        return [v["raw"] for event in self.heard for v in event.get("values", [])]


async def pass_time(lab: Lab, seconds: float) -> None:
    """Let time go on in small steps, and everybody do what is due."""
    for _ in range(round(seconds / 0.05)):
        lab.clock.advance(0.05)
        for _ in range(20):
            await asyncio.sleep(0)


async def settle(lab: Lab) -> None:
    """Let what the journal has recorded be told."""
    for _ in range(50):
        await lab.daemon.ask(lambda conn: None)
        await asyncio.sleep(0)


def test_registers_when_they_change_then_told_once_each_and_only_then(play: Play, tmp_path: Path) -> None:
    async def life(lab: Lab) -> None:
        lab.clock.held = True
        ears = Ears(lab)
        subscribed = await ears.subscribe(registers=["toy.A", "toy.T"], interval_ms=100)
        assert (subscribed.ok, subscribed.subscription) == (True, 1)
        await pass_time(lab, 0.3)
        assert ears.raws() == ["0x00", "0x00"]  # what they are, once
        lab.chip().values["A"] = 5
        await pass_time(lab, 0.3)
        assert ears.raws()[2:] == ["0x05"]
        assert {e["kind"] for e in ears.heard} == {"value"}
        assert ears.heard[0]["subscription"] == 1

    play(life, toy_board(tmp_path, *PARTS))


def test_registers_when_many_want_them_then_read_once_at_the_shortest_interval(play: Play, tmp_path: Path) -> None:
    async def life(lab: Lab) -> None:
        lab.clock.held = True
        crowd = [Ears(lab) for _ in range(10)]
        for index, ears in enumerate(crowd):
            await ears.subscribe(registers=["toy.A"], interval_ms=100 if index == 0 else 1000)
        await pass_time(lab, 2.0)
        assert 18 <= lab.reads("A") <= 22  # the fast one's; the slow ones cost none beyond them
        lab.chip().values["A"] = 9
        await pass_time(lab, 0.2)
        assert len(crowd[0].heard) == 2
        await pass_time(lab, 1.2)
        assert [e.raws() for e in crowd] == [["0x00", "0x09"]] * 10

    play(life, toy_board(tmp_path, *PARTS))


def test_registers_when_nobody_is_left_who_wants_them_then_not_read_any_more(play: Play, tmp_path: Path) -> None:
    async def life(lab: Lab) -> None:
        lab.clock.held = True
        ears = Ears(lab)
        await ears.subscribe(registers=["toy.A"], interval_ms=100)
        await pass_time(lab, 0.5)
        lab.engine.events.drop(ears)
        await pass_time(lab, 0.2)
        reads = lab.reads("A")
        await pass_time(lab, 1.0)
        assert lab.reads("A") == reads

    play(life, toy_board(tmp_path, *PARTS))


def test_when_a_threshold_is_passed_then_told_at_that_moment_and_again_only_after_it_was_back(
    play: Play, tmp_path: Path
) -> None:
    async def life(lab: Lab) -> None:
        lab.clock.held = True
        ears = Ears(lab)
        await ears.subscribe(interval_ms=100, when={"register": "toy.T", "above": 20})
        for raw in (0x28, 0x29, 0x2A, 0x10, 0x30):  # 20, 20.5, 21, 8, 24 degC
            lab.chip().values["T"] = raw
            await pass_time(lab, 0.3)
        assert (ears.raws(), [e["kind"] for e in ears.heard]) == (["0x29", "0x30"], ["when", "when"])

    play(life, toy_board(tmp_path, *PARTS))


def test_when_below_and_changed_then_each_in_its_way(play: Play, tmp_path: Path) -> None:
    async def life(lab: Lab) -> None:
        lab.clock.held = True
        below, changed = Ears(lab), Ears(lab)
        lab.chip().values["A"] = 9
        await below.subscribe(interval_ms=100, when={"register": "toy.A", "below": 5})
        await changed.subscribe(interval_ms=100, when={"register": "toy.A", "changed": True})
        await pass_time(lab, 0.3)
        for raw in (7, 4, 3):
            lab.chip().values["A"] = raw
            await pass_time(lab, 0.3)
        assert (below.raws(), changed.raws()) == (["0x04"], ["0x07", "0x04", "0x03"])

    play(life, toy_board(tmp_path, *PARTS))


def test_subscribe_when_a_register_must_not_be_polled_then_refused_and_not_read(play: Play, tmp_path: Path) -> None:
    async def life(lab: Lab) -> None:
        ears = Ears(lab)
        assert error_of(await ears.subscribe(registers=["toy.FIFO"]))["rule"] == "read_has_side_effects"
        assert error_of(await ears.subscribe(registers=["toy.SLOW"]))["rule"] == "no_poll"
        assert code_of(await ears.subscribe(when={"register": "toy.FIFO", "above": 1})) == "refused"
        assert code_of(await ears.subscribe(registers=["toy.NOPE"])) == "not_found"
        assert code_of(await lab.ask("events.subscribe", registers=["toy.A"])) == "refused"  # nobody is connected
        assert lab.sent() == []

    play(life, toy_board(tmp_path, *PARTS))


def test_subscribe_when_policy_says_no_then_denied(play: Play, tmp_path: Path) -> None:
    async def life(lab: Lab) -> None:
        assert code_of(await Ears(lab).subscribe(registers=["toy.A"])) == "denied"
        assert lab.sent() == []

    play(life, board(tmp_path, rule(register="'A'", read="'no'"), *PARTS))


def test_subscribe_when_a_connection_has_many_then_busy(play: Play, tmp_path: Path) -> None:
    async def life(lab: Lab) -> None:
        ears = Ears(lab)
        for _ in range(16):
            assert (await ears.subscribe(kinds=["op"])).ok
        assert code_of(await ears.subscribe(kinds=["op"])) == "busy"
        assert (await Ears(lab).subscribe(kinds=["op"])).ok

    play(life, toy_board(tmp_path, *PARTS))


def test_registers_when_the_device_does_not_answer_then_told_once_and_again_when_it_does(
    play: Play, tmp_path: Path
) -> None:
    async def life(lab: Lab) -> None:
        lab.clock.held = True
        ears = Ears(lab)
        await ears.subscribe(registers=["toy.A"], interval_ms=100)
        await pass_time(lab, 0.2)
        lab.fault(FaultKind.NACK, access="read", times=3)
        await pass_time(lab, 0.4)
        lab.chip().values["A"] = 1
        await pass_time(lab, 8.0)  # after a second, two and four
        assert [e["kind"] for e in ears.heard] == ["value", "error", "value"]
        assert ears.heard[1]["error"]["code"] == "bus_fault"

    play(life, toy_board(tmp_path, *PARTS))


def test_journal_when_something_is_recorded_then_told_as_each_may_see_it(play: Play, tmp_path: Path) -> None:
    async def life(lab: Lab) -> None:
        mine, theirs, holds = Ears(lab), Ears(lab, OTHER), Ears(lab)
        await mine.subscribe(kinds=["op"])
        await theirs.subscribe()
        await holds.subscribe(kinds=["hold"])
        await lab.ask("reg.write", register="toy.A", value=0x5A, key=KEY, reason="mine alone")
        await lab.operator("device.hold", device="toy", reason="look")
        await lab.ask("reg.write", register="toy.A", value=1, key=KEY2)
        lab.daemon.flush_refusals()
        await settle(lab)
        assert [e["entry"]["what"] for e in mine.heard][:2] == ["intent", "outcome"]
        assert [e["entry"]["what"] for e in holds.heard] == ["hold"]
        assert [e["entry"]["what"] for e in theirs.heard][:3] == ["intent", "outcome", "hold"]
        assert "mine alone" in str(mine.heard)
        assert all(word not in str(theirs.heard) for word in ("mine alone", "0x5a"))
        seqs = [e["entry"]["seq"] for e in theirs.heard]
        assert seqs == sorted(set(seqs))

    play(life, toy_board(tmp_path, *PARTS))


def test_journal_when_a_subscription_begins_then_what_was_before_is_not_told(play: Play, tmp_path: Path) -> None:
    async def life(lab: Lab) -> None:
        await lab.ask("reg.write", register="toy.A", value=1, key=KEY)
        ears = Ears(lab)
        await ears.subscribe(kinds=["op"])
        await settle(lab)
        assert ears.heard == []

    play(life, toy_board(tmp_path, *PARTS))
