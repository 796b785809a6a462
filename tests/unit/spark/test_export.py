"""Export to Parquet: every message in one file, names that repeat, nothing half done. No Spark."""

from __future__ import annotations

import dataclasses
import functools
import json
import shutil
from pathlib import Path
from typing import Any

import pyarrow as pa
import pyarrow.dataset
import pyarrow.parquet as pq
import pytest

import rocketstore
from golden import golden_stores
from rocketstore.arrow import layout, reading
from rocketstore.errors import CorruptMessageError
from rocketstore.files import durable as durable_file
from rocketstore.sources import list_log, plan_splits
from rocketstore.spark.jobs import export, folders
from rocketstore.spark.jobs.folders import open_folder
from rocketstore.spark.reading.selection import Selection

#: Names of the fields of ``Selection``.
SELECTED = {field.name for field in dataclasses.fields(Selection)}
SETTINGS: dict[str, Any] = {
    "columns": "core",
    "partition_by": ("topic",),
    "compression": "snappy",
}


def run(path: Path | str, dest: Path | str, **changed: Any) -> list[export.ExportedFile]:
    chosen = {name: changed.pop(name) for name in list(changed) if name in SELECTED}
    selection = Selection(**{"split_bytes": 40_000, **chosen})
    return export.export_files(None, str(path), str(dest), selection, **{**SETTINGS, **changed})


