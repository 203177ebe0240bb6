"""What the daemon tells a service manager: that it is ready, signs of life for as long as it has any, that it stops."""

from __future__ import annotations

import asyncio
import os
import socket
from collections.abc import Iterator
from pathlib import Path

import pytest

from hwtool import service_manager
from hwtool.service_manager import notify, signs_of_life, watchdog_s
from tests.running import RunningDaemon

LIMIT_S = 60.0
MOST = 5  # signs, of a loop that asks nobody


@pytest.fixture
def manager(tmp_path: Path) -> Iterator[tuple[socket.socket, str]]:
    """A service manager's socket, and its address."""
    address = str(tmp_path / "notify")
    with socket.socket(socket.AF_UNIX, socket.SOCK_DGRAM) as one:
        one.bind(address)
        one.settimeout(LIMIT_S)
        yield one, address


def test_daemon_when_it_serves_then_ready_signs_of_life_and_the_end_are_told(
    manager: tuple[socket.socket, str],
) -> None:
    listens, address = manager
    daemon = RunningDaemon()
    daemon.start(NOTIFY_SOCKET=address, WATCHDOG_USEC="300000")
    try:
        first = listens.recv(4096).decode().splitlines()
        assert first[0] == "READY=1"
        assert first[1].startswith("STATUS=6 device(s) on ")
        assert [listens.recv(4096) for _ in range(3)] == [b"WATCHDOG=1"] * 3
        assert daemon.stop() == 0
        told = [listens.recv(4096)]
        while told[-1] == b"WATCHDOG=1":
            told.append(listens.recv(4096))
        assert told[-1] == b"STOPPING=1"
    finally:
        daemon.__exit__(None, None, None)


def test_signs_of_life_when_what_must_answer_does_not_then_none_are_given(monkeypatch: pytest.MonkeyPatch) -> None:
    told: list[tuple[str, ...]] = []
    monkeypatch.setattr(service_manager, "notify", lambda *words: told.append(words))
    slept: list[float] = []

    async def life() -> None:
        hangs = asyncio.Event()
        answers = [True, True]

        async def alive() -> None:
            if not answers:
                hangs.set()
                await asyncio.Event().wait()
            answers.pop()

        async def sleep(seconds: float) -> None:
            slept.append(seconds)
            if len(slept) > MOST:
                hangs.set()
                await asyncio.Event().wait()

        monkeypatch.setattr("hwtool.service_manager.asyncio.sleep", sleep)
        task = asyncio.ensure_future(signs_of_life(30.0, alive))
        await hangs.wait()
        task.cancel()

    asyncio.run(life())
    assert told == [("WATCHDOG=1",), ("WATCHDOG=1",)]
    assert slept == [10.0, 10.0]


@pytest.mark.parametrize(
    ("environment", "wanted"),
    [
        ({}, None),
        ({"WATCHDOG_USEC": "30000000"}, 30.0),
        ({"WATCHDOG_USEC": "30000000", "WATCHDOG_PID": "1"}, None),
        ({"WATCHDOG_USEC": "0"}, None),
        ({"WATCHDOG_USEC": "soon"}, None),
    ],
)
def test_watchdog_when_wanted_of_this_process_then_its_period(
    monkeypatch: pytest.MonkeyPatch, environment: dict[str, str], wanted: float | None
) -> None:
    for name in ("WATCHDOG_USEC", "WATCHDOG_PID"):
        monkeypatch.delenv(name, raising=False)
    for name, value in environment.items():
        monkeypatch.setenv(name, value)
    assert watchdog_s() == wanted


def test_manager_when_it_does_not_listen_then_said_and_nothing_fails(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str], tmp_path: Path
) -> None:
    monkeypatch.setenv("NOTIFY_SOCKET", str(tmp_path / "nobody"))
    notify("READY=1")
    assert "the service manager cannot be told" in capsys.readouterr().err


def test_address_when_it_is_abstract_then_told_there(monkeypatch: pytest.MonkeyPatch) -> None:
    name = f"hwtool-test-{os.getpid()}"
    with socket.socket(socket.AF_UNIX, socket.SOCK_DGRAM) as one:
        one.bind(f"\0{name}")
        monkeypatch.setenv("NOTIFY_SOCKET", f"@{name}")
        notify("READY=1", "STATUS=up")
        assert one.recv(100) == b"READY=1\nSTATUS=up"
