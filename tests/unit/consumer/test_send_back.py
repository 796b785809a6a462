"""What is written when a consumer gives messages of inner batches back."""

from __future__ import annotations

from pathlib import Path

import pytest

import rocketstore
from golden import golden_stores
from rocketstore import formats
from rocketstore.query.queue_records import unpacked

INNER = formats.SYS_FLAG_INNER_BATCH | formats.SYS_FLAG_NEED_UNWRAP


@pytest.mark.parametrize("gives_up", [False, True], ids=["retry", "dead"])
def test_each_message_of_an_inner_batch_is_sent_back(tmp_path: Path, gives_up: bool) -> None:
    root = golden_stores.unpack("inner-5.3.3", tmp_path)
    with rocketstore.open(root, "r+", schedule_message_enable=False) as store:
        batches = [one for one in store.scan() if one.sys_flag & formats.SYS_FLAG_INNER_BATCH]
        topic = batches[0].topic
        with store.consumer("g", topic, ack="manual") as consumer:
            batch = next(
                one for one in consumer.poll() if one.sys_flag & formats.SYS_FLAG_INNER_BATCH
            )
            end = store.max_physical_offset
            if gives_up:
                consumer.dead(batch)
            else:
                consumer.retry(batch, 2)
        sent = list(store.scan(start=end))
        parts = unpacked(batch.raw, batch.physical_offset)
        assert parts is not None
        assert len(sent) == len(parts) == int(batch.properties["INNER_NUM"]) > 1
        for one, part in zip(sent, parts, strict=True):
            first = rocketstore.StoredMessage(part, 0, batch.physical_offset, 1 << 40)
            assert (one.body, one.flag, one.tags, one.keys) == (
                first.body, first.flag, first.tags, first.keys
            )  # fmt: skip
            assert one.sys_flag & INNER == 0
            assert one.properties["RETRY_TOPIC"] == topic
            assert one.properties.get("REAL_TOPIC") == (None if gives_up else "%RETRY%g")
            assert one.topic == ("%DLQ%g" if gives_up else "SCHEDULE_TOPIC_XXXX")
            assert one.reconsume_times == batch.reconsume_times + 1
        store.wait_dispatched()
        assert store.verify().ok
