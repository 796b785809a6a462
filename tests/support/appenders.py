"""Logs in memory under an appender of either body, and calls made on both bodies at once."""

from __future__ import annotations

from collections.abc import Callable
from types import SimpleNamespace
from typing import Any

from support.kernel_bodies import NATIVE, REFERENCE, Bodies

FIRST_CLOCK = 1_700_000_000_000


def message(topic: str = "T", body: Any = b"b", **values: Any) -> SimpleNamespace:
    fields: dict[str, Any] = {
        "queue_id": 0,
        "flag": 0,
        "sys_flag": 0,
        "born_timestamp": None,
        "born_host": None,
        "store_host": None,
        "reconsume_times": 0,
        "prepared_transaction_offset": 0,
        "properties": {},
    }
    return SimpleNamespace(topic=topic, body=body, **{**fields, **values})


def batch(*messages: Any, **values: Any) -> SimpleNamespace:
    return SimpleNamespace(**{**vars(message()), **values}, messages=list(messages))


def stored(log: Log, offset: int = 0) -> Any:
    """The record at ``offset`` of a log, decoded."""
    base = offset - offset % log.segment_nbytes
    segment = log.segments[base // log.segment_nbytes]
    view = NATIVE.message.StoredMessage
    return view(segment, offset - base, base, base + log.segment_nbytes)


class Log:
    """An appender over ``bytearray`` segments that it makes when asked for room.

    Parameters
    ----------
    kernels : Bodies
    segment_nbytes : int
    extent_nbytes : int, optional
        The frontier moves by this much each time; by default a segment is allocated whole.
    options
        Of the ``Appender``; ``clock`` counts milliseconds unless given.
    """

    def __init__(
        self,
        kernels: Bodies,
        segment_nbytes: int = 4096,
        extent_nbytes: int | None = None,
        **options: Any,
    ) -> None:
        self.segment_nbytes = segment_nbytes
        self.extent_nbytes = segment_nbytes if extent_nbytes is None else extent_nbytes
        self.segments: list[bytearray] = []
        self.rolls: list[int] = []
        self.extends: list[int] = []
        self.clock = FIRST_CLOCK
        options.setdefault("clock", self.tick)
        self.appender = kernels.commit_log.Appender(
            roll=self.roll, extend=self.extend, segment_nbytes=segment_nbytes, **options
        )

    def tick(self) -> int:
        self.clock += 1
        return self.clock

    def roll(self, needed_nbytes: int) -> None:
        self.rolls.append(needed_nbytes)
        base = len(self.segments) * self.segment_nbytes
        self.segments.append(bytearray(self.segment_nbytes))
        frontier = min(self.extent_nbytes, self.segment_nbytes)
        self.appender.attach(self.segments[-1], base, 0, frontier)

    def extend(self, end_position: int) -> None:
        self.extends.append(end_position)
        rounded = -(-end_position // self.extent_nbytes) * self.extent_nbytes
        self.appender.set_frontier(min(rounded, self.segment_nbytes))

    @property
    def bytes(self) -> bytes:
        """All segments, one after the other."""
        return b"".join(self.segments)

    @property
    def state(self) -> tuple[Any, ...]:
        """Everything that both bodies must agree on."""
        a = self.appender
        return (
            (self.bytes, self.rolls, self.extends, self.clock),
            (a.write_offset, a.write_position, a.base_offset, a.last_store_timestamp),
            (a.put_times, a.put_nbytes, a.failed_times),
        )


def facts(result: Any) -> Any:
    """What a result says, comparable between bodies."""
    if type(result).__name__ == "PutManyResult":
        columns = (
            result.statuses,
            result.physical_offsets,
            result.queue_offsets,
            result.nbytes,
            result.store_timestamps,
        )
        return [facts(one) for one in result], [c.tolist() for c in columns], result.ok
    if type(result).__name__ != "PutMessageResult":
        return result
    return (
        (result.status, result.append_status, result.physical_offset, result.nbytes),
        (result.queue_offset, result.store_timestamp, result.message_count, result.msg_id),
        (result.ok, result.appended, repr(result)),
    )


def outcome(call: Callable[[], Any]) -> tuple[Any, ...]:
    """What a call returned or raised."""
    try:
        return ("returned", facts(call()))
    except Exception as error:  # noqa: BLE001 - the exception is the outcome compared
        return ("raised", type(error).__name__, str(error))


class Pair:
    """The same log under both bodies; every call is made on both and compared."""

    def __init__(self, **options: Any) -> None:
        self.native = Log(NATIVE, **options)
        self.reference = Log(REFERENCE, **options)

    def call(self, name: str, *args: Any, **kwargs: Any) -> tuple[Any, ...]:
        """Call a method of both appenders; returns the outcome, the same of both."""
        outcomes = [
            outcome(lambda log=log: getattr(log.appender, name)(*args, **kwargs))
            for log in (self.native, self.reference)
        ]
        assert outcomes[0] == outcomes[1], f"{name}{args!r}{kwargs!r}"
        assert self.native.state == self.reference.state, f"{name}{args!r}{kwargs!r}"
        return outcomes[0]
