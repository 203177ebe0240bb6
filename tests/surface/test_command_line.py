"""The command line as a stranger types it: output, exit codes, and one clear sentence for what cannot be."""

from __future__ import annotations

import json
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

import pytest

from hwtool.cli.command import VERBS
from hwtool.cli.link import value_of
from tests.running import RunningDaemon, command_line, start_command


@pytest.fixture(scope="module")
def daemon() -> Iterator[RunningDaemon]:
    with RunningDaemon() as running:
        yield running


RUNS = [
    (["devices"], 0, "sc16is750"),
    (["find", "level"], 0, "uart.RXLVL"),
    (["find", "--device", "nobody"], 5, ""),
    (["show", "uart.RHR"], 0, "needs a key"),
    (["show", "uart.RHR"], 0, "level RXLVL, max_burst 64"),
    (["show", "gpio.OLAT"], 0, "gpio.OLATB"),
    (["read", "uart.RXLVL"], 0, "uart.RXLVL = 0x05"),
    (["read", "meter.VOLTAGE"], 0, "230.1 V"),
    (["read", "uart.RHR"], 5, ""),
    (["read", "uart.NONE"], 5, ""),
    (["read", "uart.RXLVL", "--key", "some-key-1"], 2, ""),
    (["plan", "write", "uart.DLL=12"], 0, "restore"),
    (["plan", "update", "gpio.OLATA.P0=high"], 0, "left alone: OLATA.P1"),
    (["plan", "read", "uart.RHR"], 0, "access"),
    (["write", "gpio.OLATA=0x40", "--dry-run"], 0, "nothing was sent"),
    (["write", "gpio.OLATA.P0=1"], 2, ""),
    (["write", "gpio.OLATA"], 2, ""),
    (["write", "gpio.OLATA=@file"], 2, ""),
    (["update", "gpio.OLATA=1"], 2, ""),
    (["update", "gpio.OLATA.P0=1", "gpio.OLATB.P0=1"], 2, ""),
    (["write", "gpio.INTFA=1"], 5, ""),
    (["write", "gpio.OLATA=0x100"], 2, ""),
    (["op"], 2, ""),
    (["op", "999"], 5, ""),
    (["settle", "999", "applied", "--reason", "x"], 5, ""),
    (["settle", "999", "--verdict", "applied", "--reason", "x"], 5, ""),
    (["settle", "999", "--reason", "x"], 2, ""),
    (["settle", "999", "lost", "--verdict", "applied", "--reason", "x"], 2, ""),
    (["approve", "999"], 5, ""),
    (["approvals"], 0, "approval"),
    (["journal"], 0, ""),
    (["describe"], 0, "key prefix"),
    (["describe", "agents"], 0, "Every effect needs a key"),
    (["rpc", "device.list"], 0, '"devices"'),
    (["rpc", "reg.read", '{"registers": ["uart.RXLVL"]}'], 0, '"raw": "0x05"'),
    (["rpc", "reg.read", "{"], 2, ""),
    (["rpc", "no.method"], 2, ""),
    (["nonsense"], 2, ""),
    (["read", "--effectful", "uart.RHR", "--count", "65"], 5, ""),
]


@pytest.mark.parametrize(("words", "code", "out"), RUNS, ids=[" ".join(r[0]) for r in RUNS])
def test_verb_when_typed_then_exit_code_and_output(
    daemon: RunningDaemon, words: list[str], code: int, out: str
) -> None:
    done = command_line(daemon, *words)
    assert done.returncode == code, done.stderr
    assert out in done.stdout
    assert "Traceback" not in done.stderr
    if code != 0:
        assert done.stderr.strip()


def test_keyed_verb_when_no_key_is_given_then_it_is_minted_and_printed_first(daemon: RunningDaemon) -> None:
    done = command_line(daemon, "write", "gpio.GPPUA=0x01")
    assert done.returncode == 0
    key = done.stderr.partition("key: ")[2].split()[0]
    told = command_line(daemon, "op", "--key", key)
    assert "DONE applied by bus" in told.stdout
    assert command_line(daemon, "wait", "--key", key, "--ms", "10").returncode == 0


def test_effectful_read_when_the_key_comes_again_then_the_same_value_and_it_says_so(daemon: RunningDaemon) -> None:
    words = ["read", "--effectful", "gpio.INTCAPA", "--key", "capture-01", "--json"]
    first, again = (json.loads(command_line(daemon, *words).stdout) for _ in range(2))
    assert first["values"] == again["values"]
    assert (first["replayed"], again["replayed"]) == (False, True)
    assert "replayed" in command_line(daemon, *words[:-1]).stderr


