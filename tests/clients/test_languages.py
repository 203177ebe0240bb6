"""The fifteen-line clients of the manual, each built and run; one that cannot be built here is skipped, and says so."""

from __future__ import annotations

import json
import os
import shutil
import socket
import subprocess
import threading
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from tests.bench import Bench
from tests.running import LIMIT_S

CLIENTS = Path(__file__).parents[2] / "docs" / "clients"
WRITE = {"register": "gpio.OLATA", "value": "0x55", "key": "languages-0001"}


def needs(program: str) -> str:
    """The path of a compiler or interpreter."""
    found = shutil.which(program)
    if found is None:
        pytest.skip(f"there is no {program} on this machine (.ci/peers installs it where it can)")
    return found


def built(command: list[str], made: Path) -> list[str]:
    """A program that has been compiled."""
    subprocess.run(command, check=True, timeout=4 * LIMIT_S, capture_output=True)
    return [str(made)]


def shell(_: Path) -> list[str]:
    nc = subprocess.run([needs("nc"), "-h"], capture_output=True, text=True, check=False)
    if "-U" not in nc.stdout + nc.stderr and "OpenBSD" not in nc.stdout + nc.stderr:
        pytest.skip("nc is not the one of OpenBSD: it knows no -U")
    return ["sh", str(CLIENTS / "hw.sh")]


def node(_: Path) -> list[str]:
    return [needs("node"), str(CLIENTS / "hw.mjs")]


def go(folder: Path) -> list[str]:
    return built([needs("go"), "build", "-o", str(folder / "hw"), str(CLIENTS / "hw.go")], folder / "hw")


def rust(folder: Path) -> list[str]:
    return built([needs("rustc"), "-o", str(folder / "hw"), str(CLIENTS / "hw.rs")], folder / "hw")


def c(folder: Path) -> list[str]:
    return built([needs("cc"), "-Wall", "-Werror", "-o", str(folder / "hw"), str(CLIENTS / "hw.c")], folder / "hw")


LANGUAGES: dict[str, Callable[[Path], list[str]]] = {"shell": shell, "node": node, "go": go, "rust": rust, "c": c}


def test_clients_when_counted_then_of_fifteen_lines_and_in_the_manual() -> None:
    page = (CLIENTS.parent / "clients.md").read_text(encoding="utf-8")
    for file in CLIENTS.iterdir():
        assert len(file.read_text(encoding="utf-8").splitlines()) <= 15, file.name
        assert f"clients/{file.name}" in page


@pytest.mark.parametrize("language", LANGUAGES)
def test_client_when_killed_after_the_dispatch_then_the_same_line_replays(
    bench: Bench, tmp_path: Path, language: str
) -> None:
    program = LANGUAGES[language](tmp_path)

    def call(method: str, params: dict[str, Any]) -> dict[str, Any]:
        reply: dict[str, Any] = json.loads(bench.run([*program, method, json.dumps(params)]))
        result: dict[str, Any] = reply["result"]
        return result

    assert call("reg.read", {"registers": ["uart.RXLVL"]})["values"][0]["raw"] == "0x05"
    bench.killed_after_dispatch([*program, "reg.write", json.dumps(WRITE)], daemon_too=False)
    again = call("reg.write", WRITE)
    assert (again["replayed"], again["verdict"], bench.executed("OLATA.write")) == (True, "applied", 1)
    other = {**WRITE, "key": "languages-0002"}
    bench.killed_after_dispatch([*program, "reg.write", json.dumps(other)], daemon_too=True)
    again = call("reg.write", other)
    assert (again["replayed"], bench.executed("OLATA.write")) == (True, 2)


@pytest.mark.parametrize("language", LANGUAGES)
def test_client_when_the_daemon_hangs_up_without_a_reply_or_is_not_there_then_it_fails(
    tmp_path: Path, language: str
) -> None:
    program = LANGUAGES[language](tmp_path)
    environment = {**os.environ, "HWTOOL_SOCKET": str(tmp_path)}
    words = [*program, "device.list", "{}"]
    absent = subprocess.run(words, env=environment, capture_output=True, timeout=4 * LIMIT_S, check=False)
    assert absent.returncode != 0

    def hang_up() -> None:
        it, _ = listening.accept()
        with it:
            it.recv(1 << 16)

    with socket.socket(socket.AF_UNIX) as listening:
        listening.bind(str(tmp_path / "agent.sock"))
        listening.listen()
        rude = threading.Thread(target=hang_up)
        rude.start()
        lost = subprocess.run(words, env=environment, capture_output=True, timeout=4 * LIMIT_S, check=False)
        rude.join(LIMIT_S)
    assert lost.returncode != 0
