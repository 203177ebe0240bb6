"""A bus's worker: its two doors, the hard limit, wedge and quarantine, and devices' clean reads through it."""

from __future__ import annotations

import ast
import asyncio
import gc
import threading
from collections.abc import Callable, Coroutine
from pathlib import Path
from typing import Any

import pytest

import hwtool.dispatch
import hwtool.worker
from hwtool.board_buses import BusSpec
from hwtool.config import parse_board
from hwtool.worker import BusWorker
from hwtool_contracts.errors import Code, DomainError
from hwtool_contracts.model import Space
from hwtool_registers.bus import Ambiguous, Answer, Confirmed, RegisterRead, RegisterWrite, Rejected, Sent, Transfer
from hwtool_sim.faults import FaultKind
from tests.hwtool.conftest import (
    KEY,
    KEY2,
    MODBUS,
    FakeClock,
    Lab,
    Play,
    code_of,
    effect,
    error_of,
    evidence_of,
    raws,
    reg,
    toy_board,
    until,
)

READ = RegisterRead(0x20, Space.MEMORY, 0, 1)
WRITE = RegisterWrite(0x20, Space.MEMORY, 0, b"\x01")


def spec(limit_ms: int = 1000) -> BusSpec:
    text = (
        f"name = 'x'\n[buses.b]\nkind = 'sim'\nresponse_ms = 1\nreply_lifetime_ms = 100\ntransfer_limit_ms = {limit_ms}"
    )
    return parse_board(text, "x.toml", Path()).buses["b"]


class ScriptedBus:
    """A bus in a thread of its own that answers from a list, waits on an event, and counts."""

    def __init__(self, *answers: Answer | Exception, gate: threading.Event | None = None) -> None:
        self.answers = list(answers)
        self.asked: list[Transfer] = []
        self.gate = gate
        self.quiesced: list[float] = []
        self.broken = 0
        self.fault: Exception = OSError("the line babbles")
        self.closed = 0

    def perform(self, transfer: Transfer) -> Answer:
        self.asked.append(transfer)
        if self.gate is not None:
            assert self.gate.wait(10)
        answer = self.answers.pop(0)
        if isinstance(answer, Exception):
            raise answer
        return answer

    def quiesce(self, until_s: float) -> None:
        self.quiesced.append(until_s)
        if self.broken:
            self.broken -= 1
            raise self.fault

    def boot_evidence(self, address: int) -> str | None:
        if self.broken:
            raise OSError("gone")
        return f"boot of {address}"

    def close(self) -> None:
        self.closed += 1


class MuteBus:
    """A bus that owes nothing more than it must."""

    def perform(self, transfer: Transfer) -> Answer:
        return Confirmed(b"\x07")

    def quiesce(self, until_s: float) -> None:
        pass


def run(life: Callable[[], Coroutine[Any, Any, None]]) -> None:
    asyncio.run(life())


def refused(worker: BusWorker) -> DomainError:
    with pytest.raises(DomainError) as raised:
        worker.check()
    assert raised.value.code is Code.UNAVAILABLE
    return raised.value


def test_close_when_a_drain_is_under_way_and_fails_then_that_is_no_news() -> None:
    async def life() -> None:
        told: list[object] = []
        asyncio.get_running_loop().set_exception_handler(lambda _, context: told.append(context))
        begun, gate = threading.Event(), threading.Event()

        class Failing(ScriptedBus):
            def quiesce(self, until_s: float) -> None:
                begun.set()
                assert gate.wait(10)
                raise OSError("gone")

        worker = BusWorker(spec(), Failing(Ambiguous(Sent.REPLY, "no reply")), FakeClock())
        await worker.send_once(WRITE)
        await asyncio.to_thread(begun.wait, 10)
        closing = asyncio.ensure_future(worker.close())
        await asyncio.sleep(0)
        gate.set()
        await closing
        del worker, closing  # what they hold would be complained of later
        gc.collect()
        assert told == []

    run(life)


