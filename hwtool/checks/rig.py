"""The rig of the checks: an engine on the simulated bench, with the counters of the chips beside it."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field
from typing import Any

from hwtool.devices import Device
from hwtool.engine import Engine
from hwtool.policy import Caller
from hwtool_contracts.messages import Result
from hwtool_contracts.model import Register
from hwtool_sim.bus import SimBus
from hwtool_sim.chip import Chip

AGENT = Caller(1000, "agent", "check-", 0)
OPERATOR = Caller(0, "operator", "check-", 0)


@dataclass
class Rig:
    """An engine whose devices are simulated in this process, so that what reaches them can be counted."""

    engine: Engine
    _keys: int = field(default=0, init=False)

    def device(self, name: str) -> Device:
        """A device of the bench."""
        return self.engine.daemon.devices[name]

    def bus(self, device: str) -> SimBus:
        """The simulated bus a device sits on."""
        bus = self.device(device).worker.bus
        if not isinstance(bus, SimBus):
            raise TypeError(f"the bus of {device} is not simulated in this process")
        return bus

    def chip(self, device: str) -> Chip:
        """The simulated chip of a device."""
        return self.bus(device).chips[self.device(device).spec.address]

    def register(self, device: str, name: str) -> Register:
        """A register of a device."""
        return self.device(device).contract.registers[name]

    def executed(self, device: str, register: str, access: str) -> int:
        """How often the chip took part in an access to one of its registers."""
        return self.chip(device).executed[register, access]

    def key(self) -> str:
        """A fresh key."""
        self._keys += 1
        return f"check-{self._keys:06d}"

    async def call(self, method: str, caller: Caller = AGENT, /, **params: Any) -> Result:
        """One request."""
        return await self.engine.call(caller, method, params)

    @contextmanager
    def counting(self, device: str, register: str, access: str) -> Iterator[list[int]]:
        """Count executions inside the block; the list holds the number afterwards."""
        counted: list[int] = []
        before = self.executed(device, register, access)
        yield counted
        counted.append(self.executed(device, register, access) - before)


@dataclass(frozen=True)
class Check:
    """One line of the outcome: what was checked, whether it held, and what was counted."""

    name: str
    passed: bool
    counted: str
