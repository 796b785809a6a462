"""What must hold for a store with a damaged or an odd record."""

from __future__ import annotations

import shutil
from typing import Any

import pytest

import rocketstore
from corruption import crafted
from corruption.crafted import Crafted, Record, body_crc, snapshot
from rocketstore import CorruptionError, CorruptMessageError, formats

#: For opening a store that has neither queues nor index nor state file.
GEOMETRY = {
    name: crafted.OPTIONS[name]
    for name in ("mapped_file_size_consume_queue", "max_hash_slot_num", "max_index_num")
}


def of_kind(records: list[Record], kind: int, segment: int) -> Record:
    """The first record of a kind in a segment that has neighbours there."""
    inside = [r for r in records if r.offset // crafted.SEGMENT == segment][1:-1]
    return next(r for r in inside if r.key and int(r.key[1:]) % 8 == kind)


def check_truncated(store: Crafted, target: Record, following: list[Record]) -> None:
    """Open for writing: the log ends at ``target``, and goes on from there."""
    good = [r.raw for r in store.records if r.offset < target.offset]
    before = snapshot(store.root)
    with rocketstore.open(store.root, "r") as reader:
        assert reader.max_physical_offset == target.offset
        assert [bytes(m.raw) for m in reader.scan()] == good
        messages, errors = crafted.pull_all(reader)
        assert (crafted.in_log_order(messages), errors) == (good, [])
        assert reader.look_message_by_offset(target.offset) is None
        assert list(reader.find(topic=target.topic, key=target.key)) == []
    assert snapshot(store.root) == before

    with rocketstore.open(store.root, "r+", clock=crafted.Clock(crafted.TIME + 10**6)) as writer:
        report = writer.recovery_report
        assert not report.damaged
        assert report.log_end == writer.max_physical_offset == target.offset
        assert report.cut[0].start == target.offset
        assert report.cut[0].path == str(store.segment(target.offset))
        assert report.cut[0].nbytes > 0
        assert str(target.offset) in report.cut[0].reason
        assert crafted.content_after(store.root, target.offset, store.segment_size) == b""
        kept = crafted.quarantined(store.root)
        for record in following:
            assert record.raw in kept
        assert kept.strip(b"\0")
        assert all(part.quarantined for part in report.cut)
        result = writer.put(target.topic, b"again", target.queue_id, None, "after")
        assert (result.physical_offset, result.queue_offset) == (
            target.offset,
            target.queue_offset,
        )
    with rocketstore.open(store.root, "r+") as writer:
        assert not writer.recovery_report.cut
        raws = [bytes(m.raw) for m in writer.scan()]
        assert raws[:-1] == good
        assert [m.body for m in writer.find(topic=target.topic, key="after")] == [b"again"]
        messages, errors = crafted.pull_all(writer)
        assert (crafted.in_log_order(messages), errors) == (raws, [])
        verified = writer.verify()
        assert verified.ok, verified.findings
    for path in store.segments():
        assert path.stat().st_size == store.segment_size


def check_damaged(store: Crafted, target: Record, lost: int = 1) -> None:
    """Refused for writing without a change; readable but for the damaged record."""
    before = snapshot(store.root)
    with pytest.raises(CorruptionError) as caught:
        rocketstore.open(store.root, "r+")
    assert caught.value.path == str(store.segment(target.offset))
    assert caught.value.position == target.offset % store.segment_size
    assert str(target.offset) in str(caught.value)
    assert snapshot(store.root) == before

    good = [r for r in store.records if r.offset != target.offset]
    raws = [r.raw for r in good]
    with rocketstore.open(store.root, "r") as reader:
        (damaged,) = reader.recovery_report.damaged
        assert (damaged.start, damaged.path) == (target.offset, caught.value.path)
        assert [bytes(m.raw) for m in reader.scan(on_corruption="skip")] == raws
        with pytest.raises(CorruptMessageError, match=str(target.offset)):
            list(reader.scan())
        stopped = list(reader.scan(on_corruption="stop"))
        assert [m.physical_offset for m in stopped] == [
            r.offset for r in good if r.offset < target.offset
        ]
        with pytest.raises(CorruptMessageError, match=str(target.offset)):
            reader.look_message_by_offset(target.offset)
        for record in good:
            message = reader.look_message_by_offset(record.offset)
            assert message is not None
            assert bytes(message.raw) == record.raw
        messages, errors = crafted.pull_all(reader)
        assert crafted.in_log_order(messages) == raws
        assert len(errors) == lost
        assert all(error.position == caught.value.position for error in errors)
    assert snapshot(store.root) == before


def both_modes(store: Crafted) -> tuple[Any, Any]:
    """Reports of opening for reading and for writing; both must show the same messages."""
    with rocketstore.open(store.root, "r", **GEOMETRY) as reader:
        shown = [bytes(m.raw) for m in reader.scan()]
        first = reader.recovery_report
    with rocketstore.open(store.root, "r+", **GEOMETRY) as writer:
        assert [bytes(m.raw) for m in writer.scan()] == shown
        return first, writer.recovery_report


def rebuild_queues(store: Crafted) -> None:
    """Let queues and index be made from the log again."""
    shutil.rmtree(store.root / "consumequeue")
    shutil.rmtree(store.root / "index")
    (store.root / "rocketstore.state").unlink()


def with_properties(record: Record, properties: bytes, topic: bytes | None = None) -> bytes:
    """The record with other properties, as long as before: its body grows or shrinks."""
    name = topic if topic is not None else record.topic.encode()
    width = record.topic_length_nbytes
    room = record.size - record.body_at - width - len(name) - 2 - len(properties)
    assert room >= 0
    body = bytes(i % 250 for i in range(room))
    raw = record.raw[: record.body_at - 4] + room.to_bytes(4, "big") + body
    raw += len(name).to_bytes(width, "big") + name
    raw += len(properties).to_bytes(2, "big") + properties
    assert len(raw) == record.size
    at = formats.RECORD_HEAD.at("body_crc")
    return raw[:at] + body_crc(body).to_bytes(4, "big") + raw[at + 4 :]


def rebuild_state(store: Crafted, mark: str, offset: int) -> None:
    store.set_mark(mark, offset)
    store.crashed()
