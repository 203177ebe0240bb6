"""Every register of every bundled contract: exactly one of hw_read, hw_read_effectful, or neither, takes it."""

from __future__ import annotations

from pathlib import Path
from typing import Any, TypeVar

import msgspec
import pytest

from hwtool.calls import Call
from hwtool.config import Board, parse_board
from hwtool.devices import Device
from hwtool.failures import failure
from hwtool.mcp.bridge import Bridge
from hwtool.mcp.tools import TOOLS
from hwtool.replies import Result
from hwtool.resolve import find_members
from hwtool_contracts.judge import ReadJudgement
from hwtool_contracts.library import bundled, bundled_names
from hwtool_contracts.model import Register, Space
from tests.hwtool.conftest import AGENT, Lab, Play

T = TypeVar("T")


class InProcess:
    """Carries out calls by the engine itself, without a socket."""

    def __init__(self, lab: Lab) -> None:
        self._lab = lab

    async def perform(self, call: Call[T]) -> T:
        """As hwtool.aio.Client.perform."""
        result = Result(msgspec.to_builtins(await self._lab.ask(call.method, AGENT, **call.params)))
        if result.status == "failed":
            raise failure(result)
        return call.make(result)


def board_of(name: str) -> Board:
    """A board with one simulated chip."""
    contract = bundled(name)
    addresses = contract.access.i2c.addresses if contract.access.i2c is not None else ()
    line = any(r.space is Space.LINE for r in contract.registers.values())
    address = "" if line else f"address = {addresses[0] if addresses else 1}\n"
    text = "name = 'one'\napproval_mode = 'self'\n[buses.b]\nkind = 'sim'\nsole_master = true\n[devices.chip]\n"
    return parse_board(text + f"contract = '{name}'\nbus = 'b'\n{address}", "one.toml", Path())


def places(device: Device) -> list[tuple[str, Register]]:
    """Names that can be read, with the register that each is: registers, and a byte of each memory."""
    contract = device.contract
    found = [(f"chip.{r.name}", r) for r in contract.registers.values()]
    for memory in contract.memories:
        name = f"chip.{memory}[0:1]"
        found += [(name, register) for register in find_members(device, name)[0]]
    return found


@pytest.mark.parametrize("name", bundled_names())
def test_register_when_offered_to_both_reading_tools_then_at_most_one_takes_it(tmp_path: Path, name: str) -> None:
    taken: dict[str, tuple[bool, bool]] = {}

    async def life(lab: Lab) -> None:
        bridge = Bridge(InProcess(lab))  # type: ignore[arg-type]
        device = lab.device("chip")
        for number, (place, register) in enumerate(places(device)):
            asked: dict[str, Any] = {"registers": [place]}
            clean = await bridge.answer(TOOLS["hw_read"], asked)
            key = f"registers-{number:05}"
            effectful = await bridge.answer(TOOLS["hw_read_effectful"], {**asked, "key": key, "dry_run": True})
            taken[register.name] = (clean["ok"], effectful["ok"])
            judged = device.judge((register,))
            if isinstance(judged, ReadJudgement) and judged.clean:
                rule = (effectful["error"] or {}).get("rule")
                assert (clean["ok"], effectful["ok"], rule) == (True, False, "read_is_clean"), register.name
            elif isinstance(judged, ReadJudgement):
                assert clean["error"]["rule"] in ("read_has_side_effects", "unknown_read"), register.name

    Play(tmp_path)(life, board_of(name))
    assert taken
    assert [n for n, both in taken.items() if both == (True, True)] == []
