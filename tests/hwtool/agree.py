"""The checker of agreement at the end of each life of a daemon in this folder, and the tests that opt out of it."""

from __future__ import annotations

import os
from collections import Counter
from pathlib import Path
from typing import Final
from weakref import WeakKeyDictionary

from hwtool.engine import Engine
from hwtool_sim.bus import SimBus
from hwtool_sim.chip import Chip
from tests.agreement import disagreements, record_of
from tests.executions import Count, Place

BEHIND_ITS_BACK: Final = {
    "test_settlement_when_a_rule_was_faster_than_the_person_then_refused": "settles by rule, records a person",
    "test_safe_state_when_its_intent_is_spent_twice_then_stopped_before_the_bus": "dispatches without an operation",
    "test_relock_when_the_daemon_died_in_its_sequence_then_sent_once_a_start_and_nothing_is_settled": "no operation",
    "test_effectful_read_when_the_reply_is_short_then_unknown": "the bus answers instead of the chip",
}


class Life:
    """What a chip had executed when a life of its daemon ended."""

    def __init__(self, store_id: str, epoch: int, executed: Counter[Place]) -> None:
        self.store_id = store_id
        self.epoch = epoch
        self.executed = executed


_lives: WeakKeyDictionary[Chip, list[Life]] = WeakKeyDictionary()


def must_agree(engine: Engine, directory: Path) -> None:
    """Compare what the ended life has on record with what its simulated chips have counted.

    A store that has failed may not be believed, and is not looked at; the next life on it is.
    """
    test = os.environ.get("PYTEST_CURRENT_TEST", "").partition("::")[2].partition("[")[0].partition(" ")[0]
    if engine.daemon.failed or test in BEHIND_ITS_BACK:
        return
    record = record_of(directory)
    store_id, epoch = str(engine.daemon.store.store_id), engine.daemon.store.epoch
    found = []
    for device in engine.daemon.devices.values():
        bus = device.worker.bus
        chip = bus.chips.get(device.spec.address) if isinstance(bus, SimBus) else None
        if chip is None:
            continue
        lives = _lives.setdefault(chip, [])
        before = lives[-1] if lives else Life(store_id, 0, Counter())
        if before.store_id != store_id or before.epoch >= epoch or not lives:
            lives.append(Life(store_id, epoch - 1, before.executed))  # counting begins with this life
        lives.append(Life(store_id, epoch, Counter(chip.executed)))
        first = max(i for i, e in enumerate(lives) if i == 0 or _begins_anew(lives[i - 1], e))
        counts = [Count({device.locus: e.executed}, record.begun(e.epoch)) for e in lives[first:]]
        found += disagreements(record, {device.locus: chip.contract}, counts)
    names = {device.locus: device.name for device in engine.daemon.devices.values()}
    found = list(dict.fromkeys(found + disagreements(record, {}, devices=names)))
    assert found == [], "\n".join(found)


def _begins_anew(before: Life, after: Life) -> bool:
    return before.store_id != after.store_id or before.epoch >= after.epoch
