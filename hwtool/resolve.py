"""From the words of a request to registers and raw values, their digest, and the judgement of their contract.

Nothing here waits, reads a device or a clock. Two kinds of trouble are kept apart: what cannot be understood (unknown
names, values that do not fit) and what the contract refuses; both are only said of a key that has no row yet.
"""

from __future__ import annotations

import difflib
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Literal

from hwtool.devices import Device
from hwtool.journal import REDACTED
from hwtool_contracts.effects import ReadEffect
from hwtool_contracts.errors import Code, DomainError
from hwtool_contracts.judge import ReadJudgement, Refused, refuse_as_clean, refuse_as_effectful
from hwtool_contracts.judge_write import UpdateJudgement, WriteJudgement, judge_number, judge_update, judge_write
from hwtool_contracts.memories import MAX_SLICE_BYTES
from hwtool_contracts.messages import (
    ReadEffectfulParams,
    SafeStateParams,
    UpdateParams,
    Value,
    ValueObject,
    WriteParams,
)
from hwtool_contracts.model import Field, Group, Register
from hwtool_contracts.places import find_register
from hwtool_registers.value import FLOATS, Slot, ValueFault, as_float, encode


@dataclass(frozen=True, slots=True)
class Change:
    """What one register of a write gets.

    Attributes:
        value: the whole raw value, or the raw bits inside `mask`.
        mask: bits the caller means; None: the whole register.
        fields: raw value of each named field, for field updates.
        judged: what the contract says of the write.
        update: how the whole value is put together, where it is not given whole.
    """

    register: Register
    value: int
    mask: int | None
    fields: Mapping[str, int]
    judged: WriteJudgement
    update: UpdateJudgement | None

    @property
    def writes_whole(self) -> bool:
        """Whether the value that is planned is all of the register's: not where a part is written by itself."""
        return self.update is None or self.update.by == "value" or self.update.needs_current


@dataclass(frozen=True, slots=True)
class Resolved:
    """A keyed request of one device that was understood and is allowed by its contract.

    Attributes:
        changes: for writes, in order; empty for reads.
        reads: for reads, in order, with their judgement.
        count: elements to pop.
        expect: register → raw value that must be there before.
    """

    device: Device
    kind: Literal["write", "update", "read", "safe_state"]
    registers: tuple[Register, ...]
    group: Group | None
    changes: tuple[Change, ...]
    reads: tuple[tuple[Register, ReadJudgement], ...]
    count: int
    expect: Mapping[str, int]

    @property
    def sensitive(self) -> bool:
        """Whether values must not appear in records."""
        looked_at = (self.device.contract.registers[name] for name in self.expect)
        return any(r.sensitive for r in (*self.registers, *looked_at))

    @property
    def devices(self) -> tuple[Device, ...]:
        """The device, as for every keyed request."""
        return (self.device,)

    @property
    def contract_hash(self) -> bytes:
        """Of its device."""
        return self.device.contract_hash

    @property
    def approval(self) -> tuple[str, ...]:
        """Why a person must agree; empty if nobody need. A safe state was approved when the board was written."""
        if self.kind == "safe_state":
            return ()
        return tuple(dict.fromkeys(why for c in self.changes for why in c.judged.approval))

    def name(self) -> str:
        """How summaries call it."""
        if self.kind == "safe_state":
            return f"{self.device.name} safe state"
        what = self.group.name if self.group is not None else ", ".join(r.name for r in self.registers)
        return f"{self.device.name}.{what}"


def find_device(devices: Mapping[str, Device], name: str) -> Device:
    """The device of a name `device` or `device.REGISTER`.

    Raises:
        DomainError: not_found with near misses.
    """
    wanted = name.partition(".")[0]
    if wanted in devices:
        return devices[wanted]
    near = difflib.get_close_matches(wanted, devices, 3) or sorted(devices)
    raise DomainError(Code.NOT_FOUND, f"no device is called {wanted!r}", searched=wanted, suggestions=near)


