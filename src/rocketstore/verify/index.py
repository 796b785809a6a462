"""Compare index entries with the keys of the log's records, for ``verify``."""

from __future__ import annotations

from typing import Any

import numpy as np

from rocketstore import formats, kernels
from rocketstore.arguments import Progress
from rocketstore.files.mapped_file import MappedFile
from rocketstore.files.raw import data_ranges, read_bytes
from rocketstore.index.index_file import MAX_SECONDS
from rocketstore.index.index_service import IndexService
from rocketstore.log.scan import RecordBatch
from rocketstore.status import KernelStatus
from rocketstore.verify.index_entries import (
    CHUNK_ENTRIES,
    ENTRY,
    PLACED,
    Array,
    BatchKeys,
    EntryStream,
    FileScope,
    KeyHashes,
    KeysAhead,
    Links,
)
from rocketstore.verify.scope import VerifyScope

#: An index file with more bytes of data is read in chunks, not mapped.
_MOST_MAPPED_NBYTES = 32 << 20


class IndexCheck:
    """Compare all index files with the log's records, which are given in order."""

    def __init__(
        self,
        scope: VerifyScope,
        index: IndexService,
        delay_ms: tuple[int, ...],
        indexed_offset: int,
    ) -> None:
        self._scope = scope
        self._indexed_offset = indexed_offset
        self._streams = [EntryStream(scope, file, n) for n, file in enumerate(index.files)]
        self._begins = np.array([one.header.begin_timestamp for one in self._streams], "i8")
        self._keys = KeyHashes(index_tags=False)
        self._tag_keys = KeyHashes(index_tags=True)
        self._with_tags = False
        #: Entries of records past the log's end, by file.
        self._past: dict[int, list[Any]] = {}
        around = scope.around
        self._is_unread = around is not None and any(
            around.paths.index in (path, path.parent) for path in around.access.closed
        )
        for path in (*index.skipped, *index.unusable, *filter(None, [index.begun])):
            reported = around is not None and path in around.access.closed
            if formats.is_index_name(path.name) and not reported:
                scope.report.add("index-file", path, 0, None, "its size fits no known geometry")

    def _below(self, offset: int | None) -> Array:
        parts = [part for part in (one.below(offset) for one in self._streams) if len(part)]
        if not parts:
            return np.empty(0, PLACED)
        if len(parts) == 1:
            return parts[0]
        entries = np.concatenate(parts)
        return entries[np.argsort(entries["physical_offset"], kind="stable")]

    # --- entries against records --------------------------------------------------------------

    def keys_ahead(self) -> KeysAhead:
        """Return what finds the keys of the batches that one thread reads."""
        return KeysAhead(lambda: self._with_tags)

    def take(self, batch: RecordBatch, keys: BatchKeys | None) -> None:
        """Compare the keys of a batch of records with the entries of the same range.

        ``keys``: what ``KeysAhead`` returned.
        """
        first = int(batch.columns["physical_offset"][0])
        last = batch.last()
        stop = last["physical_offset"] + last["total_size"]
        if keys is not None and self._take_same(keys, stop):
            return
        self._judge_outside(self._below(first))
        actual = self._below(stop)
        for with_tags in (self._with_tags, not self._with_tags):
            if keys is None or keys.with_tags != with_tags:
                hashing = self._tag_keys if with_tags else self._keys
                keys = BatchKeys(with_tags, *hashing.of(batch))
            _, offsets, hashes, times = keys
            if np.array_equal(offsets, actual["physical_offset"]) and np.array_equal(
                hashes, actual["key_hash"]
            ):
                self._with_tags = with_tags
                self._scope.report.keys += len(actual)
                self._check_times(actual, times)
                return
        self._match(batch, actual, first)

    def _take_same(self, keys: BatchKeys, stop: int) -> bool:
        """Take a batch whose keys are the next entries of one file, as in most of a sound store."""
        current = [one for one in self._streams if not one.begins_at(stop)]
        if len(current) != 1 or keys.with_tags != self._with_tags:
            return False
        if not current[0].take_same(keys, stop):
            return False
        self._scope.report.keys += len(keys.offsets)
        return True

    def _match(self, batch: RecordBatch, actual: Array, first: int) -> None:
        """Compare as sets: find missing, superfluous and duplicate entries."""
        required = _packed(*self._keys.of(batch)[:2], first)
        allowed = _packed(*self._tag_keys.of(batch)[:2], first)
        found = _packed(actual["physical_offset"], actual["key_hash"], first)
        known = np.isin(found, allowed)
        self._scope.report.keys += int(known.sum())
        rows = np.searchsorted(batch.columns["physical_offset"], actual["physical_offset"][known])
        self._check_times(actual[known], batch.columns["store_timestamp"][rows])
        extra = np.flatnonzero(~known)
        for number in self._scope.report.shown("index-entry", extra.tolist()):
            self._add_extra(actual[number], batch)
        names, counts = np.unique(found[known], return_counts=True)
        wanted, times = np.unique(allowed, return_counts=True)
        surplus = counts - times[np.searchsorted(wanted, names)] if len(names) else counts
        self._scope.counts["doubled_keys"] += int(surplus[surplus > 0].sum())
        self._add_missing(batch, np.unique(required[~np.isin(required, found)] >> 31) + first)

    def _add_extra(self, entry: Any, batch: RecordBatch) -> None:
        offset = int(entry["physical_offset"])
        if offset in batch.columns["physical_offset"]:
            what = f"no key of the record at log offset {offset} has the hash {entry['key_hash']}"
        else:
            what = f"no record starts at log offset {offset}"
        self._add(entry, what)

    def _add_missing(self, batch: RecordBatch, offsets: Array) -> None:
        """Report each run of records with a key that is in no index file, as one finding."""
        lagging = offsets >= self._indexed_offset
        self._scope.counts["behind_keys"] += int(lagging.sum())
        offsets = offsets[~lagging]
        if not len(offsets):
            return
        if self._scope.is_absent(formats.INDEX_DIR):
            self._scope.counts["absent_keys"] += len(offsets)
            return
        if self._is_unread:
            self._scope.counts["unread_keys"] += len(offsets)
            return
        numbers = np.searchsorted(batch.columns["physical_offset"], offsets)
        for run in np.split(offsets, np.flatnonzero(np.diff(numbers) != 1) + 1):
            start, stop = int(run[0]), int(run[-1])
            path, position = self._scope.place(start)
            what = f"a key of the record at log offset {start} is in no index file"
            if len(run) > 1:
                what = (
                    f"keys of {len(run)} records from log offset {start} to {stop} are in no "
                    "index file"
                )
            self._scope.report.add("missing-key", path, position, start, what)

    def _check_times(self, entries: Array, times: Array) -> None:
        """Check the entries' seconds and the headers' times; ``times``: of the records."""
        if not len(entries):
            return
        files = np.unique(entries["file"]).tolist() if len(self._streams) > 1 else [0]
        begins = self._begins[entries["file"]] if len(files) > 1 else self._begins[files]
        # The time of entry 1 of a later file counts from the end of the previous file (D-2).
        wanted = np.clip((times - begins) // 1000, 0, MAX_SECONDS)
        wanted = np.where(begins > 0, wanted, 0)
        wrong = entries["time_diff"] != wanted
        if wrong.any():
            wrong &= (entries["number"] != 1) | (entries["time_diff"] < 0)
        for number in self._scope.report.shown("index-entry", np.flatnonzero(wrong).tolist()):
            entry = entries[number]
            self._add(entry, f"{entry['time_diff']} seconds instead of {wanted[number]}")
        for number in files:
            self._check_header(number, entries, times)

    def _check_header(self, number: int, entries: Array, times: Array) -> None:
        """Compare the times of a file's header with those of its first and last entry's records."""
        stream, found = self._streams[number], entries["number"]
        edges = (found == 1) | (found == stream.count)
        if edges.any():
            mine = entries["file"] == number
            for edge, name in ((1, "begin_timestamp"), (stream.count, "end_timestamp")):
                hit = np.flatnonzero(mine & (entries["number"] == edge))
                if len(hit) and times[hit[0]] != getattr(stream.header, name):
                    self._add_header(stream, name, getattr(stream.header, name), int(times[hit[0]]))

    def _judge_outside(self, entries: Array) -> None:
        """Judge entries at offsets without a record: expired, damaged, newer, or wrong."""
        if not len(entries):
            return
        scope = self._scope
        offsets = entries["physical_offset"]
        expired = (offsets >= 0) & (offsets < scope.start)
        lost = ~expired & scope.is_damaged(offsets)
        scope.counts["expired_keys"] += int(expired.sum())
        scope.counts["damaged_keys"] += int(lost.sum())
        for number in np.unique(entries["file"][expired]).tolist():
            mine = offsets[expired & (entries["file"] == number)]
            path = str(self._streams[number].index_file.path)
            scope.before.take_keys(path, int(mine.min()), int(mine.max()))
        rest = np.flatnonzero(~expired & ~lost)
        for number in rest.tolist():
            offset = int(offsets[number])
            if offset >= scope.stop and (scope.is_newer(offset) or scope.is_record(offset)):
                scope.counts["newer_keys"] += 1
                continue
            if offset >= scope.stop:
                self._past.setdefault(int(entries["file"][number]), []).append(entries[number])
                continue
            self._add(entries[number], f"no record starts at log offset {offset}")

    def _add(self, entry: Any, what: str, code: str = "index.entry.wrong", count: int = 1) -> None:
        path, position = self._streams[int(entry["file"])].place(int(entry["number"]))
        self._scope.report.add(
            "index-entry",
            path,
            position,
            int(entry["physical_offset"]),
            f"entry {entry['number']}: {what}",
            code=code,
            count=count,
        )

    def _add_past(self) -> None:
        """Report each file's entries that name offsets past the log's end, as one finding."""
        for entries in self._past.values():
            offsets = [int(entry["physical_offset"]) for entry in entries]
            many = f"{len(entries):,} entries name log offsets {min(offsets)} to {max(offsets)}"
            one = f"it names log offset {offsets[0]}"
            what = many if len(entries) > 1 else one
            what += f", past the log's end {self._scope.stop}"
            self._add(entries[0], what, "index.file.beyond", len(entries))

    # --- chains and headers -------------------------------------------------------------------

    def finish(self, progress: Progress | None) -> None:
        """Judge the remaining entries, then every file's header and chains."""
        self._judge_outside(self._below(None))
        self._add_past()
        for number, stream in enumerate(self._streams):
            check_file(self._scope, stream)
            if progress is not None:
                progress("check index", number + 1, len(self._streams))
        self._scope.report.index_files = len(self._streams)

    def _add_header(self, stream: EntryStream, name: str, found: int, wanted: int) -> None:
        add_header(self._scope, stream, name, found, wanted)


def check_file(scope: FileScope, stream: EntryStream) -> None:
    """Judge an index file by itself: its chains, and the header's counts and offsets."""
    file, header = stream.index_file, stream.header
    if header.index_count > file.entries:
        add_header(scope, stream, "index_count", header.index_count, file.entries)
    used, begun = ChainCheck(scope, stream).run()
    # Before 4.7.1 every entry was counted, not every slot in use.
    if header.hash_slot_count not in (*range(used, used + begun + 1), stream.count):
        add_header(scope, stream, "hash_slot_count", header.hash_slot_count, used)
    if stream.count:
        for number, name in (
            (1, "begin_physical_offset"),
            (stream.count, "end_physical_offset"),
        ):
            wanted = stream.offset_of(number)
            if getattr(header, name) != wanted:
                add_header(scope, stream, name, getattr(header, name), wanted)


def add_header(scope: FileScope, stream: EntryStream, name: str, found: int, wanted: int) -> None:
    """Report a field of an index file's header."""
    scope.report.add(
        "index-header",
        stream.index_file.path,
        formats.INDEX_HEADER.at(name),
        None,
        f"{name} is {found} instead of {wanted}",
    )


class ChainCheck:
    """Check whether a lookup reaches every entry of an index file."""

    def __init__(self, scope: FileScope, stream: EntryStream) -> None:
        self._scope = scope
        self._stream = stream
        self._file = stream.index_file
        #: Slots that begin with the entry right after those that the header counts.
        self._unfinished: Array = np.zeros(stream.index_file.slots, bool)

    def run(self) -> tuple[int, int]:
        """Report unreachable entries; return the number of slots in use.

        Also return how many more are used by an entry that the header does not count yet.
        """
        count = self._stream.count
        slots = self._slots()
        self._unfinished = slots == count + 1
        settled = self._as_counted(slots)
        if not self._explains_itself(settled):
            self._locate(settled)
        used = (settled > 0) & (settled <= count)
        return int(used.sum()), int((self._unfinished & ~used).sum())

    def _explains_itself(self, slots: Array) -> bool:
        """Return whether chains, header and zeros after the entries explain the file completely."""
        file, count = self._file, self._stream.count
        end = file.file.file_size
        if isinstance(file.file, MappedFile):  # holes are not read: that would fill them
            end = max((stop for _, stop in data_ranges(file.file, 0)), default=0)
        whole = formats.index_file_nbytes(file.slots, 1)
        entries = max(count + 1, -(-(end - whole) // ENTRY.itemsize) + 1)
        entries = min(max(entries, 1), file.entries)
        nbytes = formats.index_file_nbytes(file.slots, entries)
        if nbytes <= _MOST_MAPPED_NBYTES:
            buffer = memoryview(file.buffer)[:nbytes]
            return not kernels.index_file.contradictions(buffer, file.slots, entries)
        checked, status = file.check(2**63 - 1)
        if status != KernelStatus.OK or checked != count:
            return self._explains_in_chunks(slots, entries)
        return not self._stream.read(0, 1).view("u1").any() and self._ends_in_zeros(entries)

    def _explains_in_chunks(self, slots: Array, entries: int) -> bool:
        """Return whether the file explains itself if put with the ``slots``."""
        file, count = self._file, self._stream.count
        header = self._stream.header
        bounds = header.begin_physical_offset, header.end_physical_offset
        is_counted = header.index_count <= file.entries
        if count and (bounds != (self._stream.offset_of(1), self._stream.offset_of(count))):
            return False
        return (
            is_counted
            and self._has_plain_chains(slots)
            and not self._stream.read(0, 1).view("u1").any()
            and self._ends_in_zeros(entries)
        )

    def _ends_in_zeros(self, entries: int) -> bool:
        """Return whether the places after the counted entries, up to ``entries``, are zero."""
        return not any(
            self._stream.read(at, min(at + CHUNK_ENTRIES, entries)).view("u1").any()
            for at in range(self._stream.count + 1, entries, CHUNK_ENTRIES)
        )

    def _has_plain_chains(self, slots: Array) -> bool:
        """Return whether each entry continues the chain of its slot; reads the file in chunks."""
        links = Links(self._stream, len(slots))
        for _, entries, wanted in links:
            has_odd_hash = (entries["key_hash"].astype("i4") < 0).any()
            if has_odd_hash or (entries["previous_index"] != wanted).any():
                return False
        return np.array_equal(links.heads, slots)

    def _as_counted(self, slots: Array) -> Array:
        """Return the slots as they were when the header was read.

        An entry that was put since then comes first in its chain.
        """
        settled = slots.copy()
        count = self._stream.count
        for slot in np.flatnonzero((slots > count) & (slots < self._file.entries)).tolist():
            number = int(slots[slot])
            while number > count:
                previous = int(self._stream.read(number, number + 1)["previous_index"][0])
                if not 0 <= previous < number:
                    break
                number = previous
            settled[slot] = number if number <= count else slots[slot]
        return settled

    def _slots(self) -> Array:
        content = read_bytes(
            self._file.file,
            self._scope.root,
            formats.INDEX_HEADER.nbytes,
            self._file.slots * formats.INDEX_SLOT.nbytes,
        )
        return np.frombuffer(content, formats.INDEX_SLOT.dtype)["index"].astype("i4")

    def _locate(self, slots: Array) -> None:
        """Compare each chain's links with those that follow from the order of its entries."""
        links = Links(self._stream, len(slots))
        for first, entries, wanted in links:
            hashes = entries["key_hash"].astype("i4")
            for number in np.flatnonzero(hashes < 0).tolist():
                self._add_entry(first + number, f"its hash {hashes[number]} is negative")
            found = entries["previous_index"].astype("i4")
            wrong = np.flatnonzero(found != wanted)
            for number in self._scope.report.shown("index-chain", wrong.tolist()):
                what = f"its chain continues at {found[number]} instead of {wanted[number]}"
                self._add_entry(first + number, what)
        self._check_heads(slots, links.heads)

    def _check_heads(self, slots: Array, heads: Array) -> None:
        # An entry may head a chain although a crash prevented the update of the count.
        wrong = np.flatnonzero((slots != heads) & ~self._unfinished)
        if not len(wrong):
            self._scope.counts["odd_index_tails"] += 1
        for slot in self._scope.report.shown("index-chain", wrong.tolist()):
            position = formats.INDEX_HEADER.nbytes + slot * formats.INDEX_SLOT.nbytes
            reason = f"slot {slot} begins at entry {slots[slot]} instead of {heads[slot]}"
            self._scope.report.add("index-chain", self._file.path, position, None, reason)

    def _add_entry(self, number: int, what: str) -> None:
        path, position = self._stream.place(number)
        offset = self._stream.offset_of(number)
        self._scope.report.add("index-chain", path, position, offset, f"entry {number}: {what}")


def _packed(offsets: Array, hashes: Array, first: int) -> Array:
    """Pack (offset, hash) into one number; the offsets of a batch are within one segment."""
    return np.asarray(((offsets.astype("i8") - first) << 31) | hashes.astype("i8"))
