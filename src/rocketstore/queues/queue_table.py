"""The table of a store's queues of both types."""

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
        #: Queue files of another size or place than they must have; they are not read.
        self.unfit: list[Path] = []
        #: Where things are now that stood in the way of a queue that was made.
        self.moved: list[Path] = []
        #: What stood where a folder belongs, by its name before it was moved.
        self.displaced: list[Path] = []
        #: The same that is still there: loading changes nothing.
        self._in_the_way: list[Path] = []
        self._is_loading = False
        #: Queue files that are symbolic links or have hard links.
        self.linked: list[Path] = []
        #: Bytes of an ext file, 0 when the store keeps none.
        self.ext_file_size = 0
        self._ext_directory = directory
        #: Queues by (topic, queue id); only added to once the store is open. Copy it to iterate.
        self.table: dict[tuple[str, int], ConsumeQueue] = {}

    def use_ext(self, directory: Path, file_size: int) -> None:
        """Keep ext files of ``file_size`` bytes below ``directory``; call it before ``load``."""
        self._ext_directory, self.ext_file_size = directory, file_size

    def load(self) -> None:
        """Open every ``<topic>/<queue id>`` folder; what has another name is listed in
        ``skipped``. Nothing on disk changes."""
        self._is_loading = True
        try:
            self._load()
        finally:
            self._is_loading = False

    def _load(self) -> None:
        """Open the queues below both directories; what is none is listed in ``skipped``."""
        for topic, queue_id, directory in self._folders_below(self.directory):
            listing = self._fit(self._list(directory), self.file_size)
            if topic in self.batch_topics:
                self.skipped.append(directory)
                continue
            self._load_queue(topic, queue_id, listing)
        for topic, queue_id, directory in self._folders_below(self.batch_directory):
            if topic not in self.batch_topics:
                self.skipped.append(directory)
                continue
            listing = self._fit(self._list(directory), self.batch_file_size)
            self._load_queue(topic, queue_id, listing)

    def _load_queue(self, topic: str, queue_id: int, listing: DirectoryListing) -> None:
        queue = self._new(topic, queue_id)
        queue.queue.load(listing)
        self.table[topic, queue_id] = queue

    def _folders_below(self, directory: Path) -> Iterator[tuple[str, int, Path]]:
        """Topic, queue id and path of each queue's folder."""
        for topic, queue in queue_directories(
            directory, self._root, self.skipped, tolerant=self._in_memory
        ):
            yield topic.name, int(queue.name), queue

    def _list(self, directory: Path) -> DirectoryListing:
        """The files of a queue. A reader does without those that it may not read and what is no
        file: their units are made from the log."""
        return list_directory(
            directory,
            self._root,
            tolerate_unreadable=self._in_memory,
            tolerate_odd=self._in_memory,
        )

    def _fit(self, listing: DirectoryListing, file_size: int) -> DirectoryListing:
        """Take what is no file of this size and place off the listing."""
        self.skipped += [*listing.foreign, *listing.unreadable]
        self.linked += listing.linked
        fit = []
        for offset, path, size in listing.files:
            is_long = size > file_size and not self._writable  # its beginning can be read
            if (size == file_size or is_long) and offset % file_size == 0:
                fit.append((offset, path, size))
            else:
                self.unfit.append(path)
        listing.files = fit
        return listing

    def move_unfit_aside(self) -> list[Path]:
        """Move the files of wrong size or place out of the way; return where they are now.

        A broker does not start on them, and what they held is made again from the log.
        """
        moved = [self._move_aside(path) for path in self.unfit]
        self.unfit = []
        return moved

    def _move_aside(self, path: Path) -> Path:
        """Move one path into quarantine, durably; return where it is now."""
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
        # They may be there although the queue's own files are lost.
        listing = DirectoryListing()
        is_blocked = bool({directory, directory.parent}.intersection(self._in_the_way))
        if directory.is_dir() or not (self._in_memory or is_blocked):
            listing = self._list(directory)
        files.load(self._fit(listing, self.ext_file_size))
        return ConsumeQueueExt(files, in_memory=self._in_memory)

    def _make_way(self, directory: Path) -> None:
        """Move what is no folder, where a topic's or a queue's folder belongs, out of the way.

        Nothing was moved while nobody needed the name: it may be a note that somebody left there.
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
        """Move what ``load`` found in the way of folders."""
        while self._in_the_way:
            path = self._in_the_way.pop(0)
            self.moved.append(self._move_aside(path))
            _log.warning("%s was no folder; moved to %s", path, self.moved[-1])

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
        self._make_way(directory)
        return MappedFileQueue(
            directory, file_size, self._root, writable=self._writable, cache=QUEUE_MAPPINGS
        )

    def take_batch_topic(self, topic: str) -> bool:
        """Give a topic without a queue yet the type ``BatchCQ``, because its first record is a
        batch (``inner_batch``), which no other type takes; False when it has queues of the
        other type."""
        if topic in self.batch_topics:
            return True
        if any(name == topic for name, _ in list(self.table)):
            return False
        self.batch_topics.add(topic)
        return True

    def get(self, topic: str, queue_id: int) -> ConsumeQueue | None:
        """Return the queue, ``None`` when there is none; never creates one (D-36)."""
        return self.table.get((topic, queue_id))

    def get_or_create(self, topic: str, queue_id: int) -> ConsumeQueue:
        """Return the queue, new and empty when there is none (for dispatch)."""
        queue = self.table.get((topic, queue_id))
        if queue is None:
            queue = self._new(topic, queue_id)
            if self._writable and self.unfit:
                # A kill between the creation of its ext file and of its own leaves such a file.
                self.moved += self.move_unfit_aside()
            self.table[topic, queue_id] = queue
        return queue

    def __iter__(self) -> Iterator[ConsumeQueue]:
        return iter(list(self.table.values()))

    def __len__(self) -> int:
        return len(self.table)

    def topics(self) -> list[str]:
        """Topics that have a queue, sorted."""
        return sorted({topic for topic, _ in list(self.table)})

    def queue_ids(self, topic: str) -> list[int]:
        """Queue ids of ``topic``, sorted."""
        return sorted(queue_id for name, queue_id in list(self.table) if name == topic)

    def abandon(self) -> None:
        """Leave every queue to whoever reads it."""
        for queue in self:
            queue.abandon()

    def close(self) -> None:
        """Close every queue."""
        for queue in self:
            queue.close()
