"""Linux's i2c-dev without a kernel: what smbus2 hands to ioctl is taken apart, logged, and answered by toy chips.

Everything above the ioctl is the real thing: the bus, smbus2, ctypes, flock, the nodes' files. The log holds what would
be on the wire, one entry a transaction, so that a test can count.
"""

from __future__ import annotations

import errno
import fcntl
import os
from collections.abc import Callable
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, Final

import pytest
import smbus2.smbus2 as lowest
from smbus2 import I2cFunc

EVERYTHING: Final = int(
    I2cFunc.I2C
    | I2cFunc.SMBUS_EMUL
    | I2cFunc.SMBUS_PEC
    | I2cFunc.SMBUS_READ_BLOCK_DATA
    | I2cFunc.SMBUS_READ_I2C_BLOCK
    | I2cFunc.SMBUS_WRITE_I2C_BLOCK
)
SMBUS_ALONE: Final = EVERYTHING & ~int(I2cFunc.I2C)
RETRIES, TIMEOUT, PEC = 0x0701, 0x0702, 0x0708


@dataclass
class Cells:
    """A chip of bytes behind a pointer of `offset_bytes`; `pec`: it ends and expects packet error codes."""

    offset_bytes: int = 1
    memory: bytearray = field(default_factory=lambda: bytearray(range(256)))
    pointer: int = 0

    def taken(self, data: bytes) -> None:
        if len(data) >= self.offset_bytes:
            self.pointer = int.from_bytes(data[: self.offset_bytes], "big")
        for byte in data[self.offset_bytes :]:
            self.memory[self.pointer % len(self.memory)] = byte
            self.pointer += 1

    def given(self, size: int) -> bytes:
        data = bytes(self.memory[(self.pointer + n) % len(self.memory)] for n in range(size))
        self.pointer += size
        return data


