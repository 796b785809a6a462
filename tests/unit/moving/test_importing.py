"""``import_``: new and kept offsets, the map, kills, and what is refused before the first byte."""

from __future__ import annotations

import json
import os
import shutil
from pathlib import Path
from typing import Any

import pytest

import rocketstore
from golden.golden_stores import unpack
from rocketstore.errors import (
    MappedFileError,
    RepairRefusedError,
    SourceChangedError,
    StoreLockedError,
)
from rocketstore.moving.exports import import_kept, import_new, pieces
from rocketstore.moving.exports.exporting import export
from rocketstore.moving.exports.importing import WORK_SUFFIX, import_
from support.file_trees import tree_of
from support.kill_points import run_until_change
from support.looked_stores import make_store, open_looked, plain_records

pytestmark = pytest.mark.skipif(not hasattr(os, "fork"), reason="stores are only read there")

#: Every how many changes of the file system a process is killed; 1 is every one.
STRIDE = int(os.environ.get("ROCKETSTORE_MOVING_STRIDE", "29"))


#: Sizes of the files that are built from the log.
SMALL: dict[str, Any] = {
    "mapped_file_size_consume_queue": 2000,
    "max_hash_slot_num": 20,
    "max_index_num": 100,
}


@pytest.fixture
def root(tmp_path: Path) -> Path:
    return make_store(tmp_path / "store")


def messages(root: Path) -> list[tuple[Any, ...]]:
    """What an import keeps of the messages, by queue."""
    with rocketstore.open(root) as store:
        return sorted(
            (one.topic, one.queue_id, one.queue_offset, one.body, list(one.properties.items()),
             one.born_timestamp, one.born_host, one.flag, one.sys_flag, one.reconsume_times)
            for one in store.scan()
        )  # fmt: skip


def log_of(root: Path) -> dict[str, bytes]:
    return {path.name: path.read_bytes() for path in sorted((root / "commitlog").iterdir())}


def check_opens_cleanly(root: Path) -> None:
    with rocketstore.open(root) as store:
        assert store.recovery_report.clean
        assert store.verify().ok


@pytest.mark.parametrize(
    ("to", "compression"), [("parquet", "zstd"), ("arrow", "none"), ("ndjson", "gzip"),
                            ("csv", "none")]
)  # fmt: skip
def test_both_ways_from_every_format(
    root: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, to: str, compression: str
) -> None:
    monkeypatch.setattr(pieces, "PIECE_NBYTES", 5000)
    with open_looked(root, "r+") as store:
        store.put("Orders", b"\xff\x00", 1, flag=3, properties={"p": 'a"b,\r\nc', "e": ""})
        store.put("Orders", "grüß\r\n".encode(), 1, born_host="[2001:db8::1]:99")
        store.put("Orders", b"", 1, reconsume_times=2)
    options = {"to": to, "compression": compression, "partition_by": ["topic"]}
    export(root, tmp_path / "out", **options)
    report = import_(tmp_path / "out", tmp_path / "new")
    assert (report.messages, report.skipped, report.ok) == (153, 0, True)
    assert messages(tmp_path / "new") == messages(root)
    check_opens_cleanly(tmp_path / "new")
    export(root, tmp_path / "exact", columns="topic,raw", **options)
    report = import_(tmp_path / "exact", tmp_path / "same", offsets="keep", **SMALL)
    assert log_of(tmp_path / "same") == log_of(root)
    check_opens_cleanly(tmp_path / "same")
    with rocketstore.open(root) as a, rocketstore.open(tmp_path / "same") as b:
        for topic in a.topics():
            for queue in a.queues(topic):
                assert bytes(a.queue_view(topic, queue)) == bytes(b.queue_view(topic, queue))
    with open_looked(tmp_path / "same", "r+") as store:
        assert store.put("Orders", b"next", 0).ok
    assert sorted(path.name for path in tmp_path.iterdir()) == [
        "exact", "new", "out", "same", "store",
    ]  # fmt: skip


