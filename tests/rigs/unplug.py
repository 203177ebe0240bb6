"""Runs inside the guest: asks a Modbus slave over a USB serial port that is pulled out, and put back, meanwhile.

`python -m tests.rigs.unplug` prints a line of JSON for each request. Files in /run/out say who waits for whom.
"""

from __future__ import annotations

import json
import time
from pathlib import Path
from typing import Final

from hwtool_contracts.model import Space
from hwtool_registers.bus import Ambiguous, Confirmed, RegisterRead, RegisterWrite, Rejected, Transfer
from hwtool_registers.buses.modbus import ModbusRtu, RtuSettings

OUT: Final = Path("/run/out")
LINE: Final = Path("/run/line")  # what udev would make: a name that stays, whatever the kernel calls the port
UNIT: Final = 17
PATIENCE_MS: Final = 30_000
LIMIT_S: Final = 60.0


def put(name: str) -> None:
    """Tell the host."""
    (OUT / name).touch()


def await_file(name: str) -> None:
    """Wait for the host."""
    until_s = time.monotonic() + LIMIT_S
    while not (OUT / name).exists():
        assert time.monotonic() < until_s, f"the host has not said {name}"
        time.sleep(0.05)  # no event crosses over


def link() -> None:
    """Have the stable name lead to the port, once there is one."""
    until_s = time.monotonic() + LIMIT_S
    while not (found := sorted(Path("/dev").glob("ttyUSB*"))):
        assert time.monotonic() < until_s, "no port"
        time.sleep(0.05)
    LINE.unlink(missing_ok=True)
    LINE.symlink_to(found[-1])


def ask(bus: ModbusRtu, when: str, transfer: Transfer) -> None:
    """One request, and what came of it; whether it took as long as nobody's answer would."""
    began_s = time.monotonic()
    answer = bus.perform(transfer)
    waited = time.monotonic() - began_s > PATIENCE_MS / 1000
    match answer:
        case Confirmed(data):
            told = ["confirmed", data.hex()]
        case Rejected(fault, proof):
            told = ["rejected", proof, fault]
        case Ambiguous(stage, fault):
            told = ["ambiguous", stage, fault]
    print(json.dumps([when, waited, *told]), flush=True)


def main() -> None:
    """The whole story."""
    link()
    bus = ModbusRtu(RtuSettings(str(LINE), 115200, response_ms=PATIENCE_MS, gap_ms=20))
    ask(bus, "at first", RegisterRead(UNIT, Space.HOLDING, 5, 2, 1, 3))
    put("ready")
    await_file("go")  # the slave is stopped: its reply is still to come when the port is pulled out
    ask(bus, "pulled out", RegisterWrite(UNIT, Space.HOLDING, 7, b"\x12\x34", 1, 6))
    ask(bus, "away", RegisterRead(UNIT, Space.HOLDING, 7, 2, 1, 3))
    put("gone")
    await_file("back")
    link()
    bus.quiesce(time.monotonic())
    ask(bus, "back again", RegisterRead(UNIT, Space.HOLDING, 7, 2, 1, 3))
    bus.close()


if __name__ == "__main__":
    main()
