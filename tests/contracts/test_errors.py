"""The error union is closed, and everything that speaks of it agrees with the catalogue."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

from hwtool_contracts.errors import (
    CATALOGUE,
    COMMON_FIELDS,
    Action,
    Code,
    DomainError,
    ErrorClass,
    Retry,
    exit_code,
    explain,
    next_action,
    parse,
)
from tests import print_tables

MANUAL = Path(__file__).parents[2] / "docs" / "errors.md"


def example(code: Code, **fields: Any) -> dict[str, object]:
    return DomainError(code, "what happened", **fields).as_object()


@pytest.mark.parametrize("code", list(Code))
def test_catalogue_when_looked_up_then_every_code_has_a_whole_entry(code: Code) -> None:
    entry = CATALOGUE[code]
    assert entry.cause.endswith(".")
    assert entry.hint.endswith(".")
    assert not set(entry.fields) & set(COMMON_FIELDS)
    assert 1 <= entry.exit_code <= 9


@pytest.mark.parametrize("code", list(Code))
def test_error_when_made_and_parsed_then_it_comes_back_whole(code: Code) -> None:
    error = example(code)
    assert parse(error) == error
    assert set(error) == set(COMMON_FIELDS) | set(CATALOGUE[code].fields)


@pytest.mark.parametrize("code", list(Code))
@pytest.mark.parametrize("effects", ["none", "applied", "unknown"])
def test_explain_when_given_any_error_then_one_sentence_says_what_was_not_done(code: Code, effects: str) -> None:
    sentence = explain(example(code), effects)
    assert sentence.startswith("what happened. ")
    assert {"none": "Nothing was changed", "applied": "was changed", "unknown": "not known"}[effects] in sentence


def test_explain_when_unknown_is_settled_then_it_says_so() -> None:
    assert "closed without knowing" in explain(example(Code.OUTCOME_UNKNOWN, settled=True), "unknown")
    assert "do not repeat" in explain(example(Code.OUTCOME_UNKNOWN), "unknown")


@pytest.mark.parametrize(
    ("spoil", "value"),
    [("code", "nonsense"), ("code", 3), ("class", "retryable"), ("message", 1), ("hint", None), ("retry", "maybe"),
     ("next", None), ("next", {"action": "dance"})],
)  # fmt: skip
def test_parse_when_a_member_is_malformed_then_absent(spoil: str, value: object) -> None:
    assert parse(example(Code.HELD) | {spoil: value}) is None


def test_parse_when_it_is_no_object_or_a_field_is_missing_then_absent() -> None:
    assert parse(None) is None
    assert parse("refused") is None
    error = example(Code.HELD)
    del error["by_op"]
    assert parse(error) is None


def test_error_when_it_carries_a_field_of_another_code_then_it_cannot_be_made() -> None:
    with pytest.raises(TypeError, match="has no field"):
        DomainError(Code.HELD, "x", path="p")


@pytest.mark.parametrize(
    ("code", "after_intent", "fields", "retry"),
    [
        (Code.BUS_FAULT, False, {}, Retry.SAME_KEY),
        (Code.BUS_FAULT, True, {}, Retry.NEW_KEY),
        (Code.EXPIRED, False, {}, Retry.AFTER_FIX),
        (Code.EXPIRED, True, {}, Retry.NEW_KEY),
        (Code.OUTCOME_UNKNOWN, True, {"settled": False}, Retry.NEW_KEY),
        (Code.OUTCOME_UNKNOWN, False, {"settled": False}, Retry.CHECK_FIRST),
        (Code.OUTCOME_UNKNOWN, False, {"settled": True}, Retry.NEW_KEY),
        (Code.NOT_APPLIED, True, {}, Retry.NEW_KEY),
    ],
)
def test_retry_when_the_intent_was_recorded_then_it_may_differ(
    code: Code, after_intent: bool, fields: dict[str, Any], retry: Retry
) -> None:
    assert DomainError(code, "x", after_intent=after_intent, **fields).as_object()["retry"] == retry


@pytest.mark.parametrize(
    ("code", "fields", "wanted"),
    [
        (Code.OUTCOME_UNKNOWN, {"op": 7}, {"action": "call", "method": "op.get", "params": {"id": 7}}),
        (Code.STALE, {}, {"action": "call", "method": "device.list", "params": {}}),
        (Code.INVALID_ARGS, {"path": "$.key"}, {"action": "change_argument", "argument": "$.key"}),
        (Code.REFUSED, {}, {"action": "change_argument", "argument": "request"}),
        (Code.KEY_CONFLICT, {}, {"action": "change_argument", "argument": "key"}),
        (Code.BUSY, {"retry_after_ms": 40}, {"action": "wait", "wait_ms": 40}),
        (Code.HELD, {}, {"action": "ask_operator"}),
        (Code.VALUE_LOST, {}, {"action": "stop"}),
    ],
)
def test_next_when_an_error_is_made_then_the_action_is_typed(
    code: Code, fields: dict[str, object], wanted: dict[str, object]
) -> None:
    assert next_action(code, fields) == wanted


@pytest.mark.parametrize(
    ("result", "wanted"),
    [
        ({"status": "done"}, 0),
        ({"status": "pending_approval"}, 8),
        ({"status": "in_progress"}, 3),
        ({"status": "failed", "effects": "none", "error": None}, 1),
        ({"status": "failed", "effects": "unknown", "error": {"code": "what"}}, 3),
        ({"status": "failed", "effects": "none", "error": example(Code.INTERNAL)}, 1),
        ({"status": "failed", "effects": "unknown", "error": example(Code.INTERNAL)}, 3),
        ({"status": "failed", "effects": "none", "error": example(Code.STORE_FAILED)}, 6),
        ({"status": "failed", "effects": "applied", "error": example(Code.STORE_FAILED)}, 3),
        ({"status": "failed", "effects": "unknown", "error": example(Code.NOT_APPLIED)}, 9),
        ({"status": "failed", "effects": "none", "error": example(Code.HELD)}, 4),
    ],
)
def test_exit_code_when_a_result_is_given_then_as_the_manual_says(result: dict[str, object], wanted: int) -> None:
    assert exit_code(result) == wanted


def test_manual_when_compared_with_the_catalogue_then_every_line_agrees() -> None:
    assert [line for line in MANUAL.read_text().splitlines() if line.startswith("| `")] == list(print_tables.errors())


def test_vocabularies_when_read_then_they_are_those_of_the_design() -> None:
    assert {c.value for c in ErrorClass} == {"retryable", "not_retryable", "needs_person"}
    assert {a.value for a in Action} == {"call", "change_argument", "wait", "ask_operator", "stop"}