def find_members(device: Device, name: str) -> tuple[tuple[Register, ...], Group | None]:
    """The register, or the members of the group, of a name `device.NAME`.

    Raises:
        DomainError: not_found with near misses.
    """
    inside = name.partition(".")[2]
    contract = device.contract
    if not inside:
        message = f"{device.name} ({contract.part}) is a device; name one of its registers, as {device.name}.REGISTER"
        some = [f"{device.name}.{n}" for n in list(contract.registers)[:8]]
        hint = f"reg.find with device = {device.name} lists them all"
        raise DomainError(Code.NOT_FOUND, message, hint=hint, searched=name, suggestions=some)
    if inside in contract.registers:
        return (contract.registers[inside],), None
    if inside in contract.groups:
        group = contract.groups[inside]
        return tuple(contract.registers[n] for n in group.members), group
    if contract.memories and "[" in inside:
        raise _not_in_memory(device, inside)
    names = [*contract.registers, *contract.groups, *contract.memories]
    upper = {n.upper(): n for n in names}
    near = difflib.get_close_matches(inside.upper(), upper, 3, cutoff=0.5)
    owner = find_register(contract, inside) if inside else None
    suggestions = [f"{device.name}.{owner.name}"] if owner else [f"{device.name}.{upper[n]}" for n in near]
    about_fields = f"that is a field: use {device.name}.{owner.name}, or reg.update for fields" if owner else None
    message = f"{device.name} ({contract.part}) has no register {inside!r}"
    raise DomainError(Code.NOT_FOUND, message, hint=about_fields, searched=name, suggestions=suggestions)


def _not_in_memory(device: Device, inside: str) -> DomainError:
    """What is asked for lies in no memory of the device."""
    memories = device.contract.memories.values()
    block = 1 << 8 * device.contract.access.offset_bytes
    i2c = device.contract.access.i2c
    blocks = f", within blocks of {block}" if i2c is not None and i2c.offset_bits_in_address else ""
    paged = [m for m in memories if m.busy is not None and m.page_bytes and m.access.writable]
    blocks += "".join(f", {m.name} within pages of {m.page_bytes}" for m in paged)
    told = ", ".join(f"{m.name}[0:{m.size_bytes}]" for m in memories)
    hint = f"NAME[offset:length], of {told}, at most {MAX_SLICE_BYTES} bytes at once{blocks}"
    some = [f"{device.name}.{m.name}[0:{min(16, m.size_bytes)}]" for m in memories]
    message = f"{device.name}.{inside} is no part of a memory of {device.contract.part}"
    return DomainError(Code.NOT_FOUND, message, hint=hint, searched=inside, suggestions=some)


def refusal(refused: Refused, device: Device) -> DomainError:
    """The error of a refusal; a sensitive register's says nothing of the value."""
    register = device.contract.registers.get(refused.register)
    if register is not None and register.sensitive:
        message = f"{refused.register}: refused by rule {refused.rule} (the value is sensitive)"
        refused = replace(refused, message=message, hint="see reg.contract")
    name = f"{device.name}.{refused.register.removeprefix(device.name + '.')}"
    return DomainError(
        Code.REFUSED,
        f"{device.name}: {refused.message}",
        hint=refused.hint,
        rule=refused.rule,
        register=name,
        field=refused.field,
    )


def clean_read(devices: Mapping[str, Device], names: Sequence[str]) -> tuple[Device, list[Register], list[Group]]:
    """Registers and groups of a clean read, all of one device.

    Raises:
        DomainError: not_found, invalid_args or refused.
    """
    device = find_device(devices, names[0])
    registers: list[Register] = []
    groups: list[Group] = []
    for index, name in enumerate(names):
        if find_device(devices, name) is not device:
            raise DomainError(
                Code.INVALID_ARGS,
                f"{name} is of another device than {names[0]}",
                path=f"$.registers[{index}]",
                expected=f"a register of {device.name}",
                got=name,
            )
        members, group = find_members(device, name)
        judged = device.judge(members, group is not None)
        refused = judged if isinstance(judged, Refused) else refuse_as_clean(judged, name.partition(".")[2])
        if refused is not None:
            raise refusal(refused, device)
        if group is not None:
            groups.append(group)
        else:
            registers += members
    return device, registers, groups


