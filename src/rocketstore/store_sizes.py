"""The sizes of a store's log and queue files: configured, shown by files that agree, known, preset.

A file whose length differs from what the others show is damaged, and no hint.
"""

from __future__ import annotations

import itertools
from collections import Counter
from pathlib import Path

from rocketstore import formats, kernels
from rocketstore.config import (
    DEFAULT_BATCH_QUEUE_FILE_SIZE,
    DEFAULT_COMMIT_LOG_FILE_SIZE,
    DEFAULT_CONSUME_QUEUE_FILE_SIZE,
    DEFAULT_EXT_FILE_SIZE,
    MessageStoreConfig,
)
from rocketstore.errors import ConfigError
from rocketstore.mapped_file import MappedFile
from rocketstore.mapped_file_queue import DirectoryListing, list_directory, shown_file_size
from rocketstore.queue_folders import queue_directories
from rocketstore.status import RecordStatus
from rocketstore.store_state import StoreState

_LARGEST_LOG_FILE_NBYTES = 2**31 - 1
_ROWS = 1024


def log_file_size(
    listing: DirectoryListing,
    root: Path,
    config: MessageStoreConfig,
    state: StoreState | None,
    notes: list[str],
) -> int:
    """Size given, else what the files show, else the state file's, else the default."""
    given = config.mapped_file_size_commit_log
    starts = [offset for offset, _, _ in listing.files]
    lengths = [size for _, _, size in listing.files]
    sizes = [size for size in lengths if size]
    hint = state.commit_log_file_size if state and given is None else None
    shown = shown_file_size(starts, lengths, hint)
    if given is not None:
        is_one = len(set(sizes)) == 1 and shown is not None and shown != given
        if is_one and not (len(sizes) == 1 and _cut_size(listing, root, [given]) == given):
            raise ConfigError(
                f"mapped_file_size_commit_log is {given}, but the segments have {shown} bytes; "
                f"configure {shown}, or leave it unset to have it detected"
            )
        return given
    if len(sizes) == 1 and shown == sizes[0] != hint:
        known = [hint] if hint else []
        shown = _cut_size(listing, root, [*known, DEFAULT_COMMIT_LOG_FILE_SIZE]) or shown
    if len(sizes) == 1 and shown is not None and shown != sizes[0]:
        source = "the state file" if shown == hint else "the marker at its end"
        is_default = shown == DEFAULT_COMMIT_LOG_FILE_SIZE
        source = "RocketMQ's default" if is_default and shown != hint else source
        (path,) = (path for _, path, size in listing.files if size)
        notes.append(
            f"{path} has {sizes[0]} bytes and was cut short; a segment has {shown}, by {source}"
        )
    if shown is not None and formats.MIN_COMMIT_LOG_FILE_NBYTES <= shown < 2**31:
        return shown
    return state.commit_log_file_size if state else DEFAULT_COMMIT_LOG_FILE_SIZE


def _cut_size(listing: DirectoryListing, root: Path, known: list[int]) -> int | None:
    """The size that the only segment had before it was cut short; ``None`` when its records end as
    those of a whole one do.

    The end-of-segment marker tells it; without one, the first of the ``known`` sizes that fits.
    """
    ((start, path, nbytes),) = (one for one in listing.files if one[2])
    if nbytes in known:
        return None
    marked, is_cut = _look_at_end(path, start, nbytes, root)
    if not is_cut and start % nbytes == 0:
        return None
    for size in [marked, *known] if marked else known:
        if nbytes < size <= _LARGEST_LOG_FILE_NBYTES and start % size == 0:
            return size
    return None


def _look_at_end(path: Path, start: int, nbytes: int, root: Path) -> tuple[int | None, bool]:
    """The size that the end-of-segment marker of a file tells, and whether its records run to its
    end as in a file that was cut."""
    file = MappedFile(path, start, nbytes, root)
    try:
        rows = bytearray(_ROWS * formats.PARSED_RECORD.nbytes)
        position, code = 0, int(RecordStatus.OK)
        while code == RecordStatus.OK and position < nbytes:
            count, position, code = kernels.message.scan_records(
                file.mapping, position, nbytes, start, start + _LARGEST_LOG_FILE_NBYTES, 0, rows, ()
            )
            if code == RecordStatus.OK and not count:
                break
        head = file.read(position, min(formats.BLANK.nbytes, nbytes - position))
    finally:
        file.close()
    if len(head) < formats.BLANK.nbytes:
        return None, bool(head.strip(b"\0"))
    left, magic = formats.BLANK.struct.unpack(head)
    if magic == formats.BLANK_MAGIC and left >= formats.BLANK.nbytes:
        return position + left, position + left > nbytes
    return None, position + left > nbytes and magic in (formats.MAGIC_V1, formats.MAGIC_V2)


