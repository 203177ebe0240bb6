"""Units of systemd: what is printed for a board, and what systemd itself says of it."""

from __future__ import annotations

import re
import shutil
import subprocess
from pathlib import Path
from typing import Final

import pytest

from hwtool.config import Board, load_board, parse_board
from hwtool.host.units import OPERATOR_SOCKET, PLACES, SERVICE, SOCKET, SYSUSERS, NoUnit, units

TOP: Final = Path(__file__).parents[2]
EXAMPLE: Final = TOP / "docs/examples/host.toml"
BOARD_AT, PROGRAM_AT = Path("/etc/hwtool/board.toml"), Path("/usr/bin/hwtool")
NAME: Final = "name = 'it'\n[buses.b]\n"
KINDS: Final = {
    "serial": ('kind = "modbus-rtu"\npath = "/dev/serial/by-id/x"\n', ["char-ttyUSB", "char-ttyACM"]),
    "serial of its own": ('kind = "modbus-rtu"\npath = "/dev/ttyAMA0"\n', ["/dev/ttyAMA0"]),
    "serial of an i.MX": ('kind = "modbus-rtu"\npath = "/dev/ttymxc2"\n', ["/dev/ttymxc2"]),
    "serial by a link": (
        'kind = "modbus-rtu"\npath = "/dev/serial0"\n',
        ["char-ttyUSB", "char-ttyACM", "char-ttyS", "char-ttyAMA"],
    ),
    "i2c": ('kind = "i2c"\nadapter = "a"\n', ["char-i2c"]),
    "spi": ('kind = "spi"\nadapter = "a"\n', ["char-spi"]),
    "ftdi": ('kind = "ftdi-i2c"\nurl = "ftdi://ftdi:232h:FT1/1"\n', ["char-usb_device"]),
    "simulated": ('kind = "sim"\n', []),
    "network": ('kind = "modbus-tcp"\nhost = "192.0.2.1"\n', []),
}


def board_of(bus: str) -> Board:
    """A board with one bus."""
    return parse_board(NAME + bus, "it.toml", TOP)


def service_of(board: Board) -> str:
    """The service of a board."""
    return units(board, BOARD_AT, PROGRAM_AT)[SERVICE]


@pytest.mark.parametrize(("bus", "wanted"), KINDS.values(), ids=KINDS)
def test_service_when_made_for_a_bus_then_it_may_reach_the_nodes_of_that_and_no_others(
    bus: str, wanted: list[str]
) -> None:
    text = service_of(board_of(bus))
    assert "DevicePolicy=closed" in text
    assert re.findall(r"^DeviceAllow=(.*)$", text, re.MULTILINE) == [f"{node} rw" for node in wanted]
    assert not re.search(r"@[A-Z_]+@", text)


def test_service_when_no_bus_is_on_a_network_then_it_has_none() -> None:
    text = service_of(board_of(KINDS["i2c"][0]))
    assert "PrivateNetwork=yes\n" in text
    assert "RestrictAddressFamilies=AF_UNIX\n" in text
    over_usb = service_of(board_of(KINDS["ftdi"][0]))
    assert "RestrictAddressFamilies=AF_UNIX AF_NETLINK\n" in over_usb
    assert "PrivateNetwork" not in over_usb  # libusb would not hear of an adapter that is back


def test_service_when_a_host_is_on_a_network_then_its_address_and_no_other() -> None:
    text = service_of(board_of(KINDS["network"][0]))
    assert "PrivateNetwork" not in text
    assert "IPAddressDeny=any\nIPAddressAllow=localhost 192.0.2.1\n" in text
    named = service_of(board_of('kind = "modbus-tcp"\nhost = "plc.example"\n'))
    assert "IPAddressDeny" not in named
    assert "Which addresses plc.example has is not known here" in named


def test_service_when_the_board_writes_files_then_their_folders_and_usb_is_given_back() -> None:
    text = service_of(
        board_of('kind = "sim"\nrecord = "/var/log/hwtool/run.jsonl"\n[metrics]\ntextfile = "/srv/x.prom"\n')
    )
    assert "ReadWritePaths=-/var/log/hwtool -/srv\n" in text
    assert "give-back" not in text
    ftdi = service_of(board_of(KINDS["ftdi"][0]))
    assert "ExecStopPost=-/usr/bin/hwtool give-back --store /var/lib/hwtool\n" in ftdi


def test_sockets_when_read_then_each_has_its_own_group() -> None:
    made = units(board_of('kind = "sim"\n'), BOARD_AT, PROGRAM_AT)
    told = {}
    for name in (SOCKET, OPERATOR_SOCKET):
        keys = dict(line.split("=", 1) for line in made[name].splitlines() if "=" in line and not line.startswith("#"))
        told[keys["ListenStream"]] = (keys["FileDescriptorName"], keys["SocketGroup"], keys["SocketMode"])
    assert told == {
        "/run/hwtool/agent.sock": ("agent", "hwtool", "0660"),
        "/run/hwtool/operator.sock": ("operator", "hwtool-operator", "0660"),
    }


