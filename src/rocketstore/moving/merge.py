"""``merge``: the messages of two stores as one, in the order of their times."""

from __future__ import annotations

import os
import time
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Unpack

from rocketstore import formats
from rocketstore.arguments import Progress, StoreOptions
from rocketstore.config import MessageStoreConfig
from rocketstore.directory.place import check_platform
from rocketstore.errors import ConfigError, RepairRefusedError
from rocketstore.files.durable import make_directories
from rocketstore.mending.journal import Journal
from rocketstore.moving.making import MadeReport, Making
from rocketstore.moving.new_store import Source, config_like
from rocketstore.moving.numbering import Numbering, Queue, has_unit
from rocketstore.moving.offset_map import Moved, OffsetMap
from rocketstore.moving.rewriting import LogWriter, RecordPlace, rewrite_record
from rocketstore.moving.selected_log import Record, records_of
from rocketstore.moving.table_merge import committed_offsets, merge_tables
from rocketstore.store.arguments import check_settings
from rocketstore.store.arguments import merge as merge_options
from rocketstore.store.read_only import ReadOnlyParts

WORK_SUFFIX = ".rocketstore-merge"
_OF_TRANSACTIONS = frozenset((formats.TOPIC_HALF, formats.TOPIC_OP))
#: Records after which the map's rows are handed to the system.
_FLUSHED_COUNT = 4096


@dataclass(kw_only=True)
class MergeReport(MadeReport):
    """What ``merge`` made.

    Attributes
    ----------
    a, b, destination : str
    state : str
        ``done``, or ``already``: an earlier call had made it.
    map : str
        The file that says where each record was: CSV with ``store, oldOffset, newOffset, topic,
        queueId, oldQueueOffset, newQueueOffset``.
    messages, nbytes : int
        Records that were copied, and their bytes.
    messages_a, messages_b : int
        Those of each store.
    shared_queues : int
        Queues of both stores: their messages have new queue offsets, from 0 on.
    log_start, log_end : int
        Log offsets of the new store.
    resumed : bool
        An earlier call had been interrupted.
    verify : VerifyReport or None
        What ``verify`` says of the new store; ``None`` for ``already``.
    notes : list of str
    duration_s : float
    """

    a: str
    b: str
    messages_a: int = 0
    messages_b: int = 0
    shared_queues: int = 0


def merge(
    a: str | os.PathLike[str],
    b: str | os.PathLike[str],
    destination: str | os.PathLike[str],
    *,
    map_path: str | os.PathLike[str] | None = None,
    config: MessageStoreConfig | None = None,
    config_b: MessageStoreConfig | None = None,
    progress: Progress | None = None,
    **options: Unpack[StoreOptions],
) -> MergeReport:
    """Make one store of two; both are only read.

    Records are ordered by their store times; those of a store stay in the order of its log. They
    get new log offsets. A queue that only one store has keeps its queue offsets; messages of a
    queue of both are numbered from 0. Consumer offsets go to the lowest place before which the
    group has consumed everything: a group may get messages again, and misses none.

    Parameters
    ----------
    a, b : path
        The stores' roots; no writer has one open. Where both have an entry in a table, that of
        ``a`` is taken, and a note says so.
    destination : path
        A path that does not exist, or an empty folder. Its parent exists.
    map_path : path, optional
        The file that says where each record was; it does not exist. The default is
        ``destination.map.csv``.
    config, config_b : MessageStoreConfig, optional
        Without ``config_b``, ``config`` is for both, except for a log outside the store.
    progress : callable, optional
        Called as ``progress(what, done, total)``.
    **options
        Fields of ``MessageStoreConfig``, for both.

    Returns
    -------
    MergeReport

    Raises
    ------
    RepairRefusedError
        Both stores have transactions, batch records in the same queue, or the same topic with
        different queue types: their records name queue offsets.
    ConfigError
        Both stores are the same, or have the same log.
    StoreLockedError
        A writer has a store open; or another call makes this destination.
    CorruptionError, MappedFileError
        A log is damaged: use ``salvage`` first.
    SourceChangedError
        A store was changed meanwhile.
    FileExistsError
        ``destination`` or the map exists, or the unfinished store there is of another call.
    StoreFullError
        The disk is full.

    Notes
    -----
    Sizes of files are those of ``a``, segments the larger ones; the RocketMQ version is the newer
    one. The store is made in ``destination.rocketstore-merge`` and renamed when it is complete,
    verified and on disk; after a kill or a full disk the same call goes on with the segment it was
    at. Each log is read twice. Memory: below 300 MiB. One call at a time for one destination.
    """
    settings = merge_options(config, options)
    others = settings if config_b is None else merge_options(config_b, options)
    if config_b is None and settings.store_path_commit_log and not settings.store_path_root_dir:
        others = settings.replace(store_path_commit_log=None)
    check_platform("r+")
    for one in (settings, others):
        check_settings(one)
    began = time.monotonic()
    report = MergeReport(a=os.fspath(a), b=os.fspath(b), destination=os.fspath(destination))
    sources = Source(Path(a), settings), Source(Path(b), others)
    logs = [set(map(os.path.realpath, source.paths.log_folders)) for source in sources]
    if shared := logs[0] & logs[1]:
        raise ConfigError(f"both stores have the log {shared.pop()}; name two stores")
    _Merge(sources, report, None if map_path is None else Path(map_path), progress).run()
    report.duration_s = time.monotonic() - began
    return report


