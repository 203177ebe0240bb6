"""The requests and the one result shape as types; JSON Schema and OpenRPC are generated from them.

Parameters refuse unknown members (a typo matters on hardware); values are hex strings, since 64-bit integers do not
survive JSON numbers everywhere. Names are a contract with outside programs: they are added to, never changed.
"""

from __future__ import annotations

from typing import Annotated, Any, Final, Literal, NamedTuple

import msgspec
from msgspec import UNSET, Meta, Struct, UnsetType

Key = Annotated[
    str,
    Meta(
        pattern=r"^[A-Za-z0-9._:-]{8,120}\Z",
        description="idempotency key: 8 to 120 characters of A-Z a-z 0-9 . _ : -",
    ),
]
OpKey = Annotated[
    str,
    Meta(
        pattern=r"^[A-Za-z0-9._:-]{8,120}(#[0-9]{1,2})?\Z",
        description="key of an operation; of a step of a sequence with its number: KEY#N",
    ),
]
Text500 = Annotated[str, Meta(max_length=500)]
Number = Annotated[int, Meta(ge=0, le=(1 << 63) - 1)]
Names = Annotated[list[str], Meta(min_length=1, max_length=32)]
Millis = Annotated[int, Meta(ge=0, le=86_400_000)]
WallMillis = Annotated[int, Meta(ge=0, description="milliseconds of the host's wall clock since 1970, see describe")]


class ValueObject(Struct, forbid_unknown_fields=True, omit_defaults=True):
    """A value in another form than a raw integer: exactly one of scaled, text and hex.

    Attributes:
        scaled: decimal string in `unit`; converted exactly.
        round: `nearest` to accept the nearest representable value.
    """

    scaled: str | None = None
    unit: str | None = None
    round: Literal["nearest"] | None = None
    text: str | None = None
    hex: str | None = None

    def __post_init__(self) -> None:
        if sum(v is not None for v in (self.scaled, self.text, self.hex)) != 1:
            raise ValueError("a value object has exactly one of scaled, text and hex")


Value = int | str | ValueObject


class StoreSeen(Struct, forbid_unknown_fields=True):
    """The highest store state a caller saw: a store below it has been rolled back."""

    id: str
    seq: Number


class NoParams(Struct, forbid_unknown_fields=True):
    """No parameters."""


class DescribeParams(Struct, forbid_unknown_fields=True):
    """`describe`."""

    topic: str | None = None


class FindParams(Struct, forbid_unknown_fields=True):
    """`reg.find`."""

    query: str = ""
    device: str | None = None
    limit: Annotated[int, Meta(ge=1, le=200)] = 50
    cursor: str | None = None


class ContractParams(Struct, forbid_unknown_fields=True):
    """`reg.contract`."""

    register: str


class ReadParams(Struct, forbid_unknown_fields=True):
    """`reg.read`: clean registers of one device."""

    registers: Names
    run: Number | None = None
    generation: Number | None = None
    contract_digest: str | None = None
    deadline_ms: Millis | None = None


class _Keyed(Struct, forbid_unknown_fields=True, kw_only=True):
    """What every keyed request may carry."""

    key: Key
    reason: Text500 | None = None
    dry_run: bool = False
    deadline_ms: Millis | None = None
    not_after: WallMillis | None = None


class _Queued(_Keyed, forbid_unknown_fields=True, kw_only=True):
    """What a keyed request that waits for its turn may carry."""

    store: StoreSeen | None = None
    queue_ms: Millis | None = None
    run: Number | None = None


class _KeyedAccess(_Queued, forbid_unknown_fields=True, kw_only=True):
    """What a keyed access to registers may carry."""

    generation: Number | None = None
    contract_digest: str | None = None
    expect: dict[str, Value] | None = None


class ReadEffectfulParams(_KeyedAccess, forbid_unknown_fields=True, kw_only=True):
    """`reg.read_effectful`: exactly these registers, in order, under one intent."""

    register: str | None = None
    registers: Names | None = None
    count: Annotated[int, Meta(ge=1, le=4096)] | None = None

    def __post_init__(self) -> None:
        if (self.register is None) == (self.registers is None):
            raise ValueError("exactly one of register and registers")


class WriteParams(_KeyedAccess, forbid_unknown_fields=True, kw_only=True):
    """`reg.write`: a whole register, or the members of a group."""

    register: str | None = None
    value: Value | None = None
    mask: int | str | None = None
    registers: dict[str, Value] | None = None

    def __post_init__(self) -> None:
        if (self.register is None) == (self.registers is None):
            raise ValueError("exactly one of register and registers")
        if (self.register is None) != (self.value is None):
            raise ValueError("register and value go together")