def test_an_existing_store_gets_more_and_a_map(root: Path, tmp_path: Path) -> None:
    make_store(tmp_path / "there", 30)
    export(root, tmp_path / "out")
    with rocketstore.open(tmp_path / "there") as store:
        end = store.max_physical_offset
    report = import_(tmp_path / "out", tmp_path / "there", map=tmp_path / "map")
    lines = [json.loads(line) for line in (tmp_path / "map").read_text().splitlines()]
    assert len(lines) == report.messages == 150
    assert lines[0]["physicalOffset"] == end
    with rocketstore.open(root) as old, rocketstore.open(tmp_path / "there") as new:
        for line in lines:
            a = old.look_message_by_offset(line["fromPhysicalOffset"])
            b = new.look_message_by_offset(line["physicalOffset"])
            assert a is not None
            assert b is not None
            assert a.body == b.body
            assert (line["topic"], line["queueId"]) == (b.topic, b.queue_id)
            assert (line["fromQueueOffset"], line["queueOffset"]) == (
                a.queue_offset, b.queue_offset,
            )  # fmt: skip
    with pytest.raises(FileExistsError):
        import_(tmp_path / "out", tmp_path / "there", map=tmp_path / "map")


def test_one_file(root: Path, tmp_path: Path) -> None:
    lines = '{"topic":"A","body":"x","keys":"k"}\n{"topic":"B","queueId":2,"bodyBase64":"/w=="}\n'
    (tmp_path / "lines.ndjson").write_text(lines)
    assert import_(tmp_path / "lines.ndjson", tmp_path / "new").messages == 2
    with rocketstore.open(tmp_path / "new") as store:
        assert next(store.find(key="k")).body == b"x"
        assert [one.body for one in store.scan(topics=["B"])] == [b"\xff"]


def test_a_brokers_log_is_the_same(tmp_path: Path) -> None:
    root = unpack("plain-5.3.3", tmp_path)
    export(root, tmp_path / "exact", columns="topic,raw")
    report = import_(tmp_path / "exact", tmp_path / "same", offsets="keep")
    assert report.messages == 294
    assert list(plain_records(tmp_path / "same")) == list(plain_records(root))
    check_opens_cleanly(tmp_path / "same")


def test_what_consumers_never_got_is_skipped_and_counted(root: Path, tmp_path: Path) -> None:
    with open_looked(root, "r+") as store:
        store.put("rmq_sys_wheel_timer", b"own", 0)
        store.put("Orders", b"later", 0, delay_level=3)
        store.put("Orders", b"half", 0, sys_flag=4)
    export(root, tmp_path / "out")
    report = import_(tmp_path / "out", tmp_path / "new")
    assert (report.messages, report.skipped) == (150, 3)


def test_a_refused_message_is_listed(root: Path, tmp_path: Path) -> None:
    export(root, tmp_path / "out")
    report = import_(tmp_path / "out", tmp_path / "new", max_message_size=100)
    assert not report.ok
    assert report.messages + report.finding_count == 150
    assert report.findings[0]["reason"].startswith("the store answered MESSAGE_ILLEGAL")


# --- interruptions ------------------------------------------------------------------------------


