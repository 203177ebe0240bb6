"""Watching: registers as they change, or until a condition holds."""

from __future__ import annotations

import json
import math
import re
import sys
import time
from typing import Any

import click

from hwtool.cli.link import complain, finish, json_option, link, number, socket_option, usage
from hwtool.connection import Connection

CONDITION = re.compile(r"([^<>=!]+?)\s*(>|<|=)\s*([-+]?[0-9A-Fa-fxX.]+|[A-Za-z_]\w*)\s*([A-Za-zµ°%Ω/]*)")


@click.command()
@click.argument("registers", nargs=-1, required=True)
@click.option("--interval-ms", type=click.IntRange(20, 3_600_000), default=1000, show_default=True)
@click.option("--until", help="End with 0 when it holds: REG>VALUE, REG<VALUE, REG=VALUE (a number or a name).")
@click.option(
    "--timeout", "timeout_s", type=click.FloatRange(0, 1e8), help="With --until: seconds after which to end with 1."
)
@socket_option
@json_option
def watch(
    registers: tuple[str, ...],
    interval_ms: int,
    until: str | None,
    timeout_s: float | None,
    socket_: str | None,
    as_json: bool,
) -> None:
    """Print clean REGISTERS (device.NAME) of one device whenever they change; polled by the daemon, once for all."""
    if timeout_s is not None and math.isnan(timeout_s):
        usage("--timeout: a number of seconds")
    condition = None if until is None else _condition(until, registers)
    params: dict[str, Any] = {"registers": list(registers), "interval_ms": interval_ms}
    with link(socket_) as client:
        result = client.ask("events.subscribe", params)
        if result["status"] == "failed":
            finish(result, as_json)
        _follow(client, condition, timeout_s, as_json)


def _condition(text: str, registers: tuple[str, ...]) -> tuple[str, str, str]:
    match = CONDITION.fullmatch(text.strip())
    if match is None:
        usage(f"--until: {text!r} is not REG>VALUE, REG<VALUE or REG=VALUE")
    name, sign, value, unit = match.groups()
    if unit:
        usage(f"--until: values are in the register's own unit: leave {unit!r} out")
    if sign != "=" or not value[0].isalpha():
        try:
            _number(value)
        except ValueError:
            usage(f"--until: {value!r} is no number")
    if name not in registers:
        if len(registers) == 1 and "." not in name and registers[0].partition(".")[2] == name:
            name = registers[0]
        else:
            usage(f"--until: {name} is not one of the registers watched")
    return name, sign, value


def _follow(client: Connection, condition: tuple[str, str, str] | None, timeout_s: float | None, as_json: bool) -> None:
    deadline_s = None if timeout_s is None else time.monotonic() + timeout_s
    try:
        for event in client.events(deadline_s):
            if as_json:
                click.echo(json.dumps(event))
            elif event["kind"] == "error":
                click.echo(f"hwtool: {event['error']['message']}", err=True)
            for value in event.get("values", []):
                if not as_json:
                    click.echo(f"{event['at'][11:23]} {value['register']} = {_text(value)}")
                if condition is not None and value["register"] == condition[0] and _holds(condition, value):
                    sys.stdout.flush()
                    sys.exit(0)
            sys.stdout.flush()
    except TimeoutError:
        complain(f"not so within {timeout_s:g} s", 1)
    except BrokenPipeError:
        sys.stderr.close()  # the reader has seen enough
        sys.exit(0)


def _text(value: dict[str, Any]) -> str:
    return f"{value['raw']}{number(value)}" if "raw" in value else str(value["hex"])


def _number(text: str) -> float:
    return float(int(text, 0)) if text.lower().startswith("0x") else float(text)


def _holds(condition: tuple[str, str, str], value: dict[str, Any]) -> bool:
    """Whether a value is as wanted: by its name, else by its number in its unit, else raw."""
    _, sign, wanted = condition
    if sign == "=" and value.get("name") == wanted:
        return True
    try:
        number_wanted = _number(wanted)
    except ValueError:
        return False
    held = value.get("value")
    if not isinstance(held, int | float) or wanted.lower().startswith("0x"):
        held = int(value["raw"] if "raw" in value else value["hex"], 16)
    return held > number_wanted if sign == ">" else held < number_wanted if sign == "<" else held == number_wanted
