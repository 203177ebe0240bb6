"""Preparation: everything of a keyed operation before its intent. May be repeated; nothing with an effect is sent.

The seam: this file cannot reach the dispatch (it does not import it, and the import rules forbid it). It looks at
gates, assumptions and expectations, reads what will make the outcome decidable, and builds the exact plan.

Everything a rule will need later is put into the row here (hwtool.rules): recovery and settlement read the row only,
never the contract of the day.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from typing import Any, Final

from hwtool.devices import Device
from hwtool.journal import REDACTED
from hwtool.outcome import ReadRule, Target, as_row
from hwtool.resolve import Change, Resolved, refusal
from hwtool.results import slot_of, sources
from hwtool.rules import (
    confirming_register,
    gates_of_read,
    observable,
    observed_register,
    read_rule,
    signal_place,
    target_of,
)
from hwtool_contracts.errors import Code, DomainError
from hwtool_contracts.judge import Refused
from hwtool_contracts.judge_write import judge_whole_value
from hwtool_contracts.model import Encoding, Identity, Register
from hwtool_contracts.places import find_place, find_register, gate_of
from hwtool_registers.bits import extract, hexed
from hwtool_registers.bus import as_object
from hwtool_registers.plan import (
    plan_alias_write,
    plan_block_write,
    plan_merged_write,
    plan_read,
    plan_write,
    selectors,
    updated_value,
    with_confirmation,
)
from hwtool_registers.steps import Plan
from hwtool_registers.value import as_text

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
        known: what other registers say of how the values are to be understood.
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
    known: dict[str, int] = field(default_factory=dict)
    boot: str | None = None
    returns: int = 0

    @property
    def verifiable(self) -> bool:
        """Whether anything can show the outcome of a write."""
        return any(t.signals or (t.observe and not t.confirms and (t.strong or t.weak)) for t in self.targets)

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
            "restarts": any(c.judged.resets for c in self.resolved.changes),
            "readdresses": any(c.judged.readdresses for c in self.resolved.changes),
            "rest_ms": max((c.judged.delay_after_ms for c in self.resolved.changes), default=0),
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
    known = await looked_up(device, resolved.registers)
    if resolved.kind == "read":
        prepared = await _prepare_read(resolved)
    else:
        prepared = await _prepare_write(resolved, assumed or {})
    prepared.returns = returns
    prepared.known = known
    return prepared


async def check_identity(device: Device) -> None:
    """Once a generation, before the first effect: is it the device that the board names?

    Raises:
        DomainError: another device answers.
    """
    if device.mux is not None:  # it is written before each access
        await check_identity(device.mux)
        await check_assumptions(device.mux)
    if device.identified:
        return
    identity = device.contract.identity
    if identity is not None:
        place = find_place(device.contract, identity.register)
        await check_read_gates(device, [] if place is None else [place[0]])
        await _compare_identity(device, identity)
    device.identified = True


async def _compare_identity(device: Device, identity: Identity) -> None:
    """The chip is of the kind that its contract says, and the one that its board says.

    Raises:
        DomainError: stale; another device answers.
    """
    named = device.spec.identity
    for name, kinds in ((identity.register, identity.equals), (identity.serial, ())):
        place = None if name is None else find_place(device.contract, name)
        if place is None or name is None:
            continue
        seen, text = await device.look(name), None
        if (place[1] or place[0]).quantity.encoding is Encoding.TEXT:
            text = as_text(slot_of(place[1] or place[0], {}), seen)
            fits = identity.text is None or name != identity.register or text.startswith(identity.text)
            theirs = identity.serial or identity.register
            fits = fits and (named is None or name != theirs or named in text)
            expected, found = named or identity.text or "", text
        else:
            mask = identity.mask if identity.mask is not None and name == identity.register else -1
            wanted = set(kinds)
            number = None if named is None else number_of(named)
            if number is not None and (name == identity.serial or identity.serial is None):
                wanted = {number}  # this one of its kind
            fits = not wanted or seen & mask in {w & mask for w in wanted}
            expected, found = ", ".join(f"{w:#x}" for w in sorted(wanted)), hex(seen)
        if not fits:
            shown = "another text" if found is text else found  # what a device says in words stands in no message
            raise DomainError(
                Code.STALE,
                f"{device.name}: {name} is {shown}; another device answers there",
                hint="an operator checks what is connected, and corrects the board",
                what="identity",
                expected=expected,
                found=found,
            )


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


def number_of(text: str) -> int | None:
    """The number that a board's identity is; None: it is a word."""
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
        name, wanted = gate_of(gate)
        held = await device.look(name, register)
        if held != wanted if wanted is not None else not held:
            raise refusal(
                Refused(
                    "gate_closed",
                    register.name,
                    None,
                    f"{register.name} does not answer while {name} is {held}",
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


async def looked_up(device: Device, registers: Sequence[Register]) -> dict[str, int]:
    """What the registers hold that say how values of these are to be understood; read cleanly.

    Raises:
        DomainError: as `values_of`.
    """
    named = sources(registers)
    if not named:
        return {}
    places = {name: find_place(device.contract, name, beside) for name, beside in named.items()}
    await check_read_gates(device, [place[0] for place in places.values() if place is not None])
    return {name: await device.look(name, beside) for name, beside in named.items()}


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
        if change.update is not None and change.update.needs_current and not change.update.shadow:
            wanted.append(change.register)
        observed = observed_register(change, device)
        if observed is not None:
            wanted.append(observed)
        wanted += [signal_place(s, change.register, device)[0] for s in change.judged.signals]
    before = await _observe(device, [r for r in wanted if r.name not in assumed])
    before |= {r.name: assumed[r.name] for r in wanted if r.name in assumed}
    await check_read_gates(device, [r for c in resolved.changes if (r := confirming_register(c, device)) is not None])
    held = before | await _shadows(resolved)
    values = {c.register.name: _whole_value(c, held, device) for c in resolved.changes}
    await device.know_home(resolved.registers[0])
    async with device.on_bus:
        await device.learn_selectors(resolved.registers[0])
    plan = _write_plan(resolved, values, held)
    targets = [target_of(c, values[c.register.name], before, device) for c in resolved.changes]
    windows = [c.judged.window_ms for c in resolved.changes if c.judged.window_ms is not None]
    window_ms = max(windows, default=DEFAULT_WINDOW_MS)
    return Prepared(
        resolved, plan, _bank(device, resolved.registers[0]), values, before, targets=targets, window_ms=window_ms
    )


async def _shadows(resolved: Resolved) -> dict[str, int]:
    """What registers hold that cannot be read: what was written to them last, as the store knows it.

    Raises:
        DomainError: refused; nothing is known of one in this generation.
    """
    device, found = resolved.device, {}
    for change in resolved.changes:
        if change.update is None or not change.update.shadow:
            continue
        register = change.register
        held = await device.recall(register.name)
        if held is None:
            raise refusal(
                Refused(
                    "no_shadow",
                    register.name,
                    None,
                    f"{register.name} cannot be read, and no write of it is known since the device's last start",
                    "write the whole register with reg.write once, stating every bit",
                ),
                device,
            )
        found[register.name] = held
    return found


def _write_plan(resolved: Resolved, values: Mapping[str, int], held: Mapping[str, int]) -> Plan:
    """The transfers of a write, and of what is consumed to verify it.

    An update by addresses that set, clear or toggle touches no neighbour, and one that the device merges none either.
    """
    device = resolved.device
    first = resolved.changes[0]
    if first.update is not None and first.update.by == "alias":
        register, mask, wanted = first.register, first.mask or 0, values[first.register.name]
        if first.update.needs_current:
            wanted ^= held[register.name]  # the bits that must toggle
        plan = plan_alias_write(device.contract, device.spec.address, register, wanted, mask, device.known)
        if not plan.accesses:
            raise refusal(_changes_nothing(register), device)
    elif first.update is not None and first.update.by == "device":
        kept, whole = first.update.from_current, values[first.register.name]
        plan = plan_merged_write(device.contract, device.spec.address, first.register, whole, kept, device.known)
    else:
        pairs = [(c.register, values[c.register.name]) for c in resolved.changes]
        make = plan_block_write if resolved.group is not None and resolved.group.transfer == "one" else plan_write
        plan = make(device.contract, device.spec.address, pairs, device.known)
    confirming = {r.name: r for r in (confirming_register(c, device) for c in resolved.changes) if r is not None}
    plan = with_confirmation(plan, device.contract, device.spec.address, list(confirming.values()))
    return device.through(_with_manners(plan, resolved.changes))


def _with_manners(plan: Plan, changes: Sequence[Change]) -> Plan:
    """The plan with what its writes say of a busy device, and of the rest that it needs afterwards."""
    return replace(
        plan,
        busy_retry=next((c.judged.busy_retry for c in changes if c.judged.busy_retry is not None), None),
        delay_after_ms=max(c.judged.delay_after_ms for c in changes),
    )


def _changes_nothing(register: Register) -> Refused:
    why = f"{register.name}: its bits are so already, and toggling none of them writes nothing"
    return Refused("changes_nothing", register.name, None, why, "nothing needs to be done")


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
        async with device.on_bus:
            await device.learn_selectors(register)
        plan = plan_write(device.contract, device.spec.address, [(register, change.value)], device.known)
        return SafePart(change, device.through(_with_manners(plan, [change])), _bank(device, register), returns)
    except DomainError as error:
        if error.code is Code.STORE_FAILED:
            raise
        return SafePart(change, Plan(()), {}, returns, error.message)


async def looked_at_again(part: SafePart, device: Device) -> SafePart:
    """An entry whose bus was away or in doubt since: who is there, and which bank is selected, is looked at anew."""
    moved = any(device.known.get(name) != value for name, value in part.bank.items())
    if part.fault is not None or (part.returns == device.worker.returns and not moved):
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
    if change.update.by == "alias":
        held, mask = before.get(register.name, 0), change.mask or 0
        return (held & ~mask) | (change.value & mask)
    merged = change.update.by == "device"
    current = before.get(register.name, 0) if merged else before.get(register.name)
    whole = updated_value(register, change.update, current, change.fields)
    loose = (change.mask or 0) & ~sum(f.mask for f in register.fields.values())
    whole = (whole & ~loose) | (change.value & loose)
    refused = None if merged else judge_whole_value(register, whole)
    if refused is not None:
        raise refusal(refused, device)
    return whole


async def _prepare_read(resolved: Resolved) -> Prepared:
    device = resolved.device
    rules = [read_rule(register, judged.effects, resolved.count, device) for register, judged in resolved.reads]
    names = [n for r in rules for n in (r.level, r.peek, r.state, *(a for a, _ in r.acknowledges)) if n is not None]
    levels = [find_register(device.contract, r.read.level, r) for r in resolved.registers if r.read.level is not None]
    wanted = [device.contract.registers[n] for n in names] + [r for r in levels if r is not None]
    before = await _observe(device, wanted)
    _refuse_empty(resolved, before)
    await device.know_home(resolved.registers[0])
    async with device.on_bus:
        await device.learn_selectors(resolved.registers[0])
    longest = device.worker.longest_read_bytes
    plan = plan_read(
        device.contract,
        device.spec.address,
        resolved.registers,
        device.known,
        count=resolved.count,
        longest_bytes=longest,
    )
    bank = _bank(device, resolved.registers[0])
    return Prepared(resolved, device.through(plan), bank, {}, before, read_rules=rules)


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
