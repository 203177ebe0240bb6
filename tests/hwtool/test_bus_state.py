"""What a bus may be (absent, failing, quarantined, wedged), and what requests are told meanwhile."""

from __future__ import annotations

import errno
import threading
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

from hwtool.breaker import FAILURES, FIRST_PAUSE_S, LONGEST_PAUSE_S, Breaker, is_failure
from hwtool.config import parse_board
from hwtool_contracts.model import Space
from hwtool_registers.bus import Ambiguous, Answer, Confirmed, RegisterRead, Rejected, Sent, Transfer
from hwtool_sim.faults import FaultKind
from tests.hwtool.conftest import KEY, KEY2, Lab, Play, code_of, error_of, reg, toy_board

SILENCE = Ambiguous(Sent.REPLY, "no reply")
READ = RegisterRead(0x20, Space.MEMORY, 0, 1)
NACK = Rejected("no acknowledge", "address-nack")
TWO_BUSES = """
name = "two"
[buses.here]
kind = "sim"
sole_master = true
[buses.away]
kind = "sim"
sole_master = true
[devices.near]
contract = "./toy.toml"
bus = "here"
address = 0x20
[devices.far]
contract = "./toy.toml"
bus = "away"
address = 0x20
"""


class Unplugged:
    """A simulated bus whose node is there only while `node` is set."""

    failure = errno.ENOENT

    def __init__(self, inner: Any) -> None:
        self.inner = inner
        self.node = False
        self.opened = False
        self.inline = True
        self.opening: threading.Event | None = None

    def open(self) -> None:
        if self.opening is not None:
            self.opening.wait(10)
        if not self.node:
            self.opened = False
            raise OSError(self.failure, "no such node")
        self.opened = True

    def perform(self, transfer: Transfer) -> Answer:
        try:
            self.open()
        except OSError as error:
            return Rejected(str(error), "port-not-opened")
        answer: Answer = self.inner.perform(transfer)
        return answer

    def quiesce(self, until_s: float) -> None:
        self.open()


@pytest.fixture
def away(monkeypatch: pytest.MonkeyPatch) -> dict[str, Unplugged]:
    """The bus `away` of TWO_BUSES, by name, once the daemon has made it."""
    from hwtool.buses import make_bus

    made: dict[str, Unplugged] = {}

    def make(spec: Any, *rest: Any) -> Any:
        bus = make_bus(spec, *rest)
        if spec.name == "here":
            return bus
        return made.setdefault("away", Unplugged(bus))

    monkeypatch.setattr("hwtool.engine.make_bus", make)
    return made


def two_buses(directory: Path) -> Any:
    toy_board(directory, reg("R", 0), reg("ID", 1, "reset = 7", access="ro"), "[identity]\nregister = 'ID'\nequals = 7")
    return parse_board(TWO_BUSES, "two.toml", directory)


@pytest.mark.parametrize("failure", [errno.ENOENT, errno.EPIPE])  # not there; gone while it was joined
def test_start_when_a_bus_is_absent_then_the_others_work_and_its_devices_are_unavailable_until_it_comes(
    play: Play, tmp_path: Path, away: dict[str, Unplugged], monkeypatch: pytest.MonkeyPatch, failure: int
) -> None:
    monkeypatch.setattr(Unplugged, "failure", failure)

    async def life(lab: Lab) -> None:
        states = {d["name"]: d["bus_state"] for d in (await lab.ask("device.list")).devices or []}
        assert states == {"near": "ready", "far": "absent"}
        assert (await lab.ask("reg.write", register="near.R", value=1, key=KEY)).ok
        for method, more in (("reg.read", {"registers": ["far.R"]}), ("reg.write", {"register": "far.R", "value": 1})):
            refused = await lab.ask(method, **more, **({"key": KEY2} if "value" in more else {}))
            assert (code_of(refused), refused.effects) == ("unavailable", "none")
            assert error_of(refused)["retry_after_ms"] > 0
        assert away["away"].inner.transfers == 0
        away["away"].node = True
        assert (await lab.ask("reg.write", register="far.R", value=1, key=KEY2)).ok  # the key had not been used

    play(life, two_buses(tmp_path))


