"""What a control connection may ask of simulated buses: each control as a type, and what it does.

A control is decoded strictly; what is wrong with one is told by what was asked, where, and the rule. Controls are the
hand of the outside world: none of them is a transfer, and none is counted as an access.
"""

from __future__ import annotations

import threading
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from typing import Annotated, Any, Protocol, assert_never, get_args

import msgspec

from hwtool_contracts.library import find_contract
from hwtool_registers.bus import as_object
from hwtool_sim.board import chip_at_power_on
from hwtool_sim.bus import LOG_LENGTH, SimBus
from hwtool_sim.chip import Chip
from hwtool_sim.coming import Coming
from hwtool_sim.faults import OF_TWO_WIRES, Fault


class Transport(Protocol):
    """A way to a bus that has bytes of its own: a serial line, a server. A bus without one is on the simulator's own.

    Attributes:
        path: where it is found, for people.
    """

    path: str

    def open(self) -> None:
        """Be there, and answer from now on.

        Raises:
            OSError: the place cannot be had.
        """

    def follow(self) -> None:
        """The bus was plugged or unplugged: return when this has followed.

        Raises:
            OSError: the place cannot be had; the bus is unplugged again.
        """

    def close(self) -> None:
        """Be gone."""


@dataclass(slots=True)
class Bench:
    """What one simulator serves.

    Attributes:
        buses: by name.
        lines: those of them that are Modbus, on serial lines or TCP.
        lock: guards every chip, fault and counter of it.
        stopping: somebody has asked for the end.
    """

    buses: dict[str, SimBus]
    lines: dict[str, Transport] = field(default_factory=dict)
    lock: threading.Lock = field(default_factory=threading.Lock)
    stopping: bool = False

    def name_of(self, bus: object) -> str:
        """The bus that a request means.

        Raises:
            ValueError: there is none of this name, or one must be named.
        """
        if bus is None and len(self.buses) == 1:
            return next(iter(self.buses))
        names = ", ".join(self.buses)
        if bus is None:
            raise ValueError(f"bus: which one? there are {names}")
        if not isinstance(bus, str) or bus not in self.buses:
            raise ValueError(f"bus: there is no {bus!r}; there are {names}")
        return bus


class Counts(msgspec.Struct, tag="counts", tag_field="control", forbid_unknown_fields=True, frozen=True):
    """Executions by chip and register."""

    bus: str | None = None


class Values(msgspec.Struct, tag="values", tag_field="control", forbid_unknown_fields=True, frozen=True):
    """What every chip holds, without any effect."""

    bus: str | None = None


class Traffic(msgspec.Struct, tag="traffic", tag_field="control", forbid_unknown_fields=True, frozen=True):
    """The newest transfers that a bus was asked for, in order; at most the last `newest`."""

    bus: str | None = None
    newest: Annotated[int, msgspec.Meta(ge=0)] = LOG_LENGTH


class SetRegister(msgspec.Struct, tag="set", tag_field="control", forbid_unknown_fields=True, frozen=True):
    """The outside world sets a register."""

    address: int
    register: str
    value: int
    bus: str | None = None


class Push(msgspec.Struct, tag="push", tag_field="control", forbid_unknown_fields=True, frozen=True):
    """The outside world fills a FIFO: at once, or an element every so many seconds."""

    address: int
    register: str
    elements: list[int]
    bus: str | None = None
    every_s: Annotated[float, msgspec.Meta(gt=0, le=3600)] | None = None


class PlanFault(msgspec.Struct, tag="fault", tag_field="control", forbid_unknown_fields=True, frozen=True):
    """Plan a fault."""

    fault: Fault
    bus: str | None = None


class ClearFaults(msgspec.Struct, tag="clear_faults", tag_field="control", forbid_unknown_fields=True, frozen=True):
    """Forget every planned fault, of one bus or of all."""

    bus: str | None = None


class Seed(msgspec.Struct, tag="seed", tag_field="control", forbid_unknown_fields=True, frozen=True):
    """Faults that strike by chance are drawn anew from this number, of one bus or of all."""

    seed: Annotated[int, msgspec.Meta(ge=0)]
    bus: str | None = None


class Reset(msgspec.Struct, tag="reset", tag_field="control", forbid_unknown_fields=True, frozen=True):
    """A chip restarts."""

    address: int
    bus: str | None = None


