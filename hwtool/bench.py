"""The built-in simulated bench: what `hwtool serve` runs without a board, and what demo and check use."""

from __future__ import annotations

from pathlib import Path

from hwtool.config import Board, parse_board

BENCH = """
name = "bench"
approval_mode = "self"

[buses.i2c0]
kind = "sim"
sole_master = true
reply_lifetime_ms = 100

[buses.line0]
kind = "sim"
sole_master = true
reply_lifetime_ms = 100

[devices.gpio]
contract = "mcp23017"
bus = "i2c0"
address = 0x20
safe_state = [{ register = "OLATA", value = 0 }, { register = "OLATB", value = 0 }]

[devices.uart]
contract = "sc16is750"
bus = "i2c0"
address = 0x4d

[devices.temp]
contract = "tmp102"
bus = "i2c0"
address = 0x48

[devices.adc]
contract = "ads1115"
bus = "i2c0"
address = 0x49

[devices.rtc]
contract = "ds3231"
bus = "i2c0"
address = 0x68

[devices.meter]
contract = "sdm120"
bus = "line0"
address = 1
identity = "32"
"""


def bench(*, process: bool = False) -> Board:
    """The bench as a board; with the chips in a process of their own if asked."""
    text = BENCH.replace('kind = "sim"', 'kind = "sim"\nprocess = true') if process else BENCH
    return parse_board(text, "the built-in bench", Path())
