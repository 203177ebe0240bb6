"""Where a C extension calls another library's function: the address it calls is exchanged, as a debugger would.

What an extension does with ioctl(2) can be seen and answered no lower than at that call. ELF of 64 bits, lazily bound
or not: the slot in its global offset table is written.

Source: System V ABI, 5 (dynamic section, relocation); AMD64 ABI 4.4.1 and ELF for the Arm 64-bit Architecture 5.7.10
(JUMP_SLOT, GLOB_DAT).
"""

from __future__ import annotations

import ctypes
import mmap
import re
import struct
from pathlib import Path
from typing import Final

DYNAMIC: Final = 2  # PT_DYNAMIC
STRTAB, SYMTAB, RELA, RELASZ, JMPREL, PLTRELSZ = 5, 6, 7, 8, 23, 2
SLOTS: Final = (6, 7, 1025, 1026)  # GLOB_DAT and JUMP_SLOT of x86-64 and AArch64


def loaded_at(file: str) -> int:
    """Where a library is in this process.

    Raises:
        OSError: it is not loaded.
    """
    for line in Path("/proc/self/maps").read_text(encoding="utf-8").splitlines():
        found = re.match(r"([0-9a-f]+)-\S+ \S+ 0+ ", line)
        if found and line.endswith(file):
            return int(found[1], 16)
    raise OSError(f"{file} is not loaded")


def slots_of(file: str, function: str) -> list[int]:
    """The addresses in this process where a loaded library keeps the address of a function of another one.

    Raises:
        OSError: not loaded, or it does not call that function.
    """
    base = loaded_at(file)
    head = ctypes.string_at(base, 64)
    table_at, entry_size, entries = (
        struct.unpack_from(f, head, at)[0] for f, at in (("<Q", 32), ("<H", 54), ("<H", 56))
    )
    tags: dict[int, int] = {}
    for n in range(entries):
        kind, _, _, address, _, _, size, _ = struct.unpack(
            "<IIQQQQQQ", ctypes.string_at(base + table_at + n * entry_size, 56)
        )
        if kind == DYNAMIC:
            words = struct.iter_unpack("<QQ", ctypes.string_at(base + address, size // 16 * 16))
            tags |= dict(words)
    absolute = {tag: value if value >= base else base + value for tag, value in tags.items()}
    found = []
    for start, size in ((absolute.get(RELA), tags.get(RELASZ)), (absolute.get(JMPREL), tags.get(PLTRELSZ))):
        for offset, info, _ in struct.iter_unpack("<QQq", ctypes.string_at(start or 0, size or 0)):
            name_at = struct.unpack("<I", ctypes.string_at(absolute[SYMTAB] + 24 * (info >> 32), 4))[0]
            if info & 0xFFFFFFFF in SLOTS and ctypes.string_at(absolute[STRTAB] + name_at) == function.encode():
                found.append(base + offset)
    if not found:
        raise OSError(f"{file} does not call {function}")
    return found


def exchanged(file: str, function: str, address: int) -> list[tuple[int, int]]:
    """Have a loaded library call another address; answers the slots with what stood there, for `put_back`."""
    before = []
    for slot in slots_of(file, function):
        before.append((slot, ctypes.c_uint64.from_address(slot).value))
        _write(slot, address)
    return before


def put_back(before: list[tuple[int, int]]) -> None:
    """Undo `exchanged`."""
    for slot, address in before:
        _write(slot, address)


def _write(slot: int, address: int) -> None:
    page = slot // mmap.PAGESIZE * mmap.PAGESIZE
    if ctypes.CDLL(None, use_errno=True).mprotect(
        ctypes.c_void_p(page), mmap.PAGESIZE, 3
    ):  # also where it is read-only
        raise OSError(ctypes.get_errno(), "mprotect")
    ctypes.c_uint64.from_address(slot).value = address
