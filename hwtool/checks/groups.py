"""What a group must keep: read in its order and in the transfers that it has, written as one operation."""

from __future__ import annotations

from collections.abc import Awaitable, Callable, Iterator
from functools import partial
from typing import Any

from hwtool.checks.asked import Asked, once_only, other_refused, unapproved_never
from hwtool.checks.case import Case
from hwtool.checks.outcomes import loss_told, settled_truly, unknown_held
from hwtool.checks.rig import OPERATOR
from hwtool.checks.samples import values_for
from hwtool.checks.stand import NotApplicable, Stand, ensure
from hwtool_contracts.effects import WriteEffect
from hwtool_contracts.errors import Code
from hwtool_contracts.judge import ReadJudgement
from hwtool_contracts.judge_write import WriteJudgement, judge_write
from hwtool_contracts.model import Group, Register
from hwtool_registers.bus import RegisterRead
from hwtool_sim.offsets import whole_offset


class Members:
    """The members of a group at the stand."""

    def __init__(self, stand: Stand, device: str, group: Group) -> None:
        self.stand, self.device, self.group = stand, device, group
        self.registers = [stand.register(device, name) for name in group.members]
        self.place = f"{device}.{group.name}"

    def prepare(self) -> None:
        """What the accesses need open, and something to take."""
        contract = self.stand.device(self.device).contract
        for register in self.registers:
            read = self.stand.device(self.device).judge((register,))
            write = judge_write(contract, register, 0) if register.access.writable else None
            gates = read.gates if isinstance(read, ReadJudgement) else ()
            gates += write.gates if isinstance(write, WriteJudgement) else ()
            self.stand.open_gates(self.device, gates, register)
            self.stand.fill(self.device, register)

    def read_times(self) -> list[int]:
        """How often each member was read."""
        return [self.stand.executed(self.device, r.name, "read") for r in self.registers]

    def values(self, number: int) -> dict[str, int]:
        """A value for each member that its contract lets be written and that it does not hold: the first or second.

        Raises:
            NotApplicable: there is none for one of them.
        """
        found = {}
        for register in self.registers:
            held = self.stand.chip(self.device).values[self.stand.named(self.device, register.name)]
            values = values_for(self.stand.device(self.device), register, held)
            if len(values) <= number:
                raise NotApplicable(f"no value for {register.name} may be written")
            found[f"{self.device}.{register.name}"] = values[number]
        return found

    def asked(self) -> Asked:
        """The write of all of them."""
        at_once = len(self.registers) if self.group.transfer == "one" else 1
        counts = tuple((r.name, "write") for r in self.registers)
        return Asked(self.device, counts, "reg.write", {"registers": self.values(0)}, at_once)


def cases(stand: Stand, device: str, group: Group) -> Iterator[Case]:
    """Every guarantee of a group."""
    members = Members(stand, device, group)
    judged = stand.device(device).judge(tuple(members.registers), as_group=True)
    if isinstance(judged, ReadJudgement):
        effect = "read " + "+".join(sorted(e.value for e in judged.effects))
        for name, guarantee in (CLEAN if judged.clean else EFFECTFUL).items():
            yield Case(members.place, effect, name, partial(_prepared, members, guarantee))
    if all(r.access.writable for r in members.registers):
        effects = {r.write.effect for r in members.registers}
        effect = "write " + "+".join(sorted(effect.value for effect in effects))
        for name, guarantee in WRITTEN.items():
            yield Case(members.place, effect, name, partial(_prepared, members, guarantee))


async def _prepared(members: Members, guarantee: Callable[[Members], Awaitable[str]]) -> str:
    members.prepare()
    return await guarantee(members)


async def _clean(members: Members) -> str:
    """Read twice: each member executed twice, told what it holds, nothing moved."""
    stand = members.stand
    first = await stand.call("reg.read", OPERATOR, registers=[members.place])
    if not first.ok:
        raise NotApplicable(f"not read: {first.summary}")
    before, counted = stand.state(members.device), members.read_times()
    told = [await stand.call("reg.read", OPERATOR, registers=[members.place]) for _ in range(2)]
    executed = [now - then for now, then in zip(members.read_times(), counted, strict=True)]
    ensure(min(executed) >= 2, f"{executed} executions of two reads")
    values = stand.chip(members.device).values
    for result in told:
        raws = [int(value["raw"], 0) for value in result.values or []]
        held = [values[stand.named(members.device, r.name)] for r in members.registers]
        ensure(raws == held, f"told {raws}, and they hold {held}")
    ensure(stand.state(members.device) == before, "a clean read moved something")
    return f"{executed} executed, nothing moved"


