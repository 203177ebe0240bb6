"""A recorded bus is the bus, called once for each call; its file has everything but secrets, whatever becomes of it."""

from __future__ import annotations

import errno
import itertools
import json
import os
import signal
import stat
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest

from hwtool_contracts.library import bundled
from hwtool_contracts.model import Space
from hwtool_registers.bus import (
    Ambiguous,
    Answer,
    Capabilities,
    Closes,
    Confirmed,
    Declares,
    HasNode,
    Hears,
    Opens,
    RegisterRead,
    RegisterWrite,
    Rejected,
    Sent,
    Transfer,
)
from hwtool_registers.bus import Testifies as CanTell
from hwtool_registers.buses.i2c import I2c, I2cSettings
from hwtool_registers.buses.modbus import ModbusRtu, RtuSettings
from hwtool_registers.buses.modbus_tcp import ModbusTcp, TcpSettings
from hwtool_sim.bus import SimBus
from hwtool_sim.reached import Reached
from hwtool_sim.recording import next_path, recorder
from hwtool_sim.remote import RemoteSimBus

AT = 0x20
READ = RegisterRead(AT, Space.MEMORY, 0x09, 1)
WRITE = RegisterWrite(AT, Space.MEMORY, 0x14, b"\x2a")
NOTHING = Reached([])
ANSWERS: list[Answer | Exception] = [
    Confirmed(b"\x01"),
    Confirmed(),
    Rejected("nobody", "address-nack"),
    Ambiguous(Sent.DATA, "half"),
    RuntimeError("broken"),
]


class Calls:
    """A bus that counts what it is called for, and answers from a list."""

    def __init__(self, answers: list[Answer | Exception] | None = None) -> None:
        self.answers = list(answers or [])
        self.calls: list[Any] = []

    def perform(self, transfer: Transfer) -> Answer:
        self.calls.append(transfer)
        answer = self.answers.pop(0)
        if isinstance(answer, Exception):
            raise answer
        return answer

    def quiesce(self, until_s: float) -> None:
        self.calls.append(("quiesce", until_s))


class CanOpen:
    def open(self) -> None:
        raise OSError(errno.ENODEV, "not there")


class CanHear:
    def alive(self) -> bool:
        return False


class CanTestify:
    def boot_evidence(self, address: int) -> str | None:
        return f"nonce of {address}"


class CanDeclare:
    @property
    def capabilities(self) -> Capabilities:
        return Capabilities(longest_read_bytes=7)


class CanClose:
    def close(self) -> None:
        pass


class CanNode:
    number = 0

    @property
    def node(self) -> Path:
        self.number += 1
        return Path(f"/dev/node{self.number}")


PARTS = {
    Opens: CanOpen,
    Hears: CanHear,
    CanTell: CanTestify,
    Declares: CanDeclare,
    Closes: CanClose,
    HasNode: CanNode,
}


def parts_of(bus: object) -> set[str]:
    return {part.__name__ for part in PARTS if isinstance(bus, part)}


def entries(path: Path) -> list[dict[str, Any]]:
    return [json.loads(line) for line in path.read_text().splitlines()]


@pytest.mark.parametrize("has", list(itertools.product([False, True], repeat=len(PARTS))))
def test_recorder_when_it_wraps_a_bus_then_it_has_the_parts_of_that_bus_and_close(
    tmp_path: Path, has: tuple[bool, ...]
) -> None:
    kinds = [kind for kind, there in zip(PARTS.values(), has, strict=True) if there]
    bus: Any = type("Some", (Calls, *kinds), {})()
    made = recorder(bus, tmp_path / "r", {}, NOTHING)
    assert parts_of(made) == parts_of(bus) | {"Closes"}
    assert len(parts_of(bus)) == sum(has)
    made.close()


def test_recorder_when_it_wraps_the_products_buses_then_it_has_their_parts(tmp_path: Path) -> None:
    buses: list[Any] = [
        SimBus({}),
        RemoteSimBus(str(tmp_path / "s"), "b", None),
        ModbusRtu(RtuSettings("/dev/null")),
        ModbusTcp(TcpSettings("localhost", 1, 10)),
        I2c(I2cSettings(None, "/dev/null", 10)),
    ]
    for number, bus in enumerate(buses):
        made = recorder(bus, tmp_path / f"{number}", {}, NOTHING)
        assert parts_of(made) == parts_of(bus) | {"Closes"}
        assert made.inline == getattr(bus, "inline", False)


def test_calls_when_recorded_then_passed_on_once_with_what_they_give_or_raise(tmp_path: Path) -> None:
    class All(Calls, CanOpen, CanHear, CanTestify, CanNode):
        pass

    bus = All(ANSWERS)
    made: Any = recorder(bus, tmp_path / "r", {"bus": "b", "kind": "sim"}, NOTHING)
    got: list[Any] = []
    for number in range(len(ANSWERS)):
        try:
            got.append(made.perform(READ if number % 2 else WRITE))
        except RuntimeError as error:
            got.append(error)
    assert got == ANSWERS
    assert all(one is other for one, other in zip(got, ANSWERS, strict=True))
    made.quiesce(4.5)
    with pytest.raises(OSError, match="not there") as raised:
        made.open()
    assert raised.value.errno == errno.ENODEV
    assert (made.alive(), made.boot_evidence(3)) == (False, "nonce of 3")
    assert made.node != made.node  # asked for anew
    made.close()
    made.close()
    assert bus.calls == [WRITE, READ, WRITE, READ, WRITE, ("quiesce", 4.5)]
    head, *rest, end = entries(tmp_path / "r")
    assert (head["format"], head["version"], head["bus"], head["kind"]) == ("hwtool-recording", 1, "b", "sim")
    assert end == {"end": 9}
    assert [entry.get("call", "transfer") for entry in rest] == [
        *["transfer"] * 5, "quiesce", "open", "alive", "boot_evidence"
    ]  # fmt: skip
    assert rest[4]["answer"] == {"answer": "ambiguous", "stage": "data", "fault": "RuntimeError: broken"}
    assert all(one["at_s"] <= other["at_s"] for one, other in itertools.pairwise(rest))


