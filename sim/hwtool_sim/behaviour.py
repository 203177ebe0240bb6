"""What a chip does beside its registers' effects: what a contract cannot say, in one class a chip.

A contract says what an access does to registers. It cannot say what time does (a clock ticks, a conversion ends) and
what a value means to the chip (a multiplexer's setting picks the input that is converted). That is said here, and each
class says where it is known from. A chip that has no class does what its contract says and nothing else.

The classes are in hwtool_sim.behaviours, a file a chip; docs/simulator.md lists what is modelled and what is not.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, ClassVar

if TYPE_CHECKING:
    from hwtool_sim.chip import Chip


class Behaviour:
    """What one chip does by itself: nothing, where a class of its own says no more. Each chip has its own object.

    Attributes:
        registers: what its contract must have: another contract of the same name is another chip.
    """

    registers: ClassVar[tuple[str, ...]] = ()

    def power_on(self, chip: Chip) -> None:
        """Put into it what it holds once it has power, beside the reset values of its contract."""

    def passes(self, chip: Chip) -> None:
        """Catch up with the time: it is `chip.now_s`, and an access comes next."""

    def written(self, chip: Chip, register: str, value: int) -> None:
        """Act on a write to a register that the chip has taken: `value` is what came, where it was touched."""
