"""`hwtool sim` as a stranger runs it: a process on a board file, daemons that join it, and its end."""

from __future__ import annotations

import os
import shutil
import signal
import tempfile
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from hwtool.config import parse_board
from hwtool.simulator import served
from hwtool_contracts.model import Space
from hwtool_registers.bus import Ambiguous, Confirmed, RegisterRead, Rejected, as_object
from hwtool_registers.buses.modbus import ModbusRtu, RtuSettings
from hwtool_registers.buses.modbus_tcp import ModbusTcp, TcpSettings
from hwtool_sim.process import SimConnection
from tests.running import RunningDaemon, RunningSimulator, command_line
from tests.sim.test_tcp import free_port

BOARD = """
name = "bench"
approval_mode = "separate-user"
[buses.i2c0]
kind = "sim"
socket = "{folder}/sim"
sole_master = true
reply_lifetime_ms = 100
[buses.i2c1]
kind = "sim"
socket = "{folder}/sim"
[buses.line0]
kind = "modbus-rtu"
path = "{folder}/line0"
baud = 115200
response_ms = 1000
[devices.gpio]
contract = "mcp23017"
bus = "i2c0"
address = 0x20
[devices.other]
contract = "mcp23017"
bus = "i2c1"
address = 0x20
[devices.meter]
contract = "sdm120"
bus = "line0"
address = 1
"""
VOLTAGE = RegisterRead(1, Space.INPUT, 0, 4, 1, 4)


@pytest.fixture
def folder() -> Iterator[Path]:
    """A short one, with a board of two simulated buses and a line."""
    with tempfile.TemporaryDirectory(prefix="hw-", dir="/tmp") as name:
        (Path(name) / "board.toml").write_text(BOARD.format(folder=name))
        yield Path(name)


def ask(folder: Path, **request: Any) -> dict[str, Any]:
    connection = SimConnection(str(folder / "sim"))
    try:
        return connection.ask(request)
    finally:
        connection.close()


def counts(folder: Path, bus: str, address: str) -> dict[str, int]:
    found: dict[str, int] = ask(folder, control="counts")["counts"][bus][address]
    return found


def test_sim_when_daemons_join_die_and_come_again_then_the_chips_count_on_their_own(folder: Path) -> None:
    text = (folder / "board.toml").read_text()
    with RunningSimulator(folder / "board.toml"), RunningDaemon(text) as daemon:
        with daemon.hw("operator") as client:
            assert client.write("gpio.OLATA", 0x5A, key="stranger-0001").effects == "applied"
            assert client.read("other.OLATA").value.raw == "0x00"
            assert client.read("meter.VOLTAGE").value.value == pytest.approx(230.1)
        daemon.kill()
        assert counts(folder, "i2c0", "0x20")["OLATA.write"] == 1
        daemon.start()
        with daemon.hw("operator") as client:
            assert client.read("gpio.OLATA").value.raw == "0x5a"
            again = client.write("gpio.OLATA", 0x5A, key="stranger-0001")
            assert (again.effects, again.replayed) == ("applied", True)
            assert client.read("meter.VOLTAGE").value.value == pytest.approx(230.1)
        assert counts(folder, "i2c0", "0x20")["OLATA.write"] == 1
        assert counts(folder, "i2c1", "0x20")["OLATA.read"] == 1
        assert counts(folder, "line0", "0x01")["VOLTAGE.read"] == 2


def test_sim_when_a_second_daemon_with_another_store_joins_then_it_is_refused_and_sends_nothing(folder: Path) -> None:
    text = (folder / "board.toml").read_text()
    with RunningSimulator(folder / "board.toml"), RunningDaemon(text):
        before = ask(folder, control="counts")
        second = RunningDaemon(text)
        refused = command_line(second, *second.arguments())
        shutil.rmtree(second.directory)
        assert refused.returncode == 2
        assert "bus i2c0 of the simulator at" in refused.stderr
        assert "in use by another daemon" in refused.stderr
        assert "Traceback" not in refused.stderr
        assert ask(folder, control="counts") == before


ENDS = [("SIGTERM", signal.SIGTERM), ("SIGINT", signal.SIGINT), ("control", None)]


@pytest.mark.parametrize(("_what", "number"), ENDS, ids=[e[0] for e in ENDS])
def test_sim_when_told_to_stop_then_it_ends_with_0_and_takes_socket_and_link_away(
    folder: Path, _what: str, number: signal.Signals | None
) -> None:
    with RunningSimulator(folder / "board.toml") as simulator:
        assert (folder / "sim").stat().st_mode & 0o777 == 0o600
        assert (folder / "line0").is_symlink()
        if number is None:
            ask(folder, control="stop")
        else:
            assert simulator.process is not None
            simulator.process.send_signal(number)
        assert simulator.wait() == 0
        (seed,) = simulator.said  # beside ready, which was said once
        assert seed.startswith("hwtool sim: seed ")
    assert sorted(os.listdir(folder)) == ["board.toml", "line0.lock"]  # noqa: PTH208


