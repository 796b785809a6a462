"""Cases for the timer's reader: wheel, timer log and checkpoint of any content."""

from __future__ import annotations

import tempfile
from pathlib import Path
from random import Random
from typing import Any

from kernel_seeds import mutate_fields

from rocketstore import StoredMessage, formats, kernels
from rocketstore.dialect import Dialect
from rocketstore.timer.reader import read_timers

_READ_TIME = 1_700_000_000_000
_SLOTS, _UNITS = 8, 24
_CHECK_END = formats.TIMER_CHECK.nbytes
_SLOTS_END = _CHECK_END + _SLOTS * formats.TIMER_SLOT.nbytes
_SEGMENT_NBYTES = 10 * formats.TIMER_UNIT.nbytes
_LOG_END = 1 << 20


def _time(number: int) -> int:
    return _READ_TIME + 1000 * (1 + number * 5 % _SLOTS)


def _record(offset: int) -> StoredMessage:
    properties = b"".join(
        b"%s\x01%d\x02" % (name, value)
        for name, value in ((b"TIMER_OUT_MS", _time(offset // 64)), (b"REAL_QID", 3))
    )
    raw = kernels.message.encode_record(
        formats.TOPIC_TIMER, b"body", 0, offset // 64, offset, 0, 0, 1, "10.0.0.1:5", 2,
        "10.0.0.2:6", 0, 0, properties + b"REAL_TOPIC\x01T\x02", 1, False,
    )  # fmt: skip
    return StoredMessage(raw, 0, offset, offset + len(raw))


_SIZE = _record(0).store_size


class _Records:
    """A log with a timer message at every multiple of 64."""

    min_offset, max_offset = 0, _LOG_END

    def look_message_by_offset(self, offset: int) -> StoredMessage | None:
        return None if offset % 64 else _record(offset)


class _Queues:
    """Only the timer topic has a queue."""

    min_index, max_index = 0, _UNITS + 3

    def unit(self, index: int) -> tuple[int, int, int] | None:
        return 64 * index, _SIZE, 0

    def get(self, topic: str, queue_id: int) -> Any:
        return self

    def topics(self) -> list[str]:
        return ["T", formats.TOPIC_TIMER]


def _seed() -> bytes:
    """The three files of a broker, one after the other."""
    code = kernels.message.string_hash_code(b"T")
    slots: dict[int, list[int]] = {}
    log = b""
    for number in range(_UNITS):
        if len(log) % _SEGMENT_NBYTES == _SEGMENT_NBYTES - formats.TIMER_UNIT.nbytes:
            blank = (52).to_bytes(4, "big") + bytes(8)
            blank += formats.BLANK_MAGIC.to_bytes(4, "big", signed=True)
            log += blank.ljust(formats.TIMER_UNIT.nbytes, b"\0")
        time = _time(number) // 1000
        slot = slots.setdefault(time, [len(log), -1, 0])
        log += formats.TIMER_UNIT.struct.pack(
            52, slot[1], 1, _READ_TIME, time * 1000 - _READ_TIME, 64 * number, _SIZE, code, 0
        )
        slot[1:] = len(log) - 52, slot[2] + 1
    rows = [formats.TIMER_SLOT.struct.pack(time, *slot, 0) for time, slot in slots.items()]
    check = formats.TIMER_CHECK.struct.pack(_READ_TIME, len(log), _UNITS, _UNITS, 0, 0, 0)
    return check + b"".join(rows).ljust(_SLOTS * formats.TIMER_SLOT.nbytes, b"\0") + log


def timer_input(random: Random) -> bytes:
    """Return the files, as a rule with some fields changed."""
    content = _seed()
    if random.random() < 0.7:
        content = mutate_fields(random, content, formats.TIMER_UNIT.nbytes, _SLOTS_END)
    if random.random() < 0.7:
        head = mutate_fields(random, content[:_SLOTS_END], formats.TIMER_SLOT.nbytes, _CHECK_END)
        content = head + content[_SLOTS_END:]
    if random.random() < 0.2:
        content = mutate_fields(random, content, 8)
    return content


def _write(root: Path, content: bytes) -> None:
    (root / formats.CONFIG_DIR).mkdir()
    (root / formats.CONFIG_DIR / formats.TIMER_CHECK_FILE).write_bytes(content[:_CHECK_END])
    with (root / formats.TIMER_WHEEL_FILE).open("wb") as wheel:
        for at in range(_CHECK_END, min(_SLOTS_END, len(content)), formats.TIMER_SLOT.nbytes):
            slot = content[at : at + formats.TIMER_SLOT.nbytes]
            place = int.from_bytes(slot[:8], "big") % formats.TIMER_SLOT_COUNT
            wheel.seek(place * formats.TIMER_SLOT.nbytes)
            wheel.write(slot)
        wheel.truncate(formats.TIMER_WHEEL_NBYTES)
    folder = root / formats.TIMER_LOG_DIR
    folder.mkdir()
    log = content[_SLOTS_END:]
    for start in range(0, len(log), _SEGMENT_NBYTES):
        part = log[start : start + _SEGMENT_NBYTES].ljust(_SEGMENT_NBYTES, b"\0")
        (folder / formats.offset_to_file_name(start)).write_bytes(part)


def check_timer(content: bytes) -> None:
    """Check that a report is made of any files, and that each message is listed once."""
    with tempfile.TemporaryDirectory() as directory:
        root = Path(directory)
        _write(root, content)
        report = read_timers(
            root, Dialect.for_version("5.3.3"), _Records(), _Queues(), precision_ms=1000,
            now=_READ_TIME,
        )  # fmt: skip
        listed = list(report.pending)
        offsets = [one.message.physical_offset for one in listed]
        due = [one.due for one in listed]
        if due != sorted(due):
            raise AssertionError("the messages are not in the order of their due times")
        if len(listed) > len(report) or len(report) > _UNITS + report.not_enqueued:
            raise AssertionError(f"{len(listed)} of {len(report)} messages")
        is_same_place = content[:24] == _seed()[:24]  # other ones may be right, too
        if (
            is_same_place
            and not report.findings
            and sorted(offsets) != [64 * n for n in range(_UNITS + 3)]
        ):
            raise AssertionError(f"no findings, but the messages are {offsets}")
        if sum(report.by_topic.values()) > len(report):
            raise AssertionError(f"more by topic: {report.by_topic}")
