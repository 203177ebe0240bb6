"""Verbs that run the daemon, the simulator or the proofs: serve, sim, check, demo."""

from __future__ import annotations

import contextlib
import json
import os
import secrets
import signal
import sys
from collections.abc import Iterator
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING

import click

from hwtool.cli.link import complain, json_option
from hwtool.session import socket_directory
from hwtool_contracts.toml_reader import Faults
from hwtool_store.faults import StoreFatal, StoreRefused

if TYPE_CHECKING:
    from hwtool.checks.findings import Report
    from hwtool.config import Board


def loaded_from(path: Path) -> Board:
    """The board of a file; its faults are told, and end the program."""
    from hwtool.config import load_board

    with usable("board"):
        return load_board(path)


@contextlib.contextmanager
def usable(what: str) -> Iterator[None]:
    """What is wrong with a file is told, and ends the program."""
    try:
        yield
    except Faults as error:
        click.echo(f"hwtool: the {what} cannot be used; {len(error.faults)} fault(s), nothing was started:", err=True)
        for fault in error.faults:
            click.echo(f"  {fault}", err=True)
        sys.exit(2)


@click.command()
@click.option("--board", type=click.Path(path_type=Path), help="The board file; without it, the simulated bench.")
@click.option("--store", type=click.Path(path_type=Path), help="Directory of the store.")
@click.option("--socket", "socket_", metavar="DIR", help="Directory of the sockets.")
@click.option("--allow-unsafe-store", is_flag=True, help="Take a file system that may lose what was synced.")
@click.option("--read-only", is_flag=True, help="No effects but safe states; no file can say so, only you.")
@click.option("--rehearse", is_flag=True, help="Every keyed request is planned and answered, and none is sent.")
@click.option("--log", "log_format", type=click.Choice(["text", "json"]), default="text", help="How stderr is written.")
def serve(
    board: Path | None,
    store: Path | None,
    socket_: str | None,
    allow_unsafe_store: bool,
    read_only: bool,
    rehearse: bool,
    log_format: str,
) -> None:
    """Run the daemon until it is told to stop (SIGTERM, or Ctrl-C); SIGHUP reads the board again."""
    from hwtool.bench import bench
    from hwtool.config import load_board
    from hwtool.logs import log_to_stderr
    from hwtool.server import FATAL_EXIT, default_store, run
    from hwtool.server import serve as serve_board
    from hwtool.service_manager import ServeError

    if board is None and os.environ.get("INVOCATION_ID"):
        complain("under systemd a board is required: --board FILE", 2)
    loaded = loaded_from(board) if board is not None else bench()
    directory = Path(socket_directory(socket_, serves=True))
    log_to_stderr(log_format)
    reread = None if board is None else partial(load_board, board)
    try:
        serving = serve_board(
            loaded,
            store or default_store(directory),
            directory,
            allow_unsafe=allow_unsafe_store,
            read_only=read_only,
            rehearsing=rehearse,
            reread=reread,
        )
        run(serving)
    except (StoreRefused, ServeError) as error:
        complain(str(error), 2)
    except StoreFatal as error:
        click.echo(
            f"hwtool: the store failed while it was started: {error}; look at the disk, nothing was sent", err=True
        )
        os._exit(FATAL_EXIT)  # without closing the database: what this process believes of it may be wrong
    except OSError as error:
        complain(f"a bus cannot be had: {error.strerror or error}", 2)


@click.group("board")
def board_verb() -> None:
    """Board files: what a host's buses and devices are."""


@board_verb.command("lint")
@click.argument("file", type=click.Path(path_type=Path))
@json_option
def board_lint(file: Path, as_json: bool) -> None:
    """Check FILE as the daemon would, all faults at once; tell what is there, and what a site may want to know."""
    from hwtool.board_lint import linted

    told = linted(loaded_from(file))
    if as_json:
        click.echo(json.dumps(told))
        return
    click.echo(f"board {told['name']}: approval mode {told['approval_mode']}, {told['policy']} policy rule(s)")
    for device in told["devices"]:
        click.echo(f"  {device['device']}: {device['contract']} on {device['bus']} at {device['address']}")
    for warning in told["warnings"]:
        click.echo(f"  warning: {warning}")


@board_verb.command("schema")
def board_schema() -> None:
    """Print the JSON Schema of board files, for editors."""
    from hwtool.board_keys import schema

    click.echo(json.dumps(schema(), indent=1))


