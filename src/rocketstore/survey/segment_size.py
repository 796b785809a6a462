"""Detect the size of a log's segments: configured, shown by the files' lengths, or deduced.

A file whose length differs from the others' is damaged and is not used as a hint.
"""

from __future__ import annotations

import itertools
import math
from collections import Counter
from collections.abc import Iterable, Iterator
from pathlib import Path
from typing import TYPE_CHECKING, Any, NamedTuple

from rocketstore import formats, kernels
from rocketstore.config import DEFAULT_COMMIT_LOG_FILE_SIZE, MessageStoreConfig
from rocketstore.directory.state import StoreState
from rocketstore.errors import ConfigError, MappedFileError
from rocketstore.files.durable import is_zeros
from rocketstore.files.mapped_file import MappedFile
from rocketstore.files.mapped_file_queue import DirectoryListing, list_directory, shown_file_size
from rocketstore.queues.directories import queue_directories
from rocketstore.status import RecordStatus

if TYPE_CHECKING:
    import numpy

_LARGEST_LOG_FILE_NBYTES = 2**31 - 1
_ROWS = 1024
#: Segments that are read if their lengths do not show the size.
_MOST_SEEN = 8
_DEFAULT = "RocketMQ's default"
#: Queue units that are read at most.
_MOST_UNITS = 4_000_000


def log_file_size(
    listing: DirectoryListing,
    root: Path,
    config: MessageStoreConfig,
    state: StoreState | None,
    notes: list[str],
    units: UnitPlaces | None = None,
) -> int:
    """Return the configured size, else the one the files show, the state file's, or the default.

    ``units`` are read if the files' lengths leave the size in doubt. Raises ``MappedFileError`` if
    segments were truncated and their original size cannot be deduced.
    """
    given = config.mapped_file_size_commit_log
    starts = [offset for offset, _, _ in listing.files]
    lengths = [size for _, _, size in listing.files]
    sizes = [size for size in lengths if size]
    hint = state.commit_log_file_size if state and given is None else None
    shown = shown_file_size(starts, lengths, hint)
    if given is not None:
        is_one = len(set(sizes)) == 1 and shown is not None and shown != given
        if is_one and not _are_cut_to(listing, root, given):
            raise ConfigError(
                f"mapped_file_size_commit_log is {given}, but the segments have {shown} bytes; "
                f"configure {shown}, or leave it unset to have it detected"
            )
        return given
    if shown is not None and not _is_plain(starts, sizes, shown, hint):
        shown = _deduce(listing, root, shown, hint, notes, units or UnitPlaces())
    if shown is not None and formats.MIN_COMMIT_LOG_FILE_NBYTES <= shown < 2**31:
        return shown
    return state.commit_log_file_size if state else DEFAULT_COMMIT_LOG_FILE_SIZE


def _is_plain(starts: list[int], sizes: list[int], shown: int, hint: int | None) -> bool:
    """Return whether the files' lengths show the size, as they do in every complete log."""
    if len(sizes) == 1:
        return shown == sizes[0] in (hint, DEFAULT_COMMIT_LOG_FILE_SIZE)
    steps = {b - a for a, b in itertools.pairwise(starts)}
    return sizes.count(shown) > 1 and (shown in steps or shown == DEFAULT_COMMIT_LOG_FILE_SIZE)


def _are_cut_to(listing: DirectoryListing, root: Path, size: int) -> bool:
    """Return whether the segments, all of one length, had ``size`` bytes before truncation."""
    files = [one for one in listing.files if one[2]]
    looks = [_look_at_end(path, at, nbytes, root) for at, path, nbytes in files[:_MOST_SEEN]]
    is_cut = any(look.is_cut for look in looks) or any(at % nbytes for at, _, nbytes in files)
    return (
        is_cut
        and all(look.marked in (None, size) for look in looks)
        and all(nbytes < size and start % size == 0 for start, _, nbytes in files)
    )


