"""Reviewing a map: what is silent or suspicious, worst first, what it costs, and the entry that a person may sign.

The share that is usable counts what the judge would allow, overlapping registers included: clean reads among readable
registers, writes of a known effect among writable ones, field updates among writable registers with fields.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import dataclass

from hwtool_contracts.effects import WriteEffect
from hwtool_contracts.glob import matches
from hwtool_contracts.judge import ReadJudgement, judge_read
from hwtool_contracts.judge_write import UpdateJudgement, judge_update
from hwtool_contracts.model import Contract, Register
from hwtool_contracts.native_write import text_of, value_of
from hwtool_contracts.overlay import covered, covers_digest, names_of
from hwtool_contracts.suspicion import Suspicion, silent_places, suspicions


@dataclass(frozen=True, slots=True)
class Finding:
    """One register that somebody should look at.

    Attributes:
        silent: the directions nobody has spoken about, `read` and `write`.
        suspicions: worst first; empty for plain silence.
    """

    register: Register
    silent: tuple[str, ...]
    suspicions: tuple[Suspicion, ...]

    @property
    def weight(self) -> int:
        """How bad it would be to be wrong, 0 to 100."""
        return self.suspicions[0].weight if self.suspicions else 0


@dataclass(frozen=True, slots=True)
class Share:
    """What of a map can be used: pairs of how many, of how many."""

    clean_reads: tuple[int, int]
    known_writes: tuple[int, int]
    field_updates: tuple[int, int]

    def line(self) -> str:
        """As one reads it."""
        told = (
            ("clean reads", self.clean_reads),
            ("known writes", self.known_writes),
            ("field updates", self.field_updates),
        )
        return ", ".join(f"{some} of {all_} {what}" for what, (some, all_) in told)


@dataclass(frozen=True, slots=True)
class Stated:
    """How a map speaks: counts of directions (a register that reads and writes has two)."""

    registers: int
    fields: int
    stated: int
    silent: int
    suspicious: int


def findings(registers: Iterable[Register]) -> list[Finding]:
    """The silent registers among these, worst first, then in the order given."""
    found = []
    for register in registers:
        silent = tuple(d for d in ("read", "write") if silent_places(register, d))
        if silent:
            found.append(Finding(register, silent, tuple(suspicions(register))))
    return sorted(found, key=lambda f: -f.weight)


def statements(contract: Contract) -> Stated:
    """How many directions are stated, silent and suspicious."""
    silent = suspicious = directions = 0
    for register in contract.registers.values():
        directions += register.access.readable + register.access.writable
        silent += sum(bool(silent_places(register, d)) for d in ("read", "write"))
        suspicious += len({s.direction for s in suspicions(register)})
    fields = sum(len(r.fields) for r in contract.registers.values())
    return Stated(len(contract.registers), fields, directions - silent, silent, suspicious)


def share(contract: Contract, registers: Sequence[Register]) -> Share:
    """What of these registers can be used as the contract stands."""
    reads = writes = updates = clean = known = updatable = 0
    for register in registers:
        if register.access.readable:
            reads += 1
            judged = judge_read(contract, (register,))
            clean += isinstance(judged, ReadJudgement) and judged.clean
        if register.access.writable:
            writes += 1
            specs = [f.write for f in register.fields.values() if f.access.writable] or [register.write]
            known += all(spec.effect is not WriteEffect.UNKNOWN for spec in specs)
            named = [f.name for f in register.fields.values() if f.access.writable]
            if named:
                updates += 1
                updatable += isinstance(judge_update(contract, register, frozenset(named[:1])), UpdateJudgement)
    return Share((clean, reads), (known, writes), (updatable, updates))


def pattern_of(contract: Contract, peripheral: str) -> str:
    """The pattern of a peripheral's registers: `UART0.*`, or `UART[*].*` where there is an array of that name."""
    if not any(n.startswith(f"{peripheral}.") for n in contract.registers):
        return f"{peripheral}[*].*"
    return f"{peripheral}.*"


def of_peripheral(contract: Contract, peripheral: str) -> list[Register]:
    """The registers of a peripheral, and of those derived from it; empty if there is none."""
    return covered(contract, (pattern_of(contract, peripheral),), ())


@dataclass(frozen=True, slots=True)
class Proposal:
    """A `[[review]]` entry that nobody has signed.

    Attributes:
        match: the pattern of what it would cover.
        excluded: the suspicious registers, which a review by the dozen must not cover.
        silent_read, silent_write: whether it would say so.
        covers: digest of what it would cover.
        count: how many registers.
    """

    match: str
    excluded: tuple[str, ...]
    silent_read: bool
    silent_write: bool
    covers: str
    count: int

    def text(self, seen: str = "", source: str = "", reviewed_by: str = "", on: str = "") -> str:
        """The entry as TOML; what is empty is for the person who signs, and refused until it is filled in."""
        lines = ["[[review]]", f"match = {text_of(self.match)}"]
        if self.excluded:
            lines.append(f"except = {value_of(self.excluded)}")
        if self.silent_read:
            lines.append('silent_read = "none"')
        if self.silent_write:
            lines += [
                'silent_write = "store"',
                "# silent_volatile = false    # if hardware changes none of these bits by itself",
            ]
        lines.append(
            f"seen = {text_of(seen)}" + ("" if seen else '              # "page" or "driver": what you looked at')
        )
        lines.append(
            f"source = {text_of(source)}"
            + ("" if source else "            # document and section, or repository, commit, path")
        )
        lines.append(f"reviewed_by = {text_of(reviewed_by)}")
        lines += [f"on = {on}" if on else 'on = ""', f"covers_sha256 = {text_of(self.covers)}"]
        return "\n".join(lines) + "\n"


def propose(
    contract: Contract,
    peripheral: str,
    base: Contract | None = None,
    directions: tuple[str, ...] = ("read", "write"),
) -> Proposal | None:
    """An entry for the silent registers of a peripheral without the suspicious ones; None if none is left.

    Args:
        base: the map without any overlay, which the entry will be compared with when it has changed.
        directions: what it speaks of: `read`, `write` or both.
    """
    pattern = pattern_of(contract, peripheral)
    all_ = of_peripheral(contract, peripheral)
    excluded: dict[str, None] = {}
    for finding in findings(all_):
        if any(s.direction in directions for s in finding.suspicions):
            # by the name that the pattern matches: what is suspected of a derived register keeps its base out too
            names = [n for n in names_of(contract, finding.register.name) if matches(pattern, n)]
            excluded[names[-1]] = None
    chosen = covered(contract, (pattern,), tuple(excluded))
    silent = {d for f in findings(chosen) for d in f.silent if d in directions}
    if not silent:
        return None
    return Proposal(
        match=pattern,
        excluded=tuple(excluded),
        silent_read="read" in silent,
        silent_write="write" in silent,
        covers=covers_digest(chosen if base is None else covered(base, (pattern,), tuple(excluded))),
        count=len(chosen),
    )
