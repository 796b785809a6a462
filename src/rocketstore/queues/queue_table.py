"""The table of all queues of a store, of both types."""

from __future__ import annotations

import logging
import os
from collections.abc import Iterable, Iterator
from pathlib import Path

from rocketstore import formats
from rocketstore.files.durable import make_directories, sync_directory
from rocketstore.files.mapped_file_queue import (
    DirectoryListing,
    MappedFileQueue,
    list_directory,
)
from rocketstore.files.mapping_cache import QUEUE_MAPPINGS
from rocketstore.queues.batch_consume_queue import BatchConsumeQueue
from rocketstore.queues.consume_queue import ConsumeQueue
from rocketstore.queues.consume_queue_ext import ConsumeQueueExt
from rocketstore.queues.directories import queue_directories

_log = logging.getLogger(__name__)


class QueueTable:
    """All queues of a store, each of its topic's type.

    Parameters
    ----------
    directory : Path
        ``consumequeue``.
    file_size : int
        Bytes of a queue file.
    root : Path
        The store's root.
    writable, in_memory : bool
        As in ``MappedFileQueue`` and ``ConsumeQueue``.
    batch_directory : Path
        ``batchconsumequeue``.
    batch_file_size : int
        Bytes of a file in it, a multiple of 46.
    batch_topics : iterable of str
        Topics whose queues are BatchConsumeQueues.
    """

    def __init__(
        self,
        directory: Path,
        file_size: int,
        root: Path,
        *,
        writable: bool,
        in_memory: bool = False,
        batch_directory: Path,
        batch_file_size: int,
        batch_topics: Iterable[str],
    ) -> None:
        self.directory = directory
        self.file_size = file_size
        self.batch_directory = batch_directory
        self.batch_file_size = batch_file_size
        self.batch_topics = set(batch_topics)
        self.skipped: list[Path] = []
        self._root = root
        self._writable = writable
        self._in_memory = in_memory
        #: Queue files of wrong size or offset; they are not read.
        self.unfit: list[Path] = []
        #: New paths of entries that were moved to quarantine because a queue needed their name.
        self.moved: list[Path] = []
        #: Entries in the place of a folder, by their path before they were moved.
        self.displaced: list[Path] = []
        #: Those of them that were not moved yet: loading changes nothing on disk.
        self._in_the_way: list[Path] = []
        self._is_loading = False
        #: Queue files that are symbolic links or have hard links.
        self.linked: list[Path] = []
        #: Bytes of an ext file, 0 if the store has no ext files.
        self.ext_file_size = 0
        self._ext_directory = directory
        #: Queues by (topic, queue id). An open store adds queues: copy it to iterate.
        self.table: dict[tuple[str, int], ConsumeQueue] = {}

    def use_ext(self, directory: Path, file_size: int) -> None:
        """Keep ext files of ``file_size`` bytes below ``directory``; call it before ``load``."""
        self._ext_directory, self.ext_file_size = directory, file_size

    def load(self, listings: dict[Path, DirectoryListing] | None = None) -> None:
        """Open every ``<topic>/<queue id>`` folder; list other entries in ``skipped``.

        Nothing on disk changes. ``listings``: folders that were listed a moment ago, with the same
        tolerance; they are taken out, and not listed again.
        """
        self._is_loading = True
        try:
            self._load({} if listings is None else listings)
        finally:
            self._is_loading = False

    def _load(self, listings: dict[Path, DirectoryListing]) -> None:
        """Open the queues below both directories; list other entries in ``skipped``."""
        for topic, queue_id, directory in self._folders_below(self.directory):
            listing = self._fit(self._taken(listings, directory), self.file_size)
            if topic in self.batch_topics:
                self.skipped.append(directory)
                continue
            self._load_queue(topic, queue_id, listing)
        for topic, queue_id, directory in self._folders_below(self.batch_directory):
            if topic not in self.batch_topics:
                self.skipped.append(directory)
                continue
            listing = self._fit(self._taken(listings, directory), self.batch_file_size)
            self._load_queue(topic, queue_id, listing)

    def _taken(self, listings: dict[Path, DirectoryListing], directory: Path) -> DirectoryListing:
        """Take the listing of a folder out, or make it."""
        return listings.pop(directory) if directory in listings else self._list(directory)

    def _load_queue(self, topic: str, queue_id: int, listing: DirectoryListing) -> None:
        queue = self._new(topic, queue_id)
        queue.queue.load(listing)
        self.table[topic, queue_id] = queue

    def _folders_below(self, directory: Path) -> Iterator[tuple[str, int, Path]]:
        """Yield topic, queue id and path of each queue's folder."""
        for topic, queue in queue_directories(
            directory, self._root, self.skipped, tolerant=self._in_memory
        ):
            yield topic.name, int(queue.name), queue

    def _list(self, directory: Path) -> DirectoryListing:
        """List the files of a queue.

        A reader ignores unreadable and non-regular files: it derives their units from the log.
        """
        return list_directory(
            directory,
            self._root,
            tolerate_unreadable=self._in_memory,
            tolerate_odd=self._in_memory,
        )

    def _fit(self, listing: DirectoryListing, file_size: int) -> DirectoryListing:
        """Remove files of wrong size or offset from the listing."""
        self.skipped += [*listing.foreign, *listing.unreadable]
        self.linked += listing.linked
        fit = []
        for offset, path, size in listing.files:
            is_long = size > file_size and not self._writable  # a reader uses its beginning
            if (size == file_size or is_long) and offset % file_size == 0:
                fit.append((offset, path, size))
            else:
                self.unfit.append(path)
        listing.files = fit
        return listing

    def move_unfit_aside(self) -> list[Path]:
        """Move the files of wrong size or offset to quarantine; return their new paths.

        A broker does not start with them. Their units are rebuilt from the log.
        """
        moved = [self._move_aside(path) for path in self.unfit]
        self.unfit = []
        return moved

    def _move_aside(self, path: Path) -> Path:
        """Move one path to quarantine, durably; return its new path."""
        directory = self._root / formats.QUARANTINE_DIR
        make_directories(directory, self._root)
        name, number = "-".join(path.relative_to(self._root).parts), 1
        target = directory / name
        while os.path.lexists(target):
            number += 1
            target = directory / f"{name}~{number}"
        os.rename(path, target)
        sync_directory(directory)
        sync_directory(path.parent)
        return target

    def _new_ext(self, topic: str, queue_id: int) -> ConsumeQueueExt:
        directory = self._ext_directory / topic / str(queue_id)
        files = MappedFileQueue(
            directory,
            self.ext_file_size,
            self._root,
            writable=self._writable,
            cache=QUEUE_MAPPINGS,
        )
        self._make_way(directory)
        # Ext files may exist although the queue's own files are lost.
        listing = DirectoryListing()
        is_blocked = bool({directory, directory.parent}.intersection(self._in_the_way))
        if directory.is_dir() or not (self._in_memory or is_blocked):
            listing = self._list(directory)
        files.load(self._fit(listing, self.ext_file_size))
        return ConsumeQueueExt(files, in_memory=self._in_memory)

    def _make_way(self, directory: Path) -> None:
        """Move a non-folder entry away if a topic or queue needs a folder of that name.

        Unneeded names stay: the entry may be a file that a user keeps there.
        """
        if not self._writable:
            return
        for path in (directory.parent, directory):
            if os.path.lexists(path) and not path.is_dir() and not path.is_symlink():
                if path not in self._in_the_way:
                    self._in_the_way.append(path)
                    self.displaced.append(path)
                if not self._is_loading:
                    self.clear_the_way()
                return

    def clear_the_way(self) -> None:
        """Move the entries that ``load`` found in the place of folders to quarantine."""
        while self._in_the_way:
            path = self._in_the_way.pop(0)
            self.moved.append(self._move_aside(path))
            _log.warning("%s is not a folder; it was moved to %s", path, self.moved[-1])

    def _new(self, topic: str, queue_id: int) -> ConsumeQueue:
        if topic in self.batch_topics:
            files = self._files_of(self.batch_directory, self.batch_file_size, topic, queue_id)
            return BatchConsumeQueue(topic, queue_id, files, in_memory=self._in_memory)
        files = self._files_of(self.directory, self.file_size, topic, queue_id)
        queue = ConsumeQueue(topic, queue_id, files, in_memory=self._in_memory)
        if self.ext_file_size:
            queue.ext = self._new_ext(topic, queue_id)
        return queue

    def _files_of(self, parent: Path, file_size: int, topic: str, queue_id: int) -> MappedFileQueue:
        directory = parent / topic / str(queue_id)
        if not self._is_loading:  # then it is a folder that was listed
            self._make_way(directory)
        return MappedFileQueue(
            directory, file_size, self._root, writable=self._writable, cache=QUEUE_MAPPINGS
        )

    def take_batch_topic(self, topic: str) -> bool:
        """Give a topic without queues the type ``BatchCQ``; return False if it has other queues.

        Dispatch calls this if the first record of a topic is a batch (``inner_batch``), which no
        other queue type supports.
        """
        if topic in self.batch_topics:
            return True
        if any(name == topic for name, _ in list(self.table)):
            return False
        self.batch_topics.add(topic)
        return True

    def get(self, topic: str, queue_id: int) -> ConsumeQueue | None:
        """Return the queue, ``None`` if it does not exist; never create it (D-36)."""
        queue = self.table.get((topic, queue_id))
        if queue is None and not isinstance(topic, str):  # bytes would name no queue, silently
            raise TypeError(f"topic must be str, not {type(topic).__name__}")
        return queue

    def get_or_create(self, topic: str, queue_id: int) -> ConsumeQueue:
        """Return the queue; create an empty one if it does not exist (for dispatch)."""
        queue = self.table.get((topic, queue_id))
        if queue is None:
            queue = self._new(topic, queue_id)
            if self._writable and self.unfit:
                # A writer killed between creating the ext file and the queue file leaves such a
                # file.
                self.moved += self.move_unfit_aside()
            self.table[topic, queue_id] = queue
        return queue

    def __iter__(self) -> Iterator[ConsumeQueue]:
        return iter(list(self.table.values()))

    def __len__(self) -> int:
        return len(self.table)

    def topics(self) -> list[str]:
        """Return the topics that have a queue, sorted."""
        return sorted({topic for topic, _ in list(self.table)})

    def queue_ids(self, topic: str) -> list[int]:
        """Return the queue ids of ``topic``, sorted."""
        return sorted(queue_id for name, queue_id in list(self.table) if name == topic)

    def abandon(self) -> None:
        """Leave the mapping cache: files stay mapped only while a reader references them."""
        for queue in self:
            queue.abandon()

    def close(self) -> None:
        """Close every queue."""
        for queue in self:
            queue.close()