class Unplug(msgspec.Struct, tag="unplug", tag_field="control", forbid_unknown_fields=True, frozen=True):
    """A bus vanishes; with `power` its chips lose theirs."""

    bus: str | None = None
    power: bool = False


class Plug(msgspec.Struct, tag="plug", tag_field="control", forbid_unknown_fields=True, frozen=True):
    """A bus is back."""

    bus: str | None = None


class Move(msgspec.Struct, tag="move", tag_field="control", forbid_unknown_fields=True, frozen=True):
    """A chip moves to another address, and to another bus if that is named."""

    address: int
    to: int
    bus: str | None = None
    to_bus: str | None = None


class Swap(msgspec.Struct, tag="swap", tag_field="control", forbid_unknown_fields=True, frozen=True):
    """Another chip takes an address, as it is at power-on: of this contract, or one of the same."""

    address: int
    bus: str | None = None
    contract: str | None = None
    same: bool = False


class Stop(msgspec.Struct, tag="stop", tag_field="control", forbid_unknown_fields=True, frozen=True):
    """The process ends, with every bus of it."""

    bus: str | None = None


Control = (
    Counts
    | Values
    | Traffic
    | SetRegister
    | Push
    | PlanFault
    | ClearFaults
    | Seed
    | Reset
    | Unplug
    | Plug
    | Move
    | Swap
    | Stop
)
NAMES = [c.__struct_config__.tag for c in get_args(Control)]


def carry_out(bench: Bench, request: Mapping[str, Any]) -> dict[str, Any]:
    """Do what a control asks.

    Raises:
        ValueError: malformed, or not to be had.
        OSError: a line cannot be plugged where it was.
    """
    control = control_of(request)
    with bench.lock:
        shown = _act(bench, control)
    if isinstance(control, Unplug | Plug):
        line = bench.lines.get(bench.name_of(control.bus))
        if line is not None:
            line.follow()
    return shown


def control_of(request: Mapping[str, Any]) -> Control:
    """The control that a request is.

    Raises:
        ValueError: it is none.
    """
    if request.get("control") not in NAMES:
        raise ValueError(f"no control is called {request.get('control')!r}; one of " + ", ".join(NAMES))
    control: Control = msgspec.convert(request, Control)
    return control


def _act(bench: Bench, control: Control) -> dict[str, Any]:
    match control:
        case Counts(bus=bus):
            transfers = sum(b.transfers for n, b in bench.buses.items() if bus in (None, n))
            return {"counts": _of_buses(bench, bus, counts_of), "transfers": transfers}
        case Values(bus=bus):
            return {"values": _of_buses(bench, bus, values_of)}
        case Traffic(bus, newest):
            log = list(bench.buses[bench.name_of(bus)].log)
            return {"traffic": [as_object(t) for t in log[len(log) - min(newest, len(log)) :]]}
        case SetRegister(address, register, value, bus):
            chip = _chip(bench, bus, address)
            chip.check(register, value)
            chip.values[register] = value
        case Push(address, register, elements, bus, every_s):
            chip = _chip(bench, bus, address)
            for element in elements:
                chip.check(register, element)
            if register not in chip.fifos:
                raise ValueError(f"{register} is no FIFO of {chip.contract.part}")
            if every_s is None:
                chip.push(register, elements)
            else:
                now_s = bench.buses[bench.name_of(bus)].clock()
                chip.catch_up(now_s)
                for number, element in enumerate(elements, 1):
                    chip.coming.append(Coming(now_s + number * every_s, "element", register, element))
        case PlanFault(fault, bus):
            plan_fault(bench, bench.name_of(bus), fault)
        case Seed(seed, bus):
            for name in bench.buses if bus is None else (bench.name_of(bus),):
                bench.buses[name].begin(seed, name)
        case ClearFaults(bus=bus):
            for name in bench.buses if bus is None else (bench.name_of(bus),):
                bench.buses[name].faults.clear()
        case Reset(address, bus):
            _chip(bench, bus, address).reset()
        case Unplug(bus, power):
            bench.buses[bench.name_of(bus)].unplug(power=power)
        case Plug(bus=bus):
            bench.buses[bench.name_of(bus)].plug()
        case Move():
            _move(bench, control)
        case Swap():
            _swap(bench, control)
        case Stop():
            bench.stopping = True
        case _:
            assert_never(control)
    return {"done": True}


