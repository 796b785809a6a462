"""``check_invariants``: checks from its bytes what must hold for every store directory."""

from __future__ import annotations

import functools
import os
import re
from collections import defaultdict
from collections.abc import Iterable
from pathlib import Path
from typing import Any, NamedTuple

from rocketstore import formats, kernels
from rocketstore.arguments import Derive
from rocketstore.config import MessageStoreConfig
from rocketstore.dialect import Dialect
from rocketstore.directory.paths import StorePaths
from rocketstore.directory.place import is_there
from rocketstore.message import StoredMessage
from rocketstore.store.default_message_store import open as open_store
from rocketstore.survey.facts import StoreFacts
from rocketstore.testing import plain_files
from rocketstore.testing.plain_log import PlainLog, PlainRecord, read_log
from rocketstore.testing.reopening import changes_by_opening
from rocketstore.testing.report import INVARIANTS, Acknowledged, Report, Violation

_LIGHT_NAMES, _LIGHT_OFFSETS = "INNER_MULTI_DISPATCH", "INNER_MULTI_QUEUE_OFFSET"


class _Expected(NamedTuple):
    """One unit, as derived from the log."""

    record: PlainRecord
    tags_code: int
    messages: int


class _Queues:
    """Every queue, as derived from the log alone."""

    def __init__(self, root: Path, log: PlainLog, config: MessageStoreConfig) -> None:
        self.batch = {
            (topic, queue_id)
            for topic, queue_id, _, is_batch in plain_files.queue_folders(root)
            if is_batch
        }
        self._folders = {topic for topic, *_ in plain_files.queue_folders(root)}
        self._delays = config.delay_ms
        self.units: dict[tuple[str, int], dict[int, _Expected]] = defaultdict(dict)
        #: Light queues' records in log order; RocketMQ appends their units and ignores the offset.
        self.light: dict[tuple[str, int], list[_Expected]] = defaultdict(list)
        #: Records with a wrong queue offset: (queue, record, description).
        self.odd: list[tuple[tuple[str, int], PlainRecord, str]] = []
        following: dict[tuple[str, int], int] = {}
        for record in log.records:
            if record.is_queued:
                self._take(record, following, is_first_kept=log.start > 0)

    def _take(
        self, record: PlainRecord, following: dict[tuple[str, int], int], *, is_first_kept: bool
    ) -> None:
        place = (record.topic, record.queue_id)
        code = self._tags_code(record)
        count = _batch_count(record) if place in self.batch else 1
        wanted = following.get(place)
        if wanted is None:
            wanted = record.queue_offset if is_first_kept else 0
        if record.queue_offset != wanted:
            self.odd.append((place, record, f"queue offset {record.queue_offset}, not {wanted}"))
        following[place] = record.queue_offset + count
        if _is_folder_name(record.topic):
            self.units[place][record.queue_offset] = _Expected(record, code, count)
        for light in self._light_places(record):
            self.light[light].append(_Expected(record, _tag_hash(record), 1))

    def expected(self, topic: str, queue_id: int, first: int) -> dict[int, _Expected]:
        """Return a queue's units by index; ``first`` is the first index whose record exists."""
        place = (topic, queue_id)
        expected = self.units.get(place, {})
        return {**expected, **dict(enumerate(self.light.get(place, ()), first))}

    def places(self) -> set[tuple[str, int]]:
        """Return (topic, queue id) of every queue that must have a unit."""
        return {*self.units, *self.light}

    def _light_places(self, record: PlainRecord) -> list[tuple[str, int]]:
        names = record.properties.get(_LIGHT_NAMES, "").split(",")
        offsets = record.properties.get(_LIGHT_OFFSETS, "").split(",")
        places = []
        for name, offset in zip(names, offsets, strict=False):
            # A broker may be configured not to dispatch light queues.
            if name in self._folders and _number(offset) >= 0:
                is_light = name.startswith(formats.TOPIC_LMQ_PREFIX)
                places.append((name, 0 if is_light else record.queue_id))
        return places

    def _tags_code(self, record: PlainRecord) -> int:
        level = _number(record.properties.get(formats.PROPERTY_DELAY, ""))
        if record.topic == formats.TOPIC_SCHEDULE and level > 0:
            number = min(level, len(self._delays))
            return record.store_timestamp + self._delays[number - 1]
        return _tag_hash(record)


def _number(text: str) -> int:
    """Return the number in a property; -1 if it is not a number or has too many digits."""
    return int(text) if re.fullmatch("[0-9]{1,19}", text) else -1


