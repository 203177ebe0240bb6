"""Readers of other people's register descriptions: each makes a `Contract` and a list of what it had to decide."""
