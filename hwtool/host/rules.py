"""udev rules for the nodes of a board: each by its serial number, path or adapter's name, and nothing else. Text alone.

Rules
- One action a line. A line that matches nothing does nothing; none matches by vendor alone, and none hands a node to
  whoever sits at the host (uaccess).
- The nodes belong to the daemon's own group, in which no agent is: who may connect to the daemon may not go past it.
- A link that other rules made is matched as such (SYMLINK): those of udev's own rules stand in 60-serial.rules.

Source: udev(7): match keys SUBSYSTEM, KERNEL, KERNELS, ATTR, ENV, SYMLINK; patterns.
"""

from __future__ import annotations

import re
from collections.abc import Iterator
from importlib import resources
from pathlib import PurePosixPath
from typing import Final

from hwtool.board_buses import BusSpec
from hwtool.config import Board
from hwtool_registers.buses.ftdi_url import VENDOR_ID

GROUP: Final = "hwtoold"
MODE: Final = "0660"
CLASSES: Final = "60-hwtool.rules"
LOCAL: Final = "72-hwtool-local.rules"
PLACE: Final = "/etc/udev/rules.d"
RELOAD: Final = (
    "udevadm control --reload",
    "udevadm trigger --settle --subsystem-match=tty --subsystem-match=i2c-dev --subsystem-match=spidev "
    "--subsystem-match=usb",
)
SPECIAL: Final = {"*": "[*]", "?": "[?]", "[": "[[]", "|": "?", "\\": "?"}
GROUP_NAME: Final = re.compile(r"[a-z_][a-z0-9_-]{0,31}")
UNSAYABLE: Final = re.compile(r'["\x00-\x1f]')


class NoRule(ValueError):
    """A node that no rule can be written for; one sentence."""


def classes() -> str:
    """60-hwtool.rules: tells what is what, and grants nothing."""
    return (resources.files("hwtool.host") / "templates" / CLASSES).read_text(encoding="utf-8")


def local(board: Board, file: str, group: str = GROUP) -> str:
    """72-hwtool-local.rules of a board.

    Args:
        file: of the board, for the head.
        group: that the nodes get.

    Raises:
        NoRule: a name cannot stand in a rule.
    """
    if not GROUP_NAME.fullmatch(group):
        raise NoRule(f"{group!r} is no name of a group")
    lines = [
        f"# Made by `hwtool udev` for board {board.name!r} ({_comment(file)}): make it again when the board changes.",
        f"# The nodes of its buses go to the group {group}, which is the daemon's; agents are not in it.",
    ]
    for bus in board.buses.values():
        try:
            matches = list(matches_of(bus, board))
        except NoRule as error:
            raise NoRule(f"buses.{bus.name}: {error}") from error
        if matches:
            lines += ["", f"# bus {bus.name}, {bus.kind}"]
        for match in matches:
            lines += [f'{match}, GROUP="{group}"', f'{match}, MODE="{MODE}"']
    if not any(line.startswith("SUBSYSTEM") for line in lines):
        lines += ["", "# No bus of this board has a node."]
    return "\n".join(lines) + "\n"


def matches_of(bus: BusSpec, board: Board) -> Iterator[str]:
    """What finds the nodes of a bus; nothing for one without nodes.

    Raises:
        NoRule: a name cannot stand in a rule.
    """
    match bus.kind:
        case "modbus-rtu":
            yield f'SUBSYSTEM=="tty", {_node(bus.path or "")}'
        case "i2c" if bus.adapter is not None:
            yield f'SUBSYSTEM=="i2c-dev", ATTR{{name}}=="{_plain(bus.adapter)}"'
        case "i2c":
            yield f'SUBSYSTEM=="i2c-dev", {_node(bus.path or "")}'
        case "spi":
            for chip_select in sorted({d.address for d in board.devices.values() if d.bus == bus.name}):
                if bus.adapter is not None:
                    kernel = f'KERNEL=="spidev*.{chip_select}", KERNELS=="{_plain(bus.adapter)}"'
                else:
                    kernel = _node(f"{bus.path}.{chip_select}")
                yield f'SUBSYSTEM=="spidev", {kernel}'
        case "ftdi-i2c" | "ftdi-spi" if bus.url is not None:
            ids = f'ATTR{{idVendor}}=="{VENDOR_ID:04x}", ATTR{{idProduct}}=="{bus.url.product_id:04x}"'
            yield f'SUBSYSTEM=="usb", ENV{{DEVTYPE}}=="usb_device", {ids}, ATTR{{serial}}=="{_plain(bus.url.serial)}"'
        case _:
            return


def _node(path: str) -> str:
    """The match of a node by a name that stays: a link of udev's, or what the kernel calls it."""
    place = PurePosixPath(path)
    if place.parts[:2] != ("/", "dev") or len(place.parts) < 3:
        raise NoRule(f"{path} is not below /dev: no rule of udev finds it")
    below = "/".join(place.parts[2:])
    kernel = len(place.parts) == 3 and re.fullmatch(r"tty\w+", below) is not None
    return f'{"KERNEL" if kernel else "SYMLINK"}=="{_plain(below)}"'


def _comment(text: str) -> str:
    """Text that ends no line."""
    return "".join(character if character.isprintable() else "?" for character in text)


def _plain(text: str) -> str:
    """Text as a pattern that matches it: what patterns take for their own is put in brackets, or stands for any one.

    Raises:
        NoRule: it cannot stand between quotes.
    """
    if UNSAYABLE.search(text):
        raise NoRule(f"{text!r} cannot stand in a rule of udev")
    return "".join(SPECIAL.get(character, character) for character in text)
