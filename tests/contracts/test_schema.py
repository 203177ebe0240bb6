"""The schemas: valid by the public meta-schema, portable, in step with the printed document, true of each error."""

from __future__ import annotations

import json
import re
from importlib import metadata
from pathlib import Path
from typing import Any

import jsonschema
import msgspec
import pytest

from hwtool_contracts.errors import CATALOGUE, Code, DomainError
from hwtool_contracts.messages import METHODS, Result
from hwtool_contracts.schema import DIALECT, openrpc, schemas
from tests.contracts.test_messages import GOOD

PRINTED = Path(__file__).parents[2] / "docs" / "openrpc.json"
COMPONENTS = schemas("#/$defs/")


def validator(name: str) -> jsonschema.Draft202012Validator:
    """What checks an object against one of the schemas."""
    return jsonschema.Draft202012Validator({"$schema": DIALECT, "$ref": f"#/$defs/{name}", "$defs": COMPONENTS})


@pytest.mark.parametrize("name", COMPONENTS)
def test_schema_when_checked_by_the_public_meta_schema_then_valid(name: str) -> None:
    jsonschema.Draft202012Validator.check_schema(COMPONENTS[name])
    assert jsonschema.Draft202012Validator.META_SCHEMA["$id"].startswith(DIALECT)


def test_document_when_compared_with_what_is_printed_then_no_drift() -> None:
    wanted = json.dumps(openrpc(metadata.version("hwtool")), indent=1) + "\n"
    assert PRINTED.read_text(encoding="utf-8") == wanted, "python -m tests.print_tables openrpc > docs/openrpc.json"


def test_openrpc_when_made_then_it_names_every_method_and_its_schemas_resolve() -> None:
    document = json.loads(json.dumps(openrpc("1.0")))
    assert [m["name"] for m in document["methods"]] == list(METHODS)
    components = document["components"]["schemas"]
    for ref in re.findall(r'"\$ref": "#/components/schemas/(\w+)"', json.dumps(document)):
        assert ref in components
    (write,) = [m for m in document["methods"] if m["name"] == "reg.write"]
    needed = {p["name"] for p in write["params"] if p["required"]}
    assert (write["paramStructure"], needed) == ("by-name", {"key"})
    assert set(components["Result"]["required"]) == {"status", "ok", "effects"}


@pytest.mark.parametrize("method", METHODS)
def test_parameters_when_good_then_valid_and_with_an_unknown_member_not(method: str) -> None:
    name = METHODS[method].params.__name__
    validator(name).validate(GOOD[method])
    assert not validator(name).is_valid({**GOOD[method], "surely": "unknown"})


def test_patterns_when_read_by_other_languages_then_no_word_of_pythons() -> None:
    patterns = re.findall(r'"pattern": "([^"]*)"', json.dumps(COMPONENTS))
    assert len(patterns) >= 4
    assert [p for p in patterns if "\\Z" in p or "\\A" in p or "(?P" in p] == []
    key = validator("WriteParams")
    good = {"register": "d.R", "value": 1, "key": "write-0001"}
    assert key.is_valid(good)
    assert not key.is_valid({**good, "key": "short"})


@pytest.mark.parametrize("after_intent", [False, True])
@pytest.mark.parametrize("code", Code)
def test_error_when_of_each_code_then_exactly_one_member_of_the_union_and_none_without_a_field(
    code: Code, after_intent: bool
) -> None:
    error = DomainError(code, "why", after_intent=after_intent).as_object()
    result = msgspec.to_builtins(Result(status="failed", ok=False, effects="none", error=error))
    validator("Result").validate(result)
    (member,) = [m for m in COMPONENTS["Error"]["oneOf"] if m["title"] == code.value]
    assert member["description"] == CATALOGUE[code].cause
    for name in member["required"]:
        maimed = {n: v for n, v in error.items() if n != name}
        assert not validator("Error").is_valid(maimed), name
    assert not validator("Error").is_valid({**error, "code": "on_fire"})
    assert not validator("Error").is_valid({**error, "retry": "as_you_like"})


def test_result_when_a_member_is_missing_or_wrong_then_not_valid() -> None:
    whole = msgspec.to_builtins(Result(status="done", ok=True, effects="none"))
    result = validator("Result")
    result.validate(whole)
    wrong: list[dict[str, Any]] = [{**whole, "effects": "some"}, {**whole, "status": "ok"}, {**whole, "values": [{}]}]
    wrong += [{n: v for n, v in whole.items() if n != name} for name in ("status", "ok", "effects")]
    assert [result.is_valid(w) for w in wrong] == [False] * len(wrong)
    assert result.is_valid({**whole, "from_tomorrow": 1})
