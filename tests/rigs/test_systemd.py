"""The system install on a real systemd and a real udev, in the guest: what `hwtool udev` and `hwtool units` print.

The node gets its group, a caller's connection starts the daemon, which reads a chip of the kernel's under its closed
device policy, and an agent's user may use the socket and not the node. Beside that, a few things that the sandbox must
refuse are tried from inside it.
"""

from __future__ import annotations

import json
import os
import shlex
import sys
from pathlib import Path
from typing import Any, Final

import pytest

from hwtool.config import parse_board
from hwtool.host import rules, units
from tests.hwtool.conftest import DEFAULTS, I2C, reg
from tests.rigs import guest
from tests.rigs.test_kernel_i2c import EEPROM, I801, TOP

CONTRACT: Final = I2C.replace("[0x20, 0x21]", "[0x50]") + DEFAULTS + reg("R", 0x10, "reset = 0")
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
LIMIT_S: Final = 400
# What the checkout is in there: in root's home, which the service is shown, and on a file system that loses everything.
DROP_IN: Final = """
[Service]
ProtectHome=read-only
ExecStart=
ExecStart={program} serve --board /etc/hwtool/board.toml --store /var/lib/hwtool --socket /run/hwtool \\
  --allow-unsafe-store
ExecStartPre={python} /run/out/tried.py
"""
TRIED: Final = """
import json, os, socket
def tried(act):
    try:
        act()
    except OSError as error:
        return error.errno
    return 0
told = {
    "its bus": tried(lambda: os.close(os.open("/dev/i2c-0", os.O_RDWR))),
    "a node that everybody may open": tried(lambda: os.close(os.open("/dev/ttyS1", os.O_RDWR | os.O_NONBLOCK))),
    "a network": tried(lambda: socket.socket(socket.AF_INET).close()),
    "a file of the system": tried(lambda: open("/etc/hwtool/mine", "w").close()),
    "its store": tried(lambda: open("/var/lib/hwtool/mine", "w").close()),
}
open("/var/lib/hwtool/tried.json", "w").write(json.dumps(told))
"""
SCRIPT: Final = """
cd {top}; said() {{ echo "== $1"; }}
chmod 755 /root                                   # in the overlay: the interpreter stands in there
mkdir -p /etc/udev/rules.d /etc/hwtool /etc/systemd/system/hwtoold.service.d
cp /run/out/*.rules /etc/udev/rules.d/; cp /run/out/*.toml /etc/hwtool/
cp /run/out/hwtoold* /etc/systemd/system/; cp /run/out/drop-in.conf /etc/systemd/system/hwtoold.service.d/
systemd-sysusers /run/out/hwtool.conf
for user in "-G hwtool robot" "-G hwtool-operator alice" "eve"; do useradd -r -M -s /bin/sh $user; done
udevadm control --reload
udevadm trigger --settle --subsystem-match=i2c-dev
chmod 666 /dev/ttyS1
said nodes; stat -c '%n %U:%G %a' /dev/i2c-0 /dev/ttyS0
systemctl daemon-reload
systemctl start hwtoold.socket hwtoold-operator.socket
said sockets; stat -c '%n %U:%G %a' /run/hwtool/agent.sock /run/hwtool/operator.sock
said before; systemctl is-active hwtoold.service
H="env HOME=/tmp HWTOOL_SOCKET=/run/hwtool PATH=$PATH {program}"
said read; runuser -u robot -- $H read rom.R --json
said write; runuser -u robot -- $H write rom.R=0x5A --key guest-systemd-1 --json
said active; systemctl show hwtoold.service -p ActiveState -p StatusText -p User --value
said node; runuser -u robot -- cat /dev/i2c-0
said operator; runuser -u robot -- $H approvals
said stranger; runuser -u eve -- $H read rom.R
said alice; runuser -u alice -- $H approvals --json
said tried; cat /var/lib/hwtool/tried.json; echo
said doctor; $H doctor --board /etc/hwtool/board.toml --store /var/lib/hwtool --json
said watchdog; systemctl show hwtoold.service -p WatchdogTimestampMonotonic -p ActiveEnterTimestampMonotonic --value
systemctl stop hwtoold.service hwtoold.socket hwtoold-operator.socket
said ended; systemctl show hwtoold.service -p ActiveState -p Result --value
said journal; journalctl -u hwtoold.service --no-pager -o cat -n 20
"""


def parts(said: str) -> dict[str, str]:
    """What the script said, by the words it put before."""
    found: dict[str, str] = {}
    for piece in said.split("== ")[1:]:
        word, _, rest = piece.partition("\n")
        found[word.strip()] = rest.strip()
    return found


