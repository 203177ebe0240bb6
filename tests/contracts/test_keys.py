"""The table of keys against the loader, both ways; the schema for editors and the manual against the table."""

from __future__ import annotations

import json
from collections import defaultdict
from collections.abc import Iterator
from decimal import Decimal
from pathlib import Path
from typing import Any

import pytest
from click.testing import CliRunner
from jsonschema import Draft202012Validator

from hwtool.cli.contract import contract
from hwtool_contracts.keys import TABLES
from hwtool_contracts.native import parse_contract
from hwtool_contracts.overlay import lay_over
from hwtool_contracts.toml_reader import Table, parse_toml
from tests.print_tables import keys

TOP = Path(__file__).parent.parent.parent
CHIPS = sorted((TOP / "contracts" / "hwtool_contracts" / "chips").glob("*.toml"))
OVERLAYS = sorted((TOP / "contracts" / "hwtool_contracts" / "overlays").glob("*.toml"))
NAMED = {
    "registers": "register",
    "fields": "field",
    "clusters": "cluster",
    "commands": "command",
    "memories": "memory",
    "sequences": "sequence",
    "banks": "bank",
    "groups": "group",
    "params": "param",
}
LISTED = {"steps": "step", "signals": "signal", "relock": "relock"}
LISTS = {"parts", "scales"}  # read with the same means, but they are values
ALIASES = {"set_at", "clear_at", "toggle_at"}
SAID = {"provenance": "reviewed", "seen": "page", "source": "DS"}
EXTRA = """
schema = 1
part = "extra"
vendor = "nobody"
title = "a chip with the tables that no bundled chip has"
source = "made for a test"
[access]
[access.i2c]
addresses = [0x20]
[access.line]
[registers.A]
offset = 0
access = "rw"
clear_at = { at = 4, shift = 0 }
read = { effects = ["none"] }
[registers.A.write]
effect = "store"
verify = { by = "read_back", mask = 1 }
limits = { min = 0, max = 3 }
signals = [{ register = "B", delta = 1 }]
busy_retry = { attempts = 2, interval_ms = 1 }
[registers.A.fields.F]
bits = 0
[registers.B]
offset = 1
access = "ro"
read = { effects = ["none"] }
[[assume]]
register = "A"
field = "F"
value = 0
for = "a test"
[clusters.C]
offset = 8
aliases = { set_at = 0x40 }
[clusters.C.registers.D]
offset = 0
access = "ro"
bank = "K"
[clusters.C.clusters.E]
offset = 1
[banks.K]
select = [{ register = "A", value = 1 }]
at_once = false
[groups.G]
members = ["A", "B"]
[identity]
register = "A"
equals = 1
[params.R]
default = 1
[commands.O]
code = 1
read_bytes = 2
unit = "V"
scale = 1
add = 0
read = { effects = ["none"] }
[[sequences.S.steps]]
do = "wait_until"
register = "A"
mask = 1
equals = 1
timeout_ms = 10
interval_ms = 1
[[sequences.S.steps]]
do = "update"
register = "A"
fields = { F = 1 }
[[sequences.S.steps]]
do = "read_effectful"
register = "B"
count = 1
[[sequences.S.steps]]
do = "write"
register = "A"
value = 1
[[sequences.S.relock]]
register = "A"
value = 0
[registers.UP]
offset = 9
access = "ro"
read = { effects = ["none"] }
[restart]
uptime = "UP"
unit_ms = 100
"""
OVERLAY = """
base = "extra.toml"
base_sha256 = "00"
[[review]]
match = ["B"]
except = ["A"]
silent_read = "none"
seen = "page"
source = "DS 1"
reviewed_by = "a test"
on = 2026-01-01
[registers.A]
description = "corrected"
unit = "V"
scale = 1
add = 0
[registers.A.fields.F]
description = "corrected"
"""


