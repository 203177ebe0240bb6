"""Where a daemon is killed: the points of an operation's life and of a recovery's, put there from outside.

Each point is a function of the product in whose place stands one that ends this very process by SIGKILL: nothing is
flushed, nothing is closed. The stage says what a crash there leaves: `none` no record, `unsent` a durable intent that
the device has not seen, `first` the first transfer seen, `kept` and what it brought on record, `sent` all of it,
`ended` the outcome on record, `done` the reply given. For a sequence: of the step that is killed.
"""

from __future__ import annotations

import json
import os
import signal
import sys
import threading
from collections.abc import Callable
from dataclasses import dataclass
from types import FrameType
from typing import Any, Final, NoReturn

from hwtool import carry_out, engine, execution, recovery
from hwtool.worker import BusWorker
from hwtool_sim.process import SimConnection
from hwtool_store import operations
from hwtool_store.anchor import Anchor


def die() -> NoReturn:
    """SIGKILL to this very process."""
    os.kill(os.getpid(), signal.SIGKILL)
    raise SystemExit("unreachable")


class Doing:
    """What the process is at, for points that are reached in several ways.

    Attributes:
        committing: the next commit is the one meant.
        dispatching: the next transfer is part of a dispatch.
        at_step: how many operations have come to the head of their queue.
        step_meant: the one that is to be killed, 0 for any.
    """

    committing = False
    dispatching = False
    at_step = 0
    step_meant = 0

    @classmethod
    def its_turn(cls) -> bool:
        """Whether the step of a sequence is at work that is meant; always where none is."""
        return cls.step_meant in (0, cls.at_step)


def know_the_dispatch() -> None:
    """Know when a dispatch is under way: the same functions carry clean reads too."""
    for name in ("dispatch", "dispatch_safe_state"):
        _know(name)


def _know(name: str) -> None:
    sent = vars(carry_out)[name]

    async def dispatching(*arguments: Any) -> Any:
        Doing.dispatching = Doing.its_turn()
        try:
            return await sent(*arguments)
        finally:
            Doing.dispatching = False

    vars(carry_out)[name] = dispatching


def _before(place: dict[str, Any] | type, name: str) -> Callable[[], None]:
    def arm() -> None:
        real = _get(place, name)

        def dying(*arguments: Any, **named: Any) -> Any:
            if Doing.its_turn():
                die()
            return real(*arguments, **named)

        _put(place, name, dying)

    return arm


def _after(place: dict[str, Any] | type, name: str) -> Callable[[], None]:
    def arm() -> None:
        real = _get(place, name)

        async def dying(*arguments: Any, **named: Any) -> Any:
            done = await real(*arguments, **named)
            if Doing.its_turn():
                die()
            return done

        _put(place, name, dying)

    return arm


def _in_the_commit(place: dict[str, Any] | type, name: str) -> Callable[[], None]:
    """Between the commit and the anchor that is written after it."""

    def arm() -> None:
        real, write = _get(place, name), Anchor.write

        async def meant(*arguments: Any, **named: Any) -> Any:
            Doing.committing = Doing.its_turn()
            return await real(*arguments, **named)

        def dying(anchor: Anchor, mark: Any) -> None:
            if Doing.committing:
                die()
            write(anchor, mark)

        _put(place, name, meant)
        setattr(Anchor, "write", dying)  # noqa: B010  # a method put in its place

    return arm


def _get(place: dict[str, Any] | type, name: str) -> Any:
    return place[name] if isinstance(place, dict) else getattr(place, name)


def _put(place: dict[str, Any] | type, name: str, what: Any) -> None:
    if isinstance(place, dict):
        place[name] = what
    else:
        setattr(place, name, what)


def _transfer(sent: bool) -> Callable[[], None]:
    def arm() -> None:
        real = BusWorker.send_once

        async def dying(worker: BusWorker, transfer: Any) -> Any:
            if Doing.dispatching and not sent:
                die()
            answer = await real(worker, transfer)
            if Doing.dispatching:
                die()
            return answer

        setattr(BusWorker, "send_once", dying)  # noqa: B010  # a method put in its place

    return arm


