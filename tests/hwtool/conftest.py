"""What the tests of the engine share: a clock that nobody waits for, toy boards, and one life of a daemon."""

from __future__ import annotations

import asyncio
import shutil
from collections.abc import Awaitable, Callable
from pathlib import Path
from typing import Any, Final

import pytest

from hwtool.bench import bench
from hwtool.clock import Clock
from hwtool.config import Board, parse_board
from hwtool.devices import Device
from hwtool.engine import Engine
from hwtool.policy import Caller
from hwtool_contracts.errors import parse
from hwtool_contracts.messages import Result
from hwtool_contracts.model import Register
from hwtool_registers.bus import as_object
from hwtool_sim.board import bus_of
from hwtool_sim.bus import SimBus
from hwtool_sim.chip import Chip
from hwtool_sim.faults import Fault, FaultKind
from hwtool_store import audit, operations
from hwtool_store.operations import OpRow
from tests.hwtool.agree import must_agree

AGENT: Final = Caller(1000, "agent", "abc-", 0)
OTHER: Final = Caller(1001, "agent", "def-", 0)
OPERATOR: Final = Caller(0, "operator", "op-", 0)
GHOST: Final = Caller(65534, "agent", "xyz-", 0)
KEY: Final = "key-0000001"
KEY2: Final = "key-0000002"
KEY3: Final = "key-0000003"
STATES: Final = ("PENDING", "INTENT", "UNKNOWN", "DONE")

I2C: Final = """
schema = 1
part = "toy"
vendor = "nobody"
title = "a toy"
source = "the test"
[access]
offset_bytes = 1
byte_order = "big"
[access.i2c]
addresses = [0x20, 0x21]
auto_increment = "both"
"""
DEFAULTS: Final = """
[defaults]
read = { effects = ["none"], provenance = "generated", source = "rtl" }
write = { effect = "store", provenance = "generated", source = "rtl" }
"""
MODBUS: Final = """
schema = 1
part = "toy"
vendor = "nobody"
title = "a toy"
source = "the test"
[access]
offset_bytes = 1
byte_order = "big"
[access.modbus]
base = 0
functions = [3, 6]
"""


def reg(name: str, offset: int, rest: str = "", access: str = "rw") -> str:
    """One register of a toy contract."""
    return f"[registers.{name}]\noffset = {offset}\naccess = '{access}'\n{rest}\n"


def effect(kind: str, rest: str = "") -> str:
    """A read table with one effect."""
    return f"read = {{ effects = ['{kind}'], provenance = 'generated'{rest} }}"


def toy_board(
    directory: Path,
    *parts: str,
    head: str = I2C,
    sole_master: bool = True,
    mode: str = "self",
    bus: str = "",
    device: str = "",
) -> Board:
    """A board with one toy chip at 0x20 (of the contract given as text) on the simulated bus `b`."""
    (directory / "toy.toml").write_text(head + DEFAULTS + "\n".join(parts))
    return parse_board(
        f"name = 'toys'\napproval_mode = '{mode}'\n"
        f"[buses.b]\nkind = 'sim'\nreply_lifetime_ms = 100\nsole_master = {str(sole_master).lower()}\n{bus}\n"
        f"[devices.toy]\ncontract = './toy.toml'\nbus = 'b'\naddress = 0x20\n{device}\n",
        "toys.toml",
        directory,
    )


class FakeClock(Clock):
    """Time that moves only when somebody sleeps (`held`: only when the test says so)."""

    def __init__(self) -> None:
        self.wall = 1_700_000_000_000_000_000
        self.boot = 50_000_000_000_000
        self.mono = -1_000_000.0
        self.boot_word = "boot-1"
        self.held = False
        self._moved = asyncio.Event()

    def wall_ns(self) -> int:
        return self.wall

    def boottime_ns(self) -> int:
        return self.boot

    def monotonic_s(self) -> float:
        return self.mono

    def boot_id(self) -> str:
        return self.boot_word

    def advance(self, seconds: float) -> None:
        """Let all three clocks go on."""
        self.mono += seconds
        self.wall += round(seconds * 1e9)
        self.boot += round(seconds * 1e9)
        moved, self._moved = self._moved, asyncio.Event()
        moved.set()  # for everybody who sleeps

    async def sleep(self, seconds: float) -> None:
        until = self.mono + seconds
        if not self.held:
            self.advance(seconds)
        while self.mono < until:
            await self._moved.wait()
        await asyncio.sleep(0)