class QueueFileSizes:
    """Finds the sizes of queue files: given, else what most files have, else what the state file
    says, else the default.

    Where as many files have one size as another, the state file decides, then the longer one:
    files are cut, they do not grow.
    """

    def __init__(
        self,
        root: Path,
        config: MessageStoreConfig,
        state: StoreState | None,
        notes: list[str],
        *,
        tolerant: bool,
    ) -> None:
        self._root = root
        self._config = config
        self._state = state
        self._notes = notes
        self._tolerant = tolerant

    def of_queues(self, directory: Path) -> int:
        """Bytes of a ConsumeQueue's file."""
        given = self._config.mapped_file_size_consume_queue
        unit = formats.CONSUME_QUEUE_UNIT.nbytes
        told = self._state.consume_queue_file_size if self._state else None
        name = "mapped_file_size_consume_queue"
        return self._choose(name, given, directory, unit, (told, DEFAULT_CONSUME_QUEUE_FILE_SIZE))

    def of_batch_queues(self, directory: Path) -> int:
        """Bytes of a BatchConsumeQueue's file."""
        given = self._config.mapper_file_size_batch_consume_queue
        name, unit = "mapper_file_size_batch_consume_queue", formats.BATCH_QUEUE_UNIT.nbytes
        return self._choose(name, given, directory, unit, (None, DEFAULT_BATCH_QUEUE_FILE_SIZE))

    def of_ext(self, directory: Path) -> int:
        """Bytes of an ext file; 0 when they are switched off, or not asked for and not there."""
        config = self._config
        if config.enable_consume_queue_ext is False:
            return 0
        if not config.enable_consume_queue_ext and not self._sizes_below(directory):
            return 0
        given = config.mapped_file_size_consume_queue_ext
        name = "mapped_file_size_consume_queue_ext"
        return self._choose(name, given, directory, 1, (None, DEFAULT_EXT_FILE_SIZE))

    def _sizes_below(self, directory: Path) -> Counter[int]:
        """Sizes of the queue files below ``directory`` (of 200 queues at the most), counted; not
        those that cannot be the place of a file's name."""
        sizes: Counter[int] = Counter()
        folders = queue_directories(directory, self._root, [], tolerant=self._tolerant)
        for number, (_, folder) in enumerate(folders):
            listing = list_directory(
                folder,
                self._root,
                tolerate_unreadable=self._tolerant,
                tolerate_odd=self._tolerant,
            )
            sizes.update(size for _, _, size in listing.files if size)
            starts = [start for start, _, _ in listing.files]
            for step in {b - a for a, b in itertools.pairwise(starts)} & sizes.keys():
                sizes[step] += 1
            if number >= 200:
                break
        return sizes

    def _choose(
        self,
        option: str,
        given: int | None,
        directory: Path,
        unit: int,
        known: tuple[int | None, int],
    ) -> int:
        sizes = self._sizes_below(directory)
        told, default = known
        fitting = [size for size in sizes if size % unit == 0]
        fitting.sort(key=lambda size: (sizes[size], size == told, size), reverse=True)
        if given is not None:
            if fitting and given not in fitting:
                raise ConfigError(
                    f"{option} is {given}, but the queue files have {fitting[0]} bytes; configure "
                    f"{fitting[0]}, or leave it unset to have it detected"
                )
            return given
        chosen = fitting[0] if fitting else told or default
        if told and fitting and sizes[chosen] == 1 and chosen < told:
            # A single file that is shorter than what was written down was cut.
            chosen = told
        if chosen not in sizes and sizes:
            source = "the state file" if chosen == told else "RocketMQ's default"
            self._notes.append(
                f"no file below {directory} has a length that files there can have; one has "
                f"{chosen} bytes by {source}"
            )
        return chosen
