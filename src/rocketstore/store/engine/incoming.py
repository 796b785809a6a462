"""What came into an open store's log, by topic and type of message."""

from __future__ import annotations

import threading
from collections import Counter
from typing import TYPE_CHECKING, Any, Protocol

from rocketstore import formats, kernels
from rocketstore.query.arrow_scan import LogRead
from rocketstore.query.selected_scan import SelectedScan

if TYPE_CHECKING:
    from rocketstore.filter.sql92.sql92_filter import Sql92Filter
    from rocketstore.message import StoredMessage
    from rocketstore.query.store_reader import StoreReader

#: Properties that decide the type, as in RocketMQ; the first type that has one counts.
TYPES = {
    "transaction": (formats.PROPERTY_TRANSACTION,),
    "fifo": ("__SHARDINGKEY",),
    "delay": (
        formats.PROPERTY_DELAY, formats.PROPERTY_TIMER_DELIVER_MS, formats.PROPERTY_TIMER_DELAY_SEC,
        formats.PROPERTY_TIMER_DELAY_MS, "__STARTDELIVERTIME",
        # of a message that was delivered after its delay
        formats.PROPERTY_REAL_TOPIC,
    ),
}  # fmt: skip
NORMAL = "normal"
#: A record with any of these is looked at; a committed message has its producers' group.
_CONDITION = " OR ".join(
    f"{name} IS NOT NULL"
    for name in (
        *(one for names in TYPES.values() for one in names),
        formats.PROPERTY_PRODUCER_GROUP,
        formats.PROPERTY_RETRY_TOPIC,
    )
)
_INTERNAL_PREFIXES = (formats.TOPIC_RETRY_PREFIX, formats.TOPIC_DLQ_PREFIX)


class CountedStore(Protocol):
    """What is counted: an open store."""

    _opened_end: int
    _incoming: Incoming | None

    @property
    def reader(self) -> StoreReader:
        """Return the opened parts."""
        ...

    def filter(self, expression: str, *, strict: bool = False) -> Sql92Filter:
        """Return a compiled expression."""
        ...


class Incoming:
    """Messages that came into a store's log since it was opened.

    Parameters
    ----------
    begin : int
        Physical offset from which on records count.

    Attributes
    ----------
    messages, nbytes : Counter of (str, str)
        Records and their bytes, by topic and type, as a broker counts what producers send: without
        retries, dead letters, op messages and committed messages.
    committed : Counter of str
        Committed transactions by topic.
    dead : Counter of (str, str)
        Dead letters by consumer group and first topic.

    Notes
    -----
    The log is read when ``update`` is called: records since the last call, once for their sums and
    once for those of other types than ``"normal"``, by kernels. Puts pay nothing. Records that were
    deleted before are not counted, damaged ones are skipped.
    Threading: any thread.
    """

    def __init__(self, begin: int) -> None:
        self.position = begin
        self.messages: Counter[tuple[str, str]] = Counter()
        self.nbytes: Counter[tuple[str, str]] = Counter()
        self.committed: Counter[str] = Counter()
        self.dead: Counter[tuple[str, str]] = Counter()
        self._lock = threading.Lock()

    def update(self, store: CountedStore) -> None:
        """Count what came since the last call."""
        with self._lock:
            reader = store.reader
            log = reader.log
            begin, end = max(self.position, log.min_offset), log.max_offset
            if begin < end:
                self._count_all(reader, begin, end)
                chosen = store.filter(_CONDITION)
                scan = SelectedScan(log, begin, end, "skip", filter=chosen)
                for message in scan:
                    self._count_special(message)
            self.position = end

    def _count_all(self, reader: StoreReader, begin: int, end: int) -> None:
        sums = kernels.passes_stats.StatsPass(("topic",))
        for _ in LogRead(reader.log, sums, begin, end, "skip", reader.log.record_flags):
            self._take(sums.take())
        self._take(sums.take())

    def _take(self, groups: list[Any]) -> None:
        """Add groups of a pass, all as ``"normal"``."""
        for raw, _, _, _, _, count, nbytes, *_ in groups:
            topic = raw.decode("utf-8", "replace")
            if topic.startswith(formats.TOPIC_DLQ_PREFIX):
                self.dead[topic.removeprefix(formats.TOPIC_DLQ_PREFIX), topic] += count
            elif _is_sent(topic):
                self.messages[topic, NORMAL] += count
                self.nbytes[topic, NORMAL] += nbytes

    def _count_special(self, message: StoredMessage) -> None:
        """Move a record from ``"normal"`` to where it counts."""
        topic, properties = message.topic, message.properties
        if topic.startswith(formats.TOPIC_DLQ_PREFIX):
            first = properties.get(formats.PROPERTY_RETRY_TOPIC, topic)
            group = topic.removeprefix(formats.TOPIC_DLQ_PREFIX)
            self.dead.subtract({(group, topic): 1})
            self.dead[group, first] += 1
        if not _is_sent(topic):
            return
        kind = message.sys_flag & formats.SYS_FLAG_TRANSACTION_MASK
        is_commit = kind == formats.SYS_FLAG_TRANSACTION_COMMIT
        name = next(
            (name for name, of in TYPES.items() if not properties.keys().isdisjoint(of)), ""
        )
        if not is_commit and not name:
            return
        self.messages.subtract({(topic, NORMAL): 1})
        self.nbytes.subtract({(topic, NORMAL): message.store_size})
        if is_commit:
            self.committed[topic] += 1
        else:
            self.messages[topic, name] += 1
            self.nbytes[topic, name] += message.store_size


def _is_sent(topic: str) -> bool:
    """Return whether messages of a topic were sent by producers, or a delay delivered them."""
    return topic != formats.TOPIC_OP and not topic.startswith(_INTERNAL_PREFIXES)


def incoming(store: CountedStore) -> Incoming:
    """Return what came into a store since it was opened, up to now."""
    if store._incoming is None:
        store._incoming = Incoming(store._opened_end)
    store._incoming.update(store)
    return store._incoming
