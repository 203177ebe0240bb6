"""systemd units for a board: what the service may reach is what the board's buses need, and no more. Text alone.

The templates stand beside this file; what depends on the board takes the place of @NAMES@ in them.

Source: systemd.exec(5), systemd.resource-control(5) (DevicePolicy=, DeviceAllow=), systemd.socket(5), sysusers.d(5).
"""

from __future__ import annotations

import ipaddress
import os
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
UNSEEN: Final = ("/home", "/root", "/run/user", "/tmp", "/var/tmp")  # ProtectHome, PrivateTmp
LINKED: Final = ("char-ttyUSB", "char-ttyACM", "char-ttyS", "char-ttyAMA")  # what a link may lead to
MODULES: Final = {"i2c": ("i2c-dev",), "spi": ("spidev",), "modbus-rtu": ("usbserial", "cdc-acm")}
PLACEHOLDER: Final = re.compile(r"^@([A-Z_]+)@\n|@([A-Z_]+)@", re.MULTILINE)


class NoUnit(ValueError):
    """Something that no unit can be written for; one sentence."""


def units(board: Board, board_at: Path, program: Path, loaded_from: Path | None = None) -> dict[str, str]:
    """The text of each file by its name; `PLACES` tells where it goes.

    Args:
        board_at, program: the board's file and hwtool, as the service will find them: absolute.
        loaded_from: where the board's file is now, if that is another place: files beside it will be beside `board_at`.

    Raises:
        NoUnit: the service could not reach one of them.
    """
    board_at, program = _reached("board", board_at), _reached("program", program)
    interpreter = _interpreter(program)
    if interpreter is not None:
        _reached(f"interpreter of {program}", interpreter)
    nodes = [f"DeviceAllow={node} rw" for node in devices(board)]
    words = {
        "PROGRAM": str(program),
        "BOARD": str(board_at),
        "MODULES": "\n".join(_modules(board)),
        "DEVICES": "\n".join(nodes or ["# No bus of this board has a node."]),
        "NETWORK": "\n".join(_network(board)),
        "WRITABLE": "\n".join(_writable(board, board_at, loaded_from or board_at)),
        "GIVE_BACK": "\n".join(_give_back(board, program)),
    }
    return {name: _filled(name, words) for name in PLACES}


def _reached(what: str, path: Path) -> Path:
    """A path as a unit can say it, and the service can see it.

    Raises:
        NoUnit: it is neither.
    """
    if not path.is_absolute():
        raise NoUnit(f"the {what} {path} has no absolute path")
    plain = Path(os.path.normpath(path))
    if any(plain.is_relative_to(unseen) for unseen in UNSEEN):
        told = "where the service sees nothing (ProtectHome, PrivateTmp): put it elsewhere"
        raise NoUnit(f"the {what} is {plain}, {told}")
    if re.search(r"[\s%$\"'\\]", str(plain)):
        raise NoUnit(f"the {what} {plain!s:.200} has characters in its path that a unit takes for its own")
    return plain


def _interpreter(program: Path) -> Path | None:
    """What runs a script, links followed; None if that cannot be seen from here."""
    try:
        with program.open("rb") as file:
            head = file.readline(512)
    except OSError:
        return None
    if not head.startswith(b"#!"):
        return None
    words = head[2:].split()
    return Path(os.fsdecode(words[0])).resolve() if words else None


def _modules(board: Board) -> Iterator[str]:
    """The kernel's modules that make the classes of nodes: a class that is not there yet is allowed to nobody."""
    names = dict.fromkeys(name for bus in board.buses.values() for name in MODULES.get(bus.kind, ()))
    if names:
        made = " ".join(f"modprobe@{name.replace('-', '_')}.service" for name in names)
        yield f"Wants={made}"
        yield f"After={made}"


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
        if bus.kind == "modbus-rtu" and re.fullmatch(r"/dev/tty\w+", path):
            found.append(path)
        elif bus.kind == "modbus-rtu" and not path.startswith("/dev/serial/by-id/"):
            found += LINKED
        else:
            found += CLASSES.get(bus.kind, ())
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
    numbers = [host for host in hosts if _is_address(host)]
    if len(numbers) == len(hosts):
        yield "# Modbus TCP, or metrics that are served: these addresses and no others."
        yield "IPAddressDeny=any"
        yield f"IPAddressAllow={' '.join(['localhost', *dict.fromkeys(numbers)])}"
    else:
        named = ", ".join(host for host in hosts if host not in numbers)
        yield f"# Which addresses {named} has is not known here: the service may reach every one."
    yield f"RestrictAddressFamilies={' '.join([*families, 'AF_INET', 'AF_INET6'])}"


def _is_address(host: str) -> bool:
    try:
        ipaddress.ip_address(host)
    except ValueError:
        return False
    return True


def _writable(board: Board, board_at: Path, loaded_from: Path) -> Iterator[str]:
    """Folders beside the store that the board has it write to; one that is not there is no reason not to start."""
    files = [bus.record for bus in board.buses.values() if bus.record is not None]
    if board.metrics is not None and board.metrics.textfile is not None:
        files.append(board.metrics.textfile)
    beside = Path(os.path.abspath(loaded_from.parent))  # noqa: PTH100  # as it was loaded, links kept
    folders = []
    for file in files:
        whole = Path(os.path.abspath(file))  # noqa: PTH100
        moved = board_at.parent / whole.relative_to(beside) if whole.is_relative_to(beside) else whole
        folders.append(_reached("folder of a record or of metrics", moved.parent))
    if folders:
        yield "ReadWritePaths=" + " ".join(f"-{folder}" for folder in dict.fromkeys(folders))


def _give_back(board: Board, program: Path) -> Iterator[str]:
    """Interfaces of USB adapters go back to their kernel drivers, also where the daemon was killed."""
    if any(_over_usb(bus) for bus in board.buses.values()):
        yield f"ExecStopPost=-{program} give-back --store /var/lib/hwtool"


def _over_usb(bus: BusSpec) -> bool:
    return bus.kind in OVER_USB
