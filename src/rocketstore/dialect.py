"""Differences between RocketMQ 4.9.x and 5.5.x by version: bytes written, statuses returned."""

from __future__ import annotations

import re
from dataclasses import dataclass
from enum import IntEnum

from rocketstore import formats
from rocketstore.errors import ConfigError
from rocketstore.status import MultiDispatch

OLDEST = (4, 9, 0)
NEWEST = (5, 5, 0)
_VERSION = re.compile(r"^[vV]?(\d{1,4})\.(\d{1,4})(?:\.(\d{1,4}))?$")


class BatchProperties(IntEnum):
    """How the properties of a whole client batch are stored."""

    #: Dropped (5.4.0 and later).
    DROPPED = 0
    #: Appended to each message's own, with a separator if one is missing (4.9.3 to 5.3.3).
    JOINED = 1
    #: Appended to each message's own as they are (4.8.0 to 4.9.2).
    FUSED = 2


class LightOffsets(IntEnum):
    """How a put assigns offsets in the queues that INNER_MULTI_DISPATCH names."""

    #: Not at all (up to 4.9.2).
    NONE = 0
    #: In queues of any name. PREPARED and ROLLBACK records store offsets without using them up.
    #: WAIT is not stored. A record that is too long is an unknown error (4.9.3 to 4.9.8).
    ANY_NAME = 1
    #: In light queues. PREPARED and ROLLBACK records have none; WAIT is not stored (5.0 and 5.1).
    QUEUED = 2
    #: In light queues, also for PREPARED and ROLLBACK records. WAIT is stored last. The record may
    #: not be longer than the largest body (5.2.0 and later).
    ALL = 3


