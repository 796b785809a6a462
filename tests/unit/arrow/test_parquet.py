"""``to_parquet``: what lies in the file, from every kind of source, and what errors leave."""

from __future__ import annotations

import errno
import os
from pathlib import Path
from typing import Any

import pyarrow as pa
import pyarrow.parquet as pq
import pytest

import rocketstore
from golden import golden_stores
from rocketstore.arrow import resolve, to_parquet
from rocketstore.errors import CorruptMessageError, StoreFullError
from support.message_table import table_of


@pytest.fixture
def root(tmp_path: Path) -> Path:
    """A store that RocketMQ wrote."""
    return golden_stores.unpack("plain-5.3.3", tmp_path)


def _rows(path: Path) -> pa.Table:
    """The file as it was written, and nothing beside it."""
    assert [entry.name for entry in path.parent.iterdir() if entry.name != "store"] == [path.name]
    return pq.read_table(path)


@pytest.mark.parametrize("columns", ["core", "full", "kafka", ["body", "raw"]])
def test_sources(columns: Any, root: Path, tmp_path: Path) -> None:
    names = resolve(columns)
    path = tmp_path / "messages.parquet"
    with rocketstore.open(root) as store:
        if columns == "kafka":
            expected = pa.table(store.scan_arrow(names))
        else:
            expected = table_of(store.scan(), names)
        assert to_parquet(store, path, columns) == expected.num_rows
        assert _rows(path).equals(expected)
        scan = store.scan_arrow(columns)
        assert to_parquet(scan, path, overwrite=True) == expected.num_rows
        assert _rows(path).equals(expected)
    assert to_parquet(expected, path, overwrite=True) == expected.num_rows
    for source in (root, str(root), root / "commitlog"):
        assert to_parquet(source, path, columns, overwrite=True) == expected.num_rows
        assert _rows(path).equals(expected)


def test_limits(root: Path, tmp_path: Path) -> None:
    path = tmp_path / "messages.parquet"
    with rocketstore.open(root) as store:
        messages = list(store.scan())
        topic, middle = messages[0].topic, messages[len(messages) // 2]
        kept = [m for m in messages if m.topic == topic and m < middle]
        expected = table_of(kept, resolve("core"))
        place = {"topics": iter([topic]), "stop": middle.physical_offset}
        assert to_parquet(store, path, **place) == len(kept) > 0
        assert _rows(path).equals(expected)
        place["topics"] = iter([topic])
        to_parquet(root, path, overwrite=True, **place)
        assert _rows(path).equals(expected)
        now = middle.store_timestamp
        assert to_parquet(root, path, "body", overwrite=True, begin=now) == sum(
            m.store_timestamp >= now for m in messages
        )


@pytest.mark.parametrize("compression", ["none", "zstd", "gzip"])
def test_row_groups_and_compression(compression: str, root: Path, tmp_path: Path) -> None:
    path = tmp_path / "messages.parquet"
    rows = to_parquet(root, path, compression=compression, row_group_bytes=5000, batch_rows=10)
    file = pq.ParquetFile(path)
    assert file.metadata.num_rows == rows
    assert 3 < file.metadata.num_row_groups < rows
    used = {"none": "UNCOMPRESSED"}.get(compression, compression.upper())
    assert file.metadata.row_group(0).column(0).compression == used


def test_a_store_without_messages(tmp_path: Path) -> None:
    path = tmp_path / "messages.parquet"
    with rocketstore.open(tmp_path / "store", "x") as store:
        assert to_parquet(store, path) == 0
        assert _rows(path).schema.names == resolve("core")


def test_a_file_that_is_there_stays(root: Path, tmp_path: Path) -> None:
    path = tmp_path / "messages.parquet"
    path.write_text("mine")
    with pytest.raises(FileExistsError, match="overwrite=True"):
        to_parquet(root, path)
    assert path.read_text() == "mine"
    assert sorted(os.listdir(tmp_path)) == ["messages.parquet", "store"]


def test_damage_leaves_no_file(root: Path, tmp_path: Path) -> None:
    path = tmp_path / "messages.parquet"
    path.write_text("old")
    with rocketstore.open(root) as store:
        messages = [m.detach() for m in store.scan()]
    at = next(m for m in messages[50:] if m.body).physical_offset
    segment = max(p for p in (root / "commitlog").iterdir() if int(p.name) <= at)
    with segment.open("r+b") as file:
        file.seek(at - int(segment.name) + 16)
        file.write(b"\xff" * 8)
    with rocketstore.open(root) as store:
        sources: list[Any] = [root, store, store.scan_arrow()]
        for source in sources:
            with pytest.raises(CorruptMessageError):
                to_parquet(source, path, overwrite=True)
            assert path.read_text() == "old"
            assert sorted(os.listdir(tmp_path)) == ["messages.parquet", "store"]
    assert to_parquet(root, path, overwrite=True, on_corruption="skip") == len(messages) - 1


def test_a_full_disk(root: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    def write_table(*_: Any, **__: Any) -> None:
        raise OSError(errno.ENOSPC, "No space left on device")

    monkeypatch.setattr(pq.ParquetWriter, "write_table", write_table)
    with pytest.raises(StoreFullError, match="no room for"):
        to_parquet(root, tmp_path / "messages.parquet")
    assert os.listdir(tmp_path) == ["store"]


@pytest.mark.parametrize(
    ("arguments", "error", "words"),
    [
        ({"compression": "zip"}, ValueError, "compression is 'zip'; it must be one of"),
        ({"row_group_bytes": 0}, ValueError, "row_group_bytes must be positive"),
        ({"row_group_bytes": "1"}, TypeError, "row_group_bytes must be int"),
        ({"columns": "bodies"}, ValueError, "did you mean 'body'"),
        ({"source": 5}, TypeError, "source must be a store, a path, or a stream"),
        ({"source": pa.table({"a": [1]}), "columns": "core"}, TypeError, "does not accept columns"),
        ({"source": pa.table({"a": [1]}), "stop": 1}, TypeError, "does not accept stop"),
        ({"source": "nowhere"}, FileNotFoundError, "nowhere"),
        ({"batch_rows": 0}, ValueError, "batch_rows must be"),
    ],
)
def test_wrong_arguments(
    arguments: dict[str, Any], error: type[Exception], words: str, root: Path, tmp_path: Path
) -> None:
    arguments = {"source": root, **arguments}
    with pytest.raises(error, match=words):
        to_parquet(arguments.pop("source"), tmp_path / "messages.parquet", **arguments)
    assert os.listdir(tmp_path) == ["store"]


@pytest.mark.parametrize(
    ("arguments", "error", "words"),
    [
        ({"topic": "T"}, TypeError, "topic"),
        ({"topics": "T"}, TypeError, "topics must be a sequence"),
        ({"batch_rows": 0}, ValueError, "batch_rows must be"),
        ({"on_corruption": "hope"}, ValueError, "on_corruption is 'hope'"),
    ],
)
def test_wrong_arguments_for_a_store_without_messages(
    arguments: dict[str, Any], error: type[Exception], words: str, tmp_path: Path
) -> None:
    """Whatever a pipeline asked for with a wrong name was taken, as long as the store was empty."""
    rocketstore.open(tmp_path / "empty", "x").close()
    with pytest.raises(error, match=words):
        to_parquet(tmp_path / "empty", tmp_path / "messages.parquet", **arguments)
    assert os.listdir(tmp_path) == ["empty"]
