"""Compare queue units with the log's records, for ``verify``."""

from __future__ import annotations

import itertools
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np

from rocketstore import formats
from rocketstore.dispatch.named_queues import named_queues, odd_names
from rocketstore.files.durable import odd_folder
from rocketstore.files.mapped_file_queue import list_directory
from rocketstore.inner_batch import inner_batch
from rocketstore.log.scan import RecordBatch
from rocketstore.queues.batch_consume_queue import BatchConsumeQueue
from rocketstore.queues.consume_queue import ConsumeQueue
from rocketstore.queues.directories import is_folder_name
from rocketstore.queues.queue_table import QueueTable
from rocketstore.status import MultiDispatch
from rocketstore.verify.gathering import Gathering, QueuedRecords, RowCounts
from rocketstore.verify.queue_check import QueueCheck
from rocketstore.verify.scope import VerifyScope
from rocketstore.verify.unit_files import UnitFiles

_LIGHT_NAMES = int(MultiDispatch.LIGHT)
#: Odd names that are noted one by one.
_MOST_NOTED = 20
_NOT_LIGHT = (formats.TOPIC_RETRY_PREFIX, formats.TOPIC_DLQ_PREFIX, formats.TOPIC_SYSTEM_PREFIX)

Array = np.ndarray[Any, Any]


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
        #: Topic and queue id by the queue's number, and the numbers.
        self._keys: list[tuple[bytes, int]] = []
        self._numbers: dict[tuple[bytes, int], int] = {}
        self._checks: dict[tuple[bytes, int], QueueCheck] = {}
        self._gathered = Gathering()
        self._batch_topics = [name.encode() for name in queues.batch_topics]
        self._take_batch_records = take_batch_records
        #: Physical offsets of the records that name a light queue, by queue.
        self._named: dict[tuple[bytes, int], list[int]] = {}
        self._odd_folders: set[Path] = set()
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

    def _number(self, queued: QueuedRecords) -> Array:
        """Return each record's number of its queue; it is the same whichever thread read it."""
        for key in queued.keys:
            number = self._numbers.setdefault(key, len(self._keys))
            if number == len(self._keys):
                self._keys.append(key)
            queued.places.append(number)
        return np.frombuffer(queued.places, "i4").take(queued.own)

    def take(self, batch: RecordBatch, counts: RowCounts, queued: QueuedRecords) -> None:
        """Gather the records that have a unit; the arguments are of a ``BatchReader``."""
        if not counts.queued:
            return
        numbers = self._number(queued)
        kept: Any = slice(None)
        if counts.named:
            has_unit = queued.numbers >= 0
            self._take_named(batch, has_unit & (batch.columns["multi_dispatch_at"] > 0))
        if self._scope.is_absent(formats.BATCH_QUEUE_DIR):
            self._learn_batch_topics(batch, queued.numbers >= 0)
        if self._batch_topics:
            is_batch = np.array([topic in self._batch_topics for topic, _ in self._keys])
            in_batches = is_batch[numbers]
            self._take_batch_records(batch, np.flatnonzero(queued.numbers >= 0)[in_batches])
            kept = ~in_batches
        self._gathered.add(numbers[kept], queued.wide[kept], queued.sizes[kept])
        if self._gathered.is_enough(len(self._keys)):
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

    def _report_odd_folder(self, topic: str, queue_id: int) -> None:
        """Report what is in the place of a queue's folder: no start, and no repair, replaces it."""
        if self._queues.get(topic, queue_id) is not None:
            return
        folder = self._queues.directory / topic
        for place in (folder, folder / str(queue_id)):
            what = odd_folder(place)
            if what and place not in self._odd_folders:
                self._odd_folders.add(place)
                self._scope.report.add("odd-file", place, 0, None, what)

    def finish(self) -> None:
        """Compare the remaining records, and judge the remaining units of all queues."""
        self._hand_out()
        for queue in self.plain_queues():
            self.check_of(queue.topic_bytes, queue.queue_id)
        for key, offsets in self._named.items():
            self.check_of(*key).find_named(offsets)
        for (topic, queue_id), check in self._checks.items():
            check.finish()
            self._report_odd_folder(topic.decode("utf-8", "surrogateescape"), queue_id)
        self._scope.report.queues += len(self._checks)
