"""The device nodes of a board's buses: are they there, who may open them, who has them, what is in the way."""

from __future__ import annotations

import errno
import importlib.util
from collections.abc import Iterator
from pathlib import Path

from hwtool.board_buses import OVER_USB, BusSpec
from hwtool.config import Board
from hwtool.doctor.finding import Finding, Status
from hwtool.doctor.host import Daemon, Host
from hwtool_registers.buses import i2c_nodes, spi_nodes
from hwtool_registers.buses.ftdi_url import VENDOR_ID
from hwtool_registers.buses.usb_nodes import driver_of, holders_of, usb_devices

RULES_CURE = "hwtool udev --board {board}, install what it prints, and: udevadm control --reload; udevadm trigger"


def examined(board: Board, board_file: str, host: Host, daemon: Daemon) -> Iterator[Finding]:
    """Every bus of a board.

    Args:
        daemon: that has its own nodes open, if it runs.
    """
    for bus in board.buses.values():
        yield from _libraries(bus)
        try:
            nodes = list(_nodes(bus, board, host))
            for node in nodes:
                yield from _node(bus, node, host, board_file)
                yield from _holders(bus, node, host, daemon)
            yield from _drivers(bus, nodes, board, host, daemon)
        except NotThere as missing:
            yield missing.finding
        except OSError as error:  # it went while it was looked at; the other buses are looked at all the same
            yield _absent(bus, error)


class NotThere(Exception):
    """A bus without a node, with what that is."""

    def __init__(self, finding: Finding) -> None:
        super().__init__(finding.evidence)
        self.finding = finding


def _nodes(bus: BusSpec, board: Board, host: Host) -> Iterator[Path]:
    """The nodes of a bus, none for one that has none.

    Raises:
        NotThere: it should have one.
    """
    match bus.kind:
        case "modbus-rtu":
            yield _there(bus, Path(bus.path or ""))
        case "i2c":
            try:
                node = (
                    i2c_nodes.node_of(bus.adapter or "", host.sysfs, host.dev) if bus.adapter else Path(bus.path or "")
                )
                yield _there(bus, node)
            except OSError as error:
                raise NotThere(_absent(bus, error)) from error
        case "spi":
            for chip_select in sorted({d.address for d in board.devices.values() if d.bus == bus.name}):
                try:
                    yield _there(bus, _spi_node(bus, chip_select, host))
                except OSError as error:
                    raise NotThere(_absent(bus, error)) from error
        case "ftdi-i2c" | "ftdi-spi" if bus.url is not None:
            there = usb_devices(VENDOR_ID, bus.url.product_id, host.sysfs)
            found = [node for serial, node, _ in there if serial == bus.url.serial]
            if not found:
                listed = ", ".join(serial or "one without" for serial, _, _ in there) or "none"
                evidence = f"no {bus.url.product} has the serial number {bus.url.serial}; there are: {listed}"
                raise NotThere(Finding("node.absent", Status.PROBLEM, f"buses.{bus.name}", evidence, "plug it in"))
            if len(found) > 1:
                evidence = (
                    f"{len(found)} adapters have the serial number {bus.url.serial}: {', '.join(map(str, found))}"
                )
                cure = "give one of them another number (ftdi_eeprom), or unplug it"
                raise NotThere(Finding("adapter.twice", Status.PROBLEM, f"buses.{bus.name}", evidence, cure))
            yield host.dev / found[0].relative_to("/dev")
        case _:
            return


def _spi_node(bus: BusSpec, chip_select: int, host: Host) -> Path:
    if bus.path is not None:
        return Path(f"{bus.path}.{chip_select}")
    return spi_nodes.node_of(spi_nodes.controller_of(bus.adapter or "", host.sysfs), chip_select, host.sysfs, host.dev)


def _there(bus: BusSpec, node: Path) -> Path:
    if not node.exists():
        cure = f"plug it in, or load its driver, and look at what is there: ls -l {node.parent}"
        evidence = f"{node} is not there"
        raise NotThere(Finding("node.absent", Status.PROBLEM, f"buses.{bus.name}", evidence, cure))
    return node


def _absent(bus: BusSpec, error: OSError) -> Finding:
    """What the search for a node ended with."""
    about, evidence = f"buses.{bus.name}", error.strerror or str(error)
    if error.errno == errno.ENOTUNIQ:
        cure = "name a path that a rule of udev's makes, in place of adapter"
        return Finding("adapter.twice", Status.PROBLEM, about, evidence, cure)
    if error.errno == errno.EBUSY:
        return Finding("driver.in_the_way", Status.PROBLEM, about, evidence, "unbind it: echo NAME > …/driver/unbind")
    return Finding("node.absent", Status.PROBLEM, about, evidence, "load its driver, or plug it in")


