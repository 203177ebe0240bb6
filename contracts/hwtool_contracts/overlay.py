"""Overlays: a file beside a vendor's description that reviews what it is silent about, corrects it and adds to it.

Rules
- At its head `base` (the file's name) and `base_sha256`; then `[[review]]`; then the tables of the native format.
- A review speaks of silence alone: it never changes what a file states. It names who looked at what, and when.
- What is said of a peripheral holds for those derived from it, unless they are spoken of themselves.
- If the base has changed, what the overlay made harmless is open again: a review holds only if `covers_sha256` still is
  the digest of what it covers, and a correction that permits more than unknown does (a read that may be clean, a write
  that has a neutral value or may be repeated, `volatile = false`) becomes unknown.
- Nothing here can lead from silence to `none` or `store` without a page or a driver that was seen.
"""

from __future__ import annotations

import datetime
import hashlib
import json
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, replace
from typing import Any, Final, Literal, cast

from hwtool_contracts.cross_check import check_references
from hwtool_contracts.effects import READ_POLICY, WRITE_POLICY, Basis, Neutral, ReadEffect, When, WriteEffect
from hwtool_contracts.glob import is_pattern, matches
from hwtool_contracts.memories import with_memories
from hwtool_contracts.model import (
    UNKNOWN_READ,
    UNKNOWN_WRITE,
    Contract,
    Field,
    Provenance,
    ReadSpec,
    Register,
    Space,
    WriteSpec,
)
from hwtool_contracts.native import RegisterMap, digest_of
from hwtool_contracts.native_access import AccessFacts
from hwtool_contracts.native_commands import commands, memories
from hwtool_contracts.native_registers import Defaults, RegisterReader, moved, part_of_whole
from hwtool_contracts.native_tables import assumes, banks, groups, identity, params, restart, sequences, verified_by
from hwtool_contracts.notice import Notice
from hwtool_contracts.parts import renamed
from hwtool_contracts.reach import with_secrecy
from hwtool_contracts.toml_reader import Fault, Faults, Table, parse_toml

ALIAS_KEYS: Final = frozenset({"also_at", "set_at", "clear_at", "toggle_at"})


@dataclass(frozen=True, slots=True)
class Review:
    """One `[[review]]`: what silence means for the registers that it matches.

    Attributes:
        match: patterns of register names; one of them must match.
        excluded: patterns of names that it does not cover.
        silent_read: `none` where a read is silent; None: says nothing.
        silent_write: `store` where a write is silent; None: says nothing.
        silent_volatile: False: hardware does not change what nobody has said it changes; None: says nothing.
        covers: digest of what it covered when it was written.
    """

    match: tuple[str, ...]
    excluded: tuple[str, ...]
    silent_read: Literal["none"] | None
    silent_write: Literal["store"] | None
    silent_volatile: Literal[False] | None
    provenance: Provenance
    reviewed_by: str
    on: str
    covers: str | None


@dataclass(frozen=True, slots=True)
class Overlaid:
    """A contract with an overlay laid over it, and what could not be kept."""

    contract: Contract
    notices: tuple[Notice, ...]


def names_of(contract: Contract, name: str) -> Iterator[str]:
    """The name of a register, then its names in the peripherals that its own derives from."""
    yield name
    cluster, dot, rest = name.partition(".")
    seen = {cluster}
    while dot and (base := contract.derived_from.get(cluster)) is not None and base not in seen:
        seen.add(base)
        cluster = base
        yield f"{base}.{rest}"


def covered(contract: Contract, match: tuple[str, ...], excluded: tuple[str, ...]) -> list[Register]:
    """The registers that patterns cover, those of derived peripherals included."""
    found = []
    for register in contract.registers.values():
        names = list(names_of(contract, register.name))
        if any(matches(p, n) for p in match for n in names) and not any(matches(p, n) for p in excluded for n in names):
            found.append(register)
    return found


