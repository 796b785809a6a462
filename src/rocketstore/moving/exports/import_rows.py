"""Messages of an export, or of one file, in the order in which they are put again."""

from __future__ import annotations

import base64
import csv
import gzip
import hashlib
import io
import json
import os
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import IO, TYPE_CHECKING, Any

from rocketstore.display.columns import COLUMNS
from rocketstore.errors import MappedFileError
from rocketstore.files.durable import READ_ONLY, open_regular_file
from rocketstore.moving.exports.manifest import MANIFEST_FILE, Totals, read_lines
from rocketstore.moving.exports.rows import BASE64

if TYPE_CHECKING:
    import pyarrow

#: A message: values by the names of the columns; bytes as ``bytes``, times in epoch ms.
Row = dict[str, Any]
_BYTES = ("body", "raw")
_INTEGERS = frozenset(
    ("queueId", "queueOffset", "physicalOffset", "storeTimestamp", "bornTimestamp", "flag",
     "sysFlag", "reconsumeTimes", "storeSize", "bodyCRC", "preparedTransactionOffset", "bodySize")
)  # fmt: skip
_ROWS = 1024
_CHUNK = 1 << 20


class ImportSource:
    """An export's folder, or one of its files.

    Parameters
    ----------
    path : Path

    Attributes
    ----------
    totals : Totals or None
        Of the manifest; ``None`` for one file.
    nbytes : int
        Of all files.

    Raises
    ------
    FileNotFoundError
        There is no such file, or the folder has no manifest.
    MappedFileError
        The manifest is not one.
    """

    def __init__(self, path: Path) -> None:
        self.path = path
        self.totals: Totals | None = None
        self._manifest = path / MANIFEST_FILE
        if not path.is_dir():
            self.nbytes = path.stat().st_size
            _format_of(path)
            return
        if not self._manifest.exists():
            raise FileNotFoundError(2, f"the folder has no {MANIFEST_FILE}: it is no export, or "
                                    "an unfinished one", str(path))  # fmt: skip
        self.totals = Totals()
        for line, _ in read_lines(self._manifest):
            self.totals.add(line)
        self.nbytes = self.totals.nbytes

    @property
    def identity(self) -> str:
        """Text by which the source is known again."""
        about = (self._manifest if self.totals is not None else self.path).stat()
        return f"{os.path.realpath(self.path)} {about.st_size} {about.st_mtime_ns}"

    def pieces(self) -> Iterator[tuple[dict[str, Any], list[dict[str, Any]]]]:
        """Yield each piece of the log with its files, by their first offsets."""
        if self.totals is None:
            yield {}, [{"path": ""}]
            return
        files: list[dict[str, Any]] = []
        for line, _ in read_lines(self._manifest):
            if line["kind"] == "file":
                files.append(line)
            elif line["kind"] == "piece":
                yield line, sorted(files, key=lambda file: (file["offsets"], file["path"]))
                files = []

    def check(self, progress: Callable[[int], None]) -> None:
        """Raise ``MappedFileError`` unless every file is the one that the manifest lists."""
        done = 0
        for _, files in self.pieces():
            for line in files:
                path = self.path / line["path"]
                if "sha256" not in line:
                    continue
                if not path.is_file():
                    raise MappedFileError(f"{path} is missing; the manifest lists it")
                digest = hashlib.sha256()
                with os.fdopen(open_regular_file(path, READ_ONLY, self.path), "rb") as file:
                    while chunk := file.read(_CHUNK):
                        digest.update(chunk)
                        done += len(chunk)
                        progress(done)
                if digest.hexdigest() != line["sha256"]:
                    raise MappedFileError(f"{path} was changed after it was exported")

    def rows(self, files: list[dict[str, Any]]) -> Iterator[Row]:
        """Yield the messages of the files; columns of folders included."""
        for line in files:
            known: Row = {name: line[name] for name in ("topic", "queueId") if name in line}
            path = self.path / line["path"] if line["path"] else self.path
            for row in read_rows(path):
                row.update(known)
                yield row


