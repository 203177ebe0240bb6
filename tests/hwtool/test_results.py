"""The one result shape: how values are shown, what a row keeps, and the error of each verdict."""

from __future__ import annotations

from typing import Any

import msgspec
import pytest

from hwtool.results import failed, from_row, in_progress, pending, settled_error, shown_value, to_row
from hwtool_contracts.errors import Code, DomainError, parse
from hwtool_contracts.judge import ReadJudgement, judge_read
from hwtool_contracts.library import bundled
from hwtool_contracts.messages import Result
from hwtool_contracts.model import Register
from tests.contracts.test_judge import reg, toy


def register(chip: str, name: str) -> Register:
    return bundled(chip).registers[name]


def fields_of(chip: str, name: str, raw: int) -> dict[str, Any]:
    fields: dict[str, Any] = shown_value("dev", register(chip, name), raw)["fields"]
    return fields


def test_value_when_its_fields_have_names_then_each_is_said() -> None:
    shown = shown_value("gpio", register("mcp23017", "IODIRA"), 0xFE)
    assert (shown["register"], shown["raw"]) == ("gpio.IODIRA", "0xfe")
    assert shown["fields"]["P0"] == {"raw": "0x0", "value": 0, "name": "output"}
    assert shown["fields"]["P7"] == {"raw": "0x1", "value": 1, "name": "input"}
    assert "value" not in shown


def test_value_when_no_enumerator_fits_then_no_name() -> None:
    assert "name" not in fields_of("sc16is750", "LCR", 0b010000)["PARITY"]
    assert fields_of("sc16is750", "LCR", 0b011000)["PARITY"]["name"] == "even"


@pytest.mark.parametrize(
    ("chip", "name", "raw", "value", "unit"),
    [
        ("sdm120", "VOLTAGE", 0x4366199A, 230.1, "V"),
        ("sdm120", "VOLTAGE", 0x43660000, 230, "V"),
        ("sdm120", "VOLTAGE", 0x7FC00000, None, "V"),
        ("sdm120", "VOLTAGE", 0xFF800000, None, "V"),
        ("sdm120", "METER_CODE", 0x0020, 32, None),
        ("ads1115", "CONVERSION", 0xFFFF, -1, None),
        ("ds3231", "AGING", 0x80, -128, None),
    ],
)
def test_value_when_the_register_is_a_quantity_then_number_and_unit(
    chip: str, name: str, raw: int, value: float | None, unit: str | None
) -> None:
    shown = shown_value("dev", register(chip, name), raw)
    assert shown["value"] == value
    assert shown.get("unit") == unit
    assert "fields" not in shown


def test_value_when_the_register_has_names_then_the_name_is_said() -> None:
    contract = toy(reg("R", 0, "values = { off = 0, on = 1 }"))
    assert shown_value("t", contract.registers["R"], 1)["name"] == "on"
    assert "name" not in shown_value("t", contract.registers["R"], 2)


def test_value_when_a_register_with_fields_is_scaled_itself_then_both_are_shown() -> None:
    contract = toy(reg("R", 0, "scale = 0.5\nunit = 'V'\nfields.F = { bits = 0 }"))
    shown = shown_value("t", contract.registers["R"], 3)
    assert (shown["value"], shown["unit"]) == (1.5, "V")
    assert shown["fields"] == {"F": {"raw": "0x1", "value": 1}}


def test_value_when_a_field_is_scaled_then_exactly() -> None:
    assert fields_of("tmp102", "TEMPERATURE", 0x1900)["T"] == {"raw": "0x190", "value": 25, "unit": "°C"}
    assert fields_of("tmp102", "TEMPERATURE", 0xFFF0)["T"]["value"] == -0.0625


def test_value_when_bcd_is_no_number_then_the_value_is_null_and_the_bits_are_there() -> None:
    assert fields_of("ds3231", "SECONDS", 0x59)["SECONDS"] == {"raw": "0x59", "value": 59, "unit": "s"}
    assert fields_of("ds3231", "SECONDS", 0x5A)["SECONDS"] == {"raw": "0x5a", "value": None, "unit": "s"}


def test_value_when_fields_are_reserved_or_cannot_be_read_then_they_are_hidden() -> None:
    assert "ZERO" not in fields_of("ds3231", "SECONDS", 0)
    assert "RESERVED" not in fields_of("tmp102", "CONFIGURATION", 0)
    contract = toy(reg("R", 0, "fields.A = { bits = 0 }\nfields.W = { bits = 1, access = 'wo' }"))
    assert list(shown_value("t", contract.registers["R"], 3)["fields"]) == ["A"]


def test_value_when_all_fields_are_hidden_then_only_the_raw_bits() -> None:
    contract = toy(reg("R", 0, "fields.A = { bits = '7:0', reserved = 'keep' }"))
    assert shown_value("t", contract.registers["R"], 0x0F) == {"register": "t.R", "raw": "0x0f"}


def test_value_when_its_read_was_judged_then_effects_and_provenance_stand_beside_it() -> None:
    uart = bundled("sc16is750")
    judged = judge_read(uart, (uart.registers["RHR"],))
    assert isinstance(judged, ReadJudgement)
    shown = shown_value("uart", uart.registers["RHR"], 0x68, judged)
    assert shown["read"] == {"effects": ["pop"], "provenance": "reviewed"}
    assert "read" not in shown_value("uart", uart.registers["RHR"], 0x68)


