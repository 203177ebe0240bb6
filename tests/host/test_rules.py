"""Rules of udev: what is printed for a board, line by line, and what udev itself says of it."""

from __future__ import annotations

import re
import shutil
import subprocess
from pathlib import Path
from typing import Final

import pytest

from hwtool.config import load_board, parse_board
from hwtool.host import rules
from hwtool.host.rules import NoRule, classes, local

TOP: Final = Path(__file__).parents[2]
EXAMPLE: Final = TOP / "docs/examples/host.toml"
NAME: Final = "name = 'it'\n"
ACTION: Final = re.compile(r'(?:[A-Z]+(?:\{[A-Za-z_]+\})?)(=|\+=|:=|-=)"')
LINES: Final = {
    "serial, by serial number": (
        'kind = "modbus-rtu"\npath = "/dev/serial/by-id/usb-FTDI_X-if00-port0"\n',
        ['SUBSYSTEM=="tty", SYMLINK=="serial/by-id/usb-FTDI_X-if00-port0"'],
    ),
    "serial, by path": (
        'kind = "modbus-rtu"\npath = "/dev/serial/by-path/pci-0000:00:14.0-usb-0:1:1.0-port0"\n',
        ['SUBSYSTEM=="tty", SYMLINK=="serial/by-path/pci-0000:00:14.0-usb-0:1:1.0-port0"'],
    ),
    "serial, of the board's own": (
        'kind = "modbus-rtu"\npath = "/dev/ttyAMA0"\n',
        ['SUBSYSTEM=="tty", KERNEL=="ttyAMA0"'],
    ),
    "serial, of an i.MX": (
        'kind = "modbus-rtu"\npath = "/dev/ttymxc2"\n',
        ['SUBSYSTEM=="tty", KERNEL=="ttymxc2"'],
    ),
    "a name with patterns in it": (
        'kind = "modbus-rtu"\npath = "/dev/serial/by-id/usb-a[1]*b?c"\n',
        ['SUBSYSTEM=="tty", SYMLINK=="serial/by-id/usb-a[[]1][*]b[?]c"'],
    ),
    "i2c, by name": (
        'kind = "i2c"\nadapter = "SMBus I801 adapter at efa0"\n',
        ['SUBSYSTEM=="i2c-dev", ATTR{name}=="SMBus I801 adapter at efa0"'],
    ),
    "i2c, by link": (
        'kind = "i2c"\npath = "/dev/i2c-sensors"\n',
        ['SUBSYSTEM=="i2c-dev", SYMLINK=="i2c-sensors"'],
    ),
    "ftdi": (
        'kind = "ftdi-spi"\nurl = "ftdi://ftdi:2232h:FT9/2"\n',
        [
            'SUBSYSTEM=="usb", ENV{DEVTYPE}=="usb_device", ATTR{idVendor}=="0403", ATTR{idProduct}=="6010", '
            'ATTR{serial}=="FT9"'
        ],
    ),
    "network": ('kind = "modbus-tcp"\nhost = "192.0.2.1"\n', []),
    "simulated": ('kind = "sim"\n', []),
}


@pytest.mark.parametrize(("bus", "wanted"), LINES.values(), ids=LINES)
def test_rules_when_a_bus_has_a_node_then_two_lines_with_one_action_each(bus: str, wanted: list[str]) -> None:
    text = local(parse_board(f"{NAME}[buses.b]\n{bus}", "it.toml", TOP), "it.toml")
    lines = [line for line in text.splitlines() if line and not line.startswith("#")]
    assert lines == [f"{match}, {act}" for match in wanted for act in ('GROUP="hwtoold"', 'MODE="0660"')]


def test_rules_when_spi_then_one_chip_select_each_by_name_and_by_path() -> None:
    flash = "".join(f"[devices.f{n}]\ncontract = 'w25q128'\nbus = 'b'\naddress = {n}\n" for n in (0, 2))
    for named, wanted in (
        ("adapter = 'a.spi'", 'SUBSYSTEM=="spidev", KERNEL=="spidev*.{}", KERNELS=="a.spi"'),
        ("path = '/dev/panel'", 'SUBSYSTEM=="spidev", SYMLINK=="panel.{}"'),
    ):
        board = parse_board(f"{NAME}[buses.b]\nkind = 'spi'\n{named}\n{flash}", "it.toml", TOP)
        text = local(board, "it.toml")
        assert [line for line in text.splitlines() if line.endswith('MODE="0660"')] == [
            f'{wanted.format(n)}, MODE="0660"' for n in (0, 2)
        ]