class UpdateParams(_KeyedAccess, forbid_unknown_fields=True, kw_only=True):
    """`reg.update`: named fields of one register; the others keep their state."""

    register: str
    fields: Annotated[dict[str, Value], Meta(min_length=1)]


class SafeStateParams(_Keyed, forbid_unknown_fields=True, kw_only=True):
    """`device.safe_state`: what the board lists for the device, at once and past whatever holds it.

    It takes nothing that could be in its way: no generation, store, queue limit or expectation.
    """

    device: str


class StepParams(Struct, forbid_unknown_fields=True, kw_only=True):
    """One step of a sequence; which members it takes follows from `do`.

    Attributes:
        equals: of wait_until and expect: what the register must read, in the bits of `mask`.
        timeout_ms: of wait_until: how long to look; every `interval_ms`.
    """

    do: Literal["read", "read_effectful", "write", "update", "wait_until", "expect"]
    register: str
    value: Value | None = None
    fields: Annotated[dict[str, Value], Meta(min_length=1)] | None = None
    mask: int | str | None = None
    count: Annotated[int, Meta(ge=1, le=4096)] | None = None
    equals: Value | None = None
    timeout_ms: Annotated[int, Meta(ge=1, le=600_000)] | None = None
    interval_ms: Annotated[int, Meta(ge=1, le=60_000)] | None = None


Steps = Annotated[list[StepParams], Meta(min_length=1, max_length=64)]


class SequenceParams(_Queued, forbid_unknown_fields=True, kw_only=True):
    """`sequence.run`: steps on one bus under one key, stopped at the first that is not proven."""

    steps: Steps | None = None
    sequence: str | None = None
    params: dict[str, Value] | None = None

    def __post_init__(self) -> None:
        if (self.steps is None) == (self.sequence is None):
            raise ValueError("exactly one of steps and sequence")
        if self.params is not None and self.sequence is None:
            raise ValueError("params go with sequence")


KeyedMethod = Literal["reg.read_effectful", "reg.write", "reg.update", "sequence.run", "device.safe_state"]


class PlanParams(Struct, forbid_unknown_fields=True):
    """`reg.plan`: what the request would send, without sending it."""

    method: KeyedMethod
    params: dict[str, Any]


class AskedRequest(Struct, forbid_unknown_fields=True):
    """A keyed request as it was sent, of which only the record is asked."""

    method: KeyedMethod
    params: dict[str, Any]


class OpGetParams(Struct, forbid_unknown_fields=True):
    """`op.get`, by id or by key.

    Attributes:
        request: with `key`: the request whose reply was lost. The answer is what the key would answer to it, a
            `key_conflict` if the key belongs to another one, and nothing is started by asking.
    """

    id: Number | None = None
    key: OpKey | None = None
    verify: bool = False
    request: AskedRequest | None = None

    def __post_init__(self) -> None:
        if (self.id is None) == (self.key is None):
            raise ValueError("exactly one of id and key")
        if self.request is not None and (self.key is None or self.verify):
            raise ValueError("request goes with key, and without verify")


class OpWaitParams(Struct, forbid_unknown_fields=True):
    """`op.wait`, by id or by key."""

    id: Number | None = None
    key: OpKey | None = None
    wait_ms: Annotated[int, Meta(ge=0, le=25_000)] = 25_000

    def __post_init__(self) -> None:
        if (self.id is None) == (self.key is None):
            raise ValueError("exactly one of id and key")


class DumpParams(Struct, forbid_unknown_fields=True):
    """`device.dump`: what is clean of a device, and what was left out and why.

    Attributes:
        registers: names or patterns; without them everything.
        compare: a picture to compare with, register to value: the answer has `differences`.
    """

    device: str
    registers: Annotated[list[str], Meta(min_length=1, max_length=4096)] | None = None
    compare: Annotated[dict[str, Value], Meta(min_length=1, max_length=4096)] | None = None

    def __post_init__(self) -> None:
        if self.registers is not None and self.compare is not None:
            raise ValueError("registers and compare exclude each other: compared is what the picture names")


class When(Struct, forbid_unknown_fields=True):
    """A condition on one register: told when it comes true; numbers in the register's unit, else raw."""

    register: str
    above: float | int | None = None
    below: float | int | None = None
    changed: bool = False

    def __post_init__(self) -> None:
        if self.above is None and self.below is None and not self.changed:
            raise ValueError("at least one of above, below and changed")


class SubscribeParams(Struct, forbid_unknown_fields=True):
    """`events.subscribe`: notifications `event` on this connection, until it is closed.

    Attributes:
        registers: clean ones of one device, told when they change; polled once for all subscribers.
        interval_ms: how often they are looked at.
        kinds: of what the journal records: op, hold, run; without registers all of them.
    """

    registers: Names | None = None
    interval_ms: Annotated[int, Meta(ge=20, le=3_600_000)] = 1000
    when: When | None = None
    kinds: list[Literal["op", "hold", "run"]] | None = None


