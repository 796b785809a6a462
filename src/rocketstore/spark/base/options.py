"""The options of ``format("rocketstore")``: names, values and their checks.

Nothing here needs Spark. Spark passes names in lower case and ignores unknown ones, so a misspelt
name is an error here; the error suggests the nearest name.
"""

from __future__ import annotations

import difflib
import json
import re
from collections.abc import Callable, Mapping
from dataclasses import dataclass, fields
from typing import Any, Literal

from rocketstore.errors import ConfigError, FilterSyntaxError
from rocketstore.filter.sql92.sql92_filter import Sql92Filter
from rocketstore.query.queue_records import RECORD_WORDS
from rocketstore.spark.base.shipping import shipped

EARLIEST = -2
LATEST = -1
#: A queue offset past all that exist.
MAX_OFFSET = 2**63 - 1
CORRUPTION_POLICIES = ("fail", "skip", "stop")
DEFAULT_PARTITION_BYTES = 256 << 20

#: Start or end: everywhere, or {topic: {queueId: queue offset, EARLIEST or LATEST}}.
Offsets = Literal["earliest", "latest"] | dict[str, dict[int, int]]

READ_NAMES = (
    *("path", "storageOptions", "subscribe", "subscribePattern", "assign", "tags", "keys"),
    "filter",
    *("startingOffsets", "endingOffsets", "startingTimestamp", "endingTimestamp"),
    *("startingPhysicalOffset", "endingPhysicalOffset", "failOnDataLoss", "onCorruption"),
    *("maxOffsetsPerTrigger", "maxBytesPerTrigger", "minPartitions", "maxRecordsPerPartition"),
    *(
        "maxPartitionBytes",
        "records",
        "columns",
        "includeProperties",
        "batchRows",
        "batchBytes",
        "checkCrc",
    ),
)
WRITE_NAMES = ("path", "topic", "queues", "txnAppId", "txnVersion", "stagingDir")
#: Aliases of read options.
_ALIASES = {"topic": "subscribe", "includeheaders": "includeProperties"}
#: Options of Spark's own stream writer.
_OF_SPARK = frozenset(("queryname", "checkpointlocation"))
#: Names that only Spark's catalog adds to a table's options.
_OF_CATALOG = frozenset(("owner", "provider"))
_SIZE = re.compile(r"(\d{1,18})\s*([kmgt]?)(?:i?b)?", re.IGNORECASE)
_POWERS = {"": 0, "k": 1, "m": 2, "g": 3, "t": 4}


@dataclass(frozen=True, slots=True)
class ReadOptions:
    """The parsed options of a reader. Plain values only: they travel to executors.

    Attributes
    ----------
    path : str
        A store's root or its ``commitlog``; a local path or a URI.
    storage_options : dict or None
        Options for the file system of a URI.
    topics : tuple of str or None
        None: all topics.
    topic_pattern : str or None
        A regular expression that the whole topic must match.
    queue_ids : dict of str to tuple of int, or None
        Queues by topic; None: all.
    tags, keys : tuple of str or None
        A message must have one of them; None: all messages.
    filter : (str, str, bool) or None
        An SQL92 expression, the RocketMQ version of its dialect, and whether it is strict.
    starting_offsets, ending_offsets : "earliest", "latest", dict or None
        None if not given.
    starting_timestamp, ending_timestamp : int or None
        Epoch ms of storeTimestamp; the end is exclusive.
    starting_physical_offset, ending_physical_offset : int or None
        Bytes from the start of the log; the end is exclusive.
    fail_on_data_loss : bool
    on_corruption : str
        ``"fail"``, ``"skip"`` or ``"stop"``.
    max_offsets_per_trigger, max_bytes_per_trigger, min_partitions, max_records_per_partition : \
int or None
    max_partition_bytes : int
        Maximum bytes of the log that one task reads.
    columns : str
        As given: a preset, or names separated by commas.
    include_properties : bool
    batch_rows, batch_bytes : int
        Limits of one Arrow batch.
    check_crc : bool
        Whether to compare each body with its checksum.
    records : str
        ``"log"``: every record; ``"queues"``: what the queues contain.
    """

    path: str
    storage_options: dict[str, Any] | None = None
    topics: tuple[str, ...] | None = None
    topic_pattern: str | None = None
    queue_ids: dict[str, tuple[int, ...]] | None = None
    tags: tuple[str, ...] | None = None
    keys: tuple[str, ...] | None = None
    filter: tuple[str, str, bool] | None = None
    starting_offsets: Offsets | None = None
    ending_offsets: Offsets | None = None
    starting_timestamp: int | None = None
    ending_timestamp: int | None = None
    starting_physical_offset: int | None = None
    ending_physical_offset: int | None = None
    fail_on_data_loss: bool = True
    on_corruption: str = "fail"
    max_offsets_per_trigger: int | None = None
    max_bytes_per_trigger: int | None = None
    min_partitions: int | None = None
    max_records_per_partition: int | None = None
    max_partition_bytes: int = DEFAULT_PARTITION_BYTES
    columns: str = "core"
    include_properties: bool = False
    batch_rows: int = 8192
    batch_bytes: int = 4 << 20
    check_crc: bool = True
    records: str = "log"

    def __reduce__(self) -> Any:
        values = tuple(getattr(self, field.name) for field in fields(self))
        return shipped(__name__, "ReadOptions", values)

    def filters(self) -> dict[str, Any]:
        """Return the filters by topic, queue, tag, key, time and SQL as keywords of
        ``read_batches``.

        ``topic_pattern`` is not included: the decoder does not support patterns.
        """
        return {
            "topics": None if self.topics is None else list(self.topics),
            "tags": None if self.tags is None else list(self.tags),
            "keys": None if self.keys is None else list(self.keys),
            "queue_ids": None
            if self.queue_ids is None
            else {topic: list(ids) for topic, ids in self.queue_ids.items()},
            "begin": self.starting_timestamp,
            "end": self.ending_timestamp,
            "filter": None if self.filter is None else Sql92Filter.again(*self.filter),
        }

    def takes_topic(self, topic: str) -> bool:
        """Return whether messages of ``topic`` are selected."""
        if self.topics is not None and topic not in self.topics:
            return False
        return self.topic_pattern is None or bool(re.fullmatch(self.topic_pattern, topic))


