"""derivedFrom at every level: where a base is looked for, and how what an element says itself overrides the base.

Rules
- A path is looked for among the siblings, then outwards up to the peripheral, then from the device's peripherals on.
- A name matches as it is written (`PMUX0_%s`), as one of the names of its dim list (`ClusterA`), or without `%s`.
- What an element says itself replaces the same element of its base; registers, clusters and fields are matched by
  name. The dim of a base comes along only where the deriving name has a place for it.
- A circle, and an element that derives from one that it stands in, is a fault.

Source: CMSIS-SVD description format, attribute derivedFrom of peripheral, cluster, register, field, enumeratedValues.
"""

from __future__ import annotations

import re
from collections.abc import Mapping
from typing import Final
from xml.etree.ElementTree import Element

from hwtool_contracts.importers.svd_words import is_index, number

NAMED: Final = frozenset({"register", "cluster", "field"})
CONTAINERS: Final = frozenset({"registers", "fields"})
BITS: Final = frozenset({"bitOffset", "bitWidth", "lsb", "msb", "bitRange"})
BIT_RANGE: Final = re.compile(r"\[?\s*(\w+)\s*:\s*(\w+)\s*\]?")
DIM: Final = frozenset({"dim", "dimIncrement", "dimIndex", "dimName", "dimArrayIndex"})


class Missing(Exception):
    """No element of this path, as far as the file has been read."""


class Circle(Exception):
    """An element derives from itself, or from one that it stands in."""


class Scope:
    """Where an element stands: the element around it, and so on outwards to the peripheral.

    Attributes:
        around: the element whose children are siblings here.
        outer: where `around` stands; None for a peripheral.
        origins: ids of the file's elements that `around` was made from.
        home: where the base that `around` was derived from stands: its children may name siblings from there.
    """

    __slots__ = ("around", "home", "origins", "outer")

    def __init__(
        self, around: Element, outer: Scope | None, origins: frozenset[int], home: Scope | None = None
    ) -> None:
        self.around = around
        self.outer = outer
        self.origins = origins
        self.home = home


class Resolved:
    """An element with all that it derives: the merged element, what it was made of, and where its base stands."""

    __slots__ = ("element", "home", "origins")

    def __init__(self, element: Element, origins: frozenset[int], home: Scope | None) -> None:
        self.element = element
        self.origins = origins
        self.home = home


def resolve(element: Element, scope: Scope | None, peripherals: Mapping[str, Element]) -> Resolved:
    """The element with everything that it derives from its base and the base's bases.

    Raises:
        Missing: the base is not there (yet).
        Circle: it derives from itself.
    """
    return _resolve(element, scope, peripherals, frozenset())


def _resolve(
    element: Element, scope: Scope | None, peripherals: Mapping[str, Element], chain: frozenset[int]
) -> Resolved:
    mine = id(element)
    if mine in chain:
        raise Circle(element.get("derivedFrom", ""))
    path = element.get("derivedFrom")
    if path is None:
        return Resolved(element, frozenset({mine}), None)
    base, home = _find(path.strip(), element.tag, scope, peripherals, mine, chain)
    walk = scope
    while walk is not None:
        if id(base) in walk.origins:
            raise Circle(path)
        walk = walk.outer
    resolved = _resolve(base, home, peripherals, chain | {mine})
    return Resolved(merge(resolved.element, element), resolved.origins | {mine}, home)


def _find(
    path: str,
    tag: str,
    scope: Scope | None,
    peripherals: Mapping[str, Element],
    mine: int,
    chain: frozenset[int],
) -> tuple[Element, Scope | None]:
    tokens = path.split(".")
    seen: list[Scope | None] = [scope]
    while seen:
        walk = seen.pop(0)
        while walk is not None:
            found = _descend(walk, tokens, tag, mine)
            if found is not None:
                return found
            if walk.home is not None:
                seen.append(walk.home)
            walk = walk.outer
    peripheral = peripherals.get(tokens[0])
    if peripheral is None:
        peripheral = next((p for p in peripherals.values() if matches(p, tokens[0])), None)
    if peripheral is not None and id(peripheral) != mine:
        if len(tokens) == 1:
            if tag == "peripheral":
                return peripheral, None
        else:
            found = _descend(Scope(peripheral, None, frozenset({id(peripheral)})), tokens[1:], tag, mine)
            if found is None and peripheral.get("derivedFrom") is not None and mine not in chain:
                whole = _resolve(peripheral, None, peripherals, chain | {mine})
                found = _descend(Scope(whole.element, None, whole.origins, whole.home), tokens[1:], tag, mine)
            if found is not None:
                return found
    raise Missing(path)


