"""The corpus of real register descriptions: no part of the product, so whatever needs it says so and is skipped."""

from __future__ import annotations

import os
from pathlib import Path

import pytest

TOP = Path(__file__).parent.parent


def corpus() -> Path | None:
    """`$HWTOOL_CORPUS`, else `../shared/corpus` beside the checkout; None if it is not there."""
    own = os.environ.get("HWTOOL_CORPUS")
    found = Path(own) if own else TOP.parent / "shared" / "corpus"
    return found if found.is_dir() else None


def corpus_file(name: str) -> Path:
    """A file of the corpus; the test is skipped, with the reason, if it is not there."""
    where = corpus()
    if where is None:
        pytest.skip("no corpus: set HWTOOL_CORPUS, or put it at ../shared/corpus beside the checkout")
    path = where / name
    if not path.is_file():
        pytest.skip(f"the corpus at {where} has no {name}")
    return path


def svd_files() -> list[Path]:
    """All SVD files of the corpus, sorted; empty without a corpus."""
    where = corpus()
    return [] if where is None else sorted((where / "svd").rglob("*.svd"))
