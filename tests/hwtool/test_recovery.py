"""What a crash leaves behind and what the next start makes of it: by the row, by clean reads, or by a person."""

from __future__ import annotations

import subprocess
import sys
from collections.abc import Callable
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import pytest

from hwtool.carry_out import Finished
from hwtool.carry_out import carry_out as real_carry_out
from hwtool.dispatch import Intent
from hwtool.prepare import Prepared
from hwtool.recovery import CannotObserve, _read, orphans, run_rules
from hwtool_contracts.model import Space
from hwtool_registers.bits import Layout
from hwtool_registers.bus import Confirmed, RegisterRead, RegisterWrite, as_object
from hwtool_sim.bus import SimBus
from hwtool_sim.chip import Chip
from hwtool_sim.faults import Fault, FaultKind
from tests.hwtool.conftest import (
    KEY,
    KEY2,
    MODBUS,
    OPERATOR,
    FakeClock,
    Lab,
    Play,
    code_of,
    effect,
    error_of,
    reg,
    toy_board,
)

Between = Callable[[Chip], None]


def nothing(_: Chip) -> None:
    """The device stays as it was."""


def now(**values: int) -> Between:
    """The device holds something else by the time of the next start."""
    return lambda chip: chip.values.update(values)


def reset_to(**values: int) -> Between:
    """The device restarts, and then holds these."""

    def act(chip: Chip) -> None:
        chip.reset()
        chip.values.update(values)

    return act


def pop_one(chip: Chip) -> None:
    """Somebody else takes an element."""
    chip.fifos["R"].popleft()


@dataclass(frozen=True)
class Crash:
    """One line of the table of reconciliation.

    Attributes:
        sent: the dispatch reached the device before the crash.
        between: what happens to the device before the next start.
        testifies: the bus gives boot evidence.
        verdict: None: a person is needed, and `why` is part of what is said.
    """

    parts: tuple[str, ...]
    request: dict[str, Any]
    sent: bool
    verdict: str | None
    effects: str = "unknown"
    why: str = ""
    values: dict[str, int] = field(default_factory=dict)
    fifo: bytes = b""
    between: Between = nothing
    testifies: bool = True
    sole_master: bool = True
    method: str = "reg.write"


STORE = (reg("R", 0, "reset = 0x10"), reg("S", 1))
W1C = (reg("R", 0, "volatile = true\nwrite = { effect = 'one_to_clear' }"),)
GO = (
    reg("R", 0, "write = { effect = 'command', verify = 'signal', signals = [{ register = 'N', delta = 1 }] }", "wo"),
    reg("N", 1, access="ro"),
)
FIFO = (reg("R", 0, effect("pop", ", level = 'LEVEL'"), "ro"), reg("LEVEL", 1, access="ro"))
LIVE_FIFO = (FIFO[0], reg("LEVEL", 1, "volatile = true", "ro"))
CLEAR = (reg("R", 0, effect("clear"), "ro"),)
PEEK = (reg("R", 0, effect("clear", ", peek = 'P'"), "ro"), reg("P", 1, access="ro"))
ACK = (reg("R", 0, effect("ack", ", affects = ['E']"), "ro"), reg("E", 1, access="ro"))
SILENT_READ = (reg("R", 0, "read = { effects = ['unknown'], provenance = 'silent' }", "ro"),)
SILENT_WRITE = (reg("R", 0, "write = { effect = 'unknown', provenance = 'silent' }"),)
KEPT = (reg("R", 0, "reset = 0x10\npersistence = 'nonvolatile'"),)
PUT = {"register": "toy.R", "value": 0x55, "key": KEY}
MASKED = {"register": "toy.R", "value": 0x05, "mask": 0x0F, "key": KEY}
ONE = {"register": "toy.R", "value": 1, "key": KEY}
TAKE = {"register": "toy.R", "key": KEY}
READ = "reg.read_effectful"

