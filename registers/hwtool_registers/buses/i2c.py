"""I2C and SMBus through Linux's i2c-dev and smbus2: one transfer of the plan is one transaction on the wire.

On an adapter with full I2C a transfer is one I2C_RDWR of at most two messages (with a stop between them where the chip
wants one, it is two). On an adapter that speaks SMBus alone it is the one SMBus command that has the same bytes on the
wire; what no command can say is refused before anything is sent. The kernel's own retries are set to 0.

An address that a kernel driver owns is refused, with the driver's name: I2C_RDWR would go past it without asking.
I2C has no late replies, since the master gives the clock: there is nothing to drain.

Source: Linux Documentation/i2c/dev-interface.rst and smbus-protocol.rst.
"""

from __future__ import annotations

import errno
import fcntl
import os
import time
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from typing import Final

from smbus2 import I2cFunc, SMBus, i2c_msg
from smbus2.smbus2 import I2C_SLAVE, I2C_SMBUS, I2C_SMBUS_I2C_BLOCK_DATA, I2C_SMBUS_READ, i2c_smbus_ioctl_data

from hwtool_contracts.model import Space
from hwtool_registers.bus import (
    NOT_SENT,
    Ambiguous,
    Answer,
    Capabilities,
    Confirmed,
    Line,
    Message,
    RegisterRead,
    RegisterWrite,
    Rejected,
    Sent,
    Transfer,
    Unsayable,
)
from hwtool_registers.buses.i2c_messages import MOST_BYTES, bytes_of, messages_of
from hwtool_registers.buses.i2c_nodes import DEV, SYSFS, name_of, node_of, owner_of
from hwtool_registers.buses.i2c_proof import UNLISTED, Adapter, adapter_of, answer_of

# linux/i2c-dev.h; smbus2 has no names for these two
I2C_RETRIES: Final = 0x0701
I2C_TIMEOUT: Final = 0x0702  # in units of 10 ms
MOST_OF_A_BLOCK: Final = 32
SPACES: Final = frozenset({Space.MEMORY, Space.BLOCK})
CAPABILITIES: Final = Capabilities(SPACES, lines=False, longest_read_bytes=MOST_OF_A_BLOCK)


@dataclass(frozen=True, slots=True)
class I2cSettings:
    """One adapter: by its name in sysfs, or by a path that is stable.

    Attributes:
        response_ms: how long the kernel lets a transfer take.
    """

    adapter: str | None
    path: str | None
    response_ms: int = 200


def read_block(bus: SMBus, address: int, offset: int, size: int) -> bytes:
    """An I2C block read: the bytes that came, which may be fewer than asked for.

    smbus2's own gives zeros for those that did not come, since it does not look at the length that the kernel answers.
    """
    node = bus.fd or 0
    fcntl.ioctl(node, I2C_SLAVE, address)
    bus.address = address  # smbus2 sets it only where it takes it to be another
    asked = i2c_smbus_ioctl_data.create(I2C_SMBUS_READ, offset, I2C_SMBUS_I2C_BLOCK_DATA)
    block = asked.data.contents.block
    block[0] = size
    fcntl.ioctl(node, I2C_SMBUS, asked)
    return bytes(block[1 : block[0] + 1])