class JournalParams(Struct, forbid_unknown_fields=True):
    """`journal.read`: the audit chain, oldest first."""

    device: str | None = None
    since: Number | None = None
    limit: Annotated[int, Meta(ge=1, le=200)] = 100
    cursor: str | None = None


class ApprovalParams(Struct, forbid_unknown_fields=True):
    """`approval.show`."""

    approval: Number


class ApproveParams(Struct, forbid_unknown_fields=True):
    """`approval.approve`: the code comes from approval.show."""

    approval: Number
    code: str


class DenyParams(Struct, forbid_unknown_fields=True):
    """`approval.deny`."""

    approval: Number
    reason: Text500


class SettleParams(Struct, forbid_unknown_fields=True):
    """`op.settle`: a person's verdict on an unknown operation."""

    id: Number
    verdict: Literal["applied", "satisfied", "not_applied", "partial", "lost", "superseded", "abandoned"]
    reason: Annotated[str, Meta(min_length=1, max_length=500)]


class HoldParams(Struct, forbid_unknown_fields=True):
    """`device.hold` and `device.release`."""

    device: str
    reason: Annotated[str, Meta(min_length=1, max_length=500)]


class ProbeParams(Struct, forbid_unknown_fields=True):
    """`bus.probe`: one address of one bus, where the board has no device."""

    bus: str
    address: Annotated[int, Meta(ge=0, le=1023)]


class ReasonParams(Struct, forbid_unknown_fields=True):
    """`daemon.freeze` and `daemon.thaw`."""

    reason: Annotated[str, Meta(min_length=1, max_length=500)] | None = None


class StoreBackupParams(Struct, forbid_unknown_fields=True):
    """`store.backup`: the daemon writes a copy of the store, as its own user, into a file that does not exist yet."""

    to: Annotated[str, Meta(pattern=r"^/.{1,4000}\Z", description="absolute path")]


class StorePruneParams(Struct, forbid_unknown_fields=True):
    """`store.prune`: so many ended operations are kept whole, of older ones a tombstone each."""

    keep: Number


Name80 = Annotated[str, Meta(min_length=1, max_length=80)]


class RunStartParams(Struct, forbid_unknown_fields=True):
    """`run.start`."""

    name: Name80


class RunFinishParams(Struct, forbid_unknown_fields=True):
    """`run.finish`: the status is computed."""

    run: Number


class RunAcknowledgeParams(Struct, forbid_unknown_fields=True):
    """`run.acknowledge`: an error of a run has been handled, and how."""

    run: Number
    error_id: Number
    how: Annotated[str, Meta(min_length=1, max_length=500)]


class LeaseAcquireParams(Struct, forbid_unknown_fields=True):
    """`lease.acquire`: a device for one caller, at most ten minutes."""

    device: str
    ttl_ms: Annotated[int, Meta(ge=1, le=600_000)]


class LeaseReleaseParams(Struct, forbid_unknown_fields=True):
    """`lease.release`."""

    device: str


class PolicyShowParams(Struct, forbid_unknown_fields=True):
    """`policy.show`: the rules of the board, and what they let a caller do with a register.

    Attributes:
        register: as `device.REGISTER`; what decides about it is told.
        who: the caller it is told for, `uid:N`; without it the one who asks.
        groups: names of the groups that caller is in.
        role: of the socket it would use.
    """

    register: str | None = None
    who: Annotated[str, Meta(pattern=r"^uid:[0-9]{1,10}\Z")] | None = None
    groups: list[str] = msgspec.field(default_factory=list)
    role: Literal["agent", "operator"] = "agent"


class Method(NamedTuple):
    """One method of the surface.

    Attributes:
        params: type of its parameters.
        operator: only on the operator socket.
        summary: one line for OpenRPC and the manual.
    """

    params: type[Struct]
    operator: bool
    summary: str


