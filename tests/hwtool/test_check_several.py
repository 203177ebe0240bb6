"""`hwtool check --board` of what is no single register: groups, memories, sequences, bursts; each of it can fail."""

from __future__ import annotations

from pathlib import Path

import pytest

from hwtool.checks.board import check_board
from hwtool.checks.findings import Finding, Outcome, Report
from hwtool.config import Board
from tests.hwtool.conftest import effect, reg, toy_board
from tests.hwtool.sabotage import (
    Sabotage,
    backwards,
    believes,
    bridges,
    forgets,
    forgets_the_last_step,
    holds_nothing,
    knows_no_pages,
    loses_its_store,
    never_relocks,
    one_by_one,
    reads_anything,
    repeats,
    saying,
    talks,
    tells_something_else,
    unlocks_everything,
    waves_through,
    writes_one_byte_more,
    writes_zeros_and_believes,
)

SAID = "provenance = 'generated', source = 'rtl'"
LATCH = "read = { effects = ['latch'], affects = ['HALF'], provenance = 'generated' }"
PARTS = (
    reg("BELOW", 0),
    reg("FIFO", 1, f"read = {{ effects = ['pop'], max_burst = 4, {SAID} }}", "ro"),
    reg("ABOVE", 2),
    reg("FROZEN", 3, LATCH, "ro"),
    reg("HALF", 4, access="ro"),
    "[groups.TIME]\nmembers = ['FROZEN', 'HALF']\ntransfer = 'each'\n",
    reg("LOW", 5),
    reg("HIGH", 6),
    "[groups.SPAN]\nmembers = ['LOW', 'HIGH']\ntransfer = 'one'\n",
    reg("KEYR", 7, f"write = {{ effect = 'unlock', affects = ['CR'], verify = 'none', {SAID} }}", "wo"),
    reg("CR", 8, f"write = {{ effect = 'store', unlock = 'SET_CR', {SAID} }}"),
    reg("LOCK", 9),
    reg("ASKED", 10, f"write = {{ effect = 'store', approval = 'required', {SAID} }}"),
    reg("FIRST", 11, effect("clear"), "ro"),
    reg("SECOND", 12, effect("clear"), "ro"),
    "[groups.EVENTS]\nmembers = ['FIRST', 'SECOND']\ntransfer = 'each'\n",
    "[memories.EE]\noffset = 0x80\nsize_bytes = 16\npage_bytes = 4\nwrite_cycle_ms = 2\naccess = 'rw'\n"
    f"read = {{ effects = ['none'], {SAID} }}\nwrite = {{ effect = 'store', {SAID} }}\n",
    "[sequences.SET_CR]\nparams = ['value']\nrelock = [{ register = 'LOCK', value = 1 }]\nsteps = [\n"
    "    { do = 'write', register = 'KEYR', value = 0x45 },\n"
    "    { do = 'write', register = 'CR', value = '$value' },\n"
    "    { do = 'write', register = 'LOCK', value = 1 },\n]\n",
    "[sequences.ASKING]\nsteps = [\n"
    "    { do = 'write', register = 'ASKED', value = 3 },\n    { do = 'read_effectful', register = 'FIFO' },\n]\n",
    "[sequences.WAITING]\nsteps = [\n"
    "    { do = 'wait_until', register = 'HALF', equals = 1, timeout_ms = 5 },\n"
    "    { do = 'wait_until', register = 'HALF', equals = 2, timeout_ms = 5 },\n"
    "    { do = 'write', register = 'LOW', value = 3 },\n]\n",
)
SEVERAL = {
    "toy.FIFO": {"burst_once", "not_merged"},
    "toy.TIME": {"clean", "in_order"},
    "toy.SPAN": {"clean", "in_order", "done", "once", "other_request", "loss_told", "unknown_held", "settled_truly"},
    "toy.EVENTS": {"refused_as_clean", "once", "loss_told"},
    "toy.EE": {"clean", "done", "once", "other_request", "loss_told", "unknown_held", "settled_truly", "stuck_seen"}
    | {"neighbours_kept", "pages_kept", "approval_asked", "value_kept"},
    "toy.SET_CR": {
        "done",
        "once",
        "other_request",
        "loss_told",
        "unknown_held",
        "locked_again",
        "relocked",
        "value_kept",
    },
    "toy.ASKING": {"done", "once", "other_request", "loss_told", "unknown_held", "approval_asked", "value_kept"},
    "toy.CR": {"stays_locked"},
}


@pytest.fixture
def toys(tmp_path: Path) -> Board:
    return toy_board(tmp_path, *PARTS, mode="separate-user")


def of_outcome(report: Report, outcome: Outcome) -> set[tuple[str, str]]:
    return {(f.place, f.guarantee) for f in report.findings if f.outcome is outcome}


def outcome(report: Report, place: str, guarantee: str) -> Finding:
    (found,) = [f for f in report.findings if (f.place, f.guarantee) == (place, guarantee)]
    return found


