"""The dispatch: the transfers of a committed intent, each sent once.

The seam: this file is the only one that sends transfers with an effect. It is given an `Intent`, which only a
committed T1, or the row that tells of a relock, makes and which can be spent once. There is no loop around it but that
of a plan's steps and chunks, of a safe state's entries (once more where only the channel to the device was not switched
on) and of a declared `busy_retry`, and nothing may wrap it in one.
What came of it is told by hwtool.carry_out.
"""

from __future__ import annotations

from collections.abc import Awaitable, Callable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Final

from hwtool.devices import Device
from hwtool.prepare import SafePart, looked_at_again
from hwtool_contracts.errors import DomainError
from hwtool_contracts.model import BusyRetry
from hwtool_registers.bus import NOT_SENT, Ambiguous, Answer, Confirmed, Rejected
from hwtool_registers.steps import Plan, Role, Step

Between = Callable[[list[bytes]], Awaitable[str | None]]
BUSY: Final = frozenset({"address-nack", "modbus-exception-06"})  # proofs that a device was there and busy


class SpentIntent(Exception):
    """An intent was to be dispatched a second time: a defect, stopped before the bus."""


@dataclass
class Intent:
    """A committed T1, or the committed row of a relock: the right to send one plan once."""

    op_id: int
    _spent: bool = field(default=False, init=False)

    def spend(self) -> None:
        """Use the right.

        Raises:
            SpentIntent: it has been used.
        """
        if self._spent:
            raise SpentIntent(f"operation {self.op_id} was dispatched already")
        self._spent = True


@dataclass(frozen=True)
class Dispatched:
    """How far a plan got.

    Attributes:
        answers: data of the access steps that were confirmed.
        consumed: data of the reads that verify by consuming, by register.
        stopped: the answer that ended it early, None if every access was confirmed.
        at: role of the step it stopped at.
        done: access steps confirmed.
        transfers: transfers sent.
        warnings: what went wrong without touching the outcome.
    """

    answers: list[bytes]
    stopped: Rejected | Ambiguous | None
    at: Role | None
    done: int
    transfers: int
    warnings: list[str]
    consumed: Mapping[str, list[bytes]] = field(default_factory=dict)


@dataclass
class _Progress:
    """How far a plan has got, while it is being sent."""

    answers: list[bytes] = field(default_factory=list)
    consumed: dict[str, list[bytes]] = field(default_factory=dict)
    transfers: int = 0
    warnings: list[str] = field(default_factory=list)

    def stopped(self, answer: Rejected | Ambiguous | None, at: Role | None) -> Dispatched:
        """What came of it, with the answer that ended it early."""
        done, more = len(self.answers), (self.transfers, self.warnings, self.consumed)
        return Dispatched(self.answers, answer, at, done, *more)


async def nothing_between(_: list[bytes]) -> None:
    """A plan without chunks has nothing between them."""


async def dispatch(
    intent: Intent,
    device: Device,
    plan: Plan,
    bank: Mapping[str, int],
    returns: int,
    between: Between = nothing_between,
) -> Dispatched:
    """Send a plan, each transfer once, in order, under one bus lock; of a long burst, each chunk under its own.

    `bank` is what the plan takes the selectors to hold, `returns` of the bus when the device was identified: if either
    is otherwise by now, nothing is sent.

    A selector that is not confirmed ends it before the access; a restoring write that is not confirmed puts the bank
    in doubt and is a warning.

    Args:
        between: called between two chunks, without the lock, with all answers so far; it says why no more may be taken.

    Raises:
        SpentIntent: the intent was used before.
    """
    intent.spend()
    return await _send(device, plan, bank, returns, between)


