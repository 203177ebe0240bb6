"""The runs that are open around a call, for each client its own; tasks that are begun inside see them. Light."""

from __future__ import annotations

from collections.abc import Generator, Mapping
from contextlib import contextmanager
from contextvars import ContextVar
from types import MappingProxyType
from typing import Final

_NONE: Final[Mapping[object, int]] = MappingProxyType({})
_OPEN: ContextVar[Mapping[object, int]] = ContextVar("hwtool_runs", default=_NONE)


class OpenRuns:
    """The open runs of one client."""

    def __init__(self) -> None:
        self._mine = object()

    @property
    def inner(self) -> int | None:
        """The innermost that is open here."""
        return _OPEN.get().get(self._mine)

    @contextmanager
    def open(self, run: int) -> Generator[None, None, None]:
        """Calls inside belong to it."""
        before = self.inner
        _OPEN.set({**_OPEN.get(), self._mine: run})
        try:
            yield
        finally:  # not by a token: another task may leave it than has entered it, and other clients' runs stay
            rest = {mine: number for mine, number in _OPEN.get().items() if mine is not self._mine}
            _OPEN.set(rest if before is None else {**rest, self._mine: before})
