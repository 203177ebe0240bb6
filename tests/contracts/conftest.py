"""The cache of compiled contracts is a directory of the test: nothing is read from, or left in, the user's own."""

from __future__ import annotations

from pathlib import Path

import pytest


@pytest.fixture(autouse=True)
def own_cache(tmp_path_factory: pytest.TempPathFactory, monkeypatch: pytest.MonkeyPatch) -> Path:
    """The cache directory of this test, empty."""
    path: Path = tmp_path_factory.mktemp("cache")
    monkeypatch.setenv("HWTOOL_CACHE_DIR", str(path))
    return path
