"""What an adversary found in policy, confidential registers, budgets and accesses; each with the way it went."""

from __future__ import annotations

import asyncio
from pathlib import Path
from typing import Any

import pytest

from hwtool_contracts.toml_reader import Faults
from hwtool_sim.faults import FaultKind
from tests.hwtool.conftest import (
    KEY,
    KEY2,
    OTHER,
    Lab,
    Play,
    code_of,
    effect,
    error_of,
    evidence_of,
    reg,
    toy_board,
)
from tests.hwtool.test_approvals import approved
from tests.hwtool.test_format_keys import cannot_tell, traffic, update, write, writing
from tests.hwtool.test_permission import board, rule

CAL = reg("CAL", 0, "persistence = 'nonvolatile'")
CALS = [{"do": "write", "register": "toy.CAL", "value": n} for n in (1, 2)]


async def several(lab: Lab, count: int, steps: list[dict[str, Any]]) -> list[Any]:
    """Sequences that all come at once."""
    asked = (lab.ask("sequence.run", steps=steps, key=f"key-at-once-{n}") for n in range(count))
    return list(await asyncio.gather(*asked))


# --- budgets and rates --------------------------------------------------------------------------------------------


def test_budget_when_sequences_come_at_once_then_no_more_is_written_than_it_allows(play: Play, tmp_path: Path) -> None:
    async def life(lab: Lab) -> None:
        told = await several(lab, 5, CALS)
        assert (sum(t.ok for t in told), lab.writes("CAL")) == (1, 2)
        assert {code_of(t) for t in told if not t.ok} == {"rate_limited"}

    play(life, board(tmp_path, "", CAL, device="writes_per_day = { CAL = 2 }", mode="separate-user"))


def test_rate_when_sequences_come_at_once_then_no_more_begins_than_it_allows(play: Play, tmp_path: Path) -> None:
    async def life(lab: Lab) -> None:
        told = await several(lab, 5, [{"do": "write", "register": "toy.OUT", "value": n} for n in (1, 2)])
        assert (sum(t.ok for t in told), lab.writes("OUT")) == (1, 2)

    play(life, board(tmp_path, rule(rate_per_min="2")))


def test_budget_when_a_person_is_asked_anyway_then_of_the_wear_too(play: Play, tmp_path: Path) -> None:
    async def life(lab: Lab) -> None:
        waiting = await lab.ask("reg.write", register="toy.CAL", value=1, key=KEY)
        assert waiting.status == "pending_approval"
        screen: Any = (await lab.operator("approval.show", approval=waiting.id)).approvals
        assert "the value is nonvolatile" in screen[0]["why"]
        for number in (1, 2):
            assert (await lab.ask("reg.write", OTHER, register="toy.CAL", value=number, key=f"key-other-{number}")).ok
        await approved(lab, waiting.id)
        assert (await lab.ask("reg.write", register="toy.CAL", value=1, key=KEY)).ok

    mine = rule("uid:1000", write="'approval'")
    play(life, board(tmp_path, mine, CAL, device="writes_per_day = { CAL = 2 }", mode="separate-user"))


def test_budget_when_it_is_of_an_element_of_an_array_then_it_counts(play: Play, tmp_path: Path) -> None:
    async def life(lab: Lab) -> None:
        states = [
            (await lab.ask("reg.write", register="toy.CAL[1]", value=n, key=f"key-cal-{n}-x")).status for n in (1, 2)
        ]
        assert states == ["done", "pending_approval"]

    array = reg("CAL", 0, "persistence = 'nonvolatile'\ncount = 2\nstride_bytes = 1")
    play(life, board(tmp_path, "", array, device="writes_per_day = { 'CAL[1]' = 1 }", mode="separate-user"))


def test_budget_when_the_clock_was_wrong_for_a_while_then_it_is_not_forgotten(play: Play, tmp_path: Path) -> None:
    async def life(lab: Lab) -> None:
        assert (await lab.ask("reg.write", register="toy.CAL", value=1, key="key-cal-0001")).ok
        right, lab.clock.wall = lab.clock.wall, 0
        assert (await lab.ask("reg.write", register="toy.OUT", value=1, key="key-out-0001")).ok
        lab.clock.wall = right
        assert (await lab.ask("reg.write", register="toy.CAL", value=2, key="key-cal-0002")).status != "done"

    parts = CAL, reg("OUT", 1)
    play(life, board(tmp_path, "", *parts, device="writes_per_day = { CAL = 1 }", mode="separate-user"))


# --- limits -------------------------------------------------------------------------------------------------------

RANGED = (
    reg("RNG", 0),
    reg("V", 2, "scale_from = 'RNG'\nscales = { 0 = '10', 1 = '0.1' }\nunit = 'V'"),
    "[groups.G]\nmembers = ['RNG', 'V']\ntransfer = 'each'\n",
)
FIFTY = rule(limits="{ max = 50, unit = 'V' }")


