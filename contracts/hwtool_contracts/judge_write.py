"""The judge of writes: what a whole write, a masked write or a field update does, needs and may be verified by.

A write is judged by the fields it does not leave alone: a field that is written its constant neutral value (zero for
write-1-to-clear, one for write-0-to-clear …) is not touched.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Final, Literal

from hwtool_contracts.effects import WRITE_POLICY, Basis, Neutral, Reconcile, When, WriteEffect, worst_write
from hwtool_contracts.judge import WEAKEST_FIRST, ReadJudgement, Refused, Stage, judge_read
from hwtool_contracts.model import (
    Alias,
    BusyRetry,
    Contract,
    Encoding,
    Field,
    Owner,
    Persistence,
    Register,
    Signal,
    Space,
    Verify,
    WriteSpec,
)
from hwtool_contracts.places import find_register, overlapping

NONVOLATILE: Final = "the value is nonvolatile"
UNSAID: Final = "nobody has said that hardware leaves it alone (silent_volatile = false in a review)"


@dataclass(frozen=True, slots=True)
class WriteJudgement:
    """What a write does and permits.

    Attributes:
        effect: the worst effect among the fields touched.
        basis: the weakest provenance among them.
        approval: why a person must agree; empty if nobody need.
        verify: how success is shown.
        signals: observable consequences.
        window_ms: how long the consequence may take; None: the default.
        reconcile: the rule that may settle an unknown outcome.
        repeat: whether writing it again does no harm.
        gates: fields that must be non-zero for the write to be taken.
        not_before: registers whose write makes this one take effect.
        resets: the write restarts the device; `readdresses`: it answers elsewhere afterwards.
        busy_retry: how a device that proves to be busy is asked again.
        delay_after_ms: how long the device is left alone afterwards.
        max_rate_per_min: how often it may be written; None: no limit.
        unlock: sequences in which alone it may be written.
    """

    effect: WriteEffect
    basis: Basis
    approval: tuple[str, ...]
    verify: Verify
    signals: tuple[Signal, ...]
    window_ms: int | None
    reconcile: Reconcile
    repeat: When
    gates: tuple[str, ...]
    not_before: tuple[str, ...] = ()
    resets: bool = False
    readdresses: bool = False
    busy_retry: BusyRetry | None = None
    delay_after_ms: int = 0
    max_rate_per_min: int | None = None
    unlock: tuple[str, ...] = ()


def may_repeat_write(_: WriteJudgement, stage: Stage) -> bool:
    """Whether an automatic repeat is allowed at this stage: never once it has been dispatched."""
    return stage is Stage.PREPARATION


def constant_neutral(effect: WriteEffect, width_bits: int) -> int | None:
    """The value that leaves a field alone whatever it holds; None if there is no such constant."""
    match WRITE_POLICY[effect].neutral:
        case Neutral.ZERO:
            return 0
        case Neutral.ONE:
            return (1 << width_bits) - 1
        case _:
            return None


def _touched(
    register: Register, value: int, named: frozenset[str] | None, loose_named: bool
) -> list[tuple[Field | None, WriteSpec]]:
    """The fields a write changes, with what writing them does; None stands for bits without a field.

    `named` are the fields of a field update (`loose_named`: and bits of no field); None for a whole-register write,
    which touches every field it does not write the constant neutral value into.
    """
    touched: list[tuple[Field | None, WriteSpec]] = []
    covered = 0
    for field in register.fields.values():
        covered |= field.mask
        if not field.access.writable or (field.reserved is not None and named is None):
            continue
        if named is not None:
            if field.name in named:
                touched.append((field, field.write))
            continue
        if field.taken(value) != constant_neutral(field.write.effect, field.width_bits):
            touched.append((field, field.write))
    if loose_named:
        touched.append((None, register.write))
    if named is None and (covered != register.mask or not register.width_bits):  # a bare opcode has no bits
        loose = register.mask & ~covered
        neutral = constant_neutral(register.write.effect, register.width_bits)
        if neutral is None or value & loose != neutral & loose or not register.width_bits:
            touched.append((None, register.write))
    return touched


def judge_write(
    contract: Contract,
    register: Register,
    value: int,
    named: frozenset[str] | None = None,
    loose_named: bool = False,
) -> WriteJudgement | Refused:
    """Judge a write of the raw `value` to the whole register.

    `named` are the fields that a field update or a masked write means, `loose_named` that it means bits of no field
    too; None: a whole-register write.
    """
    refused = _refuse_value(contract, register, value, named)
    if refused is not None:
        return refused
    touched = _touched(register, value, named, loose_named)
    if not touched:
        return Refused(
            "changes_nothing",
            register.name,
            None,
            f"{register.name}: {value:#x} leaves every field alone",
            "name the field that should change",
        )
    specs = [spec for _, spec in touched]
    # what keeps the register back keeps each of its fields back, and so does what other registers at its place say
    held_back = [register.write, *specs, *_neighbours(contract, register)]
    approval = [f"contract: {register.name} requires approval" for s in held_back if s.approval == "required"][:1]
    approval += [f"effect {s.effect} always needs approval" for s in specs if WRITE_POLICY[s.effect].always_approval][
        :1
    ]
    approval += ["the write cannot be undone" for s in held_back if s.irreversible][:1]
    approval += ["the device answers elsewhere afterwards" for s in held_back if s.readdresses][:1]
    if register.persistence is Persistence.NONVOLATILE:
        approval.append(NONVOLATILE)
    effect = worst_write(frozenset(s.effect for s in specs))
    windows = [s.window_ms for s in specs if s.window_ms is not None]
    policy = WRITE_POLICY[effect]
    return WriteJudgement(
        effect=effect,
        basis=min((s.provenance.basis for s in specs), key=WEAKEST_FIRST.index),
        approval=tuple(approval),
        verify=_verification(contract, register, specs),
        signals=tuple({signal: None for s in specs for signal in s.signals}),
        window_ms=max(windows, default=None),
        reconcile=policy.reconcile,
        repeat=_repeat(specs, policy.repeat),
        gates=tuple({s.gate: None for s in held_back if s.gate is not None}),
        not_before=tuple({s.commit_by: None for s in held_back if s.commit_by is not None}),
        resets=any(s.resets == "device" for s in specs),
        readdresses=any(s.readdresses for s in held_back),
        busy_retry=max((s.busy_retry for s in specs if s.busy_retry), key=lambda b: b.attempts, default=None),
        delay_after_ms=max(s.delay_after_ms or 0 for s in held_back),
        max_rate_per_min=min((s.max_rate_per_min for s in held_back if s.max_rate_per_min), default=None),
        unlock=tuple({s.unlock: None for s in held_back if s.unlock is not None}),
    )


def _neighbours(contract: Contract, register: Register) -> list[WriteSpec]:
    """What is said of writing other registers that stand where this one does."""
    others = [o for o in overlapping(contract, register) if o.name != register.name and o.access.writable]
    return [spec for o in others for spec in (o.write, *(f.write for f in o.fields.values() if f.access.writable))]


def _repeat(specs: list[WriteSpec], by_effect: When) -> When:
    """Whether a second write does no harm: what any write sets off would be set off twice."""
    if any(s.triggers or s.resets or s.irreversible or s.readdresses for s in specs):
        return When.NO
    if all(s.absolute for s in specs):
        return When.YES
    return by_effect


def _verification(contract: Contract, register: Register, specs: list[WriteSpec]) -> Verify:
    """How success is shown: the most demanding of the touched fields' own words, else what the effect allows."""
    stated = [s.verify for s in specs if s.verify is not None]
    for by in ("read_back", "signal"):
        for verify in stated:
            if verify.by == by:
                seen = by == "signal" or readable_back(contract, register, verify)
                return verify if seen else Verify("none")
    if stated:
        return Verify("none")
    worst = WRITE_POLICY[worst_write(frozenset(s.effect for s in specs))]
    if worst.verify is When.NO:
        return Verify("signal") if any(s.signals for s in specs) else Verify("none")
    own = Verify("read_back")
    return own if readable_back(contract, register, own) else Verify("none")


