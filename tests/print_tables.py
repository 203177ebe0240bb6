"""Print the tables of the manual from the code (`python -m tests.print_tables PAGE`; a wrong word lists the pages)."""

from __future__ import annotations

import json
import sys
from collections.abc import Iterator
from importlib import metadata
from typing import Final

from hwtool.board_keys import TABLES
from hwtool.doctor.finding import CHECKS
from hwtool.reconciliation import READS, WRITES
from hwtool_contracts.effects import READ_POLICY, WRITE_POLICY
from hwtool_contracts.errors import CATALOGUE
from hwtool_contracts.keys import reference
from hwtool_contracts.schema import openrpc
from tests.conformance.table import table as conformance
from tests.crash.kinds import FATES, KINDS, Ending
from tests.surface_tables import members, methods


def errors() -> Iterator[str]:
    """The rows of docs/errors.md."""
    for code, entry in CATALOGUE.items():
        retry = entry.retry.value + (f", then {entry.later_retry.value}" if entry.later_retry else "")
        exits = str(entry.exit_code) + (f", {entry.exit_if_sent} if sent" if entry.exit_if_sent else "")
        cells = [f"`{code}`", ", ".join(entry.fields), entry.error_class.value, retry, entry.action.value, exits]
        yield "| " + " | ".join([*cells, entry.cause]) + " |"


def read_effects() -> Iterator[str]:
    """The read table of docs/vocabulary.md."""
    for effect, policy in READ_POLICY.items():
        conditions = [w.value for w in (policy.retry, policy.block, policy.poll, policy.verify, policy.keyless)]
        yield "| " + " | ".join([f"`{effect}`", *conditions, "yes" if policy.consuming else "no"]) + " |"


def write_effects() -> Iterator[str]:
    """The write table of docs/vocabulary.md."""
    for effect, policy in WRITE_POLICY.items():
        words = [policy.verify.value, policy.reconcile.value, policy.repeat.value, policy.neutral.value]
        yield "| " + " | ".join([f"`{effect}`", *words, str(policy.severity)]) + " |"


def keys() -> Iterator[str]:
    """docs/contract-keys.md below its first paragraph."""
    yield from reference()


def board() -> Iterator[str]:
    """docs/board-keys.md below its first paragraph."""
    yield from reference(TABLES)


def doctor_checks() -> Iterator[str]:
    """The rows of docs/doctor.md."""
    for name, what in CHECKS.items():
        yield f"| `{name}` | {what} |"


def document() -> Iterator[str]:
    """docs/openrpc.json."""
    yield json.dumps(openrpc(metadata.version("hwtool")), indent=1)


def settled() -> Iterator[str]:
    """The table of docs/reconciliation.md: what the kill matrix demands of each kind."""
    for kind in KINDS:
        cells = [kind.name]
        for stage in ("unsent", "sent"):
            for fate in FATES:
                cells.append(" or ".join(_ending(e) for e in kind.endings(stage, fate)))
        yield "| " + " | ".join(cells) + " |"


def rules() -> Iterator[str]:
    """The rules of docs/reconciliation.md, of writes and then of reads."""
    for rule in (*WRITES.values(), *READS.values()):
        effects = ", ".join(f"`{effect}`" for effect in rule.effects)
        after = "superseded" if rule.after_reset == "superseded" else "a person"
        yield "| " + " | ".join([rule.kinds, effects, rule.settled, rule.otherwise, after]) + " |"


def _ending(ending: Ending) -> str:
    return "a person" if ending.verdict is None else f"{ending.verdict}, {ending.effects}"


PAGES: Final = {
    "reconciliation": [rules, settled],
    "openrpc": [document],
    "errors": [errors],
    "vocabulary": [read_effects, write_effects],
    "keys": [keys],
    "board": [board],
    "methods": [methods, members],
    "conformance": [conformance],
    "doctor": [doctor_checks],
}

if __name__ == "__main__":
    if sys.argv[1:2] not in [[name] for name in PAGES]:
        sys.exit(f"one of {', '.join(PAGES)}")
    for table in PAGES[sys.argv[1]]:
        print("\n".join(table()))
