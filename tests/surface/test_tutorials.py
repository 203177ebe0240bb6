"""The tutorials are run as they are printed: files are written, commands typed, exit codes and outputs compared.

A document is walked from top to bottom in a directory of its own. Its marks stand on a line of their own:

- `<!-- file: NAME -->`: the fenced block below is written to that file
- `<!-- add to: NAME -->`: it is added to that file
- `<!-- run: CODE -->` (without a code: 0): each indented line below is a command that ends with it
- a block fenced as `text` is what the last command prints: each line, in this order, … for what varies
"""

from __future__ import annotations

import contextlib
import os
import re
import shlex
import shutil
import signal
import subprocess
import sys
import tempfile
import time
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from types import TracebackType
from typing import Self

import pytest

from hwtool_sim.process import SimConnection
from tests.corpus import corpus_file

DOCS = Path(__file__).parent.parent.parent / "docs"
LIMIT_S = 60.0


@dataclass(frozen=True)
class Write:
    """A file, or more of it."""

    name: str
    text: str
    added: bool


@dataclass(frozen=True)
class Run:
    """A command, the code it ends with, and lines that it prints."""

    command: str
    code: int
    printed: tuple[str, ...]


def steps(document: str) -> Iterator[Write | Run]:
    """What a reader does, in order. Blocks and commands that no mark explains are a fault of the document."""
    lines = iter(document.splitlines())
    code: int | None = None
    target: re.Match[str] | None = None
    last: Run | None = None
    for line in lines:
        if line.startswith("```"):
            block = list(iter(lambda: next(lines), "```"))
            if line == "```text":
                assert last is not None, f"an output without a command: {block}"
                last = Run(last.command, last.code, tuple(block))
                yield last
                last = None
            else:
                assert target is not None, f"a block without a mark: {block}"
                yield Write(target[2], "\n".join(block) + "\n", target[1] == "add to")
            code = target = None
        elif line.startswith("    "):
            assert code is not None, f"a command without a mark: {line}"
            if last is not None:
                yield last
            last = Run(line.strip(), code, ())
        elif line.startswith("<!--"):
            if last is not None:
                yield last
                last = None
            run = re.fullmatch(r"<!-- run(?:: (\d+))? -->", line)
            target = re.fullmatch(r"<!-- (file|add to): (\S+) -->", line)
            assert run or target, f"an unknown mark: {line}"
            code = int(run[1] or 0) if run else None
        elif line.strip():
            code = None
    if last is not None:
        yield last


class Stranger:
    """Somebody who follows a document, in a short directory: paths of sockets are limited to 107 bytes."""

    def __init__(self) -> None:
        self.home = Path(tempfile.mkdtemp(prefix="hw-", dir="/tmp"))
        self.directory = self.home / "d"
        self.directory.mkdir()
        self._daemon: subprocess.Popen[bytes] | None = None
        programs = self.home / "bin"
        programs.mkdir()
        for name, words in (("hwtool", "-m hwtool "), ("python", "")):
            (programs / name).write_text(f'#!/bin/sh\nexec {shlex.quote(sys.executable)} {words}"$@"\n')
            (programs / name).chmod(0o755)
        self._environment = {
            **os.environ,
            "PATH": f"{programs}:{os.environ['PATH']}",
            "PWD": str(self.directory),
            "HWTOOL_CACHE_DIR": str(self.home / "cache"),
            "NO_COLOR": "1",
            "PYTHONUNBUFFERED": "1",  # else the two outputs are not in the order of a terminal
        }

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        left_running = self._daemon is not None
        if self._daemon is not None:
            self._daemon.kill()
            self._daemon.wait(LIMIT_S)
        for socket in self.directory.glob("store/sim-*.sock"):  # else the chips wait a minute for another daemon
            with contextlib.suppress(OSError, EOFError):
                SimConnection(str(socket)).ask({"control": "stop"})
        shutil.rmtree(self.home, ignore_errors=True)
        assert kind is not None or not left_running, "the document leaves its daemon running"

    def follow(self, document: str) -> int:
        """Do all of it; answers how many commands were run."""
        ran = 0
        for step in steps(document):
            if isinstance(step, Write):
                self._write(step)
            else:
                self._run(step)
                ran += 1
        return ran

    def _write(self, step: Write) -> None:
        path = self.directory / step.name
        kept = path.read_text(encoding="utf-8") if step.added else ""
        path.write_text(kept + step.text, encoding="utf-8")

    def _run(self, step: Run) -> None:
        if variable := re.fullmatch(r"export (\w+)=(\S+)", step.command):
            self._environment[variable[1]] = variable[2].replace("$PWD", str(self.directory))
        elif serve := re.fullmatch(r"hwtool (serve .+) &", step.command):
            self._serve(serve[1])
        elif step.command == "kill %1":
            assert self._daemon is not None, "there is no daemon"
            self._daemon.send_signal(signal.SIGTERM)
            assert self._daemon.wait(LIMIT_S) == 0, self._log()
            self._daemon = None
        else:
            done = subprocess.run(
                ["sh", "-c", step.command],
                cwd=self.directory,
                env=self._environment,
                stdout=subprocess.PIPE,
                stderr=subprocess.STDOUT,
                text=True,
                timeout=LIMIT_S,
                check=False,
            )
            assert done.returncode == step.code, (step.command, done.returncode, done.stdout)
            must_print(step, done.stdout)

    def _serve(self, words: str) -> None:
        """Start the daemon, on whatever file system the temporary directory is, and wait until it is ready."""
        assert self._daemon is None, "the document starts two daemons"
        with (self.home / "log").open("wb") as sink:
            self._daemon = subprocess.Popen(
                [sys.executable, "-m", "hwtool", *shlex.split(words), "--allow-unsafe-store"],
                cwd=self.directory,
                env=self._environment,
                stderr=sink,
            )
        deadline_s = time.monotonic() + LIMIT_S
        while "hwtool: ready" not in self._log():
            assert self._daemon.poll() is None and time.monotonic() < deadline_s, self._log()
            time.sleep(0.02)  # nothing to be woken by: the log is a file

    def _log(self) -> str:
        return (self.home / "log").read_text(encoding="utf-8")


