"""Verbs of operators: settle, hold, release, probe, approvals, approve, deny, freeze, thaw; for operators."""

from __future__ import annotations

import json
import sys
from typing import Any, NoReturn

import click

from hwtool.cli.link import finish, json_option, link, number, socket_option, table, usage
from hwtool.connection import Connection
from hwtool_contracts.errors import exit_code

VERDICTS = ["applied", "satisfied", "not_applied", "partial", "lost", "superseded", "abandoned"]


@click.command()
@click.argument("number", type=int)
@click.argument("verdict", type=click.Choice(VERDICTS), required=False)
@click.option("--verdict", "named", type=click.Choice(VERDICTS), help="The same, by name.")
@click.option("--reason", required=True, help="What was seen; it goes into the record.")
@socket_option
@json_option
def settle(
    number: int, verdict: str | None, named: str | None, reason: str, socket_: str | None, as_json: bool
) -> None:
    """End an unknown operation with your VERDICT on what happened."""
    if (verdict is None) is (named is None):
        usage(f"settle: say once what happened: hwtool settle {number} --verdict applied --reason …")
    verdict = verdict or named
    with link(socket_, "operator") as client:
        finish(client.ask("op.settle", {"id": number, "verdict": verdict, "reason": reason}), as_json)


@click.command()
@click.argument("device")
@click.option("--reason", required=True)
@socket_option
@json_option
def hold(device: str, reason: str, socket_: str | None, as_json: bool) -> None:
    """Stop effectful requests to DEVICE; clean reads go on."""
    with link(socket_, "operator") as client:
        finish(client.ask("device.hold", {"device": device, "reason": reason}), as_json)


@click.command()
@click.argument("device")
@click.option("--reason", required=True)
@socket_option
@json_option
def release(device: str, reason: str, socket_: str | None, as_json: bool) -> None:
    """Take your hold off DEVICE; an unknown operation must be settled first."""
    with link(socket_, "operator") as client:
        finish(client.ask("device.release", {"device": device, "reason": reason}), as_json)


def address_of(text: str) -> int:
    """An address as it is typed: 0x48, 72."""
    try:
        return int(text, 0)
    except ValueError:
        usage(f"probe: {text!r} is no address: 0x48 or 72")


@click.command()
@click.argument("bus")
@click.argument("address")
@socket_option
@json_option
def probe(bus: str, address: str, socket_: str | None, as_json: bool) -> None:
    """Ask whether anybody answers at ADDRESS of BUS, where the board has no device; once, and nobody else is asked.

    A byte is read (of a Modbus unit, holding register 0): nobody knows what that does to what sits there.
    """
    with link(socket_, "operator") as client:
        finish(client.ask("bus.probe", {"bus": bus, "address": address_of(address)}), as_json)


@click.command()
@socket_option
@json_option
def reload(socket_: str | None, as_json: bool) -> None:
    """Have the daemon read its board file again; what is held or unknown stays so."""
    with link(socket_, "operator") as client:
        finish(client.ask("daemon.reload"), as_json)


@click.command()
@click.option("--watch", is_flag=True, help="Go on, and tell each request that comes.")
@socket_option
@json_option
def approvals(watch: bool, socket_: str | None, as_json: bool) -> None:
    """List the requests that wait for a person."""

    def show(result: dict[str, Any]) -> None:
        columns = ["approval", "what", "kind", "requester", "approved_by", "reason_in_requesters_words"]
        table(result["approvals"], columns)

    with link(socket_, "operator") as client:
        if watch:
            subscribed = client.ask("events.subscribe", {"kinds": ["op"]})
            if subscribed["status"] == "failed":
                finish(subscribed, as_json)
        listed = client.ask("approval.list")
        if not watch or listed["status"] == "failed":
            finish(listed, as_json, show)
        _watch(client, listed["approvals"], as_json)


def _watch(client: Connection, waiting: list[dict[str, Any]], as_json: bool) -> NoReturn:
    """What waits, then each request that comes; what has been decided is told too."""
    known = set()

    def told(one: dict[str, Any]) -> None:
        known.add(one["approval"])
        reason = one["reason_in_requesters_words"]
        words = f" (their reason: {reason})" if reason else ""
        line = f"{one['approval']}: {one['kind']} of {one['what']} by {one['requester']}{words}"
        click.echo(json.dumps(one) if as_json else f"{line}; hwtool approve {one['approval']}")

    for one in waiting:
        told(one)
    for event in client.events():
        what = event["entry"]["what"]
        if what == "pending":
            for one in client.ask("approval.list").get("approvals") or []:
                if one["approval"] not in known:
                    told(one)
        elif what in ("approved", "denied", "approval_expired") and not as_json:
            click.echo(f"{event['entry']['op']}: {what}")
        sys.stdout.flush()
    sys.exit(0)