def _batch_count(record: PlainRecord) -> int:
    """Return the number of messages in a record: 1, except for a valid inner batch."""
    base = _number(record.properties.get(formats.PROPERTY_INNER_BASE, ""))
    count = _number(record.properties.get(formats.PROPERTY_INNER_NUM, ""))
    is_batch = record.sys_flag & formats.SYS_FLAG_INNER_BATCH and base >= 0
    return count if is_batch and 0 < count <= formats.MAX_INNER_BATCH_COUNT else 1


def _tag_hash(record: PlainRecord) -> int:
    return plain_files.java_hash(record.properties.get(formats.PROPERTY_TAGS, ""))


@functools.lru_cache(maxsize=1024)
def _is_folder_name(topic: str) -> bool:
    """Return whether a topic can name a folder; records of other topics are in the log only."""
    odd = any(character == "/" or not character.isprintable() for character in topic)
    return not odd and topic not in (".", "..") and "\ufffd" not in topic


def check_invariants(
    path: str | os.PathLike[str],
    *,
    acknowledged: Iterable[Any] | None = None,
    config: MessageStoreConfig | None = None,
    dispatched: bool = True,
    clock_steps: bool = False,
    reopen: bool = True,
) -> Report:
    """Check a store directory that no process is writing; see ``INVARIANTS``.

    Log, queues and index are read with separate, plain code (``plain_log``, ``plain_files``), so
    that errors of the library are detected. After a crash, open the store for writing once before
    checking it.

    Parameters
    ----------
    path : path
        The store's root.
    acknowledged : iterable, optional
        Messages that must be stored (invariant 6): ``PutMessageResult`` (skipped if not ``ok``),
        ``StoredMessage`` or ``Acknowledged``.
    config : MessageStoreConfig, optional
        The store's configuration, if not the default: delay levels, a log outside the root,
        ``message_index_enable``.
    dispatched : bool
        False: dispatch may lag, so that units and keys may be missing at the end.
    clock_steps : bool
        True: the clock may have been set back, so invariant 2 is not checked.
    reopen : bool
        Check invariant 7 on a copy in a temporary directory. Not checked for a store that was not
        closed cleanly, because opening repairs it.

    Returns
    -------
    Report
        ``report.require()`` raises ``AssertionError`` if an invariant does not hold.

    Raises
    ------
    FileNotFoundError
        There is no such directory.

    Notes
    -----
    Threading: starts no thread; call it from any thread. Memory: all bodies of the log, so use it
    for the stores of tests. Source: RocketMQ's behaviour as ``docs/differences.md`` describes it.
    """
    root = Path(path)
    if not is_there(root) or not root.is_dir():
        raise FileNotFoundError(f"there is no store {root}")
    check = _Check(root, config or MessageStoreConfig())
    check.log_itself()
    if not clock_steps:
        check.times()
    if _has_database(root):
        check.report.notes.append("queues are in RocksDB: invariants 3, 4 and 7 were not checked")
    else:
        check.queues(dispatched=dispatched)
        check.bounds(dispatched=dispatched)
    if dispatched and check.config.message_index_enable:
        check.keys()
    if acknowledged is not None:
        check.acknowledged(acknowledged)
    check.checkpoint()
    if (root / formats.ABORT_FILE).exists():
        check.report.notes.append("not closed cleanly: invariant 7 was not checked")
    elif reopen and not _has_database(root):
        check.reopening()
    return check.report


def _has_database(root: Path) -> bool:
    """Return whether the queues are in RocksDB."""
    folders = (formats.CONSUME_QUEUE_DIR, "consumequeue_rocksdb")
    return any((root / name / "CURRENT").exists() for name in folders)


