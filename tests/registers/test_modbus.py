"""Modbus RTU: frames, the proof table, and a line on a pty with a slave that misbehaves on demand."""

from __future__ import annotations

import os
import pty
import termios
import tty
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from hwtool_contracts.model import Space
from hwtool_registers.bus import Ambiguous, Confirmed, Line, RegisterRead, RegisterWrite, Rejected, Sent, Transfer
from hwtool_registers.buses.modbus import ModbusRtu, RtuSettings, answer_of, crc16, framed, request_of
from tests.registers.scripted_line import Slave

READ = RegisterRead(17, Space.HOLDING, 5, 4, 1, 3)
INPUT = RegisterRead(17, Space.INPUT, 5, 4, 1, 4)
WRITE = RegisterWrite(17, Space.HOLDING, 7, b"\x12\x34", 1, 6)
MERGED = RegisterWrite(17, Space.HOLDING, 4, b"\x00\xf2\x00\x25", 1, 22)  # the example of 6.16
OBJECT = RegisterRead(17, Space.OBJECT, 1, 8, 1, 43)
QUEUE = RegisterRead(17, Space.QUEUE, 0x04DE, 8, 1, 24)  # the example of 6.18
BOTH = RegisterRead(17, Space.HOLDING, 3, 12, 1, 23, first=(14, b"\x00\xff" * 3))  # the example of 6.17
MULTI = RegisterWrite(17, Space.HOLDING, 8, b"\x00\x01\x00\x02", 1, 16, False)
ATOMIC = RegisterWrite(17, Space.HOLDING, 8, b"\x00\x01\x00\x02", 1, 16, True)


def test_crc_when_computed_then_the_value_of_the_serial_line_specification() -> None:
    # Modbus over Serial Line V1.02, appendix B: the frame 02 07 has the CRC 0x1241 (sent 41 12)
    assert crc16(b"\x02\x07") == 0x1241


FRAMES = [
    (READ, "110300050002"),
    (INPUT, "110400050002"),
    (WRITE, "110600071234"),
    (MULTI, "1110000800020400010002"),
    (MERGED, "1116000400f20025"),
    (OBJECT, "112b0e0401"),
    (QUEUE, "111804de"),
    (BOTH, "1117 0003 0006 000e 0003 06 00ff00ff00ff"),
]


@pytest.mark.parametrize(("transfer", "body"), FRAMES)
def test_request_when_framed_then_as_the_application_protocol_says(
    transfer: RegisterRead | RegisterWrite, body: str
) -> None:
    assert request_of(transfer) == framed(bytes.fromhex(body))


@pytest.mark.parametrize(
    "transfer",
    [
        RegisterRead(17, Space.HOLDING, 5, 3, 1, 3),
        RegisterRead(17, Space.HOLDING, 5, 252, 1, 3),
        RegisterRead(17, Space.HOLDING, 5, 2, 1, 1),
        RegisterWrite(17, Space.HOLDING, 5, b"\x00" * 4, 1, 6),
        RegisterWrite(17, Space.HOLDING, 5, b"\x00" * 248, 1, 16),
        RegisterWrite(17, Space.HOLDING, 5, b"\x00" * 2, 1, 22),
        RegisterRead(17, Space.OBJECT, 256, 8, 1, 43),
        RegisterRead(17, Space.HOLDING, 3, 12, 1, 23),
        RegisterRead(17, Space.HOLDING, 3, 12, 1, 23, first=(14, b"")),
        RegisterRead(17, Space.HOLDING, 3, 12, 1, 23, first=(14, bytes(3))),
        RegisterRead(17, Space.HOLDING, 3, 12, 1, 23, first=(14, bytes(244))),
        RegisterRead(17, Space.HOLDING, 3, 252, 1, 23, first=(14, bytes(2))),
    ],
)
def test_request_when_no_frame_can_say_it_then_refused(transfer: RegisterRead | RegisterWrite) -> None:
    with pytest.raises(ValueError, match="no Modbus frame"):
        request_of(transfer)


