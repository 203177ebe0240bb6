"""Devices that do not exist: chips simulated from their contracts, with counters and faults."""
