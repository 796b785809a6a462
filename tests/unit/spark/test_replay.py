"""What replay and compaction do to batches of messages. No Spark."""

from __future__ import annotations

import zlib
from pathlib import Path

import numpy as np
import pyarrow as pa
import pytest

import rocketstore
from golden import golden_stores
from rocketstore import body_codec, formats
from rocketstore.arrow.reading import read_batches
from rocketstore.errors import DecodeError
from rocketstore.sources import list_log, plan_splits
from rocketstore.spark.jobs import compact, replay

BODY = b"a body of some length, " * 20
PACKED = formats.SYS_FLAG_COMPRESSED


def compressed(name: str) -> bytes:
    sink = pa.BufferOutputStream()
    with pa.CompressedOutputStream(sink, name) as stream:
        stream.write(BODY)
    return sink.getvalue().to_pybytes()


@pytest.mark.parametrize(
    ("stored", "flag"),
    [
        (BODY, 0),
        (BODY, formats.SYS_FLAG_TRANSACTION_COMMIT),
        (zlib.compress(BODY), PACKED),
        (zlib.compress(BODY), PACKED | 3 << 8),
        (compressed("lz4"), PACKED | 1 << 8),
        (compressed("zstd"), PACKED | 2 << 8),
    ],
)
def test_bodies_are_unpacked(stored: bytes, flag: int) -> None:
    assert replay.unpacked(stored, flag, 7) == BODY


@pytest.mark.parametrize(
    ("stored", "flag", "reason"),
    [
        (b"no zlib", PACKED, "cannot be decompressed"),
        (b"no frame at all", PACKED | 1 << 8, "cannot be decompressed"),
        (b"no frame at all", PACKED | 2 << 8, "cannot be decompressed"),
        (zlib.compress(BODY)[:-9], PACKED, "cannot be decompressed"),
        (zlib.compress(BODY), PACKED | 5 << 8, r"unknown compression type \(5\)"),
        (BODY, formats.SYS_FLAG_INNER_BATCH, "an inner batch"),
    ],
)
def test_what_does_not_unpack_is_named(stored: bytes, flag: int, reason: str) -> None:
    with pytest.raises(DecodeError, match=reason) as caught:
        replay.unpacked(stored, flag, 4711)
    assert "log offset 4711" in str(caught.value)


