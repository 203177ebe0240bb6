"""What can be wrong with a store, as types: whoever meets one knows whether the process may go on."""

from __future__ import annotations


class StoreRefused(Exception):
    """The store is not opened: the sentence says why and what a person can do."""


class StoreRule(Exception):
    """A rule of the database stopped one job; the others of its batch are committed, the store goes on."""


class StoreFatal(Exception):
    """The disk or the database failed: nothing after it may be believed, the process must end."""


class KeyTaken(StoreRule):
    """The key has a row already.

    Attributes:
        op_id: its operation.
    """

    def __init__(self, op_id: int) -> None:
        super().__init__(f"key exists: op {op_id}")
        self.op_id = op_id
