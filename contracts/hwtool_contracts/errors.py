"""The closed error union: one catalogue that code, messages, schema, client, exit codes and manual are checked against.

Every outcome that is not a success is one of these codes. An entry says what class of trouble it is, whether a retry
is safe and what to do next; `effects` stands beside the error in the result and is never left to be guessed.

`explain` gives one sentence for a reader that is a program or a model; `parse` validates an object that claims to be
an error and answers None for anything malformed, never an error-shaped lie.

Light on purpose (no third-party import): the client and the command line read it at start.
"""

from __future__ import annotations

from collections.abc import Mapping
from enum import StrEnum
from typing import Any, Final, NamedTuple, assert_never


class Code(StrEnum):
    """Every error code there is."""

    INVALID_ARGS = "invalid_args"
    NOT_FOUND = "not_found"
    DENIED = "denied"
    REFUSED = "refused"
    STALE = "stale"
    PRECONDITION_FAILED = "precondition_failed"
    EXPIRED = "expired"
    KEY_CONFLICT = "key_conflict"
    KEY_EXPIRED = "key_expired"
    RATE_LIMITED = "rate_limited"
    BUSY = "busy"
    UNAVAILABLE = "unavailable"
    BUS_FAULT = "bus_fault"
    TIMEOUT = "timeout"
    OUTCOME_UNKNOWN = "outcome_unknown"
    VALUE_LOST = "value_lost"
    NOT_APPLIED = "not_applied"
    HELD = "held"
    RUN_HALTED = "run_halted"
    APPROVAL_DENIED = "approval_denied"
    APPROVAL_EXPIRED = "approval_expired"
    STORE_FAILED = "store_failed"
    INTERNAL = "internal"


class ErrorClass(StrEnum):
    """Who can do something about it."""

    RETRYABLE = "retryable"
    NOT_RETRYABLE = "not_retryable"
    NEEDS_PERSON = "needs_person"


class Retry(StrEnum):
    """How a caller may come back."""

    NEVER = "never"
    AFTER_FIX = "after_fix"
    SAME_KEY = "same_key"
    NEW_KEY = "new_key"
    WAIT_SAME_KEY = "wait_same_key"
    CHECK_FIRST = "check_first"
    AFTER_SETTLEMENT = "after_settlement"
    AFTER_APPROVAL = "after_approval"


class Action(StrEnum):
    """The typed next action of an error."""

    CALL = "call"
    CHANGE_ARGUMENT = "change_argument"
    WAIT = "wait"
    ASK_OPERATOR = "ask_operator"
    STOP = "stop"


class Entry(NamedTuple):
    """One line of the catalogue.

    Attributes:
        fields: members an error of this code carries beside the common ones.
        error_class: who can do something about it.
        retry: how a caller may come back; `later_retry` after the intent was recorded, or once settled.
        action: what to do next.
        exit_code: of the command line; `exit_if_sent` where the device may have been reached.
        cause: what it means, for the manual.
        hint: the cure, said in the error itself where it names no better one.
    """

    fields: tuple[str, ...]
    error_class: ErrorClass
    retry: Retry
    action: Action
    exit_code: int
    cause: str
    hint: str
    later_retry: Retry | None = None
    exit_if_sent: int | None = None


_R, _N, _P = ErrorClass.RETRYABLE, ErrorClass.NOT_RETRYABLE, ErrorClass.NEEDS_PERSON

