"""What a doctor finds: what can be wrong on a host, planted one at a time, is found by its name, and nothing else."""

from __future__ import annotations

import errno
import json
import os
import re
import socket
from collections.abc import Callable
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Any, Final

import pytest
from click.testing import CliRunner

from hwtool.cli.doctor import doctor
from hwtool.config import Board, parse_board
from hwtool.doctor import host as seen
from hwtool.doctor.examine import examine
from hwtool.doctor.finding import CHECKS, Finding, Status
from hwtool.doctor.host import Host, acl_of
from hwtool.host import rules, units
from hwtool_store.fitness import fitness_of
from tests.print_tables import doctor_checks

TOP: Final = Path(__file__).parents[2]
BOARD: Final = """
name = "cabinet"
approval_mode = "{mode}"
[buses.line0]
kind = "modbus-rtu"
path = "{dev}/serial/by-id/line"
sole_master = true
[buses.i2c0]
kind = "i2c"
adapter = "an adapter"
sole_master = true
[buses.usb0]
kind = "ftdi-i2c"
url = "ftdi://ftdi:232h:FT1/1"
sole_master = true
[devices.meter]
contract = "sdm120"
bus = "line0"
address = 1
identity = "11"
[devices.other]
contract = "sdm120"
bus = "line0"
address = 2
identity = "{other}"
[devices.gpio]
contract = "mcp23017"
bus = "i2c0"
address = 0x20
[devices.far]
contract = "mcp23017"
bus = "usb0"
address = 0x20
"""


@dataclass
class Bed:
    """A host made of folders, on which everything is as it should be, until a test spoils one thing."""

    top: Path
    mode: str = "separate-user"
    other: str = "12"
    groups: dict[str, set[str]] = field(
        default_factory=lambda: {"hwtoold": {"hwtoold"}, "hwtool": {"agent"}, "hwtool-operator": {"alice", "bob"}}
    )
    lists: dict[str, list[str]] = field(default_factory=dict)
    changes: dict[str, Any] = field(default_factory=dict)

    def __post_init__(self) -> None:
        self.dev, self.sysfs, self.proc = self.top / "dev", self.top / "sys", self.top / "proc"
        for folder in ("dev/serial/by-id", "dev/bus/usb/003", "proc", "rules", "units", "run", "store"):
            (self.top / folder).mkdir(parents=True)
        self.nodes = {
            "line0": self.dev / "serial/by-id/line",
            "i2c0": self.dev / "i2c-7",
            "usb0": self.dev / "bus/usb/003/007",
        }
        for node in self.nodes.values():
            node.write_bytes(b"")
            node.chmod(0o660)
        self.adapter("i2c-7")
        self.usb("3-1", 7)
        (self.top / "store").chmod(0o770)
        for role in ("agent", "operator"):
            with socket.socket(socket.AF_UNIX) as bound:
                bound.bind(str(self.top / f"run/{role}.sock"))
            (self.top / f"run/{role}.sock").chmod(0o660)

    def adapter(self, node: str) -> None:
        """An i2c adapter of the board's name."""
        place = self.sysfs / "class/i2c-dev" / node
        place.mkdir(parents=True)
        (place / "name").write_text("an adapter\n")

    def usb(self, name: str, number: int, serial: str = "FT1") -> Path:
        """An FT232H."""
        place = self.sysfs / "bus/usb/devices" / name
        (place / f"{name}:1.0").mkdir(parents=True)
        for key, value in {"idVendor": "0403", "idProduct": "6014", "serial": serial, "busnum": "3"}.items():
            (place / key).write_text(value + "\n")
        (place / "devnum").write_text(f"{number}\n")
        return place

    @property
    def file(self) -> Path:
        """The board's."""
        return self.top / "board.toml"

    def board(self) -> Board:
        """The board as it is now."""
        text = BOARD.format(mode=self.mode, dev=self.dev, other=self.other)
        self.file.write_text(text)
        return parse_board(text, "board.toml", self.top)

    def host(self) -> Host:
        """The host as it is now."""
        there = Host(
            system=True,
            user="hwtoold",
            sysfs=self.sysfs,
            dev=self.dev,
            proc=self.proc,
            rules=self.top / "rules",
            units=self.top / "units",
            members=self.groups.get,
            acl=lambda path: self.lists.get(path.name, []),
            names={os.getgid(): "hwtoold"},
        )
        return replace(there, **self.changes)

    def findings(self, monkeypatch: pytest.MonkeyPatch) -> list[Finding]:
        """Everything that is found."""
        # a node of a folder has its owner's user in place of root, and its own rules: the path is not below /dev
        monkeypatch.setattr("hwtool.doctor.host.user_name", lambda uid: "root" if uid == os.getuid() else str(uid))
        monkeypatch.setattr("hwtool.host.rules._node", lambda path: f'SYMLINK=="{Path(path).name}"')
        monkeypatch.setattr("hwtool.doctor.places.OF_GROUP", {"agent": "hwtoold", "operator": "hwtoold"})
        monkeypatch.setattr("hwtool_store.fitness.is_unsafe", lambda kind: self.changes_unsafe)
        return examine(self.board(), self.file, self.top / "store", str(self.top / "run"), self.host())

    changes_unsafe: bool = False


