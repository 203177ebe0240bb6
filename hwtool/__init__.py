"""hwtool: the daemon between callers and hardware registers, its clients and its command line.

The public names are those of the synchronous client; they are fetched when they are used, so `import hwtool` costs the
command line nothing. The asyncio client is `hwtool.aio.Client`, the retry vocabulary `hwtool.retrying`.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, Final

if TYPE_CHECKING:
    from hwtool.calls import scaled, text
    from hwtool.client import Client
    from hwtool.failures import CallFailed, RunFailed
    from hwtool.losses import ConnectionLost, NeverSent, NoDaemon, NoReply
    from hwtool.recovering import new_key
    from hwtool.replies import Device, Event, Result, Value
    from hwtool_contracts.errors import explain, parse

HOMES: Final = {
    "Client": "hwtool.client",
    "CallFailed": "hwtool.failures",
    "ConnectionLost": "hwtool.losses",
    "NeverSent": "hwtool.losses",
    "NoDaemon": "hwtool.losses",
    "NoReply": "hwtool.losses",
    "RunFailed": "hwtool.failures",
    "Device": "hwtool.replies",
    "Event": "hwtool.replies",
    "Result": "hwtool.replies",
    "Value": "hwtool.replies",
    "explain": "hwtool_contracts.errors",
    "new_key": "hwtool.recovering",
    "parse": "hwtool_contracts.errors",
    "scaled": "hwtool.calls",
    "text": "hwtool.calls",
}

__all__ = [
    "CallFailed", "Client", "ConnectionLost", "Device", "Event", "NeverSent", "NoDaemon", "NoReply", "Result",
    "RunFailed", "Value", "explain", "new_key", "parse", "scaled", "text",
]  # fmt: skip


def __getattr__(name: str) -> Any:
    """A public name, from where it lives."""
    if name not in HOMES:
        raise AttributeError(f"module 'hwtool' has no attribute {name!r}")
    from importlib import import_module

    return getattr(import_module(HOMES[name]), name)


def __dir__() -> list[str]:
    return sorted([*globals(), *HOMES])