FACTS: dict[str, Any] = {
    "verdict": "applied",
    "summary": "gpio: OLATA 0x00 -> 0x55",
    "values": [{"register": "gpio.OLATA", "raw": "0x55"}],
    "at": "2026-11-30T03:12:07.123456789Z",
    "contract_digest": "sha256:00",
    "generation": 3,
    "verified": "QEMU",
    "simulated": True,
    "warnings": ["unverified: acknowledged"],
}


def test_result_when_put_into_a_row_then_it_comes_back() -> None:
    evidence = {"how": "read_back", "transfers": 3}
    done = Result(status="done", ok=True, effects="applied", id=7, key="write-0001", evidence=evidence, **FACTS)
    row = to_row(done)
    assert from_row(row, 7, "write-0001", evidence) == done
    assert msgspec.json.decode(msgspec.json.encode(row)) == row


def test_failure_when_put_into_a_row_then_its_error_comes_back_whole() -> None:
    error = DomainError(Code.NOT_APPLIED, "it is 0x01", after_intent=True, verdict="not_applied", done=1, total=1)
    result = failed(error, "applied", verdict="not_applied", id=7, key="write-0001")
    back = from_row(to_row(result), 7, "write-0001", None)
    assert back == result
    assert parse(back.error) is not None


def test_row_when_made_then_it_keeps_nothing_that_is_known_when_it_is_answered_again() -> None:
    result = Result(status="done", ok=True, effects="none", replayed=True, store={"id": "s", "seq": 4})
    row = to_row(result)
    assert not {"id", "key", "store", "replayed", "evidence", "durable"} & set(row)
    assert not from_row(row, 1, "k" * 8, None).replayed


def test_failed_when_made_then_no_effects_unless_said() -> None:
    result = failed(DomainError(Code.HELD, "gpio is held", device="gpio", by_op=3, since=1))
    assert (result.status, result.ok, result.effects, result.summary) == ("failed", False, "none", "gpio is held")
    assert result.error is not None
    assert result.error["by_op"] == 3
    assert failed(DomainError(Code.INTERNAL, "x"), "unknown").effects == "unknown"


def test_pending_when_made_then_it_says_whom_to_ask() -> None:
    result = pending(9, "write-0001", "waits")
    assert (result.status, result.ok, result.effects, result.error) == ("pending_approval", False, "none", None)
    assert (result.id, result.key, result.approval) == (9, "write-0001", 9)
    assert (result.retry, result.next) == ("after_approval", {"action": "ask_operator", "approval": 9})


@pytest.mark.parametrize("op_id", [None, 9])
def test_in_progress_when_made_then_it_says_how_to_wait(op_id: int | None) -> None:
    result = in_progress("write-0001", op_id)
    assert (result.status, result.ok, result.effects, result.error) == ("in_progress", False, "unknown", None)
    assert (result.id, result.retry) == (op_id, "wait_same_key")
    assert result.next == {"action": "call", "method": "op.wait", "params": {"key": "write-0001"}}


VERDICTS: list[tuple[str, Code | None, str | None]] = [
    ("applied", None, None),
    ("satisfied", None, None),
    ("not_applied", Code.NOT_APPLIED, "new_key"),
    ("partial", Code.NOT_APPLIED, "new_key"),
    ("lost", Code.VALUE_LOST, "new_key"),
    ("superseded", Code.OUTCOME_UNKNOWN, "new_key"),
    ("abandoned", Code.OUTCOME_UNKNOWN, "new_key"),
    ("perhaps", Code.INTERNAL, "check_first"),
]


@pytest.mark.parametrize(("verdict", "code", "retry"), VERDICTS)
def test_settled_error_when_a_verdict_is_given_then_the_code_and_retry_of_the_catalogue(
    verdict: str, code: Code | None, retry: str | None
) -> None:
    error = settled_error(verdict, 7, "why")
    if code is None:
        assert error is None
        return
    assert error is not None
    shown = error.as_object()
    assert (error.code, shown["retry"]) == (code, retry)
    assert parse(shown) is not None


def test_settled_error_when_partial_then_the_verdict_stands_in_it() -> None:
    error = settled_error("partial", 7, "two of four")
    assert error is not None
    assert error.fields["verdict"] == "partial"


@pytest.mark.parametrize(("bound", "shown"), [(None, "0..1"), ("0..4", "0..4"), ("1", "1")])
def test_settled_error_when_a_value_is_lost_then_its_bound_is_said(bound: str | None, shown: str) -> None:
    error = settled_error("lost", 7, "why", bound=bound)
    assert error is not None
    assert (error.fields["bound"], error.fields["op"]) == (shown, 7)


@pytest.mark.parametrize("verdict", ["superseded", "abandoned"])
def test_settled_error_when_closed_without_knowing_then_it_says_settled(verdict: str) -> None:
    error = settled_error(verdict, 7, "why")
    assert error is not None
    assert (error.fields["settled"], error.fields["stage"], error.fields["op"]) == (True, "settled", 7)
