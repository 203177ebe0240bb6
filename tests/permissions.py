"""Who may call what, when: the table that the manual prints and the matrix test walks. Written from the design.

Rows are methods, columns the caller's role and the state of the device or the daemon. Where the approval mode matters,
the cell says so. Nothing here is taken from the code that is tested.
"""

from __future__ import annotations

from typing import Final, Literal

State = Literal["fresh", "needs approval", "held", "frozen", "read-only"]
Mode = Literal["separate-user", "two-person", "sudo", "self"]
Role = Literal["agent", "operator"]
STATES: Final[tuple[State, ...]] = ("fresh", "needs approval", "held", "frozen", "read-only")
MODES: Final[tuple[Mode, ...]] = ("separate-user", "two-person", "sudo", "self")

LOOKING: Final = (
    "describe",
    "rpc.discover",
    "device.list",
    "reg.find",
    "reg.contract",
    "reg.read",
    "op.get",
    "op.wait",
    "journal.read",
    "metrics",
    "device.dump",
    "events.subscribe",
    "run.start",
    "run.finish",
    "run.acknowledge",
    "lease.acquire",
    "lease.release",
)
PLANNING: Final = ("reg.plan",)
WRITING: Final = ("reg.write", "reg.update", "sequence.run")
READING_WITH_EFFECTS: Final = ("reg.read_effectful",)
SAFE: Final = ("device.safe_state",)
OPERATORS: Final = (
    "approval.list",
    "approval.show",
    "approval.approve",
    "approval.deny",
    "op.settle",
    "device.hold",
    "device.release",
    "policy.show",
    "store.backup",
    "store.prune",
    "daemon.reload",
    "daemon.freeze",
    "daemon.thaw",
)
PROBING: Final = ("bus.probe",)
EVERY: Final = (*LOOKING, *PLANNING, *WRITING, *READING_WITH_EFFECTS, *SAFE, *OPERATORS, *PROBING)


def expected(method: str, role: Role, mode: Mode, state: State) -> str:
    """What a call comes to: done, pending, or the code of its error.

    The operator is uid 0, and another user than the agent; calls that need something to work on are given it.
    """
    if method in OPERATORS:
        return "done" if role == "operator" else "denied"
    if method in PROBING:
        stopped = {"frozen": "unavailable", "read-only": "denied"}
        return stopped.get(state, "done") if role == "operator" else "denied"
    if method in LOOKING or method in SAFE:
        return "done"
    if state == "held":
        return "held"
    if state == "frozen":
        return "unavailable"
    if method in PLANNING:
        return "done"
    if state == "read-only":
        return "denied"
    if state == "needs approval" and method in WRITING:
        direct = role == "operator" and mode != "two-person"
        return "done" if direct else "pending"
    return "done"


def _cell(method: str, role: Role, state: State) -> str:
    words = {mode: expected(method, role, mode, state) for mode in MODES}
    if len(set(words.values())) == 1:
        return words["self"]
    rare = [mode for mode in MODES if list(words.values()).count(words[mode]) == 1]
    return f"{words['separate-user']} ({', '.join(f'{m}: {words[m]}' for m in rare)})"


def table() -> list[str]:
    """The rows of docs/permissions.md."""
    columns = [(role, state) for role in ("agent", "operator") for state in STATES]
    lines = ["| method | " + " | ".join(f"{role}, {state}" for role, state in columns) + " |"]
    lines.append("|---" * (len(columns) + 1) + "|")
    for method in EVERY:
        cells = [_cell(method, "agent" if role == "agent" else "operator", state) for role, state in columns]
        lines.append(f"| `{method}` | " + " | ".join(cells) + " |")
    return lines


APPROVERS: Final[dict[tuple[Mode, str], str]] = {
    # mode, who answers → what approval.approve comes to (on simulated devices)
    ("separate-user", "another operator"): "done",
    ("separate-user", "the requester"): "denied",
    ("two-person", "another operator"): "done",
    ("two-person", "the requester"): "denied",
    ("sudo", "another operator"): "denied",
    ("sudo", "the requester"): "denied",
    ("sudo", "uid 0"): "done",
    ("self", "another operator"): "done",
    ("self", "the requester"): "done",
}


def approvers_table() -> list[str]:
    """The second table of docs/permissions.md."""
    lines = ["| approval mode | who answers | `approval.approve` |", "|---|---|---|"]
    return lines + [f"| `{mode}` | {who} | {word} |" for (mode, who), word in APPROVERS.items()]