def test_approval_when_walked_through_by_two_people_then_it_runs_once(daemon: RunningDaemon) -> None:
    words = ["write", "meter.RELAY_PULSE_WIDTH=60ms", "--key", "relay-0001", "--reason", "shorter pulses"]
    assert command_line(daemon, *words).returncode == 8
    listed = json.loads(command_line(daemon, "approvals", "--json").stdout)["approvals"]
    number = str(next(a["approval"] for a in listed if a["device"] == "meter"))
    screen = command_line(daemon, "approve", number)
    assert "0x42c80000  (100 ms) -> 0x42700000  (60 ms)" in screen.stdout
    assert "shorter pulses" in screen.stdout
    code = screen.stdout.rpartition("--code ")[2].strip()
    assert command_line(daemon, "approve", number, "--code", "00000000").returncode == 5
    too_soon = command_line(daemon, "approve", number, "--code", code)
    assert too_soon.returncode in (0, 5)
    while command_line(daemon, "approve", number, "--code", code).returncode == 5 and too_soon.returncode == 5:
        if "approved" in command_line(daemon, "journal").stdout:
            break
    assert command_line(daemon, *words).returncode == 0
    assert "replayed" in command_line(daemon, *words).stderr


def test_denial_when_given_then_the_reason_reaches_the_requester(daemon: RunningDaemon) -> None:
    words = ["write", "meter.RELAY_PULSE_WIDTH=80ms", "--key", "relay-0002"]
    assert command_line(daemon, *words).returncode == 8
    listed = json.loads(command_line(daemon, "approvals", "--json").stdout)["approvals"]
    assert command_line(daemon, "deny", str(listed[-1]["approval"]), "--reason", "not today").returncode == 0
    denied = command_line(daemon, *words)
    assert denied.returncode == 4
    assert "not today" in denied.stderr


def test_hold_and_release_when_typed_then_effects_stop_and_go(daemon: RunningDaemon) -> None:
    assert command_line(daemon, "hold", "adc", "--reason", "probing").returncode == 0
    held = command_line(daemon, "write", "adc.LO_THRESH=0x8001")
    assert held.returncode == 4
    assert "probing" in held.stderr
    assert command_line(daemon, "read", "adc.LO_THRESH").returncode == 0
    assert command_line(daemon, "release", "adc", "--reason", "done").returncode == 0
    assert command_line(daemon, "write", "adc.LO_THRESH=0x8001").returncode == 0


@pytest.mark.parametrize("verb", list(VERBS))
def test_verb_when_asked_for_help_then_it_has_some(verb: str) -> None:
    done = subprocess.run([sys.executable, "-m", "hwtool", verb, "--help"], capture_output=True, text=True, check=False)
    assert done.returncode == 0
    assert "Usage" in done.stdout


def test_verb_when_no_daemon_runs_then_one_sentence_and_exit_six() -> None:
    running = RunningDaemon()
    done = command_line(running, "devices")
    assert done.returncode == 6
    assert done.stderr.count("\n") == 1
    assert "hwtool serve" in done.stderr


BROKEN_BOARD = """
name = "x"
colour = "red"
[buses.b]
kind = "modbus-rtu"
[devices.d]
contract = "mcp23018"
bus = "nobody"
address = 300
rtl_source = {}
[[policy]]
who = "*"
"""


def test_board_when_broken_then_every_fault_is_listed_and_nothing_started() -> None:
    running = RunningDaemon(BROKEN_BOARD)
    done = command_line(running, *running.arguments())
    assert done.returncode == 2
    for fault in ("colour", "buses.b.path", "mcp23017", "devices.d.bus", "rtl_source", "policy"):
        assert fault in done.stderr
    assert done.stderr.count("not supported by this version") == 1
    assert not running.store.exists()
    assert not running.sockets.exists()


def test_board_when_named_and_missing_then_exit_two() -> None:
    running = RunningDaemon()
    done = command_line(running, *running.arguments(), "--board", "/no/such/board.toml")
    assert done.returncode == 2
    assert "cannot be read" in done.stderr


CANNOT = ["second store", "unwritable store", "long socket", "socket in the way"]


@pytest.mark.parametrize("case", CANNOT)
def test_serve_when_something_is_in_the_way_then_one_clear_sentence(
    daemon: RunningDaemon, case: str, tmp_path: Path
) -> None:
    words = ["serve", "--allow-unsafe-store", "--store", str(tmp_path / "store"), "--socket", str(tmp_path / "run")]
    if case == "second store":
        words[3] = str(daemon.store)
        wanted = "in use by another daemon"
    elif case == "unwritable store":
        (tmp_path / "file").write_text("")
        words[3] = str(tmp_path / "file" / "store")
        wanted = "cannot be written"
    elif case == "long socket":
        words[5] = str(tmp_path / ("x" * 120))
        wanted = "the limit is 107"
    else:
        words[5] = str(daemon.sockets)
        wanted = "another daemon listens"
    done = command_line(daemon, *words)
    assert done.returncode == 2
    assert wanted in done.stderr
    assert done.stderr.count("\n") == 1, done.stderr


