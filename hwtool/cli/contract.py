"""The verb `contract`: lint, show, find, diff, import and review of contracts in files; no daemon is asked."""

from __future__ import annotations

import datetime
import difflib
import hashlib
import json
import os
import sys
from collections.abc import Callable
from pathlib import Path
from typing import Any, NoReturn, TypeVar

import click

from hwtool.cli.link import complain, json_option, table
from hwtool_contracts.compare import differences
from hwtool_contracts.complaint import Complaint
from hwtool_contracts.glob import is_pattern, matches
from hwtool_contracts.keys import schema
from hwtool_contracts.library import CHIPS, bundled_names, bundled_overlays, find, is_path
from hwtool_contracts.lint import complaints
from hwtool_contracts.model import Contract, Register
from hwtool_contracts.native_write import text_of, write_contract
from hwtool_contracts.notice import Imported
from hwtool_contracts.review import findings, of_peripheral, propose, share, statements
from hwtool_contracts.shown import drawn, hexed, own_read, own_write, register_object
from hwtool_contracts.toml_reader import Faults

F = TypeVar("F", bound=Callable[..., Any])
HIDDEN = 40


@click.group()
def contract() -> None:
    """Look at, import and review register descriptions: a bundled name, or a file (.svd, .toml, an overlay)."""


def overlay_option(function: F) -> F:
    """`--overlay`: what is laid over the file."""
    text = "An overlay laid over it: a bundled name or a file; may be repeated."
    return click.option("--overlay", "overlays", multiple=True, metavar="NAME", help=text)(function)


def opened(name: str, overlays: tuple[str, ...] = ()) -> Imported:
    """The contract of a name; its faults are told, and end the program."""
    try:
        return find(name, None, overlays)
    except Faults as error:
        refuse(name, error)


def refuse(name: str, error: Faults) -> NoReturn:
    """Tell every fault of a file, and end."""
    click.echo(f"hwtool: {name} cannot be used; {len(error.faults)} fault(s):", err=True)
    for fault in error.faults:
        click.echo(f"  {fault}", err=True)
    sys.exit(2)


def end(code: int = 0) -> NoReturn:
    """End once everything has been read, or the reader has seen enough."""
    try:
        sys.stdout.flush()
    except BrokenPipeError:
        os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())
    sys.exit(code)


@contract.command()
@json_option
def names(as_json: bool) -> None:
    """List the bundled contracts and overlays."""
    if as_json:
        click.echo(json.dumps({"contracts": bundled_names(), "overlays": bundled_overlays()}))
        end()
    for name in bundled_names():
        click.echo(f"{name}  {find(name).contract.title}")
    for name in bundled_overlays():
        click.echo(f"{name}  an overlay")
    end()


@contract.command("schema")
def schema_() -> None:
    """Print the JSON Schema of contracts and overlays, for editors."""
    click.echo(json.dumps(schema(), indent=1))


@contract.command()
@click.argument("files", nargs=-1, required=True)
@overlay_option
@json_option
def lint(files: tuple[str, ...], overlays: tuple[str, ...], as_json: bool) -> None:
    """Check files; with several, a table: registers, fields, effects stated, silent, suspicious, warnings.

    Exits with 2 if a file does not load.
    """
    rows: list[dict[str, Any]] = []
    failed = False
    for name in files:
        row: dict[str, Any] = {"file": Path(name).name if is_path(name) else name}
        try:
            imported = find(name, None, overlays)
        except Faults as error:
            failed = True
            rows.append({**row, "faults": [str(f) for f in error.faults]})
            continue
        told = statements(imported.contract)
        found = complaints(imported)
        row |= {"registers": told.registers, "fields": told.fields, "stated": told.stated, "silent": told.silent}
        rows.append({**row, "suspicious": told.suspicious, "warnings": [c.as_object() for c in found]})
        if len(files) == 1 and not as_json:
            _tell(found)
    if as_json:
        click.echo(json.dumps({"files": rows}))
    else:
        _tell_rows(rows)
    end(2 if failed else 0)


