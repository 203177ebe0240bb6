"""Scenarios: what a file may say, what is told of one that cannot be used, and that each expectation can fail."""

from __future__ import annotations

import json
from pathlib import Path

import pytest
from click.testing import CliRunner

from hwtool.checks.findings import Finding, Outcome
from hwtool.checks.play import play
from hwtool.checks.scenario import Scenario, load_scenario, scenario_files
from hwtool.checks.stage import Doomed, Stage
from hwtool.cli.daemon import check
from hwtool.config import parse_board
from hwtool_contracts.model import Space
from hwtool_contracts.toml_reader import Faults
from hwtool_registers.bus import RegisterRead, Rejected

HEAD = """
schema = 1
title = "a toy"
guards = "nothing"
"""
TOY = """
[contracts.toy]
access = { offset_bytes = 1, byte_order = "big", i2c = { addresses = [0x30], auto_increment = "both" } }
defaults = { read = { effects = ["none"], provenance = "generated", source = "here" } }
[contracts.toy.registers.LEVEL]
offset = 0
access = "rw"
write = { effect = "store", verify = "read_back", provenance = "generated" }
[contracts.toy.registers.FIFO]
offset = 1
access = "ro"
read = { effects = ["pop"], provenance = "generated" }
[contracts.toy.registers.STEP]
offset = 2
access = "wo"
write = { effect = "command", verify = "none", provenance = "generated" }
[board]
name = "scene"
approval_mode = "separate-user"
buses.b = { kind = "sim", sole_master = true }
devices.toy = { contract = "toy", bus = "b", address = 0x30 }
"""
WRITE = 'call = "reg.write"\nparams = { register = "toy.LEVEL", value = 5, key = "level-five" }\n'
PUSH = '[[steps]]\ncontrol = { name = "push", device = "toy", register = "FIFO", elements = [1, 2] }\n'


def scenario(tmp_path: Path, steps: str, top: str = "", rest: str = TOY) -> Scenario:
    path = tmp_path / "scene.toml"
    path.write_text(HEAD + top + rest + steps, encoding="utf-8")
    return load_scenario(path)


def played(tmp_path: Path, steps: str, top: str = "") -> list[Finding]:
    return play(scenario(tmp_path, steps, top))


def outcomes(findings: list[Finding]) -> list[Outcome]:
    return [f.outcome for f in findings]


EXPECTATIONS = [
    # an expectation that holds after a write of 5, one that does not, and what is told of it
    ("expect", "expect = { ok = true, effects = 'applied' }", "expect = { ok = false }", "ok is True"),
    ("has", "expect = { summary = { has = 'LEVEL' } }", "expect = { summary = { has = 'RAISED' } }", "without 'RAISED'"),
    ("one_of", "expect = { status = { one_of = ['done'] } }", "expect = { status = { one_of = ['failed'] } }", "none of"),
    ("absent", "expect = { error = { absent = true } }", "expect = { effects = { absent = true } }", "not be there"),
    ("inner", "expect = { evidence = { how = 'read_back' } }", "expect = { evidence = { how = 'signal' } }", "evidence.how"),
    ("list", "expect = { warnings = [] }", "expect = { warnings = ['x'] }", "should have 1 entries"),
    ("no number", "expect = { replayed = false }", "expect = { replayed = 0 }", "replayed is False"),
    ("executed", "executed = { 'toy.LEVEL read' = 'some', 'toy.LEVEL write' = 1 }",
     "executed = { 'toy.LEVEL read' = 'some', 'toy.LEVEL write' = 2 }", "executed"),
    ("executed, and no more", "executed = { 'toy.LEVEL read' = 2, 'toy.LEVEL write' = 1 }",
     "executed = { 'toy.LEVEL write' = 1 }", "executed"),
    ("executed at all", "executed = { 'toy.LEVEL read' = 'some', 'toy.LEVEL write' = 1 }",
     "executed = { 'toy.LEVEL read' = 2, 'toy.LEVEL write' = 1, 'toy.STEP write' = 'some' }", "executed"),
    ("traffic", "traffic = ['toy read 0x00 1', 'toy write 0x00 05', 'toy read 0x00 1']",
     "traffic = ['toy write 0x00 05']", "traffic"),
    ("holds", "holds = { 'toy.LEVEL' = 5 }", "holds = { 'toy.LEVEL' = 6 }", "toy.LEVEL holds 0x5, and should hold 0x6"),
    ("fifos", "fifos = { 'toy.FIFO' = [1, 2] }", "fifos = { 'toy.FIFO' = [2] }", "in toy.FIFO wait [1, 2]"),
    ("pulses", "pulses = { 'toy.STEP' = 0 }", "pulses = { 'toy.STEP' = 1 }", "toy.STEP fired 0 times"),
    ("a register", "holds = { 'toy.LEVEL' = 5 }", "holds = { 'toy.LEVLE' = 5 }", "toy has no register 'LEVLE'"),
    ("a device", "holds = { 'toy.LEVEL' = 5 }", "holds = { 'tyo.LEVEL' = 5 }", "no device 'tyo'"),
]  # fmt: skip