class Lab:
    """A running engine, with short words for what tests ask of it."""

    def __init__(self, engine: Engine, clock: FakeClock, directory: Path) -> None:
        self.engine = engine
        self.daemon = engine.daemon
        self.clock = clock
        self.directory = directory

    async def ask(self, called: str, caller: Caller = AGENT, /, **params: Any) -> Result:
        """One call; every outcome keeps the one shape."""
        result = await self.engine.call(caller, called, params)
        check_shape(result)
        return result

    async def operator(self, called: str, /, **params: Any) -> Result:
        """One call of an operator."""
        return await self.ask(called, OPERATOR, **params)

    def device(self, name: str = "toy") -> Device:
        """A device of the board."""
        return self.daemon.devices[name]

    def bus(self, name: str = "toy") -> SimBus:
        """The simulated bus of a device."""
        bus = self.device(name).worker.bus
        assert isinstance(bus, SimBus)
        return bus

    def chip(self, name: str = "toy") -> Chip:
        """The simulated chip behind a device."""
        return self.bus(name).chips[self.device(name).spec.place]

    def reads(self, register: str, name: str = "toy") -> int:
        """How often the chip executed a read."""
        return self.chip(name).executed[register, "read"]

    def writes(self, register: str, name: str = "toy") -> int:
        """How often the chip executed a write."""
        return self.chip(name).executed[register, "write"]

    def fault(self, kind: FaultKind, name: str = "toy", **members: Any) -> None:
        """Plan a fault at the chip of a device; on writes unless told otherwise."""
        members = {"access": "write", **members}
        self.bus(name).faults.append(Fault(kind, self.device(name).spec.place, **members))

    def sent(self, name: str = "toy") -> list[dict[str, Any]]:
        """Everything the bus was asked for, as plans show it."""
        return [as_object(t) for t in self.bus(name).log]

    async def rows(self) -> list[OpRow]:
        """Every operation on record."""
        return await self.daemon.ask(lambda conn: operations.in_state(conn, *STATES))

    async def row(self, key: str = KEY) -> OpRow:
        """The operation of a key."""
        (found,) = [r for r in await self.rows() if r.key == key]
        return found

    async def audit(self) -> list[dict[str, Any]]:
        """The bodies of the audit chain, refusals that have gathered included."""
        self.daemon.flush_refusals()
        return [r.body for r in await self.daemon.ask(lambda conn: audit.page(conn, 0, 10_000))]

    async def rules_ran(self, name: str = "toy") -> None:
        """Wait for the end of the quarantine and of the rules that run after it."""
        await self.engine.rules_done(self.device(name))

    def disk_now(self, name: str) -> Path:
        """The disk as a power cut would leave it at this moment."""
        copy = self.directory.parent / name
        shutil.copytree(self.directory, copy)
        return copy


def deaf(lab: Lab, monkeypatch: pytest.MonkeyPatch, name: str) -> None:
    """A chip that acknowledges writes to a register and does not take them."""
    real = Chip.write_register

    def write(chip: Chip, register: Register, raw: int, mask: int | None = None, *, foreign: bool = False) -> None:
        if register.name == name:
            (chip.foreign if foreign else chip.executed)[name, "write"] += 1
        else:
            real(chip, register, raw, mask, foreign=foreign)

    monkeypatch.setattr(Chip, "write_register", write)


async def until(condition: Callable[[], object]) -> None:
    """Let the others run until something has come about."""
    for _ in range(1_000_000):
        if condition():
            return
        await asyncio.sleep(0)
    raise AssertionError("it never came about")


def check_shape(result: Result) -> None:
    """What holds of every result there is."""
    assert result.status in ("done", "pending_approval", "in_progress", "failed")
    assert result.effects in ("applied", "none", "unknown")
    assert result.ok == (result.status == "done")
    assert (result.error is not None) == (result.status == "failed")
    assert result.at is not None
    assert result.store is not None
    if result.error is not None:
        assert parse(result.error) is not None


def error_of(result: Result) -> dict[str, Any]:
    """The error of a failed result."""
    assert result.error is not None, result
    return result.error


def code_of(result: Result) -> str | None:
    """The code of a result's error, None if it has none."""
    return None if result.error is None else str(result.error["code"])


def evidence_of(result: Result) -> dict[str, Any]:
    """The evidence of a result."""
    assert result.evidence is not None, result
    return result.evidence


def raws(result: Result) -> list[str]:
    """The raw values of a result, in order."""
    assert result.values is not None, result
    return [v["raw"] for v in result.values]


Scenario = Callable[[Lab], Awaitable[None]]


class Play:
    """Runs one life of a daemon: start, a scenario, a clean end."""

    def __init__(self, directory: Path) -> None:
        self.directory = directory

    def __call__(
        self, scenario: Scenario, board: Board | None = None, *, clock: FakeClock | None = None, store: str = "store"
    ) -> None:
        asyncio.run(self._life(scenario, board or bench(), clock or FakeClock(), self.directory / store))

    @staticmethod
    async def _life(scenario: Scenario, board: Board, clock: FakeClock, directory: Path) -> None:
        engine = await Engine.start(board, directory, clock, allow_unsafe=True)
        try:
            await scenario(Lab(engine, clock, directory))
        finally:
            clock.held = False
            clock.advance(1.0)
            await engine.close()
            engine.daemon.store.close()
        must_agree(engine, directory)


@pytest.fixture
def play(tmp_path: Path) -> Play:
    """One life of a daemon, its store below tmp_path."""
    return Play(tmp_path)


@pytest.fixture
def buses_are(monkeypatch: pytest.MonkeyPatch) -> Callable[[type[SimBus]], None]:
    """Have simulated buses be of a kind with members of its own.

    A method that a test puts on SimBus itself would outlive it: `isinstance` with a protocol remembers classes.
    """

    def use(kind: type[SimBus]) -> None:
        monkeypatch.setattr("hwtool.buses.bus_of", lambda contracts: kind(bus_of(contracts).chips))

    return use


@pytest.fixture
def kept_buses(monkeypatch: pytest.MonkeyPatch) -> dict[str, SimBus]:
    """Simulated buses that outlive a daemon, so that a second life meets the chips of the first."""
    from hwtool.buses import make_bus

    buses: dict[str, SimBus] = {}

    def kept(spec: Any, board: Board, directory: Path) -> SimBus:
        if spec.name not in buses:
            made = make_bus(spec, board, directory)
            assert isinstance(made, SimBus)
            buses[spec.name] = made
        return buses[spec.name]

    monkeypatch.setattr("hwtool.engine.make_bus", kept)
    return buses
