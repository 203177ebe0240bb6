"""Verbs that only look: devices, registers, contracts, the journal, and any method by name."""

from __future__ import annotations

import json
from typing import Any

import click

from hwtool.cli.link import finish, json_option, link, socket_option, table, usage


@click.command()
@click.argument("topic", required=False)
@socket_option
@json_option
def describe(topic: str | None, socket_: str | None, as_json: bool) -> None:
    """Who the daemon is and what you may do; TOPIC agents is the guide for agents."""

    def show(result: dict[str, Any]) -> None:
        told = result["describe"]
        click.echo(told.get("text") or result["summary"])
        if topic is None:
            click.echo("methods: " + ", ".join(told["methods"]))
            click.echo(f"key prefix: {told['key_prefix']}")

    with link(socket_) as client:
        finish(client.ask("describe", {"topic": topic} if topic else {}), as_json, show)


@click.command()
@socket_option
@json_option
def devices(socket_: str | None, as_json: bool) -> None:
    """List the devices of the board."""

    def show(result: dict[str, Any]) -> None:
        shown = ["name", "contract", "bus", "bus_state", "address", "generation", "simulated", "verified", "held"]
        table(result["devices"], shown)
        if result["summary"].endswith("FROZEN"):
            click.echo("hwtool: frozen: no effectful request but safe-state passes; hwtool thaw ends it", err=True)

    with link(socket_) as client:
        finish(client.ask("device.list"), as_json, show)


@click.command()
@click.argument("words", nargs=-1)
@click.option("--device", help="Only registers of this device.")
@socket_option
@json_option
def find(words: tuple[str, ...], device: str | None, socket_: str | None, as_json: bool) -> None:
    """Find registers by name, field, unit or chip."""

    def show(result: dict[str, Any]) -> None:
        rows = [
            {**m, "clean": (m.get("read") or {}).get("clean"), "fields": m.get("group") or m.get("fields")}
            for m in result["matches"]
        ]
        table(rows, ["register", "access", "read", "clean", "write", "unit", "fields"])
        if result.get("cursor"):
            click.echo("… more: narrow the words, or use --device", err=True)

    params: dict[str, Any] = {"query": " ".join(words), "limit": 200}
    with link(socket_) as client:
        finish(client.ask("reg.find", params | ({"device": device} if device else {})), as_json, show)


@click.command()
@click.argument("register")
@socket_option
@json_option
def show(register: str, socket_: str | None, as_json: bool) -> None:
    """Show what REGISTER (device.NAME) promises: effects of reading and writing, fields, sources."""

    def show_contract(result: dict[str, Any]) -> None:
        contract = result["contract"]
        if "group" in contract:
            how = "in one transfer" if contract["transfer"] == "one" else "each in a transfer of its own"
            click.echo(f"{contract['group']}: a group, {how}")
        for promise in contract.get("members", [contract]):
            _promise(promise)

    with link(socket_) as client:
        finish(client.ask("reg.contract", {"register": register}), as_json, show_contract)


def _promise(promise: dict[str, Any]) -> None:
    click.echo(f"{promise['register']}  offset {promise['offset']}, {promise['width_bits']} bits, {promise['access']}")
    judged = promise["judged_read"]
    if "refused" in judged:
        click.echo(f"  read: no ({judged['why']})")
    else:
        clean = "clean, may be repeated" if judged["clean"] else "has effects: needs a key (read --effectful)"
        click.echo(f"  read: {', '.join(judged['effects'])}; {clean}; {judged['provenance']}")
        told = promise.get("read", {})
        beside = [
            f"{key} {told[key]}" for key in ("level", "max_burst", "element_bytes", "peek", "state") if key in told
        ]
        if beside:
            click.echo(f"        {', '.join(beside)}")
        if told.get("source"):
            click.echo(f"        {told['source']}")
    if "write" in promise:
        written = promise["write"]
        rest = {k: v for k, v in written.items() if k not in ("effect", "provenance", "seen", "source")}
        more = "".join(f"; {k} {json.dumps(v)}" for k, v in rest.items())
        click.echo(f"  write: {written['effect']}; {written['provenance']}{more}")
        if written.get("source"):
            click.echo(f"         {written['source']}")
    for field in promise["fields"]:
        names = ", ".join(f"{n}={v}" for n, v in field["values"].items())
        effect = f" write {field['write']['effect']}" if "write" in field else ""
        reserved = f" reserved ({field['reserved']})" if field["reserved"] else ""
        unit = f" [{field['quantity']['unit']}]" if field["quantity"].get("unit") else ""
        click.echo(f"  {field['bits']:>6}  {field['name']}{unit} {field['access']}{effect}{reserved}  {names}".rstrip())


@click.command()
@socket_option
@json_option
def metrics(socket_: str | None, as_json: bool) -> None:
    """Print the daemon's counters as Prometheus text."""
    with link(socket_) as client:
        finish(client.ask("metrics"), as_json, lambda result: click.echo(result["text"], nl=False))


@click.command()
@click.argument("method")
@click.argument("params", required=False)
@click.option("--operator", is_flag=True, help="Use the operator's socket.")
@socket_option
def rpc(method: str, params: str | None, operator: bool, socket_: str | None) -> None:
    """Call METHOD with PARAMS (a JSON object) and print the result."""
    try:
        decoded = json.loads(params) if params else {}
    except ValueError as error:
        usage(f"PARAMS is not JSON: {error}")
    if not isinstance(decoded, dict):
        usage("PARAMS is a JSON object")
    key = decoded.get("key")
    with link(socket_, "operator" if operator else "agent", key if isinstance(key, str) else None) as client:
        finish(client.ask(method, decoded), True)
