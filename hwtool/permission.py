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
from dataclasses import dataclass, field
from decimal import Decimal
from typing import Any, Final, Literal

from hwtool.devices import Device
from hwtool.policy import Caller
from hwtool.policy_table import Gate, PolicyLimits, Rule, YesNo
from hwtool.resolve import Change, Resolved
from hwtool.results import slot_of
from hwtool.rules import confirming_register
from hwtool.steps import ResolvedSequence
from hwtool_contracts.errors import Code, DomainError
from hwtool_contracts.model import Field, Register
from hwtool_registers.value import decode

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
    """When callers began operations under rules that limit how many a minute."""

    _begun_s: dict[tuple[str, int], deque[float]] = field(default_factory=lambda: defaultdict(deque))

    def rest_s(self, principal: str, rule: Rule, now_s: float, wanted: int) -> float:
        """How long until `wanted` more may begin; 0: at once.

        More at once than a minute may have never fit: the whole window is answered.
        """
        begun = self._begun_s[principal, rule.number]
        while begun and now_s - begun[0] >= RATE_WINDOW_S:
            begun.popleft()
        over = len(begun) + wanted - (rule.rate_per_min or 0)
        if over <= 0:
            return 0.0
        return RATE_WINDOW_S if over > len(begun) else RATE_WINDOW_S - (now_s - begun[over - 1])

    def note(self, principal: str, rule: Rule, now_s: float) -> None:
        """One has begun."""
        self._begun_s[principal, rule.number].append(now_s)


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


def check_use(rules: Iterable[Rule], caller: Caller, touch: Touch) -> None:
    """Refuse one use of one register.

    Raises:
        DomainError: denied, by the rule that decides or since the register is confidential.
    """
    rule = deciding(rules, caller, touch.device.name, touch.register.name)
    name = f"{touch.device.name}.{touch.register.name}"
    where = name if touch.step is None else f"step {touch.step}: {name}"
    word: YesNo | Gate | None = None if rule is None else getattr(rule, touch.use)
    if rule is not None and word in (YesNo.NO, Gate.NO):
        raise DomainError(
            Code.DENIED,
            f"{where} may not {SAID[touch.use]} by {caller.principal}: {rule.name()}",
            reason=f"policy rule {rule.number}: {touch.use} = no",
            required="a change of the board's policy by an operator",
        )
    # what a write that can be read back comes to tells what was there; one that cannot, tells nothing
    looks = touch.use != "write" or touch.register.access.readable
    if looks and touch.device.is_confidential(touch.register) and not shows_confidential(rule, caller):
        raise DomainError(
            Code.DENIED,
            f"{where} is confidential: it is not shown to {caller.principal}",
            reason="confidential" if rule is None else f"confidential, and {rule.name()} does not show it",
            required="a policy rule with confidential = true for this caller",
        )


def check(rules: tuple[Rule, ...], caller: Caller, resolved: Resolved | ResolvedSequence) -> None:
    """Refuse what a caller may not do, as far as the request alone tells.

    Raises:
        DomainError: denied, or refused (`policy_limits`); the key stays unused.
    """
    if resolved.kind == "safe_state":
        return
    for touch in touched(resolved):
        check_use(rules, caller, touch)
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
        if rule is None or rule.limits is None:
            continue
        if not change.writes_whole and rule.limits.unit is None:
            why = "only a part of it is written, and its limits are of the whole"
            raise _outside(rule, resolved.device, change, why)
        whole = values[change.register.name] if change.writes_whole else None
        _check_limits(rule, rule.limits, resolved.device, change, whole, known)


