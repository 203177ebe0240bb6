"""Sequences: a header operation, and one ordinary operation per step with an effect, stopped at the first not proven.

The header gets its intent in the first step's T1 and its outcome in the last step's T2; steps are `<key>#<n>`. The
sequence has the turn of every device it touches from its first step to its last, so that nobody gets in between but a
safe state, which ends it. After a crash no further step is ever begun: the header is unknown until its last begun step
is settled, and is then ended by rule (hwtool.recovery).
"""

from __future__ import annotations

import asyncio
import contextlib
from typing import Any, Final

import msgspec

from hwtool.admission import Request, check_stopped, check_time, overtaken_by_safe_state, part_of
from hwtool.budget import check_left
from hwtool.devices import Device
from hwtool.execution import Execution, check_shown, enter, leave, take_turn, wait_for_the_bus
from hwtool.generation import parts_of_chip, refresh_boot
from hwtool.headers import Header, StepPart
from hwtool.journal import REDACTED
from hwtool.outcome import sequence_verdict
from hwtool.pending import no_longer_granted
from hwtool.permission import take_rate
from hwtool.prepare import looked_up
from hwtool.reading import values_of
from hwtool.rehearsal import plan_digest, rehearsed
from hwtool.results import failed, shown_value
from hwtool.runs import Runs
from hwtool.state import Daemon
from hwtool.steps import ResolvedSequence, Step, sequence_content
from hwtool_contracts.errors import Code, DomainError
from hwtool_contracts.judge import ReadJudgement
from hwtool_contracts.messages import Result
from hwtool_registers.bits import hexed
from hwtool_store.operations import OpRow

LONGEST_PAUSE_S: Final = 0.05  # of a wait between two looks, before it is asked whether something stops it


