"""How a daemon is started and what it may change while it runs: read-only, unverified contracts, reload, board lint."""

from __future__ import annotations

import asyncio
from pathlib import Path
from typing import Any

import pytest

from hwtool.board_lint import linted
from hwtool.config import Board
from hwtool.engine import Engine
from hwtool_contracts.toml_reader import Fault, Faults
from tests.hwtool.conftest import (
    KEY,
    KEY2,
    KEY3,
    FakeClock,
    Lab,
    Play,
    code_of,
    effect,
    error_of,
    reg,
    toy_board,
)
from tests.hwtool.test_permission import board, rule

PARTS = (reg("A", 0), reg("FIFO", 1, effect("pop"), "ro"))
SAFE = "safe_state = [{ register = 'A', value = 0 }]"


def started(tmp_path: Path, first: Board, scenario: Any, **more: Any) -> None:
    """One life of an engine that is started in its own way."""

    async def life() -> None:
        clock = FakeClock()
        engine = await Engine.start(first, tmp_path / "store", clock, allow_unsafe=True, **more)
        try:
            await scenario(Lab(engine, clock, tmp_path / "store"))
        finally:
            await engine.close()

    asyncio.run(life())


# --- read-only ----------------------------------------------------------------------------------------------------

EFFECTS: dict[str, dict[str, Any]] = {
    "reg.write": {"register": "toy.A", "value": 1},
    "reg.update": {"register": "toy.A", "fields": {}},
    "reg.read_effectful": {"register": "toy.FIFO"},
    "sequence.run": {"steps": [{"do": "write", "register": "toy.A", "value": 1}]},
}


def test_read_only_when_started_so_then_no_effect_but_a_safe_state_and_none_is_offered(tmp_path: Path) -> None:
    async def life(lab: Lab) -> None:
        for caller_of in (lab.ask, lab.operator):
            for method, params in EFFECTS.items():
                asked = params | ({"fields": {"F": 1}} if method == "reg.update" else {})
                refused = await caller_of(method, key=KEY, **asked)
                assert (code_of(refused), "read-only" in error_of(refused)["message"]) == ("denied", True), method
        assert (lab.writes("A"), lab.reads("FIFO"), await lab.rows()) == (0, 0, [])
        assert (await lab.ask("reg.read", registers=["toy.A"])).ok
        planned = await lab.ask("reg.plan", method="reg.write", params=EFFECTS["reg.write"])
        assert (planned.ok, [w.partition(":")[0] for w in planned.warnings]) == (True, ["read_only"])
        assert (await lab.ask("device.safe_state", device="toy", key=KEY2)).ok
        told: Any = (await lab.ask("describe")).describe
        assert told["read_only"] is True
        assert set(EFFECTS) & set(told["methods"]) == set()

    fields = reg("A", 0, "fields.F = { bits = 0 }")
    started(tmp_path, toy_board(tmp_path, fields, PARTS[1], device=SAFE), life, read_only=True)


def test_read_only_when_a_key_has_an_outcome_then_it_is_told(tmp_path: Path) -> None:
    first = toy_board(tmp_path, *PARTS)

    async def before(lab: Lab) -> None:
        assert (await lab.ask("reg.write", register="toy.A", value=1, key=KEY)).ok

    async def then(lab: Lab) -> None:
        told = await lab.ask("reg.write", register="toy.A", value=1, key=KEY)
        assert (told.ok, told.replayed, lab.writes("A")) == (True, True, 0)

    started(tmp_path, first, before)
    started(tmp_path, first, then, read_only=True)


# --- contracts that nobody has verified ---------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("head", "device", "passes"),
    [
        ("", "unverified = 'refuse'", False),
        ("verified = 'a part on the bench'\n", "unverified = 'refuse'", True),
        ("verified = 'a model: of the bench'\n", "unverified = 'refuse'", False),
        ("", "unverified = 'allow'", True),
        ("", "", True),
    ],
)
def test_unverified_when_the_board_demands_a_real_part_then_effects_are_refused(
    play: Play, tmp_path: Path, head: str, device: str, passes: bool
) -> None:
    from tests.hwtool.conftest import I2C

    async def life(lab: Lab) -> None:
        told = await lab.ask("reg.write", register="toy.A", value=1, key=KEY)
        assert told.ok is passes
        if not passes:
            assert (error_of(told)["rule"], lab.sent(), await lab.rows()) == ("unverified", [], [])
        assert (await lab.ask("reg.read", registers=["toy.A"])).ok
        assert (await lab.ask("device.safe_state", device="toy", key=KEY2)).ok

    play(life, toy_board(tmp_path, *PARTS, head=head + I2C, device=f"{SAFE}\n{device}"))


@pytest.mark.parametrize("told", ["A model: x", "a model of QEMU", "model: x", "  a model: x"])
def test_verified_when_it_does_not_say_whether_a_part_or_a_model_then_the_contract_is_refused(
    tmp_path: Path, told: str
) -> None:
    from tests.hwtool.conftest import I2C

    with pytest.raises(Faults, match="does not say whether a part or a model"):
        toy_board(tmp_path, *PARTS, head=f"verified = '{told}'\n" + I2C)


