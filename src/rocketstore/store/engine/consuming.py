"""Consumers of an open store, and the report about groups."""

from __future__ import annotations

import re
from collections.abc import Callable, Collection, Iterable
from functools import partial
from typing import TYPE_CHECKING, Any, Literal, cast

from rocketstore import formats
from rocketstore.errors import ConsumerError
from rocketstore.status import PutMessageStatus
from rocketstore.store.reading import ReadingStore

if TYPE_CHECKING:
    from rocketstore.consumer.arrivals import Feed
    from rocketstore.consumer.consumer import Consumer, Parts
    from rocketstore.consumer.growth import WatchedHold
    from rocketstore.consumer.open_consumers import OpenConsumers
    from rocketstore.consumer.progress import GroupProgress
    from rocketstore.consumer.report import GroupReport
    from rocketstore.filter import MessageFilter
    from rocketstore.message import StoredMessage
    from rocketstore.store.writer import StoreWriter

#: What RocketMQ accepts as the names of a topic and of a group.
_TOPIC = re.compile(formats.TOPIC_PATTERN)
_GROUP = re.compile(r"[%|a-zA-Z0-9_-]{1,255}")
#: The record is in the log (D-42).
_STORED = frozenset(
    {
        PutMessageStatus.PUT_OK,
        PutMessageStatus.FLUSH_DISK_TIMEOUT,
        PutMessageStatus.FLUSH_SLAVE_TIMEOUT,
        PutMessageStatus.SLAVE_NOT_AVAILABLE,
    }
)


