"""The option ``--where``: an SQL92 expression of RocketMQ over the properties of messages."""

from __future__ import annotations

import contextlib
import logging
import warnings
from collections.abc import Callable, Iterator
from typing import TYPE_CHECKING, Annotated, Any

import typer

from rocketstore.cli.common.options import check_words
from rocketstore.cli.common.outcome import ExitCode, complain, fail
from rocketstore.display.columns import FULL
from rocketstore.errors import FilterSyntaxError, FilterWarning

if TYPE_CHECKING:
    from rocketstore.filter.sql92.sql92_filter import Sql92Filter

#: Columns of tables and of the output's lines that users may take for properties.
_COLUMNS = frozenset(name for name in (*FULL, "bodySize") if name != name.lower())
#: RocketMQ's own properties in place of the columns.
_PROPERTIES = {"tags": "TAGS", "keys": "KEYS", "uniqKey": "UNIQ_KEY"}

WhereOption = Annotated[
    str | None,
    typer.Option(
        "--where",
        "-w",
        metavar="SQL",
        callback=check_words,
        help='Only messages whose properties meet this SQL92 expression: "n > 50".',
    ),
]


@contextlib.contextmanager
def filter_warnings(*, quiet: bool, name: str = "--where") -> Iterator[None]:
    """Show at the end, once and as the command's own, what RocketMQ ignores of an expression that
    is compiled meanwhile."""
    found: dict[str, None] = {}
    with warnings.catch_warnings():
        show = warnings.showwarning

        def note(message: Warning | str, category: type[Warning], *place: Any, **more: Any) -> None:
            if issubclass(category, FilterWarning):
                # The first line is about Python's ``strict``.
                found[str(message).partition("\n")[2]] = None
            else:
                show(message, category, *place, **more)

        warnings.showwarning = note
        warnings.simplefilter("always", FilterWarning)
        yield
    for notes in found if not quiet else ():
        complain(f"{name}: RocketMQ accepts this, but\n{notes}", keep="\n")


@contextlib.contextmanager
def compiled(
    where: str | None,
    make: Callable[[str], Sql92Filter],
    *,
    quiet: bool,
    name: str = "--where",
) -> Iterator[Sql92Filter | None]:
    """Yield the filter of ``--where`` that ``make`` compiles, ``None`` without the option.

    ``name`` is what the messages call the option.

    Show once what RocketMQ ignores of it, and at the end how many evaluations failed. Raise
    ``typer.Exit`` (2) for what is no expression, after showing where the fault is.
    """
    if where is None:
        yield None
        return
    with filter_warnings(quiet=quiet, name=name):
        try:
            made = make(where)
        except FilterSyntaxError as error:
            raise fail(ExitCode.USAGE, f"{name}: {error}", keep="\n") from None
    if not quiet:
        _name_columns(made, name)
    logger = logging.getLogger(type(made).__module__)
    level = logger.level
    logger.setLevel(logging.ERROR)  # counted here
    try:
        yield made
    finally:
        logger.setLevel(level)
        if made.errors and not quiet:
            times = "evaluation" if made.errors == 1 else "evaluations"
            complain(f"{name}: {made.errors} {times} failed, which matches nothing")


def _name_columns(made: Sql92Filter, option: str) -> None:
    """Say which names of the expression are columns, and no properties as a rule."""
    for name in made.names:
        if name in _PROPERTIES:
            complain(f"{option}: {name} is no property of RocketMQ; {_PROPERTIES[name]} is")
        elif name in _COLUMNS:
            complain(f"{option}: {name} is a column; {option} compares properties of messages")