CRASHES: dict[str, Crash] = {
    "store sent": Crash(STORE, PUT, True, "applied"),
    "store not sent": Crash(STORE, PUT, False, "not_applied", "none"),
    "store was so already": Crash(STORE, PUT, False, "satisfied", values={"R": 0x55}),
    "store neither": Crash(STORE, PUT, True, None, why="do not tell", between=now(R=0x77)),
    "store, silent device, v differs from reset": Crash(STORE, PUT, True, "applied", testifies=False),
    "store, silent device, v is the reset value": Crash(
        STORE, {**PUT, "value": 0x10}, True, None, why="equals what a reset", values={"R": 3}, testifies=False
    ),
    "store, silent device, p is the reset value": Crash(
        STORE, PUT, False, None, why="equals what a reset", testifies=False
    ),
    "store, device restarted": Crash(STORE, PUT, True, "superseded", between=reset_to()),
    "store, other masters": Crash(STORE, PUT, True, None, why="other masters", sole_master=False),
    "store, other masters, was so already": Crash(STORE, PUT, True, "satisfied", values={"R": 0x55}, sole_master=False),
    "masked store sent": Crash(STORE, MASKED, True, "applied"),
    "masked store, foreign bits changed": Crash(STORE, MASKED, True, None, why="somebody else", between=now(R=0xA5)),
    "nonvolatile store, device restarted": Crash(KEPT, PUT, True, "applied", between=reset_to(R=0x55)),
    "write-1-to-clear sent": Crash(W1C, ONE, True, "applied", values={"R": 1}),
    "write-1-to-clear not sent": Crash(W1C, ONE, False, None, why="do not tell", values={"R": 1}),
    "write-1-to-clear, was clear": Crash(W1C, ONE, False, "satisfied"),
    "pulse sent": Crash(GO, ONE, True, "applied"),
    "pulse not sent": Crash(GO, ONE, False, "not_applied", "none"),
    "pulse, device restarted": Crash(GO, ONE, True, None, why="set off may have happened", between=reset_to()),
    "pulse, silent device": Crash(GO, ONE, True, None, why="equals what a reset", testifies=False),
    "pop sent": Crash(FIFO, TAKE, True, "lost", "applied", fifo=b"abc", method=READ),
    "pop not sent": Crash(FIFO, TAKE, False, "not_applied", "none", fifo=b"abc", method=READ),
    "pop, live producer": Crash(LIVE_FIFO, TAKE, True, None, why="no level", fifo=b"abc", method=READ),
    "pop, more gone than asked for": Crash(
        FIFO,
        TAKE,
        True,
        None,
        why="went from 3 to 1",
        fifo=b"abc",
        between=pop_one,
        method=READ,
    ),
    "clear-on-read": Crash(CLEAR, TAKE, True, None, why="nothing that would show", values={"R": 1}, method=READ),
    "clear-on-read, device restarted": Crash(CLEAR, TAKE, True, None, why="restarted", between=reset_to(), method=READ),
    "peek, still there": Crash(PEEK, TAKE, False, "not_applied", "none", values={"R": 1, "P": 1}, method=READ),
    "peek, gone": Crash(PEEK, TAKE, True, "applied", values={"R": 1, "P": 1}, between=now(P=0), method=READ),
    "peek, new events": Crash(
        PEEK, TAKE, True, None, why="new events", values={"R": 3, "P": 3}, between=now(P=1), method=READ
    ),
    "ack, still set": Crash(ACK, TAKE, False, "not_applied", "none", values={"E": 4}, method=READ),
    "ack, not set": Crash(ACK, TAKE, True, None, why="acknowledged by somebody", values={"E": 4}, method=READ),
    "undeclared read": Crash(SILENT_READ, TAKE, True, "lost", method=READ),
    "undeclared write": Crash(SILENT_WRITE, PUT, True, None, why="nobody has declared"),
}