@pytest.fixture(scope="module")
def told(tmp_path_factory: pytest.TempPathFactory) -> dict[str, str]:
    """One life of the guest."""
    why = guest.missing()
    if why is None and "PYTEST_XDIST_WORKER" in os.environ:
        why = "minutes of emulation, which the gate has not: python -m tests.rigs --only systemd"
    if why is None and not (Path("/lib/systemd/systemd").exists() and Path("/usr/bin/udevadm").exists()):
        why = "no systemd and udev on this machine, whose root the guest has"
    if why is not None:
        pytest.skip(why)
    try:
        kernel = guest.built(TOP / ".peers" / "guest")
    except OSError as error:
        pytest.skip(str(error))
    folder = tmp_path_factory.mktemp("host")
    (folder / "rom.toml").write_text(CONTRACT)
    board = parse_board(BOARD, "board.toml", folder)
    program = Path(sys.executable).with_name("hwtool")
    made = units.units(board, Path("/etc/hwtool/board.toml"), Path("/usr/bin/hwtool"))
    made |= {rules.CLASSES: rules.classes(), rules.LOCAL: rules.local(board, "board.toml")}
    made |= {"board.toml": BOARD, "rom.toml": CONTRACT, "tried.py": TRIED}
    made["drop-in.conf"] = DROP_IN.format(program=program, python=sys.executable)
    script = SCRIPT.format(top=shlex.quote(str(TOP)), program=program)
    with guest.booted(kernel, script, systemd=True) as one:
        for name, text in made.items():
            (one.out / name).write_text(text)
        ended = one.ended(LIMIT_S)
    found = parts(ended.said)
    found["wire"] = json.dumps([[[p[0], p[1], bytes(p[2]).hex()] for p in t] for t in ended.wire])
    found["all"] = ended.said
    return found


pytestmark = pytest.mark.timeout(600)


def test_node_when_udev_has_read_the_rules_then_of_the_daemons_group_alone(told: dict[str, str]) -> None:
    assert told["nodes"].splitlines()[0] == "/dev/i2c-0 root:hwtoold 660", told["all"]
    assert "hwtoold" not in told["nodes"].splitlines()[1]  # no node of the board's: left as it was


def test_sockets_when_systemd_has_made_them_then_each_of_its_group(told: dict[str, str]) -> None:
    assert told["sockets"].splitlines() == [
        "/run/hwtool/agent.sock root:hwtool 660",
        "/run/hwtool/operator.sock root:hwtool-operator 660",
    ]


def test_daemon_when_an_agent_connects_then_started_and_it_reads_the_chip(told: dict[str, str]) -> None:
    assert told["before"] == "inactive"
    read: dict[str, Any] = json.loads(told["read"].splitlines()[-1])
    assert (read["ok"], read["simulated"]) == (True, False), told["all"]
    written = json.loads(told["write"].splitlines()[-1])
    assert (written["ok"], written["effects"]) == (True, "applied"), told["all"]
    active = told["active"].splitlines()
    assert "active" in active
    assert "hwtoold" in active
    assert "1 device(s) on 1 bus(es) of board guest" in active
    writes = [t for t in json.loads(told["wire"]) if t == [["W", EEPROM, "105a"]]]
    assert len(writes) == 1


def test_agent_when_it_goes_past_the_daemon_then_refused(told: dict[str, str]) -> None:
    assert "Permission denied" in told["node"]
    assert "Permission denied" in told["operator"] or "may not" in told["operator"], told["operator"]
    assert "Permission denied" in told["stranger"] or "may not" in told["stranger"], told["stranger"]
    assert json.loads(told["alice"].splitlines()[-1])["ok"] is True


def test_sandbox_when_tried_from_inside_then_its_bus_and_its_store_and_nothing_else(told: dict[str, str]) -> None:
    tried = json.loads(told["tried"])
    assert (tried["its bus"], tried["its store"]) == (0, 0), tried
    assert tried["a node that everybody may open"] == 1, tried  # EPERM, by the device policy: not EACCES, by a mode
    assert tried["a network"] != 0
    assert tried["a file of the system"] != 0


def test_doctor_when_it_looks_at_this_host_then_nothing_lets_anybody_past(told: dict[str, str]) -> None:
    found = json.loads(told["doctor"].splitlines()[-1])["findings"]
    problems = {one["check"] for one in found if one["status"] == "problem"}
    assert problems == {"store.file_system"}, found  # which loses everything, in the guest
    assert ("node.open_to_others", "ok") in {(one["check"], one["status"]) for one in found}


def test_service_when_stopped_then_it_ends_well(told: dict[str, str]) -> None:
    assert sorted(told["ended"].splitlines()) == ["inactive", "success"], told["all"]
