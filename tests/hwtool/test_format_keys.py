"""The keys of the native format that change what the engine does: each with its exact traffic."""

from __future__ import annotations

import asyncio
from pathlib import Path
from typing import Any

import pytest

from hwtool_contracts.toml_reader import Faults
from hwtool_registers.bus import Answer, Rejected, Transfer
from hwtool_sim.bus import SimBus
from hwtool_sim.faults import FaultKind
from tests.hwtool.conftest import (
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
    evidence_of,
    raws,
    reg,
    toy_board,
    until,
)

HALVES = "[registers.R.fields]\nHIGH = { bits = '7:4' }\nLOW = { bits = '3:0' }\n"


def cannot_tell(lab: Lab) -> None:
    """The bus gives no boot evidence, as those of most chips."""

    def silent(address: int) -> str | None:
        return None if address else ""

    lab.bus().boot_evidence = silent  # type: ignore[method-assign]


def writing(kind: str = "store", rest: str = "") -> str:
    """A write table with one effect."""
    return f"write = {{ effect = '{kind}', provenance = 'generated'{rest} }}"


def traffic(lab: Lab, name: str = "toy") -> list[tuple[str, str, str | int]]:
    """What the bus was asked for: R with how many bytes, W with the data."""
    return [
        ("R", t["offset"], t["size_bytes"]) if t["do"] == "read" else ("W", t["offset"], t["data"])
        for t in lab.sent(name)
    ]


async def write(lab: Lab, register: str, value: Any, key: str = KEY, **more: Any) -> Any:
    return await lab.ask("reg.write", register=f"toy.{register}", value=value, key=key, **more)


async def update(lab: Lab, register: str, key: str = KEY, **fields: Any) -> Any:
    return await lab.ask("reg.update", register=f"toy.{register}", fields=fields, key=key)


# --- gates ------------------------------------------------------------------------------------------------------

GATES = {"open at its value": (1, True), "closed at another": (2, False), "closed at zero": (0, False)}


@pytest.mark.parametrize(("held", "opens"), GATES.values(), ids=list(GATES))
def test_gate_with_a_value_when_read_cleanly_then_only_that_value_opens_it(
    play: Play, tmp_path: Path, held: int, opens: bool
) -> None:
    async def life(lab: Lab) -> None:
        lab.chip().values |= {"MODE": held << 4, "R": 0x5A}
        done = await lab.ask("reg.read", registers=["toy.R"])
        if opens:
            assert (done.ok, raws(done)) == (True, ["0x5a"])
            assert traffic(lab) == [("R", "0x01", 1), ("R", "0x00", 1)]
        else:
            assert (code_of(done), error_of(done)["rule"]) == ("refused", "gate_closed")
            assert traffic(lab) == [("R", "0x01", 1)]

    mode = reg("MODE", 1, "[registers.MODE.fields]\nM = { bits = '5:4' }")
    play(life, toy_board(tmp_path, reg("R", 0, effect("none", ", gate = 'MODE.M = 1'")), mode))


@pytest.mark.parametrize(("held", "opens"), GATES.values(), ids=list(GATES))
def test_gate_with_a_value_when_written_or_popped_then_only_that_value_opens_it(
    play: Play, tmp_path: Path, held: int, opens: bool
) -> None:
    async def life(lab: Lab) -> None:
        lab.chip().values["MODE"] = held
        lab.chip().push("F", b"a")
        wrote = await write(lab, "W", 0x33)
        read = await lab.ask("reg.read_effectful", register="toy.F", key=KEY2)
        assert [r.ok for r in (wrote, read)] == [opens, opens]
        assert lab.chip().values["W"] == (0x33 if opens else 0)
        assert (lab.writes("W"), lab.reads("F")) == ((1, 1) if opens else (0, 0))
        if not opens:
            assert [error_of(r)["rule"] for r in (wrote, read)] == ["gate_closed", "gate_closed"]
            assert await lab.rows() == []  # both keys are unused

    w = reg("W", 0, writing("store", ", gate = 'MODE = 0x01'"))
    f = reg("F", 2, effect("pop", ", gate = 'MODE = 1'"), access="ro")
    play(life, toy_board(tmp_path, w, reg("MODE", 1), f))


def test_gate_with_a_value_when_an_outcome_is_unknown_then_the_rule_reads_behind_it_only_while_open(
    play: Play, tmp_path: Path
) -> None:
    async def life(lab: Lab) -> None:
        lab.chip().values["MODE"] = 1
        lab.fault(FaultKind.REPLY_LOST, offset=0)
        assert code_of(await write(lab, "R", 0x33)) == "outcome_unknown"
        requires = (await lab.row()).request["observables"]["R"]["requires"]
        assert [(r["mask"], r["value"]) for r in requires] == [(0x03, 1)]
        lab.chip().values["MODE"] = 3
        reads = lab.reads("R")
        await lab.rules_ran()
        assert ((await lab.row()).state, lab.reads("R")) == ("UNKNOWN", reads)
        lab.chip().values["MODE"] = 1
        told = await lab.ask("op.get", key=KEY, verify=True)
        assert told.ok, told
        assert (await lab.row()).verdict == "applied"

    mode = reg("MODE", 1, "[registers.MODE.fields]\nM = { bits = '1:0' }")
    play(life, toy_board(tmp_path, reg("R", 0, effect("none", ", gate = 'MODE.M = 1'")), mode))


# --- triggers, commit_by, absolute ------------------------------------------------------------------------------


