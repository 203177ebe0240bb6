"""A Modbus TCP server by pymodbus, in a process of its own: `tcp_server.py PORT COUNTS`, as slave.py says."""

from __future__ import annotations

import asyncio
import sys
from pathlib import Path

from pymodbus.server import ModbusTcpServer
from pymodbus.simulator import DataType, SimData, SimDevice

from tests.modbus.slave import IDENTITY, count_into


async def main(port: int, counts: Path) -> None:
    """Serve for ever."""
    values = [3 * number for number in range(100)]
    device = SimDevice(id=17, simdata=[SimData(0, values=values, datatype=DataType.REGISTERS)])
    server = ModbusTcpServer(device, address=("127.0.0.1", port), trace_pdu=count_into(counts), identity=IDENTITY)
    await server.serve_forever(background=True)
    print("server is ready", flush=True)
    await asyncio.Event().wait()


if __name__ == "__main__":
    asyncio.run(main(int(sys.argv[1]), Path(sys.argv[2])))
