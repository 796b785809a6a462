"""RocketMQ's recorded writes, put again with its clock, give the same bytes and the same
answers."""

from __future__ import annotations

import base64
import struct
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

import rocketstore
from golden import golden_stores
from rocketstore import Message, MessageBatch, MessageStoreConfig, formats
from rocketstore._reference import put_arguments
from support.directory import files_below

#: Sizes and switches of the recorded configuration that are options of ours.
REPLAYED = (
    "maxMessageSize",
    "enabledAppendPropCRC",
    "forceVerifyPropCRC",
    "enableLmq",
    "enableMultiDispatch",
    "enableConsumeQueueExt",
    "mappedFileSizeConsumeQueueExt",
    "mapperFileSizeBatchConsumeQueue",
)

#: Born time of what the recording program gave none.
FIRST_BORN = 1_700_000_000_000


class RecordedClock:
    """Gives the store time that RocketMQ recorded for the operation under way."""

    def __init__(self) -> None:
        self.now = 0

    def __call__(self) -> int:
        return self.now


def config_of(name: str) -> MessageStoreConfig:
    about = golden_stores.about(name)
    geometry = golden_stores.geometry(name)
    known = {key: value for key, value in about["config"].items() if key in REPLAYED}
    return MessageStoreConfig.from_properties(known).replace(
        broker_version=about["rocketmq"],
        mapped_file_size_commit_log=geometry.commit_log_nbytes,
        mapped_file_size_consume_queue=geometry.consume_queue_nbytes,
        max_hash_slot_num=geometry.slots,
        max_index_num=geometry.entries,
        store_host="10.9.8.7:10911",
        topic_attributes=about.get("topics", {}),
    )


def host(text: str | None) -> str | None:
    """A host as Java prints it, with brackets around an IPv6 address."""
    if text is None or text.startswith("[") or text.count(":") == 1:
        return text
    address, port = text.rsplit(":", 1)
    return f"[{address}]:{port}"


def message_of(ask: dict[str, Any]) -> Message:
    return Message(
        ask["topic"],
        base64.b64decode(ask["body"]),
        queue_id=ask["queueId"],
        flag=ask["flag"],
        sys_flag=ask.get("sysFlag", 0),
        born_timestamp=ask["bornTs"],
        born_host=host(ask["bornHost"]),
        store_host=host(ask.get("storeHost")),
        reconsume_times=ask["reconsume"],
        prepared_transaction_offset=ask.get("prepared", 0),
        properties=ask["props"],
    )


def batch_of(ask: dict[str, Any]) -> MessageBatch:
    messages = [
        Message(
            ask["topic"],
            base64.b64decode(item["body"]),
            flag=item["flag"],
            properties=item["props"],
        )
        for item in ask["messages"]
    ]
    return MessageBatch(
        messages,
        topic=ask["topic"],
        queue_id=ask["queueId"],
        properties=ask["props"],
        born_timestamp=ask["bornTs"],
        born_host=host(ask.get("bornHost")) or "10.1.2.3:4567",
        store_host=host(ask.get("storeHost")),
        sys_flag=ask.get("sysFlag", 0),
    )


def inner_batch_of(ask: dict[str, Any]) -> Message:
    """The one message that a broker makes of a batch for a topic with batch queues."""
    body = b""
    for item in ask["messages"]:
        content = base64.b64decode(item["body"])
        properties = put_arguments.encode(item["props"], trailing_separator=True)
        nbytes = formats.BATCH_ITEM_HEAD.nbytes + len(content) + 2 + len(properties)
        body += formats.BATCH_ITEM_HEAD.struct.pack(nbytes, 0, 0, item.get("flag", 0), len(content))
        body += content + struct.pack(">h", len(properties)) + properties
    return Message(
        ask["topic"],
        body,
        queue_id=ask["queueId"],
        sys_flag=ask["sysFlag"],
        born_timestamp=ask.get("bornTs", FIRST_BORN),
        born_host=host(ask.get("bornHost")) or "10.1.2.3:4567",
        store_host=host(ask.get("storeHost")),
        properties=ask["props"],
    )


def replay(
    store: rocketstore.DefaultMessageStore, name: str, clock: RecordedClock
) -> Iterator[tuple[dict[str, Any], Any]]:
    """Put every recorded write; yield RocketMQ's answer and ours."""
    for step in golden_stores.writes(name):
        clock.now = step.answer.get("storeTs", clock.now)
        if step.op == "put":
            yield step.answer, store.put_message(message_of(step.ask))
        elif step.op == "batch" and step.ask.get("inner"):
            yield step.answer, store.put_message(inner_batch_of(step.ask))
        elif step.op == "batch":
            yield step.answer, store.put_messages(batch_of(step.ask))


@pytest.mark.parametrize("name", golden_stores.names("plain-", "ext-", "lmq-", "crc-", "inner-"))
def test_recorded_writes_give_the_same_store(name: str, tmp_path: Path) -> None:
    original = golden_stores.unpack(name, tmp_path / "original")
    root, clock = tmp_path / "ours", RecordedClock()
    with rocketstore.open(root, "x", clock=clock, config=config_of(name)) as store:
        count = 0
        for expected, actual in replay(store, name, clock):
            count += 1
            assert actual.status.name == expected["status"]
            assert actual.physical_offset == expected.get("offset")
            if actual.appended:
                assert actual.nbytes == expected["bytes"]
                assert actual.queue_offset == expected["queueOffset"]
                assert actual.store_timestamp == expected["storeTs"]
                assert actual.msg_id == expected["msgId"]
        assert store.wait_dispatched(120)
    assert count > 100
    for part in ("commitlog", "consumequeue", "consumequeue_ext", "batchconsumequeue"):
        ours, theirs = files_below(root / part), files_below(original / part)
        assert sorted(ours) == sorted(theirs)
        assert [n for n in ours if ours[n] != theirs[n]] == []
    ours = list(files_below(root / "index").values())
    assert ours == list(files_below(original / "index").values())
