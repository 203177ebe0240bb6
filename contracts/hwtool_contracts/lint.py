"""What can be said against a contract that loads: what an importer had to decide, and what is odd in what it says."""

from __future__ import annotations

from collections.abc import Iterator

from hwtool_contracts.complaint import Complaint
from hwtool_contracts.lint_places import of_place
from hwtool_contracts.lint_reads import moved_by_reads, of_read
from hwtool_contracts.lint_tables import of_tables
from hwtool_contracts.lint_writes import of_write
from hwtool_contracts.model import Contract
from hwtool_contracts.notice import Imported


def complaints(imported: Imported) -> list[Complaint]:
    """Everything, in the order of the map: the importer's notices first."""
    notices = [Complaint(n.rule, n.place, f"{n.found}; made of it: {n.made}") for n in imported.notices]
    return [*notices, *of_contract(imported.contract)]


def of_contract(contract: Contract) -> Iterator[Complaint]:
    """What is odd in what a contract says, whoever made it."""
    moved = moved_by_reads(contract)
    for register in contract.registers.values():
        yield from of_read(contract, register, moved)
        yield from of_place(contract, register)
        yield from of_write(contract, register)
    yield from of_tables(contract)
