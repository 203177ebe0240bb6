"""Simulated chips on a pty: the product's own Modbus master, an independent one, raw bytes, and every fault."""

from __future__ import annotations

import os
import pty
import select
import struct
import threading
import tty
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from hwtool_contracts.library import bundled
from hwtool_contracts.model import Space
from hwtool_contracts.native import load_contract
from hwtool_registers.bus import Ambiguous, Answer, Confirmed, RegisterRead, RegisterWrite, Rejected, Sent
from hwtool_registers.buses.modbus import ModbusRtu, RtuSettings, framed
from hwtool_registers.plan import plan_read, plan_write
from hwtool_sim.board import bus_of
from hwtool_sim.bus import SimBus
from hwtool_sim.faults import OF_TWO_WIRES, Fault, FaultKind
from hwtool_sim.line import RtuLine
from hwtool_sim.slave import length_of, request_in

LIMIT_S = 20.0
PATIENT_MS, HASTY_MS = 10_000, 150
TOY = """
schema = 1
part = "toy"
vendor = "nobody"
title = "a toy"
source = "the test"
[access]
[access.modbus]
base = 0
functions = [3, 4, 6, 16, 22, 23, 24, 43]
max_registers = 10
atomic_multi = true
[defaults]
read = { effects = ["none"], provenance = "generated", source = "rtl" }
write = { effect = "store", provenance = "generated", source = "rtl" }
[registers.LEVEL]
offset = 5
space = "holding"
access = "rw"
[registers.NEXT]
offset = 6
space = "holding"
access = "rw"
[registers.QUEUE]
offset = 9
space = "queue"
access = "ro"
width_bits = 64
[registers.PRODUCT]
offset = 1
space = "object"
access = "ro"
width_bits = 96
encoding = "text"
[registers.WIDE]
offset = 8
space = "holding"
access = "rw"
width_bits = 32
[registers.COUNT]
offset = 5
space = "input"
access = "ro"
read = { effects = ["clear"], provenance = "generated" }
"""
READ = RegisterRead(17, Space.HOLDING, 5, 2, 1, 3)
READ_NEXT = RegisterRead(17, Space.HOLDING, 6, 2, 1, 3)
WRITE = RegisterWrite(17, Space.HOLDING, 5, b"\x00\x4d", 1, 6)
WIDE = RegisterWrite(17, Space.HOLDING, 8, b"\x01\x02\x03\x04", 1, 16)


class Serving:
    """A toy at unit 17 and a meter at unit 1 on a line, and masters that open its port."""

    def __init__(self, folder: Path) -> None:
        (folder / "toy.toml").write_text(TOY)
        self.path = str(folder / "line0")
        self.bus = bus_of({17: load_contract(folder / "toy.toml"), 1: bundled("sdm120")})
        self.toy = self.bus.chips[17]
        self.toy.values |= {"LEVEL": 0x0A0B, "NEXT": 0x0C0D, "COUNT": 9}
        self.line = RtuLine(self.bus, self.path, threading.Lock())
        self.line.open()
        self._masters: list[ModbusRtu] = []

    def master(self, response_ms: int = PATIENT_MS) -> ModbusRtu:
        """The only one who has the port open now."""
        for other in self._masters:
            other.close()
        self._masters.append(ModbusRtu(RtuSettings(self.path, 115200, response_ms=response_ms, gap_ms=1)))
        return self._masters[-1]

    def fault(self, kind: FaultKind, **parts: Any) -> None:
        self.bus.plan(Fault(kind, 17, **parts))

    def count_time_by_transfers(self) -> None:
        """A reply that is late by half is due with the next request."""
        self.bus.clock = lambda: float(self.bus.transfers)

    def close(self) -> None:
        for master in self._masters:
            master.close()
        self.line.close()


@pytest.fixture
def serving(tmp_path: Path) -> Iterator[Serving]:
    it = Serving(tmp_path)
    yield it
    it.close()
    assert not os.path.lexists(it.path)