@dataclass(frozen=True, slots=True)
class Dialect:
    """The behavior of one RocketMQ version.

    Attributes
    ----------
    version : tuple of int
        Major, minor, patch.
    trailing_separator : bool
        A separator follows the last property (up to 4.9.0 and from 5.2.0).
    record_version_2 : bool
        Topics of more than 127 characters get a V2 record (5.1.0).
    property_crc : bool
        The whole-record CRC property can be written (5.2.0).
    batch_properties : BatchProperties
    limits_in_characters : bool
        Topic and properties limits count UTF-16 units first (4.9); later UTF-8 bytes.
    long_retry_topics : bool
        ``%RETRY%`` topics may have 255 bytes (5.1.0).
    record_extra : bool
        A whole record may be 64 KiB longer than the largest body (4.9.4); before, not longer.
    sync_master_wants_slave : bool
        A SYNC_MASTER without a slave returns SLAVE_NOT_AVAILABLE (4.9).
    abort_holds_pid : bool
        ``abort`` holds the process id (5.0.0).
    checkpoint_nbytes : int
        Bytes of the checkpoint with a meaning: 24, 32 (5.0.0), 40 (5.1.1), 48 (5.5.0).
    index_tags : bool
        Index files get one entry per tag (5.4.0).
    offset_by_mtime : bool
        Offset by time uses file modification times (up to 5.1.0, D-16).
    clamp_offset_by_time : bool
        Offset by time is clamped to the queue's bounds (5.2.0).
    empty_queue_keeps_min : bool
        The min offset of a queue whose messages are all expired does not change (4.9).
    clamps_disk_ratios : bool
        The thresholds of disk usage are options, within limits (5.0.0).
    light_offsets : LightOffsets
    light_offsets_by_lmq : bool
        ``enable_lmq`` switches them on (5.3.2), earlier ``enable_multi_dispatch``.
    light_offsets_count_on : bool
        A queue that a message names twice gets two offsets, not one twice (5.0.0 to 5.1.0).
    light_limit : bool
        The number of light queues is limited: 4.9 has a limit but never enforces it (D-17), 5.0
        to 5.4 have none, 5.5.0 has a quota.
    pools_with_sync_flush : bool
        The transient store pool is also used with ``SYNC_FLUSH`` (5.0.0).
    pull_asks_for_count : bool
        A pull from queues in RocksDB examines at most as many units as messages are requested
        (up to 5.4).
    loads_folders : bool
        A folder among mapped files, or an empty last file, prevents a broker from starting (up
        to 4.9); later versions ignore it.
    has_timer : bool
        Timer messages with any delivery time are supported (5.0.0).
    timer_deletes_by_topic : bool
        A message that deletes a timer message names it by ``topic+key`` (5.3.2 up to 5.3.x),
        otherwise by its unique key.
    filter_text_search : bool
        SQL92 filters have CONTAINS, STARTSWITH and ENDSWITH (5.1.3).
    property_buckets : int
        Buckets of the hash map that properties are parsed into (5.1.0: 128, before: 16). It
        determines their order in records that the broker writes again.
    stores_wait_last : bool
        A broker stores WAIT after the properties that a producer gives (4.9).
    transaction_id : bool
        A half message repeats its unique key as transaction id (5.0.0).
    op_lists : bool
        An op message names many half messages, each with a comma (5.1.0); before, one.
    commit_keeps_real_topic : bool
        Committed messages keep REAL_TOPIC and REAL_QID (up to 5.3).
    transaction_check_interval_ms : int
        Milliseconds between rounds of checks: 60,000, and 30,000 (5.1.1).
    immunity_includes_end : bool
        A half message is immune up to and with the end of its immunity (5.3.4).
    fastjson_2 : bool
        Tables are read by fastjson 2 (5.4.0).
    max_dispatch_lag_files : int or None
        A broker recovers only this many log files (5.4.0), so dispatch may not lag further.
    """

    version: tuple[int, int, int]

    @property
    def name(self) -> str:
        """The version as text."""
        return ".".join(map(str, self.version))

    @property
    def trailing_separator(self) -> bool:
        return self.version <= (4, 9, 0) or self.version >= (5, 2, 0)

    @property
    def record_version_2(self) -> bool:
        return self.version >= (5, 1, 0)

    @property
    def property_crc(self) -> bool:
        return self.version >= (5, 2, 0)

    @property
    def batch_properties(self) -> BatchProperties:
        if self.version >= (5, 4, 0):
            return BatchProperties.DROPPED
        return BatchProperties.JOINED if self.version >= (4, 9, 3) else BatchProperties.FUSED

    @property
    def limits_in_characters(self) -> bool:
        return self.version < (5, 0, 0)

    @property
    def long_retry_topics(self) -> bool:
        return self.version >= (5, 1, 0)

    @property
    def record_extra(self) -> bool:
        return self.version >= (4, 9, 4)

    @property
    def sync_master_wants_slave(self) -> bool:
        return self.version < (5, 0, 0)

    @property
    def abort_holds_pid(self) -> bool:
        return self.version >= (5, 0, 0)

    @property
    def checkpoint_nbytes(self) -> int:
        for since, nbytes in (((5, 5, 0), 48), ((5, 1, 1), 40), ((5, 0, 0), 32)):
            if self.version >= since:
                return nbytes
        return 24

    @property
    def index_tags(self) -> bool:
        return self.version >= (5, 4, 0)

    @property
    def offset_by_mtime(self) -> bool:
        return self.version <= (5, 1, 0)

    @property
    def clamp_offset_by_time(self) -> bool:
        return self.version >= (5, 2, 0)

    @property
    def clamps_disk_ratios(self) -> bool:
        return self.version >= (5, 0, 0)

    @property
    def empty_queue_keeps_min(self) -> bool:
        return self.version < (5, 0, 0)

    @property
    def light_offsets(self) -> LightOffsets:
        if self.version >= (5, 2, 0):
            return LightOffsets.ALL
        if self.version >= (5, 0, 0):
            return LightOffsets.QUEUED
        return LightOffsets.ANY_NAME if self.version >= (4, 9, 3) else LightOffsets.NONE

    @property
    def light_offsets_by_lmq(self) -> bool:
        return self.version >= (5, 3, 2)

    @property
    def light_offsets_count_on(self) -> bool:
        return (5, 0, 0) <= self.version <= (5, 1, 0)

    @property
    def light_limit(self) -> bool:
        return self.version < (5, 0, 0) or self.version >= (5, 5, 0)

    def multi_dispatch(self, *, any_name: bool) -> MultiDispatch:
        """Return to which queues besides its own a record is dispatched.

        A record carries offsets only if it was to be dispatched, so its offsets decide. Brokers
        copy records for retries and delays, with the offsets of the original. The topics of such
        copies are excluded in versions that assign them no offsets of their own. ``any_name``
        includes queues that are not light queues, which only 4.9 supports.
        """
        flags = MultiDispatch.LIGHT
        if any_name and self.version < (5, 0, 0):
            flags |= MultiDispatch.PLAIN
        if self.version >= (5, 1, 1):
            flags |= MultiDispatch.NOT_OF_SYSTEM
        if self.version >= (5, 5, 0):
            flags |= MultiDispatch.NOT_OF_DLQ
        return flags

    def gives_light_offsets(self, topic: str) -> bool:
        """Return whether a put assigns messages of ``topic`` offsets in light queues."""
        if self.light_offsets == LightOffsets.NONE:
            return False
        if self.version >= (5, 1, 1) and topic.startswith(formats.TOPIC_RETRY_PREFIX):
            return False
        if (5, 1, 2) <= self.version < (5, 2, 0):
            return topic not in (formats.TOPIC_TIMER, formats.TOPIC_SCHEDULE)
        if self.version >= (5, 3, 1) and (
            topic == formats.TOPIC_SCHEDULE or topic.startswith(formats.TOPIC_SYSTEM_PREFIX)
        ):
            return False
        return self.version < (5, 5, 0) or not topic.startswith(formats.TOPIC_DLQ_PREFIX)

    def check_put(self, *, append_property_crc: bool, light_queues: bool) -> None:
        """Raise ``ConfigError`` if the version lacks a feature that puts are to use."""
        if append_property_crc and not self.property_crc:
            raise ConfigError(
                f"enabled_append_prop_crc needs broker_version 5.2.0 or later, not {self.name}"
            )
        if light_queues and self.light_offsets == LightOffsets.NONE:
            raise ConfigError(f"light queues need broker_version 4.9.3 or later, not {self.name}")

    @property
    def pools_with_sync_flush(self) -> bool:
        return self.version >= (5, 0, 0)

    @property
    def pull_asks_for_count(self) -> bool:
        """A pull from RocksDB queues examines at most as many units as messages are requested."""
        return self.version < (5, 5, 0)

    @property
    def loads_folders(self) -> bool:
        return self.version < (5, 0, 0)

    @property
    def has_timer(self) -> bool:
        return self.version >= (5, 0, 0)

    @property
    def timer_deletes_by_topic(self) -> bool:
        return (5, 3, 2) <= self.version < (5, 4, 0)

    @property
    def filter_text_search(self) -> bool:
        return self.version >= (5, 1, 3)

    @property
    def property_buckets(self) -> int:
        return 128 if self.version >= (5, 1, 0) else 16

    @property
    def stores_wait_last(self) -> bool:
        return self.version < (5, 0, 0)

    @property
    def transaction_id(self) -> bool:
        return self.version >= (5, 0, 0)

    @property
    def op_lists(self) -> bool:
        return self.version >= (5, 1, 0)

    @property
    def commit_keeps_real_topic(self) -> bool:
        return self.version < (5, 4, 0)

    @property
    def transaction_check_interval_ms(self) -> int:
        return 30_000 if self.version >= (5, 1, 1) else 60_000

    @property
    def immunity_includes_end(self) -> bool:
        return self.version >= (5, 3, 4)

    @property
    def fastjson_2(self) -> bool:
        return self.version >= (5, 4, 0)

    @property
    def max_dispatch_lag_files(self) -> int | None:
        return 9 if self.version >= (5, 4, 0) else None

    @classmethod
    def for_version(cls, version: str, *, allow_newer: bool = False) -> Dialect:
        """Return the dialect of ``version`` (``"5.3.3"``; a missing patch number is 0).

        Raises
        ------
        ConfigError
            When it is not a version, older than 4.9.0, or newer than 5.5.x without ``allow_newer``.
        """
        match = _VERSION.match(version.strip()) if isinstance(version, str) else None
        if match is None:
            raise ConfigError(f"broker_version {version!r} is not a version such as '5.3.3'")
        major, minor, patch = (int(part or 0) for part in match.groups())
        parsed = (major, minor, patch)
        if parsed < OLDEST:
            raise ConfigError(f"broker_version {version} is older than 4.9.0, the oldest supported")
        if parsed[:2] > NEWEST[:2] and not allow_newer:
            raise ConfigError(
                f"broker_version {version} is newer than 5.5, the newest line this release was "
                "tested against; allow_newer=True writes it as 5.5"
            )
        return cls(parsed)


DEFAULT_VERSION = "5.5.0"