async def _in_order(members: Members) -> str:
    """The members are read in their order, or all of them by one transfer."""
    stand, bus = members.stand, members.stand.bus(members.device)
    await stand.call("reg.read", OPERATOR, registers=[members.place])
    sent = bus.transfers
    told = await stand.call("reg.read", OPERATOR, registers=[members.place])
    if not told.ok:
        raise NotApplicable(f"not read: {told.summary}")
    reads = [t for t in list(bus.log)[sent - bus.transfers :] if isinstance(t, RegisterRead)]
    contract = stand.device(members.device).contract
    at = [(whole_offset(contract, t.address, t.offset), t.size_bytes) for t in reads]
    if members.group.transfer == "one":
        whole = members.registers[0].offset, sum(r.size_bytes for r in members.registers)
        ensure(at.count(whole) == 1, f"it was read as {at}, not by one transfer of {whole[1]} bytes")
        return "1 transfer"
    wanted = [r.offset for r in members.registers]
    came = [offset for offset, _ in at if offset in wanted]
    ensure(list(dict.fromkeys(came)) == wanted, f"read in the order {came}, declared is {wanted}")
    return f"{len(wanted)} transfers in its order"


async def _refused_as_clean(members: Members) -> str:
    """A group whose read has an effect is refused as a clean one, and none of its members is read."""
    counted = members.read_times()
    told = await members.stand.call("reg.read", OPERATOR, registers=[members.place])
    code, executed = (told.error or {}).get("code"), sum(members.read_times()) - sum(counted)
    if code == Code.DENIED and executed == 0:
        raise NotApplicable("policy lets nobody read it")
    ensure(code == Code.REFUSED and executed == 0, f"{told.status}, {code}, {executed} executed")
    return f"{code}, 0 executed"


def _taken(members: Members) -> Asked:
    """Those members whose read has an effect, under one key."""
    stand = members.stand
    acting = [r for r in members.registers if not _is_clean(stand, members.device, r)]
    names = [f"{members.device}.{r.name}" for r in acting]
    return Asked(members.device, tuple((r.name, "read") for r in acting), "reg.read_effectful", {"registers": names})


def _is_clean(stand: Stand, device: str, register: Register) -> bool:
    judged = stand.device(device).judge((register,))
    return isinstance(judged, ReadJudgement) and judged.clean


async def _once(members: Members) -> str:
    """What is written, or taken, under one key three times is executed once."""
    asked = members.asked()
    first, executed, key = await once_only(members.stand, asked)
    ensure(executed == len(members.registers), f"{executed} executed of {len(members.registers)} members")
    members.stand.remember(members.place, "write of a group", asked.method, asked.params | {"key": key}, first)
    return f"{executed} executed, replayed twice"


async def _taken_once(members: Members) -> str:
    asked = _taken(members)
    first, executed, key = await once_only(members.stand, asked)
    ensure(executed == len(asked.counts), f"{executed} executed of {len(asked.counts)} members")
    members.stand.remember(members.place, "read of a group", asked.method, asked.params | {"key": key}, first)
    return f"{executed} executed, replayed twice"


async def _done(members: Members) -> str:
    """All members hold what was asked for."""
    asked = members.asked()
    await members.stand.done_undisturbed(asked.method, **asked.params, key=members.stand.key())
    values = members.stand.chip(members.device).values
    for register in members.registers:
        wanted = asked.params["registers"][f"{members.device}.{register.name}"]
        held = values[members.stand.named(members.device, register.name)]
        plain = register.write.effect is WriteEffect.STORE and not register.fields
        ensure(held == wanted or not plain, f"{register.name} holds {held:#x}, asked for was {wanted:#x}")
    return f"{len(members.registers)} registers by one request"


async def _other_request(members: Members) -> str:
    other = {"registers": members.values(1)}
    return await other_refused(members.stand, members.asked(), "reg.write", other)


async def _approval_asked(members: Members) -> str:
    contract, values = members.stand.device(members.device).contract, members.values(0)
    judged = [judge_write(contract, r, values[f"{members.device}.{r.name}"]) for r in members.registers]
    needed = any(isinstance(j, WriteJudgement) and j.approval for j in judged)
    return await unapproved_never(members.stand, members.asked(), needed)


Guarantees = dict[str, Callable[[Members], Any]]
CLEAN: Guarantees = {"clean": _clean, "in_order": _in_order}
EFFECTFUL: Guarantees = {
    "refused_as_clean": _refused_as_clean,
    "once": _taken_once,
    "loss_told": lambda members: loss_told(members.stand, _taken(members)),
}
WRITTEN: Guarantees = {
    "done": _done,
    "once": _once,
    "other_request": _other_request,
    "loss_told": lambda members: loss_told(members.stand, members.asked()),
    "unknown_held": lambda members: unknown_held(members.stand, members.asked()),
    "settled_truly": lambda members: settled_truly(members.stand, members.asked(), members.prepare),
    "approval_asked": _approval_asked,
}
