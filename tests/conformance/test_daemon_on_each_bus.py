"""The daemon on each bus that a board can name: who stands behind a name that is back is looked at before an effect."""

from __future__ import annotations

import json
from collections.abc import Callable
from pathlib import Path
from typing import Final, get_args

import pytest

from hwtool.board_buses import BusKind
from hwtool.config import Board, parse_board
from hwtool_contracts.messages import Result
from hwtool_registers.bus import Answer, RegisterWrite, Transfer
from tests.conformance.bench import Access, Bench, Resident, Trouble
from tests.conformance.table import benches
from tests.hwtool.conftest import KEY, KEY2, KEY3, Lab, Play, code_of, error_of

Make = Callable[[type[Bench]], Bench]
HOUSED: Final = [b for b in benches() if b.resident is not None]
TRIES: Final = 20
AWAY: Final = ("unavailable", "timeout", "bus_fault")  # by what the bus makes of it: all with effects none


@pytest.fixture
def play(tmp_path: Path) -> Play:
    """One life of a daemon, its store below tmp_path."""
    return Play(tmp_path)


def resident_of(bench: Bench) -> Resident:
    """The device, as a daemon knows it."""
    assert bench.resident is not None
    return bench.resident


def board_of(bench: Bench, directory: Path) -> Board:
    """A board with the device of a bench on its bus."""
    there = resident_of(bench)
    identity = f"[identity]\nregister = '{there.who}'\nequals = {there.ours}\n"
    (directory / "resident.toml").write_text(there.contract + identity)
    bus = "".join(f"{key} = {json.dumps(value)}\n" for key, value in bench.board().items())
    return parse_board(
        f"name = 'conformance'\n[buses.i2c0]\n{bus}sole_master = true\nresponse_ms = 20000\nreply_lifetime_ms = 50\n"
        f"transfer_limit_ms = 60000\n"
        f"[devices.it]\ncontract = './resident.toml'\nbus = 'i2c0'\naddress = {bench.read.address}\n",
        "conformance.toml",
        directory,
    )


async def write(lab: Lab, bench: Bench, value: int, key: str) -> Result:
    """One write of the level."""
    return await lab.ask("reg.write", register=f"it.{resident_of(bench).level}", value=value, key=key)


async def patiently(lab: Lab, bench: Bench, value: int, key: str) -> Result:
    """As `write`, until the bus is there again."""
    for _ in range(TRIES):
        told = await write(lab, bench, value, key)
        if code_of(told) not in AWAY:
            return told
        assert told.effects == "none"
        await lab.device("it").worker.settled()
        lab.clock.advance(error_of(told).get("retry_after_ms", 0) / 1000)
    raise AssertionError(f"the bus does not come back: {told}")


def kinds() -> list[object]:
    """Each bench of a bus that a board can name, and whether somebody asks while it is away."""
    found: list[object] = []
    for bench in HOUSED:
        for asked_meanwhile in (True, False):
            wrong = None if asked_meanwhile else bench.unnoticed
            marks = [] if wrong is None else [pytest.mark.xfail(strict=True, raises=AssertionError, reason=wrong)]
            name = f"{bench.name}-{'asked meanwhile' if asked_meanwhile else 'unnoticed'}"
            found.append(pytest.param(bench, asked_meanwhile, id=name, marks=marks))
    return found


def test_kind_when_a_board_can_name_it_then_a_bench_has_a_resident_of_it() -> None:
    assert {resident_of_kind(b) for b in HOUSED} == set(get_args(BusKind))


def resident_of_kind(bench: type[Bench]) -> str:
    """The kind of its bus."""
    return "" if bench.resident is None else bench.resident.kind