def _check_limits(
    rule: Rule, limits: PolicyLimits, device: Device, change: Change, whole: int | None, known: Mapping[str, int] | None
) -> None:
    """Refuse numbers outside; `known` None: not yet, one that depends on another register is asked for again then."""
    register = change.register
    if limits.unit is None:
        if whole is not None and not limits.admits(Decimal(whole)):
            raise _outside(rule, device, change, f"{whole:#x} ({whole}) is outside {limits}")
        return
    places: list[tuple[str, Register | Field, int]] = []
    if register.quantity.unit == limits.unit and whole is not None:
        places.append((register.name, register, whole))
    for part in register.fields.values():
        if part.quantity.unit != limits.unit or not part.access.writable:
            continue
        raw = change.fields.get(part.name) if whole is None else part.taken(whole)
        if raw is not None:
            places.append((f"{register.name}.{part.name}", part, raw))
    for name, place, raw in places:
        number = decode(slot_of(place, known or {}), raw)
        if number is None and known is not None:
            raise _outside(rule, device, change, f"what {raw:#x} is in {limits.unit} cannot be told for {name}")
        if number is not None and not limits.admits(number):
            raise _outside(rule, device, change, f"{name} = {number} {limits.unit} is outside {limits}")


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


def approval(rules: tuple[Rule, ...], caller: Caller, resolved: Resolved | ResolvedSequence) -> tuple[str, ...]:
    """Why the board wants a person to agree, beyond what the contract says."""
    if resolved.kind == "safe_state":
        return ()
    found: dict[str, None] = {}
    for touch in touched(resolved):
        rule = deciding(rules, caller, touch.device.name, touch.register.name)
        if rule is not None and touch.use != "read" and getattr(rule, touch.use) is Gate.APPROVAL:
            step = "" if touch.step is None else f"step {touch.step}: "
            found[f"{step}policy rule {rule.number} wants approval of {touch.device.name}.{touch.register.name}"] = None
    return tuple(found)


def check_rate(
    rates: Rates, rules: tuple[Rule, ...], caller: Caller, resolved: Resolved | ResolvedSequence, now_s: float
) -> None:
    """Refuse a caller who begins more operations a minute than the rule that decides allows.

    Raises:
        DomainError: rate_limited with how long to wait; the key stays unused.
    """
    for rule, wanted in _limited(rules, caller, resolved).values():
        rest_s = rates.rest_s(caller.principal, rule, now_s, wanted)
        if rest_s > 0:
            message = f"{caller.principal} has begun {rule.rate_per_min} operation(s) in a minute: {rule.name()}"
            limit = rule.rate_per_min
            raise DomainError(Code.RATE_LIMITED, message, retry_after_ms=max(1, round(1000 * rest_s)), limit=limit)


def note_rate(rates: Rates, rules: tuple[Rule, ...], caller: Caller, resolved: Resolved, now_s: float) -> None:
    """An operation is about to begin."""
    for rule, _ in _limited(rules, caller, resolved).values():
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
    return {
        "register": f"{device.name}.{register.name}",
        "caller": {"uid": caller.uid, "groups": sorted(caller.groups), "role": caller.role},
        "rule": None if rule is None else rule.number,
        "decided_by": "the built-in last rule" if rule is None else rule.name(),
        "read": "yes" if rule is None or rule.read is None else rule.read.value,
        "effectful_read": "yes" if rule is None or rule.effectful_read is None else rule.effectful_read.value,
        "write": "by contract" if rule is None or rule.write in (None, Gate.YES) else rule.write.value,
        "limits": None if rule is None or rule.limits is None else str(rule.limits),
        "rate_per_min": None if rule is None else rule.rate_per_min,
        "confidential": None if not confidential else "shown" if shows_confidential(rule, caller) else "not shown",
    }


def rule_object(rule: Rule) -> dict[str, Any]:
    """A rule as `policy.show` tells it."""
    told: dict[str, Any] = {"number": rule.number, "who": rule.who, "device": rule.device, "register": rule.register}
    for key in ("read", "effectful_read", "write"):
        word = getattr(rule, key)
        told |= {} if word is None else {key: word.value}
    told |= {} if rule.limits is None else {"limits": str(rule.limits)}
    told |= {} if rule.rate_per_min is None else {"rate_per_min": rule.rate_per_min}
    return told | ({} if rule.confidential is None else {"confidential": rule.confidential})
