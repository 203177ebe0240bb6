"""How a daemon is started and told to read its board again, as a stranger would: words, signals, passed sockets."""

from __future__ import annotations

import json
import os
import shutil
import signal
import stat
import subprocess
import sys
import time
from collections.abc import Callable
from pathlib import Path

import pytest

from hwtool.bench import bench
from tests.running import LIMIT_S, RunningDaemon, command_line, start_command

PASSES = """
import os, socket, sys
folder, arguments = sys.argv[sys.argv.index("--socket") + 1], sys.argv[1:]
os.makedirs(folder, exist_ok=True)
kept = []
for role in {roles}:
    path = os.path.join(folder, role + ".sock")
    if os.path.exists(path):
        os.unlink(path)
    kept.append(socket.socket(socket.AF_UNIX))
    kept[-1].bind(path)
    kept[-1].listen(16)
high = [os.dup2(one.fileno(), 20 + number) for number, one in enumerate(kept)]  # out of the way of 3 and 4
for number, one in enumerate(high):
    os.dup2(one, 3 + number, inheritable=True)
os.environ |= {{"LISTEN_PID": str(os.getpid()), "LISTEN_FDS": "{count}"{names}}}
os.execv(sys.executable, [sys.executable, "-m", "hwtool", *arguments])
"""
BOARD = """
name = "small"
approval_mode = "separate-user"
[buses.b]
kind = "sim"
sole_master = true
[devices.gpio]
contract = "mcp23017"
bus = "b"
address = 0x20
{more}
"""


def launcher(tmp_path: Path, *, roles: str = '"agent", "operator"', count: str = "2", names: str = "") -> Path:
    """A service manager of one page: it binds the sockets and passes them on."""
    script = tmp_path / "passes.py"
    script.write_text(PASSES.format(roles=f"({roles},)", count=count, names=names))
    return script


def until(holds: Callable[[], bool]) -> None:
    """Wait for something that a daemon does by itself."""
    end_s = time.monotonic() + LIMIT_S
    while not holds():
        assert time.monotonic() < end_s, "it never came"
        time.sleep(0.02)  # nothing to be woken by: another process does it


def test_start_when_a_daemon_that_died_had_taken_an_interface_that_the_board_has_not_then_given_back_or_said() -> None:
    boot = Path("/proc/sys/kernel/random/boot_id").read_text().strip()
    with RunningDaemon() as daemon:
        assert daemon.stop() == 0
        note = daemon.store / "ftdi-NOSUCH-1.taken"
        note.write_text(json.dumps({"url": "ftdi://ftdi:232h:NOSUCH/1", "boot": boot}))
        daemon.start()
        assert "ftdi://ftdi:232h:NOSUCH/1: not given back: no " in daemon.log()  # it is not there, or libusb is not


# --- passed sockets -----------------------------------------------------------------------------------------------


@pytest.mark.parametrize("names", ["", ', "LISTEN_FDNAMES": "agent:operator"'], ids=["by file", "by name"])
def test_sockets_when_passed_by_a_service_manager_then_served_and_left_to_it(tmp_path: Path, names: str) -> None:
    daemon = RunningDaemon()
    daemon.start(launcher(tmp_path, names=names))
    try:
        assert command_line(daemon, "read", "uart.RXLVL").returncode == 0
        assert command_line(daemon, "approvals").returncode == 0
        with daemon.client() as agent:
            denied = agent.ask("daemon.freeze", {"reason": "x"})["error"]
        assert denied["code"] == "denied"  # the agents' socket stays the agents'
        assert daemon.stop() == 0
        for role in ("agent", "operator"):  # the files are the manager's, who starts the daemon again on them
            assert stat.S_ISSOCK((daemon.sockets / f"{role}.sock").stat().st_mode)
    finally:
        daemon.__exit__(None, None, None)


