"""The gate's two thousand examples, the same each time: `python -m tests.model` plays others, as many as you like."""

from __future__ import annotations

from typing import Final

import pytest

from tests.model.running import played

UNMEASURED = True  # see tests/conftest.py
EXAMPLES: Final = 500
SEEDS: Final = (1, 2, 3, 4)
AT_LEAST: Final = {  # so that a machine that does nothing any more does not pass; well below what there is
    "accesses with an effect": 400,
    "agreed": 5,
    "clean reads": 200,
    "crashes": 80,
    "faults struck": 40,
    "keyed requests": 1200,
    "keyed requests at once": 150,
    "restarts": 150,
    "settled by a person": 1,
    "settled by rule": 5,
    "stores that failed": 20,
    "unknown outcomes": 40,
}


@pytest.mark.parametrize("first", SEEDS)
def test_model_when_it_is_played_then_the_promise_is_kept(first: int) -> None:
    counts = played(EXAMPLES, first)
    assert counts["examples"] >= EXAMPLES
    assert {what: counts[what] for what, least in AT_LEAST.items() if counts[what] < least} == {}


def test_model_when_a_seed_is_played_again_then_the_same_happens() -> None:
    assert played(30, 7) == played(30, 7)
