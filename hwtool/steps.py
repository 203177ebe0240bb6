"""The steps of a sequence: from the words of `sequence.run` to what each step does, and the digest over all of them.

A step with an effect is an ordinary keyed request with the key `<key>#<n>`, n being the number of the step, from 1;
the others are clean reads. Nothing here waits or reads a device.
"""

from __future__ import annotations

import difflib
import hashlib
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Any, Final, Literal, assert_never

import msgspec

from hwtool.devices import Device
from hwtool.digest import digest_input
from hwtool.journal import REDACTED
from hwtool.resolve import (
    Resolved,
    clean_read,
    find_device,
    invalid,
    mask_of,
    raw_value,
    resolve_read,
    resolve_update,
    resolve_write,
)
from hwtool_contracts.errors import Code, DomainError
from hwtool_contracts.messages import ReadEffectfulParams, SequenceParams, StepParams, UpdateParams, WriteParams
from hwtool_contracts.model import Group, NamedSequence, Register
from hwtool_contracts.named_steps import MEMBERS, TAKES

TIMEOUT_MS: Final = 1000
INTERVAL_MS: Final = 10


@dataclass(frozen=True, slots=True)
class Step:
    """One step that was understood.

    Attributes:
        number: from 1.
        keyed: for steps with an effect: the request; `params` are its parameters, its key included.
        registers: for clean steps: what is read; a group's members where `group` is one.
        wanted: for wait_until and expect: the bits that must be there, inside `mask`.
    """

    number: int
    do: Literal["read", "read_effectful", "write", "update", "wait_until", "expect"]
    device: Device
    keyed: Resolved | None
    params: ReadEffectfulParams | WriteParams | UpdateParams | None
    registers: tuple[Register, ...]
    group: Group | None
    wanted: int
    mask: int
    timeout_ms: int
    interval_ms: int

    def name(self) -> str:
        """How summaries call it."""
        inside = self.group.name if self.group is not None else ", ".join(r.name for r in self.registers)
        what = self.keyed.name() if self.keyed is not None else f"{self.device.name}.{inside}"
        return f"step {self.number} ({self.do} {what})"


def contract_hash_of(devices: Sequence[Device]) -> bytes:
    """The hash of one device's contract, or one over the contracts of several."""
    if len(devices) == 1:
        return devices[0].contract_hash
    return hashlib.sha256(b"".join(d.contract_hash for d in devices)).digest()


@dataclass(frozen=True, slots=True)
class ResolvedSequence:
    """A sequence that was understood and is allowed by the contracts of all its steps.

    Attributes:
        result: register whose value is the answer of a named sequence; None: all that was read is.
    """

    steps: tuple[Step, ...]
    result: str | None = None
    named: tuple[Device, NamedSequence] | None = None
    kind: Literal["sequence"] = "sequence"

    @property
    def devices(self) -> tuple[Device, ...]:
        """Every device it touches, in an order that two sequences agree on."""
        return tuple(sorted({s.device.locus: s.device for s in self.steps}.values(), key=lambda d: d.locus))

    @property
    def effectful(self) -> tuple[Step, ...]:
        """The steps that get an operation of their own."""
        return tuple(s for s in self.steps if s.keyed is not None)

    @property
    def sensitive(self) -> bool:
        """Whether values must not appear in records."""
        return any(s.keyed.sensitive for s in self.effectful if s.keyed is not None) or any(
            r.sensitive for s in self.steps for r in s.registers
        )

    @property
    def approval(self) -> tuple[str, ...]:
        """Why a person must agree to the whole of it; empty if nobody need."""
        return tuple(
            dict.fromkeys(
                f"step {s.number}: {why}" for s in self.effectful if s.keyed is not None for why in s.keyed.approval
            )
        )

    @property
    def contract_hash(self) -> bytes:
        """One hash over the contracts of all its devices."""
        return contract_hash_of(self.devices)

    def name(self) -> str:
        """How summaries call it."""
        return f"sequence of {len(self.steps)} step(s) on {', '.join(d.name for d in self.devices)}"


def resolve_sequence(devices: Mapping[str, Device], params: SequenceParams) -> ResolvedSequence:
    """Understand and judge `sequence.run`.

    Raises:
        DomainError: not_found, invalid_args or refused, with the step's number.
    """
    named = None
    if params.steps is not None:
        given, result = params.steps, None
    else:
        given, result, named = _named(devices, params)
    steps = tuple(_numbered(devices, params, index, step) for index, step in enumerate(given))
    sequence = ResolvedSequence(steps, result, named)
    if not sequence.effectful:
        raise DomainError(
            Code.REFUSED,
            "no step of the sequence has an effect: it needs no key",
            hint="read with reg.read, as often as you like",
            rule="nothing_effectful",
            register=None,
            field=None,
        )
    first = steps[0].device
    for step in steps:
        if step.device.worker is not first.worker:
            where = f"bus {first.spec.bus} ({first.name}); {step.device.name} is on {step.device.spec.bus}"
            raise invalid(f"$.steps[{step.number - 1}].register", f"a register on {where}", step.device.name)
    return sequence