ANSWERS: list[tuple[RegisterRead | RegisterWrite, bytes, type, str]] = [
    (READ, framed(bytes.fromhex("11030400010002")), Confirmed, ""),
    (WRITE, framed(bytes.fromhex("110600071234")), Confirmed, ""),
    (MULTI, framed(bytes.fromhex("111000080002")), Confirmed, ""),
    (MERGED, framed(bytes.fromhex("1116000400f20025")), Confirmed, ""),
    (MERGED, framed(bytes.fromhex("1116000400f20024")), Ambiguous, "differs"),
    (MERGED, framed(bytes.fromhex("1116000400f2")), Ambiguous, "differs"),
    (OBJECT, framed(bytes.fromhex("112b0e04830000010104") + b"MX-5"), Confirmed, ""),
    (OBJECT, framed(bytes.fromhex("112b0e04830000010100")), Confirmed, ""),
    (OBJECT, framed(bytes.fromhex("112b0e04830000010105") + b"MX-5"), Ambiguous, "no reply that holds object 1"),
    (OBJECT, framed(bytes.fromhex("112b0e04830000010204") + b"MX-5"), Ambiguous, "no reply that holds object 1"),
    (OBJECT, framed(bytes.fromhex("112b0e01010000010104") + b"MX-5"), Ambiguous, "no reply that holds object 1"),
    (OBJECT, framed(bytes.fromhex("112b0e04830000020104") + b"MX-5"), Ambiguous, "no reply that holds object 1"),
    (OBJECT, framed(bytes.fromhex("112b0e")), Ambiguous, "no reply that holds object 1"),
    (OBJECT, framed(bytes.fromhex("112b0e04830000010109") + b"MX-5 rev2"), Confirmed, ""),  # whoever reads it sees
    (QUEUE, framed(bytes.fromhex("11180006000201b81284")), Confirmed, ""),
    (QUEUE, framed(bytes.fromhex("111800020000")), Confirmed, ""),
    (QUEUE, framed(bytes.fromhex("11180006000101b81284")), Ambiguous, "no reply that holds a queue"),
    (QUEUE, framed(bytes.fromhex("11180004000201b81284")), Ambiguous, "no reply that holds a queue"),
    (QUEUE, framed(bytes.fromhex("1118000a0004" + 4 * "0001")), Confirmed, ""),
    (QUEUE, framed(bytes.fromhex("11180042 0020" + 32 * "0001")), Ambiguous, "no reply that holds a queue"),
    (BOTH, framed(bytes.fromhex("11170c 00fe0acd00010003000d00ff")), Confirmed, ""),
    (BOTH, framed(bytes.fromhex("111702 00fe")), Ambiguous, "2 data bytes came"),
    (READ, b"", Ambiguous, "fragment of 0"),
    (READ, b"\x11\x03\x04", Ambiguous, "fragment of 3"),
    (READ, framed(bytes.fromhex("11030400010002"))[:-1] + b"\x00", Ambiguous, "CRC error"),
    (READ, framed(bytes.fromhex("12030400010002")), Ambiguous, "unit 18"),
    (READ, framed(bytes.fromhex("11040400010002")), Ambiguous, "function 0x04"),
    (READ, framed(bytes.fromhex("1103020001")), Ambiguous, "2 data bytes came"),
    (READ, framed(bytes.fromhex("11030300010002")), Ambiguous, "were asked for"),
    (WRITE, framed(bytes.fromhex("110600071235")), Ambiguous, "differs"),
    (WRITE, framed(bytes.fromhex("110600081234")), Ambiguous, "differs"),
    (MULTI, framed(bytes.fromhex("111000080001")), Ambiguous, "differs"),
]


@pytest.mark.parametrize(("transfer", "frame", "kind", "text"), ANSWERS)
def test_answer_when_a_frame_came_then_confirmed_only_if_it_fits(
    transfer: RegisterRead | RegisterWrite, frame: bytes, kind: type, text: str
) -> None:
    answer = answer_of(transfer, frame)
    assert type(answer) is kind
    if isinstance(answer, Ambiguous):
        assert answer.stage is Sent.REPLY
        assert text in answer.fault


