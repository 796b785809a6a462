"""The Java types of the broker's tables: values that RocketMQ does not read.

fastjson converts values where it can, such as ``"5"`` to 5. The checks reject what the readers of
4.9.8, 5.1.4, 5.3.3 (fastjson 1), 5.4.0 and 5.5.0 (fastjson 2) rejected in tests. They also reject
values that 5.4.0 reads as another number. Strings, and members that no version reads, are not
checked.
"""

from __future__ import annotations

import re
from collections.abc import Callable
from typing import Any

from rocketstore.config_managers.files import ContentError
from rocketstore.config_managers.tables import shown
from rocketstore.dialect import Dialect

#: ``check(value, where, dialect)`` raises ``ContentError`` if the dialect does not read the value.
Check = Callable[[Any, str, Dialect], None]

_WHOLE = re.compile(r"[+-]?[0-9]+")
_NUMBER = re.compile(r"[+-]?[0-9]+(\.[0-9]*)?([eE][+-]?[0-9]+)?\s*")
_NOTHING = ("", "null", "NULL")
_TRUTHS = ("true", "false", "1", "0", "y", "n", "t", "f", *map(str.lower, _NOTHING))


def _refuse(value: Any, where: str, wanted: str) -> None:
    raise ContentError(f"{where}: expected {wanted}, found {shown(value)}")


def whole(bits: int, *, needed: bool = False, or_object: bool = False) -> Check:
    """Check for a whole number of ``bits`` bits.

    ``needed`` forbids null. With ``or_object``, fastjson 2 accepts an object, as for 32 bits.
    """
    limit, wanted = 1 << (bits - 1), f"a whole number of {bits} bits"

    def check(value: Any, where: str, dialect: Dialect) -> None:
        if value is None or (isinstance(value, str) and value in _NOTHING):
            fault = needed
        elif isinstance(value, bool | float):
            fault = False
        elif isinstance(value, int):
            # fastjson 1 keeps the low 64 bits of a longer number, but rejects 2**63.
            wraps = bits == 64 and not needed and not dialect.fastjson_2 and abs(value) >= 1 << 64
            fault = not -limit <= value < limit and not wraps
        elif isinstance(value, str):
            fault = _is_no_number(value, limit, dialect)
        elif isinstance(value, list):
            fault = not dialect.fastjson_2 or len(value) != 1 or not isinstance(value[0], int)
        else:
            fault = not dialect.fastjson_2 or not (or_object or bits == 32)
        if fault:
            _refuse(value, where, wanted)

    return check


def _is_no_number(value: str, limit: int, dialect: Dialect) -> bool:
    if dialect.fastjson_2 and value.lower() in ("true", "false"):
        return False
    if _WHOLE.fullmatch(value):
        return len(value) > 20 or not -limit <= int(value) < limit
    return not _NUMBER.fullmatch(value)


def truth(value: Any, where: str, dialect: Dialect) -> None:
    """Check for true or false."""
    if isinstance(value, str):
        fault = value.lower() not in _TRUTHS
    elif isinstance(value, list):
        fault = not dialect.fastjson_2 or len(value) != 1 or isinstance(value[0], str | dict | list)
    elif isinstance(value, int):
        fault = not dialect.fastjson_2 and not -(2**31) <= value < 2**31
    else:
        fault = isinstance(value, dict)
    if fault:
        _refuse(value, where, "true or false")


def one_of(count: int) -> Check:
    """Check for a name or number of one of ``count`` constants; unknown names are read as null."""

    def check(value: Any, where: str, dialect: Dialect) -> None:
        is_number = isinstance(value, int) and not isinstance(value, bool) and 0 <= value < count
        if value is not None and not isinstance(value, str) and not is_number:
            _refuse(value, where, "a name")

    return check


def _is_nothing(value: Any) -> bool:
    return value is None or value == [] or (isinstance(value, str) and value in _NOTHING)


def _is_list_of_one(value: Any) -> bool:
    """Return whether it is a list of one object, which some readers accept as the object."""
    return isinstance(value, list) and len(value) == 1 and isinstance(value[0], dict)


def counter(value: Any, where: str, dialect: Dialect) -> None:
    """Check for an ``AtomicLong`` whose number is read at once."""
    if not (dialect.fastjson_2 and isinstance(value, str) and value in _NOTHING):
        whole(64, needed=True, or_object=True)(value, where, dialect)


def bean(needed: bool = False, /, **fields: Check) -> Check:
    """Check for an object with these members."""

    def check(value: Any, where: str, dialect: Dialect) -> None:
        if not isinstance(value, dict):
            if needed or not _is_nothing(value):
                _refuse(value, where, "an object")
            return
        for name, of_field in fields.items():
            if name in value:
                of_field(value[name], f"{where}.{name}", dialect)

    return check


def table(of_value: Check, *, by_number: bool = False, needed: bool = False) -> Check:
    """Check for a map whose keys are 32-bit numbers if ``by_number``, else strings."""

    def check(value: Any, where: str, dialect: Dialect) -> None:
        if not isinstance(value, dict):
            if not _is_list_of_one(value) and (needed or not _is_nothing(value)):
                _refuse(value, where, "an object")
            return
        for key, inner in value.items():
            if by_number and not _is_key(key):
                _refuse(key, where, "a whole number of 32 bits")
            of_value(inner, f"{where}.{key}", dialect)

    return check


def _is_key(key: str) -> bool:
    if _WHOLE.fullmatch(key):
        return len(key) < 20 and -(2**31) <= int(key) < 2**31
    return _NUMBER.fullmatch(key) is not None or key in ("true", "false")


