"""What policy lets a caller do: which rule decides, and the refusals and approvals that follow from it.

    the board's rules, first match  >  the built-in last rule: reads yes, effectful reads yes, writes by contract,
                                       confidential registers to operators alone

A safe state is never gated: its content was approved when it was written into the board. Everything else that a request
looks at or changes is asked for here, before its key is used, and again at the head of the queue for what is only known
there. Nothing here touches a device.
"""

from __future__ import annotations

from collections import defaultdict, deque
from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass, field, replace
from decimal import Decimal
from typing import Any, Final, Literal

from hwtool.devices import Device
from hwtool.policy import Caller
from hwtool.policy_table import Gate, PolicyLimits, Rule, YesNo
from hwtool.resolve import Change, Resolved
from hwtool.results import slot_of, sources
from hwtool.rules import confirming_register
from hwtool.steps import ResolvedSequence
from hwtool_contracts.effects import WriteEffect
from hwtool_contracts.errors import Code, DomainError
from hwtool_contracts.model import Encoding, Field, Register
from hwtool_contracts.places import find_place, find_register
from hwtool_registers.value import Slot, decode

Use = Literal["read", "effectful_read", "write"]
RATE_WINDOW_S: Final = 60.0
SAID: Final = {"read": "be read", "effectful_read": "be read with effects", "write": "be written"}


@dataclass(frozen=True, slots=True)
class Touch:
    """One register that a request looks at or changes; `step` of a sequence."""

    device: Device
    register: Register
    use: Use
    step: int | None = None
    change: Change | None = None


@dataclass
class Rates:
    """When callers began operations under rules that limit how many a minute; a rule is what it says, not its place."""

    _begun_s: dict[tuple[str, Rule], deque[float]] = field(default_factory=lambda: defaultdict(deque))

    def rest_s(self, principal: str, rule: Rule, now_s: float, wanted: int) -> float:
        """How long until `wanted` more may begin, of which a minute can have so many; 0: at once."""
        begun = self._begun_s[principal, replace(rule, number=0)]
        while begun and now_s - begun[0] >= RATE_WINDOW_S:
            begun.popleft()
        over = len(begun) + wanted - (rule.rate_per_min or 0)
        return 0.0 if over <= 0 else RATE_WINDOW_S - (now_s - begun[over - 1])

    def note(self, principal: str, rule: Rule, now_s: float) -> None:
        """One has begun."""
        self._begun_s[principal, replace(rule, number=0)].append(now_s)


def deciding(rules: Iterable[Rule], caller: Caller, device: str, register: str) -> Rule | None:
    """The first rule that matches; None: the built-in last rule."""
    return next((r for r in rules if r.meant_for(caller.uid, caller.groups) and r.about(device, register)), None)


def touched(resolved: Resolved | ResolvedSequence) -> Iterator[Touch]:
    """Everything that a request looks at or changes by name; preparation beyond that is the contract's own."""
    if isinstance(resolved, Resolved):
        yield from _touched(resolved, None)
        return
    for step in resolved.steps:
        if step.keyed is not None:
            yield from _touched(step.keyed, step.number)
        for register in () if step.keyed is not None else step.registers:
            yield Touch(step.device, register, "read", step.number)


def _touched(resolved: Resolved, step: int | None) -> Iterator[Touch]:
    device = resolved.device
    for name in resolved.expect:
        yield Touch(device, device.contract.registers[name], "read", step)
    for register, _ in resolved.reads:
        yield Touch(device, register, "effectful_read", step)
    for change in resolved.changes:
        yield Touch(device, change.register, "write", step, change)
        consumed = confirming_register(change, device)
        if consumed is not None:
            yield Touch(device, consumed, "effectful_read", step)


def shows_confidential(rule: Rule | None, caller: Caller) -> bool:
    """Whether confidential registers are shown to a caller."""
    return rule.confidential if rule is not None and rule.confidential is not None else caller.role == "operator"


def meant_by(touch: Touch) -> tuple[Register, ...]:
    """The registers that a use of one is a use of: others at its place, and what a write stores elsewhere.

    A rule about one name of some bits holds for every other name of them.
    """
    reached = touch.device.reached(touch.register)
    if touch.use != "write":
        return reached
    specs = [touch.register.write, *(f.write for f in touch.register.fields.values())]
    named = (find_register(touch.device.contract, name, touch.register) for s in specs for name in s.affects)
    stored = {r.name: r for r in named if r is not None and r.access.writable and r.write.effect is WriteEffect.STORE}
    return (*reached, *(r for r in stored.values() if r.name not in {o.name for o in reached}))


