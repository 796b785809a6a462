"""The messages that wait: those that the wheel's chains lead to, and those not in the wheel yet."""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Iterable, Iterator, Sequence
from typing import TYPE_CHECKING, Any, NamedTuple

from rocketstore import formats, kernels
from rocketstore.errors import CorruptionError
from rocketstore.message import StoredMessage
from rocketstore.message_copy import real_queue_id
from rocketstore.timer.timer_log import TimerUnits

if TYPE_CHECKING:
    import numpy
    from numpy.typing import NDArray

    Numbers = NDArray[numpy.int64]

#: Returns the record at an offset; raises ``CorruptionError``, or ``OSError`` for a lost file.
Look = Callable[[int], StoredMessage | None]


class TimerMessage(NamedTuple):
    """A message that waits for its delivery time.

    Attributes
    ----------
    message : StoredMessage
        Its record on the timer topic.
    due : int
        Epoch ms: the time of its slot (``TIMER_OUT_MS``). A broker delivers it after this time
        plus the precision.
    topic : str
        Where it is delivered.
    rolls : bool
        It is due later than the wheel reaches: at ``slot_time`` it is put into a new slot.
    delete : bool
        It is not delivered, but deletes the message of its slot that ``TIMER_DEL_UNIQKEY`` names.
    queue_id : int
        Where it is delivered.
    slot_time : int
        Epoch ms: when it is read from the wheel. ``due``, unless it rolls.
    roll_times : int
        How often it rolled.
    is_enqueued : bool
        It is in the wheel; otherwise only in the queue of the timer topic.
    is_deleted : bool
        Another message deletes it.
    """

    message: StoredMessage
    due: int
    topic: str
    rolls: bool
    delete: bool
    queue_id: int
    slot_time: int
    roll_times: int
    is_enqueued: bool
    is_deleted: bool


class PendingMessages:
    """The messages that were not delivered yet.

    Parameters
    ----------
    units : TimerUnits
        In the wheel; their records are inside the log.
    waiting : TimerUnits
        Not in the wheel, as the units that a broker will make of them; positions -1.
    look : callable
        Returns the record at a commit-log offset.
    topics : iterable of str
        The store's topics.
    report_unreadable : callable
        Called with a unit's position, its commit-log offset and a reason.
    key_has_topic : bool
        What a delete names is ``topic+key``, not the key alone.
    """

    def __init__(
        self,
        units: TimerUnits,
        waiting: TimerUnits,
        look: Look,
        topics: Iterable[str],
        report_unreadable: Callable[[int, int, str], None],
        *,
        key_has_topic: bool,
    ) -> None:
        import numpy as np

        self._units = TimerUnits(
            *(np.concatenate(pair) for pair in zip(units, waiting, strict=True))
        )
        self._look = look
        self._topics = tuple(topics)
        self._report = report_unreadable
        self._reported: set[int] = set()
        self._key_has_topic = key_has_topic
        self._is_delete = self._units.bits & formats.TIMER_UNIT_DELETE != 0
        self._is_roll = self._units.bits & formats.TIMER_UNIT_ROLL != 0
        self._deleted: set[int] = set()

    @property
    def count(self) -> int:
        """Return the number of messages."""
        return len(self._units.positions)

    # --- messages -----------------------------------------------------------------------------

    def messages(self) -> Iterator[TimerMessage]:
        """Yield the messages, ascending by due time, then in the order of the log."""
        import numpy as np

        units = self._units
        due = units.times.copy()
        for number in np.flatnonzero(self._is_roll).tolist():
            record = self._record(number)
            if record is not None:
                due[number] = _out(record)
        for number in np.lexsort((units.offsets, due)).tolist():
            record = self._record(number)
            if record is not None:
                yield self._message(number, record, int(due[number]))

    def _message(self, number: int, record: StoredMessage, due: int) -> TimerMessage:
        properties = record.properties
        rolls = properties.get(formats.PROPERTY_TIMER_ROLL_TIMES, "")
        return TimerMessage(
            message=record,
            due=due,
            topic=properties.get(formats.PROPERTY_REAL_TOPIC, ""),
            rolls=bool(self._is_roll[number]),
            delete=bool(self._is_delete[number]),
            queue_id=real_queue_id(properties) or 0,
            slot_time=int(self._units.times[number]),
            roll_times=int(rolls) if _is_number(rolls) else 0,
            is_enqueued=bool(self._units.positions[number] >= 0),
            is_deleted=record.physical_offset in self._deleted,
        )

    def _record(self, number: int) -> StoredMessage | None:
        """Return the record of a unit; report it, once, if it is not a timer message."""
        offset = int(self._units.offsets[number])
        try:
            record = self._look(offset)
        except CorruptionError as error:
            self._complain(number, str(error))
            return None
        fault = timer_fault(record, int(self._units.sizes[number]))
        if fault is None and record is not None:
            fault = self._time_fault(number, _out(record))
        if fault is not None:
            self._complain(number, fault)
            return None
        return record

    def _time_fault(self, number: int, out: int) -> str | None:
        """Return why a record cannot be that of its unit, whose slot has another time."""
        time = int(self._units.times[number])
        limit = time + formats.TIMER_PRECISIONS_MS[-1]
        if time <= out and (out < limit or self._is_roll[number]):
            return None
        return f"its {formats.PROPERTY_TIMER_OUT_MS} is {out}, but its slot is that of {time}"

    def _complain(self, number: int, reason: str) -> None:
        if number not in self._reported:
            self._reported.add(number)
            units = self._units
            self._report(int(units.positions[number]), int(units.offsets[number]), reason)

    # --- counts -------------------------------------------------------------------------------

    def by_topic(self) -> dict[str, int]:
        """Return the number of messages for each topic, without those that delete others.

        Units hold a hash of the topic, so one record for each hash is read, and all of them where
        topics share a hash.
        """
        import numpy as np

        counts: Counter[str] = Counter()
        hashes = self._units.topic_hashes
        known = Counter(map(_hash, self._topics))
        for value in np.unique(hashes[~self._is_delete]).tolist():
            numbers = np.flatnonzero((hashes == value) & ~self._is_delete)
            topic = self._topic(int(numbers[0]))
            is_clear = topic is not None and _hash(topic) == value
            if is_clear and known[value] <= 1:
                counts[str(topic)] += len(numbers)
                continue
            for number in numbers.tolist():
                topic = self._topic(number)
                counts[topic or ""] += topic is not None
        return dict(sorted((+counts).items()))

    def _topic(self, number: int) -> str | None:
        record = self._record(number)
        if record is None:
            return None
        return record.properties.get(formats.PROPERTY_REAL_TOPIC, "")

    def counts_between(self, bounds: Sequence[int]) -> list[int]:
        """Return how many slots' times are from each bound on to before the next one."""
        import numpy as np

        times = np.sort(self._units.times[~self._is_delete])
        counts = np.diff(np.searchsorted(times, np.array(bounds, np.int64)))
        return [int(count) for count in counts]

    def first_time(self) -> int | None:
        """Return the earliest time of a slot, epoch ms; ``None`` without one."""
        return int(self._units.times.min()) if self.count else None

    def slot_counts(self) -> dict[int, int]:
        """Return the number of messages of each slot by its time; a delete counts as -1."""
        import numpy as np

        times, inverse = np.unique(self._units.times, return_inverse=True)
        sums = np.bincount(inverse, np.where(self._is_delete, -1, 1), len(times))
        return dict(zip(times.tolist(), sums.astype(np.int64).tolist(), strict=True))

    # --- deletes ------------------------------------------------------------------------------

    def match_deletes(self, report: Callable[[int, int, str], None]) -> None:
        """Note which messages others delete; report deletes that hit nothing (D-55).

        A delete works only on messages of its own slot.
        """
        import numpy as np

        times = self._units.times
        ripe = self._is_delete & ~self._is_roll
        for time in np.unique(times[ripe]).tolist():
            inside = times == time
            targets: dict[str, list[int]] = {}
            for number in np.flatnonzero(inside & ~self._is_delete).tolist():
                record = self._record(number)
                if record is not None and record.unique_key is not None:
                    targets.setdefault(self._key(record), []).append(record.physical_offset)
            for number in np.flatnonzero(inside & ripe).tolist():
                record = self._record(number)
                if record is None:
                    continue
                name = record.properties.get(formats.PROPERTY_TIMER_DELETE_UNIQUE_KEY, "")
                self._deleted.update(targets.get(name, ()))
                if name not in targets:
                    reason = f"it deletes {name!r}, and its slot has no message of this key"
                    position = int(self._units.positions[number])
                    report(position, record.physical_offset, reason)

    def _key(self, record: StoredMessage) -> str:
        key = record.unique_key or ""
        if not self._key_has_topic:
            return key
        return f"{record.properties.get(formats.PROPERTY_REAL_TOPIC, '')}+{key}"


