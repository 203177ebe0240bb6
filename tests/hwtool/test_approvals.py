"""Approvals: what waits, what is shown, who may grant, what voids a grant, and that it is used once."""

from __future__ import annotations

import asyncio
from pathlib import Path
from typing import Any

import pytest

from hwtool.policy import Caller
from hwtool_contracts.messages import Result
from hwtool_sim.faults import FaultKind
from hwtool_store import operations
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
    error_of,
    reg,
    toy_board,
)

NEEDS = "write = { effect = 'store', approval = 'required' }"
A = reg("A", 0, f"{NEEDS}\nfields.LOW = {{ bits = '3:0' }}\nfields.HIGH = {{ bits = '7:4' }}")
PARTS = (A, reg("S", 1))
ASK = {"register": "toy.A", "value": 0x55, "key": KEY, "reason": "the fan \u202e is loud"}
PERSON = Caller(5, "operator", "p-", 0)


async def shown(lab: Lab, op_id: int | None) -> dict[str, Any]:
    result = await lab.operator("approval.show", approval=op_id)
    assert isinstance(result.approvals, list)
    (screen,) = result.approvals
    return screen


async def approved(lab: Lab, op_id: int | None, who: Caller = OPERATOR) -> Result:
    screen = await shown(lab, op_id)
    lab.clock.advance(1.5)
    return await lab.ask("approval.approve", who, approval=op_id, code=screen["code"])


async def granted(lab: Lab) -> int:
    pending = await lab.ask("reg.write", **ASK)
    result = await approved(lab, pending.id)
    assert result.ok, result
    assert pending.id is not None
    return pending.id


def test_request_when_it_needs_a_person_then_pending_at_once_and_nothing_is_touched(play: Play, tmp_path: Path) -> None:
    async def life(lab: Lab) -> None:
        first = await lab.ask("reg.write", **ASK)
        assert (first.status, first.effects, first.ok, first.error) == ("pending_approval", "none", False, None)
        assert (first.approval, first.retry) == (first.id, "after_approval")
        again = await lab.ask("reg.write", **ASK)
        assert (again.status, again.id) == ("pending_approval", first.id)
        got = await lab.ask("op.get", key=KEY)
        assert (got.status, got.effects) == ("pending_approval", "none")
        both = await asyncio.gather(*(lab.ask("reg.write", **{**ASK, "key": KEY2}) for _ in range(2)))
        assert len({r.id for r in both}) == 1
        assert (len(await lab.rows()), lab.sent()) == (2, [])
        (listed, _) = (await lab.operator("approval.list")).approvals  # type: ignore[misc]
        assert (listed["approval"], listed["requester"], listed["registers"]) == (first.id, "uid:1000", ["A"])
        assert listed["reason_in_requesters_words"] == "the fan \\u202e is loud"
        conflict = await lab.ask("reg.write", **{**ASK, "value": 1})
        assert (code_of(conflict), conflict.effects, conflict.id) == ("key_conflict", "none", first.id)

    play(life, toy_board(tmp_path, *PARTS))


def test_show_when_asked_then_the_effect_in_bits_and_the_exact_transfers(play: Play, tmp_path: Path) -> None:
    async def life(lab: Lab) -> None:
        lab.chip().values["A"] = 0x51
        pending = await lab.ask("reg.write", **ASK)
        screen = await shown(lab, pending.id)
        told = ("register", "before", "after", "fields")
        assert [{name: change[name] for name in told} for change in screen["changes"]] == [
            {
                "register": "A",
                "before": "0x51",
                "after": "0x55",
                "fields": {"LOW": {"before": "0x1", "after": "0x5"}},
            }
        ]
        assert screen["why"] == ["contract: A requires approval"]
        assert (screen["implied_reads"], screen["untouched"], len(screen["code"])) == (["A"], [], 8)
        assert lab.writes("A") == 0
        update = await lab.ask("reg.update", register="toy.A", fields={"LOW": 2}, key=KEY2)
        assert (await shown(lab, update.id))["untouched"] == ["A.HIGH"]
        write_only = await lab.ask("reg.write", register="toy.W", value=1, key=KEY3)
        assert (await shown(lab, write_only.id))["changes"][0]["before"] is None
        op_id = await granted(lab)
        done = await lab.ask("reg.write", **ASK)
        assert (done.id, done.verdict) == (op_id, "applied")
        assert [t for t in lab.sent() if t["do"] == "write"] == [
            {k: v for k, v in screen["transfers"][0].items() if k not in ("role", "register")}
        ]

    play(life, toy_board(tmp_path, *PARTS, reg("W", 2, NEEDS, "wo")))


