"""What is installed on a host beside the program: rules of udev, units of systemd, groups."""

from __future__ import annotations

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
    yield from _service(board, host)
    for group in (SYSTEM_USER, AGENT_GROUP, OPERATOR_GROUP):
        if host.members(group) is None:
            cure = f"hwtool units --board {board_file}: install hwtool.conf, then systemd-sysusers"
            yield Finding("group.missing", Status.PROBLEM, group, f"there is no group {group}", cure)


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
        cure = f"hwtool udev{where} > {file}; {rules.RELOAD[0]}"
        needed = name == rules.LOCAL and any('GROUP="' in line for line in text.splitlines())
        status = Status.PROBLEM if needed else Status.WARNING
        try:
            found = file.read_text(encoding="utf-8")
        except OSError as error:
            yield Finding("rules.missing", status, str(file), error.strerror or str(error), cure)
            continue
        if _acting(found) != _acting(text):
            differ = len(set(_acting(found)) ^ set(_acting(text)))
            yield Finding("rules.outdated", status, str(file), f"{differ} line(s) are not as printed today", cure)
        else:
            yield Finding("rules.outdated", Status.OK, str(file), "as printed today")


def _acting(text: str) -> list[str]:
    return [line for line in text.splitlines() if line and not line.startswith("#")]


def _service(board: Board, host: Host) -> Iterator[Finding]:
    """Whether the service may reach the nodes that the board needs, and no others."""
    file = host.units / units.SERVICE
    cure = "hwtool units --board FILE, install what it prints; systemctl daemon-reload"
    try:
        text = file.read_text(encoding="utf-8")
    except OSError as error:
        yield Finding("unit.missing", Status.WARNING, str(file), error.strerror or str(error), cure)
        return
    found = set(re.findall(r"^DeviceAllow=(\S+)", text, re.MULTILINE))
    wanted = set(units.devices(board))
    told = []
    if "DevicePolicy=closed" not in text:
        told.append("it may reach every node: no DevicePolicy=closed")
    if wanted - found:
        told.append(f"it may not reach {', '.join(sorted(wanted - found))}")
    if found - wanted:
        told.append(f"it may reach {', '.join(sorted(found - wanted))}, which no bus needs")
    if told:
        yield Finding("unit.outdated", Status.PROBLEM, str(file), "; ".join(told), cure)
    else:
        yield Finding("unit.outdated", Status.OK, str(file), "it may reach what the board's buses need, and no more")