def resolve_read(devices: Mapping[str, Device], params: ReadEffectfulParams) -> Resolved:
    """Understand and judge `reg.read_effectful`.

    Raises:
        DomainError: not_found, invalid_args or refused.
    """
    names = params.registers if params.registers is not None else [params.register or ""]
    device = find_device(devices, names[0])
    reads: list[tuple[Register, ReadJudgement]] = []
    for index, name in enumerate(names):
        if find_device(devices, name) is not device:
            raise invalid(f"$.registers[{index}]", f"a register of {device.name}", name)
        if name in names[:index]:
            raise invalid(f"$.registers[{index}]", "each register once (a FIFO takes `count`)", name)
        members, group = find_members(device, name)
        if group is not None:
            raise DomainError(
                Code.REFUSED,
                f"{name} is a group; name its members: {', '.join(group.members)}",
                hint="an effectful read names exactly the registers it means",
                rule="group_read_with_effects",
                register=name,
            )
        judged = device.judge(members)
        refused = judged if isinstance(judged, Refused) else refuse_as_effectful(judged, members[0].name)
        if isinstance(judged, Refused) or refused is not None:
            raise refusal(judged if isinstance(judged, Refused) else _present(refused), device)
        reads.append((members[0], judged))
    count = params.count or 1
    _check_burst(device, reads, count)
    registers = tuple(r for r, _ in reads)
    if len({r.bank for r in registers}) > 1:
        raise DomainError(
            Code.REFUSED,
            "registers of different banks cannot be read under one intent",
            hint="read them one by one, each under its own key",
            rule="banks_differ",
            register=names[0],
        )
    return Resolved(
        device, "read", registers, None, (), tuple(reads), count, _expectations(devices, device, params.expect)
    )


def _present(refused: Refused | None) -> Refused:
    if refused is None:
        raise DomainError(Code.INTERNAL, "a refusal was expected")
    return refused


def _check_burst(device: Device, reads: list[tuple[Register, ReadJudgement]], count: int) -> None:
    """A burst is of one FIFO that declares one, and of whole elements: half of one would shift the rest."""
    for register, _ in reads:
        element_bytes = register.read.element_bytes
        read_bytes = (register.width_bits + 7) // 8
        if element_bytes is not None and count * read_bytes % element_bytes:
            several = element_bytes // read_bytes
            raise DomainError(
                Code.REFUSED,
                f"{device.name}.{register.name}: an element has {element_bytes} bytes, {several} reads; "
                f"{count} would leave a part of one behind",
                hint=f"a count that is a multiple of {several}",
                rule="whole_elements",
                register=f"{device.name}.{register.name}",
            )
    if count == 1:
        return
    register, judged = reads[0]
    burst = register.read.max_burst
    in_pieces = register.piece_bytes is not None or register.shared_bytes is not None
    if len(reads) > 1 or ReadEffect.POP not in judged.effects or burst is None or in_pieces:
        raise DomainError(
            Code.REFUSED,
            f"{device.name}.{register.name} gives one element in one transfer; {count} were asked for",
            hint="ask for one at a time, each time under a new key",
            rule="max_burst",
            register=f"{device.name}.{register.name}",
        )


def _expectations(devices: Mapping[str, Device], device: Device, expect: Mapping[str, Value] | None) -> dict[str, int]:
    """The values that must be there before; only clean registers of the same device can be looked at."""
    wanted: dict[str, int] = {}
    for name, value in (expect or {}).items():
        if find_device(devices, name) is not device:
            raise invalid(f"$.expect.{name}", f"a register of {device.name}", name)
        members, group = find_members(device, name)
        judged = device.judge(members)
        refused = judged if isinstance(judged, Refused) else refuse_as_clean(judged, name.partition(".")[2])
        if refused is not None or group is not None:
            raise refusal(_present(refused), device) if refused else invalid(f"$.expect.{name}", "a register", name)
        wanted[members[0].name] = raw_value(device, members[0], None, value, f"$.expect.{name}", limited=False)
    return wanted


def invalid(path: str, expected: str, got: object) -> DomainError:
    """The error of a member of the request that cannot be understood."""
    message = f"{path}: expected {expected}, got {got!r}"
    return DomainError(Code.INVALID_ARGS, message, path=path, expected=expected, got=got)


def raw_value(
    device: Device, register: Register, field: Field | None, value: Value, path: str, *, limited: bool = True
) -> int:
    """The raw bits of a value for a register or a field, inside its limits where they are numbers.

    Raises:
        DomainError: invalid_args or refused.
    """
    place = field if field is not None else register
    try:
        raw = encode(Slot(place.width_bits, place.quantity, place.values or place.write.values), value)
    except ValueFault as fault:
        if register.sensitive:
            raise invalid(path, "a value that the register can hold (it is sensitive)", REDACTED) from None
        raise invalid(path, fault.expected + _other_way(register, field, value), fault.got) from fault
    encoding = place.quantity.encoding
    if limited and encoding in FLOATS:
        refused = judge_number(register, as_float(encoding, raw), field)
        if refused is not None and not isinstance(value, ValueObject):
            unit = place.quantity.unit or ""
            hint = f"{refused.hint}; a bare integer is raw bits: say {value}{unit} for a value in its unit"
            raise refusal(replace(refused, hint=hint), device)
        if refused is not None:
            raise refusal(refused, device)
    return raw