@pytest.mark.parametrize("name", ["zlib", "zstd", "lz4"])
def test_a_bomb_is_not_unpacked(name: str, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(body_codec, "MAX_BODY_NBYTES", len(BODY) - 1)
    stored, kind = {
        "zlib": (zlib.compress(BODY), 3),
        "lz4": (compressed("lz4"), 1),
        "zstd": (compressed("zstd"), 2),
    }[name]
    with pytest.raises(DecodeError, match="more than"):
        replay.unpacked(stored, PACKED | kind << 8, 0)


def written_batch(flags: list[int], bodies: list[bytes]) -> pa.RecordBatch:
    count = len(flags)
    columns = {
        "topic": pa.array(["T"] * count),
        "queueId": pa.array([0] * count, pa.int32()),
        "tags": pa.array([None] * count, pa.string()),
        "keys": pa.array([None] * count, pa.string()),
        "properties": pa.array([[]] * count, pa.map_(pa.string(), pa.string())),
        "flag": pa.array([0] * count, pa.int32()),
        "bornTimestamp": pa.array([0] * count, pa.timestamp("us", tz="UTC")),
        "body": pa.array(bodies, pa.binary()),
        "sysFlag": pa.array(flags, pa.int32()),
        "physicalOffset": pa.array(range(count), pa.int64()),
    }
    return pa.record_batch(columns)


def test_only_packed_rows_are_touched() -> None:
    batch = written_batch([0, PACKED, 0], [b"one", zlib.compress(BODY), b""])
    (found,) = replay.written(True, [batch])
    assert found.schema.names == list(replay.WRITTEN)
    assert found.column("body").to_pylist() == [b"one", BODY, b""]
    (found,) = replay.written(False, [batch])
    assert found.column("body").to_pylist() == [b"one", zlib.compress(BODY), b""]


def test_an_inner_batch_is_refused_also_as_stored() -> None:
    batch = written_batch([formats.SYS_FLAG_INNER_BATCH], [b"several"])
    with pytest.raises(DecodeError, match="an inner batch"):
        list(replay.written(False, [batch]))


# --- compaction -------------------------------------------------------------------------------

#: (topic, keys, body)
MESSAGES = [
    ("P", "a", b"a1"),
    ("P", "b", b"b1"),
    ("P", None, b"none"),
    ("P", "a", b"a2"),
    ("Q", "a", b"other topic"),
    ("P", "b", b""),
    ("P", "c", b"c1"),
    ("P", "c", b""),
    ("P", "c", b"c2"),
    ("R", "a", b"not asked for"),
    ("P", None, b"none either"),
    ("P", "a b", b"two words are one key"),
]
KEPT = [2, 3, 4, 8, 10, 11]


@pytest.fixture(scope="module")
def store(tmp_path_factory: pytest.TempPathFactory) -> tuple[Path, list[int]]:
    root = tmp_path_factory.mktemp("keyed") / "store"
    with rocketstore.open(root, "x", mapped_file_size_commit_log=1024) as opened:
        offsets = [
            opened.put(topic, body, 0, keys=keys).physical_offset for topic, keys, body in MESSAGES
        ]
    return root, [offset for offset in offsets if offset is not None]


def merged(root: Path, split_bytes: int, keep_unkeyed: bool) -> dict[tuple[object, ...], int]:
    """The largest place by topic, key and single, over all splits; as Spark takes it."""
    latest: dict[tuple[object, ...], int] = {}
    messages = 0
    for split in plan_splits(list_log(root), split_bytes=split_bytes):
        for batch in compact.latest(split, "keys", keep_unkeyed, {"topics": ["P", "Q"]}):
            for topic, key, single, place, count in zip(
                *(column.to_pylist() for column in batch.columns), strict=True
            ):
                latest[topic, key, single] = max(place, latest.get((topic, key, single), -9))
                messages += count
    assert messages == len(MESSAGES) - 1
    return latest


@pytest.mark.parametrize("split_bytes", [100, 700, 1 << 20])
@pytest.mark.parametrize("keep_unkeyed", [True, False])
def test_the_latest_of_each_key_wins(
    store: tuple[Path, list[int]], split_bytes: int, keep_unkeyed: bool
) -> None:
    root, offsets = store
    latest = merged(root, split_bytes, keep_unkeyed)
    places = sorted(place // 2 for place in latest.values() if place >= 0 and place % 2 == 0)
    wanted = [row for row in KEPT if keep_unkeyed or MESSAGES[row][1] is not None]
    assert places == [offsets[row] for row in wanted]
    tombstones = [key for (_, key, _), place in latest.items() if place >= 0 and place % 2]
    assert tombstones == ["b"]


@pytest.mark.parametrize("rows", [KEPT, [0], [11], [5, 6], list(range(12)), []])
def test_survivors_are_gathered_in_order(store: tuple[Path, list[int]], rows: list[int]) -> None:
    root, offsets = store
    wanted = np.array([offsets[row] for row in rows], np.int64)
    found = [
        offset
        for batch in compact.gather(list_log(root), wanted, {})
        for offset in batch.column("physicalOffset").to_pylist()
    ]
    assert found == wanted.tolist()


def test_messages_of_transactions_count_when_they_are_committed(tmp_path: Path) -> None:
    """Golden stores hold prepared, committed and rolled back messages."""
    root = golden_stores.unpack("plain-5.3.3", tmp_path)
    (split,) = plan_splits(list_log(root))[:1]
    counted = 0
    for batch in read_batches(split, ["sysFlag"]):
        kinds = batch.column(0).to_numpy() & formats.SYS_FLAG_TRANSACTION_MASK
        counted += int(np.isin(kinds, [0, formats.SYS_FLAG_TRANSACTION_COMMIT]).sum())
    found = sum(
        sum(batch.column("messages").to_pylist())
        for batch in compact.latest(split, "uniqKey", True, {})
    )
    assert found == counted > 0
