"""Policy: the first rule that matches decides, and narrows; confidential registers; daily budgets. On the engine."""

from __future__ import annotations

import asyncio
from pathlib import Path
from typing import Any

import pytest

from hwtool.config import Board
from hwtool.policy import Caller
from tests.hwtool.conftest import (
    AGENT,
    KEY,
    KEY2,
    KEY3,
    OPERATOR,
    OTHER,
    FakeClock,
    Lab,
    Play,
    code_of,
    effect,
    error_of,
    raws,
    reg,
    toy_board,
)
from tests.hwtool.test_approvals import approved
from tests.hwtool.test_format_keys import writing

STAFF = Caller(1002, "agent", "ghi-", 0, frozenset({"staff", "root"}))
PARTS = (
    reg("OUT", 0),
    reg("FIFO", 1, effect("pop"), access="ro"),
    reg("V", 2, "width_bits = 16\nfields.SET = { bits = '7:0', scale = '0.01', unit = 'V' }\nfields.ON = { bits = 8 }"),
)
WRITE = {"register": "toy.OUT", "value": 5, "key": KEY}


def board(directory: Path, rules: str, *parts: str, device: str = "", mode: str = "self") -> Board:
    """A board with policy rules; `device` are more keys of the toy."""
    return toy_board(directory, *(parts or PARTS), device=device + "\n" + rules, mode=mode)


def rule(who: str = "*", **said: str) -> str:
    """A rule; values as TOML."""
    return f"[[policy]]\nwho = '{who}'\n" + "".join(f"{key} = {value}\n" for key, value in said.items())


async def nothing_happened(lab: Lab) -> None:
    """Nothing was sent, and no key was used."""
    assert (lab.sent(), await lab.rows()) == ([], [])


# --- what is forbidden does not happen ----------------------------------------------------------------------------

PUT = {"do": "write", "value": 1}
FORBIDDEN: dict[str, tuple[str, str, dict[str, Any], str]] = {
    # what the rule says, method, parameters, what the error calls it
    "read": ("read", "reg.read", {"registers": ["toy.OUT"]}, "toy.OUT may not be read"),
    "read of a group": ("read", "reg.read", {"registers": ["toy.G"]}, "toy.OUT may not be read"),
    "effectful read": ("effectful_read", "reg.read_effectful", {"register": "toy.FIFO", "key": KEY}, "with effects"),
    "write": ("write", "reg.write", WRITE, "toy.OUT may not be written"),
    "update": (
        "write",
        "reg.update",
        {"register": "toy.V", "fields": {"ON": 1}, "key": KEY},
        "toy.V may not be written",
    ),
    "group write": ("write", "reg.write", {"registers": {"toy.OUT": 1, "toy.B": 1}, "key": KEY}, "toy.OUT may not"),
    "expectation": ("read", "reg.write", WRITE | {"expect": {"toy.OUT": 0}}, "toy.OUT may not be read"),
    "sequence": (
        "write",
        "sequence.run",
        {
            "steps": [{"do": "read", "register": "toy.OUT"}, {"do": "write", "register": "toy.OUT", "value": 1}],
            "key": KEY,
        },
        "step 2: toy.OUT may not be written",
    ),
    "look of a sequence": (
        "read",
        "sequence.run",
        {
            "steps": [
                {"do": "expect", "register": "toy.OUT", "equals": 0},
                {"do": "write", "register": "toy.B", "value": 1},
            ],
            "key": KEY,
        },
        "step 1: toy.OUT may not be read",
    ),
    "rehearsal": ("write", "reg.write", WRITE | {"dry_run": True}, "toy.OUT may not be written"),
    "plan": ("write", "reg.plan", {"method": "reg.write", "params": {"register": "toy.OUT", "value": 1}}, "be written"),
}
GROUPED = (*PARTS, reg("B", 6), "[groups.G]\nmembers = ['OUT', 'B']\ntransfer = 'each'\n")


@pytest.mark.parametrize("name", FORBIDDEN)
@pytest.mark.parametrize("caller", [AGENT, OPERATOR], ids=["agent", "operator"])
def test_rule_when_it_says_no_then_denied_for_everybody_it_means_and_nothing_is_sent(
    play: Play, tmp_path: Path, name: str, caller: Caller
) -> None:
    word, method, params, said = FORBIDDEN[name]

    async def life(lab: Lab) -> None:
        refused = await lab.ask(method, caller, **params)
        assert (code_of(refused), refused.effects) == ("denied", "none")
        error = error_of(refused)
        assert said in error["message"]
        assert ("policy rule 1" in error["message"], error["reason"]) == (True, f"policy rule 1: {word} = no")
        await nothing_happened(lab)

    play(life, board(tmp_path, rule(**{word: "'no'"}), *GROUPED))


