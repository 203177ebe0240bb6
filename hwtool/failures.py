"""What a call that was answered can end in: one exception for each error code.

The family is closed: `FAILURES` has one class for each code of the catalogue, checked by a test. A failed result whose
error is malformed has no exception of a code: it is `Malformed`, never an error-shaped lie.

    CallFailed    the daemon answered with an error; `result` is the whole answer
      Malformed   ... that cannot be read
    RunFailed     a run ended as failed, though nothing in the caller's own code did

What is raised where there is no answer at all is in hwtool.losses.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from hwtool.replies import EMPTY, Result
from hwtool_contracts.errors import Code, explain, parse


class RunFailed(Exception):
    """A run ended as failed: something in it was left unhandled, or is unknown.

    Attributes:
        run: what the daemon says of it.
    """

    def __init__(self, run: Mapping[str, Any], summary: str) -> None:
        self.run = run
        super().__init__(summary)


class CallFailed(Exception):
    """A result with status `failed`.

    Attributes:
        code: of the catalogue.
        result: the whole result.
        effects: what was observed of the device: applied, none or unknown.
        error: the error as it came: class, message, hint, retry, next, and the code's own members.
    """

    code: Code

    def __init__(self, result: Result) -> None:
        self.result = result
        self.effects = result.effects
        self.error: Mapping[str, Any] = result.error or EMPTY
        super().__init__(self._told())

    def _told(self) -> str:
        return explain(self.error, self.effects)

    @property
    def retry(self) -> str:
        """How the caller may come back: never, after_fix, same_key, new_key, check_first …"""
        return str(self.error["retry"])

    @property
    def hint(self) -> str:
        """The cure."""
        return str(self.error["hint"])

    @property
    def retry_after_ms(self) -> int | None:
        """How long the daemon says to wait before the next attempt."""
        after_ms = self.error.get("retry_after_ms") if isinstance(self.error, Mapping) else None
        return after_ms if isinstance(after_ms, int) and not isinstance(after_ms, bool) and after_ms >= 0 else None


class Malformed(CallFailed):
    """The daemon says that the call failed, and its error cannot be read: take the outcome as unknown."""

    def _told(self) -> str:
        return f"{self.result.summary or 'a call failed'}: the error of the answer is malformed; look with op_get"

    @property
    def retry(self) -> str:
        """Look first."""
        return "check_first"

    @property
    def hint(self) -> str:
        """Look first."""
        return "ask op_get with the key; the daemon and this client may be of different versions"


class InvalidArgs(CallFailed):
    """See the catalogue: invalid_args."""

    code = Code.INVALID_ARGS


class NotFound(CallFailed):
    """See the catalogue: not_found."""

    code = Code.NOT_FOUND


class Denied(CallFailed):
    """See the catalogue: denied."""

    code = Code.DENIED


class Refused(CallFailed):
    """See the catalogue: refused."""

    code = Code.REFUSED


class Stale(CallFailed):
    """See the catalogue: stale."""

    code = Code.STALE


class PreconditionFailed(CallFailed):
    """See the catalogue: precondition_failed."""

    code = Code.PRECONDITION_FAILED


class Expired(CallFailed):
    """See the catalogue: expired."""

    code = Code.EXPIRED


class KeyConflict(CallFailed):
    """See the catalogue: key_conflict."""

    code = Code.KEY_CONFLICT


class KeyExpired(CallFailed):
    """See the catalogue: key_expired."""

    code = Code.KEY_EXPIRED


class RateLimited(CallFailed):
    """See the catalogue: rate_limited."""

    code = Code.RATE_LIMITED


class Busy(CallFailed):
    """See the catalogue: busy."""

    code = Code.BUSY


class Unavailable(CallFailed):
    """See the catalogue: unavailable."""

    code = Code.UNAVAILABLE


class BusFault(CallFailed):
    """See the catalogue: bus_fault."""

    code = Code.BUS_FAULT


class Timeout(CallFailed):
    """See the catalogue: timeout."""

    code = Code.TIMEOUT


class OutcomeUnknown(CallFailed):
    """See the catalogue: outcome_unknown."""

    code = Code.OUTCOME_UNKNOWN


class ValueLost(CallFailed):
    """See the catalogue: value_lost."""

    code = Code.VALUE_LOST


class NotApplied(CallFailed):
    """See the catalogue: not_applied."""

    code = Code.NOT_APPLIED


class Held(CallFailed):
    """See the catalogue: held."""

    code = Code.HELD


class RunHalted(CallFailed):
    """See the catalogue: run_halted."""

    code = Code.RUN_HALTED


class ApprovalDenied(CallFailed):
    """See the catalogue: approval_denied."""

    code = Code.APPROVAL_DENIED


class ApprovalExpired(CallFailed):
    """See the catalogue: approval_expired."""

    code = Code.APPROVAL_EXPIRED


class StoreFailed(CallFailed):
    """See the catalogue: store_failed."""

    code = Code.STORE_FAILED


class Internal(CallFailed):
    """See the catalogue: internal."""

    code = Code.INTERNAL


ALL_FAILURES: tuple[type[CallFailed], ...] = (
    InvalidArgs, NotFound, Denied, Refused, Stale, PreconditionFailed, Expired, KeyConflict, KeyExpired, RateLimited,
    Busy, Unavailable, BusFault, Timeout, OutcomeUnknown, ValueLost, NotApplied, Held, RunHalted, ApprovalDenied,
    ApprovalExpired, StoreFailed, Internal,
)  # fmt: skip
FAILURES: dict[Code, type[CallFailed]] = {kind.code: kind for kind in ALL_FAILURES}


def failure(result: Result) -> CallFailed:
    """The exception of a failed result."""
    error = parse(result.error)
    return Malformed(result) if error is None else FAILURES[Code(error["code"])](result)
