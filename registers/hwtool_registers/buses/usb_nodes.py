"""Whether a node belongs to a USB device, and which enumeration of it this is; as sysfs tells. Touches no wire.

The kernel gives a USB device a new number on its bus each time it is enumerated: after a loss of power, an unplug. A
device that is the USB device itself (not one behind an adapter, with a supply of its own) has restarted then.

Source: Linux Documentation/ABI/stable/sysfs-bus-usb (busnum, devnum) and Documentation/ABI/testing/sysfs-dev.
"""

from __future__ import annotations

import os
from pathlib import Path
from typing import Final

SYSFS: Final = Path("/sys")


def enumeration_of(node: Path, sysfs: Path = SYSFS) -> str | None:
    """Bus and number of the USB device behind a node, as `3-17`; None if there is none, or the node is gone."""
    try:
        told = node.stat().st_rdev
        place = (sysfs / "dev/char" / f"{os.major(told)}:{os.minor(told)}").resolve(strict=True)
    except OSError:
        return None
    for above in (place, *place.parents):
        try:
            return f"{_number(above / 'busnum')}-{_number(above / 'devnum')}"
        except (OSError, ValueError):
            continue
    return None


def _number(path: Path) -> int:
    return int(path.read_text(encoding="ascii"))