WHO: dict[str, tuple[str, Caller, bool]] = {
    "everybody": ("*", AGENT, True),
    "the user": ("uid:1000", AGENT, True),
    "another user": ("uid:1000", OTHER, False),
    "a longer number": ("uid:100", AGENT, False),
    "a member": ("group:root", STAFF, True),
    "no member": ("group:root", AGENT, False),
}


@pytest.mark.parametrize(("who", "caller", "meant"), WHO.values(), ids=list(WHO))
def test_rule_when_it_names_a_caller_then_it_speaks_of_no_other(
    play: Play, tmp_path: Path, who: str, caller: Caller, meant: bool
) -> None:
    async def life(lab: Lab) -> None:
        told = await lab.ask("reg.write", caller, **WRITE)
        assert code_of(told) == ("denied" if meant else None)
        assert lab.writes("OUT") == (0 if meant else 1)

    play(life, board(tmp_path, rule(who, write="'no'")))


def test_rules_when_several_match_then_the_first_decides_and_what_it_does_not_say_is_by_contract(
    play: Play, tmp_path: Path
) -> None:
    async def life(lab: Lab) -> None:
        assert (await lab.ask("reg.write", **WRITE)).ok  # the first rule does not speak of writes, nor does the third
        assert code_of(await lab.ask("reg.read", registers=["toy.OUT"])) is None
        assert code_of(await lab.ask("reg.read", registers=["toy.V"])) == "denied"

    rules = rule(register="'OUT'", read="'yes'") + rule(device="'t*'", read="'no'") + rule(write="'no'")
    play(life, board(tmp_path, rules))


def test_rule_when_it_says_no_then_a_safe_state_passes(play: Play, tmp_path: Path) -> None:
    async def life(lab: Lab) -> None:
        done = await lab.ask("device.safe_state", device="toy", key=KEY)
        assert (done.ok, lab.writes("OUT")) == (True, 1)

    safe = "safe_state = [{ register = 'OUT', value = 0 }]"
    play(life, board(tmp_path, rule(read="'no'", write="'no'", rate_per_min="1"), device=safe))


def test_rule_when_the_key_has_an_outcome_then_it_is_told_whatever_the_rule_says_by_now(
    play: Play, tmp_path: Path
) -> None:
    async def first(lab: Lab) -> None:
        assert (await lab.ask("reg.write", **WRITE)).ok

    async def then(lab: Lab) -> None:
        told = await lab.ask("reg.write", **WRITE)
        assert (told.ok, told.replayed, lab.writes("OUT")) == (True, True, 0)

    play(first, board(tmp_path, ""))
    play(then, board(tmp_path, rule(write="'no'")))


# --- approval -----------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("method", ["reg.write", "reg.read_effectful"])
def test_rule_when_it_wants_approval_then_nothing_runs_before_a_person_agreed(
    play: Play, tmp_path: Path, method: str
) -> None:
    params: dict[str, Any] = WRITE if method == "reg.write" else {"register": "toy.FIFO", "key": KEY}

    async def life(lab: Lab) -> None:
        lab.chip().push("FIFO", b"a")
        waiting = await lab.ask(method, **params)
        assert (waiting.status, lab.writes("OUT"), lab.reads("FIFO")) == ("pending_approval", 0, 0)
        screen = (await lab.operator("approval.show", approval=waiting.id)).approvals
        assert isinstance(screen, list)
        assert ["policy rule 1 wants approval of" in why for why in screen[0]["why"]] == [True]
        await approved(lab, waiting.id)
        done = await lab.ask(method, **params)
        assert (done.ok, done.verdict is not None, lab.writes("OUT") + lab.reads("FIFO")) == (True, True, 1)

    word = "write" if method == "reg.write" else "effectful_read"
    play(life, board(tmp_path, rule(**{word: "'approval'"}), mode="separate-user"))