def covers_digest(registers: list[Register]) -> str:
    """The digest of what a review looked at: names, places, words and texts."""

    def said(place: Register | Field) -> list[Any]:
        words = [place.access.value, sorted(place.read.effects), place.write.effect.value]
        return [*words, " ".join(place.description.split())]

    told = [
        [r.name, r.offset, r.width_bits, *said(r), [[f.name, f.msb, f.lsb, *said(f)] for f in r.fields.values()]]
        for r in registers
    ]
    return hashlib.sha256(json.dumps(told, separators=(",", ":")).encode()).hexdigest()


def base_of(text: str, file: str) -> str | None:
    """The base that a TOML file names at its head; None if it is no overlay.

    Raises:
        Faults: not TOML, or the base is no name.
    """
    base = parse_toml(text, file).get("base")
    if base is not None and not isinstance(base, str):
        raise Faults([Fault(file, "", "base", "wrong type", repr(base), "the name of a file")])
    return base


def lay_over(
    base: Contract, base_sha256: str, text: str, file: str, *, lowest: Contract | None = None, direct: bool = True
) -> Overlaid:
    """Lay an overlay over a contract.

    Args:
        base_sha256: of the bytes of the base's file, in hex.
        text: the overlay.
        lowest: what all overlays lie on, of which reviews are signed; None: `base`.
        direct: the overlay names that file, not another overlay: a digest that is not of what it covers is a fault.

    Raises:
        Faults: the overlay breaks rules, or does not fit the base; all faults are listed.
    """
    data = parse_toml(text, file)
    faults: list[Fault] = []
    overlay = _Overlay(base, Table(data, "", file, faults), base_sha256, lowest or base, direct)
    contract = overlay.contract()
    if not faults:
        check_references(contract, file, faults)
        while overlay.changed and faults and (open_again := _in_doubt(contract, faults)):
            contract, rounds = overlay.opened(contract, open_again), list(faults)
            faults.clear()
            check_references(contract, file, faults)
            if len(faults) >= len(rounds):
                break
    if faults:
        raise Faults(faults)
    return Overlaid(with_secrecy(contract), tuple(overlay.notices))


def _in_doubt(contract: Contract, faults: list[Fault]) -> list[str]:
    """Registers whose specs name what is no longer known to be readable without effect."""
    named = [f.table.removeprefix("registers.") for f in faults if f.table.startswith("registers.")]
    return [n for n in dict.fromkeys(named) if n in contract.registers]


