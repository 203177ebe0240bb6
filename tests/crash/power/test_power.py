"""Power cuts in the gate: a thousand images and thirty real starts, and the defects that they must find."""

from __future__ import annotations

import re
import subprocess
import sys
from pathlib import Path
from typing import Final

import pytest

from tests.crash.disk.sweep import compiler
from tests.crash.power.images import Disk, Event, parsed

TOP: Final = Path(__file__).parent.parent.parent.parent
LIMIT_S: Final = 280
needs_compiler = pytest.mark.skipif(compiler() is None, reason="no C compiler (cc): the disk cannot be recorded")


def cut(*words: str) -> subprocess.CompletedProcess[str]:
    """The harness in processes of its own."""
    command = [sys.executable, "-m", "tests.crash.power.cut", *words]
    return subprocess.run(command, cwd=TOP, capture_output=True, text=True, timeout=LIMIT_S, check=False)


@needs_compiler
@pytest.mark.timeout(LIMIT_S + 20)
def test_power_when_cut_at_any_moment_then_nothing_sent_looks_fresh_and_every_answer_is_on_disk() -> None:
    ended = cut("--every", "14")
    assert ended.returncode == 0, ended.stdout + ended.stderr
    told = re.search(r"(\d+) syncs, (\d+) images, (\d+) starts, 0 violations", ended.stdout)
    assert told is not None, ended.stdout
    assert (int(told[1]) >= 30, int(told[2]) >= 1000, int(told[3])) == (True, True, 30)


# NORMAL in place of EXTRA is one of the defects of tests.crash.mutants, in the product itself
FOUND: Final = {"OFF": "SENT WITHOUT INTENT", "reply": "ANSWERED, NOT DURABLE"}


@needs_compiler
@pytest.mark.timeout(LIMIT_S + 20)
@pytest.mark.parametrize("fault", FOUND)
def test_power_when_the_store_has_a_defect_that_kills_cannot_see_then_it_is_found(fault: str) -> None:
    ended = cut("--every", "80", "--starts", "0", "--fault", fault, "--until", FOUND[fault])
    assert ended.returncode == 1, ended.stdout + ended.stderr
    assert FOUND[fault] in ended.stdout, ended.stdout


# --- the images themselves --------------------------------------------------------------------------------------------


def left(*events: Event) -> set[tuple[tuple[str, bytes], ...]]:
    """Every directory that a power cut may leave after these events."""
    import random

    disk = Disk()
    for event in events:
        disk.happen(event)
    return {tuple(sorted(image.items())) for image in disk.images(random.Random(1))}


def test_images_when_a_write_is_not_synced_then_with_it_and_without() -> None:
    born = (Event("C", "a"), Event("S", ""))
    assert left(*born, Event("W", "a", 0, b"x")) == {(("a", b""),), (("a", b"x"),)}
    assert left(*born, Event("W", "a", 0, b"x"), Event("S", "a")) == {(("a", b"x"),)}


def test_images_when_two_writes_are_not_synced_then_the_second_may_be_there_alone() -> None:
    both = left(Event("C", "a"), Event("S", ""), Event("W", "a", 0, b"x"), Event("W", "a", 1, b"y"))
    assert {image[0][1] for image in both} == {b"", b"x", b"xy", b"\0y"}


def test_images_when_a_long_write_is_not_synced_then_it_may_be_torn_at_a_sector() -> None:
    torn = left(Event("C", "a"), Event("S", ""), Event("W", "a", 0, b"z" * 2048))
    assert {len(image[0][1]) for image in torn} == {0, 512, 1024, 2048}


def test_images_when_a_name_is_not_synced_then_with_it_and_without() -> None:
    events = (Event("C", "a"), Event("W", "a", 0, b"x"), Event("S", "a"), Event("R", "a", other="b"))
    assert left(*events) == {(), (("b", b"x"),)}
    assert left(*events, Event("S", "")) == {(("b", b"x"),)}
    assert left(*events, Event("S", ""), Event("U", "b")) == {(), (("b", b"x"),)}


def test_record_when_read_then_names_are_relative_and_bytes_may_hold_anything() -> None:
    record = b"C /d/a\nW /d/a 3 4\nx\ny\nT /d/a 5\nS /d\nR /d/a\t/d/b\nM dispatch 1\n"
    assert parsed(record, "/d") == [
        Event("C", "a"),
        Event("W", "a", 3, b"x\ny\n"),
        Event("T", "a", 5),
        Event("S", ""),
        Event("R", "a", other="b"),
        Event("M", "dispatch 1"),
    ]