class Sequences:
    """Runs sequences that are allowed and, where needed, approved."""

    def __init__(self, daemon: Daemon, execution: Execution) -> None:
        self._daemon = daemon
        self._execution = execution

    async def run(self, request: Request, sequence: ResolvedSequence, row: OpRow | None) -> Result:
        """Take the turn of every device, in an order that no two sequences can lock each other in, and go.

        Raises:
            DomainError: no step with an effect was begun; the key is unused.
        """
        entered: list[Device] = []
        taken: list[Device] = []
        try:
            for device in sequence.devices:
                enter(device, request.caller.principal)
                entered.append(device)
            left_ms = await wait_for_the_bus(self._daemon, request, sequence.devices[0])
            await self._take_turns(request, sequence, taken, left_ms)
            check_stopped(self._daemon, request, sequence.devices)
            await self._execution.check_reloaded(request, sequence, row)
            await Runs(self._daemon).check(request.caller, request.run, effectful=True, begins=True)
            for device in sequence.devices:
                device.worker.check()
                await device.worker.present()
                await refresh_boot(self._daemon, device)
            if row is not None:
                ended = await no_longer_granted(self._daemon, row)
                if ended is not None:
                    return ended
                check_shown(row, plan_digest((await rehearsed(sequence)).prepared))
            if row is None and not request.approval:
                await check_left(self._daemon, sequence)
            now_s = self._daemon.clock.monotonic_s()
            take_rate(self._daemon.rates, self._daemon.board.policy, request.caller, sequence, now_s)
            generations = {d.name: d.generation for d in sequence.devices}
            return await self._go(Header(self._daemon, request, sequence, row, generations))
        finally:
            for device in reversed(taken):
                device.lock.release()
            for device in entered:
                leave(device, request.caller.principal)

    async def _take_turns(
        self, request: Request, sequence: ResolvedSequence, taken: list[Device], left_ms: int | None
    ) -> None:
        """Take the turn of each device; a safe state of one that is taken already ends the waiting for the next.

        `left_ms`: what is left of `queue_ms` for all of them together.

        Raises:
            DomainError: busy.
        """
        for device in sequence.devices:
            if request.overtaken():
                raise overtaken_by_safe_state()
            since_s = self._daemon.clock.monotonic_s()
            turn = asyncio.ensure_future(take_turn(device, left_ms))
            alarms = [asyncio.ensure_future(d.lock.alarmed()) for d in taken]
            try:
                await asyncio.wait({turn, *alarms}, return_when=asyncio.FIRST_COMPLETED)
                if not turn.done():
                    raise overtaken_by_safe_state()
                turn.result()
                taken.append(device)
                waited_ms = round(1000 * (self._daemon.clock.monotonic_s() - since_s))
                left_ms = None if left_ms is None else max(0, left_ms - waited_ms)
            finally:
                for waiting in (turn, *alarms):
                    waiting.cancel()
                with contextlib.suppress(asyncio.CancelledError, DomainError):
                    await turn

    async def _go(self, header: Header) -> Result:
        sequence = header.sequence
        for index, step in enumerate(sequence.steps):
            try:
                check_stopped(self._daemon, header.request, sequence.devices)
                if step.keyed is None:
                    await self._clean(header, step)
                    continue
                ended = await self._ended_grant(header, index)
                if ended is not None:
                    return ended
                result = await self._effectful(header, step, last=index + 1 == len(sequence.steps))
            except DomainError as error:  # nothing of this step was sent
                if header.op_id is None:
                    error.message = f"{step.name()}: {error.message}"
                    raise
                return await self._stop(header, (step, error.as_object()))
            except Exception as error:  # a defect: what was begun must be ended all the same
                if header.op_id is None:
                    raise
                defect = DomainError(Code.INTERNAL, f"{type(error).__name__}: {error}")
                return await self._stop(header, (step, defect.as_object()))
            if header.result is not None or _unrecorded(result):
                return self._answer(header, step, result)
        return await self._stop(header, None)

    async def _ended_grant(self, header: Header, index: int) -> Result | None:
        """What the request answers if its grant did not last over the clean steps before the first effect."""
        if header.row is None or header.op_id is not None or index == 0:
            return None  # nobody had to approve it, the grant is consumed, or it was looked at just now
        ended = await no_longer_granted(self._daemon, header.row)
        if ended is None:
            check_shown(header.row, plan_digest((await rehearsed(header.sequence)).prepared))
        return ended

    async def _effectful(self, header: Header, step: Step, *, last: bool) -> Result:
        if step.keyed is None or step.params is None:
            raise DomainError(Code.INTERNAL, f"{step.name()} has no request")
        content = sequence_content(ResolvedSequence((step,)))["steps"][0]
        part = StepPart(header, step, last)
        if header.op_id is None:
            header.about_to_begin()
        params = msgspec.structs.replace(step.params, generation=header.generations[step.device.name])
        request = part_of(self._daemon, header.request, step.keyed, params, content)
        result = await self._execution.at_the_head(request, step.keyed, None, part)
        header.op_id = part.begun
        if any(c.judged.resets for c in step.keyed.changes):
            for device in parts_of_chip(self._daemon, step.device):  # told to restart: later steps go on with it
                header.generations[device.name] = device.generation
        return result

    async def _clean(self, header: Header, step: Step) -> None:
        """A step that reads: its value, or that it is as expected, at once or in time.

        Raises:
            DomainError: precondition_failed, the bus's error, or what stops the sequence.
        """
        clock, device = self._daemon.clock, step.device
        deadline_s = clock.monotonic_s() + step.timeout_ms / 1000
        groups = [] if step.group is None else [step.group]
        while True:
            check_time(self._daemon, header.request, after_intent=False)
            values, _ = await values_of(device, [] if groups else list(step.registers), groups)
            if step.do == "read":
                told = await looked_up(device, step.registers)
                for register in step.registers:
                    judged = device.judge((register,))
                    known = judged if isinstance(judged, ReadJudgement) else None
                    shown = shown_value(device.name, register, values[register.name], known, told)
                    header.values.append(shown | {"step": step.number})
                header.tell(step, "read")
                return
            (register,) = step.registers
            seen = values[register.name]
            if seen & step.mask == step.wanted:
                header.tell(step, f"{register.name} reads {hexed(seen, register.width_bits)}")
                return
            rest_s = deadline_s - clock.monotonic_s()
            if step.do == "expect" or rest_s <= 0:
                wanted, observed = (
                    REDACTED if register.sensitive else hexed(v, register.width_bits)
                    for v in (step.wanted, seen & step.mask)
                )
                within = f" within {step.timeout_ms} ms" if step.do == "wait_until" else ""
                raise DomainError(
                    Code.PRECONDITION_FAILED,
                    f"{device.name}.{register.name} is {observed}, not {wanted}{within}",
                    expected={register.name: wanted},
                    observed={register.name: observed},
                )
            await self._pause(header, min(step.interval_ms / 1000, rest_s))

    async def _pause(self, header: Header, seconds: float) -> None:
        """Wait between two looks; a hold, a freeze, a safe state or a stop of the daemon ends it soon.

        Raises:
            DomainError: one of them.
        """
        clock = self._daemon.clock
        until_s = clock.monotonic_s() + seconds
        while (rest_s := until_s - clock.monotonic_s()) > 0:
            await clock.sleep(min(rest_s, LONGEST_PAUSE_S))
            check_stopped(self._daemon, header.request, header.sequence.devices)

    async def _stop(self, header: Header, stopped: tuple[Step, dict[str, Any]] | None) -> Result:
        """End a header outside a step's transaction: after a clean step, its last or one that did not hold."""
        verdict, result = header.ended(stopped)
        self._daemon.dressed(result)
        try:
            await self._daemon.ask(lambda conn: header.finish(conn, verdict, result))
        except DomainError as error:
            result.durable = False
            result.error = error.as_object()
            result.status, result.ok = "failed", False
        self._daemon.tell()
        return result

    def _answer(self, header: Header, step: Step, result: Result) -> Result:
        """What the caller gets when a step's transaction has ended the header, or could not."""
        if header.result is not None and not _unrecorded(result):
            return header.result
        header.learn(step, None, result)  # what was observed is answered even if it cannot be recorded
        effects = sequence_verdict(header.outcomes, complete=False).effects
        error = DomainError(Code.STORE_FAILED, result.summary, detail="the outcome could not be recorded")
        evidence, values = header.evidence(), header.values or None
        lost = failed(error, effects, id=header.op_id, evidence=evidence, values=values, simulated=header.simulated)
        lost.durable = False
        return lost


def _unrecorded(result: Result) -> bool:
    return result.error is not None and result.error["code"] == Code.STORE_FAILED
