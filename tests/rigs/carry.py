"""Runs inside the guest: carries the transfers it is told over a bus of the kernel's, and says what came of each.

`python -m tests.rigs.carry WORK`: JSON, the transfers of each adapter as `as_object` shows them. No engine: Python is
slow in there.
"""

from __future__ import annotations

import json
import sys

from hwtool_registers.bus import Ambiguous, Confirmed, Rejected, from_object
from hwtool_registers.buses.i2c import I2c, I2cSettings


def main(work: str) -> None:
    """Print one line for each transfer, headed by its adapter."""
    for adapter, transfers in json.loads(work).items():
        bus = I2c(I2cSettings(adapter, None, 1000))
        for shown in transfers:
            match bus.perform(from_object(shown)):
                case Confirmed(data):
                    print(json.dumps([adapter, "confirmed", data.hex()]))
                case Rejected(fault, proof):
                    print(json.dumps([adapter, "rejected", proof, fault]))
                case Ambiguous(stage, fault):
                    print(json.dumps([adapter, "ambiguous", stage, fault]))


if __name__ == "__main__":
    main(sys.argv[1])
