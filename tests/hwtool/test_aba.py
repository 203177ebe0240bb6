"""Eight stories in which the register looks as if: each ends with the verdict that the table of reconciliation demands.

A value that is there says what is, not who wrote it. Each story is told in both directions where there are two: what
would be believed wrongly, and what makes the difference.
"""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path

import pytest

from hwtool_sim.bus import SimBus
from hwtool_sim.faults import FaultKind
from tests.hwtool.conftest import KEY, KEY2, Lab, Play, code_of, error_of, reg, toy_board
from tests.hwtool.test_recovery import CRASHES, GO, ONE, PUT, STORE, Crash, Power, now, reset_to

OLD = 0x10  # what the register holds before, and after a reset
WANTED = 0x55


STORIES: dict[str, tuple[Crash, str]] = {
    "1 old value equals wanted, sent": (replace(CRASHES["store was so already"], sent=True), "satisfied"),
    "1 old value equals wanted, not sent": (CRASHES["store was so already"], "satisfied"),
    "2 a foreign master writes the wanted value": (
        Crash(STORE, PUT, False, None, why="other masters", between=now(R=WANTED), sole_master=False),
        "",
    ),
    "3 a foreign master writes the old value back": (
        Crash(STORE, PUT, True, None, why="other masters", between=now(R=OLD), sole_master=False),
        "",
    ),
    "4 the reset value equals wanted, the chip is silent": (
        CRASHES["store, silent device, v is the reset value"],
        "",
    ),
    "4 the reset value equals wanted, the chip tells": (
        Crash(STORE, {**PUT, "value": OLD}, True, "superseded", values={"R": 3}, between=reset_to()),
        "superseded",
    ),
    "7 the counter wraps, sent": (replace(CRASHES["pulse sent"], values={"N": 0xFF}), "applied"),
    "7 the counter wraps, not sent": (replace(CRASHES["pulse not sent"], values={"N": 0xFF}), "not_applied"),
    "7 the counter tells of more than one": (
        Crash(GO, ONE, True, None, why="do not tell", values={"N": 5}, between=now(N=5 + 3)),
        "",
    ),
}


@pytest.fixture
def power(monkeypatch: pytest.MonkeyPatch) -> Power:
    return Power(monkeypatch)


@pytest.mark.parametrize("story", STORIES)
def test_story_when_the_register_looks_as_if_then_the_verdict_of_the_table(
    play: Play, tmp_path: Path, power: Power, kept_buses: dict[str, SimBus], story: str
) -> None:
    crash, verdict = STORIES[story]
    board = toy_board(tmp_path, *crash.parts, sole_master=crash.sole_master)
    power.cut(play, crash, board, kept_buses)
    chip = kept_buses["b"].chips[0x20]
    executed = chip.executed["R", "write"]
    crash.between(chip)

    async def life(lab: Lab) -> None:
        row = await lab.row()
        again = await lab.operator("reg.write", **crash.request)
        if verdict:
            assert (row.state, row.verdict, again.verdict) == ("DONE", verdict, verdict)
            assert again.effects == crash.effects
        else:
            assert (row.state, code_of(again)) == ("UNKNOWN", "outcome_unknown")
            got = await lab.operator("op.get", key=KEY, verify=True)
            assert isinstance(got.op, dict)
            assert crash.why in got.op["needs_person"]
            assert code_of(await lab.operator("reg.write", **{**crash.request, "key": KEY2})) == "held"

    play(life, board, store="crashed")
    assert chip.executed["R", "write"] == executed  # and nothing was sent to find out


def test_story_5_when_the_write_comes_back_late_then_nobody_looks_before_it_did(play: Play, tmp_path: Path) -> None:
    """Delivered after the read-back: until its lifetime is over, no look could tell an old value from the last one."""

    async def life(lab: Lab) -> None:
        lab.clock.held = True
        lab.fault(FaultKind.REQUEST_LOST)  # as far as anybody sees by now
        assert code_of(await lab.operator("reg.write", **PUT)) == "outcome_unknown"
        before = lab.reads("R")
        assert code_of(await lab.ask("reg.read", registers=["toy.R"])) == "unavailable"
        lab.clock.advance(0.09)
        assert (lab.device().worker.state, lab.reads("R")) == ("quarantined", before)
        lab.chip().values["R"] = WANTED  # it was on its way, and arrives
        lab.chip().executed["R", "write"] += 1
        lab.clock.advance(0.02)
        await lab.rules_ran()
        assert ((await lab.row()).state, (await lab.row()).verdict) == ("DONE", "applied")

    play(life, toy_board(tmp_path, *STORE))


def test_story_6_when_an_identical_chip_was_swapped_in_then_its_registers_settle_nothing(
    play: Play, tmp_path: Path, power: Power, kept_buses: dict[str, SimBus]
) -> None:
    parts = (
        *STORE,
        reg("ID", 8, "reset = 0x42", access="ro"),
        reg("SERIAL", 9, "reset = 0x17", access="ro"),
        "[identity]\nregister = 'ID'\nequals = 0x42\nserial = 'SERIAL'\n",
    )
    board = toy_board(tmp_path, *parts, device="identity = '0x17'")
    power.cut(play, replace(CRASHES["store sent"], parts=parts), board, kept_buses)
    chip = kept_buses["b"].chips[0x20]
    chip.values |= {"SERIAL": 0x18, "R": OLD}  # as if it had never been written: it is another one

    async def life(lab: Lab) -> None:
        row = await lab.row()
        assert row.state == "UNKNOWN"
        assert code_of(await lab.operator("reg.write", **PUT)) == "outcome_unknown"
        refused = await lab.operator("reg.write", **{**PUT, "key": KEY2})
        assert code_of(refused) in ("held", "stale"), error_of(refused)
        chip.values |= {"SERIAL": 0x17, "R": WANTED}  # the right one is put back
        got = await lab.operator("op.get", key=KEY, verify=True)
        assert got.verdict == "applied"

    play(life, board, store="crashed")
    assert chip.executed["R", "write"] == 1


def test_story_8_when_an_older_store_is_put_back_then_a_key_of_the_lost_life_is_not_fresh(
    play: Play, tmp_path: Path, kept_buses: dict[str, SimBus]
) -> None:
    """Both witnesses of the key are gone with the store: what stands in its way is the anchor, and then a hold."""
    import shutil

    from hwtool_store.database import FILE
    from hwtool_store.faults import StoreRefused

    board = toy_board(tmp_path, *STORE)

    async def first(lab: Lab) -> None:
        assert (await lab.ask("reg.write", register="toy.S", value=1, key=KEY2)).ok
        lab.disk_now("old")

    async def second(lab: Lab) -> None:
        assert (await lab.operator("reg.write", **PUT)).verdict == "applied"

    async def never(_: Lab) -> None:
        raise AssertionError("it must not start")

    play(first, board)
    play(second, board)
    chip = kept_buses["b"].chips[0x20]
    for name in (FILE, FILE + "-wal", FILE + "-shm"):
        (tmp_path / "store" / name).unlink(missing_ok=True)
        if (tmp_path / "old" / name).exists():
            shutil.copy(tmp_path / "old" / name, tmp_path / "store" / name)
    with pytest.raises(StoreRefused, match="older than its anchor"):
        play(never, board)
    assert chip.executed["R", "write"] == 1