def timer_fault(record: StoredMessage | None, size: int) -> str | None:
    """Return why a record is not that of a timer message; ``None`` if it is one."""
    if record is None:
        return "no record begins there"
    if record.topic != formats.TOPIC_TIMER:
        return f"the record is of the topic {record.topic}"
    if size not in (0, record.store_size):
        return f"the record has {record.store_size} bytes, not {size}"
    out = record.properties.get(formats.PROPERTY_TIMER_OUT_MS)
    if not _is_number(out):
        return f"its property {formats.PROPERTY_TIMER_OUT_MS} is {out!r}: a broker stops at it"
    if not record.properties.get(formats.PROPERTY_REAL_TOPIC):
        return f"it has no property {formats.PROPERTY_REAL_TOPIC}: no broker can deliver it"
    if real_queue_id(record.properties) is None:
        text = record.properties.get(formats.PROPERTY_REAL_QUEUE_ID, "")
        return (
            f"its property {formats.PROPERTY_REAL_QUEUE_ID} is {text[:40]!r}: no broker can "
            "deliver it"
        )
    return None


def _hash(topic: str) -> int:
    return kernels.message.string_hash_code(topic.encode("utf-8", "replace"))


def _is_number(text: Any) -> bool:
    return isinstance(text, str) and text.isascii() and text.isdigit() and len(text) <= 18


def _out(record: StoredMessage) -> int:
    return int(record.properties[formats.PROPERTY_TIMER_OUT_MS])


def waiting_units(
    rows: Iterable[tuple[int, int]],
    look: Look,
    report: Callable[[int, int, str], None],
) -> TimerUnits:
    """Return units for the (offset, size) of messages that are not in the wheel yet."""
    import numpy as np

    columns: list[tuple[int, ...]] = []
    for offset, size in rows:
        try:
            record = look(offset)
        except CorruptionError as error:
            report(-1, offset, str(error))
            continue
        fault = timer_fault(record, size)
        if fault is not None or record is None:
            report(-1, offset, str(fault))
            continue
        properties = record.properties
        deletes = formats.PROPERTY_TIMER_DELETE_UNIQUE_KEY in properties
        topic = properties.get(formats.PROPERTY_REAL_TOPIC, "")
        bits = formats.TIMER_UNIT_DEFAULT | (formats.TIMER_UNIT_DELETE if deletes else 0)
        columns.append((-1, -1, bits, _out(record), offset, size, _hash(topic)))
    table = np.array(columns, np.int64).reshape(-1, len(TimerUnits._fields))
    return TimerUnits(*table.T)
