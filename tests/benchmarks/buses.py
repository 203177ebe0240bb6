"""`python -m tests.benchmarks.buses [ROUNDS]`: what a dump costs on the wire, and what a Modbus RTU round trip costs.

The first table counts transfers and bytes of a clean dump of simulated chips: register by register, as hwtool does it,
and the fewest that the contract allows, computed here by another rule than the product's. The second one compares round
trips on one pty, in turns, with one slave and no pause between frames: bare pyserial (write, then read the bytes
that must come) is the reference; both ends are pinned to one core.
"""

from __future__ import annotations

import asyncio
import os
import pty
import statistics
import subprocess
import sys
import tempfile
import time
import tty
from collections.abc import Callable
from pathlib import Path
from typing import Any, Final

import serial
from pymodbus.client import ModbusSerialClient

from hwtool.config import Board, parse_board
from hwtool.devices import MOST_MERGED_BYTES
from hwtool.engine import Engine
from hwtool_contracts.messages import Result
from hwtool_contracts.model import Contract, Register, Space
from hwtool_registers.bus import Confirmed, Line, Message, RegisterRead, RegisterWrite, Transfer
from hwtool_registers.buses.modbus import ModbusRtu, RtuSettings, framed
from tests.hwtool.conftest import DEFAULTS, I2C, FakeClock, Lab, reg

CHIPS: Final = ("mcp23017", "bme280", "mpu6050", "ds3231", "ads1115", "sdm120")
UNIT: Final = 17
TRIPS: Final = 300
ADDRESSES: Final = {"mcp23017": 0x20, "bme280": 0x76, "mpu6050": 0x68, "ds3231": 0x68, "ads1115": 0x48, "sdm120": 1}


# --- dumps --------------------------------------------------------------------------------------------------------


def wire_bytes(transfer: Transfer) -> int:
    """Bytes that a transfer puts on an I2C bus (addresses included), or on a Modbus RTU line (both frames)."""
    match transfer:
        case RegisterRead(space=Space.MEMORY):
            return 2 + transfer.offset_bytes + transfer.size_bytes
        case RegisterWrite(space=Space.MEMORY):
            return 1 + transfer.offset_bytes + len(transfer.data)
        case RegisterRead():
            return 8 + 5 + transfer.size_bytes
        case RegisterWrite():
            return 16 if transfer.function in (5, 6) else 9 + len(transfer.data) + 8
        case Message(_, write, read_bytes):
            return 1 + len(write) + (1 + read_bytes if read_bytes else 0)
        case Line():
            raise ValueError("a line protocol has no dump")