def test_limits_when_the_same_request_changes_the_scale_then_by_the_new_one(play: Play, tmp_path: Path) -> None:
    async def life(lab: Lab) -> None:
        lab.chip().values["RNG"] = 1
        refused = await lab.ask("reg.write", registers={"toy.RNG": 0, "toy.V": 40}, key=KEY)
        assert (error_of(refused)["rule"], lab.writes("V")) == ("policy_limits", 0)
        assert "400" in error_of(refused)["message"]
        lab.chip().values["RNG"] = 0
        assert (await lab.ask("reg.write", registers={"toy.RNG": 1, "toy.V": 40}, key=KEY2)).ok

    play(life, board(tmp_path, FIFTY, *RANGED))


def test_limits_when_the_scale_stands_in_the_register_itself_then_as_it_is_written(play: Play, tmp_path: Path) -> None:
    async def life(lab: Lab) -> None:
        lab.chip().values["S"] = 0x100
        assert error_of(await write(lab, "S", 0x28))["rule"] == "policy_limits"
        assert lab.writes("S") == 0

    s = reg(
        "S",
        0,
        "width_bits = 16\nfields.R = { bits = 8 }\n"
        "fields.V = { bits = '7:0', scale_from = 'S.R', scales = { 0 = '10', 1 = '0.1' }, unit = 'V' }",
    )
    play(life, board(tmp_path, FIFTY, s))


def test_limits_when_the_scale_is_read_then_a_value_inside_it_passes(play: Play, tmp_path: Path) -> None:
    async def life(lab: Lab) -> None:
        lab.chip().values["RNG"] = 1
        assert (await write(lab, "V", 60)).ok  # 6 V
        lab.chip().values["RNG"] = 7  # a scale that nobody knows
        assert error_of(await write(lab, "V", 1, KEY2))["rule"] == "policy_limits"

    play(life, board(tmp_path, FIFTY, *RANGED))


def test_limits_when_a_register_with_the_unit_is_written_in_part_then_refused(play: Play, tmp_path: Path) -> None:
    async def life(lab: Lab) -> None:
        assert error_of(await update(lab, "Q", LOW=15, HI=15))["rule"] == "policy_limits"
        assert lab.chip().values["Q"] == 0

    q = "scale = '0.01'\nunit = 'V'\nset_at = 9\nclear_at = 10\n"
    q += "fields.LOW = { bits = '3:0' }\nfields.HI = { bits = '7:4' }"
    play(life, board(tmp_path, rule(limits="{ max = '1.2', unit = 'V' }"), reg("Q", 0, q)))


@pytest.mark.parametrize(("value", "passes"), [(5, True), (0xFB, False)])
def test_limits_when_they_have_no_unit_then_of_the_number_with_its_sign(
    play: Play, tmp_path: Path, value: int, passes: bool
) -> None:
    async def life(lab: Lab) -> None:
        assert (await write(lab, "T", value)).ok is passes

    play(life, board(tmp_path, rule(limits="{ min = 0 }"), reg("T", 0, "signed = true\nscale = '0.5'")))


# --- another name of the same bits --------------------------------------------------------------------------------

OUT = reg("OUT", 0)
ALT = reg("ALT", 0, "description = 'the same place'")
ALSO = reg("ALSO", 5, "also_at = [0]")


@pytest.mark.parametrize("name", ["OUT", "ALT", "ALSO"])
@pytest.mark.parametrize("word", ["read", "write"])
def test_rule_when_another_name_of_the_bits_is_used_then_it_holds(
    play: Play, tmp_path: Path, name: str, word: str
) -> None:
    async def life(lab: Lab) -> None:
        told = await (lab.ask("reg.read", registers=[f"toy.{name}"]) if word == "read" else write(lab, name, 1))
        assert (code_of(told), "rule 1" in error_of(told)["message"], lab.sent()) == ("denied", True, [])

    play(life, board(tmp_path, rule(register="'OUT'", **{word: "'no'"}), OUT, ALT, ALSO))


def test_limits_when_another_name_of_the_bits_is_written_then_refused(play: Play, tmp_path: Path) -> None:
    async def life(lab: Lab) -> None:
        assert error_of(await write(lab, "BSRR", 0xFF))["rule"] == "policy_limits"
        assert (lab.chip().values["ODR"], (await write(lab, "ODR", 2, KEY2)).ok) == (0, True)

    bsrr = reg("BSRR", 4, writing("one_to_set", ", affects = ['ODR']"), access="wo")
    play(life, board(tmp_path, rule(register="'ODR'", limits="{ max = 3 }"), reg("ODR", 0, "set_at = 4"), bsrr))


