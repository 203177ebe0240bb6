"""A fresh bench for each test; processes that several share end with the session."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from pathlib import Path

import pytest

from tests.conformance.bench import Bench, Room
from tests.conformance.shared import end_all


@pytest.fixture(scope="session", autouse=True)
def nothing_is_left_running() -> Iterator[None]:
    """Ends what `shared` keeps."""
    yield
    end_all()


@pytest.fixture
def made(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[Callable[[type[Bench]], Bench]]:
    """Makes benches, and ends them."""
    there: list[Bench] = []

    def make(kind: type[Bench]) -> Bench:
        why = kind.missing()
        if why is not None:
            pytest.skip(why)
        folder = tmp_path / str(len(there))
        folder.mkdir()
        there.append(kind(Room(folder, monkeypatch)))
        return there[-1]

    yield make
    for bench in there:
        bench.close()
