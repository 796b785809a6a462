"""``split``: some topics, or the messages of some time, as a store of their own."""

from __future__ import annotations

import fnmatch
import os
import time
from collections.abc import Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, Unpack

from rocketstore import formats
from rocketstore.arguments import Progress, StoreOptions
from rocketstore.config import MessageStoreConfig
from rocketstore.directory.place import check_platform
from rocketstore.files.durable import make_directories
from rocketstore.mending.journal import Journal
from rocketstore.moving.making import MadeReport, Making
from rocketstore.moving.new_store import Source, config_like, copy_tables
from rocketstore.moving.offset_map import Moved, OffsetMap
from rocketstore.moving.rewriting import LogWriter, RecordPlace, rewrite_record
from rocketstore.moving.selected_log import Record, records_of
from rocketstore.store.arguments import check_settings, check_times, merge
from rocketstore.store.read_only import ReadOnlyParts

WORK_SUFFIX = ".rocketstore-split"
_LISTED = 5


@dataclass(kw_only=True)
class SplitReport(MadeReport):
    """What ``split`` made.

    Attributes
    ----------
    path, destination : str
    state : str
        ``done``, or ``already``: an earlier call had made it.
    map : str
        The file that says where each record was: CSV with ``store, oldOffset, newOffset, topic,
        queueId, oldQueueOffset, newQueueOffset``.
    messages, nbytes : int
        Records that were copied, and their bytes.
    topics : list of str
        Topics with a record, sorted.
    log_start, log_end : int
        Log offsets of the new store.
    resumed : bool
        An earlier call had been interrupted.
    verify : VerifyReport or None
        What ``verify`` says of the new store; ``None`` for ``already``.
    notes : list of str
    duration_s : float
    """

    path: str
    topics: list[str] = field(default_factory=list)


def split(
    path: str | os.PathLike[str],
    destination: str | os.PathLike[str],
    *,
    topics: Sequence[str] = (),
    begin: int | None = None,
    end: int | None = None,
    map_path: str | os.PathLike[str] | None = None,
    config: MessageStoreConfig | None = None,
    progress: Progress | None = None,
    **options: Unpack[StoreOptions],
) -> SplitReport:
    """Copy some messages of a store into a new one; the source is only read.

    Messages get new log offsets and keep their queue offsets. Queues, index and checkpoint are
    built from the new log; the tables below ``config`` have the entries of its topics.

    Parameters
    ----------
    path : path
        The store's root; no writer has it open.
    destination : path
        A path that does not exist, or an empty folder. Its parent exists.
    topics : sequence of str
        Only these topics; ``*`` and ``?`` as in a shell. The default is all.
    begin, end : int, optional
        Epoch ms: from the first record stored at or after ``begin``, up to the first one after that
        stored at or after ``end``. Records between them are kept whatever their times, so that
        queues have no gaps.
    map_path : path, optional
        The file that says where each record was; it does not exist. The default is
        ``destination.map.csv``.
    config : MessageStoreConfig, optional
    progress : callable, optional
        Called as ``progress(what, done, total)``.
    **options
        Fields of ``MessageStoreConfig``.

    Returns
    -------
    SplitReport

    Raises
    ------
    ValueError
        Neither topics nor times are given, or no record is selected.
    StoreLockedError
        A writer has the store open; or another call makes this destination.
    CorruptionError, MappedFileError
        The log is damaged: use ``salvage`` first. Or the queues are in RocksDB.
    SourceChangedError
        The store was changed meanwhile.
    FileExistsError
        ``destination`` or the map exists, or the unfinished store there is of another call.
    StoreFullError
        The disk is full.

    Notes
    -----
    The store is made in ``destination.rocketstore-split`` and renamed when it is complete, verified
    and on disk; after a kill or a full disk the same call goes on with the segment it was at.
    Messages that wait (delayed, timed, transactions) are on system topics: without those they are
    left out. Memory: below 300 MiB. One call at a time for one destination.
    """
    settings = merge(config, options)
    check_platform("r+")
    check_settings(settings)
    check_times(begin, end)
    if isinstance(topics, str) or not all(isinstance(one, str) and one for one in topics):
        raise ValueError(f"topics must be texts that are not empty, not {topics!r}")
    if not topics and begin is None and end is None:
        raise ValueError("nothing is selected: give topics, begin or end")
    began = time.monotonic()
    report = SplitReport(path=os.fspath(path), destination=os.fspath(destination))
    job = _Split(
        Source(Path(path), settings), report, None if map_path is None else Path(map_path),
        topics=tuple(topics), begin=begin, end=end, progress=progress,
    )  # fmt: skip
    job.run()
    report.duration_s = time.monotonic() - began
    return report


