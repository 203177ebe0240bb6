"""Which /dev/i2c-N an adapter is today, and which kernel driver owns an address; as sysfs tells. Touches no wire.

The number of an adapter depends on the order in which drivers were loaded; its name does not.

Source: Linux Documentation/i2c/dev-interface.rst (the name in sysfs), Documentation/i2c/i2c-sysfs.rst.
"""

from __future__ import annotations

from pathlib import Path
from typing import Final

from hwtool_registers.buses.names import called

SYSFS: Final = Path("/sys")
DEV: Final = Path("/dev")


def adapters(sysfs: Path = SYSFS) -> dict[str, str]:
    """The name of each adapter by its node's, i2c-N; empty where the kernel has no i2c-dev."""
    found = {}
    for entry in sorted((sysfs / "class/i2c-dev").glob("i2c-*"), key=lambda p: (len(p.name), p.name)):
        try:
            found[entry.name] = (entry / "name").read_text(encoding="utf-8").strip()
        except OSError:
            continue  # it is going just now
    return found


def node_of(name: str, sysfs: Path = SYSFS, dev: Path = DEV) -> Path:
    """The node of the adapter of this name.

    Raises:
        OSError: ENODEV, there is none; ENOTUNIQ, there are several.
    """
    return dev / called(name, adapters(sysfs), "i2c adapter", "none (is the module i2c-dev loaded?)")


def name_of(node: Path, sysfs: Path = SYSFS) -> str:
    """The name of the adapter behind a node or a link to it; empty if sysfs does not tell."""
    return adapters(sysfs).get(node.resolve().name, "")


def owner_of(node: Path, address: int, sysfs: Path = SYSFS) -> str | None:
    """The kernel driver that owns an address of the adapter behind a node, None if nobody does."""
    number = node.resolve().name.removeprefix("i2c-")
    driver = sysfs / "bus/i2c/devices" / f"{number}-{address:04x}" / "driver"
    try:
        return driver.resolve(strict=True).name
    except OSError:
        return None
