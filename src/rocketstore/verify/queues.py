"""Compare queue units with the log's records, for ``verify``."""

from __future__ import annotations

import itertools
from collections.abc import Callable
from typing import Any, NamedTuple

import numpy as np

from rocketstore import formats, kernels
from rocketstore.dispatch.named_queues import named_queues, odd_names
from rocketstore.files.mapped_file_queue import list_directory
from rocketstore.inner_batch import inner_batch
from rocketstore.log.scan import RecordBatch
from rocketstore.queues.batch_consume_queue import BatchConsumeQueue
from rocketstore.queues.consume_queue import ConsumeQueue
from rocketstore.queues.directories import is_folder_name
from rocketstore.queues.queue_table import QueueTable
from rocketstore.status import MultiDispatch
from rocketstore.verify.queue_check import QueueCheck, Records
from rocketstore.verify.scope import VerifyScope
from rocketstore.verify.unit_files import UnitFiles

#: Records gathered before they are compared queue by queue.
_GATHER_COUNT = 1 << 19

_LIGHT_NAMES = int(MultiDispatch.LIGHT)
#: Odd names that are noted one by one.
_MOST_NOTED = 20
_NOT_LIGHT = (formats.TOPIC_RETRY_PREFIX, formats.TOPIC_DLQ_PREFIX, formats.TOPIC_SYSTEM_PREFIX)

Array = np.ndarray[Any, Any]


class NumberedQueues(NamedTuple):
    """Each record's number of its queue, -1 without a unit, and the queues that are new."""

    numbers: Array
    keys: list[tuple[bytes, int]]


class _Gathered:
    """What the comparisons need of records, in a room for ``_GATHER_COUNT`` and a batch more."""

    #: Fields of 8 bytes each, held side by side: NumPy gathers rows of 32 bytes at once.
    _WIDE = ("queue_offset", "physical_offset", "tags_code", "store_timestamp")

    def __init__(self) -> None:
        self.count = 0
        self._wide = np.empty((0, len(self._WIDE)), "i8")
        self._sizes = np.empty(0, "i4")
        self._numbers = np.empty(0, "i4")

    def add(self, numbers: Array, columns: Array, queued: Array) -> None:
        """Add the ``queued`` records of a batch; ``numbers``: of their queues."""
        start, self.count = self.count, self.count + int(queued.sum())
        if self.count > len(self._sizes):
            room = max(self.count, _GATHER_COUNT + len(numbers))
            for name in ("_wide", "_sizes", "_numbers"):
                held = getattr(self, name)
                grown = np.empty((room, *held.shape[1:]), held.dtype)
                grown[:start] = held[:start]
                setattr(self, name, grown)
        rows = slice(None) if self.count - start == len(numbers) else queued
        for place, name in enumerate(self._WIDE):
            self._wide[start : self.count, place] = columns[name][rows]
        self._sizes[start : self.count] = columns["total_size"][rows]
        self._numbers[start : self.count] = numbers[rows]

    def take(self) -> tuple[Array, Records]:
        """Return the numbers of the queues in ascending order and their records, and clear all."""
        numbers = self._numbers[: self.count]
        if self.count and int(numbers.max()) < 1 << 16:
            numbers = numbers.astype("u2")  # sorted by radix
        order = np.argsort(numbers, kind="stable")
        self.count = 0
        indexes, offsets, codes, times = self._wide.take(order, axis=0).T
        return numbers.take(order), Records(indexes, offsets, self._sizes.take(order), codes, times)