def _other_way(register: Register, field: Field | None, value: Value) -> str:
    """Where a unit is given to a whole register whose fields have it: the way that would work."""
    if field is not None or not isinstance(value, ValueObject) or value.unit is None:
        return ""
    fields = [f.name for f in register.fields.values() if f.quantity.unit == value.unit]
    return f" (its field {fields[0]} is in {value.unit}: use reg.update)" if fields else ""


def resolve_write(devices: Mapping[str, Device], params: WriteParams, inside: str | None = None) -> Resolved:
    """Understand and judge `reg.write`; `inside`: the named sequence whose step it is.

    Raises:
        DomainError: not_found, invalid_args or refused.
    """
    if params.registers is not None:
        return _resolve_group_write(devices, params, params.registers)
    name = params.register or ""
    device = find_device(devices, name)
    members, group = find_members(device, name)
    if group is not None:
        raise invalid("$.registers", f"a value for each of {', '.join(group.members)}", f"one value for group {name}")
    register = members[0]
    raw = raw_value(device, register, None, params.value if params.value is not None else 0, "$.value")
    if params.mask is not None:
        change = _masked(device, register, raw, mask_of(register, params.mask))
    else:
        change = _whole(device, register, raw)
    _check_unlocked(device, (change,), inside)
    expect = _expectations(devices, device, params.expect)
    return Resolved(device, "write", (register,), None, (change,), (), 1, expect)


def _check_unlocked(device: Device, changes: tuple[Change, ...], inside: str | None) -> None:
    """A register that a key sequence unlocks is written in that sequence or not at all.

    Raises:
        DomainError: refused.
    """
    for change in changes:
        for name in change.judged.unlock:
            if name != inside:
                message = f"{change.register.name} is locked: it takes a write only in the sequence {name}"
                hint = f"run the sequence {device.name}.{name}: it unlocks, writes and relocks under one key"
                raise refusal(Refused("unlock", change.register.name, None, message, hint), device)


def mask_of(register: Register, given: int | str) -> int:
    """The bits of a mask as a caller gives it.

    Raises:
        DomainError: invalid_args.
    """
    try:
        mask = given if isinstance(given, int) else int(given, 0)
    except ValueError:
        mask = 0
    if not 0 < mask <= register.mask:
        raise invalid("$.mask", f"a mask from 1 to {register.mask:#x}", given)
    return mask


def _refuse_field_numbers(device: Device, register: Register, raw: int, mask: int) -> None:
    """A write of many bits at once must not get past the limits of a floating-point field."""
    for field in register.fields.values():
        if field.mask & mask and field.quantity.encoding in FLOATS:
            part = field.taken(raw)
            refused = judge_number(register, as_float(field.quantity.encoding, part), field)
            if refused is not None:
                raise refusal(refused, device)


def _whole(device: Device, register: Register, raw: int) -> Change:
    _refuse_field_numbers(device, register, raw, register.mask)
    judged = judge_write(device.contract, register, raw)
    if isinstance(judged, Refused):
        raise refusal(judged, device)
    return Change(register, raw, None, {}, judged, None)


def _masked(device: Device, register: Register, raw: int, mask: int) -> Change:
    if register.quantity.encoding in FLOATS:
        raise invalid("$.mask", "no mask with a floating-point value", hex(mask))
    if raw & ~mask:
        raise invalid("$.value", f"no bits outside the mask {mask:#x}", REDACTED if register.sensitive else hex(raw))
    _refuse_field_numbers(device, register, raw, mask)
    named = {}
    covered = 0
    for field in register.fields.values():
        covered |= field.mask
        if field.mask & mask:
            if field.mask & ~mask:
                raise refusal(
                    Refused(
                        "mask_splits_field",
                        register.name,
                        field.name,
                        f"{register.name}: the mask {mask:#x} covers part of {field.name}",
                        f"cover the whole field ({field.mask:#x}) or none of it",
                    ),
                    device,
                )
            named[field.name] = field.taken(raw)
    return _partial(device, register, named, raw & ~covered, mask & ~covered, mask)


