"""``export``: every format, appending, kills, full disks, damage, and what is refused."""

from __future__ import annotations

import csv
import errno
import gzip
import hashlib
import json
import os
import shutil
import zlib
from pathlib import Path
from typing import Any

import pyarrow as pa
import pyarrow.dataset
import pyarrow.parquet as pq
import pytest

import rocketstore
from golden.golden_stores import unpack
from rocketstore.directory.lock import StoreLock
from rocketstore.errors import (
    CorruptMessageError,
    MappedFileError,
    SourceChangedError,
    StoreFullError,
    StoreLockedError,
)
from rocketstore.moving.exports import export_files, pieces
from rocketstore.moving.exports.exporting import WORK_FOLDER, export
from rocketstore.moving.exports.manifest import MANIFEST_FILE
from support.file_trees import tree_of
from support.kill_points import run_until_change
from support.looked_stores import SEGMENT, make_store, open_looked, plain_records

#: Every how many changes of the file system a process is killed; 1 is every one.
STRIDE = int(os.environ.get("ROCKETSTORE_MOVING_STRIDE", "19"))


@pytest.fixture
def root(tmp_path: Path) -> Path:
    return make_store(tmp_path / "store")


def manifest(folder: Path) -> list[dict[str, Any]]:
    return [json.loads(line) for line in (folder / MANIFEST_FILE).read_text().splitlines()]


def files_of(folder: Path) -> list[Path]:
    """The files of messages, in the order of the log."""
    return sorted(folder.rglob("part-*"), key=lambda path: path.name)


def contents(folder: Path) -> dict[str, bytes]:
    return {str(path.relative_to(folder)): path.read_bytes() for path in files_of(folder)}


def whole(folder: Path) -> dict[str, tuple[bytes, int]]:
    """All files with their times."""
    return {
        str(path.relative_to(folder)): (path.read_bytes(), path.stat().st_mtime_ns)
        for path in folder.rglob("*")
        if path.is_file()
    }


def offsets(folder: Path) -> list[int]:
    tables = [pq.ParquetFile(path).read(["physicalOffset"]) for path in files_of(folder)]
    return [at for table in tables for at in table["physicalOffset"].to_pylist()]


def expected(root: Path, columns: str = "full", **limits: Any) -> pa.Table:
    with rocketstore.open(root) as store:
        return store.scan_arrow(columns, **limits).read_all()


def log_offsets(root: Path) -> list[int]:
    return [record.offset for record in plain_records(root) if record.topic is not None]


def put(root: Path, count: int, **options: Any) -> None:
    with open_looked(root, "r+") as store:
        for number in range(count):
            store.put("Orders", b"new %d" % number, 0, **options)


# --- formats ------------------------------------------------------------------------------------


def test_parquet_and_arrow_have_the_columns_of_a_scan(root: Path, tmp_path: Path) -> None:
    before = tree_of(root)
    report = export(root, tmp_path / "p")
    assert (report.rows, report.state, report.ok) == (150, "done", True)
    tables = [pq.ParquetFile(path).read() for path in files_of(tmp_path / "p")]
    assert pa.concat_tables(tables).equals(expected(root))
    report = export(root, tmp_path / "a", to="arrow", compression="lz4", columns="core")
    tables = [pa.ipc.open_file(path).read_all() for path in files_of(tmp_path / "a")]
    assert pa.concat_tables(tables).equals(expected(root, "core"))
    assert tree_of(root) == before


@pytest.mark.parametrize("compression", ["none", "gzip"])
def test_ndjson_has_the_lines_of_scan(root: Path, tmp_path: Path, compression: str) -> None:
    put(root, 1)
    with open_looked(root, "r+") as store:
        store.put("Orders", b"\xff\x00", 0, properties={"p": 'a"b\nc'})
        store.put("Orders", "grüß\r\n".encode(), 0)
    export(root, tmp_path / "out", to="ndjson", compression=compression)
    paths = files_of(tmp_path / "out")
    opened = gzip.open if compression == "gzip" else open
    rows = [json.loads(line) for path in paths for line in opened(path, "rb").read().splitlines()]
    table = expected(root).to_pylist()
    assert len(rows) == len(table) == 153
    assert [row["queueOffset"] for row in rows] == [row["queueOffset"] for row in table]
    stored = [int(row["storeTimestamp"].timestamp() * 1000) for row in table]
    assert [row["storeTimestamp"] for row in rows] == stored
    assert rows[-2]["bodyBase64"] == "/wA="
    assert "body" not in rows[-2]
    assert rows[-2]["properties"]["p"] == 'a"b\nc'
    assert rows[-1]["body"] == "grüß\r\n"


