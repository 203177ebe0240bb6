"""`hwtool check --board`: each guarantee at each register of a board, and each of them can fail."""

from __future__ import annotations

import json
import re
from pathlib import Path
from xml.etree import ElementTree

import pytest

from hwtool.checks import shown
from hwtool.checks.board import check_board
from hwtool.checks.findings import GUARANTEES, Finding, Outcome, Report
from hwtool.checks.outcomes import untrue
from hwtool.checks.page import page
from hwtool.checks.simulated import OwnTime, simulated
from hwtool.config import Board, parse_board
from hwtool.devices import Device
from tests.hwtool.conftest import MODBUS, effect, reg, toy_board
from tests.hwtool.sabotage import (
    Sabotage,
    believes,
    bridges,
    forgets,
    holds_nothing,
    loses_its_store,
    merges_wrongly,
    remembers_reads,
    repeats,
    saying,
    talks,
    tells_something_else,
    tramples,
    waves_through,
    writes_zeros_and_believes,
)
from tests.surface.test_proofs import typed

STORE = "effect = 'store', provenance = 'generated'"
CLEARED = "effect = 'one_to_clear', provenance = 'generated'"
PARTS = (
    reg("LEVEL", 0, "fields.LOW = { bits = '3:0' }\nfields.HIGH = { bits = '7:4' }"),
    reg("FIFO", 1, effect("pop"), "ro"),
    reg("FLAGS", 2, "write = { effect = 'one_to_clear', provenance = 'generated' }"),
    reg("STEP", 3, "write = { effect = 'command', provenance = 'generated', verify = 'none' }", "wo"),
    reg("KEY", 4, "sensitive = true\nwidth_bits = 32"),
    reg("ASKED", 8, f"write = {{ {STORE}, approval = 'required' }}"),
    reg("ODD", 9, effect("unknown"), "ro"),
    reg("MIXED", 10, f"fields.MODE = {{ bits = 0 }}\nfields.DONE = {{ bits = 7, write = {{ {CLEARED} }} }}"),
)

OF_SEVERAL = {"burst_once", "in_order", "pages_kept", "stays_locked", "locked_again", "relocked"}  # test_check_several


@pytest.fixture
def toys(tmp_path: Path) -> Board:
    return toy_board(tmp_path, *PARTS, mode="separate-user")


def failed(report: Report) -> set[tuple[str, str]]:
    return {(f.place, f.guarantee) for f in report.findings if f.outcome is Outcome.FAILED}


def outcome(report: Report, place: str, guarantee: str) -> Finding:
    (found,) = [f for f in report.findings if (f.place, f.guarantee) == (place, guarantee)]
    return found


def test_flags_when_checked_then_they_are_up_before(toys: Board) -> None:
    report = check_board(toys)
    assert "applied" in outcome(report, "toy.FLAGS", "done").told
    assert outcome(report, "toy.FLAGS", "unknown_held").told == "held, 0 executed"
    assert "1 of them with something in them" in outcome(report, "toy.MIXED.MODE", "neighbours_kept").told


def test_board_when_nothing_is_wrong_then_each_guarantee_held_somewhere_and_none_failed(toys: Board) -> None:
    report = check_board(toys)
    assert (report.passed, failed(report)) == (True, set())
    held = {f.guarantee for f in report.findings if f.outcome is Outcome.HELD}
    assert held == set(GUARANTEES) - {"loads_well", "scenario"} - OF_SEVERAL
    assert outcome(report, "toy.FIFO", "once").told == "1 executed, replayed twice"
    assert outcome(report, "toy.KEY", "secret_kept").outcome is Outcome.HELD
    assert "by a person" in outcome(report, "toy.STEP", "settled_truly").told
    assert "not_applied" in outcome(report, "toy.LEVEL.LOW", "settled_truly").told


def test_guarantee_when_it_cannot_be_checked_then_it_is_no_pass_and_says_why(toys: Board) -> None:
    found = outcome(check_board(toys), "toy.STEP", "stuck_seen")
    assert (found.outcome, found.told) == (Outcome.NOT_APPLICABLE, "no plain store")


def test_register_when_its_group_is_clean_then_a_dump_may_have_it(tmp_path: Path) -> None:
    latched = (
        reg("HIGH", 0, "read = { effects = ['latch'], affects = ['LOW'], provenance = 'generated' }", "ro"),
        reg("LOW", 1, access="ro"),
        "[groups.BOTH]\nmembers = ['HIGH', 'LOW']\ntransfer = 'each'\n",
    )
    found = outcome(check_board(toy_board(tmp_path, *latched)), "toy.HIGH", "not_dumped")
    assert (found.outcome, "a member of BOTH" in found.told) == (Outcome.NOT_APPLICABLE, True)


