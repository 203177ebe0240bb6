"""Simulated chips by name, and what the built-in bench finds in them at power-on."""

from __future__ import annotations

import struct
from collections.abc import Callable, Mapping
from typing import Final

from hwtool_contracts.model import Contract
from hwtool_sim.bus import SimBus
from hwtool_sim.chip import Chip


def _float32(number: float) -> int:
    return int.from_bytes(struct.pack(">f", number), "big")


def _uart(chip: Chip) -> None:
    chip.values |= {"LCR": 0x03, "TXLVL": 64}
    chip.push("RHR", b"hello")


def _expander(chip: Chip) -> None:
    # pin 2 of port A has changed: an interrupt is waiting, with its capture
    chip.values |= {"GPIOA": 0x04, "INTFA": 0x04, "INTCAPA": 0x04, "GPINTENA": 0x04}


def _thermometer(chip: Chip) -> None:
    chip.values["TEMPERATURE"] = 0x1900  # 25 degrees


def _converter(chip: Chip) -> None:
    chip.values["CONVERSION"] = 0x2A00


def _clock(chip: Chip) -> None:
    time = {"SECONDS": 0x30, "MINUTES": 0x59, "HOURS": 0x23, "DAY": 1, "DATE": 0x30, "MONTH": 0x11, "YEAR": 0x26}
    chip.values |= time | {"STATUS": 0x89, "TEMP": 0x1940}  # oscillator stopped once, alarm 1 has fired


def _meter(chip: Chip) -> None:
    chip.values |= {
        "VOLTAGE": _float32(230.1),
        "CURRENT": _float32(1.5),
        "ACTIVE_POWER": _float32(345.15),
        "FREQUENCY": _float32(50.0),
        "IMPORT_ACTIVE_ENERGY": _float32(1234.5),
        "RELAY_PULSE_WIDTH": _float32(100.0),
        "METER_ID": _float32(1.0),
        "METER_CODE": 0x0020,
        "SERIAL_NUMBER": 12345678,
    }


AT_POWER_ON: Final[Mapping[str, Callable[[Chip], None]]] = {
    "sc16is750": _uart,
    "mcp23017": _expander,
    "tmp102": _thermometer,
    "ads1115": _converter,
    "ds3231": _clock,
    "sdm120": _meter,
}


def chip_at_power_on(contract: Contract) -> Chip:
    """A chip as a bench would find it: the bundled parts with something in them, others at their reset values."""
    return Chip(contract, AT_POWER_ON.get(contract.part, lambda _: None))


def bus_of(contracts: Mapping[int, Contract]) -> SimBus:
    """A simulated bus with one chip at each address."""
    return SimBus({address: chip_at_power_on(contract) for address, contract in contracts.items()})
