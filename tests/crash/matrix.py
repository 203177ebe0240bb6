"""`python -m tests.crash.matrix`: SIGKILL at every point of an operation's life, and again inside the recovery.

Each run is a simulator process that counts for itself, a daemon that is killed at a label, a chip that was kept or has
restarted meanwhile (and can tell, or cannot), a second daemon that may be killed while it recovers, and a last one
that is asked what became of it. A run has a name, `KIND / LABEL[ / LABEL] / FATE`; `--only` runs those whose name
contains a text, `--calls N --seed S` kills at N calls of the product's functions drawn at random instead of labels.
"""

from __future__ import annotations

import argparse
import contextlib
import gc
import os
import random
import shutil
import signal
import sys
import tempfile
import time
from collections import Counter
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Final

from hwtool.config import Board, parse_board
from hwtool_contracts.messages import Result
from hwtool_sim.process import SimConnection
from tests.agreement import Record, disagreements, record_of
from tests.crash import faults
from tests.crash.kinds import DISAGREEMENTS, FATES, KINDS, REFUSED, Ending, Kind
from tests.crash.labels import CALL, OPERATION, RECOVERY, Label
from tests.crash.life import (
    LIMIT_S,
    Ended,
    Told,
    end_tidily,
    ended,
    first_life,
    forked,
    last_life,
    recovering_life,
    simulator,
    spread,
)
from tests.executions import Count, Place

JOBS: Final = 2
CALLS_OF_AN_OPERATION: Final = 900
CALLS_OF_A_RECOVERY: Final = 700
AGAIN_AFTER: Final = ("after T1", "after the first transfer", "before T2")


@dataclass(frozen=True)
class Run:
    """One run: a kind, where it is killed, where it is killed again, and what becomes of the chip meanwhile."""

    kind: Kind
    label: str
    again: str | None
    fate: str

    @property
    def name(self) -> str:
        """What it is called on the command line."""
        return " / ".join(p for p in (self.kind.name, self.label, self.again, self.fate) if p is not None)


def _reachable(label: Label, kind: Kind) -> bool:
    return (kind.watched or not label.watched) and (kind.kept is not None or not label.chunked)


def singles() -> Iterator[Run]:
    """Each kind, killed at each label, for each fate."""
    for kind in KINDS:
        for label in OPERATION:
            if _reachable(label, kind):
                yield from (Run(kind, label.name, None, fate) for fate in FATES)


def doubles() -> Iterator[Run]:
    """Each kind, killed with an intent on record, and again at each label of the recovery that it comes to."""
    for kind in KINDS:
        for label in (x for x in OPERATION if x.name in AGAIN_AFTER):
            for again in RECOVERY:
                for fate in FATES[:2]:
                    ending = _expected(kind, label.stage, fate)[0]
                    if not again.settles or ending.by == "rule":
                        yield Run(kind, label.name, again.name, fate)


def at_calls(number: int, seed: int) -> Iterator[Run]:
    """Runs drawn at random: killed at the n-th call of a function, and every other one killed again.

    Not of sequences: which step a call belongs to would have to be known to know how they must end.
    """
    draw = random.Random(seed)
    kinds = [kind for kind in KINDS if not kind.step]
    for n in range(number):
        again = f"{CALL}{draw.randint(1, CALLS_OF_A_RECOVERY)}" if n % 2 else None
        yield Run(draw.choice(kinds), f"{CALL}{draw.randint(1, CALLS_OF_AN_OPERATION)}", again, draw.choice(FATES))


def _expected(kind: Kind, stage: str, fate: str) -> tuple[Ending, ...]:
    known = DISAGREEMENTS.get((kind.name, stage, fate))
    return kind.endings(stage, fate) if known is None else (known[0],)


