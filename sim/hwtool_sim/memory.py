"""A simulated memory: bytes that outlast a reset, pages that wrap, and a write cycle during which nothing answers."""

from __future__ import annotations

from hwtool_contracts.model import Memory

ERASED = 0xFF


class SimMemory:
    """The cells of one memory.

    Attributes:
        cells: its bytes; erased ones are 0xFF.
        stuck: bytes that stay as they are whatever is written.
    """

    def __init__(self, memory: Memory) -> None:
        self.memory = memory
        self.cells = bytearray([ERASED]) * memory.size_bytes
        self.stuck: set[int] = set()

    def copied(self) -> SimMemory:
        """Another one that holds the same."""
        twin = SimMemory(self.memory)
        twin.cells[:] = self.cells
        twin.stuck = set(self.stuck)
        return twin

    def holds(self, at: int) -> bool:
        """Whether an offset of the device is in it."""
        return self.memory.offset <= at < self.memory.offset + self.memory.size_bytes

    def read(self, at: int, size_bytes: int) -> bytes:
        """Bytes from an offset of the device on; at the end it goes on with the first."""
        first = at - self.memory.offset
        size = self.memory.size_bytes
        return bytes(self.cells[(first + i) % size] for i in range(size_bytes))

    def write(self, at: int, data: bytes) -> None:
        """Store bytes; past the end of a page they go on at its beginning, as a real one does."""
        first = at - self.memory.offset
        page = self.memory.page_bytes or self.memory.size_bytes
        base = first - first % page
        for i, byte in enumerate(data):
            at_byte = base + (first - base + i) % page
            if at_byte not in self.stuck:
                self.cells[at_byte] = byte