class _Overlay:
    """The state of laying one overlay over its base."""

    def __init__(self, base: Contract, top: Table, base_sha256: str, lowest: Contract, direct: bool) -> None:
        self.base = base
        self.lowest = lowest
        self.direct = direct
        self.top = top
        self.notices: list[Notice] = []
        top.text("base", required=True)
        wanted = top.text("base_sha256", required=True) or ""
        self.changed = wanted.lower().removeprefix("sha256:") != base_sha256
        if self.changed and wanted:
            found = f"{base_sha256}, reviewed was {wanted}"
            self._notice("base", "the base has changed since it was reviewed", found, "what it touched is open again")
        self.registers: dict[str, Register] = dict(base.registers)

    def _notice(self, place: str, rule: str, found: str, made: str) -> None:
        self.notices.append(Notice(self.top.file, place, rule, found, made))

    def contract(self) -> Contract:
        top = self.top
        if top.integer("schema") not in (1, None):
            top.fault("schema", "unknown schema", top.data["schema"], "1")
        for index, table in enumerate(top.array("review")):
            self._review(table, index)
        offsets = {n: r.offset for n, r in self.base.registers.items()}
        map_ = RegisterMap(RegisterReader(self._facts(), Defaults(), offsets))
        spoken_of = {name for name in self._named() if not is_pattern(name)}
        for name, table in top.tables("registers"):
            self._register(name, table, map_, spoken_of)
        map_.read(Table({"clusters": top.raw("clusters") or {}}, "", top.file, top.faults), 0, "")
        for command in commands(top, map_.reader):
            map_.add(command, top)
        ranges = memories(top, map_.reader.facts, map_.reader)
        for name in sorted(ranges.keys() & (self.base.memories.keys() | self.registers.keys())):
            top.fault(f"memories.{name}", "the base has one of this name", name, "a name of its own")
        ranges = {**self.base.memories, **ranges}
        for name, register in map_.registers.items():
            if name in self.registers:
                top.fault(f"registers.{name}", "the base has a register of this name", name, "a name of its own")
            self.registers[name] = register
        digest = hashlib.sha256(f"{self.base.digest} {digest_of(top.data)} {self.changed}".encode()).hexdigest()
        contract = replace(
            self.base,
            digest="sha256:" + digest,
            registers=with_memories(self.registers, ranges, self.base.access),
            memories=ranges,
            params={**self.base.params, **params(top)},
            sequences={**self.base.sequences, **sequences(top)},
            banks={**self.base.banks, **banks(top, self.registers)},
            groups={**self.base.groups, **groups(top), **map_.reader.blocks},
            assumes=(*self.base.assumes, *assumes(top)),
            identity=identity(top) or self.base.identity,
            restart=restart(top) or self.base.restart,
            verified=verified_by(top) or self.base.verified,
            derived_from={**self.base.derived_from, **map_.derived_from},
        )
        top.done()
        return contract

    def opened(self, contract: Contract, names: list[str]) -> Contract:
        """The contract with these registers unknown: what they would be looked at by is open again."""
        registers = dict(contract.registers)
        for name in names:
            register = registers[name]
            fields = {
                n: replace(f, read=UNKNOWN_READ, write=_unknown_write(f.write)) for n, f in register.fields.items()
            }
            write = _unknown_write(register.write)
            registers[name] = replace(register, read=UNKNOWN_READ, write=write, fields=fields)
            rule = "a correction that looks at registers which are open again"
            self._notice(name, rule, "", "unknown, to read and to write")
        return replace(contract, registers=with_memories(registers, contract.memories, contract.access))

    def _named(self) -> list[str]:
        tables = self.top.data.get("registers")
        return list(tables) if isinstance(tables, dict) else []

    def _facts(self) -> AccessFacts:
        """What registers that are added inherit: as those of the base are."""
        some = next((r for r in self.base.registers.values() if r.space is Space.MEMORY), None)
        first = next(iter(self.base.registers.values()))
        modbus = self.base.access.modbus
        base_number = 0 if modbus is None else modbus.base
        return AccessFacts(self.base.access, (some or first).byte_order, first.word_order, base_number)

    # reviews

    def _review(self, table: Table, index: int) -> None:
        review = _read_review(table)
        if review is None:
            return
        chosen = covered(self.base, review.match, review.excluded)
        idle = [p for p in review.excluded if not is_pattern(p) and p not in self.base.registers]
        if idle and not self.changed:
            wanted = "the name of a register, or a pattern"
            table.fault("except", "an exception that excepts nothing", ", ".join(idle), wanted)
        if not chosen and not self.changed:
            table.fault(
                "match", "matches no register", ", ".join(review.match), "the name of a register, * for any text"
            )
            return
        signed = covers_digest(covered(self.lowest, review.match, review.excluded))
        stale = review.covers is not None and signed != review.covers
        if stale and self.direct and not self.changed:
            rule = "not the digest of what the entry covers: match or except were changed since it was signed"
            table.fault("covers_sha256", rule, review.covers, f"{signed}, once all of that has been looked at")
            return
        if stale or (self.changed and review.covers is None):
            found = ", ".join(review.match)
            self._notice(f"review[{index}]", "what it covers has changed", found, "open again: nothing is made of it")
            return
        for register in chosen:
            self.registers[register.name] = _reviewed(self.registers[register.name], review)

    # corrections

    def _register(self, name: str, table: Table, map_: RegisterMap, spoken_of: set[str]) -> None:
        except_ = table.strings("except") if "except" in table else ()
        chosen = covered(self.base, (name,), except_)
        if not is_pattern(name):
            chosen = [r for r in chosen if r.name == name or r.name not in spoken_of]
        if not chosen:
            if is_pattern(name):
                table.fault("", "matches no register", name, "the name of a register, * for any text")
                return
            for register in map_.reader.read(name, table, 0):
                map_.registers[register.name] = register
            return
        faults_before = len(table.faults)
        _check_seen(table)
        for register in chosen:
            fresh = Table(table.data, table.where, table.file, table.faults)
            fresh.raw("except")
            corrected = map_.reader.correct(fresh, self.registers[register.name])
            corrected = _retargeted(corrected, name.partition(".")[0], register.name.partition(".")[0])
            if name in self.base.registers and ALIAS_KEYS & table.data.keys():
                by = register.offset - self.base.registers[name].offset
                corrected = replace(moved(corrected, by), offset=register.offset)
            if self.changed:
                corrected = self._reopened(corrected, self.registers[register.name])
            self.registers[register.name] = corrected
            if len(table.faults) > faults_before:
                return  # the same faults would come again for each register

    def _reopened(self, corrected: Register, before: Register) -> Register:
        """A correction of a base that has changed, without what it made harmless."""
        fields = {}
        for field_name, field in corrected.fields.items():
            old = before.fields.get(field_name)
            if old is None:  # it stands in for bits about which the base says what it says of the register
                old = replace(
                    field,
                    read=before.read,
                    write=part_of_whole(before.write),
                    volatile=before.volatile,
                    volatile_unsaid=before.volatile_unsaid,
                )
            fields[field_name] = cast(Field, _opened(field, old))
        opened = cast(Register, _opened(corrected, before))
        if opened != corrected or fields != corrected.fields:
            rule = "a correction of a base that has changed"
            self._notice(corrected.name, rule, "it makes something harmless", "that is unknown again")
        kept = replace(opened, fields=fields)
        writable: list[Register | Field] = [f for f in fields.values() if f.access.writable] or [kept]
        if any(place.write.effect is not WriteEffect.STORE for place in writable):
            kept = replace(kept, set_at=None, clear_at=None, toggle_at=None, write_mask=0)
        return kept


