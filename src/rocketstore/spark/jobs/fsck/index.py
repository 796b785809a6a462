"""The index part of ``fsck``: every key of the log has an entry, and every entry has its key."""

from __future__ import annotations

from collections import Counter
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any

from rocketstore import formats
from rocketstore.sources.files import local_path, remote_files
from rocketstore.sources.segments import LogFiles, list_log
from rocketstore.sources.splits import Split
from rocketstore.spark.jobs.fsck.index_files import (
    FindingRow,
    IndexFileFacts,
    IndexFileItem,
    finding,
    judge_file,
    list_index,
    look_up_bounds,
)
from rocketstore.spark.jobs.fsck.index_split import EntryRange, SplitFacts, SplitItem, is_record
from rocketstore.spark.jobs.tasks import run_tasks

if TYPE_CHECKING:
    from pyspark.sql import SparkSession


@dataclass
class IndexFindings:
    """The result of the index check.

    Attributes
    ----------
    findings : list of FindingRow
        kind, severity, path, position, physical offset, topic, queue id, queue offset, reason; the
        kinds are those of ``verify``: ``index-file``, ``index-header``, ``index-chain``,
        ``index-entry``, ``missing-key``. At most 1,000 for each file and each split.
    finding_counts : dict
        Number of all findings, by kind.
    summary : dict
        ``index_files``; ``keys``: entries that agree with their record; ``expired_keys``,
        ``damaged_keys``, ``newer_keys``, ``doubled_keys``: entries that are odd but allowed;
        ``behind_keys``: records with keys that are not indexed yet; ``odd_index_tails``.
    notes : list of str
        Descriptions of what was not checked.
    """

    findings: list[FindingRow] = field(default_factory=list)
    finding_counts: Counter[str] = field(default_factory=Counter)
    summary: Counter[str] = field(default_factory=Counter)
    notes: list[str] = field(default_factory=list)

    def add(self, row: FindingRow) -> None:
        """Add one finding."""
        self.findings.append(row)
        self.finding_counts[row[0]] += 1


