"""The safe state of a device: each rule of its paragraph in docs/operations.md, one test a rule."""

from __future__ import annotations

import asyncio
from functools import partial
from pathlib import Path
from typing import Any

import pytest

from hwtool.breaker import FAILURES
from hwtool.config import Board
from hwtool.recovery import CannotObserve
from hwtool_contracts.toml_reader import Faults
from hwtool_sim.bus import SimBus
from hwtool_sim.faults import FaultKind
from tests.hwtool.conftest import (
    AGENT,
    KEY,
    KEY2,
    KEY3,
    Lab,
    Play,
    code_of,
    deaf,
    effect,
    error_of,
    evidence_of,
    reg,
    toy_board,
    until,
)

SAFE = "safe_state = [{ register = 'OUT', value = 0 }, { register = 'DRIVE', value = 0 }]"
# VAR never shows what was asked of it, so that a write to it is watched to the end of its long window
SLOW = reg("VAR", 2, "write = { effect = 'store', provenance = 'generated', source = 'rtl', window_ms = 60000 }")
PARTS = (reg("OUT", 0, "reset = 0"), reg("DRIVE", 1, "reset = 0"), SLOW)
LATER = "safe-000001"
AGAIN = "safe-000002"


def safe_board(directory: Path, *more: str, device: str = SAFE, **rest: Any) -> Board:
    return toy_board(directory, *PARTS, *more, device=device, **rest)


async def make_safe(lab: Lab, key: str = LATER, **more: Any) -> Any:
    return await lab.ask("device.safe_state", device="toy", key=key, **more)


async def watching(lab: Lab, key: str = KEY, value: int = 5) -> asyncio.Task[Any]:
    """A write that is in its watch, whose first observations concluded nothing."""
    before = lab.reads("VAR")
    lab.clock.held = True
    task = asyncio.create_task(lab.ask("reg.write", register="toy.VAR", value=value, key=key))
    await until(lambda: lab.reads("VAR") >= before + 2)  # the pre-read and the first look of the watch
    return task


async def blind(*_: Any) -> Any:
    """An observation that sees nothing."""
    raise CannotObserve("nothing to be seen")


def test_safe_state_when_called_then_every_entry_is_written_once_in_order_and_seen(play: Play, tmp_path: Path) -> None:
    async def life(lab: Lab) -> None:
        lab.chip().values |= {"OUT": 7, "DRIVE": 9}
        done = await make_safe(lab)
        assert (done.ok, done.verdict, done.effects) == (True, "applied", "applied")
        assert evidence_of(done)["entries"] == {"OUT": "sent", "DRIVE": "sent"}
        assert [(t["offset"], t["data"]) for t in lab.sent() if t["do"] == "write"] == [("0x00", "00"), ("0x01", "00")]
        assert (lab.chip().values["OUT"], lab.chip().values["DRIVE"]) == (0, 0)
        again = await make_safe(lab)
        assert (again.replayed, again.id) == (True, done.id)
        assert (lab.writes("OUT"), lab.writes("DRIVE")) == (1, 1)
        row = await lab.row(LATER)
        assert (row.kind, row.state) == ("safe_state", "DONE")
        (listed,) = (await lab.ask("device.list")).devices or []
        assert listed["safe_state"] == ["OUT", "DRIVE"]

    play(life, safe_board(tmp_path))


def test_safe_state_when_an_entry_fails_then_the_later_ones_are_still_sent(play: Play, tmp_path: Path) -> None:
    async def life(lab: Lab) -> None:
        lab.chip().values |= {"OUT": 7, "DRIVE": 9}
        lab.fault(FaultKind.NACK, offset=0)
        failed = await make_safe(lab)
        assert (code_of(failed), failed.verdict, failed.effects) == ("not_applied", "partial", "applied")
        assert (error_of(failed)["done"], error_of(failed)["total"]) == (1, 2)
        assert "planned fault" in evidence_of(failed)["entries"]["OUT"]
        assert lab.chip().values["DRIVE"] == 0
        assert lab.device().held() is None

    play(life, safe_board(tmp_path))