def canonical(options: Mapping[str, str], names: tuple[str, ...], use: str) -> dict[str, str]:
    """Return the options under their names in ``names``.

    Parameters
    ----------
    options : mapping of str to str
        Names in any case.
    names : tuple of str
        The known names.
    use : str
        ``"reading"`` or ``"writing"``, for messages.

    Raises
    ------
    ConfigError
        For an unknown name, or an option given twice.
    """
    known = {name.lower(): name for name in names}
    if "subscribe" in known:
        known |= _ALIASES
    found: dict[str, str] = {}
    if not _OF_CATALOG.isdisjoint(map(str.lower, options)):
        raise ConfigError(
            "Spark does not pass the options of a catalog table to a Python source; use CREATE "
            "TEMPORARY VIEW … USING rocketstore OPTIONS (path '…') instead"
        )
    for given, value in options.items():
        lower = given.lower()
        if lower in _OF_SPARK:
            continue
        if lower not in known:
            raise ConfigError(_unknown(given, known, use))
        name = known[lower]
        if found.setdefault(name, value) != value:
            raise ConfigError(f"option {name} is given twice: {found[name]!r} and {value!r}")
    return found


def _unknown(given: str, known: dict[str, str], use: str) -> str:
    near = difflib.get_close_matches(given.lower(), known, n=1, cutoff=0.5)
    text = f"{given!r} is not an option for {use} rocketstore"
    if near:
        written = known[near[0]]
        if written.lower() != near[0]:
            written = {"includeheaders": "includeHeaders"}.get(near[0], near[0])
        return f"{text}; did you mean {written!r}?"
    return f"{text}; it must be one of {', '.join(sorted(set(known.values())))}"


def parse_write(options: Mapping[str, str]) -> dict[str, str]:
    """Return the options of the sink under their canonical names; the sink parses the values.

    Raises
    ------
    ConfigError
        For an unknown name, or a missing ``path``.
    """
    found = canonical(options, WRITE_NAMES, "writing")
    if not found.get("path"):
        raise ConfigError("give the store's directory: .save(path) or option('path', …)")
    return found


def parse_read(options: Mapping[str, str]) -> ReadOptions:
    """Return the options of a reader.

    Raises
    ------
    ConfigError
        For an unknown name, an invalid value, or options that contradict each other.
    """
    found = canonical(options, READ_NAMES, "reading")
    if not found.get("path"):
        raise ConfigError("give the store's directory: .load(path) or option('path', …)")
    chosen = [n for n in ("subscribe", "subscribePattern", "assign") if n in found]
    if len(chosen) > 1:
        raise ConfigError(f"give only one of {' and '.join(chosen)}")
    parsed = {
        _FIELDS[name][0]: _FIELDS[name][1](name, value)
        for name, value in found.items()
        if name in _FIELDS
    }
    if "assign" in found:
        parsed["queue_ids"] = _assigned(found["assign"])
        parsed["topics"] = tuple(parsed["queue_ids"])
    result = ReadOptions(**parsed)
    _check_ranges(result)
    for name in ("startingOffsets", "endingOffsets"):
        offsets = parsed.get(_FIELDS[name][0])
        for topic, queues in offsets.items() if isinstance(offsets, dict) else ():
            _check_asked(name, result, topic, queues)
    return result