class QueuesCheck:
    """Group the log's records by queue, and compare them with the units in large portions."""

    def __init__(
        self,
        scope: VerifyScope,
        queues: QueueTable,
        dispatched_offset: int,
        take_batch_records: Callable[[RecordBatch, Array], None],
    ) -> None:
        self._scope = scope
        self._queues = queues
        self._dispatched_offset = dispatched_offset
        self._numbers = kernels.passes_rows.QueueNumbers()
        self._numbered = 0
        #: Topic and queue id by the queue's number.
        self._keys: list[tuple[bytes, int]] = []
        self._checks: dict[tuple[bytes, int], QueueCheck] = {}
        self._gathered = _Gathered()
        self._batch_topics = [name.encode() for name in queues.batch_topics]
        self._take_batch_records = take_batch_records
        #: Physical offsets of the records that name a light queue, by queue.
        self._named: dict[tuple[bytes, int], list[int]] = {}
        self._check_files()

    def plain_queues(self) -> list[ConsumeQueue]:
        """Return the queues whose files hold plain units."""
        return [queue for queue in self._queues if not isinstance(queue, BatchConsumeQueue)]

    def _check_files(self) -> None:
        """Report files with a wrong size or offset, which are not read."""
        size = self._queues.file_size
        for queue in self.plain_queues():
            for offset, path, nbytes in list_directory(
                queue.queue.directory,
                self._queues.directory.parent,
                tolerate_unreadable=True,
                tolerate_odd=True,
            ).files:
                if nbytes != size or offset % size:
                    reason = f"{nbytes} bytes from {offset}; files of this queue have {size} bytes"
                    self._scope.report.add("queue-file", path, 0, None, reason)

    def number(self, batch: RecordBatch) -> NumberedQueues:
        """Number the queues of a batch; call it for each batch, in their order.

        May run on another thread than ``take``.
        """
        numbers = batch.number(self._numbers)
        keys = self._numbers.queues(self._numbered)
        self._numbered += len(keys)
        return NumberedQueues(numbers, keys)

    def take(self, batch: RecordBatch, numbered: NumberedQueues | None = None) -> None:
        """Gather the records that have a unit; ``numbered``: what ``number`` returned."""
        columns = batch.columns
        numbers, keys = self.number(batch) if numbered is None else numbered
        self._keys += keys
        queued = numbers >= 0
        if not queued.any():
            return
        self._take_named(batch, queued & (columns["multi_dispatch_at"] > 0))
        if self._scope.is_absent(formats.BATCH_QUEUE_DIR):
            self._learn_batch_topics(batch, queued)
        if self._batch_topics:
            is_batch = np.array([topic in self._batch_topics for topic, _ in self._keys])
            in_batches = queued & is_batch[numbers]
            self._take_batch_records(batch, np.flatnonzero(in_batches))
            queued &= ~in_batches
        self._gathered.add(numbers, columns, queued)
        if self._gathered.count >= _GATHER_COUNT:
            self._hand_out()

    def _learn_batch_topics(self, batch: RecordBatch, queued: Array) -> None:
        """Detect batch topics if the folder of batch queues is missing.

        Such a topic has inner batches and no other queue.
        """
        columns = batch.columns
        rows = queued & ((columns["sys_flag"] & formats.SYS_FLAG_INNER_BATCH) != 0)
        for row in np.flatnonzero(rows).tolist():
            message = batch.window.message(int(columns["position"][row]))
            topic = message.topic.encode("utf-8", "surrogateescape")
            if topic in self._batch_topics or inner_batch(message) is None:
                continue
            if not (self._queues.directory / message.topic).is_dir():
                self._batch_topics.append(topic)

    def _take_named(self, batch: RecordBatch, named: Array) -> None:
        """Remember which light queues must have a unit of a record."""
        for position in batch.columns["position"][named].tolist():
            message = batch.window.message(position)
            topic = message.topic
            if topic.startswith(_NOT_LIGHT) or topic == formats.TOPIC_SCHEDULE:
                continue
            for note in odd_names(message, _LIGHT_NAMES):
                self._scope.counts["odd_names"] += 1
                if self._scope.counts["odd_names"] <= _MOST_NOTED:
                    self._scope.report.notes.append(note)
            for name, _, _ in named_queues(message, _LIGHT_NAMES):
                if is_folder_name(name):
                    self._scope.counts["light_names"] += 1
                    key = (name.encode("utf-8", "surrogateescape"), 0)
                    self._named.setdefault(key, []).append(message.physical_offset)

    def _hand_out(self) -> None:
        numbers, records = self._gathered.take()
        edges = [0, *(np.flatnonzero(np.diff(numbers)) + 1).tolist(), len(numbers)]
        for start, stop in itertools.pairwise(edges):
            if start == stop:
                continue
            topic, queue_id = self._keys[int(numbers[start])]
            if topic in self._batch_topics:  # gathered before that was known
                self._scope.counts["absent_batch_units"] += stop - start
                continue
            check = self.check_of(topic, queue_id)
            check.take(records.part(start, stop))

    def check_of(self, topic: bytes, queue_id: int) -> QueueCheck:
        """Return the check of one queue, created on first use."""
        check = self._checks.get((topic, queue_id))
        if check is None:
            name = topic.decode("utf-8", "surrogateescape")
            files = UnitFiles(
                self._queues.get(name, queue_id),
                self._queues.directory / name / str(queue_id),
                self._queues.file_size,
                self._scope.root,
            )
            if self._scope.around is not None and self._scope.around.access.closed:
                files.hide(self._scope.around.access)
            check = QueueCheck(self._scope, topic, queue_id, files, self._dispatched_offset)
            self._checks[topic, queue_id] = check
        return check

    def ends(self) -> dict[tuple[str, int], int]:
        """Return the next queue offset by (topic, queue id), according to the records."""
        return {
            (topic.decode("utf-8", "surrogateescape"), queue_id): check.end
            for (topic, queue_id), check in self._checks.items()
            if check.end is not None
        }

    def finish(self) -> None:
        """Compare the remaining records, and judge the remaining units of all queues."""
        self._hand_out()
        for queue in self.plain_queues():
            self.check_of(queue.topic_bytes, queue.queue_id)
        for key, offsets in self._named.items():
            self.check_of(*key).find_named(offsets)
        for check in self._checks.values():
            check.finish()
        self._scope.report.queues += len(self._checks)
