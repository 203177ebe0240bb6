"""The suite that each bus passes: every trouble on the wire, and what the bus makes of it."""

from __future__ import annotations

from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from dataclasses import replace
from pathlib import Path
from typing import Final

import pytest

from hwtool_contracts.model import Space
from hwtool_registers.bus import (
    Answer,
    Capabilities,
    Closes,
    Confirmed,
    Declares,
    Line,
    Message,
    Opens,
    RegisterRead,
    RegisterWrite,
    Rejected,
    Transfer,
)
from tests.conformance.bench import NEVER_SENT, VANISHED, Access, Bench, Trouble, demand_of
from tests.conformance.table import benches, table
from tests.registers.scripted_server import until

AT_ONCE_S: Final = 20.0  # far below the patience of a bench, far above what a busy machine takes
BENCHES: Final = benches()
Make = Callable[[type[Bench]], Bench]


def cases(*troubles: Trouble, defects: bool = True) -> pytest.MarkDecorator:
    """Each bench with each of these troubles that it has, at a read and at a write; with defects, what fails today."""
    found = []
    for bench in BENCHES:
        for trouble in (t for t in troubles if t in bench.can):
            wrong = bench.defects.get(trouble) if defects else None
            marks = [] if wrong is None else [pytest.mark.xfail(strict=True, raises=AssertionError, reason=wrong)]
            for access in Access:
                found.append(pytest.param(bench, trouble, access, id=f"{bench.name}-{trouble}-{access}", marks=marks))
    return pytest.mark.parametrize(("kind", "trouble", "access"), found)


each_bench = pytest.mark.parametrize("kind", BENCHES, ids=[b.name for b in BENCHES])


def at_once(bench: Bench, transfer: Transfer) -> Answer:
    """The answer of a transfer, which must not take as long as a reply that does not come."""
    caller = ThreadPoolExecutor(1)
    try:
        return caller.submit(bench.bus.perform, transfer).result(AT_ONCE_S)
    finally:
        caller.shutdown(wait=False)


def met(bench: Bench, trouble: Trouble, access: Access) -> Answer:
    """The answer of a transfer that meets a trouble, on a bus that has been in use."""
    assert bench.bus.perform(bench.read) == Confirmed(bench.right)
    bench.arrange(trouble, access)
    answer = at_once(bench, bench.asked(trouble, access))
    bench.settle()
    if trouble is Trouble.LATE:
        bench.let_out()
    return answer


def frames_since(bench: Bench, before: int, at_least: int) -> int:
    """How many requests the counterpart got since, once those are there that must be."""
    if bench.behind:
        until(lambda: len(bench.seen()) - before >= at_least)
    return len(bench.seen()) - before


@each_bench
def test_bench_when_it_is_read_then_every_trouble_is_asked_or_has_a_reason(kind: type[Bench]) -> None:
    assert sorted([*kind.can, *kind.cannot]) == sorted(Trouble)
    assert all(kind.cannot.values())
    for trouble, expectation in kind.can.items():
        frames = {expectation.read.frames, expectation.write.frames}
        assert frames <= ({0} if trouble in NEVER_SENT else {0, 1})


def test_manual_when_read_then_as_the_benches_are() -> None:
    manual = (Path(__file__).parents[2] / "docs" / "conformance.md").read_text(encoding="utf-8").splitlines()
    printed = [line for line in table() if line]
    assert [line for line in manual if line.startswith("|")] == printed, "python -m tests.print_tables conformance"


@each_bench
def test_open_when_done_once_or_again_then_nothing_is_sent(made: Make, kind: type[Bench]) -> None:
    bench = made(kind)
    assert isinstance(bench.bus, Opens)
    bench.bus.open()
    bench.bus.open()
    bench.bus.quiesce(bench.over_s())
    assert bench.bus.perform(bench.read) == Confirmed(bench.right)  # whatever was sent before has arrived by now
    assert len(bench.seen()) == 1


@cases(*Trouble, defects=False)
def test_trouble_when_met_then_of_the_declared_class_and_no_frame_is_repeated(
    made: Make, kind: type[Bench], trouble: Trouble, access: Access
) -> None:
    bench, demand = made(kind), kind.can[trouble].of(access)
    bench.bus.perform(bench.read)
    before = len(bench.seen()) + 1  # with the one that `met` begins with
    answer = met(bench, trouble, access)
    assert demand_of(answer, demand.frames) == demand, answer
    assert frames_since(bench, before, demand.frames) == demand.frames
    if isinstance(answer, Confirmed):
        assert answer.data == (bench.lie if access is Access.READ else b"")
    bench.mend()
    bench.bus.close() if isinstance(bench.bus, Closes) else bench.bus.quiesce(bench.over_s())
    bench.bus.perform(bench.read)  # on a connection of its own: whatever was sent before it has arrived before it
    assert frames_since(bench, before, demand.frames + 1) == demand.frames + 1


