"""What a reader with fresh eyes found in verbs and sockets; each was wrong once."""

from __future__ import annotations

import json
import socket
import stat
import subprocess
import sys
import time
from pathlib import Path

import pytest

from hwtool_sim.process import SimConnection
from tests.running import LIMIT_S, RunningDaemon, RunningSimulator, command_line
from tests.surface.test_starting import PASSES

BOARD = """
name = "dead"
approval_mode = "self"
[buses.b]
kind = "sim"
socket = "{folder}/sim"
[devices.gpio]
contract = "mcp23017"
bus = "b"
address = 0x20
"""


@pytest.fixture(scope="module")
def daemon() -> object:
    with RunningDaemon() as running:
        yield running


def test_diff_when_the_device_does_not_answer_then_not_the_same_and_nothing_is_written(tmp_path: Path) -> None:
    (tmp_path / "board.toml").write_text(text := BOARD.format(folder=tmp_path))
    with RunningSimulator(tmp_path / "board.toml", "--socket", str(tmp_path / "sim")) as simulator:
        daemon = RunningDaemon(text).start()
        dump = tmp_path / "gpio.toml"
        assert command_line(daemon, "dump", "gpio", "-o", str(dump)).returncode == 0
        assert command_line(daemon, "diff", str(dump), "--exit-code").returncode == 0
        assert simulator.process is not None
        simulator.process.kill()
        simulator.process.wait(LIMIT_S)
        for words in (["diff", str(dump)], ["diff", str(dump), "--exit-code"], ["apply", str(dump), "--yes"]):
            done = command_line(daemon, *words)
            assert (done.returncode != 0, "no difference" in done.stderr, "Traceback" in done.stderr) == (
                True,
                False,
                False,
            ), words
        daemon.stop()


def test_apply_when_a_register_cannot_be_compared_then_nothing_is_written_and_it_is_named(tmp_path: Path) -> None:
    (tmp_path / "board.toml").write_text(text := BOARD.format(folder=tmp_path))
    with RunningSimulator(tmp_path / "board.toml", "--socket", str(tmp_path / "sim")), RunningDaemon(text) as daemon:
        dump = tmp_path / "gpio.toml"
        assert command_line(daemon, "dump", "gpio", "OLATA", "OLATB", "-o", str(dump)).returncode == 0
        assert command_line(daemon, "write", "gpio.OLATB=0x55").returncode == 0
        fault = {"kind": "nack", "address": 0x20, "access": "read", "offset": 0x14, "times": 99}
        line = SimConnection(str(tmp_path / "sim"))
        line.ask({"control": "fault", "bus": "b", "fault": fault})
        line.close()
        for words in (["diff", str(dump)], ["apply", str(dump), "--yes"]):
            done = command_line(daemon, *words)
            assert (done.returncode, "gpio.OLATA" in done.stderr) == (1, True), done.stderr
        assert "0x55" in command_line(daemon, "read", "gpio.OLATB").stdout
        assert stat.S_IMODE(dump.stat().st_mode) == 0o600  # it may hold values that no record shows


def test_subscription_when_its_connection_went_before_it_was_made_then_dropped(daemon: RunningDaemon) -> None:
    def transfers() -> float:
        with daemon.client() as client:
            text = client.ask("metrics")["text"]
        lines = [line for line in text.splitlines() if line.startswith("hwtool_transfers_total")]
        return sum(float(line.rpartition(" ")[2]) for line in lines)

    line = socket.socket(socket.AF_UNIX)
    line.connect(str(daemon.sockets / "agent.sock"))
    for number, (method, params) in enumerate(
        [
            ("rpc.discover", {}),
            ("reg.write", {"register": "gpio.OLATA", "value": 1, "key": "gone-write-1"}),
            ("events.subscribe", {"registers": ["gpio.OLATA"], "interval_ms": 20}),
        ]
    ):
        line.sendall(json.dumps({"jsonrpc": "2.0", "id": number, "method": method, "params": params}).encode() + b"\n")
    line.close()
    time.sleep(1.0)  # what is polled for nobody can only be seen by waiting
    before = transfers()
    time.sleep(1.0)
    assert transfers() == before


NONSENSE = [
    ["watch", "gpio.OLATA", "--until", "gpio.OLATA>0 kV"],
    ["watch", "gpio.OLATA", "--until", "gpio.OLATA>1.2.3"],
    ["watch", "gpio.OLATA", "--until", "gpio.OLATA=0x"],
    ["watch", "gpio.OLATA", "--until", "gpio.OLATA>low"],
    ["watch", "gpio.OLATA", "--until", "gpio.OLATA>1", "--timeout", "inf"],
    ["watch", "gpio.OLATA", "--until", "gpio.OLATA>1", "--timeout", "nan"],
    ["watch", "gpio.OLATA", "--until", "gpio.OLATA>1", "--timeout", "1e300"],
]