def test_board_when_policy_lets_nobody_write_then_not_applicable_with_its_reason(tmp_path: Path) -> None:
    board = toy_board(tmp_path, *PARTS, mode="separate-user", device="[[policy]]\nwho = '*'\nwrite = 'no'\n")
    report = check_board(board)
    found = outcome(report, "toy.LEVEL.LOW", "done")
    assert (found.outcome, found.told[:22]) == (Outcome.NOT_APPLICABLE, "not sent, whoever asks")
    assert report.passed  # it can be read


def test_board_when_policy_forbids_everything_then_it_does_not_pass(tmp_path: Path) -> None:
    nothing = "[[policy]]\nwho = '*'\nread = 'no'\neffectful_read = 'no'\nwrite = 'no'\n"
    report = check_board(toy_board(tmp_path, *PARTS, mode="separate-user", device=nothing))
    assert (report.passed, failed(report)) == (False, set())


SABOTAGES: dict[str, tuple[Sabotage, set[tuple[str, str]]]] = {
    "a request whose reply is lost is sent again": (repeats, {("toy.STEP", "loss_told"), ("toy.FIFO", "loss_told")}),
    "keys are not looked up": (forgets, {("toy.STEP", "once"), ("toy.STEP", "other_request")}),
    **{
        f"a rule says {verdict}, effects {effects}": (
            saying(verdict, effects),
            {("toy.LEVEL.LOW", "settled_truly"), ("toy.STEP", "settled_truly"), ("toy.FIFO", "settled_truly")},
        )
        for verdict, effects in (
            ("not_applied", "none"),
            ("not_applied", "unknown"),
            ("applied", "unknown"),
            ("superseded", "unknown"),
        )
    },
    "a rule says that it was so already": (saying("satisfied", "none"), {("toy.FIFO", "settled_truly")}),
    "a rule says that a part of it was done": (saying("partial", "unknown"), {("toy.STEP", "settled_truly")}),
    "flags beside a field are written back": (merges_wrongly, {("toy.MIXED.MODE", "neighbours_kept")}),
    "reads are answered from memory": (remembers_reads, {("toy.LEVEL", "clean")}),
    "a write is believed": (believes, {("toy.LEVEL.LOW", "stuck_seen")}),
    "something else is written, and believed": (
        writes_zeros_and_believes,
        {("toy.LEVEL.LOW", "done"), ("toy.FLAGS", "done")},
    ),
    "a clean read tells something else": (tells_something_else, {("toy.LEVEL", "clean")}),
    "an update writes zeros beside it": (tramples, {("toy.LEVEL.LOW", "neighbours_kept")}),
    "nobody is asked": (waves_through, {("toy.ASKED", "approval_asked")}),
    "a secret is no secret": (talks, {("toy.KEY", "secret_kept")}),
    "a device in doubt takes more": (holds_nothing, {("toy.STEP", "unknown_held")}),
    "a read goes over what stands in between": (bridges, {("toy.FIFO", "not_merged")}),
    "the store is lost": (loses_its_store, {("toy.FIFO", "value_kept"), ("toy.STEP", "value_kept")}),
}


@pytest.mark.parametrize("what", SABOTAGES)
def test_guarantee_when_the_daemon_does_not_keep_it_then_it_fails_there_with_a_timeline(
    toys: Board, monkeypatch: pytest.MonkeyPatch, what: str
) -> None:
    sabotage, wanted = SABOTAGES[what]
    sabotage(monkeypatch)
    report = check_board(toys)
    assert wanted <= failed(report)
    assert not report.passed
    for place, guarantee in wanted:
        found = outcome(report, place, guarantee)
        assert any("reg." in line for line in found.timeline)
        assert "Error" not in found.told  # it is the guarantee that fails, not the sabotage


