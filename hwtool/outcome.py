"""What an outcome is, from what was observed: the classification after a dispatch, and the rules a row keeps.

Pure. Evidence becomes a verdict here, and in hwtool.reconciliation for what was unknown; nowhere else. Only a change
that can be named counts; bits that hardware moves by itself are no evidence.

    p = before the dispatch   n = now   v = wanted   r = the declared reset value

Source: docs/operations.md, the table of outcomes.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any, Literal, NamedTuple

import msgspec

from hwtool_contracts.effects import Reconcile

Effects = Literal["applied", "none", "unknown"]
# missed: a part of it is not as asked for, and whether anything changed cannot be told
Seen = Literal["applied", "satisfied", "unchanged", "other", "missed", "open"]


class SignalRule(msgspec.Struct, frozen=True):
    """One declared consequence: bits (`mask`) of the observable `name` change by `delta`, to `equals`, or at all."""

    name: str
    mask: int
    delta: int | None
    equals: int | None
    volatile: bool


class Target(msgspec.Struct, frozen=True):
    """What one register of a write should come to.

    Attributes:
        register: the register written.
        observe: name of the observable that shows it; None: nothing does.
        wanted: expected bits, inside `strong` and `toggles`.
        strong: bits whose value decides.
        weak: write-to-clear bits: expected clear; set may be a new event.
        named: strong bits the caller meant; others are neighbours of a masked write.
        reset: declared reset value of the observable, in the bits of `reset_known`.
        reconcile: the rule that may settle it.
        persistent: a reset of the chip does not take the value away.
        tolerance: how far from `wanted` the strong bits may be.
        confirms: reading `observe` consumes: the dispatch reads it as its end, and nobody reads it before or after.
        write_only: the register itself cannot be read: what it set off before a restart shows nowhere.
        unseen: the write acts on bits that `observe` does not show: that the others are as they were is not all of it.
    """

    register: str
    observe: str | None
    wanted: int
    strong: int
    weak: int
    toggles: int
    named: int
    reset: int
    reset_known: int
    reconcile: str
    persistent: bool
    signals: tuple[SignalRule, ...] = ()
    tolerance: int = 0
    confirms: bool = False
    write_only: bool = False
    unseen: bool = False


class ReadRule(msgspec.Struct, frozen=True):
    """How a read with effects may be settled.

    Attributes:
        kind: pop, peek, acknowledge, claim, undeclared or consuming (only a person can tell).
        reports: the board says `on_loss = "report"`, and the read consumes: what no rule can tell is closed as lost.
        level: observable that counts the FIFO's elements, if its producer cannot be hidden by it; in `level_mask`.
            `level_reset`: what a restart leaves there.
        peek: observable that shows the value without taking it; in `peek_mask`.
        acknowledges: observables that the read clears, with the bits it clears.
        count: elements asked for; `chunk`: how many one transfer takes, the most that a crash can lose (0: all).
        element: layout of one element, for what is on record (hwtool_registers.bits.Layout).
        state: observable that shows whether it is taken: the bits of `state_mask` are `state_taken`.
        reseek: register whose write sets the pointer anew that the read may have moved.
    """

    register: str
    kind: Literal["pop", "peek", "acknowledge", "claim", "undeclared", "consuming"]
    reports: bool = False
    level: str | None = None
    level_mask: int = 0
    level_reset: int = 0
    peek: str | None = None
    peek_mask: int = 0
    acknowledges: tuple[tuple[str, int], ...] = ()
    count: int = 1
    chunk: int = 0
    element: dict[str, Any] | None = None
    state: str | None = None
    state_mask: int = 0
    state_taken: int = 0
    reseek: str | None = None


class Verdict(NamedTuple):
    """A verdict with what was observed of the dispatch and why; `lost`: how many values are known to be gone."""

    verdict: str
    effects: Effects
    why: str
    lost: int | None = None


class NeedsPerson(NamedTuple):
    """No rule can tell; why."""

    why: str


def target_seen(target: Target, before: Mapping[str, int], now: Mapping[str, int], later: bool = False) -> Seen:
    """What the observables say of one target; `later`: not right after the dispatch, but at a settlement."""
    parts: list[Seen] = []
    if target.observe is not None and target.observe in now:
        n, p = now[target.observe], before.get(target.observe)
        if target.strong:
            parts.append(_compared(n & target.strong, None if p is None else p & target.strong, target))
        if target.weak:
            parts.append(_flags(n & target.weak, None if p is None else p & target.weak))
    for signal in target.signals:
        if signal.name in now and signal.name in before:
            parts.append(_signal(signal, before[signal.name] & signal.mask, now[signal.name] & signal.mask, later))
        else:
            parts.append("open")
    return combine(parts)


def _compared(n: int, p: int | None, target: Target) -> Seen:
    """As `_compare`; what is as near to the wanted value as the contract tolerates is there, changed or not."""
    if abs(n - target.wanted) > target.tolerance:
        return _compare(n, p, target.wanted)
    if p is None:
        return "open"
    return "satisfied" if n == p else "applied"


def _compare(n: int, p: int | None, v: int) -> Seen:
    if p is None:
        # without a picture from before, nothing can be called a change; but what is not there is not there
        return "open" if n == v else "missed"
    if n == v:
        return "satisfied" if p == v else "applied"
    return "unchanged" if n == p else "other"


def _flags(n: int, p: int | None) -> Seen:
    if p is None:
        return "open"
    if p == 0:
        return "satisfied" if n == 0 else "open"
    return "applied" if n == 0 else "open"


def _signal(signal: SignalRule, p: int, n: int, later: bool) -> Seen:
    if later and signal.volatile:
        return "open"  # hardware has had the time to move it by itself
    lsb = (signal.mask & -signal.mask).bit_length() - 1
    p, n = p >> lsb, n >> lsb
    top = signal.mask >> lsb
    if signal.equals is not None:
        hit = n == signal.equals and p != signal.equals
    elif signal.delta is not None:
        hit = (n - p) & top == signal.delta & top
    else:
        hit = n != p
    if hit:
        return "applied"
    # a still counter that hardware does not move proves that nothing ran; one that hardware moves proves nothing
    return "unchanged" if n == p and signal.delta is not None and not signal.volatile else "open"


def combine(parts: Sequence[Seen]) -> Seen:
    """What several observations say together: doubt wins over success, contradiction over doubt.

    What is not as it was asked for is never hidden by what cannot be seen.
    """
    if not parts:
        return "open"
    if "other" in parts:
        return "other"
    if "open" in parts:
        return "missed" if "unchanged" in parts or "missed" in parts else "open"
    if "missed" in parts:
        return "missed"
    if all(p == "satisfied" for p in parts):
        return "satisfied"
    if all(p in ("applied", "satisfied") for p in parts):
        return "applied"
    if all(p in ("unchanged", "satisfied") for p in parts):
        return "unchanged"
    return "other"


def write_seen(
    targets: Sequence[Target], before: Mapping[str, int], now: Mapping[str, int], later: bool = False
) -> Seen:
    """What the observables say of a whole write: that what shows is as it was says nothing of what does not show."""
    seen = combine([target_seen(t, before, now, later) for t in targets])
    return "open" if seen == "satisfied" and any(t.unseen for t in targets) else seen


def is_conclusive(targets: Sequence[Target], before: Mapping[str, int], now: Mapping[str, int]) -> bool:
    """Whether everything that shows is as it was asked for: to look longer would tell no more."""
    return combine([target_seen(t, before, now) for t in targets]) in ("applied", "satisfied")


def is_plain(targets: Sequence[Target]) -> bool:
    """Whether an unchanged state shows that nothing happened: stores alone, nothing that acts once."""
    return all(t.reconcile in (Reconcile.COMPARE, Reconcile.PAGE) and not t.signals for t in targets)


def conclude(seen: Seen, verifiable: bool, sole_master: bool, taken: str = "acknowledged") -> Verdict:
    """The verdict of a write that was sent to its end: at the first conclusive observation, or the window's end.

    `sole_master`: nobody else writes, and the write is plain: an unchanged state means that nothing happened. `taken`:
    what the bus says of it: `acknowledged`, or no more than `sent`.
    """
    match seen:
        case "applied":
            return Verdict("applied", "applied", "the change was seen")
        case "satisfied":
            return Verdict("satisfied", "none", "it was so already")
        case "unchanged":
            effects: Effects = "none" if sole_master else "unknown"
            return Verdict("not_applied", effects, f"{taken}, but the state did not change")
        case "other":
            return Verdict("not_applied", "applied", f"{taken}, but the state is neither old nor wanted")
        case "missed":
            return Verdict("not_applied", "unknown", f"{taken}, but not all of the state asked for is there")
        case "open":
            why = f"{taken}; no change could be named within the window" if verifiable else taken
            return Verdict("applied", "unknown", why)


class StepOutcome(NamedTuple):
    """What one step of a sequence with an operation came to; `verdict` None: unknown."""

    number: int
    verdict: str | None
    effects: Effects
    ok: bool


def sequence_verdict(outcomes: Sequence[StepOutcome], complete: bool) -> Verdict:
    """The verdict of a sequence that has ended: applied if every step was ok, partial if it stopped after an effect."""
    effects: Effects = "none"
    if any(o.effects == "applied" for o in outcomes):
        effects = "applied"
    elif any(o.effects == "unknown" for o in outcomes):
        effects = "unknown"
    if complete and all(o.ok for o in outcomes):
        return Verdict("applied", effects, "every step was done")
    if effects == "none":
        return Verdict("not_applied", "none", "it stopped, and no step had an effect")
    return Verdict("partial", effects, "it stopped after a step with an effect")


def sequence_ended(steps: Sequence[Mapping[str, Any]], outcomes: Sequence[StepOutcome]) -> Verdict:
    """The verdict of a sequence that nobody runs any more, by its own row and its steps' operations.

    A step that was begun shows that every clean step before it held; those after the last one were not looked at.
    """
    last = max((o.number for o in outcomes), default=0)
    complete = all(s["step"] <= last for s in steps)
    return sequence_verdict(outcomes, complete)


def as_row(rules: Sequence[Target] | Sequence[ReadRule]) -> list[dict[str, Any]]:
    """Rules as they stand in an operation's row."""
    built: list[dict[str, Any]] = msgspec.to_builtins(list(rules))
    return built


def targets_of(row: list[dict[str, Any]]) -> list[Target]:
    """The write rules of a row."""
    return msgspec.convert(row, list[Target])


def read_rules_of(row: list[dict[str, Any]]) -> list[ReadRule]:
    """The read rules of a row."""
    return msgspec.convert(row, list[ReadRule])
