"""What the bridge says where the daemon does not, without a daemon: never more than is known."""

from __future__ import annotations

import asyncio
from typing import Any, cast

import pytest

from hwtool.aio import Client
from hwtool.calls import Call
from hwtool.losses import ConnectionLost, NeverSent, NoDaemon, NoReply
from hwtool.mcp import bridge
from hwtool.mcp.bridge import DEADLINE_MS, Bridge
from hwtool.mcp.tools import TOOLS
from hwtool.replies import Result
from hwtool.session import ProtocolError

KEY = "core-00001"
WRITE = {"register": "d.R", "value": 1, "key": KEY}
READ = {"registers": ["d.R"]}
DONE = {"status": "done", "ok": True, "effects": "none"}


class Played:
    """A client that meets these outcomes, one after the other."""

    def __init__(self, *outcomes: Any) -> None:
        self.rest = list(outcomes)
        self.calls: list[Call[Any]] = []

    async def perform(self, call: Call[Any]) -> Any:
        self.calls.append(call)
        outcome = self.rest.pop(0)
        if isinstance(outcome, Exception):
            raise outcome
        return call.make(Result(outcome))

    async def describe(self) -> Any:
        outcome = self.rest.pop(0)
        if isinstance(outcome, Exception):
            raise outcome
        return await outcome


def bridged(played: Played) -> Bridge:
    return Bridge(cast(Client, played))


def answer(tool: str, arguments: dict[str, Any], *outcomes: Any) -> tuple[dict[str, Any], list[Call[Any]]]:
    """What a tool call is answered, and which calls were made for it."""
    played = Played(*outcomes)
    return asyncio.run(bridged(played).answer(TOOLS[tool], arguments)), played.calls


LOST: list[tuple[Exception, str, str, str | None]] = [
    (NoDaemon("x"), "failed", "none", "no_daemon"),
    (NeverSent("x"), "failed", "none", "never_sent"),
    (ConnectionLost("x"), "in_progress", "unknown", None),
    (NoReply("x"), "in_progress", "unknown", None),
    (ProtocolError("x"), "failed", "unknown", None),
]


@pytest.mark.parametrize(("error", "status", "effects", "reason"), LOST, ids=[type(e[0]).__name__ for e in LOST])
def test_write_when_there_is_no_answer_then_no_more_is_said_than_is_known(
    error: Exception, status: str, effects: str, reason: str | None
) -> None:
    result, _ = answer("hw_write", WRITE, error)
    assert (result["status"], result["effects"], result["key"]) == (status, effects, KEY)
    assert (result["error"] or {}).get("reason") == reason


@pytest.mark.parametrize(
    ("tool", "arguments", "status"), [("hw_write", WRITE, "in_progress"), ("hw_read", READ, "failed")]
)
def test_call_when_what_follows_a_loss_takes_for_ever_then_answered_all_the_same(
    monkeypatch: pytest.MonkeyPatch, tool: str, arguments: dict[str, Any], status: str
) -> None:
    class Waits(Played):
        async def perform(self, call: Call[Any]) -> Any:
            await asyncio.sleep(60)

    monkeypatch.setattr(bridge, "TIMEOUT_S", 0.05)
    result = asyncio.run(bridged(Waits()).answer(TOOLS[tool], arguments))
    assert result["status"] == status


@pytest.mark.parametrize("error", [e[0] for e in LOST], ids=[type(e[0]).__name__ for e in LOST])
def test_read_or_rehearsal_when_there_is_no_answer_then_failed_without_effects(error: Exception) -> None:
    for tool, arguments in (("hw_read", READ), ("hw_write", {**WRITE, "dry_run": True})):
        result, _ = answer(tool, arguments, error)
        assert (result["status"], result["effects"]) == ("failed", "none")


@pytest.mark.parametrize(
    ("tool", "arguments"),
    [
        ("hw_write", WRITE),
        ("hw_write", {"register": "d.R", "fields": {"F": 1}, "key": KEY}),
        ("hw_read", READ),
        ("hw_read_effectful", {**READ, "key": KEY}),
        ("hw_sequence", {"sequence": "d.S", "key": KEY}),
        ("hw_safe_state", {"device": "d", "key": KEY}),
    ],
)
def test_call_when_it_can_take_long_then_it_is_answered_within_a_hosts_patience(
    tool: str, arguments: dict[str, Any]
) -> None:
    _, (call,) = answer(tool, arguments, DONE)
    assert call.params["deadline_ms"] == DEADLINE_MS < 1000 * bridge.TIMEOUT_S < 60_000


def test_safe_state_when_it_has_a_key_then_that_one_and_else_a_fresh_one_that_is_told() -> None:
    _, (call,) = answer("hw_safe_state", {"device": "d", "key": KEY}, DONE)
    assert call.key == KEY
    keys = set()
    for _ in range(2):
        result, (call,) = answer("hw_safe_state", {"device": "d"}, ConnectionLost("x"))
        assert result["key"] == call.key
        keys.add(call.key)
    assert len(keys) == 2


def test_arguments_when_null_then_as_if_left_out() -> None:
    _, (call,) = answer("hw_write", {**WRITE, "mask": None, "fields": None, "registers": None}, DONE)
    assert (call.method, sorted(call.params)) == ("reg.write", ["deadline_ms", "key", "register", "value"])


@pytest.mark.parametrize(
    "value", [float("nan"), float("inf"), "\ud800", "x" * (1 << 20)], ids=["nan", "inf", "half", "long"]
)
def test_arguments_when_they_cannot_be_sent_then_invalid_args_and_nothing_is_asked(value: Any) -> None:
    result, calls = answer("hw_write", {**WRITE, "value": value})
    assert (result["error"]["code"], result["effects"], calls) == ("invalid_args", "none", [])


def test_description_when_the_devices_cannot_be_listed_then_said_and_not_an_empty_bench() -> None:
    result, _ = answer("hw_describe", {}, DONE, NoDaemon("gone"))
    assert result["devices"] is None
    assert result["warnings"] == ["devices_unknown: gone"]


def test_read_only_when_it_cannot_be_asked_then_the_daemon_decides(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(bridge, "FIRST_S", 0.05)

    async def told(read_only: bool) -> dict[str, Any]:
        return {"read_only": read_only}

    for outcome, expected in (
        (NoDaemon("x"), False),
        (ConnectionLost("x"), False),
        (ProtocolError("x"), False),
        (asyncio.sleep(60), False),
        (told(True), True),
        (told(False), False),
    ):
        assert asyncio.run(bridged(Played(outcome)).read_only()) is expected
