"""Everything a doctor looks at, in the order of the table; a bus that goes meanwhile stops none of the rest."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Iterator
from pathlib import Path

from hwtool.board_lint import linted
from hwtool.config import Board
from hwtool.doctor import installed, nodes, places
from hwtool.doctor.finding import Finding, Status
from hwtool.doctor.host import Host


def examine(board: Board, board_file: Path, store: Path, sockets: str, host: Host) -> list[Finding]:
    """Look at a board on a host.

    Args:
        board_file: for the commands that mend.
        store, sockets: the daemon's directories.
    """
    daemon = places.daemon_of(store, host)
    return [
        *_board(board, board_file),
        *nodes.examined(board, str(board_file), host, daemon),
        *installed.examined(board, board_file, host),
        *places.store_examined(store, host, daemon),
        *places.sockets_examined(sockets, host, daemon),
        *places.approval_examined(board, sockets, host),
    ]


def _board(board: Board, board_file: Path) -> Iterator[Finding]:
    warnings = linted(board)["warnings"]
    for warning in warnings:
        place, _, told = str(warning).partition(": ")
        yield Finding("board.lint", Status.WARNING, place, told or place, f"hwtool board lint {board_file}")
    if not warnings:
        yield Finding("board.lint", Status.OK, board.name, "nothing to be told")
    same: dict[tuple[str, str], list[str]] = defaultdict(list)
    for device in board.devices.values():
        if device.identity is not None:
            same[device.contract.part, device.identity].append(device.name)
    for (part, identity), named in same.items():
        if len(named) > 1:
            told = f"{', '.join(named)}: each is {part} {identity}"
            cure = "give each its own identity: what its serial register shows"
            yield Finding("identity.twice", Status.PROBLEM, f"devices.{named[0]}", told, cure)
