"""Record batches of one split of a log, read through ``rocketstore.sources``."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping, Sequence
from typing import TYPE_CHECKING, Any

from rocketstore import kernels
from rocketstore.display.columns import resolve
from rocketstore.filter.message_filter import sql_filter
from rocketstore.query.queue_records import QueueRecords, check_record_word
from rocketstore.sources.splits import Split
from rocketstore.sources.walk import OnDamage, walk

if TYPE_CHECKING:
    import pyarrow

    from rocketstore.filter.sql92.sql92_filter import Sql92Filter

DEFAULT_BATCH_ROWS = 8192
DEFAULT_BATCH_BYTES = 4 << 20


def read_batches(
    split: Split,
    columns: str | Sequence[str] = "core",
    *,
    topics: Iterable[str] | None = None,
    tags: Iterable[str] | None = None,
    keys: Iterable[str] | None = None,
    queue_ids: Mapping[str, Iterable[int]] | None = None,
    begin: int | None = None,
    end: int | None = None,
    start_offsets: Mapping[tuple[str, int], tuple[int | None, int | None]] | None = None,
    filter: str | Sql92Filter | None = None,
    batch_rows: int = DEFAULT_BATCH_ROWS,
    batch_bytes: int = DEFAULT_BATCH_BYTES,
    on_corruption: str = "fail",
    check_crc: bool = True,
    storage_options: Mapping[str, Any] | None = None,
    on_damage: OnDamage | None = None,
    records: str = "log",
) -> Iterator[pyarrow.RecordBatch]:
    """Read the records of a split as record batches, in log order.

    Parameters
    ----------
    split : Split
    columns : str or sequence of str
        See ``resolve``.
    topics, tags, keys, queue_ids, begin, end, start_offsets, batch_rows, batch_bytes
        See ``rocketstore.kernels.arrow.BatchDecoder``.
    filter : str or Sql92Filter, optional
        An SQL92 expression, evaluated while the log is read; a str is one of the newest dialect.
    on_corruption, check_crc, storage_options, on_damage
        See ``rocketstore.sources.walk.walk``.
    records : {"log", "queues"}
        See ``DefaultMessageStore.scan``.

    Yields
    ------
    pyarrow.RecordBatch
        Of one row or more; with ``"fail"``, the rows before a corrupt place are yielded first.

    Raises
    ------
    CorruptMessageError
        At a corrupt place with ``on_corruption="fail"``.
    MappedFileError
        The file is gone or was truncated.
    FilterSyntaxError, ValueError, TypeError
        An argument is invalid; raised when the first batch is requested.
    """
    import pyarrow as pa

    decoder = kernels.arrow.BatchDecoder(
        resolve(columns),
        topics=topics,
        tags=tags,
        keys=keys,
        queue_ids=queue_ids,
        begin=begin,
        end=end,
        start_offsets=start_offsets,
        filter=None if filter is None else sql_filter(filter),
        batch_rows=batch_rows,
        batch_bytes=batch_bytes,
    )
    check_record_word(records)
    drains = walk(
        split,
        decoder if records == "log" else QueueRecords(decoder),
        on_corruption=on_corruption,
        check_crc=check_crc,
        storage_options=storage_options,
        on_damage=on_damage,
    )
    for _ in drains:
        if decoder.rows:
            yield pa.record_batch(decoder.take())
