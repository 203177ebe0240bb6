"""Verbs that touch devices, or ask what became of it: read, write, update, sequence, safe-state, plan, op, wait."""

from __future__ import annotations

import json
import sys
from collections.abc import Callable
from pathlib import Path
from typing import Any, NoReturn, TypeVar

import click

from hwtool.cli.link import finish, json_option, link, minted, socket_option, usage, value_of, values

F = TypeVar("F", bound=Callable[..., Any])


def keyed_options(function: F) -> F:
    """The options of every verb with an effect."""
    for option in (
        click.option("--key", help="Idempotency key, 8 to 120 characters; minted and printed if not given."),
        click.option("--reason", help="Why, in your words; shown to whoever approves."),
        click.option("--dry-run", is_flag=True, help="Rehearse: go the whole way, and send nothing."),
        click.option("--operator", is_flag=True, help="Use the operator's socket."),
        click.option("--run", "run_", type=int, metavar="N", help="The run it belongs to (hwtool run start)."),
        click.option("--not-after", type=int, metavar="MS", help="Not after this wall clock, milliseconds since 1970."),
    ):
        function = option(function)
    return function


def _send(
    method: str,
    params: dict[str, Any],
    socket_: str | None,
    as_json: bool,
    *,
    key: str | None,
    reason: str | None,
    dry_run: bool,
    operator: bool,
    not_after: int | None,
    run_: int | None = None,
    show: Callable[[dict[str, Any]], None] | None = None,
) -> NoReturn:
    """Send a keyed request; the key is printed before."""
    used = minted(key)
    more: dict[str, Any] = {"key": used, "reason": reason, "not_after": not_after, "run": run_}
    params |= {k: v for k, v in more.items() if v is not None} | ({"dry_run": True} if dry_run else {})
    with link(socket_, "operator" if operator else "agent", used) as client:
        result = client.ask(method, params)
        error = result.get("error") or {}
        if error.get("code") == "not_found" and "field" in error.get("hint", "") and method == "reg.write":
            usage(f"{error['message']}; {error['hint']}: hwtool update {params.get('register')}=…")
        finish(result, as_json, show or (_transfers if dry_run else None))


def _transfers(result: dict[str, Any]) -> None:
    click.echo(result["summary"])
    for transfer in result["transfers"]:
        what = f"{transfer['size_bytes']} byte(s)" if transfer["do"] == "read" else transfer["data"]
        function = f" function {transfer['function']:02d}" if transfer.get("function") else ""
        where = f"{transfer['address']} offset {transfer['offset']}{function}"
        click.echo(f"  {transfer['role']:8} {transfer['do']:5} {where}  {what}  ({transfer['register']})")
    told = result.get("evidence") or {}
    if told.get("implied_reads"):
        click.echo("  reads before: " + ", ".join(told["implied_reads"]))
    if told.get("untouched"):
        click.echo("  left alone: " + ", ".join(told["untouched"]))


@click.command()
@click.argument("registers", nargs=-1, required=True)
@click.option("--effectful", is_flag=True, help="Read what changes the device, once, under a key.")
@click.option("--count", type=click.IntRange(1), help="With --effectful: elements to take from a FIFO.")
@keyed_options
@socket_option
@json_option
def read(
    registers: tuple[str, ...],
    effectful: bool,
    count: int | None,
    key: str | None,
    socket_: str | None,
    as_json: bool,
    **options: Any,
) -> None:
    """Read REGISTERS (device.NAME) of one device."""
    if effectful:
        params: dict[str, Any] = {"register": registers[0]} if len(registers) == 1 else {"registers": list(registers)}
        _send("reg.read_effectful", params | ({"count": count} if count else {}), socket_, as_json, key=key, **options)
    if key is not None or count is not None:
        usage("--key and --count go with --effectful; a clean read needs no key")
    with link(socket_) as client:
        finish(client.ask("reg.read", {"registers": list(registers)}), as_json)


def _assigned(assignment: str) -> tuple[str, Any]:
    name, equals, text = assignment.partition("=")
    if not equals or not name or not text:
        usage(f"{assignment!r} is not NAME=VALUE")
    return name, value_of(text)


@click.command()
@click.argument("assignments", nargs=-1, required=True)
@click.option("--mask", help="Change only these bits of the register.")
@keyed_options
@socket_option
@json_option
def write(assignments: tuple[str, ...], mask: str | None, socket_: str | None, as_json: bool, **options: Any) -> None:
    """Write a whole register (device.REG=VALUE), or all members of a group."""
    params = _write_params(assignments)
    if mask is not None:
        params["mask"] = mask
    _send("reg.write", params, socket_, as_json, **options)


