"""The journal's text and its privacy: what may stand in a record, and who sees how much of it."""

from __future__ import annotations

import re
import unicodedata
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from hwtool.journal import MAX_TEXT, PRIVATE, clean_text, entry
from hwtool_store.audit import AuditRow


@pytest.mark.parametrize(
    ("given_text", "shown"),
    [
        ("", ""),
        ("set the LED", "set the LED"),
        ("1.2 V at 25 °C → on", "1.2 V at 25 °C → on"),
        ("two\nlines", "two\\u000alines"),
        ("\ttab\r", "\\u0009tab\\u000d"),
        ("\x1b[31mred", "\\u001b[31mred"),
        ("nul\x00", "nul\\u0000"),
        ("\x7f\x9b", "\\u007f\\u009b"),
        ("abc\u202edef", "abc\\u202edef"),
        ("\u2066iso\u2069", "\\u2066iso\\u2069"),
        ("\u200e\u200f\u061c", "\\u200e\\u200f\\u061c"),
        ("\ufeffbom", "\\ufeffbom"),
        ("\ud800", "\\ud800"),
        ("a\\b", "a\\\\b"),
        ("\\u000a", "\\\\u000a"),
        ("\u2028\u2029", "\\u2028\\u2029"),
        ("\U000e0001", "\\U000e0001"),
        ("\U0010fffd1", "\\U0010fffd1"),
        ("\U0001f600", "\U0001f600"),
        ("\ue000", "\\ue000"),
    ],
)
def test_text_when_it_has_control_or_bidi_characters_then_they_are_escaped(given_text: str, shown: str) -> None:
    assert clean_text(given_text) == shown


@pytest.mark.parametrize(("length", "shortened"), [(499, False), (500, False), (501, True), (100_000, True)])
def test_text_when_long_then_shortened_to_the_limit_and_marked(length: int, shortened: bool) -> None:
    shown = clean_text("x" * length)
    assert len(shown) == min(length, MAX_TEXT)
    assert shown.endswith("…") is shortened


ESCAPE = re.compile(r"\\\\|\\u[0-9a-f]{4}|\\U[0-9a-f]{8}")


def meant(shown: str) -> str:
    """The text that its escapes stand for."""
    assert "\\" not in ESCAPE.sub("", shown)
    return ESCAPE.sub(lambda m: "\\" if m[0] == "\\\\" else chr(int(m[0][2:], 16)), shown)


@pytest.mark.parametrize("character", ["\n", "\\", "\u2028", "\U000e0001"])
@pytest.mark.parametrize("lead", range(11))
def test_text_when_it_is_long_with_its_escapes_then_cut_to_the_limit_between_them(character: str, lead: int) -> None:
    text = "x" * lead + character * MAX_TEXT
    shown = clean_text(text)
    assert MAX_TEXT - 10 < len(shown) <= MAX_TEXT
    assert shown.endswith("…")
    assert text.startswith(meant(shown[:-1]))


@pytest.mark.parametrize(("character", "times"), [("\n", 83), ("\\", 250), ("\U000e0001", 50)])
def test_text_when_its_escapes_just_fit_then_whole_and_one_more_does_not(character: str, times: int) -> None:
    assert meant(clean_text(character * times)) == character * times
    rest = MAX_TEXT - len(clean_text(character * times))
    assert len(clean_text(character * times + "x" * rest)) == MAX_TEXT
    assert not clean_text(character * times + "x" * rest).endswith("…")
    assert clean_text(character * times + "x" * (rest + 1)).endswith("…")


@settings(deadline=None)
@given(st.text(max_size=600))
def test_text_when_cleaned_then_within_the_limit_and_its_escapes_tell_what_it_was(text: str) -> None:
    shown = clean_text(text)
    assert len(shown) <= MAX_TEXT
    assert meant(shown) == text or (shown.endswith("…") and text.startswith(meant(shown[:-1])))


@settings(deadline=None)
@given(st.text("\\u0aU\n\u2028\U000e0001", max_size=12), st.text("\\u0aU\n\u2028\U000e0001", max_size=12))
def test_text_when_different_then_it_is_shown_differently(one: str, other: str) -> None:
    assert (clean_text(one) == clean_text(other)) is (one == other)


