"""The files of an export: one piece of the log in any format, by partition; hashed as written."""

from __future__ import annotations

import contextlib
import gzip
import hashlib
import os
from collections.abc import Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any, NamedTuple

from rocketstore.arrow.layout import final_name, parquet_writer, partitioned
from rocketstore.files.durable import reporting_full_disk, sync_descriptor
from rocketstore.moving.exports.rows import csv_head, csv_lines, ndjson, text_names

if TYPE_CHECKING:
    import pyarrow

#: Formats: the compressions of each, the first being the default.
FORMATS: dict[str, tuple[str, ...]] = {
    "parquet": ("snappy", "none", "gzip", "brotli", "zstd", "lz4"),
    "arrow": ("none", "lz4", "zstd"),
    "ndjson": ("none", "gzip"),
    "csv": ("none", "gzip"),
}
#: Lines stand for themselves, so they keep the columns that name the folders.
TEXT_FORMATS = ("ndjson", "csv")
#: Arrow bytes that wait for a row group, for all files together.
_WAITING_NBYTES = 32 << 20
#: Open files; the one that was opened first is finished when there are more.
_MAX_OPEN = 32


class Layout(NamedTuple):
    """How an export writes.

    Attributes
    ----------
    to : str
        One of ``FORMATS``.
    compression : str
    columns, partition_by : tuple of str
    """

    to: str
    compression: str
    columns: tuple[str, ...]
    partition_by: tuple[str, ...]

    @property
    def extension(self) -> str:
        """Extension of the files."""
        return f"{self.to}.gz" if self.compression == "gzip" and self.is_text else self.to

    @property
    def is_text(self) -> bool:
        """Whether files have one line for each message."""
        return self.to in TEXT_FORMATS

    @property
    def written(self) -> list[str]:
        """Columns of the files."""
        kept = () if self.is_text else self.partition_by
        return [name for name in self.columns if name not in kept]


class _Hashed:
    """A new file that pyarrow writes to; knows its hash and size."""

    def __init__(self, path: Path) -> None:
        self.closed = False
        self.nbytes = 0
        self.sha256 = hashlib.sha256()
        self._path = path
        with reporting_full_disk(path):
            self._fd = os.open(path, os.O_WRONLY | os.O_CREAT | os.O_EXCL | os.O_CLOEXEC, 0o644)

    def writable(self) -> bool:
        return True

    def readable(self) -> bool:
        return False

    def seekable(self) -> bool:
        return False

    def tell(self) -> int:
        return self.nbytes

    def flush(self) -> None:
        pass

    def write(self, data: Any) -> int:
        view = memoryview(data).cast("B")
        self.sha256.update(view)
        self.nbytes += len(view)
        left = view
        with reporting_full_disk(self._path):
            while left:
                left = left[os.write(self._fd, left) :]
        return len(view)

    def finish(self) -> None:
        """Sync and close."""
        with reporting_full_disk(self._path):
            sync_descriptor(self._fd)
        self.close()

    def close(self) -> None:
        if not self.closed:
            self.closed = True
            os.close(self._fd)


class _TextWriter:
    """Writes lines, compressed or not; named as pyarrow's writers name their methods."""

    def __init__(self, sink: _Hashed, schema: pyarrow.Schema, layout: Layout) -> None:
        self._out: Any = sink
        if layout.compression == "gzip":
            # Without a time and a name, so that the same messages give the same bytes.
            self._out = gzip.GzipFile("", "wb", 6, sink, mtime=0)
        self._lines = ndjson if layout.to == "ndjson" else csv_lines
        if layout.to == "csv":
            self._out.write(csv_head(text_names(schema)))

    def write_table(self, table: pyarrow.Table, **_: int) -> None:
        for batch in table.to_batches(max_chunksize=1024):
            self._out.write(self._lines(batch))

    def close(self) -> None:
        if isinstance(self._out, gzip.GzipFile):
            self._out.close()


