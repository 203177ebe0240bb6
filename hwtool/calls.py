"""Every method of the surface as a typed call: what is sent, and what is made of the answer. Pure and light.

A call is data; the clients carry it out (hwtool.client blocks, hwtool.aio awaits), so the two have the same methods by
construction. Registers are named `device.REGISTER`. A value is raw bits as an integer or a hex string, the name of an
enumerated value, `bytes` for memories and blocks, or what `scaled` and `text` make; never a float, which could not be
converted exactly.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from typing import Any, Final, Generic, NamedTuple, TypedDict, TypeVar, Unpack

from hwtool.replies import Device, Object, Result

LOOKS: Final = frozenset({
    "describe", "rpc.discover", "device.list", "reg.find", "reg.contract", "reg.read", "reg.plan", "device.dump",
    "op.get", "op.wait", "journal.read", "metrics", "approval.list", "approval.show", "policy.show",
})  # fmt: skip
IN_RUN: Final = frozenset({"reg.read", "reg.read_effectful", "reg.write", "reg.update", "sequence.run"})
T_co = TypeVar("T_co", covariant=True)
ValueIn = int | str | bytes | Mapping[str, str]


class Call(Generic[T_co]):
    """One call.

    Attributes:
        params: without the members that are None.
        make: what becomes of a result that is not failed.
    """

    __slots__ = ("make", "method", "params")

    def __init__(self, method: str, params: Mapping[str, Any], make: Callable[[Result], T_co]) -> None:
        self.method = method
        self.params = params
        self.make = make

    @property
    def key(self) -> str | None:
        """The key of a call with an effect on a device, None where it has none."""
        key = None if self.method in LOOKS else self.params.get("key")
        return key if isinstance(key, str) else None

    @property
    def repeatable(self) -> bool:
        """Whether sending it twice is the same as once: it only looks, or rehearses."""
        return self.method in LOOKS or self.params.get("dry_run") is True

    @property
    def in_run(self) -> bool:
        """Whether it can be part of a run."""
        return self.method in IN_RUN


class Keyed(TypedDict, total=False):
    """What every keyed call may carry.

    Attributes:
        reason: for the journal and the approval screen, in the caller's words; at most 500 characters.
        dry_run: rehearse: everything but the dispatch.
        deadline_ms: how long to wait for the answer; nothing is cancelled then, the result is `in_progress`.
        not_after: milliseconds of the host's wall clock (`describe`) after which it must not be dispatched any more.
    """

    reason: str
    dry_run: bool
    deadline_ms: int
    not_after: int


class Queued(Keyed, total=False):
    """What a keyed call that waits for its turn may carry.

    Attributes:
        run: the run it belongs to; inside `client.run(…)` it is filled in.
        queue_ms: the longest wait in the device's queue, 0: not at all.
        store: {id, seq} of an earlier result: a store that is behind it is refused.
    """

    run: int
    queue_ms: int
    store: Mapping[str, Any]


class Access(Queued, total=False):
    """What a keyed access to registers may carry.

    Attributes:
        generation, contract_digest: what the caller looked at; `Stale` if it is no longer so.
        expect: register to value, compared before the intent; `PreconditionFailed` if it differs.
    """

    generation: int
    contract_digest: str
    expect: Mapping[str, ValueIn]


class Seen(TypedDict, total=False):
    """What a clean read may carry; as in `Access`."""

    run: int
    generation: int
    contract_digest: str
    deadline_ms: int


class Page(NamedTuple):
    """Some entries of a long list; `cursor` asks for the next ones, None at the end."""

    entries: tuple[Object, ...]
    cursor: str | None


def scaled(number: str, unit: str | None = None, *, nearest: bool = False) -> dict[str, str]:
    """A value in its unit: `scaled("1.2", "V")`.

    Args:
        number: a decimal string, converted exactly.
        nearest: accept the nearest representable value; else one that is not representable is refused.

    Raises:
        TypeError: it is no string; a float is not what it looks like.
    """
    if not isinstance(number, str):
        raise TypeError(f'scaled takes a decimal string, scaled("{number}"): a {type(number).__name__} is not exact')
    found = {"scaled": number}
    if unit is not None:
        found["unit"] = unit
    if nearest:
        found["round"] = "nearest"
    return found


def text(characters: str) -> dict[str, str]:
    """The value of a register that holds text."""
    return {"text": characters}


def _value(given: ValueIn) -> Any:
    if isinstance(given, bool | float):
        raise TypeError(f'{given!r} is no value: raw bits as int or hex string, a name, bytes, or scaled("…", unit)')
    return {"hex": given.hex()} if isinstance(given, bytes) else given


def _plain(given: Mapping[str, Any]) -> dict[str, Any]:
    """Parameters as they are sent: nothing that is None, values in their JSON form."""
    sent = {name: value for name, value in given.items() if value is not None}
    if sent.get("expect"):
        sent["expect"] = {name: _value(value) for name, value in sent["expect"].items()}
    return sent


def _page(result: Result, member: str) -> Page:
    return Page(result.json[member], result.json.get("cursor"))


def _whole(result: Result) -> Result:
    return result


def _looks(method: str, make: Callable[[Result], T_co], **params: Any) -> Call[T_co]:
    return Call(method, _plain(params), make)


def _keyed(method: str, key: str, params: Mapping[str, Any]) -> Call[Result]:
    return Call(method, _plain(params) | {"key": key}, _whole)


def _step(step: Mapping[str, Any]) -> dict[str, Any]:
    """A step of a sequence, its values in their JSON form."""
    sent = dict(step)
    for name in ("value", "equals"):
        if name in sent:
            sent[name] = _value(sent[name])
    if "fields" in sent:
        sent["fields"] = {field: _value(value) for field, value in sent["fields"].items()}
    return sent


# --- looking ------------------------------------------------------------------------------------------------------


def describe(topic: str | None = None) -> Call[Object]:
    """Who the daemon is, what this connection may do, and its `key_prefix`; with a topic (`agents`) its `text`."""
    return _looks("describe", lambda r: r.json["describe"], topic=topic)


def discover() -> Call[Object]:
    """The surface as an OpenRPC document."""
    return _looks("rpc.discover", lambda r: r.json["openrpc"])


def devices() -> Call[tuple[Device, ...]]:
    """Every device of the board."""
    return _looks("device.list", lambda r: tuple(Device(d) for d in r.json["devices"]))


def find(
    query: str = "", *, device: str | None = None, limit: int | None = None, cursor: str | None = None
) -> Call[Page]:
    """Registers and groups whose name, field, unit or chip matches every word of the query."""
    return _looks("reg.find", lambda r: _page(r, "matches"), query=query, device=device, limit=limit, cursor=cursor)


def contract(register: str) -> Call[Object]:
    """What reading and writing a register does, by its contract."""
    return _looks("reg.contract", lambda r: r.json["contract"], register=register)


def read(*registers: str, **more: Unpack[Seen]) -> Call[Result]:
    """Clean reads of 1 to 32 registers of one device: they change nothing and may be repeated.

    Raises:
        Refused: reading one of them has an effect (`read_has_side_effects`), or its contract forbids it.
    """
    return Call("reg.read", _plain({"registers": list(registers), **more}), _whole)


def dump(
    device: str, *, registers: Sequence[str] | None = None, compare: Mapping[str, ValueIn] | None = None
) -> Call[Result]:
    """Everything of a device that is clean; what was left out and why stands in `json["left_out"]`.

    Args:
        registers: names or patterns.
        compare: register to value: the differences stand in `json["differences"]`.
    """
    picture = None if compare is None else {name: _value(value) for name, value in compare.items()}
    chosen = None if registers is None else list(registers)
    return _looks("device.dump", _whole, device=device, registers=chosen, compare=picture)


def plan(planned: Call[Any]) -> Call[tuple[Object, ...]]:
    """The exact transfers that a keyed call would send: `client.plan(calls.write("gpio.OLATA", 1, key=…))`."""
    params = {name: value for name, value in planned.params.items() if name != "dry_run"}
    asked = {"method": planned.method, "params": params}
    return Call("reg.plan", asked, lambda r: r.json["transfers"])


def op_get(*, id: int | None = None, key: str | None = None, verify: bool | None = None) -> Call[Result]:
    """What became of an operation; raises as its own call would. `verify`: its rules are tried once more."""
    return _looks("op.get", _whole, id=id, key=key, verify=verify)


def op_wait(*, id: int | None = None, key: str | None = None, wait_ms: int | None = None) -> Call[Result]:
    """As `op_get`, when it has ended or become unknown; at most 25,000 ms."""
    return _looks("op.wait", _whole, id=id, key=key, wait_ms=wait_ms)


def journal(
    *, device: str | None = None, since: int | None = None, limit: int | None = None, cursor: str | None = None
) -> Call[Page]:
    """What was attempted and how it ended, oldest first."""
    return _looks("journal.read", lambda r: _page(r, "entries"), device=device, since=since, limit=limit, cursor=cursor)


def metrics() -> Call[str]:
    """Counters of the daemon in Prometheus text."""
    return _looks("metrics", lambda r: str(r.json["text"]))


# --- effects, each once under its key -----------------------------------------------------------------------------


def read_effectful(*registers: str, key: str, count: int | None = None, **more: Unpack[Access]) -> Call[Result]:
    """A read that changes the device: exactly these registers, in order, once under this key.

    Args:
        count: elements of a FIFO, of one register.

    Raises:
        ValueLost: it was taken from the device and is gone; `bound` says how much.
        OutcomeUnknown: it cannot be told; the device is held.
    """
    named: dict[str, Any] = {"register": registers[0]} if len(registers) == 1 else {"registers": list(registers)}
    return _keyed("reg.read_effectful", key, {**named, "count": count, **more})


def write(
    register: str, value: ValueIn, *, key: str, mask: int | str | None = None, **more: Unpack[Access]
) -> Call[Result]:
    """Write a whole register, or a memory's bytes (`device.MEM[offset:length]`), once under this key.

    Raises:
        NotApplied: it was sent and is not there.
        OutcomeUnknown: it cannot be told; the device is held.
    """
    return _keyed("reg.write", key, {"register": register, "value": _value(value), "mask": mask, **more})


def write_group(registers: Mapping[str, ValueIn], *, key: str, **more: Unpack[Access]) -> Call[Result]:
    """Write the members of a group together, once under this key; `registers`: name to value."""
    values = {name: _value(value) for name, value in registers.items()}
    return _keyed("reg.write", key, {"registers": values, **more})


def update(register: str, fields: Mapping[str, ValueIn], *, key: str, **more: Unpack[Access]) -> Call[Result]:
    """Change fields of a register, once under this key; the others keep their state."""
    values = {name: _value(value) for name, value in fields.items()}
    return _keyed("reg.update", key, {"register": register, "fields": values, **more})


def sequence(steps: Sequence[Mapping[str, Any]], *, key: str, **more: Unpack[Queued]) -> Call[Result]:
    """Steps on one bus under one key, until the first that is not proven."""
    return _keyed("sequence.run", key, {"steps": [_step(step) for step in steps], **more})


def named_sequence(
    name: str, params: Mapping[str, ValueIn] | None = None, *, key: str, **more: Unpack[Queued]
) -> Call[Result]:
    """A sequence of a device's contract, `device.SEQUENCE`; `params` are the values it asks for."""
    values = None if params is None else {n: _value(v) for n, v in params.items()}
    return _keyed("sequence.run", key, {"sequence": name, "params": values, **more})


