"""Reading the board again while the daemon runs: what may change without losing what is held, queued or unknown.

Policy, approval mode, budgets, safe states, identities and what happens on a loss are taken over at once. Buses, the
devices that sit on them and their contracts are not: they need a restart, which loses nothing either.
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from dataclasses import fields, replace
from functools import partial

from hwtool.config import Board, DeviceSpec
from hwtool.policy import Caller
from hwtool.state import Daemon
from hwtool_contracts.errors import Code, DomainError
from hwtool_contracts.messages import Result
from hwtool_contracts.toml_reader import Faults
from hwtool_store import operations


async def reload(daemon: Daemon, caller: Caller, reread: Callable[[], Board] | None) -> Result:
    """Take over what the board file says by now.

    Raises:
        DomainError: refused: there is no file, it has faults, or what changed needs a restart; nothing is taken over.
    """
    async with daemon.reloading:
        return await _reload(daemon, caller, reread)


async def _reload(daemon: Daemon, caller: Caller, reread: Callable[[], Board] | None) -> Result:
    if reread is None:
        message = "the built-in bench has no board file that could be read again"
        raise DomainError(Code.REFUSED, message, rule="no_board", register=None, field=None)
    try:
        board = await asyncio.to_thread(reread)
    except Faults as found:
        message = f"the board has {len(found.faults)} fault(s), the first: {found.faults[0]}"
        hint = "hwtool board lint FILE lists them all; the daemon goes on with the board it has"
        raise DomainError(Code.REFUSED, message, hint=hint, rule="board_faults", register=None, field=None) from found
    needs = needs_restart(daemon.board, board)
    if needs:
        message = f"a restart is needed for: {', '.join(needs)}; nothing was taken over"
        hint = "restart the daemon: what is held, unknown or waits for approval is kept"
        raise DomainError(Code.REFUSED, message, hint=hint, rule="needs_restart", register=None, field=None)
    changed = [f.name for f in fields(Board) if getattr(board, f.name) != getattr(daemon.board, f.name)]
    body = daemon.body("reload", caller, None, summary=f"changed: {', '.join(changed) or 'nothing'}")
    await daemon.ask(partial(operations.note, body=body))
    daemon.board = board
    for device in daemon.devices.values():
        before, device.spec = device.spec, board.devices[device.name]
        device.identified = device.identified and before.identity == device.spec.identity
    summary = f"board {board.name} read again; changed: {', '.join(changed) or 'nothing'}"
    return daemon.dressed(Result(status="done", ok=True, effects="none", summary=summary))


def _fixed(spec: DeviceSpec) -> DeviceSpec:
    """A device without what may change while the daemon runs: all the rest must be the same."""
    return replace(spec, identity=None, report_loss=False, safe_state=(), writes_per_day={}, refuse_unverified=False)


def needs_restart(old: Board, new: Board) -> list[str]:
    """What of a board cannot be taken over while the daemon runs."""
    found = [] if old.metrics == new.metrics else ["metrics"]
    for name in sorted(old.buses.keys() | new.buses.keys()):
        if old.buses.get(name) != new.buses.get(name):
            found.append(f"buses.{name}")
    for name in sorted(old.devices.keys() | new.devices.keys()):
        one, other = old.devices.get(name), new.devices.get(name)
        if one is None or other is None:
            found.append(f"devices.{name}")
            continue
        if _fixed(one) != _fixed(other):
            found.append(f"devices.{name}")
    return found
