"""The stream reader, called as Spark calls it; no session is needed."""

from __future__ import annotations

import json
import os
import shutil
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
from pyspark import cloudpickle

from rocketstore.errors import ConfigError, DecodeError, MappedFileError, RocketStoreError
from rocketstore.spark.base.options import parse_read
from rocketstore.spark.base.schema import spark_schema
from rocketstore.spark.stream import stream_reader as streaming
from support.stream_store import grow, rows_of, segments

SCHEMA = spark_schema(["physicalOffset", "body"])
#: What Spark asks for when it sets no limit; PySpark 4.1 sets none ever.
EVERYTHING = streaming.ReadAllAvailable() if streaming.LIMITS else None

needs_limits = pytest.mark.skipif(
    not streaming.LIMITS, reason="PySpark 4.1 sets no limits to the batches of a Python source"
)


@pytest.fixture
def store(tmp_path: Path) -> Path:
    grow(tmp_path / "store", 0, 120)
    return tmp_path / "store"


def reader_of(store: Path, **options: object) -> streaming.LogStreamReader:
    texts = {name: str(value) for name, value in options.items()}
    parsed = parse_read({"path": str(store), "startingOffsets": "earliest", **texts})
    return streaming.LogStreamReader(parsed, SCHEMA)


def checkpointed(offset: dict[str, Any]) -> dict[str, Any]:
    found = json.loads(json.dumps(offset))
    assert isinstance(found, dict)
    return found


def read(reader: streaming.LogStreamReader, start: Any, end: Any) -> list[int]:
    """What the tasks of a batch yield; each gets a copy of the reader, as an executor does."""
    found: list[int] = []
    for partition in reader.partitions(start, end):
        task = cloudpickle.loads(cloudpickle.dumps(reader))
        for batch in task.read(cloudpickle.loads(cloudpickle.dumps(partition))):
            assert batch.schema.names == ["physicalOffset", "body"]
            found += batch["physicalOffset"].to_pylist()
    return found


def places(store: Path) -> list[int]:
    return [row.physical_offset for row in rows_of(store)]


@needs_limits
def test_the_limit_of_the_options(store: Path) -> None:
    from pyspark.sql.streaming import datasource as spark

    assert isinstance(reader_of(store), spark.SupportsTriggerAvailableNow)
    assert reader_of(store).getDefaultReadLimit() == spark.ReadAllAvailable()
    both = reader_of(store, maxOffsetsPerTrigger=7, maxBytesPerTrigger="4k")
    assert both.getDefaultReadLimit() == spark.ReadMaxRows(7)
    bytes_alone = reader_of(store, maxBytesPerTrigger="4k")
    assert bytes_alone.getDefaultReadLimit() == spark.ReadMaxBytes(4096)


@needs_limits
def test_spark_s_limit_is_obeyed_and_not_the_options(store: Path) -> None:
    from pyspark.sql.streaming import datasource as spark

    reader = reader_of(store, maxOffsetsPerTrigger=7)
    start = reader.initialOffset()
    assert reader.initialOffset() == start
    whole = places(store)
    # Trigger once asks for everything.
    for limit in (spark.ReadAllAvailable(), spark.ReadMaxFiles(1)):
        assert read(reader, start, reader.latestOffset(start, limit)) == whole
    assert read(reader, start, reader.latestOffset(start, spark.ReadMaxRows(9))) == whole[:9]
    few = read(reader, start, reader.latestOffset(start, spark.ReadMaxBytes(2000)))
    assert few == whole[: len(few)]
    assert 0 < len(few) < 30


@needs_limits
def test_both_limits_of_the_options(store: Path) -> None:
    from pyspark.sql.streaming import datasource as spark

    reader = reader_of(store, maxOffsetsPerTrigger=100, maxBytesPerTrigger=2000)
    start = reader.initialOffset()
    assert len(read(reader, start, reader.latestOffset(start, spark.ReadMaxRows(100)))) < 30


def test_without_start_and_limit_as_in_pyspark_41(store: Path) -> None:
    reader = reader_of(store, startingOffsets="latest")
    old = places(store)
    end = checkpointed(reader.latestOffset())  # is asked first there, then for the beginning
    start = checkpointed(reader.initialOffset())
    assert read(reader, start, end) == []
    assert checkpointed(reader.latestOffset()) == end
    grow(store, 120, 30)
    later = checkpointed(reader.latestOffset())
    new = places(store)[len(old) :]
    assert read(reader, end, later) == new
    # A new process: its first answer may differ, but an empty batch comes of it, not a message
    # twice; a batch that was planned is read as it was planned.
    again = reader_of(store, startingOffsets="latest")
    assert read(again, end, later) == new
    grow(store, 150, 30)
    last = checkpointed(again.latestOffset())
    assert read(again, later, last) == places(store)[len(old) + 30 :]
    assert checkpointed(again.latestOffset()) == last


