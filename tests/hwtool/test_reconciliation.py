"""The table of reconciliation: total over the vocabulary, and the kinds that can be done in part."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

from hwtool.outcome import NeedsPerson, Target, Verdict
from hwtool.reconciliation import READS, WRITES, settle_write
from hwtool.restarts import Restart
from hwtool_contracts.effects import READ_POLICY, WRITE_POLICY, ReadEffect, Reconcile, When
from hwtool_sim.faults import FaultKind
from tests.hwtool.conftest import KEY, OPERATOR, FakeClock, Lab, Play, code_of, reg, toy_board

PARTIAL = ("partial", "applied")
PERSON = "a person"
MEMORY = (
    "[memories.M]\noffset = 0x80\nsize_bytes = 16\npage_bytes = 8\nwrite_cycle_ms = 5\naccess = 'rw'\n"
    "persistence = 'nonvolatile'\n"
)


def test_writes_when_read_then_every_effect_has_the_rule_that_its_policy_names() -> None:
    assert set(WRITES) == set(Reconcile)
    named = {effect: kind for kind, rule in WRITES.items() for effect in rule.effects if kind is not Reconcile.PAGE}
    assert named == {effect: policy.reconcile for effect, policy in WRITE_POLICY.items()}


def test_reads_when_read_then_every_effect_with_a_key_has_a_rule() -> None:
    keyed = {effect for effect, policy in READ_POLICY.items() if policy.keyless is When.NO}
    assert {e for rule in READS.values() for e in rule.effects if isinstance(e, ReadEffect)} == keyed


def target(reconcile: Reconcile, wanted: int = 0x0F, persistent: bool = True) -> Target:
    return Target("R", "R", wanted, 0xFF, 0, 0, 0xFF, 0, 0xFF, reconcile.value, persistent)


def short(answer: Verdict | NeedsPerson) -> Any:
    return PERSON if isinstance(answer, NeedsPerson) else (answer.verdict, answer.effects)


@pytest.mark.parametrize(
    ("reconcile", "p", "n", "answer"),
    [
        (Reconcile.BURNT, 0x00, 0x0F, ("applied", "unknown")),
        (Reconcile.BURNT, 0x00, 0x00, ("not_applied", "none")),
        (Reconcile.BURNT, 0x00, 0x03, PARTIAL),
        (Reconcile.BURNT, 0x01, 0x07, PARTIAL),
        (Reconcile.BURNT, 0x0F, 0x0F, ("satisfied", "unknown")),
        (Reconcile.BURNT, 0x00, 0x13, PERSON),  # a bit that was not to be burnt
        (Reconcile.BURNT, 0x02, 0x01, PERSON),  # a bit that cannot go back did
        (Reconcile.PAGE, 0x00, 0x0F, ("applied", "unknown")),
        (Reconcile.PAGE, 0x00, 0x00, ("not_applied", "none")),
        (Reconcile.PAGE, 0x00, 0xFF, PARTIAL),  # torn: erased, or half of it
        (Reconcile.COMPARE, 0x00, 0x03, PERSON),
    ],
)
@pytest.mark.parametrize("restart", ["same", "silent", "reset"])
def test_write_when_it_can_be_done_in_part_then_partial_whatever_restarted(
    reconcile: Reconcile, p: int, n: int, answer: Any, restart: Restart
) -> None:
    assert short(settle_write([target(reconcile)], {"R": p}, {"R": n}, restart, True)) == answer
    other_masters = settle_write([target(reconcile)], {"R": p}, {"R": n}, restart, False)
    assert short(other_masters) == (answer if answer == ("satisfied", "unknown") else PERSON)


def test_pages_when_one_is_new_and_the_next_is_old_then_partial() -> None:
    pair = [target(Reconcile.PAGE), Target("S", "S", 0x0F, 0xFF, 0, 0, 0xFF, 0, 0, "page", True)]
    answer = settle_write(pair, {"R": 0, "S": 0}, {"R": 0x0F, "S": 0}, "silent", True)
    assert short(answer) == PARTIAL


def test_write_only_register_when_the_device_restarted_then_a_person_and_not_superseded() -> None:
    echoed = Target("R", "ECHO", 0x55, 0xFF, 0, 0, 0xFF, 0, 0xFF, "compare", False, write_only=True)
    assert short(settle_write([echoed], {"ECHO": 1}, {"ECHO": 0}, "reset", True)) == PERSON


async def written(lab: Lab, value: str) -> Any:
    """A page is nonvolatile: an operator's own request is its own approval here. The chip's time is the daemon's."""
    lab.bus().clock = lab.clock.monotonic_s
    return await lab.ask("reg.write", OPERATOR, register="toy.M[0:4]", value={"hex": value}, key=KEY)


