"""The journal, the database and the devices' own counters agree: one checker for the end of every test.

Pure: it is given everything that is on record and everything that was counted, and answers sentences, none if all
agree. `record_of` reads a store that nobody has open.
"""

from __future__ import annotations

import json
import sqlite3
from collections import defaultdict
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Final

from hwtool_contracts.messages import Result
from hwtool_contracts.model import Contract
from hwtool_store import audit, operations
from hwtool_store.audit import AuditRow
from hwtool_store.database import FILE
from hwtool_store.operations import HoldRow, OpRow
from tests.executions import Count, miscounted

STEPS: Final = ("pending", "approved", "intent", "outcome", "unknown", "settled", "denied", "approval_expired")
BY: Final = {"rule": "rule", "human": "person"}


@dataclass(frozen=True)
class Record:
    """Everything on record.

    Attributes:
        broken: sequence of the first audit row that does not fit the chain.
        data: values that reads consumed, by operation.
    """

    rows: list[OpRow]
    audit: list[AuditRow]
    broken: int | None
    holds: list[HoldRow]
    data: dict[int, list[bytes]]

    def begun(self, epoch: int | None = None) -> frozenset[int]:
        """Operations whose intent was recorded, up to the end of an epoch if one is named."""
        intents = [a for a in self.audit if a.body["what"] == "intent" and a.op_id is not None]
        return frozenset(a.op_id or 0 for a in intents if epoch is None or a.epoch <= epoch)


def record_of(directory: Path) -> Record:
    """Read a store that nobody has open."""
    conn = sqlite3.connect(directory / FILE, isolation_level=None)
    try:
        return read(conn)
    finally:
        conn.close()


def read(conn: sqlite3.Connection) -> Record:
    """Read everything, page by page."""
    chain: list[AuditRow] = []
    while page := audit.page(conn, chain[-1].seq if chain else 0, audit.MAX_PAGE):
        chain += page
    rows = operations.in_state(conn, "PENDING", "INTENT", "UNKNOWN", "DONE")
    data = {row.op_id: operations.data_of(conn, row.op_id) for row in rows}
    return Record(rows, chain, audit.first_break(conn, len(chain) + 1), operations.holds(conn), data)


def disagreements(
    record: Record,
    contracts: Mapping[str, Contract],
    counts: Sequence[Count] = (),
    answers: Sequence[tuple[str, Result]] = (),
    devices: Mapping[str, str] | None = None,
) -> list[str]:
    """Everything that does not fit together, as sentences.

    Args:
        contracts: by locus, of the devices that were counted.
        counts: in the order of time; the first is where counting began.
        answers: what one caller was told, by key, in the order of time.
        devices: name on the board by locus, to find the record of each hold.
    """
    pruned = max((a.body["newest"] for a in record.audit if a.body["what"] == "pruned"), default=0)
    found = [] if record.broken is None else [f"the audit chain is broken at row {record.broken}"]
    found += _histories(record, pruned)
    found += _open_at_once(record.rows)
    found += _holds(record, devices or {})
    found += _consumed(record)
    found += miscounted(record.rows, contracts, counts, pruned)
    return found + changed(record.rows, answers)


def _histories(record: Record, pruned: int) -> list[str]:
    found = []
    told: dict[int, list[AuditRow]] = defaultdict(list)
    known = {row.op_id for row in record.rows}
    for entry in record.audit:
        if entry.op_id is not None and entry.body["what"] in STEPS:
            told[entry.op_id].append(entry)
            if entry.op_id not in known and entry.op_id > pruned:
                found.append(f"audit row {entry.seq} ({entry.body['what']}) is of operation {entry.op_id}: no such row")
    for row in record.rows:
        found += [f"operation {row.op_id} ({row.key}): {fault}" for fault in _history(row, told[row.op_id])]
    return found


def _history(row: OpRow, told: list[AuditRow]) -> list[str]:
    steps = [entry.body["what"] for entry in told]
    late = [step for step in steps if step not in ("pending", "approved")]
    wanted = _wanted(row)
    if late not in wanted:
        ways = " or ".join(", ".join(w) or "nothing" for w in wanted)
        return [f"is {row.state} {row.verdict} by {row.verdict_by}; the journal tells {steps}, not {ways}"]
    if steps[: len(steps) - len(late)] not in ([], ["pending"], ["pending", "approved"]):
        return [f"the journal tells {steps}, out of order"]
    return _last_word(row, told[-1]) if row.state == "DONE" and late[-1] in ("outcome", "settled") else []


