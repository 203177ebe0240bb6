"""Preparation: everything of a keyed operation before its intent. May be repeated; nothing with an effect is sent.

The seam: this file cannot reach the dispatch (it does not import it, and the import rules forbid it). It looks at
gates, assumptions and expectations, reads what will make the outcome decidable, and builds the exact plan.

Everything a rule will need later is put into the row here (hwtool.rules): recovery and settlement read the row only,
never the contract of the day.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field, replace
from typing import Any, Final

from hwtool.devices import Device
from hwtool.journal import REDACTED
from hwtool.outcome import ReadRule, Target, as_row
from hwtool.resolve import Change, Resolved, refusal
from hwtool.rules import gates_of_read, observable, observed_register, read_rule, signal_place, target_of
from hwtool_contracts.cross_check import find_place, find_register
from hwtool_contracts.errors import Code, DomainError
from hwtool_contracts.judge import Refused
from hwtool_contracts.judge_write import judge_whole_value
from hwtool_contracts.model import Register
from hwtool_registers.bits import extract, hexed
from hwtool_registers.bus import as_object
from hwtool_registers.plan import Plan, plan_block_write, plan_read, plan_write, selectors, updated_value

DEFAULT_WINDOW_MS: Final = 250


@dataclass(frozen=True)
class SafePart:
    """One entry of a safe state: its transfers, or why it cannot be sent; `bank` and `returns` as in `Prepared`."""

    change: Change
    plan: Plan
    bank: dict[str, int]
    returns: int
    fault: str | None = None

    @property
    def register(self) -> str:
        """Name of the register it writes."""
        return self.change.register.name


@dataclass
class Prepared:
    """An operation that is ready for its intent.

    Attributes:
        plan: the exact transfers.
        returns: returns of the bus when the device's identity was looked at (`BusWorker.returns`).
        boot: boot evidence of the device before the dispatch, None where it cannot tell.
        parts: of a safe state: the transfers of each entry; one that fails does not stop the others.
        bank: values of the selectors that the plan was built on.
        values: whole raw value of each register written.
        before: what the observables held, by register.
        targets: rules of a write; `read_rules` those of a read.
        window_ms: how long a consequence may take.
    """

    resolved: Resolved
    plan: Plan
    bank: dict[str, int]
    values: dict[str, int]
    before: dict[str, int]
    targets: list[Target] = field(default_factory=list)
    read_rules: list[ReadRule] = field(default_factory=list)
    window_ms: int = DEFAULT_WINDOW_MS
    parts: tuple[SafePart, ...] = ()
    boot: str | None = None
    returns: int = 0

    @property
    def verifiable(self) -> bool:
        """Whether anything can show the outcome of a write."""
        return any(t.signals or (t.observe and (t.strong or t.weak)) for t in self.targets)

    def row_request(self, digest_content: Mapping[str, Any], reason: str | None) -> dict[str, Any]:
        """What the row keeps: the plan and every input of the rules."""
        device = self.resolved.device
        return {
            "content": dict(digest_content),
            "device": device.name,
            "registers": [r.name for r in self.resolved.registers],
            "plan": plan_object(self.plan),
            "values": {name: hex(value) for name, value in self.values.items()},
            "targets": as_row(self.targets),
            "reads": as_row(self.read_rules),
            "observables": {name: observable(device, name) for name in self.before},
            "sole_master": device.worker.spec.sole_master,
            "sensitive": self.resolved.sensitive,
            "reason": reason,
        }


def plan_object(plan: Plan) -> list[dict[str, Any]]:
    """A plan as rows, results and approval screens show it."""
    return [{"role": s.role.value, "register": s.register, **as_object(s.transfer)} for s in plan.steps]


async def prepare(resolved: Resolved, assumed: Mapping[str, int] | None = None) -> Prepared:
    """Look at everything that must be known, and build the plan.

    `assumed`: registers that are taken to hold these values, and not read: what an earlier step would leave there.

    Raises:
        DomainError: refused, precondition_failed, stale, or the bus's error of a clean read; effects none.
    """
    device = resolved.device
    returns = device.worker.returns
    await check_identity(device)
    await check_assumptions(device)
    await _check_gates(resolved)
    await _check_expectations(resolved)
    if resolved.kind == "read":
        prepared = await _prepare_read(resolved)
    else:
        prepared = await _prepare_write(resolved, assumed or {})
    prepared.returns = returns
    return prepared


async def check_identity(device: Device) -> None:
    """Once a generation, before the first effect: is it the device that the board names?

    Raises:
        DomainError: another device answers.
    """
    if device.identified:
        return
    identity = device.contract.identity
    if identity is not None:
        place = find_place(device.contract, identity.register)
        await check_read_gates(device, [] if place is None else [place[0]])
        seen = await device.look(identity.register)
        wanted = {identity.equals, None if device.spec.identity is None else _number(device.spec.identity)} - {None}
        if wanted and seen not in wanted:
            raise DomainError(
                Code.STALE,
                f"{device.name}: {identity.register} is {seen:#x}; another device answers there",
                hint="an operator checks what is connected, and corrects the board",
                what="identity",
                expected=", ".join(f"{w:#x}" for w in wanted if w is not None),
                found=hex(seen),
            )
    device.identified = True


async def check_assumptions(device: Device) -> None:
    """Once a generation: what the contract assumes of the device's mode.

    Raises:
        DomainError: an assumption does not hold.
    """
    if device.checked:
        return
    for assume in device.contract.assumes:
        await check_read_gates(device, [device.contract.registers[assume.register]])
        held = await device.look(f"{assume.register}.{assume.field}")
        if held != assume.value:
            raise refusal(
                Refused(
                    "assumption_broken",
                    assume.register,
                    assume.field,
                    f"{assume.register}.{assume.field} is {held}; this contract's {assume.purpose} hold only while "
                    f"it is {assume.value}",
                    "an operator sets the device back, or a contract for that mode is used",
                ),
                device,
            )
    device.checked = True


def _number(text: str) -> int | None:
    try:
        return int(text, 0)
    except ValueError:
        return None


async def _check_gates(resolved: Resolved) -> None:
    gates: dict[str, Register] = {}
    for change in resolved.changes:
        gates |= dict.fromkeys(change.judged.gates, change.register)
    for register, judged in resolved.reads:
        gates |= dict.fromkeys(judged.gates, register)
    await check_gates(resolved.device, gates)


async def check_gates(device: Device, gates: Mapping[str, Register]) -> None:
    """Look at gates: a register behind a closed one does not answer, or answers with what is no value.

    Raises:
        DomainError: one is closed (refused), or could not be read.
    """
    for gate, register in gates.items():
        if not await device.look(gate, register):
            raise refusal(
                Refused(
                    "gate_closed",
                    register.name,
                    None,
                    f"{register.name} does not answer while {gate} is 0",
                    f"open it first: {device.name}.{gate}",
                ),
                device,
            )


async def check_read_gates(device: Device, registers: Iterable[Register]) -> None:
    """Look at the gates of clean reads; to be called before each, as a closed one would make the value up.

    Raises:
        DomainError: as `check_gates`.
    """
    await check_gates(device, gates_of_read(device, registers))


async def _check_expectations(resolved: Resolved) -> None:
    await check_read_gates(resolved.device, [resolved.device.contract.registers[name] for name in resolved.expect])
    for name, wanted in resolved.expect.items():
        register = resolved.device.contract.registers[name]
        seen = await resolved.device.read(register)
        if seen != wanted:
            shown = [REDACTED if register.sensitive else hexed(v, register.width_bits) for v in (seen, wanted)]
            raise DomainError(
                Code.PRECONDITION_FAILED,
                f"{resolved.device.name}.{name} is {shown[0]}, not {shown[1]}",
                expected={name: shown[1]},
                observed={name: shown[0]},
            )


async def _observe(device: Device, registers: list[Register]) -> dict[str, int]:
    """Read observables, each once; the device's word before the dispatch. A closed gate would make it up."""
    named = {r.name: r for r in registers}
    await check_read_gates(device, named.values())
    return {name: await device.read(register) for name, register in named.items()}