def texts(value: Any, where: str, dialect: Dialect) -> None:
    """Check for a map of strings."""
    table(anything)(value, where, dialect)


def row(of_item: Check, *, or_object: bool = False) -> Check:
    """Check for a list; with ``or_object``, accept an object, as some readers do."""

    def check(value: Any, where: str, dialect: Dialect) -> None:
        if isinstance(value, list):
            for number, one in enumerate(value):
                of_item(one, f"{where}[{number}]", dialect)
        elif isinstance(value, int | float) or (isinstance(value, dict) and not or_object):
            _refuse(value, where, "a list")

    return check


def since(version: tuple[int, int, int], of_value: Check) -> Check:
    """Apply a check only for versions from ``version`` on, which read the member."""

    def check(value: Any, where: str, dialect: Dialect) -> None:
        if dialect.version >= version:
            of_value(value, where, dialect)

    return check


def anything(value: Any, where: str, dialect: Dialect) -> None:
    """Accept any value: strings, and members that are not read."""


_INT, _LONG, _OFFSET = whole(32), whole(64), whole(64, needed=True)
_FIVE = (5, 0, 0)
_NEEDED = True


def _version(*, needed: bool) -> Check:
    return bean(needed, counter=counter, timestamp=_LONG, stateVersion=since(_FIVE, _LONG))


_TOPIC = bean(
    _NEEDED, readQueueNums=_INT, writeQueueNums=_INT, perm=_INT, topicFilterType=one_of(2),
    topicSysFlag=_INT, order=truth, attributes=since(_FIVE, texts),
)  # fmt: skip
_RETRY_POLICY = bean(
    type=one_of(2),
    exponentialRetryPolicy=bean(initial=_LONG, max=_LONG, multiplier=_LONG),
    customizedRetryPolicy=bean(next=row(_LONG)),
)
_GROUP = bean(
    _NEEDED, consumeEnable=truth, consumeFromMinEnable=truth, consumeBroadcastEnable=truth,
    retryQueueNums=_INT, retryMaxTimes=_INT, brokerId=_LONG, whichBrokerWhenConsumeSlowly=_LONG,
    notifyConsumerIdsChangedEnable=truth, consumeMessageOrderly=since(_FIVE, truth),
    groupRetryPolicy=since(_FIVE, _RETRY_POLICY), groupSysFlag=since(_FIVE, _INT),
    consumeTimeoutMinute=since(_FIVE, _INT), attributes=since(_FIVE, texts),
    subscriptionDataSet=since(_FIVE, row(bean(version=_LONG), or_object=True)),
)  # fmt: skip
_OFFSETS = table(table(_OFFSET, by_number=True, needed=True), needed=True)
# Brokers also read null as a table of offsets, but every commit then fails.
_SHARED: dict[str, Check] = {
    "offsetTable": _OFFSETS,
    "groupTopicMap": since(_FIVE, table(row(anything, or_object=True))),
}
_FILTER = bean(
    _NEEDED, bornTime=_LONG, deadTime=_LONG, clientVersion=_LONG,
    bloomFilterData=bean(bitPos=row(_INT), bitNum=_INT),
)  # fmt: skip
_ORDER = bean(
    _NEEDED, popTime=_LONG, i=_LONG, l=_LONG, cm=_LONG, o=row(_LONG),
    ot=table(anything, by_number=False),
)  # fmt: skip
_MAPPING = bean(
    _NEEDED, totalQueues=_INT, epoch=_LONG, dirty=truth,
    currIdMap=table(whole(32, needed=True), by_number=True),
)  # fmt: skip
_COUNTS = table(bean(_NEEDED, count=whole(64, or_object=True), timeStamp=_LONG), needed=True)

#: The check for each whole table.
TYPES: dict[str, Check] = {
    "topics.json": bean(
        topicConfigTable=table(_TOPIC, needed=True), dataVersion=_version(needed=True)
    ),
    "subscriptionGroup.json": bean(
        subscriptionGroupTable=table(_GROUP, needed=True),
        forbiddenTable=since(_FIVE, table(table(whole(32, needed=True), needed=True))),
        dataVersion=_version(needed=True),
    ),
    "consumerOffset.json": bean(
        **_SHARED,
        dataVersion=since(_FIVE, _version(needed=True)),
        pullOffsetTable=since((5, 5, 0), table(table(_OFFSET, by_number=True, needed=True))),
    ),
    "lmqConsumerOffset.json": bean(
        **_SHARED,
        dataVersion=since(_FIVE, _version(needed=False)),
        lmqOffsetTable=table(_OFFSET, needed=True),
    ),
    "delayOffset.json": bean(
        offsetTable=table(_OFFSET, by_number=True, needed=True),
        dataVersion=since(_FIVE, _version(needed=False)),
    ),
    "consumerFilter.json": bean(
        filterDataByTopic=table(bean(_NEEDED, groupFilterData=table(_FILTER, needed=True)))
    ),
    "consumerOrderInfo.json": bean(table=table(table(_ORDER, by_number=True, needed=True))),
    "topicQueueMapping.json": bean(
        topicQueueMappingInfoMap=table(_MAPPING, needed=True), dataVersion=_version(needed=True)
    ),
    "timermetrics": bean(timingCount=_COUNTS, dataVersion=_version(needed=True)),
    "transactionMetrics": bean(transactionCount=_COUNTS, dataVersion=_version(needed=True)),
}
