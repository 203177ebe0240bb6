"""What `[mux]` may name: its register is written before each access to a device behind it, and nobody is asked."""

from __future__ import annotations

from typing import Final

from hwtool_contracts.effects import When, WriteEffect
from hwtool_contracts.judge import Refused
from hwtool_contracts.judge_write import WriteJudgement, judge_write
from hwtool_contracts.model import Contract, Owner, Register, Space
from hwtool_contracts.reach import AddFault

SWITCH: Final = "a plain store in one write: in no bank, of no other owner, volatile, at once and without approval"


def check_mux(contract: Contract, fault: AddFault) -> None:
    """Record what keeps the register from being written at any time, in one transfer, as often as need be."""
    mux = contract.mux
    if mux is None:
        return
    register = contract.registers.get(mux.register)
    if register is None:
        fault("mux", "register", "no such register", mux.register, "a declared name")
        return
    if not _is_alone(contract, register):
        fault("mux", "register", "is written before each access behind it", mux.register, SWITCH)
        return
    for value in mux.channels:
        judged = None if value > register.mask else judge_write(contract, register, value)
        if judged is None or isinstance(judged, Refused):
            why = f"at most {register.mask:#x}" if judged is None else judged.message
            fault("mux", "channels", "cannot be written", hex(value), why)
        elif judged.effect is not WriteEffect.STORE or judged.repeat is not When.YES or _has_manners(judged):
            fault("mux", "register", "is written before each access behind it", mux.register, SWITCH)


def _is_alone(contract: Contract, register: Register) -> bool:
    """Whether one write reaches it, which nothing else decides and nobody has to see."""
    selectors = {s.register for bank in contract.banks.values() for s in bank.select}
    whole = register.space is Space.MEMORY and register.piece_bytes is None and register.shared_bytes is None
    ours = register.bank is None and register.name not in selectors and register.owner is not Owner.SHARED
    return ours and whole and not register.sensitive and register.access.writable


def _has_manners(judged: WriteJudgement) -> bool:
    """Whether a write asks for more than to be sent; what restarts, moves or wears out a device needs approval."""
    timed = judged.busy_retry is not None or judged.delay_after_ms or judged.max_rate_per_min is not None
    gated = judged.gates or judged.not_before or judged.unlock or judged.approval
    return bool(timed or gated)
