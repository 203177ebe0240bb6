"""Playing a scenario: step by step, each compared with what must come of it, and told as the findings of a check."""

from __future__ import annotations

import asyncio
import contextlib
import tempfile
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Final

import msgspec

from hwtool.checks.findings import Finding, Outcome, Report
from hwtool.checks.scenario import Life, Scenario, Step, mismatches
from hwtool.checks.simulated import IN_MEMORY
from hwtool.checks.stage import Stage, Wrong
from hwtool_sim.chip import Chip
from hwtool_sim.script import plan

SOME: Final = "some"


async def _play(stage: Stage, step: Step) -> str:
    """Do one step and compare; answers what was counted.

    Raises:
        Wrong: something is not as expected.
    """
    executed, sent = stage.executed(), stage.sent()
    for _ in range(step.repeat):
        await _do(stage, step)
    await stage.settled()
    more = stage.executed()
    more.subtract(executed)
    new = {name: count for name, count in more.items() if count}
    wrong = list(_unseen(stage, step, new, stage.traffic(sent)))
    if wrong:
        raise Wrong("; ".join(wrong))
    return ", ".join(f"{count} × {name}" for name, count in new.items()) or "nothing executed"


async def _do(stage: Stage, step: Step) -> None:
    if step.control is not None:
        stage.control(dict(step.control))
    if step.fault is not None:
        stage.fault(dict(step.fault))
    stage.time.advance(step.pass_s)
    if step.daemon is Life.RESTART:
        await stage.restart()
    elif step.daemon is Life.KILL:
        await stage.kill()
    results = await asyncio.gather(*(stage.call(call) for call in step.calls))
    for call, result in zip(step.calls, results, strict=True):
        wrong = list(mismatches(call.expect or {}, msgspec.to_builtins(result)))
        if wrong:
            raise Wrong(f"{call.method}: " + "; ".join(wrong))


def _unseen(stage: Stage, step: Step, executed: dict[str, int], traffic: list[str]) -> Iterator[str]:
    seen = step.seen
    if seen.executed is not None and not _agree(seen.executed, executed):
        yield f"executed {executed or 'nothing'}, and should be {dict(seen.executed) or 'nothing'}"
    if seen.traffic is not None and list(seen.traffic) != traffic:
        yield f"traffic {traffic}, and should be {list(seen.traffic)}"
    for name, wanted in (seen.holds or {}).items():
        held = _held(stage, name)
        if held != wanted:
            told = [hex(v) if isinstance(v, int) else repr(v) for v in (held, wanted)]
            yield f"{name} holds {told[0]}, and should hold {told[1]}"
    for name, elements in (seen.fifos or {}).items():
        chip, register = _place(stage, name)
        if register not in chip.fifos:
            raise Wrong(f"{register!r} is no FIFO of {chip.contract.part}")
        waiting = list(chip.fifos[register])
        if waiting != elements:
            yield f"in {name} wait {waiting}, and should be {elements}"
    for name, count in (seen.pulses or {}).items():
        chip, register = _place(stage, name)
        if register not in chip.contract.registers:
            raise Wrong(f"{chip.contract.part} has no register {register!r}")
        if chip.pulses[register] != count:
            yield f"{name} fired {chip.pulses[register]} times, and should have {count}"


def _agree(wanted: Mapping[str, int | str], executed: Mapping[str, int]) -> bool:
    return set(wanted) == set(executed) and all(count in (SOME, executed[name]) for name, count in wanted.items())


def _place(stage: Stage, name: str) -> tuple[Chip, str]:
    device, _, register = name.partition(".")
    return stage.chip(device), register


def _held(stage: Stage, name: str) -> int | str:
    """What a register holds; of a memory, from an offset on, as hex as long as a byte."""
    chip, register = _place(stage, name)
    memory, bracket, at = register.partition("[")
    if bracket and memory in chip.memories:
        with contextlib.suppress(ValueError):
            first = int(at.rstrip("]"), 0)
            if 0 <= first < len(chip.memories[memory].cells):
                return chip.memories[memory].cells[first : first + 1].hex()
        raise Wrong(f"{chip.contract.part} has no cell {register!r}")
    if register not in chip.values:
        raise Wrong(f"{chip.contract.part} has no register {register!r}")
    chip.catch_up(stage.time.monotonic_s())
    return chip.held(chip.contract.registers[register])


async def _played(scenario: Scenario, directory: Path) -> list[Finding]:
    stage, found, broken = Stage(scenario, directory), list[Finding](), ""
    for name, bus in stage.bench.buses.items():
        bus.begin(scenario.script.seed or 0, name)
    plan(scenario.script, stage.bench)
    await stage.begin()
    try:
        for step in scenario.steps:
            place = f"{scenario.name}.step {step.number}" + (f" ({step.say})" if step.say else "")
            if broken:
                found.append(Finding(place, step.told, "scenario", Outcome.NOT_APPLICABLE, broken))
                continue
            try:
                told = await _play(stage, step)
            except Wrong as wrong:
                broken = f"step {step.number} went wrong before it"
                timeline = (*stage.lines, *(f"bus: {line}" for line in stage.traffic(dict.fromkeys(stage.sent(), 0))))
                found.append(Finding(place, step.told, "scenario", Outcome.FAILED, str(wrong), timeline))
                continue
            if step.expects:
                found.append(Finding(place, step.told, "scenario", Outcome.HELD, told))
    finally:
        await stage.end()
    return found


def play(scenario: Scenario) -> list[Finding]:
    """Play one scenario."""
    place = IN_MEMORY if IN_MEMORY.is_dir() else None
    with tempfile.TemporaryDirectory(prefix="hwtool-scenario-", dir=place) as directory:
        return asyncio.run(_played(scenario, Path(directory)))


def play_all(name: str, scenarios: list[Scenario]) -> Report:
    """Play scenarios, one after the other."""
    return Report(name, [finding for scenario in scenarios for finding in play(scenario)])
