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
    """Text of callers and devices as it may stand in records: at most 500 characters, control characters escaped."""
    shown = "".join(
        c if not unicodedata.category(c).startswith("C") else f"\\u{ord(c):04x}" for c in text[: MAX_TEXT + 1]
    )
    return shown if len(text) <= MAX_TEXT else shown[: MAX_TEXT - 1] + "…"


def entry(row: AuditRow, principal: str, *, operator: bool) -> dict[str, Any]:
    """A row of the chain as a caller may see it."""
    body = dict(row.body)
    at_ns = body.pop("at_ns", 0)
    shown = {"seq": row.seq, "op": row.op_id, "at": rfc3339(at_ns), **body}
    if not operator and body.get("principal") not in (None, principal):
        for name in PRIVATE:
            shown.pop(name, None)
    return shown
