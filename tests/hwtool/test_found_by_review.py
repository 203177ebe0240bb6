"""Defects that reviews found, each with the story in which it showed."""

from __future__ import annotations

import asyncio
import sqlite3
import threading
from pathlib import Path
from typing import Any

import pytest

from hwtool.bench import bench
from hwtool.engine import Engine
from hwtool.worker import BusWorker
from hwtool_registers.bus import Answer, RegisterRead, Transfer
from hwtool_sim.bus import SimBus
from hwtool_sim.faults import Fault, FaultKind
from hwtool_store import operations
from hwtool_store.faults import StoreRule
from tests.hwtool.conftest import (
    AGENT,
    KEY,
    KEY2,
    FakeClock,
    Lab,
    Play,
    code_of,
    effect,
    error_of,
    evidence_of,
    raws,
    reg,
    toy_board,
    until,
)

R = reg("R", 0)
WRITE = {"register": "toy.R", "value": 0x55, "key": KEY}


class SlowBus:
    """A simulated bus behind a gate: transfers wait in the bus's thread until it is opened."""

    inline = False

    def __init__(self, bus: SimBus) -> None:
        self.bus = bus
        self.gate = threading.Event()
        self.under_way = 0

    def perform(self, transfer: Transfer) -> Answer:
        self.under_way += 1
        self.gate.wait(10)
        return self.bus.perform(transfer)

    def quiesce(self, until_s: float) -> None:
        self.bus.quiesce(until_s)


def slow(lab: Lab, name: str) -> SlowBus:
    it = SlowBus(lab.bus(name))
    lab.device(name).worker.use(it)
    return it


def test_clean_read_when_its_deadline_passes_then_the_transfer_still_ends_and_its_bank_is_set_back(play: Play) -> None:
    async def life(lab: Lab) -> None:
        chip, bus = lab.chip("uart"), slow(lab, "uart")
        late = await lab.ask("reg.read", registers=["uart.DLL"], deadline_ms=20)
        assert (code_of(late), late.effects) == ("timeout", "none")
        next_one = asyncio.create_task(lab.ask("reg.read", registers=["uart.RXLVL"]))
        await asyncio.sleep(0)
        assert lab.device("uart").worker.lock.locked()  # the line is not given away in the middle of a transfer
        bus.gate.set()
        assert raws(await next_one) == ["0x05"]
        assert chip.values["LCR"] == 0x03

    play(life, bench())


def test_read_of_several_when_it_stops_half_way_by_proof_then_what_was_taken_is_answered(play: Play) -> None:
    async def life(lab: Lab) -> None:
        lab.fault(FaultKind.NACK, "uart", access="read", offset=0x30)
        ask = {"registers": ["uart.RHR", "uart.MSR"], "key": KEY}
        for _ in range(2):
            result = await lab.ask("reg.read_effectful", **ask)
            assert (result.verdict, result.effects, code_of(result)) == ("partial", "applied", "not_applied")
            assert raws(result) == ["0x68"]
        assert lab.reads("RHR", "uart") == 1

    play(life, bench())


def test_read_of_several_when_it_becomes_unknown_half_way_then_what_was_taken_is_kept_and_answered(play: Play) -> None:
    async def life(lab: Lab) -> None:
        lab.fault(FaultKind.REPLY_LOST, "uart", access="read", offset=0x30)
        ask = {"registers": ["uart.RHR", "uart.MSR"], "key": KEY}
        lost = await lab.ask("reg.read_effectful", **ask)
        assert (code_of(lost), raws(lost)) == ("outcome_unknown", ["0x68"])
        assert raws(await lab.ask("reg.read_effectful", **ask)) == ["0x68"]
        kept = await lab.daemon.ask(lambda conn: operations.data_of(conn, lost.id or 0))
        assert kept == [b"h"]
        await lab.rules_ran("uart")
        assert (await lab.operator("op.settle", id=lost.id, verdict="lost", reason="MSR is gone")).ok
        final = await lab.ask("reg.read_effectful", **ask)
        assert (code_of(final), raws(final)) == ("value_lost", ["0x68"])

    play(life, bench())


