"""What a transfer reaches, by the contracts of a bus: whether its bytes are secret, and whether it is a clean read.

A bus knows no registers, and a recording is made at the bus: here bytes on the wire are led back to registers. Where
that is not clear, the careful answer is taken: secret, and not clean.

- A transfer is secret if any register that it may reach is `sensitive` or `confidential`, whatever bank is selected and
  by whatever name (aliases, ranges of memories, wider accesses); so is what a secret register's `peek` or `verify`
  names, for it shows the same bits.
- A transfer to a device that has secrets, at a place where its contract knows nothing, is secret too.
- Words of the bus (`fault`) may quote an earlier transfer: on a bus that has secrets they are secret.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from dataclasses import dataclass
from typing import Final

from hwtool_contracts.effects import ReadEffect
from hwtool_contracts.judge import ReadJudgement, judge_read
from hwtool_contracts.model import Contract, Field, Memory, Register, Space
from hwtool_contracts.places import find_place, places_of
from hwtool_registers.bus import Line, Message, RegisterRead, RegisterWrite, Transfer
from hwtool_sim.offsets import whole_offset

MOST_REMEMBERED: Final = 4096


@dataclass(frozen=True, slots=True)
class Known:
    """What is known of a transfer.

    Attributes:
        sent: the bytes or the text that it sends are secret.
        brought: what it brings is; also what a bus may bring back of a write.
        open_bytes: of a secret message or line: how many bytes or characters at its begin are its command, no secret.
        clean: reading it has no effect, so that it may be asked for more or fewer times.
    """

    sent: bool = False
    brought: bool = False
    open_bytes: int = 0
    clean: bool = False


class Reached:
    """The facts of a bus.

    Args:
        contracts: with the place of each (hwtool_sim.bus.behind); one place may have several, of which all count.
    """

    def __init__(self, contracts: Iterable[tuple[int, Contract]]) -> None:
        self.contracts = list(contracts)
        self._secret = [_secrets_of(contract) for _, contract in self.contracts]
        self._reads: dict[Transfer, Known] = {}

    @property
    def has_secrets(self) -> bool:
        """Whether anything on the bus is secret."""
        return any(self._secret)

    def known(self, transfer: Transfer) -> Known:
        """What is known of a transfer; of what is read again and again it is remembered."""
        known = self._reads.get(transfer)
        if known is None:
            known = self._known(transfer)
            if _reads(transfer) and len(self._reads) < MOST_REMEMBERED:
                self._reads[transfer] = known
        return known

    def _known(self, transfer: Transfer) -> Known:
        sent = brought = False
        heads: list[int] = []
        clean: list[bool] = []
        for (place, contract), secret in zip(self.contracts, self._secret, strict=True):
            if not isinstance(transfer, Line) and transfer.address not in _addresses(place, contract):
                continue
            found, memories, head = _found(contract, transfer)
            hidden = _hides(contract, found, memories, secret)
            sent, brought = sent or hidden, brought or hidden
            heads += [head] if hidden else []
            if isinstance(transfer, RegisterRead) and transfer.first is not None:
                at, data = transfer.first
                sent = sent or _hides(contract, *_at(contract, transfer.space, at, len(data) // 2), secret)
            if found or memories:
                clean.append(_is_clean(contract, found, memories))
        first = transfer.first if isinstance(transfer, RegisterRead) else None
        carries = not isinstance(transfer, RegisterRead) or first is not None
        reads = _reads(transfer)
        harmless = reads and first is None and bool(clean) and all(clean)
        return Known(sent and carries, brought, min(heads, default=0), harmless)


def _reads(transfer: Transfer) -> bool:
    """Whether it brings something."""
    match transfer:
        case RegisterRead():
            return True
        case Message(read_bytes=size):
            return size > 0
        case Line(expects_reply=asks):
            return asks
        case RegisterWrite():
            return False


def _addresses(place: int, contract: Contract) -> range:
    bits = 0 if contract.access.i2c is None else contract.access.i2c.offset_bits_in_address
    return range(place & 0xFF, (place & 0xFF) + (1 << bits))


def _secrets_of(contract: Contract) -> frozenset[str]:
    """Names of the registers that are secret, and of those that show the bits of one."""
    hidden = {r.name for r in contract.registers.values() if r.sensitive or r.is_confidential}
    for register in [contract.registers[name] for name in hidden]:
        parts: list[Register | Field] = [register, *register.fields.values()]
        for spec in parts:
            shown = [spec.read.peek, None if spec.write.verify is None else spec.write.verify.register]
            places = [find_place(contract, name, register) for name in shown if name is not None]
            hidden |= {place[0].name for place in places if place is not None}
    return frozenset(hidden)


def _hides(contract: Contract, found: list[Register], memories: list[Memory], secret: frozenset[str]) -> bool:
    if not secret or not (found or memories):
        return bool(secret)
    return any(r.name in secret for r in found)  # what shares bits with one is sensitive itself: hwtool_contracts.reach


def _is_clean(contract: Contract, found: list[Register], memories: list[Memory]) -> bool:
    judged = [judge_read(contract, (register,)) for register in found if register.access.readable]
    harmless = all(isinstance(j, ReadJudgement) and j.clean for j in judged)
    return harmless and bool(judged or memories) and all(m.read.effects == {ReadEffect.NONE} for m in memories)


def _found(contract: Contract, transfer: Transfer) -> tuple[list[Register], list[Memory], int]:
    """The registers and memories that a transfer may reach, and how much at its begin is the command."""
    match transfer:
        case Line(text):
            named = [(r, head) for r in contract.registers.values() if (head := _said(r, text)) is not None]
            return [r for r, _ in named], [], min((head for _, head in named), default=0)
        case Message(_, write):
            return _commanded(contract, write)
        case RegisterRead(address, space, offset, size_bytes):
            at = whole_offset(contract, address, offset)
            return *_at(contract, space, at, _cells(contract, transfer, size_bytes)), 0
        case RegisterWrite(address, space, offset, data):
            at = whole_offset(contract, address, offset)
            return *_at(contract, space, at, _cells(contract, transfer, len(data))), 0


def _said(register: Register, text: str) -> int | None:
    """How many characters of a line are the register's command; None: the line is not about it."""
    phrase = register.phrase
    if phrase is not None and phrase.query == text:
        return len(text)
    if phrase is None or phrase.set is None:
        return None
    head, _, tail = phrase.set.partition("{value}")
    return len(head) if text.startswith(head) and text.endswith(tail) else None


