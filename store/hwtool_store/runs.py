"""Runs: rows that survive restarts, their failed results, and how each was handled; jobs for the writer.

A run's status is never written: it is computed from its operations and its errors. What is written is that it was
finished, and the first cause if it had failed by then.
"""

from __future__ import annotations

import sqlite3
from dataclasses import dataclass
from typing import Any

from hwtool_store import audit
from hwtool_store.faults import StoreRule
from hwtool_store.operations import caller, current_epoch


@dataclass(frozen=True, slots=True)
class RunRow:
    """A row of `run`; `failed_by` is kept when it is finished."""

    run_id: int
    principal: str
    name: str
    started_ns: int
    finished_ns: int | None
    failed_by: str | None


@dataclass(frozen=True, slots=True)
class RunError:
    """A failed result inside a run; `handled_how` in the words of who handled it."""

    error_id: int
    op_id: int | None
    code: str
    at_ns: int
    handled_how: str | None


@dataclass(frozen=True, slots=True)
class RunOp:
    """An operation of a run, as far as its status depends on it; `ok` in the words of its stored result."""

    op_id: int
    key: str
    state: str
    verdict: str | None
    verdict_by: str | None
    ok: bool
    at_ns: int


@dataclass(frozen=True, slots=True)
class Run:
    """A run with everything that decides about its status."""

    row: RunRow
    errors: tuple[RunError, ...]
    operations: tuple[RunOp, ...]


def start(conn: sqlite3.Connection, principal: str, name: str, now_ns: int, note: dict[str, Any]) -> int:
    """A new run; answers its number."""
    owner = caller(conn, principal)
    cursor = conn.execute("INSERT INTO run(caller_id, name, started_ns) VALUES(?,?,?)", (owner, name, now_ns))
    run_id = int(cursor.lastrowid or 0)
    audit.append(conn, current_epoch(conn), None, {**note, "run": run_id})
    return run_id


def get(conn: sqlite3.Connection, run_id: int) -> Run | None:
    """A run with its errors and operations, the steps of sequences left out: their headers stand for them."""
    row = conn.execute(
        "SELECT run_id, principal, name, started_ns, finished_ns, failed_by FROM run JOIN caller USING(caller_id)"
        " WHERE run_id=?",
        (run_id,),
    ).fetchone()
    if row is None:
        return None
    errors = conn.execute(
        "SELECT error_id, op_id, code, at_ns, handled_how FROM run_error WHERE run_id=? ORDER BY error_id", (run_id,)
    ).fetchall()
    operations = conn.execute(
        "SELECT op_id, key, state, verdict, verdict_by, json_extract(response, '$.ok'), created_ns FROM op"
        " WHERE run_id=? AND parent_op IS NULL ORDER BY op_id",
        (run_id,),
    ).fetchall()
    return Run(
        RunRow(*row),
        tuple(RunError(*e) for e in errors),
        tuple(RunOp(o[0], o[1], o[2], o[3], o[4], bool(o[5]), o[6]) for o in operations),
    )


def fail(
    conn: sqlite3.Connection, run_id: int, principal: str, op_id: int | None, code: str, now_ns: int
) -> int | None:
    """A failed result inside a run of this caller that is not finished; answers the number of its error, else None.

    An operation has one error, however often it is told.
    """
    known = None
    mine = "SELECT 1 FROM run JOIN caller USING(caller_id) WHERE run_id=? AND principal=? AND finished_ns IS NULL"
    if conn.execute(mine, (run_id, principal)).fetchone() is None:
        return None
    if op_id is not None:
        known = conn.execute("SELECT error_id FROM run_error WHERE run_id=? AND op_id=?", (run_id, op_id)).fetchone()
    if known is not None:
        return int(known[0])
    cursor = conn.execute(
        "INSERT INTO run_error(run_id, op_id, code, at_ns) VALUES(?,?,?,?)", (run_id, op_id, code, now_ns)
    )
    return int(cursor.lastrowid or 0)


def handle(
    conn: sqlite3.Connection, run_id: int, error_id: int, how: str, now_ns: int, note: dict[str, Any] | None
) -> None:
    """An error of a run has been handled.

    Raises:
        StoreRule: the run has no such error, or it was handled.
    """
    cursor = conn.execute(
        "UPDATE run_error SET handled_how=?, handled_ns=? WHERE run_id=? AND error_id=? AND handled_how IS NULL",
        (how, now_ns, run_id, error_id),
    )
    if cursor.rowcount != 1:
        raise StoreRule(f"run {run_id} has no error {error_id} that waits to be handled")
    if note is not None:
        audit.append(conn, current_epoch(conn), None, note)


def finish(conn: sqlite3.Connection, run_id: int, failed_by: str | None, now_ns: int, note: dict[str, Any]) -> None:
    """The end of a run, with the first cause if it failed.

    Raises:
        StoreRule: it was finished.
    """
    cursor = conn.execute(
        "UPDATE run SET finished_ns=?, failed_by=? WHERE run_id=? AND finished_ns IS NULL", (now_ns, failed_by, run_id)
    )
    if cursor.rowcount != 1:
        raise StoreRule(f"run {run_id} was finished")
    audit.append(conn, current_epoch(conn), None, note)
