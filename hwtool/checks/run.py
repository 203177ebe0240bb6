"""Running the checks: on a store of their own in a temporary directory, with the built-in bench."""

from __future__ import annotations

import asyncio
import tempfile
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Final

from hwtool.bench import bench
from hwtool.checks.basic import basic
from hwtool.checks.effects import effects
from hwtool.checks.rig import Check, Rig
from hwtool.checks.units import units
from hwtool.clock import Clock
from hwtool.engine import Engine

# why repeats must be safe: four steps that each work 98 times in 100 work together 92 times in 100
RETRY_ARITHMETIC: Final = "0.98^4 = 0.92236816: four steps that each succeed 98 % of the time all succeed 92 % of it"


@dataclass(frozen=True)
class Outcome:
    """All checks with what was counted."""

    checks: list[Check]

    @property
    def passed(self) -> bool:
        """Whether every check held, and there was one."""
        return bool(self.checks) and all(c.passed for c in self.checks)

    def lines(self) -> list[str]:
        """The outcome for a person."""
        shown = [f"{'ok  ' if c.passed else 'FAIL'} {c.name}: {c.counted}" for c in self.checks]
        failed = sum(not c.passed for c in self.checks)
        n = len(self.checks)
        end = (
            f"PASS: {n} safety checks held, counted at the devices" if self.passed else f"FAIL: {failed} of {n} failed"
        )
        return [*shown, RETRY_ARITHMETIC, end]

    def as_object(self) -> dict[str, Any]:
        """The outcome for a program."""
        checks = [{"name": c.name, "passed": c.passed, "counted": c.counted} for c in self.checks]
        return {"passed": self.passed, "count": len(self.checks), "retry_arithmetic": 0.98**4, "checks": checks}


async def _run(directory: Path) -> Outcome:
    engine = await Engine.start(bench(), directory, Clock(), allow_unsafe=True)
    try:
        rig = Rig(engine)
        return Outcome([c for part in (basic, effects, units) async for c in part(rig)])
    finally:
        await engine.close()


def run_checks() -> Outcome:
    """Run all checks and clean up."""
    with tempfile.TemporaryDirectory(prefix="hwtool-check-") as directory:
        return asyncio.run(_run(Path(directory)))