@pytest.mark.parametrize(("right", "wrong", "told"), [e[1:] for e in EXPECTATIONS], ids=[e[0] for e in EXPECTATIONS])
def test_expectation_when_right_or_wrong_then_it_holds_or_fails_and_says_how(
    tmp_path: Path, right: str, wrong: str, told: str
) -> None:
    assert outcomes(played(tmp_path, f"{PUSH}[[steps]]\n{WRITE}{right}\n")) == [Outcome.HELD]
    (failed, after) = played(tmp_path, f"{PUSH}[[steps]]\n{WRITE}{wrong}\n[[steps]]\n{WRITE}expect = {{ ok = true }}\n")
    assert (failed.outcome, told in failed.told) == (Outcome.FAILED, True), failed.told
    assert any("reg.write" in line for line in failed.timeline)
    assert (after.outcome, after.told) == (Outcome.NOT_APPLICABLE, "step 2 went wrong before it")


def test_kill_when_in_the_middle_of_a_write_then_the_next_daemon_knows_it(tmp_path: Path) -> None:
    steps = f"[[steps]]\n{WRITE}killed = 'after'\nexecuted = {{ 'toy.LEVEL read' = 'some', 'toy.LEVEL write' = 1 }}\n"
    steps += f"[[steps]]\n{WRITE}expect = {{ replayed = true, verdict = 'applied' }}\nexecuted = {{}}\n"
    assert outcomes(played(tmp_path, steps)) == [Outcome.HELD] * 2


def test_kill_when_no_transfer_comes_then_the_step_has_failed(tmp_path: Path) -> None:
    steps = f"[[steps]]\n{WRITE}[[steps]]\n{WRITE}killed = 'after'\n[[steps]]\n{WRITE}expect = {{ ok = true }}\n"
    findings = played(tmp_path, steps)
    assert (findings[0].outcome, "none came" in findings[0].told) == (Outcome.FAILED, True)


def test_kill_when_it_comes_between_requests_then_what_was_answered_is_on_record(tmp_path: Path) -> None:
    steps = f"[[steps]]\n{WRITE}[[steps]]\ndaemon = 'kill'\nrepeat = 3\nexecuted = {{}}\n"
    steps += f"[[steps]]\n{WRITE}expect = {{ replayed = true, ok = true }}\n"
    assert outcomes(played(tmp_path, steps)) == [Outcome.HELD] * 2


LINE = """
[contracts.supply]
access = { line = { terminator = "\\n" } }
[contracts.supply.registers.STEP]
set = "STEP"
access = "wo"
width_bits = 8
encoding = "decimal"
write = { effect = "command", verify = "none", provenance = "generated" }
[board]
name = "scene"
buses.b = { kind = "sim", sole_master = true }
devices.supply = { contract = "supply", bus = "b" }
"""