def test_line_when_the_products_master_asks_then_the_chip_answers_and_counts(serving: Serving) -> None:
    master = serving.master()
    asked: list[RegisterRead | RegisterWrite] = [
        READ,
        WRITE,
        READ,
        WIDE,
        RegisterRead(17, Space.INPUT, 5, 2, 1, 4),
        RegisterRead(17, Space.HOLDING, 8, 4, 1, 3),
        RegisterWrite(17, Space.HOLDING, 6, b"\xff\x00\x00\x4d", 1, 22),
        READ_NEXT,
        RegisterRead(17, Space.OBJECT, 1, 12, 1, 43),
        RegisterRead(17, Space.QUEUE, 9, 8, 1, 24),
        RegisterRead(17, Space.HOLDING, 5, 4, 1, 23, first=(6, b"\x00\x07")),
    ]
    serving.toy.values["QUEUE"] = 0x0002_0102_0304_0000
    serving.toy.values["PRODUCT"] = int.from_bytes(b"a toy", "big")
    answers = [master.perform(t) for t in asked]
    wanted: list[Answer] = [
        Confirmed(b"\x0a\x0b"),
        Confirmed(),
        Confirmed(b"\x00\x4d"),
        Confirmed(),
        Confirmed(b"\x00\x09"),
        Confirmed(b"\x01\x02\x03\x04"),
        Confirmed(),
        Confirmed(b"\x0c\x4d"),
        Confirmed(bytes(7) + b"a toy"),
        Confirmed(b"\0\2\1\2\3\4\0\0"),
        Confirmed(b"\x00\x4d\x00\x07"),
    ]
    assert answers == wanted
    assert serving.toy.executed == {
        ("LEVEL", "read"): 3,
        ("LEVEL", "write"): 1,
        ("WIDE", "write"): 1,
        ("WIDE", "read"): 1,
        ("COUNT", "read"): 1,
        ("NEXT", "write"): 2,
        ("NEXT", "read"): 2,
        ("PRODUCT", "read"): 1,
        ("QUEUE", "read"): 1,
    }
    assert list(serving.bus.log) == asked  # what the chip is handed is what the planner sends


def test_line_when_the_planner_makes_the_transfers_then_they_arrive_as_they_were_sent(serving: Serving) -> None:
    master = serving.master()
    for address, chip in serving.bus.chips.items():
        for register in chip.contract.registers.values():
            if not register.access.readable or register.space not in (Space.HOLDING, Space.INPUT):
                continue
            plans = [plan_read(chip.contract, address, [register], {})]
            if register.access.writable:
                plans.append(plan_write(chip.contract, address, [(register, 1)], {}))
            for step in [s for plan in plans for s in plan.steps]:
                assert isinstance(step.transfer, RegisterRead | RegisterWrite)
                assert isinstance(master.perform(step.transfer), Confirmed)
                assert serving.bus.log[-1] == step.transfer


REFUSED: list[tuple[str, RegisterRead | RegisterWrite, int]] = [
    ("no-such-place", RegisterRead(17, Space.HOLDING, 500, 2, 1, 3), 2),
    ("no-such-input", RegisterRead(17, Space.INPUT, 6, 2, 1, 4), 2),
    ("into-a-hole", RegisterRead(17, Space.HOLDING, 6, 4, 1, 3), 2),
    ("past-the-end", RegisterRead(17, Space.HOLDING, 0xFFFF, 4, 1, 3), 2),
    ("too-many", RegisterRead(17, Space.HOLDING, 5, 22, 1, 3), 3),
    ("write-of-nothing-there", RegisterWrite(17, Space.HOLDING, 7, b"\0\0", 1, 6), 2),
    ("function-06-of-the-meter", RegisterWrite(1, Space.HOLDING, 0x14, b"\0\0", 1, 6), 1),
]


@pytest.mark.parametrize(("_what", "transfer", "code"), REFUSED, ids=[r[0] for r in REFUSED])
def test_line_when_the_chip_has_it_not_then_an_exception_and_nothing_is_executed(
    serving: Serving, _what: str, transfer: RegisterRead | RegisterWrite, code: int
) -> None:
    answer = serving.master().perform(transfer)
    assert isinstance(answer, Rejected)
    assert answer.proof == f"modbus-exception-{code:02X}"
    assert [c.executed for c in serving.bus.chips.values()] == [{}, {}]


class Raw:
    """A program that writes bytes to the port and reads what comes."""

    def __init__(self, path: str) -> None:
        self.port = os.open(path, os.O_RDWR | os.O_NOCTTY)
        tty.setraw(self.port)

    def send(self, data: bytes) -> None:
        os.write(self.port, data)

    def read(self, size: int, limit_s: float = LIMIT_S) -> bytes:
        data = b""
        while len(data) < size and select.select([self.port], [], [], limit_s)[0]:
            data += os.read(self.port, size - len(data))
        return data

    def ask_until_it_answers(self, frame: bytes, size: int) -> bytes:
        """What came before may have spoilt the first frame."""
        for _ in range(100):
            self.send(frame)
            if reply := self.read(size, 0.2):
                return reply
        raise AssertionError("it never answered")


