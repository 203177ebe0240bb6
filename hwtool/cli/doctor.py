"""The verb doctor: what on this host keeps the daemon from working, or lets others go past it."""

from __future__ import annotations

import json
import os
import sys
from pathlib import Path
from typing import TYPE_CHECKING

import click

from hwtool.cli.daemon import loaded_from
from hwtool.cli.link import complain, json_option, socket_option
from hwtool.session import SYSTEM_DIRECTORY, socket_directory

if TYPE_CHECKING:
    from hwtool.doctor.finding import Finding

MARKS = {"ok": " ok ", "warning": "warn", "problem": "BAD ", "skipped": "  - "}


@click.command()
@click.option("--board", type=click.Path(path_type=Path), help="The board file; without it, the simulated bench.")
@click.option("--store", type=click.Path(path_type=Path), help="Directory of the daemon's store.")
@socket_option
@json_option
def doctor(board: Path | None, store: Path | None, socket_: str | None, as_json: bool) -> None:
    """Look at this host with a board: sockets and roles, device nodes and who may open them, rules, drivers in the way,
    the store, the board, the approval mode. Changes nothing; each finding tells the command that mends it.

    Exit code 1 if there is a problem, 0 if not.
    """
    from hwtool.bench import bench
    from hwtool.doctor.examine import examine
    from hwtool.doctor.host import this_host
    from hwtool.server import default_store
    from hwtool.service_manager import ServeError

    loaded = bench() if board is None else loaded_from(board)
    directory = socket_directory(socket_)
    try:
        kept = store or default_store(Path(directory))
    except ServeError as error:
        complain(str(error), 2)
    file = Path("FILE") if board is None else board
    found = examine(loaded, file, kept, directory, this_host(directory, SYSTEM_DIRECTORY))
    problems = sum(one.status.value == "problem" for one in found)
    if as_json:
        told = [one.as_object() for one in found]
        click.echo(json.dumps({"board": loaded.name, "uid": os.getuid(), "problems": problems, "findings": told}))
    else:
        _print(found, problems)
    sys.exit(1 if problems else 0)


def _print(found: list[Finding], problems: int) -> None:
    """What is wrong first, then what is well; what the board lint says is for its own verb to tell, and counted."""
    order = ("problem", "warning", "skipped", "ok")
    lint = [one for one in found if one.check == "board.lint" and one.status.value == "warning"]
    for one in sorted((one for one in found if one not in lint), key=lambda one: order.index(one.status.value)):
        click.echo(f"{MARKS[one.status.value]} {one.check:20} {one.about}: {one.evidence}")
        if one.cure is not None:
            click.echo(f"{'':25} mend: {one.cure}")
    if lint:
        click.echo(f"{MARKS['warning']} {'board.lint':20} {len(lint)} thing(s) that may not be meant")
        click.echo(f"{'':25} mend: {lint[0].cure}")
    warnings = sum(one.status.value == "warning" for one in found)
    click.echo(f"{problems} problem(s), {warnings} warning(s) in {len(found)} finding(s)")