def _node(bus: BusSpec, node: Path, host: Host, board_file: str) -> Iterator[Finding]:
    """Who may open a node: the daemon, and nobody else."""
    about = f"buses.{bus.name}"
    shown = f"{node} ({host.owner(node)}:{host.group(node)} {node.stat().st_mode & 0o777:04o})"
    cure = RULES_CURE.format(board=board_file)
    out = f"{cure}; or take them out: gpasswd -d NAME {host.group(node)}"
    others, listed = list(host.others(node)), host.acl(node)
    wrong = []
    if node.stat().st_mode & 0o006:
        told = f"{shown}: everybody"
        wrong.append(Finding("node.open_to_all", Status.PROBLEM, about, told, f"{cure}; chmod o= {node}"))
    if others:
        told = f"{shown}: {', '.join(others)}"
        wrong.append(Finding("node.open_to_others", Status.PROBLEM, about, told, out))
    beside = [who for who in listed if who not in ("user root", f"user {host.user}", f"group {host.user}")]
    if beside:
        told = f"{shown}: {', '.join(beside)}, by an access list"
        by_hand = f"take uaccess out of the rules; setfacl -b {node}"
        wrong.append(Finding("node.acl", Status.PROBLEM, about, told, by_hand))
    if not host.lets(node):
        wrong.append(Finding("node.shut", Status.PROBLEM, about, f"{shown}: {host.user} may not open it", cure))
    yield from wrong
    if not wrong:
        yield Finding("node.open_to_others", Status.OK, about, f"{shown}: {host.user} alone")


def _holders(bus: BusSpec, node: Path, host: Host, daemon: Daemon) -> Iterator[Finding]:
    """Programs that have a node open, the daemon left out; those of an FTDI adapter may have another port of it."""
    holders = [who for who in holders_of(node.resolve(), host.proc) if who not in daemon.processes]
    if holders and bus.url is None:
        evidence = f"{node} is open in {', '.join(holders)}"
        yield Finding("node.in_use", Status.PROBLEM, f"buses.{bus.name}", evidence, "end it, or have it leave the port")


def _drivers(bus: BusSpec, nodes: list[Path], board: Board, host: Host, daemon: Daemon) -> Iterator[Finding]:
    """Kernel drivers that have an address, or an interface that is no serial port."""
    about = f"buses.{bus.name}"
    if bus.kind == "i2c":
        for device in (d for d in board.devices.values() if d.bus == bus.name):
            owner = i2c_nodes.owner_of(nodes[0], device.address, host.sysfs)
            if owner is not None:
                number = nodes[0].resolve().name.removeprefix("i2c-")
                cure = f"echo {number}-{device.address:04x} > {host.sysfs}/bus/i2c/drivers/{owner}/unbind"
                evidence = f"{device.address:#04x} is owned by the kernel driver {owner}"
                yield Finding("driver.in_the_way", Status.PROBLEM, f"devices.{device.name}", evidence, cure)
    if bus.url is not None and daemon.runs is False:
        there = usb_devices(VENDOR_ID, bus.url.product_id, host.sysfs)
        places = [place for serial, _, place in there if serial == bus.url.serial]
        if any(driver_of(place, bus.url.interface - 1) == "usbfs" for place in places):
            evidence = f"interface {bus.url.interface} is claimed by another program"
            yield Finding("driver.in_the_way", Status.PROBLEM, about, evidence, f"who: fuser -v {nodes[0]}")


def _libraries(bus: BusSpec) -> Iterator[Finding]:
    """What a bus of this kind needs installed."""
    about = f"buses.{bus.name}"
    if bus.kind == "spi" and importlib.util.find_spec("spidev") is None:
        cure = "pip install 'hwtool[spi]'"
        yield Finding("library.missing", Status.PROBLEM, about, "the Python package spidev is not installed", cure)
    if bus.kind in OVER_USB:
        from hwtool_registers.buses.ftdi_claim import has_libusb

        if not has_libusb():
            cure = "apt-get install libusb-1.0-0"
            yield Finding("library.missing", Status.PROBLEM, about, "there is no libusb-1.0", cure)
