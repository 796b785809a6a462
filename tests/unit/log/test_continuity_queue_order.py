"""Gaps and repeats of queue offsets: searched in whole batches, reported record by record."""

from __future__ import annotations

import os
import random
from pathlib import Path
from typing import Any

import pytest

import rocketstore
from rocketstore import Message, formats
from rocketstore.log import continuity as queue_continuity
from rocketstore.log.scan import RecordBatch
from support.kernel_bodies import NATIVE, REFERENCE, Bodies

SMALL: dict[str, Any] = {"mapped_file_size_commit_log": 64 * 1024, "start": False}
TOPICS = ("T", "U", "Longer-Topic", "%RETRY%g")


def fill(root: Path, choose: random.Random) -> None:
    with rocketstore.open(root, "x", message_index_enable=False, **SMALL) as store:
        for number in range(2500):
            flag = choose.choice((0, 0, 0, 0, 4, 8, 12))
            topic = choose.choice(TOPICS)
            store.put_message(
                Message(topic, b"%d" % number, queue_id=choose.choice((0, 1, 256)), sys_flag=flag)
            )


def spoil(root: Path, choose: random.Random) -> None:
    """Change the queue offset of a few records, or call one an inner batch."""
    with rocketstore.open(root) as store:
        messages = [m.detach() for m in store.scan()]
    for message in choose.sample(messages, 3):
        base = (
            message.physical_offset - message.physical_offset % SMALL["mapped_file_size_commit_log"]
        )
        path = root / "commitlog" / formats.offset_to_file_name(base)
        place = message.physical_offset - base
        data = bytearray(path.read_bytes())
        if choose.random() < 0.2:
            at = place + formats.RECORD_HEAD.at("sys_flag") + 3
            data[at] |= formats.SYS_FLAG_INNER_BATCH
        else:
            at = place + formats.RECORD_HEAD.at("queue_offset")
            changed = max(0, message.queue_offset + choose.choice((-2, -1, 1, 2, 1000)))
            data[at : at + 8] = changed.to_bytes(8, "big")
        path.write_bytes(data)


@pytest.mark.parametrize("seed", range(8))
def test_batches_and_records_report_the_same(
    seed: int, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    choose = random.Random(seed)
    fill(tmp_path / "s", choose)
    if seed:
        spoil(tmp_path / "s", choose)
    with rocketstore.open(tmp_path / "s", derive="none") as store:
        log = store.reader.log
        orders = []
        for follow in (RecordBatch.follow, lambda batch, offsets: False):
            monkeypatch.setattr(RecordBatch, "follow", follow)
            orders.append(
                queue_continuity.queue_order(queue_continuity.good_batches(log, 0, log.max_offset))
            )
    assert orders[0] == orders[1]
    assert bool(seed) or orders[0] == ([], [])


@pytest.mark.parametrize("body", [NATIVE, REFERENCE], ids=repr)
def test_a_batch_that_counts_on_is_taken_at_once(body: Bodies, tmp_path: Path) -> None:
    fill(tmp_path / "s", random.Random(0))
    with rocketstore.open(tmp_path / "s", derive="none") as store:
        log = store.reader.log
        offsets = body.passes_rows.QueueOffsets()
        for batch in queue_continuity.good_batches(log, 0, log.max_offset):
            assert batch.follow(offsets)
        assert offsets.ends() == {
            (topic, queue_id): store.max_offset_in_queue(topic, queue_id)
            for topic in TOPICS
            for queue_id in (0, 1, 256)
        }


def test_a_file_that_is_cut_meanwhile_is_named(tmp_path: Path) -> None:
    fill(tmp_path / "s", random.Random(0))
    with rocketstore.open(tmp_path / "s", derive="none") as store:
        log = store.reader.log
        batch = next(queue_continuity.good_batches(log, 0, log.max_offset))
        path = tmp_path / "s" / "commitlog" / formats.offset_to_file_name(0)
        os.truncate(path, 0)
        with pytest.raises(OSError, match="the mapped file was shortened") as caught:
            batch.follow(NATIVE.passes_rows.QueueOffsets())
        assert caught.value.filename == str(path)