@pytest.fixture
def raw(serving: Serving) -> Iterator[Raw]:
    it = Raw(serving.path)
    yield it
    os.close(it.port)


GOOD = framed(bytes.fromhex("110300050001"))
REPLY = framed(bytes.fromhex("1103020a0b"))
SET_LEVEL = framed(bytes.fromhex("110600050001"))


@pytest.mark.parametrize(
    ("body", "code"),
    [
        ("110700050001", 1),
        ("110100050000", 3),
        ("1105000512ff", 3),
        ("111600050001", 3),
        ("112b0e0402", 2),
        ("1107", 1),
        ("110300050000", 3),
        ("11030005007e", 3),
        ("11040005ffff", 3),
        ("111000080000", 3),
        ("11100008000000", 3),
        ("11100008000203010203", 3),
        ("1110000800010401020304", 3),
    ],
)
def test_frame_when_its_form_is_not_to_be_had_then_an_exception(
    raw: Raw, serving: Serving, body: str, code: int
) -> None:
    frame = bytes.fromhex(body)
    raw.send(framed(frame))
    assert raw.read(5) == framed(bytes([0x11, frame[1] | 0x80, code]))
    assert serving.toy.executed.total() == 0


def test_frames_when_they_come_in_one_piece_then_each_is_answered(raw: Raw, serving: Serving) -> None:
    raw.send(GOOD + SET_LEVEL + GOOD)
    after = framed(bytes.fromhex("1103020001"))
    assert raw.read(len(REPLY) + len(SET_LEVEL) + len(after)) == REPLY + SET_LEVEL + after


def test_frame_when_it_comes_byte_by_byte_then_it_is_answered(raw: Raw, serving: Serving, tmp_path: Path) -> None:
    serving.line._pause_s = LIMIT_S
    for byte in GOOD:
        raw.send(bytes([byte]))
    assert raw.read(len(REPLY)) == REPLY


SILENT = [
    ("crc-error", SET_LEVEL[:-1] + bytes([SET_LEVEL[-1] ^ 1])),
    ("fragment", SET_LEVEL[:5]),
    ("one-byte", b"\x11"),
    ("noise", bytes(range(256))),
    ("unknown-function-with-a-wrong-crc", b"\x11\x2b\x0e\x01\x00\x00\x00"),
    ("another-unit", framed(bytes.fromhex("120600050001"))),
    ("broadcast", framed(bytes.fromhex("000600050001"))),
]


@pytest.mark.parametrize(("_what", "data"), SILENT, ids=[s[0] for s in SILENT])
def test_line_when_something_else_comes_then_silence_and_the_next_request_is_answered(
    raw: Raw, serving: Serving, _what: str, data: bytes
) -> None:
    raw.send(data)
    assert raw.ask_until_it_answers(GOOD, len(REPLY)) == REPLY
    assert serving.toy.executed[("LEVEL", "write")] == 0


def test_length_when_a_frame_begins_then_known_as_soon_as_it_can_be() -> None:
    multi = bytes.fromhex("11100008000204010203040000")
    assert [length_of(GOOD[:n]) for n in (0, 1, 2, 8)] == [None, None, 8, 8]
    assert [length_of(multi[:n]) for n in (2, 6, 7, 13)] == [None, None, 13, 13]
    assert [length_of(b"\x11\x16"), length_of(b"\x11\x18")] == [10, 6]
    assert length_of(b"\x11\x2b\x0e") == 7


def test_request_when_no_device_is_there_then_it_is_a_transfer_all_the_same() -> None:
    assert request_in(GOOD, None) == READ


