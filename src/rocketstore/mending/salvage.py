"""Repairs a store whose corrupt log prevents opening for writing, on explicit request."""

from __future__ import annotations

import contextlib
import dataclasses
import errno
import logging
import os
import time
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Unpack

from rocketstore import formats
from rocketstore.arguments import Progress, StoreOptions
from rocketstore.config import MessageStoreConfig
from rocketstore.directory.checkpoint import read_small_file
from rocketstore.directory.lock import StoreLock
from rocketstore.directory.paths import StorePaths
from rocketstore.directory.place import check_platform, check_root
from rocketstore.directory.state import StoreState
from rocketstore.errors import MappedFileError, StoreFullError
from rocketstore.files.disk_room import RoomNeeded, allocated_nbytes
from rocketstore.files.durable import (
    READ_ONLY,
    READ_WRITE,
    TEMPORARY_PREFIX,
    open_regular_file,
    remove_leftovers,
    reporting_full_disk,
    sync_descriptor,
    sync_directory,
    write_file,
)
from rocketstore.files.mapped_file import MappedFile
from rocketstore.files.mapped_file_queue import check_place, list_directory
from rocketstore.files.raw import data_ranges
from rocketstore.index.geometry import index_paths
from rocketstore.index.index_service import new_file_nbytes
from rocketstore.log.damage import DamagedRange
from rocketstore.mending.salvage_damage import find_losses
from rocketstore.mending.salvage_plan import (
    LostOfTopic,
    LostPlace,
    Placeholder,
    SalvagePlan,
    Stretch,
    make_plan,
)
from rocketstore.recovery.report import RecoveryReport
from rocketstore.recovery.truncate import drop_file_pages, quarantine_path
from rocketstore.store.arguments import check_settings, merge, now_ms
from rocketstore.store.default_message_store import open as open_store
from rocketstore.store.fit_for_writing import refuse_unfit
from rocketstore.store.marks import queues_crc
from rocketstore.store.read_only import ReadOnlyParts
from rocketstore.survey.pointers import PointersPastEnd

_log = logging.getLogger(__name__)
_STEP_NBYTES = 1 << 20
#: Attempts to examine a store whose files are deleted at the same time.
_EXAMINING_TRIES = 10
_NO_LINK = (errno.EXDEV, errno.EPERM, errno.EOPNOTSUPP, errno.EMLINK, errno.ENOSYS)


@dataclass(frozen=True, slots=True)
class SalvagedSegment:
    """A segment that was rewritten, ``start`` .. ``stop`` in log offsets.

    ``reason`` says why. ``quarantined`` is the path of the old file; it is ``None`` if there was no
    file, or if nothing was changed (``what_if``).
    """

    path: str
    start: int
    reason: str
    quarantined: str | None
    stop: int = 0


@dataclass
class SalvageReport:
    """What ``salvage`` found and did, or would do.

    Attributes
    ----------
    path : str
    what_if : bool
        Nothing was changed.
    damaged : list of DamagedRange
        The lost ranges; the rest of the log is kept.
    segments : list of SalvagedSegment
        Rewritten files.
    placeholders : list of Placeholder
        Empty messages that keep the queue offsets of lost ones.
    gaps : list of (topic, queue id, first lost queue offset, next queue offset)
        Queue offsets of lost messages without a placeholder.
    lost : list of LostOfTopic
        All lost messages by topic, most first, and when they were stored.
    behind : PointersPastEnd
        Units and keys that point past the log's last good record.
    moved : list of str
        Other paths that were moved into quarantine.
    recovery : RecoveryReport
        Of the opening for writing that ends a salvage; with ``what_if`` of the check of the log.
    duration_s : float
    """

    path: str
    what_if: bool
    recovery: RecoveryReport
    damaged: list[DamagedRange] = field(default_factory=list)
    segments: list[SalvagedSegment] = field(default_factory=list)
    placeholders: list[Placeholder] = field(default_factory=list)
    gaps: list[tuple[str, int, int, int]] = field(default_factory=list)
    lost: list[LostOfTopic] = field(default_factory=list)
    behind: PointersPastEnd = field(default_factory=lambda: PointersPastEnd(0))
    moved: list[str] = field(default_factory=list)
    duration_s: float = 0.0

    @property
    def was_needed(self) -> bool:
        """Whether a segment had to be rewritten; if not, opening for writing is enough."""
        return bool(self.segments)

    @property
    def lost_count(self) -> int:
        """Number of lost messages, as far as queue offsets, units and keys show."""
        return max(sum(one.count for one in self.lost), self.behind.message_count)

    @property
    def lost_nbytes(self) -> int:
        """Number of lost bytes of the log."""
        return sum(damage.stop - damage.start for damage in self.damaged)