TRUTHS: dict[str, tuple[tuple[str, str, str, int, bool], bool]] = {
    # access, verdict, effects, executions, whether the device holds what it held; whether that may be told
    "done and seen": (("write", "applied", "applied", 1, False), True),
    "perhaps done": (("write", "applied", "unknown", 1, False), True),
    "not done": (("write", "not_applied", "none", 0, True), True),
    "so already": (("write", "satisfied", "none", 1, True), True),
    "value gone": (("read", "lost", "unknown", 1, False), True),
    "value gone, bound 0 to 1": (("read", "lost", "unknown", 0, True), True),
    "half of it": (("write", "partial", "applied", 1, False), True),
    "an effect that was none": (("read", "lost", "applied", 0, True), False),
    "an effect denied": (("read", "lost", "none", 1, False), False),
    "done, and was not": (("write", "applied", "unknown", 0, True), False),
    "not done, and was": (("write", "not_applied", "unknown", 1, True), False),
    "so already, and was not": (("write", "satisfied", "none", 0, False), False),
    "a read that was so already": (("read", "satisfied", "none", 0, True), False),
    "a write that lost a value": (("write", "lost", "unknown", 0, True), False),
    "half of nothing": (("write", "partial", "unknown", 0, True), False),
    "what no rule may say here": (("write", "superseded", "unknown", 0, True), False),
}


@pytest.mark.parametrize("what", TRUTHS)
def test_settlement_when_compared_with_the_count_then_only_what_can_be_passes(what: str) -> None:
    told, fits = TRUTHS[what]
    assert (untrue(*told) is None) is fits


def test_contract_when_it_assumes_what_a_power_on_does_not_bring_then_the_chip_is_set_so(tmp_path: Path) -> None:
    assumed = "[[assume]]\nregister = 'MODE'\nfield = 'RAW'\nvalue = 1\nfor = 'effects'\n"
    parts = (reg("MODE", 0, "fields.RAW = { bits = 0 }"), reg("LEVEL", 1), assumed)
    report = check_board(toy_board(tmp_path, *parts))
    assert outcome(report, "toy.LEVEL", "done").outcome is Outcome.HELD
    assert outcome(report, "toy.MODE.RAW", "done").told == "its contract assumes what it holds"


def test_write_when_it_has_a_rate_then_enough_time_passes_between_two_cases(tmp_path: Path) -> None:
    slow = reg("SLOW", 0, f"write = {{ {STORE}, max_rate_per_min = 1 }}")
    report = check_board(toy_board(tmp_path, slow))
    assert outcome(report, "toy.SLOW", "done").outcome is Outcome.HELD
    assert outcome(report, "toy.SLOW", "once").outcome is Outcome.HELD


def test_case_when_it_begins_then_the_daemon_sees_no_restart(toys: Board, monkeypatch: pytest.MonkeyPatch) -> None:
    grown: list[int] = []
    monkeypatch.setattr(Device, "new_generation", lambda _, generation: grown.append(generation))
    assert check_board(toys).passed
    assert grown == [2]  # the second life of the daemon meets new chips


def test_contract_when_lint_says_something_of_it_then_check_does_too(tmp_path: Path) -> None:
    fifo = reg("RXFIFO", 0, "read = { effects = ['none'], provenance = 'asserted' }", "ro")
    report = check_board(
        toy_board(tmp_path, fifo, reg("WIDE", 1, "width_bits = 16", "ro"), reg("POP", 2, effect("pop"), "ro"))
    )
    assert {place for place, guarantee in failed(report) if guarantee == "loads_well"} == {"toy.RXFIFO", "toy.WIDE"}


def test_board_of_real_buses_when_simulated_then_nothing_of_this_host_is_left_in_it(tmp_path: Path) -> None:
    toy_board(tmp_path, reg("A", 0, "space = 'holding'"), head=MODBUS)
    board = parse_board(
        "name = 'real'\n[buses.b]\nkind = 'modbus-rtu'\npath = '/dev/serial/by-id/x'\n"
        "[buses.t]\nkind = 'modbus-tcp'\nhost = 'nowhere.invalid'\n"
        "[metrics]\ntextfile = '/nowhere/at/all'\n"
        "[devices.toy]\ncontract = './toy.toml'\nbus = 'b'\naddress = 0x20\n"
        "[devices.far]\ncontract = './toy.toml'\nbus = 't'\naddress = 0x20\n",
        "real.toml",
        tmp_path,
    )
    made = simulated(board)
    assert made.simulated
    assert {(b.kind, b.path, b.host) for b in made.buses.values()} == {("sim", None, None)}
    assert made.metrics is None
    assert check_board(board).passed