async def _prepare_write(resolved: Resolved, assumed: Mapping[str, int]) -> Prepared:
    device = resolved.device
    wanted: list[Register] = []
    for change in resolved.changes:
        if change.update is not None and change.update.needs_current:
            wanted.append(change.register)
        observed = observed_register(change, device)
        if observed is not None:
            wanted.append(observed)
        wanted += [signal_place(s, change.register, device)[0] for s in change.judged.signals]
    before = await _observe(device, [r for r in wanted if r.name not in assumed])
    before |= {r.name: assumed[r.name] for r in wanted if r.name in assumed}
    values = {c.register.name: _whole_value(c, before, device) for c in resolved.changes}
    await device.know_home(resolved.registers[0])
    async with device.worker.lock:
        await device.learn_selectors(resolved.registers[0])
    pairs = [(c.register, values[c.register.name]) for c in resolved.changes]
    make = plan_block_write if resolved.group is not None and resolved.group.transfer == "one" else plan_write
    plan = make(device.contract, device.spec.address, pairs, device.known)
    targets = [target_of(c, values[c.register.name], before, device) for c in resolved.changes]
    windows = [c.judged.window_ms for c in resolved.changes if c.judged.window_ms is not None]
    window_ms = max(windows, default=DEFAULT_WINDOW_MS)
    return Prepared(
        resolved, plan, _bank(device, resolved.registers[0]), values, before, targets=targets, window_ms=window_ms
    )


def _bank(device: Device, register: Register) -> dict[str, int]:
    """What the selectors hold while the plan is made."""
    return {s.name: device.known[s.name] for s in selectors(device.contract, register)}


