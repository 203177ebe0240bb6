"""What is asked in a history, of which chips: one contract that has every kind, three devices, requests by chance.

`told` says whether it restarted, `silent` does not, `shared` has another master on its bus. Every value written is one
that nobody has written before, so that what a chip has done can be told apart.
"""

from __future__ import annotations

import tempfile
from collections.abc import Callable
from dataclasses import dataclass, field
from functools import cache
from pathlib import Path
from typing import Any, Final

from hwtool.config import Board, parse_board
from hwtool.policy import Caller
from hwtool_contracts.model import Contract
from hwtool_sim.chip import Chip
from tests.crash.simulation.world import RandomBus, World
from tests.hwtool.conftest import AGENT, DEFAULTS, I2C, OPERATOR, OTHER, effect, reg

WIDE: Final = "width_bits = 16\n"
COUNTED: Final = "write = {{ effect = '{0}', verify = 'signal', signals = [{{ register = '{1}', delta = 1 }}] }}"
CONTRACT: Final = (
    I2C
    + DEFAULTS
    + reg("STORE", 0, WIDE + "reset = 0x10")
    + reg("FIELDS", 2, WIDE + "fields = { LOW = { bits = '7:0' }, HIGH = { bits = '15:8', reset = 0x5a } }")
    + reg("FLAGS", 4, "reset = 0\nvolatile = true\nwrite = { effect = 'one_to_clear' }")
    + reg("GO", 5, WIDE + COUNTED.format("command", "N"), "wo")
    + reg("N", 7, WIDE + "reset = 0", "ro")
    + reg("BLIND", 9, WIDE + "write = { effect = 'pulse', verify = 'none' }", "wo")
    + reg("PUSH", 11, WIDE + COUNTED.format("push", "TOTAL"), "wo")
    + reg("TOTAL", 13, WIDE + "reset = 0", "ro")
    + reg("POP", 15, effect("pop", ", level = 'LEVEL', max_burst = 2"), "ro")
    + reg("LEVEL", 16, "reset = 0", "ro")
    + reg("CLEAR", 17, effect("clear"), "ro")
    + reg("EVENT", 18, effect("clear", ", affects = ['EVENT', 'SHOWN'], peek = 'SHOWN'"), "ro")
    + reg("SHOWN", 19, "reset = 0", "ro")
    + reg("SILENT", 22, "read = { effects = ['unknown'], provenance = 'silent' }", "ro")
    + reg("GATED", 23, WIDE + "reset = 0\nwrite = { effect = 'store', approval = 'required' }")
    + reg("A", 25, WIDE + "reset = 0x10")
    + reg("B", 27, WIDE + "reset = 0x10")
    + reg("TOGGLE", 29, "reset = 0\nwrite = { effect = 'one_to_toggle' }")
    + "[groups.PAIR]\nmembers = ['A', 'B']\ntransfer = 'each'\n"
)
READS: Final = {"POP": 15, "CLEAR": 17, "EVENT": 18, "SILENT": 22}
OFFSET: Final = {"STORE": 0, "FIELDS": 2, "FLAGS": 4, "GO": 5, "BLIND": 9, "PUSH": 11, "GATED": 23, "A": 25, "B": 27}
PLACES: Final = {"told": ("main", 0x20), "silent": ("main", 0x21), "shared": ("side", 0x20)}
BOARD: Final = """
name = "histories"
approval_mode = "self"
[buses.main]
kind = "sim"
reply_lifetime_ms = 100
sole_master = true
[buses.side]
kind = "sim"
reply_lifetime_ms = 100
"""
DEVICE: Final = """
[devices.{name}]
contract = "./every.toml"
bus = "{bus}"
address = {address}
safe_state = [{{ register = "STORE", value = 0x5afe }}]
"""


@dataclass
class Asked:
    """One keyed request of a history.

    Attributes:
        device, register: what it is about; `parts` of it: (offset, data) of each write that it comes to, None: a read,
            or a value that others write too.
        told: every answer in the order of time.
        over: nobody asks for it any more.
    """

    key: str
    caller: Caller
    method: str
    params: dict[str, Any]
    device: str
    register: str
    parts: tuple[tuple[int, bytes], ...] | None
    over: bool = False
    tries: int = 0
    ids: set[int] = field(default_factory=set)