@pytest.mark.parametrize(("kind", "asked_meanwhile"), kinds())
def test_effect_when_the_bus_was_away_then_only_to_the_device_that_the_board_means_and_once(
    made: Make, play: Play, tmp_path: Path, kind: type[Bench], asked_meanwhile: bool
) -> None:
    bench = made(kind)
    there = resident_of(bench)

    async def exchange(lab: Lab, who: int) -> None:
        bench.unplug()
        if asked_meanwhile:
            gone = await write(lab, bench, 2, KEY2)
            assert (code_of(gone) in AWAY, gone.effects) == (True, "none"), gone
        bench.stands(who)
        bench.plug()

    async def life(lab: Lab) -> None:
        assert (await write(lab, bench, 1, KEY)).ok
        assert bench.effects() == 1
        await exchange(lab, there.strangers)
        refused = await patiently(lab, bench, 2, KEY2)
        assert (code_of(refused), error_of(refused)["what"]) == ("stale", "identity")
        assert bench.effects() == 1
        await exchange(lab, there.ours)
        done = await patiently(lab, bench, 2, KEY2)
        assert (done.ok, done.effects, done.replayed) == (True, "applied", False), done
        assert (await write(lab, bench, 2, KEY2)).replayed
        assert bench.effects() == 2

    play(life, board_of(bench, tmp_path))


@pytest.mark.parametrize("kind", HOUSED, ids=[b.name for b in HOUSED])
def test_start_when_the_bus_is_away_then_the_daemon_starts_and_finds_it_when_it_is_there(
    made: Make, play: Play, tmp_path: Path, kind: type[Bench]
) -> None:
    bench = made(kind)
    bench.unplug()

    async def life(lab: Lab) -> None:
        assert code_of(await write(lab, bench, 1, KEY)) == "unavailable"
        bench.plug()
        assert (await patiently(lab, bench, 1, KEY)).ok
        assert bench.effects() == 1

    play(life, board_of(bench, tmp_path))


def answer_lost(lab: Lab, bench: Bench) -> None:
    """The next write of the daemon's gets no answer of its own; everything else is as it was."""
    trouble = Trouble.UNASKED if Trouble.UNASKED in bench.can else Trouble.SILENT  # silence would be waited for
    bus = lab.device("it").worker.bus
    perform: Callable[[Transfer], Answer] = bus.perform
    left = [True]

    def once(transfer: Transfer) -> Answer:
        if not isinstance(transfer, RegisterWrite) or not left:
            return perform(transfer)
        left.clear()
        bench.arrange(trouble, Access.WRITE)
        answer = perform(transfer)
        bench.settle()
        bench.mend()
        return answer

    vars(bus)["perform"] = once


@pytest.mark.parametrize("kind", HOUSED, ids=[b.name for b in HOUSED])
def test_write_when_its_answer_is_lost_then_unknown_and_held_until_evidence_settles_it(
    made: Make, play: Play, tmp_path: Path, kind: type[Bench]
) -> None:
    bench = made(kind)

    async def settled(lab: Lab) -> str | None:
        for _ in range(TRIES):
            lab.clock.advance(60)
            await lab.device("it").worker.settled()
            told = await lab.ask("op.get", key=KEY2, verify=True)
            if told.verdict is not None:
                return told.verdict
        return None

    async def life(lab: Lab) -> None:
        assert (await write(lab, bench, 1, KEY)).ok
        answer_lost(lab, bench)
        lost = await write(lab, bench, 2, KEY2)
        assert (code_of(lost), lost.effects) == ("outcome_unknown", "unknown"), lost
        assert code_of(await write(lab, bench, 3, KEY3)) in ("held", "unavailable")
        sent = bench.effects()
        assert sent in (1, 2)  # the second one may have been broken off before its data
        verdict = await settled(lab)
        assert verdict in ("applied", "not_applied")
        again = await write(lab, bench, 2, KEY2)
        assert (again.replayed, again.verdict, again.ok) == (True, verdict, verdict == "applied")
        assert bench.effects() == sent  # whatever became of it, it is not sent again
        assert (await patiently(lab, bench, 3, KEY3)).ok
        assert bench.effects() == sent + 1

    play(life, board_of(bench, tmp_path))