def test_board_when_nothing_is_wrong_then_groups_memories_and_sequences_keep_what_they_must(toys: Board) -> None:
    report = check_board(toys)
    assert of_outcome(report, Outcome.FAILED) == set()
    held = of_outcome(report, Outcome.HELD)
    assert {(place, name) for place, names in SEVERAL.items() for name in names} - held == set()
    assert outcome(report, "toy.FIFO", "burst_once").told == "2 taken, replayed twice"
    assert outcome(report, "toy.SPAN", "in_order").told == "1 transfer"
    assert outcome(report, "toy.EE", "pages_kept").told == "2 executed for two pages"
    assert outcome(report, "toy.SET_CR", "once").told == "3 executed, replayed twice"
    assert outcome(report, "toy.SET_CR", "loss_told").told == "1 executed, told outcome_unknown"
    assert outcome(report, "toy.SET_CR", "relocked").told == "LOCK written once at the next start"


def test_sequence_when_its_chip_does_not_bring_what_it_waits_for_then_not_applicable(toys: Board) -> None:
    found = outcome(check_board(toys), "toy.WAITING", "done")
    assert (found.outcome, "it does not come to its end here" in found.told) == (Outcome.NOT_APPLICABLE, True)


POLICY = "[[policy]]\nwho = '*'\nregister = '*'\neffectful_read = 'approval'\nwrite = 'approval'\n"


def test_effects_when_policy_wants_an_approval_then_without_one_an_agent_gets_none(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    secret = reg("SECRET", 0, f"sensitive = true\nwidth_bits = 16\n{effect('clear')}", "ro")
    board = toy_board(tmp_path, secret, reg("A", 2), mode="separate-user", device=POLICY)
    report = check_board(board)
    asked = {("toy.SECRET", "approval_asked"), ("toy.A", "approval_asked")}
    assert of_outcome(report, Outcome.FAILED) == set()
    assert asked | {("toy.SECRET", "secret_kept")} <= of_outcome(report, Outcome.HELD)
    waves_through(monkeypatch)
    talks(monkeypatch)
    assert of_outcome(check_board(board), Outcome.FAILED) == asked | {("toy.SECRET", "secret_kept")}


SABOTAGES: dict[str, tuple[Sabotage, set[tuple[str, str]]]] = {
    "a read goes over what stands in between": (bridges, {("toy.FIFO", "not_merged")}),
    "no read is refused as a clean one": (
        reads_anything,
        {("toy.EVENTS", "refused_as_clean"), ("toy.FIRST", "refused_as_clean")},
    ),
    "keys are not looked up": (
        forgets,
        {
            ("toy.FIFO", "burst_once"),
            ("toy.SPAN", "once"),
            ("toy.SPAN", "other_request"),
            ("toy.EVENTS", "once"),
            ("toy.EE", "once"),
            ("toy.EE", "other_request"),
            ("toy.SET_CR", "once"),
            ("toy.SET_CR", "other_request"),
        },
    ),
    "a request whose reply is lost is sent again": (
        repeats,
        {(f"toy.{name}", "loss_told") for name in ("SPAN", "EVENTS", "EE", "SET_CR", "ASKING")},
    ),
    "a device in doubt takes more": (
        holds_nothing,
        {(f"toy.{name}", "unknown_held") for name in ("SPAN", "EE", "SET_CR", "ASKING")},
    ),
    "a rule says that nothing was done": (
        saying("not_applied", "none"),
        {("toy.SPAN", "settled_truly"), ("toy.EE", "settled_truly")},
    ),
    "the store is lost": (
        loses_its_store,
        {(f"toy.{name}", "value_kept") for name in ("SPAN", "EVENTS", "EE", "SET_CR", "ASKING")},
    ),
    "a clean read tells something else": (tells_something_else, {("toy.TIME", "clean"), ("toy.SPAN", "clean")}),
    "a group that is one transfer is read by several": (one_by_one, {("toy.SPAN", "in_order")}),
    "a group is read backwards": (backwards, {("toy.TIME", "in_order")}),
    "something else is written, and believed": (
        writes_zeros_and_believes,
        {("toy.SPAN", "done"), ("toy.EE", "done"), ("toy.SET_CR", "locked_again")},
    ),
    "a write is believed": (believes, {("toy.EE", "stuck_seen")}),
    "pages are not known": (knows_no_pages, {("toy.EE", "pages_kept")}),
    "a write takes the next byte along": (writes_one_byte_more, {("toy.EE", "neighbours_kept")}),
    "nobody is asked": (waves_through, {("toy.EE", "approval_asked"), ("toy.ASKING", "approval_asked")}),
    "what is locked is written by itself": (unlocks_everything, {("toy.CR", "stays_locked")}),
    "a sequence forgets its last step": (
        forgets_the_last_step,
        {("toy.SET_CR", "done"), ("toy.SET_CR", "locked_again"), ("toy.ASKING", "done")},
    ),
    "nothing is locked again at a start": (never_relocks, {("toy.SET_CR", "relocked")}),
}


@pytest.mark.parametrize("what", SABOTAGES)
def test_guarantee_when_the_daemon_does_not_keep_it_then_it_fails_there(
    toys: Board, monkeypatch: pytest.MonkeyPatch, what: str
) -> None:
    sabotage, wanted = SABOTAGES[what]
    sabotage(monkeypatch)
    report = check_board(toys)
    assert wanted - of_outcome(report, Outcome.FAILED) == set()
    assert not report.passed
    for place, guarantee in wanted:
        assert "Error" not in outcome(report, place, guarantee).told  # it is the guarantee that fails, not the sabotage