class Power:
    """Cuts the power of the first life at its dispatch: keeps the disk of that moment, and lets the life run out."""

    def __init__(self, monkeypatch: pytest.MonkeyPatch) -> None:
        self._patch = monkeypatch

    def cut(self, play: Play, crash: Crash, board: Any, buses: dict[str, SimBus]) -> None:
        if not crash.testifies:
            self._patch.setattr(SimBus, "boot_evidence", lambda *_: None)

        async def life(lab: Lab) -> None:
            chip = lab.chip()
            chip.values |= crash.values
            if crash.fifo:
                chip.push("R", crash.fifo)

            async def dying(intent: Intent, prepared: Prepared, clock: FakeClock, *more: Any) -> Finished:
                if crash.sent:
                    await real_carry_out(intent, prepared, clock, *more)
                lab.disk_now("crashed")
                raise RuntimeError("the power is gone")

            self._patch.setattr("hwtool.execution.carry_out", dying)
            lab.clock.held = True
            left = await lab.ask(crash.method, OPERATOR, **crash.request)
            assert left.effects == "unknown", left
            self._patch.setattr("hwtool.execution.carry_out", real_carry_out)

        play(life, board)
        for bus in buses.values():
            bus.log.clear()


@pytest.fixture
def power(monkeypatch: pytest.MonkeyPatch) -> Power:
    return Power(monkeypatch)


@pytest.mark.parametrize("name", CRASHES)
def test_crash_when_the_daemon_starts_again_then_settled_by_rule_or_held_for_a_person(
    play: Play, tmp_path: Path, power: Power, kept_buses: dict[str, SimBus], name: str
) -> None:
    crash = CRASHES[name]
    board = toy_board(tmp_path, *crash.parts, sole_master=crash.sole_master)
    power.cut(play, crash, board, kept_buses)
    chip = kept_buses["b"].chips[0x20]
    access = "write" if crash.method == "reg.write" else "read"
    executed = chip.executed["R", access]
    assert executed == (1 if crash.sent else 0)
    crash.between(chip)

    async def life(lab: Lab) -> None:
        row = await lab.row()
        again = await lab.ask(crash.method, OPERATOR, **crash.request)
        assert again.id == row.op_id
        if crash.verdict is None:
            assert (row.state, code_of(again), again.effects) == ("UNKNOWN", "outcome_unknown", "unknown")
            assert error_of(again)["evidence"] == {"how": "crash", "epoch": 1}
            got = await lab.operator("op.get", key=KEY, verify=True)
            assert isinstance(got.op, dict)
            assert crash.why in got.op["needs_person"]
            assert code_of(await lab.ask(crash.method, **{**crash.request, "key": KEY2})) == "held"
            assert (await lab.operator("op.settle", id=row.op_id, verdict="abandoned", reason="looked")).ok
        else:
            assert (row.state, row.verdict, row.verdict_by) == ("DONE", crash.verdict, "rule")
            assert (again.verdict, again.effects) == (crash.verdict, crash.effects)
            assert again.ok == (crash.verdict in ("applied", "satisfied"))
        assert lab.device().held() is None
        assert [t["do"] for t in lab.sent() if t["do"] == "write"] == []
        assert chip.executed["R", access] == executed or crash.method == "reg.write"
        assert [b["cause"] for b in await lab.audit() if b["what"] == "unknown" and "cause" in b] == ["crash"]

    play(life, board, store="crashed")
    assert chip.executed["R", access] == executed


def test_crash_when_recovery_itself_is_cut_off_then_the_next_start_ends_the_same(
    play: Play, tmp_path: Path, power: Power, kept_buses: dict[str, SimBus], monkeypatch: pytest.MonkeyPatch
) -> None:
    crash = CRASHES["store sent"]
    board = toy_board(tmp_path, *crash.parts)
    power.cut(play, crash, board, kept_buses)

    async def cut_off(*_: Any) -> None:
        raise RuntimeError("again")

    async def unreached(_: Lab) -> None:
        raise AssertionError("the start was cut off")

    for where in ("hwtool.engine.refresh_boot", "hwtool.engine.run_rules"):
        monkeypatch.setattr(where, cut_off)
        with pytest.raises(RuntimeError, match="again"):
            play(unreached, board, store="crashed")
    monkeypatch.undo()
    monkeypatch.setattr("hwtool.engine.make_bus", lambda spec, *_: kept_buses[spec.name])

    async def life(lab: Lab) -> None:
        assert ((await lab.row()).state, (await lab.row()).verdict) == ("DONE", "applied")
        assert [b["what"] for b in await lab.audit()].count("unknown") == 1
        assert (await lab.ask("reg.write", OPERATOR, **PUT)).effects == "unknown"
        assert lab.writes("R") == 1

    play(life, board, store="crashed")