VALUES = [
    ("0x40", 64),
    ("64", 64),
    ("low", "low"),
    ("1.2V", {"scaled": "1.2", "unit": "V"}),
    ("-40 degC", {"scaled": "-40", "unit": "degC"}),
    ("230.1", {"scaled": "230.1"}),
    ("1e3Hz", {"scaled": "1e3", "unit": "Hz"}),
]


@pytest.mark.parametrize(("text", "wanted"), VALUES)
def test_value_when_typed_then_understood(text: str, wanted: object) -> None:
    assert value_of(text) == wanted


LOCKED = """
schema = 1
part = "locked"
vendor = "nobody"
title = "a register behind a key"
source = "made for a test"
[access]
[access.i2c]
addresses = [0x20]
[registers.KEY]
offset = 0
access = "wo"
write = { effect = "unlock", verify = "none", source = "made for a test" }
[registers.CR]
offset = 1
access = "rw"
read = { effects = ["none"], provenance = "generated", source = "made for a test" }
write = { effect = "store", unlock = "SET", provenance = "generated", source = "made for a test" }
[sequences.SET]
params = ["value"]
steps = [
    { do = "write", register = "KEY", value = 0x45 },
    { do = "write", register = "CR", value = "$value" },
    { do = "write", register = "KEY", value = 0 },
]
"""


def test_locked_register_when_refused_then_the_sequence_that_is_named_can_be_typed(tmp_path: Path) -> None:
    (tmp_path / "locked.toml").write_text(LOCKED)
    board = (
        "name = 'b'\napproval_mode = 'self'\n[buses.b]\nkind = 'sim'\n"
        f"[devices.z]\ncontract = '{tmp_path}/locked.toml'\nbus = 'b'\naddress = 0x20\n"
    )
    with RunningDaemon(board) as daemon:
        refused = command_line(daemon, "write", "z.CR=3")
        assert refused.returncode == 5 and "z.SET" in refused.stderr
        done = command_line(daemon, "sequence", "z.SET", "value=3")
        assert done.returncode == 0, done.stderr
        assert "step 3 write" in done.stdout
        assert "z.CR = 0x03" in command_line(daemon, "read", "z.CR").stdout
        assert command_line(daemon, "sequence", "z.SET").returncode == 2
        assert command_line(daemon, "sequence", "nothing.toml").returncode == 2
        assert command_line(daemon, "sequence", "-", "a=1").returncode == 2


def test_run_when_walked_by_hand_then_its_status_is_what_its_steps_came_to() -> None:
    with RunningDaemon() as running:
        number = command_line(running, "run", "start", "bring-up").stdout.strip()
        assert number == "1"
        assert command_line(running, "write", "gpio.OLATA=0x40", "--run", number).returncode == 0
        refused = command_line(running, "write", "gpio.NOPE=1", "--run", number)
        assert refused.returncode == 5
        halted = command_line(running, "write", "gpio.OLATA=0x41", "--run", number)
        assert (halted.returncode, "run.acknowledge run 1, error_id 1" in halted.stderr) == (4, True)
        told = command_line(running, "run", "acknowledge", number, "1", "--how", "the name was wrong")
        assert (told.returncode, told.stdout) == (0, "run 1 (bring-up): running\n")
        assert command_line(running, "run", "finish", number).stdout == "run 1 (bring-up): succeeded\n"
        assert command_line(running, "run", "start", "again").stdout == "2\n"
        command_line(running, "read", "gpio.OLATB", "--effectful", "--run", "2")
        failed = command_line(running, "run", "finish", "2")
        assert (failed.returncode, "run 2 (again): failed: refused" in failed.stdout) == (1, True)
        assert command_line(running, "safe-state", "gpio", "--run", "1").returncode == 2


def test_lease_when_walked_by_hand_then_listed_and_given_back() -> None:
    with RunningDaemon() as running:
        assert command_line(running, "lease", "acquire", "gpio", "--ttl-ms", "60000").returncode == 0
        assert "holder" in command_line(running, "devices", "--json").stdout
        assert command_line(running, "write", "gpio.OLATA=1").returncode == 0
        assert command_line(running, "lease", "release", "gpio").stdout == "gpio is free\n"
        assert command_line(running, "lease", "release", "gpio").stdout == "gpio was not leased\n"


