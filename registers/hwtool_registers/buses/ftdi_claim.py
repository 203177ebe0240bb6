"""One interface of an FTDI adapter, taken from its kernel driver and given back: on close, and after a crash.

Rules
- Only the interface that is wanted is detached and claimed; the others of the chip, and their ports, stay with whom
  they are. It is claimed before anything but its serial number is asked of it: a claim that fails has disturbed nobody.
- Before a kernel driver is detached a note is written: a process that dies cannot give back. The next one that claims
  the interface gives it back when it closes; one that nobody claims any more is given back by `give_back_left`.
- A driver that was not there is not bound.
- An adapter is looked for by what sysfs says of its serial number; only where that says nothing is it asked itself.
- Three errors, told apart: EBUSY, another program or a driver that cannot be detached has it, and who; EACCES, it is
  there and may not be opened; ENODEV, it is not there, and what is.

What happens on the wires when the interface is claimed: nothing.

Source: PyUSB docs/tutorial.rst; libusb, libusb_detach_kernel_driver; pyftdi, Ftdi.open_from_device, which detaches and
speaks to the device before anybody has claimed it.
"""

from __future__ import annotations

import contextlib
import errno
import json
from collections.abc import Collection, Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Final

import usb.control
import usb.core
import usb.util
from pyftdi.usbtools import UsbTools

from hwtool_registers.buses.ftdi_url import VENDOR_ID, FtdiUrl, parse_url
from hwtool_registers.buses.usb_nodes import SYSFS, driver_of, holders_of, usb_device, usb_devices

NODES: Final = Path("/dev/bus/usb")
SUFFIX: Final = ".taken"
FORBIDDEN: Final = frozenset({errno.EACCES, errno.EPERM})
BOOT_ID: Final = Path("/proc/sys/kernel/random/boot_id")


@dataclass
class Claim:
    """An interface that is ours.

    Attributes:
        device: PyUSB's device.
        number: of the interface, from 0 on.
        took: whether a kernel driver was detached for it, by this process or one that died.
        note: the file that says so.
    """

    device: Any
    number: int
    took: bool
    note: Path | None

    @property
    def node(self) -> Path:
        """The node of the whole adapter."""
        return node_of(self.device)

    def give_back(self) -> bool:
        """Release it, and have the kernel driver back that was detached; an adapter that is gone is let go.

        Returns:
            Whether nothing is left to be given back; else the note stays.
        """
        with contextlib.suppress(usb.core.USBError):
            usb.util.release_interface(self.device, self.number)
        done = not self.took or self._attached()
        if done and self.note is not None:
            self.note.unlink(missing_ok=True)
        usb.util.dispose_resources(self.device)
        return done

    def _attached(self) -> bool:
        try:
            self.device.attach_kernel_driver(self.number)
        except usb.core.USBError as error:
            return error.errno in (errno.ENODEV, errno.ENOENT)  # the kernel binds what it finds when it comes back
        return True


def node_of(device: Any) -> Path:
    """The node of an adapter."""
    return NODES / f"{device.bus:03}" / f"{device.address:03}"


def claimed(url: FtdiUrl, notes: Path | None = None, sysfs: Path = SYSFS) -> Claim:
    """Find the adapter, detach the interface's kernel driver, and claim it.

    Args:
        notes: a directory for the note of what was detached; it may not exist yet.

    Raises:
        OSError: ENODEV, EACCES or EBUSY, as above; ENOSYS, there is no libusb.
    """
    device = _found(url, sysfs)
    number = url.interface - 1
    note = None if notes is None else notes / f"ftdi-{url.serial}-{url.interface}{SUFFIX}"
    claim = Claim(device, number, note is not None and _read_note(note) == url, note)
    try:
        if device.is_kernel_driver_active(number):
            _write_note(note, url)
            device.detach_kernel_driver(number)
            claim.took = True
        usb.util.claim_interface(device, number)
    except BaseException as error:
        claim.give_back()  # refused where somebody has it: the note, which may be theirs, stays
        if isinstance(error, usb.core.USBError):
            raise _refused(url, device, error, sysfs) from error
        raise
    return claim


def has_libusb() -> bool:
    """Whether there is what reaches a USB device at all."""
    try:
        return UsbTools.find_backend() is not None
    except ValueError:
        return False


def give_back_left(notes: Path, wanted: Collection[FtdiUrl] = ()) -> list[str]:
    """Have kernel drivers back that processes had detached which died; of `wanted` interfaces they are left.

    Returns:
        A sentence for each.
    """
    told = []
    for note in sorted(notes.glob(f"ftdi-*{SUFFIX}")):
        url = _read_note(note)
        if url is None:
            note.unlink(missing_ok=True)
        if url is None or url in wanted:
            continue
        try:
            claim = claimed(url, notes)
        except OSError as error:
            told.append(f"{url}: not given back: {error.strerror}")
            if error.errno == errno.ENODEV:
                note.unlink(missing_ok=True)  # it is gone: whoever plugs it in finds it bound
            continue
        done = claim.give_back()
        told.append(f"{url}: given back to its kernel driver" if done else f"{url}: not given back: it was refused")
    return told


