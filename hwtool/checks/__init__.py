"""The safety checks: what `hwtool check` proves on the simulated bench, counted at the devices."""