@click.command()
@click.option(
    "--board", type=click.Path(path_type=Path), required=True, help="The board file whose chips are simulated."
)
@click.option("--socket", "socket_", metavar="PATH", help="Where to listen; without it, as the board's buses say.")
@click.option("--faults", type=click.Path(path_type=Path), help="Plan the faults of this script.")
@click.option("--seed", type=click.IntRange(0), help="Of faults that strike by chance, in place of the script's.")
def sim(board: Path, socket_: str | None, faults: Path | None, seed: int | None) -> None:
    """Simulate the chips of a board in a process of their own, until told to stop (SIGTERM, Ctrl-C, control)."""
    from hwtool.simulator import places_of, served
    from hwtool_sim.control import Bench
    from hwtool_sim.process import serve as serve_chips
    from hwtool_sim.script import Script, load_script, plan

    loaded = loaded_from(board)
    with usable("fault script"):
        script = Script(None, ()) if faults is None else load_script(faults, places_of(loaded))
    drawn = next((s for s in (seed, script.seed) if s is not None), secrets.randbelow(1 << 32))

    def prepare(bench: Bench) -> None:
        for name, bus in bench.buses.items():
            bus.begin(drawn, name)
        with usable("fault script"):
            plan(script, bench)
        click.echo(f"hwtool sim: seed {drawn}", err=True)

    os.umask(0o177)
    try:
        chips = served(loaded, socket_)
        serve_chips(
            chips.socket,
            chips.buses,
            chips.lines,
            end_at=(signal.SIGTERM, signal.SIGINT),
            prepare=prepare,
            ready=lambda: click.echo("hwtool sim: ready", err=True),
        )
    except ValueError as error:
        complain(str(error), 2)
    except OSError as error:
        complain(f"the simulator cannot serve {error.filename or chips.socket}: {error.strerror or error}", 2)


@click.command()
@click.option("--board", type=click.Path(path_type=Path), help="Check this board; without it, the simulated bench.")
@click.option(
    "--scenario",
    "scenarios",
    type=click.Path(path_type=Path),
    multiple=True,
    help="Play this scenario, or those of this directory, in place of the checks; --board is for those without one.",
)
@click.option("--junit", type=click.Path(path_type=Path), help="With a board or scenarios: also write JUnit XML there.")
@click.option("--html", type=click.Path(path_type=Path), help="With a board or scenarios: also write a page there.")
@json_option
def check(
    board: Path | None, scenarios: tuple[Path, ...], junit: Path | None, html: Path | None, as_json: bool
) -> None:
    """Run the safety checks on simulated chips and count what reaches them; no device is touched."""
    from hwtool.checks.run import run_checks

    if scenarios:
        sys.exit(_tell(_play(scenarios, board), junit, html, as_json))
    if board is not None:
        from hwtool.checks.board import check_board

        sys.exit(_tell(check_board(loaded_from(board)), junit, html, as_json))
    if junit is not None or html is not None:
        told = "--junit and --html need --board or --scenario: the bench's own checks are told as lines or --json"
        complain(told, 2)
    outcome = run_checks()
    if as_json:
        click.echo(json.dumps(outcome.as_object()))
    else:
        for line in outcome.lines():
            click.echo(line)
    sys.exit(0 if outcome.passed else 1)


def _play(paths: tuple[Path, ...], board: Path | None) -> Report:
    """Play scenarios; every file is read before the first one is played."""
    from hwtool.checks.play import play_all
    from hwtool.checks.scenario import load_scenario, scenario_files

    on = None if board is None else loaded_from(board)
    with usable("scenario"):
        found = [load_scenario(file, on) for path in paths for file in scenario_files(path)]
        return play_all(", ".join(path.name for path in paths), found)


def _tell(report: Report, junit: Path | None, html: Path | None, as_json: bool) -> int:
    """Tell what was found; the exit code: 0 passed, 1 something failed, 2 not all of it could be written."""
    from hwtool.checks import shown
    from hwtool.checks.page import page

    if as_json:
        click.echo(json.dumps(report.as_object()))
    else:
        for line in shown.lines(report):
            click.echo(line)
    code = 0 if report.passed else 1
    for target, text in ((junit, shown.junit), (html, page)):
        if target is not None:
            try:
                target.write_text(text(report), encoding="utf-8", errors="replace")
            except OSError as error:
                click.echo(f"hwtool: {target} cannot be written: {error.strerror or error}", err=True)
                code = 2
    return code


@click.command()
@click.option("--keep", type=click.Path(path_type=Path), help="Work in this directory and leave it for a look.")
def demo(keep: Path | None) -> None:
    """Tell the whole story on simulated chips in a process of their own, in a temporary directory."""
    from hwtool.demo import run_demo

    sys.exit(run_demo(keep))
