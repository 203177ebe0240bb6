"""The verb that hosts start: `hwtool mcp`, and what to put into their configuration."""

from __future__ import annotations

import asyncio
import os
import shutil
import sys

import click

from hwtool.cli.link import socket_option, usage
from hwtool.mcp.snippets import HOSTS, snippet


@click.command()
@socket_option
@click.option("--read-only", is_flag=True, help="Offer no tool that can change a device.")
@click.option("--print-config", "host", type=click.Choice(HOSTS), help="Print what a host needs, and write nothing.")
def mcp(socket_: str | None, read_only: bool, host: str | None) -> None:
    """Serve a host that speaks MCP, on standard input and output."""
    where = socket_ or os.environ.get("HWTOOL_SOCKET")
    if host is not None:
        words = ["mcp", *(["--read-only"] if read_only else [])]
        environment = {} if where is None else {"HWTOOL_SOCKET": os.path.abspath(where)}  # noqa: PTH100  # as typed
        click.echo(snippet(host, shutil.which("hwtool") or os.path.abspath(sys.argv[0]), words, environment))  # noqa: PTH100
        return
    try:
        from hwtool.mcp.server import serve_stdio
    except ImportError as error:
        usage(f"hwtool mcp needs the MCP SDK ({error.name}): pip install 'hwtool[mcp]'")
    from hwtool.aio import Client
    from hwtool.mcp.bridge import Bridge

    async def serve() -> None:
        client = Client(socket_)
        try:
            await serve_stdio(Bridge(client), read_only=read_only)
        finally:
            await client.close()

    asyncio.run(serve())
