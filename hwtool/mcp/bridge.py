"""From a tool call to the daemon and back: one result of the daemon's shape for everything that can happen. No SDK.

The bridge decides nothing about hardware and remembers nothing but its connection. What the daemon cannot say because
it is away is said in the same shape, and never as more than is known:

    nobody listens, or the record has no such key    failed, unavailable, effects none: the same call again
    the reply of a keyed call was lost               in_progress, effects unknown: hw_operation, or the same call again
"""

from __future__ import annotations

import asyncio
import json
from collections.abc import Mapping
from typing import Any, Final

from hwtool.aio import Client
from hwtool.calls import Call
from hwtool.failures import CallFailed
from hwtool.losses import ConnectionLost, NeverSent, NoDaemon
from hwtool.mcp.tools import TOOL_OF, Params, Tool, request_of, wrong
from hwtool.recovering import new_key
from hwtool.replies import Result, thawed
from hwtool.session import MAX_LINE_BYTES, ProtocolError
from hwtool_contracts.errors import Code, DomainError, Retry

DEADLINE_MS: Final = 45_000  # hosts stop waiting for a tool after a minute or so; nothing is cancelled then
RETRY_MS: Final = 1000
TIMEOUT_S: Final = 55.0  # of one answer of the daemon: over its deadline, under the hosts' patience
FIRST_S: Final = 5.0
ENVELOPE_BYTES: Final = 200


class Bridge:
    """Answers tool calls over one connection to the daemon."""

    def __init__(self, client: Client) -> None:
        self._client = client

    async def read_only(self) -> bool:
        """Whether the daemon was started read-only; False while it cannot be asked, or does not answer."""
        try:
            async with asyncio.timeout(FIRST_S):
                return bool((await self._client.describe())["read_only"])
        except (CallFailed, ConnectionLost, NoDaemon, ProtocolError, TimeoutError):
            return False

    async def answer(self, tool: Tool, arguments: Mapping[str, Any]) -> Params:
        """The result of a tool call, as plain JSON."""
        key = arguments.get("key")
        try:
            method, params = request_of(tool, arguments)
            if method == "device.safe_state" and "key" not in params:
                params["key"] = key = new_key("mcp-")
            if "deadline_ms" not in params and method in TAKES_DEADLINE:
                params["deadline_ms"] = DEADLINE_MS
            _check_size(params)
            result = await self._asked(Call(method, params, _itself))
            if method == "describe" and result["status"] == "done":
                listed = await self._asked(Call("device.list", {}, _itself))
                result["devices"] = listed.get("devices")
                if listed["status"] == "failed":
                    result["warnings"] = [*(result.get("warnings") or ()), f"devices_unknown: {listed['summary']}"]
        except DomainError as error:
            result = failed(error, key)
        for holder in (result, result.get("error") or {}):
            if holder.get("next") is not None:
                holder["next"] = for_tools(holder["next"])
        return result

    async def _asked(self, call: Call[Result]) -> Params:
        """A call to the daemon, and its result whatever it is."""
        if call.method == "op.wait":  # a person is not waited for
            known = await self._asked(Call("op.get", {n: v for n, v in call.params.items() if n != "wait_ms"}, _itself))
            if known["status"] != "in_progress":
                return known
        try:
            async with asyncio.timeout(TIMEOUT_S):  # of all that follows a loss, too
                return _json(await self._client.perform(call))
        except CallFailed as error:
            return _json(error.result)
        except NeverSent as error:
            return failed(_unavailable(str(error), "never_sent"), call.key)
        except NoDaemon as error:
            return failed(_unavailable(str(error)), call.key)
        except (ConnectionLost, TimeoutError) as error:
            if call.key is None or call.repeatable:
                return failed(_unavailable(str(error)), call.key)
            return _not_known(call.key, str(error) or "no answer yet")
        except ProtocolError as error:
            effects = "none" if call.key is None or call.repeatable else "unknown"
            return failed(DomainError(Code.INTERNAL, f"{call.method}: {error}"), call.key, effects)


TAKES_DEADLINE: Final = frozenset(
    {"reg.read", "reg.read_effectful", "reg.write", "reg.update", "sequence.run", "device.safe_state"}
)


def _itself(result: Result) -> Result:
    return result


def _json(result: Result) -> Params:
    plain: Params = thawed(result.json)
    return plain


def _check_size(params: Params) -> None:
    """Refuse what the daemon's protocol cannot carry in one line.

    Raises:
        DomainError: invalid_args.
    """
    try:
        size = len(json.dumps(params, ensure_ascii=False, allow_nan=False).encode())
    except ValueError as error:
        raise wrong("$", "numbers and text that JSON can carry", str(error)) from error
    most = MAX_LINE_BYTES - ENVELOPE_BYTES
    if size > most:
        raise wrong("$", f"arguments of at most {most} bytes", f"{size} bytes")


def _unavailable(why: str, reason: str = "no_daemon") -> DomainError:
    started = "an operator starts the daemon (hwtool serve); then make" if reason == "no_daemon" else "make"
    hint = f"{started} the same call again"
    return DomainError(Code.UNAVAILABLE, why, hint=hint, reason=reason, retry_after_ms=RETRY_MS)


def failed(error: DomainError, key: object, effects: str = "none") -> Params:
    """A failure that the daemon did not say."""
    shown = key if isinstance(key, str) else None
    told = {"status": "failed", "ok": False, "effects": effects, "summary": error.message, "key": shown}
    return told | {"values": None, "warnings": [], "error": error.as_object()}


def _not_known(key: str, why: str) -> Params:
    told: Params = {"status": "in_progress", "ok": False, "effects": "unknown", "summary": why, "key": key}
    then = {"action": "call", "method": "op.get", "params": {"key": key}}
    return told | {"values": None, "warnings": [], "error": None, "retry": Retry.WAIT_SAME_KEY.value, "next": then}


def for_tools(step: Mapping[str, Any]) -> Params:
    """A next action with the tool that does it, beside the daemon's own method."""
    tool = TOOL_OF.get(str(step.get("method")))
    return {**step, "tool": tool, "arguments": step.get("params") or {}} if tool is not None else dict(step)