def test_sim_when_it_was_killed_then_the_next_one_replaces_what_it_left(folder: Path) -> None:
    with RunningSimulator(folder / "board.toml"):
        pass  # SIGKILL at the end
    assert (folder / "line0").is_symlink()
    with RunningSimulator(folder / "board.toml"):
        master = ModbusRtu(RtuSettings(str(folder / "line0"), response_ms=10_000))
        assert isinstance(master.perform(VOLTAGE), Confirmed)
        master.close()
        assert counts(folder, "line0", "0x01") == {"VOLTAGE.read": 1}


def test_sim_when_a_line_is_unplugged_by_control_then_its_link_is_gone_until_it_is_plugged(folder: Path) -> None:
    with RunningSimulator(folder / "board.toml"):
        ask(folder, control="unplug", bus="line0")
        assert not os.path.lexists(folder / "line0")
        (folder / "line0").touch()
        with pytest.raises(ValueError, match="exists and is no link left behind by a simulator"):
            ask(folder, control="plug", bus="line0")
        (folder / "line0").unlink()
        ask(folder, control="plug", bus="line0")
        master = ModbusRtu(RtuSettings(str(folder / "line0"), response_ms=10_000))
        assert isinstance(master.perform(VOLTAGE), Confirmed)
        master.close()


LINE_REFUSALS: list[tuple[dict[str, Any], str]] = [
    ({"control": "fault", "fault": {"kind": "unplug", "address": 1, "lasts_s": 1.0}}, "plug it with a control"),
    ({"control": "fault", "fault": {"kind": "nack", "address": 1}}, "nack: bus line0 is a line of Modbus"),
    (
        {"control": "fault", "fault": {"kind": "swap", "address": 1, "contract": "tmp102"}},
        "tmp102 has no .access.modbus",
    ),
    ({"control": "fault", "fault": {"kind": "data_nack", "address": 1}}, "data_nack: bus line0 is a line of Modbus"),
    ({"control": "swap", "address": 1, "contract": "tmp102"}, "tmp102 has no .access.modbus.; bus line0 is a Modbus"),
    ({"control": "move", "address": 1, "to": 248}, "248 is no Modbus unit"),
    ({"join": True}, "bus line0 is served at .*line0, not here"),
    ({"boot_evidence": 1}, "bus line0 is served at .*line0, not here"),
]


def test_sim_when_a_line_cannot_have_it_then_refused_with_the_reason(folder: Path) -> None:
    with RunningSimulator(folder / "board.toml"):
        for request, words in LINE_REFUSALS:
            with pytest.raises(ValueError, match=words):
                ask(folder, bus="line0", **request)
        ask(folder, control="move", bus="line0", address=1, to=2)
        ask(folder, control="swap", bus="line0", address=2, same=True)
        assert list(ask(folder, control="counts", bus="line0")["counts"]) == ["0x02"]


def test_sim_when_a_bus_is_modbus_tcp_then_served_on_its_port_and_unplugged_by_control(folder: Path) -> None:
    port = free_port()
    serial = f'kind = "modbus-rtu"\npath = "{folder}/line0"\nbaud = 115200'
    server = f'kind = "modbus-tcp"\nhost = "127.0.0.1"\nport = {port}'
    text = BOARD.format(folder=folder).replace(serial, server)
    (folder / "tcp.toml").write_text(text)
    with RunningSimulator(folder / "tcp.toml"):
        master = ModbusTcp(TcpSettings("127.0.0.1", port, 5000))
        assert isinstance(master.perform(VOLTAGE), Confirmed)
        ask(folder, control="unplug", bus="line0")
        assert isinstance(master.perform(VOLTAGE), Ambiguous | Rejected)
        assert getattr(master.perform(VOLTAGE), "proof", None) == "port-not-opened"
        ask(folder, control="plug", bus="line0")
        assert isinstance(master.perform(VOLTAGE), Confirmed)
        assert counts(folder, "line0", "0x01") == {"VOLTAGE.read": 2}
        master.close()
    other = (folder / "tcp.toml").read_text().replace("127.0.0.1", "192.0.2.1")
    (folder / "tcp.toml").write_text(other)
    assert "no loopback address" in refused(folder, "--board", str(folder / "tcp.toml"))


def refused(folder: Path, *words: str) -> str:
    """What `hwtool sim` says when it ends with 2."""
    nobody = RunningDaemon()  # never started
    done = command_line(nobody, "sim", *words)
    shutil.rmtree(nobody.directory)
    assert (done.returncode, done.stdout) == (2, "")
    assert "Traceback" not in done.stderr
    return done.stderr


