"""Fixtures that several folders share."""

from __future__ import annotations

import os
from collections.abc import Iterator

import pytest

if "HWTOOL_COVERAGE" in os.environ:  # a worker of the gate: measured from before the product is imported
    import coverage

    os.environ["COVERAGE_PROCESS_START"] = os.environ["HWTOOL_COVERAGE"]
    coverage.process_startup()
    del os.environ["COVERAGE_PROCESS_START"]  # of this process alone: those that it starts are not measured

from tests.bench import Bench, running_bench


@pytest.fixture
def bench() -> Iterator[Bench]:
    """A daemon whose chips are in a process of their own."""
    with running_bench() as made:
        yield made