class Scene:
    """The place of one run: a directory, a board, a simulator, a line to it for counting and resetting."""

    def __init__(self, run: Run, fault: str | None) -> None:
        self.run = run
        self.directory = Path(tempfile.mkdtemp(prefix="hc-", dir="/tmp"))
        self.store = self.directory / "store"
        self.socket = str(self.directory / "sim")
        if "\n" in run.kind.contract:
            (self.directory / "toy.toml").write_text(run.kind.contract)
        self.board: Board = parse_board(run.kind.board(self.socket), "crash", self.directory)
        self.device = self.board.devices["chip"]
        self.locus = self.device.locus(self.board.buses["b"])
        self.fault = fault
        self._simulator = simulator(self.socket, run.kind, self.device.contract)
        try:
            self._line = self._connected()
        except OSError:
            self._end()
            raise
        self.counts = [Counter[Place]()]

    def _connected(self) -> SimConnection:
        deadline_s = time.monotonic() + LIMIT_S
        while True:
            try:
                return SimConnection(self.socket)
            except OSError:
                if time.monotonic() > deadline_s:
                    raise
                time.sleep(0.001)  # nothing to be woken by: the socket is another process's

    def count(self) -> Counter[Place]:
        """What the chip has executed, once it has dealt with the last request of whoever is dead."""
        asking = self._connected()  # it queues behind every connection that was made before
        deadline_s = time.monotonic() + LIMIT_S
        while asking.ask({"control": "connections"})["connections"] > 2:
            if time.monotonic() > deadline_s:
                raise OSError("the simulator still serves a daemon that is dead")
            time.sleep(0.001)  # nothing to be woken by: it ends a connection of its own
        asking.close()
        counts: Counter[Place] = Counter()
        shown = self._line.ask({"control": "counts"})["counts"]
        for name, number in shown[f"{self.run.kind.address:#04x}"].items():
            register, _, access = name.rpartition(".")
            counts[register, access] = number
        self.counts.append(counts)
        return counts

    def reset(self) -> None:
        """The chip restarts."""
        self._line.ask({"control": "reset", "address": self.run.kind.address})

    def live(self, life: Any) -> Ended:
        """Let a daemon live to its end."""
        over = ended(*forked(life))
        self.count()
        return over

    def close(self) -> None:
        """End the simulator, and leave nothing behind."""
        self._line.close()
        self._end()

    def _end(self) -> None:
        os.kill(self._simulator, signal.SIGKILL)
        os.waitpid(self._simulator, 0)
        shutil.rmtree(self.directory, ignore_errors=True)


def ready_to_fork() -> None:
    """Live through two operations here: forks find everything loaded and warm, and share what nobody touches."""
    with Path(os.devnull).open("wb") as nobody:
        for run in (Run(kind, "", None, "kept") for kind in KINDS[:2]):
            scene, told = Scene(run, None), Told(nobody.fileno())
            try:
                first_life(run.kind, scene.board, scene.store, None, False)(told)
                last_life(run.kind, scene.board, scene.store, False, lambda: None)(told)
            finally:
                scene.close()
    gc.collect()
    gc.freeze()


def carried_out(run: Run, fault: str | None = None) -> list[str]:
    """Carry out one run; answers what is wrong with what came of it."""
    scene = Scene(run, fault)
    try:
        return _played(scene, run)
    except (AssertionError, OSError, ValueError, KeyError, IndexError) as error:
        return [f"the run itself failed: {type(error).__name__}: {error}"]
    finally:
        scene.close()


def _played(scene: Scene, run: Run) -> list[str]:
    silent = "silent" in run.fate
    in_first, in_later = faults.of(scene.fault)
    first = _with(in_first, first_life(run.kind, scene.board, scene.store, run.label, silent))
    lives = [scene.live(first)]
    if lives[0].signal != signal.SIGKILL and not run.label.startswith(CALL):
        return [f"the first life was not killed: {lives[0]}"]
    if "reset" in run.fate:
        scene.reset()
    if run.again is not None:
        lives.append(scene.live(recovering_life(scene.board, scene.store, run.again, silent, in_later)))
        if lives[1].signal != signal.SIGKILL and not run.again.startswith(CALL):
            return [f"the second life was not killed: {lives[1]}"]
    lives.append(scene.live(last_life(run.kind, scene.board, scene.store, silent, in_later)))
    if lives[-1].code != 0:
        return [f"the last life failed: {lives[-1].trouble or lives[-1].code}"]
    return judged(scene, run, lives)


def _with(fault: Callable[[], None], life: Callable[[Any], None]) -> Callable[[Any], None]:
    def work(told: Any) -> None:
        fault()
        life(told)

    return work


def judged(scene: Scene, run: Run, lives: Sequence[Ended], epoch: int = 1) -> list[str]:
    """Everything that must hold of a run that is over; `epoch` is that of the life that was asked first."""
    record = record_of(scene.store)
    told = [(moment, key, result) for life in lives for moment, key, result in life.answers]
    counts = [Count({}, frozenset())]
    for number, executed in enumerate(scene.counts[1:], 1):
        begun = record.begun() if number == len(lives) else record.begun(epoch)  # a life in between begins nothing
        counts.append(Count({scene.locus: executed}, begun))
    found = disagreements(record, {scene.locus: scene.device.contract}, counts, [(k, r) for _, k, r in told])
    last = {moment: result for moment, _, result in lives[-1].answers}
    stage = _stage(scene, run, record, epoch)
    label = next((x for x in OPERATION if x.name == run.label), None)
    close = {("first", "sent"), ("kept", "first")}  # the counter tells nothing between these
    if label is not None and stage != label.stage and (label.stage, stage) not in close:
        found.append(f"killed at a label of stage {label.stage}; it was {stage}")
    found += _ending(run, label.stage if label is not None else stage, last)
    found += _once(scene, run, stage, last)
    if run.kind.home is not None and (values := last["home"].values) is not None:
        found += [] if values[0]["raw"] == run.kind.home[1] else [f"{run.kind.home[0]} was left at {values[0]['raw']}"]
    return found + _nothing_lost(run, scene, last)


