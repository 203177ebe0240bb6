"""One case of a check: what of which place, and the function that judges it."""

from __future__ import annotations

from collections.abc import Awaitable, Callable
from typing import NamedTuple


class Case(NamedTuple):
    """A guarantee at a place.

    Attributes:
        effect: of the read or write.
        body: answers what was counted; raises what the stand has for a guarantee that is broken or not to be checked.
    """

    place: str
    effect: str
    guarantee: str
    body: Callable[[], Awaitable[str]]