def _tell(found: list[Complaint]) -> None:
    for complaint in found[:HIDDEN]:
        click.echo(f"  {complaint}", err=True)
    if len(found) > HIDDEN:
        click.echo(f"  … and {len(found) - HIDDEN} more (--json lists all)", err=True)


def _tell_rows(rows: list[dict[str, Any]]) -> None:
    columns = ["file", "registers", "fields", "stated", "silent", "suspicious", "warnings"]
    shown = []
    for row in rows:
        if "faults" in row:
            shown.append({"file": row["file"], "warnings": f"does not load: {len(row['faults'])} fault(s)"})
        else:
            shown.append({**row, "warnings": len(row["warnings"])})
    table(shown, columns)
    for row in rows:
        for fault in row.get("faults", []):
            click.echo(f"  {fault}", err=True)


@contract.command()
@click.argument("file")
@click.argument("register", required=False)
@overlay_option
@json_option
def show(file: str, register: str | None, overlays: tuple[str, ...], as_json: bool) -> None:
    """Show every register of a contract, or draw one (REGISTER may be a pattern: UART0.*)."""
    promised = opened(file, overlays).contract
    chosen = list(promised.registers.values()) if register is None else _chosen(promised, register)
    if as_json:
        members = {k: getattr(promised, k) for k in ("part", "vendor", "title", "source", "digest")}
        registers = [register_object(promised, r) for r in chosen]
        click.echo(json.dumps({**members, "verified": promised.verified or False, "registers": registers}))
        end()
    if register is None:
        click.echo(f"{promised.part}: {promised.title} ({promised.source})")
        table([_line(promised, r) for r in chosen], ["register", "offset", "access", "read", "write", "fields"])
    else:
        for one in chosen:
            for line in drawn(promised, one):
                click.echo(line)
    end()


def _chosen(promised: Contract, register: str) -> list[Register]:
    if register in promised.registers:
        return [promised.registers[register]]
    found = [r for n, r in promised.registers.items() if is_pattern(register) and matches(register, n)]
    if not found:
        _not_found(promised, register)
    return found


def _not_found(promised: Contract, name: str) -> NoReturn:
    lower = {n.lower(): n for n in promised.registers}
    near = [lower[n] for n in difflib.get_close_matches(name.lower(), lower, 3)]
    hint = f"; did you mean {', '.join(near)}?" if near else ""
    complain(f"{promised.part} has no register {name}{hint}", 5)


def _line(promised: Contract, register: Register) -> dict[str, Any]:
    line: dict[str, Any] = {"register": register.name, "access": register.access.value}
    line["offset"] = hexed(register.offset, 8 * promised.access.offset_bytes)
    if register.access.readable:
        effects, basis = own_read(register)
        line["read"] = f"{'+'.join(effects)} ({basis})"
    if register.access.writable:
        effect, basis = own_write(register)
        line["write"] = f"{effect} ({basis})"
    line["fields"] = len(register.fields) or None
    return line


@contract.command("find")
@click.argument("file")
@click.argument("words", nargs=-1, required=True)
@overlay_option
@json_option
def find_(file: str, words: tuple[str, ...], overlays: tuple[str, ...], as_json: bool) -> None:
    """Find registers whose name, fields, text or effects contain every word."""
    promised = opened(file, overlays).contract
    wanted = [w.lower() for w in words]
    found = [r for r in promised.registers.values() if all(w in _text(r) for w in wanted)]
    if as_json:
        click.echo(json.dumps({"registers": [register_object(promised, r) for r in found]}))
    else:
        table([_line(promised, r) for r in found], ["register", "offset", "access", "read", "write", "fields"])
    end(0 if found else 5)


def _text(register: Register) -> str:
    fields = " ".join(f"{f.name} {f.description}" for f in register.fields.values())
    effects = " ".join(own_read(register)[0]) if register.access.readable else ""
    write = own_write(register)[0].value if register.access.writable else ""
    return f"{register.name} {register.description} {fields} {effects} {write}".lower()


