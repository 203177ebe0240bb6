"""The bundled parts that have something in them when the built-in bench is powered on, and do nothing by themselves."""

from __future__ import annotations

import struct

from hwtool_sim.behaviour import Behaviour
from hwtool_sim.chip import Chip


def float32(number: float) -> int:
    """A number as a register of 32 bits holds it."""
    return int.from_bytes(struct.pack(">f", number), "big")


class Sc16is750(Behaviour):
    """A UART that has received five characters and can send 64."""

    registers = ("LCR", "TXLVL", "RHR")

    def power_on(self, chip: Chip) -> None:
        """Line settings, room to send, and characters."""
        chip.values |= {"LCR": 0x03, "TXLVL": 64}
        chip.push("RHR", b"hello")


class Mcp23017(Behaviour):
    """An expander with an interrupt waiting: pin 2 of port A has changed, and is captured."""

    registers = ("GPIOA", "INTFA", "INTCAPA", "GPINTENA")

    def power_on(self, chip: Chip) -> None:
        """The pin, its flag and its capture."""
        chip.values |= {"GPIOA": 0x04, "INTFA": 0x04, "INTCAPA": 0x04, "GPINTENA": 0x04}


class Tmp102(Behaviour):
    """A thermometer at 25 degrees."""

    registers = ("TEMPERATURE",)

    def power_on(self, chip: Chip) -> None:
        """A temperature."""
        chip.values["TEMPERATURE"] = 0x1900


class Sdm120(Behaviour):
    """A meter of a small load."""

    registers = (
        "VOLTAGE",
        "CURRENT",
        "ACTIVE_POWER",
        "FREQUENCY",
        "IMPORT_ACTIVE_ENERGY",
        "RELAY_PULSE_WIDTH",
        "METER_ID",
        "METER_CODE",
        "SERIAL_NUMBER",
    )

    def power_on(self, chip: Chip) -> None:
        """What it measures, and who it is."""
        chip.values |= {
            "VOLTAGE": float32(230.1),
            "CURRENT": float32(1.5),
            "ACTIVE_POWER": float32(345.15),
            "FREQUENCY": float32(50.0),
            "IMPORT_ACTIVE_ENERGY": float32(1234.5),
            "RELAY_PULSE_WIDTH": float32(100.0),
            "METER_ID": float32(1.0),
            "METER_CODE": 0x0020,
            "SERIAL_NUMBER": 12345678,
        }
