"""Segments and directories that are short, empty, missing, misnamed, foreign or unsafe."""

from __future__ import annotations

import json
import os
import shutil
import socket
import stat
import sys
from collections.abc import Callable, Iterator, Sequence
from pathlib import Path
from typing import Any

import pytest

import rocketstore
from corruption import crafted
from corruption.crafted import SEGMENT, Crafted, Record, snapshot
from golden import golden_stores
from rocketstore import ConfigError, MappedFileError, RocketStoreError, UnsafePathError
from support.other_user import give_away, reachable_folder
from support.own_process import run_python

pytestmark = pytest.mark.skipif(sys.platform == "win32", reason="stores are only read there")


def refused(
    store: Crafted, error: type[Exception], *texts: str, mode: str = "r+", **options: Any
) -> None:
    """Opening raises with every text in the message, and changes nothing."""
    before = snapshot(store.root)
    with pytest.raises(error) as caught:
        rocketstore.open(store.root, mode, **options)
    assert not isinstance(caught.value, AssertionError)
    for text in texts:
        assert text in str(caught.value)
    assert snapshot(store.root) == before


def is_foreign(path: Path) -> bool:
    """Whether it is a file with a name that no segment has: no broker starts with it."""
    whole = path.name.isascii() and path.name.isdigit() and len(path.name) == 20
    return path.is_file() and not path.is_symlink() and not (whole and int(path.name) < 2**63)


def opens_whole(
    store: Crafted, records: list[Record] | None = None, foreign: Sequence[Path] = ()
) -> list[Any]:
    """Both modes show all records; a put works and is still there; returns both reports.

    ``foreign``: what ``verify`` finds outside of the log's folder.
    """
    raws = [r.raw for r in (store.records if records is None else records)]
    before = snapshot(store.root)
    with rocketstore.open(store.root, "r") as reader:
        assert [bytes(m.raw) for m in reader.scan()] == raws
        reports = [reader.recovery_report]
    assert snapshot(store.root) == before
    with rocketstore.open(store.root, "r+") as writer:
        reports.append(writer.recovery_report)
        assert [bytes(m.raw) for m in writer.scan()] == raws
        assert writer.put("Orders", b"next", 0, None, "next").ok
    with rocketstore.open(store.root, "r+") as writer:
        assert [bytes(m.raw) for m in writer.scan()][:-1] == raws
        findings = writer.verify().findings
        assert {one.kind for one in findings} <= {"foreign-file"}, findings
        listed = [os.fspath(path) for path in store.root.glob("commitlog/*") if is_foreign(path)]
        assert sorted(one.path for one in findings) == sorted([*listed, *map(str, foreign)])
    return reports


def read_around(store: Crafted, lost: Callable[[Record], bool]) -> Any:
    """Mode "r" serves everything but the lost records; nothing changes; returns the report."""
    before = snapshot(store.root)
    good = [r.raw for r in store.records if not lost(r)]
    with rocketstore.open(store.root, "r") as reader:
        assert [bytes(m.raw) for m in reader.scan(on_corruption="skip")] == good
        messages, _ = crafted.pull_all(reader)
        assert crafted.in_log_order(messages) == good
        for record in store.records:
            if not lost(record):
                found = reader.find(topic=record.topic, key=record.key, on_corruption="skip")
                assert record.offset in [m.physical_offset for m in found]
        report = reader.recovery_report
    assert snapshot(store.root) == before
    return report


# --- B01 .. B06: sizes and places -------------------------------------------------------------


@pytest.mark.parametrize("count", [1, 2])
@pytest.mark.parametrize("aborted", [True, False])
@pytest.mark.parametrize("state", [True, False])
def test_b01_empty_last_segment(store: Crafted, count: int, aborted: bool, state: bool) -> None:
    end = store.files_end()
    for number in range(count):
        name = rocketstore.formats.offset_to_file_name(end + number * SEGMENT)
        (store.root / "commitlog" / name).touch()
    if aborted:
        store.crashed()
    if not state:
        (store.root / "rocketstore.state").unlink()
    opens_whole(store)
    assert all(path.stat().st_size == SEGMENT for path in store.segments())