def test_limits_need_a_spark_that_obeys_them(store: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(streaming, "LIMITS", False)
    assert reader_of(store).latestOffset()["phy"] > 0
    for name in ("maxOffsetsPerTrigger", "maxBytesPerTrigger"):
        with pytest.raises(ConfigError, match=f"{name} needs PySpark 4.2"):
            reader_of(store, **{name: 10})


def test_available_now_ends(store: Path) -> None:
    reader = reader_of(store)
    reader.prepareForTriggerAvailableNow()
    old = places(store)
    grow(store, 120, 30)
    start = reader.initialOffset()
    end = reader.latestOffset(start, EVERYTHING)
    assert read(reader, start, end) == old
    assert reader.latestOffset(end, EVERYTHING) == end
    assert reader.reportLatestOffset() is not None


def test_nothing_to_read(store: Path) -> None:
    reader = reader_of(store)
    assert list(reader.read(None)) == []
    start = reader.initialOffset()
    assert reader.partitions(start, start) == []


def test_a_checkpoint_of_something_else(store: Path) -> None:
    reader = reader_of(store)
    for found in ({"Orders": {"0": 5}}, {"v": 2, "phy": 5}):
        with pytest.raises(DecodeError, match="offset"):
            reader.latestOffset(found, EVERYTHING)


@pytest.mark.parametrize("fail", [True, False])
def test_a_segment_deleted_after_the_plan(store: Path, fail: bool) -> None:
    reader = reader_of(store, failOnDataLoss=fail)
    start = reader.initialOffset()
    end = reader.latestOffset(start, EVERYTHING)
    partitions = reader.partitions(start, end)
    whole = places(store)
    os.unlink(segments(store)[0])

    def found() -> list[int]:
        return [
            offset
            for partition in partitions
            for batch in reader.read(partition)
            for offset in batch["physicalOffset"].to_pylist()
        ]

    if fail:
        with pytest.raises(MappedFileError, match="0" * 20):
            found()
    else:
        assert found() == [offset for offset in whole if offset >= 16384]


def test_a_file_in_the_middle_is_never_skipped(store: Path) -> None:
    reader = reader_of(store, failOnDataLoss=False)
    start = reader.initialOffset()
    partitions = reader.partitions(start, reader.latestOffset(start, EVERYTHING))
    os.unlink(segments(store)[1])
    with pytest.raises(MappedFileError):
        list(reader.read(partitions[1]))


def move_away(store: Path) -> str:
    store.rename(store.with_name("elsewhere"))
    return f"there is no store {store}$"


def move_the_log_away(store: Path) -> str:
    (store / "commitlog").rename(store.with_name("log"))
    return f"the log is missing: {store / 'commitlog'} does not exist"


def put_a_file_there(store: Path) -> str:
    move_the_log_away(store)
    (store / "commitlog").write_bytes(b"")
    return f"{store / 'commitlog'} is a file, not a folder"


def delete_the_newest_segment(store: Path) -> str:
    segments(store)[-1].unlink()
    return "it was truncated or replaced|the segment is missing"


def delete_all_segments(store: Path) -> str:
    for path in segments(store):
        path.unlink()
    return f"the log is missing: {store / 'commitlog'} is empty"


def delete_all(store: Path) -> str:
    shutil.rmtree(store)
    store.mkdir()
    return f"{store} is (not a|no) store: it has no folder commitlog, but nothing"


@pytest.mark.parametrize("is_behind", [True, False], ids=["lagging", "caught-up"])
@pytest.mark.parametrize(
    "vanish",
    [
        *(move_away, move_the_log_away, put_a_file_there),
        *(delete_the_newest_segment, delete_all_segments, delete_all),
    ],
)
def test_a_store_that_vanishes_ends_the_stream(
    vanish: Callable[[Path], str], is_behind: bool, store: Path
) -> None:
    """Each ends with one sentence that names the place: no silence, and no batch without rows."""
    reader = reader_of(store)
    begin = reader.initialOffset()
    end = reader.latestOffset(begin, EVERYTHING)
    assert reader.latestOffset(end, EVERYTHING) == end  # nothing has come, and all is quiet
    why = vanish(store)
    with pytest.raises((OSError, RocketStoreError), match=why) as found:
        reader.latestOffset(begin if is_behind else end, EVERYTHING)
    assert str(store) in str(found.value)
    assert "--commit-log" not in str(found.value)
    again = reader_of(store)
    with pytest.raises((OSError, RocketStoreError), match=why):  # and after a restart
        again.latestOffset(end, EVERYTHING)


def test_a_filter_of_a_stream(store: Path) -> None:
    rows = rows_of(store)
    wanted = [row.physical_offset for row in rows if row.tags == "red"]
    made = reader_of(store, filter="TAGS = 'red'")
    start = checkpointed(made.initialOffset())
    end = checkpointed(made.latestOffset(start, EVERYTHING))
    assert read(made, start, end) == wanted
    with pytest.raises(ConfigError, match="filter: "):
        reader_of(store, filter="TAGS =")