def _write_params(assignments: tuple[str, ...]) -> dict[str, Any]:
    pairs = [_assigned(a) for a in assignments]
    if len(pairs) == 1:
        return {"register": pairs[0][0], "value": pairs[0][1]}
    return {"registers": dict(pairs)}


@click.command()
@click.argument("assignments", nargs=-1, required=True)
@keyed_options
@socket_option
@json_option
def update(assignments: tuple[str, ...], socket_: str | None, as_json: bool, **options: Any) -> None:
    """Change fields of one register (device.REG.FIELD=VALUE …), leaving the others alone."""
    _send("reg.update", _update_params(assignments), socket_, as_json, **options)


def _update_params(assignments: tuple[str, ...]) -> dict[str, Any]:
    fields: dict[str, Any] = {}
    registers = set()
    for name, value in map(_assigned, assignments):
        register, dot, field = name.rpartition(".")
        if not dot or "." not in register:
            usage(f"{name!r} is not device.REGISTER.FIELD; to write a whole register: hwtool write")
        registers.add(register)
        fields[field] = value
    if len(registers) != 1:
        usage(f"fields of one register at a time, not of {', '.join(sorted(registers))}")
    return {"register": registers.pop(), "fields": fields}


def _steps(file: str) -> dict[str, Any]:
    """What a file of steps says: TOML with [[steps]], or JSON with "steps"; `-`: the standard input."""
    import tomllib  # here: the everyday verbs start faster without it

    try:
        text = sys.stdin.read() if file == "-" else Path(file).read_text(encoding="utf-8")
        told = json.loads(text) if text.lstrip().startswith("{") else tomllib.loads(text)
        json.dumps(told, allow_nan=False)  # what JSON cannot carry (dates, nan) is no value of a register
    except (OSError, ValueError, TypeError, RecursionError) as error:
        usage(f"{file} cannot be read as steps: {error}")
    if not isinstance(told, dict) or not isinstance(told.get("steps"), list):
        usage(f"{file} holds no steps: [[steps]] tables (TOML), or an object with the one member steps (JSON)")
    if len(told) > 1:
        usage(f"{file}: beside steps it holds {', '.join(sorted(set(told) - {'steps'}))}; only steps are known")
    return told


def _sequence(result: dict[str, Any]) -> None:
    if result.get("transfers") is not None:
        _transfers(result)
        return
    if result["status"] != "done":
        click.echo(f"{result['summary']} (operation {result['id']})")
        return
    for step in (result.get("evidence") or {}).get("steps", []):
        how = f"{step['verdict']}, effects {step['effects']}: " if step.get("verdict") else ""
        click.echo(f"  step {step['step']} {step['do']}: {how}{step['summary']}")
    click.echo(f"{result['verdict']}: {result['summary']} (operation {result['id']}, effects {result['effects']})")


@click.command()
@click.argument("what", metavar="FILE|DEVICE.SEQUENCE")
@click.argument("params", nargs=-1, metavar="[PARAM=VALUE]...")
@keyed_options
@socket_option
@json_option
def sequence(what: str, params: tuple[str, ...], socket_: str | None, as_json: bool, **options: Any) -> None:
    """Run steps under one key, until the first that is not proven.

    Those of FILE (- for the standard input), or of a sequence that the device's contract has by name.
    """
    named = "." in what and "/" not in what and Path(what).suffix not in (".toml", ".json")
    if named and not Path(what).exists():
        given: dict[str, Any] = {"sequence": what}
        if params:
            given["params"] = dict(_assigned(p) for p in params)
    elif params:
        usage("PARAM=VALUE goes with the sequence of a contract, DEVICE.SEQUENCE")
    else:
        given = _steps(what)
    _send("sequence.run", given, socket_, as_json, show=_sequence, **options)


@click.command("safe-state")
@click.argument("device")
@keyed_options
@socket_option
@json_option
def safe_state(device: str, socket_: str | None, as_json: bool, **options: Any) -> None:
    """Write what the board lists as safe for DEVICE, at once and past whatever holds it."""
    if options["run_"] is not None:
        usage("a safe state belongs to no run: it is never in anybody's way")
    _send("device.safe_state", {"device": device}, socket_, as_json, **options)