def test_safe_state_when_an_entry_is_ambiguous_then_the_line_falls_silent_the_rest_is_sent_and_a_rule_settles_it(
    play: Play, tmp_path: Path
) -> None:
    async def life(lab: Lab) -> None:
        lab.chip().values |= {"OUT": 7, "DRIVE": 9}
        lab.fault(FaultKind.REPLY_LOST, offset=0)
        unknown = await make_safe(lab)
        assert (code_of(unknown), unknown.effects) == ("outcome_unknown", "unknown")
        assert lab.chip().values["DRIVE"] == 0
        assert (lab.writes("OUT"), lab.writes("DRIVE")) == (1, 1)
        await lab.rules_ran()
        row = await lab.row(LATER)
        assert (row.state, row.verdict, row.verdict_by) == ("DONE", "applied", "rule")

    play(life, safe_board(tmp_path, bus=""), clock=None)


def test_safe_state_when_every_entry_is_proved_not_to_have_happened_then_not_applied(
    play: Play, tmp_path: Path
) -> None:
    async def life(lab: Lab) -> None:
        lab.fault(FaultKind.NACK, times=2)
        failed = await make_safe(lab)
        assert (code_of(failed), failed.verdict, failed.effects) == ("not_applied", "not_applied", "none")

    play(life, safe_board(tmp_path))


def test_safe_state_when_the_observables_do_not_answer_then_it_is_sent_all_the_same(play: Play, tmp_path: Path) -> None:
    async def life(lab: Lab) -> None:
        lab.fault(FaultKind.NACK, access="read", times=2)
        done = await make_safe(lab)
        assert (done.ok, done.verdict, done.effects) == (True, "applied", "unknown")
        assert [w.partition(":")[0] for w in done.warnings] == ["unverified"]
        assert (lab.writes("OUT"), lab.writes("DRIVE")) == (1, 1)

    play(life, safe_board(tmp_path))