def _screen(screen: dict[str, Any]) -> None:
    """What a request would do, for the person who decides."""
    what = screen["what"] if screen["kind"] == "sequence" else f"{screen['kind']} of {screen['what']}"
    click.echo(f"request {screen['approval']} of {screen['requester']}: {what}")
    reason = screen["reason_in_requesters_words"]
    click.echo(f"  their reason, in their words: {reason if reason is not None else '(none given)'}")
    click.echo(f"  asks for approval because: {'; '.join(screen['why'])}")
    if screen["changes"] == "redacted":
        click.echo("  values and transfers: redacted")
        return
    for step in screen.get("steps", []):
        click.echo(f"  step {step['step']}: {step['do']} {step['device']}.{', '.join(step['registers'])}")
    for change in screen["changes"]:
        before = "?" if change["before"] is None else change["before"] + number(change["before_value"])
        which = f"change {change['number']}, " if screen["kind"] == "sequence" else ""
        click.echo(f"  {which}{change['register']}: {before} -> {change['after']}{number(change['after_value'])}")
        for name, field in change["fields"].items():
            after = number(change["after_value"].get("fields", {}).get(name, {"raw": field["after"]}))
            click.echo(f"    {name}: {field['before'] or '?'} -> {field['after']}{after}")
    for transfer in screen["transfers"]:
        what = transfer.get("data", "")
        click.echo(f"  sends: {transfer['role']} {transfer['do']} {transfer['address']} {transfer['offset']} {what}")
    if screen["implied_reads"]:
        click.echo("  reads before: " + ", ".join(screen["implied_reads"]))
    if screen["untouched"]:
        click.echo("  leaves alone: " + ", ".join(screen["untouched"]))
    for warning in screen["warnings"]:
        click.echo(f"  warning: {warning}")


@click.command()
@click.argument("number", type=int)
@click.option("--code", help="The code of an earlier approve screen; without it the screen is shown first.")
@socket_option
@json_option
def approve(number: int, code: str | None, socket_: str | None, as_json: bool) -> None:
    """Show what request NUMBER would do, and grant it once."""
    with link(socket_, "operator") as client:
        if code is None:
            code = _asked(client, number, as_json)
        finish(client.ask("approval.approve", {"approval": number, "code": code}), as_json)


def _asked(client: Connection, number: int, as_json: bool) -> str:
    result = client.ask("approval.show", {"approval": number})
    if result["status"] == "failed" or as_json:
        finish(result, as_json)
    screen = result["approvals"][0]
    _screen(screen)
    code: str = screen["code"]
    if not sys.stdin.isatty():
        click.echo(f"to approve: hwtool approve {number} --code {code}")
        sys.exit(exit_code(result))
    if not click.confirm("approve?", default=False, err=True):
        usage("not approved; to refuse it with a reason: hwtool deny")
    return code


@click.command()
@click.argument("number", type=int)
@click.option("--reason", required=True, help="It reaches the requester.")
@socket_option
@json_option
def deny(number: int, reason: str, socket_: str | None, as_json: bool) -> None:
    """Deny request NUMBER with a reason."""
    with link(socket_, "operator") as client:
        finish(client.ask("approval.deny", {"approval": number, "reason": reason}), as_json)


def _uid_of(name: str) -> int:
    """The number of a user of this host."""
    import pwd  # only here: the other verbs start without it

    try:
        return pwd.getpwnam(name).pw_uid
    except KeyError:
        usage(f"--who: no user is called {name!r}; uid:N names one by number")


@click.command()
@click.argument("register", required=False)
@click.option("--who", help="The caller to tell it for, uid:N or a user's name; else you.")
@click.option("--group", "groups", multiple=True, help="A group that caller is in; may be repeated.")
@click.option("--role", type=click.Choice(["agent", "operator"]), default="agent", show_default=True)
@socket_option
@json_option
def policy(
    register: str | None, who: str | None, groups: tuple[str, ...], role: str, socket_: str | None, as_json: bool
) -> None:
    """Show the board's policy rules, and with REGISTER (device.NAME) which of them decides and what it allows."""

    def show(result: dict[str, Any]) -> None:
        told = result["policy"]
        for decided in told.get("decisions", []):
            click.echo(f"{decided['register']}: {decided['decided_by']}")
            for key in ("read", "effectful_read", "write", "limits", "rate_per_min", "confidential"):
                if decided[key] is not None:
                    click.echo(f"  {key}: {decided[key]}")
        if "decisions" not in told:
            keys = ["number", "who", "device", "register", "read", "effectful_read", "write", "limits", "rate_per_min"]
            table(told["rules"], [*keys, "confidential"])
            click.echo(result["summary"], err=True)

    if who is not None and not who.startswith("uid:"):
        who = f"uid:{_uid_of(who)}"
    params: dict[str, Any] = {"role": role, "groups": list(groups)}
    params |= {k: v for k, v in (("register", register), ("who", who)) if v is not None}
    with link(socket_, "operator") as client:
        finish(client.ask("policy.show", params), as_json, show)


@click.command()
@click.option("--reason", help="Why; it goes into the record.")
@socket_option
@json_option
def freeze(reason: str | None, socket_: str | None, as_json: bool) -> None:
    """Refuse every effectful request but safe states, over restarts too; clean reads go on."""
    with link(socket_, "operator") as client:
        finish(client.ask("daemon.freeze", {} if reason is None else {"reason": reason}), as_json)


@click.command()
@click.option("--reason", help="Why; it goes into the record.")
@socket_option
@json_option
def thaw(reason: str | None, socket_: str | None, as_json: bool) -> None:
    """End a freeze."""
    with link(socket_, "operator") as client:
        finish(client.ask("daemon.thaw", {} if reason is None else {"reason": reason}), as_json)
