"""The stage of a scenario: simulated chips that outlive the daemon, and daemons that end, are killed, and start again.

The chips, their faults and the time go on when a daemon ends. A daemon that is killed leaves what its disk holds at
that moment: the store is copied there and then, what the old daemon still does reaches no chip and is forgotten, and
the next one starts on the copy.
"""

from __future__ import annotations

import shutil
from collections import Counter
from pathlib import Path
from typing import Any, Final

from hwtool.approvals import TOO_SOON_NS
from hwtool.board_buses import BusSpec
from hwtool.checks.rig import AGENT, OPERATOR
from hwtool.checks.scenario import Call, Moment, Scenario, Who, request_of
from hwtool.checks.simulated import OwnTime, simulated
from hwtool.checks.traffic import named
from hwtool.config import Board
from hwtool.engine import Engine
from hwtool.policy import Caller
from hwtool.simulator import places_of
from hwtool_contracts.messages import Result
from hwtool_contracts.toml_reader import Faults
from hwtool_registers.bus import NOT_SENT, Answer, Line, Message, RegisterWrite, Rejected, Transfer
from hwtool_sim.board import bus_of
from hwtool_sim.bus import SimBus
from hwtool_sim.chip import Chip
from hwtool_sim.control import Bench, carry_out, plan_fault
from hwtool_sim.faults import OF_TWO_WIRES
from hwtool_sim.script import planned

CALLERS: Final = {Who.AGENT: AGENT, Who.OPERATOR: OPERATOR, Who.APPROVER: Caller(2, "operator", "grant-", 0)}


class Wrong(Exception):
    """A step did not come to what was expected; the text says how."""


class Doomed:
    """A daemon's way to a bus that outlives it: it may be killed at a transfer, and then reaches nothing any more.

    Attributes:
        inline: time is the stage's own, and nothing is waited for.
    """

    inline = True

    def __init__(self, bus: SimBus, stage: Stage) -> None:
        self._bus = bus
        self._stage = stage
        self._life = stage.life

    def open(self) -> None:
        """As the bus."""
        self._bus.open()

    def boot_evidence(self, address: int) -> str | None:
        """As the bus."""
        return self._bus.boot_evidence(address)

    def perform(self, transfer: Transfer) -> Answer:
        """As the bus, but for a daemon that is dead, or dies of it."""
        dying = self._stage.dying(transfer)
        if dying is Moment.BEFORE:
            self._stage.die()
        if self._life != self._stage.life:
            return Rejected("this daemon is dead", NOT_SENT)
        answer = self._bus.perform(transfer)
        if dying is Moment.AFTER:
            self._stage.die()
        return answer

    def quiesce(self, until_s: float) -> None:
        """As the bus."""
        if self._life == self._stage.life:
            self._bus.quiesce(until_s)


