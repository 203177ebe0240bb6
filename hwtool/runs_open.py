"""The runs that are open around a call, for each client its own; tasks that are begun inside see them. Light."""

from __future__ import annotations

from collections.abc import Generator, Mapping
from contextlib import contextmanager
from contextvars import ContextVar
from types import MappingProxyType

Runs = Mapping[object, tuple[int, ...]]
_OPEN: ContextVar[Runs] = ContextVar("hwtool_runs", default=MappingProxyType({}))  # read-only


class OpenRuns:
    """The open runs of one client."""

    def __init__(self) -> None:
        self._mine = object()

    @property
    def inner(self) -> int | None:
        """The one that was entered last and is still open here."""
        mine = _OPEN.get().get(self._mine)
        return mine[-1] if mine else None

    @contextmanager
    def open(self, run: int) -> Generator[None, None, None]:
        """Calls inside belong to it."""
        self._have((*_OPEN.get().get(self._mine, ()), run))
        try:
            yield
        finally:  # by its number: runs need not be left in order, nor by the task that has entered them
            self._have(tuple(n for n in _OPEN.get().get(self._mine, ()) if n != run))

    def _have(self, runs: tuple[int, ...]) -> None:
        others = {client: open_ for client, open_ in _OPEN.get().items() if client is not self._mine}
        _OPEN.set({**others, self._mine: runs} if runs else others)
