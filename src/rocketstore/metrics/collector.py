"""The Prometheus collector: reads a store's figures when it is scraped."""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from typing import TYPE_CHECKING

from prometheus_client import CollectorRegistry, generate_latest, start_http_server
from prometheus_client.core import CounterMetricFamily, GaugeMetricFamily, Metric

from rocketstore import formats
from rocketstore.errors import CorruptionError
from rocketstore.store.engine.backlog import (
    configured_numbers,
    half_messages,
    pulled_counts,
    topic_backlogs,
)
from rocketstore.store.engine.incoming import incoming

if TYPE_CHECKING:
    from rocketstore.statistics.store_stats import StoreStats
    from rocketstore.store.default_message_store import DefaultMessageStore

_OWN_LABELS = ("cluster", "node_type", "node_id")
_STORAGE = ("storage_type", "storage_medium")
_GROUP = ("consumer_group", "topic", "is_retry", "is_system")
#: Topics of RocketMQ itself, besides those with a system prefix.
_SYSTEM_TOPICS = frozenset(
    {
        *("TBW102", "BenchmarkTest", "SELF_TEST_TOPIC", "OFFSET_MOVED_EVENT", "CHECKPOINT_TOPIC"),
        *("RMQ_SYS_TRACE_TOPIC", formats.TOPIC_DISCARDED, formats.TOPIC_SCHEDULE),
        *(formats.TOPIC_HALF, formats.TOPIC_OP),
    }
)
_SYSTEM_GROUP_PREFIX = "cid_rmq_sys_"
_READ_ONLY, _READ_AND_WRITE = 4, 6
#: The values of labels, and the figure.
_Row = tuple[tuple[str, ...], float]


def _word(value: bool) -> str:
    return str(value).lower()


def _group_labels(group: str, topic: str) -> tuple[str, ...]:
    is_retry = _word(topic.startswith(formats.TOPIC_RETRY_PREFIX))
    return group, topic, is_retry, _is_system(topic, group)


def _is_system(topic: str, group: str = "") -> str:
    return _word(
        topic in _SYSTEM_TOPICS
        or topic.startswith(formats.TOPIC_SYSTEM_PREFIX)
        or group.lower().startswith(_SYSTEM_GROUP_PREFIX)
    )