@pytest.mark.parametrize("bus", ['path = "/run/line"', 'path = "/dev/serial/by-id/a\\"b"', 'path = "/dev"'])
def test_rules_when_no_rule_can_find_a_node_then_said(bus: str) -> None:
    board = parse_board(f'{NAME}[buses.b]\nkind = "modbus-rtu"\n{bus}\n', "it.toml", TOP)
    with pytest.raises(NoRule):
        local(board, "it.toml")


@pytest.mark.parametrize("group", ['a", RUN+="/bin/x', "", "Two Words"])
def test_rules_when_a_group_is_no_name_then_said(group: str) -> None:
    with pytest.raises(NoRule, match="no name of a group"):
        local(load_board(EXAMPLE), "it.toml", group)


def all_lines() -> list[str]:
    """Every line of the rules that does something."""
    text = classes() + local(load_board(EXAMPLE), "host.toml")
    return [line for line in text.splitlines() if line and not line.startswith("#")]


def test_rules_when_read_then_one_action_a_line_and_nobody_is_granted_anything_by_vendor_or_by_sitting_there() -> None:
    assert len(all_lines()) > 10
    for line in all_lines():
        assert len(ACTION.findall(line)) == 1, line
        assert "uaccess" not in line
        assert "TAG" not in line
        if 'GROUP="' in line or 'MODE="' in line:
            assert "serial" in line or "name" in line or "KERNELS" in line, line


def test_classes_when_read_then_nothing_is_granted() -> None:
    assert not re.search(r"\b(GROUP|MODE|OWNER|TAG|RUN|SECLABEL)\b", re.sub(r"#.*", "", classes()))


def test_golden_files_when_read_then_as_printed() -> None:
    assert (TOP / "udev/60-hwtool.rules").read_text() == classes()
    assert (TOP / "udev/72-hwtool-local.rules").read_text() == local(load_board(EXAMPLE), EXAMPLE.name)


BROKEN: Final = 'SUBSYSTEM=="i2c-dev", GRUOP="hwtoold"\n'


def complaints(folder: Path, texts: dict[str, str]) -> list[str]:
    """What udev says of rules of these names, read in a mount namespace where it sees them in place of the host's."""
    for name, text in texts.items():
        (folder / name).write_text(text)
    inside = (
        'mkdir -p /run/udev/rules.d && mount --bind "$0" /run/udev/rules.d && exec udevadm test /sys/class/mem/null'
    )
    command = ["unshare", "--mount", "sh", "-c", inside, str(folder)]
    done = subprocess.run(command, capture_output=True, text=True, check=False, timeout=60)
    said = (done.stdout + done.stderr).splitlines()
    assert any("60-hwtool.rules" in line for line in said), said  # it has read them
    return [line for line in said if re.search(r"hwtool.*\.rules:\d+", line) and "Reading rules" not in line]


def test_udev_when_it_reads_the_rules_then_no_complaint(tmp_path: Path) -> None:
    why = None
    if shutil.which("udevadm") is None or shutil.which("unshare") is None:
        why = "no udevadm (Debian: udev) or unshare"
    elif subprocess.run(["unshare", "--mount", "true"], capture_output=True, check=False).returncode:
        why = "no mount namespace may be made here"
    elif not Path("/sys/class/mem/null").exists():
        why = "no /sys here"
    if why is not None:
        pytest.skip(why)
    shown = local(load_board(EXAMPLE), "host.toml", "root")  # a group that is here: of another one udev would complain
    assert complaints(tmp_path, {rules.CLASSES: classes(), rules.LOCAL: shown}) == []
    assert complaints(tmp_path, {rules.CLASSES: classes(), rules.LOCAL: BROKEN})  # the control