def test_kill_when_the_bus_is_a_line_of_text_then_at_the_line_that_sets(tmp_path: Path) -> None:
    write = 'call = "reg.write"\nparams = { register = "supply.STEP", value = 0, key = "one-step" }\n'
    steps = f"[[steps]]\n{write}killed = 'after'\npulses = {{ 'supply.STEP' = 1 }}\n"
    steps += f"[[steps]]\n{write}expect = {{ effects = 'unknown', ok = false }}\npulses = {{ 'supply.STEP' = 1 }}\n"
    assert outcomes(play(scenario(tmp_path, steps, rest=LINE))) == [Outcome.HELD] * 2


def test_kill_when_the_request_needs_an_approval_then_it_has_one_before(tmp_path: Path) -> None:
    asking = TOY.replace('verify = "read_back"', 'verify = "read_back", approval = "required"')
    steps = f"[[steps]]\n{WRITE}approved = true\nkilled = 'after'\nholds = {{ 'toy.LEVEL' = 5 }}\n"
    steps += f"[[steps]]\n{WRITE}expect = {{ replayed = true, verdict = 'applied' }}\n"
    assert outcomes(play(scenario(tmp_path, steps, rest=asking))) == [Outcome.HELD] * 2


@pytest.mark.parametrize(("moment", "left"), [("before", [1, 2]), ("after", [2])])
def test_kill_when_in_the_middle_of_a_read_then_around_what_it_takes(
    tmp_path: Path, moment: str, left: list[int]
) -> None:
    pop = 'call = "reg.read_effectful"\nparams = { register = "toy.FIFO", key = "one-element" }\n'
    steps = f"{PUSH}[[steps]]\n{pop}killed = '{moment}'\nfifos = {{ 'toy.FIFO' = {left} }}\n"
    steps += f"[[steps]]\n{pop}expect = {{ effects = 'unknown', values = {{ absent = true }} }}\nexecuted = {{}}\n"
    assert outcomes(played(tmp_path, steps)) == [Outcome.HELD] * 2


def test_daemon_when_it_is_dead_then_it_reaches_no_bus_any_more(tmp_path: Path) -> None:
    stage = Stage(scenario(tmp_path, STEP + "expect = { ok = true }\n"), tmp_path)
    bus = stage.bench.buses["b"]
    dead = Doomed(bus, stage)
    stage.life += 1
    read = RegisterRead(0x30, Space.MEMORY, 0, 1)
    assert dead.perform(read) == Rejected("this daemon is dead", "not-sent")
    before_s = stage.time.monotonic_s()
    dead.quiesce(before_s + 5)
    assert (bus.transfers, stage.time.monotonic_s()) == (0, before_s)


def test_chance_when_a_scenario_has_a_seed_then_it_goes_by_that(tmp_path: Path) -> None:
    chance = "[[faults]]\ndevice = 'toy'\nkind = 'nack'\naccess = 'read'\ntimes = 'always'\nprobability = 0.5\n"
    read = '[[steps]]\ncall = "reg.read"\nparams = { registers = ["toy.LEVEL"] }\nrepeat = 40\n'
    told = []
    for seed in (3, 3, 4):
        (found,) = played(tmp_path, f"{read}executed = {{ 'toy.LEVEL read' = 'some' }}\n", f"seed = {seed}\n{chance}")
        told.append(found.told)
    assert told[0] == told[1] != told[2]


def test_faults_when_scripted_at_the_top_then_they_strike_from_the_first_request_on(tmp_path: Path) -> None:
    lost = "seed = 3\n[[faults]]\ndevice = 'toy'\nkind = 'reply_lost'\naccess = 'write'\n"
    step = f"[[steps]]\n{WRITE}expect = {{ effects = 'unknown' }}\n"
    assert outcomes(played(tmp_path, step, lost)) == [Outcome.HELD]