def read_rows(path: Path) -> Iterator[Row]:
    """Yield the messages of a file of an export.

    Raises
    ------
    MappedFileError
        The file is not what its name says; names line or row.
    """
    to = _format_of(path)
    root = path.parent
    with os.fdopen(open_regular_file(path, READ_ONLY, root), "rb") as file:
        try:
            if to in ("parquet", "arrow"):
                yield from _binary_rows(file, to)
            else:
                lines: Any = gzip.GzipFile(fileobj=file) if path.suffix == ".gz" else file
                yield from (_csv_rows if to == "csv" else _ndjson_rows)(lines)
        except (ValueError, KeyError, EOFError, csv.Error) as error:
            raise MappedFileError(f"{path}: {error}") from error


def _format_of(path: Path) -> str:
    names = path.name.removesuffix(".gz").rpartition(".")
    if names[2] not in ("parquet", "arrow", "ndjson", "csv"):
        raise MappedFileError(f"{path}: the name must end with .parquet, .arrow, .ndjson or .csv")
    return names[2]


def _binary_rows(file: IO[bytes], to: str) -> Iterator[Row]:
    import pyarrow as pa
    import pyarrow.parquet as pq

    if to == "parquet":
        # Buffered ahead, all row groups of a file would stay in memory.
        parquet = pq.ParquetFile(file, pre_buffer=False)
        batches = parquet.iter_batches(_ROWS, use_threads=False)
    else:
        reader = pa.ipc.open_file(file)
        batches = (reader.get_batch(number) for number in range(reader.num_record_batches))
    for batch in batches:
        yield from rows_of(batch)


def rows_of(batch: pyarrow.RecordBatch) -> Iterator[Row]:
    """Yield the messages of a record batch."""
    import pyarrow as pa

    columns = []
    for field, column in zip(batch.schema, batch.columns, strict=True):
        if pa.types.is_timestamp(field.type):
            is_exact = field.type.unit != "ns"  # else what is below microseconds goes
            values = column.cast(pa.timestamp("us", "UTC"), safe=is_exact).cast(pa.int64())
            values = values.to_pylist()
            values = [None if us is None else us // 1000 for us in values]
        else:
            values = column.to_pylist()
            if pa.types.is_map(field.type):
                values = [None if pairs is None else dict(pairs) for pairs in values]
            elif field.name in _BYTES:
                values = [one.encode() if isinstance(one, str) else one for one in values]
        columns.append(values)
    names = batch.schema.names
    for values in zip(*columns, strict=True):
        yield dict(zip(names, values, strict=True))


def _ndjson_rows(file: IO[bytes]) -> Iterator[Row]:
    for number, line in enumerate(file, 1):
        if not line.strip():
            continue
        try:
            row = json.loads(line)
            if not isinstance(row, dict):
                raise ValueError("not a JSON object")
            yield _with_bytes(row)
        except ValueError as error:
            raise ValueError(f"line {number}: {error}") from None


def _csv_rows(file: IO[bytes]) -> Iterator[Row]:
    csv.field_size_limit(1 << 30)
    reader = csv.DictReader(io.TextIOWrapper(file, "utf-8", newline=""), strict=True)
    if not any(name.removesuffix(BASE64) in COLUMNS for name in reader.fieldnames or ("body",)):
        raise ValueError("line 1: the first line must name the columns, such as topic and body")
    for line in reader:
        try:
            row: Row = {}
            for name, text in line.items():
                if name is None or text is None:
                    raise ValueError("it has another number of values than the first line")
                if name in _INTEGERS:
                    row[name] = int(text) if text else None
                elif name == "properties":
                    row[name] = json.loads(text) if text else None
                elif name.removesuffix(BASE64) in _BYTES or text:
                    row[name] = text
                else:
                    row[name] = None
            for name in _BYTES:
                # Of the two columns of a body, one is empty.
                if row.get(name + BASE64) == "":
                    del row[name + BASE64]
                elif name + BASE64 in row and row.get(name) == "":
                    del row[name]
            yield _with_bytes(row)
        except ValueError as error:
            raise ValueError(f"line {reader.line_num}: {error}") from None


def _with_bytes(row: Row) -> Row:
    for name in _BYTES:
        coded = row.pop(name + BASE64, None)
        if coded is not None and row.get(name) is not None:
            raise ValueError(f"it has both {name} and {name}{BASE64}")
        if coded is not None:
            row[name] = base64.b64decode(coded, validate=True)
        elif isinstance(row.get(name), str):
            row[name] = row[name].encode("utf-8")
    return row