def _check_ranges(options: ReadOptions) -> None:
    for first, last, what in (
        (options.starting_timestamp, options.ending_timestamp, "Timestamp"),
        (options.starting_physical_offset, options.ending_physical_offset, "PhysicalOffset"),
    ):
        if first is not None and last is not None and first > last:
            raise ConfigError(f"starting{what} {first} is after ending{what} {last}")


def _check_asked(name: str, options: ReadOptions, topic: str, queues: dict[int, int]) -> None:
    if not options.takes_topic(topic):
        raise ConfigError(f"{name} names the topic {topic!r}, which is not among those to read")
    asked = options.queue_ids[topic] if options.queue_ids is not None else None
    for queue_id in queues:
        if asked is not None and queue_id not in asked:
            raise ConfigError(f"{name} names queue {queue_id} of {topic!r}, which is not assigned")


# --- values -----------------------------------------------------------------------------------


def integer(name: str, value: str, *, at_least: int = 0, at_most: int = MAX_OFFSET) -> int:
    """Parse a decimal number. Raises ``ConfigError``, also if it is out of range."""
    text = str(value).strip()
    if not re.fullmatch(r"[+-]?[0-9]{1,19}", text) or not at_least <= int(text) <= at_most:
        limit = f"from {at_least} to {at_most}" if at_most < MAX_OFFSET else f"{at_least} or more"
        raise ConfigError(f"{name} is {value!r}; it must be a whole number, {limit}")
    return int(text)


def boolean(name: str, value: str) -> bool:
    """Parse ``true`` or ``false``. Raises ``ConfigError`` for anything else."""
    word = str(value).strip().lower()
    if word not in ("true", "false"):
        raise ConfigError(f"{name} is {value!r}; it must be true or false")
    return word == "true"


def size(name: str, value: str) -> int:
    """Parse ``4096``, ``64m`` or ``256MiB`` into bytes; units are powers of 1024, as in Spark.

    Raises ``ConfigError``, also for 0.
    """
    match = _SIZE.fullmatch(str(value).strip())
    nbytes = int(match[1]) << (10 * _POWERS[match[2].lower()]) if match else 0
    if not 0 < nbytes <= MAX_OFFSET:
        raise ConfigError(f"{name} is {value!r}; it must be a size such as 67108864, 64m or 256MiB")
    return nbytes


def _positive(name: str, value: str) -> int:
    return integer(name, value, at_least=1)


def _batch_rows(name: str, value: str) -> int:
    return integer(name, value, at_least=1, at_most=1 << 20)


def _batch_bytes(name: str, value: str) -> int:
    nbytes = size(name, value)
    if nbytes > 1 << 29:
        raise ConfigError(f"{name} is {value!r}; it must be at most 512 MiB")
    return nbytes


def _text(name: str, value: str) -> str:
    if not value.strip():
        raise ConfigError(f"{name} is empty")
    return value


def _words(separator: str | None) -> Callable[[str, str], tuple[str, ...]]:
    def split(name: str, value: str) -> tuple[str, ...]:
        words = tuple(word.strip() for word in value.split(separator) if word.strip())
        if not words:
            raise ConfigError(f"{name} is empty")
        return tuple(dict.fromkeys(words))

    return split


def _tags(name: str, value: str) -> tuple[str, ...] | None:
    words = tuple(dict.fromkeys(word.strip() for word in value.split("||") if word.strip()))
    return words if words and value.strip() != "*" else None


def _filter(name: str, value: str) -> tuple[str, str, bool]:
    try:
        made = Sql92Filter(_text(name, value))
    except FilterSyntaxError as error:
        raise ConfigError(f"{name}: {error}") from None
    return made.expression, made.broker_version, made.strict


def _pattern(name: str, value: str) -> str:
    try:
        re.compile(_text(name, value))
    except re.error as error:
        raise ConfigError(f"{name} is {value!r}, not a regular expression: {error}") from None
    return value


def _policy(name: str, value: str) -> str:
    word = value.strip().lower()
    if word not in CORRUPTION_POLICIES:
        raise ConfigError(f"{name} is {value!r}; it must be one of fail, skip, stop")
    return word


