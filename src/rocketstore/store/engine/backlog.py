"""What waits in an open store: for its consumer groups, and for a decision."""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Mapping, Sized
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any, Protocol

from rocketstore import formats
from rocketstore.errors import CorruptionError

if TYPE_CHECKING:
    from rocketstore.config import MessageStoreConfig
    from rocketstore.config_managers.managers import ConfigManager
    from rocketstore.consumer.open_consumers import OpenConsumers
    from rocketstore.consumer.report import GroupReport
    from rocketstore.query.store_reader import StoreReader
    from rocketstore.store.writer import StoreWriter
    from rocketstore.transaction.live import StoreTransactions


class BackloggedStore(Protocol):
    """What is asked: an open store."""

    path: Path
    _writer: StoreWriter | None
    _consumers: OpenConsumers | None
    _transactions: StoreTransactions | None

    @property
    def reader(self) -> StoreReader:
        """Return the opened parts."""
        ...

    @property
    def config(self) -> MessageStoreConfig:
        """Return the options."""
        ...

    @property
    def clock(self) -> Callable[[], int]:
        """Return the clock: epoch ms."""
        ...


@dataclass(frozen=True, slots=True)
class TopicBacklog:
    """What waits for one group in one topic, over its queues.

    Attributes
    ----------
    group, topic : str
    lag : int
        Messages from the committed offsets to the ends of the queues.
    lag_ms : int
        Age of the oldest of them, 0 if there is none.
    in_flight : int
        Those that an open consumer of this store has read and not settled.
    ready : int
        Those that no open consumer has read.
    ready_ms : int
        Age of the oldest that is ready.
    """

    group: str
    topic: str
    lag: int
    lag_ms: int
    in_flight: int
    ready: int
    ready_ms: int


def offset_table(store: BackloggedStore) -> Any:
    """Return the table of committed offsets: the writer's, or that of the file."""
    if store._writer is not None:
        return store._writer.consumer_offsets
    from rocketstore.config_managers.live_offsets import StoredConsumerOffsets

    return StoredConsumerOffsets(store.path)


def group_reports(store: BackloggedStore) -> dict[str, GroupReport]:
    """Return what each group has committed.

    Raises ``CorruptionError`` if the table of offsets and its backup are damaged.
    """
    from rocketstore.consumer import report

    return report.group_reports(store.reader, offset_table(store).all_offsets(), store.clock)


def topic_backlogs(store: BackloggedStore) -> list[TopicBacklog]:
    """Return what waits for each group in each topic that it has committed offsets of.

    Raises ``CorruptionError`` if the table of offsets and its backup are damaged.
    """
    groups = group_reports(store)
    consumers = store._consumers
    pulled = {} if consumers is None else consumers.pulled()
    now = store.clock()
    return [
        _topic_backlog(store.reader, report, topic, pulled, now)
        for report in groups.values()
        for topic in dict.fromkeys(topic for topic, _ in report.committed)
    ]


def pulled_counts(store: BackloggedStore) -> Mapping[tuple[str, str], int]:
    """Return how many messages the store's consumers have pulled, by group and topic."""
    return {} if store._consumers is None else store._consumers.pulled_counts()


def _topic_backlog(
    reader: StoreReader,
    report: GroupReport,
    topic: str,
    pulled: Mapping[tuple[str, str, int], int],
    now: int,
) -> TopicBacklog:
    lag = lag_ms = ready = ready_ms = 0
    for key, offset in report.committed.items():
        if key[0] != topic:
            continue
        lag += report.lag[key]
        lag_ms = max(lag_ms, report.lag_ms[key])
        read = max(offset, pulled.get((report.group, *key), offset))
        queue = reader.queues.table.get(key)
        if queue is None or queue.max_index <= read:
            continue
        ready += queue.max_index - read
        stored = reader.store_timestamp_of(queue, max(read, queue.min_index))
        ready_ms = max(ready_ms, now - stored if stored >= 0 else 0)
    ready = min(ready, lag)
    return TopicBacklog(report.group, topic, lag, lag_ms, lag - ready, ready, ready_ms)


def half_messages(store: BackloggedStore) -> dict[str, int]:
    """Return the number of undecided transactions by topic. Writes nothing."""
    if formats.TOPIC_HALF not in store.reader.queues.topics():
        return {}
    if store._transactions is not None:
        book = store._transactions.book
    else:
        from rocketstore.transaction.live import read_only_book

        book = read_only_book(store.path, store.reader, store.config, store.clock)
    return dict(Counter(one.topic for one in book.undecided(None, None)))


def configured_numbers(store: BackloggedStore) -> tuple[int | None, int | None]:
    """Return how many topics and consumer groups the tables of ``config`` hold.

    Without a table: the topics that have a queue, the groups that committed an offset; ``None`` for
    a table that is damaged.
    """
    from rocketstore.config_managers.managers import SubscriptionGroupManager, TopicConfigManager

    topics, groups = TopicConfigManager(store.path), SubscriptionGroupManager(store.path)
    return (
        _number(topics, lambda: topics.topic_config_table, store.reader.queues.topics),
        _number(groups, lambda: groups.subscription_group_table, lambda: group_reports(store)),
    )


def _number(
    manager: ConfigManager, table: Callable[[], Sized], otherwise: Callable[[], Sized]
) -> int | None:
    try:
        return len(table() if manager.load() else otherwise())
    except CorruptionError:
        return None
