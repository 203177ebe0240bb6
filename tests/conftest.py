"""Fixtures that several folders share."""

from __future__ import annotations

import os
from collections.abc import Iterator

import pytest

if os.environ.get("COVERAGE_PROCESS_START"):  # a worker of the gate: measured from before the product is imported
    import coverage

    coverage.process_startup()

from tests.bench import Bench, running_bench


@pytest.fixture
def bench() -> Iterator[Bench]:
    """A daemon whose chips are in a process of their own."""
    with running_bench() as made:
        yield made
