"""FTDI adapters on an emulated USB host: PyUSB's backend interface, below pyftdi and below PyUSB.

Kernel drivers that hold interfaces, programs that claim them, nodes that may not be opened, adapters that are pulled
out: all as Linux and libusb tell them. Bulk data goes to the engine of its interface, answers wait for the latency
timer. Nothing sleeps: an answer that is not there yet is told at once as it would be after that time.

Source: PyUSB usb/backend/__init__.py (IBackend); FTDI AN_232B-04 (latency timer, modem status in front of each packet);
Linux drivers/usb/core/devio.c (claiminterface, getdriver, disconnect_claim); libusb's linux_usbfs.c.
"""

from __future__ import annotations

import errno
import os
from array import array
from collections.abc import Callable, Iterator
from dataclasses import dataclass, field
from types import SimpleNamespace
from typing import Any, Final

from usb.backend import IBackend
from usb.core import USBError, USBTimeoutError

from hwtool_registers.buses.ftdi_adapter import NO_COMMAND, REFUSED
from tests.mpsse.engine import Engine
from tests.mpsse.tracing import Tracer
from tests.mpsse.wires import Wires

VENDOR: Final = 0x0403
KINDS: Final = {"232h": (0x6014, 0x0900, 1), "2232h": (0x6010, 0x0700, 2), "4232h": (0x6011, 0x0800, 4)}
PACKET: Final = 512
RESET, SET_LATENCY, SET_BITMODE = 0x00, 0x09, 0x0B
MPSSE_MODE: Final = 0x02
TO_ENGINE, FROM_ENGINE = 1, 2  # what SIO_RESET drops: pyftdi calls them PURGE_RX and PURGE_TX
LOOKED: Final = bytes([REFUSED, NO_COMMAND])
TX_EMPTY: Final = b"\x01\x60"  # modem status: no error, everything sent
IN, OUT = 0x80, 0x00


def gone() -> USBError:
    """As libusb tells of a device that is not there any more."""
    return USBError("No such device (it may have been disconnected)", -4, errno.ENODEV)


def failed(number: int) -> USBError:
    """An error of the kernel's."""
    return USBError(os.strerror(number), -number, number)


@dataclass
class Interface:
    """One interface of an adapter.

    Attributes:
        driver: the kernel driver that has it, None: none.
        binds: the driver that the kernel binds where it is let.
        holder: who has claimed it: a handle of ours, or the name of another program.
        log: what was said to it, in order: control requests, and bulk data as hex.
    """

    wires: Wires
    binds: str | None = "ftdi_sio"
    driver: str | None = "ftdi_sio"
    holder: object = None
    latency_ms: int = 16
    log: list[tuple[str, Any]] = field(default_factory=list)
    mpsse: bool = False

    def __post_init__(self) -> None:
        self.engine = Engine(self.wires)


class Adapter:
    """One adapter that is plugged in, or not."""

    def __init__(self, kind: str, serial: str, wires: list[Wires], bus: int = 3, address: int = 7) -> None:
        self.kind, self.serial = kind, serial
        self.product_id, self.version, count = KINDS[kind]
        if len(wires) != count:
            raise ValueError(f"a {kind} has {count} interface(s)")
        self.bus, self.address = bus, address
        self.interfaces = [Interface(one) for one in wires]
        self.plugged = self.permitted = True
        self.tracer = Tracer(self.version)

    def pulled_out(self) -> None:
        """It is not there any more, and whoever has it open finds out."""
        self.plugged = False
        for one in self.interfaces:
            one.holder, one.driver = None, None
            one.engine.reset()
            one.wires.left = True

    def plugged_in(self) -> None:
        """It is back under another number, with its kernel drivers."""
        self.plugged = True
        self.address += 1
        for one in self.interfaces:
            one.driver, one.mpsse = one.binds, False


@dataclass(eq=False)
class Handle:
    """An open adapter; of no use once that has another number."""

    adapter: Adapter
    address: int

    @property
    def alive(self) -> Adapter:
        """The adapter.

        Raises:
            USBError: it is gone.
        """
        if not self.adapter.plugged or self.adapter.address != self.address:
            raise gone()
        return self.adapter