def test_triggers_when_a_neighbour_is_updated_then_refused_and_nothing_is_sent(play: Play, tmp_path: Path) -> None:
    async def life(lab: Lab) -> None:
        refused = await update(lab, "R", LOW=1)
        assert (code_of(refused), error_of(refused)["rule"]) == ("refused", "unsafe_update")
        assert error_of(refused)["field"] == "HIGH"
        assert "GO" in refused.summary
        assert traffic(lab) == []
        assert (await write(lab, "R", 0x21)).verdict == "applied"
        assert lab.chip().pulses["GO"] == 1
        # the field itself may be updated: that is what is meant
        assert (await update(lab, "R", KEY2, HIGH=3)).verdict == "applied"
        assert lab.chip().pulses["GO"] == 2

    high = "HIGH = { bits = '7:4', " + writing("store", ", triggers = ['GO']") + " }"
    play(
        life, toy_board(tmp_path, reg("R", 0, f"[registers.R.fields]\n{high}\nLOW = {{ bits = '3:0' }}"), reg("GO", 1))
    )


HARMFUL = {
    "triggers": writing("store", ", triggers = ['GO']"),
    "resets": writing("store", ", resets = 'device'"),
    "irreversible": writing("store", ", irreversible = true"),
    "readdresses": writing("store", ", readdresses = true"),
    "command": writing("command", ", verify = 'none'"),
    "absolute with triggers": writing("command", ", verify = 'none', absolute = true, triggers = ['GO']"),
}


@pytest.mark.parametrize("rest", HARMFUL.values(), ids=list(HARMFUL))
def test_safe_state_when_a_write_would_set_something_off_again_then_the_board_is_refused(
    tmp_path: Path, rest: str
) -> None:
    with pytest.raises(Faults, match="writing it again is not harmless"):
        toy_board(tmp_path, reg("R", 0, rest), reg("GO", 1), device="safe_state = [{ register = 'R', value = 1 }]")


def test_absolute_when_a_command_names_a_place_then_it_may_stand_in_a_safe_state(play: Play, tmp_path: Path) -> None:
    async def life(lab: Lab) -> None:
        for key in (KEY, KEY2):
            assert (await lab.ask("device.safe_state", device="toy", key=key)).ok
        assert traffic(lab) == [("W", "0x00", "07")] * 2

    r = reg("R", 0, writing("command", ", verify = 'none', absolute = true"), access="wo")
    play(life, toy_board(tmp_path, r, device="safe_state = [{ register = 'R', value = 7 }]"))


def test_commit_by_when_written_alone_then_a_warning_says_what_is_missing(play: Play, tmp_path: Path) -> None:
    async def life(lab: Lab) -> None:
        done = await write(lab, "R", 5)
        assert (done.verdict, done.effects) == ("applied", "applied")
        assert [w for w in done.warnings if w.startswith("not_in_effect_yet")] == [
            "not_in_effect_yet: R takes effect when toy.GO is written"
        ]
        assert (await write(lab, "GO", 1, KEY2)).warnings == []
        both = await lab.ask("reg.write", registers={"toy.R": 1, "toy.GO": 2}, key=KEY3)
        assert (both.verdict, both.warnings) == ("applied", [])

    group = "[groups.G]\nmembers = ['R', 'GO']\n"
    play(life, toy_board(tmp_path, reg("R", 0, writing("store", ", commit_by = 'GO'")), reg("GO", 1), group))


# --- resets and readdresses -------------------------------------------------------------------------------------

RESET_FIELD = "RST = { bits = 7, volatile = true, " + writing("self_clearing", ", resets = 'device'") + " }"
LATCH = reg("L", 1, "[registers.L.fields]\nHIGH = { bits = '7:4' }\nLOW = { bits = '3:0' }", access="wo")


def test_resets_when_written_then_the_generation_rises_and_the_shadow_is_gone(play: Play, tmp_path: Path) -> None:
    async def life(lab: Lab) -> None:
        assert (await write(lab, "L", 0x21)).ok
        before = lab.device().generation
        done = await write(lab, "RST", 1, KEY2)
        assert (done.verdict, done.generation) == ("applied", before), done
        assert lab.device().generation == before + 1
        refused = await lab.ask("reg.update", register="toy.L", fields={"LOW": 5}, key=KEY3)
        assert (code_of(refused), error_of(refused)["rule"]) == ("refused", "no_shadow")
        assert traffic(lab) == [("W", "0x01", "21"), ("W", "0x00", "01")]
        stale = await lab.ask("reg.read", registers=["toy.A"], generation=before)
        assert code_of(stale) == "stale"

    reset = reg("RST", 0, writing("command", ", resets = 'device', verify = 'none'"), access="wo")
    play(life, toy_board(tmp_path, reset, LATCH, reg("A", 2)))


def test_resets_when_the_outcome_is_unknown_then_the_generation_rises_in_the_same_commit(
    play: Play, tmp_path: Path
) -> None:
    async def life(lab: Lab) -> None:
        cannot_tell(lab)
        assert (await write(lab, "L", 0x21)).ok
        before, commits = lab.device().generation, lab.daemon.store.commits
        lab.fault(FaultKind.REPLY_LOST, offset=0)
        unknown = await write(lab, "RST", 1, KEY2)
        assert code_of(unknown) == "outcome_unknown"
        assert (lab.device().generation, lab.daemon.store.commits - commits) == (before + 1, 2)
        settled = await lab.operator("op.settle", id=unknown.id, verdict="not_applied", reason="it did not restart")
        assert settled.ok
        refused = await update(lab, "L", KEY3, LOW=5)
        assert error_of(refused)["rule"] == "no_shadow"

    async def after(lab: Lab) -> None:
        assert lab.device().generation == 2

    reset = reg("RST", 0, writing("command", ", resets = 'device', verify = 'none'"), access="wo")
    board = toy_board(tmp_path, reset, LATCH)
    play(life, board)


def test_resets_when_proved_not_to_have_been_sent_then_the_generation_stays(play: Play, tmp_path: Path) -> None:
    async def life(lab: Lab) -> None:
        assert (await write(lab, "L", 0x21)).ok
        lab.fault(FaultKind.NACK, offset=0)
        failed = await write(lab, "RST", 1, KEY2)
        assert (code_of(failed), failed.verdict, lab.device().generation) == ("bus_fault", "not_applied", 1)
        assert (await update(lab, "L", KEY3, LOW=5)).ok
        assert lab.chip().values["L"] == 0x25

    reset = reg("RST", 0, writing("command", ", resets = 'device', verify = 'none'"), access="wo")
    play(life, toy_board(tmp_path, reset, LATCH))


