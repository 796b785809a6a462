"""How exports lay out messages: partition folders, file names, and how Parquet stores columns."""

from __future__ import annotations

import datetime
import re
from collections.abc import Iterator, Mapping, Sequence
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    import pyarrow

#: Partition columns, and the message columns that they derive from.
PARTITIONS = {"topic": "topic", "queueId": "queueId", "date": "storeTimestamp"}
#: Columns whose values repeat; other columns gain nothing from a dictionary.
_REPEATING = frozenset(
    ("topic", "queueId", "tags", "flag", "sysFlag", "reconsumeTimes", "bornHost", "storeHost")
) | {"partition", "timestampType"}
#: Characters that Hive and Spark write as %XX in partition names.
_ESCAPED = re.compile(r"[\x00-\x1f\"#%'*/:=?\\{\[\]^\x7f]")
#: The calendar repeats after so many days.
_DAYS_IN_400_YEARS = 146_097
_DAYS_TO_2000 = (datetime.date(2000, 1, 1) - datetime.date(1970, 1, 1)).days


def check_partitions(partition_by: Sequence[str], columns: Sequence[str]) -> tuple[str, ...]:
    """Return the partition columns; raise ``ValueError`` for an unknown one, one given twice, or
    if no other column remains."""
    parts = tuple(partition_by)
    unknown = next((part for part in parts if part not in PARTITIONS), None)
    if unknown is not None or len(set(parts)) < len(parts):
        raise ValueError(
            f"partition_by is {parts!r}; it must name each of {', '.join(PARTITIONS)} at most once"
        )
    if not set(columns) - set(parts):
        raise ValueError("partition_by leaves no columns for the files; add one to columns")
    return parts


def parquet_writer(sink: Any, schema: pyarrow.Schema, compression: str) -> Any:
    """Return a ``ParquetWriter`` with dictionaries and statistics only where they are useful."""
    import pyarrow.parquet as pq

    return pq.ParquetWriter(
        sink,
        schema,
        compression=compression,
        use_dictionary=[name for name in schema.names if name in _REPEATING],
        write_statistics=[name for name in schema.names if _has_order(schema, name)],
    )


def _has_order(schema: pyarrow.Schema, name: str) -> bool:
    """Return whether minimum and maximum of the column are useful statistics."""
    import pyarrow as pa

    kind = schema.field(name).type
    return not (pa.types.is_binary(kind) or pa.types.is_nested(kind))


def partitioned(
    batch: pyarrow.RecordBatch, partition_by: Sequence[str]
) -> Iterator[tuple[tuple[Any, ...], pyarrow.RecordBatch]]:
    """Yield (values, rows) for each combination of values in a batch; rows keep their order.

    Rows share no memory with those of other values, so that a few kept ones cost no more.
    """
    import numpy as np

    if not partition_by or not batch.num_rows:
        if batch.num_rows:
            yield (), batch
        return
    codes = np.zeros(batch.num_rows, np.int64)
    dictionaries = []
    for part in partition_by:
        column = _partition_values(batch, part)
        dictionaries.append(column.dictionary.to_pylist())
        codes = codes * len(dictionaries[-1]) + column.indices.to_numpy(zero_copy_only=False)
    if not (codes != codes[0]).any():
        yield _decode(int(codes[0]), dictionaries), batch
        return
    order = np.argsort(codes, kind="stable")
    ordered = codes[order]
    starts = np.flatnonzero(np.concatenate(([True], ordered[1:] != ordered[:-1]))).tolist()
    for first, last in zip(starts, [*starts[1:], batch.num_rows], strict=True):
        yield _decode(int(ordered[first]), dictionaries), batch.take(order[first:last])


def _decode(code: int, dictionaries: list[list[Any]]) -> tuple[Any, ...]:
    values = []
    for dictionary in reversed(dictionaries):
        code, index = divmod(code, len(dictionary))
        values.append(dictionary[index])
    return tuple(reversed(values))


def _partition_values(batch: pyarrow.RecordBatch, part: str) -> Any:
    """Return the partition values of the rows as a dictionary array."""
    column = batch.column(PARTITIONS[part])
    if part != "date":
        return column.dictionary_encode("encode")
    import pyarrow as pa

    # Days of 86,400 s since 1970, also before 1970: pyarrow's cast rounds down.
    days = column.cast(pa.timestamp("us")).cast(pa.date32(), safe=False).cast(pa.int32())
    encoded = days.dictionary_encode()
    names = pa.array([date_name(day) for day in encoded.dictionary.to_pylist()], pa.string())
    return pa.DictionaryArray.from_arrays(encoded.indices, names)


def date_name(day: int) -> str:
    """Format a day, counted from 1970-01-01, as Spark does.

    A record's time may be millennia away, beyond the range of Python's and pyarrow's dates.
    """
    eras, rest = divmod(day - _DAYS_TO_2000, _DAYS_IN_400_YEARS)
    date = datetime.date(2000, 1, 1) + datetime.timedelta(days=rest)
    year = date.year + 400 * eras
    sign = "-" if year < 0 else "+" if year > 9999 else ""
    return f"{sign}{abs(year):04d}-{date:%m-%d}"


def final_name(values: Mapping[str, Any], first: int, part: int, extension: str = "parquet") -> str:
    """Return a file's final name: the folders of Hive, and the split's first offset."""
    folders = [f"{name}={escaped(value)}" for name, value in values.items()]
    suffix = f"-{part}" if part else ""
    return "/".join([*folders, f"part-{first:020d}{suffix}.{extension}"])


def escaped(value: object) -> str:
    """Escape a value for the name of a Hive partition."""
    if value is None or value == "":
        return "__HIVE_DEFAULT_PARTITION__"
    return _ESCAPED.sub(lambda found: f"%{ord(found[0]):02X}", str(value))
