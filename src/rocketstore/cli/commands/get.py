"""``rocketstore get``: messages of one queue."""

from __future__ import annotations

from collections.abc import Iterator
from typing import TYPE_CHECKING, Annotated, Any

import typer

from rocketstore.cli.common.opening import reading
from rocketstore.cli.common.options import (
    CommitLogOption,
    ConfigOption,
    FormatOption,
    OnCorruption,
    OnCorruptionOption,
    QuietOption,
    StorePath,
    TagsOption,
    check_time,
    complete_topics,
    store_config,
)
from rocketstore.cli.common.outcome import ExitCode, complain
from rocketstore.cli.common.output import chosen
from rocketstore.cli.common.quantities import parse_time
from rocketstore.cli.common.records import print_records
from rocketstore.cli.common.where import WhereOption, compiled
from rocketstore.errors import CorruptMessageError
from rocketstore.filter import MessageFilter, TagFilter
from rocketstore.message import StoredMessage
from rocketstore.query.results import GetMessageResult
from rocketstore.query.unread_units import UnreadUnit, UnreadUnits
from rocketstore.status import GetMessageStatus
from rocketstore.store.default_message_store import DefaultMessageStore

if TYPE_CHECKING:
    from rocketstore.filter.sql92.sql92_filter import Sql92Filter

_GROUP = "rocketstore"
_SKIPPED = (
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
            "--offset",
            "-o",
            metavar="N",
            min=0,
            help="First queue offset [default: the queue's first].",
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
    count: Annotated[
        int, typer.Option("--count", "-n", metavar="N", min=1, help="Maximum number of messages.")
    ] = 32,
    tags: TagsOption = None,
    where: WhereOption = None,
    on_corruption: OnCorruptionOption = OnCorruption.FAIL,
    commit_log: CommitLogOption = None,
    config: ConfigOption = None,
    form: FormatOption = None,
    quiet: QuietOption = False,
) -> None:
    """Read messages of one queue, like a consumer.

    \b
    Examples:
      rocketstore get /data/store TopicA 0
      rocketstore get /data/store TopicA 0 --offset 1200 --count 5
      rocketstore get /data/store TopicA 0 --time -2h --tags "TagA || TagB"
      rocketstore get /data/store Orders 0 --where "state = 'PAID' AND total > 100"
      rocketstore get /data/store TopicA 0 --format ndjson --on-corruption skip
    """
    if offset is not None and time is not None:
        raise typer.BadParameter("give --offset or --time, not both")
    timestamp = None if time is None else parse_time(time)
    with (
        reading(path, quiet=quiet, config=store_config(config, commit_log)) as store,
        compiled(where, store.filter, quiet=quiet) as made,
    ):
        if timestamp is not None:
            offset = store.get_offset_in_queue_by_time(topic, queue_id, timestamp, boundary="lower")
        elif offset is None:
            offset = store.min_offset_in_queue(topic, queue_id)
        pull = Pull(store, topic, queue_id, offset, tags, on_corruption.value, made)
        found = print_records(pull.messages(count), chosen(form))
        if pull.passed and not quiet:
            complain(pull.explain_passed())
        if not found:
            refuse_another_log(store, on_corruption)
            if not quiet:
                complain(pull.explain())
            raise typer.Exit(int(ExitCode.FINDINGS))


def refuse_another_log(store: DefaultMessageStore, on_corruption: OnCorruption) -> None:
    """Raise an error if nothing was found and the log belongs to another store."""
    for damage in store.recovery_report.damaged:
        if damage.is_another_log and on_corruption == OnCorruption.FAIL:
            raise damage.refusal()


class Both:
    """A filter that passes what two filters pass."""

    def __init__(self, first: MessageFilter, second: MessageFilter) -> None:
        self._parts = first, second

    def is_matched_by_consume_queue(self, tags_code: int | None, ext: Any = None) -> bool:
        """Return whether both match the unit."""
        return all(part.is_matched_by_consume_queue(tags_code, ext) for part in self._parts)

    def is_matched_by_commit_log(self, message: StoredMessage) -> bool:
        """Return whether both match the message."""
        return all(part.is_matched_by_commit_log(message) for part in self._parts)