def test_safe_state_when_called_during_a_watch_then_that_op_is_unknown_and_no_rule_settles_it_afterwards(
    play: Play, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    async def life(lab: Lab) -> None:
        deaf(lab, monkeypatch, "VAR")
        lab.chip().values["OUT"] = 7
        watched = await watching(lab)
        safe = asyncio.create_task(make_safe(lab))
        await until(lambda: lab.device().lock.alarms == 1)
        lab.clock.held = False
        lab.clock.advance(0.05)
        done, interrupted = await safe, await watched
        assert (done.ok, done.effects) == (True, "applied")
        assert (code_of(interrupted), error_of(interrupted)["stage"]) == ("outcome_unknown", "watch")
        assert lab.writes("VAR") == 1
        # the rules looked at it once before the safe state's intent; VAR still held what it held before
        row = await lab.row(KEY)
        assert (row.state, row.verdict) == ("DONE", "not_applied")

    play(life, safe_board(tmp_path))


@pytest.mark.parametrize("restart", [False, True], ids=["same daemon", "next daemon"])
def test_rule_when_a_safe_state_was_dispatched_since_then_only_a_person_settles_the_older_op(
    play: Play, tmp_path: Path, kept_buses: dict[str, SimBus], monkeypatch: pytest.MonkeyPatch, restart: bool
) -> None:
    board = safe_board(tmp_path)

    async def life(lab: Lab) -> None:
        lab.chip().values["OUT"] = 7
        lab.fault(FaultKind.REPLY_LOST, offset=0)
        with monkeypatch.context() as patch:
            patch.setattr("hwtool.recovery.observe", blind)  # the rules see nothing before the safe state
            unknown = await lab.ask("reg.write", register="toy.OUT", value=5, key=KEY)
            assert code_of(unknown) == "outcome_unknown"
            assert (await make_safe(lab)).ok
        await lab.rules_ran()
        await lab_asked(lab)

    async def lab_asked(lab: Lab) -> None:
        row = await lab.row(KEY)
        assert (row.state, (row.evidence or {})["overtaken_by"]) == ("UNKNOWN", (await lab.row(LATER)).op_id)
        got: Any = await lab.ask("op.get", key=KEY, verify=True)
        assert "safe state" in got.op["needs_person"]
        assert code_of(await lab.ask("reg.write", register="toy.OUT", value=1, key=KEY3)) == "held"
        if not restart:
            assert (await lab.operator("op.settle", id=row.op_id, verdict="abandoned", reason="looked")).ok
            assert lab.device().held() is None

    play(life, board)
    if restart:

        async def next_life(lab: Lab) -> None:
            got: Any = await lab.ask("op.get", key=KEY, verify=True)
            assert (got.op["state"], "safe state" in got.op["needs_person"]) == ("UNKNOWN", True)
            assert (await lab.operator("op.settle", id=got.id, verdict="abandoned", reason="looked")).ok
            assert (await lab.ask("reg.write", register="toy.OUT", value=1, key=KEY3)).ok

        play(next_life, board)


def test_rule_when_it_is_under_way_at_the_safe_states_intent_then_the_store_refuses_its_settlement(
    play: Play, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    from hwtool.recovery import try_rules as real_try

    async def life(lab: Lab) -> None:
        lab.chip().values["OUT"] = 7
        lab.fault(FaultKind.REPLY_LOST, offset=0)
        lab.clock.held = True
        await lab.ask("reg.write", register="toy.OUT", value=5, key=KEY)
        gate = asyncio.Event()

        async def slow(*arguments: Any) -> Any:
            verdict = await real_try(*arguments)  # it has looked, and would say applied
            await gate.wait()
            return verdict

        monkeypatch.setattr("hwtool.recovery.try_rules", slow)
        lab.clock.held = False
        lab.clock.advance(1)
        assert (await make_safe(lab)).ok
        gate.set()
        await lab.daemon.kept_done()
        await lab.rules_ran()
        assert (await lab.row(KEY)).state == "UNKNOWN"
        assert (await lab.operator("op.settle", id=1, verdict="abandoned", reason="looked")).ok

    play(life, safe_board(tmp_path))


def test_safe_state_when_called_twice_then_an_older_unknown_one_is_superseded(
    play: Play, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    async def life(lab: Lab) -> None:
        monkeypatch.setattr("hwtool.recovery.observe", blind)
        lab.chip().values |= {"OUT": 7, "DRIVE": 9}
        lab.fault(FaultKind.REPLY_LOST, offset=1)
        first = await make_safe(lab)
        assert code_of(first) == "outcome_unknown"
        await lab.rules_ran()
        assert lab.device().unknown_op == first.id
        lab.chip().values["OUT"] = 7
        second = await make_safe(lab, AGAIN)
        assert (second.ok, second.id) == (True, (first.id or 0) + 1)
        row = await lab.row(LATER)
        assert (row.state, row.verdict, row.verdict_by) == ("DONE", "superseded", "rule")
        assert lab.device().held() is None
        replay = await make_safe(lab)
        assert (code_of(replay), error_of(replay)["settled"]) == ("outcome_unknown", True)
        assert lab.writes("OUT") == 2

    play(life, safe_board(tmp_path))


def test_safe_state_when_another_is_in_its_watch_then_the_first_ends_and_the_second_runs(
    play: Play, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    async def life(lab: Lab) -> None:
        deaf(lab, monkeypatch, "VAR")
        lab.chip().values["VAR"] = 5
        lab.clock.held = True
        first = asyncio.create_task(make_safe(lab))
        await until(lambda: lab.reads("VAR") >= 2)
        second = asyncio.create_task(make_safe(lab, AGAIN))
        await until(lambda: lab.device().lock.alarms == 2)
        lab.clock.held = False
        lab.clock.advance(0.05)
        one, two = await first, await second
        assert (code_of(one), error_of(one)["stage"]) == ("outcome_unknown", "watch")
        assert code_of(two) == "not_applied"  # VAR does not take it
        assert lab.writes("VAR") == 2
        assert (await lab.row(LATER)).verdict in ("superseded", "not_applied")

    play(life, safe_board(tmp_path, device="safe_state = [{ register = 'VAR', value = 0 }]"))


def test_request_when_it_waited_before_a_safe_state_then_it_does_not_run_after_it(
    play: Play, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    async def life(lab: Lab) -> None:
        deaf(lab, monkeypatch, "VAR")
        lab.chip().values |= {"OUT": 7, "VAR": 5}
        watched = await watching(lab, value=5 ^ 1)
        queued = asyncio.create_task(lab.ask("reg.write", register="toy.OUT", value=0x33, key=KEY2))
        await until(lambda: lab.device().waiting == 2)
        safe = asyncio.create_task(make_safe(lab))
        await until(lambda: lab.device().lock.alarms == 1)
        lab.clock.held = False
        lab.clock.advance(0.05)
        assert (await safe).ok
        late = await queued
        assert (code_of(late), error_of(late)["by"], late.effects) == ("busy", "safe_state", "none")
        assert lab.chip().values["OUT"] == 0
        await watched
        assert (await lab.ask("reg.write", register="toy.OUT", value=0x33, key=KEY2)).ok  # the key was not used

    play(life, safe_board(tmp_path))


def test_request_when_a_safe_state_comes_while_it_is_prepared_then_it_is_not_sent(
    play: Play, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    from hwtool.prepare import prepare as real_prepare

    async def life(lab: Lab) -> None:
        gate = asyncio.Event()

        async def slow(resolved: Any) -> Any:
            prepared = await real_prepare(resolved)
            await gate.wait()
            return prepared

        monkeypatch.setattr("hwtool.execution.prepare", slow)
        task = asyncio.create_task(lab.ask("reg.write", register="toy.OUT", value=0x33, key=KEY))
        await until(lambda: lab.reads("OUT"))
        safe = asyncio.create_task(make_safe(lab))
        await until(lambda: lab.device().lock.alarms == 1)
        gate.set()
        assert (code_of(await task), (await safe).ok) == ("busy", True)
        assert lab.writes("OUT") == 1

    play(life, safe_board(tmp_path))


@pytest.mark.parametrize("stop", ["hold", "unknown", "freeze", "breaker", "disk", "all"])
def test_safe_state_when_others_are_stopped_then_it_passes(
    play: Play, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, stop: str
) -> None:
    async def life(lab: Lab) -> None:
        chosen = {stop} if stop != "all" else {"hold", "unknown", "freeze", "breaker", "disk"}
        if "hold" in chosen:
            assert (await lab.operator("device.hold", device="toy", reason="stay away")).ok
        if "freeze" in chosen:
            assert (await lab.operator("daemon.freeze", reason="maintenance")).ok
        if "unknown" in chosen and stop != "all":
            lab.fault(FaultKind.REPLY_LOST)
            lab.fault(FaultKind.NACK, access="read", skip=1, times=4)
            assert code_of(await lab.ask("reg.write", register="toy.OUT", value=5, key=KEY)) == "outcome_unknown"
            await lab.rules_ran()
            lab.bus().faults.clear()
        if "breaker" in chosen:
            for _ in range(FAILURES):
                lab.fault(FaultKind.REQUEST_LOST, access="read")
                await lab.ask("reg.read", registers=["toy.OUT"])
                await lab.device().worker.settled()
            lab.clock.held = True  # or the pause would be over, and the next request the probe
            assert lab.device().worker.state == "failing"
        if "disk" in chosen:
            monkeypatch.setattr("hwtool_store.space.free_bytes", lambda _: 20 << 20)
        refused = await lab.ask("reg.write", register="toy.OUT", value=6, key=KEY2)
        assert code_of(refused) in ("held", "unavailable")
        assert refused.effects == "none"
        lab.clock.held = False
        done = await make_safe(lab)
        assert done.ok, done
        assert lab.chip().values["OUT"] == 0
        again = await lab.ask("reg.write", register="toy.OUT", value=6, key=KEY2)
        assert code_of(again) in ("held", "unavailable") or stop in ("breaker", "unknown")

    play(life, safe_board(tmp_path))


def test_safe_state_when_the_bus_is_wedged_then_it_says_so_and_its_key_stays_unused(play: Play, tmp_path: Path) -> None:
    import threading

    gate = threading.Event()

    async def life(lab: Lab) -> None:
        lab.bus()._sleep = lambda _: (gate.wait(10), None)[1]
        lab.fault(FaultKind.HANG, hang_s=1.0)
        assert error_of(await lab.ask("reg.write", register="toy.OUT", value=5, key=KEY))["stage"] == "transfer_limit"
        wedged = await make_safe(lab)
        assert (code_of(wedged), error_of(wedged)["reason"], wedged.effects) == ("unavailable", "wedged", "none")
        gate.set()
        await until(lambda: not lab.device().worker.wedged)
        assert (await make_safe(lab)).ok

    play(life, safe_board(tmp_path, bus="transfer_limit_ms = 200"))


def test_safe_state_when_the_bus_is_quarantined_then_it_waits_for_silence_and_goes(play: Play, tmp_path: Path) -> None:
    async def life(lab: Lab) -> None:
        lab.fault(FaultKind.REPLY_LOST)
        lab.clock.held = True
        assert code_of(await lab.ask("reg.write", register="toy.OUT", value=5, key=KEY)) == "outcome_unknown"
        safe = asyncio.create_task(make_safe(lab))
        await until(lambda: lab.device().lock.locked())
        assert lab.device().worker.state == "quarantined"
        writes = lab.writes("OUT")
        lab.clock.held = False
        lab.clock.advance(1)
        assert (await safe).ok
        assert lab.writes("OUT") == writes + 1

    play(life, safe_board(tmp_path))


def test_safe_state_when_the_store_has_failed_then_nothing_is_sent(
    play: Play, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    async def life(lab: Lab) -> None:
        def broken(*_: Any) -> int:
            raise OSError("no disk")

        monkeypatch.setattr("hwtool_store.writer.Writer._commit", broken)
        failed = await make_safe(lab)
        assert (code_of(failed), failed.effects) == ("store_failed", "none")
        assert (lab.writes("OUT"), lab.writes("DRIVE")) == (0, 0)

    play(life, safe_board(tmp_path))


def test_safe_state_when_another_device_answers_then_stale_and_nothing_is_sent(play: Play, tmp_path: Path) -> None:
    async def life(lab: Lab) -> None:
        lab.chip().values["ID"] = 8
        refused = await make_safe(lab)
        assert (code_of(refused), error_of(refused)["what"]) == ("stale", "identity")
        assert (lab.writes("OUT"), lab.writes("DRIVE")) == (0, 0)

    identity = "[identity]\nregister = 'ID'\nequals = 7"
    play(life, safe_board(tmp_path, reg("ID", 9, "reset = 7", access="ro"), identity))


def test_safe_state_when_not_after_has_passed_then_expired(play: Play, tmp_path: Path) -> None:
    async def life(lab: Lab) -> None:
        late = await make_safe(lab, not_after=lab.clock.wall_ns() // 1_000_000 - 1)
        assert (code_of(late), late.effects, lab.writes("OUT")) == ("expired", "none", 0)
        assert (await make_safe(lab)).ok

    play(life, safe_board(tmp_path))


def test_safe_state_when_rehearsed_or_planned_then_every_transfer_is_shown_and_none_is_sent(
    play: Play, tmp_path: Path
) -> None:
    async def life(lab: Lab) -> None:
        rehearsed = await make_safe(lab, dry_run=True)
        planned = await lab.ask("reg.plan", method="device.safe_state", params={"device": "toy"})
        assert rehearsed.transfers == planned.transfers
        assert [t["register"] for t in list(planned.transfers or [])] == ["OUT", "DRIVE"]
        assert [t for t in lab.sent() if t["do"] == "write"] == []
        assert lab.device().lock.alarms == 0
        done = await make_safe(lab)
        sent = [t for t in lab.sent() if t["do"] == "write"]
        assert done.ok
        assert [{k: v for k, v in t.items() if k in sent[0]} for t in list(planned.transfers or [])] == sent

    play(life, safe_board(tmp_path))


def test_safe_state_when_the_board_lists_none_then_refused(play: Play, tmp_path: Path) -> None:
    async def life(lab: Lab) -> None:
        refused = await make_safe(lab)
        assert (code_of(refused), error_of(refused)["rule"]) == ("refused", "no_safe_state")
        named = await lab.ask("device.safe_state", device="toy.OUT", key=LATER)
        assert code_of(named) == "invalid_args"

    play(life, safe_board(tmp_path, device=""))


def test_safe_state_when_the_contract_needs_approval_then_never_gated(play: Play, tmp_path: Path) -> None:
    gated = "write = { effect = 'store', provenance = 'generated', source = 'rtl', approval = 'required' }"

    async def life(lab: Lab) -> None:
        assert (await lab.ask("reg.write", register="toy.G", value=1, key=KEY)).status == "pending_approval"
        assert (await make_safe(lab)).ok
        assert lab.writes("G") == 1

    play(life, safe_board(tmp_path, reg("G", 8, gated), device="safe_state = [{ register = 'G', value = 0 }]"))


LINT = {
    "pulse": ("[{ register = 'P', value = 1 }]", "not harmless"),
    "write-1-to-clear": ("[{ register = 'C', value = 1 }]", "not harmless"),
    "push": ("[{ register = 'F', value = 1 }]", "not harmless"),
    "undeclared": ("[{ register = 'U', value = 1 }]", "not harmless"),
    "nonvolatile": ("[{ register = 'N', value = 1 }]", "nonvolatile"),
    "read-only": ("[{ register = 'RO', value = 1 }]", "refused by its contract"),
    "too wide": ("[{ register = 'OUT', value = 256 }]", "not a value"),
    "no such register": ("[{ register = 'NOPE', value = 0 }]", "no such register"),
    "twice": ("[{ register = 'OUT', value = 0 }, { register = 'OUT', value = 1 }]", "named twice"),
    "no register": ("[{ value = 0 }]", "key is missing"),
    "no value": ("[{ register = 'OUT' }]", "not a value"),
    "unknown key": ("[{ register = 'OUT', value = 0, mask = 1 }]", "unknown key"),
}


@pytest.mark.parametrize("case", LINT)
def test_board_when_an_entry_is_not_harmless_to_repeat_then_refused_when_it_is_loaded(
    tmp_path: Path, case: str
) -> None:
    def write(kind: str) -> str:
        return f"write = {{ effect = '{kind}', provenance = 'generated', source = 'rtl' }}"

    entries, why = LINT[case]
    more = (
        reg("P", 10, write("pulse")),
        reg("C", 11, write("one_to_clear")),
        reg("F", 12, write("push"), access="wo"),
        reg("U", 13, "write = { effect = 'unknown', provenance = 'silent' }"),
        reg("N", 14, "persistence = 'nonvolatile'"),
        reg("RO", 15, effect("none"), access="ro"),
    )
    with pytest.raises(Faults, match=why):
        safe_board(tmp_path, *more, device=f"safe_state = {entries}")


def test_values_when_named_or_in_units_then_as_in_requests(tmp_path: Path) -> None:
    named = reg("M", 10, "values = { off = 0, on = 1 }")
    volts = reg("V", 11, "scale = '0.1'\nunit = 'V'")
    entries = (
        "safe_state = [{ register = 'M', value = 'off' }, { register = 'V', value = { scaled = '1.2', unit = 'V' } }]"
    )
    board = safe_board(tmp_path, named, volts, device=entries)
    assert [(e.register.name, e.value) for e in board.devices["toy"].safe_state] == [("M", 0), ("V", 12)]


def test_safe_state_when_its_outcome_is_lost_in_a_crash_then_recovered_by_its_row(
    play: Play, tmp_path: Path, kept_buses: dict[str, SimBus], monkeypatch: pytest.MonkeyPatch
) -> None:
    board = safe_board(tmp_path)

    async def life(lab: Lab) -> None:
        lab.chip().values |= {"OUT": 7, "DRIVE": 9}

        async def recorded(*_: Any) -> Any:
            lab.disk_now("crashed")
            raise RuntimeError("the power is gone")

        with monkeypatch.context() as patch:
            patch.setattr("hwtool.execution.Execution._record", recorded)
            assert code_of(await make_safe(lab)) == "internal"

    async def next_life(lab: Lab) -> None:
        row = await lab.row(LATER)
        # zero is also what a reset leaves, but the chip testifies that it did not restart
        assert (row.state, row.verdict, row.verdict_by) == ("DONE", "applied", "rule")
        assert (await make_safe(lab)).replayed
        assert (lab.writes("OUT"), lab.writes("DRIVE")) == (1, 1)

    play(life, board)
    play(next_life, board, store="crashed")


def test_safe_state_when_its_intent_is_spent_twice_then_stopped_before_the_bus(play: Play, tmp_path: Path) -> None:
    from hwtool.dispatch import Intent, SpentIntent, dispatch_safe_state
    from hwtool.prepare import prepare_safe_state
    from hwtool.resolve import resolve_safe_state
    from hwtool_contracts.messages import SafeStateParams

    async def life(lab: Lab) -> None:
        resolved = resolve_safe_state(lab.daemon.devices, SafeStateParams(device="toy", key=KEY))
        prepared = await prepare_safe_state(resolved)
        intent = Intent(1)
        await dispatch_safe_state(intent, lab.device(), prepared.parts)
        with pytest.raises(SpentIntent):
            await dispatch_safe_state(intent, lab.device(), prepared.parts)
        assert (lab.writes("OUT"), lab.writes("DRIVE")) == (1, 1)

    play(life, safe_board(tmp_path))


def _raised_since(lab: Lab, alarms: int) -> bool:
    return lab.device().lock.alarms > alarms


def test_safe_states_when_two_come_then_the_second_overtakes_what_came_behind_the_first(
    play: Play, tmp_path: Path
) -> None:
    async def life(lab: Lab) -> None:
        for second in (False, True):
            number = int(second)
            first = {"device": "toy", "key": f"first-{number:06}"}
            behind = {"register": "toy.OUT", "value": 3, "key": f"behind-{number:05}"}
            ahead = lab.engine.expect(AGENT, "device.safe_state", first)
            arrived = lab.engine.expect(AGENT, "reg.write", behind, ahead)
            before = lab.device().lock.alarms
            asked = [asyncio.ensure_future(lab.engine.call(AGENT, "device.safe_state", first, None, ahead))]
            await until(partial(_raised_since, lab, before))
            if second:  # of another connection, while the first one is at work
                asked.append(asyncio.ensure_future(make_safe(lab, AGAIN)))
            assert [r.ok for r in await asyncio.gather(*asked)] == [True] * len(asked)
            result = await lab.engine.call(AGENT, "reg.write", behind, None, arrived)
            assert code_of(result) == ("busy" if second else None), result
        assert lab.writes("OUT") == 1 + 3

    play(life, safe_board(tmp_path))


def test_keys_when_their_requests_are_answered_then_nothing_is_kept_of_their_coming(play: Play, tmp_path: Path) -> None:
    async def life(lab: Lab) -> None:
        for number in range(3):
            key = f"coming-{number:04}"
            params = {"register": "toy.OUT", "value": number, "key": key}
            arrived = lab.engine.expect(AGENT, "reg.write", params)
            assert lab.engine._keyed.is_coming(AGENT.principal, key)
            await lab.engine.call(AGENT, "reg.write", params, None, arrived)
        assert lab.engine._keyed._expected == {}

    play(life, safe_board(tmp_path))