def test_time_when_it_passes_then_at_once(tmp_path: Path) -> None:
    late = "[[faults]]\ndevice = 'toy'\nkind = 'nack'\nafter_s = 3000\naccess = 'write'\n"
    steps = f"[[steps]]\n{WRITE}expect = {{ ok = true }}\n[[steps]]\npass_s = 3001.5\n[[steps]]\n"
    steps += WRITE.replace("level-five", "level-late") + "expect = { error = { code = 'bus_fault' } }\n"
    assert outcomes(played(tmp_path, steps, late)) == [Outcome.HELD] * 2


def test_board_when_the_file_has_none_then_the_one_that_was_given(tmp_path: Path) -> None:
    path = tmp_path / "scene.toml"
    read = 'call = "reg.read"\nparams = { registers = ["uart.RXLVL"] }\nexpect = { ok = true }\n'
    path.write_text(f"{HEAD}[[steps]]\n{read}", encoding="utf-8")
    text = (
        "name = 'b'\nbuses.i = { kind = 'sim' }\ndevices.uart = { contract = 'sc16is750', bus = 'i', address = 0x4d }\n"
    )
    assert outcomes(play(load_scenario(path, parse_board(text, "b", tmp_path)))) == [Outcome.HELD]
    (tmp_path / "board.toml").write_text(text, encoding="utf-8")
    path.write_text(f"{HEAD}board = 'board.toml'\n[[steps]]\n{read}", encoding="utf-8")
    assert outcomes(play(load_scenario(path))) == [Outcome.HELD]


STEP = "[[steps]]\n" + WRITE
BROKEN = [
    ("nothing expected", STEP, "", "steps: nothing is expected: it could not fail"),
    ("no step", "", "", "steps: nothing is expected"),
    ("two things", f"{STEP}pass_s = 3\nexpect = {{ ok = true }}\n", "", "steps[0]: a step does one thing; found call, pass_s"),
    ("unknown key", f"{STEP}expects = {{ ok = true }}\n", "", "steps[0].expects: unknown key; found expects; wanted expect?"),
    ("method", "[[steps]]\ncall = 'reg.wriet'\nexpect = { ok = true }\n", "", "no such method; found reg.wriet"),
    ("who", f"{STEP}as = 'root'\nexpect = {{ ok = true }}\n", "", "not in the vocabulary"),
    ("table", f"{STEP}holds = 3\n", "", "steps[0].holds: wrong type"),
    ("holds nothing", f"{STEP}holds = {{}}\n", "", "nothing is expected"),
    ("expects nothing", f"{STEP}expect = {{}}\npulses = {{}}\n", "", "nothing is expected"),
    ("no member", f"{STEP}expect = {{ eror = {{ absent = true }} }}\n", "", "expect.eror: no member of a result; found eror; wanted error?"),
    ("killed and expects", f"{STEP}killed = 'after'\nexpect = {{ ok = true }}\n", "", "has no result"),
    ("passed alone", f"{STEP}passed = 1\nexpect = {{ ok = true }}\n", "", "passed: belongs to killed"),
    ("killed twice", "[[steps]]\nexecuted = {}\n" + 2 * ("[[steps.together]]\n" + WRITE + "killed = 'after'\n"), "", "can be killed once"),
    ("time backwards", "[[steps]]\npass_s = -5\nexecuted = {}\n", "", "pass_s: out of range"),
    ("time without end", "[[steps]]\npass_s = 1e300\nexecuted = {}\n", "", "pass_s: out of range"),
    ("executed never", f"{STEP}executed = {{ 'toy.LEVEL write' = 0 }}\n", "", "not a count; found 0"),
    ("control", "[[steps]]\ncontrol = { name = 'puhs', device = 'toy' }\nexecuted = {}\n", "", "no control is called 'puhs'"),
    ("control of nobody", "[[steps]]\ncontrol = { name = 'reset', device = 'tyo' }\nexecuted = {}\n", "", "no device 'tyo'"),
    ("stop", "[[steps]]\ncontrol = { name = 'stop' }\nexecuted = {}\n", "", "no process that could stop"),
    ("swap", "[[steps]]\nfault = { device = 'toy', kind = 'swap' }\nexecuted = {}\n", "", "swap needs contract, or same = true"),
    ("no fault", f"[[steps]]\nfault = [3]\n{STEP}expect = {{ ok = true }}\n", "", "steps[0].fault: wrong type"),
    ("params", "[[steps]]\ncall = 'reg.read'\nparams = 3\nexpect = { ok = true }\n", "", "steps[0].params: wrong type"),
    ("schema", f"{STEP}expect = {{ ok = true }}\n", "colour = 1\n", "colour: unknown key"),
    ("fault", f"{STEP}expect = {{ ok = true }}\n", "[[faults]]\ndevice = 'tyo'\nkind = 'nack'\n", "there is no 'tyo'"),
]  # fmt: skip