def _deduce(
    listing: DirectoryListing,
    root: Path,
    shown: int,
    hint: int | None,
    notes: list[str],
    places: UnitPlaces,
) -> int:
    """Deduce the size if the files' lengths leave it in doubt."""
    files = [one for one in listing.files if one[2]]
    looks = {path: _look_at_end(path, at, nbytes, root) for at, path, nbytes in files[:_MOST_SEEN]}
    is_cut = any(look.is_cut for look in looks.values())
    agree = {nbytes for _, _, nbytes in files} == {shown}
    starts = [at for at, path, _ in listing.files if path not in looks or looks[path].is_named]
    fits_names = not any(start % shown for start in starts)
    is_whole = any(look.marked == shown for look in looks.values())
    if not starts or (agree and not is_cut and (fits_names or is_whole)):
        return shown
    limits = _Limits(starts, max(nbytes for _, _, nbytes in files))
    size, source = next(_candidates(looks, limits, hint, places), (None, ""))
    if size is not None:
        if not agree or size != shown:
            notes.append(_note(files, size, source))
        return size
    fitting = [size for size in limits.all_sizes() if not places.crossed(size)]
    if not is_cut and not fitting:
        return shown
    fit = f" ({' or '.join(map(str, fitting[:4]))} would fit)" if fitting else ""
    _, path, nbytes = next((one for one in files if one[0] % shown), files[0])
    raise MappedFileError(
        f"{path} was truncated to {nbytes} bytes, and the segment size cannot be "
        f"detected{fit}; configure mapped_file_size_commit_log (a command takes a file with "
        "mappedFileSizeCommitLog=… by --config)"
    )


def _note(files: list[tuple[int, Path, int]], size: int, source: str) -> str:
    if len(files) > 1:
        folder = files[0][1].parent
        return f"files in {folder} were truncated; a segment has {size} bytes, by {source}"
    ((_, path, nbytes),) = files
    note = f"{path} was truncated to {nbytes} bytes; a segment has {size}, by {source}"
    is_guess = size == DEFAULT_COMMIT_LOG_FILE_SIZE and source == _DEFAULT
    advice = "; if the broker has another size, configure mapped_file_size_commit_log"
    return note + advice * is_guess


class _Limits:
    """The sizes that are possible with the given file names and lengths."""

    def __init__(self, starts: list[int], least: int) -> None:
        self.least = least
        self.divided = math.gcd(*starts)
        steps = (b - a for a, b in itertools.pairwise(sorted(starts)))
        self._most = min(_LARGEST_LOG_FILE_NBYTES, *steps, _LARGEST_LOG_FILE_NBYTES)

    def fit(self, size: int) -> bool:
        """Return whether ``size`` agrees with all names and lengths."""
        least = max(self.least, formats.MIN_COMMIT_LOG_FILE_NBYTES)
        return least <= size <= self._most and not self.divided % size

    def all_sizes(self) -> list[int]:
        """Return the sizes that fit, ascending; empty if the names show nothing."""
        return sorted(size for size in _divisors(self.divided, self._most) if self.fit(size))


def _divisors(number: int, most: int) -> set[int]:
    """Return the divisors of ``number`` up to ``most``.

    Some are missing if ``number`` has two prime factors above 2**16: a file's name may be any
    number, so the search must be bounded.
    """
    found = {1}
    factor = 2
    while number > 1 and factor <= 1 << 16:
        own = found
        while not number % factor:
            number //= factor
            own = {one * factor for one in own if one * factor <= most}
            found = found | own
        factor += 1
    return found | {one * number for one in found if one * number <= most}


def _candidates(
    looks: dict[Path, _Look],
    limits: _Limits,
    hint: int | None,
    places: UnitPlaces,
) -> Iterator[tuple[int, str]]:
    """Yield possible sizes and their sources, the most certain first."""
    if hint and limits.fit(hint):
        yield hint, "the state file"
    marked = Counter(look.marked for look in looks.values() if look.marked)
    for size, _ in marked.most_common():
        if limits.fit(size):
            yield size, "the marker at its end"
    longest = limits.least
    # A record that runs past the file's end may be a damaged one in a complete file.
    may_be_longest = limits.fit(longest) and not places.crossed(longest)
    if may_be_longest and not any(look.is_cut for look in looks.values()):
        yield longest, "the longest file"
    if not may_be_longest:
        deduced = places.deduced(limits.all_sizes())
        if deduced is not None:
            yield deduced, "the file names and the records that the queues name"
    default = DEFAULT_COMMIT_LOG_FILE_SIZE
    if limits.fit(default) and not places.crossed(default):
        yield default, _DEFAULT
    if may_be_longest:
        yield longest, "the longest file"