NO_REPLY = f"no reply within {HASTY_MS} ms"
SPOILT: dict[FaultKind, tuple[dict[str, Any], int, Answer, int]] = {
    # what it needs, how long the master waits, what it sees of a write of 0x004D, executions
    FaultKind.RESET: ({}, PATIENT_MS, Confirmed(), 1),
    FaultKind.FOREIGN: ({"register": "NEXT", "value": 5}, PATIENT_MS, Confirmed(), 1),
    FaultKind.REQUEST_LOST: ({}, HASTY_MS, Ambiguous(Sent.REPLY, NO_REPLY), 0),
    FaultKind.REPLY_LOST: ({}, HASTY_MS, Ambiguous(Sent.REPLY, NO_REPLY), 1),
    FaultKind.LATE_REPLY: ({"late_s": 0.5}, HASTY_MS, Ambiguous(Sent.REPLY, NO_REPLY), 1),
    FaultKind.DUPLICATED: ({}, PATIENT_MS, Confirmed(), 1),
    FaultKind.TRUNCATED: ({}, HASTY_MS, Ambiguous(Sent.REPLY, "fragment of 3 bytes: 110600"), 1),
    FaultKind.CORRUPTED: ({}, PATIENT_MS, Ambiguous(Sent.REPLY, "CRC error in 8 bytes: 11060005004d"), 1),
    FaultKind.EXCEPTION: ({"code": 4}, PATIENT_MS, Ambiguous(Sent.REPLY, "Modbus exception 04 (device failure)"), 0),
    FaultKind.HANG: ({"hang_s": 0.001}, PATIENT_MS, Confirmed(), 1),
    FaultKind.STUCK_BITS: ({"register": "NEXT", "bits": 1, "value": 0}, PATIENT_MS, Confirmed(), 1),
    FaultKind.FLIP: ({"register": "NEXT", "bits": 1}, PATIENT_MS, Confirmed(), 1),
}


@pytest.mark.parametrize("kind", list(SPOILT), ids=lambda k: k.value)
def test_fault_when_it_strikes_a_write_on_the_line_then_real_bytes_and_exact_counts(
    serving: Serving, kind: FaultKind
) -> None:
    parts, response_ms, wanted, executed = SPOILT[kind]
    if kind is FaultKind.LATE_REPLY:
        serving.count_time_by_transfers()
    serving.fault(kind, access="write", **parts)
    answer = serving.master(response_ms).perform(WRITE)
    assert type(answer) is type(wanted)
    if isinstance(answer, Ambiguous) and isinstance(wanted, Ambiguous):
        assert answer.stage is wanted.stage
        assert answer.fault.startswith(wanted.fault)
    assert serving.toy.executed[("LEVEL", "write")] == executed
    assert serving.toy.values["LEVEL"] == (
        0x004D if executed and kind is not FaultKind.RESET else serving.toy.values["LEVEL"]
    )
    again = serving.master(PATIENT_MS).perform(WRITE)
    assert again == Confirmed()
    assert serving.toy.executed[("LEVEL", "write")] == executed + 1


def test_fault_table_when_a_kind_is_added_then_a_line_is_missing_here() -> None:
    elsewhere = {FaultKind.UNPLUG, FaultKind.SWAP} | OF_TWO_WIRES  # below; of the bus; refused by the control
    assert set(SPOILT) | elsewhere == set(FaultKind)


@pytest.mark.parametrize(("acts", "code"), [(False, 2), (True, 2), (False, 6), (True, 4)])
def test_exception_when_the_device_acted_all_the_same_then_only_its_count_tells(
    serving: Serving, acts: bool, code: int
) -> None:
    serving.fault(FaultKind.EXCEPTION, code=code, acts=acts)
    answer = serving.master().perform(WRITE)
    assert isinstance(answer, Ambiguous if code == 4 else Rejected)
    assert serving.toy.executed[("LEVEL", "write")] == acts


def test_foreign_when_another_master_writes_after_a_read_then_counted_apart(serving: Serving) -> None:
    serving.fault(FaultKind.FOREIGN, when="after", offset_written=5, data="0001")
    master = serving.master()
    assert [master.perform(READ), master.perform(READ)] == [Confirmed(b"\x0a\x0b"), Confirmed(b"\x00\x01")]
    assert serving.toy.foreign == {("LEVEL", "write"): 1}
    assert serving.toy.executed == {("LEVEL", "read"): 2}


def test_late_reply_when_the_next_read_is_sent_before_it_came_then_it_is_taken_for_its_answer(
    serving: Serving,
) -> None:
    serving.count_time_by_transfers()
    serving.fault(FaultKind.LATE_REPLY, late_s=0.5)
    master = serving.master(HASTY_MS)
    assert master.perform(READ) == Ambiguous(Sent.REPLY, NO_REPLY)
    assert master.perform(READ_NEXT) == Confirmed(b"\x0a\x0b")  # the wrong value: RTU has no transaction number
    assert serving.toy.executed == {("LEVEL", "read"): 1, ("NEXT", "read"): 1}


