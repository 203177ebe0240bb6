"""What an outcome is, from what was observed: the classification after a dispatch and the rules of reconciliation.

Pure, and the only place where evidence becomes a verdict. The inputs are plain data that the row of an operation
holds, so that an operation is settled by what was true when it was sent, never by the contract of today.

    p = before the dispatch   n = now   v = wanted   r = the declared reset value

Rules
- Only a change that can be named counts; bits that hardware moves by itself are no evidence.
- E1, did the device restart since? `same`: the table below. `reset`: registers that a reset sets back are superseded,
  everything else needs a person. `silent` (most chips): a value that equals r proves nothing.
- E2, does anybody else write? Without a sole master only `satisfied` settles.
- A read whose effect nobody has declared can never be settled by a rule: it is closed at once as lost, not held.
- A write whose effect nobody has declared needs a person.

Source: docs/operations.md, the table of reconciliation.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any, Final, Literal, NamedTuple

import msgspec

from hwtool_contracts.effects import Reconcile

Effects = Literal["applied", "none", "unknown"]
Restart = Literal["same", "reset", "silent"]
# missed: a part of it is not as asked for, and whether anything changed cannot be told
Seen = Literal["applied", "satisfied", "unchanged", "other", "missed", "open"]


# what a reset of the chip sets back; anything else may have set something off before
SET_BACK: Final = frozenset(
    {Reconcile.COMPARE, Reconcile.COMPARE_STORED, Reconcile.WERE_SET_NOW_CLEAR, Reconcile.PARITY}
)


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


class ReadRule(msgspec.Struct, frozen=True):
    """How a read with effects may be settled.

    Attributes:
        kind: pop, peek, acknowledge, claim, undeclared or consuming (only a person can tell).
        reports: the board says `on_loss = "report"`, and the read consumes: what no rule can tell is closed as lost.
        level: observable that counts the FIFO's elements, if its producer cannot be hidden by it; in `level_mask`.
        peek: observable that shows the value without taking it; in `peek_mask`.
        acknowledges: observables that the read clears, with the bits it clears.
        count: elements asked for.
        state: observable that shows whether it is taken: the bits of `state_mask` are `state_taken`.
        reseek: register whose write sets the pointer anew that the read may have moved.
    """

    register: str
    kind: Literal["pop", "peek", "acknowledge", "claim", "undeclared", "consuming"]
    reports: bool = False
    level: str | None = None
    level_mask: int = 0
    peek: str | None = None
    peek_mask: int = 0
    acknowledges: tuple[tuple[str, int], ...] = ()
    count: int = 1
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


HOST_WORD: Final = "host:"  # boot evidence that is the host's boot id, not the device's own word


def restart_between(before: str | None, now: str | None) -> Restart:
    """What two pieces of boot evidence say together; a device's own word and its host's cannot be compared."""
    if before is None or now is None or before.startswith(HOST_WORD) != now.startswith(HOST_WORD):
        return "silent"
    return "same" if before == now else "reset"


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
    """What the observables say of a whole write."""
    return combine([target_seen(t, before, now, later) for t in targets])


def is_plain(targets: Sequence[Target]) -> bool:
    """Whether an unchanged state shows that nothing happened: stores alone, nothing that acts once."""
    return all(t.reconcile == Reconcile.COMPARE and not t.signals for t in targets)


def conclude(seen: Seen, verifiable: bool, sole_master: bool) -> Verdict:
    """The verdict of an acknowledged write at the first conclusive observation, or at the end of its window.

    `sole_master`: nobody else writes, and the write is plain: an unchanged state means that nothing happened.
    """
    match seen:
        case "applied":
            return Verdict("applied", "applied", "the change was seen")
        case "satisfied":
            return Verdict("satisfied", "none", "it was so already")
        case "unchanged":
            effects: Effects = "none" if sole_master else "unknown"
            return Verdict("not_applied", effects, "acknowledged, but the state did not change")
        case "other":
            return Verdict("not_applied", "applied", "acknowledged, but the state is neither old nor wanted")
        case "missed":
            return Verdict("not_applied", "unknown", "acknowledged, but not all of the state asked for is there")
        case "open":
            why = "acknowledged; no change could be named within the window" if verifiable else "acknowledged"
            return Verdict("applied", "unknown", why)


def settle_write(
    targets: Sequence[Target],
    before: Mapping[str, int],
    now: Mapping[str, int] | None,
    restart: Restart,
    sole_master: bool,
) -> Verdict | NeedsPerson:
    """Settle a write whose outcome is unknown; `now` is None where the observables could not be read cleanly."""
    kinds = {Reconcile(t.reconcile) for t in targets}
    if Reconcile.PERSON in kinds:
        return NeedsPerson("nobody has declared what the write does")
    if restart == "reset" and (any(t.signals for t in targets) or not all(t.persistent for t in targets)):
        if any(t.persistent for t in targets):
            return NeedsPerson("the device restarted since, and only a part of what was written outlasts that")
        if kinds <= SET_BACK and all(t.observe is not None for t in targets):
            return Verdict("superseded", "unknown", "the device restarted since: the register was set back")
        return NeedsPerson("the device restarted since, and what the write set off may have happened before")
    if now is None:
        return NeedsPerson("the registers that would show it could not be read")
    seen = write_seen(targets, before, now, later=True)
    if seen == "satisfied":
        return Verdict("satisfied", "unknown", "the state asked for was there before and is there now")
    if not sole_master:
        return NeedsPerson("the bus has other masters: a change cannot be told to be ours")
    if any(_neighbour_changed(t, before, now) for t in targets):
        return NeedsPerson("bits outside the write have changed: somebody else wrote")
    if restart == "silent" and not all(_survives_silence(t, seen, before) for t in targets):
        return NeedsPerson("the value equals what a reset would leave, and the device cannot tell whether it restarted")
    match seen:
        case "applied":
            return Verdict("applied", "unknown", "the registers hold what was asked for, and did not before")
        case "unchanged":
            return Verdict("not_applied", "none", "the registers hold what they held before")
        case "open" | "other" | "missed":
            return NeedsPerson("the registers do not tell")


def _neighbour_changed(target: Target, before: Mapping[str, int], now: Mapping[str, int]) -> bool:
    foreign = target.strong & ~target.named
    if target.observe is None or target.observe not in now or not foreign:
        return False
    return (before.get(target.observe, 0) ^ now[target.observe]) & foreign != 0


def _survives_silence(target: Target, seen: Seen, before: Mapping[str, int]) -> bool:
    """Whether the evidence would look different after a reset that nobody noticed."""
    if target.observe is None or target.signals:
        return False
    if target.persistent:
        return True
    before_bits = before.get(target.observe, 0)
    # the bits as they are now, against what a reset would have made of them
    held = (target.wanted & target.strong) if seen == "applied" else before_bits & (target.strong | target.weak)
    bits = (target.strong | target.weak) & target.reset_known
    return (held ^ target.reset) & bits != 0


def settle_read(
    rules: Sequence[ReadRule],
    before: Mapping[str, int],
    now: Mapping[str, int] | None,
    restart: Restart,
    sole_master: bool,
) -> Verdict | NeedsPerson:
    """Settle a read with effects whose outcome is unknown; `now` is None where nothing could be looked at."""
    if any(r.kind == "undeclared" for r in rules):
        return Verdict("lost", "unknown", "nobody has declared what the read does: a value may be lost")
    told = _told_of_read(rules, before, now, restart, sole_master)
    if isinstance(told, NeedsPerson) and now is not None and all(r.reports for r in rules):
        return Verdict("lost", "unknown", f"{told.why}; the board says to report a loss that nobody can rule out")
    return told


def _told_of_read(
    rules: Sequence[ReadRule],
    before: Mapping[str, int],
    now: Mapping[str, int] | None,
    restart: Restart,
    sole_master: bool,
) -> Verdict | NeedsPerson:
    if len(rules) > 1:
        return NeedsPerson("several registers were read under one key")
    rule = rules[0]
    if restart == "reset":
        return NeedsPerson("the device restarted since")
    if not sole_master:
        return NeedsPerson("the bus has other masters: what is missing may have been taken by another")
    if now is None:
        return NeedsPerson("the registers that would show it could not be read")
    match rule.kind:
        case "pop":
            return _settle_pop(rule, before, now, restart)
        case "peek":
            return _settle_peek(rule, before, now, restart)
        case "acknowledge":
            return _settle_acknowledge(rule, before, now)
        case "claim":
            return _settle_claim(rule, before, now, restart)
        case "consuming" | "undeclared":
            anew = "" if rule.reseek is None else f"; {rule.reseek} sets anew what it may have moved"
            return NeedsPerson(f"the device has nothing that would show whether the value was taken{anew}")


def _settle_pop(
    rule: ReadRule, before: Mapping[str, int], now: Mapping[str, int], restart: Restart
) -> Verdict | NeedsPerson:
    if rule.level is None or not rule.level_mask or rule.level not in before or rule.level not in now:
        return NeedsPerson("no level shows whether elements were taken, or its producer may hide it")
    lsb = (rule.level_mask & -rule.level_mask).bit_length() - 1
    held, left = ((values[rule.level] & rule.level_mask) >> lsb for values in (before, now))
    taken = held - left
    if taken == 0:
        return Verdict("not_applied", "none", "the level is what it was: nothing was taken")
    if 0 < taken <= rule.count and (restart == "same" or left > 0):
        return Verdict("lost", "applied", f"the level fell by {taken}: their values are gone", taken)
    return NeedsPerson(f"the level went from {held} to {left}")


def _settle_peek(
    rule: ReadRule, before: Mapping[str, int], now: Mapping[str, int], restart: Restart
) -> Verdict | NeedsPerson:
    if rule.peek is None or rule.peek not in before or rule.peek not in now:
        return NeedsPerson("no register shows the value")
    p, n = before[rule.peek] & rule.peek_mask, now[rule.peek] & rule.peek_mask
    if p and n == p:
        return Verdict("not_applied", "none", "what would have been taken is still there")
    if p and n & p == 0 and restart == "same":
        return Verdict("applied", "unknown", "the value was peeked before, and is gone from the device")
    return NeedsPerson("the device may have restarted, or new events have come")


def _settle_claim(
    rule: ReadRule, before: Mapping[str, int], now: Mapping[str, int], restart: Restart
) -> Verdict | NeedsPerson:
    if rule.state is None or rule.state not in before or rule.state not in now:
        return NeedsPerson("no register shows whether it is taken")
    was, taken = (values[rule.state] & rule.state_mask == rule.state_taken for values in (before, now))
    if not was and taken:
        return Verdict("applied", "unknown", "it was free before and is taken now: the claim has it")
    if restart == "silent":
        return NeedsPerson("a restart that nobody noticed would have freed it, and the claim may have come after")
    if was and taken:
        return Verdict("not_applied", "none", "it was taken before, and a claim of what is taken does nothing")
    if was:
        return NeedsPerson("it was taken before and is free now: somebody else has moved it")
    return Verdict("not_applied", "none", "it is free: it was not claimed")


def _settle_acknowledge(rule: ReadRule, before: Mapping[str, int], now: Mapping[str, int]) -> Verdict | NeedsPerson:
    seen = [(name, mask) for name, mask in rule.acknowledges if name in before and name in now]
    marks = [(before[name] & mask, now[name] & mask) for name, mask in seen]
    if any(p and n & p == p for p, n in marks):
        return Verdict("not_applied", "none", "what the read would have acknowledged is still set")
    return NeedsPerson("what the read acknowledges is not set now: it was acknowledged by somebody, or never was set")


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