def test_crash_when_the_device_left_the_board_then_unknown_until_a_person_settles_it(
    play: Play, tmp_path: Path, power: Power, kept_buses: dict[str, SimBus]
) -> None:
    crash = CRASHES["store sent"]
    board = toy_board(tmp_path, *crash.parts)
    power.cut(play, crash, board, kept_buses)

    async def without(lab: Lab) -> None:
        got = await lab.operator("op.get", key=KEY, verify=True)
        assert (code_of(got), got.generation) == ("outcome_unknown", None)
        assert isinstance(got.op, dict)
        assert got.op["needs_person"] == "its device is not on the board any more"

    async def settled(lab: Lab) -> None:
        row = await lab.row()
        assert (await lab.operator("op.settle", id=row.op_id, verdict="applied", reason="measured")).ok
        assert (await lab.operator("op.get", key=KEY)).verdict == "applied"

    other = toy_board(tmp_path, *crash.parts)
    spec = other.devices.pop("toy")
    play(without, other, store="crashed")
    assert spec.address == 0x20
    play(settled, other, store="crashed")


@pytest.mark.parametrize("sent", [True, False], ids=["it was done", "it was not"])
def test_crash_when_the_contract_is_edited_before_the_next_start_then_the_row_decides(
    play: Play, tmp_path: Path, power: Power, kept_buses: dict[str, SimBus], sent: bool
) -> None:
    crash = CRASHES["store sent" if sent else "store not sent"]
    power.cut(play, crash, toy_board(tmp_path, *crash.parts), kept_buses)
    # by today's contract R is elsewhere, undeclared, and has another reset value: its rules would never settle it
    edited = toy_board(tmp_path, reg("R", 9, "reset = 0x55\nwrite = { effect = 'unknown', provenance = 'silent' }"))

    async def after(lab: Lab) -> None:
        row = await lab.row()
        assert (row.state, row.verdict_by) == ("DONE", "rule")
        assert row.verdict == ("applied" if sent else "not_applied")
        assert {(t["do"], t["offset"]) for t in lab.sent()} == {("read", "0x00")}

    play(after, edited, store="crashed")


def test_crash_when_another_device_has_its_place_then_the_place_is_held(
    play: Play, tmp_path: Path, power: Power, kept_buses: dict[str, SimBus]
) -> None:
    power.cut(play, CRASHES["undeclared write"], toy_board(tmp_path, *SILENT_WRITE), kept_buses)
    other = toy_board(tmp_path, reg("OTHER", 3))

    async def after(lab: Lab) -> None:
        row = await lab.row()
        assert (row.state, lab.device().unknown_op) == ("UNKNOWN", row.op_id)
        assert code_of(await lab.ask("reg.write", register="toy.OTHER", value=1, key=KEY2)) == "held"
        assert (await lab.operator("op.settle", id=row.op_id, verdict="abandoned", reason="replaced")).ok
        assert lab.device().held() is None

    play(after, other, store="crashed")


@pytest.mark.parametrize("rebooted", [False, True], ids=["daemon restarted", "host rebooted"])
def test_crash_when_the_device_restarts_with_the_host_then_the_hosts_boot_id_is_its_evidence(
    play: Play, tmp_path: Path, power: Power, kept_buses: dict[str, SimBus], rebooted: bool
) -> None:
    # v = r: a silent device could not tell, the host's boot id can
    crash = Crash((reg("R", 0, "reset = 0x55"),), PUT, True, None, values={"R": 3}, testifies=False)
    board = toy_board(tmp_path, *crash.parts, device="restarts = 'with_host'")
    power.cut(play, crash, board, kept_buses)
    clock = FakeClock()
    clock.boot_word = "boot-2" if rebooted else "boot-1"

    async def after(lab: Lab) -> None:
        row = await lab.row()
        assert (row.state, row.verdict) == ("DONE", "superseded" if rebooted else "applied")
        assert lab.device().generation == (2 if rebooted else 1)

    play(after, board, store="crashed", clock=clock)


