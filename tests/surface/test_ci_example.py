"""The workflow for GitHub Actions: it is read as YAML, each of its commands is run, and its reports are there."""

from __future__ import annotations

import os
import re
import shutil
import subprocess
import sys
from pathlib import Path
from typing import Any
from xml.etree import ElementTree

import pytest

EXAMPLES = Path(__file__).parents[2] / "docs" / "examples"
PAIR = re.compile(r"([A-Za-z][\w-]*):(?: +(.+))?")
LIMIT_S = 110


def read(lines: list[str]) -> Any:
    """The little of YAML that a workflow needs, read strictly: mappings, sequences and `|` blocks by indentation.

    Raises:
        ValueError: anything else.
    """
    if lines[0].startswith("- "):
        starts = [n for n, line in enumerate(lines) if line.startswith("- ")]
        if any(not line.startswith(("- ", "  ")) for line in lines):
            raise ValueError(f"not an entry: {lines}")
        ends = [*starts[1:], len(lines)]
        return [read([line[2:] for line in lines[a:b]]) for a, b in zip(starts, ends, strict=True)]
    found: dict[str, Any] = {}
    while lines:
        pair, inner = PAIR.fullmatch(lines[0]), 1
        while inner < len(lines) and lines[inner].startswith("  "):
            inner += 1
        if pair is None or pair[1] in found or "\t" in "".join(lines[:inner]) or (pair[2] or "")[:1] in ("&", "*", "{"):
            raise ValueError(f"cannot be read: {lines[0]!r}")
        below = [line[2:] for line in lines[1:inner]]
        if pair[2] == "|":
            found[pair[1]] = "\n".join(below)
        elif (pair[2] is None) is not bool(below):
            raise ValueError(f"a value, or what is below: {lines[0]!r}")
        else:
            found[pair[1]] = read(below) if below else pair[2]
        lines = lines[inner:]
    return found


WORKFLOW = read(
    [
        line.rstrip()
        for line in (EXAMPLES / "github-actions.yml").read_text(encoding="utf-8").splitlines()
        if line.strip() and not line.strip().startswith("#")
    ]
)
STEPS: list[dict[str, Any]] = WORKFLOW["jobs"]["board"]["steps"]
RUN = [step["run"] for step in STEPS if "run" in step and step["name"] != "Install"]


@pytest.fixture
def project(tmp_path: Path) -> Path:
    """A repository with a board, as the workflow finds it after its first steps."""
    made = Path(shutil.copytree(EXAMPLES / "pytest", tmp_path / "project"))
    (made / "reports").mkdir()
    return made


def run(command: str, project: Path) -> subprocess.CompletedProcess[str]:
    """A step, as a runner does it."""
    kept = {name: value for name, value in os.environ.items() if not name.startswith(("PYTEST_", "HWTOOL_"))}
    environment = kept | {"PATH": f"{Path(sys.executable).parent}{os.pathsep}{os.environ['PATH']}"}
    words = ["bash", "--noprofile", "--norc", "-eo", "pipefail", "-c", command]
    return subprocess.run(
        words, cwd=project, env=environment, capture_output=True, text=True, check=False, timeout=LIMIT_S
    )


def test_workflow_when_read_then_it_may_read_alone_and_its_reports_are_kept_whatever_happens() -> None:
    assert WORKFLOW["permissions"] == {"contents": "read"}
    assert set(WORKFLOW) == {"name", "on", "permissions", "jobs"}
    used = [step["uses"] for step in STEPS if "uses" in step]
    assert used == ["actions/checkout@v4", "actions/setup-python@v5", "actions/upload-artifact@v4"]
    assert STEPS[0]["with"] == {"persist-credentials": "false"}
    assert STEPS[-1]["if"] == "always()"
    assert STEPS[-1]["with"] == {"name": "reports", "path": "reports/", "if-no-files-found": "error"}
    assert not any("secrets" in str(step) or "github.event" in str(step) for step in STEPS)
    later = [step for step in STEPS if "reports/" in step.get("run", "")][1:]
    assert [step["if"] for step in later] == ["${{ !cancelled() }}"] * 2  # one that fails hides no other


def test_workflow_when_its_checks_are_run_then_they_pass_and_each_report_is_there(project: Path) -> None:
    assert len(RUN) == 4
    assert [run(command, project).returncode for command in RUN[:3]] == [0, 0, 0]
    tests = run(RUN[3] + " --collect-only -q", project)
    assert "10 tests collected" in tests.stdout, tests.stdout + tests.stderr
    assert {path.name for path in (project / "reports").iterdir()} == {
        *("check.xml", "check.html", "scenarios.xml", "scenarios.html", "pytest.xml")
    }
    suites = ElementTree.parse(project / "reports" / "check.xml").getroot()
    assert (suites.attrib["failures"], int(suites.attrib["tests"]) > 40) == ("0", True)


def test_workflow_when_something_fails_then_the_step_does_and_its_report_says_what(project: Path) -> None:
    scenario = project / "scenarios" / "speed_is_stored_once.toml"
    text = scenario.read_text()
    assert text.count('"feeder.SPEED write" = 1') == 1
    scenario.write_text(text.replace('"feeder.SPEED write" = 1', '"feeder.SPEED write" = 2'))
    done = run(RUN[2], project)
    assert done.returncode == 1
    assert 'id="failures">What failed (1)' in (project / "reports" / "scenarios.html").read_text()
    assert ElementTree.parse(project / "reports" / "scenarios.xml").getroot().attrib["failures"] == "1"
    contract = project / "feeder.toml"
    contract.write_text(contract.read_text().replace('effects = ["pop"]', 'effects = ["none"]'))
    assert run(RUN[1], project).returncode != 0


@pytest.mark.parametrize(
    "broken",
    ["a: 1\na: 2", "a:\nb: 1", "a: 1\n  b: 2", "a\n", "- a: 1\nb: 2", "a: &x 1", "a: {b: 1}", "a:\n  - b: 1\n\tc: 2"],
)
def test_reader_when_it_is_no_plain_yaml_then_refused(broken: str) -> None:
    with pytest.raises(ValueError):
        read(broken.splitlines())