def check_use(rules: tuple[Rule, ...], caller: Caller, touch: Touch) -> None:
    """Refuse one use of one register.

    Raises:
        DomainError: denied, by the rule that decides or since the register is confidential.
    """
    name = f"{touch.device.name}.{touch.register.name}"
    where = name if touch.step is None else f"step {touch.step}: {name}"
    for register in meant_by(touch) if rules else ():
        rule = deciding(rules, caller, touch.device.name, register.name)
        if rule is not None and getattr(rule, touch.use) in (YesNo.NO, Gate.NO):
            also = "" if register is touch.register else f" (it is a use of {register.name} too)"
            raise DomainError(
                Code.DENIED,
                f"{where} may not {SAID[touch.use]} by {caller.principal}{also}: {rule.name()}",
                reason=f"policy rule {rule.number}: {touch.use} = no",
                required="a change of the board's policy by an operator",
            )
    if not _looks(touch):
        return
    for register in touch.device.reached(touch.register):
        if not register.is_confidential:
            continue
        rule = deciding(rules, caller, touch.device.name, register.name)
        if not shows_confidential(rule, caller):
            raise DomainError(
                Code.DENIED,
                f"{where} is confidential: it is not shown to {caller.principal}",
                reason="confidential" if rule is None else f"confidential, and {rule.name()} does not show it",
                required="a policy rule with confidential = true for this caller",
            )


def _looks(touch: Touch) -> bool:
    """Whether a use tells what the register holds: a write does that can be read back, or is laid over a shadow."""
    if touch.use != "write" or touch.register.access.readable:
        return True
    return touch.change is not None and touch.change.update is not None


def check(rules: tuple[Rule, ...], caller: Caller, resolved: Resolved | ResolvedSequence) -> None:
    """Refuse what a caller may not do, as far as the request alone tells.

    Raises:
        DomainError: denied, or refused (`policy_limits`); the key stays unused.
    """
    if resolved.kind == "safe_state":
        return
    for touch in touched(resolved):
        check_use(rules, caller, touch)
        _check_other_names(rules, caller, touch)
        rule = deciding(rules, caller, touch.device.name, touch.register.name)
        if touch.change is not None and rule is not None and rule.limits is not None:
            whole = touch.change.value if touch.change.mask is None and not touch.change.fields else None
            _check_limits(rule, rule.limits, touch.device, touch.change, whole, None)


def check_values(
    rules: tuple[Rule, ...],
    caller: Caller,
    resolved: Resolved,
    values: Mapping[str, int],
    known: Mapping[str, int],
) -> None:
    """Refuse whole values outside a rule's limits, once they are known.

    Args:
        values: whole raw value of each register written, as it is about to be sent.
        known: what other registers say of how values are to be understood.

    Raises:
        DomainError: refused (`policy_limits`); the key stays unused.
    """
    for change in resolved.changes if resolved.kind != "safe_state" else ():
        rule = deciding(rules, caller, resolved.device.name, change.register.name)
        if rule is not None and rule.limits is not None:
            whole = values[change.register.name] if change.writes_whole else None
            then = dict(known) | _written_sources(resolved, values)
            _check_limits(rule, rule.limits, resolved.device, change, whole, then)


def _written_sources(resolved: Resolved, values: Mapping[str, int]) -> dict[str, int]:
    """What this request itself writes of what says how values are to be understood: they are read by it afterwards."""
    found: dict[str, int] = {}
    written = {c.register.name: c.register.mask if c.writes_whole else c.mask or 0 for c in resolved.changes}
    for name, beside in sources(resolved.registers).items():
        place = find_place(resolved.device.contract, name, beside)
        if place is not None and place[0].name in values:
            holder, part = place
            if (holder if part is None else part).mask & ~written.get(holder.name, 0):
                continue  # the device keeps what is there
            found[name] = values[holder.name] if part is None else part.taken(values[holder.name])
    return found


