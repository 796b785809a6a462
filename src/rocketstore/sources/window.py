"""A part of a segment in memory: a small buffer that is refilled while a split is read."""

from __future__ import annotations

import functools
import re
from collections.abc import Mapping
from typing import Any

from rocketstore import formats, kernels
from rocketstore.errors import MappedFileError
from rocketstore.sources.files import RawInput, open_input
from rocketstore.sources.splits import Split
from rocketstore.status import RecordFlags, RecordStatus

#: Small enough to stay in a core's cache while records are decoded from it.
WINDOW_NBYTES = 1 << 20
#: Bytes to read past a split's end at once: its last record usually ends there.
_BEHIND_NBYTES = 64 << 10
#: Longer than any record of a broker with the default limits.
LONG_RECORD_NBYTES = 16 << 20
_SAMPLE_COUNT = 64
_ZEROS = bytes(64 << 10)
#: Leading bytes of a record's size field that may be zero.
_ZERO_NBYTES = 3
_HEAD = formats.RECORD_HEAD
_OFFSET_AT = _HEAD.at("physical_offset")
_MAGIC_AT = _HEAD.at("magic")
_MAGICS = (formats.MAGIC_V1, formats.MAGIC_V2)
#: Low bits of an own offset that are not part of the search pattern; they are compared afterwards.
_LOW_BITS = 32
_GOOD = (RecordStatus.OK, RecordStatus.NUL_PROPERTIES, RecordStatus.UNSAFE_TOPIC)


def _are_zeros(content: memoryview) -> bool:
    # Bytes objects compare at memory speed, views do not; small ones need no new pages.
    for at in range(0, len(content), len(_ZEROS)):
        chunk = bytes(content[at : at + len(_ZEROS)])
        if chunk != (_ZEROS if len(chunk) == len(_ZEROS) else bytes(len(chunk))):
            return False
    return True


@functools.lru_cache(64)
def _claim_pattern(first: int, last: int) -> re.Pattern[bytes]:
    """Return a pattern for a record's magic, followed by an own offset with one of two high parts.

    The pattern also skips bytes that only repeat the magic.
    """
    between = _OFFSET_AT - _MAGIC_AT - 4
    magics = b"|".join(re.escape(magic.to_bytes(4, "big", signed=True)) for magic in _MAGICS)
    nbytes = 8 - _LOW_BITS // 8
    highs = b"|".join(re.escape(high.to_bytes(nbytes, "big")) for high in {first, last})
    return re.compile(b"(?s:(?:%b)(?=.{%d}(?:%b)))" % (magics, between, highs))


