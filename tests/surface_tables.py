"""Which verb of the command line asks which method; the manual prints it, a test holds it against both."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Final

import msgspec

from hwtool_contracts.messages import METHODS

VERBS_OF: Final[dict[str, tuple[str, ...]]] = {
    "describe": ("describe",),
    "rpc.discover": ("rpc",),
    "device.list": ("devices",),
    "reg.find": ("find",),
    "reg.contract": ("show",),
    "reg.read": ("read",),
    "reg.read_effectful": ("read",),
    "reg.plan": ("plan",),
    "reg.write": ("write",),
    "reg.update": ("update",),
    "sequence.run": ("sequence", "apply"),
    "device.safe_state": ("safe-state",),
    "op.get": ("op",),
    "op.wait": ("wait",),
    "run.start": ("run",),
    "run.finish": ("run",),
    "run.acknowledge": ("run",),
    "lease.acquire": ("lease",),
    "lease.release": ("lease",),
    "metrics": ("metrics",),
    "device.dump": ("dump", "diff", "apply"),
    "events.subscribe": ("watch", "journal", "approvals"),
    "journal.read": ("journal",),
    "approval.list": ("approvals",),
    "approval.show": ("approve",),
    "approval.approve": ("approve",),
    "approval.deny": ("deny",),
    "op.settle": ("settle",),
    "device.hold": ("hold",),
    "device.release": ("release",),
    "bus.probe": ("probe",),
    "policy.show": ("policy",),
    "store.backup": ("store",),
    "store.prune": ("store",),
    "daemon.reload": ("reload",),
    "daemon.freeze": ("freeze",),
    "daemon.thaw": ("thaw",),
}
MEMBERS: Final[dict[str, str]] = {
    "status": "`done`, `pending_approval`, `in_progress` or `failed`",
    "ok": "whether the state that was asked for is shown; `done` means true",
    "effects": "what was observed of this dispatch: `applied`, `none` or `unknown`; always there, on errors too",
    "verdict": "how the operation ended: applied, satisfied, not_applied, partial, lost, superseded, abandoned, denied",
    "id": "the number of the operation, which is the journal's too",
    "key": "the key that it was asked for with",
    "summary": "one line for people",
    "values": "registers with `raw` (hex), `value`, `unit` and fields",
    "at": "when it was answered, RFC 3339 in UTC",
    "contract_digest": "SHA-256 of the contract that the device has by now",
    "generation": "of the device: one more at each restart of it",
    "verified": "false, or what the contract was checked against; `a model: …` where that was no real part",
    "store": "`{id, seq}`: which store this is and how far it was; a caller that says it back notices a store set back",
    "evidence": "what was seen: transfers, values before and after, how success was shown, how long was watched",
    "replayed": "the outcome was on record: nothing was sent for this request",
    "dry_run": "a rehearsal: nothing was sent and no key was used",
    "simulated": "no real device was touched",
    "durable": "false: the store may lose what was synced (`--allow-unsafe-store`)",
    "warnings": "strings of the form `code: text`",
    "error": "`{code, class, message, hint, retry, next}` and the code's fields; null unless `failed`",
    "retry": "top level: of `pending_approval` and `in_progress` alone",
    "next": "top level: as `retry`; a typed action",
    "approval": "number of the request that waits for a person",
    "describe": "of `describe`",
    "devices": "of `device.list`",
    "matches": "of `reg.find`",
    "contract": "of `reg.contract`",
    "transfers": "of a plan or a rehearsal: each transfer with its role and register, as it would be sent",
    "op": "of `op.get` and `op.wait`",
    "approvals": "of `approval.list`",
    "entries": "of `journal.read`",
    "cursor": "where a listing goes on; null at its end",
    "openrpc": "of `rpc.discover`",
    "policy": "of `policy.show`",
    "run": "of `run.start`, `run.finish` and `run.acknowledge`",
    "left_out": "of `device.dump`: what is not clean, and why",
    "differences": "of `device.dump` with `compare`",
    "subscription": "of `events.subscribe`: the number that events carry",
    "text": "of `metrics`",
}
# they ask no daemon, start one, or pass on what others ask
LOCAL: Final = frozenset(
    {"serve", "sim", "demo", "check", "board", "contract", "mcp", "udev", "units", "give-back", "doctor"}
)


def methods() -> Iterator[str]:
    """The rows of docs/methods.md."""
    for name, method in METHODS.items():
        fields = msgspec.structs.fields(method.params)
        needed = [f"`{f.encode_name}`" for f in fields if f.required]
        free = [f"`{f.encode_name}`" for f in fields if not f.required]
        takes = ", ".join(needed) + (f" [{', '.join(free)}]" if free else "")
        verbs = ", ".join(f"`hwtool {v}`" for v in VERBS_OF[name])
        who = "operators" if method.operator else "all"
        yield f"| `{name}` | {takes.strip()} | {who} | {method.summary} | {verbs} |"


def members() -> Iterator[str]:
    """The rows of the second table of docs/methods.md."""
    for name, says in MEMBERS.items():
        yield f"| `{name}` | {says} |"