CATALOGUE: Final[dict[Code, Entry]] = {
    Code.INVALID_ARGS: Entry(
        ("path", "expected", "got"),
        _N,
        Retry.AFTER_FIX,
        Action.CHANGE_ARGUMENT,
        2,
        "A member of the request is missing, unknown or of the wrong form.",
        "Correct the member named by `path` and send the request again.",
    ),
    Code.NOT_FOUND: Entry(
        ("searched", "suggestions"),
        _N,
        Retry.AFTER_FIX,
        Action.CHANGE_ARGUMENT,
        5,
        "No device, register, field, operation or approval of this name.",
        "Use one of the suggestions, or search with reg.find.",
    ),
    Code.DENIED: Entry(
        ("reason", "required"),
        _P,
        Retry.NEVER,
        Action.ASK_OPERATOR,
        4,
        "The caller's role does not permit the method.",
        "Ask an operator; a caller cannot raise its own role.",
    ),
    Code.REFUSED: Entry(
        ("rule", "register", "field"),
        _N,
        Retry.AFTER_FIX,
        Action.CHANGE_ARGUMENT,
        5,
        "The register's contract forbids this access.",
        "Read the rule, then use the access that the contract allows.",
    ),
    Code.STALE: Entry(
        ("what", "expected", "found"),
        _N,
        Retry.AFTER_FIX,
        Action.CALL,
        5,
        "Contract, device generation or store changed since the caller looked.",
        "Look again with reg.contract or device.list and decide anew.",
    ),
    Code.PRECONDITION_FAILED: Entry(
        ("expected", "observed"),
        _N,
        Retry.AFTER_FIX,
        Action.CHANGE_ARGUMENT,
        5,
        "The device was not in the state that the request requires.",
        "Read the device's state and decide anew; the key was not used.",
    ),
    Code.EXPIRED: Entry(
        ("not_after", "now"),
        _N,
        Retry.AFTER_FIX,
        Action.CHANGE_ARGUMENT,
        1,
        "The request's not_after had passed; nothing was dispatched.",
        "Send it again with a later not_after, under a new key if the intent was recorded.",
        later_retry=Retry.NEW_KEY,
    ),
    Code.KEY_CONFLICT: Entry(
        ("key", "differs"),
        _N,
        Retry.NEVER,
        Action.CHANGE_ARGUMENT,
        5,
        "The key belongs to another request.",
        "Use a key of its own for each thing you want to happen.",
    ),
    Code.KEY_EXPIRED: Entry(
        ("key", "verdict"),
        _N,
        Retry.NEVER,
        Action.STOP,
        5,
        "The key was used, and its record has been pruned.",
        "It was settled with the verdict given; it is never executed again.",
    ),
    Code.RATE_LIMITED: Entry(
        ("retry_after_ms", "limit"),
        _R,
        Retry.SAME_KEY,
        Action.WAIT,
        7,
        "A limit on requests is reached.",
        "Wait retry_after_ms, then send the same request with the same key.",
    ),
    Code.BUSY: Entry(
        ("by", "holder", "retry_after_ms"),
        _R,
        Retry.SAME_KEY,
        Action.WAIT,
        7,
        "The device, its queue or a lease is taken.",
        "Wait retry_after_ms, then send the same request with the same key.",
    ),
    Code.UNAVAILABLE: Entry(
        ("reason", "retry_after_ms"),
        _R,
        Retry.SAME_KEY,
        Action.WAIT,
        7,
        "The bus is absent, quarantined or wedged, or the daemon is stopping.",
        "Wait retry_after_ms, then send the same request with the same key.",
    ),
    Code.BUS_FAULT: Entry(
        ("fault", "stage"),
        _R,
        Retry.SAME_KEY,
        Action.CALL,
        1,
        "The bus answered with a fault that proves the device did not act.",
        "Check the device and its wiring; nothing happened.",
        later_retry=Retry.NEW_KEY,
    ),
    Code.TIMEOUT: Entry(
        ("after_ms", "stage"),
        _R,
        Retry.SAME_KEY,
        Action.WAIT,
        1,
        "A clean read or a preparation got no answer in time; nothing with an effect was sent.",
        "Send the same request again.",
    ),
    Code.OUTCOME_UNKNOWN: Entry(
        ("op", "stage", "evidence", "settled"),
        _P,
        Retry.CHECK_FIRST,
        Action.CALL,
        3,
        "The request was sent and it cannot be told whether the device acted.",
        "Do not repeat it. Look with op.get; an operator settles it with evidence.",
        later_retry=Retry.NEW_KEY,
    ),
    Code.VALUE_LOST: Entry(
        ("op", "bound"),
        _N,
        Retry.NEW_KEY,
        Action.STOP,
        9,
        "A value that reading consumes may have been taken from the device and is gone.",
        "Decide what a lost value means here; a new read needs a new key.",
    ),
    Code.NOT_APPLIED: Entry(
        ("verdict", "expected", "observed", "done", "total"),
        _N,
        Retry.NEW_KEY,
        Action.CHANGE_ARGUMENT,
        9,
        "The device acknowledged, but is not in the state asked for, or only part of it.",
        "Compare expected and observed; a new attempt needs a new key.",
    ),
    Code.HELD: Entry(
        ("device", "by_op", "since"),
        _P,
        Retry.AFTER_SETTLEMENT,
        Action.ASK_OPERATOR,
        4,
        "The device is held: an operation on it is unknown, or a person stopped it.",
        "An operator settles the operation or releases the device; clean reads go on.",
    ),
    Code.RUN_HALTED: Entry(
        ("run", "by_op"),
        _N,
        Retry.AFTER_SETTLEMENT,
        Action.STOP,
        4,
        "An earlier step of the run failed or is unknown.",
        "Handle that step first; later effectful steps of the run are refused.",
    ),
    Code.APPROVAL_DENIED: Entry(
        ("approval", "reason"),
        _P,
        Retry.NEW_KEY,
        Action.STOP,
        4,
        "A person denied the request.",
        "Read the reason; a changed request needs a new key.",
    ),
    Code.APPROVAL_EXPIRED: Entry(
        ("approval", "reason"),
        _P,
        Retry.NEW_KEY,
        Action.ASK_OPERATOR,
        4,
        "Nobody answered in time, or the grant was not used in time.",
        "Ask again under a new key when an operator is there.",
    ),
    Code.STORE_FAILED: Entry(
        ("detail",),
        _P,
        Retry.CHECK_FIRST,
        Action.ASK_OPERATOR,
        6,
        "The store could not record what it must record; the daemon stops.",
        "An operator looks at the disk; after the restart ask op.get before anything else.",
        exit_if_sent=3,
    ),
    Code.INTERNAL: Entry(
        (),
        _P,
        Retry.CHECK_FIRST,
        Action.ASK_OPERATOR,
        1,
        "A defect of hwtool.",
        "Report it with the message; look with op.get before anything is repeated.",
        exit_if_sent=3,
    ),
}

