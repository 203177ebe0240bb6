"""How registers are reached: bits and values, transfer plans, the bus contract and the buses."""