@pytest.fixture(scope="module")
def store(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return golden_stores.unpack("plain-5.3.3", tmp_path_factory.mktemp("golden"))


def rows(dest: Path, names: list[str]) -> list[tuple[Any, ...]]:
    """All rows below ``dest``, by their place in the log."""
    parts = pyarrow.dataset.partitioning(pa.schema([("topic", pa.string())]), flavor="hive")
    table = pyarrow.dataset.dataset(dest, partitioning=parts).to_table()
    found = zip(*(table.column(name).to_pylist() for name in names), strict=True)
    return sorted(found, key=lambda row: row[names.index("physicalOffset")])


def expected(store: Path) -> list[tuple[Any, ...]]:
    with rocketstore.open(store) as opened:
        return [
            (one.physical_offset, one.topic, one.queue_id, one.queue_offset, one.tags, one.body)
            for one in opened.scan()
        ]


NAMES = ["physicalOffset", "topic", "queueId", "queueOffset", "tags", "body"]


@pytest.mark.parametrize("split_bytes", [9_000, 40_000, 1 << 30])
def test_every_message_is_there_once(store: Path, tmp_path: Path, split_bytes: int) -> None:
    files = run(store, tmp_path / "out", split_bytes=split_bytes)
    assert rows(tmp_path / "out", NAMES) == expected(store)
    for file in files:
        written = pq.ParquetFile(tmp_path / "out" / file.path)
        assert written.metadata.num_rows == file.rows > 0
        assert (tmp_path / "out" / file.path).stat().st_size == file.bytes
        offsets = written.read(["physicalOffset"]).column(0).to_pylist()
        assert offsets == sorted(offsets)
        assert file.start_physical_offset <= offsets[0]
        assert offsets[-1] < file.stop_physical_offset
        assert "topic" not in written.schema_arrow.names
        assert file.path.startswith(f"topic={layout.escaped(file.topic)}/part-")
    there = {
        path.relative_to(tmp_path / "out").as_posix() for path in (tmp_path / "out").rglob("*")
    }
    folders = {name for name in there if (tmp_path / "out" / name).is_dir()}
    assert there - folders == {"_SUCCESS", *(file.path for file in files)}


def test_a_repeated_export_has_the_same_names_and_rows(store: Path, tmp_path: Path) -> None:
    first, second = run(store, tmp_path / "a"), run(store, tmp_path / "b")
    assert [dataclasses.astuple(file) for file in first] == [
        dataclasses.astuple(file) for file in second
    ]


@pytest.mark.parametrize("compression", export.COMPRESSIONS)
def test_compressions(store: Path, tmp_path: Path, compression: str) -> None:
    files = run(store, tmp_path / "out", compression=compression, partition_by=())
    metadata = pq.ParquetFile(tmp_path / "out" / files[0].path).metadata
    reported = metadata.row_group(0).column(0).compression
    assert reported == {"none": "UNCOMPRESSED"}.get(compression, compression.upper())


def test_small_row_groups_and_few_open_files(
    store: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """With one open file at a time a topic goes on in a second file, and nothing is lost."""
    monkeypatch.setattr(export, "_MAX_OPEN", 1)
    small = functools.partial(reading.read_batches, batch_rows=50)
    monkeypatch.setattr(reading, "read_batches", small)
    files = run(
        store,
        tmp_path / "out",
        row_group_bytes=1,
        split_bytes=1 << 30,
    )
    assert any("-1.parquet" in file.path for file in files)
    assert rows(tmp_path / "out", NAMES) == expected(store)


def test_partitions_by_queue_and_day(store: Path, tmp_path: Path) -> None:
    files = run(
        store, tmp_path / "out", partition_by=("date", "queueId"), columns=["body", "topic"]
    )
    with rocketstore.open(store) as opened:
        queues = {message.queue_id for message in opened.scan()}
        times = [message.store_timestamp for message in opened.scan()]
    assert {file.queue_id for file in files} == queues
    assert {file.topic for file in files} == {None}
    from datetime import UTC, datetime

    days = {datetime.fromtimestamp(time / 1000, UTC).date().isoformat() for time in times}
    assert {file.date for file in files} == days
    one = files[0]
    assert one.path.startswith(f"date={one.date}/queueId={one.queue_id}/part-")
    assert pq.ParquetFile(tmp_path / "out" / one.path).schema_arrow.names == ["body", "topic"]
    assert sum(file.rows for file in files) == len(times)


def test_filters_choose(store: Path, tmp_path: Path) -> None:
    with rocketstore.open(store) as opened:
        messages = list(opened.scan())
    topic = messages[0].topic
    middle = messages[len(messages) // 2].store_timestamp
    files = run(store, tmp_path / "out", topics=(topic,), begin=middle)
    wanted = [one for one in messages if one.topic == topic and one.store_timestamp >= middle]
    assert sum(file.rows for file in files) == len(wanted) > 0


def test_a_folder_with_anything_in_it_is_refused(store: Path, tmp_path: Path) -> None:
    (tmp_path / "mine").write_text("kept")
    with pytest.raises(FileExistsError, match="not empty"):
        run(store, tmp_path)
    assert [path.name for path in tmp_path.iterdir()] == ["mine"]


def test_what_a_failed_export_left_is_cleared(store: Path, tmp_path: Path) -> None:
    left = tmp_path / "out" / "_temporary" / "old" / "file"
    left.parent.mkdir(parents=True)
    left.write_text("half a file")
    files = run(store, tmp_path / "out")
    assert sum(file.rows for file in files) == len(expected(store))
    assert not (tmp_path / "out" / "_temporary").exists()


@pytest.mark.parametrize("renamed", [0, 1, 5, -1])
def test_an_export_that_was_killed_while_renaming_can_be_run_again(
    store: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, renamed: int
) -> None:
    """Its files lay in their places without _SUCCESS, and the next run refused the folder."""
    dest, killed = tmp_path / "out", tmp_path / "killed"
    rename, write, count = folders.LocalFolder.rename, folders.LocalFolder.write, [0]

    def note_rename(self: Any, old: str, new: str) -> None:
        if count[0] == renamed:
            shutil.copytree(dest, killed)
        count[0] += 1
        rename(self, old, new)

    def note_write(self: Any, name: str, data: bytes) -> None:
        if renamed == -1 and name == "_SUCCESS":
            shutil.copytree(dest, killed)
        write(self, name, data)

    monkeypatch.setattr(folders.LocalFolder, "rename", note_rename)
    monkeypatch.setattr(folders.LocalFolder, "write", note_write)
    partition_by = ("topic", "queueId")
    files = run(store, dest, partition_by=partition_by)
    monkeypatch.undo()
    assert len(files) > 5
    there = len(list(killed.rglob("*.parquet")))
    assert there == (len(files) if renamed == -1 else renamed)
    assert list(killed.glob("_temporary/*/*/*")) or renamed == -1
    assert run(store, killed, partition_by=partition_by, topics=(files[0].topic,))
    assert not (killed / "_temporary").exists()
    topics = {path.name for path in killed.iterdir()} - {"_SUCCESS"}
    assert topics == {f"topic={layout.escaped(files[0].topic)}"}
    with pytest.raises(FileExistsError):
        run(store, killed)


def test_only_files_of_an_export_are_taken_back(store: Path, tmp_path: Path) -> None:
    """The list of a dead export may come from others."""
    mine = tmp_path / "mine"
    mine.write_text("kept")
    names = ["../mine", str(mine), "topic=a/../../mine", "mine"]
    for listed in (json.dumps(names), json.dumps(names)[:-5], "{}", "7"):
        left = tmp_path / "out" / "_temporary"
        left.mkdir(parents=True)
        (left / "finals").write_text(listed)
        run(store, tmp_path / "out")
        assert mine.read_text() == "kept"
        shutil.rmtree(tmp_path / "out")


def test_damage_fails_and_leaves_nothing(store: Path, tmp_path: Path) -> None:
    damaged = tmp_path / "store"
    shutil.copytree(store, damaged)
    (segment,) = (path for path in sorted((damaged / "commitlog").iterdir())[:1])
    with rocketstore.open(damaged) as opened:
        tenth = [message for _, message in zip(range(10), opened.scan(), strict=False)][-1]
    content = bytearray(segment.read_bytes())
    content[tenth.physical_offset + tenth.store_size // 2] ^= 0x55
    segment.write_bytes(content)
    with pytest.raises(CorruptMessageError):
        run(damaged, tmp_path / "out")
    assert list((tmp_path / "out").iterdir()) == []
    files = run(damaged, tmp_path / "out", on_corruption="skip")
    assert sum(file.rows for file in files) == len(expected(store)) - 1


def test_a_failing_writer_removes_its_files(
    store: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    class FullError(OSError):
        pass

    def full(self: object) -> int:
        raise FullError("no space")

    monkeypatch.setattr(export._File, "close", full)
    with pytest.raises(FullError):
        run(store, tmp_path / "out", row_group_bytes=1)
    assert list((tmp_path / "out").iterdir()) == []


def test_a_second_attempt_of_a_task_is_not_seen(store: Path, tmp_path: Path) -> None:
    """Speculation runs a task twice: both attempts write, one of them is taken."""
    ran = []
    task = export.write_split

    def twice(_: None, function: Any, items: Any) -> Any:
        for item in items:
            ran.append(task(item))
            yield task(item)

    export_tasks, export.run_tasks = export.run_tasks, twice  # type: ignore[assignment]
    try:
        files = run(store, tmp_path / "out")
    finally:
        export.run_tasks = export_tasks
    assert len(ran) > 1
    assert rows(tmp_path / "out", NAMES) == expected(store)
    assert sum(file.rows for file in files) == len(expected(store))


@pytest.mark.parametrize(
    ("changed", "reason"),
    [
        ({"partition_by": ("tags",)}, "partition_by"),
        ({"partition_by": ("topic", "topic")}, "partition_by"),
        ({"columns": ["topic"]}, "leaves no columns"),
        ({"columns": ["bodi"]}, "did you mean 'body'"),
        ({"compression": "rar"}, "is not one of none, snappy"),
        ({"on_corruption": "ignore"}, "fail, skip, stop"),
    ],
)
def test_wrong_arguments(store: Path, tmp_path: Path, changed: Any, reason: str) -> None:
    with pytest.raises(ValueError, match=reason):
        run(store, tmp_path / "out", **changed)
    assert not (tmp_path / "out").exists()


def test_a_missing_store_is_reported_before_anything_is_created(tmp_path: Path) -> None:
    with pytest.raises(FileNotFoundError):
        run(tmp_path / "nowhere", tmp_path / "out")
    assert not (tmp_path / "out").exists()


@pytest.mark.parametrize(
    ("value", "name"),
    [
        ("Orders", "Orders"),
        ("%RETRY%group", "%25RETRY%25group"),
        ("../x", "..%2Fx"),
        ("a=b:c", "a%3Db%3Ac"),
        (None, "__HIVE_DEFAULT_PARTITION__"),
        ("", "__HIVE_DEFAULT_PARTITION__"),
        (3, "3"),
        ("größe", "größe"),
    ],
)
def test_names_of_partitions_are_spark_s(value: object, name: str) -> None:
    assert layout.escaped(value) == name


@pytest.mark.parametrize(
    ("day", "name"),
    [
        (0, "1970-01-01"),
        (-1, "1969-12-31"),
        (19_675, "2023-11-14"),
        (11_016, "2000-02-29"),
        (2_932_896, "9999-12-31"),
        (2_932_897, "+10000-01-01"),
        (106_751_991, "+294247-01-10"),
        (-719_162, "0001-01-01"),
        (-719_528, "0000-01-01"),
        (-721_354, "-0005-01-01"),
        (-106_751_992, "-290308-12-21"),
    ],
)
def test_names_of_days_are_spark_s(day: int, name: str) -> None:
    """A record whose store time was far off made a folder ``date=<value out of range: 106751991>``,
    for which Spark takes the dates of all folders for text.
    """
    assert layout.date_name(day) == name
    time = max(day * 86_400_000_000, -(2**63))
    times = pa.array([1_700_000_000_000_000, time], pa.timestamp("us", tz="UTC"))
    batch = pa.record_batch({"storeTimestamp": times})
    found = [(values, rows.num_rows) for values, rows in layout.partitioned(batch, ("date",))]
    assert sorted(found) == sorted(
        [(("2023-11-14",), 2)] if name == "2023-11-14" else [(("2023-11-14",), 1), ((name,), 1)]
    )


def test_rows_are_parted_by_all_values() -> None:
    times = pa.array([0, -1, 86_400_000_000, 0, -1, 0], pa.timestamp("us", tz="UTC"))
    batch = pa.record_batch(
        {
            "topic": pa.array(["a", "a", None, "b", "a", "a"]),
            "storeTimestamp": times,
            "row": pa.array(range(6)),
        }
    )
    found = {
        values: rows.column("row").to_pylist()
        for values, rows in layout.partitioned(batch, ("topic", "date"))
    }
    assert found == {
        ("a", "1970-01-01"): [0, 5],
        ("a", "1969-12-31"): [1, 4],
        (None, "1970-01-02"): [2],
        ("b", "1970-01-01"): [3],
    }


def test_an_object_store_as_destination(store: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """fsspec's store in memory has the calls of all others."""
    import fsspec

    memory = fsspec.filesystem("memory")
    if memory.exists("/export-test"):
        memory.rm("/export-test", recursive=True)
    rename, left = folders.RemoteFolder.rename, [3]

    def fail_later(self: Any, old: str, new: str) -> None:
        left[0] -= 1
        if left[0] < 0:
            raise OSError("the connection is gone")
        rename(self, old, new)

    monkeypatch.setattr(folders.RemoteFolder, "rename", fail_later)
    with pytest.raises(OSError, match="connection is gone"):
        run(store, "memory://export-test/out")
    assert len([name for name in memory.find("/export-test/out") if "/topic=" in name]) == 3
    monkeypatch.undo()
    files = run(store, "memory://export-test/out")
    names = {name.removeprefix("/export-test/out/") for name in memory.find("/export-test/out")}
    assert names == {"_SUCCESS", *(file.path for file in files)}
    count = 0
    for file in files:
        with memory.open(f"/export-test/out/{file.path}") as content:
            count += pq.ParquetFile(content).metadata.num_rows
    assert count == len(expected(store))
    with pytest.raises(FileExistsError):
        run(store, "memory://export-test/out")
    memory.rm("/export-test", recursive=True)


def test_a_task_and_its_answer_are_small(store: Path, tmp_path: Path) -> None:
    import pickle

    (split,) = plan_splits(list_log(store), split_bytes=1 << 30)[:1]
    folder = open_folder(tmp_path / "out")
    folder.make()
    plan = export._Plan(str(tmp_path / "out"), None, "job", ("body",), (), "snappy", 1 << 20, {})
    assert len(pickle.dumps((plan, split))) < 1000
    assert len(pickle.dumps(export.write_split((plan, split)))) < 1000


def test_all_folders_of_an_export_are_synced(
    store: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    synced: set[Path] = set()
    sync = durable_file.sync_directory

    def note(path: Path) -> None:
        synced.add(path)
        sync(path)

    monkeypatch.setattr(durable_file, "sync_directory", note)
    monkeypatch.setattr(folders, "sync_directory", note)
    dest = tmp_path / "new" / "out"
    run(store, dest, columns=["body"], partition_by=("topic", "queueId"))
    made = {path for path in dest.rglob("*") if path.is_dir()}
    assert len({path.parent for path in made}) > 2
    assert {tmp_path, tmp_path / "new", dest, *made} <= synced


@pytest.mark.parametrize(
    ("columns", "partition_by"),
    [
        (["body"], ("topic", "queueId")),
        (["body"], ()),
        (["topic", "queueId", "body"], ("topic", "queueId", "date")),
    ],
)
def test_columns_beside_those_of_the_folders(
    store: Path, tmp_path: Path, columns: list[str], partition_by: tuple[str, ...]
) -> None:
    files = run(store, tmp_path / "out", columns=columns, partition_by=partition_by)
    assert sum(file.rows for file in files) == len(expected(store))
    names = pq.ParquetFile(tmp_path / "out" / files[0].path).schema_arrow.names
    assert names == [name for name in columns if name not in partition_by]
