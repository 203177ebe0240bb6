"""The pytest plugin, as a project of somebody else has it: loaded by its entry point, in a directory of its own."""

from __future__ import annotations

import os
import re
import shutil
import signal
import socket
import subprocess
import sys
from collections.abc import Callable, Iterator
from contextlib import closing, suppress
from pathlib import Path
from tempfile import TemporaryDirectory

import pytest

from hwtool import pytest_plugin
from hwtool.bench import BENCH
from hwtool.checks import apart_daemon
from hwtool.checks.apart import LIMIT_S, Answer, DidNotStart, Process
from hwtool.checks.apart_chips import Simulator
from hwtool.checks.apart_daemon import Daemon
from hwtool.checks.hosted import CHIPS_READY
from hwtool.failures import OutcomeUnknown

pytestmark = pytest.mark.timeout(240)
RUN_S = 200  # a whole run of pytest, beside others on few cores
EXAMPLE = Path(__file__).parents[2] / "docs" / "examples" / "pytest"
ENVIRONMENT = {
    name: value
    for name, value in os.environ.items()
    if not name.startswith(("PYTEST_", "COV_", "COVERAGE_")) and name != "HWTOOL_COVERAGE"
}
FEW = ("-p", "no:cacheprovider", "-p", "no:xdist", "-p", "no:hypothesispytest", "-p", "no:anyio")


def run(project: Path, *words: str) -> subprocess.CompletedProcess[str]:
    """`pytest WORDS…` in a directory, as its owner would."""
    command = [sys.executable, "-m", "pytest", *FEW, f"--basetemp={project / 'tmp'}", *words]
    return subprocess.run(
        command, cwd=project, env=ENVIRONMENT, capture_output=True, text=True, check=False, timeout=RUN_S
    )


def counted(done: subprocess.CompletedProcess[str]) -> dict[str, int]:
    """What became of how many tests."""
    found = re.findall(r"(\d+) (passed|failed|errors?|skipped)", done.stdout.splitlines()[-1])
    return {what: int(number) for number, what in found}


@pytest.fixture
def example(tmp_path: Path) -> Path:
    """The example, away from the tree."""
    return Path(shutil.copytree(EXAMPLE, tmp_path / "example"))


@pytest.fixture
def short() -> Iterator[Path]:
    """A directory with a short name, for sockets, with the bench's board in it."""
    with TemporaryDirectory(prefix="hw-", dir="/tmp") as name:
        (Path(name) / "bench.toml").write_text(BENCH)
        yield Path(name)


@pytest.fixture
def chips(short: Path) -> Iterator[Simulator]:
    """The chips of the bench."""
    sim = Simulator(short / "bench.toml", short / "sim")
    yield sim
    sim.close()


@pytest.fixture
def daemon(short: Path, chips: Simulator) -> Iterator[Daemon]:
    """A daemon on them."""
    made = Daemon(short / "bench.toml", short / "sim", chips, short / "store", short / "run")
    yield made
    made.close()


def test_plugin_when_loaded_then_nothing_of_hwtool_comes_with_it_but_itself(tmp_path: Path) -> None:
    (tmp_path / "pytest.ini").write_text("[pytest]\n")
    (tmp_path / "test_it.py").write_text(
        "import sys\n"
        "def test_it(pytestconfig):\n"
        "    assert pytestconfig.pluginmanager.hasplugin('hwtool')\n"
        "    ours = {n for n in sys.modules if n.startswith('hwtool')}\n"
        "    assert ours == {'hwtool', 'hwtool.pytest_plugin'}\n"
        "    assert not {'msgspec', 'click', 'sqlite3', 'serial', 'uvloop'} & set(sys.modules)\n"
    )
    assert counted(run(tmp_path)) == {"passed": 1}


def test_plugin_when_imported_beside_pytest_then_only_three_modules_more() -> None:
    told = (
        "import pytest, sys; before = set(sys.modules); import hwtool.pytest_plugin; print(set(sys.modules) - before)"
    )
    done = subprocess.run([sys.executable, "-c", told], env=ENVIRONMENT, capture_output=True, text=True, check=True)
    assert eval(done.stdout) <= {"hwtool", "hwtool.pytest_plugin"}


