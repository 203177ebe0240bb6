"""How a register is reached: accesses of a width of their own, packet error codes, a verification that consumes."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

from hwtool_registers.bus import RegisterRead, RegisterWrite, Rejected, from_object
from hwtool_sim.faults import FaultKind
from tests.hwtool.conftest import (
    I2C,
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
    raws,
    reg,
    toy_board,
)
from tests.hwtool.test_format_keys import cannot_tell, traffic, update, write, writing

PIECES = reg(
    "R", 0, "width_bits = 32\naccess_bits = 16\nfields.LOW = { bits = '7:0' }\nfields.REST = { bits = '31:8' }"
)


# --- a register that takes several accesses -----------------------------------------------------------------------


def test_pieces_when_read_then_each_access_once_in_order_and_the_value_whole(play: Play, tmp_path: Path) -> None:
    async def life(lab: Lab) -> None:
        lab.chip().values |= {"R": 0x11223344, "N": 0x55}
        done = await lab.ask("reg.read", registers=["toy.R", "toy.N"])
        assert (raws(done), done.warnings) == (["0x11223344", "0x55"], [])
        assert traffic(lab) == [("R", "0x00", 2), ("R", "0x02", 2), ("R", "0x04", 1)]  # never merged with a neighbour

    play(life, toy_board(tmp_path, PIECES, reg("N", 4)))


@pytest.mark.parametrize(("said", "warned"), [("volatile = true", True), ("volatile = false", False)])
def test_pieces_when_hardware_moves_the_value_then_the_result_warns_that_it_may_be_torn(
    play: Play, tmp_path: Path, said: str, warned: bool
) -> None:
    async def life(lab: Lab) -> None:
        done = await lab.ask("reg.read", registers=["toy.R"])
        assert [w.partition(":")[0] for w in done.warnings] == (["torn"] if warned else [])

    play(life, toy_board(tmp_path, reg("R", 0, f"width_bits = 16\naccess_bits = 8\n{said}")))


def test_pieces_when_the_first_access_latches_the_rest_then_no_warning(play: Play, tmp_path: Path) -> None:
    async def life(lab: Lab) -> None:
        done = await lab.ask("reg.read", registers=["toy.G"])
        assert (done.ok, done.warnings) == (True, [])

    latch = "width_bits = 16\naccess_bits = 8\nvolatile = true\n" + effect("latch")
    group = "[groups.G]\nmembers = ['R', 'S']\ntransfer = 'each'\n"
    play(life, toy_board(tmp_path, reg("R", 0, latch, "ro"), reg("S", 2), group))


def test_pieces_when_written_then_shown_by_all_of_them(play: Play, tmp_path: Path) -> None:
    async def life(lab: Lab) -> None:
        done = await write(lab, "R", 0x11223344)
        assert (done.ok, done.verdict, lab.chip().values["R"]) == (True, "applied", 0x11223344)
        assert traffic(lab)[2:4] == [("W", "0x00", "1122"), ("W", "0x02", "3344")]
        changed = await update(lab, "R", KEY2, LOW=0x55)
        assert (changed.ok, lab.chip().values["R"]) == (True, 0x11223355)

    play(life, toy_board(tmp_path, PIECES))


def test_pieces_when_the_second_access_is_refused_then_partial(play: Play, tmp_path: Path) -> None:
    async def life(lab: Lab) -> None:
        lab.fault(FaultKind.NACK, offset=2)
        done = await write(lab, "R", 0x11223344)
        assert (code_of(done), done.verdict, done.effects) == ("not_applied", "partial", "applied")
        assert (error_of(done)["done"], error_of(done)["total"]) == (1, 2)
        assert lab.chip().values["R"] == 0x11220000

    play(life, toy_board(tmp_path, PIECES))


def test_pieces_when_an_outcome_is_unknown_then_the_rule_reads_all_of_them(play: Play, tmp_path: Path) -> None:
    async def life(lab: Lab) -> None:
        lab.fault(FaultKind.REPLY_LOST, offset=2)
        assert code_of(await write(lab, "R", 0x11223344)) == "outcome_unknown"
        await lab.rules_ran()
        row = await lab.row()
        assert (row.state, row.verdict) == ("DONE", "applied")
        shown = row.request["observables"]["R"]
        assert [from_object(t) for t in (shown["transfer"], *shown["further"])] == [
            RegisterRead(0x20, lab.device().contract.registers["R"].space, offset, 2) for offset in (0, 2)
        ]
        assert traffic(lab)[-2:] == [("R", "0x00", 2), ("R", "0x02", 2)]

    play(life, toy_board(tmp_path, PIECES))


# --- a register inside a wider access -----------------------------------------------------------------------------

WIDE = reg("R", 5, "access_bits = 32", "ro")


def test_wide_access_when_read_then_the_registers_own_byte_of_it(play: Play, tmp_path: Path) -> None:
    async def life(lab: Lab) -> None:
        lab.chip().values |= {"R": 0x5A, "N": 0x66}
        done = await lab.ask("reg.read", registers=["toy.R"])
        assert (raws(done), traffic(lab)) == (["0x5a"], [("R", "0x04", 4)])

    play(life, toy_board(tmp_path, WIDE, reg("N", 6)))


def test_wide_access_when_a_neighbour_pops_then_no_clean_read(play: Play, tmp_path: Path) -> None:
    async def life(lab: Lab) -> None:
        lab.chip().push("N", b"ab")
        refused = await lab.ask("reg.read", registers=["toy.R"])
        assert (code_of(refused), error_of(refused)["rule"]) == ("refused", "read_has_side_effects")
        assert (traffic(lab), lab.reads("N")) == ([], 0)

    play(life, toy_board(tmp_path, WIDE, reg("N", 6, effect("pop"), "ro"), reg("M", 7)))


def test_wide_access_when_it_shows_a_write_then_a_rule_takes_the_registers_own_byte(play: Play, tmp_path: Path) -> None:
    async def life(lab: Lab) -> None:
        lab.fault(FaultKind.REPLY_LOST)
        lab.chip().values["R"] = 0x00
        real = lab.bus().perform

        def mirrored(transfer: Any) -> Any:
            answer = real(transfer)
            lab.chip().values["R"] = lab.chip().values["W"]
            return answer

        lab.bus().perform = mirrored  # type: ignore[method-assign]
        assert code_of(await write(lab, "W", 0x21)) == "outcome_unknown"
        await lab.rules_ran()
        row = await lab.row()
        assert (row.state, row.verdict, row.request["observables"]["R"]["start"]) == ("DONE", "applied", 1)

    w = reg("W", 0, writing("store", ", verify = { by = 'read_back', register = 'R' }"), "wo")
    play(life, toy_board(tmp_path, WIDE, w))


def test_chip_when_an_access_has_another_width_then_it_is_not_answered(play: Play, tmp_path: Path) -> None:
    async def life(lab: Lab) -> None:
        space = lab.device().contract.registers["R"].space
        for transfer in (RegisterRead(0x20, space, 0, 4), RegisterRead(0x20, space, 1, 2)):
            assert isinstance(lab.bus().perform(transfer), Rejected)
        assert isinstance(lab.bus().perform(RegisterWrite(0x20, space, 0, b"\x01")), Rejected)
        assert lab.chip().values["R"] == 0

    play(life, toy_board(tmp_path, PIECES))


# --- packet error codes -------------------------------------------------------------------------------------------

PEC = I2C + "pec = true\n"


def test_pec_when_the_chip_has_it_then_every_transfer_asks_for_it(play: Play, tmp_path: Path) -> None:
    async def life(lab: Lab) -> None:
        assert (await write(lab, "R", 0x33)).ok
        assert (await lab.ask("reg.read", registers=["toy.R"])).ok
        assert [t.get("pec") for t in lab.sent()] == [True] * 4
        assert all(from_object(t).pec for t in lab.sent())  # type: ignore[union-attr]

    play(life, toy_board(tmp_path, reg("R", 0), head=PEC))


@pytest.mark.parametrize("pec", [True, False])
def test_pec_when_bus_and_chip_disagree_then_the_chip_does_not_act(play: Play, tmp_path: Path, pec: bool) -> None:
    async def life(lab: Lab) -> None:
        space = lab.device().contract.registers["R"].space
        answer = lab.bus().perform(RegisterWrite(0x20, space, 0, b"\x01", pec=not pec))
        assert isinstance(answer, Rejected)
        assert (lab.chip().values["R"], lab.writes("R")) == (0, 0)

    play(life, toy_board(tmp_path, reg("R", 0), head=PEC if pec else I2C))


# --- a verification that consumes ---------------------------------------------------------------------------------

SHOWN = reg("R", 0, writing("store", ", verify = { by = 'read_back', register = 'EV', mask = 0x0f, consumes = true }"))


def events(kind: str, rest: str = "") -> str:
    """A register of events whose read has one effect."""
    return reg("EV", 1, f"{effect(kind)}\nvolatile = true{rest}", "ro")


def test_consumed_verification_when_it_agrees_then_applied_and_what_was_taken_is_told(
    play: Play, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    async def life(lab: Lab) -> None:
        deaf(lab, monkeypatch, "R")  # the events are as the test has them
        lab.chip().values["EV"] = 0xA5
        done = await write(lab, "R", 0x05)
        assert (done.ok, done.verdict, done.effects) == (True, "applied", "unknown")
        assert traffic(lab) == [("W", "0x00", "05"), ("R", "0x01", 1)]  # nothing is read before, nothing after
        values = done.values or []
        assert [(v["register"], v["raw"]) for v in values] == [("toy.R", "0x05"), ("toy.EV", "0xa5")]
        assert evidence_of(done)["confirmed"] == 1
        again = await write(lab, "R", 0x05)
        assert (again.replayed, again.values, lab.reads("EV")) == (True, done.values, 1)

    play(life, toy_board(tmp_path, SHOWN, events("clear")))


def test_consumed_verification_when_it_contradicts_then_not_applied(
    play: Play, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    async def life(lab: Lab) -> None:
        deaf(lab, monkeypatch, "R")  # the events are as the test has them
        lab.chip().values["EV"] = 0xA4
        done = await write(lab, "R", 0x05)
        assert (code_of(done), done.verdict, done.effects) == ("not_applied", "not_applied", "unknown")
        assert (lab.writes("R"), lab.reads("EV")) == (1, 1)

    play(life, toy_board(tmp_path, SHOWN, events("clear")))


def test_consumed_verification_when_the_register_relatches_then_read_twice_and_the_second_counts(
    play: Play, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    async def life(lab: Lab) -> None:
        deaf(lab, monkeypatch, "R")  # the events are as the test has them
        lab.chip().values["EV"], lab.chip().present["EV"] = 0x00, 0x05
        done = await write(lab, "R", 0x05)
        assert (done.ok, lab.reads("EV")) == (True, 2)
        assert [v["raw"] for v in done.values or [] if v["register"] == "toy.EV"] == ["0x00", "0x05"]

    play(life, toy_board(tmp_path, SHOWN, events("relatch")))


@pytest.mark.parametrize(
    ("fault", "taken"), [(FaultKind.REPLY_LOST, 1), (FaultKind.REQUEST_LOST, 0), (FaultKind.NACK, 0)]
)
def test_consumed_verification_when_its_read_fails_then_unknown_and_neither_is_sent_again(
    play: Play, tmp_path: Path, fault: FaultKind, taken: int
) -> None:
    async def life(lab: Lab) -> None:
        lab.fault(fault, access="read")
        done = await write(lab, "R", 0x05)
        assert (code_of(done), done.effects) == ("outcome_unknown", "unknown")
        await lab.rules_ran()
        assert (await lab.row()).state == "UNKNOWN"  # the register that was written is no evidence: nobody declared it
        told: Any = (await lab.ask("op.get", key=KEY, verify=True)).op
        assert told["state"] == "UNKNOWN"
        assert (lab.writes("R"), lab.reads("EV")) == (1, taken)

    play(life, toy_board(tmp_path, SHOWN, events("clear")))


def test_consumed_verification_when_another_register_of_the_write_is_watched_then_still_once(
    play: Play, tmp_path: Path
) -> None:
    async def life(lab: Lab) -> None:
        lab.chip().values["EV"] = 0x05
        done = await lab.ask("reg.write", registers={"toy.R": 5, "toy.N": 3}, key=KEY)
        assert (done.ok, lab.reads("EV"), lab.reads("N")) == (True, 1, 2)

    group = "[groups.G]\nmembers = ['R', 'N']\ntransfer = 'each'\n"
    play(life, toy_board(tmp_path, SHOWN, events("clear"), reg("N", 2), group))


def test_consumed_verification_when_rehearsed_then_the_plan_shows_it_and_nothing_is_taken(
    play: Play, tmp_path: Path
) -> None:
    async def life(lab: Lab) -> None:
        planned = await lab.ask("reg.plan", method="reg.write", params={"register": "toy.R", "value": 5})
        shown = [(t["role"], t["register"], t["do"]) for t in planned.transfers or []]
        assert shown == [("access", "R", "write"), ("confirm", "EV", "read")]
        assert traffic(lab) == []
        await write(lab, "R", 5)
        assert lab.sent() == [
            {k: v for k, v in t.items() if k not in ("role", "register")} for t in planned.transfers or []
        ]

    play(life, toy_board(tmp_path, SHOWN, events("clear")))


def test_consumed_verification_when_in_a_bank_then_before_the_bank_is_set_back(play: Play, tmp_path: Path) -> None:
    async def life(lab: Lab) -> None:
        lab.chip().values["EV"] = 0x05
        assert (await write(lab, "R", 5)).ok
        roles = [t["role"] for t in (await lab.row()).request["plan"]]
        assert roles == ["select", "access", "confirm", "restore"]
        assert lab.chip().values["P"] == 0

    banked = SHOWN + "bank = 'B'\n", events("clear", "\nbank = 'B'"), reg("P", 9)
    bank = "[banks.B]\nselect = [{ register = 'P', value = 1 }]\nrestore = 'prior'\n"
    play(life, toy_board(tmp_path, *banked, bank))


def test_consumed_verification_when_in_a_safe_state_then_nothing_is_consumed(play: Play, tmp_path: Path) -> None:
    async def life(lab: Lab) -> None:
        done = await lab.ask("device.safe_state", device="toy", key=KEY)
        assert (done.ok, lab.writes("R"), lab.reads("EV")) == (True, 1, 0)

    board = toy_board(tmp_path, SHOWN, events("clear"), device="safe_state = [{ register = 'R', value = 0 }]")
    play(life, board)


def test_consumed_verification_when_the_contract_says_otherwise_by_now_then_the_key_conflicts(
    play: Play, tmp_path: Path
) -> None:
    async def first(lab: Lab) -> None:
        await write(lab, "R", 5)

    async def then(lab: Lab) -> None:
        told = await write(lab, "R", 5)
        assert code_of(told) == "key_conflict"
        assert lab.writes("R") == 0

    play(first, toy_board(tmp_path, SHOWN, events("clear")))
    plain = reg("R", 0, writing("store", ", verify = { by = 'read_back', register = 'EV', mask = 0x0f }"))
    play(then, toy_board(tmp_path, plain, reg("EV", 1, effect("none") + "\nvolatile = true", "ro")))


# --- elements of a FIFO that take several reads, claims, pointers --------------------------------------------------


@pytest.mark.parametrize(("count", "whole"), [(None, False), (1, False), (3, False), (4, False), (6, True), (12, True)])
def test_fifo_when_an_element_takes_several_reads_then_whole_elements_alone_are_taken(
    play: Play, tmp_path: Path, count: int | None, whole: bool
) -> None:
    async def life(lab: Lab) -> None:
        lab.chip().push("F", bytes(range(12)))
        asked = {} if count is None else {"count": count}
        told = await lab.ask("reg.read_effectful", register="toy.F", key=KEY, **asked)
        if whole:
            assert (told.ok, len(raws(told)), len(lab.chip().fifos["F"])) == (True, count, 12 - (count or 0))
        else:
            assert (code_of(told), error_of(told)["rule"]) == ("refused", "whole_elements")
            assert (len(lab.chip().fifos["F"]), await lab.rows()) == (12, [])

    play(life, toy_board(tmp_path, reg("F", 0, effect("pop", ", element_bytes = 6, max_burst = 12"), "ro")))


CLAIM = reg("LOCK", 0, effect("claim", ", state = 'ST.L0', affects = ['ST']"), "ro")
STATE = reg("ST", 1, "fields.L0 = { bits = 0 }\nfields.L1 = { bits = 1 }", "ro")
CLAIMS: dict[str, tuple[FaultKind, int, str, str]] = {
    # what became of the claim, the state before, its verdict and effects
    "it was taken": (FaultKind.REPLY_LOST, 0, "applied", "unknown"),
    "it was not sent": (FaultKind.REQUEST_LOST, 0, "not_applied", "none"),
    "another had it": (FaultKind.REPLY_LOST, 1, "not_applied", "none"),
    "another lock is taken": (FaultKind.REQUEST_LOST, 2, "not_applied", "none"),
}


@pytest.mark.parametrize(("fault", "held", "verdict", "effects"), CLAIMS.values(), ids=list(CLAIMS))
def test_claim_when_its_reply_is_lost_then_the_state_register_tells(
    play: Play, tmp_path: Path, fault: FaultKind, held: int, verdict: str, effects: str
) -> None:
    async def life(lab: Lab) -> None:
        lab.chip().values["ST"] = held
        lab.fault(fault, access="read", offset=0)
        assert code_of(await lab.ask("reg.read_effectful", register="toy.LOCK", key=KEY)) == "outcome_unknown"
        await lab.rules_ran()
        row = await lab.row()
        assert (row.state, row.verdict, (row.response or {})["effects"]) == ("DONE", verdict, effects)
        assert lab.device().held() is None

    play(life, toy_board(tmp_path, CLAIM, STATE))


def test_claim_when_it_may_have_restarted_and_is_free_then_a_person(play: Play, tmp_path: Path) -> None:
    async def life(lab: Lab) -> None:
        cannot_tell(lab)
        lab.fault(FaultKind.REQUEST_LOST, access="read", offset=0)
        await lab.ask("reg.read_effectful", register="toy.LOCK", key=KEY)
        await lab.rules_ran()
        assert (await lab.row()).state == "UNKNOWN"

    play(life, toy_board(tmp_path, CLAIM, STATE))


@pytest.mark.parametrize("state", ["'ST'", "'VOL'"])
def test_claim_when_the_state_shows_several_locks_or_moves_by_itself_then_a_person(
    play: Play, tmp_path: Path, state: str
) -> None:
    async def life(lab: Lab) -> None:
        lab.fault(FaultKind.REQUEST_LOST, access="read", offset=0)
        await lab.ask("reg.read_effectful", register="toy.LOCK", key=KEY)
        await lab.rules_ran()
        assert (await lab.row()).state == "UNKNOWN"

    volatile = reg("VOL", 2, "width_bits = 1\nvolatile = true", "ro")
    play(life, toy_board(tmp_path, CLAIM.replace("'ST.L0'", state), STATE, volatile))


def test_advance_when_its_outcome_is_unknown_then_a_person_is_told_what_sets_the_pointer_anew(
    play: Play, tmp_path: Path
) -> None:
    async def life(lab: Lab) -> None:
        lab.fault(FaultKind.REPLY_LOST, access="read", offset=0)
        await lab.ask("reg.read_effectful", register="toy.PORT", key=KEY)
        await lab.rules_ran()
        told: Any = (await lab.ask("op.get", key=KEY, verify=True)).op
        assert (told["state"], "SEEK sets anew" in told["needs_person"]) == ("UNKNOWN", True)

    play(life, toy_board(tmp_path, reg("PORT", 0, effect("advance", ", reseek = 'SEEK'"), "ro"), reg("SEEK", 1)))


# --- delays inside one plan ---------------------------------------------------------------------------------------


def test_delay_when_a_group_writes_its_members_one_by_one_then_it_is_kept_between_them(
    play: Play, tmp_path: Path
) -> None:
    async def life(lab: Lab) -> None:
        at: list[float] = []
        real = lab.bus().perform

        def timed(transfer: Any) -> Any:
            if isinstance(transfer, RegisterWrite):
                at.append(lab.clock.mono)
            return real(transfer)

        lab.bus().perform = timed  # type: ignore[method-assign]
        done = await lab.ask("reg.write", registers={"toy.A": 1, "toy.B": 2}, key=KEY3)
        assert done.ok, done
        assert at[1] - at[0] >= 0.020

    a = reg("A", 0, writing("store", ", delay_after_ms = 20"))
    play(life, toy_board(tmp_path, a, reg("B", 1), "[groups.G]\nmembers = ['A', 'B']\ntransfer = 'each'\n"))
