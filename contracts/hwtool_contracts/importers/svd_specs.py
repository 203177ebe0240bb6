"""The small parts of an SVD element: numbers, access words, effects, dim lists, enumerations, constraints."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from typing import Final
from xml.etree.ElementTree import Element

from hwtool_contracts.effects import Basis, ReadEffect, WriteEffect
from hwtool_contracts.importers.svd_words import (
    ACCESS,
    MODIFIED_WRITE_VALUES,
    READ_ACTIONS,
    indices,
    number,
    number_of_pattern,
)
from hwtool_contracts.model import (
    Access,
    Limits,
    Provenance,
    ReadSpec,
    WriteSpec,
)
from hwtool_contracts.notice import Findings

MAX_DIM: Final = 65_536
NO_NUMBER: Final = -1
ONE: Final = (("", 0),)


class Specs:
    """Reads the words of one file; equal specs are one object."""

    def __init__(self, findings: Findings) -> None:
        self.findings = findings
        self._provenance = Provenance(Basis.ASSERTED, None, findings.file)
        self._numbers: dict[str, int] = {}
        self._reads: dict[str, ReadSpec] = {}
        self._writes: dict[tuple[str, bool], WriteSpec] = {}

    def integer(self, text: str | None) -> int:
        """The number of a text, `NO_NUMBER` if there is none; each text is looked at once."""
        if text is None:
            return NO_NUMBER
        known = self._numbers.get(text)
        if known is None:
            value = number(text)
            known = self._numbers[text] = NO_NUMBER if value is None else value
        return known

    def required(self, leaves: Mapping[str, str], tag: str, place: str) -> int:
        """The number in an element that must be there; 0 with a fault without it."""
        text = leaves.get(tag)
        value = self.integer(text)
        if value == NO_NUMBER:
            rule = f"<{tag}> is missing" if text is None else f"<{tag}> is no number"
            self.findings.fault(place, rule, (text or "").strip(), "a decimal, 0x or # number")
            return 0
        return value

    def optional(self, leaves: Mapping[str, str], tag: str, place: str) -> int | None:
        """The number in an element that may be there; None with a fault if it is no number."""
        text = leaves.get(tag)
        if text is None:
            return None
        value = self.integer(text)
        if value == NO_NUMBER:
            self.findings.fault(place, f"<{tag}> is no number", text.strip(), "a decimal, 0x or # number")
            return None
        return value

    def access(self, word: str, place: str) -> Access:
        """The direction that a word allows; a word that does not exist allows none."""
        known = ACCESS.get(word.strip())
        if known is None:
            cure = "access none; an overlay may say what it is"
            self.findings.notice(place, "not an access of the format", word.strip(), cure)
            return Access.NONE
        return known

    def read(self, word: str | None, inherited: ReadSpec, place: str) -> ReadSpec:
        """What a readAction says; without one what is inherited; an unknown word is `unknown`."""
        if word is None:
            return inherited
        known = self._reads.get(word)
        if known is None:
            effect = READ_ACTIONS.get(word.strip())
            if effect is None:
                self.findings.notice(place, "not a readAction of the format", word.strip(), "read effect unknown")
                return ReadSpec(frozenset({ReadEffect.UNKNOWN}), self._provenance)  # stated: no silence to be reviewed
            known = self._reads[word] = ReadSpec(frozenset({effect}), self._provenance)
        return known

    def write(self, word: str | None, once: bool, inherited: WriteSpec, place: str) -> WriteSpec:
        """What a modifiedWriteValues says; a write-once access says it too; without either what is inherited."""
        if word is None and not once:
            return inherited
        key = (word or "", once)
        known = self._writes.get(key)
        if known is None:
            effect = WriteEffect.WRITE_ONCE if word is None else MODIFIED_WRITE_VALUES.get(word.strip())
            if effect is None:
                self.findings.notice(place, "not a modifiedWriteValues of the format", word or "", "effect unknown")
                return WriteSpec(WriteEffect.UNKNOWN, self._provenance)  # stated, in a word of its own
            if once and effect is not WriteEffect.WRITE_ONCE:
                self.findings.notice(place, "write once, and modifies what is written", word or "", "effect unknown")
                effect = WriteEffect.UNKNOWN
            known = self._writes[key] = WriteSpec(effect, self._provenance)
        return known

    def constrained(
        self, element: Element, write: WriteSpec, values: Mapping[str, int], top_value: int, place: str
    ) -> WriteSpec:
        """The write with what `<writeConstraint>` permits."""
        constraint = element.find("writeConstraint")
        if constraint is None:
            return write
        span = constraint.find("range")
        if span is not None:
            leaves = {child.tag: child.text or "" for child in span}
            low, high = self.optional(leaves, "minimum", place), self.optional(leaves, "maximum", place)
            if low is not None and low > (top_value if high is None else high):
                above = top_value if high is None else high
                self.findings.fault(place, "writeConstraint: minimum above maximum", f"{low} > {above}", "min <= max")
                return write
            if high is not None and high > top_value:
                high = top_value
            if low is not None and low > top_value:
                found = f"{low} > {top_value}"
                self.findings.fault(place, "writeConstraint: minimum above the widest value", found, "min <= max")
                return write
            return _with(write, limits=Limits(low or 0, top_value if high is None else high))
        if (constraint.findtext("useEnumeratedValues") or "").strip() in ("true", "1") and values:
            return _with(write, values=dict(values))
        return write

    def enumeration(self, containers: Iterable[Element], width_bits: int, place: str) -> dict[str, int]:
        """Names and values of enumerations; what does not fit, or says a name twice, is noticed."""
        found: dict[str, int] = {}
        for container in containers:
            for one in container:
                if one.tag != "enumeratedValue":
                    continue
                name, text = "", None
                for child in one:
                    if child.tag == "name":
                        name = (child.text or "").strip()
                    elif child.tag == "value":
                        text = child.text
                if text is None:
                    continue  # isDefault: the name of every other value, which is none to write
                value = self.integer(text)
                if value == NO_NUMBER:
                    pattern = number_of_pattern(text)
                    if pattern is None:
                        self.findings.notice(place, "an enumerated value is no number", f"{name} = {text}", "left out")
                        continue
                    value = pattern
                    self.findings.notice(place, "an enumerated value has don't-care bits", text, f"{name} = {value}")
                if not name:
                    name = text.strip()
                if value >> width_bits:
                    self.findings.notice(place, "an enumerated value does not fit", f"{name} = {text}", "left out")
                elif found.setdefault(name, value) != value:
                    self.findings.notice(place, "two values of one name", f"{name} = {text}", f"{name} = {found[name]}")
        return found

    def dims(self, leaves: Mapping[str, str], name: str, place: str) -> Iterable[tuple[str, int]]:
        """Each name of an element that may be an array or list, with its distance from the first."""
        if "dim" not in leaves:
            if "%s" in name:
                self.findings.fault(place, "a place for an index, and no dim", name, "<dim>, or a name without %s")
                return ()
            return ((name, 0),)
        count = self.required(leaves, "dim", place)
        step = self.required(leaves, "dimIncrement", place)
        if not 1 <= count <= MAX_DIM:
            self.findings.fault(place, "dim out of range", str(count), f"1 to {MAX_DIM}")
            return ()
        if "%s" not in name:
            self.findings.fault(place, "dim without a place for the index", name, "%s in the name")
            return ()
        names = indices(leaves.get("dimIndex"), count)
        if names is None:
            wanted = f"{count} different names, as the dim says"
            self.findings.fault(place, "dimIndex does not fit dim", (leaves.get("dimIndex") or "").strip(), wanted)
            return ()
        return tuple((name.replace("%s", index), i * step) for i, index in enumerate(names))


def _with(write: WriteSpec, *, limits: Limits | None = None, values: Mapping[str, int] | None = None) -> WriteSpec:
    return WriteSpec(write.effect, write.provenance, limits=limits, values=values or {})
