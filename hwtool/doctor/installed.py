"""What is installed on a host beside the program: rules of udev, units of systemd, groups."""

from __future__ import annotations

import contextlib
import re
from collections.abc import Iterator
from pathlib import Path

from hwtool.config import Board
from hwtool.doctor.finding import Finding, Status
from hwtool.doctor.host import SYSTEM_USER, Host
from hwtool.host import rules, units
from hwtool.policy import AGENT_GROUP, OPERATOR_GROUP


def examined(board: Board, board_file: Path, host: Host) -> Iterator[Finding]:
    """Rules, service and groups of a system install; elsewhere nothing is to be installed."""
    if not host.system:
        evidence = "this is no system install: its nodes and sockets are this user's"
        yield Finding("rules.missing", Status.SKIPPED, str(host.rules), evidence)
        return
    yield from _rules(board, board_file, host)
    yield from _units(board, board_file, host)
    for group in (SYSTEM_USER, AGENT_GROUP, OPERATOR_GROUP):
        if host.members(group) is None:
            cure = f"hwtool units --board {board_file}: install hwtool.conf, then systemd-sysusers"
            status = Status.WARNING if board.simulated else Status.PROBLEM
            yield Finding("group.missing", status, group, f"there is no group {group}", cure)


def _rules(board: Board, board_file: Path, host: Host) -> Iterator[Finding]:
    try:
        wanted = {rules.CLASSES: rules.classes(), rules.LOCAL: rules.local(board, board_file.name)}
    except rules.NoRule as error:
        cure = "name it by a path below /dev"
        yield Finding("rules.missing", Status.PROBLEM, rules.LOCAL, str(error), cure)
        return
    for name, text in wanted.items():
        file = host.rules / name
        where = "" if name == rules.CLASSES else f" --board {board_file}"
        cure = f"hwtool udev{where} > {file}; {'; '.join(rules.RELOAD)}"
        needed = name == rules.LOCAL and any('GROUP="' in line for line in text.splitlines())
        status = Status.PROBLEM if needed else Status.WARNING
        try:
            found = file.read_text(encoding="utf-8")
        except OSError as error:
            yield Finding("rules.missing", status, str(file), error.strerror or str(error), cure)
            continue
        groups = set(re.findall(r'GROUP="([^"]*)"', found))
        if name == rules.LOCAL and len(groups) == 1:  # of another name, as `hwtool udev --group` gives them
            with contextlib.suppress(rules.NoRule):
                text = rules.local(board, board_file.name, *groups)
        if _acting(found) != _acting(text):
            differ = len(set(_acting(found)) ^ set(_acting(text)))
            yield Finding("rules.outdated", status, str(file), f"{differ} line(s) are not as printed today", cure)
        else:
            yield Finding("rules.outdated", Status.OK, str(file), "as printed today")


def _acting(text: str) -> list[str]:
    return [line for line in text.splitlines() if line and not line.startswith("#")]


def _units(board: Board, board_file: Path, host: Host) -> Iterator[Finding]:
    """Whether the units are those that would be printed today for the program and the board that they name."""
    cure = f"hwtool units --board {board_file}, install what it prints; systemctl daemon-reload"
    file = host.units / units.SERVICE
    try:
        text = file.read_text(encoding="utf-8")
    except OSError as error:
        yield Finding("unit.missing", Status.WARNING, str(file), error.strerror or str(error), cure)
        return
    started = re.search(r"^ExecStart=(\S+) serve --board (\S+)", text, re.MULTILINE)
    if started is None:
        yield Finding("unit.outdated", Status.PROBLEM, str(file), "it does not start hwtool serve with a board", cure)
        return
    try:
        wanted = units.units(board, Path(started[2]), Path(started[1]), board_file)
    except units.NoUnit as error:
        yield Finding("unit.outdated", Status.PROBLEM, str(file), str(error), cure)
        return
    for name in (units.SERVICE, units.SOCKET, units.OPERATOR_SOCKET):
        yield _unit(host.units / name, wanted[name], cure)
    if Path(started[2]).resolve() != board_file.resolve():
        told = f"it serves {started[2]}, and {board_file} was looked at"
        yield Finding("unit.outdated", Status.WARNING, str(file), told, f"hwtool doctor --board {started[2]}")


def _unit(file: Path, wanted: str, cure: str) -> Finding:
    """One unit, line by line; what is laid over it is told, and not looked into."""
    try:
        found = file.read_text(encoding="utf-8")
    except OSError as error:
        return Finding("unit.missing", Status.PROBLEM, str(file), error.strerror or str(error), cure)
    missing = [line for line in _acting(wanted) if line not in _acting(found)]
    added = [line for line in _acting(found) if line not in _acting(wanted)]
    if missing or added:
        told = [f"without {line}" for line in missing[:3]] + [f"with {line}" for line in added[:3]]
        more = len(missing) + len(added) - len(told)
        return Finding(
            "unit.outdated", Status.PROBLEM, str(file), "; ".join(told) + (f"; {more} more" if more else ""), cure
        )
    laid_over = sorted(str(one) for one in file.with_name(f"{file.name}.d").glob("*.conf"))
    if laid_over:
        told_over = f"as printed today, and changed by {', '.join(laid_over)}"
        return Finding("unit.outdated", Status.WARNING, str(file), told_over, f"systemctl cat {file.name}")
    return Finding("unit.outdated", Status.OK, str(file), "as printed today")