class StoreCollector:
    """A Prometheus collector of one store: ``CollectorRegistry().register(StoreCollector(store))``.

    Parameters
    ----------
    store : DefaultMessageStore
        Any mode; in mode ``"r"`` the caller refreshes it.
    cluster, node_id : str
        The labels that a broker's metrics bear, beside ``node_type="broker"``.

    Notes
    -----
    Puts and gets pay nothing for the collector. A scrape reads ``store.stats()``, what consumer
    groups have committed, the undecided transactions, and the log from where the last scrape
    ended: that is what the counters of messages come from, which begin at 0 when a store is
    opened, as a broker's do when it starts.
    Threading: any thread may scrape.
    """

    def __init__(
        self,
        store: DefaultMessageStore,
        *,
        cluster: str = "DefaultCluster",
        node_id: str = "broker-a",
    ) -> None:
        self._store = store
        self._own = (cluster, "broker", node_id)

    def collect(self) -> Iterator[Metric]:
        """Yield the metrics. Raises ``StoreClosedError`` once the store is closed."""
        stats = self._store.stats()
        yield from self._incoming()
        yield from self._storage(stats)
        yield from self._consumers()
        yield self._gauge(
            "half_messages", "Undecided transactions.", ("topic",),
            [((topic,), count) for topic, count in half_messages(self._store).items()],
        )  # fmt: skip
        topics, groups = configured_numbers(self._store)
        permission = _READ_AND_WRITE if stats.is_writer else _READ_ONLY
        for name, text, number in (
            ("topic_number", "Topics.", topics),
            ("consumer_group_number", "Consumer groups.", groups),
            ("broker_permission", "4: read, 6: read and write.", permission),
        ):
            if number is not None:
                yield self._gauge(name, text, (), [((), number)])
        if self._store.config.timer_wheel_enable:
            yield from self._timers(stats)

    def _gauge(
        self, name: str, text: str, labels: tuple[str, ...], rows: Iterable[_Row]
    ) -> GaugeMetricFamily:
        made = GaugeMetricFamily(f"rocketmq_{name}", text, labels=(*_OWN_LABELS, *labels))
        for values, figure in rows:
            made.add_metric((*self._own, *values), figure)
        return made

    def _counter(
        self, name: str, text: str, labels: tuple[str, ...], rows: Iterable[_Row]
    ) -> CounterMetricFamily:
        made = CounterMetricFamily(f"rocketmq_{name}", text, labels=(*_OWN_LABELS, *labels))
        for values, figure in rows:
            made.add_metric((*self._own, *values), figure)
        return made

    def _incoming(self) -> Iterator[Metric]:
        """Yield what came into the log since the store was opened."""
        counts = incoming(self._store)
        labels = ("topic", "message_type", "is_system")
        for name, text, of in (
            ("messages_in", "Messages stored.", counts.messages),
            ("throughput_in", "Bytes of their records.", counts.nbytes),
        ):
            rows = [((*key, _is_system(key[0])), count) for key, count in of.items() if count]
            yield self._counter(name, text, labels, rows)
        yield self._counter(
            "commit_messages", "Transactions committed.", ("topic",),
            [((topic,), count) for topic, count in counts.committed.items()],
        )  # fmt: skip
        yield self._counter(
            "send_to_dlq_messages", "Dead letters.", ("consumer_group", "topic", "is_system"),
            [
                ((group, topic, _is_system(topic, group)), count)
                for (group, topic), count in counts.dead.items() if count
            ],
        )  # fmt: skip

    def _storage(self, stats: StoreStats) -> Iterator[Metric]:
        earliest = stats.earliest_timestamp
        # RocketMQ leaves out what it does not know, too.
        age_ms = max(0, self._store.clock() - earliest) if earliest > 0 else None
        for name, text, value in (
            ("size", "Bytes in use on the disk of the store.", _used_nbytes(stats)),
            ("flush_behind_bytes", "Bytes not on disk.", stats.flush_behind_nbytes),
            ("dispatch_behind_bytes", "Bytes that queues lack.", stats.dispatch_behind_nbytes),
            ("message_reserve_time", "Age of the first message in ms.", age_ms),
        ):
            if value is not None:
                rows = [(("local", "disk"), value)]
                yield self._gauge(f"storage_{name}", text, _STORAGE, rows)

    def _consumers(self) -> Iterator[Metric]:
        yield self._counter(
            "messages_out", "Messages pulled by consumers.", _GROUP,
            [
                (_group_labels(*key), count)
                for key, count in pulled_counts(self._store).items() if count
            ],
        )  # fmt: skip
        try:
            backlogs = topic_backlogs(self._store)
        except CorruptionError:  # of the table of offsets: no figure is better than a wrong one
            return
        for name, text, field in (
            ("lag_messages", "Messages not consumed.", "lag"),
            ("lag_latency", "Age of the oldest of them in ms.", "lag_ms"),
            ("inflight_messages", "Messages read and not settled.", "in_flight"),
            ("ready_messages", "Messages not read.", "ready"),
            ("queueing_latency", "Age of the oldest of them in ms.", "ready_ms"),
        ):
            rows: list[_Row] = [
                (_group_labels(one.group, one.topic), getattr(one, field)) for one in backlogs
            ]
            yield self._gauge(f"consumer_{name}", text, _GROUP, rows)

    def _timers(self, stats: StoreStats) -> Iterator[Metric]:
        """Yield what a broker's timer left in the store."""
        report = self._store.timers()
        for name, text, value in (
            ("timer_enqueue_lag", "Messages not in the wheel.", stats.timer_not_enqueued),
            (
                "timer_dequeue_latency",
                "How late the wheel is read, ms.",
                stats.timer_read_behind_ms,
            ),
        ):
            yield self._gauge(name, text, _STORAGE, [(("local", "disk"), value)])
        storage = ("local", "disk")
        yield self._gauge(
            "timing_messages", "Messages in the wheel.", (*_STORAGE, "topic"),
            [((*storage, topic), count) for topic, count in report.by_topic.items()],
        )  # fmt: skip
        yield self._gauge(
            "timer_message_snapshot", "Messages in the wheel by when they are due, in s.",
            (*_STORAGE, "timer_bound_s"),
            [((*storage, str(bound)), count) for bound, count in report.by_bound.items()],
        )  # fmt: skip


def _used_nbytes(stats: StoreStats) -> int | None:
    """Return the bytes in use on the file system of the root, by other programs as well."""
    return stats.disk_total_nbytes - stats.disk_free_nbytes if stats.disk_total_nbytes > 0 else None


def exposition(collector: StoreCollector) -> str:
    """Return one scrape of a collector in Prometheus' text format."""
    registry = CollectorRegistry()
    registry.register(_Once(collector))
    text: bytes = generate_latest(registry)
    return text.decode()


class _Once:
    """A collector whose registration does not scrape."""

    def __init__(self, collector: StoreCollector) -> None:
        self.collect = collector.collect

    def describe(self) -> list[Metric]:
        """Return nothing: names are checked at each scrape."""
        return []


def serve(
    store: DefaultMessageStore,
    port: int,
    *,
    host: str = "127.0.0.1",
    cluster: str = "DefaultCluster",
    node_id: str = "broker-a",
) -> tuple[object, object]:
    """Answer scrapes of a store over HTTP, on a thread.

    Parameters
    ----------
    store, cluster, node_id
        As in ``StoreCollector``.
    port : int
        0 for a free one.
    host : str
        The address to listen on; the default is reachable from this machine only.

    Returns
    -------
    (server, thread)
        ``server.shutdown()`` stops it; ``server.server_port`` is the port.
    """
    registry = CollectorRegistry()
    registry.register(_Once(StoreCollector(store, cluster=cluster, node_id=node_id)))
    server, thread = start_http_server(port, host, registry)
    return server, thread
