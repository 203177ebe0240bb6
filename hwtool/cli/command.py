"""The root of the command line: the verbs and where each one lives; a verb's module is loaded when it is used."""

from __future__ import annotations

from importlib import import_module
from typing import Final

import click

# verb: module and function; everyday verbs import nothing but the session and the error catalogue
VERBS: Final[dict[str, tuple[str, str]]] = {
    "serve": ("hwtool.cli.daemon", "serve"),
    "sim": ("hwtool.cli.daemon", "sim"),
    "demo": ("hwtool.cli.daemon", "demo"),
    "check": ("hwtool.cli.daemon", "check"),
    "board": ("hwtool.cli.daemon", "board_verb"),
    "describe": ("hwtool.cli.look", "describe"),
    "devices": ("hwtool.cli.look", "devices"),
    "find": ("hwtool.cli.look", "find"),
    "show": ("hwtool.cli.look", "show"),
    "journal": ("hwtool.cli.journal", "journal"),
    "metrics": ("hwtool.cli.look", "metrics"),
    "rpc": ("hwtool.cli.look", "rpc"),
    "read": ("hwtool.cli.act", "read"),
    "write": ("hwtool.cli.act", "write"),
    "update": ("hwtool.cli.act", "update"),
    "plan": ("hwtool.cli.act", "plan"),
    "dump": ("hwtool.cli.snapshot", "dump"),
    "diff": ("hwtool.cli.snapshot", "diff"),
    "apply": ("hwtool.cli.snapshot", "apply"),
    "watch": ("hwtool.cli.watch", "watch"),
    "sequence": ("hwtool.cli.act", "sequence"),
    "safe-state": ("hwtool.cli.act", "safe_state"),
    "op": ("hwtool.cli.act", "op"),
    "wait": ("hwtool.cli.act", "wait"),
    "contract": ("hwtool.cli.contract", "contract"),
    "run": ("hwtool.cli.runs", "run"),
    "lease": ("hwtool.cli.runs", "lease"),
    "settle": ("hwtool.cli.operate", "settle"),
    "hold": ("hwtool.cli.operate", "hold"),
    "release": ("hwtool.cli.operate", "release"),
    "probe": ("hwtool.cli.operate", "probe"),
    "approvals": ("hwtool.cli.operate", "approvals"),
    "approve": ("hwtool.cli.operate", "approve"),
    "deny": ("hwtool.cli.operate", "deny"),
    "policy": ("hwtool.cli.operate", "policy"),
    "reload": ("hwtool.cli.operate", "reload"),
    "freeze": ("hwtool.cli.operate", "freeze"),
    "thaw": ("hwtool.cli.operate", "thaw"),
    "store": ("hwtool.cli.store", "store"),
    "udev": ("hwtool.cli.host", "udev"),
    "units": ("hwtool.cli.host", "units"),
    "give-back": ("hwtool.cli.host", "give_back"),
    "doctor": ("hwtool.cli.doctor", "doctor"),
    "mcp": ("hwtool.cli.mcp", "mcp"),
}


class Verbs(click.Group):
    """A group that loads a verb's module when the verb is asked for."""

    def list_commands(self, ctx: click.Context) -> list[str]:
        """Every verb, in the order of the table."""
        return list(VERBS)

    def get_command(self, ctx: click.Context, cmd_name: str) -> click.Command | None:
        """Load one verb."""
        if cmd_name not in VERBS:
            return None
        module, function = VERBS[cmd_name]
        command: click.Command = getattr(import_module(module), function)
        return command


@click.group(cls=Verbs)
@click.version_option(package_name="hwtool", prog_name="hwtool")
def main() -> None:
    """Stand between callers and hardware registers: contracts, keys, durable outcomes."""
