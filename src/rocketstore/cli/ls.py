"""``rocketstore ls``: topics, queues and files of a store."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path
from typing import Annotated, Any

import typer

from rocketstore import DefaultMessageStore, formats
from rocketstore.cli.opening import reading
from rocketstore.cli.options import FormatOption, QuietOption, StorePath, complete_topics
from rocketstore.cli.outcome import ExitCode, complain
from rocketstore.cli.output import Format, Rows, chosen
from rocketstore.cli.quantities import format_size, format_time
from rocketstore.cli.store_files import StoredFile, files_below
from rocketstore.cli.table import Table

_TOPIC_NAMES = ("topic", "queues", "messages", "files", "bytes", "allocatedBytes")
_QUEUE_NAMES = (
    *("topic", "queueId", "minOffset", "maxOffset", "messages"),
    *("firstTimestamp", "lastTimestamp", "files", "bytes", "allocatedBytes"),
)
_FILE_NAMES = ("path", "kind", "bytes", "allocatedBytes", "firstOffset", "endOffset", "modified")
_QUEUE_FOLDERS = (
    formats.CONSUME_QUEUE_DIR,
    formats.BATCH_QUEUE_DIR,
    formats.CONSUME_QUEUE_EXT_DIR,
)


def ls(
    path: StorePath,
    topic: Annotated[
        str | None,
        typer.Argument(
            metavar="TOPIC", help="Only this topic, queue by queue.", autocompletion=complete_topics
        ),
    ] = None,
    queues: Annotated[bool, typer.Option("--queues", help="Every queue of every topic.")] = False,
    files: Annotated[
        bool, typer.Option("--files", help="Every file instead; the store is not opened for it.")
    ] = False,
    form: FormatOption = None,
    quiet: QuietOption = False,
) -> None:
    """List topics, queues or files with their extents and sizes. Changes nothing.

    Sizes of topics and queues are those of their queue files; the messages of all of them lie in
    the log. Allocated is what takes room on the disk: files have their full length from the start.

    \b
    Examples:
      rocketstore ls /data/store
      rocketstore ls /data/store TopicA
      rocketstore ls /data/store --queues --format csv > queues.csv
      rocketstore ls /data/store --files
    """
    if files and (queues or topic is not None):
        raise typer.BadParameter("--files lists all files; it goes with no topic and no --queues")
    form = chosen(form)
    if files:
        count = _print(form, _FILE_NAMES, _file_table, files_below(path), quiet=quiet)
    else:
        with reading(path, quiet=quiet, message_index_enable=False) as store:
            if topic is not None or queues:
                wanted = store.topics() if topic is None else [topic]
                rows: Iterator[Any] = (row for one in wanted for row in queue_rows(store, one))
                count = _print(form, _QUEUE_NAMES, _queue_table, rows, quiet=quiet)
            else:
                rows = (topic_row(store, one) for one in store.topics())
                count = _print(form, _TOPIC_NAMES, _topic_table, rows, quiet=quiet)
    if not count:
        if not quiet:
            what = "file" if files else "queue" if topic is None else f"topic {topic!r}"
            complain(f"there is no {what} here")
        raise typer.Exit(int(ExitCode.FINDINGS))


def topic_row(store: DefaultMessageStore, topic: str) -> dict[str, Any]:
    """What ``ls`` says of a topic."""
    rows = list(queue_rows(store, topic))
    sums = {name: sum(row[name] for row in rows) for name in _TOPIC_NAMES[2:]}
    return {"topic": topic, "queues": len(rows), **sums}


def queue_rows(store: DefaultMessageStore, topic: str) -> Iterator[dict[str, Any]]:
    """What ``ls`` says of each queue of a topic."""
    for queue_id in store.queues(topic):
        first = store.min_offset_in_queue(topic, queue_id)
        end = store.max_offset_in_queue(topic, queue_id)
        held = [file for file in _queue_files(store.path, topic, queue_id)]
        yield {
            "topic": topic,
            "queueId": queue_id,
            "minOffset": first,
            "maxOffset": end,
            "messages": max(0, end - first),
            "firstTimestamp": _time(store, topic, queue_id, first, end),
            "lastTimestamp": _time(store, topic, queue_id, end - 1, end),
            "files": len(held),
            "bytes": sum(file.nbytes for file in held),
            "allocatedBytes": sum(file.allocated_nbytes for file in held),
        }


def _time(
    store: DefaultMessageStore, topic: str, queue_id: int, offset: int, end: int
) -> int | None:
    """Store time of one message; ``None`` when there is none, or when it is damaged."""
    queue = store.reader.queues.get(topic, queue_id)
    if queue is None or not 0 <= offset < end:
        return None
    timestamp = store.reader.store_timestamp_of(queue, offset)
    return timestamp if timestamp >= 0 else None


def _queue_files(root: Path, topic: str, queue_id: int) -> Iterator[StoredFile]:
    if "/" in topic or "\0" in topic or topic in ("", ".", ".."):
        return
    for folder in _QUEUE_FOLDERS:
        yield from files_below(root, Path(folder, topic, str(queue_id)))


# --- how it looks -----------------------------------------------------------------------------


def _print(form: Format, names: Any, table: Any, rows: Iterator[Any], *, quiet: bool) -> int:
    headings, right, shrink, cells = table()
    out = Rows(
        form,
        names,
        table=Table(headings, right=right, shrink=shrink),
        row=cells,
        document=lambda row: row if isinstance(row, dict) else row.document(),
    )
    with out:
        for row in rows:
            out.write(row)
    return out.count


def _topic_table() -> tuple[Any, ...]:
    headings = ("topic", "queues", "messages", "queue files", "size", "allocated")
    return (
        headings,
        headings[1:],
        ("topic",),
        lambda row: (
            row["topic"],
            row["queues"],
            row["messages"],
            row["files"],
            format_size(row["bytes"]),
            format_size(row["allocatedBytes"]),
        ),
    )


def _queue_table() -> tuple[Any, ...]:
    headings = ("topic", "queue", "first", "end", "messages", "from", "to", "files", "size")
    right = ("queue", "first", "end", "messages", "files", "size")
    return (
        headings,
        right,
        ("topic",),
        lambda row: (
            row["topic"],
            row["queueId"],
            row["minOffset"],
            row["maxOffset"],
            row["messages"],
            _shown_time(row["firstTimestamp"]),
            _shown_time(row["lastTimestamp"]),
            row["files"],
            format_size(row["bytes"]),
        ),
    )


def _file_table() -> tuple[Any, ...]:
    headings = ("file", "kind", "from", "to", "size", "allocated", "modified")
    right = ("from", "to", "size", "allocated")
    return (
        headings,
        right,
        ("file",),
        lambda file: (
            file.path,
            file.kind,
            file.first_offset,
            file.end_offset,
            format_size(file.nbytes),
            format_size(file.allocated_nbytes),
            format_time(file.modified_ms),
        ),
    )


def _shown_time(timestamp: int | None) -> str | None:
    return None if timestamp is None else format_time(timestamp)


__all__ = ["ls", "queue_rows", "topic_row"]
