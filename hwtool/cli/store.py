"""Verbs about the store: backup and prune while the daemon runs; verify, and accept an older one, while it does not.

`verify` and `accept-rollback` need no daemon, and the second refuses to work beside one.
"""

from __future__ import annotations

import getpass
import json
import os
import time
from pathlib import Path
from typing import Any

import click

from hwtool.cli.link import complain, finish, json_option, link, socket_option


@click.group()
def store() -> None:
    """The store: backup, prune, verify, accept-rollback."""


@store.command()
@click.argument("file", type=click.Path(path_type=Path))
@socket_option
@json_option
def backup(file: Path, socket_: str | None, as_json: bool) -> None:
    """Copy the store into FILE while the daemon goes on. FILE must not exist; the daemon writes it, as its own user."""
    with link(socket_, "operator") as client:
        finish(client.ask("store.backup", {"to": str(file.absolute())}), as_json)


@store.command()
@click.option("--keep", type=click.IntRange(min=0), required=True, help="How many ended operations to keep whole.")
@socket_option
@json_option
def prune(keep: int, socket_: str | None, as_json: bool) -> None:
    """Leave tombstones of the oldest ended operations. Their keys never become fresh again."""
    with link(socket_, "operator") as client:
        finish(client.ask("store.prune", {"keep": keep}), as_json)


@store.command()
@click.argument("place", type=click.Path(path_type=Path, exists=True))
@json_option
def verify(place: Path, as_json: bool) -> None:
    """Check a backup FILE, or the directory of a store that no daemon has open; exit 1 if anything is wrong."""
    from hwtool_store.check import verify as look
    from hwtool_store.database import FILE
    from hwtool_store.faults import StoreRefused
    from hwtool_store.place import locked

    try:
        if place.is_dir():
            with locked(place, allow_unsafe=True):
                report = look(place / FILE, place / "anchor")
        else:
            report = look(place)
    except StoreRefused as error:
        complain(f"{error}; stop it, or verify a backup: hwtool store backup FILE", 7)
    if as_json:
        click.echo(json.dumps({"faults": report.faults, "counts": report.counts}))
    else:
        for fault in report.faults:
            click.echo(fault)
        looked = ", ".join(f"{number} {table}" for table, number in report.counts.items())
        click.echo(
            f"{place}: {'sound' if not report.faults else f'{len(report.faults)} fault(s)'} ({looked})", err=True
        )
    raise SystemExit(1 if report.faults else 0)


@store.command("accept-rollback")
@click.option(
    "--store", "directory", type=click.Path(path_type=Path, file_okay=False), required=True, help="Directory."
)
@click.option("--reason", required=True, help="Why the store is older, for the record.")
@click.option("--allow-unsafe-store", is_flag=True, help="As for serve.")
@json_option
def accept_rollback(directory: Path, reason: str, allow_unsafe_store: bool, as_json: bool) -> None:
    """Accept a store that is older than its anchor, or has none; the daemon must be stopped.

    Keys that were used in what is lost look fresh, and their requests would run again: every device starts held.
    """
    from hwtool.catalogue import version
    from hwtool.clock import Clock
    from hwtool_store.database import Start
    from hwtool_store.faults import StoreRefused
    from hwtool_store.rollback import accept

    start = Start(Clock().boot_id(), os.getpid(), time.time_ns(), Clock().boottime_ns(), version())
    who = f"uid:{os.getuid()} ({getpass.getuser()})"
    try:
        accepted = accept(directory, start, who, reason, allow_unsafe=allow_unsafe_store)
    except StoreRefused as error:
        complain(str(error), 2)
    known = "had no anchor" if accepted.known is None else f"its anchor knew row {accepted.known}"
    told: dict[str, Any] = {"newest": accepted.newest, "anchor": accepted.known, "held": accepted.held}
    if as_json:
        click.echo(json.dumps(told))
    else:
        click.echo(f"accepted: the journal ends with row {accepted.newest}; it {known}")
        click.echo("every device of the board starts held; look at each, then: hwtool release DEVICE --reason …")