@contract.command()
@click.argument("before")
@click.argument("after")
@click.option("--texts", is_flag=True, help="Also what differs in descriptions alone.")
@json_option
def diff(before: str, after: str, texts: bool, as_json: bool) -> None:
    """Compare two contracts by what they promise."""
    found = differences(opened(before).contract, opened(after).contract)
    shown = [d for d in found if texts or not d.harmless]
    if as_json:
        lines = [{"place": d.place, "what": d.what, "before": d.before, "after": d.after} for d in shown]
        click.echo(json.dumps({"same": not shown, "differences": lines}))
        end()
    for difference in shown:
        click.echo(str(difference))
    hidden = len(found) - len(shown)
    click.echo(f"{len(shown)} difference(s)" + (f", and {hidden} in texts alone (--texts)" if hidden else ""), err=True)
    end()


@contract.command("import")
@click.argument("file")
@click.option("-o", "--output", type=click.Path(path_type=Path), help="Where to write; without it, stdout.")
@overlay_option
def import_(file: str, output: Path | None, overlays: tuple[str, ...]) -> None:
    """Write a contract in the native format: the same promises, readable and editable."""
    imported = opened(file, overlays)
    for notice in imported.notices:
        click.echo(f"  {notice}", err=True)
    text = write_contract(imported.contract)
    if output is None:
        click.echo(text, nl=False)
        end()
    _create(output, text)
    click.echo(f"{output}: {len(imported.contract.registers)} registers", err=True)
    end()


def _create(path: Path, text: str) -> None:
    """Write a file that is not there yet."""
    try:
        with path.open("x", encoding="utf-8") as file:
            file.write(text)
    except FileExistsError:
        complain(f"{path} is there already; nothing was written", 2)
    except OSError as error:
        complain(f"{path} cannot be written: {error.strerror or error}", 2)


@contract.command()
@click.argument("file")
@click.option("--peripheral", help="Only this peripheral, and the entry that would cover it.")
@click.option("--only", type=click.Choice(["read", "write"]), help="Let the entry speak of reads or of writes alone.")
@overlay_option
@click.option("--limit", default=HIDDEN, show_default=True, help="How many registers to list.")
@click.option("--write", "target", type=click.Path(path_type=Path), help="Add the entry to this overlay, or begin it.")
@click.option("--seen", type=click.Choice(["page", "driver"]), help="What you looked at.")
@click.option("--source", help="Document and section, or repository, commit and path.")
@click.option("--by", "reviewed_by", help="Who reviewed it.")
@json_option
def review(
    file: str,
    peripheral: str | None,
    only: str | None,
    overlays: tuple[str, ...],
    limit: int,
    target: Path | None,
    seen: str | None,
    source: str | None,
    reviewed_by: str | None,
    as_json: bool,
) -> None:
    """List what is silent or suspicious, worst first, and what of the map is usable; propose an entry to sign."""
    promised = opened(file, overlays).contract
    chosen = list(promised.registers.values()) if peripheral is None else of_peripheral(promised, peripheral)
    if not chosen:
        clusters = sorted({n.partition(".")[0] for n in promised.registers if "." in n})
        near = difflib.get_close_matches(peripheral or "", clusters, 3) or clusters[:8]
        complain(f"{promised.part} has no peripheral {peripheral}; one of {', '.join(near)}", 5)
    found = findings(chosen)
    before = share(promised, chosen)
    lowest = _lowest(file)
    directions = ("read", "write") if only is None else (only,)
    below = opened(str(lowest)).contract
    entry = None if peripheral is None else propose(promised, peripheral, below, directions)
    signed = bool(seen and source and reviewed_by)
    text = (
        ""
        if entry is None
        else entry.text(seen or "", source or "", reviewed_by or "", datetime.date.today().isoformat())
    )
    after = before
    if entry is not None:
        signed_by_someone = _provisional(promised, below, file, text)
        after = share(signed_by_someone, [signed_by_someone.registers[r.name] for r in chosen])
    if as_json:
        listed = [
            {"register": f.register.name, "silent": list(f.silent), "weight": f.weight}
            | {"suspicions": [{"direction": s.direction, "reason": s.reason} for s in f.suspicions]}
            for f in found
        ]
        click.echo(
            json.dumps({"findings": listed, "before": before.line(), "after": after.line(), "entry": text or None})
        )
    else:
        for one in found[:limit]:
            click.echo(f"{one.register.name}: silent on {' and '.join(one.silent)}")
            for suspicion in one.suspicions:
                click.echo(f"    {suspicion.direction}: {suspicion.reason}")
        if len(found) > limit:
            click.echo(f"… and {len(found) - limit} more (--limit)")
        click.echo(
            f"{len(found)} of {len(chosen)} registers are silent, {sum(bool(f.suspicions) for f in found)} suspicious"
        )
        click.echo(f"usable now:   {before.line()}")
        if entry is not None:
            click.echo(f"with the entry: {after.line()} ({entry.count} registers covered)")
            click.echo("")
            click.echo(text, nl=False)
    if target is not None:
        if entry is None:
            complain(
                "there is no entry to write: name a --peripheral with registers that are silent and not suspicious", 2
            )
        if not signed:
            complain("an entry is signed: --seen page|driver, --source and --by; nothing was written", 2)
        _sign(target, lowest, text)
    end()