def _partial(
    device: Device, register: Register, named: Mapping[str, int], loose: int, loose_mask: int, mask: int
) -> Change:
    update = judge_update(device.contract, register, frozenset(named), loose_mask)
    if isinstance(update, Refused):
        raise refusal(update, device)
    value = loose
    for name, part in named.items():
        value |= register.fields[name].placed(part)
    judged = judge_write(device.contract, register, value, frozenset(named), loose_mask != 0)
    if isinstance(judged, Refused):
        raise refusal(judged, device)
    return Change(register, value, mask, named, judged, update)


def _resolve_group_write(devices: Mapping[str, Device], params: WriteParams, values: Mapping[str, Value]) -> Resolved:
    names = list(values)
    if not names:
        raise invalid("$.registers", "a value for each member of a group", {})
    if params.mask is not None:
        raise invalid("$.mask", "no mask with a group", params.mask)
    device = find_device(devices, names[0])
    inside = {}
    for name in names:
        if find_device(devices, name) is not device:
            raise invalid(f"$.registers.{name}", f"a register of {device.name}", name)
        members, inner = find_members(device, name)
        if inner is not None:
            raise invalid(f"$.registers.{name}", "a register, not a group", name)
        inside[members[0].name] = raw_value(device, members[0], None, values[name], f"$.registers.{name}")
    group = next((g for g in device.contract.groups.values() if set(g.members) == set(inside)), None)
    if group is None:
        known = "; ".join(f"{g.name}: {', '.join(g.members)}" for g in device.contract.groups.values())
        raise DomainError(
            Code.REFUSED,
            f"{', '.join(inside)} are not the members of a group of {device.name}",
            hint=f"write registers one by one, or a whole group ({known or 'this contract has none'})",
            rule="not_a_group",
            register=names[0],
        )
    registers = tuple(device.contract.registers[n] for n in group.members)
    changes = tuple(_whole(device, r, inside[r.name]) for r in registers)
    _check_unlocked(device, changes, None)
    return Resolved(device, "write", registers, group, changes, (), 1, _expectations(devices, device, params.expect))


def resolve_update(devices: Mapping[str, Device], params: UpdateParams, inside: str | None = None) -> Resolved:
    """Understand and judge `reg.update`; `inside`: the named sequence whose step it is.

    Raises:
        DomainError: not_found, invalid_args or refused.
    """
    device = find_device(devices, params.register)
    members, group = find_members(device, params.register)
    if group is not None:
        raise invalid("$.register", "one register", params.register)
    register = members[0]
    named = {}
    for name, value in params.fields.items():
        field = register.fields.get(name)
        if field is None:
            near = difflib.get_close_matches(name.upper(), register.fields, 3, cutoff=0.4) or list(register.fields)
            message = f"{device.name}.{register.name} has no field {name!r}"
            raise DomainError(Code.NOT_FOUND, message, searched=name, suggestions=near)
        named[name] = raw_value(device, register, field, value, f"$.fields.{name}")
    mask = 0
    for name in named:
        mask |= register.fields[name].mask
    change = _partial(device, register, named, 0, 0, mask)
    _check_unlocked(device, (change,), inside)
    expect = _expectations(devices, device, params.expect)
    return Resolved(device, "update", (register,), None, (change,), (), 1, expect)


def resolve_safe_state(devices: Mapping[str, Device], params: SafeStateParams) -> Resolved:
    """Understand `device.safe_state`; its list was judged when the board was loaded.

    Raises:
        DomainError: not_found, or refused where the board lists nothing.
    """
    device = find_device(devices, params.device)
    if device.name != params.device:
        raise invalid("$.device", "the name of a device", params.device)
    entries = device.spec.safe_state
    if not entries:
        raise DomainError(
            Code.REFUSED,
            f"the board lists no safe state for {device.name}",
            hint="whoever keeps the board adds safe_state = [{ register = ..., value = ... }] to the device",
            rule="no_safe_state",
            register=device.name,
            field=None,
        )
    changes = tuple(Change(e.register, e.value, None, {}, e.judged, None) for e in entries)
    return Resolved(device, "safe_state", tuple(e.register for e in entries), None, changes, (), 1, {})