class I2c:
    """One adapter; opened at the first transfer, locked against other programs that lock.

    Args:
        sysfs, dev: where the kernel shows its adapters; other places for tests.
    """

    def __init__(
        self,
        settings: I2cSettings,
        sysfs: Path = SYSFS,
        dev: Path = DEV,
        clock: Callable[[], float] = time.monotonic,
        sleep: Callable[[float], None] = time.sleep,
    ) -> None:
        self._settings = settings
        self._sysfs, self._dev = sysfs, dev
        self._clock, self._sleep = clock, sleep
        self._bus: SMBus | None = None
        self._node = Path()
        self._adapter: Adapter = UNLISTED
        self._named = ""

    @property
    def _place(self) -> str:
        return self._settings.path or f"adapter {self._settings.adapter!r}"

    @property
    def node(self) -> Path:
        """The adapter's node, as it was found last."""
        return self._node

    @property
    def capabilities(self) -> Capabilities:
        """Reads as long as a block of SMBus: some adapters with full I2C take no longer one, and do not say so."""
        return CAPABILITIES

    def open(self) -> None:
        """Find the adapter, open its node and lock it; nothing is sent.

        Raises:
            OSError: absent, not permitted, or in use by another program.
        """
        if self._bus is not None:
            return
        if self._settings.path is not None:
            self._node = Path(self._settings.path)
        else:
            self._node = node_of(self._settings.adapter or "", self._sysfs, self._dev)
        bus = SMBus()
        try:
            bus.open(str(self._node))
            node = bus.fd or 0
            try:
                fcntl.flock(node, fcntl.LOCK_EX | fcntl.LOCK_NB)
            except BlockingIOError as error:
                raise OSError(errno.EBUSY, f"{self._node} is in use by another program") from error
            fcntl.ioctl(node, I2C_RETRIES, 0)
            fcntl.ioctl(node, I2C_TIMEOUT, max(1, self._settings.response_ms // 10))
        except OSError:
            bus.close()
            raise
        self._named = name_of(self._node, self._sysfs)
        self._adapter = adapter_of(self._named)
        self._bus = bus

    def close(self) -> None:
        """Give the node back; nothing is sent."""
        bus, self._bus = self._bus, None
        if bus is not None:
            bus.close()

    def perform(self, transfer: Transfer) -> Answer:
        """Give one transfer to the kernel, once; see the bus contract."""
        if isinstance(transfer, Line) or not CAPABILITIES.carries(transfer):
            return Rejected(f"I2C cannot carry {type(transfer).__name__}", NOT_SENT)
        try:
            out, size = bytes_of(transfer)
        except OverflowError:
            return Rejected(f"an offset that {transfer} has no room for", NOT_SENT)
        if max(len(out), size) > MOST_BYTES:
            return Rejected(f"a message of more than {MOST_BYTES} bytes: i2c-dev takes no longer ones", NOT_SENT)
        try:
            self.open()
        except OSError as error:
            return Rejected(f"cannot open {self._place}: {error}", "port-not-opened")
        bus = self._bus
        if bus is None:
            return Rejected("the adapter is closed", "port-not-opened")
        owner = owner_of(self._node, transfer.address, self._sysfs)
        if owner is not None:
            told = f"{transfer.address:#04x} on {self._node} is owned by the kernel driver {owner}: unbind it first"
            return Rejected(told, NOT_SENT)
        try:
            if not isinstance(transfer, Message) and transfer.space is Space.BLOCK:
                return self._block(bus, transfer)
            if bus.funcs & I2cFunc.I2C:
                return self._by_messages(bus, transfer)
            return self._by_command(bus, transfer, out, size)
        except Unsayable as error:
            return Rejected(str(error), NOT_SENT)
        except OSError as error:
            return self._failed(transfer, error)

    def _failed(self, transfer: RegisterRead | RegisterWrite | Message, error: OSError) -> Answer:
        if not self._is_there():
            self.close()  # or the one that comes back would never be opened
            return Ambiguous(Sent.DATA, f"{self._node} vanished: {error}")
        return answer_of(self._adapter, transfer, error.errno or errno.EIO)

    def _is_there(self) -> bool:
        """Whether the node is the one that was opened: an adapter that is back, or a link made anew, is another."""
        try:
            return self._bus is not None and os.path.samestat(os.fstat(self._bus.fd or 0), self._node.stat())
        except OSError:
            return False

    def _by_messages(self, bus: SMBus, transfer: RegisterRead | RegisterWrite | Message) -> Answer:
        wanted, address = messages_of(transfer), transfer.address
        writing = [i2c_msg.write(address, wanted.out)] if wanted.writes else []
        reading = i2c_msg.read(address, wanted.size_bytes) if wanted.size_bytes else None
        if wanted.stop and reading is not None:
            bus.i2c_rdwr(*writing)
            bus.i2c_rdwr(reading)
        else:
            bus.i2c_rdwr(*writing, *([] if reading is None else [reading]))
        return Confirmed() if reading is None else wanted.answer(bytes(reading))

    def _by_command(
        self, bus: SMBus, transfer: RegisterRead | RegisterWrite | Message, out: bytes, size: int
    ) -> Answer:
        """The SMBus command with the same bytes on the wire."""
        address = transfer.address
        if isinstance(transfer, RegisterRead) and transfer.stop:
            raise Unsayable(self._cannot("a stop between offset and read"))
        self._use_pec(bus, transfer.pec)
        match len(out), size:
            case 0, 1:
                self._need(bus, I2cFunc.SMBUS_READ_BYTE, "receive byte")
                return Confirmed(bytes([bus.read_byte(address)]))
            case 1, 0:
                self._need(bus, I2cFunc.SMBUS_WRITE_BYTE, "send byte")
                bus.write_byte(address, out[0])
            case 1, 1:
                self._need(bus, I2cFunc.SMBUS_READ_BYTE_DATA, "read byte")
                return Confirmed(bytes([bus.read_byte_data(address, out[0])]))
            case 1, 2:
                self._need(bus, I2cFunc.SMBUS_READ_WORD_DATA, "read word")
                return Confirmed(bus.read_word_data(address, out[0]).to_bytes(2, "little"))
            case 1, _ if size <= MOST_OF_A_BLOCK and not transfer.pec:
                self._need(bus, I2cFunc.SMBUS_READ_I2C_BLOCK, "i2c block read")
                data = read_block(bus, address, out[0], size)
                if len(data) != size:
                    return Ambiguous(Sent.REPLY, f"{len(data)} bytes came, {size} were asked for")
                return Confirmed(data)
            case 2, 0:
                self._need(bus, I2cFunc.SMBUS_WRITE_BYTE_DATA, "write byte")
                bus.write_byte_data(address, out[0], out[1])
            case 3, 0:
                self._need(bus, I2cFunc.SMBUS_WRITE_WORD_DATA, "write word")
                bus.write_word_data(address, out[0], int.from_bytes(out[1:], "little"))
            case n, 0 if 1 < n <= MOST_OF_A_BLOCK + 1 and not transfer.pec:
                self._need(bus, I2cFunc.SMBUS_WRITE_I2C_BLOCK, "i2c block write")
                bus.write_i2c_block_data(address, out[0], list(out[1:]))
            case n, m:
                raise Unsayable(self._cannot(f"write {n} and read {m} bytes in one transaction"))
        return Confirmed()

    def _block(self, bus: SMBus, transfer: RegisterRead | RegisterWrite) -> Answer:
        """A block with its number of bytes, by SMBus's command on adapters of either kind: the kernel counts them."""
        self._use_pec(bus, transfer.pec)
        if isinstance(transfer, RegisterWrite):
            if len(transfer.data) > MOST_OF_A_BLOCK:
                raise Unsayable(self._cannot(f"write a block of {len(transfer.data)} bytes"))
            self._need(bus, I2cFunc.SMBUS_WRITE_BLOCK_DATA, "block write")
            bus.write_block_data(transfer.address, transfer.offset, list(transfer.data))
            return Confirmed()
        self._need(bus, I2cFunc.SMBUS_READ_BLOCK_DATA, "block read")
        data = bytes(bus.read_block_data(transfer.address, transfer.offset))
        size = transfer.size_bytes
        if len(data) > size or (len(data) < size and not transfer.shorter):
            return Ambiguous(Sent.REPLY, f"a block of {len(data)} bytes came, {size} were asked for: {data.hex()}")
        return Confirmed(data.rjust(size, b"\0"))

    def _use_pec(self, bus: SMBus, wanted: bool) -> None:
        if wanted:
            self._need(bus, I2cFunc.SMBUS_PEC, "packet error codes")
        if bool(bus.pec) is not wanted:
            bus.enable_pec(wanted)

    def _need(self, bus: SMBus, function: I2cFunc, name: str) -> None:
        if not bus.funcs & function:
            raise Unsayable(self._cannot(f"{name} ({function.name})"))

    def _cannot(self, what: str) -> str:
        kind = "speaks SMBus alone and" if self._bus is None or not self._bus.funcs & I2cFunc.I2C else "has I2C, but"
        return f"{self._named or self._node} {kind} cannot {what}: another adapter, or a shorter access"

    def quiesce(self, until_s: float) -> None:
        """Wait; nothing of I2C comes late. See the bus contract.

        Raises:
            OSError: the adapter is absent.
        """
        rest_s = until_s - self._clock()
        if rest_s > 0:
            self._sleep(rest_s)
        self.open()
