"""Detect the sizes of a store's queue files: configured, the files', the state file's, default.

A file whose length differs from the others' is damaged and is not used as a hint.
"""

from __future__ import annotations

import itertools
from collections import Counter
from pathlib import Path

from rocketstore import formats
from rocketstore.config import (
    DEFAULT_BATCH_QUEUE_FILE_SIZE,
    DEFAULT_CONSUME_QUEUE_FILE_SIZE,
    DEFAULT_EXT_FILE_SIZE,
    MessageStoreConfig,
)
from rocketstore.directory.state import StoreState
from rocketstore.errors import ConfigError
from rocketstore.files.mapped_file_queue import DirectoryListing, list_directory
from rocketstore.queues.directories import queue_directories


class QueueFileSizes:
    """Detect the sizes of queue files.

    The order is: the configured size, the size of most files, the state file's, the default. If
    two sizes are equally frequent, the state file decides, then the larger size: files get
    truncated, they do not grow.

    Attributes
    ----------
    listings : dict of Path to DirectoryListing
        The folders of queues that were listed for this.
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
        self.listings: dict[Path, DirectoryListing] = {}

    def of_queues(self, directory: Path) -> int:
        """Return the bytes of a ConsumeQueue's file."""
        given = self._config.mapped_file_size_consume_queue
        unit = formats.CONSUME_QUEUE_UNIT.nbytes
        hint = self._state.consume_queue_file_size if self._state else None
        name = "mapped_file_size_consume_queue"
        return self._choose(name, given, directory, unit, (hint, DEFAULT_CONSUME_QUEUE_FILE_SIZE))

    def of_batch_queues(self, directory: Path) -> int:
        """Return the bytes of a BatchConsumeQueue's file."""
        given = self._config.mapper_file_size_batch_consume_queue
        name, unit = "mapper_file_size_batch_consume_queue", formats.BATCH_QUEUE_UNIT.nbytes
        return self._choose(name, given, directory, unit, (None, DEFAULT_BATCH_QUEUE_FILE_SIZE))

    def of_ext(self, directory: Path) -> int:
        """Return the bytes of an ext file; 0 if disabled, or if neither enabled nor present."""
        config = self._config
        if config.enable_consume_queue_ext is False:
            return 0
        if not config.enable_consume_queue_ext and not self._sizes_below(directory):
            return 0
        given = config.mapped_file_size_consume_queue_ext
        name = "mapped_file_size_consume_queue_ext"
        return self._choose(name, given, directory, 1, (None, DEFAULT_EXT_FILE_SIZE))

    def _sizes_below(self, directory: Path) -> Counter[int]:
        """Count the sizes of the queue files below ``directory``, of at most 200 queues.

        A size that equals the distance of two neighbouring files counts once more.
        """
        sizes: Counter[int] = Counter()
        folders = queue_directories(directory, self._root, [], tolerant=self._tolerant)
        for number, (_, folder) in enumerate(folders):
            listing = self.listings[folder] = list_directory(
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
        hint, default = known
        fitting = [size for size in sizes if size % unit == 0]
        fitting.sort(key=lambda size: (sizes[size], size == hint, size), reverse=True)
        if given is not None:
            if fitting and given not in fitting:
                raise ConfigError(
                    f"{option} is {given}, but the queue files have {fitting[0]} bytes; configure "
                    f"{fitting[0]}, or leave it unset to have it detected"
                )
            return given
        chosen = fitting[0] if fitting else hint or default
        if hint and fitting and sizes[chosen] == 1 and chosen < hint:
            # A single file that is shorter than the recorded size was truncated.
            chosen = hint
        if chosen not in sizes and sizes:
            source = "the state file" if chosen == hint else "RocketMQ's default"
            self._notes.append(
                f"no file below {directory} has a valid length; the file size is {chosen} bytes "
                f"by {source}"
            )
        return chosen
