"""`python -m tests.model`: any number of examples from a seed, what there was in them, the shortest way to a fault."""

from __future__ import annotations

import argparse
import gc
import random
import sys
import time

from tests.model.running import STEPS, played

SHARE = 500  # examples of one seed: the gate's parts are as long, and a fault is found again in as many


def main() -> int:
    """Play what the arguments ask for; 0 if the promise was kept."""
    parser = argparse.ArgumentParser(prog="tests.model", description="random contracts, operations, faults, crashes")
    parser.add_argument("--examples", type=int, default=2000)
    parser.add_argument("--seed", type=int, help="of the first 500; each 500 more have the next; else a random one")
    parser.add_argument("--steps", type=int, default=STEPS, help="most rules of one example")
    arguments = parser.parse_args()
    first = random.SystemRandom().randrange(1_000_000) if arguments.seed is None else arguments.seed
    began_s, cpu_s = time.monotonic(), time.process_time()
    counts = None
    gc.freeze()
    for number, done in enumerate(range(0, arguments.examples, SHARE)):
        examples = min(SHARE, arguments.examples - done)
        print(f"seed {first + number}: {examples} examples of at most {arguments.steps} steps", flush=True)
        found = played(examples, first + number, arguments.steps)
        counts = found if counts is None else counts + found
    told = ", ".join(f"{number} {what}" for what, number in sorted((counts or {}).items()))
    print(f"{told}; the promise was kept")
    print(f"{time.monotonic() - began_s:.0f} s, {time.process_time() - cpu_s:.0f} s of one core")
    return 0


if __name__ == "__main__":
    sys.exit(main())
