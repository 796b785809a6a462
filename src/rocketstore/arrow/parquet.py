"""Writes messages to one Parquet file."""

from __future__ import annotations

import contextlib
import os
import uuid
from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any

from rocketstore.arrow.columns import arrow_schema, resolve
from rocketstore.arrow.reading import read_batches
from rocketstore.files.durable import (
    TEMPORARY_PREFIX,
    reporting_full_disk,
    sync_descriptor,
    sync_directory,
)
from rocketstore.filter.message_filter import sql_filter
from rocketstore.query.arrow_scan import ArrowScan
from rocketstore.sources import Split
from rocketstore.sources.policy import list_to_read, plan_reading

if TYPE_CHECKING:
    import pyarrow

DEFAULT_ROW_GROUP_BYTES = 128 << 20
_NOTHING = Split("", 0, 0, 0, 0, 0, aligned=True, tail=False, range_stop=0)
COMPRESSIONS = ("none", "snappy", "gzip", "brotli", "zstd", "lz4")


def to_parquet(
    source: Any,
    destination: str | os.PathLike[str],
    columns: str | Sequence[str] | None = None,
    *,
    compression: str = "snappy",
    row_group_bytes: int = DEFAULT_ROW_GROUP_BYTES,
    overwrite: bool = False,
    storage_options: Mapping[str, Any] | None = None,
    start: int | None = None,
    stop: int | None = None,
    **limits: Any,
) -> int:
    """Write messages to one Parquet file.

    The file appears only when it is complete and on disk: it is written under a temporary name in
    the same folder, synced and renamed.

    Parameters
    ----------
    source : store, path, URI, or stream of record batches
        An open store; the path or URI of a store's root or of its ``commitlog``; or any object with
        ``__arrow_c_stream__``, such as ``store.scan_arrow(...)``, which has its own columns.
    destination : path
        The file on a local disk; its folder must exist.
    columns : str or sequence of str, optional
        As in ``store.scan_arrow``; the default is ``"core"``.
    compression : {"snappy", "none", "gzip", "brotli", "zstd", "lz4"}
    row_group_bytes : int
        Size of a row group before encoding; about as much memory is used.
    overwrite : bool
        Replace an existing file.
    storage_options : mapping, optional
        Passed to fsspec for a source given by URI.
    start, stop : int, optional
        Physical offsets.
    **limits
        ``on_corruption``, ``check_crc``, and the limits of ``BatchDecoder``: ``topics``, ``tags``,
        ``keys``, ``queue_ids``, ``begin``, ``end``, ``start_offsets``; also ``filter``, an SQL92
        expression or ``Sql92Filter``.

    Returns
    -------
    int
        Rows written.

    Raises
    ------
    FileExistsError
        ``destination`` exists and ``overwrite`` is false.
    CorruptMessageError
        At a corrupt place, unless ``on_corruption`` says otherwise. No file remains.
    StoreFullError
        The disk is full. No file remains.
    ValueError, TypeError
        An argument is invalid.
    """
    if compression not in COMPRESSIONS:
        raise ValueError(f"compression is {compression!r}; it must be one of {COMPRESSIONS}")
    if isinstance(row_group_bytes, bool) or not isinstance(row_group_bytes, int):
        raise TypeError(f"row_group_bytes must be int, not {type(row_group_bytes).__name__}")
    if row_group_bytes < 1:
        raise ValueError(f"row_group_bytes must be positive, not {row_group_bytes}")
    target = Path(destination)
    if not overwrite:
        _refuse_existing(target)
    limits |= {name: at for name, at in (("start", start), ("stop", stop)) if at is not None}
    if isinstance(source, str | os.PathLike):
        schema, batches = _of_path(source, columns, storage_options, limits)
    elif hasattr(source, "scan_arrow"):
        scan = source.scan_arrow("core" if columns is None else columns, **limits)
        schema, batches = scan.schema, iter(scan)
    else:
        schema, batches = _of_stream(source, columns, limits)
    with _finished_file(target, overwrite) as path:
        return _write(path, schema, batches, compression, row_group_bytes)


