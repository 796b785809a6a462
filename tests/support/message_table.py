"""What ``store.scan`` yields, as an Arrow table: what every other way of reading is compared to."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence
from pathlib import Path
from typing import Any

import pyarrow as pa

import rocketstore
from rocketstore.arrow.columns import arrow_schema

#: Column to a message's value of it; times in microseconds.
FIELDS: dict[str, Callable[[rocketstore.StoredMessage], Any]] = {
    "topic": lambda m: m.topic,
    "queueId": lambda m: m.queue_id,
    "queueOffset": lambda m: m.queue_offset,
    "physicalOffset": lambda m: m.physical_offset,
    "tags": lambda m: m.tags,
    "keys": lambda m: m.keys,
    "body": lambda m: m.body,
    "storeTimestamp": lambda m: m.store_timestamp * 1000,
    "bornTimestamp": lambda m: m.born_timestamp * 1000,
    "properties": lambda m: list(m.properties.items()),
    "flag": lambda m: m.flag,
    "sysFlag": lambda m: m.sys_flag,
    "reconsumeTimes": lambda m: m.reconsume_times,
    "storeSize": lambda m: m.store_size,
    "bodyCRC": lambda m: m.body_crc,
    "bornHost": lambda m: m.born_host,
    "storeHost": lambda m: m.store_host,
    "uniqKey": lambda m: m.unique_key,
    "offsetMsgId": lambda m: m.msg_id,
    "preparedTransactionOffset": lambda m: m.prepared_transaction_offset,
    "bodySize": lambda m: len(m.body),
    "raw": lambda m: bytes(m.raw),
    "key": lambda m: None if m.keys is None else m.keys.encode(),
    "value": lambda m: m.body,
    "partition": lambda m: m.queue_id,
    "offset": lambda m: m.queue_offset,
    "timestamp": lambda m: m.store_timestamp * 1000,
    "timestampType": lambda m: 1,
    "headers": lambda m: [{"key": k, "value": v.encode()} for k, v in m.properties.items()],
}
#: Every column but Kafka's names.
ALL = (*FIELDS,)[:22]


def table_of(messages: Iterable[rocketstore.StoredMessage], names: Sequence[str]) -> pa.Table:
    """The table of messages, in their order."""
    found = list(messages)
    schema = arrow_schema(names)
    arrays = [pa.array(map(FIELDS[f.name], found), f.type, size=len(found)) for f in schema]
    return pa.Table.from_arrays(arrays, schema=schema)


def scanned(root: Path, names: Sequence[str], **arguments: Any) -> pa.Table:
    """The table of what ``store.scan`` yields."""
    with rocketstore.open(root) as store:
        return table_of(store.scan(**arguments), names)