def test_crash_when_the_device_is_silent_then_the_same_needs_a_person(
    play: Play, tmp_path: Path, power: Power, kept_buses: dict[str, SimBus]
) -> None:
    crash = Crash((reg("R", 0, "reset = 0x55"),), PUT, True, None, values={"R": 3}, testifies=False)
    board = toy_board(tmp_path, *crash.parts)
    power.cut(play, crash, board, kept_buses)

    async def after(lab: Lab) -> None:
        assert (await lab.row()).state == "UNKNOWN"

    play(after, board, store="crashed")


def test_crash_when_it_was_approved_first_then_its_rules_come_from_the_granted_row(
    play: Play, tmp_path: Path, power: Power, kept_buses: dict[str, SimBus], monkeypatch: pytest.MonkeyPatch
) -> None:
    board = toy_board(tmp_path, reg("R", 0, "write = { effect = 'store', approval = 'required' }"))

    async def life(lab: Lab) -> None:
        pending = await lab.ask("reg.write", **PUT)
        shown = await lab.operator("approval.show", approval=pending.id)
        assert isinstance(shown.approvals, list)
        lab.clock.advance(2)
        assert (await lab.operator("approval.approve", approval=pending.id, code=shown.approvals[0]["code"])).ok

        async def dying(intent: Intent, prepared: Prepared, clock: FakeClock, *more: Any) -> Finished:
            await real_carry_out(intent, prepared, clock, *more)
            lab.disk_now("crashed")
            raise RuntimeError("the power is gone")

        monkeypatch.setattr("hwtool.execution.carry_out", dying)
        lab.clock.held = True
        await lab.ask("reg.write", **PUT)

    async def after(lab: Lab) -> None:
        assert ((await lab.row()).state, (await lab.row()).verdict) == ("DONE", "applied")
        assert kept_buses["b"].chips[0x20].executed["R", "write"] == 1

    play(life, board)
    play(after, board, store="crashed")


def test_crash_when_a_bank_would_have_to_be_selected_then_a_person_and_nothing_is_written(
    play: Play, tmp_path: Path, power: Power, kept_buses: dict[str, SimBus]
) -> None:
    bank = "[banks.B]\nselect = [{ register = 'SEL', value = 1 }]\n"
    crash = Crash((reg("SEL", 9), reg("R", 0, "bank = 'B'"), bank), PUT, True, None)
    board = toy_board(tmp_path, *crash.parts)
    power.cut(play, crash, board, kept_buses)

    async def life(lab: Lab) -> None:
        got = await lab.operator("op.get", key=KEY, verify=True)
        assert isinstance(got.op, dict)
        assert "R is in a bank that is not selected" in got.op["needs_person"]
        assert {t["do"] for t in lab.sent()} == {"read"}
        lab.chip().values["SEL"] = 1
        assert (await lab.operator("op.get", key=KEY, verify=True)).verdict == "applied"

    play(life, board, store="crashed")


def test_crash_when_the_observable_does_not_answer_then_a_person_and_a_later_try_settles_it(
    play: Play, tmp_path: Path, power: Power, kept_buses: dict[str, SimBus]
) -> None:
    crash = CRASHES["store sent"]
    board = toy_board(tmp_path, *crash.parts)
    power.cut(play, crash, board, kept_buses)
    kept_buses["b"].faults.append(Fault(FaultKind.NACK, 0x20, "read", times=100))

    async def life(lab: Lab) -> None:
        got = await lab.operator("op.get", key=KEY, verify=True)
        assert isinstance(got.op, dict)
        assert "could not be read" in got.op["needs_person"]
        lab.bus().faults.clear()
        assert (await lab.operator("op.get", key=KEY, verify=True)).verdict == "applied"

    play(life, board, store="crashed")


def test_crash_when_a_word_by_word_write_stopped_half_way_then_a_person(
    play: Play, tmp_path: Path, power: Power, kept_buses: dict[str, SimBus]
) -> None:
    wide = "[registers.R]\noffset = 0\nspace = 'holding'\nwidth_bits = 32\naccess = 'rw'\n"
    crash = Crash((wide,), {"register": "toy.R", "value": 0x00010002, "key": KEY}, False, None)
    board = toy_board(tmp_path, wide, head=MODBUS)
    power.cut(play, crash, board, kept_buses)
    kept_buses["b"].chips[0x20].values["R"] = 0x00010000

    async def life(lab: Lab) -> None:
        got = await lab.operator("op.get", key=KEY, verify=True)
        assert isinstance(got.op, dict)
        assert (got.op["state"], got.op["needs_person"]) == ("UNKNOWN", "the registers do not tell")

    play(life, board, store="crashed")


