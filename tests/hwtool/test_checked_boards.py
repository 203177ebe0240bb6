"""Boards that `hwtool check --board` passes: the bench, a vendor's file with its overlay, a chip of one's own."""

from __future__ import annotations

from pathlib import Path

import pytest

from hwtool.bench import bench
from hwtool.checks.board import check_board
from hwtool.checks.findings import GUARANTEES, Outcome, Report
from hwtool.config import load_board, parse_board
from tests.corpus import corpus_file
from tests.surface.test_proofs import typed

EXAMPLE = Path(__file__).parents[2] / "docs" / "examples" / "bench.toml"
PARTS = ("UART0", "SIO", "TIMER", "I2C0")  # the spinlocks are registers of SIO


def held(report: Report) -> set[tuple[str, str]]:
    return {(f.place, f.guarantee) for f in report.findings if f.outcome is Outcome.HELD}


def failed(report: Report) -> list[str]:
    return [f"{f.place} {f.guarantee}: {f.told}" for f in report.findings if f.outcome is Outcome.FAILED]


def test_bench_when_checked_then_it_passes() -> None:
    report = check_board(bench())
    assert (report.passed, failed(report)) == (True, [])
    assert {("uart.RHR", "burst_once"), ("rtc.TIME", "in_order"), ("gpio.OLAT", "once")} <= held(report)


def test_board_of_a_vendors_file_when_checked_with_its_overlay_then_it_passes(tmp_path: Path) -> None:
    """RP2040: a UART's FIFO, spinlocks that reads claim, a timer with latched halves, I2C's acknowledging reads."""
    file = corpus_file("svd/RP2040.svd")
    devices = "".join(
        f"[devices.{part.lower()}]\ncontract = '{file}'\noverlays = ['rp2040']\nbus = 'b'\npart = '{part}'\n"
        for part in PARTS
    )
    board = parse_board(f"name = 'pico'\n[buses.b]\nkind = 'sim'\nsole_master = true\n{devices}", "pico", tmp_path)
    report = check_board(board)
    assert (report.passed, failed(report)) == (True, [])
    once = {place for place, guarantee in held(report) if guarantee == "once"}
    assert {f"sio.SPINLOCK{n}" for n in range(32)} | {"uart0.UARTDR", "timer.TIMELR"} <= once
    assert {"i2c0.IC_CLR_INTR", "i2c0.IC_CLR_TX_ABRT", "sio.GPIO_OUT_XOR.GPIO_OUT_XOR"} <= once
    assert ("timer.TIME", "in_order") in held(report)


@pytest.mark.parametrize("guarantee", sorted(set(GUARANTEES) - {"loads_well", "scenario"}))
def test_board_of_ones_own_chip_when_checked_then_each_guarantee_is_kept_somewhere(guarantee: str) -> None:
    assert guarantee in {name for _, name in held(_own())}


def test_board_of_ones_own_chip_when_checked_then_it_passes() -> None:
    assert (_own().passed, failed(_own())) == (True, [])
    done = typed("check", "--board", str(EXAMPLE))
    assert (done.returncode, done.stdout.splitlines()[-1][:5]) == (0, "PASS:"), done.stdout + done.stderr
    assert typed("board", "lint", str(EXAMPLE)).returncode == 0


_checked: list[Report] = []


def _own() -> Report:
    """The example, checked once."""
    if not _checked:
        _checked.append(check_board(load_board(EXAMPLE)))
    return _checked[0]
