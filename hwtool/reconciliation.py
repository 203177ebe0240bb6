"""How an outcome that is unknown is settled by rule: the table of reconciliation, and the functions that keep it.

Pure. The inputs are plain data that the row of an operation holds, so that it is settled by what was true when it was
sent, never by the contract of today.

    p = before the dispatch   n = now   v = wanted   r = the declared reset value

Rules
- E1, did the device restart since? `same`: the table below. `reset`: what a rule says of it (`after_reset`), but that
  what outlasts a restart goes on. `silent` (most chips): a value that equals r proves nothing.
- E2, does anybody else write? Without a sole master only `satisfied` settles.
- E3, nothing of ours can still arrive: whoever calls has let the bus fall silent.
- A read whose effect nobody has declared can never be settled by a rule: it is closed at once as lost, not held.

Source: docs/reconciliation.md, which is printed from the tables here.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Final, Literal, NamedTuple

from hwtool.outcome import NeedsPerson, ReadRule, Seen, Target, Verdict, write_seen
from hwtool.restarts import Restart
from hwtool_contracts.effects import ReadEffect, Reconcile, WriteEffect


class Rule(NamedTuple):
    """One row of the table of reconciliation.

    Attributes:
        kinds: as the manual calls them.
        effects: of a write or a read, that come to this rule.
        settled: when it decides, and what.
        otherwise: what becomes of it where it does not.
        after_reset: the device has restarted since: what was written was set back (`superseded`), or may have set
            something off before (`person`).
    """

    kinds: str
    effects: tuple[WriteEffect | ReadEffect, ...]
    settled: str
    otherwise: str
    after_reset: Literal["superseded", "person"] = "person"


W, R = WriteEffect, ReadEffect
BY_COMPARING: Final = "n = v, p ≠ v: applied · n = p, p ≠ v: not_applied · n = p = v: satisfied"
WRITES: Final[dict[Reconcile, Rule]] = {
    Reconcile.COMPARE: Rule("store, masked store", (W.STORE,), BY_COMPARING, "a person", "superseded"),
    Reconcile.COMPARE_STORED: Rule(
        "write-1/0-to-set, set, clear, lock",
        (W.ONE_TO_SET, W.ZERO_TO_SET, W.SET, W.CLEAR, W.LOCK),
        f"where a read tells and hardware does not change it, {BY_COMPARING}",
        "a person",
        "superseded",
    ),
    Reconcile.WERE_SET_NOW_CLEAR: Rule(
        "write-1/0-to-clear",
        (W.ONE_TO_CLEAR, W.ZERO_TO_CLEAR),
        "p had the bits and they are clear now: applied · p had none: satisfied",
        "still set, not applied or raised again: a person",
        "superseded",
    ),
    Reconcile.PARITY: Rule(
        "toggle",
        (W.ONE_TO_TOGGLE, W.ZERO_TO_TOGGLE),
        "a readable bit: by parity against p",
        "a person",
        "superseded",
    ),
    Reconcile.BURNT: Rule(
        "write-once, OTP",
        (W.WRITE_ONCE,),
        "all bits: applied · none: not_applied · some, and nothing else: partial",
        "a person",
        "superseded",
    ),
    Reconcile.PAGE: Rule(
        "a page of an EEPROM or flash, a range of a memory",
        (W.STORE,),
        "after the write cycle: all new: applied · all old: not_applied · torn: partial",
        "a person",
        "superseded",
    ),
    Reconcile.DECLARED: Rule(
        "pulse, self-clearing, command, push, pointer, unlock, staged",
        (W.SELF_CLEARING, W.PULSE, W.COMMAND, W.PUSH, W.ADVANCE, W.UNLOCK, W.STAGED),
        "a declared counter, status, level, lock state or phase: moved as declared: applied · a counter or level that "
        "hardware does not move stands still: not_applied",
        "a person",
    ),
    Reconcile.PERSON: Rule("a write with undeclared effect", (W.MODIFY, W.UNKNOWN), "never", "a person"),
}
READS: Final[dict[str, Rule]] = {
    "pop": Rule(
        "pop",
        (R.POP,),
        "a level with the producer stopped: fell by none: not_applied · by what is on record: partial, with it · "
        "by more: lost, with how many",
        'a person, or where the board says on_loss = "report": lost, bound 0..n',
    ),
    "peek": Rule(
        "clear-on-read and relatch with a peek register",
        (R.CLEAR, R.RELATCH, R.SET),
        "what was peeked is still there: not_applied · it is gone: applied, with the value that was peeked",
        'a person, or on_loss = "report": lost; service all sources',
    ),
    "acknowledge": Rule(
        "acknowledge",
        (R.ACK,),
        "what it acknowledges is still set: not_applied",
        'a person, or on_loss = "report": lost; service all sources',
    ),
    "claim": Rule(
        "claim, and a read that triggers, with a declared state",
        (R.CLAIM, R.TRIGGER),
        "the state was not there before and is now: applied · it was and is, or is not: not_applied",
        "a person; remedy: release",
    ),
    "undeclared": Rule(
        "a read with undeclared effect",
        (R.UNKNOWN, R.MODIFY, R.MODIFY_EXTERNAL),
        "at once: lost, effects unknown; the device is not held",
        "never",
    ),
    "consuming": Rule(
        "the same without any of these, and advance",
        (R.CLEAR, R.RELATCH, R.SET, R.POP, R.ACK, R.CLAIM, R.TRIGGER, R.ADVANCE),
        "never",
        'a person (advance: the whole transfer after its re-seek), or on_loss = "report": lost',
    ),
}
TORN: Final = frozenset({Reconcile.BURNT, Reconcile.PAGE})


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
        set_back = all(WRITES[kind].after_reset == "superseded" for kind in kinds)
        if set_back and all(t.observe is not None and not t.write_only for t in targets):
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
        case "other" if kinds <= TORN and all(_in_part(t, before, now) for t in targets):
            return Verdict("partial", "applied", "a part of it is there: it was cut off half way")
        case "open" | "other" | "missed":
            return NeedsPerson("the registers do not tell")


def _in_part(target: Target, before: Mapping[str, int], now: Mapping[str, int]) -> bool:
    """Whether what is there now can be the work of this write, cut off: a torn page may hold anything, bits that are
    written once only what they were or should be."""
    if target.observe is None or target.observe not in before or target.observe not in now:
        return False
    if target.reconcile == Reconcile.PAGE:
        return True
    p, n = before[target.observe] & target.strong, now[target.observe] & target.strong
    return (n ^ p) & ~(target.wanted ^ p) == 0


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
    kept: int = 0,
) -> Verdict | NeedsPerson:
    """Settle a read with effects whose outcome is unknown.

    Args:
        now: None where nothing could be looked at.
        kept: elements of it that are on record already.
    """
    if any(r.kind == "undeclared" for r in rules):
        return Verdict("lost", "unknown", "nobody has declared what the read does: a value may be lost")
    told = _told_of_read(rules, before, now, restart, sole_master, kept)
    if isinstance(told, NeedsPerson) and now is not None and all(r.reports for r in rules):
        return Verdict("lost", "unknown", f"{told.why}; the board says to report a loss that nobody can rule out")
    return told


def _told_of_read(
    rules: Sequence[ReadRule],
    before: Mapping[str, int],
    now: Mapping[str, int] | None,
    restart: Restart,
    sole_master: bool,
    kept: int,
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
            return _settle_pop(rule, before, now, restart, kept)
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
    rule: ReadRule, before: Mapping[str, int], now: Mapping[str, int], restart: Restart, kept: int
) -> Verdict | NeedsPerson:
    if rule.level is None or not rule.level_mask or rule.level not in before or rule.level not in now:
        return NeedsPerson("no level shows whether elements were taken, or its producer may hide it")
    lsb = (rule.level_mask & -rule.level_mask).bit_length() - 1
    held, left = ((values[rule.level] & rule.level_mask) >> lsb for values in (before, now))
    taken = held - left
    if restart == "silent" and left == rule.level_reset:
        return NeedsPerson(f"the level went from {held} to {left}, which a restart that nobody noticed would leave")
    if taken == kept == 0:
        return Verdict("not_applied", "none", "the level is what it was: nothing was taken")
    if taken == kept:
        return Verdict("partial", "applied", f"the level fell by {taken}: what is on record, and no more", 0)
    if kept < taken <= min(rule.count, kept + (rule.chunk or rule.count)):
        gone = taken - kept
        on_record = f", {kept} are on record" if kept else ""
        return Verdict("lost", "applied", f"the level fell by {taken}{on_record}: the values of {gone} are gone", gone)
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
