"""Defects that the matrix must find: its control. Each is put in place of a function of the product."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, Final

from hwtool import engine, recovery
from hwtool.outcome import Verdict
from hwtool.recovery import facts
from hwtool_registers.bus import from_object
from hwtool_store import operations

Fault = Callable[[], None]


def _none() -> None:
    """As the product is."""


def _send_again() -> None:
    """A recovery that sends what it finds open once more."""
    rules = vars(engine)["run_rules"]

    async def again(daemon: Any, op_id: int, body: Any, **more: Any) -> Any:
        row = await daemon.ask(lambda conn: operations.get(conn, op_id))
        if row is not None and row.state == "UNKNOWN":
            worker = daemon.device_at(row.locus).worker
            async with worker.lock:
                for step in facts(row)["plan"]:
                    shown = {k: v for k, v in step.items() if k not in ("role", "register")}
                    await worker.send_once(from_object(shown))
        return await rules(daemon, op_id, body, **more)

    vars(engine)["run_rules"] = again


def _forget_the_intent() -> None:
    """A store that says the intent is on disk, and has not written it."""
    vars(operations)["t1_intent"] = lambda *_: 1


def _guess() -> None:
    """A rule that takes what it cannot know for not applied."""
    vars(recovery)["decide"] = lambda *_: Verdict("not_applied", "none", "a guess")


def _forget_the_hold() -> None:
    """A start that does not hold the devices of unknown operations."""
    from hwtool.devices import Device

    setattr(Device, "mark_unknown", lambda *_: None)  # noqa: B010  # a method put in its place


FAULTS: Final[dict[str, tuple[Fault, Fault]]] = {
    "send again": (_none, _send_again),
    "forget the intent": (_forget_the_intent, _none),
    "guess": (_none, _guess),
    "forget the hold": (_none, _forget_the_hold),
}
NAMES: Final = tuple(FAULTS)


def of(name: str | None) -> tuple[Fault, Fault]:
    """What is put in place in the first life, and in the later ones."""
    return (_none, _none) if name is None else FAULTS[name]
