"""Defects of sequences, safe states and buses that an adversary's reading found, each with its story."""

from __future__ import annotations

import asyncio
import sqlite3
from pathlib import Path
from typing import Any

import pytest

from hwtool.config import Board, parse_board
from hwtool.execution import Execution
from hwtool.outcome import ReadRule
from hwtool.reconciliation import settle_read
from hwtool.restarts import restart_between
from hwtool_contracts.toml_reader import Faults
from hwtool_registers.bus import Ambiguous, Confirmed, Sent, as_object
from hwtool_sim.bus import SimBus
from hwtool_sim.faults import Fault, FaultKind
from hwtool_store import operations
from tests.hwtool.conftest import (
    DEFAULTS,
    I2C,
    KEY,
    KEY2,
    KEY3,
    MODBUS,
    Lab,
    Play,
    code_of,
    deaf,
    effect,
    error_of,
    reg,
    toy_board,
    until,
)

SAFE = "safe_state = [{ register = 'OUT', value = 0 }]"
BOTH = "safe_state = [{ register = 'A', value = 0 }, { register = 'B', value = 0 }]"
LONG = "write = { effect = 'store', provenance = 'generated', source = 'rtl', window_ms = 600000 }"
GATED = "write = { effect = 'store', provenance = 'generated', source = 'rtl', approval = 'required' }"
IDENTITY = (reg("ID", 9, "reset = 0x42", access="ro"), "[identity]\nregister = 'ID'\nequals = 0x42\n")
PAIR = (reg("A", 1), reg("B", 2))


def two_chips(directory: Path, *parts: str, first: str = "", second: str = "") -> Board:
    """The same chip twice, as toy and two."""
    (directory / "toy.toml").write_text(I2C + DEFAULTS + "\n".join(parts))
    device = "contract = './toy.toml'\nbus = 'b'\n"
    return parse_board(
        "name = 'toys'\napproval_mode = 'self'\n[buses.b]\nkind = 'sim'\nreply_lifetime_ms = 100\nsole_master = true\n"
        f"[devices.toy]\n{device}address = 0x20\n{first}\n[devices.two]\n{device}address = 0x21\n{second}\n",
        "toys.toml",
        directory,
    )


def write(register: str, value: int) -> dict[str, Any]:
    return {"do": "write", "register": register, "value": value}


async def make_safe(lab: Lab, device: str = "toy", key: str = KEY3) -> Any:
    return await lab.ask("device.safe_state", device=device, key=key)


async def soon(lab: Lab, task: asyncio.Task[Any]) -> None:
    """Let a second go by in small pieces; by then the task must have ended."""
    for _ in range(20):
        for _ in range(30):
            await lab.daemon.ask(lambda _: None)  # the store's thread has done what was asked of it before
            if task.done():
                return
        lab.clock.advance(0.05)
    raise AssertionError("it was not done within a second")


# --- false answers ----------------------------------------------------------------------------------------------