def test_file_when_made_then_for_its_user_alone_and_never_in_place_of_another(tmp_path: Path) -> None:
    made = recorder(Calls(), tmp_path / "run.jsonl", {}, NOTHING)
    assert stat.S_IMODE((tmp_path / "run.jsonl").stat().st_mode) == 0o600
    made.close()
    before = (tmp_path / "run.jsonl").read_bytes()
    (tmp_path / "link").symlink_to(tmp_path / "elsewhere")
    for taken in ("run.jsonl", "link"):
        with pytest.raises(FileExistsError):
            recorder(Calls(), tmp_path / taken, {}, NOTHING)
    assert ((tmp_path / "run.jsonl").read_bytes(), (tmp_path / "elsewhere").exists()) == (before, False)


def test_next_path_when_there_are_some_then_the_first_free_number(tmp_path: Path) -> None:
    assert next_path(tmp_path / "run.jsonl") == tmp_path / "run-1.jsonl"
    (tmp_path / "run-1.jsonl").touch()
    (tmp_path / "run-2.jsonl").symlink_to("nowhere")
    assert next_path(tmp_path / "run.jsonl") == tmp_path / "run-3.jsonl"


class FullDisk:
    """A disk with room for so many bytes; what is given up makes room again."""

    def __init__(self, room_bytes: int) -> None:
        self.room_bytes = room_bytes
        self._write, self._truncate = os.write, os.ftruncate

    def write(self, file: int, data: bytes) -> int:
        if not self.room_bytes:
            raise OSError(errno.ENOSPC, "No space left on device")
        done = self._write(file, data[: self.room_bytes])
        self.room_bytes -= done
        return done

    def ftruncate(self, file: int, size_bytes: int) -> None:
        self.room_bytes += os.fstat(file).st_size - size_bytes
        self._truncate(file, size_bytes)


@pytest.mark.parametrize("over_bytes", [0, 100], ids=["the mark does not fit", "the mark fits"])
def test_disk_when_it_is_full_then_the_bus_goes_on_once_and_the_file_is_marked_as_cut_short(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture, over_bytes: int
) -> None:
    bus = Calls([Confirmed(b"\x01")] * 4)
    made = recorder(bus, tmp_path / "r", {}, NOTHING)
    assert made.perform(READ) == Confirmed(b"\x01")
    disk = FullDisk(over_bytes)
    monkeypatch.setattr("os.write", disk.write)
    monkeypatch.setattr("os.ftruncate", disk.ftruncate)
    assert [made.perform(READ) for _ in range(3)] == [Confirmed(b"\x01")] * 3
    made.close()
    assert bus.calls == [READ] * 4
    cut = [{"cut": "[Errno 28] No space left on device"}] if over_bytes else []
    assert entries(tmp_path / "r")[2:] == cut
    assert [r.getMessage() for r in caplog.records] == [
        f"the recording {tmp_path / 'r'} is cut short after 1 entries: [Errno 28] No space left on device"
    ]


def test_facts_when_they_fail_then_the_answer_comes_and_the_recording_ends(
    tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    class Broken(Reached):
        def known(self, transfer: Transfer) -> Any:
            raise LookupError("a mistake")

    made = recorder(Calls([Confirmed(), Confirmed()]), tmp_path / "r", {}, Broken([]))
    assert [made.perform(WRITE), made.perform(WRITE)] == [Confirmed(), Confirmed()]
    assert entries(tmp_path / "r")[1:] == [{"cut": "LookupError"}]
    assert len(caplog.records) == 1


KILLED = """
import os, signal, sys
from pathlib import Path
from hwtool_sim.bus import SimBus
from hwtool_sim.reached import Reached
from hwtool_sim.recording import recorder
from tests.sim.test_recording import READ
bus = recorder(SimBus({}), Path(sys.argv[1]), {}, Reached([]))
for _ in range(3):
    bus.perform(READ)
os.kill(os.getpid(), signal.SIGKILL)
"""


def test_process_when_it_is_killed_then_every_transfer_that_was_answered_is_in_the_file(tmp_path: Path) -> None:
    done = subprocess.run([sys.executable, "-c", KILLED, str(tmp_path / "r")], check=False)
    assert done.returncode == -signal.SIGKILL
    assert [entry["answer"]["proof"] for entry in entries(tmp_path / "r")[1:]] == ["address-nack"] * 3


def test_head_when_made_then_it_names_the_contracts_and_what_the_bus_can_carry(tmp_path: Path) -> None:
    class Declaring(Calls, CanDeclare):
        pass

    recorder(Declaring(), tmp_path / "r", {"board": "x"}, Reached([(AT, bundled("tmp102"))]))
    (head,) = entries(tmp_path / "r")
    assert head["contracts"] == {"0x20": bundled("tmp102").digest}
    assert (head["board"], head["capabilities"]["longest_read_bytes"]) == ("x", 7)
