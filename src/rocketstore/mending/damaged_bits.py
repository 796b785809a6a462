"""Finds damaged records of which one bit outside the body is wrong, and which bit it is.

Inverting that bit makes the record good in all respects: its lengths agree, it ends where the next
record begins, its checksums are right, and its queue lacks it. A wrong bit in a body is not sought:
the CRC of a body cannot prove which of many bits it is.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from typing import NamedTuple

from rocketstore import formats, kernels
from rocketstore.log.commit_log import CommitLog, LogWindow
from rocketstore.log.damage import DamagedRange
from rocketstore.log.scan import NO_UNIT
from rocketstore.mending.wrong_bits import Survey, WrongBit
from rocketstore.status import RecordStatus

_HEAD = formats.RECORD_HEAD
_ROW = formats.PARSED_RECORD
_GOOD = (RecordStatus.OK, RecordStatus.NUL_PROPERTIES)
#: Bytes before the body: of the head, two hosts, and what is between and after them.
_FIXED_NBYTES = (
    _HEAD.nbytes + formats.RECORD_STORED.nbytes + formats.RECORD_TAIL.nbytes
    + 2 * formats.HOST_V6.nbytes
)  # fmt: skip
#: A longer damaged range is not one record.
_LONGEST_NBYTES = 5 << 20
#: Bits that are tried in one record, about, and most bytes that are checked over all of them.
_TRIED_BITS = 2000
_MOST_CHECKED_NBYTES = 64 << 30


class _Fixed(NamedTuple):
    """A damaged range, and the bit that makes it a good record."""

    damage: DamagedRange
    bit: WrongBit
    has_unit: bool


def find_damaged_bits(
    log: CommitLog, damaged: Sequence[DamagedRange]
) -> list[tuple[DamagedRange, WrongBit]]:
    """Find the damaged ranges that are one record with one wrong bit outside its body.

    Parameters
    ----------
    log : CommitLog
        Its end is known.
    damaged : sequence of DamagedRange

    Returns
    -------
    list of (DamagedRange, WrongBit)
        In the order of ``damaged``.
    """
    fixed: list[_Fixed] = []
    room = _MOST_CHECKED_NBYTES
    for part in damaged:
        room -= _TRIED_BITS * min(part.stop - part.start, _LONGEST_NBYTES)
        if room < 0:
            break  # a log with so much damage has other than wrong bits
        fixed += _fix(log, part)
    if not fixed:
        return []
    survey = Survey.of(log)
    return [
        (one.damage, one.bit) for one in fixed
        if not one.has_unit or survey.lacks(*one.bit.place, one.bit.record)
    ]  # fmt: skip


def _fix(log: CommitLog, damage: DamagedRange) -> Iterator[_Fixed]:
    """Yield the only bit that makes the range a good record."""
    window = log.window(damage.start)
    nbytes = damage.stop - damage.start
    if window is None or damage.claimed_start is not None or nbytes > _LONGEST_NBYTES:
        return
    position = damage.start - window.base_offset
    if position + nbytes > window.stop:
        return
    content = bytearray(window.buffer[position : position + nbytes])
    start = damage.start
    found = [
        bit for bit in _tried_bits(window, content, start) if _is_whole(window, content, start, bit)
    ]
    if len(found) != 1:
        return
    at, mask = found[0]
    content[at] ^= mask
    row = _parse(window, content, start)
    topic_at = row["topic_at"]
    topic = bytes(content[topic_at : topic_at + row["topic_nbytes"]]).decode()
    place = topic, row["queue_id"], row["queue_offset"]
    kind = row["sys_flag"] & formats.SYS_FLAG_TRANSACTION_MASK
    bit = WrongBit(start, start + at, mask, _name_of(at, row), *place)
    yield _Fixed(damage, bit, kind not in NO_UNIT)


def _tried_bits(window: LogWindow, content: bytearray, start: int) -> Iterator[tuple[int, int]]:
    """Yield byte and mask of all bits that may be the wrong one."""
    status, _ = _check(window, content, start)
    places = set(range(_FIXED_NBYTES))
    if status == RecordStatus.BAD_BODY_CRC:
        places = set(range(_HEAD.at("body_crc"), _HEAD.at("body_crc") + 4))
    elif (topic := _topic(content)) is not None:
        topic_at, topic_nbytes = topic
        places |= set(range(topic_at - 2, topic_at + topic_nbytes + 2))
    for at in sorted(one for one in places if one < len(content)):
        for number in range(8):
            yield at, 1 << number


def _topic(content: bytearray) -> tuple[int, int] | None:
    """Return where a record's topic is, and its bytes, by the record's own lengths."""
    if len(content) < formats.RECORD_MIN_NBYTES:
        return None
    flag = int.from_bytes(content[_HEAD.at("sys_flag") : _HEAD.at("sys_flag") + 4], "big")
    hosts = 0
    for bit in (formats.SYS_FLAG_BORN_HOST_V6, formats.SYS_FLAG_STORE_HOST_V6):
        hosts += formats.HOST_V6.nbytes if flag & bit else formats.HOST_V4.nbytes
    body_at = _FIXED_NBYTES - 2 * formats.HOST_V6.nbytes + hosts
    body_nbytes = int.from_bytes(content[body_at - 4 : body_at], "big")
    is_second = int.from_bytes(content[4:8], "big", signed=True) == formats.MAGIC_V2
    width = formats.TOPIC_LENGTH_NBYTES_V2 if is_second else formats.TOPIC_LENGTH_NBYTES_V1
    topic_at = body_at + body_nbytes + width
    if topic_at >= len(content):
        return None
    topic_nbytes = int.from_bytes(content[topic_at - width : topic_at], "big")
    return topic_at, min(topic_nbytes, formats.MAX_RETRY_TOPIC_NBYTES)


def _check(window: LogWindow, content: bytearray, start: int) -> tuple[RecordStatus, int]:
    status, nbytes = kernels.message.check_record(
        content, 0, len(content), start, window.segment_end, window.flags
    )
    return RecordStatus(status), nbytes


def _is_whole(window: LogWindow, content: bytearray, start: int, bit: tuple[int, int]) -> bool:
    """Return whether the range is a good record with one bit inverted."""
    at, mask = bit
    content[at] ^= mask
    status, nbytes = _check(window, content, start)
    content[at] ^= mask
    return status in _GOOD and nbytes == len(content)


def _parse(window: LogWindow, content: bytearray, start: int) -> dict[str, int]:
    rows = bytearray(_ROW.nbytes)
    kernels.message.scan_records(
        content, 0, len(content), start, window.segment_end, window.flags, rows, ()
    )
    names = (field.name for field in _ROW.fields)
    return dict(zip(names, _ROW.struct.unpack(rows), strict=True))


def _name_of(at: int, row: dict[str, int]) -> str:
    """Return the name of the field to which a byte belongs."""
    if at < _HEAD.nbytes:
        name = max((f.name for f in _HEAD.fields if _HEAD.at(f.name) <= at), key=_HEAD.at)
        return name.replace("_", " ")
    if at < row["body_at"]:
        return "body length" if at >= row["body_at"] - 4 else "hosts and times"
    if at < row["topic_at"]:
        return "topic length"
    return "topic" if at < row["topic_at"] + row["topic_nbytes"] else "properties' length"