@pytest.fixture
def bed(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Bed:
    made = Bed(tmp_path)
    monkeypatch.setattr("hwtool.host.rules._node", lambda path: f'SYMLINK=="{Path(path).name}"')
    board = made.board()
    for name, text in {rules.CLASSES: rules.classes(), rules.LOCAL: rules.local(board, "board.toml")}.items():
        (tmp_path / "rules" / name).write_text(text)
    monkeypatch.setattr("hwtool.host.units.UNSEEN", ("/root",))  # the bed may stand below /tmp
    for name, text in units.units(board, made.file, Path("/usr/bin/hwtool")).items():
        (tmp_path / "units" / name).write_text(text)
    return made


def bad(found: list[Finding]) -> dict[str, Finding]:
    """Problems and warnings by name, but for what the board lint has to say of any board."""
    wrong = (Status.PROBLEM, Status.WARNING)
    return {one.check: one for one in found if one.status in wrong and one.check != "board.lint"}


def test_host_when_all_is_well_then_nothing_is_wrong(bed: Bed, monkeypatch: pytest.MonkeyPatch) -> None:
    assert bad(bed.findings(monkeypatch)) == {}


def _acl(bed: Bed) -> None:
    bed.lists["i2c-7"] = ["user agent"]


def _driver(bed: Bed) -> None:
    owned = bed.sysfs / "bus/i2c/devices/7-0020"
    owned.mkdir(parents=True)
    (bed.sysfs / "bus/i2c/drivers/pca953x").mkdir(parents=True)
    (owned / "driver").symlink_to(bed.sysfs / "bus/i2c/drivers/pca953x")


def _claimed(bed: Bed) -> None:
    (bed.sysfs / "bus/usb/drivers/usbfs").mkdir(parents=True)
    (bed.sysfs / "bus/usb/devices/3-1/3-1:1.0/driver").symlink_to(bed.sysfs / "bus/usb/drivers/usbfs")


def _holder(bed: Bed) -> None:
    (bed.proc / "4711/fd").mkdir(parents=True)
    (bed.proc / "4711/fd/3").symlink_to(bed.nodes["line0"])
    (bed.proc / "4711/comm").write_text("ModemManager\n")


def _left(bed: Bed) -> None:
    boot = Path("/proc/sys/kernel/random/boot_id").read_text().strip()
    note = {"url": "ftdi://ftdi:232h:FT1/1", "boot": boot}
    (bed.top / "store/ftdi-FT1-1.taken").write_text(json.dumps(note))


def _service(old: str, new: str) -> Callable[[Bed], None]:
    def spoil(bed: Bed) -> None:
        file = bed.top / "units" / units.SERVICE
        assert old in file.read_text()
        file.write_text(file.read_text().replace(old, new))

    return spoil


def _laid_over(bed: Bed) -> None:
    (bed.top / "units/hwtoold.service.d").mkdir()
    (bed.top / "units/hwtoold.service.d/more.conf").write_text("[Service]\nDevicePolicy=auto\n")


def _no_store(bed: Bed) -> None:
    (bed.top / "store").rmdir()
    (bed.top / "store").symlink_to("/proc/self/fdinfo")  # where nobody can make a file, root included


def _one_person(bed: Bed) -> None:
    bed.mode = "two-person"
    bed.groups["hwtool-operator"].remove("bob")


PLANTED: Final[dict[str, tuple[str, Callable[[Bed], object], str, str]]] = {
    # what is planted: the check that finds it, what does it, evidence, cure
    "everybody may open the line": (
        "node.open_to_all",
        lambda b: b.nodes["line0"].chmod(0o666),
        "line .*0666.: everybody",
        "hwtool udev --board .*board.toml.*chmod o=",
    ),
    "agents are in the nodes' group": (
        "node.open_to_others",
        lambda b: b.groups["hwtoold"].add("agent"),
        r"agent .in the group hwtoold.",
        "hwtool udev",
    ),
    "whoever sits there may open an adapter": ("node.acl", _acl, "i2c-7 .*user agent, by an access list", "uaccess"),
    "the daemon may not open its line": (
        "node.shut",
        lambda b: b.nodes["line0"].chmod(0o600),
        "hwtoold may not open it",
        "hwtool udev",
    ),
    "the line is not there": ("node.absent", lambda b: b.nodes["line0"].unlink(), "line is not there", "plug it in"),
    "no adapter of this name": (
        "node.absent",
        lambda b: (b.sysfs / "class/i2c-dev/i2c-7/name").write_text("another"),
        "no i2c adapter is called 'an adapter'; there are: another",
        "load its driver",
    ),
    "two adapters of a name": (
        "adapter.twice",
        lambda b: b.adapter("i2c-8"),
        "2 i2c adapters are called 'an adapter'",
        "name a path",
    ),
    "two adapters of a serial number": (
        "adapter.twice",
        lambda b: b.usb("3-2", 8),
        "2 adapters have the serial number FT1",
        "another number",
    ),
    "another program has the line": (
        "node.in_use",
        _holder,
        r"line is open in ModemManager .pid 4711.",
        "end it",
    ),
    "a kernel driver has an address": (
        "driver.in_the_way",
        _driver,
        "0x20 is owned by the kernel driver pca953x",
        "echo 7-0020 > .*/pca953x/unbind",
    ),
    "another program has the interface": (
        "driver.in_the_way",
        _claimed,
        "interface 1 is claimed by another program",
        "fuser -v",
    ),
    "an interface that a dead daemon took": (
        "usb.left_taken",
        _left,
        "FT1/1 was taken from its kernel driver",
        "hwtool give-back --store",
    ),
    "no rules for the nodes": (
        "rules.missing",
        lambda b: (b.top / "rules" / rules.LOCAL).unlink(),
        "No such file",
        "hwtool udev --board .* > .*72-hwtool-local.rules",
    ),
    "rules of another board": (
        "rules.outdated",
        lambda b: (b.top / "rules" / rules.LOCAL).write_text('SUBSYSTEM=="tty", GROUP="dialout"\n'),
        "line.s. are not as printed today",
        "udevadm control --reload",
    ),
    "no service": (
        "unit.missing",
        lambda b: (b.top / "units" / units.SERVICE).unlink(),
        "No such file",
        "hwtool units",
    ),
    "a service that may not reach a node": (
        "unit.outdated",
        _service("DeviceAllow=char-i2c rw\n", ""),
        "without DeviceAllow=char-i2c rw",
        "systemctl daemon-reload",
    ),
    "a service that may reach too much": (
        "unit.outdated",
        _service("DevicePolicy=closed\n", "DeviceAllow=/dev/mem rw\n"),
        "without DevicePolicy=closed; with DeviceAllow=/dev/mem rw",
        "hwtool units",
    ),
    "a service that is run as root": (
        "unit.outdated",
        _service("User=hwtoold\n", "User=root\n"),
        "without User=hwtoold; with User=root",
        "hwtool units",
    ),
    "a service that is changed beside its file": (
        "unit.outdated",
        _laid_over,
        r"as printed today, and changed by .*hwtoold.service.d/more.conf",
        "systemctl cat",
    ),
    "a service for another board": (
        "unit.outdated",
        _service("--board ", "--board /etc/other.toml #"),
        "it serves /etc/other.toml|without ExecStart",
        ".",
    ),
    "no socket for operators": (
        "unit.missing",
        lambda b: (b.top / "units" / units.OPERATOR_SOCKET).unlink(),
        "No such file",
        "hwtool units",
    ),
    "a store of another user": (
        "store.not_writable",
        lambda b: (b.top / "store").chmod(0o700),
        "it is root's: hwtoold may not write to it",
        "chown -R hwtoold:",
    ),
    "a store that nobody can write": ("store.not_writable", _no_store, ".", "chown"),
    "a file system that loses": (
        "store.file_system",
        lambda b: setattr(b, "changes_unsafe", True),
        "may lose what was synced",
        "--store",
    ),
    "no daemon": (
        "socket.missing",
        lambda b: (b.top / "run/agent.sock").unlink(),
        "no daemon listens",
        "systemctl start",
    ),
    "a socket for everybody": (
        "socket.open_to_all",
        lambda b: (b.top / "run/operator.sock").chmod(0o666),
        "everybody may connect",
        "SocketMode=0660",
    ),
    "an agent that is an operator": (
        "approval.not_true",
        lambda b: b.groups["hwtool-operator"].add("agent"),
        "agent: in the groups hwtool and hwtool-operator",
        "gpasswd -d",
    ),
    "two persons wanted and one there": (
        "approval.not_true",
        _one_person,
        r"1 user.s. in hwtool-operator: nobody else can approve",
        "gpasswd -a",
    ),
    "sockets of the daemon's own user": (
        "approval.not_true",
        lambda b: b.changes.update(system=False),
        "every process of hwtoold can open both",
        "the system install",
    ),
    "no group of operators": (
        "group.missing",
        lambda b: b.groups.pop("hwtool-operator"),
        "there is no group hwtool-operator",
        "systemd-sysusers",
    ),
    "one meter twice": (
        "identity.twice",
        lambda b: setattr(b, "other", "11"),
        "meter, other: each is sdm120 11",
        "its own identity",
    ),
}
ALONG: Final = {  # what follows from it by itself
    "no group of operators": {"approval.not_true"},
    "a store that nobody can write": {"store.room"},
}


@pytest.mark.parametrize("planted", PLANTED)
def test_doctor_when_one_thing_is_planted_then_found_by_its_name_with_its_cure_and_nothing_else_is(
    bed: Bed, monkeypatch: pytest.MonkeyPatch, planted: str
) -> None:
    name, spoil, evidence, cure = PLANTED[planted]
    spoil(bed)
    found = bad(bed.findings(monkeypatch))
    assert set(found) == {name} | ALONG.get(planted, set()), found
    one = found[name]
    assert re.search(evidence, one.evidence), one.evidence
    assert one.cure is not None
    assert re.search(cure, one.cure), one.cure


def running(bed: Bed) -> None:
    """A daemon has the store's lock, and the line open."""
    lock = bed.top / "store/lock"
    lock.write_bytes(b"")
    told = f"1: FLOCK  ADVISORY  WRITE 4711 fd:01:{lock.stat().st_ino} 0 EOF\n"
    (bed.proc / "locks").write_text(told)
    _holder(bed)


def test_doctor_when_the_daemon_runs_then_what_it_has_open_is_its_own(
    bed: Bed, monkeypatch: pytest.MonkeyPatch
) -> None:
    running(bed)
    _claimed(bed)
    assert bad(bed.findings(monkeypatch)) == {}
    (bed.proc / "4712/fd").mkdir(parents=True)
    (bed.proc / "4712/fd/3").symlink_to(bed.nodes["line0"])
    (bed.proc / "4712/comm").write_text("minicom\n")
    found = bad(bed.findings(monkeypatch))
    assert set(found) == {"node.in_use"}
    assert found["node.in_use"].evidence.endswith("is open in minicom (pid 4712)")


def test_doctor_when_no_daemon_runs_then_none_is_started_by_a_question(
    bed: Bed, monkeypatch: pytest.MonkeyPatch
) -> None:
    def asked(*_: object) -> None:
        raise AssertionError("a socket was connected to")

    monkeypatch.setattr("hwtool.doctor.places.Connection", asked)
    roles = [one for one in bed.findings(monkeypatch) if one.check == "socket.role"]
    assert [one.status for one in roles] == [Status.SKIPPED, Status.SKIPPED]


def test_doctor_when_the_daemon_says_nothing_then_that_is_found_and_it_goes_on(
    bed: Bed, monkeypatch: pytest.MonkeyPatch
) -> None:
    running(bed)
    (bed.top / "run/agent.sock").unlink()
    monkeypatch.setattr("hwtool.doctor.places.PATIENCE_S", 0.2)
    with socket.socket(socket.AF_UNIX) as mute:
        mute.bind(str(bed.top / "run/agent.sock"))
        mute.listen(1)
        (bed.top / "run/agent.sock").chmod(0o660)
        found = bad(bed.findings(monkeypatch))
    assert set(found) == {"socket.role"}
    assert "says nothing within 0.2 s" in found["socket.role"].evidence


@pytest.mark.parametrize("place", ["store", "run"])
def test_doctor_when_a_place_may_not_be_looked_at_then_said_and_it_goes_on(
    bed: Bed, monkeypatch: pytest.MonkeyPatch, place: str
) -> None:
    stat = Path.stat

    def refused(self: Path, **how: bool) -> os.stat_result:
        if self.is_relative_to(bed.top / place):
            raise PermissionError(errno.EACCES, "Permission denied", str(self))
        return stat(self, **how)

    monkeypatch.setattr(Path, "stat", refused)
    found = bed.findings(monkeypatch)
    assert any("Permission denied" in one.evidence for one in found)


def test_doctor_when_a_node_goes_while_it_is_looked_at_then_said_and_the_others_are_looked_at(
    bed: Bed, monkeypatch: pytest.MonkeyPatch
) -> None:
    def gone(path: Path) -> list[str]:
        if path.name == "i2c-7":
            raise FileNotFoundError(errno.ENOENT, "No such file or directory", str(path))
        return []

    bed.changes["acl"] = gone
    found = bed.findings(monkeypatch)
    (missing,) = (one for one in found if one.check == "node.absent")
    assert missing.about == "buses.i2c0"
    assert {"buses.line0", "buses.usb0"} <= {one.about for one in found if one.status is Status.OK}


def test_doctor_when_the_rules_give_the_nodes_to_another_group_then_they_are_those_of_today(
    bed: Bed, monkeypatch: pytest.MonkeyPatch
) -> None:
    text = (bed.top / "rules" / rules.LOCAL).read_text()
    (bed.top / "rules" / rules.LOCAL).write_text(text.replace('GROUP="hwtoold"', 'GROUP="io"'))
    assert bad(bed.findings(monkeypatch)) == {}


def test_node_when_an_access_list_lets_the_daemons_group_in_then_not_shut(
    bed: Bed, monkeypatch: pytest.MonkeyPatch
) -> None:
    bed.nodes["i2c0"].chmod(0o600)
    bed.lists["i2c-7"] = ["group hwtoold"]
    assert bad(bed.findings(monkeypatch)) == {}


def test_doctor_when_a_library_is_missing_then_named(bed: Bed, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("hwtool_registers.buses.ftdi_claim.has_libusb", lambda: False)
    found = bad(bed.findings(monkeypatch))
    assert set(found) == {"library.missing"}
    assert found["library.missing"].cure == "apt-get install libusb-1.0-0"


def test_planted_when_counted_then_every_check_that_can_fail_is_planted() -> None:
    planted = {name for name, *_ in PLANTED.values()} | {"library.missing", "board.lint"}
    tried_elsewhere = {"store.room", "store.sync", "socket.role"}
    assert set(CHECKS) == planted | tried_elsewhere | {"store.sqlite"}  # which tells, and complains of nothing


@pytest.mark.parametrize(
    ("check", "changed", "status"),
    [
        ("store.room", {"low": "3 MiB are free"}, Status.PROBLEM),
        ("store.sync", {"sync_ms": 80.0}, Status.WARNING),
    ],
)
def test_doctor_when_the_disk_is_full_or_slow_then_said(
    bed: Bed, monkeypatch: pytest.MonkeyPatch, check: str, changed: dict[str, Any], status: Status
) -> None:
    monkeypatch.setattr("hwtool.doctor.places.fitness_of", lambda directory: replace(fitness_of(directory), **changed))
    found = bad(bed.findings(monkeypatch))
    assert {name: one.status for name, one in found.items()} == {check: status}


def test_access_list_when_packed_by_the_kernel_then_users_and_groups_by_name(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    nobody = 0xFFFFFFFF
    named = [(0x02, 6, 0), (0x02, 4, 4711), (0x02, 2, 12), (0x08, 6, 0)]
    entries = [(0x01, 6, nobody), *named, (0x10, 4, nobody), (0x20, 0, 0)]
    packed = (2).to_bytes(4, "little") + b"".join(
        tag.to_bytes(2, "little") + allowed.to_bytes(2, "little") + number.to_bytes(4, "little")
        for tag, allowed, number in entries
    )
    monkeypatch.setattr(os, "getxattr", lambda path, name: packed)
    assert acl_of(tmp_path) == [f"user {seen.user_name(0)}", "user 4711", f"group {seen.group_name(0)}"]


def test_access_list_when_there_is_none_then_nobody(tmp_path: Path) -> None:
    assert acl_of(tmp_path) == []


def test_verb_when_run_then_a_line_a_finding_and_as_json(tmp_path: Path) -> None:
    words = ["--store", str(tmp_path), "--socket", str(tmp_path / "run")]
    told = CliRunner().invoke(doctor, words)
    assert "approval.not_true" in told.stdout
    assert "problem(s)" in told.stdout.splitlines()[-1]
    as_json = CliRunner().invoke(doctor, [*words, "--json"])
    body = json.loads(as_json.stdout)
    assert as_json.exit_code == (1 if body["problems"] else 0)
    assert {one["check"] for one in body["findings"]} <= set(CHECKS)
    assert all(set(one) == {"check", "status", "about", "evidence", "cure"} for one in body["findings"])
    assert any((one["check"], one["status"]) == ("socket.missing", "warning") for one in body["findings"])


def test_manual_when_it_lists_the_checks_then_as_the_table() -> None:
    manual = (TOP / "docs/doctor.md").read_text(encoding="utf-8").splitlines()
    assert [line for line in manual if line.startswith("| `")] == list(doctor_checks())
