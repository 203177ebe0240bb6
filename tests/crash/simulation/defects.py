"""Defects that are put into the product, one at a time: what plays lives by chance must find them."""

from __future__ import annotations

from collections.abc import Awaitable, Callable
from typing import Final

import pytest

from hwtool.outcome import Verdict
from hwtool.worker import BusWorker
from hwtool_registers.bus import Ambiguous, Answer, Transfer
from hwtool_store import operations
from tests.crash.simulation.world import ScheduledWriter


def _sends_twice(patch: pytest.MonkeyPatch) -> None:
    real: Callable[[BusWorker, Transfer], Awaitable[Answer]] = BusWorker.send_once

    async def again(worker: BusWorker, transfer: Transfer) -> Answer:
        answer = await real(worker, transfer)
        return await real(worker, transfer) if isinstance(answer, Ambiguous) else answer

    patch.setattr(BusWorker, "send_once", again)
    patch.setattr(BusWorker, "check", lambda _: None)


def _guesses(patch: pytest.MonkeyPatch) -> None:
    patch.setattr("hwtool.recovery.decide", lambda *_: Verdict("not_applied", "none", "a guess"))


def _ignores_restarts(patch: pytest.MonkeyPatch) -> None:
    patch.setattr("hwtool.recovery.restart_of", lambda *_: "same")


def _loses_chunks(patch: pytest.MonkeyPatch) -> None:
    patch.setattr(operations, "keep", lambda *_: None)


def _replies_first(patch: pytest.MonkeyPatch) -> None:
    """The outcome is told before it is on record: a crash in between makes another one of it."""

    def told_first(writer: ScheduledWriter) -> None:
        batch, writer._queued = writer._queued, []
        image = writer._world.disk.image
        writer._perform(batch)
        durable, writer._world.disk.image = writer._world.disk.image, image

        def synced() -> None:
            writer._world.disk.image = durable
            writer._told([], [])

        writer._loop.call_later(writer._loop.delay_s(), synced)

    patch.setattr(ScheduledWriter, "_work", told_first)


DEFECTS: Final[dict[str, Callable[[pytest.MonkeyPatch], None]]] = {
    "a transfer is sent again": _sends_twice,
    "a rule guesses": _guesses,
    "restarts are ignored": _ignores_restarts,
    "a chunk is not put on record": _loses_chunks,
    "a commit is believed before it is durable": _replies_first,
}
