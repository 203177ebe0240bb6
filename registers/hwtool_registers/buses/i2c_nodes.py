"""Which /dev/i2c-N an adapter is today, and which kernel driver owns an address; as sysfs tells. Touches no wire.

The number of an adapter depends on the order in which drivers were loaded; its name does not.

Source: Linux Documentation/i2c/dev-interface.rst (the name in sysfs), Documentation/i2c/i2c-sysfs.rst.
"""

from __future__ import annotations

import errno
from pathlib import Path
from typing import Final

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
    there = adapters(sysfs)
    nodes = [node for node, told in there.items() if told == name]
    if not nodes:
        listed = "; ".join(sorted(set(there.values()))) or "none (is the module i2c-dev loaded?)"
        raise OSError(errno.ENODEV, f"no i2c adapter is called {name!r}; there are: {listed}")
    if len(nodes) > 1:
        told = f"{len(nodes)} i2c adapters are called {name!r} ({', '.join(nodes)}): name a path that udev keeps stable"
        raise OSError(errno.ENOTUNIQ, told)
    return dev / nodes[0]


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