def fewest(contract: Contract, dumped: list[Register], most_bytes: int) -> int:
    """The fewest reads that bring these registers and touch no other: of each space and bank, neighbours together."""
    moves = contract.access.i2c is not None and contract.access.i2c.auto_increment in ("read", "both")
    modbus = contract.access.modbus
    needed = 0
    for place in sorted({(r.space, r.bank or "") for r in dumped}):
        cells: dict[int, Register] = {}
        for one in dumped:
            if (one.space, one.bank or "") == place:
                for unit in range(one.size_bytes // (1 if one.space is Space.MEMORY else 2) or 1):
                    cells[one.offset + unit] = one
        joined = moves if place[0] is Space.MEMORY else True
        longest = most_bytes if place[0] is Space.MEMORY else (modbus.max_registers if modbus is not None else 125)
        begun, last, mine = -1, -2, None
        for at in sorted(cells):
            # registers are never torn: a transfer that cannot take the whole of the next one ends before it
            whole = sum(1 for other in cells if cells[other] is cells[at])
            fits = at - begun + (whole if cells[at] is not mine else 0) <= longest
            if cells[at] is not mine and not (joined and at == last + 1 and fits):
                needed, begun = needed + 1, at
            last, mine = at, cells[at]
    return needed


def board_of(directory: Path) -> Board:
    """Every chip on a bus of its own, and one of 256 bytes that are all plain registers."""
    toy = I2C + DEFAULTS + "\n".join(reg(f"R{n:02X}", n, f"reset = {n}") for n in range(256))
    (directory / "toy.toml").write_text(toy)
    places = {**ADDRESSES, "./toy.toml": 0x20}
    parts = [
        f"[buses.b{n}]\nkind = 'sim'\nsole_master = true\n"
        f"[devices.d{n}]\ncontract = '{contract}'\nbus = 'b{n}'\naddress = {address}\n"
        for n, (contract, address) in enumerate(places.items())
    ]
    return parse_board("name = 'dumps'\napproval_mode = 'self'\n" + "".join(parts), "dumps.toml", directory)


async def counted(lab: Lab, device: str, *asked: tuple[str, dict[str, Any]]) -> tuple[int, int, Result]:
    """Transfers and bytes of some requests, and the answer to the last."""
    log = lab.bus(device).log
    log.clear()
    for method, params in asked:
        answer = await lab.ask(method, **params)
        assert answer.ok, answer.summary
    return len(log), sum(wire_bytes(t) for t in log), answer


async def dumps(directory: Path) -> None:
    """Print the table of dumps."""
    clock = FakeClock()
    engine = await Engine.start(board_of(directory), directory / "store", clock, allow_unsafe=True)
    print(f"{'chip':12} {'registers':>9}   {'one by one':>16} {'hwtool':>16} {'fewest':>8}   transfers (bytes)")
    try:
        for name, device in engine.daemon.devices.items():
            lab = Lab(engine, clock, directory)
            *whole, dump = await counted(lab, name, ("device.dump", {"device": name}))
            names = [v["register"] for v in dump.values or []]
            *single, _ = await counted(lab, name, *(("reg.read", {"registers": [one]}) for one in names))
            dumped = [device.contract.registers[one.partition(".")[2]] for one in names]
            least = fewest(device.contract, dumped, MOST_MERGED_BYTES)
            told = [f"{transfers} ({size})" for transfers, size in (single, whole)]
            part = "256 bytes" if device.contract.part == "toy" else device.contract.part.lower()
            print(f"{part[:12]:12} {len(dumped):9}   {told[0]:>16} {told[1]:>16} {least:8}")
    finally:
        await engine.close()


# --- round trips --------------------------------------------------------------------------------------------------

SLAVE: Final = """
import os, sys
handle, request_bytes, reply = int(sys.argv[1]), int(sys.argv[2]), bytes.fromhex(sys.argv[3])
came = 0
while True:
    came += len(os.read(handle, 256))
    if came >= request_bytes:
        came = 0
        os.write(handle, reply)
"""


def taken_us(once: Callable[[], object]) -> float:
    """Microseconds of one round trip: the median of many, the first ones left out."""
    times = []
    for number in range(TRIPS + 20):
        began = time.perf_counter_ns()
        once()
        if number >= 20:
            times.append(time.perf_counter_ns() - began)
    return statistics.median(times) / 1e3


def by_bare_pyserial(path: str, request: bytes, reply: bytes) -> float:
    """The reference: the frame, and as many bytes as must come."""
    with serial.Serial(path, 115200, timeout=1) as port:

        def once() -> None:
            port.write(request)
            assert port.read(len(reply)) == reply

        return taken_us(once)


def by_hwtool(path: str, _: bytes, __: bytes) -> float:
    """The bus as the daemon uses it."""
    bus = ModbusRtu(RtuSettings(path, 115200, response_ms=1000, gap_ms=0))
    asked = RegisterRead(UNIT, Space.HOLDING, 5, 4, 1, 3)

    def once() -> None:
        assert isinstance(bus.perform(asked), Confirmed)

    try:
        return taken_us(once)
    finally:
        bus.close()


def by_pymodbus(path: str, _: bytes, __: bytes) -> float:
    """pymodbus's synchronous client."""
    client = ModbusSerialClient(path, baudrate=115200, timeout=1, retries=0)
    assert client.connect()

    def once() -> None:
        assert not client.read_holding_registers(5, count=2, device_id=UNIT).isError()

    try:
        return taken_us(once)
    finally:
        client.close()  # type: ignore[no-untyped-call]


WAYS: Final = {"hwtool": by_hwtool, "pymodbus, synchronous": by_pymodbus}


def trips(rounds: int) -> None:
    """Print the ratios of round trips to those of bare pyserial, in turns."""
    request = framed(bytes([UNIT, 3, 0, 5, 0, 2]))
    reply = framed(bytes([UNIT, 3, 4, 0, 1, 0, 2]))
    far, near = pty.openpty()
    tty.setraw(near)
    path = os.ttyname(near)
    words = [str(far), str(len(request)), reply.hex()]
    slave = subprocess.Popen([sys.executable, "-c", SLAVE, *words], pass_fds=(far,))
    ratios: dict[str, list[float]] = {name: [] for name in WAYS}
    try:
        for _ in range(rounds):
            floor = by_bare_pyserial(path, request, reply)
            for name, way in WAYS.items():
                ratios[name].append(way(path, request, reply) / floor)
    finally:
        slave.kill()
        slave.wait()
        os.close(far)
        os.close(near)
    print(f"\nModbus RTU round trip over bare pyserial's on the same pty ({rounds} rounds of {TRIPS})")
    for name, found in ratios.items():
        print(f"{name:24} {statistics.median(found):6.2f}x  ({min(found):.2f} to {max(found):.2f})")
    pairs = [slow / ours for ours, slow in zip(ratios["hwtool"], ratios["pymodbus, synchronous"], strict=True)]
    print(f"pymodbus's time over hwtool's: {statistics.median(pairs):.1f} ({min(pairs):.1f} to {max(pairs):.1f})")


def main(rounds: int) -> None:
    """Print both tables."""
    os.sched_setaffinity(0, {min(os.sched_getaffinity(0))})  # the slave inherits it
    with tempfile.TemporaryDirectory(dir="/tmp") as scratch:
        asyncio.run(dumps(Path(scratch)))
    trips(rounds)


if __name__ == "__main__":
    main(int(sys.argv[1]) if len(sys.argv) > 1 else 9)
