"""Public fault reports: each has a scenario or a test of ours against its kind of fault, and a guard behind it."""

from __future__ import annotations

import json
import os
from pathlib import Path

import pytest

from hwtool.checks.findings import Outcome
from hwtool.checks.play import play
from hwtool.checks.scenario import load_scenario, scenario_files
from tests.cases.table import CASES, mutants, rows
from tests.corpus import TOP
from tests.mutants import MUTANTS

HERE = Path(__file__).parent
SCENARIOS = [path.stem for path in scenario_files(HERE)]


@pytest.mark.parametrize("name", SCENARIOS)
def test_scenario_when_played_then_it_goes_as_its_file_says(name: str) -> None:
    findings = play(load_scenario(HERE / f"{name}.toml"))
    assert [f"{f.place}: {f.told}" for f in findings if f.outcome is not Outcome.HELD] == []
    assert findings


def test_scenarios_when_counted_then_each_guards_a_case_or_is_named_as_a_sibling() -> None:
    named = {name for case in CASES for name in case.scenarios}
    assert named == set(SCENARIOS)


def test_tests_when_a_case_names_them_then_they_exist() -> None:
    missing = []
    for case in CASES:
        for test in case.tests:
            file, _, name = test.partition("::")
            text = (TOP / file).read_text(encoding="utf-8")
            if f"def {name.partition('[')[0]}(" not in text:
                missing.append(test)
    assert missing == []
    assert all(case.tests or case.scenarios for case in CASES)


def test_guards_when_a_case_names_one_then_it_is_a_guard_of_ours_and_each_case_has_one() -> None:
    assert [case.id for case in CASES if case.guard is None and not case.why] == []
    words = {mutant.guard for mutant in MUTANTS}
    assert [case.guard for case in CASES if isinstance(case.guard, str) and case.guard not in words] == []
    for mutant in mutants():
        assert (TOP / mutant.file).read_text(encoding="utf-8").count(mutant.old) == 1, mutant.guard


def test_cases_when_compared_with_the_reports_then_all_of_them_are_here() -> None:
    where = os.environ.get("HWTOOL_CASES") or str(TOP.parent / "shared" / "cases" / "cases.jsonl")
    if not Path(where).is_file():
        pytest.skip("no cases.jsonl: set HWTOOL_CASES to the file of the reports")
    reports = [json.loads(line) for line in Path(where).read_text(encoding="utf-8").splitlines()]
    assert [case.id for case in CASES] == [report["id"] for report in reports]
    assert [case.kind for case in CASES] == [report["kind"] for report in reports]


def test_manual_when_it_lists_the_cases_then_as_the_table_has_them() -> None:
    manual = (TOP / "docs" / "cases.md").read_text(encoding="utf-8")
    assert [line for line in manual.splitlines() if line.startswith("| HC-")] == rows()