class _File:
    """A file in progress; created with its first rows."""

    def __init__(self, path: Path, final: str, known: dict[str, Any], layout: Layout) -> None:
        self.path = path
        self.rows = 0
        self._final = final
        self._known = known
        self._layout = layout
        self._first = self._last = -1
        self._sink: _Hashed | None = None
        self._writer: Any = None

    def write(self, batches: list[pyarrow.RecordBatch], offsets: tuple[int, int]) -> None:
        """Write rows that begin at the log offsets ``offsets``, first and last."""
        import pyarrow as pa

        table = pa.Table.from_batches(batches)
        if self._writer is None:
            self._first = offsets[0]
            self._sink = _Hashed(self.path)
            self._writer = self._opened(self._sink, table.schema)
        self._last = offsets[1]
        if self._layout.to == "parquet":
            self._writer.write_table(table, row_group_size=max(table.num_rows, 1))
        else:
            self._writer.write_table(table)
        self.rows += table.num_rows

    def _opened(self, sink: _Hashed, schema: pyarrow.Schema) -> Any:
        import pyarrow as pa

        layout = self._layout
        if layout.is_text:
            return _TextWriter(sink, schema, layout)
        if layout.to == "parquet":
            return parquet_writer(sink, schema, layout.compression)
        codec = None if layout.compression == "none" else layout.compression
        return pa.ipc.new_file(sink, schema, options=pa.ipc.IpcWriteOptions(compression=codec))

    def finish(self) -> dict[str, Any]:
        """Close the file; return its line of the manifest."""
        assert self._sink is not None
        self._writer.close()
        self._sink.finish()
        return {
            "kind": "file",
            "path": self._final,
            **self._known,
            "rows": self.rows,
            "bytes": self._sink.nbytes,
            "sha256": self._sink.sha256.hexdigest(),
            "offsets": [self._first, self._last],
        }

    def drop(self) -> None:
        """Close without finishing."""
        if self._writer is not None:
            with contextlib.suppress(OSError, ValueError):  # the disk may be full
                self._writer.close()
        if self._sink is not None:
            self._sink.close()


class _Waiting:
    """Rows of one partition that wait to be written."""

    def __init__(self) -> None:
        self.batches: list[pyarrow.RecordBatch] = []
        self.nbytes = 0
        self.first = self.last = -1

    def add(self, rows: pyarrow.RecordBatch, first: int, last: int) -> None:
        if self.first < 0:
            self.first = first
        self.last = last
        self.batches.append(rows)
        self.nbytes += rows.nbytes


class PieceWriter:
    """Writes the messages of one piece of the log, under temporary names.

    Parameters
    ----------
    folder : Path
        For the temporary files, which are called ``0``, ``1`` …; it is empty.
    start : int
        Physical offset of the piece; names the files.
    layout : Layout

    Notes
    -----
    Which files there are, and their bytes, depend on the messages alone. Memory: 32 MiB of rows,
    and as much again while they are encoded.
    """

    def __init__(self, folder: Path, start: int, layout: Layout) -> None:
        self.rows = 0
        self._folder = folder
        self._start = start
        self._layout = layout
        self._waiting: dict[tuple[Any, ...], _Waiting] = {}
        self._nbytes = 0
        self._open: dict[tuple[Any, ...], _File] = {}
        self._parts: dict[tuple[Any, ...], int] = {}
        self._made = 0
        self._done: dict[int, dict[str, Any]] = {}
        self._numbers: dict[tuple[Any, ...], int] = {}

    def add(self, batch: pyarrow.RecordBatch) -> None:
        """Add rows with the columns of the layout, those of its partitions, and their offsets."""
        self.rows += batch.num_rows
        written: Sequence[str] = self._layout.written
        for values, rows in partitioned(batch, self._layout.partition_by):
            waiting = self._waiting.setdefault(values, _Waiting())
            offsets = rows.column("physicalOffset")
            before = waiting.nbytes
            waiting.add(rows.select(written), offsets[0].as_py(), offsets[-1].as_py())
            self._nbytes += waiting.nbytes - before
        while self._nbytes > _WAITING_NBYTES:
            self._flush(max(self._waiting, key=lambda key: self._waiting[key].nbytes))

    def _flush(self, values: tuple[Any, ...]) -> None:
        waiting = self._waiting.pop(values)
        self._nbytes -= waiting.nbytes
        file = self._open.get(values)
        if file is None:
            if len(self._open) >= _MAX_OPEN:
                self._finish(next(iter(self._open)))
            file = self._new_file(values)
        file.write(waiting.batches, (waiting.first, waiting.last))

    def _new_file(self, values: tuple[Any, ...]) -> _File:
        part = self._parts[values] = self._parts.get(values, -1) + 1
        known = dict(zip(self._layout.partition_by, values, strict=True))
        final = final_name(known, self._start, part, self._layout.extension)
        file = _File(self._folder / str(self._made), final, known, self._layout)
        self._open[values], self._numbers[values] = file, self._made
        self._made += 1
        return file

    def _finish(self, values: tuple[Any, ...]) -> None:
        self._done[self._numbers.pop(values)] = self._open.pop(values).finish()

    def finish(self) -> list[dict[str, Any]]:
        """Finish all files; return their lines of the manifest, in the order of their names."""
        for values in list(self._waiting):
            self._flush(values)
        for values in list(self._open):
            self._finish(values)
        return [self._done[number] for number in sorted(self._done)]

    def abort(self) -> None:
        """Close all files; the temporary ones stay where they are."""
        for file in self._open.values():
            file.drop()
