"""Logs on stderr: a line each, as text or as one JSON object; times in UTC."""

from __future__ import annotations

import json
import logging
import sys

from hwtool.clock import rfc3339


class _Json(logging.Formatter):
    def format(self, record: logging.LogRecord) -> str:
        told = {
            "at": rfc3339(round(record.created * 1_000_000_000)),
            "level": record.levelname.lower(),
            "logger": record.name,
            "message": record.getMessage(),
        }
        if record.exc_info is not None:
            told["traceback"] = self.formatException(record.exc_info)
        return json.dumps(told)


def log_to_stderr(kind: str) -> None:
    """Have everything from warnings on, and what is told of reloads, on stderr; `kind`: text or json."""
    handler = logging.StreamHandler(sys.stderr)
    handler.setFormatter(_Json() if kind == "json" else logging.Formatter("hwtool: %(levelname)s: %(message)s"))
    root = logging.getLogger()
    root.handlers = [handler]
    root.setLevel(logging.WARNING)
    logging.getLogger("hwtool").setLevel(logging.INFO)
