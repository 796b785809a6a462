"""What a salvage left, and what points past a log's end, is counted and named."""

from __future__ import annotations

import random
from pathlib import Path
from typing import Any

import pytest

import rocketstore
from crash import salvaging
from golden import golden_stores
from rocketstore.survey.pointers import pointers_past_end
from rocketstore.survey.salvage_traces import find_traces, quarantined_files


@pytest.mark.parametrize("damage", [salvaging.missing, salvaging.garbage, salvaging.many_records])
def test_what_a_salvage_left_is_found(damage: Any, tmp_path: Path) -> None:
    """Only the folder ``quarantine`` showed that a salvage had run."""
    root = tmp_path / "store"
    rows = salvaging.write(root, 3)
    with rocketstore.open(root) as store:
        assert not find_traces(store.reader.log)
    assert quarantined_files(root) == []
    damage(root, rows, random.Random(4))
    report = rocketstore.salvage(root)
    with rocketstore.open(root) as store:
        traces = find_traces(store.reader.log)
    by_topic: dict[str, int] = {}
    for place in report.placeholders:
        by_topic[place.topic] = by_topic.get(place.topic, 0) + 1
    found = {topic: one.count for topic, one in traces.placeholders.items()}
    # A placeholder in the broker's own topic needs more room, which its mark may lack.
    assert found.pop("SCHEDULE_TOPIC_XXXX", 0) <= by_topic.pop("SCHEDULE_TOPIC_XXXX", 0)
    assert found == by_topic
    assert all(0 < one.oldest <= one.newest for one in traces.placeholders.values())
    assert (traces.fillers > 0) is (damage is not salvaging.missing)
    assert traces.filler_nbytes < report.lost_nbytes
    kept = quarantined_files(root)
    olds = {segment.quarantined for segment in report.segments} - {None}
    assert {one.path for one in kept} == olds | set(report.moved)
    assert all(one.timestamp > 1_600_000_000_000 for one in kept)
    assert all(one.nbytes >= salvaging.SEGMENT_NBYTES // 2 for one in kept)


@pytest.mark.parametrize("name", ["plain-5.3.3", "plain-4.9.8", "inner-5.3.3", "lmq-5.3.3"])
def test_units_and_keys_past_an_end_are_counted(name: str, tmp_path: Path) -> None:
    """The end of a log was truncated, and nothing said how many messages had been there."""
    root = golden_stores.unpack(name, tmp_path)
    with rocketstore.open(root) as store:
        rows = [(m.physical_offset, m.sys_flag & 12) for m in store.scan()]
        queued = [offset for offset, kind in rows if kind in (0, 8)]
        end = rows[len(rows) * 2 // 3][0]
        queues, index = store.reader.queues, store.reader.index
        assert not pointers_past_end(store.max_physical_offset, queues, index)
        found = pointers_past_end(end, queues, index)
    assert found.last_offset >= queued[-1]  # a prepared record has keys and no unit
    gone = sum(offset >= end for offset in queued)
    # Inner batches hold several messages.
    assert found.message_count > gone if name == "inner-5.3.3" else found.message_count == gone
    assert found.keys >= found.keyed_records > 0
    assert f"at least {found.message_count} messages past log offset {end} are lost" in str(found)
