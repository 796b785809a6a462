"""Entries of the broker's tables as dataclasses: decoded tolerantly, encoded without loss.

Fields have RocketMQ's names in snake_case. Unknown fields (of newer versions, or of plugins) are
kept in ``others`` and written back.
"""

from __future__ import annotations

import dataclasses
import functools
import re
from dataclasses import dataclass, field
from typing import Any, TypeVar

from rocketstore.config_managers.files import ContentError

_INT32 = 2**31
_INT64 = 2**63
_TRUTH = {"true": True, "false": False, "1": True, "0": False}


@dataclass(slots=True, kw_only=True)
class DataVersion:
    """Counts changes of a table; brokers compare it.

    Attributes
    ----------
    counter : int
    timestamp : int
        Epoch ms of the last change.
    state_version : int
        5.x; always 0 except in controller mode.
    """

    counter: int = 0
    timestamp: int = 0
    state_version: int = 0
    others: dict[str, Any] = field(default_factory=dict)

    def next_version(self, now_ms: int, changes: int = 1) -> None:
        """Count changes, in 64 bits as a broker does."""
        self.counter = (self.counter + changes + _INT64) % (2 * _INT64) - _INT64
        self.timestamp = now_ms


@dataclass(slots=True, kw_only=True)
class TopicConfig:
    """One topic.

    Attributes
    ----------
    topic_name : str
    read_queue_nums, write_queue_nums : int
    perm : int
        4 read, 2 write, 1 inherited by topics created from it.
    topic_filter_type : str
        ``SINGLE_TAG`` or ``MULTI_TAG``.
    topic_sys_flag : int
    order : bool
    attributes : dict of str to str
        5.x, for example ``{"queue.type": "BatchCQ"}``.
    """

    topic_name: str
    read_queue_nums: int = 16
    write_queue_nums: int = 16
    perm: int = 6
    topic_filter_type: str = "SINGLE_TAG"
    topic_sys_flag: int = 0
    order: bool = False
    attributes: dict[str, str] = field(default_factory=dict)
    others: dict[str, Any] = field(default_factory=dict)


@dataclass(slots=True, kw_only=True)
class SubscriptionGroupConfig:
    """One consumer group.

    Attributes
    ----------
    group_name : str
    consume_enable, consume_from_min_enable, consume_broadcast_enable : bool
    consume_message_orderly : bool
    retry_queue_nums, retry_max_times : int
    group_retry_policy : dict
        5.x, as RocketMQ writes it.
    broker_id, which_broker_when_consume_slowly : int
    notify_consumer_ids_changed_enable : bool
    group_sys_flag : int
    consume_timeout_minute : int
    attributes : dict of str to str
    subscription_data_set : list or None
        5.x, as RocketMQ writes it; omitted if ``None``.
    """

    group_name: str
    consume_enable: bool = True
    consume_from_min_enable: bool = True
    consume_broadcast_enable: bool = True
    consume_message_orderly: bool = False
    retry_queue_nums: int = 1
    retry_max_times: int = 16
    group_retry_policy: dict[str, Any] = field(default_factory=lambda: {"type": "CUSTOMIZED"})
    broker_id: int = 0
    which_broker_when_consume_slowly: int = 1
    notify_consumer_ids_changed_enable: bool = True
    group_sys_flag: int = 0
    consume_timeout_minute: int = 15
    attributes: dict[str, str] = field(default_factory=dict)
    subscription_data_set: list[Any] | None = None
    others: dict[str, Any] = field(default_factory=dict)


@dataclass(slots=True, kw_only=True)
class BloomFilterData:
    """The bits of one consumer in the bloom filters of ConsumeQueueExt.

    Attributes
    ----------
    bit_pos : list of int
    bit_num : int
        Number of bits of the whole filter.
    """

    bit_pos: list[int] = field(default_factory=list)
    bit_num: int = 0
    others: dict[str, Any] = field(default_factory=dict)


@dataclass(slots=True, kw_only=True)
class ConsumerFilterData:
    """One consumer group's filter on one topic.

    Attributes
    ----------
    consumer_group, topic : str
    expression : str
    expression_type : str
        ``SQL92``.
    born_time, dead_time : int
        Epoch ms; dead time 0 means alive.
    client_version : int
    bloom_filter_data : BloomFilterData or None
    """

    consumer_group: str
    topic: str
    expression: str = ""
    expression_type: str = "SQL92"
    born_time: int = 0
    dead_time: int = 0
    client_version: int = 0
    bloom_filter_data: BloomFilterData | None = None
    others: dict[str, Any] = field(default_factory=dict)

    @property
    def dead(self) -> bool:
        """Whether the consumer is gone."""
        return self.dead_time >= self.born_time


#: Fields that RocketMQ writes, but derives from others when it reads.
_DERIVED = {(ConsumerFilterData, "dead")}

T = TypeVar(
    "T", DataVersion, TopicConfig, SubscriptionGroupConfig, BloomFilterData, ConsumerFilterData
)

_fields_of: dict[type[Any], dict[str, dataclasses.Field[Any]]] = {}

# --- decoding ---------------------------------------------------------------------------------


