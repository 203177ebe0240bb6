"""What a test holds of the simulated chips of a board, in a process of their own; docs/pytest.md tells the use.

They outlive a daemon that is killed, and count on their own what they executed.
"""

from __future__ import annotations

import signal
from collections.abc import Iterator
from pathlib import Path
from typing import Any, Literal

from hwtool.checks.apart import LIMIT_S, SHOWN, Process
from hwtool.checks.hosted import CHIPS_READY, hosted
from hwtool.checks.traffic import named
from hwtool.config import load_board
from hwtool.simulator import places_of
from hwtool_registers.bus import from_object
from hwtool_sim.board import chip_at_power_on
from hwtool_sim.process import SimConnection

Access = Literal["read", "write", "pulse"]


class Simulator:
    """The simulated chips of a board; nothing of this is a transfer, and nothing is counted as an access.

    Registers are named as for the client, `device.REGISTER`.
    """

    def __init__(self, board: Path, socket: Path) -> None:
        self.board = hosted(load_board(board), str(socket))
        self._places = places_of(self.board)
        self._process = Process(["chips", str(board), str(socket)], CHIPS_READY)
        self._line = SimConnection(str(socket), LIMIT_S)

    def close(self) -> None:
        """End the process."""
        self._line.close()
        self._process.end(signal.SIGTERM)

    def control(self, name: str, device: str, **parts: Any) -> dict[str, Any]:
        """A control of docs/simulator.md, at a device.

        Raises:
            ValueError: there is no such device, or the simulator refused.
        """
        bus, place = self._place(device)
        return self._line.ask({"control": name, "bus": bus, "address": place, **parts})

    def executed(self, register: str, access: Access = "write") -> int:
        """How often the chip took part in a read or a write, or something fired (`pulse`), since it is there.

        Raises:
            ValueError: the board has no such register or memory: it would be counted as 0 for ever.
        """
        device, name = self.place_of(register)
        if access == "write":
            chip = chip_at_power_on(self.board.devices[device].chip)
            there = chip.contract.registers.get(name)
            name = name if there is None else chip.taker(there)  # an alias is counted where it leads
        count: int = self._of("counts", device).get(f"{name}.{access}", 0)
        return count

    def value(self, register: str) -> int:
        """What a register holds, without any effect."""
        device, name = self.place_of(register)
        value: int = self._of("values", device)["values"][name]
        return value

    def fifo(self, register: str) -> list[int]:
        """The elements that wait in a FIFO, oldest first, without any effect."""
        device, name = self.place_of(register)
        return list(self._of("values", device)["fifos"][name])

    def values(self, device: str) -> dict[str, Any]:
        """Everything that the chip holds, as the control of that name tells it: `values`, `fifos`, `nonce`, …"""
        return self._of("values", device)

    def set(self, register: str, value: int) -> None:
        """The outside world sets a register."""
        device, name = self.place_of(register)
        self.control("set", device, register=name, value=value)

    def push(self, register: str, *elements: int) -> None:
        """The outside world fills a FIFO."""
        device, name = self.place_of(register)
        self.control("push", device, register=name, elements=list(elements))

    def reset(self, device: str) -> None:
        """The chip restarts; its counters stay."""
        self.control("reset", device)

    def unplug(self, device: str, *, power: bool = False) -> None:
        """The device's bus vanishes; with `power` its chips restart when it is back."""
        self._line.ask({"control": "unplug", "bus": self._place(device)[0], "power": power})

    def plug(self, device: str) -> None:
        """The device's bus is back."""
        self._line.ask({"control": "plug", "bus": self._place(device)[0]})

    def fault(self, device: str, kind: str, **parts: Any) -> None:
        """Plan a fault: kinds and parts as in docs/simulator.md; `at` and `register` are registers of the device."""
        bus, place = self._place(device)
        there = {key: self.place_of(f"{device}.{parts[key]}")[1] for key in ("at", "register") if key in parts}
        self._line.ask({"control": "fault", "bus": bus, "fault": {"kind": kind, "address": place, **parts, **there}})

    def clear_faults(self) -> None:
        """Forget what is planned and has not struck."""
        self._line.ask({"control": "clear_faults"})

    def traffic(self, device: str | None = None) -> list[str]:
        """What the buses were asked for, in order, as `motor write 0x01 01`; of one device, or bus by bus."""
        lines, own = [], ""
        if device is not None:  # of parts, all of their chip: a transfer does not say which of them it is for
            own = next(name for name, place in self._places.items() if place == self._place(device)) + " "
        for bus in self.board.buses:
            shown = self._line.ask({"control": "traffic", "bus": bus})["traffic"]
            lines += [named(self._places, bus, from_object(transfer)) for transfer in shown]
        return [line for line in lines if line.startswith(own)]

    def counts(self) -> Iterator[str]:
        """Everything that was executed, as lines; of a part what is its own."""
        for device, spec in self.board.devices.items():
            own = "" if spec.part is None else f"{spec.part}."
            for name, number in self._of("counts", device).items():
                if name.startswith(own):
                    register, _, access = name.removeprefix(own).rpartition(".")
                    yield f"{number} × {device}.{register} {access}"

    def _of(self, control: Literal["counts", "values"], device: str) -> dict[str, Any]:
        bus, place = self._place(device)
        chips = self._line.ask({"control": control, "bus": bus})[control]
        shown: dict[str, Any] = chips[f"{place:#04x}"]
        return shown

    def _place(self, device: str) -> tuple[str, int]:
        if device not in self._places:
            raise ValueError(f"the board has no device {device!r}; it has " + ", ".join(self._places))
        return self._places[device]

    def place_of(self, register: str) -> tuple[str, str]:
        """The device, and the name that the register has at the chip: that of a part has its cluster before it.

        Raises:
            ValueError: the board has no such device, or the device no such register or memory.
        """
        device, _, name = register.partition(".")
        self._place(device)
        spec = self.board.devices[device]
        there = (*spec.chip.registers, *spec.chip.memories)
        whole = name if spec.part is None or name in there else f"{spec.part}.{name}"
        if whole not in there:
            raise ValueError(f"{device} has no register {name!r}; it has " + ", ".join(there[:SHOWN]))
        return device, whole