class IndexCheck:
    """Compares a store's index files with the keys of its log, both ways and exactly.

    Index entries have the order of the log. The walk that reads a split thus compares it with its
    own range of the index files; no key is kept, sorted or sent. The driver looks up these ranges
    in local files, assuming that the files are valid. Other tasks judge the files meanwhile, and
    only splits with a wrong range are checked again. Remote files are judged first.

    Parameters
    ----------
    spark : SparkSession or None
        ``None``: in this process.
    log : LogFiles
    splits : sequence of Split
        All splits of the log, in order.
    log_end : int
        Physical end of the last good record; later entries are compared with the log's current
        content.
    dispatched : int, optional
        Records from this physical offset on need no entries. The default follows the store's
        files: all records are dispatched after an orderly stop, else those before the newest
        entry's record.
    damaged : sequence of (start, stop)
        Known ranges of the log without good records, as physical offsets.
    index_uri : str, optional
        The index folder; default: the store's.
    storage_options : mapping, optional
        Options for fsspec.

    Attributes
    ----------
    items : list of SplitItem or None
        What the task of each split compares; ``None`` for nothing.
    files : list of IndexFileItem
        The files that ``judge_file`` has to judge.

    Raises
    ------
    MappedFileError
        If a file is missing or was shortened.
    """

    def __init__(
        self,
        spark: SparkSession | None,
        log: LogFiles,
        splits: Sequence[Split],
        *,
        log_end: int,
        dispatched: int | None = None,
        damaged: Sequence[tuple[int, int]] = (),
        index_uri: str | None = None,
        storage_options: Mapping[str, Any] | None = None,
    ) -> None:
        self._report = IndexFindings()
        self._log = log
        self._damaged = [*damaged, *log.holes]
        self._options = dict(storage_options) if storage_options else None
        self._files: list[IndexFileFacts] = []
        self._splits = splits
        self._dispatched = self._log_end = log_end
        self.files: list[IndexFileItem] = []
        self.items: list[SplitItem | None] = [None] * len(splits)
        root = store_uri(log)
        listing = list_index(root, index_uri=index_uri, storage_options=self._options)
        if listing is None:
            self._report.notes.append("the store has no index folder: its keys were not checked")
            return
        for row in listing.findings:
            self._report.add(row)
        edges = (*(min(one.base_offset + one.start, log_end) for one in splits), log_end)
        if len(edges) == 1:
            self._log_end = max(log_end, log.min_offset)
            edges = (log.min_offset, self._log_end)
        self._edges = edges
        items = [IndexFileItem(*row, edges, self._options) for row in listing.files]
        if local_path(root) is None:
            self._files = list(run_tasks(spark, judge_file, items))
        else:
            self._files, self.files = [look_up_bounds(item) for item in items], items
        if dispatched is None:
            dispatched = self._shown_end(root, log_end, edges[0])
        self._dispatched = dispatched
        self.items = self._items(is_guess=bool(self.files))

    def _shown_end(self, root: str, log_end: int, log_start: int) -> int:
        """Return the physical offset up to which the store's files show records as indexed."""
        if not _is_aborted(root, self._options):
            return log_end
        last = self._files[-1] if self._files else None
        known = last.end_physical_offset if last is not None and last.count else log_start
        return min(log_end, known)

    def _items(self, *, is_guess: bool) -> list[SplitItem | None]:
        found: list[SplitItem | None] = []
        for number, split in enumerate(self._splits):
            start, stop = self._edges[number], self._edges[number + 1]
            if start >= stop:
                found.append(None)
                continue
            damaged = (one for one in self._damaged if one[0] < stop and one[1] > start)
            ranges = tuple(_ranges(self._files, number))
            found.append(
                SplitItem(
                    *(split, start, stop, self._dispatched, ranges, is_guess, tuple(damaged)),
                    self._options,
                )
            )
        return found

    def judged(
        self, files: Sequence[IndexFileFacts], found: Sequence[SplitFacts | None]
    ) -> list[int]:
        """Use the results of ``judge_file`` for ``files``, and of the tasks of the splits.

        Updates ``items``, and returns the numbers of the splits that must be checked again.
        """
        if not self.files:
            return []
        guessed = self.items
        self._files = list(files)
        self.items = self._items(is_guess=False)
        return [
            number
            for number, (guess, item) in enumerate(zip(guessed, self.items, strict=True))
            if guess is not None
            and item is not None
            and (found[number] is None or guess.ranges != item.ranges)
        ]

    def finish(self, found: Sequence[SplitFacts | None]) -> IndexFindings:
        """Return the combined findings; ``found`` has the result of each split's task.

        Without an index folder there are no findings, only a note.
        """
        compared = [
            (item, facts)
            for item, facts in zip(self.items, found, strict=True)
            if item is not None and facts is not None
        ]
        _take_files(self._report, self._files)
        _take_splits(self._report, compared, self._damaged)
        _judge_past_end(
            self._report, self._log, self._files, self._damaged, self._options, self._log_end
        )
        return self._report


def store_uri(log: LogFiles) -> str:
    """Return the root of the store that a listed log belongs to."""
    root = log.root.rstrip("/")
    name = root.replace("\\", "/").rsplit("/", 1)[-1]
    return root[: -len(name)].rstrip("/\\") or "." if name == formats.COMMIT_LOG_DIR else root


def _is_aborted(root: str, options: dict[str, Any] | None) -> bool:
    """Return whether the last writer crashed or is still running."""
    path = local_path(root)
    if path is not None:
        return (path / formats.ABORT_FILE).exists()
    files, folder = remote_files(root, options)
    return any(entry.name == formats.ABORT_FILE for entry in files.entries(folder))


