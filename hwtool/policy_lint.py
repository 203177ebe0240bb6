"""What is odd in the policy of a board: rules that are never asked, that forbid nothing, or that narrow nothing."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from decimal import Decimal

from hwtool.config import Board
from hwtool.policy_table import Gate, PolicyLimits, Rule, YesNo
from hwtool_contracts.glob import is_pattern
from hwtool_contracts.judge import ReadJudgement, judge_read
from hwtool_contracts.model import Contract, Encoding, Limits, Register

FLOATS = (Encoding.FLOAT32, Encoding.FLOAT64)
Pairs = frozenset[tuple[str, str]]


def of_policy(board: Board) -> Iterator[str]:
    """What is odd in a board's rules, each with its place."""
    meant = [_pairs(board, rule) for rule in board.policy]
    for index, rule in enumerate(board.policy):
        where = f"policy[{index}]"
        if _covered(board.policy[:index], meant[:index], rule, meant[index]):
            yield f"{where}: never asked: an earlier rule matches everything that it does ({rule.name()})"
            continue
        registers = [(d, board.devices[d].contract, r) for d, r in sorted(meant[index])]
        yield from (f"{where}: {told}" for told in _about_nothing(rule, registers))
        yield from (f"{where}: {told}" for told in _limits(rule, registers))


def _pairs(board: Board, rule: Rule) -> Pairs:
    """Every device and register, or memory, that a rule speaks of."""
    return frozenset(
        (device, name)
        for device, spec in board.devices.items()
        for name in (*spec.contract.registers, *spec.contract.memories)
        if rule.about(device, name)
    )


def _covered(earlier: Sequence[Rule], meant: Sequence[Pairs], rule: Rule, pairs: Pairs) -> bool:
    """Whether earlier rules, together, match everything that a rule does, as far as their words tell."""
    before = frozenset[tuple[str, str]]().union(
        *(m for r, m in zip(earlier, meant, strict=True) if r.who in ("*", rule.who))
    )
    return pairs <= before


def _about_nothing(rule: Rule, registers: list[tuple[str, Contract, str]]) -> Iterator[str]:
    """A rule of what cannot be done there anyway, or that is thought to free what the contract ties."""
    known = [(c, c.registers[r]) for _, c, r in registers if r in c.registers]
    if len(known) < len(registers):
        return  # a memory is among them
    names = ", ".join(f"{d}.{r}" for d, _, r in registers[:3]) + (" …" if len(registers) > 3 else "")
    writable = [r for _, r in known if r.access.writable]
    if (rule.write is not None or rule.limits is not None) and not writable:
        yield f"about writing {names}, which cannot be written"
    readable = [(c, r) for c, r in known if r.access.readable]
    effectful = [1 for c, r in readable if isinstance(j := judge_read(c, (r,)), ReadJudgement) and not j.clean]
    if rule.effectful_read is not None and not effectful:
        yield f"effectful_read, and reading {names} has no effect: read is the word"
    clean = len(effectful) < len(readable)
    if rule.read is YesNo.NO and rule.effectful_read is None and readable and not clean:
        yield f"read = no, and reading {names} always has an effect: effectful_read is the word"
    asking = [r.name for r in writable if _asks(r)]
    if rule.write is Gate.YES and asking and not is_pattern(rule.register):
        yield f"write = yes takes no approval away: {', '.join(asking)} needs one by its contract"


def _asks(register: Register) -> bool:
    specs = [register.write, *(f.write for f in register.fields.values())]
    return any(s.approval == "required" or s.irreversible for s in specs)


def _limits(rule: Rule, registers: list[tuple[str, Contract, str]]) -> Iterator[str]:
    """Limits, of raw values, beside those of the contract: they narrow nothing, or leave nothing."""
    limits = rule.limits
    for device, contract, name in registers if limits is not None and limits.unit is None else ():
        register = contract.registers.get(name)
        own = None if register is None else register.write.limits
        if register is None or limits is None or register.quantity.encoding in FLOATS:
            continue
        low, high = _ends(own, register)
        above = limits.minimum is not None and limits.minimum > high
        if above or (limits.maximum is not None and limits.maximum < low):
            yield f"limits {limits} leave nothing of {device}.{name}, whose contract has {low} to {high}"
        elif own is not None and _wider(limits, low, high):
            yield f"limits {limits} narrow nothing: the contract of {device}.{name} has {low} to {high}"


def _ends(limits: Limits | None, register: Register) -> tuple[Decimal, Decimal]:
    low = Decimal(0) if limits is None or limits.minimum is None else Decimal(limits.minimum)
    return low, Decimal(register.mask) if limits is None or limits.maximum is None else Decimal(limits.maximum)


def _wider(limits: PolicyLimits, low: Decimal, high: Decimal) -> bool:
    return (limits.minimum is None or limits.minimum <= low) and (limits.maximum is None or limits.maximum >= high)
