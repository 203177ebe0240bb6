"""Short versions of the soak and of the fuzzing of the socket; the long ones are scripts beside them."""

from __future__ import annotations

import pytest

from tests.fuzz_socket import fuzz
from tests.soak import FAULTS, soak


@pytest.mark.timeout(300)
def test_soak_when_faults_and_kills_come_at_random_then_everybody_tells_the_same_story() -> None:
    told, faults, killed = soak(120, seed=20261130, pause_s=0.25)  # it is not alone on the machine
    assert killed >= 4
    assert set(faults) == set(FAULTS)
    assert len(told.outcomes) > 200
    assert {"done", "outcome_unknown", "held"} <= set(told.counted)


@pytest.mark.timeout(300)
def test_socket_when_fuzzed_then_it_lives_answers_and_keeps_nothing() -> None:
    found, memory = fuzz(1000, seed=11)
    assert found.wrong == []
    assert memory["after"][1] < memory["before"][1] * 1.5
    assert {"invalid_args", "raw", "noise", "half a request"} <= set(found.counted)
