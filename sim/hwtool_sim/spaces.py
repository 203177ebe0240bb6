"""How a chip answers where there are no offsets of bytes: to opcodes, to lines of text, at coils, with blocks."""

from __future__ import annotations

from hwtool_contracts.model import Encoding, Register, Space
from hwtool_registers.bits import from_bytes, to_bytes
from hwtool_registers.bus import RegisterRead, RegisterWrite
from hwtool_sim.chip import Chip, NotThere


def message(chip: Chip, write: bytes, read_bytes: int) -> bytes:
    """Take a message of a device that is driven by opcodes: code, what follows it, and the answer.

    Raises:
        NotThere: no command of this code, or not of this length.
    """
    for memory in chip.memories.values():
        code = memory.memory.read_code
        if code is not None and read_bytes and write[:1] == bytes([code]):
            chip.executed[memory.memory.name, "read"] += 1
            return memory.read(int.from_bytes(write[1 : 1 + chip.contract.access.offset_bytes], "big"), read_bytes)
    register, rest = _command(chip, write, read_bytes)
    if read_bytes:
        if read_bytes != register.size_bytes:
            raise NotThere(f"{chip.contract.part}: {register.name} answers {register.size_bytes} bytes")
        return to_bytes(register, chip.read_register(register))
    if len(rest) != register.size_bytes:
        raise NotThere(f"{chip.contract.part}: {register.name} takes {register.size_bytes} bytes, not {len(rest)}")
    try:
        raw = from_bytes(register, rest) if rest else 0
    except ValueError as error:
        raise NotThere(f"{chip.contract.part}: {register.name}: {error}") from error
    chip.write_register(register, raw)
    return b""


def _command(chip: Chip, write: bytes, read_bytes: int) -> tuple[Register, bytes]:
    """The command whose code a message begins with, the longest first, and what follows code and dummies."""
    found = [r for r in chip.contract.registers.values() if r.opcode is not None]
    for register in sorted(found, key=lambda r: -(r.opcode.code_bytes if r.opcode else 0)):
        opcode = register.opcode
        if opcode is None or register.access.readable is not bool(read_bytes):
            continue
        code = register.offset.to_bytes(opcode.code_bytes, "big")
        head = len(code) + opcode.dummy_bytes
        if write[: len(code)] == code and len(write) >= head:
            return register, write[head:]
    raise NotThere(f"{chip.contract.part} has no command {write[:4].hex()}")


def line(chip: Chip, text: str, expects_reply: bool) -> bytes:
    """Take a line of text; answers with the text of a value, where one is asked for.

    Raises:
        NotThere: no register is asked for or set like this.
    """
    for register in chip.contract.registers.values():
        phrase = register.phrase
        if phrase is None:
            continue
        if expects_reply and phrase.query == text:
            return to_bytes(register, chip.read_register(register))
        if not expects_reply and phrase.set is not None:
            head, placed, tail = phrase.set.partition("{value}")
            fits = text.startswith(head) and text.endswith(tail) and len(text) >= len(head) + len(tail)
            if not (fits if placed else text == phrase.set):
                continue
            given = text[len(head) : len(text) - len(tail)] if placed else ""
            try:
                raw = from_bytes(register, given.encode("ascii")) if placed else 0
            except ValueError as error:
                raise NotThere(f"{chip.contract.part}: {error}") from error
            chip.write_register(register, raw)
            return b""
    raise NotThere(f"{chip.contract.part} does not know {text[:40]!r}")


def block(chip: Chip, transfer: RegisterRead | RegisterWrite) -> bytes:
    """Take a block of SMBus: as many bytes as the register has; a text may be shorter.

    Raises:
        NotThere: no block of this command, or not of this length.
    """
    register, _ = chip.find_bit(Space.BLOCK, transfer.offset, readable=isinstance(transfer, RegisterRead))
    if isinstance(transfer, RegisterRead):
        if transfer.size_bytes != register.size_bytes:
            raise NotThere(f"{chip.contract.part}: {register.name} has {register.size_bytes} bytes")
        return chip.read(Space.BLOCK, transfer.offset, transfer.size_bytes)
    size, shorter = len(transfer.data), register.quantity.encoding is Encoding.TEXT
    if size > register.size_bytes or (size < register.size_bytes and not shorter):
        raise NotThere(f"{chip.contract.part}: {register.name} takes {register.size_bytes} bytes, not {size}")
    chip.write(Space.BLOCK, transfer.offset, transfer.data.rjust(register.size_bytes, b"\0"))
    return b""


def written_and_read(chip: Chip, transfer: RegisterRead, at: int, data: bytes) -> bytes:
    """Write registers of Modbus, then read some, in one request: where either cannot be, neither is done.

    Source: Modbus Application Protocol V1.1b3, 6.17.

    Raises:
        NotThere: nothing to be written or read at one of the places.
    """
    trial = chip.copied()
    trial.write(Space.HOLDING, at, data)
    trial.read(transfer.space, transfer.offset, transfer.size_bytes)
    chip.write(Space.HOLDING, at, data)
    return chip.read(transfer.space, transfer.offset, transfer.size_bytes)


def merged(chip: Chip, transfer: RegisterWrite) -> bytes:
    """The word that a device writes which is told the bits to keep and those to set among the others.

    It takes them from what the register holds, without a read that anything would come of, and writes the whole word.

    Source: Modbus Application Protocol V1.1b3, 6.16.

    Raises:
        NotThere: no writable register there.
    """
    register, words = chip.find_bit(transfer.space, transfer.offset, readable=False)
    held = to_bytes(register, chip.values[register.name])[2 * words : 2 * words + 2]
    kept, given = transfer.data[:2], transfer.data[2:]
    return bytes((h & k) | (g & ~k & 0xFF) for h, k, g in zip(held, kept, given, strict=True))


def read_bits(chip: Chip, space: Space, offset: int, bits: int) -> bytes:
    """Coils or discrete inputs from an address on, eight to a byte.

    Raises:
        NotThere: there is none at one of the addresses.
    """
    reached = [chip.find_bit(space, offset + i, readable=True) for i in range(bits)]
    named = {register.name: register for register, _ in reached}
    held = {name: chip.read_register(register) for name, register in named.items()}
    value = sum(((held[register.name] >> inside) & 1) << i for i, (register, inside) in enumerate(reached))
    return value.to_bytes((bits + 7) // 8, "little")


def write_bits(chip: Chip, space: Space, offset: int, bits: int, data: bytes, *, foreign: bool = False) -> None:
    """Write coils from an address on.

    Raises:
        NotThere: there is none at one of the addresses.
    """
    value = int.from_bytes(data, "little")
    changes: dict[str, tuple[Register, int, int]] = {}
    for i in range(bits):
        register, inside = chip.find_bit(space, offset + i, readable=False)
        _, raw, mask = changes.get(register.name, (register, 0, 0))
        changes[register.name] = (register, raw | ((value >> i) & 1) << inside, mask | 1 << inside)
    for register, raw, mask in changes.values():
        chip.write_register(register, raw, mask, foreign=foreign)