@click.command()
@click.argument("verb", type=click.Choice(["read", "write", "update"]))
@click.argument("words", nargs=-1, required=True)
@click.option("--count", type=click.IntRange(1), help="For read: elements to take from a FIFO.")
@socket_option
@json_option
def plan(verb: str, words: tuple[str, ...], count: int | None, socket_: str | None, as_json: bool) -> None:
    """Show the exact transfers that a keyed read, write or update would send; nothing is sent."""
    match verb:
        case "write":
            method, params = "reg.write", _write_params(words)
        case "update":
            method, params = "reg.update", _update_params(words)
        case _:
            method = "reg.read_effectful"
            params = {"register": words[0]} if len(words) == 1 else {"registers": list(words)}
            params |= {"count": count} if count else {}
    with link(socket_) as client:
        finish(client.ask("reg.plan", {"method": method, "params": params}), as_json, _transfers)


def _op(result: dict[str, Any]) -> None:
    told = result.get("op")
    if told is None:
        values(result)
        return
    by = f" by {told['verdict_by']}" if told["verdict_by"] else ""
    click.echo(f"operation {told['id']}: {told['state']} {told['verdict'] or ''}{by}".rstrip())
    what = ", ".join(told["devices"]) if told.get("devices") else f"{told['device']}.{', '.join(told['registers'])}"
    parent = f", a step of operation {told['parent']}" if told.get("parent") else ""
    click.echo(f"  {told['kind']} {what} of {told['principal']}, key {told['key']}{parent}")
    for step in told.get("steps", []):
        click.echo(f"  step {step['step']}: operation {step['id']} {step['state']} {step['verdict'] or ''}".rstrip())
    click.echo(f"  effects {result['effects']}: {result['summary']}")
    evidence = result.get("evidence") or {}
    for name, before in (evidence.get("before") or {}).items():
        now = (evidence.get("after") or {}).get(name)
        click.echo(f"  {name} was {before} before" + (f", {now} when last seen" if now is not None else ""))
    if evidence.get("fault"):
        click.echo(f"  seen: {evidence['fault']}")
    if told["state"] == "UNKNOWN":
        _for_settling(told)
        cause = {"crash": "the daemon ended between intent and outcome"}.get(evidence.get("how", ""))
        if cause is not None:
            click.echo(f"  why unknown: {cause}")
    if told.get("needs_person"):
        click.echo(f"  needs a person: {told['needs_person']}")
    if result.get("values"):
        for value in result["values"]:
            click.echo(f"  {value['register']} = {value['raw']}")


def _for_settling(told: dict[str, Any]) -> None:
    """What was to be sent, what was there, and which rule could not decide: for the person who has to."""
    for register, value in (told.get("wanted") or {}).items():
        click.echo(f"  {told['device']}.{register} was to be {value}")
    for step in told.get("plan") or ():
        data = f" {step['data']}" if step.get("data") else ""
        click.echo(f"  to be sent: {step['do']} {step.get('offset', step.get('command', ''))}{data} ({step['role']})")
    for name, value in (told.get("before") or {}).items():
        click.echo(f"  before: {told['device']}.{name} was {value}")
    for rule in told.get("rules") or ():
        shown = f", shown by {rule['shown_by']}" if rule["shown_by"] else ", shown by nothing"
        click.echo(f"  rule of {rule['register']}: {rule['rule'] or 'none'}{shown}")


@click.command()
@click.argument("number", required=False)
@click.option("--key", help="By the key of your request.")
@click.option("--verify", is_flag=True, help="Try the rules that may settle an unknown outcome.")
@click.option("--operator", is_flag=True, help="Use the operator's socket: operations of others are shown whole.")
@socket_option
@json_option
def op(number: str | None, key: str | None, verify: bool, operator: bool, socket_: str | None, as_json: bool) -> None:
    """Show what became of an operation, by NUMBER or --key."""
    with link(socket_, "operator" if operator else "agent") as client:
        finish(client.ask("op.get", _which(number, key) | ({"verify": True} if verify else {})), as_json, _op)


@click.command()
@click.argument("number", required=False)
@click.option("--key", help="By the key of your request.")
@click.option("--ms", type=click.IntRange(0, 25_000), default=25_000, show_default=True, help="How long to wait.")
@socket_option
@json_option
def wait(number: str | None, key: str | None, ms: int, socket_: str | None, as_json: bool) -> None:
    """Wait until an operation has ended."""
    with link(socket_) as client:
        finish(client.ask("op.wait", _which(number, key) | {"wait_ms": ms}), as_json, _op)


def _which(number: str | None, key: str | None) -> dict[str, Any]:
    if (number is None) == (key is None):
        usage("give either the operation's number or --key")
    if number is None:
        return {"key": key}
    if not number.isdecimal():
        usage(f"{number!r} is no number; for a key: --key {number}")
    return {"id": int(number)}
