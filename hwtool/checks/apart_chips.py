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
        device, name = self._found(register)
        if access == "write":
            chip = chip_at_power_on(self.board.devices[device].chip)
            there = chip.contract.registers.get(name)
            name = name if there is None else chip.taker(there)  # an alias is counted where it leads
        count: int = self._of("counts", device).get(f"{name}.{access}", 0)
        return count

    def value(self, register: str) -> int:
        """What a register holds, without any effect."""
        device, name = self._found(register)
        value: int = self._of("values", device)["values"][name]
        return value

    def fifo(self, register: str) -> list[int]:
        """The elements that wait in a FIFO, oldest first, without any effect."""
        device, name = self._found(register)
        return list(self._of("values", device)["fifos"][name])

    def set(self, register: str, value: int) -> None:
        """The outside world sets a register."""
        device, name = self._found(register)
        self.control("set", device, register=name, value=value)

    def push(self, register: str, *elements: int) -> None:
        """The outside world fills a FIFO."""
        device, name = self._found(register)
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
        """Plan a fault: kinds and parts as in docs/simulator.md."""
        bus, place = self._place(device)
        self._line.ask({"control": "fault", "bus": bus, "fault": {"kind": kind, "address": place, **parts}})

    def clear_faults(self) -> None:
        """Forget what is planned and has not struck."""
        self._line.ask({"control": "clear_faults"})

    def traffic(self, device: str | None = None) -> list[str]:
        """What the buses were asked for, in order, as `motor write 0x01 01`; of one device, or bus by bus."""
        lines = []
        for bus in self.board.buses:
            shown = self._line.ask({"control": "traffic", "bus": bus})["traffic"]
            lines += [named(self._places, bus, from_object(transfer)) for transfer in shown]
        return [line for line in lines if device is None or line.startswith(f"{device} ")]

    def counts(self) -> Iterator[str]:
        """Everything that was executed, as lines."""
        for device in dict(zip(self._places.values(), self._places, strict=True)).values():  # parts share a chip
            for name, number in self._of("counts", device).items():
                yield f"{number} × {device}.{name.rpartition('.')[0]} {name.rpartition('.')[2]}"

    def _of(self, control: Literal["counts", "values"], device: str) -> dict[str, Any]:
        bus, place = self._place(device)
        chips = self._line.ask({"control": control, "bus": bus})[control]
        shown: dict[str, Any] = chips[f"{place:#04x}"]
        return shown

    def _place(self, device: str) -> tuple[str, int]:
        if device not in self._places:
            raise ValueError(f"the board has no device {device!r}; it has " + ", ".join(self._places))
        return self._places[device]

    def _found(self, register: str) -> tuple[str, str]:
        """The device, and the name that the register has at the chip: that of a part has its cluster before it."""
        device, _, name = register.partition(".")
        self._place(device)
        spec = self.board.devices[device]
        there = (*spec.chip.registers, *spec.chip.memories)
        whole = name if spec.part is None or name in there else f"{spec.part}.{name}"
        if whole not in there:
            raise ValueError(f"{device} has no register {name!r}; it has " + ", ".join(there[:SHOWN]))
        return device, whole