@dataclass
class FakeKernel:
    """One adapter.

    Attributes:
        log: transactions: lists of ("W", address, bytes) and ("R", address, size).
        set: what was set without sending anything.
        fails: errno of the n-th next transaction, taken before the chip has done anything.
        ends: errno told after the chip has done it.
        retries: how often a transaction is repeated whose arbitration was lost (EAGAIN), as the adapter's driver has
            it until it is told another number. Source: Linux drivers/i2c/i2c-core-base.c, __i2c_transfer.
    """

    node: Path
    functions: int = EVERYTHING
    chips: dict[int, Cells] = field(default_factory=dict)
    log: list[list[tuple[str, int, Any]]] = field(default_factory=list)
    set: list[tuple[int, int]] = field(default_factory=list)
    fails: list[int] = field(default_factory=list)
    ends: list[int] = field(default_factory=list)
    absent: int = errno.ENXIO
    spoil: Callable[[bytes], bytes] = lambda data: data
    address: int = 0
    retries: int = 1

    def ioctl(self, handle: int, request: int, argument: Any = 0) -> int:
        if os.fstat(handle).st_nlink == 0:  # its node is gone: a new one of the same name is none of this handle's
            raise OSError(errno.ENODEV, os.strerror(errno.ENODEV))
        match request:
            case lowest.I2C_FUNCS:
                argument.value = self.functions
            case lowest.I2C_SLAVE:
                self.address = argument.value if hasattr(argument, "value") else argument
            case lowest.I2C_RDWR:
                self._repeated(self._messages, [argument.msgs[n] for n in range(argument.nmsgs)])
            case lowest.I2C_SMBUS:
                self._repeated(self._command, argument)
            case _:
                self.set.append((request, argument))
                self.retries = argument if request == RETRIES else self.retries
        return 0

    def _repeated(self, once: Callable[[Any], None], asked: Any) -> None:
        for left in range(self.retries, -1, -1):
            try:
                once(asked)
            except OSError as error:
                if error.errno != errno.EAGAIN or not left:
                    raise
            else:
                return

    def _messages(self, messages: list[Any]) -> None:
        self.log.append([("R", m.addr, m.len) if m.flags & 1 else ("W", m.addr, m.buf[: m.len]) for m in messages])
        for message in messages:
            chip = self._begun(message.addr)
            if message.flags & 1:
                for n, byte in enumerate(self.spoil(chip.given(message.len))):
                    message.buf[n] = bytes([byte])
            else:
                chip.taken(message.buf[: message.len])
        self._ended()

    def _command(self, asked: Any) -> None:
        reads, command, data = asked.read_write == 1, bytes([asked.command]), asked.data
        match asked.size:
            case lowest.I2C_SMBUS_BYTE:
                out, size = (b"", 1) if reads else (command, 0)
            case lowest.I2C_SMBUS_BYTE_DATA:
                out, size = (command, 1) if reads else (command + bytes([data.contents.byte]), 0)
            case lowest.I2C_SMBUS_WORD_DATA:
                out, size = (command, 2) if reads else (command + data.contents.word.to_bytes(2, "little"), 0)
            case lowest.I2C_SMBUS_I2C_BLOCK_DATA:
                length = data.contents.block[0]
                out, size = (command, length) if reads else (command + bytes(data.contents.block[1 : length + 1]), 0)
            case lowest.I2C_SMBUS_BLOCK_DATA:
                self._block(asked, command)
                return
            case other:
                raise AssertionError(f"command of size {other}")
        wire: list[tuple[str, int, Any]] = [("W", self.address, out)] if out else []
        self.log.append(wire + ([("R", self.address, size)] if size else []))
        chip = self._begun(self.address)
        if out:
            chip.taken(out)
        if size:
            self._give(asked, self.spoil(chip.given(size)))
        self._ended()

    def _block(self, asked: Any, command: bytes) -> None:
        """What the chip answers first is how many bytes follow."""
        data, reads = asked.data.contents.block, asked.read_write == 1
        out = command if reads else command + bytes(data[: data[0] + 1])
        wire: list[tuple[str, int, Any]] = [("W", self.address, out)]
        self.log.append([*wire, ("R", self.address, "counted")] if reads else wire)
        chip = self._begun(self.address)
        chip.taken(out)
        if reads:
            size = chip.given(1)[0]
            if not 0 < size <= 32:
                raise OSError(errno.EPROTO, os.strerror(errno.EPROTO))
            for n, byte in enumerate(bytes([size]) + self.spoil(chip.given(size))):
                data[n] = byte
        self._ended()

    def _give(self, asked: Any, data: bytes) -> None:
        match asked.size:
            case lowest.I2C_SMBUS_WORD_DATA:
                asked.data.contents.word = int.from_bytes(data, "little")
            case lowest.I2C_SMBUS_I2C_BLOCK_DATA:
                asked.data.contents.block[0] = len(data)
                for n, byte in enumerate(data, 1):
                    asked.data.contents.block[n] = byte
            case _:
                asked.data.contents.byte = data[0]

    def _begun(self, address: int) -> Cells:
        if self.fails:
            number = self.fails.pop(0)
            if number:
                raise OSError(number, os.strerror(number))
        if address not in self.chips:
            raise OSError(self.absent, os.strerror(self.absent))
        return self.chips[address]

    def _ended(self) -> None:
        if self.ends:
            number = self.ends.pop(0)
            raise OSError(number, os.strerror(number))


def installed(monkeypatch: pytest.MonkeyPatch, top: Path, names: dict[str, str]) -> FakeKernel:
    """A kernel with these adapters (name by node), all of them this one; its /sys and /dev below `top`."""
    (top / "dev").mkdir()
    for node, name in names.items():
        (top / "dev" / node).write_bytes(b"")
        (top / "sys/class/i2c-dev" / node).mkdir(parents=True)
        (top / "sys/class/i2c-dev" / node / "name").write_text(name + "\n")
    kernel = FakeKernel(top / "dev" / next(iter(names)), chips={0x20: Cells()})
    monkeypatch.setattr(lowest, "ioctl", kernel.ioctl)
    monkeypatch.setattr(fcntl, "ioctl", kernel.ioctl)
    return kernel


def owned(top: Path, node: str, address: int, driver: str) -> None:
    """A kernel driver is bound to an address."""
    (top / "sys/bus/i2c/drivers" / driver).mkdir(parents=True)
    device = top / "sys/bus/i2c/devices" / f"{node.removeprefix('i2c-')}-{address:04x}"
    device.mkdir(parents=True)
    (device / "driver").symlink_to(top / "sys/bus/i2c/drivers" / driver)