async def dispatch_safe_state(intent: Intent, device: Device, parts: Sequence[SafePart]) -> list[Dispatched]:
    """Send the entries of a safe state, each once; one that fails does not stop the later ones.

    After an ambiguous answer the line is let fall silent before the next entry.

    Raises:
        SpentIntent: the intent was used before.
    """
    intent.spend()
    sent = []
    for entry in parts:
        await device.worker.silence()
        part = await looked_at_again(entry, device)
        if part.fault is not None:
            sent.append(Dispatched([], Rejected(part.fault, NOT_SENT), Role.ACCESS, 0, 0, []))
            continue
        came = await _send(device, part.plan, part.bank, part.returns, nothing_between)
        if _lost_its_way(device, part, came):
            await device.worker.silence()
            part = await looked_at_again(entry, device)
            if part.fault is None:
                came = await _send(device, part.plan, part.bank, part.returns, nothing_between)
        sent.append(came)
    return sent


def _lost_its_way(device: Device, part: SafePart, came: Dispatched) -> bool:
    """Whether nothing was sent of an entry but the write that switches its channel on, a store that may be repeated."""
    return bool(part.plan.steps) and part.plan.steps[0] is device.way and came.transfers == 1


async def _send(device: Device, plan: Plan, bank: Mapping[str, int], returns: int, between: Between) -> Dispatched:
    """The transfers of a plan, each once, for the two functions above alone."""
    so_far = _Progress()
    for number, steps in enumerate(plan.parts):
        why = await between(so_far.answers) if number else None
        if why is not None:
            return so_far.stopped(Rejected(why, NOT_SENT), Role.ACCESS)
        async with device.on_bus:
            if device.worker.returns != returns:
                away = Rejected("the bus was away or in doubt since the device was identified", NOT_SENT)
                return so_far.stopped(away, Role.ACCESS)
            if any(device.known.get(name) != value for name, value in bank.items()):
                changed = Rejected("the bank was changed since the plan was made", NOT_SENT)
                return so_far.stopped(changed, Role.SELECT)
            ended = await _send_part(device, plan, steps, so_far)
        if ended is not None:
            return ended
    return so_far.stopped(None, None)


async def _send_part(device: Device, plan: Plan, steps: Sequence[Step], so_far: _Progress) -> Dispatched | None:
    """The transfers of one chunk, each once; the caller holds the bus. What came of all of it, if it ends early."""
    for step in steps:
        if plan.busy_retry is None:  # else the device shows by itself when it may be spoken to
            await device.on_bus.rested()  # of the access before; bank and order must not be let go meanwhile
        answer, tries = await _sent(device, step, plan.busy_retry)
        so_far.transfers += tries
        device.follow(step, answer)
        if plan.delay_after_ms and step.role is Role.ACCESS and not isinstance(answer, Rejected):
            device.on_bus.rest(plan.delay_after_ms)
        match answer, step.role:
            case Confirmed(data), Role.ACCESS:
                so_far.answers.append(data)
            case Confirmed(data), Role.CONFIRM:
                so_far.consumed.setdefault(step.register, []).append(data)
            case Confirmed(), Role.SELECT | Role.RESTORE:
                continue
            case Rejected() | Ambiguous(), Role.RESTORE:
                so_far.warnings.append(f"bank_in_doubt: {step.register} was not set back: {answer.fault}")
                break
            case Rejected() | Ambiguous(), Role.SELECT | Role.ACCESS | Role.CONFIRM:
                if step is not device.way:  # else whoever it is passed on to now would be written to
                    so_far.warnings += await device.give_back(plan, answer)
                return so_far.stopped(answer, step.role)
    return None


async def _sent(device: Device, step: Step, busy: BusyRetry | None) -> tuple[Answer, int]:
    """One transfer, sent once; again only while the bus *proves* that the device was busy and did not act.

    This is the only repeat after an intent, and only where the contract declares it; bounded, and counted.
    """
    tries = 0
    while True:
        tries += 1
        try:
            answer: Answer = await device.worker.send_once(step.transfer)
        except DomainError as error:  # the bus was shut meanwhile: this transfer was not sent
            answer = Rejected(error.message, NOT_SENT)
        if busy is None or step.role is not Role.ACCESS or tries >= busy.attempts:
            return answer, tries
        if not isinstance(answer, Rejected) or answer.proof not in BUSY:
            return answer, tries
        device.worker.retries["busy"] += 1
        await device.worker.clock.sleep(busy.interval_ms / 1000)