def test_example_when_run_in_a_directory_of_its_own_then_all_of_it_passes(example: Path) -> None:
    done = run(example)
    assert (done.returncode, counted(done)) == (0, {"passed": 10}), done.stdout
    assert re.search(r"^hwtool: \d+\.\d+\.\d+, board board.toml$", done.stdout, re.MULTILINE)


def test_example_when_it_expects_two_executions_then_it_fails_with_the_timeline(example: Path) -> None:
    for file, old, new in (
        ("test_board.py", '"pulse") == 1\n    assert hw_sim.traffic', '"pulse") == 2\n    assert hw_sim.traffic'),
        ("scenarios/speed_is_stored_once.toml", '"feeder.SPEED write" = 1', '"feeder.SPEED write" = 2'),
    ):
        text = (example / file).read_text()
        assert text.count(old) == 1
        (example / file).write_text(text.replace(old, new))
    done = run(example, "-k", "reply_is_lost or speed")
    assert (done.returncode, counted(done)) == (1, {"failed": 2})
    of_test, _, of_scenario = done.stdout.partition("hwtool timeline")[2].partition("short test summary")
    for line in (
        "journal:     1 .* intent op 1 feeder.STEP",
        "journal:     2 .* unknown op 1 feeder.STEP: .* it cannot be told whether the device acted",
        "counted: 1 × feeder.STEP pulse",
        "bus: feeder write 0x02 01",
        "daemon: hwtool: ready",
    ):
        assert len(re.findall(f"^{line}$", of_test, re.MULTILINE)) == 1, (line, done.stdout)
    assert "speed_is_stored_once.step 2" in done.stdout
    assert "bus: feeder write 0x03 40" in done.stdout
    assert "executed {'feeder.SPEED read': " in done.stdout
    assert of_scenario


def test_plugin_when_a_board_is_wrong_then_all_its_faults_and_no_trace(tmp_path: Path) -> None:
    (tmp_path / "pytest.ini").write_text("[pytest]\nhwtool_board = board.toml\nhwtool_scenarios = s.toml\n")
    (tmp_path / "board.toml").write_text("name = 'b'\nwrong = 1\n[buses.x]\nkind = 'none'\n")
    (tmp_path / "s.toml").write_text("schema = 1\ntitle = 't'\nguards = 'g'\n")
    (tmp_path / "test_it.py").write_text("def test_it(hw_sim): pass\n")
    done = run(tmp_path)
    assert (done.returncode, counted(done)) == (1, {"failed": 1, "error": 1})
    assert "board.toml: wrong: unknown key" in done.stdout
    assert "board.toml: buses.x.kind: " in done.stdout
    assert "Traceback" not in done.stdout and "apart_chips.py" not in done.stdout


def test_board_when_none_is_said_then_the_bench_and_a_marker_names_one_beside_its_file(tmp_path: Path) -> None:
    shutil.copytree(EXAMPLE, tmp_path / "inner")
    (tmp_path / "pytest.ini").write_text("[pytest]\naddopts = --strict-markers\n")
    (tmp_path / "inner" / "pytest.ini").unlink()
    (tmp_path / "inner" / "test_board.py").write_text(
        "import pytest\n"
        "def test_bench(hw_client): assert [d.name for d in hw_client.devices()][0] == 'gpio'\n"
        "@pytest.mark.hwtool(board='board.toml')\n"
        "def test_beside(hw_sim): assert hw_sim.value('feeder.LENGTH') == 0x20\n"
        "@pytest.fixture\n"
        "def mine(hw_board): return hw_board.read_text()\n"
        "def test_text(mine): assert 'sc16is750' in mine\n"
        "class TestOwn:\n"
        "    @pytest.fixture\n"
        "    def hw_board(self, hw_board, tmp_path):\n"
        "        (tmp_path / 'own.toml').write_text(hw_board.read_text().replace('0x4d', '0x4c'))\n"
        "        return tmp_path / 'own.toml'\n"
        "    def test_own(self, hw_sim): assert hw_sim.board.devices['uart'].address == 0x4c\n"
    )
    done = run(tmp_path)
    assert counted(done) == {"passed": 4}, done.stdout
    assert "hwtool: " in done.stdout and "board the built-in bench" in done.stdout


