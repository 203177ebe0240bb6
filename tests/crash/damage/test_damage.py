"""A bad disk in the gate: two hundred places and every frame, and the defect that it must find."""

from __future__ import annotations

import re
import subprocess
import sys
from pathlib import Path
from typing import Final

TOP: Final = Path(__file__).parent.parent.parent.parent
LIMIT_S: Final = 110


def flip(*words: str) -> subprocess.CompletedProcess[str]:
    """The harness in a process of its own."""
    command = [sys.executable, "-m", "tests.crash.damage.flip", *words]
    return subprocess.run(command, cwd=TOP, capture_output=True, text=True, timeout=LIMIT_S, check=False)


def test_store_when_bits_are_flipped_and_files_cut_off_then_refused_or_harmless_and_no_used_key_looks_fresh() -> None:
    ended = flip("--offsets", "400")
    assert ended.returncode == 0, ended.stdout + ended.stderr
    told = re.search(r"(\d+) damages: (\d+) fatal, (\d+) harmless, (\d+) refused; 0 wrong", ended.stdout)
    assert told is not None, ended.stdout
    assert int(told[1]) >= 900
    assert all(int(number) > 0 for number in told.groups())


def test_flip_when_one_index_of_keys_is_asked_instead_of_two_then_it_is_found() -> None:
    ended = flip("--fault")
    assert ended.returncode == 1, ended.stdout + ended.stderr
    assert "FRESH: power-" in ended.stdout