def test_refusals_when_they_go_on_after_a_flush_then_they_stay_refusals(play: Play, tmp_path: Path) -> None:
    async def life(lab: Lab) -> None:
        for _ in range(40):
            result = await lab.ask("reg.write", **{**WRITE, "register": "toy.NOPE"})
            assert (code_of(result), result.effects) == ("not_found", "none")
            lab.daemon.flush_refusals()
        counted = [b for b in await lab.audit() if b["what"] == "refusals_counted"]
        assert sum(b["count"] for b in counted) == 30

    play(life, toy_board(tmp_path, R))


class Babbling:
    """A line that never falls silent."""

    inline = True

    def perform(self, _: Transfer) -> Answer:
        raise AssertionError("nothing may be sent")

    def quiesce(self, _: float) -> None:
        raise OSError("it does not fall silent")


def test_start_when_a_line_never_falls_silent_then_the_daemon_starts_and_that_bus_stays_shut(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    board = toy_board(tmp_path, R, bus="response_ms = 10")

    async def first() -> None:
        engine = await Engine.start(board, tmp_path / "store", FakeClock(), allow_unsafe=True)
        worker = engine.daemon.workers["b"]

        def silent(_: Transfer) -> Answer:
            raise ConnectionResetError("gone")

        monkeypatch.setattr(worker.bus, "perform", lambda t: SimBus.perform(worker.bus, t) if read(t) else silent(t))  # type: ignore[arg-type]
        assert (await engine.call(AGENT, "reg.write", WRITE)).effects == "unknown"
        await engine.close()

    def read(transfer: Transfer) -> bool:
        return isinstance(transfer, RegisterRead)

    async def second() -> None:
        monkeypatch.setattr("hwtool.engine.make_bus", lambda *_: Babbling())
        clock = FakeClock()
        clock.held = True  # the quarantine's own waiting goes on and on
        engine = await Engine.start(board, tmp_path / "store", clock, allow_unsafe=True)
        shut = await engine.call(AGENT, "reg.read", {"registers": ["toy.R"]})
        told = await engine.call(AGENT, "op.get", {"key": KEY})
        assert (code_of(shut), code_of(told)) == ("unavailable", "outcome_unknown")
        await engine.close()

    asyncio.run(first())
    asyncio.run(second())


def test_outcome_when_the_store_refuses_it_then_what_was_observed_is_answered_and_the_device_held(
    play: Play, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    async def life(lab: Lab) -> None:
        def refuse(*_: Any) -> int:
            raise StoreRule("no such row")

        monkeypatch.setattr(operations, "t2_done", refuse)
        result = await lab.ask("reg.write", **WRITE)
        assert (code_of(result), result.effects, result.durable) == ("store_failed", "applied", False)
        assert raws(result) == ["0x55"]
        assert code_of(await lab.ask("reg.write", register="toy.R", value=1, key=KEY2)) == "held"

    play(life, toy_board(tmp_path, R))


@pytest.mark.parametrize("verdict", ["applied", "satisfied", "superseded"])
def test_settlement_when_a_read_has_no_value_then_it_cannot_be_said_to_have_happened(play: Play, verdict: str) -> None:
    async def life(lab: Lab) -> None:
        lab.fault(FaultKind.REPLY_LOST, "uart", access="read", offset=0x00)
        lost = await lab.ask("reg.read_effectful", register="uart.RHR", key=KEY)
        await lab.rules_ran("uart")
        refused = await lab.operator("op.settle", id=lost.id, verdict=verdict, reason="it seems so")
        assert (code_of(refused), error_of(refused)["rule"]) == ("refused", "verdict_of_read")

    play(life, bench())


def test_peek_when_it_settles_a_read_as_done_then_the_value_is_that_of_the_peek(play: Play, tmp_path: Path) -> None:
    async def life(lab: Lab) -> None:
        lab.chip().values |= {"C": 0xA5, "P": 0xA5}
        lab.fault(FaultKind.REPLY_LOST, access="read", offset=0)
        await lab.ask("reg.read_effectful", register="toy.C", key=KEY)
        lab.chip().values["P"] = 0  # the chip has given it up
        await lab.rules_ran()
        final = await lab.ask("reg.read_effectful", register="toy.C", key=KEY)
        assert (final.verdict, final.ok, raws(final)) == ("applied", True, ["0xa5"])
        assert (final.values or [{}])[0]["peeked"] == "P"

    play(life, toy_board(tmp_path, reg("C", 0, effect("clear", ", peek = 'P'"), "ro"), reg("P", 1, access="ro")))


def test_rehearsal_when_it_names_a_store_that_is_ahead_then_stale_and_nothing_is_held(play: Play) -> None:
    async def life(lab: Lab) -> None:
        seen = {"id": str(lab.daemon.store.store_id), "seq": 10**9}
        params = {"register": "gpio.OLATA", "value": 1, "store": seen}
        assert code_of(await lab.ask("reg.plan", method="reg.write", params=params)) == "stale"
        assert lab.device("gpio").hold is None
        assert code_of(await lab.ask("reg.write", **params, key=KEY)) == "stale"
        assert lab.device("gpio").hold is not None
        assert [h.by for h in await lab.daemon.ask(operations.holds)] == ["hwtool"]

    play(life, bench())


def test_boot_evidence_when_it_hangs_then_the_bus_is_wedged_and_the_request_ends(play: Play) -> None:
    class Hanging(SlowBus):
        def boot_evidence(self, _: int) -> str | None:
            self.gate.wait(10)
            return None

    async def life(lab: Lab) -> None:
        worker: BusWorker = lab.device("gpio").worker
        bus = Hanging(lab.bus("gpio"))
        worker.use(bus)
        object.__setattr__(worker.spec, "transfer_limit_ms", 20)
        result = await lab.ask("reg.write", register="gpio.OLATA", value=1, key=KEY)
        assert (code_of(result), error_of(result)["reason"], worker.wedged) == ("unavailable", "wedged", True)
        bus.gate.set()
        await until(lambda: not worker.wedged)

    play(life, bench())


def test_grant_when_not_used_in_time_then_it_is_neither_listed_nor_waiting(play: Play, tmp_path: Path) -> None:
    async def life(lab: Lab) -> None:
        pending = await lab.ask("reg.write", **WRITE)
        screen = ((await lab.operator("approval.show", approval=pending.id)).approvals or [{}])[0]
        lab.clock.advance(2)
        assert (await lab.operator("approval.approve", approval=pending.id, code=screen["code"])).ok
        assert [a["approved_by"] for a in (await lab.operator("approval.list")).approvals] == ["uid:0"]  # type: ignore[union-attr]
        lab.clock.advance(121)
        told = await lab.ask("op.get", key=KEY)
        assert (code_of(told), (told.op or {})["state"]) == ("approval_expired", "DONE")
        assert (await lab.operator("approval.list")).approvals == []

    play(life, toy_board(tmp_path, reg("R", 0, "write = { effect = 'store', approval = 'required' }")))


@pytest.mark.parametrize("params", [{"id": 1 << 70}, {"id": -1}])
def test_number_when_no_row_could_have_it_then_invalid_and_not_internal(play: Play, params: dict[str, Any]) -> None:
    async def life(lab: Lab) -> None:
        assert code_of(await lab.ask("op.get", **params)) == "invalid_args"

    play(life, bench())


def test_store_when_it_fails_under_a_job_nobody_waits_for_then_the_close_does_not_touch_the_database(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    async def life() -> None:
        engine = await Engine.start(bench(), tmp_path / "store", FakeClock(), allow_unsafe=True)

        def broken(*_: Any) -> int:
            raise sqlite3.OperationalError("disk I/O error")

        monkeypatch.setattr(operations, "note", broken)
        await engine.call(AGENT, "reg.write", {"register": "gpio.NONE", "value": 1, "key": KEY})
        before = (tmp_path / "store" / "hwtool.db").read_bytes()
        await engine.close()
        assert engine.daemon.failed
        assert (tmp_path / "store" / "hwtool.db").read_bytes() == before

    asyncio.run(life())


@pytest.mark.parametrize("gated", ["R", "F"], ids=["register", "field"])
def test_clean_read_when_its_gate_is_closed_then_refused_and_no_value_is_made_up(
    play: Play, tmp_path: Path, gated: str
) -> None:
    gate = "read = { effects = ['none'], provenance = 'generated', gate = 'EN' }"
    rest = gate if gated == "R" else f"[registers.R.fields.F]\nbits = 0\n{gate}"

    async def life(lab: Lab) -> None:
        lab.chip().values["R"] = 0x01
        shut = await lab.ask("reg.read", registers=["toy.R"])
        assert (code_of(shut), error_of(shut)["rule"], lab.reads("R")) == ("refused", "gate_closed", 0)
        lab.chip().values["EN"] = 1
        assert raws(await lab.ask("reg.read", registers=["toy.R"])) == ["0x01"]

    play(life, toy_board(tmp_path, reg("EN", 5), reg("R", 0, rest)))


def test_write_when_what_would_prove_it_is_behind_a_closed_gate_then_refused_before_the_intent(
    play: Play, tmp_path: Path
) -> None:
    gated = reg("R", 0, "read = { effects = ['none'], provenance = 'generated', gate = 'EN' }")

    async def life(lab: Lab) -> None:
        shut = await lab.ask("reg.write", **WRITE)
        assert (code_of(shut), error_of(shut)["rule"], lab.writes("R")) == ("refused", "gate_closed", 0)
        lab.chip().values["EN"] = 1
        assert (await lab.ask("reg.write", **WRITE)).verdict == "applied"

    play(life, toy_board(tmp_path, reg("EN", 5), gated))


GATED = reg("R", 0, "read = { effects = ['none'], provenance = 'generated', gate = 'EN' }")


def test_expectation_when_it_is_behind_a_closed_gate_then_no_value_is_made_up_for_it(
    play: Play, tmp_path: Path
) -> None:
    async def life(lab: Lab) -> None:
        lab.chip().values["R"] = 0x01
        asked = {"register": "toy.W", "value": 7, "key": KEY, "expect": {"toy.R": "0x00"}}
        shut = await lab.ask("reg.write", **asked)
        assert (code_of(shut), error_of(shut)["rule"]) == ("refused", "gate_closed")
        assert (lab.reads("R"), lab.writes("W")) == (0, 0)

    play(life, toy_board(tmp_path, reg("EN", 5), GATED, reg("W", 3)))


def test_watch_when_the_write_closes_the_gate_of_its_own_proof_then_unknown_and_held(
    play: Play, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    async def life(lab: Lab) -> None:
        perform, values = SimBus.perform, lab.chip().values

        def perform_and_close(bus: SimBus, transfer: Transfer) -> Answer:
            answer = perform(bus, transfer)
            if not isinstance(transfer, RegisterRead):
                values["EN"] = 0
            return answer

        values |= {"EN": 1, "R": 0x55}
        monkeypatch.setattr(SimBus, "perform", perform_and_close)
        done = await lab.ask("reg.write", register="toy.R", value=0, key=KEY)
        assert (code_of(done), done.effects, lab.writes("R")) == ("outcome_unknown", "unknown", 1)
        assert code_of(await lab.ask("reg.write", register="toy.R", value=1, key=KEY2)) == "held"

    play(life, toy_board(tmp_path, reg("EN", 5), GATED))


def test_rules_when_the_proof_is_behind_a_gate_that_closed_then_a_person_until_it_is_open(
    play: Play, tmp_path: Path
) -> None:
    async def life(lab: Lab) -> None:
        values = lab.chip().values
        values["EN"] = 1
        lab.fault(FaultKind.REPLY_LOST)
        assert code_of(await lab.ask("reg.write", **WRITE)) == "outcome_unknown"
        values["EN"] = 0  # R would answer 0x00, as before the write
        await lab.rules_ran()
        got = await lab.ask("op.get", key=KEY, verify=True)
        assert isinstance(got.op, dict)
        assert (got.op["state"], "gate" in got.op["needs_person"]) == ("UNKNOWN", True)
        values["EN"] = 1
        assert (await lab.ask("op.get", key=KEY, verify=True)).verdict == "applied"

    play(life, toy_board(tmp_path, reg("EN", 5), GATED))


def test_selector_when_the_store_fails_before_its_write_then_it_is_not_taken_to_be_moving_for_good(
    play: Play, monkeypatch: pytest.MonkeyPatch
) -> None:
    async def life(lab: Lab) -> None:
        async def fail(_: dict[str, int]) -> None:
            raise StoreRule("no room")

        device = lab.device("uart")
        await device.know_home(device.contract.registers["LCR"])
        monkeypatch.setattr(device, "remember", fail)
        assert not (await lab.ask("reg.write", register="uart.LCR", value=0x03, key=KEY)).ok
        assert (device.moving, lab.writes("LCR", "uart")) == (set(), 0)

    play(life, bench())


@pytest.mark.parametrize("reset", [3, 9], ids=["to what it was before", "to something else"])
def test_write_when_the_device_restarts_inside_the_watch_then_not_called_undone_but_superseded(
    play: Play, tmp_path: Path, reset: int
) -> None:
    """A restart right after the write put the old value back, and that was reported as "nothing happened"."""

    async def life(lab: Lab) -> None:
        lab.chip().values["R"] = 3
        lab.bus().faults.append(Fault(FaultKind.RESET, 0x20, "write", when="after"))
        written = await lab.ask("reg.write", register="toy.R", value=0x55, key=KEY)
        assert (code_of(written), written.effects) == ("outcome_unknown", "unknown")
        assert evidence_of(written)["how"] == "restarted"
        await lab.rules_ran()
        row = await lab.row()
        assert (row.state, row.verdict, row.verdict_by) == ("DONE", "superseded", "rule")
        assert lab.writes("R") == 1

    play(life, toy_board(tmp_path, reg("R", 0, f"reset = {reset}")))


def test_bus_when_unplugged_and_plugged_again_then_unavailable_meanwhile_and_identified_anew(
    play: Play, tmp_path: Path
) -> None:
    async def life(lab: Lab) -> None:
        assert (await lab.ask("reg.write", register="toy.R", value=1, key=KEY)).ok
        lab.bus().unplug()
        for _ in range(3):
            assert code_of(await lab.ask("reg.read", registers=["toy.R"])) == "unavailable"
        assert code_of(await lab.ask("reg.write", register="toy.R", value=2, key=KEY2)) == "unavailable"
        lab.chip().values["ID"] = 8
        lab.bus().plug()
        refused = await lab.ask("reg.write", register="toy.R", value=2, key=KEY2)
        assert (code_of(refused), error_of(refused)["what"]) == ("stale", "identity")
        assert lab.writes("R") == 1

    parts = (reg("R", 0), reg("ID", 1, "reset = 7", access="ro"), "[identity]\nregister = 'ID'\nequals = 7")
    play(life, toy_board(tmp_path, *parts))


@pytest.mark.parametrize(
    "more",
    ["[identity]\nregister = 'ID'\nequals = 0", "[[assume]]\nregister = 'ID'\nfield = 'X'\nvalue = 0\nfor = 'offsets'"],
    ids=["identity", "assumption"],
)
def test_identity_and_assumption_when_behind_a_closed_gate_then_no_value_is_made_up_for_them(
    play: Play, tmp_path: Path, more: str
) -> None:
    async def life(lab: Lab) -> None:
        refused = await lab.ask("reg.write", **WRITE)
        assert (code_of(refused), error_of(refused)["rule"]) == ("refused", "gate_closed")
        assert lab.writes("R") == 0
        lab.chip().values["EN"] = 1
        assert (await lab.ask("reg.write", **WRITE)).ok

    gated = "read = { effects = ['none'], provenance = 'generated', source = 'rtl', gate = 'EN' }"
    field = "\n[registers.ID.fields]\nX = { bits = '7:0' }"
    play(life, toy_board(tmp_path, reg("R", 0), reg("EN", 5), reg("ID", 6, gated + field, access="ro"), more))


@pytest.mark.parametrize(("board", "fits"), [("7", True), ("0x08", False)])
def test_identity_when_the_board_names_one_of_the_kinds_then_no_other_one_is_taken(
    play: Play, tmp_path: Path, board: str, fits: bool
) -> None:
    parts = (reg("R", 0), reg("ID", 1, "reset = 7", access="ro"), "[identity]\nregister = 'ID'\nequals = [7, 8]")

    async def life(lab: Lab) -> None:
        done = await lab.ask("reg.write", register="toy.R", value=1, key=KEY)
        assert (done.ok, code_of(done)) == ((True, None) if fits else (False, "stale"))
        assert lab.writes("R") == fits

    play(life, toy_board(tmp_path, *parts, device=f"identity = '{board}'"))