COMMON_FIELDS: Final = ("code", "class", "message", "hint", "retry", "next")


class DomainError(Exception):
    """An outcome of the domain that is not a success, on its way to a result.

    Attributes:
        code: which.
        message: what, where and the rule, for a person.
        hint: the cure; the catalogue's where the raiser knows no better.
        fields: exactly the code's fields of the catalogue.
        after_intent: true if the intent had been recorded (the key is used).
    """

    def __init__(
        self, code: Code, message: str, *, hint: str | None = None, after_intent: bool = False, **fields: Any
    ) -> None:
        super().__init__(message)
        entry = CATALOGUE[code]
        unknown = set(fields) - set(entry.fields)
        if unknown:
            raise TypeError(f"{code} has no field {', '.join(sorted(unknown))}")
        self.code = code
        self.message = message
        self.hint = hint or entry.hint
        self.after_intent = after_intent
        self.fields = {name: fields.get(name) for name in entry.fields}

    def as_object(self) -> dict[str, Any]:
        """The error as it stands in a result."""
        entry = CATALOGUE[self.code]
        later = entry.later_retry is not None and (self.after_intent or bool(self.fields.get("settled")))
        retry = entry.later_retry if later and entry.later_retry is not None else entry.retry
        return {
            "code": self.code.value,
            "class": entry.error_class.value,
            "message": self.message,
            "hint": self.hint,
            "retry": retry.value,
            "next": next_action(self.code, self.fields),
            **self.fields,
        }


