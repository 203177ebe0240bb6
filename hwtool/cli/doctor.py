"""The verb doctor: what on this host keeps the daemon from working, or lets others go past it."""

from __future__ import annotations

import json
import os
import sys
from pathlib import Path
from typing import TYPE_CHECKING

import click

from hwtool.cli.daemon import loaded_from
from hwtool.cli.link import json_option, socket_option
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

    loaded = bench() if board is None else loaded_from(board)
    directory = socket_directory(socket_)
    kept = store or default_store(Path(directory))
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
    for one in found:
        click.echo(f"{MARKS[one.status.value]} {one.check:20} {one.about}: {one.evidence}")
        if one.cure is not None:
            click.echo(f"{'':25} mend: {one.cure}")
    warnings = sum(one.status.value == "warning" for one in found)
    click.echo(f"{problems} problem(s), {warnings} warning(s) in {len(found)} finding(s)")
