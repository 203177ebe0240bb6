"""Which bus serves which kind: one match, so that a reader sees all of them."""

from __future__ import annotations

from pathlib import Path
from typing import Final

from hwtool.config import Board, BusSpec
from hwtool_registers.bus import Bus
from hwtool_registers.buses.i2c import I2c, I2cSettings
from hwtool_registers.buses.modbus import ModbusRtu, RtuSettings
from hwtool_registers.buses.modbus_tcp import ModbusTcp, TcpSettings
from hwtool_sim.board import bus_of
from hwtool_sim.remote import RemoteSimBus

MAX_SOCKET_PATH_BYTES: Final = 107  # of 108 in sockaddr_un, one is the terminating zero


def make_bus(spec: BusSpec, board: Board, directory: Path) -> Bus:
    """The bus of a board's entry; nothing is opened yet.

    Args:
        directory: where the socket of a simulator process stands.

    Raises:
        OSError: the path of a simulator's socket is too long.
    """
    devices = [d for d in board.devices.values() if d.bus == spec.name]
    match spec.kind:
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