@cases(*Trouble)
def test_next_read_when_the_quarantine_is_over_then_its_own_answer_and_one_frame(
    made: Make, kind: type[Bench], trouble: Trouble, access: Access
) -> None:
    bench = made(kind)
    answer = met(bench, trouble, access)
    bench.mend()
    if not isinstance(answer, Confirmed):  # nobody waits after an answer that leaves no doubt
        bench.bus.quiesce(bench.over_s())
        assert not bench.unread()
    before = len(bench.seen())
    assert bench.bus.perform(bench.read) == Confirmed(bench.right)
    assert frames_since(bench, before, 1) == 1


@cases(Trouble.FRAGMENT, Trouble.CORRUPTED, Trouble.FOREIGN, Trouble.UNASKED, Trouble.MISFIT, defects=False)
def test_reply_when_it_is_not_whole_or_not_its_own_then_no_value(
    made: Make, kind: type[Bench], trouble: Trouble, access: Access
) -> None:
    answer = met(made(kind), trouble, access)
    assert not isinstance(answer, Confirmed | Rejected), answer
    assert not hasattr(answer, "data")


@cases(*VANISHED)
def test_bus_when_it_vanished_then_closed_at_once_and_not_sent_to_again(
    made: Make, kind: type[Bench], trouble: Trouble, access: Access
) -> None:
    bench = made(kind)
    met(bench, trouble, access)
    assert bench.holds() == 0
    if trouble is not Trouble.RETURNED:
        before = len(bench.seen())
        gone = at_once(bench, bench.asked(trouble, access))
        assert (type(gone), getattr(gone, "proof", "")) == (Rejected, "port-not-opened")
        assert (len(bench.seen()), bench.holds()) == (before, 0)


@cases(*VANISHED)
def test_bus_when_it_is_back_under_its_name_then_reopened_and_nothing_is_sent_by_that(
    made: Make, kind: type[Bench], trouble: Trouble, access: Access
) -> None:
    bench = made(kind)
    met(bench, trouble, access)
    bench.mend()
    before = len(bench.seen())
    assert isinstance(bench.bus, Opens)
    bench.bus.open()
    assert bench.bus.perform(bench.read) == Confirmed(bench.right)
    assert frames_since(bench, before, 1) == 1


def of_every_kind(address: int) -> list[Transfer]:
    """A transfer of each kind that a plan may have."""
    found: list[Transfer] = [Message(address, b"\x06", 0), Message(address, b"\x06", 1), Line("*IDN?", True)]
    for space in Space:
        found.append(RegisterRead(address, space, 0, 2, 1, 3))
        found.append(RegisterWrite(address, space, 0, b"\x00\x01", 1, 6))
    return found


def declared(bench: Bench) -> Capabilities:
    """What it says that it carries; a bus that says nothing carries everything."""
    return bench.bus.capabilities if isinstance(bench.bus, Declares) else Capabilities()


@pytest.mark.parametrize("kind", [b for b in BENCHES if Trouble.UNCARRIED in b.can], ids=lambda b: b.name)
def test_capabilities_when_they_say_no_then_not_sent_and_the_port_is_not_touched(made: Make, kind: type[Bench]) -> None:
    bench = made(kind)
    refused = [t for t in of_every_kind(bench.read.address) if not declared(bench).carries(t)]
    assert {bench.asked(Trouble.UNCARRIED, a).space for a in Access}.isdisjoint(declared(bench).spaces)
    assert len(refused) >= 2
    for transfer in refused:
        answer = bench.bus.perform(transfer)
        assert (type(answer), getattr(answer, "proof", "")) == (Rejected, "not-sent"), transfer
    assert bench.holds() == 0
    assert bench.bus.perform(bench.read) == Confirmed(bench.right)
    assert len(bench.seen()) == 1


@pytest.mark.parametrize("kind", [b for b in BENCHES if Trouble.TOO_LONG in b.can], ids=lambda b: b.name)
def test_transfer_when_its_offset_has_no_room_in_a_frame_then_not_sent(made: Make, kind: type[Bench]) -> None:
    bench = made(kind)
    answer = bench.bus.perform(replace(bench.read, offset=1 << 16))
    assert (type(answer), getattr(answer, "proof", "")) == (Rejected, "not-sent")


@each_bench
def test_capabilities_when_they_say_yes_then_carried(made: Make, kind: type[Bench]) -> None:
    bench = made(kind)
    assert declared(bench).carries(bench.read)
    assert declared(bench).carries(bench.write)
    assert bench.read.size_bytes <= declared(bench).longest_read_bytes
    assert bench.bus.perform(bench.write) == Confirmed()
    assert bench.bus.perform(bench.read) == Confirmed(bench.right)
    assert len(bench.seen()) == 2


@each_bench
def test_quiesce_when_the_quarantine_lasts_then_it_is_waited_for(made: Make, kind: type[Bench]) -> None:
    bench, slept = made(kind), list[float]()
    vars(bench.bus)["_sleep"] = slept.append
    bench.bus.quiesce(bench.over_s() + 1000.0)
    assert len(slept) == 1
    assert 990.0 < slept[0] <= 1000.0