METHODS: Final[dict[str, Method]] = {
    "describe": Method(DescribeParams, False, "Who the daemon is, the caller's role, a key prefix, the guide."),
    "rpc.discover": Method(NoParams, False, "This surface as an OpenRPC document."),
    "device.list": Method(NoParams, False, "Every device with contract, generation, held."),
    "reg.find": Method(FindParams, False, "Registers whose name or contract matches."),
    "reg.contract": Method(ContractParams, False, "What one register promises."),
    "reg.read": Method(ReadParams, False, "Read clean registers; no key, may be repeated."),
    "reg.read_effectful": Method(
        ReadEffectfulParams, False, "Read registers whose read has effects, once, under a key."
    ),
    "reg.plan": Method(PlanParams, False, "The exact transfers a keyed request would send."),
    "reg.write": Method(WriteParams, False, "Write a whole register or a group, once, under a key."),
    "reg.update": Method(UpdateParams, False, "Change fields of one register, once, under a key."),
    "sequence.run": Method(SequenceParams, False, "Steps on one bus under one key, until the first is not proven."),
    "device.safe_state": Method(SafeStateParams, False, "Write what the board lists as safe; passes every hold."),
    "op.get": Method(OpGetParams, False, "An operation by id or key."),
    "op.wait": Method(OpWaitParams, False, "Wait until an operation has ended, at most 25 s."),
    "run.start": Method(RunStartParams, False, "Begin a run: requests that name it share one computed status."),
    "run.finish": Method(RunFinishParams, False, "End a run: succeeded only if nothing in it is unhandled or unknown."),
    "run.acknowledge": Method(RunAcknowledgeParams, False, "Say how an error of a run was handled."),
    "lease.acquire": Method(LeaseAcquireParams, False, "Keep others' effectful requests off a device for a while."),
    "lease.release": Method(LeaseReleaseParams, False, "Give a device back."),
    "metrics": Method(NoParams, False, "Counters of the daemon in Prometheus text, in `text`."),
    "device.dump": Method(DumpParams, False, "Everything of a device that is clean, and what was left out and why."),
    "events.subscribe": Method(SubscribeParams, False, "Be told of changes: clean registers, operations, holds, runs."),
    "journal.read": Method(JournalParams, False, "What was attempted and how it ended."),
    "approval.list": Method(NoParams, True, "Requests that wait for a person."),
    "approval.show": Method(ApprovalParams, True, "What a request would do, and the code that approve needs."),
    "approval.approve": Method(ApproveParams, True, "Grant one request once."),
    "approval.deny": Method(DenyParams, True, "Deny one request with a reason."),
    "op.settle": Method(SettleParams, True, "End an unknown operation with a person's verdict."),
    "device.hold": Method(HoldParams, True, "Stop effectful requests to a device."),
    "device.release": Method(HoldParams, True, "Take a person's hold off a device."),
    "bus.probe": Method(ProbeParams, True, "Ask one address where the board has no device whether anybody answers."),
    "policy.show": Method(PolicyShowParams, True, "The board's policy, and which rule decides about a register."),
    "store.backup": Method(StoreBackupParams, True, "Copy the store into a new file while it is in use."),
    "store.prune": Method(StorePruneParams, True, "Leave tombstones of old ended operations; their keys stay used."),
    "daemon.reload": Method(NoParams, True, "Read the board again: policy, modes and what it says of its devices."),
    "daemon.freeze": Method(ReasonParams, True, "Refuse every effectful request but safe states, over restarts too."),
    "daemon.thaw": Method(ReasonParams, True, "End a freeze."),
}


class Result(Struct, kw_only=True):
    """The one shape of every outcome; `effects` is always there, members that do not apply are null.

    Attributes:
        effects: what was observed of this dispatch: applied, none or unknown.
        retry: and `next` only for pending_approval and in_progress.
    """

    status: Literal["done", "pending_approval", "in_progress", "failed"]
    ok: bool
    effects: Literal["applied", "none", "unknown"]
    verdict: str | None = None
    id: Number | None = None
    key: str | None = None
    summary: str = ""
    values: list[dict[str, Any]] | None = None
    at: str | None = None
    contract_digest: str | None = None
    generation: Number | None = None
    verified: bool | str | None = None
    store: dict[str, Any] | None = None
    evidence: dict[str, Any] | None = None
    replayed: bool = False
    dry_run: bool = False
    simulated: bool = False
    durable: bool = True
    warnings: list[str] = msgspec.field(default_factory=list)
    error: dict[str, Any] | None = None
    retry: str | UnsetType = UNSET
    next: dict[str, Any] | UnsetType = UNSET
    approval: int | UnsetType = UNSET
    describe: dict[str, Any] | UnsetType = UNSET
    devices: list[dict[str, Any]] | UnsetType = UNSET
    matches: list[dict[str, Any]] | UnsetType = UNSET
    contract: dict[str, Any] | UnsetType = UNSET
    transfers: list[dict[str, Any]] | UnsetType = UNSET
    op: dict[str, Any] | UnsetType = UNSET
    approvals: list[dict[str, Any]] | UnsetType = UNSET
    entries: list[dict[str, Any]] | UnsetType = UNSET
    cursor: str | UnsetType | None = UNSET
    openrpc: dict[str, Any] | UnsetType = UNSET
    policy: dict[str, Any] | UnsetType = UNSET
    run: dict[str, Any] | UnsetType = UNSET
    left_out: list[dict[str, Any]] | UnsetType = UNSET
    differences: list[dict[str, Any]] | UnsetType = UNSET
    subscription: int | UnsetType = UNSET
    text: str | UnsetType = UNSET
