"""``rocketstore get``: messages of one queue."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Annotated

import typer

from rocketstore import DefaultMessageStore, GetMessageStatus, StoredMessage, TagFilter
from rocketstore.cli.opening import reading
from rocketstore.cli.options import (
    CommitLogOption,
    ConfigOption,
    FormatOption,
    QuietOption,
    StorePath,
    TagsOption,
    check_time,
    complete_topics,
    store_config,
)
from rocketstore.cli.outcome import ExitCode, complain
from rocketstore.cli.output import chosen
from rocketstore.cli.quantities import parse_time
from rocketstore.cli.records import print_records

_GROUP = "rocketstore"
_PASSED_OVER = (
    GetMessageStatus.NO_MATCHED_MESSAGE,
    GetMessageStatus.MESSAGE_WAS_REMOVING,
    GetMessageStatus.OFFSET_FOUND_NULL,
)


def get(
    path: StorePath,
    topic: Annotated[
        str, typer.Argument(metavar="TOPIC", help="Topic.", autocompletion=complete_topics)
    ],
    queue_id: Annotated[int, typer.Argument(metavar="QUEUE", min=0, help="Queue id.")],
    offset: Annotated[
        int | None,
        typer.Option(
            "--offset", "-o", min=0, help="First queue offset [default: the queue's first]."
        ),
    ] = None,
    time: Annotated[
        str | None,
        typer.Option(
            "--time",
            "-t",
            metavar="TIME",
            callback=check_time,
            help="First message stored at or after TIME.",
        ),
    ] = None,
    count: Annotated[int, typer.Option("--count", "-n", min=1, help="Messages at most.")] = 32,
    tags: TagsOption = None,
    commit_log: CommitLogOption = None,
    config: ConfigOption = None,
    form: FormatOption = None,
    quiet: QuietOption = False,
) -> None:
    """Read messages of one queue, as a consumer would.

    \b
    Examples:
      rocketstore get /data/store TopicA 0
      rocketstore get /data/store TopicA 0 --offset 1200 --count 5
      rocketstore get /data/store TopicA 0 --time -2h --tags "TagA || TagB"
      rocketstore get /data/store TopicA 0 --format ndjson | jq .body
    """
    if offset is not None and time is not None:
        raise typer.BadParameter("give --offset or --time, not both")
    timestamp = None if time is None else parse_time(time)
    with reading(path, quiet=quiet, config=store_config(config, commit_log)) as store:
        if timestamp is not None:
            offset = store.get_offset_in_queue_by_time(topic, queue_id, timestamp, boundary="lower")
        elif offset is None:
            offset = store.min_offset_in_queue(topic, queue_id)
        pull = Pull(store, topic, queue_id, offset, tags)
        if not print_records(pull.messages(count), chosen(form)):
            if not quiet:
                complain(pull.explain())
            raise typer.Exit(int(ExitCode.FINDINGS))


class Pull:
    """Repeats ``get_message`` until enough messages have come."""

    def __init__(
        self,
        store: DefaultMessageStore,
        topic: str,
        queue_id: int,
        offset: int,
        tags: str | None,
    ) -> None:
        self._store = store
        self._topic = topic
        self._queue_id = queue_id
        self._offset = offset
        self._filter = None if tags is None else TagFilter(tags, exact=True)
        self._status = GetMessageStatus.NO_MATCHED_MESSAGE

    def messages(self, count: int) -> Iterator[StoredMessage]:
        """Yield up to ``count`` messages."""
        while count > 0:
            result = self._store.get_message(
                _GROUP, self._topic, self._queue_id, self._offset, count, filter=self._filter
            )
            self._status = result.status
            yield from result.messages
            count -= len(result.messages)
            ended = result.status != GetMessageStatus.FOUND and result.status not in _PASSED_OVER
            if ended or result.next_begin_offset <= self._offset:
                return
            self._offset = result.next_begin_offset
            if self._offset >= result.max_offset:
                return

    def explain(self) -> str:
        """Say why nothing came."""
        queues = self._store.queues(self._topic)
        if not queues:
            return f"there is no topic {self._topic!r} here; `rocketstore info` lists the topics"
        if self._queue_id not in queues:
            which = ", ".join(map(str, queues))
            return f"topic {self._topic!r} has no queue {self._queue_id}, but {which}"
        first = self._store.min_offset_in_queue(self._topic, self._queue_id)
        end = self._store.max_offset_in_queue(self._topic, self._queue_id)
        held = f"holds the offsets {first} to {end - 1}" if end > first else "is empty"
        return f"no message ({self._status.name}): the queue {held}"
