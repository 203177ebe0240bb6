"""The closed vocabulary of read and write effects, with the policy of each as data.

A register's reads have a *set* of effects and the strictest member decides; a write takes the worst effect of the
fields it touches. Nothing here decides anything: the tables are read by `judge`, by the simulator and by the manual,
so that the three cannot drift apart.

Rules: silence is `unknown`, never `none` or `store`. A word that is not in these tables does not exist.

Source: docs/vocabulary.md, which prints these tables.
"""

from __future__ import annotations

from enum import StrEnum
from typing import Final, NamedTuple


class ReadEffect(StrEnum):
    """What reading a register does to the device."""

    NONE = "none"
    LATCH = "latch"
    ARM = "arm"
    CLEAR = "clear"
    RELATCH = "relatch"
    SET = "set"
    POP = "pop"
    ACK = "ack"
    ADVANCE = "advance"
    CLAIM = "claim"
    TRIGGER = "trigger"
    MODIFY = "modify"
    MODIFY_EXTERNAL = "modify_external"
    UNKNOWN = "unknown"


class WriteEffect(StrEnum):
    """What writing a register or field does to it."""

    STORE = "store"
    ONE_TO_CLEAR = "one_to_clear"
    ZERO_TO_CLEAR = "zero_to_clear"
    ONE_TO_SET = "one_to_set"
    ZERO_TO_SET = "zero_to_set"
    ONE_TO_TOGGLE = "one_to_toggle"
    ZERO_TO_TOGGLE = "zero_to_toggle"
    CLEAR = "clear"
    SET = "set"
    WRITE_ONCE = "write_once"
    LOCK = "lock"
    SELF_CLEARING = "self_clearing"
    PULSE = "pulse"
    COMMAND = "command"
    PUSH = "push"
    ADVANCE = "advance"
    UNLOCK = "unlock"
    STAGED = "staged"
    MODIFY = "modify"
    UNKNOWN = "unknown"


class When(StrEnum):
    """A condition under which something is allowed."""

    YES = "yes"
    EXCLUSIVE = "exclusive"  # only where the device has no other writer on this host
    GROUP = "group"  # only as the declared group, in order, under one bus lock
    DECLARED = "declared"  # only as the contract declares it (burst, re-seek, state register, second of two reads)
    NO = "no"


class ReadPolicy(NamedTuple):
    """What a read effect permits.

    Attributes:
        retry: automatic repeat after the device may have seen the request.
        block: may be merged, widened, or reached by a read that bridges a gap.
        poll: a watcher, snapshot or dump may touch it.
        verify: a read-back or a reconciliation may use it.
        keyless: may be read without an idempotency key.
        consuming: takes something from the device that a second read does not bring back.
        closes_as_lost: no rule can ever tell whether it happened; closed at once as possibly lost.
    """

    retry: When
    block: When
    poll: When
    verify: When
    keyless: When
    consuming: bool = False
    closes_as_lost: bool = False


_Y, _X, _G, _D, _N = When.YES, When.EXCLUSIVE, When.GROUP, When.DECLARED, When.NO

READ_POLICY: Final[dict[ReadEffect, ReadPolicy]] = {
    ReadEffect.NONE: ReadPolicy(_Y, _Y, _Y, _Y, _Y),
    ReadEffect.LATCH: ReadPolicy(_G, _G, _X, _G, _X),
    ReadEffect.ARM: ReadPolicy(_Y, _N, _X, _Y, _X),
    ReadEffect.CLEAR: ReadPolicy(_N, _N, _N, _N, _N, consuming=True),
    ReadEffect.RELATCH: ReadPolicy(_N, _N, _N, _D, _N, consuming=True),
    ReadEffect.SET: ReadPolicy(_N, _N, _N, _N, _N),
    ReadEffect.POP: ReadPolicy(_N, _D, _N, _N, _N, consuming=True),
    ReadEffect.ACK: ReadPolicy(_N, _N, _N, _N, _N, consuming=True),
    ReadEffect.ADVANCE: ReadPolicy(_N, _D, _N, _D, _N, consuming=True),
    ReadEffect.CLAIM: ReadPolicy(_N, _N, _N, _D, _N),
    ReadEffect.TRIGGER: ReadPolicy(_N, _N, _N, _N, _N),
    ReadEffect.MODIFY: ReadPolicy(_N, _N, _N, _N, _N, closes_as_lost=True),
    ReadEffect.MODIFY_EXTERNAL: ReadPolicy(_N, _N, _N, _N, _N, closes_as_lost=True),
    ReadEffect.UNKNOWN: ReadPolicy(_N, _N, _N, _N, _N, closes_as_lost=True),
}


class Neutral(StrEnum):
    """What to write into a field to leave it alone during a field update."""

    CURRENT = "current"  # its current value, only if not volatile and nobody else writes it
    ZERO = "zero"
    ONE = "one"
    NON_LOCKING = "non_locking"  # its current value: writing it again neither locks nor unlocks
    NONE = "none"  # there is no such value: the update is refused


class Reconcile(StrEnum):
    """How an unknown outcome of a write may be settled by clean reads (docs/vocabulary.md, reconciliation)."""

    COMPARE = "compare"  # now = wanted, prior or both
    WERE_SET_NOW_CLEAR = "were_set_now_clear"
    COMPARE_STORED = "compare_stored"  # as compare, where a read shows the bit and hardware does not change it
    PARITY = "parity"
    BURNT = "burnt"  # as compare; bits that can be written once may be written in part
    PAGE = "page"  # as compare; a range of a memory may be torn
    DECLARED = "declared"  # a declared status, counter, level, pointer or phase
    PERSON = "person"