@pytest.mark.parametrize(
    ("board", "program", "words"),
    [
        ("board.toml", "/usr/bin/hwtool", "the board board.toml has no absolute path"),
        ("/etc/b.toml", "hwtool", "the program hwtool has no absolute path"),
        ("/home/me/b.toml", "/usr/bin/hwtool", "is /home/me/b.toml, where the service sees nothing"),
        ("/etc/../root/b.toml", "/usr/bin/hwtool", "is /root/b.toml, where the service sees nothing"),
        ("/tmp/b.toml", "/usr/bin/hwtool", "is /tmp/b.toml, where the service sees nothing"),
        ("/etc/my board.toml", "/usr/bin/hwtool", "characters in its path"),
        ("/etc/b%i.toml", "/usr/bin/hwtool", "characters in its path"),
    ],
)
def test_units_when_the_service_could_not_reach_a_file_then_said(board: str, program: str, words: str) -> None:
    with pytest.raises(NoUnit, match=words):
        units(board_of('kind = "sim"\n'), Path(board), Path(program))


def test_units_when_the_interpreter_stands_in_a_home_then_said(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("hwtool.host.units.UNSEEN", ("/root",))  # pytest's own folder may be below /tmp
    program = tmp_path / "hwtool"
    program.write_text("#!/root/python/bin/python3 -I\n")
    with pytest.raises(NoUnit, match=r"the interpreter of .*hwtool is /root/python/bin/python3"):
        units(board_of('kind = "sim"\n'), BOARD_AT, program)


def test_service_when_made_elsewhere_then_what_is_beside_the_board_will_be_beside_it_there(tmp_path: Path) -> None:
    (tmp_path / "here").mkdir()
    text = NAME + 'kind = "sim"\nrecord = "logs/run.jsonl"\n'
    board = parse_board(text, "it.toml", tmp_path / "here")
    made = units(board, Path("/srv/hw/board.toml"), PROGRAM_AT, tmp_path / "here/it.toml")[SERVICE]
    assert "ReadWritePaths=-/srv/hw/logs\n" in made


@pytest.mark.parametrize("host", ["1.2.3", "010.0.0.9", "plc"])
def test_service_when_a_host_is_no_address_then_nothing_is_denied_that_would_be_needed(host: str) -> None:
    assert "IPAddress" not in service_of(board_of(f'kind = "modbus-tcp"\nhost = "{host}"\n'))


def test_golden_files_when_read_then_as_printed() -> None:
    made = units(load_board(EXAMPLE), BOARD_AT, PROGRAM_AT)
    assert set(made) == set(PLACES)
    assert {name: (TOP / "udev" / name).read_text() for name in made} == made


def systemd(tmp_path: Path, board: Board, change: tuple[str, str] = ("", "")) -> Path:
    """The units in a folder, with a program that is there."""
    if shutil.which("systemd-analyze") is None:
        pytest.skip("no systemd-analyze (Debian: systemd)")
    for name, text in units(board, BOARD_AT, Path("/bin/sh")).items():
        (tmp_path / name).write_text(text.replace(*change) if change[0] else text)
    return tmp_path


@pytest.mark.parametrize("bus", [bus for bus, _ in KINDS.values()], ids=KINDS)
def test_systemd_when_it_verifies_the_units_then_it_says_nothing(tmp_path: Path, bus: str) -> None:
    folder = systemd(tmp_path, board_of(bus))
    command = ["systemd-analyze", "verify", *(str(folder / n) for n in (SERVICE, SOCKET, OPERATOR_SOCKET))]
    done = subprocess.run(command, capture_output=True, text=True, check=False, timeout=60)
    assert (done.returncode, done.stderr) == (0, "")


def test_systemd_when_a_key_is_misspelt_then_it_says_so(tmp_path: Path) -> None:
    """The control: that nothing is said means something, though it would exit with 0 all the same."""
    folder = systemd(tmp_path, board_of('kind = "sim"\n'), ("NoNewPrivileges", "NoNewPriviledges"))
    command = ["systemd-analyze", "verify", str(folder / SERVICE)]
    done = subprocess.run(command, capture_output=True, text=True, check=False, timeout=60)
    assert "NoNewPriviledges" in done.stderr


EXPOSURE: Final = dict.fromkeys(KINDS, 12) | {"network": 15}  # tenths; one that is on a network is more exposed


@pytest.mark.parametrize("kind", KINDS)
def test_systemd_when_it_judges_the_service_then_as_little_exposed_as_is_promised(tmp_path: Path, kind: str) -> None:
    folder = systemd(tmp_path, board_of(KINDS[kind][0]))
    command = ["systemd-analyze", "security", "--offline=true", f"--threshold={EXPOSURE[kind]}", str(folder / SERVICE)]
    done = subprocess.run(command, capture_output=True, text=True, check=False, timeout=60)
    assert done.returncode == 0, done.stdout[-300:] + done.stderr


def test_sysusers_when_read_then_the_daemon_is_in_none_of_its_callers_groups(tmp_path: Path) -> None:
    text = units(board_of('kind = "sim"\n'), BOARD_AT, PROGRAM_AT)[SYSUSERS]
    lines = [line.split()[:2] for line in text.splitlines() if not line.startswith("#")]
    assert lines == [["u", "hwtoold"], ["g", "hwtool"], ["g", "hwtool-operator"]]
    if shutil.which("systemd-sysusers") is None:
        pytest.skip("no systemd-sysusers (Debian: systemd)")
    (tmp_path / "root/etc").mkdir(parents=True)
    (tmp_path / "it.conf").write_text(text)
    command = ["systemd-sysusers", f"--root={tmp_path / 'root'}", str(tmp_path / "it.conf")]
    done = subprocess.run(command, capture_output=True, text=True, check=False, timeout=60)
    assert done.returncode == 0, done.stderr
    made = (tmp_path / "root/etc/group").read_text()
    assert {line.partition(":")[0] for line in made.splitlines()} >= {"hwtoold", "hwtool", "hwtool-operator"}
