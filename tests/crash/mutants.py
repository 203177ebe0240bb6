"""Defects of the promise itself, each with the harness that must find it, named beforehand.

    python -m tests.crash.mutants            every defect, two at a time; prints the table
    python -m tests.crash.mutants hold       those whose name contains the word

Each is put into a copy of the tree, and its harness is run there on the part that is named; a defect that survives, or
whose text does not stand in the source any more, ends it with 1. What `tests.mutants` is for the guards of the engine,
this is for the harnesses: a harness that cannot see a defect of its class proves nothing.
"""

from __future__ import annotations

import os
import subprocess
import sys
import tempfile
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Final, NamedTuple

from tests.mutants import BARE, FEW_PLUGINS, SOURCES, copied, written

LIMIT_S: Final = 600
MATRIX: Final = ("tests.crash.matrix", "--once", "--only")
POWER: Final = ("tests.crash.power.cut", "--every", "60", "--until", "ANSWERED")
PYTEST: Final = ("pytest", "-q", "-x", *FEW_PLUGINS)
ABA: Final = (*PYTEST, "tests/hwtool/test_aba.py", "-k")
FOUND: Final = 1  # the exit of every harness that has found something


class Defect(NamedTuple):
    """One defect.

    Attributes:
        old: text of the product, once in the file; new: what stands there instead.
        harness: the module that must find it, and its words.
    """

    name: str
    file: str
    old: str
    new: str
    harness: tuple[str, ...]


DEFECTS: Final = (
    Defect(
        "dispatch before intent",
        "hwtool/execution.py",
        "            op_id = await self._intend(request, prepared, row, part)\n"
        "            return await self._dispatch(request, prepared, op_id, part)\n",
        "            finished = await carry_out(Intent(0), prepared, self._daemon.clock, request.overtaken)\n"
        "            finished.result.id = await self._intend(request, prepared, row, part)\n"
        "            return await self._record(request, prepared, finished.result.id, finished, part)\n",
        (*MATRIX, "store / before T1 / kept"),
    ),
    Defect(
        "reply before outcome",
        "store/hwtool_store/writer.py",
        '        conn.execute("COMMIT")\n        if conn.total_changes',
        "        for future, value, raised in outcomes:\n"
        "            future.set_result(value) if raised is None else future.set_exception(raised)\n"
        "        threading.Event().wait(0.05)\n"  # or the commit may be there first all the same, on a busy machine
        '        outcomes = []\n        conn.execute("COMMIT")\n        if conn.total_changes',
        POWER,
    ),
    Defect(
        "NORMAL instead of EXTRA",
        "store/hwtool_store/database.py",
        '"synchronous": ("EXTRA", 3)',
        '"synchronous": ("NORMAL", 1)',
        POWER,
    ),
    Defect(
        "recovery skipped for reads",
        "hwtool/recovery.py",
        '    if row.kind == "read":\n        rules,',
        '    if row.kind == "read":\n        return NeedsPerson("nobody has looked")\n        rules,',
        (*MATRIX, "pop with a level / after the first transfer / kept"),
    ),
    Defect(
        "a rule reads today's contract",
        "hwtool/recovery.py",
        '    for name, shown in facts(row)["observables"].items():\n',
        '    for name, shown in facts(row)["observables"].items():\n'
        "        now[name] = await device.look(name)\n        continue\n",
        (*PYTEST, "tests/hwtool/test_recovery.py", "-k", "contract_is_edited"),
    ),
    Defect(
        "assume not applied",
        "hwtool/recovery.py",
        '    before: dict[str, int] = (row.pre or {}).get("values", {})\n',
        '    before: dict[str, int] = (row.pre or {}).get("values", {})\n'
        '    if now is not None:\n        return Verdict("not_applied", "none", "a guess")\n',
        (*MATRIX, "store / after the first transfer / kept"),
    ),
    Defect(
        "retry once on a time-out",
        "hwtool/dispatch.py",
        "            answer: Answer = await device.worker.send_once(step.transfer)\n",
        "            answer: Answer = await device.worker.send_once(step.transfer)\n"
        "            if isinstance(answer, Ambiguous):\n"
        "                answer = await device.worker.send_once(step.transfer)\n",
        (*ABA, "story_5"),
    ),
    Defect(
        "the digest ignores the value",
        "hwtool/digest.py",
        '                "value": hex(change.value),\n',
        '                "value": "0x0",\n',
        (*PYTEST, "tests/clients/test_client.py", "-k", "another_request"),
    ),
    Defect(
        "a hold is forgotten by the next start",
        "hwtool/engine.py",
        "                stopped.mark_unknown(row.op_id, row.intent_ns or row.created_ns)\n",
        "",
        (*MATRIX, "masters / after the first transfer / kept"),
    ),
    Defect(
        "one index of keys dropped",
        "store/hwtool_store/operations.py",
        "    if by_key != by_hash:\n",
        "    if False:\n",
        ("tests.crash.damage.flip", "--offsets", "400", "--seed", "7"),
    ),
    Defect(
        "the anchor is not looked at",
        "store/hwtool_store/database.py",
        "    _compare(conn, anchor, directory)\n",
        "",
        (*ABA, "story_8"),
    ),
    Defect(
        "no tombstone is left",
        "store/hwtool_store/operations.py",
        "        conn.execute(\n"
        '            "INSERT INTO tomb(caller_id, key_hash, digest, verdict) VALUES(?,?,?,?)",\n'
        "            (caller_id, hashed, digest[:16], verdict),\n"
        "        )\n",
        "",
        (*PYTEST, "tests/surface/test_store_verbs.py", "-k", "prune"),
    ),
    Defect(
        "an approval is used twice",
        "store/hwtool_store/operations.py",
        "    conn.execute(\"UPDATE approval SET used_epoch=? WHERE op_id=? AND decision='granted'\", (epoch, op_id))\n",
        "",
        (*MATRIX, "approved store / after T1 / kept"),
    ),
    Defect(
        "a wall clock that was set back keeps a grant alive",
        "hwtool/pending.py",
        "boottime_ns()",
        "wall_ns()",
        (*PYTEST, "tests/hwtool/test_approvals.py", "-k", "wall_clock_jumps"),
    ),
)


