"""What a simulator serves of a board: simulated buses on one socket, serial lines on ptys, Modbus TCP on ports."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import assert_never

from hwtool.buses import MAX_SOCKET_PATH_BYTES
from hwtool.config import Board
from hwtool_contracts.model import Contract


@dataclass(slots=True)
class Served:
    """The chips of a board by bus and address, and where the buses are found.

    Attributes:
        socket: of the simulated buses, and of the controls of all.
        lines: paths of the buses that are serial lines; host and port of Modbus TCP.
    """

    socket: str = ""
    buses: dict[str, dict[int, Contract]] = field(default_factory=dict)
    lines: dict[str, str | tuple[str, int]] = field(default_factory=dict)


def places_of(board: Board) -> dict[str, tuple[str, int]]:
    """The bus of each device and its place there, as the simulator knows them."""
    return {name: (device.bus, device.place) for name, device in board.devices.items()}


def served(board: Board, socket: str | None) -> Served:
    """What is to be served, at `socket` or else where the board's own buses look for it.

    Raises:
        ValueError: it is not clear where, or the path is too long.
    """
    found = Served()
    named: dict[str, str | None] = {}
    for spec in board.buses.values():
        if spec.replay is not None:
            raise ValueError(f"bus {spec.name}: a recording answers there (replay), and no chips that could be served")
        found.buses[spec.name] = {d.place: d.chip for d in board.devices.values() if d.bus == spec.name}
        match spec.kind:
            case "sim":
                named[spec.name] = spec.socket
            case "modbus-rtu":
                found.lines[spec.name] = spec.path or ""
            case "modbus-tcp":
                found.lines[spec.name] = (spec.host or "", spec.port)
            case "i2c" | "spi" | "ftdi-i2c" | "ftdi-spi":
                told = f"an adapter of kind {spec.kind} cannot be simulated; use kind = 'sim'"
                raise ValueError(f"bus {spec.name}: {told}")
            case _:
                assert_never(spec.kind)
    if socket is None:
        if len(set(named.values())) > 1:
            told = ", ".join(f"{name} {path or 'none'}" for name, path in named.items())
            raise ValueError(f"the simulated buses name different sockets ({told}); say one for all with --socket PATH")
        socket = next(iter(named.values()), None)
    if socket is None:
        names = ", ".join(named) or "a line"
        raise ValueError(f'no socket for {names}: say --socket PATH, or socket = "PATH" in the board')
    if len(socket.encode()) > MAX_SOCKET_PATH_BYTES:
        raise ValueError(f"the socket path {socket} is longer than {MAX_SOCKET_PATH_BYTES} bytes")
    found.socket = socket
    return found
