"""The vocabularies are total, closed and mean what the manual prints."""

from __future__ import annotations

from pathlib import Path

import pytest

from hwtool_contracts.effects import (
    READ_POLICY,
    WRITE_POLICY,
    Neutral,
    ReadEffect,
    Reconcile,
    When,
    WriteEffect,
    strictest,
    worst_write,
)
from tests import print_tables

KEYED = {"clear", "relatch", "set", "pop", "ack", "advance", "claim", "trigger", "modify", "modify_external", "unknown"}
CONSUMING = {"clear", "relatch", "pop", "ack", "advance"}


def test_tables_when_compared_with_the_vocabulary_then_they_are_total() -> None:
    assert set(READ_POLICY) == set(ReadEffect)
    assert set(WRITE_POLICY) == set(WriteEffect)


@pytest.mark.parametrize("effect", list(ReadEffect))
def test_read_effect_when_looked_up_then_key_and_consumption_are_as_the_design_says(effect: ReadEffect) -> None:
    policy = READ_POLICY[effect]
    assert (policy.keyless is When.NO) == (effect.value in KEYED)
    assert policy.consuming == (effect.value in CONSUMING)
    assert policy.closes_as_lost == (effect.value in {"unknown", "modify", "modify_external"})


@pytest.mark.parametrize("effect", [e for e in ReadEffect if e.value in KEYED])
def test_keyed_read_effect_when_looked_up_then_no_retry_and_no_poll(effect: ReadEffect) -> None:
    assert READ_POLICY[effect].retry is When.NO
    assert READ_POLICY[effect].poll is When.NO


def test_write_severities_when_compared_then_each_is_its_own_rank_and_unknown_is_worst() -> None:
    ranks = [p.severity for p in WRITE_POLICY.values()]
    assert len(set(ranks)) == len(ranks)
    assert worst_write(frozenset(WriteEffect)) is WriteEffect.UNKNOWN
    assert worst_write(frozenset({WriteEffect.STORE, WriteEffect.PUSH})) is WriteEffect.PUSH
    assert worst_write(frozenset()) is WriteEffect.UNKNOWN


@pytest.mark.parametrize("effect", list(WriteEffect))
def test_write_effect_when_its_neutral_is_none_then_only_acting_writes_have_it(effect: WriteEffect) -> None:
    acting = {"clear", "set", "write_once", "command", "push", "advance", "unlock", "staged", "modify", "unknown"}
    assert (WRITE_POLICY[effect].neutral is Neutral.NONE) == (effect.value in acting)


def test_undeclared_writes_when_unknown_then_only_a_person_settles_them() -> None:
    people = {e for e, p in WRITE_POLICY.items() if p.reconcile is Reconcile.PERSON}
    assert people == {WriteEffect.MODIFY, WriteEffect.UNKNOWN}


def test_lock_when_written_then_it_always_needs_approval_and_nothing_else_does() -> None:
    assert [e for e, p in WRITE_POLICY.items() if p.always_approval] == [WriteEffect.LOCK]


def test_strictest_when_given_nothing_then_no() -> None:
    assert strictest([]) is When.NO
    assert strictest([When.YES, When.EXCLUSIVE]) is When.EXCLUSIVE


def test_manual_when_compared_with_the_tables_then_every_line_agrees() -> None:
    manual = (Path(__file__).parents[2] / "docs" / "vocabulary.md").read_text()
    rows = [line for line in manual.splitlines() if line.startswith("| `")]
    assert rows == [*print_tables.read_effects(), *print_tables.write_effects()]
