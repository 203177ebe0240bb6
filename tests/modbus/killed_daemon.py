"""`hwtool serve` that kills itself with SIGKILL at the point named by KILL_AT; a launcher for tests."""

from __future__ import annotations

import os
import signal
from typing import Any

from hwtool import carry_out as carrying
from hwtool import dispatch, execution
from hwtool.__main__ import main


def die() -> None:
    """SIGKILL to this very process: nothing is flushed, nothing is closed."""
    os.kill(os.getpid(), signal.SIGKILL)


def arm(point: str) -> None:
    """Put the kill at a point of an operation's life."""
    if point == "before-dispatch":

        async def carry_out(*_: Any) -> Any:
            die()

        vars(execution)["carry_out"] = carry_out
    elif point == "after-dispatch":
        sent = dispatch.dispatch

        async def dispatched(*arguments: Any) -> Any:
            await sent(*arguments)
            die()

        vars(carrying)["dispatch"] = dispatched
    elif point == "after-outcome":
        recorded = execution.Execution._record

        async def record(*arguments: Any) -> Any:
            await recorded(*arguments)
            die()

        setattr(execution.Execution, "_record", record)  # noqa: B010  # a method put in its place
    else:
        raise SystemExit(f"no such point: {point}")


if __name__ == "__main__":
    arm(os.environ["KILL_AT"])
    main()
