"""Requests are decoded strictly, and the schemas come from the same types."""

from __future__ import annotations

from typing import Any

import msgspec
import pytest

from hwtool_contracts.messages import METHODS, Result

KEY = {"key": "test-0001"}
GOOD: dict[str, dict[str, Any]] = {
    "describe": {},
    "store.backup": {"to": "/tmp/copy.db"},
    "store.prune": {"keep": 10},
    "rpc.discover": {},
    "device.list": {},
    "reg.find": {"query": "GPIO"},
    "reg.contract": {"register": "gpio.OLATA"},
    "reg.read": {"registers": ["gpio.OLATA"]},
    "reg.read_effectful": {"register": "uart.RHR", "count": 2, **KEY},
    "reg.plan": {"method": "reg.write", "params": {}},
    "reg.write": {"register": "gpio.OLATA", "value": {"scaled": "1.2", "unit": "V"}, **KEY},
    "reg.update": {"register": "gpio.OLATA", "fields": {"P0": "high"}, **KEY},
    "sequence.run": {"steps": [{"do": "write", "register": "gpio.OLATA", "value": 1}], **KEY},
    "device.safe_state": {"device": "gpio", **KEY},
    "op.get": {"id": 1},
    "op.wait": {"key": "test-0001", "wait_ms": 5},
    "run.start": {"name": "bring-up"},
    "run.finish": {"run": 1},
    "run.acknowledge": {"run": 1, "error_id": 2, "how": "set by hand"},
    "lease.acquire": {"device": "gpio", "ttl_ms": 60_000},
    "lease.release": {"device": "gpio"},
    "metrics": {},
    "device.dump": {"device": "gpio", "registers": ["OLAT*"]},
    "events.subscribe": {
        "registers": ["gpio.OLATA"],
        "interval_ms": 50,
        "when": {"register": "gpio.OLATA", "above": 3},
    },
    "journal.read": {"limit": 5},
    "approval.list": {},
    "approval.show": {"approval": 3},
    "approval.approve": {"approval": 3, "code": "abc"},
    "approval.deny": {"approval": 3, "reason": "no"},
    "op.settle": {"id": 3, "verdict": "applied", "reason": "seen"},
    "device.hold": {"device": "gpio", "reason": "look"},
    "device.release": {"device": "gpio", "reason": "done"},
    "bus.probe": {"bus": "i2c0", "address": 0x33},
    "policy.show": {"register": "gpio.OLATA", "who": "uid:1000", "groups": ["staff"], "role": "operator"},
    "daemon.reload": {},
    "daemon.freeze": {"reason": "maintenance"},
    "daemon.thaw": {},
}


def test_methods_when_listed_then_each_has_an_example() -> None:
    assert set(GOOD) == set(METHODS)


@pytest.mark.parametrize("name", list(METHODS))
def test_params_when_right_then_decoded_and_when_a_member_is_unknown_then_refused(name: str) -> None:
    params = METHODS[name].params
    assert isinstance(msgspec.convert(GOOD[name], params), params)
    with pytest.raises(msgspec.ValidationError, match="unknown field"):
        msgspec.convert({**GOOD[name], "registr": 1}, params)


BAD: list[tuple[str, dict[str, Any], str]] = [
    ("reg.read", {"registers": []}, "length >= 1"),
    ("reg.read", {"registers": ["a"] * 33}, "length <= 32"),
    ("reg.read", {"registers": "a"}, "Expected `array`"),
    ("reg.write", {"register": "a", "value": 1}, "missing required field `key`"),
    ("reg.write", {"register": "a", "value": 1, "key": "short"}, "matching regex"),
    ("reg.write", {"register": "a", "value": 1, "key": "with blank"}, "matching regex"),
    ("reg.write", {"register": "a", "value": 1, "key": "newline-at-end\n"}, "matching regex"),
    ("reg.write", {"register": "a", "value": 1, "key": "x" * 121}, "matching regex"),
    ("reg.write", {"register": "a", **KEY}, "go together"),
    ("reg.write", {"register": "a", "value": 1, "registers": {"b": 1}, **KEY}, "exactly one of register and registers"),
    ("reg.write", {"register": "a", "value": {}, **KEY}, "exactly one of scaled"),
    ("reg.write", {"register": "a", "value": {"scaled": "1", "hex": "00"}, **KEY}, "exactly one of scaled"),
    ("reg.read_effectful", KEY, "exactly one of register and registers"),
    ("reg.update", {"register": "a", "fields": {}, **KEY}, "length >= 1"),
    ("op.get", {}, "exactly one of id and key"),
    ("op.wait", {"id": 1, "key": "test-0001"}, "exactly one of id and key"),
    ("op.wait", {"id": 1, "wait_ms": 25_001}, "<= 25000"),
    ("op.settle", {"id": 1, "verdict": "denied", "reason": "x"}, "Invalid enum value"),
    ("journal.read", {"limit": 201}, "<= 200"),
]


@pytest.mark.parametrize(("name", "params", "wanted"), BAD)
def test_params_when_wrong_then_the_message_says_what(name: str, params: dict[str, Any], wanted: str) -> None:
    with pytest.raises(msgspec.ValidationError, match=wanted):
        msgspec.convert(params, METHODS[name].params)


def test_result_when_encoded_then_members_that_do_not_apply_are_null_and_listings_absent() -> None:
    encoded = msgspec.to_builtins(Result(status="done", ok=True, effects="none"))
    assert encoded["error"] is None
    assert encoded["verdict"] is None
    assert "devices" not in encoded
    assert "retry" not in encoded
