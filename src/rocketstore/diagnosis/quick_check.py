"""What names, sizes, heads, tails, checkpoint and tables show, without reading the log."""

from __future__ import annotations

import itertools
import os
import time
from collections.abc import Iterator
from pathlib import Path

from rocketstore import formats
from rocketstore.diagnosis.image import READ_ERRORS, Entry, SparseFile, StoreImage
from rocketstore.diagnosis.log_check import missing_ranges
from rocketstore.diagnosis.pointers import LostMessages, Pointers
from rocketstore.diagnosis.sizes import StoreSizes
from rocketstore.diagnosis.topics_check import TopicsCheck
from rocketstore.diagnosis.verdict import DataEffect, Findings, Place
from rocketstore.directory.access import StoreAccess
from rocketstore.directory.checkpoint import StoreCheckpoint
from rocketstore.verify.beside.tables import BrokerTables

_DAY_MS = 86_400_000
_FULL_RATIO = 0.9
_MAPS = Path("/proc/sys/vm/max_map_count")


class QuickCheck:
    """The checks of the level ``quick``.

    Parameters
    ----------
    image : StoreImage
    sizes : StoreSizes
    findings : Findings
    access : StoreAccess
    pointers : Pointers
    """

    def __init__(
        self,
        image: StoreImage,
        sizes: StoreSizes,
        findings: Findings,
        access: StoreAccess,
        pointers: Pointers,
    ) -> None:
        self._image = image
        self._sizes = sizes
        self._findings = findings
        self._access = access
        self._pointers = pointers
        self._paths = image.paths
        self.is_unclean = os.path.lexists(self._paths.abort)
        self.notes: list[str] = []

    def run(self, checkpoint: StoreCheckpoint) -> None:
        """Add all findings."""
        self._check_store(checkpoint)
        self._check_access()
        self._check_log()
        self._check_queues()
        self._check_index(checkpoint)
        self._check_checkpoint(checkpoint)
        self._check_tables()
        self._check_room()

    def _add(self, code: str, what: str = "", *where: Place, **more: object) -> None:
        self._findings.add(code, what, where, **more)  # type: ignore[arg-type]

    def _at(self, path: Path, position: int | None = None, **more: object) -> Place:
        return Place(self._image.relative(path), position, **more)  # type: ignore[arg-type]

    # --- the store ------------------------------------------------------------------------------

    def _check_store(self, checkpoint: StoreCheckpoint) -> None:
        paths = self._paths
        if self.is_unclean:
            self._add("store.unclean", "", self._at(paths.abort))
        if paths.has_writer():
            self._add("store.in-use", "", self._at(paths.root / formats.LOCK_FILE))
        log = paths.commit_log
        # Reported as such; whether it holds a log is unknown.
        is_hidden = self._access.hides(log) or log in self._access.odd
        if log.is_symlink() and not log.exists():
            what = f"{log.name} is a link to {os.path.realpath(log)}, which does not exist"
            self._add("store.elsewhere", what, self._at(log))
        elif not is_hidden and not any(one.start is not None for one in self._image.log):
            others = [
                one
                for one in (paths.consume_queue, paths.index, paths.checkpoint)
                if os.path.lexists(one)
            ]
            # A store that was closed before its first message has no log yet.
            had_records = self._pointers.highest > 0 or checkpoint.physic_timestamp != 0
            if others and (had_records or (self.is_unclean and not log.exists())):
                known = self._pointers.highest
                what = f"the log is not there; the queues name records up to offset {known}"
                self._add("store.log-missing", what, self._at(log))
        if paths.more_logs:
            self._check_folders_of_log()
        quarantine = paths.root / "quarantine"
        if quarantine.is_dir():
            self._add(
                "store.salvaged", "a recovery or salvage moved files to quarantine",
                self._at(quarantine), data=DataEffect("none"),
            )  # fmt: skip

    def _check_folders_of_log(self) -> None:
        for folder in self._paths.log_folders:
            if not folder.is_dir():
                what = f"the folder {folder}, which holds a part of the log, is not there"
                self._add("store.elsewhere", what, self._at(folder))
        named: dict[int, Path] = {}
        for entry in self._image.log:
            if entry.start is None:
                continue
            other = named.setdefault(entry.start, entry.path)
            if other != entry.path:
                what = f"{other} and {entry.path} have the same name; one of them is not the log's"
                self._add("store.mixed", what, self._at(other), self._at(entry.path))

    def _check_access(self) -> None:
        for path, why in sorted(self._access.unreadable.items()):
            is_segment = path.parent in self._paths.log_folders
            code = "log.segment.unreadable" if is_segment else "store.owner"
            self._add(code, f"{path.name} cannot be read: {why}", self._at(path))
        for path in sorted(self._access.odd):
            code = "store.link" if path.is_symlink() else "store.odd-file"
            self._add(code, f"{path.name}: {self._access.odd_in_words(path)}", self._at(path))
        for path, other in sorted(self._access.shared.items()):
            what = f"{path.name} is the same file as {self._image.relative(other)}"
            self._add("store.link", what, self._at(path))
        tables = (self._image.queues, self._image.batch_queues, self._image.ext_queues)
        queues = [one for table in tables for found in table.values() for one in found]
        for entry in (*self._image.log, *queues):
            if entry.kind == "link":
                what = f"{entry.name} is a link that leaves the store or names nothing"
                self._add("store.link", what, self._at(entry.path))
            elif entry.start is None:
                what = f"{entry.name} ({entry.nbytes:,} bytes) does not belong in its folder"
                self._add("store.foreign", what, self._at(entry.path))

    # --- the log --------------------------------------------------------------------------------

    def _check_log(self) -> None:
        size = self._sizes.segment
        files = [one for one in self._image.log if one.start is not None]
        for entry in files:
            self._check_segment(entry, size)
        starts = [one.start for one in files if one.start is not None]
        odd = [start for start in starts if start % size]
        if odd and len(odd) * 2 > len(starts):
            what = f"the log's names do not fit segments of {size:,} bytes"
            self._add("store.geometry", what, self._at(self._paths.commit_log))
            return
        for start, stop in missing_ranges(starts, size):
            lost = self._pointers.between(start, stop)
            path = self._paths.commit_log / formats.offset_to_file_name(start)
            count = (stop - start) // size
            what = f"{count} segments are missing inside the log" if count > 1 else (
                f"the segment {path.name} is missing inside the log"
            )  # fmt: skip
            place = self._at(path, 0, nbytes=stop - start, offset=start)
            self._add("log.segment.missing", what, place, data=self._lost(lost, stop - start))

    def _lost(self, lost: LostMessages, nbytes: int) -> DataEffect:
        messages, topics, keys = lost
        estimated = not messages or not self._pointers.is_complete
        return DataEffect(
            "lost", messages, nbytes, topics=topics, keys=keys, estimated=estimated
        )  # fmt: skip

    def _check_segment(self, entry: Entry, size: int) -> None:
        start = entry.start or 0
        if entry.kind != "file" or entry.nbytes == size:
            return
        place = self._at(entry.path, entry.nbytes, offset=start + entry.nbytes)
        lost = self._pointers.between(start + entry.nbytes, start + size)
        data = self._lost(lost, size - entry.nbytes)
        if entry.nbytes > size:
            what = f"{entry.name} has {entry.nbytes:,} bytes instead of {size:,}"
            self._add("log.segment.long", what, place, data=DataEffect("invisible"))
            return
        if not lost.messages:
            data = DataEffect("none" if not entry.nbytes else "invisible")
        code = "log.segment.short" if entry.nbytes else "log.segment.empty"
        what = f"{entry.name} has {entry.nbytes:,} bytes instead of {size:,}"
        self._add(code, what, place, data=data)

    # --- queues ---------------------------------------------------------------------------------

    def _check_queues(self) -> None:
        folder = self._paths.consume_queue
        if not os.path.lexists(folder) and self._has_log():
            what = "the folder consumequeue is missing"
            self._add("queue.missing", what, self._at(folder, 0))
        for (topic, queue_id), files in self._image.queues.items():
            self._check_queue(topic, queue_id, files, self._sizes.queue)
        for (topic, queue_id), files in self._image.batch_queues.items():
            self._check_queue(topic, queue_id, files, self._sizes.batch)
        for (topic, queue_id), files in self._image.ext_queues.items():
            self._check_ext(topic, queue_id, files, self._sizes.ext)

    def _has_log(self) -> bool:
        return any(one.start is not None and one.nbytes for one in self._image.log)

    def _check_queue(self, topic: str, queue_id: int, files: list[Entry], size: int) -> None:
        named = [one for one in files if one.start is not None]
        for number, one in enumerate(named):
            if one.kind != "file":
                continue
            place = self._at(one.path, one.nbytes, topic=topic, queue_id=queue_id)
            what = f"{topic} queue {queue_id}: {one.name} has {one.nbytes:,} bytes instead of "
            if not one.nbytes:
                self._add("queue.file.empty", f"{what}{size:,}", place)
            elif one.nbytes != size:
                self._add("queue.file.short", f"{what}{size:,}", place)
            elif number < len(named) - 1 and self._is_zero(one):
                what = f"{topic} queue {queue_id}: {one.name} holds only zeros"
                self._add("queue.file.empty", what, place)
        starts = [one.start for one in named if one.start is not None]
        for start, stop in missing_ranges(starts, size):
            name = formats.offset_to_file_name(start)
            first = start // formats.CONSUME_QUEUE_UNIT.nbytes
            last = stop // formats.CONSUME_QUEUE_UNIT.nbytes
            place = self._at(
                named[0].path.with_name(name), 0, topic=topic, queue_id=queue_id,
                queue_offset=first,
            )  # fmt: skip
            what = f"{topic} queue {queue_id}: {name} is missing, queue offsets {first} to {last}"
            topics = [
                {"topic": topic, "queueId": queue_id, "queueOffsets": [[first, last]],
                 "messages": last - first}
            ]  # fmt: skip
            data = DataEffect("invisible", last - first, topics=topics)
            self._add("queue.file.missing", what, place, data=data)

    def _check_ext(self, topic: str, queue_id: int, files: list[Entry], size: int) -> None:
        for one in files:
            if one.kind == "file" and one.start is not None and size and one.nbytes != size:
                what = f"{topic} queue {queue_id}: ext file {one.name} has {one.nbytes:,} bytes"
                code = "queue.file.short" if one.nbytes else "queue.file.empty"
                place = self._at(one.path, one.nbytes, topic=topic, queue_id=queue_id)
                self._add(code, f"{what} instead of {size:,}", place)

    def _is_zero(self, entry: Entry) -> bool:
        try:
            with open(entry.path, "rb") as file:
                head = os.pread(file.fileno(), 65536, 0)
            if head.strip(b"\0"):
                return False
            return SparseFile(entry, self._image.root, [1 << 20]).is_empty()
        except OverflowError:
            return False
        except READ_ERRORS:
            return False

    # --- the index ------------------------------------------------------------------------------

    def _check_index(self, checkpoint: StoreCheckpoint) -> None:
        for entry in self._image.index:
            if entry.kind != "file":
                continue
            if not formats.is_index_name(entry.name):
                self._add("index.file.name", f"{entry.name} is no time", self._at(entry.path, 0))
                continue
            place = self._at(entry.path, entry.nbytes)
            if entry.nbytes != self._sizes.index:
                what = f"{entry.name} has {entry.nbytes:,} bytes instead of {self._sizes.index:,}"
                self._add("index.file.size", what, place)
            head = self._head(entry)
            if head is None:
                continue
            begin_time, end_time, begin, end, _, count = head
            if count > self._sizes.entries or begin > end or begin_time > end_time or count < 0:
                what = f"{entry.name}: counts, times or offsets contradict each other"
                self._add("index.file.header", what, self._at(entry.path, 0))
            if self.is_unclean and end_time > checkpoint.index_timestamp:
                what = f"{entry.name} is newer than the checkpoint; the next start deletes it"
                data = DataEffect("invisible", keys=max(0, count - 1), estimated=True)
                self._add("index.file.crashed", what, self._at(entry.path, 8), data=data)

    def check_index_folder(self) -> None:
        """Report that the folder of the index is missing, whether or not records have keys."""
        folder = self._paths.index
        if not os.path.lexists(folder) and self._has_log():
            self._add("index.missing", "the folder index is missing", self._at(folder, 0))

    def _head(self, entry: Entry) -> tuple[int, ...] | None:
        try:
            with open(entry.path, "rb") as file:
                raw = os.pread(file.fileno(), formats.INDEX_HEADER.nbytes, 0)
        except OSError:
            return None  # reported by StoreAccess
        if len(raw) < formats.INDEX_HEADER.nbytes:
            return None
        return tuple(formats.INDEX_HEADER.struct.unpack(raw))

    # --- the checkpoint -------------------------------------------------------------------------

    def _check_checkpoint(self, checkpoint: StoreCheckpoint) -> None:
        path = self._paths.checkpoint
        if path in self._access.closed:
            return
        if not os.path.lexists(path):
            if self._has_log():
                self._add("checkpoint.missing", "", self._at(path))
            return
        nbytes = os.stat(path).st_size
        if nbytes < formats.CHECKPOINT_FILE_NBYTES:
            what = f"the checkpoint has {nbytes:,} bytes instead of "
            self._add(
                "checkpoint.size", f"{what}{formats.CHECKPOINT_FILE_NBYTES:,}",
                self._at(path, nbytes),
            )  # fmt: skip
        times = {
            "physicMsgTimestamp": checkpoint.physic_timestamp,
            "logicsMsgTimestamp": checkpoint.logics_timestamp,
            "indexMsgTimestamp": checkpoint.index_timestamp,
        }
        if self._has_log() and not any(times.values()) and nbytes:
            self._add("checkpoint.zero", "", self._at(path, 0))
        limit = time.time_ns() // 1_000_000 + _DAY_MS
        late = [name for name, value in times.items() if value > limit or value < 0]
        if late:
            what = f"{', '.join(late)}: in the future or negative"
            self._add("checkpoint.future", what, self._at(path, 0))
        ends = [(one.start or 0) + self._sizes.segment for one in self._image.log]
        past = max(ends, default=0)
        if checkpoint.logics_physical_offset < 0 or checkpoint.logics_physical_offset > past > 0:
            what = f"logicsPhysicalOffset {checkpoint.logics_physical_offset} is outside the log"
            self._add("checkpoint.offset", what, self._at(path, 40))

    # --- the tables -----------------------------------------------------------------------------

    def _check_tables(self) -> None:
        config = self._paths.root / formats.CONFIG_DIR
        if not config.is_dir():
            if self._image.queues:
                self.notes.append(
                    "there is no folder config: a broker starts without topics and groups"
                )
            return
        tables = BrokerTables(self._paths.root, is_there=config not in self._access.odd)
        tables.dialect = self._sizes.dialect
        for one in tables.judge_files():
            place = self._at(Path(one.path), one.position)
            if one.code:
                self._add(one.code, f"{Path(one.path).name}: {one.reason}", place)
            else:
                self.notes.append(f"{Path(one.path).name}: {one.reason}")
        TopicsCheck(self._image, self._findings).run(tables)

    # --- the disk -------------------------------------------------------------------------------

    def _check_room(self) -> None:
        place = self._at(self._paths.root)
        try:
            about = os.statvfs(self._paths.root)
        except (AttributeError, OSError):
            return
        if about.f_blocks and 1 - about.f_bavail / about.f_blocks > _FULL_RATIO:
            free = about.f_bavail * about.f_frsize
            self._add("store.room", f"{free:,} bytes are free on the disk", place, severity="note")
        hole = self._hole_nbytes()
        if hole > max(about.f_bavail * about.f_frsize, 0):
            what = (
                f"files have holes of {hole:,} bytes together, more than the disk has room; a "
                "broker that fills them, or a copy without holes, does not fit"
            )
            self._add("store.sparse", what, place)
        if about.f_files and about.f_favail / about.f_files < 0.01:
            self._add("store.inodes", f"{about.f_favail:,} inodes are free", place)
        files = len(self._image.log) + len(self._image.index) + sum(self._queue_counts())
        try:
            most = int(_MAPS.read_text(encoding="ascii"))
        except (OSError, ValueError):
            return
        if files > most * 0.9:
            self._add("store.maps", f"{files:,} files, {most:,} memory maps are allowed", place)

    def _hole_nbytes(self) -> int:
        """Return the bytes of all files that take no room on the disk."""
        tables = (self._image.queues, self._image.batch_queues, self._image.ext_queues)
        queues = (one for table in tables for files in table.values() for one in files)
        files = itertools.chain(self._image.log, self._image.index, queues)
        return sum(max(0, one.nbytes - one.disk_nbytes) for one in files if one.kind == "file")

    def _queue_counts(self) -> Iterator[int]:
        for files in (*self._image.queues.values(), *self._image.batch_queues.values()):
            yield len(files)
