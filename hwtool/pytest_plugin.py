"""The pytest plugin: simulated chips, a daemon on them, its clients, and scenarios as tests; see docs/pytest.md.

pytest loads this in every run of every project of the environment, so it imports pytest and the standard library alone:
all of hwtool comes in when the first fixture is used.
"""

from __future__ import annotations

from collections.abc import Callable, Generator, Iterator
from contextlib import closing
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import TYPE_CHECKING, Any, Final

import pytest

if TYPE_CHECKING:
    from hwtool.checks.apart_chips import Simulator
    from hwtool.checks.apart_daemon import Daemon
    from hwtool.client import Client

BOARD: Final = "hwtool_board"
SCENARIOS: Final = "hwtool_scenarios"
TELLS: Final = pytest.StashKey[Callable[[], Iterator[str]]]()
PLAYED: Final = pytest.StashKey[frozenset[Path]]()


def pytest_addoption(parser: pytest.Parser) -> None:
    """What a project may say in its configuration."""
    parser.addini(BOARD, "board file of the fixtures hw_*, from the rootdir; without it, the built-in bench")
    parser.addini(SCENARIOS, "patterns of hwtool scenarios that are collected as tests, from the rootdir", "linelist")


def pytest_configure(config: pytest.Config) -> None:
    """Say what the marker is, and which files are scenarios."""
    config.addinivalue_line("markers", "hwtool(board=FILE): the board of this test, from the directory of its file")
    patterns: list[str] = config.getini(SCENARIOS)
    config.stash[PLAYED] = frozenset(found for pattern in patterns for found in config.rootpath.glob(pattern))


def pytest_report_header(config: pytest.Config) -> str:
    """Which version, and which board."""
    from importlib.metadata import version

    return f"hwtool: {version('hwtool')}, board {config.getini(BOARD) or 'the built-in bench'}"


@pytest.fixture
def hw_board(request: pytest.FixtureRequest, tmp_path: Path) -> Path:
    """The board file: of the marker `hwtool`, of the configuration, or the built-in bench; override it freely."""
    marker = request.node.get_closest_marker("hwtool")
    if marker is not None and "board" in marker.kwargs:
        return request.path.parent / str(marker.kwargs["board"])
    stated = request.config.getini(BOARD)
    if stated:
        return request.config.rootpath / str(stated)
    from hwtool.bench import BENCH

    file = tmp_path / "bench.toml"
    file.write_text(BENCH, encoding="utf-8")
    return file


@pytest.fixture
def hw_sockets() -> Iterator[Path]:
    """A directory with a short name, since the path of a socket may have 107 bytes and `tmp_path` is long."""
    with TemporaryDirectory(prefix="hw-", ignore_cleanup_errors=True) as name:
        yield Path(name)


@pytest.fixture
def hw_sim(hw_board: Path, hw_sockets: Path) -> Iterator[Simulator]:
    """The simulated chips of the board, in a process of their own."""
    from hwtool.checks.apart_chips import Simulator
    from hwtool_contracts.toml_reader import Faults

    wrong: list[str] = []
    try:
        sim = Simulator(hw_board, hw_sockets / "sim")
    except Faults as error:
        wrong = [f"the board {hw_board} cannot be used:", *map(str, error.faults)]
    if wrong:
        pytest.fail("\n".join(wrong), pytrace=False)
    with closing(sim):
        yield sim


@pytest.fixture
def hw_daemon(
    request: pytest.FixtureRequest, hw_board: Path, hw_sockets: Path, hw_sim: Simulator, tmp_path: Path
) -> Iterator[Daemon]:
    """A daemon on these chips, with its store in `tmp_path`; a failure of the test is told with its timeline."""
    from hwtool.checks.apart_daemon import Daemon

    with closing(Daemon(hw_board, hw_sockets / "sim", hw_sim, tmp_path / "store", hw_sockets / "run")) as daemon:
        request.node.stash[TELLS] = daemon.timeline
        yield daemon


@pytest.fixture
def hw_client(hw_daemon: Daemon) -> Iterator[Client]:
    """A client on the agent socket."""
    with hw_daemon.client("agent") as client:
        yield client


@pytest.fixture
def hw_operator(hw_daemon: Daemon) -> Iterator[Client]:
    """A client on the operator socket."""
    with hw_daemon.client("operator") as client:
        yield client


@pytest.fixture
def hw_key() -> Callable[[], str]:
    """Makes fresh keys: `key = hw_key()`."""
    from hwtool.recovering import new_key

    return lambda: new_key("pytest-")


@pytest.hookimpl(wrapper=True)
def pytest_runtest_makereport(item: pytest.Item) -> Generator[None, pytest.TestReport, pytest.TestReport]:
    """Put the timeline of the daemon under a test that failed; the fixtures are still there then."""
    report = yield
    tells = item.stash.get(TELLS, None)
    if tells is not None and report.when == "call" and report.failed:
        report.sections.append(("hwtool timeline", "\n".join(_told(tells))))
    return report


def _told(tells: Callable[[], Iterator[str]]) -> Iterator[str]:
    try:
        yield from tells()
    except Exception as error:  # noqa: BLE001  # whatever it is: the failure of the test is the one to be told
        yield f"there is no more to tell: {error!r}"


def pytest_collect_file(file_path: Path, parent: pytest.Collector) -> pytest.Collector | None:
    """A scenario, if the configuration says so."""
    if file_path not in parent.config.stash[PLAYED]:
        return None
    file: pytest.Collector = ScenarioFile.from_parent(parent, path=file_path)
    return file


class ScenarioWrong(Exception):
    """A scenario did not go as its file says, or cannot be played; the text says it all."""


class ScenarioFile(pytest.File):
    """One file with one scenario."""

    def collect(self) -> Iterator[pytest.Item]:
        """One test, named as the file."""
        yield ScenarioItem.from_parent(self, name=self.path.stem)


class ScenarioItem(pytest.Item):
    """A scenario as a test."""

    def runtest(self) -> None:
        """Play it.

        Raises:
            ScenarioWrong: a step did not come to what was expected, with the timeline; or the file has faults.
        """
        from hwtool.checks.findings import Outcome
        from hwtool.checks.play import play
        from hwtool.checks.scenario import load_scenario
        from hwtool.config import load_board
        from hwtool_contracts.toml_reader import Faults

        stated = self.config.getini(BOARD)
        try:
            board = load_board(self.config.rootpath / str(stated)) if stated else None
            found = play(load_scenario(self.path, board))
        except Faults as error:
            raise ScenarioWrong("\n".join(map(str, error.faults))) from error
        for finding in found:
            if finding.outcome is Outcome.FAILED:
                told = (f"{finding.place}, {finding.effect}: {finding.told}", *finding.timeline)
                raise ScenarioWrong("\n    ".join(told))

    def repr_failure(self, excinfo: pytest.ExceptionInfo[BaseException], style: Any = None) -> Any:
        """What went wrong, without a trace through hwtool."""
        return str(excinfo.value) if isinstance(excinfo.value, ScenarioWrong) else super().repr_failure(excinfo, style)

    def reportinfo(self) -> tuple[Path, int | None, str]:
        """Where it stands."""
        return self.path, None, f"scenario {self.name}"
