"""Defects that the model-based test found (tests.model), each with its story."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

from tests.hwtool.conftest import KEY, Lab, Play, reg, toy_board

STORED = "STILL = { bits = 0 }"
BESIDE = {
    "volatile": "OTHER = { bits = 7, volatile = true }",
    "pulse": "OTHER = { bits = 7, write = { effect = 'pulse', provenance = 'generated' } }",
}


@pytest.mark.parametrize("beside", BESIDE)
def test_write_when_nothing_shows_a_bit_that_it_acts_on_then_that_the_others_are_as_they_were_is_not_no_effect(
    play: Play, tmp_path: Path, beside: str
) -> None:
    """It was `satisfied`, effects none: the stored bit had not changed, and the other was taken for part of that."""
    fields = f"fields = {{ {STORED}, {BESIDE[beside]} }}"
    write = "write = { effect = 'store', verify = 'read_back', provenance = 'generated' }"

    async def life(lab: Lab) -> None:
        asked: dict[str, Any] = {"register": "toy.R", "value": 0x80, "key": KEY}
        result = await lab.ask("reg.write", **asked)
        assert (result.ok, result.verdict, result.effects) == (True, "applied", "unknown")
        assert (lab.writes("R"), lab.reads("R")) == (
            1,
            2,
        )  # one look before and one after: to look longer tells no more

    play(life, toy_board(tmp_path, reg("R", 0, f"reset = 0\n{write}\n{fields}")))


def test_write_when_all_that_it_acts_on_is_seen_to_be_as_it_was_then_it_is_satisfied(
    play: Play, tmp_path: Path
) -> None:
    fields = f"fields = {{ {STORED}, {BESIDE['pulse']} }}"

    async def life(lab: Lab) -> None:
        result = await lab.ask("reg.write", register="toy.R", value=0x01, key=KEY)
        assert (result.ok, result.verdict, result.effects) == (True, "satisfied", "none")

    play(life, toy_board(tmp_path, reg("R", 0, f"reset = 1\n{fields}")))
