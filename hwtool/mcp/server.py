"""The SDK's server over stdio: the tool list, tool calls, and both eras of the protocol on one pipe.

Hosts in use open with `initialize`; the newest revision has no handshake and may ask `server/discover` first. The SDK
settles a connection's era by its first request and refuses the other one from then on, so a host that discovers and
then initializes would be turned away. Here a discover settles nothing: it is answered by a connection of its own, and
the first request of another kind decides. A host that closes its end gets what it asked for answered first.
"""

from __future__ import annotations

import json
from importlib import metadata
from typing import Any, Final

import anyio
import mcp_types as types
from mcp.server.lowlevel import Server
from mcp.server.stdio import stdio_server
from mcp.shared.exceptions import MCPError
from mcp.shared.message import SessionMessage

from hwtool.mcp.bridge import Bridge
from hwtool.mcp.tools import INSTRUCTIONS, Tool, offered, output_schema

DISCOVER: Final = "server/discover"


def shown(tool: Tool) -> types.Tool:
    """A tool as hosts list it."""
    hints = types.ToolAnnotations(
        read_only_hint=not tool.effect, destructive_hint=tool.effect, idempotent_hint=True, open_world_hint=False
    )
    return types.Tool(
        name=tool.name,
        description=tool.description,
        input_schema=tool.input_schema,
        output_schema=output_schema(),
        annotations=hints,
    )


def make_server(bridge: Bridge, *, read_only: bool) -> Server[Any]:
    """The server of one session; its tools do not change while it lives."""
    tools = {tool.name: tool for tool in offered(read_only)}

    async def list_tools(_: Any, __: types.PaginatedRequestParams | None) -> types.ListToolsResult:
        return types.ListToolsResult(tools=[shown(tool) for tool in tools.values()])

    async def call_tool(_: Any, params: types.CallToolRequestParams) -> types.CallToolResult:
        tool = tools.get(params.name)
        if tool is None:
            raise MCPError(types.INVALID_PARAMS, f"no tool is called {params.name!r}; there are {', '.join(tools)}")
        result = await bridge.answer(tool, params.arguments or {})
        text = types.TextContent(type="text", text=json.dumps(result))
        return types.CallToolResult(content=[text], structured_content=result, is_error=result["status"] == "failed")

    version = metadata.version("hwtool")
    return Server(
        "hwtool", version=version, instructions=INSTRUCTIONS, on_list_tools=list_tools, on_call_tool=call_tool
    )


async def serve_stdio(bridge: Bridge, *, read_only: bool) -> None:
    """Serve one host on standard input and output, until it hangs up."""
    server = make_server(bridge, read_only=read_only or await bridge.read_only())
    async with stdio_server() as (reading, writing):
        await serve_pipe(server, reading, writing)


async def serve_pipe(server: Server[Any], reading: Any, writing: Any) -> None:
    """Serve one host on a pair of streams; discovers before its first other request settle no era."""
    async for item in reading:
        if not _is_discover(item):
            await _serve_from(server, item, reading, writing)
            return
        await writing.send(await _discovered(server, item))
    await writing.aclose()


def _is_discover(item: SessionMessage | Exception) -> bool:
    message = item.message if isinstance(item, SessionMessage) else None
    return isinstance(message, types.JSONRPCRequest) and message.method == DISCOVER


async def _discovered(server: Server[Any], item: SessionMessage) -> SessionMessage:
    """The answer to one discover, by a connection of its own."""
    send_in, in_ = anyio.create_memory_object_stream[SessionMessage | Exception](1)
    out, receive_out = anyio.create_memory_object_stream[SessionMessage](1)
    answers: list[SessionMessage] = []
    async with receive_out, anyio.create_task_group() as group:
        group.start_soon(server.run, in_, out, server.create_initialization_options())
        await send_in.send(item)
        answers.append(await receive_out.receive())
        await send_in.aclose()
    return answers[0]


async def _serve_from(server: Server[Any], first: SessionMessage | Exception, reading: Any, writing: Any) -> None:
    """The rest of the pipe, beginning with what was read of it already."""
    send_in, in_ = anyio.create_memory_object_stream[SessionMessage | Exception]()
    out, receive_out = anyio.create_memory_object_stream[SessionMessage]()
    waiting: set[str] = set()  # numbers as text: 1 and "1" are one request to the SDK
    answered = anyio.Condition()

    async def relay() -> None:
        async with send_in:
            await forward(first)
            async for item in reading:
                await forward(item)
            async with answered:  # the host has said all: what was received is answered before the SDK hears of it
                while waiting:
                    await answered.wait()

    async def forward(item: SessionMessage | Exception) -> None:
        message = item.message if isinstance(item, SessionMessage) else None
        if isinstance(message, types.JSONRPCRequest):
            waiting.add(str(message.id))
        if isinstance(message, types.JSONRPCNotification) and message.method == "notifications/cancelled":
            waiting.discard(str((message.params or {}).get("requestId")))  # the SDK may not answer it
        await send_in.send(item)

    async def deliver() -> None:
        async with writing, receive_out:
            async for item in receive_out:
                await writing.send(item)
                if isinstance(item.message, types.JSONRPCResponse | types.JSONRPCError):
                    async with answered:
                        waiting.discard(str(item.message.id))
                        answered.notify_all()

    async with anyio.create_task_group() as group:
        group.start_soon(relay)
        group.start_soon(deliver)
        await server.run(in_, out, server.create_initialization_options())
