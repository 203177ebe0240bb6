"""What is sensitive stays out of what others read: a value to be looked for, and where it must not be."""

from __future__ import annotations

import msgspec

from hwtool.checks.rig import OPERATOR
from hwtool.checks.stand import NotApplicable, Stand, ensure
from hwtool_contracts.messages import Result
from hwtool_contracts.model import Register


def secret_of(register: Register) -> int:
    """A value of a sensitive register that is not met by chance.

    Raises:
        NotApplicable: it is not sensitive, or too short for that.
    """
    if not register.sensitive:
        raise NotApplicable("nothing says that it is a secret")
    if register.width_bits < 16:
        raise NotApplicable("too few bits to be told from anything else")
    return int("5a5aa5a53c3cc3c3"[: (register.width_bits + 3) // 4], 16) & register.mask


async def stays_out(stand: Stand, told: Result, secret: int) -> str:
    """The value of an operation stands neither in the journal nor in its summary."""
    journal = await stand.call("journal.read", OPERATOR, since=max(0, told.store["seq"] - 20) if told.store else 0)
    entries = [msgspec.json.encode(entry).decode() for entry in journal.entries or []]
    ensure(any(f"{told.id}" in entry for entry in entries), "the journal has no entry of it")
    word = f"{secret:x}"
    ensure(not any(word in entry for entry in entries), "its value stands in the journal")
    ensure(word not in told.summary, "its value stands in the summary")
    return "neither in the journal nor in the summary"