class SplitWindow:
    """Reads a split's segment from front to back, one buffer at a time.

    Parameters
    ----------
    split : Split
    storage_options : mapping or None

    Attributes
    ----------
    view : memoryview
        The buffer; ``view[:filled]`` holds the file from position ``origin`` on.
    origin, filled : int

    Notes
    -----
    Memory: 1 MiB, or the size of a longer record while it is read. Threading: one thread.
    """

    def __init__(self, split: Split, storage_options: Mapping[str, Any] | None) -> None:
        self.split = split
        self.segment_end = split.base_offset + split.segment_size
        self._small = memoryview(bytearray(WINDOW_NBYTES))
        self.view = self._small
        self.origin = 0
        self.filled = 0
        self._readable = min(split.file_size, split.stop + _BEHIND_NBYTES)
        self._file: RawInput = open_input(
            split.uri, storage_options=storage_options, position=split.start
        )
        self._at = split.start

    @property
    def end(self) -> int:
        """Position in the file after the buffered bytes."""
        return self.origin + self.filled

    @property
    def base_offset(self) -> int:
        """Physical offset of the buffer's first byte."""
        return self.split.base_offset + self.origin

    def close(self) -> None:
        """Close the file."""
        self._file.close()

    # --- filling ------------------------------------------------------------------------------

    def load(self, position: int, nbytes: int = 0, *, again: bool = False) -> None:
        """Start the buffer at ``position`` and fill it.

        The buffer grows to hold ``nbytes`` bytes (fewer at the file's end). With ``again``, bytes
        already in memory are read again, too.
        """
        kept = 0
        if not again and self.origin <= position <= self.end:
            kept = self.end - position
        nbytes = min(nbytes, self.split.file_size - position)
        target = self._small
        if max(nbytes, kept + 1) > len(target):
            target = self.view
            if len(target) < nbytes or len(target) <= kept:
                target = memoryview(bytearray(max(nbytes, 2 * kept)))
        at = position - self.origin
        # Slices of one buffer may overlap: memoryview copies them as memmove does.
        target[:kept] = self.view[at : at + kept]
        self.view, self.origin, self.filled = target, position, kept
        if self.end >= self._readable or self.end < position + nbytes:
            step = max(_BEHIND_NBYTES, self.end - self.split.stop)
            ahead = max(position + nbytes, self.end + step)
            self._readable = max(self._readable, min(ahead, self.split.file_size))
        self._fill()

    def _fill(self) -> None:
        if self._at != self.end:
            self._at = self._file.seek(self.end)
        while self.filled < len(self.view) and self.end < self._readable:
            room = min(len(self.view), self._readable - self.origin)
            count = self._file.readinto(self.view[self.filled : room])
            if count == 0:
                raise MappedFileError(
                    f"{self.split.uri} ends at position {self.end}, although it had "
                    f"{self.split.file_size} bytes when it was listed: it was truncated"
                )
            self.filled += count
            self._at += count

    @property
    def is_at_end(self) -> bool:
        """Whether the file's last byte is in memory."""
        return self.end >= self.split.file_size

    # --- records ------------------------------------------------------------------------------

    def check(self, position: int, flags: int) -> tuple[RecordStatus, int]:
        """Check the record at ``position`` strictly, with all its bytes in memory.

        Return the status and the bytes to skip. The status is END at the file's end, INCOMPLETE for
        a record that extends past the file's end.
        """
        if not self.origin <= position <= self.end:
            self.load(position)
        while True:
            status, size = kernels.message.check_record(
                self.view,
                position - self.origin,
                self.filled,
                self.base_offset,
                self.segment_end,
                flags,
            )
            short = status in (RecordStatus.END, RecordStatus.INCOMPLETE)
            if not short or not self.extend(position):
                return RecordStatus(status), size

    def extend(self, position: int) -> bool:
        """Read more bytes after ``position`` into memory; return whether there were any.

        Do not read a record that extends past the file's end. Nor read one that is longer than a
        broker's records and does not have its own offset.
        """
        if self.is_at_end:
            return False
        nbytes = 0
        if self.end - position >= _HEAD.nbytes:
            size = self._load(position, "total_size")
            nbytes = size if self._load(position, "magic") in _MAGICS else 0
            own = self._load(position, "physical_offset") == self.split.base_offset + position
            if position + nbytes > self.split.file_size:
                return False
            if nbytes > LONG_RECORD_NBYTES and not own:
                return False
        before = self.end
        self.load(position, nbytes)
        return self.end > before

    def _load(self, position: int, name: str) -> int:
        at = position - self.origin + _HEAD.at(name)
        nbytes = 8 if name == "physical_offset" else 4
        return int.from_bytes(self.view[at : at + nbytes], "big", signed=True)

    def find(self, position: int, last: int, flags: int) -> int | None:
        """Return the first position in ``position`` .. ``last`` with a good record at its own
        offset, or ``None``.

        Records longer than the window are read completely. The work is bounded by the bytes
        searched, even if many headers claim the same long body.
        """
        while position < last:
            if not self.origin <= position <= self.end - _HEAD.nbytes:
                self.load(position, _HEAD.nbytes)  # a check needs at least a whole head
            if self._is_zero(position):
                position = max(position + 1, self._after_zeros())
                self.load(min(position, self.split.file_size))
                continue
            found = self._first_good(position, flags)
            stop = min(self.end if found is None else found, last)
            claim, nbytes = self._first_claim(position, stop)
            if claim is not None:
                # It begins before ``found`` and can only be checked with all of it in memory. Load
                # twice its size, so that the skipped bytes outweigh the repeated reads.
                self.load(claim, 2 * nbytes)
                if self.check(claim, flags)[0] in _GOOD:
                    return claim
                position = claim + 1
                continue
            if found is not None:
                return found if found < last else None
            if self.is_at_end:
                return None
            # A record may begin in the last bytes: move them to the front of the buffer.
            position = max(position + 1, self.end - _HEAD.nbytes + 1)
            self.load(position)
        return None

    def _is_zero(self, position: int) -> bool:
        """Return whether all buffered bytes from ``position`` on are zero."""
        content = self.view[position - self.origin : self.filled]
        if any(content[: _HEAD.nbytes]) or any(content[-_HEAD.nbytes :]):
            return False
        return _are_zeros(content)

    def _after_zeros(self) -> int:
        """Return where a record may begin if all buffered bytes are zero.

        A record's size also begins with zeros. A hole of the file is skipped.
        """
        if self.is_at_end:
            return self.split.file_size
        data = self._file.next_data(self.end)
        if data is None:
            return self.split.file_size
        return max(data, self.end) - _ZERO_NBYTES

    def _first_good(self, position: int, flags: int) -> int | None:
        """Return the first good record that is completely in memory, or ``None``."""
        while True:
            if flags & RecordFlags.CHECK_BODY_CRC:
                at = kernels.message.find_record(
                    self.view,
                    position - self.origin,
                    self.filled,
                    self.base_offset,
                    self.segment_end,
                )
                if at < 0:
                    return None
                found = self.origin + int(at)
                if flags == RecordFlags.CHECK_BODY_CRC:
                    return found
            else:
                claims = self._claims(position, self.end)
                found = next((at for at, status, _ in claims if status in _GOOD), -1)
                return found if found >= 0 else None
            if self.check(found, flags)[0] in _GOOD:
                return found
            position = found + 1

    def _first_claim(self, position: int, stop: int) -> tuple[int | None, int]:
        """Return position and claimed size of the first record that extends past the buffer.

        It begins in ``position`` .. ``stop``; the position is ``None`` without one.
        """
        for at, status, size in self._claims(position, stop):
            if status == RecordStatus.INCOMPLETE and at + size <= self.split.file_size:
                return at, size
        return None, 0

    def _claims(self, position: int, stop: int) -> Any:
        """Yield (position, status without CRC, claimed size) of places with a record's magic and
        own offset."""
        origin, base_offset, filled = self.origin, self.base_offset, self.filled
        last = min(stop - origin, filled - _HEAD.nbytes + 1)
        claim = _claim_pattern(base_offset >> _LOW_BITS, (base_offset + filled) >> _LOW_BITS)
        for match in claim.finditer(self.view, position - origin + _MAGIC_AT, last + _HEAD.nbytes):
            at = match.start() - _MAGIC_AT
            if at >= last:
                return
            own = int.from_bytes(self.view[at + _OFFSET_AT : at + _OFFSET_AT + 8], "big")
            if own != base_offset + at:
                continue
            status, _ = kernels.message.check_record(
                self.view, at, filled, base_offset, self.segment_end, 0
            )
            size = int.from_bytes(self.view[at : at + 4], "big", signed=True)
            yield origin + at, status, size

    def flags(self) -> int:
        """Return the flags of the strict check in this segment.

        If one of its first records has a correct whole-record CRC, all such CRCs must be correct.
        """
        flags = int(RecordFlags.CHECK_BODY_CRC)
        row = formats.PARSED_RECORD
        readable = self._readable
        if self.split.start > 0:
            self._readable = min(_BEHIND_NBYTES, self.split.file_size)  # only the first records
        rows = bytearray(_SAMPLE_COUNT * row.nbytes)
        position = count = 0
        while count < _SAMPLE_COUNT and position < WINDOW_NBYTES:
            if position >= self.end or position < self.origin:
                self.load(position)
            more, at, status = kernels.message.scan_records(
                self.view,
                position - self.origin,
                self.filled,
                self.base_offset,
                self.segment_end,
                flags | RecordFlags.REPORT_PROPERTY_CRC,
                memoryview(rows)[count * row.nbytes :],
            )
            count += more
            position = self.origin + at
            if status not in (RecordStatus.END, RecordStatus.INCOMPLETE):
                break
            if not self.extend(position):
                break
        judged = memoryview(rows).cast("i")[row.at("property_crc") // 4 :: row.nbytes // 4]
        if 1 in judged[:count].tolist():
            flags |= RecordFlags.CHECK_PROPERTY_CRC
        self._readable = readable
        return flags

    def is_zero_until(self, position: int, stop: int) -> bool:
        """Return whether all bytes from ``position`` to ``stop`` or the file's end are zero."""
        stop = min(stop, self.split.file_size)
        while position < stop:
            self.load(position)
            content = self.view[: min(self.filled, stop - position)]
            if not _are_zeros(content):
                return False
            position += len(content)
        return True