def test_a_kill_anywhere_is_resumed(
    root: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(import_new, "MARK_ROWS", 40)
    export(root, tmp_path / "out")
    wanted, new, mapped = messages(root), tmp_path / "new", tmp_path / "map"

    def run() -> rocketstore.ImportReport:
        return import_(tmp_path / "out", new, map=mapped)

    was_resumed = False
    for number in range(3, 5000, STRIDE):
        if run_until_change(run, number):
            if not mapped.exists() or (tmp_path / f"new{WORK_SUFFIX}").exists():
                was_resumed |= run().resumed
        else:
            assert was_resumed
            break
        assert messages(new) == wanted
        lines = [json.loads(line) for line in mapped.read_text().splitlines()]
        assert [line["fromPhysicalOffset"] for line in lines] == [
            one.offset for one in plain_records(root) if one.topic is not None
        ]
        mapped.unlink()
        shutil.rmtree(new)
        assert sorted(path.name for path in tmp_path.iterdir()) == ["out", "store"]
    else:
        raise AssertionError("it never ended")


def test_a_kill_between_two_marks_stores_nothing_twice(root: Path, tmp_path: Path) -> None:
    export(root, tmp_path / "out")
    new = tmp_path / "new"

    def interrupt(what: str, done: int, total: int) -> None:
        if what == "importing" and done == 70:
            raise KeyboardInterrupt

    with pytest.raises(KeyboardInterrupt):
        import_(tmp_path / "out", new, progress=interrupt, max_message_size=100)
    before = len(messages(new))
    assert 0 < before < 70
    report = import_(tmp_path / "out", new, max_message_size=100)
    assert report.resumed
    assert report.messages + report.finding_count == 150
    assert len(messages(new)) == report.messages


@pytest.mark.parametrize("partitioned", [False, True])
def test_kept_offsets_go_on_after_the_last_mark(
    root: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, partitioned: bool
) -> None:
    monkeypatch.setattr(import_kept, "MARK_NBYTES", 3000)
    monkeypatch.setattr(pieces, "PIECE_NBYTES", 9000)
    by = ["topic"] if partitioned else []
    export(root, tmp_path / "exact", columns="topic,raw", partition_by=by)
    new, work = tmp_path / "new", tmp_path / f"new{WORK_SUFFIX}"
    rows: list[int] = []

    def until(last: int, *, spoil: bool) -> None:
        def note(what: str, done: int, total: int) -> None:
            if what == "importing":
                rows.append(done)
                if done == last:
                    raise KeyboardInterrupt

        with pytest.raises(KeyboardInterrupt):
            import_(tmp_path / "exact", new, offsets="keep", progress=note, **SMALL)
        assert not new.exists()
        if spoil:  # what was written after the last mark is not trusted
            path = max((work / "store/commitlog").iterdir())
            marks = [json.loads(line) for line in (work / "journal.ndjson").open()]
            end = next((one["end"] for one in reversed(marks) if one["kind"] == "mark"), 0)
            with path.open("r+b") as file:
                file.seek(max(end - int(path.name), 0))
                file.write(b"\xff" * 50)

    until(3, spoil=True)
    until(70, spoil=True)
    assert rows[3] == 1  # there was no mark
    until(141, spoil=False)
    first = rows[3 + 70]
    assert 40 < first <= 70
    report = import_(tmp_path / "exact", new, offsets="keep", **SMALL)
    assert (report.resumed, report.messages, report.state) == (True, 150, "done")
    assert log_of(new) == log_of(root)
    check_opens_cleanly(new)
    assert sorted(path.name for path in tmp_path.iterdir()) == ["exact", "new", "store"]


def test_kept_offsets_belong_to_one_export(root: Path, tmp_path: Path) -> None:
    export(root, tmp_path / "exact", columns="topic,raw")
    export(root, tmp_path / "other", columns="topic,raw,body")

    def interrupt(what: str, done: int, total: int) -> None:
        if done == 70 and what == "importing":
            raise KeyboardInterrupt

    with pytest.raises(KeyboardInterrupt):
        import_(tmp_path / "exact", tmp_path / "new", offsets="keep", progress=interrupt)
    for arguments in (
        {"source": tmp_path / "other", "offsets": "keep"},
        {"source": tmp_path / "exact", "offsets": "keep", "mapped_file_size_commit_log": 1 << 20},
        {"source": tmp_path / "exact", "offsets": "new"},
    ):
        with pytest.raises(FileExistsError, match="unfinished import"):
            import_(path=tmp_path / "new", **arguments)
    assert import_(tmp_path / "exact", tmp_path / "new", offsets="keep").resumed


def test_a_kill_while_the_folder_is_deleted_stores_nothing_twice(
    root: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    export(root, tmp_path / "out")
    new, work = tmp_path / "new", tmp_path / f"new{WORK_SUFFIX}"
    renamed = os.rename

    def killed(*_: object) -> None:
        raise KeyboardInterrupt

    with monkeypatch.context() as patched:
        patched.setattr(os, "rename", killed)
        with pytest.raises(KeyboardInterrupt):
            import_(tmp_path / "out", new)
    assert work.is_dir()
    assert import_(tmp_path / "out", new).resumed

    def killed_after(source: str, destination: str) -> None:
        renamed(source, destination)
        raise KeyboardInterrupt

    shutil.rmtree(new)
    with monkeypatch.context() as patched:
        patched.setattr(os, "rename", killed_after)
        with pytest.raises(KeyboardInterrupt):
            import_(tmp_path / "out", new)
    assert not work.exists()
    assert len(messages(new)) == 150
    # What is left of the folder is deleted by the next call.
    shutil.rmtree(new)
    assert not import_(tmp_path / "out", new).resumed
    assert sorted(path.name for path in tmp_path.iterdir()) == ["new", "out", "store"]


def test_messages_out_of_batches(tmp_path: Path) -> None:
    root = unpack("inner-5.3.3", tmp_path)
    export(root, tmp_path / "log")
    report = import_(tmp_path / "log", tmp_path / "a")
    assert "--records queues" in report.findings[0]["reason"]
    export(root, tmp_path / "queues", records="queues")
    report = import_(tmp_path / "queues", tmp_path / "b")
    with rocketstore.open(root) as store:
        wanted = [one.body for one in store.scan(records="queues")]
    with rocketstore.open(tmp_path / "b") as store:
        assert [one.body for one in store.scan()] == wanted
    assert report.ok


def test_another_writer_meanwhile_is_noticed(root: Path, tmp_path: Path) -> None:
    export(root, tmp_path / "out")
    new = tmp_path / "new"

    def interrupt(what: str, done: int, total: int) -> None:
        if done == 70:
            raise KeyboardInterrupt

    with pytest.raises(KeyboardInterrupt):
        import_(tmp_path / "out", new, progress=interrupt)
    with rocketstore.open(new, "r+") as store:
        store.put("Orders", b"of another", 0)
    before = messages(new)
    with pytest.raises(SourceChangedError, match="by another program"):
        import_(tmp_path / "out", new)
    assert messages(new) == before
    with pytest.raises(FileExistsError, match="another map"):
        import_(tmp_path / "out", new, map=tmp_path / "map")


# --- refusals -----------------------------------------------------------------------------------


def test_kept_offsets_are_refused_before_the_first_byte(root: Path, tmp_path: Path) -> None:
    export(root, tmp_path / "full")
    export(root, tmp_path / "some", columns="topic,raw", topics=["Pays"])
    export(root, tmp_path / "late", columns="topic,raw", start=200)
    export(root, tmp_path / "good", columns="topic,raw")
    offset = [one.offset for one in plain_records(root)][20]
    path = root / "commitlog" / f"{0:020d}"
    content = bytearray(path.read_bytes())
    content[offset + 88] ^= 1
    path.write_bytes(content)
    export(root, tmp_path / "lost", columns="topic,raw", on_corruption="skip")
    before = tree_of(tmp_path)
    for name, words in (
        ("full", "no column raw"), ("some", "selection"), ("late", "begin of a"),
        ("lost", "lacks"),
    ):  # fmt: skip
        with pytest.raises(RepairRefusedError, match=words):
            import_(tmp_path / name, tmp_path / "same", offsets="keep")
    with pytest.raises(FileExistsError):
        import_(tmp_path / "good", root, offsets="keep")
    before.pop("."), (after := tree_of(tmp_path)).pop(".")
    assert after == before


@pytest.mark.parametrize("offsets", ["new", "keep"])
def test_a_changed_file_is_refused_before_the_first_byte(
    root: Path, tmp_path: Path, offsets: str
) -> None:
    export(root, tmp_path / "out", columns="topic,body,raw")
    last = max((tmp_path / "out").glob("part-*"))
    content = last.read_bytes()
    last.write_bytes(content[:-9] + b"x" + content[-8:])
    with pytest.raises(MappedFileError, match="was changed"):
        import_(tmp_path / "out", tmp_path / "new", offsets=offsets)
    last.unlink()
    with pytest.raises(MappedFileError, match="is missing"):
        import_(tmp_path / "out", tmp_path / "new", offsets=offsets)
    (tmp_path / "out" / "_manifest.ndjson").unlink()
    with pytest.raises(FileNotFoundError, match="no export"):
        import_(tmp_path / "out", tmp_path / "new", offsets=offsets)
    assert sorted(path.name for path in tmp_path.iterdir()) == ["out", "store"]


def test_kept_offsets_keep_the_version(tmp_path: Path) -> None:
    """An index of 5.4 and later has entries of tags; the log alone does not show the version."""
    source = unpack("plain-5.5.0", tmp_path)
    export(source, tmp_path / "out", columns="topic,raw")
    assert import_(tmp_path / "out", tmp_path / "same", offsets="keep").ok
    assert rocketstore.diff(source, tmp_path / "same").state == "equal"
    with rocketstore.open(tmp_path / "same") as store:
        assert store.broker_version.startswith("5.5")


def test_other_refusals(root: Path, tmp_path: Path) -> None:
    export(root, tmp_path / "out", columns="topic,storeTimestamp")
    with pytest.raises(RepairRefusedError, match="no column body"):
        import_(tmp_path / "out", tmp_path / "new")
    with pytest.raises(ValueError, match="offsets is"):
        import_(tmp_path / "out", tmp_path / "new", offsets="same")
    with pytest.raises(ValueError, match="no map"):
        import_(tmp_path / "out", tmp_path / "new", offsets="keep", map=tmp_path / "map")
    (tmp_path / "file.txt").touch()
    with pytest.raises(MappedFileError, match="must end with"):
        import_(tmp_path / "file.txt", tmp_path / "new")
    (tmp_path / "bad.ndjson").write_text('{"topic":"A","body":"x"}\n{"topic":\n')
    with pytest.raises(MappedFileError, match="line 2"):
        import_(tmp_path / "bad.ndjson", tmp_path / "bad")
    export(root, tmp_path / "whole")
    with open_looked(root, "r+"), pytest.raises(StoreLockedError):
        import_(tmp_path / "whole", root)