def salvage(
    path: str | os.PathLike[str],
    *,
    what_if: bool = False,
    placeholders: bool = True,
    config: MessageStoreConfig | None = None,
    progress: Progress | None = None,
    **options: Unpack[StoreOptions],
) -> SalvageReport:
    """Repair a store whose log is corrupt below its durable offset, so that it can be written.

    Every segment with a corrupt range is rewritten to a new file, which replaces the old one. The
    old file is kept unchanged under ``quarantine``. Good records before and after the corrupt range
    keep their log offsets and queue offsets. The range is filled with records that are in no queue,
    so that a broker can follow the log. A missing or short segment is completed. Then the store is
    opened for writing and closed, which updates queues and index.

    Parameters
    ----------
    path : path
        The store's root.
    what_if : bool
        Only report what would be done, or raise what would be raised; take no lock and change
        nothing.
    placeholders : bool
        Put an empty message with the property ``ROCKETSTORE_LOST`` in place of each lost one whose
        queue offset is known, except in the broker's own topics, batch queues and light queues.
        Consumers see it. Without placeholders, RocketMQ renumbers later messages of the queue when
        it rebuilds the queue from the log, and skips messages when it reads across the gap.
    config : MessageStoreConfig, optional
    progress : callable, optional
        Called as ``progress(what, done, total)``.
    **options
        Fields of ``MessageStoreConfig``.

    Returns
    -------
    SalvageReport

    Raises
    ------
    StoreLockedError
        Another process writes the store.
    ConfigError, MappedFileError, UnsafePathError
        As ``open`` raises them for reasons other than a corrupt log.
    StoreFullError
        The disk has no space for a new segment. The store is unchanged, except for segments that
        are already rewritten.

    Notes
    -----
    After a kill or power failure at any moment, each segment is either old or new. Calling
    ``salvage`` again completes the repair.
    """
    settings = merge(config, options)
    check_platform("r+")
    check_settings(settings)
    root = Path(path)
    check_root(root, "r+")
    began = time.monotonic()
    job = SalvageJob(root, settings, progress, placeholders=placeholders)
    with contextlib.nullcontext() if what_if else _locked(root, job.log_folder):
        if not what_if:
            job.forget_stale_pages()
            report = job.examine()
        else:
            report = job.examine_beside_a_writer()
        report.what_if = what_if
        if what_if:
            job.ask_for_room(report)
        else:
            job.mend(report)
    if not what_if:
        with (
            _naming_what_is_done(report),
            open_store(root, "r+", config=settings, start=False, progress=progress) as store,
        ):
            report.recovery = store.recovery_report
    report.duration_s = time.monotonic() - began
    return report


@contextlib.contextmanager
def _naming_what_is_done(report: SalvageReport) -> Iterator[None]:
    """Add to a ``StoreFullError`` for queues and index that the log is already repaired."""
    try:
        yield
    except StoreFullError as error:
        if not report.was_needed:
            raise
        raise StoreFullError(
            error.errno,
            f"the log is repaired ({len(report.segments)} files were rewritten), but queues and "
            f"index could not be updated: {error.strerror}; free disk space, then run rocketstore "
            "recover",
        ) from error


@contextlib.contextmanager
def _locked(root: Path, log_folder: Path) -> Iterator[None]:
    lock = StoreLock(root)
    try:
        if log_folder.is_dir():
            lock.hold_folder(log_folder)
        yield
    finally:
        lock.release()