def test_resets_when_acknowledged_and_the_bit_has_fallen_back_then_the_generation_rises_all_the_same(
    play: Play, tmp_path: Path
) -> None:
    async def life(lab: Lab) -> None:
        cannot_tell(lab)
        assert (await write(lab, "L", 0x21)).ok
        await write(lab, "R", 0x80, KEY2)
        assert lab.chip().values["L"] == 0  # it did restart
        assert lab.device().generation == 2
        refused = await update(lab, "L", KEY3, LOW=5)
        assert error_of(refused)["rule"] == "no_shadow"

    reset = writing("store", ", resets = 'device'")  # as a vendor's file says it of a bit that falls back
    r = reg("R", 0, f"reset = 0\n[registers.R.fields]\nRST = {{ bits = 7, {reset} }}\nA = {{ bits = 0 }}")
    play(life, toy_board(tmp_path, r, LATCH))


def test_readdresses_when_approved_and_written_then_the_device_is_held_by_the_rule(play: Play, tmp_path: Path) -> None:
    async def life(lab: Lab) -> None:
        waiting = await write(lab, "ADDR", 7)
        assert waiting.status == "pending_approval"
        direct = await lab.operator("reg.write", register="toy.ADDR", value=7, key=KEY)
        assert direct.ok, direct
        assert traffic(lab) == [("W", "0x00", "07")]
        held = await write(lab, "A", 1, KEY2)
        assert (code_of(held), error_of(held)["by_op"]) == ("held", None)
        assert "address" in held.summary
        assert (await lab.ask("reg.read", registers=["toy.A"])).ok  # clean reads go on
        assert [b["what"] for b in await lab.audit()].count("hold") == 1
        assert (await lab.operator("device.release", device="toy", reason="the board is right")).ok
        assert (await write(lab, "A", 1, KEY3)).ok

    address = reg("ADDR", 0, writing("modify", ", readdresses = true, verify = 'none'"), access="wo")
    play(life, toy_board(tmp_path, address, reg("A", 1)))


def test_readdresses_when_a_life_ends_then_the_next_one_holds_the_device_too(play: Play, tmp_path: Path) -> None:
    async def life(lab: Lab) -> None:
        assert (await lab.operator("reg.write", register="toy.ADDR", value=7, key=KEY)).ok

    async def after(lab: Lab) -> None:
        assert code_of(await write(lab, "A", 1, KEY2)) == "held"

    address = reg("ADDR", 0, writing("modify", ", readdresses = true, verify = 'none'"), access="wo")
    board = toy_board(tmp_path, address, reg("A", 1))
    play(life, board)
    play(after, board)


NEEDS_PERSON = {
    "irreversible": writing("store", ", irreversible = true"),
    "readdresses": writing("store", ", readdresses = true"),
    "approval": writing("store", ", approval = 'required'"),
    "lock": writing("lock"),
}


@pytest.mark.parametrize("rest", NEEDS_PERSON.values(), ids=list(NEEDS_PERSON))
def test_write_when_it_cannot_be_taken_back_then_it_waits_for_a_person(play: Play, tmp_path: Path, rest: str) -> None:
    async def life(lab: Lab) -> None:
        waiting = await write(lab, "R", 1)
        assert (waiting.status, waiting.ok, traffic(lab)) == ("pending_approval", False, [])
        assert (await lab.row()).state == "PENDING"

    play(life, toy_board(tmp_path, reg("R", 0, rest)))


# --- busy_retry, delay_after_ms, max_rate_per_min ---------------------------------------------------------------

BUSY = writing("store", ", verify = 'none', busy_retry = { attempts = 3, interval_ms = 7 }")


@pytest.mark.parametrize("busy", [0, 1, 2, 3], ids=["at once", "once busy", "twice busy", "always busy"])
def test_busy_retry_when_the_bus_proves_busy_then_asked_again_up_to_the_limit_and_counted(
    play: Play, tmp_path: Path, busy: int
) -> None:
    async def life(lab: Lab) -> None:
        if busy:
            lab.fault(FaultKind.NACK, offset=0, times=busy)
        before_s = lab.clock.mono
        done = await write(lab, "R", 0x55)
        tries = min(busy + 1, 3)
        assert traffic(lab) == [("W", "0x00", "55")] * tries
        assert evidence_of(done)["transfers"] == tries
        assert lab.writes("R") == (1 if busy < 3 else 0)
        assert round(1000 * (lab.clock.mono - before_s)) == 7 * (tries - 1)
        if busy < 3:
            assert (done.verdict, done.effects) == ("applied", "unknown")
        else:
            assert (code_of(done), done.verdict, done.effects) == ("bus_fault", "not_applied", "none")

    play(life, toy_board(tmp_path, reg("R", 0, BUSY, access="wo")))


def test_busy_retry_when_the_answer_is_ambiguous_then_never_again(play: Play, tmp_path: Path) -> None:
    async def life(lab: Lab) -> None:
        lab.fault(FaultKind.REPLY_LOST, offset=0)
        assert code_of(await write(lab, "R", 0x55)) == "outcome_unknown"
        assert traffic(lab) == [("W", "0x00", "55")]
        assert lab.writes("R") == 1

    play(life, toy_board(tmp_path, reg("R", 0, BUSY, access="wo")))


def test_busy_retry_when_not_declared_then_one_transfer(play: Play, tmp_path: Path) -> None:
    async def life(lab: Lab) -> None:
        lab.fault(FaultKind.NACK, offset=0)
        assert code_of(await write(lab, "R", 0x55)) == "bus_fault"
        assert traffic(lab) == [("W", "0x00", "55")]

    play(life, toy_board(tmp_path, reg("R", 0, writing("store", ", verify = 'none'"), access="wo")))


