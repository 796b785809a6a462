"""Rows of record batches as text: NDJSON and CSV, with the names and values of every export."""

from __future__ import annotations

import base64
import io
import json
from collections.abc import Iterator, Sequence
from typing import TYPE_CHECKING, Any

from rocketstore.display.csv_lines import CsvLines, csv_cell

if TYPE_CHECKING:
    import pyarrow

#: Appended to the name of a column whose bytes are not UTF-8.
BASE64 = "Base64"
#: Never text.
_ALWAYS_BASE64 = frozenset(("raw",))


def text_names(schema: pyarrow.Schema) -> list[str]:
    """Return the names of the columns in CSV: bytes have two, of which one is filled."""
    import pyarrow as pa

    names = []
    for field in schema:
        names.append(field.name)
        if pa.types.is_binary(field.type):
            if field.name in _ALWAYS_BASE64:
                names.pop()
            names.append(field.name + BASE64)
    return names


def documents(batch: pyarrow.RecordBatch) -> Iterator[dict[str, Any]]:
    """Yield the rows as JSON: times in epoch ms, bytes as UTF-8 text or in base 64."""
    import pyarrow as pa

    columns: list[tuple[str, list[Any], bool]] = []
    for field, column in zip(batch.schema, batch.columns, strict=True):
        if pa.types.is_timestamp(field.type):
            values = [None if us is None else us // 1000
                      for us in column.cast(pa.int64()).to_pylist()]  # fmt: skip
        elif pa.types.is_map(field.type):
            values = [None if pairs is None else dict(pairs) for pairs in column.to_pylist()]
        elif pa.types.is_list(field.type):
            values = [None if some is None else [_header(one) for one in some]
                      for some in column.to_pylist()]  # fmt: skip
        else:
            values = column.to_pylist()
        columns.append((field.name, values, pa.types.is_binary(field.type)))
    for number in range(batch.num_rows):
        row: dict[str, Any] = {}
        for name, values, is_bytes in columns:
            value = values[number]
            if is_bytes and value is not None:
                row.update([_bytes(name, value)])
            else:
                row[name] = value
        yield row


def _bytes(name: str, value: bytes) -> tuple[str, str]:
    if name not in _ALWAYS_BASE64:
        try:
            return name, value.decode("utf-8")
        except UnicodeDecodeError:
            pass
    return name + BASE64, base64.b64encode(value).decode("ascii")


def _header(header: dict[str, Any]) -> dict[str, Any]:
    return dict([("key", header["key"]), _bytes("value", header["value"])])


def ndjson(batch: pyarrow.RecordBatch) -> bytes:
    """Return the rows as lines of JSON."""
    lines = (json.dumps(row, ensure_ascii=False, separators=(",", ":")) for row in documents(batch))
    return "".join(f"{line}\n" for line in lines).encode()


def csv_lines(batch: pyarrow.RecordBatch) -> bytes:
    """Return the rows as CSV, without the names; maps and lists are JSON."""
    names = text_names(batch.schema)
    text = io.StringIO()
    lines = CsvLines(text.write)
    for row in documents(batch):
        lines.row([csv_cell(row.get(name)) for name in names])
    return text.getvalue().encode()


def csv_head(names: Sequence[str]) -> bytes:
    """Return the line with the names of the columns."""
    text = io.StringIO()
    CsvLines(text.write).row(names)
    return text.getvalue().encode()
