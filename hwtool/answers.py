"""What a row answers: the stored outcome of an operation, as its caller gets it again."""

from __future__ import annotations

from typing import Literal

from hwtool.policy import Caller
from hwtool.results import failed, from_row, in_progress, pending
from hwtool_contracts.errors import Code, DomainError
from hwtool_contracts.messages import Result
from hwtool_store.operations import OpRow


def row_name(row: OpRow) -> str:
    """How summaries call the operation of a row."""
    if row.kind == "sequence":
        return f"sequence of {len(row.request['steps'])} step(s) on {', '.join(row.request['devices'])}"
    if row.kind == "safe_state":
        return f"{row.request['device']} safe state"
    return f"{row.request['device']}.{', '.join(row.request['registers'])}"


def row_effects(row: OpRow) -> Literal["applied", "none", "unknown"]:
    """What a row says of the device."""
    if row.state == "PENDING":
        return "none"
    if row.state == "DONE" and row.response is not None:
        effects: Literal["applied", "none", "unknown"] = row.response["effects"]
        return effects
    return "unknown"


def answer_of_row(row: OpRow, caller: Caller) -> Result:
    """The stored outcome of an operation, as its own caller gets it again."""
    if row.state == "DONE" and row.response is not None:
        result = from_row(row.response, row.op_id, row.key, row.evidence)
    elif row.state == "UNKNOWN":
        result = unknown_result(row)
    elif row.state == "PENDING":
        result = pending(row.op_id, row.key, "waits for an operator's approval")
    else:
        result = in_progress(row.key, row.op_id)
    result.replayed = row.state in ("DONE", "UNKNOWN")
    if result.replayed and row.created_ns < caller.since_ns:
        result.warnings = [*result.warnings, "replayed_from_earlier: recorded before this connection"]
    return result


def unknown_result(row: OpRow) -> Result:
    """The answer of an operation whose outcome is unknown."""
    message = f"{row_name(row)}: the outcome of operation {row.op_id} is unknown"
    told = row.evidence or {}
    op = told.get("op", row.op_id)  # of a sequence: the step that is to be settled
    stage = told.get("stage", told.get("how", "bus"))
    error = DomainError(Code.OUTCOME_UNKNOWN, message, op=op, stage=stage, evidence=row.evidence, settled=False)
    values = (row.response or {}).get("values")  # of a read that stopped half way: what came is kept
    return failed(error, "unknown", id=row.op_id, key=row.key, evidence=row.evidence, values=values)
