"""A Modbus slave by libmodbus (the C library of Debian's libmodbus5) through ctypes, in a process of its own.

Usage: libmodbus_slave.py tcp PORT COUNTS | rtu TTY COUNTS. Unit 17; holding and input registers 0 to 99 hold 3 times
their number, coils and discrete inputs 0 to 9 are set at odd numbers. Each request that came appends a line
`FUNCTION ADDRESS`.
"""

from __future__ import annotations

import ctypes
import sys
from ctypes import POINTER, c_char, c_int, c_uint8, c_uint16, c_void_p
from pathlib import Path
from typing import Any, Final

UNIT: Final = 17
LIBRARY: Final = "libmodbus.so.5"


class Mapping(ctypes.Structure):
    """modbus_mapping_t of modbus.h."""

    _fields_ = [
        *((name, c_int) for name in ("nb_bits", "start_bits", "nb_input_bits", "start_input_bits")),
        *((name, c_int) for name in ("nb_input_registers", "start_input_registers", "nb_registers", "start_registers")),
        ("tab_bits", POINTER(c_uint8)),
        ("tab_input_bits", POINTER(c_uint8)),
        ("tab_input_registers", POINTER(c_uint16)),
        ("tab_registers", POINTER(c_uint16)),
    ]


def library() -> Any:
    """The library.

    Raises:
        OSError: it is not installed.
    """
    loaded = ctypes.CDLL(LIBRARY, use_errno=True)
    for name in ("modbus_new_tcp", "modbus_new_rtu", "modbus_mapping_new"):
        getattr(loaded, name).restype = c_void_p
    return loaded


def main(transport: str, place: str, counts: Path) -> None:
    """Serve for ever."""
    modbus = library()
    if transport == "tcp":
        context = c_void_p(modbus.modbus_new_tcp(b"127.0.0.1", int(place)))
    else:
        context = c_void_p(modbus.modbus_new_rtu(place.encode(), 115200, c_char(b"N"), 8, 1))
    modbus.modbus_set_slave(context, UNIT)
    mapping = c_void_p(modbus.modbus_mapping_new(10, 10, 100, 100))
    tables = ctypes.cast(mapping, POINTER(Mapping)).contents
    for number in range(100):
        tables.tab_registers[number] = tables.tab_input_registers[number] = 3 * number
    for number in range(10):
        tables.tab_bits[number] = tables.tab_input_bits[number] = number % 2
    counts.touch()
    listening = c_int(modbus.modbus_tcp_listen(context, 1)) if transport == "tcp" else None
    if listening is None and modbus.modbus_connect(context):
        sys.exit(f"cannot open {place}")
    print("slave is ready", flush=True)
    header = modbus.modbus_get_header_length(context)
    request = (c_uint8 * 260)()
    while True:
        if listening is not None:
            modbus.modbus_tcp_accept(context, ctypes.byref(listening))
        while (size := modbus.modbus_receive(context, request)) != -1 or listening is None:
            if size <= 0:
                continue
            with counts.open("a", encoding="ascii") as file:
                file.write(f"{request[header]} {request[header + 1] << 8 | request[header + 2]}\n")
            modbus.modbus_reply(context, request, size, mapping)


if __name__ == "__main__":
    main(sys.argv[1], sys.argv[2], Path(sys.argv[3]))
