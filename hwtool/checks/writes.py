"""What each write must keep, checked on one register or field: the guarantees of writes, as functions of the stand."""

from __future__ import annotations

from collections.abc import Awaitable, Callable, Mapping
from functools import partial
from typing import Final

from hwtool.checks.asked import Asked, once_only, other_refused, unapproved_never
from hwtool.checks.outcomes import loss_told, settled_truly, unknown_held
from hwtool.checks.samples import Sample
from hwtool.checks.secret import secret_of, stays_out
from hwtool.checks.stand import CLEARS, ON_ZEROS, SETS, TOGGLES, UNSENT, NotApplicable, Stand, ensure
from hwtool_contracts.effects import ReadEffect, WriteEffect
from hwtool_contracts.errors import Code
from hwtool_contracts.judge import Refused
from hwtool_contracts.judge_write import WriteJudgement, judge_write
from hwtool_contracts.model import Field

FIRES: Final = frozenset(  # the chip counts these as set off
    {
        WriteEffect.PULSE,
        WriteEffect.SELF_CLEARING,
        WriteEffect.COMMAND,
        WriteEffect.PUSH,
        WriteEffect.ADVANCE,
        WriteEffect.MODIFY,
        WriteEffect.UNKNOWN,
    }
)
Guarantee = Callable[[Stand, Sample, Field | None], Awaitable[str]]


def judged_of(stand: Stand, sample: Sample, part: Field | None) -> WriteJudgement | Refused:
    """What the contract says of the sample."""
    contract = stand.device(sample.device).contract
    if "value" in sample.params:
        return judge_write(contract, sample.register, int(sample.params["value"], 0))
    if part is None:
        raise NotApplicable("neither a value nor a field")
    value = part.placed(sample.params["fields"][part.name])
    return judge_write(contract, sample.register, value, frozenset({part.name}))


def prepare(stand: Stand, sample: Sample, part: Field | None) -> None:
    """Open what a write needs open."""
    judged = judged_of(stand, sample, part)
    if not isinstance(judged, Refused):
        stand.open_gates(sample.device, judged.gates, sample.register)
    stand.charge(sample.device, sample.register, part, sample.effect, _acting(sample, part))


def _acting(sample: Sample, part: Field | None) -> int:
    """The bits that the write acts on: its ones, or its zeros, or all."""
    register = sample.register
    span = register.mask if part is None else part.mask
    if sample.effect in (WriteEffect.CLEAR, WriteEffect.SET):
        return span
    if "value" in sample.params:
        raw = int(sample.params["value"], 0)
    else:
        raw = 0 if part is None else part.placed(sample.params["fields"][part.name])
    return span & (~raw if sample.effect in ON_ZEROS else raw)


def _approval(stand: Stand, sample: Sample, part: Field | None) -> bool:
    judged = judged_of(stand, sample, part)
    return not isinstance(judged, Refused) and bool(judged.approval)


def _wanted(sample: Sample, part: Field | None) -> int | None:
    """What the device must hold afterwards, of plain stores."""
    if sample.effect is not WriteEffect.STORE:
        return None
    if part is None:
        return int(sample.params["value"], 0)
    return int(sample.params["fields"][part.name]) if "fields" in sample.params else None


async def done(stand: Stand, sample: Sample, part: Field | None) -> str:
    """A write is done, and the device holds what was asked for."""
    before = stand.chip(sample.device).values[stand.taken_by(sample.device, sample.register.name)]
    with stand.counting(sample.device, sample.register.name, "write") as executed:
        told = await stand.done_undisturbed(sample.method, **sample.params, key=stand.key())
    ensure(executed[0] >= 1 or told.verdict == "satisfied", f"{told.verdict}, and nothing was executed")
    held = stand.chip(sample.device).values[stand.taken_by(sample.device, sample.register.name)]
    wanted = _wanted(sample, part)
    now = held if part is None else part.taken(held)
    if wanted is not None and sample.register.write.commit_by is None:
        ensure(now == wanted, f"it holds {now:#x}, asked for was {wanted:#x}")
    bits = _acting(sample, part)
    if sample.effect in CLEARS and not sample.register.read.effects - {ReadEffect.NONE}:
        ensure(not held & bits, f"it holds {held:#x}, and {bits:#x} was to be cleared")
    elif sample.effect in SETS:
        ensure(held & bits == bits, f"it holds {held:#x}, and {bits:#x} was to be set")
    elif sample.effect in TOGGLES:
        ensure((held ^ before) & bits == bits, f"it held {before:#x} and holds {held:#x}; {bits:#x} was to be toggled")
    return f"{told.verdict}, {executed[0]} executed"


def _asked(sample: Sample) -> Asked:
    return Asked(sample.device, ((sample.register.name, "write"),), sample.method, sample.params)


async def once(stand: Stand, sample: Sample, part: Field | None) -> str:
    """Three times under one key it is executed once."""
    first, executed, key = await once_only(stand, _asked(sample))
    stand.remember(
        sample.place(part), f"write {sample.effect.value}", sample.method, sample.params | {"key": key}, first
    )
    return f"{executed} executed, replayed twice"


