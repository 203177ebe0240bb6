"""Verbs that prepare a host: rules for device nodes, units of systemd, interfaces given back. None installs."""

from __future__ import annotations

import sys
from pathlib import Path

import click

from hwtool.cli.daemon import loaded_from
from hwtool.cli.link import complain

into_option = click.option(
    "--into", type=click.Path(path_type=Path, file_okay=False), help="Write the file(s) into this directory instead."
)


@click.command()
@click.option("--board", type=click.Path(path_type=Path), help="The board file; without it, the rules that classify.")
@click.option("--group", default="hwtoold", show_default=True, help="The group that the nodes get: the daemon's own.")
@into_option
def udev(board: Path | None, group: str, into: Path | None) -> None:
    """Print the rules of udev for the nodes of a board, and on stderr the commands that load them; none is run.

    Without --board: 60-hwtool.rules, which tells what is what and grants nothing. With it: 72-hwtool-local.rules.
    """
    from hwtool.host import rules

    if board is None:
        name, text = rules.CLASSES, rules.classes()
    else:
        try:
            name, text = rules.LOCAL, rules.local(loaded_from(board), board.name, group)
        except rules.NoRule as error:
            complain(str(error), 2)
    _put({name: text}, into)
    click.echo(f"hwtool: it belongs into {rules.PLACE}/{name}; then, as root:", err=True)
    copy = [] if into is None else [f"cp {into / name} {rules.PLACE}/"]
    for command in [*copy, *rules.RELOAD]:
        click.echo(f"  {command}", err=True)


@click.command()
@click.option("--board", type=click.Path(path_type=Path), required=True, help="The board file.")
@click.option(
    "--as", "board_at", type=click.Path(path_type=Path), help="Where the board file will be; else where it is."
)
@click.option("--program", type=click.Path(path_type=Path), help="Where hwtool will be; else this one.")
@into_option
def units(board: Path, board_at: Path | None, program: Path | None, into: Path | None) -> None:
    """Print systemd's units for a board and the lines for its users, and on stderr the commands; none is run.

    hwtoold.socket and hwtoold-operator.socket wait for callers and start hwtoold.service, which may reach the nodes of
    this board's buses and nothing else.
    """
    from hwtool.host import units as made

    ours = program if program is not None else Path(sys.executable).with_name("hwtool")
    try:
        texts = made.units(loaded_from(board), board_at or board.absolute(), ours, board)
    except made.NoUnit as error:
        complain(str(error), 2)
    _put(texts, into)
    where = "as root:" if into is not None else "each belongs where its first line says; then, as root:"
    click.echo(f"hwtool: {where}", err=True)
    copies = [] if into is None else [f"cp {into / name} {place}/" for name, place in made.PLACES.items()]
    commands = ["systemd-sysusers", "systemctl daemon-reload"]
    commands += [f"systemctl enable --now {made.SOCKET} {made.OPERATOR_SOCKET}"]
    for command in copies + commands:
        click.echo(f"  {command}", err=True)


@click.command("give-back")
@click.option("--store", type=click.Path(path_type=Path), help="Directory of the daemon's store.")
def give_back(store: Path | None) -> None:
    """Give USB interfaces back to their kernel drivers that a daemon had taken which died.

    A daemon does this by itself when it stops and when it starts; this is for one that was killed and is not started
    again; while one runs with this store, nothing is done. Exit code 1 if one was not given back.
    """
    from hwtool.buses import give_back as given_back
    from hwtool.server import default_store
    from hwtool.service_manager import ServeError
    from hwtool.session import socket_directory
    from hwtool_store.faults import StoreRefused
    from hwtool_store.place import locked

    try:
        directory = store or default_store(Path(socket_directory(None)))
        with locked(directory, allow_unsafe=True):
            told = given_back(None, directory)
    except (StoreRefused, ServeError) as error:
        complain(f"nothing was given back: {error}", 2)
    except OSError as error:
        complain(f"nothing was given back: {directory}: {error.strerror}", 2)
    for line in told or [f"nothing was taken by a daemon with the store {directory}"]:
        click.echo(line)
    sys.exit(1 if any("not given back" in line for line in told) else 0)


def _put(texts: dict[str, str], into: Path | None) -> None:
    """On stdout, several with their places; or into a directory, which is made."""
    from hwtool.host.units import PLACES

    if into is None:
        for name, text in texts.items():
            head = f"# {PLACES[name]}/{name}\n" if len(texts) > 1 else ""
            click.echo(head + text, nl=len(texts) > 1)
        return
    try:
        into.mkdir(parents=True, exist_ok=True)
        for name, text in texts.items():
            (into / name).write_text(text, encoding="utf-8")
    except OSError as error:
        complain(f"{into} cannot be written to: {error.strerror}", 2)
