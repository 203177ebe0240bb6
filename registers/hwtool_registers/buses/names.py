"""Names that stay, and what has them today. Pure."""

from __future__ import annotations

import errno
from collections.abc import Mapping


def called(name: str, there: Mapping[str, str], what: str, none: str = "none") -> str:
    """What has this name.

    Args:
        there: names, by what has them.
        what: what it is, for the sentence; `none` is said where there is nothing at all.

    Raises:
        OSError: ENODEV, nothing has it; ENOTUNIQ, several have it.
    """
    found = [one for one, told in there.items() if told == name]
    if not found:
        listed = "; ".join(sorted(set(there.values()))) or none
        raise OSError(errno.ENODEV, f"no {what} is called {name!r}; there are: {listed}")
    if len(found) > 1:
        several = f"{len(found)} {what}s are called {name!r} ({', '.join(found)})"
        raise OSError(errno.ENOTUNIQ, f"{several}: name a path that udev keeps stable")
    return found[0]
