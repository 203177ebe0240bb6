"""Simulated chips by name: which class says what a part does by itself, and buses with a chip at each address."""

from __future__ import annotations

import time
from collections.abc import Callable, Mapping
from typing import Final

from hwtool_contracts.model import Contract
from hwtool_sim.behaviour import Behaviour
from hwtool_sim.behaviours.ads1115 import Ads1115
from hwtool_sim.behaviours.bench import Mcp23017, Sc16is750, Sdm120, Tmp102
from hwtool_sim.behaviours.ds3231 import Ds3231
from hwtool_sim.bus import SimBus
from hwtool_sim.chip import Chip

BEHAVIOURS: Final[Mapping[str, Callable[[], Behaviour]]] = {
    "sc16is750": Sc16is750,
    "mcp23017": Mcp23017,
    "tmp102": Tmp102,
    "ads1115": Ads1115,
    "ds3231": Ds3231,
    "sdm120": Sdm120,
}


def chip_at_power_on(contract: Contract) -> Chip:
    """A chip as a bench would find it: the bundled parts with something in them, others at their reset values."""
    made = BEHAVIOURS.get(contract.part, Behaviour)()
    return Chip(contract, made if set(made.registers) <= contract.registers.keys() else Behaviour())


def bus_of(
    contracts: Mapping[int, Contract],
    sleep: Callable[[float], None] = time.sleep,
    clock: Callable[[], float] = time.monotonic,
) -> SimBus:
    """A simulated bus with one chip at each address."""
    chips = {address: chip_at_power_on(contract) for address, contract in contracts.items()}
    return SimBus(chips, sleep, clock, make=chip_at_power_on)