class UnitPlaces:
    """Offsets of the records that queue units name.

    No record crosses the boundary of a segment, and a record begins at each boundary.

    Parameters
    ----------
    contents : iterable of bytes
        Contents of consume queue files.
    """

    def __init__(self, contents: Iterable[bytes] = ()) -> None:
        self._contents = contents
        self._arrays: tuple[numpy.ndarray[Any, Any], numpy.ndarray[Any, Any]] | None = None

    @classmethod
    def below(cls, directory: Path, root: Path) -> UnitPlaces:
        """Read the units below a ``consumequeue`` folder, as far as they are readable."""
        return cls(_contents_below(directory, root))

    def _load(self) -> tuple[numpy.ndarray[Any, Any], numpy.ndarray[Any, Any]]:
        """Return the records' distinct start offsets, ascending, and their ends."""
        if self._arrays is None:
            import numpy

            unit = numpy.dtype([("offset", ">i8"), ("size", ">i4"), ("tags", ">i8")])
            parts = [
                numpy.frombuffer(content, unit, len(content) // unit.itemsize)
                for content in self._contents
            ]
            rows = numpy.concatenate([numpy.empty(0, unit), *parts])
            offsets, sizes = rows["offset"].astype("i8"), rows["size"].astype("i8")
            real = (offsets >= 0) & (sizes > 0) & (sizes < _LARGEST_LOG_FILE_NBYTES)
            starts, first = numpy.unique(offsets[real], return_index=True)
            self._arrays = starts, starts + sizes[real][first]
        return self._arrays

    def crossed(self, size: int) -> bool:
        """Return whether a record crosses the boundary of segments of ``size`` bytes."""
        starts, ends = self._load()
        return bool((starts // size != (ends - 1) // size).any())

    def deduced(self, sizes: list[int]) -> int | None:
        """Return the one of ``sizes`` (ascending) whose boundaries no record crosses.

        Of several, return the smallest if a record begins at a boundary that only it has; else
        ``None``.
        """
        left = [size for size in sizes if not self.crossed(size)]
        if not left:
            return None
        starts, _ = self._load()
        own = starts[(starts > 0) & (starts % left[0] == 0)]
        for larger in left[1:]:
            own = own[own % larger > 0]
        return left[0] if len(left) == 1 or own.size else None


def _contents_below(directory: Path, root: Path) -> Iterator[bytes]:
    left = _MOST_UNITS
    for _, folder in queue_directories(directory, root, [], tolerant=True):
        listing = list_directory(folder, root, tolerate_unreadable=True, tolerate_odd=True)
        for start, path, nbytes in listing.files:
            if nbytes and left > 0:
                file = MappedFile(path, start, nbytes, root)
                try:
                    yield file.read(0, min(nbytes, left * formats.CONSUME_QUEUE_UNIT.nbytes))
                finally:
                    file.close()
                left -= nbytes // formats.CONSUME_QUEUE_UNIT.nbytes


class _Look(NamedTuple):
    """What a segment's records show about it."""

    #: The size that the end-of-segment marker shows.
    marked: int | None
    #: Whether the records run past the file's end, as in a truncated file.
    is_cut: bool
    #: Whether the first record, if there is one, has the offset in the file's name.
    is_named: bool


def _look_at_end(path: Path, start: int, nbytes: int, root: Path) -> _Look:
    limit = min(start + _LARGEST_LOG_FILE_NBYTES, 2**63 - 1)
    if start + nbytes > limit:  # past the highest offset a record can have
        return _Look(None, False, False)
    file = MappedFile(path, start, nbytes, root)
    try:
        rows = bytearray(_ROWS * formats.PARSED_RECORD.nbytes)
        position, code = 0, int(RecordStatus.OK)
        while code == RecordStatus.OK and position < nbytes:
            count, position, code = kernels.message.scan_records(
                file.mapping, position, nbytes, start, limit, 0, rows, ()
            )
            if code == RecordStatus.OK and not count:
                break
        head = file.read(position, min(formats.BLANK.nbytes, nbytes - position))
        own = file.read(formats.RECORD_HEAD.at("physical_offset"), 8)
    finally:
        file.close()
    is_named = position > 0 or len(own) < 8 or int.from_bytes(own, "big") == start
    if len(head) < formats.BLANK.nbytes:
        return _Look(None, not is_zeros(head), is_named)
    left, magic = formats.BLANK.struct.unpack(head)
    if magic == formats.BLANK_MAGIC and left >= formats.BLANK.nbytes:
        return _Look(position + left, position + left > nbytes, is_named)
    is_cut = position + left > nbytes and magic in (formats.MAGIC_V1, formats.MAGIC_V2)
    return _Look(None, is_cut, is_named)
