"""``rocketstore ls``: topics, queues and files of a store."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator
from dataclasses import dataclass
from itertools import chain
from typing import Annotated, Any

import typer

from rocketstore import formats
from rocketstore.cli.common.opening import reading
from rocketstore.cli.common.options import (
    CommitLogOption,
    ConfigOption,
    FormatOption,
    QuietOption,
    StorePath,
    complete_topics,
    store_config,
)
from rocketstore.cli.common.outcome import ExitCode, complain
from rocketstore.cli.common.output import Format, Rows, chosen
from rocketstore.cli.common.quantities import format_size, format_time
from rocketstore.cli.common.table import Table
from rocketstore.cli.store_facts.facts import queue_type
from rocketstore.cli.store_facts.files import files_below, regular_files
from rocketstore.store.default_message_store import DefaultMessageStore

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
            metavar="TOPIC", help="Only this topic, by queue.", autocompletion=complete_topics
        ),
    ] = None,
    queues: Annotated[
        bool, typer.Option("--queues", help="List every queue of every topic.")
    ] = False,
    files: Annotated[
        bool, typer.Option("--files", help="List every file, without opening the store.")
    ] = False,
    commit_log: CommitLogOption = None,
    config: ConfigOption = None,
    form: FormatOption = None,
    quiet: QuietOption = False,
) -> None:
    """List topics, queues or files with their extents and sizes. Changes nothing.

    The size of a topic or queue is that of its queue files; all messages are in the log. Allocated
    is the space on disk: files have their full length from the start.

    \b
    Examples:
      rocketstore ls /data/store
      rocketstore ls /data/store TopicA
      rocketstore ls /data/store --queues --format csv > queues.csv
      rocketstore ls /data/store --files
    """
    if files and (queues or topic is not None):
        raise typer.BadParameter("--files lists all files; give it without a topic and --queues")
    form = chosen(form)
    if files:
        count = _FILES.print(form, (file.document() for file in files_below(path)))
    else:
        with reading(
            path, quiet=quiet, config=store_config(config, commit_log), message_index_enable=False
        ) as store:
            if topic is not None or queues:
                wanted = store.topics() if topic is None else [topic]
                count = _QUEUES.print(
                    form, chain.from_iterable(queue_rows(store, one) for one in wanted)
                )
            else:
                count = _TOPICS.print(form, (topic_row(store, one) for one in store.topics()))
            # The lists lack what a missing end of the log held; report that damage.
            store.reader.finish_scan(store.max_physical_offset, None, "fail")
    if not count:
        if not quiet:
            what = "file" if files else "queue" if topic is None else f"topic {topic!r}"
            complain(f"there is no {what} here")
        raise typer.Exit(int(ExitCode.FINDINGS))


def topic_row(store: DefaultMessageStore, topic: str) -> dict[str, Any]:
    """Return the row of a topic."""
    rows = list(queue_rows(store, topic, times=False))
    summed = ("messages", "files", "bytes", "allocatedBytes")
    sums = {name: sum(row[name] for row in rows) for name in summed}
    kind = queue_type(store, topic)
    return {"topic": topic, "type": kind, "queues": len(rows), **sums}


def queue_rows(
    store: DefaultMessageStore, topic: str, *, times: bool = True
) -> Iterator[dict[str, Any]]:
    """Yield the row of each queue of a topic; without ``times`` no message is read."""
    for queue_id in store.queues(topic):
        first = store.min_offset_in_queue(topic, queue_id)
        end = store.max_offset_in_queue(topic, queue_id)
        held = [
            regular_files(store.path / folder / topic / str(queue_id)) for folder in _QUEUE_FOLDERS
        ]
        yield {
            "topic": topic,
            "queueId": queue_id,
            "minOffset": first,
            "maxOffset": end,
            "messages": max(0, end - first),
            "firstTimestamp": _time(store, topic, queue_id, first, end) if times else None,
            "lastTimestamp": _time(store, topic, queue_id, end - 1, end) if times else None,
            "files": sum(one.file_count for one in held),
            "bytes": sum(one.nbytes for one in held),
            "allocatedBytes": sum(one.allocated_nbytes for one in held),
        }


def _time(
    store: DefaultMessageStore, topic: str, queue_id: int, offset: int, end: int
) -> int | None:
    """Return the store time of one message; ``None`` if it is missing or damaged."""
    queue = store.reader.queues.get(topic, queue_id)
    if queue is None or not 0 <= offset < end:
        return None
    timestamp = store.reader.store_timestamp_of(queue, offset)
    return timestamp if timestamp >= 0 else None


# --- layout -----------------------------------------------------------------------------------


@dataclass(frozen=True, slots=True)
class Listing:
    """One kind of list: its CSV columns and its table layout."""

    names: tuple[str, ...]
    headings: tuple[str, ...]
    numbers: tuple[str, ...]
    cells: Callable[[Any], tuple[Any, ...]]

    def print(self, form: Format, rows: Iterable[Any]) -> int:
        """Write the rows; return their number."""
        table = Table(self.headings, right=self.numbers, shrink=self.headings[:1])
        with Rows(form, self.names, table=table, row=self.cells) as out:
            for row in rows:
                out.write(row)
        return out.count


def _shown_time(timestamp: int | None) -> str | None:
    return None if timestamp is None else format_time(timestamp)


_TOPICS = Listing(
    ("topic", "type", "queues", "messages", "files", "bytes", "allocatedBytes"),
    ("topic", "type", "queues", "messages", "queue files", "size", "allocated"),
    ("queues", "messages", "queue files", "size", "allocated"),
    lambda row: (
        row["topic"],
        row["type"],
        row["queues"],
        row["messages"],
        row["files"],
        format_size(row["bytes"]),
        format_size(row["allocatedBytes"]),
    ),
)
_QUEUES = Listing(
    (
        *("topic", "queueId", "minOffset", "maxOffset", "messages"),
        *("firstTimestamp", "lastTimestamp", "files", "bytes", "allocatedBytes"),
    ),
    ("topic", "queue", "first", "end", "messages", "from", "to", "files", "size"),
    ("queue", "first", "end", "messages", "files", "size"),
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
_FILES = Listing(
    ("path", "kind", "bytes", "allocatedBytes", "firstOffset", "endOffset", "modified"),
    ("file", "kind", "from", "to", "size", "allocated", "modified"),
    ("from", "to", "size", "allocated"),
    lambda row: (
        row["path"],
        row["kind"],
        row["firstOffset"],
        row["endOffset"],
        format_size(row["bytes"]),
        format_size(row["allocatedBytes"]),
        format_time(row["modified"]),
    ),
)
