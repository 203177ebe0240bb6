"""What each read must keep, checked on one register: the guarantees of reads, as functions of the stand.

Each answers what was counted. Deleting what a guarantee stands for in the daemon has to make one of them fail.
"""

from __future__ import annotations

from collections.abc import Awaitable, Callable, Mapping
from functools import partial
from typing import Final

from hwtool.checks.asked import Asked, once_only, other_refused, unapproved_never
from hwtool.checks.merging import burst_once, not_merged
from hwtool.checks.outcomes import loss_told, settled_truly, unknown_held
from hwtool.checks.rig import OPERATOR
from hwtool.checks.secret import secret_of, stays_out
from hwtool.checks.stand import NotApplicable, Stand, ensure
from hwtool_contracts.effects import ReadEffect
from hwtool_contracts.errors import Code
from hwtool_contracts.judge import ReadJudgement, Refused
from hwtool_contracts.model import Register

Guarantee = Callable[[Stand, str, Register], Awaitable[str]]
POLL_MS: Final = 10


def _judged(stand: Stand, device: str, register: Register) -> ReadJudgement:
    judged = stand.device(device).judge((register,))
    if isinstance(judged, Refused):
        raise NotApplicable(f"its contract lets nobody read it: {judged.message}")
    return judged


def _prepare(stand: Stand, device: str, register: Register) -> str:
    stand.open_gates(device, _judged(stand, device, register).gates, register)
    stand.fill(device, register)
    return f"{device}.{register.name}"


async def clean(stand: Stand, device: str, register: Register) -> str:
    """A clean read is executed once each time, and changes nothing."""
    full = _prepare(stand, device, register)
    first = await stand.call("reg.read", OPERATOR, registers=[full])
    if not first.ok:
        raise NotApplicable(f"not read: {first.summary}")
    chip = stand.chip(device)
    before, writes = dict(chip.values), sum(n for (_, access), n in chip.executed.items() if access == "write")
    with stand.counting(device, register.name, "read") as executed:
        again = [await stand.call("reg.read", OPERATOR, registers=[full]) for _ in range(2)]
    ensure(all(r.ok for r in again), f"read once, then not: {again[-1].summary}")
    contract = stand.device(device).contract
    selects = any(s.register == register.name for bank in contract.banks.values() for s in bank.select)
    # a selector is read for its banks, too
    ensure(executed[0] == 2 or (selects and executed[0] > 2), f"{executed[0]} executions of two reads")
    there = chip.copied().read_register(chip.contract.registers[stand.named(device, register.name)])
    told = {int(value["raw"], 0) for r in again for value in r.values or []}
    ensure(told == {there}, f"told {', '.join(map(hex, told))}, and it holds {there:#x}")
    moved = [name for name, value in chip.values.items() if value != before[name]]
    ensure(not moved, f"a clean read moved {', '.join(moved)}")
    more = sum(n for (_, access), n in chip.executed.items() if access == "write") - writes
    return f"{executed[0]} executed, nothing moved, {more} writes to select it"


async def refused_as_clean(stand: Stand, device: str, register: Register) -> str:
    """A read with an effect is refused as a clean one, and nothing is sent."""
    full = _prepare(stand, device, register)
    before = dict(stand.chip(device).values)
    with stand.counting(device, register.name, "read") as executed:
        told = await stand.call("reg.read", OPERATOR, registers=[full])
    code = (told.error or {}).get("code")
    if code == Code.DENIED and executed[0] == 0:
        raise NotApplicable("policy lets nobody read it")
    ensure(code == Code.REFUSED and executed[0] == 0, f"{told.status}, {code}, {executed[0]} executed")
    ensure(stand.chip(device).values == before, "the chip changed")
    return f"{code}, 0 executed"


async def not_dumped(stand: Stand, device: str, register: Register) -> str:
    """A dump leaves it out."""
    _prepare(stand, device, register)
    for group in stand.device(device).contract.groups.values():
        members = tuple(stand.register(device, name) for name in group.members)
        judged = stand.device(device).judge(members, as_group=True)
        if register.name in group.members and isinstance(judged, ReadJudgement) and judged.clean:
            raise NotApplicable(f"it is read as a member of {group.name}, which is clean as a whole")
    with stand.counting(device, register.name, "read") as executed:
        dump = await stand.call("device.dump", OPERATOR, device=device)
    ensure(executed[0] == 0, f"a dump executed it {executed[0]} times")
    if not dump.ok or not dump.values:
        raise NotApplicable(f"a dump brings nothing of this device: {dump.summary}")
    return f"0 executed by a dump of {len(dump.values)} registers"