def test_dump_when_taken_changed_and_applied_by_hand_then_the_device_is_as_it_was(tmp_path: Path) -> None:
    file = tmp_path / "gpio.toml"
    with RunningDaemon() as running:
        assert command_line(running, "write", "gpio.OLATA=0x41").returncode == 0
        taken = command_line(running, "dump", "gpio", "-o", str(file))
        assert (taken.returncode, "left out" in taken.stderr) == (0, True)
        text = file.read_text()
        assert 'OLATA = "0x41"  # P0 = 0x1' in text
        assert "#   INTCAPA: reading it has effects" in text
        assert command_line(running, "diff", str(file)).stderr == "no difference\n"
        assert command_line(running, "write", "gpio.OLATA=0x40").returncode == 0
        told = command_line(running, "diff", str(file), "gpio", "--exit-code")
        assert (told.returncode, told.stdout) == (1, "gpio.OLATA: 0x41 -> 0x40\n  P0: 0x1  (high) -> 0x0  (low)\n")
        planned = command_line(running, "apply", str(file), "--dry-run")
        assert (planned.returncode, "sends: access write 0x20 0x14 41" in planned.stdout) == (0, True)
        assert "use --yes" in command_line(running, "apply", str(file)).stderr
        done = command_line(running, "apply", str(file), "--yes")
        assert (done.returncode, "all done" in done.stdout) == (0, True)
        assert command_line(running, "read", "gpio.OLATA").stdout.startswith("gpio.OLATA = 0x41")
        assert command_line(running, "apply", str(file), "--yes").stderr.count("nothing to write") == 1
        other = tmp_path / "other.toml"
        other.write_text(text.replace('"0x41"', '"0x43"'))
        files = command_line(running, "diff", str(file), str(other))
        assert files.stdout == "gpio.OLATA: 0x41 -> 0x43\n  P1: 0x0  (low) -> 0x1  (high)\n"
        other.write_text(text.replace("sha256:", "sha256:00"))
        assert command_line(running, "apply", str(other), "--yes").returncode in (0, 5)


def test_dump_file_when_it_is_none_then_said_in_one_line(tmp_path: Path) -> None:
    file = tmp_path / "x.toml"
    with RunningDaemon() as running:
        for text, word in (("x = ?", "cannot be read"), ("device = 'gpio'\n", "no dump"), ("", "no dump")):
            file.write_text(text)
            told = command_line(running, "diff", str(file))
            assert (told.returncode, word in told.stderr, told.stderr.count("\n")) == (2, True, 1)


def test_watch_when_a_register_comes_to_be_as_wanted_then_it_ends() -> None:
    with RunningDaemon() as running:
        waits = start_command(running, "watch", "gpio.OLATA", "--interval-ms", "20", "--until", "gpio.OLATA=0x40")
        assert waits.stdout is not None
        assert "gpio.OLATA = 0x00" in waits.stdout.readline()
        command_line(running, "write", "gpio.OLATA=0x40")
        assert waits.wait(timeout=20) == 0
        late = command_line(running, "watch", "gpio.OLATA", "--until", "gpio.OLATA=0x41", "--timeout", "0.2")
        assert (late.returncode, "not so within 0.2 s" in late.stderr) == (1, True)
        refused = command_line(running, "watch", "uart.RHR")
        assert (refused.returncode, "is not a clean read" in refused.stderr) == (5, True)


def test_journal_when_followed_then_what_comes_is_told() -> None:
    with RunningDaemon() as running:
        follows = start_command(running, "journal", "--follow", "--json")
        assert follows.stdout is not None
        command_line(running, "write", "gpio.OLATA=0x40", "--reason", "because")
        heard = [json.loads(follows.stdout.readline()) for _ in range(2)]
        follows.terminate()
        follows.wait(timeout=20)
        assert [h["what"] for h in heard] == ["intent", "outcome"]


def test_journal_files_when_the_daemon_was_killed_then_whole_after_the_next_start(tmp_path: Path) -> None:
    with RunningDaemon() as running:
        for number in range(3):
            assert command_line(running, "write", f"gpio.OLATA={number}").returncode == 0
        running.kill()
        running.start()
        command_line(running, "freeze")
        running.stop()
        told = command_line(running, "journal", "verify", str(running.store / "journal"))
        assert (told.returncode, told.stdout, "0 fault(s)" in told.stderr) == (0, "", True)
        (file,) = (running.store / "journal" / "gpio").glob("*.jsonl")
        assert len(file.read_text().splitlines()) == 6
        file.write_text(file.read_text().replace("outcome", "outcame", 1))
        assert command_line(running, "journal", "verify", str(file)).returncode == 1
        assert command_line(running, "journal", "verify", str(tmp_path / "nothing")).returncode == 2
        running.start()


def test_metrics_when_asked_for_then_prometheus_text() -> None:
    with RunningDaemon() as running:
        command_line(running, "read", "gpio.OLATA")
        told = command_line(running, "metrics")
        assert (told.returncode, 'hwtool_requests_total{method="reg.read",status="done"} 1.0' in told.stdout) == (
            0,
            True,
        )