def _stage(scene: Scene, run: Run, record: Record, epoch: int) -> str:
    """How far the first life got with the operation that was to be killed, by the journal and the chip's counter."""
    steps = {a.body["what"] for a in record.audit if a.epoch == epoch and a.op_id == run.kind.op}
    ran = scene.counts[1][run.kind.place]
    if "outcome" in steps:
        return "done" if run.label == "after the reply" else "ended"
    if "intent" not in steps:
        return "none"
    # a bank is selected and set back: it stands open at odd counts of its selector
    selected = run.kind.home is not None and scene.counts[1][run.kind.home[0].partition(".")[2], "write"] % 2 == 1
    if ran == run.kind.runs[1]:
        return "open" if selected else "sent"
    halfway = run.kind.first is not None and run.kind.home is None and ran == run.kind.runs[0]
    return "first" if selected or halfway else "unsent"


def _ending(run: Run, stage: str, last: dict[str, Result]) -> list[str]:
    wanted = _expected(run.kind, stage, run.fate)
    found, repeated = last["found"], last["repeated"]
    code = None if repeated.error is None else repeated.error["code"]
    if stage == "none" and run.kind.none is None:
        waiting = found.status == "pending_approval" or (run.kind.approved and found.verdict == "denied")
        if not waiting and (found.error is None or found.error["code"] != "not_found"):
            return [f"nothing was on record, and op.get says {found.status} {found.summary}"]
        if wanted[0] == REFUSED:
            return [] if repeated.id is None and repeated.effects == "none" else [f"not refused: {repeated.summary}"]
        ending = Ending(repeated.verdict, wanted[0].by, repeated.effects)
        return [] if ending in wanted else [f"the fresh try came to {ending}, not {wanted}: {repeated.summary}"]
    if not isinstance(found.op, dict):
        return [f"op.get finds nothing: {found.summary}"]
    ending = Ending(found.verdict, found.op["verdict_by"], found.effects)
    if ending not in wanted:
        return [f"it ended as {tuple(ending)}, not as {[tuple(w) for w in wanted]}: {found.summary}"]
    if ending.verdict is None:
        return _held(code, last)
    if (repeated.verdict, repeated.effects, repeated.replayed) != (found.verdict, found.effects, True):
        return [f"found as {found.verdict}, repeated it says {repeated.verdict} {repeated.effects} {repeated.replayed}"]
    return [] if last["other"].ok else [f"another request did not go through: {last['other'].summary}"]


def _held(code: str | None, last: dict[str, Result]) -> list[str]:
    found = []
    other = last["other"].error
    if code != "outcome_unknown":
        found.append(f"unknown, and the same request is answered {code}")
    if other is None or other["code"] != "held":
        found.append(f"unknown, and another request is answered {other}")
    verified = last["verified"].op
    if not isinstance(verified, dict) or not verified["needs_person"]:
        found.append(f"unknown, and nobody is asked for: {verified}")
    if last["settled"].verdict != "abandoned" or not last["freed"].ok:
        found.append(f"settled, and then {last['settled'].verdict} and {last['freed'].summary}")
    return found


def _once(scene: Scene, run: Run, stage: str, last: dict[str, Result]) -> list[str]:
    """The chip's own counter at the end: what was seen is not sent again, what was never on record runs once."""
    ran = scene.counts[-1][run.kind.place]
    seen = scene.counts[1][run.kind.place]
    fresh = stage == "none" and run.kind.none is None and last["repeated"].verdict in ("applied", "satisfied")
    wanted = run.kind.runs[1] if fresh else seen
    return [] if ran == wanted else [f"{run.kind.place} executed {ran}x, {wanted} would be once"]


