"""Columns of message tables: names, Arrow formats, presets."""

from __future__ import annotations

import difflib
from collections.abc import Sequence
from typing import TYPE_CHECKING, Protocol

if TYPE_CHECKING:
    import pyarrow

#: Format string of the Arrow C data interface, by column name.
COLUMNS: dict[str, str] = {
    "topic": "u",
    "queueId": "i",
    "queueOffset": "l",
    "physicalOffset": "l",
    "tags": "u",
    "keys": "u",
    "body": "z",
    "storeTimestamp": "tsu:UTC",
    "bornTimestamp": "tsu:UTC",
    "properties": "+m",
    "flag": "i",
    "sysFlag": "i",
    "reconsumeTimes": "i",
    "storeSize": "i",
    "bodyCRC": "i",
    "bornHost": "u",
    "storeHost": "u",
    "uniqKey": "u",
    "offsetMsgId": "u",
    "preparedTransactionOffset": "l",
    "bodySize": "i",
    "raw": "z",
    # The names in Kafka's source; ``topic`` is the same.
    "key": "z",
    "value": "z",
    "partition": "i",
    "offset": "l",
    "timestamp": "tsu:UTC",
    "timestampType": "i",
    "headers": "+l",
}
CORE = (
    *("topic", "queueId", "queueOffset", "physicalOffset", "tags", "keys", "body"),
    *("storeTimestamp", "bornTimestamp"),
)
FULL = (
    *CORE,
    *("properties", "flag", "sysFlag", "reconsumeTimes", "storeSize", "bodyCRC"),
    *("bornHost", "storeHost", "uniqKey", "offsetMsgId", "preparedTransactionOffset"),
)
KAFKA = ("key", "value", "topic", "partition", "offset", "timestamp", "timestampType")
#: Columns of each preset, and the name of its properties column.
PRESETS: dict[str, tuple[str, ...]] = {"core": CORE, "full": FULL, "kafka": KAFKA}
PROPERTIES_COLUMN = {"core": "properties", "full": "properties", "kafka": "headers"}
#: ``timestampType`` of every row: the time is the log append time.
LOG_APPEND_TIME = 1


def arrow_schema(names: Sequence[str]) -> pyarrow.Schema:
    """Return the Arrow schema of columns by name; every field may be null."""
    import pyarrow as pa

    header = pa.struct([pa.field("key", pa.string()), pa.field("value", pa.binary())])
    types = {
        "i": pa.int32(),
        "l": pa.int64(),
        "tsu:UTC": pa.timestamp("us", tz="UTC"),
        "u": pa.string(),
        "z": pa.binary(),
        "+m": pa.map_(pa.string(), pa.string()),
        "+l": pa.list_(pa.field("element", header)),
    }
    return pa.schema([pa.field(name, types[COLUMNS[name]]) for name in names])


class ExportsArray(Protocol):
    """A record batch in the Arrow PyCapsule interface: a struct array without top-level nulls."""

    def __arrow_c_array__(self, requested_schema: object | None = None) -> tuple[object, object]:
        """Return schema and array as PyCapsules."""

    def __len__(self) -> int:
        """Rows."""


class ExportsSchema(Protocol):
    """A schema in the Arrow PyCapsule interface: that of a struct."""

    def __arrow_c_schema__(self) -> object:
        """Return the schema as a PyCapsule."""


def resolve(columns: str | Sequence[str], *, include_properties: bool = False) -> list[str]:
    """Return the column names for a preset or a list of names.

    Parameters
    ----------
    columns : str or sequence of str
        ``"core"``, ``"full"`` or ``"kafka"``, or names of columns: a sequence, or one string
        separated by commas.
    include_properties : bool
        Add ``properties`` (``headers`` for ``"kafka"``) if it is missing.

    Raises
    ------
    ValueError
        For an unknown name (the message suggests the nearest), a name given twice, or no name.
    TypeError
        For anything other than strings.
    """
    if isinstance(columns, str):
        preset = columns.strip().lower()
        if preset in PRESETS:
            names = list(PRESETS[preset])
            return _with(names, PROPERTIES_COLUMN[preset]) if include_properties else names
        names = [name.strip() for name in columns.split(",")]
    else:
        names = list(columns)
    for name in names:
        if not isinstance(name, str):
            raise TypeError(f"columns must be str or a sequence of str, not {type(name).__name__}")
        if name not in COLUMNS:
            raise ValueError(_unknown(name))
    twice = next((name for name in names if names.count(name) > 1), None)
    if twice is not None:
        raise ValueError(f"column {twice!r} is given twice")
    if not names:
        raise ValueError("no column is given")
    return _with(names, "properties") if include_properties else names


def _with(names: list[str], further: str) -> list[str]:
    return names if further in names else [*names, further]


def _unknown(name: str) -> str:
    if name.lower() in PRESETS:
        return f"{name!r} is a preset, not a column; use it alone"
    known = [*COLUMNS, *PRESETS]
    by_case = {word.lower(): word for word in known}
    near = difflib.get_close_matches(name.strip().lower(), list(by_case), n=1)
    hint = f"; did you mean {by_case[near[0]]!r}?" if near else f"; there are {', '.join(known)}"
    return f"there is no column {name!r}{hint}"
