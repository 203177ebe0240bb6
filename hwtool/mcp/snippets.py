"""What to put into a host's configuration, printed and never written: the program to start, and where the sockets are.

Source: the hosts' own forms: `mcpServers` (Claude, .mcp.json and claude_desktop_config.json), `[mcp_servers.NAME]`
(Codex, ~/.codex/config.toml), `servers` with a type (VS Code, .vscode/mcp.json).
"""

from __future__ import annotations

import json
from typing import Any, Final

HOSTS: Final = ("claude", "codex", "vscode")
NAME: Final = "hwtool"


def snippet(host: str, command: str, words: list[str], environment: dict[str, str]) -> str:
    """The snippet of a host.

    Args:
        command: the program, as an absolute path: hosts search another PATH than a shell does.
        words: its arguments.
        environment: what it needs of the environment, where hosts do not pass it on.
    """
    if host == "codex":
        lines = [f"[mcp_servers.{NAME}]", f"command = {json.dumps(command)}", f"args = {json.dumps(words)}"]
        pairs = ", ".join(f"{name} = {json.dumps(value)}" for name, value in environment.items())
        return "\n".join([*lines, *([f"env = {{ {pairs} }}"] if environment else [])])
    entry: dict[str, Any] = {"type": "stdio"} if host == "vscode" else {}
    entry |= {"command": command, "args": words} | ({"env": environment} if environment else {})
    return json.dumps({"servers" if host == "vscode" else "mcpServers": {NAME: entry}}, indent=2)