def test_late_reply_when_it_came_and_was_drained_then_the_next_read_gets_its_own(serving: Serving) -> None:
    serving.count_time_by_transfers()
    serving.fault(FaultKind.LATE_REPLY, late_s=0.5)
    master = serving.master(HASTY_MS)
    assert master.perform(READ) == Ambiguous(Sent.REPLY, NO_REPLY)
    serving.bus.transfers += 1
    for _ in range(2):  # the second answer shows that the round of the first has ended
        serving.line.follow()
    master.quiesce(0.0)
    assert serving.master().perform(READ_NEXT) == Confirmed(b"\x0c\x0d")


def test_duplicated_reply_when_the_next_request_goes_out_then_its_own_answer_is_taken(serving: Serving) -> None:
    serving.fault(FaultKind.DUPLICATED)
    master = serving.master()
    assert master.perform(READ) == Confirmed(b"\x0a\x0b")
    master.quiesce(0.0)
    assert master.perform(READ_NEXT) == Confirmed(b"\x0c\x0d")


@pytest.mark.parametrize("power", [False, True])
def test_unplug_when_it_strikes_then_the_port_is_gone_until_it_is_plugged(serving: Serving, power: bool) -> None:
    master = serving.master()
    assert master.perform(WRITE) == Confirmed()
    serving.fault(FaultKind.UNPLUG, power=power)
    gone = master.perform(READ)
    assert isinstance(gone, Ambiguous)
    assert not os.path.lexists(serving.path)
    absent = master.perform(READ)
    assert isinstance(absent, Rejected)
    assert absent.proof == "port-not-opened"
    assert serving.toy.executed == {("LEVEL", "write"): 1}
    serving.bus.plug()
    serving.line.follow()
    assert master.perform(READ) == Confirmed(b"\x00\x00" if power else b"\x00\x4d")


def test_plug_when_the_path_was_taken_meanwhile_then_it_is_told_and_the_bus_stays_unplugged(serving: Serving) -> None:
    serving.bus.unplug()
    serving.line.follow()
    Path(serving.path).write_text("mine")
    serving.bus.plug()
    with pytest.raises(OSError, match="exists and is no link left behind by a simulator"):
        serving.line.follow()
    assert not serving.bus.plugged
    assert Path(serving.path).read_text() == "mine"
    Path(serving.path).unlink()
    serving.bus.plug()
    serving.line.follow()
    assert serving.master().perform(READ) == Confirmed(b"\x0a\x0b")


def test_port_when_masters_come_and_go_then_each_is_served(serving: Serving) -> None:
    for _ in range(20):
        assert serving.master().perform(READ) == Confirmed(b"\x0a\x0b")
    assert serving.toy.executed == {("LEVEL", "read"): 20}


def test_port_when_an_exclusive_open_has_outlived_its_program_then_a_new_pty_takes_its_place(
    serving: Serving, monkeypatch: pytest.MonkeyPatch
) -> None:
    before = str(Path(serving.path).readlink())
    made: list[tuple[int, int]] = []
    openpty = pty.openpty

    def counted() -> tuple[int, int]:
        made.append(openpty())
        return made[-1]

    monkeypatch.setattr(pty, "openpty", counted)
    busy = OSError(16, "Device or resource busy")
    opened = os.open
    refused = threading.Event()

    def refusing(path: Any, *rest: Any, **more: Any) -> int:
        if path == before and not refused.is_set() and threading.current_thread() is serving.line._thread:
            refused.set()
            raise busy
        return opened(path, *rest, **more)

    monkeypatch.setattr(os, "open", refusing)
    serving.master().perform(READ)
    serving.master()  # the first one closes
    assert refused.wait(LIMIT_S)
    serving.line.follow()
    assert len(made) == 1
    assert serving.master().perform(READ) == Confirmed(b"\x0a\x0b")


TAKEN = ["file", "folder", "link-to-a-file", "link-to-a-live-pty", "dangling-link-elsewhere"]