def test_approve_when_never_shown_too_soon_or_with_a_wrong_code_then_refused_and_the_request_stays(
    play: Play, tmp_path: Path
) -> None:
    async def life(lab: Lab) -> None:
        pending = await lab.ask("reg.write", **ASK)

        async def answer(code: str) -> str:
            refused = await lab.operator("approval.approve", approval=pending.id, code=code)
            assert code_of(refused) == "refused"
            return str(error_of(refused)["rule"])

        assert await answer("00000000") == "never_shown"
        code = (await shown(lab, pending.id))["code"]
        lab.clock.advance(1.49)
        assert await answer("ü" * 8) == "wrong_code"
        assert await answer(code) == "too_soon"
        lab.clock.advance(0.01)
        assert (await lab.ask("reg.write", **ASK)).status == "pending_approval"
        assert (await lab.operator("approval.approve", approval=pending.id, code=code)).ok
        assert await answer(code) == "already_approved"

    play(life, toy_board(tmp_path, *PARTS))


def test_grant_when_used_then_carried_out_once_and_consumed(play: Play, tmp_path: Path) -> None:
    async def life(lab: Lab) -> None:
        op_id = await granted(lab)
        assert lab.writes("A") == 0
        for replayed in (False, True, True):
            done = await lab.ask("reg.write", **ASK)
            assert (done.id, done.verdict, done.replayed) == (op_id, "applied", replayed)
        assert lab.writes("A") == 1
        grant = await lab.daemon.ask(lambda conn: operations.grant_of(conn, op_id))
        assert grant is not None
        assert (grant.used, grant.approver) == (True, "uid:0")
        gone = await lab.operator("approval.show", approval=op_id)
        assert (code_of(gone), "DONE" in error_of(gone)["message"]) == ("not_found", True)
        whats = [b["what"] for b in await lab.audit() if b["what"] != "generation"]
        assert whats == ["pending", "approved", "intent", "outcome"]

    play(life, toy_board(tmp_path, *PARTS))


VOID: dict[str, tuple[float, str, str | None]] = {
    "just in time": (120.0, "", "applied"),
    "too late": (120.1, "not used in time", None),
}


@pytest.mark.parametrize(("seconds", "why", "verdict"), VOID.values(), ids=list(VOID))
def test_grant_when_it_ages_then_valid_for_120_seconds(
    play: Play, tmp_path: Path, seconds: float, why: str, verdict: str | None
) -> None:
    async def life(lab: Lab) -> None:
        await granted(lab)
        lab.clock.advance(seconds)
        for _ in range(2):
            result = await lab.ask("reg.write", **ASK)
            if verdict is None:
                assert (code_of(result), result.effects, result.verdict) == ("approval_expired", "none", "denied")
                assert why in error_of(result)["reason"]
                assert error_of(result)["retry"] == "new_key"
            else:
                assert result.verdict == verdict
        assert lab.writes("A") == (0 if verdict is None else 1)

    play(life, toy_board(tmp_path, *PARTS))


def test_request_when_nobody_answers_for_an_hour_then_expired(play: Play, tmp_path: Path) -> None:
    async def life(lab: Lab) -> None:
        await lab.ask("reg.write", **ASK)
        lab.clock.advance(3600)
        assert (await lab.ask("reg.write", **ASK)).status == "pending_approval"
        lab.clock.advance(1)
        result = await lab.ask("reg.write", **ASK)
        assert (code_of(result), result.effects) == ("approval_expired", "none")
        assert ((await lab.row()).verdict, (await lab.row()).verdict_by) == ("denied", "rule")

    play(life, toy_board(tmp_path, *PARTS))


def test_grant_when_the_daemon_restarts_then_kept_and_when_the_host_reboots_then_void(
    play: Play, tmp_path: Path, kept_buses: Any
) -> None:
    board = toy_board(tmp_path, *PARTS)
    clock = FakeClock()
    clock.held = False

    async def first(lab: Lab) -> None:
        await granted(lab)
        second = await lab.ask("reg.write", **{**ASK, "key": KEY2})
        assert (await approved(lab, second.id)).ok

    async def restarted(lab: Lab) -> None:
        assert (await lab.ask("reg.write", **ASK)).verdict == "applied"

    async def rebooted(lab: Lab) -> None:
        result = await lab.ask("reg.write", **{**ASK, "key": KEY2})
        assert (code_of(result), "host was restarted" in error_of(result)["reason"]) == ("approval_expired", True)
        assert lab.writes("A") == 1

    play(first, board, clock=clock)
    play(restarted, board, clock=clock)
    clock.boot_word = "boot-2"
    play(rebooted, board, clock=clock)