class SalvageJob:
    """One run over one store: ``examine``, then ``mend``."""

    def __init__(
        self,
        root: Path,
        config: MessageStoreConfig,
        progress: Progress | None,
        *,
        placeholders: bool,
    ) -> None:
        self._paths = StorePaths.of(root, config)
        self._config = config
        self._progress = progress
        self._placeholders = placeholders
        self.plan = SalvagePlan()
        self.listed: list[tuple[int, Path, int]] = []
        self.segment_nbytes = 0
        self._old_state = b""

    # --- examining ----------------------------------------------------------------------------

    @property
    def log_folder(self) -> Path:
        """The folder of the log."""
        return self._paths.commit_log

    def forget_stale_pages(self) -> None:
        """Drop cached pages, so that the log is read from its disk.

        After an I/O error the system may cache pages that never reached the disk, and call them
        clean. Must run before a file is mapped: mapped pages stay cached.
        """
        if self._paths.abort.exists():
            for _, path, _ in list_directory(self._paths.commit_log, self._paths.log_root).files:
                drop_file_pages(path, 0)

    def examine(self) -> SalvageReport:
        """Check the whole log and plan the repair."""
        parts = self.open_parts()
        try:
            self._facts = facts = parts.facts
            self.segment_nbytes = parts.log.segment_size
            self.listed = self.list_segments()
            losses = find_losses(
                parts.log, facts, self.listed, self._progress, list(parts.queues), parts.index
            )
            damaged, found = self.set_right(parts, losses.damaged)
            # Units show messages that were past the end that is left.
            end = max([parts.log.max_offset, *(damage.stop for damage in damaged)])
            for queue in parts.queues:
                queue.recover(end, whole=False)
            self.plan = make_plan(
                parts.log, parts.queues, damaged, placeholders=self._placeholders, found=found
            )
        finally:
            parts.close()
        report = SalvageReport(str(self._paths.root), True, losses.report, damaged)
        report.gaps = _as_gaps(self.plan.unplaced)
        report.lost = sorted(self.plan.lost.values(), key=lambda one: (-one.count, one.topic))
        report.behind = losses.past_end
        for base, reason in self._reasons(damaged).items():
            path = self._paths.commit_log / formats.offset_to_file_name(base)
            report.segments.append(
                SalvagedSegment(str(path), base, reason, None, base + self.segment_nbytes)
            )
            for stretch in self.plan.stretches.get(base, ()):
                report.placeholders += stretch.records()[1]
        return report

    def open_parts(self) -> ReadOnlyParts:
        """Open the store's parts as its files have them."""
        refuse_unfit(self._paths, self._config)
        return ReadOnlyParts(self._paths, self._config, derive="none", clock=now_ms, progress=None)

    def set_right(
        self, parts: ReadOnlyParts, damaged: list[DamagedRange]
    ) -> tuple[list[DamagedRange], set[tuple[str, int, int]]]:
        """Return what of the damage is lost, and topic, queue id and queue offset of messages that
        only seem to be."""
        del parts
        return damaged, set()

    def list_segments(self) -> list[tuple[int, Path, int]]:
        """Return start, path and size of the log's files, including empty ones."""
        files = list_directory(self._paths.commit_log, self._paths.log_root).files
        for start, path, _ in files:
            check_place(start, path, self.segment_nbytes)
        return files

    def _reasons(self, damaged: Sequence[DamagedRange]) -> dict[int, str]:
        """Return why each segment must be rewritten, by its first log offset."""
        reasons: dict[int, str] = {}
        for start, _, nbytes in self.listed:
            is_unused = nbytes == 0 and start == self.listed[-1][0]
            if nbytes != self.segment_nbytes and not is_unused:
                reasons[start] = f"it has {nbytes} bytes instead of {self.segment_nbytes}"
        known = {start for start, _, _ in self.listed}
        for base, stretches in self.plan.stretches.items():
            if base not in known:
                reasons[base] = "it is missing"
                continue
            first = stretches[0].start
            reason = next(one.reason for one in damaged if one.start <= first < one.stop)
            reasons.setdefault(base, reason)
        return dict(sorted(reasons.items()))

    def examine_beside_a_writer(self) -> SalvageReport:
        """Examine without the lock; retry if the writer deleted a file meanwhile."""
        for _ in range(_EXAMINING_TRIES - 1):
            with contextlib.suppress(FileNotFoundError):
                return self.examine()
        return self.examine()

    # --- repairing ----------------------------------------------------------------------------

    def mend(self, report: SalvageReport) -> None:
        """Repair as ``examine`` planned. Each step is durable before the next one begins."""
        for directory in {self._paths.root, self._paths.log_root}:
            remove_leftovers(directory)
        if not report.segments:
            return
        self.ask_for_room(report)
        had_quarantine = os.path.lexists(self._paths.root / formats.QUARANTINE_DIR)
        self._old_state = read_small_file(self._paths.state, self._paths.root)
        renewed: list[SalvagedSegment] = []
        try:
            self._forget_derived(report)
            for segment in report.segments:
                renewed.append(self._renew(segment))
        except BaseException:
            if not renewed:
                self._take_back(report, had_quarantine=had_quarantine)
            raise
        report.segments = renewed

    def ask_for_room(self, report: SalvageReport) -> None:
        """Raise ``StoreFullError`` before the first change if the disk lacks space.

        Needed are new segments (the old files stay in quarantine) and a new index.
        """
        if not report.segments:
            return
        room = RoomNeeded(f"{len(report.segments)} new log files and the rebuilt index")
        known = {start: path for start, path, _ in self.listed}
        for segment in report.segments:
            stretches = self.plan.stretches.get(segment.start, [])
            filled = sum(sum(map(len, stretch.records()[0])) for stretch in stretches)
            path = known.get(segment.start)
            kept = 0 if path is None else min(allocated_nbytes(path), self.segment_nbytes)
            room.add(self._paths.log_root, [min(filled + kept, self.segment_nbytes)])
            if path is not None and not _may_link(path, self._paths.root):
                room.add(self._paths.root, [kept])
        room.add(self._paths.root, self._index_nbytes())
        room.add_marks(self._paths.root)
        room.refuse_lack()

    def _index_nbytes(self) -> Iterator[int]:
        """Yield the bytes on disk of each index file that will be rebuilt."""
        if not self._config.message_index_enable:
            return
        paths = index_paths(self._paths.index, self._paths.root, [])
        for path, _ in paths:
            yield allocated_nbytes(path)
        if not paths and self._facts.checkpoint.index_timestamp > 0:  # there were keys
            yield new_file_nbytes(*self._facts.index.pair)

    def _take_back(self, report: SalvageReport, *, had_quarantine: bool) -> None:
        """Undo ``_forget_derived``: no segment was rewritten."""
        with contextlib.suppress(OSError):
            for moved in report.moved:
                os.rename(moved, self._paths.index)
            report.moved.clear()
            if self._old_state:
                write_file(self._paths.state, self._old_state)
            else:
                self._paths.state.unlink(missing_ok=True)
            if not had_quarantine:
                (self._paths.root / formats.QUARANTINE_DIR).rmdir()
            sync_directory(self._paths.root)

    def _forget_derived(self, report: SalvageReport) -> None:
        """Make the next opening rebuild queues and index: they may point to lost records.

        Resets their offsets in the state file, which keeps the durable offset and all sizes. After
        a kill between two segments, corruption then does not look like a torn write, and no file
        gets another size.
        """
        self._write_state(max([report.recovery.log_end, *(one.stop for one in report.damaged)]))
        index = self._paths.index
        is_folder = index.is_dir() and not index.is_symlink()
        if self._config.message_index_enable and is_folder and os.listdir(index):
            target = quarantine_path(self._paths.root, f"{now_ms()}-{formats.INDEX_DIR}")
            os.rename(index, target)
            sync_directory(target.parent)
            sync_directory(self._paths.root)
            report.moved.append(str(target))

    def _write_state(self, log_end: int) -> None:
        """Write a state file; a log that ends before ``log_end`` later is then known to have lost
        its end."""
        facts, state = self._facts, self._facts.valid_state
        if state is None:
            # The state file will call everything found good durable, so sync it now.
            for _, path, _ in self.listed:
                sync_file(path, self._paths.log_root)
        flushed = log_end if state is None else state.flushed_offset
        StoreState(
            flushed_offset=flushed,
            dispatched_offset=0,
            indexed_offset=0,
            log_end_offset=max(flushed, log_end),
            commit_log_file_size=facts.commit_log_file_size,
            consume_queue_file_size=facts.consume_queue_file_size,
            hash_slot_num=facts.index.pair[0],
            index_num=facts.index.pair[1],
            clean=False,
            queue_count=0,
            queue_crc=queues_crc(()),
            index_file_count=0,
            checkpoint_crc=facts.checkpoint_crc,
            broker_version=facts.dialect.name,
            timezone=self._config.timezone or ("" if state is None else state.timezone),
        ).write(self._paths.state)

    def _renew(self, segment: SalvagedSegment) -> SalvagedSegment:
        """Write a new segment, keep the old file in quarantine, and replace it."""
        path = Path(segment.path)
        temporary = self._paths.log_root / f"{TEMPORARY_PREFIX}{os.getpid()}-{os.urandom(6).hex()}"
        old = None
        if any(start == segment.start for start, _, _ in self.listed):
            old = MappedFile(path, segment.start, self._nbytes(segment), self._paths.log_root)
        try:
            with reporting_full_disk(path):
                fd = os.open(temporary, READ_WRITE | os.O_CREAT | os.O_EXCL, 0o644)
                try:
                    self.write_segment(fd, segment.start, old)
                    sync_descriptor(fd)
                    nbytes = os.fstat(fd).st_size
                finally:
                    os.close(fd)
                if nbytes != self.segment_nbytes:
                    raise MappedFileError(
                        f"the new {path} would have {nbytes} bytes instead of "
                        f"{self.segment_nbytes}; the old file stays unchanged"
                    )
                kept = None if old is None else self._keep(path)
                os.replace(temporary, path)
        except BaseException:
            temporary.unlink(missing_ok=True)
            raise
        finally:
            if old is not None:
                old.close()
        sync_directory(path.parent)
        where = "there was no file" if kept is None else f"the old file is {kept}"
        _log.warning("rewrote %s (%s); %s", path, segment.reason, where)
        return dataclasses.replace(segment, quarantined=kept)

    def _nbytes(self, segment: SalvagedSegment) -> int:
        (nbytes,) = (nbytes for start, _, nbytes in self.listed if start == segment.start)
        return min(nbytes, self.segment_nbytes)

    def write_segment(self, fd: int, base: int, old: MappedFile | None) -> None:
        """Copy the good ranges, and fill the corrupt ones without reading them: the disk may be
        faulty there."""
        os.ftruncate(fd, self.segment_nbytes)
        position = 0
        stretches = self.plan.stretches.get(base, [])
        for stretch in stretches:
            if old is not None:
                _copy(old, fd, position, stretch.start - base)
            self._fill(fd, base, stretch)
            position = stretch.stop - base
        if old is not None:
            _copy(old, fd, position, old.file_size)

    @staticmethod
    def _fill(fd: int, base: int, stretch: Stretch) -> None:
        position = stretch.start - base
        for record in stretch.records()[0]:
            view = memoryview(record)
            while view:
                written = os.pwrite(fd, view, position)
                view, position = view[written:], position + written

    def _keep(self, path: Path) -> str:
        """Give the old file a second name under quarantine; copy it if links are not possible."""
        root = self._paths.root
        for other in (root / formats.QUARANTINE_DIR).glob(f"*-{path.name}"):
            if other.samefile(path):
                return str(other)  # a former salvage was killed right after this step
        target = quarantine_path(root, f"{now_ms()}-{path.name}")
        try:
            os.link(os.path.realpath(path), target)
        except OSError as error:
            if error.errno not in _NO_LINK:
                raise
            write_file(target, _pieces(path, self._paths.log_root))
        sync_directory(target.parent)
        return str(target)


