"""Verbs about runs and leases: start and finish a run, acknowledge its errors, take a device and give it back."""

from __future__ import annotations

import sys
from typing import Any

import click

from hwtool.cli.link import finish, json_option, link, socket_option
from hwtool_contracts.errors import exit_code


@click.group()
def run() -> None:
    """A run: requests that name it (--run) share one status, which is computed and never claimed."""


@run.command("start")
@click.argument("name")
@socket_option
@json_option
def start(name: str, socket_: str | None, as_json: bool) -> None:
    """Begin a run; prints its number."""
    with link(socket_) as client:
        finish(client.ask("run.start", {"name": name}), as_json, lambda result: click.echo(result["run"]["id"]))


@run.command("finish")
@click.argument("number", type=int)
@socket_option
@json_option
def finish_run(number: int, socket_: str | None, as_json: bool) -> None:
    """End run NUMBER and print its status; exit 1 where it failed."""
    with link(socket_) as client:
        result = client.ask("run.finish", {"run": number})
        failed = (result.get("run") or {}).get("status") == "failed"
        try:
            finish(result, as_json, _show)
        except SystemExit:
            sys.exit(1 if failed else exit_code(result))


@run.command("acknowledge")
@click.argument("number", type=int)
@click.argument("error", type=int)
@click.option("--how", required=True, help="How it was handled; it goes into the record.")
@socket_option
@json_option
def acknowledge(number: int, error: int, how: str, socket_: str | None, as_json: bool) -> None:
    """Say that ERROR of run NUMBER was handled."""
    with link(socket_) as client:
        finish(client.ask("run.acknowledge", {"run": number, "error_id": error, "how": how}), as_json, _show)


def _show(result: dict[str, Any]) -> None:
    click.echo(result["summary"])
    for left in result["run"]["unhandled"]:
        number = "" if left["error_id"] is None else f" (error {left['error_id']})"
        click.echo(f"  unhandled: {left['why']}{number}")


@click.group()
def lease() -> None:
    """A lease keeps the effectful requests of others off a device for a while."""


@lease.command("acquire")
@click.argument("device")
@click.option("--ttl-ms", type=click.IntRange(1, 600_000), default=60_000, show_default=True)
@socket_option
@json_option
def acquire(device: str, ttl_ms: int, socket_: str | None, as_json: bool) -> None:
    """Have DEVICE for a while; again: from now on for so long."""
    with link(socket_) as client:
        finish(client.ask("lease.acquire", {"device": device, "ttl_ms": ttl_ms}), as_json)


@lease.command("release")
@click.argument("device")
@click.option("--operator", is_flag=True, help="Use the operator's socket: anybody's lease ends.")
@socket_option
@json_option
def release(device: str, operator: bool, socket_: str | None, as_json: bool) -> None:
    """Give DEVICE back."""
    with link(socket_, "operator" if operator else "agent") as client:
        finish(client.ask("lease.release", {"device": device}), as_json)