@cache
def board() -> Board:
    """The board, parsed once a process."""
    with tempfile.TemporaryDirectory() as directory:
        (Path(directory) / "every.toml").write_text(CONTRACT)
        text = BOARD + "".join(DEVICE.format(name=n, bus=b, address=a) for n, (b, a) in PLACES.items())
        return parse_board(text, "histories", Path(directory))


def contract() -> Contract:
    """The contract of every device."""
    return board().devices["told"].contract


def furnish(world: World) -> None:
    """Put the chips on their buses."""
    for bus in ("main", "side"):
        chips = {a: Chip(contract()) for b, a in PLACES.values() if b == bus}
        for chip in chips.values():
            _fill(chip, world)
        world.buses[bus] = RandomBus(world, bus, chips, frozenset(READS.values()), bus == "side")
    world.silent.add(PLACES["silent"])


def _fill(chip: Chip, world: World) -> None:
    """Something to be consumed: elements, flags and events that no other chip has had; a restart leaves none."""
    chip.push("POP", [world.token() & 0xFF for _ in range(6)])
    chip.values |= {"FLAGS": 0x0F, "CLEAR": world.token() & 0xFF | 1, "N": 7}
    event = world.token() & 0x7F | 0x80
    chip.values |= {"EVENT": event, "SHOWN": event}


def _write(register: str) -> Callable[[World], tuple[dict[str, Any], tuple[tuple[int, bytes], ...]]]:
    def made(world: World) -> tuple[dict[str, Any], tuple[tuple[int, bytes], ...]]:
        value = 0x1000 + world.token()
        return {"value": value}, ((OFFSET[register], value.to_bytes(2, "big")),)

    return made


def _request(world: World, device: str) -> tuple[str, str, dict[str, Any], tuple[tuple[int, bytes], ...] | None]:
    """Method, register, parameters and the writes it comes to."""
    kind = world.draw.choice((*WEIGHTED, *READS))
    if kind in READS:
        count = {"count": world.draw.randint(1, 4)} if kind == "POP" else {}
        return "reg.read_effectful", kind, {"register": f"{device}.{kind}", **count}, None
    match kind:
        case "FIELDS":
            token = world.token() & 0xFF
            return "reg.update", kind, {"register": f"{device}.FIELDS", "fields": {"LOW": token}}, None
        case "FLAGS" | "TOGGLE":
            value = 1 << world.draw.randrange(4)
            return "reg.write", kind, {"register": f"{device}.{kind}", "value": value}, None
        case "PAIR":
            values = {name: 0x1000 + world.token() for name in ("A", "B")}
            parts = tuple((OFFSET[name], value.to_bytes(2, "big")) for name, value in values.items())
            return (
                "reg.write",
                kind,
                {"registers": {f"{device}.{name}": value for name, value in values.items()}},
                parts,
            )
        case "SAFE":
            return "device.safe_state", "STORE", {"device": device}, None
        case "STEPS":
            steps: list[dict[str, Any]] = []
            several: tuple[tuple[int, bytes], ...] = ()
            for register in ("STORE", "GO"):
                more, of = _write(register)(world)
                steps.append({"do": "write", "register": f"{device}.{register}", **more})
                several += of
            return "sequence.run", "STEPS", {"steps": steps}, several
        case _:
            more, of = _write(kind)(world)
            return "reg.write", kind, {"register": f"{device}.{kind}", **more}, of


WEIGHTED: Final = (
    *("STORE", "STORE", "GO", "GO", "PUSH", "BLIND", "GATED", "PAIR", "FIELDS", "FLAGS", "TOGGLE", "STEPS", "SAFE"),
)


def drawn(world: World, number: int) -> list[Asked]:
    """Requests by chance, for several callers and devices."""
    asked = []
    for n in range(number):
        device = world.draw.choice(tuple(PLACES))
        method, register, params, parts = _request(world, device)
        caller = world.draw.choice((AGENT, OTHER, OPERATOR))
        asked.append(Asked(f"history-{n:03}", caller, method, params, device, register, parts))
    return asked