def safe_state(device: str, *, key: str, **more: Unpack[Keyed]) -> Call[Result]:
    """Write what the board lists as safe for a device, at once and past whatever holds it."""
    return _keyed("device.safe_state", key, {"device": device, **more})


# --- runs and leases ----------------------------------------------------------------------------------------------


def _run(result: Result) -> Object:
    run: Object = result.json["run"]
    return run


def run_start(name: str) -> Call[Object]:
    """Begin a run; `client.run(name)` does it as a context manager."""
    return Call("run.start", {"name": name}, _run)


def run_finish(run: int) -> Call[Object]:
    """End a run; its status is computed, never claimed."""
    return Call("run.finish", {"run": run}, _run)


def run_acknowledge(run: int, error_id: int, how: str) -> Call[Object]:
    """Say how an error of a run was handled; its number stands in the error (`error_id`)."""
    return Call("run.acknowledge", {"run": run, "error_id": error_id, "how": how}, _run)


def lease_acquire(device: str, *, ttl_ms: int) -> Call[Result]:
    """Keep others' effectful calls off a device, at most 600,000 ms; `client.lease(…)` is the context manager."""
    return Call("lease.acquire", {"device": device, "ttl_ms": ttl_ms}, _whole)


def lease_release(device: str) -> Call[Result]:
    """Give a device back."""
    return Call("lease.release", {"device": device}, _whole)


