"""One entry of the journal as a line, for the command line and the demo."""

from __future__ import annotations

from typing import Any


def timeline(entry: dict[str, Any]) -> str:
    """One entry of the journal as a line."""
    about = entry.get("register") or entry.get("device") or ""
    op = f" op {entry['op']}" if entry.get("op") else ""
    verdict = f" {entry['verdict']}" if entry.get("verdict") else ""
    by = f" by {entry['by']}" if entry.get("by") else " direct" if entry.get("direct") else ""
    told = entry.get("summary") or entry.get("reason") or entry.get("why") or ""
    return f"{entry['seq']:>5} {entry['at'][11:23]} {entry['what']}{op}{verdict}{by} {about}: {told}".rstrip(": ")