async def other_request(stand: Stand, sample: Sample, part: Field | None) -> str:
    """The same key with another value is refused, and nothing is sent."""
    if sample.other is None:
        raise NotApplicable("there is no other value that may be written")
    return await other_refused(stand, _asked(sample), sample.method, sample.other)


async def told_when_lost(stand: Stand, sample: Sample, part: Field | None) -> str:
    """A lost reply is told as unknown, and no retry executes it again."""
    return await loss_told(stand, _asked(sample))


async def held_when_unknown(stand: Stand, sample: Sample, part: Field | None) -> str:
    """While its outcome is unknown the device takes no other effect."""
    return await unknown_held(stand, _asked(sample))


async def settled(stand: Stand, sample: Sample, part: Field | None) -> str:
    """What a rule settles is what the device has counted; else a person does."""
    return await settled_truly(stand, _asked(sample), partial(prepare, stand, sample, part))


async def stuck_seen(stand: Stand, sample: Sample, part: Field | None) -> str:
    """A bit that does not take its value is seen."""
    wanted, register = _wanted(sample, part), sample.register
    if wanted is None or not register.access.readable:
        raise NotApplicable("what it holds cannot be read back" if wanted is not None else "no plain store")
    if register.write.commit_by is not None:
        raise NotApplicable(f"it takes effect with {register.write.commit_by}")
    chip, name = stand.chip(sample.device), stand.taken_by(sample.device, register.name)
    bits = register.mask if part is None else part.mask
    differs = (chip.values[name] ^ (wanted if part is None else part.placed(wanted))) & bits
    if not differs:
        raise NotApplicable("it holds the value already")
    one = differs & -differs
    chip.stuck[name] = (one, chip.values[name] & one)
    told = await stand.effect(sample.method, **sample.params, key=stand.key())
    code = None if told.error is None else told.error["code"]
    if told.status == "pending_approval" or code in UNSENT:
        raise NotApplicable(f"not sent, whoever asks: {code}")
    if told.ok and told.effects == "unknown":
        raise NotApplicable("nothing of it is looked at, and that is said: unverified")
    ensure(
        told.verdict == "not_applied" or code == Code.OUTCOME_UNKNOWN,
        f"bit {one.bit_length() - 1} stayed as it was, and the write was told {told.verdict}",
    )
    return f"{code}, verdict {told.verdict}"


async def neighbours_kept(stand: Stand, sample: Sample, part: Field | None) -> str:
    """An update leaves the other fields as they were."""
    if part is None or sample.method != "reg.update":
        raise NotApplicable("it is written as a whole")
    register, chip = sample.register, stand.chip(sample.device)
    if part.write.resets is not None:
        raise NotApplicable("it restarts the device")
    name = stand.taken_by(sample.device, register.name)
    others = {f.name: f for f in register.fields.values() if f.name != part.name and not f.mask & part.mask}
    assumed = {a.field for a in stand.device(sample.device).contract.assumes if a.register == register.name}
    charged = [f for f in others.values() if f.access.writable and f.reserved is None and f.name not in assumed]
    for field in charged:
        if field.write.effect is WriteEffect.STORE:
            chip.values[name] |= field.placed(0x5555_5555_5555_5555 & ((1 << field.width_bits) - 1))
        else:
            stand.charge(sample.device, register, field, field.write.effect, field.mask)
    prepare(stand, sample, part)
    before, fired = chip.values[name], chip.pulses[name]
    await stand.done_undisturbed(sample.method, **sample.params, key=stand.key())
    after = chip.values[name]
    moved = [f.name for f in others.values() if f.taken(before) != f.taken(after)]
    ensure(not moved, f"{', '.join(moved)} changed with it")
    ensure(part.write.effect in FIRES or chip.pulses[name] == fired, "it set off what stands beside it")
    return f"{len(others)} other fields as they were, {len(charged)} of them with something in them"


async def approval_asked(stand: Stand, sample: Sample, part: Field | None) -> str:
    """An agent does not get it without an approval."""
    return await unapproved_never(stand, _asked(sample), _approval(stand, sample, part))


async def secret_kept(stand: Stand, sample: Sample, part: Field | None) -> str:
    """Its values stand in nothing that others read."""
    secret = secret_of(sample.register)
    params = {"register": f"{sample.device}.{sample.register.name}", "value": hex(secret)}
    told = await stand.done_undisturbed("reg.write", **params, key=stand.key())
    return await stays_out(stand, told, secret)


GUARANTEES: Final[Mapping[str, Guarantee]] = {
    "done": done,
    "once": once,
    "other_request": other_request,
    "loss_told": told_when_lost,
    "unknown_held": held_when_unknown,
    "settled_truly": settled,
    "stuck_seen": stuck_seen,
    "neighbours_kept": neighbours_kept,
    "approval_asked": approval_asked,
    "secret_kept": secret_kept,
}
