"""The Typer application: global options, and the commands by name."""

from __future__ import annotations

import logging
import os
import sys
from typing import Annotated, TextIO

import typer

from rocketstore.cli.command_list import CommandList
from rocketstore.cli.common.outcome import (
    DEBUG_VARIABLE,
    ExitCode,
    complain,
    exit_code_of,
    words_of,
)
from rocketstore.cli.common.streams import drop, prepare_streams
from rocketstore.cli.common.text import escape

_HELP = """Read, write and check RocketMQ store directories.

PATH is the directory that holds "commitlog" (a broker's storePathRootDir). Answers go to stdout, as
a table on a terminal and as one JSON object per line in a pipe. --format or ROCKETSTORE_FORMAT
selects another format. Progress and messages go to stderr.

\b
Exit status: 0 fine, 1 findings or no hit, 2 wrong usage, 3 cannot read or write (missing, damaged,
disk full), 4 refused as unsafe (in use, links that leave the store), 70 unexpected error,
130 interrupted.

\b
Examples:
  rocketstore doctor /data/rocketmq/store
  rocketstore get /data/rocketmq/store TopicA 0 --count 5
  rocketstore find /data/rocketmq/store --topic TopicA --key order-17 | jq .body
  rocketstore export /data/rocketmq/store orders --topic Orders
"""

app = typer.Typer(
    name="rocketstore",
    help=_HELP,
    cls=CommandList,
    no_args_is_help=True,
    rich_markup_mode=None,
    pretty_exceptions_enable=False,
    context_settings={"help_option_names": ["-h", "--help"], "max_content_width": 100},
)


def _print_version(wanted: bool) -> None:
    if wanted:
        from rocketstore import kernels
        from rocketstore.version import __version__

        typer.echo(f"rocketstore {__version__} ({kernels.name} kernels)")
        raise typer.Exit


@app.callback()
def globals_(
    debug: Annotated[
        bool, typer.Option("--debug", help=f"Show tracebacks; so does {DEBUG_VARIABLE}=1.")
    ] = False,
    version: Annotated[
        bool,
        typer.Option("--version", callback=_print_version, is_eager=True, help="Show the version."),
    ] = False,
) -> None:
    """Take the options before the command."""
    if debug:
        os.environ[DEBUG_VARIABLE] = "1"
    _send_logs_to_stderr()


class _SafeFormatter(logging.Formatter):
    """Escapes log lines: they may contain names from the disk."""

    def format(self, record: logging.LogRecord) -> str:
        return escape(super().format(record), keep="\n")


class _StderrHandler(logging.StreamHandler):  # type: ignore[type-arg]
    """Writes to the stream that ``sys.stderr`` is when the message is logged."""

    def __init__(self) -> None:
        logging.Handler.__init__(self)

    @property
    def stream(self) -> TextIO:
        """Return the current ``sys.stderr``."""
        return sys.stderr


def _send_logs_to_stderr() -> None:
    logging.captureWarnings(True)
    for name in ("rocketstore", "py.warnings"):
        logger = logging.getLogger(name)
        if not any(isinstance(handler, _StderrHandler) for handler in logger.handlers):
            handler = _StderrHandler()
            handler.setFormatter(_SafeFormatter("rocketstore: %(message)s"))
            logger.addHandler(handler)
            logger.propagate = False


def run() -> None:
    """Run the application; turn errors that typer itself raises into an exit code."""
    prepare_streams()
    try:
        _run_to_its_exit()
    except KeyboardInterrupt:
        complain("interrupted")
        sys.exit(int(ExitCode.INTERRUPTED))
    except OSError as error:  # --help to a full disk
        drop(sys.stdout)
        complain(words_of(error))
        sys.exit(int(exit_code_of(error)))


def _run_to_its_exit() -> None:
    try:
        app()
    finally:
        sys.stdout.flush()
