"""Dumps: everything of a device that can be looked at without touching anything, and what was left out and why.

Only clean registers that a poll may touch, groups that latch read whole, in few transfers; a register behind a closed
gate, one that policy hides and one that does not answer are named among those left out. With a picture to compare, the
differences in fields and units, each with whether writing the picture back is a plain, verified store.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from typing import Any, Final

from hwtool.devices import Device
from hwtool.permission import Touch, check_use
from hwtool.policy import Caller
from hwtool.prepare import check_assumptions, check_read_gates, looked_up
from hwtool.reading import values_of
from hwtool.resolve import find_device, invalid, raw_value
from hwtool.results import shown_value
from hwtool.state import Daemon
from hwtool_contracts.effects import WriteEffect
from hwtool_contracts.errors import Code, DomainError
from hwtool_contracts.glob import is_pattern, matches
from hwtool_contracts.judge import ReadJudgement, Refused, may_poll
from hwtool_contracts.judge_write import judge_write
from hwtool_contracts.messages import DumpParams, Result
from hwtool_contracts.model import Group, Register

MOST: Final = 4096
ENDS_IT: Final = frozenset({Code.UNAVAILABLE, Code.STORE_FAILED, Code.STALE})


class _Dump:
    """One dump at work: values, and what was left out."""

    def __init__(self, daemon: Daemon, caller: Caller, device: Device) -> None:
        self.daemon = daemon
        self.caller = caller
        self.device = device
        self.values: dict[str, int] = {}
        self.left_out: dict[str, str] = {}

    def may_read(self, register: Register) -> bool:
        """Whether a register may be looked at by itself; if not, why is noted."""
        judged = self.device.judge((register,))
        if isinstance(judged, Refused):
            self.left_out[register.name] = judged.message
            return False
        if not self._allowed(register):
            return False
        if not judged.clean:
            self.left_out[register.name] = f"reading it has effects: {', '.join(sorted(judged.effects))}"
        elif not may_poll(judged, register.owner):
            self.left_out[register.name] = "a poll must not touch it: it may hold the bus up, or others use it too"
        else:
            return True
        return False

    def _allowed(self, register: Register) -> bool:
        try:
            check_use(self.daemon.board.policy, self.caller, Touch(self.device, register, "read"))
        except DomainError as error:
            self.left_out[register.name] = error.message
            return False
        return True

    def whole_groups(self, chosen: Mapping[str, Register]) -> list[Group]:
        """Groups that are clean as a whole and have a chosen member that is not, taken alone."""
        found = []
        for group in self.device.contract.groups.values():
            members = tuple(self.device.contract.registers[n] for n in group.members)
            judged = self.device.judge(members, True)
            clean = isinstance(judged, ReadJudgement) and judged.clean and may_poll(judged, members[0].owner)
            needed = any(m.name in chosen and m.name in self.left_out for m in members)
            if clean and needed and all(self._allowed(m) for m in members):
                found.append(group)
        return found

    async def read(self, registers: Sequence[Register], groups: Sequence[Group]) -> None:
        """Look at everything, what one transfer can read at a time; others' requests pass between.

        What cannot be read is left out; where the bus is shut, so is everything after it.
        """
        try:
            await check_assumptions(self.device)
            open_ones = [r for r in registers if await self._gates_open(r)]
            for run in self.device.runs(open_ones):
                await self._some(run)
            for group in groups:
                try:
                    values, _ = await values_of(self.device, [], [group])
                except DomainError as error:
                    self._failed((self.device.contract.registers[n] for n in group.members), error)
                else:
                    self.values |= values
                    self.left_out = {n: why for n, why in self.left_out.items() if n not in values}
        except DomainError as error:
            if error.code not in ENDS_IT:
                raise
            everything = [*registers, *(self.device.contract.registers[n] for g in groups for n in g.members)]
            for register in everything:
                if register.name not in self.values and register.name not in self.left_out:
                    self.left_out[register.name] = f"not read: {error.message}"

    async def _gates_open(self, register: Register) -> bool:
        try:
            await check_read_gates(self.device, [register])
        except DomainError as error:
            self._failed([register], error)
            return False
        return True

    async def _some(self, registers: Sequence[Register]) -> None:
        try:
            values, _ = await values_of(self.device, list(registers), [])
        except DomainError as error:
            if len(registers) == 1 or error.code in ENDS_IT:
                self._failed(registers, error)
                return
            for register in registers:  # one of them does not answer: which, and the others all the same
                await self._some([register])
        else:
            self.values |= values

    def _failed(self, registers: Iterable[Register], error: DomainError) -> None:
        if error.code in ENDS_IT:
            raise error
        for register in registers:
            self.left_out[register.name] = error.message


async def dump(daemon: Daemon, caller: Caller, params: DumpParams) -> Result:
    """Look at what is clean of a device; with `compare`, tell what differs from a picture.

    Raises:
        DomainError: not_found, invalid_args, refused (too many registers, another mode), stale or unavailable.
    """
    device = find_device(daemon.devices, params.device)
    picture = _picture(device, params.compare)
    chosen = _chosen(device, params.registers if params.compare is None else list(picture))
    if len(chosen) > MOST:
        message = f"{device.name} has {len(chosen)} registers; one dump takes {MOST}"
        hint = 'name some, as patterns: registers = ["UART0.*"]'
        raise DomainError(Code.REFUSED, message, hint=hint, rule="too_many", register=device.name, field=None)
    device.worker.check()
    before = device.worker.sent
    made = _Dump(daemon, caller, device)
    alone = [r for r in chosen.values() if made.may_read(r)]
    await made.read(alone, made.whole_groups(chosen))
    for name in device.contract.memories if params.registers is None and params.compare is None else ():
        made.left_out[name] = f"a memory: read its ranges, {device.name}.{name}[offset:length]"
    read = [device.contract.registers[n] for n in chosen if n in made.values]
    known = await looked_up(device, read) if read else {}
    values = [shown_value(device.name, r, made.values[r.name], None, known) for r in read]
    summary = f"{device.name}: {len(values)} register(s) read, {len(made.left_out)} left out"
    result = Result(status="done", ok=True, effects="none", summary=summary, values=values)
    result.evidence = {"how": "read", "transfers": device.worker.sent - before}
    result.left_out = [{"register": f"{device.name}.{n}", "why": why} for n, why in made.left_out.items()]
    if params.compare is not None:
        result.differences = [
            _difference(device, register, wanted, made.values[name], known)
            for name, wanted in picture.items()
            if name in made.values and (register := chosen[name]) and wanted != made.values[name]
        ]
        missed = [name for name in picture if name not in made.values]
        told = f", {len(missed)} could not be compared" if missed else ""
        result.summary = f"{device.name}: {len(result.differences)} of {len(picture)} register(s) differ{told}"
        result.warnings += [f"incomplete: {device.name}.{name}: {made.left_out.get(name)}" for name in missed]
    return daemon.dressed(result, device)


def _picture(device: Device, compare: Mapping[str, Any] | None) -> dict[str, int]:
    """The raw values of a picture, by register, in its order."""
    picture: dict[str, int] = {}
    for name, value in (compare or {}).items():
        inside = name.removeprefix(device.name + ".")
        register = device.contract.registers.get(inside)
        if register is None:
            raise invalid(f"$.compare.{name}", f"a register of {device.name}", name)
        picture[inside] = raw_value(device, register, None, value, f"$.compare.{name}", limited=False)
    return picture


def _chosen(device: Device, names: Sequence[str] | None) -> dict[str, Register]:
    """The registers meant by names and patterns, in the order of the contract or of the names."""
    registers = device.contract.registers
    if names is None:
        return dict(registers.items())
    found: dict[str, Register] = {}
    for index, name in enumerate(names):
        inside = name.removeprefix(device.name + ".")
        hits = [n for n in registers if matches(inside, n)] if is_pattern(inside) else [inside]
        for hit in hits:
            if hit not in registers:
                raise invalid(f"$.registers[{index}]", f"a register of {device.name}, or a pattern", name)
            found[hit] = registers[hit]
    return found


def _difference(device: Device, register: Register, wanted: int, held: int, known: Mapping[str, int]) -> dict[str, Any]:
    """One register that is not as in the picture: both values, the fields that differ, whether it can be written."""
    then, now = (shown_value(device.name, register, raw, None, known) for raw in (wanted, held))
    fields = {
        name: {"picture": then["fields"][name], "device": now["fields"][name]}
        for name in then.get("fields", {})
        if then["fields"][name] != now["fields"][name]
    }
    judged = judge_write(device.contract, register, wanted)
    if isinstance(judged, Refused):
        why: str | None = judged.message
    elif judged.effect is not WriteEffect.STORE:
        why = f"writing it is no plain store ({judged.effect})"
    elif judged.verify.by != "read_back":
        why = "what a write comes to cannot be read back"
    elif judged.unlock:
        why = f"it is written in the sequence {judged.unlock[0]} alone"
    else:
        why = None
    told = {"register": f"{device.name}.{register.name}", "picture": then, "device": now, "fields": fields}
    return told | {"apply": why is None, "why": why}
