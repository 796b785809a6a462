"""``rocketstore bench``: how fast the library is on this machine and disk."""

from __future__ import annotations

import os
import platform
import shutil
import signal
import sys
import tempfile
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer

from rocketstore import kernels
from rocketstore.cli.common.options import FormatOption, QuietOption, path
from rocketstore.cli.common.outcome import complain
from rocketstore.cli.common.output import Format, Rows, chosen, print_json, print_text
from rocketstore.cli.common.progress import progress_bar
from rocketstore.cli.common.quantities import format_size, parse_size
from rocketstore.cli.common.table import Table
from rocketstore.directory.place import file_system_of
from rocketstore.version import __version__

if TYPE_CHECKING:
    from rocketstore.cli.bench.clock import Figure

_MIB = 1 << 20
_MOST_BODY_NBYTES = 4_000_000
#: Of the log and of what is kept beside it, for the warning about room on the disk.
_BYTES_BESIDE_BODY = 600
_FIELDS = ("name", "meaning", "of", "ns", "per_second", "mib_per_second", "cpu_ns", "spread")


def _body_size(text: str) -> int:
    size = parse_size(text)
    if size > _MOST_BODY_NBYTES:
        raise typer.BadParameter(f"a body has at most {_MOST_BODY_NBYTES:,} bytes, not {size:,}")
    return size


def bench(
    folder: Annotated[
        Path | None,
        typer.Argument(
            metavar="DIR",
            parser=path,
            help="Where to write: a folder on the disk in question. Default: the system's folder "
            "for temporary files.",
        ),
    ] = None,
    messages: Annotated[
        int, typer.Option(metavar="N", min=1000, max=100_000_000, help="Messages in a store.")
    ] = 100_000,
    body: Annotated[
        int,
        typer.Option(
            metavar="SIZE",
            parser=_body_size,
            show_default=True,
            help="Bytes of a body, such as 4KiB.",
        ),
    ] = "100",  # type: ignore[assignment]
    rounds: Annotated[
        int, typer.Option(metavar="N", min=1, max=1000, help="Rounds; the medians are shown.")
    ] = 5,
    only: Annotated[
        list[str] | None,
        typer.Option(
            metavar="NAME", help="Only rows whose name begins like this; may be repeated."
        ),
    ] = None,
    form: FormatOption = None,
    quiet: QuietOption = False,
) -> None:
    """Measure puts, reads and queries on this machine and disk.

    Messages have the properties that a RocketMQ producer in Java sends. Stores are written into a
    new folder below DIR, which is removed at the end. SQLite stands beside them for comparison.
    CPU is that of the calling thread. If the spread of a row is large, the machine was busy: other
    figures of that run are doubtful, too.

    \b
    Examples:
      rocketstore bench
      rocketstore bench /data --messages 1000000 --body 4KiB
      rocketstore bench --only put --only sqlite --rounds 20
      rocketstore bench --format json > bench.json
    """
    from rocketstore.cli.bench.messages import Messages
    from rocketstore.cli.bench.rows import Bench

    parent = folder if folder is not None else Path(tempfile.gettempdir())
    form = chosen(form)
    wanted = _chooser(only)
    with _temporary_folder(parent) as place:
        run = Bench(place, Messages(body), messages, wanted)
        where = _circumstances(parent, messages, body, rounds)
        _warn_of_room(parent, messages * (body + _BYTES_BESIDE_BODY), quiet=quiet)
        with progress_bar(quiet=quiet) as progress:
            for number in range(rounds):
                for done in run.round():
                    if progress is not None:
                        progress("measuring", number * run.steps + done, rounds * run.steps)
    _print(list(run.figures.values()), where, form)


def _chooser(only: list[str] | None) -> Callable[[str], bool]:
    """Return which rows are wanted; refuse a name that no row has."""
    from rocketstore.cli.bench.rows import NAMES

    if not only:
        return lambda name: True
    for word in only:
        if not word or not any(name.startswith(word) for name in NAMES):
            raise typer.BadParameter(
                f"no row's name begins with {word!r}; the names are {', '.join(NAMES)}"
            )
    return lambda name: name.startswith(tuple(only))


@contextmanager
def _temporary_folder(parent: Path) -> Iterator[Path]:
    """Make a folder and remove it at the end, also when the process is terminated."""
    place = Path(tempfile.mkdtemp(prefix="rocketstore-bench-", dir=parent))
    former = signal.signal(signal.SIGTERM, lambda *_: sys.exit(128 + signal.SIGTERM))
    try:
        yield place
    finally:
        shutil.rmtree(place, ignore_errors=True)
        signal.signal(signal.SIGTERM, former)


def _circumstances(parent: Path, messages: int, body: int, rounds: int) -> dict[str, Any]:
    return {
        "rocketstore": __version__,
        "kernels": kernels.name,
        "python": platform.python_version(),
        "machine": platform.machine(),
        "processors": len(os.sched_getaffinity(0)),
        "folder": str(parent),
        "file_system": file_system_of(parent),
        "messages": messages,
        "body_nbytes": body,
        "rounds": rounds,
    }


def _warn_of_room(parent: Path, nbytes: int, *, quiet: bool) -> None:
    free = shutil.disk_usage(parent).free
    if free < 2 * nbytes and not quiet:
        complain(
            f"{format_size(free)} are free in {parent}; the stores may take {format_size(nbytes)}"
        )


def _document(figure: Figure) -> dict[str, Any]:
    second = 1e9 / figure.wall_ns if figure.wall_ns else None
    return {
        "name": figure.name,
        "meaning": figure.meaning,
        "of": figure.of,
        "ns": round(figure.wall_ns, 1),
        "per_second": None if second is None else round(second),
        "mib_per_second": (
            round(second * figure.nbytes / _MIB, 1) if second and figure.nbytes else None
        ),
        "cpu_ns": round(figure.cpu_ns, 1),
        "spread": round(figure.spread, 3),
    }


def _row(figure: Figure) -> list[Any]:
    document = _document(figure)
    speed = document["mib_per_second"]
    return [
        figure.meaning,
        f"{document['ns']:,.0f}",
        f"{document['per_second'] or 0:,}",
        None if speed is None else f"{speed:,.0f}",
        f"{document['cpu_ns']:,.0f}",
        f"{figure.spread:.0%}",
    ]


def _print(figures: list[Figure], where: dict[str, Any], form: Format) -> None:
    if form is Format.JSON:
        print_json({**where, "figures": [_document(figure) for figure in figures]})
        return
    if form is Format.TABLE:
        print_text(
            f"rocketstore {where['rocketstore']} ({where['kernels']} kernels), Python "
            f"{where['python']}, {where['processors']} processors, {where['machine']}; "
            f"{where['file_system'] or 'unknown file system'} at {where['folder']}"
        )
        print_text(
            f"{where['messages']:,} messages with bodies of {where['body_nbytes']:,} bytes; "
            f"medians of {where['rounds']} rounds, in nanoseconds for each message, call or opening"
        )
        print_text()
    table = Table(
        ("work", "ns", "per second", "MiB/s", "CPU ns", "spread"),
        right=("ns", "per second", "MiB/s", "CPU ns", "spread"),
        shrink=("work",),
    )
    with Rows(form, _FIELDS, table=table, row=_row, document=_document) as out:
        for figure in figures:
            out.write(figure)
