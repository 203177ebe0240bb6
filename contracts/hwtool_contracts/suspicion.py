"""What a name or a text lets one suspect of a register whose file is silent about it.

Suspicion orders a review list and keeps a register out of a proposed review. It never relaxes anything, and it never
becomes an effect of its own: what is suspected of a pop is as `unknown` as before.
"""

from __future__ import annotations

import re
from dataclasses import dataclass
from typing import Final

from hwtool_contracts.effects import Basis
from hwtool_contracts.model import Field, Register


@dataclass(frozen=True, slots=True)
class Suspicion:
    """One reason to look twice.

    Attributes:
        weight: how bad it would be to be wrong, 0 to 100; the list is sorted by the highest.
        direction: `read` or `write`.
        reason: what gave rise to it, with the words that were found.
    """

    weight: int
    direction: str
    reason: str


def _text(*patterns: str) -> re.Pattern[str]:
    """Words anywhere in a description; what may stand between two of them is bounded."""
    return re.compile("|".join(f"(?:{p})" for p in patterns), re.IGNORECASE)


def _name(*patterns: str) -> re.Pattern[str]:
    """The whole last part of a register's path."""
    return re.compile("|".join(f"(?:{p})" for p in patterns), re.IGNORECASE)


STATUS: Final = (r"\w*SR\d?", r"\w*STAT(?:US)?\d?", r"ISR\d?", r"\w*_?RIS", r"\w*INTFLAG", r"IFG?", r"\w*EVENT\w*")
DATA: Final = (r"(?:U\d*)?(?:ART)?DR\d*", r"\w*FIFO\w*", r"DATA_CMD")

READ_TEXTS: Final = (
    (
        95,
        "its text says that a read clears",
        _text(
            r"(?:clear|reset)\w{0,12}[^.]{0,60}?\b(?:on|by|when|after|upon|once)\b[^.]{0,30}?\bread",
            r"\bread(?:ing|s)?\b[^.]{0,80}?\b(?:clears?|resets?|zeroe?s)\b",
            r"\bread[- ](?:to[- ])?clear\b",
            r"\bcleared? on read\b",
            r"\bRO?C\b",
        ),
    ),
    (
        95,
        "its text says that a read takes something",
        _text(
            r"\bread(?:ing|s)?\b[^.]{0,80}?\b(?:pops?|removes?|advances?|acknowledg\w{1,12}|claims?)\b",
            r"\bread(?:ing|s)?\b[^.]{0,80}?\b(?:increments?|decrements?)\b",
            r"\b(?:pop|popp\w{1,12}|dequeue\w{0,12})\b",
            r"\bnext (?:word|byte|entry|element|sample|character)\b",
        ),
    ),
    (
        90,
        "its text says that a read starts or takes hold of something",
        _text(
            r"\bread(?:ing|s)?\b[^.]{0,80}?\b(?:triggers?|starts?|latch\w{0,12}|locks?|freez\w{1,12}|captures?)\b",
            r"\blatch\w{0,12}[^.]{0,40}?\bread",
            r"\bclaim\b",
            r"\bspinlock\b",
        ),
    ),
    (
        80,
        "its text speaks of a FIFO or buffer",
        _text(r"\bFIFO\b", r"\breceived? (?:data|buffer|holding)", r"\bRX ?(?:data|buffer)"),
    ),
    (
        60,
        "its text speaks of a pending event",
        _text(r"\bpending\b", r"\bsticky\b", r"\blatched\b", r"\bevent flag\b"),
    ),
)
WRITE_TEXTS: Final = (
    (
        90,
        "its text says that writing clears",
        _text(
            r"\bR?W1C\b",
            r"\bw\w{0,12}\s+(?:a\s+)?['\"]?(?:1|one|0|zero)\b[^.]{0,40}?\b(?:clears?|resets?)\b",
            r"\b(?:clear|reset)\w{0,12}[^.]{0,40}?\bwrit\w{1,12}\s+(?:a\s+)?['\"]?(?:1|one|0|zero)",
            r"\bwrite[- ](?:one|1)[- ]to[- ]clear\b",
        ),
    ),
    (
        85,
        "its text says that writing acts",
        _text(
            r"\bself[- ]clear\w{0,12}",
            r"\bwrit\w{1,12}[^.]{0,40}?\b(?:triggers?|starts?|toggles?|generates?|initiates?)\b",
            r"\bsoftware (?:reset|trigger)\b",
            r"\bpulse\b",
            r"\barms?\b",
            r"\b(?:until|when|once|after) \w{1,24} is written\b",
            r"\bstrobe\b",
            r"\bautomatically cleared\b",
        ),
    ),
    (
        85,
        "its text speaks of a key or lock",
        _text(r"\bunlock\w{0,12}", r"\bwrite[- ]once\b", r"\bkey\b", r"\bwrite protect\w{0,12}"),
    ),
    (
        75,
        "its text speaks of a FIFO or buffer",
        _text(r"\bFIFO\b", r"\btransmit (?:data|buffer|holding)", r"\bTX ?(?:data|buffer)"),
    ),
)
READ_NAMES: Final = (
    (
        90,
        "a name of a data port",
        _name(*DATA, "RBR", "RHR", "RDR", r"RXDR?", r"RX(?:D|DATA)\w*", r"\w*POP\w*", r"\w*RDATA", "RSR"),
    ),
    (90, "a name of a lock or claim", _name(r"\w*SPINLOCK\w*", r"\w*CLAIM\w*", r"\w*MUTEX\w*", r"\w*SEMA\w*")),
    (88, "a name of a register that clears", _name(r"(?:IC_)?CLR_\w+", r"\w*ICR", r"\w+_CLR", "IIR", r"\w*ICLR")),
    (55, "a name of a status register", _name(*STATUS, r"\w*_?MIS", "LSR", "MSR", r"\w*IFR")),
    (50, "a name of a latched half", _name(r"\w*(?:TIME|CNT|COUNT|CYCLE)\w*(?:H|L|HI|LO|HIGH|LOW)R?")),
)
WRITE_NAMES: Final = (
    (
        85,
        "a name of a register that acts on ones",
        _name(r"\w*(?:SET|CLR|CLEAR|TGL|TOGGLE|XOR|BSRR?|BRR|IFC|IFS|IFCR|ICR)\d*"),
    ),
    (80, "a name of a data port", _name(*DATA, "THR", "TDR", r"TX(?:D|DATA)\w*", r"\w*PUSH\w*")),
    (
        80,
        "a name of a command or key",
        _name(
            r"\w*(?:CMD|COMMAND|SWRST|UNLOCK|LOCK|EGR|START|STOP|FEED|KICK|RELOAD)\d*",
            r"\w*(?:TRIG|KEY)\w*",
        ),
    ),
    (55, "a name of a status register", _name(*STATUS, "INTR")),
)


