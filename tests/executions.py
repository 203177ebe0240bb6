"""How often a device may have executed what the operations on record sent: bounds of its own counters.

    lower bound ≤ executions counted ≤ upper bound, for each register and access that has effects

Rules
- What a row's plan reaches is found by sending the plan to a scratch chip of the same contract.
- Confirmed transfers count exactly. Of an access without an answer it is 0 or 1; what came after it was not sent.
- An orphan of a crash is 0 to all. A rule that settled it as not applied says 0, as applied says all: if the counter
  disagrees, the rule has guessed. A person's word bounds nothing.
- An operation executes only between the two counts among which its intent was recorded: a later one is never counted
  for an earlier one, and a recovery executes nothing.

Not counted: clean reads, and writes of what selects a bank or a channel, which preparation and clean reads send too.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from itertools import pairwise
from typing import Any, Final

from hwtool.recovery import facts
from hwtool_contracts.judge import ReadJudgement, judge_read
from hwtool_contracts.model import Contract
from hwtool_registers.bus import from_object
from hwtool_sim.bus import apply_to
from hwtool_sim.chip import Chip, NotThere
from hwtool_store.operations import OpRow

Place = tuple[str, str]  # register, "read" or "write"
Executed = Mapping[Place, int]
TOLD_BY_RULE: Final = ("applied", "not_applied", "lost", "partial")


@dataclass(frozen=True)
class Count:
    """What the devices had executed at one moment, while no operation was at work.

    Attributes:
        executed: by locus.
        begun: operations whose intent was on record by then.
    """

    executed: Mapping[str, Executed]
    begun: frozenset[int]


def matters(contract: Contract) -> set[Place]:
    """Accesses that only a keyed operation sends."""
    selectors = {s.register for bank in contract.banks.values() for s in bank.select}
    selectors |= set() if contract.mux is None else {contract.mux.register}
    grouped: set[str] = set()
    for group in contract.groups.values():
        judged = judge_read(contract, tuple(contract.registers[n] for n in group.members), as_group=True)
        grouped |= set(group.members) if isinstance(judged, ReadJudgement) and judged.clean else set()
    found: set[Place] = set()
    for register in contract.registers.values():
        if register.access.writable and register.name not in selectors:
            found.add((register.name, "write"))
        judged = judge_read(contract, (register,))
        if isinstance(judged, ReadJudgement) and not judged.clean and register.name not in grouped:
            found.add((register.name, "read"))
    return found


def reached(contract: Contract, step: Mapping[str, Any]) -> Counter[Place]:
    """What one access step of a plan executes, by a scratch chip whose bank is selected."""
    chip = Chip(contract)
    bank = contract.registers[step["register"]].bank
    for selector in [] if bank is None else contract.banks[bank].select:
        held = chip.values[selector.register]
        chip.values[selector.register] = (held & ~selector.mask) | selector.value
    transfer = from_object({k: v for k, v in step.items() if k not in ("role", "register")})
    try:
        apply_to(chip, transfer)
    except NotThere:
        return Counter()
    return chip.executed


def bounds(row: OpRow, contract: Contract) -> tuple[Counter[Place], Counter[Place]]:
    """The fewest and the most executions that the row leaves room for."""
    entries = (row.evidence or {}).get("entries")
    if row.kind == "safe_state" and entries is not None:
        return _entries(row, contract, entries)
    plan = facts(row).get("plan", [])
    steps = [reached(contract, s) for s in plan if s["role"] == "access"]
    fewest, most = _accesses(row, len(steps))
    confirming = [reached(contract, s) for s in plan if s["role"] == "confirm"]
    least, all_of = _confirmations(row, len(confirming)) if most == len(steps) else (0, 0)
    low = sum(steps[:fewest], Counter()) + sum(confirming[:least], Counter())
    return low, sum(steps[:most], Counter()) + sum(confirming[:all_of], Counter())


def _confirmations(row: OpRow, total: int) -> tuple[int, int]:
    """The fewest and the most of the reads that consume what shows a write; they come after the last access."""
    told = (row.evidence or {}).get("confirmed")
    if told is None:
        return 0, total
    in_doubt = told < total and "proof" not in (row.evidence or {}) and row.verdict_by != "bus"
    return told, told + in_doubt


def _entries(row: OpRow, contract: Contract, entries: Mapping[str, str]) -> tuple[Counter[Place], Counter[Place]]:
    """As `bounds`, of a safe state: each entry is sent whatever became of the others."""
    fewest: Counter[Place] = Counter()
    most: Counter[Place] = Counter()
    done: Mapping[str, int] = (row.evidence or {})["accesses"]
    seen: Counter[str] = Counter()
    for step in facts(row)["plan"]:
        if step["role"] != "access":
            continue
        name, ran = step["register"], reached(contract, step)
        fewest += ran if seen[name] < done[name] else Counter()
        in_doubt = entries[name] != "sent" and row.verdict_by != "bus" and seen[name] == done[name]
        most += ran if seen[name] < done[name] or in_doubt else Counter()
        seen[name] += 1
    return fewest, most


def _chunk(row: OpRow) -> int:
    """Elements that each access of a long burst takes, 0 where there is one access."""
    reads = facts(row).get("reads", [])
    return reads[0]["chunk"] if len(reads) == 1 and reads[0].get("chunk", 0) < reads[0]["count"] else 0


def _accesses(row: OpRow, total: int) -> tuple[int, int]:
    """The fewest and the most accesses of the plan that reached the device."""
    if row.state == "PENDING" or row.verdict == "denied":
        return 0, 0
    evidence = row.evidence or {}
    fewest, most = 0, total
    if "transfers" in evidence:  # the bus told how far it got
        fewest = evidence.get("done", total)
        stopped_in_doubt = "done" in evidence and "proof" not in evidence
        most = min(fewest + 1, total) if stopped_in_doubt and row.verdict_by != "bus" else fewest
    elif row.verdict_by == "bus":
        most = 0  # ended between the intent and the dispatch
    if row.verdict_by == "rule" and row.verdict in TOLD_BY_RULE:
        told = (row.response or {}).get("effects")
        chunk = _chunk(row)
        if chunk and told == "applied":  # of a burst: what is on record, and what the level says is gone
            bound = ((row.response or {}).get("error") or {}).get("bound", "0")
            taken = len((row.response or {}).get("values") or []) + int(bound)
            return -(-taken // chunk), -(-taken // chunk)
        claims = any(r["kind"] == "claim" for r in facts(row).get("reads", []))
        if row.verdict == "not_applied" and told == "none" and not claims:
            most = fewest  # a claim of what is taken does nothing, whether it was executed or not
        elif row.verdict == "applied" or (row.verdict == "lost" and told == "applied"):
            fewest = most
    return fewest, most


def miscounted(
    rows: Iterable[OpRow], contracts: Mapping[str, Contract], counts: Sequence[Count], pruned: int = 0
) -> list[str]:
    """What the counters say that no row accounts for, or the rows that no counter confirms.

    Args:
        contracts: by locus.
        counts: in the order of time; the first is where counting began.
        pruned: operations up to this number may have lost their rows.
    """
    by_id = {row.op_id: row for row in rows}
    found = []
    for before, after in pairwise(counts):
        begun = after.begun - before.begun
        gone = any(op not in by_id and op <= pruned for op in begun)
        for locus, contract in contracts.items():
            fewest: Counter[Place] = Counter()
            most: Counter[Place] = Counter()
            here = sorted(op for op in begun if op in by_id and by_id[op].locus == locus)
            for op in here:
                low, high = bounds(by_id[op], contract)
                fewest += low
                most += high
            for place in sorted(matters(contract)):
                ran = after.executed.get(locus, {}).get(place, 0) - before.executed.get(locus, {}).get(place, 0)
                if ran < fewest[place] or (ran > most[place] and not gone):
                    name, access = place
                    room = f"{fewest[place]} to {most[place]}" if fewest[place] != most[place] else str(most[place])
                    found.append(f"{locus}: {access} of {name} executed {ran}x; operations {here} account for {room}")
    return found