def test_start_when_a_bus_is_there_and_taken_then_refused(
    play: Play, tmp_path: Path, away: dict[str, Unplugged]
) -> None:
    async def life(lab: Lab) -> None:
        away["away"].failure = errno.EBUSY

    play(life, two_buses(tmp_path))
    with pytest.raises(OSError, match="no such node"):
        play(life, two_buses(tmp_path))


def test_bus_when_it_was_away_then_the_identity_is_looked_at_before_the_next_effect(
    play: Play, tmp_path: Path, away: dict[str, Unplugged]
) -> None:
    async def life(lab: Lab) -> None:
        bus = away["away"]
        bus.node = True
        assert (await lab.ask("reg.write", register="far.R", value=1, key=KEY)).ok
        bus.node = False
        assert code_of(await lab.ask("reg.read", registers=["far.R"])) == "unavailable"
        bus.node = True
        chip = bus.inner.chips[0x20]
        chip.values["ID"] = 8  # another device behind the same name
        refused = await lab.ask("reg.write", register="far.R", value=2, key=KEY2)
        assert (code_of(refused), error_of(refused)["what"]) == ("stale", "identity")
        assert chip.executed["R", "write"] == 1

    play(life, two_buses(tmp_path))


@pytest.mark.parametrize(
    ("answer", "failure"),
    [
        (Confirmed(), False),
        (SILENCE, True),
        (NACK, None),  # it says something of one device, and nothing of its neighbours
        (Rejected("gone", "port-not-opened"), True),
        (Rejected("gone", "port-vanished"), True),
        (Rejected("illegal data address", "modbus-exception-02"), False),
        (Rejected("not carried", "not-sent"), None),
    ],
    ids=str,
)
def test_breaker_when_an_answer_comes_then_it_shows_the_transport_or_not(answer: Answer, failure: bool | None) -> None:
    assert is_failure(answer) is failure


def test_breaker_when_failures_run_then_open_probed_once_a_pause_and_closed_by_one_success() -> None:
    breaker, now_s = Breaker(), 100.0
    for _ in range(FAILURES - 1):
        breaker.note(SILENCE, now_s)
    assert breaker.refuses(now_s) is None
    breaker.note(SILENCE, now_s)
    assert breaker.refuses(now_s) == round(1000 * FIRST_PAUSE_S)
    now_s += FIRST_PAUSE_S
    assert breaker.refuses(now_s) is None
    assert breaker.refuses(now_s) is not None  # one at a time
    pauses = []
    for _ in range(8):
        breaker.note(SILENCE, now_s)
        pauses.append(breaker.pause_s)
    assert pauses[0] == 2 * FIRST_PAUSE_S
    assert max(pauses) == LONGEST_PAUSE_S
    breaker.note(Confirmed(), now_s)
    assert (breaker.refuses(now_s), breaker.failures) == (None, 0)


async def fail(lab: Lab, register: str = "toy.R") -> None:
    """As many transport failures in a row as open the breaker; the line is silent again afterwards."""
    for _ in range(FAILURES):
        lab.fault(FaultKind.REQUEST_LOST, access="any")
        assert not (await lab.ask("reg.read", registers=[register])).ok
        await lab.device().worker.settled()
    assert lab.device().worker.state == "failing"


