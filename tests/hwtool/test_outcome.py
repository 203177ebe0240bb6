"""The tables of outcome and reconciliation, line by line, and what no observation may ever settle."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, Literal, cast

import pytest
from hypothesis import assume, given, settings
from hypothesis import strategies as st

from hwtool.outcome import (
    NeedsPerson,
    ReadRule,
    Seen,
    SignalRule,
    Target,
    Verdict,
    as_row,
    combine,
    conclude,
    is_plain,
    read_rules_of,
    target_seen,
    targets_of,
    write_seen,
)
from hwtool.reconciliation import settle_read, settle_write
from hwtool.restarts import Restart
from hwtool_contracts.effects import Reconcile

PLAIN = (Reconcile.COMPARE, Reconcile.PAGE)  # an unchanged state shows that nothing happened
ReadKind = Literal["pop", "peek", "acknowledge", "undeclared", "consuming"]
NOW: Mapping[str, int] = {"R": 0x55}
RESTARTS: tuple[Restart, ...] = ("same", "reset", "silent")


def target(
    *,
    register: str = "R",
    observe: str | None = "R",
    wanted: int = 0x55,
    strong: int = 0xFF,
    weak: int = 0,
    toggles: int = 0,
    named: int | None = None,
    reset: int = 0,
    reset_known: int = 0xFF,
    reconcile: Reconcile = Reconcile.COMPARE,
    persistent: bool = False,
    signals: tuple[SignalRule, ...] = (),
) -> Target:
    return Target(
        register=register,
        observe=observe,
        wanted=wanted,
        strong=strong,
        weak=weak,
        toggles=toggles,
        named=strong if named is None else named,
        reset=reset,
        reset_known=reset_known,
        reconcile=reconcile.value,
        persistent=persistent,
        signals=signals,
    )


def signal(
    *,
    name: str = "S",
    mask: int = 0xFF,
    delta: int | None = None,
    equals: int | None = None,
    volatile: bool = False,
) -> SignalRule:
    return SignalRule(name, mask, delta, equals, volatile)


def acting(*signals: SignalRule, reconcile: Reconcile = Reconcile.DECLARED, persistent: bool = False) -> Target:
    """A write that leaves nothing to read back, only declared consequences."""
    return target(
        observe=None,
        wanted=0,
        strong=0,
        reset_known=0,
        reconcile=reconcile,
        persistent=persistent,
        signals=signals,
    )


def short(answer: Verdict | NeedsPerson) -> tuple[str, str]:
    """Verdict and effects, or who must tell."""
    return ("person", "") if isinstance(answer, NeedsPerson) else (answer.verdict, answer.effects)


APPLIED, SATISFIED, NOT_APPLIED = ("applied", "unknown"), ("satisfied", "unknown"), ("not_applied", "none")
SUPERSEDED, LOST, PERSON = ("superseded", "unknown"), ("lost", "applied"), ("person", "")


@pytest.mark.parametrize(
    ("seen", "verifiable", "sole_master", "verdict", "effects"),
    [
        ("applied", True, True, "applied", "applied"),
        ("applied", True, False, "applied", "applied"),
        ("satisfied", True, True, "satisfied", "none"),
        ("satisfied", True, False, "satisfied", "none"),
        ("unchanged", True, True, "not_applied", "none"),
        ("unchanged", True, False, "not_applied", "unknown"),
        ("other", True, True, "not_applied", "applied"),
        ("other", True, False, "not_applied", "applied"),
        ("open", True, True, "applied", "unknown"),
        ("open", False, True, "applied", "unknown"),
        ("open", False, False, "applied", "unknown"),
    ],
)
def test_conclude_when_acknowledged_then_as_the_table_of_outcomes(
    seen: Seen, verifiable: bool, sole_master: bool, verdict: str, effects: str
) -> None:
    found = conclude(seen, verifiable, sole_master)
    assert (found.verdict, found.effects) == (verdict, effects)
    assert found.why


def test_conclude_when_nothing_can_be_observed_then_it_does_not_speak_of_a_window() -> None:
    assert "window" not in conclude("open", False, True).why
    assert "window" in conclude("open", True, True).why


@pytest.mark.parametrize(
    ("targets", "plain"),
    [
        ([], True),
        ([target()], True),
        ([target(persistent=True), target(register="Q", observe=None)], True),
        ([target(signals=(signal(delta=1),))], False),
        ([target(), target(register="Q", signals=(signal(),))], False),
        *(([target(), target(register="Q", reconcile=r)], False) for r in Reconcile if r not in PLAIN),
    ],
)
def test_plain_when_stores_alone_are_written_then_and_only_then(targets: list[Target], plain: bool) -> None:
    assert is_plain(targets) is plain


@pytest.mark.parametrize("sole", [True, False])
@pytest.mark.parametrize("written", [target(), target(signals=(signal(delta=1),)), target(reconcile=Reconcile.PARITY)])
def test_conclude_when_unchanged_then_no_effects_only_of_plain_stores_of_a_sole_master(
    written: Target, sole: bool
) -> None:
    before = {"R": 1, "S": 0}
    seen = write_seen([written], before, before)
    found = conclude(seen, True, sole and is_plain([written]))
    assert (found.verdict, found.effects) == ("not_applied", "none" if sole and written == target() else "unknown")


@pytest.mark.parametrize(
    ("parts", "together"),
    [
        ([], "open"),
        (["satisfied", "satisfied"], "satisfied"),
        (["applied", "satisfied"], "applied"),
        (["unchanged", "satisfied"], "unchanged"),
        (["applied", "unchanged"], "other"),
        (["applied", "open"], "open"),
        (["unchanged", "open"], "missed"),
        (["missed", "applied"], "missed"),
        (["missed", "other"], "other"),
        (["applied", "open", "other"], "other"),
    ],
)
def test_combine_when_observations_differ_then_contradiction_over_doubt_over_success(
    parts: list[Seen], together: Seen
) -> None:
    assert combine(parts) == together
    assert combine(list(reversed(parts))) == together


@pytest.mark.parametrize(
    ("p", "n", "seen"),
    [(0x00, 0x55, "applied"), (0x55, 0x55, "satisfied"), (0x00, 0x00, "unchanged"), (0x00, 0x54, "other")],
)
def test_store_when_read_back_then_p_n_and_v_decide(p: int, n: int, seen: Seen) -> None:
    assert target_seen(target(), {"R": p}, {"R": n}) == seen


@pytest.mark.parametrize("n", [0x00, 0x01, 0x55])
def test_target_when_its_pre_image_is_missing_then_open_or_plainly_not_there(n: int) -> None:
    assert target_seen(target(), {}, {"R": n}) == ("open" if n == target().wanted else "missed")
    flags = target(wanted=0, strong=0, weak=0xFF, reconcile=Reconcile.WERE_SET_NOW_CLEAR)
    assert target_seen(flags, {}, {"R": n}) == "open"
    assert short(settle_write([target()], {}, {"R": n}, "same", True)) == PERSON


def test_target_when_nothing_shows_it_then_open() -> None:
    assert target_seen(target(observe=None), {"R": 0}, NOW) == "open"
    assert target_seen(target(), {"R": 0}, {}) == "open"
    assert target_seen(target(strong=0, wanted=0), {"R": 0}, NOW) == "open"
    assert target_seen(acting(signal()), {}, {"S": 1}) == "open"
    assert target_seen(acting(signal()), {"S": 0}, {}) == "open"


def test_bits_outside_strong_when_they_move_then_they_are_no_evidence() -> None:
    stored = target(wanted=0x05, strong=0x0F)
    assert target_seen(stored, {"R": 0xA0}, {"R": 0x55}) == "applied"
    assert target_seen(stored, {"R": 0xA0}, {"R": 0x50}) == "unchanged"


@pytest.mark.parametrize(
    ("p", "n", "seen"),
    [
        (0b11, 0b00, "applied"),
        (0b01, 0b00, "applied"),
        (0b00, 0b00, "satisfied"),
        (0b11, 0b11, "open"),
        (0b11, 0b01, "open"),
        (0b00, 0b01, "open"),
    ],
)
def test_write_to_clear_when_looked_at_then_clear_proves_and_set_does_not(p: int, n: int, seen: Seen) -> None:
    flags = target(wanted=0, strong=0, weak=0b11, reconcile=Reconcile.WERE_SET_NOW_CLEAR)
    assert target_seen(flags, {"R": 0xF0 | p}, {"R": 0xF0 | n}) == seen


@pytest.mark.parametrize(
    ("rule", "p", "n", "seen"),
    [
        (signal(delta=1), 7, 8, "applied"),
        (signal(delta=1), 255, 0, "applied"),
        (signal(delta=-1), 64, 63, "applied"),
        (signal(delta=-1), 0, 255, "applied"),
        (signal(delta=1), 7, 7, "unchanged"),
        (signal(delta=1, volatile=True), 7, 7, "open"),
        (signal(delta=1), 7, 9, "open"),
        (signal(equals=3), 0, 3, "applied"),
        (signal(equals=3), 3, 3, "open"),
        (signal(equals=3), 0, 0, "open"),
        (signal(equals=3), 0, 2, "open"),
        (signal(), 0, 1, "applied"),
        (signal(), 1, 1, "open"),
        (signal(mask=0x30, delta=1), 0x10, 0x20, "applied"),
        (signal(mask=0x30, delta=1), 0x3F, 0x0F, "applied"),
        (signal(mask=0x30, delta=1), 0x11, 0x12, "unchanged"),
        (signal(mask=0x80, equals=1), 0x00, 0x80, "applied"),
        (signal(mask=0x80), 0x01, 0x02, "open"),
    ],
)
def test_signal_when_compared_then_the_declared_consequence_decides(
    rule: SignalRule, p: int, n: int, seen: Seen
) -> None:
    assert target_seen(acting(rule), {"S": p}, {"S": n}) == seen


@pytest.mark.parametrize(
    ("rule", "p", "n"),
    [
        (signal(delta=1, volatile=True), 7, 8),
        (signal(delta=1, volatile=True), 7, 7),
        (signal(equals=3, volatile=True), 0, 3),
        (signal(volatile=True), 0, 1),
    ],
)
def test_volatile_signal_when_looked_at_later_then_it_proves_nothing(rule: SignalRule, p: int, n: int) -> None:
    assert target_seen(acting(rule), {"S": p}, {"S": n}, later=True) == "open"
    assert write_seen([acting(rule)], {"S": p}, {"S": n}, later=True) == "open"
    assert short(settle_write([acting(rule)], {"S": p}, {"S": n}, "same", True)) == PERSON


@pytest.mark.parametrize(
    ("rule", "p", "n"),
    [
        (signal(delta=1, volatile=True), 7, 8),
        (signal(equals=3, volatile=True), 0, 3),
        (signal(volatile=True), 0, 1),
    ],
)
def test_volatile_signal_when_looked_at_right_after_the_dispatch_then_it_counts(
    rule: SignalRule, p: int, n: int
) -> None:
    assert target_seen(acting(rule), {"S": p}, {"S": n}) == "applied"
    assert write_seen([acting(rule)], {"S": p}, {"S": n}) == "applied"


def test_still_signal_when_looked_at_later_then_as_right_after_the_dispatch() -> None:
    for n, seen in ((8, "applied"), (7, "unchanged"), (9, "open")):
        assert target_seen(acting(signal(delta=1)), {"S": 7}, {"S": n}, later=True) == seen


def test_signals_when_several_are_declared_then_all_must_agree() -> None:
    both = acting(signal(name="A", delta=1), signal(name="B", equals=2))
    assert target_seen(both, {"A": 0, "B": 0}, {"A": 1, "B": 2}) == "applied"
    assert target_seen(both, {"A": 0, "B": 0}, {"A": 1, "B": 0}) == "open"
    assert target_seen(both, {"A": 0, "B": 0}, {"A": 0, "B": 2}) == "other"


def test_write_when_of_several_registers_then_all_are_looked_at() -> None:
    pair = [target(), target(register="Q", observe="Q")]
    assert write_seen(pair, {"R": 0, "Q": 0}, {"R": 0x55, "Q": 0x55}) == "applied"
    assert write_seen(pair, {"R": 0, "Q": 0}, {"R": 0x55, "Q": 0}) == "other"
    assert write_seen(pair, {"R": 0, "Q": 0x55}, {"R": 0, "Q": 0x55}) == "unchanged"


# name, target, p, n, then what E1 = same, reset, silent make of it with a sole master
COMPARE_TABLE: list[tuple[str, Target, int, int, tuple[str, str], tuple[str, str], tuple[str, str]]] = [
    ("n = v, not p; r differs", target(), 0x01, 0x55, APPLIED, SUPERSEDED, APPLIED),
    ("n = v, not p; v = r", target(reset=0x55), 0x01, 0x55, APPLIED, SUPERSEDED, PERSON),
    ("n = v, not p; no r", target(reset_known=0), 0x01, 0x55, APPLIED, SUPERSEDED, PERSON),
    ("n = p, not v; p is not r", target(), 0x01, 0x01, NOT_APPLIED, SUPERSEDED, NOT_APPLIED),
    ("n = p, not v; p = r", target(), 0x00, 0x00, NOT_APPLIED, SUPERSEDED, PERSON),
    ("n = p, not v; no r", target(reset_known=0), 0x01, 0x01, NOT_APPLIED, SUPERSEDED, PERSON),
    ("n = v = p", target(), 0x55, 0x55, SATISFIED, SUPERSEDED, SATISFIED),
    ("n = v = p = r", target(reset=0x55), 0x55, 0x55, SATISFIED, SUPERSEDED, SATISFIED),
    ("n neither", target(), 0x01, 0x02, PERSON, SUPERSEDED, PERSON),
    ("persistent, v = r", target(reset=0x55, persistent=True), 0x01, 0x55, APPLIED, APPLIED, APPLIED),
    ("persistent, p = r", target(persistent=True), 0x00, 0x00, NOT_APPLIED, NOT_APPLIED, NOT_APPLIED),
    ("persistent, neither", target(persistent=True), 0x01, 0x02, PERSON, PERSON, PERSON),
    ("write-only", target(observe=None, strong=0, wanted=0), 0x01, 0x55, PERSON, PERSON, PERSON),
    ("only some bits have an r", target(reset=0x05, reset_known=0x0F), 0x01, 0x55, APPLIED, SUPERSEDED, PERSON),
    ("masked", target(wanted=0xA5, named=0x0F), 0xA0, 0xA5, APPLIED, SUPERSEDED, APPLIED),
    ("masked, unchanged", target(wanted=0xA5, named=0x0F), 0xA0, 0xA0, NOT_APPLIED, SUPERSEDED, NOT_APPLIED),
    ("masked, was so", target(wanted=0xA5, named=0x0F), 0xA5, 0xA5, SATISFIED, SUPERSEDED, SATISFIED),
    ("masked, neighbours changed", target(wanted=0xA5, named=0x0F), 0xA0, 0xB5, PERSON, SUPERSEDED, PERSON),
    ("masked, neighbours changed, named not", target(wanted=0xA5, named=0x0F), 0xA0, 0xB0, PERSON, SUPERSEDED, PERSON),
    (
        "set-like",
        target(wanted=0x03, strong=0x03, reset_known=0, reconcile=Reconcile.COMPARE_STORED),
        0x00,
        0x03,
        APPLIED,
        SUPERSEDED,
        PERSON,
    ),
    (
        "set-like, unchanged",
        target(wanted=0x03, strong=0x03, reset_known=0, reconcile=Reconcile.COMPARE_STORED),
        0x00,
        0x00,
        NOT_APPLIED,
        SUPERSEDED,
        PERSON,
    ),
    ("lock, v is not r", target(reconcile=Reconcile.COMPARE_STORED), 0x00, 0x55, APPLIED, SUPERSEDED, APPLIED),
    (
        "set-like that hardware moves",
        target(strong=0, wanted=0, reconcile=Reconcile.COMPARE_STORED),
        0x00,
        0x03,
        PERSON,
        SUPERSEDED,
        PERSON,
    ),
    (
        "toggle, odd",
        target(wanted=0x01, strong=0x01, toggles=0x01, reset_known=0, reconcile=Reconcile.PARITY),
        0x00,
        0x01,
        APPLIED,
        SUPERSEDED,
        PERSON,
    ),
    (
        "toggle, even",
        target(wanted=0x01, strong=0x01, toggles=0x01, reset_known=0, reconcile=Reconcile.PARITY),
        0x00,
        0x00,
        NOT_APPLIED,
        SUPERSEDED,
        PERSON,
    ),
    (
        "toggle, not readable",
        target(observe=None, wanted=0, strong=0, reset_known=0, reconcile=Reconcile.PARITY),
        0x00,
        0x01,
        PERSON,
        PERSON,
        PERSON,
    ),
    (
        "flag cleared",
        target(wanted=0, strong=0, weak=0x80, reset_known=0, reconcile=Reconcile.WERE_SET_NOW_CLEAR),
        0x80,
        0x00,
        APPLIED,
        SUPERSEDED,
        PERSON,
    ),
    (
        "flag cleared that a reset leaves set",
        target(wanted=0, strong=0, weak=0x80, reset=0x80, reconcile=Reconcile.WERE_SET_NOW_CLEAR),
        0x80,
        0x00,
        APPLIED,
        SUPERSEDED,
        APPLIED,
    ),
    (
        "flag cleared that a reset leaves clear",
        target(wanted=0, strong=0, weak=0x80, reset=0x00, reconcile=Reconcile.WERE_SET_NOW_CLEAR),
        0x80,
        0x00,
        APPLIED,
        SUPERSEDED,
        PERSON,
    ),
    (
        "flag was clear",
        target(wanted=0, strong=0, weak=0x80, reconcile=Reconcile.WERE_SET_NOW_CLEAR),
        0x00,
        0x00,
        SATISFIED,
        SUPERSEDED,
        SATISFIED,
    ),
    (
        "flag still set",
        target(wanted=0, strong=0, weak=0x80, reconcile=Reconcile.WERE_SET_NOW_CLEAR),
        0x80,
        0x80,
        PERSON,
        SUPERSEDED,
        PERSON,
    ),
    ("undeclared", target(reconcile=Reconcile.PERSON), 0x01, 0x55, PERSON, PERSON, PERSON),
    ("undeclared, was so", target(reconcile=Reconcile.PERSON), 0x55, 0x55, PERSON, PERSON, PERSON),
    ("undeclared, persistent", target(reconcile=Reconcile.PERSON, persistent=True), 0x01, 0x55, PERSON, PERSON, PERSON),
]


@pytest.mark.parametrize(
    ("rule", "p", "n", "same", "reset", "silent"),
    [row[1:] for row in COMPARE_TABLE],
    ids=[row[0] for row in COMPARE_TABLE],
)
def test_settle_write_when_e1_is_known_or_silent_then_as_the_table_of_reconciliation(
    rule: Target, p: int, n: int, same: tuple[str, str], reset: tuple[str, str], silent: tuple[str, str]
) -> None:
    answers = {r: short(settle_write([rule], {"R": p}, {"R": n}, r, True)) for r in RESTARTS}
    assert answers == {"same": same, "reset": reset, "silent": silent}


@pytest.mark.parametrize("restart", ["same", "silent"])
@pytest.mark.parametrize(("rule", "p", "n"), [row[1:4] for row in COMPARE_TABLE], ids=[row[0] for row in COMPARE_TABLE])
def test_settle_write_when_others_write_too_then_only_satisfied_settles(
    rule: Target, p: int, n: int, restart: Restart
) -> None:
    with_sole = settle_write([rule], {"R": p}, {"R": n}, restart, True)
    without = settle_write([rule], {"R": p}, {"R": n}, restart, False)
    assert short(without) == (SATISFIED if short(with_sole) == SATISFIED else PERSON)


# push and pulse leave their register alone: only a level or a counter or a status tells
SIGNAL_TABLE: list[tuple[str, SignalRule, int, int, tuple[str, str]]] = [
    ("counter moved by one", signal(delta=1), 4, 5, APPLIED),
    ("counter stood still", signal(delta=1), 4, 4, NOT_APPLIED),
    ("counter moved by two", signal(delta=1), 4, 6, PERSON),
    ("live level stood still", signal(delta=-1, volatile=True), 64, 64, PERSON),
    ("level fell by one", signal(delta=-1), 64, 63, APPLIED),
    ("level rose", signal(delta=-1), 60, 64, PERSON),
    ("live level fell by one", signal(delta=-1, volatile=True), 64, 63, PERSON),
    ("live status came", signal(equals=1, mask=0x01, volatile=True), 0, 1, PERSON),
    ("something live changed", signal(volatile=True), 0, 9, PERSON),
    ("status came", signal(equals=1, mask=0x01), 0, 1, APPLIED),
    ("status was there before", signal(equals=1, mask=0x01), 1, 1, PERSON),
    ("status did not come", signal(equals=1, mask=0x01), 0, 0, PERSON),
    ("something changed", signal(), 0, 9, APPLIED),
    ("nothing changed", signal(), 9, 9, PERSON),
]


@pytest.mark.parametrize(
    ("rule", "p", "n", "same"), [row[1:] for row in SIGNAL_TABLE], ids=[row[0] for row in SIGNAL_TABLE]
)
def test_settle_pulse_or_push_when_a_consequence_is_declared_then_it_decides(
    rule: SignalRule, p: int, n: int, same: tuple[str, str]
) -> None:
    targets, before, now = [acting(rule)], {"S": p}, {"S": n}
    assert short(settle_write(targets, before, now, "same", True)) == same
    assert short(settle_write(targets, before, now, "silent", True)) == PERSON
    assert short(settle_write(targets, before, now, "reset", True)) == PERSON
    assert short(settle_write(targets, before, now, "same", False)) == PERSON


def test_settle_pulse_when_no_consequence_is_declared_then_a_person() -> None:
    assert short(settle_write([acting()], {}, {}, "same", True)) == PERSON


def test_settle_write_when_a_register_has_signals_then_silence_is_not_survived() -> None:
    both = target(reconcile=Reconcile.DECLARED, signals=(signal(delta=1),))
    before, now = {"R": 1, "S": 0}, {"R": 0x55, "S": 1}
    assert short(settle_write([both], before, now, "same", True)) == APPLIED
    assert short(settle_write([both], before, now, "silent", True)) == PERSON


def test_settle_write_when_persistent_with_signals_then_only_an_undisturbed_device_settles_it() -> None:
    both = target(persistent=True, signals=(signal(delta=1),))
    for n, s, settled in ((0x55, 1, APPLIED), (0x01, 0, NOT_APPLIED)):
        before, now = {"R": 1, "S": 0}, {"R": n, "S": s}
        answers = [short(settle_write([both], before, now, r, True)) for r in RESTARTS]
        assert answers == [settled, PERSON, PERSON]
    pulse = acting(signal(delta=1), persistent=True)
    assert [short(settle_write([pulse], {"S": 0}, {"S": 1}, r, True)) for r in RESTARTS] == [APPLIED, PERSON, PERSON]


@pytest.mark.parametrize("now", [None, {"R": 0x55, "Q": 0x55}, {"R": 0, "Q": 0x55}, {"R": 0, "Q": 0}])
@pytest.mark.parametrize("sole", [True, False])
def test_settle_group_when_only_a_part_outlasts_a_reset_then_a_person(now: dict[str, int] | None, sole: bool) -> None:
    kept, gone = target(register="Q", observe="Q", persistent=True), target()
    for pair in ([kept, gone], [gone, kept]):
        answer = settle_write(pair, {"R": 0, "Q": 0}, now, "reset", sole)
        assert isinstance(answer, NeedsPerson)
        assert "only a part" in answer.why


def test_settle_group_when_all_of_it_is_of_one_kind_then_a_reset_is_settled() -> None:
    before, now = {"R": 0, "Q": 0}, {"R": 0x55, "Q": 0x55}
    for persistent, verdict in ((False, SUPERSEDED), (True, APPLIED)):
        pair = [target(persistent=persistent), target(register="Q", observe="Q", persistent=persistent)]
        assert short(settle_write(pair, before, now, "reset", True)) == verdict


def test_settle_write_when_nothing_could_be_read_then_only_what_needs_no_reading() -> None:
    assert short(settle_write([target()], {"R": 1}, None, "same", True)) == PERSON
    assert short(settle_write([target()], {"R": 1}, None, "silent", True)) == PERSON
    assert short(settle_write([target()], {"R": 1}, None, "reset", False)) == SUPERSEDED
    assert short(settle_write([target(persistent=True)], {"R": 1}, None, "reset", True)) == PERSON
    assert short(settle_write([target(observe=None)], {}, None, "reset", True)) == PERSON


def test_settle_group_when_one_register_needs_a_person_then_the_whole_does() -> None:
    plain, undeclared = target(), target(register="Q", observe="Q", reconcile=Reconcile.PERSON)
    before, now = {"R": 0, "Q": 0}, {"R": 0x55, "Q": 0x55}
    assert short(settle_write([plain, undeclared], before, now, "same", True)) == PERSON
    half = {"R": 0x55, "Q": 0}
    other = target(register="Q", observe="Q")
    assert short(settle_write([plain, other], before, now, "same", True)) == APPLIED
    assert short(settle_write([plain, other], before, half, "same", True)) == PERSON
    unreset = target(register="Q", observe="Q", reset_known=0)
    assert short(settle_write([plain, unreset], before, now, "silent", True)) == PERSON


SETTLES_BY_RULE = st.sampled_from([r for r in Reconcile if r is not Reconcile.PERSON])
BYTE = st.integers(0, 255)


@st.composite
def byte_targets(draw: st.DrawFn, name: str, reconcile: st.SearchStrategy[Reconcile]) -> Target:
    strong = draw(BYTE)
    return target(
        register=name,
        observe=name,
        wanted=draw(BYTE) & strong,
        strong=strong,
        weak=draw(BYTE) & ~strong,
        named=draw(BYTE) & strong,
        reset=draw(BYTE),
        reset_known=draw(BYTE),
        reconcile=draw(reconcile),
        persistent=draw(st.booleans()),
        signals=tuple(
            draw(
                st.lists(
                    st.builds(
                        SignalRule,
                        name=st.just("S"),
                        mask=st.sampled_from([0x01, 0x30, 0xFF]),
                        delta=st.none() | st.integers(-2, 2),
                        equals=st.none() | st.integers(0, 3),
                        volatile=st.booleans(),
                    ),
                    max_size=2,
                )
            )
        ),
    )


ANY_TARGETS = st.tuples(
    byte_targets("A", st.sampled_from(list(Reconcile))), byte_targets("B", st.sampled_from(list(Reconcile)))
)
OBSERVED = st.fixed_dictionaries({"A": BYTE, "B": BYTE, "S": BYTE})


@settings(deadline=None)
@given(ANY_TARGETS, OBSERVED, OBSERVED, st.sampled_from(RESTARTS))
def test_settle_write_when_there_are_other_masters_then_never_applied_or_not_applied(
    targets: tuple[Target, Target], before: dict[str, int], now: dict[str, int], restart: Restart
) -> None:
    answer = settle_write(targets, before, now, restart, False)
    if isinstance(answer, Verdict):
        assert answer.verdict in ({"satisfied", "superseded"} if restart == "reset" else {"satisfied"})
        assert answer.effects == "unknown"


@settings(deadline=None)
@given(ANY_TARGETS, OBSERVED, OBSERVED, st.sampled_from(RESTARTS), st.booleans())
def test_settle_write_when_a_strong_bit_is_not_as_wanted_then_never_applied_or_satisfied(
    targets: tuple[Target, Target], before: dict[str, int], now: dict[str, int], restart: Restart, sole: bool
) -> None:
    assume(any((now[t.register] ^ t.wanted) & t.strong for t in targets))
    assert short(settle_write(targets, before, now, restart, sole))[0] not in ("applied", "satisfied")


@settings(deadline=None)
@given(ANY_TARGETS, OBSERVED, st.sampled_from(RESTARTS), st.booleans())
def test_settle_write_when_now_is_before_then_never_applied(
    targets: tuple[Target, Target], before: dict[str, int], restart: Restart, sole: bool
) -> None:
    # a signal of delta 0 would name no change; a contract has none
    assume(all(s.delta != 0 for t in targets for s in t.signals))
    assert short(settle_write(targets, before, dict(before), restart, sole))[0] != "applied"


@settings(deadline=None)
@given(ANY_TARGETS, OBSERVED, OBSERVED | st.none(), st.sampled_from(RESTARTS), st.booleans())
def test_settle_write_when_anything_is_undeclared_then_a_person(
    targets: tuple[Target, Target], before: dict[str, int], now: dict[str, int] | None, restart: Restart, sole: bool
) -> None:
    undeclared = target(register="C", observe=None, strong=0, wanted=0, reconcile=Reconcile.PERSON)
    assert isinstance(settle_write([*targets, undeclared], before, now, restart, sole), NeedsPerson)


@settings(deadline=None)
@given(byte_targets("A", SETTLES_BY_RULE), OBSERVED, OBSERVED)
def test_settle_write_when_silent_then_no_more_is_settled_than_when_the_device_surely_ran_on(
    rule: Target, before: dict[str, int], now: dict[str, int]
) -> None:
    silent = settle_write([rule], before, now, "silent", True)
    if isinstance(silent, Verdict):
        assert silent == settle_write([rule], before, now, "same", True)


def pop(level: str | None = "L", count: int = 1, mask: int = 0xFF) -> ReadRule:
    return ReadRule("R", "pop", level=level, level_mask=0 if level is None else mask, count=count)


def peek(name: str | None = "P", mask: int = 0xFF) -> ReadRule:
    return ReadRule("R", "peek", peek=name, peek_mask=0 if name is None else mask)


def acknowledge(*marks: tuple[str, int]) -> ReadRule:
    return ReadRule("R", "acknowledge", acknowledges=marks or (("F", 0x0F),))


# name, rule, p, n, then what E1 = same and silent make of it; reset always needs a person
READ_TABLE: list[tuple[str, ReadRule, dict[str, int], dict[str, int], tuple[str, str], tuple[str, str]]] = [
    ("pop, level stands", pop(), {"L": 5}, {"L": 5}, NOT_APPLIED, NOT_APPLIED),
    ("pop, one taken", pop(), {"L": 5}, {"L": 4}, LOST, LOST),
    ("pop, one taken of one", pop(), {"L": 1}, {"L": 0}, LOST, PERSON),
    ("pop of four, all taken", pop(count=4), {"L": 9}, {"L": 5}, LOST, LOST),
    ("pop of four, some taken", pop(count=4), {"L": 9}, {"L": 7}, LOST, LOST),
    ("pop of four, to empty", pop(count=4), {"L": 4}, {"L": 0}, LOST, PERSON),
    ("pop, more gone than asked", pop(), {"L": 5}, {"L": 3}, PERSON, PERSON),
    ("pop, level rose", pop(), {"L": 5}, {"L": 6}, PERSON, PERSON),
    ("pop, no level or a live one", pop(None), {}, {}, PERSON, PERSON),
    ("pop, level is a field that stands", pop(mask=0x70), {"L": 0x5F}, {"L": 0x50}, NOT_APPLIED, NOT_APPLIED),
    ("pop, level is a field that fell by one", pop(mask=0x70), {"L": 0x50}, {"L": 0xCF}, LOST, LOST),
    ("pop, level is a field that fell to empty", pop(mask=0x70), {"L": 0x1F}, {"L": 0x0F}, LOST, PERSON),
    ("pop, level is a field that fell by two", pop(mask=0x70), {"L": 0x50}, {"L": 0x30}, PERSON, PERSON),
    ("peek, still there", peek(), {"P": 3}, {"P": 3}, NOT_APPLIED, NOT_APPLIED),
    ("peek, gone", peek(), {"P": 3}, {"P": 0}, APPLIED, PERSON),
    ("peek, gone and new events", peek(), {"P": 3}, {"P": 4}, APPLIED, PERSON),
    ("peek, partly gone", peek(), {"P": 3}, {"P": 1}, PERSON, PERSON),
    ("peek, there was nothing", peek(), {"P": 0}, {"P": 0}, PERSON, PERSON),
    ("peek, not declared", peek(None), {}, {}, PERSON, PERSON),
    ("peek is a field, still there", peek(mask=0x0F), {"P": 0xA3}, {"P": 0x53}, NOT_APPLIED, NOT_APPLIED),
    ("peek is a field, gone while the rest stands", peek(mask=0x0F), {"P": 0xA3}, {"P": 0xA0}, APPLIED, PERSON),
    ("peek is a field, only the rest was set", peek(mask=0x0F), {"P": 0xA0}, {"P": 0xA0}, PERSON, PERSON),
    ("ack, still set", acknowledge(), {"F": 0x04}, {"F": 0x04}, NOT_APPLIED, NOT_APPLIED),
    ("ack, still set and more", acknowledge(), {"F": 0x04}, {"F": 0x0C}, NOT_APPLIED, NOT_APPLIED),
    ("ack, not set now", acknowledge(), {"F": 0x04}, {"F": 0x00}, PERSON, PERSON),
    ("ack, never set", acknowledge(), {"F": 0x00}, {"F": 0x00}, PERSON, PERSON),
    ("ack, other bits still set", acknowledge(), {"F": 0xF0}, {"F": 0xF0}, PERSON, PERSON),
    (
        "ack, one of two still set",
        acknowledge(("F", 0x0F), ("G", 0xFF)),
        {"F": 0x01, "G": 0x80},
        {"F": 0x00, "G": 0x80},
        NOT_APPLIED,
        NOT_APPLIED,
    ),
    ("consuming", ReadRule("R", "consuming"), {}, {}, PERSON, PERSON),
]


@pytest.mark.parametrize(
    ("rule", "p", "n", "same", "silent"), [row[1:] for row in READ_TABLE], ids=[row[0] for row in READ_TABLE]
)
def test_settle_read_when_a_rule_is_declared_then_as_the_table_of_reconciliation(
    rule: ReadRule,
    p: dict[str, int],
    n: dict[str, int],
    same: tuple[str, str],
    silent: tuple[str, str],
) -> None:
    assert short(settle_read([rule], p, n, "same", True)) == same
    assert short(settle_read([rule], p, n, "silent", True)) == silent
    assert short(settle_read([rule], p, n, "reset", True)) == PERSON
    assert short(settle_read([rule], p, None, "same", True)) == PERSON


@pytest.mark.parametrize("restart", RESTARTS)
@pytest.mark.parametrize(("rule", "p", "n"), [row[1:4] for row in READ_TABLE], ids=[row[0] for row in READ_TABLE])
def test_settle_read_when_others_may_have_taken_it_then_a_person(
    rule: ReadRule, p: dict[str, int], n: dict[str, int], restart: Restart
) -> None:
    assert short(settle_read([rule], p, n, restart, False)) == PERSON
    assert short(settle_read([rule], p, None, restart, False)) == PERSON


@pytest.mark.parametrize("sole", [True, False])
@pytest.mark.parametrize("restart", RESTARTS)
@pytest.mark.parametrize("now", [None, {"L": 5}])
def test_settle_read_when_undeclared_then_lost_at_once(
    restart: Restart, now: dict[str, int] | None, sole: bool
) -> None:
    undeclared = ReadRule("R", "undeclared")
    for rules in ([undeclared], [pop(), undeclared], [undeclared, undeclared]):
        assert short(settle_read(rules, {"L": 5}, now, restart, sole)) == ("lost", "unknown")


def test_settle_read_when_several_registers_share_the_key_then_a_person() -> None:
    levels = {"L": 5, "M": 5}
    assert short(settle_read([pop(), pop("M")], levels, levels, "same", True)) == PERSON


@settings(deadline=None)
@given(st.integers(0, 64), st.integers(0, 64), st.integers(1, 64), st.sampled_from(RESTARTS), st.booleans())
def test_settle_pop_when_settled_then_never_more_lost_than_asked_for(
    p: int, n: int, count: int, restart: Restart, sole: bool
) -> None:
    match short(settle_read([pop(count=count)], {"L": p}, {"L": n}, restart, sole)):
        case ("not_applied", "none"):
            assert p == n
        case ("lost", "applied"):
            assert 0 < p - n <= count
        case answer:
            assert answer == PERSON


@settings(deadline=None)
@given(ANY_TARGETS)
def test_write_rules_when_put_into_a_row_then_they_come_back(targets: tuple[Target, Target]) -> None:
    row = as_row(targets)
    assert all(isinstance(part, dict) for part in row)
    assert targets_of(row) == list(targets)


READ_KINDS_DRAWN = st.sampled_from(["pop", "peek", "acknowledge", "undeclared", "consuming"])


@settings(deadline=None)
@given(
    st.lists(
        st.builds(
            ReadRule,
            register=st.text(max_size=8),
            kind=READ_KINDS_DRAWN.map(lambda kind: cast(ReadKind, kind)),
            level=st.none() | st.text(max_size=8),
            level_mask=BYTE,
            peek=st.none() | st.text(max_size=8),
            peek_mask=BYTE,
            acknowledges=st.lists(st.tuples(st.text(max_size=8), BYTE), max_size=3).map(tuple),
            count=st.integers(1, 4096),
        ),
        max_size=3,
    )
)
def test_read_rules_when_put_into_a_row_then_they_come_back(rules: list[ReadRule]) -> None:
    row: list[dict[str, Any]] = as_row(rules)
    assert read_rules_of(row) == rules


# --- what a single line of a rule decides -----------------------------------------------------------------------------


def test_settle_write_when_it_restarted_and_one_of_its_kinds_may_have_acted_before_then_a_person() -> None:
    stored, pulsed = target(), target(reconcile=Reconcile.DECLARED)
    assert short(settle_write([stored], {"R": 1}, {"R": 0}, "reset", True)) == SUPERSEDED
    assert short(settle_write([stored, pulsed], {"R": 1}, {"R": 0}, "reset", True)) == PERSON


BURST = ReadRule("FIFO", "pop", level="L", level_mask=0xFF, level_reset=0, count=8, chunk=2)


@pytest.mark.parametrize(
    ("kept", "left", "wanted"),
    [
        (0, 10, "not_applied"),
        (2, 8, "partial"),
        (2, 6, "lost"),  # the chunk after what is on record was taken, and its values are gone
        (2, 10, None),  # two are on record, and the level says that none were taken: it does not tell
        (2, 4, None),  # more than one chunk can take: somebody else has taken too
        (0, 11, None),
    ],
)
def test_settle_pop_when_some_of_a_burst_is_on_record_then_the_level_must_fit_that(
    kept: int, left: int, wanted: str | None
) -> None:
    told = settle_read([BURST], {"L": 10}, {"L": left}, "same", True, kept)
    assert (told.verdict if isinstance(told, Verdict) else None) == wanted


CLAIM = ReadRule("LOCK", "claim", state="S", state_mask=1, state_taken=1)


@pytest.mark.parametrize(
    ("was", "taken", "same", "silent"),
    [
        (0, 1, "applied", "applied"),
        (1, 1, "not_applied", None),  # a restart would have freed it, and the claim may have come after
        (1, 0, None, None),
        (0, 0, "not_applied", None),
    ],
)
def test_settle_claim_when_nobody_knows_of_a_restart_then_only_what_a_restart_cannot_undo(
    was: int, taken: int, same: str | None, silent: str | None
) -> None:
    for restart, wanted in (("same", same), ("silent", silent)):
        told = settle_read([CLAIM], {"S": was}, {"S": taken}, restart, True)  # type: ignore[arg-type]
        assert (told.verdict if isinstance(told, Verdict) else None) == wanted
