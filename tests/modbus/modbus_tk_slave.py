"""A Modbus slave by modbus-tk, in a process of its own: counts what it gets into a file.

Usage: modbus_tk_slave.py tcp PORT COUNTS | rtu TTY COUNTS. Unit 17; holding and input registers 0 to 99 hold 3 times
their number, coils and discrete inputs 0 to 9 are set at odd numbers. Each request appends a line `FUNCTION ADDRESS`.
"""

from __future__ import annotations

import socket
import sys
import threading
import time
from pathlib import Path
from typing import Any, Final

import serial
from modbus_tk import defines, hooks, modbus_rtu, modbus_tcp  # type: ignore[import-untyped]

UNIT: Final = 17


def listening(port: int) -> bool:
    """Whether somebody takes connections there."""
    with socket.socket() as line:
        return line.connect_ex(("127.0.0.1", port)) == 0


def main(transport: str, place: str, counts: Path) -> None:
    """Serve for ever."""
    counts.touch()

    def count(arguments: tuple[Any, bytes]) -> None:
        _, pdu = arguments
        with counts.open("a", encoding="ascii") as file:
            file.write(f"{pdu[0]} {int.from_bytes(pdu[1:3], 'big')}\n")

    hooks.install_hook("modbus.Slave.handle_request", count)
    if transport == "tcp":
        server = modbus_tcp.TcpServer(int(place), "127.0.0.1")
    else:
        server = modbus_rtu.RtuServer(serial.Serial(place, 115200))
    slave = server.add_slave(UNIT)
    for name, kind in (("holding", defines.HOLDING_REGISTERS), ("input", defines.ANALOG_INPUTS)):
        slave.add_block(name, kind, 0, 100)
        slave.set_values(name, 0, [3 * number for number in range(100)])
    for name, kind in (("coils", defines.COILS), ("discrete", defines.DISCRETE_INPUTS)):
        slave.add_block(name, kind, 0, 10)
        slave.set_values(name, 0, [number % 2 for number in range(10)])
    server.start()
    while transport == "tcp" and not listening(int(place)):  # its thread binds the port when it comes to it
        time.sleep(0.01)
    print("slave is ready", flush=True)
    threading.Event().wait()


if __name__ == "__main__":
    main(sys.argv[1], sys.argv[2], Path(sys.argv[3]))
