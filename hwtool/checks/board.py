"""The checks of a user's board: each guarantee at each register, on simulated chips made from the same contracts."""

from __future__ import annotations

import asyncio
import tempfile
import traceback
from collections.abc import AsyncIterator, Awaitable, Callable, Iterator
from functools import partial
from pathlib import Path

from hwtool.checks import groups, memories, named, reads, writes
from hwtool.checks.case import Case
from hwtool.checks.findings import Finding, Outcome, Report
from hwtool.checks.locked import relocked_after_death, stays_locked
from hwtool.checks.samples import Sample, sample_of
from hwtool.checks.simulated import IN_MEMORY, OwnTime, simulated
from hwtool.checks.stand import Broken, NotApplicable, Remembered, Stand, ensure
from hwtool.config import Board
from hwtool.engine import Engine
from hwtool_contracts.judge import Refused
from hwtool_contracts.judge_write import WriteJudgement, judge_write
from hwtool_contracts.lint import of_contract
from hwtool_contracts.model import Field, Register


async def _outcome(body: Callable[[], Awaitable[str]]) -> tuple[Outcome, str]:
    """What becomes of a case: it held, does not apply, or failed, whatever it was."""
    try:
        return Outcome.HELD, await body()
    except NotApplicable as why:
        return Outcome.NOT_APPLICABLE, str(why)
    except Broken as why:
        return Outcome.FAILED, str(why)
    except Exception as error:  # noqa: BLE001  # whatever it is, the case did not hold, and the others go on
        return Outcome.FAILED, "".join(traceback.format_exception_only(error)).strip()


async def _judged(stand: Stand, device: str, case: Case) -> Finding:
    """One case on a fresh chip."""

    async def body() -> str:
        await stand.fresh(device)
        return await case.body()

    outcome, told = await _outcome(body)
    timeline = stand.timeline(device) if outcome is Outcome.FAILED else ()
    return Finding(case.place, case.effect, case.guarantee, outcome, told, timeline)


async def _of_reads(stand: Stand, device: str, register: Register) -> AsyncIterator[Finding]:
    place = f"{device}.{register.name}"
    effect, kept = reads.guarantees_of(stand, device, register)
    if not kept:
        yield Finding(place, "read", "clean", Outcome.NOT_APPLICABLE, "its contract lets nobody read it")
    for name, guarantee in kept.items():
        body = partial(guarantee, stand, device, register)
        yield await _judged(stand, device, Case(place, f"read {effect}", name, body))


def _samples(stand: Stand, device: str, register: Register) -> list[tuple[Field | None, Sample]]:
    found = []
    held = stand.chip(device).values[stand.named(device, register.name)]
    for part in (*register.fields.values(), None):
        sample = sample_of(device, stand.device(device), register, part, held)
        if sample is not None:
            found.append((part, sample))
    return found


def _unsampled(
    stand: Stand, device: str, register: Register, sampled: list[Field | None]
) -> Iterator[tuple[Field | None, str]]:
    """The fields, or the register, that nothing is written to here, and why."""
    contract = stand.device(device).contract
    assumed = {a.field for a in contract.assumes if a.register == register.name}
    fields = [f for f in register.fields.values() if f.access.writable and f.reserved is None]
    places: list[Field | None] = [f for f in fields if f not in sampled]
    if not fields and None not in sampled:
        places.append(None)
    for part in places:
        if part is not None and part.name in assumed:
            yield part, "its contract assumes what it holds"
            continue
        fields_of = None if part is None else frozenset({part.name})
        judged = judge_write(contract, register, 1 if part is None else part.placed(1), fields_of)
        why = judged.message if isinstance(judged, Refused) else "no two values were found that may be written"
        yield part, why