def _of_buses(bench: Bench, bus: str | None, of: Callable[[SimBus], dict[str, Any]]) -> dict[str, Any]:
    """By bus where there are several and none is named, else of the one meant."""
    if bus is None and len(bench.buses) != 1:
        return {name: of(one) for name, one in bench.buses.items()}
    return of(bench.buses[bench.name_of(bus)])


def counts_of(bus: SimBus) -> dict[str, dict[str, int]]:
    """Executions by chip and register, pulses included."""
    found = {}
    for address, chip in bus.chips.items():
        counts = {f"{name}.{access}": n for (name, access), n in sorted(chip.executed.items())}
        counts |= {f"{name}.pulse": n for name, n in sorted(chip.pulses.items())}
        found[f"{address:#04x}"] = counts
    return found


def values_of(bus: SimBus) -> dict[str, dict[str, Any]]:
    """What every chip holds, by address."""
    return {
        f"{address:#04x}": {
            "part": chip.contract.part,
            "nonce": chip.nonce,
            "values": dict(chip.values),
            "fifos": {name: list(elements) for name, elements in chip.fifos.items()},
            "sent": {name: list(elements) for name, elements in chip.sent.items()},
            "foreign": {f"{name}.{access}": n for (name, access), n in sorted(chip.foreign.items())},
        }
        for address, chip in bus.chips.items()
    }


def _chip(bench: Bench, bus: str | None, address: int) -> Chip:
    name = bench.name_of(bus)
    chips = bench.buses[name].chips
    if address not in chips:
        there = ", ".join(f"{a:#04x}" for a in sorted(chips)) or "none"
        raise ValueError(f"address: no chip at {address:#04x} of bus {name}; there are {there}")
    return chips[address]


def plan_fault(bench: Bench, name: str, fault: Fault) -> None:
    """Plan a fault on a bus of a simulator.

    Raises:
        ValueError: it cannot be had there.
    """
    if name in bench.lines and fault.kind in OF_TWO_WIRES:
        told = f"bus {name} is a line of Modbus, without a clock, and nothing is acknowledged there; use request_lost"
        raise ValueError(f"{fault.kind}: {told}")
    if name in bench.lines and fault.contract is not None and find_contract(fault.contract).access.modbus is None:
        raise ValueError(f"contract: {fault.contract} has no [access.modbus]; bus {name} is a Modbus line")
    if name in bench.lines and fault.lasts_s:
        raise ValueError(f"lasts_s: bus {name} is a line of Modbus; plug it with a control")
    bench.buses[name].plan(fault)


def _move(bench: Bench, move: Move) -> None:
    chip = _chip(bench, move.bus, move.address)
    origin = bench.name_of(move.bus)
    target = origin if move.to_bus is None else bench.name_of(move.to_bus)
    if move.to in bench.buses[target].chips:
        raise ValueError(f"to: {move.to:#04x} of bus {target} is occupied")
    _fits(bench, target, move.to, chip)
    bench.buses[target].chips[move.to] = bench.buses[origin].chips.pop(move.address)


def _swap(bench: Bench, swap: Swap) -> None:
    old = _chip(bench, swap.bus, swap.address)
    if (swap.contract is None) is not swap.same:
        raise ValueError("swap needs contract, or same = true")
    contract = old.contract if swap.contract is None else find_contract(swap.contract)
    name = bench.name_of(swap.bus)
    fresh = chip_at_power_on(contract)
    _fits(bench, name, swap.address, fresh)
    bench.buses[name].chips[swap.address] = fresh


def _fits(bench: Bench, name: str, address: int, chip: Chip) -> None:
    if name in bench.lines:
        check_unit(name, address, chip)
    elif address < 0:
        raise ValueError(f"address: {address} is negative")


def check_unit(name: str, address: int, chip: Chip) -> None:
    """Whether a chip can answer at an address of a serial line.

    Raises:
        ValueError: it cannot.
    """
    if chip.contract.access.modbus is None:
        raise ValueError(f"contract: {chip.contract.part} has no [access.modbus]; bus {name} is a Modbus line")
    if not 1 <= address <= 247:
        raise ValueError(f"address: {address} is no Modbus unit; on bus {name} they are 1 to 247")
