"""Calls: each method of the surface has its call, with exactly its parameters; both clients have every call."""

from __future__ import annotations

import inspect
from collections.abc import Callable
from typing import Any

import msgspec
import pytest

from hwtool import aio, calls
from hwtool.calls import IN_RUN, LOOKS, Call, scaled, text
from hwtool.client import Client
from hwtool_contracts.messages import METHODS, AskedRequest, OpGetParams

K = "key-0001"
KEYED: Any = {"reason": "r", "dry_run": True, "deadline_ms": 1, "not_after": 2}
QUEUED: Any = {**KEYED, "run": 3, "queue_ms": 4, "store": {"id": "s", "seq": 5}}
ACCESS: Any = {**QUEUED, "generation": 6, "contract_digest": "sha256:0", "expect": {"R": 7}}
STEP = {"do": "write", "register": "d.R", "value": 1}
WHOLE: list[tuple[Call[Any], str]] = [  # every call with every parameter it has
    (calls.describe("agents"), "describe"),
    (calls.discover(), "rpc.discover"),
    (calls.devices(), "device.list"),
    (calls.find("q", device="d", limit=1, cursor="1"), "reg.find"),
    (calls.contract("d.R"), "reg.contract"),
    (calls.read("d.R", run=1, generation=1, contract_digest="x", deadline_ms=1), "reg.read"),
    (calls.dump("d", registers=["R"]), "device.dump"),
    (calls.dump("d", compare={"R": b"\x01"}), "device.dump"),
    (calls.plan(calls.write("d.R", 1, key=K)), "reg.plan"),
    (calls.op_get(key="key-0001", verify=True), "op.get"),
    (calls.op_get(id=1), "op.get"),
    (calls.op_wait(key="key-0001", wait_ms=1), "op.wait"),
    (calls.op_wait(id=1), "op.wait"),
    (calls.journal(device="d", since=1, limit=1, cursor="1"), "journal.read"),
    (calls.metrics(), "metrics"),
    (calls.read_effectful("d.R", count=2, key=K, **ACCESS), "reg.read_effectful"),
    (calls.read_effectful("d.R", "d.S", key=K), "reg.read_effectful"),
    (calls.write("d.R", 1, mask=1, key=K, **ACCESS), "reg.write"),
    (calls.write_group({"d.R": scaled("1.2", "V")}, key=K), "reg.write"),
    (calls.update("d.R", {"F": "on"}, key=K, **ACCESS), "reg.update"),
    (calls.sequence([STEP], key=K, **QUEUED), "sequence.run"),
    (calls.named_sequence("d.S", {"P": text("x")}, key=K), "sequence.run"),
    (calls.safe_state("d", key=K, **KEYED), "device.safe_state"),
    (calls.run_start("n"), "run.start"),
    (calls.run_finish(1), "run.finish"),
    (calls.run_acknowledge(1, 2, "so"), "run.acknowledge"),
    (calls.lease_acquire("d", ttl_ms=1), "lease.acquire"),
    (calls.lease_release("d"), "lease.release"),
    (calls.subscribe("d.R", interval_ms=20, when={"register": "d.R", "above": 1}, kinds=["op"]), "events.subscribe"),
    (calls.approvals(), "approval.list"),
    (calls.approval_show(1), "approval.show"),
    (calls.approve(1, "c"), "approval.approve"),
    (calls.deny(1, "r"), "approval.deny"),
    (calls.settle(1, "applied", "r"), "op.settle"),
    (calls.hold("d", "r"), "device.hold"),
    (calls.release("d", "r"), "device.release"),
    (calls.probe("b", 0x33), "bus.probe"),
    (calls.policy("d.R", who="uid:1", groups=["g"], role="agent"), "policy.show"),
    (calls.store_backup("/tmp/copy.db"), "store.backup"),
    (calls.store_prune(1), "store.prune"),
    (calls.reload(), "daemon.reload"),
    (calls.freeze("r"), "daemon.freeze"),
    (calls.thaw("r"), "daemon.thaw"),
]
MADE_HERE = {"op.get": {"request"}}  # asked by the client itself after a loss


def builders() -> dict[str, Callable[..., Any]]:
    """Every function of hwtool.calls that makes a call."""
    found = inspect.getmembers(calls, inspect.isfunction)
    return {n: f for n, f in found if str(f.__annotations__.get("return", "")).startswith("Call[") and n[0] != "_"}


@pytest.mark.parametrize(("call", "method"), WHOLE, ids=[f"{m}-{i}" for i, (_, m) in enumerate(WHOLE)])
def test_call_when_made_with_everything_then_the_daemon_takes_each_member(call: Call[Any], method: str) -> None:
    assert call.method == method
    sent = msgspec.json.encode(dict(call.params))
    msgspec.json.decode(sent, type=METHODS[method].params)  # raises for what is unknown or of the wrong form


def test_calls_when_compared_with_the_surface_then_every_method_and_every_parameter_is_there() -> None:
    assert {method for _, method in WHOLE} == METHODS.keys()
    for name, method in METHODS.items():
        given = {member for call, of in WHOLE if of == name for member in call.params}
        assert given | MADE_HERE.get(name, set()) == {f.encode_name for f in msgspec.structs.fields(method.params)}, (
            name
        )


def test_clients_when_compared_then_both_have_every_call() -> None:
    made = set(builders())
    own = {"run", "lease", "subscribe", "close", "perform", "ask", "new_key"}
    for kind in (Client, aio.Client):
        has = {n for n in vars(kind) if not n.startswith("_")}
        assert has - own == made - {"subscribe"}, kind
        assert own <= has


def test_calls_when_sorted_by_what_they_may_do_then_looks_are_those_without_key_and_change() -> None:
    changing = {m for m in METHODS if m.startswith(("approval.a", "approval.d", "daemon.", "run.", "lease.", "store."))}
    changing |= {"op.settle", "device.hold", "device.release", "events.subscribe", "bus.probe"}
    keyed = {n for n, m in METHODS.items() if "key" in m.params.__struct_fields__} - {"op.get", "op.wait"}
    assert METHODS.keys() - changing - keyed == LOOKS
    assert {n for n, m in METHODS.items() if "run" in m.params.__struct_fields__} - changing == IN_RUN
    for call, method in WHOLE:
        assert (call.key is not None) == (method in keyed)
        assert call.repeatable == (method in LOOKS or "dry_run" in call.params)


@pytest.mark.parametrize("wrong", [1.5, True, 2.0])
def test_value_when_it_is_a_float_or_a_bool_then_refused_before_anything_is_sent(wrong: Any) -> None:
    with pytest.raises(TypeError, match="no value"):
        calls.write("d.R", wrong, key=K)
    with pytest.raises(TypeError, match="no value"):
        calls.update("d.R", {"F": wrong}, key=K)
    with pytest.raises(TypeError, match="no value"):
        calls.sequence([{"do": "write", "register": "d.R", "value": wrong}], key=K)


def test_scaled_when_given_a_float_then_told_to_quote_it() -> None:
    with pytest.raises(TypeError, match=r'scaled\("1.2"\)'):
        scaled(1.2, "V")  # type: ignore[arg-type]
    assert scaled("1.2", "V", nearest=True) == {"scaled": "1.2", "unit": "V", "round": "nearest"}


def test_op_get_when_a_request_goes_without_key_then_refused() -> None:
    with pytest.raises(ValueError, match="request goes with key"):
        OpGetParams(id=1, request=AskedRequest("reg.write", {}))