def test_csv(root: Path, tmp_path: Path) -> None:
    with open_looked(root, "r+") as store:
        store.put("Orders", b'a,"b"\r\n', 0)
    export(root, tmp_path / "out", to="csv", columns="topic,body,properties,raw")
    rows = [
        row for path in files_of(tmp_path / "out")
        for row in csv.DictReader(path.open(newline="", encoding="utf-8"))
    ]  # fmt: skip
    assert list(rows[0]) == ["topic", "body", "bodyBase64", "properties", "rawBase64"]
    assert rows[-1]["body"] == 'a,"b"\r\n'
    assert json.loads(rows[1]["properties"])["n"] == "1"
    assert len(rows) == 151


@pytest.mark.parametrize("to", ["parquet", "ndjson"])
def test_partitions(root: Path, tmp_path: Path, to: str) -> None:
    report = export(root, tmp_path / "out", to=to, partition_by=["topic", "date"])
    folders = {path.parent.relative_to(tmp_path / "out") for path in files_of(tmp_path / "out")}
    assert Path("topic=Orders/date=2023-11-14") in folders
    assert len(folders) == 6
    if to == "parquet":
        schema = pa.schema([("topic", pa.string()), ("date", pa.string())])
        parts = pyarrow.dataset.partitioning(schema, flavor="hive")
        table = pyarrow.dataset.dataset(tmp_path / "out", partitioning=parts).to_table()
        wanted = expected(root).select(["physicalOffset", "topic", "body"])
        assert (
            table.select(["physicalOffset", "topic", "body"])
            .sort_by("physicalOffset")
            .equals(wanted)
        )
    else:
        line = json.loads(files_of(tmp_path / "out")[0].read_text().splitlines()[0])
        assert line["topic"] in ("Orders", "Pays", "Logs")
    assert report.files == len(files_of(tmp_path / "out"))


