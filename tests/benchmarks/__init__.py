"""Benchmarks: ratios against a reference in the same run, medians of interleaved rounds; never part of the tests."""