def test_transfer_when_answered_then_counted_and_handed_on_as_it_is() -> None:
    async def life() -> None:
        bus = ScriptedBus(Confirmed(b"\x07"), Rejected("nack", "address-nack"))
        worker = BusWorker(spec(), bus, FakeClock())
        assert await worker.read_clean(READ) == Confirmed(b"\x07")
        assert await worker.send_once(WRITE) == Rejected("nack", "address-nack")
        assert (bus.asked, worker.sent) == ([READ, WRITE], 2)
        worker.check()
        await worker.close()
        assert bus.closed == 1

    run(life)


def test_transfer_when_the_bus_raises_then_ambiguous_and_quarantined_and_not_repeated() -> None:
    async def life() -> None:
        clock = FakeClock()
        clock.held = True
        bus = ScriptedBus(RuntimeError("what is this"))
        worker = BusWorker(spec(), bus, clock)
        assert await worker.send_once(WRITE) == Ambiguous(Sent.DATA, "RuntimeError: what is this")
        assert refused(worker).fields == {"reason": "quarantined after an ambiguous answer", "retry_after_ms": 100}
        with pytest.raises(DomainError):
            await worker.send_once(WRITE)
        assert bus.asked == [WRITE]
        await worker.close()

    run(life)


def test_quarantine_when_time_goes_on_then_the_rest_is_told_and_the_bus_is_back_after_its_lifetime() -> None:
    async def life() -> None:
        clock = FakeClock()
        clock.held = True
        bus = ScriptedBus(Ambiguous(Sent.REPLY, "no reply"), Confirmed())
        worker = BusWorker(spec(), bus, clock)
        back: list[float] = []
        worker.after_quarantine = lambda: back.append(clock.mono)
        start = clock.mono
        await worker.send_once(WRITE)
        clock.advance(0.06)
        await asyncio.sleep(0)
        assert refused(worker).fields["retry_after_ms"] == 40
        worker.quarantine()  # another ambiguous answer begins the lifetime anew
        clock.advance(0.06)
        await asyncio.sleep(0.01)
        assert (refused(worker).fields["retry_after_ms"], bus.quiesced) == (40, [])
        clock.advance(0.04)
        await worker.settled()
        assert back == [pytest.approx(start + 0.16)]
        assert bus.quiesced == [pytest.approx(start + 0.16)]
        assert await worker.send_once(WRITE) == Confirmed()
        await worker.close()

    run(life)


@pytest.mark.parametrize("fault", [OSError("the line babbles"), RuntimeError("a defect of the bus")])
def test_quarantine_when_the_line_cannot_be_emptied_then_tried_again_after_another_lifetime(fault: Exception) -> None:
    async def life() -> None:
        clock = FakeClock()
        bus = ScriptedBus()
        bus.broken, bus.fault = 2, fault
        worker = BusWorker(spec(), bus, clock)
        start = clock.mono
        worker.quarantine()
        await worker.settled()
        assert bus.quiesced == [pytest.approx(start + n) for n in (0.1, 0.2, 0.3)]
        worker.check()
        await worker.close()

    run(life)


def test_transfer_when_it_outlives_its_limit_then_wedged_until_it_returns_and_quarantined_after() -> None:
    async def life() -> None:
        clock = FakeClock()
        clock.held = True
        gate = threading.Event()
        bus = ScriptedBus(Confirmed(), Confirmed(), gate=gate)
        worker = BusWorker(spec(limit_ms=5), bus, clock)
        answer = await worker.send_once(WRITE)
        assert isinstance(answer, Ambiguous)
        assert (answer.stage, answer.fault) == (Sent.TRANSFER_LIMIT, "no return within 5 ms")
        clock.advance(1)
        assert refused(worker).fields == {"reason": "wedged", "retry_after_ms": 100}
        gate.set()
        await until(lambda: "quarantined" in refused(worker).message)
        assert refused(worker).fields["retry_after_ms"] == 100
        clock.advance(0.1)
        await worker.settled()
        assert await worker.send_once(WRITE) == Confirmed()
        assert bus.asked == [WRITE, WRITE]
        await worker.close()

    run(life)


