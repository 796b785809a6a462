"""Unique keys in the format of RocketMQ's client: origin, time and a counter."""

from __future__ import annotations

import datetime
import itertools
import os
import struct
import time
from collections.abc import Callable

from rocketstore import formats, kernels

_KEY_HEAD = struct.Struct(">HI")
_KEY_TAIL = struct.Struct(">HIiH")
_COUNTER_LIMIT = 1 << 16
_PORT_NBYTES = next(field.nbytes for field in formats.HOST_V4.fields if field.name == "port")


class UniqueKeyMaker:
    """Creates the values of ``UNIQ_KEY``, upper-case hex.

    A key consists of address (4 or 16 bytes), process id (2), a random number of this object (4),
    milliseconds of the month (4) and a counter (2). RocketMQ's tools read the time.

    Parameters
    ----------
    host : str
        ``"10.0.0.1:10911"``; keys contain its address.
    clock : callable or None
        Epoch ms; the system's clock if ``None``.
    zone : tzinfo or None
        Time zone in which months begin; local time if ``None``.

    Notes
    -----
    Threading: any thread. Two objects of the same process differ in their random numbers.
    Source: RocketMQ ``common/message/MessageClientIDSetter.java``.
    """

    def __init__(
        self,
        host: str,
        clock: Callable[[], int] | None = None,
        zone: datetime.tzinfo | None = None,
    ) -> None:
        address_and_port = kernels.message.parse_host(host)
        self._address = address_and_port[:-_PORT_NBYTES].hex().upper()
        self._own_number = int.from_bytes(os.urandom(4))
        self._counter = itertools.count(int.from_bytes(os.urandom(2)))
        self._clock = clock if clock is not None else _now_ms
        self._zone = zone
        #: Start of the current and of the next month, epoch ms; replaced as a whole.
        self._month = (0, 0)

    @property
    def prefix(self) -> bytes:
        """The beginning of every key of this object, in this process."""
        numbers = os.getpid() % _COUNTER_LIMIT, self._own_number
        return (self._address + _KEY_HEAD.pack(*numbers).hex().upper()).encode()

    def month_of(self, now_ms: int) -> tuple[int, int]:
        """Return the start of the month of ``now_ms`` and of the next one, epoch ms."""
        return month_around(now_ms, self._zone)

    def __call__(self) -> str:
        """Return the next key."""
        now = self._clock()
        first, following = self._month
        if not first <= now < following:
            first, following = self._month = month_around(now, self._zone)
        tail = _KEY_TAIL.pack(
            os.getpid() % _COUNTER_LIMIT,
            self._own_number,
            (now - first) & 0x7FFFFFFF,
            next(self._counter) % _COUNTER_LIMIT,
        )
        return self._address + tail.hex().upper()


def month_around(now_ms: int, zone: datetime.tzinfo | None) -> tuple[int, int]:
    """Return the start, in epoch ms, of the month of ``now_ms`` and of the next month."""
    try:
        now = datetime.datetime.fromtimestamp(now_ms / 1000, zone)
        first = now.replace(day=1, hour=0, minute=0, second=0, microsecond=0, fold=0)
        following = first.replace(year=first.year + first.month // 12, month=first.month % 12 + 1)
        return int(first.timestamp() * 1000), int(following.timestamp() * 1000)
    except (OverflowError, ValueError, OSError):
        # The clock is outside the calendar: there is no month, but keys still work.
        return now_ms, now_ms + 1


def _now_ms() -> int:
    return time.time_ns() // 1_000_000
