"""What the contracts of bundled chips let be written: rows of tables that several suites have."""

from __future__ import annotations

from hwtool_contracts.judge import Refused
from hwtool_contracts.judge_write import WriteJudgement, judge_write
from hwtool_contracts.library import bundled


def asks_a_person(part: str, register: str, value: int) -> bool:
    """Whether a write that the contract allows needs an approval."""
    contract = bundled(part)
    judged = judge_write(contract, contract.registers[register], value)
    assert isinstance(judged, WriteJudgement), judged
    return bool(judged.approval)


def rule_against(part: str, register: str, value: int) -> str:
    """The rule by which the contract refuses a write."""
    contract = bundled(part)
    judged = judge_write(contract, contract.registers[register], value)
    assert isinstance(judged, Refused), judged
    return judged.rule