def test_rule_when_what_a_write_stores_elsewhere_is_forbidden_then_the_write_is(play: Play, tmp_path: Path) -> None:
    async def life(lab: Lab) -> None:
        assert code_of(await write(lab, "GPIO", 1)) == "denied"
        assert lab.writes("GPIO") == 0

    gpio = reg("GPIO", 0, writing("store", ", affects = ['OLAT'], verify = { by = 'read_back', register = 'OLAT' }"))
    play(life, board(tmp_path, rule(register="'OLAT'", write="'no'"), gpio, reg("OLAT", 1)))


# --- confidential -------------------------------------------------------------------------------------------------

PIN = reg("PIN", 0, "confidential = true\nvolatile = false")


def test_confidential_when_a_read_acknowledges_it_then_its_value_is_no_evidence(play: Play, tmp_path: Path) -> None:
    async def life(lab: Lab) -> None:
        lab.chip().values["PIN"] = 0x5A
        told = await lab.ask("reg.read_effectful", register="toy.D", key=KEY)
        assert (told.ok, evidence_of(told)["before"]) == (True, {})
        assert "0x5a" not in str(told) + str((await lab.ask("op.get", key=KEY)).op)

    play(life, board(tmp_path, "", PIN, reg("D", 1, effect("ack", ", affects = ['PIN']"), "ro")))


@pytest.mark.parametrize("how", ["update", "mask", "plan"])
def test_confidential_when_a_write_is_laid_over_what_was_written_then_denied(
    play: Play, tmp_path: Path, how: str
) -> None:
    async def life(lab: Lab) -> None:
        assert (await lab.operator("reg.write", register="toy.LOAD", value=0x0B, key=KEY)).ok
        fields: dict[str, Any] = {"register": "toy.LOAD", "fields": {"LED": 1}}
        asked = {
            "update": lambda: lab.ask("reg.update", key=KEY2, **fields),
            "mask": lambda: lab.ask("reg.write", register="toy.LOAD", value=0x10, mask=0x10, key=KEY2),
            "plan": lambda: lab.ask("reg.plan", method="reg.update", params=fields),
        }
        told = await asked[how]()
        assert (code_of(told), "1b" in str(told.transfers)) == ("denied", False)

    load = reg("LOAD", 1, "confidential = true\nfields.KEY = { bits = '3:0' }\nfields.LED = { bits = 4 }", "wo")
    play(life, board(tmp_path, "", load))


SHOWING = {
    "a verification of a write-only register": PIN
    + reg(
        "L", 1, "confidential = true\n" + writing("store", ", verify = { by = 'read_back', register = 'PIN' }"), "wo"
    ),
    "a gate of a write-only register": PIN
    + reg("L", 1, "confidential = true\n" + writing("store", ", gate = 'PIN = 3'"), "wo"),
    "the serial number": PIN + reg("ID", 1, access="ro") + "[identity]\nregister = 'ID'\nserial = 'PIN'\n",
    "a gate at an alias": PIN + reg("AL", 9, "also_at = [0]") + reg("R", 1, effect("none", ", gate = 'AL'")),
    "a memory": PIN + "[memories.M]\noffset = 0\nsize_bytes = 4\n",
}


@pytest.mark.parametrize("name", SHOWING)
def test_confidential_when_something_else_would_show_it_then_the_contract_does_not_load(
    tmp_path: Path, name: str
) -> None:
    with pytest.raises(Faults, match="confidential"):
        toy_board(tmp_path, SHOWING[name])


def test_confidential_when_it_is_written_by_another_name_then_no_record_has_the_value(
    play: Play, tmp_path: Path
) -> None:
    async def life(lab: Lab) -> None:
        assert (await lab.operator("reg.write", register="toy.AL", value=0x5C, key=KEY)).ok
        await lab.operator("reg.write", register="toy.OUT", value=1, expect={"toy.AL": 7}, key=KEY2)
        assert "0x5c" not in str(await lab.audit())

    play(life, board(tmp_path, "", PIN, reg("AL", 9, "also_at = [0]"), reg("OUT", 1)))


# --- widths, consuming verifications, claims ----------------------------------------------------------------------

WIDTHS = {
    "a group in one transfer": reg("R", 0, "width_bits = 32\naccess_bits = 16")
    + reg("N", 4)
    + "[groups.G]\nmembers = ['R', 'N']\ntransfer = 'one'\n",
    "a block": reg("R", 0, "width_bits = 32\naccess_bits = 16\ncount = 2\nstride_bytes = 4\ntransfer = 'block'"),
}


