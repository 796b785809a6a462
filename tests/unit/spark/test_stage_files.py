"""Stage files: what a task writes, what is left when it fails, what is read back."""

from __future__ import annotations

import itertools
import os
from pathlib import Path
from typing import Any

import pyarrow as pa
import pytest

import rocketstore
from golden import golden_stores
from rocketstore import formats
from rocketstore.errors import ConfigError, DecodeError, MappedFileError, UnsafePathError
from rocketstore.spark.sink import stage
from rocketstore.spark.sink.commit import abort, commit
from support import staging

SETTINGS = stage.encoder_settings(None)


@pytest.fixture(autouse=True)
def _small_pieces(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(stage, "PIECE_NBYTES", 2000)


def write(folder: Path, columns: dict[str, Any], **others: Any) -> stage.StagedFile:
    """Stage one batch as partition 7."""
    options = {"partition": 7, "attempt": 1, "settings": SETTINGS, "topic": "T"} | others
    return stage.write_stage([pa.record_batch(columns)], str(folder), **options)


def test_pieces_end_where_records_end_and_are_checked(tmp_path: Path) -> None:
    file = write(tmp_path, {"body": [b"x" * (i % 90) for i in range(200)]}, counted=True)
    assert (file.partition, file.rows, len(file.pieces) > 8) == (7, 200, True)
    assert file.nbytes == os.path.getsize(file.path)
    assert file.counts == {("T", i): 50 for i in range(4)}
    pieces = [(at, bytes(piece)) for at, piece in stage.read_pieces(file)]
    assert b"".join(piece for _, piece in pieces) == Path(file.path).read_bytes()
    records = [content for _, _, content in stage.read_records([file], 0)]
    assert len(records) == 200
    assert [r for _, _, r in stage.read_records([file, file], 230)] == records[30:]
    sizes = [len(record) for record in records]
    start, stop = sum(sizes[:37]), sum(sizes[:151])
    got = [(at, bytes(piece)) for at, piece in stage.read_range(file, start, stop)]
    assert got[0][0] == start
    assert b"".join(content for _, content in got) == b"".join(records[37:151])
    with open(file.path, "r+b") as damaged:
        damaged.seek(stop)
        damaged.write(b"\xff" * 4)
    with pytest.raises(DecodeError, match="were changed after they were written"):
        list(stage.read_pieces(file))


def test_a_store_with_its_queues_in_rocksdb_is_refused_at_once(tmp_path: Path) -> None:
    """Only the commit refused such a store, when all tasks had written their rows beside it."""
    root = golden_stores.unpack("rocksdb-5.5.0", tmp_path)
    names = sorted(path.name for path in root.iterdir())
    with pytest.raises(MappedFileError, match="is a RocksDB database"):
        stage.encoder_settings(root)
    assert sorted(path.name for path in root.iterdir()) == names


def test_files_are_written_and_forgotten_in_whole_units_of_the_cache(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Only what was read for the last time is forgotten, and never a unit that is needed still."""
    unit = 900
    monkeypatch.setattr(stage, "_CACHE_UNIT_NBYTES", unit)
    written, forgotten = [], []

    def note_write(fd: int, views: list[memoryview]) -> int:
        written.append(sum(map(len, views)))
        return os.write(fd, b"".join(views)[:unit])  # the system may write less than it was given

    monkeypatch.setattr(os, "writev", note_write)
    begun: list[tuple[int, int]] = []
    monkeypatch.setattr(os, "posix_fadvise", lambda *given: begun.append(given[1:3]), raising=False)
    file = write(tmp_path, {"body": [b"x" * (i % 90) for i in range(200)]})
    monkeypatch.undo()
    monkeypatch.setattr(stage, "_CACHE_UNIT_NBYTES", unit)
    assert len(written) > 8
    assert all(nbytes % unit == 0 for nbytes in written[:-1])
    # Each range is synced once, after its write.
    assert [start for start, _ in begun] == [0, *itertools.accumulate(n for _, n in begun)][:-1]
    assert sum(nbytes for _, nbytes in begun) == file.nbytes
    content = Path(file.path).read_bytes()
    assert (len(content), written[-1]) == (file.nbytes, file.nbytes % unit)
    monkeypatch.setattr(
        os, "posix_fadvise", lambda *given: forgotten.append(given[1:3]), raising=False
    )
    assert b"".join(bytes(piece) for _, piece in stage.read_pieces(file)) == content
    assert not forgotten
    for position, piece in stage.read_pieces(file, last=True):
        assert all(start + nbytes <= position for start, nbytes in forgotten)
        assert bytes(piece) == content[position : position + len(piece)]
    assert forgotten[-1] == (0, file.nbytes // unit * unit)
    forgotten.clear()
    first = file.pieces[0][0] + file.pieces[1][0]
    pieces = [bytes(piece) for _, piece in stage.read_range(file, first, file.nbytes)]
    assert b"".join(pieces) == content[first:]
    assert min(start for start, _ in forgotten) == -(-first // unit) * unit


def test_attempts_of_one_task_never_meet(tmp_path: Path) -> None:
    """A speculative attempt writes beside the first: one of them is named in the commit."""
    root = tmp_path / "store"
    folder = tmp_path / "stage"
    files = [write(folder, {"body": [b"one", b"two"]}) for _ in range(3)]
    assert len({file.path for file in files}) == 3
    config = rocketstore.MessageStoreConfig(**staging.OPTIONS)
    settings = stage.encoder_settings(None, config)
    chosen = write(folder, {"body": [b"one", b"two"]}, settings=settings)
    commit(root, [chosen], app="txn:a", stage=str(folder), config=config)
    assert staging.stored(root) == [b"one", b"two"]
    assert not folder.exists()


@pytest.mark.parametrize(
    ("columns", "error", "text"),
    [
        ({"body": [b"a", None]}, ValueError, "^partition 7, row 1: column body is null"),
        ({"body": [b"a"], "queueId": [2**40]}, ValueError, "column queueId: .*1099511627776"),
        ({"body": [b"a"], "size": [1]}, ValueError, "takes no column 'size'"),
        ({"body": [1]}, TypeError, "column body has the wrong Arrow type"),
    ],
)
def test_a_task_that_fails_leaves_no_file(
    tmp_path: Path, columns: dict[str, Any], error: type[Exception], text: str
) -> None:
    with pytest.raises(error, match=text):
        write(tmp_path, columns)
    assert list(tmp_path.iterdir()) == []


def test_integers_and_times_of_any_width_are_taken(tmp_path: Path) -> None:
    kinds = (pa.int8(), pa.int16(), pa.int64(), pa.uint16())
    contents = set()
    for number, kind in enumerate(kinds):
        columns = {
            "body": [b"a"],
            "queueId": pa.array([3], kind),
            "flag": pa.array([9], kind),
            "bornTimestamp": pa.array([1_600_000_000_000], pa.timestamp("ms", "UTC")),
        }
        file = write(tmp_path / str(number), columns)
        contents.add(Path(file.path).read_bytes())
    assert len(contents) == 1


def test_settings_are_those_of_the_store(tmp_path: Path) -> None:
    root = tmp_path / "store"
    rocketstore.open(root, "a", broker_version="4.9.8", **staging.OPTIONS).close()
    found = stage.encoder_settings(root)
    assert (found["broker_version"], found["segment_nbytes"]) == ("4.9.8", staging.SEGMENT_NBYTES)
    fresh = stage.encoder_settings(tmp_path / "none")
    with rocketstore.open(tmp_path / "new", "a", **staging.OPTIONS) as store:
        assert fresh["broker_version"] == store.broker_version
    other = tmp_path / "other"
    other.mkdir()
    (other / "letter.txt").write_text("mine")
    with pytest.raises(UnsafePathError, match="is not a store and not empty"):
        stage.encoder_settings(other)


def test_abort_deletes_a_stage_and_nothing_else(tmp_path: Path) -> None:
    root = tmp_path / "store"
    folder = root / formats.SPARK_DIR / "stage" / "a"
    beside = root / formats.SPARK_DIR / "stage" / "b"
    for place in (folder, beside):
        write(place, {"body": [b"a"]})
    assert abort(root, str(folder))
    assert abort(root, str(folder))
    assert not folder.exists()
    assert len(list(beside.iterdir())) == 1


@pytest.mark.parametrize(
    ("value", "path"),
    [
        ("/a%20b", "/a%20b"),
        ("file:///a%20b", "/a b"),
        ("file:/a", "/a"),
        ("FILE:/a/../b", "/b"),
    ],
)
def test_a_file_uri_is_where_readers_find_it(value: str, path: str) -> None:
    """Hadoop writes one slash: taken for a path, it is a folder named ``file:`` of where we are."""
    sink = pytest.importorskip("rocketstore.spark.sink.writer", reason="pyspark is not installed")
    assert sink.local_path("path", value) == path
    for other in ("file://host/a", "s3://bucket/a", "hdfs://a/b"):
        with pytest.raises(ConfigError, match="mounted"):
            sink.local_path("path", other)
