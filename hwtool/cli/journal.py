"""The verb about the journal: its newest entries, what comes, and a check of its files."""

from __future__ import annotations

import json
import sys
from pathlib import Path
from typing import Any

import click

from hwtool.cli.link import finish, json_option, link, socket_option, usage
from hwtool.connection import Connection
from hwtool.timeline import timeline


@click.group(invoke_without_command=True)
@click.option("--device", help="Only entries about this device.")
@click.option("--since", type=int, help="Only entries after this sequence number.")
@click.option("--limit", type=click.IntRange(1, 200), default=100, show_default=True)
@click.option("--operator", is_flag=True, help="Use the operator's socket: entries of others are shown whole.")
@click.option("--follow", is_flag=True, help="Go on with what is recorded from now on; with --json a line each.")
@socket_option
@json_option
@click.pass_context
def journal(
    ctx: click.Context,
    device: str | None,
    since: int | None,
    limit: int,
    operator: bool,
    follow: bool,
    socket_: str | None,
    as_json: bool,
) -> None:
    """Show what was attempted and how it ended: the newest entries, or those after --since."""
    if ctx.invoked_subcommand is not None:
        return

    def show_entries(result: dict[str, Any]) -> None:
        for entry in result["entries"]:
            click.echo(timeline(entry))
        if result.get("cursor"):
            click.echo(f"… more: --since {result['cursor']}", err=True)

    params = {"device": device, "since": since, "limit": limit}
    with link(socket_, "operator" if operator else "agent") as client:
        if follow:  # before the newest are read: nothing is missed between
            subscribed = client.ask("events.subscribe", {"kinds": ["op", "hold", "run"]})
            if subscribed["status"] == "failed":
                finish(subscribed, as_json)
        result = client.ask("journal.read", {k: v for k, v in params.items() if v is not None})
        if not follow or result["status"] == "failed":
            finish(result, as_json, show_entries)
        entries = result["entries"]
        while result["cursor"] is not None:  # all that is between --since and now
            result = client.ask(
                "journal.read", {"limit": limit, "cursor": result["cursor"]} | ({"device": device} if device else {})
            )
            if result["status"] == "failed":
                finish(result, as_json)
            entries += result["entries"]
        _follow(client, entries, device, as_json)


@journal.command("verify")
@click.argument("paths", nargs=-1, required=True, metavar="FILE|DIRECTORY...")
def verify(paths: tuple[str, ...]) -> None:
    """Check the journal's JSON-lines files without the daemon: hashes, order, gaps, seals; exit 1 if one is wrong."""
    from hwtool.journal_files import faults_of  # only here: the other verbs start without the store

    files = [f for p in map(Path, paths) for f in (sorted(p.rglob("*.jsonl")) if p.is_dir() else [p])]
    if not files:
        usage(f"no journal file is in {', '.join(paths)}: the store's folder `journal` has them")
    try:
        rows, faults = faults_of(files, whole=all(Path(p).is_dir() for p in paths))
    except OSError as error:
        usage(f"{error.filename}: {error.strerror}")
    for fault in faults:
        click.echo(fault)
    click.echo(f"{rows} row(s) in {len(files)} file(s), {len(faults)} fault(s)", err=True)
    sys.exit(1 if faults else 0)


def _follow(client: Connection, entries: list[dict[str, Any]], device: str | None, as_json: bool) -> None:
    """The entries that are there, then those that come; each once."""
    last = 0

    def told(entry: dict[str, Any]) -> None:
        nonlocal last
        about = entry.get("device") == device or device in (entry.get("devices") or [])
        if entry["seq"] > last and (device is None or about):
            click.echo(json.dumps(entry) if as_json else timeline(entry))
        last = max(last, entry["seq"])
        sys.stdout.flush()

    try:
        for entry in entries:
            told(entry)
        for event in client.events():
            told(event["entry"])
    except BrokenPipeError:
        sys.stderr.close()  # the reader has seen enough
        sys.exit(0)