def _request_under_way() -> None:
    """The request has left, nobody waits for its answer."""
    ask = SimConnection.ask

    def dying(connection: SimConnection, request: dict[str, Any]) -> dict[str, Any]:
        if not Doing.dispatching:
            return ask(connection, request)
        connection._file.write(json.dumps(request).encode() + b"\n")
        connection._file.flush()
        die()

    setattr(SimConnection, "ask", dying)  # noqa: B010  # a method put in its place


def _opened() -> None:
    real = vars(engine)["open_store"]

    def dying(*arguments: Any, **named: Any) -> NoReturn:
        real(*arguments, **named)
        die()

    vars(engine)["open_store"] = dying


def _nothing() -> None:
    """Reached by whoever lives: the life ends itself after its reply."""


KEYED: Final = execution.Execution


def know_the_step(number: int) -> None:
    """Be killed only where the n-th operation of this life is at work (a step of a sequence); 0: at the first."""
    Doing.step_meant = number
    head = KEYED.at_the_head

    async def counted(*arguments: Any, **named: Any) -> Any:
        Doing.at_step += 1
        return await head(*arguments, **named)

    setattr(KEYED, "at_the_head", counted)  # noqa: B010  # a method put in its place


def _both(make: Callable[[type, str], Callable[[], None]], name: str) -> Callable[[], None]:
    """At the intent of any kind of operation."""
    ordinary, safe = make(KEYED, name), make(KEYED, f"{name}_safe_state")

    def arm() -> None:
        ordinary()
        safe()

    return arm


@dataclass(frozen=True)
class Label:
    """A point to be killed at.

    Attributes:
        stage: what a crash there leaves; empty for points of a recovery.
        watched: only where there is a watch; `chunked`: only where a burst is taken in chunks.
        settles: only where a rule settles.
    """

    name: str
    stage: str
    arm: Callable[[], None]
    watched: bool = False
    chunked: bool = False
    settles: bool = False


OPERATION: Final = (
    Label("before T1", "none", _both(_before, "_intend")),
    Label("T1 committed, anchor behind", "unsent", _both(_in_the_commit, "_intend")),
    Label("after T1", "unsent", _both(_after, "_intend")),
    Label("before the first transfer", "unsent", _transfer(sent=False)),
    Label("request under way", "first", _request_under_way),
    Label("after the first transfer", "first", _transfer(sent=True)),
    Label("a chunk on record, anchor behind", "kept", _in_the_commit(KEYED, "_keep"), chunked=True),
    Label("after a chunk is on record", "kept", _after(KEYED, "_keep"), chunked=True),
    Label("in the watch", "sent", _before(vars(carry_out), "write_seen"), watched=True),
    Label("before T2", "sent", _before(KEYED, "_record")),
    Label("T2 committed, anchor behind", "ended", _in_the_commit(KEYED, "_record")),
    Label("after T2", "ended", _after(KEYED, "_record")),
    Label("after the reply", "done", _nothing),
)
RECOVERY: Final = (
    Label("store opened", "", _opened),
    Label("orphans unknown", "", _before(vars(operations), "holds")),
    Label("boot evidence", "", _after(vars(engine), "refresh_boot")),
    Label("before T3", "", _before(vars(recovery), "settle"), settles=True),
    Label("T3 committed, anchor behind", "", _in_the_commit(vars(recovery), "settle"), settles=True),
    Label("after T3", "", _after(vars(recovery), "settle"), settles=True),
)
CALL: Final = "call "


def arm(name: str) -> None:
    """Put the kill at a label, or at the n-th call of a function of the product (`call N`)."""
    if name.startswith(CALL):
        _at_call(int(name.removeprefix(CALL)))
        return
    (label,) = [x for x in (*OPERATION, *RECOVERY) if x.name == name]
    label.arm()


def _at_call(number: int) -> None:
    rest = [number]

    def count(frame: FrameType, event: str, _: Any) -> None:
        if event == "call" and "hwtool" in frame.f_code.co_filename.rpartition("/")[0].rpartition("/")[2]:
            rest[0] -= 1
            if rest[0] == 0:
                die()

    threading.setprofile(count)
    sys.setprofile(count)
