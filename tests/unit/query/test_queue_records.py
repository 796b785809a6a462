"""``records="queues"``: what consumers see of a log, in every reader."""

from __future__ import annotations

import struct
from pathlib import Path
from typing import Any

import pytest

import rocketstore
from golden import golden_stores
from rocketstore import formats
from rocketstore.arrow import to_parquet
from rocketstore.errors import ConfigError, CorruptionError
from rocketstore.query.queue_records import QueueRecords
from rocketstore.spark.base.options import parse_read
from rocketstore.spark.reading.reader import plan, read_partition
from rocketstore.spark.stream.plan import StreamPlan
from support.command_line import lines, run

STORES = ("inner-5.3.3", "plain-5.3.3", "plain-4.9.8", "broker-5.3.3", "crc-5.3.3", "ext-4.9.8")
COLUMNS = ["topic", "queueId", "queueOffset", "physicalOffset", "tags", "keys", "body", "flag"]
PACKED = formats.SYS_FLAG_INNER_BATCH | formats.SYS_FLAG_NEED_UNWRAP


def in_queues(store: Any) -> list[tuple[str, int, int]]:
    """Topic, queue and queue offset of all that pulls give, batches counted by their messages."""
    found = []
    for topic in store.topics():
        for queue_id in store.queues(topic):
            offset = store.min_offset_in_queue(topic, queue_id)
            while offset < store.max_offset_in_queue(topic, queue_id):
                result = store.get_message("g", topic, queue_id, offset)
                for message in result.messages:
                    base, count = message.queue_offset, 1
                    if message.sys_flag & formats.SYS_FLAG_INNER_BATCH:
                        base = int(message.properties["INNER_BASE"])
                        count = int(message.properties["INNER_NUM"])
                    found += [(topic, queue_id, base + number) for number in range(count)]
                offset = result.next_begin_offset
    return sorted(found)


def rows_of(messages: Any) -> list[tuple[Any, ...]]:
    return [
        (
            m.topic, m.queue_id, m.queue_offset, m.physical_offset, m.tags, m.keys, m.body, m.flag
        )
        for m in messages
    ]  # fmt: skip


@pytest.mark.parametrize("name", STORES)
def test_all_readers_give_what_the_queues_hold(name: str, tmp_path: Path) -> None:
    root = golden_stores.unpack(name, tmp_path)
    with rocketstore.open(root) as store:
        expected = rows_of(store.scan(records="queues"))
        assert sorted(row[:3] for row in expected) == in_queues(store)
        log = sum(1 for _ in store.scan())
        if name not in ("broker-5.3.3",):
            assert log != len(expected)
        for rows in (1, 7, 8192):
            scan = store.scan_arrow(COLUMNS, records="queues", batch_rows=rows)
            assert [tuple(r.values()) for r in scan.read_all().to_pylist()] == expected
    for nbytes, rows in ((997, 2), (1 << 20, 8192)):
        reported = parse_read(
            {"path": str(root), "records": "queues", "maxPartitionBytes": str(nbytes),
             "batchRows": str(rows)}
        )  # fmt: skip
        found = [
            tuple(row.values())
            for split in plan(reported)
            for batch in read_partition(reported, COLUMNS, split)
            for row in batch.to_pylist()
        ]
        assert found == expected
    assert to_parquet(root, tmp_path / "out.parquet", records="queues") == len(expected)
    shown = lines(run("scan", root, "--records", "queues", "-q"))
    assert [row["queueOffset"] for row in shown] == [row[2] for row in expected]
    reported = parse_read({"path": str(root), "records": "queues", "startingOffsets": "earliest"})
    stream = StreamPlan(reported)
    at, streamed = stream.initial(), []
    while (end := stream.advance(at, max_records=5)).physical_offset > at.physical_offset:
        for split, _ in stream.splits(at, end):
            for batch in read_partition(stream.options, COLUMNS, split):
                streamed += [tuple(row.values()) for row in batch.to_pylist()]
        at = end
    assert streamed == expected


def packed(bodies: list[bytes], properties: bytes = b"TAGS\x01t\x02KEYS\x01k\x02") -> bytes:
    """A batch as a client of RocketMQ encodes it."""
    parts = []
    for number, body in enumerate(bodies):
        size = 22 + len(body) + len(properties)
        head = struct.pack(">iiiii", size, 0, 0, 40 + number, len(body))
        parts.append(head + body + struct.pack(">h", len(properties)) + properties)
    return b"".join(parts)


