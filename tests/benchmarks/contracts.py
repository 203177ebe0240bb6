"""`python -m tests.benchmarks.contracts [ROUNDS]`: what importing and opening contracts costs, as ratios.

Importing is compared with cmsis-svd over the corpus: CPU time of a fresh process for each file, the libraries imported
before the clock starts, every register and field walked once; and growth of the peak of memory above the imported
libraries. Opening from the cache is compared with importing in one process, best of several. Rounds are interleaved.
Absolute times do not repeat on shared machines: a figure is quoted with its reference, the machine and this command.
"""

from __future__ import annotations

import importlib
import importlib.util
import json
import os
import resource
import statistics
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any, Final

from hwtool_contracts import cache
from hwtool_contracts.importers.svd import import_svd
from hwtool_contracts.library import find
from hwtool_contracts.places import overlapping
from hwtool_contracts.toml_reader import Faults
from tests.corpus import svd_files
from tests.svd_text import device, field, peripheral, register, tags

LEAST_BYTES: Final = 20_000
BEST_OF: Final = 15
SYNTHETIC: Final = 10_000


def peak_kib() -> int:
    """The highest resident size of this process so far.

    On Linux VmHWM: ru_maxrss of a child begins with that of the process that started it, and so hides small growth.
    """
    try:
        told = Path("/proc/self/status").read_text(encoding="ascii")
    except OSError:
        return resource.getrusage(resource.RUSAGE_SELF).ru_maxrss
    return int(next(line.split()[1] for line in told.splitlines() if line.startswith("VmHWM")))


def hwtool_walk(path: Path) -> int:
    """Import with hwtool; the number of registers and fields."""
    made = import_svd(path).contract
    return sum(1 + len(one.fields) for one in made.registers.values())


def cmsis_walk(parser: Any, path: Path) -> int:
    """Import with cmsis-svd; the number of registers and fields."""
    count = 0
    for array in parser.SVDParser.for_xml_file(str(path)).get_device().peripherals:
        for one in getattr(array, "peripherals", None) or [array]:
            for found in one.get_registers() or []:
                count += 1 + len(found.get_fields() or [])
    return count


def child(who: str, path: Path) -> None:
    """Import one file in this process, and print what it cost."""
    parser = importlib.import_module("cmsis_svd.parser") if who == "cmsis" else None
    before = peak_kib()
    start = time.process_time_ns()
    count = hwtool_walk(path) if parser is None else cmsis_walk(parser, path)
    took = time.process_time_ns() - start
    print(json.dumps({"cpu_ns": took, "grown_kib": peak_kib() - before, "count": count}))


def measured(who: str, path: Path) -> dict[str, int]:
    """What one file costs in a fresh process."""
    command = [sys.executable, "-m", "tests.benchmarks.contracts", "child", who, str(path)]
    told: dict[str, int] = json.loads(subprocess.run(command, capture_output=True, check=True).stdout)
    return told


def importing(files: list[Path], rounds: int) -> None:
    """Both importers over all files, in turn."""
    cost: dict[tuple[str, Path, str], list[int]] = {}
    for _ in range(rounds):
        for path in files:
            for who in ("hwtool", "cmsis"):
                for what, value in measured(who, path).items():
                    cost.setdefault((who, path, what), []).append(value)

    def median(who: str, path: Path, what: str) -> float:
        return statistics.median(cost[who, path, what])

    print(f"{'file':24} {'hwtool':>9} {'cmsis-svd':>9} {'CPU':>7} {'grown':>9} {'grown':>9} {'memory':>7}")
    for path in files:
        ours, theirs = median("hwtool", path, "cpu_ns"), median("cmsis", path, "cpu_ns")
        mine, other = median("hwtool", path, "grown_kib"), median("cmsis", path, "grown_kib")
        line = f"{path.name:24} {ours / 1e6:7.1f}ms {theirs / 1e6:7.1f}ms {ours / theirs:6.2f}x"
        print(line + f" {mine / 1024:6.1f}MiB {other / 1024:6.1f}MiB {mine / max(other, 1):6.2f}x")
    for what, name in (("cpu_ns", "CPU"), ("grown_kib", "memory")):
        mine, other = (sum(median(who, path, what) for path in files) for who in ("hwtool", "cmsis"))
        print(f"importing, {name}, all files: {mine / other:.2f} of cmsis-svd ({rounds} rounds, medians summed)")


def best(once: Callable[[], object], count: int = BEST_OF) -> float:
    """Milliseconds of the best of several times."""
    times = []
    for _ in range(count):
        start = time.perf_counter_ns()
        once()
        times.append(time.perf_counter_ns() - start)
    return min(times) / 1e6


def opening(path: Path) -> None:
    """Opening from the cache against importing, in this process."""

    def open_one() -> None:
        made = find(str(path)).contract
        name = next(iter(made.registers))
        overlapping(made, made.registers[name])

    def open_all() -> None:
        list(find(str(path)).contract.registers.values())

    count = len(find(str(path)).contract.registers)  # compiled from here on
    size = max(one.stat().st_size for one in cache.directory().glob("*.contract"))
    imports = best(lambda: import_svd(path), 5)
    opens, reaches, walks = best(lambda: find(str(path))), best(open_one), best(open_all)
    print(
        f"{path.name}, {count} registers, {path.stat().st_size >> 10} KiB, compiled {size >> 10} KiB: "
        f"import {imports:.1f} ms, open {opens:.2f} ms ({imports / opens:.0f}x faster), "
        f"open and one register with its neighbours {reaches:.2f} ms, open and all registers {walks:.1f} ms"
    )


def synthetic(directory: Path) -> Path:
    """A device of many registers, each with eight fields."""
    eight = [field(f"F{i}", f"[{4 * i + 3}:{4 * i}]", tags(description=f"field {i}")) for i in range(8)]
    peripherals = [
        peripheral(
            f"P{p}",
            *[register(f"R{r}", 4 * r, tags(description=f"register {r} of {p}"), eight) for r in range(100)],
            base=0x40000000 + 0x1000 * p,
        )
        for p in range(SYNTHETIC // 100)
    ]
    path = directory / "synthetic.svd"
    path.write_text(device(*peripherals), encoding="utf-8")
    return path


def loads(path: Path) -> bool:
    """Whether the importer takes the file."""
    try:
        import_svd(path)
    except Faults:
        return False
    return True


def main(rounds: int) -> None:
    """Everything that can be measured here."""
    found = [path for path in svd_files() if path.stat().st_size >= LEAST_BYTES]
    files = [path for path in found if loads(path)]
    if not files:
        print("skipped: importing; no corpus: set HWTOOL_CORPUS, or put it at ../shared/corpus beside the checkout")
    elif importlib.util.find_spec("cmsis_svd") is None:
        print("skipped: importing against cmsis-svd, which is not installed")
    else:
        importing(files, rounds)
    with tempfile.TemporaryDirectory() as scratch:
        for number, path in enumerate([*files, synthetic(Path(scratch))]):
            os.environ["HWTOOL_CACHE_DIR"] = f"{scratch}/cache{number}"
            opening(path)


if __name__ == "__main__":
    if sys.argv[1:2] == ["child"]:
        child(sys.argv[2], Path(sys.argv[3]))
    else:
        main(int(sys.argv[1]) if len(sys.argv) > 1 else 5)
