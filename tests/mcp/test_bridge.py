"""`hwtool mcp` through the SDK's own client, over stdio, in every mode it offers."""

from __future__ import annotations

import asyncio
import json
import subprocess
import sys
from collections.abc import AsyncIterator, Callable, Coroutine
from contextlib import asynccontextmanager
from typing import Any

import jsonschema
import mcp_types as types
import pytest
from mcp.client import Client
from mcp.client.stdio import StdioServerParameters
from mcp.shared.exceptions import MCPError

from hwtool.mcp.tools import TOOLS, output_schema
from hwtool_contracts.schema import DIALECT, schemas
from tests.bench import Bench, come_about
from tests.running import LIMIT_S, command_line

MODES = ("legacy", "auto", "2026-07-28")
KEY = "mcp-0001-a"
OUTPUT = jsonschema.Draft202012Validator({"$schema": DIALECT, **output_schema()})
WHOLE = jsonschema.Draft202012Validator(
    {"$schema": DIALECT, "$ref": "#/$defs/Result", "$defs": schemas("#/$defs/")}
)  # the daemon's own, with the closed union of errors


@asynccontextmanager
async def host(bench: Bench, mode: str = "auto", *words: str) -> AsyncIterator[Client]:
    """A host that has started the bridge."""
    environment = {"HWTOOL_SOCKET": str(bench.daemon.sockets)}
    server = StdioServerParameters(command=sys.executable, args=["-m", "hwtool", "mcp", *words], env=environment)
    async with Client(server, mode=mode) as client:
        yield client


async def call(client: Client, tool_: str, /, **arguments: Any) -> dict[str, Any]:
    """One tool call; whatever came has to be of the promised shape."""
    came = await client.call_tool(tool_, arguments)
    assert isinstance(came, types.CallToolResult)
    result: dict[str, Any] = came.structured_content
    OUTPUT.validate(result)
    WHOLE.validate(result)
    (content,) = came.content
    assert isinstance(content, types.TextContent)
    assert json.loads(content.text) == result
    assert came.is_error == (result["status"] == "failed")
    return result


def run(scenario: Callable[[], Coroutine[Any, Any, None]]) -> None:
    """Within a limit: a hung pipe is a failed test."""

    async def limited() -> None:
        async with asyncio.timeout(LIMIT_S * 2):
            await scenario()

    asyncio.run(limited())


@pytest.mark.parametrize("mode", MODES)
def test_session_when_opened_in_any_mode_then_tools_are_listed_and_called(bench: Bench, mode: str) -> None:
    async def scenario() -> None:
        async with host(bench, mode) as client:
            tools = (await client.list_tools()).tools
            assert [t.name for t in tools] == list(TOOLS)
            described = await call(client, "hw_describe")
            assert [d["name"] for d in described["devices"]] == ["gpio", "uart"]
            prefix = described["describe"]["key_prefix"]
            read = await call(client, "hw_read", registers=["uart.RXLVL"])
            assert read["values"][0]["raw"] == "0x05"
            done = await call(client, "hw_write", register="gpio.OLATA", value="0x40", key=prefix + "lamp-on")
            assert (done["effects"], done["replayed"]) == ("applied", False)
            again = await call(client, "hw_write", register="gpio.OLATA", value="0x40", key=prefix + "lamp-on")
            assert (again["effects"], again["replayed"]) == ("applied", True)

    run(scenario)
    assert bench.executed("OLATA.write") == 1


def test_tools_when_listed_then_annotated_by_what_they_can_do_and_within_their_bytes(bench: Bench) -> None:
    async def scenario() -> None:
        async with host(bench) as client:
            tools = (await client.list_tools()).tools
            effects = {"hw_read_effectful", "hw_write", "hw_sequence", "hw_safe_state"}
            for tool in tools:
                hints = tool.annotations
                assert hints is not None
                told = (hints.read_only_hint, hints.destructive_hint, hints.idempotent_hint, hints.open_world_hint)
                assert told == (tool.name not in effects, tool.name in effects, True, False), tool.name
                jsonschema.Draft202012Validator.check_schema(tool.input_schema)
                assert tool.output_schema == output_schema()
            assert len(tools) == 11
            size = sum(_size(t) for t in tools)
            print(f"names, descriptions and input schemas: {size} bytes")
            assert size < 8000
            instructions = client.instructions
            assert instructions is not None
            assert "pending_approval" in instructions

    run(scenario)


def _size(tool: types.Tool) -> int:
    schema = json.dumps(tool.input_schema, ensure_ascii=False)
    return sum(len(text.encode()) for text in (tool.name, tool.description or "", schema))