def _lowest(file: str) -> Path:
    """The file that all overlays lie on: the one named, or the base of the overlay that it is."""
    from hwtool_contracts.overlay import base_of

    path = Path(file) if is_path(file) else CHIPS / f"{file}.toml"
    while path.suffix == ".toml":
        base = base_of(path.read_text(encoding="utf-8"), path.name)
        if base is None:
            break
        path = path.parent / base
    return path


def _provisional(promised: Contract, lowest: Contract, file: str, text: str) -> Contract:
    """The contract as it would be with an entry, whoever signs it."""
    from hwtool_contracts.overlay import lay_over

    filled = text.replace('seen = ""', 'seen = "page"').replace('source = ""', 'source = "-"')
    filled = filled.replace('reviewed_by = ""', 'reviewed_by = "-"')
    head = f"base = {text_of(Path(file).name)}\nbase_sha256 = {text_of('0' * 64)}\n"
    return lay_over(promised, "0" * 64, head + filled, "the entry", lowest=lowest).contract


def _sign(target: Path, path: Path, text: str) -> None:
    """Add an entry to an overlay of `path`; a new overlay begins with its base.

    Nothing but an overlay of the same base is added to, and a new one stands beside its base.
    """
    from hwtool_contracts.overlay import base_of

    if target.exists():
        try:
            base = base_of(target.read_text(encoding="utf-8"), target.name)
        except (Faults, OSError, UnicodeDecodeError):
            base = None
        if base != path.name:
            told = "no overlay" if base is None else f"an overlay of {base}"
            complain(f"{target} is {told}; nothing was written. An entry goes to an overlay of {path.name}", 2)
    elif target.parent.is_dir() and target.resolve().parent != path.resolve().parent and path.parent != CHIPS:
        complain(f"an overlay stands beside its base, {path}; nothing was written", 2)
    try:
        sha256 = hashlib.sha256(path.read_bytes()).hexdigest()
    except OSError as error:
        complain(f"{path} cannot be read: {error.strerror or error}", 2)
    head = f"# Reviews of {path.name}\nbase = {text_of(path.name)}\nbase_sha256 = {text_of(sha256)}\n"
    try:
        fresh = not target.exists()
        with target.open("a", encoding="utf-8") as out:
            out.write((head if fresh else "") + "\n" + text)
    except OSError as error:
        complain(f"{target} cannot be written: {error.strerror or error}", 2)
    click.echo(f"{target}: entry added" + (" to a new overlay" if fresh else ""), err=True)