def _nothing_lost(run: Run, scene: Scene, last: dict[str, Result]) -> list[str]:
    """A value that the device gave up is in the answer, or the answer says that it is lost, or that nobody knows."""
    if run.kind.value is None or not scene.counts[-1][run.kind.place]:
        return []
    answer = last["repeated"]
    code = None if answer.error is None else answer.error["code"]
    if code == "outcome_unknown" or (code == "value_lost" and answer.error is not None and answer.error["bound"]):
        return []
    fresh_after_reset = "reset" in run.fate and not answer.replayed
    raws = [v["raw"] for v in answer.values or []]
    if answer.verdict == "partial" and raws == run.kind.value.split()[: scene.counts[-1][run.kind.place]]:
        return []
    if raws == run.kind.value.split() or (fresh_after_reset and len(raws) == 1):
        return []
    return [f"{run.kind.value} was taken; the answer is {code} with {raws}"]


def carried_out_all(runs: Sequence[Run], fault: str | None, jobs: int) -> Iterator[tuple[Run, list[str], float]]:
    """Carry out runs, several at a time, each in processes of its own; answers them as they end."""

    def work(index: int, told: Told) -> None:
        start_s = time.monotonic()
        found = carried_out(runs[index], fault)
        told.say("run", [index, found, time.monotonic() - start_s])

    for _, (index, found, took_s) in spread(len(runs), jobs, work):
        yield runs[index], found, took_s


def main() -> int:
    """Run what the arguments choose; 0 if nothing is wrong."""
    parser = argparse.ArgumentParser(prog="tests.crash.matrix", description="kill at every label, and again")
    parser.add_argument("--only", action="append", default=[], help="runs whose name contains this text (all of these)")
    parser.add_argument("--part", choices=("all", "gate"), default="all")
    parser.add_argument("--fate", action="append", choices=FATES, help="only these fates of the chip")
    parser.add_argument("--once", action="store_true", help="only runs killed once")
    parser.add_argument("--again", action="store_true", help="only runs killed twice")
    parser.add_argument(
        "--calls", type=int, default=0, help="instead of labels: so many kills at calls drawn at random"
    )
    parser.add_argument("--rounds", type=int, default=1, help="everything so many times; with --calls, other draws")
    parser.add_argument("--seed", type=int, default=1)
    parser.add_argument("--jobs", type=int, default=JOBS)
    parser.add_argument("--fault", choices=faults.NAMES, help="a defect to be found: the control of this harness")
    parser.add_argument("--list", action="store_true", help="print the names, run nothing")
    arguments = parser.parse_args()
    end_tidily()
    if not arguments.only:  # a few runs are sooner done
        ready_to_fork()
    wrong = total = again = 0
    start_s = time.monotonic()
    for number in range(arguments.rounds):
        runs = chosen(arguments, arguments.seed + number)
        if arguments.list:
            print("\n".join(run.name for run in runs))
            continue
        for run, found, took_s in carried_out_all(runs, arguments.fault, arguments.jobs):
            total, again = total + 1, again + (run.again is not None)
            wrong += bool(found)
            for sentence in found:
                print(f"{run.name}: {sentence} ({took_s:.2f} s)", flush=True)
    took_s = time.monotonic() - start_s
    print(f"{total} runs, {again} of them killed twice, {wrong} wrong, {took_s:.1f} s, seed {arguments.seed}")
    return 1 if wrong else 0


def _in_the_gate(run: Run) -> bool:
    """Every kind at every label, with the chip kept or reset in turn; both before it was seen, silent there or later.

    Of the recoveries three of four after one label. The long run has all of them.
    """
    turn = [k.name for k in KINDS].index(run.kind.name)
    if run.again is not None:
        at = [label.name for label in RECOVERY].index(run.again)
        chosen = run.fate == "kept" and (turn + at) % 4 != 3
        return run.label == "after the first transfer" and (chosen or run.again == "orphans unknown")
    if run.label == "after T1":
        return "silent" not in run.fate or turn % 2 == 0
    if run.label == "before T2" and "silent" in run.fate:
        return turn % 2 == 1 and run.fate == "kept silent"
    at = [label.name for label in OPERATION].index(run.label)
    return run.fate == ("kept", "reset")[(turn + at) % 2]


def chosen(arguments: argparse.Namespace, seed: int) -> list[Run]:
    """The runs of the arguments."""
    if arguments.calls:
        runs = list(at_calls(arguments.calls, seed))
    else:
        runs = list(singles()) + list(doubles())
        if arguments.part == "gate":
            runs = [r for r in runs if _in_the_gate(r)]
    if arguments.once or arguments.again:
        runs = [r for r in runs if (r.again is not None) == arguments.again]
    fates = arguments.fate or FATES
    return [r for r in runs if r.fate in fates and all(text in r.name for text in arguments.only)]


if __name__ == "__main__":
    with contextlib.suppress(BrokenPipeError):
        sys.exit(main())
