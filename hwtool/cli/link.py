"""What all verbs share: the connection, printing a result, the exit codes. Light: session and error catalogue only."""

from __future__ import annotations

import json
import os
import re
import signal
import sys
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import Any, NoReturn, TypeVar

import click

from hwtool.connection import Connection
from hwtool.losses import ConnectionLost, NoDaemon
from hwtool.session import ProtocolError, Role
from hwtool_contracts.errors import exit_code, explain, parse

F = TypeVar("F", bound=Callable[..., Any])
SCALED = re.compile(r"([-+]?\d+(?:\.\d+)?(?:[eE][-+]?\d+)?)\s*([A-Za-zµ°%Ω/]+)")
DECIMAL = re.compile(r"[-+]?\d+\.\d+")


def socket_option(function: F) -> F:
    """`--socket`: where the daemon's sockets are."""
    text = "Directory of the daemon's sockets (else HWTOOL_SOCKET, the runtime directory, /run/hwtool)."
    return click.option("--socket", "socket_", metavar="DIR", help=text)(function)


def json_option(function: F) -> F:
    """`--json`: the result as it is."""
    return click.option("--json", "as_json", is_flag=True, help="Print the result as one JSON object.")(function)


@contextmanager
def link(socket_: str | None, role: Role = "agent", key: str | None = None) -> Iterator[Connection]:
    """A connection; what goes wrong with it ends the program with the codes of the manual."""
    try:
        with Connection(socket_, role) as client:
            yield client
    except NoDaemon as error:
        complain(str(error), 6)
    except ConnectionLost as error:
        again = f"; ask with: hwtool op --key {key}" if key else ""
        complain(f"{error}{again}", 3 if key else 6)
    except ProtocolError as error:
        complain(f"the daemon refused the request: {error}", 2)
    except KeyboardInterrupt:
        again = f"; it goes on, ask with: hwtool op --key {key}" if key else ""
        complain(f"interrupted{again}", 128 + signal.SIGINT)


def complain(message: str, code: int) -> NoReturn:
    """Say something on stderr and end."""
    click.echo(f"hwtool: {message}", err=True)
    sys.exit(code)


def usage(message: str) -> NoReturn:
    """Wrong words on the command line."""
    complain(message, 2)


def finish(result: dict[str, Any], as_json: bool, show: Callable[[dict[str, Any]], None] | None = None) -> NoReturn:
    """Print a result and end with its exit code: data on stdout, messages on stderr."""
    try:
        if as_json:
            click.echo(json.dumps(result))
        else:
            _print(result, show)
        sys.stdout.flush()
    except BrokenPipeError:
        # the reader has seen enough; keep the interpreter from complaining about it at exit
        os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())
    sys.exit(exit_code(result))


def _print(result: dict[str, Any], show: Callable[[dict[str, Any]], None] | None) -> None:
    error = parse(result.get("error"))
    if error is not None:
        click.echo(f"hwtool: {explain(error, result['effects'])}", err=True)
        click.echo(f"  {error['code']}: {error['hint']}", err=True)
        if error.get("suggestions"):
            click.echo("  did you mean: " + ", ".join(error["suggestions"]), err=True)
    elif show is not None:
        show(result)
    else:
        values(result)
    if result.get("replayed"):
        click.echo(f"  replayed: this is the outcome of {result.get('at')}", err=True)
    for warning in result.get("warnings") or []:
        click.echo(f"  warning: {warning}", err=True)
    if error is not None and show is not None and result.get("op"):
        show(result)
    elif error is not None and (error["code"] == "value_lost" or result.get("verdict") == "partial"):
        values(result)  # what was taken all the same: nobody can read it again


def values(result: dict[str, Any]) -> None:
    """Registers with their fields, one a line; the summary where there are none."""
    shown = result.get("values")
    if not shown:
        click.echo(result.get("summary") or "")
        return
    for value in shown:
        click.echo(f"{value['register']} = {_shown(value)}{number(value)}")
        for name, field in (value.get("fields") or {}).items():
            click.echo(f"  {name} = {field['raw']}{number(field)}")
    if result.get("verdict"):
        click.echo(f"{result['verdict']}: {result['summary']} (operation {result['id']}, effects {result['effects']})")


def _shown(value: dict[str, Any]) -> str:
    """Text and bytes as they are, everything else as raw hex."""
    return repr(value["text"]) if "text" in value else str(value.get("hex") or value["raw"])


def number(value: dict[str, Any]) -> str:
    """The number or name beside a raw value, where it says more."""
    words = []
    if value.get("name") is not None:
        words.append(str(value["name"]))
    elif value.get("value") is not None and (value.get("unit") or value["value"] != int(value["raw"], 16)):
        words.append(f"{value['value']} {value.get('unit') or ''}".rstrip())
    return f"  ({', '.join(words)})" if words else ""


def table(rows: list[dict[str, Any]], columns: list[str]) -> None:
    """Rows as aligned columns."""
    cells = [[_cell(row.get(c)) for c in columns] for row in rows]
    widths = [max(len(c), *(len(line[i]) for line in cells)) if cells else len(c) for i, c in enumerate(columns)]
    for line in [columns, *cells]:
        click.echo("  ".join(text.ljust(width) for text, width in zip(line, widths, strict=True)).rstrip())


def _cell(value: Any) -> str:
    if value is None or value is False:
        return "-"
    if isinstance(value, list):
        return ",".join(map(str, value))
    if isinstance(value, dict):
        return ",".join(map(str, value.get("effects", value)))
    return str(value)


def value_of(text: str) -> int | str | dict[str, str]:
    """A value as it is typed: 0x40, low, 1.2V, 230.1, @file.bin."""
    if text.startswith("@"):
        return {"hex": _bytes_of(text[1:])}
    try:
        return int(text, 0)
    except ValueError:
        pass
    scaled = SCALED.fullmatch(text)
    if scaled:
        return {"scaled": scaled[1], "unit": scaled[2]}
    if DECIMAL.fullmatch(text):
        return {"scaled": text}
    return text


def _bytes_of(path: str) -> str:
    """The bytes of a file, for a memory."""
    try:
        with open(path, "rb") as file:  # noqa: PTH123  # pathlib costs the everyday verbs their start
            return file.read().hex()
    except OSError as error:
        usage(f"@{path}: {error.strerror or error}")


def minted(key: str | None) -> str:
    """The key given, or a new one, printed before anything is sent."""
    if key is not None:
        return key
    fresh = f"cli-{os.urandom(8).hex()}"
    click.echo(f"  key: {fresh}", err=True)
    return fresh