class _Merge(Making):
    """One call."""

    def __init__(
        self,
        sources: tuple[Source, Source],
        report: MergeReport,
        map_path: Path | None,
        progress: Progress | None,
    ) -> None:
        super().__init__(
            sources, report, map_path, suffix=WORK_SUFFIX, asked={}, progress=progress,
            members=("messages_a", "messages_b", "shared_queues"),
        )  # fmt: skip
        self._roots = sources[0].root, sources[1].root
        self._newest = self._light = 0
        self._numbering: Numbering | None = None

    def config_of(self, files: list[ReadOnlyParts]) -> MessageStoreConfig:
        """Return a configuration like that of the first store, of the newer version."""
        configs = [
            config_like(one, source.config) for one, source in zip(files, self.sources, strict=True)
        ]
        newer = int(files[1].dialect.version > files[0].dialect.version)
        return configs[0].replace(
            broker_version=configs[newer].broker_version,
            mapped_file_size_commit_log=self._segment_size(files),
        )

    @staticmethod
    def _segment_size(files: list[ReadOnlyParts]) -> int:
        return max(one.log.segment_size for one in files)

    # --- what is there --------------------------------------------------------------------------

    def _survey(self, files: list[ReadOnlyParts]) -> Numbering:
        """Read both logs for their queues; refuse what cannot be numbered."""
        queues: list[dict[Queue, int]] = [{}, {}]
        batches: list[set[Queue]] = [set(), set()]
        for store in (0, 1):
            for record in self._records(files, store, None, "reading"):
                queue = record.topic, record.row["queue_id"]
                if has_unit(record):
                    queues[store].setdefault(queue, record.row["queue_offset"])
                if record.row["sys_flag"] & formats.SYS_FLAG_INNER_BATCH:
                    batches[store].add(queue)
        shared = queues[0].keys() & queues[1].keys()
        for queue in sorted(shared & (batches[0] | batches[1])):
            raise RepairRefusedError(
                f"both stores have messages in {queue[0]}/{queue[1]}, and batch records there name "
                "their queue offsets; split the topic off first"
            )
        topics = [{topic for topic, _ in each} for each in queues]
        types = [one.facts.queue_types.batch for one in files]
        for topic in sorted(topics[0] & topics[1]):
            if (topic in types[0]) != (topic in types[1]):
                raise RepairRefusedError(f"the queues of {topic} have different types")
        # Also where one store has only the ends: they would end transactions of the other.
        if topics[0] & _OF_TRANSACTIONS and topics[1] & _OF_TRANSACTIONS:
            raise RepairRefusedError(
                "both stores have transactions: the record that ends one names its half message by "
                "queue offset, and those would be others. When none is undecided in "
                f"{self._roots[1]} (rocketstore transactions), split it by --topic for each topic "
                f"but {formats.TOPIC_HALF} and {formats.TOPIC_OP}, and merge that"
            )
        committed = committed_offsets(self._roots[0]), committed_offsets(self._roots[1])
        return Numbering((queues[0], queues[1]), committed)

    def _records(
        self, files: list[ReadOnlyParts], store: int, start: int | None, what: str
    ) -> Iterator[Record]:
        log = files[store].log
        first, stop = max(log.min_offset, 0), max(log.max_offset, 0)

        def advance(offset: int) -> None:
            if self.progress is not None:
                text = f"{what} {self._roots[store].name}"
                self.progress(text, offset - first, max(stop - first, 1))

        return records_of(log, first if start is None else start, stop, lambda _: True, advance)

    # --- records --------------------------------------------------------------------------------

    def copy_records(self, journal: Journal, files: list[ReadOnlyParts]) -> None:
        """Copy the records of both."""
        folder = self.place / formats.COMMIT_LOG_DIR
        make_directories(folder, self.place)
        self._numbering = numbering = self._survey(files)
        size = self._segment_size(files)
        # Queues that begin later are those of a log whose beginning expired.
        new = size if any(one.log.min_offset > 0 for one in files) else 0
        former = journal.find("segment") or {
            "old": [None, None], "new": new, "sizes": None, "messages": 0, "nbytes": 0,
            "messages_a": 0, "messages_b": 0, "newest": 0, "light": 0,
        }  # fmt: skip
        for name in ("messages", "nbytes", "messages_a", "messages_b"):
            setattr(self.report, name, former[name])
        self._newest, self._light = former["newest"], former["light"]
        if former["sizes"] is not None:
            numbering.restore(former["numbering"])
        writer = LogWriter(folder, size, former["new"])
        offsets = OffsetMap(self.work_map, [str(root) for root in self._roots], former["sizes"])
        try:
            self._merge_streams(journal, files, former["old"], writer, offsets)
            writer.finish()
            offsets.sync()
        finally:
            writer.close()
            offsets.close()
        journal.write("copied", log_start=new, log_end=writer.end, **self._counts())

    def _counts(self) -> dict[str, Any]:
        assert self._numbering is not None
        report = self.report
        return {
            "messages": report.messages,
            "nbytes": report.nbytes,
            "messages_a": report.messages_a,
            "messages_b": report.messages_b,
            "newest": self._newest,
            "light": self._light,
            "shared_queues": len(self._numbering.shared),
            "numbering": self._numbering.state(),
        }

    def _merge_streams(
        self,
        journal: Journal,
        files: list[ReadOnlyParts],
        starts: list[int | None],
        writer: LogWriter,
        offsets: OffsetMap,
    ) -> None:
        streams = [self._records(files, store, starts[store], "copying") for store in (0, 1)]
        heads = [next(stream, None) for stream in streams]
        ends = [max(one.log.max_offset, 0) for one in files]
        while heads[0] is not None or heads[1] is not None:
            store = _earlier(heads)
            record = heads[store]
            assert record is not None
            offset, begins = writer.place_for(len(record.content))
            if begins and self.report.messages:
                old = [
                    end if head is None else head.offset
                    for head, end in zip(heads, ends, strict=True)
                ]
                journal.write(
                    "segment", old=old, new=offset, sizes=offsets.sync(), **self._counts()
                )
            self._copy_record(store, record, offset, writer, offsets)
            heads[store] = next(streams[store], None)

    def _copy_record(
        self, store: int, record: Record, offset: int, writer: LogWriter, offsets: OffsetMap
    ) -> None:
        assert self._numbering is not None
        row, report = record.row, self.report
        prepared = row["prepared_transaction_offset"]
        if prepared:
            prepared = offsets.find(store, prepared) or 0
        number = self._numbering.number(store, record)
        rewrite_record(record.content, row, RecordPlace(offset, number, prepared))
        writer.append(record.content)
        offsets.add(
            Moved(store, record.offset, offset, record.topic, row["queue_id"],
                  row["queue_offset"], number)
        )  # fmt: skip
        self._light += row["multi_dispatch_at"] > 0
        self._newest = max(self._newest, row["store_timestamp"])
        report.messages += 1
        report.nbytes += len(record.content)
        if store:
            report.messages_b += 1
        else:
            report.messages_a += 1
        if not report.messages % _FLUSHED_COUNT:
            offsets.flush()

    # --- the end --------------------------------------------------------------------------------

    def make_tables(self, copied: dict[str, Any]) -> None:
        """Merge the tables."""
        numbering = self._numbering
        if numbering is None:  # an earlier call copied the records
            with self.sources[0].opened(None) as a, self.sources[1].opened(None) as b:
                numbering = self._survey([a, b])
            numbering.restore(copied["numbering"])
        merge_tables(self._roots, self.place, numbering, self.report.notes)

    def note_what_differs(self, copied: dict[str, Any]) -> None:
        """Note light queues and timed messages."""
        if copied["light"]:
            self.report.notes.append(
                "light queues of both stores have new queue offsets: "
                f"{copied['light']} records name light queues"
            )
        if (self.place / formats.CONSUME_QUEUE_DIR / formats.TOPIC_TIMER).is_dir():
            self.report.notes.append(
                "timed messages are copied without the timer's files, which a broker creates"
            )


def _earlier(heads: list[Record | None]) -> int:
    """Return which of two records comes first; the first store's at equal times."""
    a, b = heads
    if a is None or b is None:
        return int(a is None)
    return int(b.row["store_timestamp"] < a.row["store_timestamp"])