def test_late_return_when_a_quarantine_was_running_already_then_the_lifetime_begins_anew() -> None:
    async def life() -> None:
        clock = FakeClock()
        clock.held = True
        gate = threading.Event()
        worker = BusWorker(spec(limit_ms=5), ScriptedBus(Confirmed(), gate=gate), clock)
        await worker.send_once(WRITE)
        worker.quarantine()  # as the engine does for an unknown outcome; its quiesce waits behind the hung call
        clock.advance(1)
        await asyncio.sleep(0)
        gate.set()
        await until(lambda: "quarantined" in refused(worker).message)
        for _ in range(100):
            await asyncio.sleep(0.001)  # the thread has had its time: the bus must still be shut
        assert refused(worker).fields["retry_after_ms"] == 100
        clock.advance(0.1)
        await worker.settled()
        worker.check()
        await worker.close()

    run(life)


def test_close_when_wedged_then_the_bus_is_left_alone() -> None:
    async def life() -> None:
        clock = FakeClock()
        clock.held = True
        gate = threading.Event()
        bus = ScriptedBus(Confirmed(), gate=gate)
        worker = BusWorker(spec(limit_ms=5), bus, clock)
        await worker.send_once(WRITE)
        worker.quarantine()
        await worker.close()
        assert bus.closed == 0
        gate.set()
        await asyncio.sleep(0.01)

    run(life)


@pytest.mark.parametrize(("bus", "evidence"), [(ScriptedBus(), "boot of 32"), (MuteBus(), None)])
def test_boot_evidence_when_asked_then_the_buses_word_or_none(bus: Any, evidence: str | None) -> None:
    async def life() -> None:
        worker = BusWorker(spec(), bus, FakeClock())
        assert await worker.boot_evidence(32) == evidence
        await worker.close()

    run(life)


def test_boot_evidence_when_the_bus_is_gone_then_none() -> None:
    async def life() -> None:
        bus = ScriptedBus()
        bus.broken = 1
        worker = BusWorker(spec(), bus, FakeClock())
        assert await worker.boot_evidence(32) is None
        await worker.close()

    run(life)


DOORS = {"send_once": {"dispatch.py", "devices.py"}, "read_clean": {"devices.py", "recovery.py"}}


@pytest.mark.parametrize(("door", "users"), DOORS.items())
def test_door_when_the_source_is_read_then_only_these_files_use_it(door: str, users: set[str]) -> None:
    used = set()
    for module in Path(hwtool.worker.__file__).parent.rglob("*.py"):
        for node in ast.walk(ast.parse(module.read_text(encoding="utf-8"))):
            if isinstance(node, ast.Attribute) and node.attr == door:
                used.add(module.name)
    assert used == users


def test_dispatch_when_the_source_is_read_then_its_sends_stand_in_no_other_loop_than_the_plans() -> None:
    tree = ast.parse(Path(hwtool.dispatch.__file__).read_text(encoding="utf-8"))
    loops = [
        ast.unparse(loop.iter) if isinstance(loop, ast.For) else "while"
        for loop in ast.walk(tree)
        if isinstance(loop, ast.For | ast.While | ast.AsyncFor)
        and any(
            (isinstance(n, ast.Attribute) and n.attr == "send_once")
            or (isinstance(n, ast.Name) and n.id in ("_send", "_send_part", "_sent"))
            for n in ast.walk(loop)
        )
    ]
    # a safe state's entries; the chunks of a plan and the steps of each; a device that proved to be busy, if declared
    assert sorted(loops) == ["enumerate(plan.parts)", "parts", "steps", "while"]


# --- the engine over a wedged bus -------------------------------------------------------------------------------


def test_write_when_the_device_hangs_past_the_limit_then_unknown_and_a_late_return_changes_no_row(
    play: Play, tmp_path: Path
) -> None:
    gate = threading.Event()

    async def life(lab: Lab) -> None:
        lab.clock.held = True
        lab.chip().values["R"] = 3
        lab.bus()._sleep = lambda _: (gate.wait(10), None)[1]
        lab.fault(FaultKind.HANG, hang_s=1.0)
        write = {"register": "toy.R", "value": 0x55, "key": KEY}
        unknown = await lab.ask("reg.write", **write)
        assert (code_of(unknown), error_of(unknown)["stage"]) == ("outcome_unknown", "transfer_limit")
        for _ in range(2):
            read = await lab.ask("reg.read", registers=["toy.R"])
            assert (code_of(read), error_of(read)["reason"]) == ("unavailable", "wedged")
        assert (await lab.ask("device.list")).ok
        got = await lab.ask("op.get", key=KEY, verify=True)
        assert (got.op or {})["needs_person"] == "bus b is wedged: a transfer has not returned"
        before = await lab.row()
        gate.set()
        await until(lambda: lab.device().worker._wedged is None)
        assert await lab.row() == before
        lab.clock.advance(0.2)
        await lab.rules_ran()
        settled = await lab.ask("reg.write", **write)
        assert (settled.verdict, settled.effects, lab.writes("R")) == ("applied", "unknown", 1)

    play(life, toy_board(tmp_path, reg("R", 0), bus="response_ms = 5\ntransfer_limit_ms = 10"))