def store_of(root: Path, batches: list[tuple[bytes, int]]) -> Path:
    with rocketstore.open(
        root, "x", broker_version="5.3.3",
        topic_attributes={"B": {"queue.type": "BatchCQ"}},
    ) as store:  # fmt: skip
        for body, count in batches:
            assert store.put("P", b"plain").ok
            result = store.put(
                "B", body, sys_flag=PACKED, properties={"INNER_NUM": str(count)}, flag=1
            )
            assert result.ok
            half = store.put("P", b"half", sys_flag=formats.SYS_FLAG_TRANSACTION_PREPARED)
            assert half.ok
    return root


def test_messages_of_a_batch_have_their_own_fields(tmp_path: Path) -> None:
    bodies = [b"", b"one", b"x" * 1000]
    root = store_of(tmp_path / "s", [(packed(bodies), 3), (packed([b"four"]), 1)])
    with rocketstore.open(root) as store:
        whole = [m for m in store.scan() if m.topic == "B"]
        found = list(store.scan(records="queues"))
    assert [m.topic for m in found] == ["P", "B", "B", "B", "P", "B"]
    inner = [m for m in found if m.topic == "B"]
    assert [m.body for m in inner] == [*bodies, b"four"]
    assert [m.queue_offset for m in inner] == [0, 1, 2, 3]
    assert [m.flag for m in inner] == [40, 41, 42, 40]
    assert [(m.tags, m.keys) for m in inner] == [("t", "k")] * 4
    assert {m.physical_offset for m in inner} == {m.physical_offset for m in whole}
    assert {m.store_timestamp for m in inner} <= {m.store_timestamp for m in whole}
    assert {m.born_host for m in inner} == {m.born_host for m in whole}
    with pytest.raises(ValueError, match="not 'all'"):
        list(rocketstore.open(root).scan(records="all"))
    with pytest.raises(ConfigError, match="records is 'all'"):
        parse_read({"path": str(root), "records": "all"})


@pytest.mark.parametrize(
    "body",
    [
        packed([b"a", b"b"]),  # one too many
        packed([b"a"])[:-1],
        packed([b"a"]) + b"\0\0\0",
        b"no batch",
        struct.pack(">iiiii", 22, 0, 0, 0, -1) + b"\0\0",
        struct.pack(">iiiii", 2**31 - 1, 0, 0, 0, 0) + b"\0\0",
    ],
)
def test_a_body_that_is_no_batch_is_damage(body: bytes, tmp_path: Path) -> None:
    root = store_of(tmp_path / "s", [(packed([b"good"]), 1), (body, 1), (packed([b"last"]), 1)])
    with rocketstore.open(root) as store:
        for read in (
            lambda policy: [m.body for m in store.scan(records="queues", on_corruption=policy)],
            lambda policy: store.scan_arrow("body", records="queues", on_corruption=policy)
            .read_all()["body"].to_pylist(),
        ):  # fmt: skip
            good = [b"plain", b"good", b"plain"]
            assert read("skip") == [*good, b"plain", b"last"]
            assert read("stop") == good
            with pytest.raises(CorruptionError, match="0" * 20):
                read("fail")


class Plain:
    """A pass that reports that it is full after each record."""

    def __init__(self) -> None:
        self.places: list[int] = []

    def consume(
        self, window: Any, position: int, stop: int, base: int, end: int, limit: int, flags: int
    ) -> tuple[int, int]:
        from rocketstore import kernels

        if position >= stop or base + position >= limit:
            return 3, position
        status, size = kernels.message.check_record(window, position, stop, base, end, flags)
        if status:
            return status, position
        self.places.append(base + position)
        return 64, position + size


def test_a_pass_that_is_full_again_and_again(tmp_path: Path) -> None:
    root = store_of(tmp_path / "s", [(packed([b"a", b"b", b"c"]), 3)] * 3)
    with rocketstore.open(root) as store:
        expected = [m.physical_offset for m in store.scan(records="queues")]
        log = store.reader.log
        window = log.window(0)
        assert window is not None
        plain, position, status = Plain(), 0, 64
        passed = QueueRecords(plain)
        for _ in range(1000):
            status, position = passed.consume(
                window.buffer, position, window.stop, 0, window.segment_end, 1 << 62, 1
            )
            if status != 64:
                break
        assert (status, position) == (3, window.stop)
        assert plain.places == expected


def test_batches_are_not_taken_apart_unasked(tmp_path: Path) -> None:
    root = store_of(tmp_path / "s", [(packed([b"a", b"b"]), 2)])
    with rocketstore.open(root) as store:
        assert [m.topic for m in store.scan()] == ["P", "B", "P"]
        assert store.scan_arrow("topic").read_all().num_rows == 3
