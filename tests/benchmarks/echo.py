"""The reference of a round trip: a bare uvloop protocol on a Unix socket that sends back what it gets."""

from __future__ import annotations

import asyncio
import sys
from typing import cast

import uvloop


class Echo(asyncio.Protocol):
    """Sends back what it gets."""

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        """Keep the way back."""
        self._transport = cast(asyncio.Transport, transport)

    def data_received(self, data: bytes) -> None:
        """Send it back."""
        self._transport.write(data)


async def main(path: str) -> None:
    """Serve until ended."""
    server = await asyncio.get_running_loop().create_unix_server(Echo, path)
    print("ready", flush=True)
    await server.serve_forever()


if __name__ == "__main__":
    uvloop.run(main(sys.argv[1]))