@pytest.mark.parametrize(("steps", "top", "told"), [b[1:] for b in BROKEN], ids=[b[0] for b in BROKEN])
def test_file_when_it_cannot_be_played_then_everything_is_told(tmp_path: Path, steps: str, top: str, told: str) -> None:
    with pytest.raises(Faults) as caught:
        scenario(tmp_path, steps, top)
    assert told in str(caught.value)


def test_file_when_its_contract_is_wrong_then_told_in_the_words_of_contracts(tmp_path: Path) -> None:
    with pytest.raises(Faults, match=r"scene.toml: contracts.toy.registers.LEVEL.ofset: unknown key"):
        scenario(tmp_path, STEP, rest=TOY.replace("offset = 0", "offset = 0\nofset = 1"))


def test_board_when_it_lays_something_over_a_contract_of_the_file_then_told_and_not_ignored(tmp_path: Path) -> None:
    with pytest.raises(Faults, match="overlays: contract toy is made where the board is"):
        scenario(
            tmp_path,
            STEP + "expect = { ok = true }\n",
            rest=TOY.replace("address = 0x30 }", "address = 0x30, overlays = ['x'] }"),
        )


def test_file_when_it_has_no_board_and_none_is_given_then_told(tmp_path: Path) -> None:
    with pytest.raises(Faults, match="no board"):
        scenario(tmp_path, STEP + "expect = { ok = true }\n", rest="")


def test_step_when_it_cannot_be_done_then_it_has_failed_in_a_sentence(tmp_path: Path) -> None:
    for step, told in (
        ("control = { name = 'push', device = 'toy', register = 'LEVEL', elements = [1] }", "LEVEL is no FIFO of toy"),
        ("fault = { device = 'toy', kind = 'flip', register = 'LEVLE', bits = 1 }", "toy has no register LEVLE"),
    ):
        (found,) = played(tmp_path, f"[[steps]]\n{step}\nexecuted = {{}}\n")
        assert (found.outcome, told in found.told) == (Outcome.FAILED, True), found.told


def test_expectation_when_what_it_names_is_not_there_then_it_fails(tmp_path: Path) -> None:
    memory = "[contracts.toy.memories.M]\noffset = 0x80\nsize_bytes = 4\n"
    for wrong, told in (
        ("pulses = { 'toy.TYPO' = 0 }", "toy has no register 'TYPO'"),
        ("fifos = { 'toy.TYPO' = [] }", "'TYPO' is no FIFO of toy"),
        ("holds = { 'toy.M[9]' = '' }", "toy has no cell 'M[9]'"),
    ):
        step = f"[[steps]]\npass_s = 1\n{wrong}\n"
        (found,) = play(scenario(tmp_path, step, rest=TOY.replace("[board]", memory + "[board]")))
        assert (found.outcome, told in found.told) == (Outcome.FAILED, True), found.told