def test_processes_when_the_tests_are_killed_then_they_end_too(short: Path) -> None:
    program = (
        "import sys; from pathlib import Path; from hwtool.checks.apart_chips import Simulator\n"
        f"sim = Simulator(Path({str(short / 'bench.toml')!r}), Path({str(short / 'sim')!r}))\n"
        "print('there', flush=True); sys.stdin.read()\n"
    )
    pipe = subprocess.PIPE
    with subprocess.Popen([sys.executable, "-c", program], stdin=pipe, stdout=pipe, env=ENVIRONMENT) as tests:
        assert tests.stdout is not None and tests.stdout.readline() == b"there\n"
        with socket.socket(socket.AF_UNIX) as line:
            line.settimeout(10)
            line.connect(str(short / "sim"))
            tests.send_signal(signal.SIGKILL)
            try:
                with suppress(ConnectionResetError):  # it went before it had taken the connection
                    assert line.recv(1) == b""  # it went
            except TimeoutError:
                line.sendall(b'{"control": "stop"}\n')
                raise


def test_process_when_it_does_not_start_then_what_it_said(short: Path) -> None:
    (short / "board.toml").write_text("name = 'b'\nwrong = 1\n")
    with pytest.raises(DidNotStart, match=r"chips did not start: board\.toml: buses: no bus.*\n.*wrong: unknown key"):
        Process(["chips", str(short / "board.toml"), str(short / "sim")], CHIPS_READY)


def test_daemon_when_killed_during_a_write_then_once_and_the_next_one_knows(chips: Simulator, daemon: Daemon) -> None:
    with daemon.client() as hw:
        done = daemon.killed_during(lambda: hw.write("gpio.OLATA", 0x40, key="killed-0001"), "gpio.OLATA")
        assert (done.ok, done.verdict) == (True, "applied")
        assert hw.write("gpio.OLATA", 0x40, key="killed-0001").replayed
    assert chips.executed("gpio.OLATA") == 1
    assert chips.value("gpio.OLATA") == 0x40
    told = list(daemon.timeline())
    assert sum("intent op 1 gpio.OLATA" in line for line in told) == 1
    assert sum(line.startswith("bus: gpio write") for line in told) == 1


def test_daemon_when_the_call_executes_nothing_then_it_is_not_killed(chips: Simulator, daemon: Daemon) -> None:
    with daemon.client() as hw:
        with pytest.raises(AssertionError, match=r"no write of gpio\.OLATA was executed"):
            daemon.killed_during(lambda: hw.read("gpio.OLATA"), "gpio.OLATA")
        assert hw.write("gpio.OLATA", 1, key="still-0001").ok  # and the fault is gone
    daemon.kill()
    assert next(iter(daemon.timeline())) == "journal: the daemon does not run, so it cannot be asked"
    daemon.restart()
    assert chips.executed("gpio.OLATA") == 1


def test_daemon_when_it_answers_before_it_is_killed_then_the_test_is_told(
    daemon: Daemon, monkeypatch: pytest.MonkeyPatch
) -> None:
    made: list[Answer[object]] = []

    class Kept(Answer[object]):
        def __init__(self, call: Callable[[], object]) -> None:
            super().__init__(call)
            made.append(self)

    def too_late() -> None:
        assert made[0].there.wait(LIMIT_S)
        Daemon.kill(daemon)

    monkeypatch.setattr(apart_daemon, "HANG_S", 0.0)
    monkeypatch.setattr(apart_daemon, "Answer", Kept)
    monkeypatch.setattr(daemon, "kill", too_late)
    with daemon.client() as hw, pytest.raises(AssertionError, match="answered before the daemon was killed"):
        daemon.killed_during(lambda: hw.write("gpio.OLATA", 1, key="fast-0001"), "gpio.OLATA")