@pytest.mark.parametrize("by", ["the bridge", "the daemon"])
def test_tools_when_read_only_then_none_can_change_a_device(bench: Bench, by: str) -> None:
    async def scenario() -> None:
        async with host(bench, "auto", *(["--read-only"] if by == "the bridge" else [])) as client:
            names = [t.name for t in (await client.list_tools()).tools]
            assert names == [n for n, t in TOOLS.items() if not t.effect]
            assert len(names) == 7
            with pytest.raises(MCPError, match="no tool is called 'hw_write'"):
                await client.call_tool("hw_write", {"register": "gpio.OLATA", "value": 1, "key": KEY})
            assert (await call(client, "hw_read", registers=["gpio.OLATA"]))["ok"]

    if by == "the daemon":
        bench.daemon.stop()
        bench.daemon.more = ["--read-only"]
        bench.daemon.start()
    run(scenario)
    assert bench.executed("OLATA.write") == 0


WRONG: list[tuple[str, dict[str, Any], str, str]] = [
    ("hw_read", {}, "$.registers", "an argument that is needed"),
    ("hw_read", {"registers": ["gpio.OLATA"], "key": KEY}, "$.key", "registers"),
    ("hw_read", {"registers": "gpio.OLATA"}, "$.registers", ""),
    ("hw_write", {"register": "gpio.OLATA", "value": 1}, "$.key", "an argument that is needed"),
    ("hw_write", {"register": "gpio.OLATA", "vaule": 1, "key": KEY}, "$.vaule", "value"),
    ("hw_write", {"register": "gpio.OLATA", "value": 1, "fields": {"P0": 1}, "key": KEY}, "$.value", "not both"),
    ("hw_write", {"register": "gpio.OLATA", "value": 1.5, "key": KEY}, "$.value", ""),
    ("hw_write", {"register": "gpio.OLATA", "value": 1, "key": "x"}, "$.key", ""),
    ("hw_plan", {"tool": "hw_read", "arguments": {}}, "$.tool", "hw_write"),
    ("hw_plan", {"tool": "hw_write", "arguments": {"registr": 1, "key": KEY}}, "$.arguments.registr", "register"),
    ("hw_plan", {"tool": "hw_write", "arguments": []}, "$.arguments", "arguments of that tool"),
    ("hw_operation", {}, "$", ""),
]


def test_arguments_when_wrong_then_invalid_args_that_name_the_place(bench: Bench) -> None:
    async def scenario() -> None:
        async with host(bench) as client:
            for tool, arguments, path, expected in WRONG:
                result = await call(client, tool, **arguments)
                error = result["error"]
                assert error is not None, arguments
                assert (error["code"], error["path"], result["effects"]) == ("invalid_args", path, "none"), error
                assert expected in str(error["expected"]), arguments
            with pytest.raises(MCPError, match="no tool is called 'hw_poke'"):
                await client.call_tool("hw_poke", {})
            huge = await call(client, "hw_write", register="gpio.OLATA", value={"hex": "00" * 600_000}, key=KEY)
            assert (huge["error"]["code"], huge["effects"]) == ("invalid_args", "none")
            assert (await call(client, "hw_read", registers=["gpio.OLATA"]))["ok"]

    run(scenario)
    assert bench.executed("OLATA.write") == 0


def test_tools_when_each_is_used_then_each_does_what_it_says(bench: Bench) -> None:
    async def scenario() -> None:
        async with host(bench) as client:
            guide = await call(client, "hw_describe", topic="agents")
            assert guide["describe"]["text"].startswith("# hwtool for agents")
            found = await call(client, "hw_find", query="level", device="uart", limit=1)
            assert (found["matches"][0]["register"].startswith("uart."), "cursor" in found) == (True, True)
            contract = await call(client, "hw_contract", register="uart.RHR")
            assert "pop" in json.dumps(contract["contract"])
            refused = await call(client, "hw_read", registers=["uart.RHR"])
            assert refused["error"]["rule"] == "read_has_side_effects"
            update = {"register": "gpio.OLATA", "fields": {"P6": "high"}, "key": KEY}
            plan = await call(client, "hw_plan", tool="hw_write", arguments=update)
            assert plan["transfers"][-1]["data"] == "40"
            done = await call(client, "hw_write", **update)
            assert done["values"][0]["fields"]["P6"]["name"] == "high"
            taken = await call(client, "hw_read_effectful", registers=["uart.RHR"], key=KEY + "2")
            assert (taken["effects"], len(taken["values"])) == ("applied", 1)
            steps = [
                {"do": "write", "register": "gpio.OLATB", "value": 3},
                {"do": "expect", "register": "gpio.OLATB", "equals": 3},
            ]
            assert (await call(client, "hw_sequence", steps=steps, key=KEY + "3"))["verdict"] == "applied"
            safe = await call(client, "hw_safe_state", device="gpio")
            assert (safe["verdict"], safe["key"][:4]) == ("applied", "mcp-")
            known = await call(client, "hw_operation", key=KEY)
            assert (known["op"]["state"], known["verdict"]) == ("DONE", "applied")
            assert (await call(client, "hw_operation", id=known["id"], wait_ms=10))["verdict"] == "applied"
            entries = (await call(client, "hw_journal", device="gpio"))["entries"]
            assert {"intent", "outcome"} <= {e["what"] for e in entries}
            assert (await call(client, "hw_operation", key="mcp-never"))["error"]["code"] == "not_found"

    run(scenario)


