"""Registers that are written in their sequence alone: not by themselves, and locked again after the daemon has died.

The death needs lives of its own: in one the reply to the first write of the sequence is lost, so that it is not known
whether something is unlocked; the next one must lock it, once, whatever becomes of the sequence.
"""

from __future__ import annotations

from pathlib import Path

from hwtool.checks.named import Run
from hwtool.checks.samples import Sample
from hwtool.checks.simulated import OwnTime
from hwtool.checks.stand import NotApplicable, Stand, ensure
from hwtool.config import Board
from hwtool.engine import Engine
from hwtool_contracts.errors import Code
from hwtool_sim.faults import FaultKind


async def stays_locked(stand: Stand, sample: Sample) -> str:
    """Written by itself it is refused, and nothing is sent."""
    with stand.counting(sample.device, sample.register.name, "write") as executed:
        told = await stand.effect(sample.method, **sample.params, key=stand.key())
    code = (told.error or {}).get("code")
    if code == Code.DENIED and executed[0] == 0:
        raise NotApplicable("policy lets nobody write it")
    ensure(code == Code.REFUSED and executed[0] == 0, f"{told.status}, {code}, {executed[0]} executed")
    return f"{code}, 0 executed"


async def relocked_after_death(board: Board, directory: Path, device: str, name: str) -> str:
    """The next life of the daemon locks again, once, what the last one left unlocked.

    Raises:
        NotApplicable: nothing is to be locked again, or the loss cannot be brought about.
    """
    time = OwnTime()
    first = await Engine.start(board, directory, time, allow_unsafe=True)
    try:
        run = _run(Stand(first, time), device, name)
        if not run.sequence.relock:
            raise NotApplicable("it says of nothing that it locks it again")
        await run.stand.fresh(device)
        run.prepare()
        asked = run.asked()
        await run.stand.lose(FaultKind.REPLY_LOST, device, asked.method, **asked.params)
        told = await run.stand.effect(asked.method, **asked.params, key=run.stand.key())
        await first.rules_done(run.stand.device(device))
        if told.ok or run.stand.device(device).unknown_op is None:
            raise NotApplicable(f"its outcome is known after the loss: {told.summary}")
    finally:
        await first.close()
    second = await Engine.start(board, directory, time, allow_unsafe=True)
    try:
        run = _run(Stand(second, time), device, name)
        await second.rules_done(run.stand.device(device))
        written = {one.register: run.stand.executed(device, one.register, "write") for one in run.sequence.relock}
    finally:
        await second.close()
    wrong = [f"{register} was written {n} times" for register, n in written.items() if n != 1]
    ensure(not wrong, "after a start with it unknown, " + "; ".join(wrong))
    ensure(run.locked(), "it was not locked")
    return f"{', '.join(written)} written once at the next start"


def _run(stand: Stand, device: str, name: str) -> Run:
    return Run(stand, device, stand.device(device).contract.sequences[name])