def subscribe(
    *registers: str,
    interval_ms: int | None = None,
    when: Mapping[str, Any] | None = None,
    kinds: Sequence[str] | None = None,
) -> Call[Result]:
    """Be told of changes on this connection; `client.subscribe(…)` is the context manager with the events."""
    named = list(registers) or None
    chosen = None if kinds is None else list(kinds)
    given = {"registers": named, "interval_ms": interval_ms, "when": when, "kinds": chosen}
    return Call("events.subscribe", _plain(given), _whole)


# --- operators ----------------------------------------------------------------------------------------------------


def approvals() -> Call[tuple[Object, ...]]:
    """Requests that wait for a person. Operators only, as all below."""
    return _looks("approval.list", lambda r: r.json["approvals"])


def approval_show(approval: int) -> Call[Object]:
    """What a request would do, and the `code` that approve needs."""
    return Call("approval.show", {"approval": approval}, lambda r: r.json["approvals"][0])


def approve(approval: int, code: str) -> Call[Result]:
    """Grant one request once; the code comes from `approval_show`."""
    return Call("approval.approve", {"approval": approval, "code": code}, _whole)


def deny(approval: int, reason: str) -> Call[Result]:
    """Deny one request; the reason reaches the caller."""
    return Call("approval.deny", {"approval": approval, "reason": reason}, _whole)