def _records(name: str, value: str) -> str:
    word = value.strip().lower()
    if word not in RECORD_WORDS:
        raise ConfigError(f"{name} is {value!r}; it must be log or queues")
    return word


def _json(name: str, value: str, example: str) -> dict[str, Any]:
    try:
        parsed = json.loads(value)
    except (ValueError, RecursionError):
        parsed = None
    if not isinstance(parsed, dict):
        raise ConfigError(f"{name} is {value!r}; it must be JSON such as {example}")
    return parsed


def _storage_options(name: str, value: str) -> dict[str, Any]:
    return _json(name, value, '{"endpoint_url": "http://127.0.0.1:9000"}')


_ASSIGN = '{"TopicA": [0, 1], "TopicB": [2]}'
_OFFSETS = '{"TopicA": {"0": 23, "1": -2}}'


def _assigned(value: str) -> dict[str, tuple[int, ...]]:
    parsed = _json("assign", value, _ASSIGN)
    for topic, ids in parsed.items():
        good = isinstance(ids, list) and all(type(i) is int and 0 <= i < 2**31 for i in ids)
        if not good or not topic:
            raise ConfigError(f"assign is {value!r}; it must be JSON such as {_ASSIGN}")
    if not parsed:
        raise ConfigError("assign names no topic")
    return {topic: tuple(dict.fromkeys(ids)) for topic, ids in parsed.items()}


def parse_offsets(name: str, value: str) -> Offsets:
    """Parse ``earliest``, ``latest``, or offsets by topic and queue.

    Parameters
    ----------
    name : str
        Name of the option, for messages.
    value : str
        One of the two words, or JSON: topic to queue to offset, where -2 is the earliest and -1 the
        latest. A broker level between topic and queue is accepted; its name is ignored.

    Raises
    ------
    ConfigError
        For anything else.
    """
    word = value.strip().lower()
    if word == "earliest":
        return "earliest"
    if word == "latest":
        return "latest"
    fault = f"{name} is {value!r}; it must be earliest, latest or JSON such as {_OFFSETS}"
    if not word.startswith("{"):
        raise ConfigError(fault)
    result: dict[str, dict[int, int]] = {}
    for topic, queues in _json(name, value, _OFFSETS).items():
        if not isinstance(queues, dict) or not topic:
            raise ConfigError(fault)
        if any(isinstance(inner, dict) for inner in queues.values()):
            if len(queues) != 1:
                raise ConfigError(f"{name}: {topic!r} names several brokers; a store has one")
            (queues,) = queues.values()
        offsets: dict[int, int] = {}
        for queue_id, offset in queues.items():
            if not re.fullmatch(r"[0-9]{1,9}", queue_id) or type(offset) is not int:
                raise ConfigError(fault)
            if not EARLIEST <= offset <= MAX_OFFSET:
                raise ConfigError(f"{name}: {offset} of {topic!r} is not a queue offset")
            offsets[int(queue_id)] = offset
        result[topic] = offsets
    return result


#: For each option: its field of ``ReadOptions``, and the parser of its text.
_FIELDS: dict[str, tuple[str, Callable[[str, str], Any]]] = {
    "path": ("path", _text),
    "storageOptions": ("storage_options", _storage_options),
    "subscribe": ("topics", _words(",")),
    "subscribePattern": ("topic_pattern", _pattern),
    "tags": ("tags", _tags),
    "keys": ("keys", _words(None)),
    "filter": ("filter", _filter),
    "startingOffsets": ("starting_offsets", parse_offsets),
    "endingOffsets": ("ending_offsets", parse_offsets),
    "startingTimestamp": ("starting_timestamp", integer),
    "endingTimestamp": ("ending_timestamp", integer),
    "startingPhysicalOffset": ("starting_physical_offset", integer),
    "endingPhysicalOffset": ("ending_physical_offset", integer),
    "failOnDataLoss": ("fail_on_data_loss", boolean),
    "onCorruption": ("on_corruption", _policy),
    "maxOffsetsPerTrigger": ("max_offsets_per_trigger", _positive),
    "maxBytesPerTrigger": ("max_bytes_per_trigger", size),
    "minPartitions": ("min_partitions", _positive),
    "maxRecordsPerPartition": ("max_records_per_partition", _positive),
    "maxPartitionBytes": ("max_partition_bytes", size),
    "columns": ("columns", _text),
    "includeProperties": ("include_properties", boolean),
    "batchRows": ("batch_rows", _batch_rows),
    "batchBytes": ("batch_bytes", _batch_bytes),
    "checkCrc": ("check_crc", boolean),
    "records": ("records", _records),
}
