"""The oracle: it knows the promise, the list of what the chips have done, and nothing of how it is kept.

Each effect that a chip has had is given to the operation whose intent stood on disk at that moment and whose outcome
did not: there is at most one such operation of a device, and it may have had each of its effects once.
"""

from __future__ import annotations

import sqlite3
from collections import Counter, defaultdict
from typing import TYPE_CHECKING, Final

from hwtool_store.operations import OpRow
from tests import agreement
from tests.agreement import Record
from tests.crash.simulation.requests import OFFSET, PLACES, READS, Asked
from tests.crash.simulation.world import Happened

if TYPE_CHECKING:
    from tests.crash.simulation.histories import History

TELLING: Final = frozenset({"STORE", "GATED", "FIELDS", "GO", "PUSH", "POP"})  # kinds that a rule can always settle
AT: Final = {**OFFSET, **READS, "TOGGLE": 29}


def violations(history: History, record: Record) -> list[str]:
    """Everything that does not keep the promise, as sentences."""
    found = agreement.disagreements(record, {}, (), history.answers)
    windows = _windows(history, record)
    done = _given(history, record, windows, found)
    for one in history.asked:
        rows = [r for r in record.rows if r.key == one.key or (r.parent_op is not None and r.key.startswith(one.key))]
        for row in rows:
            if row.kind != "sequence":
                found += [f"{row.key} ({one.register} of {one.device}): {f}" for f in _judged(history, one, row, done)]
    return found + _held(record) + _values(history, record, done) + _settled(history, record)


def record_of(history: History) -> Record:
    """Everything on record on the disk of a history."""
    conn = sqlite3.connect(":memory:", isolation_level=None)
    image = history.world.disk.image
    assert image is not None
    conn.deserialize(image)
    try:
        return agreement.read(conn)
    finally:
        conn.close()


def _windows(history: History, record: Record) -> dict[int, tuple[float, float]]:
    """From the intent of an operation to the record of its outcome, in the time of the world."""
    base_ns = history.world.disk.epoch_base_ns
    opened: dict[int, float] = {}
    closed: dict[int, float] = {}
    for entry in record.audit:
        at_s = (entry.body["at_ns"] - base_ns[entry.epoch]) / 1e9
        if entry.op_id is not None and entry.body["what"] == "intent":
            opened[entry.op_id] = at_s
        elif entry.op_id is not None and entry.body["what"] in ("outcome", "unknown"):
            closed.setdefault(entry.op_id, at_s)
    return {op_id: (at_s, closed.get(op_id, float("inf"))) for op_id, at_s in opened.items()}


def _given(
    history: History, record: Record, windows: dict[int, tuple[float, float]], found: list[str]
) -> dict[int, list[Happened]]:
    """The effects of each operation; one that belongs to none is a violation."""
    place_of = {row.op_id: PLACES[row.request["device"]] for row in record.rows if row.kind != "sequence"}
    done: dict[int, list[Happened]] = defaultdict(list)
    for event in history.world.happened:
        if event.what not in ("write", "read"):
            continue
        fits = [i for i, (a, b) in windows.items() if a <= event.at_s <= b and place_of.get(i) == event[1:3]]
        if len(fits) != 1:
            found.append(f"{event} happened in the time of operations {fits}")
        else:
            done[fits[0]].append(event)
    return done


def _judged(history: History, one: Asked, row: OpRow, done: dict[int, list[Happened]]) -> list[str]:
    """What one operation claims, against what it has done."""
    events = done[row.op_id]
    found = []
    plan = ((row.pre or {}).get("request") or row.request).get("plan", [])
    planned = Counter(int(step["offset"], 0) for step in plan)
    times = Counter(e.offset for e in events)
    found += [f"{at:#x} was reached {n} times, {planned[at]} planned" for at, n in times.items() if n > planned[at]]
    if row.parent_op is None and one.parts is not None:
        wrong = [e for e in events if (e.offset, e.data) not in one.parts]
        found += [f"it did {wrong}, and was asked for {one.parts}"] if wrong else []
    effects = (row.response or {}).get("effects")
    parts = len(plan)
    restarted = any(e.what == "reset" and e[1:3] == PLACES[one.device] for e in history.world.happened)
    match row.verdict:
        case "applied" if len(events) != parts:
            found.append(f"applied by {row.verdict_by}, and {len(events)} of {parts} accesses happened")
        case "not_applied" if events and effects == "none" and not (one.device == "silent" and restarted):
            found.append(f"not applied, effects none, by {row.verdict_by}; and {events} happened")
        case "denied" if events:
            found.append(f"denied, and {events} happened")
        case "partial" if not 0 < len(events) < parts:
            found.append(f"partial, and {len(events)} of {parts} accesses happened")
        case "lost" if not events and effects == "applied":
            found.append("lost with effects applied, and nothing was taken")
    return found


