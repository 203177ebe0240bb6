"""Bursts longer than one transfer: chunk by chunk, each on record before the next is taken."""

from __future__ import annotations

import sqlite3
from pathlib import Path
from typing import Any

import pytest

from hwtool.config import Board
from hwtool_contracts.toml_reader import Faults
from hwtool_registers.bus import RegisterRead, Transfer
from hwtool_sim.bus import SimBus, Taken
from hwtool_sim.faults import FaultKind
from hwtool_store import operations
from tests.hwtool.conftest import I2C, KEY, Lab, Play, code_of, effect, error_of, evidence_of, raws, reg, toy_board

LEVEL = reg("LEVEL", 1, "reset = 0", "ro")
BURST: dict[str, Any] = {"register": "toy.FIFO", "key": KEY, "count": 5}


def board_of(tmp_path: Path, rest: str = "", *more: str, **keys: Any) -> Board:
    fifo = reg("FIFO", 0, effect("pop", f", level = 'LEVEL', max_burst = 2{rest}"), "ro")
    return toy_board(tmp_path, fifo, LEVEL, *more, **keys)


def taken_of(lab: Lab) -> list[int]:
    """Sizes of the reads of the FIFO that were sent, in order."""
    return [t.size_bytes for t in lab.bus().log if isinstance(t, RegisterRead) and t.offset == 0]


def test_burst_when_longer_than_one_transfer_then_in_chunks_and_every_element_is_answered(
    play: Play, tmp_path: Path
) -> None:
    async def life(lab: Lab) -> None:
        lab.chip().push("FIFO", b"abcdefg")
        plan = await lab.ask(
            "reg.plan", method="reg.read_effectful", params={k: BURST[k] for k in ("register", "count")}
        )
        assert [t["size_bytes"] for t in plan.transfers or [] if t["register"] == "FIFO"] == [2, 2, 1]
        done = await lab.ask("reg.read_effectful", **BURST)
        assert (done.ok, raws(done), evidence_of(done)["chunk"]) == (True, ["0x61", "0x62", "0x63", "0x64", "0x65"], 2)
        assert taken_of(lab) == [2, 2, 1]
        row = await lab.row()
        data = await lab.daemon.ask(lambda conn: operations.data_of(conn, row.op_id))
        assert data == [b"ab", b"cd", b"e"]
        again = await lab.ask("reg.read_effectful", **BURST)
        assert (again.replayed, raws(again), taken_of(lab)) == (True, raws(done), [2, 2, 1])

    play(life, board_of(tmp_path))


