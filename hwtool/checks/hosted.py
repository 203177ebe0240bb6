"""The two processes that a test of somebody else stands on: the simulated chips of a board, and the daemon on them.

    python -m hwtool.checks.hosted chips BOARD SOCKET
    python -m hwtool.checks.hosted daemon BOARD SOCKET STORE DIRECTORY

Each says that it is ready on stderr, and ends by SIGTERM, or with the
tests that started it: when its standard input ends.
"""

from __future__ import annotations

import os
import signal
import sys
import threading
from dataclasses import replace
from pathlib import Path
from typing import Final

from hwtool.checks.simulated import simulated
from hwtool.config import ApprovalMode, Board, load_board
from hwtool_contracts.toml_reader import Faults

CHIPS_READY: Final = "hwtool sim: ready"  # as the verb `sim` says it
DAEMON_READY: Final = "hwtool: ready"


def hosted(board: Board, socket: str) -> Board:
    """The board with all of its chips behind the socket of one simulator.

    Who runs the tests is agent and operator in one, so `approval_mode` is `self`, as on every bench without hardware.
    """
    apart = simulated(board)
    buses = {name: replace(spec, socket=socket) for name, spec in apart.buses.items()}
    return replace(apart, buses=buses, approval_mode=ApprovalMode.SELF)


def _end_with_starter() -> None:
    while os.read(0, 1):  # not by sys.stdin: its lock would be held when this process ends before
        pass
    os.kill(os.getpid(), signal.SIGTERM)


def _say_ready() -> None:
    print(CHIPS_READY, file=sys.stderr, flush=True)


def main(words: list[str]) -> int:
    """Run one of the two until it is told to end; the exit code."""
    what, file, socket, *more = words
    try:
        board = hosted(load_board(Path(file)), socket)
    except Faults as error:
        print("\n".join(map(str, error.faults)), file=sys.stderr)
        return 2
    threading.Thread(target=_end_with_starter, daemon=True).start()
    if what == "chips":
        from hwtool.simulator import served
        from hwtool_sim.process import serve as serve_chips

        chips = served(board, socket)
        serve_chips(socket, chips.buses, {}, end_at=(signal.SIGTERM, signal.SIGINT), ready=_say_ready)
        return 0
    from hwtool.server import run, serve

    store, directory = more
    run(serve(board, Path(store), Path(directory), allow_unsafe=True))
    return 0


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
