"""What a sequence with a name must keep: each step once under its key, nothing after a loss, and locked again."""

from __future__ import annotations

from collections import Counter
from collections.abc import Awaitable, Callable, Iterator, Mapping
from functools import partial
from typing import Any

from hwtool.checks.asked import Asked, once_only, other_refused, unapproved_never
from hwtool.checks.case import Case
from hwtool.checks.outcomes import loss_told, unknown_held
from hwtool.checks.samples import values_for
from hwtool.checks.stand import UNSENT, NotApplicable, Stand, ensure
from hwtool_contracts.judge import ReadJudgement
from hwtool_contracts.judge_write import WriteJudgement, judge_write
from hwtool_contracts.model import NamedSequence, Register

KEYED = {"write": "write", "update": "write", "read_effectful": "read"}
WAITS = ("wait_until", "expect")


class Run:
    """A sequence of a device's contract at the stand, with values for its parameters."""

    def __init__(self, stand: Stand, device: str, sequence: NamedSequence) -> None:
        self.stand, self.device, self.sequence = stand, device, sequence
        self.place = f"{device}.{sequence.name}"

    @property
    def keyed(self) -> list[tuple[Register, Mapping[str, Any]]]:
        """The steps that are to be executed once, each with its register; those of groups are left out."""
        registers = self.stand.device(self.device).contract.registers
        return [
            (registers[s["register"]], s)
            for s in self.sequence.steps
            if s["do"] in KEYED and s["register"] in registers
        ]

    def expected(self) -> Counter[tuple[str, str]]:
        """How often each register is to be executed by one run, as far as its steps say."""
        found: Counter[tuple[str, str]] = Counter()
        for register, step in self.keyed:
            found[register.name, KEYED[step["do"]]] += int(step.get("count", 1))
        return found

    def prepare(self) -> None:
        """What its steps wait for, what its accesses need open, and something to take."""
        contract = self.stand.device(self.device).contract
        for step in self.sequence.steps:
            register = contract.registers.get(step["register"])
            if register is None:
                continue
            equals = register.values.get(str(step.get("equals")), step.get("equals"))
            if step["do"] in WAITS and isinstance(equals, int):
                mask = step.get("mask", register.mask)
                chip, name = self.stand.chip(self.device), self.stand.named(self.device, register.name)
                chip.values[name] = chip.values[name] & ~mask | equals & mask
            gates: tuple[str, ...] = ()
            if step["do"] in ("write", "update"):
                write = judge_write(contract, register, 0)
                gates = write.gates if isinstance(write, WriteJudgement) else ()
            elif step["do"] == "read_effectful":
                read = self.stand.device(self.device).judge((register,))
                gates = read.gates if isinstance(read, ReadJudgement) else ()
                self.stand.fill(self.device, register)
            self.stand.open_gates(self.device, gates, register)

    def values(self, number: int) -> dict[str, int]:
        """A value for each parameter that its contract lets be there: the first, the second.

        Raises:
            NotApplicable: there is none for one of them.
        """
        found: dict[str, int] = {}
        for step in self.sequence.steps:
            for key, value in _parameters(step):
                allowed = self._allowed(step, key)
                if len(allowed) <= number:
                    raise NotApplicable(f"no value for its parameter {value} was found")
                found.setdefault(value, allowed[number])
        return found

    def _allowed(self, step: Mapping[str, Any], key: str) -> list[int]:
        register = self.stand.device(self.device).contract.registers[step["register"]]
        held = self.stand.chip(self.device).values[self.stand.named(self.device, register.name)]
        if key == "value":
            return values_for(self.stand.device(self.device), register, held)
        if key == "equals":
            return [held & step.get("mask", register.mask)]
        field = register.fields[key]
        values = [v for v in (1, 0, 2, 3) if not v >> field.width_bits]
        named = frozenset({key})
        contract = self.stand.device(self.device).contract
        judged = [(v, judge_write(contract, register, field.placed(v), named)) for v in values]
        return [v for v, j in judged if isinstance(j, WriteJudgement)]

    def asked(self) -> Asked:
        """The run that is checked."""
        params = {"sequence": self.place, "params": self.values(0)}
        return Asked(self.device, tuple(self.expected()), "sequence.run", params)

    def needs_approval(self) -> bool:
        """Whether its contract asks a person for one of its steps."""
        contract = self.stand.device(self.device).contract
        judged = [judge_write(contract, r, s["value"]) for r, s in self.keyed if isinstance(s.get("value"), int)]
        return any(isinstance(j, WriteJudgement) and j.approval for j in judged)

    def locked(self) -> bool:
        """Whether everything that it locks again is locked."""
        chip = self.stand.chip(self.device)
        held = [(chip.values[self.stand.named(self.device, one.register)], one.value) for one in self.sequence.relock]
        return all(now == wanted for now, wanted in held)

    def unlock(self) -> None:
        """Have what it locks again hold something else."""
        for one in self.sequence.relock:
            self.stand.chip(self.device).values[self.stand.named(self.device, one.register)] = one.value ^ 1


