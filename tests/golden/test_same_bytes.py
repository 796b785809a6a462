"""RocketMQ's recorded writes, put again with its clock, give the same bytes and the same
answers."""

from __future__ import annotations

import base64
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

import rocketstore
from directory import files_below
from golden import golden_stores
from rocketstore import Message, MessageBatch


class RecordedClock:
    """Gives the store time that RocketMQ recorded for the operation under way."""

    def __init__(self) -> None:
        self.now = 0

    def __call__(self) -> int:
        return self.now


def options_of(name: str) -> dict[str, Any]:
    about = golden_stores.about(name)
    geometry = golden_stores.geometry(name)
    return {
        "broker_version": about["rocketmq"],
        "mapped_file_size_commit_log": geometry.commit_log_nbytes,
        "mapped_file_size_consume_queue": geometry.consume_queue_nbytes,
        "max_hash_slot_num": geometry.slots,
        "max_index_num": geometry.entries,
        "max_message_size": int(about["config"]["maxMessageSize"]),
        "store_host": "10.9.8.7:10911",
    }


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


def replay(
    store: rocketstore.DefaultMessageStore, name: str, clock: RecordedClock
) -> Iterator[tuple[dict[str, Any], Any]]:
    """Put every recorded write; yield RocketMQ's answer and ours."""
    for step in golden_stores.writes(name):
        clock.now = step.answer.get("storeTs", clock.now)
        if step.op == "put":
            yield step.answer, store.put_message(message_of(step.ask))
        elif step.op == "batch":
            yield step.answer, store.put_messages(batch_of(step.ask))


@pytest.mark.parametrize("name", golden_stores.names("plain-"))
def test_recorded_writes_give_the_same_store(name: str, tmp_path: Path) -> None:
    original = golden_stores.unpack(name, tmp_path / "original")
    root, clock = tmp_path / "ours", RecordedClock()
    with rocketstore.open(root, "x", clock=clock, **options_of(name)) as store:
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
        assert store.wait_dispatched(30)
    assert count > 200
    for part in ("commitlog", "consumequeue"):
        ours, theirs = files_below(root / part), files_below(original / part)
        assert sorted(ours) == sorted(theirs)
        assert [n for n in ours if ours[n] != theirs[n]] == []
    ours = list(files_below(root / "index").values())
    assert ours == list(files_below(original / "index").values())