def test_observable_when_the_row_is_not_what_it_should_be_then_it_cannot_be_observed(
    play: Play, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    async def life(lab: Lab) -> None:
        write = {"transfer": as_object(RegisterWrite(0x20, Space.MEMORY, 0, b"\x01"))}
        with pytest.raises(CannotObserve, match="no clean read"):
            await _read(write, lab.device())
        assert lab.sent() == []
        monkeypatch.setattr(lab.bus(), "perform", lambda _: Confirmed(b""))
        register = lab.device().contract.registers["R"]
        shown = {
            "transfer": as_object(RegisterRead(0x20, Space.MEMORY, 0, 1)),
            "layout": Layout.of(register).as_object(),
        }
        with pytest.raises(CannotObserve):
            await _read(shown, lab.device())

    play(life, toy_board(tmp_path, *STORE))


def test_rules_when_the_operation_is_not_unknown_then_nothing_is_done(play: Play, tmp_path: Path) -> None:
    async def life(lab: Lab) -> None:
        done = await lab.ask("reg.write", **PUT)
        assert await run_rules(lab.daemon, done.id or 0, lambda *_: {}) is None
        assert await run_rules(lab.daemon, 999, lambda *_: {}) is None
        assert await lab.daemon.ask(orphans(lab.daemon, lambda _: {})) == []

    play(life, toy_board(tmp_path, *STORE))


FIRST_LIFE = """
import asyncio, os, sys
from pathlib import Path
import hwtool.execution
from hwtool.clock import Clock
from hwtool.config import load_board
from hwtool.carry_out import carry_out
from hwtool.engine import Engine
from hwtool.policy import Caller
from hwtool_sim.bus import SimBus

async def dying(intent, prepared, clock, *more):
    if sys.argv[3] == "after":
        await carry_out(intent, prepared, clock, *more)
    os._exit(7)

async def life():
    SimBus.boot_evidence = lambda *_: "the same"
    engine = await Engine.start(load_board(Path(sys.argv[1])), Path(sys.argv[2]), Clock(), allow_unsafe=True)
    hwtool.execution.carry_out = dying
    caller = Caller(1000, "agent", "abc-", 0)
    await engine.call(caller, "reg.write", {"register": "toy.R", "value": 0x55, "key": "key-0000001"})

asyncio.run(life())
"""


@pytest.mark.parametrize(("moment", "verdict"), [("before", "not_applied"), ("after", "applied")])
def test_crash_when_the_process_really_dies_at_the_dispatch_then_the_next_start_tells(
    play: Play, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, moment: str, verdict: str
) -> None:
    board = toy_board(tmp_path, *STORE)
    file = tmp_path / "board.toml"
    file.write_text(
        "name = 'toys'\napproval_mode = 'self'\n[buses.b]\nkind = 'sim'\nreply_lifetime_ms = 100\n"
        "sole_master = true\n[devices.toy]\ncontract = './toy.toml'\nbus = 'b'\naddress = 0x20\n"
    )
    script = tmp_path / "first_life.py"
    script.write_text(FIRST_LIFE)
    died = subprocess.run([sys.executable, script, file, tmp_path / "store", moment], timeout=60, check=False)
    assert died.returncode == 7
    monkeypatch.setattr(SimBus, "boot_evidence", lambda *_: "the same")
    if moment == "after":
        reset = Chip.reset

        def as_left(chip: Chip) -> None:
            reset(chip)
            chip.values["R"] = 0x55

        monkeypatch.setattr(Chip, "reset", as_left)

    async def life(lab: Lab) -> None:
        again = await lab.ask("reg.write", **PUT)
        assert (again.verdict, again.replayed, (await lab.row()).epoch) == (verdict, True, 1)
        assert lab.writes("R") == 0
        assert lab.device().held() is None

    play(life, board)