# --- rehearsal ----------------------------------------------------------------------------------------------------


def test_rehearsal_when_the_daemon_was_started_so_then_every_keyed_request_is_one(tmp_path: Path) -> None:
    async def life(lab: Lab) -> None:
        for method, params in {**EFFECTS, "device.safe_state": {"device": "toy"}}.items():
            asked = params | ({"fields": {"F": 1}} if method == "reg.update" else {})
            told = await lab.ask(method, key=KEY, **asked)
            assert (told.ok, told.dry_run, told.simulated, told.effects) == (True, True, True, "none"), method
            assert told.transfers, method
        assert (lab.writes("A"), lab.reads("FIFO"), await lab.rows()) == (0, 0, [])
        assert [b["what"] for b in await lab.audit()] == ["rehearsal"] * 5
        assert (await lab.ask("describe")).describe["rehearsing"] is True  # type: ignore[index]

    fields = reg("A", 0, "fields.F = { bits = 0 }")
    started(tmp_path, toy_board(tmp_path, fields, PARTS[1], device=SAFE), life, rehearsing=True)


def test_rehearsal_when_a_key_has_an_outcome_then_still_one_and_the_outcome_stays(tmp_path: Path) -> None:
    first = toy_board(tmp_path, *PARTS)

    async def life(lab: Lab) -> None:
        assert (await lab.ask("reg.write", **EFFECTS["reg.write"], key=KEY)).ok

    async def then(lab: Lab) -> None:
        told = await lab.ask("reg.write", **EFFECTS["reg.write"], key=KEY)
        assert (told.dry_run, told.replayed, told.id) == (True, False, None)
        assert (await lab.ask("op.get", key=KEY)).verdict == "applied"

    started(tmp_path, first, life)
    started(tmp_path, first, then, rehearsing=True)


# --- reload -------------------------------------------------------------------------------------------------------


def test_reload_when_policy_changed_then_in_force_at_once_and_what_is_held_stays_held(tmp_path: Path) -> None:
    boards = [board(tmp_path, rule(write="'no'"), *PARTS, device=SAFE)]

    async def life(lab: Lab) -> None:
        assert (await lab.ask("reg.write", register="toy.A", value=1, key=KEY)).ok
        await lab.operator("device.hold", device="toy", reason="look")
        told = await lab.operator("daemon.reload")
        assert (told.ok, "policy" in told.summary) == (True, True)
        assert code_of(await lab.ask("reg.write", register="toy.A", value=1, key=KEY2)) == "denied"
        assert lab.device().held() is not None
        assert (await lab.ask("reg.write", register="toy.A", value=1, key=KEY)).replayed
        assert (await lab.ask("device.safe_state", device="toy", key=KEY3)).ok
        assert [b["what"] for b in await lab.audit()].count("reload") == 1

    started(tmp_path, board(tmp_path, "", *PARTS), life, reread=lambda: boards[-1])


def test_reload_when_something_needs_a_restart_then_named_and_nothing_is_taken_over(tmp_path: Path) -> None:
    first = board(tmp_path, "", *PARTS)
    other = board(tmp_path, rule(write="'no'"), *PARTS, reg("NEW", 9))

    async def life(lab: Lab) -> None:
        refused = await lab.operator("daemon.reload")
        assert (error_of(refused)["rule"], "devices.toy" in error_of(refused)["message"]) == ("needs_restart", True)
        assert (await lab.ask("reg.write", register="toy.A", value=1, key=KEY)).ok

    started(tmp_path, first, life, reread=lambda: other)


def test_reload_when_the_board_has_faults_then_told_and_the_old_one_stays(tmp_path: Path) -> None:
    def broken() -> Board:
        raise Faults([Fault("board.toml", "buses.b", "kind", "unknown bus kind", "x", "sim")])

    async def life(lab: Lab) -> None:
        refused = await lab.operator("daemon.reload")
        assert (error_of(refused)["rule"], "buses.b.kind" in error_of(refused)["message"]) == ("board_faults", True)
        assert (await lab.ask("reg.write", register="toy.A", value=1, key=KEY)).ok
        assert code_of(await lab.ask("daemon.reload")) == "denied"

    started(tmp_path, board(tmp_path, "", *PARTS), life, reread=broken)


# --- board lint ---------------------------------------------------------------------------------------------------


def test_board_lint_when_something_may_not_be_meant_then_warned_of(tmp_path: Path) -> None:
    silent = reg("S", 5, "read = { effects = ['unknown'], provenance = 'silent' }", "ro")
    told = linted(board(tmp_path, rule(write="'no'") + rule(register="'A'", write="'yes'"), *PARTS, silent))
    assert [d["device"] for d in told["devices"]] == ["toy"]
    warned = "\n".join(told["warnings"])
    for word in ("no safe_state", "approval_mode self", "policy[1]: never asked", "1 of 3 registers"):
        assert word in warned
    assert linted(board(tmp_path, "", *PARTS, device=SAFE, mode="separate-user"))["warnings"] == []