def must_print(step: Run, output: str) -> None:
    """Each line of the document is a line of the output, in this order."""
    rest = iter(output.splitlines())
    for shown in step.printed:
        pattern = ".*".join(re.escape(part) for part in shown.rstrip().split("…"))
        assert any(re.fullmatch(pattern, line.rstrip()) for line in rest), (step.command, shown, output)


# the documents


def test_chip_in_ten_minutes_when_followed_then_every_step_ends_as_printed() -> None:
    with Stranger() as stranger:
        ran = stranger.follow((DOCS / "chip-in-ten-minutes.md").read_text(encoding="utf-8"))
    assert ran >= 19


def test_adopt_your_svd_when_followed_then_every_step_ends_as_printed() -> None:
    description = corpus_file("svd/RP2040.svd")
    with Stranger() as stranger:
        shutil.copyfile(description, stranger.directory / "RP2040.svd")
        ran = stranger.follow((DOCS / "adopt-your-svd.md").read_text(encoding="utf-8"))
    assert ran >= 28


def test_agent_in_five_minutes_when_followed_then_every_step_ends_as_printed() -> None:
    with Stranger() as stranger:
        ran = stranger.follow((DOCS / "agent-in-five-minutes.md").read_text(encoding="utf-8"))
    assert ran >= 15


def test_tutorials_when_they_link_then_the_targets_exist() -> None:
    for name in ("chip-in-ten-minutes.md", "adopt-your-svd.md", "agent-in-five-minutes.md", "mcp.md", "clients.md"):
        for target in re.findall(r"\]\(([^)#]+)\)", (DOCS / name).read_text(encoding="utf-8")):
            assert (DOCS / target).exists(), (name, target)


# the walk itself: it can fail

SMALL = """
<!-- file: a.toml -->
```toml
schema = 1
```
<!-- run: 2 -->
    hwtool contract lint a.toml

```text
a.toml …does not load: …
  a.toml: part: key is missing…
```
"""


def test_walk_when_the_document_is_right_then_it_passes() -> None:
    with Stranger() as stranger:
        assert stranger.follow(SMALL) == 1


@pytest.mark.parametrize(
    ("right", "wrong"),
    [
        pytest.param("run: 2", "run", id="exit-code"),
        pytest.param("part: key is missing", "part: key is there", id="output"),
        pytest.param("schema = 1", 'schema = 1\npart = "a"', id="file"),
        pytest.param("<!-- run: 2 -->\n", "", id="command-without-mark"),
        pytest.param("<!-- file: a.toml -->\n", "", id="block-without-mark"),
        pytest.param("run: 2", "runs: 2", id="unknown-mark"),
    ],
)
def test_walk_when_the_document_is_wrong_then_it_fails(right: str, wrong: str) -> None:
    assert right in SMALL
    with Stranger() as stranger, pytest.raises(AssertionError):
        stranger.follow(SMALL.replace(right, wrong))


def test_walk_when_lines_are_printed_in_another_order_then_it_fails() -> None:
    step = Run("a", 0, ("second", "first"))
    with pytest.raises(AssertionError):
        must_print(step, "first\nsecond\n")


def test_walk_when_a_daemon_is_left_running_then_it_fails() -> None:
    with pytest.raises(AssertionError, match="leaves its daemon running"), Stranger() as stranger:
        stranger.follow("<!-- run -->\n    hwtool serve --store store --socket run &\n")
