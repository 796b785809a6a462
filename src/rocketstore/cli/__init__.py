"""The command line: ``rocketstore COMMAND PATH``.

Typer and rich are imported only when it runs.
"""

from __future__ import annotations


def main() -> None:
    """Run the command that ``sys.argv`` names and exit with its code."""
    from rocketstore.cli.common.streams import open_closed_streams

    open_closed_streams()
    from rocketstore.cli.app import run

    run()
