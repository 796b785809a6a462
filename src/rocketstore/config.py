"""``MessageStoreConfig``: RocketMQ's store options under their own names in snake_case."""

from __future__ import annotations

import dataclasses
import datetime
import functools
import os
import re
import stat
from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass, field
from typing import Any, TextIO

from rocketstore import formats
from rocketstore.errors import ConfigError
from rocketstore.status import FlushDiskType

DEFAULT_COMMIT_LOG_FILE_SIZE = 1024 * 1024 * 1024
DEFAULT_CONSUME_QUEUE_FILE_SIZE = 300_000 * formats.CONSUME_QUEUE_UNIT.nbytes
DEFAULT_EXT_FILE_SIZE = 48 * 1024 * 1024
DEFAULT_BATCH_QUEUE_FILE_SIZE = 300_000 * formats.BATCH_QUEUE_UNIT.nbytes
DEFAULT_HASH_SLOT_NUM = 5_000_000
DEFAULT_INDEX_NUM = 20_000_000
DEFAULT_DELAY_LEVELS = "1s 5s 10s 30s 1m 2m 3m 4m 5m 6m 7m 8m 9m 10m 20m 30m 1h 2h"

_DELAY_UNITS_MS = {"s": 1000, "m": 60_000, "h": 3_600_000, "d": 86_400_000}
_BROKER_ROLES = ("ASYNC_MASTER", "SYNC_MASTER", "SLAVE")
#: Maximum of Java's ``int``, the type of RocketMQ's options; one option is a ``long``.
INT_MAX = 2**31 - 1
_LARGEST = {"sync_flush_timeout": 2**63 - 1}
#: Alternative spellings in broker files.
_ALIASES = {
    "mapedFileSizeCommitLog": "mapped_file_size_commit_log",
    "mapedFileSizeConsumeQueue": "mapped_file_size_consume_queue",
    "enabledAppendPropCRC": "enabled_append_prop_crc",
    "forceVerifyPropCRC": "force_verify_prop_crc",
    "warmMappedFileEnable": "warm_maped_file_enable",
    "flushLeastPagesWhenWarmMappedFile": "flush_least_pages_when_warm_maped_file",
}
#: Largest configuration file that is read; a broker's is shorter.
_MOST_NBYTES = 16 << 20
_PROPERTY = re.compile(r"((?:\\.|[^=:\s\\])+)[ \t\f]*[=:]?[ \t\f]*(.*)", re.DOTALL)
_PROPERTY_ESCAPE = re.compile(r"\\(?:u([0-9A-Fa-f]{4})|(.))", re.DOTALL)
_CONTROLS = {"t": "\t", "n": "\n", "r": "\r", "f": "\f"}


