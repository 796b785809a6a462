"""A store that is written as a whole: byte for byte the log that puts in the same order write."""

from __future__ import annotations

import random
from dataclasses import replace
from pathlib import Path
from typing import Any

import pyarrow as pa
import pytest

import rocketstore
from rocketstore.errors import ConfigError, DecodeError
from rocketstore.spark.jobs import bulk_loading as loading
from rocketstore.spark.jobs.bulk_loading import LoadReport, plan_segments, write_store
from rocketstore.spark.sink import stage
from support import staging

CONFIG = rocketstore.MessageStoreConfig(**staging.OPTIONS, timezone="UTC")
SETTINGS = stage.encoder_settings(None, CONFIG)


@pytest.fixture(autouse=True)
def _small_pieces(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(stage, "PIECE_NBYTES", 3000)


def rows_of(seed: int, count: int) -> list[dict[str, Any]]:
    """Rows of several topics and sizes."""
    chance = random.Random(seed)
    return [
        {
            "body": chance.randbytes(chance.choice([0, 30, 200, 900])),
            "topic": f"T{chance.randrange(3)}",
            "tags": chance.choice(["A", "B", None]),
            "keys": f"k{chance.randrange(50)}",
            "queueId": chance.randrange(4),
        }
        for _ in range(count)
    ]


def staged(folder: Path, partitions: list[list[dict[str, Any]]]) -> list[stage.StagedFile]:
    """A stage file for each partition."""
    schema = pa.schema(
        [
            ("body", pa.binary()),
            ("topic", pa.string()),
            ("tags", pa.string()),
            ("keys", pa.string()),
            ("queueId", pa.int64()),
        ]
    )
    return [
        stage.write_stage(
            pa.Table.from_pylist(rows, schema).to_batches(max_chunksize=17),
            str(folder),
            partition=number,
            attempt=0,
            settings=SETTINGS,
            counted=True,
        )
        for number, rows in enumerate(partitions)
    ]


def put_all(root: Path, rows: list[dict[str, Any]]) -> None:
    """The same messages by puts."""
    with rocketstore.open(root, "a", config=CONFIG, clock=lambda: staging.NOW) as store:
        for row in rows:
            result = store.put(row["topic"], row["body"], row["queueId"], row["tags"], row["keys"])
            assert result.ok


def files_below(root: Path) -> dict[str, bytes]:
    """Contents of log, queues and index."""
    return {
        path.relative_to(root).as_posix(): path.read_bytes()
        for part in ("commitlog", "consumequeue", "index")
        for path in sorted((root / part).rglob("*"))
        if path.is_file()
    }


def load(root: Path, files: list[stage.StagedFile], **others: Any) -> LoadReport:
    """Write them into a new folder."""
    root.mkdir()
    return write_store(None, files, root, SETTINGS, CONFIG, lambda: staging.NOW, **others)


@pytest.mark.parametrize("sizes", [[400], [3, 0, 200, 1, 90], [0, 130, 130, 130], [1]])
def test_log_queues_and_index_are_those_of_puts(tmp_path: Path, sizes: list[int]) -> None:
    partitions = [rows_of(seed, count) for seed, count in enumerate(sizes)]
    rows = [row for partition in partitions for row in partition]
    files = staged(tmp_path / "stage", partitions)
    report = load(tmp_path / "loaded", files[::-1])
    put_all(tmp_path / "put", rows)
    expected = files_below(tmp_path / "put")
    assert files_below(tmp_path / "loaded") == expected
    assert report.rows == len(rows)
    assert report.segments == sum(name.startswith("commitlog") for name in expected)
    assert sum(report.queues.values()) == len(rows)
    assert not (tmp_path / "loaded" / "abort").exists()
    assert [path.name for path in (tmp_path / "loaded").iterdir() if path.name[0] == "."] == []
    with rocketstore.open(tmp_path / "loaded") as store:
        assert not store.verify().findings
        assert store.recovery_report.clean


def test_segments_end_where_an_appender_ends_them(tmp_path: Path) -> None:
    """Records of one size, at every distance from the segment's end around the end marker."""
    for spare in range(12):
        size = (staging.SEGMENT_NBYTES - spare) // 20
        rows = [
            {"body": bytes(size - 102), "topic": "T1", "tags": None, "keys": "k", "queueId": 0}
        ] * 45
        folder = tmp_path / str(spare)
        files = staged(folder / "stage", [rows[:13], rows[13:]])
        load(folder / "loaded", files)
        put_all(folder / "put", rows)
        assert files_below(folder / "loaded") == files_below(folder / "put")


def test_nothing_makes_an_empty_store(tmp_path: Path) -> None:
    report = load(tmp_path / "store", staged(tmp_path / "stage", [[], []]))
    assert (report.rows, report.segments, report.queues) == (0, 0, {})
    with rocketstore.open(tmp_path / "store", "r+", config=CONFIG) as store:
        assert store.put("T", b"x").ok


def test_a_second_attempt_writes_the_same_bytes(tmp_path: Path) -> None:
    files = staged(tmp_path / "stage", [rows_of(1, 300)])
    plans = plan_segments(files, staging.SEGMENT_NBYTES)
    assert len(plans) > 2
    (tmp_path / "commitlog").mkdir()
    contents = []
    for _ in range(2):
        for plan in plans:
            order = loading._Order(plan, str(tmp_path), SETTINGS, staging.NOW)
            assert loading.write_segment(order) > 0
        contents.append([p.read_bytes() for p in sorted((tmp_path / "commitlog").iterdir())])
    assert contents[0] == contents[1]


def test_a_damaged_stage_makes_no_store(tmp_path: Path) -> None:
    files = staged(tmp_path / "stage", [rows_of(1, 300)])
    path = Path(files[0].path)
    content = bytearray(path.read_bytes())
    content[-40] ^= 1
    path.write_bytes(content)
    with pytest.raises(DecodeError, match=path.name):
        load(tmp_path / "store", files)


def test_whole_record_crcs_are_refused() -> None:
    with pytest.raises(ConfigError, match="does not support enabled_append_prop_crc"):
        loading._settings(replace(CONFIG, enabled_append_prop_crc=True))