def survives(defect: Defect, copy: Path) -> str | None:
    """Why a defect was not found, None if it was."""
    path = copy / defect.file
    original = path.read_text(encoding="utf-8")
    if original.count(defect.old) != 1:
        return f"its text stands {original.count(defect.old)} times in {defect.file}"
    written(path, original.replace(defect.old, defect.new))
    environment = {**os.environ, "PYTHONPATH": os.pathsep.join(str(copy / d) for d in ("", *SOURCES[1:5])), **BARE}
    try:
        done = subprocess.run(
            [sys.executable, "-m", *defect.harness],
            cwd=copy, env=environment, capture_output=True, text=True, check=False, timeout=LIMIT_S,
        )  # fmt: skip
    finally:
        written(path, original)
    return None if done.returncode == FOUND else f"ended with {done.returncode}: {(done.stdout + done.stderr)[-300:]}"


def share(defects: list[Defect]) -> int:
    """Try some defects one after the other; answers how many survive."""
    escaped = 0
    with tempfile.TemporaryDirectory(prefix="hwtool-mutants-") as directory:
        copy = copied(Path(directory))
        for defect in defects:
            why = survives(defect, copy)
            escaped += why is not None
            print(f"{'caught  ' if why is None else 'SURVIVES'} {defect.name} | {' '.join(defect.harness)}", flush=True)
            if why is not None:
                print(why, flush=True)
    return escaped


def main(words: list[str]) -> int:
    """Try those that are named, or all."""
    chosen = [d for d in DEFECTS if not words or any(word in d.name for word in words)]
    with ThreadPoolExecutor(2) as pool:
        escaped = sum(pool.map(share, (chosen[::2], chosen[1::2])))
    print(f"{len(chosen)} defects, {len(chosen) - escaped} caught, {escaped} survive")
    return 1 if escaped else 0


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
