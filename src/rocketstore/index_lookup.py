"""Looking up many keys at once over all index files."""

from __future__ import annotations

import errno
from collections.abc import Sequence
from typing import TYPE_CHECKING, Any

from rocketstore import kernels
from rocketstore.index_service import IndexService
from rocketstore.mapped_file import name_cut_file
from rocketstore.status import RecordStatus

if TYPE_CHECKING:
    import numpy

_MAX_TIMESTAMP = 2**63 - 1


def lookup_many(
    index: IndexService, topic: str, keys: Sequence[str]
) -> tuple[numpy.ndarray[Any, Any], numpy.ndarray[Any, Any]]:
    """Return (physical offsets, row splits) of the hash hits of ``topic#key`` for every key."""
    import numpy

    if isinstance(keys, str):
        raise TypeError("keys must be a sequence of str, not str")
    texts = [f"{topic}#{key}".encode("utf-8", "replace") for key in keys]
    hashes = numpy.array([kernels.index_file.key_hash(text) for text in texts], numpy.int32)
    rows: list[Any] = []
    offsets: list[Any] = []
    for file in index.files:
        capacity = max(1024, 2 * len(keys))
        start = 0
        while start < len(hashes):
            out_rows = numpy.empty(capacity, numpy.int64)
            out_offsets = numpy.empty(capacity, numpy.int64)
            hits, following, status = kernels.index_file.lookup(
                file.buffer, file.slots, file.entries, hashes, 0, _MAX_TIMESTAMP,
                out_rows, out_offsets, start,
            )  # fmt: skip
            if status == RecordStatus.FAULT:
                error = OSError(errno.EFAULT, "the mapped file was shortened")
                name_cut_file(error, [file.file])
                raise error
            rows.append(out_rows[:hits])
            offsets.append(out_offsets[:hits])
            if following == start:
                capacity *= 2
            start = following
    all_rows = numpy.concatenate(rows) if rows else numpy.empty(0, numpy.int64)
    all_offsets = numpy.concatenate(offsets) if offsets else numpy.empty(0, numpy.int64)
    order = numpy.lexsort((all_offsets, all_rows))
    splits = numpy.searchsorted(all_rows[order], numpy.arange(len(keys) + 1))
    return all_offsets[order], splits.astype(numpy.int64)