def _parameters(step: Mapping[str, Any]) -> Iterator[tuple[str, str]]:
    """The parameters of a step: `value`, `equals` or the name of a field, and the parameter there."""
    told = {key: step[key] for key in ("value", "equals") if key in step} | dict(step.get("fields", {}))
    yield from ((k, v[1:]) for k, v in told.items() if isinstance(v, str) and v.startswith("$"))


def cases(stand: Stand, device: str, sequence: NamedSequence) -> Iterator[Case]:
    """Every guarantee of a sequence."""
    run = Run(stand, device, sequence)
    for name, guarantee in GUARANTEES.items():
        yield Case(run.place, "sequence", name, partial(_prepared, run, guarantee))


async def _prepared(run: Run, guarantee: Callable[[Run], Awaitable[str]]) -> str:
    if not run.keyed:
        raise NotApplicable("no step of it has an effect")
    run.prepare()
    return await guarantee(run)


async def _comes_through(run: Run, asked: Asked) -> None:
    """Whether the simulated chip brings what its steps wait for; it is at power-on again afterwards.

    Raises:
        NotApplicable: it does not, or nobody may run it.
    """
    told = await run.stand.effect(asked.method, **asked.params, key=run.stand.key())
    code = None if told.error is None else str(told.error["code"])
    if told.status == "pending_approval" or code in UNSENT or code == "precondition_failed":
        raise NotApplicable(f"it does not come to its end here: {code}: {told.summary}")
    await run.stand.fresh(run.device)
    run.prepare()


async def _done(run: Run) -> str:
    """Each of its steps is executed as often as it stands there."""
    asked, expected = run.asked(), run.expected()
    await _comes_through(run, asked)
    counted = {key: run.stand.executed(run.device, *key) for key in expected}
    told = await run.stand.done_undisturbed(asked.method, **asked.params, key=run.stand.key())
    executed = {key: run.stand.executed(run.device, *key) - n for key, n in counted.items()}
    wrong = [
        f"{name} {access}: {executed[name, access]}, not {n}"
        for (name, access), n in expected.items()
        if executed[name, access] != n and not _selects(run, name)
    ]
    ensure(not wrong, "; ".join(wrong))
    return f"{told.verdict}, {sum(executed.values())} executed by {len(run.keyed)} steps"


def _selects(run: Run, name: str) -> bool:
    """Whether a register selects a bank: it is written for its banks, too."""
    banks = run.stand.device(run.device).contract.banks.values()
    return any(selector.register == name for bank in banks for selector in bank.select)


async def _once(run: Run) -> str:
    """Three times under one key its steps are executed once."""
    asked = run.asked()
    await _comes_through(run, asked)
    first, executed, key = await once_only(run.stand, asked)
    run.stand.remember(run.place, "sequence", asked.method, asked.params | {"key": key}, first)
    return f"{executed} executed, replayed twice"


async def _other_request(run: Run) -> str:
    """Its key with other steps is refused, and nothing is sent."""
    asked, number = run.asked(), run.keyed[0][1]
    await _comes_through(run, asked)
    first = {k: v for k, v in number.items() if not isinstance(v, str) or not v.startswith("$")}
    values = asked.params["params"]
    told = {key: values[name] for key, name in _parameters(number) if key in number}
    fields = {key: values[name] for key, name in _parameters(number) if key not in number}
    step = first | told | {"register": f"{run.device}.{number['register']}"}
    if "fields" in number:
        step["fields"] = dict(number["fields"]) | fields
    steps = [step] if len(run.sequence.steps) > 1 else [step, step]
    return await other_refused(run.stand, asked, "sequence.run", {"steps": steps})


async def _loss_told(run: Run) -> str:
    """After a lost reply no later step is begun, and no retry begins one."""
    asked = run.asked()
    await _comes_through(run, asked)
    return await loss_told(run.stand, asked)


async def _unknown_held(run: Run) -> str:
    asked = run.asked()
    await _comes_through(run, asked)
    return await unknown_held(run.stand, asked)


async def _approval_asked(run: Run) -> str:
    return await unapproved_never(run.stand, run.asked(), run.needs_approval())


async def _locked_again(run: Run) -> str:
    """What it unlocks is locked when it is done."""
    if not run.sequence.relock:
        raise NotApplicable("it says of nothing that it locks it again")
    asked = run.asked()
    await _comes_through(run, asked)
    run.unlock()
    await run.stand.done_undisturbed(asked.method, **asked.params, key=run.stand.key())
    registers = ", ".join(one.register for one in run.sequence.relock)
    ensure(run.locked(), f"it is done, and {registers} is not as relock says")
    return f"done, and {registers} is as relock says"


GUARANTEES: dict[str, Callable[[Run], Awaitable[str]]] = {
    "done": _done,
    "once": _once,
    "other_request": _other_request,
    "loss_told": _loss_told,
    "unknown_held": _unknown_held,
    "approval_asked": _approval_asked,
    "locked_again": _locked_again,
}
