"""A Modbus RTU slave by pymodbus, in a process of its own: counts what it executes into a file.

Usage: slave.py TTY COUNTS. Unit 17; holding registers 0 to 99 hold 3 times their number; register 50 and 51 hold the
float 230.5. Objects 0 and 1 say who it is. Each executed request appends a line `FUNCTION ADDRESS` to COUNTS.
"""

from __future__ import annotations

import asyncio
import struct
import sys
from collections.abc import Callable
from pathlib import Path

from pymodbus import FramerType, ModbusDeviceIdentification
from pymodbus.pdu import ModbusPDU
from pymodbus.server import ModbusSerialServer
from pymodbus.simulator import DataType, SimData, SimDevice

IDENTITY = ModbusDeviceIdentification(info_name={"VendorName": "nobody", "ProductCode": "slave"})  # type: ignore[no-untyped-call]


def count_into(counts: Path) -> Callable[[bool, ModbusPDU], ModbusPDU]:
    """Note each request that is about to be executed."""
    counts.touch()

    def count(sending: bool, pdu: ModbusPDU) -> ModbusPDU:
        if not sending:
            with counts.open("a", encoding="ascii") as file:
                file.write(f"{pdu.function_code} {pdu.address}\n")
        return pdu

    return count


async def main(tty: str, count: Callable[[bool, ModbusPDU], ModbusPDU]) -> None:
    """Serve for ever."""
    values = [3 * number for number in range(100)]
    values[50:52] = struct.unpack(">HH", struct.pack(">f", 230.5))

    device = SimDevice(id=17, simdata=[SimData(0, values=values, datatype=DataType.REGISTERS)])
    server = ModbusSerialServer(
        device, framer=FramerType.RTU, port=tty, baudrate=115200, trace_pdu=count, identity=IDENTITY
    )
    print("slave is ready", flush=True)
    await server.serve_forever()


if __name__ == "__main__":
    asyncio.run(main(sys.argv[1], count_into(Path(sys.argv[2]))))