def test_safe_state_when_one_entry_cannot_be_seen_then_it_does_not_hide_that_another_was_not_taken(
    play: Play, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    async def life(lab: Lab) -> None:
        deaf(lab, monkeypatch, "OUT")
        lab.chip().values["OUT"] = 7
        failed = await make_safe(lab)
        assert (failed.ok, failed.verdict, failed.effects) == (False, "not_applied", "unknown")

    entries = "safe_state = [{ register = 'CMD', value = 0 }, { register = 'OUT', value = 0 }]"
    play(life, toy_board(tmp_path, reg("CMD", 0, access="wo"), reg("OUT", 1), device=entries))


def test_safe_state_when_there_is_no_picture_from_before_then_a_wrong_read_back_is_no_success(
    play: Play, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    async def life(lab: Lab) -> None:
        deaf(lab, monkeypatch, "OUT")
        lab.chip().values["OUT"] = 7
        lab.fault(FaultKind.NACK, access="read")
        failed = await make_safe(lab)
        assert (failed.ok, failed.verdict, failed.effects) == (False, "not_applied", "unknown")

    play(life, toy_board(tmp_path, reg("OUT", 1), device=SAFE))


def test_safe_state_when_half_an_entry_was_written_then_partial_and_applied(play: Play, tmp_path: Path) -> None:
    async def life(lab: Lab) -> None:
        lab.chip().values["OUT"] = 0x00070007
        lab.fault(FaultKind.NACK, skip=1)
        failed = await make_safe(lab)
        assert (failed.verdict, failed.effects) == ("partial", "applied")
        assert lab.chip().values["OUT"] == 0x00000007

    board = toy_board(tmp_path, reg("OUT", 0, "width_bits = 32\nspace = 'holding'"), head=MODBUS, device=SAFE)
    play(life, board)


def test_safe_state_when_an_entry_failed_and_the_other_changed_nothing_then_effects_none(
    play: Play, tmp_path: Path
) -> None:
    async def life(lab: Lab) -> None:
        lab.chip().values["A"] = 7
        lab.fault(FaultKind.NACK, offset=1)
        failed = await make_safe(lab)
        assert (failed.verdict, failed.effects) == ("partial", "none")  # B held zero before

    play(life, toy_board(tmp_path, *PAIR, device=BOTH))


def test_safe_state_when_it_writes_a_bank_selector_then_the_daemon_does_not_set_it_back(
    play: Play, tmp_path: Path
) -> None:
    bank = "[banks.B]\nselect = [{ register = 'PAGE', value = 1 }]\n"

    async def life(lab: Lab) -> None:
        assert (await lab.ask("reg.read", registers=["toy.X"])).ok  # the home of PAGE is known
        done = await make_safe(lab)
        assert (done.ok, done.effects, lab.chip().values["PAGE"]) == (True, "applied", 1)
        assert (await lab.ask("reg.read", registers=["toy.PAGE"])).ok
        assert lab.chip().values["PAGE"] == 1

    parts = (reg("PAGE", 0), reg("X", 5, "bank = 'B'"), bank)
    play(life, toy_board(tmp_path, *parts, device="safe_state = [{ register = 'PAGE', value = 1 }]"))


@pytest.mark.parametrize(
    ("before", "now", "restart"),
    [
        ("abc", "abc", "same"),
        ("abc", "def", "reset"),
        ("host:1", "host:1", "same"),
        ("host:1", "host:2", "reset"),
        ("abc", "host:1", "silent"),
        ("host:1", "abc", "silent"),
        (None, "abc", "silent"),
        ("abc", None, "silent"),
    ],
)
def test_boot_evidence_when_of_two_kinds_then_nothing_can_be_said(
    before: str | None, now: str | None, restart: str
) -> None:
    assert restart_between(before, now) == restart


def test_crash_when_the_devices_own_word_cannot_be_had_then_its_hosts_is_not_taken_for_a_restart(
    play: Play, tmp_path: Path, kept_buses: dict[str, SimBus]
) -> None:
    board = toy_board(tmp_path, reg("A", 0), device="restarts = 'with_host'")

    async def life(lab: Lab) -> None:
        lab.fault(FaultKind.REPLY_LOST)
        lab.clock.held = True
        assert code_of(await lab.ask("reg.write", register="toy.A", value=5, key=KEY)) == "outcome_unknown"
        lab.disk_now("crashed")
        kept_buses["b"].unplug()

    async def after(lab: Lab) -> None:
        row = await lab.row()
        assert (row.state, lab.device().generation) == ("UNKNOWN", 1)
        assert lab.device().held() is not None
        kept_buses["b"].plug()
        await lab.engine.rules_done(lab.device())  # till the quarantine has found it back, a look is refused
        assert (await lab.ask("op.get", key=KEY, verify=True)).verdict == "applied"

    play(life, board)
    play(after, board, store="crashed")


def test_pop_when_it_took_fewer_than_asked_for_then_the_bound_is_what_it_took() -> None:
    rule = ReadRule("FIFO", "pop", level="LEVEL", level_mask=0xFF, count=4)
    lost: Any = settle_read([rule], {"LEVEL": 6}, {"LEVEL": 4}, "same", True)
    assert (lost.verdict, lost.lost) == ("lost", 2)


# --- stores that fail -------------------------------------------------------------------------------------------


@pytest.mark.parametrize("first", [False, True], ids=["alone", "after a step with an effect"])
def test_step_when_its_outcome_cannot_be_recorded_then_the_value_and_all_effects_are_answered(
    play: Play, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, first: bool
) -> None:
    real = operations.t2_done

    async def life(lab: Lab) -> None:
        lab.chip().push("FIFO", [0x5A])
        calls: list[int] = []

        def failing(*arguments: Any, **named: Any) -> int:
            calls.append(1)
            if len(calls) == (2 if first else 1):
                raise sqlite3.OperationalError("disk I/O error")
            return real(*arguments, **named)

        monkeypatch.setattr(operations, "t2_done", failing)
        steps = ([write("toy.A", 5)] if first else []) + [{"do": "read_effectful", "register": "toy.FIFO"}]
        failed = await lab.ask("sequence.run", steps=steps, key=KEY)
        assert (code_of(failed), failed.effects, failed.durable) == ("store_failed", "applied", False)
        assert [v["raw"] for v in failed.values or [] if v["register"] == "toy.FIFO"] == ["0x5a"]

    play(life, toy_board(tmp_path, reg("A", 0), reg("FIFO", 4, effect("pop"), access="ro")))


def test_dispatch_when_the_store_has_failed_since_the_intent_then_nothing_is_sent(
    play: Play, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    real = Execution._intended

    async def life(lab: Lab) -> None:
        async def intended(*arguments: Any) -> int:
            number = await real(*arguments)

            def broken(_: sqlite3.Connection) -> None:
                raise sqlite3.OperationalError("disk I/O error")

            with pytest.raises(Exception, match="disk I/O error"):
                await lab.daemon.ask(broken)
            return number

        monkeypatch.setattr(Execution, "_intended", intended)
        failed = await lab.ask("reg.write", register="toy.A", value=5, key=KEY)
        assert (code_of(failed), failed.effects, lab.writes("A")) == ("store_failed", "none", 0)

    play(life, toy_board(tmp_path, reg("A", 0)))


def test_outcome_when_a_defect_keeps_it_from_being_recorded_then_its_row_is_unknown_and_the_device_held(
    play: Play, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    async def life(lab: Lab) -> None:
        with monkeypatch.context() as patch:

            def broken(*_: Any, **__: Any) -> int:
                raise ZeroDivisionError("a defect")

            patch.setattr(operations, "t2_done", broken)
            failed = await lab.ask("reg.write", register="toy.A", value=5, key=KEY)
        assert (code_of(failed), failed.durable, lab.daemon.failed) == ("store_failed", False, False)
        assert ((await lab.row()).state, lab.device().unknown_op) == ("UNKNOWN", failed.id)
        assert code_of(await lab.ask("reg.write", register="toy.A", value=6, key=KEY2)) == "held"
        assert (await lab.ask("op.get", key=KEY, verify=True)).verdict == "applied"
        assert lab.device().held() is None

    play(life, toy_board(tmp_path, reg("A", 0)))


def test_sequence_when_a_defect_stops_a_later_step_then_its_header_ends_all_the_same(
    play: Play, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    async def life(lab: Lab) -> None:
        async def broken(*_: Any) -> Any:
            raise ZeroDivisionError("a defect")

        monkeypatch.setattr("hwtool.sequences.values_of", broken)
        steps = [write("toy.A", 1), {"do": "read", "register": "toy.B"}]
        failed = await lab.ask("sequence.run", steps=steps, key=KEY)
        assert (code_of(failed), failed.verdict) == ("not_applied", "partial")
        assert (await lab.row()).state == "DONE"

    play(life, toy_board(tmp_path, *PAIR))


# --- grants -----------------------------------------------------------------------------------------------------


async def approved(lab: Lab, method: str, **request: Any) -> Any:
    pending = await lab.ask(method, **request)
    screen: Any = (await lab.operator("approval.show", approval=pending.id)).approvals
    lab.clock.advance(2)
    assert (await lab.operator("approval.approve", approval=pending.id, code=screen[0]["code"])).ok
    return screen[0]


REQUESTS: dict[str, tuple[str, dict[str, Any]]] = {
    "write": ("reg.write", {"register": "toy.G", "value": 5, "key": KEY}),
    "sequence": ("sequence.run", {"steps": [write("toy.G", 5)], "key": KEY}),
}


@pytest.mark.parametrize("kind", REQUESTS)
@pytest.mark.parametrize("what", ["expires", "restarts", "denied"])
def test_grant_when_it_ends_while_the_request_waits_for_its_turn_then_it_is_not_used(
    play: Play, tmp_path: Path, kind: str, what: str
) -> None:
    method, request = REQUESTS[kind]

    async def life(lab: Lab) -> None:
        await approved(lab, method, **request)
        await lab.device().lock.acquire()
        waiting = asyncio.create_task(lab.ask(method, **request))
        await until(lambda: lab.device().waiting)
        if what == "expires":
            lab.clock.advance(601)
        elif what == "restarts":
            lab.chip().reset()
        else:
            assert (await lab.operator("approval.deny", approval=1, reason="no")).ok
        lab.device().lock.release()
        late = await waiting
        assert code_of(late) == ("approval_denied" if what == "denied" else "approval_expired")
        assert (late.effects, lab.writes("G")) == ("none", 0)

    play(life, toy_board(tmp_path, reg("G", 0, GATED)))


def test_screen_when_a_step_updates_what_an_earlier_one_writes_then_it_shows_what_will_be_sent(
    play: Play, tmp_path: Path
) -> None:
    fields = "[registers.F.fields]\nLOW = { bits = '3:0' }\nHIGH = { bits = '7:4' }"
    steps = [write("toy.F", 0x0F), {"do": "update", "register": "toy.F", "fields": {"HIGH": 1}}, write("toy.G", 1)]

    async def life(lab: Lab) -> None:
        screen = await approved(lab, "sequence.run", steps=steps, key=KEY)
        assert [t["data"] for t in screen["transfers"]] == ["0f", "1f", "01"]
        assert (await lab.ask("sequence.run", steps=steps, key=KEY)).ok
        assert [t["data"] for t in lab.sent() if t["do"] == "write"] == ["0f", "1f", "01"]

    play(life, toy_board(tmp_path, reg("F", 0, fields), reg("G", 1, GATED)))


@pytest.mark.parametrize(("value", "warned"), [(0x81, True), (0x01, False)])
def test_plan_when_an_earlier_step_wrote_reserved_bits_then_it_warns_of_what_it_cannot_know(
    value: int, warned: bool, play: Play, tmp_path: Path
) -> None:
    fields = "[registers.F.fields]\nLOW = { bits = '6:0' }\nR7 = { bits = 7, reserved = 'keep' }"
    steps = [write("toy.F", value), {"do": "update", "register": "toy.F", "fields": {"LOW": 2}}]

    async def life(lab: Lab) -> None:
        planned = await lab.ask("reg.plan", method="sequence.run", params={"steps": steps})
        assert ("depends_on_earlier" in [w.partition(":")[0] for w in planned.warnings]) is warned
        assert (await lab.ask("sequence.run", steps=steps, key=KEY)).ok
        assert [t["data"] for t in lab.sent() if t["do"] == "write"] == [f"{value:02x}", "02"]  # bit 7 did not hold

    play(life, toy_board(tmp_path, reg("F", 0, fields)))


def test_plan_when_a_step_depends_on_what_an_earlier_one_sets_off_then_it_warns(play: Play, tmp_path: Path) -> None:
    go = "write = { effect = 'pulse', provenance = 'generated', source = 'rtl', affects = ['F'], verify = 'none' }"
    fields = "[registers.F.fields]\nLOW = { bits = '3:0' }\nHIGH = { bits = '7:4' }"
    steps = [write("toy.GO", 1), {"do": "update", "register": "toy.F", "fields": {"HIGH": 1}}]

    async def life(lab: Lab) -> None:
        planned = await lab.ask("reg.plan", method="sequence.run", params={"steps": steps})
        assert [w.partition(":")[0] for w in planned.warnings] == ["depends_on_earlier", "may_be_partial"]

    play(life, toy_board(tmp_path, reg("F", 0, fields), reg("GO", 1, go, access="wo")))


# --- safe states that must not wait, and must not be overtaken ------------------------------------------------------


def test_safe_state_when_a_sequence_keeps_the_turn_and_waits_for_another_device_then_it_does_not_wait(
    play: Play, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    async def life(lab: Lab) -> None:
        deaf(lab, monkeypatch, "VAR")
        lab.clock.held = True
        watched = asyncio.create_task(lab.ask("reg.write", register="two.VAR", value=5, key=KEY))
        await until(lambda: lab.reads("VAR", "two") >= 2)
        steps = [write("toy.OUT", 1), write("two.OUT", 1)]
        sequence = asyncio.create_task(lab.ask("sequence.run", steps=steps, key=KEY2))
        await until(lambda: lab.device("toy").lock.locked())
        safe = asyncio.create_task(make_safe(lab))
        await soon(lab, safe)
        assert (safe.result().ok, code_of(await sequence), lab.writes("OUT")) == (True, "busy", 1)
        lab.clock.held = False
        lab.clock.advance(600)
        await watched

    play(life, two_chips(tmp_path, reg("OUT", 0), reg("VAR", 2, LONG), first=SAFE, second=SAFE))


def test_safe_state_when_a_step_on_another_device_is_watched_then_the_watch_ends(
    play: Play, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    async def life(lab: Lab) -> None:
        deaf(lab, monkeypatch, "VAR")
        lab.clock.held = True
        steps = [write("toy.VAR", 5), write("two.OUT", 1)]
        sequence = asyncio.create_task(lab.ask("sequence.run", steps=steps, key=KEY2))
        await until(lambda: lab.reads("VAR") >= 2)
        safe = asyncio.create_task(make_safe(lab, "two"))
        await soon(lab, safe)
        assert (safe.result().ok, code_of(await sequence), lab.writes("OUT", "two")) == (True, "outcome_unknown", 1)

    play(life, two_chips(tmp_path, reg("OUT", 0), reg("VAR", 2, LONG), second=SAFE))


def test_safe_state_when_a_sequence_waits_with_a_long_interval_then_it_does_not_wait_for_that(
    play: Play, tmp_path: Path
) -> None:
    async def life(lab: Lab) -> None:
        lab.clock.held = True
        wait = {"do": "wait_until", "register": "toy.OUT", "equals": 1, "timeout_ms": 600000, "interval_ms": 60000}
        sequence = asyncio.create_task(lab.ask("sequence.run", steps=[write("toy.OUT", 5), wait], key=KEY2))
        await until(lambda: lab.reads("OUT") >= 3)
        safe = asyncio.create_task(make_safe(lab))
        await soon(lab, safe)
        assert (safe.result().ok, lab.chip().values["OUT"]) == (True, 0)
        assert (await sequence).verdict == "partial"

    play(life, toy_board(tmp_path, reg("OUT", 0), device=SAFE))


def test_step_when_a_safe_state_comes_for_another_device_of_its_sequence_then_it_is_not_sent(
    play: Play, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    from hwtool.prepare import prepare as real

    async def life(lab: Lab) -> None:
        started: list[asyncio.Task[Any]] = []

        async def slow(resolved: Any) -> Any:
            prepared = await real(resolved)
            if not started:
                started.append(asyncio.create_task(make_safe(lab, "two")))
                await until(lambda: lab.device("two").lock.alarms)
            return prepared

        monkeypatch.setattr("hwtool.execution.prepare", slow)
        steps = [write("toy.OUT", 1), write("two.OUT", 1)]
        stopped = await lab.ask("sequence.run", steps=steps, key=KEY2)
        assert (code_of(stopped), lab.writes("OUT"), (await started[0]).ok) == ("busy", 0, True)

    play(life, two_chips(tmp_path, reg("OUT", 0), second=SAFE))


def test_safe_state_when_a_rule_it_lets_run_loses_a_reply_then_it_is_sent_all_the_same(
    play: Play, tmp_path: Path
) -> None:
    async def life(lab: Lab) -> None:
        lab.chip().values["B"] = 9
        lab.fault(FaultKind.REPLY_LOST)
        lab.fault(FaultKind.NACK, access="read", offset=1, skip=1)
        await lab.ask("reg.write", register="toy.A", value=5, key=KEY)
        await lab.rules_ran()
        assert (await lab.row()).state == "UNKNOWN"
        lab.bus().faults.clear()
        lab.fault(FaultKind.REPLY_LOST, access="read", offset=1)
        assert (await make_safe(lab)).ok
        assert lab.chip().values["B"] == 0

    board = toy_board(tmp_path, *IDENTITY, *PAIR, device="safe_state = [{ register = 'B', value = 0 }]")
    play(life, board)


@pytest.mark.parametrize("offset", [9, 1], ids=["of the identity", "of a picture from before"])
def test_safe_state_when_a_reply_to_its_own_looking_is_lost_then_it_is_sent_all_the_same(
    play: Play, tmp_path: Path, offset: int
) -> None:
    async def life(lab: Lab) -> None:
        lab.chip().values |= {"A": 7, "B": 7}
        lab.fault(FaultKind.REPLY_LOST, access="read", offset=offset)
        assert (await make_safe(lab)).ok
        assert (lab.writes("A"), lab.writes("B")) == (1, 1)

    play(life, toy_board(tmp_path, *IDENTITY, *PAIR, device=BOTH))


def test_safe_state_when_the_bus_is_replugged_between_two_entries_then_the_second_is_not_sent_to_whoever_is_there(
    play: Play, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    async def life(lab: Lab) -> None:
        lab.chip().values |= {"A": 7, "B": 7}
        bus, real = lab.bus(), lab.bus().perform
        writes: list[Any] = []

        def perform(transfer: Any) -> Any:
            if as_object(transfer)["do"] == "write":
                writes.append(transfer)
                if len(writes) == 1:
                    bus.unplug()
                    answer = real(transfer)
                    lab.chip().values["ID"] = 0x99
                    bus.plug()
                    return answer
            return real(transfer)

        monkeypatch.setattr(bus, "perform", perform)
        failed = await make_safe(lab)
        assert (failed.verdict, failed.effects, lab.chip().values["B"]) == ("not_applied", "none", 7)

    play(life, toy_board(tmp_path, *IDENTITY, *PAIR, device=BOTH))


@pytest.mark.parametrize("member", ["generation", "contract_digest", "store", "queue_ms", "expect", "run"])
def test_safe_state_when_it_is_given_what_could_be_in_its_way_then_it_does_not_know_it(
    play: Play, tmp_path: Path, member: str
) -> None:
    async def life(lab: Lab) -> None:
        refused = await lab.ask("device.safe_state", device="toy", key=KEY, **{member: 1})
        assert (code_of(refused), lab.writes("OUT")) == ("invalid_args", 0)

    play(life, toy_board(tmp_path, reg("OUT", 0), device=SAFE))


# --- turns, stops, restarts, answers of headers --------------------------------------------------------------------


def test_turn_when_it_comes_in_the_moment_its_time_is_over_then_nothing_is_lost_or_kept(
    play: Play, tmp_path: Path
) -> None:
    async def life(lab: Lab) -> None:
        lock = lab.device().lock
        for _ in range(50):
            await lock.acquire()
            waiting = asyncio.create_task(lock.acquire())
            await asyncio.sleep(0)
            lock.release()  # the turn is passed on …
            waiting.cancel()  # … to somebody who gives up in this moment
            await asyncio.gather(waiting, return_exceptions=True)
            if not waiting.cancelled():
                lock.release()
            assert not lock.locked()
            await lock.acquire()
            giving_up = asyncio.create_task(lock.acquire())
            await asyncio.sleep(0)
            giving_up.cancel()
            lock.release()
            await asyncio.gather(giving_up, return_exceptions=True)
            assert not lock.locked()

    play(life, toy_board(tmp_path, reg("A", 0)))


def test_request_when_it_waits_and_the_daemon_stops_then_it_is_not_begun(play: Play, tmp_path: Path) -> None:
    async def life(lab: Lab) -> None:
        await lab.device().lock.acquire()
        waiting = asyncio.create_task(lab.ask("reg.write", register="toy.A", value=1, key=KEY))
        await until(lambda: lab.device().waiting)
        lab.daemon.stopping = True
        lab.device().lock.release()
        refused = await waiting
        assert (code_of(refused), error_of(refused)["reason"], lab.writes("A")) == ("unavailable", "stopping", 0)

    play(life, toy_board(tmp_path, reg("A", 0)))


def test_sequence_when_the_device_restarts_between_two_steps_then_it_stops(play: Play, tmp_path: Path) -> None:
    async def life(lab: Lab) -> None:
        lab.bus().faults.append(Fault(FaultKind.RESET, 0x20, "read", offset=2, when="after"))
        steps = [write("toy.A", 1), {"do": "read", "register": "toy.B"}, write("toy.A", 2)]
        stopped = await lab.ask("sequence.run", steps=steps, key=KEY)
        assert (stopped.verdict, error_of(stopped)["observed"]) == ("partial", {"step": 3, "code": "stale"})
        assert lab.writes("A") == 1

    play(life, toy_board(tmp_path, *PAIR))


def test_header_when_it_is_unknown_then_its_answers_name_the_step_and_verify_tries_its_rules(
    play: Play, tmp_path: Path
) -> None:
    async def life(lab: Lab) -> None:
        lab.fault(FaultKind.REPLY_LOST)
        lab.fault(FaultKind.NACK, access="read", offset=1, skip=1, times=1)
        steps = [write("toy.A", 1)]
        first = await lab.ask("sequence.run", steps=steps, key=KEY)
        again = await lab.ask("sequence.run", steps=steps, key=KEY)
        assert [error_of(r)["op"] for r in (first, again)] == [2, 2]
        assert first.simulated
        await lab.rules_ran()
        assert (await lab.row()).state == "UNKNOWN"
        assert (await lab.ask("op.get", key=KEY, verify=True)).verdict == "applied"
        entries: Any = (await lab.ask("journal.read", device="toy")).entries
        assert [e["kind"] for e in entries if e["what"] == "intent"] == ["sequence", "write"]

    play(life, toy_board(tmp_path, *PAIR))


def test_header_when_it_ends_after_a_crash_then_it_has_the_values_of_its_steps(
    play: Play, tmp_path: Path, kept_buses: dict[str, SimBus], monkeypatch: pytest.MonkeyPatch
) -> None:
    board = toy_board(tmp_path, reg("A", 0), reg("C", 4, effect("clear"), access="ro"))
    steps = [{"do": "read_effectful", "register": "toy.C"}, {"do": "read", "register": "toy.A"}]

    async def life(lab: Lab) -> None:
        lab.chip().values["C"] = 0x5A

        async def cut(*_: Any) -> Any:
            lab.disk_now("crashed")
            raise RuntimeError("the power is gone")

        monkeypatch.setattr("hwtool.sequences.values_of", cut)
        await lab.ask("sequence.run", steps=steps, key=KEY)

    async def after(lab: Lab) -> None:
        again = await lab.ask("sequence.run", steps=steps, key=KEY)
        assert (again.verdict, [v["raw"] for v in again.values or []]) == ("partial", ["0x5a"])
        assert lab.reads("C") == 1

    play(life, board)
    play(after, board, store="crashed")


def test_store_when_the_caller_saw_more_then_every_device_of_its_sequence_is_held(play: Play, tmp_path: Path) -> None:
    async def life(lab: Lab) -> None:
        seen = {"id": str(lab.daemon.store.store_id), "seq": 1_000_000}
        steps = [write("toy.OUT", 1), write("two.OUT", 1)]
        assert code_of(await lab.ask("sequence.run", steps=steps, key=KEY, store=seen)) == "stale"
        assert [lab.device(n).held() is not None for n in ("toy", "two")] == [True, True]

    play(life, two_chips(tmp_path, reg("OUT", 0)))


def test_write_when_a_person_calls_it_lost_then_refused_since_there_is_no_value(play: Play, tmp_path: Path) -> None:
    async def life(lab: Lab) -> None:
        lab.fault(FaultKind.REPLY_LOST)
        unknown = await lab.ask("reg.write", register="toy.W", value=1, key=KEY)
        await lab.rules_ran()
        refused = await lab.operator("op.settle", id=unknown.id, verdict="lost", reason="x")
        assert (code_of(refused), error_of(refused)["rule"]) == ("refused", "verdict_of_write")

    play(life, toy_board(tmp_path, reg("W", 0, access="wo")))


def test_reply_when_it_is_short_in_a_clean_read_then_the_buss_error_and_no_defect(
    play: Play, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    async def life(lab: Lab) -> None:
        monkeypatch.setattr(lab.bus(), "perform", lambda _: Confirmed(b""))
        failed = await lab.ask("reg.read", registers=["toy.A"])
        assert (code_of(failed), failed.effects) == ("bus_fault", "none")

    play(life, toy_board(tmp_path, *PAIR))


# --- found by a second reading, in the mends of the first ------------------------------------------------------------


def test_step_when_another_devices_safe_state_ended_its_watch_then_its_rules_run_and_its_device_is_free_again(
    play: Play, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    async def life(lab: Lab) -> None:
        deaf(lab, monkeypatch, "VAR")
        lab.clock.held = True
        steps = [write("toy.VAR", 5), write("two.OUT", 1)]
        sequence = asyncio.create_task(lab.ask("sequence.run", steps=steps, key=KEY2))
        await until(lambda: lab.reads("VAR") >= 2)
        await soon(lab, asyncio.create_task(make_safe(lab, "two")))
        await sequence
        await lab.daemon.kept_done()
        assert lab.device().held() is None
        assert (await lab.ask("op.get", key=f"{KEY2}#1")).verdict == "not_applied"

    play(life, two_chips(tmp_path, reg("OUT", 0), reg("VAR", 2, LONG), second=SAFE))


BANKED = (
    reg("SEL", 8),
    reg("S", 1),
    reg("X", 2, "bank = 'B'"),
    "[banks.B]\nselect = [{ register = 'SEL', value = 1 }]\n",
)


@pytest.mark.parametrize("first", ["S", "X"])
@pytest.mark.parametrize("access", ["read", "write"])
def test_safe_state_when_the_line_was_in_doubt_then_banked_entries_are_sent_all_the_same(
    play: Play, tmp_path: Path, first: str, access: str
) -> None:
    second = "X" if first == "S" else "S"
    entries = f"safe_state = [{{ register = '{first}', value = 0 }}, {{ register = '{second}', value = 0 }}]"

    async def life(lab: Lab) -> None:
        lab.chip().values |= {"S": 7, "X": 7}
        lab.fault(FaultKind.REPLY_LOST, access=access, offset=1)
        await make_safe(lab)
        assert (lab.chip().values["S"], lab.chip().values["X"]) == (0, 0)
        assert (lab.writes("S"), lab.writes("X")) == (1, 1)
        await lab.rules_ran()

    play(life, toy_board(tmp_path, *BANKED, device=entries))


def test_dispatch_when_the_bus_was_away_and_is_back_since_the_identity_was_looked_at_then_nothing_is_sent(
    play: Play, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    real = Execution._intended

    async def life(lab: Lab) -> None:
        async def intended(*arguments: Any) -> int:
            number = await real(*arguments)
            lab.bus().unplug()
            assert not (await lab.ask("reg.read", registers=["toy.A"])).ok
            lab.chip().values["ID"] = 0x99
            lab.bus().plug()
            assert (await lab.ask("reg.read", registers=["toy.A"])).ok  # somebody else's read has opened it
            return number

        monkeypatch.setattr(Execution, "_intended", intended)
        failed = await lab.ask("reg.write", register="toy.A", value=5, key=KEY)
        assert (code_of(failed), failed.effects, lab.writes("A")) == ("bus_fault", "none", 0)

    play(life, toy_board(tmp_path, *IDENTITY, *PAIR))


def test_rules_when_another_device_answers_then_nothing_is_settled_by_what_it_holds(play: Play, tmp_path: Path) -> None:
    async def life(lab: Lab) -> None:
        lab.fault(FaultKind.REPLY_LOST)
        lab.clock.held = True
        assert code_of(await lab.ask("reg.write", register="toy.A", value=5, key=KEY)) == "outcome_unknown"
        lab.chip().values |= {"ID": 0x99, "A": 0}
        lab.clock.held = False
        lab.clock.advance(1)
        await lab.rules_ran()
        told: Any = (await lab.ask("op.get", key=KEY, verify=True)).op
        assert (told["state"], "another device" in told["needs_person"]) == ("UNKNOWN", True)
        lab.chip().values |= {"ID": 0x42, "A": 5}
        assert (await lab.ask("op.get", key=KEY, verify=True)).verdict == "applied"

    play(life, toy_board(tmp_path, *IDENTITY, *PAIR))


def test_sequence_when_a_safe_state_passes_while_it_waits_for_its_first_turn_then_it_takes_no_turn(
    play: Play, tmp_path: Path
) -> None:
    async def life(lab: Lab) -> None:
        await lab.device("toy").lock.acquire()
        await lab.device("two").lock.acquire()
        steps = [write("toy.OUT", 1), write("two.OUT", 1)]
        sequence = asyncio.create_task(lab.ask("sequence.run", steps=steps, key=KEY2))
        await until(lambda: lab.device("toy").waiting)
        safe = asyncio.create_task(make_safe(lab))
        await until(lambda: lab.device("toy").lock.alarms)
        lab.device("toy").lock.release()
        assert (await safe).ok
        assert code_of(await sequence) == "busy"
        assert not lab.device("toy").lock.locked()
        lab.device("two").lock.release()

    play(life, two_chips(tmp_path, reg("OUT", 0), first=SAFE))


def test_grant_when_it_expires_over_the_clean_steps_before_the_first_effect_then_it_is_not_used(
    play: Play, tmp_path: Path
) -> None:
    wait = {"do": "wait_until", "register": "toy.A", "equals": 1, "timeout_ms": 600000, "interval_ms": 60000}
    request = {"steps": [wait, write("toy.G", 5)], "key": KEY}

    async def life(lab: Lab) -> None:
        await approved(lab, "sequence.run", **request)
        lab.clock.held = True
        waiting = asyncio.create_task(lab.ask("sequence.run", **request))
        await until(lambda: lab.reads("A"))
        for _ in range(5):
            await lab.daemon.ask(lambda _: None)
        lab.clock.advance(300)
        lab.chip().values["A"] = 1
        lab.clock.held = False
        lab.clock.advance(1)
        late = await waiting
        assert (code_of(late), lab.writes("G")) == ("approval_expired", 0)

    play(life, toy_board(tmp_path, reg("A", 1), reg("G", 0, GATED)))


def test_value_when_a_defect_kept_its_outcome_from_being_recorded_then_it_is_kept_and_can_be_settled(
    play: Play, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    async def life(lab: Lab) -> None:
        lab.chip().values["C"] = 0x5A
        with monkeypatch.context() as patch:

            def broken(*_: Any, **__: Any) -> int:
                raise ZeroDivisionError("a defect")

            patch.setattr(operations, "t2_done", broken)
            failed = await lab.ask("reg.read_effectful", register="toy.C", key=KEY)
        again = await lab.ask("reg.read_effectful", register="toy.C", key=KEY)
        assert [v["raw"] for v in again.values or []] == ["0x5a"]
        await lab.rules_ran()
        assert (await lab.operator("op.settle", id=failed.id, verdict="applied", reason="it is in the record")).ok
        settled = await lab.ask("reg.read_effectful", register="toy.C", key=KEY)
        assert (settled.ok, [v["raw"] for v in settled.values or []], lab.reads("C")) == (True, ["0x5a"], 1)

    play(life, toy_board(tmp_path, reg("C", 4, effect("clear"), access="ro")))


def test_rules_when_the_bus_was_away_while_they_ran_then_they_run_again_when_it_is_back(
    play: Play, tmp_path: Path
) -> None:
    async def life(lab: Lab) -> None:
        lab.fault(FaultKind.UNPLUG, skip=0)
        assert code_of(await lab.ask("reg.write", register="toy.A", value=5, key=KEY)) == "outcome_unknown"
        for _ in range(5):
            await lab.daemon.ask(lambda _: None)
        assert lab.device().unknown_op is not None
        lab.bus().plug()
        await lab.rules_ran()
        assert (await lab.row()).verdict == "not_applied"
        assert lab.device().held() is None

    play(life, toy_board(tmp_path, *PAIR))


def test_rehearsal_when_the_breakers_pause_is_over_then_a_sequence_of_two_devices_is_let_through(
    play: Play, tmp_path: Path
) -> None:
    async def life(lab: Lab) -> None:
        worker = lab.device().worker
        for _ in range(5):
            worker.breaker.note(Ambiguous(Sent.REPLY, "no reply"), lab.clock.mono)
        lab.clock.advance(2)
        steps = [write("toy.OUT", 1), write("two.OUT", 1)]
        assert (await lab.ask("sequence.run", steps=steps, key=KEY, dry_run=True)).ok

    play(life, two_chips(tmp_path, reg("OUT", 0)))


def test_board_when_a_safe_state_lists_a_selector_and_what_it_selects_then_refused(tmp_path: Path) -> None:
    entries = "safe_state = [{ register = 'SEL', value = 0 }, { register = 'X', value = 0 }]"
    with pytest.raises(Faults, match="would undo"):
        toy_board(tmp_path, *BANKED, device=entries)


def test_screen_when_an_earlier_step_writes_the_selector_of_a_later_one_then_it_warns(
    play: Play, tmp_path: Path
) -> None:
    async def life(lab: Lab) -> None:
        steps = [write("toy.SEL", 5), write("toy.X", 9)]
        planned = await lab.ask("reg.plan", method="sequence.run", params={"steps": steps})
        assert "depends_on_earlier" in [w.partition(":")[0] for w in planned.warnings]

    play(life, toy_board(tmp_path, *BANKED))