@pytest.mark.parametrize(
    ("passed", "told"),
    [
        ({"roles": '"agent"', "count": "1"}, "passed no socket for operators"),
        ({"roles": '"agent", "stranger"'}, "a socket that is nobody's"),
        ({"count": "many"}, "LISTEN_FDS is 'many'"),
        ({"roles": '"agent"', "count": "9"}, "is no socket"),
    ],
)
def test_sockets_when_the_wrong_ones_are_passed_then_one_clear_sentence(
    tmp_path: Path, passed: dict[str, str], told: str
) -> None:
    daemon = RunningDaemon()
    command = [sys.executable, str(launcher(tmp_path, **passed)), *daemon.arguments()]
    done = subprocess.run(command, capture_output=True, text=True, timeout=LIMIT_S, check=False)
    assert (done.returncode, told in done.stderr, "Traceback" in done.stderr) == (2, True, False), done.stderr


def test_sockets_when_meant_for_another_process_then_bound_as_ever(tmp_path: Path) -> None:
    daemon = RunningDaemon()
    daemon.start(LISTEN_PID="1", LISTEN_FDS="2")
    try:
        assert command_line(daemon, "devices").returncode == 0
    finally:
        daemon.__exit__(None, None, None)


# --- words of serve -----------------------------------------------------------------------------------------------


class Started(RunningDaemon):
    """A daemon with further words after `serve`."""

    def __init__(self, *words: str, board: str | None = None) -> None:
        super().__init__(board)
        self._words = words

    def arguments(self) -> list[str]:
        """As the others, and these."""
        return [*super().arguments(), *self._words]


def test_read_only_when_typed_then_effects_are_denied_and_safe_state_is_not() -> None:
    with Started("--read-only") as daemon:
        refused = command_line(daemon, "write", "gpio.OLATA=0x40")
        assert (refused.returncode, "read-only" in refused.stderr) == (4, True)
        assert command_line(daemon, "read", "uart.RXLVL").returncode == 0
        safe = next(name for name, device in bench().devices.items() if device.safe_state)
        assert command_line(daemon, "safe-state", safe).returncode == 0


def test_rehearsal_when_typed_then_planned_and_answered_and_nothing_is_sent() -> None:
    with Started("--rehearse") as daemon:
        told = command_line(daemon, "write", "gpio.OLATA=0x40")
        assert (told.returncode, "nothing was sent" in told.stdout) == (0, True), told.stderr
        assert json.loads(command_line(daemon, "describe", "--json").stdout)["describe"]["rehearsing"] is True
        assert "applied" not in command_line(daemon, "journal").stdout


def test_log_when_json_is_asked_for_then_every_line_is_an_object() -> None:
    with Started("--log", "json", board=BOARD.format(more="")) as daemon:
        (daemon.directory / "board.toml").write_text("nonsense")
        assert daemon.process is not None
        daemon.process.send_signal(signal.SIGHUP)
        until(lambda: "reload" in daemon.log())
        lines = [line for line in daemon.log().splitlines() if line != "hwtool: ready"]
        told = [json.loads(line) for line in lines]
        assert [t["level"] for t in told if "reload" in t["message"]] == ["error"]


# --- reading the board again --------------------------------------------------------------------------------------

RULE = "[[policy]]\nwho = '*'\nregister = 'OLATA'\nwrite = 'no'\n"


@pytest.mark.parametrize("by", ["verb", "signal"])
def test_reload_when_told_then_the_new_policy_holds_and_a_hold_stays(by: str) -> None:
    with RunningDaemon(BOARD.format(more="")) as daemon:
        assert command_line(daemon, "write", "gpio.OLATA=0x01").returncode == 0
        assert command_line(daemon, "hold", "gpio", "--reason", "the bench is wet").returncode == 0
        (daemon.directory / "board.toml").write_text(BOARD.format(more=RULE))
        if by == "verb":
            told = command_line(daemon, "reload")
            assert (told.returncode, "policy" in told.stdout) == (0, True), told.stderr
        else:
            assert daemon.process is not None
            os.kill(daemon.process.pid, signal.SIGHUP)
            until(lambda: "reload:" in daemon.log())
        held = command_line(daemon, "write", "gpio.OLATB=0x01")
        assert (held.returncode, "held" in held.stderr) == (4, True), held.stderr
        assert command_line(daemon, "release", "gpio", "--reason", "dry").returncode == 0
        assert command_line(daemon, "write", "gpio.OLATB=0x01").returncode == 0
        refused = command_line(daemon, "write", "gpio.OLATA=0x02")
        assert (refused.returncode, "policy rule 1" in refused.stderr) == (4, True), refused.stderr