def test_rule_when_it_says_yes_then_the_contract_still_wants_its_approval(play: Play, tmp_path: Path) -> None:
    async def life(lab: Lab) -> None:
        waiting = await lab.ask("reg.write", **WRITE)
        assert (waiting.status, lab.writes("OUT")) == ("pending_approval", 0)

    parts = reg("OUT", 0, writing("store", ", approval = 'required'"))
    play(life, board(tmp_path, rule(write="'yes'"), parts, mode="separate-user"))


def test_rule_when_it_wants_approval_of_a_step_then_of_the_whole_sequence(play: Play, tmp_path: Path) -> None:
    steps = [{"do": "write", "register": "toy.V", "value": 1}, {"do": "write", "register": "toy.OUT", "value": 1}]

    async def life(lab: Lab) -> None:
        waiting = await lab.ask("sequence.run", steps=steps, key=KEY)
        assert (waiting.status, lab.writes("V"), lab.writes("OUT")) == ("pending_approval", 0, 0)
        planned = await lab.ask("reg.plan", method="sequence.run", params={"steps": steps})
        assert "needs_approval: step 2: policy rule 1 wants approval of toy.OUT" in planned.warnings

    play(life, board(tmp_path, rule(register="'OUT'", write="'approval'"), mode="separate-user"))


# --- limits -------------------------------------------------------------------------------------------------------

VOLTS = "{ max = '1.2', unit = 'V' }"
LIMITS: dict[str, tuple[str, str, dict[str, Any], bool]] = {
    # limits, method, parameters, whether it passes
    "raw inside": ("{ min = 2, max = 9 }", "reg.write", {"register": "toy.OUT", "value": 9}, True),
    "raw below": ("{ min = 2 }", "reg.write", {"register": "toy.OUT", "value": 1}, False),
    "raw above": ("{ max = 9 }", "reg.write", {"register": "toy.OUT", "value": 10}, False),
    "raw, masked": ("{ max = 9 }", "reg.write", {"register": "toy.OUT", "value": 0x10, "mask": 0x10}, False),
    "raw, updated": ("{ max = 9 }", "reg.update", {"register": "toy.V", "fields": {"ON": 1}}, False),
    "unit inside": (VOLTS, "reg.update", {"register": "toy.V", "fields": {"SET": 120}}, True),
    "unit above": (VOLTS, "reg.update", {"register": "toy.V", "fields": {"SET": 121}}, False),
    "unit, whole": (VOLTS, "reg.write", {"register": "toy.V", "value": 121}, False),
    "unit, masked": (
        VOLTS,
        "reg.write",
        {"register": "toy.V", "value": 0xF0, "mask": 0xFF},
        False,
    ),
    "unit, other field": (
        VOLTS,
        "reg.update",
        {"register": "toy.V", "fields": {"ON": 1}},
        True,
    ),
    "unit, scaled": (
        VOLTS,
        "reg.update",
        {"register": "toy.V", "fields": {"SET": {"scaled": "1.21", "unit": "V"}}},
        False,
    ),
}


@pytest.mark.parametrize(("limits", "method", "params", "passes"), LIMITS.values(), ids=list(LIMITS))
@pytest.mark.parametrize("dry_run", [False, True])
def test_limits_when_a_value_would_be_outside_then_refused_and_nothing_is_written(
    play: Play, tmp_path: Path, limits: str, method: str, params: dict[str, Any], passes: bool, dry_run: bool
) -> None:
    async def life(lab: Lab) -> None:
        lab.chip().values["V"] = 0x50
        told = await lab.ask(method, key=KEY, dry_run=dry_run, **params)
        assert told.ok is passes, told
        writes = lab.writes("OUT") + lab.writes("V")
        assert writes == (1 if passes and not dry_run else 0)
        if not passes:
            assert (code_of(told), error_of(told)["rule"]) == ("refused", "policy_limits")
            assert await lab.rows() == []

    play(life, board(tmp_path, rule(limits=limits)))


def test_limits_when_a_neighbour_is_outside_already_then_an_update_of_another_field_is_refused(
    play: Play, tmp_path: Path
) -> None:
    async def life(lab: Lab) -> None:
        lab.chip().values["V"] = 0xFF
        told = await lab.ask("reg.update", register="toy.V", fields={"ON": 1}, key=KEY)
        assert (code_of(told), error_of(told)["rule"]) == ("refused", "policy_limits")

    play(life, board(tmp_path, rule(limits=VOLTS)))


