"""mbpoll, a master that nobody here wrote, beside the daemon at one server: numbering, and values that others write."""

from __future__ import annotations

import re
import shutil
import subprocess
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Final

import pytest

from tests.modbus.test_conformance import started
from tests.registers.scripted_server import free_port
from tests.running import RunningDaemon

LIMIT_S: Final = 30
CONTRACT: Final = """
# Ref: the server of these tests, tests/modbus/modbus_tk_slave.py
schema = 1
part = "slave"
vendor = "modbus-tk"
title = "a server of another author"
source = "tests/modbus/modbus_tk_slave.py"
[access]
[access.modbus]
base = {base}
functions = [3, 6, 16]
[defaults]
read = {{ effects = ["none"], provenance = "asserted", source = "modbus_tk_slave.py" }}
write = {{ effect = "store", provenance = "asserted", source = "modbus_tk_slave.py" }}
[registers.LEVEL]
offset = {offset}
space = "holding"
access = "rw"
"""
BOARD: Final = """
name = "shared"
[buses.net]
kind = "modbus-tcp"
host = "127.0.0.1"
port = {port}
response_ms = 1000
[devices.slave]
contract = "slave.toml"
bus = "net"
address = 17
"""
# base of the contract, offset in it: the same register, the sixth, whose number on the wire is 5
NUMBERINGS: Final = {"counted from 0": (0, 5), "counted from 1": (1, 6)}


@dataclass
class Shared:
    """A daemon and mbpoll at one server."""

    daemon: RunningDaemon
    port: int
    counts: Path

    def ask(self, method: str, **params: Any) -> dict[str, Any]:
        with self.daemon.client() as client:
            return client.ask(method, params)

    def mbpoll(self, *words: str, value: int | None = None) -> int | None:
        """What it read; None where it wrote."""
        command = ["mbpoll", "-m", "tcp", "-p", str(self.port), "-a", "17", "-t", "4", "-1", *words, "127.0.0.1"]
        if value is not None:
            command.append(str(value))
        told = subprocess.run(command, capture_output=True, text=True, timeout=LIMIT_S, check=True).stdout
        found = re.search(r"^\[\d+\]:\s+(\d+)", told, re.MULTILINE)
        return None if found is None else int(found[1])

    def executed(self) -> list[str]:
        """Requests that the server got, by its own record."""
        return self.counts.read_text(encoding="ascii").splitlines()


@pytest.fixture(params=NUMBERINGS)
def shared(request: pytest.FixtureRequest, tmp_path: Path) -> Iterator[Shared]:
    if shutil.which("mbpoll") is None:
        pytest.skip("no mbpoll (Debian: mbpoll)")
    base, offset = NUMBERINGS[request.param]
    port, counts = free_port(), tmp_path / "counts"
    server = started("tests.modbus.modbus_tk_slave", "tcp", str(port), str(counts))
    daemon = RunningDaemon(BOARD.format(port=port))
    (daemon.directory / "slave.toml").write_text(CONTRACT.format(base=base, offset=offset))
    try:
        with daemon:
            yield Shared(daemon, port, counts)
    finally:
        server.kill()
        server.communicate()


def test_register_when_two_masters_name_it_then_both_numberings_mean_the_same_one(shared: Shared) -> None:
    assert shared.ask("reg.read", registers=["slave.LEVEL"])["values"][0]["value"] == 15
    assert (shared.mbpoll("-r", "6"), shared.mbpoll("-0", "-r", "5")) == (15, 15)
    assert shared.ask("reg.write", register="slave.LEVEL", value=777, key="write-0001")["ok"]
    assert (shared.mbpoll("-r", "6"), shared.mbpoll("-r", "5"), shared.mbpoll("-r", "7")) == (777, 12, 18)
    assert shared.executed().count("6 5") == 1


def test_write_when_another_master_has_written_meanwhile_then_what_was_expected_is_looked_at(shared: Shared) -> None:
    assert shared.mbpoll("-r", "6", value=42) is None
    late = shared.ask("reg.write", register="slave.LEVEL", value=16, key="write-0002", expect={"slave.LEVEL": 15})
    assert (late["error"]["code"], late["effects"]) == ("precondition_failed", "none")
    assert (shared.mbpoll("-r", "6"), [line for line in shared.executed() if line.startswith("6 ")]) == (42, ["6 5"])
    again = shared.ask("reg.write", register="slave.LEVEL", value=16, key="write-0003", expect={"slave.LEVEL": 42})
    assert (again["ok"], shared.mbpoll("-r", "6")) == (True, 16)
