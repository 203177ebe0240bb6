"""What the audit chain says of an attempt, and who may see how much of it.

The row holds what identifies the action and its outcome: operation and register, arguments, result, dry run, who and
when. Sensitive values are replaced before anything leaves this file; text from callers and devices is shortened and
escaped. Others' attempts are shown without values, arguments and reasons.
"""

from __future__ import annotations

import unicodedata
from typing import Any, Final

from hwtool.clock import rfc3339
from hwtool_store.audit import AuditRow

REDACTED: Final = "redacted"
MAX_TEXT: Final = 500
PRIVATE: Final = ("arguments", "values", "reason", "summary", "why", "before", "after", "evidence")


def clean_text(text: str) -> str:
    """Text of callers and devices as it may stand in records: at most 500 characters, nothing invisible in it.

    Control, bidirectional, separator and unassigned characters are escaped, the backslash too, so that an escape
    cannot be forged; an escape is never cut in two.
    """
    pieces = [_escaped(character) for character in text[: MAX_TEXT + 1]]
    if sum(map(len, pieces)) <= MAX_TEXT:
        return "".join(pieces)
    while pieces and sum(map(len, pieces)) > MAX_TEXT - 1:
        pieces.pop()
    return "".join(pieces) + "…"


def _escaped(character: str) -> str:
    if character == "\\":
        return "\\\\"
    if unicodedata.category(character)[0] != "C" and unicodedata.category(character) not in ("Zl", "Zp"):
        return character
    code = ord(character)
    return f"\\u{code:04x}" if code <= 0xFFFF else f"\\U{code:08x}"


def entry(row: AuditRow, principal: str, *, operator: bool) -> dict[str, Any]:
    """A row of the chain as a caller may see it."""
    body = dict(row.body)
    at_ns = body.pop("at_ns", 0)
    shown = {"seq": row.seq, "op": row.op_id, "at": rfc3339(at_ns), **body}
    owners = {body.get("principal"), body.get("of")} - {None}
    if not operator and owners and principal not in owners:
        for name in PRIVATE:
            shown.pop(name, None)
    return shown