def test_limits_when_only_a_part_is_written_then_refused_since_the_whole_is_not_known(
    play: Play, tmp_path: Path
) -> None:
    async def life(lab: Lab) -> None:
        told = await lab.ask("reg.write", register="toy.R", value=1, mask=1, key=KEY)
        assert (code_of(told), error_of(told)["rule"]) == ("refused", "policy_limits")
        assert lab.chip().values["R"] == 0

    play(life, board(tmp_path, rule(limits="{ max = 9 }"), reg("R", 0, "set_at = 1\nclear_at = 2")))


# --- rates --------------------------------------------------------------------------------------------------------


def test_rate_when_it_is_used_up_then_limited_until_the_minute_is_over_and_for_that_caller_alone(
    play: Play, tmp_path: Path
) -> None:
    async def life(lab: Lab) -> None:
        for number in range(2):
            assert (await lab.ask("reg.write", register="toy.OUT", value=number, key=f"key-rate-{number}")).ok
        limited = await lab.ask("reg.write", **WRITE)
        error = error_of(limited)
        assert (error["code"], error["limit"], 0 < error["retry_after_ms"] <= 60_000) == ("rate_limited", 2, True)
        assert (await lab.ask("reg.write", OTHER, **WRITE)).ok
        assert (await lab.ask("reg.read", registers=["toy.OUT"])).ok
        lab.clock.advance(error["retry_after_ms"] / 1000 + 0.001)
        assert (await lab.ask("reg.write", **WRITE)).ok
        assert lab.writes("OUT") == 4

    play(life, board(tmp_path, rule(rate_per_min="2")))


def test_rate_when_a_sequence_has_more_steps_than_are_left_then_none_of_it_runs(play: Play, tmp_path: Path) -> None:
    async def life(lab: Lab) -> None:
        steps = [{"do": "write", "register": "toy.OUT", "value": n} for n in range(3)]
        never = await lab.ask("sequence.run", steps=steps, key=KEY)
        assert (code_of(never), error_of(never)["rule"]) == ("refused", "policy_rate")
        assert (await lab.ask("reg.write", register="toy.OUT", value=9, key=KEY3)).ok
        assert code_of(await lab.ask("sequence.run", steps=steps[:2], key=KEY2)) == "rate_limited"
        assert lab.writes("OUT") == 1
        lab.clock.advance(60)
        assert (await lab.ask("sequence.run", steps=steps[:2], key=KEY2)).ok
        assert code_of(await lab.ask("reg.write", **WRITE)) == "rate_limited"

    play(life, board(tmp_path, rule(rate_per_min="2")))


def test_rate_when_a_request_was_refused_then_it_is_not_counted(play: Play, tmp_path: Path) -> None:
    async def life(lab: Lab) -> None:
        refused = await lab.ask("reg.write", expect={"toy.OUT": 9}, **WRITE)
        assert code_of(refused) == "precondition_failed"
        assert (await lab.ask("reg.write", **WRITE)).ok

    play(life, board(tmp_path, rule(rate_per_min="1")))


# --- confidential -------------------------------------------------------------------------------------------------

SECRET = (
    reg("PIN", 0, "confidential = true"),
    reg("MIX", 1, "fields.KEY = { bits = '3:0', confidential = true }\nfields.LED = { bits = 4 }"),
    reg("LOAD", 2, "confidential = true", access="wo"),
    reg("OPEN", 3),
    reg("ALIAS", 8, "also_at = [0]"),
    "[groups.G]\nmembers = ['PIN', 'OPEN']\ntransfer = 'each'\n",
)
LOOKS: dict[str, tuple[str, dict[str, Any]]] = {
    "read": ("reg.read", {"registers": ["toy.PIN"]}),
    "read among others": ("reg.read", {"registers": ["toy.OPEN", "toy.PIN"]}),
    "read of a field": ("reg.read", {"registers": ["toy.MIX"]}),
    "read of a group": ("reg.read", {"registers": ["toy.G"]}),
    "read through an alias": ("reg.read", {"registers": ["toy.ALIAS"]}),
    "write that is read back": ("reg.write", {"register": "toy.PIN", "value": 7, "key": KEY}),
    "update beside it": ("reg.update", {"register": "toy.MIX", "fields": {"LED": 1}, "key": KEY}),
    "expectation": ("reg.write", {"register": "toy.OPEN", "value": 7, "expect": {"toy.PIN": 3}, "key": KEY}),
    "plan": ("reg.plan", {"method": "reg.update", "params": {"register": "toy.MIX", "fields": {"LED": 1}}}),
    "waiting for it": (
        "sequence.run",
        {
            "steps": [{"do": "wait_until", "register": "toy.PIN", "equals": 3}, PUT | {"register": "toy.OPEN"}],
            "key": KEY,
        },
    ),
}


