"""`python -m tests.benchmarks.scale [OPERATIONS] [ROUNDS]`: a store with a million operations against an empty one.

Both stores are used in one run, round by round: a keyed write, a page of the journal, a start after SIGKILL. Printed
are ratios, and bytes an operation. The large store is made by the store's own functions, in large transactions.
"""

from __future__ import annotations

import itertools
import os
import shutil
import statistics
import sys
import time
from dataclasses import replace
from pathlib import Path
from typing import Any, Final

from hwtool_store import audit, operations
from hwtool_store.database import FILE, Start, open_store
from tests.benchmarks.__main__ import connected, line, round_trip
from tests.running import RunningDaemon

BATCH: Final = 5000
PRUNED_SHARE: Final = 4  # of so many operations one is a tombstone
WRITES_A_ROUND: Final = 30
START: Final = Start("boot", 1, 1, 1, "scale")
NEW: Final = operations.NewOp(
    principal="uid:0",
    key="",
    digest=b"d" * 32,
    locus=None,
    kind="write",
    request={"device": "gpio", "registers": ["OLATA"], "values": {"OLATA": "0x41"}, "sensitive": False, "content": {}},
    contract_hash=b"c" * 32,
    device_gen=1,
    now_ns=1,
    pre={"values": {"OLATA": 0}, "boot": "nonce"},
)
RESPONSE: Final = {"status": "done", "ok": True, "effects": "applied", "verdict": "applied", "summary": "OLATA 0x41"}


def fill(directory: Path, count: int) -> None:
    """Put so many ended operations into a store that no daemon has open; a quarter of them are pruned."""
    store = open_store(directory, START, allow_unsafe=True)
    conn = store._conn
    conn.execute("PRAGMA synchronous=OFF")  # it is filled, not tested
    (locus,) = conn.execute("SELECT locus FROM device WHERE locus LIKE '%0x20'").fetchone()
    made = replace(NEW, locus=locus)
    epoch = operations.current_epoch(conn)
    for first in range(0, count, BATCH):
        conn.execute("BEGIN IMMEDIATE")
        for number in range(first, min(first + BATCH, count)):
            body = {"at_ns": number, "what": "intent", "device": "gpio", "key": f"scale-{number:07}", "by": "uid:0"}
            op_id = operations.t1_intent(conn, replace(made, key=f"scale-{number:07}", now_ns=number), body)
            seen, done = {"how": "read_back"}, {**body, "what": "outcome"}
            operations.t2_done(conn, op_id, "applied", RESPONSE, seen, number, done)
        if first // BATCH % PRUNED_SHARE == PRUNED_SHARE - 1:
            kept = conn.execute("SELECT count(*) FROM op").fetchone()[0]
            while operations.prune(conn, kept - BATCH, 1):
                pass
        conn.execute("COMMIT")
    assert audit.tip(conn)[0] > count, epoch
    store._writer.start()
    store.close()


def _rendered(store: Path) -> None:
    """Wait until the journal's files have caught up with what was filled in behind the daemon's back."""
    before, now = -1, 0
    while before != now:
        time.sleep(1)  # nothing to be woken by: they are files
        before, now = now, sum(path.stat().st_size for path in (store / "journal").rglob("*") if path.is_file())


def median_ms(samples: list[float]) -> float:
    """The median of times in seconds, in milliseconds."""
    return statistics.median(samples) * 1000


def timed(call: Any) -> float:
    """Seconds that a call takes."""
    began_s = time.perf_counter()
    call()
    return time.perf_counter() - began_s


def main(count: int, rounds: int) -> None:
    """Fill one store, leave the other empty, and compare them."""
    os.sched_setaffinity(0, {min(os.sched_getaffinity(0))})
    empty, full = RunningDaemon().start(), RunningDaemon().start()
    try:
        full.stop()
        began_s = time.perf_counter()
        fill(full.store, count)
        size = sum(path.stat().st_size for path in full.store.iterdir() if path.name.startswith(FILE))
        print(f"{count} operations, {count // PRUNED_SHARE} of them tombstones: {size / count:.0f} bytes an operation")
        print(f"(filled in {time.perf_counter() - began_s:.0f} s)")
        full.start()
        _rendered(full.store)
        numbers = itertools.count()
        starts: dict[str, list[float]] = {"empty": [], "full": []}
        writes: dict[str, list[float]] = {"empty": [], "full": []}
        pages: dict[str, list[float]] = {"empty": [], "full": []}
        for _ in range(rounds):
            lines = {name: connected(d.sockets / "agent.sock") for name, d in (("empty", empty), ("full", full))}
            for _ in range(WRITES_A_ROUND):
                number = next(numbers)
                for name, it in lines.items():
                    params = {"register": "gpio.OLATA", "value": number % 256, "key": f"write-{number:07}"}
                    writes[name].append(round_trip(it, line("reg.write", **params)) / 1e9)
            since = {"empty": 1, "full": count}
            for name, it in lines.items():
                asked = line("journal.read", since=since[name], limit=50)
                pages[name] += [round_trip(it, asked) / 1e9 for _ in range(10)]
            for name, daemon in (("empty", empty), ("full", full)):
                daemon.kill()
                starts[name].append(timed(daemon.start))
        for what, samples in (("keyed write", writes), ("journal page", pages), ("start after SIGKILL", starts)):
            small, large = median_ms(samples["empty"]), median_ms(samples["full"])
            print(f"{what}: {large / small:.2f} of the empty store's (+{large - small:.1f} ms here)")
        print(f"({rounds} rounds of {WRITES_A_ROUND} writes)")
    finally:
        for daemon in (empty, full):
            daemon.kill()
            shutil.rmtree(daemon.directory, ignore_errors=True)


if __name__ == "__main__":
    words = [int(word) for word in sys.argv[1:]]
    main(words[0] if words else 1_000_000, words[1] if len(words) > 1 else 8)