def test_sim_when_it_cannot_start_then_exit_2_and_one_clear_sentence(folder: Path) -> None:
    board = folder / "board.toml"
    text = board.read_text()
    assert "Missing option '--board'" in refused(folder)
    assert "cannot be read" in refused(folder, "--board", str(folder / "none.toml"))
    assert "No such file or directory" in refused(folder, "--board", str(board), "--socket", "/nowhere/at/all/sim")
    assert "longer than 107 bytes" in refused(folder, "--board", str(board), "--socket", f"/tmp/{'x' * 120}")
    (folder / "line0").touch()
    taken = refused(folder, "--board", str(board))
    assert taken.count("line0 exists and is no link left behind by a simulator") == 1
    assert not (folder / "sim").exists()
    (folder / "line0").unlink()
    board.write_text(text.replace(f"{folder}/line0", "/dev/hw-line0"))
    assert "/dev/hw-line0 is below /dev" in refused(folder, "--board", str(board))
    board.write_text(text)
    with RunningSimulator(board):
        assert "Address already in use" in refused(folder, "--board", str(board))
        assert list(ask(folder, control="counts")["counts"]) == ["i2c0", "i2c1", "line0"]


SIM = '[buses.{name}]\nkind = "sim"\n{rest}\n'
WHERE: list[tuple[str, list[str], str | None, str]] = [
    ("the board says it", ['socket = "/run/a"'], None, "/run/a"),
    ("both say the same", ['socket = "/run/a"'] * 2, None, "/run/a"),
    ("the option wins", ['socket = "/run/a"', 'socket = "/run/b"', "process = true", ""], "/run/c", "/run/c"),
    ("they differ", ['socket = "/run/a"', 'socket = "/run/b"'], None, "different sockets (b0 /run/a, b1 /run/b)"),
    ("one says none", ['socket = "/run/a"', ""], None, "different sockets (b0 /run/a, b1 none)"),
    ("nobody says it", ["process = true", ""], None, "no socket for b0, b1: say --socket PATH"),
]


@pytest.mark.parametrize(("_what", "buses", "option", "wanted"), WHERE, ids=[w[0] for w in WHERE])
def test_socket_when_board_and_option_are_read_then_one_place_or_a_refusal(
    _what: str, buses: list[str], option: str | None, wanted: str
) -> None:
    parts = [SIM.format(name=f"b{index}", rest=rest) for index, rest in enumerate(buses)]
    board = parse_board("name = 'bench'\n" + "".join(parts), "board.toml", Path())
    if wanted.startswith("/"):
        assert served(board, option).socket == wanted
        return
    with pytest.raises(ValueError, match="socket") as told:
        served(board, option)
    assert wanted in str(told.value)


def test_socket_when_the_board_has_only_lines_then_it_must_be_said() -> None:
    text = "name = 'line'\n[buses.l]\nkind = 'modbus-rtu'\npath = '/tmp/l'\n"
    board = parse_board(text, "board.toml", Path())
    with pytest.raises(ValueError, match="no socket for a line: say --socket PATH"):
        served(board, None)
    assert served(board, "/tmp/s").lines == {"l": "/tmp/l"}


def test_sim_when_a_script_plans_faults_then_they_strike_and_the_seed_is_told(folder: Path) -> None:
    script = folder / "faults.toml"
    script.write_text("seed = 11\n[[faults]]\ndevice = 'gpio'\nkind = 'nack'\ntimes = 'always'\nprobability = 0.5\n")
    struck = []
    for more in (list[str](), ["--seed", "11"], ["--seed", "12"]):
        with RunningSimulator(folder / "board.toml", "--faults", str(script), *more) as simulator:
            bus = SimConnection(f"{folder}/sim")
            read = as_object(RegisterRead(0x20, Space.MEMORY, 0x14, 1))
            struck.append([bus.ask({"bus": "i2c0", "transfer": read})["answer"] for _ in range(32)])
            bus.close()
            assert simulator.said == [f"hwtool sim: seed {more[1] if more else 11}\n"]
    assert struck[0] == struck[1] != struck[2]


def test_sim_when_its_script_cannot_be_used_then_exit_2_and_everything_is_told(folder: Path) -> None:
    script = folder / "faults.toml"
    words = ("--board", str(folder / "board.toml"), "--faults", str(script))
    script.write_text("[[faults]]\ndevice = 'meter'\nkind = 'nack'\n[[faults]]\ndevice = 'gpio'\nkind = 'swap'\n")
    assert "faults[1]: swap needs contract, or same = true" in refused(folder, *words)
    script.write_text("[[faults]]\ndevice = 'meter'\nkind = 'nack'\n")
    assert "faults[0]: nack: bus line0 is a line of Modbus" in refused(folder, *words)
    assert not (folder / "line0").is_symlink()