@pytest.mark.parametrize("name", LOOKS)
def test_confidential_when_a_caller_is_not_allowed_then_denied_and_not_looked_at(
    play: Play, tmp_path: Path, name: str
) -> None:
    method, params = LOOKS[name]

    async def life(lab: Lab) -> None:
        lab.chip().values["PIN"] = 0x5A
        refused = await lab.ask(method, **params)
        assert (code_of(refused), "confidential" in error_of(refused)["message"]) == ("denied", True)
        assert "0x5a" not in str(refused)
        await nothing_happened(lab)

    play(life, board(tmp_path, "", *SECRET))


@pytest.mark.parametrize("name", LOOKS)
@pytest.mark.parametrize("why", ["an operator", "a rule"])
def test_confidential_when_a_caller_is_allowed_then_it_works(play: Play, tmp_path: Path, name: str, why: str) -> None:
    method, params = LOOKS[name]
    caller = OPERATOR if why == "an operator" else AGENT

    async def life(lab: Lab) -> None:
        lab.chip().values["PIN"] = 3
        assert (await lab.ask(method, caller, **params)).ok

    play(life, board(tmp_path, rule("uid:1000", confidential="true"), *SECRET), store=why)


def test_confidential_when_a_rule_hides_it_from_operators_too_then_denied(play: Play, tmp_path: Path) -> None:
    async def life(lab: Lab) -> None:
        assert code_of(await lab.operator("reg.read", registers=["toy.PIN"])) == "denied"

    play(life, board(tmp_path, rule(confidential="false"), *SECRET))


def test_confidential_when_it_can_only_be_written_then_anybody_may_and_nothing_shows_it(
    play: Play, tmp_path: Path
) -> None:
    async def life(lab: Lab) -> None:
        done = await lab.ask("reg.write", register="toy.LOAD", value=0xC7, key=KEY)
        assert (done.ok, lab.chip().values["LOAD"]) == (True, 0xC7)
        others = await lab.ask("op.get", OTHER, id=done.id)
        assert "0xc7" not in str(others.op)
        assert "0xc7" not in str(await lab.audit())

    play(life, board(tmp_path, "", *SECRET))


def test_confidential_when_an_operator_reads_it_then_no_record_has_the_value(play: Play, tmp_path: Path) -> None:
    async def life(lab: Lab) -> None:
        lab.chip().values["PIN"] = 0x5B
        told = await lab.operator("reg.read", registers=["toy.PIN"])
        assert (raws(told), "0x5b" in told.summary) == (["0x5b"], False)
        wrote = await lab.operator("reg.write", register="toy.PIN", value=0x5C, key=KEY)
        assert wrote.ok
        assert "0x5c" not in wrote.summary + str(wrote.evidence) + str(await lab.audit())

    play(life, board(tmp_path, "", *SECRET))


# --- budgets ------------------------------------------------------------------------------------------------------

WEARS = (reg("CAL", 0, "persistence = 'nonvolatile'"), reg("TRIM", 1, "persistence = 'nonvolatile'"))
BUDGET = "writes_per_day = { CAL = 2 }"
DAY_S = 86_400


async def calibrate(lab: Lab, number: int, register: str = "CAL") -> Any:
    return await lab.ask("reg.write", register=f"toy.{register}", value=number, key=f"key-cal-{number:04}")


def test_budget_when_it_lasts_then_no_person_is_asked_and_beyond_it_one_is(play: Play, tmp_path: Path) -> None:
    async def life(lab: Lab) -> None:
        assert [(await calibrate(lab, n)).status for n in (1, 2, 3)] == ["done", "done", "pending_approval"]
        assert (await calibrate(lab, 9, "TRIM")).status == "pending_approval"  # it has none
        assert lab.writes("CAL") == 2

    async def restarted(lab: Lab) -> None:
        assert (await calibrate(lab, 4)).status == "pending_approval"
        lab.clock.advance(DAY_S)
        assert (await calibrate(lab, 5)).ok

    clock = FakeClock()
    play(life, board(tmp_path, "", *WEARS, device=BUDGET, mode="separate-user"), clock=clock)
    play(restarted, board(tmp_path, "", *WEARS, device=BUDGET, mode="separate-user"), clock=clock)