def _named(
    devices: Mapping[str, Device], params: SequenceParams
) -> tuple[list[StepParams], str | None, tuple[Device, NamedSequence]]:
    """The steps of a sequence that a contract has by name, with the caller's values in them, its result, and itself.

    Raises:
        DomainError: not_found, or invalid_args where values are missing or too many.
    """
    name = params.sequence or ""
    device = find_device(devices, name)
    inside = name.partition(".")[2]
    sequence = device.contract.sequences.get(inside)
    if sequence is None:
        known = sorted(device.contract.sequences)
        near = difflib.get_close_matches(inside, known, 3) or known
        message = f"{device.name} ({device.contract.part}) has no sequence {inside!r}"
        hint = "name one of its sequences, or give the steps themselves, in `steps`"
        suggestions = [f"{device.name}.{n}" for n in near]
        raise DomainError(Code.NOT_FOUND, message, hint=hint, searched=name, suggestions=suggestions)
    values = params.params or {}
    for missing in sorted(set(sequence.params) - set(values)):
        raise invalid(f"$.params.{missing}", f"a value for {missing}: {name} needs it", None)
    for extra in sorted(set(values) - set(sequence.params)):
        takes = ", ".join(sequence.params) or "no parameters"
        raise invalid(f"$.params.{extra}", f"the parameters of {name}: {takes}", extra)

    def filled(value: Any) -> Any:
        if isinstance(value, str) and value.startswith("$"):
            return msgspec.to_builtins(values[value[1:]])
        return value

    steps = []
    for step in sequence.steps:
        told = {key: filled(value) for key, value in step.items()}
        if "fields" in told:
            told["fields"] = {field: filled(value) for field, value in told["fields"].items()}
        steps.append(msgspec.convert(told | {"register": f"{device.name}.{told['register']}"}, StepParams))
    result = None if sequence.result is None else f"{device.name}.{sequence.result}"
    return steps, result, (device, sequence)


def _numbered(devices: Mapping[str, Device], params: SequenceParams, index: int, step: StepParams) -> Step:
    """One step; what is wrong with it is said with its place in the list."""
    try:
        inside = params.sequence.partition(".")[2] if params.sequence is not None else None
        return _step(devices, f"{params.key}#{index + 1}", index + 1, step, inside)
    except DomainError as error:
        place = f"$.steps[{index}]"
        if error.code is Code.INVALID_ARGS:
            inside = str(error.fields["path"]).removeprefix("$")
            error.fields["path"] = place + inside
        error.message = f"step {index + 1}: {error.message}"
        raise


def _step(devices: Mapping[str, Device], key: str, number: int, step: StepParams, inside: str | None) -> Step:
    needs, may = TAKES[step.do]
    given = {name for name in MEMBERS if getattr(step, name) is not None}
    for name in sorted(needs - given):
        raise invalid(f"$.{name}", f"a member `{name}`: {step.do} needs it", None)
    for name in sorted(given - needs - may):
        raise invalid(f"$.{name}", f"the member left out: {step.do} does not take it", getattr(step, name))
    match step.do:
        case "read_effectful":
            read = ReadEffectfulParams(key=key, register=step.register, count=step.count)
            return _keyed(number, step, read, resolve_read(devices, read))
        case "write":
            write = WriteParams(key=key, register=step.register, value=step.value, mask=step.mask)
            return _keyed(number, step, write, resolve_write(devices, write, inside))
        case "update":
            update = UpdateParams(key=key, register=step.register, fields=step.fields or {})
            return _keyed(number, step, update, resolve_update(devices, update, inside))
        case "read" | "wait_until" | "expect":
            return _clean(devices, number, step)
        case _:
            assert_never(step.do)


def _keyed(
    number: int,
    step: StepParams,
    params: ReadEffectfulParams | WriteParams | UpdateParams,
    resolved: Resolved,
) -> Step:
    return Step(number, step.do, resolved.device, resolved, params, (), None, 0, 0, 0, 0)


def _clean(devices: Mapping[str, Device], number: int, step: StepParams) -> Step:
    device, registers, groups = clean_read(devices, [step.register])
    if groups and step.do != "read":
        raise invalid("$.register", "one register, not a group", step.register)
    members = tuple(device.contract.registers[n] for g in groups for n in g.members)
    plain = Step(
        number,
        step.do,
        device,
        None,
        None,
        (*registers, *members),
        groups[0] if groups else None,
        0,
        0,
        step.timeout_ms or TIMEOUT_MS,
        step.interval_ms or INTERVAL_MS,
    )
    if step.equals is None:
        return plain
    (register,) = registers
    wanted = raw_value(device, register, None, step.equals, "$.equals", limited=False)
    mask = register.mask if step.mask is None else mask_of(register, step.mask)
    if wanted & ~mask:
        shown = REDACTED if register.sensitive else hex(wanted)
        raise invalid("$.equals", f"no bits outside the mask {mask:#x}", shown)
    return replace(plain, wanted=wanted, mask=mask)


def sequence_content(sequence: ResolvedSequence) -> dict[str, Any]:
    """Everything that decides what happens on the devices; what the header's digest covers."""
    steps: list[dict[str, Any]] = []
    for step in sequence.steps:
        if step.keyed is not None:
            steps.append({"do": step.do, **digest_input(step.keyed)})
            continue
        told: dict[str, Any] = {
            "do": step.do,
            "locus": step.device.locus,
            "registers": [r.name for r in step.registers],
        }
        if step.do != "read":
            told |= {"equals": hex(step.wanted), "mask": hex(step.mask)}
        if step.do == "wait_until":
            told |= {"timeout_ms": hex(step.timeout_ms), "interval_ms": hex(step.interval_ms)}
        steps.append(told)
    return {"kind": "sequence", "steps": steps}


def shown_steps(sequence: ResolvedSequence) -> list[dict[str, Any]]:
    """The steps as the header's row, journal and screens show them; no values."""
    return [
        {
            "step": s.number,
            "do": s.do,
            "device": s.device.name,
            "registers": [r.name for r in (s.keyed.registers if s.keyed is not None else s.registers)],
            "effectful": s.keyed is not None,
        }
        for s in sequence.steps
    ]