@pytest.mark.parametrize("what", TAKEN)
def test_line_when_something_stands_at_its_path_then_refused_and_it_stays(tmp_path: Path, what: str) -> None:
    path = tmp_path / "line"
    far, near = os.openpty()
    match what:
        case "file":
            path.write_text("mine")
        case "folder":
            path.mkdir()
        case "link-to-a-file":
            (tmp_path / "other").touch()
            path.symlink_to(tmp_path / "other")
        case "link-to-a-live-pty":
            path.symlink_to(os.ttyname(near))
        case _:
            path.symlink_to("/nowhere/at/all")
    before = path.lstat()
    line = RtuLine(SimBus({}), str(path), threading.Lock())
    with pytest.raises(OSError, match="exists and is no link left behind by a simulator"):
        line.open()
    line.close()
    assert path.lstat() == before
    os.close(far)
    os.close(near)


@pytest.mark.parametrize("target", ["gone", "reused"])
def test_line_when_a_killed_simulator_left_its_link_then_it_is_replaced(tmp_path: Path, target: str) -> None:
    path = tmp_path / "line"
    far, near = os.openpty()
    name = os.ttyname(near) if target == "reused" else "/dev/pts/4294967295"
    path.symlink_to(name)
    if target == "reused":  # the number belongs to somebody else now, and the link is still the simulator's
        (tmp_path / "line.lock").write_text(name)
    line = RtuLine(SimBus({}), str(path), threading.Lock())
    line.open()
    assert str(path.readlink()) not in (name, "")
    line.close()
    assert not os.path.lexists(path)
    os.close(far)
    os.close(near)


@pytest.mark.parametrize("path", ["/dev/hwtool-line", "/dev/../dev/shm/hwtool-line", "{link}/hwtool-line"])
def test_line_when_its_path_is_below_dev_then_refused(tmp_path: Path, path: str) -> None:
    (tmp_path / "link").symlink_to("/dev")
    line = RtuLine(SimBus({}), path.format(link=tmp_path / "link"), threading.Lock())
    with pytest.raises(OSError, match="is below /dev"):
        line.open()
    line.close()
    assert not os.path.lexists("/dev/hwtool-line")


def test_line_when_another_simulator_serves_it_then_refused_and_it_goes_on(serving: Serving) -> None:
    second = RtuLine(SimBus({}), serving.path, threading.Lock())
    with pytest.raises(OSError, match="is served by another simulator"):
        second.open()
    second.close()
    assert serving.master().perform(READ) == Confirmed(b"\x0a\x0b")


def test_line_when_its_link_was_replaced_then_the_end_leaves_it(tmp_path: Path) -> None:
    path = tmp_path / "line"
    line = RtuLine(SimBus({}), str(path), threading.Lock())
    line.open()
    path.unlink()
    path.write_text("mine")
    line.close()
    assert path.read_text() == "mine"


def test_line_when_an_independent_master_asks_then_it_agrees(serving: Serving) -> None:
    pymodbus = pytest.importorskip("pymodbus.client", reason="pymodbus is the independent master; install .[dev]")
    client = pymodbus.ModbusSerialClient(port=serving.path, baudrate=115200, timeout=LIMIT_S, retries=0)
    assert client.connect()
    try:
        assert client.read_holding_registers(5, count=2, device_id=17).registers == [0x0A0B, 0x0C0D]
        assert client.read_input_registers(5, count=1, device_id=17).registers == [9]
        assert client.write_register(6, 0x1234, device_id=17).isError() is False
        assert client.write_registers(8, [0x0102, 0x0304], device_id=17).isError() is False
        assert client.read_holding_registers(500, count=1, device_id=17).exception_code == 2
        assert client.read_coils(0, count=1, device_id=17).exception_code == 1
        volts = client.read_input_registers(0, count=2, device_id=1).registers
        assert struct.unpack(">f", struct.pack(">HH", *volts))[0] == pytest.approx(230.1)
        serving.fault(FaultKind.EXCEPTION, code=6)
        assert client.read_holding_registers(5, count=1, device_id=17).exception_code == 6
    finally:
        client.close()
    assert (serving.toy.values["NEXT"], serving.toy.values["WIDE"]) == (0x1234, 0x01020304)
    assert serving.toy.executed[("WIDE", "write")] == 1
    assert serving.toy.values["COUNT"] == 0  # its read cleared it


def test_line_when_closed_before_it_was_opened_then_nothing_is_left(tmp_path: Path) -> None:
    RtuLine(SimBus({}), str(tmp_path / "line"), threading.Lock()).close()
    assert os.listdir(tmp_path) == []  # noqa: PTH208