class WritePolicy(NamedTuple):
    """What a write effect permits.

    Attributes:
        verify: whether a read-back of the same register may show that the write took effect.
        weak: the read-back proves one direction only (a flag that is still set may be a new event).
        reconcile: the rule that may settle an unknown outcome.
        repeat: whether writing it once more does no harm.
        neutral: the value that leaves a field alone.
        severity: rank among the effects of one write; the highest decides.
        always_approval: needs a person whatever the contract says.
    """

    verify: When
    reconcile: Reconcile
    repeat: When
    neutral: Neutral
    severity: int
    weak: bool = False
    always_approval: bool = False


WRITE_POLICY: Final[dict[WriteEffect, WritePolicy]] = {
    WriteEffect.STORE: WritePolicy(_Y, Reconcile.COMPARE, _Y, Neutral.CURRENT, 0),
    WriteEffect.ONE_TO_CLEAR: WritePolicy(_Y, Reconcile.WERE_SET_NOW_CLEAR, _N, Neutral.ZERO, 10, weak=True),
    WriteEffect.ZERO_TO_CLEAR: WritePolicy(_Y, Reconcile.WERE_SET_NOW_CLEAR, _N, Neutral.ONE, 11, weak=True),
    WriteEffect.ONE_TO_SET: WritePolicy(_D, Reconcile.COMPARE_STORED, _D, Neutral.ZERO, 12),
    WriteEffect.ZERO_TO_SET: WritePolicy(_D, Reconcile.COMPARE_STORED, _D, Neutral.ONE, 13),
    WriteEffect.ONE_TO_TOGGLE: WritePolicy(_X, Reconcile.PARITY, _N, Neutral.ZERO, 20),
    WriteEffect.ZERO_TO_TOGGLE: WritePolicy(_X, Reconcile.PARITY, _N, Neutral.ONE, 21),
    WriteEffect.CLEAR: WritePolicy(_D, Reconcile.COMPARE_STORED, _N, Neutral.NONE, 14),
    WriteEffect.SET: WritePolicy(_D, Reconcile.COMPARE_STORED, _N, Neutral.NONE, 15),
    WriteEffect.WRITE_ONCE: WritePolicy(_Y, Reconcile.BURNT, _D, Neutral.NONE, 40),
    WriteEffect.LOCK: WritePolicy(_Y, Reconcile.COMPARE_STORED, _Y, Neutral.NON_LOCKING, 41, always_approval=True),
    WriteEffect.SELF_CLEARING: WritePolicy(_N, Reconcile.DECLARED, _N, Neutral.ZERO, 30),
    WriteEffect.PULSE: WritePolicy(_N, Reconcile.DECLARED, _N, Neutral.ZERO, 31),
    WriteEffect.COMMAND: WritePolicy(_N, Reconcile.DECLARED, _N, Neutral.NONE, 32),
    WriteEffect.PUSH: WritePolicy(_N, Reconcile.DECLARED, _N, Neutral.NONE, 33),
    WriteEffect.ADVANCE: WritePolicy(_N, Reconcile.DECLARED, _N, Neutral.NONE, 34),
    WriteEffect.UNLOCK: WritePolicy(_N, Reconcile.DECLARED, _N, Neutral.NONE, 35),
    WriteEffect.STAGED: WritePolicy(_N, Reconcile.DECLARED, _N, Neutral.NONE, 36),
    WriteEffect.MODIFY: WritePolicy(_N, Reconcile.PERSON, _N, Neutral.NONE, 50),
    WriteEffect.UNKNOWN: WritePolicy(_N, Reconcile.PERSON, _N, Neutral.NONE, 51),
}

SET_LIKE: Final = frozenset(
    {WriteEffect.ONE_TO_SET, WriteEffect.ZERO_TO_SET, WriteEffect.CLEAR, WriteEffect.SET, WriteEffect.LOCK}
)
ACTS_ON_ONES: Final = frozenset(
    {
        WriteEffect.ONE_TO_CLEAR,
        WriteEffect.ONE_TO_SET,
        WriteEffect.ONE_TO_TOGGLE,
        WriteEffect.SELF_CLEARING,
        WriteEffect.PULSE,
    }
)
ACTS_ON_ZEROS: Final = frozenset({WriteEffect.ZERO_TO_CLEAR, WriteEffect.ZERO_TO_SET, WriteEffect.ZERO_TO_TOGGLE})


class Basis(StrEnum):
    """Where an effect is known from (its provenance)."""

    ASSERTED = "asserted"  # a file states it
    REVIEWED = "reviewed"  # somebody read the page or the driver, and says which
    GENERATED = "generated"  # the hardware is generated from the file
    SILENT = "silent"  # nobody has said
    HEURISTIC = "heuristic"  # a name or a text suggests it
    CONFLICTING = "conflicting"  # two sources disagree: judged as unknown


NO_BASIS_FOR_HARMLESS: Final = frozenset({Basis.SILENT, Basis.HEURISTIC})


def worst_write(effects: frozenset[WriteEffect]) -> WriteEffect:
    """The effect that decides for a write that touches fields with these effects; `unknown` for none at all."""
    return max(effects, key=lambda e: WRITE_POLICY[e].severity, default=WriteEffect.UNKNOWN)


def strictest(conditions: list[When]) -> When:
    """The narrowest of several conditions, in the order yes, exclusive, group, declared, no."""
    order = [When.YES, When.EXCLUSIVE, When.GROUP, When.DECLARED, When.NO]
    return max(conditions, key=order.index, default=When.NO)