@pytest.mark.parametrize("name", WIDTHS)
def test_widths_when_a_group_would_send_another_then_the_contract_does_not_load(tmp_path: Path, name: str) -> None:
    with pytest.raises(Faults, match="the bus lets no other width through"):
        toy_board(tmp_path, WIDTHS[name])


SHOWN = reg("R", 0, writing("store", ", verify = { by = 'read_back', register = 'EV', consumes = true }"))
REACHING = {
    "its access is wider": reg("EV", 5, "access_bits = 32\n" + effect("clear"), "ro")
    + reg("F", 6, effect("pop"), "ro"),
    "another register stands there": reg("EV", 5, "width_bits = 16\n" + effect("clear"), "ro")
    + reg("T", 6, effect("trigger"), "ro"),
}


@pytest.mark.parametrize("name", REACHING)
def test_consumed_verification_when_its_read_reaches_others_then_the_contract_does_not_load(
    tmp_path: Path, name: str
) -> None:
    with pytest.raises(Faults, match="its read reaches others"):
        toy_board(tmp_path, SHOWN + REACHING[name])


def test_consumed_verification_when_its_gate_is_closed_then_nothing_is_sent(play: Play, tmp_path: Path) -> None:
    async def life(lab: Lab) -> None:
        refused = await write(lab, "R", 1)
        assert (error_of(refused)["rule"], lab.writes("R"), lab.reads("EV")) == ("gate_closed", 0, 0)

    ev = reg("EV", 1, effect("clear", ", gate = 'EN'"), "ro")
    play(life, toy_board(tmp_path, SHOWN, ev, reg("EN", 2)))


def test_consumed_verification_when_the_register_is_narrower_then_its_bits_are_compared(
    play: Play, tmp_path: Path
) -> None:
    async def life(lab: Lab) -> None:
        assert (await write(lab, "R", 0x1234)).verdict == "applied"
        assert traffic(lab) == [("W", "0x00", "1234"), ("R", "0x04", 1)]

    play(
        life,
        toy_board(
            tmp_path, SHOWN.replace("offset = 0", "offset = 0\nwidth_bits = 16"), reg("EV", 4, effect("clear"), "ro")
        ),
    )


CLAIMS: dict[str, tuple[FaultKind, int, bool, str | None]] = {
    # what became of it, the state before (1: free), whether the restart can be told, the verdict of the rule
    "claimed": (FaultKind.REPLY_LOST, 1, True, "applied"),
    "not sent": (FaultKind.REQUEST_LOST, 1, True, "not_applied"),
    "not sent, silent": (FaultKind.REQUEST_LOST, 1, False, None),
    "taken before": (FaultKind.REQUEST_LOST, 0, True, "not_applied"),
    "taken before, silent": (FaultKind.REQUEST_LOST, 0, False, None),
}


@pytest.mark.parametrize(("fault", "held", "tells", "verdict"), CLAIMS.values(), ids=list(CLAIMS))
def test_claim_when_the_state_bit_means_free_then_settled_the_right_way_round(
    play: Play, tmp_path: Path, fault: FaultKind, held: int, tells: bool, verdict: str | None
) -> None:
    async def life(lab: Lab) -> None:
        if not tells:
            cannot_tell(lab)
        lab.chip().values["ST"] = held
        lab.fault(fault, access="read", offset=0)
        await lab.ask("reg.read_effectful", register="toy.LOCK", key=KEY)
        await lab.rules_ran()
        assert (await lab.row()).verdict == verdict

    lock = reg("LOCK", 0, effect("claim", ", state = 'ST.L0 = 0', affects = ['ST']"), "ro")
    play(life, toy_board(tmp_path, lock, reg("ST", 1, "reset = 1\nfields.L0 = { bits = 0 }", "ro")))


# --- what is told -------------------------------------------------------------------------------------------------


def test_policy_show_when_it_is_a_memory_or_a_hidden_register_then_told_as_it_is(play: Play, tmp_path: Path) -> None:
    async def life(lab: Lab) -> None:
        memory: Any = (await lab.operator("policy.show", register="toy.MEM", who="uid:7")).policy
        assert memory["decisions"][0]["rule"] == 1
        hidden: Any = (await lab.operator("policy.show", register="toy.PIN", who="uid:7")).policy
        assert (hidden["decisions"][0]["read"], hidden["decisions"][0]["confidential"]) == ("no", "not shown")
        assert code_of(await lab.operator("policy.show", register="toy.PIN", groups=["x"])) == "invalid_args"
        promised: Any = (await lab.ask("reg.contract", register="toy.PIN")).contract
        assert (promised["confidential"], promised["sensitive"]) == (True, True)

    memory = "[memories.MEM]\noffset = 0x40\nsize_bytes = 16\n" + effect("none") + "\n"
    play(life, board(tmp_path, rule(register="'MEM'", write="'no'"), PIN, memory))
