"""What is asked, by chance: keyed requests about registers that can take them, and what each comes to."""

from __future__ import annotations

from collections import Counter
from collections.abc import Sequence
from typing import Final

from hypothesis import strategies as st

from tests.model.boards import SAFE, Drawn, Part, Place
from tests.model.promise import Request

NUMBERS: Final = st.integers(0, 255)
WHOLE: Final = -1  # every bit of a register


def place_of(places: Sequence[Place], data: st.DataObject) -> Place:
    """One of some registers."""
    return places[data.draw(NUMBERS) % len(places)]


def request_of(drawn: Drawn, data: st.DataObject) -> Request:
    """A keyed request about a register that can take it; now and then one that is refused."""
    number = data.draw(NUMBERS)
    able = [p for p in drawn.places if p.writable or not p.clean] if number % 32 else []
    place = place_of(able or drawn.places, data)
    value = number * 0x01010101 & ((1 << place.bits) - 1)
    if number % 16 == 15 and place.device in drawn.safe:
        safe = drawn.safe[place.device]
        plan = Counter({(safe, "write"): 1})
        return Request("device.safe_state", {"device": place.device}, (place.device, safe), plan, WHOLE, SAFE)
    if place.parts and number % 4:
        return _update(place, place.parts[number % len(place.parts)], value)
    if place.writable and (place.clean or number % 2):
        asks = place.asks or place.write == "lock" or any(_means(part, value) for part in place.parts)
        params = {"register": f"{place.device}.{place.name}", "value": value}
        return Request("reg.write", params, place.at, Counter({(place.name, "write"): 1}), WHOLE, value, asks)
    count = {"count": 2 + number % 4} if "pop" in place.reads and number % 3 else {}
    plan = Counter({(place.name, "read"): count.get("count", 1)})
    return Request("reg.read_effectful", {"register": f"{place.device}.{place.name}", **count}, place.at, plan)


def _update(place: Place, part: Part, value: int) -> Request:
    new = value & (part.mask >> part.lsb)
    params = {"register": f"{place.device}.{place.name}", "fields": {part.name: new}}
    plan = Counter({(place.name, "write"): 1})
    return Request("reg.update", params, place.at, plan, part.mask, new << part.lsb, part.asks or place.asks)


def _means(part: Part, value: int) -> bool:
    """Whether a write of a whole register means a field that needs a person: what leaves it alone asks nobody."""
    new = (value & part.mask) >> part.lsb
    return part.asks and new not in (0, part.mask >> part.lsb)
