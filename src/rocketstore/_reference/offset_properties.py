"""Properties with values known only at the append: light-queue offsets, inner-batch base."""

from __future__ import annotations

import re
from collections.abc import Iterator, Mapping, MutableMapping
from dataclasses import dataclass

from rocketstore import formats
from rocketstore._reference import put_arguments as arguments
from rocketstore.dialect import Dialect, LightOffsets
from rocketstore.status import AppendMessageStatus, PutMessageStatus

#: (topic, queue id), the key of the topic-queue table.
Key = tuple[bytes, int]
#: Status of a put and of its append.
Refusal = tuple[PutMessageStatus, AppendMessageStatus | None]

_ILLEGAL = PutMessageStatus.MESSAGE_ILLEGAL
_UNKNOWN: Refusal = (PutMessageStatus.UNKNOWN_ERROR, AppendMessageStatus.UNKNOWN_ERROR)
_LIGHT_PREFIX = formats.TOPIC_LMQ_PREFIX.encode()
#: Characters that no folder name may contain.
_UNSAFE = re.compile("[\x00-\x1f\x7f/]")
#: White space in Python but not in Java.
_NO_BLANKS = "\x85\xa0\u2007\u202f"


@dataclass(frozen=True)
class LightSwitches:
    """Light-queue settings of a store, under RocketMQ's names."""

    enable_lmq: bool = False
    enable_multi_dispatch: bool = False
    max_lmq_consume_queue_num: int = 20_000
    enable_lmq_quota: bool = False

    def gives_offsets(self, dialect: Dialect, topic: str, value: str | None) -> bool:
        """Return whether a message with this INNER_MULTI_DISPATCH ``value`` gets offsets."""
        by_lmq = dialect.light_offsets_by_lmq
        if not (self.enable_lmq if by_lmq else self.enable_multi_dispatch) or value is None:
            return False
        blank = all(unit.isspace() and unit not in _NO_BLANKS for unit in value)
        return not blank and dialect.gives_light_offsets(topic)


@dataclass(frozen=True)
class LightQueue:
    """A queue that a message names; ``key`` is None if the version assigns no offset."""

    key: Key | None
    #: How often the message named it before, in versions that count repeats.
    earlier: int

    @property
    def is_light(self) -> bool:
        """Return whether it counts towards the limit of light queues."""
        return self.key is not None and self.key[0].startswith(_LIGHT_PREFIX)


def light_names(value: str) -> list[str]:
    """Return the names in INNER_MULTI_DISPATCH, split as in Java; raise for an invalid one."""
    names = value.split(formats.MULTI_DISPATCH_SEPARATOR)
    while names and not names[-1]:
        names.pop()
    for name in names or [""]:
        if not name or name in (".", "..") or _UNSAFE.search(name):
            raise ValueError(
                f"{formats.PROPERTY_INNER_MULTI_DISPATCH} {value!r} names {name!r}, "
                "which cannot be a queue"
            )
    return names


def light_queues(
    dialect: Dialect, switches: LightSwitches, names: list[str], queue_id: int
) -> tuple[LightQueue, ...]:
    """Return the queues that a message of ``queue_id`` names, by the version's rules."""
    found: list[LightQueue] = []
    seen: dict[str, int] = {}
    for name in names:
        is_light = switches.enable_lmq and name.startswith(formats.TOPIC_LMQ_PREFIX)
        if is_light or dialect.light_offsets == LightOffsets.ANY_NAME:
            key = (arguments.java_utf8(name), 0 if is_light else queue_id)
            earlier = seen.get(name, 0) if dialect.light_offsets_count_on else 0
            found.append(LightQueue(key, earlier))
            seen[name] = seen.get(name, 0) + 1
        else:
            found.append(LightQueue(None, 0))
    return tuple(found)


