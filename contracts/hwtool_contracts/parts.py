"""One cluster of a big chip as a contract of its own, so that it can be a device with its own queue and hold.

Registers lose the cluster's name and keep their offsets; what they name of their own cluster loses it too. A register
that names one outside the cluster is a fault: the part could not look at it.
"""

from __future__ import annotations

import difflib
import hashlib
from collections.abc import Callable
from dataclasses import replace
from typing import Any

from hwtool_contracts.cross_check import check_references
from hwtool_contracts.model import Contract, Field, NamedSequence, Quantity, ReadSpec, Register, WriteSpec
from hwtool_contracts.places import overlapping
from hwtool_contracts.toml_reader import Fault, Faults

READ_NAMES = ("level", "peek", "gate", "state", "reseek")
WRITE_NAMES = ("gate", "commit_by", "unlock")

Rename = Callable[[str], str]


def part_of(contract: Contract, part: str) -> Contract:
    """The contract of the cluster `part`.

    Raises:
        Faults: there is none, or a register of it names one outside.
    """
    head = f"{part}."
    chosen = {n: r for n, r in contract.registers.items() if n.startswith(head)}
    if not chosen:
        clusters = sorted({n.partition(".")[0] for n in contract.registers if "." in n})
        near = difflib.get_close_matches(part, clusters, 3) or clusters[:8]
        wanted = "one of " + ", ".join(near) if near else "a contract with clusters"
        raise Faults([Fault(contract.source, "", "part", f"{contract.part} has no such cluster", part, wanted)])

    def inside(name: str) -> str:
        return name.removeprefix(head)

    registers = {inside(n): renamed(replace(r, name=inside(n)), inside) for n, r in chosen.items()}
    banks = {n: b for n, b in contract.banks.items() if all(s.register.startswith(head) for s in b.select)}
    groups = {n: g for n, g in contract.groups.items() if all(m.startswith(head) for m in g.members)}
    identity = contract.identity
    found = replace(
        contract,
        part=f"{contract.part}.{part}",
        digest="sha256:" + hashlib.sha256(f"{contract.digest} {part}".encode()).hexdigest(),
        registers=registers,
        banks={
            n: replace(
                b,
                select=tuple(replace(s, register=inside(s.register)) for s in b.select),
                restore=b.restore
                if isinstance(b.restore, str)
                else tuple(replace(s, register=inside(s.register)) for s in b.restore),
            )
            for n, b in banks.items()
        },
        groups={
            inside(n): replace(g, name=inside(n), members=tuple(inside(m) for m in g.members))
            for n, g in groups.items()
        },
        assumes=tuple(replace(a, register=inside(a.register)) for a in contract.assumes if a.register.startswith(head)),
        identity=(
            replace(identity, register=inside(identity.register), serial=_maybe(identity.serial, inside))
            if identity is not None and identity.register.startswith(head)
            else None
        ),
        restart=(
            replace(contract.restart, place=inside(contract.restart.place))
            if contract.restart is not None and contract.restart.place.startswith(head)
            else None
        ),
        mux=None,
        derived_from={},
        memories={},
        sequences={
            inside(n): _sequence(q, inside)
            for n, q in contract.sequences.items()
            if all(n.startswith(head) for n in _touched(q))
        },
    )
    faults: list[Fault] = [_elsewhere(contract, part, r) for r in chosen.values() if not _alone(contract, r, head)]
    check_references(found, f"{contract.source} part {part}", faults)
    if faults:
        raise Faults(faults)
    return found


def _alone(contract: Contract, register: Register, head: str) -> bool:
    """Whether every register that an access to this one reaches belongs to the part."""
    return all(other.name.startswith(head) for other in overlapping(contract, register))


def _elsewhere(contract: Contract, part: str, register: Register) -> Fault:
    others = [o.name for o in overlapping(contract, register) if not o.name.startswith(f"{part}.")]
    rule = f"{register.name} stands where a register of another part does: the part would forget what reaching it does"
    return Fault(contract.source, "", "part", rule, ", ".join(others), "the whole chip as one device")


def _touched(sequence: NamedSequence) -> list[str]:
    return [*(str(s.get("register")) for s in sequence.steps), *(one.register for one in sequence.relock)]


def _sequence(sequence: NamedSequence, name_of: Rename) -> NamedSequence:
    """A sequence with the registers that it names put through `name_of`."""
    steps = tuple({**step, "register": name_of(str(step["register"]))} for step in sequence.steps)
    relock = tuple(replace(one, register=name_of(one.register)) for one in sequence.relock)
    result = _maybe(sequence.result, name_of)
    return replace(sequence, name=name_of(sequence.name), steps=steps, result=result, relock=relock)


def renamed(register: Register, name_of: Rename) -> Register:
    """A register with every name that its specs mention put through `name_of`."""
    fields: dict[str, Field] = {
        n: replace(
            f,
            read=_read(f.read, name_of),
            write=_write(f.write, name_of),
            quantity=_quantity(f.quantity, name_of),
        )
        for n, f in register.fields.items()
    }
    return replace(
        register,
        read=_read(register.read, name_of),
        write=_write(register.write, name_of),
        quantity=_quantity(register.quantity, name_of),
        fields=fields,
    )


def _quantity(quantity: Quantity, name_of: Rename) -> Quantity:
    if quantity.exponent_from is None and quantity.scale_from is None:
        return quantity
    told = {key: _maybe(getattr(quantity, key), name_of) for key in ("exponent_from", "scale_from")}
    return replace(quantity, exponent_from=told["exponent_from"], scale_from=told["scale_from"])


def _maybe(name: str | None, name_of: Rename) -> str | None:
    return None if name is None else name_of(name)


def _read(spec: ReadSpec, name_of: Rename) -> ReadSpec:
    told: dict[str, Any] = {key: _maybe(getattr(spec, key), name_of) for key in READ_NAMES}
    told |= {key: tuple(name_of(n) for n in getattr(spec, key)) for key in ("affects", "ack_by")}
    return replace(spec, **told)


def _write(spec: WriteSpec, name_of: Rename) -> WriteSpec:
    told: dict[str, Any] = {key: _maybe(getattr(spec, key), name_of) for key in WRITE_NAMES}
    told |= {key: tuple(name_of(n) for n in getattr(spec, key)) for key in ("affects", "triggers")}
    if spec.verify is not None:
        told["verify"] = replace(spec.verify, register=_maybe(spec.verify.register, name_of))
    told["signals"] = tuple(replace(s, register=name_of(s.register)) for s in spec.signals)
    return replace(spec, **told)