def test_calls_when_a_person_must_agree_then_answered_at_once_and_no_call_waits_for_one(bench: Bench) -> None:
    policy = '[[policy]]\nwho = "*"\ndevice = "gpio"\nregister = "OLATB"\nwrite = "approval"\n'

    async def scenario() -> None:
        async with host(bench) as client:
            write = {"register": "gpio.OLATB", "value": 1, "key": KEY}
            asked = await call(client, "hw_write", **write)
            assert (asked["status"], asked["retry"]) == ("pending_approval", "after_approval")
            async with asyncio.timeout(5):
                waited = await call(client, "hw_operation", key=KEY, wait_ms=25_000)
            assert waited["status"] == "pending_approval"
            with bench.daemon.hw("operator") as person:
                screen = person.approval_show(asked["approval"])
                await asyncio.sleep(1.6)  # as a person reads
                person.approve(asked["approval"], screen["code"])
            assert (await call(client, "hw_write", **write))["verdict"] == "applied"

    bench.daemon.stop()
    board = bench.daemon.directory / "board.toml"
    board.write_text(board.read_text() + policy)
    bench.daemon.start()
    run(scenario)
    assert bench.executed("OLATB.write") == 1


@pytest.mark.parametrize("daemon_too", [False, True], ids=["daemon lives", "daemon killed too"])
def test_bridge_when_killed_after_the_dispatch_then_the_same_call_replays(bench: Bench, daemon_too: bool) -> None:
    write = {"register": "gpio.OLATA", "value": 0x55, "key": KEY}

    async def killed() -> None:
        bench.fault("hang", access="write", hang_s=1.5)
        environment = {"HWTOOL_SOCKET": str(bench.daemon.sockets)}
        process = await asyncio.create_subprocess_exec(
            sys.executable, "-m", "hwtool", "mcp", stdin=asyncio.subprocess.PIPE, stdout=asyncio.subprocess.PIPE,
            env=environment,
        )  # fmt: skip
        assert process.stdin is not None
        for line in (INITIALIZE, INITIALIZED, request(2, "tools/call", name="hw_write", arguments=write)):
            process.stdin.write(json.dumps(line).encode() + b"\n")
        await process.stdin.drain()
        await asyncio.to_thread(come_about, lambda: bench.executed("OLATA.write"))
        process.kill()
        await process.wait()

    run(killed)
    if daemon_too:
        bench.daemon.kill()
    bench.sim.ask({"control": "clear_faults"})
    if daemon_too:
        bench.daemon.start()

    async def again() -> None:
        async with host(bench) as client:
            result = await call(client, "hw_write", **write)
            assert (result["replayed"], result["verdict"]) == (True, "applied")

    run(again)
    assert bench.executed("OLATA.write") == 1


def request(number: int, method: str, **params: Any) -> dict[str, Any]:
    """A request of the protocol."""
    return {"jsonrpc": "2.0", "id": number, "method": method, "params": params}


INITIALIZE = request(
    1, "initialize", protocolVersion="2025-06-18", capabilities={}, clientInfo={"name": "test", "version": "1"}
)
INITIALIZED = {"jsonrpc": "2.0", "method": "notifications/initialized"}


def test_bridge_when_the_daemon_is_away_then_said_in_the_same_shape_and_the_next_call_works(bench: Bench) -> None:
    async def scenario() -> None:
        async with host(bench) as client:
            await asyncio.to_thread(bench.daemon.stop)
            away = await call(client, "hw_write", register="gpio.OLATA", value=1, key=KEY)
            assert (away["error"]["code"], away["error"]["reason"], away["effects"]) == (
                "unavailable",
                "no_daemon",
                "none",
            )
            assert (away["error"]["retry"], away["error"]["next"]["action"]) == ("same_key", "wait")
            assert (await call(client, "hw_read", registers=["gpio.OLATA"]))["error"]["code"] == "unavailable"
            await asyncio.to_thread(bench.daemon.start)
            assert (await call(client, "hw_write", register="gpio.OLATA", value=1, key=KEY))["verdict"] == "applied"

    run(scenario)


