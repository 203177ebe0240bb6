"""Verbs about whole devices: dump what is clean into a file, diff it with a device or another dump, apply it again.

A dump is TOML, in the order of the contract, so that a person can cut and change it; what was left out stands in it as
comments. Applying shows one plan and runs one sequence: only registers that differ and whose write is a plain store
that is read back, in the file's order, until the first that is not proven.
"""

from __future__ import annotations

import json
import os
import sys
from pathlib import Path
from typing import Any, Final

import click

from hwtool.cli.link import complain, finish, json_option, link, minted, number, socket_option, usage
from hwtool.connection import Connection

MOST_STEPS: Final = 64
HEAD: Final = ("device", "contract", "contract_digest", "generation", "at")


@click.command()
@click.argument("device")
@click.argument("registers", nargs=-1)
@click.option("-o", "--output", help="The file to write; without it the dump is printed.")
@socket_option
@json_option
def dump(device: str, registers: tuple[str, ...], output: str | None, socket_: str | None, as_json: bool) -> None:
    """Read what is clean of DEVICE (REGISTERS: names or patterns), and tell what was left out and why."""
    params: dict[str, Any] = {"device": device} | ({"registers": list(registers)} if registers else {})
    with link(socket_) as client:
        result = client.ask("device.dump", params)
        if as_json or result["status"] == "failed":
            finish(result, as_json)
        contract = next(d["contract"] for d in client.ask("device.list")["devices"] if d["name"] == device)
        text = written(device, contract, result)
        if output is None:
            click.echo(text, nl=False)
        else:
            try:
                with os.fdopen(os.open(output, os.O_WRONLY | os.O_CREAT | os.O_TRUNC, 0o600), "w") as file:
                    file.write(text)  # for its owner alone: it may hold values that no record shows
            except OSError as error:
                usage(f"{output}: {error.strerror or error}")
            click.echo(f"{result['summary']}; written to {output}", err=True)
        sys.exit(0)


def written(device: str, contract: str, result: dict[str, Any]) -> str:
    """The text of a dump."""
    head = {"device": device, "contract": contract, **{k: result[k] for k in ("contract_digest", "generation", "at")}}
    lines = [f"{k} = {json.dumps(head[k])}" for k in HEAD]
    lines += ["", "[values]"]
    for value in result["values"]:
        name = value["register"].partition(".")[2]
        fields = ", ".join(f"{n} = {f['raw']}{number(f)}" for n, f in (value.get("fields") or {}).items())
        told = number(value).strip() + (f" {fields}" if fields else "")
        comment = "  # " + told.strip() if told.strip() else ""
        lines.append(f"{_key(name)} = {json.dumps(value['raw'])}{comment}")
    if result["left_out"]:
        lines += ["", "# left out:"]
        lines += [f"#   {left['register'].partition('.')[2]}: {left['why']}" for left in result["left_out"]]
    return "\n".join(lines) + "\n"


def _key(name: str) -> str:
    bare = name.replace("_", "").replace("-", "").isalnum() and name.isascii()
    return name if bare else json.dumps(name)


def picture_of(file: str) -> dict[str, Any]:
    """A dump as it stands in a file."""
    import tomllib  # here: the everyday verbs start faster without it

    try:
        told = tomllib.loads(Path(file).read_text(encoding="utf-8"))
    except (OSError, ValueError, RecursionError) as error:
        usage(f"{file} cannot be read as a dump: {error}")
    values = told.get("values")
    if not isinstance(told.get("device"), str) or not isinstance(values, dict) or not values:
        usage(f"{file} is no dump: it has no device and [values]; hwtool dump DEVICE -o FILE makes one")
    for key in HEAD:
        if key in told and not isinstance(told[key], str | int):
            usage(f"{file}: {key} is no text")
    if not isinstance(told.get("contract", ""), str):
        usage(f"{file}: contract is no name")
    unknown = sorted(set(told) - {*HEAD, "values"})
    if unknown:
        usage(f"{file}: {unknown[0]} is nothing that a dump has")
    wrong = [n for n, v in values.items() if isinstance(v, bool) or not isinstance(v, int | str)]
    if wrong:
        usage(f"{file}: values.{wrong[0]} is no value: a number, or a string as in a request")
    return told


