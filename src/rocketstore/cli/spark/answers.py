"""Print the answers of Spark jobs."""

from __future__ import annotations

from typing import Any

from rocketstore.cli.common.output import Format, Rows, chosen
from rocketstore.cli.common.table import Table

_TEXTS = frozenset(("string", "timestamp", "timestamp_ntz", "date", "boolean"))


def print_frame(frame: Any, form: Format | None) -> int:
    """Write the rows of a small DataFrame; return their number."""
    names = list(frame.columns)
    numbers = [name for name, kind in frame.dtypes if kind not in _TEXTS]
    rows = frame.collect()
    shrink = [name for name in ("reason", "path") if name in names]
    table = Table(names, right=numbers, shrink=shrink)
    with Rows(chosen(form), names, table=table, row=tuple, document=_document) as out:
        for row in rows:
            out.write(row)
    return len(rows)


def _document(row: Any) -> dict[str, Any]:
    return {name: _plain(value) for name, value in row.asDict().items()}


def _plain(value: Any) -> Any:
    """Convert a value for JSON: times become epoch milliseconds."""
    import datetime

    if isinstance(value, datetime.datetime):
        return round(value.timestamp() * 1000)
    if isinstance(value, datetime.date):
        return value.isoformat()
    return value