async def not_polled(stand: Stand, device: str, register: Register) -> str:
    """Nothing waits for a value by reading it again and again."""
    full = _prepare(stand, device, register)
    step = {"do": "wait_until", "register": full, "equals": 0, "timeout_ms": POLL_MS, "interval_ms": 1}
    with stand.counting(device, register.name, "read") as executed:
        told = await stand.call("sequence.run", OPERATOR, steps=[step], key=stand.key())
    code = (told.error or {}).get("code")
    if code == Code.DENIED and executed[0] == 0:
        raise NotApplicable("policy lets nobody read it")
    ensure(code == Code.REFUSED and executed[0] == 0, f"{told.status}, {code}, {executed[0]} executed")
    return f"{code}, 0 executed"


def _asked(stand: Stand, device: str, register: Register) -> Asked:
    """The read under a key, of a register that has something to give."""
    full = _prepare(stand, device, register)
    return Asked(device, ((register.name, "read"),), "reg.read_effectful", {"register": full})


async def once(stand: Stand, device: str, register: Register) -> str:
    """Three times under one key it is executed once, and answers the same."""
    asked = _asked(stand, device, register)
    first, executed, key = await once_only(stand, asked)
    ensure(executed == 1, f"{executed} executed")
    effects = "+".join(sorted(e.value for e in _judged(stand, device, register).effects))
    stand.remember(f"{device}.{register.name}", f"read {effects}", asked.method, asked.params | {"key": key}, first)
    return "1 executed, replayed twice"


async def other_request(stand: Stand, device: str, register: Register) -> str:
    """The same key with another request is refused, and nothing is sent."""
    asked = _asked(stand, device, register)
    return await other_refused(stand, asked, "reg.write", asked.params | {"value": 0})


async def told_when_lost(stand: Stand, device: str, register: Register) -> str:
    """A lost reply is told as unknown, and no retry executes it again."""
    return await loss_told(stand, _asked(stand, device, register))


async def held_when_unknown(stand: Stand, device: str, register: Register) -> str:
    """While its outcome is unknown the device takes no other effect."""
    asked = _asked(stand, device, register)
    if _judged(stand, device, register).closes_as_lost:
        raise NotApplicable("nobody has said what it does: its loss is told and closed, and nothing is held")
    return await unknown_held(stand, asked)


async def settled(stand: Stand, device: str, register: Register) -> str:
    """What a rule settles is what the device has counted; else a person does."""
    return await settled_truly(stand, _asked(stand, device, register), partial(_prepare, stand, device, register))


async def approval_asked(stand: Stand, device: str, register: Register) -> str:
    """An agent does not get it without an approval, where policy wants one."""
    return await unapproved_never(stand, _asked(stand, device, register), needed=False)


async def secret_kept(stand: Stand, device: str, register: Register) -> str:
    """The value that it brings stands in nothing that others read."""
    secret, asked = secret_of(register), _asked(stand, device, register)
    chip, name = stand.chip(device), stand.named(device, register.name)
    if name in chip.fifos:
        chip.fifos[name].clear()
        chip.push(name, [secret])
    else:
        chip.values[name] = secret
    told = await stand.done_undisturbed(asked.method, **asked.params, key=stand.key())
    ensure(told.values is not None and int(told.values[0]["raw"], 0) == secret, "the caller was not told its value")
    return await stays_out(stand, told, secret)


CLEAN: Final[Mapping[str, Guarantee]] = {"clean": clean}
EFFECTFUL: Final[Mapping[str, Guarantee]] = {
    "refused_as_clean": refused_as_clean,
    "not_dumped": not_dumped,
    "not_merged": not_merged,
    "not_polled": not_polled,
    "once": once,
    "burst_once": burst_once,
    "other_request": other_request,
    "loss_told": told_when_lost,
    "unknown_held": held_when_unknown,
    "settled_truly": settled,
    "approval_asked": approval_asked,
    "secret_kept": secret_kept,
}


def guarantees_of(stand: Stand, device: str, register: Register) -> tuple[str, Mapping[str, Guarantee]]:
    """The effects of a register's read as one word, and what it must keep; nothing, where nobody may read it."""
    judged = stand.device(device).judge((register,))
    if isinstance(judged, Refused):
        return "refused", {}
    words = "+".join(sorted(e.value for e in judged.effects))
    if judged.clean:
        return words, CLEAN
    return words, {name: g for name, g in EFFECTFUL.items() if name != "burst_once" or ReadEffect.POP in judged.effects}