def test_chips_when_their_hands_are_used_then_each_does_what_it_says(chips: Simulator, daemon: Daemon) -> None:
    chips.push("uart.RHR", 7, 8)
    assert chips.fifo("uart.RHR")[-2:] == [7, 8]
    chips.set("gpio.OLATA", 0x11)
    assert chips.value("gpio.OLATA") == 0x11
    chips.reset("gpio")
    assert chips.value("gpio.OLATA") == 0
    chips.fault("gpio", "reply_lost", times="always")
    chips.clear_faults()
    with daemon.client() as hw:
        assert hw.write("gpio.OLATA", 3, key="hands-0001").ok
        chips.fault("uart", "reply_lost", at="RHR")
        with pytest.raises(OutcomeUnknown):
            hw.read_effectful("uart.RHR", key="hands-0002")
    assert chips.executed("uart.RHR", "read") == 1
    assert [line for line in chips.traffic("gpio") if "write" in line] == ["gpio write 0x14 03"]
    assert "1 × gpio.OLATA write" in list(chips.counts())
    for wrong in ("nobody.X", "gpio.NOTHING"):
        with pytest.raises(ValueError, match="has no"):
            chips.executed(wrong)


def test_parts_when_they_are_one_chip_then_each_is_counted_by_its_own_name(short: Path) -> None:
    (short / "chip.toml").write_text(
        "schema = 1\npart = 'chip'\nvendor = 'v'\ntitle = 't'\nsource = 's'\n"
        "access = { offset_bytes = 1, byte_order = 'big', i2c = { addresses = [0x30], auto_increment = 'both' } }\n"
        "defaults.read = { effects = ['none'], provenance = 'generated', source = 's' }\n"
        "defaults.write = { effect = 'store', provenance = 'generated', source = 's' }\n"
        + "".join(
            f"[clusters.{c}]\noffset = {n}\nregisters.X = {{ offset = 0, access = 'rw' }}\n" for n, c in enumerate("AB")
        )
    )
    part = "[devices.{}]\ncontract = './chip.toml'\nbus = 'b'\naddress = 0x30\npart = '{}'\n"
    board = short / "parts.toml"
    bus = "name = 'p'\n[buses.b]\nkind = 'sim'\nsole_master = true\n"
    board.write_text(bus + part.format("left", "A") + part.format("right", "B"))
    with closing(Simulator(board, short / "sim")) as chip:
        made = Daemon(board, short / "sim", chip, short / "store", short / "run")
        with closing(made) as daemon, daemon.client() as hw:
            assert hw.write("right.X", 5, key="parts-0001").ok
            assert daemon.killed_during(lambda: hw.write("left.X", 7, key="parts-0002"), "left.X").ok
        assert [chip.executed(name) for name in ("left.X", "right.X")] == [1, 1]
        assert [chip.value(name) for name in ("left.X", "right.X")] == [7, 5]
        assert sorted(line for line in chip.counts() if "write" in line) == ["1 × left.X write", "1 × right.X write"]
        assert chip.values("left")["part"] == "chip"
        written = ["left write 0x01 05", "left write 0x00 07"]
        assert [[t for t in chip.traffic(d) if "write" in t] for d in ("left", "right", None)] == [written] * 3
        with pytest.raises(ValueError, match="right has no register 'Y'"):
            chip.fault("right", "nack", at="Y")


def test_manual_when_it_lists_fixtures_and_their_calls_then_all_of_them() -> None:
    manual = (EXAMPLE.parents[1] / "pytest.md").read_text(encoding="utf-8")
    source = Path(pytest_plugin.__file__).read_text(encoding="utf-8")
    fixtures = re.findall(r"@pytest\.fixture\ndef (hw_\w+)", source)
    assert len(fixtures) == 7
    assert [name for name in fixtures if f"| `{name}` |" not in manual] == []
    calls = [n for held in (Simulator, Daemon) for n in vars(held) if not n.startswith("_") and n != "close"]
    assert [name for name in calls if f"`{name}(" not in manual] == []
    assert (
        manual.partition("```python\n")[2].partition("    assert hw_sim")[0] in (EXAMPLE / "test_board.py").read_text()
    )