def test_time_of_the_checks_when_somebody_sleeps_then_it_has_passed() -> None:
    time = OwnTime()
    before = time.wall_ns(), time.boottime_ns(), time.monotonic_s()
    time.advance(1.5)
    after = time.wall_ns(), time.boottime_ns(), time.monotonic_s()
    assert (after[0] - before[0], after[1] - before[1], after[2] - before[2]) == (1_500_000_000, 1_500_000_000, 1.5)


HOSTILE = "<script>alert(1)</script>&\"'\x00\u202e"
POLICY = "<meta http-equiv=\"Content-Security-Policy\" content=\"default-src 'none'; style-src 'unsafe-inline'; "


def report_of(number: int) -> Report:
    report = Report(f"board {HOSTILE}")
    for n in range(number):
        outcome = list(Outcome)[n % 3]
        report.findings.append(Finding(f"toy.R{n}", f"read {HOSTILE}", "once", outcome, HOSTILE, (HOSTILE, "then")))
    return report


@pytest.mark.parametrize("number", [0, 1, 5000])
def test_report_when_shown_then_escaped_and_without_a_reference_to_anything_outside(number: int) -> None:
    report = report_of(number)
    text = page(report)
    assert "<script" not in text
    assert text.count('<tr class="') == number
    assert not any(word in text for word in ("http:", "https:", "src=", "url(", "@import", "<link"))
    anchors = re.findall(r'href="([^"]*)"', text)
    assert len(anchors) == {0: 0, 1: 3, 5000: 4}[number]
    assert [a for a in anchors if not (a.startswith("#") and f'id="{a[1:]}"' in text)] == []
    assert "\0" not in text and "\u202e" not in text
    assert text.index(POLICY) < text.index("<title>")
    suites = ElementTree.fromstring(shown.junit(report))
    counts = [int(suites.attrib[name]) for name in ("tests", "failures", "skipped")]
    assert counts == [number, report.count(Outcome.FAILED), report.count(Outcome.NOT_APPLICABLE)]
    assert len(suites.findall(".//failure")) == report.count(Outcome.FAILED)
    lines = list(shown.lines(report))
    assert lines[-1].startswith("PASS" if report.passed else "FAIL")
    assert json.loads(json.dumps(report.as_object()))["counts"]["held"] == report.count(Outcome.HELD)


def test_manual_when_it_lists_the_guarantees_then_all_of_them() -> None:
    text = (Path(__file__).parents[2] / "docs" / "check.md").read_text(encoding="utf-8")
    assert [name for name in GUARANTEES if f"`{name}`" not in text] == []


def test_report_when_nothing_was_done_then_it_did_not_pass() -> None:
    assert not report_of(0).passed
    assert report_of(1).passed
    refused = Finding("toy.R", "read pop", "refused_as_clean", Outcome.HELD, "refused")
    assert not Report("b", [refused]).passed


def test_verb_when_a_board_is_given_then_it_is_checked_and_the_files_are_written(tmp_path: Path) -> None:
    toy_board(tmp_path, reg("LEVEL", 0))
    board = tmp_path / "toys.toml"
    board.write_text(
        "name = 'toys'\n[buses.b]\nkind = 'i2c'\nadapter = 'nobody'\n"
        "[devices.toy]\ncontract = './toy.toml'\nbus = 'b'\naddress = 0x20\n"
    )
    done = typed("check", "--board", str(board), "--junit", str(tmp_path / "j.xml"), "--html", str(tmp_path / "r.html"))
    assert (done.returncode, done.stdout.splitlines()[-1][:5]) == (0, "PASS:"), done.stdout + done.stderr
    assert ElementTree.parse(tmp_path / "j.xml").getroot().attrib["failures"] == "0"
    assert "toy.LEVEL" in (tmp_path / "r.html").read_text()
    unwritten = typed("check", "--board", str(board), "--json", "--junit", "/nowhere/j.xml")
    told = json.loads(unwritten.stdout)  # nothing of what was checked is lost
    assert (unwritten.returncode, "/nowhere/j.xml cannot be written" in unwritten.stderr) == (2, True)
    assert (told["passed"], told["board"], told["counts"]["failed"]) == (True, "toys", 0)


@pytest.mark.parametrize(
    ("words", "told"),
    [
        (("--junit", "x.xml"), "need --board"),
        (("--board", "nowhere.toml"), "cannot be read"),
    ],
)
def test_verb_when_it_cannot_check_then_one_sentence_and_exit_2(words: tuple[str, ...], told: str) -> None:
    done = typed("check", *words)
    assert (done.returncode, told in done.stderr, done.stdout) == (2, True, "")