@dataclass(frozen=True)
class OffsetLimits:
    """The limits for a record with late properties."""

    body_first: bool
    record_nbytes: int
    properties: Refusal
    size: Refusal
    #: The record is refused above this number of light queues; None without a limit.
    light_count: int | None
    #: The limit applies only to queues that do not exist yet.
    quota: bool

    @classmethod
    def of(
        cls, dialect: Dialect, switches: LightSwitches, max_nbytes: int, extra: int, *, light: bool
    ) -> OffsetLimits:
        """Return the limits of a version; ``light``: the message names light queues."""
        quota = dialect.light_limit and dialect.light_offsets == LightOffsets.ALL
        counts = light and switches.enable_lmq and switches.enable_multi_dispatch
        counts = counts and dialect.light_limit and (switches.enable_lmq_quota or not quota)
        count = switches.max_lmq_consume_queue_num if counts else None
        if light and dialect.light_offsets == LightOffsets.ALL:
            long_properties = (_ILLEGAL, AppendMessageStatus.PROPERTIES_SIZE_EXCEEDED)
            size = (_ILLEGAL, AppendMessageStatus.MESSAGE_SIZE_EXCEEDED)
            return cls(True, max_nbytes, long_properties, size, count, quota)
        if light and dialect.light_offsets == LightOffsets.ANY_NAME:
            return cls(False, max_nbytes + extra, _UNKNOWN, _UNKNOWN, count, quota)
        properties = (PutMessageStatus.PROPERTIES_SIZE_EXCEEDED, None)
        return cls(False, max_nbytes + extra, properties, (_ILLEGAL, None), count, quota)

    def exceeded_by(
        self, lights: tuple[LightQueue, ...], queues: Mapping[Key, int]
    ) -> Refusal | None:
        """Return the refusal if there are too many light queues for a message naming ``lights``."""
        if self.light_count is None:
            return None
        count = sum(topic.startswith(_LIGHT_PREFIX) for topic, _ in queues)
        new = any(light.is_light and light.key not in queues for light in lights)
        if count >= self.light_count and new if self.quota else count > self.light_count:
            return PutMessageStatus.LMQ_CONSUME_QUEUE_NUM_EXCEEDED, None
        return None


@dataclass(frozen=True)
class OffsetProperties:
    """Properties with places for the values that the append fills in.

    ``pairs`` are as stored, except for the empty values of INNER_MULTI_QUEUE_OFFSET (unless
    ``lights`` is None) and INNER_BASE (``has_base``).
    """

    pairs: dict[str, str]
    lights: tuple[LightQueue, ...] | None
    has_base: bool
    trailing_separator: bool
    limits: OffsetLimits
    #: The record uses up the offsets that it stores.
    takes: bool
    #: The next offset follows the stored one, not the one in the table.
    absolute: bool

    def offsets(self, queues: Mapping[Key, int]) -> Iterator[int | None]:
        """Yield the offsets of the light queues, None for queues without one."""
        for light in self.lights or ():
            yield None if light.key is None else queues.get(light.key, 0) + light.earlier

    def compose(self, queues: Mapping[Key, int], queue_offset: int) -> bytes:
        """Return the properties for a record that takes ``queue_offset``."""
        pairs = dict(self.pairs)
        if self.has_base:
            pairs[formats.PROPERTY_INNER_BASE] = str(queue_offset)
        if self.lights is not None:
            pairs[formats.PROPERTY_INNER_MULTI_QUEUE_OFFSET] = (
                formats.MULTI_DISPATCH_SEPARATOR.join(
                    "" if offset is None else str(offset) for offset in self.offsets(queues)
                )
            )
        return arguments.encode(pairs, self.trailing_separator)

    def take(
        self, queues: MutableMapping[Key, int], stored: list[int | None], own: Key | None
    ) -> None:
        """Advance the light queues, except ``own``, after a record with offsets ``stored``."""
        for light, offset in zip(self.lights or (), stored, strict=True):
            if light.key is None or offset is None:
                continue
            if not self.takes:
                queues.setdefault(light.key, 0)
            elif self.absolute:
                queues[light.key] = offset + 1
            elif light.key != own:
                queues[light.key] = queues.get(light.key, 0) + 1