@click.command()
@click.argument("before", metavar="FILE")
@click.argument("after", metavar="DEVICE|FILE", required=False)
@click.option("--contract", help="For two files: the contract that tells fields and units, else that of the dump.")
@click.option("--exit-code", is_flag=True, help="End with 1 where something differs.")
@socket_option
@json_option
def diff(
    before: str, after: str | None, contract: str | None, exit_code: bool, socket_: str | None, as_json: bool
) -> None:
    """Tell in fields and units how a DEVICE (that of the dump where none is named) differs from the dump in FILE."""
    picture = picture_of(before)
    if after is not None and (Path(after).is_file() or after.endswith(".toml")):
        differences = _of_files(picture, picture_of(after), contract or picture.get("contract"))
        told: dict[str, Any] = {"differences": differences, "left_out": []}
    else:
        with link(socket_) as client:
            told = _compared(client, picture, after or picture["device"], as_json)
    if as_json:
        click.echo(json.dumps(told))
    else:
        _show(told)
    sys.exit(1 if told["left_out"] or (exit_code and told["differences"]) else 0)


def _compared(client: Connection, picture: dict[str, Any], device: str, as_json: bool) -> dict[str, Any]:
    """The device against a picture; an error ends the program."""
    result = client.ask("device.dump", {"device": device, "compare": picture["values"]})
    if result["status"] == "failed":
        finish(result, as_json)
    return result


def _show(told: dict[str, Any]) -> None:
    for one in told["differences"]:
        then, now = one["picture"], one["device"]
        click.echo(f"{one['register']}: {then['raw']}{number(then)} -> {now['raw']}{number(now)}")
        for name, field in one["fields"].items():
            old, new = field["picture"], field["device"]
            click.echo(f"  {name}: {old['raw']}{number(old)} -> {new['raw']}{number(new)}")
    for left in told["left_out"]:
        click.echo(f"  not compared: {left['register']}: {left['why']}", err=True)
    if told["left_out"]:
        click.echo(f"{len(told['left_out'])} register(s) could not be compared", err=True)
    elif not told["differences"]:
        click.echo("no difference", err=True)


def _of_files(before: dict[str, Any], after: dict[str, Any], contract: str | None) -> list[dict[str, Any]]:
    """Two dumps against each other, in fields and units where the contract can be found."""
    registers = _registers(contract)
    found = []
    for name in dict.fromkeys([*before["values"], *after["values"]]):
        pair = [_shown(before["device"], name, d["values"].get(name), registers) for d in (before, after)]
        if pair[0]["raw"] == pair[1]["raw"]:
            continue
        fields = {
            field: {"picture": pair[0]["fields"][field], "device": pair[1]["fields"][field]}
            for field in pair[0].get("fields") or {}
            if pair[0]["fields"][field] != (pair[1].get("fields") or {}).get(field) and pair[1].get("fields")
        }
        register = f"{before['device']}.{name}"
        found.append({"register": register, "picture": pair[0], "device": pair[1], "fields": fields})
    return found


def _registers(contract: str | None) -> Any:
    """The registers of a contract that can be found here; nothing where it cannot."""
    if contract is None:
        return {}
    from hwtool_contracts.library import find_contract  # only for two files: the daemon knows its contracts itself
    from hwtool_contracts.toml_reader import Faults

    try:
        return find_contract(contract, Path.cwd()).registers
    except Faults as faults:
        click.echo(f"hwtool: raw values alone: {faults.faults[0]}", err=True)
        return {}


