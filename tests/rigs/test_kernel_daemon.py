"""The daemon itself inside the guest, on the kernel's own /dev/i2c-N, driven from outside through its socket.

Found, read, written under a key, killed, recovered: and QEMU's own trace tells how often the device was written to.
"""

from __future__ import annotations

import json
import shlex
import shutil
import socket
import sys
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any, Final

import pytest

from tests.hwtool.conftest import DEFAULTS, I2C, reg
from tests.registers.scripted_server import free_port
from tests.rigs import guest
from tests.rigs.test_kernel_i2c import EEPROM, I801, TOP

PULSE: Final = (
    "write = { effect = 'pulse', verify = 'signal', window_ms = 20000, signals = [{ register = 'SEEN', equals = 1 }] }"
)
CONTRACT: Final = (
    I2C.replace("[0x20, 0x21]", "[0x50]")
    + DEFAULTS
    + reg("R", 0x10, "reset = 0")
    + reg("FIRE", 0x18, PULSE, "wo")
    + reg("SEEN", 0x19, "volatile = true", "ro")
)
BOARD: Final = f"""
name = "guest"
approval_mode = "separate-user"
[buses.smbus]
kind = "i2c"
adapter = "{I801}"
sole_master = true
response_ms = 2000
[devices.rom]
contract = "./rom.toml"
bus = "smbus"
address = {EEPROM}
"""
SCRIPT: Final = """
mkdir -p /run/hwtool; cp /run/out/board.toml /run/out/rom.toml /run/hwtool/; cd {top}
socat TCP-LISTEN:8080,fork,reuseaddr UNIX-CONNECT:/run/hwtool/operator.sock &
{python} /run/out/lives.py 2> /run/out/daemon
"""
# each life ends when the host asks for it: "kill" by SIGKILL, "stop" for good; each is a fork of one process
# that has everything imported, which takes half a minute in there
LIVES: Final = """
import os, signal, sys, time
from pathlib import Path
from hwtool.__main__ import main
from hwtool.cli import daemon
import hwtool.server

out = Path("/run/out")
while not (out / "stop").exists():
    life = os.fork()
    if not life:
        sys.argv = ["hwtool", "serve", "--board", "/run/hwtool/board.toml", "--store", "/run/hwtool/store"]
        sys.argv += ["--socket", "/run/hwtool", "--allow-unsafe-store"]
        main()
    while not (out / "stop").exists() and not (out / "kill").exists():
        time.sleep(0.2)
    os.kill(life, signal.SIGKILL)
    os.waitpid(life, 0)
    (out / "kill").unlink(missing_ok=True)
"""


@pytest.fixture
def inside(tmp_path: Path) -> Iterator[tuple[guest.Guest, int]]:
    """The guest with its daemon, and the port that leads to it."""
    why = guest.missing() or (None if shutil.which("socat") else "no socat")
    if why is not None:
        pytest.skip(why)
    try:
        kernel = guest.built(TOP / ".peers" / "guest")
    except OSError as error:
        pytest.skip(str(error))
    port = free_port()
    script = SCRIPT.format(top=shlex.quote(str(TOP)), python=sys.executable)
    with guest.booted(kernel, script, forward=port) as one:
        (one.out / "board.toml").write_text(BOARD)
        (one.out / "rom.toml").write_text(CONTRACT)
        (one.out / "lives.py").write_text(LIVES)
        yield one, port


class Talk:
    """Requests to the daemon in there, each over a connection of its own."""

    def __init__(self, port: int) -> None:
        self.port = port

    def ask(self, method: str, params: dict[str, Any], limit_s: float = 60) -> dict[str, Any] | None:
        """The result, None if nobody answered."""
        line = json.dumps({"jsonrpc": "2.0", "id": 1, "method": method, "params": params}).encode() + b"\n"
        try:
            with socket.create_connection(("127.0.0.1", self.port), limit_s) as one:
                one.sendall(line)
                reply = one.makefile("rb").readline()
        except OSError:
            return None
        if not reply:
            return None
        result: dict[str, Any] = json.loads(reply)["result"]
        return result

    def begin(self, method: str, params: dict[str, Any]) -> socket.socket:
        """Send, and do not wait."""
        one = socket.create_connection(("127.0.0.1", self.port), 60)
        one.sendall(json.dumps({"jsonrpc": "2.0", "id": 1, "method": method, "params": params}).encode() + b"\n")
        return one

    def up(self) -> dict[str, Any]:
        """Wait until it answers."""
        until_s = time.monotonic() + 150
        while time.monotonic() < until_s:
            found = self.ask("device.list", {})
            if found is not None:
                return found
            time.sleep(0.3)  # it boots: nothing tells when it is there
        raise AssertionError("the daemon in the guest does not answer")


def writes(one: guest.Guest, data: bytes) -> int:
    """How often the device was written to with these bytes, by QEMU's word."""
    return one.wire().count([("W", EEPROM, data)])


@pytest.mark.timeout(500)
def test_daemon_when_it_runs_on_a_kernels_bus_and_is_killed_then_each_effect_happened_once(
    inside: tuple[guest.Guest, int],
) -> None:
    one, port = inside
    talk = Talk(port)
    assert [d["name"] for d in talk.up()["devices"]] == ["rom"]
    found = talk.ask("reg.find", {"query": "R"})
    assert found is not None
    assert "rom.R" in [m["register"] for m in found["matches"]]
    write = {"register": "rom.R", "value": 0x5A, "key": "guest-write-1"}
    done = talk.ask("reg.write", write)
    assert done is not None
    assert (done["verdict"], done["effects"], writes(one, b"\x10\x5a")) == ("applied", "applied", 1)
    read = talk.ask("reg.read", {"registers": ["rom.R"]})
    assert read is not None
    assert read["values"][0]["raw"] == "0x5a"
    with talk.begin("reg.write", {"register": "rom.FIRE", "value": 1, "key": "guest-pulse-1"}):
        until_s = time.monotonic() + 60
        while not writes(one, b"\x18\x01"):
            assert time.monotonic() < until_s
            time.sleep(0.1)  # QEMU writes its trace when it likes
        (one.out / "kill").touch()  # inside the watch: the outcome is not on record
        while (one.out / "kill").exists():
            assert time.monotonic() < until_s + 60
            time.sleep(0.1)  # it is taken away when the daemon is dead; no event crosses over
    talk.up()
    unknown = talk.ask("op.get", {"key": "guest-pulse-1"})
    assert unknown is not None
    assert unknown["error"]["code"] == "outcome_unknown"
    held = talk.ask("reg.write", {**write, "key": "guest-write-2"})
    assert held is not None
    assert held["error"]["code"] == "held"
    replayed = talk.ask("reg.write", write)
    assert replayed is not None
    assert (replayed["replayed"], replayed["verdict"]) == (True, "applied")
    reason = {"verdict": "abandoned", "reason": "nobody has looked"}
    settled = talk.ask("op.settle", {"id": unknown["id"], **reason})
    assert settled is not None
    again = talk.ask("reg.write", {"register": "rom.R", "value": 0x33, "key": "guest-write-3"})
    assert again is not None
    assert again["ok"]
    assert [writes(one, data) for data in (b"\x10\x5a", b"\x18\x01", b"\x10\x33")] == [1, 1, 1]
    (one.out / "stop").touch()
    assert one.ended().code == 0