def test_breaker_when_open_then_requests_fail_fast_and_a_clean_read_probes(play: Play, tmp_path: Path) -> None:
    async def life(lab: Lab) -> None:
        await fail(lab)
        lab.clock.held = True
        before = lab.bus().transfers
        refused = await lab.ask("reg.read", registers=["toy.R"])
        assert code_of(refused) == "unavailable"
        assert 0 < error_of(refused)["retry_after_ms"] <= 1000 * FIRST_PAUSE_S
        keyed = await lab.ask("reg.write", register="toy.R", value=1, key=KEY)
        assert (code_of(keyed), keyed.effects) == ("unavailable", "none")
        assert lab.bus().transfers == before
        lab.clock.held = False
        lab.clock.advance(FIRST_PAUSE_S)
        assert (await lab.ask("reg.read", registers=["toy.R"])).ok
        assert (await lab.ask("reg.write", register="toy.R", value=1, key=KEY)).ok

    play(life, toy_board(tmp_path, reg("R", 0)))


def test_breaker_when_a_caller_only_writes_and_does_as_it_is_told_then_it_reaches_the_device(
    play: Play, tmp_path: Path
) -> None:
    async def life(lab: Lab) -> None:
        await fail(lab)
        refused = await lab.ask("reg.write", register="toy.R", value=1, key=KEY)
        assert (code_of(refused), error_of(refused)["retry"]) == ("unavailable", "same_key")
        lab.clock.advance(error_of(refused)["retry_after_ms"] / 1000)
        assert (await lab.ask("reg.write", register="toy.R", value=1, key=KEY)).ok

    play(life, toy_board(tmp_path, reg("R", 0)))


def test_breaker_when_one_device_is_not_there_then_its_neighbours_go_on(play: Play, tmp_path: Path) -> None:
    second = "[devices.two]\ncontract = './toy.toml'\nbus = 'b'\naddress = 0x21\n"

    async def life(lab: Lab) -> None:
        del lab.bus().chips[0x21]
        for number in range(3 * FAILURES):
            assert code_of(await lab.ask("reg.read", registers=["two.R"])) == "bus_fault"
            assert (await lab.ask("reg.write", register="toy.R", value=number + 1, key=f"{KEY}-{number}")).ok

    play(life, toy_board(tmp_path, reg("R", 0), device=second))


def test_open_when_it_hangs_then_the_bus_is_wedged_and_everybody_is_told_at_once(
    play: Play, tmp_path: Path, away: dict[str, Unplugged]
) -> None:
    gate = threading.Event()

    async def life(lab: Lab) -> None:
        away["away"].opening = gate
        assert code_of(await lab.ask("reg.read", registers=["far.R"])) == "unavailable"
        assert lab.device("far").worker.state == "wedged"
        assert error_of(await lab.ask("reg.read", registers=["far.R"]))["reason"] == "wedged"
        assert (await lab.ask("reg.write", register="near.R", value=1, key=KEY)).ok
        gate.set()

    board = two_buses(tmp_path)
    board.buses["away"] = replace(board.buses["away"], transfer_limit_ms=200)
    play(life, board)


def test_dispatch_when_the_bus_is_away_then_it_is_not_opened_for_an_effect(
    play: Play, tmp_path: Path, away: dict[str, Unplugged], monkeypatch: pytest.MonkeyPatch
) -> None:
    """The device that is back may be another one: who is there is found out by a read, before the intent."""
    from hwtool.carry_out import carry_out as real

    async def life(lab: Lab) -> None:
        bus = away["away"]
        bus.node = True
        assert (await lab.ask("reg.write", register="far.R", value=1, key=KEY)).ok

        async def swapped(*arguments: Any) -> Any:
            bus.node = False
            async with lab.device("far").worker.lock:
                await lab.device("far").worker.read_clean(READ)  # somebody finds it gone
            bus.node = True
            bus.inner.chips[0x20].values["ID"] = 8
            return await real(*arguments)

        monkeypatch.setattr("hwtool.execution.carry_out", swapped)
        failed = await lab.ask("reg.write", register="far.R", value=2, key=KEY2)
        assert (code_of(failed), failed.effects, failed.verdict) == ("bus_fault", "none", "not_applied")
        assert bus.inner.chips[0x20].executed["R", "write"] == 1

    play(life, two_buses(tmp_path))
