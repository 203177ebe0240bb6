"""USB devices: behind a node, of a kind, with whose driver, and who has them open; as sysfs and /proc tell. No wire.

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


def usb_device(bus: int, number: int, sysfs: Path = SYSFS) -> Path | None:
    """Where sysfs shows the USB device with this number on this bus; None if it does not."""
    for place in sorted((sysfs / "bus/usb/devices").glob("*")):
        try:
            if (_number(place / "busnum"), _number(place / "devnum")) == (bus, number):
                return place
        except (OSError, ValueError):
            continue  # an interface, or it is going just now
    return None


def driver_of(device: Path, interface: int) -> str | None:
    """The driver of an interface, counted from 0, of a USB device; `usbfs`: a program has it. None: nobody has."""
    for place in device.glob(f"{device.name}:*.{interface}"):
        try:
            return (place / "driver").resolve(strict=True).name
        except OSError:
            continue
    return None


def holders_of(node: Path, proc: Path = Path("/proc")) -> list[str]:
    """The programs that have a node open, as `NAME (pid N)`, but for this one, as far as may be seen."""
    found = []
    for process in proc.glob("[0-9]*"):
        if process.name == str(os.getpid()):
            continue
        try:
            if any(str(handle.readlink()) == str(node) for handle in (process / "fd").iterdir()):
                found.append(f"{(process / 'comm').read_text(encoding='utf-8').strip()} (pid {process.name})")
        except OSError:
            continue  # another user's, or it has ended
    return sorted(found)


def usb_devices(vendor: int, product: int, sysfs: Path = SYSFS) -> list[tuple[str, Path, Path]]:
    """The USB devices of a kind that are plugged in: serial number, node, and where sysfs shows it."""
    found = []
    for place in sorted((sysfs / "bus/usb/devices").glob("*")):
        try:
            told = tuple(int((place / name).read_text(encoding="ascii"), 16) for name in ("idVendor", "idProduct"))
            if told != (vendor, product):
                continue
            node = Path("/dev/bus/usb") / f"{_number(place / 'busnum'):03}" / f"{_number(place / 'devnum'):03}"
            serial = place / "serial"
            found.append((serial.read_text(encoding="utf-8").strip() if serial.exists() else "", node, place))
        except (OSError, ValueError):
            continue  # an interface, or it is going just now
    return found