def _check_seen(table: Table) -> None:
    """What an overlay makes `none` or `store` names what was seen: a correction is no way round a review."""
    fields = table.data.get("fields")
    places = [table] + [
        Table(f, f"{table.where}.fields.{n}", table.file, table.faults)
        for n, f in (fields if isinstance(fields, dict) else {}).items()
        if isinstance(f, dict)
    ]
    for place in places:
        for key, word, harmless in (("read", "effects", "none"), ("write", "effect", "store")):
            told = place.data.get(key)
            if isinstance(told, dict) and harmless in (told.get(word) or ()):
                missing = [k for k in ("seen", "source") if k not in told]
                if missing:
                    rule = "an overlay says what was seen"
                    place.fault(key, rule, f"no {' and no '.join(missing)}", 'seen = "page" or "driver", and source')


def _retargeted(register: Register, named: str, own: str) -> Register:
    """A correction that was written for one peripheral, for one that derives from it: what it names is its own."""
    if named == own or is_pattern(named):
        return register
    head = f"{named}."
    return renamed(register, lambda name: f"{own}.{name.removeprefix(head)}" if name.startswith(head) else name)


def _opened(place: Register | Field, before: Register | Field) -> Register | Field:
    if place.read != before.read and _permits_reads(place.read):
        place = replace(place, read=UNKNOWN_READ)
    if place.write != before.write and _permits_writes(place.write):
        place = replace(place, write=_unknown_write(place.write))
    if before.volatile and not place.volatile:
        place = replace(place, volatile=True, volatile_unsaid=before.volatile_unsaid)
    return place


def _unknown_write(spec: WriteSpec) -> WriteSpec:
    """The write with an unknown effect; whatever keeps it back (approval, limits, unlock, gate …) stays."""
    return replace(
        spec,
        effect=WriteEffect.UNKNOWN,
        provenance=UNKNOWN_WRITE.provenance,
        verify=None,
        signals=(),
        absolute=False,
        busy_retry=None,
    )


