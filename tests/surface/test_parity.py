"""Catalogue, messages, schemas, command line and manual say the same of every method and every error."""

from __future__ import annotations

import json
import subprocess
import sys
from importlib import import_module
from pathlib import Path

import msgspec
import pytest

from hwtool import catalogue
from hwtool.cli.command import VERBS
from hwtool_contracts.errors import CATALOGUE, Code
from hwtool_contracts.messages import METHODS, Result
from tests.permissions import EVERY
from tests.running import RunningDaemon, command_line
from tests.surface_tables import LOCAL, MEMBERS, VERBS_OF, members, methods

TOP = Path(__file__).parent.parent.parent


def test_methods_when_compared_then_manual_permissions_and_verbs_know_each_and_no_other() -> None:
    assert VERBS_OF.keys() == METHODS.keys()
    assert set(EVERY) == METHODS.keys()
    assert {verb for verbs in VERBS_OF.values() for verb in verbs} | LOCAL == VERBS.keys()
    manual = (TOP / "docs" / "methods.md").read_text(encoding="utf-8")
    assert [line for line in manual.splitlines() if line.startswith("| `")] == [*methods(), *members()]


@pytest.mark.parametrize("method", [m for m, verbs in VERBS_OF.items() if verbs != ("rpc",)])
def test_verb_when_it_is_said_to_ask_a_method_then_its_module_does(method: str) -> None:
    for verb in VERBS_OF[method]:
        source = Path(import_module(VERBS[verb][0]).__file__ or "").read_text(encoding="utf-8")
        assert f'"{method}"' in source, (verb, method)


def test_openrpc_when_asked_for_over_the_socket_then_methods_and_errors_are_those_of_the_tables() -> None:
    with RunningDaemon() as daemon:
        done = command_line(daemon, "rpc", "rpc.discover")
        told = json.loads(done.stdout)
        described = json.loads(command_line(daemon, "describe", "--json").stdout)["describe"]
    document = told.get("openrpc", told)
    assert [m["name"] for m in document["methods"]] == list(METHODS)
    for method in document["methods"]:
        wanted = {f.encode_name for f in msgspec.structs.fields(METHODS[method["name"]].params)}
        assert {p["name"] for p in method["params"]} == wanted, method["name"]
    assert described["version"] == catalogue.version()
    allowed = {name for name, m in METHODS.items() if not m.operator}
    assert set(described["methods"]) == allowed


def test_errors_when_compared_then_every_code_has_a_line_in_the_manual_and_a_reading_for_models() -> None:
    manual = (TOP / "docs" / "errors.md").read_text(encoding="utf-8")
    for code in Code:
        assert CATALOGUE[code].fields is not None
        assert manual.count(f"| `{code.value}` |") == 1, code


def test_results_members_when_listed_in_the_manual_then_each_is_explained() -> None:
    assert list(MEMBERS) == [f.encode_name for f in msgspec.structs.fields(Result)]


@pytest.mark.parametrize("verb", VERBS)
def test_verb_when_the_manual_is_searched_then_it_is_there(verb: str) -> None:
    pages = [TOP / "README.md", *(TOP / "docs").rglob("*.md")]
    assert any(f"hwtool {verb}" in page.read_text(encoding="utf-8") for page in pages), verb


def test_client_when_it_is_imported_then_no_store_no_bus_no_sdk_and_no_engine_come_with_it() -> None:
    own = (
        "hwtool_sim",
        "hwtool_store",
        "hwtool_registers",
        "hwtool_contracts.messages",
        "hwtool.engine",
        "hwtool.server",
    )
    theirs = ("sqlite", "serial", "smbus2", "pyftdi", "usb", "msgspec", "uvloop", "prometheus_client", "click", "mcp")
    heavy = (*own, *theirs, "pydantic", "asyncio", "dataclasses", "pathlib")
    code = (
        f"import sys, hwtool; hwtool.Client, hwtool.new_key; print([m for m in sys.modules if m.startswith({heavy})])"
    )
    assert subprocess.check_output([sys.executable, "-c", code], text=True).strip() == "[]"