def _refuse_existing(target: Path) -> None:
    if os.path.lexists(target):
        raise FileExistsError(17, "the file exists; use overwrite=True", os.fspath(target))


def _of_path(
    source: str | os.PathLike[str],
    columns: str | Sequence[str] | None,
    storage_options: Mapping[str, Any] | None,
    limits: dict[str, Any],
) -> tuple[pyarrow.Schema, Iterator[pyarrow.RecordBatch]]:
    names = resolve("core" if columns is None else columns)
    policy, check_crc = limits.get("on_corruption", "fail"), limits.get("check_crc", True)
    log = list_to_read(
        source, policy, storage_options=dict(storage_options) if storage_options else None
    )
    places = {name: limits.pop(name) for name in ("start", "stop") if name in limits}
    times = {name: limits[name] for name in ("begin", "end") if limits.get(name) is not None}
    splits = plan_reading(log, policy, check_crc=check_crc, **places, **times)
    # An iterator can be read only once, but every split needs the values.
    limits = {n: list(v) if isinstance(v, Iterator) else v for n, v in limits.items()}
    if isinstance(limits.get("filter"), str):
        limits["filter"] = sql_filter(limits["filter"])  # compiled once, and warns once
    for _ in read_batches(_NOTHING, names, **limits):
        pass  # raises for invalid arguments even if there is nothing to read
    return arrow_schema(names), (
        batch
        for split in splits
        for batch in read_batches(split, names, storage_options=log.storage_options, **limits)
    )


def _of_stream(
    source: Any, columns: str | Sequence[str] | None, limits: dict[str, Any]
) -> tuple[pyarrow.Schema, Iterator[pyarrow.RecordBatch]]:
    import pyarrow as pa

    if not hasattr(source, "__arrow_c_stream__"):
        kind = type(source).__name__
        raise TypeError(
            f"source must be a store, a path, or a stream of record batches, not {kind}"
        )
    if limits or columns is not None:
        given = ", ".join(["columns"] * (columns is not None) + list(limits))
        raise TypeError(f"a stream has fixed columns and rows; it does not accept {given}")
    if isinstance(source, ArrowScan):
        return source.schema, iter(source)  # keeps the type of an error
    reader = pa.RecordBatchReader.from_stream(source)
    return reader.schema, iter(reader)


@contextlib.contextmanager
def _finished_file(target: Path, overwrite: bool) -> Iterator[Path]:
    """Yield a temporary path beside ``target``; on success sync it and rename it to ``target``."""
    path = target.with_name(f"{TEMPORARY_PREFIX}{uuid.uuid4().hex}")
    try:
        with reporting_full_disk(target):
            yield path
            with path.open("r+b") as file:
                sync_descriptor(file.fileno())
            if not overwrite:
                _refuse_existing(target)
            os.replace(path, target)
            if os.name != "nt":
                sync_directory(target.parent)
    finally:
        path.unlink(missing_ok=True)


def _write(
    path: Path,
    schema: pyarrow.Schema,
    batches: Iterator[pyarrow.RecordBatch],
    compression: str,
    row_group_bytes: int,
) -> int:
    import pyarrow as pa
    import pyarrow.parquet as pq

    rows = nbytes = 0
    waiting: list[pyarrow.RecordBatch] = []
    with pq.ParquetWriter(path, schema, compression=compression) as writer:

        def flush() -> None:
            table = pa.Table.from_batches(waiting, schema)
            writer.write_table(table, row_group_size=max(table.num_rows, 1))
            waiting.clear()

        for batch in batches:
            waiting.append(batch)
            rows += batch.num_rows
            nbytes += batch.nbytes
            if nbytes >= row_group_bytes:
                flush()
                nbytes = 0
        if waiting:
            flush()
    return rows