def _commanded(contract: Contract, write: bytes) -> tuple[list[Register], list[Memory], int]:
    heads: list[tuple[Register, int]] = []
    for register in contract.registers.values():
        if register.opcode is None:
            continue
        code = register.offset.to_bytes(register.opcode.code_bytes, "big") if register.opcode.code_bytes else b""
        if write.startswith(code) and (code or not write):
            heads.append((register, len(code)))
    most = max((head for _, head in heads), default=0)
    memories = [m for m in contract.memories.values() if m.read_code is not None and write[:1] == bytes([m.read_code])]
    return [r for r, head in heads if head == most], memories, most


def _cells(contract: Contract, transfer: RegisterRead | RegisterWrite, size_bytes: int) -> int:
    """How many cells (hwtool_contracts.places) a transfer of so many bytes goes over."""
    if transfer.space.of_words:
        return 1 if transfer.function == 22 else (size_bytes + 1) // 2  # two masks of one word
    if transfer.space.of_bits:
        return transfer.bits or 1
    i2c = contract.access.i2c
    moves = contract.access.mdio is None if i2c is None else i2c.auto_increment != "none"
    return size_bytes if transfer.space is Space.MEMORY and moves else 1


def _at(contract: Contract, space: Space, first: int, count: int) -> tuple[list[Register], list[Memory]]:
    names = places_of(contract).names(space, first, first + count)
    return [contract.registers[name] for name in names], list(_memories(contract, space, range(first, first + count)))


def _memories(contract: Contract, space: Space, span: range) -> Iterator[Memory]:
    for memory in contract.memories.values() if space is Space.MEMORY else ():
        if memory.read_code is None and memory.offset < span.stop and span.start < memory.offset + memory.size_bytes:
            yield memory
