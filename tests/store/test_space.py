"""Room on the disk: the mark below which nothing is begun, and the ballast for the outcomes of what was."""

from __future__ import annotations

import os
import shutil
import subprocess
import tempfile
from collections.abc import Iterator
from pathlib import Path

import pytest

from hwtool_store import operations as ops
from hwtool_store import space
from hwtool_store.space import BALLAST_BYTES, MARK_BYTES, MIB, RESERVE_BYTES, Space
from tests.store.conftest import NEW, do, started


class Disk:
    """A disk whose free space a test sets."""

    def __init__(self) -> None:
        self.free = 1 << 40

    def __call__(self, _: Path) -> int:
        return self.free


@pytest.fixture
def disk(monkeypatch: pytest.MonkeyPatch) -> Disk:
    made = Disk()
    monkeypatch.setattr(space, "free_bytes", made)
    return made


@pytest.mark.parametrize(
    ("free", "low"), [(MARK_BYTES, False), (MARK_BYTES - 1, True), (0, True), (1 << 40, False)], ids=str
)
def test_mark_when_asked_then_low_below_it_and_it_says_where_and_how_much(
    tmp_path: Path, disk: Disk, free: int, low: bool
) -> None:
    disk.free = free
    told = Space(tmp_path).low()
    assert (told is not None) == low
    if told is not None:
        assert str(tmp_path) in told
        assert f"{free // MIB} MiB" in told


def test_ballast_when_the_disk_fills_then_given_up_once_and_made_again_when_there_is_room(
    tmp_path: Path, disk: Disk
) -> None:
    room = Space(tmp_path)

    def ballast_with(free: int) -> int:
        disk.free = free
        room.prepare()
        return (tmp_path / "ballast").stat().st_size

    assert ballast_with(1 << 40) == BALLAST_BYTES
    assert (tmp_path / "ballast").stat().st_mode & 0o777 == 0o600
    assert ballast_with(RESERVE_BYTES) == BALLAST_BYTES  # not yet
    assert [ballast_with(RESERVE_BYTES - 1) for _ in range(2)] == [0, 0]
    again = MARK_BYTES + 2 * BALLAST_BYTES
    assert ballast_with(again - 1) == 0  # it would be below the mark again at once
    assert ballast_with(again) == BALLAST_BYTES


def test_ballast_when_it_cannot_be_made_then_the_store_goes_on_without(
    tmp_path: Path, disk: Disk, monkeypatch: pytest.MonkeyPatch
) -> None:
    def refuse(*_: int) -> None:
        raise OSError(95, "not supported")

    monkeypatch.setattr(os, "posix_fallocate", refuse)
    store = started(tmp_path / "store")
    assert do(store, ops.t1_intent, NEW, {"what": "intent"}) == 1
    store.close()


def test_store_when_the_disk_fills_between_intent_and_outcome_then_the_ballast_makes_room(
    tmp_path: Path, disk: Disk
) -> None:
    store = started(tmp_path / "store")
    do(store, ops.t1_intent, NEW, {"what": "intent"})
    assert (tmp_path / "store" / "ballast").stat().st_size == BALLAST_BYTES
    disk.free = 0
    assert store.low_space() is not None
    do(store, ops.t2_done, 1, "applied", {"effects": "applied"}, {}, 200, {"what": "outcome"})
    assert (tmp_path / "store" / "ballast").stat().st_size == 0
    store.close()


@pytest.fixture
def small_disk() -> Iterator[Path]:
    """A file system of 64 MiB of its own."""
    if os.getuid() != 0:
        pytest.skip("mounting a file system of its own needs root")
    directory = Path(tempfile.mkdtemp(prefix="hw-small-", dir="/tmp"))
    mounted = subprocess.run(
        ["mount", "-t", "tmpfs", "-o", "size=64m", "tmpfs", str(directory)], capture_output=True, text=True, check=False
    )
    if mounted.returncode != 0:
        directory.rmdir()
        pytest.skip(f"no file system can be mounted here: {mounted.stderr.strip()}")
    try:
        yield directory
    finally:
        subprocess.run(["umount", str(directory)], check=True)
        directory.rmdir()


def test_store_when_somebody_else_fills_a_real_disk_then_the_outcome_is_still_recorded(small_disk: Path) -> None:
    store = started(small_disk / "store")
    do(store, ops.t1_intent, NEW, {"what": "intent"})
    assert store.low_space() is None
    with (small_disk / "somebody-elses").open("wb", buffering=0) as filler:
        block = bytes(MIB)
        try:
            while True:
                filler.write(block)
        except OSError:
            pass
    assert shutil.disk_usage(small_disk).free < MIB
    assert store.low_space() is not None
    do(store, ops.t2_done, 1, "applied", {"effects": "applied"}, {}, 200, {"what": "outcome"})
    assert not store.failed
    (small_disk / "somebody-elses").unlink()
    do(store, ops.note, {"what": "noted"})
    assert (small_disk / "store" / "ballast").stat().st_size == 0 or store.low_space() is None
    store.close()
    again = started(small_disk / "store")
    row = do(again, ops.get, 1)
    assert row is not None
    assert (row.state, row.verdict) == ("DONE", "applied")
    again.close()
