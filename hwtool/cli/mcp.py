"""The verb that hosts start: `hwtool mcp`, and what to put into their configuration."""

from __future__ import annotations

import asyncio
import os
import shutil
import signal
import sys

import click

from hwtool.cli.link import socket_option, usage
from hwtool.mcp.snippets import HOSTS, snippet
from hwtool.session import SYSTEM_DIRECTORY, socket_directory


@click.command()
@socket_option
@click.option("--read-only", is_flag=True, help="Offer no tool that can change a device.")
@click.option("--print-config", "host", type=click.Choice(HOSTS), help="Print what a host needs, and write nothing.")
def mcp(socket_: str | None, read_only: bool, host: str | None) -> None:
    """Serve a host that speaks MCP, on standard input and output."""
    if host is not None:
        where = os.path.abspath(socket_directory(socket_))  # noqa: PTH100  # as typed, links kept
        # hosts pass their own environment on, or none: what was found here is written down
        environment = {} if where == SYSTEM_DIRECTORY else {"HWTOOL_SOCKET": where}
        words = [*_program(), "mcp", *(["--read-only"] if read_only else [])]
        click.echo(snippet(host, words[0], words[1:], environment))
        return
    try:
        from hwtool.mcp.server import serve_stdio
    except ImportError as error:
        usage(f"hwtool mcp needs the MCP SDK ({error.name}): pip install 'hwtool[mcp]'")
    from hwtool.aio import Client
    from hwtool.mcp.bridge import TIMEOUT_S, Bridge

    async def serve() -> None:
        client = Client(socket_, timeout_s=TIMEOUT_S)
        try:
            await serve_stdio(Bridge(client), read_only=read_only)
        finally:
            await client.close()

    # nothing is kept here that could be lost, and the thread that reads standard input cannot be interrupted
    signal.signal(signal.SIGINT, signal.SIG_DFL)
    try:
        asyncio.run(serve())
    except BaseExceptionGroup as group:
        _, rest = group.split(BrokenPipeError)
        if rest is not None:
            raise rest from None
        # the host has gone without hanging up first; what it asked for goes on under its keys
        os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())


def _program() -> list[str]:
    """How to start this program from anywhere: as it was started now, if that was as a command."""
    started = os.path.abspath(sys.argv[0])  # noqa: PTH100
    if os.path.basename(started) == "hwtool" and os.access(started, os.X_OK):  # noqa: PTH119
        return [started]
    found = shutil.which("hwtool")
    return [sys.executable, "-m", "hwtool"] if found is None else [found]