YEARS_NS = 10 * 365 * 86_400 * 1_000_000_000


@pytest.mark.parametrize("jump_ns", [YEARS_NS, -YEARS_NS], ids=["ten years on", "ten years back"])
def test_grant_when_the_wall_clock_jumps_then_its_120_seconds_are_those_that_have_passed(
    play: Play, tmp_path: Path, jump_ns: int
) -> None:
    async def life(lab: Lab) -> None:
        await granted(lab)
        second = await lab.ask("reg.write", **{**ASK, "key": KEY2})
        assert (await approved(lab, second.id)).ok
        lab.clock.wall += jump_ns
        assert (await lab.ask("reg.write", **ASK)).verdict == "applied"
        lab.clock.advance(121)
        assert code_of(await lab.ask("reg.write", **{**ASK, "key": KEY2})) == "approval_expired"
        assert lab.writes("A") == 1

    play(life, toy_board(tmp_path, *PARTS))


@pytest.mark.parametrize("jump_ns", [YEARS_NS, -YEARS_NS], ids=["ten years on", "ten years back"])
def test_key_when_the_wall_clock_jumps_over_a_restart_then_it_stays_used_and_a_hold_stays(
    play: Play, tmp_path: Path, kept_buses: Any, jump_ns: int
) -> None:
    board, clock = toy_board(tmp_path, reg("A", 0)), FakeClock()
    write = {"register": "toy.A", "value": 1, "key": KEY}

    async def first(lab: Lab) -> None:
        assert (await lab.ask("reg.write", **write)).verdict == "applied"
        lab.fault(FaultKind.REPLY_LOST)
        assert code_of(await lab.ask("reg.write", **{**write, "value": 2, "key": KEY2})) == "outcome_unknown"
        lab.chip().values["A"] = 9  # nothing that a rule could settle
        await lab.rules_ran()

    async def second(lab: Lab) -> None:
        again = await lab.ask("reg.write", **write)
        assert (again.verdict, again.replayed, lab.writes("A")) == ("applied", True, 2)
        assert code_of(await lab.ask("reg.write", **{**write, "key": "key-0000003"})) == "held"

    play(first, board, clock=clock)
    clock.wall += jump_ns
    play(second, board, clock=clock)


def test_grant_when_the_device_restarted_then_void(play: Play, tmp_path: Path) -> None:
    async def life(lab: Lab) -> None:
        await granted(lab)
        lab.chip().reset()
        result = await lab.ask("reg.write", **ASK)
        assert (code_of(result), "restarted" in error_of(result)["reason"]) == ("approval_expired", True)
        third = await lab.ask("reg.write", **{**ASK, "key": KEY2})
        assert (await approved(lab, third.id)).ok
        lab.device().new_generation(9)
        result = await lab.ask("reg.write", **{**ASK, "key": KEY2})
        assert (code_of(result), "restarted" in error_of(result)["reason"]) == ("approval_expired", True)
        assert lab.writes("A") == 0

    play(life, toy_board(tmp_path, *PARTS))


def test_grant_when_the_contract_changed_then_void(play: Play, tmp_path: Path, kept_buses: Any) -> None:
    clock = FakeClock()

    async def first(lab: Lab) -> None:
        await granted(lab)

    async def second(lab: Lab) -> None:
        result = await lab.ask("reg.write", **ASK)
        assert (code_of(result), "contract" in error_of(result)["reason"]) == ("approval_expired", True)
        assert lab.writes("A") == 0

    play(first, toy_board(tmp_path, *PARTS), clock=clock)
    play(second, toy_board(tmp_path, *PARTS, reg("NEW", 7)), clock=clock)