@dataclass(frozen=True, slots=True, kw_only=True)
class MessageStoreConfig:
    """Options of a store; ``None`` means detected from the files, else RocketMQ's default.

    Attributes
    ----------
    store_path_root_dir : str or None
        Root directory; the path given to ``open`` wins.
    store_path_commit_log : str or None
        Commit-log directory outside the root.
    mapped_file_size_commit_log : int or None
        Bytes of a log segment, 128 to 2**31 - 1 (default 1 GiB).
    mapped_file_size_consume_queue : int or None
        Bytes of a queue file, rounded up to a multiple of 20 (default 6,000,000).
    enable_consume_queue_ext : bool or None
        Keep tags codes, store times and bit maps in ext files (default: if ext files exist).
    mapped_file_size_consume_queue_ext : int or None
        Bytes of an ext file, at least 24 (default 50,331,648).
    bit_map_length_consume_queue_ext : int
        Bits that a bit map in an ext file may have.
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
    mapped_file_size_commit_log: int | None = None
    mapped_file_size_consume_queue: int | None = None
    enable_consume_queue_ext: bool | None = None
    mapped_file_size_consume_queue_ext: int | None = None
    bit_map_length_consume_queue_ext: int = 64
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
                f"mapped_file_size_commit_log is {size}; it must be {lowest} to {highest}"
            )
        self._check_queue_and_index_sizes()
        if self.broker_role not in _BROKER_ROLES:
            raise ConfigError(f"broker_role {self.broker_role!r} must be one of {_BROKER_ROLES}")
        for name in ("transient_store_pool_size", "flush_least_pages_when_warm_maped_file"):
            if getattr(self, name) < 1:
                raise ConfigError(f"{name} is {getattr(self, name)}; it must be at least 1")
        parse_delay_levels(self.message_delay_level)
        parse_hours(self.delete_when)
        _check_topic_attributes(self.topic_attributes)
        self.zone  # noqa: B018 - raises for an unknown zone

    def _check_queue_and_index_sizes(self) -> None:
        size = self.mapped_file_size_consume_queue
        if size is not None:
            if not 0 < size <= formats.MAX_COMMIT_LOG_FILE_NBYTES:
                raise ConfigError(f"mapped_file_size_consume_queue is {size}; it must be positive")
            unit = formats.CONSUME_QUEUE_UNIT.nbytes
            object.__setattr__(self, "mapped_file_size_consume_queue", -(-size // unit) * unit)
        size = self.mapped_file_size_consume_queue_ext
        least = formats.CONSUME_QUEUE_EXT_UNIT.nbytes + formats.EXT_END_NBYTES
        if size is not None and not least <= size <= formats.MAX_COMMIT_LOG_FILE_NBYTES:
            raise ConfigError(
                f"mapped_file_size_consume_queue_ext is {size}; it must be {least} to 2**31 - 1"
            )
        size = self.mapper_file_size_batch_consume_queue
        unit = formats.BATCH_QUEUE_UNIT.nbytes
        if size is not None and not (
            0 < size <= formats.MAX_COMMIT_LOG_FILE_NBYTES and size % unit == 0
        ):
            raise ConfigError(
                f"mapper_file_size_batch_consume_queue is {size}; it must be a positive multiple "
                f"of {unit}"
            )
        pair = (self.max_hash_slot_num, self.max_index_num)
        if (pair[0] is None) != (pair[1] is None):
            raise ConfigError(
                "max_hash_slot_num and max_index_num are given together or not at all"
            )
        # Entry 0 is never used, so a file of one entry would hold no key.
        lowest = (("max_hash_slot_num", 1), ("max_index_num", 2))
        for (name, least), value in zip(lowest, pair, strict=True):
            if value is not None and not least <= value < 2**31:
                raise ConfigError(f"{name} is {value}; it must be {least} to 2**31 - 1")
        if pair[0] is not None and pair[1] is not None:
            nbytes = formats.index_file_nbytes(pair[0], pair[1])
            if nbytes > formats.MAX_COMMIT_LOG_FILE_NBYTES:
                raise ConfigError(f"an index file would have {nbytes} bytes, more than 2**31 - 1")

    @property
    def zone(self) -> datetime.tzinfo | None:
        """The time zone of index file names; ``None`` for the machine's zone."""
        if self.timezone is None:
            return None
        import zoneinfo

        try:
            return zoneinfo.ZoneInfo(self.timezone)
        except (zoneinfo.ZoneInfoNotFoundError, ValueError) as error:
            raise ConfigError(f"timezone {self.timezone!r} is unknown") from error

    @property
    def delay_ms(self) -> tuple[int, ...]:
        """Milliseconds of each delay level, level 1 first."""
        return parse_delay_levels(self.message_delay_level)

    def replace(self, **changes: Any) -> MessageStoreConfig:
        """Return a copy with other values. Raises ``TypeError`` for an unknown option."""
        return dataclasses.replace(self, **changes)

    @classmethod
    def from_properties(
        cls, source: Mapping[str, str] | str | os.PathLike[str] | TextIO
    ) -> MessageStoreConfig:
        """Read a broker's configuration file.

        Parameters
        ----------
        source : mapping, path or open text file
            ``name = value`` lines with the escapes of Java's properties; ``#`` and ``!`` start
            comments. Names that are not store options (a broker file has many) are ignored. If only
            one of index slots and entries is given, the other gets RocketMQ's default.
            Expired files are deleted (``clean_resource_enable``), as a broker does.

        Raises
        ------
        ConfigError
            When the value of a known option is invalid (the error names the option), the path is
            not a regular file, or the file is larger than 16 MiB.
        OSError
            When the file cannot be read.
        """
        options: dict[str, Any] = {"clean_resource_enable": True}
        kinds = {item.name: item.type for item in dataclasses.fields(cls)}
        for name, text in _pairs(source).items():
            option = _ALIASES.get(name) or _snake_case(name)
            if option in kinds and option != "topic_attributes":
                options[option] = _parse_value(name, kinds[option], text)
        pair = {"max_hash_slot_num": DEFAULT_HASH_SLOT_NUM, "max_index_num": DEFAULT_INDEX_NUM}
        if pair.keys() & options.keys():
            options = {**pair, **options}  # a broker uses the default for a missing option
        return cls(**options)