def _permits_reads(spec: ReadSpec) -> bool:
    """Whether a read with these effects may be clean, on some device."""
    return all(READ_POLICY[effect].keyless is not When.NO for effect in spec.effects)


def _permits_writes(spec: WriteSpec) -> bool:
    """Whether a field with this effect can be left alone in an update, or written again."""
    policy = WRITE_POLICY[spec.effect]
    return policy.neutral is not Neutral.NONE or policy.repeat is not When.NO or spec.absolute


def _read_review(table: Table) -> Review | None:
    """One `[[review]]`; None, with faults, if it cannot stand."""
    faults_before = len(table.faults)
    match = table.data.get("match")
    patterns = (table.text("match") or "",) if isinstance(match, str) else table.strings("match", required=True)
    excluded = table.strings("except") if "except" in table else ()
    silent_read, silent_write = table.text("silent_read"), table.text("silent_write")
    if silent_read not in (None, "none"):
        table.fault("silent_read", "a review says that silence is harmless", repr(silent_read), "none, or a correction")
    if silent_write not in (None, "store"):
        table.fault(
            "silent_write", "a review says that silence is harmless", repr(silent_write), "store, or a correction"
        )
    silent_volatile = table.flag("silent_volatile")
    if silent_volatile is True:
        table.fault("silent_volatile", "silence counts as volatile anyway", "true", "false, or the key left out")
    if silent_read is None and silent_write is None and silent_volatile is None:
        table.fault("", "a review that says nothing", None, "silent_read, silent_write or silent_volatile")
    seen, source = table.text("seen", required=True), table.text("source", required=True)
    if seen is not None and seen not in ("page", "driver"):
        rule = "from memory is unknown" if seen == "memory" else "not in the vocabulary"
        table.fault("seen", rule, repr(seen), "page or driver: what was looked at")
    reviewed_by, on = table.text("reviewed_by", required=True), table.raw("on")
    if isinstance(on, str):
        try:
            on = datetime.date.fromisoformat(on)
        except ValueError:
            table.fault("on", "not a date", repr(on), "YYYY-MM-DD")
    elif not isinstance(on, datetime.date):
        table.fault("on", "not a date" if on is not None else "key is missing", on, "YYYY-MM-DD")
    covers = table.text("covers_sha256")
    table.done()
    if len(table.faults) > faults_before:
        return None
    return Review(
        match=patterns,
        excluded=excluded,
        silent_read=cast(Literal["none"] | None, silent_read),
        silent_write=cast(Literal["store"] | None, silent_write),
        silent_volatile=cast(Literal[False] | None, silent_volatile),
        provenance=Provenance(Basis.REVIEWED, cast(Literal["page", "driver"], seen), source),
        reviewed_by=reviewed_by or "",
        on=str(on),
        covers=covers,
    )


def is_silent(spec: ReadSpec | WriteSpec) -> bool:
    """Whether nobody has said what the access does."""
    return spec.provenance.basis is Basis.SILENT


def _reviewed(register: Register, review: Review) -> Register:
    """The register with what a review says of its silence."""
    fields: Mapping[str, Field] = {n: cast(Field, _said(f, review)) for n, f in register.fields.items()}
    return replace(cast(Register, _said(register, review)), fields=fields)


def _said(place: Register | Field, review: Review) -> Register | Field:
    read, write = place.read, place.write
    volatile, unsaid = place.volatile, place.volatile_unsaid
    if review.silent_read is not None and place.access.readable and is_silent(read):
        read = ReadSpec(frozenset({ReadEffect.NONE}), review.provenance)
    if review.silent_write is not None and place.access.writable and is_silent(write):
        write = replace(write, effect=WriteEffect.STORE, provenance=review.provenance)
    if review.silent_volatile is False and unsaid:
        volatile, unsaid = False, False
    return replace(place, read=read, write=write, volatile=volatile, volatile_unsaid=unsaid)