class _Check:
    """One run over one store."""

    def __init__(self, root: Path, config: MessageStoreConfig) -> None:
        self.root = root
        self.config = config
        self.report = Report()
        self._facts: StoreFacts | None = None
        paths = StorePaths.of(root, config)
        paths.refuse_several_logs("is not checked")
        self._log_folder = paths.commit_log
        self._log = read_log(self._log_folder)
        self._places = {record.physical_offset: record for record in self._log.records}
        self.report.records = len(self._log.records)
        self.report.log_start, self.report.log_end = self._log.start, self._log.end

    def log_itself(self) -> None:
        """Check invariant 1."""
        self.report.checked.add(1)
        for fault in self._log.faults:
            self.report.add(1, fault.path, fault.physical_offset, fault.what)

    def times(self) -> None:
        """Check invariant 2."""
        self.report.checked.add(2)
        latest = -(2**63)
        for record in self._log.records:
            if record.store_timestamp < latest:
                what = f"store time {record.store_timestamp} after {latest}"
                self.report.add(2, self._log_folder, record.physical_offset, what)
            latest = max(latest, record.store_timestamp)

    # --- queues -------------------------------------------------------------------------------

    def queues(self, *, dispatched: bool) -> None:
        """Check invariant 3, and the part of invariant 4 about single units."""
        self.report.checked.update((3, 4))
        self._queues = _Queues(self.root, self._log, self.config)
        for (topic, queue_id), record, what in self._queues.odd:
            where = f"{topic}/{queue_id}"
            self.report.add(3, where, record.physical_offset, what)
        missing = self._queues.places()
        #: Bounds of each queue, from its records and units.
        self._bounds: dict[tuple[str, int], tuple[int, int]] = {}
        for topic, queue_id, folder, is_batch in plain_files.queue_folders(self.root):
            missing.discard((topic, queue_id))
            self._one_queue(topic, queue_id, folder, is_batch, dispatched=dispatched)
        for topic, queue_id in sorted(missing):
            if dispatched:
                self.report.add(3, f"{topic}/{queue_id}", None, "the queue has no files")

    def _one_queue(
        self, topic: str, queue_id: int, folder: Path, is_batch: bool, *, dispatched: bool
    ) -> None:
        units = list((plain_files.read_batch_units if is_batch else plain_files.read_units)(folder))
        self.report.units += len(units)
        kept = [unit for unit in units if unit.physical_offset >= self._log.start]
        expected = self._queues.expected(topic, queue_id, kept[0].queue_offset if kept else 0)
        seen = set()
        for unit in kept:
            if unit.physical_offset >= self._log.end:
                what = f"unit {unit.queue_offset} points past the log's end {self._log.end}"
                self.report.add(4, unit.path, unit.physical_offset, what)
            elif unit.queue_offset not in expected:
                what = f"unit {unit.queue_offset} is not a message of this queue"
                self.report.add(3, unit.path, unit.physical_offset, what)
            else:
                seen.add(unit.queue_offset)
                self._one_unit(topic, queue_id, unit, expected[unit.queue_offset])
        for index in sorted(set(expected) - seen):
            if dispatched or index < max(seen, default=-1):
                offset = expected[index].record.physical_offset
                self.report.add(3, folder, offset, f"unit {index} is missing")
        if expected:
            last = max(expected)
            self._bounds[topic, queue_id] = (min(expected), last + expected[last].messages)

    def _one_unit(
        self, topic: str, queue_id: int, unit: plain_files.Unit, wanted: _Expected
    ) -> None:
        code: int | None = unit.tags_code
        if unit.tags_code <= formats.MAX_EXT_ADDRESS:
            code = plain_files.ext_tags_code(self.root, topic, queue_id, unit.tags_code)
        record = wanted.record
        found = (unit.physical_offset, unit.size, code, unit.messages)
        right = (record.physical_offset, record.total_size, wanted.tags_code, wanted.messages)
        if found != right:
            what = f"unit {unit.queue_offset} is {found}, its record {right}"
            self.report.add(3, unit.path, record.physical_offset, what)

    def bounds(self, *, dispatched: bool) -> None:
        """Check invariant 4: the min and max offset that the store returns for each queue."""
        derive: Derive = "none" if dispatched else "tail"
        with open_store(self.root, config=self.config, derive=derive) as store:
            self._facts = store.facts
            for (topic, queue_id), wanted in self._bounds.items():
                low = store.min_offset_in_queue(topic, queue_id)
                high = store.max_offset_in_queue(topic, queue_id)
                if (low, high) != wanted:
                    what = f"the queue's bounds are {low} and {high}, those of its records {wanted}"
                    self.report.add(4, f"{topic}/{queue_id}", None, what)

    # --- keys ---------------------------------------------------------------------------------

    def keys(self) -> None:
        """Check invariant 5."""
        self.report.checked.add(5)
        if self._facts is None:
            with open_store(self.root, config=self.config, derive="none") as store:
                self._facts = store.facts
        geometry, dialect = self._facts.index.by_nbytes, self._facts.dialect
        reached: set[tuple[int, int]] = set()
        problems: list[plain_files.IndexProblem] = []
        folder = self.root / formats.INDEX_DIR
        for path in sorted(folder.iterdir()) if folder.is_dir() else ():
            pair = geometry.get(path.stat().st_size)
            if formats.is_index_name(path.name) and pair is not None:
                for entry in plain_files.read_index(path, pair[0], problems):
                    self.report.entries += 1
                    reached.add(entry)
        for problem in problems:
            self.report.add(5, problem.path, None, problem.what)
        for record in self._log.records:
            self._keys_of(record, reached, dialect)

    def _keys_of(
        self, record: PlainRecord, reached: set[tuple[int, int]], dialect: Dialect
    ) -> None:
        if record.transaction == formats.SYS_FLAG_TRANSACTION_ROLLBACK:
            return
        if not _is_folder_name(record.topic):
            return
        keys = record.keys
        tags = record.properties.get(formats.PROPERTY_TAGS)
        if tags and dialect.index_tags:
            keys.append(formats.TAG_KEY_INFIX + tags)
        for key in keys:
            if (plain_files.key_hash(record.topic, key), record.physical_offset) not in reached:
                what = f"the key {key!r} of topic {record.topic!r} is in no index file"
                self.report.add(5, self.root / formats.INDEX_DIR, record.physical_offset, what)

    # --- acknowledged messages ----------------------------------------------------------------

    def acknowledged(self, promised: Iterable[Any]) -> None:
        """Check invariant 6."""
        self.report.checked.add(6)
        for item in promised:
            if isinstance(item, Acknowledged):
                self._promised(item)
            elif isinstance(item, StoredMessage):
                words = tuple((item.keys or "").split())
                self._promised(
                    Acknowledged(
                        item.physical_offset,
                        item.topic,
                        item.queue_id,
                        item.queue_offset,
                        item.body,
                        words,
                    )
                )
            elif isinstance(item, kernels.commit_log.PutMessageResult):
                if item.ok:
                    self._result(item)
            else:
                raise TypeError(
                    "acknowledged must hold PutMessageResult, StoredMessage or Acknowledged, not "
                    f"{type(item).__name__}"
                )

    def _promised(self, item: Acknowledged) -> None:
        record = self._places.get(item.physical_offset)
        if record is None:
            what = "an acknowledged message is gone"
            self.report.add(6, self._log_folder, item.physical_offset, what)
            return
        words = record.properties.get(formats.PROPERTY_KEYS, "").split()
        found = Acknowledged(
            record.physical_offset,
            record.topic,
            record.queue_id,
            record.queue_offset,
            record.body,
            tuple(words),
        )
        for name, wanted, there in zip(Acknowledged._fields, item, found, strict=True):
            if wanted is not None and wanted != there:
                what = f"{name} was acknowledged as {wanted!r:.80} and is {there!r:.80}"
                self.report.add(6, self._log_folder, item.physical_offset, what)

    def _result(self, result: kernels.commit_log.PutMessageResult) -> None:
        """Check every record of one put: a batch has several, one after another."""
        offset, first = result.physical_offset, result.queue_offset
        assert offset is not None
        assert first is not None
        end, count = offset + result.nbytes, 0
        while offset < end:
            record = self._places.get(offset)
            if record is None:
                self.report.add(6, self._log_folder, offset, "an acknowledged message is gone")
                return
            wanted = first + count if record.is_queued else first
            if record.queue_offset != wanted:
                what = f"queue offset {wanted} was acknowledged, but is {record.queue_offset}"
                self.report.add(6, self._log_folder, offset, what)
            if record.store_timestamp != result.store_timestamp:
                what = f"store time {result.store_timestamp} was acknowledged"
                self.report.add(6, self._log_folder, offset, what)
            offset, count = record.end, count + 1

    def checkpoint(self) -> None:
        """Check invariant 8."""
        path = self.root / formats.CHECKPOINT_FILE
        if not path.is_file():
            return
        self.report.checked.add(8)
        content = path.read_bytes()[: formats.CHECKPOINT.nbytes]
        values = formats.CHECKPOINT.struct.unpack(content.ljust(formats.CHECKPOINT.nbytes, b"\0"))
        newest = max((record.store_timestamp for record in self._log.records), default=0)
        named = dict(zip((f.name for f in formats.CHECKPOINT.fields), values, strict=True))
        if self._log.records:
            for name in ("physic_timestamp", "logics_timestamp", "index_timestamp"):
                if named[name] > newest:
                    what = f"{name} is {named[name]}, the newest record's store time {newest}"
                    self.report.add(8, path, None, what)
        place = named["logics_physical_offset"]
        if place >= self._log.start and place and place not in self._places:
            self.report.add(8, path, place, "logics_physical_offset is not a record's start")

    def reopening(self) -> None:
        """Check invariant 7."""
        self.report.checked.add(7)
        changes = changes_by_opening(self.root, self._log_folder, self._log.end, self.config)
        for path, what in changes:
            self.report.add(7, path, None, what)


__all__ = ["INVARIANTS", "Acknowledged", "Report", "Violation", "check_invariants"]