def _silent(place: Register | Field, direction: str) -> bool:
    if direction == "read":
        return place.access.readable and place.read.provenance.basis is Basis.SILENT
    return place.access.writable and place.write.provenance.basis is Basis.SILENT


def silent_places(register: Register, direction: str) -> list[Register | Field]:
    """The register itself or those of its fields about which nobody has said what a read or write does.

    The register stands for bits that belong to no field that can be accessed this way.
    """
    concerned = [f for f in register.fields.values() if f.access.readable or direction == "write"]
    concerned = [f for f in concerned if f.access.writable or direction == "read"]
    covered = others = 0
    for field in register.fields.values():
        others |= field.mask
    for field in concerned:
        covered |= field.mask
    loose = others != register.mask  # bits of no field at all
    fields = [f for f in concerned if _silent(f, direction)]
    return [*fields, *([register] if loose and covered != register.mask and _silent(register, direction) else [])]


def suspicions(register: Register) -> list[Suspicion]:
    """What is suspected of the silent directions of a register, worst first, each reason once."""
    found: dict[tuple[str, str], Suspicion] = {}
    for direction, texts, names in (("read", READ_TEXTS, READ_NAMES), ("write", WRITE_TEXTS, WRITE_NAMES)):
        silent = silent_places(register, direction)
        if not silent:
            continue
        last = register.name.rpartition(".")[2].partition("[")[0]
        for weight, reason, pattern in names:
            if pattern.fullmatch(last):
                found.setdefault((direction, reason), Suspicion(weight, direction, f"{reason} ({last})"))
        for place in [register, *silent]:
            where = "" if isinstance(place, Register) else f"{place.name}: "
            for weight, reason, pattern in texts:
                hit = pattern.search(place.description)
                if hit is not None:
                    words = " ".join(hit[0].split())
                    told = f"{reason} ({where}“{words[:60]}”)"
                    found.setdefault((direction, reason), Suspicion(weight, direction, told))
    return sorted(found.values(), key=lambda s: (-s.weight, s.direction, s.reason))