def _check_limits(
    rule: Rule, limits: PolicyLimits, device: Device, change: Change, whole: int | None, known: Mapping[str, int] | None
) -> None:
    """Refuse numbers outside; `known` None: at the head of the queue it is asked for again, with all that is known."""
    register = change.register
    if limits.unit is None:
        if whole is None and known is None:
            return
        number = None if whole is None else _unscaled(register, whole)
        if number is None:
            raise _outside(rule, device, change, "the whole number that it would hold is not known, and has limits")
        if not limits.admits(number):
            raise _outside(rule, device, change, f"{whole:#x} ({number}) is outside {limits}")
        return
    for name, place, raw in _parts_with(limits.unit, change, whole):
        number = None if raw is None else _number(place, raw, known or {})
        if number is None and known is not None:
            raise _outside(rule, device, change, f"what {name} would be in {limits.unit} cannot be told")
        if number is not None and not limits.admits(number):
            raise _outside(rule, device, change, f"{name} = {number} {limits.unit} is outside {limits}")


def _parts_with(unit: str, change: Change, whole: int | None) -> Iterator[tuple[str, Register | Field, int | None]]:
    """The register and those of its fields that have a unit and are written, each with its raw value if it is known."""
    register = change.register
    if register.quantity.unit == unit:
        yield register.name, register, whole
    mask = register.mask if change.mask is None else change.mask
    for part in register.fields.values():
        if part.quantity.unit != unit or not part.access.writable:
            continue
        name = f"{register.name}.{part.name}"
        if whole is not None:
            yield name, part, part.taken(whole)
        elif part.name in change.fields:
            yield name, part, change.fields[part.name]
        elif mask & part.mask:
            yield name, part, part.taken(change.value) if part.mask & ~mask == 0 else None


def _number(place: Register | Field, raw: int, known: Mapping[str, int]) -> Decimal | None:
    """The number in its unit; None where what decides about it is not known."""
    slot = slot_of(place, known)
    if place.quantity.scale_from is not None and slot.scale is None:
        return None
    if place.quantity.exponent_from is not None and slot.exponent is None:
        return None
    return decode(slot, raw)


def _unscaled(register: Register, raw: int) -> Decimal | None:
    """The number that the bits are, signed where the contract says so, before any scale; None: no number."""
    plain = replace(register.quantity, scale=None, add=None, unit=None, scale_from=None, scales={}, scale_param=None)
    if plain.encoding in (Encoding.TEXT, Encoding.BYTES, Encoding.LINEAR16):
        return None
    return decode(Slot(register.width_bits, plain, {}), raw)


def _outside(rule: Rule, device: Device, change: Change, why: str) -> DomainError:
    name = f"{device.name}.{change.register.name}"
    told = "its value (it is sensitive) is outside the limits" if change.register.sensitive else why
    return DomainError(
        Code.REFUSED,
        f"{name}: {told}; {rule.name()}",
        hint=f"a value from {rule.limits}",
        rule="policy_limits",
        register=name,
        field=None,
    )


def _check_other_names(rules: tuple[Rule, ...], caller: Caller, touch: Touch) -> None:
    """Refuse a write of bits whose limits stand at another name of theirs: they cannot be judged from here.

    Raises:
        DomainError: refused (`policy_limits`).
    """
    if touch.change is None or not rules:
        return
    own = deciding(rules, caller, touch.device.name, touch.register.name)
    for register in meant_by(touch)[1:]:
        rule = deciding(rules, caller, touch.device.name, register.name)
        if rule is not None and rule.limits is not None and rule is not own and register.access.writable:
            why = f"it changes {register.name} too, which has limits: write that register"
            raise _outside(rule, touch.device, touch.change, why)


def approval(rules: tuple[Rule, ...], caller: Caller, resolved: Resolved | ResolvedSequence) -> tuple[str, ...]:
    """Why the board wants a person to agree, beyond what the contract says."""
    if resolved.kind == "safe_state":
        return ()
    found: dict[str, None] = {}
    for touch in touched(resolved) if rules else ():
        for register in meant_by(touch) if touch.use != "read" else ():
            rule = deciding(rules, caller, touch.device.name, register.name)
            if rule is not None and getattr(rule, touch.use) is Gate.APPROVAL:
                step = "" if touch.step is None else f"step {touch.step}: "
                found[f"{step}policy rule {rule.number} wants approval of {touch.device.name}.{register.name}"] = None
    return tuple(found)


