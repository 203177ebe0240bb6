"""The program's entry point: `hwtool …` and `python -m hwtool …`."""

from __future__ import annotations


def main() -> None:
    """Run the command line; exits the process with the codes of the manual."""
    from hwtool.cli import command

    command.main()


if __name__ == "__main__":
    main()
