"""The table of a board's keys against the loader, both ways; the schema and the manual against the table."""

from __future__ import annotations

import json
from collections import defaultdict
from pathlib import Path
from typing import Any

import pytest
from click.testing import CliRunner
from jsonschema import Draft202012Validator

from hwtool.board_keys import TABLES
from hwtool.cli.daemon import board_verb
from hwtool.config import parse_board
from hwtool_contracts.toml_reader import Table, parse_toml
from tests.print_tables import board

TOP = Path(__file__).parent.parent.parent
NAMED = {"buses": "bus", "devices": "device"}
VALUES = {"params", "scaled"}  # read with the same means, but they are values
FULL = """
name = "everything"
approval_mode = "separate-user"
[buses.i2c]
kind = "sim"
sole_master = true
replay = "run-1.jsonl"
[buses.line]
kind = "modbus-rtu"
path = "/dev/serial/by-id/it"
baud = 9600
parity = "none"
stop_bits = 1
gap_ms = 2
echo = true
may_repeat = false
accept_unacknowledged = false
record = "run.jsonl"
response_ms = 100
reply_lifetime_ms = 300
transfer_limit_ms = 1000
read_attempts = 2
[buses.usb]
kind = "ftdi-i2c"
url = "ftdi://ftdi:232h:FT4ABC/1"
latency_ms = 16
max_hz = 100000
clock_stretching = false
[buses.spi]
kind = "spi"
adapter = "fe204000.spi"
mode = 0
[devices.gpio]
contract = "mcp23017"
bus = "i2c"
address = 0x20
safe_state = [{ register = "OLATA", value = 0 }]
unverified = "allow"
on_loss = "hold"
[devices.rom]
contract = "at24c32"
bus = "i2c"
address = 0x50
overlays = []
owner = "shared"
restarts = "with_host"
[devices.rom.writes_per_day]
DATA = 20
[devices.mux]
contract = "pca9546"
bus = "i2c"
address = 0x70
[devices.far]
contract = "tmp102"
bus = "i2c"
address = 0x49
mux = "mux"
channel = 1
[[policy]]
who = "*"
device = "gpio"
register = "OLAT?"
write = "approval"
limits = { min = 0, max = 16 }
rate_per_min = 10
[metrics]
textfile = "it.prom"
interval_s = 30
"""


def kind_of(where: str) -> str:
    """The table of keys that a table at this place has."""
    kind, words = "board", iter(where.split(".") if where else ())
    for word in words:
        plain = word.partition("[")[0]
        kind = NAMED.get(plain, plain)
        if plain in NAMED:
            next(words, None)
    return kind


def test_loader_when_a_board_is_read_then_it_takes_the_keys_of_the_table_and_no_other(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    seen: list[Table] = []
    made = Table.__init__

    def remember(self: Table, data: Any, where: str, file: str, *rest: Any) -> None:
        made(self, data, where, file, *rest)
        if file == "board.toml":
            seen.append(self)

    monkeypatch.setattr(Table, "__init__", remember)
    parse_board(FULL, "board.toml", tmp_path)
    taken: dict[str, set[str]] = defaultdict(set)
    for table in seen:
        if (kind := kind_of(table.where)) not in VALUES:
            taken[kind] |= table.taken
    unlisted = {f"{kind}.{key}" for kind, found in taken.items() for key in found - TABLES.get(kind, {}).keys()}
    untaken = {f"{kind}.{key}" for kind, listed in TABLES.items() for key in listed.keys() - taken[kind]}
    assert (sorted(unlisted), sorted(untaken)) == ([], [])


def test_manual_when_it_lists_the_keys_of_a_board_then_as_the_table_has_them() -> None:
    manual = (TOP / "docs" / "board-keys.md").read_text(encoding="utf-8")
    assert manual.partition("\n\n### ")[2] == "\n".join(board()).removeprefix("### ") + "\n"


@pytest.fixture(scope="module")
def validator() -> Draft202012Validator:
    """The schema that `hwtool board schema` prints."""
    done = CliRunner().invoke(board_verb, ["schema"])
    assert done.exit_code == 0
    printed = json.loads(done.stdout)
    Draft202012Validator.check_schema(printed)
    return Draft202012Validator(printed)


def plain(text: str) -> Any:
    """TOML as JSON has it."""
    return json.loads(json.dumps(parse_toml(text, ""), default=float))


@pytest.mark.parametrize(
    ("old", "new"),
    [
        ('kind = "sim"', 'kind = "simulated"'),
        ('write = "approval"', 'write = "needs_approval"'),
        ("sole_master", "master"),
        ('name = "everything"', ""),
        ("[metrics]", "[metric]"),
        ("baud = 9600", 'baud = "fast"'),
        ('who = "*"', ""),
    ],
)
def test_schema_when_a_board_is_wrong_then_it_says_so(validator: Draft202012Validator, old: str, new: str) -> None:
    assert validator.is_valid(plain(FULL))
    assert not validator.is_valid(plain(FULL.replace(old, new, 1)))