def test_page_when_it_was_torn_then_partial_by_rule_and_the_device_is_free(play: Play, tmp_path: Path) -> None:
    async def life(lab: Lab) -> None:
        lab.fault(FaultKind.DATA_NACK, offset=0x80, after_bytes=2)
        unknown = await written(lab, "01020304")
        assert code_of(unknown) == "outcome_unknown"
        await lab.rules_ran()
        settled = await lab.ask("op.get", OPERATOR, key=KEY)
        assert (settled.verdict, settled.effects, lab.device().unknown) == ("partial", "applied", {})

    play(life, toy_board(tmp_path, MEMORY, mode="separate-user"))


def test_page_when_its_write_cycle_may_still_run_then_the_rules_wait_for_it(
    play: Play, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    slept: list[float] = []
    real = FakeClock.sleep

    async def sleeping(clock: FakeClock, seconds: float) -> None:
        slept.append(seconds)
        await real(clock, seconds)

    async def life(lab: Lab) -> None:
        lab.fault(FaultKind.REPLY_LOST, offset=0x80)
        await written(lab, "01020304")
        monkeypatch.setattr(FakeClock, "sleep", sleeping)
        await lab.rules_ran()
        assert 0.005 in slept
        assert (await lab.ask("op.get", OPERATOR, key=KEY)).verdict == "applied"

    play(life, toy_board(tmp_path, MEMORY, mode="separate-user"))


def test_bits_when_burnt_in_part_then_partial(play: Play, tmp_path: Path) -> None:
    burns = reg("R", 0, "reset = 0\npersistence = 'nonvolatile'\nwrite = { effect = 'write_once' }")

    async def life(lab: Lab) -> None:
        lab.fault(FaultKind.REPLY_LOST, offset=0)
        await lab.ask("reg.write", OPERATOR, register="toy.R", value=0x0F, key=KEY)
        lab.chip().values["R"] = 0x03  # the supply broke down in the middle
        await lab.rules_ran()
        settled = await lab.ask("op.get", OPERATOR, key=KEY)
        assert (settled.verdict, settled.effects) == ("partial", "applied")

    play(life, toy_board(tmp_path, burns, mode="separate-user"))


def test_restart_when_it_comes_between_the_rules_two_looks_then_it_is_not_taken_for_undone(
    play: Play, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Found by the simulation, seed 1490: the nonce was read, the chip restarted, its counter was read."""
    from hwtool import recovery

    go = "write = { effect = 'command', verify = 'signal', signals = [{ register = 'N', delta = 1 }] }"
    real = recovery.observe

    async def life(lab: Lab) -> None:
        lab.chip().values["N"] = 0

        async def restarting(*arguments: Any) -> Any:
            lab.chip().reset()
            return await real(*arguments)

        lab.fault(FaultKind.REPLY_LOST, offset=0)
        await lab.ask("reg.write", register="toy.GO", value=1, key=KEY)
        monkeypatch.setattr(recovery, "observe", restarting)
        await lab.rules_ran()
        assert (await lab.row()).state == "UNKNOWN"

    play(life, toy_board(tmp_path, reg("GO", 0, go, "wo"), reg("N", 1, "reset = 0", "ro")))