async def _of_writes(stand: Stand, device: str, register: Register) -> AsyncIterator[Finding]:
    await stand.fresh(device)
    samples = _samples(stand, device, register)
    for part, why in _unsampled(stand, device, register, [part for part, _ in samples]):
        place = f"{device}.{register.name}" + ("" if part is None else f".{part.name}")
        yield Finding(place, f"write {(part or register).write.effect.value}", "done", Outcome.NOT_APPLICABLE, why)
    for part, sample in samples:
        place, effect = sample.place(part), f"write {sample.effect.value}"
        judged = writes.judged_of(stand, sample, part)
        if isinstance(judged, WriteJudgement) and judged.unlock:  # what it keeps is for its sequence to show
            yield await _judged(
                stand, device, Case(place, effect, "stays_locked", partial(stays_locked, stand, sample))
            )
            continue
        for name, guarantee in writes.GUARANTEES.items():
            body = partial(_written, stand, sample, part, guarantee)
            yield await _judged(stand, device, Case(place, effect, name, body))


async def _written(stand: Stand, sample: Sample, part: Field | None, guarantee: writes.Guarantee) -> str:
    writes.prepare(stand, sample, part)
    return await guarantee(stand, sample, part)


def _of_contract(stand: Stand, device: str) -> list[Finding]:
    """What the lint of the contract says, as findings."""
    return [
        Finding(f"{device}.{found.place}", found.rule, "loads_well", Outcome.FAILED, found.text)
        for found in of_contract(stand.device(device).contract)
    ]


async def _kept(stand: Stand, remembered: list[Remembered]) -> AsyncIterator[Finding]:
    """What another life of the daemon answers."""
    for one in remembered:
        device = one.place.partition(".")[0]
        body = partial(_answered, stand, device, one)
        yield await _judged(stand, device, Case(one.place, one.effect, "value_kept", body))


async def _answered(stand: Stand, device: str, one: Remembered) -> str:
    before = sum(stand.chip(device).executed.values())
    again = await stand.effect(one.method, **one.params)
    more = sum(stand.chip(device).executed.values()) - before
    ensure(more == 0, f"{more} executed after the restart")
    ensure(again.replayed and again.values == one.result.values, "answered otherwise after the restart")
    return "replayed after a restart, 0 executed"


async def _of_several(stand: Stand, device: str) -> AsyncIterator[Finding]:
    """What is no single register: groups, memories, sequences."""
    contract = stand.device(device).contract
    found = [case for group in contract.groups.values() for case in groups.cases(stand, device, group)]
    found += [case for memory in contract.memories.values() for case in memories.cases(stand, device, memory)]
    found += [case for sequence in contract.sequences.values() for case in named.cases(stand, device, sequence)]
    for case in found:
        yield await _judged(stand, device, case)


async def _deaths(board: Board, directory: Path) -> AsyncIterator[Finding]:
    """What a death of the daemon in a sequence that unlocks something leads to; each on a store of its own."""
    for device, spec in board.devices.items():
        for number, sequence in enumerate(spec.contract.sequences.values()):
            if sequence.relock:
                inside = directory / f"{device}-{number}"
                outcome, told = await _outcome(partial(relocked_after_death, board, inside, device, sequence.name))
                yield Finding(f"{device}.{sequence.name}", "sequence", "relocked", outcome, told)


async def _run(board: Board, directory: Path) -> Report:
    time, found = OwnTime(), list[Finding]()
    stand_on = simulated(board)
    engine = await Engine.start(stand_on, directory, time, allow_unsafe=True)
    try:
        stand = Stand(engine, time)
        for name in engine.daemon.devices:
            found += _of_contract(stand, name)
            for register in stand.device(name).contract.registers.values():
                if register.access.readable:
                    found += [finding async for finding in _of_reads(stand, name, register)]
                if register.access.writable:
                    found += [finding async for finding in _of_writes(stand, name, register)]
            found += [finding async for finding in _of_several(stand, name)]
            await stand.fresh(name)
        remembered = stand.remembered
    finally:
        await engine.close()
    engine = await Engine.start(stand_on, directory, time, allow_unsafe=True)
    try:
        found += [finding async for finding in _kept(Stand(engine, time), remembered)]
    finally:
        await engine.close()
    found += [finding async for finding in _deaths(stand_on, directory)]
    return Report(board.name, found)


def check_board(board: Board) -> Report:
    """Check a board."""
    place = IN_MEMORY if IN_MEMORY.is_dir() else None
    with tempfile.TemporaryDirectory(prefix="hwtool-check-", dir=place) as directory:
        return asyncio.run(_run(board, Path(directory)))