class Pull:
    """Repeats ``get_message`` until it has enough messages.

    A broker's pull skips units whose records were deleted. Here a unit whose record should exist
    counts as damage, which ``on_corruption`` handles.

    Attributes
    ----------
    passed : list of UnreadUnit
        Messages that were skipped (``skip``), or before which reading stopped (``stop``).
    """

    def __init__(
        self,
        store: DefaultMessageStore,
        topic: str,
        queue_id: int,
        offset: int,
        tags: str | None,
        on_corruption: str = "fail",
        where: Sql92Filter | None = None,
    ) -> None:
        self._store = store
        self._topic = topic
        self._queue_id = queue_id
        self._offset = offset
        self._filter: MessageFilter | None = None if tags is None else TagFilter(tags, exact=True)
        if where is not None:
            self._filter = where if self._filter is None else Both(self._filter, where)
        self._status = GetMessageStatus.NO_MATCHED_MESSAGE
        self._on_corruption = on_corruption
        self.passed: list[UnreadUnit] = []

    def messages(self, count: int) -> Iterator[StoredMessage]:
        """Yield up to ``count`` messages.

        Raises ``CorruptionError`` with ``fail`` if a message cannot be read.
        """
        while count > 0:
            try:
                result = self._store.get_message(
                    _GROUP, self._topic, self._queue_id, self._offset, count, filter=self._filter
                )
            except CorruptMessageError as error:
                if not self._meet_damage(error):
                    return
                continue
            self._status = result.status
            for one in self._in_order(result):
                if isinstance(one, UnreadUnit):
                    if not self._may_pass(one):
                        return
                else:
                    yield one
                    count -= 1
                    if count == 0:
                        return  # units past the last message do not matter
            ended = result.status != GetMessageStatus.FOUND and result.status not in _SKIPPED
            if result.next_begin_offset >= result.max_offset and count > 0:
                self._meet_end()
            if ended or result.next_begin_offset <= self._offset:
                return
            self._offset = result.next_begin_offset
            if self._offset >= result.max_offset:
                return

    def _meet_end(self) -> None:
        """Report the messages that the queue held past the log's missing end."""
        unread = self._unread()
        for one in () if unread is None else unread.behind_end():
            self._may_pass(one)

    def _unread(self) -> UnreadUnits | None:
        return self._store.reader.unread_units(self._topic, self._queue_id, self._filter)

    def _meet_damage(self, error: CorruptMessageError) -> bool:
        """Continue after a corrupt message that the pull would return first; return whether to."""
        unread = self._unread()
        end = self._store.max_offset_in_queue(self._topic, self._queue_id)
        first = None if unread is None else next(unread.between(self._offset, end), None)
        if first is None or self._on_corruption == "fail":
            raise error
        self._offset = first.queue_offset + 1
        return self._may_pass(first) and self._offset < end

    def _in_order(self, result: GetMessageResult) -> Iterator[StoredMessage | UnreadUnit]:
        """Yield the messages in order, with the units between them whose records are missing."""
        messages, following = list(result.messages), result.next_begin_offset
        unread = None
        if following - self._offset > len(messages):
            unread = self._unread()
        if unread is None:
            yield from messages
            return
        read = {message.physical_offset for message in messages}
        missing = list(unread.between(self._offset, min(following, result.max_offset), read))
        for message in messages:
            while missing and missing[0].physical_offset < message.physical_offset:
                yield missing.pop(0)
            yield message
        yield from missing

    def _may_pass(self, unread: UnreadUnit) -> bool:
        """Return whether to continue after an unreadable message. Raises with ``fail``."""
        if self._on_corruption == "fail":
            raise unread.error
        self.passed.append(unread)
        return self._on_corruption == "skip"

    def explain_passed(self) -> str:
        """Return a message about what was skipped."""
        first = self.passed[0]
        if self._on_corruption == "stop":
            return f"stopped at queue offset {first.queue_offset}: {first.error}"
        count = len(self.passed)
        what = "a message" if count == 1 else f"{count} messages"
        return f"skipped {what} that cannot be read, first: {first.error}"

    def explain(self) -> str:
        """Return a message that explains why nothing was found."""
        queues = self._store.queues(self._topic)
        if not queues:
            return f"there is no topic {self._topic!r} here; `rocketstore info` lists the topics"
        if self._queue_id not in queues:
            which = ", ".join(map(str, queues))
            return f"topic {self._topic!r} has no queue {self._queue_id}, only {which}"
        first = self._store.min_offset_in_queue(self._topic, self._queue_id)
        end = self._store.max_offset_in_queue(self._topic, self._queue_id)
        held = f"holds the offsets {first} to {end - 1}" if end > first else "is empty"
        return f"no message ({self._status.name}): the queue {held}"
