"""A disk that fails at every write and sync in turn, its control, and what a start says of a disk that fails."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path
from typing import Final

import pytest

from tests.crash.disk.sweep import SCENES, compiler
from tests.running import LIMIT_S, RunningDaemon

TOP: Final = Path(__file__).parent.parent.parent.parent
SWEEP_LIMIT_S: Final = 280

needs_compiler = pytest.mark.skipif(compiler() is None, reason="no C compiler (cc): the disk cannot be made to fail")


def sweep(*words: str) -> subprocess.CompletedProcess[str]:
    """The harness in processes of its own."""
    command = [sys.executable, "-m", "tests.crash.disk.sweep", *words]
    return subprocess.run(command, cwd=TOP, capture_output=True, text=True, timeout=SWEEP_LIMIT_S, check=False)


FEWEST_FAILURES: Final = {"operation": 80, "start after a crash": 40, "first start": 10}


@needs_compiler
@pytest.mark.timeout(SWEEP_LIMIT_S + 20)
@pytest.mark.parametrize("scene", SCENES)
def test_disk_when_it_fails_at_any_call_then_refused_or_finished_and_nothing_runs_twice(scene: str) -> None:
    ended = sweep("--gate", "--scene", scene)
    assert ended.returncode == 0, ended.stdout + ended.stderr
    struck = int(ended.stdout.splitlines()[-1].partition("failed in ")[2].partition(",")[0])
    assert struck >= FEWEST_FAILURES[scene]  # the shim did strike


@needs_compiler
@pytest.mark.timeout(SWEEP_LIMIT_S + 20)
def test_sweep_when_the_product_answers_what_it_could_not_record_then_it_is_found() -> None:
    ended = sweep("--scene", "operation", "--only", "operation / pop with a level / EIO / 2", "--fault")
    assert ended.returncode == 1, ended.stdout + ended.stderr
    assert "was answered ('applied', 'applied', True" in ended.stdout
    assert "its row is DONE lost" in ended.stdout


FAILING_DISK: Final = """
import sqlite3
from hwtool import engine
from hwtool.__main__ import main

def failing(*_):
    raise sqlite3.OperationalError("disk I/O error")

engine.set_meta_once = failing
main()
"""


def test_start_when_the_disk_fails_under_its_writer_then_one_sentence_and_no_traceback(tmp_path: Path) -> None:
    launcher = tmp_path / "failing_disk.py"
    launcher.write_text(FAILING_DISK)
    daemon = RunningDaemon()
    try:
        ended = subprocess.run(
            [sys.executable, str(launcher), *daemon.arguments()],
            capture_output=True,
            text=True,
            timeout=LIMIT_S,
            check=False,
        )
    finally:
        daemon.__exit__(None, None, None)
    assert ended.returncode == 70
    assert "disk I/O error" in ended.stderr
    assert "Traceback" not in ended.stderr