def check_rate(
    rates: Rates, rules: tuple[Rule, ...], caller: Caller, resolved: Resolved | ResolvedSequence, now_s: float
) -> None:
    """Refuse a caller who begins more operations a minute than the rule that decides allows.

    Raises:
        DomainError: rate_limited with how long to wait, or refused (`policy_rate`) where it never fits; the key stays
            unused.
    """
    for rule, wanted in _limited(rules, caller, resolved).values():
        limit = rule.rate_per_min or 0
        if wanted > limit:
            message = f"{resolved.name()} begins {wanted} operations, and {limit} may begin in a minute: {rule.name()}"
            hint = f"sequences of at most {limit} step(s) with an effect"
            raise DomainError(Code.REFUSED, message, hint=hint, rule="policy_rate", register=None, field=None)
        rest_s = rates.rest_s(caller.principal, rule, now_s, wanted)
        if rest_s > 0:
            message = f"{caller.principal} may begin {limit} operation(s) in a minute, and did: {rule.name()}"
            raise DomainError(Code.RATE_LIMITED, message, retry_after_ms=max(1, round(1000 * rest_s)), limit=limit)


def take_rate(
    rates: Rates, rules: tuple[Rule, ...], caller: Caller, resolved: Resolved | ResolvedSequence, now_s: float
) -> None:
    """Check, and count the operations of a request that begins now; of a sequence all of them, at once.

    Raises:
        DomainError: as `check_rate`.
    """
    check_rate(rates, rules, caller, resolved, now_s)
    for rule, wanted in _limited(rules, caller, resolved).values():
        for _ in range(wanted):
            rates.note(caller.principal, rule, now_s)


def _limited(
    rules: tuple[Rule, ...], caller: Caller, resolved: Resolved | ResolvedSequence
) -> dict[int, tuple[Rule, int]]:
    """The rules with a rate that decide over a request, each with the operations that it would begin."""
    if resolved.kind == "safe_state":
        return {}
    operations: dict[int, tuple[Rule, set[int | None]]] = {}
    for touch in touched(resolved):
        rule = deciding(rules, caller, touch.device.name, touch.register.name)
        if rule is not None and rule.rate_per_min is not None and touch.use != "read":
            operations.setdefault(rule.number, (rule, set()))[1].add(touch.step)
    return {number: (rule, len(steps)) for number, (rule, steps) in operations.items()}


def decision(rules: tuple[Rule, ...], caller: Caller, device: Device, register: Register) -> dict[str, Any]:
    """What a caller may do with a register, and which rule says so."""
    rule = deciding(rules, caller, device.name, register.name)
    confidential = device.is_confidential(register)
    hidden = confidential and not shows_confidential(rule, caller)
    return {
        "register": f"{device.name}.{register.name}",
        "caller": {"uid": caller.uid, "groups": sorted(caller.groups), "role": caller.role},
        "rule": None if rule is None else rule.number,
        "decided_by": "the built-in last rule" if rule is None else rule.name(),
        "read": _read_word(rule, hidden),
        "effectful_read": "yes" if rule is None or rule.effectful_read is None else rule.effectful_read.value,
        "write": "by contract" if rule is None or rule.write in (None, Gate.YES) else rule.write.value,
        "limits": None if rule is None or rule.limits is None else str(rule.limits),
        "rate_per_min": None if rule is None else rule.rate_per_min,
        "confidential": None if not confidential else "not shown" if hidden else "shown",
    }


def _read_word(rule: Rule | None, hidden: bool) -> str:
    if hidden:
        return "no"
    return "yes" if rule is None or rule.read is None else rule.read.value


def rule_object(rule: Rule) -> dict[str, Any]:
    """A rule as `policy.show` tells it."""
    told: dict[str, Any] = {"number": rule.number, "who": rule.who, "device": rule.device, "register": rule.register}
    for key in ("read", "effectful_read", "write"):
        word = getattr(rule, key)
        told |= {} if word is None else {key: word.value}
    told |= {} if rule.limits is None else {"limits": str(rule.limits)}
    told |= {} if rule.rate_per_min is None else {"rate_per_min": rule.rate_per_min}
    return told | ({} if rule.confidential is None else {"confidential": rule.confidential})
