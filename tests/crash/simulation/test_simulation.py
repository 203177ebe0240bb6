"""The simulation in the gate: that it replays, that it finds what is wrong, and a share of its histories.

The ten thousand of the gate run as a stage of their own (`.ci/run`), not under coverage.
"""

from __future__ import annotations

import hashlib
import os
import subprocess
import sys
from pathlib import Path
from typing import Final

import pytest

from tests.crash.simulation import oracle
from tests.crash.simulation.defects import DEFECTS
from tests.crash.simulation.histories import History, played

TOP: Final = Path(__file__).parents[3]
LIMIT: Final = 600  # histories, until a defect must have been found
BEFORE: Final = {"restarts are ignored": 546}  # seeds that are left out, since the next is known to show it; else none
SHARE: Final = 40


def fingerprint(first: int, number: int) -> str:
    """Everything that happened in some histories, as one word."""
    digest = hashlib.sha256()
    for seed in range(first, first + number):
        history = History(seed)
        history.play()
        digest.update("\n".join(oracle.tale(history, oracle.record_of(history))).encode())
    return digest.hexdigest()


def test_history_when_its_seed_is_played_again_in_another_process_then_every_line_is_the_same() -> None:
    words = "from tests.crash.simulation.test_simulation import fingerprint; print(fingerprint(1, 12))"
    told = []
    for hash_seed in ("1", "2"):
        environment = {**os.environ, "PYTHONHASHSEED": hash_seed}
        run = subprocess.run(
            [sys.executable, "-c", words], cwd=TOP, env=environment, capture_output=True, text=True, check=True
        )
        told.append(run.stdout)
    assert told[0] == told[1]


def test_histories_when_played_then_nothing_is_wrong() -> None:
    wrong = {seed: found for seed in range(700_000, 700_000 + SHARE) if (found := played(seed)[0])}
    assert wrong == {}


@pytest.mark.parametrize("defect", DEFECTS)
def test_simulation_when_the_product_has_a_defect_then_it_is_found(
    defect: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    DEFECTS[defect](monkeypatch)
    for seed in range(BEFORE.get(defect, 0) + 1, LIMIT):
        if played(seed)[0]:
            return
    pytest.fail(f"{LIMIT} histories, and nothing was found")