def test_chip_when_it_is_moved_or_swapped_then_it_is_still_the_device_and_what_was_executed_stays(
    tmp_path: Path,
) -> None:
    steps = f"[[steps]]\n{WRITE}executed = {{ 'toy.LEVEL read' = 'some', 'toy.LEVEL write' = 1 }}\n"
    steps += "[[steps]]\ncontrol = { name = 'swap', device = 'toy', same = true }\nexecuted = {}\n"
    steps += "[[steps]]\ncontrol = { name = 'move', device = 'toy', to = 0x31 }\nholds = { 'toy.LEVEL' = 0 }\nexecuted = {}\n"
    assert outcomes(played(tmp_path, steps)) == [Outcome.HELD] * 3


def test_bus_when_it_is_away_for_a_time_then_the_daemon_finds_it_again(tmp_path: Path) -> None:
    away = "[[steps]]\nfault = { device = 'toy', kind = 'unplug', access = 'write', lasts_s = 2 }\n"
    read = 'call = "reg.read"\nparams = { registers = ["toy.LEVEL"] }\n'
    steps = f"{away}[[steps]]\n{WRITE}expect = {{ effects = 'unknown' }}\n"
    steps += f"[[steps]]\npass_s = 10\n[[steps]]\n{read}expect = {{ ok = true }}\n"
    assert outcomes(played(tmp_path, steps)) == [Outcome.HELD] * 2


def test_fault_when_its_bus_is_modbus_then_what_only_wires_have_is_refused(tmp_path: Path) -> None:
    line = TOY.replace('i2c = { addresses = [0x30], auto_increment = "both" }', "modbus = { base = 0 }")
    line = line.replace('kind = "sim"', 'kind = "modbus-rtu", path = "/dev/serial/by-id/usb-x"').replace("0x30", "1")
    for name in ("LEVEL", "FIFO", "STEP"):
        line = line.replace(f"registers.{name}]", f"registers.{name}]\nspace = 'holding'")
    step = "[[steps]]\nfault = { device = 'toy', kind = 'false_ack' }\nexecuted = {}\n"
    (found,) = play(scenario(tmp_path, step, rest=line))
    assert (found.outcome, "bus b is a line of Modbus" in found.told) == (Outcome.FAILED, True), found.told


def test_directory_when_it_has_scenarios_then_each_and_nothing_else(tmp_path: Path) -> None:
    (tmp_path / "sub.toml").mkdir()
    for name, text in (("b.toml", "[[steps]]"), ("a.toml", "[[steps]]"), ("board.toml", "name = 'x'"), ("c.txt", "")):
        (tmp_path / name).write_text(text, encoding="utf-8")
    assert [p.name for p in scenario_files(tmp_path)] == ["a.toml", "b.toml"]
    (tmp_path / "empty").mkdir()
    with pytest.raises(Faults, match="no scenario here"):
        scenario_files(tmp_path / "empty")


def test_verb_when_scenarios_are_played_then_exit_code_lines_and_reports(tmp_path: Path) -> None:
    scenario(tmp_path, f"{STEP}expect = {{ ok = true }}\n")
    run = CliRunner().invoke
    reports = ["--junit", str(tmp_path / "j.xml"), "--html", str(tmp_path / "p.html")]
    done = run(check, ["--scenario", str(tmp_path), *reports])
    assert (done.exit_code, "PASS: 1 held, 0 failed" in done.stdout) == (0, True)
    assert "<testcase" in (tmp_path / "j.xml").read_text() and "scene.step 1" in (tmp_path / "p.html").read_text()
    scenario(tmp_path, f"{STEP}expect = {{ ok = false }}\n")
    failed = run(check, ["--scenario", str(tmp_path / "scene.toml"), "--json"])
    assert (failed.exit_code, json.loads(failed.stdout)["counts"]["failed"]) == (1, 1)
    (tmp_path / "scene.toml").write_text("schema = 2", encoding="utf-8")
    refused = run(check, ["--scenario", str(tmp_path / "scene.toml")])
    assert (refused.exit_code, "the scenario cannot be used" in refused.stderr) == (2, True)
