"""``MessageStoreConfig``: RocketMQ's store options under their own names in snake_case."""

from __future__ import annotations

import dataclasses
import datetime
import functools
import math
import re
from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any

from rocketstore import formats
from rocketstore.errors import ConfigError
from rocketstore.status import FlushDiskType

if TYPE_CHECKING:
    from rocketstore.broker_file.conversion import ConvertedConfig
    from rocketstore.broker_file.entries import ConfigEntry, Source
    from rocketstore.broker_file.lint import ConfigRemark

DEFAULT_COMMIT_LOG_FILE_SIZE = 1024 * 1024 * 1024
DEFAULT_CONSUME_QUEUE_FILE_SIZE = 300_000 * formats.CONSUME_QUEUE_UNIT.nbytes
DEFAULT_EXT_FILE_SIZE = 48 * 1024 * 1024
DEFAULT_BATCH_QUEUE_FILE_SIZE = 300_000 * formats.BATCH_QUEUE_UNIT.nbytes
DEFAULT_HASH_SLOT_NUM = 5_000_000
DEFAULT_INDEX_NUM = 20_000_000
DEFAULT_DELAY_LEVELS = "1s 5s 10s 30s 1m 2m 3m 4m 5m 6m 7m 8m 9m 10m 20m 30m 1h 2h"

#: A due time must fit into 64 bits.
_LONGEST_DELAY_MS = 2**62
_MOST_DELAY_DIGITS = len(str(_LONGEST_DELAY_MS))
_DELAY_UNITS_MS = {"s": 1000, "m": 60_000, "h": 3_600_000, "d": 86_400_000}
_BROKER_ROLES = ("ASYNC_MASTER", "SYNC_MASTER", "SLAVE")
#: Maximum of Java's ``int``, the type of RocketMQ's options; one option is a ``long``.
INT_MAX = 2**31 - 1
_LARGEST = {"sync_flush_timeout": 2**63 - 1}


class _WithEntries:
    """A place for what was read from a file; it takes no part in comparisons."""

    __slots__ = ("_entries",)


