"""The root of the command line: the verbs and where each one lives."""

from __future__ import annotations

import click


@click.group()
@click.version_option(package_name="hwtool", prog_name="hwtool")
def main() -> None:
    """Stand between callers and hardware registers: contracts, keys, durable outcomes."""