def _ranges(files: Sequence[IndexFileFacts], number: int) -> list[EntryRange]:
    """Return each file's entry range for a split."""
    return [
        EntryRange(
            one.item,
            one.begin_timestamp,
            one.end_timestamp,
            one.count,
            one.ordered,
            one.bounds[number],
            one.bounds[number + 1],
        )
        for one in files
        if one.bounds[number] < one.bounds[number + 1]
    ]


def _take_files(report: IndexFindings, files: Sequence[IndexFileFacts]) -> None:
    report.summary["index_files"] = len(files)
    for one in files:
        report.findings += one.findings
        report.finding_counts.update(one.finding_counts)
        report.summary.update(one.counts)
        report.summary["expired_keys"] += one.bounds[0] - one.negative_count
        for number, offset in one.negatives:
            report.findings.append(_nothing_at(one.item, number, offset))
        report.finding_counts.update({"index-entry": one.negative_count})


def _nothing_at(item: IndexFileItem, number: int, offset: int) -> FindingRow:
    position = formats.index_file_nbytes(item.slots, number)
    reason = f"entry {number}: no record starts at log offset {offset}"
    return finding("index-entry", item.uri, position, offset, reason)


def _take_splits(
    report: IndexFindings,
    compared: Sequence[tuple[SplitItem, SplitFacts]],
    damaged: Sequence[tuple[int, int]],
) -> None:
    known = [*damaged, *(one for _, facts in compared for one in facts.damaged)]
    for item, facts in compared:
        report.findings += facts.findings
        report.finding_counts.update(facts.finding_counts)
        report.summary.update(facts.counts)
        # Damage that begins in an earlier split extends up to this one's first record.
        if any(start < facts.first_record and stop > item.start for start, stop in known):
            report.summary["damaged_keys"] += facts.lead_count
        else:
            report.findings += facts.lead
            report.finding_counts.update({"index-entry": facts.lead_count})


def _judge_past_end(
    report: IndexFindings,
    log: LogFiles,
    files: Sequence[IndexFileFacts],
    damaged: Sequence[tuple[int, int]],
    options: dict[str, Any] | None,
    log_end: int,
) -> None:
    """Judge entries past the log's end: lost with the log, newer than this check, or invalid."""
    if any(one.past_end for one in files):
        # A writer may have begun segments meanwhile.
        log = list_log(log.root, storage_options=options, allow_holes=True)
    for one in files:
        more, lost = one.past_end_count - len(one.past_end), 0
        stray: list[tuple[int, int]] = []
        for number, offset in one.past_end:
            if any(start <= offset < stop for start, stop in damaged):
                lost += 1
            elif _is_newer(log, offset, options):
                report.summary["newer_keys"] += 1
            else:
                stray.append((number, offset))
        # The entries that were not examined count like the examined ones.
        if stray:
            report.add(_past_the_end(one.item, stray, len(stray) + more, log_end))
        else:
            report.summary["damaged_keys" if lost else "newer_keys"] += more
        report.summary["damaged_keys"] += lost


def _past_the_end(
    item: IndexFileItem, entries: Sequence[tuple[int, int]], count: int, log_end: int
) -> FindingRow:
    """Return the single finding for a file's entries past the log's end, worded like ``verify``."""
    offsets = [offset for _, offset in entries]
    what = f"it names log offset {offsets[0]}"
    if count > len(entries):
        what = f"{count:,} entries name log offsets from {min(offsets)} on"
    elif count > 1:
        what = f"{count:,} entries name log offsets {min(offsets)} to {max(offsets)}"
    number, offset = entries[0]
    reason = f"entry {number}: {what}, past the log's end {log_end}"
    position = formats.index_file_nbytes(item.slots, number)
    return finding("index-entry", item.uri, position, offset, reason)


def _is_newer(log: LogFiles, offset: int, options: dict[str, Any] | None) -> bool:
    for segment in log.segments:
        if segment.base_offset <= offset < segment.end_offset:
            return is_record(segment, offset, options)
    return False