@pytest.mark.parametrize("words", NONSENSE, ids=lambda w: " ".join(w[2:]))
def test_watch_when_it_cannot_understand_then_says_so_at_once(daemon: RunningDaemon, words: list[str]) -> None:
    done = command_line(daemon, *words)
    assert (done.returncode, "Traceback" in done.stderr) == (2, False), done.stderr


@pytest.mark.parametrize(
    ("head", "values"),
    [("contract = 5", "OLATA = 1"), ("contract = 'mcp23017'", "OLATA = -1"), ("contract = 'mcp23017'", "OLATA = 256")],
)
def test_diff_when_a_file_has_impossible_values_then_usage(tmp_path: Path, head: str, values: str) -> None:
    for name in ("one", "two"):
        (tmp_path / f"{name}.toml").write_text(
            f"device = 'gpio'\n{head}\n[values]\n{values if name == 'one' else 'OLATA = 2'}\n"
        )
    command = [sys.executable, "-m", "hwtool", "diff", str(tmp_path / "one.toml"), str(tmp_path / "two.toml")]
    done = subprocess.run(command, capture_output=True, text=True, timeout=LIMIT_S, check=False)
    assert (done.returncode, "Traceback" in done.stderr) == (2, False), done.stderr


@pytest.mark.parametrize("spoilt", ['path = "a\\u0000b"', 'contract = "./\\u0000"'])
def test_board_when_a_path_has_a_zero_then_a_fault(tmp_path: Path, spoilt: str) -> None:
    kind = "modbus-rtu" if "path" in spoilt else "sim"
    contract = 'contract = "mcp23017"' if "path" in spoilt else spoilt
    path = spoilt if "path" in spoilt else ""
    file = tmp_path / "board.toml"
    file.write_text(
        f'name = "b"\n[buses.b]\nkind = "{kind}"\n{path}\n[devices.d]\n{contract}\nbus = "b"\naddress = 0x20\n'
    )
    command = [sys.executable, "-m", "hwtool", "board", "lint", str(file)]
    done = subprocess.run(command, capture_output=True, text=True, timeout=LIMIT_S, check=False)
    assert (done.returncode, "Traceback" in done.stderr) == (2, False), done.stderr


def test_journal_when_followed_from_far_back_then_nothing_is_left_out(daemon: RunningDaemon) -> None:
    from tests.running import start_command

    for number in range(8):
        command_line(daemon, "write", f"gpio.GPPUA={number}", "--key", f"follow-{number:04}")
    follows = start_command(daemon, "journal", "--follow", "--json", "--since", "0", "--limit", "3")
    try:
        assert follows.stdout is not None
        seen = [json.loads(follows.stdout.readline())["seq"] for _ in range(16)]
        assert seen == list(range(1, 17))
    finally:
        follows.terminate()
        follows.wait(LIMIT_S)


def test_verify_when_there_is_nothing_to_verify_then_usage(tmp_path: Path) -> None:
    command = [sys.executable, "-m", "hwtool", "journal", "verify", str(tmp_path)]
    done = subprocess.run(command, capture_output=True, text=True, timeout=LIMIT_S, check=False)
    assert done.returncode == 2


@pytest.mark.parametrize(
    ("change", "told"),
    [
        (("    kept[-1].listen(16)", "    kept[-1].listen(16)\n    os.chmod(path, 0o666)"), "everybody may write"),
        (("    kept[-1].listen(16)", "    pass"), "no listening local stream"),
        (('("agent", "operator",)', '("agent", "operator",)[:1] * 2'), "two sockets for agents"),
    ],
)
def test_sockets_when_passed_open_deaf_or_twice_then_one_clear_sentence(
    tmp_path: Path, change: tuple[str, str], told: str
) -> None:
    script = tmp_path / "passes.py"
    text = PASSES.format(roles='("agent", "operator",)', count="2", names=', "LISTEN_FDNAMES": "agent:operator"')
    script.write_text(text.replace("agent:operator", "agent:agent") if "two" in told else text.replace(*change))
    daemon = RunningDaemon()
    done = subprocess.run(
        [sys.executable, str(script), *daemon.arguments()], capture_output=True, text=True, timeout=LIMIT_S, check=False
    )
    assert (done.returncode, told in done.stderr, "Traceback" in done.stderr) == (2, True, False), done.stderr