class ConsumingStore(ReadingStore):
    """The calls for consumer groups. Before the first of them nothing of it is imported."""

    def consumer(
        self,
        group: str,
        topics: str | Iterable[str],
        *,
        queue_ids: Collection[int] | None = None,
        filter: str | MessageFilter | None = None,
        start: Literal["earliest", "latest"] | int = "earliest",
        ack: Literal["next", "manual"] = "next",
        max_reconsume_times: int = 16,
        max_count: int = 32,
        idle_timeout_s: float | None = None,
    ) -> Consumer:
        """Consume topics for a group, from where it stopped.

        Parameters
        ----------
        group : str
            Consumer group. Its offsets are in ``config/consumerOffset.json``, where a broker reads
            and writes them too.
        topics : str or iterable of str
            Topics that need not exist yet; new queues are found. ``%RETRY%group`` is read along,
            without a filter.
        queue_ids : collection of int, optional
            Only these queues of each topic.
        filter : str or MessageFilter, optional
            As in ``get_message``. Messages that do not pass count as consumed.
        start : {"earliest", "latest"} or int
            Where the group begins in a queue for which it has committed nothing; an int is a store
            time in epoch ms.
        ack : {"next", "manual"}
            ``"next"``: asking for the next message settles the one before it. ``"manual"``: each
            message is settled by ``ack``, ``retry`` or ``dead``.
        max_reconsume_times : int
            Retries of a message before it is a dead letter.
        max_count : int
            Most messages that a loop takes from one queue before it looks at the others.
        idle_timeout_s : float, optional
            Loops end after so many seconds without a message; by default never.

        Returns
        -------
        Consumer

        Raises
        ------
        ConsumerConflictError
            A consumer of this process reads one of these queues for the group.
        CorruptionError
            The table of offsets and its backup are damaged.
        ValueError, TypeError, FilterSyntaxError
            An argument is wrong.

        Notes
        -----
        Threading: any thread. With ``ack="manual"`` and retries, delayed messages are delivered
        from now on, as with ``schedule_message_enable=True``. In mode ``"r"`` positions are in
        memory only, and the store is refreshed when its files change.
        """
        self._use()
        names = _topics(topics, self.reader.queues.topics())
        _check(group, queue_ids, start, ack, max_reconsume_times, max_count, idle_timeout_s)
        wanted = None if filter is None else self.message_filter(filter)
        from rocketstore.consumer.claims import claim, group_of_store, release
        from rocketstore.consumer.consumer import Consumer

        parts = self._parts_of_consumer(
            group, names, queue_ids=queue_ids, filter=wanted, start=start, settles=ack == "next",
            max_reconsume_times=max_reconsume_times,
        )  # fmt: skip
        made = Consumer(
            group, parts, settles=ack == "next", max_count=max_count, idle_timeout_s=idle_timeout_s
        )
        place = group_of_store(self.path, group)
        claim(made, place, names, queue_ids)
        try:
            self._begin(made, parts, wanted, names)
            if self._writer is not None and ack == "manual" and max_reconsume_times > 0:
                start_delivery(self._writer, start=self._start)
        except BaseException:
            release(made, place)
            raise
        return made

    def groups(self) -> dict[str, GroupReport]:
        """Report what each consumer group has committed, and what waits for it, in any mode.

        Groups with a retry or dead letter topic are listed although they have committed nothing.
        In a store that is written, positions of its consumers count as committed once they were,
        in memory.

        Raises ``CorruptionError`` if the table of offsets and its backup are damaged.
        """
        self._use()
        from rocketstore.store.engine.backlog import group_reports

        return group_reports(self)

    # ------------------------------------------------------------------------------------------

    def _offset_table(self) -> Any:
        from rocketstore.store.engine.backlog import offset_table

        return offset_table(self)

    def _open_consumers(self) -> OpenConsumers:
        if self._consumers is None:
            from rocketstore.consumer.open_consumers import OpenConsumers

            writer = self._writer
            with self._consumers_lock:
                if self._consumers is None:
                    self._consumers = OpenConsumers(
                        self._offset_table(),
                        (lambda: None) if writer is None else writer.sync_log,
                        self._config.flush_consumer_offset_interval / 1000,
                        (lambda error: None) if writer is None else writer.fail,
                        start=self._start and writer is not None,
                    )
        return self._consumers

    def _parts_of_consumer(
        self,
        group: str,
        topics: list[str],
        *,
        max_reconsume_times: int,
        **options: Any,
    ) -> Parts:
        from rocketstore.consumer.arrivals import Arrivals, DispatchFeed, WatchedFeed
        from rocketstore.consumer.claims import claim_if_free, group_of_store
        from rocketstore.consumer.consumer import Parts
        from rocketstore.consumer.progress import GroupProgress
        from rocketstore.consumer.send_back import retry_topic
        from rocketstore.store.engine.holding import refuse_on_dispatch

        consumers = self._open_consumers()
        consumers.take_deserted()
        writer, hold = self._writer, self.hold
        feed: Feed
        if writer is None:
            feed = WatchedFeed(cast("WatchedHold", hold))
        else:
            feed = DispatchFeed(writer.reput, writer.visible_end)
        progress = GroupProgress(
            self, consumers.offsets, group, topics, catch_up=partial(feed.catch_up, surely=True),
            **options,
        )  # fmt: skip
        place = group_of_store(self.path, group)
        return Parts(
            progress,
            feed,
            Arrivals(hold, partial(refuse_on_dispatch, self)),
            None if writer is None else partial(send_back, writer, group, max_reconsume_times),
            lambda sync: consumers.commit(progress, sync=sync),
            lambda consumer: claim_if_free(consumer, place, retry_topic(group)),
            lambda consumer: consumers.release(consumer, progress, place),
        )

    def _begin(
        self, made: Consumer, parts: Parts, wanted: MessageFilter | None, topics: list[str]
    ) -> None:
        """Find the queues and positions, and keep them from now on."""
        on_release: list[Callable[[], None]] = []
        writer, progress = self._writer, parts.progress
        parts.feed.catch_up()
        if writer is not None:
            _register_filter(writer, progress, wanted, topics, on_release)
        try:
            progress.reads_retries = parts.claim_retries(made)
            progress.discover(again=True)
        except BaseException:
            for undo in on_release:
                undo()
            raise
        self._open_consumers().add(made, progress, partial(_call_all, on_release))


def _call_all(calls: list[Callable[[], None]]) -> None:
    for call in calls:
        call()


def _register_filter(
    writer: StoreWriter,
    progress: GroupProgress,
    wanted: MessageFilter | None,
    topics: list[str],
    on_release: list[Callable[[], None]],
) -> None:
    """Make bit maps for a group's SQL92 filter, if the store makes any."""
    expression = getattr(wanted, "expression", None)
    if expression is None or not writer.makes_bit_maps:
        return
    for topic in topics:
        writer.register_filter(topic, progress.group, expression)
    on_release.append(partial(writer.un_register_filters, progress.group))