def _may_link(path: Path, root: Path) -> bool:
    """Return whether ``path`` can get a second name in ``root``: both are on one disk."""
    return os.stat(path).st_dev == os.stat(root).st_dev


def sync_file(path: Path, root: Path) -> None:
    """Sync one file's data."""
    fd = open_regular_file(path, READ_ONLY, root)
    try:
        sync_descriptor(fd)
    finally:
        os.close(fd)


def _as_gaps(places: Sequence[LostPlace]) -> list[tuple[str, int, int, int]]:
    """Join consecutive lost queue offsets into gaps."""
    gaps: list[tuple[str, int, int, int]] = []
    for topic, queue_id, number, *_ in sorted(places):
        if gaps and gaps[-1][:2] == (topic, queue_id) and gaps[-1][3] == number:
            gaps[-1] = (topic, queue_id, gaps[-1][2], number + 1)
        else:
            gaps.append((topic, queue_id, number, number + 1))
    return gaps


def _copy(old: MappedFile, fd: int, position: int, stop: int) -> None:
    """Copy ``position`` .. ``stop`` of a file; holes stay holes."""
    for start, end in data_ranges(old, position):
        for at in range(start, min(end, stop), _STEP_NBYTES):
            chunk = old.read(at, min(_STEP_NBYTES, end - at, stop - at))
            done = 0
            while done < len(chunk):
                done += os.pwrite(fd, chunk[done:], at + done)
        if end >= stop:
            return


def _pieces(path: Path, root: Path) -> Iterator[bytes]:
    fd = open_regular_file(path, READ_ONLY, root)
    try:
        position = 0
        while chunk := os.pread(fd, _STEP_NBYTES, position):
            yield chunk
            position += len(chunk)
    finally:
        os.close(fd)
