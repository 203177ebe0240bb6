"""Fixtures that several folders share."""

from __future__ import annotations

import os
from collections.abc import Iterator
from typing import Any

import pytest

if "HWTOOL_COVERAGE" in os.environ:  # a worker of the gate: measured from before the product is imported
    import coverage

    os.environ["COVERAGE_PROCESS_START"] = os.environ["HWTOOL_COVERAGE"]
    measuring: Any = coverage.process_startup()
    del os.environ["COVERAGE_PROCESS_START"]  # of this process alone: those that it starts are not measured
else:
    measuring = None

from tests.bench import Bench, running_bench


@pytest.fixture(autouse=True, scope="module")
def measured_or_not(request: pytest.FixtureRequest) -> Iterator[None]:
    """Modules that say `UNMEASURED = True` do the same some thousand times: lines tell nothing of it, and cost half.

    So do the lines of a test of the simulator, for which there is no floor.
    """
    unasked = getattr(request.module, "UNMEASURED", False) or request.path.parent.name == "sim"
    left_out = measuring is not None and unasked
    if left_out:
        measuring.stop()
    yield
    if left_out:
        measuring.start()


@pytest.fixture
def bench() -> Iterator[Bench]:
    """A daemon whose chips are in a process of their own."""
    with running_bench() as made:
        yield made