# exception code → does it prove that nothing happened, for a read, a single write, several registers, atomic ones
PROOFS = [
    (0x01, True, True, False, True),
    (0x02, True, True, False, True),
    (0x03, True, True, False, True),
    (0x04, False, False, False, False),
    (0x05, False, False, False, False),
    (0x06, True, True, True, True),
    (0x08, False, False, False, False),
    (0x0B, False, False, False, False),
    (0x7F, False, False, False, False),
]


@pytest.mark.parametrize(("code", "read", "single", "several", "atomic"), PROOFS, ids=[f"{p[0]:02X}" for p in PROOFS])
def test_proof_table_when_an_exception_comes_then_only_these_show_non_execution(
    code: int, read: bool, single: bool, several: bool, atomic: bool
) -> None:
    for transfer, proved in ((READ, read), (WRITE, single), (MULTI, several), (ATOMIC, atomic)):
        frame = framed(bytes([17, (transfer.function or 0) | 0x80, code]))
        answer = answer_of(transfer, frame)
        if proved:
            assert answer == Rejected(answer.fault, f"modbus-exception-{code:02X}")  # type: ignore[union-attr]
        else:
            assert isinstance(answer, Ambiguous)


@pytest.fixture
def slave() -> Iterator[Slave]:
    it = Slave()
    yield it
    it.close()


def line(slave: Slave, response_ms: int = 150, echo: bool = False) -> ModbusRtu:
    return ModbusRtu(RtuSettings(slave.path, response_ms=response_ms, echo=echo))


REPLY = framed(bytes.fromhex("11030400010002"))


def test_line_when_a_reply_comes_in_pieces_then_it_is_put_together(slave: Slave) -> None:
    bus = line(slave, 2000)
    slave.script = [[REPLY[:1], REPLY[1:4], REPLY[4:]]]
    assert bus.perform(READ) == Confirmed(b"\x00\x01\x00\x02")
    assert slave.requests == [request_of(READ)]
    bus.close()


def test_line_when_an_exception_comes_then_it_does_not_wait_for_more(slave: Slave) -> None:
    bus = line(slave, 60_000)
    slave.script = [[framed(bytes([17, 0x83, 2]))]]
    assert bus.perform(READ) == Rejected("Modbus exception 02 (illegal data address)", "modbus-exception-02")
    bus.close()


def test_line_when_silent_then_ambiguous_and_one_frame_on_the_wire(slave: Slave) -> None:
    bus = line(slave)
    answer = bus.perform(WRITE)
    assert answer == Ambiguous(Sent.REPLY, "no reply within 150 ms")
    assert slave.requests == [request_of(WRITE)]
    bus.close()


def test_line_when_only_a_fragment_comes_then_its_length_is_told_hc048(slave: Slave) -> None:
    for length in range(1, len(REPLY)):
        told = "fragment of" if length < 5 else "CRC error in"
        whole = Ambiguous(Sent.REPLY, f"{told} {length} bytes: {REPLY[:length].hex()}")
        assert answer_of(READ, REPLY[:length]) == whole
    bus = line(slave)
    slave.script = [[REPLY[:4]]]
    assert isinstance(bus.perform(READ), Ambiguous)
    bus.close()


def test_line_when_quiesced_then_what_was_late_is_gone(slave: Slave) -> None:
    waits: list[float] = []
    bus = ModbusRtu(RtuSettings(slave.path, response_ms=150), clock=lambda: 100.0, sleep=waits.append)
    bus.open()
    os.write(slave.far, REPLY)
    bus.quiesce(100.5)
    assert waits == [0.5]
    slave.script = [[framed(bytes.fromhex("11030400630063"))]]
    assert bus.perform(READ) == Confirmed(b"\x00\x63\x00\x63")
    bus.close()


def test_line_when_two_frames_follow_then_the_gap_is_kept(slave: Slave) -> None:
    now = [100.0]
    waits: list[float] = []
    settings = RtuSettings(slave.path, baud=9600, response_ms=1000)
    bus = ModbusRtu(settings, clock=lambda: now[0], sleep=waits.append)
    slave.script = [[REPLY], [REPLY]]
    bus.perform(READ)
    bus.perform(READ)
    assert [round(w, 6) for w in waits] == [round(3.5 * 11 / 9600, 6)]
    bus.close()