# --- clean reads of devices -------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("names", "transfers"),
    [
        (["R", "S"], [(0, 2)]),
        (["S", "R", "S"], [(0, 2)]),
        (["R", "T"], [(0, 1), (4, 1)]),
        (["R", "S", "W16"], [(0, 4)]),
    ],
)
def test_clean_read_when_registers_are_neighbours_then_one_transfer(
    play: Play, tmp_path: Path, names: list[str], transfers: list[tuple[int, int]]
) -> None:
    async def life(lab: Lab) -> None:
        lab.chip().values |= {"R": 1, "S": 2, "T": 3, "W16": 0x0405}
        result = await lab.ask("reg.read", registers=[f"toy.{n}" for n in names])
        assert [v["register"] for v in result.values or []] == [f"toy.{n}" for n in names]
        assert [int(r, 16) for r in raws(result)] == [lab.chip().values[n] for n in names]
        sent = [t for t in lab.bus().log if isinstance(t, RegisterRead)]
        assert [(t.offset, t.size_bytes) for t in sent] == transfers
        assert evidence_of(result)["transfers"] == len(transfers)
        assert [b["what"] for b in await lab.audit()] == []

    play(life, toy_board(tmp_path, reg("R", 0), reg("S", 1), reg("W16", 2, "width_bits = 16"), reg("T", 4)))


def test_clean_read_when_on_modbus_then_merged_up_to_the_devices_limit(play: Play, tmp_path: Path) -> None:
    async def life(lab: Lab) -> None:
        names = [f"toy.H{n}" for n in range(5)]
        assert (await lab.ask("reg.read", registers=[*names, "toy.I0"])).ok
        sent = [t for t in lab.bus().log if isinstance(t, RegisterRead)]
        assert [(t.function, t.offset, t.size_bytes) for t in sent] == [(3, 0, 4), (3, 2, 4), (3, 4, 2), (4, 0, 2)]

    head = MODBUS.replace("[3, 6]", "[3, 4, 6]\nmax_registers = 2")
    holding = [reg(f"H{n}", n, "space = 'holding'") for n in range(5)]
    play(life, toy_board(tmp_path, *holding, reg("I0", 0, "space = 'input'", "ro"), head=head))


def test_clean_read_when_a_neighbour_is_shared_or_armed_then_not_merged(play: Play, tmp_path: Path) -> None:
    async def life(lab: Lab) -> None:
        assert (await lab.ask("reg.read", registers=["toy.R", "toy.A"])).ok
        assert [t.offset for t in lab.bus().log if isinstance(t, RegisterRead)] == [0, 1]

    play(life, toy_board(tmp_path, reg("R", 0), reg("A", 1, effect("arm"), "ro")))


@pytest.mark.parametrize("transfer", ["one", "each"])
def test_clean_read_when_a_latch_group_then_in_its_order(play: Play, tmp_path: Path, transfer: str) -> None:
    async def life(lab: Lab) -> None:
        lab.chip().values |= {"L": 1, "H": 2}
        result = await lab.ask("reg.read", registers=["toy.G"])
        assert raws(result) == ["0x01", "0x02"]
        sizes = [t.size_bytes for t in lab.bus().log if isinstance(t, RegisterRead)]
        assert sizes == ([2] if transfer == "one" else [1, 1])
        alone = await lab.ask("reg.read", registers=["toy.L"])
        assert error_of(alone)["rule"] == "read_has_side_effects"

    group = f"[groups.G]\nmembers = ['L', 'H']\ntransfer = '{transfer}'\n"
    play(life, toy_board(tmp_path, reg("L", 0, effect("latch"), "ro"), reg("H", 1, effect("latch"), "ro"), group))