def as_object(value: Any, where: str) -> dict[str, Any]:
    """Return ``value`` if it is an object; null is an empty object."""
    if value is None:
        return {}
    if not isinstance(value, dict):
        raise ContentError(f"{where}: expected an object, found {shown(value)}")
    return value


def as_texts(value: Any, where: str) -> dict[str, str]:
    """Return ``value`` as an object of strings."""
    return {key: as_text(text, f"{where}.{key}") for key, text in as_object(value, where).items()}


def as_text(value: Any, where: str) -> str:
    """Return ``value`` as a string; numbers are converted as they are written."""
    if isinstance(value, str):
        return value
    if isinstance(value, int | float) and not isinstance(value, bool):
        return str(value)
    raise ContentError(f"{where}: expected a string, found {shown(value)}")


def as_integer(value: Any, where: str, limit: int = _INT64) -> int:
    """Return a whole number from ``-limit`` to ``limit - 1``; quoted digits are accepted."""
    if isinstance(value, str) and re.fullmatch(r"[+-]?[0-9]{1,20}", value.strip()):
        value = int(value)
    if isinstance(value, float) and value.is_integer():
        value = int(value)
    if not isinstance(value, int) or isinstance(value, bool):
        raise ContentError(f"{where}: expected a whole number, found {shown(value)}")
    if not -limit <= value < limit:
        raise ContentError(f"{where}: {shown(value)} has more than {limit.bit_length()} bits")
    return value


def as_truth(value: Any, where: str) -> bool:
    """Return true or false; quoted values, 1 and 0 are accepted."""
    found = _TRUTH.get(str(value).lower()) if isinstance(value, bool | int | str) else None
    if found is None:
        raise ContentError(f"{where}: expected true or false, found {shown(value)}")
    return found


def as_offsets(value: Any, where: str) -> dict[int, int]:
    """Return an object of whole numbers by queue id or delay level."""
    return {
        as_integer(key, where, _INT32): as_integer(offset, f"{where}.{key}")
        for key, offset in as_object(value, where).items()
    }


def decode_entry(kind: type[T], value: Any, where: str, **names: str) -> T:
    """Decode an object to one of the dataclasses above.

    Parameters
    ----------
    kind : type
    value : Any
        The object that was read.
    where : str
        Its path, for messages.
    **names : str
        Fields that an entry may omit because the table's key contains them.

    Raises
    ------
    ContentError
        If a value has the wrong type; the text has its path.
    """
    fields = _fields(kind)
    values: dict[str, Any] = dict(names)
    others = {}
    for key, inner in as_object(value, where).items():
        known = fields.get(_folded(key))
        if known is None and (kind, key) not in _DERIVED:
            others[key] = inner
        elif known is not None and inner is not None:
            values[known.name] = _decode_field(str(known.type), inner, f"{where}.{key}")
    return kind(**values, others=others)


def _fields(kind: type[Any]) -> dict[str, dataclasses.Field[Any]]:
    if kind not in _fields_of:
        items = [item for item in dataclasses.fields(kind) if item.name != "others"]
        _fields_of[kind] = {_folded(item.name): item for item in items}
    return _fields_of[kind]


def _folded(name: str) -> str:
    """Return the name without case, underscores and hyphens, which fastjson 1 ignores."""
    return name.replace("_", "").replace("-", "").lower()


def _decode_field(kind: str, value: Any, where: str) -> Any:
    if kind == "int":
        return as_integer(value, where)
    if kind == "bool":
        return as_truth(value, where)
    if kind == "str":
        return as_text(value, where)
    if kind == "dict[str, str]":
        return as_texts(value, where)
    if kind == "dict[str, Any]":
        return as_object(value, where)
    if kind == "BloomFilterData | None":
        return decode_entry(BloomFilterData, value, where)
    if not isinstance(value, list):
        raise ContentError(f"{where}: expected a list, found {shown(value)}")
    if kind == "list[int]":
        return [as_integer(inner, f"{where}[{i}]", _INT32) for i, inner in enumerate(value)]
    return value


def shown(value: Any) -> str:
    """Describe a value, for messages."""
    text = repr(value) if not isinstance(value, dict | list) else type(value).__name__
    return text if len(text) <= 40 else f"{text[:37]}..."


# --- encoding ---------------------------------------------------------------------------------


def encode_entry(entry: Any) -> dict[str, Any]:
    """Return the object that RocketMQ reads as ``entry``; fields that are ``None`` are omitted."""
    result = dict(entry.others)
    for item in dataclasses.fields(entry):
        value = getattr(entry, item.name)
        if item.name == "others" or value is None:
            continue
        result[_camel_case(item.name)] = (
            encode_entry(value) if dataclasses.is_dataclass(value) else value
        )
    return result


def encode_offsets(offsets: dict[int, int]) -> dict[str, int]:
    """Return offsets with string keys, which every RocketMQ reads into maps with integer keys."""
    return {str(key): offsets[key] for key in sorted(offsets)}


@functools.cache
def _camel_case(name: str) -> str:
    return re.sub(r"_(\w)", lambda match: match[1].upper(), name)