def readable_back(contract: Contract, register: Register, verify: Verify) -> bool:
    """Whether the register that would be read back can be read cleanly, or is declared to be consumed for that."""
    if verify.consumes:
        return True  # the contract's own rules have looked at it (hwtool_contracts.reach)
    target = find_register(contract, verify.register, register) if verify.register is not None else register
    if target is None or not target.access.readable:
        return False
    judged = judge_read(contract, (target,))
    return isinstance(judged, ReadJudgement) and judged.clean


def _refuse_value(contract: Contract, register: Register, value: int, named: frozenset[str] | None) -> Refused | None:
    name = register.name
    if not register.access.writable:
        return Refused(
            "read_only", name, None, f"{name} cannot be written (access {register.access})", "read it instead"
        )
    if not 0 <= value <= register.mask:
        return Refused(
            "out_of_range",
            name,
            None,
            f"{name} has {register.width_bits} bits; {value:#x} does not fit",
            f"a value from 0 to {register.mask:#x}",
        )
    whole = judge_whole_value(register, value) if named is None else None
    if whole is not None:
        return whole
    for field in register.fields.values():
        part = field.taken(value)
        if named is not None and field.name not in named:
            continue
        if not field.access.writable:
            if named is not None:
                return Refused("read_only", name, field.name, f"{name}.{field.name} cannot be written", "leave it out")
            continue
        if field.reserved is not None and (
            named is not None or (field.reserved != "keep" and part != _reserved_value(field))
        ):
            return Refused(
                "reserved_bits",
                name,
                field.name,
                f"{name}.{field.name} is reserved and must be {field.reserved}; {part:#x} was given",
                f"write {_reserved_value(field):#x} there, or update the fields you mean",
            )
        outside = _outside(field.write, part, field.quantity.encoding)
        if outside is not None:
            return Refused(outside[0], name, field.name, f"{name}.{field.name}: {outside[1]}", outside[2])
    for assume in contract.assumes:
        if assume.register == name and (named is None or assume.field in named):
            field = register.fields[assume.field]
            part = field.taken(value)
            if part != assume.value:
                return Refused(
                    "breaks_assumption",
                    name,
                    field.name,
                    f"{name}.{field.name} = {part} would make this contract's {assume.purpose} wrong",
                    f"keep {field.name} = {assume.value}",
                )
    return None


