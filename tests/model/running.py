"""How long the machine is played, and how it is begun: by seed, without a file that remembers anything."""

from __future__ import annotations

import logging
from collections import Counter

from hypothesis import HealthCheck, Phase, seed, settings
from hypothesis.stateful import run_state_machine_as_test

from tests.model.machine import Model

STEPS = 12


def played(examples: int, first: int, steps: int = STEPS, shrink: bool = True) -> Counter[str]:
    """Play so many examples; what there was in them.

    Raises:
        AssertionError: the promise was not kept; with the shortest way there, if that was asked for.
    """
    counts: Counter[str] = Counter()
    machine = seed(first)(type("Played", (Model,), {"counts": counts}))
    profile = settings(
        max_examples=examples,
        stateful_step_count=steps,
        phases=[Phase.generate, Phase.shrink] if shrink else [Phase.generate],
        database=None,
        deadline=None,
        suppress_health_check=list(HealthCheck),
        report_multiple_bugs=False,
        print_blob=False,
    )
    before = logging.root.manager.disable
    logging.disable(logging.CRITICAL)  # buses that are away are no news here
    try:
        run_state_machine_as_test(machine, settings=profile)
    finally:
        logging.disable(before)
    return counts