def kind_of(where: str, top: str) -> str:
    """The table of keys that a table at this place has."""
    kind, words = top, iter(where.split(".") if where else ())
    for word in words:
        plain = word.partition("[")[0]
        if plain in NAMED and kind != "verify":
            next(words, None)
            kind = "correction" if top == "overlay" and kind == "overlay" and plain == "registers" else NAMED[plain]
        else:
            kind = "alias" if plain in ALIASES else LISTED.get(plain, plain)
    return kind


@pytest.fixture
def taken(monkeypatch: pytest.MonkeyPatch) -> Iterator[dict[str, set[str]]]:
    """What the loader took of each kind of table, from every bundled chip and two files of this test."""
    seen: list[tuple[str, Table]] = []
    made = Table.__init__
    top = "file"

    def remember(self: Table, data: Any, where: str, *rest: Any) -> None:
        made(self, data, where, *rest)
        seen.append((kind_of(where, top), self))

    monkeypatch.setattr(Table, "__init__", remember)
    for chip in CHIPS:
        parse_contract(chip.read_text(encoding="utf-8"), chip.name)
    base = parse_contract(EXTRA, "extra.toml")
    top = "overlay"
    lay_over(base, "00", OVERLAY, "over.toml")
    found: dict[str, set[str]] = defaultdict(set)
    for kind, table in seen:
        if kind not in LISTS:
            found[kind] |= table.taken
    yield found


def test_loader_when_every_chip_is_read_then_it_takes_the_keys_of_the_table_and_no_other(
    taken: dict[str, set[str]],
) -> None:
    unlisted = {f"{kind}.{key}" for kind, found in taken.items() for key in found - TABLES.get(kind, {}).keys()}
    untaken = {f"{kind}.{key}" for kind, listed in TABLES.items() for key in listed.keys() - taken[kind]}
    assert sorted(unlisted) == []
    assert sorted(untaken) == []


def test_manual_when_it_lists_the_keys_then_as_the_table_has_them() -> None:
    manual = (TOP / "docs" / "contract-keys.md").read_text(encoding="utf-8")
    assert manual.partition("\n\n### ")[2] == "\n".join(keys()).removeprefix("### ") + "\n"


@pytest.fixture(scope="module")
def validator() -> Draft202012Validator:
    """The schema that `hwtool contract schema` prints."""
    done = CliRunner().invoke(contract, ["schema"])
    assert done.exit_code == 0
    printed = json.loads(done.stdout)
    Draft202012Validator.check_schema(printed)
    return Draft202012Validator(printed)


def plain(data: Any) -> Any:
    """TOML as JSON has it: dates are texts."""
    return json.loads(json.dumps(data, default=lambda v: float(v) if isinstance(v, Decimal) else str(v)))


@pytest.mark.parametrize("path", [*CHIPS, *OVERLAYS], ids=lambda p: p.stem)
def test_schema_when_a_bundled_file_is_held_against_it_then_it_fits(
    validator: Draft202012Validator, path: Path
) -> None:
    faults = [
        f"{list(e.absolute_path)}: {e.message}" for e in validator.iter_errors(plain(parse_toml(path.read_text(), "")))
    ]
    assert faults == []


@pytest.mark.parametrize(
    ("old", "new"),
    [
        ('access = "rw"', 'access = "readwrite"'),
        ('effects = ["none"]', 'effects = "none"'),
        ("bits = 0", 'bits = "a:b"'),
        ('part = "extra"', ""),
        ("window", "widow"),
        ("[groups.G]", "[group.G]"),
    ],
)
def test_schema_when_a_file_is_wrong_then_it_says_so(validator: Draft202012Validator, old: str, new: str) -> None:
    right = EXTRA + "\n[registers.W]\noffset = 2\naccess = 'wo'\nwrite = { effect = 'store', window_ms = 1 }\n"
    assert validator.is_valid(plain(parse_toml(right, "")))
    assert not validator.is_valid(plain(parse_toml(right.replace(old, new, 1), "")))