class Stage:
    """The chips of one scenario, and the daemon of now.

    Attributes:
        life: which daemon it is, from 0.
        lines: what was asked and answered, for the timeline of a failure.
    """

    def __init__(self, scenario: Scenario, directory: Path) -> None:
        self.board: Board = simulated(scenario.board)
        self.time = OwnTime()
        self.places = places_of(self.board)
        self.bench = Bench({n: self._made(spec) for n, spec in self.board.buses.items()})
        self.life = 0
        self.lines: list[str] = []
        self._directory = directory
        self._engine: Engine | None = None
        self._killing: Moment | None = None
        self._kinds = {name: spec.kind for name, spec in scenario.board.buses.items()}
        self._counted: dict[str, Chip] = {}
        self._gone: dict[str, Counter[tuple[str, str]]] = {name: Counter() for name in self.places}
        self._passed = 0
        self._reads = False

    def _made(self, spec: BusSpec) -> SimBus:
        chips = {d.place: d.chip for d in self.board.devices.values() if d.bus == spec.name}
        return bus_of(chips, sleep=self.time.advance, clock=self.time.monotonic_s)

    def chip(self, device: object) -> Chip:
        """The chip of a device as it is now.

        Raises:
            Wrong: there is no such device.
        """
        if not isinstance(device, str) or device not in self.places:
            raise Wrong(f"there is no device {device!r}; there are " + ", ".join(self.places))
        bus, place = self.places[device]
        return self.bench.buses[bus].chips[place]

    async def begin(self) -> None:
        """Start a daemon on the store as it is."""
        store = self._directory / f"life{self.life}"
        self._engine = await Engine.start(
            self.board,
            store,
            self.time,
            allow_unsafe=True,
            buses=lambda spec, *_: Doomed(self.bench.buses[spec.name], self),
        )
        await self.settled()

    async def settled(self) -> None:
        """What the daemon does by itself is over: buses that are there are quiet, and the rules have looked."""
        if self._engine is not None:
            for device in self._engine.daemon.devices.values():
                if self.bench.buses[device.spec.bus].is_there():
                    await self._engine.rules_done(device)

    async def end(self) -> None:
        """End the daemon as it is told to; the store stays."""
        engine, self._engine = self._engine, None
        if engine is not None:
            await engine.close()

    async def restart(self) -> None:
        """Another daemon on the same store."""
        await self.end()
        self._moved()
        await self.begin()

    async def kill(self) -> None:
        """Another daemon on what the disk holds now, whatever the old one still does."""
        self.die()
        await self.end()
        await self.begin()

    def die(self) -> None:
        """The daemon of now is dead: its disk is as it is at this moment."""
        self._killing = None
        self._moved(copy=True)

    def _moved(self, *, copy: bool = False) -> None:
        old, new = (self._directory / f"life{n}" for n in (self.life, self.life + 1))
        self.life += 1
        if copy:
            shutil.copytree(old, new, symlinks=True)
        else:
            old.rename(new)

    def dying(self, transfer: Transfer) -> Moment | None:
        """Whether the daemon dies of the transfer that comes: one that writes, of a request that writes."""
        match transfer:
            case RegisterWrite() | Message(read_bytes=0) | Line(expects_reply=False):
                writes = True
            case _:
                writes = False
        if self._killing is None or writes is self._reads:
            return None
        self._passed -= 1
        return self._killing if self._passed < 0 else None

    async def call(self, call: Call) -> Result:
        """One request, approved where that is wanted; a daemon that it kills is followed by another.

        Raises:
            Wrong: the daemon was to be killed at a transfer that did not come.
        """
        if call.killed is not None:
            if call.approved:
                waits = await self._call(call.who, call.method, call.params)
                await self._approve(waits.id)
            self._killing, self._passed = call.killed, call.passed
            self._reads = call.method == "reg.read_effectful"
            life = self.life
            await self._call(call.who, call.method, call.params)
            if self.life == life:
                self._killing = None
                raise Wrong("the daemon was to be killed at a transfer, and none came")
            await self.end()
            await self.begin()
            return Result(status="failed", ok=False, effects="unknown", summary="the daemon was killed")
        result = await self._call(call.who, call.method, call.params)
        if call.approved and result.status == "pending_approval" and await self._approve(result.id):
            return await self._call(call.who, call.method, call.params)
        return result

    async def _approve(self, op_id: int | None) -> bool:
        shown = await self._call(Who.APPROVER, "approval.show", {"approval": op_id})
        if not isinstance(shown.approvals, list) or not shown.approvals:
            return False
        self.time.advance(TOO_SOON_NS / 1e9 + 0.1)
        code = shown.approvals[0]["code"]
        return (await self._call(Who.APPROVER, "approval.approve", {"approval": op_id, "code": code})).ok

    async def _call(self, who: Who, method: str, params: Any) -> Result:
        if self._engine is None:
            raise Wrong("there is no daemon")
        result = await self._engine.call(CALLERS[who], method, dict(params))
        code = "" if result.error is None else f", {result.error['code']}"
        self.lines.append(f"{who} {method} {dict(params)}: {result.status}{code}, {result.effects}: {result.summary}")
        return result

    def control(self, asked: dict[str, Any]) -> None:
        """Let the outside world do something.

        Raises:
            Wrong: it cannot be done.
        """
        try:
            request = request_of(asked, self.places)
            carry_out(self.bench, request)
        except (ValueError, OSError, Faults) as error:
            raise Wrong(str(error)) from error
        if request["control"] == "move":  # a device is its chip, wherever that answers now
            origin = self.bench.name_of(request.get("bus"))
            for device, place in self.places.items():
                if place == (origin, request["address"]):
                    self.places[device] = (request.get("to_bus") or origin, request["to"])

    def fault(self, asked: dict[str, Any]) -> None:
        """Plan a fault.

        Raises:
            Wrong: it cannot be had.
        """
        try:
            bus, fault = planned(asked, self.places)
            name = self.bench.name_of(bus)
            if self._kinds[name].startswith("modbus") and fault.kind in OF_TWO_WIRES:
                raise Wrong(f"{fault.kind}: bus {name} is a line of Modbus; use request_lost")
            plan_fault(self.bench, name, fault)
        except (ValueError, Faults) as error:
            raise Wrong(str(error)) from error

    def executed(self) -> Counter[str]:
        """What every chip has executed so far."""
        found: Counter[str] = Counter()
        for device in self.places:
            chip, before = self.chip(device), self._counted.get(device)
            if before is not chip:  # another one has taken its place: what the first one did is not undone
                self._gone[device] += Counter() if before is None else before.executed
                self._counted[device] = chip
            for (name, access), count in (self._gone[device] + chip.executed).items():
                found[f"{device}.{name} {access}"] += count
        return found

    def sent(self) -> dict[str, int]:
        """How many transfers each bus was asked for."""
        return {name: bus.transfers for name, bus in self.bench.buses.items()}

    def traffic(self, since: dict[str, int]) -> list[str]:
        """The transfers since then, bus by bus."""
        shown = []
        for name, bus in self.bench.buses.items():
            new = bus.transfers - since[name]
            shown += [named(self.places, name, t) for t in list(bus.log)[len(bus.log) - new :]]
        return shown