def test_many_partitions_within_bounds(
    root: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """More partitions than open files, and less room than their rows need."""
    monkeypatch.setattr(export_files, "_WAITING_NBYTES", 2000)
    monkeypatch.setattr(export_files, "_MAX_OPEN", 2)
    table = expected(root)
    layout = export_files.Layout("arrow", "none", ("physicalOffset", "body"), ("topic", "queueId"))
    writer = export_files.PieceWriter(tmp_path, 0, layout)
    for batch in table.to_batches(max_chunksize=10):
        writer.add(batch)
    lines = writer.finish()
    assert (writer.rows, sum(line["rows"] for line in lines)) == (150, 150)
    assert len({line["path"] for line in lines}) == len(lines)
    assert any(line["path"].endswith("-1.arrow") for line in lines)
    found = []
    for number, line in enumerate(lines):
        rows = pa.ipc.open_file(tmp_path / str(number)).read_all()["physicalOffset"].to_pylist()
        assert rows == sorted(rows)
        assert [rows[0], rows[-1]] == line["offsets"]
        found += rows
    assert sorted(found) == log_offsets(root)


def test_the_manifest_lists_hashes_and_offsets(root: Path, tmp_path: Path) -> None:
    export(root, tmp_path / "out")
    lines = manifest(tmp_path / "out")
    found = contents(tmp_path / "out")
    for line in lines:
        if line["kind"] == "file":
            content = found.pop(line["path"])
            assert (len(content), hashlib.sha256(content).hexdigest()) == (
                line["bytes"], line["sha256"],
            )  # fmt: skip
            table = pq.ParquetFile(pa.BufferReader(content)).read(["physicalOffset"])
            at = table["physicalOffset"].to_pylist()
            assert ([at[0], at[-1]], len(at)) == (line["offsets"], line["rows"])
    assert not found
    assert lines[0]["columns"][0] == "topic"
    assert (lines[-1]["kind"], lines[-1]["rows"], lines[-1]["log"]) == ("summary", 150, [0, 32242])


def test_selections(root: Path, tmp_path: Path) -> None:
    export(root, tmp_path / "a", topics=["Pays"], filter="region = 'eu'")
    wanted = expected(root, topics=["Pays"], filter="region = 'eu'")["physicalOffset"].to_pylist()
    assert 0 < len(wanted) < 50
    assert offsets(tmp_path / "a") == wanted
    at = log_offsets(root)
    export(root, tmp_path / "b", start=at[10], stop=at[20])
    assert offsets(tmp_path / "b") == at[10:20]
    assert export(root, tmp_path / "b", append=True).new_rows == 130
    assert offsets(tmp_path / "b") == at[10:]
    begin, end = 1_700_001_000_000, 1_700_009_000_000
    export(root, tmp_path / "c", begin=begin, end=end)
    assert (
        offsets(tmp_path / "c")
        == expected(root, begin=begin, end=end)["physicalOffset"].to_pylist()
    )


def test_a_folder_of_the_log_and_one_segment(root: Path, tmp_path: Path) -> None:
    assert export(root / "commitlog", tmp_path / "a").rows == 150
    first = min((root / "commitlog").iterdir())
    report = export(first, tmp_path / "b")
    assert offsets(tmp_path / "b") == [at for at in log_offsets(root) if at < SEGMENT]
    assert report.log_end < SEGMENT


def test_an_empty_store(tmp_path: Path) -> None:
    open_looked(tmp_path / "store").close()
    report = export(tmp_path / "store", tmp_path / "out")
    assert (report.rows, report.ok) == (0, True)
    put(tmp_path / "store", 3)
    assert export(tmp_path / "store", tmp_path / "out", append=True).new_rows == 3


def test_a_brokers_store_as_consumers_see_it(tmp_path: Path) -> None:
    root = unpack("plain-5.3.3", tmp_path)
    with rocketstore.open(root) as store:
        wanted = sum(1 for _ in store.scan(records="queues"))
    assert export(root, tmp_path / "out", records="queues").rows == wanted


# --- appending ----------------------------------------------------------------------------------


def test_append_adds_what_is_new(
    root: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(pieces, "PIECE_NBYTES", 3000)
    assert not export(root, tmp_path / "out", append=True, columns="full").appended
    before = contents(tmp_path / "out")
    assert export(root, tmp_path / "out", append=True).state == "already"
    for number in range(3):
        put(root, 7)
        report = export(root, tmp_path / "out", append=True)
        assert (report.new_rows, report.rows) == (7, 157 + 7 * number)
        assert report.appended
        assert offsets(tmp_path / "out") == log_offsets(root)
    after = contents(tmp_path / "out")
    assert before.items() <= after.items()
    assert len(after) > len(before)
    assert [line["run"] for line in manifest(tmp_path / "out") if line["kind"] == "export"] == [
        1, 2, 3, 4,
    ]  # fmt: skip


def test_append_keeps_settings_and_refuses_others(root: Path, tmp_path: Path) -> None:
    export(root, tmp_path / "out", to="ndjson", topics=["Pays"])
    before = whole(tmp_path / "out")
    put(root, 1)
    for other in ({"to": "csv"}, {"columns": "core"}, {"topics": ["Logs"]}, {"decompress": True}):
        with pytest.raises(FileExistsError, match="the export there has"):
            export(root, tmp_path / "out", append=True, **other)
    with pytest.raises(FileExistsError, match="append to it"):
        export(root, tmp_path / "out", to="ndjson", topics=["Pays"])
    assert whole(tmp_path / "out") == before
    report = export(root, tmp_path / "out", append=True, to="ndjson")
    assert (report.new_rows, report.log_end > 32242) == (0, True)


def test_append_refuses_another_store(root: Path, tmp_path: Path) -> None:
    export(root, tmp_path / "out")
    before = whole(tmp_path / "out")
    make_store(tmp_path / "short", 20)
    with pytest.raises(SourceChangedError, match="another store"):
        export(tmp_path / "short", tmp_path / "out", append=True)
    with open_looked(tmp_path / "other") as store:
        for number in range(400):
            store.put("Orders", b"other %d" % number * 9, 0)
    with pytest.raises(SourceChangedError, match="another store"):
        export(tmp_path / "other", tmp_path / "out", append=True)
    assert whole(tmp_path / "out") == before


def test_what_was_deleted_before_it_was_exported_is_a_finding(root: Path, tmp_path: Path) -> None:
    export(root, tmp_path / "out")
    with open_looked(root, "r+") as store:
        for number in range(500):
            store.put("Orders", b"%d" % number * 40, 0)
    end = manifest(tmp_path / "out")[-1]["log"][1]
    segments = sorted((root / "commitlog").iterdir())
    first = int(segments[3].name)
    for path in segments[:3]:
        path.unlink()
    with pytest.raises(CorruptMessageError, match="deleted before"):
        export(root, tmp_path / "out", append=True)
    report = export(root, tmp_path / "out", append=True, on_corruption="skip")
    assert not report.ok
    assert [line["log"] for line in report.findings] == [[end, first]]
    assert offsets(tmp_path / "out")[150:] == [at for at in log_offsets(root) if at >= first]
    put(root, 1)
    assert export(root, tmp_path / "out", append=True).ok  # that is of the run before


# --- damage -------------------------------------------------------------------------------------


def damage(root: Path, offset: int, nbytes: int = 4) -> None:
    path = root / "commitlog" / f"{offset // SEGMENT * SEGMENT:020d}"
    with path.open("r+b") as file:
        file.seek(offset % SEGMENT)
        content = file.read(nbytes)
        file.seek(offset % SEGMENT)
        file.write(bytes(byte ^ 0xFF for byte in content))


@pytest.mark.parametrize("size", [256 << 20, 3000])
def test_damage_is_never_left_out_in_silence(
    root: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, size: int
) -> None:
    monkeypatch.setattr(pieces, "PIECE_NBYTES", size)
    at = log_offsets(root)
    for number in (0, 30, 31, 80, 148):
        damage(root, at[number] + 88, 1)  # in the body
    with pytest.raises(CorruptMessageError):
        export(root, tmp_path / "out")
    assert not (tmp_path / "out" / MANIFEST_FILE).exists()
    report = export(root, tmp_path / "out", on_corruption="skip")
    assert report.resumed
    lost = [tuple(line["log"]) for line in report.findings]
    assert {at[0], at[30], at[80], at[148]} <= {start for start, _ in lost}
    missing = [one for one in at if not any(start <= one < stop for start, stop in lost)]
    assert offsets(tmp_path / "out") == missing
    assert {at[0], at[30], at[31], at[80], at[148]}.isdisjoint(missing)
    assert len(missing) == 145
    assert all("lost" in line["kind"] and line["reason"] for line in report.findings)


def test_stop_ends_there_and_append_goes_on(root: Path, tmp_path: Path) -> None:
    at = log_offsets(root)
    damage(root, at[80] + 88, 1)
    report = export(root, tmp_path / "out", on_corruption="stop")
    assert (report.log_end, report.finding_count) == (at[80], 1)
    assert offsets(tmp_path / "out") == at[:80]
    with pytest.raises(CorruptMessageError):
        export(root, tmp_path / "out", append=True)
    report = export(root, tmp_path / "out", append=True, on_corruption="skip")
    assert [line["log"] for line in report.findings] == [[at[80], at[81]]]
    assert offsets(tmp_path / "out") == at[:80] + at[81:]


def test_a_missing_segment_is_a_finding(tmp_path: Path) -> None:
    root = make_store(tmp_path / "store", 400)
    segments = sorted((root / "commitlog").iterdir())
    hole = int(segments[1].name)
    segments[1].unlink()
    with pytest.raises(CorruptMessageError, match="missing"):
        export(root, tmp_path / "fail")
    report = export(root, tmp_path / "skip", on_corruption="skip")
    assert [line["log"] for line in report.findings] == [[hole, hole + SEGMENT]]
    assert offsets(tmp_path / "skip") == log_offsets(root)
    report = export(root, tmp_path / "stop", on_corruption="stop")
    assert (report.log_end, report.finding_count) == (hole, 1)
    assert offsets(tmp_path / "stop") == [at for at in log_offsets(root) if at < hole]


@pytest.mark.parametrize("columns", ["raw", "topic", "topic,raw"])
def test_without_bodies_nothing_is_decompressed(root: Path, tmp_path: Path, columns: str) -> None:
    report = export(root, tmp_path / "out", decompress=True, columns=columns)
    assert report.ok
    assert report.rows == export(root, tmp_path / "again", columns=columns).rows


def test_bodies_are_decompressed(root: Path, tmp_path: Path) -> None:
    with open_looked(root, "r+") as store:
        store.put("Orders", zlib.compress(b"text" * 50), 0, sys_flag=1)
        at = store.put("Orders", b"no zlib", 0, sys_flag=1).physical_offset
        store.put("Orders", zlib.compress(b"more"), 0, sys_flag=0x301)
    report = export(root, tmp_path / "out", decompress=True, columns="body,bodySize,sysFlag")
    assert report.findings == [
        {"kind": "undecompressed", "offset": at, "more": 0, "reason": report.findings[0]["reason"]}
    ]
    rows = [row for path in files_of(tmp_path / "out") for row in pq.read_table(path).to_pylist()]
    assert rows[-3:] == [
        {"body": b"text" * 50, "bodySize": 200, "sysFlag": 0},
        {"body": b"no zlib", "bodySize": 7, "sysFlag": 1},
        {"body": b"more", "bodySize": 4, "sysFlag": 0},
    ]
    assert export(root, tmp_path / "as-stored").ok


# --- interruptions ------------------------------------------------------------------------------


@pytest.mark.skipif(not hasattr(os, "fork"), reason="kills forked processes")
@pytest.mark.parametrize("append", [False, True])
def test_a_kill_at_any_change_is_resumed(
    root: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, append: bool
) -> None:
    monkeypatch.setattr(pieces, "PIECE_NBYTES", 8000)
    first = tmp_path / "first"
    if append:
        export(root, first, to="ndjson", partition_by=["topic"])
        put(root, 300)
    all_of_it = tmp_path / "whole"
    if append:
        shutil.copytree(first, all_of_it)
    export(root, all_of_it, to="ndjson", partition_by=["topic"], append=append)
    out, was_resumed = tmp_path / "out", False

    def run() -> rocketstore.ExportReport:
        return export(root, out, to="ndjson", partition_by=["topic"], append=append)

    for number in range(1, 5000, STRIDE):
        if append:
            shutil.copytree(first, out)
        was_killed = run_until_change(run, number)
        if was_killed:
            for path in files_of(out) if out.exists() else []:  # no half file under a final name
                assert path.read_bytes() == (all_of_it / path.relative_to(out)).read_bytes()
            if append or not (out / MANIFEST_FILE).exists():
                was_resumed |= run().resumed
        assert contents(out) == contents(all_of_it)
        lines, wanted = manifest(out), manifest(all_of_it)
        for line in (*lines, *wanted):
            line.pop("takenAt", None)
        assert lines == wanted
        shutil.rmtree(out / WORK_FOLDER, ignore_errors=True)  # killed after the last name
        assert len(list(out.iterdir())) == 4
        shutil.rmtree(out)
        if not was_killed:
            assert number > 20
            assert was_resumed
            return
    raise AssertionError("it never ended")


def test_a_kill_after_the_last_name_is_made_good(root: Path, tmp_path: Path) -> None:
    out = tmp_path / "out"
    export(root, out, to="ndjson")
    before = whole(out)
    (out / WORK_FOLDER).mkdir()
    (out / WORK_FOLDER / "lock").touch()
    with pytest.raises(FileExistsError, match="has to 'ndjson', not 'csv'"):
        export(root, out, to="csv")
    (out / WORK_FOLDER).mkdir(exist_ok=True)
    put(root, 5)
    report = export(root, out, to="ndjson")
    assert (report.state, report.rows, report.new_rows) == ("already", 150, 0)
    assert whole(out) == before
    assert not (out / WORK_FOLDER).exists()
    with pytest.raises(FileExistsError, match="a complete export"):
        export(root, out, to="ndjson")


def test_a_full_disk_stops_it_and_the_same_call_goes_on(
    root: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    export(root, tmp_path / "whole")
    writes = [3]
    real = os.write

    def write(fd: int, data: Any) -> int:
        writes[0] -= 1
        if writes[0] == 0:
            raise OSError(errno.ENOSPC, "full")
        return real(fd, data)

    monkeypatch.setattr(export_files.os, "write", write)
    with pytest.raises(StoreFullError):
        export(root, tmp_path / "out")
    assert not files_of(tmp_path / "out")
    export(root, tmp_path / "out")
    assert contents(tmp_path / "out") == contents(tmp_path / "whole")


def test_an_interrupt_leaves_what_the_same_call_goes_on_with(root: Path, tmp_path: Path) -> None:
    calls = []

    def interrupt(what: str, done: int, total: int) -> None:
        calls.append((what, done, total))
        if done > SEGMENT:
            raise KeyboardInterrupt

    with pytest.raises(KeyboardInterrupt):
        export(root, tmp_path / "out", progress=interrupt)
    assert [path.name for path in files_of(tmp_path / "out")] == [f"part-{0:020d}.parquet"]
    with pytest.raises(FileExistsError, match="the unfinished export there has to"):
        export(root, tmp_path / "out", to="csv")
    assert export(root, tmp_path / "out").resumed
    assert offsets(tmp_path / "out") == log_offsets(root)
    assert sorted(os.listdir(tmp_path / "out")) == [
        MANIFEST_FILE, *(path.name for path in files_of(tmp_path / "out"))
    ]  # fmt: skip


# --- refusals -----------------------------------------------------------------------------------


def test_refusals_change_nothing(root: Path, tmp_path: Path) -> None:
    (tmp_path / "full").mkdir()
    (tmp_path / "full/file").touch()
    (tmp_path / "file").touch()
    before = tree_of(tmp_path)
    with pytest.raises(FileExistsError, match="it has file"):
        export(root, tmp_path / "full")
    with pytest.raises(FileExistsError, match="not a folder"):
        export(root, tmp_path / "file")
    with pytest.raises(MappedFileError, match="inside the store"):
        export(root, root / "out")
    with pytest.raises(FileNotFoundError):
        export(tmp_path / "nothing", tmp_path / "out")
    assert tree_of(tmp_path) == before


@pytest.mark.parametrize(
    ("options", "words"),
    [
        ({"to": "avro"}, "to is 'avro'"),
        ({"columns": "bodie"}, "did you mean"),
        ({"partition_by": ["day"]}, "partition_by"),
        ({"columns": "topic", "partition_by": ["topic"]}, "leaves no columns"),
        ({"compression": "xz"}, "compression 'xz'"),
        ({"to": "csv", "compression": "snappy"}, "none, gzip"),
        ({"append": True, "start": 0}, "omit start"),
        ({"on_corruption": "ignore"}, "on_corruption"),
        ({"records": "all"}, "records must be"),
        ({"filter": "a ="}, "expression ends"),
        ({"topics": [3]}, "topics"),
        ({"start": -1}, "start"),
    ],
)
def test_wrong_arguments(root: Path, tmp_path: Path, options: dict[str, Any], words: str) -> None:
    with pytest.raises((ValueError, TypeError), match=words):
        export(root, tmp_path / "out", **options)
    assert not (tmp_path / "out").exists()


@pytest.mark.skipif(os.name == "nt", reason="no locks there")
def test_two_calls_for_one_folder(root: Path, tmp_path: Path) -> None:
    (tmp_path / "out" / WORK_FOLDER).mkdir(parents=True)
    lock = StoreLock(tmp_path / "out" / WORK_FOLDER)
    try:
        with pytest.raises(StoreLockedError):
            export(root, tmp_path / "out")
    finally:
        lock.release()
    assert export(root, tmp_path / "out").rows == 150


def test_a_file_of_a_strange_hand_is_not_replaced(root: Path, tmp_path: Path) -> None:
    export(root, tmp_path / "out")
    put(root, 1)
    there = tmp_path / "out" / f"part-{32242:020d}.parquet"
    there.write_text("mine")
    with pytest.raises(FileExistsError, match="not of this export"):
        export(root, tmp_path / "out", append=True)
    assert there.read_text() == "mine"
    there.unlink()
    assert export(root, tmp_path / "out", append=True).new_rows == 1