def settle(id: int, verdict: str, reason: str) -> Call[Result]:
    """End an unknown operation with a person's verdict."""
    return Call("op.settle", {"id": id, "verdict": verdict, "reason": reason}, _whole)


def hold(device: str, reason: str) -> Call[Result]:
    """Stop effectful calls to a device."""
    return Call("device.hold", {"device": device, "reason": reason}, _whole)


def release(device: str, reason: str) -> Call[Result]:
    """Take a person's hold off a device."""
    return Call("device.release", {"device": device, "reason": reason}, _whole)


def probe(bus: str, address: int) -> Call[Result]:
    """Ask one address where the board has no device whether anybody answers; once, and it may have an effect."""
    return Call("bus.probe", {"bus": bus, "address": address}, _whole)


def policy(
    register: str | None = None, *, who: str | None = None, groups: Sequence[str] | None = None, role: str | None = None
) -> Call[Object]:
    """The board's policy; with a register, which rule decides about it."""
    named = None if groups is None else list(groups)
    return _looks("policy.show", lambda r: r.json["policy"], register=register, who=who, groups=named, role=role)


def store_backup(to: str) -> Call[Result]:
    """Copy the store into a new file, an absolute path that the daemon's user may write to, while it is in use."""
    return Call("store.backup", {"to": to}, _whole)


def store_prune(keep: int) -> Call[Result]:
    """Leave tombstones of old ended operations; their keys stay used."""
    return Call("store.prune", {"keep": keep}, _whole)


def reload() -> Call[Result]:
    """Read the board again."""
    return Call("daemon.reload", {}, _whole)


def freeze(reason: str | None = None) -> Call[Result]:
    """Refuse every effectful call but safe states, over restarts too."""
    return Call("daemon.freeze", _plain({"reason": reason}), _whole)


def thaw(reason: str | None = None) -> Call[Result]:
    """End a freeze."""
    return Call("daemon.thaw", _plain({"reason": reason}), _whole)
