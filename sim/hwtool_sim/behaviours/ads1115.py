"""ADS1115: a conversion takes its time, and brings what is at the inputs that the multiplexer picks.

Source: SBAS444E, Config register (OS, MUX, MODE, DR), as the bundled contract cites it. Inputs are given as the codes
that they convert to (`inputs`, by the value of MUX): the gain and the comparator are not modelled. In continuous mode a
conversion has always ended.
"""

from __future__ import annotations

from hwtool_contracts.places import find_place
from hwtool_sim.behaviour import Behaviour
from hwtool_sim.chip import Chip

AT_REST = 0x2A00
RATES_HZ = (8, 16, 32, 64, 128, 250, 475, 860)  # by DR


class Ads1115(Behaviour):
    """A converter; at rest, with a conversion in it.

    Attributes:
        inputs: the code that each setting of MUX converts to.
    """

    registers = ("CONFIG", "CONVERSION")

    def __init__(self) -> None:
        self.inputs = dict.fromkeys(range(8), AT_REST)
        self._ends_s: float | None = None

    def power_on(self, chip: Chip) -> None:
        """Something has been converted."""
        chip.values["CONVERSION"] = self.inputs[0]
        self._ends_s = None

    def passes(self, chip: Chip) -> None:
        """End a conversion whose time is over."""
        if self._ends_s is None and not self._field(chip, "MODE"):
            chip.values["CONVERSION"] = self.inputs[self._field(chip, "MUX")]
        if self._ends_s is not None and chip.now_s >= self._ends_s:
            self._ends_s = None
            chip.values["CONVERSION"] = self.inputs[self._field(chip, "MUX")]
            chip.values["CONFIG"] |= 0x8000

    def written(self, chip: Chip, register: str, value: int) -> None:
        """Start a conversion, if none runs."""
        if register == "CONFIG" and value & 0x8000 and self._field(chip, "MODE") and self._ends_s is None:
            self._ends_s = chip.now_s + 1 / RATES_HZ[self._field(chip, "DR")]
            chip.values["CONFIG"] &= ~0x8000

    def _field(self, chip: Chip, name: str) -> int:
        place = find_place(chip.contract, f"CONFIG.{name}")
        if place is None or place[1] is None:
            raise LookupError(f"{chip.contract.part} has no CONFIG.{name}")
        return place[1].taken(chip.values["CONFIG"])