def test_budget_when_two_come_at_once_for_the_last_write_then_one_runs(play: Play, tmp_path: Path) -> None:
    async def life(lab: Lab) -> None:
        first, second = await asyncio.gather(calibrate(lab, 1), calibrate(lab, 2))
        assert sorted([first.ok, second.ok]) == [False, True]
        late = first if not first.ok else second
        assert (code_of(late), lab.writes("CAL")) == ("rate_limited", 1)
        again = await calibrate(lab, 1 if late is first else 2)
        assert again.status == "pending_approval"

    play(life, board(tmp_path, "", *WEARS, device="writes_per_day = { CAL = 1 }", mode="separate-user"))


def test_budget_when_a_sequence_wants_more_than_is_left_then_the_whole_is_asked_for(play: Play, tmp_path: Path) -> None:
    async def life(lab: Lab) -> None:
        steps = [{"do": "write", "register": "toy.CAL", "value": n} for n in range(1, 4)]
        assert (await lab.ask("sequence.run", steps=steps, key=KEY)).status == "pending_approval"
        assert (await lab.ask("sequence.run", steps=steps[:2], key=KEY2)).ok
        assert lab.writes("CAL") == 2

    play(life, board(tmp_path, "", *WEARS, device=BUDGET, mode="separate-user"))


def test_budget_when_the_memory_is_written_in_ranges_then_each_counts(play: Play, tmp_path: Path) -> None:
    async def life(lab: Lab) -> None:
        for number in range(2):
            wrote = {"register": f"toy.MEM[{number}:1]", "value": {"hex": "55"}, "key": f"key-mem-{number:04}"}
            assert (await lab.ask("reg.write", **wrote)).ok
        third = {"register": "toy.MEM[9:1]", "value": {"hex": "55"}, "key": KEY3}
        assert (await lab.ask("reg.write", **third)).status == "pending_approval"

    memory = "[memories.MEM]\noffset = 0x40\nsize_bytes = 16\n" + effect("none") + "\n" + writing("store") + "\n"
    play(life, board(tmp_path, "", memory, device="writes_per_day = { MEM = 2 }", mode="separate-user"))


# --- what is told of it -------------------------------------------------------------------------------------------


def test_policy_show_when_asked_about_a_register_then_the_rule_that_decides_is_named(
    play: Play, tmp_path: Path
) -> None:
    async def life(lab: Lab) -> None:
        shown: Any = (await lab.operator("policy.show", register="toy.OUT", who="uid:7", groups=["root"])).policy
        (told,) = shown["decisions"]
        assert (told["rule"], told["write"], told["read"], told["rate_per_min"]) == (2, "approval", "yes", 6)
        assert "group:root" in told["decided_by"]
        (other,) = (await lab.operator("policy.show", register="toy.OUT", who="uid:8")).policy["decisions"]  # type: ignore[index]
        assert (other["rule"], other["write"], other["decided_by"]) == (None, "by contract", "the built-in last rule")
        everything: Any = (await lab.operator("policy.show")).policy
        assert [r["who"] for r in everything["rules"]] == ["uid:9", "group:root"]
        assert code_of(await lab.ask("policy.show")) == "denied"
        assert code_of(await lab.operator("policy.show", register="toy.OUTS")) == "not_found"

    rules = rule("uid:9", write="'no'") + rule("group:root", write="'approval'", rate_per_min="6")
    play(life, board(tmp_path, rules))


def test_describe_when_asked_then_the_rules_that_mean_the_caller(play: Play, tmp_path: Path) -> None:
    async def life(lab: Lab) -> None:
        mine: Any = (await lab.ask("describe")).describe
        theirs: Any = (await lab.ask("describe", OTHER)).describe
        assert ([r["number"] for r in mine["policy"]], [r["number"] for r in theirs["policy"]]) == ([1, 2], [2])
        assert (mine["confidential"].startswith("not shown"), theirs["policy"][0]["write"]) == (True, "no")

    play(life, board(tmp_path, rule("uid:1000", read="'no'") + rule(register="'V'", write="'no'")))
