"""systemd units for a board: what the service may reach is what the board's buses need, and no more. Text alone.

The templates stand beside this file; what depends on the board takes the place of @NAMES@ in them.

Source: systemd.exec(5), systemd.resource-control(5) (DevicePolicy=, DeviceAllow=), systemd.socket(5), sysusers.d(5).
"""

from __future__ import annotations

import re
from collections.abc import Iterator
from importlib import resources
from pathlib import Path
from typing import Final

from hwtool.board_buses import OVER_USB, BusSpec
from hwtool.config import Board

SOCKET, OPERATOR_SOCKET, SERVICE = "hwtoold.socket", "hwtoold-operator.socket", "hwtoold.service"
SYSUSERS: Final = "hwtool.conf"
PLACES: Final = {
    SOCKET: "/etc/systemd/system",
    OPERATOR_SOCKET: "/etc/systemd/system",
    SERVICE: "/etc/systemd/system",
    SYSUSERS: "/etc/sysusers.d",
}
CLASSES: Final = {
    # of character devices, as /proc/devices calls them
    "modbus-rtu": ("char-ttyUSB", "char-ttyACM"),
    "i2c": ("char-i2c",),
    "spi": ("char-spi",),
    "ftdi-i2c": ("char-usb_device",),
    "ftdi-spi": ("char-usb_device",),
}
HOMES: Final = ("/home", "/root", "/run/user")
PLACEHOLDER: Final = re.compile(r"^@([A-Z_]+)@\n|@([A-Z_]+)@", re.MULTILINE)


class NoUnit(ValueError):
    """Something that no unit can be written for; one sentence."""


def units(board: Board, board_file: Path, program: Path) -> dict[str, str]:
    """The text of each file by its name; `PLACES` tells where it goes.

    Args:
        board_file, program: as the service will find them: absolute.

    Raises:
        NoUnit: the service could not reach one of them.
    """
    for what, path in (("board", board_file), ("program", program)):
        if not path.is_absolute():
            raise NoUnit(f"the {what} {path} has no absolute path")
        if str(path).startswith(HOMES):
            told = "is in a home, where the service sees nothing (ProtectHome): put it elsewhere"
            raise NoUnit(f"the {what} {path} {told}")
        if re.search(r"[\s%$\"'\\]", str(path)):
            raise NoUnit(f"the {what} {path!s:.200} has characters in its path that a unit takes for its own")
    nodes = [f"DeviceAllow={node} rw" for node in devices(board)]
    words = {
        "PROGRAM": str(program),
        "BOARD": str(board_file),
        "DEVICES": "\n".join(nodes or ["# No bus of this board has a node."]),
        "NETWORK": "\n".join(_network(board)),
        "WRITABLE": "\n".join(_writable(board)),
        "GIVE_BACK": "\n".join(_give_back(board, program)),
    }
    return {name: _filled(name, words) for name in PLACES}


def _filled(name: str, words: dict[str, str]) -> str:
    template = (resources.files("hwtool.host") / "templates" / name).read_text(encoding="utf-8")

    def word(found: re.Match[str]) -> str:
        if found[1] is None:
            return words[found[2]]
        return words[found[1]] + "\n" if words[found[1]] else ""

    return PLACEHOLDER.sub(word, template)


def devices(board: Board) -> list[str]:
    """The classes of nodes that the buses of a board need; a serial port of the board's own, by its name."""
    found: list[str] = []
    for bus in board.buses.values():
        path = bus.path or ""
        own = bus.kind == "modbus-rtu" and re.fullmatch(r"/dev/tty[A-Z]+\d+", path) is not None
        found += [path] if own else CLASSES.get(bus.kind, ())
    return list(dict.fromkeys(found))


def _network(board: Board) -> Iterator[str]:
    """A network of its own where the board needs none; else the addresses of its hosts, where they are numbers."""
    hosts = [bus.host for bus in board.buses.values() if bus.host is not None]
    over_usb = any(_over_usb(bus) for bus in board.buses.values())
    families = ["AF_UNIX", "AF_NETLINK"] if over_usb else ["AF_UNIX"]
    serves = board.metrics is not None and board.metrics.port is not None
    if not hosts and not serves:
        yield "# No bus of this board is on a network, and the service has none."
        if over_usb:
            yield "# Of adapters that come back, libusb hears from udev, in the namespace of the host alone."
        else:
            yield "PrivateNetwork=yes"
        yield "IPAddressDeny=any"
        yield f"RestrictAddressFamilies={' '.join(families)}"
        return
    numbers = [host for host in hosts if re.fullmatch(r"[0-9.]+|[0-9a-fA-F:]*:[0-9a-fA-F:.]*", host)]
    yield "# Modbus TCP, or metrics that are served: these addresses and no others."
    if len(numbers) == len(hosts):
        yield "IPAddressDeny=any"
        yield f"IPAddressAllow={' '.join(['localhost', *dict.fromkeys(numbers)])}"
    else:
        yield "# A host of the board is named and not numbered: which address it has is not known here."
    yield f"RestrictAddressFamilies={' '.join([*families, 'AF_INET', 'AF_INET6'])}"


def _writable(board: Board) -> Iterator[str]:
    """Folders beside the store that the board has it write to."""
    files = [bus.record for bus in board.buses.values() if bus.record is not None]
    if board.metrics is not None and board.metrics.textfile is not None:
        files.append(board.metrics.textfile)
    folders = dict.fromkeys(str(file.resolve().parent) for file in files)
    if folders:
        yield f"ReadWritePaths={' '.join(folders)}"


def _give_back(board: Board, program: Path) -> Iterator[str]:
    """Interfaces of USB adapters go back to their kernel drivers, also where the daemon was killed."""
    if any(_over_usb(bus) for bus in board.buses.values()):
        yield f"ExecStopPost=-{program} give-back --store /var/lib/hwtool"


def _over_usb(bus: BusSpec) -> bool:
    return bus.kind in OVER_USB
