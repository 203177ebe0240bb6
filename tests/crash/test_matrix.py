"""The kill matrix in the gate, and its control: defects that it must find."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path
from typing import Final

import pytest

from tests.crash.faults import NAMES
from tests.crash.kinds import DISAGREEMENTS, FATES, KINDS, STAGES

TOP: Final = Path(__file__).parent.parent.parent
LIMIT_S: Final = 280


def matrix(*words: str) -> subprocess.CompletedProcess[str]:
    """The harness in a process of its own, which has one thread and may fork."""
    command = [sys.executable, "-m", "tests.crash.matrix", *words]
    return subprocess.run(command, cwd=TOP, capture_output=True, text=True, timeout=LIMIT_S, check=False)


PARTS: Final = {
    # part, fewest runs, fewest of them killed twice
    "kept": (("--part", "gate", "--fate", "kept", "--once"), 180, 0),
    "reset": (("--part", "gate", "--fate", "reset", "--once"), 150, 0),
    "silent": (("--part", "gate", "--fate", "kept silent", "--fate", "reset silent"), 45, 0),
    "killed again": (("--part", "gate", "--again"), 150, 150),
    "anywhere": (("--calls", "60", "--seed", "7"), 60, 30),
}


@pytest.mark.timeout(LIMIT_S + 20)
@pytest.mark.parametrize("part", PARTS)
def test_daemon_when_killed_at_every_label_then_nothing_runs_twice_and_every_answer_holds(part: str) -> None:
    words, runs, twice = PARTS[part]
    ended = matrix(*words)
    assert ended.returncode == 0, ended.stdout + ended.stderr
    counted = ended.stdout.splitlines()[-1].split()
    assert (int(counted[0]) >= runs, int(counted[2]) >= twice) == (True, True), counted


FOUND: Final = {
    "send again": ("store / after the first transfer / kept", "write of R executed 2x; operations [2] account for 0"),
    "forget the intent": ("store / after the first transfer / kept", "write of R executed 1x; operations [] account"),
    "guess": ("store / after the first transfer / kept", "it ended as ('not_applied', 'rule', 'none'), not as"),
    "forget the hold": ("masters / after the first transfer / kept", "unknown, and another request is answered"),
}


@pytest.mark.parametrize("fault", NAMES)
def test_matrix_when_the_product_has_a_defect_then_it_is_found(fault: str) -> None:
    runs, sentence = FOUND[fault]
    ended = matrix("--once", "--only", runs, "--fault", fault)
    assert ended.returncode == 1, ended.stdout + ended.stderr
    assert sentence in ended.stdout


def test_kinds_when_read_then_every_stage_and_fate_has_its_endings() -> None:
    assert len({k.name for k in KINDS}) == len(KINDS)
    for kind in KINDS:
        assert all(kind.endings(stage, fate) for stage in STAGES for fate in FATES)
    names = {k.name for k in KINDS}
    assert all(name in names and stage in STAGES and fate in FATES and why for name, stage, fate, why in told())


def told() -> list[tuple[str, str, str, str]]:
    """The disagreements, each with its reason."""
    return [(*place, why) for place, (_, why) in DISAGREEMENTS.items()]