def test_b01_only_segment_is_empty(tmp_path: Path) -> None:
    root = tmp_path / "store"
    (root / "commitlog").mkdir(parents=True)
    (root / "commitlog" / f"{0:020d}").touch()
    with rocketstore.open(root) as reader:
        assert list(reader.scan()) == []
    with rocketstore.open(root, "r+", **crafted.OPTIONS) as writer:
        (note,) = writer.recovery_report.notes
        assert note.startswith(f"removed {root / 'commitlog' / f'{0:020d}'}: a segment of 0 bytes")
        assert writer.put("Orders", b"first").physical_offset == 0
    with rocketstore.open(root) as reader:
        assert [m.body for m in reader.scan()] == [b"first"]


def test_b01_empty_segment_is_not_removed_when_the_open_is_refused(store: Crafted) -> None:
    """Nothing changes unless the whole log was found fit."""
    name = rocketstore.formats.offset_to_file_name(store.files_end())
    (store.root / "commitlog" / name).touch()
    store.segments()[1].unlink()
    refused(store, MappedFileError)


def test_b01_lone_empty_segment_in_mid_log(store: Crafted) -> None:
    """Only its name shows where the log continued: it is not removed."""
    for path in store.segments()[:-1]:
        path.unlink()
    os.truncate(store.segments()[0], 0)
    (store.root / "rocketstore.state").unlink()
    refused(store, RocketStoreError, mapped_file_size_commit_log=SEGMENT)


@pytest.mark.parametrize("state", [True, False])
def test_b02_empty_middle_segment(store: Crafted, state: bool) -> None:
    os.truncate(store.segments()[1], 0)
    if not state:
        (store.root / "rocketstore.state").unlink()
    refused(store, MappedFileError, str(store.segments()[1]), str(SEGMENT), str(2 * SEGMENT))
    report = read_around(store, lambda r: SEGMENT <= r.offset < 2 * SEGMENT)
    assert [(d.start, d.stop) for d in report.damaged] == [(SEGMENT, 2 * SEGMENT)]


@pytest.mark.parametrize("nbytes", [1, 100, 4096, SEGMENT - 1])
@pytest.mark.parametrize("state", [True, False])
def test_b03_short_last_segment(store: Crafted, nbytes: int, state: bool) -> None:
    last = store.segments()[-1]
    start = int(last.name)
    os.truncate(last, nbytes)
    if not state:
        (store.root / "rocketstore.state").unlink()
    refused(store, MappedFileError, str(last), str(nbytes), str(SEGMENT))
    read_around(store, lambda r: r.end > start + nbytes)


def test_b03_short_segment_of_a_log_of_one(tmp_path: Path) -> None:
    root = tmp_path / "store"
    crafted.build(root, count=10)
    path = root / "commitlog" / f"{0:020d}"
    os.truncate(path, 5000)
    before = snapshot(root)
    with pytest.raises(RocketStoreError) as caught:
        rocketstore.open(root, "r+")
    assert "5000" in str(caught.value)
    assert str(SEGMENT) in str(caught.value)
    assert snapshot(root) == before


@pytest.mark.parametrize("number", [0, 1])
def test_b03_other_segments_short_or_long(store: Crafted, number: int) -> None:
    path = store.segments()[number]
    os.truncate(path, SEGMENT - 100)
    refused(store, MappedFileError, str(path), str(SEGMENT - 100), str(SEGMENT))
    os.truncate(path, SEGMENT + 100)
    refused(store, MappedFileError, str(path), str(SEGMENT + 100), str(SEGMENT))


