"""Which bus serves which kind: one match, so that a reader sees all of them."""

from __future__ import annotations

import errno
from pathlib import Path
from typing import Final, assert_never

from hwtool.board_buses import BusSpec
from hwtool.config import Board, DeviceSpec
from hwtool_registers.bus import Bus
from hwtool_registers.buses.ftdi_url import FtdiUrl
from hwtool_registers.buses.i2c import I2c, I2cSettings
from hwtool_registers.buses.modbus import ModbusRtu, RtuSettings
from hwtool_registers.buses.modbus_tcp import ModbusTcp, TcpSettings
from hwtool_registers.buses.spi import Spi, SpiSettings
from hwtool_registers.buses.spi_exchange import DEFAULT_MAX_HZ, SpiChip
from hwtool_sim.board import bus_of
from hwtool_sim.reached import Reached
from hwtool_sim.recorded import BadRecording
from hwtool_sim.recording import next_path, recorder
from hwtool_sim.remote import RemoteSimBus
from hwtool_sim.replay import Replay

MAX_SOCKET_PATH_BYTES: Final = 107  # of 108 in sockaddr_un, one is the terminating zero


def make_bus(spec: BusSpec, board: Board, directory: Path) -> Bus:
    """The bus of a board's entry, recorded if the entry says so; nothing is opened yet.

    Args:
        directory: where the socket of a simulator process stands.

    Raises:
        OSError: the path of a simulator's socket is too long, a recording cannot be begun, or not be replayed.
    """
    devices = [d for d in board.devices.values() if d.bus == spec.name]
    bus = _bus_of(spec, devices, directory)
    if spec.record is None:
        return bus
    head = {"board": board.name, "bus": spec.name, "kind": spec.kind}
    return recorder(bus, next_path(spec.record), head, _reached(devices))


def _reached(devices: list[DeviceSpec]) -> Reached:
    """What a recording must know of the devices of a bus; of a part, its own contract and that of the whole chip."""
    contracts = [(d.place, d.contract) for d in devices]
    return Reached(contracts + [(d.place, d.whole) for d in devices if d.whole is not None])


def _bus_of(spec: BusSpec, devices: list[DeviceSpec], directory: Path) -> Bus:
    match spec.kind:
        case "sim" if spec.replay is not None:
            try:
                return Replay(spec.replay)
            except BadRecording as error:
                raise OSError(errno.EINVAL, str(error)) from error
        case "sim" if spec.process or spec.socket is not None:
            path = spec.socket or str(directory / f"sim-{spec.name}.sock")
            if len(path.encode()) > MAX_SOCKET_PATH_BYTES:
                raise OSError(f"the socket path {path} is longer than {MAX_SOCKET_PATH_BYTES} bytes")
            chips = {d.place: d.named for d in devices} if spec.process else None
            return RemoteSimBus(path, spec.name, chips)
        case "sim":
            return bus_of({d.place: d.chip for d in devices})
        case "modbus-rtu":
            settings = RtuSettings(
                path=spec.path or "",
                baud=spec.baud,
                parity=spec.parity,
                stop_bits=spec.stop_bits,
                response_ms=spec.response_ms,
                gap_ms=spec.gap_ms,
                echo=spec.echo,
            )
            return ModbusRtu(settings)
        case "modbus-tcp":
            return ModbusTcp(TcpSettings(spec.host or "", spec.port, spec.response_ms))
        case "i2c":
            return I2c(I2cSettings(spec.adapter, spec.path, spec.response_ms))
        case "spi":
            return Spi(SpiSettings(spec.adapter, spec.path, _chips(spec, devices)))
        case "ftdi-i2c" | "ftdi-spi":
            return _over_usb(spec, devices, directory)
        case _:
            assert_never(spec.kind)


def _over_usb(spec: BusSpec, devices: list[DeviceSpec], directory: Path) -> Bus:
    """A bus behind an FTDI adapter; PyUSB and pyftdi are imported by those alone that have one."""
    from hwtool_registers.buses.ftdi_adapter import FtdiBus, FtdiSettings
    from hwtool_registers.buses.ftdi_i2c import DEFAULT_HZ, I2cMaster
    from hwtool_registers.buses.ftdi_spi import SpiMaster

    if spec.url is None:
        raise OSError(errno.EINVAL, f"bus {spec.name} has no url")
    adapter = FtdiSettings(spec.url, spec.response_ms, spec.latency_ms, directory)
    if spec.kind == "ftdi-spi":
        return FtdiBus(adapter, SpiMaster(_chips(spec, devices)))
    return FtdiBus(adapter, I2cMaster(spec.max_hz or DEFAULT_HZ, spec.clock_stretching))


def _chips(spec: BusSpec, devices: list[DeviceSpec]) -> dict[int, SpiChip]:
    """What each chip select is set to: by the contract of the chip there, within what the board says of the wiring."""
    chips = {}
    for device in devices:
        facts = device.chip.access.spi
        if facts is None:
            continue  # the board is refused that has such a device here
        limits = [hz for hz in (facts.max_hz, spec.max_hz) if hz is not None]
        mode = facts.mode if spec.mode is None else spec.mode
        chips[device.address] = SpiChip(mode, min(limits, default=DEFAULT_MAX_HZ), facts.word_bits)
    return chips


def taken_and_left(directory: Path) -> list[str]:
    """The interfaces that daemons with the store in this directory took in this boot and have not given back."""
    if not any(directory.glob("ftdi-*.taken")):
        return []
    from hwtool_registers.buses.ftdi_claim import left_taken

    return [str(url) for url in left_taken(directory)]


def give_back(board: Board | None, directory: Path) -> list[str]:
    """Give kernel drivers the USB interfaces back that daemons with this store had taken, and died.

    Args:
        board: its interfaces are left: whoever serves it gives them back. None: all are given back.
        directory: the store's.

    Returns:
        A sentence for each.
    """
    wanted: list[FtdiUrl] = [] if board is None else [b.url for b in board.buses.values() if b.url is not None]
    if not any(directory.glob("ftdi-*.taken")):
        return []
    from hwtool_registers.buses.ftdi_claim import give_back_left

    return give_back_left(directory, wanted)
