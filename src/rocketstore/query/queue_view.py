"""Queues as NumPy arrays: all units of a queue, and the queue offsets with certain tags."""

from __future__ import annotations

from typing import Any

import numpy

from rocketstore import formats, kernels
from rocketstore.display.html import array_html
from rocketstore.filter import TagFilter
from rocketstore.queues.batch_consume_queue import BatchConsumeQueue
from rocketstore.queues.consume_queue import ConsumeQueue


class QueueView(numpy.ndarray[Any, Any]):
    """The units of one queue, with a table for notebooks.

    Arrays made from it (slices, columns, copies) are plain arrays: the queue offset of their first
    row is unknown.

    Attributes
    ----------
    topic : str or None
    queue_id : int or None
    first_offset : int or None
        Queue offset of row 0: the queue's min offset, or that of the first unit in an existing
        file. ``None`` for a BatchConsumeQueue, whose rows hold their own, and for derived arrays.
    """

    topic: str | None
    queue_id: int | None
    first_offset: int | None

    def __array_finalize__(self, origin: Any) -> None:
        self.topic = self.queue_id = self.first_offset = None

    def _repr_html_(self) -> str | None:
        if self.dtype.names is None or self.ndim != 1:
            return None
        caption = "Units" if self.topic is None else f"Queue {self.queue_id} of {self.topic}"
        return array_html(caption, self.first_offset, self)


def units_of(queue: ConsumeQueue | None) -> QueueView:
    """Return a copy of a queue's units from its min to its max offset, shape (n,)."""
    dtype = formats.CONSUME_QUEUE_UNIT.dtype
    if isinstance(queue, BatchConsumeQueue):
        units = queue.array()
    elif queue is None:
        units = numpy.empty(0, dtype)
    else:
        parts = [
            numpy.frombuffer(buffer, dtype, count)[max(0, queue.min_index - first) :].copy()
            for first, buffer, count in queue.view()
        ]
        units = numpy.concatenate(parts) if parts else numpy.empty(0, dtype)
    view = units.view(QueueView)
    if queue is not None:
        view.topic, view.queue_id = queue.topic, queue.queue_id
        if not isinstance(queue, BatchConsumeQueue):
            # 4.9 does not advance a queue's min offset when all its messages have expired.
            view.first_offset = queue.max_index - len(view)
    return view


def offsets_with_tags(queue: ConsumeQueue | None, tags: TagFilter) -> numpy.ndarray[Any, Any]:
    """Return the queue offsets (int64) whose unit has the tags code of one of ``tags``.

    Codes stored in a ConsumeQueueExt are looked up there. A unit whose ext unit is lost passes
    every filter, as in ``get_message``.
    """
    codes = tags.tags_codes
    if queue is None:
        return numpy.empty(0, numpy.int64)
    if codes is None:
        return numpy.arange(queue.min_index, queue.max_index, dtype=numpy.int64)
    if isinstance(queue, BatchConsumeQueue):
        return queue.offsets_with(codes)
    found = []
    nbytes = formats.CONSUME_QUEUE_UNIT.nbytes
    for first, buffer, count in queue.view():
        if queue.ext is not None:
            buffer = queue.ext.resolve(buffer, 0, count * nbytes)
        out = numpy.empty(count, numpy.int64)
        hits = kernels.consume_queue.filter_units(buffer, 0, count * nbytes, codes, out)
        offsets = out[:hits]
        offsets += first
        if queue.ext is not None:
            offsets = numpy.union1d(offsets, _unknown(buffer, count) + first)
        if first < queue.min_index:
            offsets = offsets[numpy.searchsorted(offsets, queue.min_index) :]
        found.append(offsets)
    if not found:
        return numpy.empty(0, numpy.int64)
    return numpy.concatenate(found)


def _unknown(units: bytearray, count: int) -> numpy.ndarray[Any, Any]:
    """Return the numbers of the units whose ext address could not be resolved."""
    codes = numpy.frombuffer(units, formats.CONSUME_QUEUE_UNIT.dtype, count)["tags_code"]
    return numpy.flatnonzero(codes <= formats.MAX_EXT_ADDRESS).astype(numpy.int64)