def test_grant_when_neighbours_changed_since_it_was_shown_then_stale_and_unused(play: Play, tmp_path: Path) -> None:
    async def life(lab: Lab) -> None:
        update = {"register": "toy.A", "fields": {"LOW": 2}, "key": KEY}
        pending = await lab.ask("reg.update", **update)
        assert (await approved(lab, pending.id)).ok
        lab.chip().values["A"] = 0x90
        stale = await lab.ask("reg.update", **update)
        assert (code_of(stale), error_of(stale)["what"], stale.effects) == ("stale", "neighbours", "none")
        assert (lab.writes("A"), (await lab.row()).state) == (0, "PENDING")
        lab.chip().values["A"] = 0x00
        assert (await lab.ask("reg.update", **update)).verdict == "applied"
        assert lab.chip().values["A"] == 0x02

    play(life, toy_board(tmp_path, *PARTS))


def test_grant_when_the_device_is_held_then_held_and_unused(play: Play, tmp_path: Path) -> None:
    async def life(lab: Lab) -> None:
        await granted(lab)
        await lab.operator("device.hold", device="toy", reason="wait")
        assert code_of(await lab.ask("reg.write", **ASK)) == "held"
        assert (await lab.row()).state == "PENDING"
        await lab.operator("device.release", device="toy", reason="go")
        assert (await lab.ask("reg.write", **ASK)).verdict == "applied"

    play(life, toy_board(tmp_path, *PARTS))


def test_denial_when_given_then_its_reason_reaches_the_requester_on_every_replay(play: Play, tmp_path: Path) -> None:
    async def life(lab: Lab) -> None:
        pending = await lab.ask("reg.write", **ASK)
        assert (await lab.operator("approval.deny", approval=pending.id, reason="not at night")).ok
        for _ in range(2):
            denied = await lab.ask("reg.write", **ASK)
            assert (code_of(denied), denied.verdict, denied.effects) == ("approval_denied", "denied", "none")
            assert (error_of(denied)["reason"], error_of(denied)["retry"]) == ("not at night", "new_key")
        assert code_of(await lab.operator("approval.deny", approval=pending.id, reason="again")) == "not_found"
        assert code_of(await lab.operator("approval.deny", approval=999, reason="who")) == "not_found"
        assert (lab.sent(), (await lab.row()).verdict_by) == ([], "human")
        assert (await lab.operator("approval.list")).approvals == []

    play(life, toy_board(tmp_path, *PARTS))


def test_denial_when_somebody_waits_for_the_operation_then_the_wait_ends(play: Play, tmp_path: Path) -> None:
    async def life(lab: Lab) -> None:
        pending = await lab.ask("reg.write", **ASK)
        waiting = asyncio.create_task(lab.ask("op.wait", id=pending.id, wait_ms=20_000))
        await asyncio.sleep(0.01)
        await lab.operator("approval.deny", approval=pending.id, reason="no")
        assert code_of(await waiting) == "approval_denied"
        other = await lab.ask("reg.write", **{**ASK, "key": KEY2})
        assert (await lab.ask("op.wait", id=other.id, wait_ms=0)).status == "pending_approval"

    play(life, toy_board(tmp_path, *PARTS))


def test_requests_when_sixteen_wait_then_the_next_is_rate_limited_for_this_caller_only(
    play: Play, tmp_path: Path
) -> None:
    async def life(lab: Lab) -> None:
        for n in range(16):
            pending = await lab.ask("reg.write", **{**ASK, "key": f"key-1{n:07}"})
            assert pending.status == "pending_approval"
        limited = await lab.ask("reg.write", **ASK)
        assert (code_of(limited), error_of(limited)["limit"], limited.effects) == ("rate_limited", 16, "none")
        assert error_of(limited)["retry"] == "same_key"
        assert (await lab.ask("reg.write", OTHER, **ASK)).status == "pending_approval"
        await lab.operator("approval.deny", approval=pending.id, reason="room")
        assert (await lab.ask("reg.write", **ASK)).status == "pending_approval"

    play(life, toy_board(tmp_path, *PARTS))


MODES = [
    # mode, requester, approver, whether the requester's own word is enough, whether the approver's is
    ("self", AGENT, Caller(1000, "operator", "x", 0), False, True),
    ("self", OPERATOR, OPERATOR, True, True),
    ("separate-user", AGENT, OPERATOR, False, True),
    ("separate-user", AGENT, Caller(1000, "operator", "x", 0), False, False),
    ("separate-user", PERSON, OPERATOR, True, True),
    ("two-person", PERSON, PERSON, False, False),
    ("two-person", PERSON, OPERATOR, False, True),
    ("sudo", AGENT, PERSON, False, False),
    ("sudo", PERSON, OPERATOR, False, True),
    ("sudo", OPERATOR, OPERATOR, True, True),
]