def next_action(code: Code, fields: Mapping[str, Any]) -> dict[str, Any]:
    """The typed next action of an error with these fields."""
    action = CATALOGUE[code].action
    step: dict[str, Any] = {"action": action.value}
    match action:
        case Action.CALL:
            if fields.get("op") is not None:
                step |= {"method": "op.get", "params": {"id": fields["op"]}}
            else:
                step |= {"method": "device.list", "params": {}}
        case Action.CHANGE_ARGUMENT:
            step["argument"] = {
                Code.KEY_CONFLICT: "key",
                Code.EXPIRED: "not_after",
                Code.NOT_FOUND: "register",
            }.get(code, fields.get("path") or "request")
        case Action.WAIT:
            step["wait_ms"] = fields.get("retry_after_ms") or 0
        case Action.ASK_OPERATOR | Action.STOP:
            pass
        case _:
            assert_never(action)
    return step


def explain(error: Mapping[str, Any], effects: str = "none") -> str:
    """One sentence for a model: what happened, what was not done, what to do next."""
    code = Code(error["code"])
    what = str(error["message"]).rstrip(".")
    done = {
        "none": "Nothing was changed on the device",
        "applied": "The device was changed",
        "unknown": "It is not known whether the device was changed",
    }[effects]
    match code:
        case Code.INVALID_ARGS | Code.NOT_FOUND | Code.REFUSED | Code.STALE | Code.PRECONDITION_FAILED:
            then = "correct the request and send it again"
        case Code.DENIED | Code.HELD:
            then = "ask an operator; do not try to work around it"
        case Code.EXPIRED:
            then = "decide whether it is still wanted, and if so send it with a later not_after"
        case Code.KEY_CONFLICT:
            then = "use a new key for a new request, or the old request with the old key"
        case Code.KEY_EXPIRED:
            then = "treat it as settled; it cannot be run again under this key"
        case Code.RATE_LIMITED | Code.BUSY | Code.UNAVAILABLE | Code.TIMEOUT:
            then = "wait, then send the same request with the same key"
        case Code.BUS_FAULT:
            then = "check the device; a new attempt is safe"
        case Code.OUTCOME_UNKNOWN:
            then = (
                "it was closed without knowing; a new attempt needs a new key"
                if error.get("settled")
                else "do not repeat it; look with op.get and leave the rest to an operator"
            )
        case Code.VALUE_LOST:
            then = f"treat {error.get('bound') or 'the'} value(s) as lost; a new read needs a new key"
        case Code.NOT_APPLIED:
            then = "compare expected with observed before a new attempt under a new key"
        case Code.RUN_HALTED:
            then = "handle the failed step of the run first"
        case Code.APPROVAL_DENIED | Code.APPROVAL_EXPIRED:
            then = "stop, or ask again with a changed request under a new key"
        case Code.STORE_FAILED | Code.INTERNAL:
            then = "tell an operator, and look with op.get before anything is repeated"
        case _:
            assert_never(code)
    return f"{what}. {done}; {then}."


def parse(candidate: object) -> dict[str, Any] | None:
    """The object if it is a well-formed error of the catalogue, else None."""
    if not isinstance(candidate, Mapping):
        return None
    code = candidate.get("code")
    if not isinstance(code, str) or code not in {c.value for c in Code}:
        return None
    entry = CATALOGUE[Code(code)]
    action = candidate.get("next")
    well_formed = (
        candidate.get("class") == entry.error_class.value
        and isinstance(candidate.get("message"), str)
        and isinstance(candidate.get("hint"), str)
        and candidate.get("retry") in {r.value for r in (entry.retry, entry.later_retry) if r is not None}
        and isinstance(action, Mapping)
        and action.get("action") in {a.value for a in Action}
        and all(name in candidate for name in entry.fields)
    )
    return dict(candidate) if well_formed else None


def exit_code(result: Mapping[str, Any]) -> int:
    """The command line's exit code for a result."""
    match result.get("status"):
        case "done":
            return 0
        case "pending_approval":
            return 8
        case "in_progress":
            return 3
        case _:
            error = parse(result.get("error"))
            if error is None:
                return 1 if result.get("effects") == "none" else 3
            entry = CATALOGUE[Code(error["code"])]
            if entry.exit_if_sent is not None and result.get("effects") != "none":
                return entry.exit_if_sent
            return entry.exit_code