def test_bridge_when_the_daemon_dies_under_a_call_then_unknown_and_the_tool_that_looks(
    bench: Bench,
) -> None:
    async def scenario() -> None:
        bench.fault("hang", access="write", hang_s=1.5)
        async with host(bench) as client:
            asked = asyncio.create_task(call(client, "hw_write", register="gpio.OLATA", value=0x55, key=KEY))
            await asyncio.to_thread(come_about, lambda: bench.executed("OLATA.write"))
            await asyncio.to_thread(bench.daemon.kill)
            lost = await asked
            assert (lost["status"], lost["effects"], lost["retry"]) == ("in_progress", "unknown", "wait_same_key")
            assert (lost["next"]["tool"], lost["next"]["arguments"]) == ("hw_operation", {"key": KEY})
            bench.sim.ask({"control": "clear_faults"})
            await asyncio.to_thread(bench.daemon.start)
            assert (await call(client, "hw_operation", key=KEY))["verdict"] == "applied"

    run(scenario)
    assert bench.executed("OLATA.write") == 1


def test_error_when_it_names_a_next_action_then_with_the_tool_for_it(bench: Bench) -> None:
    bench.fault("reply_lost", access="write")

    async def scenario() -> None:
        async with host(bench) as client:
            unknown = await call(client, "hw_write", register="gpio.OLATA", value=0x55, key=KEY)
            assert unknown["error"]["code"] == "outcome_unknown"
            then = unknown["error"]["next"]
            assert (then["method"], then["tool"], then["arguments"]) == (
                "op.get",
                "hw_operation",
                {"id": unknown["id"]},
            )
            assert (await call(client, then["tool"], **then["arguments"]))["id"] == unknown["id"]

    run(scenario)


def piped(bench: Bench, *lines: dict[str, Any]) -> dict[Any, dict[str, Any]]:
    """A host that writes everything and closes its end; the answers by number."""
    done = subprocess.run(
        [sys.executable, "-m", "hwtool", "mcp"],
        env={"HWTOOL_SOCKET": str(bench.daemon.sockets)},
        input="".join(json.dumps(line) + "\n" for line in lines),
        capture_output=True,
        text=True,
        timeout=LIMIT_S,
        check=False,
    )
    assert done.returncode == 0, done.stderr
    answers = [json.loads(line) for line in done.stdout.splitlines()]
    return {answer["id"]: answer for answer in answers}


def test_host_when_it_closes_its_end_then_what_it_asked_for_is_answered_first(bench: Bench) -> None:
    bench.fault("hang", access="write", hang_s=0.6)
    write = request(2, "tools/call", name="hw_write", arguments={"register": "gpio.OLATA", "value": 1, "key": KEY})
    answers = piped(bench, INITIALIZE, INITIALIZED, write, {"no": "request"}, request(3, "ping"))
    assert answers[2]["result"]["structuredContent"]["effects"] == "applied"
    assert answers[3]["result"] == {}


def test_host_when_it_cancels_a_call_and_closes_its_end_then_the_bridge_ends_and_the_write_goes_on(
    bench: Bench,
) -> None:
    bench.fault("hang", access="write", hang_s=0.6)
    write = request(2, "tools/call", name="hw_write", arguments={"register": "gpio.OLATA", "value": 1, "key": KEY})
    cancel = {"jsonrpc": "2.0", "method": "notifications/cancelled", "params": {"requestId": 2}}
    piped(bench, INITIALIZE, INITIALIZED, write, request(3, "ping"), cancel)
    with bench.daemon.hw() as hw:
        again = hw.write("gpio.OLATA", 1, key=KEY)
    assert (again.verdict, bench.executed("OLATA.write")) == ("applied", 1)


def test_config_when_printed_then_in_the_hosts_form_and_nothing_is_written(bench: Bench) -> None:
    import tomllib

    before = sorted(bench.daemon.sockets.iterdir())
    claude, codex, vscode = (
        command_line(bench.daemon, "mcp", "--print-config", host).stdout for host in ("claude", "codex", "vscode")
    )
    entries = [
        json.loads(claude)["mcpServers"]["hwtool"],
        tomllib.loads(codex)["mcp_servers"]["hwtool"],
        json.loads(vscode)["servers"]["hwtool"],
    ]
    for entry in entries:
        assert (entry["args"][-1], entry["env"]) == ("mcp", {"HWTOOL_SOCKET": str(bench.daemon.sockets)})
        assert entry["command"].startswith("/")
    assert entries[2]["type"] == "stdio"
    assert sorted(bench.daemon.sockets.iterdir()) == before
