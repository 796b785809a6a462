"""The columns in which messages are shown as tables: names, formats, presets. Facts only."""

from __future__ import annotations

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