@functools.lru_cache(maxsize=64)
def parse_delay_levels(text: str) -> tuple[int, ...]:
    """Return the milliseconds of each level of a ``messageDelayLevel`` text.

    Raises ``ConfigError`` for an invalid text.
    """
    delays = []
    for item in text.split():
        unit = _DELAY_UNITS_MS.get(item[-1])
        if unit is None or not (item[:-1].isascii() and item[:-1].isdigit()):
            raise ConfigError(f"message_delay_level: {item!r} is not a number with s, m, h or d")
        delays.append(int(item[:-1]) * unit)
    return tuple(delays)


def parse_hours(text: str) -> frozenset[int]:
    """Return the hours (0 to 23) in a ``deleteWhen`` text, or raise ``ConfigError``."""
    items = [item.strip() for item in text.split(";") if item.strip()]
    hours = {int(item) for item in items if item.isascii() and item.isdigit() and len(item) <= 2}
    if len(hours) < len(set(items)) or not all(hour < 24 for hour in hours):
        raise ConfigError(f"delete_when {text[:80]!r} is not a list of hours like '04' or '04;16'")
    return frozenset(hours)


def _flush_disk_type(value: FlushDiskType | str) -> FlushDiskType:
    if isinstance(value, str):
        try:
            return FlushDiskType[value]
        except KeyError:
            raise ConfigError(
                f"flush_disk_type {value!r} is neither 'SYNC_FLUSH' nor 'ASYNC_FLUSH'"
            ) from None
    return FlushDiskType(value)


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
        raise ConfigError(f"{name} is {value!r}; it must be {text}")
    if isinstance(value, int | float) and not value >= 0:
        raise ConfigError(f"{name} is {value}; it must not be negative")
    if isinstance(value, int) and value > _LARGEST.get(name, INT_MAX):
        raise ConfigError(f"{name} is too large; it must be at most {_LARGEST.get(name, INT_MAX)}")


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
            '{"T": {"queue.type": "BatchCQ"}}'
        )


def _snake_case(name: str) -> str:
    return re.sub(r"(?<=[a-z0-9])(?=[A-Z])", "_", name).lower()


def _parse_value(name: str, kind: Any, value: Any) -> Any:
    text = str(value).strip()
    wanted = str(kind).split(" ")[0]
    if wanted == "int":
        if not re.fullmatch(r"[+-]?[0-9]{1,20}", text):
            raise ConfigError(f"{name} = {text[:80]!r} is not a whole number")
        return int(text)
    if wanted == "float":
        try:
            return float(text)
        except ValueError:
            raise ConfigError(f"{name} = {text[:80]!r} is not a number") from None
    if wanted == "bool":
        return text.lower() == "true"
    return text


def _pairs(source: Mapping[str, str] | str | os.PathLike[str] | TextIO) -> dict[str, str]:
    if isinstance(source, Mapping):
        return dict(source)
    if isinstance(source, str | os.PathLike):
        _refuse_odd_file(os.fspath(source))
        with open(source, encoding="utf-8-sig", errors="surrogateescape") as file:
            return _pairs(file)
    pairs: dict[str, str] = {}
    for line in _logical_lines(source):
        match = _PROPERTY.match(line)
        if match:
            pairs[_unescaped(match[1])] = _unescaped(match[2])
    return pairs


def _refuse_odd_file(path: str) -> None:
    """Raise ``ConfigError`` for a file that is not regular or too large to be a configuration.

    Reading a FIFO or a device may never end; the FIFO of a shell's ``<(command)`` has a writer.
    """
    status = os.stat(path)
    if path.startswith(("/dev/fd/", "/proc/self/fd/")) and stat.S_ISFIFO(status.st_mode):
        return
    if not stat.S_ISREG(status.st_mode):
        raise ConfigError("it is not a regular file")
    if status.st_size > _MOST_NBYTES:
        raise ConfigError(f"it has {status.st_size:,} bytes, too many for a configuration")


def _logical_lines(source: Iterable[str]) -> Iterator[str]:
    """Yield lines without comments; a backslash at a line's end joins the next, as in Java."""
    begun = ""
    for line in source:
        line = line.strip(" \t\f\r\n") if not begun else line.strip("\r\n").lstrip(" \t\f")
        if not begun and (not line or line[0] in "#!"):
            continue
        if (len(line) - len(line.rstrip("\\"))) % 2:
            begun += line[:-1]
            continue
        yield begun + line
        begun = ""
    if begun:
        yield begun


def _unescaped(text: str) -> str:
    return _PROPERTY_ESCAPE.sub(
        lambda match: chr(int(match[1], 16)) if match[1] else _CONTROLS.get(match[2], match[2]),
        text,
    )
