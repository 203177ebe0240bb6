"""Patterns over register names: `*` is any text, dots included, `?` one character; brackets mean themselves."""

from __future__ import annotations

import re
from functools import lru_cache


@lru_cache(maxsize=1024)
def _compiled(pattern: str) -> re.Pattern[str]:
    parts = {"*": ".*", "?": "."}
    return re.compile("".join(parts.get(c) or re.escape(c) for c in pattern), re.DOTALL)


def is_pattern(name: str) -> bool:
    """Whether a name stands for several."""
    return "*" in name or "?" in name


def matches(pattern: str, name: str) -> bool:
    """Whether a whole name matches."""
    return _compiled(pattern).fullmatch(name) is not None