@pytest.mark.parametrize(
    ("kind", "code", "words"),
    [
        (FaultKind.NACK, "bus_fault", "address"),
        (FaultKind.REPLY_LOST, "timeout", "no reply"),
        (FaultKind.REQUEST_LOST, "timeout", "no reply"),
    ],
)
def test_clean_read_when_the_bus_does_not_answer_then_its_error_and_no_value(
    play: Play, tmp_path: Path, kind: FaultKind, code: str, words: str
) -> None:
    async def life(lab: Lab) -> None:
        lab.fault(kind, access="read")
        result = await lab.ask("reg.read", registers=["toy.R"])
        assert (code_of(result), result.values, result.effects) == (code, None, "none")
        assert words in error_of(result)["message"]
        await lab.rules_ran()
        assert raws(await lab.ask("reg.read", registers=["toy.R"])) == ["0x00"]

    play(life, toy_board(tmp_path, reg("R", 0)))


def test_clean_read_when_the_bus_raises_then_bus_fault(
    play: Play, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    def broken(_: Transfer) -> Answer:
        raise OSError("EIO")

    async def life(lab: Lab) -> None:
        monkeypatch.setattr(lab.bus(), "perform", broken)
        result = await lab.ask("reg.read", registers=["toy.R"])
        assert (code_of(result), error_of(result)["fault"]) == ("bus_fault", "OSError: EIO")

    play(life, toy_board(tmp_path, reg("R", 0)))


def test_clean_read_when_the_bus_is_busy_past_the_deadline_then_timeout(play: Play, tmp_path: Path) -> None:
    async def life(lab: Lab) -> None:
        async with lab.device().worker.lock:
            late = await lab.ask("reg.read", registers=["toy.R"], deadline_ms=5)
        assert (code_of(late), error_of(late)["after_ms"], error_of(late)["stage"]) == ("timeout", 5, "queue")
        assert (await lab.ask("reg.read", registers=["toy.R"], deadline_ms=1000)).ok

    play(life, toy_board(tmp_path, reg("R", 0)))


@pytest.mark.parametrize(
    ("more", "what"), [({"generation": 9}, "generation"), ({"contract_digest": "sha256:0"}, "contract")]
)
def test_clean_read_when_the_caller_looked_at_another_then_stale(
    play: Play, tmp_path: Path, more: dict[str, Any], what: str
) -> None:
    async def life(lab: Lab) -> None:
        stale = await lab.ask("reg.read", registers=["toy.R"], **more)
        assert (code_of(stale), error_of(stale)["what"], lab.sent()) == ("stale", what, [])
        right = {"generation": 1, "contract_digest": lab.device().contract.digest}
        assert (await lab.ask("reg.read", registers=["toy.R"], **right)).ok

    play(life, toy_board(tmp_path, reg("R", 0)))


def test_clean_read_when_banked_then_selector_read_selected_and_restored(play: Play) -> None:
    async def life(lab: Lab) -> None:
        for _ in range(2):
            assert raws(await lab.ask("reg.read", registers=["uart.DLL"])) == ["0x00"]
        steps = [(t["do"], t["offset"], t.get("data")) for t in lab.sent("uart")]
        banked = [("write", "0x18", "80"), ("read", "0x00", None), ("write", "0x18", "03")]
        # once its home is read for the record; then for each access
        assert steps == [("read", "0x18", None)] + 2 * [("read", "0x18", None), *banked]

    play(life)


def test_clean_read_when_a_selector_is_not_confirmed_then_the_bank_is_forgotten(play: Play) -> None:
    async def life(lab: Lab) -> None:
        lab.fault(FaultKind.NACK, "uart", offset=0x18)
        assert code_of(await lab.ask("reg.read", registers=["uart.DLL"])) == "bus_fault"
        assert (await lab.ask("reg.write", register="uart.SPR", value=1, key=KEY2)).ok

    play(life)
