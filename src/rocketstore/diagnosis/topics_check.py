"""The broker's tables of topics and groups against the queues: what is in one and not the other."""

from __future__ import annotations

import os
from collections.abc import Mapping

from rocketstore import formats
from rocketstore.config_managers.files import (
    CONSUMER_OFFSETS_FILE,
    SUBSCRIPTION_GROUPS_FILE,
    TOPICS_FILE,
)
from rocketstore.config_managers.tables import TopicConfig
from rocketstore.diagnosis.image import READ_ERRORS, Entry, SparseFile, StoreImage
from rocketstore.diagnosis.verdict import DataEffect, Findings, Place
from rocketstore.verify.beside.tables import BrokerTables

_UNIT = formats.CONSUME_QUEUE_UNIT
#: Topics that brokers make for themselves, whether or not they get a message.
_OWN_TOPICS = frozenset(
    {
        *("TBW102", "BenchmarkTest", "OFFSET_MOVED_EVENT", "SELF_TEST_TOPIC"),
        *("TRANS_CHECK_MAX_TIME_TOPIC", "AUTO_CREATE_TOPIC_KEY"),
    }
)
_REPLY = "_REPLY_TOPIC"
#: The right of a topic to be the template of others.
_PERM_INHERIT = 1
_SYSTEM = (
    *(formats.TOPIC_LMQ_PREFIX, formats.TOPIC_RETRY_PREFIX, formats.TOPIC_DLQ_PREFIX),
    *(formats.TOPIC_SYSTEM_PREFIX, "RMQ_SYS_", "rmq_sys_", "SCHEDULE_TOPIC", "TBW102"),
)
#: Groups that brokers make for themselves.
_OWN_GROUPS = ("CID_RMQ_SYS_", "CID_ONS", "TOOLS_CONSUMER", "SELF_TEST_", "FILTERSRV_")
_NAMED = 10
#: Bytes of a queue's file that are read to find its newest unit.
_MOST_NBYTES = 16 << 20


class TopicsCheck:
    """Compares ``topics.json``, the tables of groups and the queues' folders.

    Parameters
    ----------
    image : StoreImage
    findings : Findings
    """

    def __init__(self, image: StoreImage, findings: Findings) -> None:
        self._image = image
        self._findings = findings
        self._log_start = min((one.start for one in image.log if one.start is not None), default=0)

    def run(self, tables: BrokerTables) -> None:
        """Add the findings."""
        self._check_groups(tables)
        topics = tables.topics() or {}
        if not topics and not self._lost_topics():
            return
        found = {topic for topic, _ in (*self._image.queues, *self._image.batch_queues)}
        for topic in sorted(found - set(topics)):
            if not topic.startswith(_SYSTEM):
                self._add_unknown(topic)
        extra = set(topics) - found
        for topic in sorted(extra - _own_topics(topics) if found else ()):
            what = f"topics of {TOPICS_FILE} without a queue"
            place = Place(self._table(TOPICS_FILE), None, topic=topic)
            self._findings.add("config.topic-extra", what, [place], run="topics")

    def _lost_topics(self) -> bool:
        """Return whether the table of topics is gone, although a broker wrote the others."""
        folder = self._image.root / formats.CONFIG_DIR
        names = (TOPICS_FILE, f"{TOPICS_FILE}.bak")
        is_brokers = os.path.lexists(folder / SUBSCRIPTION_GROUPS_FILE)
        return is_brokers and not any(os.path.lexists(folder / name) for name in names)

    def _table(self, name: str) -> str:
        return self._image.relative(self._image.root / formats.CONFIG_DIR / name)

    def _add_unknown(self, topic: str) -> None:
        """Report queues of no known topic; a deleted topic leaves some without a message."""
        queues = {key: files for key, files in self._image.queues.items() if key[0] == topic}
        is_batch = any(key[0] == topic for key in self._image.batch_queues)
        if not is_batch and not any(self._has_messages(files) for files in queues.values()):
            folder = self._image.relative(self._image.paths.consume_queue / topic)
            what = f"queues of topics that {TOPICS_FILE} does not name, without a message"
            place = Place(folder, None, topic=topic)
            self._findings.add("queue.orphan", what, [place], run="topics")
            return
        place = Place(self._table(TOPICS_FILE), None, topic=topic)
        what = f"queues whose topic is not in {TOPICS_FILE}"
        self._findings.add("config.topic-missing", what, [place], run="topics")

    def _has_messages(self, files: list[Entry]) -> bool:
        """Return whether a queue's newest unit names a record that the log may have."""
        for entry in reversed([one for one in files if one.kind == "file" and one.nbytes]):
            try:
                content = SparseFile(entry, self._image.root, [_MOST_NBYTES])
            except OverflowError:
                return True
            except READ_ERRORS:
                return True
            at = content.end - content.end % _UNIT.nbytes
            while at >= _UNIT.nbytes:
                at -= _UNIT.nbytes
                offset, size, _ = _UNIT.struct.unpack(content.read(at, _UNIT.nbytes))
                if size > 0:
                    return bool(offset >= self._log_start)
        return False

    def _check_groups(self, tables: BrokerTables) -> None:
        known, named = tables.groups(), tables.groups_with_offsets()
        missing = sorted(one for one in named - known if not one.startswith(_OWN_GROUPS))
        if known and missing:
            more = f" and {len(missing) - _NAMED} more" if len(missing) > _NAMED else ""
            listed = ", ".join(missing[:_NAMED])
            what = f"groups with offsets that are not in {SUBSCRIPTION_GROUPS_FILE}: {listed}{more}"
            place = Place(self._table(CONSUMER_OFFSETS_FILE))
            data = DataEffect("none", groups=missing[: 100 * _NAMED])
            self._findings.add("config.group-missing", what, [place], data=data)


def _own_topics(topics: Mapping[str, TopicConfig]) -> set[str]:
    """Return the topics that a broker made for itself.

    Those named as the broker, its cluster and its template pass their rights on.
    """
    own = {name for name, one in topics.items() if one.perm & _PERM_INHERIT}
    own |= {one for one in topics if one in _OWN_TOPICS or one.startswith(_SYSTEM)}
    return own | {one for one in topics if one.endswith(_REPLY)}