@pytest.mark.parametrize("size", [SEGMENT // 2, SEGMENT * 2, 1 << 30, 128])
@pytest.mark.parametrize("mode", ["r", "r+", "a"])
def test_b04_other_size_configured(store: Crafted, size: int, mode: str) -> None:
    refused(store, ConfigError, str(size), str(SEGMENT), mode=mode,
            mapped_file_size_commit_log=size)  # fmt: skip


@pytest.mark.parametrize("state", [True, False])
def test_b05_missing_middle_segment(store: Crafted, state: bool) -> None:
    store.segments()[1].unlink()
    if not state:
        (store.root / "rocketstore.state").unlink()
    refused(store, MappedFileError, str(SEGMENT), str(2 * SEGMENT))
    report = read_around(store, lambda r: SEGMENT <= r.offset < 2 * SEGMENT)
    assert [(d.start, d.stop) for d in report.damaged] == [(SEGMENT, 2 * SEGMENT)]


def test_b05_missing_segment_above_the_mark(store: Crafted) -> None:
    """A later segment was made after it, so it was there."""
    store.segments()[1].unlink()
    store.set_state(100)
    refused(store, MappedFileError, str(SEGMENT), str(2 * SEGMENT))
    read_around(store, lambda r: SEGMENT <= r.offset < 2 * SEGMENT)


def test_b05_a_gap_of_the_whole_range_of_offsets(store: Crafted) -> None:
    """A file far away costs no time."""
    far = (2**62) // SEGMENT * SEGMENT
    name = rocketstore.formats.offset_to_file_name(far)
    (store.root / "commitlog" / name).write_bytes(bytes(SEGMENT))
    refused(store, MappedFileError, str(far))
    read_around(store, lambda _: False)


def test_b05_missing_first_segments_are_expired(store: Crafted) -> None:
    store.segments()[0].unlink()
    kept = [r for r in store.records if r.offset >= SEGMENT]
    raws = [r.raw for r in kept]
    with rocketstore.open(store.root, "r") as reader:
        assert [bytes(m.raw) for m in reader.scan()] == raws
    with rocketstore.open(store.root, "r+") as writer:
        assert [bytes(m.raw) for m in writer.scan()] == raws
        assert writer.put("Orders", b"next").ok
        assert writer.wait_dispatched(10)
        messages, errors = crafted.pull_all(writer)
        assert crafted.in_log_order(messages)[:-1] == raws
        assert not errors


@pytest.mark.parametrize("shift", [1, 100, SEGMENT // 2])
@pytest.mark.parametrize("mode", ["r", "r+"])
def test_b06_first_segment_is_misnamed(store: Crafted, shift: int, mode: str) -> None:
    first = store.segments()[0]
    first.rename(first.with_name(f"{shift:020d}"))
    refused(store, MappedFileError, f"{shift:020d}", str(SEGMENT), mode=mode)


@pytest.mark.parametrize("number", [1, -1])
def test_b06_later_segment_is_misnamed(store: Crafted, number: int) -> None:
    path = store.segments()[number]
    start = int(path.name)
    other = path.with_name(f"{start + 40:020d}")
    path.rename(other)
    refused(store, MappedFileError, str(start + 40), str(SEGMENT))
    report = read_around(store, lambda r: start <= r.offset < start + SEGMENT)
    assert any(other.name in note for note in report.notes)


# --- B07, B08: names that are not segment names -----------------------------------------------

FOREIGN = [
    ".DS_Store", "core.123", f"{SEGMENT:020d}.bak", "notes", f"{SEGMENT:020d}~", f".{0:020d}.swp",
    f"{0:020d} ", "lost+found", "Thumbs.db", "\udcff\udcfe", "new\nline",
]  # fmt: skip
NO_OFFSETS = [
    "99999999999999999999", str(2**63).zfill(20), str(2**64).zfill(20), "0", "00", str(SEGMENT),
    "-0000000000000000000", "+0000000000000000000", "0000000000000016384", f"{SEGMENT:021d}",
    "0000000000000000000x", "0x000000000000000000", " 0000000000000000000",
    "\u0660" * 20, "1e000000000000000000", "0000000000_000000000",
]  # fmt: skip


@pytest.mark.parametrize("name", FOREIGN, ids=ascii)
def test_b07_foreign_file_is_not_changed(store: Crafted, name: str) -> None:
    path = store.root / "commitlog" / name
    path.write_bytes(b"" if name == "notes" else b"something else")
    for report in opens_whole_with_foreign(store, path):
        assert report.skipped == [str(path)]


@pytest.mark.parametrize("name", NO_OFFSETS, ids=ascii)
def test_b08_name_that_is_no_offset_is_not_changed(store: Crafted, name: str) -> None:
    path = store.root / "commitlog" / name
    path.write_bytes(bytes(SEGMENT))
    for report in opens_whole_with_foreign(store, path):
        assert report.skipped == [str(path)]


def opens_whole_with_foreign(store: Crafted, path: Path) -> list[Any]:
    content = path.read_bytes() if path.is_file() else None
    reports = opens_whole(store)
    if content is None:
        assert os.path.lexists(path)
    else:
        assert path.read_bytes() == content
    return reports


def test_b07_foreign_directory_and_link_are_not_changed(store: Crafted) -> None:
    folder = store.root / "commitlog" / "old"
    folder.mkdir()
    (folder / f"{0:020d}").write_bytes(bytes(SEGMENT))
    link = store.root / "commitlog" / "somewhere"
    link.symlink_to("/nonexistent")
    for report in opens_whole_with_foreign(store, folder):
        assert sorted(report.skipped) == [str(folder), str(link)]


def test_b07_is_reported_once(store: Crafted, caplog: pytest.LogCaptureFixture) -> None:
    for name in ("core.123", "core.124"):
        (store.root / "commitlog" / name).touch()
    with rocketstore.open(store.root, "r+"):
        reported = [r for r in caplog.records if "core.123" in r.getMessage()]
    assert len(reported) == 1
    assert reported[0].levelname == "WARNING"


# --- B09, B10: what is no regular file --------------------------------------------------------


def make_directory(path: Path) -> None:
    path.mkdir()


def make_fifo(path: Path) -> None:
    os.mkfifo(path)


def make_socket(path: Path) -> None:
    here = os.getcwd()
    os.chdir(path.parent)  # the address has little room
    try:
        with socket.socket(socket.AF_UNIX) as server:
            server.bind(path.name)
    finally:
        os.chdir(here)


def make_device(path: Path) -> None:
    if os.getuid() != 0:
        pytest.skip("only root makes device nodes")
    try:
        os.mknod(path, stat.S_IFCHR | 0o600, os.makedev(1, 5))
    except PermissionError:
        pytest.skip("device nodes are not allowed here")


KINDS = {"directory": make_directory, "fifo": make_fifo, "socket": make_socket,
         "device": make_device}  # fmt: skip


@pytest.mark.timeout(20)
@pytest.mark.parametrize("make", KINDS.values(), ids=KINDS.keys())
@pytest.mark.parametrize("mode", ["r", "r+"])
@pytest.mark.parametrize("place", ["next", "first", "queue", "index"])
def test_b09_no_regular_file(
    store: Crafted, make: Callable[[Path], None], mode: str, place: str
) -> None:
    path = {
        "next": store.root / "commitlog" / f"{store.files_end():020d}",
        "first": store.segments()[0],
        "queue": store.root / "consumequeue" / "Orders" / "0" / f"{0:020d}",
        "index": sorted((store.root / "index").iterdir())[0],
    }[place]
    path.unlink(missing_ok=True)
    make(path)
    if mode == "r" and place in ("queue", "index"):
        done_without(store, path)
    elif mode == "r":
        counts_as_lost(store, path)
    else:
        refused(store, MappedFileError, str(path), mode=mode)


def counts_as_lost(store: Crafted, path: Path) -> None:
    """What stands in a segment's place is a lost segment, and named."""
    before = snapshot(store.root)
    with rocketstore.open(store.root) as reader:
        report = reader.recovery_report
        assert any(one.path == str(path) for one in report.damaged), report
        assert list(reader.scan(on_corruption="skip"))
    assert snapshot(store.root) == before


def done_without(store: Crafted, path: Path) -> None:
    """Mode ``"r"`` does without ``path``, and says so: all messages are there by offset, by queue
    and by key."""
    before = snapshot(store.root)
    with rocketstore.open(store.root) as reader:
        assert [bytes(m.raw) for m in reader.scan()] == [r.raw for r in store.records]
        report = reader.recovery_report
        assert any(str(path) in reported for reported in [*report.notes, *report.skipped])
        for message in reader.scan(topics=["Orders"]):
            place = (message.topic, message.queue_id, message.queue_offset)
            (found,) = reader.get_message("g", *place, 1).messages
            assert found.physical_offset == message.physical_offset
            for key in (message.keys or "").split():
                hits = [m.physical_offset for m in reader.find(topic="Orders", key=key)]
                assert message.physical_offset in hits
    assert snapshot(store.root) == before


def make_loop(path: Path) -> None:
    path.symlink_to(path.name)


def make_dangling(path: Path) -> None:
    path.symlink_to("nowhere")


@pytest.mark.timeout(20)
@pytest.mark.parametrize("make", KINDS.values(), ids=KINDS.keys())
@pytest.mark.parametrize("name", ["checkpoint", "rocketstore.state", "lock", "abort"])
def test_b09_no_regular_file_beside_the_log(
    store: Crafted, make: Callable[[Path], None], name: str
) -> None:
    """Reading was refused, too, for the sake of files that it can do without."""
    path = store.root / name
    path.unlink(missing_ok=True)
    make(path)
    refused(store, MappedFileError, str(path))
    if name == "lock":
        opens_for_reading(store)
        return
    done_without(store, path)
    with rocketstore.open(store.root) as reader:
        assert reader.recovery_report.clean == (name != "abort")


def opens_for_reading(store: Crafted) -> None:
    with rocketstore.open(store.root) as reader:
        assert [bytes(m.raw) for m in reader.scan()] == [r.raw for r in store.records]


@pytest.mark.timeout(20)
@pytest.mark.parametrize("make", [make_loop, make_dangling])
@pytest.mark.parametrize("name", ["checkpoint", "rocketstore.state"])
def test_b10_link_to_nothing_is_noted(
    store: Crafted, make: Callable[[Path], None], name: str
) -> None:
    path = store.root / name
    path.unlink()
    make(path)
    done_without(store, path)


@pytest.mark.timeout(20)
@pytest.mark.parametrize("make", [*KINDS.values(), make_loop], ids=[*KINDS, "loop"])
@pytest.mark.parametrize("name", ["config", "config/topics.json"])
def test_b09_tables_that_cannot_be_read_are_noted(
    store: Crafted, make: Callable[[Path], None], name: str
) -> None:
    path = store.root / name
    path.parent.mkdir(exist_ok=True)
    make(path)
    opens_for_reading(store)
    if name != "config":
        done_without(store, path)


@pytest.fixture
def outside(tmp_path: Path) -> Iterator[Path]:
    """A folder that the store must not touch."""
    folder = tmp_path / "outside"
    folder.mkdir()
    (folder / "file").write_bytes(b"precious" * (SEGMENT // 8))
    before = snapshot(folder)
    yield folder
    assert snapshot(folder) == before


LINKS = {
    "segment": "commitlog/00000000000000000000",
    "next segment": "next",
    "queue file": "consumequeue/Orders/0/00000000000000000000",
    "checkpoint": "checkpoint",
    "state": "rocketstore.state",
    "lock": "lock",
}


@pytest.mark.parametrize("name", LINKS.values(), ids=LINKS.keys())
@pytest.mark.parametrize("target", ["file", "missing"])
def test_b10_link_out_of_the_root(store: Crafted, outside: Path, name: str, target: str) -> None:
    path = store.root / name
    if name == "next":
        path = store.root / "commitlog" / f"{store.files_end():020d}"
    path.unlink(missing_ok=True)
    path.symlink_to(outside / target)
    refused(store, UnsafePathError, str(path), str(outside / target))
    if name != "lock":
        refused(store, UnsafePathError, str(path), mode="r")


@pytest.mark.parametrize("name", ["commitlog", "consumequeue", "index", "consumequeue/Orders",
                                  "consumequeue/Orders/0"])  # fmt: skip
@pytest.mark.parametrize("mode", ["r", "r+"])
def test_b10_folder_that_is_a_link_out_of_the_root(
    store: Crafted, outside: Path, name: str, mode: str
) -> None:
    path = store.root / name
    shutil.rmtree(path)
    path.symlink_to(outside)
    refused(store, UnsafePathError, str(path), mode=mode)


def test_b10_quarantine_that_is_a_link_out_of_the_root(store: Crafted, outside: Path) -> None:
    (store.root / "quarantine").symlink_to(outside)
    target = store.records[-4]
    store.write(target.offset, target.with_number("magic", 0))
    store.set_state(target.offset)
    store.crashed()
    with pytest.raises(UnsafePathError):
        rocketstore.open(store.root, "r+")


def test_b10_new_queue_where_a_link_leads_out(store: Crafted, outside: Path) -> None:
    """A topic that never had a queue: its folder is a link, but no queue's name is in it."""
    (store.root / "consumequeue" / "Fresh").symlink_to(outside)
    with pytest.raises(UnsafePathError):
        rocketstore.open(store.root, "r+")


def test_b10_abort_that_is_a_link_is_replaced(store: Crafted, outside: Path) -> None:
    (store.root / "abort").symlink_to(outside / "file")
    with rocketstore.open(store.root, "r+") as writer:
        assert writer.put("Orders", b"next").ok


def test_b10_links_inside_the_root_are_followed(store: Crafted) -> None:
    last = store.segments()[-1]
    moved = store.root / "elsewhere"
    last.rename(moved)
    last.symlink_to(moved)
    opens_whole(store)
    assert last.is_symlink()


# --- B11, B12: topic and queue folders --------------------------------------------------------

NO_TOPICS = ["new\nline", "\udcff\udcfe", "..\n", "\x1b[2J", "a\x7f", "..\udcff", "\x01"]
NO_QUEUES = ["abc", "-1", "007", "00", "99999999999", "2147483648", "1.0", " 1", "+1", "\u0661",
             "1_0", "0x1", "1\n"]  # fmt: skip


def tree(path: Path) -> None:
    """A folder with a queue file of zeros."""
    path.mkdir(parents=True)
    (path / f"{0:020d}").write_bytes(bytes(320))


@pytest.mark.parametrize("name", NO_TOPICS, ids=ascii)
def test_b11_folder_that_is_no_topic_is_not_changed(store: Crafted, name: str) -> None:
    path = store.root / "consumequeue" / name
    tree(path / "0")
    before = snapshot(path)
    for report in opens_whole(store):
        assert report.skipped == [str(path)]
    assert snapshot(path) == before
    with rocketstore.open(store.root) as reader:
        assert name not in reader.topics()


@pytest.mark.parametrize("name", NO_QUEUES, ids=ascii)
def test_b12_folder_that_is_no_queue_is_not_changed(store: Crafted, name: str) -> None:
    path = store.root / "consumequeue" / "Orders" / name
    tree(path)
    before = snapshot(path)
    for report in opens_whole(store):
        assert report.skipped == [str(path)]
    assert snapshot(path) == before
    with rocketstore.open(store.root) as reader:
        assert reader.queues("Orders") == [0, 1]


def test_b12_files_among_folders_are_not_changed(store: Crafted) -> None:
    paths = [
        store.root / "consumequeue" / "notes",
        store.root / "consumequeue" / "Orders" / "1.txt",
        store.root / "consumequeue" / "Orders" / "5",
        store.root / "consumequeue" / "Orders" / "0" / "notes",
        store.root / "index" / "notes",
    ]
    for path in paths:
        path.write_bytes(b"foreign")
    in_the_way = [path for path in paths if path.parent.name == "0"]
    for report in opens_whole(store, foreign=in_the_way):
        assert sorted(report.skipped) == sorted(map(str, paths))
    assert all(path.read_bytes() == b"foreign" for path in paths)


# --- B13: permissions -------------------------------------------------------------------------

AS_NOBODY = """
import json, os, sys, tempfile
import numpy  # openings without damage need none
import rocketstore
root, mode = sys.argv[1:]
# Import everything while it may be read: the interpreter may be some user's own.
with tempfile.TemporaryDirectory() as folder:
    options = {"mapped_file_size_commit_log": 4096, "max_hash_slot_num": 5, "max_index_num": 50}
    with rocketstore.open(folder, "a", **options) as store:
        for _ in range(100):
            store.put("T", b"body", keys="k")
    for other_mode in ("r+", "r"):
        with rocketstore.open(folder, other_mode) as store:
            list(store.scan())
if os.getuid() == 0:
    os.setgroups([]); os.setgid(65534); os.setuid(65534)
try:
    with rocketstore.open(root, mode) as store:
        scanned = [m.physical_offset for m in store.scan(on_corruption="skip")]
        print(json.dumps({"scanned": scanned, "notes": store.recovery_report.notes}))
except Exception as error:
    print(json.dumps({"error": type(error).__name__, "text": str(error)}))
"""


@pytest.fixture
def owned(template: Path) -> Iterator[Crafted]:
    """A copy that another user than root owns, where that user can reach it."""
    with reachable_folder() as folder:
        store = Crafted(template, folder / "store")
        give_away(store.root)
        yield store


def as_nobody(store: Crafted, mode: str) -> dict[str, Any]:
    """Open as a user whom permissions bind."""
    before = snapshot(store.root) if os.getuid() == 0 else None
    done = run_python(AS_NOBODY, str(store.root), mode)
    assert done.returncode == 0, done.stderr
    if before is not None:
        assert snapshot(store.root) == before
    return dict(json.loads(done.stdout.splitlines()[-1]))


@pytest.mark.parametrize("number", [0, 1, -1])
def test_b13_unreadable_segment(owned: Crafted, number: int) -> None:
    path = owned.segments()[number]
    start = int(path.name)
    path.chmod(0)
    answer = as_nobody(owned, "r+")
    assert answer["error"] == "PermissionError"
    assert str(path) in answer["text"]
    answer = as_nobody(owned, "r")
    assert answer["scanned"] == [
        r.offset for r in owned.records if not start <= r.offset < start + SEGMENT
    ]
    assert any(str(path) in note for note in answer["notes"])


@pytest.mark.parametrize("name", ["consumequeue/Orders/0/00000000000000000000", "index/*",
                                  "consumequeue/Orders", "consumequeue", "index", "checkpoint",
                                  "rocketstore.state", "config/topics.json"])  # fmt: skip
def test_b13_unreadable_derived_file(owned: Crafted, name: str) -> None:
    path = owned.root / name
    if name == "index/*":
        path = sorted(path.parent.iterdir())[-1]
    if name == "config/topics.json":
        path.parent.mkdir()
        path.write_bytes(b"{}")
    path.chmod(0)
    answer = as_nobody(owned, "r+")
    assert answer["error"] == "PermissionError"
    assert str(path) in answer["text"]
    answer = as_nobody(owned, "r")
    assert answer["scanned"] == [r.offset for r in owned.records]


@pytest.mark.parametrize("folder", ["", "commitlog"])
def test_b13_directory_without_write_permission(owned: Crafted, folder: str) -> None:
    (owned.root / folder).chmod(0o555)
    if folder == "":
        answer = as_nobody(owned, "r+")
        assert answer["error"] == "PermissionError"
        assert str(owned.root) in answer["text"]
    answer = as_nobody(owned, "r")
    assert answer["scanned"] == [r.offset for r in owned.records]


def test_b13_nothing_may_be_written(owned: Crafted) -> None:
    """As on a read-only mount."""
    for path in (owned.root, *owned.root.rglob("*")):
        path.chmod(0o555 if path.is_dir() else 0o444)
    answer = as_nobody(owned, "r+")
    assert answer["error"] == "PermissionError"
    assert str(owned.root) in answer["text"]
    answer = as_nobody(owned, "r")
    assert answer["scanned"] == [r.offset for r in owned.records]


def test_b13_log_folder_that_may_not_be_listed(owned: Crafted) -> None:
    (owned.root / "commitlog").chmod(0)
    for mode in ("r", "r+"):
        done = run_python(AS_NOBODY, str(owned.root), mode)
        answer = json.loads(done.stdout.splitlines()[-1])
        assert answer["error"] == "PermissionError"
        assert str(owned.root / "commitlog") in answer["text"]


# --- B14: the path itself ---------------------------------------------------------------------


@pytest.mark.parametrize("mode", ["r", "r+", "a", "x"])
def test_b14_path_is_a_file(tmp_path: Path, mode: str) -> None:
    path = tmp_path / "file"
    path.write_bytes(b"no store")
    before = snapshot(tmp_path)
    with pytest.raises((NotADirectoryError, FileExistsError), match="file"):
        rocketstore.open(path, mode)
    assert snapshot(tmp_path) == before


@pytest.mark.parametrize("mode", ["r", "r+"])
@pytest.mark.parametrize("name", ["missing", "missing/below", "dangling"])
def test_b14_path_does_not_exist(tmp_path: Path, mode: str, name: str) -> None:
    (tmp_path / "dangling").symlink_to(tmp_path / "nowhere")
    before = snapshot(tmp_path)
    with pytest.raises(FileNotFoundError, match=name.split("/")[0]):
        rocketstore.open(tmp_path / name, mode)
    assert snapshot(tmp_path) == before


def test_b14_exclusive_creation_of_what_exists(store: Crafted) -> None:
    refused(store, FileExistsError, str(store.root), mode="x")


def test_b14_below_a_file(tmp_path: Path) -> None:
    (tmp_path / "file").write_bytes(b"")
    before = snapshot(tmp_path)
    for mode in ("r", "r+", "a", "x"):
        with pytest.raises(OSError, match="file"):
            rocketstore.open(tmp_path / "file" / "store", mode)
    assert snapshot(tmp_path) == before


def test_b14_empty_directory(tmp_path: Path) -> None:
    """Nothing to read, and nothing is made by reading."""
    root = tmp_path / "empty"
    root.mkdir()
    with rocketstore.open(root) as reader:
        assert list(reader.scan()) == []
        assert reader.topics() == []
    assert list(root.iterdir()) == []


@pytest.mark.parametrize("name", ["plain-5.3.3", "crash-5.3.3"])
def test_segments_of_rocketmq_are_refused_alike(name: str, tmp_path: Path) -> None:
    """B03, B05 and B02 on stores that RocketMQ wrote."""
    store = Crafted(golden_stores.unpack(name, tmp_path), tmp_path / "copy")
    size = store.segment_size
    paths = store.segments()
    assert len(paths) >= 3
    content = paths[-1].read_bytes()
    os.truncate(paths[-1], size - 10)
    refused(store, MappedFileError, str(size), str(size - 10))
    paths[-1].write_bytes(content)
    os.truncate(paths[1], 0)
    refused(store, MappedFileError, str(int(paths[1].name) + size))
    paths[1].unlink()
    refused(store, MappedFileError, str(int(paths[1].name) + size))
    with rocketstore.open(store.root) as reader:
        start = int(paths[1].name)
        offsets = [m.physical_offset for m in reader.scan(on_corruption="skip")]
        assert offsets == [r.offset for r in store.records if not start <= r.offset < start + size]