def start_delivery(writer: StoreWriter, *, start: bool) -> None:
    """Deliver delayed messages from now on, unless the store does so already."""
    from rocketstore.store.engine.delaying import MAKING, make_delay_service

    if writer.config.broker_role == "SLAVE":
        return
    with MAKING:
        if writer.delay is None:
            writer.delay = make_delay_service(writer)
        if not start or writer.delay in writer.services:
            return
        writer.services.insert(0, writer.delay)
        try:
            writer.delay.start()
        except RuntimeError:  # the system refuses a thread
            writer.services.remove(writer.delay)
            raise


def send_back(
    writer: StoreWriter,
    group: str,
    max_reconsume_times: int,
    message: StoredMessage,
    delay_level: int,
) -> None:
    """Write a message that was not consumed to the schedule topic, or to the dead letters.

    Raises ``ConsumerError`` if the store refuses the record.
    """
    from rocketstore.consumer.send_back import decide, send_back_records

    target = decide(
        group, message.reconsume_times, delay_level, max_reconsume_times,
        len(writer.config.delay_ms),
    )  # fmt: skip
    try:
        records = send_back_records(message, target, writer.config, writer.dialect)
    except ValueError as error:
        raise ConsumerError(str(error)) from error
    for record in records:
        status = PutMessageStatus(writer.log.appender.put_staged(record, 0).statuses[0])
        if status not in _STORED:
            raise ConsumerError(f"the message was not stored on {target.topic}: {status.name}")


def _topics(topics: str | Iterable[str], known: Collection[str]) -> list[str]:
    """Return the topics; raise for a name that no put takes and no queue has."""
    if not isinstance(topics, Iterable) or isinstance(topics, bytes | bytearray):
        raise TypeError(f"topics must be str or several of them, not {type(topics).__name__}")
    names = [topics] if isinstance(topics, str) else list(topics)
    for name in names:
        if not isinstance(name, str):
            raise TypeError(f"a topic must be str, not {type(name).__name__}")
        if not name or "@" in name:
            raise ValueError(f"{name!r} is not the name of a topic")
        if name not in known and not _TOPIC.fullmatch(name):
            raise ValueError(f"topic {name!r} holds a character that RocketMQ does not allow")
    if not names:
        raise ValueError("there is no topic to consume")
    return list(dict.fromkeys(names))


def _check(
    group: Any,
    queue_ids: Any,
    start: Any,
    ack: Any,
    max_reconsume_times: Any,
    max_count: Any,
    idle_timeout_s: Any,
) -> None:
    if not isinstance(group, str):
        raise TypeError(f"group must be str, not {type(group).__name__}")
    if not _GROUP.fullmatch(group):
        raise ValueError(
            f"{group!r} is not the name of a group: 1 to 255 letters, digits, '_', '-', '%' or '|'"
        )
    if ack not in ("next", "manual"):
        raise ValueError(f"ack must be 'next' or 'manual', not {ack!r}")
    if isinstance(start, str) and start not in ("earliest", "latest"):
        raise ValueError(f"start must be 'earliest', 'latest' or epoch ms, not {start!r}")
    if queue_ids is not None and not isinstance(queue_ids, Collection):
        raise TypeError(f"queue_ids must be a collection of int, not {type(queue_ids).__name__}")
    numbers = [("max_reconsume_times", max_reconsume_times, 0), ("max_count", max_count, 1)]
    numbers += [("start", start, 0)] if not isinstance(start, str) else []
    numbers += [("queue_ids", one, 0) for one in queue_ids or ()]
    for name, value, least in numbers:
        if isinstance(value, bool) or not isinstance(value, int):
            raise TypeError(f"{name} must be int, not {type(value).__name__}")
        if value < least:
            raise ValueError(f"{name} is {value}; it must be at least {least}")
        if name == "queue_ids" and value >= 2**31:
            raise ValueError(f"queue_ids is {value}; a queue id has at most 31 bits")
    if queue_ids is not None and not len(queue_ids):
        raise ValueError("queue_ids is empty; None means all queues")
    if idle_timeout_s is not None:
        if isinstance(idle_timeout_s, bool) or not isinstance(idle_timeout_s, int | float):
            raise TypeError(f"idle_timeout_s must be a number, not {type(idle_timeout_s).__name__}")
        if not idle_timeout_s >= 0:
            raise ValueError(f"idle_timeout_s is {idle_timeout_s}; it must not be negative")