def test_line_when_opened_twice_then_the_second_is_told_and_sends_nothing(slave: Slave) -> None:
    first, second = line(slave), line(slave)
    first.open()
    answer = second.perform(READ)
    assert isinstance(answer, Rejected)
    assert answer.proof == "port-not-opened"
    assert slave.requests == []
    first.close()
    first.close()


def test_line_when_the_port_is_absent_then_proved_not_sent(tmp_path: Path) -> None:
    answer = ModbusRtu(RtuSettings(str(tmp_path / "none"))).perform(READ)
    assert isinstance(answer, Rejected)
    assert answer.proof == "port-not-opened"


@pytest.mark.parametrize(
    ("at", "kind", "stage"),
    [
        ("before sending", Rejected, None),
        ("while sending", Ambiguous, Sent.DATA),
        ("before the reply", Ambiguous, Sent.REPLY),
    ],
)
def test_line_when_the_device_vanishes_then_only_before_sending_it_is_proved_hc044(
    monkeypatch: pytest.MonkeyPatch, at: str, kind: type, stage: Sent | None
) -> None:
    far, near = pty.openpty()
    tty.setraw(near)
    bus = ModbusRtu(RtuSettings(os.ttyname(near), response_ms=2000))
    bus.open()
    os.close(near)

    def broken(_: int) -> None:
        raise termios.error(5, "Input/output error")

    match at:
        case "before sending":
            os.close(far)
        case "while sending":
            monkeypatch.setattr(termios, "tcdrain", broken)
        case _:
            monkeypatch.setattr(termios, "tcdrain", lambda _: os.close(far))  # hung up as the frame is out
    answer = bus.perform(WRITE)
    assert (type(answer), getattr(answer, "stage", None)) == (kind, stage), answer
    assert bus._port is None  # the dead descriptor is not used again
    if at == "before sending":
        assert answer == Rejected(getattr(answer, "fault", ""), "port-vanished")
        assert isinstance(bus.perform(WRITE), Rejected)
    elif at == "while sending":
        os.close(far)


def test_line_when_it_takes_no_more_then_given_up_within_the_response_time_and_in_doubt(
    monkeypatch: pytest.MonkeyPatch, slave: Slave
) -> None:
    bus = line(slave, response_ms=60)
    bus.open()
    monkeypatch.setattr(os, "write", lambda _node, data: min(2, len(data) - 1) if len(data) > 3 else 0)
    monkeypatch.setattr("hwtool_registers.buses.modbus._ready", lambda *_: False)
    answer = bus.perform(WRITE)
    assert (type(answer), getattr(answer, "stage", None)) == (Ambiguous, Sent.DATA)
    assert "takes no more; 6 bytes are left" in getattr(answer, "fault", "")


def test_line_when_something_had_come_before_then_it_is_no_part_of_the_reply(slave: Slave) -> None:
    bus = line(slave)
    bus.open()
    os.write(slave.far, b"left over")
    slave.script = [[REPLY]]
    assert isinstance(bus.perform(READ), Confirmed)
    bus.close()


def test_line_when_it_takes_a_frame_in_pieces_then_each_byte_once(
    monkeypatch: pytest.MonkeyPatch, slave: Slave
) -> None:
    bus = line(slave)
    bus.open()
    real = os.write
    taken: list[bytes] = []
    node = bus._port.fileno() if bus._port is not None else -1

    def write(handle: int, data: bytes) -> int:
        if handle != node:
            return real(handle, data)
        if len(taken) % 2:
            taken.append(b"")
            raise BlockingIOError(11, "no room")
        taken.append(bytes(data[:3]))
        return 3 if len(data) > 3 else len(data)

    monkeypatch.setattr(os, "write", write)
    assert isinstance(bus.perform(WRITE), Ambiguous)  # nobody got it, so nobody answers
    assert b"".join(taken) == request_of(WRITE)
    bus.close()


