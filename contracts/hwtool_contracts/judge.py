"""The judge of reads, and what both judges share: pure functions that say what a contract permits.

Rules
- The effect of an access is the union over every register and field that overlaps any cell of the bus access, over
  all banks unless the access establishes its own bank.
- Silence is `unknown`. The strictest member of a set decides.

A judgement either is data or a `Refused`; nothing here raises for what a caller asked.
"""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass
from enum import StrEnum

from hwtool_contracts.effects import (
    READ_POLICY,
    Basis,
    ReadEffect,
    When,
    strictest,
)
from hwtool_contracts.model import (
    Contract,
    Owner,
    Register,
)
from hwtool_contracts.places import overlapping

WEAKEST_FIRST = (Basis.CONFLICTING, Basis.SILENT, Basis.HEURISTIC, Basis.ASSERTED, Basis.GENERATED, Basis.REVIEWED)


@dataclass(frozen=True, slots=True)
class Refused:
    """The contract forbids the access.

    Attributes:
        rule: which rule, as the manual lists them.
        register: the register asked for.
        field: the field in the way, if one is.
        message: what, where and why.
        hint: the access that would be allowed.
    """

    rule: str
    register: str
    field: str | None
    message: str
    hint: str


class Stage(StrEnum):
    """Where in its life an operation is."""

    PREPARATION = "preparation"  # nothing with an effect has been sent
    DISPATCHED = "dispatched"  # the device may have seen it


@dataclass(frozen=True, slots=True)
class ReadJudgement:
    """What a read does and permits.

    Attributes:
        effects: the union of read effects.
        basis: the weakest provenance among them.
        clean: no key is needed.
        consuming: a second read does not bring the value back.
        closes_as_lost: an unknown outcome can never be settled by a rule and is closed at once.
        retry, block, poll, verify: the strictest of the policies.
        gates: fields that must be non-zero for the read to be answered.
    """

    effects: frozenset[ReadEffect]
    basis: Basis
    clean: bool
    consuming: bool
    closes_as_lost: bool
    retry: When
    block: When
    poll: When
    verify: When
    gates: tuple[str, ...]


def _reads_of(register: Register) -> Iterable[tuple[frozenset[ReadEffect], Basis]]:
    covered = 0
    for field in register.fields.values():
        if not field.access.readable:
            continue
        covered |= field.mask
        yield field.read.effects, field.read.provenance.basis
    written = 0
    for field in register.fields.values():
        written |= 0 if field.access.readable else field.mask
    if register.fields and covered | written == register.mask and covered:
        return  # what can only be written gives no bits that reading could disturb
    if covered != register.mask or register.read.provenance.basis is not Basis.SILENT:
        yield register.read.effects, register.read.provenance.basis


def judge_read(contract: Contract, members: tuple[Register, ...], as_group: bool = False) -> ReadJudgement | Refused:
    """Judge one read of these registers (one, or the members of a group in its order)."""
    effects: set[ReadEffect] = set()
    bases: set[Basis] = set()
    gates: list[str] = []
    owner = Owner.EXCLUSIVE
    for register in members:
        if not register.access.readable:
            return Refused(
                "write_only",
                register.name,
                None,
                f"{register.name} cannot be read (access {register.access})",
                "read a register that shows its state, if the contract names one",
            )
        for touched in overlapping(contract, register):
            if not touched.access.readable:
                continue
            for found, basis in _reads_of(touched):
                effects |= found
                bases.add(basis)
        gates += [spec.gate for spec in (register.read, *(f.read for f in register.fields.values())) if spec.gate]
        if register.owner is Owner.SHARED:
            owner = Owner.SHARED
    if len(effects) > 1:
        effects.discard(ReadEffect.NONE)
    policies = [READ_POLICY[e] for e in effects]
    if any(r.may_block for r in members):
        # an access that may hold the bus up is nobody's neighbour and nobody's poll
        policies = [p._replace(block=When.NO, poll=When.NO) for p in policies]
    if any(r.access_bits is not None for r in members):
        policies = [p._replace(block=When.NO) for p in policies]  # the bus lets no other width through
    keyless = strictest([p.keyless for p in policies])
    latch_alone = ReadEffect.LATCH in effects and not as_group
    clean = keyless is When.YES or (keyless is When.EXCLUSIVE and owner is Owner.EXCLUSIVE and not latch_alone)
    return ReadJudgement(
        effects=frozenset(effects),
        basis=min(bases, key=WEAKEST_FIRST.index),
        clean=clean,
        consuming=any(p.consuming for p in policies),
        closes_as_lost=any(p.closes_as_lost for p in policies),
        retry=strictest([p.retry for p in policies]),
        block=strictest([p.block for p in policies]),
        poll=strictest([p.poll for p in policies]),
        verify=strictest([p.verify for p in policies]),
        gates=tuple(dict.fromkeys(gates)),
    )


def refuse_as_clean(judgement: ReadJudgement, name: str) -> Refused | None:
    """The refusal if a read with side effects is asked for as a clean one."""
    if judgement.clean:
        return None
    words = ", ".join(sorted(judgement.effects))
    why = "nobody has said what reading it does" if ReadEffect.UNKNOWN in judgement.effects else f"reading it: {words}"
    return Refused(
        "read_has_side_effects",
        name,
        None,
        f"{name} is not a clean read ({why}; provenance {judgement.basis})",
        "use reg.read_effectful with a key (read --effectful), and only if you mean it",
    )


def refuse_as_effectful(judgement: ReadJudgement, name: str) -> Refused | None:
    """The refusal if a clean read is asked for under a key."""
    if not judgement.clean:
        return None
    return Refused(
        "read_is_clean",
        name,
        None,
        f"{name} is a clean read: it needs no key and may be repeated",
        "use reg.read",
    )


def may_repeat_read(judgement: ReadJudgement, stage: Stage) -> bool:
    """Whether an automatic repeat is allowed at this stage."""
    return stage is Stage.PREPARATION or (judgement.clean and judgement.retry in (When.YES, When.GROUP))


def may_merge(judgement: ReadJudgement) -> bool:
    """Whether the read may be merged with its neighbours into one transfer."""
    return judgement.block is When.YES


def may_poll(judgement: ReadJudgement, owner: Owner) -> bool:
    """Whether a watcher, a snapshot or a dump may touch the register."""
    return judgement.poll is When.YES or (judgement.poll is When.EXCLUSIVE and owner is Owner.EXCLUSIVE)