def test_busy_retry_when_another_proof_then_one_transfer(
    play: Play, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    async def life(lab: Lab) -> None:
        asked: list[Transfer] = []

        def carry(_: SimBus, transfer: Transfer) -> tuple[Answer, float | None]:
            asked.append(transfer)
            return Rejected("exception 02", "modbus-exception-02"), None

        monkeypatch.setattr(SimBus, "carry", carry)
        assert code_of(await write(lab, "R", 0x55)) == "bus_fault"
        assert len(asked) == 1

    play(life, toy_board(tmp_path, reg("R", 0, BUSY, access="wo")))


def test_busy_retry_when_a_modbus_device_answers_busy_then_asked_again(play: Play, tmp_path: Path) -> None:
    async def life(lab: Lab) -> None:
        lab.fault(FaultKind.EXCEPTION, offset=0, code=6)
        done = await write(lab, "R", 0x0102)
        assert (done.verdict, evidence_of(done)["transfers"]) == ("applied", 2)
        assert traffic(lab) == [("W", "0x00", "0102")] * 2
        assert lab.writes("R") == 1

    play(life, toy_board(tmp_path, reg("R", 0, f"space = 'holding'\n{BUSY}", access="wo"), head=MODBUS))


def test_busy_retry_when_the_entry_of_a_safe_state_meets_a_busy_device_then_asked_again(
    play: Play, tmp_path: Path
) -> None:
    async def life(lab: Lab) -> None:
        lab.fault(FaultKind.NACK, offset=0)
        done = await lab.ask("device.safe_state", device="toy", key=KEY)
        assert (done.ok, traffic(lab)) == (True, [("W", "0x00", "01")] * 2)

    safe = "safe_state = [{ register = 'R', value = 1 }]"
    play(life, toy_board(tmp_path, reg("R", 0, BUSY, access="wo"), device=safe))


def test_delay_after_when_written_then_the_device_is_left_alone_and_others_go_on(play: Play, tmp_path: Path) -> None:
    second = "[devices.two]\ncontract = './toy.toml'\nbus = 'b'\naddress = 0x21\n"

    async def life(lab: Lab) -> None:
        lab.clock.held = True
        assert (await write(lab, "R", 1)).ok
        task = asyncio.create_task(lab.ask("reg.read", registers=["toy.A"]))
        for _ in range(50):
            await asyncio.sleep(0)
        assert not task.done()
        assert (await lab.ask("reg.read", registers=["two.A"])).ok
        assert (await lab.ask("reg.write", register="two.A", value=1, key=KEY2)).ok
        assert lab.reads("A") == 0
        lab.clock.advance(0.019)
        for _ in range(50):
            await asyncio.sleep(0)
        assert not task.done()
        lab.clock.advance(0.002)
        assert (await task).ok
        assert lab.reads("A") == 1

    r = reg("R", 0, writing("store", ", verify = 'none', delay_after_ms = 20"), access="wo")
    play(life, toy_board(tmp_path, r, reg("A", 1), device=second))


def test_delay_after_when_the_write_is_read_back_then_the_read_waits(play: Play, tmp_path: Path) -> None:
    async def life(lab: Lab) -> None:
        before_s = lab.clock.mono
        assert (await write(lab, "R", 1)).verdict == "applied"
        assert traffic(lab) == [("R", "0x00", 1), ("W", "0x00", "01"), ("R", "0x00", 1)]
        assert lab.clock.mono - before_s == pytest.approx(0.02)

    play(life, toy_board(tmp_path, reg("R", 0, writing("store", ", delay_after_ms = 20"))))


def test_delay_after_when_the_clock_is_before_zero_then_the_read_waits_all_the_same(play: Play, tmp_path: Path) -> None:
    async def life(lab: Lab) -> None:
        before_s = lab.clock.mono
        assert (await write(lab, "R", 1)).verdict == "applied"
        assert lab.clock.mono - before_s == pytest.approx(0.02)

    play(life, toy_board(tmp_path, reg("R", 0, writing("store", ", delay_after_ms = 20"))))


def test_delay_after_when_the_entry_of_a_safe_state_has_one_then_the_next_entry_waits(
    play: Play, tmp_path: Path
) -> None:
    async def life(lab: Lab) -> None:
        before_s = lab.clock.mono
        assert (await lab.ask("device.safe_state", device="toy", key=KEY)).ok
        assert traffic(lab) == [("W", "0x00", "01"), ("W", "0x01", "01")]
        assert lab.clock.mono - before_s == pytest.approx(0.02)

    safe = "safe_state = [{ register = 'R', value = 1 }, { register = 'S', value = 1 }]"
    slow = writing("store", ", verify = 'none', delay_after_ms = 20")
    plain = writing("store", ", verify = 'none'")
    play(
        life,
        toy_board(tmp_path, reg("R", 0, slow, access="wo"), reg("S", 1, plain, access="wo"), device=safe),
    )


def test_delay_after_when_the_answer_is_ambiguous_then_the_device_is_left_alone_too(play: Play, tmp_path: Path) -> None:
    async def life(lab: Lab) -> None:
        lab.fault(FaultKind.REPLY_LOST, offset=0)
        before_s = lab.clock.mono
        assert code_of(await write(lab, "R", 1)) == "outcome_unknown"
        await lab.rules_ran()
        assert lab.reads("R") == 2  # before, and by the rule
        assert lab.clock.mono - before_s >= 0.5

    play(life, toy_board(tmp_path, reg("R", 0, writing("store", ", delay_after_ms = 500"))))


def test_max_rate_when_it_is_reached_then_rate_limited_and_the_key_is_unused(play: Play, tmp_path: Path) -> None:
    async def life(lab: Lab) -> None:
        for number in (1, 2):
            assert (await write(lab, "R", number, f"key-000000{number}")).ok
            lab.clock.advance(10)
        sent = traffic(lab)
        limited = await write(lab, "R", 3, KEY3)
        assert (code_of(limited), limited.effects, limited.id) == ("rate_limited", "none", None)
        assert error_of(limited)["retry_after_ms"] == 40_000
        assert [t for t in traffic(lab)[len(sent) :] if t[0] == "W"] == []
        assert {r.key for r in await lab.rows()} == {KEY, KEY2}
        assert (await write(lab, "OTHER", 1, "key-0000009")).ok
        lab.clock.advance(41)
        assert (await write(lab, "R", 3, KEY3)).ok

    r = reg("R", 0, writing("store", ", verify = 'none', max_rate_per_min = 2"), access="wo")
    play(life, toy_board(tmp_path, r, reg("OTHER", 1)))


# --- verify -----------------------------------------------------------------------------------------------------

TOLERANCE = {"equal": (0x11, True), "one off": (0x12, True), "two below": (0x0F, True), "three off": (0x14, False)}


@pytest.mark.parametrize(("seen", "near"), TOLERANCE.values(), ids=list(TOLERANCE))
def test_tolerance_when_the_read_back_is_near_then_applied(
    play: Play, tmp_path: Path, seen: int, near: bool, monkeypatch: pytest.MonkeyPatch
) -> None:
    async def life(lab: Lab) -> None:
        lab.chip().values["SHOWN"] = 0x80
        deaf(lab, monkeypatch, "R")
        real = SimBus.carry

        def carry(bus: SimBus, transfer: Transfer) -> tuple[Answer, float | None]:
            answer = real(bus, transfer)
            if lab.writes("R"):
                lab.chip().values["SHOWN"] = seen
            return answer

        monkeypatch.setattr(SimBus, "carry", carry)
        done = await write(lab, "R", 0x11)
        assert (done.verdict, done.effects) == (("applied", "applied") if near else ("not_applied", "applied"))

    r = reg("R", 0, writing("store", ", verify = { by = 'read_back', register = 'SHOWN', tolerance = 2 }"))
    play(life, toy_board(tmp_path, r, reg("SHOWN", 1, access="ro")))


def test_tolerance_when_the_register_changes_inside_it_then_it_is_not_called_unchanged(
    play: Play, tmp_path: Path
) -> None:
    async def life(lab: Lab) -> None:
        lab.chip().values["R"] = 0x10
        done = await write(lab, "R", 0x11)
        assert lab.chip().values["R"] == 0x11
        assert done.ok
        assert done.effects != "none"

    play(life, toy_board(tmp_path, reg("R", 0, writing("store", ", verify = { by = 'read_back', tolerance = 2 }"))))


def test_verify_mask_when_a_field_names_another_register_then_only_these_bits_of_it_count(
    play: Play, tmp_path: Path
) -> None:
    async def life(lab: Lab) -> None:
        lab.chip().values["SHOWN"] = 0xF000
        done = await write(lab, "R", 0x05)
        assert (done.verdict, done.effects) == ("applied", "applied")
        (target,) = (await lab.row()).request["targets"]
        assert (target["observe"], target["strong"], target["wanted"]) == ("SHOWN", 0x0F, 0x05)
        assert traffic(lab) == [("R", "0x01", 2), ("W", "0x00", "05"), ("R", "0x01", 2)]

    verify = writing("store", ", verify = { by = 'read_back', register = 'SHOWN', mask = 0x0F }")
    r = reg("R", 0, f"[registers.R.fields]\nLOW = {{ bits = '3:0', {verify} }}\nHIGH = {{ bits = '7:4' }}")
    play(life, toy_board(tmp_path, r, reg("SHOWN", 1, "width_bits = 16", access="ro")))


# --- one storage, several addresses -----------------------------------------------------------------------------


def test_set_and_clear_when_updated_then_ones_alone_are_written_and_nothing_need_be_read_first(
    play: Play, tmp_path: Path
) -> None:
    async def life(lab: Lab) -> None:
        lab.chip().values["R"] = 0xA6
        done = await update(lab, "R", LOW=0x9)
        assert (done.verdict, lab.chip().values["R"]) == ("applied", 0xA9)
        assert traffic(lab) == [
            ("R", "0x00", 1),
            ("W", "0x10", "09"),
            ("W", "0x11", "06"),
            ("R", "0x00", 1),
        ]
        only = await update(lab, "R", KEY2, HIGH=0xF)
        assert (only.verdict, lab.chip().values["R"]) == ("applied", 0xF9)
        assert traffic(lab)[5] == ("W", "0x10", "f0")

    play(life, toy_board(tmp_path, reg("R", 0, f"set_at = 0x10\nclear_at = 0x11\n{HALVES}")))


def test_set_and_clear_when_the_register_is_write_only_then_no_read_and_no_shadow_is_needed(
    play: Play, tmp_path: Path
) -> None:
    async def life(lab: Lab) -> None:
        lab.chip().values["R"] = 0xA6
        done = await update(lab, "R", LOW=0x9)
        assert (done.verdict, done.effects, lab.chip().values["R"]) == ("applied", "unknown", 0xA9)
        assert traffic(lab) == [("W", "0x10", "09"), ("W", "0x11", "06")]

    play(life, toy_board(tmp_path, reg("R", 0, f"set_at = 0x10\nclear_at = 0x11\n{HALVES}", access="wo")))


def test_set_and_clear_when_they_stand_higher_then_the_ones_are_shifted(play: Play, tmp_path: Path) -> None:
    async def life(lab: Lab) -> None:
        lab.chip().values["R"] = 0x0006
        done = await update(lab, "R", LOW=0x9)
        assert (done.verdict, lab.chip().values["R"]) == ("applied", 0x0009)
        assert traffic(lab)[1:3] == [("W", "0x10", "00000009"), ("W", "0x10", "00060000")]

    rest = "width_bits = 32\nset_at = 0x10\nclear_at = { at = 0x10, shift = 16 }\n"
    fields = "[registers.R.fields]\nLOW = { bits = '3:0' }\nREST = { bits = '15:4' }\n"
    fields += "NONE = { bits = '31:16', reserved = 'zero' }"
    play(life, toy_board(tmp_path, reg("R", 0, rest + fields)))


def test_set_and_clear_when_a_neighbour_is_changed_by_another_then_it_is_not_written_back(
    play: Play, tmp_path: Path
) -> None:
    async def life(lab: Lab) -> None:
        lab.chip().values["R"] = 0xA6
        lab.fault(FaultKind.FOREIGN, offset=0x10, register="R", value=0x56)
        done = await update(lab, "R", LOW=0x9)
        assert (done.ok, lab.chip().values["R"]) == (True, 0x59)

    play(life, toy_board(tmp_path, reg("R", 0, f"set_at = 0x10\nclear_at = 0x11\n{HALVES}")))


def test_toggle_when_updated_then_the_bits_that_differ_are_written(play: Play, tmp_path: Path) -> None:
    async def life(lab: Lab) -> None:
        lab.chip().values["R"] = 0xA6
        done = await update(lab, "R", LOW=0x9)
        assert (done.verdict, lab.chip().values["R"]) == ("applied", 0xA9)
        assert traffic(lab) == [("R", "0x00", 1), ("W", "0x12", "0f"), ("R", "0x00", 1)]

    play(life, toy_board(tmp_path, reg("R", 0, f"toggle_at = 0x12\n{HALVES}")))


def test_toggle_when_nothing_differs_then_refused_and_the_key_is_unused(play: Play, tmp_path: Path) -> None:
    async def life(lab: Lab) -> None:
        lab.chip().values["R"] = 0xA6
        refused = await update(lab, "R", LOW=0x6)
        assert (code_of(refused), error_of(refused)["rule"]) == ("refused", "changes_nothing")
        assert (traffic(lab), await lab.rows()) == ([("R", "0x00", 1)], [])

    play(life, toy_board(tmp_path, reg("R", 0, f"toggle_at = 0x12\n{HALVES}")))


def test_toggle_when_reading_the_register_has_an_effect_then_refused_and_it_is_not_read(
    play: Play, tmp_path: Path
) -> None:
    async def life(lab: Lab) -> None:
        lab.chip().values["R"] = 0x0F
        refused = await update(lab, "R", HIGH=1)
        lab.chip().executed.clear()  # must_agree would say it too: a read that no operation accounts for
        assert (code_of(refused), traffic(lab)) == ("refused", [])

    rest = f"toggle_at = 0x12\n{effect('unknown')}\n{HALVES}".replace("generated", "asserted")
    play(life, toy_board(tmp_path, reg("R", 0, rest)))


def test_toggle_when_the_register_is_write_only_then_refused_or_by_shadow_and_its_place_is_not_read(
    play: Play, tmp_path: Path
) -> None:
    async def life(lab: Lab) -> None:
        lab.chip().push("F", b"ab")
        refused = await update(lab, "R", HIGH=1)
        lab.chip().executed.clear()
        assert (code_of(refused), traffic(lab)) == ("refused", [])

    fifo = reg("F", 0, effect("pop"), access="ro")  # another thing at the same place, as in many UARTs
    play(life, toy_board(tmp_path, reg("R", 0, f"toggle_at = 0x12\n{HALVES}", access="wo"), fifo))


def test_toggle_when_the_bits_are_volatile_then_not_by_toggling(play: Play, tmp_path: Path) -> None:
    async def life(lab: Lab) -> None:
        lab.chip().values["R"] = 0x0F
        done = await update(lab, "R", HIGH=1)
        assert done.verdict is not None
        assert [t for t in traffic(lab) if t[0] == "W"] == [("W", "0x00", "1f")]

    fields = "[registers.R.fields]\nHIGH = { bits = '7:4', volatile = true }\nLOW = { bits = '3:0' }"
    play(life, toy_board(tmp_path, reg("R", 0, f"toggle_at = 0x12\n{fields}")))


def test_set_when_the_shift_leaves_the_register_then_the_contract_is_refused(tmp_path: Path) -> None:
    with pytest.raises(Faults):
        toy_board(tmp_path, reg("R", 0, f"set_at = {{ at = 0x10, shift = 4 }}\nclear_at = 0x11\n{HALVES}"))


def test_write_mask_when_updated_then_one_write_with_its_bits_and_no_neighbour(play: Play, tmp_path: Path) -> None:
    async def life(lab: Lab) -> None:
        lab.chip().values["R"] = 0xA6
        done = await update(lab, "R", LOW=0x9)
        assert (done.verdict, lab.chip().values["R"]) == ("applied", 0xA9)
        assert traffic(lab) == [("R", "0x00", 2), ("W", "0x00", "000f0009"[2:4] + "09"), ("R", "0x00", 2)]

    fields = "[registers.R.fields]\nHIGH = { bits = '7:4' }\nLOW = { bits = '3:0' }\n"
    play(life, toy_board(tmp_path, reg("R", 0, f"width_bits = 16\nwrite_mask_bits = '15:8'\n{fields}")))


def test_also_at_when_declared_then_reads_and_plans_go_to_the_first_place(play: Play, tmp_path: Path) -> None:
    async def life(lab: Lab) -> None:
        assert (await write(lab, "R", 0x21)).verdict == "applied"
        assert lab.chip().read(lab.device().contract.registers["R"].space, 0x20, 1) == b"\x21"
        lab.chip().executed["R", "read"] -= 1
        assert traffic(lab) == [("R", "0x00", 1), ("W", "0x00", "21"), ("R", "0x00", 1)]

    play(life, toy_board(tmp_path, reg("R", 0, "also_at = [0x20]")))


# --- errata and what may block ----------------------------------------------------------------------------------


def test_erratum_when_the_register_is_used_then_told_with_each_result(play: Play, tmp_path: Path) -> None:
    async def life(lab: Lab) -> None:
        told = "erratum: R: bit 3 sticks (rev. B)"
        assert (await lab.ask("reg.read", registers=["toy.R"])).warnings == [told]
        assert told in (await write(lab, "R", 1)).warnings
        lab.chip().push("F", b"a")
        assert "erratum: F: late" in (await lab.ask("reg.read_effectful", register="toy.F", key=KEY2)).warnings
        assert (await lab.ask("reg.read", registers=["toy.S"])).warnings == []

    f = reg("F", 2, "erratum = 'late'\n" + effect("pop"), access="ro")
    play(life, toy_board(tmp_path, reg("R", 0, "erratum = 'bit 3 sticks (rev. B)'"), reg("S", 1), f))


def test_may_block_when_neighbours_are_read_then_it_is_not_merged(play: Play, tmp_path: Path) -> None:
    async def life(lab: Lab) -> None:
        assert (await lab.ask("reg.read", registers=["toy.A", "toy.R", "toy.B", "toy.C"])).ok
        assert traffic(lab) == [("R", "0x00", 1), ("R", "0x01", 1), ("R", "0x02", 2)]

    play(life, toy_board(tmp_path, reg("A", 0), reg("R", 1, "may_block = true"), reg("B", 2), reg("C", 3)))


def test_alternates_when_they_overlap_then_an_update_of_either_is_refused_and_a_whole_write_is_not(
    play: Play, tmp_path: Path
) -> None:
    async def life(lab: Lab) -> None:
        for fields in ({"HOST": 1}, {"DEVICE": 1}):
            refused = await lab.ask("reg.update", register="toy.R", fields=fields, key=KEY)
            assert error_of(refused)["rule"] == "unsafe_update"
        assert traffic(lab) == []
        lab.chip().values["R"] = 0xC0
        assert (await update(lab, "R", KEY2, ALONE=1)).ok
        assert lab.chip().values["R"] == 0xC1
        assert (await write(lab, "R", 0x55, KEY3)).ok

    fields = (
        "[registers.R.fields]\nHOST = { bits = '7:4', alternate = true }\n"
        "DEVICE = { bits = '5:4', alternate = true }\nALONE = { bits = 0 }\n"
    )
    play(life, toy_board(tmp_path, reg("R", 0, fields)))


def test_parts_when_a_field_is_spread_then_update_and_read_put_it_together(play: Play, tmp_path: Path) -> None:
    async def life(lab: Lab) -> None:
        lab.chip().values["R"] = 0b0101_1010
        done = await update(lab, "R", SPREAD=0b1101)
        assert (done.verdict, lab.chip().values["R"]) == ("applied", 0b1101_1001)
        shown = await lab.ask("reg.read", registers=["toy.R"])
        assert (shown.values or [])[0]["fields"]["SPREAD"]["value"] == 0b1101

    fields = "[registers.R.fields]\nSPREAD = { parts = ['7:6', '1:0'] }\nREST = { bits = '5:2' }"
    play(life, toy_board(tmp_path, reg("R", 0, fields)))


# --- shadows ----------------------------------------------------------------------------------------------------


def test_shadow_when_a_write_was_settled_then_an_update_builds_on_it(play: Play, tmp_path: Path) -> None:
    async def life(lab: Lab) -> None:
        refused = await update(lab, "L", LOW=5)
        assert (code_of(refused), error_of(refused)["rule"]) == ("refused", "no_shadow")
        assert (traffic(lab), await lab.rows()) == ([], [])
        assert (await write(lab, "L", 0x21)).ok
        assert (await update(lab, "L", KEY2, LOW=5)).ok
        assert (await update(lab, "L", KEY3, HIGH=7)).ok
        assert traffic(lab) == [("W", "0x01", "21"), ("W", "0x01", "25"), ("W", "0x01", "75")]

    play(life, toy_board(tmp_path, LATCH))


def test_shadow_when_a_later_write_is_unknown_then_refused_until_it_is_settled(play: Play, tmp_path: Path) -> None:
    async def life(lab: Lab) -> None:
        assert (await write(lab, "L", 0x21)).ok
        lab.fault(FaultKind.REPLY_LOST, offset=1)
        unknown = await write(lab, "L", 0x99, KEY2)
        assert code_of(await update(lab, "L", KEY3, LOW=5)) == "held"
        await lab.rules_ran()
        assert (await lab.operator("op.settle", id=unknown.id, verdict="abandoned", reason="nobody knows")).ok
        refused = await update(lab, "L", KEY3, LOW=5)
        assert error_of(refused)["rule"] == "no_shadow"
        assert (await write(lab, "L", 0x44, "key-0000004")).ok
        assert (await update(lab, "L", KEY3, LOW=5)).ok
        assert lab.chip().values["L"] == 0x45

    play(life, toy_board(tmp_path, LATCH))


def test_shadow_when_a_person_settles_it_as_applied_then_it_counts(play: Play, tmp_path: Path) -> None:
    async def life(lab: Lab) -> None:
        lab.fault(FaultKind.REPLY_LOST, offset=1)
        unknown = await write(lab, "L", 0x99)
        await lab.rules_ran()
        assert (await lab.operator("op.settle", id=unknown.id, verdict="applied", reason="seen")).ok
        assert (await update(lab, "L", KEY3, LOW=5)).ok
        assert lab.chip().values["L"] == 0x95

    play(life, toy_board(tmp_path, LATCH))


def test_shadow_when_the_write_was_proved_not_sent_then_the_one_before_counts(play: Play, tmp_path: Path) -> None:
    async def life(lab: Lab) -> None:
        assert (await write(lab, "L", 0x21)).ok
        lab.fault(FaultKind.NACK, offset=1)
        assert code_of(await write(lab, "L", 0x99, KEY2)) == "bus_fault"
        assert (await update(lab, "L", KEY3, LOW=5)).ok
        assert lab.chip().values["L"] == 0x25

    play(life, toy_board(tmp_path, LATCH))


def test_shadow_when_the_device_restarted_then_refused(play: Play, tmp_path: Path) -> None:
    async def life(lab: Lab) -> None:
        assert (await write(lab, "L", 0x21)).ok
        lab.chip().reset()
        refused = await update(lab, "L", KEY2, LOW=5)
        assert error_of(refused)["rule"] == "no_shadow"
        assert traffic(lab) == [("W", "0x01", "21")]

    play(life, toy_board(tmp_path, LATCH))


def test_shadow_when_the_daemon_restarted_and_the_device_did_not_then_it_still_counts(
    play: Play, tmp_path: Path, kept_buses: dict[str, SimBus]
) -> None:
    async def life(lab: Lab) -> None:
        assert (await write(lab, "L", 0x21)).ok

    async def after(lab: Lab) -> None:
        assert (await update(lab, "L", KEY2, LOW=5)).ok
        assert lab.chip().values["L"] == 0x25

    board = toy_board(tmp_path, LATCH)
    play(life, board)
    play(after, board)


def test_shadow_when_the_write_was_partial_then_refused(play: Play, tmp_path: Path) -> None:
    async def life(lab: Lab) -> None:
        assert (await write(lab, "L", 0x2100_0000)).ok
        lab.fault(FaultKind.EXCEPTION, offset=1, code=2)
        partial = await write(lab, "L", 0x4400_0001, KEY2)
        assert partial.verdict == "partial", partial
        refused = await update(lab, "L", KEY3, LOW=5)
        assert error_of(refused)["rule"] == "no_shadow"

    fields = "[registers.L.fields]\nHIGH = { bits = '31:16' }\nLOW = { bits = '15:0' }"
    latch = reg("L", 0, f"space = 'holding'\nwidth_bits = 32\n{fields}", access="wo")
    play(life, toy_board(tmp_path, latch, head=MODBUS))


def test_shadow_when_a_group_wrote_the_register_then_it_counts(play: Play, tmp_path: Path) -> None:
    async def life(lab: Lab) -> None:
        assert (await lab.ask("reg.write", registers={"toy.L": 0x21, "toy.M": 2}, key=KEY)).ok
        assert (await update(lab, "L", KEY2, LOW=5)).ok
        assert lab.chip().values["L"] == 0x25

    play(life, toy_board(tmp_path, LATCH, reg("M", 2, access="wo"), "[groups.G]\nmembers = ['L', 'M']\n"))


def test_shadow_when_a_neighbour_is_volatile_or_not_a_store_then_refused_by_the_judge(
    play: Play, tmp_path: Path
) -> None:
    async def life(lab: Lab) -> None:
        assert (await write(lab, "L", 0x21)).ok
        assert error_of(await update(lab, "L", KEY2, LOW=5))["rule"] == "unsafe_update"

    fields = "[registers.L.fields]\nHIGH = { bits = '7:4', volatile = true }\nLOW = { bits = '3:0' }"
    play(life, toy_board(tmp_path, reg("L", 1, fields, access="wo")))


# --- spread over time -------------------------------------------------------------------------------------------


def test_rest_when_a_request_waits_for_it_then_a_hold_that_comes_meanwhile_stops_it(play: Play, tmp_path: Path) -> None:
    async def life(lab: Lab) -> None:
        lab.clock.held = True
        assert (await write(lab, "R", 1)).ok
        task = asyncio.create_task(write(lab, "A", 1, KEY2))
        await until(lambda: lab.device().waiting == 1)
        assert (await lab.operator("device.hold", device="toy", reason="stop")).ok
        lab.clock.held = False
        lab.clock.advance(1)
        assert code_of(await task) == "held"
        assert lab.writes("A") == 0

    r = reg("R", 0, writing("store", ", verify = 'none', delay_after_ms = 20"), access="wo")
    play(life, toy_board(tmp_path, r, reg("A", 1)))


ELSEWHERE: dict[str, tuple[str, int, int, int, bool]] = {
    # effect, what the other register holds before, what is written, what it holds after, whether that shows
    "ones set": ("one_to_set", 0xA0, 0x05, 0xA5, True),
    "ones clear": ("one_to_clear", 0xAF, 0x05, 0xAA, True),
    "ones toggle": ("one_to_toggle", 0xA4, 0x05, 0xA1, True),
    "a store": ("store", 0xA0, 0x05, 0x05, True),
    "nothing happens": ("one_to_set", 0xA0, 0x05, 0xA0, False),
}


@pytest.mark.parametrize(("kind", "before", "value", "after", "shows"), ELSEWHERE.values(), ids=list(ELSEWHERE))
def test_verify_when_ones_act_on_another_register_then_it_says_something_of_these_bits_alone(
    play: Play,
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
    kind: str,
    before: int,
    value: int,
    after: int,
    shows: bool,
) -> None:
    async def life(lab: Lab) -> None:
        lab.chip().values["PORT"] = before
        real = SimBus.carry

        def carry(bus: SimBus, transfer: Transfer) -> tuple[Answer, float | None]:
            answer = real(bus, transfer)
            if lab.writes("R"):
                lab.chip().values["PORT"] = after
            return answer

        monkeypatch.setattr(SimBus, "carry", carry)
        done = await write(lab, "R", value)
        assert (done.verdict == "applied", done.effects == "applied") == (shows, shows), done
        assert traffic(lab)[:2] == [("R", "0x01", 1), ("W", "0x00", f"{value:02x}")]

    verify = writing(kind, ", verify = { by = 'read_back', register = 'PORT' }")
    play(life, toy_board(tmp_path, reg("R", 0, verify, access="wo"), reg("PORT", 1)))
