"""When a put message is due, and whether it may wait for that: RocketMQ's rules for timer messages.

Both bodies of the appender ask these rules, for messages with one of the three wishes only.
Source: RocketMQ ``broker/util/HookUtils.java``.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Mapping
from typing import NamedTuple

from rocketstore import formats
from rocketstore.status import PutMessageStatus

#: Properties with a delay, and the ms of their unit; the first one that is present counts.
_DELAYS = ((formats.PROPERTY_TIMER_DELAY_SEC, 1000), (formats.PROPERTY_TIMER_DELAY_MS, 1))
_JAVA_LONG = re.compile(r"[+-]?[0-9]+")
_LONG_DIGITS = 19
#: Value of ``TimerPlace.out`` for a message that is due already.
DUE_NOW = -1


class TimerPlace(NamedTuple):
    """Where a timer message goes.

    Attributes
    ----------
    status : PutMessageStatus or None
        Why it is refused.
    out : int
        Time of its slot, epoch ms; ``DUE_NOW``: it is stored on its own topic immediately.
    """

    status: PutMessageStatus | None
    out: int = DUE_NOW


_ILLEGAL = TimerPlace(PutMessageStatus.WHEEL_TIMER_MSG_ILLEGAL)


class TimerRules:
    """The rules of one store with the timer switched on.

    Parameters
    ----------
    precision_ms : int
        Width of a slot.
    max_delay_ms : int
        Longest delay.
    is_congested : callable, optional
        Asked for a slot's time, in epoch ms: whether it takes no more messages.

    Notes
    -----
    Threading: immutable; ``is_congested`` is called by any thread that puts.
    """

    def __init__(
        self,
        precision_ms: int,
        max_delay_ms: int,
        is_congested: Callable[[int], bool] | None = None,
    ) -> None:
        self._precision_ms = precision_ms
        self._max_delay_ms = max_delay_ms
        self._is_congested = is_congested

    def place(self, properties: Mapping[str, str], now: int) -> TimerPlace:
        """Return where a message with a wish goes.

        Parameters
        ----------
        properties : mapping of str to str
            With one of ``TIMER_DELAY_SEC``, ``TIMER_DELAY_MS``, ``TIMER_DELIVER_MS``.
        now : int
            Epoch ms.
        """
        due = _due(properties, now)
        if due is None:
            return _ILLEGAL
        if due <= now:
            deletes = formats.PROPERTY_TIMER_DELETE_UNIQUE_KEY in properties
            return _ILLEGAL if deletes else TimerPlace(None)
        if due - now > self._max_delay_ms:
            return _ILLEGAL
        out = (due - 1) // self._precision_ms * self._precision_ms
        if self._is_congested is not None and self._is_congested(out):
            return TimerPlace(PutMessageStatus.WHEEL_TIMER_FLOW_CONTROL)
        return TimerPlace(None, out)


def _due(properties: Mapping[str, str], now: int) -> int | None:
    """Return the time that a message asks for; ``None`` if that is not a Java ``long``."""
    for name, factor in _DELAYS:
        text = properties.get(name)
        if text is not None:
            delay = _java_long(text)
            return None if delay is None else now + delay * factor
    return _java_long(properties.get(formats.PROPERTY_TIMER_DELIVER_MS, ""))


def _java_long(text: str) -> int | None:
    """Return ``Long.parseLong`` of ASCII digits."""
    if not _JAVA_LONG.fullmatch(text) or len(text.lstrip("+-").lstrip("0")) > _LONG_DIGITS:
        return None
    number = int(text)
    return number if -(2**63) <= number < 2**63 else None