def _wanted(row: OpRow) -> list[list[str]]:
    match row.state, row.verdict_by:
        case "PENDING", _:
            return [[]]
        case "INTENT", _:
            return [["intent"]]
        case "UNKNOWN", _:
            return [["intent", "unknown"]]
        case _ if row.verdict == "denied":
            return [["denied"] if row.verdict_by == "human" else ["approval_expired"]]
        case _, "bus":
            return [["intent", "outcome"]]
        case _:
            return [["intent", "unknown", "settled"]]


def _last_word(row: OpRow, entry: AuditRow) -> list[str]:
    found = []
    body, response = entry.body, row.response or {}
    if body.get("verdict") != row.verdict:
        found.append(f"is {row.verdict}; the journal says {body.get('verdict')}")
    if response.get("verdict") != row.verdict:
        found.append(f"is {row.verdict}; its answer says {response.get('verdict')}")
    settled_by = body.get("by")  # an undeclared read is closed by the request itself, and its record names nobody
    if settled_by is not None and settled_by != BY.get(row.verdict_by or ""):
        found.append(f"is settled by {row.verdict_by}; the journal says by {settled_by}")
    if body.get("effects") != response.get("effects") and "by" in body:
        found.append(f"its answer says effects {response.get('effects')}; the journal says {body.get('effects')}")
    return found


def _open_at_once(rows: Sequence[OpRow]) -> list[str]:
    ordinary: dict[str, list[int]] = defaultdict(list)
    for row in rows:
        if row.state in ("INTENT", "UNKNOWN") and row.kind != "safe_state" and row.locus is not None:
            ordinary[row.locus].append(row.op_id)
    return [f"{locus}: operations {ops} are in doubt at once" for locus, ops in ordinary.items() if len(ops) > 1]


def _holds(record: Record, devices: Mapping[str, str]) -> list[str]:
    last: dict[str, str] = {}
    for entry in record.audit:
        if entry.body["what"] in ("hold", "release"):
            last[entry.body["device"]] = entry.body["what"]
    held = {devices[h.locus] for h in record.holds if h.locus in devices}
    found = [f"{name} is held; the journal does not tell of it" for name in held if last.get(name) != "hold"]
    there = set(devices.values())
    return found + [
        f"the journal holds {n}; nothing holds it" for n, w in last.items() if w == "hold" and n in there - held
    ]


def _consumed(record: Record) -> list[str]:
    """A value that was taken stands in op_data, whole, from the outcome on."""
    found = []
    for row in record.rows:
        if row.kind != "read" or (row.verdict, row.verdict_by) != ("applied", "bus"):
            continue
        plan = ((row.pre or {}).get("request") or row.request)["plan"]
        wanted = [step.get("size_bytes", step.get("read_bytes")) for step in plan if step["role"] == "access"]
        kept = [len(value) for value in record.data.get(row.op_id, [])]
        if len(wanted) == len(kept):  # how long the line of an answer is, no plan says
            wanted = [size if size is not None else found_bytes for size, found_bytes in zip(wanted, kept, strict=True)]
        if kept != wanted:
            found.append(f"operation {row.op_id} ({row.key}) read {wanted} bytes; {kept} are on record")
    return found


def changed(rows: Sequence[OpRow], answers: Sequence[tuple[str, Result]]) -> list[str]:
    """Answers that were final and are not any more; only an outcome that was unknown may still be told."""
    found = []
    final: dict[str, tuple[object, ...]] = {}
    ids: dict[str, int] = {}
    for key, answer in answers:
        if answer.id is not None and ids.setdefault(key, answer.id) != answer.id:
            found.append(f"{key} was operation {ids[key]}, then {answer.id}")
        said = _final(answer)
        if said is None:
            if key in final and _speaks_of_it(answer):
                found.append(f"{key} was answered {final[key]}, later {answer.status} {answer.error}")
        elif final.setdefault(key, said) != said:
            found.append(f"{key} was answered {final[key]}, later {said}")
    by_id = {row.op_id: row for row in rows}
    for key, said in final.items():
        row = by_id.get(ids[key])
        if row is not None and (row.state, row.verdict) != ("DONE", said[0]):
            found.append(f"{key} was answered {said[0]}; its row is {row.state} {row.verdict}")
    return found


def _final(answer: Result) -> tuple[object, ...] | None:
    """What must not change any more, None if the answer is not an outcome."""
    code = None if answer.error is None else answer.error["code"]
    if answer.id is None or answer.verdict is None or answer.dry_run or code in ("store_failed", "key_conflict"):
        return None
    return answer.verdict, answer.effects, answer.ok, code, json.dumps(answer.values, sort_keys=True)


def _speaks_of_it(answer: Result) -> bool:
    """Whether an answer without an outcome denies that there is one."""
    code = None if answer.error is None else answer.error["code"]
    return answer.status in ("pending_approval", "in_progress") or code in ("outcome_unknown", "not_found")