def test_chunk_when_the_next_is_taken_then_the_one_before_is_on_record(
    play: Play, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    seen: list[list[bytes]] = []
    real = SimBus.take

    async def life(lab: Lab) -> None:
        lab.chip().push("FIFO", b"abcde")

        def taking(bus: SimBus, transfer: Transfer) -> Taken:
            if isinstance(transfer, RegisterRead) and transfer.offset == 0:
                seen.append(recorded(lab))
            return real(bus, transfer)

        monkeypatch.setattr(SimBus, "take", taking)
        assert (await lab.ask("reg.read_effectful", **BURST)).ok
        assert seen == [[], [b"ab"], [b"ab", b"cd"]]

    play(life, board_of(tmp_path))


def recorded(lab: Lab) -> list[bytes]:
    """The store's own committed rows; the writer's thread is idle while the event loop carries a transfer."""
    conn = lab.daemon.store._conn
    assert not conn.in_transaction
    return [row[0] for row in conn.execute("SELECT data FROM op_data ORDER BY chunk")]


def test_reply_when_lost_in_the_second_chunk_then_the_first_is_answered_and_the_loss_is_the_chunk(
    play: Play, tmp_path: Path
) -> None:
    async def life(lab: Lab) -> None:
        lab.chip().push("FIFO", b"abcdefg")
        lab.fault(FaultKind.REPLY_LOST, access="read", offset=0, skip=1)
        unknown = await lab.ask("reg.read_effectful", **BURST)
        assert (code_of(unknown), raws(unknown), taken_of(lab)) == ("outcome_unknown", ["0x61", "0x62"], [2, 2])
        await lab.rules_ran()
        settled = await lab.ask("op.get", key=KEY)
        assert (settled.verdict, settled.effects, raws(settled)) == ("lost", "applied", ["0x61", "0x62"])
        assert error_of(settled)["bound"] == "2"
        assert lab.device().unknown == {}

    play(life, board_of(tmp_path))


def test_request_when_lost_in_the_second_chunk_then_partial_with_the_first(play: Play, tmp_path: Path) -> None:
    async def life(lab: Lab) -> None:
        lab.chip().push("FIFO", b"abcdefg")
        lab.fault(FaultKind.REQUEST_LOST, access="read", offset=0, skip=1)
        await lab.ask("reg.read_effectful", **BURST)
        await lab.rules_ran()
        settled = await lab.ask("op.get", key=KEY)
        assert (settled.verdict, settled.effects, raws(settled)) == ("partial", "applied", ["0x61", "0x62"])

    play(life, board_of(tmp_path))


def test_loss_when_nothing_shows_it_and_the_board_reports_then_the_bound_is_the_chunk(
    play: Play, tmp_path: Path
) -> None:
    blind = reg("FIFO", 0, effect("pop", ", max_burst = 2"), "ro")

    async def life(lab: Lab) -> None:
        lab.chip().push("FIFO", b"abcdefg")
        lab.fault(FaultKind.REPLY_LOST, access="read", offset=0, skip=1)
        await lab.ask("reg.read_effectful", **BURST)
        await lab.rules_ran()
        settled = await lab.ask("op.get", key=KEY)
        assert (settled.verdict, raws(settled), error_of(settled)["bound"]) == ("lost", ["0x61", "0x62"], "0..2")

    play(life, toy_board(tmp_path, blind, device="on_loss = 'report'"))


@pytest.mark.parametrize(
    ("failure", "code", "durable"),
    [
        (sqlite3.OperationalError("disk I/O error"), "store_failed", False),
        (ValueError("a defect of one job"), "not_applied", True),
    ],
    ids=["the disk", "a defect"],
)
def test_chunk_when_it_cannot_be_kept_then_no_more_is_taken_and_it_is_answered(
    play: Play, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, failure: Exception, code: str, durable: bool
) -> None:
    real, failing = operations.keep, [failure]

    def keeping(*arguments: Any) -> None:
        if failing:
            raise failing.pop()
        real(*arguments)

    async def life(lab: Lab) -> None:
        lab.chip().push("FIFO", b"abcdefg")
        monkeypatch.setattr(operations, "keep", keeping)
        answered = await lab.ask("reg.read_effectful", **BURST)
        assert (taken_of(lab), raws(answered), code_of(answered)) == ([2], ["0x61", "0x62"], code)
        assert (lab.daemon.failed, answered.effects, answered.durable) == (not durable, "applied", durable)

    play(life, board_of(tmp_path))


def test_burst_when_a_safe_state_comes_between_two_chunks_then_no_more_is_taken(
    play: Play, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    async def life(lab: Lab) -> None:
        lab.chip().push("FIFO", b"abcdefg")
        real = operations.keep

        def keeping(*arguments: Any) -> None:
            real(*arguments)
            lab.device().lock.alarms += 1  # it has been asked for

        monkeypatch.setattr("hwtool.execution.operations.keep", keeping)
        ended = await lab.ask("reg.read_effectful", **BURST)
        assert (ended.verdict, raws(ended), taken_of(lab)) == ("partial", ["0x61", "0x62", "0x63", "0x64"], [2, 2])

    play(life, board_of(tmp_path, "", reg("OUT", 4), device="safe_state = [{ register = 'OUT', value = 0 }]"))


def test_burst_when_the_device_restarts_between_two_chunks_then_no_more_is_taken(
    play: Play, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    real = operations.keep

    async def life(lab: Lab) -> None:
        lab.chip().push("FIFO", b"abcdefg")

        def keeping(*arguments: Any) -> None:
            real(*arguments)
            lab.chip().reset()

        monkeypatch.setattr(operations, "keep", keeping)
        ended = await lab.ask("reg.read_effectful", **BURST)
        # the restart is seen before the third chunk: the second one came from whatever the FIFO held by then
        assert (ended.verdict, ended.effects, len(taken_of(lab))) == ("partial", "applied", 2)
        assert raws(ended)[:2] == ["0x61", "0x62"]

    play(life, board_of(tmp_path))


def test_settle_when_a_chunk_is_on_record_then_not_as_if_nothing_were_taken(play: Play, tmp_path: Path) -> None:
    blind = reg("FIFO", 0, effect("pop", ", max_burst = 2"), "ro")

    async def life(lab: Lab) -> None:
        lab.chip().push("FIFO", b"abcdefg")
        lab.fault(FaultKind.REPLY_LOST, access="read", offset=0, skip=1)
        await lab.ask("reg.read_effectful", **BURST)
        await lab.rules_ran()
        unknown = await lab.ask("op.get", key=KEY)
        assert raws(unknown) == ["0x61", "0x62"]
        words = {"id": unknown.id, "reason": "seen"}
        refused = await lab.operator("op.settle", **words, verdict="not_applied")
        assert (code_of(refused), error_of(refused)["rule"]) == ("refused", "values_on_record")
        assert (await lab.operator("op.settle", **words, verdict="lost")).ok
        settled = await lab.ask("op.get", key=KEY)
        assert (settled.verdict, raws(settled)) == ("lost", ["0x61", "0x62"])

    play(life, toy_board(tmp_path, blind))


def test_fifo_when_an_access_is_wider_than_its_elements_then_the_contract_is_refused(tmp_path: Path) -> None:
    fifo = reg("FIFO", 0, effect("pop", ", max_burst = 4") + "\naccess_bits = 32", "ro")
    with pytest.raises(Faults, match="wider than an element that reading pops"):
        toy_board(tmp_path, fifo, head=I2C)


def test_burst_when_in_a_bank_then_each_chunk_selects_it_and_sets_it_back(play: Play, tmp_path: Path) -> None:
    fifo = reg("FIFO", 0, effect("pop", ", max_burst = 2") + "\nbank = 'B'", "ro")
    bank = "[banks.B]\nselect = [{ register = 'SEL', value = 1, mask = 1 }]\nrestore = 'prior'\n"

    async def life(lab: Lab) -> None:
        lab.chip().push("FIFO", b"abc")
        done = await lab.ask("reg.read_effectful", register="toy.FIFO", key=KEY, count=3)
        assert (done.ok, raws(done)) == (True, ["0x61", "0x62", "0x63"])
        sent = [(t["do"], t["offset"], t.get("data", t.get("size_bytes"))) for t in lab.sent()]
        burst = sent[next(i for i, s in enumerate(sent) if s[0] == "write") :]
        assert burst == [
            *(("write", "0x08", "01"), ("read", "0x00", 2), ("write", "0x08", "00")),
            *(("write", "0x08", "01"), ("read", "0x00", 1), ("write", "0x08", "00")),
        ]

    play(life, toy_board(tmp_path, fifo, reg("SEL", 8), bank))


def test_burst_when_elements_are_longer_than_a_read_then_a_chunk_holds_whole_ones(play: Play, tmp_path: Path) -> None:
    fifo = reg("FIFO", 0, effect("pop", ", max_burst = 5, element_bytes = 2"), "ro")

    async def life(lab: Lab) -> None:
        lab.chip().push("FIFO", b"abcdefgh")
        assert (await lab.ask("reg.read_effectful", register="toy.FIFO", key=KEY, count=8)).ok
        assert taken_of(lab) == [4, 4]

    play(life, toy_board(tmp_path, fifo))


def test_burst_when_the_contract_declares_none_then_refused(play: Play, tmp_path: Path) -> None:
    async def life(lab: Lab) -> None:
        refused = await lab.ask("reg.read_effectful", register="toy.FIFO", key=KEY, count=2)
        assert (code_of(refused), error_of(refused)["rule"], taken_of(lab)) == ("refused", "max_burst", [])

    play(life, toy_board(tmp_path, reg("FIFO", 0, effect("pop"), "ro")))