def _held(record: Record) -> list[str]:
    """While an outcome is unknown, nothing but a safe state is begun at its device."""
    rows = {row.op_id: row for row in record.rows}
    unknown: dict[str | None, set[int]] = defaultdict(set)
    found = []
    for entry in record.audit:
        row = rows.get(entry.op_id or 0)
        if row is None or row.kind == "sequence":
            continue
        what = entry.body["what"]
        if what == "unknown":
            unknown[row.locus].add(row.op_id)
        elif what == "settled":
            unknown[row.locus].discard(row.op_id)
        elif what == "intent" and row.kind != "safe_state" and unknown[row.locus]:
            found.append(f"{row.key} was begun while {unknown[row.locus]} was unknown")
    return found


def _values(history: History, record: Record, done: dict[int, list[Happened]]) -> list[str]:
    """What a chip has given up is in the answer, or the answer says that it may be lost; and nothing is invented."""
    found = []
    for row in record.rows:
        if row.kind != "read" or row.state != "DONE":
            continue
        taken = "".join(e.data.hex() for e in done[row.op_id])
        told = "".join(v["raw"].removeprefix("0x") for v in (row.response or {}).get("values") or [])
        gone = (len(taken) - len(told)) // 2
        if not taken.startswith(told):
            found.append(f"{row.key} answers {told}, and the chip gave {taken}")
        if gone and row.verdict not in ("lost", "abandoned", "superseded"):
            found.append(f"{row.key} is {row.verdict} and answers {told}; the chip gave {taken}")
        bound = ((row.response or {}).get("error") or {}).get("bound")
        if bound is not None and (gone > int(bound[-1]) or (".." not in bound and gone != int(bound))):
            found.append(f"{row.key} says that {bound} are lost; {gone} are")
    return found


def _settled(history: History, record: Record) -> list[str]:
    """What a rule can tell is not left to a person, where the chip did not restart, says so, and is nobody else's."""
    found = []
    for one in history.asked:
        why = history.left.get(one.key)
        undisturbed = not any(e.what == "reset" and e[1:3] == PLACES[one.device] for e in history.world.happened)
        overtaken = any(r.kind == "safe_state" and r.request["device"] == one.device for r in record.rows)
        if why is not None and one.device == "told" and one.register in TELLING and undisturbed and not overtaken:
            found.append(f"{one.key} ({one.register} of {one.device}) was left to a person: {why}")
    return found


def tale(history: History, record: Record) -> list[str]:
    """A history as lines: what was asked, what the chips did, what is on record, what was told."""
    lines = [f"asked   {a.key} {a.caller.uid} {a.method} {a.params}" for a in history.asked]
    lines += [
        f"chip    {e.at_s:9.4f} {e.bus} {e.address:#x} {e.what} {e.offset:#x} {e.data.hex()}"
        for e in history.world.happened
    ]
    base = history.world.disk.epoch_base_ns
    lines += [
        f"record  {(a.body['at_ns'] - base[a.epoch]) / 1e9:9.4f} epoch {a.epoch} op {a.op_id} {a.body['what']} "
        f"{a.body.get('key')} {a.body.get('verdict')} {a.body.get('summary', '')[:90]}"
        for a in record.audit
    ]
    lines += [f"told    {k} {r.status} {r.verdict} {r.effects} {r.summary[:100]}" for k, r in history.answers]
    return lines