def test_line_when_it_never_falls_silent_then_quiesce_gives_up(monkeypatch: pytest.MonkeyPatch, slave: Slave) -> None:
    monkeypatch.setattr("hwtool_registers.buses.modbus.MAX_DRAINS", 5)
    bus = line(slave)
    bus.open()
    for _ in range(30):
        os.write(slave.far, b"?" * 100)
    with pytest.raises(OSError, match="does not fall silent"):
        bus.quiesce(0)
    bus.close()


def test_line_when_the_device_vanishes_while_it_is_drained_then_the_next_try_opens_it_anew(slave: Slave) -> None:
    far, near = pty.openpty()
    bus = ModbusRtu(RtuSettings(os.ttyname(near), response_ms=150))
    bus.open()
    os.close(near)
    os.close(far)
    with pytest.raises(OSError, match="vanished"):
        bus.quiesce(0)
    bus._settings = RtuSettings(slave.path, response_ms=150)
    bus.quiesce(0)  # it is back
    slave.script = [[REPLY]]
    assert isinstance(bus.perform(READ), Confirmed)
    bus.close()


def test_line_when_another_program_changed_its_settings_then_nothing_is_sent_and_it_is_opened_anew(
    slave: Slave,
) -> None:
    slave.script = [[REPLY], [REPLY]]
    bus = line(slave)
    assert isinstance(bus.perform(READ), Confirmed)
    ours = termios.tcgetattr(slave.near)
    others = list(ours)
    others[4] = others[5] = termios.B1200
    termios.tcsetattr(slave.near, termios.TCSANOW, others)
    answer = bus.perform(WRITE)
    assert isinstance(answer, Rejected)
    assert (answer.proof, "settings were changed" in answer.fault) == ("port-vanished", True)
    assert len(slave.requests) == 1
    assert isinstance(bus.perform(READ), Confirmed)
    assert termios.tcgetattr(slave.near) == ours
    bus.close()


ASKED = request_of(READ)
ECHOES: list[tuple[list[bytes], type, Sent | None, str]] = [
    ([ASKED, REPLY], Confirmed, None, ""),
    ([ASKED[:3], ASKED[3:] + REPLY[:2], REPLY[2:]], Confirmed, None, ""),
    ([ASKED], Ambiguous, Sent.REPLY, "no reply"),
    ([], Ambiguous, Sent.DATA, "did not echo the request: nothing"),
    ([REPLY], Ambiguous, Sent.DATA, f"did not echo the request: {REPLY[: len(ASKED)].hex()}"),  # an adapter without
    ([b"\xff" + ASKED[1:], REPLY], Ambiguous, Sent.DATA, "did not echo"),  # somebody else was sending too
]


@pytest.mark.parametrize(("pieces", "kind", "stage", "text"), ECHOES)
def test_line_when_its_adapter_hears_itself_then_the_echo_must_be_the_request(
    slave: Slave, pieces: list[bytes], kind: type, stage: Sent | None, text: str
) -> None:
    slave.script = [pieces]
    bus = line(slave, response_ms=1500, echo=True)  # long enough on a machine that is busy
    answer = bus.perform(READ)
    assert (type(answer), getattr(answer, "stage", None)) == (kind, stage)
    assert text in getattr(answer, "fault", "")
    assert slave.requests == [ASKED]
    bus.close()


@pytest.mark.parametrize("transfer", [Line("x", True), RegisterRead(17, Space.MEMORY, 0, 1)])
def test_line_when_a_transfer_is_not_modbus_then_rejected_unsent(slave: Slave, transfer: Transfer) -> None:
    answer = line(slave).perform(transfer)
    assert isinstance(answer, Rejected)
    assert answer.proof == "not-sent"
    assert slave.requests == []


def test_line_when_closed_then_its_terminal_is_open_to_others_again(monkeypatch: pytest.MonkeyPatch) -> None:
    import fcntl

    near, far = os.openpty()
    bus = ModbusRtu(RtuSettings(os.ttyname(far)))
    bus.open()
    asked: list[int] = []
    real = fcntl.ioctl

    def ioctl(handle: int, request: int, *rest: Any) -> Any:
        asked.append(request)
        return real(handle, request, *rest)

    monkeypatch.setattr(fcntl, "ioctl", ioctl)
    bus.close()
    assert termios.TIOCNXCL in asked
    os.close(near)
    os.close(far)