@settings(deadline=None)
@given(st.text(max_size=600))
def test_text_when_cleaned_then_nothing_in_it_controls_a_terminal(text: str) -> None:
    assert not [c for c in clean_text(text) if unicodedata.category(c) in ("Zl", "Zp", "Cc", "Cf", "Cs", "Co", "Cn")]


@settings(deadline=None)
@given(st.text(st.characters(min_codepoint=0x20, max_codepoint=0x7E, exclude_characters="\\"), max_size=MAX_TEXT))
def test_text_when_plain_and_short_then_it_stays_as_it_is(text: str) -> None:
    assert clean_text(text) == text


BODY: dict[str, Any] = {
    "at_ns": 1_796_008_327_123_456_789,
    "what": "outcome",
    "principal": "uid:1000",
    "device": "gpio",
    "register": "gpio.OLATA",
    "kind": "write",
    "key": "write-0001",
    "verdict": "applied",
    "effects": "applied",
    "arguments": {"OLATA": "0x55"},
    "values": ["0x55"],
    "reason": "lights on",
    "summary": "gpio: OLATA 0x00 -> 0x55",
    "why": "the change was seen",
    "before": "0x00",
    "after": "0x55",
    "evidence": {"how": "read_back"},
}


def shown_to(principal: str, *, operator: bool = False, body: dict[str, Any] = BODY) -> dict[str, Any]:
    return entry(AuditRow(17, 4, 2, body), principal, operator=operator)


def test_entry_when_shown_to_its_own_caller_then_whole_and_dated() -> None:
    shown = shown_to("uid:1000")
    assert (shown["seq"], shown["op"]) == (17, 4)
    assert shown["at"] == "2026-11-30T03:12:07.123456789Z"
    assert "at_ns" not in shown
    assert {name: shown[name] for name in BODY if name != "at_ns"} == {k: v for k, v in BODY.items() if k != "at_ns"}


def test_entry_when_shown_to_another_caller_then_without_values_arguments_and_reasons() -> None:
    shown = shown_to("uid:1001")
    assert not set(PRIVATE) & set(shown)
    assert {"seq", "op", "at", "what", "principal", "device", "register", "kind", "verdict", "effects"} <= set(shown)
    assert "0x55" not in str(shown)
    assert "lights" not in str(shown)


def test_entry_when_shown_to_an_operator_then_whole() -> None:
    assert shown_to("uid:0", operator=True) == shown_to("uid:1000")


def test_entry_when_it_is_the_daemons_own_then_everybody_sees_it() -> None:
    body = {"at_ns": 0, "what": "unknown", "device": "gpio", "summary": "after a crash"}
    assert shown_to("uid:1001", body=body)["summary"] == "after a crash"


SETTLED: dict[str, Any] = {
    "at_ns": 0,
    "what": "settled",
    "of": "uid:1000",
    "device": "gpio",
    "verdict": "not_applied",
    "why": "the registers hold 0x55",
    "evidence": {"OLATA": "0x55"},
}


@pytest.mark.parametrize(
    ("principal", "operator", "whole"),
    [("uid:1000", False, True), ("uid:1001", False, False), ("uid:0", False, False), ("uid:0", True, True)],
)
def test_entry_when_it_settles_an_operation_then_private_to_its_owner_and_operators(
    principal: str, operator: bool, whole: bool
) -> None:
    shown = shown_to(principal, operator=operator, body=SETTLED)
    assert ("why" in shown, "evidence" in shown, "0x55" in str(shown)) == (whole, whole, whole)
    assert (shown["verdict"], shown["device"]) == ("not_applied", "gpio")


def test_entry_when_a_person_settles_anothers_operation_then_both_see_it_whole() -> None:
    body = SETTLED | {"principal": "uid:1002"}
    assert ["why" in shown_to(f"uid:{n}", body=body) for n in (1000, 1001, 1002)] == [True, False, True]


def test_entry_when_a_row_has_no_private_member_then_others_see_all_of_it() -> None:
    body = {"what": "refusals_counted", "principal": "uid:1000", "count": 99}
    shown = shown_to("uid:1001", body=body)
    assert shown == {"seq": 17, "op": 4, "at": "1970-01-01T00:00:00.000000000Z", **body}


def test_entry_when_made_then_the_row_is_left_as_it_was() -> None:
    body = dict(BODY)
    shown_to("uid:1001", body=body)
    assert body == BODY
