"""Daemons that do not keep what they promise: each takes one guard away, for checks that must notice."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

from hwtool import keyed
from hwtool.config import Board
from hwtool.engine import Engine
from hwtool.outcome import Verdict
from hwtool.resolve import Resolved
from hwtool.worker import BusWorker
from hwtool_contracts.judge_write import UpdateJudgement, judge_update
from hwtool_contracts.messages import Result
from hwtool_contracts.model import Contract, Register
from hwtool_registers.bits import to_bytes
from hwtool_registers.bus import Ambiguous, Answer, RegisterRead, Transfer
from hwtool_registers.plan import plan_block_read, plan_read
from hwtool_registers.steps import Plan, Role

Sabotage = Callable[[pytest.MonkeyPatch], None]


def repeats(patch: pytest.MonkeyPatch) -> None:
    real = BusWorker.send_once

    async def twice(worker: BusWorker, transfer: Transfer) -> Answer:
        answer = await real(worker, transfer)
        if isinstance(answer, Ambiguous):
            await worker.clock.sleep(0.1)  # a memory has done writing by then
            worker.bus.perform(transfer)
        return answer

    patch.setattr(BusWorker, "send_once", twice)


def forgets(patch: pytest.MonkeyPatch) -> None:
    async def nothing(*_: object) -> None:
        return None

    patch.setattr(keyed.KeyedOperations, "_look_up", nothing)


def saying(verdict: Any, effects: Any) -> Sabotage:
    def lies(patch: pytest.MonkeyPatch) -> None:
        patch.setattr("hwtool.recovery.decide", lambda *_: Verdict(verdict, effects, "a lie"))

    return lies


def merges_wrongly(patch: pytest.MonkeyPatch) -> None:
    def update(register: Any, judged: Any, current: Any, changes: Any) -> int:
        held = current if current is not None else 0
        for name, part in changes.items():
            held = register.fields[name].placed(part) | held & ~register.fields[name].mask
        return held

    real = judge_update

    def reads_all(contract: Any, register: Any, *rest: Any) -> Any:
        judged = real(contract, register, *rest)
        return replace(judged, from_current=register.mask) if isinstance(judged, UpdateJudgement) else judged

    patch.setattr("hwtool.resolve.judge_update", reads_all)
    patch.setattr("hwtool.prepare.updated_value", update)


def remembers_reads(patch: pytest.MonkeyPatch) -> None:
    real, kept = Engine.call, dict[str, Result]()

    async def call(engine: Engine, caller: Any, method: str, params: Any, *rest: Any) -> Result:
        if method != "reg.read":
            return await real(engine, caller, method, params, *rest)
        name = str(params)
        if name not in kept or not kept[name].ok:
            kept[name] = await real(engine, caller, method, params, *rest)
        return kept[name]

    patch.setattr(Engine, "call", call)


def believes(patch: pytest.MonkeyPatch) -> None:
    patch.setattr("hwtool.carry_out.conclude", lambda *_: Verdict("applied", "applied", "believed"))


def tramples(patch: pytest.MonkeyPatch) -> None:
    def update(register: Any, judged: Any, current: Any, changes: Any) -> int:
        return sum(register.fields[name].placed(part) for name, part in changes.items())

    patch.setattr("hwtool.prepare.updated_value", update)


def writes_zeros_and_believes(patch: pytest.MonkeyPatch) -> None:
    patch.setattr("hwtool_registers.plan.to_bytes", lambda register, _: bytes(register.size_bytes))
    believes(patch)


def tells_something_else(patch: pytest.MonkeyPatch) -> None:
    patch.setattr("hwtool.devices.pieces_of", lambda plan, *_: {piece.register: [0x5A] for piece in plan.pieces})


def talks(patch: pytest.MonkeyPatch) -> None:
    patch.setattr(Resolved, "sensitive", property(lambda _: False))


def waves_through(patch: pytest.MonkeyPatch) -> None:
    async def nobody(*_: object) -> tuple[str, ...]:
        return ()

    patch.setattr("hwtool.keyed.approval_of", nobody)


def loses_its_store(patch: pytest.MonkeyPatch) -> None:
    real, lives = Engine.start.__func__, []  # type: ignore[attr-defined]

    async def start(board: Board, directory: Path, *rest: Any, **more: Any) -> Engine:
        lives.append(directory)
        engine: Engine = await real(Engine, board, directory / str(len(lives)), *rest, **more)
        return engine

    patch.setattr("hwtool.checks.board.Engine.start", start)


def bridges(patch: pytest.MonkeyPatch) -> None:
    """A read of several registers goes on over the gaps between them."""

    def wide(contract: Contract, address: int, registers: Sequence[Register], known: Mapping[str, int]) -> Plan:
        plan = plan_block_read(contract, address, registers, known)
        size = registers[-1].offset + registers[-1].size_bytes - registers[0].offset
        steps = tuple(
            replace(s, transfer=replace(s.transfer, size_bytes=size))
            if s.role is Role.ACCESS and isinstance(s.transfer, RegisterRead)
            else s
            for s in plan.steps
        )
        return replace(plan, steps=steps)

    patch.setattr("hwtool.devices.plan_block_read", wide)
    patch.setattr("hwtool.devices.Device._follows", lambda *_: True)


def one_by_one(patch: pytest.MonkeyPatch) -> None:
    """A group that is one transfer is read by several."""
    patch.setattr("hwtool.devices.plan_block_read", plan_read)


def backwards(patch: pytest.MonkeyPatch) -> None:
    """A group is read from its last member on."""
    patch.setattr("hwtool.devices.plan_read", lambda c, a, registers, *rest: plan_read(c, a, registers[::-1], *rest))


def knows_no_pages(patch: pytest.MonkeyPatch) -> None:
    """A write goes on over the end of a page, and what it did is not looked at."""
    patch.setattr("hwtool_registers.plan._pages", lambda _, data: [(0, data)])
    believes(patch)


def writes_one_byte_more(patch: pytest.MonkeyPatch) -> None:
    """A write of a few bytes takes the next one along."""

    def longer(register: Register, raw: int) -> bytes:
        return to_bytes(register, raw) + (b"\x00" if register.page_bytes else b"")

    patch.setattr("hwtool_registers.plan.to_bytes", longer)
    patch.setattr("hwtool_registers.plan._pages", lambda _, data: [(0, data)])


def holds_nothing(patch: pytest.MonkeyPatch) -> None:
    """A device in doubt takes more."""
    patch.setattr("hwtool.devices.Device.held", lambda _: None)


def reads_anything(patch: pytest.MonkeyPatch) -> None:
    """No read is refused as a clean one."""
    patch.setattr("hwtool.resolve.refuse_as_clean", lambda *_: None)


def unlocks_everything(patch: pytest.MonkeyPatch) -> None:
    """What is written in its sequence alone is written by itself."""
    patch.setattr("hwtool.resolve._check_unlocked", lambda *_: None)


def forgets_the_last_step(patch: pytest.MonkeyPatch) -> None:
    """A sequence ends before its last step."""
    from hwtool.steps import _named

    def shorter(devices: Any, params: Any) -> Any:
        steps, result, named = _named(devices, params)
        return steps[:-1], result, named

    patch.setattr("hwtool.steps._named", shorter)


def never_relocks(patch: pytest.MonkeyPatch) -> None:
    """What a dead daemon left unlocked stays so."""

    async def nothing(*_: object) -> None:
        return None

    patch.setattr("hwtool.engine.relock", nothing)
