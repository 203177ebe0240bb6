"""What a reader with fresh eyes found in retries, reload, events and the journal's files; each was wrong once."""

from __future__ import annotations

import asyncio
import json
import time
from pathlib import Path
from typing import Any

import pytest

from hwtool.config import Board
from hwtool.journal_files import JournalFiles, faults_of
from hwtool.policy import Caller
from hwtool.reloading import needs_restart
from hwtool_registers.bus import Ambiguous, RegisterRead, Sent
from hwtool_sim.faults import FaultKind
from tests.hwtool.conftest import (
    AGENT,
    KEY,
    KEY2,
    KEY3,
    FakeClock,
    Lab,
    Play,
    code_of,
    error_of,
    reg,
    toy_board,
    until,
)
from tests.hwtool.test_approvals import approved
from tests.hwtool.test_events import Ears, pass_time
from tests.hwtool.test_journal_files import files, rendered, write
from tests.hwtool.test_modes import started
from tests.hwtool.test_permission import board, rule

PARTS = (reg("A", 0), reg("B", 1))
IDENTITY = (reg("A", 0), reg("ID", 9, "reset = 0x42", "ro"), "[identity]\nregister = 'ID'\nequals = 0x42\n")
RETRIES = "read_attempts = 3"
WRITE: dict[str, Any] = {"register": "toy.A", "value": 7}


# --- retries ------------------------------------------------------------------------------------------------------


def test_watch_when_its_look_is_lost_and_another_chip_answers_then_nothing_is_claimed(
    play: Play, tmp_path: Path
) -> None:
    async def life(lab: Lab) -> None:
        bus, swapped = lab.bus(), False
        perform = bus.perform

        def perform_once_by_another(transfer: Any) -> Any:
            nonlocal swapped
            if not swapped and lab.writes("A") == 1 and isinstance(transfer, RegisterRead):
                swapped = True
                lab.chip().values |= {"ID": 0x99, "A": 7}  # another chip, which holds the value by chance
                return Ambiguous(Sent.REPLY, "no reply")
            return perform(transfer)

        bus.perform = perform_once_by_another  # type: ignore[method-assign]
        told = await lab.ask("reg.write", **WRITE, key=KEY)
        assert (told.status, told.effects, told.verdict) == ("failed", "unknown", None)

    play(life, toy_board(tmp_path, *IDENTITY, bus=RETRIES))


def test_preparation_when_a_reply_is_lost_and_read_again_then_the_key_is_used_for_the_effect_alone(
    play: Play, tmp_path: Path
) -> None:
    async def life(lab: Lab) -> None:
        lab.fault(FaultKind.REPLY_LOST, access="read", offset=0)
        told = await lab.ask("reg.write", **WRITE, key=KEY)
        assert (told.ok, told.verdict, lab.writes("A")) == (True, "applied", 1)

    play(life, toy_board(tmp_path, *PARTS, bus=RETRIES))


def test_preparation_when_a_safe_state_is_asked_for_then_not_tried_again(play: Play, tmp_path: Path) -> None:
    async def life(lab: Lab) -> None:
        bus, loop, looks = lab.bus(), asyncio.get_running_loop(), 0
        perform = bus.perform

        def perform_beside_a_safe_state(transfer: Any) -> Any:
            nonlocal looks
            if isinstance(transfer, RegisterRead) and transfer.offset == 1:
                looks += 1
                loop.call_soon_threadsafe(lab.device().lock.raise_alarm)
                return Ambiguous(Sent.REPLY, "no reply")
            return perform(transfer)

        bus.perform = perform_beside_a_safe_state  # type: ignore[method-assign]
        told = await lab.ask("reg.write", register="toy.B", value=1, key=KEY)
        assert (code_of(told), looks, lab.writes("B"), await lab.rows()) == ("timeout", 1, 0, [])

    play(life, toy_board(tmp_path, *PARTS, bus="read_attempts = 10"))


def test_read_when_its_deadline_is_over_then_not_tried_again(play: Play, tmp_path: Path) -> None:
    async def life(lab: Lab) -> None:
        lab.fault(FaultKind.REPLY_LOST, access="read", offset=0, times=99)
        assert code_of(await lab.ask("reg.read", registers=["toy.A"], deadline_ms=50)) == "timeout"
        await lab.daemon.kept_done()
        assert len(lab.sent()) == 1  # the line must fall silent first, and until then the deadline is over

    play(life, toy_board(tmp_path, *PARTS, bus="read_attempts = 10"))