@dataclass(frozen=True, slots=True, kw_only=True)
class MessageStoreConfig(_WithEntries):
    """Options of a store; ``None`` means detected from the files, else RocketMQ's default.

    Attributes
    ----------
    store_path_root_dir : str or None
        Root directory; the path given to ``open`` wins.
    store_path_commit_log : str or None
        Commit-log directory outside the root; or several, separated by commas, over which a broker
        distributed the segments. Such a log can only be read.
    read_only_commit_log_store_paths : str or None
        Further directories with segments, separated by commas; they count, as on a broker, only
        beside several in ``store_path_commit_log``.
    mapped_file_size_commit_log : int or None
        Bytes of a log segment, 128 to 2**31 - 1 (default 1 GiB).
    mapped_file_size_consume_queue : int or None
        Bytes of a queue file, rounded up to a multiple of 20 (default 6,000,000).
    enable_consume_queue_ext : bool or None
        Keep tags codes, store times and bit maps in ext files (default: if ext files exist).
    mapped_file_size_consume_queue_ext : int or None
        Bytes of an ext file, at least 24 (default 50,331,648).
    bit_map_length_consume_queue_ext : int
        No effect, as in a broker: the next three options determine the length of bit maps.
    enable_calc_filter_bit_map : bool
        Write bit maps into ext files: which of the SQL92 filters in ``config/consumerFilter.json``
        a message matches. No effect without ext files.
    expect_consumer_num_use_filter, max_error_rate_of_bloom_filter : int
        Consumer groups with filters that are expected on a topic, at least 1, and how many percent
        of the messages that a group does not want may look wanted, 1 to 99. They determine the
        bits of a bit map (112), and those of a group (3).
    mapper_file_size_batch_consume_queue : int or None
        Bytes of a file of a BatchConsumeQueue, a multiple of 46 (default 13,800,000). The name is
        RocketMQ's own.
    max_hash_slot_num, max_index_num : int or None
        Hash slots and entry numbers of an index file (5,000,000 and 20,000,000); both or neither.
    max_message_size : int
        Bytes of a body.
    flush_disk_type : FlushDiskType or str
        ``SYNC_FLUSH`` or ``ASYNC_FLUSH``.
    sync_flush_timeout : int
        Milliseconds a put waits for its sync before it returns FLUSH_DISK_TIMEOUT.
    flush_interval_commit_log, flush_commit_log_thorough_interval : int
        Milliseconds between flushes of the log, and between those of less than
        ``flush_commit_log_least_pages`` (4 KiB pages).
    transient_store_pool_enable : bool
        Write records to memory first and copy them to the files shortly after. Puts never touch
        the page cache; a killed process loses what was not copied yet. No effect on a slave,
        nor up to 4.9 with ``SYNC_FLUSH``.
    transient_store_pool_size : int
        Segments that may be in memory at the same time, at least 1.
    fast_fail_if_no_buffer_in_store_pool : bool
        Return CREATE_MAPPED_FILE_FAILED when the pool has no free segment; otherwise the put
        waits until one was copied to its file.
    commit_interval_commit_log, commit_commit_log_thorough_interval : int
        Longest interval in milliseconds between checks for data to copy, and between copies of
        less than ``commit_commit_log_least_pages`` (4 KiB pages).
    warm_maped_file_enable : bool
        Zero a whole new segment in the background, and lock it into memory if permitted. The
        names of these two options are RocketMQ's own.
    flush_least_pages_when_warm_maped_file : int
        With ``SYNC_FLUSH``: pages that are synced at a time during this warm-up.
    flush_interval_consume_queue, flush_consume_queue_thorough_interval : int
        The same for queues (``flush_consume_queue_least_pages``); a thorough flush also writes
        checkpoint and state.
    message_index_enable : bool
        Build index files.
    message_delay_level : str
        Delays of levels 1, 2, ... with units s, m, h, d.
    schedule_message_enable : bool
        Deliver delayed messages when they are due. A broker always does; a program that opens a
        copy of a store must not.
    flush_delay_offset_interval : int
        Milliseconds between writes of ``config/delayOffset.json``.
    flush_consumer_offset_interval : int
        Milliseconds between writes of ``config/consumerOffset.json`` while messages are consumed.
    delay_max_attempts : int
        Attempts to deliver a message before it is parked, at least 1.
    timer_wheel_enable : bool
        From 5.0: store messages with ``TIMER_DELAY_SEC``, ``TIMER_DELAY_MS`` or
        ``TIMER_DELIVER_MS`` on the timer topic, for a broker to deliver them; otherwise they are
        refused with WHEEL_TIMER_NOT_ENABLE (default: off; on with ``from_properties``).
    timer_precision_ms : int
        Milliseconds of one slot of the timer wheel: 100, 200, 500 or 1000. Other values become
        the next lower one, at least 100.
    timer_max_delay_sec : int
        Longest delay of a timer message in seconds.
    timer_congest_num_each_slot : int
        Messages of one slot above which more and more are refused, from twice as many all.
    enabled_append_prop_crc, force_verify_prop_crc : bool
        Write the whole-record CRC property; require it when records are checked.
    enable_lmq, enable_multi_dispatch : bool
        Light queues: assign a message offsets in the queues that its property
        INNER_MULTI_DISPATCH names, and dispatch it to them. Which option does which depends on
        the version; set both.
    max_lmq_consume_queue_num : int
        Limit of light queues. Above it 4.9 refuses every message for a light queue; 5.5 with
        ``enable_lmq_quota`` refuses those for new light queues.
    enable_lmq_quota : bool
        Enforce that limit in 5.5.
    max_transfer_bytes_on_message_in_memory, max_transfer_bytes_on_message_in_disk : int
        Bytes one ``get_message`` may return.
    max_transfer_count_on_message_in_memory, max_transfer_count_on_message_in_disk : int
        Messages one ``get_message`` may return.
    access_message_in_memory_max_ratio : int
        Part of the log before its end that counts as "in memory", in percent of RAM.
    max_filter_message_size : int
        Bytes of units one ``get_message`` examines.
    max_msgs_num_batch : int
        Cap on the hits of ``query_message``.
    broker_role : str
        ``ASYNC_MASTER``, ``SYNC_MASTER`` or ``SLAVE``. A slave refuses puts. There is no
        replication: a sync master of 4.9 stores the message and returns SLAVE_NOT_AVAILABLE, as
        a broker without a slave does. Later versions do not wait for a slave by default.
    clean_resource_enable : bool
        Delete expired files, as a broker does (default: off; on with ``from_properties``).
    clean_resource_interval : int
        Milliseconds between two cleaning runs; the first starts after a minute.
    delete_when : str
        Local hours ("04", or "04;16") in which expired segments are deleted.
    file_reserved_time : int
        Hours that a segment is kept after its last message was stored.
    delete_file_batch_max : int
        Segments deleted in one run.
    delete_commit_log_files_interval, delete_consume_queue_files_interval : int
        Milliseconds between two segment deletions, and after a queue whose files were deleted.
    redelete_hanged_file_interval : int
        Milliseconds until a failed deletion is retried, at any hour.
    disk_max_used_space_ratio : int
        Percent of disk usage above which expired segments are deleted at any hour (10 to 95).
    disk_space_clean_forcibly_ratio : int
        Percent above which segments are deleted regardless of age (from 5.0: 30 to 85).
    disk_space_warning_level_ratio : int
        Percent above which puts return SERVICE_NOT_AVAILABLE (from 5.0: 35 to 90).
    clean_file_forcibly_enable : bool
        Whether segments may be deleted regardless of age.
    replicas_per_disk_partition : int
        Stores that share a disk (from 5.0). Above 1, the usage of this store is compared with
        its share.
    logical_disk_space_clean_forcibly_threshold : float
        Part of its share above which segments are deleted regardless of age.
    transaction_time_out : int
        Milliseconds in which an undecided transaction is not asked about. A broker's file may set
        this and the next four options; they are a broker's, not a store's.
    transaction_check_max : int
        Checks of a transaction until it is discarded; it is asked about at least once.
    transaction_check_interval : int or None
        Milliseconds between rounds of checks (default: that of the RocketMQ version, 30,000, up to
        5.1.0 60,000).
    transaction_op_msg_max_size : int
        Bytes of an op message's body, which lists decided transactions (from 5.1.0).
    transaction_op_batch_interval : int
        0 writes an op message per decision. With any other value those of decisions that wait for
        the same sync share one; a decision never waits longer for others.
    broker_version : str or None
        RocketMQ version whose file contents and statuses the store reproduces.
    allow_newer : bool
        Accept a ``broker_version`` newer than the lines this release was tested against.
    store_host : str
        ``ip:port`` written into records and message ids.
    timezone : str or None
        Zone of index file names (IANA name); ``None`` is the machine's.
    topic_attributes : mapping
        Attributes per topic, as ``{"T": {"queue.type": "BatchCQ"}}``.
    """

    store_path_root_dir: str | None = None
    store_path_commit_log: str | None = None
    read_only_commit_log_store_paths: str | None = None
    mapped_file_size_commit_log: int | None = None
    mapped_file_size_consume_queue: int | None = None
    enable_consume_queue_ext: bool | None = None
    mapped_file_size_consume_queue_ext: int | None = None
    bit_map_length_consume_queue_ext: int = 64
    enable_calc_filter_bit_map: bool = False
    expect_consumer_num_use_filter: int = 32
    max_error_rate_of_bloom_filter: int = 20
    mapper_file_size_batch_consume_queue: int | None = None
    max_hash_slot_num: int | None = None
    max_index_num: int | None = None
    max_message_size: int = 4 * 1024 * 1024
    flush_disk_type: FlushDiskType = FlushDiskType.ASYNC_FLUSH
    sync_flush_timeout: int = 5000
    flush_interval_commit_log: int = 500
    flush_commit_log_least_pages: int = 4
    flush_commit_log_thorough_interval: int = 10_000
    transient_store_pool_enable: bool = False
    transient_store_pool_size: int = 5
    fast_fail_if_no_buffer_in_store_pool: bool = False
    commit_interval_commit_log: int = 200
    commit_commit_log_least_pages: int = 4
    commit_commit_log_thorough_interval: int = 200
    warm_maped_file_enable: bool = False
    flush_least_pages_when_warm_maped_file: int = 4096
    flush_interval_consume_queue: int = 1000
    flush_consume_queue_least_pages: int = 2
    flush_consume_queue_thorough_interval: int = 60_000
    message_index_enable: bool = True
    message_delay_level: str = DEFAULT_DELAY_LEVELS
    schedule_message_enable: bool = False
    flush_delay_offset_interval: int = 10_000
    flush_consumer_offset_interval: int = 5_000
    delay_max_attempts: int = 16
    timer_wheel_enable: bool = False
    timer_precision_ms: int = 1000
    timer_max_delay_sec: int = 3 * 86_400
    timer_congest_num_each_slot: int = INT_MAX
    enabled_append_prop_crc: bool = False
    force_verify_prop_crc: bool = False
    enable_lmq: bool = False
    enable_multi_dispatch: bool = False
    max_lmq_consume_queue_num: int = 20_000
    enable_lmq_quota: bool = False
    max_transfer_bytes_on_message_in_memory: int = 256 * 1024
    max_transfer_bytes_on_message_in_disk: int = 64 * 1024
    max_transfer_count_on_message_in_memory: int = 32
    max_transfer_count_on_message_in_disk: int = 8
    access_message_in_memory_max_ratio: int = 40
    max_filter_message_size: int = 16_000
    max_msgs_num_batch: int = 64
    broker_role: str = "ASYNC_MASTER"
    clean_resource_enable: bool = False
    clean_resource_interval: int = 10_000
    delete_when: str = "04"
    file_reserved_time: int = 72
    delete_file_batch_max: int = 10
    delete_commit_log_files_interval: int = 100
    delete_consume_queue_files_interval: int = 100
    redelete_hanged_file_interval: int = 120_000
    disk_max_used_space_ratio: int = 75
    disk_space_clean_forcibly_ratio: int = 85
    disk_space_warning_level_ratio: int = 90
    clean_file_forcibly_enable: bool = True
    replicas_per_disk_partition: int = 1
    logical_disk_space_clean_forcibly_threshold: float = 0.8
    transaction_time_out: int = 6000
    transaction_check_max: int = 15
    transaction_check_interval: int | None = None
    transaction_op_msg_max_size: int = 4096
    transaction_op_batch_interval: int = 3000
    broker_version: str | None = None
    allow_newer: bool = False
    store_host: str = "127.0.0.1:10911"
    timezone: str | None = None
    topic_attributes: Mapping[str, Mapping[str, str]] = field(default_factory=dict)

    def __post_init__(self) -> None:
        object.__setattr__(self, "flush_disk_type", _flush_disk_type(self.flush_disk_type))
        for item in dataclasses.fields(self):
            _check_type(item.name, item.type, getattr(self, item.name))
        size = self.mapped_file_size_commit_log
        lowest, highest = formats.MIN_COMMIT_LOG_FILE_NBYTES, formats.MAX_COMMIT_LOG_FILE_NBYTES
        if size is not None and not lowest <= size <= highest:
            raise ConfigError(
                f"mapped_file_size_commit_log is {size}; it must be {lowest} to {highest}",
                key="mapped_file_size_commit_log",
            )
        self._check_queue_and_index_sizes()
        if self.broker_role not in _BROKER_ROLES:
            raise ConfigError(
                f"broker_role {self.broker_role[:80]!r} must be one of {_BROKER_ROLES}",
                key="broker_role",
            )
        for name in (
            *("transient_store_pool_size", "flush_least_pages_when_warm_maped_file"),
            "delay_max_attempts",
        ):
            if getattr(self, name) < 1:
                raise ConfigError(
                    f"{name} is {getattr(self, name)}; it must be at least 1", key=name
                )
        self._check_bit_maps()
        parse_delay_levels(self.message_delay_level)
        fitting = [one for one in formats.TIMER_PRECISIONS_MS if one <= self.timer_precision_ms]
        precision_ms = max(fitting, default=formats.TIMER_PRECISIONS_MS[0])
        object.__setattr__(self, "timer_precision_ms", precision_ms)
        parse_hours(self.delete_when)
        _check_topic_attributes(self.topic_attributes)
        self.zone  # noqa: B018 - raises for an unknown zone

    def _check_bit_maps(self) -> None:
        rate, count = self.max_error_rate_of_bloom_filter, self.expect_consumer_num_use_filter
        if not 1 <= rate <= 99:
            raise ConfigError(
                f"max_error_rate_of_bloom_filter is {rate}; it must be 1 to 99",
                key="max_error_rate_of_bloom_filter",
            )
        bits = count * math.log2(100 / rate) * math.log2(math.e)
        most = formats.MAX_EXT_UNIT_NBYTES - formats.CONSUME_QUEUE_EXT_UNIT.nbytes
        if count < 1 or bits > 8 * most:
            raise ConfigError(
                f"expect_consumer_num_use_filter is {count}; it must be at least 1, and a bit map, "
                f"of {bits / 8:.0f} bytes, at most {most}",
                key="expect_consumer_num_use_filter",
            )

    def _check_queue_and_index_sizes(self) -> None:
        size = self.mapped_file_size_consume_queue
        if size is not None:
            if not 0 < size <= formats.MAX_COMMIT_LOG_FILE_NBYTES:
                raise ConfigError(
                    f"mapped_file_size_consume_queue is {size}; it must be positive",
                    key="mapped_file_size_consume_queue",
                )
            unit = formats.CONSUME_QUEUE_UNIT.nbytes
            object.__setattr__(self, "mapped_file_size_consume_queue", -(-size // unit) * unit)
        size = self.mapped_file_size_consume_queue_ext
        least = formats.CONSUME_QUEUE_EXT_UNIT.nbytes + formats.EXT_END_NBYTES
        if size is not None and not least <= size <= formats.MAX_COMMIT_LOG_FILE_NBYTES:
            raise ConfigError(
                f"mapped_file_size_consume_queue_ext is {size}; it must be {least} to 2**31 - 1",
                key="mapped_file_size_consume_queue_ext",
            )
        size = self.mapper_file_size_batch_consume_queue
        unit = formats.BATCH_QUEUE_UNIT.nbytes
        if size is not None and not (
            0 < size <= formats.MAX_COMMIT_LOG_FILE_NBYTES and size % unit == 0
        ):
            raise ConfigError(
                f"mapper_file_size_batch_consume_queue is {size}; it must be a positive multiple "
                f"of {unit}",
                key="mapper_file_size_batch_consume_queue",
            )
        pair = (self.max_hash_slot_num, self.max_index_num)
        if (pair[0] is None) != (pair[1] is None):
            raise ConfigError(
                "max_hash_slot_num and max_index_num are given together or not at all",
                key="max_hash_slot_num",
            )
        # Entry 0 is never used, so a file of one entry would hold no key.
        lowest = (("max_hash_slot_num", 1), ("max_index_num", 2))
        for (name, least), value in zip(lowest, pair, strict=True):
            if value is not None and not least <= value < 2**31:
                raise ConfigError(f"{name} is {value}; it must be {least} to 2**31 - 1", key=name)
        if pair[0] is not None and pair[1] is not None:
            nbytes = formats.index_file_nbytes(pair[0], pair[1])
            if nbytes > formats.MAX_COMMIT_LOG_FILE_NBYTES:
                raise ConfigError(
                    f"an index file would have {nbytes} bytes, more than 2**31 - 1",
                    key="max_index_num",
                )

    @property
    def zone(self) -> datetime.tzinfo | None:
        """The time zone of index file names; ``None`` for the machine's zone."""
        if self.timezone is None:
            return None
        import zoneinfo

        try:
            return zoneinfo.ZoneInfo(self.timezone)
        except (zoneinfo.ZoneInfoNotFoundError, ValueError, OSError) as error:
            raise ConfigError(
                f"timezone {self.timezone[:80]!r} is unknown", key="timezone"
            ) from error

    @property
    def delay_ms(self) -> tuple[int, ...]:
        """Milliseconds of each delay level, level 1 first."""
        return parse_delay_levels(self.message_delay_level)

    def replace(self, **changes: Any) -> MessageStoreConfig:
        """Return a copy with other values. Raises ``TypeError`` for an unknown option."""
        return dataclasses.replace(self, **changes)._with_entries(self.entries)

    def _with_entries(self, entries: tuple[ConfigEntry, ...]) -> MessageStoreConfig:
        object.__setattr__(self, "_entries", entries)
        return self

    def __reduce__(self) -> tuple[Any, ...]:
        # Not __getstate__: dataclasses of frozen fields with slots replace it before Python 3.11.4.
        values = {item.name: getattr(self, item.name) for item in dataclasses.fields(self)}
        return _restored, (type(self), values, self.entries)

    @property
    def entries(self) -> tuple[ConfigEntry, ...]:
        """All entries of the file that ``from_properties`` read, in its order; else empty."""
        found: tuple[ConfigEntry, ...] = getattr(self, "_entries", ())
        return found

    @property
    def ignored(self) -> Mapping[str, str]:
        """Keys of the file that RocketMQ knows and that have no meaning here, with their values."""
        return {one.key: one.value for one in self.entries if one.use == "ignored"}

    @property
    def unknown(self) -> Mapping[str, str]:
        """Keys of the file that no version of RocketMQ reads, with their values."""
        return {one.key: one.value for one in self.entries if one.use == "unknown"}

    @classmethod
    def from_properties(cls, source: Source) -> MessageStoreConfig:
        """Read a broker's configuration file, as a broker does.

        Parameters
        ----------
        source : mapping, path, text or file
            A file as a broker is started with: Java's properties in ISO-8859-1, of at most 16 MiB.
            A ``str`` with a line end is the text itself, any other a path; ``bytes`` are the
            content. Files may be open in text or binary mode. Keys have RocketMQ's names, or those
            of the fields of this class.

        Returns
        -------
        MessageStoreConfig
            ``entries``, ``ignored`` and ``unknown`` report on all keys. If only one of index slots
            and entries is given, the other gets RocketMQ's default. Expired files are deleted
            (``clean_resource_enable``) and timer messages are accepted (``timer_wheel_enable``)
            unless the file says otherwise. ``brokerIP1`` and ``listenPort`` make ``store_host``.

        Raises
        ------
        ConfigError
            A value is out of range, or RocketMQ would ignore it silently (a bad number, a switch
            that is neither true nor false): with ``path``, ``line`` and ``key``; ``errors`` has one
            for each such value. Or the source is not a configuration, or of a store that is not
            supported (DLedger, a log in several folders).
        OSError
            The file cannot be read.
        """
        from rocketstore.broker_file import entries

        file = entries.read(source, _field_types())
        options = {**entries.BROKERS_DEFAULTS, **file.options}
        pair = {"max_hash_slot_num": DEFAULT_HASH_SLOT_NUM, "max_index_num": DEFAULT_INDEX_NUM}
        if pair.keys() & options.keys():
            options = {**pair, **options}  # a broker uses the default for a missing option
        return file.made(cls, options)._with_entries(file.entries)

    def to_properties(self) -> str:
        """Return the text of a broker's file with these options.

        It sets what differs from a broker's defaults, so ``from_properties`` makes an equal
        configuration of it. Keys that only rocketstore knows are ignored by a broker. Raises
        ``ConfigError`` if a text begins or ends with a blank, which no file can hold.
        """
        from rocketstore.broker_file import entries

        names = [item.name for item in dataclasses.fields(self)]
        values = {name: getattr(self, name) for name in names}
        empty = MessageStoreConfig()
        defaults = {name: getattr(empty, name) for name in names}
        return entries.write(values, {**defaults, **entries.BROKERS_DEFAULTS})


def _restored(
    kind: type[MessageStoreConfig], values: dict[str, Any], entries: tuple[ConfigEntry, ...]
) -> MessageStoreConfig:
    config = object.__new__(kind)
    for name, value in values.items():
        object.__setattr__(config, name, value)
    return config._with_entries(entries)


@functools.lru_cache(maxsize=64)
def parse_delay_levels(text: str) -> tuple[int, ...]:
    """Return the milliseconds of each level of a ``messageDelayLevel`` text.

    Raises ``ConfigError`` for an invalid text.
    """
    delays = []
    for item in text.split():
        unit = _DELAY_UNITS_MS.get(item[-1])
        if unit is None or not re.fullmatch("[0-9]+", item[:-1]):
            raise ConfigError(
                f"message_delay_level: {item[:80]!r} is not a number with s, m, h or d",
                key="message_delay_level",
            )
        digits = item[:-1].lstrip("0") or "0"
        if len(digits) > _MOST_DELAY_DIGITS or int(digits) * unit > _LONGEST_DELAY_MS:
            raise ConfigError(
                f"message_delay_level: {item[:40]!r} is longer than {_LONGEST_DELAY_MS} ms",
                key="message_delay_level",
            )
        delays.append(int(digits) * unit)
    return tuple(delays)


def parse_hours(text: str) -> frozenset[int]:
    """Return the hours (0 to 23) in a ``deleteWhen`` text, or raise ``ConfigError``."""
    items = [item.strip() for item in text.split(";") if item.strip()]
    hours = {int(item) for item in items if item.isascii() and item.isdigit() and len(item) <= 2}
    if len(hours) < len(set(items)) or not all(hour < 24 for hour in hours):
        raise ConfigError(
            f"delete_when {text[:80]!r} is not a list of hours like '04' or '04;16'",
            key="delete_when",
        )
    return frozenset(hours)


def _flush_disk_type(value: FlushDiskType | str) -> FlushDiskType:
    if isinstance(value, str):
        try:
            return FlushDiskType[value]
        except KeyError:
            raise ConfigError(
                f"flush_disk_type {value[:80]!r} is neither 'SYNC_FLUSH' nor 'ASYNC_FLUSH'",
                key="flush_disk_type",
            ) from None
    if not isinstance(value, FlushDiskType):
        raise ConfigError(
            f"flush_disk_type must be a FlushDiskType or its name, not {value!r}",
            key="flush_disk_type",
        )
    return value


def _check_type(name: str, kind: Any, value: Any) -> None:
    text = str(kind)
    if value is None and "None" in text:
        return
    kinds: dict[str, tuple[type, ...]] = {
        "int": (int,),
        "bool": (bool,),
        "str": (str,),
        "float": (int, float),
    }
    wanted = kinds.get(text.split(" ")[0])
    if wanted is None:
        return
    if not isinstance(value, wanted) or (bool not in wanted and isinstance(value, bool)):
        raise ConfigError(f"{name} is {repr(value)[:80]}; it must be {text}", key=name)
    if isinstance(value, int | float) and not value >= 0:
        raise ConfigError(f"{name} is {value}; it must not be negative", key=name)
    if isinstance(value, int) and value > _LARGEST.get(name, INT_MAX):
        most = _LARGEST.get(name, INT_MAX)
        raise ConfigError(f"{name} is too large; it must be at most {most}", key=name)


def _check_topic_attributes(table: Any) -> None:
    is_table = isinstance(table, Mapping) and all(
        isinstance(topic, str)
        and isinstance(attributes, Mapping)
        and all(isinstance(text, str) for pair in attributes.items() for text in pair)
        for topic, attributes in table.items()
    )
    if not is_table:
        raise ConfigError(
            f"topic_attributes is {repr(table)[:80]}; it must map topics to attributes, as in "
            '{"T": {"queue.type": "BatchCQ"}}',
            key="topic_attributes",
        )


def lint_config(source: Source, version: str | None = None) -> list[ConfigRemark]:
    """Say what in a broker's file does not do what it seems to, by line.

    Parameters
    ----------
    source : mapping, path, text or file
        As for ``MessageStoreConfig.from_properties``; also a file that this refuses.
    version : str, optional
        The RocketMQ version that will read the file, such as ``"5.3.3"``; by default any.

    Returns
    -------
    list of ConfigRemark
        ``line, option, severity, code, reason``; empty if there is nothing to remark.

    Raises
    ------
    ConfigError
        The source is no configuration, or ``version`` no version.
    OSError
        The file cannot be read.
    """
    from rocketstore.broker_file.conversion import target_version
    from rocketstore.broker_file.entries import naming
    from rocketstore.broker_file.lint import lint

    target = None if version is None else target_version(version)
    with naming(source):
        return lint(source, _field_types(), target)


def convert_config(source: Source, to: str) -> ConvertedConfig:
    """Rewrite a broker's file for another RocketMQ version; comments and order stay.

    Parameters
    ----------
    source : mapping, path, text or file
        As for ``MessageStoreConfig.from_properties``; also a file that this refuses.
    to : str
        ``"4.9"``, ``"5.x"``, or a version such as ``"5.3.3"``.

    Returns
    -------
    ConvertedConfig
        Keys that the version does not know are comments in its ``text``.

    Raises
    ------
    ConfigError
        The source is no configuration, or ``to`` no version.
    OSError
        The file cannot be read.
    """
    from rocketstore.broker_file.conversion import convert, target_version
    from rocketstore.broker_file.entries import naming

    version = target_version(to)
    with naming(source):
        return convert(source, _field_types(), version)


def _field_types() -> dict[str, str]:
    """Return the annotation of each field of ``MessageStoreConfig``, by name."""
    return {item.name: str(item.type) for item in dataclasses.fields(MessageStoreConfig)}