def judge_whole_value(register: Register, value: int) -> Refused | None:
    """Refuse a whole value that the register's own mask, limits or values do not admit.

    A field update is judged by its fields first, and by this once its whole value is known.
    """
    outside = _outside(register.write, value, register.quantity.encoding) or _no_text(register, value)
    if outside is None:
        return None
    return Refused(outside[0], register.name, None, f"{register.name}: {outside[1]}", outside[2])


def _no_text(register: Register, value: int) -> tuple[str, str, str] | None:
    """As `_outside`, of a text that is written as long as it is: a number must be the characters of one."""
    if register.space is not Space.BLOCK or register.quantity.encoding is not Encoding.TEXT:
        return None
    text = value.to_bytes((value.bit_length() + 7) // 8, "big")
    if text and text.isascii() and text.decode("ascii").isprintable():
        return None
    return "not_a_value", f"{value:#x} is no text of printable characters", "a text of one character at least"


def _reserved_value(field: Field) -> int:
    return (1 << field.width_bits) - 1 if field.reserved == "one" else 0


def _outside(spec: WriteSpec, value: int, encoding: Encoding) -> tuple[str, str, str] | None:
    """The rule that a raw value breaks, with message and cure. Limits of floats are judged by `judge_number`."""
    if spec.mask is not None and value & ~spec.mask:
        return "outside_mask", f"{value:#x} has bits outside the mask {spec.mask:#x}", f"only bits of {spec.mask:#x}"
    if spec.limits is not None and encoding not in (Encoding.FLOAT32, Encoding.FLOAT64):
        low, high = spec.limits.minimum, spec.limits.maximum
        if (low is not None and value < low) or (high is not None and value > high):
            span = f"{low if low is not None else 0} to {high if high is not None else 'the top of the register'}"
            return "out_of_limits", f"{value:#x} ({value}) is outside its limits", f"a value from {span}"
    if spec.values and value not in spec.values.values():
        words = ", ".join(f"{n} = {v:#x}" for n, v in spec.values.items())
        return "not_a_value", f"{value:#x} is not a value that may be written", f"one of {words}"
    return None


def judge_number(register: Register, number: float, field: Field | None = None) -> Refused | None:
    """Refuse a floating-point value outside the limits of the register or field, which are in its unit."""
    place = register if field is None else field
    limits = place.write.limits
    if limits is None:
        return None
    if (
        number != number
        or (limits.minimum is not None and number < limits.minimum)
        or (limits.maximum is not None and number > limits.maximum)
    ):
        return Refused(
            "out_of_limits",
            register.name,
            None if field is None else field.name,
            f"{register.name}: {number} is outside its limits",
            f"a value from {limits.minimum} to {limits.maximum} {place.quantity.unit or ''}".rstrip(),
        )
    return None


@dataclass(frozen=True, slots=True)
class UpdateJudgement:
    """How a field update is put together.

    Attributes:
        needs_current: True if the register must be read first.
        constant: value of all bits that do not come from the current value or the caller.
        from_current: mask of the bits that are written back as they were read.
        by: `value`, one whole value is written; `mask`, bits of the value say what is changed; `alias`, ones are
            written where they set, clear or toggle; `device`, it is told which bits to change, and keeps
            `from_current` itself (Modbus function 22). All but the first touch no neighbour.
        shadow: what the register holds cannot be read: it is what was written to it last, in this generation.
    """

    needs_current: bool
    constant: int
    from_current: int
    by: Literal["value", "mask", "alias", "device"] = "value"
    shadow: bool = False


def judge_update(
    contract: Contract, register: Register, named: frozenset[str], loose_mask: int = 0
) -> UpdateJudgement | Refused:
    """Judge whether the named fields, and bits of no field, can be changed while every other one is left alone."""
    name = register.name
    unknown = sorted(named - set(register.fields))
    if unknown:
        return Refused(
            "no_such_field",
            name,
            unknown[0],
            f"{name} has no field {unknown[0]}",
            "one of " + ", ".join(register.fields),
        )
    shared = _refuse_shared(register, named, loose_mask)
    if shared is not None:
        return shared
    without_neighbours = _touching_nothing_else(contract, register, named, loose_mask)
    if without_neighbours is not None:
        return without_neighbours
    for field in (register.fields[n] for n in sorted(named)):
        if field.access.writable and field.write.effect is WriteEffect.UNKNOWN:
            return Refused(
                "unsafe_update",
                name,
                field.name,
                f"{name}.{field.name}: nobody has said what writing it does",
                "write the whole register with reg.write, stating every bit, or review the contract",
            )
    merges = _merges(contract, register)
    constant = from_current = covered = 0
    for field in register.fields.values():
        covered |= field.mask
        if field.name in named or not field.access.writable:
            continue
        if field.reserved in ("zero", "one"):
            constant |= field.placed(_reserved_value(field))
            continue
        kept = _neutral_of(
            field.write,
            field.volatile,
            register,
            f"{name}.{field.name}",
            field.width_bits,
            field.volatile_unsaid,
            merges=merges,
        )
        if isinstance(kept, Refused):
            return kept
        if kept is None:
            from_current |= field.mask
        else:
            constant |= field.placed(kept)
    loose = register.mask & ~covered & ~loose_mask
    if loose:
        kept = _neutral_of(
            register.write,
            register.volatile,
            register,
            f"{name} (bits {loose:#x})",
            register.width_bits,
            register.volatile_unsaid,
            merges=merges,
        )
        if isinstance(kept, Refused):
            return kept
        if kept is None:
            from_current |= loose
        else:
            constant |= kept & loose
    if from_current and merges:
        return UpdateJudgement(False, constant, from_current, "device")
    if from_current and not register.access.readable:
        if register.write_mask:  # a write of it says which bits it changes: the last one is not what it holds
            blocking = next((f.name for f in register.fields.values() if f.mask & from_current), None)
            return Refused(
                "unsafe_update",
                name,
                blocking,
                f"{name} cannot be read, and its writes change parts of it: what it holds cannot be told",
                "write the whole register with reg.write, its mask half included",
            )
        return UpdateJudgement(True, constant, from_current, shadow=True)
    if from_current:
        judged = judge_read(contract, (register,))
        if isinstance(judged, Refused) or not judged.clean:
            blocking = next((f.name for f in register.fields.values() if f.mask & from_current), None)
            return Refused(
                "unsafe_update",
                name,
                blocking,
                f"{name}: the other bits ({from_current:#x}) must be read first, and that read is not clean",
                "write the whole register with reg.write, stating every bit",
            )
    return UpdateJudgement(bool(from_current), constant, from_current)


def _merges(contract: Contract, register: Register) -> bool:
    """Whether the device itself keeps the bits that a write of the register leaves out: Modbus function 22.

    It takes one word. What the whole value may be can only be judged where it is known here. The device reads the
    register for it, so that must do nothing.
    """
    modbus = contract.access.modbus
    offered = modbus is not None and 22 in modbus.functions and register.space is Space.HOLDING
    unlimited = register.write.limits is None and not register.write.values and register.write.mask is None
    if not offered or not unlimited or register.width_bits != 16:
        return False
    judged = judge_read(contract, (register,))
    return isinstance(judged, ReadJudgement) and judged.clean


def _touching_nothing_else(
    contract: Contract, register: Register, named: frozenset[str], loose_mask: int
) -> UpdateJudgement | None:
    """An update that needs no neutral values: by a mask half, or by addresses that set and clear; None: there is none.

    Where only toggling is offered, what is there must be known: then the bits named must not be volatile, and the
    register can be read cleanly or its shadow is asked for.
    """
    changed, plain = loose_mask, not loose_mask or register.write.effect is WriteEffect.STORE
    volatile = bool(loose_mask) and register.volatile
    for field in (register.fields[n] for n in named):
        changed |= field.mask
        plain = plain and field.write.effect is WriteEffect.STORE
        volatile = volatile or field.volatile
    if not plain or register.write.limits is not None or register.write.values:
        return None  # what the whole value may be can only be judged when it is known
    if register.write_mask and not changed & register.write_mask:
        return UpdateJudgement(False, changed << (register.width_bits // 2), 0, "mask")

    def reaches(alias: Alias) -> bool:
        return changed << alias.shift <= register.mask

    if register.set_at is not None and register.clear_at is not None:
        if reaches(register.set_at) and reaches(register.clear_at):
            return UpdateJudgement(False, 0, 0, "alias")
        return None
    if (
        register.toggle_at is not None
        and reaches(register.toggle_at)
        and not volatile
        and register.owner is Owner.EXCLUSIVE
    ):
        judged = judge_read(contract, (register,)) if register.access.readable else None
        if judged is None or (isinstance(judged, ReadJudgement) and judged.clean):
            return UpdateJudgement(True, 0, 0, "alias", shadow=judged is None)
    return None


def _refuse_shared(register: Register, named: frozenset[str], loose_mask: int) -> Refused | None:
    """The refusal of an update where fields share bits, and it cannot be told which of them is meant.

    Fields that share bits and are left alone must all be left alone by their current value.
    """
    changed = loose_mask
    for name in named:
        changed |= register.fields[name].mask
    alternates = [f for f in register.fields.values() if f.alternate and f.access.writable]
    for field in alternates:
        meant = field.name in named
        if not meant and not field.mask & changed and WRITE_POLICY[field.write.effect].neutral is Neutral.CURRENT:
            continue
        others = [o for o in alternates if o is not field and o.mask & field.mask]
        if others:
            which = f"{register.name}.{field.name} shares bits with {', '.join(o.name for o in others)}"
            return Refused(
                "unsafe_update",
                register.name,
                field.name,
                f"{which}: which of them is there depends on a mode",
                "write the whole register with reg.write, stating every bit",
            )
    return None


def _neutral_of(
    write: WriteSpec,
    volatile: bool,
    register: Register,
    where: str,
    width_bits: int,
    unsaid: bool = False,
    *,
    merges: bool = False,
) -> int | Refused | None:
    """The constant that leaves a field alone, None for its current value, or why there is neither.

    Args:
        merges: the device writes the current value back itself: nobody comes in between.
    """
    effect = write.effect
    constant = constant_neutral(effect, width_bits)
    if constant is not None and not write.triggers:
        return constant
    if write.triggers:
        why = f"any write of it sets off {', '.join(write.triggers)}"
    elif WRITE_POLICY[effect].neutral in (Neutral.CURRENT, Neutral.NON_LOCKING):
        if merges:
            return None
        if volatile:
            why = UNSAID if unsaid else "hardware changes it by itself"
        elif register.owner is Owner.SHARED:
            why = "another master may write it"
        else:
            return None
    else:
        why = f"writing it ({effect}) always has an effect"
    return Refused(
        "unsafe_update",
        register.name,
        where.partition(".")[2] or None,
        f"{where} has no value that leaves it alone: {why}",
        "write the whole register with reg.write, stating every bit",
    )