# --- reload -------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("rules", "device", "code"),
    [
        (rule(write="'no'"), "", "denied"),
        (rule(write="'approval'"), "", "unavailable"),
        (rule(register="'A'", limits="{ max = 3 }"), "", "refused"),
        ("", "unverified = 'refuse'", "refused"),
    ],
    ids=["no", "approval", "limits", "unverified"],
)
def test_reload_when_a_request_is_queued_then_it_keeps_to_what_the_board_says_now(
    tmp_path: Path, rules: str, device: str, code: str
) -> None:
    async def life(lab: Lab) -> None:
        await lab.device().lock.acquire()
        queued = asyncio.create_task(lab.ask("reg.write", **WRITE, key=KEY))
        await until(lambda: lab.device().waiting == 1)
        assert (await lab.operator("daemon.reload")).ok
        lab.device().lock.release()
        assert (code_of(await queued), lab.writes("A"), await lab.rows()) == (code, 0, [])

    started(tmp_path, board(tmp_path, "", *PARTS), life, reread=lambda: board(tmp_path, rules, *PARTS, device=device))


def test_reload_when_it_comes_during_the_preparation_then_it_holds_too(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    async def life(lab: Lab) -> None:
        from hwtool.prepare import prepare

        async def beside_a_reload(*given: Any) -> Any:
            prepared = await prepare(*given)
            assert (await lab.operator("daemon.reload")).ok
            return prepared

        monkeypatch.setattr("hwtool.execution.prepare", beside_a_reload)
        told = await lab.ask("reg.write", **WRITE, key=KEY)
        assert (code_of(told), lab.writes("A"), await lab.rows()) == ("denied", 0, [])

    started(tmp_path, board(tmp_path, "", *PARTS), life, reread=lambda: board(tmp_path, rule(write="'no'"), *PARTS))


@pytest.mark.parametrize(("rules", "code"), [(rule(write="'no'"), "denied"), (rule(write="'approval'"), "unavailable")])
def test_reload_when_a_sequence_is_queued_then_it_keeps_to_what_the_board_says_now(
    tmp_path: Path, rules: str, code: str
) -> None:
    async def life(lab: Lab) -> None:
        await lab.device().lock.acquire()
        steps = [{"do": "write", "register": "toy.A", "value": 1}, {"do": "write", "register": "toy.B", "value": 1}]
        queued = asyncio.create_task(lab.ask("sequence.run", steps=steps, key=KEY))
        await until(lambda: lab.device().waiting == 1)
        assert (await lab.operator("daemon.reload")).ok
        lab.device().lock.release()
        assert (code_of(await queued), lab.writes("A"), await lab.rows()) == (code, 0, [])

    started(tmp_path, board(tmp_path, "", *PARTS), life, reread=lambda: board(tmp_path, rules, *PARTS))


def test_reload_when_a_sequence_runs_then_its_rate_does_not_stop_it_half_way(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    async def life(lab: Lab) -> None:
        from hwtool.execution import Execution

        real = Execution.at_the_head

        async def head(self: Any, request: Any, *rest: Any) -> Any:
            result = await real(self, request, *rest)
            if request.params.key == f"{KEY}#1":
                assert (await lab.operator("daemon.reload")).ok
            return result

        monkeypatch.setattr(Execution, "at_the_head", head)
        steps = [{"do": "write", "register": "toy.A", "value": 1}, {"do": "write", "register": "toy.B", "value": 1}]
        assert (await lab.ask("sequence.run", steps=steps, key=KEY)).ok
        assert (lab.writes("A"), lab.writes("B")) == (1, 1)

    limit = rule(rate_per_min="2")
    started(tmp_path, board(tmp_path, limit, *PARTS), life, reread=lambda: board(tmp_path, limit, *PARTS))


def test_reload_when_a_read_is_forbidden_then_its_subscription_ends_and_says_so(tmp_path: Path) -> None:
    async def life(lab: Lab) -> None:
        lab.clock.held = True
        ears = Ears(lab)
        await ears.subscribe(registers=["toy.A"], interval_ms=100)
        await pass_time(lab, 0.2)
        assert (await lab.operator("daemon.reload")).ok
        lab.chip().values["A"] = 0x5A
        await pass_time(lab, 0.5)
        assert [e["kind"] for e in ears.heard] == ["value", "error"]
        assert (ears.heard[1]["error"]["code"], "0x5a" in str(ears.heard)) == ("denied", False)

    started(tmp_path, board(tmp_path, "", *PARTS), life, reread=lambda: board(tmp_path, rule(read="'no'"), *PARTS))


def test_reload_when_the_approval_mode_is_stricter_then_a_grant_of_ones_own_is_void(tmp_path: Path) -> None:
    asks = (reg("A", 0, "write = { effect = 'store', provenance = 'generated', approval = 'required' }"),)

    me = Caller(AGENT.uid, "operator", "o-", 0)

    async def life(lab: Lab) -> None:
        waiting = await lab.ask("reg.write", **WRITE, key=KEY)
        assert (await approved(lab, waiting.id, me)).ok
        assert (await lab.operator("daemon.reload")).ok
        told = await lab.ask("reg.write", **WRITE, key=KEY)
        void = lab.daemon.board.approval_mode.value != "self"
        assert (code_of(told), lab.writes("A")) == (("approval_expired", 0) if void else (None, 1))

    for mode in ("self", "separate-user", "two-person"):
        folder = tmp_path / mode
        folder.mkdir()
        started(
            folder,
            toy_board(folder, *asks, mode="self"),
            life,
            reread=lambda folder=folder, mode=mode: toy_board(folder, *asks, mode=mode),
        )


def test_reload_when_anything_of_the_contract_differs_then_a_restart_is_needed(tmp_path: Path) -> None:
    head = "[params.SHUNT]\nunit = 'ohm'\n"
    scaled = (head, reg("A", 0, "scale = '1'\nscale_param = 'SHUNT'\nunit = 'A'"))

    def made(shunt: int) -> Board:
        return toy_board(tmp_path, scaled[1], scaled[0], device=f"params = {{ SHUNT = '{shunt}' }}")

    assert needs_restart(made(1), made(1)) == []
    assert needs_restart(made(1), made(2)) == ["devices.toy"]


def test_reload_when_a_rule_moves_then_its_rate_goes_on_counting(tmp_path: Path) -> None:
    async def life(lab: Lab) -> None:
        assert (await lab.ask("reg.write", **WRITE, key=KEY)).ok
        assert code_of(await lab.ask("reg.write", register="toy.A", value=1, key=KEY2)) == "rate_limited"
        assert (await lab.operator("daemon.reload")).ok
        assert code_of(await lab.ask("reg.write", register="toy.A", value=1, key=KEY3)) == "rate_limited"

    limit, other = rule(rate_per_min="1"), rule(register="'B'", write="'no'")
    started(tmp_path, board(tmp_path, limit, *PARTS), life, reread=lambda: board(tmp_path, other + limit, *PARTS))


def test_reload_when_asked_for_twice_at_once_then_one_after_the_other(tmp_path: Path) -> None:
    inside, most = 0, 0

    def reread() -> Board:
        nonlocal inside, most
        inside += 1
        most = max(most, inside)
        time.sleep(0.02)  # in a thread of its own: long enough for the other to come in, were it let
        inside -= 1
        return board(tmp_path, "", *PARTS)

    async def life(lab: Lab) -> None:
        both = await asyncio.gather(lab.operator("daemon.reload"), lab.operator("daemon.reload"))
        assert ([r.ok for r in both], most) == ([True, True], 1)

    started(tmp_path, board(tmp_path, "", *PARTS), life, reread=reread)


# --- events -------------------------------------------------------------------------------------------------------


def test_poll_when_its_device_is_dead_then_others_on_the_bus_are_served(play: Play, tmp_path: Path) -> None:
    async def life(lab: Lab) -> None:
        lab.clock.held = True
        lab.fault(FaultKind.REPLY_LOST, access="read", times=10_000)
        await Ears(lab).subscribe(registers=["toy.A"], interval_ms=20)
        answered = 0
        for _ in range(200):
            await pass_time(lab, 0.05)
            answered += (await lab.ask("reg.read", registers=["two.A"])).ok
        assert answered > 0  # how many: the line falls silent in real time
        assert 2 <= sum(t["address"] == "0x20" for t in lab.sent()) <= 5  # in ten seconds: after 1, 2 and 4

    two = "[devices.two]\ncontract = './toy.toml'\nbus = 'b'\naddress = 0x21\n"
    play(life, toy_board(tmp_path, *PARTS, device=two))


def test_threshold_when_it_is_of_bytes_then_refused_and_nobody_else_is_harmed(play: Play, tmp_path: Path) -> None:
    async def life(lab: Lab) -> None:
        when = {"register": "toy.RAW", "above": 1}
        refused = await Ears(lab).subscribe(registers=["toy.RAW"], when=when, interval_ms=100)
        assert (code_of(refused), error_of(refused)["path"]) == ("invalid_args", "$.when.register")
        assert (await Ears(lab).subscribe(registers=["toy.RAW"], interval_ms=100)).ok

    play(life, toy_board(tmp_path, reg("RAW", 0, "width_bits = 32\nencoding = 'text'")))


def test_refusal_when_nothing_else_is_recorded_then_who_follows_is_told_of_it(play: Play, tmp_path: Path) -> None:
    async def life(lab: Lab) -> None:
        ears = Ears(lab)
        await ears.subscribe(kinds=["op"])
        assert code_of(await lab.ask("reg.write", register="toy.NOPE", value=1, key=KEY)) == "not_found"
        lab.daemon.flush_refusals()  # and nothing else is asked of the store, which would wake them too
        await until(lambda: [e["entry"]["what"] for e in ears.heard] == ["refused"])

    play(life, toy_board(tmp_path, *PARTS))


# --- the journal's files ------------------------------------------------------------------------------------------


def test_files_when_killed_after_days_then_each_day_keeps_its_own(play: Play, tmp_path: Path) -> None:
    clock = FakeClock()

    async def life(lab: Lab) -> None:
        made = JournalFiles(lab.daemon, tmp_path / "j")
        made._begin()
        for number in range(4):
            await write(lab, number, f"key-day-{number:04}")
            await made._page()
            clock.advance(86_400)
        before = {f.name: f.read_bytes() for f in files(tmp_path / "j")}
        assert len(before) == 4
        (tmp_path / "j" / ".position").unlink()
        await rendered(lab, tmp_path / "j")
        after = {f.name: f.read_bytes() for f in files(tmp_path / "j")}
        assert after.keys() == before.keys()
        assert [len(v.splitlines()) for v in after.values()] == [len(v.splitlines()) for v in before.values()]
        assert faults_of(files(tmp_path / "j"))[1] == []

    play(life, toy_board(tmp_path, *PARTS), clock=clock)


def test_files_when_the_position_is_of_another_store_then_not_believed(play: Play, tmp_path: Path) -> None:
    async def life(lab: Lab) -> None:
        await write(lab, 1, KEY)
        (tmp_path / "j").mkdir()
        (tmp_path / "j" / ".position").write_text("00000000-0000-0000-0000-000000000000 2")
        await rendered(lab, tmp_path / "j")
        assert faults_of(files(tmp_path / "j")) == (2, [])
        (tmp_path / "j" / ".position").write_text(f"{lab.daemon.store.store_id} 99999")
        await write(lab, 2, KEY2)
        await rendered(lab, tmp_path / "j")
        assert faults_of(files(tmp_path / "j")) == (4, [])

    play(life, toy_board(tmp_path, *PARTS))


SPOILT: dict[str, tuple[Any, str]] = {
    "another time": (lambda row: row | {"at": "1999-01-01T00:00:00Z"}, "does not cover"),
    "a member more": (lambda row: row | {"note": "approved by the boss"}, "does not cover"),
    "a seal of a number": (lambda _: {"sealed": 1}, "not a line"),
    "an epoch without end": (lambda row: row | {"epoch": float("inf")}, "without its members"),
    "a sequence that is far away": (lambda row: row | {"seq": 30_000_000}, "not what its hash"),
    "a sequence that is no number": (lambda row: row | {"seq": True}, "not a line"),
    "a body that is a text": (lambda row: row | {"body": "x"}, "without its members"),
}


@pytest.mark.parametrize("name", SPOILT)
def test_verify_when_a_row_is_spoilt_then_told(play: Play, tmp_path: Path, name: str) -> None:
    spoil, wanted = SPOILT[name]

    async def life(lab: Lab) -> None:
        await write(lab, 1, KEY)
        await rendered(lab, tmp_path / "j")
        (file,) = files(tmp_path / "j")
        rows = [json.loads(line) for line in file.read_text().splitlines()]
        file.write_text("".join(json.dumps(spoil(row) if n else row) + "\n" for n, row in enumerate(rows)))
        assert any(wanted in fault for fault in faults_of([file])[1])

    play(life, toy_board(tmp_path, *PARTS))


def test_verify_when_something_stands_behind_the_seal_or_in_the_wrong_folder_then_told(
    play: Play, tmp_path: Path
) -> None:
    async def life(lab: Lab) -> None:
        made = await rendered(lab, tmp_path / "j")
        await write(lab, 1, KEY)
        await made._page()
        lab.clock.advance(86_400)
        await write(lab, 2, KEY2)
        await made.finish()
        sealed, today = files(tmp_path / "j")
        assert faults_of([sealed, today]) == (4, [])
        assert faults_of([today], whole=False) == (2, [])
        text = sealed.read_text()
        sealed.chmod(0o600)
        sealed.write_text(text + today.read_text().splitlines()[0] + "\n")
        assert any("behind the seal" in f for f in faults_of([sealed, today])[1])
        sealed.write_text(text.replace('"first":1', '"first":2'))
        assert any("or others than it names" in f for f in faults_of([sealed, today])[1])
        sealed.write_text(text)
        other = tmp_path / "j" / "other"
        today.parent.rename(other)
        assert any("of another device" in f for f in faults_of(files(tmp_path / "j"))[1])

    play(life, toy_board(tmp_path, *PARTS))
