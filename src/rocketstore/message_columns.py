"""The columns in which messages are shown as tables: names, formats, presets."""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING, Protocol

if TYPE_CHECKING:
    import pyarrow

#: Column name to the format string of the Arrow C data interface.
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
    # As Kafka's source calls them; ``topic`` is the same.
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
#: Preset to its columns, and to the column that holds the properties in its manner.
PRESETS: dict[str, tuple[str, ...]] = {"core": CORE, "full": FULL, "kafka": KAFKA}
PROPERTIES_COLUMN = {"core": "properties", "full": "properties", "kafka": "headers"}
#: What ``timestampType`` says of every row: the time at which the log took the message.
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
    """A record batch by the Arrow PyCapsule interface: a struct array without nulls of its own."""

    def __arrow_c_array__(self, requested_schema: object | None = None) -> tuple[object, object]:
        """Schema and array as PyCapsules."""

    def __len__(self) -> int:
        """Rows."""


class ExportsSchema(Protocol):
    """A schema by the Arrow PyCapsule interface: that of a struct."""

    def __arrow_c_schema__(self) -> object:
        """The schema as a PyCapsule."""