def _shown(device: str, name: str, raw: int | str | None, registers: Any) -> dict[str, Any]:
    if raw is None:
        return {"raw": "(not in it)"}
    try:
        value = int(raw, 0) if isinstance(raw, str) else raw
    except ValueError:
        return {"raw": str(raw)}
    register = registers.get(name)
    if register is None:
        return {"raw": hex(value)}
    if not 0 <= value < 1 << register.width_bits:
        usage(f"values.{name} is {raw}: the register has {register.width_bits} bits")
    from hwtool.results import shown_value

    return shown_value(device, register, value)


@click.command()
@click.argument("file")
@click.option("--device", help="Another device than that of the dump.")
@click.option("--yes", is_flag=True, help="Do not ask; needed where nobody can be asked.")
@click.option("--any-contract", is_flag=True, help="Apply it although the contract has changed since the dump.")
@click.option("--key", help="Idempotency key; minted and printed if not given.")
@click.option("--reason", help="Why, in your words; shown to whoever approves.")
@click.option("--dry-run", is_flag=True, help="Show the plan, and send nothing.")
@click.option("--operator", is_flag=True, help="Use the operator's socket.")
@socket_option
@json_option
def apply(
    file: str,
    device: str | None,
    yes: bool,
    any_contract: bool,
    key: str | None,
    reason: str | None,
    dry_run: bool,
    operator: bool,
    socket_: str | None,
    as_json: bool,
) -> None:
    """Write what differs from the dump in FILE back: one plan, then one sequence, stopped at the first doubt."""
    picture = picture_of(file)
    target = device or picture["device"]
    with link(socket_, "operator" if operator else "agent", key) as client:
        told = _compared(client, picture, target, as_json)
        if not any_contract and picture.get("contract_digest") not in (None, told["contract_digest"]):
            complain("the contract has changed since the dump: look at the differences, then use --any-contract", 5)
        steps = [
            {"do": "write", "register": one["register"], "value": one["picture"]["raw"]}
            for one in told["differences"]
            if one["apply"]
        ]
        if not as_json:
            _show(told)
        for one in told["differences"]:
            if not one["apply"]:
                click.echo(f"hwtool: left as it is: {one['register']}: {one['why']}", err=True)
        if told["left_out"]:
            complain(
                "nothing was written: what the device holds is not known everywhere; cut the file, or mend that", 1
            )
        if not steps:
            kept = [one for one in told["differences"] if not one["apply"]]
            if as_json:
                click.echo(json.dumps(told))
            click.echo("hwtool: nothing to write" + (f"; {len(kept)} differ and stay" if kept else ""), err=True)
            sys.exit(1 if kept else 0)
        if len(steps) > MOST_STEPS:
            usage(f"{len(steps)} registers differ; a sequence has at most {MOST_STEPS} steps: cut the file")
        params = {"steps": steps} | ({"reason": reason} if reason is not None else {})
        planned = client.ask("reg.plan", {"method": "sequence.run", "params": params})
        if planned["status"] == "failed" or dry_run:
            finish(planned, as_json, _plan)
        _plan(planned, err=as_json)
        if not yes:
            if not sys.stdin.isatty():
                usage("nobody can be asked: look at the plan, and use --yes")
            if not click.confirm("write this?", default=False, err=True):
                usage("nothing was written")
        used = minted(key)
        finish(client.ask("sequence.run", params | {"key": used}), as_json, _done)


def _plan(planned: dict[str, Any], err: bool = False) -> None:
    for transfer in planned["transfers"]:
        where = transfer.get("offset", "")
        told = f"{transfer['role']} {transfer['do']} {transfer.get('address', '')} {where} {transfer.get('data', '')}"
        click.echo(f"  sends: {told.rstrip()}  ({transfer['register']})", err=err)
    click.echo(planned["summary"], err=True)


def _done(result: dict[str, Any]) -> None:
    click.echo(f"{result['verdict'] or result['status']}: {result['summary']} (operation {result['id']})")
