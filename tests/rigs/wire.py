"""What passed on QEMU's own i2c buses, by its trace: a log that is not ours."""

from __future__ import annotations

import re
from collections.abc import Iterator

Part = tuple[str, int, bytes]  # "W" or "R" ("?": nobody answered), address, bytes


def transactions(trace: str) -> Iterator[list[Part]]:
    """What QEMU wrote down, from each start to its stop."""
    parts: list[tuple[str, int, bytearray]] = []
    for line in trace.splitlines():
        begun = re.search(r"i2c_event (start|start_async)\(addr:(0x[0-9a-f]+)\)", line)
        moved = re.search(r"i2c_(send|recv)\w* \w+\(addr:(0x[0-9a-f]+)\) data:(0x[0-9a-f]+)", line)
        if begun is not None:
            parts.append(("?", int(begun[2], 0), bytearray()))
        elif moved is not None and parts:
            _, address, data = parts[-1]
            parts[-1] = ("W" if moved[1] == "send" else "R", address, data + bytes([int(moved[3], 0)]))
        elif "finish" in line and parts:
            yield [(kind, address, bytes(data)) for kind, address, data in parts]
            parts = []