def test_board_lint_when_typed_then_what_is_there_is_told_or_every_fault(tmp_path: Path) -> None:
    file = tmp_path / "board.toml"
    file.write_text(BOARD.format(more=RULE))
    command = [sys.executable, "-m", "hwtool", "board", "lint", str(file)]
    done = subprocess.run(command, capture_output=True, text=True, timeout=LIMIT_S, check=False)
    assert (done.returncode, "gpio: mcp23017 on b at 0x20" in done.stdout) == (0, True), done.stderr
    told = json.loads(subprocess.check_output([*command, "--json"], text=True, timeout=LIMIT_S))
    assert [d["device"] for d in told["devices"]] == ["gpio"]
    file.write_text(BOARD.format(more="colour = 'red'\n[[policy]]\nwho = 'me'\nwrite = 'no'\n"))
    done = subprocess.run(command, capture_output=True, text=True, timeout=LIMIT_S, check=False)
    assert (done.returncode, "colour" in done.stderr, "policy" in done.stderr) == (2, True, True), done.stderr


# --- waiting for a person -----------------------------------------------------------------------------------------


def test_approvals_when_watched_then_each_request_is_told_and_what_became_of_it() -> None:
    more = "[[policy]]\nwho = '*'\nregister = 'OLATA'\nwrite = 'approval'\n"
    board = BOARD.replace("separate-user", "self").format(more=more)
    with RunningDaemon(board) as daemon:
        command_line(daemon, "write", "gpio.OLATA=0x01", "--key", "early-0001")
        watcher = start_command(daemon, "approvals", "--watch")
        try:
            assert watcher.stdout is not None
            first = watcher.stdout.readline()
            assert "write of gpio.OLATA" in first
            command_line(daemon, "write", "gpio.OLATA=0x02", "--key", "late-00001")
            second = watcher.stdout.readline()
            approval = second.partition(":")[0]
            assert (second.strip().endswith(f"hwtool approve {approval}"), approval != first.partition(":")[0]) == (
                True,
                True,
            )
            command_line(daemon, "deny", approval, "--reason", "not today")
            assert watcher.stdout.readline().strip().endswith("denied")
        finally:
            watcher.terminate()
            watcher.wait(LIMIT_S)


def test_daemons_when_six_start_at_once_on_one_store_then_one_runs_and_the_others_say_the_sentence() -> None:
    several = [RunningDaemon() for _ in range(6)]
    started: list[subprocess.Popen[str]] = []
    try:
        for daemon in several:
            words = [sys.executable, "-m", "hwtool", *daemon.arguments()]
            words[words.index("--store") + 1] = str(several[0].store)
            started.append(subprocess.Popen(words, stderr=subprocess.PIPE, text=True))
        until_s = time.monotonic() + LIMIT_S
        while len([p for p in started if p.poll() is not None]) < len(started) - 1 and time.monotonic() < until_s:
            time.sleep(0.02)  # nothing to be woken by: they are processes
        (alive,) = [p for p in started if p.poll() is None]
        said = [p.communicate()[1] for p in started if p is not alive]
        assert ["in use by another daemon" in text for text in said] == [True] * 5, said
        assert {p.returncode for p in started if p is not alive} == {2}
        running = several[started.index(alive)]
        while not (running.sockets / "agent.sock").exists() and time.monotonic() < until_s:
            time.sleep(0.02)
        with running.client() as client:
            assert client.ask("reg.write", {"register": "gpio.OLATA", "value": 1, "key": "one-of-six-1"})["ok"]
    finally:
        for process in started:
            process.kill()
            process.wait()
            if process.stderr is not None:
                process.stderr.close()
        for daemon in several:
            shutil.rmtree(daemon.directory)
