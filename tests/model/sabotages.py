"""Defects that are put into the product, one at a time, each of which the machine must find.

A machine that finds nothing may be one that sees nothing: these are its controls.
"""

from __future__ import annotations

import sqlite3
from collections.abc import Callable
from dataclasses import replace
from typing import Any, Final

import msgspec
import pytest

from hwtool import keyed, recovery, resolve
from hwtool.answers import answer_of_row
from hwtool.devices import Device
from hwtool.engine import Engine
from hwtool.keyed import KeyedOperations
from hwtool.policy import Caller
from hwtool.state import Daemon
from hwtool_contracts.effects import READ_POLICY, ReadEffect
from hwtool_contracts.judge import Refused
from hwtool_contracts.judge_write import UpdateJudgement, judge_update
from hwtool_contracts.messages import Result
from hwtool_registers.bus import from_object
from hwtool_store import operations
from hwtool_store.operations import OpRow
from tests.crash.simulation import world
from tests.crash.simulation.defects import DEFECTS

Patch = pytest.MonkeyPatch
FIRST: Final = "a commit is believed before it is durable"


def _forgets_keys(patch: Patch) -> None:
    """No request finds the row of its key: each is a new one."""
    real, numbers = KeyedOperations.submit, iter(range(10**9))

    async def submit(self: KeyedOperations, caller: Caller, params: Any, arrived: Any = None) -> Result:
        fresh = msgspec.structs.replace(params, key=f"{params.key}.{next(numbers)}")
        return await real(self, caller, fresh, arrived)

    patch.setattr(KeyedOperations, "submit", submit)


def _calls_unknown_none(patch: Patch) -> None:
    """An outcome that nobody knows is told as no effect."""
    real = Engine.call

    async def call(self: Engine, *asked: Any, **more: Any) -> Result:
        result = await real(self, *asked, **more)
        if result.error is not None and result.error["code"] == "outcome_unknown":
            result.effects = "none"
        return result

    patch.setattr(Engine, "call", call)


def _without_guards(patch: Patch) -> None:
    """The store's own triggers, which refuse an intent at a device that is held, are gone."""
    conn = sqlite3.connect(":memory:", isolation_level=None)
    conn.deserialize(world.newborn())
    for name in ("op_stop_i", "op_stop_u", "op_hold_i", "op_hold_u"):
        conn.execute(f"DROP TRIGGER {name}")
    image = conn.serialize()
    conn.close()
    patch.setattr(world, "newborn", lambda: image)


def _clears_holds(patch: Patch) -> None:
    """A device is not held by what is unknown there, nor by a person."""
    _without_guards(patch)
    patch.setattr(Device, "held", lambda _: None)


def _asks_nobody(patch: Patch) -> None:
    """What needs a person's agreement is done without."""

    async def nobody(*_: Any) -> tuple[str, ...]:
        return ()

    patch.setattr(keyed, "approval_of", nobody)


def _forgets_neighbours(patch: Patch) -> None:
    """A field update writes zeros into the fields that it should leave alone."""

    def judged(*asked: Any) -> UpdateJudgement | Refused:
        found = judge_update(*asked)
        return replace(found, from_current=0) if isinstance(found, UpdateJudgement) else found

    patch.setattr(resolve, "judge_update", judged)


def _reads_along(patch: Patch) -> None:
    """A register that clears itself is read along with its neighbours, in one transfer."""
    patch.setitem(READ_POLICY, ReadEffect.CLEAR, READ_POLICY[ReadEffect.NONE])


def _answers_otherwise(patch: Patch) -> None:
    """The second answer to a key is not the first: its values are gone."""

    def changed(row: OpRow, caller: Caller) -> Result:
        result = answer_of_row(row, caller)
        result.values = None
        return result

    patch.setattr(keyed, "answer_of_row", changed)


def _does_it_again(patch: Patch) -> None:
    """A start sends what its predecessor had begun."""
    real = Engine._recover

    async def recover(self: Engine) -> None:
        await real(self)
        for device in self.daemon.devices.values():
            for op_id in device.unknown:
                await _sent(self.daemon, device, op_id)

    patch.setattr(Engine, "_recover", recover)


async def _sent(daemon: Daemon, device: Device, op_id: int) -> None:
    row = await daemon.ask(lambda conn: operations.get(conn, op_id))
    for step in [] if row is None else recovery.facts(row).get("plan", []):
        transfer = from_object({k: v for k, v in step.items() if k not in ("role", "register")})
        device.worker.bus.perform(transfer)


def _forgets_after_a_start(patch: Patch) -> None:
    """What is unknown holds its device until the daemon starts again, and not longer."""
    _without_guards(patch)
    real = Engine._recover

    async def recover(self: Engine) -> None:
        await real(self)
        for device in self.daemon.devices.values():
            device.unknown.clear()
            device.hold = None

    patch.setattr(Engine, "_recover", recover)


def _rehearses_for_real(patch: Patch) -> None:
    """A rehearsal is sent."""
    real = KeyedOperations.submit

    async def submit(self: KeyedOperations, caller: Caller, params: Any, arrived: Any = None) -> Result:
        if getattr(params, "dry_run", False):
            params = msgspec.structs.replace(params, dry_run=False)
        return await real(self, caller, params, arrived)

    patch.setattr(KeyedOperations, "submit", submit)


SABOTAGES: Final[dict[str, Callable[[Patch], None]]] = {
    "the key is not looked up": _forgets_keys,
    "an unknown outcome is told as no effect": _calls_unknown_none,
    "an unknown outcome holds nothing": _clears_holds,
    "a start forgets what holds a device": _forgets_after_a_start,
    "nobody is asked": _asks_nobody,
    "a field update forgets its neighbours": _forgets_neighbours,
    "a clean read takes others along": _reads_along,
    "a replay has other values": _answers_otherwise,
    "a start does it again": _does_it_again,
    "a rehearsal is sent": _rehearses_for_real,
    **{name: DEFECTS[name] for name in ("a transfer is sent again", "a rule guesses", FIRST)},
}
