"""The README's walk-through is run as it is printed, against a daemon on the bench."""

from __future__ import annotations

import re
import shlex
from collections.abc import Iterator
from pathlib import Path

from hwtool_sim.process import SimConnection
from tests.running import RunningDaemon, command_line

README = (Path(__file__).parent.parent / "README.md").read_text(encoding="utf-8")


def commands() -> Iterator[tuple[str, int]]:
    """Each command that stands below a `<!-- run: CODE -->` mark, with the exit code it must have."""
    code: int | None = None
    for line in README.splitlines():
        mark = re.fullmatch(r"<!-- run(?:: (\d+))? -->", line)
        if mark:
            code = int(mark[1] or 0)
        elif line.startswith("    ") and code is not None:
            yield line.strip(), code
        elif line.strip():
            code = None


def test_readme_when_walked_through_then_every_command_ends_as_printed() -> None:
    walked = list(commands())
    assert len(walked) >= 14
    with RunningDaemon() as daemon:
        for command, code in walked:
            program, *words = shlex.split(command)
            assert program == "hwtool"
            done = command_line(daemon, *words)
            assert done.returncode == code, (command, done.stderr)


def test_readme_when_it_shows_python_then_it_runs() -> None:
    code = README.partition("```python\n")[2].partition("```")[0]
    with RunningDaemon() as daemon:
        exec(code.replace("Client()", f"Client({str(daemon.sockets)!r})"), {})


def test_readme_when_it_shows_a_board_then_it_loads(tmp_path: Path) -> None:
    from hwtool.config import load_board

    (tmp_path / "board.toml").write_text(README.partition("```toml\n")[2].partition("```")[0])
    assert load_board(tmp_path / "board.toml").devices["meter"].contract.part == "sdm120"


def test_documents_when_linked_then_they_exist() -> None:
    for target in re.findall(r"\]\((docs/[^)]+)\)", README):
        assert (Path(__file__).parent.parent / target).exists(), target


def test_contract_of_the_manual_when_it_is_run_then_its_fifo_can_be_filled_and_read(tmp_path: Path) -> None:
    manual = (Path(__file__).parent.parent / "docs" / "contracts.md").read_text(encoding="utf-8")
    contract, board = (part.partition("```")[0] for part in manual.split("```toml\n")[1:3])
    running = RunningDaemon(board)
    (running.directory / "sensor.toml").write_text(contract)
    with running as daemon:
        sim = SimConnection(str(daemon.store / "sim-b.sock"))
        sim.ask({"control": "push", "address": 48, "register": "DATA", "elements": [1, 2]})
        sim.close()
        with daemon.hw() as client:
            assert client.read("sensor.LEVEL").value.raw == "0x02"
            taken = client.read_effectful("sensor.DATA", key="manual-0001", count=2)
            assert [v.raw for v in taken] == ["0x01", "0x02"]
            assert client.update("sensor.CONTROL", {"ENABLE": "on"}, key="manual-0002").effects == "applied"