class _Split(Making):
    """One call."""

    def __init__(
        self,
        source: Source,
        report: SplitReport,
        map_path: Path | None,
        *,
        topics: tuple[str, ...],
        begin: int | None,
        end: int | None,
        progress: Progress | None,
    ) -> None:
        super().__init__(
            [source], report, map_path, suffix=WORK_SUFFIX, members=("topics",),
            asked={"topics": list(topics), "begin": begin, "end": end}, progress=progress,
        )  # fmt: skip
        self._source = source
        self._topics = topics
        self._begin, self._end = begin, end
        self._seen: set[str] = set()
        self._light = self._newest = 0
        self._former: list[tuple[str, int]] = []

    def config_of(self, files: list[ReadOnlyParts]) -> MessageStoreConfig:
        """Return a configuration like the source's."""
        self._former = [
            (queue.topic, queue.queue_id)
            for queue in files[0].queues
            if queue.max_index and self._takes(queue.topic)
        ]
        return config_like(files[0], self._source.config)

    def make_tables(self, copied: dict[str, Any]) -> None:
        """Copy the tables, with the entries of the topics."""
        del copied
        copy_tables(self._source.root, self.place, self._takes, self.report.notes)

    def _takes(self, topic: str) -> bool:
        return not self._topics or any(fnmatch.fnmatchcase(topic, one) for one in self._topics)

    # --- records --------------------------------------------------------------------------------

    def copy_records(self, journal: Journal, files: list[ReadOnlyParts]) -> None:
        """Copy the selected records."""
        log, place = files[0].log, self.place
        folder = place / formats.COMMIT_LOG_DIR
        make_directories(folder, place)
        start, stop = max(log.min_offset, 0), max(log.max_offset, 0)
        # Queues that begin later are those of a log whose beginning expired.
        new = log.segment_size if start or self._begin is not None else 0
        former = journal.find("segment") or {
            "old": start, "new": new, "sizes": None, "messages": 0, "nbytes": 0, "topics": [],
            "light": 0, "newest": 0,
        }  # fmt: skip
        self.report.messages, self.report.nbytes = former["messages"], former["nbytes"]
        self._seen.update(former["topics"])
        self._light, self._newest = former["light"], former["newest"]
        writer = LogWriter(folder, log.segment_size, former["new"])
        offsets = OffsetMap(self.work_map, [str(self._source.root)], former["sizes"])
        is_begun = former["sizes"] is not None

        def advance(offset: int) -> None:
            offsets.flush()
            if self.progress is not None:
                self.progress("copying", offset - start, max(stop - start, 1))

        try:
            for record in records_of(log, former["old"], stop, self._takes, advance):
                stored = record.row["store_timestamp"]
                if not is_begun and self._begin is not None and stored < self._begin:
                    continue
                if self._end is not None and stored >= self._end:
                    break
                is_begun = True
                self._copy_record(journal, writer, offsets, record)
            if not self.report.messages:
                raise ValueError(f"no record of {self._source.root} is selected")
            writer.finish()
            offsets.sync()
        finally:
            writer.close()
            offsets.close()
        journal.write(
            "copied", log_start=new, log_end=writer.end, **self._counts(),
        )  # fmt: skip

    def _copy_record(
        self, journal: Journal, writer: LogWriter, offsets: OffsetMap, record: Record
    ) -> None:
        row = record.row
        offset, begins = writer.place_for(len(record.content))
        if begins and self.report.messages:
            journal.write(
                "segment", old=record.offset, new=offset, sizes=offsets.sync(), **self._counts(),
            )  # fmt: skip
        prepared = row["prepared_transaction_offset"]
        if prepared:
            prepared = offsets.find(0, prepared) or 0
        queue_offset = row["queue_offset"]
        rewrite_record(record.content, row, RecordPlace(offset, queue_offset, prepared))
        writer.append(record.content)
        offsets.add(
            Moved(0, record.offset, offset, record.topic, row["queue_id"], queue_offset,
                  queue_offset)
        )  # fmt: skip
        self._seen.add(record.topic)
        self._light += row["multi_dispatch_at"] > 0
        self._newest = max(self._newest, row["store_timestamp"])
        self.report.messages += 1
        self.report.nbytes += len(record.content)

    def _counts(self) -> dict[str, Any]:
        return {
            "messages": self.report.messages,
            "nbytes": self.report.nbytes,
            "topics": sorted(self._seen),
            "light": self._light,
            "newest": self._newest,
        }

    # --- the end --------------------------------------------------------------------------------

    def note_what_differs(self, copied: dict[str, Any]) -> None:
        """Note queues that begin elsewhere."""
        place, notes = self.place, self.report.notes
        folders = (formats.CONSUME_QUEUE_DIR, formats.BATCH_QUEUE_DIR)
        empty = [
            f"{topic}/{queue_id}"
            for topic, queue_id in sorted(self._former)
            if not any((place / folder / topic / str(queue_id)).is_dir() for folder in folders)
        ]
        if empty:
            more = f" and {len(empty) - _LISTED} more" if len(empty) > _LISTED else ""
            notes.append(
                f"queues without a selected message begin at 0: {', '.join(empty[:_LISTED])}{more}"
            )
        if copied["light"] and self._topics:
            notes.append(
                "light queues that other topics fed, too, have new queue offsets: "
                f"{copied['light']} records name light queues"
            )
        if formats.TOPIC_TIMER in copied["topics"]:
            notes.append(
                "timed messages are copied without the timer's files, which a broker creates"
            )
