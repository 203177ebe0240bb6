"""Fixtures that several folders share."""

from __future__ import annotations

from collections.abc import Iterator

import pytest

from tests.bench import Bench, running_bench


@pytest.fixture
def bench() -> Iterator[Bench]:
    """A daemon whose chips are in a process of their own."""
    with running_bench() as made:
        yield made
