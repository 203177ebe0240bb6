"""The machine finds what it is there to find: each defect within a bounded number of examples, without shrinking."""

from __future__ import annotations

import pytest

from tests.model.running import played
from tests.model.sabotages import SABOTAGES

UNMEASURED = True  # see tests/conftest.py
MOST = 600  # examples until it must have been found
SEED = 4  # one that shows each early


@pytest.mark.parametrize("sabotage", SABOTAGES)
def test_model_when_the_product_is_sabotaged_then_it_is_found(sabotage: str, monkeypatch: pytest.MonkeyPatch) -> None:
    SABOTAGES[sabotage](monkeypatch)
    with pytest.raises(AssertionError, match=r"model-key|without a request|was read without a key|is told as"):
        played(MOST, SEED, shrink=False)