def _descend(scope: Scope, tokens: list[str], tag: str, mine: int) -> tuple[Element, Scope] | None:
    """The element of a path below a scope; enumerations are looked for anywhere below."""
    if tag == "enumeratedValues" and len(tokens) == 1:
        for found in scope.around.iter("enumeratedValues"):
            if found.findtext("name", "").strip() == tokens[0] and id(found) != mine and not found.get("derivedFrom"):
                return found, scope
        return None
    for child in _children(scope.around):
        if not matches(child, tokens[0]):
            continue
        if len(tokens) > 1:
            inner = _descend(Scope(child, scope, frozenset({id(child)})), tokens[1:], tag, mine)
            if inner is not None:
                return inner
        elif child.tag == tag and id(child) != mine:
            return child, scope
    return None


def _children(around: Element) -> list[Element]:
    found = []
    for child in around:
        if child.tag in CONTAINERS:
            found += list(child)
        elif child.tag in NAMED or child.tag == "enumeratedValues":
            found.append(child)
    return found


def name_of(element: Element) -> str:
    """The text of its `<name>`, empty without one."""
    return (element.findtext("name") or "").strip()


def matches(element: Element, token: str) -> bool:
    """Whether a token of a path means this element."""
    name = name_of(element)
    if name == token:
        return True
    if "%s" not in name:
        return False
    if name.replace("[%s]", "").replace("%s", "") == token:
        return True
    head, _, tail = name.partition("%s")
    if "%s" in tail or not token.startswith(head) or not token.endswith(tail) or len(token) <= len(head) + len(tail):
        return False
    index = token[len(head) : len(token) - len(tail)]
    return is_index(element.findtext("dimIndex"), number(element.findtext("dim") or "") or 0, index)


def merge(base: Element, own: Element) -> Element:
    """What `own` says, completed by what only `base` says."""
    merged = Element(own.tag, {k: v for k, v in own.attrib.items() if k != "derivedFrom"})
    said = {child.tag for child in own}
    own_name = name_of(own)
    takes_dim = not own_name or "%s" in own_name
    only_offset = said & BITS == {"bitOffset"}
    if said & BITS:
        said |= BITS - ({"bitWidth"} if only_offset else set())  # one spelling, not a mix of two
    named_here = {name_of(child) for child in own if child.tag in NAMED}
    for child in base:
        if child.tag in DIM:
            if takes_dim and not said & {"dim"}:
                merged.append(child)
        elif child.tag in NAMED:
            if name_of(child) not in named_here:
                merged.append(child)
        elif child.tag in CONTAINERS and child.tag in said:
            continue  # put together below
        elif child.tag not in said:
            merged.append(child)
    if only_offset:
        merged.extend(_width_of(base))
    for child in own:
        below = base.find(child.tag) if child.tag in CONTAINERS else None
        merged.append(child if below is None else _merged_container(below, child))
    return merged


def _width_of(base: Element) -> list[Element]:
    """The width of a field that says it by its ends, for one that derives from it and says only where it begins."""
    ends = [base.findtext("msb"), base.findtext("lsb")]
    match = BIT_RANGE.fullmatch((base.findtext("bitRange") or "").strip())
    if match is not None:
        ends = [match[1], match[2]]
    high, low = (None if end is None else number(end) for end in ends)
    if base.find("bitWidth") is not None or high is None or low is None or high < low:
        return []
    width = Element("bitWidth")
    width.text = str(high - low + 1)
    return [width]


def _merged_container(base: Element, own: Element) -> Element:
    container = Element(own.tag, own.attrib)
    named = {name_of(child): child for child in own}
    container.extend(child for child in base if name_of(child) not in named)
    container.extend(own)
    return container