def left_taken(notes: Path) -> list[FtdiUrl]:
    """The interfaces that notes of this boot are about: taken from their kernel drivers, and not given back yet."""
    found = (_read_note(note) for note in sorted(notes.glob(f"ftdi-*{SUFFIX}")))
    return [url for url in found if url is not None]


def _write_note(note: Path | None, url: FtdiUrl) -> None:
    """Before the driver is detached; it need outlast this process only: a host that starts anew binds everything."""
    if note is None:
        return
    note.parent.mkdir(parents=True, exist_ok=True)
    half = note.with_suffix(".half")
    half.write_text(json.dumps({"url": str(url), "boot": _boot_id()}), encoding="utf-8")
    half.replace(note)  # whole or not at all, for whoever looks


def _read_note(note: Path) -> FtdiUrl | None:
    """Which interface a note is about; None: there is none, or it is of an earlier boot, and the kernel binds anew."""
    try:
        told = json.loads(note.read_text(encoding="utf-8"))
        return parse_url(told["url"]) if told["boot"] == _boot_id() else None
    except (OSError, ValueError, KeyError, TypeError):
        return None


def _boot_id() -> str:
    return BOOT_ID.read_text(encoding="ascii").strip()


def _found(url: FtdiUrl, sysfs: Path) -> Any:
    """The adapter with this serial number; nothing is detached, and no other is opened of which sysfs says another one.

    Raises:
        OSError: ENODEV, ENOTUNIQ, EACCES, ENOSYS.
    """
    try:
        backend = UsbTools.find_backend()
    except ValueError as error:
        raise OSError(errno.ENOSYS, "no libusb-1.0 on this host: install it (Debian: libusb-1.0-0)") from error
    told = {node: serial for serial, node, _ in usb_devices(VENDOR_ID, url.product_id, sysfs)}
    there: list[str] = []
    closed: list[str] = []
    found = []
    for device in _adapters(backend, url.product_id):
        serial = told.get(node_of(device))
        try:
            serial = _asked(device) if serial is None else serial
        except usb.core.USBError as error:
            (closed if error.errno in FORBIDDEN else there).append(f"{node_of(device)} ({error})")
            usb.util.dispose_resources(device)
            continue
        if serial == url.serial:
            found.append(device)
            continue
        there.append(serial or "one without")
        usb.util.dispose_resources(device)
    if len(found) > 1:
        nodes = ", ".join(str(node_of(device)) for device in found)
        for device in found:
            usb.util.dispose_resources(device)
        raise OSError(errno.ENOTUNIQ, f"{len(found)} adapters have the serial number {url.serial}: {nodes}")
    if found:
        return found[0]
    if closed:
        hint = "no permission; the group is given by a rule of udev: hwtool udev prints it"
        raise OSError(errno.EACCES, f"cannot look at {', '.join(closed)}: {hint}")
    listed = ", ".join(map(str, there)) or "none"
    raise OSError(errno.ENODEV, f"no {url.product} has the serial number {url.serial}; there are: {listed}")


def _asked(device: Any) -> str | None:
    """Its serial number, as it tells itself; None: it has none.

    Raises:
        USBError: it may not be opened, or does not answer.
    """
    usb.control.get_descriptor(device, 255, usb.util.DESC_TYPE_STRING, 0)  # PyUSB tells no reason below
    try:
        told = usb.util.get_string(device, device.iSerialNumber)
    except ValueError:
        return None  # it has no texts at all
    return told if isinstance(told, str) else None


def _adapters(backend: Any, product_id: int) -> Iterator[Any]:
    yield from usb.core.find(find_all=True, backend=backend, idVendor=VENDOR_ID, idProduct=product_id) or ()


def _refused(url: FtdiUrl, device: Any, error: usb.core.USBError, sysfs: Path) -> OSError:
    """What a claim that failed means to whoever reads it."""
    node = node_of(device)
    match error.errno:
        case errno.EBUSY:
            place = usb_device(device.bus, device.address, sysfs)
            driver = None if place is None else driver_of(place, url.interface - 1)
            holders = holders_of(node)
            by = f"the kernel driver {driver}" if driver not in (None, "usbfs") else ", ".join(holders)
            return OSError(errno.EBUSY, f"{url} is in use by {by or f'another program (who: fuser -v {node})'}")
        case number if number in FORBIDDEN:
            hint = "its group is given by a rule of udev: hwtool udev prints it"
            return OSError(errno.EACCES, f"{url} ({node}): no permission; {hint}")
        case errno.ENODEV | errno.ENOENT:
            return OSError(errno.ENODEV, f"{url} vanished: {error}")
    return OSError(error.errno or errno.EIO, f"{url} cannot be claimed: {error}")