async def prepare_safe_state(resolved: Resolved) -> Prepared:
    """Build the transfers of a safe state; what cannot be looked at beforehand does not stop it.

    Raises:
        DomainError: stale or refused, another device answers there or in another mode; bus_fault or timeout, it could
            not be identified; effects none.
    """
    device = resolved.device
    try:
        await check_identity(device)
        await check_assumptions(device)
    except DomainError as error:
        if error.code not in (Code.BUS_FAULT, Code.TIMEOUT, Code.UNAVAILABLE):
            raise
        await device.worker.silence()  # a lost reply must not stop it: clean reads may be repeated
        await check_identity(device)
        await check_assumptions(device)
    before: dict[str, int] = {}
    parts = []
    for change in resolved.changes:
        observed = observed_register(change, device)
        wanted = ([] if observed is None else [observed]) + [
            signal_place(s, change.register, device)[0] for s in change.judged.signals
        ]
        try:
            before |= await _observe(device, [r for r in wanted if r.name not in before])
        except DomainError as error:  # then nothing shows the outcome of this entry
            if error.code is Code.STORE_FAILED:
                raise
            await device.worker.silence()
        parts.append(await _safe_part(change, device))
    values = {c.register.name: c.value for c in resolved.changes}
    plan = Plan(tuple(step for part in parts for step in part.plan.steps))
    targets = [target_of(c, c.value, before, device) for c in resolved.changes]
    windows = [c.judged.window_ms for c in resolved.changes if c.judged.window_ms is not None]
    window_ms = max(windows, default=DEFAULT_WINDOW_MS)
    return Prepared(resolved, plan, {}, values, before, targets=targets, window_ms=window_ms, parts=tuple(parts))


async def _safe_part(change: Change, device: Device) -> SafePart:
    register, returns = change.register, device.worker.returns
    try:
        await check_gates(device, dict.fromkeys(change.judged.gates, register))
        await device.know_home(register)
        async with device.worker.lock:
            await device.learn_selectors(register)
        plan = plan_write(device.contract, device.spec.address, [(register, change.value)], device.known)
        return SafePart(change, plan, _bank(device, register), returns)
    except DomainError as error:
        if error.code is Code.STORE_FAILED:
            raise
        return SafePart(change, Plan(()), {}, returns, error.message)


async def looked_at_again(part: SafePart, device: Device) -> SafePart:
    """An entry whose bus was away or in doubt since: who is there, and which bank is selected, is looked at anew."""
    if part.returns == device.worker.returns or part.fault is not None:
        return part
    try:
        await check_identity(device)
        await check_assumptions(device)
    except DomainError as error:
        return replace(part, fault=error.message)
    return await _safe_part(part.change, device)


def _whole_value(change: Change, before: Mapping[str, int], device: Device) -> int:
    if change.update is None:
        return change.value
    register = change.register
    whole = updated_value(register, change.update, before.get(register.name), change.fields)
    loose = (change.mask or 0) & ~sum(f.mask for f in register.fields.values())
    whole = (whole & ~loose) | (change.value & loose)
    refused = judge_whole_value(register, whole)
    if refused is not None:
        raise refusal(refused, device)
    return whole


async def _prepare_read(resolved: Resolved) -> Prepared:
    device = resolved.device
    rules = [read_rule(register, judged.effects, resolved.count, device) for register, judged in resolved.reads]
    names = [n for r in rules for n in (r.level, r.peek, *(a for a, _ in r.acknowledges)) if n is not None]
    levels = [find_register(device.contract, r.read.level, r) for r in resolved.registers if r.read.level is not None]
    wanted = [device.contract.registers[n] for n in names] + [r for r in levels if r is not None]
    before = await _observe(device, wanted)
    _refuse_empty(resolved, before)
    await device.know_home(resolved.registers[0])
    async with device.worker.lock:
        await device.learn_selectors(resolved.registers[0])
    plan = plan_read(device.contract, device.spec.address, resolved.registers, device.known, count=resolved.count)
    return Prepared(resolved, plan, _bank(device, resolved.registers[0]), {}, before, read_rules=rules)


def _refuse_empty(resolved: Resolved, before: Mapping[str, int]) -> None:
    """A FIFO that holds fewer elements than asked for would answer with what is no element."""
    device = resolved.device
    for register in resolved.registers:
        name = register.read.level
        place = None if name is None else find_place(device.contract, name, register)
        if place is None or name is None:
            continue
        level, part = place
        held = before[level.name] if part is None else extract(before[level.name], part)
        if held < resolved.count:
            raise DomainError(
                Code.PRECONDITION_FAILED,
                f"{device.name}.{register.name}: {resolved.count} element(s) asked for, {name} shows {held}",
                hint=f"read {device.name}.{level.name} (clean) and ask for what is there; the key was not used",
                expected={name: f"at least {resolved.count}"},
                observed={name: held},
            )