class Host(IBackend):  # type: ignore[misc]  # untyped
    """The host: PyUSB's backend.

    Attributes:
        before, after: called before and after bulk data is taken, with it.
        asked: serial numbers of the adapters that were asked for a descriptor.
        deaf: nothing that the adapters have reaches the host, not even their status.
        packet: how much of what there is comes in the next packet.
        spoil: what becomes of a payload of more than one byte on its way to the host, but of the answer to a look.
    """

    def __init__(self, adapters: list[Adapter]) -> None:
        self.adapters = adapters
        self.handles: set[int] = set()
        self.asked: list[str] = []
        self.before: Callable[[bytes], None] = lambda data: None
        self.after: Callable[[bytes], None] = lambda data: None
        self.spoil: Callable[[bytes], bytes] = lambda payload: payload
        self.packet: Callable[[bytes], bytes] = lambda payload: payload
        self.deaf = False

    def enumerate_devices(self) -> Iterator[Any]:
        return iter([(a, a.address) for a in self.adapters if a.plugged])

    def get_device_descriptor(self, dev: Any) -> Any:
        adapter, address = dev
        return SimpleNamespace(
            bLength=18, bDescriptorType=1, bcdUSB=0x200, bDeviceClass=0, bDeviceSubClass=0, bDeviceProtocol=0,
            bMaxPacketSize0=64, idVendor=VENDOR, idProduct=adapter.product_id, bcdDevice=adapter.version,
            iManufacturer=1, iProduct=2, iSerialNumber=3, bNumConfigurations=1,
            address=address, bus=adapter.bus, port_number=1, port_numbers=(1,), speed=3,
        )  # fmt: skip

    def get_configuration_descriptor(self, dev: Any, config: int) -> Any:
        if config:
            raise IndexError(config)
        return SimpleNamespace(
            bLength=9, bDescriptorType=2, wTotalLength=32, bNumInterfaces=len(dev[0].interfaces), bConfigurationValue=1,
            iConfiguration=0, bmAttributes=0x80, bMaxPower=50, extra_descriptors=[],
        )  # fmt: skip

    def get_interface_descriptor(self, dev: Any, intf: int, alt: int, config: int) -> Any:
        if intf >= len(dev[0].interfaces) or alt:
            raise IndexError(intf)
        return SimpleNamespace(
            bLength=9, bDescriptorType=4, bInterfaceNumber=intf, bAlternateSetting=0, bNumEndpoints=2,
            bInterfaceClass=255, bInterfaceSubClass=255, bInterfaceProtocol=255, iInterface=2, extra_descriptors=[],
        )  # fmt: skip

    def get_endpoint_descriptor(self, dev: Any, ep: int, intf: int, alt: int, config: int) -> Any:
        number = 2 * intf + ep + 1
        return SimpleNamespace(
            bLength=7, bDescriptorType=5, bEndpointAddress=number | (IN if ep == 0 else OUT), bmAttributes=2,
            wMaxPacketSize=PACKET, bInterval=0, bRefresh=0, bSynchAddress=0, extra_descriptors=[],
        )  # fmt: skip

    def open_device(self, dev: Any) -> Handle:
        adapter, address = dev
        handle = Handle(adapter, address)
        if not handle.alive.permitted:
            raise failed(errno.EACCES)
        self.handles.add(id(handle))
        return handle

    def close_device(self, dev_handle: Handle) -> None:
        self.handles.discard(id(dev_handle))
        self.dropped(dev_handle)

    def dropped(self, handle: Handle) -> None:
        """What the kernel does with the claims of a handle that is closed, by its process's death too: no more."""
        for one in handle.adapter.interfaces:
            if one.holder is handle:
                one.holder = None

    def crashed(self) -> None:
        """Every process that has an adapter open dies."""
        for adapter in self.adapters:
            for one in adapter.interfaces:
                one.holder = None
        self.handles.clear()

    def set_configuration(self, dev_handle: Handle, config_value: int) -> None:
        if any(one.driver or one.holder for one in dev_handle.alive.interfaces):
            raise failed(errno.EBUSY)

    def get_configuration(self, dev_handle: Handle) -> int:
        del dev_handle
        return 1

    def claim_interface(self, dev_handle: Handle, intf: int) -> None:
        one = dev_handle.alive.interfaces[intf]
        if one.driver is not None or one.holder not in (None, dev_handle):
            raise failed(errno.EBUSY)
        one.holder = dev_handle

    def release_interface(self, dev_handle: Handle, intf: int) -> None:
        one = dev_handle.alive.interfaces[intf]
        if one.holder is not dev_handle:
            raise failed(errno.EINVAL)
        one.holder = None

    def is_kernel_driver_active(self, dev_handle: Handle, intf: int) -> bool:
        return dev_handle.alive.interfaces[intf].driver is not None

    def detach_kernel_driver(self, dev_handle: Handle, intf: int) -> None:
        one = dev_handle.alive.interfaces[intf]
        if one.driver is None:
            raise failed(errno.ENODATA)
        one.log.append(("detached", one.driver))
        one.driver = None

    def attach_kernel_driver(self, dev_handle: Handle, intf: int) -> None:
        one = dev_handle.alive.interfaces[intf]
        if one.holder is not None:
            raise failed(errno.EBUSY)
        one.log.append(("attached", one.binds))
        one.driver = one.binds

    def ctrl_transfer(
        self, dev_handle: Handle, request_type: int, request: int, value: int, index: int, data: Any, timeout: int
    ) -> int:
        adapter = dev_handle.alive
        if (request_type, request) == (0x80, 0x06):
            self.asked.append(adapter.serial)
            told = bytes([4, 3, 0x09, 0x04]) if not value & 0xFF else self._string(adapter, value & 0xFF)
            data[: len(told)] = array("B", told[: len(data)])
            return len(told)
        one = adapter.interfaces[(index & 0xFF) - 1]
        one.log.append(("control", (request, value)))
        match request:
            case 0x00 if value == TO_ENGINE:
                one.engine.drop()
            case 0x00 if value == FROM_ENGINE:
                one.engine.out.clear()
            case 0x09:
                one.latency_ms = value
            case 0x0B:
                one.engine.reset()
                adapter.tracer = Tracer(adapter.version)  # a new one for each set-up, as pyftdi makes them
                one.mpsse = value >> 8 == MPSSE_MODE
        return len(data) if data is not None else 0

    @staticmethod
    def _string(adapter: Adapter, index: int) -> bytes:
        text = {1: "FTDI", 2: adapter.kind.upper(), 3: adapter.serial}[index].encode("utf-16-le")
        return bytes([len(text) + 2, 3]) + text

    def bulk_write(self, dev_handle: Handle, ep: int, intf: int, data: Any, timeout: int) -> int:
        adapter, told = dev_handle.alive, bytes(data)
        self.before(told)
        one = dev_handle.alive.interfaces[intf]
        if one.holder is not dev_handle:
            raise failed(errno.EBUSY)
        one.log.append(("bulk", told.hex()))
        adapter.tracer.sent(intf, told)
        if one.mpsse:
            one.engine.feed(told)
        self.after(told)
        return len(told)

    def bulk_read(self, dev_handle: Handle, ep: int, intf: int, buff: Any, timeout: int) -> int:
        adapter = dev_handle.alive
        one = adapter.interfaces[intf]
        if one.holder is not dev_handle:
            raise failed(errno.EBUSY)
        if self.deaf or (not one.engine.out and timeout < one.latency_ms):
            raise USBTimeoutError("Operation timed out", -7, errno.ETIMEDOUT)
        payload = self.packet(bytes(one.engine.out[: min(len(buff), PACKET) - 2]))
        del one.engine.out[: len(payload)]
        adapter.tracer.came(intf, payload)
        if len(payload) > 1 and payload[:2] != LOOKED:
            payload = self.spoil(payload)
        told = TX_EMPTY + payload
        buff[: len(told)] = array("B", told)
        return len(told)