@pytest.mark.parametrize(("mode", "requester", "approver", "direct", "allowed"), MODES)
def test_mode_when_a_request_needs_approval_then_who_may_give_it(
    play: Play, tmp_path: Path, mode: str, requester: Caller, approver: Caller, direct: bool, allowed: bool
) -> None:
    async def life(lab: Lab) -> None:
        first = await lab.ask("reg.write", requester, **ASK)
        if direct:
            assert first.verdict == "applied"
            intents = [b for b in await lab.audit() if b["what"] == "intent"]
            assert [i.get("direct") for i in intents] == [True]
            return
        assert first.status == "pending_approval"
        answer = await approved(lab, first.id, approver)
        assert answer.ok is allowed
        if not allowed:
            assert (code_of(answer), error_of(answer)["required"]) == ("denied", "another operator")
        else:
            assert (await lab.ask("reg.write", requester, **ASK)).verdict == "applied"
        assert lab.writes("A") == (1 if allowed else 0)
        assert not [b for b in await lab.audit() if b.get("direct")]

    play(life, toy_board(tmp_path, *PARTS, mode=mode))


def test_agent_when_it_calls_an_operators_method_then_denied_and_the_request_stays(play: Play, tmp_path: Path) -> None:
    async def life(lab: Lab) -> None:
        pending = await lab.ask("reg.write", **ASK)
        code = (await shown(lab, pending.id))["code"]
        lab.clock.advance(2)
        for method, params in {
            "approval.list": {},
            "approval.show": {"approval": pending.id},
            "approval.approve": {"approval": pending.id, "code": code},
            "approval.deny": {"approval": pending.id, "reason": "x"},
            "op.settle": {"id": pending.id, "verdict": "applied", "reason": "x"},
            "device.hold": {"device": "toy", "reason": "x"},
            "device.release": {"device": "toy", "reason": "x"},
        }.items():
            denied = await lab.ask(method, **params)
            assert (code_of(denied), error_of(denied)["required"]) == ("denied", "the operator socket")
        assert (await lab.ask("reg.write", **ASK)).status == "pending_approval"

    play(life, toy_board(tmp_path, *PARTS))


def test_show_when_the_register_is_sensitive_then_no_value_is_shown(play: Play, tmp_path: Path) -> None:
    async def life(lab: Lab) -> None:
        pending = await lab.ask("reg.write", **ASK)
        screen = await shown(lab, pending.id)
        assert (screen["changes"], screen["transfers"]) == ("redacted", "redacted")

    play(life, toy_board(tmp_path, reg("A", 0, f"sensitive = true\n{NEEDS}")))


def test_effectful_read_when_approval_is_never_asked_of_reads_then_no_person(play: Play) -> None:
    async def life(lab: Lab) -> None:
        assert (await lab.ask("reg.read_effectful", register="uart.RHR", key=KEY)).ok

    play(life)


def test_request_when_an_hour_old_then_it_cannot_be_approved_any_more_and_is_not_listed(
    play: Play, tmp_path: Path
) -> None:
    async def life(lab: Lab) -> None:
        pending = await lab.ask("reg.write", **ASK)
        lab.clock.advance(3601)
        assert code_of(await lab.operator("approval.show", approval=pending.id)) == "not_found"
        assert (await lab.operator("approval.list")).approvals == []
        assert code_of(await lab.ask("reg.write", **ASK)) == "approval_expired"
        assert lab.writes("A") == 0

    play(life, toy_board(tmp_path, *PARTS))


def test_approve_when_given_twice_then_the_second_is_refused_and_the_grant_stands(play: Play, tmp_path: Path) -> None:
    async def life(lab: Lab) -> None:
        op_id = await granted(lab)
        again = await approved(lab, op_id)
        assert (code_of(again), error_of(again)["rule"]) == ("refused", "already_approved")
        assert (await lab.ask("reg.write", **ASK)).verdict == "applied"

    play(life, toy_board(tmp_path, *PARTS))


def test_request_when_the_device_is_held_then_held_and_no_person_is_asked(play: Play, tmp_path: Path) -> None:
    async def life(lab: Lab) -> None:
        assert (await lab.operator("device.hold", device="toy", reason="stop")).ok
        assert code_of(await lab.ask("reg.write", **ASK)) == "held"
        assert await lab.rows() == []

    play(life, toy_board(tmp_path, *PARTS))
